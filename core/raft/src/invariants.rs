//! Invariants: whole-state facts that hold after every step, each with a name.
//!
//! The cheap ones are asserted where they could first break, also in production; these look at everything and are for
//! scripts, properties and the simulator.
//! Knows nothing of: earlier states, other peers.

use crate::contract::FetchFor;
use crate::entry::EntryKind;
use crate::flow::Mode;
use crate::membership::Membership;
use crate::progress::Progress;
use crate::raft::Raft;
use crate::role::{Follower, Leader, Role};
use crate::types::{EntryId, Instant, LogIndex, Round};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

/// A fact that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name: the function that checks it.
    pub name: &'static str,
    /// The values that contradict it.
    pub detail: String,
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.name, self.detail)
    }
}

type Checked = Result<(), Violation>;

fn expect(holds: bool, name: &'static str, detail: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { name, detail: detail() }) }
}

/// Checks every fact about one peer.
///
/// # Errors
/// The first that does not hold.
pub fn check(raft: &Raft) -> Result<(), Violation> {
    log_is_well_formed(raft)?;
    marks_are_ordered(raft)?;
    term_covers_the_log(raft)?;
    the_disk_owes_what_is_not_persisted(raft)?;
    delivered_bytes_are_bounded(raft)?;
    fetches_are_one_per_purpose(raft)?;
    the_base_is_covered(raft)?;
    configurations_are_those_of_the_log(raft)?;
    the_window_is_within_its_bounds(raft)?;
    settings_are_those_in_force(raft)?;
    match &raft.role {
        Role::Follower(follower) => {
            a_vote_hold_outlasts_no_campaign(raft, follower.timer.deadline())?;
            a_suspicion_needs_the_quorum_question(raft, follower)?;
            what_waits_unread_is_in_order(raft, follower)?;
            a_follower_commits_only_what_is_verified(raft)
        }
        Role::PreCandidate(campaign) | Role::Candidate(campaign) => {
            let membership = raft.electorate();
            a_member_below_its_vote_floor_follows(raft)?;
            let voters = campaign.votes.iter().all(|&vote| membership.is_voter(vote));
            expect(voters, "only_voters_vote", || format!("{:?} of {membership:?}", campaign.votes))
        }
        Role::Leader(leader) => {
            a_member_below_its_vote_floor_follows(raft)?;
            a_leader_leads_its_own_term(raft, leader)?;
            a_leader_has_a_state(raft)?;
            what_is_not_committed_is_bounded(raft, leader)?;
            rounds_begin_before_they_are_answered(leader)?;
            a_lease_is_earned(raft, leader)?;
            leader.peers.values().try_for_each(|progress| progress_is_sane(raft, progress))
        }
    }
}

/// Log Matching, local half: indexes are consecutive, terms never fall, and the terms remembered of older entries agree
/// with the entries in memory. [Ongaro14 §3.5]
fn log_is_well_formed(raft: &Raft) -> Checked {
    let name = "log_is_well_formed";
    let log = &raft.log;
    let starts = log.term_starts();
    let ascending =
        starts.windows(2).all(|pair| pair[0].term < pair[1].term && pair[0].index < pair[1].index);
    expect(ascending, name, || format!("term starts {starts:?}"))?;
    let mut index = log.recent_first();
    let mut bytes = 0;
    for entry in log.entries_after(log.base().index) {
        let runs = starts.partition_point(|start| start.index <= index);
        let term = (runs > 0).then(|| starts[runs - 1].term);
        let fits = entry.id().index == index && Some(entry.id().term) == term;
        expect(fits, name, || format!("entry {} at {index:?} in a run of {term:?}", entry.id()))?;
        index = index.next();
        bytes += entry.len();
    }
    expect(index == log.last().index.next(), name, || {
        format!("memory ends before {index:?}, log at {}", log.last())
    })?;
    expect(bytes == log.recent_bytes(), name, || format!("{bytes} bytes, {} counted", log.recent_bytes()))
}

/// applied ≤ delivered ≤ min(committed, persisted), both ≤ last. [replication-protocols B9]
fn marks_are_ordered(raft: &Raft) -> Checked {
    let marks = &raft.marks;
    let last = raft.log.last().index;
    let ordered = marks.applied <= marks.delivered
        && marks.delivered <= marks.committed.min(marks.persisted)
        && marks.committed.max(marks.persisted) <= last;
    expect(ordered, "marks_are_ordered", || format!("{marks:?}, last {last:?}"))
}

