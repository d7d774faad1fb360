//! Paths: what lies between members, and everything that can go wrong on it.
//!
//! A link is one-way and has three lanes, or more; a lane is one connection. A frame that leaves is lost, damaged, held up or overtaken
//! as the storm says; a cut holds frames back or swallows them, a clog lets them through slowly, a wire has a rate that the
//! lanes of a link share. Frames of long ago are kept, to arrive again. [fault-model NT1–NT6, F30–F37]
//! Knows nothing of: members, which of them are connected, what frames mean.

use crate::clock::SEC;
use crate::dice::Dice;
use crate::faults::{Fault, Tally};
use crate::plan::{LANE_BYTES_MAX, MUSEUM_MAX, Pace};
use crate::queue::Queue;
use crate::trace::Trace;
use crate::world::Event;
use kattu_member::lanes;
use kattu_node::contract::PeerMessage;
use kattu_raft::{Message, SharedBytes, Term};
use kattu_wire::{Lane as LaneKind, Order};
use std::collections::VecDeque;

/// What the system's buffers take before a lane counts as having something unsent.
const SOCKET_BYTES: u64 = 16 << 10;
/// What Linux lets the buffers of one connection grow to by itself, about (`net.ipv4.tcp_wmem`, its third number, halved
/// for its bookkeeping).
const WIRE_SOCKET_BYTES: u64 = 2 << 20;

/// Which lane of a link.
pub(crate) const BULK: usize = 0;
/// See [`BULK`].
pub(crate) const CONTROL: usize = 1;
/// See [`BULK`]. Opened on demand.
pub(crate) const SNAPSHOT: usize = 2;

/// The first of the further streams for appends.
pub(crate) const STREAM: usize = 3;
/// Most connections for appends to one peer in the simulator, the bulk lane included.
pub(crate) const STREAMS_HERE: u8 = 4;

/// All lanes of a link.
pub(crate) const LANES: [usize; 6] = [BULK, CONTROL, SNAPSHOT, STREAM, STREAM + 1, STREAM + 2];

/// What they are.
pub(crate) const KINDS: [LaneKind; LANES.len()] = [
    LaneKind::Bulk,
    LaneKind::Control,
    LaneKind::Snapshot,
    LaneKind::Stream(1),
    LaneKind::Stream(2),
    LaneKind::Stream(3),
];

/// See [`lanes::SILENCE_MAX`].
pub(crate) const SILENCE_MAX: u64 = lanes::SILENCE_MAX.as_secs() * SEC;

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct Flying {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) lane: usize,
    /// The connection it travels on.
    pub(crate) connection: u32,
    pub(crate) bytes: SharedBytes,
    /// The place that the frame before it names, on the same connection.
    pub(crate) order: Option<Order>,
    /// What was done to it on its way.
    pub(crate) harm: Harm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    None,
    /// A bit of it flipped.
    Flipped,
    /// Only its beginning arrives, and then the connection's end.
    CutOff,
}

/// One connection, or the place of one.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) is_up: bool,
    /// Changes with every opening and closing.
    pub(crate) connection: u32,
    /// Frames on connections before this one arrive nowhere.
    void_before: u32,
    pub(crate) opened_at: u64,
    /// While clogged: when the next frame can leave.
    free_at: u64,
    last_arrival: u64,
    /// Frames sent into a cut or a clog, waiting to leave.
    held: VecDeque<Outgoing>,
    held_bytes: u64,
    held_since: u64,
    /// Frames sent on it so far.
    pub(crate) sent: u64,
    /// On a link with a wire: what waits for it, the frame that is leaving first.
    queue: VecDeque<Outgoing>,
    queue_bytes: u64,
    /// What the wire still has to take of the first one, in bytes times [`SEC`].
    first_left: u64,
    /// When it was last pushed to, and how much at that very moment: so much a driver has not flushed yet.
    pushed: (u64, u64),
}

