//! Images: the disks that could be found after a power cut: one of them, drawn, or all.
//!
//! A disk with sectors of more than 512 bytes may have been in the middle of writing one: then all of it is ruined.
//! Knows nothing of: the content of files.

use crate::content::SECTOR;
use crate::faults::FaultId;
use crate::inode::Arrival;
use crate::state::{Limits, State};
use crate::{Dice, SimDisk};
use std::collections::BTreeMap;

/// While at most this many things are doubtful, every subset of them is an image.
pub const EXHAUSTIVE_MAX: usize = 12;

/// The byte that is read where the power went out during a write.
const RUIN: u8 = 0xA5;

/// Ruined places that get images, at most: the newest ones.
const RUINED_MAX: usize = 24;

/// One thing that may or may not have reached the disk.
#[derive(Clone, Copy, Debug)]
enum Doubt {
    /// A sector, and how many versions of it there are.
    Sector {
        inode: usize,
        versions: usize,
    },
    Length {
        inode: usize,
    },
    /// A change of a name.
    Name,
}

/// The losses of a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Sectors of which nothing arrived since their last sync.
    pub sectors: usize,
    /// Sectors that arrived.
    pub sectors_kept: usize,
    /// Sectors of which an older version arrived.
    pub sectors_old: usize,
    /// Changes of names that did not arrive.
    pub names: usize,
    /// Files that are shorter than they were.
    pub lengths: usize,
    /// Sectors that were taken for clean and were not on the medium.
    pub ghosts: usize,
    /// Sectors of the disk that were in the middle of being written.
    pub ruined: usize,
}

impl Lost {
    /// Whether anything is different from before.
    #[must_use]
    pub fn is_something(&self) -> bool {
        self.sectors + self.sectors_old + self.names + self.lengths + self.ghosts + self.ruined != 0
    }
}

impl State {
    /// The disk's sectors that may have been in writing when the power went out, newest first: (when, inode, number).
    fn writing(&self) -> Vec<(u64, usize, usize)> {
        let Some(physical) = self.physical else { return Vec::new() };
        let mut writing: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (number, inode) in self.inodes.iter().enumerate() {
            for doubtful in &inode.doubtful {
                let when = writing.entry((number, doubtful.sector * SECTOR / physical)).or_default();
                *when = doubtful.newest.max(*when);
            }
        }
        let mut newest: Vec<_> = writing.into_iter().map(|((inode, at), when)| (when, inode, at)).collect();
        newest.sort_unstable_by(|one, other| other.cmp(one));
        newest
    }

    /// Ruins a sector of the disk: it holds neither the old nor the new content.
    fn ruin(&mut self, inode: usize, at: usize) {
        let sectors = self.physical.unwrap_or(SECTOR) / SECTOR;
        let content = &mut self.inodes[inode].content;
        let end = content.len().div_ceil(SECTOR);
        for sector in (at * sectors..(at + 1) * sectors).filter(|sector| *sector < end) {
            content.set_sector(sector, &[RUIN; SECTOR]);
        }
    }

    /// Everything doubtful, oldest first, each with its place in the order in which arrivals are applied.
    fn doubts(&self) -> Vec<(u64, usize, Doubt)> {
        let mut doubts = Vec::new();
        for (number, inode) in self.inodes.iter().enumerate() {
            for doubtful in &inode.doubtful {
                let versions = doubtful.versions.len() + 1;
                doubts.push((doubtful.newest, doubts.len(), Doubt::Sector { inode: number, versions }));
            }
            if let Some(at) = inode.length_changed {
                doubts.push((at, doubts.len(), Doubt::Length { inode: number }));
            }
        }
        for (at, _) in &self.names.changes {
            doubts.push((*at, doubts.len(), Doubt::Name));
        }
        doubts.sort_by_key(|(at, place, _)| (*at, *place));
        doubts
    }

