//! The configuration of a trial's members: drawn from its seed, the same for chaos, kills, flips and power.
//!
//! | Drawn | Why |
//! |---|---|
//! | leader leases, in a third of the trials | reads by the clock; the file `promise` |
//! | a comparison of members every 0.3 to 2 s | every trial must see some; the default is one a minute |
//! | a scrub of all files every 0.3 to 3 s, or none | the same; the default is one a day |
//! | log and apply inline, or on threads | other orders of the same steps |
//! | TLS on all ports, in a third of the trials | all messages use it; a certificate proves a member's identity |
//! | priorities with a transfer, suspicion, leaving slow disks | leadership moves, or stays, for other reasons |
//!
//! TLS is never drawn where clocks lie: a certificate has a first and a last day. Leader leases are never drawn where
//! the clocks of members run at other rates or jump: answers would be as wrong as the clocks, and lawfully so until a
//! leader has proof. Wall clocks may jump: leader leases do not use them.
//! Knows nothing of: faults; the effects of flags.

use crate::clocks::Lie;
use crate::target::Target;
use kattu_random::Random;
use std::fmt;

/// Flags of one trial's members, in addition to those of every trial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--lease-reads`.
    pub leases: bool,
    /// `--digest-interval`, in milliseconds; 0 is the default.
    pub digest_ms: u64,
    /// `--scrub-period`, in milliseconds; 0 is the default.
    pub scrub_ms: u64,
    /// Certificates for all members, and TLS on all connections.
    pub tls: bool,
    /// `--log-io=thread`.
    pub log_thread: bool,
    /// `--apply=thread`.
    pub apply_thread: bool,
    /// `--suspicion-delay`, in milliseconds.
    pub suspicion_ms: Option<u64>,
    /// `--leave-slow-disk=false`.
    pub stays_on_slow_disk: bool,
    /// `--election-priority` by place, with `--leader-transfer`; empty for neither.
    pub priorities: Vec<u8>,
    /// Further flags of a trial of a kind of its own, none of them drawn here.
    pub more: Vec<String>,
}

/// More places than any trial has.
const PLACES: usize = 8;

impl Flags {
    /// Draws the flags of a seed. `lie` are the clocks that lie in this trial, if any do.
    pub fn draw(seed: u64, target: Target, lie: Option<Lie>) -> Flags {
        if target != Target::Kattu {
            return Flags::default();
        }
        let mut random = Random::of_part(seed, "flags");
        let leases = random.per_mille(350);
        let digest_ms = random.within(300..2_001);
        let scrub_ms = if random.per_mille(700) { random.within(300..3_001) } else { 0 };
        let (log_thread, apply_thread) = (random.per_mille(400), random.per_mille(400));
        let suspicion_ms = *random.pick(&[None, None, Some(0), Some(50)]);
        let stays_on_slow_disk = random.per_mille(300);
        let has_priorities = random.per_mille(300);
        let priorities: Vec<u8> = (0..PLACES).map(|_| *random.pick(&[0, 50, 100, 100, 200, 255])).collect();
        let tls = Random::of_part(seed, "tls").per_mille(334) && lie.is_none();
        Flags {
            tls,
            leases: leases && lie != Some(Lie::All),
            digest_ms,
            scrub_ms,
            log_thread,
            apply_thread,
            suspicion_ms,
            stays_on_slow_disk,
            priorities: if has_priorities { priorities } else { Vec::new() },
            more: Vec::new(),
        }
    }

    /// The scheme of the members' URLs.
    pub fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Command line flags of the member at this place, without those for its certificate.
    pub fn words(&self, place: usize) -> Vec<String> {
        let mut words = Vec::new();
        if self.leases {
            words.push("--lease-reads=true".into());
        }
        for (flag, milliseconds) in [("digest-interval", self.digest_ms), ("scrub-period", self.scrub_ms)] {
            if 0 < milliseconds {
                words.push(format!("--{flag}={milliseconds}"));
            }
        }
        for (flag, is_thread) in [("log-io", self.log_thread), ("apply", self.apply_thread)] {
            if is_thread {
                words.push(format!("--{flag}=thread"));
            }
        }
        words.extend(self.suspicion_ms.map(|delay| format!("--suspicion-delay={delay}")));
        if self.stays_on_slow_disk {
            words.push("--leave-slow-disk=false".into());
        }
        words.extend_from_slice(&self.more);
        if let Some(priority) = self.priorities.get(place) {
            words.extend([format!("--election-priority={priority}"), "--leader-transfer=true".into()]);
        }
        words
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let common = self.words(PLACES).join(" ");
        f.write_str(if self.tls { "TLS, " } else { "" })?;
        f.write_str(if common.is_empty() { "no flags of its own" } else { &common })?;
        if self.priorities.is_empty() { Ok(()) } else { write!(f, " priorities {:?}", self.priorities) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(lie: Option<Lie>) -> Vec<Flags> {
        (0..300).map(|seed| Flags::draw(seed, Target::Kattu, lie)).collect()
    }

    #[test]
    fn a_third_of_the_trials_have_leases_and_most_have_everything_else_now_and_then() {
        let all = drawn(None);
        assert_eq!(all, drawn(None), "decided by the seed");
        let count = |is: &dyn Fn(&Flags) -> bool| all.iter().filter(|flags| is(flags)).count();
        assert!((75..=135).contains(&count(&|flags| flags.leases)), "{}", count(&|flags| flags.leases));
        assert!((70..=130).contains(&count(&|flags| flags.tls)), "{}", count(&|flags| flags.tls));
        assert!((150..300).contains(&count(&|flags| 0 < flags.scrub_ms)));
        assert!((50..250).contains(&count(&|flags| flags.log_thread)));
        assert!((50..250).contains(&count(&|flags| flags.apply_thread)));
        assert!((50..250).contains(&count(&|flags| !flags.priorities.is_empty())));
        assert!((50..250).contains(&count(&|flags| flags.suspicion_ms.is_some())));
        assert!(all.iter().all(|flags| (300..=2_000).contains(&flags.digest_ms)), "they always compare");
    }

    #[test]
    fn no_lease_rests_on_clocks_that_lie_and_wall_clocks_are_no_matter() {
        assert!(drawn(Some(Lie::All)).iter().all(|flags| !flags.leases));
        let without = |flags: Flags| Flags { tls: false, ..flags };
        assert!(drawn(Some(Lie::Wall)).iter().all(|flags| !flags.tls), "certificates do look at them");
        let plain: Vec<Flags> = drawn(None).into_iter().map(without).collect();
        assert_eq!(drawn(Some(Lie::Wall)), plain);
    }

    #[test]
    fn what_is_drawn_is_on_the_command_line_and_etcd_gets_nothing_of_it() {
        for (seed, flags) in drawn(None).into_iter().enumerate() {
            let words = flags.words(2);
            assert_eq!(words.contains(&"--lease-reads=true".to_string()), flags.leases, "seed {seed}");
            assert!(words.contains(&format!("--digest-interval={}", flags.digest_ms)));
            assert_eq!(words.iter().any(|word| word.starts_with("--scrub-period=")), 0 < flags.scrub_ms);
            let priority = flags.priorities.get(2).map(|priority| format!("--election-priority={priority}"));
            assert!(priority.is_none_or(|word| words.contains(&word)));
        }
        assert_eq!(Flags::draw(1, Target::Etcd, None).words(0), Vec::<String>::new());
    }
}
