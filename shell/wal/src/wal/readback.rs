//! Reading back: entries from their place in the log, verified once more.
//!
//! Knows nothing of: why they are wanted.

use super::Wal;
use crate::block::{BlockHeader, HEADER_BYTES, padded};
use crate::error::WalError;
use crate::identity::Identity;
use crate::segment::{Segment, name_of};
use crate::walk::Position;
use kattu_raft::{Entry, GroupId, LogIndex, SharedBytes};
use kattu_wire::record::{RecordHeader, RecordKind, record_decode};

impl Wal {
    /// Reads entries back: consecutive ones from `first` on, at most to `last`, stopping once they exceed `bytes_max`
    /// bytes; at least one if it is there. Entries that are not written yet are not there, nor are those up to the base.
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
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        let mut next = first;
        while next <= last {
            let known = self.groups.get(&group).filter(|known| next <= known.written.last.index);
            let Some(run) = known.and_then(|known| known.index.find(next)) else {
                break;
            };
            let segment = self.read_run(run.start, run.stop)?;
            let run_bytes = Run { bytes: segment, start: run.start, identity: &self.identity };
            for entry in run_bytes.entries(group)? {
                let index = entry.id().index;
                if index < next || run.end <= index {
                    continue;
                }
                bytes += entry.len();
                if last < index || (bytes_max < bytes && !entries.is_empty()) {
                    return Ok(entries);
                }
                entries.push(entry);
                next = index.next();
            }
            if next < run.end {
                let what = format!("entry {} of group {} is not where it was written", next.0, group.0);
                return Err(WalError::damaged(&name_of(run.start.segment), run.start.offset, what));
            }
        }
        Ok(entries)
    }

    fn read_run(&mut self, start: Position, stop: u64) -> Result<SharedBytes, WalError> {
        let name = name_of(start.segment);
        let read = |error: std::io::Error| WalError::io(&name, "read", &error);
        let mut bytes = vec![0; (stop - start.offset) as usize];
        if start.segment == self.current.generation {
            self.current.file.read_at(start.offset, &mut bytes).map_err(read)?;
            return Ok(SharedBytes::from(bytes));
        }
        let is_open = self.reading.as_ref().is_some_and(|open| open.generation == start.segment);
        if !is_open {
            let file = self.files.open(&name).map_err(read)?;
            let len = file.bytes().map_err(read)?;
            self.reading = Some(Segment { generation: start.segment, len, file });
        }
        let open = self.reading.as_ref().expect("opened above");
        open.file.read_at(start.offset, &mut bytes).map_err(read)?;
        Ok(SharedBytes::from(bytes))
    }
}

/// Bytes of whole blocks, read back.
struct Run<'a> {
    bytes: SharedBytes,
    start: Position,
    identity: &'a Identity,
}

impl Run<'_> {
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
                    record += header.len; // a truncation or a base; the index knows of it
                    continue;
                }
                let (group, entry, after) = record_decode(crc32c::crc32c_append, &self.bytes, record, limit)
                    .map_err(|error| damaged(error.to_string()))?;
                if group == wanted {
                    entries.push(entry);
                }
                record = after;
            }
            at += padded(header.len);
        }
        Ok(entries)
    }
}
