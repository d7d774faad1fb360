//! Bundles: several puts of clients in one entry.
//!
//! ```text
//!   put put put delete put put ──▶ [put put put] delete [put put]        one entry each
//! ```
//! An entry costs every member the same whatever it holds: a record in the log, a place in a message, a task of the keeper. Small
//! puts that wait together share it. Since feature level [`BUNDLES`](crate::level::BUNDLES).
//!
//! Rules: 1. A bundle is what its commands would be one after the other in entries of their own: each is judged, executed and
//!           answered by itself, and none knows of the others.
//!        2. The tables are at an entry's index when all of its commands are applied: no read and no snapshot sees some of them,
//!           and no answer is given before.
//!        3. Commands keep their order. A member makes bundles of what its own clients gave it, and answers them when it applies it.
//!           [docs/formats/command.md]
//!
//! Knows nothing of: the table of sessions, tickets, logs.

use crate::command::put_in;
use crate::session::SessionHeader;
use alloc::vec::Vec;
use core::ops::Range;
use kattu_kv::api as kv;
use kattu_kv::command::{take_number, write_number};
use kattu_raft::SharedBytes;

/// The leading byte (docs/formats/command.md).
pub(crate) const BYTE: u8 = 9;

/// Bytes of a bundle at most: what an entry costs is small beside what so many bytes of puts cost.
const BYTES_MAX: usize = 8 << 10;

/// Bytes of a command in a bundle at most: what an entry costs is small beside what a larger one costs.
const COMMAND_BYTES_MAX: usize = 1 << 10;

/// Whether a command may share an entry: a small put, in a session or not. What a put costs is then in its bytes: one that keeps
/// a former value costs as much as that value.
pub(crate) fn may_share(command: &[u8]) -> bool {
    command.len() <= COMMAND_BYTES_MAX && put_in(command).is_some_and(|put| !put.ignore_value)
}

/// Whether these bytes are a bundle, if they are a command at all.
pub(crate) fn is_bundle(command: &[u8]) -> bool {
    command.first() == Some(&BYTE)
}

/// The bytes of a bundle of these commands.
///
/// # Panics
/// If they are fewer than two, or one of them may not share an entry.
#[must_use]
pub fn encode<'a>(commands: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::from([BYTE]);
    let mut count = 0;
    for command in commands {
        assert!(may_share(command), "this command needs an entry of its own");
        put(command, &mut out);
        count += 1;
    }
    assert!(2 <= count, "{count} commands are no bundle");
    out
}

fn put(command: &[u8], out: &mut Vec<u8>) {
    write_number(command.len() as u64, out);
    out.extend_from_slice(command);
}

/// The commands of a bundle, one after the other.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    /// The commands in these bytes; none if they are no bundle. Whether each can be read, only the iteration tells.
    #[must_use]
    pub fn of(command: &'a [u8]) -> Option<Parts<'a>> {
        match command.split_first() {
            Some((&BYTE, rest)) => Some(Parts { rest }),
            _ => None,
        }
    }

    /// The commands of this bundle that stand behind those of so many bytes.
    pub(crate) fn after(bundle: &'a [u8], bytes: usize) -> Parts<'a> {
        Parts { rest: &bundle[bytes.max(1)..] }
    }

    /// Bytes of the commands that are left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Whether no command is left.
    pub(crate) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self) -> Option<Part<'a>> {
        let length = usize::try_from(take_number(&mut self.rest)?).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        if COMMAND_BYTES_MAX < length {
            return None;
        }
        let (header, of_store) = match SessionHeader::take(bytes) {
            Some((header, of_store)) => (Some(header), of_store),
            None => (None, bytes),
        };
        let put = crate::command::put_of_store(of_store).filter(|put| !put.ignore_value)?;
        Some(Part { bytes, header, put })
    }
}

/// A command of a bundle.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its bytes, as they would stand in an entry of their own.
    pub bytes: &'a [u8],
    /// Its place in a session, if it has one.
    pub header: Option<SessionHeader>,
    /// What it asks for.
    pub put: kv::PutRef<'a>,
}

impl<'a> Iterator for Parts<'a> {
    /// `None` inside: the bytes are no bundle from here on; nothing comes after it.
    type Item = Option<Part<'a>>;

