//! The programs that take part: Kattu's binary, and the rivals that can be had on this machine.
//!
//! Rule: only what the chosen rows need is fetched; what cannot be had is skipped by name, with the reason.
//! Knows nothing of: loads.

use super::rows::{Row, Side, Work};
use crate::bench::cluster::{NO_FLAGS, Program};
use crate::shell::{self, Failure};
use crate::tools;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Programs, by side.
pub struct Programs {
    kattu: PathBuf,
    /// Asks a cluster for its leader.
    pub etcdctl: PathBuf,
    /// etcd's benchmark tool.
    pub benchmark: Result<PathBuf, String>,
    rivals: BTreeMap<&'static str, Result<PathBuf, String>>,
}

impl Programs {
    /// Fetches what these rows need; `kattu` instead of the build of this tree.
    pub fn fetch(rows: &[&Row], kattu: Option<&Path>) -> Result<Programs, Failure> {
        let kattu = match kattu {
            Some(kattu) if !kattu.exists() => {
                return Err(Failure::new(format!("{} is not there", kattu.display())));
            }
            Some(kattu) => kattu.to_path_buf(),
            None => shell::kattu()?,
        };
        let [etcd, etcdctl, benchmark] = tools::etcd().map(|tool| tool.state);
        let etcdctl = etcdctl.or_else(|_| tools::old_etcdctl()).map_err(|why| {
            Failure::new(format!("no etcdctl, which finds leaders: {why}")).then("cargo xtask tools")
        })?;
        let mut rivals = BTreeMap::from([(Side::Etcd.name(), etcd)]);
        for side in rows.iter().flat_map(|row| row.rivals) {
            let fetch = match side {
                Side::Redis => tools::rivals::redis,
                Side::Dragonboat => tools::rivals::dragonboat,
                Side::Hraft => tools::rivals::hraft,
                Side::Kattu | Side::Etcd | Side::Machine => continue,
            };
            rivals.entry(side.name()).or_insert_with(fetch);
        }
        Ok(Programs { kattu, etcdctl, benchmark, rivals })
    }

    /// Kattu's binary, which is a load tool, too.
    pub fn kattu(&self) -> &Path {
        &self.kattu
    }

    /// Kattu, with more flags for its members.
    pub fn members_of_kattu(&self, flags: &[&str]) -> Program {
        Program::kattu(&self.kattu, flags)
    }

    /// A program with etcd's flags.
    pub fn with_etcds_flags(&self, side: Side) -> Result<Program, Failure> {
        match side {
            Side::Kattu => Ok(self.members_of_kattu(&NO_FLAGS)),
            side => Ok(Program { name: "etcd", path: self.rival(side)?, words: Vec::new() }),
        }
    }

    /// A rival's program (Redis: the folder of its programs).
    pub fn rival(&self, side: Side) -> Result<PathBuf, Failure> {
        match self.rivals.get(side.name()) {
            Some(Ok(path)) => Ok(path.clone()),
            Some(Err(why)) => Err(Failure::new(why.clone())),
            None => Err(Failure::new(format!("{} was not fetched", side.name()))),
        }
    }

    /// Why a side cannot be measured in a row; `None` if it can.
    pub fn missing(&self, row: &Row, side: Side) -> Option<String> {
        let needs_tool = matches!(row.work, Work::Etcd(..)) || side == Side::Etcd && row.work != Work::Idle;
        let tool = self.benchmark.as_ref().err().filter(|_| needs_tool);
        let program = self.rivals.get(side.name()).and_then(|found| found.as_ref().err());
        program.or(tool).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rivals::rows::ROWS;

    #[test]
    fn what_cannot_be_had_is_missing_only_where_it_is_needed() {
        let no = |why: &str| Err(why.to_string());
        let programs = Programs {
            kattu: "kattu".into(),
            etcdctl: "etcdctl".into(),
            benchmark: no("no Go"),
            rivals: BTreeMap::from([
                (Side::Etcd.name(), Ok("etcd".into())),
                (Side::Redis.name(), no("no apt")),
            ]),
        };
        let missing = |name: &str, side| {
            let row = ROWS.iter().find(|row| row.name == name).expect("a row");
            programs.missing(row, side)
        };
        assert_eq!(missing("put-16", Side::Kattu), None);
        assert_eq!(missing("put-16", Side::Redis).as_deref(), Some("no apt"));
        assert_eq!(missing("etcd-put-256", Side::Kattu).as_deref(), Some("no Go"));
        assert_eq!(missing("idle", Side::Etcd), None);
    }
}
