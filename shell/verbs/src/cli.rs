//! The verbs, their arguments and their help.
//!
//! Knows nothing of: the work of verbs.

use crate::backup::{BackupArgs, RecoverArgs, RestoreArgs};
use crate::bench::BenchArgs;
use crate::cluster::{ProtocolArgs, StatusArgs, TimingArgs};
use crate::dev::DevArgs;
use crate::export::ExportArgs;
use crate::import::ImportArgs;
use crate::kv::{CompactArgs, DelArgs, GetArgs, PutArgs};
use crate::maintain::{AlarmVerb, HashArgs};
use crate::member::{ListArgs, MemberVerb, MoveLeaderArgs};
use crate::session::SessionVerb;
use crate::tree::TreeVerb;
use crate::tune::TuneArgs;
use crate::txn::TxnArgs;
use crate::wal::InspectArgs;
use clap::{Parser, Subcommand};
use std::ffi::OsString;

/// Kattu: a strongly consistent replicated store that speaks etcd's v3 API.
#[derive(Parser, Debug)]
#[command(name = "kattu", disable_version_flag = true, after_help = AFTER)]
pub(crate) struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const AFTER: &str = "\
Examples:
  kattu dev                      a cluster of three members, to try out
  kattu put hello world          write
  kattu get hello                read
  kattu serve --name n1 ...      one member, with etcd's flags
  kattu member list              list the members
  kattu backup monday.bak        the whole store in one file; kattu restore makes a cluster of it

`kattu --version` shows versions; `kattu VERB --help` shows details.

Exit codes: 0 done; 1 refused, failed, violation found; 2 usage, configuration, port;
3 unreachable or outcome unknown (the message says which); 4 data directory damaged, another member's or locked.";

/// Flags that may stand before the verb, as etcdctl's do.
const BEFORE_THE_VERB: [&str; 5] = ["--endpoints", "--timeout", "--cacert", "--cert", "--key"];

/// Moves those flags behind the verb that they are for: `--endpoints E get k` becomes `get k --endpoints E`. A verb
/// without such a flag refuses it by name.
pub(crate) fn flags_behind_the_verb(mut args: Vec<OsString>) -> Vec<OsString> {
    let mut verb = 1;
    while let Some(word) = args.get(verb).and_then(|word| word.to_str()) {
        verb += match word.split_once('=') {
            Some((name, _)) if BEFORE_THE_VERB.contains(&name) => 1,
            None if BEFORE_THE_VERB.contains(&word) => 2,
            _ => break,
        };
    }
    if verb < args.len() {
        let flags: Vec<OsString> = args.drain(1..verb).collect();
        let end = args.iter().position(|word| word == "--").unwrap_or(args.len());
        args.splice(end..end, flags);
    }
    args
}

