//! Look-ups: of each key they say what a read of this key alone says.

use crate::common::{self, Step, get};
use kattu_kv::answer;
use kattu_kv::api::{KeyRange, Put, Query};
use kattu_kv::lookup::{KEYS_MAX, Keys};
use kattu_kv::store::{GROUP_MAX, Store};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

/// What a look-up says of each key, in answers and in their bytes, against reads of one key after the other.
fn agrees(store: &Store, asked: &[Vec<u8>]) -> Result<(), TestCaseError> {
    asked.chunks(KEYS_MAX).try_for_each(|asked| agrees_at_once(store, asked))
}

fn agrees_at_once(store: &Store, asked: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let mut keys = Keys::default();
    asked.iter().for_each(|key| keys.push(key));
    prop_assert_eq!(keys.len(), asked.len());
    let found = store.look_up(Arc::new(keys));
    prop_assert_eq!(found.iter().len(), asked.len());
    for (key, found) in asked.iter().zip(found.iter()) {
        let alone = store.query(&Query::Range(get(KeyRange { start: key.clone(), end: vec![] })));
        prop_assert_eq!(&Ok(found.response()), &alone, "{:?}", key);
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        answer::encode_found(&found, &mut bytes);
        answer::encode(&alone, &mut expected);
        prop_assert_eq!(bytes, expected, "{:?}", key);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_look_up_agrees_with_reads_of_one_key_after_the_other(
        steps in vec(common::step(), 0..80),
        asked in vec(common::key(), 0..40),
    ) {
        let mut store = Store::new();
        for step in steps {
            if let Step::Apply(command) = step {
                let _ = store.apply(&command);
            }
        }
        agrees(&store, &asked)?;
    }

    /// Keys of several lengths below few prefixes: in a run they share many bytes, few, or nothing but their heads.
    #[test]
    fn a_look_up_in_a_deep_index_agrees_with_reads_of_one_key_after_the_other(
        kept in vec(deep_key(), 1..600),
        absent in vec(deep_key(), 0..3 * GROUP_MAX),
        picks in vec(any::<prop::sample::Index>(), 0..3 * GROUP_MAX),
    ) {
        let mut store = Store::new();
        for key in &kept {
            let put = Put { key: key.clone(), value: key.clone(), ..Put::default() };
            store.apply_put(put.as_ref()).expect("it is applied");
        }
        let asked: Vec<Vec<u8>> = picks.iter().map(|pick| pick.get(&kept).clone()).chain(absent).collect();
        agrees(&store, &asked)?;
    }
}

fn deep_key() -> impl Strategy<Value = Vec<u8>> {
    let prefix =
        prop::sample::select(vec!["", "a", "users/0000000000/", "users/0000000000/name/of/the/user/"]);
    (prefix, vec(prop::sample::select(vec![0, 1, b'a', 0xff]), 0..5), 0..200u8)
        .prop_map(|(prefix, middle, last)| [prefix.as_bytes(), &middle, &[last]].concat())
}
