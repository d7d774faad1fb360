//! What the faces count. On the hot path each count is one relaxed atomic.
//!
//! Knows nothing of: metric names, text formats.

use crate::rpc::Rpc;
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::Code;

/// Number of gRPC codes.
pub const CODES: usize = 17;

/// A number that grows, or a level.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes away from it; levels only.
    pub fn sub(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// Becomes this; levels only.
    pub fn set(&self, level: u64) {
        self.0.store(level, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Calls of one RPC.
#[derive(Debug, Default)]
pub struct RpcCounters {
    /// Calls begun.
    pub started: Counter,
    /// Calls ended, by code.
    pub handled: [Counter; CODES],
}

/// All that the faces of one member count.
#[derive(Debug)]
pub struct Counters {
    rpcs: Box<[RpcCounters]>,
    /// Client connections open now (a level).
    pub connections: Counter,
    /// Client connections accepted.
    pub connections_accepted: Counter,
    /// Client connections turned away because there were too many.
    pub connections_refused: Counter,
    /// Client connections that ended with an error of theirs: no protocol we speak, a broken frame, a deadline.
    pub connections_broken: Counter,
    /// Client connections closed because they said nothing for too long.
    pub connections_idle: Counter,
    /// Client connections closed because their clients took nothing, or too little, of what waited for them.
    pub connections_stalled: Counter,
    /// Client connections closed for too many pings, or too many calls in a row that were refused.
    pub connections_too_much: Counter,
    /// Handshakes of TLS that were carried out.
    pub handshakes: Counter,
    /// Clients that TLS has not let in, or lets in no more.
    pub handshakes_refused: Counter,
    /// Answers given up because their clients took nothing of them.
    pub answers_stalled: Counter,
    /// Answers, streams among them, given up because their clients took too little.
    pub answers_slow: Counter,
    /// Answers not given, or not whole, because they are larger than an answer may be.
    pub answers_too_large: Counter,
    /// Snapshots refused because as many look at everything as may.
    pub looks_refused: Counter,
    /// Bytes of gRPC messages received.
    pub received_bytes: Counter,
    /// Bytes of gRPC messages written out to be sent.
    pub sent_bytes: Counter,
    /// Health questions over HTTP answered well.
    pub health_success: Counter,
    /// Health questions over HTTP answered badly.
    pub health_failure: Counter,
    /// Plain HTTP requests.
    pub http_requests: Counter,
    /// Revisions this member has compacted of itself.
    pub auto_compactions: Counter,
    /// Seconds back to which history surely reaches, as of the last look.
    pub history_seconds: Counter,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            rpcs: Rpc::ALL.iter().map(|_| RpcCounters::default()).collect(),
            connections: Counter::default(),
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            connections_broken: Counter::default(),
            connections_idle: Counter::default(),
            connections_stalled: Counter::default(),
            connections_too_much: Counter::default(),
            handshakes: Counter::default(),
            handshakes_refused: Counter::default(),
            answers_stalled: Counter::default(),
            answers_slow: Counter::default(),
            answers_too_large: Counter::default(),
            looks_refused: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            health_success: Counter::default(),
            health_failure: Counter::default(),
            http_requests: Counter::default(),
            auto_compactions: Counter::default(),
            history_seconds: Counter::default(),
        }
    }
}

impl Counters {
    /// The counters of one RPC.
    #[must_use]
    pub fn of(&self, rpc: Rpc) -> &RpcCounters {
        &self.rpcs[rpc as usize]
    }

    /// Counts a call as begun; whoever holds the answer says how it ended.
    pub fn begin(&self, rpc: Rpc) -> InFlight<'_> {
        let counters = self.of(rpc);
        counters.started.add(1);
        InFlight { counters, ended: Code::Cancelled }
    }
}

/// A call under way. One that is dropped without an end was cancelled by its client.
pub struct InFlight<'a> {
    counters: &'a RpcCounters,
    ended: Code,
}

impl InFlight<'_> {
    /// Says how the call ended.
    pub fn end(mut self, code: Code) {
        self.ended = code;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.counters.handled[self.ended as usize].add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_by_its_end_and_as_cancelled_without_one() {
        let counters = Counters::default();
        counters.begin(Rpc::Put).end(Code::Ok);
        drop(counters.begin(Rpc::Put));
        let put = counters.of(Rpc::Put);
        assert_eq!(put.started.get(), 2);
        assert_eq!(put.handled[Code::Ok as usize].get(), 1);
        assert_eq!(put.handled[Code::Cancelled as usize].get(), 1);
    }
}
