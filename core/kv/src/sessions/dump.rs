//! The table of sessions as bytes, and back.
//!
//! In:    a copy of the table.
//! Out:   chunks; and from such chunks, however they are cut, a table that cannot be told from it.
//! Rule:  equal tables give equal bytes, and any bytes are a table or are refused at the byte that is wrong. Byte boxes:
//!        docs/formats/sessions.md.
//! Knows nothing of: files, checksums, the tables beside this one.

use super::{
    Answers, Kept, List, Order, SESSION_BYTES_MAX, Session, Sessions, Settings, WINDOW, key, number_of,
};
use crate::answer;
use crate::api::{Key, Revision};
use crate::command::{Flaw, Malformed, Reader, write_bytes, write_number, write_signed};
use crate::dump::CHUNK_BYTES_MAX;
use crate::index::{Builder, Index};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

// Flags of a session.
const IS_USED: u8 = 1;
const ANY_ORDER: u8 = 2;

// Kinds of kept answers.
const PUT: u8 = 0;
const WHOLE: u8 = 1;
const TOO_LARGE: u8 = 2;

/// The bytes of a table: an iterator over chunks of 1 MiB at most.
#[derive(Debug)]
pub struct Dump {
    sessions: Sessions,
    /// The next session to write, first those of the unused list; 0 for none.
    next: u64,
    /// What is written and not yet given out.
    buffer: Vec<u8>,
}

impl Sessions {
    /// The encoded table.
    #[must_use]
    pub fn dump(self) -> Dump {
        let mut buffer = Vec::new();
        write_number(self.clock, &mut buffer);
        write_number(self.settings.idle_millis(), &mut buffer);
        write_number(self.settings.sessions_max, &mut buffer);
        buffer.extend_from_slice(&self.digest.to_le_bytes());
        write_number(self.count(), &mut buffer);
        let next = if self.unused.oldest == 0 { self.used.oldest } else { self.unused.oldest };
        Dump { sessions: self, next, buffer }
    }
}

impl Iterator for Dump {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        while self.buffer.len() < CHUNK_BYTES_MAX {
            let Some((_, session)) = self.sessions.index.get(&key(self.next)) else { break };
            write_session(self.next, session, &mut self.buffer);
            let ends_unused = session.newer == 0 && !session.is_used;
            self.next = if ends_unused { self.sessions.used.oldest } else { session.newer };
        }
        let rest = self.buffer.split_off(self.buffer.len().min(CHUNK_BYTES_MAX));
        Some(core::mem::replace(&mut self.buffer, rest)).filter(|chunk| !chunk.is_empty())
    }
}

fn write_session(number: u64, session: &Session, out: &mut Vec<u8>) {
    let is_used = if session.is_used { IS_USED } else { 0 };
    let any_order = if session.order == Order::Any { ANY_ORDER } else { 0 };
    out.push(is_used | any_order);
    write_number(number, out);
    out.extend_from_slice(&session.secret.to_le_bytes());
    [session.seen, session.first, session.last].into_iter().for_each(|number| write_number(number, out));
    let answers = session.answers.iter().flat_map(|answers| answers.iter());
    write_number(answers.clone().count() as u64, out);
    for (number, kept) in answers {
        write_number(number - session.first, out);
        match kept {
            Kept::Put(revision) => {
                out.push(PUT);
                write_signed(revision.0, out);
            }
            Kept::Whole(bytes) => {
                out.push(WHOLE);
                write_bytes(bytes, out);
            }
            Kept::TooLarge => out.push(TOO_LARGE),
        }
    }
}

/// Answers for which memory is reserved at once: a count alone decides no more.
const RESERVED_MAX: usize = 128;

/// A table being read.
#[derive(Debug, Default)]
pub struct Loader {
    /// The bytes before those that are pushed.
    offset: usize,
    carry: Vec<u8>,
    /// Once the header is read: the table, without sessions.
    table: Option<Sessions>,
    /// Sessions that are still to come.
    left: u64,
    /// Those read, in the order of their lists.
    sessions: Vec<(Key, Session)>,
}

