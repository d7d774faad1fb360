//! Bytes held for clients: one budget for the process, and a share of it for each connection.
//!
//! ```text
//!   Budget   all that is held for clients, and its maximum                 one per process
//!    └ Account   what one connection holds                                 one per connection
//!       ├ Hold      what one call holds: request, result, response         one per call; released when it is dropped
//!       └ Orphan    what a call holds whose client has gone                released when the replica is done with it
//! ```
//! In:    bytes that a call wants to hold, before it holds them.
//! Out:   granted, or refused. A refusal is an error for the client and ends nothing else.
//! Rules: 1. A connection may hold [`SMALL_BYTES`] whatever others hold: a small call is always accepted.
//!        2. Beyond that it may hold half of what is free: no connection can have all of it, and the more is held, the
//!           less each can get.
//!        So what is held stays within the budget and [`SMALL_BYTES`] for each connection.
//! A hold goes where its bytes go: from the request's body to the store's result, and piece by piece into what waits
//! for the socket, or with the head of a response that is nothing else (`unsent.rs`). When the bytes are dropped (the
//! stream was reset, the connection broke), so is the hold. But a request that the replica has outlives its call: the
//! hold stays with it, and so does the connection's place among the others. Otherwise a client that resets each write,
//! or leaves after it, could have any number of them here. Calls under way are counted, too, and bytes to come of begun
//! bodies: the limits of [`crate::ahead`] depend on both.
//! Knows nothing of: the contents of the bytes.

use crate::ahead::{CALLS_MAX, UnderWay, share};
use crate::patience::Pieces;
use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a connection may hold in any case, in bytes: one small call.
pub const SMALL_BYTES: u64 = 8 << 10;

/// What a call costs beside its messages, in bytes: its future, its stream, its heads. Small messages are included.
pub const CALL_BYTES: u64 = 4 << 10;

/// What an open connection costs beside its calls, in bytes: buffers, tables of heads, its task. While its client does
/// not read, up to 16 KiB of output wait beside them (`gather.rs`).
pub const CONNECTION_BYTES: u64 = 24 << 10;

/// … and its extra cost with TLS: 8 KiB while idle, and a record that is being received or waits to be sent.
pub(crate) const TLS_BYTES: u64 = 16 << 10;

/// The default budget: this share of the machine's memory, or of the control group's.
const MEMORY_SHARE: u64 = 8;
/// … but no more than this, in bytes.
const DEFAULT_MAX: u64 = 1 << 30;
/// … and no less.
const BUDGET_MIN: u64 = 16 << 20;

/// All that is held for the clients of one process.
#[derive(Debug)]
pub struct Budget {
    max: u64,
    held: AtomicU64,
    refused: AtomicU64,
    /// Calls whose requests are complete and that have no response yet; above which number of them stream limits are
    /// lowered; on how many connections they are.
    calls: AtomicU64,
    calls_max: u64,
    connections: AtomicU64,
    calls_refused: AtomicU64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::of(0)
    }
}

impl Budget {
    /// So many bytes; 0 for an eighth of the memory, at most 1 GiB.
    #[must_use]
    pub fn of(bytes: u64) -> Budget {
        let max = match bytes {
            0 => (kattu_runtime::memory_limit() / MEMORY_SHARE).clamp(BUDGET_MIN, DEFAULT_MAX),
            bytes => bytes,
        };
        let none = || AtomicU64::new(0);
        Budget {
            max,
            held: none(),
            refused: none(),
            calls: none(),
            calls_max: CALLS_MAX,
            connections: none(),
            calls_refused: none(),
        }
    }

    /// The same, with so many calls under way above which stream limits are lowered.
    #[must_use]
    pub fn with_calls_max(self, calls_max: u64) -> Budget {
        Budget { calls_max, ..self }
    }

    /// As [`Budget::of`], and large enough to hold a call of `call_bytes`, however little memory there is.
    #[must_use]
    pub(crate) fn with_room_for(bytes: u64, call_bytes: u64) -> Budget {
        let budget = Budget::of(bytes);
        Budget { max: budget.max.max(Budget::least_for(call_bytes)), ..budget }
    }

