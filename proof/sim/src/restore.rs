//! Restore: a new cluster from a backup, or from the disk of one member, beside a running storm. [fault-model F63]
//!
//! ```text
//!   a member that runs ─ pin ─▶ pieces ─▶ (damaged: refused) ─▶ directories of 1 or 3 members ┐
//!   a copy of its disk, as its death would leave it ─────────▶ directory of the one member ───┤ power is lost halfway:
//!                                                                                             │ repeated, as the manual
//!                                      judged ◀─ they elect, write, agree ◀─ started ◀────────┘ says
//! ```
//! Production's code (`kattu_rebuild`) makes the directories, which lose power. The storm goes on untouched: all work
//! here is on copies, with dice of its own.
//! Knows nothing of: when it is done (`inject.rs`).

use crate::dice::Dice;
use crate::faults::Fault;
use crate::inject::Who;
use crate::log::GROUP;
use crate::net::{CLUSTER, id_of};
use crate::report::Violation;
use crate::rerun::{self, Rerun, everything};
use crate::sim_dirs::SimDirs;
use crate::world::World;
use kattu_disk::{SimDisk, Truth};
use kattu_kv::api::{Answer, Error, KeyValue, Query, Range, Revision};
use kattu_kv::store::Store;
use kattu_node::Keeper;
use kattu_node::contract::{KeeperEffects, KeeperTask, MemberInfo, Outcome, ReplyBody, Tickets};
use kattu_node::frozen::Frozen;
use kattu_raft::{EntryId, Incarnation, LogIndex, NodeId};
use kattu_rebuild::backup::{Backup, Pieces};
use kattu_rebuild::places::{Found, Places};
use kattu_rebuild::{
    NewMember, RAISE_BY, RebuildError, RestoreError, from_backup, from_survivor, unfinished,
};
use kattu_wal::{DataDir, Identity, InitialMember, WalError, WalOptions};
use kattu_wire::{Hello, Lane, PROTOCOL_MAX, PROTOCOL_MIN};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Making a directory takes about this many operations; power is lost at one of them.
const OPERATIONS: u64 = 90;
/// Bytes of log read at once.
const READ_BYTES: usize = 1 << 20;

type Done = Result<(), Violation>;

fn wrong<T>(property: &str, story: impl Into<String>) -> Result<T, Violation> {
    Err(Violation::new(property, story))
}

impl World {
    /// A backup of a member becomes another cluster; whether there was such a member.
    pub(crate) fn restore(&mut self, who: Who, pick: u64) -> Result<bool, Violation> {
        let Some(member) = self.running(who).filter(|&member| !self.is_paused(member)) else {
            return Ok(false);
        };
        let process = self.members[member].process.as_ref().expect("it runs");
        let mut rebuild_step = RebuildStep::new(pick, self.wal_options());
        let digest = rebuild_step.restore(id_of(member), process.whole_keeper().pin())?;
        self.sh.counts.restored += 1;
        self.note_rebuild_step(member, &rebuild_step, digest);
        Ok(true)
    }

    /// Treats a member as the only survivor: a copy of its disk, as its death would leave it, becomes a cluster of one;
    /// whether there is one with a good disk.
    pub(crate) fn recover(&mut self, who: Who, pick: u64) -> Result<bool, Violation> {
        let Some(member) = self.running(who) else { return Ok(false) };
        let state = &self.members[member];
        if !self.is_whole(member) || state.lied_to || state.disk_failed || state.disk.is_out() {
            return Ok(false);
        }
        let process = state.process.as_ref().expect("it runs");
        let mut keeper = process.keeper().clone();
        // Entries delivered to the keeper are committed and on its disk, and not delivered again: it applies them now.
        keeper.finish(&mut KeeperEffects::default());
        if keeper.is_installing() {
            return Ok(false); // its log does not go on from what it has applied
        }
        let mut rebuild_step = RebuildStep::new(pick, self.wal_options());
        let copy = state.disk.copy();
        copy.disarm();
        copy.limit_to(None);
        let elapsed = process.at_disk_for(self.sh.now).unwrap_or(u64::MAX);
        let _ = copy.power_fails(rebuild_step.dice.roll(), elapsed); // losses show in what is recovered
        let _ = copy.take_fired();
        let raft = process.node().raft();
        let base = raft.base();
        let is_covered =
            base == EntryId::default() || copy.good_snapshots().iter().any(|last| base.index <= last.index);
        if copy.truth() != Truth::Whole || !is_covered {
            return Ok(false); // such a disk is refused: a restore from a backup is the way out
        }
        let owed = raft.persisted_index().max(keeper.applied());
        let digest = rebuild_step.recover(id_of(member), copy, &keeper, owed)?;
        self.sh.counts.recovered += 1;
        self.note_rebuild_step(member, &rebuild_step, digest);
        Ok(true)
    }

