//! World: members, network, disks and clients under one virtual clock.
//!
//! One queue holds all future events. The earliest is handled next, in no virtual time. The same seed gives the same
//! run, bit by bit, in every build.
//! Knows nothing of: how faults are carried out (`storm.rs`), checks after the storm (`calm.rs`).

use crate::clients::{Clients, told};
use crate::clock::{Clock, MS, SEC};
use crate::dice::Dice;
use crate::diverge::Diverged;
use crate::end::End;
use crate::family::Service;
use crate::faults::{Fault, Tally};
use crate::frames::Heard;
use crate::liar::Liar;
use crate::load::{LOAD_FROM, Load};
use crate::log::GROUP;
use crate::net::{CLUSTER, Net, Others, id_of};
use crate::observer::Observer;
use crate::operator::{Asked, Operator, info_of};
use crate::paths::{Around, Flying};
use crate::plan::{self, Disagrees, Pace, Plan, Settings};
use crate::process::Process;
use crate::queue::Queue;
use crate::report::{Counts, Violation};
use crate::sessions::{SESSIONS_FROM, Sessions};
use crate::snapshots::thaw;
use crate::trace::{Told, Trace};
use kattu_disk::{FaultId, SimDisk, Truth};
use kattu_member::opening::{self, Tables};
use kattu_member::peer_table::{Own, PeerTable};
use kattu_member::step::{LIMITS, Limits};
use kattu_node::contract::{
    Consistency, Doubt, Event as Input, Forward, MemberInfo, Outcome, PeerMessage, Refusal, Request,
};
use kattu_node::{Keeper, Node, NodeConfig, RequestLimits, level};
use kattu_raft::{
    Config, Duration, EntryId, Incarnation, LeadershipConfig, LinkEnd, LogIndex, NodeId, Recovered, Term,
};
use kattu_verify::history::{Record, What};
use kattu_wal::{DataDir, Identity, InitialMember, Wal, WalError, WalOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Time between two checks of the whole state.
const LOOK_EVERY: u64 = 2 * SEC;
/// That time grows by as much again per this many entries in the longest log.
const LOOK_ENTRIES: u64 = 1000;

/// The quota that members announce, and the first one twice as much; the stores of simulated members stay below it.
const QUOTA: u64 = 1 << 30;

/// A future event. `run` is the run of the process that it is for; a later run ignores it.
#[allow(missing_docs)]
pub(crate) enum Event {
    /// The process takes a turn.
    Wake {
        member: usize,
        run: u32,
    },
    /// The disk call ends.
    Synced {
        member: usize,
        run: u32,
    },
    /// The disk call has taken too long.
    Watchdog {
        member: usize,
        run: u32,
    },
    /// The keeper's thread has done a batch.
    Kept {
        member: usize,
        run: u32,
    },
    /// The snapshot worker takes a step.
    Worked {
        member: usize,
        run: u32,
    },
    /// A job is done.
    Computed {
        member: usize,
        run: u32,
        number: u64,
    },
    /// A segment is made beside the log.
    SegmentMade {
        member: usize,
        run: u32,
    },
    /// The log's thread retries on a full disk.
    RetryLog {
        member: usize,
        run: u32,
    },
    /// A wedged process is ended.
    Unwedge {
        member: usize,
        run: u32,
    },
    Frame(Box<Flying>),
    /// An old message arrives once more.
    Late {
        to: usize,
        message: Box<PeerMessage>,
    },
    LinkClosed {
        member: usize,
        peer: usize,
        end: LinkEnd,
        /// The peer had announced its feature level on this link.
        was_heard: bool,
    },
    Hangup {
        from: usize,
        to: usize,
        lane: usize,
        connection: u32,
    },
    Silence {
        from: usize,
        to: usize,
        lane: usize,
        connection: u32,
    },
    /// The next frame leaves a clogged lane.
    Drain {
        from: usize,
        to: usize,
        lane: usize,
        connection: u32,
    },
    /// A frame has left the wire of a link.
    Wire {
        from: usize,
        to: usize,
        plan: u32,
    },
    Dial {
        from: usize,
        to: usize,
        lane: usize,
        connection: u32,
    },
    /// A member that was cut off from all others is joined again.
    Joined {
        member: usize,
    },
    /// A member waits to stop until it no longer leads, or until `until`.
    Stop {
        member: usize,
        run: u32,
        until: u64,
        down: u64,
    },
    /// The operator sends the next change of its list.
    Operate,
    /// The handshake of a removed member was refused.
    Removed {
        member: usize,
        run: u32,
    },
    /// A member has let in a caller, `by`.
    Handshake {
        member: usize,
        run: u32,
        by: usize,
        /// The first one of it in this run.
        is_first: bool,
        /// What it announces.
        brings: Vec<Input>,
    },
    /// A member starts, if this is still the newest plan for its start.
    Start {
        member: usize,
        number: u32,
    },
    Resume {
        member: usize,
    },
    /// A client's next operation.
    Client {
        client: u32,
    },
    Arrive {
        operation: u64,
    },
    Answer {
        operation: u64,
        outcome: Box<Outcome>,
        /// The log position for later reads at least as new.
        position: LogIndex,
    },
    Impatient {
        operation: u64,
    },
    /// A fault strikes, by its place in the plan.
    Inject {
        place: usize,
    },
    /// The effect of that fault ends.
    Over {
        place: usize,
    },
    /// The next requests of a flood.
    Flood {
        place: usize,
    },
    /// The judges of service take a sample.
    LookAtService,
    /// The next request of a stream of load.
    Load {
        stream: usize,
    },
    /// A caller's next turn.
    Session {
        caller: usize,
    },
    /// A flapping cut changes.
    Flap {
        place: usize,
        cut: bool,
    },
    Look,
    /// The calm probes a member.
    Probe {
        member: usize,
    },
}

/// What all members share.
pub(crate) struct Shared {
    pub(crate) now: u64,
    pub(crate) queue: Queue<Event>,
    pub(crate) settings: Settings,
    pub(crate) pace: Pace,
    pub(crate) tally: Tally,
    pub(crate) counts: Counts,
    pub(crate) trace: Trace,
    pub(crate) observer: Observer,
    pub(crate) net: Net,
    pub(crate) dice: Dice,
    /// When jobs are done, and which never are.
    pub(crate) job_dice: Dice,
    pub(crate) diverged: Diverged,
    pub(crate) service: Service,
    /// How much goes into one batch.
    pub(crate) limits: Limits,
    /// A member that announces no feature level, as an older version does not.
    pub(crate) older: Option<usize>,
    /// The lying member.
    pub(crate) liar: Option<Liar>,
    /// Pairs of a member and the liar it has detected: their links end.
    pub(crate) caught: Vec<(NodeId, NodeId)>,
    /// Members that restarted with less than they had acknowledged, undetected so far, and by which fault.
    pub(crate) forgot: BTreeMap<NodeId, Fault>,
    /// Members that started from an older copy of their directory and still lack what they had.
    pub(crate) older_copies: BTreeMap<NodeId, OlderCopy>,
    /// How long each member's vote holds last, as its directory records it. An older copy of a directory comes back with
    /// the newest record: what it may have forgotten is bound (f) of the fault model. [replication-protocols L-4]
    pub(crate) vote_holds: BTreeMap<NodeId, Duration>,
    /// Events handled by members.
    pub(crate) events: u64,
}

impl Shared {
    /// The network, with what it needs.
    pub(crate) fn net(&mut self) -> (&mut Net, Around<'_>) {
        let Shared { now, queue, tally, trace, net, .. } = self;
        (net, Around { now: *now, queue, tally, trace })
    }

    pub(crate) fn send(&mut self, from: usize, message: PeerMessage) -> Option<Forward> {
        let (net, mut around) = self.net();
        net.send(&mut around, from, message)
    }

    /// Sends an answer to its client, with the log position that the member returns for later reads at least as
    /// new.
    pub(crate) fn answer(&mut self, operation: u64, outcome: Outcome, position: LogIndex) {
        let answer = Event::Answer { operation, outcome: Box::new(outcome), position };
        self.queue.plan(self.now + self.pace.client, answer);
    }

    pub(crate) fn line(&mut self, member: Option<usize>, kind: &'static str, what: impl FnOnce() -> String) {
        self.trace.line(self.now, member.map(|member| id_of(member).0), kind, what);
    }
}

/// One member: its disk, and its process while it runs.
pub(crate) struct Member {
    pub(crate) disk: SimDisk,
    pub(crate) process: Option<Box<Process>>,
    pub(crate) run: u32,
    /// Where its log ended when its process did.
    pub(crate) ended_at: LogIndex,
    /// Planned starts so far; only the newest counts.
    pub(crate) starts: u32,
    pub(crate) clock: Clock,
    /// Offset of its wall clock, in seconds; the code under test must not depend on it.
    pub(crate) wall: i64,
    pub(crate) paused_until: u64,
    /// Events that ended while the process was paused; it receives them when it resumes.
    pub(crate) held: Vec<Event>,
    pub(crate) wedged: bool,
    /// Its disk has failed a call in this run: its log may fail.
    pub(crate) disk_failed: bool,
    /// Power is lost again in the next starts: how often, and after how many disk operations.
    pub(crate) lose_power_again: (u64, u64),
    /// The fault that damaged its files, and whether it stays down if it refuses them.
    pub(crate) damaged: Option<(Fault, bool)>,
    /// It refused its files and stays down.
    pub(crate) ruined: bool,
    /// How long it stays down after a fault that ends it.
    pub(crate) down: u64,
    /// It lost its directory in this term.
    pub(crate) wiped_in: Option<Term>,
    /// The incarnation that its handshakes name, if that is not its directory's.
    pub(crate) named_as: Option<Incarnation>,
    /// It was far behind; it has caught up when it holds this.
    pub(crate) lagging: Option<LogIndex>,
    /// It is, was or will be in the cluster.
    pub(crate) in_use: bool,
    /// The calm found it in the cluster, and started it if it was down.
    pub(crate) called: bool,
    /// It was removed and has ended for good.
    pub(crate) gone: bool,
    /// Its directory is lost: it would start empty.
    pub(crate) lost_directory: bool,
    /// The lost disk: put back if the cluster cannot do without it.
    pub(crate) lost_disk: Option<SimDisk>,
    /// A snapshot of it was damaged: it is whole again with one that reaches this index.
    pub(crate) hurt: Option<LogIndex>,
    /// Its log was cut before the damage: it is whole again when its log is as complete as this.
    pub(crate) vote_floor: Option<EntryId>,
    /// The disk as it was before a repair of its log that has not ended.
    pub(crate) half_repaired: Option<SimDisk>,
    /// Its disk reported a last block as synced that the power cut then took.
    pub(crate) lied_to: bool,
    /// Its directory as it was some time ago.
    pub(crate) older: Option<SimDisk>,
    /// Its directory before an older copy replaced it, until it takes part with the copy.
    pub(crate) newest: Option<SimDisk>,
}

/// A start from an older copy of a directory. The other members must still know what they knew when the copy was put
/// back: a restarted peer has lost part of that. [fault-model F19]
#[derive(Debug)]
pub(crate) struct OlderCopy {
    /// It held entries up to here; until it does again, each start needs reminders.
    pub(crate) owed: LogIndex,
    /// No other member has ended meanwhile.
    pub(crate) are_others_as_they_were: bool,
    /// It takes part.
    pub(crate) is_over: bool,
    /// All others have reminded it, and none had restarted.
    pub(crate) is_reminded: bool,
}

/// The simulated world.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) sh: Shared,
    pub(crate) members: Vec<Member>,
    pub(crate) clients: Clients,
    pub(crate) dice: Dice,
    /// Whose disk each fault has filled, by the place of the fault in the plan.
    pub(crate) full: BTreeMap<usize, usize>,
    /// The storm is over.
    pub(crate) calm: bool,
    /// When each member first completed a write in the calm.
    pub(crate) probes: Vec<Option<u64>>,
    /// Operations that the calm waits for, each with its member.
    pub(crate) probing: Vec<(u64, usize)>,
    pub(crate) last_read: Option<(u64, What)>,
    pub(crate) operator: Operator,
    pub(crate) load: Load,
    pub(crate) sessions: Sessions,
}

