//! Handwritten traces: for each invariant one that breaks it, and one that nearly does.

use super::*;
use kattu_node::contract::{Doubt, Outcome, Refusal, Ticket};
use kattu_raft::message::{Append, AppendReply, Envelope, Lost, Message, Room, Vote, VoteReply};
use kattu_raft::{
    Duration, EntryHead, EntryId, EntryKind, GroupId, HardState, Incarnation, Round, SharedBytes, Stamp,
};

/// A cluster of three whose steps are reported to the invariants.
#[derive(Clone)]
struct Cluster {
    invariants: Invariants,
    views: [View; 3],
    lsns: [u64; 3],
}

fn idle() -> View {
    View {
        term: Term(0),
        leads: false,
        leader: None,
        committed: LogIndex(0),
        delivered: LogIndex(0),
        persisted: LogIndex(0),
        verified: LogIndex(0),
        confirmed: None,
        weak_budget: None,
    }
}

fn entry(term: u64, index: u64, payload: &str) -> Entry {
    let head = EntryHead { id: EntryId::new(term, index), kind: EntryKind::Command, stamp: Stamp(0) };
    Entry::new(head, SharedBytes::from(payload.as_bytes().to_vec()), 0)
}

fn hard(term: u64, vote: u64) -> LogBody {
    LogBody::HardState(HardState { term: Term(term), vote: (vote > 0).then_some(NodeId(vote)) })
}

fn matches(upto: u64) -> Message {
    Message::AppendReply(AppendReply {
        round: Round(1),
        vote_hold: Duration::ZERO,
        clock: None,
        disk: Duration::ZERO,
        bulk: Round(1),
        upto: LogIndex(upto),
        gap: None,
        room: Room::PLENTY,
        received: LogIndex(upto),
        early: vec![],
    })
}

impl Cluster {
    fn new() -> Cluster {
        let ids = [1, 2, 3].map(NodeId);
        let mut invariants = Invariants::new(&ids);
        for id in ids {
            invariants.restarted(id, &Recovered::default()).expect("an empty start");
        }
        Cluster { invariants, views: std::array::from_fn(|_| idle()), lsns: [0; 3] }
    }

    fn step(
        &mut self,
        member: u64,
        bodies: Vec<LogBody>,
        sends: Vec<(u64, Message)>,
        change: impl FnOnce(&mut View),
    ) -> Checked {
        self.traced(member, Vec::new(), bodies, sends, change)
    }

    fn traced(
        &mut self,
        member: u64,
        trace: Vec<Trace>,
        bodies: Vec<LogBody>,
        sends: Vec<(u64, Message)>,
        change: impl FnOnce(&mut View),
    ) -> Checked {
        let place = member as usize - 1;
        let view = &mut self.views[place];
        change(view);
        let (id, term) = (NodeId(member), view.term);
        let mut effects = Effects { trace, ..Effects::default() };
        for body in bodies {
            self.lsns[place] += 1;
            effects.persist.push(LogRecord { lsn: Lsn(self.lsns[place]), body });
        }
        let envelope = |(to, message): (u64, Message)| {
            let (group, incarnation) = (GroupId(0), Incarnation(1));
            PeerMessage::Raft(Envelope { group, from: id, incarnation, to: NodeId(to), term, message })
        };
        effects.send = sends.into_iter().map(envelope).collect();
        self.invariants.saw(id, view, &effects)
    }

    /// Member 1 answers clients.
    fn answers(&mut self, replies: &[(u64, Outcome)]) -> Checked {
        let reply = replies.iter().map(|(ticket, outcome)| (Ticket(*ticket), outcome.clone())).collect();
        let effects = Effects { reply, ..Effects::default() };
        self.invariants.saw(NodeId(1), &self.views[0], &effects)
    }

    fn sync(&mut self, member: u64) -> Checked {
        self.invariants.durable(NodeId(member), Lsn(self.lsns[member as usize - 1]))
    }

    /// Term and vote, on the disk.
    fn votes(&mut self, member: u64, term: u64, candidate: u64) -> Checked {
        self.step(member, vec![hard(term, candidate)], vec![], |view| {
            (view.term, view.leads, view.leader) = (Term(term), false, None);
        })?;
        self.sync(member)
    }

    fn leads(&mut self, member: u64, term: u64, noop: Entry) -> Checked {
        let trace = vec![Trace::BecameLeader(Term(term))];
        self.traced(member, trace, vec![LogBody::Entry(noop)], vec![], |view| {
            (view.leads, view.leader) = (true, Some(NodeId(member)));
        })
    }