    fn note_rebuild_step(&mut self, member: usize, rebuild_step: &RebuildStep, digest: u64) {
        self.sh.tally.add(Fault::F63);
        self.sh.counts.unfinished += rebuild_step.unfinished;
        self.sh.trace.mix(digest);
        self.sh.line(Some(member), "restore", || rebuild_step.story.clone());
    }
}

/// The state that a new cluster must hold.
struct Saved {
    revision: Revision,
    digest: u64,
    kvs: Vec<KeyValue>,
}

impl Saved {
    fn of(store: &Store) -> Saved {
        Saved { revision: store.revision(), digest: store.digest(), kvs: all_of(store) }
    }
}

fn all_of(store: &Store) -> Vec<KeyValue> {
    match store.query(&Query::Range(Range { keys: everything(), ..Range::default() })) {
        Ok(response) => match response.answer {
            Answer::Range(range) => range.kvs,
            other => panic!("a range is answered with {other:?}"),
        },
        Err(error) => panic!("everything as of now cannot be read: {error:?}"),
    }
}

/// One new cluster in the making.
struct RebuildStep {
    dice: Dice,
    options: WalOptions,
    /// The new cluster.
    cluster: u64,
    raise_by: u64,
    /// Attempts that a power cut has ended before their directory was complete.
    unfinished: u64,
    story: String,
}

impl RebuildStep {
    fn new(pick: u64, options: WalOptions) -> RebuildStep {
        let mut dice = Dice::new(pick, "restore");
        let cluster = CLUSTER + dice.within(1, 1 << 40);
        let raise_by = match dice.below(4) {
            0 => 0,
            1 => dice.within(1, 1000),
            _ => RAISE_BY,
        };
        RebuildStep { dice, options, cluster, raise_by, unfinished: 0, story: String::new() }
    }

    // ── From a backup ──

    /// Restores the pinned state of a member; a digest of the result.
    fn restore(&mut self, from: NodeId, frozen: Frozen) -> Result<u64, Violation> {
        let saved = Saved::of(frozen.store());
        let bytes: Vec<u8> = Pieces::new(CLUSTER, from, frozen).flat_map(|piece| piece.bytes).collect();
        let members: Vec<NodeId> = (0..if self.dice.one_in(3) { 3 } else { 1 }).map(id_of).collect();
        let mut disks = Vec::new();
        for &id in &members {
            let sim_dirs = SimDirs::new(self.dice.fork(id.0));
            let new = self.new_member(id, &members);
            if self.dice.one_in(4) {
                sim_dirs.put(&new.place, SimDisk::new()); // an empty directory will do
            }
            if self.dice.one_in(3) {
                self.restore_damaged(&sim_dirs, &new, &bytes)?;
            }
            if self.dice.one_in(4) {
                under_the_old_id(&sim_dirs, from_bytes(&sim_dirs, &as_of_old(&new), &bytes, 0))?;
            }
            let raise_by = self.raise_by;
            self.make(&sim_dirs, &new, &mut || from_bytes(&sim_dirs, &new, &bytes, raise_by))?;
            disks.push(self.found(&sim_dirs, &new)?);
            if self.dice.one_in(3) {
                over_what_is_there(from_bytes(&sim_dirs, &new, &bytes, raise_by))?;
            }
        }
        self.story = format!(
            "a backup of {} bytes at revision {} becomes cluster {:x} of {}, raised by {}, cut short {} times",
            bytes.len(),
            saved.revision,
            self.cluster,
            members.len(),
            self.raise_by,
            self.unfinished
        );
        self.run(&disks, &members, from, &saved)
    }

