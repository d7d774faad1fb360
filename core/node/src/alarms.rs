//! Alarms: faults of members, replicated through the log.
//!
//! | Kind | Raised by | What it does |
//! |---|---|---|
//! | [`AlarmKind::NoSpace`] | a client | every member refuses writes that grow the store |
//! | [`AlarmKind::Corrupt`] | digest comparison (`digests.rs`), a client | the named member refuses reads and writes |
//!
//! An alarm for member 0 stands for all members: their states differ, and none is known to be right.
//!
//! An alarm stays until a client clears it. A member that is short of space by its own measure reports that itself and
//! needs no alarm: its writes are refused while it lasts. [fault-model F12, ST13; etcd-api §7]
//! Knows nothing of: digests, the refusal of requests.

use crate::command::{Malformed, take};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;
use kattu_raft::NodeId;

/// The leading byte of an alarm's change in the log (docs/formats/command.md).
pub(crate) const BYTE: u8 = 5;

const RAISE: u8 = 1;
const CLEAR: u8 = 2;

/// The kind of fault. The numbers are etcd's, and part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// No space for growth.
    NoSpace = 1,
    /// The state is divergent.
    Corrupt = 2,
}

/// One alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alarm {
    /// The member at fault; 0 for all.
    pub member: NodeId,
    /// The kind of fault.
    pub kind: AlarmKind,
}

/// A change of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlarmChange {
    /// The alarm is raised.
    Raise(Alarm),
    /// The alarm is cleared.
    Clear(Alarm),
}

/// All alarms that are raised, ascending by member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Alarms(BTreeSet<Alarm>);

impl AlarmKind {
    /// The kind of this number.
    #[must_use]
    pub(crate) fn from_number(number: u8) -> Option<AlarmKind> {
        match number {
            1 => Some(AlarmKind::NoSpace),
            2 => Some(AlarmKind::Corrupt),
            _ => None,
        }
    }
}

impl fmt::Display for AlarmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AlarmKind::NoSpace => "NOSPACE",
            AlarmKind::Corrupt => "CORRUPT",
        })
    }
}

impl Alarm {
    /// An alarm that this member's state is divergent.
    #[must_use]
    pub fn corrupt(member: NodeId) -> Alarm {
        Alarm { member, kind: AlarmKind::Corrupt }
    }
}

impl AlarmChange {
    /// The bytes of this command.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (action, alarm) = match self {
            AlarmChange::Raise(alarm) => (RAISE, alarm),
            AlarmChange::Clear(alarm) => (CLEAR, alarm),
        };
        let mut out = Vec::with_capacity(11);
        out.extend_from_slice(&[BYTE, action]);
        out.extend_from_slice(&alarm.member.0.to_le_bytes());
        out.push(alarm.kind as u8);
        out
    }

    /// Reads what follows the leading byte.
    pub(crate) fn decode(mut rest: &[u8]) -> Result<AlarmChange, Malformed> {
        let action = take(&mut rest, 1)?[0];
        let alarm = take_alarm(&mut rest)?;
        match (action, rest) {
            (RAISE, []) => Ok(AlarmChange::Raise(alarm)),
            (CLEAR, []) => Ok(AlarmChange::Clear(alarm)),
            _ => Err(Malformed),
        }
    }
}

impl FromIterator<Alarm> for Alarms {
    fn from_iter<I: IntoIterator<Item = Alarm>>(alarms: I) -> Alarms {
        Alarms(alarms.into_iter().collect())
    }
}

impl Alarms {
    /// Each alarm, ascending by member.
    pub fn iter(&self) -> impl Iterator<Item = Alarm> + Clone {
        self.0.iter().copied()
    }

    /// Whether no alarm is raised.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this alarm is raised.
    #[must_use]
    pub fn contains(&self, alarm: Alarm) -> bool {
        self.0.contains(&alarm)
    }

    /// Whether `member` is reported as divergent: by its id, or as one of all.
    #[must_use]
    pub fn is_corrupt(&self, member: NodeId) -> bool {
        !self.0.is_empty()
            && (self.contains(Alarm::corrupt(member)) || self.contains(Alarm::corrupt(NodeId(0))))
    }

