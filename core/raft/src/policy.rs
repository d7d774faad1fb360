//! The orthogonal choices of which every protocol variant is a preset. [architecture §3]
//!
//! Each is an enum matched in full where it acts, so a new variant does not compile until every place that depends on
//! it handles it. The first value of each is plain Raft. Choices that act in no place yet are no enums: the path of
//! entries (`contact.rs` keeps a leader and a sender apart), and signatures. Nor is the form of a payload: it is a fact
//! about each entry ([`crate::entry::Body`]).
//! Knows nothing of: roles, messages, the log.

/// One choice per seam.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policies {
    /// What a follower does with entries that leave a gap.
    pub intake: Intake,
    /// Which entries are reported as received.
    pub weak: Weak,
}

/// Which entries of its own term a leader reports as received by a quorum, before they are committed.
/// [replication-protocols W5] (`received`)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weak {
    /// None.
    #[default]
    Off,
    /// Those that a quorum holds durably or in windows.
    Gap,
    /// Those that a quorum has received in any way: followers name entries that are not on their disks yet.
    Receipt,
}

impl Weak {
    /// All of them.
    pub const ALL: [Weak; 3] = [Weak::Off, Weak::Gap, Weak::Receipt];

    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Weak::Off => "off",
            Weak::Gap => "gap",
            Weak::Receipt => "receipt",
        }
    }
}

/// What a follower does with entries after a gap in its log. [replication-protocols §1.3]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Intake {
    /// Refuses them with a hint.
    #[default]
    Strict,
    /// Keeps as many. (`window`)
    Window(Capacity),
}

/// How many entries, and how many bytes of them: of a window, and of weak answers without a final one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capacity {
    /// Entries; of a window, places after the end of the log. 0 holds nothing.
    pub entries: u32,
    /// Their bytes.
    pub bytes: u64,
}

impl Capacity {
    /// Whether it has entries without bytes, or bytes without entries.
    pub(crate) fn is_half(self) -> bool {
        (self.entries == 0) != (self.bytes == 0)
    }
}

impl Intake {
    /// The window's size; nothing fits into the one of a strict follower.
    pub(crate) fn window(self) -> Capacity {
        match self {
            Intake::Strict => Capacity::default(),
            Intake::Window(size) => size,
        }
    }
}
