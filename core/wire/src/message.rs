//! The fields of every message between replicas.
//!
//! The fields of raft's messages start with the envelope's. Entries follow the fields as records. Forwarded commands
//! follow them, too, each under a checksum in the fields.
//!
//! A connection uses the protocol version agreed on in its handshake. Version 1 had one verdict for an answer to an
//! append, where there are several statements now. Statements that it cannot express are left out, in both directions,
//! such that either side does what is safe and a little slower. (`append_reply_v1`)
//! Knows nothing of: frame headers, the handling of messages.

use crate::Crc;
use crate::fields::{FieldError, Reader, Write};
use crate::frame_error::FrameError;
use crate::frame_kind as kind;
use crate::record::record_decode;
use alloc::boxed::Box;
use alloc::vec::Vec;
use kattu_node::contract::{Forward, ForwardReply, MemberRefusal, PeerMessage, Refusal};
use kattu_raft::message::{
    Append, AppendReply, Gap, Lost, PreVote, PreVoteReply, RUNS_MAX, ReadIndex, ReadIndexReply, Remind,
    Reminder, Room, Run, SnapshotChunk, SnapshotReply, StaleTerm, Standing, TimeoutNow, Vote, VoteReply,
};
use kattu_raft::{
    ClockReading, Duration, Entry, EntryId, Envelope, GroupId, Incarnation, Instant, LogIndex, Membership,
    Message, NodeId, Round, SharedBytes, SnapshotMeta, Stamp, Term,
};

/// The first protocol version in which an answer to an append has several statements.
const PRODUCT: u16 = 2;

/// The first protocol version in which rounds of pre-votes are counted.
const ROUNDS: u16 = 2;

/// The first protocol version in which an answer to an append names entries after a gap.
const EARLY: u16 = 5;

/// The first protocol version in which an answer to an append names entries that were received and are not durable.
const RECEIPTS: u16 = 6;

/// The first protocol version in which a vote names the log that it was given for.
const LASTS: u16 = 4;

pub(crate) fn kind_of(message: &PeerMessage, protocol: u16) -> u8 {
    match message {
        PeerMessage::Raft(envelope) => match &envelope.message {
            Message::Append(_) => kind::APPEND,
            Message::AppendReply(_) => kind::APPEND_REPLY,
            Message::PreVote(_) => kind::PRE_VOTE,
            Message::PreVoteReply(_) => kind::PRE_VOTE_REPLY,
            Message::Vote(_) => kind::VOTE,
            Message::VoteReply(_) => kind::VOTE_REPLY,
            Message::ReadIndex(_) => kind::READ_INDEX,
            Message::ReadIndexReply(_) => kind::READ_INDEX_REPLY,
            Message::SnapshotChunk(_) => kind::SNAPSHOT_CHUNK,
            Message::SnapshotReply(_) => kind::SNAPSHOT_REPLY,
            Message::TimeoutNow(_) => kind::TIMEOUT_NOW,
            Message::Lost(_) => kind::LOST,
            Message::Remind(_) => kind::REMIND,
            Message::Reminder(_) => kind::REMINDER,
            Message::StaleTerm(_) if protocol < PRODUCT => kind::APPEND_REPLY,
            Message::StaleTerm(_) => kind::STALE_TERM,
        },
        PeerMessage::Forward(_) => kind::FORWARD,
        PeerMessage::ForwardReply(_) => kind::FORWARD_REPLY,
    }
}

pub(crate) fn is_known(kind: u8, protocol: u16) -> bool {
    match kind {
        kind::STALE_TERM => PRODUCT <= protocol,
        kind => matches!(kind, kind::APPEND..=kind::REMINDER | kind::FORWARD..=kind::FORWARD_REPLY),
    }
}

