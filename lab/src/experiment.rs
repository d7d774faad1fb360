//! An experiment: a question, the points at which it is measured, figures published by others, and how it is judged.
//!
//! ```text
//!   question.md ────▶ question, method, plan        (for people)
//!   published.toml ─▶ Published                     (figures of others, with their source)
//!   mod.rs ─────────▶ points(size), judge(measured) (code)
//! ```
//! A *point* is a cluster, what its members are tuned to, its links, and a load: all that is fixed in one run. Its *coordinates*
//! name it, on pages and in files.
//! Knows nothing of: how a point is run, what was measured.

mod words;

use crate::codec::Codec;
use crate::judge::Findings;
use crate::measured::Measured;
use crate::published::Published;
use crate::trace::Way;
use kattu_rig::weather::Weather;
use std::fmt;
use std::time::Duration;

/// One experiment.
pub struct Experiment {
    /// Its name on the command line, and its folder's.
    pub name: &'static str,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// Question, method and plan, in Markdown.
    pub question: &'static str,
    /// The figures published by others, as TOML; empty for none.
    pub published: &'static str,
    /// It is there for tests, and not listed.
    pub is_hidden: bool,
    /// The points of this size.
    pub points: fn(Size) -> Vec<Point>,
    /// What the measurements say.
    pub judge: fn(&Measured, &Published) -> Findings,
}

/// How much of an experiment is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Every point of its grids.
    Full,
    /// The corners of its grids.
    Quick,
}

impl Size {
    /// Repetitions of every point, unless the caller wants others.
    #[must_use]
    pub fn repetitions(self) -> u32 {
        match self {
            Size::Full => 10,
            Size::Quick => 3,
        }
    }

    /// All values of a full grid, or the chosen ones of a quick one.
    #[must_use]
    pub fn of<'a, T>(self, full: &'a [T], quick: &'a [T]) -> &'a [T] {
        match self {
            Size::Full => full,
            Size::Quick => quick,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Size::Full => "full",
            Size::Quick => "quick",
        })
    }
}

/// All that is fixed in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its coordinates, the grid first.
    pub at: Vec<(&'static str, String)>,
    /// The cluster.
    pub cluster: ClusterPlan,
    /// Settings of `kattu tune` beside those that the members were started with, in this order.
    pub tuned: Vec<(Members, String)>,
    /// Election timeout and heartbeat interval in milliseconds, if they are not the default.
    pub timing: Option<(u64, u64)>,
    /// Arguments of `kattu protocol`, if it is not raft.
    pub protocol: Vec<&'static str>,
    /// Links between members; counts only in a cluster with a link proxy.
    pub links: LinkPlan,
    /// What is done and measured.
    pub load: Task,
    /// Faults while the load runs.
    pub faults: Vec<Fault>,
    /// The place of the member that leads when the load begins, if it matters.
    pub leader: Option<usize>,
    /// The members share so many processors, which the clients may use, too; unless the machine has fewer.
    pub processors: Option<usize>,
    /// Another member may come to lead while the load runs: it is measured how often.
    pub may_elect: bool,
    /// About how long it takes, before the first run tells.
    pub expected: Duration,
}

/// What needs a start of members. Points of one plan share a cluster in each repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPlan {
    /// How many members: 1 to 31, or none for a task without a cluster.
    pub members: usize,
    /// Flags of `kattu serve`.
    pub flags: Vec<String>,
    /// A proxy between all members, which gives links their delay, loss and bandwidth.
    pub has_proxy: bool,
    /// The proxy knows where messages begin: each is lost, or not, by itself.
    pub has_messages: bool,
}

impl ClusterPlan {
    /// Members with default flags, directly connected.
    #[must_use]
    pub fn of(members: usize) -> ClusterPlan {
        ClusterPlan { members, flags: Vec::new(), has_proxy: false, has_messages: false }
    }

    /// The same with one more flag.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> ClusterPlan {
        self.flags.push(flag.to_string());
        self
    }

    /// The same with a link proxy.
    #[must_use]
    pub fn proxied(mut self) -> ClusterPlan {
        self.has_proxy = true;
        self
    }

    /// The same with a link proxy that knows where messages begin.
    #[must_use]
    pub fn proxied_by_message(mut self) -> ClusterPlan {
        (self.has_proxy, self.has_messages) = (true, true);
        self
    }
}

