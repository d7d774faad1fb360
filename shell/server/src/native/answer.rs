//! Answer: from an outcome of the replica to a message for the client.
//!
//! Knows nothing of: connections, memory limits.

use super::request::Kind;
use kattu_kv::api::Answer;
use kattu_native::frame::FrameWriter;
use kattu_native::handshake::Leader;
use kattu_native::reply::{Doubt, Outcome, Refusal, Reply, write_done};
use kattu_node::contract::{self, ReplyBody};
use std::time::Duration;

/// Writes the answer to the request of this name. `index` is a log position at which it holds, `leader` whom a client may ask
/// instead.
pub(crate) fn write(
    request: u64,
    kind: Kind,
    outcome: contract::Outcome,
    index: u64,
    leader: impl FnOnce() -> Leader,
    out: &mut FrameWriter,
) {
    let strong = match &outcome {
        contract::Outcome::Done(reply) => reply.strong,
        _ => 0,
    };
    let outcome = match outcome {
        contract::Outcome::Done(_) if kind == Kind::CommitOnly => Outcome::Committed,
        contract::Outcome::Done(reply) => match reply.body {
            ReplyBody::Kv(response) => return write_done(request, index, strong, &Ok(response), out),
            ReplyBody::KvError(error) => return write_done(request, index, strong, &Err(error), out),
            ReplyBody::Registered { id, idle } => Outcome::Opened { id, idle: millis(idle) },
            ReplyBody::SessionError(error) => Outcome::SessionError(error),
            ReplyBody::Named { gone, idle } => Outcome::Named { idle: millis(idle), gone },
            ReplyBody::Pinned(tables) => {
                let Kind::Sessions { from, count } = kind else { unreachable!("nothing else pins") };
                let sessions = tables.sessions();
                let list = sessions.list(from, count).into_iter();
                let list = list.map(|(number, silent)| (number, millis(silent))).collect();
                Outcome::Sessions { all: sessions.count(), list }
            }
            body @ (ReplyBody::Found(_)
            | ReplyBody::Members(_)
            | ReplyBody::Status(_)
            | ReplyBody::Changed(_)
            | ReplyBody::Moved
            | ReplyBody::Alarmed(_)
            | ReplyBody::Published
            | ReplyBody::Committed
            | ReplyBody::SessionsSet) => {
                unreachable!("no request of this protocol is answered by {body:?}")
            }
        },
        contract::Outcome::Received(_) => unreachable!("it is no answer, and told apart"),
        contract::Outcome::Refused(refusal) => Outcome::Refused(refusal_of(refusal), leader()),
        contract::Outcome::Unknown(doubt) => Outcome::Unknown(doubt_of(doubt), leader()),
    };
    Reply { index, strong, outcome }.write(request, out);
}

/// What an answer holds besides its own bytes on their way: nothing, where it has no pairs.
pub(crate) fn pairs_of(outcome: &contract::Outcome) -> Option<&Answer> {
    let contract::Outcome::Done(contract::Reply { body: ReplyBody::Kv(response), .. }) = outcome else {
        return None;
    };
    match &response.answer {
        Answer::Put { prev_kv: None } | Answer::Compact => None,
        answer => Some(answer),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn refusal_of(refusal: contract::Refusal) -> Refusal {
    match refusal {
        contract::Refusal::NoLeader => Refusal::NoLeader,
        contract::Refusal::TooManyRequests => Refusal::TooManyRequests,
        contract::Refusal::NoSpace => Refusal::NoSpace,
        contract::Refusal::LeaderChanged => Refusal::LeaderChanged,
        contract::Refusal::ReadTimedOut => Refusal::TimedOut,
        contract::Refusal::Replaying => Refusal::Replaying,
        contract::Refusal::Stopping => Refusal::Stopping,
        contract::Refusal::Corrupt => Refusal::Corrupt,
        contract::Refusal::TooMuchWork => Refusal::TooMuchWork,
        contract::Refusal::AnswerTooLarge => Refusal::AnswerTooLarge,
        contract::Refusal::LevelTooLow => Refusal::LevelTooLow,
        contract::Refusal::NotWeak => Refusal::NotWeak,
        contract::Refusal::Overwritten => Refusal::Overwritten,
        contract::Refusal::Member(why) => unreachable!("no request of this protocol is refused with {why:?}"),
    }
}

fn doubt_of(doubt: contract::Doubt) -> Doubt {
    match doubt {
        contract::Doubt::LeaderChanged => Doubt::LeaderChanged,
        contract::Doubt::TimedOut => Doubt::TimedOut,
        contract::Doubt::Stopping => Doubt::Stopping,
        contract::Doubt::AnswerTooLarge => Doubt::AnswerTooLarge,
    }
}
