//! Simulator: discrete events on the net, from a seed.
//!
//! ```text
//!   agenda ─▶ event ─▶ clients.rs, leader.rs, followers.rs: which transitions are enabled now?
//!      ▲                       │ start, finish, fire
//!      └── later events ◀──────┤
//!                              ▼
//!                      marking.rs: moves along arcs only ─▶ recording.rs, if one is made
//! ```
//! Immediate transitions fire inside the event that enables them, so they come before everything timed. A timed transition
//! takes its tokens when it starts, and puts others when it ends. What is on the way (`NetCL`, `NetLF`, `NetAck`, `NetLC`) stays
//! in its place until it arrives.
//! Knows nothing of: how results are shown.

mod clients;
mod conservation;
mod failure;
mod followers;
mod host;
mod leader;

use crate::agenda::Agenda;
use crate::entries::{Entries, Request};
use crate::link::Link;
use crate::marking::{Marking, Nanos, Take};
use crate::measured::Tally;
use crate::net::{Place, Transition};
use crate::parameters::{ClientLink, Parameters, Setting};
use crate::recording::Recording;
pub use failure::{Failure, Losses};
use followers::Follower;
use host::{ClientThread, Sharing};
use kattu_random::{Random, mix};
use leader::Leader;

/// What happens at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Generated { client: u32, began: Nanos },
    ClientLink { change: u64 },
    RequestArrived { request: u32 },
    TakeIn,
    Parsed { request: u32 },
    Indexed,
    PersistWritten,
    Persisted,
    Host { change: u64 },
    PeerLink { change: u64 },
    LogArrived { follower: u32, index: u64, since: Nanos },
    Read { follower: u32 },
    Poll { follower: u32, index: u64 },
    AppendWritten { follower: u32, first: u64, last: u64, is_flush: bool },
    Appended { follower: u32, first: u64, last: u64, is_flush: bool },
    Answered { follower: u32, index: u64, is_strong: bool, since: Nanos },
    Committed { index: u64 },
    Applied { index: u64 },
    StrongReply { client: u32, number: u64, born: Nanos, since: Nanos },
    WeakReply { index: u64, client: u32, number: u64, born: Nanos, since: Nanos },
    Fail,
    Elect,
}

/// One run of the net.
pub struct Simulator {
    parameters: Parameters,
    setting: Setting,
    marking: Marking,
    agenda: Agenda<Event>,
    now: Nanos,
    /// Separate streams, so that protocols are compared on the same draws: clients, members, ways between members.
    random: [Random; 3],
    requests: Vec<Request>,
    free: Vec<u32>,
    /// When each idle client became idle.
    idle_since: Vec<Nanos>,
    client_link: Option<Link<u32>>,
    /// Shared processors, and the thread of all clients on them.
    sharing: Option<Sharing>,
    client_thread: ClientThread,
    leader: Leader,
    followers: Vec<Follower>,
    entries: Entries,
    tally: Tally,
    digest: u64,
    is_checked: bool,
    recording: Option<Recording>,
    failure: Option<Failure>,
    losses: Option<Losses>,
    is_leader_up: bool,
}

/// Which stream is drawn from.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    Clients,
    Members,
    Ways,
}

impl Simulator {
    /// The net with its initial tokens.
    ///
    /// # Errors
    /// A parameter or the setting is out of its range.
    pub fn new(parameters: &Parameters, setting: &Setting) -> Result<Simulator, String> {
        parameters.check()?;
        setting.check()?;
        let (clients, peers) = (setting.clients(), setting.replicas - 1);
        let mut marking = Marking::new(clients, peers);
        for client in 0..clients {
            marking.begin_with(Place::Ack, client, 1);
            marking.begin_with(Place::LTerm, client, 1);
        }
        marking.begin_with(Place::IdxLock, 0, 1);
        marking.begin_with(Place::CpuL, 0, parameters.cores);
        marking.begin_with(Place::Applier, 0, parameters.appliers);
        marking.begin_with(Place::LLog, 0, 1);
        let dispatchers = if setting.ordered_stream { 1 } else { setting.dispatchers };
        for follower in 0..peers {
            marking.begin_with(Place::FLog, follower, 1);
            marking.begin_with(Place::Disp, follower, dispatchers);
            marking.begin_with(Place::CpuF, follower, parameters.cores);
        }
        let shares = parameters.client_link == ClientLink::Shared;
        let link = Link::new(setting.payload_bytes, parameters.bandwidth_gbps);
        let random = ["clients", "members", "ways"].map(|part| Random::of_part(setting.seed, part));
        let mut simulator = Simulator {
            marking,
            agenda: Agenda::new(),
            now: 0,
            random,
            requests: Vec::new(),
            free: Vec::new(),
            idle_since: vec![0; clients],
            client_link: (shares && link.is_limited()).then_some(link),
            sharing: parameters.host.map(|host| Sharing::new(host.cores)),
            client_thread: match parameters.host {
                Some(host) => ClientThread::of(clients, host.clients_per_connection),
                None => ClientThread::default(),
            },
            leader: Leader::new(parameters, setting),
            followers: (0..peers).map(|_| Follower::new(parameters, dispatchers)).collect(),
            entries: Entries::new(),
            tally: Tally::new(setting),
            digest: setting.seed,
            is_checked: false,
            recording: None,
            failure: None,
            losses: None,
            is_leader_up: true,
            parameters: parameters.clone(),
            setting: setting.clone(),
        };
        (0..clients).for_each(|client| simulator.begin_request(client));
        Ok(simulator)
    }

