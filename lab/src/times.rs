//! Times: the eleven times of a request, of a run.
//!
//! ```text
//!   client ─ t_trans(CL) ─ t_prs ─ t_idx ─ t_queue ─ t_trans(LF) ─ t_wait ─ t_append ─ t_ack ─ t_commit ─ t_apply ─▶ client
//! ```
//! In:   means of the stages of writes at the leader and of appends at followers, and of the client's latencies.
//! Rule: the formulas at the end of replication-protocols §13.4. The two ways between leader and follower count half each, the
//!       way back as a part of t_ack; t_apply includes the answer. So the eleven add up to the latency, and what no stage shows
//!       is a part of t_trans(CL).
//! Knows nothing of: how stages are measured.

use crate::measured::COUNTERS;
use crate::results::Sample;
use kattu_petri::Stage;

/// Means in microseconds, in the order of [`Stage::ALL`]; nothing if the run has no samples of stages.
#[must_use]
pub fn eleven(run: &Sample) -> Option<[f64; 11]> {
    let mean = |path: &str, stage: &str| run.stage_us(path, stage);
    let [taken, proposed, sent] =
        [mean("write", "taken")?, mean("write", "proposed")?, mean("write", "sent")?];
    let [replicated, committed] = [mean("write", "replicated")?, mean("write", "committed")?];
    let answered = mean("write", "answered")?;
    let [appendable, stored] = [mean("append", "appendable")?, mean("append", "stored")?];
    let acknowledged = mean("append", "acknowledged")?;
    // Messages that waited in front of the replica did so before they arrived there.
    let messages = run.counters.get(COUNTERS[2]).filter(|messages| 0.0 < **messages);
    let waited =
        run.counters.get("append waited").zip(messages).map_or(0.0, |(micros, count)| micros / count);
    let way = (replicated - sent - acknowledged - waited).max(0.0) / 2.0;
    let latency = run.latency_us()?;
    let of_stage = |stage: Stage| match stage {
        Stage::Generate => 0.0,
        Stage::TransferToLeader => (latency - answered).max(0.0),
        Stage::Parse => taken,
        Stage::Index => proposed - taken,
        Stage::Queue => (sent - proposed).max(0.0),
        Stage::TransferToFollower => way,
        Stage::Wait => waited + appendable,
        Stage::Append => stored - appendable,
        Stage::Acknowledge => way + acknowledged - stored,
        Stage::Commit => committed - replicated,
        Stage::Apply => answered - committed,
    };
    Some(Stage::ALL.map(of_stage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn the_eleven_times_add_up_to_the_latency() {
        let mut run = sample("a", 0, 1.0);
        run.latencies_us = vec![(200, 1), (400, 1)];
        let stages = [
            ("write", [("taken", 5.0), ("proposed", 15.0), ("sent", 20.0), ("replicated", 220.0)].as_slice()),
            ("write", &[("committed", 222.0), ("answered", 240.0), ("samples", 2.0)]),
            ("append", &[("appendable", 4.0), ("stored", 104.0), ("acknowledged", 110.0), ("samples", 3.0)]),
        ];
        assert_eq!(eleven(&run), None, "no stages");
        for (path, means) in stages {
            let samples = if path == "write" { 2.0 } else { 3.0 };
            for (stage, mean) in means {
                let sum = if *stage == "samples" { samples } else { mean * samples };
                run.counters.insert(format!("{path} {stage}"), sum);
            }
        }
        run.counters.insert("append waited".into(), 60.0);
        run.counters.insert(COUNTERS[2].into(), 2.0);
        let times = eleven(&run).expect("stages");
        // 200 from sent to replicated, without 110 at the follower and 30 in front of it: 30 each way.
        let expected = [0.0, 60.0, 5.0, 10.0, 5.0, 30.0, 34.0, 100.0, 36.0, 2.0, 18.0];
        assert_eq!(times, expected);
        assert!((times.iter().sum::<f64>() - 300.0).abs() < 1e-9);
    }
}
