//! Diverge: a member's store that silently differs from what the log says. [fault-model F70]
//!
//! The keeper of a struck member applies one entry with a byte changed, as after a memory error. From then on any
//! answer of that member may be wrong, so its clients count as unanswered; the others must keep all guarantees, and the
//! comparison over the log must name the divergent member and no other. Such storms have no operator, and no snapshots,
//! so that a restart, which reads the log, makes that member right again.
//! Knows nothing of: how members compare.

use crate::faults::Fault;
use crate::inject::Who;
use crate::net::id_of;
use crate::report::Violation;
use crate::world::World;
use kattu_kv::api as kv;
use kattu_node::Keeper;
use kattu_node::alarms::Alarm;
use kattu_node::bundle::{self, Parts};
use kattu_node::command::{Command, encode_kv};
use kattu_raft::{Entry, EntryKind, LogIndex, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Divergent members, and reported ones.
#[derive(Default)]
pub(crate) struct Diverged {
    /// A member may be struck in this storm, so that marks count.
    may_happen: bool,
    /// Members whose store differs in this run of theirs.
    divergent: BTreeSet<NodeId>,
    /// Members that were ever struck: always a minority.
    struck: BTreeSet<NodeId>,
    /// Members that an alarm names.
    named: BTreeSet<NodeId>,
    /// Each member's digests at the marks in the log, one for each run that came by.
    marks: BTreeMap<LogIndex, BTreeMap<NodeId, BTreeSet<u64>>>,
    /// Members that differed at a mark.
    found: BTreeSet<NodeId>,
}

/// The entry with a bit of its value flipped, as by a memory error; none if it holds no value.
pub(crate) fn altered(entry: &Entry) -> Option<Entry> {
    if entry.head.kind != EntryKind::Command {
        return None;
    }
    let payload = entry.payload()?;
    let mut parts: Vec<Vec<u8>> = match Parts::of(payload) {
        Some(parts) => parts.flatten().map(|part| part.bytes.to_vec()).collect(),
        None => vec![payload.to_vec()],
    };
    let (part, wrong) = parts.iter_mut().find_map(|part| altered_put(part).map(|wrong| (part, wrong)))?;
    *part = wrong;
    let payload = match parts.len() {
        1 => parts.remove(0),
        _ => bundle::encode(parts.iter().map(Vec::as_slice)),
    };
    Some(Entry::new(entry.head, payload.into(), 0))
}

/// The bytes of a put with a bit of its value flipped.
fn altered_put(command: &[u8]) -> Option<Vec<u8>> {
    let Ok(Command::Kv(kv::Command::Put(mut put))) = Command::decode(command) else { return None };
    if put.ignore_value {
        return None;
    }
    *put.value.last_mut()? ^= 1;
    Some(encode_kv(&kv::Command::Put(put)))
}

impl Diverged {
    pub(crate) fn new(may_happen: bool) -> Diverged {
        Diverged { may_happen, ..Diverged::default() }
    }

    /// Whether what this member answers may be wrong.
    pub(crate) fn is_divergent(&self, member: NodeId) -> bool {
        self.divergent.contains(&member)
    }

    /// Whether an alarm names a member, so that it does not serve: it diverges, or once did.
    pub(crate) fn is_named(&self, member: NodeId) -> bool {
        self.named.contains(&member)
    }

    pub(crate) fn begins(&mut self, member: NodeId) {
        self.divergent.insert(member);
    }

    /// A process has ended, and its divergent memory with it.
    pub(crate) fn ended(&mut self, member: NodeId) {
        self.divergent.remove(&member);
    }

    /// A store has applied an entry.
    pub(crate) fn applied(&mut self, member: NodeId, entry: &Entry, keeper: &Keeper) {
        if !self.may_happen
            || entry.head.kind != EntryKind::Command
            || entry.payload().map(Command::decode) != Some(Ok(Command::Mark))
        {
            return;
        }
        let mark = self.marks.entry(entry.id().index).or_default();
        // A member that reads the log again after a crash may be right where it diverged before, or the reverse.
        mark.entry(member).or_default().insert(keeper.digest());
        let right = mark.iter().find(|(member, _)| !self.struck.contains(member));
        let right = right.and_then(|(_, digests)| digests.first().copied());
        let is_divergent =
            |digests: &BTreeSet<u64>| right.is_some_and(|right| digests.iter().any(|it| *it != right));
        let differ = mark.iter().filter(|(_, digests)| is_divergent(digests));
        self.found.extend(differ.map(|(&member, _)| member));
    }
}

impl World {
    /// Corrupts a member's memory, if the others can still tell the right state.
    pub(crate) fn diverge(&mut self, who: Who) -> bool {
        let Some(member) = self.running(who) else { return false };
        let diverged = &self.sh.diverged;
        let others = diverged.struck.iter().filter(|&&id| id != id_of(member)).count() as u64;
        if !self.may_be_lost(member)
            || !diverged.divergent.is_empty()
            || diverged.is_named(id_of(member))
            || self.plan.members <= 2 * (others + 1)
        {
            return false;
        }
        self.sh.diverged.struck.insert(id_of(member));
        self.members[member].process.as_mut().expect("it runs").hands.eyes.goes_wrong = true;
        true
    }

    /// Alarms must name only members that diverged at a mark.
    pub(crate) fn look_at_alarms(&mut self) -> Result<(), Violation> {
        if self.plan.settings.digest_interval.is_zero() {
            return Ok(());
        }
        for member in self.up() {
            let process = self.members[member].process.as_ref().expect("it is up");
            let alarms = process.keeper().health().alarms;
            for id in (0..=self.members.len() as u64).map(NodeId) {
                if !alarms.contains(Alarm::corrupt(id)) || self.sh.diverged.named.contains(&id) {
                    continue;
                }
                if !self.sh.diverged.found.contains(&id) {
                    let story =
                        format!("n{} has an alarm that names {id:?}, whose store is right", member + 1);
                    return Err(Violation::new("alarms_name_the_odd_one", story));
                }
                self.sh.diverged.named.insert(id);
                self.sh.tally.add(Fault::F70);
                self.sh.line(Some(member), "alarm", || format!("n{} diverges", id.0));
            }
        }
        Ok(())
    }

    /// Whether a divergent member is not named yet.
    pub(crate) fn is_unnamed(&self) -> bool {
        let diverged = &self.sh.diverged;
        let Some(right) = self.up().into_iter().find(|&member| !diverged.is_divergent(id_of(member))) else {
            return false;
        };
        let digest = |member: usize| {
            self.members[member].process.as_ref().map(|process| process.keeper().store().digest())
        };
        let divergent = diverged.divergent.iter().filter(|id| digest((id.0 - 1) as usize) != digest(right));
        divergent.into_iter().any(|&id| !diverged.is_named(id))
    }
}