    /// Votes that no member cast: as if the vote rule had not been checked.
    fn votes_by_decree(&mut self, member: u64, term: u64) {
        let ballots = self.invariants.ghost.ballots.entry((Term(term), NodeId(member))).or_default();
        ballots.extend([1, 2, 3].map(NodeId));
        let campaign = vec![hard(term, member)];
        self.step(member, campaign, vec![], |view| view.term = Term(term)).expect("a campaign");
    }

    fn leads_by_decree(&mut self, member: u64, term: u64, noop: Entry) {
        self.votes_by_decree(member, term);
        self.leads(member, term, noop).expect("a leader");
    }

    /// Member 1 is elected in term 1 by itself and 2, and writes its no-op.
    fn led() -> Cluster {
        let mut cluster = Cluster::new();
        cluster.votes(1, 1, 1).expect("a campaign");
        cluster.votes(2, 1, 1).expect("a vote");
        cluster.leads(1, 1, entry(1, 1, "noop")).expect("a leader");
        cluster
    }

    fn appends(&mut self, member: u64, entries: Vec<Entry>) -> Checked {
        let verified = LogIndex(entries.last().expect("some").id().index.0);
        self.step(member, entries.into_iter().map(LogBody::Entry).collect(), vec![], |view| {
            (view.term, view.leader, view.verified) = (Term(1), Some(NodeId(1)), verified);
        })
    }

    fn persists(&mut self, member: u64, upto: u64) -> Checked {
        self.sync(member)?;
        self.step(member, vec![], vec![], |view| view.persisted = LogIndex(upto))
    }

    /// Member 2 comes back without its log, and with this vote floor.
    fn crash_and_cut(&mut self, vote_floor: Option<EntryId>) -> Checked {
        self.invariants.crashed(NodeId(2))?;
        self.invariants.cut(NodeId(2));
        let LogBody::HardState(hard) = hard(1, 1) else { unreachable!("it is one") };
        let recovered = Recovered { hard, lsn: Lsn(self.lsns[1]), vote_floor, ..Recovered::default() };
        self.invariants.restarted(NodeId(2), &recovered)
    }

    /// As `led`, and member 1 commits its no-op with 2.
    fn committed() -> Cluster {
        let mut cluster = Cluster::led();
        cluster.persists(1, 1).expect("on 1's disk");
        cluster.appends(2, vec![entry(1, 1, "noop")]).expect("at 2");
        cluster.persists(2, 1).expect("on 2's disk");
        cluster.step(1, vec![], vec![], |view| view.committed = LogIndex(1)).expect("a quorum holds it");
        cluster
    }
}

fn caught(checked: Checked, by: &str) {
    assert_eq!(checked.expect_err("it must be caught").property, by);
}

#[test]
fn two_leaders_of_one_term_are_caught_and_two_terms_are_fine() {
    let mut cluster = Cluster::led();
    cluster.votes(3, 1, 3).expect("it may campaign");
    caught(cluster.leads(3, 1, entry(1, 1, "other")), "election_safety");

    let mut cluster = Cluster::led();
    cluster.votes(3, 2, 3).expect("a campaign");
    cluster.votes(2, 2, 3).expect("a vote in a new term");
    cluster.leads(3, 2, entry(2, 1, "noop")).expect("nothing was committed");
}

#[test]
fn a_leader_without_a_quorum_of_durable_votes_is_caught() {
    let mut cluster = Cluster::new();
    cluster.votes(1, 1, 1).expect("a campaign");
    cluster.step(2, vec![hard(1, 1)], vec![], |view| view.term = Term(1)).expect("voted, not yet on disk");
    caught(cluster.leads(1, 1, entry(1, 1, "noop")), "election_safety");
}

#[test]
fn a_second_vote_is_caught_even_if_the_first_was_forgotten() {
    let mut cluster = Cluster::new();
    cluster.votes(1, 1, 1).expect("a campaign");
    cluster.votes(3, 1, 3).expect("a campaign");
    cluster.votes(2, 1, 1).expect("a vote");
    caught(cluster.votes(2, 1, 3), "votes");

    // A vote lost before it was durable was never sent: the member is free again.
    let mut cluster = Cluster::new();
    cluster.votes(1, 1, 1).expect("a campaign");
    cluster.votes(3, 1, 3).expect("a campaign");
    cluster.step(2, vec![hard(1, 1)], vec![], |view| view.term = Term(1)).expect("a vote on its way");
    cluster.invariants.crashed(NodeId(2)).expect("it ran");
    cluster.invariants.restarted(NodeId(2), &Recovered::default()).expect("nothing was durable");
    (cluster.lsns[1], cluster.views[1]) = (0, idle());
    cluster.votes(2, 1, 3).expect("the first vote for all that anybody knows");
}

