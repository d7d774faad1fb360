//! Answer: a member's reply to one request, out of its frame; and each failure in words.
//!
//! Knows nothing of: connections, which member is asked next.

use crate::error::Error;
use crate::failure::{Failure, Kind};
use crate::native::outbox::Place;
use kattu_kv::api;
use kattu_kv::sessions::{SessionError, SessionId};
use kattu_native::handshake::Leader;
use kattu_native::reply::{self, Doubt, Refusal, Reply};
use std::fmt;
use std::time::Duration;
use tonic::Code;

/// A reply. Its index is a position of the log at which it holds.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) index: u64,
    pub(crate) outcome: Outcome,
}

/// What a member says about one request.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The store's answer.
    Done(Result<api::Response, api::Error>),
    /// A quorum has received the entry at the answer's index, in this term: not final.
    Received {
        term: u64,
    },
    /// To a ping.
    Pong,
    Opened {
        id: SessionId,
        idle: Duration,
    },
    Named {
        idle: Duration,
        gone: Vec<SessionId>,
    },
    Sessions {
        all: u64,
        list: Vec<(u64, Duration)>,
    },
    SessionError(SessionError),
    Refused(Refusal, Leader),
    Doubtful(Doubt, Leader),
    Malformed,
}

/// The outcome of one request of the store, as its caller is told.
pub(crate) type Outcomes = Result<api::Response, Error>;

/// Bytes that no member sends.
#[derive(Debug)]
pub(crate) struct NotAnAnswer(pub(crate) String);

impl Answer {
    pub(crate) fn of(reply: Reply<'_>) -> Result<Answer, NotAnAnswer> {
        let outcome = match reply.outcome {
            reply::Outcome::Done([]) => Outcome::Pong,
            reply::Outcome::Done(bytes) => {
                let wrong = |error: kattu_kv::command::Malformed| NotAnAnswer(error.to_string());
                Outcome::Done(kattu_kv::answer::decode(bytes).map_err(wrong)?)
            }
            reply::Outcome::Committed => {
                return Err(NotAnAnswer("committed, of a write that wants its result".to_string()));
            }
            reply::Outcome::Received { term } => Outcome::Received { term },
            reply::Outcome::Opened { id, idle } => Outcome::Opened { id, idle: Duration::from_millis(idle) },
            reply::Outcome::Named { idle, gone } => {
                Outcome::Named { idle: Duration::from_millis(idle), gone }
            }
            reply::Outcome::SessionError(error) => Outcome::SessionError(error),
            reply::Outcome::Refused(refusal, leader) => Outcome::Refused(refusal, leader),
            reply::Outcome::Unknown(doubt, leader) => Outcome::Doubtful(doubt, leader),
            reply::Outcome::Malformed => Outcome::Malformed,
            reply::Outcome::Sessions { all, list } => {
                let silent = |(number, millis)| (number, Duration::from_millis(millis));
                Outcome::Sessions { all, list: list.into_iter().map(silent).collect() }
            }
        };
        Ok(Answer { index: reply.index, outcome })
    }
}

/// A request whose connection was lost, or that never had one.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) fate: Fate,
    pub(crate) why: Why,
}

/// How far a request had come when it was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No member has received it whole.
    Unsent,
    /// Nor has any, and its time was over while it waited for its turn: the connection may be sound.
    Withdrawn,
    /// A member may have received it whole.
    Sent,
}

/// Why a connection ended; shared by all that were waiting on it.
pub(crate) type Why = std::sync::Arc<str>;

impl Lost {
    /// There is no answer in time to a request, which is withdrawn if it still waits at a place.
    pub(crate) fn late(place: Option<&Place>) -> Lost {
        match place.is_some_and(Place::withdraw) {
            true => Lost { fate: Fate::Withdrawn, why: "no turn on the connection in time".into() },
            false => Lost { fate: Fate::Sent, why: "no answer in time".into() },
        }
    }

    pub(crate) fn was_sent(&self) -> bool {
        self.fate == Fate::Sent
    }

    pub(crate) fn failure(&self, endpoint: &str) -> Failure {
        match self.was_sent() {
            true => failure(Kind::Unknown, Code::Unavailable, &self.why, endpoint),
            false => failure(Kind::Unreachable, Code::Unavailable, &self.why, endpoint),
        }
    }
}