/// A frame that is to leave.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) bytes: SharedBytes,
    /// Bytes of entries and of snapshots' pieces in it.
    pub(crate) load: u64,
    /// Its place among what is sent on several streams.
    pub(crate) order: Option<Order>,
}

/// What a link can carry, for all its lanes together. What is on several lanes at once shares it by equal parts, as
/// connections on one wire do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    /// Bytes per second.
    pub(crate) rate: u64,
    /// What the system's buffers of one connection take before a lane counts as having something unsent.
    pub(crate) socket_bytes: u64,
    /// What one lane may hold back; one message always passes.
    pub(crate) lane_bytes_max: u64,
    /// Up to when its work is counted.
    counted: u64,
    /// Only the newest plan counts.
    plan: u32,
}

impl Wire {
    /// A wire of `rate` bytes per second between buffers as large as in production.
    pub(crate) fn new(rate: u64) -> Wire {
        Wire {
            rate,
            socket_bytes: WIRE_SOCKET_BYTES,
            lane_bytes_max: lanes::BYTES_MAX as u64,
            counted: 0,
            plan: 0,
        }
    }
}

/// What a direction does to frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    /// Cuts in force, by the fault that made them.
    pub(crate) split: u16,
    pub(crate) partial: u16,
    pub(crate) one_way: u16,
    /// Cuts of a member that lags: counted apart, because a member that joins meanwhile is let off what it was never given.
    pub(crate) lag: u16,
    /// Bytes per second of the bulk and the snapshot lane, each, while clogged.
    pub(crate) clog: Option<u64>,
    pub(crate) corrupt_next: u16,
    pub(crate) cut_off_next: u16,
    /// What it can carry, if that is limited.
    wire: Option<Wire>,
    /// Bytes of entries and pieces of snapshots that have crossed it.
    pub(crate) carried: u64,
    museum: VecDeque<Old>,
}

/// Whether a frame asks for a vote. [docs/formats/frame.md]
fn asks_for_vote(frame: &[u8]) -> bool {
    const VOTE: u8 = 20;
    frame.get(5) == Some(&VOTE)
}

#[derive(Clone, Debug)]
struct Old {
    bytes: SharedBytes,
    /// The sender's and the receiver's runs then.
    runs: (u32, u32),
    term: Term,
}

impl Path {
    fn cut_by(&self) -> Option<Fault> {
        match self {
            Path { split, .. } if *split > 0 => Some(Fault::F30),
            Path { partial, .. } if *partial > 0 => Some(Fault::F31),
            Path { one_way, lag, .. } if *one_way > 0 || *lag > 0 => Some(Fault::F32),
            _ => None,
        }
    }
}

/// Weather that is everywhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) loss: u32,
    pub(crate) repeat: u32,
    pub(crate) overtake: u32,
    pub(crate) late: u64,
}

/// What the network needs of the world.
pub(crate) struct Around<'a> {
    pub(crate) now: u64,
    pub(crate) queue: &'a mut Queue<Event>,
    pub(crate) tally: &'a mut Tally,
    pub(crate) trace: &'a mut Trace,
}

/// All paths, and what is on them.
pub(crate) struct Paths {
    members: usize,
    lanes: Vec<[Lane; LANES.len()]>,
    paths: Vec<Path>,
    pace: Pace,
    keeps_old: bool,
    pub(crate) weather: Weather,
    pub(crate) dice: Dice,
}

impl Paths {
    pub(crate) fn new(seed: u64, members: usize, pace: &Pace, keeps_old: bool) -> Paths {
        Paths {
            members,
            lanes: (0..members * members).map(|_| LANES.map(|_| Lane::default())).collect(),
            paths: vec![Path::default(); members * members],
            pace: pace.clone(),
            keeps_old,
            weather: Weather::default(),
            dice: Dice::new(seed, "network"),
        }
    }

    fn at(&self, from: usize, to: usize) -> usize {
        from * self.members + to
    }