    /// The same, which checks after every firing that tokens are conserved. It is slow.
    #[must_use]
    pub fn checked(self) -> Simulator {
        Simulator { is_checked: true, ..self }
    }

    /// The same, which records every firing.
    #[must_use]
    pub fn recorded(self) -> Simulator {
        let recording = Recording::of(&self.setting, &self.marking);
        Simulator { recording: Some(recording), ..self }
    }

    /// Runs until as many replies as the setting wants have been measured.
    #[must_use]
    pub fn run(mut self) -> Finished {
        while !self.tally.is_complete() {
            let Some((at, event)) = self.agenda.next() else { break };
            self.now = at;
            self.handle(event);
        }
        Finished {
            little: self.marking.little(self.now),
            marking: self.marking,
            tally: self.tally,
            ended: self.now,
            digest: self.digest,
            recording: self.recording,
            losses: self.losses,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Generated { client, began } => self.on_generated(client as usize, began),
            Event::ClientLink { change } => self.on_client_link(change),
            Event::RequestArrived { request } => self.on_request_arrived(request),
            Event::TakeIn => self.on_take_in(),
            Event::Parsed { request } => self.on_parsed(request),
            Event::Indexed => self.on_indexed(),
            Event::PersistWritten => self.on_persist_written(),
            Event::Persisted => self.on_persisted(),
            Event::Host { change } => self.on_host(change),
            Event::PeerLink { change } => self.on_peer_link(change),
            Event::LogArrived { follower, index, since } => {
                self.on_log_arrived(follower as usize, index, since);
            }
            Event::Read { follower } => self.on_read(follower as usize),
            Event::Poll { follower, index } => self.on_poll(follower as usize, index),
            Event::AppendWritten { follower, first, last, is_flush } => {
                self.on_append_written(follower as usize, first, last, is_flush);
            }
            Event::Appended { follower, first, last, is_flush } => {
                self.on_appended(follower as usize, first, last, is_flush);
            }
            Event::Answered { follower, index, is_strong, since } => {
                self.on_answered(follower as usize, index, is_strong, since);
            }
            Event::Committed { index } => self.on_committed(index),
            Event::Applied { index } => self.on_applied(index),
            Event::StrongReply { client, number, born, since } => {
                self.on_strong_reply(client, number, born, since);
            }
            Event::WeakReply { index, client, number, born, since } => {
                self.on_weak_reply(index, client, number, born, since);
            }
            Event::Fail => self.on_fail(),
            Event::Elect => self.on_elect(),
        }
    }

    /// A firing starts. `number` names the request that moves.
    fn start(&mut self, transition: Transition, number: u64, takes: &[Take]) {
        self.marking.start(transition, self.now, takes);
        if let Some(recording) = &mut self.recording {
            recording.start(transition, self.now, number, takes);
        }
    }

    /// A firing ends.
    fn finish(&mut self, transition: Transition, number: u64, puts: &[(Place, usize)]) {
        self.marking.finish(transition, self.now, puts);
        self.digest = mix(self.digest ^ self.now ^ (transition as u64) << 56 ^ number << 24);
        if let Some(recording) = &mut self.recording {
            recording.finish(transition, self.now, number, puts);
        }
    }

    /// A firing that takes no time.
    fn fire(&mut self, transition: Transition, number: u64, takes: &[Take], puts: &[(Place, usize)]) {
        self.start(transition, number, takes);
        self.finish(transition, number, puts);
    }

    /// What happens after this many microseconds.
    fn after(&mut self, micros: f64, place: Place, event: Event) {
        self.agenda.enter(self.now + nanos(micros), place, event);
    }

    fn random(&mut self, of: Of) -> &mut Random {
        &mut self.random[of as usize]
    }

    /// How much longer everything takes on processors of the leader, because threads compete for them. A thread that waits
    /// for its socket or for the index lock is not runnable.
    fn leader_slowdown(&self) -> f64 {
        let inside = [Transition::Parse, Transition::Index, Transition::Commit, Transition::Apply]
            .map(|transition| self.marking.inside(transition));
        self.slowdown((self.marking.all_tokens(Place::ReqPool) + inside.iter().sum::<u64>()) as f64)
    }

    /// The same for a follower.
    fn follower_slowdown(&self, follower: usize) -> f64 {
        let waiting = f64::from(self.marking.tokens(Place::Pending, follower));
        self.slowdown(1.0 + self.parameters.waiting_runnable * waiting)
    }

    fn slowdown(&self, runnable: f64) -> f64 {
        let cores = f64::from(self.parameters.cores);
        1.0 + self.parameters.switch_penalty * (runnable - cores).max(0.0) / cores
    }

    /// After an event of the checked mode.
    fn settle(&self) {
        if self.is_checked && self.is_leader_up {
            self.conserved().unwrap_or_else(|error| panic!("at {} ns: {error}", self.now));
        }
    }
}

/// A run that has ended.
pub struct Finished {
    /// Where the tokens are.
    pub marking: Marking,
    /// Little's law at each place, over the measured part.
    pub little: Vec<crate::marking::Little>,
    /// When it ended.
    pub ended: Nanos,
    /// A hash of all firings with their times: equal for equal parameters and settings.
    pub digest: u64,
    /// All firings, if the run was recorded.
    pub recording: Option<Recording>,
    /// What was lost, if the leader failed.
    pub losses: Option<Losses>,
    pub(crate) tally: Tally,
}

/// Nanoseconds of so many microseconds.
pub(crate) fn nanos(micros: f64) -> Nanos {
    (micros * 1e3).round() as Nanos
}
