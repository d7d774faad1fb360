//! Inode: one file: what processes read of it, and which parts a power cut may take away.
//!
//! 1. A write changes what is read at once; the sectors it changes are doubtful until a sync.
//! 2. A sync makes them durable. One that fails makes them *ghosts*: read as written, taken for clean, not on the
//!    medium. [fault-model F11] A write that the disk lost or put elsewhere leaves ghosts too. [fault-model F14]
//! 3. A power cut leaves of each doubtful sector one of its versions, and of ghosts what the medium has.
//!
//! `wronged` holds what the medium would have if the disk had no faults; judges compare with it.
//! Knows nothing of: names, armed faults.

use crate::content::{Content, Image, SECTOR, Sector, bytes_of, image_of};
use std::collections::{BTreeMap, BTreeSet};

/// A sector that was written and not synced.
#[derive(Clone, Debug)]
pub(crate) struct Doubtful {
    pub sector: usize,
    /// When the content that is read now was written.
    pub newest: u64,
    /// The content on the medium.
    pub medium: Image,
    /// The versions written since and overwritten, oldest first.
    pub versions: Vec<(u64, Image)>,
}

/// The part of a doubtful thing that arrived before a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Nothing arrived.
    Lost,
    /// The version of this number arrived, 0 the oldest.
    Version(usize),
}

/// The state of a sector before a write, as needed to undo the write.
#[derive(Clone, Debug)]
pub(crate) enum Before {
    Clean,
    Doubtful,
    /// A ghost that was read so, while the medium had something else.
    Ghost(Image),
    /// A ghost that was overwritten with what the medium had all along; and what the medium should have had.
    Healed(Image, Option<Image>),
    /// A sector that was wrong by the disk's fault until these bytes were written on purpose; what the medium should
    /// have had.
    Righted(Image),
}

/// Everything needed to undo a write or an allocation.
#[derive(Clone, Debug)]
pub(crate) struct WriteUndo {
    pub sectors: Vec<(usize, Before)>,
    pub len: usize,
    pub length_changed: Option<u64>,
}

/// Everything needed to undo a sync.
#[derive(Clone, Debug)]
pub(crate) struct SyncUndo {
    pub doubtful: Vec<Doubtful>,
    ghosts: BTreeMap<usize, Image>,
    wronged: BTreeMap<usize, Image>,
    len_durable: usize,
    length_changed: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    pub content: Content,
    pub len_durable: usize,
    /// When the length last changed, if not synced since.
    pub length_changed: Option<u64>,
    /// Ascending by sector.
    pub doubtful: Vec<Doubtful>,
    /// Sector → what the medium really has.
    pub ghosts: BTreeMap<usize, Image>,
    /// Sector → what should be on the medium and is not, by the disk's fault alone.
    pub wronged: BTreeMap<usize, Image>,
    /// Sector → what it held before the last sync of it, if that was not zeros.
    pub previous: BTreeMap<usize, Image>,
    /// Sectors that cannot be read until they are written.
    pub unreadable: BTreeSet<usize>,
}

impl Inode {
    /// A durable file.
    pub fn of(bytes: &[u8]) -> Inode {
        Inode { content: Content::of(bytes), len_durable: bytes.len(), ..Inode::default() }
    }

    fn doubt(&self, sector: usize) -> Result<usize, usize> {
        match self.doubtful.last() {
            Some(last) if last.sector < sector => Err(self.doubtful.len()),
            _ => self.doubtful.binary_search_by_key(&sector, |doubtful| doubtful.sector),
        }
    }

    pub fn grow(&mut self, len: usize, now: u64) {
        if self.content.len() < len {
            self.content.set_len(len);
            self.length_changed = Some(now);
        }
    }

