//! Network: executes what members decide about their connections. [shell/member `peer_table`, `handshake`, `dialler`, `lanes`]
//!
//! Each member has a peer table, each lane a dialler, and each connection a caller at its other end, all of them production's.
//! What is done by tasks and sockets in the runtime is done here by events. [fault-model NT1–NT6]
//! Knows nothing of: what happens on the way (`paths`), which members are dialled (`peers`), how members meet (`meeting`), how the
//! end of a connection is learnt (`hangups`), frames (`frames`), members' insides.

use crate::dice::Dice;
use crate::inject::Kind;
use crate::intruders;
use crate::paths::{Around, BULK, KINDS, LANES, Paths, SILENCE_MAX, SNAPSHOT};
use crate::peers::Peers;
use crate::plan::{Plan, may_lose};
use crate::streams::Streamed;
use crate::world::Event;
use kattu_member::dialler::{Dialler, Failure, Next};
use kattu_member::handshake::Caller;
use kattu_member::lane_on_demand::Usage;
use kattu_member::lanes;
use kattu_member::peer_table::PeerTable;
use kattu_node::contract::Members;
use kattu_raft::{Duration, Instant, LinkEnd, NodeId};
use kattu_wire::{Codec, FrameWriter};

/// The cluster's id, in every handshake.
pub(crate) const CLUSTER: u64 = 0xC1;

pub(crate) fn id_of(member: usize) -> NodeId {
    NodeId(member as u64 + 1)
}

/// What the network asks of the members' processes.
pub(crate) struct Others<'a> {
    /// Whether a member's process is there to answer.
    pub(crate) answers: &'a dyn Fn(usize) -> bool,
    /// The members, if a quorum confirms them to this one now.
    pub(crate) confirmed: &'a dyn Fn(usize) -> Result<Members, String>,
}

/// One lane of one link, at both ends.
#[derive(Debug)]
pub(crate) struct Link {
    dialler: Dialler,
    /// The newest caller that was let in.
    pub(crate) caller: Option<Caller>,
    /// Of a lane on demand, while it is open.
    pub(crate) usage: Usage,
}

pub(crate) struct Net {
    pub(crate) paths: Paths,
    pub(crate) peers: Vec<Peers>,
    pub(crate) links: Vec<[Link; LANES.len()]>,
    pub(crate) streamed: Streamed,
    pub(crate) frame: u64,
    /// Longest frame accepted.
    pub(crate) frame_bytes_max: usize,
    pub(crate) writer: FrameWriter,
    pub(crate) codec: Codec,
    /// Where connections are reset, an attempt sometimes leads to another member: a name stands for another one's address.
    pub(crate) strays: Option<Dice>,
    /// Callers and answers that do not belong.
    pub(crate) intruders: Option<Dice>,
    /// Members that are reached in TLS ask callers for a certificate.
    pub(crate) certificates: bool,
    /// Challenges drawn so far.
    pub(crate) challenges: u64,
    /// Messages decoded.
    pub(crate) heard: u64,
    /// A rule of members that know each other is broken: the rule, and how; to be taken by the world.
    pub(crate) broken: Option<(&'static str, String)>,
}

impl Net {
    pub(crate) fn new(seed: u64, members: usize, plan: &Plan) -> Net {
        let Plan { settings, pace, .. } = plan;
        let link = |peer, lane: usize| Link {
            dialler: Dialler::new(id_of(peer), KINDS[lane]),
            caller: None,
            usage: Usage::default(),
        };
        Net {
            paths: Paths::new(seed, members, pace, plan.kinds.has(Kind::Replay)),
            peers: (0..members).map(|_| Peers::default()).collect(),
            links: (0..members * members).map(|at| LANES.map(|lane| link(at % members, lane))).collect(),
            streamed: Streamed::new(settings.streams, members, may_lose(&plan.kinds, pace)),
            frame: pace.frame,
            frame_bytes_max: lanes::frame_bytes_max(&settings.limits, settings.request_bytes_max),
            writer: FrameWriter::default(),
            codec: Codec::new(crc32c::crc32c_append),
            strays: plan.kinds.has(Kind::Reset).then(|| Dice::new(seed, "strays")),
            intruders: plan.kinds.has(Kind::Reset).then(|| intruders::of_storm(seed)),
            certificates: Dice::new(seed, "certificates").one_in(3),
            challenges: 0,
            heard: 0,
            broken: None,
        }
    }

    pub(crate) fn at(&self, from: usize, to: usize) -> usize {
        from * self.peers.len() + to
    }

    pub(crate) fn link(&mut self, from: usize, to: usize, lane: usize) -> &mut Link {
        let at = self.at(from, to);
        &mut self.links[at][lane]
    }

    /// The caller on an open lane.
    pub(crate) fn caller(
        &mut self,
        from: usize,
        to: usize,
        lane: usize,
    ) -> Option<(&mut Caller, &mut PeerTable)> {
        let at = self.at(from, to);
        self.links[at][lane].caller.as_mut().map(|caller| (caller, &mut self.peers[to].table))
    }

