//! Network: executes what members decide about their connections. [shell/member `peer_table`, `handshake`, `dialler`, `lanes`]
//!
//! Each member has a peer table, each lane a dialler, and each connection a caller at its other end, all of them production's.
//! What is done by tasks and sockets in the runtime is done here by events. [fault-model NT1–NT6]
//! Knows nothing of: what happens on the way (`paths`), how members meet (`meeting`), frames (`frames`), members' insides.

use crate::inject::Kind;
use crate::paths::{Around, BULK, KINDS, LANES, Paths, SILENCE_MAX, SNAPSHOT};
use crate::peers::Peers;
use crate::plan::Plan;
use crate::world::Event;
use kattu_member::dialler::{Dialler, Failure, Next};
use kattu_member::handshake::Caller;
use kattu_member::join::Vouching;
use kattu_member::lanes;
use kattu_member::pauses;
use kattu_member::peer_table::PeerTable;
use kattu_node::contract::Members;
use kattu_raft::{Duration, LinkEnd, NodeId};
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
    /// Of a lane on demand: an attempt to open it is planned or under way.
    dialling: bool,
    /// Of a lane on demand: no attempt to open it before this.
    not_before: u64,
}

/// All links.
pub(crate) struct Net {
    pub(crate) paths: Paths,
    pub(crate) peers: Vec<Peers>,
    pub(crate) links: Vec<[Link; 3]>,
    frame: u64,
    retry_max: Duration,
    /// Longest frame accepted.
    pub(crate) frame_bytes_max: usize,
    pub(crate) writer: FrameWriter,
    pub(crate) codec: Codec,
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
        let retry_max = pauses::pause_max(settings.election_timeout);
        let link = |peer| Link {
            dialler: Dialler::new(id_of(peer), retry_max),
            caller: None,
            dialling: false,
            not_before: 0,
        };
        Net {
            paths: Paths::new(seed, members, pace, plan.kinds.has(Kind::Replay)),
            peers: (0..members).map(|_| Peers::default()).collect(),
            links: (0..members * members).map(|at| LANES.map(|_| link(at % members))).collect(),
            frame: pace.frame,
            retry_max,
            frame_bytes_max: lanes::frame_bytes_max(&settings.limits, settings.request_bytes_max),
            writer: FrameWriter::default(),
            codec: Codec::new(crc32c::crc32c_append),
            challenges: 0,
            heard: 0,
            broken: None,
        }
    }

    fn link(&mut self, from: usize, to: usize, lane: usize) -> &mut Link {
        let at = from * self.peers.len() + to;
        &mut self.links[at][lane]
    }

    /// The caller on an open lane.
    pub(crate) fn caller(
        &mut self,
        from: usize,
        to: usize,
        lane: usize,
    ) -> Option<(&mut Caller, &mut PeerTable)> {
        let at = from * self.peers.len() + to;
        self.links[at][lane].caller.as_mut().map(|caller| (caller, &mut self.peers[to].table))
    }

    // ── Members ──

    /// Whether a member keeps connections to another one.
    pub(crate) fn links(&self, from: usize, to: usize) -> bool {
        self.peers[from].table.is_linked(id_of(to))
    }

    /// The applied table of members has changed.
    pub(crate) fn table(&mut self, around: &mut Around<'_>, member: usize, members: &Members) {
        self.peers[member].table.follow(members.clone());
        self.carry_out(around, member);
    }

    /// A member's process has ended. If its machine vanished with it, no other member is told.
    pub(crate) fn ended(&mut self, around: &mut Around<'_>, member: usize, silently: bool) {
        (self.peers[member].run, self.peers[member].silent) = (0, silently);
        for peer in (0..self.peers.len()).filter(|&peer| peer != member) {
            for lane in LANES {
                self.paths.leave_wire(around, member, peer, lane);
                let outgoing = self.paths.lane_mut(member, peer, lane);
                let was_up = outgoing.is_up;
                outgoing.close();
                let link = self.link(member, peer, lane);
                (link.dialling, link.not_before) = (false, 0);
                let connection = self.paths.lane(peer, member, lane).connection;
                if silently {
                    let silence = Event::Silence { from: peer, to: member, lane, connection };
                    around.queue.plan(around.now + SILENCE_MAX, silence);
                    continue;
                }
                let tell_at = around.now + self.frame;
                let end = LinkEnd::ByPeer; // as the kernel of a process that died says it
                if was_up && lanes::end_is_told(KINDS[lane], end) {
                    let told = Event::LinkClosed { member: peer, peer: member, end, was_heard: lane == BULK };
                    around.queue.plan(tell_at, told);
                }
                around.queue.plan(tell_at, Event::Hangup { from: peer, to: member, lane, connection });
            }
        }
    }

    // ── Connections ──

    /// The sender of a lane notices that its connection is gone.
    pub(crate) fn hangup(
        &mut self,
        around: &mut Around<'_>,
        (from, to, lane): (usize, usize, usize),
        connection: u32,
    ) {
        let state = self.paths.lane(from, to, lane);
        if state.is_up && state.connection == connection {
            self.close(around, from, to, lane, LinkEnd::ByPeer, true);
        }
    }

    /// So much time has passed since something was held back: the connection is given up if nothing got through since.
    pub(crate) fn silence(
        &mut self,
        around: &mut Around<'_>,
        (from, to, lane): (usize, usize, usize),
        connection: u32,
    ) {
        let is_silent = self.peers[to].silent;
        let state = self.paths.lane_mut(from, to, lane);
        if !state.is_up || state.connection != connection {
            return;
        }
        if state.is_stuck(around.now, SILENCE_MAX) || is_silent {
            self.close(around, from, to, lane, LinkEnd::Otherwise, true);
        } else if lane == SNAPSHOT && state.is_idle() {
            if state.take_used() {
                around.queue.plan(around.now + SILENCE_MAX, Event::Silence { from, to, lane, connection });
            } else {
                self.close(around, from, to, lane, LinkEnd::Otherwise, false); // nothing needs it
            }
        }
    }

    /// Ends one connection: both ends are told in which way, where that says something; the sender dials again.
    pub(crate) fn close(
        &mut self,
        around: &mut Around<'_>,
        from: usize,
        to: usize,
        lane: usize,
        end: LinkEnd,
        redial: bool,
    ) {
        self.paths.leave_wire(around, from, to, lane);
        let state = self.paths.lane_mut(from, to, lane);
        if !state.is_up {
            return;
        }
        let life = Duration::from_nanos(around.now - state.opened_at);
        state.close();
        around.trace.mix(7);
        if lanes::end_is_told(KINDS[lane], end) {
            around
                .queue
                .plan(around.now, Event::LinkClosed { member: from, peer: to, end, was_heard: false });
            let told = Event::LinkClosed { member: to, peer: from, end, was_heard: lane == BULK };
            around.queue.plan(around.now + self.frame, told);
        }
        self.link(from, to, lane).dialler.ended(life);
        if redial && self.peers[from].run != 0 && lane != SNAPSHOT && self.links(from, to) {
            let pause = self.link(from, to, lane).dialler.pause();
            self.plan_dial(around, from, to, lane, pause);
        }
    }

    // ── Dialling ──

    /// A pause, spread over time.
    fn jittered(&mut self, pause: Duration) -> u64 {
        let pause = pause.as_nanos() as u64;
        pause / 2 + self.paths.dice.below(pause / 2 + 1)
    }

    fn plan_dial(&mut self, around: &mut Around<'_>, from: usize, to: usize, lane: usize, pause: Duration) {
        let at = around.now + self.jittered(pause);
        let connection = self.paths.lane(from, to, lane).connection;
        around.queue.plan(at, Event::Dial { from, to, lane, connection });
    }

    /// The first attempt to reach a member.
    pub(crate) fn dial_first(&mut self, around: &mut Around<'_>, member: usize, peer: usize) {
        for lane in LANES {
            let mut dialler = Dialler::new(id_of(peer), self.retry_max);
            if lane != SNAPSHOT && !self.paths.lane(member, peer, lane).is_up {
                let pause = dialler.pause();
                self.plan_dial(around, member, peer, lane, pause);
            }
            self.link(member, peer, lane).dialler = dialler;
        }
    }

    /// Opens the lane for snapshots, for the message that waits for it.
    pub(crate) fn want(&mut self, around: &mut Around<'_>, from: usize, to: usize) {
        let lane = SNAPSHOT;
        let connection = self.paths.lane(from, to, lane).connection;
        let link = self.link(from, to, lane);
        if !std::mem::replace(&mut link.dialling, true) {
            let dial_at = link.not_before.max(around.now);
            around.queue.plan(dial_at, Event::Dial { from, to, lane, connection });
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
        link.dialling = false;
        link.caller = Some(caller);
        around.trace.mix(11);
        let waiting = self.paths.lane_mut(from, to, lane).open(around.now);
        if lane == SNAPSHOT {
            let connection = self.paths.lane(from, to, lane).connection;
            around.queue.plan(around.now + SILENCE_MAX, Event::Silence { from, to, lane, connection });
            for frame in waiting {
                self.paths.send_out(around, from, to, lane, frame);
            }
        }
    }

    fn failed(&mut self, around: &mut Around<'_>, (from, to, lane): (usize, usize, usize), failure: Failure) {
        let was_removed = failure == Failure::Removed;
        let at = from * self.peers.len() + to;
        let (next, _) = self.links[at][lane].dialler.failed(failure, &mut self.peers[from].table);
        if was_removed {
            let told = Event::Removed { member: from, run: self.peers[from].run };
            around.queue.plan(around.now + 2 * self.frame, told);
            return;
        }
        let Next::Pause(pause) = next else { return };
        if lane != SNAPSHOT {
            return self.plan_dial(around, from, to, lane, pause);
        }
        // What waited for it is lost, and the next attempt takes its time.
        self.paths.lane_mut(from, to, lane).forget();
        let not_before = around.now + self.jittered(pause);
        let link = self.link(from, to, lane);
        (link.dialling, link.not_before) = (false, not_before);
    }

    /// The storm is over: every path is clear.
    pub(crate) fn calm(&mut self, around: &mut Around<'_>) {
        self.paths.clear(around);
        // The pause between two questions about strangers may be long; the calm does not wait for that.
        self.peers
            .iter_mut()
            .for_each(|peers| (peers.vouching, peers.ask_again_at) = (Vouching::default(), 0));
        // Nor for the next reset, at which a connection is noticed that is silent on one side.
        for to in (0..self.peers.len()).filter(|&to| self.peers[to].silent).collect::<Vec<_>>() {
            for from in 0..self.peers.len() {
                for lane in LANES {
                    self.close(around, from, to, lane, LinkEnd::Otherwise, true);
                }
            }
        }
    }
}
