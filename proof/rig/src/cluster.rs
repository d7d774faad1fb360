//! A cluster on a real file system, with the conductor's requests to all its members.
//!
//! Knows nothing of: faults, clients.

use crate::alone::Beside;
use crate::authority::{Authority, Signed};
use crate::flags::Flags;
use crate::member::{Member, Standing};
use crate::place::{Endpoint, Place};
use crate::process::{last_lines, shown, tail};
use crate::programs::{self, OwnFolder};
use crate::target::{Naming, Target};
use crate::words;
use kattu_proto::etcdserverpb::RangeRequest;
use kattu_verify::judges::FinalState;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// After this the service counts as lost. Far longer than any election: the machine may be busy.
pub const BACK_LIMIT: Duration = Duration::from_secs(40);
/// Lines of a member's log that are shown when its test fails.
pub(crate) const SHOWN_LINES: usize = 40;

/// Process ids of the running members: they identify an opener where addresses do not.
pub type Processes = Arc<Mutex<Vec<Option<u32>>>>;

/// Members that form a cluster. Dropped, all are killed.
pub struct Cluster {
    /// In the order of their names.
    pub members: Vec<Member>,
    /// The system under test.
    pub target: Target,
    /// Flags that the seed adds to their command lines.
    pub flags: Flags,
    /// The authority of all certificates, if TLS is used.
    pub ca: Option<PathBuf>,
    certificates: Vec<Signed>,
    /// Process ids of the running members, to tell them apart by.
    pub processes: Processes,
    spare: usize,
    token: String,
    /// Flags of all members, beside names and addresses.
    common: Vec<String>,
    logs: PathBuf,
    program: PathBuf,
    lives: u32,
    /// The cluster of a test: its own folder, and its share of the machine.
    pub(crate) of_test: Option<(OwnFolder, Beside)>,
    place: Place,
}

/// File systems in memory: a sync costs nothing there and proves nothing.
const IN_MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// Refuses a folder on a file system in memory.
///
/// # Errors
/// The file system's name.
pub fn need_real_disk(folder: &Path) -> Result<(), String> {
    let kind =
        rustix::fs::statfs(folder).map_err(|error| format!("{}: {error}", folder.display()))?.f_type as u64;
    match IN_MEMORY.iter().find(|(magic, _)| *magic == kind) {
        Some((_, name)) => Err(format!("{} is on {name}, which hides missing syncs", folder.display())),
        None => Ok(()),
    }
}

impl Cluster {
    /// The cluster of a trial, not started yet. Every member's directory is below its entry of `homes`; the first
    /// `count` places are taken, the others are for members that join later.
    ///
    /// # Errors
    /// A file system in memory; no program.
    pub fn new(
        target: Target,
        place: Place,
        homes: &[PathBuf],
        logs: &Path,
        token: &str,
        count: usize,
        flags: Flags,
    ) -> Result<Cluster, String> {
        homes.iter().try_for_each(|home| need_real_disk(home))?;
        let mut cluster = Cluster::empty(target.program()?, place, logs, token);
        let authority = flags.tls.then(|| Authority::new(logs, "ca"));
        if let Some(authority) = &authority {
            let names = cluster.place.endpoints.iter().enumerate();
            cluster.certificates =
                names.map(|(i, it)| authority.sign(&format!("n{i}"), &[&it.host, &it.face])).collect();
        }
        (cluster.ca, cluster.flags) = (authority.as_ref().map(Authority::ca), flags);
        cluster.common = target.trial_flags();
        cluster.people(count, |i, _| homes[i].join("data"));
        Ok(cluster)
    }

    /// A cluster of the binary under test at all these places, not started yet: default settings but for these flags,
    /// directories and logs in `folder`.
    pub fn plain(place: Place, folder: &Path, token: &str, flags: Vec<String>) -> Cluster {
        Cluster::plain_of(programs::kattu(), place, folder, token, flags)
    }

    /// The same of another binary.
    pub fn plain_of(
        program: PathBuf,
        place: Place,
        folder: &Path,
        token: &str,
        flags: Vec<String>,
    ) -> Cluster {
        let mut cluster = Cluster::empty(program, place, folder, token);
        cluster.common = flags;
        cluster.people(cluster.place.endpoints.len(), |_, name| folder.join(name));
        cluster
    }

