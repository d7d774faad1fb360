//! put, get, del, compact.
//!
//! Knows nothing of: the choice of an endpoint.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::flags::{DelFlags, GetFlags, PutFlags};
use crate::output::{self, Format};
use clap::Args;
use kattu_output::{Ended, Outcome};
use kattu_proto::etcdserverpb as pb;
use std::io::Read;

/// Arguments of put.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  kattu put greeting hello
  kattu put config < config.toml      the value from standard input
  kattu put -- -k -v                  arguments that begin with a dash go after --")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    flags: PutFlags,
    #[command(flatten)]
    reach: Reach,
    /// Output format; default: lines as etcdctl's
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Arguments of get.
#[derive(Args, Debug)]
#[command(after_help = "\
A missing key prints nothing and is not an error.

Examples:
  kattu get greeting
  kattu get users/ --prefix --limit 10 --sort-by modify --order descend
  kattu get greeting --rev 5          as it was at revision 5
  kattu get users/ --prefix --count-only
  kattu get greeting -o json          as etcdctl -w json writes it")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    flags: GetFlags,
    #[command(flatten)]
    reach: Reach,
    /// Output format; default: lines as etcdctl's
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Arguments of del.
#[derive(Args, Debug)]
#[command(after_help = "\
Prints how many keys were deleted.

Examples:
  kattu del greeting
  kattu del users/ --prefix")]
pub(crate) struct DelArgs {
    #[command(flatten)]
    flags: DelFlags,
    #[command(flatten)]
    reach: Reach,
    /// Output format; default: lines as etcdctl's
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Arguments of compact.
#[derive(Args, Debug)]
#[command(after_help = "\
Every key keeps its newest version; reads at revisions before REVISION are refused from then on.

Example:
  kattu compact 1000")]
pub(crate) struct CompactArgs {
    /// The revision
    revision: i64,
    /// Return when the space is free
    #[arg(long)]
    physical: bool,
    #[command(flatten)]
    reach: Reach,
    /// Output format; default: lines as etcdctl's
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Writes a key.
pub(crate) fn put(args: &PutArgs) -> Outcome {
    let request = args.flags.request(read_stdin)?;
    let answer = block_on(async { args.reach.client()?.put(request).await.map_err(ended::of_call) })?;
    match args.output {
        Some(Format::Json) => output::print_json(&output::put_json(&answer)),
        Some(Format::Table) => {
            output::print_table(&["revision"], vec![vec![revision(answer.header.as_ref())]])
        }
        None => {
            let mut out = Vec::new();
            output::push_put(&mut out, &answer);
            output::print(&out)
        }
    }
}

/// Reads keys.
pub(crate) fn get(args: &GetArgs) -> Outcome {
    let flags = &args.flags;
    let request = flags.request();
    let answer = block_on(async {
        args.reach.client()?.range(request).await.map_err(|failure| ended::of_read(&failure))
    })?;
    match args.output {
        Some(Format::Json) => output::print_json(&output::range_json(&answer)),
        Some(Format::Table) if flags.count_only => {
            output::print_table(&["count"], vec![vec![answer.count.to_string()]])
        }
        Some(Format::Table) => {
            let head = ["key", "value", "create revision", "mod revision", "version", "lease"];
            let row = |pair: &kattu_proto::mvccpb::KeyValue| {
                vec![
                    output::readable(&pair.key),
                    output::readable(&pair.value),
                    pair.create_revision.to_string(),
                    pair.mod_revision.to_string(),
                    pair.version.to_string(),
                    format!("{:x}", pair.lease),
                ]
            };
            output::print_table(&head, answer.kvs.iter().map(row).collect())
        }
        None => {
            let mut out = Vec::new();
            if flags.count_only {
                out.extend_from_slice(format!("{}\n", answer.count).as_bytes());
            }
            for pair in &answer.kvs {
                if flags.keys_only {
                    out.extend_from_slice(&pair.key);
                    out.push(b'\n');
                } else {
                    output::push_pair(&mut out, pair);
                }
            }
            output::print(&out)
        }
    }
}

/// Deletes keys.
pub(crate) fn del(args: &DelArgs) -> Outcome {
    let request = args.flags.request();
    let answer =
        block_on(async { args.reach.client()?.delete_range(request).await.map_err(ended::of_call) })?;
    match args.output {
        Some(Format::Json) => output::print_json(&output::delete_json(&answer)),
        Some(Format::Table) => {
            let row = vec![answer.deleted.to_string(), revision(answer.header.as_ref())];
            output::print_table(&["deleted", "revision"], vec![row])
        }
        None => {
            let mut out = Vec::new();
            output::push_delete(&mut out, &answer);
            output::print(&out)
        }
    }
}

/// Compacts history.
pub(crate) fn compact(args: &CompactArgs) -> Outcome {
    let request = pb::CompactionRequest { revision: args.revision, physical: args.physical };
    let answer = block_on(async { args.reach.client()?.compact(request).await.map_err(ended::of_call) })?;
    match args.output {
        Some(Format::Json) => output::print_json(&output::compact_json(&answer)),
        Some(Format::Table) => output::print_table(&["compacted"], vec![vec![args.revision.to_string()]]),
        None => output::print(format!("compacted revision {}\n", args.revision).as_bytes()),
    }
}

fn revision(header: Option<&pb::ResponseHeader>) -> String {
    header.map_or(0, |header| header.revision).to_string()
}

fn read_stdin() -> Result<Vec<u8>, Ended> {
    let mut value = Vec::new();
    std::io::stdin()
        .read_to_end(&mut value)
        .map_err(|error| Ended::failed(format!("cannot read the value from standard input: {error}")))?;
    Ok(value)
}
