//! Reads: when a read may be served.
//!
//! ```text
//!  linearizable ─▶ gathering ──drained──▶ confirming(batch) ──verdict(index)──▶ due at index ──delivered───▶ keeper
//!                      ▲──────────────── verdict "ask again" ───────────────────┘
//!  serializable ─▶ keeper, or waits until this replica may serve at all (ST17)
//!  at least(index) ─▶ the same, and waits until everything up to its index has been delivered
//!  bounded(δ) ─▶ the same, if the last confirmed round began at most δ ago; else as linearizable
//! ```
//! A bounded read uses this replica's clock only: an index that was confirmed by a read round covers everything that
//! was answered before the round *began*. No other clock and no age of a message is trusted, so no bound on clock drift
//! is needed. One round serves all bounded reads of the next δ.
//!
//! One round with the leader confirms a whole batch [replication-protocols Q5, Q6]; its reads are then served here. Few
//! rounds are open at once, and a refused one is not repeated at once: reads that wait meanwhile share the next. Raft
//! repeats lost messages; a verdict on a later round holds for all that began before.
//! The keeper's queue is ordered, so a read may be queued as soon as every entry up to its index has been.
//! A read changes nothing, so one that cannot be served is always *refused*, and its outcome is never unknown.
//! Knows nothing of: writes, quorums.

use crate::contract::{Consistency, Effects, KeeperTask, Outcome, Refusal, Ticket};
use crate::node::{Node, answer};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use kattu_kv::api::Query;
use kattu_kv::lookup::Keys;
use kattu_raft::{Instant, LogIndex, ReadBatch, ReadVerdict};

/// Rounds that may be open at once: enough to hide the round trip, and no more than a leader that cannot answer should
/// have to store.
const QUESTIONS_MAX: usize = 16;

/// The subject of a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    Query(Query),
    Keys(Arc<Keys>),
    Members,
    Pin,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    ticket: Ticket,
    wanted: Wanted,
    expires: Instant,
}

impl Waiting {
    /// How many reads of clients it is.
    fn count(&self) -> usize {
        match &self.wanted {
            Wanted::Keys(keys) => keys.len().max(1),
            Wanted::Query(_) | Wanted::Members | Wanted::Pin => 1,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Confirming {
    reads: Vec<Waiting>,
    /// When the round began.
    asked_at: Instant,
}

/// All waiting reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reads {
    /// Waiting for a round, oldest first.
    gathering: Vec<Waiting>,
    /// In a round, by batch.
    confirming: BTreeMap<u64, Confirming>,
    /// Confirmed; may be served once this index has been delivered to the keeper. Ascending.
    due: VecDeque<(LogIndex, Vec<Waiting>)>,
    /// Serializable reads that came before this replica may serve.
    not_serving: VecDeque<Waiting>,
    /// Reads at least as new as an index that was not delivered here yet.
    at_least: ReadsAtLeast,
    /// The newest confirmed round: when it began, and the index that covers everything answered before.
    fresh: Option<(Instant, LogIndex)>,
    batch: u64,
    /// No round begins before this: the last one was refused for the time being. Zero if it was not.
    ask_after: Instant,
    /// Reads of clients in all the queues above.
    count: usize,
}

/// Reads at least as new as an index, by that index, and by when the oldest of each index expires: a read may wait for
/// an index far ahead, so neither order follows from the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ReadsAtLeast {
    /// Oldest first; never empty.
    by_index: BTreeMap<LogIndex, VecDeque<Waiting>>,
    /// When the oldest read of each index above expires.
    by_expiry: BTreeSet<(Instant, LogIndex)>,
}

impl ReadsAtLeast {
    fn deadline(&self) -> Option<Instant> {
        self.by_expiry.first().map(|&(expires, _)| expires)
    }

    fn add(&mut self, index: LogIndex, read: Waiting) {
        let reads = self.by_index.entry(index).or_default();
        if reads.is_empty() {
            self.by_expiry.insert((read.expires, index));
        }
        reads.push_back(read);
    }

