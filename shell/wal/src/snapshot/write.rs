//! Writing: a snapshot of this member chunk by chunk, a peer's byte for byte.
//!
//! 1. Everything goes to a file aside, synced every MiB so that no sync of the log waits behind all of it at once.
//! 2. The whole file is synced, read back and checked. [fault-model ST9, ST10]
//! 3. It is renamed and the names are synced. Only now does it exist; only now may older ones be removed.
//!
//! A peer's bytes are the peer's file, from offset 0: the receiver checks exactly the bytes that the sender has. They
//! are decoded before step 3, because a peer may be a liar.
//! Knows nothing of: the state in the chunks, peers, rate limits.

use super::SnapshotStore;
use super::format::{CHUNK_BYTES_MAX, Chain, FileDigest, Header, Pass};
use super::read::Chunks;
use super::store::{Snapshot, name_of};
use crate::direct::PAGE;
use crate::error::WalError;
use crate::files::LogFile;
use kattu_raft::{EntryId, GroupId, SnapshotMeta};

/// Chunks are gathered to this many bytes and written together.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes between two syncs of a growing file: a sync of the log on the same disk waits for about that many.
const SYNC_BYTES: u64 = 1 << 20;

/// A file aside that becomes a snapshot or nothing.
#[derive(Debug)]
struct Aside {
    store: SnapshotStore,
    header: Header,
    name: String,
    aside: String,
    file: Box<dyn LogFile>,
    /// Bytes written, and those of them that are synced.
    at: u64,
    synced: u64,
    is_published: bool,
}

impl Aside {
    fn create(store: &SnapshotStore, header: Header, how: &str) -> Result<Aside, WalError> {
        let name = name_of(header.group, header.meta.last);
        let aside = format!("{name}.{how}.part");
        let file = store.files().create(&aside).map_err(|error| WalError::growing(&name, 0, &error))?;
        Ok(Aside { store: store.clone(), header, name, aside, file, at: 0, synced: 0, is_published: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        let written = self.file.write_at(self.at, bytes);
        written.map_err(|error| WalError::growing(&self.name, self.at + bytes.len() as u64, &error))?;
        self.at += bytes.len() as u64;
        if SYNC_BYTES <= self.at - self.synced { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), WalError> {
        self.file.sync().map_err(|error| WalError::syncing(&self.name, &error))?;
        self.synced = self.at;
        Ok(())
    }

    /// Steps 2 and 3; between them `read` decodes the chunks. `digest` is the file's if this member has made it. An error if the
    /// file is damaged, is not the announced snapshot, or cannot be decoded: then it is removed.
    fn publish<T>(
        mut self,
        digest: Option<FileDigest>,
        read: impl FnOnce(&mut Chunks<'_>) -> Result<T, String>,
    ) -> Result<(Snapshot, T), WalError> {
        self.sync()?;
        let pass = match digest {
            Some(digest) => Pass::of_written(&*self.file, &self.name, digest),
            None => Pass::begin(&*self.file, &self.name),
        };
        let checked = pass.and_then(Pass::finish)?;
        if checked.header != self.header {
            let Header { cluster, group, meta } = &checked.header;
            let what = format!(
                "a snapshot of cluster {cluster:x}, group {}, up to {}; expected cluster {:x}, group {}, up to {}",
                group.0, meta.last, self.header.cluster, self.header.group.0, self.header.meta.last
            );
            return Err(WalError::damaged(&self.name, 16, what));
        }
        let snapshot = Snapshot {
            name: self.name.clone(),
            group: self.header.group,
            meta: self.header.meta.clone(),
            bytes: checked.bytes,
            chunks: checked.chunks,
        };
        let mut chunks = Chunks::of(Pass::begin(&*self.file, &self.name)?);
        let made = read(&mut chunks);
        if let Some(error) = chunks.failed {
            return Err(error); // an error of this disk, not of the content
        }
        let made = made.map_err(|what| WalError::Unreadable { file: self.name.clone(), what })?;
        self.is_published = true; // from here on the file must not be discarded
        Ok((self.store.publish(&self.aside, snapshot)?, made))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = self.store.discard(&self.aside); // the next start would remove it, too
        }
    }
}

/// A snapshot of this member that is being written. Dropping it unfinished leaves nothing behind.
pub struct SnapshotWriter {
    aside: Aside,
    chain: Chain,
    buffer: Vec<u8>,
}

impl SnapshotWriter {
    pub(super) fn create(
        store: &SnapshotStore,
        group: GroupId,
        meta: SnapshotMeta,
    ) -> Result<SnapshotWriter, WalError> {
        let header = Header { cluster: store.cluster(), group, meta };
        let buffer = header.to_bytes();
        let chain = Chain::after(&buffer);
        Ok(SnapshotWriter { aside: Aside::create(store, header, "taken")?, chain, buffer })
    }

    /// Adds a chunk.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], [`WalError::Io`]: the snapshot has failed and may be started again, unless
    /// [`WalError::is_failed_sync`].
    ///
    /// # Panics
    /// If the chunk is empty or larger than [`CHUNK_BYTES_MAX`].
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), WalError> {
        let header = self.chain.chunk(chunk);
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(chunk);
        if self.buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        // The rest waits: whole pages pass the system's cache by.
        let whole = self.buffer.len() / PAGE * PAGE;
        self.aside.write(&self.buffer[..whole])?;
        self.buffer.drain(..whole);
        Ok(())
    }

    /// Bytes of the file so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.aside.at + self.buffer.len() as u64
    }

    /// Completes the file, makes it durable, reads it back, and gives it its name. Reads the whole file: not for a
    /// thread that must not wait.
    ///
    /// # Errors
    /// As [`SnapshotWriter::push`]; [`WalError::Damaged`] if the file does not read back as it was written.
    pub fn finish(mut self) -> Result<Snapshot, WalError> {
        let (footer, digest) = self.chain.footer();
        self.buffer.extend_from_slice(&footer);
        self.aside.write(&self.buffer)?;
        self.aside.publish(Some(digest), |_| Ok(())).map(|(snapshot, ())| snapshot)
    }
}

impl std::fmt::Debug for SnapshotWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SnapshotWriter({}, {} bytes)", self.aside.name, self.bytes())
    }
}

