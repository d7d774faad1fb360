//! How a program ended, as an exit code.
//!
//! 0 done · 1 refused, failed, violation found · 2 usage, configuration, port · 3 unreachable or outcome unknown (the
//! message says which) · 4 data directory damaged, another member's or locked
//! Knows nothing of: verbs.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// The result of a verb, or of a program without verbs.
pub type Outcome = Result<(), Ended>;

/// The next step after "connection refused", which every first user meets.
const AFTER_REFUSED: &str =
    "start a member there (`kattu dev` starts a cluster to try out), or name another one with --endpoints";

/// A verb or program that did not end with 0, or that ended early.
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

    /// No member could be reached.
    pub fn unreachable(message: impl fmt::Display) -> Ended {
        let mut message = message.to_string();
        if message.to_ascii_lowercase().contains("connection refused") {
            message = format!("{message}; {AFTER_REFUSED}");
        }
        Ended { code: 3, message }
    }

    /// The data directory is damaged, another member's, or in use.
    pub fn data(message: impl fmt::Display) -> Ended {
        Ended { code: 4, message: message.to_string() }
    }

    /// With a code that was chosen elsewhere by the same table.
    pub fn with_code(code: u8, message: impl fmt::Display) -> Ended {
        Ended { code, message: message.to_string() }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// The message for the user.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints the message, and becomes the process's exit code.
    pub fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            // Standard error may be closed; the exit code remains.
            let _ = writeln!(io::stderr(), "kattu: {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

impl From<io::Error> for Ended {
    /// A closed pipe is no failure: `kattu get --prefix a | head` is normal.
    fn from(error: io::Error) -> Ended {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Ended { code: 0, message: String::new() },
            _ => Ended::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_a_quiet_success_and_other_errors_of_output_are_failures() {
        let ended = Ended::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((ended.code(), ended.message()), (0, ""));
        let ended = Ended::from(io::Error::other("no space"));
        assert_eq!((ended.code(), ended.message()), (1, "no space"));
    }

    #[test]
    fn a_refused_connection_comes_with_the_next_step() {
        let ended = Ended::unreachable("tcp connect error: Connection refused (os error 111)");
        assert_eq!(ended.code(), 3);
        assert!(ended.message().ends_with(AFTER_REFUSED));
        assert_eq!(Ended::unreachable("timed out").message(), "timed out");
    }
}
