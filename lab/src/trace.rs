//! Trace: five requests of two clients on their way through three whole nodes, with the time of each step.
//!
//! ```text
//!   client ─ 1 ms ─▶ leader ─┬─ 3 ms ──▶ near follower ─ 3 ms ──▶ leader ─ 1 ms ─▶ client
//!     E1 E5                  └─ 12 ms ─▶ far follower  ─ 12 ms ─▶
//!     E2 E3 E4                    E1 takes 8 ms longer where there are several links
//! ```
//! The nodes are those that members run; clocks and links are numbers, and disks take no time. So a trace is the same each time,
//! and shows what follows from the way of replication alone. A client sends its next request half a millisecond after it may
//! go on.
//! Rule: time is that of the agenda. No node needs a tick: a trace is over before a heartbeat is due.
//! Knows nothing of: how a trace is drawn, what it shows.

use crate::bench_cluster::Measurement;
use kattu_kv::sessions::SessionId;
use kattu_node::contract::{PeerMessage, Ticket};
use kattu_raft::policy::Capacity;
use kattu_raft::{Duration, Instant, LogIndex, Message, NodeId};
use kattu_replicas::weak::{answer_weakly, bring_in_step, leveled, open_session, strong_put, weak_put};
use kattu_replicas::{World, is_done};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Requests of a trace.
pub const REQUESTS: usize = 5;
/// The requests of each client, in the order in which it sends them.
pub const CLIENTS: [&[usize]; 2] = [&[0, 4], &[1, 2, 3]];
/// The second client begins so much later than the first.
const APART: u64 = 500;
/// From the moment at which a client may go on until it sends again.
const PAUSE: u64 = 500;
/// One way between client and leader.
const TO_LEADER: u64 = 1_000;
/// One way between the leader and the near follower.
const NEAR: u64 = 3_000;
/// One way between the leader and the far follower.
const FAR: u64 = 12_000;
/// What E1 takes longer on several links: its sender was slow to be scheduled, or its link lost a packet.
const LATE: u64 = 8_000;
/// More than the requests of a trace.
const BUDGET: Capacity = Capacity { entries: 100, bytes: 1 << 20 };

/// How entries reach followers, and when a client goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Raft on one stream, on which entries arrive as they were sent.
    OneStream,
    /// Raft on several links: what comes early waits in front of the replica.
    Waits,
    /// NB-Raft on several links: what comes early is kept in a window, and a client goes on when a quorum has its entry.
    Window,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::OneStream, Way::Waits, Way::Window];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::OneStream => "Raft, one ordered stream",
            Way::Waits => "Raft, several links: an early entry waits",
            Way::Window => "NB-Raft, several links: an early entry is kept",
        }
    }
}

/// A step of a request, in the order of the published text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Its client sends it.
    Sent,
    /// The leader has it as an entry of its log, and sends that.
    Indexed,
    /// It has come to the near follower.
    Arrived,
    /// The near follower has appended it.
    Appended,
    /// The leader tells its client that a quorum has received it.
    Received,
    /// It is committed at the leader, and done.
    Committed,
    /// Its client knows that a quorum has received it.
    HeardReceived,
    /// Its client knows that it is done.
    Heard,
}

impl Step {
    /// All of them.
    pub const ALL: [Step; 8] = [
        Step::Sent,
        Step::Indexed,
        Step::Arrived,
        Step::Appended,
        Step::Received,
        Step::Committed,
        Step::HeardReceived,
        Step::Heard,
    ];

    fn name(self) -> &'static str {
        match self {
            Step::Sent => "sent",
            Step::Indexed => "indexed",
            Step::Arrived => "arrived",
            Step::Appended => "appended",
            Step::Received => "received",
            Step::Committed => "committed",
            Step::HeardReceived => "heard received",
            Step::Heard => "heard",
        }
    }

    /// Its counter in a sample.
    #[must_use]
    pub fn counter(self, request: usize) -> String {
        format!("E{} {}", request + 1, self.name())
    }
}

/// Something that happens.
enum Happens {
    Sends(usize),
    Reaches(usize),
    /// These requests have come to the near follower.
    Arrives(Vec<usize>),
    Handled(PeerMessage),
    Hears(usize, Step),
}

/// One trace.
struct Trace {
    way: Way,
    world: World,
    begun: Instant,
    leader: u64,
    near: u64,
    sessions: Vec<SessionId>,
    agenda: BinaryHeap<Reverse<(u64, usize)>>,
    happens: Vec<Option<Happens>>,
    tickets: [Option<Ticket>; REQUESTS],
    /// The request of each entry.
    entries: BTreeMap<LogIndex, usize>,
    steps: BTreeMap<(usize, Step), u64>,
    /// When each follower has read all that was sent to it so far.
    last: BTreeMap<NodeId, u64>,
}

