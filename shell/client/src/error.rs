//! Error: why a request in the store's own types has no answer that its caller hoped for.
//!
//! In:   the store's errors, those of sessions, failures of calls; etcd's texts.
//! Out:  one type that keeps them apart, and one question to it: what is known about the effect.
//! Rule: an error of the store is final and without effect. A session that is gone leaves the fate of its unanswered
//!       commands unknown. [fault-model §1; replication-protocols §10]
//! Knows nothing of: connections, retries.

use crate::failure::{Failure, Kind};
use kattu_kv::api;
use kattu_kv::sessions::SessionError;
use std::fmt;

/// Why a request did not succeed.
#[derive(Clone, Debug)]
pub enum Error {
    /// The store's own answer: final, and certainly without effect.
    Store(api::Error),
    /// The session of the request refused it, or is gone.
    Session {
        /// What is wrong with the session.
        error: SessionError,
        /// What is known about the effect of this request: `Refused` if it was never sent, else `Unknown`.
        kind: Kind,
    },
    /// No answer of the store: a member refused the request, the outcome is unknown, or no member received it.
    Call(Failure),
}

impl Error {
    /// What is known about the effect of the request.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Error::Store(_) => Kind::Refused,
            Error::Session { kind, .. } => *kind,
            Error::Call(failure) => failure.kind,
        }
    }

    /// An error of the store if the failure is one, by etcd's code and text.
    pub(crate) fn of_etcd(failure: Failure) -> Error {
        let is_text = |text: &str| match text.strip_prefix(OF_KATTU) {
            Some(_) => failure.message.starts_with(text),
            None => failure.message == text,
        };
        match TEXTS.iter().find(|(_, text)| failure.kind == Kind::Refused && is_text(text)) {
            Some((error, _)) => Error::Store(*error),
            None => Error::Call(failure),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Store(error) => {
                let text = TEXTS.iter().find(|(other, _)| other == error).map(|(_, text)| *text);
                f.write_str(text.expect("every error of the store has a text"))
            }
            Error::Session { error, kind: Kind::Unknown } => write!(f, "outcome unknown: {error}"),
            Error::Session { error, .. } => write!(f, "refused: {error}"),
            Error::Call(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Call(failure)
    }
}

/// Texts that etcd does not have begin so; the advice behind them may change.
const OF_KATTU: &str = "kattu: ";

/// The texts of the store's errors, as a member writes them; of those that etcd does not have, the beginning.
const TEXTS: [(api::Error, &str); 12] = [
    (api::Error::EmptyKey, "etcdserver: key is not provided"),
    (api::Error::KeyNotFound, "etcdserver: key not found"),
    (api::Error::ValueProvided, "etcdserver: value is provided"),
    (api::Error::LeaseProvided, "etcdserver: lease is provided"),
    (api::Error::TooManyOps, "etcdserver: too many operations in txn request"),
    (api::Error::DuplicateKey, "etcdserver: duplicate key given in txn request"),
    (api::Error::InvalidSort, "etcdserver: invalid sort option"),
    (api::Error::LeaseNotFound, "etcdserver: requested lease not found"),
    (api::Error::Compacted, "etcdserver: mvcc: required revision has been compacted"),
    (api::Error::FutureRevision, "etcdserver: mvcc: required revision is a future revision"),
    (api::Error::AnswerTooLarge, "kattu: the response is larger than one response may be"),
    (api::Error::TooMuchWork, "kattu: the request covers more keys than --request-work-max allows"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::{Code, Status};

    fn of(code: Code, text: &str) -> Error {
        Error::of_etcd(Failure::from_status(&Status::new(code, text), "here"))
    }

    #[test]
    fn a_text_of_the_store_is_its_error_and_any_other_failure_stays_one() {
        let store = of(Code::InvalidArgument, "etcdserver: key is not provided");
        assert!(matches!(store, Error::Store(api::Error::EmptyKey)), "{store:?}");
        let advised = of(
            Code::ResourceExhausted,
            "kattu: the request covers more keys than --request-work-max allows: use limit",
        );
        assert!(matches!(advised, Error::Store(api::Error::TooMuchWork)), "{advised:?}");
        let longer = of(Code::InvalidArgument, "etcdserver: key is not provided, or is it");
        assert!(matches!(longer, Error::Call(_)), "{longer:?}");
        // A write that may have been carried out is none of the store's errors, whatever its text.
        let doubtful = of(Code::Unknown, "etcdserver: key not found");
        assert_eq!(doubtful.kind(), Kind::Unknown);
        assert!(matches!(doubtful, Error::Call(_)), "{doubtful:?}");
    }

    #[test]
    fn a_session_that_is_gone_leaves_what_was_sent_unknown_and_refuses_the_rest() {
        let gone = |kind| Error::Session { error: SessionError::Expired, kind };
        assert_eq!(gone(Kind::Unknown).to_string(), "outcome unknown: session expired: register a new one");
        assert_eq!(gone(Kind::Refused).to_string(), "refused: session expired: register a new one");
        assert_eq!(Error::Store(api::Error::Compacted).kind(), Kind::Refused);
    }
}
