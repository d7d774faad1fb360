//! Session commands: what the log says about sessions of clients.
//!
//! ```text
//!   register ─▶ id ─▶ command 1, 2, 3, … ─▶ close
//!                     └── signs of life of many sessions in one entry ──┘
//! ```
//! In a session a command of the store stands behind a header: which session, which number, which answers the client has.
//! The rest of its bytes is what it would be without one. Since feature level [`SESSIONS`](crate::level::SESSIONS).
//! [docs/formats/command.md; replication-protocols §10]
//! Knows nothing of: the table of sessions, the encoding of store commands.

use crate::command::{self, Malformed, take};
use alloc::vec::Vec;
use core::time::Duration;
use kattu_kv::command::{take_number, write_number};
use kattu_kv::sessions::{NAMED_MAX, Order, SessionId, Settings};

/// The leading byte (docs/formats/command.md).
pub(crate) const BYTE: u8 = 8;

const REGISTER: u8 = 1;
const WITHIN: u8 = 2;
const KEEP_ALIVE: u8 = 3;
const CLOSE: u8 = 4;
const SET: u8 = 5;

/// The user on whose behalf a command is given: 0, until there are users.
const PRINCIPAL: u64 = 0;

/// A command about sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// Registers a session, whose number is the index of this entry.
    Register {
        /// Random, drawn where the request entered.
        secret: u64,
        /// How its commands are ordered.
        order: Order,
    },
    /// Signs of life, each with the first number whose answer the client does not have.
    KeepAlive(Vec<(SessionId, u64)>),
    /// Ends sessions.
    Close(Vec<SessionId>),
    /// Ends the session of this number without its secret: for operators.
    Expel(u64),
    /// Sets what is true of all sessions.
    Set(Settings),
}

/// What stands in front of a command in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionHeader {
    /// The session.
    pub id: SessionId,
    /// The command's number in it, from 1.
    pub number: u64,
    /// The first number whose answer the client does not have; at most `number`.
    pub first_unacked: u64,
}

impl SessionHeader {
    /// The bytes of a command in this session; `command` is that of the store ([`crate::command::encode_kv`]).
    ///
    /// # Panics
    /// If `first_unacked` is above the number or 0.
    #[must_use]
    pub fn around(&self, command: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(command.len() + 32);
        self.write_around(command, &mut out);
        out
    }

    /// Appends the bytes of a command in this session, as [`SessionHeader::around`].
    ///
    /// # Panics
    /// If `first_unacked` is above the number or 0.
    pub fn write_around(&self, command: &[u8], out: &mut Vec<u8>) {
        let SessionHeader { id, number, first_unacked } = *self;
        assert!(
            (1..=number).contains(&first_unacked),
            "number {number}, unacknowledged from {first_unacked}"
        );
        begin(WITHIN, out);
        put_id(out, id);
        write_number(number, out);
        write_number(number - first_unacked, out);
        out.extend_from_slice(command);
    }

    /// Takes the header off the front of a command in a session; `None` if the bytes are another command or none.
    #[must_use]
    pub fn take(bytes: &[u8]) -> Option<(SessionHeader, &[u8])> {
        let [BYTE, WITHIN, rest @ ..] = bytes else { return None };
        let mut rest = rest;
        take_principal(&mut rest)?;
        let id = take_id(&mut rest)?;
        let number = take_number(&mut rest).filter(|&number| number != u64::MAX)?;
        let first_unacked = number.checked_sub(take_number(&mut rest)?).filter(|&first| first != 0)?;
        Some((SessionHeader { id, number, first_unacked }, rest))
    }
}

