//! Snapshots: files beside the log that hold a group's whole state as of one entry. [fault-model ST9, ST10]
//!
//! ```text
//!   taken here                 sent by a peer
//!   create, push …, finish     store_chunk …                 a file aside: `….part`
//!             └── sync, read back, rename, sync names ──┐
//!                                                       ▼
//!   open, chunks               read_chunk …              `snapshot-<group>-<index>-<term>.snap`
//! ```
//!
//! A file is written once and never changed, and it is used only after every byte of it was checked. The newest two
//! good ones are kept, and those that wait to be loaded into the tables. The layout is in `docs/formats/snapshot.md`.
//! Knows nothing of: the state in the chunks, the schedule of snapshots, the log.

mod format;
mod read;
mod store;
mod write;

pub use format::CHUNK_BYTES_MAX;
pub use read::{Chunks, SnapshotReader};
pub use store::{Snapshot, SnapshotStore, named};
pub use write::SnapshotWriter;

pub(crate) use store::{Unfit, check};
