//! hash and alarm: compares members, and lists or clears their alarms.
//!
//! Knows nothing of: the making of hashes and alarms.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format};
use clap::{Args, Subcommand};
use kattu_output::{Ended, Outcome};
use kattu_proto::etcdserverpb as pb;
use pb::alarm_request::AlarmAction;
use serde_json::{Value, json};

/// Arguments of hash.
#[derive(Args, Debug)]
#[command(after_help = "\
Reads from each endpoint the hash of all versions up to one revision: without --rev, the lowest of their newest ones.
Correct members have equal hashes. Exits with 1 if two members that are compacted to the same revision have not.

Example:
  kattu hash --endpoints 127.0.0.1:2379,127.0.0.1:22379,127.0.0.1:32379")]
pub(crate) struct HashArgs {
    #[command(flatten)]
    reach: Reach,
    /// Up to this revision; 0 for the newest that all endpoints have
    #[arg(long, default_value_t = 0)]
    rev: i64,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// The verbs about alarms.
#[derive(Subcommand, Debug)]
pub(crate) enum AlarmVerb {
    /// List the alarms that are raised
    List(AlarmArgs),
    /// Clear all alarms that are raised
    Disarm(AlarmArgs),
}

/// Arguments of alarm list and alarm disarm.
#[derive(Args, Debug)]
#[command(after_help = "\
NOSPACE: writes that grow the store are refused; free disk space, delete keys and compact, or raise --quota-backend-bytes.
A member that lacks space itself is listed until it has space again, and cannot be disarmed. CORRUPT: the member's state
diverges from the others', and it refuses all requests; remove it and add a new one in its place, then disarm.

Examples:
  kattu alarm list
  kattu alarm disarm")]
pub(crate) struct AlarmArgs {
    #[command(flatten)]
    reach: Reach,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Hashes every endpoint at one revision.
pub(crate) fn hash(args: &HashArgs) -> Outcome {
    let answers = block_on(async {
        let client = args.reach.client()?;
        let mut revision = args.rev;
        if revision == 0 {
            let mut newest = Vec::new();
            for endpoint in client.endpoints() {
                let status = client.status(endpoint).await.map_err(|failure| ended::of_read(&failure))?;
                newest.push(status.header.map_or(0, |header| header.revision));
            }
            revision = newest.into_iter().min().unwrap_or(0);
        }
        let mut answers = Vec::new();
        for endpoint in client.endpoints() {
            let answer =
                client.hash_kv(endpoint, revision).await.map_err(|failure| ended::of_read(&failure))?;
            answers.push((endpoint.name.clone(), answer));
        }
        Ok(answers)
    })?;
    match args.output {
        Format::Json => {
            let entry = |(endpoint, answer): &(String, pb::HashKvResponse)| {
                json!({
                    "endpoint": endpoint,
                    "member_id": format!("{:x}", member_of(answer)),
                    "hash": answer.hash,
                    "hash_revision": answer.hash_revision,
                    "compact_revision": answer.compact_revision,
                })
            };
            output::print_json(&Value::Array(answers.iter().map(entry).collect()))?;
        }
        Format::Table => {
            let row = |(endpoint, answer): &(String, pb::HashKvResponse)| {
                vec![
                    endpoint.clone(),
                    format!("{:x}", member_of(answer)),
                    format!("{:08x}", answer.hash),
                    answer.hash_revision.to_string(),
                    answer.compact_revision.to_string(),
                ]
            };
            let head = ["endpoint", "member id", "hash", "revision", "compact revision"];
            output::print_table(&head, answers.iter().map(row).collect())?;
        }
    }
    let differs = answers.iter().any(|(_, one)| {
        answers.iter().any(|(_, other)| {
            (one.hash_revision, one.compact_revision) == (other.hash_revision, other.compact_revision)
                && one.hash != other.hash
        })
    });
    if differs {
        Err(Ended::failed("members differ: their hashes at the same revision are not equal"))
    } else {
        Ok(())
    }
}

fn member_of(answer: &pb::HashKvResponse) -> u64 {
    answer.header.as_ref().map_or(0, |header| header.member_id)
}

/// Lists or clears alarms.
pub(crate) fn alarm(verb: &AlarmVerb) -> Outcome {
    let (args, disarms) = match verb {
        AlarmVerb::List(args) => (args, false),
        AlarmVerb::Disarm(args) => (args, true),
    };
    let alarms = block_on(async {
        let client = args.reach.client()?;
        let all = pb::AlarmRequest { action: AlarmAction::Get.into(), ..Default::default() };
        let raised = client.alarm(all).await.map_err(|failure| ended::of_read(&failure))?.alarms;
        if !disarms {
            return Ok(raised);
        }
        let mut cleared = Vec::new();
        for alarm in raised {
            let request = pb::AlarmRequest {
                action: AlarmAction::Deactivate.into(),
                member_id: alarm.member_id,
                alarm: alarm.alarm,
            };
            cleared.extend(client.alarm(request).await.map_err(ended::of_call)?.alarms);
        }
        Ok(cleared)
    })?;
    let kind = |alarm: &pb::AlarmMember| {
        pb::AlarmType::try_from(alarm.alarm).map_or("unknown", |kind| kind.as_str_name()).to_string()
    };
    match args.output {
        Format::Json => {
            let entry = |alarm: &pb::AlarmMember| json!({ "member_id": format!("{:x}", alarm.member_id), "alarm": kind(alarm) });
            output::print_json(&Value::Array(alarms.iter().map(entry).collect()))
        }
        Format::Table => {
            let row = |alarm: &pb::AlarmMember| vec![format!("{:x}", alarm.member_id), kind(alarm)];
            output::print_table(&["member id", "alarm"], alarms.iter().map(row).collect())
        }
    }
}
