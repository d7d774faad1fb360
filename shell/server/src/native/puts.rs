//! Puts: the small puts that came in one turn, their commands in few buffers.
//!
//! ```text
//!   put n1 ─┐
//!   put n2 ─┼─▶ │ command │ command │ command │ ─▶ the replica, one request for each, with its range of the buffer
//!   put n3 ─┘
//! ```
//! A buffer lives until the replica has taken in all commands in it, so it is small. No put waits for others to come: those of a
//! turn are asked when a buffer is full, before anything that must not overtake them, or when nothing more is there to be read.
//! Knows nothing of: connections, the meaning of commands, what is counted for them.

use kattu_node::contract::Request;
use kattu_raft::SharedBytes;

/// Bytes of a buffer. It is two allocations, so that more would save little.
const ROOM: usize = 4 << 10;

/// A longer command has a buffer of its own.
const SMALL: usize = ROOM / 4;

/// Bytes that a buffer may have beyond its commands, for each of them: its size is guessed from what has come, headers included.
/// More is counted for each.
const SPARE_MAX: usize = 64;

/// Puts for which a connection keeps room with none here.
const KEPT: usize = 16;

/// A put, without its command.
#[derive(Debug)]
pub(crate) struct Put {
    /// The client's name for it.
    pub(crate) name: u64,
    /// Bytes that are counted for it.
    pub(crate) bytes: u64,
    /// Bytes of its command.
    length: usize,
}

/// Puts that the replica does not have yet.
#[derive(Debug, Default)]
pub(crate) struct Puts {
    /// In the order in which they came.
    puts: Vec<Put>,
    /// The commands of the first ones, and how many these are.
    full: Option<(Vec<u8>, usize)>,
    /// The commands of the others.
    commands: Vec<u8>,
}

impl Puts {
    /// Whether puts with such a command belong here.
    pub(crate) fn takes(command: &[u8]) -> bool {
        command.len() <= SMALL
    }

    /// Whether a buffer is full: it is to be taken before more puts are added.
    pub(crate) fn is_full(&self) -> bool {
        self.full.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.puts.is_empty()
    }

    /// Adds a put behind those that came before it. So many bytes have come and may be commands, this one's among them.
    pub(crate) fn add(&mut self, name: u64, bytes: u64, command: &[u8], here: usize) {
        debug_assert!(!self.is_full() && Puts::takes(command), "{} bytes", command.len());
        if self.commands.capacity() - self.commands.len() < command.len() {
            if !self.puts.is_empty() {
                self.full = Some((std::mem::take(&mut self.commands), self.puts.len()));
            }
            self.commands = Vec::with_capacity(here.min(ROOM).max(command.len()));
        }
        self.commands.extend_from_slice(command);
        self.puts.push(Put { name, bytes, length: command.len() });
    }

    /// The puts with commands in the full buffer, or else in the other one, in their order, with their requests; none of them is
    /// left here.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (Put, Request)> {
        let (mut commands, count) =
            self.full.take().unwrap_or_else(|| (std::mem::take(&mut self.commands), self.puts.len()));
        if SPARE_MAX * count < commands.capacity() - commands.len() {
            commands.shrink_to_fit();
        }
        let (mut alone, among) = match count {
            1 => (Some(commands), SharedBytes::default()),
            _ => (None, SharedBytes::from(commands)),
        };
        let mut at = 0;
        self.puts.drain(..count).map(move |put| {
            let start = at;
            at += put.length;
            let command = match alone.take() {
                Some(command) => command.into(),
                None => among.slice(start..at).into(),
            };
            (put, Request::Write(command))
        })
    }

    /// Gives the room of many puts back, with none here.
    pub(crate) fn rest(&mut self) {
        if KEPT < self.puts.capacity() {
            self.puts = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_node::contract::CommandBytes;

    /// Takes all puts, and counts those that came with others in a buffer.
    fn taken(puts: &mut Puts) -> (Vec<(u64, Vec<u8>)>, usize) {
        let (mut all, mut among) = (Vec::new(), 0);
        while !puts.is_empty() {
            for (put, request) in puts.take() {
                let Request::Write(command) = request else { panic!("{request:?} is no put") };
                among += usize::from(matches!(command, CommandBytes::Among(_)));
                all.push((put.name, command.to_vec()));
            }
        }
        (all, among)
    }

    #[test]
    fn puts_are_taken_in_their_order_each_with_its_command() {
        let mut puts = Puts::default();
        let commands: Vec<(u64, Vec<u8>)> =
            (0..9).map(|n| (n, vec![n as u8; SMALL / 2 + n as usize])).collect();
        let (mut all, mut fulls) = (Vec::new(), 0);
        for (name, command) in &commands {
            if puts.is_full() {
                fulls += 1;
                for (put, request) in puts.take() {
                    let Request::Write(command @ CommandBytes::Among(_)) = request else {
                        panic!("{request:?} is alone")
                    };
                    assert_eq!(put.bytes, 100 + put.name);
                    all.push((put.name, command.to_vec()));
                }
            }
            puts.add(*name, 100 + name, command, 1 << 20);
        }
        let (last, among) = taken(&mut puts);
        all.extend(last);
        assert_eq!(all, commands);
        assert_eq!((fulls, among), (1, 2), "the second buffer has what the first had no room for");
        assert!(puts.is_empty() && !puts.is_full());
    }

    #[test]
    fn a_put_that_came_alone_has_its_command_for_itself() {
        let mut puts = Puts::default();
        puts.add(7, 1, b"command", 40);
        assert_eq!(taken(&mut puts), (vec![(7, b"command".to_vec())], 0));
        let long = [1; SMALL];
        puts.add(8, 1, &long, 1 << 20);
        let Some((_, Request::Write(CommandBytes::Alone(command)))) = puts.take().next() else {
            panic!("a write")
        };
        assert_eq!(command.capacity(), SMALL, "a guess that was too high is mended");
        puts.rest();
        assert!(puts.is_empty());
    }

    #[test]
    fn what_was_not_guessed_goes_into_another_buffer() {
        let mut puts = Puts::default();
        puts.add(1, 1, b"one", 3);
        puts.add(2, 1, b"two", 3);
        assert!(puts.is_full());
        assert_eq!(taken(&mut puts).0, [(1, b"one".to_vec()), (2, b"two".to_vec())]);
    }
}
