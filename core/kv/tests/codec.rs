//! Encoding of commands: decoding restores them, each has one form, and bytes that are not a command do no harm.

use crate::common::{between, command, compare, delete, get, one, put, query};
use kattu_kv::api::{
    Command, CompareResult, CompareTarget, DeleteRange, KeyRange, Operation, Put, PutRef, Query, Range,
    Revision, SortOrder, SortTarget, Txn,
};
use kattu_kv::command::{Flaw, Malformed, TXN_DEPTH_MAX, VERSION, take_number, write_number};
use kattu_kv::store::Store;
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes(command: &Command) -> Vec<u8> {
    let mut out = Vec::new();
    command.encode(&mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn golden() -> Vec<(&'static str, Command, &'static str)> {
    let range = Range {
        limit: 2,
        revision: Revision(300),
        order: SortOrder::Descend,
        target: SortTarget::Create,
        keys_only: true,
        max_mod_revision: Revision(-1),
        ..get(between("a", "b"))
    };
    let compares = vec![
        compare(one("k"), CompareResult::Equal, CompareTarget::Mod(Revision(5))),
        compare(between("a", "\0"), CompareResult::NotEqual, CompareTarget::Value(b"v".to_vec())),
    ];
    let nested = Txn { success: vec![Operation::DeleteRange(delete(one("n")))], ..Txn::default() };
    let txn = Txn {
        compare: compares,
        success: vec![Operation::Put(put("k", "w")), Operation::Txn(nested)],
        failure: vec![Operation::Range(range)],
    };
    vec![
        ("put", Command::Put(put("k", "v")), "1100016b0176"),
        (
            "put with all",
            Command::Put(Put {
                lease: -2,
                prev_kv: true,
                ignore_value: true,
                ignore_lease: true,
                ..put("k", "")
            }),
            "110f016b0003",
        ),
        (
            "delete",
            Command::DeleteRange(DeleteRange { prev_kv: true, ..delete(between("a", "b")) }),
            "120101610162",
        ),
        ("compact", Command::Compact(Revision(1000)), "14d00f"),
        (
            "txn",
            Command::Txn(txn),
            "13020201\
             20016b000a\
             33016101000176\
             0100016b0177\
             03000100020001\
             6e00\
             052d2201610162\
             04d80401",
        ),
    ]
}

#[test]
fn the_bytes_of_today_stay_the_bytes_of_tomorrow() {
    for (name, command, expected) in golden() {
        assert_eq!(hex(&bytes(&command)), expected, "{name}");
        assert_eq!(Command::decode(&bytes(&command)), Ok(command), "{name}");
    }
}

#[test]
fn another_version_is_named_and_refused() {
    for (_, command, _) in golden() {
        let mut bytes = bytes(&command);
        bytes[0] = (VERSION + 1) << 4 | bytes[0] & 0x0f;
        assert_eq!(Command::decode(&bytes), Err(Malformed { offset: 0, flaw: Flaw::Version(VERSION + 1) }));
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let mut deep = vec![0x13];
    for _ in 0..TXN_DEPTH_MAX {
        deep.extend([0, 1, 0, 3]);
    }
    deep.extend([0, 0, 0]);
    let cases: [(&str, &[u8], usize, Flaw); 17] = [
        ("nothing", &[], 0, Flaw::Truncated),
        ("no such kind", &[0x1f], 0, Flaw::Unknown(0x1f)),
        ("a range is no command", &[0x15, 0, 0, 0, 0], 0, Flaw::Unknown(0x15)),
        ("only a kind", &[0x11], 1, Flaw::Truncated),
        ("no such flag", &[0x11, 0x10, 0, 0], 1, Flaw::Unknown(0x10)),
        ("a key longer than the rest", &[0x11, 0, 9, b'k', 0], 2, Flaw::Length(9)),
        (
            "a huge key",
            &[0x11, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            2,
            Flaw::Length(u64::MAX),
        ),
        ("a huge list", &[0x13, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0], 1, Flaw::Length(0xffff_ffff)),
        ("a condition longer than the rest", &[0x13, 1, 0, 0, 0], 1, Flaw::Length(1)),
        ("an operation longer than the rest", &[0x13, 0, 1, 0, 2, 0], 2, Flaw::Length(1)),
        ("an alternative longer than the rest", &[0x13, 0, 0, 1, 2, 0, 0], 3, Flaw::Length(1)),
        ("more after the end", &[0x14, 2, 0], 2, Flaw::TrailingBytes),
        ("a number with a needless byte", &[0x14, 0x82, 0], 1, Flaw::Number),
        ("a number past 64 bits", &[0x14, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], 1, Flaw::Number),
        ("a lease said to be there that is 0", &[0x11, 8, 0, 0, 0], 4, Flaw::Number),
        ("no such target", &[0x13, 1, 0, 0, 0x50, 0, 0, 0], 4, Flaw::Unknown(0x50)),
        ("too deep", &deep, 129, Flaw::Depth),
    ];
    for (name, bytes, offset, flaw) in cases {
        let malformed = Malformed { offset, flaw };
        assert_eq!(Command::decode(bytes), Err(malformed), "{name}");
        assert!(
            malformed.to_string().starts_with(&format!("malformed command at byte {offset}: ")),
            "{name}"
        );
    }
}

#[test]
fn the_deepest_transaction_allowed_comes_back() {
    let mut txn = Txn::default();
    for _ in 1..TXN_DEPTH_MAX {
        txn = Txn { failure: vec![Operation::Txn(txn)], ..Txn::default() };
    }
    let command = Command::Txn(txn);
    assert_eq!(Command::decode(&bytes(&command)), Ok(command.clone()));
    let Command::Txn(txn) = command else { unreachable!() };
    let deeper = Command::Txn(Txn { failure: vec![Operation::Txn(txn)], ..Txn::default() });
    assert!(matches!(Command::decode(&bytes(&deeper)), Err(Malformed { flaw: Flaw::Depth, .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_command_comes_back_and_no_part_of_it_is_one(command in command()) {
        let bytes = bytes(&command);
        prop_assert_eq!(Command::decode(&bytes), Ok(command));
        for cut in 0..bytes.len() {
            let malformed = Command::decode(&bytes[..cut]).expect_err("a truncated command");
            prop_assert!(malformed.offset <= cut);
        }
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(Command::decode(&longer), Err(Malformed { offset: bytes.len(), flaw: Flaw::TrailingBytes }));
    }

    #[test]
    fn every_query_comes_back_and_no_part_of_it_is_one(query in query()) {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        prop_assert_eq!(Query::decode(&bytes), Ok(query));
        for cut in 0..bytes.len() {
            prop_assert!(Query::decode(&bytes[..cut]).is_err(), "{} bytes", cut);
        }
        prop_assert!(Query::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn numbers_of_every_size_come_back(n in any::<i64>(), shift in 0..64u32) {
        for n in [n, n >> shift, i64::MIN, i64::MAX] {
            prop_assert_eq!(Command::decode(&bytes(&Command::Compact(Revision(n)))), Ok(Command::Compact(Revision(n))));
        }
    }

    #[test]
    fn a_number_is_taken_off_the_front_and_the_rest_stays(n in any::<u64>(), shift in 0..64u32, rest in vec(any::<u8>(), 0..4)) {
        let mut bytes = Vec::new();
        write_number(n >> shift, &mut bytes);
        let length = bytes.len();
        bytes.extend(&rest);
        let mut left = &bytes[..];
        prop_assert_eq!(take_number(&mut left), Some(n >> shift));
        prop_assert_eq!(left, &rest[..]);
        let mut cut = &bytes[..length - 1];
        prop_assert_eq!(take_number(&mut cut), None);
        prop_assert_eq!(cut, &bytes[..length - 1]);
    }

    /// Damaged bytes are refused, or are another command in its one form; applying that does not harm a store.
    #[test]
    fn damaged_bytes_do_no_harm(command in command(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = bytes(&command);
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        harmless(&bytes)?;
    }

    #[test]
    fn random_bytes_do_no_harm(kind in 0x11..0x15u8, rest in vec(prop_oneof![0..8u8, any::<u8>()], 0..60)) {
        harmless(&[&[kind], &rest[..]].concat())?;
    }
}

#[test]
fn what_writes_is_no_query() {
    let txn = |operation| bytes(&Command::Txn(Txn { success: vec![operation], ..Txn::default() }));
    assert!(Query::decode(&txn(Operation::Range(get(one("k"))))).is_ok(), "a transaction has one encoding");
    for bytes in [txn(Operation::Put(put("k", "v"))), bytes(&Command::Put(put("k", "v")))] {
        assert!(matches!(Query::decode(&bytes), Err(Malformed { offset: 0, flaw: Flaw::Unknown(_) })));
    }
    let mut range = Vec::new();
    Query::Range(get(one("k"))).encode(&mut range);
    assert_eq!(hex(&range), "150000016b00");
    assert_eq!(Query::key_in(&range), Some(&b"k"[..]));
}

fn harmless(input: &[u8]) -> Result<(), TestCaseError> {
    prop_assert_eq!(
        Command::is_readable(input),
        Command::decode(input).is_ok(),
        "a look at the bytes tells as much"
    );
    let put = match Command::decode(input) {
        Ok(Command::Put(put)) => Some(put),
        _ => None,
    };
    prop_assert_eq!(Command::put_in(input).map(PutRef::to_owned), put, "in place, it is the same put");
    let key = match Query::decode(input) {
        Ok(Query::Range(range)) => {
            (range == get(KeyRange { end: vec![], ..range.keys.clone() })).then_some(range.keys.start)
        }
        _ => None,
    };
    prop_assert_eq!(Query::key_in(input).map(<[u8]>::to_vec), key, "in place, it is the same key");
    if let Ok(command) = Command::decode(input) {
        prop_assert_eq!(bytes(&command), input, "one form only");
        let mut store = Store::new();
        let _ = store.apply(&command);
        let _ = store.apply(&command);
        prop_assert!(store.revision() <= Revision(3));
    }
    Ok(())
}
