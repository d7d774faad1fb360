//! Leader: Parse, Index, Persist, Dequeue, Collect, EarlyReturn, Commit, Apply, Reply.
//!
//! Knows nothing of: what a follower does before it answers.

use super::{Event, Of, Simulator};
use crate::entries::Entry;
use crate::link::Link;
use crate::marking::{Nanos, Take};
use crate::net::{Place, Transition};
use crate::parameters::{OwnLog, Parameters, REPLICAS_MAX, Setting, Weak};
use std::collections::VecDeque;

/// What the leader knows beside the entries.
pub(super) struct Leader {
    /// Requests that wait for a core, and for the index lock.
    pool: VecDeque<u32>,
    /// Requests of the pool that are taken in now.
    intake: usize,
    is_intake_planned: bool,
    parsed: VecDeque<u32>,
    /// Since when each idle core, the lock, and each idle apply thread have been idle.
    cores: VecDeque<Nanos>,
    lock: Option<Nanos>,
    appliers: VecDeque<Nanos>,
    /// Requests that get their indexes now.
    pub indexing: Vec<u32>,
    /// Entries that are not in the own log, with the time at which they had their index; those that are being written.
    unsynced: VecDeque<(u64, Nanos)>,
    persisting: u64,
    /// Since when the own log has been free; nothing while it is written. The last index in it.
    log: Option<Nanos>,
    pub persisted: u64,
    /// Answers that are there and wait until the thread is free.
    unread: VecDeque<(usize, u64, bool, Nanos)>,
    /// Answers that wait for those that are ready soon: client, number, birth, since when.
    answers: Vec<(u32, u64, Nanos, Nanos)>,
    /// The outgoing bandwidth, if it is limited: follower, index, time of the dequeue.
    pub link: Option<Link<(u32, u64, Nanos)>>,
    /// Highest index that a strong quorum has.
    quorum: u64,
    /// Highest index of which the commit has started, and ended.
    commit_started: u64,
    pub committed: u64,
    to_apply: VecDeque<u64>,
}

impl Leader {
    pub fn new(parameters: &Parameters, setting: &Setting) -> Leader {
        let link = Link::new(setting.payload_bytes, parameters.bandwidth_gbps);
        Leader {
            pool: VecDeque::new(),
            intake: 0,
            is_intake_planned: false,
            parsed: VecDeque::new(),
            cores: vec![0; parameters.cores as usize].into(),
            lock: Some(0),
            appliers: vec![0; parameters.appliers as usize].into(),
            indexing: Vec::new(),
            unsynced: VecDeque::new(),
            persisting: 0,
            log: Some(0),
            persisted: 0,
            unread: VecDeque::new(),
            answers: Vec::new(),
            link: link.is_limited().then_some(link),
            quorum: 0,
            commit_started: 0,
            committed: 0,
            to_apply: VecDeque::new(),
        }
    }

    /// Entries that are being written to the own log.
    pub fn in_persist(&self) -> u64 {
        self.persisting
    }
}

impl Simulator {
    pub(super) fn on_request_arrived(&mut self, slot: u32) {
        if !self.is_leader_up {
            return;
        }
        let now = self.now;
        let request = &mut self.requests[slot as usize];
        let (number, since) = (request.number, request.since);
        (request.t_trans, request.since) = (now - since, now);
        let take = Take { place: Place::NetCl, at: 0, since };
        self.fire(Transition::ArriveReq, number, &[take], &[(Place::ReqPool, 0)]);
        self.leader.pool.push_back(slot);
        self.plan_intake();
        self.try_parse();
        self.settle();
    }

    /// A member with an own log takes in all that is there when its thread is free, gives it indexes, and only then looks again.
    /// Requests that come at the same time are taken in together.
    fn plan_intake(&mut self) {
        let leader = &self.leader;
        let is_at_work = 0 < leader.intake || !leader.parsed.is_empty() || !leader.indexing.is_empty();
        let is_idle = !is_at_work && self.marking.inside(Transition::Parse) == 0 && self.is_thread_free();
        if self.parameters.log.own != OwnLog::InIndex
            && is_idle
            && !leader.pool.is_empty()
            && !leader.is_intake_planned
        {
            self.leader.is_intake_planned = true;
            self.after(0.0, Place::CpuF, Event::TakeIn);
        }
    }

