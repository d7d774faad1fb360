//! Output of a connection: the library's frames, and between them the responses to hot calls.
//!
//! In:    what the library writes; parts of responses; windows.
//! Out:   how much of the library's bytes may be sent now; frames.
//! Rules: 1. Hot frames go where a frame of the library's has ended, and none of its heads is open.
//!        2. Data of the library's for which the client's window has no room is kept here ([`crate::hot::kept`]), as is all
//!           that has to stay behind it, and goes first when there is room. So the library is never kept from the
//!           acknowledgement in front of which it reads no more: the room may come behind that.
//!        3. If the budget has no place for what would be kept, it waits in the library after all.
//! Knows nothing of: sockets, calls.

use crate::budget::Account;
use crate::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, Frames, HEAD_BYTES, HEADERS, Head, PING, SETTINGS,
};
use crate::hot::input::{END_STREAM, FRAME_BYTES_MAX, Input, RST_STREAM, WINDOW_UPDATE, put_head};
use crate::hot::kept::Kept;
use crate::hot::part::{AROUND_BYTES, HEAD, Lead, Part, TAIL, put_block};
use crate::hot::stream::{Next, Stream};
use crate::streams::{GOAWAY, GoAway};
use bytes::Buf;
use h2::Reason;
use std::rc::Rc;

/// A response that finds less room than this, and needs more, waits for more.
const PART_BYTES_MIN: usize = 2 << 10;
/// So many bytes of requests are given back to the client with one frame.
const OWED_MAX: usize = 8 << 10;
/// Most bytes of refusals that wait, but for those that one read leads to.
const CONTROL_MAX: usize = 4 << 10;

/// What becomes of the library's next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// So many may be sent.
    Pass(usize),
    /// So many were kept.
    Kept(usize),
}

/// The output of one connection.
#[derive(Debug)]
pub struct Output {
    /// The position behind the library's bytes that have been looked at, …
    frames: Frames,
    is_head_open: bool,
    /// … of which so many are not sent yet.
    ahead: usize,
    kept: Kept,
    /// Rule 3.
    pub is_blocked: bool,
    /// Frames without a response.
    control: Vec<u8>,
    /// The library's last words.
    pub last: Option<GoAway>,
}

impl Output {
    pub fn new(account: &Rc<Account>) -> Output {
        Output {
            frames: Frames::after(0),
            is_head_open: false,
            ahead: 0,
            kept: Kept::new(account),
            is_blocked: false,
            control: Vec::new(),
            last: None,
        }
    }

