//! Choices: what may happen next in a world, as one word each.
//!
//! Knows nothing of: which choices a world has, and what comes of them.

use crate::left::Left;
use crate::member::Event;
use crate::scope::Scope;
use crate::tables::Tables;
use kattu_raft::NodeId;
use kattu_raft::canonical::Moment;

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A message arrives.
    Deliver(u32),
    /// A message arrives, and a copy of it is still under way.
    Copy(u32),
    /// A message is lost.
    Lose(u32),
    /// Something happens to one member.
    At(usize, What),
    /// A step of time; clocks run this way, counted from 1.
    Pass(u8),
}

/// What happens to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A deadline.
    Fire(Moment),
    /// Its disk has completed this many records.
    Sync(usize),
    /// It crashes, this many unsynced records survive.
    Crash(usize),
    /// It starts again.
    Restart,
    /// A client's command.
    Propose,
    /// A client's read.
    Read,
    /// Its driver calls `drained`.
    Drain,
    /// An operator changes the members.
    Change,
    /// It is asked to transfer leadership to this member.
    Transfer(usize),
    /// It takes a snapshot, and prunes its log up to it.
    Snapshot,
    /// Its link to the leader it follows is closed by the other end.
    Close(usize),
}

impl Choice {
    /// Encodes it as one word; `from_word` decodes it.
    #[must_use]
    pub fn word(self) -> u32 {
        let (kind, member, argument) = match self {
            Choice::Deliver(message) => (0, 0, message),
            Choice::Copy(message) => (1, 0, message),
            Choice::Lose(message) => (2, 0, message),
            Choice::Pass(way) => (13, 0, u32::from(way)),
            Choice::At(member, what) => match what {
                What::Fire(moment) => (3, member, moment as u32),
                What::Sync(records) => (4, member, records as u32),
                What::Crash(surviving) => (5, member, surviving as u32),
                What::Restart => (6, member, 0),
                What::Propose => (7, member, 0),
                What::Read => (8, member, 0),
                What::Drain => (9, member, 0),
                What::Change => (10, member, 0),
                What::Transfer(to) => (11, member, to as u32),
                What::Snapshot => (12, member, 0),
                What::Close(peer) => (14, member, peer as u32),
            },
        };
        kind << 28 | (member as u32) << 24 | argument
    }

    /// The choice that made this word.
    ///
    /// # Panics
    /// If no choice did.
    #[must_use]
    pub(crate) fn from_word(word: u32) -> Choice {
        let (kind, member, argument) = (word >> 28, (word >> 24 & 15) as usize, word & 0x00ff_ffff);
        let what = match kind {
            0 => return Choice::Deliver(argument),
            1 => return Choice::Copy(argument),
            2 => return Choice::Lose(argument),
            3 => What::Fire(Moment::ALL[argument as usize]),
            4 => What::Sync(argument as usize),
            5 => What::Crash(argument as usize),
            6 => What::Restart,
            7 => What::Propose,
            8 => What::Read,
            9 => What::Drain,
            10 => What::Change,
            11 => What::Transfer(argument as usize),
            12 => What::Snapshot,
            13 => return Choice::Pass(argument as u8),
            14 => What::Close(argument as usize),
            kind => panic!("no choice has the number {kind}"),
        };
        Choice::At(member, what)
    }
}

impl Event {
    /// The number of the client's next command or read; 0 for anything else.
    pub(crate) fn name(choice: Choice, scope: &Scope, left: &Left) -> u8 {
        match choice {
            Choice::At(_, What::Propose) => scope.proposals - left.proposals + 1,
            Choice::At(_, What::Read) => scope.reads - left.reads + 1,
            Choice::At(_, What::Change) => scope.changes.len() as u8 - left.changes + 1,
            Choice::Deliver(_) | Choice::Copy(_) | Choice::Lose(_) | Choice::Pass(_) | Choice::At(..) => 0,
        }
    }
}

/// Encodes what happens to a member, whichever member it is.
pub(crate) fn event_code(choice: Choice, name: u8) -> u32 {
    match choice {
        Choice::Deliver(message) | Choice::Copy(message) => Choice::Deliver(message).word(),
        Choice::Lose(_) | Choice::Pass(_) => unreachable!("it happens to nobody alone"),
        Choice::At(_, what) => Choice::At(0, what).word() | u32::from(name),
    }
}

/// The event behind a choice.
pub fn event(choice: Choice, name: u8, tables: &Tables<'_>) -> Event {
    match choice {
        Choice::Deliver(message) | Choice::Copy(message) => {
            Event::Deliver((**tables.message_at(message)).clone())
        }
        Choice::Lose(_) | Choice::Pass(_) => unreachable!("it happens to nobody alone"),
        Choice::At(_, what) => match what {
            What::Fire(moment) => Event::Fire(moment),
            What::Sync(records) => Event::Sync(records),
            What::Crash(surviving) => Event::Crash(surviving),
            What::Restart => Event::Restart,
            What::Propose => Event::Propose(name),
            What::Read => Event::Read(name),
            What::Drain => Event::Drain,
            What::Change => Event::Change(name),
            What::Transfer(to) => Event::Transfer(NodeId(to as u64 + 1)),
            What::Snapshot => Event::Snapshot,
            What::Close(peer) => Event::Close(NodeId(peer as u64 + 1)),
        },
    }
}

/// The event and its member, for the timeline.
#[must_use]
pub(crate) fn named_event(
    left: &Left,
    choice: Choice,
    scope: &Scope,
    tables: &Tables<'_>,
) -> Option<(usize, Event)> {
    let n = match choice {
        Choice::Lose(_) | Choice::Pass(_) => return None,
        Choice::Deliver(message) | Choice::Copy(message) => tables.parcel(message).to,
        Choice::At(n, _) => n,
    };
    Some((n, event(choice, Event::name(choice, scope, left), tables)))
}
