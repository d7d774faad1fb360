//! The bytes of a snapshot file, and the one pass that checks all of them. [fault-model ST10]
//!
//! ```text
//!  0       4      8     12    16        24      28  32     40      48      56              64           len
//!  ├ magic ┼ vers ┼ crc ┼ len ┼ cluster ┼ group ┼ 0 ┼ term ┼ index ┼ stamp ┼ membership at ┼ membership ┤ header
//!  0     4     8        16       16+len
//!  ├ len ┼ crc ┼ number ┼ bytes …┤                                         each chunk, len ≥ 1, number from 1
//!  0   4     8        16      24       56
//!  ├ 0 ┼ crc ┼ chunks ┼ bytes ┼ digest ┤                                   footer, the end of the file
//! ```
//! Little-endian. Each checksum goes on from the one before it, the first from the header's: a chunk in another place,
//! or of another file, does not fit. The digest is SHA-256 of everything before the footer. `docs/formats/snapshot.md`
//! Knows nothing of: the state in the chunks, names of files.

use crate::direct::{PAGE, READ_MIN};
use crate::error::WalError;
use crate::files::LogFile;
use kattu_raft::{EntryId, GroupId, LogIndex, Membership, SnapshotMeta, Stamp, Term};
use sha2::{Digest, Sha256};

/// The version this code writes, and the only one it reads.
pub(crate) const VERSION: u32 = 1;

/// Bytes of a chunk at most: a reader holds a whole chunk in memory.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;

const MAGIC: u32 = u32::from_le_bytes(*b"KTSN");
const HEADER_BYTES: usize = 64;
/// Far above the size of any membership; keeps a damaged length from allocating memory.
const HEADER_BYTES_MAX: usize = 1 << 20;
pub(super) const CHUNK_HEADER_BYTES: usize = 16;
pub(super) const FOOTER_BYTES: usize = 56;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The cluster and the group of a snapshot, and the entries that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub cluster: u64,
    pub group: GroupId,
    pub meta: SnapshotMeta,
}

impl Header {
    /// The header's bytes; bytes 8..12 are its checksum, from which the chunks' go on.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        self.meta.membership.encode(&mut out);
        let len = u32::try_from(out.len()).expect("a membership is far below 4 GiB");
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&len.to_le_bytes());
        out[16..24].copy_from_slice(&self.cluster.to_le_bytes());
        out[24..28].copy_from_slice(&self.group.0.to_le_bytes());
        let SnapshotMeta { last, stamp, membership_at, .. } = &self.meta;
        let numbers = [last.term.0, last.index.0, stamp.0, membership_at.0];
        for (place, number) in numbers.into_iter().enumerate() {
            out[32 + place * 8..40 + place * 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = header_checksum(&out);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Bytes of the header that starts with `bytes`; an error if magic number or length are wrong.
    fn length(file: &str, bytes: &[u8; 16]) -> Result<usize, WalError> {
        if u32_at(bytes, 0) != MAGIC {
            let what = format!("starts with {:#010x}, expected {MAGIC:#010x}", u32_at(bytes, 0));
            return Err(WalError::damaged(file, 0, what));
        }
        let len = u32_at(bytes, 12) as usize;
        if !(HEADER_BYTES..=HEADER_BYTES_MAX).contains(&len) {
            return Err(WalError::damaged(file, 12, format!("a header of {len} bytes")));
        }
        Ok(len)
    }

    /// Reads a whole header; `file` names it in errors.
    fn from_bytes(file: &str, bytes: &[u8]) -> Result<Header, WalError> {
        let (found, computed) = (u32_at(bytes, 8), header_checksum(bytes));
        if found != computed {
            let what = format!("header checksum {found:#010x}, its bytes give {computed:#010x}");
            return Err(WalError::damaged(file, 8, what));
        }
        if u32_at(bytes, 4) != VERSION {
            let found = u32_at(bytes, 4);
            return Err(WalError::OtherFormat { file: file.to_owned(), found, supported: VERSION });
        }
        if u32_at(bytes, 28) != 0 {
            return Err(WalError::damaged(file, 28, "a reserved field is set"));
        }
        let (membership, rest) = Membership::decode(&bytes[HEADER_BYTES..]).map_err(|error| {
            match error.is_of_newer_version() {
                true => WalError::Newer { file: file.to_owned(), what: error.to_string() },
                false => WalError::damaged(file, HEADER_BYTES as u64, error.to_string()),
            }
        })?;
        if !rest.is_empty() {
            let what = format!("{} bytes follow the membership", rest.len());
            return Err(WalError::damaged(file, HEADER_BYTES as u64, what));
        }
        let last = EntryId { term: Term(u64_at(bytes, 32)), index: LogIndex(u64_at(bytes, 40)) };
        if last.index == LogIndex(0) {
            return Err(WalError::damaged(file, 40, "it covers no entry"));
        }
        Ok(Header {
            cluster: u64_at(bytes, 16),
            group: GroupId(u32_at(bytes, 24)),
            meta: SnapshotMeta {
                last,
                stamp: Stamp(u64_at(bytes, 48)),
                membership,
                membership_at: LogIndex(u64_at(bytes, 56)),
            },
        })
    }
}

fn header_checksum(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..8]), &header[12..])
}