    /// Tries a backup with a flipped bit, or a shortened one.
    fn restore_damaged(&mut self, sim_dirs: &SimDirs, new: &NewMember, bytes: &[u8]) -> Done {
        let mut bad = bytes.to_vec();
        let what = if self.dice.one_in(2) {
            let at = self.dice.below(bad.len() as u64) as usize;
            bad[at] ^= 1 << self.dice.below(8);
            format!("byte {at} flipped")
        } else {
            let len = self.dice.below(bad.len() as u64) as usize;
            bad.truncate(len);
            format!("cut to {len} bytes")
        };
        let before = sim_dirs.names();
        match from_bytes(sim_dirs, new, &bad, self.raise_by) {
            Err(RebuildError::Backup { .. }) => {}
            other => return wrong("damaged_backups_are_refused", format!("{what}: {other:?}")),
        }
        if sim_dirs.names() != before || look(sim_dirs, &new.place) == Found::Something {
            let story = format!("{what}: it left {:?}", sim_dirs.names());
            return wrong("damaged_backups_are_refused", story);
        }
        Ok(())
    }

    // ── From a survivor ──

    /// Recovers a member from its disk; `owed` is how far its log must go, `keeper` what it had applied.
    fn recover(
        &mut self,
        id: NodeId,
        disk: SimDisk,
        keeper: &Keeper,
        owed: LogIndex,
    ) -> Result<u64, Violation> {
        let sim_dirs = SimDirs::new(self.dice.fork(0));
        let new = self.new_member(id, &[id]);
        sim_dirs.put(&new.place, disk);
        if self.dice.one_in(4) {
            under_the_old_id(&sim_dirs, from_survivor(&sim_dirs, &as_of_old(&new), 0).map(|_| ()))?;
        }
        let raise_by = self.raise_by;
        self.make(&sim_dirs, &new, &mut || from_survivor(&sim_dirs, &new, raise_by).map(|_| ()))?;
        let kept = sim_dirs.names().into_iter().find(|place| *place != new.place);
        let Some(kept) = kept.and_then(|place| sim_dirs.disk(&place)) else {
            let story = format!("the old directory is gone: {:?}", sim_dirs.names());
            return wrong("rebuilds_take_nothing_away", story);
        };
        let saved = self.held(&kept, keeper, owed)?;
        let made = self.found(&sim_dirs, &new)?;
        self.story = format!(
            "its disk at revision {} becomes cluster {:x}, raised by {}, cut short {} times",
            saved.revision, self.cluster, self.raise_by, self.unfinished
        );
        self.run(&[made], &[id], id, &saved)
    }

    /// The state in the old directory, by what its member had applied and the log behind that.
    fn held(&self, kept: &SimDisk, keeper: &Keeper, owed: LogIndex) -> Result<Saved, Violation> {
        let (mut wal, recovered, tables) = match rerun::open(kept, self.options) {
            Ok(opened) => opened,
            Err(error) => return wrong("rebuilds_take_nothing_away", format!("the old directory: {error}")),
        };
        let last = recovered.last;
        if last.index < owed {
            let story = format!("its log ends at {last}, and it had acknowledged {}", owed.0);
            return wrong("recovered_members_hold_what_they_had", story);
        }
        // Its own tables, if the log goes on from them; else those of a snapshot that was not installed yet.
        let mut model = match tables {
            Some((tables, _)) if keeper.applied() < recovered.base.index => tables,
            _ => keeper.clone(),
        };
        while model.applied() < last.index {
            let next = model.applied().next();
            let entries = match wal.read(GROUP, next, last.index, READ_BYTES) {
                Ok(entries) if !entries.is_empty() => entries,
                other => return wrong("rebuilds_take_nothing_away", format!("entry {}: {other:?}", next.0)),
            };
            for entry in entries {
                let term = entry.id().term;
                model.handle(
                    KeeperTask::Apply { entry, tickets: Tickets::None, term },
                    &mut KeeperEffects::default(),
                );
            }
        }
        Ok(Saved::of(model.store()))
    }

