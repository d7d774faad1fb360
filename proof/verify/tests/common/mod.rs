//! Random operations on few keys, so that they conflict.
#![allow(dead_code)] // each test file uses its share

pub mod execution;

use kattu_verify::history::{Compare, How, Operation, Target};
use proptest::prelude::*;

pub fn key() -> impl Strategy<Value = String> {
    prop_oneof![12 => "[a-d]", 1 => Just(String::new()), 2 => "[a-b][a-b]"].prop_map(|key| key)
}

fn end() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 2 => Just("\0".to_string()), 3 => "[a-e]"]
}

fn revision() -> impl Strategy<Value = i64> {
    prop_oneof![6 => Just(0i64), 3 => 1i64..30, 1 => -3i64..0]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![Just(How::Equal), Just(How::Greater), Just(How::Less), Just(How::NotEqual)]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        "[0-3]".prop_map(Target::Value),
        (0i64..4).prop_map(Target::Version),
        (0i64..20).prop_map(Target::Create),
        (0i64..20).prop_map(Target::Mod),
    ]
}

pub fn compare() -> impl Strategy<Value = Compare> {
    (key(), how(), target()).prop_map(|(key, how, target)| Compare { key, how, target })
}

pub fn put() -> impl Strategy<Value = Operation> {
    (key(), "[0-3]").prop_map(|(key, value)| Operation::Put { key, value })
}

pub fn range() -> impl Strategy<Value = Operation> {
    (key(), end(), revision(), -1i64..4, any::<bool>(), any::<bool>()).prop_map(
        |(key, end, revision, limit, count_only, serializable)| Operation::Range {
            key,
            end,
            revision,
            limit,
            count_only,
            serializable,
        },
    )
}

pub fn delete() -> impl Strategy<Value = Operation> {
    (key(), end()).prop_map(|(key, end)| Operation::Delete { key, end })
}

pub fn operation() -> impl Strategy<Value = Operation> {
    let leaf = prop_oneof![4 => put(), 3 => range(), 2 => delete()];
    let txn = leaf.clone().prop_recursive(3, 12, 3, |inner| {
        let list = || proptest::collection::vec(inner.clone(), 0..3);
        (proptest::collection::vec(compare(), 0..3), list(), list())
            .prop_map(|(compare, then, otherwise)| Operation::Txn { compare, then, otherwise })
    });
    prop_oneof![6 => leaf, 4 => txn, 1 => (-1i64..30).prop_map(|revision| Operation::Compact { revision })]
}