    pub(crate) fn path(&mut self, from: usize, to: usize) -> &mut Path {
        let at = self.at(from, to);
        &mut self.paths[at]
    }

    pub(crate) fn lane(&self, from: usize, to: usize, lane: usize) -> &Lane {
        &self.lanes[self.at(from, to)][lane]
    }

    pub(crate) fn lane_mut(&mut self, from: usize, to: usize, lane: usize) -> &mut Lane {
        let at = self.at(from, to);
        &mut self.lanes[at][lane]
    }

    /// Bytes that a lane holds back, of those that may be.
    pub(crate) fn unsent(&self, from: usize, to: usize, lane: usize, now: u64) -> (u64, u64) {
        let (path, lane) = (&self.paths[self.at(from, to)], self.lane(from, to, lane));
        match &path.wire {
            Some(wire) => (lane.unsent_of(wire, now), wire.lane_bytes_max),
            None => (lane.unsent(path.clog.is_some()), LANE_BYTES_MAX),
        }
    }

    /// Keeps some frames, to arrive again much later. `runs` are those of the sender and the receiver.
    pub(crate) fn keep(&mut self, from: usize, to: usize, bytes: &SharedBytes, runs: (u32, u32), term: Term) {
        if !self.keeps_old || !self.dice.one_in(8) {
            return;
        }
        let old = Old { bytes: bytes.clone(), runs, term };
        let at = self.at(from, to);
        let museum = &mut self.paths[at].museum;
        if museum.len() < MUSEUM_MAX {
            museum.push_back(old);
        } else {
            let place = self.dice.below(MUSEUM_MAX as u64) as usize;
            museum[place] = old;
        }
    }

    /// A frame that was kept: of an older term than the receiver's, or of a run that has ended.
    pub(crate) fn old(
        &mut self,
        from: usize,
        to: usize,
        term: Term,
        runs: (u32, u32),
    ) -> Option<SharedBytes> {
        let museum = &self.paths[self.at(from, to)].museum;
        let old: Vec<&Old> = museum.iter().filter(|old| old.term < term || old.runs != runs).collect();
        if old.is_empty() {
            return None;
        }
        Some(old[self.dice.below(old.len() as u64) as usize].bytes.clone())
    }

    /// Of what a member whose process has ended had sent, only its requests for votes arrive any more, or are repeated.
    pub(crate) fn forget_sent(&mut self, from: usize) {
        for to in 0..self.members {
            let at = self.at(from, to);
            self.paths[at].museum.retain(|old| asks_for_vote(&old.bytes));
            for lane in &mut self.lanes[at] {
                lane.void_before = lane.connection;
            }
        }
    }

    /// A frame arrives, if nothing has cut it off; whether the connection that it was on is gone.
    pub(crate) fn arrive(&self, around: &mut Around<'_>, flying: &Flying) -> Option<bool> {
        if let Some(fault) = self.paths[self.at(flying.from, flying.to)].cut_by() {
            // It was on its way when the cut came.
            around.tally.add(fault);
            return None;
        }
        let lane = self.lane(flying.from, flying.to, flying.lane);
        if flying.connection < lane.void_before && !asks_for_vote(&flying.bytes) {
            return None;
        }
        let is_late = lane.connection != flying.connection || !lane.is_up;
        (!is_late || !self.pace.ordered).then_some(is_late)
    }

    /// Whether others wait for a frame that was lost, on a connection that lives.
    pub(crate) fn is_missed(&self, flying: &Flying) -> bool {
        let lane = self.lane(flying.from, flying.to, flying.lane);
        flying.order.is_some() && lane.is_up && lane.connection == flying.connection
    }

