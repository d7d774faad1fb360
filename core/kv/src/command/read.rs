//! Reading commands: every byte string is a command or is refused at the byte that is wrong.
//!
//! Knows nothing of: writing them.

use super::{
    DELETE_PREV_KV, DELETE_RANGE, Flaw, Malformed, PUT, PUT_HAS_LEASE, PUT_IGNORE_LEASE, PUT_IGNORE_VALUE,
    PUT_PREV_KV, RANGE, RANGE_COUNT_ONLY, RANGE_HAS_LIMIT, RANGE_HAS_MAX_CREATE, RANGE_HAS_MAX_MOD,
    RANGE_HAS_MIN_CREATE, RANGE_HAS_MIN_MOD, RANGE_HAS_REVISION, RANGE_KEYS_ONLY, TXN, TXN_DEPTH_MAX,
    VERSION,
};
use crate::api::{
    Compare, CompareResult, CompareTarget, DeleteRange, KeyRange, Operation, PutRef, Range, Revision,
    SortOrder, SortTarget, Txn,
};
use alloc::vec::Vec;

/// Takes a number off the front of bytes, if one is there in its shortest form.
#[inline]
pub fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut reader = Reader { bytes, at: 0 };
    let number = reader.number().ok()?;
    *bytes = &bytes[reader.at..];
    Some(number)
}

