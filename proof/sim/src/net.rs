//! Network: one-way links of three lanes between members, and everything that can go wrong on them.
//!
//! A lane is one connection, as in `shell/runtime`: votes, heartbeats and read rounds ride on the bulk lane while nothing
//! waits on it, and take their own lane otherwise; a lane that is down drops, and gives forwarded writes back. Pieces of
//! snapshots have a lane that is opened when there is one to send, and closed when none has been sent for a while. Each
//! message is a real frame: encoded where it is sent, damaged on its way if the storm says so, checked and decoded where it
//! arrives. A frame that is damaged costs the connection, never more. [fault-model NT1–NT6, F30–F37]
//! Knows nothing of: what messages mean, members' insides.

use crate::clock::SEC;
use crate::dice::Dice;
use crate::faults::{Fault, Tally};
use crate::plan::Pace;
use crate::queue::Queue;
use crate::trace::Trace;
use crate::world::Event;
use kattu_member::lanes;
use kattu_member::pauses::Pauses;
use kattu_node::contract::{Forward, Members, PeerMessage};
use kattu_raft::{Duration, GroupId, Incarnation, LinkEnd, Message, NodeId, SharedBytes, Term};
use kattu_wire::{Codec, Frame, FrameWriter, Hello, Lane as LaneKind, PROTOCOL_MAX, PROTOCOL_MIN};
use std::collections::VecDeque;

/// Bytes a lane may hold back; one message always passes. Smaller than in production, so that it is reached.
const LANE_BYTES_MAX: u64 = 1 << 20;
/// What the system's buffers take before a lane counts as having something unsent.
const SOCKET_BYTES: u64 = 16 << 10;
/// What Linux lets the buffers of one connection grow to by itself, about (`net.ipv4.tcp_wmem`, its third number, halved
/// for its bookkeeping).
const WIRE_SOCKET_BYTES: u64 = 2 << 20;
/// Largest frame believed.
const FRAME_BYTES_MAX: usize = 32 << 20;
/// Frames kept of each direction, to arrive again much later.
const MUSEUM_MAX: usize = 8;

/// Which lane of a link.
pub(crate) const BULK: usize = 0;
/// See [`BULK`].
pub(crate) const CONTROL: usize = 1;
/// See [`BULK`]. Opened on demand.
pub(crate) const SNAPSHOT: usize = 2;

/// All lanes of a link.
pub(crate) const LANES: [usize; 3] = [BULK, CONTROL, SNAPSHOT];

/// What they are.
const KINDS: [LaneKind; 3] = [LaneKind::Bulk, LaneKind::Control, LaneKind::Snapshot];

/// See [`lanes::SILENCE_MAX`].
const SILENCE_MAX: u64 = lanes::SILENCE_MAX.as_secs() * SEC;

fn lane_number(kind: LaneKind) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap_or(BULK)
}

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct Flying {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) lane: usize,
    /// The connection it travels on.
    pub(crate) connection: u32,
    pub(crate) bytes: SharedBytes,
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

/// What a member hears.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A message.
    Message(PeerMessage),
    /// The connection is given up.
    Broken,
    /// Nothing.
    Nothing,
    /// A damaged frame was taken for a good one.
    Fooled(String),
}

#[derive(Debug)]
struct Lane {
    up: bool,
    /// Changes with every opening and closing.
    connection: u32,
    pauses: Pauses,
    opened_at: u64,
    /// While clogged: when the next frame can leave.
    free_at: u64,
    last_arrival: u64,
    /// Frames sent into a cut or a clog, waiting to leave.
    held: VecDeque<Outgoing>,
    held_bytes: u64,
    held_since: u64,
    /// Of a lane on demand: an attempt to open it is planned or under way.
    dialling: bool,
    /// No attempt to open it before this.
    not_before: u64,
    /// Something was sent on it since this was last looked at.
    used: bool,
    /// On a link with a wire: what waits for it, the frame that is leaving first.
    queue: VecDeque<Outgoing>,
    queue_bytes: u64,
    /// What the wire still has to take of the first one, in bytes times [`SEC`].
    first_left: u64,
    /// When it was last pushed to, and how much at that very moment: so much a driver has not flushed yet.
    pushed: (u64, u64),
}

