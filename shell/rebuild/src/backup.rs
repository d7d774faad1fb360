//! Backup: all tables of one member as one file that can be checked and restored.
//!
//! ```text
//!  0        4     8         16       24                                 512·n − 8               512·n    + 32
//!  ├ "KtBk" ┼ u32 ┼ cluster ┼ member ┼ all tables (tables.md) ┼ zeros ──┼ u64 bytes of tables ──┼ SHA-256 ┤
//! ```
//! The layout is the one that etcd's tools demand of a snapshot: content of whole sectors of 512 bytes, then the
//! SHA-256 of it. The length stands at its end, because it is unknown before. docs/formats/backup.md
//! Knows nothing of: transport, the content of the tables.

use kattu_node::Keeper;
use kattu_node::frozen::{Chunks, Frozen, Thaw};
use kattu_raft::NodeId;
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const MAGIC: [u8; 4] = *b"KtBk";
/// The format version written; the only one read.
pub const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
const LENGTH_BYTES: usize = 8;
const SECTOR_BYTES: u64 = 512;
const DIGEST_BYTES: usize = 32;
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Some bytes of a backup.
#[derive(Debug)]
pub struct Piece {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Nothing follows but the checksum, or nothing at all.
    pub is_last_content: bool,
}

/// A backup, piece by piece: 1 MiB at most each; the checksum is the last.
#[derive(Debug)]
pub struct Pieces {
    stage: Stage,
    hasher: Sha256,
    /// Bytes of tables so far.
    bytes: u64,
}

#[derive(Debug)]
enum Stage {
    Header { cluster: u64, member: NodeId, chunks: Chunks },
    Tables(Chunks),
    Checksum,
    Done,
}

impl Pieces {
    /// The backup of these tables, which are this member's.
    #[must_use]
    pub fn new(cluster: u64, member: NodeId, frozen: Frozen) -> Pieces {
        let stage = Stage::Header { cluster, member, chunks: frozen.chunks() };
        Pieces { stage, hasher: Sha256::new(), bytes: 0 }
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let (bytes, stage) = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Header { cluster, member, chunks } => {
                let mut header = Vec::from(MAGIC);
                header.extend_from_slice(&VERSION.to_le_bytes());
                header.extend_from_slice(&cluster.to_le_bytes());
                header.extend_from_slice(&member.0.to_le_bytes());
                (header, Stage::Tables(chunks))
            }
            Stage::Tables(mut chunks) => match chunks.next() {
                Some(chunk) => {
                    self.bytes += chunk.len() as u64;
                    (chunk, Stage::Tables(chunks))
                }
                None => (tail(self.bytes), Stage::Checksum),
            },
            Stage::Checksum => {
                let digest = std::mem::take(&mut self.hasher).finalize().to_vec();
                return Some(Piece { bytes: digest, is_last_content: true });
            }
            Stage::Done => return None,
        };
        self.hasher.update(&bytes);
        let is_last_content = matches!(stage, Stage::Checksum);
        self.stage = stage;
        Some(Piece { bytes, is_last_content })
    }
}

/// The rest of the last sector behind `bytes` bytes of tables: zeros, then this number.
fn tail(bytes: u64) -> Vec<u8> {
    let used = (HEADER_BYTES + LENGTH_BYTES) as u64 + bytes;
    let zeros = used.next_multiple_of(SECTOR_BYTES) - used;
    let mut tail = vec![0; zeros as usize];
    tail.extend_from_slice(&bytes.to_le_bytes());
    tail
}

/// A backup that was read and checked to its last byte.
#[derive(Debug)]
pub struct Backup {
    /// The cluster it was taken from.
    pub cluster: u64,
    /// The member it was taken from.
    pub member: NodeId,
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of its content, as it stands at its end.
    pub digest: [u8; DIGEST_BYTES],
    /// The tables.
    pub tables: Keeper,
}

/// Why a file is no backup.
#[derive(Debug)]
pub enum BackupError {
    /// It cannot be read.
    Io(io::Error),
    /// It does not begin with the magic number of backups.
    NoBackup,
    /// This program does not read its format version.
    Version(u32),
    /// It is too short or too long: where it ends, and why that is wrong.
    Cut(u64, String),
    /// Some of its bytes are not as they were written: the defect and its place.
    Damaged(String),
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Io(error) => error.fmt(f),
            BackupError::NoBackup => f.write_str("it does not begin like a backup of Kattu"),
            BackupError::Version(version) => {
                write!(f, "backup format version {version}, expected {VERSION}")
            }
            BackupError::Cut(at, why) => write!(f, "it has a wrong length: it ends at byte {at}, {why}"),
            BackupError::Damaged(what) => write!(f, "it is damaged: {what}"),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> BackupError {
        BackupError::Io(error)
    }
}

