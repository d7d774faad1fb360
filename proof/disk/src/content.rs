//! Content: the bytes of a file, in pages that exist once they hold other bytes than zeros.
//!
//! Copies share their pages until one of them writes, so a copy of a disk costs a few pointers.
//! Knows nothing of: syncs, names.

use std::sync::Arc;

pub(crate) const SECTOR: usize = kattu_wal::block::SECTOR;
const PAGE: usize = 4096;

pub(crate) type Sector = [u8; SECTOR];

/// The bytes of one sector that is kept aside; `None` is zeros.
pub(crate) type Image = Option<Arc<Sector>>;

static ZEROS: Sector = [0; SECTOR];

pub(crate) fn image_of(bytes: &Sector) -> Image {
    (*bytes != ZEROS).then(|| Arc::new(*bytes))
}

pub(crate) fn bytes_of(image: &Image) -> &Sector {
    image.as_deref().unwrap_or(&ZEROS)
}

/// Bytes from 0 to a length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    len: usize,
    /// `None`, or behind the end: zeros.
    pages: Vec<Option<Arc<[u8; PAGE]>>>,
}

impl Content {
    pub fn of(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        content.set_len(bytes.len());
        for (number, part) in bytes.chunks(SECTOR).enumerate() {
            let mut sector = ZEROS;
            sector[..part.len()].copy_from_slice(part);
            content.set_sector(number, &sector);
        }
        content
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Grows with zeros, or drops the bytes behind `len`.
    pub fn set_len(&mut self, len: usize) {
        if len < self.len {
            self.pages.truncate(len.div_ceil(PAGE));
            if let Some(Some(page)) = self.pages.get_mut(len / PAGE) {
                Arc::make_mut(page)[len % PAGE..].fill(0);
            }
        }
        self.len = len;
    }

    pub fn sector(&self, number: usize) -> &Sector {
        match self.pages.get(number * SECTOR / PAGE) {
            Some(Some(page)) => {
                page[number * SECTOR % PAGE..].first_chunk().expect("pages hold whole sectors")
            }
            _ => &ZEROS,
        }
    }

    /// Sets one sector; the length stays.
    pub(crate) fn set_sector(&mut self, number: usize, bytes: &Sector) {
        let page = number * SECTOR / PAGE;
        if self.pages.get(page).is_none_or(Option::is_none) {
            if *bytes == ZEROS {
                return;
            }
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
        }
        let page = self.pages[page].get_or_insert_with(|| Arc::new([0; PAGE]));
        Arc::make_mut(page)[number * SECTOR % PAGE..][..SECTOR].copy_from_slice(bytes);
    }

    /// Fills `buffer` from `offset` on; `false` if the file ends first.
    pub fn read(&self, offset: usize, buffer: &mut [u8]) -> bool {
        if self.len < offset.saturating_add(buffer.len()) {
            return false;
        }
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let take = (PAGE - at % PAGE).min(rest.len());
            let (part, after) = rest.split_at_mut(take);
            match self.pages.get(at / PAGE) {
                Some(Some(page)) => part.copy_from_slice(&page[at % PAGE..at % PAGE + take]),
                _ => part.fill(0),
            }
            (at, rest) = (at + take, after);
        }
        true
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_holds_what_a_plain_vector_holds() {
        let mut dice = crate::Dice::new(7);
        let mut naive: Vec<u8> = Vec::new();
        let mut content = Content::default();
        for _ in 0..2000 {
            match dice.below(3) {
                0 => {
                    let len = dice.below(40_000) as usize;
                    naive.resize(len, 0);
                    content.set_len(len);
                }
                1 if SECTOR <= naive.len() => {
                    let number = dice.below((naive.len() / SECTOR) as u64) as usize;
                    let sector = if dice.one_in(3) { ZEROS } else { [dice.roll() as u8; SECTOR] };
                    naive[number * SECTOR..(number + 1) * SECTOR].copy_from_slice(&sector);
                    content.set_sector(number, &sector);
                    assert_eq!(content.sector(number), &sector);
                }
                _ => assert_eq!(content.to_vec(), naive),
            }
        }
        assert!(!content.read(naive.len(), &mut [0]));
        assert_eq!(Content::of(&naive).to_vec(), naive);
    }

    #[test]
    fn a_large_file_of_zeros_takes_no_page() {
        let mut content = Content::default();
        content.set_len(16 << 20);
        (0..32_768).for_each(|sector| content.set_sector(sector, &ZEROS));
        assert!(content.pages.is_empty());
    }
}
