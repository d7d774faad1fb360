//! Reads: how a read finds a moment at which it may be served.
//!
//! ```text
//!  linearizable ─▶ gathering ──drained──▶ confirming(batch) ──verdict(index)──▶ due at index ──handed out──▶ keeper
//!                      ▲────────── verdict "ask again", or no verdict for a while ──┘
//!  serializable ─▶ keeper, or waits until this replica may serve at all (ST17)
//!  session(index) ─▶ the same, and waits until everything up to its index has been handed out
//!  bounded(δ) ─▶ the same, if the last confirmed question was asked at most δ ago; else as linearizable
//! ```
//! A bounded read compares this replica's clock with itself only: an index that was confirmed after a question covers
//! everything that was answered before the question was *asked*. Nobody else's clock, and no age of a message, is
//! believed, so no bound on anybody's clock is needed. One question serves all bounded reads of the next δ.
//!
//! One question to the leader stands for the whole batch [replication-protocols Q5, Q6]; reads are then served here.
//! Few questions are open at once, and a refused one is not repeated at once: what waits meanwhile shares the next.
//! The keeper's queue is ordered, so a read may be queued as soon as every entry up to its index has been.
//! A read changes nothing, so one that cannot be served is always *refused*, never in doubt.
//! Knows nothing of: writes, how leadership is confirmed.

use crate::contract::{Consistency, Effects, KeeperTask, Outcome, Refusal, Ticket};
use crate::node::{Node, answer};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use kattu_kv::api::Query;
use kattu_raft::{Instant, LogIndex, ReadBatch, ReadVerdict};

/// Questions that may be open at once: enough to hide the way there and back, and no more than a leader that cannot
/// answer should have to remember.
const QUESTIONS_MAX: usize = 16;

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    Query(Query),
    Members,
    Pin,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    ticket: Ticket,
    wanted: Wanted,
    expires: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Confirming {
    reads: Vec<Waiting>,
    /// When the question was asked.
    asked_at: Instant,
    /// When to ask again: the question or its answer may be lost.
    ask_again: Instant,
}

/// All reads that wait for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reads {
    /// Waiting to be asked about, oldest first.
    gathering: Vec<Waiting>,
    /// Asked about, by batch.
    confirming: BTreeMap<u64, Confirming>,
    /// Confirmed; may be served once this index has been handed to the keeper. Ascending.
    due: VecDeque<(LogIndex, Vec<Waiting>)>,
    /// Serializable reads that came before this replica may serve.
    not_serving: VecDeque<Waiting>,
    /// Reads of sessions that have seen more than was handed out here, by what they have seen.
    behind_session: BTreeMap<LogIndex, Vec<Waiting>>,
    /// The newest question that was confirmed: when it was asked, and up to where everything answered before stands.
    fresh: Option<(Instant, LogIndex)>,
    batch: u64,
    /// Nobody is asked before this: the last answer was "not now". Zero when it was not.
    ask_after: Instant,
    /// Reads in all the queues above.
    count: usize,
}

impl Reads {
    pub(crate) fn pending(&self) -> usize {
        self.count
    }

    pub(crate) fn deadline(&self) -> Instant {
        if self.count == 0 {
            return Instant::NEVER;
        }
        let fronts = [
            self.gathering.first().map(|read| read.expires),
            self.due.front().and_then(|(_, reads)| reads.first()).map(|read| read.expires),
            self.not_serving.front().map(|read| read.expires),
            self.behind_session.values().flatten().map(|read| read.expires).min(),
            self.confirming.values().map(|confirming| confirming.ask_again).min(),
            Some(self.ask_after).filter(|&at| at != Instant(0)),
        ];
        fronts.into_iter().flatten().min().unwrap_or(Instant::NEVER)
    }

    /// Another leader, or none: what the last one said of now does not bind it.
    pub(crate) fn ask_at_once(&mut self) {
        self.ask_after = Instant(0);
    }

