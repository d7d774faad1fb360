//! Served: a store is read only after it has applied all that the log's commit mark told at the start; and what a leader
//! confirms to a restarted member covers all that the member served before. [fault-model ST17, P3]

use super::ghost::{Ghost, expect};
use super::{Checked, View};
use kattu_node::contract::KeeperTask;
use kattu_raft::LogIndex;

const NAME: &str = "served";

/// A member emitted tasks for its keeper, in order; `view` is how it stands after them.
pub(super) fn stepped(ghost: &mut Ghost, place: usize, view: &View, tasks: &[KeeperTask]) -> Checked {
    let member = ghost.at_mut(place);
    let id = member.id;
    let applies = |task: &&KeeperTask| matches!(task, KeeperTask::Apply { .. });
    let mut handed = LogIndex(view.handed.0.saturating_sub(tasks.iter().filter(applies).count() as u64));
    for task in tasks {
        match task {
            KeeperTask::Apply { ticket, .. } => {
                handed = handed.next();
                if ticket.is_some() {
                    member.served = member.served.max(handed);
                }
            }
            KeeperTask::Read { .. } | KeeperTask::Members { .. } => {
                expect(member.marked <= handed, NAME, || {
                    format!(
                        "{id:?} serves a read at {handed:?}; its log said at the start: {:?}",
                        member.marked
                    )
                })?;
                member.served = member.served.max(handed);
            }
            KeeperTask::Status { .. } => {}
        }
    }
    match view.confirmed {
        Some(confirmed) => expect(member.served_before <= confirmed, NAME, || {
            format!("{id:?} takes {confirmed:?} for confirmed; it served {:?} before", member.served_before)
        }),
        None => Ok(()),
    }
}
