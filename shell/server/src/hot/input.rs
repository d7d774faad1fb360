//! Input of a connection: whole hot calls for the owner, everything else for the library.
//!
//! In:    the client's bytes behind its preface, however they are cut.
//! Out:   begun hot calls; bytes for the library; resets and windows of hot calls; a reason to end the connection.
//! Rules: 1. A hot call begins when its whole request has come: one head, and one frame of data with one message, which
//!           ends the stream. If anything else comes for its stream, or nothing more is there, the call is a cold one.
//!        2. The library sees streams in ascending order. So before a cold call all incomplete ones are cold, too.
//!        3. A stream above the library's highest is hot; others are hot while they are under way. Late frames for hot
//!           streams are dropped; those for others are the library's affair, as are all errors that it can find itself.
//!        4. All heads are decoded here, and the library gets them without a table.
//! Knows nothing of: sockets, the meaning of messages.

use crate::budget::{Account, CALL_BYTES, Hold};
use crate::encode::PREFIX_LEN;
use crate::frames::{ACK, CONTINUATION, DATA, END_HEADERS, HEAD_BYTES, HEADERS, PING, SETTINGS};
use crate::hot::cold::Cold;
use crate::hot::heads::{Head, Heads};
use crate::hot::hpack::Broken;
use crate::hot::stream::Streams;
use crate::hot::table::Table;
use crate::hot::windows::Windows;
use crate::rpc::Rpc;
use bytes::Bytes;
use h2::Reason;
use std::collections::VecDeque;
use std::rc::Rc;

pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const END_STREAM: u8 = 1;
const PADDED: u8 = 8;
const HAS_PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;
/// Most bytes of input that wait for the library, but for one read and the fields of one head.
pub(crate) const COLD_MAX: usize = 16 << 10;
/// Most heads whose messages have not come.
const WAITING_MAX: usize = 128;
/// Largest frame without a setting that says otherwise. [RFC 9113 §4.2]
pub(crate) const FRAME_BYTES_MAX: usize = 16 << 10;
/// Frames behind the first of a head; the library has the same limit.
const CONTINUATIONS_MAX: usize = 5;
const HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A hot call with its whole request.
#[derive(Debug)]
pub struct Call {
    pub stream: u32,
    pub rpc: Rpc,
    pub message: Bytes,
    pub hold: Hold,
}

/// A head whose message has not come.
#[derive(Debug)]
struct Waiting {
    stream: u32,
    rpc: Rpc,
    head: Head,
}

/// A head of which more frames are to come.
#[derive(Debug)]
struct Open {
    stream: u32,
    flags: u8,
    priority: Option<[u8; PRIORITY_BYTES]>,
    block: Vec<u8>,
    frames: usize,
}

/// The input of one connection.
#[derive(Debug)]
pub struct Input {
    account: Rc<Account>,
    heads: Heads,
    /// An incomplete frame.
    partial: Vec<u8>,
    /// Bytes to come of a frame of the library's.
    passing: usize,
    /// Incomplete calls are cold once the frame has passed.
    is_settling: bool,
    /// The last bytes were not read to their end, because so much waits for the library.
    is_stopped: bool,
    /// Windows have changed since streams were last told.
    is_wider: bool,
    are_all_wider: bool,
    open: Option<Open>,
    waiting: VecDeque<Waiting>,
    /// Bytes for the library.
    pub cold: Cold,
    /// The library's highest stream, and the highest of all.
    cold_max: u32,
    highest: u32,
    /// The highest hot one that has begun.
    pub begun_max: u32,
    pub streams: Streams,
    pub windows: Windows,
    pub table: Table,
    /// Calls that have begun since they were last taken.
    pub begun: Vec<Call>,
    /// Streams that may begin beside those that are open.
    pub room: usize,
    /// Streams that were refused since they were last taken.
    pub refused: Vec<(u32, Reason)>,
    /// Bytes of hot requests that the client may send again.
    pub owed: usize,
    /// No call is hot any more.
    pub is_off: bool,
    /// Everything is the library's from here on.
    is_raw: bool,
    /// Why the connection ends.
    pub fault: Option<Reason>,
}

