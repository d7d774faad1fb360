//! A vote is asked for in vain while the voter hears its leader, and is free one election timeout after the last word of it. The
//! term of such a request is ignored, too, or it would depose the leader all the same. [replication-protocols E3]

use kattu_raft::message::{Append, PreVote, Vote};
use kattu_raft::{
    Config, Duration, Effects, EntryId, Envelope, GroupId, HardState, Incarnation, Instant, LogIndex, Lsn,
    Message, NodeId, Raft, RecordEncoder, Recovered, Round, Term,
};

const ME: NodeId = NodeId(1);
const LEADER: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);
const HEARD: Instant = Instant(1_000_000_000);
const ET: Duration = Duration::from_millis(1000);

fn envelope(from: NodeId, term: u64, message: Message) -> Envelope {
    Envelope { group: GroupId(0), from, incarnation: Incarnation(from.0), to: ME, term: Term(term), message }
}

/// The peer takes in a message, and what it records is durable.
fn step(raft: &mut Raft, now: Instant, envelope: Envelope) -> Effects {
    let mut effects = Effects::default();
    raft.step(now, envelope, &mut effects);
    if let Some(record) = effects.persist.last() {
        let lsn = record.lsn;
        raft.persisted(now, lsn, &mut effects);
    }
    effects
}

/// A follower that heard its leader of term 1 last at [`HEARD`].
fn follower() -> Raft {
    let config = Config { election_timeout: ET, ..Config::new(ME, [ME, LEADER, OTHER], RecordEncoder::BARE) };
    let mut raft = Raft::recover(config, 7, Instant(0), Recovered::default());
    let (prev, commit) = (EntryId::default(), LogIndex(0));
    for (now, round) in [(Instant(0), 1), (HEARD, 2)] {
        let heartbeat = Append { prev, entries: vec![], commit, round: Round(round), tail: false };
        step(&mut raft, now, envelope(LEADER, 1, Message::Append(heartbeat)));
    }
    assert_eq!(raft.leader(), Some(LEADER));
    raft
}

/// A first message that speaks for the new term leaves with the record of the term, and not with that of a later vote.
#[test]
fn an_answer_waits_for_the_record_that_it_speaks_for_and_for_no_later_one() {
    let config = Config { election_timeout: ET, ..Config::new(ME, [ME, LEADER, OTHER], RecordEncoder::BARE) };
    let recovered = Recovered {
        term_starts: vec![EntryId::new(1, 1)],
        last: EntryId::new(1, 1),
        lsn: Lsn(1),
        hard: HardState { term: Term(1), vote: None },
        ..Recovered::default()
    };
    let mut raft = Raft::recover(config, 7, Instant(0), recovered);
    let (mut effects, now) = (Effects::default(), HEARD);
    let vote = |last| Message::Vote(Vote { last, transfer: false });
    raft.step(now, envelope(LEADER, 2, vote(EntryId::default())), &mut effects);
    let of_term = effects.persist.last().expect("the term").lsn;
    raft.step(now, envelope(OTHER, 2, vote(EntryId::new(1, 1))), &mut effects);
    let of_vote = effects.persist.last().expect("the vote").lsn;
    assert!(of_term < of_vote && effects.send.is_empty(), "{effects:?}");
    let answered = |raft: &mut Raft, lsn| {
        let mut effects = Effects::default();
        raft.persisted(now, lsn, &mut effects);
        effects.send.iter().map(|sent| sent.to).collect::<Vec<_>>()
    };
    assert_eq!(answered(&mut raft, of_term), [LEADER]);
    assert_eq!(answered(&mut raft, of_vote), [OTHER]);
}

/// The term of the follower after this request, and whether it granted it, once its vote is durable.
fn asked(now: Instant, message: Message) -> (Term, bool) {
    let mut raft = follower();
    // A pre-candidate is still in the old term.
    let term = if matches!(message, Message::PreVote(_)) { 1 } else { 2 };
    let effects = step(&mut raft, now, envelope(OTHER, term, message));
    let granted = effects.send.iter().any(|envelope| match &envelope.message {
        Message::VoteReply(reply) => reply.granted,
        Message::PreVoteReply(reply) => reply.granted,
        other => panic!("{other:?}"),
    });
    (raft.term(), granted)
}

#[test]
fn a_vote_is_free_one_election_timeout_after_the_leader_was_heard_and_not_before() {
    let vote = |transfer| Message::Vote(Vote { last: EntryId::default(), transfer });
    let pre_vote =
        || Message::PreVote(PreVote { campaign_term: Term(2), last: EntryId::default(), round: Round(1) });
    let free = HEARD + ET;
    for (now, is_free) in [(HEARD, false), (Instant(free.0 - 1), false), (free, true), (free + ET, true)] {
        let (term, granted) = asked(now, vote(false));
        assert_eq!((term, granted), if is_free { (Term(2), true) } else { (Term(1), false) }, "at {now:?}");
        assert_eq!(asked(now, pre_vote()).1, is_free, "at {now:?}");
        assert_eq!(asked(now, vote(true)), (Term(2), true), "the leader itself lets it campaign");
    }
}
