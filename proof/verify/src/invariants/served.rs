//! Served: a store is read only after it has applied everything up to the commit mark found at the start; and the index
//! that a leader confirms to a restarted member covers all that it served before. [fault-model ST17, P3]

use super::ghost::{Ghost, expect};
use super::{Checked, View};
use kattu_node::contract::KeeperTask;

const NAME: &str = "served";

/// A member emitted tasks for its keeper, in order; `view` is its state after them.
pub(super) fn stepped(ghost: &mut Ghost, place: usize, view: &View, tasks: &[KeeperTask]) -> Checked {
    let member = ghost.at_mut(place);
    let id = member.id;
    let mut delivered = member.delivered;
    for task in tasks {
        match task {
            KeeperTask::Apply { tickets, .. } => {
                delivered = delivered.next();
                if !tickets.is_empty() {
                    member.served = member.served.max(delivered);
                }
            }
            KeeperTask::Read { needs, .. }
            | KeeperTask::LookUp { needs, .. }
            | KeeperTask::Members { needs, .. }
            | KeeperTask::Pin { needs, .. } => {
                // While a snapshot is installed, the state before it serves reads that need no more.
                let sees = if member.installs { *needs } else { delivered };
                expect(*needs <= delivered && member.marked <= sees, NAME, || {
                    format!(
                        "{id:?} serves a read at {delivered:?}, from {needs:?} on; its log said at the start: {:?}",
                        member.marked
                    )
                })?;
                member.served = member.served.max(delivered);
            }
            KeeperTask::Snapshot(meta) => expect(meta.last.index == delivered, NAME, || {
                format!("{id:?} orders a snapshot up to {} at {delivered:?}", meta.last)
            })?,
            KeeperTask::Install(meta) => {
                delivered = meta.last.index;
                member.installs = true;
            }
            KeeperTask::Status { .. } | KeeperTask::Standing { .. } | KeeperTask::Weigh { .. } => {}
        }
    }
    expect(delivered == view.delivered || delivered == member.delivered, NAME, || {
        format!("{id:?} has handed out {:?}; what its keeper got ends at {delivered:?}", view.delivered)
    })?;
    match view.confirmed {
        Some(confirmed) => expect(member.served_before <= confirmed, NAME, || {
            format!("{id:?} takes {confirmed:?} for confirmed; it served {:?} before", member.served_before)
        }),
        None => Ok(()),
    }
}
