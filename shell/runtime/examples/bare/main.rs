//! A log on three machines and nothing else: what the bytes, sockets and syncs of puts alone take, for `cargo xtask bench rivals`.
//!
//! ```text
//!   load ──request──▶ lead ──append──▶ follow, follow      each writes and syncs its log, the leader beside its followers
//!        ◀──answer───      ◀──ack─────                     an answer as soon as two of three have synced
//! ```
//! `bare follow FOLDER APPEND KEPT` and `bare lead FOLDER REQUEST APPEND ANSWER KEPT FOLLOWER FOLLOWER` print the address at which they
//! listen; `bare load LEADER REQUEST ANSWER CONNS UNDER_WAY TOTAL` prints a line of JSON. `bare serve FOLDER APPEND KEPT FOLLOWER
//! FOLLOWER` leads for puts of etcd's API. `bare read FOLDER MEMORY` reads its large files, past the page cache, and writes to so much new
//! memory; it prints the bytes of the files. A member that starts there has to read as much, and needs as much memory. Sizes are bytes
//! of one operation; KEPT is what stays of it in memory, as in a store with a history. Each process has one thread (two that read); it
//! takes in all that has come, and goes on with that as one batch. No byte has a meaning: nothing is decoded, checked, looked up, elected
//! or repeated.
//! Knows nothing of: Kattu.

mod grpc;

use grpc::Calls;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const PAGE: usize = 4096;
/// Bytes of a log, written over again and again.
const LOG_BYTES: usize = 64 << 20;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of an acknowledgement; the first eight say how many operations are on the disk.
const ACK_BYTES: usize = 93;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

const USAGE: &str = "usage: bare follow FOLDER APPEND KEPT | bare lead FOLDER REQUEST APPEND ANSWER KEPT FOLLOWER FOLLOWER | \
                     bare serve FOLDER APPEND KEPT FOLLOWER FOLLOWER | bare load LEADER REQUEST ANSWER CONNS UNDER_WAY TOTAL | \
                     bare read FOLDER MEMORY";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |word: &str| word.parse::<usize>().ok().filter(|&number| number != 0);
    let numbers = |words: &[&str]| words.iter().map(|word| number(word)).collect::<Option<Vec<_>>>();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["follow", folder, append, kept] => {
            numbers(&[append, kept]).map(|sizes| follow(Path::new(folder), sizes[0], sizes[1]))
        }
        ["lead", folder, request, append, answer, kept, one, other] => {
            numbers(&[request, append, answer, kept]).map(|sizes| {
                let face = Face::Sized { request: sizes[0], answer: sizes[2] };
                lead(Path::new(folder), face, sizes[1], sizes[3], [one, other])
            })
        }
        ["serve", folder, append, kept, one, other] => numbers(&[append, kept])
            .map(|sizes| lead(Path::new(folder), Face::Grpc, sizes[0], sizes[1], [one, other])),
        ["read", folder, memory] => number(memory).map(|memory| read(Path::new(folder), memory)),
        ["load", leader, rest @ ..] if rest.len() == 5 => numbers(rest).map(|all| load(leader, &all)),
        _ => None,
    };
    match done {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("bare: {error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// A file that is allocated and written over, past the page cache.
struct Log {
    file: File,
    buffer: Vec<u8>,
    /// Where in the buffer whole pages begin.
    aligned: usize,
    at: usize,
}

impl Log {
    fn create(folder: &Path) -> Result<Log> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("log");
        let zeros = vec![0; WRITE_BYTES];
        let file = File::create(&path)?;
        (0..LOG_BYTES / WRITE_BYTES).try_for_each(|_| (&file).write_all(&zeros))?;
        file.sync_all()?;
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(direct).open(&path)?;
        let buffer = vec![7; WRITE_BYTES + PAGE];
        let aligned = buffer.as_ptr().align_offset(PAGE);
        Ok(Log { file, buffer, aligned, at: 0 })
    }

    /// Writes so many bytes, in whole pages, and syncs them.
    fn append(&mut self, bytes: usize) -> Result<()> {
        let mut left = bytes.next_multiple_of(PAGE);
        while 0 < left {
            let now = left.min(WRITE_BYTES);
            if LOG_BYTES < self.at + now {
                self.at = 0;
            }
            self.file.write_all_at(&self.buffer[self.aligned..self.aligned + now], self.at as u64)?;
            (self.at, left) = (self.at + now, left - now);
        }
        self.file.sync_data()
    }
}

/// What stays in memory of all operations.
#[derive(Default)]
struct Kept {
    blocks: Vec<Vec<u8>>,
}

impl Kept {
    fn add(&mut self, bytes: usize) {
        let mut left = bytes;
        while 0 < left {
            match self.blocks.last_mut() {
                Some(block) if block.len() < block.capacity() => {
                    let now = left.min(block.capacity() - block.len());
                    block.resize(block.len() + now, 7);
                    left -= now;
                }
                _ => self.blocks.push(Vec::with_capacity(WRITE_BYTES)),
            }
        }
    }
}

/// Two threads read the large files of a folder, each its share, and write to new memory, each a half.
fn read(folder: &Path, memory: usize) -> Result<()> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        let bytes = path.metadata()?.len();
        if WRITE_BYTES as u64 <= bytes {
            files.push((bytes, path));
        }
    }
    files.sort();
    // The largest one for one thread, the others for the other: a snapshot, a log.
    let largest = files.pop();
    let shares = [largest.into_iter().collect(), files];
    let read = move |share: Vec<(u64, PathBuf)>| {
        let mut kept = Kept::default();
        let mut all = 0;
        let mut buffer = vec![0; WRITE_BYTES + PAGE];
        let aligned = buffer.as_ptr().align_offset(PAGE);
        for (bytes, path) in share {
            let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
            let file = OpenOptions::new().read(true).custom_flags(direct).open(path)?;
            let mut at = 0;
            while at < bytes {
                at += file.read_at(&mut buffer[aligned..aligned + WRITE_BYTES], at)?.max(1) as u64;
            }
            all += bytes;
        }
        kept.add(memory / 2);
        std::hint::black_box(&kept.blocks);
        Result::Ok(all)
    };
    let mut all = 0;
    for reader in shares.map(|share| std::thread::spawn(move || read(share))) {
        all += reader.join().map_err(|_| Error::other("a thread panicked"))??;
    }
    println!("{all}");
    Ok(())
}

