//! A member that has just started: it learns from the others what it acknowledged before it votes or campaigns.
//!
//! Knows nothing of: directories.

use kattu_raft::message::{PreVoteReply, Reminder, Standing, Vote, VoteReply};
use kattu_raft::{
    Config, Duration, Effects, EntryId, Envelope, GroupId, HardState, Incarnation, Instant, LeadershipConfig,
    LogIndex, Lsn, Message, NodeId, Raft, Recovered, Round, Term,
};

const GROUP: GroupId = GroupId(0);
const HEARTBEAT: Duration = Duration::from_millis(100);

/// A member of three, which starts with entries of term 2 and without a vote.
struct Start {
    raft: Raft,
    now: Instant,
    sent: Vec<Envelope>,
    /// The nonce of its requests.
    nonce: u64,
    /// Its last record on disk.
    lsn: Lsn,
}

impl Start {
    fn new(seed: u64, kept: u64) -> Start {
        let config = Config {
            incarnation: Incarnation(7),
            election_timeout: HEARTBEAT * 10,
            heartbeat_interval: HEARTBEAT,
            leadership: LeadershipConfig { asks_first: true, ..LeadershipConfig::default() },
            ..Config::new(NodeId(1), (1..=3).map(NodeId), kattu_wal::encoder())
        };
        let recovered = match kept {
            0 => Recovered::default(),
            kept => Recovered {
                hard: HardState { term: Term(2), vote: None },
                term_starts: vec![EntryId::new(2, 1)],
                last: EntryId::new(2, kept),
                committed: LogIndex(1),
                lsn: Lsn(kept + 1),
                ..Recovered::default()
            },
        };
        let (now, lsn) = (Instant(1_000_000), recovered.lsn);
        Start { raft: Raft::recover(config, seed, now, recovered), now, sent: Vec::new(), nonce: 0, lsn }
    }

    fn carry_out(&mut self, mut effects: Effects) {
        if let Some(lsn) = effects.persist.last().map(|record| record.lsn) {
            self.raft.persisted(self.now, lsn, &mut effects);
            self.lsn = lsn;
        }
        self.sent.append(&mut effects.send);
    }

    /// Time passes; the messages that it sends meanwhile.
    fn wait(&mut self, time: Duration) -> Vec<Envelope> {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.raft.deadline().max(self.now + Duration::from_millis(1)));
            let mut effects = Effects::default();
            self.raft.tick(self.now, &mut effects);
            self.carry_out(effects);
        }
        let said = std::mem::take(&mut self.sent);
        if let Some(Message::Remind(remind)) = said.first().map(|it| &it.message) {
            self.nonce = remind.nonce;
        }
        said
    }

    fn hears(&mut self, from: u64, term: u64, message: Message) -> Vec<Envelope> {
        self.now += Duration::from_millis(1);
        let (from, to) = (NodeId(from), NodeId(1));
        let incarnation = Incarnation(9);
        let envelope = Envelope { group: GROUP, from, incarnation, to, term: Term(term), message };
        let mut effects = Effects::default();
        self.raft.step(self.now, envelope, &mut effects);
        self.carry_out(effects);
        std::mem::take(&mut self.sent)
    }

    fn votes(&mut self, term: u64, last: u64) -> bool {
        let asked = Message::Vote(Vote { last: EntryId::new(2, last), transfer: true });
        let said = self.hears(3, term, asked);
        said.iter().any(|sent| matches!(&sent.message, Message::VoteReply(reply) if reply.granted))
    }

    fn is_reminded(&mut self, by: u64, term: u64, committed: u64, acknowledged: u64) {
        self.is_reminded_by(by, Standing::TakesPart, (term, committed, acknowledged));
    }

    fn is_reminded_by(
        &mut self,
        by: u64,
        standing: Standing,
        (term, committed, acknowledged): (u64, u64, u64),
    ) {
        let id = |index| if index == 0 { EntryId::default() } else { EntryId::new(2, index) };
        let (committed, acknowledged) = (id(committed), id(acknowledged));
        self.hears(
            by,
            term,
            Message::Reminder(Reminder { nonce: self.nonce, standing, committed, acknowledged }),
        );
    }
}

pub(super) fn with_what_it_has_acknowledged(seed: u64) {
    let kept = 1 + seed % 5;
    let mut start = Start::new(seed, kept);
    let asked = start.wait(Duration::from_millis(1));
    let is_asked = |voter| {
        let is_so = |it: &Envelope| it.to == NodeId(voter) && matches!(it.message, Message::Remind(_));
        asked.iter().any(is_so)
    };
    assert!(is_asked(2) && is_asked(3), "who_returns_asks_first: {asked:?}");
    assert!(!start.votes(3, kept + 9), "who_returns_asks_first: it votes before anybody has answered");
    start.is_reminded(2, 5, kept + 2, kept + 4);
    assert!(!start.votes(4, kept + 9), "who_returns_asks_first: it votes before all have answered");
    start.is_reminded(3, 2, 1, 0);
    assert!(
        !start.votes(5, kept + 9),
        "who_returns_votes_in_a_new_term: in term 5 it may have voted for somebody else"
    );
    assert!(
        !start.votes(6, kept + 3),
        "who_returns_owes_what_it_acknowledged: it votes for a log that ends before {}",
        kept + 4
    );
    assert!(start.votes(7, kept + 4), "who_returns_owes_what_it_acknowledged: it votes for nobody at all");
}

