//! Yielding: a busy leader slows its clients a little while a voter that came back does not catch up.
//!
//! In:    bytes proposed, how far behind voters are, time.
//! Out:   how much may be proposed; warnings for the operator.
//! Rules: [fault-model F51]
//!   1. A voter is behind if it is heard and lacks more than the recent entries: it is fed from the disk, or with a
//!      snapshot. It gains if what it lacks shrinks by a sixteenth within four election timeouts: a first megabyte over
//!      a link of 1 MB/s takes one. While it receives a snapshot, what it lacks shrinks with the last piece only, so at
//!      least one piece within four election timeouts counts as a gain. The peer checks the whole file before it
//!      answers the last piece; if that takes longer it is no gain, for a leader cannot tell it from a lost piece. A
//!      second snapshot is no gain either: the measure is what the voter lacked when the first one began.
//!   2. While a voter does not gain, at least `client_share_min` percent of the former bytes per second are admitted.
//!      No proposal is refused: what is not admitted waits.
//!   3. No proposal waits longer for that than a heartbeat interval and a tenth, for admitted bytes are counted ten
//!      times per interval. Clients that wait for an answer before their next request are held to the share by waits
//!      far below that. No wait holds other clients to it: without this bound they would be served late, and later with
//!      every second.
//!   4. Slowing ends when the voter has caught up or is not heard, at the latest after eight election timeouts. The
//!      next two are free, so that the share is one of the cluster's current rate and does not become a share of a
//!      share.
//!   5. A load that has just begun is judged when its rate is known. Clients that write next to nothing are not slowed.
//!      If the voter does not gain even so, or clients are not slowed (a share of 100, or next to no writes), the
//!      operator is warned: the load is more than this voter can take.
//!
//! A share, because a cluster that serves no clients for the sake of a member is no better than one that lacks the
//! member.
//! Knows nothing of: clients, commands, the causes of slowness.

use crate::config::Config;
use crate::contract::Effects;
use crate::flow::Mode;
use crate::leading::Leading;
use crate::progress::Progress;
use crate::raft::Raft;
use crate::snapshot::Taken;
use crate::trace::Trace;
use crate::types::{Duration, Instant, NodeId};

/// A voter gains if it catches up by one part in this many of what it lacks while it is watched.
const GAINS: u64 = 16;

/// Clients that propose less than one part in this many of a batch in a second hold up no voter: slowing them does not
/// help, and a client that begins to write meanwhile would be held to a share of next to nothing.
const LITTLE: u64 = 16;

/// Election timeouts that a voter is watched before it is judged.
const WATCHED_FOR: u32 = 4;

/// Election timeouts that clients are slowed at most, and that they are free after that.
const SLOWED_FOR: u32 = 8;
/// See [`SLOWED_FOR`].
const FREE_FOR: u32 = 2;

/// A leader's state of slowed clients and voters that are behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Yielding {
    /// Bytes proposed since the last look.
    proposed: u64,
    /// When the last look was.
    looked_at: Instant,
    /// Bytes proposed in a second, smoothed, while clients are not slowed.
    rate: u64,
    observed: Option<Observed>,
    slowed: Option<Slowed>,
    /// Clients are not slowed before this.
    free_until: Instant,
}

/// The voter that is farthest behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observed {
    peer: NodeId,
    /// Entries that it lacked then, or when the snapshot began that it is receiving.
    behind: u64,
    /// The first snapshot that it got since then.
    snapshot: Option<Taken>,
    since: Instant,
}

impl Observed {
    /// Whether it has received more of its first snapshot since `since`. [Rule 1]
    fn takes(&self, snapshot: Option<Taken>) -> bool {
        match (self.snapshot, snapshot) {
            (None, Some(taken)) => 0 < taken.bytes,
            (Some(had), Some(taken)) => had.last == taken.last && had.bytes < taken.bytes,
            (_, None) => false,
        }
    }
}

/// A voter that is heard and lacks more than the recent entries.
struct Behind {
    /// Entries that it lacks.
    entries: u64,
    peer: NodeId,
    /// The progress of the snapshot that it gets.
    snapshot: Option<Taken>,
}

/// The state while clients are slowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slowed {
    since: Instant,
    /// Bytes admitted in a second.
    rate: u64,
    /// Bytes that may be proposed now. `owed` is what was proposed beyond them, up to a limit. [Rule 3]
    left: u64,
    owed: u64,
    counted_at: Instant,
    /// A proposal waits.
    waits: bool,
}

impl Yielding {
    /// The state of a new leader.
    pub(crate) fn new(now: Instant) -> Yielding {
        Yielding { proposed: 0, looked_at: now, rate: 0, observed: None, slowed: None, free_until: now }
    }

    /// When a waiting proposal may go on.
    pub(crate) fn deadline(&self, config: &Config) -> Instant {
        let waits = self.slowed.as_ref().filter(|slowed| slowed.waits);
        waits.map_or(Instant::NEVER, |slowed| slowed.counted_at + step(config))
    }

    /// Counts proposed bytes.
    pub(crate) fn note(&mut self, bytes: usize, config: &Config) {
        let bytes = bytes as u64;
        self.proposed += bytes;
        if let Some(slowed) = &mut self.slowed {
            let owed_max = bytes_in(slowed.rate, config.heartbeat_interval);
            slowed.owed = slowed.owed.saturating_add(bytes.saturating_sub(slowed.left)).min(owed_max);
            slowed.left = slowed.left.saturating_sub(bytes);
        }
    }
}