/// No entry is of a term this peer has not seen.
fn term_covers_the_log(raft: &Raft) -> Checked {
    let last = raft.log.last();
    expect(last.term <= raft.term, "term_covers_the_log", || format!("log ends at {last} in {:?}", raft.term))
}

/// Entries that left the log are committed, and covered by a snapshot that is committed too. [fault-model ST9, ST11]
fn the_base_is_covered(raft: &Raft) -> Checked {
    let name = "the_base_is_covered";
    let (base, committed) = (raft.log.base(), raft.marks.committed);
    expect(base.index <= committed, name, || format!("base {base}, committed {committed:?}"))?;
    let Some(snapshot) = &raft.snapshot else {
        let explained = base == EntryId::default() || raft.needs_snapshot();
        return expect(explained, name, || format!("base {base} without a snapshot"));
    };
    let covered = snapshot.last.index;
    let fits = (base.index <= covered || raft.needs_snapshot()) && covered <= committed;
    expect(fits, name, || format!("base {base}, snapshot {}, committed {committed:?}", snapshot.last))?;
    let pending = raft.installing.is_some() || raft.needs_snapshot();
    expect(covered <= raft.marks.delivered || pending, name, || {
        format!("snapshot {} of {:?}", snapshot.last, raft.marks)
    })
}

/// A window holds entries behind the end of the log, as many as it has places and bytes for. [replication-protocols W2, W3]
fn the_window_is_within_its_bounds(raft: &Raft) -> Checked {
    let Some(window) = raft.role.following().map(|following| &following.window) else { return Ok(()) };
    let (last, size) = (raft.log.last(), raft.config.policies.intake.window());
    let end = last.index.0.saturating_add(size.entries.into());
    let fits = window.bounds().is_none_or(|(first, upto)| last.index < first && upto.0 <= end);
    let has_bytes = window.counts_its_bytes() && window.bytes() <= size.bytes;
    expect(fits && has_bytes, "the_window_is_within_its_bounds", || {
        format!("{:?}, {} bytes, of {size:?} after {last}", window.bounds(), window.bytes())
    })
}

/// This peer goes by the settings of the configuration in force. [replication-protocols M1; decision 7]
fn settings_are_those_in_force(raft: &Raft) -> Checked {
    let (extensions, own) = (&raft.configurations.newest().extensions, raft.config.timing());
    let name = "settings_are_those_in_force";
    expect(extensions.timing.is_none_or(|timing| timing == own), name, || {
        format!("goes by {own:?}, the configuration says {extensions:?}")
    })?;
    let policies = extensions.protocol.map(|protocol| protocol.policies());
    expect(policies.is_none_or(|policies| policies == raft.config.policies), name, || {
        format!("goes by {:?}, the configuration says {extensions:?}", raft.config.policies)
    })
}

/// The configurations in force are those of the log's entries, in order, and none of a removed entry.
/// [replication-protocols M1]
fn configurations_are_those_of_the_log(raft: &Raft) -> Checked {
    let name = "configurations_are_those_of_the_log";
    let mut before = None;
    for (at, membership) in raft.configurations.all() {
        let ascends = before < Some(*at) && *at <= raft.log.last().index;
        expect(ascends, name, || format!("{at:?} after {before:?}, log to {}", raft.log.last()))?;
        before = Some(*at);
        expect(membership.check().is_ok(), name, || format!("{membership:?} at {at:?}"))?;
        if let Some(entry) = raft.log.entry(*at) {
            let said = entry.payload().map(Membership::decode);
            expect(matches!(&said, Some(Ok((said, _))) if said == membership), name, || {
                format!("{membership:?} at {at:?}, not {said:?}")
            })?;
        }
    }
    let base = raft.log.base();
    let gone = raft.configurations.all().skip(1).find(|(at, _)| *at <= base.index);
    expect(gone.is_none(), name, || format!("base {base}, and this still counts: {gone:?}"))?;
    let newest = raft.configurations.newest_at();
    let missed = raft.log.entries_after(newest).find(|entry| entry.head.kind == EntryKind::Config);
    expect(missed.is_none(), name, || format!("newest {newest:?}, the log has {:?}", missed.map(|e| e.id())))
}

/// The entries after the persisted index are exactly those whose records are not durable yet.
fn the_disk_owes_what_is_not_persisted(raft: &Raft) -> Checked {
    let owed = raft.durability.first_unpersisted();
    let persisted = raft.marks.persisted;
    let first = persisted.next().max(raft.log.base().index); // the base of a snapshot that is being installed
    let expected = (persisted < raft.log.last().index).then_some(first);
    expect(owed == expected, "the_disk_owes_what_is_not_persisted", || {
        format!("persisted {persisted:?}, log to {}, first write under way {owed:?}", raft.log.last())
    })
}

