//! The command: arguments to verbs, outcomes to exit codes, nothing else.
//!
//! It is a crate of its own, so that it is compiled for size: no request of a member passes through it. The program,
//! `kattu`, is optimized across all crates.
//!
//! | File | Its idea |
//! |---|---|
//! | `cli.rs` | the verbs and their help |
//! | `ended.rs` | how calls ended, as exit codes |
//! | `connect.rs` | from `--endpoints` to a client |
//! | `output.rs` | answers as lines, tables, JSON |
//! | `kv.rs`, `flags.rs` | put, get, del, compact |
//! | `txn.rs`, `grammar.rs` | transactions in etcdctl's text |
//! | `cluster.rs` | status |
//! | `member.rs` | member list, add, remove, promote, update; move-leader |
//! | `backup.rs` | backup, restore, recover |
//! | `maintain.rs` | hash, alarm |
//! | `import.rs`, `export.rs` | directories in and out |
//! | `bench.rs` | load, measured |
//! | `beside.rs` | becomes the simulator or the lab, programs of their own |
//! | `wal.rs` | inspection of a log |
//! | `serve.rs`, `dev.rs` | one member; a whole cluster in one process |
//!
//! Knows nothing of: the internals of the crates it calls.
#![deny(unsafe_code)]

mod backup;
mod bench;
mod beside;
mod cli;
mod cluster;
mod connect;
mod dev;
mod ended;
mod export;
mod flags;
mod grammar;
mod import;
mod kv;
mod maintain;
mod member;
mod output;
mod serve;
mod session;
mod stages;
mod switches;
mod tree;
mod tune;
mod txn;
mod wal;

use clap::Parser;
use cli::{Cli, Verb, WalVerb};
use std::process::ExitCode;

/// Runs the verb that the arguments of this process name.
#[must_use]
pub fn run() -> ExitCode {
    let args = cli::flags_behind_the_verb(std::env::args_os().collect());
    let outcome = match args.get(1).and_then(|first| first.to_str()) {
        Some("--version" | "-V" | "version") => output::print(cli::version().as_bytes()),
        // Its flags are etcd's, also in etcd's spellings, so that the verb reads them itself.
        Some("serve") => serve::run(&args[2..]),
        Some("help") if args.get(2).is_some_and(|verb| verb == "serve") => serve::run(&["--help".into()]),
        _ => dispatch(Cli::parse_from(args)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => ended.report(),
    }
}

fn dispatch(cli: Cli) -> kattu_output::Outcome {
    match cli.verb {
        Verb::Serve { flags } => serve::run(&flags),
        Verb::Dev(args) => dev::run(&args),
        Verb::Put(args) => kv::put(&args),
        Verb::Get(args) => kv::get(&args),
        Verb::Del(args) => kv::del(&args),
        Verb::Txn(args) => txn::run(&args),
        Verb::Compact(args) => kv::compact(&args),
        Verb::Status(args) => cluster::status(&args),
        Verb::Member { verb } => member::run(&verb),
        Verb::MemberList(args) => member::list(&args),
        Verb::MoveLeader(args) => member::move_leader(&args),
        Verb::Timing(args) => cluster::timing(&args),
        Verb::Protocol(args) => cluster::protocol(&args),
        Verb::Tune(args) => tune::run(&args),
        Verb::Hash(args) => maintain::hash(&args),
        Verb::Alarm { verb } => maintain::alarm(&verb),
        Verb::Session { verb } => session::session(&verb),
        Verb::Tree { verb } => tree::tree(&verb),
        Verb::Backup(args) => backup::backup(&args),
        Verb::Restore(args) => backup::restore(&args),
        Verb::Recover(args) => backup::recover(&args),
        Verb::Import(args) => import::run(&args),
        Verb::Export(args) => export::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Sim { args } => beside::SIMULATOR.become_it(&args),
        Verb::Lab { args } => beside::LAB.become_it(&args),
        Verb::Wal { verb: WalVerb::Inspect(args) } => wal::inspect(&args),
    }
}
