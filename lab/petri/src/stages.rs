//! Stages: parameters from the measured stages of a Kattu cluster.
//!
//! In:   means of `kattu status --stages` at the leader and at the follower that completes the quorum, and of a client.
//! Rule: the formulas at the end of section 13.4. A mean stage is a latency; where members work on many entries at once, what
//!       one entry costs of a serial step is its part of that. Distributions are not measured: all delays are constant.
//! Knows nothing of: how stages are measured.

use crate::delay::Delay;
use crate::parameters::{ClientLink, LogWork, Parameters};
use serde::{Deserialize, Serialize};

/// Mean times in microseconds. Those of the leader count from the receipt of a write, those of the follower from the arrival of
/// an append.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Stages {
    /// Between two sendings of a client in which it waits for no answer: t_gen.
    pub generate: f64,
    /// Latency of a client.
    pub latency: f64,
    /// The node's thread takes the write.
    pub taken: f64,
    /// It has an entry.
    pub proposed: f64,
    /// Its first message is on the way.
    pub sent: f64,
    /// The leader knows that a quorum has stored it.
    pub replicated: f64,
    /// The commit index has passed it.
    pub committed: f64,
    /// The store has the result.
    pub applied: f64,
    /// The answer is given to the connection.
    pub answered: f64,
    /// At the follower: what comes before the entries is there.
    pub follower_appendable: f64,
    /// At the follower: they are durable.
    pub follower_stored: f64,
    /// At the follower: the answer is on its way.
    pub follower_acknowledged: f64,
    /// Entries that share a sync, on average; 1 and more.
    pub entries_per_sync: f64,
    /// Processors of each member, 1 and more.
    pub cores: u32,
}

impl Parameters {
    /// Parameters of a cluster with these stages, for a setting with `ordered_stream`.
    ///
    /// t_queue is no parameter of the net, because it follows from the dispatchers: what a member needs to gather a message is
    /// part of `scheduling` here, and appears in t_trans(LF). t_wait is left out, because it follows from the order of arrivals.
    ///
    /// # Errors
    /// A stage comes before the one that it must follow, or is no time: its name.
    pub fn from_stages(stages: &Stages) -> Result<Parameters, String> {
        let between = |name: &str, from: f64, to: f64| {
            let micros = to - from;
            match micros.is_finite() && 0.0 <= micros {
                true => Ok(micros),
                false => Err(format!("{name}: {micros} µs, from {from} to {to}")),
            }
        };
        let index = between("t_idx = proposed - taken", stages.taken, stages.proposed)?;
        let queue = between("t_queue = sent - proposed", stages.proposed, stages.sent)?;
        let away = between("replicated - sent", stages.sent, stages.replicated)?;
        let both_ways =
            between("t_trans(LF) = (replicated - sent) - acknowledged", stages.follower_acknowledged, away)?;
        let append =
            between("t_append = stored - appendable", stages.follower_appendable, stages.follower_stored)?;
        let answer = between("acknowledged - stored", stages.follower_stored, stages.follower_acknowledged)?;
        let commit = between("t_commit = committed - replicated", stages.replicated, stages.committed)?;
        let apply = between("t_apply = applied - committed", stages.committed, stages.applied)?;
        let client = between("t_trans(CL) = latency - answered", stages.answered, stages.latency)?;
        let generate = between("t_gen", 0.0, stages.generate)?;
        if !(1.0..=1e6).contains(&stages.entries_per_sync) {
            return Err(format!("entries per sync: {}, not 1 and more", stages.entries_per_sync));
        }
        let together = stages.entries_per_sync;
        let parameters = Parameters {
            generate: Delay::Constant(generate),
            client_latency: Delay::Constant(client / 2.0),
            peer_latency: Delay::Constant((both_ways + answer) / 2.0),
            scheduling: Delay::Constant(queue),
            client_link: ClientLink::Shared,
            bandwidth_gbps: 0.0,
            parse: Delay::Constant(stages.taken),
            index: Delay::Constant(index / together),
            append: Delay::Constant(append),
            append_entries_max: together.ceil() as usize,
            commit: Delay::Constant(commit / together),
            apply: Delay::Constant(apply),
            appliers: together.ceil() as u32,
            cores: stages.cores,
            switch_penalty: 0.0,
            waiting_runnable: 0.0,
            poll_us: 0.0,
            log: LogWork::default(),
            host: None,
        };
        parameters.check()?;
        Ok(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Setting;
    use crate::{Stage, predict};

    const ONE: Stages = Stages {
        generate: 2.0,
        latency: 300.0,
        taken: 5.0,
        proposed: 15.0,
        sent: 20.0,
        replicated: 220.0,
        committed: 222.0,
        applied: 232.0,
        answered: 240.0,
        follower_appendable: 4.0,
        follower_stored: 104.0,
        follower_acknowledged: 110.0,
        entries_per_sync: 1.0,
        cores: 2,
    };

    #[test]
    fn one_client_gets_the_latency_that_was_measured() {
        let parameters = Parameters::from_stages(&ONE).expect("parameters");
        let setting = Setting { ordered_stream: true, requests: 200, warm_up: 10, ..Setting::raft(1) };
        let report = predict(&parameters, &setting).expect("a run").report;
        // All but what is between stages: 4 µs until the entries were appendable, 8 until the answer was given.
        let expected = 300.0 - 4.0 - 8.0;
        assert!((report.accepted.mean_us - expected).abs() < 1.0, "{}", report.accepted.mean_us);
        assert!((report.time(Stage::Index).mean_us - 10.0).abs() < 0.01);
        assert!((report.time(Stage::Append).mean_us - 100.0).abs() < 0.01);
        assert!((report.time(Stage::Apply).mean_us - 10.0).abs() < 0.01);
    }

    #[test]
    fn stages_in_the_wrong_order_are_refused_by_name() {
        let wrong = Stages { sent: 10.0, ..ONE };
        let error = Parameters::from_stages(&wrong).expect_err("a refusal");
        assert_eq!(error, "t_queue = sent - proposed: -5 µs, from 15 to 10");
        let none = Stages { entries_per_sync: 0.0, ..ONE };
        assert!(Parameters::from_stages(&none).is_err());
    }
}