    /// The least budget in which a single call of so many bytes can be held.
    #[must_use]
    pub(crate) fn least_for(call_bytes: u64) -> u64 {
        BUDGET_MIN.max(4 * call_bytes)
    }

    /// The most that may be held, but for [`SMALL_BYTES`] of each connection.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// What is held now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// How often a hold was refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Calls that are under way now: their requests are complete, and they have no response yet.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Calls under way above which stream limits are lowered.
    #[must_use]
    pub fn calls_max(&self) -> u64 {
        self.calls_max
    }

    /// How often a call was refused because far too many were under way.
    #[must_use]
    pub fn calls_refused(&self) -> u64 {
        self.calls_refused.load(Relaxed)
    }

    /// The most that a single call can hold when nothing else is held.
    #[must_use]
    pub(crate) fn call_max(&self) -> u64 {
        self.max / 3
    }

    /// Connections that fit when they may take half of the budget; fewer in TLS.
    #[must_use]
    pub(crate) fn connections_max(&self, in_tls: bool) -> u64 {
        self.max / 2 / (CONNECTION_BYTES + if in_tls { TLS_BYTES } else { 0 })
    }

    /// Takes `more` for a connection that holds `own`.
    fn take(&self, own: u64, more: u64) -> bool {
        if own + more <= SMALL_BYTES {
            self.held.fetch_add(more, Relaxed);
            return true;
        }
        // Threads may take at the same time, so the sum is checked and updated in one step.
        let taken = self.held.fetch_update(Relaxed, Relaxed, |held| {
            let after = held + more;
            (own + more <= self.max.saturating_sub(after) / 2).then_some(after)
        });
        if taken.is_err() {
            self.refused.fetch_add(1, Relaxed);
        }
        taken.is_ok()
    }
}

/// The counts of one connection. Orphans are released on the replica's thread.
#[derive(Debug)]
struct Counted {
    budget: Arc<Budget>,
    held: AtomicU64,
    /// Calls under way.
    calls: AtomicU64,
    /// Streams that last for as long as their client likes.
    watches: AtomicU64,
    /// The connection's place among the others, for as long as anything is counted.
    _place: Box<dyn Any + Send + Sync>,
}

impl Counted {
    fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Relaxed);
        self.budget.held.fetch_sub(bytes, Relaxed);
    }
}

/// What one connection holds.
#[derive(Debug)]
pub struct Account {
    counted: Arc<Counted>,
    pieces: Cell<Pieces>,
    /// Part of a response has been sent, or will be, since [`Account::take_sent`] was last called.
    has_sent: Cell<bool>,
    /// Bytes that are still to come of bodies that have begun.
    expected: Cell<u64>,
}

impl Account {
    /// Nothing held yet.
    #[must_use]
    pub fn new(budget: &Arc<Budget>) -> Rc<Account> {
        Account::with_place(budget, ())
    }

    /// The same; the connection's place is kept until nothing is held any more.
    #[must_use]
    pub(crate) fn with_place(budget: &Arc<Budget>, place: impl Any + Send + Sync) -> Rc<Account> {
        let none = || AtomicU64::new(0);
        let counted = Counted {
            budget: Arc::clone(budget),
            held: none(),
            calls: none(),
            watches: none(),
            _place: Box::new(place),
        };
        Rc::new(Account {
            counted: Arc::new(counted),
            pieces: Cell::default(),
            has_sent: Cell::new(false),
            expected: Cell::new(0),
        })
    }

    /// What is held now, orphans included.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.counted.held.load(Relaxed)
    }

    /// Pieces of responses that wait, and what has been sent so far.
    #[must_use]
    pub fn pieces(&self) -> Pieces {
        self.pieces.get()
    }

    /// Part of a response is sent now, or will be.
    pub fn answers(&self) {
        self.has_sent.set(true);
    }

    /// Whether [`Account::answers`] was called since this was last called.
    #[must_use]
    pub(crate) fn take_sent(&self) -> bool {
        self.has_sent.take()
    }

    /// What is under way, on a connection with so many streams, of which so many are being answered.
    #[must_use]
    pub fn under_way(&self, open: u64, answering: u64) -> UnderWay {
        let Budget { calls, calls_max, connections, .. } = &*self.counted.budget;
        UnderWay {
            open,
            answering,
            all: calls.load(Relaxed),
            all_max: *calls_max,
            connections: connections.load(Relaxed),
        }
    }

    /// Bytes that are still to come of bodies that have begun.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.expected.get()
    }

    fn take(&self, more: u64) -> bool {
        let Counted { budget, held, .. } = &*self.counted;
        // Only this thread takes. Bytes that other threads release meanwhile are free for the next call.
        let taken = budget.take(held.load(Relaxed), more);
        if taken {
            held.fetch_add(more, Relaxed);
        }
        taken
    }
}

