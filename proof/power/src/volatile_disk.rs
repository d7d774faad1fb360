//! Volatile disk: the contents of a disk, flushed and cached.
//!
//! In:    writes of any length at any place, flushes, reads, a power cut.
//! Out:   the image that survives: everything flushed, and of the rest as much as a [`Fate`] leaves, sector by sector.
//! Rule:  a sector of 512 bytes survives whole or not at all; of several unflushed writes to one sector any one may
//!        survive, so that dropping some and applying the others in order gives every image that a real disk may leave.
//!        The first 4 KiB are the exception: a write there survives whole or not at all, because ext4 itself relies on
//!        an untorn superblock, and the log above the file system is under test here.
//! Knows nothing of: FUSE, file systems, members.

use kattu_random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::sync::Arc;

/// Bytes that a disk writes atomically.
pub const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

type Page = Arc<[u8; PAGE as usize]>;

/// Bytes of a disk; pages that were never written are zero. A copy costs next to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    len: u64,
    pages: BTreeMap<u64, Page>,
}

impl Image {
    /// All zeros.
    pub fn zeros(len: u64) -> Image {
        assert!(len.is_multiple_of(PAGE), "{len} bytes are not whole pages");
        Image { len, pages: BTreeMap::new() }
    }

    /// The contents of a file, whose length must be a multiple of 4096.
    ///
    /// # Errors
    /// As reading a file.
    pub fn load(path: &Path) -> io::Result<Image> {
        let mut file = std::fs::File::open(path)?;
        let mut image = Image::zeros(file.metadata()?.len());
        let mut page = [0; PAGE as usize];
        for number in 0..image.len / PAGE {
            file.read_exact(&mut page)?;
            if page != [0; PAGE as usize] {
                image.pages.insert(number, Arc::new(page));
            }
        }
        Ok(image)
    }

    /// Writes a file with holes where nothing was written.
    ///
    /// # Errors
    /// As writing a file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        use std::io::{Seek, SeekFrom};
        let mut file = std::fs::File::create(path)?;
        file.set_len(self.len)?;
        for (number, page) in &self.pages {
            file.seek(SeekFrom::Start(number * PAGE))?;
            file.write_all(&page[..])?;
        }
        Ok(())
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Up to `len` bytes from `offset`; fewer at the end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.len);
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        for (at, part) in pieces(offset, bytes.len() as u64) {
            if let Some(page) = self.pages.get(&(at / PAGE)) {
                let from = (at % PAGE) as usize;
                bytes[part.clone()].copy_from_slice(&page[from..from + part.len()]);
            }
        }
        bytes
    }

    /// Overwrites bytes; panics past the end.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        assert!(offset + data.len() as u64 <= self.len, "a write past the end, at byte {offset}");
        for (at, part) in pieces(offset, data.len() as u64) {
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Arc::new([0; PAGE as usize]));
            let from = (at % PAGE) as usize;
            Arc::make_mut(page)[from..from + part.len()].copy_from_slice(&data[part]);
        }
    }
}

/// Cuts a run of bytes at page boundaries: each piece's place on the disk, and its range in the run.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if end <= at {
            return None;
        }
        let next = ((at / PAGE + 1) * PAGE).min(end);
        let piece = (at, (at - offset) as usize..(next - offset) as usize);
        at = next;
        Some(piece)
    })
}

/// The fate of unflushed writes at a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All are lost.
    Gone,
    /// All survive: the disk happened to be quick.
    Kept,
    /// Each write by itself survives with this chance in a thousand, or is lost.
    Writes(u32),
    /// The same for each sector, so that writes are torn and later ones survive without earlier ones.
    Sectors(u32),
    /// Those up to some point survive, and the write at that point is torn.
    Prefix,
    /// Only the latest ones survive.
    Suffix,
    /// All sectors but one survive.
    AllButOne,
}

impl Fate {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Gone => "all gone",
            Fate::Kept => "all kept",
            Fate::Writes(_) => "some writes gone",
            Fate::Sectors(_) => "some sectors gone",
            Fate::Prefix => "the first ones kept",
            Fate::Suffix => "the last ones kept",
            Fate::AllButOne => "all but one sector kept",
        }
    }

    /// Draws a kind, and its chance.
    pub fn draw(random: &mut Random) -> Fate {
        match random.within(0..8) {
            0 => Fate::Gone,
            1 => Fate::Kept,
            2 => Fate::Writes(random.within(50..951) as u32),
            3 | 4 => Fate::Sectors(random.within(50..951) as u32),
            5 => Fate::Prefix,
            6 => Fate::Suffix,
            _ => Fate::AllButOne,
        }
    }
}

