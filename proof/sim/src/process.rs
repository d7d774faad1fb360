//! Process: one run of one member in virtual time. [shell/member]
//!
//! The member decides; here its steps are done one by one, and the process can end or wait between any two: for a kill, for a
//! sync that takes time, for a pause. Log and keeper work inline or on threads of their own, as configured.
//! Knows nothing of: why it is killed, who its clients are, what follows from what.

use crate::apply_thread::ApplyThread;
use crate::clock::Clock;
use crate::computing::Computing;
use crate::end::{End, Fuse};
use crate::judged::{Eyes, Now};
use crate::log::{Log, Ordered};
use crate::net::id_of;
use crate::plan;
use crate::report::Violation;
use crate::snapshots::Worker;
use crate::tuned;
use crate::turn_time::TurnTime;
use crate::world::Shared;
use kattu_disk::SimDisk;
use kattu_member::apply::Apart;
use kattu_member::capacity::Capacity;
use kattu_member::log::Completion;
use kattu_member::member::Member;
use kattu_member::progress::Progress;
use kattu_member::step::{FINISH_UNITS, Note, Placed, Stage, Step};
use kattu_member::tuning::{Setting, Threading, Tuning};
use kattu_node::contract::{Event, Members, Outcome, PeerMessage, Refusal, Request};
use kattu_node::{Keeper, Node};
use kattu_raft::LogIndex;
use std::collections::VecDeque;

pub(crate) struct Process {
    pub(crate) member: Member<u64, ()>,
    pub(crate) hands: Hands,
}

/// Where arrivals come from, and steps go to.
pub(crate) struct Hands {
    pub(crate) member: usize,
    pub(crate) run: u32,
    pub(crate) eyes: Eyes,
    pub(crate) log: Log,
    pub(crate) worker: Worker,
    pub(crate) computing: Computing,
    /// A keeper on its own thread.
    pub(crate) apply: Option<ApplyThread>,
    pub(crate) inbox: VecDeque<Event>,
    pub(crate) calls: VecDeque<(u64, Request)>,
    /// What its operator has asked it to go by.
    pub(crate) settings: VecDeque<Vec<Setting>>,
    pub(crate) progress: VecDeque<Progress<u64>>,
    /// Up to where an answer that leaves now is known to reach. [shell/runtime `Facts`]
    pub(crate) position: LogIndex,
    /// Answers on their way out.
    pub(crate) replying: VecDeque<(u64, Outcome)>,
    pub(crate) turns: TurnTime,
    pub(crate) fuse: Fuse,
    /// It has applied its own removal.
    is_gone: bool,
}

impl Process {
    pub(crate) fn new(
        (member, run): (usize, u32),
        node: Node,
        keeper: Keeper,
        (wal, disk): (kattu_wal::Wal, SimDisk),
        clock: Clock,
        sh: &mut Shared,
    ) -> Process {
        let has_thread = |place| place == Threading::Thread;
        let heartbeat_interval = node.raft().timing().heartbeat_interval;
        let sent_away_after = (!has_thread(sh.settings.log_io)).then_some(heartbeat_interval);
        let log = Log::new((member, run), wal, disk, sent_away_after, sh);
        let worker = Worker::new(log.snapshots(), sh.settings.snapshot_pace);
        let (apply, placed) = match has_thread(sh.settings.apply) {
            true => {
                let placed = Placed::Apart(keeper.members(), keeper.health());
                (Some(ApplyThread::new(Apart::new(keeper))), placed)
            }
            false => (None, Placed::Here(Box::new(keeper))),
        };
        let room = log.get().room();
        let now = clock.at(sh.now);
        let capacity = Capacity::new(sh.settings.quota);
        let lease = tuned::lease_of(&sh.settings, sh.pace.drift);
        let node = Member::start(now, node, placed, capacity, room, sh.limits);
        let node = node.with_tuning(&Tuning { log_io: sh.settings.log_io, lease, ..Tuning::default() });
        let hands = Hands {
            member,
            run,
            eyes: Eyes::new(id_of(member), clock),
            log,
            worker,
            computing: Computing::default(),
            apply,
            inbox: VecDeque::new(),
            calls: VecDeque::new(),
            settings: VecDeque::new(),
            progress: VecDeque::new(),
            position: LogIndex(0),
            replying: VecDeque::new(),
            turns: TurnTime::new(member, run),
            fuse: Fuse::default(),
            is_gone: false,
        };
        Process { member: node, hands }
    }

    pub(crate) fn node(&self) -> &Node {
        self.member.node()
    }

    /// Whether it has applied its own removal.
    pub(crate) fn is_gone(&self) -> bool {
        self.hands.is_gone
    }

    /// A peer's message, or the end of a link.
    pub(crate) fn hear(&mut self, event: Event) {
        self.hands.inbox.push_back(event);
    }

    /// A client's request; refused at the door when too many wait there. [shell/runtime `Engine::call`]
    pub(crate) fn call(&mut self, operation: u64, request: Request) -> Result<(), Refusal> {
        if self.hands.calls.len() >= plan::CALLS_MAX {
            return Err(Refusal::TooManyRequests);
        }
        self.hands.calls.push_back((operation, request));
        Ok(())
    }

    /// How long the disk call under way has taken, if there is one.
    pub(crate) fn at_disk_for(&self, now: u64) -> Option<u64> {
        self.hands.log.disk.at_it_for(now)
    }

    fn has_work(&self, sh: &Shared) -> bool {
        let hands = &self.hands;
        !hands.inbox.is_empty()
            || !hands.calls.is_empty()
            || !hands.settings.is_empty()
            || !hands.progress.is_empty()
            || !hands.worker.brought.is_empty()
            || hands.log.has_news()
            || self.member.is_busy()
            || self.member.deadline() <= hands.eyes.clock().at(sh.now)
    }