/// Some members of a cluster, by their part in it when the run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// All of them.
    All,
    /// The leader.
    Leader,
    /// All but the leader.
    Followers,
    /// The first member that does not lead.
    OneFollower,
}

impl Members {
    /// Whether the member at this place is one of them.
    #[must_use]
    pub fn have(self, member: usize, leader: usize) -> bool {
        match self {
            Members::All => true,
            Members::Leader => member == leader,
            Members::Followers => member != leader,
            Members::OneFollower => member == usize::from(leader == 0),
        }
    }
}

/// Links between members, while the load runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkPlan {
    /// Every link; a delay counts in each direction.
    pub all: Weather,
    /// What all that some members send together is limited to, in bytes per second.
    pub egress: Vec<(Members, u32)>,
    /// Milliseconds in each direction between members by their places, on top of what every link takes.
    pub between: Option<&'static Distances>,
}

/// Milliseconds from one place to another, for up to five members.
pub type Distances = [[u64; 5]; 5];

/// What is done and measured at a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// A load.
    Bench(Load),
    /// So many leaders are killed, one after the other.
    Elections(u32),
    /// Leaders are killed under weak puts, with or without their clients.
    Losses(Losses),
    /// The cluster stands without load and faults for so long; changes of leader are counted.
    Watch(Duration),
    /// A record is encoded or decoded, without a cluster.
    Codec(Codec),
    /// Five requests pass through three nodes, on clocks and links that are numbers.
    Trace(Way),
}

impl From<Load> for Task {
    fn from(load: Load) -> Task {
        Task::Bench(load)
    }
}

impl Task {
    /// What is done, for readers: for a load its command line.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Task::Bench(load) => load.arguments().join(" "),
            Task::Elections(count) => format!("{count} leaders killed"),
            Task::Losses(losses) => losses.words(),
            Task::Watch(time) => format!("no load for {time:?}"),
            Task::Codec(codec) => codec.words(),
            Task::Trace(_) => "five requests of two clients".into(),
        }
    }
}

/// Leaders that are killed under weak puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// Sessions that put, one put after the other.
    pub sessions: usize,
    /// Leaders that are killed, each under sessions of its own.
    pub kills: u32,
    /// How long they put before the kill.
    pub run_for: Duration,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// The clients live through it; else they die with the leader.
    pub lives: bool,
    /// What the leader has sent and nobody received is lost with it, as with a machine; needs a link proxy.
    pub loses_links: bool,
}

impl Losses {
    fn words(&self) -> String {
        let Losses { sessions, kills, run_for, value_bytes, lives, loses_links } = self;
        let with = if *lives { "whose clients live" } else { "together with their clients" };
        let links = if *loses_links { ", and with what is on its way" } else { "" };
        format!(
            "{sessions} sessions put {value_bytes} bytes weakly for {run_for:?}; {kills} leaders killed, {with}{links}"
        )
    }
}

/// A load of `kattu bench`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// `put`, `range` or `mixed`.
    pub operation: &'static str,
    /// Operations in all.
    pub total: u64,
    /// The protocol, with its connections.
    pub face: Face,
    /// Clients.
    pub clients: u32,
    /// Bytes of each value.
    pub value_bytes: u32,
    /// The members that clients are connected to, by turns, the leader first: it matters which, because a member answers a write
    /// when it has applied it itself.
    pub asked: Members,
    /// More arguments.
    pub more: Vec<String>,
}

/// A protocol between clients and members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// etcd's, over so many connections.
    Etcd {
        /// Connections.
        connections: u32,
    },
    /// Kattu's own, over so many connections.
    Native {
        /// Connections.
        connections: u32,
        /// Operations that each client has under way.
        pipeline: u32,
    },
}

impl Load {
    /// Puts by clients that each wait for their answer; 16 of them share a connection.
    #[must_use]
    pub fn puts(total: u64, clients: u32) -> Load {
        let face = Face::Etcd { connections: clients.div_ceil(16) };
        Load { operation: "put", total, face, clients, value_bytes: 8, asked: Members::All, more: Vec::new() }
    }

