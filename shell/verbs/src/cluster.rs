//! status: the state of members. timing: how long all of them wait for their leader.
//!
//! Knows nothing of: the sources of a member's status.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format};
use crate::stages;
use clap::{Args, ValueEnum};
use kattu_client::{Client, Endpoint, Failure, Kind};
use kattu_output::{Ended, Outcome};
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{NbRaft, Protocol};
use serde_json::{Map, Value, json};

/// Arguments of status.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows each endpoint's own view, without a quorum. Exits with 3 if an endpoint cannot be reached, after showing the
others. For a server of etcd only etcd's fields are shown.

With --stages: where the time of requests goes. Members follow up to a thousand writes, a thousand reads and a hundred appends a second from
stage to stage. `after` is the mean time from the receipt of a request, or from the arrival of an append at a follower;
`+` is that time less the one of the row before. A write is sent and stored at the same time, so that its stages overlap.
Then: how much goes together.

Examples:
  kattu status --stages
  kattu status --endpoints 127.0.0.1:2379,127.0.0.1:22379,127.0.0.1:32379 -o json")]
pub(crate) struct StatusArgs {
    /// Show where the time of requests goes, and how much goes together, since each member's start
    #[arg(long)]
    stages: bool,
    #[command(flatten)]
    reach: Reach,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Arguments of timing.
#[derive(Args, Debug)]
#[command(after_help = "\
Sets both times for all members at once, in the log, and returns when that is committed; `kattu status -o json` shows
what is in force. The flags of `kattu serve` only begin a new cluster's. Members need no restart.

Example:
  kattu timing --election-timeout 2000 --heartbeat-interval 200")]
pub(crate) struct TimingArgs {
    /// Milliseconds without a leader before an election; at least 5 heartbeat intervals, at most 50000
    #[arg(long, value_name = "MS")]
    election_timeout: u64,
    /// Milliseconds between heartbeats; a tenth of the election timeout if absent
    #[arg(long, value_name = "MS")]
    heartbeat_interval: Option<u64>,
    #[command(flatten)]
    reach: Reach,
}

/// The protocols that a cluster can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolName {
    /// Raft as it is
    Raft,
    /// Followers keep entries that come before their predecessors
    NbRaft,
}

/// When weak answers are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeakName {
    /// Never
    Off,
    /// When a quorum has it on disk or in windows: as published
    Gap,
    /// When a quorum has it in memory, whatever its disks have
    Receipt,
}

/// Arguments of protocol.
#[derive(Args, Debug)]
#[command(after_help = "\
Sets the protocol for all members at once, in the log, and returns when that is committed. Members need no restart.

raft      every member's log grows entry by entry, in order
nb-raft   a follower keeps entries that come before their predecessors, in a window, until those have come. This pays
          where messages overtake one another: over several links, or links that lose some. It changes no guarantee.

With --weak, clients of the native protocol that ask for it are told when a quorum has *received* a write, in memory, before
it is committed. Such a write may be lost together with the leader, if its client is gone too; all other writes have the
guarantees that they always have. Members keep to a budget of such writes; beyond it clients wait until theirs are committed.

Examples:
  kattu protocol nb-raft --window-entries 10000
  kattu protocol nb-raft --weak receipt --budget-entries 1000")]
pub(crate) struct ProtocolArgs {
    /// The protocol
    #[arg(value_enum)]
    protocol: ProtocolName,
    /// nb-raft: entries that a follower keeps at most, 1 to 1000000
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    window_entries: u32,
    /// nb-raft: their bytes at most, in the follower's memory, 1 to 1073741824
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    window_bytes: u64,
    /// nb-raft: when clients that ask for it are told that a quorum has received their write
    #[arg(long, value_enum, default_value = "off")]
    weak: WeakName,
    /// --weak: writes at most that clients were told so of and that are not committed, at each member, 1 to 1000000
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    budget_entries: u32,
    /// --weak: their bytes at most, 1 to 1073741824
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    budget_bytes: u64,
    #[command(flatten)]
    reach: Reach,
}

/// Sets the protocol of the cluster.
pub(crate) fn protocol(args: &ProtocolArgs) -> Outcome {
    let weak = match args.weak {
        WeakName::Off => Weak::Off,
        WeakName::Gap => Weak::Gap,
        WeakName::Receipt => Weak::Receipt,
    };
    let protocol = match args.protocol {
        ProtocolName::Raft if weak != Weak::Off => {
            return Err(Ended::usage("raft gives no weak answers: use nb-raft with --weak"));
        }
        ProtocolName::Raft => Protocol::Raft,
        ProtocolName::NbRaft => Protocol::NbRaft(NbRaft {
            window: Capacity { entries: args.window_entries, bytes: args.window_bytes },
            weak,
            budget: match weak {
                Weak::Off => Capacity::default(),
                Weak::Gap | Weak::Receipt => {
                    Capacity { entries: args.budget_entries, bytes: args.budget_bytes }
                }
            },
        }),
    };
    let set = block_on(async { args.reach.client()?.set_protocol(&protocol).await.map_err(ended::of_call) })?;
    output::print(format!("{set}\n").as_bytes())
}