/// What one call holds. Released when it is dropped.
#[derive(Debug)]
pub struct Hold {
    account: Rc<Account>,
    bytes: u64,
    /// Bytes that are still to come of the call's body.
    expected: u64,
    begun: Option<Begun>,
}

impl Hold {
    /// Holds so many bytes, if they may be held.
    #[must_use]
    pub fn take(account: &Rc<Account>, bytes: u64) -> Option<Hold> {
        account.take(bytes).then(|| Hold { account: Rc::clone(account), bytes, expected: 0, begun: None })
    }

    /// Holds nothing, for a call that was refused.
    #[must_use]
    pub fn nothing(account: &Rc<Account>) -> Hold {
        Hold { account: Rc::clone(account), bytes: 0, expected: 0, begun: None }
    }

    /// What is held now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds so many bytes from now on, at least [`CALL_BYTES`]; `false`, and nothing changes, if they may not be held.
    #[must_use]
    pub fn resize(&mut self, bytes: u64) -> bool {
        let bytes = bytes.max(CALL_BYTES);
        if self.bytes < bytes {
            if !self.account.take(bytes - self.bytes) {
                return false;
            }
        } else {
            self.account.counted.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// A part of it as a hold of its own; less if there is less.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Hold {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Hold { account: Rc::clone(&self.account), bytes, expected: 0, begun: None }
    }

    /// So many bytes are still to come of the call's body.
    pub fn expect(&mut self, bytes: u64) {
        let expected = &self.account.expected;
        expected.set(expected.get() - self.expected + bytes);
        self.expected = bytes;
    }

    /// Part of the call's response is sent now, or will be.
    pub fn answers(&self) {
        self.account.answers();
    }

    /// Bytes that the client has taken so far, of this and all other responses on its connection.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.account.pieces.get().taken
    }

    /// The call's request is complete: it is under way until [`Hold::end`]. False if far too many are, and the
    /// connection has more than its share of them: a client that keeps to its limit is not refused because of others.
    #[must_use]
    pub fn begin(&mut self) -> bool {
        let Counted { budget, calls, .. } = &*self.account.counted;
        let all = budget.calls.fetch_add(1, Relaxed);
        let own = calls.fetch_add(1, Relaxed) + 1;
        if own == 1 {
            budget.connections.fetch_add(1, Relaxed);
        }
        let begun = Begun(Arc::clone(&self.account.counted));
        let share = share(budget.calls_max, budget.connections.load(Relaxed));
        let too_many = REFUSED_FROM * budget.calls_max <= all && share < own;
        if too_many {
            budget.calls_refused.fetch_add(1, Relaxed);
            return false;
        }
        self.begun = Some(begun);
        true
    }

    /// The call has its response.
    pub fn end(&mut self) {
        self.begun = None;
    }

    /// The call is a stream that lasts for as long as its client likes: one of at most so many of its connection.
    #[must_use]
    pub fn watch(&self, watches_max: u64) -> Option<Watching> {
        let counted = &self.account.counted;
        let before = counted.watches.fetch_add(1, Relaxed);
        let watching = Watching(Arc::clone(counted)); // one too many is uncounted when this is dropped
        (before < watches_max).then_some(watching)
    }

    /// All that is held, for a request that outlives its call. The hold is empty afterwards.
    #[must_use]
    pub fn leave(&mut self) -> Orphan {
        let bytes = std::mem::take(&mut self.bytes);
        Orphan { counted: Arc::clone(&self.account.counted), bytes, _begun: self.begun.take() }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.expect(0);
        self.account.counted.give_back(self.bytes);
    }
}

