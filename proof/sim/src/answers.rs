//! Answers: what leaves a process for its clients. A kill may come between any two.
//!
//! Knows nothing of: what clients make of them.

use crate::end::End;
use crate::net::id_of;
use crate::process::Hands;
use crate::world::Shared;
use kattu_node::contract::{Doubt, Outcome};

impl Hands {
    /// An answer, or what comes before it, if a client waits for it.
    pub(crate) fn tell(
        &mut self,
        sh: &mut Shared,
        operation: Option<u64>,
        outcome: Outcome,
    ) -> Result<(), End> {
        self.replying.extend(operation.map(|operation| (operation, outcome)));
        self.answer_clients(sh)
    }

    pub(crate) fn answer_clients(&mut self, sh: &mut Shared) -> Result<(), End> {
        while !self.replying.is_empty() {
            self.fuse.burn()?;
            let Some((operation, outcome)) = self.replying.pop_front() else { break };
            // What a member says whose store is wrong is as good as nothing.
            let outcome = match outcome {
                Outcome::Done(_) if sh.diverged.is_divergent(id_of(self.member)) => {
                    Outcome::Unknown(Doubt::Stopping)
                }
                outcome => outcome,
            };
            sh.answer(operation, outcome, self.position);
        }
        Ok(())
    }
}