/// Unflushed writes at a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Number of unflushed writes.
    pub writes: u64,
    /// Their sectors.
    pub sectors: u64,
    /// Sectors of them that did not survive.
    pub dropped: u64,
    /// Writes of which some sectors survived and others did not.
    pub torn: u64,
}

impl Loss {
    /// Adds another sum.
    pub fn add(&mut self, other: Loss) {
        self.writes += other.writes;
        self.sectors += other.sectors;
        self.dropped += other.dropped;
        self.torn += other.torn;
    }
}

struct Write {
    offset: u64,
    data: Vec<u8>,
}

impl Write {
    /// Its sectors, as parts of its data; the first 4 KiB of the disk count as one.
    fn sectors(&self) -> Vec<std::ops::Range<usize>> {
        let end = self.offset + self.data.len() as u64;
        let mut at = self.offset;
        let mut parts = Vec::new();
        while at < end {
            let next = if at < PAGE { PAGE } else { (at / SECTOR + 1) * SECTOR }.min(end);
            parts.push((at - self.offset) as usize..(next - self.offset) as usize);
            at = next;
        }
        parts
    }
}

/// A disk with a volatile cache.
pub(crate) struct VolatileDisk {
    flushed: Image,
    current: Image,
    waiting: Vec<Write>,
    lies: bool,
}

impl VolatileDisk {
    /// A disk on which everything of an image is flushed.
    pub fn new(image: Image) -> VolatileDisk {
        VolatileDisk { flushed: image.clone(), current: image, waiting: Vec::new(), lies: false }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.current.len()
    }

