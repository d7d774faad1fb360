//! Timeline: what a member's steps look like to a reader of a storm.
//!
//! Knows nothing of: what is right.

use crate::faults::Fault;
use crate::world::Shared;
use kattu_node::contract::{Effects, Event};
use kattu_raft::{NodeId, Trace};

/// A number for each kind of event, for the sum over a storm's course.
pub(crate) fn kind_of(event: &Event) -> u64 {
    match event {
        Event::Tick => 1,
        Event::Drained => 2,
        Event::Client { .. } => 3,
        Event::Peer(_) => 4,
        Event::Unsent(_) => 5,
        Event::Persisted(_) => 6,
        Event::Fetched { .. } => 7,
        Event::Applied { .. } => 8,
        Event::Space(_) => 9,
        Event::LinkClosed(..) => 10,
        Event::Stop => 11,
        Event::ChunkRead { .. } => 12,
        Event::ChunkStored(_) => 13,
        Event::SnapshotTaken { .. } => 14,
        Event::SnapshotFailed { .. } => 15,
        Event::Transfer(_) => 16,
        Event::Members(_) => 17,
        Event::Health(_) => 18,
        Event::Priority(..) => 19,
        Event::DiskTook(_) => 20,
        Event::Admitted { .. } => 21,
        Event::Standing(_) => 30,
        Event::Knows(..) => 22,
        Event::SnapshotUnreadable { .. } => 23,
        Event::Computed(_) => 24,
        Event::VoteHoldRecorded(_) => 25,
        Event::Tune(_) => 26,
    }
}

/// Puts what a reader wants to know into the timeline.
pub(crate) fn note(sh: &mut Shared, id: NodeId, effects: &Effects) {
    if effects.trace.is_empty() {
        return;
    }
    for trace in &effects.trace {
        let (now, member) = (sh.now, Some(id.0));
        match trace {
            Trace::BecameLeader(term) => {
                sh.counts.elections += 1;
                sh.trace.mix(term.0 ^ 1 << 62);
                sh.trace.line(now, member, "role", || format!("leads term {}", term.0));
            }
            Trace::BecameFollower { term, leader } => sh.trace.line(now, member, "role", || match leader {
                Some(leader) => format!("follows n{} in term {}", leader.0, term.0),
                None => format!("follows nobody in term {}", term.0),
            }),
            Trace::BecamePreCandidate(term) => {
                sh.trace
                    .line(now, member, "role", || format!("asks for votes in term {}, tentatively", term.0));
            }
            Trace::BecameCandidate(term) => {
                sh.trace.line(now, member, "role", || format!("campaigns in term {}", term.0));
            }
            Trace::Truncated(id) => {
                sh.trace.line(now, member, "log", || format!("drops its entries from {id} on"));
            }
            Trace::Suspects(leader) => {
                sh.counts.suspicions += 1;
                sh.trace.line(now, member, "role", || format!("suspects n{}", leader.0));
            }
            Trace::TransferBegan(target) => {
                sh.counts.transfers += 1;
                sh.trace.line(now, member, "role", || format!("hands over to n{}", target.0));
            }
            Trace::SlowDisk { own, fastest, its } => {
                sh.counts.left += 1;
                let line =
                    || format!("leaves its slow disk: a write took {own:?}, one of n{} {its:?}", fastest.0);
                sh.trace.line(now, member, "role", line);
            }
            Trace::LeaderLeaseDenied { peer, vote_hold } => {
                sh.counts.denials += 1;
                let line = || format!("has leases, but n{} promises only {vote_hold:?}", peer.0);
                sh.trace.line(now, member, "role", line);
            }
            Trace::ClocksApart { peer, gains } => {
                sh.counts.apart += 1;
                sh.tally.add(Fault::F42);
                let line = || format!("has proof that the clock of n{} gains {gains} ppm", peer.0);
                sh.trace.line(now, member, "role", line);
            }
            Trace::SlowsClients { peer, behind } => {
                sh.trace.line(now, member, "role", || {
                    format!("slows its clients for n{}, which lacks {behind} entries", peer.0)
                });
            }
            Trace::FallsBehind { peer, behind } => {
                sh.trace.line(now, member, "role", || {
                    format!("sees n{} fall behind by {behind} entries", peer.0)
                });
            }
            Trace::LostMatch { peer, matched, last } => {
                if let Some(fault) = sh.forgot.remove(peer) {
                    sh.tally.add(fault);
                }
                sh.trace.line(now, member, "role", || {
                    format!("n{} has lost its log from {} to {}", peer.0, last.0 + 1, matched.0)
                });
            }
            Trace::GapClosed { first, last } => {
                sh.counts.early += last.0 - first.0 + 1;
                sh.trace
                    .line(now, member, "log", || format!("takes {} to {} from its window", first.0, last.0));
            }
            Trace::GapSentAgain { peer, first, last } => {
                sh.counts.repairs += 1;
                sh.trace.line(now, member, "log", || {
                    format!("sends n{} {} to {} again", peer.0, first.0, last.0)
                });
            }
            Trace::DroppedUnread(count) => {
                sh.counts.dropped_unread += *count as u64;
                sh.trace.line(now, member, "log", || format!("drops {count} appends unread"));
            }
            Trace::TakesPart { unasked } => {
                if let Some(copy) = sh.older_copies.get_mut(&id) {
                    copy.is_reminded = *unasked == 0 && copy.are_others_as_they_were;
                    copy.is_over = true;
                }
                sh.trace.line(now, member, "role", || match unasked {
                    0 => "takes part: every other voter has answered".to_string(),
                    unasked => format!("takes part, although {unasked} have not answered"),
                });
            }
            Trace::ToldOfLoss { vote_floor, last } => {
                sh.trace.line(now, member, "role", || {
                    format!("is told that its log, which ends at {last}, went up to {vote_floor}")
                });
            }
            Trace::TransferFailed(target) => {
                sh.trace.line(now, member, "role", || format!("gives up handing over to n{}", target.0));
            }
            Trace::Pruned(base) => {
                sh.counts.prunes += 1;
                sh.trace.line(now, member, "log", || format!("prunes up to {base}"));
            }
            Trace::Installs(last) => {
                sh.trace.line(now, member, "log", || format!("installs a snapshot up to {last}"));
            }
            Trace::Configured(at) => {
                sh.trace.line(now, member, "members", || format!("is configured by {}", at.0));
            }
            Trace::Term(_) | Trace::Committed(_) => {}
        }
    }
}
