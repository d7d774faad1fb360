//! Liar: one member sends any well-formed message, and the others must keep running.
//!
//! ```text
//!   liar ── a frame ──▶ receiver:  one of a few becomes a lie, made for the state of the receiver
//!     any message of the protocol · the truth with another command in it · made-up writes and verdicts
//!   receiver ── a lie that it detects ──▶ its links with the liar end, and are opened again
//! ```
//! Answers to clients are not judged: with a liar in the quorum they carry no guarantee. Judged is: no panic, no log
//! that fails, no step or table without a bound, and after a restart of all members their own files are good.
//! [fault-model P11]
//! Knows nothing of: which lies are detected, and why.

use crate::clock::{MS, SEC};
use crate::dice::Dice;
use crate::inject::{Kind, Kinds};
use crate::plan::{Options, Plan};
use crate::report::Violation;
use crate::world::World;
use kattu_node::contract::{Forward, ForwardReply, PeerMessage, Refusal};
use kattu_raft::{
    Entry, EntryHead, EntryId, EntryKind, Envelope, Incarnation, LinkEnd, LogIndex, Message, NodeId, Raft,
    SharedBytes, Term,
};
use kattu_verify::judges::Summary;
use kattu_wire::{Codec, Frame, FrameWriter};

/// Commands that the liar keeps to send again, changed or not.
const HEARD_MAX: usize = 16;
/// Random bytes that make one message.
const BYTES: usize = 96;
/// Bound on the protocol's own state, written out, besides the entries that it keeps.
const STATE_MAX: usize = 1 << 20;
/// Faults besides the liar: the others are judged by their disks, which must be `Truth::Whole`.
const KINDS: [Kind; 12] = [
    Kind::Kill,
    Kind::KillAtEffect,
    Kind::KillAll,
    Kind::Stop,
    Kind::Pause,
    Kind::Split,
    Kind::OneWay,
    Kind::Lossy,
    Kind::Reset,
    Kind::Clog,
    Kind::Lag,
    Kind::Transfer,
];

/// Draws a storm with a liar.
pub(crate) fn draw(seed: u64, options: &Options) -> Plan {
    let of_storms = Options { family: crate::Family::Storms, ..options.clone() };
    let kinds = options.kinds.clone().unwrap_or_else(|| Kinds::of(&KINDS));
    let allowed: Vec<Kind> = KINDS.into_iter().filter(|&kind| kinds.has(kind)).collect();
    let mut dice = Dice::new(seed, "liar");
    let members = options.members.unwrap_or(*dice.pick(&[2, 3, 3, 3, 4, 5]));
    let of_storms = Options { kinds: Some(Kinds::of(&allowed)), members: Some(members), ..of_storms };
    let mut plan = Plan::draw(seed, &of_storms);
    plan.kinds = Kinds::of(&plan.kinds.iter().filter(|&kind| KINDS.contains(&kind)).collect::<Vec<_>>());
    plan.liar = Some(Lies { member: dice.below(members) as usize, one_in: dice.log_within(2, 200) });
    plan
}

/// The liar, and how often it lies.
#[derive(Clone, Copy, Debug)]
pub struct Lies {
    /// The member.
    pub member: usize,
    /// One in this many of its frames is a lie.
    pub one_in: u64,
}

/// The liar, while a storm lasts.
pub(crate) struct Liar {
    lies: Lies,
    dice: Dice,
    heard: Vec<SharedBytes>,
    codec: Codec,
}

impl Liar {
    pub(crate) fn new(seed: u64, lies: Lies) -> Liar {
        let codec = Codec::new(crc32c::crc32c_append);
        Liar { lies, dice: Dice::new(seed, "lies"), heard: Vec::new(), codec }
    }

