//! Profiles: parameters of published systems, and a bare net.
//!
//! Stated by the published work: 96 cores in four processors, 10 Gb/s, 4 KB, dispatchers as many as clients [S4, V-A]; the
//! formula of the way from clients [S4, II-B]; that appends are short, applies are batched, and the index lock of Apache Ratis is
//! heavier [S4, II-F]. The times of single steps are the start values of section 13.5.
//!
//! Chosen here, because nothing is stated: `generate` (1 ms), `scheduling` (200 µs), `switch_penalty` (0.8) and `appliers` (16). The
//! shapes that hang on them are named in `docs/petri.md`.
//! Knows nothing of: settings.

use crate::delay::Delay;
use crate::parameters::{ClientLink, LogWork, Parameters};

/// Apache IoTDB as in S4's analysis: many appender threads, a cheap index lock, applies that are batched.
#[must_use]
pub fn iotdb() -> Parameters {
    Parameters {
        generate: Delay::Exponential(1000.0),
        client_latency: Delay::Lognormal { mean: 75.0, sigma: 0.5 },
        peer_latency: Delay::Lognormal { mean: 75.0, sigma: 0.5 },
        scheduling: Delay::Exponential(200.0),
        client_link: ClientLink::Divided,
        bandwidth_gbps: 10.0,
        parse: Delay::Constant(10.0),
        index: Delay::Constant(3.0),
        append: Delay::Constant(1.0),
        append_entries_max: 1,
        commit: Delay::Constant(1.0),
        apply: Delay::Constant(20.0),
        appliers: 16,
        cores: 96,
        switch_penalty: 0.8,
        waiting_runnable: 1.0,
        poll_us: 0.0,
        log: LogWork::default(),
        host: None,
    }
}

/// Apache Ratis with several appenders and its file store: a heavier index lock, and input and output for each request.
#[must_use]
pub fn ratis() -> Parameters {
    Parameters { index: Delay::Exponential(10.0), apply: Delay::Exponential(100.0), ..iotdb() }
}

/// A net in which nothing takes time but the way from the leader to followers: the assumptions of the closed form.
#[must_use]
pub fn bare(peer_latency: Delay) -> Parameters {
    Parameters {
        generate: Delay::NONE,
        client_latency: Delay::NONE,
        peer_latency,
        scheduling: Delay::NONE,
        client_link: ClientLink::Shared,
        bandwidth_gbps: 0.0,
        parse: Delay::NONE,
        index: Delay::NONE,
        append: Delay::NONE,
        append_entries_max: 1,
        commit: Delay::NONE,
        apply: Delay::NONE,
        appliers: 1,
        cores: 1,
        switch_penalty: 0.0,
        waiting_runnable: 0.0,
        poll_us: 0.0,
        log: LogWork::default(),
        host: None,
    }
}
