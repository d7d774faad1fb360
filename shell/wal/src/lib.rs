//! The durable log of one member: segments of blocks of records, slots for term and vote, an identity, a lock.
//!
//! ```text
//!  data directory
//!  ├ lock                        held by the one process that may write here
//!  ├ identity                    cluster, member, incarnation, first members
//!  ├ slots-00000000              term and vote of group 0, twice
//!  ├ log-0000000000000001.seg    preallocated, written front to back, block by block
//!  ├ log-0000000000000002.seg    …
//!  ├ snapshot-<group>-<index>-<term>.snap    a group's state as of that entry; the newest two are kept
//!  └ reserve                     space that is given back when the disk is full
//! ```
//!
//! [`DataDir`] locks a directory and reads its identity; [`Wal`] appends, syncs, reads back and prunes; a
//! [`SnapshotStore`] keeps snapshots; [`inspect`] lists the content of a directory. All access goes through the
//! [`Files`] seam: [`RealFiles`] is a directory; `kattu_disk::SimDisk`, in `proof/disk`, a disk that loses power on
//! request. The crate starts no thread, reads no clock and draws no random number.
//!
//! The layouts are drawn in `docs/formats/`: `record.md`, `block.md`, `slots.md`, `identity.md`,
//! `snapshot.md`.
//! Knows nothing of: commands, peers, threads.
//!
//! ```
//! use kattu_disk::SimDisk;
//! use kattu_raft::{GroupId, Incarnation, NodeId};
//! use kattu_wal::{DataDir, Identity, Wal, WalOptions};
//! use std::sync::Arc;
//!
//! let mut dir = DataDir::open(Arc::new(SimDisk::new()))?;
//! let options = WalOptions { segment_bytes: 1 << 16, reserve_bytes: 0, ..WalOptions::default() };
//! dir.create(Identity::single(0xC1, NodeId(1), Incarnation(42), "n1"), &options)?;
//! let (mut wal, recovered) = Wal::open(dir, options)?;
//! assert_eq!(recovered[&GroupId(0)].last.index.0, 0);
//! # use kattu_raft::{Body, EntryHead, EntryId, EntryKind, LogBody, LogRecord, Lsn, Stamp};
//! # let head = EntryHead { id: EntryId::new(1, 1), kind: EntryKind::Noop, stamp: Stamp(0) };
//! # let entry = kattu_wire::record_encode(crc32c::crc32c_append, GroupId(0), head, Body::Whole(b""));
//! wal.append(GroupId(0), &[LogRecord { lsn: Lsn(1), body: LogBody::Entry(entry) }])?;
//! assert_eq!(wal.sync()?, [(GroupId(0), Lsn(1))]);
//! # Ok::<(), kattu_wal::WalError>(())
//! ```

pub mod block;
mod dir;
mod direct;
mod error;
mod extent;
pub mod files;
mod identity;
mod index;
mod inspect;
pub mod names;
mod pending;
mod real;
mod replay;
mod scan;
mod segment;
mod slots;
mod small_file;
pub mod snapshot;
mod tail_bound;
mod uncached;
mod unsynced;
mod vote_floor;
mod wal;

pub use dir::incarnations::Incarnations;
pub use dir::known_members::{KnownMembers, PeerUrls};
pub use dir::vote_hold::VoteHoldRecord;
pub use dir::{DataDir, IDENTITY};
pub use error::WalError;
pub use files::{Files, LogFile, Remains};
pub use identity::{Identity, InitialMember};
pub use inspect::{Item, Verdict, inspect};
pub use real::{RealFiles, sector_of};
pub use scan::Position;
pub use segment::{Prepared, SegmentTask};
pub use snapshot::{Chunks, Snapshot, SnapshotReader, SnapshotStore, SnapshotWriter};
pub use uncached::UncachedFiles;
pub use unsynced::UnsyncedFiles;
pub use wal::{LogReader, ReadPlan, Wal, WalOptions, WalStats};

use kattu_raft::{Body, RecordEncoder};

/// Lays out new entries as the log stores them, with the checksum that the processor computes.
#[must_use]
pub fn encoder() -> RecordEncoder {
    RecordEncoder(|group, head, payload, records| {
        kattu_wire::record_append(crc32c::crc32c_append, group, head, Body::Whole(payload), records)
    })
}
