//! Goal: the contents of a snapshot never crash the reader of stores or of tables, and what is read has one form.
//!
//! In one piece and in many; an input that gives a store must be its dump, byte for byte.
#![no_main]

use kattu_kv::dump::load;
use kattu_node::Keeper;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let store = load([input]);
    let pieces = load(input.chunks(7));
    match (store, pieces) {
        (Ok(store), Ok(same)) => {
            assert_eq!(store.pin().dump().flatten().collect::<Vec<u8>>(), input);
            assert_eq!(store.digest(), same.digest());
        }
        (Err(flaw), Err(same)) => assert_eq!(flaw, same),
        (one, other) => panic!("{:?} whole, {:?} in pieces", one.err(), other.err()),
    }
    if let Ok(keeper) = Keeper::thaw([input]) {
        assert_eq!(keeper.pin().chunks().flatten().collect::<Vec<u8>>(), input);
    }
});