    // ── Both ──

    fn new_member(&mut self, id: NodeId, members: &[NodeId]) -> NewMember {
        let name = |id: NodeId| format!("n{}", id.0);
        let first = |&id: &NodeId| InitialMember { id, name: name(id), peer_urls: urls(id) };
        let identity = Identity {
            cluster: self.cluster,
            node: id,
            incarnation: Incarnation(self.dice.roll()),
            name: name(id),
            groups: vec![GROUP],
            members: members.iter().map(first).collect(),
            joined: None,
        };
        NewMember { place: PathBuf::from(name(id)), identity, options: self.options }
    }

    /// Makes a directory, through a power cut or not; an attempt that was cut short is repeated as the manual says.
    fn make(
        &mut self,
        sim_dirs: &SimDirs,
        new: &NewMember,
        attempt: &mut dyn FnMut() -> Result<(), RebuildError>,
    ) -> Done {
        let is_cut = self.dice.one_in(2);
        if is_cut {
            sim_dirs.lose_power_after(self.dice.below(OPERATIONS));
        }
        let made = attempt();
        let was_out = (is_cut || self.dice.one_in(2)) && sim_dirs.power_fails();
        match made {
            Ok(()) => return Ok(()), // if the power cut took it after all, `found` says so
            Err(_) if was_out => {}
            Err(error) => {
                let story = format!("on a good disk, with power: {error}");
                return wrong("rebuilds_work", story);
            }
        }
        if !self.clean_up(sim_dirs, new, attempt)? {
            return Ok(()); // it was complete
        }
        self.unfinished += 1;
        match attempt() {
            Ok(()) => Ok(()),
            Err(error) => {
                let story = format!("after one that was cut short: {error}; there is {:?}", sim_dirs.names());
                wrong("rebuilds_can_be_repeated", story)
            }
        }
    }

    /// The steps of an operator after a power cut; whether it has to be done again.
    fn clean_up(
        &self,
        sim_dirs: &SimDirs,
        new: &NewMember,
        attempt: &mut dyn FnMut() -> Result<(), RebuildError>,
    ) -> Result<bool, Violation> {
        let names = sim_dirs.names();
        let aside = names.iter().find(|name| name.to_string_lossy().ends_with(".restoring"));
        let kept = names.iter().find(|name| name.to_string_lossy().contains(".lost-quorum-"));
        let is_there = look(sim_dirs, &new.place) == Found::Something;
        let says = unfinished(sim_dirs, &new.place).ok().flatten();
        // A member must not start empty where a rebuild was cut short.
        if !is_there && says.as_ref() != aside {
            let story = format!("{says:?} is said to be left, and there is {names:?}");
            return wrong("unfinished_rebuilds_are_noticed", story);
        }
        let whose = cluster_of(sim_dirs, &new.place);
        if is_there && whose == Some(self.cluster) && self.is_complete(sim_dirs, &new.place) {
            return Ok(false);
        }
        let is_half = is_there && whose != Some(CLUSTER);
        if is_half || kept.is_some() && (is_there || aside.is_none()) {
            let story = format!("there is {names:?}, and at the place itself cluster {whose:x?}");
            return wrong("rebuilds_leave_all_or_nothing", story);
        }
        if let Some(aside) = aside {
            let again = attempt();
            let is_refused = matches!(
                again,
                Err(RebuildError::Restore(RestoreError::Leftover(_) | RestoreError::Unfinished { .. }))
            );
            if !is_refused {
                let story = format!("{aside:?} is left, and the next attempt: {again:?}");
                return wrong("unfinished_rebuilds_are_noticed", story);
            }
            sim_dirs.remove(aside).expect("the power is back");
        }
        if let Some(kept) = kept {
            sim_dirs.rename(kept, &new.place).expect("nothing is there");
        }
        sim_dirs.sync_beside(&new.place).expect("the power is back");
        Ok(true)
    }

    /// Whether a member would start from this directory with tables.
    fn is_complete(&self, sim_dirs: &SimDirs, place: &Path) -> bool {
        let disk = sim_dirs.disk(place).expect("it is there");
        rerun::open(&disk, self.options).is_ok_and(|(_, _, tables)| tables.is_some())
    }

