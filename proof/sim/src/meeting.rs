//! Meeting: the handshake between two members, and the questions of newcomers and founders, frame by frame. [shell/member
//! `handshake`, `join`]
//!
//! All frames of a handshake are carried at one moment, in both directions, each through its bytes. The challenge goes on a
//! connection the other way: one that is open, or one that is opened for it.
//! Knows nothing of: what happens on the way, messages.

use crate::log::GROUP;
use crate::net::{CLUSTER, Net, Others, id_of};
use crate::operator::{is_host_of, is_reached_in_tls};
use crate::paths::{Around, KINDS, LANES};
use crate::peers::Peers;
use kattu_member::dialler::Failure;
use kattu_member::handshake::{self, Caller, Door, First, Heard, IsFor, Proving};
use kattu_node::contract::Event;
use kattu_raft::Instant;
use kattu_wire::{Frame, MemberList};

/// So many attempts for one that leads to another member.
const STRAYS_ONE_IN: u64 = 100;

impl Net {
    /// One member calls another one. Returns the caller, and what it brings for the replica.
    pub(crate) fn meet(
        &mut self,
        around: &mut Around<'_>,
        (from, to, lane): (usize, usize, usize),
        others: &Others<'_>,
    ) -> Result<(Caller, Vec<Event>), Failure> {
        if !self.is_reached(from, to, others) {
            return Err(Failure::Away);
        }
        self.intrude(around, from, to);
        let hello = handshake::hello(&self.peers[from].table, id_of(to), KINDS[lane]);
        let met = self.stray(from, others).unwrap_or(to);
        let (answer, caller) = match self.first(around, met, &hello) {
            First::Member(answer, caller) => (answer, Some(caller)),
            First::Refused(answer, _) | First::Answered(answer) => (answer, None),
            First::Newcomer(join) => unreachable!("{join:?}"),
        };
        let answer = self.carried(&answer);
        let welcome = handshake::answered(answer, id_of(to), &mut self.peers[from].table)?;
        let mut caller = caller.expect("only a member is welcome");
        let is_strange = self.carry_out(around, to);
        if let Some((proving, ask_me)) = Proving::begin(&welcome, &mut self.peers[from].table) {
            self.say(&mut caller, to, &ask_me);
            self.challenge(around, to, from);
            if is_strange && !caller.is_believed() {
                self.ask_about_stranger(around, to, from, others);
                self.challenge(around, to, from);
            }
            let (frames, _) = proving.next(&mut self.peers[from].table);
            for frame in frames {
                self.say(&mut caller, to, &frame);
            }
            proving.end(&mut self.peers[from].table);
            self.peers[to].table.proofs.forget_asked(welcome.proof);
        } else {
            caller.let_in(&mut self.peers[to].table);
        }
        self.carry_out(around, to);
        if !caller.is_believed() {
            return Err(Failure::Unproven);
        }
        let introduction = handshake::introduction(&self.peers[from].table);
        let brings = introduction.iter().filter_map(|frame| self.say(&mut caller, to, frame)).collect();
        Ok((caller, brings))
    }

    /// Another member that an attempt leads to by mistake, now and then; it refuses the caller.
    fn stray(&mut self, from: usize, others: &Others<'_>) -> Option<usize> {
        let dice = self.strays.as_mut().filter(|_| self.peers.len() > 1)?;
        if !dice.one_in(STRAYS_ONE_IN) {
            return None;
        }
        let met = dice.below(self.peers.len() as u64) as usize;
        (met != from && self.is_reached(from, met, others)).then_some(met)
    }

    fn is_reached(&self, from: usize, to: usize, others: &Others<'_>) -> bool {
        self.peers[to].run != 0 && (others.answers)(to) && !self.paths.is_cut(from, to)
    }

    /// The first frame of a connection to `to`. A caller that is asked for a certificate has one for its own hosts.
    fn first(&mut self, around: &Around<'_>, to: usize, frame: &Frame) -> First {
        let frame = self.carried(frame);
        let caller = match &frame {
            Frame::Hello(hello) => Some((hello.from.0 - 1) as usize),
            _ => None,
        };
        let is_for = |host: &str| caller.is_some_and(|caller| is_host_of(caller, host));
        let is_shown = self.certificates && is_reached_in_tls(to);
        let signed: Option<IsFor<'_>> = if is_shown { Some(&is_for) } else { None };
        let door = Door { signed, ..self.door(around) };
        door.first(frame, &mut self.peers[to].table)
    }