#[test]
fn a_vote_for_itself_that_nobody_shared_is_void_in_an_older_directory() {
    for shared in [false, true] {
        let mut cluster = Cluster::new();
        cluster.votes(2, 1, 2).expect("a campaign");
        if shared {
            cluster.votes(1, 1, 2).expect("its request was read");
        }
        cluster.invariants.crashed(NodeId(2)).expect("it ran");
        cluster.invariants.returns_older(NodeId(2));
        cluster.invariants.restarted(NodeId(2), &Recovered::default()).expect("an older directory");
        (cluster.lsns[1], cluster.views[1]) = (0, idle());
        cluster.votes(3, 1, 3).expect("a campaign");
        match shared {
            false => cluster.votes(2, 1, 3).expect("its own campaign ended with its process"),
            true => caught(cluster.votes(2, 1, 3), "votes"),
        }
    }
}

#[test]
fn a_vote_for_a_shorter_log_is_caught() {
    let mut cluster = Cluster::led();
    cluster.appends(2, vec![entry(1, 1, "noop")]).expect("2 follows");
    cluster.votes(3, 2, 3).expect("3 campaigns with an empty log");
    caught(cluster.votes(2, 2, 3), "votes");
}

#[test]
fn a_vote_that_leaves_before_it_is_durable_is_caught() {
    let grant = || vec![(1, Message::VoteReply(VoteReply { granted: true, last: EntryId::default() }))];
    let mut cluster = Cluster::new();
    cluster.votes(1, 1, 1).expect("a campaign");
    cluster.step(2, vec![hard(1, 1)], vec![], |view| view.term = Term(1)).expect("on its way");
    caught(cluster.step(2, vec![], grant(), |_| {}), "message_terms");
    cluster.sync(2).expect("durable");
    cluster.step(2, vec![], grant(), |_| {}).expect("now it may");
    let request = Vote { last: EntryId::new(1, 7), transfer: false };
    caught(cluster.step(1, vec![], vec![(2, Message::Vote(request))], |_| {}), "votes");
}

#[test]
fn a_leader_that_truncates_or_writes_in_old_terms_is_caught() {
    caught(
        Cluster::led().step(1, vec![LogBody::Truncate(LogIndex(1))], vec![], |_| {}),
        "leader_append_only",
    );
    let old = LogBody::Entry(entry(0, 2, "old"));
    caught(Cluster::led().step(1, vec![old], vec![], |_| {}), "leader_append_only");
    let gap = LogBody::Entry(entry(1, 3, "gap"));
    caught(Cluster::led().step(1, vec![gap], vec![], |_| {}), "leader_append_only");
    let next = LogBody::Entry(entry(1, 2, "next"));
    Cluster::led().step(1, vec![next], vec![], |_| {}).expect("a leader appends");
}

#[test]
fn two_entries_of_one_index_and_term_that_differ_are_caught() {
    caught(Cluster::led().appends(2, vec![entry(1, 1, "noqp")]), "log_matching");
    Cluster::led().appends(2, vec![entry(1, 1, "noop")]).expect("the same entry");
    // The same entry after another history.
    let mut cluster = Cluster::led();
    cluster.step(1, vec![LogBody::Entry(entry(1, 2, "b"))], vec![], |_| {}).expect("more");
    cluster
        .invariants
        .ghost
        .created
        .insert(EntryId::new(0, 1), ghost::Created { hash: 0, bytes: 0, after: Term(0), by: NodeId(3) });
    let line = Line::of(&entry(1, 2, "b"));
    let place = cluster.invariants.ghost.place(NodeId(3));
    caught(
        log_matching::appended(&mut cluster.invariants.ghost, place, EntryId::new(1, 2), line),
        "log_matching",
    );
}

#[test]
fn a_leader_without_a_committed_entry_is_caught() {
    let mut cluster = Cluster::committed();
    cluster.votes_by_decree(3, 2);
    caught(cluster.leads(3, 2, entry(2, 1, "other")), "leader_completeness");

    let mut cluster = Cluster::committed();
    cluster.votes(2, 2, 2).expect("2 holds everything");
    cluster.votes(3, 2, 2).expect("a vote");
    cluster.leads(2, 2, entry(2, 2, "noop")).expect("a complete leader");

    // Elected in term 2, but notified only when the leader of term 3 had committed.
    let mut cluster = Cluster::committed();
    cluster.invariants.ghost.chosen_in[0] = Term(3);
    cluster.votes_by_decree(3, 2);
    cluster.leads(3, 2, entry(2, 1, "other")).expect("what comes later binds nobody");
}

#[test]
fn a_commit_that_no_quorum_holds_is_caught() {
    let mut cluster = Cluster::led();
    cluster.persists(1, 1).expect("on 1's disk");
    cluster.appends(2, vec![entry(1, 1, "noop")]).expect("at 2, not on its disk");
    caught(cluster.step(1, vec![], vec![], |view| view.committed = LogIndex(1)), "commits");
    assert_eq!(Cluster::committed().invariants.committed(), LogIndex(1));
}