    pub(crate) fn stop(&mut self, effects: &mut Effects) {
        let confirming = core::mem::take(&mut self.confirming).into_values().flat_map(|batch| batch.reads);
        let due = core::mem::take(&mut self.due).into_iter().flat_map(|(_, reads)| reads);
        let gathering = core::mem::take(&mut self.gathering).into_iter();
        let not_serving = core::mem::take(&mut self.not_serving).into_iter();
        let behind = core::mem::take(&mut self.behind_session).into_values().flatten();
        for read in confirming.chain(due).chain(gathering).chain(not_serving).chain(behind) {
            answer(effects, read.ticket, Outcome::Refused(Refusal::Stopping));
        }
        self.count = 0;
    }
}

impl Node {
    pub(crate) fn on_read(
        &mut self,
        now: Instant,
        ticket: Ticket,
        wanted: Wanted,
        consistency: Consistency,
        effects: &mut Effects,
    ) {
        if self.pending() >= self.config.pending_max {
            return answer(effects, ticket, Outcome::Refused(Refusal::TooManyRequests));
        }
        let read = Waiting { ticket, wanted, expires: now + self.config.request_timeout };
        match consistency {
            Consistency::Serializable if self.serves() => self.serve(read, self.serves_from, effects),
            Consistency::Serializable => {
                self.reads.count += 1;
                self.reads.not_serving.push_back(read);
            }
            Consistency::Session(seen) if self.serves() && self.has_handed_out(seen) => {
                self.serve(read, seen.max(self.serves_from), effects)
            }
            Consistency::Session(seen) => {
                self.reads.count += 1;
                self.reads.behind_session.entry(seen).or_default().push(read);
            }
            Consistency::Bounded(_) | Consistency::Linearizable => {
                match self.fresh_enough(now, consistency) {
                    Some(needs) => self.serve(read, needs, effects),
                    None => {
                        self.reads.count += 1;
                        self.reads.gathering.push(read);
                    }
                }
            }
        }
    }

    fn has_handed_out(&self, seen: LogIndex) -> bool {
        seen <= self.handed_out || planted!("session-read-behind-its-session")
    }

    /// From which state on everything that was answered longer ago than a bounded read allows is visible, if that state
    /// is here.
    fn fresh_enough(&self, now: Instant, consistency: Consistency) -> Option<LogIndex> {
        let Consistency::Bounded(age) = consistency else { return None };
        if self.serves() && planted!("bounded-read-asks-nobody") {
            return Some(self.serves_from);
        }
        let (asked_at, index) = self.reads.fresh?;
        (now.since(asked_at) <= age && index <= self.handed_out).then_some(index)
    }

    /// The batch is complete: one question to the leader for all reads that wait.
    pub(crate) fn ask_for_reads(&mut self, now: Instant, out: &mut kattu_raft::Effects) {
        let may_ask = now >= self.reads.ask_after && self.reads.confirming.len() < QUESTIONS_MAX;
        if self.reads.gathering.is_empty() || self.raft.leader().is_none() || !may_ask {
            return;
        }
        self.reads.batch += 1;
        let batch = self.reads.batch;
        let reads = core::mem::take(&mut self.reads.gathering);
        let ask_again = now + self.config.raft.election_timeout / 2;
        self.reads.confirming.insert(batch, Confirming { reads, asked_at: now, ask_again });
        self.raft.read(now, ReadBatch(batch), out);
    }

    pub(crate) fn on_read_verdict(&mut self, now: Instant, verdict: ReadVerdict, effects: &mut Effects) {
        let Some(confirming) = self.reads.confirming.remove(&verdict.batch.0) else {
            return; // asked again meanwhile
        };
        let asked_at = match planted!("freshness-dated-by-its-answer") {
            true => now,
            false => confirming.asked_at,
        };
        let fresh = verdict.index.map(|index| (asked_at, index));
        self.reads.fresh = self.reads.fresh.max(fresh);
        match verdict.index {
            Some(index) if index <= self.handed_out || planted!("read-served-before-apply") => {
                for read in confirming.reads {
                    self.reads.count -= 1;
                    self.serve(read, index, effects);
                }
            }
            Some(index) => {
                // Verdicts may overtake each other after a leader change; the later index serves both.
                let behind = self.reads.due.back().map_or(index, |&(last, _)| index.max(last));
                self.reads.due.push_back((behind, confirming.reads));
            }
            None => {
                self.gather_again(confirming.reads);
                self.reads.ask_after = now + self.config.raft.heartbeat_interval;
            }
        }
    }