/// The verbs of the command.
#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Run one member of a cluster, with etcd's flags
    #[command(disable_help_flag = true)]
    Serve {
        /// etcd's flags
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// Run a whole cluster in this process, to try out
    Dev(DevArgs),
    /// Write a key
    Put(PutArgs),
    /// Read a key or a range of keys
    Get(GetArgs),
    /// Delete a key or a range of keys
    Del(DelArgs),
    /// Run a transaction read from standard input
    Txn(TxnArgs),
    /// Discard the history before a revision
    Compact(CompactArgs),
    /// Show the status of members
    Status(StatusArgs),
    /// List, add, remove, promote, update members
    #[command(after_help = "\
A member whose disk is lost is replaced; its old id cannot be used again:
  kattu member list                                          shows its id
  kattu member remove ID                                     its directory cannot be used again
  kattu member add n3 --peer-urls http://10.0.0.3:2380       prints the command that starts the new one, without data
It votes when the list no longer calls it a learner. One change at a time; a refused change has no effect.")]
    Member {
        /// The verb about members.
        #[command(subcommand)]
        verb: MemberVerb,
    },
    /// List the members of the cluster (as `member list`)
    #[command(hide = true)]
    MemberList(ListArgs),
    /// Transfer leadership to another member
    MoveLeader(MoveLeaderArgs),
    /// Set how long all members wait for their leader
    Timing(TimingArgs),
    /// Set the protocol that all members run
    Protocol(ProtocolArgs),
    /// Show or change what members are tuned to while they run
    Tune(TuneArgs),
    /// Compare what members hold
    Hash(HashArgs),
    /// List or clear alarms
    #[command(after_help = "\
An alarm says why members refuse. NOSPACE: writes that grow the store; CORRUPT: all requests at the member named.
`kattu alarm list --help` says what to do about each.")]
    Alarm {
        /// The verb about alarms.
        #[command(subcommand)]
        verb: AlarmVerb,
    },
    /// List or end sessions of clients
    #[command(after_help = "\
In a session, a client of the native protocol repeats a command until it has the answer, and it is executed once.")]
    Session {
        /// The verb about sessions.
        #[command(subcommand)]
        verb: SessionVerb,
    },
    /// Files in directories, each operation one transaction
    #[command(after_help = "\
Paths begin with /. A file is a key below `/tree/` (--root), so that other clients see it, too.

Examples:
  kattu tree mkdir /services
  kattu tree write /services/leader host-1
  kattu tree ls /services
  kattu tree cat /services/leader
  kattu tree rm /services/leader --if /services/leader=host-1")]
    Tree {
        /// The verb about files and directories.
        #[command(subcommand)]
        verb: TreeVerb,
    },
    /// Save the whole store to a file
    Backup(BackupArgs),
    /// Make a member of a new cluster from a backup
    Restore(RestoreArgs),
    /// Make a new cluster from the one member that is left of a lost one
    Recover(RecoverArgs),
    /// Write every file of a directory to a key: its path is the key, its contents the value
    Import(ImportArgs),
    /// Write each key under a prefix to a file
    Export(ExportArgs),
    /// Put the cluster under load and measure it
    Bench(BenchArgs),
    /// Run simulated clusters under random faults, from seeds
    #[command(disable_help_flag = true)]
    Sim {
        /// Arguments of the simulator: see `kattu sim --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run experiments on real clusters, beside published figures
    #[command(disable_help_flag = true)]
    Lab {
        /// Arguments of the lab: see `kattu lab --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Inspect a log
    Wal {
        /// The verb about logs.
        #[command(subcommand)]
        verb: WalVerb,
    },
}

/// The verbs about logs.
#[derive(Subcommand, Debug)]
pub(crate) enum WalVerb {
    /// Show every record of a data directory, and whether it is damaged
    Inspect(InspectArgs),
}

/// The output of `--version`: etcd's version first, because scripts read it; then ours.
pub(crate) fn version() -> String {
    let kind = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!(
        "etcd Version: {}\nKattu Version: {}\nOs/Arch: {}/{}\nBuild: {kind}\n",
        kattu_server::face::ETCD_VERSION,
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_verbs_are_well_formed() {
        Cli::command().debug_assert();
    }

    fn helps(command: &clap::Command, texts: &mut Vec<String>) {
        texts.push(
            command.clone().render_long_help().to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        );
        command.get_subcommands().for_each(|verb| helps(verb, texts));
    }

    /// A weak answer says that a write is received, and nothing about disks. [fault-model WK10]
    #[test]
    fn what_is_received_is_never_called_written_stored_or_saved() {
        let mut texts = Vec::new();
        helps(&Cli::command(), &mut texts);
        let sentences = texts.iter().flat_map(|text| text.split(". "));
        let is_about = |text: &&str| text.contains("weak") || text.contains("received");
        let about: Vec<&str> = sentences.filter(is_about).collect();
        assert!(4 <= about.len(), "{about:?}");
        for word in ["written", "stored", "saved", "durable"] {
            let wrong: Vec<_> = about.iter().filter(|text| text.contains(word)).collect();
            assert!(wrong.is_empty(), "{word}: {wrong:?}");
        }
    }

    fn moved(words: &[&str]) -> Vec<OsString> {
        flags_behind_the_verb(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn flags_before_the_verb_are_the_verbs() {
        let put = ["kattu", "put", "k", "v", "--endpoints", "a:1,b:2"];
        assert_eq!(moved(&["kattu", "--endpoints", "a:1,b:2", "put", "k", "v"]), put);
        assert_eq!(moved(&put), put);
        let get = moved(&["kattu", "--timeout=1s", "--endpoints=a:1", "get", "--", "--timeout"]);
        assert_eq!(get, ["kattu", "get", "--timeout=1s", "--endpoints=a:1", "--", "--timeout"]);
        let parsed = format!("{:?}", Cli::try_parse_from(get).expect("understood").verb);
        assert!(parsed.contains("\"a:1\"") && parsed.contains("timeout: 1s"), "{parsed}");
        let member = moved(&["kattu", "--endpoints", "a:1", "member", "list"]);
        assert!(Cli::try_parse_from(member).is_ok());
    }

    #[test]
    fn flags_without_a_verb_and_flags_that_a_verb_has_not_are_refused_by_name() {
        for words in
            [&["kattu", "--endpoints"][..], &["kattu", "--endpoints", "a:1"], &["kattu", "--endpoints=a:1"]]
        {
            assert_eq!(moved(words), words);
            assert!(Cli::try_parse_from(moved(words)).is_err());
        }
        let refused = Cli::try_parse_from(moved(&["kattu", "--endpoints", "a:1", "wal", "inspect", "d"]));
        assert!(refused.expect_err("no cluster is asked").to_string().contains("'--endpoints'"));
        let unknown = moved(&["kattu", "--ednpoints", "a:1", "get", "k"]);
        assert!(Cli::try_parse_from(unknown).expect_err("misspelt").to_string().contains("'--ednpoints'"));
    }

    #[test]
    fn the_version_begins_with_etcds() {
        assert!(version().starts_with("etcd Version: 3.7.3\nKattu Version: "), "{}", version());
    }

    #[test]
    fn every_verb_of_the_contract_is_there() {
        let command = Cli::command();
        let verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        for verb in [
            "serve",
            "dev",
            "put",
            "get",
            "del",
            "txn",
            "compact",
            "status",
            "member",
            "member-list",
            "move-leader",
            "timing",
            "protocol",
            "tune",
            "hash",
            "alarm",
            "session",
            "tree",
            "backup",
            "restore",
            "recover",
            "import",
            "export",
            "bench",
            "sim",
            "lab",
            "wal",
        ] {
            assert!(verbs.contains(&verb), "{verb}");
        }
    }
}