impl SessionCommand {
    /// The bytes of this command.
    ///
    /// # Panics
    /// If it is about more than [`NAMED_MAX`] sessions.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            SessionCommand::Register { secret, order } => {
                begin(REGISTER, &mut out);
                out.push(u8::from(*order == Order::Any));
                out.extend_from_slice(&secret.to_le_bytes());
            }
            SessionCommand::KeepAlive(alive) => {
                out.reserve(16 * alive.len());
                begin(KEEP_ALIVE, &mut out);
                put_count(&mut out, alive.len());
                for (id, first_unacked) in alive {
                    put_id(&mut out, *id);
                    write_number(*first_unacked, &mut out);
                }
            }
            SessionCommand::Close(ids) => {
                out.reserve(16 * ids.len());
                begin(CLOSE, &mut out);
                put_count(&mut out, ids.len());
                ids.iter().for_each(|id| put_id(&mut out, *id));
            }
            SessionCommand::Expel(number) => {
                begin(CLOSE, &mut out);
                put_count(&mut out, 0);
                write_number(*number, &mut out);
            }
            SessionCommand::Set(settings) => {
                begin(SET, &mut out);
                write_number(settings.idle_millis(), &mut out);
                write_number(settings.sessions_max, &mut out);
            }
        }
        out
    }

    /// Reads what follows the leading byte, unless it is a command in a session.
    pub(crate) fn decode(bytes: &[u8]) -> Result<SessionCommand, Malformed> {
        SessionCommand::take(bytes).ok_or(Malformed)
    }

    fn take(bytes: &[u8]) -> Option<SessionCommand> {
        let (&kind, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        take_principal(rest)?;
        let command = match kind {
            REGISTER => {
                let order = match take(rest, 1).ok()? {
                    [0] => Order::Strict,
                    [1] => Order::Any,
                    _ => return None,
                };
                SessionCommand::Register { secret: take_u64(rest)?, order }
            }
            KEEP_ALIVE => {
                let alive: Option<_> = (0..take_count(rest)?)
                    .map(|_| Some((take_id(rest)?, take_number(rest).filter(|&first| first != 0)?)))
                    .collect();
                SessionCommand::KeepAlive(alive?)
            }
            CLOSE => match take_count(rest)? {
                0 => SessionCommand::Expel(take_number(rest)?),
                count => SessionCommand::Close((0..count).map(|_| take_id(rest)).collect::<Option<_>>()?),
            },
            SET => {
                let idle = Duration::from_millis(take_number(rest)?);
                let settings = Settings { idle, sessions_max: take_number(rest)? };
                SessionCommand::Set(Some(settings).filter(Settings::are_valid)?)
            }
            _ => return None,
        };
        rest.is_empty().then_some(command)
    }

    /// How many sessions it is about: the work that it makes.
    pub(crate) fn named(&self) -> usize {
        match self {
            SessionCommand::KeepAlive(alive) => alive.len(),
            SessionCommand::Close(ids) => ids.len(),
            SessionCommand::Register { .. } | SessionCommand::Expel(_) | SessionCommand::Set(_) => 1,
        }
    }

    /// Whether it may make the tables larger.
    pub(crate) fn grows(&self) -> bool {
        matches!(self, SessionCommand::Register { .. })
    }
}

/// Whether these bytes are about sessions, if they are a command at all.
#[must_use]
pub fn is_of_session(command: &[u8]) -> bool {
    command.first() == Some(&BYTE)
}

fn begin(kind: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[BYTE, kind]);
    write_number(PRINCIPAL, out);
}

fn take_principal(rest: &mut &[u8]) -> Option<u64> {
    // To a version without users, a command of a user is unreadable: it must not be applied as one of no user.
    take_number(rest).filter(|&principal| principal == PRINCIPAL)
}

fn put_id(out: &mut Vec<u8>, id: SessionId) {
    write_number(id.number, out);
    out.extend_from_slice(&id.secret.to_le_bytes());
}

fn take_id(rest: &mut &[u8]) -> Option<SessionId> {
    Some(SessionId { number: take_number(rest)?, secret: take_u64(rest)? })
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    command::take_u64(rest).ok()
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    assert!(count <= NAMED_MAX, "{count} sessions in one command");
    write_number(count as u64, out);
}