    /// Power is lost; `arrivals` holds, in the same order, which of `doubts` arrived.
    fn lose_power(&mut self, doubts: &[(u64, usize, Doubt)], arrivals: &[Arrival]) -> Lost {
        let mut told = vec![(Arrival::Lost, Doubt::Name); doubts.len()];
        for ((_, place, doubt), arrival) in doubts.iter().zip(arrivals) {
            told[*place] = (*arrival, *doubt);
        }
        let mut lost = Lost::default();
        let mut told = told.into_iter().peekable();
        for (number, inode) in self.inodes.iter_mut().enumerate() {
            let mut sectors = Vec::with_capacity(inode.doubtful.len());
            while let Some((arrival, _)) =
                told.next_if(|(_, doubt)| matches!(doubt, Doubt::Sector { inode, .. } if *inode == number))
            {
                sectors.push(arrival);
            }
            let length = told
                .next_if(|(_, doubt)| matches!(doubt, Doubt::Length { inode } if *inode == number))
                .map(|(arrival, _)| arrival);
            if sectors.is_empty() && length.is_none() && inode.ghosts.is_empty() {
                continue;
            }
            lost.ghosts += inode.ghosts.len();
            lost.lengths += usize::from(length == Some(Arrival::Lost));
            let mut sectors = sectors.into_iter();
            inode.lose_power(length != Some(Arrival::Lost), &mut |doubtful| {
                let arrival = sectors.next().expect("one for each doubtful sector");
                match arrival {
                    Arrival::Lost => lost.sectors += 1,
                    Arrival::Version(version) if version < doubtful.versions.len() => lost.sectors_old += 1,
                    Arrival::Version(_) => lost.sectors_kept += 1,
                }
                arrival
            });
        }
        let mut names = core::mem::take(&mut self.names.durable);
        for ((_, change), (arrival, _)) in self.names.changes.drain(..).zip(told) {
            match arrival {
                Arrival::Lost => lost.names += 1,
                Arrival::Version(_) => change.apply(&mut names),
            }
        }
        self.names.now.clone_from(&names);
        self.names.durable = names;
        lost
    }
}

fn newest(doubt: Doubt) -> Arrival {
    match doubt {
        Doubt::Sector { versions, .. } => Arrival::Version(versions - 1),
        _ => Arrival::Version(0),
    }
}

impl SimDisk {
    /// Power is lost, `elapsed` nanoseconds after the call began (`u64::MAX`: after it ended). Which of the doubtful
    /// things arrived follows from `seed`: none, all, a beginning, an end, or each on its own.
    pub fn power_fails(&self, seed: u64, elapsed: u64) -> Lost {
        let mut state = self.state();
        state.undo_after(elapsed);
        let doubts = state.doubts();
        let mut dice = Dice::new(seed);
        let count = doubts.len();
        let mode = dice.below(8);
        let edge = dice.below(count as u64 + 1) as usize;
        let arrivals: Vec<Arrival> = (0..count)
            .map(|place| {
                let doubt = doubts[place].2;
                let arrives = match mode {
                    0 => false,
                    1 => true,
                    2 => place < edge,
                    3 => edge <= place,
                    4 => dice.one_in(8),
                    5 => !dice.one_in(8),
                    _ => dice.one_in(2),
                };
                match doubt {
                    _ if !arrives => Arrival::Lost,
                    Doubt::Sector { versions, .. } if 1 < versions && dice.one_in(3) => {
                        Arrival::Version(dice.below(versions as u64) as usize)
                    }
                    doubt => newest(doubt),
                }
            })
            .collect();
        let writing = state.writing();
        let mut lost = state.lose_power(&doubts, &arrivals);
        if !writing.is_empty() && dice.one_in(2) {
            let (_, inode, at) = writing[dice.below(writing.len() as u64) as usize];
            state.ruin(inode, at);
            lost.ruined = 1;
        }
        state.end_life();
        if lost.is_something() {
            state.fire(FaultId::F10, format!("{lost:?}"));
        }
        lost
    }

    /// How many things are doubtful now.
    #[must_use]
    pub fn doubts(&self) -> usize {
        self.state().doubts().len()
    }

