//! Counters of the faces. On the hot path each count is one relaxed atomic.
//!
//! Knows nothing of: metric names, text formats.

use crate::rpc::Rpc;
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::Code;

/// Number of gRPC codes.
pub(crate) const CODES: usize = 17;

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

    /// Sets it; levels only.
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

/// All counters of the faces of one member.
#[derive(Debug)]
pub struct Counters {
    rpcs: Box<[RpcCounters]>,
    /// Client connections open now (a level).
    pub connections: Counter,
    /// Client connections accepted.
    pub connections_accepted: Counter,
    /// Client connections refused because there were too many, or not accepted by the system.
    pub connections_refused: Counter,
    /// Client connections that ended with a client's error: unknown protocol, broken frame, missed deadline.
    pub connections_broken: Counter,
    /// Client connections closed because no frame came for too long.
    pub connections_idle: Counter,
    /// Client connections closed because their clients read nothing, or too little, of what waited for them.
    pub connections_stalled: Counter,
    /// Client connections closed for too many pings, or too many calls in a row that were refused.
    pub connections_too_much: Counter,
    /// Completed TLS handshakes.
    pub handshakes: Counter,
    /// Client connections refused, or closed later, for a reason of TLS.
    pub handshakes_refused: Counter,
    /// Responses given up because their clients read nothing of them.
    pub answers_stalled: Counter,
    /// Responses, streams included, given up because their clients read too slowly.
    pub answers_slow: Counter,
    /// Responses not given, or cut short, because they were too large.
    pub answers_too_large: Counter,
    /// Snapshots refused because too many reads of the whole store were under way.
    pub looks_refused: Counter,
    /// Bytes of gRPC messages received.
    pub received_bytes: Counter,
    /// Bytes of gRPC messages written out to be sent.
    pub sent_bytes: Counter,
    /// Health checks over HTTP that succeeded.
    pub health_success: Counter,
    /// Health checks over HTTP that failed.
    pub health_failure: Counter,
    /// Plain HTTP requests.
    pub http_requests: Counter,
    /// Requests of the native protocol.
    pub native_requests: Counter,
    /// Bytes received in the native protocol.
    pub native_received_bytes: Counter,
    /// Bytes sent in the native protocol.
    pub native_sent_bytes: Counter,
    /// Automatic compactions by this member.
    pub auto_compactions: Counter,
    /// Seconds of history of which every revision can be read, as of the last check.
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
            native_requests: Counter::default(),
            native_received_bytes: Counter::default(),
            native_sent_bytes: Counter::default(),
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

    /// Counts a call as started; the guard counts its end.
    pub fn begin(&self, rpc: Rpc) -> InFlight<'_> {
        let counters = self.of(rpc);
        counters.started.add(1);
        InFlight { counters, ended: Code::Cancelled }
    }
}

/// A call under way. If it is dropped without [`InFlight::end`], its client has cancelled it.
pub struct InFlight<'a> {
    counters: &'a RpcCounters,
    ended: Code,
}

impl InFlight<'_> {
    /// Ends the call with this code.
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
