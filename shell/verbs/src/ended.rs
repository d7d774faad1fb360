//! How a call ended, as an exit code of the command.
//!
//! Knows nothing of: verbs.

use kattu_client::{Error, Failure, Kind};
use kattu_output::Ended;

/// A call that failed.
pub(crate) fn of_call(failure: Failure) -> Ended {
    match failure.kind {
        Kind::Refused => Ended::failed(failure),
        Kind::Unknown => Ended::with_code(3, failure),
        Kind::Unreachable => Ended::unreachable(failure),
    }
}

/// A request of the native client that failed.
pub(crate) fn of_error(error: &Error) -> Ended {
    match error {
        Error::Call(failure) => of_call(failure.clone()),
        error if error.kind() == Kind::Unknown => Ended::with_code(3, error),
        error => Ended::failed(error),
    }
}

/// A read that failed: it changes nothing, so that "unknown" only means that no response came.
pub(crate) fn of_read(failure: &Failure) -> Ended {
    match failure.kind {
        Kind::Unknown => {
            Ended::with_code(3, format!("read failed: {} (endpoint {})", failure.message, failure.endpoint))
        }
        Kind::Refused | Kind::Unreachable => of_call(failure.clone()),
    }
}
