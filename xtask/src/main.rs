//! `cargo xtask`: everything a contributor and CI run, behind one door.
//!
//! `check` reads and judges, `fix` rewrites, `test` is what `.ci/run` executes, `tools` fetches the programs of
//! others that we test against, `bench` measures. Each says the next command to run when it fails.
//! Knows nothing of: how any of the crates work; it only runs them.

mod arrows;
mod bench;
mod bugs;
mod chaos;
mod check;
mod explore;
mod fix;
mod house;
mod power;
mod profiles;
mod rigs;
mod shell;
mod stage;
mod storms;
mod targets;
mod test;
mod tools;
mod upgrade;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask <command>

  check                      format, dependency arrows, clippy, docs, unit tests; changes no file
  fix                        rewrites: format, clippy's suggestions, Cargo.lock
  house [--json]             numbers about the code base: long files and functions, circles, unused public items, lines, words
  scripts --update           rewrites the golden output of the protocol scripts; review the diff
  test [--only S] [--list]   check, release build, end to end, bounded slices: what CI runs
  tools                      fetches etcd 3.4, builds etcd 3.6 and its benchmark tool, into target/tools
  diff --requests N --seed S the same requests to etcd and Kattu, every answer compared
  failover [--kills N]       kills leaders under load, prints how long the service was away
  grow                       1 to 5 to 3 members under load, prints the longest gap between two acknowledged writes
  chaos [--trials N] [--seed S] [--target etcd]
                             real clusters in storms of kills, pauses, cuts and bad links
  kills [--trials N] [--seed S] [--target etcd]
                             a member killed or failed at its n-th system call
  flips [--flips N] [--seed S]
                             bits flipped and sectors lost in any file of a member, while clients write
  upgrade --from COMMIT [--rounds N]
                             a cluster of that commit becomes one of this, member by member, under load and kills
  power [--trials N] [--seed S] [--control]
                             power loss below a real file system; --control on disks that lie
  explore [--states N] [--scope NAME] [--list]
                             every interleaving of tiny clusters; fewer states than pinned are a failure
  bugs [--fast | --alone | --only NAME | --show NAME | --list | --write]
                             every planted bug: who catches it, after how many seeds; 1 if one is missed
  fuzz [--seconds N] [--only TARGET]
                             frames, records and files of arbitrary bytes, N seconds each (300)
  bench etcd [--pairs N] [--quick] [--only CELL] [--side etcd|kattu] [--against PATH] [--flag FLAG ...]
             [--tool etcd|kattu] [--tls]
                             etcd 3.6 and Kattu in alternating pairs; or another Kattu and this one, with these flags;
                             the load comes from etcd's benchmark tool, or from kattu bench; in TLS, with certificates of clients
  bench comeback [--keys N] [--only-load] [--times-not-judged]
                             a large member comes back, a new one comes, one comes back in the midst of puts at full speed
  bench counts [--total PUTS] [--against PATH] [--rounds N] [--flag FLAG ...]
                             what one put costs: CPU, switches, system calls, fsyncs, bytes, allocations; two programs in turns
  bench digest [--total PUTS]
                             what comparing digests costs while puts go on
  bench failover [--trials N] [--target etcd] [--flag FLAG ...]
                             leaders killed: how long nothing is acknowledged, as a distribution
  bench floods [--seconds N] [--strength PERCENT] [--only FLOOD]
                             clients and strangers that take what they can: memory, log lines, a good client's p99
  bench floor                what a put by a single client cannot go below on this machine
  bench handshakes [--pairs N]
                             connections in TLS, with certificates on both sides, a second, and what one costs; etcd beside it
  bench heavy [--scale PERCENT] [--only REQUEST]
                             requests about millions of keys: refused or whole, and what puts notice
  bench memory [--keys N]    bytes of memory per key and per older version above the data
  bench overload [--seconds N] [--connections N]
                             ten times the load that can be served: what is served, and how soon all is again
  bench instructions [--total PUTS] [--rounds N] [--against PATH]
                             instructions of one put under valgrind, on the leader and on a follower; two programs in turns
  bench replay [--total PUTS]
                             how fast a log is read back
  bench rotation [--rounds N] [--total PUTS]
                             whether the step to the log's next segment stands in the tail of puts
  bench sectors [--rounds N] [--total PUTS]
                             what padding the log to 4,096 bytes costs: bytes, times
  bench slow-link [--mb N] [--bandwidth MB/S] [--reads yes|no] [--resets yes|no]
                             a follower behind a slow link catches up: goodput, time
  bench snapshot-pause [--keys N]
                             what puts notice of a snapshot
  bench soak [--minutes N] [--keys N] [--value-bytes N] [--quota-mb N]
                             puts at full speed for long: memory, quotas, history, and whether anybody is refused
  bench tail [--seconds N] [--rounds N] [--times-not-judged]
                             puts at a steady rate while snapshots are taken, while compactions run: the p99 next to that without
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["check"] => check::run(),
        ["fix"] => fix::run(),
        ["scripts", "--update"] => fix::update_scripts(),
        ["house", rest @ ..] => house::run(rest),
        ["test", rest @ ..] => test::run(rest),
        ["tools"] => tools::run(),
        ["diff", rest @ ..] => rigs::in_foreground("kattu-differential", rest),
        ["power", rest @ ..] => power::run(rest),
        ["explore", rest @ ..] => explore::run(rest),
        ["bugs", rest @ ..] => bugs::run(rest),
        ["fuzz", rest @ ..] => test::fuzz_long(rest),
        ["failover", rest @ ..] => rigs::in_foreground("failover", rest),
        ["grow", rest @ ..] => rigs::in_foreground("grow", rest),
        ["chaos", rest @ ..] => chaos::run("chaos", rest),
        ["flips", rest @ ..] => chaos::run("flips", rest),
        ["upgrade", rest @ ..] => upgrade::run(rest),
        ["kills", rest @ ..] => chaos::run("kills", rest),
        ["bench", rest @ ..] => bench::run(rest),
        ["help" | "--help" | "-h"] | [] => {
            print!("{USAGE}");
            Ok(())
        }
        other => {
            Err(shell::Failure::usage(format!("cargo xtask has no command `{}`\n\n{USAGE}", other.join(" "))))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.what.is_empty() {
                eprintln!("{failure}");
            }
            ExitCode::from(failure.code)
        }
    }
}
