//! Faults: what a simulated disk can do wrong, and how fast it is.
//!
//! A fault is armed and fires at the first operation that it can affect; [`Fired`] records it and its effect. The
//! numbers are those of the fault model, section 5.
//! Knows nothing of: scenarios, schedules.

use crate::Dice;
use std::fmt;

/// A row of the fault model's table of disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultId {
    /// Power loss that took something.
    F10,
    /// A sync that failed.
    F11,
    /// A write that failed, was cut short, or found the disk full.
    F12,
    /// Something at rest that cannot be read or reads differently.
    F13,
    /// A write that was lost, went elsewhere, or a sector that fell back.
    F14,
    /// A file that is missing, cut, foreign, left over, or another member's.
    F15,
    /// An operation that hung.
    F16,
    /// Operations that were slow.
    F17,
}

impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A fault that happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A sync fails. Each unsynced sector is on the medium with a chance of `survive_percent`; the others are taken for
    /// clean from then on, and with `forget` they read as before they were written. [fault-model F11]
    SyncFails {
        /// 0 to 100.
        survive_percent: u8,
        /// Whether reads return the old bytes at once.
        forget: bool,
    },
    /// The next sync of names fails. [fault-model F11]
    NameSyncFails,
    /// A write fails after a part of its bytes. [fault-model F12]
    WriteFails {
        /// 0 to 100: how much of it was done.
        done_percent: u8,
    },
    /// A write finds no space, though it only overwrites: a quota, or a file system that copies on write.
    /// [fault-model F12]
    NoRoom,
    /// A read fails. [fault-model F13]
    ReadFails,
    /// A sync reports success, and one of its sectors stays on the medium as it was. [fault-model F14]
    WriteLost,
    /// A sync reports success, and one of its sectors went elsewhere, into this file or another. [fault-model F14]
    WriteMisdirected,
}

/// The kind of operation that an armed fault waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sync,
    NameSync,
    Write,
    Read,
}

impl Fault {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Fault::SyncFails { .. } | Fault::WriteLost | Fault::WriteMisdirected => Kind::Sync,
            Fault::NameSyncFails => Kind::NameSync,
            Fault::WriteFails { .. } | Fault::NoRoom => Kind::Write,
            Fault::ReadFails => Kind::Read,
        }
    }
}

/// A fault that did something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The fault.
    pub id: FaultId,
    /// Its effect, for messages.
    pub what: String,
}

/// How long operations take, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// A read.
    pub read: u64,
    /// A write, which goes to memory.
    pub write: u64,
    /// A sync of a file.
    pub sync: u64,
    /// A change of names, and a sync of them.
    pub name: u64,
    /// Each KiB that is read, written or synced.
    pub kib: u64,
    /// How much longer an operation may take, at random.
    pub spread_percent: u64,
}

impl Speed {
    /// No time at all.
    pub const INSTANT: Speed = Speed { read: 0, write: 0, sync: 0, name: 0, kib: 0, spread_percent: 0 };

    /// A solid-state disk of a data centre, with a cache that survives power cuts.
    pub const SOLID: Speed =
        Speed { read: 20_000, write: 6_000, sync: 120_000, name: 60_000, kib: 400, spread_percent: 40 };

    /// A disk that turns.
    pub const SPINNING: Speed = Speed {
        read: 4_000_000,
        write: 8_000,
        sync: 9_000_000,
        name: 9_000_000,
        kib: 8_000,
        spread_percent: 80,
    };
}

/// Charges time for operations.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    pub speed: Speed,
    /// Operations take so many times as long as the speed says.
    pub slowness: u64,
    /// The next operation takes so many nanoseconds longer.
    pub stall: u64,
    /// Nanoseconds since the call began.
    pub spent: u64,
    /// The longest operation since the last query.
    pub longest: u64,
    /// The slowness was reported.
    pub noted: bool,
    pub dice: Dice,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter {
            speed: Speed::INSTANT,
            slowness: 1,
            stall: 0,
            spent: 0,
            longest: 0,
            noted: true,
            dice: Dice::new(0),
        }
    }
}

impl Meter {
    /// Charges an operation of `base` nanoseconds on `bytes` bytes; reports a stall or a slowness that hit it.
    pub fn charge(&mut self, base: u64, bytes: usize, fired: &mut Vec<Fired>) {
        if self.speed == Speed::INSTANT && self.stall == 0 {
            return;
        }
        let plain = base + self.speed.kib * bytes.div_ceil(1024) as u64;
        let spread = plain * self.speed.spread_percent / 100;
        let spread = if spread == 0 { 0 } else { self.dice.below(spread + 1) };
        let mut takes = (plain + spread) * self.slowness;
        if self.stall != 0 {
            fired.push(Fired { id: FaultId::F16, what: format!("an operation hung for {} ns", self.stall) });
            takes += core::mem::take(&mut self.stall);
        }
        self.spent += takes;
        self.longest = self.longest.max(takes);
        if !self.noted {
            self.noted = true;
            fired.push(Fired { id: FaultId::F17, what: format!("{} times slower", self.slowness) });
        }
    }
}
