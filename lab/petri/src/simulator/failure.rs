//! Failure: the leader ends, a follower is elected, and what was lost is counted.
//!
//! ```text
//!   Fail ─── the followers go on with what is on the way ─── Elect ─── Retry ─── the run ends
//!       ◀──────────────── follower timeout ─────────────▶
//! ```
//! What the leader has put on the way still arrives: the kernel of its machine sends what it has. What is in windows when the
//! follower is elected is dropped, as is what arrives later.
//! Knows nothing of: how the new leader goes on.

use super::{Event, Of, Simulator};
use crate::marking::Take;
use crate::net::{Place, Transition};
use serde::Serialize;

/// When the leader ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    /// Microseconds since the start of the run.
    pub at_us: f64,
    /// Follower timeout: microseconds from the end of the leader to the election.
    pub timeout_us: f64,
    /// All clients end with the leader, as in S4's experiment; otherwise they retry what was answered weakly.
    pub clients_end: bool,
}

/// What a failure of the leader has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Requests that clients had made.
    pub made: u64,
    /// Entries of the new leader's log.
    pub kept: u64,
    /// Requests without any answer that the new leader does not have.
    pub lost_unanswered: u64,
    /// Requests that were answered weakly, and that the new leader does not have.
    pub lost_weak: u64,
    /// Requests that were committed, and that the new leader does not have: always 0.
    pub lost_committed: u64,
    /// Requests that clients sent again.
    pub retried: u64,
}

impl Losses {
    /// Requests that are nowhere: clients that live have what was not answered, and send again what was answered weakly.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost_unanswered + self.lost_weak
    }

    /// The part of all requests that is lost, in per cent.
    #[must_use]
    pub fn per_cent(&self) -> f64 {
        100.0 * self.lost() as f64 / self.made.max(1) as f64
    }
}

impl Simulator {
    /// The same, with a leader that ends. The run goes on until the election, however many replies were wanted.
    #[must_use]
    pub fn failing(mut self, failure: Failure) -> Simulator {
        // The end comes before the election, also at the same time.
        self.after(failure.at_us, Place::Ack, Event::Fail);
        self.after(failure.at_us + failure.timeout_us, Place::LTerm, Event::Elect);
        self.tally.is_endless = true;
        self.failure = Some(failure);
        self
    }

    pub(super) fn are_clients_gone(&self) -> bool {
        !self.is_leader_up && self.failure.is_some_and(|failure| failure.clients_end)
    }

    pub(super) fn on_fail(&mut self) {
        self.is_leader_up = false;
        let mut takes = Vec::new();
        for place in [Place::ReqPool, Place::Parsed, Place::Vl, Place::Committed, Place::Queue] {
            takes.extend(self.all_of(place));
        }
        self.fire(Transition::Fail, 0, &takes, &[]);
    }

    /// All tokens of a place.
    fn all_of(&self, place: Place) -> Vec<Take> {
        let instances = match place.scope() {
            crate::net::Scope::One => 1,
            crate::net::Scope::Client => self.setting.clients(),
            crate::net::Scope::Follower => self.followers.len(),
        };
        let of = |at: usize| {
            let tokens = self.marking.tokens(place, at) as usize;
            std::iter::repeat_n(Take { place, at, since: self.now }, tokens)
        };
        (0..instances).flat_map(of).collect()
    }

    pub(super) fn on_elect(&mut self) {
        let mut takes = self.all_of(Place::LTerm);
        let terms: Vec<_> = takes.iter().map(|take| (Place::LTerm, take.at)).collect();
        takes.extend(self.all_of(Place::Pending));
        takes.extend(self.all_of(Place::Win));
        self.fire(Transition::Elect, 0, &takes, &terms);
        let kept = self.elected_log();
        let indexed = self.entries.next_index() - 1;
        let made = self.tally.made;
        let lost: Vec<_> = self.entries.iter().filter(|(index, _)| kept < *index).map(|it| *it.1).collect();
        let weak = lost.iter().filter(|entry| entry.is_listed).count() as u64;
        let mut losses = Losses {
            made,
            kept,
            lost_unanswered: made - indexed + lost.len() as u64 - weak,
            lost_weak: weak,
            lost_committed: self.leader.committed.saturating_sub(kept),
            retried: 0,
        };
        if !self.are_clients_gone() {
            // They have what was not answered, and all that they hold of what was answered weakly.
            (losses.lost_unanswered, losses.lost_weak) = (0, 0);
            let listed = self.entries.iter().filter(|(_, entry)| entry.is_listed);
            let listed: Vec<_> = listed.map(|(_, entry)| (entry.request, entry.listed)).collect();
            for (request, since) in listed {
                let take = Take { place: Place::OpList, at: request.client as usize, since };
                self.fire(Transition::Retry, request.number, &[take], &[(Place::ClientReq, 0)]);
                losses.retried += 1;
            }
        }
        self.losses = Some(losses);
        self.tally.is_endless = false;
        self.tally.is_over = true;
    }

    /// Last index of the first follower, in an order of chance, whose log enough members accept. Of two members, the one that is
    /// left has no majority: its log is taken nevertheless, as an operator would.
    fn elected_log(&mut self) -> u64 {
        let majority = self.setting.majority();
        let mut logs: Vec<u64> = self.followers.iter().map(|follower| follower.last).collect();
        self.random(Of::Members).shuffle(&mut logs);
        let has_votes = |last: &&u64| majority <= logs.iter().filter(|other| *other <= *last).count();
        *logs.iter().find(has_votes).or(logs.iter().max()).unwrap_or(&0)
    }
}