/// Calls `visit` with each piece that follows the fields, in order.
pub(crate) fn for_each_behind(message: &PeerMessage, mut visit: impl FnMut(&SharedBytes)) {
    match message {
        PeerMessage::Raft(Envelope { message: Message::Append(append), .. }) => {
            append.entries.iter().for_each(|entry| visit(entry.record()));
        }
        PeerMessage::Raft(Envelope { message: Message::SnapshotChunk(chunk), .. }) => visit(&chunk.bytes),
        PeerMessage::Forward(forward) => forward.commands.iter().for_each(visit),
        PeerMessage::Raft(_) | PeerMessage::ForwardReply(_) => {}
    }
}

pub(crate) fn bytes_behind(message: &PeerMessage) -> usize {
    let mut bytes = 0;
    for_each_behind(message, |piece| bytes += piece.len());
    bytes
}

fn count(len: usize) -> u32 {
    u32::try_from(len).expect("limits keep counts far below 2^32")
}

pub(crate) fn put_fields(crc: Crc, protocol: u16, message: &PeerMessage, out: &mut Vec<u8>) {
    match message {
        PeerMessage::Raft(envelope) => {
            out.put_u32(envelope.group.0);
            out.put_u64(envelope.from.0);
            out.put_u64(envelope.incarnation.0);
            out.put_u64(envelope.to.0);
            out.put_u64(envelope.term.0);
            put_raft(crc, protocol, &envelope.message, out);
        }
        PeerMessage::Forward(forward) => {
            out.put_u64(forward.from.0);
            out.put_u64(forward.to.0);
            out.put_u64(forward.incarnation.0);
            out.put_u64(forward.term.0);
            out.put_u64(forward.first_seq);
            out.put_u32(count(forward.commands.len()));
            for command in &forward.commands {
                out.put_u32(count(command.len()));
                out.put_u32(crc(0, command));
            }
        }
        PeerMessage::ForwardReply(reply) => {
            out.put_u64(reply.from.0);
            out.put_u64(reply.to.0);
            out.put_u64(reply.incarnation.0);
            out.put_u64(reply.term.0);
            out.put_u64(reply.first_seq);
            out.put_u32(count(reply.verdicts.len()));
            for verdict in &reply.verdicts {
                match verdict {
                    Ok(id) => {
                        out.put_u8(0);
                        put_id(*id, out);
                    }
                    Err(refusal) => out.put_u8(refusal_number(*refusal)),
                }
            }
        }
    }
}

fn put_id(id: EntryId, out: &mut Vec<u8>) {
    out.put_u64(id.term.0);
    out.put_u64(id.index.0);
}

fn put_raft(crc: Crc, protocol: u16, message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Append(append) => {
            put_id(append.prev, out);
            out.put_u64(append.commit.0);
            out.put_u64(append.round.0);
            out.put_u32(count(append.entries.len()));
            if PRODUCT <= protocol {
                out.put_u8(append.tail.into());
            }
        }
        Message::AppendReply(reply) if protocol < PRODUCT => put_append_reply_v1(Some(reply), out),
        Message::AppendReply(reply) => put_append_reply(protocol, reply, out),
        Message::StaleTerm(StaleTerm) if protocol < PRODUCT => put_append_reply_v1(None, out),
        Message::StaleTerm(StaleTerm) => {}
        Message::PreVote(vote) => {
            out.put_u64(vote.campaign_term.0);
            put_id(vote.last, out);
            put_round(protocol, vote.round, out);
        }
        Message::PreVoteReply(reply) => {
            out.put_u64(reply.campaign_term.0);
            out.put_u8(reply.granted.into());
            put_round(protocol, reply.round, out);
        }
        Message::Vote(vote) => {
            put_id(vote.last, out);
            out.put_u8(vote.transfer.into());
        }
        Message::VoteReply(reply) => {
            out.put_u8(reply.granted.into());
            if LASTS <= protocol {
                put_id(reply.last, out);
            }
        }
        Message::ReadIndex(read) => out.put_u64(read.batch),
        Message::ReadIndexReply(reply) => {
            out.put_u64(reply.batch);
            out.put_u8(reply.index.is_some().into());
            out.put_u64(reply.index.unwrap_or_default().0);
        }
        Message::SnapshotChunk(chunk) => {
            put_id(chunk.meta.last, out);
            out.put_u64(chunk.meta.stamp.0);
            out.put_u64(chunk.meta.membership_at.0);
            out.put_u64(chunk.offset);
            out.put_u64(chunk.total);
            out.put_u32(crc(0, &chunk.bytes));
            chunk.meta.membership.encode(out);
        }
        Message::SnapshotReply(reply) => {
            put_id(reply.last, out);
            out.put_u64(reply.next);
            out.put_u8(reply.refused.into());
        }
        Message::TimeoutNow(TimeoutNow) => {}
        Message::Lost(lost) => put_id(lost.upto, out),
        Message::Remind(remind) => out.put_u64(remind.nonce),
        Message::Reminder(reminder) => {
            out.put_u64(reminder.nonce);
            out.put_u8(match reminder.standing {
                Standing::Alone => 0,
                Standing::HasMetAll => 1,
                Standing::TakesPart => 2,
            });
            put_id(reminder.committed, out);
            put_id(reminder.acknowledged, out);
        }
    }
}

