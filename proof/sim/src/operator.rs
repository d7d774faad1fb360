//! Operator: changes the members in the middle of a storm. [fault-model F60, F61]
//!
//! One change at a time goes to some member, like a client's request. An added member is started as a new process with
//! an empty directory, sooner or later, or not before the calm; a removed one ends itself once it knows. Ids are never
//! used again. Some changes are invalid, and must be refused.
//! Knows nothing of: how changes are made.

use crate::clock::{MS, SEC};
use crate::dice::Dice;
use crate::faults::Fault;
use crate::inject::{Change, Who};
use crate::log::GROUP;
use crate::net::id_of;
use crate::report::Violation;
use crate::world::{Event, World};
use kattu_member::handshake::newcomer_asks;
use kattu_member::join::{Joining, Newcomer, NotJoined, Step};
use kattu_node::contract::{MemberChange, MemberInfo, MemberRefusal, Outcome, Refusal, ReplyBody, Request};
use kattu_node::newcomer::CannotJoin;
use kattu_raft::{Incarnation, NodeId, Protocol, Timing};
use kattu_wal::Identity;
use std::collections::VecDeque;

/// Changes that may wait; further ones are dropped.
const TODO_MAX: usize = 6;
/// How often a change is retried that was refused for a passing reason, or whose outcome is open.
const TRIES: u8 = 12;

/// An id that no member has.
const NOBODY: NodeId = NodeId(9999);

/// A change that the operator requests, of members by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeRequest {
    Add {
        slot: usize,
        votes: bool,
    },
    Remove(usize),
    Promote(usize),
    Update(usize),
    Move(usize),
    Timing(Timing),
    Protocol(Protocol),
    /// Invalid: an id that a member has or had; an id that no member has; a voter to promote.
    AddAgain(usize),
    RemoveNobody,
    PromoteVoter(usize),
}

/// The operator.
pub(crate) struct Operator {
    dice: Dice,
    todo: VecDeque<(ChangeRequest, u8)>,
    /// The change under way, its number among the operations, how often it was tried.
    waiting: Option<(ChangeRequest, u64, u8)>,
    /// An `Operate` event is planned.
    planned: bool,
}

impl Operator {
    pub(crate) fn new(seed: u64) -> Operator {
        Operator { dice: Dice::new(seed, "operator"), todo: VecDeque::new(), waiting: None, planned: false }
    }
}

/// What comes of a newcomer's questions.
pub(crate) enum Asked {
    Admitted(Box<Identity>),
    /// No member answers: none is there, or none knows what is committed.
    Behind,
    /// It is not added yet.
    Later,
    /// It had a directory before, or was removed.
    Never,
}

/// The peer URL of a member at this host: every other one is reached in TLS, so that no list of them is of one kind.
fn peer_url(slot: usize, host: &str) -> String {
    let scheme = if is_reached_in_tls(slot) { "https" } else { "http" };
    format!("{scheme}://{host}:2380")
}

pub(crate) fn is_reached_in_tls(slot: usize) -> bool {
    !slot.is_multiple_of(2)
}

pub(crate) fn info_of(slot: usize) -> MemberInfo {
    let peer_urls = vec![peer_url(slot, &format!("n{}", slot + 1))];
    MemberInfo { id: id_of(slot), peer_urls, ..MemberInfo::default() }
}