/// Reads bytes from the front.
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn put(&mut self) -> Result<PutRef<'a>, Malformed> {
        let flags = self.flags(PUT_PREV_KV | PUT_IGNORE_VALUE | PUT_IGNORE_LEASE | PUT_HAS_LEASE)?;
        Ok(PutRef {
            key: self.bytes_here()?,
            value: self.bytes_here()?,
            lease: self.present(flags & PUT_HAS_LEASE)?,
            prev_kv: flags & PUT_PREV_KV != 0,
            ignore_value: flags & PUT_IGNORE_VALUE != 0,
            ignore_lease: flags & PUT_IGNORE_LEASE != 0,
        })
    }

    pub(super) fn delete_range(&mut self) -> Result<DeleteRange, Malformed> {
        let flags = self.flags(DELETE_PREV_KV)?;
        Ok(DeleteRange { keys: self.keys()?, prev_kv: flags & DELETE_PREV_KV != 0 })
    }

    pub(super) fn range(&mut self) -> Result<Range, Malformed> {
        let flags = self.flags(u8::MAX)?;
        let sort = self.byte()?;
        let order = match sort & 0x0f {
            0 => SortOrder::None,
            1 => SortOrder::Ascend,
            2 => SortOrder::Descend,
            _ => return Err(self.unknown(sort)),
        };
        let target = match sort >> 4 {
            0 => SortTarget::Key,
            1 => SortTarget::Version,
            2 => SortTarget::Create,
            3 => SortTarget::Mod,
            4 => SortTarget::Value,
            _ => return Err(self.unknown(sort)),
        };
        Ok(Range {
            keys: self.keys()?,
            limit: self.present(flags & RANGE_HAS_LIMIT)?,
            revision: Revision(self.present(flags & RANGE_HAS_REVISION)?),
            order,
            target,
            keys_only: flags & RANGE_KEYS_ONLY != 0,
            count_only: flags & RANGE_COUNT_ONLY != 0,
            min_mod_revision: Revision(self.present(flags & RANGE_HAS_MIN_MOD)?),
            max_mod_revision: Revision(self.present(flags & RANGE_HAS_MAX_MOD)?),
            min_create_revision: Revision(self.present(flags & RANGE_HAS_MIN_CREATE)?),
            max_create_revision: Revision(self.present(flags & RANGE_HAS_MAX_CREATE)?),
        })
    }

    fn compare(&mut self) -> Result<Compare, Malformed> {
        let byte = self.byte()?;
        let result = match byte & 0x0f {
            0 => CompareResult::Equal,
            1 => CompareResult::Greater,
            2 => CompareResult::Less,
            3 => CompareResult::NotEqual,
            _ => return Err(self.unknown(byte)),
        };
        if byte >> 4 > 4 {
            return Err(self.unknown(byte));
        }
        let keys = self.keys()?;
        let target = match byte >> 4 {
            0 => CompareTarget::Version(self.signed()?),
            1 => CompareTarget::Create(Revision(self.signed()?)),
            2 => CompareTarget::Mod(Revision(self.signed()?)),
            3 => CompareTarget::Value(self.byte_string()?),
            _ => CompareTarget::Lease(self.signed()?),
        };
        Ok(Compare { keys, result, target })
    }

    /// `depth` of the outermost transaction is 1.
    pub(super) fn txn(&mut self, depth: usize) -> Result<Txn, Malformed> {
        if depth > TXN_DEPTH_MAX {
            return Err(self.flawed(Flaw::Depth));
        }
        // A comparison takes at least 4 bytes, an operation too (an empty delete).
        let compares = self.count(4)?;
        let successes = self.count(4)?;
        let failures = self.count(4)?;
        let mut txn = Txn::default();
        txn.compare.reserve_exact(compares.min(RESERVED_MAX));
        for _ in 0..compares {
            txn.compare.push(self.compare()?);
        }
        for (branch, count) in [(&mut txn.success, successes), (&mut txn.failure, failures)] {
            branch.reserve_exact(count.min(RESERVED_MAX));
            for _ in 0..count {
                branch.push(self.operation(depth)?);
            }
        }
        Ok(txn)
    }

    fn operation(&mut self, depth: usize) -> Result<Operation, Malformed> {
        match self.byte()? {
            PUT => self.put().map(|put| Operation::Put(put.to_owned())),
            DELETE_RANGE => self.delete_range().map(Operation::DeleteRange),
            TXN => self.txn(depth + 1).map(Operation::Txn),
            RANGE => self.range().map(Operation::Range),
            kind => Err(self.unknown(kind)),
        }
    }

    fn keys(&mut self) -> Result<KeyRange, Malformed> {
        Ok(KeyRange { start: self.byte_string()?, end: self.byte_string()? })
    }

    fn byte_string(&mut self) -> Result<Vec<u8>, Malformed> {
        self.bytes_here().map(<[u8]>::to_vec)
    }

    /// A byte string, where it lies.
    pub(crate) fn bytes_here(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.count(1)?;
        let bytes = &self.bytes[self.at..][..length];
        self.at += length;
        Ok(bytes)
    }

    /// A count of items that take at least `least` bytes each.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let offset = self.at;
        let count = self.number()?;
        let most = (self.bytes.len() - self.at) / least;
        usize::try_from(count)
            .ok()
            .filter(|&count| count <= most)
            .ok_or(Malformed { offset, flaw: Flaw::Length(count) })
    }

    fn flags(&mut self, known: u8) -> Result<u8, Malformed> {
        let flags = self.byte()?;
        if flags & !known != 0 {
            return Err(self.unknown(flags));
        }
        Ok(flags)
    }

    /// A number that is present if its flag is set. Zero is refused, or the same command would have two encodings.
    fn present(&mut self, flag: u8) -> Result<i64, Malformed> {
        if flag == 0 {
            return Ok(0);
        }
        let offset = self.at;
        match self.signed()? {
            0 => Err(Malformed { offset, flaw: Flaw::Number }),
            n => Ok(n),
        }
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let n = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        // Most are below 128.
        if let Some(&byte @ ..0x80) = self.bytes.get(self.at) {
            self.at += 1;
            return Ok(u64::from(byte));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Result<u64, Malformed> {
        let offset = self.at;
        let too_long = Malformed { offset, flaw: Flaw::Number };
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte has room for one bit only.
            if shift == 63 && byte > 1 {
                return Err(too_long);
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let shortest = byte != 0 || shift == 0;
                return if shortest { Ok(n) } else { Err(too_long) };
            }
        }
        Err(too_long)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(self.flawed(Flaw::Truncated))?;
        self.at += 1;
        Ok(byte)
    }

    /// A reader behind the first byte, which is format version and kind, and the kind.
    pub(super) fn of_kind(bytes: &'a [u8]) -> Result<(Reader<'a>, u8), Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        match reader.byte()? {
            first if first >> 4 == VERSION => Ok((reader, first & 0x0f)),
            first => Err(Malformed { offset: 0, flaw: Flaw::Version(first >> 4) }),
        }
    }

    /// Checks that no bytes are left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.at < self.bytes.len() { Err(self.flawed(Flaw::TrailingBytes)) } else { Ok(()) }
    }

    pub(crate) fn flawed(&self, flaw: Flaw) -> Malformed {
        Malformed { offset: self.at, flaw }
    }

    /// A byte that says yes or no.
    pub(crate) fn fact(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            byte => Err(self.unknown(byte)),
        }
    }

    /// As many items as a count says.
    pub(crate) fn list<T>(
        &mut self,
        count: usize,
        mut item: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let mut items = Vec::with_capacity(count.min(RESERVED_MAX));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The byte just read is undefined.
    pub(crate) fn unknown(&self, byte: u8) -> Malformed {
        Malformed { offset: self.at - 1, flaw: Flaw::Unknown(byte) }
    }
}

/// Items for which a list reserves memory at once; a longer list grows as it is read. Operations are larger in memory
/// than encoded, so a count that the bytes could just hold must not decide how much is allocated.
const RESERVED_MAX: usize = 128;