impl Input {
    /// Of a client whose preface has come.
    pub fn new(account: &Rc<Account>, is_off: bool) -> Input {
        Input {
            account: Rc::clone(account),
            heads: Heads::new(),
            partial: Vec::new(),
            passing: 0,
            is_settling: false,
            is_stopped: false,
            is_wider: false,
            are_all_wider: false,
            open: None,
            waiting: VecDeque::new(),
            cold: Cold::default(),
            cold_max: 0,
            highest: 0,
            begun_max: 0,
            streams: Streams::default(),
            windows: Windows::new(),
            table: Table::new(),
            begun: Vec::new(),
            room: 0,
            refused: Vec::new(),
            owed: 0,
            is_off,
            is_raw: false,
            fault: None,
        }
    }

    /// Takes the next bytes. If it is stopped then, the rest of them is taken with the next ones, or with none.
    pub fn take(&mut self, bytes: &[u8]) {
        self.is_stopped = false;
        self.read(bytes);
        if std::mem::take(&mut self.are_all_wider) {
            self.streams.all_gain();
            self.is_wider = false;
        }
        if std::mem::take(&mut self.is_wider) {
            self.streams.wake_all();
        }
        self.lend();
    }

    /// Whether bytes are left because so much waits for the library.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Whether part of a frame, of a head or of a call waits for its rest.
    #[cfg(any(test, fuzzing))]
    pub fn is_incomplete(&self) -> bool {
        !self.partial.is_empty() || self.open.is_some() || !self.waiting.is_empty()
    }

    fn read(&mut self, bytes: &[u8]) {
        if self.partial.is_empty() {
            let rest = self.frames(bytes);
            self.partial.extend_from_slice(rest);
            return;
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let rest = self.frames(&all).len();
        all.drain(..all.len() - rest);
        all.shrink_to(FRAME_BYTES_MAX);
        self.partial = if all.is_empty() { Vec::new() } else { all };
    }

    /// Nothing more is there: incomplete calls are cold, as soon as no frame of the library's is incomplete.
    pub fn settle(&mut self) {
        self.is_settling = !self.waiting.is_empty() && !self.is_stopped;
        if self.is_settling && self.passing == 0 && !self.is_raw {
            self.take(&[]);
        }
    }

    /// Whole frames, and beginnings of those that are passed on; returns what is left.
    fn frames<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while self.fault.is_none() {
            if 0 < self.passing || self.is_raw {
                let len = if self.is_raw { bytes.len() } else { self.passing.min(bytes.len()) };
                self.cold.end().extend_from_slice(&bytes[..len]);
                self.passing = self.passing.saturating_sub(len);
                bytes = &bytes[len..];
            }
            if self.passing == 0 && !self.is_raw && std::mem::take(&mut self.is_settling) {
                self.settle_to(u32::MAX);
            }
            if COLD_MAX <= self.cold.len() {
                self.is_stopped = true;
                return bytes;
            }
            let Some((head, behind)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return bytes };
            let [high, middle, low, kind, flags, stream @ ..] = *head;
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
            if FRAME_BYTES_MAX < len {
                self.is_raw = true; // an error, which the library reports
                continue;
            }
            let is_ours = match kind {
                _ if self.open.is_some() => true,
                HEADERS | SETTINGS | WINDOW_UPDATE | RST_STREAM | PUSH_PROMISE | PING => true,
                DATA | PRIORITY => self.is_waiting(stream) || self.is_hot(stream),
                _ => false,
            };
            if !is_ours {
                self.cold.end().extend_from_slice(head);
                self.passing = len;
                bytes = behind;
                continue;
            }
            let Some((payload, behind)) = behind.split_at_checked(len) else { return bytes };
            let frame = &bytes[..HEAD_BYTES + len];
            bytes = behind;
            match kind {
                CONTINUATION => self.head_goes_on(stream, flags, payload),
                _ if self.open.is_some() => self.fault = Some(Reason::PROTOCOL_ERROR),
                PUSH_PROMISE => self.fault = Some(Reason::PROTOCOL_ERROR), // a client cannot [RFC 9113 §8.4]
                HEADERS => self.head(stream, flags, payload),
                SETTINGS => self.settings(flags, payload, frame),
                DATA if self.is_waiting(stream) => self.data(stream, flags, payload, frame),
                DATA => self.owed += len,
                _ if self.is_waiting(stream) => {
                    self.settle_to(stream);
                    self.cold.end().extend_from_slice(frame);
                }
                WINDOW_UPDATE if stream == 0 || self.is_hot(stream) => self.window(stream, payload, frame),
                RST_STREAM if self.is_hot(stream) && len == 4 => self.streams.reset(stream),
                RST_STREAM if self.is_hot(stream) => self.fault = Some(Reason::FRAME_SIZE_ERROR),
                PRIORITY => {}
                PING => {
                    // The answer to the only ping of this side, in front of its last words: those name no stream that
                    // comes from here on.
                    self.is_off |= flags & ACK != 0;
                    self.cold.end().extend_from_slice(frame);
                }
                _ => self.cold.end().extend_from_slice(frame),
            }
        }
        &[]
    }