/// The checksum of a chunk or, with length 0, of the footer, continued from the one before it.
fn chained(before: u32, len: u32, rest: &[&[u8]]) -> u32 {
    let crc = crc32c::crc32c_append(before, &len.to_le_bytes());
    rest.iter().fold(crc, |crc, part| crc32c::crc32c_append(crc, part))
}

/// The running checksum, digest and counts while a file is laid out or checked, from its start on.
pub(super) struct Chain {
    crc: u32,
    digest: Digesting,
    pub chunks: u64,
    pub bytes: u64,
}

/// The digest of a file.
#[derive(Clone)]
enum Digesting {
    /// Computed on the way.
    Computed(Sha256),
    /// Known: this process computed it when it wrote the file.
    Known(FileDigest),
}

/// SHA-256 of everything before the footer.
pub(super) type FileDigest = [u8; 32];

impl Chain {
    pub fn after(header: &[u8]) -> Chain {
        let digest = Digesting::Computed(Sha256::new_with_prefix(header));
        Chain { crc: u32_at(header, 8), digest, chunks: 0, bytes: 0 }
    }

    /// The header of the next chunk.
    pub fn chunk(&mut self, bytes: &[u8]) -> [u8; CHUNK_HEADER_BYTES] {
        assert!((1..=CHUNK_BYTES_MAX).contains(&bytes.len()), "a chunk of {} bytes", bytes.len());
        let len = u32::try_from(bytes.len()).expect("checked above");
        self.chunks += 1;
        let number = self.chunks.to_le_bytes();
        self.crc = chained(self.crc, len, &[&number, bytes]);
        let mut header = [0; CHUNK_HEADER_BYTES];
        header[0..4].copy_from_slice(&len.to_le_bytes());
        header[4..8].copy_from_slice(&self.crc.to_le_bytes());
        header[8..16].copy_from_slice(&number);
        self.bytes += u64::from(len);
        if let Digesting::Computed(digest) = &mut self.digest {
            digest.update(header);
            digest.update(bytes);
        }
        header
    }

    /// The footer, and the digest in it.
    pub fn footer(self) -> ([u8; FOOTER_BYTES], FileDigest) {
        let digest = match self.digest {
            Digesting::Computed(digest) => digest.finalize().into(),
            Digesting::Known(digest) => digest,
        };
        let mut footer = [0; FOOTER_BYTES];
        footer[8..16].copy_from_slice(&self.chunks.to_le_bytes());
        footer[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        footer[24..].copy_from_slice(&digest);
        let crc = chained(self.crc, 0, &[&footer[8..]]);
        footer[4..8].copy_from_slice(&crc.to_le_bytes());
        (footer, digest)
    }
}

/// A file that is read from its start to its end, many bytes at once.
struct Window<'a> {
    file: &'a dyn LogFile,
    name: &'a str,
    /// Bytes of the file.
    len: u64,
    /// What was read last, and where it begins.
    bytes: Vec<u8>,
    start: u64,
}