/// Flags of the optional statements of an answer to an append, besides its round and how far the logs agree. A usual
/// value is left out.
mod says {
    pub const VOTE_HOLD: u8 = 1;
    pub(crate) const CLOCK: u8 = 2;
    pub(crate) const DISK: u8 = 4;
    pub const BULK: u8 = 8;
    pub(crate) const GAP: u8 = 16;
    pub const ROOM: u8 = 32;
    pub(crate) const EARLY: u8 = 64;
    pub(crate) const RECEIVED: u8 = 128;
    /// Those that this protocol version has.
    pub fn all(protocol: u16) -> u8 {
        match protocol {
            super::RECEIPTS.. => 255,
            super::EARLY.. => 127,
            _ => 63,
        }
    }
}

/// A duration above 64 bits is centuries: it is capped.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn put_append_reply(protocol: u16, reply: &AppendReply, out: &mut Vec<u8>) {
    // Members of older versions are in no cluster that has a window.
    let early = if EARLY <= protocol { reply.early.as_slice() } else { &[] };
    let received = if RECEIPTS <= protocol { reply.received } else { reply.upto };
    let bit = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
    out.put_u64(reply.round.0);
    out.put_u64(reply.upto.0);
    out.put_u8(
        bit(says::VOTE_HOLD, !reply.vote_hold.is_zero())
            | bit(says::CLOCK, reply.clock.is_some())
            | bit(says::DISK, !reply.disk.is_zero())
            | bit(says::BULK, reply.bulk != reply.round)
            | bit(says::GAP, reply.gap.is_some())
            | bit(says::ROOM, reply.room != Room::PLENTY)
            | bit(says::EARLY, !early.is_empty())
            | bit(says::RECEIVED, received != reply.upto),
    );
    if !reply.vote_hold.is_zero() {
        out.put_u64(nanos(reply.vote_hold));
    }
    if let Some(ClockReading { run, at }) = reply.clock {
        out.put_u64(run);
        out.put_u64(at.0);
    }
    if !reply.disk.is_zero() {
        out.put_u64(nanos(reply.disk));
    }
    if reply.bulk != reply.round {
        out.put_u64(reply.bulk.0);
    }
    if let Some(Gap { prev, hint, last }) = reply.gap {
        out.put_u64(prev.0);
        put_id(hint, out);
        out.put_u64(last.0);
    }
    if reply.room != Room::PLENTY {
        out.put_u64(reply.room.0);
    }
    if received != reply.upto {
        out.put_u64(received.0);
    }
    if !early.is_empty() {
        out.put_u8(u8::try_from(early.len()).expect("an answer names few runs"));
        for run in early {
            out.put_u64(run.first.0);
            out.put_u64(run.last.0);
        }
    }
}