    fn is_waiting(&self, stream: u32) -> bool {
        self.waiting.iter().any(|waiting| waiting.stream == stream)
    }

    /// Rule 3; streams whose messages have not come are neither.
    fn is_hot(&self, stream: u32) -> bool {
        (self.cold_max < stream && stream <= self.highest && stream % 2 == 1) || self.streams.has(stream)
    }

    fn head(&mut self, stream: u32, flags: u8, payload: &[u8]) {
        let Some((priority, block)) = unpacked(flags, payload) else {
            self.fault = Some(Reason::PROTOCOL_ERROR);
            return;
        };
        if flags & END_HEADERS != 0 {
            return self.whole_head(stream, flags, priority, block);
        }
        self.open = Some(Open { stream, flags, priority, block: block.to_vec(), frames: 0 });
    }

    fn head_goes_on(&mut self, stream: u32, flags: u8, payload: &[u8]) {
        let Some(mut open) = self.open.take() else { return };
        open.frames += 1;
        if open.stream != stream {
            self.fault = Some(Reason::PROTOCOL_ERROR);
        } else if CONTINUATIONS_MAX < open.frames {
            self.fault = Some(Reason::ENHANCE_YOUR_CALM);
        } else {
            open.block.extend_from_slice(payload);
            if flags & END_HEADERS == 0 {
                self.open = Some(open);
            } else {
                self.whole_head(stream, open.flags, open.priority, &open.block);
            }
        }
    }

    fn whole_head(&mut self, stream: u32, flags: u8, priority: Option<[u8; PRIORITY_BYTES]>, block: &[u8]) {
        let head = match self.heads.read(block) {
            Ok(head) => head,
            Err(why) => {
                self.fault = Some(match why {
                    Broken::Malformed => Reason::COMPRESSION_ERROR,
                    Broken::TooLong => Reason::ENHANCE_YOUR_CALM,
                });
                return;
            }
        };
        let is_new = self.highest < stream && stream % 2 == 1;
        let has_room = self.streams.len() + self.waiting.len() < self.room;
        let is_plain = flags & END_STREAM == 0 && priority.is_none();
        match head.rpc {
            Some(rpc)
                if is_new && is_plain && has_room && !self.is_off && self.waiting.len() < WAITING_MAX =>
            {
                self.highest = stream;
                self.waiting.push_back(Waiting { stream, rpc, head });
            }
            _ if is_new => {
                self.settle_to(stream);
                self.highest = stream;
                if !has_room && !self.streams.is_empty() {
                    self.refused.push((stream, Reason::REFUSED_STREAM));
                } else {
                    self.cold_max = stream;
                    self.pass_head(stream, flags, priority, &head.plain);
                }
            }
            _ if self.is_waiting(stream) => {
                self.settle_to(stream);
                self.pass_head(stream, flags, priority, &head.plain);
            }
            // The end of a request that was refused, or an error that does no harm.
            _ if self.is_hot(stream) => {}
            _ => self.pass_head(stream, flags, priority, &head.plain),
        }
    }