    pub(crate) fn send_out(
        &mut self,
        around: &mut Around<'_>,
        from: usize,
        to: usize,
        kind: usize,
        frame: Outgoing,
    ) {
        let at = self.at(from, to);
        let now = around.now;
        let path = &mut self.paths[at];
        let lane = &mut self.lanes[at][kind];
        lane.sent += 1;
        if let Some(fault) = path.cut_by() {
            around.tally.add(fault);
            if self.pace.holds {
                if lane.held.is_empty() {
                    lane.held_since = now;
                    let connection = lane.connection;
                    around.queue.plan(now + SILENCE_MAX, Event::Silence { from, to, lane: kind, connection });
                }
                lane.held_bytes += frame.bytes.len() as u64;
                lane.held.push_back(frame);
            }
            return;
        }
        // Behind what a clog holds back, so that one connection keeps its order.
        if path.wire.is_some() && lane.held.is_empty() {
            return self.put_on_wire(around, from, to, kind, frame);
        }
        if let Some(rate) = path.clog
            && kind != CONTROL
        {
            if now < lane.free_at || !lane.held.is_empty() {
                if lane.held.is_empty() {
                    lane.held_since = now;
                    let connection = lane.connection;
                    around.queue.plan(lane.free_at, Event::Drain { from, to, lane: kind, connection });
                }
                lane.held_bytes += frame.bytes.len() as u64;
                lane.held.push_back(frame);
                return;
            }
            lane.free_at = now + frame.bytes.len() as u64 * SEC / rate.max(1);
        }
        self.transmit(around, from, to, kind, frame);
    }

    // ── Wires ──

    /// Limits what a direction carries, from now on; without a limit what still waits for the wire leaves at once.
    pub(crate) fn set_wire(&mut self, around: &mut Around<'_>, from: usize, to: usize, wire: Option<Wire>) {
        self.count_wire(from, to, around.now);
        let at = self.at(from, to);
        let plan = self.paths[at].wire.map_or(0, |wire| wire.plan);
        self.paths[at].wire = wire.map(|wire| Wire { counted: around.now, plan, ..wire });
        if wire.is_some() {
            return self.plan_wire(around, from, to);
        }
        for kind in LANES {
            let lane = &mut self.lanes[at][kind];
            lane.queue_bytes = 0;
            for frame in std::mem::take(&mut lane.queue) {
                self.transmit(around, from, to, kind, frame);
            }
        }
    }

    fn put_on_wire(&mut self, around: &mut Around<'_>, from: usize, to: usize, kind: usize, frame: Outgoing) {
        self.count_wire(from, to, around.now);
        let at = self.at(from, to);
        let lane = &mut self.lanes[at][kind];
        let len = frame.bytes.len() as u64;
        let pushed = if lane.pushed.0 == around.now { lane.pushed.1 } else { 0 };
        lane.pushed = (around.now, pushed + len);
        lane.queue_bytes += len;
        lane.queue.push_back(frame);
        if lane.queue.len() > 1 {
            around.tally.add(Fault::F54);
        } else {
            lane.first_left = len * SEC;
            self.plan_wire(around, from, to);
        }
    }

    /// What the wire has done since this was last asked.
    fn count_wire(&mut self, from: usize, to: usize, now: u64) {
        let at = self.at(from, to);
        let Some(wire) = &mut self.paths[at].wire else { return };
        let elapsed = now - std::mem::replace(&mut wire.counted, now);
        let busy = self.lanes[at].iter().filter(|lane| !lane.queue.is_empty()).count() as u64;
        if busy == 0 {
            return;
        }
        let share = elapsed.saturating_mul(wire.rate) / busy;
        for lane in self.lanes[at].iter_mut().filter(|lane| !lane.queue.is_empty()) {
            lane.first_left = lane.first_left.saturating_sub(share);
        }
    }

    /// Plans when the next frame has left.
    fn plan_wire(&mut self, around: &mut Around<'_>, from: usize, to: usize) {
        let at = self.at(from, to);
        let Some(wire) = &mut self.paths[at].wire else { return };
        wire.plan += 1;
        let busy = self.lanes[at].iter().filter(|lane| !lane.queue.is_empty());
        let lefts: Vec<u64> = busy.map(|lane| lane.first_left).collect();
        let Some(least) = lefts.iter().min() else { return };
        let takes = least.saturating_mul(lefts.len() as u64).div_ceil(wire.rate.max(1));
        around.queue.plan(around.now + takes, Event::Wire { from, to, plan: wire.plan });
    }

