//! Small files beside the log: each belongs to one directory, has a checksum, and is written whole.
//!
//! ```text
//!  0       4      8     12     16        24
//!  ├ magic ┼ vers ┼ crc ┼ word ┼ file id ┼ payload: fields of eight bytes, or bytes …
//! ```
//! Little-endian; the checksum covers the rest. Each file gives `word` and the payload a meaning of its own.
//! Knows nothing of: that meaning.

use crate::error::WalError;
use crate::files::Files;
use crate::identity::{Identity, VERSION};
use crate::segment::publish_whole;

/// Bytes before the payload.
pub(crate) const HEAD_BYTES: usize = 24;

/// What a look at a file shows; `None` if there is no file. `Err` within: the file exists and cannot be read.
pub(crate) type Looked<T> = Result<Option<Result<T, String>>, WalError>;

/// One file, as its owner expects it.
#[derive(Clone, Debug)]
pub(crate) struct SmallFile<'a> {
    name: &'a str,
    magic: [u8; 4],
    file_id: u64,
    /// The group to which the file belongs, in `word`; the word of other files is free.
    group: Option<u32>,
}

/// The content of a file whose checksum and owner are right.
pub(crate) struct Content(Vec<u8>);

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..])
}

impl<'a> SmallFile<'a> {
    /// The file of this name in the directory of this identity.
    pub(crate) fn new(name: &'a str, magic: [u8; 4], identity: &Identity) -> SmallFile<'a> {
        SmallFile { name, magic, file_id: identity.file_id(0), group: None }
    }

    /// The file of one group.
    pub(crate) fn of_group(self, group: u32) -> SmallFile<'a> {
        SmallFile { group: Some(group), ..self }
    }

    /// Makes the file durable with these fields, or replaces it.
    pub(crate) fn store(&self, files: &dyn Files, word: u32, fields: &[u64]) -> Result<(), WalError> {
        let payload: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
        self.store_payload(files, word, &payload)
    }

    /// Makes the file durable with this payload, or replaces it.
    pub(crate) fn store_payload(&self, files: &dyn Files, word: u32, payload: &[u8]) -> Result<(), WalError> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len());
        bytes.extend(self.magic);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(word.to_le_bytes());
        bytes.extend(self.file_id.to_le_bytes());
        bytes.extend(payload);
        let crc = checksum(&bytes);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        publish_whole(files, self.name, &bytes)
    }

    /// Reads the file if its size is right; changes nothing. The caller judges the version.
    pub(crate) fn look(
        &self,
        files: &dyn Files,
        is_size: impl FnOnce(u64) -> Result<(), String>,
    ) -> Looked<Content> {
        let read = |error: std::io::Error| WalError::io(self.name, "read", &error);
        let file = match files.open(self.name) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(read(error)),
        };
        let found = file.bytes().map_err(read)?;
        if let Err(why) = is_size(found) {
            return Ok(Some(Err(why)));
        }
        let mut bytes = vec![0; found as usize];
        file.read_at(0, &mut bytes).map_err(read)?;
        Ok(Some(self.check(Content(bytes))))
    }

    fn check(&self, content: Content) -> Result<Content, String> {
        if content.0.len() < HEAD_BYTES || content.u32_at(8) != checksum(&content.0) {
            return Err("checksum mismatch".into());
        }
        let is_own = content.0[..4] == self.magic && content.u64_at(16) == self.file_id;
        match self.group {
            Some(group) if !is_own || content.word() != group => {
                Err("it belongs to another member, group or directory".into())
            }
            None if !is_own => Err("it belongs to another member or directory".into()),
            _ => Ok(content),
        }
    }

    /// The size of a file of exactly so many bytes.
    pub(crate) fn is_exactly(bytes: usize) -> impl FnOnce(u64) -> Result<(), String> {
        move |found| match found == bytes as u64 {
            true => Ok(()),
            false => Err(format!("{found} bytes, expected {bytes}")),
        }
    }

    /// The size of a file of at most so many bytes: a damaged one allocates no more memory.
    pub(crate) fn is_at_most(bytes: u64) -> impl FnOnce(u64) -> Result<(), String> {
        move |found| match found <= bytes {
            true => Ok(()),
            false => Err(format!("{found} bytes, far too long")),
        }
    }

    /// Refuses the content of another version.
    pub(crate) fn of_this_version(&self, content: Content) -> Result<Content, WalError> {
        match content.version() {
            VERSION => Ok(content),
            found => Err(WalError::OtherFormat { file: self.name.into(), found, supported: VERSION }),
        }
    }
}

impl Content {
    /// The version of the format.
    pub(crate) fn version(&self) -> u32 {
        self.u32_at(4)
    }

    /// The word of the head.
    pub(crate) fn word(&self) -> u32 {
        self.u32_at(12)
    }

    /// Bytes of the whole file.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// All behind the head.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.0[HEAD_BYTES..]
    }

    /// The field with this number, from 0.
    pub(crate) fn field(&self, number: usize) -> u64 {
        self.u64_at(HEAD_BYTES + number * 8)
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }
}