impl Window<'_> {
    /// Fills `buffer` from `at` on.
    fn read(&mut self, mut at: u64, mut buffer: &mut [u8]) -> Result<(), WalError> {
        while !buffer.is_empty() {
            if !(self.start..self.start + self.bytes.len() as u64).contains(&at) {
                self.move_to(at)?;
            }
            let here = &self.bytes[(at - self.start) as usize..];
            let (first, rest) = buffer.split_at_mut(here.len().min(buffer.len()));
            first.copy_from_slice(&here[..first.len()]);
            (at, buffer) = (at + first.len() as u64, rest);
        }
        Ok(())
    }

    /// Reads whole pages, as many as pass the system's cache by, the byte `at` among them. Behind the end of the file that is an
    /// error.
    fn move_to(&mut self, at: u64) -> Result<(), WalError> {
        self.start = at / PAGE as u64 * PAGE as u64;
        let end = self.len.max(at + 1);
        self.bytes.resize((end - self.start).min(READ_MIN as u64) as usize, 0);
        self.file.read_at(self.start, &mut self.bytes).map_err(|error| {
            self.bytes.clear();
            WalError::io(self.name, "read", &error)
        })
    }
}

/// Reads and checks a file from its start to its end, a chunk at a time.
pub(super) struct Pass<'a> {
    file: Window<'a>,
    at: u64,
    chain: Chain,
    pub header: Header,
    /// Memory for the next chunk, with whatever was in it before.
    spare: Vec<u8>,
}

impl<'a> Pass<'a> {
    /// Reads the header.
    pub fn begin(file: &'a dyn LogFile, name: &'a str) -> Result<Pass<'a>, WalError> {
        let len = file.bytes().map_err(|error| WalError::io(name, "read", &error))?;
        let mut start = [0; 16];
        if len < start.len() as u64 {
            return Err(WalError::damaged(name, len, format!("{len} bytes, too short for a snapshot")));
        }
        let mut file = Window { file, name, len, bytes: Vec::new(), start: 0 };
        file.read(0, &mut start)?;
        let header_len = Header::length(name, &start)?;
        if len < (header_len + FOOTER_BYTES) as u64 {
            return Err(WalError::damaged(name, len, format!("{len} bytes, too short for a snapshot")));
        }
        let mut bytes = vec![0; header_len];
        file.read(0, &mut bytes)?;
        let header = Header::from_bytes(name, &bytes)?;
        let (at, chain) = (header_len as u64, Chain::after(&bytes));
        Ok(Pass { file, at, chain, header, spare: Vec::new() })
    }

    /// The same of a file that this process has just written with this digest, which is compared with the file's and not computed
    /// again: each chunk's checksum goes on from those before it, up to the footer's.
    pub fn of_written(
        file: &'a dyn LogFile,
        name: &'a str,
        digest: FileDigest,
    ) -> Result<Pass<'a>, WalError> {
        let mut pass = Pass::begin(file, name)?;
        pass.chain.digest = Digesting::Known(digest);
        Ok(pass)
    }

    /// The next chunk, checked; `None` once the footer was reached and agrees with the chunks before it.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, WalError> {
        let name = self.file.name;
        let damaged = |at: u64, what: String| WalError::damaged(name, at, what);
        let left = self.file.len - self.at;
        let mut start = [0; CHUNK_HEADER_BYTES];
        if left < FOOTER_BYTES as u64 {
            return Err(damaged(
                self.at,
                format!("it ends {left} bytes after its last chunk, without a footer"),
            ));
        }
        self.file.read(self.at, &mut start)?;
        let len = u32_at(&start, 0) as usize;
        if len == 0 {
            return self.end().map(|()| None);
        }
        if CHUNK_BYTES_MAX < len || left - (FOOTER_BYTES as u64) < (len + CHUNK_HEADER_BYTES) as u64 {
            return Err(damaged(self.at, format!("a chunk of {len} bytes does not fit here")));
        }
        let mut bytes = core::mem::take(&mut self.spare);
        bytes.resize(len, 0);
        self.file.read(self.at + CHUNK_HEADER_BYTES as u64, &mut bytes)?;
        let expected = self.chain.chunk(&bytes);
        if start != expected {
            let (found, computed) = (u32_at(&start, 4), u32_at(&expected, 4));
            let what = match u64_at(&start, 8) {
                number if number == self.chain.chunks => {
                    format!("chunk checksum {found:#010x}, its bytes and place give {computed:#010x}")
                }
                number => format!("chunk {number} where chunk {} belongs", self.chain.chunks),
            };
            return Err(damaged(self.at, what));
        }
        self.at += (CHUNK_HEADER_BYTES + len) as u64;
        Ok(Some(bytes))
    }

    fn end(&mut self) -> Result<(), WalError> {
        let (name, at) = (self.file.name, self.at);
        let damaged = |what: String| Err(WalError::damaged(name, at, what));
        let mut found = [0; FOOTER_BYTES];
        self.file.read(self.at, &mut found)?;
        let after = self.file.len - self.at - FOOTER_BYTES as u64;
        if after != 0 {
            return damaged(format!("{after} bytes follow the footer"));
        }
        let (chunks, bytes) = (self.chain.chunks, self.chain.bytes);
        let done = Chain { crc: self.chain.crc, digest: self.chain.digest.clone(), chunks, bytes };
        if found != done.footer().0 {
            let what = format!(
                "the footer says {} chunks with {} bytes, the file has {chunks} with {bytes}, or the digest differs",
                u64_at(&found, 8),
                u64_at(&found, 16)
            );
            return damaged(what);
        }
        Ok(())
    }

    /// Reads on to the end.
    pub fn finish(self) -> Result<Checked, WalError> {
        Ok(self.pass_on(&mut Some)?.expect("it goes on to the end"))
    }

    /// Reads on to the end and passes on each chunk. `take` returns memory that it needs no more, for another chunk, or `None`
    /// to end this: then there is no result.
    pub fn pass_on(
        mut self,
        take: &mut dyn FnMut(Vec<u8>) -> Option<Vec<u8>>,
    ) -> Result<Option<Checked>, WalError> {
        while let Some(chunk) = self.next()? {
            match take(chunk) {
                Some(spare) => self.spare = spare,
                None => return Ok(None),
            }
        }
        Ok(Some(Checked { header: self.header, bytes: self.file.len, chunks: self.chain.chunks }))
    }
}

