//! Errors of a data directory: each text says what the operator does next.
//!
//! Knows nothing of: log lines, exit codes.

use kattu_raft::{EntryId, GroupId};
use std::fmt;
use std::io;

const SYNC: &str = "sync";

/// Why an operation on a data directory failed, or which defect was found and left behind or repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalError {
    /// The data directory's path names something other than a directory.
    NotADirectory {
        /// The path.
        dir: String,
    },
    /// Files cannot be created in the data directory.
    Unwritable {
        /// The path.
        dir: String,
        /// The operating system's error.
        error: String,
    },
    /// Another process holds the lock of the data directory.
    Locked {
        /// The path.
        dir: String,
        /// The description that the other process wrote into the lock file: its pid, then its identity.
        holder: String,
    },
    /// A file has a format version that this program does not read.
    OtherFormat {
        /// The file's name.
        file: String,
        /// Its version.
        found: u32,
        /// The version this program reads.
        supported: u32,
    },
    /// A newer version of Kattu wrote this correctly, and this one cannot follow it.
    Newer {
        /// The file's name.
        file: String,
        /// What this version lacks.
        what: String,
    },
    /// The data directory belongs to another member or cluster, or Kattu did not make it.
    Foreign {
        /// The path.
        dir: String,
        /// The reason.
        what: String,
    },
    /// A file does not hold the bytes that were written and synced.
    Damaged {
        /// The file's name.
        file: String,
        /// Byte offset of the damage.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// A peer's snapshot was received intact, but its content cannot be decoded.
    Unreadable {
        /// The file's name.
        file: String,
        /// The decoder's error.
        what: String,
    },
    /// The log begins after an entry that no good snapshot covers: this member's state is lost; its term and vote are
    /// not.
    Uncovered {
        /// The log's group.
        group: GroupId,
        /// The position before its first entry.
        base: EntryId,
        /// The defect of each snapshot, newest first.
        snapshots: Vec<String>,
    },
    /// The damaged data exists nowhere else: this member is the only one of its cluster.
    OnlyCopy {
        /// The damage, with file and byte.
        why: String,
    },
    /// The log was damaged and was cut before the damage; the leader sends the lost entries again.
    Repaired {
        /// The file's name.
        file: String,
        /// Byte offset of the damage.
        offset: u64,
        /// Description of the damage.
        what: String,
        /// For each group that lost entries: the last entry of its log now, and a position at or after its last entry
        /// before.
        cut: Vec<(GroupId, EntryId, EntryId)>,
    },
    /// The disk has no space. Acknowledged data is not affected; the caller may retry later.
    NoSpace {
        /// The file that could not be created or extended.
        file: String,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The operating system failed to read or write.
    Io {
        /// The file's name.
        file: String,
        /// The operation, as a verb.
        doing: &'static str,
        /// The operating system's error.
        error: String,
    },
    /// An earlier write or sync failed: the content of the disk is unknown, so the log acknowledges nothing more.
    Poisoned {
        /// The first failure.
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

    /// Whether a sync failed: the content of the disk is unknown, and a retry that succeeds proves nothing.
    /// [fault-model F11]
    #[must_use]
    pub fn is_failed_sync(&self) -> bool {
        matches!(self, WalError::Io { doing: SYNC, .. })
    }

    /// Whether this error ends the log: until it is read back it accepts and acknowledges nothing more, so its member
    /// must stop now, not at the next write. [fault-model F11]
    #[must_use]
    pub fn ends_the_log(&self) -> bool {
        self.is_failed_sync() || matches!(self, WalError::Poisoned { .. })
    }

    /// The finding without its consequences: for a member that goes on without the damaged file.
    #[must_use]
    pub fn finding(&self) -> String {
        match self {
            WalError::Damaged { file, offset, what } => format!("{file}: damaged at byte {offset}: {what}"),
            other => other.to_string(),
        }
    }

    /// This error for the only member of a cluster: no peer can help, but a backup can.
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
                 directory. If it is the only member of its cluster, restore a backup with `kattu restore`",
                self.finding()
            ),
            WalError::Newer { file, what } => write!(f, "{file}: {what}"),
            WalError::Unreadable { file, what } => {
                write!(f, "{file}: received intact from the peer, but its content cannot be decoded: {what}")
            }
            WalError::Uncovered { group, base, snapshots } => write!(
                f,
                "{}; this member asks its leader for a snapshot and serves nothing until it has one. If there is no \
                 leader, put a copy of the snapshot file back, or remove this member from the cluster with `kattu \
                 member remove`, and add it as a new one with `kattu member add` and an empty directory",
                uncovered(*group, *base, snapshots)
            ),
            WalError::OnlyCopy { why } => write!(
                f,
                "{why}; this member is the only one of its cluster, so no peer has the lost data, and nothing was changed. \
                 Keep a copy of the directory, look at it with `kattu wal inspect`, check the disk; if the file becomes \
                 readable again, restart; if not, make a new directory from a backup with `kattu restore`"
            ),
            WalError::Repaired { file, offset, what, cut } => {
                write!(f, "{file}: damaged at byte {offset}: {what}; repaired")?;
                cut.iter().try_for_each(|(group, last, vote_floor)| {
                    write!(
                        f,
                        ": the log of group {} is cut after {last}, it ended at or before {vote_floor}",
                        group.0
                    )
                })?;
                if !cut.is_empty() {
                    f.write_str(
                        "; the leader sends the lost entries again; until then this member serves nothing that needs them, \
                         votes only for candidates whose log reaches that far, and does not lead",
                    )?;
                }
                f.write_str("; check the disk")
            }
            WalError::NoSpace { file, bytes } => {
                write!(
                    f,
                    "no space for {file} ({bytes} bytes); free disk space: a running member then resumes its writes by itself, \
                     a stopped one must be started again"
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
