//! What a failed call means: certainly without effect, or of unknown outcome.
//!
//! In:    the status of a call, and where it came from (the member, or this side of the connection).
//! Out:   Refused, Unknown or Unreachable.
//! Rule:  in doubt, Unknown: a write wrongly called refused is repeated and takes effect twice; one wrongly called
//!        unknown only costs a question. [fault-model §1; etcd-api §3]
//! Knows nothing of: retries.

use std::error::Error;
use std::fmt;
use tonic::{Code, ConnectError, Status};

/// The metadata key under which a member explains a refusal beyond etcd's text.
const REASON: &str = "kattu-reason";

/// What is known about the effect of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A member refused it: certainly no effect, now or later.
    Refused,
    /// It may have taken effect, or may still.
    Unknown,
    /// No member received it: certainly no effect.
    Unreachable,
}

/// A call that did not succeed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is known about its effect.
    pub kind: Kind,
    /// The gRPC status code.
    pub code: Code,
    /// The member's text, or ours about the connection.
    pub message: String,
    /// Why a change of members was refused, if the member explains more than etcd's text does.
    pub reason: Option<String>,
    /// The endpoint asked last, as the user wrote it; empty if none was asked.
    pub endpoint: String,
}

impl Failure {
    /// Classifies the status of one call to one endpoint.
    #[must_use]
    pub fn from_status(status: &Status, endpoint: &str) -> Failure {
        Failure {
            kind: kind_of(status),
            code: status.code(),
            message: words_of(status),
            reason: status.metadata().get(REASON).and_then(|reason| Some(reason.to_str().ok()?.to_string())),
            endpoint: endpoint.to_string(),
        }
    }

    /// No answer came in time.
    pub(crate) fn timed_out(endpoint: &str) -> Failure {
        Failure {
            kind: Kind::Unknown,
            code: Code::DeadlineExceeded,
            message: "no answer in time".to_string(),
            reason: None,
            endpoint: endpoint.to_string(),
        }
    }

    /// No process listens there, or it cannot be reached.
    pub(crate) fn unreachable(endpoint: &str, why: impl fmt::Display) -> Failure {
        Failure {
            kind: Kind::Unreachable,
            code: Code::Unavailable,
            message: why.to_string(),
            reason: None,
            endpoint: endpoint.to_string(),
        }
    }

    /// Another endpoint may do better: the member cannot serve right now, or cannot be reached.
    #[must_use]
    pub(crate) fn is_unavailable(&self) -> bool {
        self.kind == Kind::Unreachable || self.code == Code::Unavailable || self.is_broken_stream()
    }

    /// The connection broke while the call was under way; the codes are the HTTP/2 layer's.
    fn is_broken_stream(&self) -> bool {
        self.kind == Kind::Unknown && matches!(self.code, Code::Unknown | Code::Internal | Code::Cancelled)
    }

    /// The same request may pass later by itself: the member was busy or had no leader.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self.kind {
            Kind::Unknown | Kind::Unreachable => true,
            Kind::Refused => {
                self.code == Code::Unavailable || self.message == "etcdserver: too many requests"
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Refused => write!(f, "refused: {}", self.message)?,
            Kind::Unknown => write!(f, "outcome unknown: {}", self.message)?,
            Kind::Unreachable => write!(f, "unreachable: {}", self.message)?,
        }
        if let Some(reason) = &self.reason {
            write!(f, ": {reason}")?;
        }
        if self.endpoint.is_empty() { Ok(()) } else { write!(f, " (endpoint {})", self.endpoint) }
    }
}

impl Error for Failure {}

fn kind_of(status: &Status) -> Kind {
    // A status from a member has no source; one made on this side has the error as its source.
    if let Some(source) = status.source() {
        return if never_sent(source) { Kind::Unreachable } else { Kind::Unknown };
    }
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::OutOfRange
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented
        | Code::DataLoss => Kind::Refused,
        // Both are judged before anything is proposed.
        Code::Unavailable
            if ["etcdserver: no leader", "etcdserver: unhealthy cluster"].contains(&status.message()) =>
        {
            Kind::Refused
        }
        // "leader changed", "timed out", "server stopped"; a cancelled or expired call; anything unforeseen.
        Code::Unavailable
        | Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal => Kind::Unknown,
    }
}