#[test]
fn a_commit_by_an_old_entry_alone_is_caught() {
    let mut cluster = Cluster::led();
    cluster.appends(2, vec![entry(1, 1, "noop")]).expect("at 2");
    for member in [1, 2] {
        cluster.persists(member, 1).expect("durable");
    }
    cluster.votes(2, 2, 2).expect("a campaign");
    cluster.votes(3, 2, 2).expect("a vote");
    cluster.leads(2, 2, entry(2, 2, "noop")).expect("a leader");
    caught(cluster.step(2, vec![], vec![], |view| view.committed = LogIndex(1)), "commits");
}

#[test]
fn a_follower_that_commits_what_no_leader_has_is_caught() {
    let mut cluster = Cluster::led();
    cluster.appends(2, vec![entry(1, 1, "noop")]).expect("at 2");
    caught(cluster.step(2, vec![], vec![], |view| view.committed = LogIndex(1)), "commits");
    let mut cluster = Cluster::committed();
    cluster.step(2, vec![], vec![], |view| view.committed = LogIndex(1)).expect("its leader has");
    caught(cluster.step(2, vec![], vec![], |view| view.committed = LogIndex(0)), "commits");
}

#[test]
fn a_committed_entry_that_leaves_a_log_is_caught_whichever_member_knows_of_the_commit() {
    let truncate = || vec![LogBody::Truncate(LogIndex(1))];
    let mut cluster = Cluster::committed();
    caught(cluster.step(2, truncate(), vec![], |_| {}), "committed_is_final");
    let mut cluster = Cluster::led();
    cluster.appends(2, vec![entry(1, 1, "noop")]).expect("at 2, not committed");
    cluster.leads_by_decree(3, 2, entry(2, 1, "other"));
    let other = || LogBody::Entry(entry(2, 1, "other"));
    let bodies = [vec![hard(2, 0)], truncate(), vec![other()]].concat();
    let follow = |view: &mut View| (view.term, view.leader) = (Term(2), Some(NodeId(3)));
    cluster.step(2, bodies, vec![], follow).expect("it may go");
}

#[test]
fn what_a_later_term_has_committed_may_leave_the_log_of_one_that_follows_an_earlier_leader() {
    // Member 2 holds 1.1, is cut off, and learns only now of the leader of term 2, which lacks it.
    let truncates = |committed_in: u64| {
        let mut cluster = Cluster::committed();
        cluster.invariants.ghost.chosen_in[0] = Term(committed_in);
        cluster.votes_by_decree(3, 2);
        let place = cluster.invariants.ghost.place(NodeId(3));
        let reign = ghost::Reign::new(NodeId(3), &cluster.invariants.ghost.at(place).log);
        cluster.invariants.ghost.reigns.insert(Term(2), reign);
        let bodies = vec![hard(2, 0), LogBody::Truncate(LogIndex(1))];
        cluster.step(2, bodies, vec![], |view| {
            (view.term, view.leader) = (Term(2), Some(NodeId(3)));
            (view.verified, view.persisted) = (LogIndex(0), LogIndex(0));
        })
    };
    truncates(3).expect("the leader of term 2 need not hold it");
    caught(truncates(2), "committed_is_final");
    caught(truncates(1), "committed_is_final");
    // A member that knows of the commit keeps the entry whatever the term is.
    let mut cluster = Cluster::committed();
    cluster.step(2, vec![], vec![], |view| view.committed = LogIndex(1)).expect("its leader has");
    cluster.invariants.ghost.chosen_in[0] = Term(3);
    caught(cluster.step(2, vec![LogBody::Truncate(LogIndex(1))], vec![], |_| {}), "committed_is_final");
}

#[test]
fn what_counts_as_persisted_is_on_the_disk() {
    let mut cluster = Cluster::led();
    caught(cluster.step(1, vec![], vec![], |view| view.persisted = LogIndex(1)), "marks");
    let mut cluster = Cluster::led();
    cluster.persists(1, 1).expect("it is there");
    caught(cluster.step(1, vec![], vec![], |view| view.persisted = LogIndex(0)), "marks");
}

#[test]
fn nothing_is_delivered_before_it_is_committed_and_persisted() {
    let mut cluster = Cluster::committed();
    caught(cluster.step(2, vec![], vec![], |view| view.delivered = LogIndex(1)), "marks");
    let mut cluster = Cluster::committed();
    cluster.step(1, vec![], vec![], |view| view.delivered = LogIndex(1)).expect("committed and persisted");
    caught(cluster.step(2, vec![], vec![], |view| (view.term, view.leader) = (Term(0), None)), "marks");
}