/// Where everything delivered is applied, no bytes are outstanding. [replication-protocols B5]
fn delivered_bytes_are_bounded(raft: &Raft) -> Checked {
    let idle = raft.marks.delivered == raft.marks.applied;
    let bytes = raft.delivery.bytes();
    expect(!idle || bytes == 0, "delivered_bytes_are_bounded", || {
        format!("all is applied, {bytes} bytes are out")
    })
}

/// At most one read of the log per purpose is under way.
fn fetches_are_one_per_purpose(raft: &Raft) -> Checked {
    let purposes: BTreeSet<FetchFor> = raft.fetches.iter().map(|fetch| fetch.purpose).collect();
    let alone = purposes.len() == raft.fetches.len();
    expect(alone, "fetches_are_one_per_purpose", || format!("{:?}", raft.fetches))
}

/// A follower commits only what is known to agree with its leader's log. [replication-protocols L5]
fn a_follower_commits_only_what_is_verified(raft: &Raft) -> Checked {
    let (committed, verified) = (raft.marks.committed, raft.verified());
    let last = raft.log.last().index;
    expect(committed <= verified && verified <= last, "a_follower_commits_only_what_is_verified", || {
        format!("committed {committed:?}, verified {verified:?}, last {last:?}")
    })
}

/// A member below its vote floor neither campaigns nor leads. [fault-model ST7]
fn a_member_below_its_vote_floor_follows(raft: &Raft) -> Checked {
    expect(!raft.is_damaged(), "a_member_below_its_vote_floor_follows", || {
        format!(
            "{} with a log up to {}, the floor is {:?}",
            raft.role_name(),
            raft.log.last(),
            raft.vote_floor
        )
    })
}

/// A leader has the snapshot that its log goes on from: no member would send it to a leader. [replication-protocols N3]
fn a_leader_has_a_state(raft: &Raft) -> Checked {
    expect(!raft.needs_snapshot(), "a_leader_has_a_state", || {
        format!("the log begins after {}, and {:?}", raft.log.base(), raft.marks)
    })
}

/// A leader voted for itself, its term's first entry is its own, and so is everything after it.
fn a_leader_leads_its_own_term(raft: &Raft, leader: &Leader) -> Checked {
    let name = "a_leader_leads_its_own_term";
    expect(raft.vote == Some(raft.config.id), name, || format!("vote {:?}", raft.vote))?;
    let base = raft.log.base();
    let start = EntryId { term: raft.term, index: leader.term_start.max(base.index.next()) };
    let newest = raft.log.term_starts().last().copied();
    let pruned = newest.is_none() && base.term == raft.term;
    expect(newest == Some(start) || pruned, name, || {
        format!("the term starts at {start}, the log's newest at {newest:?}")
    })?;
    let first_proposal = leader.term_start.next().max(raft.marks.committed.next());
    let bytes = raft.log.bytes(first_proposal, raft.log.last().index);
    expect(bytes == leader.uncommitted_bytes, name, || {
        format!("{bytes} bytes are uncommitted, {} counted", leader.uncommitted_bytes)
    })?;
    let has_begun = leader.term_start <= raft.marks.committed;
    expect(!has_begun || leader.inherited_bytes == 0, name, || {
        format!("{} bytes of earlier leaders are counted though committed", leader.inherited_bytes)
    })?;
    let stays = |progress: &Progress| !progress.life.is_leaving();
    let known: BTreeSet<_> =
        leader.peers.iter().filter(|(_, progress)| stays(progress)).map(|(&peer, _)| peer).collect();
    let expected = raft.membership().peers(raft.config.id).collect();
    expect(known == expected, name, || format!("peers {known:?} of {:?}", raft.membership()))
}

/// A leader takes a command only if the bytes that are not committed stay within their limit, or if there are none: then it
/// takes one of any size. A change of members is no command. [replication-protocols B5]
fn what_is_not_committed_is_bounded(raft: &Raft, leader: &Leader) -> Checked {
    let inherited = raft.log.bytes(raft.marks.committed.next(), leader.term_start.previous());
    let own = raft.log.entries_after(leader.term_start.max(raft.marks.committed));
    let commands = own.filter(|entry| entry.head.kind == EntryKind::Command).map(|entry| entry.len());
    let (mut before_last, mut last) = (0, None);
    for bytes in commands {
        before_last += last.replace(bytes).unwrap_or(0);
    }
    let max = raft.config.limits.uncommitted_bytes_max;
    expect(last.is_none() || inherited + before_last <= max, "what_is_not_committed_is_bounded", || {
        format!("one of {last:?} bytes after {before_last}, and {inherited} of earlier leaders, of {max}")
    })
}

