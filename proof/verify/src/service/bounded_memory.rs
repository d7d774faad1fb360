//! Bounded memory: the bytes that a member holds for others stay within their budgets.
//!
//! In:    bytes that a member holds, by purpose; a budget for each.
//! Out:   the first budget that is exceeded; the most that was held of each.
//! Rule:  every budget is stated beforehand, none depends on the load or the number of clients. [fault-model F50, F52]
//! Knows nothing of: owners of the bytes, the way of counting.

use super::Violation;
use kattu_raft::NodeId;

/// What bytes are held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Held {
    /// Requests received, bodies being received, results not read yet.
    Clients,
    /// Frames that wait for a peer's link, and entries kept in memory for peers.
    Peers,
    /// Versions of keys that are not the newest.
    History,
    /// Snapshots being taken, sent, received or pinned.
    Snapshots,
}

impl Held {
    /// All of them, in the order of their budgets.
    pub const ALL: [Held; 4] = [Held::Clients, Held::Peers, Held::History, Held::Snapshots];

    /// A name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Held::Clients => "clients",
            Held::Peers => "peers",
            Held::History => "history",
            Held::Snapshots => "snapshots",
        }
    }
}

/// The budgets of a member, and the most that was held of each.
#[derive(Clone, Copy, Debug)]
pub struct BoundedMemory {
    budgets: [u64; 4],
    most: [u64; 4],
    looks: u64,
}

impl BoundedMemory {
    /// Without any budget; see [`BoundedMemory::with`].
    #[must_use]
    pub fn new() -> BoundedMemory {
        BoundedMemory { budgets: [u64::MAX; 4], most: [0; 4], looks: 0 }
    }

    /// With a budget in bytes.
    #[must_use]
    pub fn with(mut self, held: Held, bytes: u64) -> BoundedMemory {
        self.budgets[held as usize] = bytes;
        self
    }

    /// A new budget, where it depends on the time that has passed, at a stated rate.
    pub fn budget(&mut self, held: Held, bytes: u64) {
        self.budgets[held as usize] = bytes;
    }

    /// A member holds this many bytes.
    ///
    /// # Errors
    /// If that is above its budget.
    pub fn holds(&mut self, member: NodeId, held: Held, bytes: u64) -> Result<(), Violation> {
        self.looks += 1;
        let most = &mut self.most[held as usize];
        *most = (*most).max(bytes);
        let budget = self.budgets[held as usize];
        if bytes <= budget {
            return Ok(());
        }
        let story = format!("n{} holds {bytes} bytes for {}, {budget} are allowed", member.0, held.name());
        Err(Violation { property: "bounded_memory", story, operations: Vec::new() })
    }

    /// The most that one member held.
    #[must_use]
    pub fn most(&self, held: Held) -> u64 {
        self.most[held as usize]
    }

    /// Samples so far.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }
}

impl Default for BoundedMemory {
    fn default() -> BoundedMemory {
        BoundedMemory::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);

    #[test]
    fn each_budget_is_judged_by_itself_and_the_most_is_kept() {
        let mut judge = BoundedMemory::new().with(Held::Clients, 100).with(Held::Peers, 50);
        assert_eq!(judge.holds(A, Held::Clients, 100), Ok(()));
        assert_eq!(judge.holds(A, Held::Clients, 7), Ok(()));
        assert_eq!(judge.holds(A, Held::History, 1 << 60), Ok(()), "it has no budget");
        let violation = judge.holds(NodeId(3), Held::Peers, 51).expect_err("one above");
        assert_eq!(violation.property, "bounded_memory");
        assert_eq!(violation.story, "n3 holds 51 bytes for peers, 50 are allowed");
        assert_eq!((judge.most(Held::Clients), judge.most(Held::Peers), judge.looks()), (100, 51, 4));
    }

    #[test]
    fn the_budgets_stand_in_the_order_of_their_names() {
        for (place, held) in Held::ALL.into_iter().enumerate() {
            assert_eq!(held as usize, place, "{}", held.name());
        }
    }
}