impl Backup {
    /// Reads the backup in this file; uses nothing of it before every byte is checked.
    ///
    /// # Errors
    /// If it is not exactly a backup; the error has the place.
    pub fn open(path: &Path) -> Result<Backup, BackupError> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Backup::read(io::BufReader::with_capacity(READ_BYTES, file), bytes)
    }

    /// Reads a backup of `bytes` bytes.
    ///
    /// # Errors
    /// As [`Backup::open`].
    pub fn read(mut from: impl Read, bytes: u64) -> Result<Backup, BackupError> {
        let mut header = [0; HEADER_BYTES];
        let begun = usize::try_from(bytes).unwrap_or(HEADER_BYTES).min(HEADER_BYTES);
        from.read_exact(&mut header[..begun])?;
        if !header[..begun].iter().zip(&MAGIC).all(|(byte, expected)| byte == expected) || begun == 0 {
            return Err(BackupError::NoBackup);
        }
        if begun < HEADER_BYTES {
            return Err(BackupError::Cut(bytes, format!("inside the header of {HEADER_BYTES} bytes")));
        }
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let version = u32::from_le_bytes(header[4..8].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(BackupError::Version(version));
        }
        let content = bytes.saturating_sub(DIGEST_BYTES as u64);
        if bytes % SECTOR_BYTES != DIGEST_BYTES as u64 || content == 0 {
            let why = "but a backup has whole sectors of 512 bytes and a checksum of 32".to_string();
            return Err(BackupError::Cut(bytes, why));
        }
        let mut hasher = Sha256::new();
        hasher.update(header);
        let read = read_content(&mut from, &mut hasher, content)?;
        let mut told = [0; DIGEST_BYTES];
        from.read_exact(&mut told)?;
        let digest: [u8; DIGEST_BYTES] = hasher.finalize().into();
        let thaw = match (read, digest == told) {
            (Ok(thaw), true) => thaw,
            (Ok(_), false) => {
                let what = format!(
                    "its bytes 0 to {content} do not match the checksum at byte {content}, or its end belongs to another file"
                );
                return Err(BackupError::Damaged(what));
            }
            (Err(what), true) => {
                return Err(BackupError::Damaged(format!("{what}, although its checksum matches")));
            }
            (Err(what), false) => {
                return Err(BackupError::Damaged(format!(
                    "{what}; its checksum at byte {content} does not match either"
                )));
            }
        };
        let tables = thaw.finish().map_err(|error| {
            BackupError::Damaged(format!("the tables end too early, at byte {content} or before: {error}"))
        })?;
        Ok(Backup { cluster: number(8), member: NodeId(number(16)), bytes, digest, tables })
    }
}

/// Reads the tables and the rest of the last sector; the error inside describes wrong bytes.
fn read_content(
    from: &mut impl Read,
    hasher: &mut Sha256,
    content: u64,
) -> Result<Result<Thaw, String>, io::Error> {
    let mut thaw = Ok(Thaw::default());
    let mut at = HEADER_BYTES as u64;
    // The bytes that may be behind the tables are kept back, because only the end says where the tables end. They are
    // more than a sector: where the number does not fit behind the tables in their last one, it stands in the next.
    let kept = content.saturating_sub(2 * SECTOR_BYTES).max(at);
    let mut buffer = vec![0; READ_BYTES];
    while at < kept {
        let count = usize::try_from(kept - at).unwrap_or(READ_BYTES).min(READ_BYTES);
        let bytes = &mut buffer[..count];
        from.read_exact(bytes)?;
        hasher.update(&*bytes);
        thaw = thaw.and_then(|thaw| push(thaw, bytes, at));
        at += count as u64;
    }
    let mut last = vec![0; usize::try_from(content - at).expect("two sectors at most")];
    from.read_exact(&mut last)?;
    hasher.update(&last);
    let (rest, length) = last.split_at(last.len() - LENGTH_BYTES);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
    let tables = length.checked_sub(at - HEADER_BYTES as u64).and_then(|left| usize::try_from(left).ok());
    let Some((tables, zeros)) = tables.and_then(|left| rest.split_at_checked(left)) else {
        let place = content - LENGTH_BYTES as u64;
        return Ok(Err(format!(
            "the number of bytes at byte {place} says {length}, which does not fit this file"
        )));
    };
    if zeros.iter().any(|&byte| byte != 0) {
        return Ok(Err(format!("bytes other than zeros between the tables and byte {content}")));
    }
    Ok(thaw.and_then(|thaw| push(thaw, tables, at)))
}