/// No peer has answered a round that has not begun. [replication-protocols Q3]
fn rounds_begin_before_they_are_answered(leader: &Leader) -> Checked {
    let early = leader.peers.iter().find(|(_, progress)| leader.round < progress.liveness.contact_round());
    expect(early.is_none(), "rounds_begin_before_they_are_answered", || {
        format!(
            "{:?} in round {:?}",
            early.map(|(peer, progress)| (peer, progress.liveness.contact_round())),
            leader.round
        )
    })
}

/// A follower does not campaign before its vote hold is over. [replication-protocols L-3]
fn a_vote_hold_outlasts_no_campaign(raft: &Raft, campaigns_at: Instant) -> Checked {
    expect(raft.vote_hold <= campaigns_at, "a_vote_hold_outlasts_no_campaign", || {
        format!("promised until {:?}, would campaign at {campaigns_at:?}", raft.vote_hold)
    })
}

/// Suspicion exists only with pre-vote, and never beside leader leases. [replication-protocols E3a]
fn a_suspicion_needs_the_quorum_question(raft: &Raft, follower: &Follower) -> Checked {
    let suspects = follower.following.as_ref().is_some_and(|following| following.ask_at.is_some());
    let allowed = raft.config.pre_vote && raft.config.leadership.leader_lease.is_none();
    expect(!suspects || allowed, "a_suspicion_needs_the_quorum_question", || {
        format!("{:?} without pre-vote, or with leases", follower.following)
    })
}

/// Appends that wait for payloads to be read are those that a completion in order will take. [replication-protocols B14]
fn what_waits_unread_is_in_order(raft: &Raft, follower: &Follower) -> Checked {
    let unread = follower.following.as_ref().map(|following| &following.unread);
    let flaw = unread.and_then(|unread| unread.flaw(raft.jobs));
    expect(flaw.is_none(), "what_waits_unread_is_in_order", || {
        format!("{}: {unread:?}, newest {:?}", flaw.unwrap_or_default(), raft.jobs)
    })
}

/// There is a lease only where leases are configured and not over for the term, and no clock is known to be wrong.
/// Rounds are stamped in their order, none later than the newest round. [replication-protocols L-2, L-6; fault-model
/// F42]
fn a_lease_is_earned(raft: &Raft, leader: &Leader) -> Checked {
    let name = "a_lease_is_earned";
    let transferred = leader.transfer.as_ref().is_some_and(|transfer| transfer.told);
    let apart = leader.peers.iter().find(|(_, progress)| progress.liveness.gauge.apart.is_some());
    let may = !leader.lease.is_over()
        && raft.config.leadership.leader_lease.is_some()
        && !transferred
        && apart.is_none();
    expect(may || leader.lease.until().is_none(), name, || {
        format!("{:?}, clocks apart: {:?}", leader.lease, apart.map(|(peer, _)| peer))
    })?;
    let stamps = leader.lease.stamps();
    let mut last = (Round(0), Instant(0));
    for stamp in stamps {
        let follows = last.0 < stamp.0 && last.1 <= stamp.1 && stamp.0 <= leader.round;
        expect(follows, name, || format!("{stamp:?} after {last:?} in round {:?}", leader.round))?;
        last = stamp;
    }
    Ok(())
}

/// match < next ≤ last + 1; nothing is in flight to a peer that gets a snapshot; messages and bytes in flight are
/// within bounds.
fn progress_is_sane(raft: &Raft, progress: &Progress) -> Checked {
    let name = "progress_is_sane";
    let last: LogIndex = raft.log.last().index;
    let ordered = progress.matched < progress.flow.next && progress.flow.next <= last.next();
    expect(ordered, name, || format!("{progress:?}, last {last:?}"))?;
    let (messages, bytes) = progress.flow.inflight();
    let limits = &raft.config.limits;
    let bounded = match progress.flow.mode {
        Mode::Snapshot(_) => messages == 0,
        Mode::Probe { .. } | Mode::Replicate => {
            let (messages_before, bytes_before) = progress.flow.lowered();
            messages <= raft.config.inflight_msgs().max(messages_before)
                && bytes <= limits.inflight_bytes_max.max(bytes_before)
        }
    };
    expect(bounded, name, || {
        format!("{messages} messages of {bytes} bytes in flight, {:?}", progress.flow.mode)
    })
}