    /// Does what can be done now, and plans when to look again.
    pub(crate) fn turn(&mut self, sh: &mut Shared) -> Result<(), End> {
        loop {
            if self.member.stage() == Stage::Idle {
                if !self.has_work(sh) {
                    break;
                }
                let hands = &mut self.hands;
                if hands.turns.is_busy(sh) {
                    return Ok(());
                }
                hands.eyes.events_in_batch = 0;
                self.member.limit(sh.limits, sh.settings.quota);
                self.member.begin(&mut Now { hands, sh })?;
            }
            if !self.carry_out(sh)? {
                return Ok(()); // at the disk
            }
            self.end_batch(sh)?;
        }
        let hands = &mut self.hands;
        hands.turns.look_at(sh, hands.eyes.clock().when(self.member.deadline(), sh.now));
        Ok(())
    }

    /// Carries out steps until none are left; `false` when the thread is at the disk meanwhile.
    pub(crate) fn carry_out(&mut self, sh: &mut Shared) -> Result<bool, End> {
        let Process { member, hands } = self;
        while !hands.log.holds_thread() {
            match member.next(&mut Now { hands, sh })? {
                Step::Idle => return Ok(true),
                Step::Send(committed, messages) => {
                    hands.position = committed;
                    let mut unsent = Vec::new();
                    for message in messages.drain(..) {
                        unsent.extend(hands.send(sh, message)?);
                    }
                    member.unsent(&mut Now { hands, sh }, unsent)?;
                }
                Step::Answer(operation, outcome) => hands.tell(sh, Some(operation), outcome)?,
                Step::Tell(ticket, outcome) => hands.tell(sh, member.client(ticket).copied(), outcome)?,
                Step::Unclaimed(ticket, outcome) => {
                    let story =
                        format!("n{} answers {ticket:?}, which does not wait: {outcome:?}", hands.member + 1);
                    return Err(Violation::new("answered_once", story).into());
                }
                Step::Deliver(batch) => {
                    hands.apply.as_mut().expect("it has a thread").batches.push_back(batch);
                    hands.plan_keeper(sh, false);
                    hands.fuse.burn()?;
                }
                Step::Members(members) => hands.follow(sh, &members),
                Step::Timing(timing) => {
                    hands.log.follow(timing.heartbeat_interval);
                    sh.net.go_by(hands.member, timing);
                }
                Step::Tune(tuning) => hands.go_by(sh, member.node().raft().timing(), &tuning)?,
                Step::Part(apart) => hands.part(sh, *apart),
                Step::Recall => hands.recall(sh),
                Step::Distrust(peer, _) => sh.caught.push((id_of(hands.member), peer)),
                Step::Note(Note::Level(level)) => sh.net.peers[hands.member].table.set_level(level),
                Step::Note(_) | Step::Drop(_) => {}
                Step::Order(order) => {
                    hands.fuse.burn()?;
                    hands.order_snapshot(sh, order);
                }
                Step::Compute(job) => {
                    hands.fuse.burn()?;
                    hands.compute(sh, job);
                }
                Step::Persist { records, .. } => {
                    hands.fuse.burn()?;
                    let ordered = hands.log.persist(sh, &mut hands.fuse, records)?;
                    if let Ordered::Done(completion) = ordered {
                        member.completed(&mut Now { hands, sh }, completion)?;
                    }
                }
                Step::Fetch(fetch) => {
                    hands.fuse.burn()?;
                    let ordered = hands.log.fetch(sh, &mut hands.fuse, fetch)?;
                    if let Ordered::Done(completion) = ordered {
                        member.completed(&mut Now { hands, sh }, completion)?;
                    }
                }
            }
        }
        Ok(false)
    }

    /// The disk call that held this thread has come to this.
    pub(crate) fn completed(&mut self, sh: &mut Shared, completion: Completion) -> Result<(), End> {
        self.member.completed(&mut Now { hands: &mut self.hands, sh }, completion)
    }

    fn end_batch(&mut self, sh: &mut Shared) -> Result<(), End> {
        if let Some(desk) = self.member.desk() {
            self.hands.eyes.note_forgotten(desk.keeper());
        }
        self.look_for_compaction(sh);
        self.judge_jobs(sh)?;
        let Hands { turns, eyes, .. } = &mut self.hands;
        turns.judge(self.member.deadline() <= eyes.clock().at(turns.began()))?;
        turns.spend(sh, eyes.events_in_batch, std::mem::take(&mut eyes.work))
    }

    /// A clean stop: everybody is answered, the log is closed.
    pub(crate) fn finish(mut self, sh: &mut Shared) -> Result<(), End> {
        self.hands.fuse.set(None);
        self.await_desk(sh)?;
        self.member.stop(&mut Now { hands: &mut self.hands, sh })?;
        self.carry_out(sh)?;
        self.hands.keep(sh, &mut FINISH_UNITS.clone())?;
        self.hands.log.close()
    }
}

impl Hands {
    /// Sends one message; gives back a forward that could not leave.
    fn send(
        &mut self,
        sh: &mut Shared,
        message: PeerMessage,
    ) -> Result<Option<kattu_node::contract::Forward>, End> {
        self.fuse.burn()?;
        Ok(sh.send(self.member, message))
    }

    /// The table of members has changed.
    fn follow(&mut self, sh: &mut Shared, members: &Members) {
        self.is_gone |= members.removed.contains(&id_of(self.member));
        let (net, mut around) = sh.net();
        net.table(&mut around, self.member, members);
    }
}
