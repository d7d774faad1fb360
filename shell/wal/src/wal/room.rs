//! Room: segments made ahead, rotation to the next one, and the reserve for a full disk. [fault-model ST15]
//!
//! Knows nothing of: threads.

use super::Wal;
use crate::block::{BlockHeader, HEADER_BYTES, flags, next_block};
use crate::error::WalError;
use crate::scan::SegmentFound;
use crate::segment::{self, DATA_START, Prepared, Segment, SegmentTask};

/// The least number of used segments that are kept as spare ones.
const SPARES_MIN: u64 = 2;

/// Bytes of spare segments at most: a start reads them all, in search of blocks that a power cut has left in them.
const SPARE_BYTES_MAX: u64 = 1 << 30;

impl Wal {
    /// Bytes that can be appended without more space from the disk; 0 while the reserve is gone. A write of few small
    /// records takes up to two sectors more than they do. [fault-model ST15]
    #[must_use]
    pub fn space(&self) -> u64 {
        if !self.has_reserve {
            return 0;
        }
        let (start, sector) = (self.start_block_bytes(), self.options.sector_bytes);
        let room = |segment: &Segment| (segment.data_end(sector) - DATA_START).saturating_sub(start);
        let spare: u64 = self.spare.iter().map(room).sum();
        let free = self.current.data_end(sector).saturating_sub(self.offset + self.start_bytes()) + spare;
        free.saturating_sub(self.pending.bytes() as u64)
    }

    /// A task that makes the next segment and removes those that are no longer needed, if either is due and no task is
    /// running. Run it anywhere, then call [`Wal::accept`]. Without it the log makes its segments itself, when it needs
    /// them, and keeps all of them.
    ///
    /// Used segments become spare ones, as many as the log fills from one snapshot to the next: then it only overwrites
    /// old blocks, and the directory stays at its largest size.
    pub fn wants_segment(&mut self) -> Option<SegmentTask> {
        if self.task {
            if self.spare.is_empty() && self.current.len / 2 < self.offset {
                self.gate.set_urgent(true);
            }
            return None;
        }
        let used = self.may_go();
        if !self.spare.is_empty() && self.has_reserve && used.is_empty() {
            return None;
        }
        self.task = true;
        self.freed_reserve = false;
        self.gate.set_urgent(false);
        let len = segment::length_for(self.options.segment_bytes, 0, self.options.sector_bytes);
        let kept = self.cycle.min(SPARE_BYTES_MAX / len).max(SPARES_MIN) as usize;
        Some(SegmentTask {
            files: self.files.clone(),
            identity: self.identity.clone(),
            len,
            wanted: (usize::from(self.spare.is_empty()), kept.saturating_sub(self.spare.len())),
            used,
            reserve: self.options.reserve_bytes,
            gate: self.gate.clone(),
        })
    }

    /// Takes the result of a [`SegmentTask`].
    ///
    /// # Errors
    /// The task's own. The task may be repeated, unless a sync failed: that poisons the log. [fault-model F11]
    pub fn accept(&mut self, made: Result<Prepared, WalError>) -> Result<(), WalError> {
        self.task = false;
        self.check()?;
        let taken = made.and_then(|made| self.take_segments(made));
        taken.map_err(|error| if error.is_failed_sync() { self.poison(error) } else { error })
    }

    fn take_segments(&mut self, made: Prepared) -> Result<(), WalError> {
        let Prepared { segments, used_below, has_reserve, error } = made;
        self.has_reserve = has_reserve && !self.freed_reserve;
        while self.used.pop_front_if(|used| used.generation < used_below).is_some() {
            self.stats.pruned += 1;
        }
        for segment in segments {
            // A segment that the log could not wait for was opened by its name already.
            if segment.generation == self.next_generation() {
                self.spare.push_back(segment);
            }
        }
        error.map_or(Ok(()), Err)
    }

