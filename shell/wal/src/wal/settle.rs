//! Settling: the directory is brought into the state the log goes on from.
//!
//! Knows nothing of: entries, damage.

use crate::block::SECTOR;
use crate::error::WalError;
use crate::files::{Files, LogFile};
use crate::identity::Identity;
use crate::scan::{Position, Scanned, SegmentFound};
use crate::segment::{Segment, name_of, restore_header};
use std::collections::VecDeque;

/// Brings the directory into the state the log goes on from: read bytes are written again where no synced mark covers
/// them, the torn tail becomes zeros, everything is synced, leftovers are removed. Returns the segments from the
/// current one on. Doing it again, also after half of it, changes nothing more.
pub(super) fn settle(
    files: &dyn Files,
    identity: &Identity,
    scanned: &Scanned,
) -> Result<VecDeque<Segment>, WalError> {
    let mut open = VecDeque::new();
    for &SegmentFound { generation, len, .. } in &scanned.segments {
        let name = name_of(generation);
        let io = |doing: &'static str| {
            move |error: std::io::Error| WalError::io(&name_of(generation), doing, &error)
        };
        let file = files.open(&name).map_err(io("open"))?;
        if scanned.headless.iter().any(|(headless, _)| *headless == generation) {
            restore_header(&*file, identity, generation, len).map_err(io("write"))?;
        }
        // A page that a failed sync left clean in memory is not on the disk: only a write makes it dirty again.
        let doubtful = scanned.synced.max(Position { segment: generation, offset: 0 });
        let stop = if scanned.end.segment == generation { scanned.end.offset } else { len };
        if doubtful.segment == generation && generation <= scanned.end.segment {
            rewrite(&*file, doubtful.offset, stop).map_err(io("write"))?;
            file.sync().map_err(io("sync"))?;
        }
        if scanned.end.segment <= generation {
            open.push_back(Segment { generation, len, file });
        }
    }
    let Some(torn) = &scanned.torn else {
        return tidy(files).map(|()| open);
    };
    // Spare segments from the first without a header on are removed, newest first, and each durably before the next one:
    // a power cut may undo any of several removals, which would leave a gap among the names.
    let headless = torn.ranges.iter().filter(|(start, _)| start.offset == 0).map(|(start, _)| start.segment);
    if let Some(first) = headless.min() {
        open.retain(|segment| segment.generation < first);
        let mut generations: Vec<u64> = scanned.segments.iter().map(|found| found.generation).collect();
        generations.extend(torn.ranges.iter().map(|(start, _)| start.segment));
        generations.sort_unstable();
        generations.dedup();
        for generation in generations.into_iter().rev().filter(|generation| first <= *generation) {
            let name = name_of(generation);
            files.remove(&name).map_err(|error| WalError::io(&name, "remove", &error))?;
            files.sync_names().map_err(|error| WalError::syncing(&files.place(), &error))?;
        }
    }
    for &(start, stop) in &torn.ranges {
        let Some(segment) = open.iter().find(|segment| segment.generation == start.segment) else {
            continue;
        };
        let io =
            |error: std::io::Error| WalError::io(&name_of(start.segment), "clear the torn tail of", &error);
        let zeros = vec![0; ((stop - start.offset) as usize).next_multiple_of(SECTOR)];
        segment.file.write_at(start.offset, &zeros).map_err(io)?;
        segment.file.sync().map_err(io)?;
    }
    tidy(files).map(|()| open)
}

/// Reads a range and writes it where it was.
fn rewrite(file: &dyn LogFile, start: u64, stop: u64) -> std::io::Result<()> {
    let mut bytes = vec![0; stop.saturating_sub(start) as usize];
    file.read_at(start, &mut bytes)?;
    file.write_at(start, &bytes)
}

/// Removes leftovers of files that were being made, and makes the names durable.
fn tidy(files: &dyn Files) -> Result<(), WalError> {
    let io = |error: std::io::Error| WalError::io(&files.place(), "tidy", &error);
    for name in files.names().map_err(io)? {
        if name.ends_with(".tmp") || name.ends_with(".part") {
            files.remove(&name).map_err(io)?;
        }
    }
    files.sync_names().map_err(|error| WalError::syncing(&files.place(), &error))
}
