//! Goal: a thawed keeper answers and applies like the one that was frozen, and damaged bytes are refused or are another
//! keeper's. Method: random commands from a seed, a freeze in the middle.

use kattu_kv::api::{Command, DeleteRange, KeyRange, Operation, Put, Query, Range, Revision, Txn};
use kattu_kv::dump;
use kattu_kv::sessions::{Order, SessionId};
use kattu_node::command::{Publish, encode_kv};
use kattu_node::contract::{KeeperEffects, KeeperTask, MemberInfo, Outcome, Ticket, Tickets};
use kattu_node::frozen::{Thaw, ThawError};
use kattu_node::session::{SessionCommand, SessionHeader};
use kattu_node::{Keeper, level};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, LogIndex, NodeId, Stamp, Term};

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn members() -> Vec<MemberInfo> {
    let member = |id: u64| MemberInfo {
        id: NodeId(id),
        peer_urls: vec![format!("http://10.0.0.{id}:2380"), "http://ü:1".into()],
        learner: id == 3,
        votes_when_ready: id == 3,
        ..MemberInfo::default()
    };
    (1..=3).map(member).collect()
}

/// A keeper of a cluster that has come to the level of sessions, with two of them.
fn keeper_with_sessions() -> Keeper {
    let mut keeper = Keeper::new(members());
    apply(&mut keeper, &level::encode(level::SESSIONS));
    for order in [Order::Strict, Order::Any] {
        apply(&mut keeper, &SessionCommand::Register { secret: 9, order }.encode());
    }
    keeper
}

/// A command of the store, now and then in one of two sessions, or about one.
fn random_payload(random: &mut Random, revision: Revision) -> Vec<u8> {
    let command = random_command(random, revision);
    let id = SessionId { number: 2 + random.below(2), secret: 9 };
    let number = 1 + random.below(6);
    match random.below(8) {
        0 => SessionCommand::KeepAlive(vec![(id, number)]).encode(),
        1 if random.below(4) == 0 => SessionCommand::Close(vec![id]).encode(),
        2 | 3 if command[0] == 0 => {
            SessionHeader { id, number, first_unacked: 1 + random.below(number) }.around(&command)
        }
        _ => command,
    }
}

fn random_command(random: &mut Random, revision: Revision) -> Vec<u8> {
    let key = |random: &mut Random| vec![b'a' + random.below(7) as u8];
    let keys = |start: Vec<u8>| KeyRange { start, end: Vec::new() };
    let put = |random: &mut Random| Put {
        key: key(random),
        value: vec![7; random.below(20) as usize],
        ..Put::default()
    };
    let delete = |random: &mut Random| DeleteRange { keys: keys(key(random)), prev_kv: false };
    encode_kv(&match random.below(10) {
        0 => Command::Compact(Revision(revision.0 - random.below(5) as i64)),
        1 => Command::DeleteRange(delete(random)),
        2 | 3 => Command::Txn(Txn {
            success: vec![
                Operation::Put(put(random)),
                Operation::DeleteRange(delete(random)),
                Operation::Put(put(random)),
            ],
            ..Txn::default()
        }),
        4 => {
            let id = NodeId(1 + random.below(4));
            let publish =
                Publish { id, name: format!("n{}", random.below(9)), client_urls: vec!["http://c".into()] };
            return publish.encode();
        }
        _ => Command::Put(put(random)),
    })
}

fn apply(keeper: &mut Keeper, payload: &[u8]) -> Vec<(Ticket, Outcome)> {
    let id = EntryId { term: Term(3), index: keeper.applied().next() };
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp::default() };
    let entry = Entry::new(head, payload.to_vec().into(), 0);
    let mut effects = KeeperEffects::default();
    keeper.handle(KeeperTask::Apply { entry, tickets: Tickets::One(Ticket(1)), term: Term(3) }, &mut effects);
    effects.reply
}

fn answers(keeper: &mut Keeper) -> Vec<(Ticket, Outcome)> {
    let (ticket, term, mut effects) = (Ticket(1), Term(3), KeeperEffects::default());
    let keys = KeyRange { start: b"\0".to_vec(), end: b"\0".to_vec() };
    for revision in (0..=keeper.store().revision().0).map(Revision) {
        let query = Query::Range(Range { keys: keys.clone(), revision, ..Range::default() });
        keeper.handle(KeeperTask::Read { ticket, query, term, needs: LogIndex(0) }, &mut effects);
    }
    keeper.handle(KeeperTask::Members { ticket, term, needs: LogIndex(0) }, &mut effects);
    let mut status = Box::new(kattu_node::contract::Status::default());
    status.term = term;
    keeper.handle(KeeperTask::Status { ticket, status }, &mut effects);
    effects.reply
}

fn bytes(keeper: &Keeper) -> Vec<u8> {
    keeper.pin().chunks().flatten().collect()
}