/// A lowered limit reaches clients with a delay. From so many times the calls that may be under way, calls are refused.
const REFUSED_FROM: u64 = 4;

/// A call that is under way.
#[derive(Debug)]
struct Begun(Arc<Counted>);

impl Drop for Begun {
    fn drop(&mut self) {
        let Counted { budget, calls, .. } = &*self.0;
        budget.calls.fetch_sub(1, Relaxed);
        if calls.fetch_sub(1, Relaxed) == 1 {
            budget.connections.fetch_sub(1, Relaxed);
        }
    }
}

/// A stream that lasts for as long as its client likes.
#[derive(Debug)]
pub struct Watching(Arc<Counted>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Relaxed);
    }
}

/// What a call holds whose client has gone, for as long as the replica has its request. Released when it is dropped.
#[derive(Debug)]
pub struct Orphan {
    counted: Arc<Counted>,
    bytes: u64,
    _begun: Option<Begun>,
}

impl Drop for Orphan {
    fn drop(&mut self) {
        self.counted.give_back(self.bytes);
    }
}

/// The hold of a piece of a response that waits for the socket.
#[derive(Debug)]
pub struct Waiting(Hold);

impl Waiting {
    /// From now on the piece waits.
    #[must_use]
    pub fn new(hold: Hold) -> Waiting {
        let pieces = &hold.account.pieces;
        pieces.update(|all| Pieces { waiting: all.waiting + 1, ..all });
        Waiting(hold)
    }