    /// A frame has left the wire, if this is the newest plan for it.
    pub(crate) fn on_wire(&mut self, around: &mut Around<'_>, from: usize, to: usize, plan: u32) {
        let at = self.at(from, to);
        if self.paths[at].wire.is_none_or(|wire| wire.plan != plan) {
            return;
        }
        self.count_wire(from, to, around.now);
        for kind in LANES {
            let lane = &mut self.lanes[at][kind];
            if lane.first_left > 0 {
                continue;
            }
            let Some(frame) = lane.queue.pop_front() else { continue };
            lane.queue_bytes -= frame.bytes.len() as u64;
            lane.first_left = lane.queue.front().map_or(0, |next| next.bytes.len() as u64 * SEC);
            // What had not left the machine yet when the cut began goes no further than what is sent into it.
            match self.paths[at].cut_by() {
                Some(_) => self.send_out(around, from, to, kind, frame),
                None => self.transmit(around, from, to, kind, frame),
            }
        }
        self.plan_wire(around, from, to);
    }

    /// A connection ends: what had left of the frame under way is counted, and the other lanes have the wire to themselves.
    pub(crate) fn leave_wire(&mut self, around: &mut Around<'_>, from: usize, to: usize, kind: usize) {
        let at = self.at(from, to);
        if self.paths[at].wire.is_none() || self.lanes[at][kind].queue.is_empty() {
            return;
        }
        self.count_wire(from, to, around.now);
        let lane = &mut self.lanes[at][kind];
        if let Some(frame) = lane.queue.front() {
            let len = frame.bytes.len() as u64;
            self.paths[at].carried += frame.load * (len - lane.first_left / SEC) / len.max(1);
        }
        lane.queue.clear();
        lane.queue_bytes = 0;
        self.plan_wire(around, from, to);
    }

    /// Whether a member's bulk lane to another one is open.
    pub(crate) fn is_up(&self, from: usize, to: usize) -> bool {
        self.lanes[self.at(from, to)][BULK].is_up
    }

    /// Bytes that the lanes of a direction hold back: those of entries and answers, and that of snapshots.
    pub(crate) fn waiting(&self, from: usize, to: usize) -> (u64, u64) {
        let lanes = &self.lanes[self.at(from, to)];
        let bytes = |lane: usize| lanes[lane].queue_bytes + lanes[lane].held_bytes;
        let streams: u64 = LANES[STREAM..].iter().map(|&lane| bytes(lane)).sum();
        (bytes(BULK) + bytes(CONTROL) + streams, bytes(SNAPSHOT))
    }

    /// The next frame of a clogged lane leaves.
    pub(crate) fn drain(
        &mut self,
        around: &mut Around<'_>,
        (from, to, kind): (usize, usize, usize),
        connection: u32,
    ) {
        let at = self.at(from, to);
        let (path, lane) = (&self.paths[at], &mut self.lanes[at][kind]);
        let Some(rate) = path.clog else { return };
        if lane.connection != connection || path.cut_by().is_some() {
            return;
        }
        let Some(frame) = lane.held.pop_front() else { return };
        let len = frame.bytes.len() as u64;
        lane.held_bytes -= len;
        lane.held_since = around.now;
        lane.free_at = around.now + len * SEC / rate.max(1);
        if !lane.held.is_empty() {
            around.queue.plan(lane.free_at, Event::Drain { from, to, lane: kind, connection });
        }
        match path.wire {
            Some(_) => self.put_on_wire(around, from, to, kind, frame),
            None => self.transmit(around, from, to, kind, frame),
        }
    }