/// What comes by a connection: messages of one size.
struct Incoming {
    stream: TcpStream,
    size: usize,
    /// Bytes of the next message that are here.
    part: usize,
}

impl Incoming {
    fn new(stream: TcpStream, size: usize) -> Result<Incoming> {
        stream.set_nodelay(true)?;
        Ok(Incoming { stream, size, part: 0 })
    }

    /// Reads what is there; how many messages are complete with it. The last of them ends in the buffer's returned place.
    fn take(&mut self, buffer: &mut [u8]) -> Result<(usize, usize)> {
        let came = self.stream.read(buffer)?;
        if came == 0 {
            return Err(Error::from(ErrorKind::UnexpectedEof));
        }
        let all = self.part + came;
        self.part = all % self.size;
        Ok((all / self.size, came - self.part.min(came)))
    }
}

/// Ends when the leader does.
fn follow(folder: &Path, append: usize, kept: usize) -> Result<()> {
    let (mut log, mut memory) = (Log::create(folder)?, Kept::default());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let mut leader = Incoming::new(listener.accept()?.0, append)?;
    let (mut buffer, mut ack, mut done) = (vec![0; READ_BYTES], [0; ACK_BYTES], 0u64);
    loop {
        let (count, _) = leader.take(&mut buffer)?;
        if 0 < count {
            log.append(count * append)?;
            memory.add(count * kept);
            done += count as u64;
            ack[..8].copy_from_slice(&done.to_le_bytes());
            leader.stream.write_all(&ack)?;
        }
    }
}

/// How clients speak.
#[derive(Clone, Copy)]
enum Face {
    /// In messages of so many bytes.
    Sized { request: usize, answer: usize },
    /// In calls of etcd's API.
    Grpc,
}

/// A connection of a client.
enum Client {
    Sized(Incoming, usize),
    Grpc(Calls),
}

impl Client {
    fn new(stream: TcpStream, face: Face) -> Result<Client> {
        match face {
            Face::Sized { request, answer } => Ok(Client::Sized(Incoming::new(stream, request)?, answer)),
            Face::Grpc => Ok(Client::Grpc(Calls::new(stream)?)),
        }
    }

    fn stream(&self) -> &TcpStream {
        match self {
            Client::Sized(client, _) => &client.stream,
            Client::Grpc(client) => &client.stream,
        }
    }

    fn take(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Client::Sized(client, _) => client.take(buffer).map(|(count, _)| count),
            Client::Grpc(client) => client.take(buffer),
        }
    }

    fn answer(&mut self, count: usize, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Client::Sized(client, answer) => {
                let bytes = count * *answer;
                out.resize(out.len().max(bytes), 7);
                client.stream.write_all(&out[..bytes])
            }
            Client::Grpc(client) => client.answer(count),
        }
    }
}