/// Whether this is a host of the member: its first one, or one that a change has given it.
pub(crate) fn is_host_of(slot: usize, host: &str) -> bool {
    host.strip_prefix(&format!("n{}", slot + 1)).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

impl World {
    /// Members of the newest configuration that is committed, by number.
    pub(crate) fn current(&self) -> Vec<usize> {
        self.sh.observer.membership().members().map(|id| (id.0 - 1) as usize).collect()
    }

    /// Notes a change to request; whether there is anything to do.
    pub(crate) fn change_request(&mut self, change: Change) -> bool {
        let live = |world: &World, who: Who| match who {
            Who::Leader => world.leader(),
            Who::Member(number) => {
                let current = world.current();
                current.get(number % current.len().max(1)).copied()
            }
        };
        if self.operator.todo.len() >= TODO_MAX {
            return false;
        }
        let change_requests = match change {
            Change::Add { votes } => self.spare().map(|slot| vec![ChangeRequest::Add { slot, votes }]),
            Change::Remove(who) => live(self, who).map(|slot| vec![ChangeRequest::Remove(slot)]),
            Change::Replace(who) => live(self, who).and_then(|old| {
                let slot = self.spare()?;
                Some(vec![ChangeRequest::Add { slot, votes: true }, ChangeRequest::Remove(old)])
            }),
            Change::Promote => self.learner().map(|slot| vec![ChangeRequest::Promote(slot)]),
            Change::Update(who) => live(self, who).map(|slot| vec![ChangeRequest::Update(slot)]),
            Change::Move(who) => live(self, who).map(|slot| vec![ChangeRequest::Move(slot)]),
            Change::Timing(timing) => Some(vec![ChangeRequest::Timing(timing)]),
            Change::Protocol(protocol) => Some(vec![ChangeRequest::Protocol(protocol)]),
            Change::Tune { who, pick } => return self.tune(who, pick),
            Change::Foolish(0) => live(self, Who::Member(0)).map(|slot| vec![ChangeRequest::AddAgain(slot)]),
            Change::Foolish(1) => Some(vec![ChangeRequest::RemoveNobody]),
            Change::Foolish(_) => self
                .sh
                .observer
                .membership()
                .voters
                .first()
                .map(|id| vec![ChangeRequest::PromoteVoter((id.0 - 1) as usize)]),
        };
        let Some(change_requests) = change_requests else { return false };
        self.operator.todo.extend(change_requests.into_iter().map(|change_request| (change_request, 0)));
        self.plan_operator(0);
        true
    }

    /// A member lost its directory for good: it is to be replaced.
    pub(crate) fn replace_lost(&mut self, slot: usize) {
        self.operator.todo.push_front((ChangeRequest::Remove(slot), 0));
        if let Some(slot) = self.spare() {
            self.operator.todo.push_back((ChangeRequest::Add { slot, votes: true }, 0));
        }
        self.plan_operator(100 * MS);
    }

    /// Takes a number that no member has had, if one is left.
    fn spare(&mut self) -> Option<usize> {
        let slot = self.members.iter().position(|member| !member.in_use)?;
        self.members[slot].in_use = true;
        Some(slot)
    }

    fn learner(&self) -> Option<usize> {
        self.sh.observer.membership().learners.first().map(|id| (id.0 - 1) as usize)
    }

    fn plan_operator(&mut self, wait: u64) {
        if !self.operator.planned {
            self.operator.planned = true;
            self.sh.queue.plan(self.sh.now + wait, Event::Operate);
        }
    }

    /// Sends the next change.
    pub(crate) fn operate(&mut self) -> Result<(), Violation> {
        self.operator.planned = false;
        if self.calm || self.operator.waiting.is_some() {
            return Ok(());
        }
        let Some((change_request, tries)) = self.operator.todo.pop_front() else { return Ok(()) };
        if let ChangeRequest::Remove(slot) = change_request
            && !self.may_be_removed(slot)
        {
            self.again(change_request, tries);
            return Ok(());
        }
        let up = self.up();
        let leader = self.leader();
        let member = match change_request {
            ChangeRequest::Move(_) => leader,
            _ if up.is_empty() => None,
            _ => Some(up[self.operator.dice.below(up.len() as u64) as usize]),
        };
        let Some(member) = member else {
            self.again(change_request, tries);
            return Ok(());
        };
        let request = request_of(change_request, self.sh.now);
        let operation = self.clients.change_request(member, request);
        self.operator.waiting = Some((change_request, operation, tries));
        self.sh.line(Some(member), "members", || format!("is to carry out {change_request:?}"));
        if let ChangeRequest::Add { slot, .. } = change_request
            && tries == 0
            && !self.operator.dice.one_in(8)
        {
            // Some start too early, some when they are expected; some only when the storm is over.
            let at = self.sh.now + self.operator.dice.below(2 * SEC);
            self.plan_start(slot, at);
        }
        self.set_out(operation)
    }

    /// Whether the voters that stay can elect a leader without those of them that wait for what their disks lost, or that would
    /// know no other member in the cluster. Meanwhile operators may remove only damaged members. [docs/operations.md, damaged
    /// disks]
    fn may_be_removed(&self, slot: usize) -> bool {
        let membership = self.sh.observer.membership();
        let stays = |id: &&NodeId| **id != id_of(slot);
        let staying = membership.voters.iter().filter(stays).count();
        let is_able = |id: &&NodeId| {
            let member = (id.0 - 1) as usize;
            self.is_whole(member) && (staying == 1 || self.is_in_touch(member, slot))
        };
        let able = membership.voters.iter().filter(stays).filter(is_able).count();
        !self.is_whole(slot) || staying < 2 * able
    }

    /// Handles the answer to a change.
    pub(crate) fn on_change_answer(&mut self, operation: u64, outcome: &Outcome) -> Result<(), Violation> {
        let Some((change_request, _, tries)) =
            self.operator.waiting.take_if(|waiting| waiting.1 == operation)
        else {
            return Ok(());
        };
        self.sh.line(None, "members", || format!("{change_request:?}: {}", shown(outcome)));
        let pause = self.operator.dice.log_within(MS, 500 * MS);
        match outcome {
            Outcome::Received(_) => unreachable!("nobody asks for weak answers here"),
            Outcome::Done(reply) => {
                self.sh.counts.changes += 1;
                self.sh.tally.add(Fault::F60);
                if matches!(
                    change_request,
                    ChangeRequest::AddAgain(_) | ChangeRequest::RemoveNobody | ChangeRequest::PromoteVoter(_)
                ) {
                    let story = format!("{change_request:?} was done: {:?}", reply.body);
                    return Err(Violation::new("foolish_changes_are_refused", story));
                }
                if let (ReplyBody::Changed(list), ChangeRequest::Add { slot, .. }) =
                    (&reply.body, change_request)
                    && !list.iter().any(|member| member.id == id_of(slot))
                {
                    let story = format!("{change_request:?} is done, and the members are {list:?}");
                    return Err(Violation::new("changes_are_what_was_asked_for", story));
                }
            }
            Outcome::Refused(Refusal::Member(refusal)) => {
                self.sh.tally.add(Fault::F61);
                let passes = matches!(refusal, MemberRefusal::UnderWay | MemberRefusal::WouldLoseQuorum);
                if passes {
                    self.again(change_request, tries);
                }
            }
            Outcome::Refused(_) | Outcome::Unknown(_) => self.again(change_request, tries),
        }
        self.plan_operator(pause);
        Ok(())
    }

    fn again(&mut self, change_request: ChangeRequest, tries: u8) {
        if tries < TRIES {
            self.operator.todo.push_back((change_request, tries + 1));
        }
        self.plan_operator(200 * MS);
    }

    /// Asks the running members for the member list, as a newcomer does: one round, that begins anywhere.
    pub(crate) fn ask_to_join(&mut self, slot: usize) -> Asked {
        let mut others = self.up();
        if others.is_empty() {
            return Asked::Later;
        }
        let begin = self.sh.dice.below(others.len() as u64) as usize;
        others.rotate_left(begin);
        let seed = self.plan.seed ^ (slot as u64) << 32;
        let newcomer = Newcomer {
            name: format!("n{}", slot + 1),
            group: GROUP,
            incarnation: Incarnation(Dice::new(seed, "newcomers").fork(self.sh.now).roll()),
        };
        let question = newcomer_asks(&info_of(slot).peer_urls);
        let (mut joining, me) = (Joining::new(newcomer, others), id_of(slot));
        let mut is_removed = false;
        loop {
            match joining.next(|member| member.id == me) {
                Step::Ask(asked) => {
                    let answer = self.with_others(|net, around, others| {
                        net.ask_for_members(around, (slot, asked), &question, others)
                    });
                    is_removed |= answer.as_ref().is_ok_and(|list| list.members.removed.contains(&me));
                    joining.told(answer);
                }
                Step::Over(Ok(identity)) => return Asked::Admitted(Box::new(identity)),
                Step::Over(Err(NotJoined::Refused(CannotJoin::WasHere(_)))) => return Asked::Never,
                Step::Over(Err(_)) if is_removed => return Asked::Never,
                Step::Over(Err(_)) => return Asked::Later,
                Step::Pause(_) => return Asked::Behind, // the world waits, and starts it again
            }
        }
    }
}

/// The request for a change.
fn request_of(change_request: ChangeRequest, now: u64) -> Request {
    let add = |slot, peer_urls, votes| MemberChange::Add { id: id_of(slot), peer_urls, votes };
    Request::Change(match change_request {
        ChangeRequest::Move(slot) => return Request::MoveLeader(id_of(slot)),
        ChangeRequest::Add { slot, votes } => add(slot, info_of(slot).peer_urls, votes),
        ChangeRequest::AddAgain(slot) => add(slot, vec!["http://again".into()], false),
        ChangeRequest::Remove(slot) => MemberChange::Remove(id_of(slot)),
        ChangeRequest::RemoveNobody => MemberChange::Remove(NOBODY),
        ChangeRequest::Promote(slot) | ChangeRequest::PromoteVoter(slot) => {
            MemberChange::Promote(id_of(slot))
        }
        ChangeRequest::Timing(timing) => MemberChange::Timing(timing),
        ChangeRequest::Protocol(protocol) => MemberChange::Protocol(protocol),
        ChangeRequest::Update(slot) => {
            let host = format!("n{}-{now}", slot + 1);
            MemberChange::Update { id: id_of(slot), peer_urls: vec![peer_url(slot, &host)] }
        }
    })
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Received(id) => format!("received as {id}"),
        Outcome::Done(reply) => match &reply.body {
            ReplyBody::Changed(list) => {
                let named = |member: &MemberInfo| {
                    format!("n{}{}", member.id.0, if member.learner { " (learner)" } else { "" })
                };
                list.iter().map(named).collect::<Vec<_>>().join(" ")
            }
            _ => "done".into(),
        },
        Outcome::Refused(refusal) => format!("refused: {refusal:?}"),
        Outcome::Unknown(doubt) => format!("open: {doubt:?}"),
    }
}