#[test]
fn an_acknowledgement_of_what_is_not_on_the_disk_is_caught() {
    let mut cluster = Cluster::led();
    cluster.appends(2, vec![entry(1, 1, "noop")]).expect("at 2");
    caught(cluster.step(2, vec![], vec![(1, matches(1))], |_| {}), "acknowledgements");
    let mut cluster = Cluster::led();
    cluster.appends(2, vec![entry(1, 1, "noop")]).expect("at 2");
    cluster.persists(2, 1).expect("durable");
    cluster.step(2, vec![], vec![(1, matches(1))], |_| {}).expect("it is");
    caught(cluster.step(2, vec![], vec![(3, matches(1))], |_| {}), "acknowledgements");
}

#[test]
fn a_match_beyond_the_acknowledgement_is_caught() {
    let believes = |acknowledged: bool, matched: u64| {
        let mut cluster = Cluster::committed();
        if acknowledged {
            cluster.step(2, vec![], vec![(1, matches(1))], |_| {}).expect("it is");
        }
        let place = cluster.invariants.ghost.place(NodeId(1));
        let ghost = &mut cluster.invariants.ghost;
        matches::stepped(ghost, place, Term(1), NodeId(2), LogIndex(matched), false)
    };
    caught(believes(false, 1), "matches");
    caught(believes(true, 2), "matches");
    believes(true, 1).expect("acknowledged");
}

#[test]
fn a_match_that_falls_is_caught_unless_the_peer_has_lost_its_log_and_the_leader_says_so() {
    let falls = |has_lost: bool, is_told: bool| {
        let mut cluster = Cluster::committed();
        cluster.step(2, vec![], vec![(1, matches(1))], |_| {}).expect("it is");
        if has_lost {
            cluster.crash_and_cut(Some(EntryId::new(1, 1))).expect("it says so");
        }
        let ghost = &mut cluster.invariants.ghost;
        let place = ghost.place(NodeId(1));
        matches::stepped(ghost, place, Term(1), NodeId(2), LogIndex(1), false).expect("acknowledged");
        matches::stepped(ghost, place, Term(1), NodeId(2), LogIndex(0), is_told)
    };
    caught(falls(false, false), "matches");
    caught(falls(false, true), "matches");
    caught(falls(true, false), "matches");
    falls(true, true).expect("it begins anew");
}

#[test]
fn a_member_told_of_a_loss_has_lost_something_in_this_run_or_an_earlier_one() {
    let told = |has_lost: bool, is_wiped: bool| {
        let mut cluster = Cluster::committed();
        cluster.step(2, vec![], vec![(1, matches(1))], |_| {}).expect("it is");
        if has_lost {
            cluster.crash_and_cut(Some(EntryId::new(1, 1))).expect("it says so");
        }
        if is_wiped {
            cluster.invariants.wiped(NodeId(2));
        }
        let lost = Message::Lost(Lost { upto: EntryId::new(1, 1) });
        cluster.step(1, vec![], vec![(2, lost)], |_| {})
    };
    told(true, false).expect("its log was cut");
    told(true, true).expect("its leader goes on telling what the directory before this one had lost");
    caught(told(false, false), "matches");
    caught(told(false, true), "matches");
}

#[test]
fn a_log_that_is_cut_in_silence_is_caught_and_one_that_says_what_it_owes_still_counts() {
    let mut cluster = Cluster::committed();
    caught(cluster.crash_and_cut(None), "durability");
    let mut cluster = Cluster::committed();
    caught(cluster.crash_and_cut(Some(EntryId::new(1, 0))), "durability");

    let owing = || {
        let mut cluster = Cluster::committed();
        cluster.crash_and_cut(Some(EntryId::new(1, 1))).expect("a floor");
        cluster.views[1] = View { term: Term(1), ..cluster.views[2].clone() };
        cluster
    };
    let lines = &owing().invariants.ghost;
    let line = lines.chosen.line(LogIndex(1)).expect("committed");
    assert!(lines.member(NodeId(2)).is_some_and(|member| member.owes(LogIndex(1), line)));
    // Member 3, which lacks the entry, gets no vote from member 2; nor may member 2 campaign.
    let mut cluster = owing();
    cluster.votes(3, 2, 3).expect("it may campaign");
    caught(cluster.votes(2, 2, 3), "votes");
    caught(owing().votes(2, 2, 2), "votes");
}