    /// The directory that was made, which must be the new cluster's and not the old one's.
    fn found(&self, sim_dirs: &SimDirs, new: &NewMember) -> Result<SimDisk, Violation> {
        let Some(disk) = sim_dirs.disk(&new.place) else {
            let story = format!("it is said to be made, and there is {:?}", sim_dirs.names());
            return wrong("rebuilds_leave_all_or_nothing", story);
        };
        let opened = DataDir::open(Arc::new(disk.mount()));
        let expected = |cluster: u64| opened.as_ref().map(|dir| dir.expect(cluster, new.identity.node));
        match (expected(self.cluster), expected(CLUSTER)) {
            (Ok(Ok(())), Ok(Err(WalError::Foreign { .. }))) => Ok(disk.clone()),
            (new, old) => {
                let story = format!("as the new cluster's: {new:?}, as the old one's: {old:?}");
                wrong("rebuilt_clusters_are_others", story)
            }
        }
    }

    /// Starts the new cluster and judges it.
    fn run(
        &mut self,
        disks: &[SimDisk],
        members: &[NodeId],
        old: NodeId,
        saved: &Saved,
    ) -> Result<u64, Violation> {
        let failed = |error: WalError| Violation::new("rebuilt_clusters_start", error.to_string());
        let mut rerun = Rerun::start(disks, self.options, self.dice.roll()).map_err(failed)?;
        for one in &rerun.members {
            self.judge_tables(&one.keeper, members, saved)?;
            self.judge_handshakes(&one.identity, old)?;
        }
        if !rerun.elect().map_err(failed)? {
            return wrong("rebuilt_clusters_go_on", format!("{}: there is no leader", self.story));
        }
        let revision = Revision(saved.revision.0 + self.raise_by as i64).next();
        let came = rerun.put(b"after", b"the flood").map_err(failed)?;
        if came.as_ref().and_then(revision_of) != Some(revision) {
            return wrong("rebuilt_clusters_go_on", format!("a write at revision {revision}: {came:?}"));
        }
        if !rerun.level().map_err(failed)? {
            return wrong("rebuilt_clusters_go_on", format!("{}: a member stays behind", self.story));
        }
        let digests: Vec<u64> = rerun.members.iter().map(|one| one.keeper.digest()).collect();
        if digests.iter().any(|digest| *digest != digests[0]) {
            return wrong(
                "rebuilt_clusters_go_on",
                format!("{}: their digests are {digests:x?}", self.story),
            );
        }
        Ok(digests[0])
    }

    /// Judges the tables of a member that has just started.
    fn judge_tables(&self, keeper: &Keeper, members: &[NodeId], saved: &Saved) -> Done {
        let store = keeper.store();
        let raised = Revision(saved.revision.0 + self.raise_by as i64);
        if store.revision() != raised {
            let story = format!(
                "revision {} was saved and must be {raised}, it is {}",
                saved.revision,
                store.revision()
            );
            return wrong("rebuilt_clusters_go_on_above", story);
        }
        let is_same = all_of(store) == saved.kvs && (self.raise_by != 0 || store.digest() == saved.digest);
        if !is_same {
            let (are, were) = (all_of(store), &saved.kvs);
            let differs =
                were.iter().find(|kv| !are.contains(kv)).or(are.iter().find(|kv| !were.contains(kv)));
            let story = format!("{} keys were saved, {} are there; {differs:?}", were.len(), are.len());
            return wrong("rebuilt_clusters_hold_what_was_saved", story);
        }
        // A client that goes on from an old revision must be refused.
        let old = Range { keys: everything(), revision: saved.revision, ..Range::default() };
        let answer = store.query(&Query::Range(old));
        if self.raise_by != 0 && answer != Err(Error::Compacted) {
            let story = format!("revision {} of before is answered: {answer:?}", saved.revision);
            return wrong("rebuilt_clusters_go_on_above", story);
        }
        let table = keeper.members();
        let first = |&id: &NodeId| MemberInfo { id, peer_urls: urls(id), ..MemberInfo::default() };
        let expected: Vec<MemberInfo> = members.iter().map(first).collect();
        if table.list != expected || !table.removed.is_empty() {
            return wrong("rebuilt_clusters_are_others", format!("its members are {table:?}"));
        }
        Ok(())
    }

