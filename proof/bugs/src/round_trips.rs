//! Round trips: scenes in which a store is pinned, goes through bytes, and goes on.
//!
//! | Bug | What must be true in its scene |
//! |---|---|
//! | `pin-lacks-the-newest-change` | a pin is the store as it was |
//! | `dump-forgets-deletes-at-the-compacted-revision`, `load-breaks-the-order-in-a-revision` | what was dumped comes back |
//! | `digest-sees-what-may-be-forgotten`, `hash-counts-what-may-be-forgotten` | digests do not depend on which old versions a store still has |
//!
//! Knows nothing of: replicas, logs, snapshots' files.

use kattu_disk::Dice;
use kattu_kv::api::{Command, DeleteRange, KeyRange, Operation, Put, Revision, Txn};
use kattu_kv::digest::HashKv;
use kattu_kv::dump::load;
use kattu_kv::store::{Pace, Store};

/// Few keys; some transactions change several, and not in the order of their keys.
fn command(dice: &mut Dice, revision: Revision) -> Command {
    let key = |dice: &mut Dice| vec![b'a' + dice.below(5) as u8];
    let put = |dice: &mut Dice| Put { key: key(dice), value: vec![dice.below(3) as u8], ..Put::default() };
    let keys = KeyRange { start: key(dice), end: Vec::new() };
    let delete = DeleteRange { keys, prev_kv: false };
    match dice.below(8) {
        0 => Command::Compact(Revision(revision.0 - dice.below(3) as i64)),
        1..=2 => Command::DeleteRange(delete),
        3..=4 => {
            let success =
                vec![Operation::Put(put(dice)), Operation::Put(put(dice)), Operation::DeleteRange(delete)];
            Command::Txn(Txn { success, ..Txn::default() })
        }
        _ => Command::Put(put(dice)),
    }
}

fn bytes(store: &Store) -> Vec<u8> {
    store.clone().dump().flatten().collect()
}

/// A store is pinned and goes on; the pin goes through bytes and then the same way.
pub fn through_bytes(seed: u64) {
    let mut dice = Dice::new(seed);
    let (mut store, mut twin) = (Store::new(), Store::new());
    let before = 1 + dice.below(60);
    for _ in 0..before {
        let command = command(&mut dice, store.revision());
        let _ = (store.apply(&command), twin.apply(&command));
    }
    let pin = store.pin();
    let after: Vec<Command> = (0..20).map(|_| command(&mut dice, store.revision())).collect();
    let answers: Vec<_> = after.iter().map(|command| store.apply(command)).collect();
    let pinned = bytes(&pin);
    assert!(pinned == bytes(&twin), "a_pin_is_the_store_as_it_was: seed {seed}, {before} commands");

    let mut loaded = load(pin.dump())
        .unwrap_or_else(|why| panic!("what_was_dumped_comes_back: seed {seed}, {before} commands: {why}"));
    assert!(bytes(&loaded) == pinned, "what_was_dumped_comes_back: seed {seed}, {before} commands");
    for (command, answer) in after.iter().zip(answers) {
        let again = loaded.apply(command);
        assert!(
            again == answer,
            "what_was_dumped_comes_back: seed {seed}, {command:?}: {again:?}, and {answer:?} without the detour"
        );
    }
    assert!(bytes(&loaded) == bytes(&store), "what_was_dumped_comes_back: seed {seed}, afterwards");
}

/// Two stores apply the same commands and remove old versions at different paces.
pub fn digests_of_another_pace(seed: u64) {
    let mut dice = Dice::new(seed);
    let mut at_leisure = Store::with_pace(Pace { versions_per_change: 0, versions_per_compaction: 0 });
    let mut at_once = Store::new();
    for number in 0..100 {
        let command = command(&mut dice, at_once.revision());
        let _ = (at_leisure.apply(&command), at_once.apply(&command));
        let hash = |store: &Store| {
            let mut hash = HashKv::new(store.pin(), Revision::NONE).expect("the newest revision");
            while !hash.step(10) {}
            hash.hash()
        };
        let is_same =
            at_leisure.running_digest() == at_once.running_digest() && hash(&at_leisure) == hash(&at_once);
        assert!(is_same, "digests_depend_on_the_log_alone: seed {seed}, command {number}, {command:?}");
        while at_once.tidy(100) {}
    }
}
