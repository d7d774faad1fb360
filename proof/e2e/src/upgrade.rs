//! Upgrade: a cluster of one version becomes one of another, member by member, while clients write and members are
//! killed.
//!
//! Method: three members of the older version under load. Each in turn is ended, by SIGTERM or SIGKILL, and restarted
//! as the newer version on the same directory; then the member beside it is killed and restarted as it was, so that
//! there is a crash in every mixture. As long as one member is of the older version, no member raises the cluster's
//! feature level above that of the older members. Soon after the last upgrade, it is raised to the level that members
//! of the newer version raise by themselves. At the end all are killed and restarted: every acknowledged key must be on
//! every member, and all must hold the same data. [fault-model P13, F62, DT4]
//! Knows nothing of: the differences between versions.

use crate::kills::{Load, all_keys};
use kattu_rig::programs::{kattu, run, until};
use kattu_rig::{Cluster, Options, READY};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Puts acknowledged in every mixture before the next step.
const PUTS: u64 = 200;

/// The results.
#[derive(Debug, Default)]
pub struct Report {
    /// Keys acknowledged to the load.
    pub acknowledged: usize,
    /// Acknowledged keys that a member does not hold.
    pub lost: Vec<String>,
    /// The feature level of the members once all are of the newer version.
    pub level: u64,
    /// Other faults.
    pub faults: Vec<String>,
    /// The outcome of starting the older version on a directory of the newer one.
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
    let newest = level_of(&newer);
    let mut cluster = Cluster::plan("upgrade", Options::default());
    for member in &mut cluster.members {
        member.run_by(older);
    }
    cluster.start_all();
    let mut report = Report::default();
    let load = Load::start(&cluster);
    load.wait_for_more(PUTS);
    let before = known(&cluster);
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
        if place + 1 < members && levels.iter().any(|level| level.is_some_and(|level| before < level)) {
            report.faults.push(format!("raised while a member is of the older version: {levels:?}"));
        }
        each(format!(
            "{} of {members} members are of the newer version; feature levels {levels:?}",
            place + 1
        ));
    }
    until("the feature level is raised to the newest", || {
        levels(&cluster).iter().all(|level| *level == Some(newest)).then_some(())
    });
    report.level = newest;
    load.wait_for_more(PUTS);
    let acknowledged = load.stop();
    report.acknowledged = acknowledged.len();
    cluster.kill_all();
    cluster.start_all();
    for member in &cluster.members {
        report.lost.extend(missing(&acknowledged, &all_keys(&member.kv()), &member.name));
    }
    let hash = run(Command::new(&newer).args(["hash", "--endpoints", &cluster.endpoints()]));
    if hash.code != Some(0) {
        report.faults.push(format!("members do not hold the same:\n{}", hash.all()));
    }
    let (word, serves) = back(&mut cluster, older);
    if serves && before < report.level {
        report.faults.push(format!(
            "the older version, which knows level {before}, serves on a directory of level {}",
            report.level
        ));
    }
    report.older_on_newer = word;
    report
}

/// The feature level to which this binary raises a cluster of its own.
fn level_of(program: &Path) -> u64 {
    let mut alone = Cluster::plan("upgrade-alone", Options { members: 1, ..Options::default() });
    alone.members[0].run_by(program);
    alone.start_all();
    known(&alone)
}

/// The feature level to which the members, all of one version, have raised their cluster; 0 if they have no levels.
fn known(cluster: &Cluster) -> u64 {
    if levels(cluster).contains(&None) {
        return 0;
    }
    // A version that has feature levels knows at least level 1.
    until("members of one version raise the feature level to what they know", || {
        levels(cluster).into_iter().min()?.filter(|level| 0 < *level)
    })
}

/// Starts the older version on a directory of the newer: a description, and whether it serves. It must not if the
/// cluster's level is above its own, for it would not understand the log.
fn back(cluster: &mut Cluster, older: &Path) -> (String, bool) {
    let member = &mut cluster.members[0];
    member.stop("TERM");
    member.run_by(older);
    member.spawn().expect("it can be run");
    until("the older version ends, or serves", || {
        (!member.is_running() || member.log_text().contains(READY)).then_some(())
    });
    if member.is_running() {
        return ("it serves".to_string(), true);
    }
    let ended = member.wait_end();
    let words = ended.err.lines().last().unwrap_or_default();
    (format!("exit code {:?}: {words}", ended.code), false)
}

/// The acknowledged keys that a member does not have, one line each.
fn missing(acknowledged: &BTreeSet<String>, there: &BTreeSet<String>, member: &str) -> Vec<String> {
    acknowledged.difference(there).map(|key| format!("{key} is not with {member}")).collect()
}

/// Each member's feature level; `None` if it has none.
fn levels(cluster: &Cluster) -> Vec<Option<u64>> {
    cluster.members.iter().map(|member| member.metric("kattu_feature_level")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    #[test]
    fn a_key_that_was_acknowledged_and_is_not_there_is_lost() {
        let there = keys(&["load/1", "load/2", "load/4"]); // keys without an acknowledgement may be there
        assert_eq!(missing(&keys(&["load/1", "load/2"]), &there, "n1"), Vec::<String>::new());
        assert_eq!(missing(&keys(&["load/2", "load/3"]), &there, "n1"), ["load/3 is not with n1"]);
        assert_eq!(missing(&there, &keys(&[]), "n2").len(), 3);
    }

    #[test]
    fn a_report_is_good_if_something_was_acknowledged_and_nothing_is_wrong() {
        let good = || Report { acknowledged: 1, level: 1, ..Report::default() };
        assert!(good().is_good());
        assert!(!Report { acknowledged: 0, ..good() }.is_good());
        assert!(!Report { lost: vec!["load/1 is not with n0".to_string()], ..good() }.is_good());
        assert!(!Report { faults: vec!["members do not hold the same".to_string()], ..good() }.is_good());
    }
}
