//! Reading back: entries are read from their place in the log and verified again, by the log itself or beside it.
//!
//! The log makes a plan of which blocks hold the wanted entries. Carrying it out needs only the files, so a disk that
//! is slow to read delays no write.
//! Rules: written blocks stay as they are while they are needed. So a plan that cannot be carried out is for entries
//!        that are gone, or has met damage: a new plan of the log tells which.
//! Knows nothing of: replication, the apply executor.

use super::Wal;
use crate::block::{BlockHeader, HEADER_BYTES, next_block};
use crate::error::WalError;
use crate::files::Files;
use crate::identity::Identity;
use crate::index::Run;
use crate::scan::Position;
use crate::segment::{Segment, name_of};
use kattu_raft::{Entry, GroupId, LogIndex, SharedBytes};
use kattu_wire::record::{RecordHeader, RecordKind, record_decode};
use std::sync::Arc;

/// Entries to be read, and the blocks that held them when this was made.
#[derive(Debug)]
pub struct ReadPlan {
    group: GroupId,
    first: LogIndex,
    last: LogIndex,
    bytes_max: usize,
    runs: Vec<Run>,
}

/// Carries out plans. It keeps the segment open that it read last.
#[derive(Debug)]
pub struct LogReader {
    files: Arc<dyn Files>,
    identity: Arc<Identity>,
    open: Option<Segment>,
}

impl Wal {
    /// Reads entries back: consecutive ones from `first` on, at most to `last`, stopping once they exceed `bytes_max`
    /// bytes; at least one if there is one. Entries that are not written yet are not read, nor are those up to the
    /// base.
    ///
    /// # Errors
    /// [`WalError::Damaged`] with file and offset; [`WalError::Io`].
    pub fn read(
        &mut self,
        group: GroupId,
        first: LogIndex,
        last: LogIndex,
        bytes_max: usize,
    ) -> Result<Vec<Entry>, WalError> {
        let plan = self.plan(group, first, last, bytes_max);
        self.reader.read(&plan)
    }

    /// The places of the entries that [`Wal::read`] would read: for a [`LogReader`].
    pub fn plan(&self, group: GroupId, first: LogIndex, last: LogIndex, bytes_max: usize) -> ReadPlan {
        let mut plan = ReadPlan { group, first, last, bytes_max, runs: Vec::new() };
        let Some(known) = self.groups.get(&group) else { return plan };
        let last = last.min(known.written.last.index);
        let (mut next, mut bytes) = (first, 0);
        while next <= last
            && bytes <= bytes_max as u64
            && let Some(run) = known.index.find(next)
        {
            bytes += run.stop - run.start.offset;
            next = run.end;
            plan.runs.push(run);
        }
        plan.last = last;
        plan
    }

    /// A reader that works beside the log.
    pub fn reader(&self) -> LogReader {
        LogReader::new(self.files.clone(), self.identity.clone())
    }
}

impl LogReader {
    pub(super) fn new(files: Arc<dyn Files>, identity: Arc<Identity>) -> LogReader {
        LogReader { files, identity, open: None }
    }

    /// Closes the open segment if it is older than `first`: the space of a removed file comes back only when it is
    /// closed.
    pub(super) fn let_go(&mut self, first: u64) {
        self.open.take_if(|open| open.generation < first);
    }

    /// Closes the open segment until the next read.
    pub fn close(&mut self) {
        self.open = None;
    }

    /// The entries of `plan`, as [`Wal::read`] gives them.
    ///
    /// # Errors
    /// [`WalError::Damaged`] with file and offset; [`WalError::Io`]. Both also occur if the log has removed the entries
    /// since they were planned.
    pub fn read(&mut self, plan: &ReadPlan) -> Result<Vec<Entry>, WalError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        let mut next = plan.first;
        for run in &plan.runs {
            let content = Content { bytes: self.bytes_of(run)?, start: run.start, identity: &self.identity };
            for entry in content.entries(plan.group)? {
                let index = entry.id().index;
                if index < next || run.end <= index {
                    continue;
                }
                bytes += entry.len();
                if plan.last < index || (plan.bytes_max < bytes && !entries.is_empty()) {
                    return Ok(entries);
                }
                entries.push(entry);
                next = index.next();
            }
            if next < run.end {
                let what = format!("entry {} of group {} is not where it was written", next.0, plan.group.0);
                return Err(WalError::damaged(&name_of(run.start.segment), run.start.offset, what));
            }
        }
        Ok(entries)
    }

    fn bytes_of(&mut self, run: &Run) -> Result<SharedBytes, WalError> {
        let generation = run.start.segment;
        let name = name_of(generation);
        let read = |error: std::io::Error| WalError::io(&name, "read", &error);
        let segment = match self.open.take().filter(|open| open.generation == generation) {
            Some(open) => open,
            None => {
                let file = self.files.open(&name).map_err(read)?;
                let len = file.bytes().map_err(read)?;
                Segment { generation, len, file }
            }
        };
        let mut bytes = vec![0; (run.stop - run.start.offset) as usize];
        segment.file.read_at(run.start.offset, &mut bytes).map_err(read)?;
        self.open = Some(segment);
        Ok(SharedBytes::from(bytes))
    }
}

/// Bytes of whole blocks, read back.
struct Content<'a> {
    bytes: SharedBytes,
    start: Position,
    identity: &'a Identity,
}

impl Content<'_> {
    /// The entries of one group, verified.
    fn entries(&self, wanted: GroupId) -> Result<Vec<Entry>, WalError> {
        let file = name_of(self.start.segment);
        let mut entries = Vec::new();
        let mut at = 0;
        while at < self.bytes.len() {
            let offset = self.start.offset + at as u64;
            let file_id = self.identity.file_id(self.start.segment);
            let header = BlockHeader::take(&self.bytes[at..], file_id, Position { offset, ..self.start })
                .map_err(|error| WalError::damaged(&file, offset, error.to_string()))?;
            let mut record = at + HEADER_BYTES;
            let body_end = record + header.body;
            while record < body_end {
                let damaged =
                    |what: String| WalError::damaged(&file, self.start.offset + record as u64, what);
                let limit = body_end - record;
                let header = RecordHeader::parse(crc32c::crc32c_append, &self.bytes[record..body_end], limit)
                    .map_err(|error| damaged(error.to_string()))?;
                if !matches!(header.kind, RecordKind::Entry(_)) {
                    record += header.len; // a truncation or a base; the index has it already
                    continue;
                }
                let (group, entry, after) = record_decode(crc32c::crc32c_append, &self.bytes, record, limit)
                    .map_err(|error| damaged(error.to_string()))?;
                if group == wanted {
                    entries.push(entry);
                }
                record = after;
            }
            at = (next_block(offset, header.len, header.sector) - self.start.offset) as usize;
        }
        Ok(entries)
    }
}