    /// The reads of the lowest index, with that index, if it is not above `delivered`.
    fn take_upto(&mut self, delivered: LogIndex) -> Option<(LogIndex, VecDeque<Waiting>)> {
        let first = self.by_index.first_entry().filter(|first| *first.key() <= delivered)?;
        let (index, reads) = first.remove_entry();
        if let Some(oldest) = reads.front() {
            self.by_expiry.remove(&(oldest.expires, index));
        }
        Some((index, reads))
    }

    /// A read that has waited too long.
    fn take_expired(&mut self, now: Instant) -> Option<Waiting> {
        let &(expires, index) = self.by_expiry.first().filter(|(expires, _)| *expires <= now)?;
        self.by_expiry.remove(&(expires, index));
        let reads = self.by_index.get_mut(&index)?;
        let read = reads.pop_front();
        match reads.front() {
            Some(next) => drop(self.by_expiry.insert((next.expires, index))),
            None => drop(self.by_index.remove(&index)),
        }
        read
    }
}

impl Reads {
    pub(crate) fn pending(&self) -> usize {
        self.count
    }

    pub(crate) fn deadline(&self) -> Instant {
        let ask_after = Some(self.ask_after).filter(|&at| at != Instant(0));
        if self.count == 0 {
            return ask_after.unwrap_or(Instant::NEVER);
        }
        let fronts = [
            self.gathering.first().map(|read| read.expires),
            self.due.front().and_then(|(_, reads)| reads.first()).map(|read| read.expires),
            self.not_serving.front().map(|read| read.expires),
            self.at_least.deadline(),
            self.confirming.values().filter_map(|batch| batch.reads.first()).map(|read| read.expires).min(),
            ask_after,
        ];
        fronts.into_iter().flatten().min().unwrap_or(Instant::NEVER)
    }

    /// Another leader, or none: the refusal of the last one no longer counts.
    pub(crate) fn ask_at_once(&mut self) {
        self.ask_after = Instant(0);
    }