/// Sets the timing of the cluster.
pub(crate) fn timing(args: &TimingArgs) -> Outcome {
    let election = args.election_timeout;
    let heartbeat = args.heartbeat_interval.unwrap_or(election / 10);
    if !(1..=50_000).contains(&election) || heartbeat == 0 || election / 5 < heartbeat {
        return Err(Ended::usage(format!(
            "an election timeout of {election} ms must be at least 5 times the heartbeat interval, which is {heartbeat} ms, \
             and at most 50000 ms"
        )));
    }
    let set = block_on(async {
        args.reach.client()?.set_timing(election, heartbeat).await.map_err(ended::of_call)
    })?;
    output::print(format!("{set}\n").as_bytes())
}

/// The fields of one entry of `status -o json`, in order.
const FIELDS: [&str; 30] = [
    "endpoint",
    "member_id",
    "name",
    "role",
    "leader_id",
    "term",
    "revision",
    "history_seconds",
    "persisted",
    "committed",
    "applied",
    "first_index",
    "last_index",
    "log_bytes",
    "version",
    "feature_level",
    "election_timeout_ms",
    "heartbeat_interval_ms",
    "protocol",
    "window_entries",
    "window_bytes",
    "weak",
    "budget_entries",
    "budget_bytes",
    "weak_outstanding",
    "weak_outstanding_bytes",
    "windows",
    "tuned",
    "certificate_days",
    "errors",
];

/// The columns of the table: those that fit a terminal.
const COLUMNS: [&str; 10] = [
    "endpoint",
    "member_id",
    "name",
    "role",
    "term",
    "revision",
    "committed",
    "applied",
    "log_bytes",
    "errors",
];

/// Shows the state of members.
pub(crate) fn status(args: &StatusArgs) -> Outcome {
    if args.stages {
        return stages::show(&args.reach, args.output);
    }
    let entries = block_on(async {
        let client = args.reach.client()?;
        let mut asking = tokio::task::JoinSet::new();
        for (place, endpoint) in client.endpoints().iter().cloned().enumerate() {
            let client = client.clone();
            asking.spawn(async move { (place, status_of(&client, &endpoint).await) });
        }
        let mut entries: Vec<(usize, Entry)> = asking.join_all().await;
        entries.sort_by_key(|(place, _)| *place);
        Ok(entries.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>())
    })?;
    match args.output {
        Format::Json => output::print_json(&entries.iter().map(|entry| entry.json.clone()).collect())?,
        Format::Table => {
            let row = |entry: &Entry| COLUMNS.iter().map(|field| cell(&entry.json[*field])).collect();
            let head = COLUMNS.map(|field| field.replace('_', " "));
            output::print_table(&head.each_ref().map(String::as_str), entries.iter().map(row).collect())?;
            let tuned: String = entries.iter().filter_map(|entry| tuned(&entry.json)).collect();
            let protocols: String = entries.iter().filter_map(|entry| protocol_of(&entry.json)).collect();
            output::print(format!("{protocols}{tuned}").as_bytes())?;
        }
    }
    let unreachable: Vec<String> = entries.iter().filter_map(|entry| entry.unreachable.clone()).collect();
    if unreachable.is_empty() { Ok(()) } else { Err(Ended::unreachable(unreachable.join("; "))) }
}

/// The line that says how a member takes part in the cluster's protocol, if that is not raft.
pub(crate) fn protocol_of(member: &Value) -> Option<String> {
    let number = |field: &str| member[field].as_u64().unwrap_or_default();
    let protocol = member["protocol"].as_str().filter(|name| *name != "raft")?;
    let (entries, mib) = (number("window_entries"), number("window_bytes") as f64 / 1048576.0);
    let mut line =
        format!("{} runs {protocol}: window {entries} entries, {mib:.1} MiB", member["name"].as_str()?);
    if let Some(mode) = member["weak"].as_str() {
        let (entries, outstanding) = (number("budget_entries"), number("weak_outstanding"));
        let mib = number("budget_bytes") as f64 / 1048576.0;
        line += &format!(
            "; weak answers by {mode}, budget {entries} entries, {mib:.1} MiB, {outstanding} outstanding"
        );
    }
    let windows = member["windows"].as_object().into_iter().flatten();
    let kept: Vec<String> = windows.map(|(peer, entries)| format!("{peer}: {entries}")).collect();
    if !kept.is_empty() {
        line += &format!("; in windows, by member: {}", kept.join(", "));
    }
    Some(line + "\n")
}