fn take_append_reply(protocol: u16, reader: &mut Reader<'_>) -> Result<AppendReply, FieldError> {
    let round = Round(reader.u64("round")?);
    let upto = LogIndex(reader.u64("upto")?);
    let flags = reader.u8("says")?;
    if flags & !says::all(protocol) != 0 {
        return Err(FieldError::Value { field: "says", value: flags.into() });
    }
    // A usual value has one form: left out.
    let number = |reader: &mut Reader<'_>, flag: u8, field: &'static str, usual: u64| match flags & flag {
        0 => Ok(usual),
        _ => match reader.u64(field)? {
            value if value == usual => Err(FieldError::Value { field, value }),
            value => Ok(value),
        },
    };
    let vote_hold = Duration::from_nanos(number(reader, says::VOTE_HOLD, "vote_hold", 0)?);
    let clock = match flags & says::CLOCK {
        0 => None,
        _ => Some(ClockReading { run: reader.u64("run")?, at: Instant(reader.u64("shown")?) }),
    };
    let disk = Duration::from_nanos(number(reader, says::DISK, "disk", 0)?);
    let bulk = Round(number(reader, says::BULK, "bulk", round.0)?);
    let gap = match flags & says::GAP {
        0 => None,
        _ => Some(Gap {
            prev: LogIndex(reader.u64("prev")?),
            hint: take_id(reader, "hint")?,
            last: LogIndex(reader.u64("last")?),
        }),
    };
    let room = Room(number(reader, says::ROOM, "room", Room::PLENTY.0)?);
    let received = LogIndex(number(reader, says::RECEIVED, "received", upto.0)?);
    if received < upto {
        return Err(FieldError::Value { field: "received", value: received.0 });
    }
    let early = if flags & says::EARLY == 0 { Vec::new() } else { take_runs(reader, received)? };
    Ok(AppendReply { round, vote_hold, clock, disk, bulk, upto, gap, room, received, early })
}

/// Runs of early entries: ascending, apart, beyond what is durable in the log. The first may follow that at once: there may be no
/// room for it in the log.
fn take_runs(reader: &mut Reader<'_>, upto: LogIndex) -> Result<Vec<Run>, FieldError> {
    let count = reader.u8("runs")?;
    if count == 0 || RUNS_MAX < count.into() {
        return Err(FieldError::Value { field: "runs", value: count.into() });
    }
    let mut runs = Vec::with_capacity(count.into());
    let mut least = LogIndex(upto.0.saturating_add(1));
    for _ in 0..count {
        let (first, last) = (LogIndex(reader.u64("first")?), LogIndex(reader.u64("last")?));
        if first < least || last < first {
            return Err(FieldError::Value { field: "first", value: first.0 });
        }
        least = LogIndex(last.0.saturating_add(2));
        runs.push(Run { first, last });
    }
    Ok(runs)
}

/// An answer to an append in protocol version 1, which has one of four verdicts; `None`: the other side's term is
/// older.
///
/// A leader of version 1 that receives *busy* waits for a heartbeat and starts again behind the last index known to
/// agree. So it receives *busy* if there are both a gap and little room, and learns how far the logs agree with the
/// next heartbeat.
fn put_append_reply_v1(reply: Option<&AppendReply>, out: &mut Vec<u8>) {
    out.put_u64(reply.map_or(0, |reply| reply.round.0));
    out.put_u64(reply.map_or(0, |reply| nanos(reply.vote_hold)));
    let clock = reply.and_then(|reply| reply.clock);
    out.put_u8(clock.is_some().into());
    if let Some(ClockReading { run, at }) = clock {
        out.put_u64(run);
        out.put_u64(at.0);
    }
    out.put_u64(reply.map_or(0, |reply| nanos(reply.disk)));
    match reply {
        None => out.put_u8(3),
        Some(AppendReply { gap: Some(_), room, .. }) if *room != Room::PLENTY => out.put_u8(4),
        Some(AppendReply { gap: Some(Gap { prev, hint, last }), .. }) => {
            out.put_u8(2);
            out.put_u64(prev.0);
            put_id(*hint, out);
            out.put_u64(last.0);
        }
        Some(AppendReply { upto: LogIndex(0), room: Room(0), .. }) => out.put_u8(4),
        Some(AppendReply { upto, .. }) => {
            out.put_u8(1);
            out.put_u64(upto.0);
        }
    }
}