impl Lane {
    fn new(retry_max: u64) -> Lane {
        Lane {
            up: false,
            connection: 0,
            pauses: Pauses::new(Duration::from_nanos(retry_max)),
            opened_at: 0,
            free_at: 0,
            last_arrival: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            held_since: 0,
            dialling: false,
            not_before: 0,
            used: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            first_left: 0,
            pushed: (0, 0),
        }
    }
}

/// A frame that is to leave.
#[derive(Clone, Debug)]
struct Outgoing {
    bytes: SharedBytes,
    /// Bytes of entries and of snapshots' pieces in it.
    load: u64,
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

/// All links.
pub(crate) struct Net {
    members: usize,
    lanes: Vec<[Lane; 3]>,
    paths: Vec<Path>,
    /// Current run of each member's process; 0 while it is down.
    runs: Vec<u32>,
    incarnations: Vec<Incarnation>,
    /// Whom each member links, and who was removed as far as it knows: a bit per member.
    knows: Vec<u32>,
    removed: Vec<u32>,
    /// Who has greeted each member in its run.
    heard_of: Vec<u32>,
    /// Whose machine vanished without a word, so that nobody was told.
    silent: Vec<bool>,
    pace: Pace,
    retry_max: u64,
    keeps_old: bool,
    pub(crate) weather: Weather,
    dice: Dice,
    writer: FrameWriter,
    codec: Codec,
    /// Messages decoded.
    pub(crate) heard: u64,
}

/// The cluster's id, in every greeting.
pub(crate) const CLUSTER: u64 = 0xC1;

pub(crate) fn id_of(member: usize) -> NodeId {
    NodeId(member as u64 + 1)
}

impl Net {
    pub(crate) fn new(seed: u64, members: usize, pace: &Pace, retry_max: u64, keeps_old: bool) -> Net {
        Net {
            members,
            lanes: (0..members * members).map(|_| LANES.map(|_| Lane::new(retry_max))).collect(),
            paths: vec![Path::default(); members * members],
            runs: vec![0; members],
            incarnations: vec![Incarnation(0); members],
            knows: vec![0; members],
            removed: vec![0; members],
            heard_of: vec![0; members],
            silent: vec![false; members],
            pace: pace.clone(),
            retry_max,
            keeps_old,
            weather: Weather::default(),
            dice: Dice::new(seed, "network"),
            writer: FrameWriter::default(),
            codec: Codec::new(crc32c::crc32c_append),
            heard: 0,
        }
    }

    fn at(&self, from: usize, to: usize) -> usize {
        from * self.members + to
    }

    pub(crate) fn path(&mut self, from: usize, to: usize) -> &mut Path {
        let at = self.at(from, to);
        &mut self.paths[at]
    }