    /// Up to `len` bytes from `offset`, as written last, flushed or not.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        self.current.read(offset, len)
    }

    /// Overwrites bytes in the cache; past the end, does nothing and returns false.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        if self.len() < offset.saturating_add(data.len() as u64) {
            return false;
        }
        self.current.write(offset, data);
        if !self.lies {
            self.waiting.push(Write { offset, data: data.to_vec() });
        }
        true
    }

    /// Makes every write so far durable, unless the disk lies.
    pub fn flush(&mut self) {
        if self.lies {
            return;
        }
        let touched: BTreeSet<u64> = self
            .waiting
            .drain(..)
            .flat_map(|write| write.offset / PAGE..(write.offset + write.data.len() as u64).div_ceil(PAGE))
            .collect();
        for page in touched {
            if let Some(bytes) = self.current.pages.get(&page) {
                self.flushed.pages.insert(page, bytes.clone());
            }
        }
    }

    /// From now on the disk drops every write, and answers every flush as done.
    pub fn lie(&mut self) {
        self.lies = true;
    }

    /// The image left after the power cut, and the loss.
    pub fn cut(&self, fate: Fate, random: &mut Random) -> (Image, Loss) {
        let mut image = self.flushed.clone();
        let mut loss = Loss { writes: self.waiting.len() as u64, ..Loss::default() };
        let all: Vec<_> = self.waiting.iter().map(Write::sectors).collect();
        loss.sectors = all.iter().map(|sectors| sectors.len() as u64).sum();
        // One sector among all, and one write among all: the place for the fates that need one.
        let sector_at = random.within(0..loss.sectors);
        let write_at = random.within(0..loss.writes);
        let mut number = 0;
        for (nth, (write, sectors)) in self.waiting.iter().zip(&all).enumerate() {
            let whole = match fate {
                Fate::Writes(permille) => random.per_mille(permille),
                Fate::Suffix => write_at <= nth as u64,
                _ => true,
            };
            let mut kept = 0;
            for sector in sectors {
                let survives = match fate {
                    Fate::Gone => false,
                    Fate::Kept => true,
                    Fate::Writes(_) | Fate::Suffix => whole,
                    Fate::Sectors(permille) => random.per_mille(permille),
                    Fate::Prefix => number < sector_at,
                    Fate::AllButOne => number != sector_at,
                };
                number += 1;
                if survives {
                    kept += 1;
                    image.write(write.offset + sector.start as u64, &write.data[sector.clone()]);
                }
            }
            loss.dropped += (sectors.len() - kept) as u64;
            loss.torn += u64::from(0 < kept && kept < sectors.len());
        }
        (image, loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 64 << 10;
    const FATES: [Fate; 8] = [
        Fate::Gone,
        Fate::Kept,
        Fate::Writes(500),
        Fate::Sectors(500),
        Fate::Sectors(100),
        Fate::Prefix,
        Fate::Suffix,
        Fate::AllButOne,
    ];

    fn volatile_disk() -> VolatileDisk {
        VolatileDisk::new(Image::zeros(LEN))
    }

    #[test]
    fn what_was_flushed_survives_every_fate() {
        for fate in FATES {
            let mut disk = volatile_disk();
            assert!(disk.write(5000, &[1; 9000]));
            disk.flush();
            assert!(disk.write(20000, &[2; 5000]));
            let (image, loss) = disk.cut(fate, &mut Random::new(7));
            assert_eq!(image.read(5000, 9000), vec![1; 9000], "{fate:?}");
            assert_eq!(loss.writes, 1, "{fate:?}");
        }
    }

    #[test]
    fn what_was_not_flushed_is_gone_kept_or_torn_at_sectors_as_the_fate_wills() {
        let cut = |fate| {
            let mut disk = volatile_disk();
            for nth in 0..16_u8 {
                disk.write(8192 + u64::from(nth) * 2048, &[nth + 1; 2048]);
            }
            let (image, loss) = disk.cut(fate, &mut Random::new(3));
            let sectors: Vec<u8> = (0..64)
                .map(|sector| {
                    let bytes = image.read(8192 + sector * SECTOR, SECTOR);
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{fate:?}: half a sector");
                    bytes[0]
                })
                .collect();
            let missing = sectors.iter().filter(|byte| **byte == 0).count();
            assert_eq!(loss.dropped, missing as u64, "{fate:?}");
            (sectors, loss)
        };
        assert_eq!(cut(Fate::Gone).1.dropped, 64);
        assert_eq!(cut(Fate::Kept).1.dropped, 0);
        assert_eq!(cut(Fate::AllButOne).1.dropped, 1);
        assert_eq!(cut(Fate::Writes(500)).1.torn, 0);
        assert!(1 < cut(Fate::Sectors(500)).1.torn);
        let (prefix, _) = cut(Fate::Prefix);
        let end = prefix.iter().position(|byte| *byte == 0).expect("something is gone");
        assert!(prefix[end..].iter().all(|byte| *byte == 0), "nothing after the tear");
        let (suffix, loss) = cut(Fate::Suffix);
        let begin = suffix.iter().position(|byte| *byte != 0).expect("something is there");
        assert!(suffix[begin..].iter().all(|byte| *byte != 0) && 0 < begin && loss.torn == 0);
    }

    #[test]
    fn of_two_unflushed_writes_to_one_sector_either_or_none_survives() {
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let mut disk = volatile_disk();
            disk.write(8192, &[1; 512]);
            disk.write(8192, &[2; 512]);
            seen.insert(disk.cut(Fate::Sectors(500), &mut Random::new(seed)).0.read(8192, 1));
        }
        assert_eq!(seen, BTreeSet::from([vec![0], vec![1], vec![2]]));
    }

    #[test]
    fn the_place_of_the_superblock_is_never_torn() {
        for seed in 0..50 {
            let mut disk = volatile_disk();
            disk.write(1024, &[7; 1024]);
            let (image, loss) = disk.cut(Fate::Sectors(500), &mut Random::new(seed));
            assert_eq!(loss.torn, 0);
            let bytes = image.read(1024, 1024);
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        }
    }

    #[test]
    fn a_disk_that_lies_goes_back_to_the_moment_when_it_began() {
        let mut disk = volatile_disk();
        disk.write(8192, &[1; 512]);
        disk.flush();
        disk.lie();
        disk.write(8192, &[2; 512]);
        disk.flush();
        assert_eq!(disk.read(8192, 1), [2], "while it has power it shows what it was told");
        assert_eq!(disk.cut(Fate::Kept, &mut Random::new(1)).0.read(8192, 1), [1]);
    }

    #[test]
    fn a_write_past_the_end_is_refused_and_a_read_ends_there() {
        let mut disk = volatile_disk();
        assert!(!disk.write(LEN - 1, &[1; 2]));
        assert_eq!(disk.read(LEN - 1, 100), [0]);
        assert!(disk.read(LEN + 5, 100).is_empty());
    }
}
