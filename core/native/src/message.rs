//! Message: the requests of a client.
//!
//! Each has the user on whose behalf it is made in front: 0, until there are users. Bytes of commands and of queries are those
//! of docs/formats/command.md.
//! Knows nothing of: answers, what a command does.

use crate::frame::{FrameWriter, Message};
use alloc::vec::Vec;
use kattu_kv::command::{take_number, write_number};
use kattu_kv::sessions::{NAMED_MAX, Order, SessionId};
use kattu_wire::fields::{FieldError, Reader, Write};

// Kinds of requests. A number is never used twice; 25 to 31 are kept for columns and watches.
const OPEN: u8 = 16;
const WRITE: u8 = 17;
const KEEP_ALIVE: u8 = 18;
const CLOSE: u8 = 19;
const READ: u8 = 20;
const PING: u8 = 21;
const SESSIONS: u8 = 22;
const EXPEL: u8 = 23;
const WEAK: u8 = 24;

/// Flag of a write: the client wants no result, only to know that it is committed.
const COMMIT_ONLY: u8 = 1;

/// The user on whose behalf requests are made, until there are users.
const PRINCIPAL: u64 = 0;

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Sees every write that was answered before the read began.
    Linearizable,
    /// Sees everything up to this log index.
    AtLeast(u64),
    /// Sees every write that was answered longer ago than so many nanoseconds.
    Bounded(u64),
    /// Sees some state that existed, never going back on one member.
    Serializable,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Opens a session.
    Open(Order),
    /// A command of the store, in a session or in none.
    Write {
        /// No result is wanted, only to know that it is committed.
        commit_only: bool,
        /// Its bytes.
        command: &'a [u8],
    },
    /// Signs of life, each with the first number whose answer the client does not have.
    KeepAlive(Vec<(SessionId, u64)>),
    /// Ends sessions.
    Close(Vec<SessionId>),
    /// A read.
    Read {
        /// How fresh it must be.
        level: Level,
        /// Its bytes.
        query: &'a [u8],
    },
    /// Asks for an answer.
    Ping,
    /// Asks which sessions there are, for operators.
    Sessions {
        /// The first number.
        from: u64,
        /// How many, at most [`LISTED_MAX`](crate::reply::LISTED_MAX).
        count: u32,
    },
    /// Ends the session of this number, for operators: its secret is not needed.
    Expel(u64),
    /// A put or a delete in a strict session, as a write, by its bytes: besides its answer the client wants to know when a
    /// quorum has received it. From version 2 on.
    Weak(&'a [u8]),
}

/// Adds a write, or a weak one, to a frame, under the client's name for it, as [`Request::write`] does: `command` appends its
/// bytes, which are not laid out anywhere else before.
pub fn write_command(
    request: u64,
    is_weak: bool,
    writer: &mut FrameWriter,
    command: impl FnOnce(&mut Vec<u8>),
) {
    writer.message(if is_weak { WEAK } else { WRITE }, 0, request, |out| {
        write_number(PRINCIPAL, out);
        command(out);
    });
}