    /// Sends one message; gives back a forward that could not leave. [shell/runtime `Links::send`]
    pub(crate) fn send(
        &mut self,
        around: &mut Around<'_>,
        from: usize,
        message: PeerMessage,
    ) -> Option<Forward> {
        let to = (message.to().0 - 1) as usize;
        let at = self.at(from, to);
        let is_answerable =
            !matches!(message, PeerMessage::Forward(_)) || self.lanes[self.at(to, from)][BULK].up;
        let link = &mut self.lanes[at];
        let is_clogged = self.paths[at].clog.is_some();
        let wire = self.paths[at].wire;
        let now = around.now;
        let unsent = |lane: &Lane| match &wire {
            Some(wire) => lane.unsent_of(wire, now),
            None => lane.unsent(is_clogged),
        };
        let lane_bytes_max = wire.map_or(LANE_BYTES_MAX, |wire| wire.lane_bytes_max);
        let kind = lane_number(lanes::lane_of(&message, || unsent(&link[BULK]) > 0, link[CONTROL].up));
        if kind == CONTROL && is_clogged {
            around.tally.add(Fault::F37);
        }
        let lane = &mut link[kind];
        // One message waits until a lane on demand is open.
        let may_wait = kind == SNAPSHOT && lane.held.is_empty();
        if !is_answerable || !(lane.up || may_wait) || unsent(lane) > lane_bytes_max {
            around.trace.mix(3);
            return match message {
                PeerMessage::Forward(forward) => Some(forward),
                _ => None,
            };
        }
        self.writer.clear();
        self.codec.encode_message(&message, &mut self.writer);
        let mut bytes = Vec::with_capacity(self.writer.len());
        self.writer.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        let load = load_of(&message);
        let bytes = SharedBytes::from(bytes);
        if self.keeps_old && self.dice.one_in(8) {
            let term = match &message {
                PeerMessage::Raft(envelope) => envelope.term,
                PeerMessage::Forward(forward) => forward.term,
                PeerMessage::ForwardReply(reply) => reply.term,
            };
            let old = Old { bytes: bytes.clone(), runs: (self.runs[from], self.runs[to]), term };
            let museum = &mut self.paths[at].museum;
            if museum.len() < MUSEUM_MAX {
                museum.push_back(old);
            } else {
                let place = self.dice.below(MUSEUM_MAX as u64) as usize;
                museum[place] = old;
            }
        }
        if kind == SNAPSHOT && !self.lanes[at][kind].up {
            let lane = &mut self.lanes[at][kind];
            lane.held_bytes += bytes.len() as u64;
            lane.held.push_back(Outgoing { bytes, load });
            self.want(around, from, to);
            return None;
        }
        self.send_out(around, from, to, kind, Outgoing { bytes, load });
        None
    }

    /// Opens the lane for snapshots, for the message that waits for it.
    fn want(&mut self, around: &mut Around<'_>, from: usize, to: usize) {
        let at = self.at(from, to);
        let lane = &mut self.lanes[at][SNAPSHOT];
        if !lane.up && !lane.dialling {
            lane.dialling = true;
            let connection = lane.connection;
            let dial_at = lane.not_before.max(around.now);
            around.queue.plan(dial_at, Event::Dial { from, to, lane: SNAPSHOT, connection });
        }
    }

    fn send_out(&mut self, around: &mut Around<'_>, from: usize, to: usize, kind: usize, frame: Outgoing) {
        let at = self.at(from, to);
        let now = around.now;
        let path = &mut self.paths[at];
        let lane = &mut self.lanes[at][kind];
        lane.used = true;
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
    fn leave_wire(&mut self, around: &mut Around<'_>, from: usize, to: usize, kind: usize) {
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
        self.lanes[self.at(from, to)][BULK].up
    }

    /// Bytes that the lanes of a direction hold back: those of entries and answers, and that of snapshots.
    pub(crate) fn waiting(&self, from: usize, to: usize) -> (u64, u64) {
        let lanes = &self.lanes[self.at(from, to)];
        let bytes = |lane: usize| lanes[lane].queue_bytes + lanes[lane].held_bytes;
        (bytes(BULK) + bytes(CONTROL), bytes(SNAPSHOT))
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
        let Outgoing { bytes, load } = frame;
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
            let flying = Flying { from, to, lane: kind, connection, bytes: bytes.clone(), harm };
            around.queue.plan(again, Event::Frame(Box::new(flying)));
        }
        let flying = Flying { from, to, lane: kind, connection, bytes, harm };
        around.queue.plan(arrival, Event::Frame(Box::new(flying)));
    }