#[test]
fn a_thawed_keeper_goes_on_as_the_one_that_was_frozen() {
    for seed in 1..=300 {
        let mut random = Random(seed * 7919);
        let mut keeper = keeper_with_sessions();
        for _ in 0..random.below(80) {
            let payload = random_payload(&mut random, keeper.store().revision());
            apply(&mut keeper, &payload);
        }
        let frozen = keeper.pin();
        assert_eq!(frozen.applied(), keeper.applied());
        let expected = bytes(&keeper);

        // The freeze does not contain later commands.
        let more: Vec<_> = (0..30).map(|_| random_payload(&mut random, keeper.store().revision())).collect();
        let replies: Vec<_> = more.iter().map(|payload| apply(&mut keeper, payload)).collect();
        assert_ne!(keeper.pin(), frozen, "seed {seed}");
        let chunks: Vec<Vec<u8>> = frozen.chunks().collect();
        assert_eq!(chunks.concat(), expected, "seed {seed}");

        let piece = 1 + random.below(50) as usize;
        let mut thawed =
            Keeper::thaw(expected.chunks(piece)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(bytes(&thawed), expected, "seed {seed}");
        assert_eq!(thawed.pin(), thawed.pin());
        for (payload, reply) in more.iter().zip(replies) {
            assert_eq!(apply(&mut thawed, payload), reply, "seed {seed}");
        }
        assert_eq!(thawed.digest(), keeper.digest(), "seed {seed}");
        while keeper.tidy() || thawed.tidy() {}
        assert_eq!(answers(&mut thawed), answers(&mut keeper), "seed {seed}");
        assert_eq!(bytes(&thawed), bytes(&keeper), "seed {seed}");
    }
}

#[test]
fn damaged_bytes_are_refused_or_are_another_keepers() {
    for seed in 1..=20 {
        let mut random = Random(seed * 104_729);
        let mut keeper = keeper_with_sessions();
        for _ in 0..20 {
            let payload = random_payload(&mut random, keeper.store().revision());
            apply(&mut keeper, &payload);
        }
        let good = bytes(&keeper);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = Keeper::thaw([&bad]) {
                assert_eq!(bytes(&other), bad, "seed {seed}, bit {bit}");
            }
        }
        for length in 0..good.len() {
            let why = Keeper::thaw([&good[..length]]).expect_err("cut short");
            let truncated = matches!(
                why,
                ThawError::Truncated | ThawError::Store(dump::Malformed { flaw: dump::Flaw::Truncated, .. })
            );
            assert!(truncated, "seed {seed}, {length} bytes: {why}");
        }
    }
}

#[test]
fn digests_of_all_tables_see_members_and_the_applied_index() {
    let mut keeper = Keeper::new(members());
    let mut seen = vec![keeper.digest()];
    let publish = |name: &str| Publish { id: NodeId(2), name: name.into(), client_urls: vec![] }.encode();
    for payload in [publish("a"), publish("a"), publish("b")] {
        apply(&mut keeper, &payload);
        assert!(!seen.contains(&keeper.digest()));
        seen.push(keeper.digest());
    }
}

/// docs/formats/tables.md, field by field.
#[test]
fn the_small_tables_are_laid_out_as_their_page_says() {
    let text = |text: &str| [&(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat();
    let mut keeper = Keeper::new(members());
    let publish = Publish { id: NodeId(2), name: "n2".into(), client_urls: vec!["http://c:2".into()] };
    apply(&mut keeper, &publish.encode());
    let raise = [&[5, 1][..], &7u64.to_le_bytes(), &[2]].concat();
    apply(&mut keeper, &raise);
    apply(&mut keeper, &[3]);
    let report = [&[4][..], &2u64.to_le_bytes(), &3u64.to_le_bytes(), &0xABCDu64.to_le_bytes()].concat();
    apply(&mut keeper, &report);

    let mut small = Vec::new();
    small.extend(4u64.to_le_bytes()); // applied index
    small.extend(0u64.to_le_bytes()); // configuration
    small.extend(3u16.to_le_bytes());
    for id in 1..=3u64 {
        small.extend(id.to_le_bytes());
        small.push(if id == 3 { 2 } else { 0 });
        small.extend(text(if id == 2 { "n2" } else { "" }));
        small.extend(2u16.to_le_bytes());
        small.extend([text(&format!("http://10.0.0.{id}:2380")), text("http://ü:1")].concat());
        small.extend(u16::from(id == 2).to_le_bytes());
        small.extend(if id == 2 { text("http://c:2") } else { Vec::new() });
    }
    small.extend(0u32.to_le_bytes()); // removed
    small.extend(1u32.to_le_bytes()); // alarms
    small.extend(7u64.to_le_bytes());
    small.push(2);
    for number in [3u64, 0, 1, 0] {
        small.extend(number.to_le_bytes()); // newest mark, newest agreed, reports, divergent
    }
    small.push(1); // marks
    small.extend(3u64.to_le_bytes());
    small.extend(1u32.to_le_bytes());
    small.extend([2u64.to_le_bytes(), 0xABCDu64.to_le_bytes()].concat());
    let expected = [&b"KtTb\x02"[..], &(small.len() as u32).to_le_bytes(), &small].concat();
    let bytes = bytes(&keeper);
    assert_eq!(bytes[..expected.len()], expected);
    assert!(bytes[expected.len()..].starts_with(b"Kt"), "the store follows");
}

#[test]
fn each_flaw_is_named() {
    let good = bytes(&Keeper::new(members()));
    let with = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        bytes
    };
    let cases = [
        ("nothing", vec![], ThawError::Truncated),
        ("another file", b"PK".to_vec(), ThawError::NoTables),
        ("another version", with(4, 9), ThawError::Version(9)),
        ("small tables larger than any", with(8, 0x7f), ThawError::Length(0x7f00_0000 + u32::from(good[5]))),
        ("a learner of no meaning", with(35, 3), ThawError::Members),
        ("members out of order", with(27, 9), ThawError::Members),
    ];
    for (name, bytes, error) in cases {
        assert_eq!(Keeper::thaw([&bytes]).expect_err(name), error, "{name}");
        assert!(!error.to_string().is_empty());
    }
    let mut thaw = Thaw::default();
    thaw.push(&good).expect("a keeper");
    assert_eq!(thaw.finish().expect("a keeper").applied(), LogIndex(0));
}