    /// Whether writes that grow the store are refused.
    #[must_use]
    pub fn forbids_growth(&self) -> bool {
        self.0.iter().any(|alarm| alarm.kind == AlarmKind::NoSpace)
    }

    /// Makes a change; returns the alarm that was raised or cleared. An alarm that is raised already counts as raised.
    pub(crate) fn change(&mut self, change: AlarmChange) -> Option<Alarm> {
        match change {
            AlarmChange::Raise(alarm) => {
                self.0.insert(alarm);
                Some(alarm)
            }
            AlarmChange::Clear(alarm) => self.0.take(&alarm),
        }
    }

    /// The table's bytes, as a part of all tables (docs/formats/tables.md).
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let count = u32::try_from(self.0.len()).expect("far fewer alarms than that");
        out.extend_from_slice(&count.to_le_bytes());
        for alarm in &self.0 {
            out.extend_from_slice(&alarm.member.0.to_le_bytes());
            out.push(alarm.kind as u8);
        }
    }

    /// Decodes what `encode` wrote; refuses any other form of it.
    pub(crate) fn take(rest: &mut &[u8]) -> Result<Alarms, Malformed> {
        let count = take(rest, 4)?.try_into().map_err(|_| Malformed)?;
        let mut alarms = BTreeSet::new();
        for _ in 0..u32::from_le_bytes(count) {
            let alarm = take_alarm(rest)?;
            if alarms.last().is_some_and(|last| alarm <= *last) {
                return Err(Malformed);
            }
            alarms.insert(alarm);
        }
        Ok(Alarms(alarms))
    }
}

fn take_alarm(rest: &mut &[u8]) -> Result<Alarm, Malformed> {
    let member = take(rest, 8)?.try_into().map_err(|_| Malformed)?;
    let kind = AlarmKind::from_number(take(rest, 1)?[0]).ok_or(Malformed)?;
    Ok(Alarm { member: NodeId(u64::from_le_bytes(member)), kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    const FULL: Alarm = Alarm { member: NodeId(7), kind: AlarmKind::NoSpace };

    #[test]
    fn a_change_survives_its_bytes_and_no_truncation_of_them() {
        for change in [AlarmChange::Raise(FULL), AlarmChange::Clear(Alarm::corrupt(NodeId(0)))] {
            let bytes = change.encode();
            assert_eq!(Command::decode(&bytes), Ok(Command::Alarm(change)));
            for len in 0..bytes.len() {
                assert_eq!(Command::decode(&bytes[..len]), Err(Malformed), "{len} bytes");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Command::decode(&longer), Err(Malformed));
        }
        for (at, byte) in [(1, 3), (10, 0), (10, 3)] {
            let mut bytes = AlarmChange::Raise(FULL).encode();
            bytes[at] = byte;
            assert_eq!(Command::decode(&bytes), Err(Malformed), "byte {at} is {byte}");
        }
    }

    #[test]
    fn an_alarm_is_raised_once_and_cleared_once() {
        let mut alarms = Alarms::default();
        assert_eq!(alarms.change(AlarmChange::Clear(FULL)), None);
        assert_eq!(alarms.change(AlarmChange::Raise(FULL)), Some(FULL));
        assert_eq!(alarms.change(AlarmChange::Raise(FULL)), Some(FULL));
        assert_eq!(alarms.iter().collect::<Vec<_>>(), [FULL]);
        assert!(alarms.forbids_growth() && !alarms.is_corrupt(NodeId(7)));
        assert_eq!(alarms.change(AlarmChange::Clear(FULL)), Some(FULL));
        assert_eq!(alarms.change(AlarmChange::Clear(FULL)), None);
        assert!(alarms.is_empty() && !alarms.forbids_growth());
    }

    #[test]
    fn a_member_is_corrupt_when_it_is_named_or_no_member_is() {
        let mut alarms = Alarms::default();
        alarms.change(AlarmChange::Raise(Alarm::corrupt(NodeId(2))));
        assert!(alarms.is_corrupt(NodeId(2)) && !alarms.is_corrupt(NodeId(1)));
        alarms.change(AlarmChange::Raise(Alarm::corrupt(NodeId(0))));
        assert!(alarms.is_corrupt(NodeId(1)));
        assert!(!alarms.forbids_growth());
    }
}
