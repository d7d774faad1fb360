//! Reply: a member's answer to one request.
//!
//! ```text
//!  ├ u64 index ┼ u64 strong ┼ u8 outcome ┼ the outcome's fields ┤
//! ```
//! The index is a log position at which the answer holds: a read at least as new sees it. *Strong* is the number up to which
//! every command of the request's session is executed; 0 where there is no session.
//! Knows nothing of: requests, how a client repeats them.

use crate::frame::{FrameWriter, Message};
use crate::handshake::Leader;
use crate::message::{list, put_id, take_id};
use alloc::vec::Vec;
use kattu_kv::answer;
use kattu_kv::api::{Error, Response};
use kattu_kv::lookup::FoundKey;
use kattu_kv::sessions::{NAMED_MAX, SessionError, SessionId};
use kattu_wire::fields::{FieldError, Reader, Write};

/// The kind of message.
const REPLY: u8 = 3;

// Outcomes. A number is never used twice.
const DONE: u8 = 0;
const COMMITTED: u8 = 1;
const OPENED: u8 = 2;
const NAMED: u8 = 3;
const SESSION_ERROR: u8 = 4;
const REFUSED: u8 = 5;
const UNKNOWN: u8 = 6;
const MALFORMED: u8 = 7;
const SESSIONS: u8 = 8;
const RECEIVED: u8 = 9;

/// Most sessions of one list.
pub const LISTED_MAX: usize = 1000;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// A log position at which it holds.
    pub index: u64,
    /// All commands of the session up to this number are executed.
    pub strong: u64,
    /// The content.
    pub outcome: Outcome<'a>,
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// What the store answered, in bytes (docs/formats/answer.md). Final, also where it is an error. Empty for a ping.
    Done(&'a [u8]),
    /// It is committed; its result was not wanted.
    Committed,
    /// A quorum has received the command as the entry at the answer's index, in this term. Not final: another answer of the same
    /// name follows.
    Received {
        /// The term.
        term: u64,
    },
    /// The session is open.
    Opened {
        /// Its name.
        id: SessionId,
        /// How long it lasts without a command or a sign of life, in milliseconds.
        idle: u64,
    },
    /// Sessions were kept alive or closed.
    Named {
        /// How long a session lasts without a command or a sign of life, in milliseconds.
        idle: u64,
        /// Those among the named that are not there.
        gone: Vec<SessionId>,
    },
    /// The command of a session has had no effect, and will have none under this number, unless it was executed before.
    SessionError(SessionError),
    /// Certainly without effect, now and later.
    Refused(Refusal, Leader),
    /// It may have had an effect, or may still have one.
    Unknown(Doubt, Leader),
    /// The member could not read the request, and closes.
    Malformed,
    /// Some of the sessions that there are.
    Sessions {
        /// How many there are in all.
        all: u64,
        /// Each with the milliseconds of the log's clock since it was seen last; ascending by number.
        list: Vec<(u64, u64)>,
    },
}

macro_rules! numbered {
    ($(#[$of:meta])* $name:ident, $field:literal: $($(#[$about:meta])* $variant:ident = $number:literal),* $(,)?) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$about])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Its number, which is never used twice.
            #[must_use]
            pub fn number(self) -> u8 {
                match self {
                    $($name::$variant => $number,)*
                }
            }

            fn of(number: u8) -> Result<$name, FieldError> {
                match number {
                    $($number => Ok($name::$variant),)*
                    other => Err(FieldError::Value { field: $field, value: other.into() }),
                }
            }
        }
    };
}

numbered! {
    /// Why a request had no effect.
    Refusal, "refusal":
    /// There was no leader while it waited.
    NoLeader = 1,
    /// A limit on waiting requests or bytes is reached.
    TooManyRequests = 2,
    /// No space for growth.
    NoSpace = 3,
    /// Leadership moves.
    LeaderChanged = 4,
    /// A read waited too long.
    TimedOut = 5,
    /// The member replays its log.
    Replaying = 6,
    /// The member is stopping.
    Stopping = 7,
    /// The member's state is divergent.
    Corrupt = 8,
    /// It would cost more than one request may.
    TooMuchWork = 9,
    /// It asks for more bytes than one answer may have.
    AnswerTooLarge = 10,
    /// A member's version may be older than this request.
    LevelTooLow = 11,
    /// The command is longer than one may be.
    RequestTooLarge = 12,
    /// A command in a session that the store would refuse whatever it holds: an empty key, for example. Its number is free.
    Invalid = 13,
    /// A weak answer was asked for, and the cluster gives none.
    NotWeak = 14,
    /// A weak answer was asked for outside of a session, or for a command that may have none. Its number is free.
    MayNotBeWeak = 15,
    /// A later leader has overwritten its entry: after a weak answer, that is its loss.
    Overwritten = 16,
}

numbered! {
    /// Why the outcome is unknown.
    Doubt, "doubt":
    /// Leadership moved while the request was in flight.
    LeaderChanged = 1,
    /// It took too long.
    TimedOut = 2,
    /// The member is stopping.
    Stopping = 3,
    /// It is done, but its answer is larger than one may be.
    AnswerTooLarge = 4,
}

