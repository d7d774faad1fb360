//! How much may still happen in a world.
//!
//! Knows nothing of: what uses a budget up.

use crate::scope::Scope;
use kattu_raft::canonical::Moment;

/// How much may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Deadlines, by the number of their reason.
    pub fires: [u8; 16],
    /// Client commands.
    pub proposals: u8,
    /// Linearizable reads.
    pub reads: u8,
    /// Crashes.
    pub crashes: u8,
    /// Messages delivered twice.
    pub copies: u8,
    /// Messages lost from a queue.
    pub losses: u8,
    /// Changes of members.
    pub changes: u8,
    /// Leadership transfers.
    pub transfers: u8,
    /// Snapshots.
    pub snapshots: u8,
    /// Links that close.
    pub closes: u8,
    /// Steps of time.
    pub steps: u8,
    /// The way the clocks run, counted from 1; 0 until the first step.
    pub way: u8,
}

impl Left {
    pub(crate) const WORDS: usize = 7;

    pub(crate) fn of(scope: &Scope) -> Left {
        let mut fires = [0; 16];
        for (moment, count) in scope.fires {
            fires[*moment as usize] = *count;
        }
        let Scope { proposals, reads, crashes, copies, losses, transfers, snapshots, closes, .. } = *scope;
        let changes = scope.changes.len() as u8;
        let (steps, way) = (scope.clocks.map_or(0, |clocks| clocks.steps), 0);
        Left {
            fires,
            proposals,
            reads,
            crashes,
            copies,
            losses,
            changes,
            transfers,
            snapshots,
            closes,
            steps,
            way,
        }
    }

    pub(crate) fn words(&self) -> [u32; Left::WORDS] {
        let fires = |n: usize| u32::from_le_bytes([0, 1, 2, 3].map(|k| self.fires[4 * n + k]));
        [
            fires(0),
            fires(1),
            fires(2),
            fires(3),
            u32::from_le_bytes([self.proposals, self.reads, self.crashes, self.copies]),
            u32::from_le_bytes([self.losses, self.changes, self.transfers, self.snapshots]),
            u32::from_le_bytes([self.steps, self.way, self.closes, 0]),
        ]
    }

    pub(crate) fn from_words(words: &[u32]) -> Left {
        let mut fires = [0; 16];
        for (n, four) in fires.chunks_exact_mut(4).enumerate() {
            four.copy_from_slice(&words[n].to_le_bytes());
        }
        let [proposals, reads, crashes, copies] = words[4].to_le_bytes();
        let [losses, changes, transfers, snapshots] = words[5].to_le_bytes();
        let [steps, way, closes, _] = words[6].to_le_bytes();
        Left {
            fires,
            proposals,
            reads,
            crashes,
            copies,
            losses,
            changes,
            transfers,
            snapshots,
            closes,
            steps,
            way,
        }
    }

    /// A deadline fires and uses up its budget; `u8::MAX` is no limit.
    pub(crate) fn fire(&mut self, moment: Moment) {
        let left = &mut self.fires[moment as usize];
        if *left != u8::MAX {
            *left = left.saturating_sub(1);
        }
    }
}
