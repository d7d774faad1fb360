//! How a verb ended, as an exit code.
//!
//! 0 done · 1 refused, failed, violation found · 2 usage, configuration, port · 3 unreachable or outcome unknown (the
//! message says which) · 4 data directory damaged, foreign or locked
//! Knows nothing of: verbs.

use kattu_client::{AddressError, Failure, Kind};
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// What a verb comes to.
pub type Outcome = Result<(), Ended>;

/// A verb that did not end with 0, or that ended early.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    code: u8,
    /// For the user, on standard error; empty if there is nothing to say.
    message: String,
}

impl Ended {
    /// Refused, failed, or a violation was found.
    pub fn failed(message: impl fmt::Display) -> Ended {
        Ended { code: 1, message: message.to_string() }
    }

    /// Used or configured wrongly.
    pub fn usage(message: impl fmt::Display) -> Ended {
        Ended { code: 2, message: message.to_string() }
    }

    /// Nobody could be asked.
    pub fn unreachable(message: impl fmt::Display) -> Ended {
        Ended { code: 3, message: message.to_string() }
    }

    /// The data directory is damaged, somebody else's, or in use.
    pub fn data(message: impl fmt::Display) -> Ended {
        Ended { code: 4, message: message.to_string() }
    }

    /// With a code that somebody else chose by the same table.
    pub fn with_code(code: u8, message: impl fmt::Display) -> Ended {
        Ended { code, message: message.to_string() }
    }

    /// A read that failed: it changes nothing, so that "unknown" only means that nobody answered.
    pub fn read(failure: &Failure) -> Ended {
        match failure.kind {
            Kind::Unknown => Ended {
                code: 3,
                message: format!("no answer: {} (endpoint {})", failure.message, failure.endpoint),
            },
            Kind::Refused | Kind::Unreachable => Ended::from(failure.clone()),
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// What the user is told.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Tells the user, and becomes the process's exit code.
    pub fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            // Nobody may be reading; the exit code tells it too.
            let _ = writeln!(io::stderr(), "kattu: {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        let code = match failure.kind {
            Kind::Refused => 1,
            Kind::Unknown | Kind::Unreachable => 3,
        };
        Ended { code, message: failure.to_string() }
    }
}

impl From<AddressError> for Ended {
    fn from(error: AddressError) -> Ended {
        Ended::usage(error)
    }
}

impl From<io::Error> for Ended {
    /// Output that nobody reads any more is no failure: `kattu get --prefix a | head` is normal.
    fn from(error: io::Error) -> Ended {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Ended { code: 0, message: String::new() },
            _ => Ended::failed(error),
        }
    }
}