    /// The lie that replaces a message of `member`, if any.
    pub(crate) fn instead(&mut self, member: usize, truth: &PeerMessage, to: &Raft) -> Option<PeerMessage> {
        if member != self.lies.member {
            return None;
        }
        self.listen(truth);
        if !self.dice.one_in(self.lies.one_in) {
            return None;
        }
        let lie = match self.dice.below(8) {
            0 => self.forward(truth, to),
            1 => self.verdicts(truth, to),
            2 | 3 => self.almost(truth)?,
            _ => self.anything(truth, to),
        };
        // The codec refuses some lies: then the truth arrives.
        let mut writer = FrameWriter::default();
        self.codec.encode_message(&lie, &mut writer);
        let bytes: Vec<u8> = writer.pieces().flatten().copied().collect();
        match self.codec.decode(&SharedBytes::from(bytes)) {
            Ok(Frame::Message(lie)) => Some(lie),
            _ => None,
        }
    }

    fn listen(&mut self, truth: &PeerMessage) {
        let commands: Vec<SharedBytes> = match truth {
            PeerMessage::Raft(Envelope { message: Message::Append(append), .. }) => {
                append.entries.iter().filter_map(|entry| Some(entry.payload()?.to_vec().into())).collect()
            }
            PeerMessage::Forward(forward) => forward.commands.clone(),
            _ => Vec::new(),
        };
        for command in commands {
            match self.heard.len() < HEARD_MAX {
                true => self.heard.push(command),
                false => {
                    let place = self.dice.below(HEARD_MAX as u64) as usize;
                    self.heard[place] = command;
                }
            }
        }
    }

    /// A kept command, mostly with a bit flipped, or cut short.
    fn command(&mut self) -> Vec<u8> {
        if self.heard.is_empty() {
            return Vec::new();
        }
        let mut command = self.dice.pick(&self.heard.clone()).to_vec();
        let place = self.dice.below(command.len().max(1) as u64) as usize;
        match (self.dice.below(4), command.get_mut(place)) {
            (0, _) | (_, None) => {}
            (1, _) => command.truncate(place),
            (_, Some(byte)) => *byte ^= 1 << self.dice.below(8),
        }
        command
    }

    /// A number, mostly near `here`.
    fn near(&mut self, here: u64) -> u64 {
        match self.dice.below(8) {
            0 => self.dice.roll(),
            1 => self.dice.roll() >> self.dice.below(64),
            2 => here.wrapping_sub(self.dice.below(4)),
            3 => here.saturating_add(self.dice.below(100)),
            _ => here,
        }
    }

    /// Any message of the protocol, in terms and with positions that the receiver knows.
    fn anything(&mut self, truth: &PeerMessage, to: &Raft) -> PeerMessage {
        let bytes: Vec<u8> = (0..BYTES).map(|_| self.dice.below(256) as u8).collect();
        let mut message = kattu_peers::liars::message(&bytes, to);
        if let Message::Append(append) = &mut message {
            append.entries = append.entries.iter().map(|entry| self.with_command(entry)).collect();
        }
        let incarnation = match truth {
            PeerMessage::Raft(envelope) => envelope.incarnation,
            PeerMessage::Forward(_) | PeerMessage::ForwardReply(_) => Incarnation(self.dice.below(8)),
        };
        let term = if self.dice.one_in(3) { self.near(to.term().0) } else { to.term().0 };
        PeerMessage::Raft(Envelope {
            group: crate::log::GROUP,
            from: truth.from(),
            incarnation,
            to: truth.to(),
            term: Term(term),
            message,
        })
    }

    fn with_command(&mut self, entry: &Entry) -> Entry {
        if entry.head.kind != EntryKind::Command {
            return entry.clone();
        }
        Entry::new(EntryHead { ..entry.head }, self.command().into(), 0)
    }