/// The same request may be answered later, or by another member.
pub(crate) fn is_passing(refusal: Refusal) -> bool {
    match refusal {
        Refusal::NoLeader
        | Refusal::TooManyRequests
        | Refusal::LeaderChanged
        | Refusal::TimedOut
        | Refusal::Replaying
        | Refusal::Stopping
        // Of one member; the others may be sound.
        | Refusal::Corrupt
        // By a later leader, which may take it now.
        | Refusal::Overwritten => true,
        Refusal::NoSpace
        | Refusal::TooMuchWork
        | Refusal::AnswerTooLarge
        | Refusal::LevelTooLow
        | Refusal::RequestTooLarge
        | Refusal::Invalid
        | Refusal::NotWeak
        | Refusal::MayNotBeWeak => false,
    }
}

pub(crate) fn refused(refusal: Refusal, endpoint: &str) -> Failure {
    let (code, text) = match refusal {
        Refusal::NoLeader => (Code::Unavailable, "no leader"),
        Refusal::TooManyRequests => (Code::ResourceExhausted, "too many requests"),
        Refusal::NoSpace => (
            Code::ResourceExhausted,
            "no space: delete and compact, or give the members more, then disarm the alarm",
        ),
        Refusal::LeaderChanged => (Code::Unavailable, "leader changed"),
        Refusal::TimedOut => (Code::Unavailable, "the read waited too long at the member"),
        Refusal::Replaying => (Code::Unavailable, "the member replays its log"),
        Refusal::Stopping => (Code::Unavailable, "the member is stopping"),
        Refusal::Corrupt => (Code::DataLoss, "the member's state is divergent: see its alarms"),
        Refusal::TooMuchWork => (
            Code::ResourceExhausted,
            "the request covers more keys than --request-work-max allows: use limit or a smaller range",
        ),
        Refusal::AnswerTooLarge => (
            Code::ResourceExhausted,
            "the answer is larger than one may be: use limit, and read on from the last key",
        ),
        Refusal::LevelTooLow => (
            Code::FailedPrecondition,
            "the cluster has not reached the feature level of this request yet: run this version on all members",
        ),
        Refusal::RequestTooLarge => {
            (Code::InvalidArgument, "the command is longer than --max-request-bytes allows: make it smaller")
        }
        Refusal::NotWeak => (
            Code::FailedPrecondition,
            "this cluster gives no weak answers: write without asking for one, or turn them on (kattu protocol)",
        ),
        Refusal::MayNotBeWeak => (
            Code::InvalidArgument,
            "only puts and deletes of single keys in a strict session have weak answers",
        ),
        Refusal::Overwritten => (Code::Aborted, "a later leader has overwritten it: it is lost"),
        Refusal::Invalid => (
            Code::InvalidArgument,
            "the store would refuse the command whatever it holds: has it more operations than --max-txn-ops allows?",
        ),
    };
    failure(Kind::Refused, code, text, endpoint)
}

pub(crate) fn doubtful(doubt: Doubt, endpoint: &str) -> Failure {
    let (code, text) = match doubt {
        Doubt::LeaderChanged => (Code::Unavailable, "leader changed"),
        Doubt::TimedOut => (Code::DeadlineExceeded, "the member waited too long for it"),
        Doubt::Stopping => (Code::Unavailable, "the member is stopping"),
        Doubt::AnswerTooLarge => {
            (Code::Unknown, "it is done, but its answer is larger than one may be: use limit")
        }
    };
    failure(Kind::Unknown, code, text, endpoint)
}

pub(crate) fn malformed(endpoint: &str) -> Failure {
    let text =
        "the member cannot read the request: is it of an older version, or does the request break a rule?";
    failure(Kind::Refused, Code::InvalidArgument, text, endpoint)
}

/// An answer to another kind of request. Whatever was asked may have happened.
pub(crate) fn unfitting(endpoint: &str) -> Failure {
    failure(Kind::Unknown, Code::Internal, "the member's answer does not fit the request", endpoint)
}

/// A request that the member would not read.
pub(crate) fn too_large(bytes: usize, most: u32, endpoint: &str) -> Failure {
    let text = format!(
        "the request has {bytes} bytes, and the member reads frames of {most} at most: make it smaller"
    );
    failure(Kind::Refused, Code::InvalidArgument, text, endpoint)
}

/// A member of an older version.
pub(crate) fn not_weak(endpoint: &str) -> Failure {
    failure(Kind::Refused, Code::FailedPrecondition, "the member's version has no weak answers", endpoint)
}

/// The task that would have told the outcome is gone.
pub(crate) fn runtime_ended() -> Error {
    failure(Kind::Unknown, Code::Cancelled, "the session's task has ended with its runtime", "").into()
}

pub(crate) fn failure(kind: Kind, code: Code, text: impl fmt::Display, endpoint: &str) -> Failure {
    Failure { kind, code, message: text.to_string(), reason: None, endpoint: endpoint.to_string() }
}