    /// Handshakes between the old cluster and the new one are refused by the check of production.
    fn judge_handshakes(&self, identity: &Identity, old: NodeId) -> Done {
        // The id of another member: the same id would be refused for that alone.
        let other = NodeId(old.0.max(identity.node.0) + 1);
        let hello = |cluster: u64, to: NodeId| Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            cluster,
            from: other,
            incarnation: identity.incarnation,
            to,
            lane: Lane::Control,
            learner: false,
        };
        let to_new = hello(CLUSTER, identity.node).judge(identity.cluster, identity.node);
        let to_old = hello(identity.cluster, old).judge(CLUSTER, old);
        let among_new = hello(identity.cluster, identity.node).judge(self.cluster, identity.node);
        if to_new.is_ok() || to_old.is_ok() || among_new.is_err() {
            let story = format!(
                "handshakes: the old one's {to_new:?}, the new one's {to_old:?}, its own {among_new:?}"
            );
            return wrong("rebuilt_clusters_are_others", story);
        }
        Ok(())
    }
}

fn urls(id: NodeId) -> Vec<String> {
    vec![format!("http://new{}", id.0)]
}

/// The same as a member of the old cluster, by an operator's mistake.
fn as_of_old(new: &NewMember) -> NewMember {
    NewMember { identity: Identity { cluster: CLUSTER, ..new.identity.clone() }, ..new.clone() }
}

/// A directory with something in it must not be filled.
fn over_what_is_there(made: Result<(), RebuildError>) -> Done {
    if matches!(made, Err(RebuildError::Restore(RestoreError::Occupied(_)))) {
        return Ok(());
    }
    wrong("rebuilds_take_nothing_away", format!("over a complete directory: {made:?}"))
}

/// A cluster with the id of the old one must not be made.
fn under_the_old_id(sim_dirs: &SimDirs, made: Result<(), RebuildError>) -> Done {
    if matches!(made, Err(RebuildError::Refused(_))) {
        return Ok(());
    }
    let story = format!("made under the id of the old cluster: {made:?}, {:?}", sim_dirs.names());
    wrong("rebuilt_clusters_are_others", story)
}

/// The revision at which a write was done.
fn revision_of(outcome: &Outcome) -> Option<Revision> {
    match outcome {
        Outcome::Done(reply) => match &reply.body {
            ReplyBody::Kv(response) => Some(response.revision),
            _ => None,
        },
        _ => None,
    }
}

fn from_bytes(sim_dirs: &SimDirs, new: &NewMember, bytes: &[u8], raise_by: u64) -> Result<(), RebuildError> {
    let open = |_: &Path| Backup::read(bytes, bytes.len() as u64);
    from_backup(sim_dirs, new, (Path::new("backup"), open), raise_by).map(|_| ())
}

fn look(sim_dirs: &SimDirs, place: &Path) -> Found {
    sim_dirs.look(place).expect("the power is on")
}