    /// A frame is on its way, whatever happens to it there.
    fn transmit(&mut self, around: &mut Around<'_>, from: usize, to: usize, kind: usize, frame: Outgoing) {
        let at = self.at(from, to);
        let Outgoing { bytes, load, order } = frame;
        let path = &mut self.paths[at];
        path.carried += load;
        let lane = &mut self.lanes[at][kind];
        let len = bytes.len() as u64;
        let mut harm = Harm::None;
        let mut bytes = bytes;
        if path.corrupt_next > 0 {
            path.corrupt_next -= 1;
            harm = Harm::Flipped;
            let mut flipped = bytes.to_vec();
            let bit = self.dice.below(flipped.len() as u64 * 8);
            flipped[(bit / 8) as usize] ^= 1 << (bit % 8);
            bytes = SharedBytes::from(flipped);
        } else if path.cut_off_next > 0 {
            path.cut_off_next -= 1;
            harm = Harm::CutOff;
            bytes = bytes.slice(0..self.dice.below(len) as usize);
        }
        let Weather { loss, repeat, overtake, late } = self.weather;
        if self.dice.chance(loss) {
            around.tally.add(Fault::F33);
            around.trace.mix(5);
            return;
        }
        let jitter = self.dice.below(self.pace.frame_jitter + 1);
        let mut arrival = around.now + self.pace.frame + jitter;
        if late > 0 && self.dice.one_in(4) {
            around.tally.add(Fault::F33);
            arrival += self.dice.below(late);
        }
        if self.pace.ordered && !self.dice.chance(overtake) {
            arrival = arrival.max(lane.last_arrival);
            lane.last_arrival = arrival;
        } else if arrival < lane.last_arrival {
            around.tally.add(Fault::F33);
        } else {
            lane.last_arrival = arrival;
        }
        let connection = lane.connection;
        if self.dice.chance(repeat) {
            around.tally.add(Fault::F33);
            let again = arrival + self.dice.below(self.pace.frame * 4 + late + 1);
            let flying = Flying { from, to, lane: kind, connection, bytes: bytes.clone(), order, harm };
            around.queue.plan(again, Event::Frame(Box::new(flying)));
        }
        let flying = Flying { from, to, lane: kind, connection, bytes, order, harm };
        around.queue.plan(arrival, Event::Frame(Box::new(flying)));
    }

    /// Whether nothing gets from one member to another, or nothing back.
    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        [self.at(from, to), self.at(to, from)].into_iter().any(|at| self.paths[at].cut_by().is_some())
    }

    /// Something has changed about cuts: what was held goes on its way where it can.
    pub(crate) fn let_go(&mut self, around: &mut Around<'_>) {
        for from in 0..self.members {
            for to in 0..self.members {
                let at = self.at(from, to);
                if self.paths[at].cut_by().is_some() {
                    continue;
                }
                for lane in LANES {
                    let state = &mut self.lanes[at][lane];
                    if state.held.is_empty() || !state.is_up {
                        continue;
                    }
                    if lane != CONTROL && self.paths[at].clog.is_some() {
                        let connection = state.connection;
                        around.queue.plan(around.now, Event::Drain { from, to, lane, connection });
                        continue;
                    }
                    state.held_bytes = 0;
                    for frame in std::mem::take(&mut state.held) {
                        match self.paths[at].wire {
                            Some(_) => self.put_on_wire(around, from, to, lane, frame),
                            None => self.transmit(around, from, to, lane, frame),
                        }
                    }
                }
            }
        }
    }

    /// Every path is clear from now on.
    pub(crate) fn clear(&mut self, around: &mut Around<'_>) {
        self.weather = Weather::default();
        for from in 0..self.members {
            for to in 0..self.members {
                self.set_wire(around, from, to, None);
            }
        }
        for path in &mut self.paths {
            let carried = path.carried;
            let museum = std::mem::take(&mut path.museum);
            *path = Path { museum, carried, ..Path::default() };
        }
        self.let_go(around);
    }
}

