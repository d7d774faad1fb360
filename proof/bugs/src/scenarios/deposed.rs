//! A deposed leader that does not know it: answers that were held up on their way make it believe that a quorum follows
//! it, while the others have a new leader and a new value. It must not answer any read with the old value.
//!
//! The judges of histories check what clients saw.

use crate::histories;
use kattu_node::contract::{Consistency, Event, Outcome, PeerMessage, ReplyBody, Ticket};
use kattu_raft::{Duration, Message, NodeId};
use kattu_replicas::{ET, World, get, put};
use kattu_verify::convert;
use kattu_verify::history::{Operation, Record, What};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Both leaders, and the answers that the former one has not received yet.
struct Deposed {
    world: World,
    former: u64,
    present: u64,
    held: VecDeque<PeerMessage>,
    /// Whether the former leader is cut off.
    cut: Rc<Cell<bool>>,
    history: Vec<Record>,
}

/// The former leader gets a read while it is cut off. In storms its own check of the quorum nearly always comes before
/// the others have a leader.
pub fn a_read(seed: u64) {
    let mut scenario = Deposed::play(seed);
    let read = scenario.ask(3, scenario.former, None);
    scenario.told(3, scenario.former, read);
    scenario.judge();
}

/// An answer to a heartbeat sent before the read arrives after it.
pub fn an_answer_from_before_the_read(seed: u64) {
    let mut scenario = Deposed::play(seed);
    let read = scenario.ask(3, scenario.former, None);
    let late = scenario.held.pop_front().expect("more were held up than it takes to elect a leader");
    scenario.let_through(late);
    scenario.told(3, scenario.former, read);
    scenario.judge();
}

/// The first message of the present leader to the former one is an append, while a read waits.
pub fn the_next_leader_is_heard_of(seed: u64) {
    let mut scenario = Deposed::play(seed);
    let read = scenario.ask(3, scenario.former, None);
    let former = scenario.former;
    let append = loop {
        scenario.tick();
        let is_it = |message: &PeerMessage| super::is_append_to(message, former);
        match scenario.world.network.iter().position(is_it) {
            Some(place) => break scenario.world.network.remove(place).expect("it is there"),
            None => scenario.world.deliver(),
        }
    };
    scenario.let_through(append);
    scenario.told(3, former, read);
    scenario.judge();
}

impl Deposed {
    fn play(seed: u64) -> Deposed {
        let mut world = super::begin(3, seed);
        let former = world.elect();
        let cut = Rc::new(Cell::new(false));
        let is_cut = cut.clone();
        let there = NodeId(former);
        world.loses =
            Box::new(move |message| is_cut.get() && (message.from() == there || message.to() == there));
        let mut scenario =
            Deposed { world, former, present: 0, held: VecDeque::new(), cut, history: Vec::new() };
        scenario.world.pass(ET / 2);
        // What was heard last was heard a moment ago.
        scenario.write(1, former, "old");
        scenario.hold_answers_up();
        scenario.cut.set(true);
        scenario.elect();
        scenario.write(2, scenario.present, "new");
        scenario
    }

    /// Time moves on a little; members whose deadline has come get a tick.
    fn tick(&mut self) {
        self.world.now += Duration::from_millis(10);
        for id in 1..=3 {
            if self.world.member(id).node.deadline() <= self.world.now {
                self.world.give(id, Event::Tick);
            }
        }
    }

    /// Heartbeats of the leader arrive; the answers are held up.
    fn hold_answers_up(&mut self) {
        let former = self.former;
        while self.held.len() < 10 {
            self.tick();
            while let Some(message) = self.world.network.pop_front() {
                if is_answer_to(&message, former) {
                    self.held.push_back(message);
                } else {
                    self.world.deliver_one(message);
                }
            }
        }
    }

    /// The others elect; now and then an answer reaches the former leader, so that it stays.
    fn elect(&mut self) {
        let leads = |world: &World, id: u64| {
            let raft = world.member(id).node.raft();
            raft.is_leader() && raft.term_at(raft.committed()) == Some(raft.term())
        };
        for _ in 0..9 {
            self.world.pass(ET / 4);
            let late = self.held.pop_front().expect("ten were held up");
            self.let_through(late);
            let others = (1..=3).filter(|id| *id != self.former);
            if let Some(present) = others.into_iter().find(|id| leads(&self.world, *id)) {
                self.present = present;
                break;
            }
        }
        assert!(self.present > 0, "scene_is_played: nobody was elected");
        assert!(leads(&self.world, self.former), "scene_is_played: n{} knows already", self.former);
    }

    /// One message reaches its member although that is cut off.
    fn let_through(&mut self, message: PeerMessage) {
        self.cut.set(false);
        self.world.deliver_one(message);
        self.cut.set(true);
    }

    fn write(&mut self, client: u32, member: u64, value: &str) {
        let ticket = self.ask(client, member, Some(value));
        self.world.deliver();
        self.world.pass(ET / 20);
        self.told(client, member, ticket);
        assert!(matches!(self.history.last().map(|record| &record.what), Some(What::Done { .. })));
    }

    /// A put of the value, or a read.
    fn ask(&mut self, client: u32, member: u64, value: Option<&str>) -> Ticket {
        let (operation, request) = match value {
            Some(value) => {
                (Operation::Put { key: "a".to_string(), value: value.to_string() }, put("a", value))
            }
            None => {
                let operation = Operation::Range {
                    key: "a".to_string(),
                    end: String::new(),
                    revision: 0,
                    limit: 0,
                    count_only: false,
                    serializable: false,
                };
                (operation, get("a", Consistency::Linearizable))
            }
        };
        self.record(client, What::Invoke { member, operation, level: None });
        self.world.ask(member, request)
    }

    /// The answer that the client has by now; without one the outcome is unknown.
    fn told(&mut self, client: u32, member: u64, ticket: Ticket) {
        let what = match self.world.outcome(member, ticket) {
            Some(Outcome::Done(reply)) => match &reply.body {
                ReplyBody::Kv(response) => What::Done {
                    revision: Some(response.revision.0),
                    answer: Ok(convert::from_answer(&response.answer)),
                },
                other => panic!("scene_is_played: {other:?}"),
            },
            Some(Outcome::Refused(why)) => What::Refused { reason: format!("{why:?}") },
            Some(Outcome::Unknown(why)) => What::Unknown { reason: format!("{why:?}") },
            Some(Outcome::Received(_)) => unreachable!("nobody asks for weak answers here"),
            None => What::Unknown { reason: "nothing was heard".to_string() },
        };
        self.record(client, what);
    }

    fn record(&mut self, client: u32, what: What) {
        let at = self.history.len() as u64 + 1;
        self.history.push(Record { at, client, id: u64::from(client), what });
    }

    fn judge(&self) {
        let rejecting = histories::rejecting(&self.history);
        let last = self.history.last().map(|record| &record.what);
        assert!(
            rejecting.is_empty(),
            "{}: n{} is deposed by n{}, and a read of it is told {last:?}",
            rejecting.join(", "),
            self.former,
            self.present
        );
    }
}

fn is_answer_to(message: &PeerMessage, member: u64) -> bool {
    match message {
        PeerMessage::Raft(envelope) => {
            envelope.to.0 == member && matches!(envelope.message, Message::AppendReply(_))
        }
        PeerMessage::Forward(_) | PeerMessage::ForwardReply(_) => false,
    }
}