/// See [`put_append_reply_v1`]. Version 1 never reported the round read with the entries: the newest round read at all
/// stands for that.
fn take_append_reply_v1(reader: &mut Reader<'_>) -> Result<Message, FieldError> {
    let round = Round(reader.u64("round")?);
    let vote_hold = Duration::from_nanos(reader.u64("vote_hold")?);
    let clock = match reader.bool("clock")? {
        true => Some(ClockReading { run: reader.u64("run")?, at: Instant(reader.u64("shown")?) }),
        false => None,
    };
    let disk = Duration::from_nanos(reader.u64("disk")?);
    let (upto, gap, room) = match reader.u8("verdict")? {
        1 => (LogIndex(reader.u64("upto")?), None, Room::PLENTY),
        2 => {
            let prev = LogIndex(reader.u64("prev")?);
            let gap = Gap { prev, hint: take_id(reader, "hint")?, last: LogIndex(reader.u64("last")?) };
            (LogIndex(0), Some(gap), Room::PLENTY)
        }
        3 => return Ok(Message::StaleTerm(StaleTerm)),
        4 => (LogIndex(0), None, Room(0)),
        other => return Err(FieldError::Value { field: "verdict", value: other.into() }),
    };
    Ok(Message::AppendReply(AppendReply {
        round,
        vote_hold,
        clock,
        disk,
        bulk: round,
        upto,
        gap,
        room,
        received: upto,
        early: Vec::new(),
    }))
}

/// Reads the message of a known kind.
pub(crate) fn decode(
    crc: Crc,
    protocol: u16,
    kind: u8,
    mut reader: Reader<'_>,
    behind: &SharedBytes,
) -> Result<PeerMessage, FrameError> {
    let message = match kind {
        kind::FORWARD => return take_forward(crc, reader, behind),
        kind::FORWARD_REPLY => PeerMessage::ForwardReply(take_forward_reply(&mut reader)?),
        kind => {
            let group = GroupId(reader.u32("group")?);
            let from = NodeId(reader.u64("from")?);
            let incarnation = Incarnation(reader.u64("incarnation")?);
            let to = NodeId(reader.u64("to")?);
            let term = Term(reader.u64("term")?);
            let envelope =
                |message| PeerMessage::Raft(Envelope { group, from, incarnation, to, term, message });
            if kind == kind::APPEND {
                let append = take_append(crc, protocol, reader, behind, group, term)?;
                return Ok(envelope(Message::Append(append)));
            }
            if kind == kind::SNAPSHOT_CHUNK {
                let chunk = take_snapshot_chunk(crc, reader, behind)?;
                return Ok(envelope(Message::SnapshotChunk(chunk)));
            }
            envelope(take_raft(protocol, kind, &mut reader)?)
        }
    };
    reader.end()?;
    if !behind.is_empty() {
        return Err(FrameError::Field(FieldError::Trailing { bytes: behind.len() }));
    }
    Ok(message)
}

fn take_id(reader: &mut Reader<'_>, field: &'static str) -> Result<EntryId, FieldError> {
    Ok(EntryId { term: Term(reader.u64(field)?), index: LogIndex(reader.u64(field)?) })
}