    /// Writes; a write that changes nothing makes nothing doubtful. Adds to `undo` what is needed to undo it.
    pub fn write(&mut self, offset: usize, bytes: &[u8], now: u64, mut undo: Option<&mut WriteUndo>) {
        let stop = offset + bytes.len();
        self.grow(stop, now);
        for number in offset / SECTOR..stop.div_ceil(SECTOR) {
            let start = number * SECTOR;
            let (from, to) = (offset.max(start), stop.min(start + SECTOR));
            let part = &bytes[from - offset..to - offset];
            let before = match <&Sector>::try_from(part) {
                Ok(whole) => self.write_sector(number, whole, now),
                Err(_) => {
                    let mut merged = *self.content.sector(number);
                    merged[from - start..to - start].copy_from_slice(part);
                    self.write_sector(number, &merged, now)
                }
            };
            if let (Some(undo), Some(before)) = (&mut undo, before) {
                undo.sectors.push((number, before));
            }
        }
    }

    fn write_sector(&mut self, number: usize, new: &Sector, now: u64) -> Option<Before> {
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&number);
        }
        let old = self.content.sector(number);
        match self.doubt(number) {
            Ok(at) => {
                if old == new {
                    return None;
                }
                let doubtful = &mut self.doubtful[at];
                doubtful.versions.push((doubtful.newest, image_of(old)));
                doubtful.newest = now;
                self.content.set_sector(number, new);
                Some(Before::Doubtful)
            }
            Err(at) => {
                let ghost = if self.ghosts.is_empty() { None } else { self.ghosts.remove(&number) };
                let (medium, before) = match ghost {
                    Some(medium) if bytes_of(&medium) == new => {
                        let before = Before::Healed(image_of(old), self.wronged.remove(&number));
                        self.content.set_sector(number, new);
                        return Some(before);
                    }
                    Some(medium) => (medium, Before::Ghost(image_of(old))),
                    // The medium has these bytes already, by a fault or not: nothing is doubtful, and nothing has to be
                    // put right.
                    None if old == new => return self.wronged.remove(&number).map(Before::Righted),
                    None => (image_of(old), Before::Clean),
                };
                self.doubtful
                    .insert(at, Doubtful { sector: number, newest: now, medium, versions: Vec::new() });
                self.content.set_sector(number, new);
                Some(before)
            }
        }
    }

    pub(crate) fn undo_write(&mut self, undo: WriteUndo) {
        for (number, before) in undo.sectors.into_iter().rev() {
            if let Before::Righted(right) = before {
                self.wronged.insert(number, right);
                continue;
            }
            if let Before::Healed(old, wronged) = before {
                self.ghosts.insert(number, image_of(self.content.sector(number)));
                self.wronged.extend(wronged.map(|right| (number, right)));
                self.content.set_sector(number, bytes_of(&old));
                continue;
            }
            let Ok(at) = self.doubt(number) else { continue };
            if matches!(before, Before::Doubtful) {
                let (newest, image) = self.doubtful[at].versions.pop().expect("it was doubtful before");
                self.doubtful[at].newest = newest;
                self.content.set_sector(number, bytes_of(&image));
                continue;
            }
            let doubtful = self.doubtful.remove(at);
            match before {
                Before::Ghost(old) => {
                    self.content.set_sector(number, bytes_of(&old));
                    self.ghosts.insert(number, doubtful.medium);
                }
                _ => self.content.set_sector(number, bytes_of(&doubtful.medium)),
            }
        }
        self.content.set_len(undo.len);
        self.length_changed = undo.length_changed;
    }

    /// Makes everything written durable.
    pub fn sync(&mut self) -> SyncUndo {
        let doubtful = core::mem::take(&mut self.doubtful);
        let (ghosts, wronged) = (self.ghosts.clone(), self.wronged.clone());
        for firm in &doubtful {
            if firm.medium.is_some() {
                self.previous.insert(firm.sector, firm.medium.clone());
            }
            if !self.wronged.is_empty() {
                self.wronged.remove(&firm.sector);
            }
        }
        let (len_durable, length_changed) = (self.len_durable, self.length_changed.take());
        let undo = SyncUndo { doubtful, ghosts, wronged, len_durable, length_changed };
        self.len_durable = self.content.len();
        undo
    }

    pub(crate) fn undo_sync(&mut self, undo: SyncUndo) {
        (self.doubtful, self.ghosts, self.wronged) = (undo.doubtful, undo.ghosts, undo.wronged);
        self.len_durable = undo.len_durable;
        self.length_changed = undo.length_changed;
    }

    /// A sync that fails: the system forgets that the pages were dirty. Sectors for which `survives` returns true are
    /// on the medium all the same; the others can still be read as written or, with `forget`, read as before. Returns
    /// how many are lost.
    pub(crate) fn fail_sync(&mut self, forget: bool, survives: &mut dyn FnMut() -> bool) -> usize {
        let mut lost = 0;
        for doubtful in core::mem::take(&mut self.doubtful) {
            if survives() {
                self.wronged.remove(&doubtful.sector);
                continue;
            }
            lost += 1;
            if forget {
                self.content.set_sector(doubtful.sector, bytes_of(&doubtful.medium));
            } else {
                self.ghosts.insert(doubtful.sector, doubtful.medium);
            }
        }
        lost
    }

    /// The disk never wrote `sector`, which a sync has just called durable: the medium still has `medium`.
    pub(crate) fn lose_write(&mut self, sector: usize, medium: Image) {
        self.wronged.entry(sector).or_insert_with(|| image_of(self.content.sector(sector)));
        self.ghosts.insert(sector, medium);
    }

    /// The medium gets `image` in `sector` by a fault of the disk. Reads return it, unless the sector is dirty, or
    /// `cached`.
    pub fn wrong(&mut self, sector: usize, image: Image, cached: bool) {
        if let Ok(at) = self.doubt(sector) {
            let medium = core::mem::replace(&mut self.doubtful[at].medium, image);
            self.wronged.entry(sector).or_insert(medium);
            return;
        }
        let right =
            self.ghosts.get(&sector).cloned().unwrap_or_else(|| image_of(self.content.sector(sector)));
        self.wronged.entry(sector).or_insert(right);
        if cached {
            self.ghosts.insert(sector, image);
        } else {
            self.ghosts.remove(&sector);
            self.content.set_sector(sector, bytes_of(&image));
        }
    }

    /// The medium's content of `sector`.
    pub fn medium(&self, sector: usize) -> &Sector {
        if let Ok(at) = self.doubt(sector) {
            return bytes_of(&self.doubtful[at].medium);
        }
        self.ghosts.get(&sector).map_or_else(|| self.content.sector(sector), bytes_of)
    }

    /// Clean pages are dropped from memory: reads return what the medium has.
    pub fn drop_cache(&mut self) -> usize {
        let ghosts = core::mem::take(&mut self.ghosts);
        for (sector, medium) in &ghosts {
            self.content.set_sector(*sector, bytes_of(medium));
        }
        ghosts.len()
    }

    /// Power is lost. `arrival` decides about each doubtful sector, in ascending order; `length_arrives` about the
    /// length.
    pub(crate) fn lose_power(&mut self, length_arrives: bool, arrival: &mut dyn FnMut(&Doubtful) -> Arrival) {
        for mut doubtful in core::mem::take(&mut self.doubtful) {
            match arrival(&doubtful) {
                Arrival::Lost => self.content.set_sector(doubtful.sector, bytes_of(&doubtful.medium)),
                Arrival::Version(version) => {
                    if version < doubtful.versions.len() {
                        let (_, image) = doubtful.versions.swap_remove(version);
                        self.content.set_sector(doubtful.sector, bytes_of(&image));
                    }
                    self.wronged.remove(&doubtful.sector);
                }
            }
        }
        self.drop_cache();
        if self.length_changed.take().is_some() && !length_arrives {
            self.content.set_len(self.len_durable);
        }
        self.len_durable = self.content.len();
    }
}