/// The member's text; of a broken connection the deepest cause as well, because the outer ones say little.
fn words_of(status: &Status) -> String {
    let mut deepest = status.source();
    while let Some(cause) = deepest.and_then(Error::source) {
        deepest = Some(cause);
    }
    let message = status.message();
    match deepest.map(ToString::to_string) {
        Some(cause) if !message.contains(&cause) => format!("{message}: {cause}"),
        _ => message.to_string(),
    }
}

/// Whether the request certainly never left: the connection could not be made, or was gone before its turn came.
fn never_sent(source: &(dyn Error + 'static)) -> bool {
    let mut next = Some(source);
    while let Some(error) = next {
        if error.is::<ConnectError>() {
            return true;
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && error.is_canceled()
        {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: Code, message: &str) -> Kind {
        Failure::from_status(&Status::new(code, message), "here").kind
    }

    #[test]
    fn what_a_member_judged_is_refused() {
        assert_eq!(kind(Code::InvalidArgument, "etcdserver: key is not provided"), Kind::Refused);
        assert_eq!(kind(Code::NotFound, "etcdserver: requested lease not found"), Kind::Refused);
        assert_eq!(
            kind(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
            Kind::Refused
        );
        assert_eq!(kind(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"), Kind::Refused);
        assert_eq!(kind(Code::FailedPrecondition, "etcdserver: not leader"), Kind::Refused);
        assert_eq!(kind(Code::Unavailable, "etcdserver: no leader"), Kind::Refused);
        assert_eq!(kind(Code::Unavailable, "etcdserver: unhealthy cluster"), Kind::Refused);
        assert_eq!(kind(Code::Unimplemented, ""), Kind::Refused);
    }

    #[test]
    fn what_the_members_would_be_refused_for_stands_behind_etcds_text() {
        let mut status = Status::new(Code::FailedPrecondition, "etcdserver: not leader");
        status.metadata_mut().insert(REASON, "only the leader can".parse().unwrap());
        let failure = Failure::from_status(&status, "here");
        assert_eq!(failure.message, "etcdserver: not leader");
        assert_eq!(
            failure.to_string(),
            "refused: etcdserver: not leader: only the leader can (endpoint here)"
        );
    }

    #[test]
    fn what_may_have_been_proposed_is_unknown() {
        assert_eq!(kind(Code::Unavailable, "etcdserver: leader changed"), Kind::Unknown);
        assert_eq!(kind(Code::Unavailable, "etcdserver: request timed out"), Kind::Unknown);
        assert_eq!(kind(Code::Unavailable, "etcdserver: server stopped"), Kind::Unknown);
        assert_eq!(kind(Code::DeadlineExceeded, "context deadline exceeded"), Kind::Unknown);
        assert_eq!(kind(Code::Unknown, "anything"), Kind::Unknown);
        assert_eq!(kind(Code::Internal, "anything"), Kind::Unknown);
    }

    #[test]
    fn a_stream_that_broke_is_unknown_and_a_connection_that_never_was_is_unreachable() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let failure = Failure::from_status(&Status::from_error(Box::new(reset)), "here");
        assert_eq!(failure.kind, Kind::Unknown);
        assert!(failure.is_unavailable());
        let refused = ConnectError(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
        let failure = Failure::from_status(&Status::from_error(Box::new(refused)), "here");
        assert_eq!(failure.kind, Kind::Unreachable);
    }

    #[test]
    fn only_what_may_pass_by_itself_is_worth_repeating() {
        let failure = |code, message: &str| Failure::from_status(&Status::new(code, message), "here");
        assert!(failure(Code::Unavailable, "etcdserver: no leader").is_passing());
        assert!(failure(Code::ResourceExhausted, "etcdserver: too many requests").is_passing());
        assert!(!failure(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded").is_passing());
        assert!(!failure(Code::InvalidArgument, "etcdserver: request is too large").is_passing());
    }
}