#[test]
fn what_a_leader_counted_of_an_older_directory_is_owed_until_that_leader_stops_without_a_commit() {
    // Member 1 counts its entry on the disk of member 2, whose directory then is an empty copy.
    let older = |commits: bool| {
        let mut cluster = if commits { Cluster::committed() } else { Cluster::led() };
        if !commits {
            cluster.appends(2, vec![entry(1, 1, "noop")]).expect("at 2");
            cluster.persists(2, 1).expect("on 2's disk");
        }
        let ghost = &mut cluster.invariants.ghost;
        ghost.acknowledged.insert((Term(1), NodeId(2)), LogIndex(1));
        matches::stepped(ghost, 0, Term(1), NodeId(2), LogIndex(1), false).expect("acknowledged");
        cluster.invariants.crashed(NodeId(2)).expect("it ran");
        cluster.invariants.returns_older(NodeId(2));
        cluster
    };
    let returns = |mut cluster: Cluster| {
        let LogBody::HardState(hard) = hard(1, 1) else { unreachable!("it is one") };
        let recovered = Recovered { hard, lsn: Lsn(cluster.lsns[1]), ..Recovered::default() };
        cluster.invariants.restarted(NodeId(2), &recovered).expect("an older directory");
        cluster.views[1] = View { term: Term(1), ..idle() };
        cluster
    };
    let resigns = |mut cluster: Cluster| {
        cluster.step(1, vec![], vec![], |view| view.leads = false).expect("a leader may resign");
        cluster
    };
    let votes_for_3 = |mut cluster: Cluster| {
        cluster.votes(3, 2, 3).expect("it may campaign");
        cluster.votes(2, 2, 3)
    };
    for commits in [false, true] {
        caught(votes_for_3(returns(older(commits))), "votes");
    }
    votes_for_3(returns(resigns(older(false)))).expect("nobody counts the entry");
    votes_for_3(resigns(returns(older(false)))).expect("nobody counts the entry any more");
    caught(votes_for_3(returns(resigns(older(true)))), "votes");
    caught(votes_for_3(resigns(returns(older(true)))), "votes");
    // Before it is reminded, its older directory is damaged, too: no floor there can know of the entry, and its vote still counts.
    let mut cluster = returns(older(true));
    cluster.crash_and_cut(None).expect("what this directory held is all there");
    cluster.views[1] = View { term: Term(1), ..idle() };
    caught(votes_for_3(cluster), "votes");
    let mut cluster = older(false);
    cluster.invariants.crashed(NodeId(1)).expect("it ran");
    votes_for_3(returns(cluster)).expect("what a leader counted ends with its process");
}

#[test]
fn a_message_of_another_term_or_of_what_is_not_in_the_log_is_caught() {
    let append = |prev: EntryId, entries: Vec<Entry>| {
        let append = Append { prev, entries, commit: LogIndex(0), round: Round(1), tail: false };
        vec![(2, Message::Append(append))]
    };
    let noop = || vec![entry(1, 1, "noop")];
    Cluster::led().step(1, vec![], append(EntryId::default(), noop()), |_| {}).expect("its log");
    let wrong = append(EntryId::new(1, 1), vec![entry(1, 2, "x")]);
    caught(Cluster::led().step(1, vec![], wrong, |_| {}), "message_terms");
    caught(Cluster::led().step(2, vec![], append(EntryId::default(), noop()), |_| {}), "message_terms");
    let early = vec![(1, matches(0))];
    caught(Cluster::led().step(2, vec![hard(2, 0)], early, |view| view.term = Term(2)), "message_terms");
}

#[test]
fn a_follower_that_takes_more_for_verified_than_agrees_is_caught() {
    let mut cluster = Cluster::led();
    cluster.step(1, vec![LogBody::Entry(entry(1, 2, "b"))], vec![], |_| {}).expect("more");
    cluster.votes(3, 2, 3).expect("a campaign");
    cluster.votes(2, 2, 3).expect("a vote");
    cluster.leads(3, 2, entry(2, 1, "noop")).expect("nothing was committed");
    // 1 learns of the new leader and keeps the verified mark of the old term.
    let believes = |cluster: &mut Cluster, verified: u64| {
        cluster.step(1, vec![hard(2, 0)], vec![], |view| {
            (view.term, view.leads, view.leader) = (Term(2), false, Some(NodeId(3)));
            view.verified = LogIndex(verified);
        })
    };
    caught(believes(&mut cluster, 1), "verified");
    let mut cluster = Cluster::led();
    cluster.votes(3, 2, 3).expect("a campaign");
    cluster.votes(2, 2, 3).expect("a vote");
    cluster.leads(3, 2, entry(2, 1, "noop")).expect("nothing was committed");
    believes(&mut cluster, 0).expect("nothing is verified yet");
}

#[test]
fn a_store_applies_what_is_committed_once_and_in_order() {
    let mut cluster = Cluster::committed();
    caught(cluster.invariants.applied(NodeId(1), &entry(1, 1, "noqp")), "state_machine_safety");
    caught(cluster.invariants.applied(NodeId(1), &entry(1, 2, "noop")), "state_machine_safety");
    cluster.invariants.applied(NodeId(1), &entry(1, 1, "noop")).expect("the very entry");
    caught(cluster.invariants.applied(NodeId(1), &entry(1, 1, "noop")), "state_machine_safety");
}