    pub(crate) fn stop(&mut self, effects: &mut Effects) {
        let confirming = core::mem::take(&mut self.confirming).into_values().flat_map(|batch| batch.reads);
        let due = core::mem::take(&mut self.due).into_iter().flat_map(|(_, reads)| reads);
        let gathering = core::mem::take(&mut self.gathering).into_iter();
        let not_serving = core::mem::take(&mut self.not_serving).into_iter();
        let at_least = core::mem::take(&mut self.at_least).by_index.into_values().flatten();
        for read in confirming.chain(due).chain(gathering).chain(not_serving).chain(at_least) {
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
        let read = Waiting { ticket, wanted, expires: now + self.request_timeout() };
        match consistency {
            Consistency::Serializable if self.serves() => self.serve(read, self.serves_from(), effects),
            Consistency::Serializable => {
                self.reads.count += read.count();
                self.reads.not_serving.push_back(read);
            }
            Consistency::AtLeast(index) if self.serves() && self.has_delivered(index) => {
                self.serve(read, index.max(self.serves_from()), effects)
            }
            Consistency::AtLeast(index) => {
                self.reads.count += read.count();
                self.reads.at_least.add(index, read);
            }
            Consistency::Bounded(_) | Consistency::Linearizable => {
                match self.fresh_enough(now, consistency) {
                    Some(needs) => self.serve(read, needs, effects),
                    None => {
                        self.reads.count += read.count();
                        self.reads.gathering.push(read);
                    }
                }
            }
        }
    }

    fn has_delivered(&self, index: LogIndex) -> bool {
        index <= self.delivered
    }

    /// The index from which everything is visible that a bounded read must see, if that index is delivered here.
    fn fresh_enough(&self, now: Instant, consistency: Consistency) -> Option<LogIndex> {
        let Consistency::Bounded(age) = consistency else { return None };
        let (asked_at, index) = self.reads.fresh?;
        (now.since(asked_at) <= age && index <= self.delivered).then_some(index)
    }

    /// The batch is complete: one round for all waiting reads, or for the proof of this member's start.
    pub(crate) fn ask_for_reads(&mut self, now: Instant, out: &mut kattu_raft::Effects) {
        let one_by_one = self.reads_one_by_one();
        let questions_max = if one_by_one { 1 } else { QUESTIONS_MAX };
        let may_ask = now >= self.reads.ask_after && self.reads.confirming.len() < questions_max;
        let is_own_due = self.confirmation.lacks_proof() && self.reads.confirming.is_empty();
        let is_due = is_own_due || !self.reads.gathering.is_empty();
        if !is_due || self.raft.leader().is_none() || !may_ask {
            return;
        }
        self.reads.batch += 1;
        let batch = self.reads.batch;
        let reads = match one_by_one && !self.reads.gathering.is_empty() {
            true => self.reads.gathering.drain(..1).collect(),
            false => core::mem::take(&mut self.reads.gathering),
        };
        self.reads.confirming.insert(batch, Confirming { reads, asked_at: now });
        self.raft.read(now, ReadBatch(batch), out);
    }

    pub(crate) fn on_read_verdict(&mut self, now: Instant, verdict: ReadVerdict, effects: &mut Effects) {
        let mut again = Vec::new();
        while let Some(first) =
            self.reads.confirming.first_entry().filter(|first| *first.key() <= verdict.upto.0)
        {
            let confirming = first.remove();
            match verdict.index {
                Some(index) => self.confirm(confirming, index, effects),
                None => again.extend(confirming.reads),
            }
        }
        match verdict.index {
            Some(index) => self.confirmation.prove(index),
            None => {
                self.gather_again(again);
                self.reads.ask_after = now + self.raft.timing().heartbeat_interval;
            }
        }
    }

    /// These reads may be served from `index` on.
    fn confirm(&mut self, confirming: Confirming, index: LogIndex, effects: &mut Effects) {
        let Confirming { reads, asked_at } = confirming;
        self.reads.fresh = self.reads.fresh.max(Some((asked_at, index)));
        if index <= self.delivered {
            for read in reads {
                self.reads.count -= read.count();
                self.serve(read, index, effects);
            }
        } else if !reads.is_empty() {
            // Verdicts may overtake each other after a leader change; the later index serves both.
            let behind = self.reads.due.back().map_or(index, |&(last, _)| index.max(last));
            self.reads.due.push_back((behind, reads));
        }
    }

    /// Reads go back to the head of the queue, oldest first.
    fn gather_again(&mut self, mut reads: Vec<Waiting>) {
        reads.sort_by_key(|read| read.expires); // some may have been in two rounds already
        reads.append(&mut self.reads.gathering);
        self.reads.gathering = reads;
    }

    /// Serves all reads that may be served now.
    pub(crate) fn release_reads(&mut self, effects: &mut Effects) {
        if self.reads.count == 0 {
            return;
        }
        while let Some(&(index, _)) = self.reads.due.front() {
            if index > self.delivered {
                break;
            }
            let (_, reads) = self.reads.due.pop_front().expect("its front was just seen");
            for read in reads {
                self.reads.count -= read.count();
                self.serve(read, index, effects);
            }
        }
        if self.serves() {
            while let Some((index, reads)) = self.reads.at_least.take_upto(self.delivered) {
                let needs = index.max(self.serves_from());
                for read in reads {
                    self.reads.count -= read.count();
                    self.serve(read, needs, effects);
                }
            }
            while let Some(read) = self.reads.not_serving.pop_front() {
                self.reads.count -= read.count();
                self.serve(read, self.serves_from(), effects);
            }
        }
    }

    /// Serves a read from any state at or after `needs`. That state is in the keeper's queue already, except for a
    /// snapshot that is being read before it: then the state before it may suffice.
    fn serve(&self, read: Waiting, needs: LogIndex, effects: &mut Effects) {
        let (ticket, term) = (read.ticket, self.raft.term());
        effects.apply.push(match read.wanted {
            Wanted::Query(query) => KeeperTask::Read { ticket, query, term, needs },
            Wanted::Keys(keys) => KeeperTask::LookUp { ticket, keys, term, needs },
            Wanted::Members => KeeperTask::Members { ticket, term, needs },
            Wanted::Pin => KeeperTask::Pin { ticket, term, needs },
        });
    }

    /// Refuses reads that have waited too long.
    pub(crate) fn expire_reads(&mut self, now: Instant, effects: &mut Effects) {
        if self.reads.ask_after <= now {
            self.reads.ask_at_once();
        }
        if self.reads.count == 0 {
            return;
        }
        let refusal = if self.raft.leader().is_some() { Refusal::ReadTimedOut } else { Refusal::NoLeader };
        let expired = |read: &Waiting| read.expires <= now;
        let mut refused: Vec<(Waiting, Refusal)> = Vec::new();
        let gathering = &mut self.reads.gathering;
        let old = gathering.iter().take_while(|read| expired(read)).count();
        refused.extend(gathering.drain(..old).map(|read| (read, refusal)));
        for batch in self.reads.confirming.values_mut() {
            let old = batch.reads.iter().take_while(|read| expired(read)).count();
            refused.extend(batch.reads.drain(..old).map(|read| (read, refusal)));
        }
        for (_, reads) in &mut self.reads.due {
            let old = reads.iter().take_while(|read| expired(read)).count();
            refused.extend(reads.drain(..old).map(|read| (read, Refusal::ReadTimedOut)));
        }
        self.reads.due.retain(|(_, reads)| !reads.is_empty());
        while let Some(read) = self.reads.at_least.take_expired(now) {
            refused.push((read, Refusal::ReadTimedOut));
        }
        while self.reads.not_serving.front().is_some_and(expired) {
            let read = self.reads.not_serving.pop_front().expect("its front was just seen");
            refused.push((read, Refusal::Replaying));
        }
        for (read, refusal) in refused {
            self.reads.count -= read.count();
            answer(effects, read.ticket, Outcome::Refused(refusal));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All reads that were added and not removed.
    type Naive = Vec<(LogIndex, Waiting)>;

    fn expired(naive: &mut Naive, now: Instant) -> Vec<Ticket> {
        let mut gone: Vec<_> = naive.extract_if(.., |(_, read)| read.expires <= now).collect();
        gone.sort_by_key(|(_, read)| read.ticket);
        gone.into_iter().map(|(_, read)| read.ticket).collect()
    }

    #[test]
    fn reads_at_least_an_index_agree_with_a_list_that_is_searched_every_time() {
        let (mut reads, mut naive) = (ReadsAtLeast::default(), Naive::new());
        let mut dice = 1_u64;
        let mut die = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % sides
        };
        let (mut served, mut refused) = (0, 0);
        for step in 1..20_000 {
            let now = Instant(step);
            match die(4) {
                0 | 1 => {
                    let (ticket, expires) = (Ticket(step), Instant(step + 40));
                    let read = Waiting { ticket, wanted: Wanted::Pin, expires };
                    let index = LogIndex(die(30));
                    reads.add(index, read.clone());
                    naive.push((index, read));
                }
                2 => {
                    let delivered = LogIndex(die(12));
                    let mut taken = Vec::new();
                    while let Some((index, reads)) = reads.take_upto(delivered) {
                        taken.extend(reads.into_iter().map(|read| (index, read)));
                    }
                    let mut expected: Naive =
                        naive.extract_if(.., |(index, _)| *index <= delivered).collect();
                    expected.sort_by_key(|(index, read)| (*index, read.ticket));
                    served += taken.len();
                    assert_eq!(taken, expected);
                }
                _ => {
                    let mut gone: Vec<_> =
                        core::iter::from_fn(|| reads.take_expired(now)).map(|read| read.ticket).collect();
                    gone.sort_unstable();
                    refused += gone.len();
                    assert_eq!(gone, expired(&mut naive, now));
                }
            }
            assert_eq!(reads.deadline(), naive.iter().map(|(_, read)| read.expires).min());
            assert_eq!(reads.by_expiry.len(), reads.by_index.len(), "one for each place");
        }
        assert!(served > 1000 && refused > 1000, "{served} served, {refused} refused");
    }
}