    pub(super) fn on_take_in(&mut self) {
        self.leader.is_intake_planned = false;
        if self.is_leader_up && self.is_thread_free() {
            self.leader.intake = self.leader.pool.len();
            self.try_parse();
        }
        self.settle();
    }

    fn try_parse(&mut self) {
        while !self.leader.pool.is_empty()
            && (self.parameters.log.own == OwnLog::InIndex || 0 < self.leader.intake)
            && let Some(idle) = self.leader.cores.pop_front()
        {
            let Some(slot) = self.leader.pool.pop_front() else { return };
            self.leader.intake = self.leader.intake.saturating_sub(1);
            let request = self.requests[slot as usize];
            let takes = [
                Take { place: Place::ReqPool, at: 0, since: request.since },
                Take { place: Place::CpuL, at: 0, since: idle },
            ];
            self.start(Transition::Parse, request.number, &takes);
            let parse = self.parameters.parse;
            let micros = parse.draw(self.random(Of::Members)) * self.leader_slowdown();
            self.work(micros, Place::ReqPool, Event::Parsed { request: slot });
        }
    }

    pub(super) fn on_parsed(&mut self, slot: u32) {
        if !self.is_leader_up {
            return;
        }
        let now = self.now;
        let request = &mut self.requests[slot as usize];
        (request.t_prs, request.since) = (now - request.since, now);
        let number = request.number;
        self.finish(Transition::Parse, number, &[(Place::Parsed, 0), (Place::CpuL, 0)]);
        self.leader.cores.push_back(now);
        self.leader.parsed.push_back(slot);
        self.try_index();
        self.try_parse();
        self.settle();
    }

    /// Whether the thread is free that writes the own log beside all else. [`OwnLog::Inline`]
    fn is_thread_free(&self) -> bool {
        self.parameters.log.own != OwnLog::Inline || self.leader.lock.is_some()
    }

    fn try_index(&mut self) {
        // In S4 the lock is taken by one request after the other.
        let takes_in = self.parameters.log.own != OwnLog::InIndex
            && (0 < self.leader.intake || 0 < self.marking.inside(Transition::Parse));
        if self.leader.parsed.is_empty() || takes_in {
            return;
        }
        let Some(idle) = self.leader.lock.take() else { return };
        let count = self.leader.parsed.len().min(self.parameters.log.index_entries_max);
        let mut indexing = std::mem::take(&mut self.leader.indexing);
        indexing.extend(self.leader.parsed.drain(..count));
        let mut takes = Vec::with_capacity(count + 1);
        takes.push(Take { place: Place::IdxLock, at: 0, since: idle });
        let since = |slot: &u32| self.requests[*slot as usize].since;
        takes.extend(indexing.iter().map(|slot| Take { place: Place::Parsed, at: 0, since: since(slot) }));
        let number = self.requests[indexing[0] as usize].number;
        self.leader.indexing = indexing;
        self.start(Transition::Index, number, &takes);
        let index = self.parameters.index;
        let micros = index.draw(self.random(Of::Members)) * self.leader_slowdown();
        self.work(micros, Place::Parsed, Event::Indexed);
    }

    pub(super) fn on_indexed(&mut self) {
        if !self.is_leader_up {
            return;
        }
        let now = self.now;
        let peers = self.followers.len();
        let indexing = std::mem::take(&mut self.leader.indexing);
        let has_own_log = self.parameters.log.own != OwnLog::InIndex;
        let number = self.requests[indexing[0] as usize].number;
        let first = self.entries.next_index();
        let mut puts = Vec::with_capacity(1 + indexing.len() * (3 + peers));
        puts.push((Place::IdxLock, 0));
        for (index, slot) in (first..).zip(&indexing) {
            let request = self.requests[*slot as usize];
            self.free.push(*slot);
            self.entries.push(Entry { t_idx: now - request.since, ..Entry::of(request, now) });
            puts.extend([(Place::LeaderLog, 0), (Place::Vl, 0)]);
            puts.extend((0..peers).map(|follower| (Place::Queue, follower)));
            if has_own_log {
                puts.push((Place::Unsynced, 0));
                self.leader.unsynced.push_back((index, now));
            }
        }
        self.finish(Transition::Index, number, &puts);
        self.leader.lock = Some(now);
        for follower in 0..peers {
            self.followers[follower].queue.extend((first..).take(indexing.len()));
            self.try_dequeue(follower);
        }
        self.try_persist();
        self.lock_is_free();
        self.settle();
    }

