//! Disk: a member's disk, its chance and its faults, counted by what they really did.
//!
//! The disk itself, and the truth about what a log must make of it, are [`kattu_wal::sim`]'s. Here is the seed's choice of
//! how it fails: which sectors a power cut takes, which byte is flipped, how fast it is. Nothing costs the size of the
//! disk but damage at rest.
//! Knows nothing of: when to do what, the process that writes.

use crate::dice::Dice;
use crate::faults::Fault;
use crate::inject::Damage;
use kattu_wal::Files;
use kattu_wal::sim::{self, FaultId, Place, SimDisk, Speed, Truth};
use std::sync::Arc;

/// Where something can be damaged so that a member can tell. The last block of the log is not among them: nothing vouches
/// for it, so that no log can tell its damage from a power cut.
const PLACES: &[Place] = &[
    Place::LogHead,
    Place::LogMiddle,
    Place::LogTail,
    Place::LogHeader,
    Place::Slot,
    Place::Slots,
    Place::Identity,
];

/// A member's disk.
pub(crate) struct Disk {
    sim: SimDisk,
    dice: Dice,
}

impl Disk {
    /// An empty disk; one in ten turns.
    pub(crate) fn new(mut dice: Dice) -> Disk {
        let speed = if dice.one_in(10) { Speed::SPINNING } else { Speed::SOLID };
        Disk { sim: SimDisk::seeded(dice.roll(), speed), dice }
    }

    /// The directory, for the next process. Whatever an earlier one had open does nothing any more.
    pub(crate) fn files(&self) -> Arc<dyn Files> {
        Arc::new(self.sim.mount())
    }

    /// The directory, for a process that comes second: the lock is the first one's.
    pub(crate) fn directory(&self) -> &SimDisk {
        &self.sim
    }

    /// A call into the log begins; what was done before it is done.
    pub(crate) fn begin(&self) {
        self.sim.begin();
    }

    /// Nanoseconds that the call spent at the disk.
    pub(crate) fn spent(&self) -> u64 {
        self.sim.spent()
    }

    /// Operations so far that changed something.
    pub(crate) fn operations(&self) -> u64 {
        self.sim.operations()
    }

    /// The process is cut off in the middle of the disk operation so many further on: the log reports an error, and
    /// [`Disk::is_cut`].
    pub(crate) fn cut_after(&self, operations: u64) {
        self.sim.lose_power_after(operations);
    }

    /// Whether [`Disk::cut_after`] has come true.
    pub(crate) fn is_cut(&self) -> bool {
        self.sim.is_out()
    }

    /// The process dies, `elapsed` nanoseconds after its call began (`u64::MAX`: after it); the machine goes on. At times
    /// the system has dropped clean pages by when the next process reads.
    pub(crate) fn process_dies(&mut self, elapsed: u64) {
        self.sim.process_dies(elapsed);
        if self.dice.one_in(3) {
            self.sim.drop_cache();
        }
    }

    /// Power is lost, `elapsed` nanoseconds after the call began.
    pub(crate) fn power_fails(&mut self, elapsed: u64) {
        let seed = self.dice.roll();
        self.sim.power_fails(seed, elapsed);
    }

    /// A sync fails after so many more: what was to be written is dropped and believed clean, all or some of it.
    pub(crate) fn fail_sync(&mut self, syncs: u64) {
        let fault = match self.dice.below(5) {
            0 => sim::Fault::NameSyncFails,
            1 => sim::Fault::SyncFails { survive_percent: 0, forget: true },
            2 => sim::Fault::SyncFails { survive_percent: 50, forget: true },
            3 => sim::Fault::SyncFails { survive_percent: 50, forget: false },
            _ => sim::Fault::SyncFails { survive_percent: 0, forget: false },
        };
        // Names are synced once per segment: the next time is far enough.
        self.sim.arm(fault, if fault == sim::Fault::NameSyncFails { 0 } else { syncs });
    }