/// A peer's snapshot that is being received. Dropping it leaves nothing behind.
#[derive(Debug)]
pub(super) struct Receiving {
    aside: Aside,
    total: u64,
}

impl Receiving {
    pub fn create(
        store: &SnapshotStore,
        group: GroupId,
        meta: SnapshotMeta,
        total: u64,
    ) -> Result<Receiving, WalError> {
        let header = Header { cluster: store.cluster(), group, meta };
        let aside = Aside::create(store, header, "received")?;
        // Space for all of it is taken now, so that a full disk fails at once.
        if total != 0 {
            aside.file.allocate(total).map_err(|error| WalError::growing(&aside.name, total, &error))?;
        }
        Ok(Receiving { aside, total })
    }

    pub fn is(&self, group: GroupId, meta: &SnapshotMeta, total: u64) -> bool {
        (self.aside.header.group, &self.aside.header.meta, self.total) == (group, meta, total)
    }

    /// The last entry that it will cover.
    pub fn last(&self) -> EntryId {
        self.aside.header.meta.last
    }

    /// The first byte that is missing.
    pub fn next(&self) -> u64 {
        self.aside.at
    }

    pub fn is_whole(&self) -> bool {
        self.aside.at == self.total
    }

    /// Writes the piece at `offset` if it is the next one and within the whole; ignores any other.
    pub fn take(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WalError> {
        let fits = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.total);
        if offset == self.aside.at && fits { self.aside.write(bytes) } else { Ok(()) }
    }

    pub fn finish<T>(self, read: impl FnOnce(&mut Chunks<'_>) -> Result<T, String>) -> Result<T, WalError> {
        self.aside.publish(None, read).map(|(_, made)| made)
    }
}

const _: () = assert!(BUFFER_BYTES <= CHUNK_BYTES_MAX);