    /// The same by the native protocol: one client on one connection with so many operations under way.
    #[must_use]
    pub fn native_puts(total: u64, pipeline: u32) -> Load {
        let face = Face::Native { connections: 1, pipeline };
        Load {
            operation: "put",
            total,
            face,
            clients: 1,
            value_bytes: 8,
            asked: Members::All,
            more: Vec::new(),
        }
    }

    /// The same by the native protocol, in a session of each client's own, so many of which share a connection.
    #[must_use]
    pub fn puts_in_sessions(total: u64, clients: u32, together: u32) -> Load {
        let face = Face::Native { connections: clients.div_ceil(together), pipeline: 1 };
        let load = Load { face, ..Load::puts(total, clients) };
        load.with(format!("--sessions={clients}"))
    }

    /// The same with values of this size.
    #[must_use]
    pub fn of_bytes(self, value_bytes: u32) -> Load {
        Load { value_bytes, ..self }
    }

    /// The same, but only these members are asked.
    #[must_use]
    pub fn at(self, asked: Members) -> Load {
        Load { asked, ..self }
    }

    /// The same with one more argument.
    #[must_use]
    pub fn with(mut self, argument: impl Into<String>) -> Load {
        self.more.push(argument.into());
        self
    }

    /// Whether its clients write in sessions.
    #[must_use]
    pub fn has_sessions(&self) -> bool {
        self.more.iter().any(|argument| argument.starts_with("--sessions"))
    }

    /// The arguments of `kattu bench`, without endpoints and output.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut words = vec!["bench".to_string(), self.operation.into()];
        let mut give = |name: &str, value: u64| words.push(format!("--{name}={value}"));
        give("total", self.total);
        give("clients", self.clients.into());
        give("val-size", self.value_bytes.into());
        match self.face {
            Face::Etcd { connections } => give("conns", connections.into()),
            Face::Native { connections, pipeline } => {
                give("conns", connections.into());
                give("pipeline", pipeline.into());
                words.push("--native".into());
            }
        }
        words.extend(self.more.iter().cloned());
        words
    }
}

/// A fault while the load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When, after the load began.
    pub after: Duration,
    /// Which member.
    pub of: Members,
    /// What happens to it.
    pub what: Blow,
}

/// What happens to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// It is killed, and started again when the load is over.
    Kill,
    /// It stands still for so long.
    Pause(Duration),
}

impl Point {
    /// A point of a grid.
    #[must_use]
    pub fn of(grid: &str, cluster: ClusterPlan, load: impl Into<Task>) -> Point {
        Point {
            at: vec![("grid", grid.to_string())],
            cluster,
            tuned: Vec::new(),
            timing: None,
            protocol: Vec::new(),
            links: LinkPlan::default(),
            load: load.into(),
            faults: Vec::new(),
            leader: None,
            processors: None,
            may_elect: false,
            expected: Duration::from_millis(900),
        }
    }

    /// One more coordinate.
    #[must_use]
    pub fn at(mut self, name: &'static str, value: impl fmt::Display) -> Point {
        self.at.push((name, value.to_string()));
        self
    }

    /// One more setting of all members.
    #[must_use]
    pub fn tuned(self, setting: impl Into<String>) -> Point {
        self.tuned_at(Members::All, setting)
    }

    /// One more setting of some members.
    #[must_use]
    pub fn tuned_at(mut self, members: Members, setting: impl Into<String>) -> Point {
        self.tuned.push((members, setting.into()));
        self
    }

    /// With this election timeout and heartbeat interval, in milliseconds.
    #[must_use]
    pub fn timed(self, election: u64, heartbeat: u64) -> Point {
        Point { timing: Some((election, heartbeat)), ..self }
    }