/// Whether the answer in this message is the last one to its request: no other follows, unlike one that says
/// [`Outcome::Received`].
#[must_use]
pub fn is_final(message: &Message<'_>) -> bool {
    message.kind != REPLY || message.fields.get(16) != Some(&RECEIVED)
}

/// Adds the answer to the request of this name, done with this result, to a frame: as [`Reply::write`] with
/// [`Outcome::Done`] does, and the result is not laid out anywhere else before.
pub fn write_done(
    request: u64,
    index: u64,
    strong: u64,
    result: &Result<Response, Error>,
    writer: &mut FrameWriter,
) {
    write_with(request, index, strong, writer, |out| {
        out.put_u8(DONE);
        answer::encode(result, out);
    });
}

/// As [`write_done`] for a read of a single key.
pub fn write_found(request: u64, index: u64, found: &FoundKey<'_>, writer: &mut FrameWriter) {
    write_with(request, index, 0, writer, |out| {
        out.put_u8(DONE);
        answer::encode_found(found, out);
    });
}

fn write_with(
    request: u64,
    index: u64,
    strong: u64,
    writer: &mut FrameWriter,
    outcome: impl FnOnce(&mut Vec<u8>),
) {
    writer.message(REPLY, 0, request, |out| {
        out.put_u64(index);
        out.put_u64(strong);
        outcome(out);
    });
}

impl<'a> Reply<'a> {
    /// Adds the answer to the request of this name to a frame.
    pub fn write(&self, request: u64, writer: &mut FrameWriter) {
        write_with(request, self.index, self.strong, writer, |out| match &self.outcome {
            Outcome::Done(answer) => {
                out.put_u8(DONE);
                out.extend_from_slice(answer);
            }
            Outcome::Committed => out.put_u8(COMMITTED),
            Outcome::Received { term } => {
                out.put_u8(RECEIVED);
                out.put_u64(*term);
            }
            Outcome::Opened { id, idle } => {
                out.put_u8(OPENED);
                out.put_u64(*idle);
                put_id(*id, out);
            }
            Outcome::Named { idle, gone } => {
                out.put_u8(NAMED);
                out.put_u64(*idle);
                gone.iter().for_each(|id| put_id(*id, out));
            }
            Outcome::SessionError(error) => {
                out.put_u8(SESSION_ERROR);
                let (number, expected) = match *error {
                    SessionError::Expired => (1, 0),
                    SessionError::OutOfOrder { expected } => (2, expected),
                    SessionError::Stale => (3, 0),
                    SessionError::TooManyAnswers => (4, 0),
                    SessionError::TooManySessions => (5, 0),
                };
                out.put_u8(number);
                out.put_u64(expected);
            }
            Outcome::Refused(refusal, leader) => {
                out.extend_from_slice(&[REFUSED, refusal.number()]);
                leader.write(out);
            }
            Outcome::Unknown(doubt, leader) => {
                out.extend_from_slice(&[UNKNOWN, doubt.number()]);
                leader.write(out);
            }
            Outcome::Malformed => out.put_u8(MALFORMED),
            Outcome::Sessions { all, list } => {
                out.put_u8(SESSIONS);
                out.put_u64(*all);
                for (number, silent) in list {
                    out.put_u64(*number);
                    out.put_u64(*silent);
                }
            }
        });
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn read(message: &Message<'a>) -> Result<Reply<'a>, FieldError> {
        if message.kind != REPLY || message.flags != 0 {
            return Err(FieldError::Value { field: "kind", value: message.kind.into() });
        }
        let mut fields = Reader::new(message.fields);
        let (index, strong) = (fields.u64("index")?, fields.u64("strong")?);
        let outcome = match fields.u8("outcome")? {
            DONE => Outcome::Done(fields.bytes(fields.left(), "answer")?),
            COMMITTED => Outcome::Committed,
            RECEIVED => Outcome::Received { term: fields.u64("term")? },
            OPENED => Outcome::Opened { idle: fields.u64("idle time")?, id: take_id(&mut fields)? },
            NAMED => Outcome::Named {
                idle: fields.u64("idle time")?,
                gone: list(&mut fields, NAMED_MAX, take_id)?,
            },
            SESSION_ERROR => {
                let (number, expected) = (fields.u8("session error")?, fields.u64("expected")?);
                Outcome::SessionError(match (number, expected) {
                    (1, 0) => SessionError::Expired,
                    (2, expected) => SessionError::OutOfOrder { expected },
                    (3, 0) => SessionError::Stale,
                    (4, 0) => SessionError::TooManyAnswers,
                    (5, 0) => SessionError::TooManySessions,
                    _ => return Err(FieldError::Value { field: "session error", value: number.into() }),
                })
            }
            REFUSED => Outcome::Refused(Refusal::of(fields.u8("refusal")?)?, Leader::read(&mut fields)?),
            UNKNOWN => Outcome::Unknown(Doubt::of(fields.u8("doubt")?)?, Leader::read(&mut fields)?),
            MALFORMED => Outcome::Malformed,
            SESSIONS => Outcome::Sessions {
                all: fields.u64("all")?,
                list: list(&mut fields, LISTED_MAX, |fields| {
                    Ok((fields.u64("session")?, fields.u64("silence")?))
                })?,
            },
            other => return Err(FieldError::Value { field: "outcome", value: other.into() }),
        };
        fields.end()?;
        Ok(Reply { index, strong, outcome })
    }
}