    /// A write fails after so many more, with any part of it done, or none for lack of room.
    pub(crate) fn fail_write(&mut self, writes: u64) {
        let fault = match self.dice.below(4) {
            0 => sim::Fault::NoRoom,
            _ => sim::Fault::WriteFails { done_percent: self.dice.below(101) as u8 },
        };
        self.sim.arm(fault, writes);
    }

    /// A read fails after so many more.
    pub(crate) fn fail_read(&mut self, reads: u64) {
        self.sim.arm(sim::Fault::ReadFails, reads);
    }

    /// What was armed and has not happened will not.
    pub(crate) fn disarm(&self) {
        self.sim.disarm();
    }

    /// There is no room for more than a little, or for another file.
    pub(crate) fn fill(&mut self) {
        let room = self.dice.below(3) * self.dice.below(1 << 17);
        self.sim.limit_to(Some(self.sim.bytes() + room));
        if self.dice.one_in(4) {
            self.sim.limit_files_to(Some(0));
        }
    }

    /// There is room again.
    pub(crate) fn free(&self) {
        self.sim.limit_to(None);
        self.sim.limit_files_to(None);
    }

    /// The next operation hangs for so many nanoseconds.
    pub(crate) fn stall(&self, nanoseconds: u64) {
        self.sim.stall(nanoseconds);
    }

    /// Everything takes so many times as long; 1: as long as it should.
    pub(crate) fn slow_down(&self, times: u64) {
        self.sim.slow_down(times);
    }

    /// Damages what was synced, while no process has it open. `other` is where another member's files come from. Returns
    /// what was done, if there was anything to damage: [`Disk::truth`] says what must come of it.
    pub(crate) fn damage(&self, how: Damage, pick: u64, other: Option<&Disk>) -> Option<String> {
        let mut dice = sim::Dice::new(pick);
        let place = PLACES[dice.below(PLACES.len() as u64) as usize];
        let damage = match how {
            Damage::Flip if dice.one_in(4) => sim::Damage::Unreadable(place),
            Damage::Flip => sim::Damage::Flip(place),
            Damage::Stale => sim::Damage::Stale(place),
            Damage::Misdirected => sim::Damage::Misplaced(place),
            Damage::Missing => sim::Damage::Missing(place),
            Damage::Cut => sim::Damage::Truncated(place),
            Damage::Foreign => match other {
                Some(other) => return self.sim.mix_up_with(&other.sim, place, dice.roll()),
                None => sim::Damage::Foreign(place),
            },
        };
        self.sim.damage(damage, dice.roll())
    }

    /// Temporary files are left over from whatever.
    pub(crate) fn leave_something_over(&mut self) {
        let seed = self.dice.roll();
        self.sim.damage(sim::Damage::Leftover, seed);
    }

    /// A sync to come loses one of its sectors, or puts it elsewhere, and says nothing.
    pub(crate) fn lie(&mut self, syncs: u64) {
        let fault = if self.dice.one_in(2) { sim::Fault::WriteLost } else { sim::Fault::WriteMisdirected };
        self.sim.arm(fault, syncs);
    }

    /// What the log must make of the disk, if it were opened now.
    pub(crate) fn truth(&self) -> Truth {
        self.sim.truth()
    }

    /// Everything that the disk did wrong is put back: as an operator does who finds a good copy of this very disk.
    pub(crate) fn heal(&self) {
        self.sim.heal();
    }

    /// What has really happened since this was last asked.
    pub(crate) fn happened(&self) -> Vec<(Fault, String)> {
        let fired = self.sim.take_fired().into_iter();
        fired
            .map(|fired| {
                let fault = match fired.id {
                    FaultId::F10 => Fault::F10,
                    FaultId::F11 => Fault::F11,
                    FaultId::F12 => Fault::F12,
                    FaultId::F13 => Fault::F13,
                    FaultId::F14 => Fault::F14,
                    FaultId::F15 => Fault::F15,
                    FaultId::F16 => Fault::F16,
                    FaultId::F17 => Fault::F17,
                };
                (fault, fired.what)
            })
            .collect()
    }
}
