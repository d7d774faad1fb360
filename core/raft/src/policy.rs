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
}

/// What a follower does with entries after a gap in its log. [replication-protocols §1.3]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Intake {
    /// Refuses them with a hint.
    #[default]
    Strict,
    /// Keeps as many. (`window`)
    Window(WindowSize),
}

/// How many entries a follower keeps after a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WindowSize {
    /// Places after the end of the log; 0 keeps nothing.
    pub entries: u32,
    /// Bytes of entries.
    pub bytes: u64,
}

impl Intake {
    /// The window's size; nothing fits into the one of a strict follower.
    pub(crate) fn window(self) -> WindowSize {
        match self {
            Intake::Strict => WindowSize::default(),
            Intake::Window(size) => size,
        }
    }
}