/// Times of all steps of all requests, in microseconds since the first was sent.
#[must_use]
pub fn trace(way: Way) -> BTreeMap<(usize, Step), u64> {
    let (mut world, leader) = leveled();
    if way == Way::Window {
        answer_weakly(&mut world, leader, BUDGET);
    }
    let sessions: Vec<SessionId> = CLIENTS.map(|_| open_session(&mut world, leader)).into();
    // The first command of each session, which is not shown: from then on the leader knows how far the session is.
    for &id in &sessions {
        match way {
            Way::Window => bring_in_step(&mut world, leader, id),
            Way::OneStream | Way::Waits => {
                world.ask(leader, strong_put(id, 1));
                world.deliver();
            }
        }
    }
    let (begun, near) = (world.now, world.follower());
    let mut trace = Trace {
        way,
        world,
        begun,
        leader,
        near,
        sessions,
        agenda: BinaryHeap::new(),
        happens: Vec::new(),
        tickets: [None; REQUESTS],
        entries: BTreeMap::new(),
        steps: BTreeMap::new(),
        last: BTreeMap::new(),
    };
    for (client, requests) in CLIENTS.into_iter().enumerate() {
        trace.at(APART * client as u64, Happens::Sends(requests[0]));
    }
    while let Some(Reverse((now, place))) = trace.agenda.pop() {
        let happens = trace.happens[place].take();
        trace.go(now, happens.expect("each happens once"));
    }
    trace.steps
}

/// The client of a request, and its place among that client's requests.
fn client_of(request: usize) -> (usize, usize) {
    let found = CLIENTS
        .iter()
        .enumerate()
        .find_map(|(client, requests)| Some((client, requests.iter().position(|&its| its == request)?)));
    found.expect("each request has a client")
}

impl Trace {
    fn at(&mut self, time: u64, happens: Happens) {
        self.agenda.push(Reverse((time, self.happens.len())));
        self.happens.push(Some(happens));
    }

    fn reach(&mut self, request: usize, step: Step, now: u64) -> bool {
        let is_new = !self.steps.contains_key(&(request, step));
        self.steps.entry((request, step)).or_insert(now);
        is_new
    }

    fn go(&mut self, now: u64, happens: Happens) {
        self.world.now = self.begun + Duration::from_micros(now);
        match happens {
            Happens::Sends(request) => {
                self.reach(request, Step::Sent, now);
                self.at(now + TO_LEADER, Happens::Reaches(request));
            }
            Happens::Reaches(request) => self.ask(request, now),
            Happens::Arrives(requests) => {
                for request in requests {
                    self.reach(request, Step::Arrived, now);
                }
            }
            Happens::Handled(message) => {
                self.world.deliver_one(message);
                self.look(now);
            }
            Happens::Hears(request, step) => self.hears(request, step, now),
        }
    }

    fn ask(&mut self, request: usize, now: u64) {
        let (client, place) = client_of(request);
        let (id, number) = (self.sessions[client], place as u64 + 2);
        let put = if self.way == Way::Window { weak_put(id, number) } else { strong_put(id, number) };
        let ticket = self.world.ask(self.leader, put);
        self.tickets[request] = Some(ticket);
        let entry = self.world.member(self.leader).node.entry_of(ticket);
        self.entries.insert(entry.expect("a leader appends at once").index, request);
        self.reach(request, Step::Indexed, now);
        self.look(now);
    }

    /// The requests whose entries a message carries.
    fn carried(&self, message: &PeerMessage) -> Vec<usize> {
        let PeerMessage::Raft(envelope) = message else { return Vec::new() };
        let Message::Append(append) = &envelope.message else { return Vec::new() };
        append.entries.iter().filter_map(|entry| self.entries.get(&entry.id().index).copied()).collect()
    }

    /// One way of a message.
    fn delay(&self, message: &PeerMessage) -> u64 {
        let is_near = [message.to(), message.from()].contains(&NodeId(self.near));
        let is_late = self.way != Way::OneStream && self.carried(message).contains(&0);
        let way = if is_near { NEAR } else { FAR };
        if is_late { way + LATE } else { way }
    }

