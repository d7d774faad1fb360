//! Operator: words for what a member notes, and the counts that belong to it.
//!
//! Knows nothing of: when a member notes something, where lines go.

use crate::metrics::Metrics;
use crate::peer_table::PeerTable;
use crate::report::{self, Cause};
use kattu_member::step::Note;
use kattu_node::Node;
use kattu_node::alarms::Alarm;
use kattu_raft::{Duration, Falsehood, NodeId, Trace};

/// How long a member of a new cluster waits for the others before it logs that.
const WAITS_QUIETLY: Duration = Duration::from_secs(5);

/// Logs a note, and counts it. `slows_clients`: this member leads, and slows its clients for a member that lags.
pub(crate) fn tell(note: Note, slows_clients: bool, metrics: &Metrics) {
    match note {
        Note::Trace(trace) => tell_trace(trace, slows_clients, metrics),
        Note::Raised(Alarm { member, kind }) => {
            report::warn(format_args!("alarm {kind} for {}", named(member)));
        }
        Note::Cleared(Alarm { member, kind }) => {
            report::info(format_args!("alarm {kind} for {} is cleared", named(member)));
        }
        Note::Level(level) => {
            // From here on older versions cannot follow.
            if metrics.feature_level.get() < u64::from(level) {
                metrics.feature_level.set(level.into());
                report::info(format_args!(
                    "the cluster is at feature level {level}: versions that do not know this level cannot run in it any more"
                ));
            }
        }
        Note::Whole(last) => report::info(format_args!("the log is whole again, up to {last}")),
    }
}

fn named(member: NodeId) -> String {
    match member {
        NodeId(0) => "every member".to_string(),
        NodeId(id) => format!("member {id:x}"),
    }
}

fn tell_trace(trace: Trace, slows_clients: bool, metrics: &Metrics) {
    match trace {
        Trace::BecameLeader(term) => {
            metrics.leader_changes.add(1);
            report::info(format_args!("leader of term {}", term.0));
        }
        Trace::BecameFollower { term, leader: Some(leader) } => {
            metrics.leader_changes.add(1);
            report::info(format_args!("following member {:x} in term {}", leader.0, term.0));
        }
        Trace::SlowDisk { own, fastest, its } => {
            metrics.slow_disk_left.add(1);
            report::warn(format_args!(
                "this disk is slow: a write took {} ms, one of member {:x} {} ms; transferring leadership to that member. \
                 Check this member's disk: other writers, hardware failures",
                own.as_millis(),
                fastest.0,
                its.as_micros() as f64 / 1000.0
            ));
        }
        Trace::LeaderLeaseDenied { peer, vote_hold } => {
            let said = match vote_hold.is_zero() {
                true => "has no --lease-reads".to_string(),
                false => format!("grants vote holds of {} ms only", vote_hold.as_millis()),
            };
            report::warn(format_args!(
                "--lease-reads is on here, but member {:x} {said}: its answers do not extend the leader lease, and \
                 without a majority that does, reads need a quorum round",
                peer.0
            ));
        }
        Trace::ClocksApart { peer, gains } => {
            let way = if gains < 0 { "slow" } else { "fast" };
            report::warn(format_args!(
                "the clock of member {:x} is {way} against this leader's by {} ppm or more, and two members may differ by \
                 little more than twice --clock-drift-ppm: no lease reads until another leader is elected. One of the \
                 two clocks is wrong: the other member's if only that member is reported, this member's if most are. \
                 Repair it (time service, virtual machine, hardware), then transfer leadership",
                peer.0,
                gains.unsigned_abs()
            ));
        }
        Trace::SlowsClients { peer, behind } => {
            metrics.slowed_clients.add(1);
            report::info(format_args!(
                "member {:x} lags by {behind} entries and does not catch up: clients are slowed slightly for it \
                 (--client-share-min)",
                peer.0
            ));
        }
        Trace::FallsBehind { peer, behind } => {
            metrics.falling_behind.add(1);
            report::warn(format_args!(
                "member {:x} lags by {behind} entries and does not catch up, {}: reduce the load until it has, or check \
                 its link, its disk and its processors",
                peer.0,
                match slows_clients {
                    true => "although clients are slowed for it",
                    false => "and clients are not slowed for it",
                }
            ));
        }
        Trace::LostMatch { peer, matched, last } => {
            metrics.lost_matches.add(1);
            report::warn(format_args!(
                "member {:x} has lost entries {} to {} that it had acknowledged: sending them again; check its disk",
                peer.0,
                last.0 + 1,
                matched.0
            ));
        }
        Trace::DroppedUnread(count) => metrics.dropped_unread.add(count as u64),
        Trace::TakesPart { unasked: 0 } => {}
        Trace::GapClosed { first, last } => metrics.window_entries.add(last.0 - first.0 + 1),
        Trace::GapSentAgain { .. } => metrics.gaps_sent_again.add(1),
        Trace::TakesPart { unasked } => report::info(format_args!(
            "takes part without an answer from {unasked} of the other voters: votes and acknowledgements of this \
             member that only those remember are unknown to it"
        )),
        Trace::ToldOfLoss { vote_floor, last } => {
            metrics.lost_log.add(1);
            report::warn(format_args!(
                "the log ends at {last}, but its leader reports that this member had acknowledged entries up to \
                 {vote_floor}: the disk lost them in a power cut, or the data directory is an older copy. Until the log \
                 is refilled, this member votes only for logs that reach that far, and does not lead. Check the disk, \
                 and never restore a copy of a data directory: remove the member and add it as a new one"
            ));
        }
        _ => {}
    }
}

