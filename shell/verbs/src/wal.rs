//! wal inspect: every record of a data directory, one per line, and a verdict.
//!
//! Knows nothing of: formats.

use crate::output::Format;
use clap::Args;
use kattu_output::{Ended, Outcome};
use kattu_wal::{Item, RealFiles, Verdict, WalError};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Arguments of wal inspect.
#[derive(Args, Debug)]
#[command(after_help = "\
Changes nothing and takes no lock; an unfinished write of a running member may look like a torn tail.
Snapshots are read whole and checked.
With -o json each line is an object; the last one is the verdict.
Exits with 0 if the log is clean or ends in a torn tail, which the next start cuts, and with 4 if the log, or the file of
this member's vote hold, is damaged.

Example:
  kattu wal inspect default.kattu")]
pub(crate) struct InspectArgs {
    /// The data directory
    dir: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Shows a data directory.
pub(crate) fn inspect(args: &InspectArgs) -> Outcome {
    let files = RealFiles::existing(&args.dir).map_err(|error| match error {
        WalError::NotADirectory { dir } => Ended::usage(format!("{dir} is not a directory")),
        error => Ended::data(error),
    })?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written: io::Result<()> = Ok(());
    let verdict = kattu_wal::inspect(&files, &mut |item| {
        if written.is_ok() {
            written = match args.output {
                Format::Table => writeln!(out, "{item}"),
                Format::Json => writeln!(out, "{}", item_json(&item)),
            };
        }
    });
    written?;
    let verdict = verdict.map_err(|error| match error {
        WalError::Io { .. } => Ended::failed(error),
        _ => Ended::data(error),
    })?;
    match args.output {
        Format::Table => writeln!(out, "{}", verdict_line(&verdict))?,
        Format::Json => writeln!(out, "{}", verdict_json(&verdict))?,
    }
    out.flush()?;
    match verdict {
        Verdict::Clean { .. } | Verdict::TornTail { .. } => Ok(()),
        Verdict::Damaged { file, offset, what } => {
            Err(Ended::data(format!("{file}: damaged at byte {offset}: {what}")))
        }
    }
}

fn verdict_line(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Clean { closed: true } => "clean, closed in order".to_string(),
        Verdict::Clean { closed: false } => "clean".to_string(),
        Verdict::TornTail { file, offset, bytes, what } => {
            format!(
                "torn tail: {bytes} bytes of {file} from byte {offset} on: {what}; the next start cuts it"
            )
        }
        Verdict::Damaged { file, offset, what } => format!("damaged: {file} at byte {offset}: {what}"),
    }
}

fn verdict_json(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Clean { closed } => json!({"verdict": "clean", "closed": closed}),
        Verdict::TornTail { file, offset, bytes, what } => {
            json!({"verdict": "torn tail", "file": file, "offset": offset, "bytes": bytes, "what": what})
        }
        Verdict::Damaged { file, offset, what } => {
            json!({"verdict": "damaged", "file": file, "offset": offset, "what": what})
        }
    }
}

fn item_json(item: &Item) -> Value {
    match item {
        Item::Identity(identity) => json!({
            "kind": "identity",
            "cluster_id": format!("{:x}", identity.cluster),
            "member_id": format!("{:x}", identity.node.0),
            "name": identity.name,
            "incarnation": format!("{:x}", identity.incarnation.0),
        }),
        Item::Slot { group, place, state: Ok((generation, hard, lsn)) } => json!({
            "kind": "slot",
            "group": group.0,
            "place": place,
            "generation": generation,
            "term": hard.term.0,
            "vote": hard.vote.map(|node| format!("{:x}", node.0)),
            "lsn": lsn.0,
        }),
        Item::Slot { group, place, state: Err(what) } => {
            json!({"kind": "slot", "group": group.0, "place": place, "bad": what})
        }
        Item::VoteFloor { group, state: Ok(vote_floor) } => {
            json!({"kind": "floor", "group": group.0, "term": vote_floor.term.0, "index": vote_floor.index.0})
        }
        Item::VoteFloor { group, state: Err(what) } => {
            json!({"kind": "floor", "group": group.0, "bad": what})
        }
        Item::VoteHold { state: Ok(vote_hold) } => {
            json!({"kind": "promise", "milliseconds": vote_hold.as_millis() as u64})
        }
        Item::Incarnations { state: Ok(count) } => json!({"kind": "lives", "voters": count}),
        Item::Incarnations { state: Err(what) } => json!({"kind": "lives", "bad": what}),
        Item::KnownMembers { state: Ok(count) } => json!({"kind": "members", "members": count}),
        Item::KnownMembers { state: Err(what) } => json!({"kind": "members", "bad": what}),
        Item::VoteHold { state: Err(what) } => json!({"kind": "promise", "bad": what}),
        Item::Entry { at, group, head, payload_bytes } => json!({
            "kind": "entry",
            "segment": at.segment,
            "offset": at.offset,
            "group": group.0,
            "term": head.id.term.0,
            "index": head.id.index.0,
            "entry": format!("{:?}", head.kind).to_lowercase(),
            "stamp": head.stamp.0,
            "payload_bytes": payload_bytes,
        }),
        Item::Truncate { at, group, from } => json!({
            "kind": "truncate", "segment": at.segment, "offset": at.offset, "group": group.0, "from": from.0,
        }),
        Item::Base { at, group, base, last } => json!({
            "kind": "base",
            "segment": at.segment,
            "offset": at.offset,
            "group": group.0,
            "term": base.term.0,
            "index": base.index.0,
            "last": last.0,
        }),
        Item::Snapshot { file, state: Ok(snapshot) } => {
            let ids =
                |ids: &[kattu_raft::NodeId]| ids.iter().map(|id| format!("{:x}", id.0)).collect::<Vec<_>>();
            let membership = &snapshot.meta.membership;
            json!({
                "kind": "snapshot",
                "file": file,
                "group": snapshot.group.0,
                "term": snapshot.meta.last.term.0,
                "index": snapshot.meta.last.index.0,
                "stamp": snapshot.meta.stamp.0,
                "voters": ids(&membership.voters),
                "outgoing": ids(&membership.outgoing),
                "learners": ids(&membership.learners),
                "membership_at": snapshot.meta.membership_at.0,
                "chunks": snapshot.chunks,
                "bytes": snapshot.bytes,
            })
        }
        Item::Snapshot { file, state: Err(what) } => json!({"kind": "snapshot", "file": file, "bad": what}),
        Item::Commit { at, group, index } => json!({
            "kind": "commit", "segment": at.segment, "offset": at.offset, "group": group.0, "index": index.0,
        }),
        Item::Mark { at, kind, synced } => json!({
            "kind": "mark",
            "segment": at.segment,
            "offset": at.offset,
            "mark": kind,
            "synced": {"segment": synced.segment, "offset": synced.offset},
        }),
    }
}
