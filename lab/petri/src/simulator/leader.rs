//! Leader: Parse, Index, Dequeue, Collect, EarlyReturn, Commit, Apply, Reply.
//!
//! Knows nothing of: what a follower does before it answers.

use super::{Event, Of, Simulator};
use crate::entries::Entry;
use crate::link::Link;
use crate::marking::{Nanos, Take};
use crate::net::{Place, Transition};
use crate::parameters::{Parameters, REPLICAS_MAX, Setting, Weak};
use std::collections::VecDeque;

/// What the leader knows beside the entries.
pub(super) struct Leader {
    /// Requests that wait for a core, and for the index lock.
    pool: VecDeque<u32>,
    parsed: VecDeque<u32>,
    /// Since when each idle core, the lock, and each idle apply thread have been idle.
    cores: VecDeque<Nanos>,
    lock: Option<Nanos>,
    appliers: VecDeque<Nanos>,
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
            parsed: VecDeque::new(),
            cores: vec![0; parameters.cores as usize].into(),
            lock: Some(0),
            appliers: vec![0; parameters.appliers as usize].into(),
            link: link.is_limited().then_some(link),
            quorum: 0,
            commit_started: 0,
            committed: 0,
            to_apply: VecDeque::new(),
        }
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
        self.try_parse();
        self.settle();
    }

    fn try_parse(&mut self) {
        while !self.leader.pool.is_empty()
            && let Some(idle) = self.leader.cores.pop_front()
        {
            let Some(slot) = self.leader.pool.pop_front() else { return };
            let request = self.requests[slot as usize];
            let takes = [
                Take { place: Place::ReqPool, at: 0, since: request.since },
                Take { place: Place::CpuL, at: 0, since: idle },
            ];
            self.start(Transition::Parse, request.number, &takes);
            let parse = self.parameters.parse;
            let micros = parse.draw(self.random(Of::Members)) * self.leader_slowdown();
            self.after(micros, Place::ReqPool, Event::Parsed { request: slot });
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

    fn try_index(&mut self) {
        if self.leader.parsed.is_empty() {
            return;
        }
        let Some(idle) = self.leader.lock.take() else { return };
        let Some(slot) = self.leader.parsed.pop_front() else { return };
        let request = self.requests[slot as usize];
        let takes = [
            Take { place: Place::Parsed, at: 0, since: request.since },
            Take { place: Place::IdxLock, at: 0, since: idle },
        ];
        self.start(Transition::Index, request.number, &takes);
        let index = self.parameters.index;
        let micros = index.draw(self.random(Of::Members)) * self.leader_slowdown();
        self.after(micros, Place::Parsed, Event::Indexed { request: slot });
    }

    pub(super) fn on_indexed(&mut self, slot: u32) {
        if !self.is_leader_up {
            return;
        }
        let now = self.now;
        let request = self.requests[slot as usize];
        self.free.push(slot);
        let index = self.entries.next_index();
        self.entries.push(Entry { t_idx: now - request.since, ..Entry::of(request, now) });
        let peers = self.followers.len();
        let mut puts = [(Place::IdxLock, 0); REPLICAS_MAX + 2];
        (puts[1], puts[2]) = ((Place::LeaderLog, 0), (Place::Vl, 0));
        for follower in 0..peers {
            puts[3 + follower] = (Place::Queue, follower);
        }
        self.finish(Transition::Index, request.number, &puts[..3 + peers]);
        self.leader.lock = Some(now);
        for follower in 0..peers {
            self.followers[follower].queue.push_back(index);
            self.try_dequeue(follower);
        }
        self.try_index();
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
        self.settle();
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
        let mut acknowledged = [0; REPLICAS_MAX];
        let peers = self.followers.len();
        for (place, follower) in acknowledged.iter_mut().zip(&self.followers) {
            *place = follower.acknowledged;
        }
        let acknowledged = &mut acknowledged[..peers];
        acknowledged.sort_unstable_by(|left, right| right.cmp(left));
        // The leader itself is one of the majority.
        let quorum = acknowledged[self.setting.majority() - 2];
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
        self.after(micros, Place::Vl, Event::Committed { index });
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
            self.after(micros, Place::Committed, Event::Applied { index });
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
            let latency = self.parameters.client_latency;
            let micros = latency.draw(self.random(Of::Clients));
            self.after(micros, Place::NetLc, Event::StrongReply { client, number, born, since: now });
        }
        self.tally.applied(now, born);
        self.retire();
        self.try_apply();
        self.settle();
    }

    /// Entries that are applied, and are in every log, are measured and forgotten.
    pub(super) fn retire(&mut self) {
        let peers = self.followers.len() as u32;
        while let Some(entry) = self.entries.pop_if(|entry| entry.is_applied && entry.appended == peers) {
            self.tally.entry(&entry);
        }
    }
}
