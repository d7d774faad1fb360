//! Overlap: the log and the snapshots must overlap. [fault-model ST11]
//!
//! ```text
//!   snapshot  ├──────────────────┤ last
//!   log              base ├──────────────────┤ last       held: the store starts from the snapshot, then the log
//!   log       ├──────────┤                                short of it: the log becomes empty after the snapshot
//!   log       ├───────────────────────┤ another term      contradicts it: the same
//!   log                             base ├──────┤         uncovered: the entries between are lost here
//! ```
//!
//! A log that is short of a good snapshot, or contradicts it above its commit mark, belongs to a member that stored a
//! peer's snapshot and stopped before the base was in its log: it is added now. A snapshot holds committed entries
//! only, so no removed entry was ever needed.
//! Knows nothing of: the state in a snapshot.

use super::Wal;
use crate::error::WalError;
use crate::replay::GroupReplay;
use crate::snapshot::Snapshot;
use kattu_raft::{
    Duration, EntryId, GroupId, HardState, LogBody, LogIndex, LogRecord, Lsn, Recovered, SnapshotMeta,
};

impl Wal {
    /// The recovered state of one group. A log that was cut `begins` anew after the snapshot, which holds what the log
    /// lacks at its beginning.
    pub(super) fn overlap(
        &mut self,
        id: GroupId,
        replayed: &mut GroupReplay,
        begins: bool,
    ) -> Result<Recovered, WalError> {
        let snapshot = self.choose_snapshot(id)?;
        if let Some(SnapshotMeta { last, .. }) = &snapshot {
            self.hold(id, *last, begins)?;
        }
        let last = self.groups[&id].extent.last;
        let (mut tail, mut stamp) = (Vec::new(), None);
        if last == replayed.extent.last {
            (tail, stamp) = replayed.take_tail(|| Ok(self.read(id, last.index, last.index, 0)?.pop()))?;
        }
        let group = self.groups.get_mut(&id).expect("the identity names all groups");
        // A snapshot covers committed entries only.
        let covered = snapshot.as_ref().map_or(LogIndex(0), |snapshot| snapshot.last.index);
        group.commit = group.commit.max(covered);
        let held = group.extent.base.index.next()..=last.index;
        // A log that begins anew holds no entry up to its new base, though the replay may have met some.
        tail.retain(|entry| held.contains(&entry.id().index));
        replayed.memberships.retain(|(index, _)| held.contains(index));
        Ok(Recovered {
            hard: group.slots.newest.hard,
            base: group.extent.base,
            memberships: core::mem::take(&mut replayed.memberships),
            term_starts: group.extent.term_starts().to_vec(),
            last,
            tail,
            committed: group.commit,
            lsn: group.appended,
            stamp: stamp.or(snapshot.as_ref().map(|snapshot| snapshot.stamp)).unwrap_or_default(),
            snapshot,
            vote_floor: None,
            vote_hold: Duration::ZERO,
        })
    }

    /// The newest good snapshot that reaches the log and does not contradict its committed entries.
    fn choose_snapshot(&mut self, id: GroupId) -> Result<Option<SnapshotMeta>, WalError> {
        let (base, commit) = (self.groups[&id].extent.base, self.groups[&id].commit);
        let contradicts = |snapshot: &Snapshot| {
            let last = snapshot.meta.last;
            base.index <= last.index && last.index <= commit && !self.groups[&id].extent.holds(last)
        };
        let (mut newest, bad) = self.snapshots.newest(id)?;
        let mut said: Vec<String> = bad.iter().map(WalError::finding).collect();
        let mut complaints = bad;
        if let Some(divergent) = newest.take_if(|newest| contradicts(newest)) {
            let what = format!("it ends at {}, which contradicts the committed log", divergent.meta.last);
            let error = WalError::damaged(&divergent.name, 32, what);
            said.push(error.finding());
            complaints.push(error);
        }
        if let Some(short) = newest.take_if(|newest| newest.meta.last.index < base.index) {
            said.push(format!("the newest good one, {}, ends at {}", short.name, short.meta.last));
        }
        self.complaints.extend(complaints);
        if newest.is_none() && base != EntryId::default() {
            self.complaints.push(WalError::Uncovered { group: id, base, snapshots: said });
        }
        Ok(newest.map(|newest| newest.meta))
    }

    /// Makes the log hold `last`, durably, and raises the member's term to that of `last`.
    fn hold(&mut self, id: GroupId, last: EntryId, begins: bool) -> Result<(), WalError> {
        let group = &self.groups[&id];
        if group.extent.holds(last) && (!begins || group.extent.base == last) {
            return Ok(());
        }
        let hard = HardState { term: last.term, vote: None };
        let hard = (group.slots.newest.hard.term < last.term).then_some(LogBody::HardState(hard));
        let bodies = hard.into_iter().chain([LogBody::Base(last)]);
        let numbers = (group.appended.0 + 1..).map(Lsn);
        let records: Vec<LogRecord> =
            numbers.zip(bodies).map(|(lsn, body)| LogRecord { lsn, body }).collect();
        self.append(id, &records)?;
        self.sync().map(|_| ())
    }
}
