//! The members of one trial, on a real file system, with the questions a conductor asks of all of them.
//!
//! Knows nothing of: faults, clients.

use crate::member::{Member, shown};
use crate::place::Place;
use crate::proxy::Processes;
use crate::target::{Naming, Target};
use crate::words;
use kattu_proto::etcdserverpb::RangeRequest;
use kattu_verify::judges::FinalState;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After this the service is gone for good. Far longer than any election: the machine may be busy.
pub const BACK_LIMIT: Duration = Duration::from_secs(40);

/// Members that form a cluster. Dropped, all are killed.
pub struct Cluster {
    /// In the order of their names.
    pub members: Vec<Member>,
    /// What they are.
    pub target: Target,
    /// Process ids of those that run, for whoever must know a member by them.
    pub processes: Processes,
    _place: Place,
}

/// File systems that keep nothing: a sync costs nothing there and proves nothing.
const IN_MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// Refuses a folder whose contents would not survive anything.
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
    /// Not started yet. Every member's directory is below its entry of `homes`.
    ///
    /// # Errors
    /// A file system in memory; no program.
    pub fn new(
        target: Target,
        place: Place,
        homes: &[PathBuf],
        logs: &Path,
        token: &str,
    ) -> Result<Cluster, String> {
        let program = target.program()?;
        let roll: Vec<String> = place
            .seats
            .iter()
            .enumerate()
            .map(|(i, seat)| format!("n{i}=http://{}:2380", seat.face))
            .collect();
        let roll = roll.join(",");
        let mut members = Vec::new();
        let processes = Processes::default();
        for (i, (seat, home)) in place.seats.iter().zip(homes).enumerate() {
            need_real_disk(home)?;
            let (name, data) = (format!("n{i}"), home.join("data"));
            let naming =
                Naming { name: &name, host: &seat.host, face: &seat.face, data: &data, roll: &roll, token };
            let arguments = target.command_line(&naming);
            let log = logs.join(format!("{name}.log"));
            members.push(Member::new(name, seat.clone(), data, log, program.clone(), arguments));
        }
        Ok(Cluster { members, target, processes, _place: place })
    }

    /// Starts all that do not run.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start_all(&mut self) -> Result<(), String> {
        for member in self.members.iter_mut().filter(|member| !member.is_started()) {
            member.start(&[], &[])?;
        }
        self.note_processes();
        Ok(())
    }

    /// Tells the processes that run now.
    pub fn note_processes(&self) {
        let processes = self.members.iter().map(Member::process).collect();
        *self.processes.lock().expect("nobody panics with it") = processes;
    }

    /// Waits until every member serves linearizable reads; returns how long that took.
    ///
    /// # Errors
    /// Who does not, or ended.
    pub fn until_served(&mut self) -> Result<Duration, String> {
        let begun = Instant::now();
        for i in 0..self.members.len() {
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

    /// Whether a member has ended although nobody ended it.
    ///
    /// # Errors
    /// Who and how.
    pub fn check_ended(&mut self) -> Result<(), String> {
        for member in &mut self.members {
            if let Some(status) = member.ended() {
                return Err(format!(
                    "{} ended by itself with {}: {}",
                    member.name,
                    shown(status),
                    tail(&member.says())
                ));
            }
        }
        Ok(())
    }

    /// Who leads, as it says itself; nobody for the moment is `None`.
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

    /// Everything that is stored, as member `i` reads it.
    ///
    /// # Errors
    /// What it answered instead.
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
    /// Which member differs, and where.
    pub fn agreed_state(&mut self) -> Result<FinalState, String> {
        let begun = Instant::now();
        loop {
            let whole = self.state(0, false);
            let mut differs = None;
            if let Ok(whole) = &whole {
                for i in 0..self.members.len() {
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

    /// Words in a log that nothing excuses.
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

/// The end of a text, on one line each.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join(" | ")
}