    /// The thread that holds the index lock reads what has come meanwhile, if the lock is still free.
    fn lock_is_free(&mut self) {
        while self.leader.lock.is_some()
            && let Some((follower, index, is_strong, since)) = self.leader.unread.pop_front()
        {
            self.collect(follower, index, is_strong, since);
        }
        self.plan_intake();
        self.try_index();
    }

    /// Writes what is not in the own log. [`OwnLog`]
    fn try_persist(&mut self) {
        let holds_lock = self.parameters.log.own == OwnLog::Inline;
        let leader = &mut self.leader;
        if leader.unsynced.is_empty() || leader.log.is_none() || (holds_lock && leader.lock.is_none()) {
            return;
        }
        let mut takes = Vec::with_capacity(leader.unsynced.len() + 2);
        takes.extend(leader.log.take().map(|since| Take { place: Place::LLog, at: 0, since }));
        if holds_lock {
            takes.extend(leader.lock.take().map(|since| Take { place: Place::IdxLock, at: 0, since }));
        }
        let entries = leader.unsynced.drain(..);
        takes.extend(entries.map(|(_, since)| Take { place: Place::Unsynced, at: 0, since }));
        leader.persisting = takes.iter().filter(|take| take.place == Place::Unsynced).count() as u64;
        let number = self.leader.persisted + 1;
        self.start(Transition::Persist, number, &takes);
        let (persist, slowdown) = (self.parameters.log.persist, self.leader_slowdown());
        let micros = persist.draw(self.random(Of::Members)) * slowdown;
        self.work(micros, Place::Unsynced, Event::PersistWritten);
    }

    pub(super) fn on_persist_written(&mut self) {
        let disk = self.parameters.log.persist_disk;
        let micros = disk.draw(self.random(Of::Members));
        self.after(micros, Place::LLog, Event::Persisted);
    }

    pub(super) fn on_persisted(&mut self) {
        if !self.is_leader_up {
            return;
        }
        let now = self.now;
        let leader = &mut self.leader;
        let number = leader.persisted + 1;
        leader.persisted += std::mem::take(&mut leader.persisting);
        leader.log = Some(now);
        if self.parameters.log.own == OwnLog::Inline {
            leader.lock = Some(now);
            self.finish(Transition::Persist, number, &[(Place::LLog, 0), (Place::IdxLock, 0)]);
        } else {
            self.finish(Transition::Persist, number, &[(Place::LLog, 0)]);
        }
        self.raise_quorum();
        self.try_commit();
        self.lock_is_free();
        self.try_persist();
        self.settle();
    }

    /// Dispatchers of a follower take what waits for it.
    pub(super) fn try_dequeue(&mut self, follower: usize) {
        let now = self.now;
        while self.is_leader_up
            && !self.followers[follower].queue.is_empty()
            && let Some(idle) = self.followers[follower].dispatchers.pop_front()
        {
            let Some(index) = self.followers[follower].queue.pop_front() else { return };
            let entry = self.entries.at(index);
            let number = entry.request.number;
            let takes = [
                Take { place: Place::Queue, at: follower, since: entry.indexed },
                Take { place: Place::Disp, at: follower, since: idle },
            ];
            let sent = (Place::NetLf, follower);
            if self.keeps_dispatcher() {
                self.fire(Transition::Dequeue, number, &takes, &[sent]);
            } else {
                self.fire(Transition::Dequeue, number, &takes, &[sent, (Place::Disp, follower)]);
                self.followers[follower].dispatchers.push_back(now);
            }
            match &mut self.leader.link {
                Some(link) => {
                    let planned = link.begin(now, (follower as u32, index, now));
                    let event = Event::PeerLink { change: planned.change };
                    self.agenda.enter(planned.at, Place::NetLf, event);
                }
                None => self.travel_to_follower(follower, index, now),
            }
        }
    }

