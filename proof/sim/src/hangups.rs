//! Hangups: how the two ends of a connection learn that it is over: from a kernel, or from silence. [fault-model NT1–NT6]
//!
//! Knows nothing of: what members do about it (`net`).

use crate::net::Net;
use crate::paths::{Around, BULK, KINDS, LANES, SILENCE_MAX, SNAPSHOT};
use crate::world::Event;
use kattu_member::join::Vouching;
use kattu_member::lanes;
use kattu_raft::LinkEnd;

impl Net {
    /// The sender of a lane notices that its connection is gone.
    pub(crate) fn hangup(
        &mut self,
        around: &mut Around<'_>,
        (from, to, lane): (usize, usize, usize),
        connection: u32,
    ) {
        let state = self.paths.lane(from, to, lane);
        if state.is_up && state.connection == connection {
            self.close(around, from, to, lane, LinkEnd::ByPeer);
        }
    }

    /// So much time has passed since something was held back: the connection is given up if nothing got through since.
    pub(crate) fn silence(
        &mut self,
        around: &mut Around<'_>,
        (from, to, lane): (usize, usize, usize),
        connection: u32,
    ) {
        let is_silent = self.peers[to].silent;
        let state = self.paths.lane_mut(from, to, lane);
        if !state.is_up || state.connection != connection {
            return;
        }
        if state.is_stuck(around.now, SILENCE_MAX) || is_silent {
            self.close(around, from, to, lane, LinkEnd::Otherwise);
        } else if lane == SNAPSHOT && state.is_idle() {
            let sent = state.sent;
            if self.link(from, to, lane).usage.is_over(sent, false) {
                self.close(around, from, to, lane, LinkEnd::Otherwise);
            } else {
                around.queue.plan(around.now + SILENCE_MAX, Event::Silence { from, to, lane, connection });
            }
        }
    }

    /// A member's process has ended. If its machine vanished with it, no other member is told.
    pub(crate) fn ended(&mut self, around: &mut Around<'_>, member: usize, silently: bool) {
        (self.peers[member].run, self.peers[member].silent) = (0, silently);
        self.forget_streams(around, member);
        for peer in (0..self.peers.len()).filter(|&peer| peer != member) {
            for &lane in self.lanes() {
                self.paths.leave_wire(around, member, peer, lane);
                let outgoing = self.paths.lane_mut(member, peer, lane);
                let was_up = outgoing.is_up;
                outgoing.close();
                let connection = self.paths.lane(peer, member, lane).connection;
                if silently {
                    let silence = Event::Silence { from: peer, to: member, lane, connection };
                    around.queue.plan(around.now + SILENCE_MAX, silence);
                    continue;
                }
                let tell_at = around.now + self.frame;
                let end = LinkEnd::ByPeer; // as the kernel of a process that died says it
                if was_up && lanes::end_is_told(KINDS[lane], end) {
                    let told = Event::LinkClosed { member: peer, peer: member, end, was_heard: lane == BULK };
                    around.queue.plan(tell_at, told);
                }
                around.queue.plan(tell_at, Event::Hangup { from: peer, to: member, lane, connection });
            }
        }
    }

    /// The storm is over: every path is clear.
    pub(crate) fn calm(&mut self, around: &mut Around<'_>) {
        self.paths.clear(around);
        (self.strays, self.intruders) = (None, None);
        // The pause between two questions about strangers may be long; the calm does not wait for that.
        self.peers
            .iter_mut()
            .for_each(|peers| (peers.vouching, peers.ask_again_at) = (Vouching::default(), 0));
        // Nor for the next reset, at which a connection is noticed that is silent on one side.
        for to in (0..self.peers.len()).filter(|&to| self.peers[to].silent).collect::<Vec<_>>() {
            for from in 0..self.peers.len() {
                for lane in LANES {
                    self.close(around, from, to, lane, LinkEnd::Otherwise);
                }
            }
        }
    }
}
