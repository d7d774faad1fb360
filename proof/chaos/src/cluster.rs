//! The cluster of one trial, on a real file system, with the conductor's requests to all its members.
//!
//! Knows nothing of: faults, clients.

use crate::flags::Flags;
use crate::member::{Member, Standing, shown};
use crate::place::Place;
use crate::proxy::Processes;
use crate::target::{Naming, Target};
use crate::words;
use kattu_e2e::authority::{Authority, Signed};
use kattu_proto::etcdserverpb::RangeRequest;
use kattu_verify::judges::FinalState;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After this the service counts as lost. Far longer than any election: the machine may be busy.
pub const BACK_LIMIT: Duration = Duration::from_secs(40);

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
    lives: u32,
    _place: Place,
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
    /// A cluster, not started yet. Every member's directory is below its entry of `homes`; the first `count` places are
    /// taken, the others are for members that join later.
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
        let program = target.program()?;
        let roll: Vec<String> = place
            .endpoints
            .iter()
            .take(count)
            .enumerate()
            .map(|(i, endpoint)| format!("n{i}={}://{}:2380", flags.scheme(), endpoint.face))
            .collect();
        let roll = roll.join(",");
        let authority = flags.tls.then(|| Authority::new(logs, "ca"));
        let certificates: Vec<Signed> = match &authority {
            Some(authority) => place
                .endpoints
                .iter()
                .enumerate()
                .map(|(i, endpoint)| authority.sign(&format!("n{i}"), &[&endpoint.host, &endpoint.face]))
                .collect(),
            None => Vec::new(),
        };
        let ca = authority.as_ref().map(Authority::ca);
        let mut members = Vec::new();
        let processes = Processes::default();
        for (i, (endpoint, home)) in place.endpoints.iter().zip(homes).enumerate() {
            need_real_disk(home)?;
            let (name, data) = (format!("n{i}"), home.join("data"));
            let tls = certificates.get(i).zip(ca.as_deref());
            let (host, face) = (&endpoint.host, &endpoint.face);
            let naming = Naming { name: &name, host, face, data: &data, roll: &roll, token, tls };
            let mut arguments = target.command_line(&naming);
            arguments.extend(flags.words(i));
            let log = logs.join(format!("{name}.log"));
            let mut member = Member::new(name, endpoint.clone(), data, log, program.clone(), arguments);
            if count <= i {
                member.standing = Standing::Spare;
            }
            members.push(member);
        }
        let spare = members.len() - count;
        let token = token.into();
        Ok(Cluster {
            members,
            target,
            flags,
            ca,
            certificates,
            processes,
            spare,
            token,
            lives: 0,
            _place: place,
        })
    }

    /// The peer URL of the member at this place.
    pub fn peer_url(&self, i: usize) -> String {
        format!("{}://{}:2380", self.flags.scheme(), self.members[i].endpoint.face)
    }

    /// Gives a free place an empty directory and the command line of a member that joins these members.
    ///
    /// # Errors
    /// The remains of an earlier member there cannot be removed.
    pub fn join_as_new(&mut self, i: usize, with: &[usize]) -> Result<(), String> {
        let url = |i: &usize| format!("n{i}={}", self.peer_url(*i));
        let roll = with.iter().map(url).collect::<Vec<_>>().join(",");
        self.lives += 1;
        let member = &mut self.members[i];
        let data = member.data.with_file_name(format!("data-{}", self.lives));
        if member.data.exists() {
            std::fs::remove_dir_all(&member.data).map_err(|error| error.to_string())?;
        }
        let naming = Naming {
            name: &member.name,
            host: &member.endpoint.host,
            face: &member.endpoint.face,
            data: &data,
            roll: &roll,
            token: &self.token,
            tls: self.certificates.get(i).zip(self.ca.as_deref()),
        };
        let mut arguments = self.target.command_line(&naming);
        arguments.extend(self.flags.words(i));
        arguments.push("--initial-cluster-state=existing".into());
        member.begin_anew(data, arguments);
        Ok(())
    }

    /// Whether the membership of this cluster never changes.
    pub fn has_no_changes(&self) -> bool {
        self.spare == 0
    }

    /// Starts all that belong and do not run.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start_all(&mut self) -> Result<(), String> {
        let down = |member: &&mut Member| !member.is_started() && member.standing == Standing::Member;
        for member in self.members.iter_mut().filter(down) {
            member.start(&[], &[])?;
        }
        self.note_processes();
        Ok(())
    }

    /// Publishes the processes that run now.
    pub fn note_processes(&self) {
        let processes = self.members.iter().map(Member::process).collect();
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
                        tail(&member.says())
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
                    member.start(&[], &[])?;
                    has_started = true;
                    continue;
                }
                return Err(format!(
                    "{} ended by itself with {}: {}",
                    member.name,
                    shown(status),
                    tail(&member.says())
                ));
            }
        }
        if has_started {
            self.note_processes();
        }
        Ok(())
    }

    /// The leader by its own status; `None` if no member leads at the moment.
    pub fn leader(&self) -> Option<usize> {
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
            let said = member.said();
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

/// The last lines of a text, joined into one.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join(" | ")
}
