//! What can go wrong with a data directory, each with what to do next.
//!
//! Knows nothing of: how it is shown.

use kattu_raft::{EntryId, GroupId};
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
    /// Every byte of a peer's snapshot is as that peer has it, and nobody can read what they say.
    Unreadable {
        /// Which file.
        file: String,
        /// What was seen.
        what: String,
    },
    /// The log begins after something that no good snapshot covers: this member's state is lost, its promises are not.
    Uncovered {
        /// Whose log.
        group: GroupId,
        /// The position before its first entry.
        base: EntryId,
        /// What was found wrong with each snapshot, newest first.
        snapshots: Vec<String>,
    },
    /// What is damaged is nowhere else: this member is the only one of its cluster.
    OnlyCopy {
        /// What was found, with the file and the byte.
        why: String,
    },
    /// The log was damaged, and was cut before the damage: what is gone comes again from the others.
    Repaired {
        /// Which file.
        file: String,
        /// Where.
        offset: u64,
        /// What was seen.
        what: String,
        /// Where the log of each group ends that is short now, and where it ended, or a bound of that.
        cut: Vec<(GroupId, EntryId, EntryId)>,
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
    #[must_use]
    pub fn is_failed_sync(&self) -> bool {
        matches!(self, WalError::Io { doing: SYNC, .. })
    }

    /// Whether the log has come to its end with this: it takes and promises nothing more until it is read back, so that
    /// its member must stop, now and not at the next write. [fault-model F11]
    #[must_use]
    pub fn ends_the_log(&self) -> bool {
        self.is_failed_sync() || matches!(self, WalError::Poisoned { .. })
    }

    /// What was found, and no word on what that means for the member: for a member that goes on without what is damaged.
    #[must_use]
    pub fn finding(&self) -> String {
        match self {
            WalError::Damaged { file, offset, what } => format!("{file}: damaged at byte {offset}: {what}"),
            other => other.to_string(),
        }
    }

    /// The same of a member that is the only one of its cluster: no peer can help, a backup can.
    #[must_use]
    pub fn of_only_copy(self) -> WalError {
        match self {
            WalError::Damaged { .. } => WalError::OnlyCopy { why: self.finding() },
            WalError::Uncovered { group, base, snapshots } => {
                WalError::OnlyCopy { why: uncovered(group, base, &snapshots) }
            }
            other => other,
        }
    }

    pub(crate) fn damaged(file: &str, offset: u64, what: impl Into<String>) -> WalError {
        WalError::Damaged { file: file.to_owned(), offset, what: what.into() }
    }
}

fn uncovered(group: GroupId, base: EntryId, snapshots: &[String]) -> String {
    let mut what =
        format!("the log of group {} begins after {base}, and no good snapshot covers that", group.0);
    for snapshot in snapshots {
        what.push_str("; ");
        what.push_str(snapshot);
    }
    what
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
            WalError::Damaged { .. } => write!(
                f,
                "{}; this member neither votes nor serves. Keep a copy of the \
                 directory, look at it with `kattu wal inspect`, check the disk; then remove this member from the \
                 cluster with `kattu member remove`, and add it as a new one with `kattu member add` and an empty \
                 directory. The only member of a cluster comes back from a backup, with `kattu restore`",
                self.finding()
            ),
            WalError::Unreadable { file, what } => {
                write!(f, "{file}: as the peer that sent it has it, and nobody can read what it says: {what}")
            }
            WalError::Uncovered { group, base, snapshots } => write!(
                f,
                "{}; this member asks its leader for a snapshot and serves nothing until it has one. If there is no \
                 leader, put a copy of the snapshot's file back, or remove this member from the cluster with `kattu \
                 member remove`, and add it as a new one with `kattu member add` and an empty directory",
                uncovered(*group, *base, snapshots)
            ),
            WalError::OnlyCopy { why } => write!(
                f,
                "{why}; this member is the only one of its cluster, so what is lost is nowhere else, and nothing was \
                 changed. Keep a copy of the directory, look at it with `kattu wal inspect`, check the disk; if the \
                 disk gives the file back whole, start again; if not, make another directory from a backup, with \
                 `kattu restore`"
            ),
            WalError::Repaired { file, offset, what, cut } => {
                write!(f, "{file}: damaged at byte {offset}: {what}; mended")?;
                cut.iter().try_for_each(|(group, last, vote_floor)| {
                    write!(
                        f,
                        ": the log of group {} is cut after {last}, it ended at or before {vote_floor}",
                        group.0
                    )
                })?;
                if !cut.is_empty() {
                    f.write_str(
                        "; what is gone comes again from this member's leader, and until then it serves nothing it lacks, \
                         votes only for logs that reach that far, and does not lead",
                    )?;
                }
                f.write_str("; check the disk")
            }
            WalError::NoSpace { file, bytes } => {
                write!(
                    f,
                    "no room for {file} of {bytes} bytes; free disk space: writes of a member that runs resume by themselves, one \
                     that has ended is to be started again"
                )
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
