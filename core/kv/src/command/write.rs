//! Writing commands: the parts from which the bytes of a command are put together.
//!
//! Knows nothing of: reading them.

use super::{
    DELETE_PREV_KV, DELETE_RANGE, PUT, PUT_HAS_LEASE, PUT_IGNORE_LEASE, PUT_IGNORE_VALUE, PUT_PREV_KV, RANGE,
    RANGE_COUNT_ONLY, RANGE_HAS_LIMIT, RANGE_HAS_MAX_CREATE, RANGE_HAS_MAX_MOD, RANGE_HAS_MIN_CREATE,
    RANGE_HAS_MIN_MOD, RANGE_HAS_REVISION, RANGE_KEYS_ONLY, TXN,
};
use crate::api::{
    Compare, CompareResult, CompareTarget, DeleteRange, KeyRange, Operation, PutRef, Range, Revision,
    SortOrder, SortTarget, Txn,
};
use alloc::vec::Vec;

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

pub(super) fn write_put(put: PutRef<'_>, out: &mut Vec<u8>) {
    out.push(
        flag(put.prev_kv, PUT_PREV_KV)
            | flag(put.ignore_value, PUT_IGNORE_VALUE)
            | flag(put.ignore_lease, PUT_IGNORE_LEASE)
            | flag(put.lease != 0, PUT_HAS_LEASE),
    );
    write_bytes(put.key, out);
    write_bytes(put.value, out);
    write_present(put.lease, out);
}

pub(super) fn write_delete_range(delete: &DeleteRange, out: &mut Vec<u8>) {
    out.push(flag(delete.prev_kv, DELETE_PREV_KV));
    write_keys(&delete.keys, out);
}

pub(super) fn write_range(range: &Range, out: &mut Vec<u8>) {
    out.push(
        flag(range.keys_only, RANGE_KEYS_ONLY)
            | flag(range.count_only, RANGE_COUNT_ONLY)
            | flag(range.limit != 0, RANGE_HAS_LIMIT)
            | flag(range.revision != Revision::NONE, RANGE_HAS_REVISION)
            | flag(range.min_mod_revision != Revision::NONE, RANGE_HAS_MIN_MOD)
            | flag(range.max_mod_revision != Revision::NONE, RANGE_HAS_MAX_MOD)
            | flag(range.min_create_revision != Revision::NONE, RANGE_HAS_MIN_CREATE)
            | flag(range.max_create_revision != Revision::NONE, RANGE_HAS_MAX_CREATE),
    );
    let order = match range.order {
        SortOrder::None => 0,
        SortOrder::Ascend => 1,
        SortOrder::Descend => 2,
    };
    let target = match range.target {
        SortTarget::Key => 0,
        SortTarget::Version => 1,
        SortTarget::Create => 2,
        SortTarget::Mod => 3,
        SortTarget::Value => 4,
    };
    out.push(target << 4 | order);
    write_keys(&range.keys, out);
    write_present(range.limit, out);
    write_present(range.revision.0, out);
    write_present(range.min_mod_revision.0, out);
    write_present(range.max_mod_revision.0, out);
    write_present(range.min_create_revision.0, out);
    write_present(range.max_create_revision.0, out);
}

fn write_compare(compare: &Compare, out: &mut Vec<u8>) {
    let result = match compare.result {
        CompareResult::Equal => 0,
        CompareResult::Greater => 1,
        CompareResult::Less => 2,
        CompareResult::NotEqual => 3,
    };
    let target = match compare.target {
        CompareTarget::Version(_) => 0,
        CompareTarget::Create(_) => 1,
        CompareTarget::Mod(_) => 2,
        CompareTarget::Value(_) => 3,
        CompareTarget::Lease(_) => 4,
    };
    out.push(target << 4 | result);
    write_keys(&compare.keys, out);
    match &compare.target {
        CompareTarget::Value(value) => write_bytes(value, out),
        CompareTarget::Create(revision) | CompareTarget::Mod(revision) => write_signed(revision.0, out),
        CompareTarget::Version(n) | CompareTarget::Lease(n) => write_signed(*n, out),
    }
}

fn write_operation(operation: &Operation, out: &mut Vec<u8>) {
    match operation {
        Operation::Range(range) => {
            out.push(RANGE);
            write_range(range, out);
        }
        Operation::Put(put) => {
            out.push(PUT);
            write_put(put.as_ref(), out);
        }
        Operation::DeleteRange(delete) => {
            out.push(DELETE_RANGE);
            write_delete_range(delete, out);
        }
        Operation::Txn(txn) => {
            out.push(TXN);
            write_txn(txn, out);
        }
    }
}

pub(super) fn write_txn(txn: &Txn, out: &mut Vec<u8>) {
    write_number(txn.compare.len() as u64, out);
    write_number(txn.success.len() as u64, out);
    write_number(txn.failure.len() as u64, out);
    txn.compare.iter().for_each(|compare| write_compare(compare, out));
    txn.success.iter().chain(&txn.failure).for_each(|operation| write_operation(operation, out));
}

fn write_keys(keys: &KeyRange, out: &mut Vec<u8>) {
    write_bytes(&keys.start, out);
    write_bytes(&keys.end, out);
}

pub(crate) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a number unless it is zero; a flag shows its presence.
fn write_present(n: i64, out: &mut Vec<u8>) {
    if n != 0 {
        write_signed(n, out);
    }
}

pub(crate) fn write_signed(n: i64, out: &mut Vec<u8>) {
    write_number((n << 1 ^ n >> 63) as u64, out);
}

/// Writes seven bits a byte, lowest first; the high bit is set if more bytes follow.
pub fn write_number(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}