/// Logs that the keeper stays on the node's thread.
pub(crate) fn tell_no_thread_for_apply(error: &std::io::Error) {
    report::warn(format_args!(
        "no thread to apply entries on ({error}): they are applied on the node's thread"
    ));
}

/// Logs that a peer was cut off for what it sent.
pub(crate) fn tell_distrust(peer: NodeId, falsehood: Falsehood) {
    let cause = Cause { what: "protocol violations by a member", whose: peer.0 };
    report::warn_of(
        cause,
        format_args!(
            "member {:x} violated the protocol: {falsehood}. It changed nothing here, and its connections were closed. \
             If it runs another version than this one, run the newer one on both. Otherwise it is broken, or another \
             process uses its identity: check access to the peer ports, and replace the member",
            peer.0
        ),
    );
}

/// Logs which members a new cluster waits for.
pub(crate) fn tell_absent(node: &Node, peer_table: &PeerTable, waited: Duration) {
    let mut absent = node.raft().waits_for().peekable();
    if absent.peek().is_none() || waited < WAITS_QUIETLY {
        return;
    }
    let places = peer_table.places();
    let place = |id: NodeId| {
        let at = places.get(&id).map(|at| kattu_member::peer_address::join(at)).unwrap_or_default();
        format!("member {:x} ({at})", id.0)
    };
    let absent = absent.map(place).collect::<Vec<_>>().join(", ");
    // Two causes: the limit of lines must not hide that the one has become the other.
    let cause = Cause { what: "the cluster has started without this member", whose: 0 };
    if peer_table.ask(|table| table.was_known()) || node.raft().others_began() {
        return report::warn_of(
            cause,
            format_args!(
                "waits for {absent}: this directory is new, and the cluster has started without it. If this member had \
                 another directory before, {}; otherwise all members must be reached once",
                kattu_member::handshake::LOST_PROMISES
            ),
        );
    }
    let cause = Cause { what: "the cluster has not started yet", whose: 0 };
    report::warn_of(
        cause,
        format_args!(
            "waits for {absent}: a new cluster starts when all its initial members have met. If one of them has lost its \
             data directory meanwhile, and no member has ever been ready to serve, nothing was written: only then empty \
             all data directories, and start all members again"
        ),
    );
}
