//! Host: processors that all members and clients share, and the one thread of all clients on them.
//!
//! Work under way is shared equally: of `n` pieces on `c` processors each goes on at the speed `min(1, c / n)`. Without a host, work
//! takes its time, as if its machine were its own.
//! Knows nothing of: what is worked on.

use super::{Event, Simulator};
use crate::marking::Nanos;
use crate::net::Place;
use std::collections::VecDeque;

/// Pieces of work under way.
pub(super) struct Sharing {
    cores: f64,
    /// Nanoseconds of work that are left, and what happens then.
    pieces: Vec<(f64, Event)>,
    changed_at: Nanos,
    /// Counts changes: an end that was planned before the last one is void.
    change: u64,
}

impl Sharing {
    pub fn new(cores: u32) -> Sharing {
        Sharing { cores: f64::from(cores), pieces: Vec::new(), changed_at: 0, change: 0 }
    }

    fn speed(&self) -> f64 {
        (self.cores / self.pieces.len().max(1) as f64).min(1.0)
    }

    fn pass(&mut self, now: Nanos) {
        let done = (now - self.changed_at) as f64 * self.speed();
        self.pieces.iter_mut().for_each(|(left, _)| *left -= done);
        self.changed_at = now;
    }

    /// When the next piece ends, unless something changes before.
    fn plan(&mut self, now: Nanos) -> Option<(Nanos, u64)> {
        self.change += 1;
        let least = self.pieces.iter().map(|(left, _)| left.max(0.0)).min_by(f64::total_cmp)?;
        Some((now + (least / self.speed()).round() as Nanos, self.change))
    }

    fn begin(&mut self, now: Nanos, nanos: f64, event: Event) -> Option<(Nanos, u64)> {
        self.pass(now);
        self.pieces.push((nanos, event));
        self.plan(now)
    }

    /// What has ended, in the order of its beginning; nothing if the plan is void.
    fn ended(&mut self, now: Nanos, change: u64) -> Vec<Event> {
        if change != self.change {
            return Vec::new();
        }
        self.pass(now);
        // Ends are planned to the nanosecond.
        let is_done = |piece: &(f64, Event)| piece.0 < 1.0;
        let ended = self.pieces.iter().filter(|piece| is_done(piece)).map(|piece| piece.1).collect();
        self.pieces.retain(|piece| !is_done(piece));
        ended
    }
}

/// The thread of all clients: it makes one request at a time, and sends those of a connection together.
#[derive(Default)]
pub(super) struct ClientThread {
    is_busy: bool,
    waiting: VecDeque<(f64, Event)>,
    /// Requests that were made and not sent, by connection; how many clients of each are about to make one.
    made: Vec<Vec<u32>>,
    about_to: Vec<usize>,
}

impl ClientThread {
    pub fn of(clients: usize, together: u32) -> ClientThread {
        let connections = clients.div_ceil(together as usize);
        let (made, about_to) = (vec![Vec::new(); connections], vec![0; connections]);
        ClientThread { made, about_to, ..ClientThread::default() }
    }

    fn connection(&self, client: usize) -> usize {
        client % self.made.len().max(1)
    }
}

impl Simulator {
    /// What happens after so many microseconds of processor time.
    pub(super) fn work(&mut self, micros: f64, place: Place, event: Event) {
        let now = self.now;
        match &mut self.sharing {
            None => self.after(micros, place, event),
            Some(sharing) => {
                let planned = sharing.begin(now, micros * 1e3, event);
                self.enter_host(planned);
            }
        }
    }

    fn enter_host(&mut self, planned: Option<(Nanos, u64)>) {
        if let Some((at, change)) = planned {
            self.agenda.enter(at, Place::CpuL, Event::Host { change });
        }
    }

    pub(super) fn on_host(&mut self, change: u64) {
        let now = self.now;
        let Some(sharing) = &mut self.sharing else { return };
        let ended = sharing.ended(now, change);
        if ended.is_empty() {
            return;
        }
        let planned = sharing.plan(now);
        self.enter_host(planned);
        ended.into_iter().for_each(|event| self.handle(event));
    }

    /// A client makes a request: with a host, on the thread of all clients.
    pub(super) fn work_of_client(&mut self, client: usize, micros: f64, event: Event) {
        let Some(host) = self.parameters.host else { return self.after(micros, Place::Ack, event) };
        let thread = &mut self.client_thread;
        let connection = thread.connection(client);
        thread.about_to[connection] += 1;
        if thread.is_busy {
            thread.waiting.push_back((micros, event));
        } else {
            thread.is_busy = true;
            self.work(host.client_wake_us + micros, Place::Ack, event);
        }
    }

    /// A client has made its request. Returns those that are sent now; the thread goes on with the next one.
    pub(super) fn made(&mut self, client: usize, slot: u32) -> Vec<u32> {
        if self.sharing.is_none() || self.setting.is_open() {
            return vec![slot];
        }
        let thread = &mut self.client_thread;
        let connection = thread.connection(client);
        thread.made[connection].push(slot);
        thread.about_to[connection] -= 1;
        let sent = match thread.about_to[connection] {
            0 => std::mem::take(&mut thread.made[connection]),
            _ => Vec::new(),
        };
        match thread.waiting.pop_front() {
            Some((micros, event)) => self.work(micros, Place::Ack, event),
            None => thread.is_busy = false,
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_pieces_on_two_processors_go_on_at_two_thirds_of_the_speed() {
        let mut sharing = Sharing::new(2);
        assert_eq!(sharing.begin(0, 1000.0, Event::Fail), Some((1000, 1)));
        assert_eq!(sharing.begin(0, 2000.0, Event::Elect), Some((1000, 2)));
        // From 400 on they are three: 600 that are left of the first take 900.
        let third = sharing.begin(400, 3000.0, Event::Indexed).expect("a plan");
        assert_eq!(third, (1300, 3));
        assert!(sharing.ended(1000, 2).is_empty(), "the plan is void");
        assert!(matches!(sharing.ended(1300, 3)[..], [Event::Fail]));
        // Two are left, at full speed: the second had 2000 and has done 400 + 600.
        assert_eq!(sharing.plan(1300), Some((2300, 4)));
    }
}