    /// A frame arrives at a living member: what it hears. [shell/runtime `Hearing`]
    pub(crate) fn receive(&mut self, around: &mut Around<'_>, flying: &Flying) -> Heard {
        let at = self.at(flying.from, flying.to);
        if let Some(fault) = self.paths[at].cut_by() {
            // It was on its way when the cut came.
            around.tally.add(fault);
            return Heard::Nothing;
        }
        let lane = &self.lanes[at][flying.lane];
        let is_late = lane.connection != flying.connection || !lane.up;
        if is_late && self.pace.ordered {
            return Heard::Nothing; // the connection it was on is gone
        }
        let broken = |heard: Heard| if is_late { Heard::Nothing } else { heard };
        match flying.harm {
            Harm::None => match self.decode(&flying.bytes, flying.from, flying.to) {
                Ok(Some(message)) => Heard::Message(message),
                Ok(None) => Heard::Nothing,
                Err(reason) => Heard::Fooled(format!("a good frame was refused: {reason}")),
            },
            Harm::Flipped => match self.decode(&flying.bytes, flying.from, flying.to) {
                Err(_) => {
                    around.tally.add(Fault::F35);
                    broken(Heard::Broken)
                }
                Ok(message) => Heard::Fooled(format!("a frame with a flipped bit was taken for {message:?}")),
            },
            Harm::CutOff => {
                around.tally.add(Fault::F34);
                match self.codec.peek_len(&flying.bytes, FRAME_BYTES_MAX) {
                    Ok(Some(len)) if len <= flying.bytes.len() => {
                        Heard::Fooled("the beginning of a frame was taken for all of it".into())
                    }
                    Ok(_) => broken(Heard::Broken),
                    Err(error) => {
                        Heard::Fooled(format!("the beginning of a good frame was refused: {error}"))
                    }
                }
            }
        }
    }

    fn decode(&mut self, bytes: &SharedBytes, from: usize, to: usize) -> Result<Option<PeerMessage>, String> {
        let len = self.codec.peek_len(bytes, FRAME_BYTES_MAX).map_err(|error| error.to_string())?;
        if len != Some(bytes.len()) {
            return Err(format!("{len:?} of {} bytes", bytes.len()));
        }
        match self.codec.decode(bytes).map_err(|error| error.to_string())? {
            Frame::Message(message) => {
                if message.from() != id_of(from) || message.to() != id_of(to) {
                    return Err("a message of somebody else".into());
                }
                if let PeerMessage::Raft(envelope) = &message
                    && envelope.group != GroupId(0)
                {
                    return Err("a message of another group".into());
                }
                self.heard += 1;
                Ok(Some(message))
            }
            Frame::Goodbye(_)
            | Frame::Introduction(_)
            | Frame::Level(_)
            | Frame::Quota(_)
            | Frame::Challenge(_)
            | Frame::Proof(_)
            | Frame::Unknown { .. } => Ok(None),
            Frame::Hello(_) | Frame::Welcome(_) | Frame::Refused(_) => Err("a second greeting".into()),
            Frame::Join(_) | Frame::MemberList(_) | Frame::Removed(_) | Frame::Conflict(_) => {
                Err("a second greeting".into())
            }
        }
    }

    /// Frames of long ago, for `to`, each with its sender: only such as are of an older term than the receiver's, or of a
    /// run that has ended.
    pub(crate) fn replay(&mut self, around: &mut Around<'_>, to: usize, term: Term, count: u64) {
        for _ in 0..count {
            let from = self.dice.below(self.members as u64) as usize;
            let at = self.at(from, to);
            let runs = (self.runs[from], self.runs[to]);
            let museum = &self.paths[at].museum;
            let old: Vec<&Old> = museum.iter().filter(|old| old.term < term || old.runs != runs).collect();
            if old.is_empty() {
                continue;
            }
            let bytes = old[self.dice.below(old.len() as u64) as usize].bytes.clone();
            if let Ok(Some(message)) = self.decode(&bytes, from, to) {
                around.tally.add(Fault::F36);
                around.queue.plan(around.now, Event::Late { to, message: Box::new(message) });
            }
        }
    }

    /// Whether nothing gets from one member to another, or nothing back.
    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        [self.at(from, to), self.at(to, from)].into_iter().any(|at| self.paths[at].cut_by().is_some())
    }

    /// Who has greeted this member since it started.
    pub(crate) fn heard_of(&self, member: usize) -> Vec<NodeId> {
        (0..self.members).filter(|&other| self.heard_of[member] >> other & 1 == 1).map(id_of).collect()
    }

    fn links(&self, from: usize, to: usize) -> bool {
        self.knows[from] >> to & 1 == 1
    }