impl Loader {
    /// Reads the next bytes. Once the table is complete, returns those after it, and expects no more.
    ///
    /// # Errors
    /// If they cannot be part of a table; later bytes cannot repair that.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        self.carry.extend_from_slice(chunk);
        let carry = core::mem::take(&mut self.carry);
        let mut used = 0;
        while self.table.is_none() || self.left > 0 {
            let mut reader = Reader { bytes: &carry[used..], at: 0 };
            match self.read_record(&mut reader) {
                Ok(()) => {
                    used += reader.at;
                    self.offset += reader.at;
                }
                // A length beyond the bytes so far may be right: it is bounded, and more bytes come.
                Err(Malformed { flaw: Flaw::Truncated, .. }) => {
                    self.carry = carry[used..].to_vec();
                    return Ok(None);
                }
                Err(Malformed { flaw, offset }) => {
                    return Err(Malformed { flaw, offset: self.offset + offset });
                }
            }
        }
        Ok(Some(carry[used..].to_vec()))
    }

    /// The table, once it is complete.
    ///
    /// # Errors
    /// If it is not.
    pub fn finish(self) -> Result<Sessions, Malformed> {
        let Loader { table: Some(mut table), left: 0, mut sessions, offset, .. } = self else {
            return Err(Malformed { offset: self.offset, flaw: Flaw::Truncated });
        };
        let numbers: Vec<u64> = sessions.iter().map(|(key, _)| number_of(key)).collect();
        for (at, (_, session)) in sessions.iter_mut().enumerate() {
            let list = if session.is_used { &mut table.used } else { &mut table.unused };
            (session.older, list.newest) = (list.newest, numbers[at]);
            if list.oldest == 0 {
                list.oldest = numbers[at];
            }
            table.bytes += session.bytes;
        }
        for at in 1..sessions.len() {
            if sessions[at].1.is_used == sessions[at - 1].1.is_used {
                sessions[at - 1].1.newer = numbers[at];
            }
        }
        sessions.sort_by(|(key, _), (other, _)| key.cmp(other));
        if sessions.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Malformed { offset, flaw: Flaw::Number });
        }
        let mut index = Builder::default();
        sessions.into_iter().for_each(|(key, session)| index.push(key, session));
        table.index = index.finish();
        Ok(table)
    }

    /// Reads the header or a session; changes nothing if it is incomplete.
    fn read_record(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let Some(table) = &self.table else {
            let clock = reader.number()?;
            let settings =
                Settings { idle: Duration::from_millis(reader.number()?), sessions_max: reader.number()? };
            if !settings.are_valid() {
                return Err(reader.flawed(Flaw::Number));
            }
            let digest = read_u64(reader)?;
            self.left = reader.number()?;
            let (index, unused, used) = (Index::new(), List::default(), List::default());
            let (ends_after, bytes) = (0, 0);
            self.table = Some(Sessions { index, unused, used, settings, clock, ends_after, bytes, digest });
            return Ok(());
        };
        let (number, session) = read_session(reader)?;
        let last = self.sessions.last().map(|(_, last)| (last.is_used, last.seen));
        let is_in_order = last.is_none_or(|last| last <= (session.is_used, session.seen));
        if !is_in_order || table.clock < session.seen {
            return Err(reader.flawed(Flaw::Number));
        }
        self.sessions.push((Key::from(&key(number)[..]), session));
        self.left -= 1;
        Ok(())
    }
}

fn read_u64(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let mut bytes = [0; 8];
    for byte in &mut bytes {
        *byte = reader.byte()?;
    }
    Ok(u64::from_le_bytes(bytes))
}

fn read_session(reader: &mut Reader<'_>) -> Result<(u64, Session), Malformed> {
    let flags = reader.byte()?;
    if flags & !(IS_USED | ANY_ORDER) != 0 {
        return Err(reader.unknown(flags));
    }
    let order = if flags & ANY_ORDER == 0 { Order::Strict } else { Order::Any };
    let number = reader.number()?;
    let secret = read_u64(reader)?;
    let [seen, first, last] = [reader.number()?, reader.number()?, reader.number()?];
    let count = reader.number()?;
    // A number is never 0, and the last before `first` was executed and acknowledged.
    let is_possible = number != 0 && first != 0 && first - 1 <= last && last != u64::MAX;
    if !is_possible || WINDOW < count {
        return Err(reader.flawed(Flaw::Number));
    }
    if order == Order::Strict && count != last + 1 - first {
        return Err(reader.flawed(Flaw::Number));
    }
    let mut answers = Answers::with_capacity((count as usize).min(RESERVED_MAX));
    let mut bytes = 0;
    for _ in 0..count {
        let number = first.checked_add(reader.number()?).filter(|&number| number <= last);
        let is_next = answers.back().is_none_or(|(before, _)| number.is_some_and(|number| *before < number));
        let (Some(number), true) = (number, is_next) else { return Err(reader.flawed(Flaw::Number)) };
        let kept = read_kept(reader)?;
        bytes += kept.bytes();
        if SESSION_BYTES_MAX < bytes {
            return Err(reader.flawed(Flaw::Length(bytes))); // no session keeps so many
        }
        answers.push_back((number, kept));
    }
    // The highest number executed has an answer, unless that is acknowledged.
    if first <= last && answers.back().is_none_or(|(number, _)| *number != last) {
        return Err(reader.flawed(Flaw::Number));
    }
    let answers = (!answers.is_empty()).then(|| Arc::new(answers));
    let is_used = flags & IS_USED != 0;
    let (older, newer) = (0, 0);
    Ok((number, Session { secret, order, is_used, seen, older, newer, first, last, bytes, answers }))
}

fn read_kept(reader: &mut Reader<'_>) -> Result<Kept, Malformed> {
    Ok(match reader.byte()? {
        PUT => Kept::Put(Revision(reader.signed()?)),
        WHOLE => {
            let length = reader.number()?;
            if SESSION_BYTES_MAX < length {
                return Err(reader.flawed(Flaw::Length(length)));
            }
            let offset = reader.at;
            let bytes = reader.bytes.get(offset..offset + length as usize);
            let bytes = bytes.ok_or(reader.flawed(Flaw::Truncated))?;
            reader.at += bytes.len();
            let result = answer::decode(bytes)
                .map_err(|malformed| Malformed { offset: offset + malformed.offset, flaw: Flaw::Kept })?;
            // One that is kept in a shorter form has no other.
            let kept = Kept::of(&result);
            if !matches!(kept, Kept::Whole(_)) {
                return Err(reader.flawed(Flaw::Kept));
            }
            Kept::Whole(Arc::from(bytes))
        }
        TOO_LARGE => Kept::TooLarge,
        kind => return Err(reader.unknown(kind)),
    })
}