#[test]
fn a_disk_that_forgets_a_vote_or_an_entry_or_invents_one_is_caught() {
    let back = |hard: HardState, lsn: u64, last: EntryId, starts: Vec<EntryId>| {
        let mut cluster = Cluster::led();
        cluster.sync(1).expect("durable");
        cluster.invariants.crashed(NodeId(1)).expect("it ran");
        let recovered = Recovered { hard, lsn: Lsn(lsn), last, term_starts: starts, ..Recovered::default() };
        cluster.invariants.restarted(NodeId(1), &recovered)
    };
    let voted = HardState { term: Term(1), vote: Some(NodeId(1)) };
    let first = EntryId::new(1, 1);
    back(voted, 2, first, vec![first]).expect("all is there");
    caught(back(HardState { vote: None, ..voted }, 2, first, vec![first]), "durability");
    caught(back(voted, 1, first, vec![first]), "durability");
    caught(back(voted, 2, EntryId::default(), vec![]), "durability");
    caught(back(voted, 3, EntryId::new(1, 2), vec![first]), "durability");
}

#[test]
fn what_is_told_out_of_order_is_refused() {
    let mut cluster = Cluster::new();
    cluster.invariants.crashed(NodeId(1)).expect("it ran");
    caught(cluster.invariants.crashed(NodeId(1)), "told_in_order");
    caught(cluster.step(1, vec![], vec![], |_| {}), "told_in_order");
    cluster.invariants.wiped(NodeId(1));
    cluster.invariants.restarted(NodeId(1), &Recovered::default()).expect("as one that never was");
}

#[test]
fn a_record_number_is_used_once() {
    let mut cluster = Cluster::led();
    cluster.lsns[0] -= 1;
    caught(cluster.step(1, vec![hard(1, 1)], vec![], |_| {}), "durability");
}

// ── Leases ──

/// Member 1 leads term 1 with a lease until 100, and member 3 is elected in term 2.
fn with_a_lease() -> Cluster {
    let mut cluster = Cluster::led();
    let lease = Some((Term(1), 100));
    assert!(cluster.invariants.lease(NodeId(1), lease, 10).expect("it leads"), "it begins");
    assert!(!cluster.invariants.lease(NodeId(1), lease, 20).expect("it leads"), "it goes on");
    cluster.leads_by_decree(3, 2, entry(2, 1, "noop"));
    cluster
}

#[test]
fn a_leader_while_an_older_lease_holds_is_caught() {
    caught(with_a_lease().invariants.lease(NodeId(3), None, 99).map(|_| ()), "leases_exclude_leaders");
}

#[test]
fn a_lease_that_is_over_dropped_or_gone_with_its_holder_excludes_no_leader() {
    let began = |cluster: &mut Cluster, member, lease, now| {
        cluster.invariants.lease(NodeId(member), lease, now).expect("nobody is excluded")
    };
    assert!(!began(&mut with_a_lease(), 3, None, 100), "it is over");
    assert!(!began(&mut with_a_lease(), 1, None, 50), "it was dropped");
    let mut cluster = with_a_lease();
    cluster.invariants.crashed(NodeId(1)).expect("it ran");
    assert!(began(&mut cluster, 3, Some((Term(2), 150)), 50), "the next one's own");
}

// ── Configurations ──

fn voters(ids: &[u64]) -> Membership {
    Membership::new(ids.iter().copied().map(NodeId).collect(), Vec::new())
}

fn configuration(term: u64, index: u64, membership: &Membership) -> Entry {
    let mut payload = Vec::new();
    membership.encode(&mut payload);
    let id = EntryId::new(term, index);
    let head = EntryHead { id, kind: EntryKind::Config, stamp: Stamp(0) };
    Entry::new(head, SharedBytes::from(payload), 0)
}

/// The leader of term 1 adds a configuration.
fn configures(cluster: &mut Cluster, index: u64, membership: &Membership) -> Checked {
    cluster.step(1, vec![LogBody::Entry(configuration(1, index, membership))], vec![], |_| {})
}

/// The entry is on the disks of these, and the leader, one of them, commits it.
fn commits_on(cluster: &mut Cluster, members: &[u64], entry: &Entry) -> Checked {
    let index = entry.id().index.0;
    for &member in members {
        if member != 1 {
            cluster.appends(member, vec![entry.clone()])?;
        }
        cluster.persists(member, index)?;
    }
    cluster.step(1, vec![], vec![], |view| view.committed = LogIndex(index))
}

