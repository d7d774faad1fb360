//! Followers: SendLog, NotYet, EnterWin, Append, Flush.
//!
//! A follower's log is held by one append at a time. `claimed` is the last index that is in the log or being appended: guards
//! compare with it, because no guard can be decided while the token of `FLog[f]` is inside an append.
//! Knows nothing of: what the leader does with answers.

use super::{Event, Of, Simulator};
use crate::entries::NONE;
use crate::marking::{Nanos, Take};
use crate::net::{Place, Transition};
use crate::parameters::{OwnLog, Parameters, Weak};
use std::collections::{BTreeMap, VecDeque};

/// An entry at a follower.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// When it came to the follower, and into the place where it is.
    arrived: Nanos,
    since: Nanos,
    /// It has seen that it follows the log, and waits for the log itself.
    is_next: bool,
}

/// A follower, and what the leader keeps for it.
pub(super) struct Follower {
    /// Indexes that wait for a dispatcher.
    pub queue: VecDeque<u64>,
    /// Since when each idle dispatcher has been idle.
    pub dispatchers: VecDeque<Nanos>,
    /// Ordered stream: when the last one that was sent will be there; what is there and not read.
    pub stream_at: Nanos,
    stream: VecDeque<(u64, Nanos)>,
    pub pending: BTreeMap<u64, Held>,
    pub window: BTreeMap<u64, Held>,
    /// Last index of the log, and the last that is being appended.
    pub last: u64,
    claimed: u64,
    /// Dispatchers of the entries that are being appended.
    pub appending: u64,
    /// Since when the log has been free; nothing while it is held.
    log: Option<Nanos>,
    cores: VecDeque<Nanos>,
    /// Highest index of a strong answer that the leader has.
    pub acknowledged: u64,
}

impl Follower {
    pub fn new(parameters: &Parameters, dispatchers: u32) -> Follower {
        Follower {
            queue: VecDeque::new(),
            dispatchers: vec![0; dispatchers as usize].into(),
            stream_at: 0,
            stream: VecDeque::new(),
            pending: BTreeMap::new(),
            window: BTreeMap::new(),
            last: 0,
            claimed: 0,
            appending: 0,
            log: Some(0),
            cores: vec![0; parameters.cores as usize].into(),
            acknowledged: 0,
        }
    }
}

impl Simulator {
    pub(super) fn on_log_arrived(&mut self, follower: usize, index: u64, since: Nanos) {
        if self.setting.ordered_stream {
            self.followers[follower].stream.push_back((index, since));
            if self.parameters.log.own == OwnLog::InIndex {
                self.read_stream(follower);
            } else {
                // What was sent together is one message: it is read when all of it is there.
                self.after(0.0, Place::CpuF, Event::Read { follower: follower as u32 });
            }
        } else {
            self.arrive(follower, index, since);
            self.admit(follower, index);
        }
        self.settle();
    }

    pub(super) fn on_read(&mut self, follower: usize) {
        self.read_stream(follower);
        self.settle();
    }

    /// The one appender of an ordered stream reads on when it is free.
    fn read_stream(&mut self, follower: usize) {
        let it = &mut self.followers[follower];
        let reads_on = self.parameters.log.reads_on;
        if !reads_on && (it.log.is_none() || !it.pending.is_empty()) {
            return;
        }
        let most = if reads_on { usize::MAX } else { self.parameters.append_entries_max };
        let count = it.stream.len().min(most);
        for _ in 0..count {
            let Some((index, since)) = self.followers[follower].stream.pop_front() else { break };
            self.arrive(follower, index, since);
        }
        self.try_append(follower);
    }

