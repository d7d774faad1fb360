//! HTTP/2 by hand, so that a client can do what no library does: stop in the middle, request much, read nothing.
//!
//! It writes only what servers must understand, and parses answers no further than the heads of frames.
//! Knows nothing of: floods, tests.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// The largest window. [RFC 9113 §6.9.1]
pub const WINDOW_MAX: u32 = (1 << 31) - 1;
/// A connection's first window, whatever the settings are.
const WINDOW_FIRST: u32 = 65_535;
/// The largest frame that every server accepts.
const FRAME_BYTES_MAX: usize = 16 << 10;
/// A server that reads nothing for so long has stopped.
const STALL_MAX: Duration = Duration::from_secs(30);

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
    let mut bytes = vec![len[1], len[2], len[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Preface and SETTINGS of a client whose streams and connection have a receive window of `window` bytes.
pub fn hello(window: u32) -> Vec<u8> {
    let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    settings.extend(window.to_be_bytes());
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &settings), &frame(SETTINGS, ACK, 0, &[])].concat();
    if WINDOW_FIRST < window {
        bytes.extend(frame(WINDOW_UPDATE, 0, 0, &(window - WINDOW_FIRST).to_be_bytes()));
    }
    bytes
}

/// The head of a gRPC call; its body follows. [RFC 7541: static names, literal values]
pub fn head(stream: u32, path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).expect("a short path")];
    block.extend(path.as_bytes());
    for (name, value) in [(&[0x01][..], "flood"), (&[0x0f, 0x10][..], "application/grpc")] {
        block.extend(name);
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// A part of a body.
pub fn data(stream: u32, bytes: &[u8], ends: bool) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut pieces = bytes.chunks(FRAME_BYTES_MAX).peekable();
    if pieces.peek().is_none() {
        return frame(DATA, u8::from(ends), stream, &[]);
    }
    while let Some(piece) = pieces.next() {
        let flags = if ends && pieces.peek().is_none() { END_STREAM } else { 0 };
        frames.extend(frame(DATA, flags, stream, piece));
    }
    frames
}

/// A gRPC message with its prefix.
pub fn message(message: &impl prost::Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let mut framed = vec![0];
    framed.extend(u32::try_from(bytes.len()).expect("a short message").to_be_bytes());
    framed.extend(bytes);
    framed
}

/// A whole unary call.
pub fn call(stream: u32, path: &str, request: &impl prost::Message) -> Vec<u8> {
    [head(stream, path), data(stream, &message(request), true)].concat()
}

/// A ping.
pub fn ping() -> Vec<u8> {
    frame(PING, 0, 0, &[0; 8])
}

/// A connection that has sent half of the preface.
pub(crate) fn half_preface(address: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&PREFACE[..PREFACE.len() / 2])?;
    Ok(stream)
}

/// A connection that has sent preface and SETTINGS.
pub fn connect(address: &str, window: u32) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(STALL_MAX))?;
    stream.write_all(&hello(window))?;
    Ok(stream)
}

/// A client that sends as much as the server's windows allow, and never more.
pub struct Sender {
    socket: TcpStream,
    /// Bytes of an incomplete frame.
    half: Vec<u8>,
    /// Send windows: of the connection, of a stream at its beginning, and the credit that each stream has got since.
    room: i64,
    first: i64,
    streams: BTreeMap<u32, i64>,
}

impl Sender {
    /// Connects and sends preface and SETTINGS; the client's own windows have `window` bytes.
    pub fn connect(address: &str, window: u32) -> io::Result<Sender> {
        let socket = connect(address, window)?;
        socket.set_nonblocking(true)?;
        let room = i64::from(WINDOW_FIRST);
        Ok(Sender { socket, half: Vec::new(), room, first: room, streams: BTreeMap::new() })
    }

    /// Sends these bytes without regard to windows, however long it takes.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let end = Instant::now() + STALL_MAX;
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends as much of a part of a body as the windows allow now; returns how many bytes.
    pub(crate) fn send_some(&mut self, stream: u32, bytes: &[u8]) -> io::Result<usize> {
        self.listen()?;
        let own = self.streams.entry(stream).or_default();
        let room = self.room.min(self.first + *own).max(0) as usize;
        let count = room.min(bytes.len()).min(FRAME_BYTES_MAX);
        if 0 < count {
            self.room -= count as i64;
            *own -= count as i64;
            self.send(&data(stream, &bytes[..count], false))?;
        }
        Ok(count)
    }

    /// Reads the server's window updates; fails once the server has closed the connection.
    pub fn listen(&mut self) -> io::Result<()> {
        let mut scrap = [0; 16 << 10];
        loop {
            match self.socket.read(&mut scrap) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.half.extend_from_slice(&scrap[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let number = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        while 9 <= self.half.len() {
            let len = number(&[0, self.half[0], self.half[1], self.half[2]]) as usize;
            if self.half.len() < 9 + len {
                break;
            }
            let (kind, flags, stream) = (self.half[3], self.half[4], number(&self.half[5..9]));
            let payload = &self.half[9..9 + len];
            match kind {
                WINDOW_UPDATE if stream == 0 => self.room += i64::from(number(payload)),
                WINDOW_UPDATE => {
                    *self.streams.entry(stream).or_default() += i64::from(number(payload));
                }
                SETTINGS if flags & ACK == 0 => {
                    for setting in payload.chunks_exact(6) {
                        if setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                            self.first = i64::from(number(&setting[2..]));
                        }
                    }
                }
                _ => {}
            }
            self.half.drain(..9 + len);
        }
        Ok(())
    }
}

/// Opens connections in all places where there is none or a closed one, until `stopped` returns true; returns how many
/// were opened.
pub(crate) fn refill(
    places: &mut [Option<TcpStream>],
    stopped: impl Fn() -> bool,
    open: impl Fn(usize) -> io::Result<TcpStream>,
) -> u64 {
    let mut opened = 0;
    for (number, place) in places.iter_mut().enumerate() {
        if place.as_mut().is_some_and(drain) || stopped() {
            continue;
        }
        *place = open(number).ok();
        opened += u64::from(place.is_some());
    }
    opened
}

/// Discards all received bytes; returns whether the connection is still open.
pub fn drain(stream: &mut TcpStream) -> bool {
    let mut scrap = [0; 16 << 10];
    if stream.set_nonblocking(true).is_err() {
        return false;
    }
    let stands = loop {
        match stream.read(&mut scrap) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == io::ErrorKind::WouldBlock,
        }
    };
    stands && stream.set_nonblocking(false).is_ok()
}
