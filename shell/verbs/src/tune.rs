//! tune: what members are tuned to, and how it is changed while they run.
//!
//! Knows nothing of: what a setting does, what a member makes of it.

use crate::cluster;
use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format};
use clap::Args;
use kattu_client::{Client, Endpoint, Failure};
use kattu_output::{Ended, Outcome};
use kattu_runtime::tuning::{SETTINGS, Setting};
use serde_json::Value;

/// Arguments of tune.
#[derive(Args, Debug)]
#[command(after_help = "\
Without settings: shows what each member is tuned to. With settings: each member goes by them at once, or by none of them
if it refuses one, and then its tuning is shown. A member forgets them when it restarts; to keep them, give them to `kattu
serve` as flags. Members may differ: no setting can break a guarantee.

The protocol and its window are the whole cluster's, too: `kattu protocol` sets them, and they are shown here.

election-timeout and heartbeat-interval, in milliseconds, are the whole cluster's and are kept in its log: they are set as
by `kattu timing`, both together.

Examples:
  kattu tune
  kattu tune batching=off --endpoints 127.0.0.1:22379
  kattu tune reads=lease --all
  kattu tune batch-entries-max=64 pipelining=off --all
  kattu tune election-timeout=2000 heartbeat-interval=200")]
pub(crate) struct TuneArgs {
    /// Settings to change; `kattu tune --list` explains them
    #[arg(value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// All members that the cluster's member list has, not only those of --endpoints
    #[arg(long)]
    all: bool,
    /// Explain the settings, and ask no member
    #[arg(long, conflicts_with_all = ["settings", "all"])]
    list: bool,
    #[command(flatten)]
    reach: Reach,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// What the whole cluster agrees on.
const OF_THE_CLUSTER: [&str; 2] = ["election-timeout", "heartbeat-interval"];

/// Shows or changes the tuning of members.
pub(crate) fn run(args: &TuneArgs) -> Outcome {
    if args.list {
        let rows = SETTINGS.iter().map(|named| vec![named.name.to_string(), named.meaning.to_string()]);
        return output::print_table(&["setting", "what it does, and its values"], rows.collect());
    }
    let (of_members, timing) = parse(&args.settings).map_err(Ended::usage)?;
    let (answers, protocols) = block_on(async {
        let client = args.reach.client()?;
        if let Some((election, heartbeat)) = timing {
            client.set_timing(election, heartbeat).await.map_err(ended::of_call)?;
        }
        let of_all = match args.all {
            true => Some(args.reach.client_of(all_members(&client).await?.iter().map(String::as_str))?),
            false => None,
        };
        let client = of_all.unwrap_or(client);
        let mut answers = Vec::new();
        for endpoint in client.endpoints() {
            answers.push((endpoint.name.clone(), ask(&client, endpoint, &of_members).await));
        }
        let mut protocols = String::new();
        for endpoint in client.endpoints() {
            let status = client.kattu_status(endpoint).await.unwrap_or_default(); // what fails is told above
            let fields = serde_json::from_str(&status).unwrap_or(Value::Null);
            protocols += &cluster::protocol_of(&fields).unwrap_or_default();
        }
        Ok((answers, protocols))
    })?;
    show(&answers, args.output)?;
    if let Format::Table = args.output {
        output::print(protocols.as_bytes())?;
    }
    let failed: Vec<&Failure> = answers.iter().filter_map(|(_, answer)| answer.as_ref().err()).collect();
    match failed.first() {
        None => Ok(()),
        Some(first) => Err(ended::of_call((*first).clone())),
    }
}

/// Settings of members as a query, and the cluster's timing.
#[allow(clippy::type_complexity)]
fn parse(given: &[String]) -> Result<(String, Option<(u64, u64)>), String> {
    let pairs = given.iter().map(|text| {
        text.split_once('=')
            .ok_or_else(|| format!("{text:?} is no setting: it must be NAME=VALUE, such as batching=off"))
    });
    let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
    let (of_cluster, of_members): (Vec<_>, Vec<_>) =
        pairs.into_iter().partition(|(name, _)| OF_THE_CLUSTER.contains(name));
    Setting::parse(of_members.iter().copied())?; // members check again, but this costs no call
    let millis = |wanted: &str| -> Result<Option<u64>, String> {
        let Some((_, value)) = of_cluster.iter().find(|(name, _)| *name == wanted) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("{wanted}={value}: it is a number of milliseconds"))
    };
    let timing = match (millis(OF_THE_CLUSTER[0])?, millis(OF_THE_CLUSTER[1])?) {
        (None, None) => None,
        (Some(election), Some(heartbeat)) => Some((election, heartbeat)),
        _ => return Err("election-timeout and heartbeat-interval are set together".to_string()),
    };
    let query = of_members.iter().map(|(name, value)| format!("{name}={value}"));
    Ok((query.collect::<Vec<_>>().join("&"), timing))
}

/// A client URL of each member.
async fn all_members(client: &Client) -> Result<Vec<String>, Ended> {
    let list = client.member_list().await.map_err(ended::of_call)?;
    let urls = list.members.iter().filter_map(|member| member.client_ur_ls.first().cloned());
    Ok(urls.collect())
}

/// The tuning of the member at this endpoint, after these settings.
async fn ask(client: &Client, endpoint: &Endpoint, query: &str) -> Result<Value, Failure> {
    let text = client.tune(endpoint, query).await?;
    Ok(output::parse_page("/kattu/tune", &text))
}

fn show(answers: &[(String, Result<Value, Failure>)], format: Format) -> Outcome {
    match format {
        Format::Json => output::print_json(&answers.iter().map(output::entry).collect()),
        Format::Table => {
            let name = |answer: &Value| answer["name"].as_str().unwrap_or_default().to_string();
            let shown: Vec<(String, &Value)> = answers
                .iter()
                .filter_map(|(_, answer)| Some((name(answer.as_ref().ok()?), answer.as_ref().ok()?)))
                .collect();
            if shown.is_empty() {
                return Ok(());
            }
            let head: Vec<&str> =
                std::iter::once("setting").chain(shown.iter().map(|(name, _)| name.as_str())).collect();
            let row = |setting: &'static str| {
                let value = |(_, answer): &(String, &Value)| {
                    answer["settings"][setting].as_str().unwrap_or("").to_string()
                };
                std::iter::once(setting.to_string()).chain(shown.iter().map(value)).collect()
            };
            output::print_table(&head, SETTINGS.iter().map(|named| row(named.name)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(given: &[&str]) -> Result<(String, Option<(u64, u64)>), String> {
        parse(&given.iter().map(|text| (*text).to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn settings_of_members_and_of_the_cluster_are_told_apart() {
        assert_eq!(parsed(&[]), Ok((String::new(), None)));
        let both =
            parsed(&["batching=off", "election-timeout=2000", "reads=lease", "heartbeat-interval=200"]);
        assert_eq!(both, Ok(("batching=off&reads=lease".to_string(), Some((2000, 200)))));
        for (given, told) in [
            (&["batching"][..], "it must be NAME=VALUE"),
            (&["batching=1"], "batching=1: it is on or off"),
            (&["bathcing=on"], "there is no setting bathcing; there are batching,"),
            (&["election-timeout=2000"], "are set together"),
            (&["election-timeout=2s", "heartbeat-interval=200"], "a number of milliseconds"),
        ] {
            let error = parsed(given).expect_err("it is no setting");
            assert!(error.contains(told), "{error}");
        }
    }
}