    /// The truth with one thing changed.
    fn almost(&mut self, truth: &PeerMessage) -> Option<PeerMessage> {
        let PeerMessage::Raft(envelope) = truth else { return None };
        let mut envelope = envelope.clone();
        match (&mut envelope.message, self.dice.below(4)) {
            (Message::Append(append), 0 | 1) if !append.entries.is_empty() => {
                let place = self.dice.below(append.entries.len() as u64) as usize;
                append.entries[place] = self.with_command(&append.entries[place].clone());
            }
            (Message::Append(append), 2) => append.commit = LogIndex(self.near(append.commit.0)),
            (Message::AppendReply(reply), 0 | 1) => reply.upto = LogIndex(self.near(reply.upto.0)),
            (Message::AppendReply(reply), 2) => reply.round.0 = self.near(reply.round.0),
            (Message::SnapshotChunk(chunk), 0 | 1) => {
                let mut bytes = chunk.bytes.to_vec();
                let place = self.dice.below(bytes.len().max(1) as u64) as usize;
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1;
                }
                chunk.bytes = bytes.into();
            }
            (Message::VoteReply(reply), _) => reply.granted = true,
            (Message::PreVoteReply(reply), _) => reply.granted = true,
            _ => envelope.term = Term(self.near(envelope.term.0)),
        }
        Some(PeerMessage::Raft(envelope))
    }

    fn forward(&mut self, truth: &PeerMessage, to: &Raft) -> PeerMessage {
        let count = 1 + self.dice.below(3);
        PeerMessage::Forward(Forward {
            from: truth.from(),
            to: truth.to(),
            incarnation: Incarnation(self.dice.below(3)),
            term: Term(self.near(to.term().0)),
            first_seq: self.near(1),
            commands: (0..count).map(|_| self.command().into()).collect(),
        })
    }

    fn verdicts(&mut self, truth: &PeerMessage, to: &Raft) -> PeerMessage {
        let reply = match truth {
            PeerMessage::ForwardReply(reply) => Some(reply),
            _ => None,
        };
        let first_seq = reply.map_or(1, |reply| reply.first_seq);
        let incarnation = reply.map_or(Incarnation(1), |reply| reply.incarnation);
        let verdicts = (0..=self.dice.below(3)).map(|_| match self.dice.below(3) {
            0 => Err(Refusal::NoLeader),
            _ => Ok(EntryId::new(self.near(to.term().0), self.near(to.last_id().index.0))),
        });
        let verdicts = verdicts.collect();
        PeerMessage::ForwardReply(ForwardReply {
            from: truth.from(),
            to: truth.to(),
            incarnation,
            term: Term(self.near(to.term().0)),
            first_seq: self.near(first_seq),
            verdicts,
        })
    }
}

impl World {
    /// Ends the links to a liar that was detected; they are opened again. [shell/runtime `driver`]
    pub(crate) fn part_from_liars(&mut self) {
        let caught: Vec<(NodeId, NodeId)> = std::mem::take(&mut self.sh.caught);
        for (member, liar) in caught {
            self.sh.counts.caught += 1;
            let (member, liar) = ((member.0 - 1) as usize, (liar.0.wrapping_sub(1)) as usize);
            if self.members.len() <= liar {
                continue;
            }
            let (net, mut around) = self.sh.net();
            for lane in crate::paths::LANES {
                net.close(&mut around, liar, member, lane, LinkEnd::Otherwise);
                net.close(&mut around, member, liar, lane, LinkEnd::Otherwise);
            }
        }
    }

    /// The storm is over and the liar stays down: the state of the others is bounded, and their files are good.
    pub(crate) fn end_among_liars(&mut self) -> Result<Summary, Violation> {
        let Some(Lies { member: liar, .. }) = self.plan.liar else { return Ok(Summary::default()) };
        for member in self.up() {
            let Some(process) = &self.members[member].process else { continue };
            let held = format!("{:?}", process.node()).len();
            let recent = process.node().raft().recent_bytes() + process.node().pending_bytes();
            // Bytes are written out as numbers, each with a comma and a blank.
            let bound = STATE_MAX + 5 * recent;
            if bound < held {
                let story = format!("n{}: {held} bytes written out, {recent} bytes of entries", member + 1);
                return Err(Violation::new("lies_cost_bounded_memory", story));
            }
        }
        self.sh.liar = None;
        for member in 0..self.members.len() {
            self.members[member].paused_until = self.sh.now;
            self.members[member].down = if member == liar { u64::MAX >> 1 } else { MS };
            self.kill(member, "all are restarted, except the liar")?;
        }
        self.run_until(self.sh.now + 10 * SEC)?;
        Ok(Summary::default())
    }
}
