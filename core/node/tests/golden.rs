//! Goal: later versions read the snapshots of earlier ones, and members of two versions write the same bytes until the
//! cluster has a level. Method: a sample of tables of each version is kept as a hex dump; the bytes written now must
//! equal the sample of their version, and every sample must be readable. `KATTU_UPDATE=1 cargo test -p kattu-node
//! golden::` rewrites them, which is right only together with a new format version.

use kattu_kv::api::{Command, Put};
use kattu_kv::sessions::{Order, SessionId};
use kattu_node::command::{Publish, encode_kv};
use kattu_node::contract::{KeeperEffects, KeeperTask, MemberInfo, Tickets};
use kattu_node::frozen::VERSION;
use kattu_node::session::{SessionCommand, SessionHeader};
use kattu_node::{Keeper, level};
use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, NodeId, Stamp, Term};
use std::path::PathBuf;

fn apply(keeper: &mut Keeper, payload: Vec<u8>) {
    let id = EntryId { term: Term(3), index: keeper.applied().next() };
    let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
    let entry = Entry::new(head, payload.into(), 0);
    let task = KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(3) };
    keeper.handle(task, &mut KeeperEffects::default());
}

/// A keeper with entries in all small tables, in a cluster of this level.
fn keeper(level: u16) -> Keeper {
    let member = |id: u64| MemberInfo {
        id: NodeId(id),
        peer_urls: vec![format!("http://10.0.0.{id}:2380")],
        learner: id == 3,
        ..MemberInfo::default()
    };
    let mut keeper = Keeper::new((1..=3).map(member).collect());
    let publish =
        Publish { id: NodeId(2), name: "n2".into(), client_urls: vec!["http://10.0.0.2:2379".into()] };
    apply(&mut keeper, publish.encode());
    for (key, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
        let put = Put { key: key.into(), value: value.into(), ..Put::default() };
        apply(&mut keeper, encode_kv(&Command::Put(put)));
    }
    (1..=level).for_each(|level| apply(&mut keeper, level::encode(level)));
    if level::SESSIONS <= level {
        let id = SessionId { number: keeper.applied().next().0, secret: 0x1122_3344 };
        for order in [Order::Strict, Order::Any] {
            apply(&mut keeper, SessionCommand::Register { secret: id.secret, order }.encode());
        }
        let put = Command::Put(Put { key: b"a".to_vec(), value: b"4".to_vec(), ..Put::default() });
        let header = SessionHeader { id, number: 1, first_unacked: 1 };
        apply(&mut keeper, header.around(&encode_kv(&put)));
    }
    keeper
}

fn bytes(keeper: &Keeper) -> Vec<u8> {
    keeper.pin().chunks().flatten().collect()
}

fn hex(bytes: &[u8]) -> String {
    let line = |chunk: &[u8]| chunk.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n") + "\n"
}

fn unhex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect()
}

/// A cluster without a level writes version 2, as members of the version before do.
#[test]
fn tables_are_written_as_ever_and_those_of_yesterday_are_read() {
    for (version, level) in [(2, 0), (3, 1), (VERSION, level::SESSIONS)] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/tables-v{version}.hex"));
        let today = hex(&bytes(&keeper(level)));
        if std::env::var_os("KATTU_UPDATE").is_some() {
            std::fs::write(&path, &today).expect("the sample can be written");
        }
        let sample =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(sample, today, "version {version}: the format has changed, which needs a new version");
        let read =
            Keeper::thaw([unhex(&sample)]).unwrap_or_else(|error| panic!("version {version}: {error}"));
        assert_eq!(bytes(&read), bytes(&keeper(level)), "version {version}");
        assert_eq!(read.health().level, level, "version {version}");
    }
}