/// Slices are as in production, or so small that no task fits into one. Where service is judged they are always as in
/// production.
fn draw_limits(seed: u64, is_served: bool) -> Limits {
    let mut dice = Dice::new(seed, "slices");
    match is_served {
        true => Limits { tasks: plan::TASKS_MAX_SERVED, ..LIMITS },
        false if dice.one_in(3) => Limits { tasks: plan::TASKS_MAX, ..LIMITS },
        false => Limits { tasks: plan::TASKS_MAX, slice: dice.log_within(1, 4096) as i64, ..LIMITS },
    }
}

fn draw_older(seed: u64, count: usize) -> Option<usize> {
    let mut dice = Dice::new(seed, "versions");
    dice.one_in(4).then(|| dice.below(count as u64) as usize)
}

/// Mostly more than any request of a storm costs. Some storms refuse many requests, and not the same ones on all
/// members: how a member applies an entry must not depend on this limit.
fn draw_work_max(seed: u64, member: usize) -> u64 {
    let mut storm = Dice::new(seed, "budgets");
    if !storm.one_in(4) {
        return RequestLimits::default().work_max;
    }
    Dice::new(seed ^ (member as u64) << 32, "budgets of members").log_within(16, 2048)
}

/// The error of a log whose base no snapshot reaches, with the index of the base.
fn uncovered(wal: &Wal) -> Option<(&WalError, LogIndex)> {
    wal.complaints().iter().find_map(|error| match error {
        WalError::Uncovered { base, .. } => Some((error, base.index)),
        _ => None,
    })
}

/// A member's log, its recovered state, and its snapshot's tables with their bytes, if it has one.
pub(crate) type Opened = (Wal, Recovered, Option<(Keeper, u64)>);

impl World {
    pub(crate) fn new(plan: Plan, told: Arc<Mutex<Told>>) -> World {
        let seed = plan.seed;
        let count = (plan.members + plan.spares) as usize;
        let mut dice = Dice::new(seed, "members");
        let voters: Vec<_> = (0..plan.members as usize).map(id_of).collect();
        let sh = Shared {
            now: 0,
            queue: Queue::default(),
            settings: plan.settings.clone(),
            pace: plan.pace.clone(),
            tally: Tally::default(),
            counts: Counts::default(),
            trace: Trace::new(told),
            observer: Observer::new(&voters, plan.liar.is_some()),
            liar: plan.liar.map(|lies| Liar::new(seed, lies)),
            caught: Vec::new(),
            net: Net::new(seed, count, &plan),
            dice: Dice::new(seed, "processes"),
            job_dice: Dice::new(seed, "jobs"),
            service: Service::default(),
            limits: draw_limits(seed, plan.service.is_some()),
            older: draw_older(seed, plan.members as usize),
            diverged: Diverged::new(plan.kinds.has(crate::inject::Kind::Diverge)),
            forgot: BTreeMap::new(),
            older_copies: BTreeMap::new(),
            vote_holds: BTreeMap::new(),
            events: 0,
        };
        let members = (0..count)
            .map(|number| {
                let drift = plan.pace.drift;
                let drawn = dice.within(0, 2 * drift as u64) as i64 - drift;
                let rate = plan.pace.rates.get(number).copied().unwrap_or(drawn);
                Member {
                    disk: SimDisk::seeded(
                        Dice::new(seed, "disks").fork(number as u64).roll(),
                        plan.pace.disk,
                    ),
                    process: None,
                    run: 0,
                    starts: 0,
                    clock: Clock::new(dice.below(1_000_000 * SEC) + SEC, rate),
                    wall: 0,
                    paused_until: 0,
                    held: Vec::new(),
                    wedged: false,
                    disk_failed: false,
                    ended_at: LogIndex(0),
                    lose_power_again: (0, 0),
                    damaged: None,
                    ruined: false,
                    down: 0,
                    wiped_in: None,
                    named_as: None,
                    lagging: None,
                    hurt: None,
                    vote_floor: None,
                    half_repaired: None,
                    lied_to: false,
                    older: None,
                    newest: None,
                    in_use: number < plan.members as usize,
                    called: false,
                    gone: false,
                    lost_directory: false,
                    lost_disk: None,
                }
            })
            .collect();
        let clients = Clients::new(seed, &plan.load, &plan.settings, &plan.pace);
        let mut world = World {
            sh,
            members,
            clients,
            dice: Dice::new(seed, "storm"),
            full: BTreeMap::new(),
            calm: false,
            probes: vec![None; count],
            probing: Vec::new(),
            last_read: None,
            operator: Operator::new(seed),
            load: Load::new(seed),
            sessions: Sessions::new(&plan),
            plan,
        };
        world.plan_beginning();
        world
    }