pub(super) fn with_what_is_committed(seed: u64) {
    let kept = 1 + seed % 5;
    let mut start = Start::new(seed, kept);
    start.wait(Duration::from_millis(1));
    start.is_reminded(2, 2, kept + 2, 0);
    start.is_reminded(3, 2, kept + 1, 0);
    let said = start.wait(HEARTBEAT * 100);
    assert!(
        said.iter().all(|it| !matches!(it.message, Message::PreVote(_) | Message::Vote(_))),
        "who_returns_leads_with_what_is_committed: it campaigns with a log up to {kept} of {}",
        kept + 2
    );
    assert!(
        !start.votes(6, kept + 1),
        "who_returns_votes_for_what_is_committed: it votes for a log up to {} of {}",
        kept + 1,
        kept + 2
    );
    assert!(start.votes(7, kept + 2), "who_returns_votes_for_what_is_committed: it votes for nobody at all");
}

/// An earlier run, in a newer copy of the directory, asked for votes in the same term, for a longer log.
pub(super) fn and_hears_votes_for_its_earlier_run(seed: u64) {
    let kept = 1 + seed % 5;
    let mut start = Start::new(seed, kept);
    start.wait(Duration::from_millis(1));
    start.is_reminded(2, 2, kept, 0);
    start.is_reminded(3, 2, kept, 0);
    start.wait(HEARTBEAT * 30);
    let campaign_term = start.raft.term().next();
    let yes = PreVoteReply { campaign_term, granted: true, round: Round(0) };
    let said = start.hears(2, 2, Message::PreVoteReply(yes));
    assert!(said.iter().any(|it| matches!(it.message, Message::Vote(_))), "it campaigns: {said:?}");
    let vote = |last| Message::VoteReply(VoteReply { granted: true, last: EntryId::new(2, last) });
    start.hears(2, campaign_term.0, vote(kept + 1));
    assert!(
        !start.raft.is_leader(),
        "who_returns_counts_votes_for_its_log: it leads with a log up to {kept} by a vote for one up to {}",
        kept + 1
    );
    start.hears(3, campaign_term.0, vote(kept));
    assert!(start.raft.is_leader(), "who_returns_counts_votes_for_its_log: it counts no votes at all");
}

/// An initial member, without a past.
pub(super) fn for_the_first_time(seed: u64) {
    let mut start = Start::new(seed, 0);
    let said = start.wait(HEARTBEAT * 100);
    assert!(
        said.iter().all(|it| matches!(it.message, Message::Remind(_))) && !start.votes(1, 0),
        "who_has_no_past_meets_everybody: it takes part before that"
    );
    start.is_reminded_by(2, Standing::Alone, (0, 0, 0));
    let said = start.wait(HEARTBEAT * 100);
    assert!(
        said.iter().all(|it| matches!(it.message, Message::Remind(_))),
        "who_has_no_past_meets_everybody: it takes part when it has met one of two"
    );
    start.is_reminded_by(3, Standing::Alone, (0, 0, 0));
    let said = start.wait(HEARTBEAT * 100);
    assert!(
        said.iter().all(|it| matches!(it.message, Message::Remind(_))),
        "who_has_no_past_meets_everybody: it takes part when the others have not met all"
    );
    start.is_reminded_by(2, Standing::HasMetAll, (0, 0, 0));
    start.is_reminded_by(3, Standing::HasMetAll, (0, 0, 0));
    let said = start.wait(HEARTBEAT * 100);
    assert!(
        said.iter().any(|it| matches!(it.message, Message::PreVote(_))),
        "who_has_no_past_meets_everybody: it does not begin"
    );
}

/// A voter whose directory is empty, of a group that has begun long ago.
pub(super) fn for_the_first_time_among_others(seed: u64) {
    let mut start = Start::new(seed, 0);
    start.wait(Duration::from_millis(1));
    start.is_reminded(2, 5, 3, 0);
    assert!(
        start.lsn == Lsn(0),
        "who_has_no_past_makes_none: one of two has answered, and that is on its disk"
    );
    let said = start.wait(HEARTBEAT * 100);
    assert!(
        said.iter().all(|it| matches!(it.message, Message::Remind(_))) && start.lsn == Lsn(0),
        "who_has_no_past_makes_none: it goes on when one of two has answered"
    );
    start.is_reminded(3, 2, 1, 0);
    assert!(!start.votes(5, 9), "who_has_no_past_makes_none: what the first has said is forgotten");
    assert!(!start.votes(6, 2), "who_has_no_past_makes_none: what the first has said is forgotten");
    assert!(start.votes(7, 3), "who_has_no_past_makes_none: it votes for nobody at all");
}