    /// What becomes of the library's next bytes; these are all of those that it has ready.
    pub fn admit<'a>(
        &mut self,
        slices: impl Iterator<Item = &'a [u8]> + Clone,
        input: &mut Input,
    ) -> Admitted {
        self.is_blocked = false;
        if self.kept.is_open() {
            let len = slices.map(|slice| self.kept.go_on(slice)).sum();
            input.lend();
            return Admitted::Kept(len);
        }
        let mut seen = 0;
        for slice in slices.clone() {
            let mut left = &slice[self.ahead.saturating_sub(seen).min(slice.len())..];
            seen += slice.len();
            while let Some(head) = self.frames.next(&mut left) {
                let at = seen - left.len();
                if HEAD_BYTES <= at && self.stays_behind(&head, input) {
                    self.frames = Frames::after(0);
                    self.ahead = at - HEAD_BYTES;
                    if self.ahead == 0 {
                        return self.keep(&head, slices, input);
                    }
                    return Admitted::Pass(self.ahead);
                }
                match head.kind {
                    DATA => input.windows.spend_lent(head.len),
                    HEADERS | CONTINUATION => {
                        self.is_head_open = head.flags & END_HEADERS == 0;
                        input.table.is_said();
                    }
                    SETTINGS if head.flags & ACK != 0 => input.table.is_acknowledged(),
                    GOAWAY => self.last = GoAway::read(left).or(self.last),
                    _ => {}
                }
            }
        }
        self.ahead = seen;
        input.lend();
        Admitted::Pass(seen)
    }

    /// Rule 2.
    fn stays_behind(&self, head: &Head, input: &Input) -> bool {
        match head.kind {
            PING | WINDOW_UPDATE | GOAWAY => false,
            DATA if 0 < head.len && input.windows.open() < head.len as i64 => true,
            _ => !self.kept.is_empty(),
        }
    }

    fn keep<'a>(
        &mut self,
        head: &Head,
        slices: impl Iterator<Item = &'a [u8]>,
        input: &mut Input,
    ) -> Admitted {
        if !self.kept.begin(head) {
            self.is_blocked = true;
            return Admitted::Pass(0);
        }
        if head.kind == DATA {
            input.windows.keep(head.len);
        }
        let mut skip = HEAD_BYTES;
        let mut len = 0;
        for slice in slices {
            let skipped = skip.min(slice.len());
            skip -= skipped;
            len += skipped + self.kept.go_on(&slice[skipped..]);
        }
        Admitted::Kept(len)
    }

    /// So many of the admitted bytes are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.ahead -= bytes;
    }

    /// Rule 1.
    fn is_between_frames(&self) -> bool {
        self.ahead == 0 && self.frames.rest() == 0 && !self.frames.is_in_head() && !self.is_head_open
    }

    /// Whether everything that the library wrote has left it for good.
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether something waits only because the library's bytes in front of it are not sent.
    pub fn is_held_up(&self, input: &Input) -> bool {
        !self.is_between_frames()
            && (!self.control.is_empty()
                || OWED_MAX <= input.owed
                || input.streams.has_ready(0 < input.windows.open()))
    }

    /// Whether no more refusals may be added.
    pub fn is_heaped(&self) -> bool {
        CONTROL_MAX <= self.control.len()
    }

    pub fn refuse(&mut self, stream: u32, reason: Reason) {
        put_head(4, RST_STREAM, 0, stream, &mut self.control);
        self.control.extend_from_slice(&u32::from(reason).to_be_bytes());
    }

    /// Appends what may be sent, up to so many bytes in all. Whether anything was.
    pub fn flush(&mut self, input: &mut Input, out: &mut Vec<u8>, len_max: usize) -> bool {
        let len_before = out.len();
        if !self.is_between_frames() {
            return false;
        }
        if OWED_MAX <= input.owed && out.len() < len_max {
            put_head(4, WINDOW_UPDATE, 0, 0, out);
            out.extend_from_slice(&(input.owed as u32).to_be_bytes());
            input.owed = 0;
        }
        if !self.control.is_empty() && (out.is_empty() || out.len() + self.control.len() <= len_max) {
            out.append(&mut self.control);
            self.control.shrink_to(CONTROL_MAX);
        }
        self.kept.flush(input, out, len_max);
        let Input { streams, windows, table, .. } = input;
        // What is kept has the first right to a window.
        let has_kept = !self.kept.is_empty();
        let windows = std::cell::RefCell::new(windows);
        let is_open = || !has_kept && 0 < windows.borrow().open();
        streams.send(
            |number, stream: &Stream, part: &mut Part| {
                let room = len_max.saturating_sub(out.len()).saturating_sub(AROUND_BYTES);
                if let Lead::Only(block) = &part.lead {
                    if room < block.len() && !out.is_empty() {
                        return (0, Next::Full);
                    }
                    put_block(table, block, END_STREAM, number, out);
                    return (0, Next::Ended);
                }
                let left = part.left();
                if room < left.min(PART_BYTES_MIN) {
                    return (0, Next::Full);
                }
                // A head needs no window.
                if let Lead::Head = std::mem::replace(&mut part.lead, Lead::Nothing) {
                    put_block(table, HEAD, 0, number, out);
                }
                let mut windows = windows.borrow_mut();
                let window = if has_kept { 0 } else { windows.open().max(0) };
                let of_stream = (windows.of_stream + stream.gained.get()).max(0);
                let len = left.min(room).min(window.min(of_stream) as usize).min(FRAME_BYTES_MAX);
                if let Some(piece) = &mut part.data
                    && 0 < len.max(usize::from(left == 0))
                {
                    put_head(len, DATA, 0, number, out);
                    out.extend_from_slice(&piece.chunk()[..len]);
                    piece.advance(len);
                    windows.spend(len);
                    stream.gained.update(|gained| gained - len as i64);
                }
                let next = match len {
                    _ if len == left && part.ends => {
                        put_block(table, TAIL, END_STREAM, number, out);
                        Next::Ended
                    }
                    _ if len == left => Next::Sent,
                    _ if of_stream <= len as i64 => Next::Stuck,
                    _ if window <= len as i64 => Next::Thirsty,
                    _ => Next::Again,
                };
                (len, next)
            },
            is_open,
        );
        streams.share();
        len_before < out.len()
    }
}