    /// Reads go back to the head of the queue, oldest first.
    fn gather_again(&mut self, mut reads: Vec<Waiting>) {
        reads.append(&mut self.reads.gathering);
        self.reads.gathering = reads;
    }

    /// Serves what may be served now.
    pub(crate) fn release_reads(&mut self, effects: &mut Effects) {
        if self.reads.count == 0 {
            return;
        }
        while let Some(&(index, _)) = self.reads.due.front() {
            if index > self.handed_out {
                break;
            }
            let (_, reads) = self.reads.due.pop_front().expect("its front was just seen");
            for read in reads {
                self.reads.count -= 1;
                self.serve(read, index, effects);
            }
        }
        if self.serves() {
            while let Some(seen) = self.reads.behind_session.first_entry() {
                let needs = (*seen.key()).max(self.serves_from);
                if *seen.key() > self.handed_out {
                    break;
                }
                for read in seen.remove() {
                    self.reads.count -= 1;
                    self.serve(read, needs, effects);
                }
            }
            while let Some(read) = self.reads.not_serving.pop_front() {
                self.reads.count -= 1;
                self.serve(read, self.serves_from, effects);
            }
        }
    }

    /// Any state from `needs` on will do. It is in the keeper's queue already, but for a snapshot that is being read
    /// before it: then the state before may do, too.
    fn serve(&self, read: Waiting, needs: LogIndex, effects: &mut Effects) {
        let (ticket, term) = (read.ticket, self.raft.term());
        effects.apply.push(match read.wanted {
            Wanted::Query(query) => KeeperTask::Read { ticket, query, term, needs },
            Wanted::Members => KeeperTask::Members { ticket, term, needs },
            Wanted::Pin => KeeperTask::Pin { ticket, term, needs },
        });
    }

    /// Asks again where no answer came, and refuses whoever has waited too long.
    pub(crate) fn expire_reads(&mut self, now: Instant, effects: &mut Effects) {
        if self.reads.ask_after <= now {
            self.reads.ask_at_once();
        }
        if self.reads.count == 0 {
            return;
        }
        let overdue: Vec<u64> = self
            .reads
            .confirming
            .iter()
            .filter(|(_, c)| c.ask_again <= now)
            .map(|(&batch, _)| batch)
            .collect();
        for batch in overdue.into_iter().rev() {
            let confirming = self.reads.confirming.remove(&batch).expect("its key was just seen");
            self.gather_again(confirming.reads);
        }
        let refusal = if self.raft.leader().is_some() { Refusal::ReadTimedOut } else { Refusal::NoLeader };
        let expired = |read: &Waiting| read.expires <= now;
        let mut refused: Vec<(Ticket, Refusal)> = Vec::new();
        let gathering = &mut self.reads.gathering;
        let old = gathering.iter().take_while(|read| expired(read)).count();
        refused.extend(gathering.drain(..old).map(|read| (read.ticket, refusal)));
        for (_, reads) in &mut self.reads.due {
            let old = reads.iter().take_while(|read| expired(read)).count();
            refused.extend(reads.drain(..old).map(|read| (read.ticket, Refusal::ReadTimedOut)));
        }
        self.reads.due.retain(|(_, reads)| !reads.is_empty());
        for reads in self.reads.behind_session.values_mut() {
            refused.extend(
                reads.extract_if(.., |read| expired(read)).map(|read| (read.ticket, Refusal::ReadTimedOut)),
            );
        }
        self.reads.behind_session.retain(|_, reads| !reads.is_empty());
        while self.reads.not_serving.front().is_some_and(expired) {
            let read = self.reads.not_serving.pop_front().expect("its front was just seen");
            refused.push((read.ticket, Refusal::Replaying));
        }
        self.reads.count -= refused.len();
        for (ticket, refusal) in refused {
            answer(effects, ticket, Outcome::Refused(refusal));
        }
    }
}
