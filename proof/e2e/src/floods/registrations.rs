//! Registrations: connections that open sessions as fast as they are answered, and never use or close one.
//!
//! Method: each connection has a frame full of openings under way. All of them have their turns one after the other: one
//! is heard to its last answer, and asks again at once. So the members have work of all others meanwhile. One that has
//! opened as many sessions as a connection may is replaced. Beside them one session is in use.
//! Knows nothing of: how members bound their sessions.

use super::Plan;
use super::session_in_use::{SessionInUse, Used};
use super::waves::{Done, as_flooder};
use crate::floors::Came;
use kattu_client::{Order, SessionError};
use kattu_native::frame::{FrameReader, FrameWriter};
use kattu_native::handshake::Hello;
use kattu_native::message::Request;
use kattu_native::reply::{Outcome, Reply};
use kattu_native::{PREFACE, VERSION_MAX, VERSION_MIN};
use kattu_rig::Cluster;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Openings of one connection under way.
const UNDER_WAY: u64 = 256;
/// Sessions that a connection may open. [docs/operations.md, *The native protocol*]
const OPENINGS_MAX: u64 = 16 << 10;
/// A connection without an answer for so long is replaced.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a frame of answers at most: many times what the answers to all openings under way have.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// After a connection that was not accepted, or broke.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the flood beside one session in use.
pub(super) fn registrations(plan: &Plan, cluster: &Cluster, connections: usize) -> Done {
    let addresses = cluster.addresses();
    let in_use = SessionInUse::open(cluster, plan.one_core);
    let Seen { opened, full, refused, connected, broken } =
        as_flooder(plan, || open_sessions(&addresses, connections, plan.lasts));
    let Used { puts, sessions, faults } = in_use.stop();
    let what = format!(
        "{connections} connections at a time, {connected} in all, {broken} of them broken, open sessions: {opened} opened, \
         {full} refused because there were too many sessions, {refused} for other reasons, at most {sessions} sessions at a \
         time; {puts} puts of a session in use"
    );
    Done { what, came: Came::Registrations { opened, full, sessions }, faults }
}

/// What the connections have seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Sessions opened.
    opened: u64,
    /// Openings refused because there were too many sessions.
    full: u64,
    /// Openings refused for another reason.
    refused: u64,
    /// Connections made.
    connected: u64,
    /// Connections that a member did not accept, closed or did not answer.
    broken: u64,
}

impl Seen {
    fn note(&mut self, outcome: &Outcome<'_>) {
        match outcome {
            Outcome::Opened { .. } => self.opened += 1,
            Outcome::SessionError(SessionError::TooManySessions) => self.full += 1,
            _ => self.refused += 1,
        }
    }
}

fn open_sessions(addresses: &[String], connections: usize, lasts: Duration) -> Seen {
    let mut seen = Seen::default();
    let mut places: Vec<Option<Opener>> = (0..connections).map(|_| None).collect();
    let end = Instant::now() + lasts;
    for number in (0..connections).cycle().take_while(|_| Instant::now() < end) {
        let turn = match places[number].take() {
            Some(opener) => opener.turn(&mut seen),
            None => Opener::connect(&addresses[number % addresses.len()]).map(|opener| {
                seen.connected += 1;
                Some(opener)
            }),
        };
        match turn {
            Ok(opener) => places[number] = opener,
            Err(_) => {
                seen.broken += 1;
                std::thread::sleep(PAUSE);
            }
        }
    }
    seen
}

/// One connection, with openings under way at all times.
struct Opener {
    socket: TcpStream,
    /// Openings asked for, and answers that came.
    asked: u64,
    answered: u64,
    /// Bytes of an incomplete frame.
    half: Vec<u8>,
}

impl Opener {
    /// Connects and asks for the first sessions: nobody needs to wait for the welcome.
    fn connect(address: &str) -> io::Result<Opener> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        socket.set_write_timeout(Some(ANSWER_LIMIT))?;
        let mut writer = FrameWriter::new(crc32c::crc32c_append);
        Hello { version_min: VERSION_MIN, version_max: VERSION_MAX, cluster: 0, principal: 0 }
            .write(&mut writer);
        socket.write_all(&[&PREFACE[..], &writer.take()].concat())?;
        let mut opener = Opener { socket, asked: 0, answered: 0, half: Vec::new() };
        opener.ask()?;
        Ok(opener)
    }

    /// Hears all answers and asks again; `None` once it may open no more.
    fn turn(mut self, seen: &mut Seen) -> io::Result<Option<Opener>> {
        self.hear(seen)?;
        if OPENINGS_MAX <= self.asked {
            return Ok(None);
        }
        self.ask()?;
        Ok(Some(self))
    }

    fn ask(&mut self) -> io::Result<()> {
        let mut writer = FrameWriter::new(crc32c::crc32c_append);
        for _ in 0..UNDER_WAY {
            self.asked += 1;
            Request::Open(Order::Strict).write(self.asked, &mut writer);
        }
        self.socket.write_all(&writer.take())
    }

    fn hear(&mut self, seen: &mut Seen) -> io::Result<()> {
        let reader = FrameReader::new(crc32c::crc32c_append, FRAME_BYTES_MAX);
        let mut room = [0; 16 << 10];
        while self.answered < self.asked {
            match self.socket.read(&mut room)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.half.extend_from_slice(&room[..count]),
            }
            while let Some((messages, length)) = reader.next(&self.half).map_err(io::Error::other)? {
                for message in messages {
                    let message = message.map_err(io::Error::other)?;
                    if message.request == 0 {
                        continue; // the welcome
                    }
                    seen.note(&Reply::read(&message).map_err(io::Error::other)?.outcome);
                    self.answered += 1;
                }
                self.half.drain(..length);
            }
        }
        Ok(())
    }
}