    fn next(&mut self) -> Option<Option<Part<'a>>> {
        if self.rest.is_empty() {
            return None;
        }
        let part = self.take();
        if part.is_none() {
            self.rest = &[];
        }
        Some(part)
    }
}

/// Whether these bytes are a bundle that this version can apply.
pub(crate) fn is_readable(command: &[u8]) -> bool {
    let Some(mut parts) = Parts::of(command).filter(|_| command.len() <= BYTES_MAX) else { return false };
    let mut count = 0;
    let all = parts.all(|part| {
        count += 1;
        part.is_some()
    });
    all && 2 <= count
}

/// What the next entries hold, made of commands in order.
#[derive(Debug, Default)]
pub(crate) struct Payloads<'a> {
    /// The bytes of all bundles.
    bundles: Vec<u8>,
    payloads: Vec<Payload<'a>>,
}

#[derive(Debug)]
struct Payload<'a> {
    /// Its first command: all of it, unless it is a bundle.
    first: &'a [u8],
    /// Where the bundle is, if it is one.
    bundle: Range<usize>,
    /// Commands.
    count: usize,
    /// Whether another one may come to it.
    shares: bool,
}

impl<'a> Payloads<'a> {
    /// Room for so many commands.
    pub(crate) fn with_capacity(commands: usize) -> Payloads<'a> {
        Payloads { bundles: Vec::new(), payloads: Vec::with_capacity(commands) }
    }

    /// Adds a command; `shares`: to those before it, if there is room, and those behind it to this one.
    pub(crate) fn push(&mut self, command: &'a [u8], shares: bool) {
        if let Some(last) = self.payloads.last_mut().filter(|last| shares && last.shares) {
            let before = if last.count == 1 { last.first.len() + 4 } else { last.bundle.len() };
            if before + command.len() + 3 <= BYTES_MAX {
                if last.count == 1 {
                    last.bundle.start = self.bundles.len();
                    self.bundles.push(BYTE);
                    put(last.first, &mut self.bundles);
                }
                put(command, &mut self.bundles);
                last.bundle.end = self.bundles.len();
                last.count += 1;
                return;
            }
        }
        self.payloads.push(Payload { first: command, bundle: 0..0, count: 1, shares });
    }

    /// The bytes of each payload.
    pub(crate) fn bytes(&self) -> Vec<&[u8]> {
        let bytes = |payload: &Payload<'a>| match payload.count {
            1 => payload.first,
            _ => &self.bundles[payload.bundle.clone()],
        };
        // A shorter lifetime than that of the commands: bundles are here.
        self.payloads.iter().map(bytes).collect()
    }

    /// The bundle that each payload is, if it is one, in bytes of its own.
    pub(crate) fn bundles(&self) -> Vec<Option<SharedBytes>> {
        let bundle = |payload: &Payload<'a>| match payload.count {
            1 => None,
            _ => Some(self.bundles[payload.bundle.clone()].to_vec().into()),
        };
        self.payloads.iter().map(bundle).collect()
    }

    /// How many commands each payload holds.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.payloads.iter().map(|payload| payload.count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Malformed, encode_kv, grows, is_for_store, is_of_client, within};
    use alloc::vec;
    use kattu_kv::sessions::SessionId;

    const ID: SessionId = SessionId { number: 300, secret: 7 };

    fn put_of(key: &str, value: usize) -> Vec<u8> {
        encode_kv(&kv::Command::Put(kv::Put {
            key: key.into(),
            value: vec![b'v'; value],
            ..kv::Put::default()
        }))
    }

    fn in_session(number: u64, command: &[u8]) -> Vec<u8> {
        SessionHeader { id: ID, number, first_unacked: 1 }.around(command)
    }

    #[test]
    fn a_bundle_survives_its_bytes_and_no_truncation_within_a_command() {
        let commands = [put_of("a", 1), in_session(5, &put_of("b", 200)), put_of("c", 0)];
        let bytes = encode(commands.iter().map(Vec::as_slice));
        assert_eq!(bytes[..3], [9, commands[0].len() as u8, 0], "a length of one byte, then the command");
        let found: Vec<_> = Parts::of(&bytes).expect("a bundle").collect::<Option<_>>().expect("readable");
        assert!(found.iter().map(|part: &Part<'_>| part.bytes).eq(commands.iter().map(Vec::as_slice)));
        assert_eq!(found[1].header.map(|header| header.number), Some(5));
        assert_eq!(found[1].put.key, b"b");
        assert!(is_readable(&bytes) && grows(&bytes) && !is_for_store(&bytes) && !is_of_client(&bytes));
        let all = commands.iter().map(|command| Command::decode(command).expect("one of them")).collect();
        assert_eq!(Command::decode(&bytes), Ok(Command::Bundle(all)));
        let two = bytes.len() - 1 - commands[2].len();
        for length in 0..bytes.len() {
            let is_whole = length == two;
            assert_eq!(is_readable(&bytes[..length]), is_whole, "{length} bytes");
            assert_eq!(Command::decode(&bytes[..length]).is_ok(), is_whole, "{length} bytes");
        }
    }

    #[test]
    fn what_needs_an_entry_of_its_own_is_in_no_bundle() {
        let small = put_of("a", 1);
        let keeps = encode_kv(&kv::Command::Put(kv::Put {
            key: vec![b'a'],
            ignore_value: true,
            ..kv::Put::default()
        }));
        let keys = kv::KeyRange { start: vec![b'a'], end: vec![] };
        let delete = encode_kv(&kv::Command::DeleteRange(kv::DeleteRange { keys, prev_kv: false }));
        let cases: [(&str, Vec<u8>); 6] = [
            ("one that keeps a value", keeps),
            ("a large one", put_of("a", COMMAND_BYTES_MAX)),
            ("a delete", delete.clone()),
            ("one with a budget", in_session(1, &within(300, &delete))),
            ("about sessions", crate::session::SessionCommand::Close(vec![ID]).encode()),
            ("a bundle", encode([&small[..], &small[..]])),
        ];
        for (name, command) in cases {
            assert!(!may_share(&command), "{name}");
            let mut bytes = vec![BYTE];
            put(&small, &mut bytes);
            put(&command, &mut bytes);
            assert_eq!(Command::decode(&bytes), Err(Malformed), "{name}");
            assert!(!is_readable(&bytes), "{name}");
        }
        let mut alone = vec![BYTE];
        put(&small, &mut alone);
        assert_eq!(Command::decode(&alone), Err(Malformed), "one command has an entry of its own");
        let many = vec![&small[..]; BYTES_MAX / small.len()];
        assert_eq!(Command::decode(&encode(many)), Err(Malformed), "larger than any leader makes it");
        assert_eq!(Command::decode(&[BYTE, 0x84, 0, 0, 0x11]), Err(Malformed), "a length in a longer form");
    }

    #[test]
    fn payloads_hold_all_commands_in_order_and_only_those_that_share_together() {
        let small: Vec<_> = (0..600).map(|number| in_session(number + 1, &put_of("k", 16))).collect();
        let (large, delete) = (put_of("l", 5000), vec![3]);
        let mut payloads = Payloads::with_capacity(8);
        payloads.push(&small[0], true);
        payloads.push(&large, false);
        payloads.push(&small[1], true);
        payloads.push(&small[2], true);
        payloads.push(&delete, false);
        payloads.push(&delete, false);
        small[3..].iter().for_each(|command| payloads.push(command, true));
        let (bytes, counts) = (payloads.bytes(), payloads.counts());
        assert_eq!(counts[..5], [1, 1, 2, 1, 1]);
        assert_eq!(counts.iter().sum::<usize>(), 603);
        let mut found = Vec::new();
        for (bytes, &count) in bytes.iter().zip(&counts) {
            assert_eq!(is_bundle(bytes), count != 1);
            match Parts::of(bytes) {
                Some(parts) => found.extend(parts.map(|part| part.expect("readable").bytes)),
                None => found.push(bytes),
            }
            assert!(count == 1 || is_readable(bytes) && bytes.len() <= BYTES_MAX);
        }
        let given = [&[&small[0][..], &large, &small[1], &small[2], &delete, &delete][..]];
        let given = given.concat().into_iter().chain(small[3..].iter().map(Vec::as_slice));
        assert!(found.into_iter().eq(given));
        let full = &bytes[5..bytes.len() - 1];
        assert!(full.iter().all(|bytes| BYTES_MAX - 60 < bytes.len()), "they are as full as they can be");
    }
}
