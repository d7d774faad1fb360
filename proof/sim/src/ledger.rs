//! Ledger: what becomes of each weak answer, as its client sees it. [fault-model WK4, WK5, WK7]
//!
//! ```text
//!   received ─▶ done, by the same sending         strong
//!            ├▶ overwritten, or nobody knows ─▶ sent again ─▶ strong
//!            └▶ the session is over                gone, and told
//! ```
//! 1. A weak answer comes at most once for a sending, and only for one that asks for it.
//! 2. A command that was weakly answered and is committed as that entry is executed, unless its session is over.
//! 3. In the end each has one of these ends: while its session lives nothing is lost.
//!
//! Knows nothing of: members, how a quorum is counted.

use crate::report::{Counts, Violation};
use kattu_kv::sessions::SessionError;
use kattu_node::contract::{Outcome, Reply, ReplyBody};
use kattu_raft::EntryId;
use std::collections::{BTreeMap, BTreeSet};

/// A command of a session: the session's number and its own.
type Name = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Sendings that ask for a weak answer, with the one that came.
    asked: BTreeMap<u64, Option<EntryId>>,
    /// Commands that were weakly answered and have no end.
    open: BTreeSet<Name>,
}

fn wrong(story: String) -> Result<(), Violation> {
    Err(Violation::new("weak_answers_end", story))
}

impl Ledger {
    /// A sending asks for a weak answer.
    pub(crate) fn asks(&mut self, sending: u64) {
        self.asked.insert(sending, None);
    }

    /// A quorum has received the command.
    pub(crate) fn received(
        &mut self,
        sending: u64,
        name: Name,
        id: EntryId,
        counts: &mut Counts,
    ) -> Result<(), Violation> {
        match self.asked.get_mut(&sending) {
            Some(answer @ None) => *answer = Some(id),
            Some(Some(before)) => {
                return wrong(format!("{name:?} is received as {before}, and again as {id}"));
            }
            None => return wrong(format!("{name:?} is received as {id}, which nobody asked for")),
        }
        counts.weak += u64::from(self.open.insert(name));
        Ok(())
    }

    /// A sending has its final answer, or never will have.
    pub(crate) fn ended(
        &mut self,
        sending: u64,
        name: Name,
        outcome: &Outcome,
        counts: &mut Counts,
    ) -> Result<(), Violation> {
        let Some(Some(id)) = self.asked.remove(&sending) else { return Ok(()) };
        match outcome {
            Outcome::Done(Reply { body: ReplyBody::SessionError(error), .. }) => match error {
                SessionError::Expired => Ok(()),
                error => wrong(format!(
                    "{name:?} was received as {id}, and is committed, but not executed: {error}"
                )),
            },
            Outcome::Done(_) => Ok(()),
            Outcome::Received(_) => unreachable!("it is no end"),
            Outcome::Refused(_) | Outcome::Unknown(_) => {
                counts.weak_lost += 1;
                Ok(())
            }
        }
    }

    /// A command is done.
    pub(crate) fn strong(&mut self, name: Name) {
        self.open.remove(&name);
    }

    /// A session is over, and its client knows: what becomes of these commands cannot be learnt.
    pub(crate) fn gone(&mut self, session: u64, counts: &mut Counts) {
        let before = self.open.len();
        self.open.retain(|(of, _)| *of != session);
        counts.weak_gone += (before - self.open.len()) as u64;
    }

    /// Those that have no end.
    pub(crate) fn open(&self) -> &BTreeSet<Name> {
        &self.open
    }
}