/// Entries must continue the log after `prev`: indexes without a gap, terms that never fall and never exceed the
/// sender's. Later code may rely on that.
fn take_append(
    crc: Crc,
    protocol: u16,
    mut reader: Reader<'_>,
    behind: &SharedBytes,
    group: GroupId,
    term: Term,
) -> Result<Append, FrameError> {
    let prev = take_id(&mut reader, "prev")?;
    let commit = LogIndex(reader.u64("commit")?);
    let round = Round(reader.u64("round")?);
    let number_of_entries = reader.u32("entries")? as usize;
    let tail = PRODUCT <= protocol && reader.bool("tail")?;
    reader.end()?;
    if tail && 0 < number_of_entries {
        return Err(FieldError::Value { field: "tail", value: 1 }.into());
    }
    if behind.len() / crate::record::HEADER_BYTES < number_of_entries {
        return Err(FieldError::Value { field: "entries", value: number_of_entries as u64 }.into());
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(number_of_entries);
    let (mut at, mut before) = (0, prev);
    for number in 0..number_of_entries {
        let (found, entry, next) = record_decode(crc, behind, at, behind.len() - at)
            .map_err(|error| FrameError::Record { number, error })?;
        if found != group {
            return Err(FrameError::ForeignGroup { expected: group, found });
        }
        let id = entry.id();
        let follows = before.index.0.checked_add(1) == Some(id.index.0);
        if !follows || id.term < before.term || term < id.term {
            return Err(FrameError::NotConsecutive { before, found: id });
        }
        (at, before) = (next, id);
        entries.push(entry);
    }
    if at != behind.len() {
        return Err(FrameError::Field(FieldError::Trailing { bytes: behind.len() - at }));
    }
    Ok(Append { prev, entries, commit, round, tail })
}

/// The membership is at the end of the fields; the piece itself follows them.
fn take_snapshot_chunk(
    crc: Crc,
    mut reader: Reader<'_>,
    behind: &SharedBytes,
) -> Result<SnapshotChunk, FrameError> {
    let last = take_id(&mut reader, "last")?;
    let stamp = Stamp(reader.u64("stamp")?);
    let membership_at = LogIndex(reader.u64("membership_at")?);
    let offset = reader.u64("offset")?;
    let total = reader.u64("total")?;
    let found = reader.u32("checksum")?;
    let (membership, rest) = Membership::decode(reader.rest()).map_err(FrameError::Membership)?;
    if !rest.is_empty() {
        return Err(FieldError::Trailing { bytes: rest.len() }.into());
    }
    if last.index < membership_at {
        return Err(FieldError::Value { field: "membership_at", value: membership_at.0 }.into());
    }
    if offset.checked_add(behind.len() as u64).is_none_or(|end| total < end) {
        return Err(FieldError::Value { field: "offset", value: offset }.into());
    }
    let computed = crc(0, behind);
    if found != computed {
        return Err(FrameError::ChunkChecksum { found, computed });
    }
    let meta = SnapshotMeta { last, stamp, membership, membership_at };
    Ok(SnapshotChunk { meta: Box::new(meta), offset, bytes: behind.clone(), total })
}

/// The round of a pre-vote; version 1 has none.
fn put_round(protocol: u16, round: Round, out: &mut Vec<u8>) {
    if ROUNDS <= protocol {
        out.put_u64(round.0);
    }
}

fn take_round(protocol: u16, reader: &mut Reader<'_>) -> Result<Round, FieldError> {
    match ROUNDS <= protocol {
        true => Ok(Round(reader.u64("round")?)),
        false => Ok(Round(0)),
    }
}

fn take_raft(protocol: u16, kind: u8, reader: &mut Reader<'_>) -> Result<Message, FieldError> {
    Ok(match kind {
        kind::APPEND_REPLY if protocol < PRODUCT => take_append_reply_v1(reader)?,
        kind::APPEND_REPLY => Message::AppendReply(take_append_reply(protocol, reader)?),
        kind::STALE_TERM => Message::StaleTerm(StaleTerm),
        kind::PRE_VOTE => Message::PreVote(PreVote {
            campaign_term: Term(reader.u64("campaign_term")?),
            last: take_id(reader, "last")?,
            round: take_round(protocol, reader)?,
        }),
        kind::PRE_VOTE_REPLY => Message::PreVoteReply(PreVoteReply {
            campaign_term: Term(reader.u64("campaign_term")?),
            granted: reader.bool("granted")?,
            round: take_round(protocol, reader)?,
        }),
        kind::VOTE => {
            Message::Vote(Vote { last: take_id(reader, "last")?, transfer: reader.bool("transfer")? })
        }
        kind::VOTE_REPLY => {
            let granted = reader.bool("granted")?;
            let last = if protocol < LASTS { EntryId::default() } else { take_id(reader, "last")? };
            Message::VoteReply(VoteReply { granted, last })
        }
        kind::READ_INDEX => Message::ReadIndex(ReadIndex { batch: reader.u64("batch")? }),
        kind::READ_INDEX_REPLY => {
            let batch = reader.u64("batch")?;
            let known = reader.bool("known")?;
            let index = reader.u64("index")?;
            if !known && index != 0 {
                return Err(FieldError::Value { field: "index", value: index });
            }
            Message::ReadIndexReply(ReadIndexReply { batch, index: known.then_some(LogIndex(index)) })
        }
        kind::SNAPSHOT_REPLY => Message::SnapshotReply(SnapshotReply {
            last: take_id(reader, "last")?,
            next: reader.u64("next")?,
            refused: reader.bool("refused")?,
        }),
        kind::TIMEOUT_NOW => Message::TimeoutNow(TimeoutNow),
        kind::LOST => Message::Lost(Lost { upto: take_id(reader, "upto")? }),
        kind::REMIND => Message::Remind(Remind { nonce: reader.u64("nonce")? }),
        kind::REMINDER => Message::Reminder(Reminder {
            nonce: reader.u64("nonce")?,
            standing: match reader.u8("standing")? {
                0 => Standing::Alone,
                1 => Standing::HasMetAll,
                2 => Standing::TakesPart,
                value => return Err(FieldError::Value { field: "standing", value: value.into() }),
            },
            committed: take_id(reader, "committed")?,
            acknowledged: take_id(reader, "acknowledged")?,
        }),
        other => return Err(FieldError::Value { field: "kind", value: other.into() }),
    })
}

fn take_forward(crc: Crc, mut reader: Reader<'_>, behind: &SharedBytes) -> Result<PeerMessage, FrameError> {
    let from = NodeId(reader.u64("from")?);
    let to = NodeId(reader.u64("to")?);
    let incarnation = Incarnation(reader.u64("incarnation")?);
    let term = Term(reader.u64("term")?);
    let first_seq = reader.u64("first_seq")?;
    let number_of_commands = reader.u32("commands")? as usize;
    if reader.left() / 8 < number_of_commands {
        return Err(FieldError::Missing { field: "commands" }.into());
    }
    let mut commands = Vec::with_capacity(number_of_commands);
    let mut at = 0;
    for number in 0..number_of_commands {
        let len = reader.u32("command length")? as usize;
        let found = reader.u32("command checksum")?;
        if behind.len() - at < len {
            return Err(FieldError::Value { field: "command length", value: len as u64 }.into());
        }
        let command = behind.slice(at..at + len);
        if crc(0, &command) != found {
            return Err(FrameError::CommandChecksum { number });
        }
        at += len;
        commands.push(command);
    }
    reader.end()?;
    if at != behind.len() {
        return Err(FrameError::Field(FieldError::Trailing { bytes: behind.len() - at }));
    }
    Ok(PeerMessage::Forward(Forward { from, to, incarnation, term, first_seq, commands }))
}

fn take_forward_reply(reader: &mut Reader<'_>) -> Result<ForwardReply, FieldError> {
    let from = NodeId(reader.u64("from")?);
    let to = NodeId(reader.u64("to")?);
    let incarnation = Incarnation(reader.u64("incarnation")?);
    let term = Term(reader.u64("term")?);
    let first_seq = reader.u64("first_seq")?;
    let number_of_verdicts = reader.u32("verdicts")? as usize;
    if reader.left() < number_of_verdicts {
        return Err(FieldError::Missing { field: "verdicts" });
    }
    let mut verdicts = Vec::with_capacity(number_of_verdicts);
    for _ in 0..number_of_verdicts {
        verdicts.push(match reader.u8("verdict")? {
            0 => Ok(take_id(reader, "verdict")?),
            number => Err(refusal(number)?),
        });
    }
    Ok(ForwardReply { from, to, incarnation, term, first_seq, verdicts })
}

fn refusal_number(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::NoLeader => 1,
        Refusal::TooManyRequests => 2,
        Refusal::NoSpace => 3,
        Refusal::LeaderChanged => 4,
        Refusal::ReadTimedOut => 5,
        Refusal::Replaying => 6,
        Refusal::Stopping => 7,
        Refusal::Member(MemberRefusal::UnderWay) => 8,
        Refusal::Member(MemberRefusal::NotFound) => 9,
        Refusal::Member(MemberRefusal::IdUsed) => 10,
        Refusal::Member(MemberRefusal::UrlsUsed) => 11,
        Refusal::Member(MemberRefusal::NotLearner) => 12,
        Refusal::Member(MemberRefusal::NotCaughtUp) => 13,
        Refusal::Member(MemberRefusal::WouldLoseQuorum) => 14,
        Refusal::Member(MemberRefusal::LastVoter) => 15,
        Refusal::Member(MemberRefusal::TooManyLearners) => 16,
        Refusal::Member(MemberRefusal::TooManyMembers) => 17,
        Refusal::Member(MemberRefusal::NotLeader) => 18,
        Refusal::Member(MemberRefusal::BadTransferee) => 19,
        Refusal::Member(MemberRefusal::TransferFailed) => 20,
        Refusal::Corrupt => 21,
        Refusal::TooMuchWork => 22,
        Refusal::AnswerTooLarge => 23,
        Refusal::Member(MemberRefusal::LevelTooLow) => 24,
        Refusal::Member(MemberRefusal::BadTiming) => 25,
        Refusal::LevelTooLow => 26,
        Refusal::Member(MemberRefusal::BadProtocol) => 27,
        Refusal::NotWeak => 28,
        Refusal::Overwritten => 29,
    }
}