    /// So many bytes of the piece are sent now.
    pub fn goes_on(&self, bytes: u64) {
        let Account { pieces, .. } = &*self.0.account;
        pieces.update(|all| Pieces { taken: all.taken + bytes, ..all });
        self.0.account.answers();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Account { pieces, .. } = &*self.0.account;
        pieces.update(|all| {
            let waiting = all.waiting - 1;
            let emptied = all.emptied + u64::from(waiting == 0);
            Pieces { waiting, left: all.left + 1, emptied, ..all }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_connection_gets_half_of_the_free_budget_and_not_a_byte_more() {
        let budget = Arc::new(Budget::of(30 << 20));
        let one = Account::new(&budget);
        assert!(Hold::take(&one, (10 << 20) + 1).is_none(), "half of what is left then would be less");
        let hold = Hold::take(&one, 10 << 20).expect("a third of all");
        assert_eq!(hold.bytes(), budget.call_max());
        let other = Account::new(&budget);
        assert!(Hold::take(&other, (20 << 20) / 3 + 1).is_none());
        let second = Hold::take(&other, (20 << 20) / 3).expect("a third of the rest");
        assert_eq!(budget.refused(), 2);
        drop((hold, second));
        assert_eq!((budget.held(), one.held(), other.held()), (0, 0, 0));
    }

    #[test]
    fn a_small_call_is_taken_in_whatever_others_hold() {
        let budget = Arc::new(Budget::of(1 << 20));
        let greedy: Vec<_> = (0..200).map(|_| Account::new(&budget)).collect();
        let mut holds = Vec::new();
        for account in &greedy {
            let mut bytes = 1 << 20;
            while 0 < bytes {
                match Hold::take(account, bytes) {
                    Some(hold) => holds.push(hold),
                    None => bytes /= 2,
                }
            }
        }
        assert!(budget.held() <= budget.max() + 200 * SMALL_BYTES);
        let late = Account::new(&budget);
        let small = Hold::take(&late, SMALL_BYTES).expect("a small call");
        assert!(Hold::take(&late, 1).is_none(), "and no more");
        drop((holds, small));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_call_that_shrinks_gives_back_and_one_that_cannot_grow_keeps_what_it_has() {
        let budget = Arc::new(Budget::of(30 << 20));
        let account = Account::new(&budget);
        let mut hold = Hold::take(&account, CALL_BYTES).expect("a call");
        assert!(hold.resize(10 << 20));
        assert!(!hold.resize((10 << 20) + 1));
        assert_eq!((hold.bytes(), account.held()), (10 << 20, 10 << 20));
        assert!(hold.resize(0));
        assert_eq!(account.held(), CALL_BYTES, "a call costs something in any case");
    }

    #[test]
    fn what_waits_for_a_socket_is_counted_until_it_has_left() {
        let account = Account::new(&Arc::new(Budget::of(30 << 20)));
        let mut hold = Hold::take(&account, 5_000).expect("a call");
        let first = Waiting::new(hold.split(1_000));
        let second = Waiting::new(hold.split(10_000));
        let pieces = |waiting, left, taken| Pieces { waiting, left, taken, emptied: u64::from(waiting == 0) };
        assert_eq!((hold.bytes(), account.held(), account.pieces()), (0, 5_000, pieces(2, 0, 0)));
        assert!(!account.take_sent());
        first.goes_on(300);
        assert!(account.take_sent() && !account.take_sent(), "said once");
        drop(first);
        assert_eq!((account.held(), account.pieces()), (4_000, pieces(1, 1, 300)));
        drop(second);
        assert_eq!((account.held(), account.pieces()), (0, pieces(0, 2, 300)));
    }

    #[test]
    fn an_orphan_holds_what_its_call_held_and_the_place_of_its_connection() {
        let budget = Arc::new(Budget::of(30 << 20));
        let place = Arc::new(());
        let account = Account::with_place(&budget, Arc::clone(&place));
        let mut hold = Hold::take(&account, 5_000).expect("a call");
        assert!(hold.begin());
        let orphan = hold.leave();
        drop(hold);
        assert_eq!((budget.held(), account.held(), budget.calls()), (5_000, 5_000, 1));
        drop(account);
        assert_eq!((budget.held(), budget.calls(), Arc::strong_count(&place)), (5_000, 1, 2));
        std::thread::spawn(move || drop(orphan)).join().expect("it ends");
        assert_eq!((budget.held(), budget.calls(), Arc::strong_count(&place)), (0, 0, 1));
        assert_eq!(budget.connections.load(Relaxed), 0);
    }

    proptest! {
        /// For any sequence of steps the sums agree, and rules 1 and 2 hold at each step.
        #[test]
        fn sums_agree_and_stay_within_the_budget(
            steps in proptest::collection::vec((0..8_usize, 0..6_u8, 0..200_000_u64), 1..200)
        ) {
            let budget = Arc::new(Budget::of(1 << 20));
            let accounts: Vec<_> = (0..8).map(|_| Account::new(&budget)).collect();
            let mut holds: Vec<Vec<Hold>> = (0..8).map(|_| Vec::new()).collect();
            let mut orphans: Vec<Vec<Orphan>> = (0..8).map(|_| Vec::new()).collect();
            for (who, what, bytes) in steps {
                let free = budget.max().saturating_sub(budget.held() + bytes);
                let own = accounts[who].held();
                match what {
                    0 => {
                        let taken = Hold::take(&accounts[who], bytes);
                        let may = own + bytes <= SMALL_BYTES || own + bytes <= free / 2;
                        prop_assert_eq!(taken.is_some(), may);
                        holds[who].extend(taken);
                    }
                    1 => drop(holds[who].pop()),
                    3 => {
                        let orphan = holds[who].pop().map(|mut hold| hold.leave());
                        orphans[who].extend(orphan);
                    }
                    4 => drop(orphans[who].pop()),
                    2 => {
                        if let Some(hold) = holds[who].last_mut() {
                            let _ = hold.resize(bytes);
                        }
                    }
                    _ => {
                        let part = holds[who].last_mut().map(|hold| hold.split(bytes));
                        holds[who].extend(part);
                    }
                }
                for ((account, holds), orphans) in accounts.iter().zip(&holds).zip(&orphans) {
                    let left = orphans.iter().map(|orphan| orphan.bytes).sum::<u64>();
                    prop_assert_eq!(account.held(), left + holds.iter().map(Hold::bytes).sum::<u64>());
                }
                prop_assert_eq!(budget.held(), accounts.iter().map(|account| account.held()).sum::<u64>());
                prop_assert!(budget.held() <= budget.max() + 8 * SMALL_BYTES);
            }
        }
    }
}