    /// A member's table says who belongs to the cluster: it links them, and nobody else any more. What is open to
    /// somebody who left stays open until it ends.
    pub(crate) fn table(&mut self, around: &mut Around<'_>, member: usize, members: &Members) {
        let mask = |ids: &mut dyn Iterator<Item = NodeId>| ids.fold(0, |mask, id| mask | 1u32 << (id.0 - 1));
        self.removed[member] |= mask(&mut members.removed.iter().copied());
        let listed = mask(&mut members.list.iter().map(|info| info.id)) & !(1 << member);
        let strangers = self.heard_of[member] & !self.removed[member];
        let new = listed & !self.knows[member];
        self.knows[member] = listed | (self.knows[member] & strangers);
        for peer in (0..self.members).filter(|&peer| new >> peer & 1 == 1) {
            self.dial_first(around, member, peer);
        }
    }

    /// The first attempt to reach somebody.
    fn dial_first(&mut self, around: &mut Around<'_>, member: usize, peer: usize) {
        for lane in LANES {
            let at = self.at(member, peer);
            self.lanes[at][lane].pauses = Pauses::new(Duration::from_nanos(self.retry_max));
            if lane != SNAPSHOT && !self.lanes[at][lane].up {
                self.plan_dial(around, member, peer, lane);
            }
        }
    }

    /// A member's process has started: it dials everybody it knows, and whoever still has a connection to its former run loses it.
    pub(crate) fn started(
        &mut self,
        around: &mut Around<'_>,
        member: usize,
        run: u32,
        incarnation: Incarnation,
        knows: &[NodeId],
    ) {
        self.knows[member] = knows.iter().fold(0, |mask, id| mask | 1 << (id.0 - 1)) & !(1 << member);
        (self.removed[member], self.heard_of[member]) = (0, 0);
        self.runs[member] = run;
        self.incarnations[member] = incarnation;
        self.silent[member] = false;
        for peer in (0..self.members).filter(|&peer| peer != member) {
            for lane in LANES {
                self.close(around, peer, member, lane, LinkEnd::Otherwise, true);
            }
            if self.links(member, peer) {
                self.dial_first(around, member, peer);
            }
        }
    }

    /// A member's process has ended. If its machine vanished with it, nobody is told.
    pub(crate) fn ended(&mut self, around: &mut Around<'_>, member: usize, silently: bool) {
        self.runs[member] = 0;
        self.silent[member] = silently;
        for peer in (0..self.members).filter(|&peer| peer != member) {
            for lane in LANES {
                let at = self.at(member, peer);
                self.leave_wire(around, member, peer, lane);
                let outgoing = &mut self.lanes[at][lane];
                let was_up = outgoing.up;
                outgoing.close();
                (outgoing.dialling, outgoing.not_before) = (false, 0);
                let tell_at = around.now + self.pace.frame;
                if silently {
                    let (at, connection) = (self.at(peer, member), 0);
                    let connection = self.lanes[at][lane].connection.max(connection);
                    let silence = Event::Silence { from: peer, to: member, lane, connection };
                    around.queue.plan(around.now + SILENCE_MAX, silence);
                } else {
                    let end = LinkEnd::ByPeer; // as the kernel of a process that died says it
                    if was_up && lanes::end_is_told(KINDS[lane], end) {
                        around.queue.plan(
                            tell_at,
                            Event::LinkClosed { member: peer, peer: member, end, was_heard: lane == BULK },
                        );
                    }
                    let at = self.at(peer, member);
                    let connection = self.lanes[at][lane].connection;
                    around.queue.plan(tell_at, Event::Hangup { from: peer, to: member, lane, connection });
                }
            }
        }
    }

    /// The sender of a lane notices that its connection is gone.
    pub(crate) fn hangup(
        &mut self,
        around: &mut Around<'_>,
        from: usize,
        to: usize,
        lane: usize,
        connection: u32,
    ) {
        let at = self.at(from, to);
        if self.lanes[at][lane].up && self.lanes[at][lane].connection == connection {
            self.close(around, from, to, lane, LinkEnd::ByPeer, true);
        }
    }

