//! The bytes of a command on their way to the log.
//!
//! Commands that came together may lie in one buffer, so that each costs no memory of its own. Such a buffer lives as long as
//! any of them waits: one that waits beyond its batch gets bytes of its own, and what is counted for it is what it holds.
//! Knows nothing of: what commands mean.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use kattu_raft::SharedBytes;

/// The bytes of one command. Equal and hashed by content.
#[derive(Clone, Debug)]
pub enum CommandBytes {
    /// In a buffer of their own.
    Alone(Vec<u8>),
    /// In a buffer with other commands.
    Among(SharedBytes),
}

impl CommandBytes {
    /// Gives up the buffer that other commands lie in, too.
    pub(crate) fn leave_others(&mut self) {
        if let CommandBytes::Among(bytes) = self {
            *self = CommandBytes::Alone(bytes.to_vec());
        }
    }

    /// These bytes, to be shared, in a buffer with no others.
    pub(crate) fn into_shared(mut self) -> SharedBytes {
        self.leave_others();
        match self {
            CommandBytes::Alone(bytes) => bytes.into(),
            CommandBytes::Among(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for CommandBytes {
    fn from(bytes: Vec<u8>) -> CommandBytes {
        CommandBytes::Alone(bytes)
    }
}

impl From<SharedBytes> for CommandBytes {
    fn from(bytes: SharedBytes) -> CommandBytes {
        CommandBytes::Among(bytes)
    }
}

impl Deref for CommandBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            CommandBytes::Alone(bytes) => bytes,
            CommandBytes::Among(bytes) => bytes,
        }
    }
}

impl PartialEq for CommandBytes {
    fn eq(&self, other: &CommandBytes) -> bool {
        **self == **other
    }
}

impl Eq for CommandBytes {}

impl Hash for CommandBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_command_that_leaves_the_others_holds_nothing_of_theirs() {
        let buffer = SharedBytes::from(vec![1, 2, 3]);
        let mut command = CommandBytes::from(buffer.slice(1..3));
        let among = command.clone();
        command.leave_others();
        assert_eq!(command, among, "the bytes stay the same");
        assert_eq!(*among.into_shared(), [2, 3]);
        assert_eq!(buffer.into_buffer(), Some(vec![1, 2, 3]), "nobody else holds it");
    }
}