    /// Ends one connection: both ends are told in which way, where that says something; the sender dials again.
    pub(crate) fn close(
        &mut self,
        around: &mut Around<'_>,
        from: usize,
        to: usize,
        lane: usize,
        end: LinkEnd,
    ) {
        self.paths.leave_wire(around, from, to, lane);
        let state = self.paths.lane_mut(from, to, lane);
        if !state.is_up {
            return;
        }
        let life = Duration::from_nanos(around.now - state.opened_at);
        state.close();
        self.stream_ended(around, from, to, lane);
        around.trace.mix(7);
        if lanes::end_is_told(KINDS[lane], end) {
            around
                .queue
                .plan(around.now, Event::LinkClosed { member: from, peer: to, end, was_heard: false });
            let told = Event::LinkClosed { member: to, peer: from, end, was_heard: lane == BULK };
            around.queue.plan(around.now + self.frame, told);
        }
        let (now, at, pause_max) = (Instant(around.now), self.at(from, to), self.peers[from].pause_max);
        let dialler = &mut self.links[at][lane].dialler;
        let next = dialler.ended(now, life, pause_max, |pause| self.paths.dice.jittered(pause));
        self.go_on(around, (from, to, lane), next);
    }

    /// Plans the next attempt, if the lane waits for nothing.
    fn go_on(&mut self, around: &mut Around<'_>, (from, to, lane): (usize, usize, usize), next: Next) {
        if let Next::Dial(at) = next {
            let connection = self.paths.lane(from, to, lane).connection;
            around.queue.plan(at.0, Event::Dial { from, to, lane, connection });
        }
    }

    /// The first attempt to reach a member.
    pub(crate) fn dial_first(&mut self, around: &mut Around<'_>, member: usize, peer: usize) {
        let (now, pause_max) = (Instant(around.now), self.peers[member].pause_max);
        for &lane in self.lanes() {
            let mut dialler = Dialler::new(id_of(peer), KINDS[lane]);
            let next = dialler.first(now);
            if next != Next::Wait && !self.paths.lane(member, peer, lane).is_up {
                // Members that start at one moment do not dial at that moment.
                let next = dialler.rest(now, pause_max, |pause| self.paths.dice.jittered(pause));
                self.go_on(around, (member, peer, lane), next);
            }
            self.link(member, peer, lane).dialler = dialler;
        }
    }

    /// Opens the lane for snapshots, for the message that waits for it.
    pub(crate) fn want(&mut self, around: &mut Around<'_>, from: usize, to: usize) {
        if let Some(at) = self.link(from, to, SNAPSHOT).dialler.wanted(Instant(around.now)) {
            self.go_on(around, (from, to, SNAPSHOT), Next::Dial(at));
        }
    }

    /// Tries to open a lane.
    pub(crate) fn dial(
        &mut self,
        around: &mut Around<'_>,
        (from, to, lane): (usize, usize, usize),
        connection: u32,
        others: &Others<'_>,
    ) {
        let state = self.paths.lane(from, to, lane);
        let is_void = state.is_up || state.connection != connection;
        if self.peers[from].run == 0 || is_void || !self.links(from, to) {
            return;
        }
        match self.meet(around, (from, to, lane), others) {
            Ok((caller, brings)) => {
                let is_first = self.peers[to].met >> from & 1 == 0;
                self.peers[to].met |= 1 << from;
                let handshake =
                    Event::Handshake { member: to, run: self.peers[to].run, by: from, is_first, brings };
                around.queue.plan(around.now + self.frame, handshake);
                self.open(around, (from, to, lane), caller);
            }
            Err(failure) => self.failed(around, (from, to, lane), failure),
        }
    }

    fn open(&mut self, around: &mut Around<'_>, (from, to, lane): (usize, usize, usize), caller: Caller) {
        let link = self.link(from, to, lane);
        link.dialler.opened();
        link.caller = Some(caller);
        around.trace.mix(11);
        let waiting = self.paths.lane_mut(from, to, lane).open(around.now);
        if lane == SNAPSHOT {
            let connection = self.paths.lane(from, to, lane).connection;
            around.queue.plan(around.now + SILENCE_MAX, Event::Silence { from, to, lane, connection });
            for frame in waiting {
                self.paths.send_out(around, from, to, lane, frame);
            }
            let sent = self.paths.lane(from, to, lane).sent;
            self.link(from, to, lane).usage = Usage::since(sent);
        }
    }

    fn failed(&mut self, around: &mut Around<'_>, (from, to, lane): (usize, usize, usize), failure: Failure) {
        let (now, at) = (Instant(around.now), self.at(from, to));
        let Peers { table, pause_max, run, .. } = &mut self.peers[from];
        let spread = |pause| self.paths.dice.jittered(pause);
        let (next, _) = self.links[at][lane].dialler.failed(now, failure, table, *pause_max, spread);
        if table.is_removed() {
            let told = Event::Removed { member: from, run: *run };
            around.queue.plan(around.now + 2 * self.frame, told);
        }
        if next == Next::Wait {
            self.paths.lane_mut(from, to, lane).forget(); // what waited for it is lost
        }
        self.go_on(around, (from, to, lane), next);
    }
}
