//! How often a member asks, and what is a question: nothing may ask without a pause, and no answer may be taken for a question.

use kattu_raft::message::{PreVote, Remind, Reminder, SnapshotChunk, Standing};
use kattu_raft::{
    Config, Duration, Effects, EntryId, Envelope, GroupId, Incarnation, Instant, LeadershipConfig, Lsn,
    MET_ALL, Message, NodeId, Raft, RecordEncoder, Recovered, Round, SharedBytes, SnapshotMeta, Term, Trace,
};

const HEARTBEAT: Duration = Duration::from_millis(100);

/// A member of three that has just started, and asks the others first.
fn starting(recovered: Recovered) -> Raft {
    let config = Config {
        heartbeat_interval: HEARTBEAT,
        leadership: LeadershipConfig { asks_first: true, ..LeadershipConfig::default() },
        ..Config::new(NodeId(1), [1, 2, 3].map(NodeId), RecordEncoder::BARE)
    };
    Raft::recover(config, 7, Instant(0), recovered)
}

/// The number of the question that it asks first.
fn asks(raft: &mut Raft) -> u64 {
    let mut effects = Effects::default();
    raft.tick(Instant(0), &mut effects);
    match effects.send.first().map(|sent| &sent.message) {
        Some(Message::Remind(Remind { nonce })) => *nonce,
        other => panic!("it asks: {other:?}"),
    }
}

#[test]
fn a_member_that_starts_asks_each_voter_a_few_times_per_heartbeat_until_it_is_answered() {
    let mut raft = starting(Recovered::default());
    let (mut now, mut asked) = (Instant(0), vec![]);
    while now < Instant(0) + HEARTBEAT {
        let mut effects = Effects::default();
        raft.tick(now, &mut effects);
        let reminds = effects.send.iter().filter(|envelope| matches!(envelope.message, Message::Remind(_)));
        asked.extend(reminds.map(|envelope| envelope.to));
        assert!(now < raft.deadline(), "it would ask all the time");
        now = raft.deadline();
    }
    let of = |voter| asked.iter().filter(|to| **to == NodeId(voter)).count();
    assert!(of(1) == 0 && of(2) == of(3), "{asked:?}");
    assert!((2..=10).contains(&of(2)), "{} questions in a heartbeat interval", of(2));
}

/// A member without a past whose questions both others have answered so: whether it takes part, and whether it would let another
/// one campaign, after so long.
fn started_beside(standing: Standing, after: Duration) -> (bool, bool) {
    let mut raft = starting(Recovered::default());
    let nonce = asks(&mut raft);
    let says = |raft: &mut Raft, now, from, message| {
        let (incarnation, to, term) = (Incarnation(from), NodeId(1), Term(0));
        let from = NodeId(from);
        let mut effects = Effects::default();
        raft.step(now, Envelope { group: GroupId(0), from, incarnation, to, term, message }, &mut effects);
        if let Some(lsn) = effects.persist.last().map(|record| record.lsn) {
            raft.persisted(now, lsn, &mut effects);
        }
        effects
    };
    let (committed, acknowledged) = (EntryId::default(), EntryId::default());
    let reminder = Reminder { nonce, standing, committed, acknowledged };
    let mut takes_part = false;
    for from in [2, 3] {
        let effects = says(&mut raft, Instant(0), from, Message::Reminder(reminder.clone()));
        takes_part |= effects.trace.iter().any(|trace| matches!(trace, Trace::TakesPart { .. }));
    }
    let pre_vote = PreVote { campaign_term: Term(1), last: EntryId::default(), round: Round(1) };
    let effects = says(&mut raft, Instant(0) + after, 2, Message::PreVote(pre_vote));
    let is_granted =
        |envelope: &Envelope| matches!(&envelope.message, Message::PreVoteReply(reply) if reply.granted);
    (takes_part, effects.send.iter().any(is_granted))
}

#[test]
fn only_a_member_that_may_have_a_leader_already_waits_for_it_before_it_lets_others_campaign() {
    assert_eq!(started_beside(Standing::HasMetAll, Duration::ZERO), (true, true), "all are new");
    assert_eq!(started_beside(Standing::TakesPart, Duration::ZERO), (true, false), "the others have begun");
    assert_eq!(started_beside(Standing::TakesPart, HEARTBEAT * 4), (true, true), "no leader came");
    assert!(!started_beside(Standing::Alone, Duration::ZERO).0, "they have not met all others");
}

/// A voter that met all others in an earlier run, and whose question one of them answers: it has begun without this one.
#[test]
fn a_voter_waits_for_a_silent_one_an_election_timeout_long_once_another_takes_part() {
    let start = |standing| {
        let mut raft = starting(Recovered { hard: MET_ALL, lsn: Lsn(1), ..Recovered::default() });
        let nonce = asks(&mut raft);
        assert!(!raft.others_began());
        let (committed, acknowledged) = (EntryId::default(), EntryId::default());
        let message = Message::Reminder(Reminder { nonce, standing, committed, acknowledged });
        let (from, to, term) = (NodeId(2), NodeId(1), Term(0));
        let envelope = Envelope { group: GroupId(0), from, incarnation: Incarnation(2), to, term, message };
        raft.step(Instant(0), envelope, &mut Effects::default());
        let end = Instant(0) + raft.timing().election_timeout;
        (raft, end)
    };
    let (mut raft, end) = start(Standing::TakesPart);
    assert!(raft.others_began() && raft.is_returning());
    raft.tick(Instant(end.0 - 1), &mut Effects::default());
    assert!(raft.is_returning(), "the third may answer");
    raft.tick(end, &mut Effects::default());
    assert!(!raft.is_returning());

    let (mut raft, end) = start(Standing::Alone);
    raft.tick(end, &mut Effects::default());
    assert!(!raft.others_began() && raft.is_returning(), "no other has begun");
}

#[test]
fn a_chunk_without_bytes_asks_how_far_a_snapshot_has_come_unless_it_is_the_end() {
    for (bytes, offset, total, is_question) in
        [(0, 0, 10, true), (0, 9, 10, true), (0, 10, 10, false), (0, 0, 0, false), (1, 0, 10, false)]
    {
        let (meta, bytes) = (Box::new(SnapshotMeta::default()), SharedBytes::from(vec![7; bytes]));
        let chunk = SnapshotChunk { meta, offset, bytes, total };
        assert_eq!(chunk.is_question(), is_question, "{chunk:?}");
    }
}
