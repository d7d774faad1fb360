//! Goal: the contents of a snapshot never crash the reader of stores, of sessions or of tables, and what is read has one form;
//! nor do an answer that was kept and a command.
//!
//! In one piece and in many; an input that gives a store must be its dump, byte for byte.
#![no_main]

use kattu_kv::answer;
use kattu_kv::command::Malformed;
use kattu_kv::dump::load;
use kattu_kv::sessions::{Loader, Sessions};
use kattu_node::Keeper;
use kattu_node::command::Command;
use libfuzzer_sys::fuzz_target;

/// The table of sessions at the beginning of these pieces, and the bytes behind it.
fn sessions_of<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Sessions, Vec<u8>), Malformed> {
    let (mut loader, mut rest) = (Loader::default(), None);
    for piece in pieces {
        match &mut rest {
            None => rest = loader.push(piece)?,
            Some(rest) => rest.extend_from_slice(piece),
        }
    }
    Ok((loader.finish()?, rest.unwrap_or_default()))
}

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
    let (sessions, same) = (sessions_of([input]), sessions_of(input.chunks(7)));
    match (sessions, same) {
        (Ok((table, rest)), Ok((same, same_rest))) => {
            let bytes: Vec<u8> = table.dump().flatten().chain(rest.clone()).collect();
            assert_eq!(bytes, input);
            assert_eq!((same.dump().flatten().collect::<Vec<u8>>(), same_rest).1, rest);
        }
        (Err(flaw), Err(same)) => assert_eq!(flaw, same),
        (one, other) => panic!("{:?} whole, {:?} in pieces", one.err(), other.err()),
    }
    if let Ok(result) = answer::decode(input) {
        let mut bytes = Vec::new();
        answer::encode(&result, &mut bytes);
        assert_eq!(bytes, input);
    }
    let _ = Command::decode(input);
    if let Ok(keeper) = Keeper::thaw([input]) {
        assert_eq!(keeper.pin().chunks().flatten().collect::<Vec<u8>>(), input);
    }
});