    /// Rule 2: incomplete calls up to this stream are cold.
    fn settle_to(&mut self, stream: u32) {
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.stream <= stream) {
            self.cold_max = waiting.stream;
            self.pass_head(waiting.stream, END_HEADERS, None, &waiting.head.plain);
        }
    }

    fn pass_head(&mut self, stream: u32, flags: u8, priority: Option<[u8; PRIORITY_BYTES]>, plain: &[u8]) {
        let priority = priority.as_ref().map_or(&[][..], |bytes| bytes);
        let (first, mut rest) = plain.split_at(plain.len().min(FRAME_BYTES_MAX - priority.len()));
        let flags = flags & (END_STREAM | if priority.is_empty() { 0 } else { HAS_PRIORITY });
        let ends = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
        put_head(first.len() + priority.len(), HEADERS, flags | ends(rest), stream, self.cold.end());
        self.cold.end().extend_from_slice(priority);
        self.cold.end().extend_from_slice(first);
        while !rest.is_empty() {
            let (next, behind) = rest.split_at(rest.len().min(FRAME_BYTES_MAX));
            rest = behind;
            put_head(next.len(), CONTINUATION, ends(rest), stream, self.cold.end());
            self.cold.end().extend_from_slice(next);
        }
    }

    /// Data for a call whose head has come: rule 1.
    fn data(&mut self, stream: u32, flags: u8, payload: &[u8], frame: &[u8]) {
        let is_message = flags == END_STREAM
            && !self.is_off
            && payload.split_first_chunk::<PREFIX_LEN>().is_some_and(|([packed, len @ ..], message)| {
                *packed == 0 && u32::from_be_bytes(*len) as usize == message.len()
            });
        let hold = || {
            let mut hold = Hold::take(&self.account, CALL_BYTES)?;
            hold.resize(payload.len() as u64).then_some(hold)
        };
        match if is_message { hold() } else { None } {
            Some(hold) => {
                let place = self.waiting.iter().position(|waiting| waiting.stream == stream);
                let rpc = place.and_then(|place| self.waiting.remove(place)).expect("it waits").rpc;
                let message = Bytes::copy_from_slice(&payload[PREFIX_LEN..]);
                self.owed += payload.len();
                self.streams.begin(stream);
                self.begun_max = self.begun_max.max(stream);
                self.begun.push(Call { stream, rpc, message, hold });
            }
            None => {
                self.settle_to(stream);
                self.cold.end().extend_from_slice(frame);
            }
        }
    }

    fn settings(&mut self, flags: u8, payload: &[u8], frame: &[u8]) {
        let (entries, rest) = payload.as_chunks::<6>();
        if flags & ACK == 0 && rest.is_empty() {
            self.table.settings_come();
            for [high, low, value @ ..] in entries {
                let value = u32::from_be_bytes(*value);
                match u16::from_be_bytes([*high, *low]) {
                    HEADER_TABLE_SIZE => self.table.is_to_have(value),
                    INITIAL_WINDOW_SIZE => {
                        self.windows.of_stream = i64::from(value);
                        self.are_all_wider = true;
                    }
                    _ => {}
                }
            }
        }
        self.cold.end().extend_from_slice(frame);
    }

    fn window(&mut self, stream: u32, payload: &[u8], frame: &[u8]) {
        let Ok(bytes) = payload.try_into().map(|bytes| u32::from_be_bytes(bytes) & (u32::MAX >> 1)) else {
            return self.cold.end().extend_from_slice(frame); // an error
        };
        let is_valid = match (stream, bytes) {
            (0, 0) => return self.cold.end().extend_from_slice(frame), // another
            (0, _) => self.windows.gain(bytes),
            (_, 0) => {
                self.fault = Some(Reason::PROTOCOL_ERROR);
                return;
            }
            _ => self.streams.gain(stream, bytes, self.windows.of_stream),
        };
        if !is_valid && stream != 0 {
            self.streams.reset(stream);
            self.refused.push((stream, Reason::FLOW_CONTROL_ERROR));
        } else if !is_valid {
            self.fault = Some(Reason::FLOW_CONTROL_ERROR);
        } else if stream == 0 {
            self.is_wider = true;
            self.lend();
        }
    }

    /// Tells the library of a larger window.
    pub fn lend(&mut self) {
        if let Some(more) = self.windows.lend() {
            // Between frames: a frame whose rest is still to come must stay whole.
            if 0 < self.passing || self.is_raw {
                self.windows.unlend(more);
                return;
            }
            put_head(4, WINDOW_UPDATE, 0, 0, self.cold.end());
            self.cold.end().extend_from_slice(&more.to_be_bytes());
        }
    }
}

/// Priority and block of a head, without padding; none if its lengths contradict each other.
fn unpacked(flags: u8, payload: &[u8]) -> Option<(Option<[u8; PRIORITY_BYTES]>, &[u8])> {
    let mut payload = payload;
    if flags & PADDED != 0 {
        let (padding, behind) = payload.split_first()?;
        payload = behind.get(..behind.len().checked_sub(usize::from(*padding))?)?;
    }
    if flags & HAS_PRIORITY == 0 {
        return Some((None, payload));
    }
    let (priority, block) = payload.split_first_chunk()?;
    Some((Some(*priority), block))
}

/// Appends the head of a frame.
pub(crate) fn put_head(len: usize, kind: u8, flags: u8, stream: u32, out: &mut Vec<u8>) {
    let [_, high, middle, low] = (len as u32).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    out.extend_from_slice(&[high, middle, low, kind, flags, s0, s1, s2, s3]);
}

#[cfg(test)]
mod tests;