    /// So much time has passed since something was held back: the connection is given up if nothing got through since.
    pub(crate) fn silence(
        &mut self,
        around: &mut Around<'_>,
        from: usize,
        to: usize,
        lane: usize,
        connection: u32,
    ) {
        let at = self.at(from, to);
        let state = &mut self.lanes[at][lane];
        if !state.up || state.connection != connection {
            return;
        }
        let held_long = !state.held.is_empty() && state.held_since + SILENCE_MAX <= around.now;
        if held_long || self.silent[to] {
            self.close(around, from, to, lane, LinkEnd::Otherwise, true);
        } else if lane == SNAPSHOT && state.held.is_empty() {
            if std::mem::take(&mut state.used) {
                around.queue.plan(around.now + SILENCE_MAX, Event::Silence { from, to, lane, connection });
            } else {
                self.close(around, from, to, lane, LinkEnd::Otherwise, false); // nobody needs it
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
        let at = self.at(from, to);
        self.leave_wire(around, from, to, lane);
        let state = &mut self.lanes[at][lane];
        let was_up = state.up;
        if was_up {
            let lived = around.now - state.opened_at;
            state.pauses.lived(Duration::from_nanos(lived));
            state.close();
            around.trace.mix(7);
            if lanes::end_is_told(KINDS[lane], end) {
                around
                    .queue
                    .plan(around.now, Event::LinkClosed { member: from, peer: to, end, was_heard: false });
                let told = Event::LinkClosed { member: to, peer: from, end, was_heard: lane == BULK };
                around.queue.plan(around.now + self.pace.frame, told);
            }
        }
        if redial && was_up && self.runs[from] != 0 && lane != SNAPSHOT {
            self.plan_dial(around, from, to, lane);
        }
    }

    fn plan_dial(&mut self, around: &mut Around<'_>, from: usize, to: usize, lane: usize) {
        if !self.links(from, to) {
            return;
        }
        let at = self.at(from, to);
        let state = &mut self.lanes[at][lane];
        let pause = state.pauses.take().as_nanos() as u64;
        let jittered = pause / 2 + self.dice.below(pause / 2 + 1);
        let connection = state.connection;
        around.queue.plan(around.now + jittered, Event::Dial { from, to, lane, connection });
    }

    /// Tries to open a lane. `answers` says whether the peer's process is there to answer.
    pub(crate) fn dial(
        &mut self,
        around: &mut Around<'_>,
        (from, to, lane): (usize, usize, usize),
        connection: u32,
        answers: bool,
    ) {
        let at = self.at(from, to);
        let is_void = self.lanes[at][lane].up || self.lanes[at][lane].connection != connection;
        if self.runs[from] == 0 || is_void || !self.links(from, to) {
            return;
        }
        let back = self.at(to, from);
        let is_cut = self.paths[at].cut_by().is_some() || self.paths[back].cut_by().is_some();
        if !answers || is_cut || self.runs[to] == 0 {
            if lane == SNAPSHOT {
                return self.put_off(around, from, to);
            }
            return self.plan_dial(around, from, to, lane);
        }
        self.handshake(from, to, lane);
        if self.removed[to] >> from & 1 == 1 {
            around.queue.plan(
                around.now + 2 * self.pace.frame,
                Event::Removed { member: from, run: self.runs[from] },
            );
            return;
        }
        let is_first = self.heard_of[to] >> from & 1 == 0;
        self.heard_of[to] |= 1 << from;
        let handshake = Event::Handshake { member: to, run: self.runs[to], by: from, is_first };
        around.queue.plan(around.now + self.pace.frame, handshake);
        if !self.links(to, from) {
            self.knows[to] |= 1 << from; // it introduces itself: answers need a way back
            self.dial_first(around, to, from);
        }
        let state = &mut self.lanes[at][lane];
        state.up = true;
        state.connection += 1;
        state.opened_at = around.now;
        state.last_arrival = around.now;
        state.free_at = around.now;
        state.dialling = false;
        around.trace.mix(11);
        if lane == SNAPSHOT {
            let connection = state.connection;
            state.held_bytes = 0;
            let waiting = std::mem::take(&mut state.held);
            around.queue.plan(around.now + SILENCE_MAX, Event::Silence { from, to, lane, connection });
            for frame in waiting {
                self.send_out(around, from, to, lane, frame);
            }
        }
    }

    /// The lane for snapshots cannot be opened now: what waited for it is lost, and the next attempt takes its time.
    fn put_off(&mut self, around: &mut Around<'_>, from: usize, to: usize) {
        let at = self.at(from, to);
        let state = &mut self.lanes[at][SNAPSHOT];
        let pause = state.pauses.take().as_nanos() as u64;
        state.dialling = false;
        state.held.clear();
        state.held_bytes = 0;
        state.not_before = around.now + pause / 2 + self.dice.below(pause / 2 + 1);
    }

    /// The first frame of a connection, through its bytes. [fault-model NT1]
    fn handshake(&mut self, from: usize, to: usize, lane: usize) {
        let hello = Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            cluster: CLUSTER,
            from: id_of(from),
            incarnation: self.incarnations[from],
            to: id_of(to),
            lane: match lane {
                BULK => kattu_wire::Lane::Bulk,
                CONTROL => kattu_wire::Lane::Control,
                _ => kattu_wire::Lane::Snapshot,
            },
            learner: false,
        };
        self.writer.clear();
        self.codec.encode(&Frame::Hello(hello.clone()), &mut self.writer);
        let bytes: Vec<u8> = self.writer.pieces().flatten().copied().collect();
        let heard = self.codec.decode(&SharedBytes::from(bytes));
        assert_eq!(heard, Ok(Frame::Hello(hello.clone())), "a greeting survives its bytes");
        assert_eq!(hello.agree(), Ok(PROTOCOL_MAX), "members of one version agree");
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
                    if state.held.is_empty() || !state.up {
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

    /// The storm is over: every path is clear.
    pub(crate) fn calm(&mut self, around: &mut Around<'_>) {
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
        // A connection that is silent on one side is noticed at the next reset; the calm does not wait for that.
        for to in (0..self.members).filter(|&to| self.silent[to]).collect::<Vec<_>>() {
            for from in 0..self.members {
                for lane in LANES {
                    self.close(around, from, to, lane, LinkEnd::Otherwise, true);
                }
            }
        }
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

    fn close(&mut self) {
        self.up = false;
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
        let mut net = Net::new(1, 2, &pace, SEC, false);
        let (mut queue, mut tally, mut trace) =
            (Queue::default(), Tally::default(), Trace::new(Arc::default()));
        let mut around = Around { now: 0, queue: &mut queue, tally: &mut tally, trace: &mut trace };
        let way = net.at(0, 1);
        net.lanes[way][BULK].up = true;
        net.set_wire(&mut around, 0, 1, Some(Wire::new(1000)));
        for _ in 0..2 {
            let frame = Outgoing { bytes: SharedBytes::from(vec![0; 1000]), load: 1 };
            net.send_out(&mut around, 0, 1, BULK, frame);
        }
        let leaves = |net: &mut Net, around: &mut Around<'_>| {
            let plan = net.paths[way].wire.map_or(0, |wire| wire.plan);
            net.on_wire(around, 0, 1, plan);
        };
        around.now = SEC;
        leaves(&mut net, &mut around);
        assert_eq!(net.path(0, 1).carried, 1, "the first has left");
        net.path(0, 1).split = 1;
        around.now = 2 * SEC;
        leaves(&mut net, &mut around);
        assert_eq!((net.path(0, 1).carried, net.lanes[way][BULK].held.len()), (1, 1));
        net.path(0, 1).split = 0;
        net.let_go(&mut around);
        around.now = 3 * SEC;
        leaves(&mut net, &mut around);
        assert_eq!((net.path(0, 1).carried, net.lanes[way][BULK].held.len()), (2, 0));
        assert_eq!(tally.count(Fault::F30), 1);
    }
}
