//! A log that is damaged, repaired, and opened once more: its vote floor is not forgotten. And one that came back
//! shorter than it was, although nothing on the disk says so: the leader reports the loss.
//!
//! Knows nothing of: elections.

use kattu_disk::{Fault, SimDisk};
use kattu_raft::message::{Lost, Vote};
use kattu_raft::{
    Body, Config, Duration, Effects, EntryHead, EntryId, EntryKind, Envelope, GroupId, HardState,
    Incarnation, Instant, LogBody, LogIndex, LogRecord, Lsn, Message, NodeId, Raft, Recovered, Stamp, Term,
};
use kattu_wal::{DataDir, Files, Identity, InitialMember, Wal, WalOptions};
use std::sync::Arc;

const GROUP: GroupId = GroupId(0);
const OPTIONS: WalOptions = WalOptions {
    segment_bytes: 1 << 16,
    reserve_bytes: 0,
    window_bytes: 1 << 16,
    block_bytes: 1 << 16,
    sector_bytes: 512,
};

fn directory(disk: &SimDisk) -> DataDir {
    DataDir::open(Arc::new(disk.clone())).expect("nobody has it")
}

/// Some entries, each synced, the last one marked.
fn written(entries: u64) -> SimDisk {
    let disk = SimDisk::new();
    let mut dir = directory(&disk);
    let member = |id| InitialMember { id: NodeId(id), name: format!("n{id}"), peer_urls: Vec::new() };
    let single = Identity::single(0xC1, NodeId(1), Incarnation(7), "n1");
    dir.create(Identity { members: (1..=3).map(member).collect(), ..single }, &OPTIONS).expect("room");
    let (mut wal, _) = Wal::open(dir, OPTIONS).expect("an empty log");
    let hard = HardState { term: Term(2), vote: Some(NodeId(1)) };
    wal.append(GROUP, &[LogRecord { lsn: Lsn(1), body: LogBody::HardState(hard) }]).expect("it is well");
    for index in 1..=entries {
        let head = EntryHead { id: EntryId::new(2, index), kind: EntryKind::Command, stamp: Stamp(index) };
        let entry =
            kattu_wire::record_encode(crc32c::crc32c_append, GROUP, head, Body::Whole(&[index as u8; 100]));
        wal.append(GROUP, &[LogRecord { lsn: Lsn(index + 1), body: LogBody::Entry(entry) }])
            .expect("it is well");
        wal.sync().expect("it is well");
    }
    wal.mark().expect("it is well");
    disk
}

/// A log with a bit flipped in one of its entries, and where it ended.
fn damaged(seed: u64) -> (SimDisk, EntryId) {
    let entries = 3 + seed % 5;
    let disk = written(entries);
    let name = disk.names().expect("names").into_iter().find(|name| name.ends_with(".seg")).expect("a log");
    let mut bytes = disk.contents(&name).expect("it is there");
    let block = 4096 + 512 * (seed % entries) as usize;
    bytes[block + 150] ^= 1 << (seed % 8);
    disk.set_contents(&name, Some(bytes));
    (disk, EntryId::new(2, entries))
}

/// How many operations of a repair that fails are tried at most as the last before the power goes.
const CUTS_MAX: u64 = 64;

/// A start fails because the name of its floor may not be durable; the power goes in the middle of the next.
pub(super) fn a_floor_whose_name_is_in_doubt(seed: u64) {
    let (disk, end) = damaged(seed);
    let repair = |disk: &SimDisk| Wal::repair(DataDir::open(Arc::new(disk.clone()))?, OPTIONS);
    for failing in 0..3 {
        for cut in 0..CUTS_MAX {
            let torn = disk.copy();
            torn.arm(Fault::NameSyncFails, failing);
            if repair(&torn).is_ok() {
                return; // this start has no more syncs of names
            }
            let torn = torn.copy(); // the failed start has let go of the lock
            torn.lose_power_after(cut);
            let is_cut = repair(&torn).is_err();
            torn.each_crash_image(seed, 2, &mut |image| {
                let (_, recovered) = repair(&image).expect("it has peers");
                let found = recovered[&GROUP].vote_floor;
                assert!(
                    Some(end) <= found,
                    "floor_outlives_a_restart: it had promised {end}, sync {failing} of names failed, the power went \
                     {cut} operations into the next start, and the one after that says {found:?}"
                );
            });
            if !is_cut {
                break;
            }
        }
    }
}

pub(super) fn a_floor_and_a_restart(seed: u64) {
    let (disk, end) = damaged(seed);
    let (wal, recovered) = Wal::repair(directory(&disk), OPTIONS).expect("it has peers");
    let cut = &recovered[&GROUP];
    assert!(cut.last < end && cut.vote_floor == Some(end), "damage_is_found: {cut:?}");
    drop(wal);
    let (_, again) = Wal::open(directory(&disk), OPTIONS).expect("it was mended");
    assert!(
        again[&GROUP].vote_floor == Some(end),
        "floor_outlives_a_restart: cut after {}, it had promised {end}, the next start says {:?}",
        cut.last,
        again[&GROUP].vote_floor
    );
}

pub(super) fn a_member_that_is_told_of_a_loss(seed: u64) {
    let (kept, had) = (1 + seed % 5, 7 + seed % 3);
    let config = Config::new(NodeId(1), (1..=3).map(NodeId), kattu_wal::encoder());
    let config = Config { incarnation: Incarnation(7), ..config };
    let recovered = Recovered {
        hard: HardState { term: Term(2), vote: Some(NodeId(2)) },
        term_starts: vec![EntryId::new(2, 1)],
        last: EntryId::new(2, kept),
        committed: LogIndex(kept),
        lsn: Lsn(kept + 1),
        ..Recovered::default()
    };
    let mut now = Instant(1_000_000);
    let mut raft = Raft::recover(config, seed, now, recovered);
    let mut says_yes = |from: u64, term: u64, message: Message| {
        let mut effects = Effects::default();
        let (from, to) = (NodeId(from), NodeId(1));
        let envelope =
            Envelope { group: GROUP, from, incarnation: Incarnation(9), to, term: Term(term), message };
        now += Duration::from_millis(10);
        raft.step(now, envelope, &mut effects);
        if let Some(lsn) = effects.persist.last().map(|record| record.lsn) {
            raft.persisted(now, lsn, &mut effects);
        }
        effects.send.iter().any(|sent| matches!(&sent.message, Message::VoteReply(reply) if reply.granted))
    };
    let asks = |index| Message::Vote(Vote { last: EntryId::new(2, index), transfer: true });
    says_yes(2, 2, Message::Lost(Lost { upto: EntryId::new(2, had) }));
    assert!(
        !says_yes(3, 3, asks(had - 1)),
        "told_of_a_loss_votes_by_it: with a log up to {kept} of what was {had} it votes for one that ends before that"
    );
    assert!(says_yes(2, 4, asks(had)), "told_of_a_loss_votes_by_it: it votes for nobody at all");
}