impl Lane {
    /// Bytes that the system has not taken: of a clogged lane its buffers are full already.
    fn unsent(&self, is_clogged: bool) -> u64 {
        if is_clogged { self.held_bytes } else { self.held_bytes.saturating_sub(SOCKET_BYTES) }
    }

    /// The same on a wire. What was pushed at this very moment counts whole: a driver looks before it flushes.
    fn unsent_of(&self, wire: &Wire, now: u64) -> u64 {
        let just_pushed = if self.pushed.0 == now { self.pushed.1 } else { 0 };
        self.queue_bytes.saturating_sub(wire.socket_bytes).max(just_pushed.min(self.queue_bytes))
            + self.held_bytes
    }

    /// Opens a new connection here; what waited for it is to leave now.
    pub(crate) fn open(&mut self, now: u64) -> VecDeque<Outgoing> {
        self.is_up = true;
        self.connection += 1;
        self.opened_at = now;
        self.last_arrival = now;
        self.free_at = now;
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }

    /// Lets a frame wait until a connection is open.
    pub(crate) fn wait(&mut self, frame: Outgoing) {
        self.held_bytes += frame.bytes.len() as u64;
        self.held.push_back(frame);
    }

    /// What waited for a connection is lost.
    pub(crate) fn forget(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
    }

    /// Whether nothing waits here.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether something has been held back for so long.
    pub(crate) fn is_stuck(&self, now: u64, silence_max: u64) -> bool {
        !self.held.is_empty() && self.held_since + silence_max <= now
    }

    pub(crate) fn close(&mut self) {
        self.is_up = false;
        self.connection += 1;
        self.held.clear();
        self.held_bytes = 0;
    }
}

/// Bytes of entries and of snapshots' pieces in a message: what a link is there for.
pub(crate) fn load_of(message: &PeerMessage) -> u64 {
    let PeerMessage::Raft(envelope) = message else { return 0 };
    match &envelope.message {
        Message::Append(append) => append.entries.iter().map(|entry| entry.len() as u64).sum(),
        Message::SnapshotChunk(chunk) => chunk.bytes.len() as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use std::sync::Arc;

    #[test]
    fn what_waits_for_a_wire_when_a_cut_begins_does_not_cross_it() {
        let pace = Plan::calm(1, 1).pace;
        assert!(pace.holds, "TCP repeats it behind the cut");
        let mut paths = Paths::new(1, 2, &pace, false);
        let (mut queue, mut tally, mut trace) =
            (Queue::default(), Tally::default(), Trace::new(Arc::default()));
        let mut around = Around { now: 0, queue: &mut queue, tally: &mut tally, trace: &mut trace };
        let way = paths.at(0, 1);
        paths.lanes[way][BULK].is_up = true;
        paths.set_wire(&mut around, 0, 1, Some(Wire::new(1000)));
        for _ in 0..2 {
            let frame = Outgoing { bytes: SharedBytes::from(vec![0; 1000]), load: 1, order: None };
            paths.send_out(&mut around, 0, 1, BULK, frame);
        }
        let leaves = |paths: &mut Paths, around: &mut Around<'_>| {
            let plan = paths.paths[way].wire.map_or(0, |wire| wire.plan);
            paths.on_wire(around, 0, 1, plan);
        };
        around.now = SEC;
        leaves(&mut paths, &mut around);
        assert_eq!(paths.path(0, 1).carried, 1, "the first has left");
        paths.path(0, 1).split = 1;
        around.now = 2 * SEC;
        leaves(&mut paths, &mut around);
        assert_eq!((paths.path(0, 1).carried, paths.lanes[way][BULK].held.len()), (1, 1));
        paths.path(0, 1).split = 0;
        paths.let_go(&mut around);
        around.now = 3 * SEC;
        leaves(&mut paths, &mut around);
        assert_eq!((paths.path(0, 1).carried, paths.lanes[way][BULK].held.len()), (2, 0));
        assert_eq!(tally.count(Fault::F30), 1);
    }
}
