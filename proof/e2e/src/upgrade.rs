//! A cluster of one version becomes one of another, member by member, while clients write and members are killed.
//!
//! Method: three members of the older version under load. Each in turn is ended, by SIGTERM or SIGKILL, and comes back as
//! the newer version on the same directory; then the member beside it is killed and comes back as it was, so that there is
//! a crash in every mixture. As long as one member is of the older version, nobody raises the feature level of the cluster;
//! soon after the last has come, it is raised. At the end all are killed and started: every acknowledged key must be with
//! every member, and all must hold the same. [fault-model P13, F62, DT4]
//! Knows nothing of: what is new in a version.

use crate::cluster::{Cluster, Options, READY};
use crate::kills::{Load, all_keys};
use crate::process::{kattu, run, until};
use std::path::Path;
use std::process::Command;

/// Puts that are acknowledged in every mixture before something else happens.
const PUTS: u64 = 200;

/// What was seen.
#[derive(Debug, Default)]
pub struct Report {
    /// Keys acknowledged to the load.
    pub acknowledged: usize,
    /// Acknowledged keys that a member does not hold.
    pub lost: Vec<String>,
    /// The feature level of the members once all are of the newer version.
    pub level: u64,
    /// What is wrong beside that.
    pub faults: Vec<String>,
    /// How a member of the older version ended that was started on a directory of the newer one, and its last words.
    pub older_on_newer: String,
}

impl Report {
    /// Nothing is lost, and nothing else is wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.lost.is_empty() && self.faults.is_empty() && 0 < self.acknowledged
    }
}

/// Upgrades a cluster from the program `older` to the binary under test.
#[track_caller]
pub fn roll(older: &Path, mut each: impl FnMut(String)) -> Report {
    let newer = kattu();
    let mut cluster = Cluster::plan("upgrade", Options::default());
    for member in &mut cluster.members {
        member.run_by(older);
    }
    cluster.start_all();
    let mut report = Report::default();
    let load = Load::start(&cluster);
    load.wait_for_more(PUTS);
    let members = cluster.members.len();
    for place in 0..members {
        let member = &mut cluster.members[place];
        if place % 2 == 0 {
            member.kill();
        } else {
            member.stop("TERM");
        }
        member.run_by(&newer);
        member.start();
        load.wait_for_more(PUTS);
        let beside = (place + 1) % members;
        cluster.members[beside].kill();
        load.wait_for_more(PUTS);
        cluster.members[beside].start();
        load.wait_for_more(PUTS);
        let levels = levels(&cluster);
        if place + 1 < members && levels.iter().any(|level| level.is_some_and(|level| 0 < level)) {
            report.faults.push(format!("raised while a member is of the older version: {levels:?}"));
        }
        each(format!(
            "{} of {members} members are of the newer version; feature levels {levels:?}",
            place + 1
        ));
    }
    until("the feature level is raised", || {
        report.level = levels(&cluster).into_iter().min()?.unwrap_or(0);
        (0 < report.level).then_some(())
    });
    load.wait_for_more(PUTS);
    let acknowledged = load.stop();
    report.acknowledged = acknowledged.len();
    cluster.kill_all();
    cluster.start_all();
    for member in &cluster.members {
        let there = all_keys(&member.kv());
        let lost = acknowledged.iter().filter(|key| !there.contains(*key));
        report.lost.extend(lost.map(|key| format!("{key} is not with {}", member.name)));
    }
    let hash = run(Command::new(&newer).args(["hash", "--endpoints", &cluster.endpoints()]));
    if hash.code != Some(0) {
        report.faults.push(format!("members do not hold the same:\n{}", hash.all()));
    }
    report.older_on_newer = back(&mut cluster, older, &mut report.faults);
    report
}

/// The older version on a directory of the newer: it must not serve, for it would not understand the log.
fn back(cluster: &mut Cluster, older: &Path, faults: &mut Vec<String>) -> String {
    let member = &mut cluster.members[0];
    member.stop("TERM");
    member.run_by(older);
    member.spawn();
    until("the older version ends, or serves", || {
        (!member.is_running() || member.log_text().contains(READY)).then_some(())
    });
    if member.is_running() {
        faults.push("the older version serves on a directory of the newer one".to_string());
        return "it serves".to_string();
    }
    let ended = member.wait_end();
    let words = ended.err.lines().last().unwrap_or_default();
    format!("exit code {:?}: {words}", ended.code)
}

/// The feature level that each member tells; `None` if it knows of none.
fn levels(cluster: &Cluster) -> Vec<Option<u64>> {
    cluster.members.iter().map(|member| member.metric("kattu_feature_level")).collect()
}