    /// SendLog: an entry is at a follower.
    fn arrive(&mut self, follower: usize, index: u64, since: Nanos) {
        let now = self.now;
        let claimed = self.followers[follower].claimed;
        let bit = 1 << follower;
        let is_late = index != 1 && self.entries.find(index - 1).is_some_and(|it| it.arrived & bit == 0);
        let entry = self.entries.at(index);
        entry.arrived |= bit;
        if entry.first == NONE {
            entry.first = follower as u32;
            entry.t_queue = since - entry.indexed;
            entry.t_log = now - since;
        }
        let number = entry.request.number;
        self.tally.arrived(is_late);
        let take = Take { place: Place::NetLf, at: follower, since };
        let pending = (Place::Pending, follower);
        if self.setting.weak == Weak::Receipt && index <= claimed + self.setting.window {
            let puts = [pending, (Place::NetAck, follower)];
            self.fire(Transition::SendLog, number, &[take], &puts);
            self.answer(follower, index, false);
        } else {
            self.fire(Transition::SendLog, number, &[take], &[pending]);
        }
        let held = Held { arrived: now, since: now, is_next: false };
        self.followers[follower].pending.insert(index, held);
    }

    /// Decides what a pending entry may do: append, enter the window, or wait.
    fn admit(&mut self, follower: usize, index: u64) {
        let claimed = self.followers[follower].claimed;
        if index == claimed + 1 {
            self.followers[follower].pending.entry(index).and_modify(|held| held.is_next = true);
            self.try_append(follower);
        } else if index <= claimed + self.setting.window {
            self.enter_window(follower, index);
        } else {
            self.tally.waited();
            self.not_yet(follower, index);
            if 0.0 < self.parameters.poll_us {
                let event = Event::Poll { follower: follower as u32, index };
                self.after(self.parameters.poll_us, Place::Pending, event);
            }
        }
    }

    fn not_yet(&mut self, follower: usize, index: u64) {
        let now = self.now;
        let Some(held) = self.followers[follower].pending.get_mut(&index) else { return };
        let since = std::mem::replace(&mut held.since, now);
        let number = self.entries.at(index).request.number;
        let take = Take { place: Place::Pending, at: follower, since };
        self.fire(Transition::NotYet, number, &[take], &[(Place::Pending, follower)]);
    }

    /// A waiting appender looks again.
    pub(super) fn on_poll(&mut self, follower: usize, index: u64) {
        if self.followers[follower].pending.contains_key(&index) {
            self.admit(follower, index);
        }
        self.settle();
    }

    fn enter_window(&mut self, follower: usize, index: u64) {
        let now = self.now;
        let Some(held) = self.followers[follower].pending.remove(&index) else { return };
        let number = self.entries.at(index).request.number;
        let take = Take { place: Place::Pending, at: follower, since: held.since };
        let answers = self.setting.weak == Weak::Gap;
        let (window, ack, dispatcher) =
            ((Place::Win, follower), (Place::NetAck, follower), (Place::Disp, follower));
        let puts: &[_] = match (answers, self.keeps_dispatcher()) {
            (true, true) => &[window, ack, dispatcher],
            (true, false) => &[window, ack],
            (false, true) => &[window, dispatcher],
            (false, false) => &[window],
        };
        self.fire(Transition::EnterWin, number, &[take], puts);
        self.followers[follower].window.insert(index, Held { since: now, ..held });
        if answers {
            self.answer(follower, index, false);
        }
        if self.keeps_dispatcher() {
            self.free_dispatchers(follower, 1);
        }
    }

    fn free_dispatchers(&mut self, follower: usize, count: usize) {
        let now = self.now;
        self.followers[follower].dispatchers.extend(std::iter::repeat_n(now, count));
        self.try_dequeue(follower);
    }

    fn answer(&mut self, follower: usize, index: u64, is_strong: bool) {
        let latency = self.parameters.peer_latency;
        let micros = latency.draw(self.random(Of::Ways));
        let event = Event::Answered { follower: follower as u32, index, is_strong, since: self.now };
        self.after(micros, Place::NetAck, event);
    }

