//! Places: the seam between a restore and the machine's directories, which are made, renamed and removed as a whole.
//!
//! Knows nothing of: the content of directories.

use kattu_wal::{Files, RealFiles, WalError};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The state of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// An empty directory.
    Empty,
    /// A directory with something in it.
    Something,
}

/// The directories of a machine.
pub trait Places {
    /// The state of `place`.
    ///
    /// # Errors
    /// The system's; also if it is no directory.
    fn look(&self, place: &Path) -> io::Result<Found>;

    /// The directory there, made if there is none.
    ///
    /// # Errors
    /// If it cannot be made or written to.
    fn create(&self, place: &Path) -> Result<Arc<dyn Files>, WalError>;

    /// The directory there. Writes nothing.
    ///
    /// # Errors
    /// If there is none.
    fn existing(&self, place: &Path) -> Result<Arc<dyn Files>, WalError>;

    /// Renames a directory in one step, replacing an empty one.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names beside this place durable: creations, renames and removals there survive a power cut.
    ///
    /// # Errors
    /// The system's.
    fn sync_beside(&self, place: &Path) -> io::Result<()>;

    /// Removes a directory with everything in it.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, place: &Path) -> io::Result<()>;
}

/// The directories of the real machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealPlaces;

impl Places for RealPlaces {
    fn look(&self, place: &Path) -> io::Result<Found> {
        match std::fs::read_dir(place) {
            Ok(mut entries) => match entries.next() {
                None => Ok(Found::Empty),
                Some(_) => Ok(Found::Something),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
            Err(error) => Err(error),
        }
    }

    fn create(&self, place: &Path) -> Result<Arc<dyn Files>, WalError> {
        Ok(Arc::new(RealFiles::create(place)?))
    }

    fn existing(&self, place: &Path) -> Result<Arc<dyn Files>, WalError> {
        Ok(Arc::new(RealFiles::existing(place)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_beside(&self, place: &Path) -> io::Result<()> {
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()
    }

    fn remove(&self, place: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(place)
    }
}