    fn empty(program: PathBuf, place: Place, logs: &Path, token: &str) -> Cluster {
        Cluster {
            members: Vec::new(),
            target: Target::of(&program),
            flags: Flags::default(),
            ca: None,
            certificates: Vec::new(),
            processes: Processes::default(),
            spare: 0,
            token: token.into(),
            common: Vec::new(),
            logs: logs.to_path_buf(),
            program,
            lives: 0,
            of_test: None,
            place,
        }
    }

    /// Makes a member for every place; the first `count` of them know each other.
    fn people(&mut self, count: usize, data: impl Fn(usize, &str) -> PathBuf) {
        for i in 0..self.place.endpoints.len() {
            let data = data(i, &format!("n{i}"));
            self.add(self.place.endpoints[i].clone(), data);
        }
        let initial = self.initial(0..count);
        for i in 0..self.members.len() {
            let arguments = self.arguments(i, &self.members[i].data, &initial);
            let member = &mut self.members[i];
            *member.arguments_mut() = arguments;
            if count <= i {
                member.standing = Standing::Spare;
            }
        }
        self.spare = self.members.len() - count;
    }

    /// Adds a member without flags.
    pub(crate) fn add(&mut self, endpoint: Endpoint, data: PathBuf) {
        let name = format!("n{}", self.members.len());
        let log = self.logs.join(format!("{name}.log"));
        let scheme = self.flags.scheme();
        self.members.push(Member::new(name, endpoint, scheme, (data, log), self.program.clone()));
    }

    /// These members, in the format of `--initial-cluster`.
    pub(crate) fn initial(&self, members: impl IntoIterator<Item = usize>) -> String {
        let members = members.into_iter().map(|i| &self.members[i]);
        members.map(|member| format!("{}={}", member.name, member.peer_url())).collect::<Vec<_>>().join(",")
    }

    /// The flags by which a member has its name, addresses and files.
    pub(crate) fn naming_flags(&self, i: usize, data: &Path, initial: &str, token: &str) -> Vec<String> {
        let Member { name, endpoint, .. } = &self.members[i];
        let (host, face) = (&endpoint.host, &endpoint.face);
        let tls = self.certificates.get(i).zip(self.ca.as_deref());
        Naming { name, host, face, data, initial, token, tls }.flags()
    }

    /// All flags of a member.
    fn arguments(&self, i: usize, data: &Path, initial: &str) -> Vec<String> {
        let mut words = self.naming_flags(i, data, initial, &self.token);
        words.extend_from_slice(&self.common);
        words.extend(self.flags.words(i));
        words
    }

    /// The peer URL of the member at this place.
    pub fn peer_url(&self, i: usize) -> String {
        self.members[i].peer_url()
    }