    /// Goes on in the next segment, which has room for a block of at least `need` bytes.
    ///
    /// 1. The next segment is durable. If there is no space for it, nothing has changed.
    /// 2. A rotation mark ends this one, and all of it is synced.
    /// 3. The first block of the next one records that: bad bytes in this one are damage from now on.
    pub(super) fn rotate(&mut self, need: u64) -> Result<(), WalError> {
        let (need, sector) = (need + self.start_block_bytes(), self.options.sector_bytes);
        let fits = |segment: &Segment| DATA_START + need <= segment.data_end(sector);
        if !self.spare.front().is_some_and(fits) {
            self.find_or_make(need)?;
        }

        self.write_empty(flags::ROTATE)?;
        self.sync_current()?;

        let next = self.spare.pop_front().expect("made above");
        let Segment { generation, len, .. } = self.current;
        let (is_start, block_bytes) = (self.current_is_start, self.offset - DATA_START);
        self.full.push_back(SegmentFound { generation, len, is_start, block_bytes });
        self.current = next;
        self.current_is_start = false;
        self.offset = DATA_START;
        self.synced = self.end();
        self.stats.rotations += 1;
        Ok(())
    }

    /// Writes a block without records, up to the next sector.
    fn write_empty(&mut self, flags: u16) -> Result<(), WalError> {
        let stop = next_block(self.offset, HEADER_BYTES, self.options.sector_bytes);
        assert!(stop <= self.current.len, "room is kept for the rotation mark");
        let mut bytes = vec![0; (stop - self.offset) as usize];
        let header = BlockHeader { flags, len: HEADER_BYTES, ..self.header_at(self.offset) };
        let chain = header.put(&mut bytes, 0);
        self.put(&bytes).map_err(|error| self.poison(error))?;
        (self.chain, self.number, self.offset) = (chain, self.number + 1, stop);
        self.stats.blocks += 1;
        self.stats.writes += 1;
        self.stats.bytes_written += bytes.len() as u64;
        Ok(())
    }

    /// A log that was written for smaller sectors may end within one: an empty block fills that sector, once, and every
    /// later write begins at a sector.
    pub(super) fn align(&mut self) -> Result<(), WalError> {
        let sector = self.options.sector_bytes;
        // The rotation mark itself fills the last sector of a segment.
        if self.offset.is_multiple_of(sector as u64) || self.current.data_end(sector) < self.offset {
            return Ok(());
        }
        self.write_empty(0)
    }

    /// Provides the next segment without the task: one that the task has named but not delivered yet, if it is large
    /// enough; else a new one.
    fn find_or_make(&mut self, need: u64) -> Result<(), WalError> {
        let generation = self.current.generation + 1;
        let gate = self.gate.clone();
        let mut names = gate.own();
        if let Some(error) = names.broken.clone() {
            return Err(self.poison(error));
        }
        if self.spare.is_empty() && generation < names.next {
            let found = segment::open_named(&*self.files, generation).map_err(|error| self.poison(error))?;
            let is_fit = DATA_START + need <= found.data_end(self.options.sector_bytes);
            self.spare.push_back(found);
            if is_fit {
                return Ok(());
            }
        }
        let len = segment::length_for(self.options.segment_bytes, need, self.options.sector_bytes);
        let made = match self.make_segment(generation, len) {
            Err(error @ WalError::NoSpace { .. }) => return Err(error),
            other => other.map_err(|error| self.poison(error))?,
        };
        names.next = names.next.max(generation + 1);
        self.spare.pop_front(); // too small, and just replaced under its name
        self.spare.push_front(made);
        Ok(())
    }

    /// Makes a segment at once; on a full disk the reserve is given back for it.
    fn make_segment(&mut self, generation: u64, len: u64) -> Result<Segment, WalError> {
        match segment::create(&*self.files, &self.identity, generation, len) {
            Err(WalError::NoSpace { .. }) if self.has_reserve && self.options.reserve_bytes != 0 => {
                (self.has_reserve, self.freed_reserve) = (false, true);
                segment::free_reserve(&*self.files)?;
                segment::create(&*self.files, &self.identity, generation, len)
            }
            other => other,
        }
    }
}