    /// Whether a dispatcher waits until the follower has the entry.
    pub(super) fn keeps_dispatcher(&self) -> bool {
        self.setting.synchronous && !self.setting.ordered_stream
    }

    pub(super) fn on_peer_link(&mut self, change: u64) {
        let Some(link) = &mut self.leader.link else { return };
        let Some(((follower, index, since), next)) = link.end(self.now, change) else { return };
        if let Some(next) = next {
            self.agenda.enter(next.at, Place::NetLf, Event::PeerLink { change: next.change });
        }
        self.travel_to_follower(follower as usize, index, since);
    }

    fn travel_to_follower(&mut self, follower: usize, index: u64, since: Nanos) {
        let (latency, scheduling) = (self.parameters.peer_latency, self.parameters.scheduling);
        let slowdown = self.follower_slowdown(follower);
        let random = self.random(Of::Ways);
        let micros = latency.draw(random) + scheduling.draw(random) * slowdown;
        let mut at = self.now + super::nanos(micros);
        if self.setting.ordered_stream {
            let before = &mut self.followers[follower].stream_at;
            at = at.max(*before);
            *before = at;
        }
        let event = Event::LogArrived { follower: follower as u32, index, since };
        self.agenda.enter(at, Place::NetLf, event);
    }

    pub(super) fn on_answered(&mut self, follower: usize, index: u64, is_strong: bool, since: Nanos) {
        if !self.is_leader_up {
            return;
        }
        // One thread reads answers and holds the lock; in S4 they are several.
        if self.parameters.log.own != OwnLog::InIndex && self.leader.lock.is_none() {
            self.leader.unread.push_back((follower, index, is_strong, since));
        } else {
            self.collect(follower, index, is_strong, since);
        }
        self.settle();
    }

    fn collect(&mut self, follower: usize, index: u64, is_strong: bool, since: Nanos) {
        let number = self.entries.find(index).map_or(0, |entry| entry.request.number);
        let take = Take { place: Place::NetAck, at: follower, since };
        self.fire(Transition::Collect, number, &[take], &[]);
        let acknowledged = self.followers[follower].acknowledged;
        let first = if is_strong { acknowledged + 1 } else { index };
        for index in first..=index {
            self.received(follower, index);
        }
        if is_strong && acknowledged < index {
            self.followers[follower].acknowledged = index;
            self.raise_quorum();
        }
        self.try_commit();
    }

    /// The leader knows that a follower has an entry, be it in its log or not.
    fn received(&mut self, follower: usize, index: u64) {
        let majority = self.setting.majority() as u32;
        let is_open = self.setting.weak != Weak::Off && self.leader.commit_started < index;
        let now = self.now;
        let Some(entry) = self.entries.find(index) else { return };
        entry.received |= 1 << follower;
        if is_open && !entry.is_early && majority <= entry.received.count_ones() + 1 {
            entry.is_early = true;
            let request = entry.request;
            self.tally.early_open += 1;
            self.fire(Transition::EarlyReturn, request.number, &[], &[(Place::NetLc, 0)]);
            let latency = self.parameters.client_latency;
            let micros = latency.draw(self.random(Of::Clients));
            let (client, number, born) = (request.client, request.number, request.born);
            self.after(micros, Place::NetLc, Event::WeakReply { index, client, number, born, since: now });
        }
    }

    fn raise_quorum(&mut self) {
        let mut stored = [0; REPLICAS_MAX];
        // The leader itself is one of the majority, as far as its own log goes.
        stored[0] = match self.parameters.log.own {
            OwnLog::InIndex => u64::MAX,
            OwnLog::Inline | OwnLog::Thread => self.leader.persisted,
        };
        for (place, follower) in stored[1..].iter_mut().zip(&self.followers) {
            *place = follower.acknowledged;
        }
        let stored = &mut stored[..=self.followers.len()];
        stored.sort_unstable_by(|left, right| right.cmp(left));
        let quorum = stored[self.setting.majority() - 1];
        for index in self.leader.quorum + 1..=quorum {
            self.entries.at(index).quorum = self.now;
        }
        self.leader.quorum = self.leader.quorum.max(quorum);
    }

