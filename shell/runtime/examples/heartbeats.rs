//! Heartbeats and nothing else: what they alone cost a machine, for `cargo xtask bench rivals --only idle`.
//!
//! `heartbeats follow` prints the address at which it listens, takes one connection, and answers each heartbeat.
//! `heartbeats lead ADDRESS ADDRESS` sends both a heartbeat every 300 ms, as a leader at rest does, and reads their answers. Messages have the size of
//! an idle member's. Each process has one thread, which blocks in the kernel and does nothing else.
//! Knows nothing of: Kattu.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(300);

/// Bytes of an idle leader's append, and of its answer, each in a frame.
const APPEND: [u8; 97] = [0; 97];
const REPLY: [u8; 101] = [0; 101];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["follow"] => follow(),
        ["lead", one, other] => lead(one, other),
        _ => {
            eprintln!("usage: heartbeats follow | heartbeats lead ADDRESS ADDRESS");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heartbeats: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Ends when the leader does.
fn follow() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut append = APPEND;
    loop {
        stream.read_exact(&mut append)?;
        stream.write_all(&REPLY)?;
    }
}

fn lead(one: &str, other: &str) -> std::io::Result<()> {
    let mut streams = [TcpStream::connect(one)?, TcpStream::connect(other)?];
    for stream in &streams {
        stream.set_nodelay(true)?;
    }
    let mut reply = REPLY;
    loop {
        for stream in &mut streams {
            stream.write_all(&APPEND)?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut reply)?;
        }
        std::thread::sleep(EVERY);
    }
}