/// A file that was read to its end, every byte of it checked: its header, its bytes, and how many chunks it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub header: Header,
    pub bytes: u64,
    pub chunks: u64,
}

#[cfg(test)]
mod tests {
    //! Goal: a file that was just written is compared with all that was written to it, although its digest is not computed again.

    use super::*;
    use kattu_raft::NodeId;
    use std::io;

    #[derive(Debug)]
    struct InMemory(Vec<u8>);

    impl LogFile for InMemory {
        fn bytes(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            let at = usize::try_from(offset).expect("a small file");
            let bytes = self.0.get(at..at + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(bytes);
            Ok(())
        }

        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!("it is only read")
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            unreachable!("it is only read")
        }

        fn sync(&self) -> io::Result<()> {
            unreachable!("it is only read")
        }
    }

    #[test]
    fn a_file_that_was_just_written_lacks_no_chunk_and_differs_in_no_bit() {
        let membership = Membership::new(vec![NodeId(1), NodeId(2)], Vec::new());
        let meta = SnapshotMeta {
            last: EntryId::new(2, 9),
            stamp: Stamp(1),
            membership,
            membership_at: LogIndex(1),
        };
        let mut parts = vec![Header { cluster: 7, group: GroupId(0), meta }.to_bytes()];
        let mut chain = Chain::after(&parts[0]);
        for chunk in [[1; 40], [2; 40], [3; 40]] {
            let mut part = chain.chunk(&chunk).to_vec();
            part.extend_from_slice(&chunk);
            parts.push(part);
        }
        let (footer, digest) = chain.footer();
        parts.push(footer.to_vec());
        let check = |file: Vec<u8>| Pass::of_written(&InMemory(file), "a.snap", digest)?.finish();

        let whole = parts.concat();
        assert_eq!(check(whole.clone()).unwrap().chunks, 3);
        for missing in 1..parts.len() {
            let mut fewer = parts.clone();
            fewer.remove(missing);
            check(fewer.concat()).expect_err(&format!("without part {missing}"));
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            check(flipped).expect_err(&format!("bit {bit} is flipped"));
        }
    }
}