    /// Where a connection comes in, without a certificate.
    pub(crate) fn door(&mut self, around: &Around<'_>) -> Door<'static> {
        self.challenges += 1;
        let challenge = (self.challenges, !self.challenges);
        Door { signed: None, group: GROUP, now: Instant(around.now), challenge }
    }

    /// A further frame of a caller, and what it brings for the replica.
    fn say(&mut self, caller: &mut Caller, to: usize, frame: &Frame) -> Option<Event> {
        let frame = self.carried(frame);
        match caller.hear(frame, &mut self.peers[to].table) {
            Ok(Heard::Event(event)) => Some(event),
            Ok(Heard::Nothing | Heard::Believed) => None,
            Ok(Heard::InOrder(..)) => unreachable!("no frame of a handshake has a place"),
            Err(why) => panic!("n{} refuses a frame of a handshake: {why}", to + 1),
        }
    }

    /// Carries the challenges of one member for another one, where that is reached.
    fn challenge(&mut self, around: &mut Around<'_>, by: usize, to: usize) {
        for challenge in self.peers[by].table.proofs.take_untold(id_of(to)) {
            let challenge = self.carried(&Frame::Challenge(challenge));
            let open = LANES.into_iter().find(|&lane| self.paths.lane(by, to, lane).is_up);
            if let Some((caller, table)) = open.and_then(|lane| self.caller(by, to, lane)) {
                assert_eq!(caller.hear(challenge, table), Ok(Heard::Nothing));
                continue;
            }
            let hello = handshake::hello(&self.peers[by].table, id_of(to), KINDS[0]);
            if let First::Member(_, mut caller) = self.first(around, to, &hello) {
                self.say(&mut caller, to, &challenge);
                if let Some(number) = caller.asked() {
                    self.peers[to].table.proofs.forget_asked(number);
                }
            }
            self.carry_out(around, to);
        }
    }

    /// A member asks those that it knows about a stranger, if it has not just done so. If one of them names it, it is known.
    fn ask_about_stranger(
        &mut self,
        around: &mut Around<'_>,
        member: usize,
        stranger: usize,
        others: &Others<'_>,
    ) {
        let mut has_news = false;
        let mut knowing = None;
        if around.now < self.peers[member].ask_again_at {
            return;
        }
        for peer in (0..self.peers.len()).filter(|&peer| peer != member) {
            if !self.peers[member].table.is_linked(id_of(peer)) {
                continue;
            }
            let answer = self.ask_for_members(around, (member, peer), &handshake::member_asks(), others);
            if self.is_reached(member, peer, others) && self.peers[peer].table.knows(id_of(stranger)) {
                knowing = Some(peer);
            }
            let peers = &mut self.peers[member];
            has_news = peers.vouching.is_settled(answer, &mut peers.table);
            if has_news {
                break;
            }
        }
        let peers = &mut self.peers[member];
        peers.ask_again_at = around.now + peers.vouching.pause().as_nanos() as u64;
        if let Some(knowing) = knowing.filter(|_| !has_news && !peers.table.knows(id_of(stranger))) {
            let (member, stranger, knowing) = (member + 1, stranger + 1, knowing + 1);
            let story =
                format!("n{member} has asked n{knowing}, which knows n{stranger}, and keeps n{stranger} out");
            self.broken = Some(("named_members_are_let_in", story));
        }
    }

    /// Asks one member for the list of members, as a newcomer or a member does.
    pub(crate) fn ask_for_members(
        &mut self,
        around: &Around<'_>,
        (by, asked): (usize, usize),
        question: &Frame,
        others: &Others<'_>,
    ) -> Result<MemberList, Failure> {
        if !self.is_reached(by, asked, others) {
            return Err(Failure::Away);
        }
        let answer = match self.first(around, asked, question) {
            First::Newcomer(_) => {
                handshake::answer_to_newcomer(&self.peers[asked].table, (others.confirmed)(asked)).0
            }
            First::Refused(answer, _) | First::Answered(answer) | First::Member(answer, _) => answer,
        };
        let answer = self.carried(&answer);
        handshake::members_are_told(answer)
    }

    /// A founder without a directory asks the others whether it had one. Returns the members that have met it since they
    /// started, and do not say so.
    pub(crate) fn forgotten_by(
        &mut self,
        around: &Around<'_>,
        founder: usize,
        others: &Others<'_>,
    ) -> Vec<usize> {
        let mut silent = Vec::new();
        for asked in (0..self.peers.len()).filter(|&asked| asked != founder) {
            if !self.is_reached(founder, asked, others) {
                continue;
            }
            let asks = handshake::founder_asks(CLUSTER, id_of(founder), id_of(asked));
            let is_known = match self.first(around, asked, &asks) {
                First::Answered(answer) | First::Refused(answer, _) => {
                    let answer = self.carried(&answer);
                    handshake::founder_is_known(&answer, CLUSTER, id_of(founder))
                }
                other => unreachable!("{other:?}"),
            };
            let Peers { met, table, .. } = &self.peers[asked];
            // A member that was removed is told so, and ends.
            if met >> founder & 1 == 1 && table.is_linked(id_of(founder)) && !is_known {
                silent.push(asked);
            }
        }
        silent
    }
}