/// Ends when a follower does, or when it is ended.
fn lead(folder: &Path, face: Face, append: usize, kept: usize, followers: [&str; 2]) -> Result<()> {
    let (mut log, mut memory) = (Log::create(folder)?, Kept::default());
    let connect = |address: &&str| Incoming::new(TcpStream::connect(address)?, ACK_BYTES);
    let mut followers = followers.iter().map(connect).collect::<Result<Vec<_>>>()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let mut clients: Vec<Option<Client>> = Vec::new();
    let (mut synced, mut last) = ([0u64; 3], 0u64);
    let mut acks = [[0u8; ACK_BYTES]; 2];
    // Whose operations wait, how many, and up to which one.
    let mut waiting: VecDeque<(usize, usize, u64)> = VecDeque::new();
    let (mut buffer, mut out) = (vec![0; READ_BYTES], Vec::new());
    loop {
        let living: Vec<usize> = (0..clients.len()).filter(|&at| clients[at].is_some()).collect();
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&listener, PollFlags::IN)];
        fds.extend(followers.iter().map(|follower| PollFd::new(&follower.stream, PollFlags::IN)));
        let of_clients = clients.iter().flatten().map(|client| PollFd::new(client.stream(), PollFlags::IN));
        fds.extend(of_clients);
        poll(&mut fds, None)?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            clients.push(Some(Client::new(listener.accept()?.0, face)?));
        }
        for (number, follower) in followers.iter_mut().enumerate().filter(|(number, _)| ready[1 + number]) {
            // An acknowledgement may come in parts: its first bytes are kept.
            let before = follower.part;
            let (count, end) = follower.take(&mut buffer)?;
            let ack = &mut acks[number];
            if 0 < count {
                let newest = match end.checked_sub(ACK_BYTES) {
                    Some(start) => &buffer[start..start + 8],
                    None if 8 <= before => &ack[..8],
                    None => return Err(Error::other("an acknowledgement in small parts")),
                };
                synced[1 + number] = u64::from_le_bytes(newest.try_into().map_err(Error::other)?);
            }
            let start = if 0 < count { 0 } else { before };
            let came = follower.part - start;
            ack[start..follower.part].copy_from_slice(&buffer[end..end + came]);
        }
        let before = last;
        for (&at, _) in living.iter().zip(&ready[3..]).filter(|(_, ready)| **ready) {
            match clients[at].as_mut().map(|client| client.take(&mut buffer)) {
                Some(Ok(count)) => {
                    last += count as u64;
                    waiting.push_back((at, count, last));
                }
                _ => clients[at] = None, // it has what it wanted
            }
        }
        if before < last {
            let bytes = (last - before) as usize * append;
            out.resize(out.len().max(bytes), 7);
            followers.iter_mut().try_for_each(|follower| follower.stream.write_all(&out[..bytes]))?;
            log.append(bytes)?;
            memory.add((last - before) as usize * kept);
            synced[0] = last;
        }
        let mut sorted = synced;
        sorted.sort_unstable();
        let mut answers = vec![0; clients.len()];
        while let Some((at, count, _)) = waiting.pop_front_if(|(_, _, end)| *end <= sorted[1]) {
            answers[at] += count;
        }
        for (at, count) in answers.into_iter().enumerate().filter(|(_, count)| *count != 0) {
            if let Some(client) = &mut clients[at] {
                client.answer(count, &mut out)?;
            }
        }
    }
}

fn load(leader: &str, words: &[usize]) -> Result<()> {
    let &[request, answer, conns, under_way, total] = words else { return Err(Error::other(USAGE)) };
    let connect = |_| Incoming::new(TcpStream::connect(leader)?, answer);
    let mut streams = (0..conns).map(connect).collect::<Result<Vec<_>>>()?;
    let (mut sent, mut took) = (0, Vec::with_capacity(total));
    let mut began: Vec<VecDeque<Instant>> = vec![VecDeque::new(); conns];
    let (mut buffer, out) = (vec![0; READ_BYTES], vec![7; under_way * request]);
    let start = Instant::now();
    let mut send = |stream: &mut Incoming, began: &mut VecDeque<Instant>, count: usize| {
        let count = count.min(total - sent);
        sent += count;
        began.extend(std::iter::repeat_n(Instant::now(), count));
        stream.stream.write_all(&out[..count * request])
    };
    for (stream, began) in streams.iter_mut().zip(&mut began) {
        send(stream, began, under_way)?;
    }
    while took.len() < total {
        let of_stream = |stream| PollFd::from_borrowed_fd(stream, PollFlags::IN);
        let ready: Vec<bool> = {
            use std::os::fd::AsFd;
            let mut fds: Vec<PollFd<'_>> =
                streams.iter().map(|stream| of_stream(stream.stream.as_fd())).collect();
            poll(&mut fds, None)?;
            fds.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        for at in (0..conns).filter(|&at| ready[at]) {
            let (count, _) = streams[at].take(&mut buffer)?;
            let now = Instant::now();
            took.extend(began[at].drain(..count).map(|began| (now - began).as_micros() as u64));
            send(&mut streams[at], &mut began[at], count)?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    took.sort_unstable();
    let part = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let (p50, p99, p999) = (part(0.5), part(0.99), part(0.999));
    println!(
        r#"{{"ops_per_s":{},"p50_us":{p50},"p99_us":{p99},"p999_us":{p999},"errors":0}}"#,
        total as f64 / seconds
    );
    Ok(())
}