    fn plan_beginning(&mut self) {
        for member in 0..self.plan.members as usize {
            let at = self.dice.below(100 * MS);
            self.plan_start(member, at);
        }
        for client in 0..self.plan.load.clients {
            let at = self.clients.rest();
            self.sh.queue.plan(at, Event::Client { client });
        }
        self.begin_sessions();
        for (place, (_, injection)) in self.plan.injections.iter().enumerate() {
            self.sh.queue.plan(injection.at, Event::Inject { place });
        }
        self.sh.queue.plan(LOOK_EVERY, Event::Look);
    }

    /// Runs until `end` or a violation.
    pub(crate) fn run_until(&mut self, end: u64) -> Result<(), Violation> {
        while let Some(at) = self.sh.queue.next_at()
            && at < end
        {
            let (at, event) = self.sh.queue.pop().expect("its time was just seen");
            assert!(self.sh.now <= at, "something was planned for the past");
            self.sh.now = at;
            self.happen(event)?;
        }
        self.sh.now = self.sh.now.max(end);
        Ok(())
    }

    /// Runs while `goes_on` holds, at most until `end`; whether it stopped holding.
    pub(crate) fn run_while(
        &mut self,
        end: u64,
        mut goes_on: impl FnMut(&mut World) -> bool,
    ) -> Result<bool, Violation> {
        while goes_on(self) {
            match self.sh.queue.pop() {
                Some((at, event)) if at <= end => {
                    self.sh.now = at;
                    self.happen(event)?;
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Wake { member, run } => self.work(member, run, |_, _| Ok(())),
            Event::Synced { member, run } => {
                self.work_or_wait(member, run, || Event::Synced { member, run }, Process::synced)
            }
            Event::Kept { member, run } => {
                self.work_or_wait(member, run, || Event::Kept { member, run }, Process::kept)
            }
            Event::Worked { member, run } => {
                self.work_or_wait(member, run, || Event::Worked { member, run }, Process::work_on_snapshots)
            }
            Event::Computed { member, run, number } => self.work_or_wait(
                member,
                run,
                || Event::Computed { member, run, number },
                |process, sh| process.computed(sh, number),
            ),
            Event::SegmentMade { member, run } => self.work_or_wait(
                member,
                run,
                || Event::SegmentMade { member, run },
                |process, sh| {
                    process.make_segment(sh);
                    Ok(())
                },
            ),
            Event::RetryLog { member, run } => {
                self.work_or_wait(member, run, || Event::RetryLog { member, run }, Process::retry_log)
            }
            Event::Watchdog { member, run } => self.on_watchdog(member, run),
            Event::Unwedge { member, run } => {
                if self.runs(member, run) && self.members[member].wedged {
                    self.sh.tally.add(Fault::F04);
                    return self.kill(member, "its watchdog ends it");
                }
                Ok(())
            }
            Event::Frame(flying) => self.on_frame(&flying),
            Event::Late { to, message } => {
                let run = self.members[to].run;
                self.sh.trace.mix(13);
                self.hear(to, run, Input::Peer(*message))
            }
            Event::LinkClosed { member, peer, end, was_heard } => {
                let run = self.members[member].run;
                if was_heard {
                    self.hear(member, run, Input::Knows(id_of(peer), level::FIRST))?;
                }
                self.hear(member, run, Input::LinkClosed(id_of(peer), end))
            }
            Event::Hangup { from, to, lane, connection } => {
                let (net, mut around) = self.sh.net();
                net.hangup(&mut around, (from, to, lane), connection);
                Ok(())
            }
            Event::Silence { from, to, lane, connection } => {
                let (net, mut around) = self.sh.net();
                net.silence(&mut around, (from, to, lane), connection);
                Ok(())
            }
            Event::Drain { from, to, lane, connection } => {
                let (net, mut around) = self.sh.net();
                net.paths.drain(&mut around, (from, to, lane), connection);
                Ok(())
            }
            Event::Wire { from, to, plan } => {
                let (net, mut around) = self.sh.net();
                net.paths.on_wire(&mut around, from, to, plan);
                Ok(())
            }
            Event::Dial { from, to, lane, connection } => self
                .with_others(|net, around, others| {
                    net.dial(around, (from, to, lane), connection, others);
                    net.broken.take()
                })
                .map_or(Ok(()), |(rule, story)| Err(Violation::new(rule, story))),
            Event::Start { member, number } => {
                if self.members[member].starts == number {
                    self.start(member)
                } else {
                    Ok(())
                }
            }
            Event::Resume { member } => {
                if !self.is_paused(member) {
                    for event in std::mem::take(&mut self.members[member].held) {
                        // The watchdog counts its own looks, so a pause does not count. [shell/runtime `watchdog`]
                        let is_watchdog = matches!(event, Event::Watchdog { .. });
                        let after = if is_watchdog { self.plan.settings.disk_stall } else { 0 };
                        self.sh.queue.plan(self.sh.now + after, event);
                    }
                }
                let run = self.members[member].run;
                self.work(member, run, |_, _| Ok(()))
            }
            Event::Client { client } => self.on_client(client),
            Event::Arrive { operation } => self.on_arrival(operation),
            Event::Session { caller } => self.on_session(caller),
            Event::Answer { operation, outcome, .. } if SESSIONS_FROM <= operation => {
                self.session_answered(operation, *outcome)
            }
            Event::Answer { operation, outcome, .. } if LOAD_FROM <= operation => {
                self.load_answered(operation, &outcome);
                Ok(())
            }
            Event::Answer { operation, outcome, .. }
                if self.clients.asked[operation as usize].is_change_request =>
            {
                self.on_change_answer(operation, &outcome)?;
                self.on_answer(operation, What::Refused { reason: "told".into() })
            }
            Event::Answer { operation, outcome, position } => {
                // Lies need not be text, and answers among liars are not judged.
                let what = match self.plan.liar {
                    Some(_) => What::Refused { reason: "among liars".into() },
                    None => told(*outcome),
                };
                self.clients.note_position(operation, &what, position);
                self.on_answer(operation, what)
            }
            Event::Impatient { operation } => {
                self.on_answer(operation, What::Unknown { reason: "the client stopped waiting".into() })
            }
            Event::Inject { place } => self.inject(place),
            Event::Over { place } => self.over(place),
            Event::Flood { place } => self.flood(place),
            Event::LookAtService => self.look_at_service(),
            Event::Load { stream } => self.on_load(stream),
            Event::Flap { place, cut } => self.flap(place, cut),
            Event::Stop { member, run, until, down } => {
                if self.runs(member, run) {
                    self.stop_when_free(member, until, down)
                } else {
                    Ok(())
                }
            }
            Event::Joined { member } => self.join(member),
            Event::Operate => self.operate(),
            Event::Removed { member, run } => {
                if self.runs(member, run) {
                    self.leave(member, "was removed, and its handshake is refused")
                } else {
                    Ok(())
                }
            }
            Event::Handshake { member, run, by, is_first, brings } => {
                self.look_at_priority(member, by, is_first, &brings)?;
                for event in brings {
                    match event {
                        _ if !self.runs(member, run) => {}
                        // An older version announces none.
                        Input::Knows(..) if self.sh.older == Some(by) => {}
                        Input::Knows(of, level) => {
                            let level = level.min(self.plan.settings.level); // as versions of this storm do
                            self.hear(member, run, Input::Knows(of, level))?;
                        }
                        Input::Priority(of, priority) => {
                            self.hear(member, run, Input::Priority(of, priority))?;
                        }
                        other => unreachable!("{other:?} in a handshake"),
                    }
                }
                Ok(())
            }
            Event::Look => self.look(),
            Event::Probe { member } => self.probe(member),
        }
    }

    /// Lets the network ask the members' processes. Instead of a linearizable read, a member that is asked for the members
    /// must have applied all that is committed. [core/node `newcomer`]
    pub(crate) fn with_others<T>(
        &mut self,
        ask: impl FnOnce(&mut Net, &mut Around<'_>, &Others<'_>) -> T,
    ) -> T {
        let World { sh, members, .. } = self;
        let (now, committed) = (sh.now, sh.observer.committed());
        let answers = |member: usize| {
            let Member { process, wedged, paused_until, .. } = &members[member];
            process.is_some() && !wedged && *paused_until <= now
        };
        let confirmed = |member: usize| {
            let keeper = members[member].process.as_ref().map(|process| process.keeper());
            let is_current = |keeper: &&Keeper| committed <= keeper.applied();
            keeper
                .filter(is_current)
                .map(Keeper::members)
                .ok_or_else(|| "no quorum confirms the list".to_string())
        };
        let (net, mut around) = sh.net();
        ask(net, &mut around, &Others { answers: &answers, confirmed: &confirmed })
    }

    // ── Members ──

    pub(crate) fn is_paused(&self, member: usize) -> bool {
        let member = &self.members[member];
        member.wedged || self.sh.now < member.paused_until
    }

    fn runs(&self, member: usize, run: u32) -> bool {
        self.members[member].process.is_some() && self.members[member].run == run
    }

    /// Members whose process runs.
    pub(crate) fn up(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|&member| self.members[member].process.is_some()).collect()
    }

    /// Runs `what` on a process, then a turn for the work that follows.
    fn work(
        &mut self,
        member: usize,
        run: u32,
        what: impl FnOnce(&mut Process, &mut Shared) -> Result<(), End>,
    ) -> Result<(), Violation> {
        if !self.runs(member, run) || self.is_paused(member) {
            return Ok(());
        }
        let mut process = self.members[member].process.take().expect("it runs");
        let ended = what(&mut process, &mut self.sh).and_then(|()| process.turn(&mut self.sh));
        self.members[member].process = Some(process);
        self.forget_newest(member);
        self.part_from_liars();
        match ended {
            Ok(()) if self.members[member].process.as_ref().is_some_and(|process| process.is_gone()) => {
                self.leave(member, "has applied its removal")
            }
            Ok(()) if self.members[member].disk.is_out() => {
                // The power went while a segment was made beside the log. That failure alone would only be retried.
                self.sh.tally.add(Fault::F01);
                self.kill(member, "the power is out")
            }
            Ok(()) => Ok(()),
            Err(end) => self.on_end(member, end),
        }
    }

    /// The same; if the process is paused, once it resumes.
    fn work_or_wait(
        &mut self,
        member: usize,
        run: u32,
        again: impl FnOnce() -> Event,
        what: impl FnOnce(&mut Process, &mut Shared) -> Result<(), End>,
    ) -> Result<(), Violation> {
        if self.is_paused(member) && !self.members[member].wedged {
            self.members[member].held.push(again());
            return Ok(());
        }
        self.work(member, run, what)
    }

    pub(crate) fn hear(&mut self, member: usize, run: u32, input: Input) -> Result<(), Violation> {
        if let Some(process) = &mut self.members[member].process {
            process.hear(input);
        }
        self.work(member, run, |_, _| Ok(()))
    }

    fn on_frame(&mut self, flying: &Flying) -> Result<(), Violation> {
        let to = flying.to;
        if self.members[to].process.is_none() {
            return Ok(());
        }
        self.sh.trace.mix(self.sh.now);
        self.sh.trace.mix_bytes(&flying.bytes);
        let (net, mut around) = self.sh.net();
        match net.receive(&mut around, flying) {
            Heard::Message(message) => self.on_message(flying.from, to, message),
            Heard::InOrder(messages) => {
                for message in messages {
                    if self.members[to].process.is_some() {
                        self.on_message(flying.from, to, message)?;
                    }
                }
                Ok(())
            }
            Heard::Broken => {
                net.close(&mut around, flying.from, to, flying.lane, LinkEnd::Otherwise);
                Ok(())
            }
            Heard::Nothing => Ok(()),
            Heard::Fooled(story) => Err(Violation::new("frames_are_checked", story)),
        }
    }

    fn on_message(&mut self, from: usize, to: usize, message: PeerMessage) -> Result<(), Violation> {
        let run = self.members[to].run;
        let raft = self.members[to].process.as_ref().expect("its caller has seen it").node().raft();
        let liar = self.sh.liar.as_mut();
        let lie = liar.and_then(|liar| liar.instead(from, &message, raft));
        self.sh.counts.lies += u64::from(lie.is_some());
        self.hear(to, run, Input::Peer(lie.unwrap_or(message)))
    }

    fn on_watchdog(&mut self, member: usize, run: u32) -> Result<(), Violation> {
        // `Unwedge` ends a wedged process.
        if !self.runs(member, run) || self.members[member].wedged {
            return Ok(());
        }
        if self.is_paused(member) {
            self.members[member].held.push(Event::Watchdog { member, run });
            return Ok(());
        }
        self.kill(member, "its disk hangs, and its watchdog ends it")
    }

    /// Handles the end of a process.
    fn on_end(&mut self, member: usize, end: End) -> Result<(), Violation> {
        match end {
            End::Violation(violation) => Err(violation),
            End::NotReminded => self.put_newest_back(member),
            End::Fuse => {
                self.sh.tally.add(Fault::F01);
                self.kill(member, "killed between two effects")
            }
            End::Log(error) => {
                self.count_fired(member);
                let state = &self.members[member];
                let why = format!("its log failed: {error}");
                if state.disk.is_out() {
                    self.sh.tally.add(Fault::F01);
                    return self.kill(member, &why);
                }
                let is_lied_to = state.disk.truth() != Truth::Whole;
                if !state.disk_failed && !is_lied_to {
                    let story = format!("n{}: {error}", member + 1);
                    return Err(Violation::new("a_log_fails_only_with_its_disk", story));
                }
                self.kill(member, &why)
            }
        }
    }

    /// Kills a process; what was not synced may be lost.
    pub(crate) fn kill(&mut self, member: usize, why: &str) -> Result<(), Violation> {
        let state = &self.members[member];
        if state.process.is_none() {
            return Ok(());
        }
        let power = state.disk.is_out() || !self.dice.one_in(4);
        self.kill_as(member, why, power, |dice| power && dice.one_in(3))
    }

    /// The same; the caller decides whether power is lost and connections end silently.
    pub(crate) fn kill_as(
        &mut self,
        member: usize,
        why: &str,
        power: bool,
        silently: impl FnOnce(&mut Dice) -> bool,
    ) -> Result<(), Violation> {
        let state = &mut self.members[member];
        if state.process.is_none() {
            return Ok(());
        }
        self.look_at_vote_floor(member);
        for (of, copy) in &mut self.sh.older_copies {
            match *of == id_of(member) {
                true if copy.is_reminded => {
                    (copy.are_others_as_they_were, copy.is_over, copy.is_reminded) = (true, false, false);
                }
                true => {}
                false => copy.are_others_as_they_were = false,
            }
        }
        let state = &mut self.members[member];
        let mut process = state.process.take().expect("just seen");
        state.ended_at = process.node().raft().last_id().index;
        let elapsed = process.at_disk_for(self.sh.now).unwrap_or(u64::MAX);
        let waiting = process.take_waiting();
        drop(process);
        let lost = if power {
            let lost = state.disk.power_fails(self.dice.roll(), elapsed);
            lost.is_something()
                .then(|| format!("; lost {} sectors, {} names", lost.sectors + lost.sectors_old, lost.names))
        } else {
            state.disk.process_dies(elapsed);
            None
        };
        let silently = silently(&mut self.dice);
        let down = state.down;
        self.sh.line(Some(member), "process", || format!("ends: {why}{}", lost.unwrap_or_default()));
        self.count_fired(member);
        self.after_end(member, waiting, silently)?;
        self.plan_start(member, self.sh.now + down.max(1));
        Ok(())
    }

    /// Ends a removed member for good.
    fn leave(&mut self, member: usize, why: &str) -> Result<(), Violation> {
        self.members[member].gone = true;
        self.kill_as(member, why, false, |_| false)
    }

    /// Ends the connections and waiting calls of a process.
    pub(crate) fn after_end(
        &mut self,
        member: usize,
        waiting: Vec<u64>,
        silently: bool,
    ) -> Result<(), Violation> {
        let state = &mut self.members[member];
        state.paused_until = 0;
        state.held.clear();
        state.wedged = false;
        state.lagging = None;
        self.sh.trace.mix(17 ^ self.sh.now);
        self.sh.diverged.ended(id_of(member));
        self.sh.observer.crashed(id_of(member))?;
        let crashed = What::Crashed { member: id_of(member).0 };
        self.clients.history.push(Record { at: self.sh.now, client: 0, id: 0, what: crashed });
        let (net, mut around) = self.sh.net();
        net.ended(&mut around, member, silently);
        for operation in waiting {
            if SESSIONS_FROM <= operation {
                self.session_answered(operation, Outcome::Unknown(Doubt::Stopping))?;
                continue;
            }
            if LOAD_FROM <= operation {
                self.load_ended(operation, false);
                continue;
            }
            if self.clients.asked[operation as usize].is_change_request {
                self.on_change_answer(operation, &Outcome::Unknown(Doubt::Stopping))?;
            }
            self.on_answer(operation, What::Unknown { reason: "the connection was lost".into() })?;
        }
        Ok(())
    }

    pub(crate) fn plan_start(&mut self, member: usize, at: u64) {
        let state = &mut self.members[member];
        state.starts += 1;
        self.sh.queue.plan(at, Event::Start { member, number: state.starts });
    }

    fn start(&mut self, member: usize) -> Result<(), Violation> {
        let state = &mut self.members[member];
        if state.process.is_some() || state.ruined || state.gone || !state.in_use {
            return Ok(());
        }
        let (again, operations) = state.lose_power_again;
        if again > 0 && !self.calm {
            state.lose_power_again.0 -= 1;
            state.disk.lose_power_after(operations);
        }
        let resumes = state.half_repaired.is_some();
        if resumes {
            state.disk.accept(); // the power cut decided what there is
        }
        let mut truth = state.disk.truth();
        let repairs = resumes || truth == Truth::Whole || self.may_be_repaired(member);
        let state = &mut self.members[member];
        if truth == Truth::MayForget {
            // No log can detect this loss. Such a member may come back only where nothing depends on what it has lost.
            // [docs/formats/block.md]
            if !state.lied_to {
                state.disk.heal();
            }
            truth = Truth::Whole;
        }
        if truth == Truth::Whole {
            self.look_at_forgotten_founder(member)?;
        }
        let mut joined = None;
        if truth == Truth::Whole && self.is_newcomer(member) {
            match self.ask_to_join(member) {
                Asked::Admitted(identity) => {
                    if std::mem::take(&mut self.members[member].lost_directory) {
                        self.members[member].lost_disk = None;
                        self.sh.observer.wiped(id_of(member)); // no peer knew it: it has acknowledged nothing
                    }
                    joined = Some(*identity);
                }
                // The calm starts current members only.
                Asked::Later if self.calm => return Ok(()),
                Asked::Later | Asked::Behind => {
                    let wait = self.dice.within(50 * MS, 500 * MS);
                    self.plan_start(member, self.sh.now + wait);
                    return Ok(());
                }
                Asked::Never => {
                    self.sh.tally.add(Fault::F61);
                    self.sh.line(Some(member), "members", || "may not join under its old id".into());
                    self.members[member].ruined = true;
                    self.replace_lost(member);
                    return Ok(());
                }
            }
        }
        if truth != Truth::Whole && repairs && !resumes {
            self.members[member].half_repaired = Some(self.members[member].disk.copy());
        }
        match self.open(member, joined, repairs) {
            Ok((wal, recovered, tables)) => {
                let is_repaired =
                    wal.complaints().iter().any(|error| matches!(error, WalError::Repaired { .. }));
                let lost_before = uncovered(&wal).map(|(_, base)| base);
                if lost_before.is_some_and(|base| self.puts_snapshots_back(member, base)) {
                    drop(wal);
                    self.start_again(member);
                    return Ok(());
                }
                let state = &mut self.members[member];
                state.disk.lose_power_after(u64::MAX);
                state.half_repaired = None;
                if std::mem::take(&mut state.lied_to) {
                    state.disk.accept();
                    self.forgets(member, Fault::F18);
                }
                let state = &mut self.members[member];
                if let Some(vote_floor) = state.vote_floor
                    && recovered.vote_floor.unwrap_or_default().max(recovered.last) < vote_floor
                {
                    let story = format!("n{} has lost its vote floor {vote_floor}", member + 1);
                    return Err(Violation::new("floors_survive_restarts", story));
                }
                if is_repaired || resumes {
                    self.note_repaired(member, &wal, &recovered);
                } else if truth == Truth::Refuse {
                    let story = format!("n{} starts although its files are damaged", member + 1);
                    return Err(Violation::new("damage_is_refused", story));
                }
                let state = &mut self.members[member];
                if let Some((fault, _)) = state.damaged.take() {
                    state.disk.forget_needless();
                    if state.hurt.is_none() {
                        state.disk.heal();
                    } else if fault == Fault::F15 || !wal.complaints().is_empty() {
                        // The snapshot stays lost: the member has another one, or asks for one.
                        self.sh.tally.add(fault);
                    }
                }
                if let Some(base) = lost_before {
                    state.hurt.get_or_insert(base);
                }
                self.boot(member, wal, recovered, tables)
            }
            Err(WalError::Uncovered { base, .. }) if self.puts_snapshots_back(member, base.index) => {
                self.start_again(member);
                Ok(())
            }
            Err(error) => self.on_refused_start(member, truth, resumes, &error),
        }
    }

    /// The disk of a member whose log begins after `base` has lost all snapshots that reach it. Whether that is one
    /// loss too many, so that an operator has put the files back: guarantees are for damage to fewer than half of the
    /// voters at a time. [fault-model §4]
    fn puts_snapshots_back(&mut self, member: usize, base: LogIndex) -> bool {
        let state = &self.members[member];
        let is_covered = state.disk.good_snapshots().iter().any(|last| base <= last.index);
        // A single member that has lost one snapshot already has nobody to ask when it loses the other.
        let is_alone = self.current().len() == 1;
        let is_another_fault =
            state.hurt.is_some() && !is_alone || state.half_repaired.is_some() || state.lied_to;
        let puts =
            !is_covered && !is_another_fault && state.disk.has_lost_a_snapshot() && !self.may_be_lost(member);
        if puts {
            self.sh.tally.add(Fault::F14);
            self.sh.line(Some(member), "process", || "does not start: its snapshots are put back".into());
            let disk = &self.members[member].disk;
            disk.process_dies(u64::MAX);
            disk.heal();
        }
        puts
    }

    fn start_again(&mut self, member: usize) {
        let down = self.dice.within(MS, 500 * MS);
        self.plan_start(member, self.sh.now + down);
    }

    /// Whether a member with damaged files may repair its log: the cluster can do without its data, and every loss is
    /// detected. Otherwise an operator puts back what it refuses.
    fn may_be_repaired(&self, member: usize) -> bool {
        let state = &self.members[member];
        state.hurt.is_none()
            && state.vote_floor.is_none()
            && state.disk.tells_all()
            && self.may_be_lost(member)
    }

    /// A member's log was cut before the damage, and its vote floor is kept.
    fn note_repaired(&mut self, member: usize, wal: &Wal, recovered: &Recovered) {
        for error in wal.complaints() {
            self.sh.line(Some(member), "disk", || error.to_string());
        }
        let state = &mut self.members[member];
        state.disk.accept();
        state.vote_floor = recovered.vote_floor;
        let (fault, _) = state.damaged.take().unwrap_or((Fault::F14, false));
        self.sh.tally.add(fault);
        self.sh.counts.repaired += 1;
        self.sh.observer.cut(id_of(member));
    }

    /// A repaired log that has reached its vote floor is whole again.
    pub(crate) fn look_at_vote_floor(&mut self, member: usize) {
        let state = &mut self.members[member];
        let (Some(vote_floor), Some(process)) = (state.vote_floor, &state.process) else { return };
        let raft = process.node().raft();
        let index = raft.persisted_index();
        let held = raft.term_at(index).map(|term| EntryId { term, index });
        if held.is_some_and(|held| vote_floor <= held) {
            state.vote_floor = None;
            self.sh.counts.refilled += 1;
            self.sh.line(Some(member), "log", || format!("has reached its vote floor {vote_floor}"));
        }
    }

    fn on_refused_start(
        &mut self,
        member: usize,
        truth: Truth,
        resumes: bool,
        error: &WalError,
    ) -> Result<(), Violation> {
        self.sh.line(Some(member), "process", || format!("does not start: {error}"));
        let down = self.dice.within(MS, 500 * MS);
        if self.members[member].half_repaired.is_some() && !self.members[member].disk.is_out() {
            self.members[member].disk.process_dies(u64::MAX);
            if self.failed_now(member, error) {
                self.plan_start(member, self.sh.now + down); // the next start goes on with the repair
                return Ok(());
            }
        }
        let state = &mut self.members[member];
        if !state.disk.is_out()
            && let Some(before) = state.half_repaired.take()
            && resumes
        {
            // The operator has a copy from before the repair; that one must not be repairable either.
            let whole = before.copy();
            if self.open_copy(member, &whole).is_ok() {
                let story = format!("n{}, after a power cut while its log was repaired: {error}", member + 1);
                return Err(Violation::new("mending_survives_a_crash", story));
            }
            before.heal();
            self.members[member].disk = before;
            self.plan_start(member, self.sh.now + down);
            return Ok(());
        }
        if state.disk.is_out() {
            self.sh.tally.add(Fault::F02);
            let _ = state.disk.power_fails(self.dice.roll(), u64::MAX);
            self.count_fired(member);
            self.plan_start(member, self.sh.now + down);
            return Ok(());
        }
        state.disk.process_dies(u64::MAX);
        if self.members[member].lied_to && self.failed_now(member, error) {
            // It may have cut what the disk had lied about; the next start goes on from there.
            self.plan_start(member, self.sh.now + down);
            return Ok(());
        }
        let state = &mut self.members[member];
        if std::mem::take(&mut state.lied_to) {
            // The loss is detected at once.
            state.disk.heal();
            self.sh.tally.add(Fault::F18);
            self.plan_start(member, self.sh.now + down);
            return Ok(());
        }
        if truth != Truth::Whole {
            let (fault, stays_down) = state.damaged.take().unwrap_or((Fault::F14, false));
            self.sh.tally.add(fault);
            if stays_down && self.may_be_lost(member) && !self.calm {
                self.members[member].ruined = true;
                return Ok(());
            }
            self.members[member].disk.heal();
            self.plan_start(member, self.sh.now + down);
            return Ok(());
        }
        self.count_fired(member);
        if self.members[member].disk_failed || matches!(error, WalError::NoSpace { .. }) {
            self.plan_start(member, self.sh.now + down);
            return Ok(());
        }
        Err(Violation::new("members_start_on_their_own_files", format!("n{}: {error}", member + 1)))
    }

    /// Whether a failing or a full disk has just ended a start.
    fn failed_now(&mut self, member: usize, error: &WalError) -> bool {
        let failed_before = std::mem::take(&mut self.members[member].disk_failed);
        self.count_fired(member);
        let fails_now = self.members[member].disk_failed || matches!(error, WalError::NoSpace { .. });
        self.members[member].disk_failed |= failed_before;
        fails_now
    }

    pub(crate) fn wal_options(&self) -> WalOptions {
        let settings = &self.plan.settings;
        WalOptions {
            segment_bytes: settings.segment_bytes,
            reserve_bytes: settings.reserve_bytes,
            window_bytes: settings.window_bytes,
            block_bytes: settings.block_bytes,
            sector_bytes: 512,
        }
    }

    /// Repairs the log on a copy of a disk, to see whether that is possible.
    fn open_copy(&self, member: usize, disk: &SimDisk) -> Result<(), WalError> {
        let dir = DataDir::open(Arc::new(disk.mount()))?;
        dir.expect(CLUSTER, id_of(member))?;
        Wal::repair(dir, self.wal_options()).map(|_| ())
    }

    /// Opens the directory, or creates this member's, and reads its log back. [shell/runtime `start::open`]
    fn open(&mut self, member: usize, joined: Option<Identity>, repairs: bool) -> Result<Opened, WalError> {
        let options = self.wal_options();
        let disk = self.members[member].disk.mount();
        disk.begin();
        let mut dir = DataDir::open(Arc::new(disk))?;
        if dir.identity().is_none() {
            let identity = joined.unwrap_or_else(|| self.first_identity(member));
            dir.create(identity, &options)?;
        }
        dir.expect(CLUSTER, id_of(member))?;
        let (wal, mut recovered) =
            if repairs { Wal::repair(dir, options)? } else { Wal::open(dir, options)? };
        let recovered = recovered.remove(&GROUP).unwrap_or_default();
        if let Some((error, _)) = uncovered(&wal) {
            let error = error.clone();
            self.sh.line(Some(member), "snapshot", || error.to_string());
            self.sh.counts.uncovered += 1;
        }
        let first = opening::first_tables(wal.identity(), wal.complaints(), &recovered);
        let tables = match first.map_err(WalError::clone)? {
            Tables::Snapshot(last) => {
                let thawed = thaw(&wal.snapshots(), last)?.expect("a checked snapshot holds tables");
                let bytes = wal.snapshots().get(GROUP, last)?.map_or(0, |snapshot| snapshot.bytes);
                Some((thawed, bytes))
            }
            Tables::Founders | Tables::Awaited(_) => None,
        };
        Ok((wal, recovered, tables))
    }

    /// A member that comes for the first time announces its priority, if that is not the one that each member begins with.
    fn look_at_priority(
        &self,
        member: usize,
        by: usize,
        is_first: bool,
        brings: &[Input],
    ) -> Result<(), Violation> {
        let Some(&priority) = self.plan.settings.priorities.get(by) else { return Ok(()) };
        let told = Input::Priority(id_of(by), priority);
        if !is_first || priority == LeadershipConfig::default().priority || brings.contains(&told) {
            return Ok(());
        }
        let story = format!("n{} has priority {priority}, and n{} hears {brings:?}", by + 1, member + 1);
        Err(Violation::new("priorities_are_told", story))
    }

    /// A founder without a directory asks the others whether it had one; those that met it must say so. [fault-model F61]
    fn look_at_forgotten_founder(&mut self, member: usize) -> Result<(), Violation> {
        let is_empty = self.members[member].disk.contents("identity").is_none();
        if !is_empty || self.plan.members as usize <= member {
            return Ok(());
        }
        let silent = self.with_others(|net, around, others| net.forgotten_by(around, member, others));
        match silent.first() {
            Some(other) => {
                let story = format!("n{} has met n{}, and would let it begin again", other + 1, member + 1);
                Err(Violation::new("founders_begin_once", story))
            }
            None => Ok(()),
        }
    }

    /// Whether it starts with an empty directory in a cluster that exists already.
    fn is_newcomer(&self, member: usize) -> bool {
        let state = &self.members[member];
        let is_late = self.plan.members as usize <= member || state.lost_directory;
        is_late && state.disk.contents("identity").is_none()
    }

    /// Whether a member has all that it must keep: after damage to a snapshot, as soon as it has a newer one; after a start
    /// from an older directory, as soon as its log reaches what it owes.
    pub(crate) fn is_whole(&self, member: usize) -> bool {
        let state = &self.members[member];
        let is_covered = |upto: LogIndex| {
            let Some(process) = &state.process else { return false };
            let raft = process.node().raft();
            let newest = raft.snapshot().map_or(LogIndex(0), |snapshot| snapshot.last.index);
            raft.base() == EntryId::default() || upto <= newest
        };
        // A divergent store is no evidence of the right state.
        let is_divergent = self.sh.diverged.is_divergent(id_of(member))
            || state.process.as_ref().is_some_and(|process| process.hands.eyes.goes_wrong);
        !is_divergent
            && !state.ruined
            && !state.lost_directory
            && state.damaged.is_none()
            && state.vote_floor.is_none()
            && state.half_repaired.is_none()
            && state.hurt.is_none_or(is_covered)
            && self.sh.older_copies.get(&id_of(member)).is_none_or(|copy| self.reaches(member, copy.owed))
    }

    /// Whether a member runs, with a log on its disk that goes this far.
    pub(crate) fn reaches(&self, member: usize, index: LogIndex) -> bool {
        let process = self.members[member].process.as_ref();
        process.is_some_and(|process| index <= process.node().raft().persisted_index())
    }

    /// Whether the cluster can do without the data of this member, besides what others have lost already: guarantees are
    /// for damage to fewer than half of the members at a time. [fault-model §4]
    pub(crate) fn may_be_lost(&self, member: usize) -> bool {
        let is_lost = |id: &&NodeId| {
            let other = (id.0 - 1) as usize;
            other == member || !self.is_whole(other) || !self.is_in_touch(other, member)
        };
        let bears = |set: &[NodeId]| set.is_empty() || 2 * set.iter().filter(is_lost).count() < set.len();
        self.sh
            .observer
            .memberships()
            .all(|membership| bears(&membership.voters) && bears(&membership.outgoing))
    }

    /// Whether all current members are whole.
    pub(crate) fn are_all_whole(&self) -> bool {
        self.current().into_iter().all(|member| self.is_whole(member))
    }

    fn first_identity(&mut self, member: usize) -> Identity {
        let name = |number: usize| format!("n{}", number + 1);
        let members = (0..self.plan.members as usize).map(|number| InitialMember {
            id: id_of(number),
            name: name(number),
            peer_urls: info_of(number).peer_urls,
        });
        Identity {
            cluster: CLUSTER,
            node: id_of(member),
            incarnation: Incarnation(self.sh.dice.roll()),
            name: name(member),
            groups: vec![GROUP],
            members: members.collect(),
            joined: None,
        }
    }

    /// A member of an older version restarts with this version, every other time. [fault-model F62]
    fn upgrade(&mut self, member: usize) {
        let run = self.members[member].run;
        let is_older = self.sh.older == Some(member) && run > 0;
        if is_older && Dice::new(self.plan.seed, "upgrades").fork(u64::from(run)).one_in(2) {
            self.sh.older = None;
            self.sh.tally.add(Fault::F62);
            self.sh.line(Some(member), "process", || "has a newer version from now on".into());
        }
    }

    fn boot(
        &mut self,
        member: usize,
        wal: Wal,
        mut recovered: Recovered,
        tables: Option<(Keeper, u64)>,
    ) -> Result<(), Violation> {
        let id = id_of(member);
        self.sh.observer.restarted(id, &recovered)?;
        self.sh.service.goodput.lost(id, recovered.last.index);
        let identity = wal.identity().clone();
        let (incarnation, joined) = (identity.incarnation, identity.joined);
        let began_with: Vec<usize> = (0..self.plan.members as usize).collect();
        // A member that joined has no voters before its log or a snapshot names them.
        let voters = began_with.iter().map(|&slot| id_of(slot)).filter(|_| joined.is_none());
        self.upgrade(member);
        let settings = &self.plan.settings;
        let priority = settings.priorities.get(member).copied().unwrap_or(settings.leadership.priority);
        let disagrees = settings.disagree.get(member).copied().unwrap_or_default();
        let election_timeout = match disagrees {
            Disagrees::WithHalfTheTimeout => settings.election_timeout / 2,
            Disagrees::Not | Disagrees::WithoutLeases => settings.election_timeout,
        };
        let is_shared = level::EXTENSIONS <= settings.level;
        let longest = if is_shared { settings.election_timeout } else { election_timeout };
        let config = NodeConfig {
            raft: Config {
                incarnation,
                election_timeout,
                heartbeat_interval: settings.heartbeat_interval,
                pre_vote: settings.pre_vote,
                leadership: LeadershipConfig {
                    leader_lease: settings
                        .leadership
                        .leader_lease
                        .filter(|_| disagrees != Disagrees::WithoutLeases),
                    priority,
                    ..settings.leadership
                },
                check_quorum: settings.pre_vote,
                parallel_append: settings.parallel_append,
                pipelining: settings.pipelining,
                limits: settings.limits,
                ..Config::new(id, voters, kattu_wal::encoder())
            },
            // Two election timeouts are added: the plan's at most where settings are shared, else the member's own.
            request_timeout_base: settings.request_timeout.saturating_sub(longest * 2),
            batch_linger: Duration::ZERO,
            apply_gate: false,
            pending_max: settings.pending_max,
            pending_bytes_max: settings.pending_bytes_max,
            snapshots: settings.snapshots,
            transfers: settings.transfers,
            digest_interval: settings.digest_interval,
            level_known: if self.sh.older == Some(member) { 0 } else { settings.level },
            name: format!("n{}", id.0),
            client_urls: vec![format!("http://n{}", id.0)],
        };
        let timing = opening::timing(&recovered).unwrap_or(config.raft.timing());
        let recorded = self.sh.vote_holds.get(&id).copied().unwrap_or_default();
        let leases = config.raft.leadership.leader_lease.is_some();
        let holds = opening::vote_holds(Some(recorded), leases, timing);
        recovered.vote_hold = holds.earlier;
        if let Some(longest) = holds.record {
            self.sh.vote_holds.insert(id, longest);
        }
        let infos = began_with.into_iter().map(info_of).collect();
        let (base, last, committed, term) =
            (recovered.base, recovered.last, recovered.committed, recovered.hard.term);
        let entropy = self.sh.dice.roll();
        let state = &mut self.members[member];
        state.run += 1;
        let (run, clock) = (state.run, state.clock);
        let (keeper, snapshot_bytes) = tables.unwrap_or_else(|| (Keeper::new(infos), 0));
        let node =
            Node::recover(config, entropy, clock.at(self.sh.now), recovered).with_snapshot_of(snapshot_bytes);
        let limits =
            RequestLimits { work_max: draw_work_max(self.plan.seed, member), ..RequestLimits::default() };
        let keeper = keeper.of_member(id).with_limits(limits);
        let named_as = state.named_as;
        let members = keeper.members();
        let is_removed = members.removed.contains(&id);
        let named = |member: InitialMember| MemberInfo {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_urls,
            ..MemberInfo::default()
        };
        let own = Own {
            cluster: CLUSTER,
            id,
            incarnation: named_as.unwrap_or(incarnation),
            began_with: identity.members.into_iter().map(named).collect(),
            peer_urls: info_of(member).peer_urls,
            priority,
            quota: if member == 0 { 2 * QUOTA } else { QUOTA },
        };
        let found = joined.into_iter().flatten().map(|found| (found.id, found.peer_urls)).collect();
        let mut peer_table = PeerTable::new(own, found);
        peer_table.set_level(keeper.health().level);
        let disk = state.disk.mount();
        let covered = keeper.applied();
        let process = Process::new((member, run), node, keeper, (wal, disk), clock, &mut self.sh);
        state.process = Some(Box::new(process));
        self.sh.trace.mix(19 ^ self.sh.now);
        self.sh.line(Some(member), "process", || {
            format!(
                "starts in term {}, snapshot up to {}, log from {base} to {last}, committed {}",
                term.0, covered.0, committed.0
            )
        });
        self.count_fired(member);
        self.members[member].disk_failed = false;
        let (net, mut around) = self.sh.net();
        net.go_by(member, timing);
        net.started(&mut around, (member, run), peer_table, members);
        if let Some((rule, story)) = net.broken.take() {
            return Err(Violation::new(rule, story));
        }
        if is_removed {
            return self.leave(member, "finds in its snapshot that it was removed");
        }
        if !self.calm
            && let Some(operation) = self.clients.early(self.sh.now, member)
        {
            self.set_out(operation)?;
        }
        self.tune_at_start(member);
        self.work(member, run, |_, _| Ok(()))
    }

    /// Counts the faults that a disk reports.
    pub(crate) fn count_fired(&mut self, member: usize) {
        for fired in self.members[member].disk.take_fired() {
            let fault = match fired.id {
                FaultId::F10 => Fault::F10,
                FaultId::F11 => Fault::F11,
                FaultId::F12 => Fault::F12,
                FaultId::F16 => Fault::F16,
                FaultId::F17 => Fault::F17,
                FaultId::F14 => Fault::F14,
                FaultId::F13 | FaultId::F15 => continue, // counted when they are detected
            };
            self.members[member].disk_failed |= matches!(fault, Fault::F11 | Fault::F12 | Fault::F14);
            self.sh.tally.add(fault);
            self.sh.line(Some(member), "disk", || format!("{}: {}", fired.id, fired.what));
        }
    }

    /// Checks the whole state, now and then.
    fn look(&mut self) -> Result<(), Violation> {
        // A check walks whole logs: the longer they are, the rarer it is.
        let rafts = self.members.iter().filter_map(|member| Some(member.process.as_ref()?.node().raft()));
        let longest = rafts.map(|raft| raft.last_id().index.0).max().unwrap_or(0);
        self.sh.queue.plan(self.sh.now + LOOK_EVERY * (1 + longest / LOOK_ENTRIES), Event::Look);
        self.sh.trace.passed(self.sh.now);
        if self.calm {
            self.start_whoever_belongs();
        }
        for member in 0..self.members.len() {
            self.count_fired(member);
            self.look_at_vote_floor(member);
            if let (Some(target), Some(process)) =
                (self.members[member].lagging, &self.members[member].process)
                && target <= process.node().raft().persisted_index()
            {
                self.members[member].lagging = None;
                self.sh.tally.add(Fault::F51);
            }
        }
        if self.plan.liar.is_none() {
            self.look_at_alarms()?;
        }
        self.look_at_all()
    }

    /// Checks the whole state now.
    pub(crate) fn look_at_all(&mut self) -> Result<(), Violation> {
        let members: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .filter_map(|(number, member)| Some((id_of(number), member.process.as_ref()?.node().raft())))
            .collect();
        self.sh.observer.whole(&members)
    }

    /// The member that leads the newest term, if one does.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |member: &usize| {
            let process = self.members[*member].process.as_ref()?;
            let raft = process.node().raft();
            raft.is_leader().then(|| raft.term())
        };
        (0..self.members.len()).filter(|member| leads(member).is_some()).max_by_key(leads)
    }

    // ── Clients ──

    fn on_client(&mut self, client: u32) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        let up = self.up();
        match self.clients.choose(client, &up, self.plan.members as usize) {
            Some(member) => {
                let operation = self.clients.ask(self.sh.now, client, member);
                self.set_out(operation)
            }
            None => {
                let rest = self.clients.rest().max(MS);
                self.sh.queue.plan(self.sh.now + rest, Event::Client { client });
                Ok(())
            }
        }
    }

    /// Sends an operation to its member, unless the API has refused it already.
    pub(crate) fn set_out(&mut self, operation: u64) -> Result<(), Violation> {
        let asked = &self.clients.asked[operation as usize];
        if asked.ended {
            self.rest(operation);
            return Ok(());
        }
        self.sh.queue.plan(self.sh.now + self.sh.pace.client, Event::Arrive { operation });
        // A probe of the calm waits for its answer: repeating it would be a load of its own.
        let waits = self.calm || self.clients.asked[operation as usize].is_change_request;
        if let Some(patience) = self.clients.patience().filter(|_| !waits) {
            self.sh.queue.plan(self.sh.now + patience, Event::Impatient { operation });
        }
        Ok(())
    }

    fn on_arrival(&mut self, operation: u64) -> Result<(), Violation> {
        let asked = &mut self.clients.asked[operation as usize];
        let member = asked.member;
        let Some(request) = asked.request.take() else { return Ok(()) };
        let Some(process) = &mut self.members[member].process else {
            if self.clients.asked[operation as usize].is_change_request {
                self.on_change_answer(operation, &Outcome::Refused(Refusal::Stopping))?;
            }
            return self.on_answer(operation, What::Refused { reason: "no process listens".into() });
        };
        if let Request::Read(_, Consistency::AtLeast(index)) | Request::LookUp(_, Consistency::AtLeast(index)) =
            &request
            && process.node().raft().applied_delivered() < *index
        {
            self.sh.counts.behind += 1;
        }
        match process.call(operation, request) {
            Ok(()) => {
                let run = self.members[member].run;
                self.work(member, run, |_, _| Ok(()))
            }
            Err(refusal) => {
                if self.clients.asked[operation as usize].is_change_request {
                    self.on_change_answer(operation, &Outcome::Refused(refusal))?;
                }
                self.on_answer(operation, What::Refused { reason: format!("{refusal:?}") })
            }
        }
    }

    fn on_answer(&mut self, operation: u64, what: What) -> Result<(), Violation> {
        let asked = &self.clients.asked[operation as usize];
        let (divergent, is_flood, is_heavy) = (asked.divergent, asked.is_flood, asked.is_heavy);
        self.sh.trace.mix(operation << 8 ^ kind_of(&what));
        if divergent && matches!(what, What::Done { .. }) {
            self.sh.tally.add(Fault::F71);
        }
        let full = matches!(&what, What::Refused { reason } if reason == "TooManyRequests");
        if is_flood && full {
            self.sh.tally.add(Fault::F50);
        }
        if is_heavy && matches!(what, What::Done { answer: Ok(_), .. }) {
            self.sh.tally.add(Fault::F53);
        }
        if self.calm {
            self.on_calm_answer(operation, &what);
        }
        if self.clients.end(self.sh.now, operation, what) {
            self.rest(operation);
        }
        self.sh.counts.aged = self.clients.aged;
        Ok(())
    }

    /// Plans the next operation of its client, after a rest.
    fn rest(&mut self, operation: u64) {
        let client = self.clients.asked[operation as usize].client;
        if client < self.plan.load.clients && !self.calm {
            let rest = self.clients.rest_of(client);
            self.sh.queue.plan(self.sh.now + rest, Event::Client { client });
        }
    }
}

fn kind_of(what: &What) -> u64 {
    match what {
        What::Invoke { .. } => 1,
        What::Done { revision, .. } => 2 ^ (revision.unwrap_or(0) as u64) << 4,
        What::Refused { .. } => 3,
        What::Unknown { .. } => 4,
        What::Crashed { .. } => 5,
    }
}
