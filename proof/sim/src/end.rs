//! End: why a simulated process ends, and where it is killed.
//!
//! Knows nothing of: what a process does, why it is killed.

use crate::report::Violation;
use kattu_wal::WalError;

/// Why a process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was killed between two effects.
    Fuse,
    /// Its log failed.
    Log(WalError),
    /// It would take part with an older copy of its directory, of which not everybody has reminded it who could.
    NotReminded,
    /// What must hold does not.
    Violation(Violation),
}

impl From<WalError> for End {
    fn from(error: WalError) -> End {
        End::Log(error)
    }
}

impl From<Violation> for End {
    fn from(violation: Violation) -> End {
        End::Violation(violation)
    }
}

/// Effects that may still happen before a process is killed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fuse(Option<u64>);

impl Fuse {
    /// Kills the process after so many effects.
    pub(crate) fn set(&mut self, effects: Option<u64>) {
        self.0 = effects;
    }

    /// Between two effects: whether the process lives on.
    pub(crate) fn burn(&mut self) -> Result<(), End> {
        match &mut self.0 {
            Some(0) => Err(End::Fuse),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}
