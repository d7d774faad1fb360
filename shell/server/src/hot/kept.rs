//! Frames of the library's that wait for the window of the connection, or behind others that do.
//!
//! In:    whole frames, however they are cut.
//! Out:   the same frames in their order, those of data cut as the window comes.
//! Rules: 1. What the library was lent bounds the data in it, and the budget all of it.
//!        2. Data stays data of a response: while the client takes none of it, it is seen to stall.
//! Knows nothing of: which frames are kept.

use crate::body::Piece;
use crate::budget::{Account, Hold};
use crate::frames::{ACK, DATA, END_HEADERS, HEAD_BYTES, HEADERS, Head, SETTINGS};
use crate::hot::input::{Input, put_head};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::rc::Rc;

/// A frame whose payload is complete.
#[derive(Debug)]
struct Whole {
    head: Head,
    payload: Piece,
}

/// All of one connection.
#[derive(Debug)]
pub struct Kept {
    account: Rc<Account>,
    whole: VecDeque<Whole>,
    /// The one whose payload is still to come.
    open: Option<(Head, Vec<u8>, Hold)>,
}

impl Kept {
    pub fn new(account: &Rc<Account>) -> Kept {
        Kept { account: Rc::clone(account), whole: VecDeque::new(), open: None }
    }

    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.open.is_none()
    }

    /// Whether the rest of a frame is to come.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// A frame begins. False, and it is not kept, if there is no place for it; or if it is a head that goes on in another
    /// frame.
    #[must_use]
    pub fn begin(&mut self, head: &Head) -> bool {
        if head.kind == HEADERS && head.flags & END_HEADERS == 0 {
            return false;
        }
        let Some(hold) = Hold::take(&self.account, (HEAD_BYTES + head.len) as u64) else { return false };
        self.open = Some((*head, Vec::with_capacity(head.len), hold));
        self.go_on(&[]);
        true
    }

    /// The next bytes; returns how many of them are the frame's.
    pub fn go_on(&mut self, bytes: &[u8]) -> usize {
        let Some((head, payload, _)) = &mut self.open else { return 0 };
        let len = (head.len - payload.len()).min(bytes.len());
        payload.extend_from_slice(&bytes[..len]);
        if payload.len() == head.len
            && let Some((head, payload, hold)) = self.open.take()
        {
            self.whole.push_back(Whole { head, payload: Piece::new(Bytes::from(payload), hold) });
        }
        len
    }

    /// Appends what may be sent, up to so many bytes in all.
    pub fn flush(&mut self, input: &mut Input, out: &mut Vec<u8>, len_max: usize) {
        while let Some(Whole { head, payload }) = self.whole.front_mut() {
            let left = payload.remaining();
            let room = len_max.saturating_sub(out.len() + HEAD_BYTES);
            let len = match head.kind {
                DATA => left.min(room).min(input.windows.open().max(0) as usize),
                _ if room < left && !out.is_empty() => return,
                _ => left,
            };
            if len == 0 && 0 < left {
                return;
            }
            let flags = if len == left { head.flags } else { 0 };
            put_head(len, head.kind, flags, head.stream, out);
            out.extend_from_slice(&payload.chunk()[..len]);
            payload.advance(len);
            match head.kind {
                DATA => input.windows.spend_kept(len),
                HEADERS => input.table.is_said(),
                SETTINGS if head.flags & ACK != 0 => input.table.is_acknowledged(),
                _ => {}
            }
            if len == left {
                self.whole.pop_front();
            }
        }
    }
}