impl<'a> Request<'a> {
    /// Adds the request to a frame, under the client's name for it.
    ///
    /// # Panics
    /// If it names more than [`NAMED_MAX`] sessions.
    pub fn write(&self, request: u64, writer: &mut FrameWriter) {
        let (kind, flags) = match self {
            Request::Open(_) => (OPEN, 0),
            Request::Write { commit_only, .. } => (WRITE, u8::from(*commit_only) * COMMIT_ONLY),
            Request::KeepAlive(_) => (KEEP_ALIVE, 0),
            Request::Close(_) => (CLOSE, 0),
            Request::Read { .. } => (READ, 0),
            Request::Ping => (PING, 0),
            Request::Sessions { .. } => (SESSIONS, 0),
            Request::Expel(_) => (EXPEL, 0),
            Request::Weak(_) => (WEAK, 0),
        };
        writer.message(kind, flags, request, |out| {
            write_number(PRINCIPAL, out);
            match self {
                Request::Open(order) => out.put_u8(u8::from(*order == Order::Any)),
                Request::Write { command, .. } => out.extend_from_slice(command),
                Request::KeepAlive(sessions) => {
                    assert!(sessions.len() <= NAMED_MAX, "{} sessions in a request", sessions.len());
                    for (id, first_unacked) in sessions {
                        put_id(*id, out);
                        out.put_u64(*first_unacked);
                    }
                }
                Request::Close(sessions) => {
                    assert!(sessions.len() <= NAMED_MAX, "{} sessions in a request", sessions.len());
                    sessions.iter().for_each(|id| put_id(*id, out));
                }
                Request::Read { level, query } => {
                    let (level, operand) = match *level {
                        Level::Linearizable => (0, 0),
                        Level::AtLeast(index) => (1, index),
                        Level::Bounded(age) => (2, age),
                        Level::Serializable => (3, 0),
                    };
                    out.put_u8(level);
                    out.put_u64(operand);
                    out.extend_from_slice(query);
                }
                Request::Ping => {}
                Request::Sessions { from, count } => {
                    out.put_u64(*from);
                    out.put_u32(*count);
                }
                Request::Expel(number) => out.put_u64(*number),
                Request::Weak(command) => out.extend_from_slice(command),
            }
        });
    }

    /// Reads a request. Commands and queries are bytes still.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn read(message: &Message<'a>) -> Result<Request<'a>, FieldError> {
        let known = if message.kind == WRITE { COMMIT_ONLY } else { 0 };
        if message.flags & !known != 0 {
            return Err(FieldError::Value { field: "flags", value: message.flags.into() });
        }
        let mut rest = message.fields;
        let principal = take_number(&mut rest).ok_or(FieldError::Missing { field: "principal" })?;
        if principal != PRINCIPAL {
            return Err(FieldError::Value { field: "principal", value: principal });
        }
        let mut fields = Reader::new(rest);
        let request = match message.kind {
            OPEN => Request::Open(if fields.bool("order")? { Order::Any } else { Order::Strict }),
            WRITE => {
                let command = fields.bytes(fields.left(), "command")?;
                Request::Write { commit_only: message.flags == COMMIT_ONLY, command }
            }
            KEEP_ALIVE => Request::KeepAlive(list(&mut fields, NAMED_MAX, |fields| {
                Ok((take_id(fields)?, fields.u64("first unacknowledged")?))
            })?),
            CLOSE => Request::Close(list(&mut fields, NAMED_MAX, take_id)?),
            READ => {
                let (level, operand) = (fields.u8("level")?, fields.u64("operand")?);
                let level = match (level, operand) {
                    (0, 0) => Level::Linearizable,
                    (1, index) => Level::AtLeast(index),
                    (2, age) => Level::Bounded(age),
                    (3, 0) => Level::Serializable,
                    _ => return Err(FieldError::Value { field: "level", value: level.into() }),
                };
                Request::Read { level, query: fields.bytes(fields.left(), "query")? }
            }
            PING => Request::Ping,
            SESSIONS => Request::Sessions { from: fields.u64("from")?, count: fields.u32("count")? },
            EXPEL => Request::Expel(fields.u64("session")?),
            WEAK => Request::Weak(fields.bytes(fields.left(), "command")?),
            kind => return Err(FieldError::Value { field: "kind", value: kind.into() }),
        };
        fields.end()?;
        Ok(request)
    }
}

pub(crate) fn put_id(id: SessionId, out: &mut Vec<u8>) {
    out.put_u64(id.number);
    out.put_u64(id.secret);
}

pub(crate) fn take_id(fields: &mut Reader<'_>) -> Result<SessionId, FieldError> {
    Ok(SessionId { number: fields.u64("session")?, secret: fields.u64("secret")? })
}

/// All that is left, as items, of which so many are accepted.
pub(crate) fn list<T>(
    fields: &mut Reader<'_>,
    most: usize,
    item: impl Fn(&mut Reader<'_>) -> Result<T, FieldError>,
) -> Result<Vec<T>, FieldError> {
    let mut items = Vec::new();
    while fields.left() > 0 {
        if items.len() == most {
            return Err(FieldError::Value { field: "sessions", value: most as u64 + 1 });
        }
        items.push(item(fields)?);
    }
    Ok(items)
}
