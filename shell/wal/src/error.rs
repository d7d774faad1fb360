//! What can go wrong with a data directory, each with what to do next.
//!
//! Knows nothing of: how it is shown.

use std::fmt;
use std::io;

const SYNC: &str = "sync";

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalError {
    /// The data directory's path names something else.
    NotADirectory {
        /// The path.
        dir: String,
    },
    /// Files cannot be made in the data directory.
    Unwritable {
        /// The path.
        dir: String,
        /// What the system said.
        error: String,
    },
    /// Another process has the data directory.
    Locked {
        /// The path.
        dir: String,
        /// What the other process wrote about itself: its pid, then its identity.
        holder: String,
    },
    /// A file is of a format version that this program does not read.
    OtherFormat {
        /// Which file.
        file: String,
        /// Its version.
        found: u32,
        /// The version this program reads.
        supported: u32,
    },
    /// The data directory is somebody else's.
    Foreign {
        /// The path.
        dir: String,
        /// What was found there.
        what: String,
    },
    /// A file does not hold what was written and synced.
    Damaged {
        /// Which file.
        file: String,
        /// Where.
        offset: u64,
        /// What was seen.
        what: String,
    },
    /// No room for another segment. Nothing that was acknowledged is touched; asking again later is fine.
    NoSpace {
        /// The file that could not be made.
        file: String,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The system failed to read or write.
    Io {
        /// Which file.
        file: String,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        error: String,
    },
    /// A write or sync has failed before: nothing is known about what the disk holds, so nothing more is promised.
    Poisoned {
        /// The failure.
        first: String,
    },
}

impl WalError {
    pub(crate) fn io(file: &str, doing: &'static str, error: &io::Error) -> WalError {
        WalError::Io { file: file.to_owned(), doing, error: error.to_string() }
    }

    /// As [`WalError::io`], but a full disk gets its own variant.
    pub(crate) fn growing(file: &str, bytes: u64, error: &io::Error) -> WalError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                WalError::NoSpace { file: file.to_owned(), bytes }
            }
            _ => WalError::io(file, "make", error),
        }
    }

    /// A sync of a file or of its name has failed: [`WalError::is_failed_sync`].
    pub(crate) fn syncing(file: &str, error: &io::Error) -> WalError {
        WalError::io(file, SYNC, error)
    }

    /// Whether nothing is known any more about what the disk holds: no second try may be believed. [fault-model F11]
    pub(crate) fn is_failed_sync(&self) -> bool {
        matches!(self, WalError::Io { doing: SYNC, .. })
    }

    /// Whether the log has come to its end with this: it takes and promises nothing more until it is read back, so that
    /// its member must stop, now and not at the next write. [fault-model F11]
    #[must_use]
    pub fn ends_the_log(&self) -> bool {
        self.is_failed_sync() || matches!(self, WalError::Poisoned { .. })
    }

    pub(crate) fn damaged(file: &str, offset: u64, what: impl Into<String>) -> WalError {
        WalError::Damaged { file: file.to_owned(), offset, what: what.into() }
    }
}

impl fmt::Display for WalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalError::NotADirectory { dir } => {
                write!(f, "{dir} is not a directory; name another with --data-dir")
            }
            WalError::Unwritable { dir, error } => {
                write!(
                    f,
                    "data directory {dir} is not writable: {error}; change its owner or mode, or name another with --data-dir"
                )
            }
            WalError::Locked { dir, holder } => {
                write!(
                    f,
                    "data directory {dir} is in use by {holder}; stop that process or name another directory with --data-dir"
                )
            }
            WalError::OtherFormat { file, found, supported } => write!(
                f,
                "{file}: format version {found}, this program reads version {supported}; \
                 start the version of Kattu that wrote it"
            ),
            WalError::Foreign { dir, what } => {
                write!(
                    f,
                    "data directory {dir} is not this member's: {what}; name the right directory with --data-dir"
                )
            }
            WalError::Damaged { file, offset, what } => write!(
                f,
                "{file}: damaged at byte {offset}: {what}; this member neither votes nor serves. Keep a copy of the \
                 directory, look at it with `kattu wal inspect`, check the disk; then remove this member from the \
                 cluster and add it again with an empty directory"
            ),
            WalError::NoSpace { file, bytes } => {
                write!(f, "no room for {file} of {bytes} bytes; free disk space, writes resume by themselves")
            }
            WalError::Io { file, doing, error } => {
                write!(f, "cannot {doing} {file}: {error}; check the disk and the directory's permissions")
            }
            WalError::Poisoned { first } => {
                write!(
                    f,
                    "the log stopped after a failed write or sync ({first}); restart the process to recover from what the disk holds"
                )
            }
        }
    }
}

impl std::error::Error for WalError {}