/// The line that says what a member is tuned to, if that is not what every member begins with.
fn tuned(member: &Value) -> Option<String> {
    let settings = member["tuned"].as_object().filter(|settings| !settings.is_empty())?;
    let settings: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    Some(format!("{} is tuned: {}\n", member["name"].as_str().unwrap_or_default(), settings.join(" ")))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"),
        value => value.to_string(),
    }
}

/// What is known about one endpoint.
struct Entry {
    json: Value,
    /// Why it could not be reached, if so.
    unreachable: Option<String>,
}

async fn status_of(client: &Client, endpoint: &Endpoint) -> Entry {
    let answer = match client.kattu_status(endpoint).await {
        Ok(text) => match serde_json::from_str::<Map<String, Value>>(&text) {
            Ok(fields) => Ok(fields),
            Err(error) => Err(format!("/kattu/status is not JSON: {error}")),
        },
        // A server that answers, but lacks this page, may be etcd.
        Err(failure) if failure.kind == Kind::Refused => {
            etcd_status(client, endpoint).await.map_err(|f| f.to_string())
        }
        Err(failure) => return entry(endpoint, Map::new(), Some(failure.to_string())),
    };
    match answer {
        Ok(fields) => entry(endpoint, fields, None),
        Err(why) => entry(endpoint, Map::new(), Some(why)),
    }
}

/// The same fields in the same order for every endpoint; an unknown one is null.
fn entry(endpoint: &Endpoint, mut known: Map<String, Value>, unreachable: Option<String>) -> Entry {
    known.insert("endpoint".to_string(), json!(endpoint.name));
    if let Some(why) = &unreachable {
        known.insert("errors".to_string(), json!([why]));
    }
    let json = FIELDS.iter().map(|field| ((*field).to_string(), known.remove(*field).unwrap_or(Value::Null)));
    Entry { json: json.collect(), unreachable }
}

async fn etcd_status(client: &Client, endpoint: &Endpoint) -> Result<Map<String, Value>, Failure> {
    let status = client.status(endpoint).await?;
    let header = status.header.unwrap_or_default();
    let role = if status.leader == header.member_id { "leader" } else { "follower" };
    let fields = json!({
        "member_id": format!("{:x}", header.member_id),
        "role": role,
        "leader_id": format!("{:x}", status.leader),
        "term": status.raft_term,
        "revision": header.revision,
        "committed": status.raft_index,
        "applied": status.raft_applied_index,
        "version": status.version,
        "errors": status.errors,
    });
    Ok(match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_client::Options;

    #[tokio::test]
    async fn an_entry_has_all_fields_of_the_contract_whatever_is_known() {
        let client = Client::connect(["127.0.0.1:1"], Options::default()).unwrap();
        let endpoint = &client.endpoints()[0];
        let entry = entry(endpoint, Map::new(), Some("gone".to_string()));
        let fields: Vec<&String> = entry.json.as_object().unwrap().keys().collect();
        let mut expected = FIELDS.to_vec();
        expected.sort_unstable();
        assert_eq!(fields, expected, "JSON objects are sorted here, so the order is the alphabet's");
        assert_eq!(entry.json["endpoint"], "127.0.0.1:1");
        assert_eq!(entry.json["errors"], json!(["gone"]));
        assert_eq!(entry.json["term"], Value::Null);
    }

    #[test]
    fn a_protocol_other_than_raft_has_a_line_with_window_budget_and_what_each_peer_keeps() {
        assert_eq!(protocol_of(&json!({"name": "n1", "protocol": "raft"})), None);
        assert_eq!(protocol_of(&Value::Null), None, "a member that did not answer");
        let mut member = json!({
            "name": "n1", "protocol": "nb-raft", "window_entries": 10_000, "window_bytes": 67_108_864, "windows": {},
        });
        let line = "n1 runs nb-raft: window 10000 entries, 64.0 MiB";
        assert_eq!(protocol_of(&member), Some(format!("{line}\n")));
        member["weak"] = json!("gap");
        (member["budget_entries"], member["budget_bytes"]) = (json!(1000), json!(1_048_576));
        (member["weak_outstanding"], member["windows"]) = (json!(7), json!({"n2": 3, "n3": 0}));
        let more = "weak answers by gap, budget 1000 entries, 1.0 MiB, 7 outstanding; in windows, by member: n2: 3, n3: 0";
        assert_eq!(protocol_of(&member), Some(format!("{line}; {more}\n")));
    }

    #[test]
    fn what_a_member_is_tuned_to_has_a_line_unless_it_is_nothing() {
        assert_eq!(tuned(&json!({"name": "n1", "tuned": {}})), None);
        assert_eq!(tuned(&json!({"name": "etcd", "tuned": null})), None);
        let line = tuned(&json!({"name": "n1", "tuned": {"batching": "off", "reads": "log"}}));
        assert_eq!(line.as_deref(), Some("n1 is tuned: batching=off reads=log\n"));
    }
}