#[test]
fn a_change_that_skips_the_joint_configuration_is_caught() {
    caught(configures(&mut Cluster::committed(), 2, &voters(&[1, 2])), "configurations");
    let learner = Membership { learners: vec![NodeId(4)], ..voters(&[1, 2, 3]) };
    configures(&mut Cluster::committed(), 2, &learner).expect("no quorum changes");
    let joint = voters(&[1, 2, 3]).enter(&voters(&[1, 2]));
    configures(&mut Cluster::committed(), 2, &joint).expect("both sets decide");
}

#[test]
fn a_change_before_an_entry_of_its_own_term_or_upon_another_is_caught() {
    let joint = voters(&[1, 2, 3]).enter(&voters(&[1, 2]));
    caught(configures(&mut Cluster::led(), 2, &joint), "configurations");
    let mut cluster = Cluster::committed();
    configures(&mut cluster, 2, &joint).expect("one change");
    caught(configures(&mut cluster, 3, &joint.leave()), "configurations");
}

#[test]
fn a_joint_configuration_commits_with_both_quorums_and_is_left_for_its_own_next() {
    let joint = voters(&[1, 2, 3]).enter(&voters(&[1]));
    let entry = configuration(1, 2, &joint);
    let mut cluster = Cluster::committed();
    configures(&mut cluster, 2, &joint).expect("both sets decide");
    caught(commits_on(&mut cluster.clone(), &[1], &entry), "commits");
    commits_on(&mut cluster, &[1, 2], &entry).expect("two of three, and one of one");
    caught(configures(&mut cluster.clone(), 3, &voters(&[1, 2, 3])), "configurations");
    configures(&mut cluster, 3, &joint.leave()).expect("the next");
    cluster.persists(1, 3).expect("on its disk");
    cluster.step(1, vec![], vec![], |view| view.committed = LogIndex(3)).expect("one of one");
}

#[test]
fn a_leader_is_elected_by_the_newest_configuration_of_its_log() {
    let joint = voters(&[1, 2, 3]).enter(&voters(&[4]));
    let mut cluster = Cluster::committed();
    configures(&mut cluster, 2, &joint).expect("both sets decide");
    cluster.sync(1).expect("on its disk");
    cluster.votes(1, 2, 1).expect("a campaign");
    cluster.votes(2, 2, 1).expect("a vote");
    caught(cluster.leads(1, 2, entry(2, 3, "noop")), "election_safety");
}

#[test]
fn weak_answers_are_the_leaders_own_within_the_budget_and_each_has_one_end() {
    let received = |term, index| Outcome::Received(EntryId::new(term, index));
    // A leader with an entry that is not committed, and a budget of one.
    let leading = || {
        let mut cluster = Cluster::committed();
        cluster
            .step(
                1,
                vec![LogBody::Entry(entry(1, 2, "a")), LogBody::Entry(entry(1, 3, "b"))],
                vec![],
                |view| {
                    view.weak_budget = Some(Capacity { entries: 1, bytes: 99 });
                },
            )
            .expect("it appends");
        cluster
    };
    leading().answers(&[(7, received(1, 2))]).expect("it leads and holds it");
    caught(leading().answers(&[(7, received(1, 4))]), "weak_answers");
    caught(leading().answers(&[(7, received(2, 2))]), "weak_answers");
    caught(leading().answers(&[(7, received(1, 2)), (8, received(1, 3))]), "weak_answers");
    caught(leading().answers(&[(7, received(1, 2)), (7, received(1, 2))]), "weak_answers");
    let with = |entries, bytes| {
        let mut cluster = leading();
        cluster.views[0].weak_budget = Some(Capacity { entries, bytes });
        cluster
    };
    let both = [(7, received(1, 2)), (8, received(1, 3))];
    with(2, 2).answers(&both).expect("two entries of one byte each");
    caught(with(2, 1).answers(&both), "weak_answers");
    let mut without = leading();
    without.views[0].weak_budget = None;
    caught(without.answers(&[(7, received(1, 2))]), "weak_answers");
    let ends = |outcome: Outcome, leads: bool| {
        let mut cluster = leading();
        cluster.answers(&[(7, received(1, 2))]).expect("it leads");
        cluster.views[0].leads = leads;
        cluster.answers(&[(7, outcome)])
    };
    ends(Outcome::Unknown(Doubt::LeaderChanged), false).expect("it leads no more");
    ends(Outcome::Unknown(Doubt::TimedOut), true).expect("it has waited long");
    for outcome in [
        Outcome::Unknown(Doubt::LeaderChanged),
        Outcome::Refused(Refusal::NoLeader),
        Outcome::Refused(Refusal::Overwritten),
    ] {
        caught(ends(outcome, true), "weak_answers");
    }
    let mut cluster = leading();
    cluster.answers(&[(7, received(1, 2)), (7, Outcome::Unknown(Doubt::TimedOut))]).expect("once each");
    cluster.answers(&[(8, received(1, 3))]).expect("the budget has room again");
}
