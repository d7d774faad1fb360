//! One change in one file of a member's directory.
//!
//! Knows nothing of: what the file is for.

use kattu_random::Random;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SECTOR: u64 = 512;

/// A change in a file.
pub(super) struct Flip {
    file: PathBuf,
    pub(super) name: String,
    pub(super) offset: u64,
    before: Vec<u8>,
    pub(super) after: Vec<u8>,
    /// The whole file before that.
    whole: Vec<u8>,
}

impl Flip {
    /// Draws a place in any file of a directory, and changes it.
    pub(super) fn strike(random: &mut Random, data: &Path) -> Result<Flip, String> {
        let mut names: Vec<String> = std::fs::read_dir(data)
            .map_err(|error| error.to_string())?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| !name.ends_with(".tmp") && !name.ends_with(".part"))
            .filter(|name| name != "lock" && name != "reserve")
            .collect();
        names.sort_unstable();
        for _ in 0..100 {
            let name = random.pick(&names).clone();
            let file = data.join(&name);
            let Ok(bytes) = std::fs::read(&file) else { continue }; // pruned just now
            let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            // Mostly within the used part of the file.
            let span = if random.per_mille(950) { used } else { bytes.len() };
            if span == 0 {
                continue;
            }
            let at = random.below(span) as u64;
            let (offset, len) = match random.per_mille(200) {
                true => (at - at % SECTOR, SECTOR.min(bytes.len() as u64 - (at - at % SECTOR))),
                false => (at, 1),
            };
            let before = bytes[offset as usize..(offset + len) as usize].to_vec();
            let mut after = before.clone();
            match (len, random.per_mille(500)) {
                (1, _) => after[0] ^= 1 << random.below(8),
                (_, true) => after.fill(0),
                (_, false) => after.iter_mut().for_each(|byte| *byte = random.number() as u8),
            }
            if after == before {
                continue;
            }
            let flip = Flip { file, name, offset, before, after, whole: bytes };
            if flip.put(&flip.after).is_ok() {
                return Ok(flip);
            }
        }
        Err(format!("nothing in {} can be hit", data.display()))
    }

    fn put(&self, bytes: &[u8]) -> std::io::Result<()> {
        std::fs::OpenOptions::new().write(true).open(&self.file)?.write_all_at(bytes, self.offset)
    }

    /// Restores the old bytes, if the damaged ones are still there.
    pub(super) fn undo(&self) -> bool {
        let mut now = vec![0; self.after.len()];
        let read = std::fs::File::open(&self.file).and_then(|file| file.read_exact_at(&mut now, self.offset));
        read.is_ok() && now == self.after && self.put(&self.before).is_ok()
    }

    /// Restores the whole file, whatever became of it.
    pub(super) fn restore(&self) -> Result<(), String> {
        std::fs::write(&self.file, &self.whole).map_err(|error| error.to_string())
    }

    /// The length of vote holds that the file records, if it is `promise`. [docs/formats/identity.md]
    pub(super) fn vote_hold(&self) -> Result<Duration, String> {
        let bytes = std::fs::read(&self.file).map_err(|error| error.to_string())?;
        let nanos = bytes.get(24..32).and_then(|nanos| nanos.try_into().ok());
        let nanos = nanos.ok_or_else(|| format!("{} is short", self.file.display()))?;
        Ok(Duration::from_nanos(u64::from_le_bytes(nanos)))
    }
}
