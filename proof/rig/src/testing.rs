//! What tests need beyond a trial: a cluster in one line, and methods that panic where a trial returns an error.
//!
//! Dropping a test's [`Cluster`] kills all processes; its folder below `target/e2e` stays if the test failed.
//! Knows nothing of: keys, values.

use crate::alone::Beside;
use crate::cluster::{Cluster, SHOWN_LINES};
use crate::grpc::Kv;
use crate::member::{Member, READY};
use crate::place::Place;
use crate::process::last_lines;
use crate::programs::{Ended, OwnFolder, WAIT_LIMIT, met_by, signal, until};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A member that is asked to stop ends within this.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// A member whose disk or machine stalls ends by its own deadline, shortly before [`STOP_LIMIT`], and logs these words.
/// We may see its end later than that limit, but not later than [`STOP_LIMIT_LATE`].
const STOPPED_LATE: &str = "stopping took too long";
const STOP_LIMIT_LATE: Duration = Duration::from_secs(15);

/// Options of a new cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many members.
    pub members: usize,
    /// More flags for every member.
    pub flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { members: 3, flags: Vec::new() }
    }
}

impl Cluster {
    /// Starts `members` with default flags and waits until each serves.
    #[track_caller]
    pub fn start(what: &str, members: usize) -> Cluster {
        Cluster::with(what, Options { members, ..Options::default() })
    }

    /// Starts and waits until each serves.
    #[track_caller]
    pub fn with(what: &str, options: Options) -> Cluster {
        let mut cluster = Cluster::plan(what, options);
        cluster.start_all();
        cluster
    }

    /// Creates the folder and the members' command lines; starts no process.
    pub fn plan(what: &str, options: Options) -> Cluster {
        let beside = Beside::new();
        let folder = OwnFolder::new(what);
        let place = Place::of_test(options.members);
        let mut cluster = Cluster::plain(place, folder.path(), what, options.flags);
        cluster.of_test = Some((folder, beside));
        cluster
    }

    /// Plans one more member, neither added to the cluster nor started: its flags are those of a member that joins the
    /// running ones, without those of [`Options`]. Returns its place.
    pub fn plan_joining(&mut self, what: &str) -> usize {
        let place = self.members.len();
        let present = (0..place).filter(|&i| self.members[i].is_started()).chain([place]).collect::<Vec<_>>();
        let data = self.folder().join(format!("n{place}"));
        self.add(Place::of_test(1).endpoints.remove(0), data.clone());
        let mut arguments = self.naming_flags(place, &data, &self.initial(present), what);
        arguments.extend(["--initial-cluster-state", "existing"].map(str::to_string));
        *self.members[place].arguments_mut() = arguments;
        place
    }

    /// Starts all that do not run and waits until each serves.
    #[track_caller]
    pub fn start_all(&mut self) {
        self.spawn_all().expect("the binary can be run");
        for member in &mut self.members {
            member.wait_ready();
        }
    }

    /// The client addresses as one string, separated by commas.
    pub fn endpoints(&self) -> String {
        self.addresses().join(",")
    }

    /// The cluster's folder, for files of the test.
    pub fn folder(&self) -> &Path {
        self.of_test.as_ref().expect("the cluster of a test").0.path()
    }

    /// Directories and logs of all members stay when the cluster is dropped; where.
    pub fn keep_folder(&mut self) -> PathBuf {
        self.of_test.as_mut().expect("the cluster of a test").0.keep().to_path_buf()
    }

    /// The place of the leader, from the members' own status; waits for one.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let clients: Vec<(usize, Kv)> = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.is_started())
            .map(|(i, member)| (i, member.kv().within(Duration::from_secs(1))))
            .collect();
        until("a member that leads", || {
            clients.iter().find_map(|(i, client)| {
                let status = client.status().ok()?;
                let id = status.header.as_ref()?.member_id;
                (id != 0 && status.leader == id).then_some(*i)
            })
        })
    }
}

impl Member {
    /// The process id; panics if it does not run.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.id().expect("the member runs")
    }

    /// Waits for the log line [`READY`]; panics if the process ends before.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        if let Err(why) = self.is_ready_by(Instant::now() + WAIT_LIMIT) {
            panic!("{why}:\n{}", self.log_text());
        }
    }

    /// Waits for the log line [`READY`].
    ///
    /// # Errors
    /// It does not come by then, or the process has ended before.
    #[track_caller]
    pub fn is_ready_by(&mut self, end: Instant) -> Result<(), String> {
        assert!(self.is_started(), "{} runs", self.name);
        let begun = Instant::now();
        let seen = met_by(end, || {
            let text = self.log_text();
            let ended = self.ended().map(|status| Err(format!("{} ended with {status}", self.name)));
            ended.or_else(|| text.contains(READY).then_some(Ok(())))
        });
        seen.unwrap_or_else(|| {
            Err(format!("after {:.0?} {} has not said `{READY}`", begun.elapsed(), self.name))
        })
    }

    /// Starts and waits.
    #[track_caller]
    pub fn start(&mut self) {
        self.spawn().expect("the binary can be run");
        self.wait_ready();
    }

    /// Sends a signal and returns the exit code. Panics if the member needs more than 5 s, unless its own deadline
    /// ended it.
    #[track_caller]
    pub fn stop(&mut self, name: &str) -> Option<i32> {
        signal(self.pid(), name);
        let begun = Instant::now();
        let Some(status) = self.end_within(STOP_LIMIT_LATE) else {
            self.kill();
            panic!("{} runs {STOP_LIMIT_LATE:?} after {name}:\n{}", self.name, self.log_tail());
        };
        let took = begun.elapsed();
        let in_time = took <= STOP_LIMIT || self.log_text().contains(STOPPED_LATE);
        assert!(in_time, "{} ended {took:?} after {name}:\n{}", self.name, self.log_tail());
        status.code()
    }

    /// Waits until the process has ended by itself; returns its exit code and output.
    #[track_caller]
    pub fn wait_end(&mut self) -> Ended {
        assert!(self.is_started(), "{} runs", self.name);
        let status = until(&format!("{} ends by itself", self.name), || self.ended());
        Ended { code: status.code(), out: String::new(), err: self.log_text() }
    }

    fn log_tail(&self) -> String {
        last_lines(&self.log_text(), SHOWN_LINES).join("\n")
    }
}