fn refusal(number: u8) -> Result<Refusal, FieldError> {
    Ok(match number {
        1 => Refusal::NoLeader,
        2 => Refusal::TooManyRequests,
        3 => Refusal::NoSpace,
        4 => Refusal::LeaderChanged,
        5 => Refusal::ReadTimedOut,
        6 => Refusal::Replaying,
        7 => Refusal::Stopping,
        8 => Refusal::Member(MemberRefusal::UnderWay),
        9 => Refusal::Member(MemberRefusal::NotFound),
        10 => Refusal::Member(MemberRefusal::IdUsed),
        11 => Refusal::Member(MemberRefusal::UrlsUsed),
        12 => Refusal::Member(MemberRefusal::NotLearner),
        13 => Refusal::Member(MemberRefusal::NotCaughtUp),
        14 => Refusal::Member(MemberRefusal::WouldLoseQuorum),
        15 => Refusal::Member(MemberRefusal::LastVoter),
        16 => Refusal::Member(MemberRefusal::TooManyLearners),
        17 => Refusal::Member(MemberRefusal::TooManyMembers),
        18 => Refusal::Member(MemberRefusal::NotLeader),
        19 => Refusal::Member(MemberRefusal::BadTransferee),
        20 => Refusal::Member(MemberRefusal::TransferFailed),
        21 => Refusal::Corrupt,
        22 => Refusal::TooMuchWork,
        23 => Refusal::AnswerTooLarge,
        24 => Refusal::Member(MemberRefusal::LevelTooLow),
        25 => Refusal::Member(MemberRefusal::BadTiming),
        26 => Refusal::LevelTooLow,
        27 => Refusal::Member(MemberRefusal::BadProtocol),
        28 => Refusal::NotWeak,
        29 => Refusal::Overwritten,
        other => return Err(FieldError::Value { field: "verdict", value: other.into() }),
    })
}