    /// The client address of each member.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(Member::address).collect()
    }

    /// Where each member listens.
    pub fn hosts(&self) -> Vec<String> {
        self.members.iter().map(|member| member.endpoint.host.clone()).collect()
    }

    /// Gives a free place an empty directory and the command line of a member that joins these members.
    ///
    /// # Errors
    /// The remains of an earlier member there cannot be removed.
    pub(crate) fn join_as_new(&mut self, i: usize, with: &[usize]) -> Result<(), String> {
        self.lives += 1;
        let old = &self.members[i].data;
        let data = old.with_file_name(format!("data-{}", self.lives));
        if old.exists() {
            std::fs::remove_dir_all(old).map_err(|error| error.to_string())?;
        }
        let mut arguments = self.arguments(i, &data, &self.initial(with.iter().copied()));
        arguments.push("--initial-cluster-state=existing".into());
        self.members[i].begin_anew(data, arguments);
        Ok(())
    }

    /// Whether the membership of this cluster never changes.
    pub(crate) fn has_no_changes(&self) -> bool {
        self.spare == 0
    }

    /// Starts all that belong and do not run, and returns at once.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn spawn_all(&mut self) -> Result<(), String> {
        let down = |member: &&mut Member| !member.is_started() && member.standing == Standing::Member;
        for member in self.members.iter_mut().filter(down) {
            member.spawn()?;
        }
        self.note_processes();
        Ok(())
    }

    /// Publishes the processes that run now.
    pub fn note_processes(&self) {
        let processes = self.members.iter().map(|member| member.id()).collect();
        *self.processes.lock().expect("nobody panics with it") = processes;
    }

    /// Waits until every member serves linearizable reads; returns how long that took.
    ///
    /// # Errors
    /// A member that does not, or that has ended.
    pub fn until_served(&mut self) -> Result<Duration, String> {
        let begun = Instant::now();
        for i in self.belonging() {
            while !self.members[i].serves() {
                self.check_ended()?;
                if BACK_LIMIT < begun.elapsed() {
                    let member = &self.members[i];
                    return Err(format!(
                        "{} does not serve {BACK_LIMIT:?} after the faults: {}",
                        member.name,
                        tail(&member.log_text())
                    ));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(begun.elapsed())
    }

    /// Checks that no member has ended by itself without a reason.
    ///
    /// # Errors
    /// The member and its end.
    pub fn check_ended(&mut self) -> Result<(), String> {
        let mut has_started = false;
        for member in &mut self.members {
            if let Some(status) = member.ended() {
                // The other members may learn of its removal later; `part` checks after the storm whether it is true.
                if member.standing != Standing::Spare && member.was_removed(status) && 0 < self.spare {
                    member.standing = Standing::Leaving;
                    continue;
                }
                // No member answered the joining one for as long as it asks: it is restarted, as its operator would.
                if member.has_asked_in_vain() {
                    member.spawn()?;
                    has_started = true;
                    continue;
                }
                return Err(format!(
                    "{} ended by itself with {}: {}",
                    member.name,
                    shown(status),
                    tail(&member.log_text())
                ));
            }
        }
        if has_started {
            self.note_processes();
        }
        Ok(())
    }

    /// The leader by its own status; `None` if no member leads at the moment.
    pub fn leader_now(&self) -> Option<usize> {
        self.members.iter().position(Member::leads)
    }

    /// Kills all together.
    pub fn kill_all(&mut self) {
        for member in &mut self.members {
            member.strike();
        }
        for member in &mut self.members {
            member.kill();
        }
    }

    /// All stored keys, as member `i` reads them.
    ///
    /// # Errors
    /// Its answer, if that is no state.
    pub fn state(&self, i: usize, serializable: bool) -> Result<FinalState, String> {
        let request = RangeRequest {
            key: b"\0".to_vec(),
            range_end: b"\0".to_vec(),
            serializable,
            ..RangeRequest::default()
        };
        let answer = self.members[i].reader.range(request).map_err(|status| status.to_string())?;
        let revision = answer.header.map_or(0, |header| header.revision);
        Ok(FinalState { revision, kvs: answer.kvs.into_iter().map(words::pair).collect() })
    }

    /// The linearizable state, once every member's own store is the same.
    ///
    /// # Errors
    /// The member that differs, and the difference.
    pub fn agreed_state(&mut self) -> Result<FinalState, String> {
        let begun = Instant::now();
        loop {
            let belonging = self.belonging();
            let whole = self.state(belonging[0], false);
            let mut differs = None;
            if let Ok(whole) = &whole {
                for i in belonging {
                    match self.state(i, true) {
                        Ok(own) if own == *whole => {}
                        Ok(own) => differs = Some(difference(&self.members[i].name, &own, whole)),
                        Err(error) => differs = Some(format!("{}: {error}", self.members[i].name)),
                    }
                }
                if differs.is_none() {
                    return Ok(whole.clone());
                }
            }
            self.check_ended()?;
            if BACK_LIMIT < begun.elapsed() {
                let why = differs.or(whole.err()).unwrap_or_default();
                return Err(format!("replicas do not agree {BACK_LIMIT:?} after the faults: {why}"));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// A log line that no fault excuses.
    pub fn bad_words(&self) -> Option<String> {
        self.members.iter().find_map(|member| {
            let said = member.log_from(0);
            let line = said
                .lines()
                .find(|line| self.target.never_says().iter().any(|words| line.contains(words)))?;
            Some(format!("{} says: {line}", member.name))
        })
    }
}

fn difference(name: &str, own: &FinalState, whole: &FinalState) -> String {
    if own.revision != whole.revision {
        return format!("{name} is at revision {}, the cluster at {}", own.revision, whole.revision);
    }
    let odd = own.kvs.iter().find(|pair| !whole.kvs.contains(pair));
    let missing = whole.kvs.iter().find(|pair| !own.kvs.contains(pair));
    format!("{name} at revision {}: has {odd:?}, lacks {missing:?}", own.revision)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_all();
        if self.of_test.is_some() && std::thread::panicking() {
            for member in &self.members {
                let text = member.log_text();
                let end = last_lines(&text, SHOWN_LINES).join("\n");
                eprintln!("--- the end of {}:\n{end}", member.log_path().display());
            }
        }
    }
}