fn take_count(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(take_number(rest)?).ok().filter(|&count| count <= NAMED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, encode_kv, grows, is_for_store, is_of_client, put_in, within};
    use alloc::vec;
    use kattu_kv::api as kv;

    const ID: SessionId = SessionId { number: 300, secret: 0x0807_0605_0403_0201 };

    #[test]
    fn a_command_about_sessions_survives_its_bytes_and_no_truncation_of_them() {
        let commands = [
            SessionCommand::Register { secret: 7, order: Order::Strict },
            SessionCommand::Register { secret: u64::MAX, order: Order::Any },
            SessionCommand::KeepAlive(vec![(ID, 1), (SessionId::default(), u64::MAX)]),
            SessionCommand::KeepAlive(vec![]),
            SessionCommand::Close(vec![ID, ID]),
            SessionCommand::Expel(300),
            SessionCommand::Set(Settings::default()),
        ];
        for command in commands {
            let mut bytes = command.encode();
            let registers = matches!(command, SessionCommand::Register { .. });
            assert!(is_of_client(&bytes) && !is_for_store(&bytes) && grows(&bytes) == registers);
            assert_eq!(Command::decode(&bytes), Ok(Command::Session(command)));
            for length in 0..bytes.len() {
                assert_eq!(Command::decode(&bytes[..length]), Err(Malformed), "{length} bytes");
            }
            bytes.push(0);
            assert_eq!(Command::decode(&bytes), Err(Malformed), "a byte too many");
        }
    }

    #[test]
    fn a_command_in_a_session_is_the_stores_behind_a_header() {
        let header = SessionHeader { id: ID, number: 130, first_unacked: 128 };
        let put = kv::Command::Put(kv::Put { key: vec![b'k'], value: vec![b'v'], ..kv::Put::default() });
        let plain = encode_kv(&put);
        let bytes = header.around(&plain);
        let as_page = [&[8, 2, 0, 0xac, 0x02, 1, 2, 3, 4, 5, 6, 7, 8, 0x82, 0x01, 2][..], &plain].concat();
        assert_eq!(bytes, as_page);
        assert_eq!(SessionHeader::take(&bytes), Some((header, &plain[..])));
        assert!(is_of_client(&bytes) && is_for_store(&bytes) && grows(&bytes));
        assert_eq!(put_in(&bytes).map(|put| put.key), Some(&b"k"[..]));
        assert_eq!(Command::decode(&bytes), Ok(Command::InSession { header, work_max: None, command: put }));
        for length in 0..bytes.len() {
            assert_eq!(Command::decode(&bytes[..length]), Err(Malformed), "{length} bytes");
        }
        let keys = kv::KeyRange { start: vec![b'a'], end: vec![b'b'] };
        let delete = kv::Command::DeleteRange(kv::DeleteRange { keys, prev_kv: false });
        let bytes = within(300, &header.around(&encode_kv(&delete)));
        assert!(is_for_store(&bytes) && !grows(&bytes) && put_in(&bytes).is_none());
        assert_eq!(
            Command::decode(&bytes),
            Ok(Command::InSession { header, work_max: Some(300), command: delete })
        );
    }

    #[test]
    fn what_no_client_may_say_is_no_command() {
        let header = SessionHeader { id: ID, number: 5, first_unacked: 5 };
        let alarm = crate::alarms::AlarmChange::Clear(crate::alarms::Alarm::corrupt(kattu_raft::NodeId(1)));
        let mut principal = header.around(&encode_kv(&kv::Command::Compact(kv::Revision(3))));
        principal[2] = 1;
        let cases: [(&str, Vec<u8>); 6] = [
            ("an alarm in a session", header.around(&alarm.encode())),
            ("a session in a session", header.around(&header.around(&[0, 0x14, 2]))),
            ("of a user, before there are users", principal),
            ("no number is 0", vec![8, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 2]),
            (
                "more unacknowledged than there are",
                vec![8, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0x14, 2],
            ),
            ("an idle time of nothing", vec![8, 5, 0, 0, 9]),
        ];
        for (name, bytes) in cases {
            assert_eq!(Command::decode(&bytes), Err(Malformed), "{name}");
        }
    }
}