/// The cluster in the identity of the directory there.
fn cluster_of(sim_dirs: &SimDirs, place: &Path) -> Option<u64> {
    let dir = DataDir::open(Arc::new(sim_dirs.disk(place)?.mount())).ok()?;
    dir.identity().map(|identity| identity.cluster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_kv::api::{Command, Put};
    use kattu_node::command::encode_kv;
    use kattu_raft::{Entry, EntryHead, EntryId, EntryKind, Stamp, Term};

    const OPTIONS: WalOptions = WalOptions {
        segment_bytes: 1 << 15,
        reserve_bytes: 0,
        window_bytes: 1 << 15,
        block_bytes: 1 << 15,
        sector_bytes: 512,
    };

    /// A keeper with so many keys, written twice each.
    fn keeper(keys: u64) -> Keeper {
        let mut keeper = Keeper::new(vec![MemberInfo { id: id_of(0), ..MemberInfo::default() }]);
        for number in 0..2 * keys {
            let key = (number % keys).to_be_bytes().to_vec();
            let put = Put { key, value: number.to_le_bytes().to_vec(), ..Put::default() };
            let id = EntryId { term: Term(3), index: keeper.applied().next() };
            let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp::default() };
            let entry = Entry::new(head, encode_kv(&Command::Put(put)).into(), 0);
            let task = KeeperTask::Apply { entry, tickets: Tickets::None, term: Term(3) };
            keeper.handle(task, &mut KeeperEffects::default());
        }
        keeper
    }

    /// The disk of a cluster of one that was restored from this and has written some more; with its keeper.
    fn member(seed: u64, keys: u64) -> (SimDisk, Keeper, LogIndex) {
        let mut rebuild_step = RebuildStep::new(seed, OPTIONS);
        let new = rebuild_step.new_member(id_of(0), &[id_of(0)]);
        let sim_dirs = SimDirs::new(rebuild_step.dice.fork(9));
        let bytes: Vec<u8> =
            Pieces::new(CLUSTER + 1, id_of(0), keeper(keys).pin()).flat_map(|piece| piece.bytes).collect();
        let old = NewMember { identity: Identity { cluster: CLUSTER, ..new.identity }, ..new };
        from_bytes(&sim_dirs, &old, &bytes, 0).expect("a good disk");
        let disk = sim_dirs.disk(&old.place).expect("just made");
        let mut rerun = Rerun::start(std::slice::from_ref(&disk), OPTIONS, seed).expect("just made");
        assert!(rerun.elect().expect("a good disk"));
        for number in 0..seed % 7 {
            rerun.put(&number.to_be_bytes(), b"later").expect("a good disk");
        }
        let one = &rerun.members[0];
        let (keeper, owed) = (one.keeper.clone(), one.node.raft().persisted_index());
        let copy = disk.copy();
        let _ = copy.power_fails(seed, u64::MAX);
        (copy, keeper, owed)
    }

    #[test]
    fn backups_become_clusters_through_power_cuts_and_refusals() {
        let (mut unfinished, mut cuts) = (0, 0);
        for seed in 0..80 {
            let mut rebuild_step = RebuildStep::new(seed, OPTIONS);
            let came = rebuild_step.restore(id_of(0), keeper(1 + seed % 30).pin());
            came.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
            unfinished += rebuild_step.unfinished;
            cuts += u64::from(rebuild_step.unfinished > 0);
        }
        assert!(unfinished > 10 && cuts < 80, "{unfinished} unfinished in {cuts} of 80");
    }

    #[test]
    fn a_member_that_is_left_becomes_a_cluster_with_all_that_it_held() {
        let mut unfinished = 0;
        for seed in 0..80 {
            let (disk, keeper, owed) = member(seed, 1 + seed % 30);
            let mut rebuild_step = RebuildStep::new(seed, OPTIONS);
            let came = rebuild_step.recover(id_of(0), disk, &keeper, owed);
            came.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
            unfinished += rebuild_step.unfinished;
        }
        assert!(unfinished > 10, "{unfinished} unfinished of 80");
    }

    #[test]
    fn power_is_lost_at_every_operation_of_a_recovery() {
        let (mut complete, mut unfinished) = (0, 0);
        for operations in 0..200 {
            let (disk, keeper, owed) = member(3, 5);
            let mut rebuild_step = RebuildStep::new(operations, OPTIONS);
            let sim_dirs = SimDirs::new(Dice::new(operations, "yard"));
            let new = rebuild_step.new_member(id_of(0), &[id_of(0)]);
            sim_dirs.put(&new.place, disk);
            sim_dirs.lose_power_after(operations);
            let mut attempt = || from_survivor(&sim_dirs, &new, RAISE_BY).map(|_| ());
            let made = attempt();
            if !sim_dirs.power_fails() {
                made.expect("the power was on");
                complete += 1;
                continue;
            }
            made.expect_err("the power went");
            if rebuild_step
                .clean_up(&sim_dirs, &new, &mut attempt)
                .unwrap_or_else(|why| panic!("{operations}: {why}"))
            {
                attempt().unwrap_or_else(|why| panic!("{operations}: {why}"));
                unfinished += 1;
            }
            rebuild_step.raise_by = RAISE_BY;
            let kept = sim_dirs.names().into_iter().find(|place| *place != new.place).expect("the old one");
            let kept = sim_dirs.disk(&kept).expect("just seen");
            let saved =
                rebuild_step.held(&kept, &keeper, owed).unwrap_or_else(|why| panic!("{operations}: {why}"));
            let disk =
                rebuild_step.found(&sim_dirs, &new).unwrap_or_else(|why| panic!("{operations}: {why}"));
            let ran = rebuild_step.run(&[disk], &[id_of(0)], id_of(0), &saved);
            ran.unwrap_or_else(|why| panic!("{operations}: {why}"));
        }
        assert!(complete > 20 && unfinished > 20, "{complete} complete, {unfinished} unfinished");
    }

    /// The directory of a new cluster of one, from a backup of this cluster; with what was saved for it.
    fn made(rebuild_step: &mut RebuildStep, from: u64) -> (SimDirs, NewMember, Saved) {
        let new = rebuild_step.new_member(id_of(0), &[id_of(0)]);
        let sim_dirs = SimDirs::new(rebuild_step.dice.fork(9));
        let keeper = keeper(10);
        let bytes: Vec<u8> =
            Pieces::new(from, id_of(0), keeper.pin()).flat_map(|piece| piece.bytes).collect();
        from_bytes(&sim_dirs, &new, &bytes, rebuild_step.raise_by).expect("a good disk");
        (sim_dirs, new, Saved::of(keeper.store()))
    }

    /// The verdict of the judge, if `tamper` changes what it expects.
    fn judged(tamper: impl FnOnce(&mut RebuildStep, &mut Saved, &mut Vec<NodeId>)) -> Result<u64, String> {
        let mut rebuild_step = RebuildStep::new(2, OPTIONS);
        rebuild_step.raise_by = 10;
        let (sim_dirs, new, mut saved) = made(&mut rebuild_step, CLUSTER);
        let disk = rebuild_step.found(&sim_dirs, &new).expect("just made");
        let mut members = vec![id_of(0)];
        tamper(&mut rebuild_step, &mut saved, &mut members);
        rebuild_step.run(&[disk], &members, id_of(0), &saved).map_err(|violation| violation.property)
    }

    #[test]
    fn the_judge_sees_what_is_not_as_it_was_saved() {
        judged(|_, _, _| ()).expect("all is well");
        let above = Err("rebuilt_clusters_go_on_above".to_string());
        assert_eq!(judged(|rebuild_step, _, _| rebuild_step.raise_by = 11), above);
        assert_eq!(judged(|rebuild_step, _, _| rebuild_step.raise_by = 9), above);
        let holds = Err("rebuilt_clusters_hold_what_was_saved".to_string());
        assert_eq!(judged(|_, saved, _| saved.kvs.truncate(9)), holds);
        assert_eq!(judged(|_, saved, _| saved.kvs[3].value = b"another".as_slice().into()), holds);
        let others = Err("rebuilt_clusters_are_others".to_string());
        assert_eq!(judged(|_, _, members| members.push(id_of(1))), others);
        assert_eq!(judged(|rebuild_step, _, _| rebuild_step.cluster += 1), others);
    }

    #[test]
    fn the_judge_sees_the_old_id() {
        let mut rebuild_step = RebuildStep::new(4, OPTIONS);
        rebuild_step.cluster = CLUSTER;
        let (sim_dirs, new, _) = made(&mut rebuild_step, CLUSTER + 1);
        let came = rebuild_step.found(&sim_dirs, &new).expect_err("it is seen");
        assert_eq!(came.property, "rebuilt_clusters_are_others");
    }

    #[test]
    fn the_judge_sees_a_member_that_lacks_what_it_had() {
        let (disk, keeper, owed) = member(3, 5);
        let came = RebuildStep::new(1, OPTIONS).recover(id_of(0), disk, &keeper, owed.next());
        assert_eq!(came.expect_err("it is seen").property, "recovered_members_hold_what_they_had");
    }
}