    /// The disks that could be found if power were lost now. Up to [`EXHAUSTIVE_MAX`] doubtful things: every subset of
    /// them, and each older version of a sector that was written repeatedly. Above: none, all, beginnings, ends, every
    /// other one, and `seeded` random subsets. With sectors of more than 512 bytes, also those on which a sector that
    /// may have been in writing is ruined.
    #[must_use]
    pub fn crash_images(&self, seed: u64, seeded: usize) -> Vec<SimDisk> {
        let mut images = Vec::new();
        self.each_crash_image(seed, seeded, &mut |image| images.push(image));
        images
    }

    /// Passes each of the [`SimDisk::crash_images`] to `visit`, one at a time.
    pub fn each_crash_image(&self, seed: u64, seeded: usize, visit: &mut dyn FnMut(SimDisk)) {
        let mut pattern = State::clone(&self.state());
        pattern.forget_the_process();
        let doubts = pattern.doubts();
        let count = doubts.len();
        for (when, inode, at) in pattern.writing().into_iter().take(RUINED_MAX) {
            // Either everything written before it arrived, or all the rest.
            for before in [when, u64::MAX] {
                let arrives =
                    |moment: u64, doubt| if moment < before { newest(doubt) } else { Arrival::Lost };
                let arrivals: Vec<Arrival> =
                    doubts.iter().map(|(moment, _, doubt)| arrives(*moment, *doubt)).collect();
                let mut state = pattern.clone();
                state.lose_power(&doubts, &arrivals);
                state.ruin(inode, at);
                visit(SimDisk::from_state(state));
            }
        }
        let mut show = |arrivals: &[Arrival]| {
            let mut state = pattern.clone();
            state.lose_power(&doubts, arrivals);
            visit(SimDisk::from_state(state));
        };
        let mut choose = |arrives: &dyn Fn(usize) -> bool| {
            let arrivals: Vec<Arrival> = doubts
                .iter()
                .enumerate()
                .map(|(place, (.., doubt))| if arrives(place) { newest(*doubt) } else { Arrival::Lost })
                .collect();
            show(&arrivals);
        };
        if count <= EXHAUSTIVE_MAX {
            for subset in 0..1_u32 << count {
                choose(&|place| subset >> place & 1 == 1);
            }
            let versions = doubts.iter().filter_map(|(.., doubt)| match doubt {
                Doubt::Sector { versions, .. } => Some(*versions),
                _ => None,
            });
            for version in 0..versions.max().unwrap_or(1) - 1 {
                let older = |doubt: &Doubt| match doubt {
                    Doubt::Sector { versions, .. } => Arrival::Version(version.min(versions - 1)),
                    _ => Arrival::Version(0),
                };
                show(&doubts.iter().map(|(.., doubt)| older(doubt)).collect::<Vec<_>>());
            }
            return;
        }
        let step = count.div_ceil(16);
        for edge in (0..=count).step_by(step).chain([1, count - 1, count]) {
            choose(&|place| place < edge);
            choose(&|place| edge <= place);
        }
        choose(&|place| place % 2 == 0);
        choose(&|place| place % 2 == 1);
        let mut dice = Dice::new(seed);
        for _ in 0..seeded {
            let arrivals: Vec<Arrival> = doubts
                .iter()
                .map(|(.., doubt)| match doubt {
                    _ if dice.one_in(2) => Arrival::Lost,
                    Doubt::Sector { versions, .. } => Arrival::Version(dice.below(*versions as u64) as usize),
                    _ => Arrival::Version(0),
                })
                .collect();
            show(&arrivals);
        }
    }
}

impl State {
    /// Reduces the state to the disk alone, without faults and limits: every image begins with it.
    fn forget_the_process(&mut self) {
        self.life = 0;
        self.locked = false;
        self.holder.clear();
        self.clock = 0;
        self.limits = Limits::default();
        self.armed.clear();
        self.fired.clear();
        self.meter = crate::faults::Meter::default();
        self.journal = None;
    }
}
