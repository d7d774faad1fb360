//! Conservation of tokens (check P3): equations that hold after every event while the leader is up.
//!
//! Knows nothing of: time.

use super::Simulator;
use crate::net::{CLIENTS, Conserved, Place, RESOURCES, Transition};
use crate::parameters::OwnLog;

impl Simulator {
    /// Whether all equations hold.
    ///
    /// # Errors
    /// The first that does not, with its two sides.
    pub(super) fn conserved(&self) -> Result<(), String> {
        let parameters = &self.parameters;
        if !self.setting.is_open() {
            let clients = self.setting.clients() as u64 + self.tally.early_open;
            // A firing of Index counts once, however many requests it has.
            let shared = (self.leader.indexing.len() as u64).saturating_sub(1);
            equal(CLIENTS.name, self.sum(&CLIENTS) + shared, clients)?;
        }
        let holds_lock = parameters.log.own == OwnLog::Inline;
        let persisting = self.marking.inside(Transition::Persist);
        let in_persist = if holds_lock { persisting } else { 0 };
        let totals = [u64::from(parameters.cores), 1 - in_persist, u64::from(parameters.appliers), 1];
        for (resource, total) in RESOURCES.iter().zip(totals) {
            equal(resource.name, self.sum(resource), total)?;
        }
        let indexed = self.marking.all_tokens(Place::LeaderLog);
        let voted = self.marking.all_tokens(Place::Vl) + self.marking.inside(Transition::Commit);
        equal("entries before and after commit", voted + self.leader.committed, indexed)?;
        if parameters.log.own != OwnLog::InIndex {
            let kept = self.marking.all_tokens(Place::Unsynced) + self.leader.in_persist();
            equal("entries of the leader's log", kept + self.leader.persisted, indexed)?;
        }
        let listed = self.entries.iter().filter(|(_, entry)| entry.is_listed).count();
        equal("weak replies that are not committed", listed as u64, self.marking.all_tokens(Place::OpList))?;
        self.conserved_at_followers(indexed)
    }

    fn conserved_at_followers(&self, indexed: u64) -> Result<(), String> {
        let cores = u64::from(self.parameters.cores);
        let mut appending = 0;
        for (follower, it) in self.followers.iter().enumerate() {
            let tokens = |place: Place| u64::from(self.marking.tokens(place, follower));
            let held =
                [Place::Queue, Place::NetLf, Place::Pending, Place::Win].map(tokens).iter().sum::<u64>();
            let in_append = indexed.checked_sub(held + it.last);
            let in_append = in_append.ok_or("a follower has more entries than the leader")?;
            let is_busy = u64::from(0 < in_append);
            equal("log of a follower", tokens(Place::FLog) + is_busy, 1)?;
            equal("cores of a follower", tokens(Place::CpuF) + is_busy, cores)?;
            equal("entries held by appenders", tokens(Place::Pending), it.pending.len() as u64)?;
            equal("entries in the window", tokens(Place::Win), it.window.len() as u64)?;
            appending += is_busy;
            if self.keeps_dispatcher() {
                let kept = tokens(Place::Disp) + tokens(Place::NetLf) + tokens(Place::Pending);
                equal("dispatchers", kept + it.appending, u64::from(self.setting.dispatchers))?;
            } else {
                let dispatchers = if self.setting.ordered_stream { 1 } else { self.setting.dispatchers };
                equal("dispatchers", tokens(Place::Disp), u64::from(dispatchers))?;
            }
        }
        let inside = self.marking.inside(Transition::Append) + self.marking.inside(Transition::Flush);
        equal("appends under way", appending, inside)
    }

    fn sum(&self, conserved: &Conserved) -> u64 {
        let places = conserved.places.iter().map(|place| self.marking.all_tokens(*place));
        let inside = conserved.inside.iter().map(|transition| self.marking.inside(*transition));
        places.chain(inside).sum()
    }
}

fn equal(what: &str, left: u64, right: u64) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(format!("{what} are not conserved: {left}, not {right}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Setting;
    use crate::profiles;
    use crate::simulator::Event;

    /// Runs for a while, loses a token, and says what the check says.
    fn complaint(place: Place) -> String {
        let mut simulator = Simulator::new(&profiles::iotdb(), &Setting::nb_raft(16)).expect("a net");
        for _ in 0..5_000 {
            let (at, event) = simulator.agenda.next().expect("an event");
            simulator.now = at;
            simulator.handle(event);
            if !matches!(event, Event::Poll { .. }) {
                assert_eq!(simulator.conserved(), Ok(()));
            }
        }
        while simulator.marking.tokens(place, 0) == 0 {
            let (at, event) = simulator.agenda.next().expect("an event");
            simulator.now = at;
            simulator.handle(event);
        }
        simulator.marking.lose(place, 0);
        simulator.conserved().expect_err("a complaint")
    }

    #[test]
    fn a_lost_token_is_noticed_wherever_it_was() {
        for (place, expected) in [
            (Place::NetLc, "clients are not conserved: "),
            (Place::NetCl, "clients are not conserved: "),
            (Place::CpuL, "cores of the leader are not conserved: 95, not 96"),
            (Place::Applier, "apply threads are not conserved: "),
            (Place::OpList, "weak replies that are not committed are not conserved: "),
            (Place::Disp, "dispatchers are not conserved: 15, not 16"),
            (Place::NetLf, "log of a follower"),
            (Place::Win, "log of a follower"),
            (Place::CpuF, "cores of a follower are not conserved: 95, not 96"),
        ] {
            let said = complaint(place);
            assert!(said.starts_with(expected), "{}: {said}", place.name());
        }
    }
}
