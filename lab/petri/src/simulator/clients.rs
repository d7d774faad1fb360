//! Clients: Generate, SendReq, ArriveReq, ArriveReply, ArriveWeak, StrongNote.
//!
//! Knows nothing of: how the leader replicates.

use super::{Event, Of, Simulator};
use crate::delay::exponential;
use crate::entries::Request;
use crate::marking::{Nanos, Take};
use crate::net::{Place, Transition};
use crate::parameters::{ClientLink, Load};

impl Simulator {
    /// A client that may issue begins its next request.
    pub(super) fn begin_request(&mut self, client: usize) {
        let micros = match self.setting.load {
            Load::Closed { .. } => {
                let generate = self.parameters.generate;
                generate.draw(self.random(Of::Clients))
            }
            Load::Open { per_second } => exponential(1e6 / per_second, self.random(Of::Clients)),
        };
        let since = self.idle_since[client];
        self.start(Transition::Generate, 0, &[Take { place: Place::Ack, at: client, since }]);
        let event = Event::Generated { client: client as u32, began: self.now };
        if self.setting.is_open() {
            self.after(micros, Place::Ack, event);
        } else {
            self.work_of_client(client, micros, event);
        }
    }

    pub(super) fn on_generated(&mut self, client: usize, began: Nanos) {
        if !self.is_leader_up {
            return;
        }
        let number = self.next_number();
        let now = self.now;
        let request = Request {
            client: client as u32,
            number,
            born: now,
            t_gen: now - began,
            since: now,
            ..Request::default()
        };
        let slot = self.keep(request);
        if self.setting.is_open() {
            self.finish(Transition::Generate, number, &[(Place::ClientReq, 0), (Place::Ack, client)]);
            self.idle_since[client] = now;
            self.begin_request(client);
        } else {
            self.finish(Transition::Generate, number, &[(Place::ClientReq, 0)]);
        }
        for slot in self.made(client, slot) {
            let request = &mut self.requests[slot as usize];
            let (number, since) = (request.number, std::mem::replace(&mut request.since, now));
            let take = Take { place: Place::ClientReq, at: 0, since };
            self.fire(Transition::SendReq, number, &[take], &[(Place::NetCl, 0)]);
            self.transmit(slot);
        }
        self.settle();
    }

    /// Numbers of requests rise in the order in which they are made.
    fn next_number(&mut self) -> u64 {
        self.tally.made += 1;
        self.tally.made
    }

    fn keep(&mut self, request: Request) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.requests[slot as usize] = request;
                slot
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        }
    }

    fn transmit(&mut self, slot: u32) {
        let now = self.now;
        match &mut self.client_link {
            Some(link) => {
                let planned = link.begin(now, slot);
                self.agenda.enter(planned.at, Place::NetCl, Event::ClientLink { change: planned.change });
            }
            None => {
                let divided = self.divided_micros();
                self.travel_to_leader(slot, divided);
            }
        }
    }

    /// b/(w_net/N_cli).
    fn divided_micros(&self) -> f64 {
        let gbps = self.parameters.bandwidth_gbps;
        if gbps == 0.0 || self.parameters.client_link == ClientLink::Shared {
            return 0.0;
        }
        self.setting.payload_bytes as f64 * 8e-3 / gbps * self.setting.clients() as f64
    }

    fn travel_to_leader(&mut self, slot: u32, more_micros: f64) {
        let latency = self.parameters.client_latency;
        let micros = more_micros + latency.draw(self.random(Of::Clients));
        self.after(micros, Place::NetCl, Event::RequestArrived { request: slot });
    }

    pub(super) fn on_client_link(&mut self, change: u64) {
        let Some(link) = &mut self.client_link else { return };
        let Some((slot, next)) = link.end(self.now, change) else { return };
        if let Some(next) = next {
            self.agenda.enter(next.at, Place::NetCl, Event::ClientLink { change: next.change });
        }
        self.travel_to_leader(slot, 0.0);
    }

    pub(super) fn on_strong_reply(&mut self, client: u32, number: u64, born: Nanos, since: Nanos) {
        if self.are_clients_gone() {
            return;
        }
        let take = Take { place: Place::NetLc, at: 0, since };
        if self.setting.is_open() {
            self.fire(Transition::ArriveReply, number, &[take], &[]);
        } else {
            self.fire(Transition::ArriveReply, number, &[take], &[(Place::Ack, client as usize)]);
        }
        self.answered(client, born, false);
    }

    pub(super) fn on_weak_reply(&mut self, index: u64, client: u32, number: u64, born: Nanos, since: Nanos) {
        if self.are_clients_gone() {
            return;
        }
        let now = self.now;
        let take = Take { place: Place::NetLc, at: 0, since };
        let is_committed = index <= self.leader.committed;
        let (ack, list) = ((Place::Ack, client as usize), (Place::OpList, client as usize));
        let puts: &[_] = match (self.setting.is_open(), is_committed) {
            (false, false) => &[ack, list],
            (false, true) => &[ack],
            (true, false) => &[list],
            (true, true) => &[],
        };
        self.fire(Transition::ArriveWeak, number, &[take], puts);
        if !is_committed {
            let entry = self.entries.at(index);
            (entry.is_listed, entry.listed) = (true, now);
        }
        self.answered(client, born, true);
    }

    fn answered(&mut self, client: u32, born: Nanos, is_weak: bool) {
        let now = self.now;
        if self.tally.answered(now, born, is_weak) {
            self.marking.reset(now);
        }
        if !self.setting.is_open() && self.is_leader_up {
            self.idle_since[client as usize] = now;
            self.begin_request(client as usize);
        }
        self.settle();
    }

    /// The client of a committed entry removes it from its list.
    pub(super) fn strong_note(&mut self, index: u64) {
        let entry = self.entries.at(index);
        if !std::mem::take(&mut entry.is_listed) {
            return;
        }
        let (number, take) = (
            entry.request.number,
            Take { place: Place::OpList, at: entry.request.client as usize, since: entry.listed },
        );
        self.fire(Transition::StrongNote, number, &[take], &[]);
    }
}
