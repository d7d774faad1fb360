//! Simulated directories: those of one machine, each a simulated disk of its own, whose names can be lost, too.
//!
//! Power is lost after a number of operations in all directories together: from then on all fail. Of the changes to
//! names since the last sync of names, those up to some moment survive, as journals of file systems have it; the
//! contents of directories are their disks' affair.
//! Knows nothing of: what directories are for.

use crate::dice::Dice;
use kattu_disk::{SimDisk, Speed};
use kattu_rebuild::places::{Found, Places};
use kattu_wal::{Files, WalError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Names = BTreeMap<PathBuf, SimDisk>;

/// The directories.
pub(crate) struct SimDirs(RefCell<State>);

struct State {
    now: Names,
    durable: Names,
    /// Changes to names since they were last synced.
    doubtful: Vec<Change>,
    /// Operations until power is lost.
    power: Option<u64>,
    is_out: bool,
    /// The directory that was opened last, and how many operations it had seen then.
    lent: Option<(SimDisk, u64)>,
    dice: Dice,
}

enum Change {
    Made(PathBuf, SimDisk),
    Renamed(PathBuf, PathBuf),
    Removed(PathBuf),
}

impl Change {
    fn apply(self, names: &mut Names) {
        match self {
            Change::Made(place, disk) => {
                names.insert(place, disk);
            }
            Change::Renamed(from, to) => {
                if let Some(disk) = names.remove(&from) {
                    names.insert(to, disk);
                }
            }
            Change::Removed(place) => {
                names.remove(&place);
            }
        }
    }
}

fn power_is_out() -> io::Error {
    io::Error::other("the power is out")
}

impl State {
    /// Counts what the directory that was opened last has used of `power`.
    fn settle(&mut self) {
        let Some((disk, before)) = &mut self.lent else { return };
        self.is_out |= disk.is_out();
        let operations = disk.operations();
        if let Some(left) = &mut self.power {
            *left = left.saturating_sub(operations - *before);
        }
        *before = operations;
    }

    fn may_go_on(&mut self) -> io::Result<()> {
        self.settle();
        if self.is_out { Err(power_is_out()) } else { Ok(()) }
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        self.tick()?;
        match &change {
            Change::Made(place, disk) => Change::Made(place.clone(), disk.clone()).apply(&mut self.now),
            Change::Renamed(from, to) => Change::Renamed(from.clone(), to.clone()).apply(&mut self.now),
            Change::Removed(place) => Change::Removed(place.clone()).apply(&mut self.now),
        }
        self.doubtful.push(change);
        Ok(())
    }

    fn tick(&mut self) -> io::Result<()> {
        self.may_go_on()?;
        match &mut self.power {
            Some(0) => {
                self.is_out = true;
                Err(power_is_out())
            }
            Some(left) => {
                *left -= 1;
                if let Some((disk, _)) = &self.lent {
                    disk.lose_power_after(*left);
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.tick()?;
        for change in self.doubtful.drain(..) {
            change.apply(&mut self.durable);
        }
        Ok(())
    }

    fn lend(&mut self, place: &Path) -> Option<Arc<dyn Files>> {
        let disk = self.now.get(place)?.mount();
        if let Some(left) = self.power {
            disk.lose_power_after(left);
        }
        self.lent = Some((disk.clone(), disk.operations()));
        Some(Arc::new(disk))
    }
}

impl SimDirs {
    /// No directory at all.
    pub(crate) fn new(dice: Dice) -> SimDirs {
        SimDirs(RefCell::new(State {
            now: Names::new(),
            durable: Names::new(),
            doubtful: Vec::new(),
            power: None,
            is_out: false,
            lent: None,
            dice,
        }))
    }

    /// Adds a directory whose name is durable.
    pub(crate) fn put(&self, place: &Path, disk: SimDisk) {
        let mut state = self.0.borrow_mut();
        state.now.insert(place.to_path_buf(), disk.clone());
        state.durable.insert(place.to_path_buf(), disk);
    }

    /// The directory there.
    pub(crate) fn disk(&self, place: &Path) -> Option<SimDisk> {
        self.0.borrow().now.get(place).cloned()
    }

    /// The names of all directories.
    pub(crate) fn names(&self) -> Vec<PathBuf> {
        self.0.borrow().now.keys().cloned().collect()
    }

    /// Power is lost after this many more operations.
    pub(crate) fn lose_power_after(&self, operations: u64) {
        self.0.borrow_mut().power = Some(operations);
    }

    /// Power is lost, now if it was not before, and comes back. Returns whether it was lost before.
    pub(crate) fn power_fails(&self) -> bool {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        state.settle();
        let was_out = std::mem::take(&mut state.is_out);
        (state.power, state.lent) = (None, None);
        let arrives = state.dice.below(state.doubtful.len() as u64 + 1) as usize;
        let mut names = std::mem::take(&mut state.durable);
        state.doubtful.drain(..).take(arrives).for_each(|change| change.apply(&mut names));
        for disk in names.values() {
            let _ = disk.power_fails(state.dice.roll(), u64::MAX); // losses show in what is found
        }
        state.now.clone_from(&names);
        state.durable = names;
        was_out
    }
}

impl Places for SimDirs {
    fn look(&self, place: &Path) -> io::Result<Found> {
        let mut state = self.0.borrow_mut();
        state.may_go_on()?;
        match state.now.get(place) {
            None => Ok(Found::Nothing),
            Some(disk) if disk.mount().names()?.is_empty() => Ok(Found::Empty),
            Some(_) => Ok(Found::Something),
        }
    }

    fn create(&self, place: &Path) -> Result<Arc<dyn Files>, WalError> {
        let mut state = self.0.borrow_mut();
        let unwritable = |error: io::Error| WalError::Unwritable {
            dir: place.display().to_string(),
            error: error.to_string(),
        };
        state.may_go_on().map_err(unwritable)?;
        if !state.now.contains_key(place) {
            let disk = SimDisk::seeded(state.dice.roll(), Speed::SOLID);
            state.change(Change::Made(place.to_path_buf(), disk)).map_err(unwritable)?;
            state.sync().map_err(unwritable)?;
        }
        Ok(state.lend(place).expect("it is there by now"))
    }

    fn existing(&self, place: &Path) -> Result<Arc<dyn Files>, WalError> {
        let mut state = self.0.borrow_mut();
        let dir = || place.display().to_string();
        state.may_go_on().map_err(|error| WalError::Unwritable { dir: dir(), error: error.to_string() })?;
        state.lend(place).ok_or_else(|| WalError::NotADirectory { dir: dir() })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.may_go_on()?;
        if !state.now.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if let Some(there) = state.now.get(to)
            && !there.mount().names()?.is_empty()
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.change(Change::Renamed(from.to_path_buf(), to.to_path_buf()))
    }

    fn sync_beside(&self, _place: &Path) -> io::Result<()> {
        self.0.borrow_mut().sync()
    }

    fn remove(&self, place: &Path) -> io::Result<()> {
        self.0.borrow_mut().change(Change::Removed(place.to_path_buf()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sim_dirs(seed: u64) -> SimDirs {
        SimDirs::new(Dice::new(seed, "yard"))
    }

    #[test]
    fn a_name_that_was_not_synced_may_be_lost_and_one_that_was_is_not() {
        let (a, b) = (Path::new("a"), Path::new("b"));
        let mut kept = 0;
        for seed in 0..20 {
            let sim_dirs = sim_dirs(seed);
            sim_dirs.create(a).expect("room");
            sim_dirs.rename(a, b).expect("it is there");
            assert!(!sim_dirs.power_fails());
            assert_eq!(sim_dirs.names().len(), 1);
            kept += u64::from(sim_dirs.disk(b).is_some());
        }
        assert!((1..20).contains(&kept), "{kept}");
        let sim_dirs = sim_dirs(1);
        sim_dirs.create(a).expect("room");
        sim_dirs.rename(a, b).expect("it is there");
        sim_dirs.sync_beside(b).expect("power");
        assert!(!sim_dirs.power_fails());
        assert_eq!(sim_dirs.names(), [b.to_path_buf()]);
    }

    #[test]
    fn operations_of_all_directories_count_until_the_power_goes() {
        let place = Path::new("a");
        let sim_dirs = sim_dirs(7);
        sim_dirs.lose_power_after(4);
        let files = sim_dirs.create(place).expect("two operations");
        let file = files.create("file").expect("the third");
        file.write_at(0, &[1]).expect("the fourth");
        assert!(file.sync().is_err());
        assert!(sim_dirs.look(place).is_err() && sim_dirs.sync_beside(place).is_err());
        assert!(sim_dirs.power_fails(), "it was out");
        assert_ne!(sim_dirs.look(place).expect("it is back"), Found::Nothing);
    }
}