/// How often admitted bytes are counted: short against a client's other waits.
fn step(config: &Config) -> Duration {
    config.heartbeat_interval / 10
}

impl Slowed {
    /// Admits the bytes that became due since the last count; never more than three steps' worth at once.
    fn count(&mut self, now: Instant, config: &Config) {
        let elapsed = now.since(self.counted_at);
        if elapsed < step(config) {
            return;
        }
        let of = |span: Duration| bytes_in(self.rate, span);
        let due = of(elapsed).max(1);
        let most = of(step(config) * 3).max(1);
        let paid = due.min(self.owed);
        self.owed -= paid;
        self.left = (self.left + due - paid).min(most);
        self.counted_at = now;
        self.waits = false;
    }
}

fn bytes_in(rate: u64, span: Duration) -> u64 {
    let bytes = u128::from(rate) * span.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl Raft {
    /// Whether a proposal that has waited since `waits_since` may be made now. Otherwise it goes on waiting until
    /// [`Raft::deadline`].
    pub fn admits(&mut self, now: Instant, waits_since: Instant) -> bool {
        let Some(leader) = self.role.leader_mut() else { return true };
        let Some(slowed) = &mut leader.yielding.slowed else { return true };
        slowed.count(now, &self.config);
        let has_waited = self.config.heartbeat_interval <= now.since(waits_since);
        let admits = slowed.left > 0 || has_waited;
        slowed.waits |= !admits;
        admits
    }

    /// Whether clients are slowed for a voter that came back.
    #[must_use]
    pub fn slows_clients(&self) -> bool {
        self.role.leader().is_some_and(|leader| leader.yielding.slowed.is_some())
    }
}

impl Leading<'_> {
    /// Once a heartbeat interval: finds the voter that is farthest behind, and whether it gains.
    pub(crate) fn tick_yielding(&mut self, now: Instant, effects: &mut Effects) {
        let farthest = self.farthest_behind(now);
        let config = self.view.config;
        let (share, election_timeout) = (u64::from(config.limits.client_share_min), config.election_timeout);
        let yielding = &mut self.leader.yielding;
        if let Some(slowed) = &mut yielding.slowed {
            slowed.count(now, config);
        }
        let elapsed = now.since(yielding.looked_at);
        if elapsed < config.heartbeat_interval {
            return;
        }
        let proposed = u128::from(core::mem::take(&mut yielding.proposed)) * 1_000_000_000;
        let rate = u64::try_from(proposed / elapsed.as_nanos().max(1)).unwrap_or(u64::MAX);
        yielding.looked_at = now;
        if yielding.slowed.is_none() {
            yielding.rate = (yielding.rate / 8).saturating_mul(7).saturating_add(rate / 8);
        }
        let Some(Behind { entries: behind, peer, snapshot }) = farthest else {
            (yielding.observed, yielding.slowed) = (None, None);
            return;
        };
        if yielding.slowed.as_ref().is_some_and(|slowed| slowed.since + election_timeout * SLOWED_FOR <= now)
        {
            yielding.slowed = None;
            yielding.free_until = now + election_timeout * FREE_FOR;
        }
        let Some(observed) = yielding.observed.as_mut().filter(|observed| observed.peer == peer) else {
            yielding.observed = Some(Observed { peer, behind, snapshot, since: now });
            return;
        };
        if now < observed.since + election_timeout * WATCHED_FOR {
            return;
        }
        let takes = observed.takes(snapshot);
        let gains = takes || behind + (observed.behind / GAINS).max(1) <= observed.behind;
        *observed = Observed {
            peer,
            behind: if takes { behind.min(observed.behind) } else { behind },
            snapshot: if takes { snapshot } else { observed.snapshot.or(snapshot) },
            since: now,
        };
        if gains || yielding.rate == 0 {
            return;
        }
        let is_little = yielding.rate.max(rate) < config.limits.batch_bytes_max as u64 / LITTLE;
        if yielding.slowed.is_none() && !is_little && yielding.rate < rate / 4 * 3 {
            return; // a load that has just begun is judged when its rate is known
        }
        if yielding.slowed.is_some() || 100 <= share || is_little {
            effects.trace.push(Trace::FallsBehind { peer, behind });
        } else if yielding.free_until <= now {
            let rate = (yielding.rate.max(rate) / 100).saturating_mul(share).max(1);
            yielding.slowed =
                Some(Slowed { since: now, rate, left: 0, owed: 0, counted_at: now, waits: false });
            effects.trace.push(Trace::SlowsClients { peer, behind });
        }
    }

    /// The voter that is heard and lacks most beyond the recent entries. [Rule 1]
    fn farthest_behind(&self, now: Instant) -> Option<Behind> {
        let Leading { leader, view, .. } = self;
        let recent_first = view.log.recent_first();
        let last = view.log.last().index.0;
        let heard = |progress: &Progress| progress.liveness.is_heard(now, view.config.election_timeout);
        let behind = leader.peers.iter().filter_map(|(&peer, progress)| {
            let snapshot = match &progress.flow.mode {
                Mode::Snapshot(stream) => Some(stream.taken()),
                Mode::Probe { .. } | Mode::Replicate => None,
            };
            let lacks = snapshot.is_some() || progress.matched.next() < recent_first;
            let counts = lacks && heard(progress) && view.membership.is_voter(peer);
            let entries = last.saturating_sub(progress.matched.0);
            counts.then_some(Behind { entries, peer, snapshot })
        });
        behind.max_by_key(|behind| (behind.entries, behind.peer))
    }
}
