//! Settings of a point as words, for the pages of a report.
//!
//! Knows nothing of: pages.

use super::{Blow, Fault, LinkPlan, Members};
use kattu_rig::weather::Weather;
use std::fmt;
use std::time::Duration;

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Members::All => "all members",
            Members::Leader => "the leader",
            Members::Followers => "followers",
            Members::OneFollower => "one follower",
        })
    }
}

impl fmt::Display for LinkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Weather { is_cut, delay, bandwidth, stall, reset, corrupt, duplicate, reorder, loss, drop } =
            self.all;
        let mut words = Vec::new();
        match delay {
            (Duration::ZERO, Duration::ZERO) => {}
            (least, most) if least == most => words.push(format!("{most:?} each way")),
            (least, most) => words.push(format!("{least:?} to {most:?} each way")),
        }
        if is_cut {
            words.push("cut".into());
        }
        if 0 < bandwidth {
            words.push(format!("{bandwidth} bytes/s"));
        }
        let fates = [
            (loss, "pieces lost and sent again"),
            (drop, "appends and answers lost for good"),
            (stall, "pieces stalled"),
            (reset, "pieces cut off by a reset"),
            (corrupt, "pieces with a flipped bit"),
            (duplicate, "messages sent twice"),
            (reorder, "messages sent after the next one"),
        ];
        let fates = fates.iter().filter(|(chance, _)| 0 < *chance);
        words.extend(fates.map(|(chance, what)| format!("{chance} in 1000 {what}")));
        words.extend(self.egress.iter().map(|(members, rate)| format!("{rate} bytes/s out of {members}")));
        words.extend(self.between.map(|between| {
            let rows = between.map(|row| row.map(|milliseconds| milliseconds.to_string()).join(" "));
            format!("milliseconds more from each place to each: {}", rows.join(" / "))
        }));
        f.write_str(if words.is_empty() { "without delay" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { after, of, what } = self;
        match what {
            Blow::Kill => write!(f, "{of} killed after {after:?}"),
            Blow::Pause(time) => write!(f, "{of} paused after {after:?} for {time:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_say_what_they_do_and_nothing_else() {
        let ms = Duration::from_millis;
        let of = |all| LinkPlan { all, ..LinkPlan::default() };
        assert_eq!(LinkPlan::default().to_string(), "without delay");
        let lossy = of(Weather { delay: (ms(5), ms(5)), loss: 20, ..Weather::default() });
        assert_eq!(lossy.to_string(), "5ms each way, 20 in 1000 pieces lost and sent again");
        let slow = of(Weather { delay: (ms(0), ms(1)), bandwidth: 1000, drop: 1, ..Weather::default() });
        assert_eq!(
            slow.to_string(),
            "0ns to 1ms each way, 1000 bytes/s, 1 in 1000 appends and answers lost for good"
        );
        let egress = LinkPlan { egress: vec![(Members::OneFollower, 7)], ..LinkPlan::default() };
        assert_eq!(egress.to_string(), "7 bytes/s out of one follower");
        let far = LinkPlan { between: Some(&[[0, 1, 2, 3, 4]; 5]), ..LinkPlan::default() }.to_string();
        assert!(far.starts_with("milliseconds more from each place to each: 0 1 2 3 4 / 0 1"), "{far}");
    }

    #[test]
    fn a_fault_says_whom_it_strikes_and_when() {
        let fault = |what| Fault { after: Duration::from_secs(1), of: Members::Leader, what }.to_string();
        assert_eq!(fault(Blow::Kill), "the leader killed after 1s");
        assert_eq!(fault(Blow::Pause(Duration::from_secs(2))), "the leader paused after 1s for 2s");
    }
}