    /// What a step of a node has led to: messages, and answers to clients.
    fn look(&mut self, now: u64) {
        let messages: Vec<PeerMessage> = self.world.network.drain(..).collect();
        for message in messages {
            let (carried, to) = (self.carried(&message), message.to());
            let mut due = now + self.delay(&message);
            if to == NodeId(self.near) && !carried.is_empty() {
                self.at(due, Happens::Arrives(carried.clone()));
            }
            // What comes early waits in front of the replica for what was sent before it.
            if self.way == Way::Waits && !carried.is_empty() {
                let last = self.last.entry(to).or_default();
                due = due.max(*last);
                *last = due;
            }
            self.at(due, Happens::Handled(message));
        }
        let committed = self.world.member(self.leader).node.raft().committed();
        let stored = self.world.member(self.near).node.raft().last_id().index;
        for (index, request) in self.entries.clone() {
            if index <= stored {
                self.reach(request, Step::Appended, now);
            }
            let Some(ticket) = self.tickets[request] else { continue };
            if self.world.received(self.leader, ticket).is_some() && self.reach(request, Step::Received, now)
            {
                self.at(now + TO_LEADER, Happens::Hears(request, Step::HeardReceived));
            }
            let is_done = index <= committed && is_done(self.world.outcome(self.leader, ticket));
            if is_done && self.reach(request, Step::Committed, now) {
                self.at(now + TO_LEADER, Happens::Hears(request, Step::Heard));
            }
        }
    }

    fn hears(&mut self, request: usize, step: Step, now: u64) {
        let goes_on = !self.steps.contains_key(&(request, Step::HeardReceived));
        self.reach(request, step, now);
        let (client, place) = client_of(request);
        if goes_on && let Some(&next) = CLIENTS[client].get(place + 1) {
            self.at(now + PAUSE, Happens::Sends(next));
        }
    }
}

/// A trace as a measurement: its steps are counters, in microseconds.
///
/// # Errors
/// A request that was not done.
pub fn measure(way: Way) -> Result<Measurement, String> {
    let steps = trace(way);
    let heard = |request| steps.get(&(request, Step::Heard)).copied();
    let done: Option<Vec<u64>> = (0..REQUESTS).map(heard).collect();
    let done = done.ok_or_else(|| format!("{way:?}: a request was not done: {steps:?}"))?;
    let latency = |(request, heard): (usize, &u64)| json!([heard - steps[&(request, Step::Sent)], 1]);
    let latencies: Vec<_> = done.iter().enumerate().map(latency).collect();
    let span = done.iter().max().copied().unwrap_or_default();
    let counters = steps.iter().map(|(&(request, step), &at)| (step.counter(request), at as f64));
    Ok(Measurement {
        answer: json!({
            "ops": REQUESTS, "seconds": span as f64 / 1e6, "errors": 0, "latencies_us": latencies,
        }),
        told: String::new(),
        members_cpu_us: Vec::new(),
        client_cpu_us: 0.0,
        leader: 0,
        is_steady: true,
        others: None,
        counters: counters.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_request_overtakes_the_first_where_there_are_several_links() {
        let of = |way| {
            let steps = trace(way);
            move |request, step| steps.get(&(request, step)).copied()
        };
        let (one, waits, window) = (of(Way::OneStream), of(Way::Waits), of(Way::Window));
        for at in [&one as &dyn Fn(usize, Step) -> Option<u64>, &waits, &window] {
            for request in 0..REQUESTS {
                let in_order =
                    [Step::Sent, Step::Indexed, Step::Arrived, Step::Appended, Step::Committed, Step::Heard];
                let times: Vec<_> =
                    in_order.iter().map(|&step| at(request, step).expect("reached")).collect();
                assert!(times.is_sorted(), "E{}: {times:?}", request + 1);
            }
        }
        assert!(one(0, Step::Arrived) < one(1, Step::Arrived));
        for at in [&waits as &dyn Fn(usize, Step) -> Option<u64>, &window] {
            assert!(at(1, Step::Arrived) < at(0, Step::Arrived), "E2 comes first");
            assert_eq!(at(1, Step::Appended), at(0, Step::Appended), "and is appended with E1");
        }
        // The published timelines: E3 goes after the commit of E2, or as soon as a quorum has received E2.
        assert!(waits(1, Step::Heard) < waits(2, Step::Sent));
        assert_eq!(waits(1, Step::Received), None);
        assert!(window(1, Step::HeardReceived) < window(2, Step::Sent));
        assert!(window(2, Step::Sent) < window(1, Step::Committed));
        assert!(window(3, Step::Heard) < waits(3, Step::Heard));
    }
}