fn push(mut thaw: Thaw, bytes: &[u8], at: u64) -> Result<Thaw, String> {
    match thaw.push(bytes) {
        Ok(()) => Ok(thaw),
        Err(error) => Err(format!("between bytes {at} and {} of the file: {error}", at + bytes.len() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_kv::api::{Command, Put};
    use kattu_node::command::encode_kv;
    use kattu_node::contract::{KeeperEffects, KeeperTask, MemberInfo, Tickets};
    use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, Stamp, Term};

    /// A keeper with this number of keys.
    fn keeper(keys: u32) -> Keeper {
        let mut keeper = Keeper::new(vec![MemberInfo { id: NodeId(7), ..MemberInfo::default() }]);
        for key in 0..keys {
            let put = Put { key: key.to_be_bytes().to_vec(), value: vec![1; 50], ..Put::default() };
            apply(&mut keeper, put);
        }
        keeper
    }

    fn apply(keeper: &mut Keeper, put: Put) {
        let id = EntryId { term: Term(3), index: keeper.applied().next() };
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp::default() };
        let entry = Entry::new(head, encode_kv(&Command::Put(put)).into(), 0);
        let task = KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(3) };
        keeper.handle(task, &mut KeeperEffects::default());
    }

    fn bytes_of(keeper: &Keeper) -> Vec<u8> {
        let pieces: Vec<Piece> = Pieces::new(0xc1, NodeId(7), keeper.pin()).collect();
        let (last, content) = pieces.split_last().expect("a checksum");
        assert_eq!((last.bytes.len(), content.iter().filter(|piece| piece.is_last_content).count()), (32, 1));
        pieces.into_iter().flat_map(|piece| piece.bytes).collect()
    }

    fn read(bytes: &[u8]) -> Result<Backup, BackupError> {
        Backup::read(bytes, bytes.len() as u64)
    }

    #[test]
    fn a_backup_is_read_as_it_was_written_whatever_its_size() {
        for keys in [0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 5000] {
            let keeper = keeper(keys);
            let bytes = bytes_of(&keeper);
            assert_eq!(bytes.len() % 512, 32, "etcd's tools demand it");
            let backup = read(&bytes).unwrap_or_else(|error| panic!("{keys} keys: {error}"));
            assert_eq!((backup.cluster, backup.member, backup.bytes), (0xc1, NodeId(7), bytes.len() as u64));
            assert_eq!(backup.tables.pin(), keeper.pin());
            assert_eq!(backup.digest[..], Sha256::digest(&bytes[..bytes.len() - 32])[..]);
        }
    }

    #[test]
    fn a_backup_is_read_wherever_in_a_sector_its_tables_end() {
        let mut ends = std::collections::BTreeSet::new();
        for bytes in 0..2 * SECTOR_BYTES as usize {
            let mut keeper = keeper(0);
            let put = Put { key: vec![1], value: vec![2; bytes], ..Put::default() };
            apply(&mut keeper, put);
            let tables: usize = keeper.pin().chunks().map(|chunk| chunk.len()).sum();
            ends.insert((HEADER_BYTES + tables) % SECTOR_BYTES as usize);
            let backup = bytes_of(&keeper);
            let backup = read(&backup).unwrap_or_else(|error| panic!("{tables} bytes of tables: {error}"));
            assert_eq!(backup.tables.pin(), keeper.pin());
        }
        assert_eq!(ends.len(), SECTOR_BYTES as usize, "tables ended everywhere");
    }

    #[test]
    fn one_that_is_cut_anywhere_is_refused_and_says_where() {
        let good = bytes_of(&keeper(20));
        for len in 0..good.len() {
            let error = read(&good[..len]).expect_err("cut short");
            let text = error.to_string();
            match error {
                BackupError::NoBackup => assert_eq!(len, 0),
                BackupError::Cut(at, _) => {
                    assert!(at == len as u64 && text.contains(&at.to_string()), "{text}")
                }
                BackupError::Damaged(_) => assert_eq!(len % 512, 32, "{text}"),
                other => panic!("{len} bytes: {other}"),
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = bytes_of(&keeper(3));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = read(&bad).expect_err("damaged");
            assert!(!matches!(error, BackupError::Io(_)), "bit {bit}: {error}");
        }
    }

    #[test]
    fn what_is_no_backup_is_told_so() {
        assert!(matches!(read(b"SQLite format 3\0"), Err(BackupError::NoBackup)));
        let mut tomorrow = bytes_of(&keeper(1));
        tomorrow[4] = 9;
        assert!(matches!(read(&tomorrow), Err(BackupError::Version(9))));
    }
}
