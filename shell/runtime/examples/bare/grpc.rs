//! Calls of etcd's API, as bytes: where a put ends, and one answer for all.
//!
//! HTTP/2 as a client of gRPC speaks it that has more room than it needs: frames are counted by their heads, headers are not read, and
//! each call whose last frame has come is a put. Everything else that gRPC or etcd asks for is missing.
//! Knows nothing of: logs, followers.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// Bytes that a client may send on a stream, and on the connection beyond what it was told.
const WINDOW: u32 = 1 << 24;

/// One connection.
pub struct Calls {
    pub stream: TcpStream,
    /// What has come of the next frame.
    partial: Vec<u8>,
    /// Calls without an answer, in their order.
    waiting: VecDeque<u32>,
    has_preface: bool,
    /// Bytes of bodies since the connection's window was last opened.
    used: u32,
    /// Whole answers of one call, except for its number.
    answer: Vec<u8>,
}

impl Calls {
    pub fn new(stream: TcpStream) -> Result<Calls> {
        stream.set_nodelay(true)?;
        let mut first = head(6, SETTINGS, 0, 0).to_vec();
        first.extend([0, 4]); // the window of a new stream
        first.extend(WINDOW.to_be_bytes());
        first.extend(head(4, WINDOW_UPDATE, 0, 0));
        first.extend(WINDOW.to_be_bytes());
        (&stream).write_all(&first)?;
        let (partial, waiting) = (Vec::new(), VecDeque::new());
        Ok(Calls { stream, partial, waiting, has_preface: false, used: 0, answer: answer() })
    }

    /// Reads what is there; how many puts are complete with it.
    pub fn take(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let came = self.stream.read(buffer)?;
        if came == 0 {
            return Err(Error::from(ErrorKind::UnexpectedEof));
        }
        self.partial.extend_from_slice(&buffer[..came]);
        let (mut at, mut count, mut back) = (0, 0, Vec::new());
        if !self.has_preface && PREFACE_BYTES <= self.partial.len() {
            (at, self.has_preface) = (PREFACE_BYTES, true);
        }
        while let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) = self.partial.get(at..at + HEAD_BYTES)
            && self.has_preface
        {
            let len = u32::from_be_bytes([0, a, b, c]);
            let Some(payload) = self.partial.get(at + HEAD_BYTES..at + HEAD_BYTES + len as usize) else {
                break;
            };
            match kind {
                DATA => {
                    self.used += len;
                    if flags & END_STREAM != 0 {
                        self.waiting.push_back(u32::from_be_bytes([s0, s1, s2, s3]));
                        count += 1;
                    }
                }
                SETTINGS if flags & ACK == 0 => back.extend(head(0, SETTINGS, ACK, 0)),
                PING if flags & ACK == 0 => {
                    back.extend(head(len, PING, ACK, 0));
                    back.extend(payload);
                }
                _ => {}
            }
            at += HEAD_BYTES + len as usize;
        }
        self.partial.drain(..at);
        if WINDOW / 2 < self.used {
            back.extend(head(4, WINDOW_UPDATE, 0, 0));
            back.extend(std::mem::take(&mut self.used).to_be_bytes());
        }
        if !back.is_empty() {
            self.stream.write_all(&back)?;
        }
        Ok(count)
    }

    /// Answers so many of the calls that wait, the oldest first.
    pub fn answer(&mut self, count: usize) -> Result<()> {
        let mut out = Vec::with_capacity(count * self.answer.len());
        for call in self.waiting.drain(..count) {
            let start = out.len();
            out.extend_from_slice(&self.answer);
            let mut at = start;
            while at < out.len() {
                let len = u32::from_be_bytes([0, out[at], out[at + 1], out[at + 2]]) as usize;
                out[at + 5..at + HEAD_BYTES].copy_from_slice(&call.to_be_bytes());
                at += HEAD_BYTES + len;
            }
        }
        self.stream.write_all(&out)
    }
}

fn head(len: u32, kind: u8, flags: u8, stream: u32) -> [u8; HEAD_BYTES] {
    let ([_, a, b, c], [s0, s1, s2, s3]) = (len.to_be_bytes(), stream.to_be_bytes());
    [a, b, c, kind, flags, s0, s1, s2, s3]
}

/// Headers, a `PutResponse` with the header that etcd's have, trailers; of stream 0.
fn answer() -> Vec<u8> {
    let mut headers = vec![0x88]; // :status 200
    field(&mut headers, "content-type", "application/grpc");
    // cluster_id and member_id as ten bytes each, revision, raft_term
    let mut message = vec![0x0a, 27, 0x08];
    message.extend([0xff; 9]);
    message.extend([0x01, 0x10]);
    message.extend([0xff; 9]);
    message.extend([0x01, 0x18, 0x80, 0x01, 0x20, 0x02]);
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    let mut trailers = Vec::new();
    field(&mut trailers, "grpc-status", "0");
    let frames =
        [(HEADERS, END_HEADERS, headers), (DATA, 0, body), (HEADERS, END_HEADERS | END_STREAM, trailers)];
    frames
        .into_iter()
        .flat_map(|(kind, flags, bytes)| [head(bytes.len() as u32, kind, flags, 0).to_vec(), bytes].concat())
        .collect()
}

/// A header field without indexing.
fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(0);
    for text in [name, value] {
        out.push(text.len() as u8);
        out.extend(text.bytes());
    }
}