    /// With this protocol: the arguments of `kattu protocol`.
    #[must_use]
    pub fn by(self, protocol: &[&'static str]) -> Point {
        Point { protocol: protocol.to_vec(), ..self }
    }

    /// With links that take so long in each direction. The cluster needs a proxy.
    #[must_use]
    pub fn far(mut self, delay: Duration) -> Point {
        self.links.all.delay = (delay, delay);
        self
    }

    /// Takes about so many milliseconds.
    #[must_use]
    pub fn takes(self, millis: u64) -> Point {
        Point { expected: Duration::from_millis(millis), ..self }
    }

    /// Its name in files: all coordinates.
    #[must_use]
    pub fn key(&self) -> String {
        self.at.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

impl Experiment {
    /// A part of `question.md`: the text below `## HEADING`, or what stands before the first heading for "".
    #[must_use]
    pub fn part(&self, heading: &str) -> String {
        let mut parts = self.question.split("\n## ");
        let text = match heading {
            "" => parts.next().unwrap_or(""),
            _ => parts.find_map(|part| part.strip_prefix(heading)).unwrap_or(""),
        };
        text.trim().to_string()
    }

    /// About how long it takes at this size, starts of clusters included.
    #[must_use]
    pub fn takes(&self, size: Size, repetitions: u32) -> Duration {
        let points = (self.points)(size);
        let loads: Duration = points.iter().map(|point| point.expected).sum();
        let starts = groups(&points).iter().filter(|group| 0 < points[group[0]].cluster.members).count();
        (loads + START * starts as u32) * repetitions
    }
}

/// About how long a cluster takes to start and to end.
pub const START: Duration = Duration::from_millis(2000);

/// The places of points that can share a cluster, in the order of their first point.
#[must_use]
pub fn groups(points: &[Point]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (place, point) in points.iter().enumerate() {
        match groups.iter_mut().find(|group| points[group[0]].cluster == point.cluster) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::ALL;
    use std::collections::BTreeSet;

    #[test]
    fn every_experiment_says_what_it_asks_and_each_of_its_points_has_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for experiment in ALL {
            let name = experiment.name;
            assert!(names.insert(name), "{name} is there twice");
            for part in ["", "Method", "Plan"] {
                assert!(!experiment.part(part).is_empty(), "{name}: question.md has no part {part:?}");
            }
            Published::parse(experiment.published).unwrap_or_else(|error| panic!("{name}: {error}"));
            let quick: BTreeSet<String> = (experiment.points)(Size::Quick).iter().map(Point::key).collect();
            let full: BTreeSet<String> = (experiment.points)(Size::Full).iter().map(Point::key).collect();
            for (size, keys) in [(Size::Quick, &quick), (Size::Full, &full)] {
                assert_eq!(
                    keys.len(),
                    (experiment.points)(size).len(),
                    "{name}, {size}: two points of one name"
                );
            }
            assert!(quick.is_subset(&full), "{name}: {:?} is in no full run", quick.difference(&full).next());
        }
    }

    #[test]
    fn a_quick_run_of_all_experiments_takes_at_most_half_an_hour() {
        let all = ALL.iter().map(|it| it.takes(Size::Quick, Size::Quick.repetitions()));
        let all: Duration = all.sum();
        let of = |it: &&Experiment| (it.name, it.takes(Size::Quick, Size::Quick.repetitions()));
        let each: Vec<_> = ALL.iter().map(of).collect();
        assert!(all <= Duration::from_secs(30 * 60), "{all:?}: {each:?}");
    }

    #[test]
    fn points_share_a_cluster_if_nothing_needs_a_restart() {
        let load = Load::puts(10, 1);
        let point = |flag| Point::of("g", ClusterPlan::of(3).flag(flag), load.clone());
        let points = [point("--a"), point("--b"), point("--a").tuned("batching=off")];
        assert_eq!(groups(&points), [vec![0, 2], vec![1]]);
        assert_eq!(points[2].clone().at("batching", "off").key(), "grid=g batching=off");
    }

    #[test]
    fn members_are_chosen_by_their_part() {
        let chosen = |members: Members, leader| -> Vec<usize> {
            (0..3).filter(|&it| members.have(it, leader)).collect()
        };
        assert_eq!(chosen(Members::All, 1), [0, 1, 2]);
        assert_eq!((chosen(Members::Leader, 1), chosen(Members::Followers, 1)), (vec![1], vec![0, 2]));
        assert_eq!((chosen(Members::OneFollower, 0), chosen(Members::OneFollower, 2)), (vec![1], vec![0]));
    }
}