    /// Appends what follows the log: from the window, or else what is pending.
    fn try_append(&mut self, follower: usize) {
        let it = &mut self.followers[follower];
        let first = it.claimed + 1;
        let is_flush = it.window.contains_key(&first);
        if it.log.is_none() || it.cores.is_empty() || !(is_flush || it.pending.contains_key(&first)) {
            return;
        }
        let (Some(free), Some(idle)) = (it.log.take(), it.cores.pop_front()) else { return };
        let transition = if is_flush { Transition::Flush } else { Transition::Append };
        let place = if is_flush { Place::Win } else { Place::Pending };
        let mut takes = Vec::with_capacity(3);
        takes.push(Take { place: Place::FLog, at: follower, since: free });
        takes.push(Take { place: Place::CpuF, at: follower, since: idle });
        let mut last = first;
        while last < first + self.parameters.append_entries_max as u64 {
            let it = &mut self.followers[follower];
            let from = if is_flush { &mut it.window } else { &mut it.pending };
            let Some(held) = from.remove(&last) else { break };
            takes.push(Take { place, at: follower, since: held.since });
            let now = self.now;
            let entry = self.entries.at(last);
            if entry.first == follower as u32 {
                entry.t_wait = now - held.arrived;
                // When the append began, until it ends.
                entry.t_append = now;
            }
            last += 1;
        }
        let last = last - 1;
        self.followers[follower].claimed = last;
        if !is_flush && self.keeps_dispatcher() {
            self.followers[follower].appending = last + 1 - first;
        }
        let number = self.entries.at(first).request.number;
        let slowdown = self.follower_slowdown(follower);
        self.start(transition, number, &takes);
        let append = self.parameters.append;
        let each = self.parameters.log.append_each_us * (last + 1 - first) as f64;
        let micros = (append.draw(self.random(Of::Members)) + each) * slowdown;
        let event = Event::AppendWritten { follower: follower as u32, first, last, is_flush };
        self.work(micros, Place::FLog, event);
    }

    pub(super) fn on_append_written(&mut self, follower: usize, first: u64, last: u64, is_flush: bool) {
        let disk = self.parameters.log.append_disk;
        let micros = disk.draw(self.random(Of::Members));
        if micros == 0.0 {
            return self.on_appended(follower, first, last, is_flush);
        }
        let event = Event::Appended { follower: follower as u32, first, last, is_flush };
        self.after(micros, Place::FLog, event);
    }

    pub(super) fn on_appended(&mut self, follower: usize, first: u64, last: u64, is_flush: bool) {
        let now = self.now;
        for index in first..=last {
            let entry = self.entries.at(index);
            entry.appended += 1;
            if entry.appended == 1 {
                entry.first_append = now;
            }
            if entry.first == follower as u32 {
                entry.t_append = now - entry.t_append;
            }
        }
        let number = self.entries.at(first).request.number;
        let it = &mut self.followers[follower];
        it.last = last;
        it.log = Some(now);
        it.cores.push_back(now);
        // A flush answers once, for its end.
        let answers = !is_flush || !it.window.contains_key(&(last + 1));
        let frees = std::mem::take(&mut it.appending) as usize;
        let mut puts = vec![(Place::FLog, follower), (Place::CpuF, follower)];
        if answers {
            puts.push((Place::NetAck, follower));
        }
        puts.extend(std::iter::repeat_n((Place::Disp, follower), frees));
        let transition = if is_flush { Transition::Flush } else { Transition::Append };
        self.finish(transition, number, &puts);
        if answers {
            self.answer(follower, last, true);
        }
        self.free_dispatchers(follower, frees);
        self.retire();
        self.log_grew(follower);
        self.settle();
    }

    /// The log of a follower has grown: waiting entries look again.
    fn log_grew(&mut self, follower: usize) {
        if self.setting.ordered_stream {
            self.read_stream(follower);
            return;
        }
        let is_polled = 0.0 < self.parameters.poll_us;
        let it = &self.followers[follower];
        let next = it.claimed + 1;
        let has_seen = it.pending.get(&next).is_some_and(|held| held.is_next);
        if !is_polled || has_seen || it.window.contains_key(&next) {
            self.try_append(follower);
        }
        let end = self.followers[follower].claimed + self.setting.window;
        let claimed = self.followers[follower].claimed;
        while let Some(index) = self.followers[follower].pending.range(claimed + 2..).next().map(|(i, _)| *i)
            && index <= end
            && !is_polled
        {
            self.enter_window(follower, index);
        }
    }
}