    fn try_commit(&mut self) {
        let leader = &mut self.leader;
        if leader.commit_started != leader.committed || leader.quorum <= leader.committed {
            return;
        }
        leader.commit_started += 1;
        let index = leader.commit_started;
        let entry = self.entries.at(index);
        let (number, since) = (entry.request.number, entry.indexed);
        self.start(Transition::Commit, number, &[Take { place: Place::Vl, at: 0, since }]);
        let commit = self.parameters.commit;
        let micros = commit.draw(self.random(Of::Members)) * self.leader_slowdown();
        self.work(micros, Place::Vl, Event::Committed { index });
    }

    pub(super) fn on_committed(&mut self, index: u64) {
        if !self.is_leader_up {
            return;
        }
        let now = self.now;
        let entry = self.entries.at(index);
        entry.committed = now;
        let number = entry.request.number;
        self.finish(Transition::Commit, number, &[(Place::Committed, 0)]);
        self.leader.committed = index;
        self.strong_note(index);
        self.leader.to_apply.push_back(index);
        self.try_apply();
        self.try_commit();
        self.settle();
    }

    fn try_apply(&mut self) {
        while !self.leader.to_apply.is_empty()
            && let Some(idle) = self.leader.appliers.pop_front()
        {
            let Some(index) = self.leader.to_apply.pop_front() else { return };
            let entry = self.entries.at(index);
            let (number, since) = (entry.request.number, entry.committed);
            let takes = [
                Take { place: Place::Committed, at: 0, since },
                Take { place: Place::Applier, at: 0, since: idle },
            ];
            self.start(Transition::Apply, number, &takes);
            let apply = self.parameters.apply;
            let micros = apply.draw(self.random(Of::Members)) * self.leader_slowdown();
            self.work(micros, Place::Committed, Event::Applied { index });
        }
    }

    pub(super) fn on_applied(&mut self, index: u64) {
        if !self.is_leader_up {
            return;
        }
        let now = self.now;
        let entry = self.entries.at(index);
        (entry.applied, entry.is_applied) = (now, true);
        let (request, is_early) = (entry.request, entry.is_early);
        let (client, number, born) = (request.client, request.number, request.born);
        self.finish(Transition::Apply, number, &[(Place::Applied, 0), (Place::Applier, 0)]);
        self.leader.appliers.push_back(now);
        let take = Take { place: Place::Applied, at: 0, since: now };
        if is_early {
            self.fire(Transition::Reply, number, &[take], &[]);
            self.tally.early_open -= 1;
        } else {
            self.fire(Transition::Reply, number, &[take], &[(Place::NetLc, 0)]);
            self.leader.answers.push((client, number, born, now));
        }
        self.tally.applied(now, born);
        self.retire();
        self.try_apply();
        self.send_answers();
        self.settle();
    }

    /// Answers leave one by one, as in S4, or with a host together: when nothing is left that is about to be applied.
    fn send_answers(&mut self) {
        let leader = &self.leader;
        let are_more = leader.committed < leader.quorum || 0 < self.marking.inside(Transition::Apply);
        if self.sharing.is_some() && are_more {
            return;
        }
        let latency = self.parameters.client_latency;
        for (client, number, born, since) in std::mem::take(&mut self.leader.answers) {
            let micros = latency.draw(self.random(Of::Clients));
            self.after(micros, Place::NetLc, Event::StrongReply { client, number, born, since });
        }
    }

    /// Entries that are applied, and are in every log, are measured and forgotten.
    pub(super) fn retire(&mut self) {
        let peers = self.followers.len() as u32;
        while let Some(entry) = self.entries.pop_if(|entry| entry.is_applied && entry.appended == peers) {
            self.tally.entry(&entry);
        }
    }
}
