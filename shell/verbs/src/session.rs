//! session: lists the sessions of clients, and ends them.
//!
//! Knows nothing of: what sessions are for.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format};
use clap::{Args, Subcommand};
use kattu_client::ListedSession;
use kattu_output::{Ended, Outcome};
use serde_json::json;

/// The verbs about sessions.
#[derive(Subcommand, Debug)]
pub(crate) enum SessionVerb {
    /// List the sessions of clients
    List(SessionListArgs),
    /// End sessions, although their clients may still use them
    Close(CloseArgs),
}

/// Arguments of session list.
#[derive(Args, Debug)]
#[command(after_help = "\
A session is named by the log index at which it was opened. `silent` is the time since the last command or sign of life
in it; a session ends by itself after an hour of silence, and after a minute if it was never used.

Examples:
  kattu session list
  kattu session list --from 1000000 --limit 50")]
pub(crate) struct SessionListArgs {
    /// The lowest number to list
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// List at most this many
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    #[command(flatten)]
    reach: Reach,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Arguments of session close.
#[derive(Args, Debug)]
#[command(after_help = "\
The client is told that its session has expired: it does not learn what became of commands under way. Exits with 1 if one
of the sessions is not there.

Example:
  kattu session close 4711 4712")]
pub(crate) struct CloseArgs {
    /// Numbers of sessions
    #[arg(required = true)]
    numbers: Vec<u64>,
    #[command(flatten)]
    reach: Reach,
}

/// Runs a verb about sessions.
pub(crate) fn session(verb: &SessionVerb) -> Outcome {
    match verb {
        SessionVerb::List(args) => list(args),
        SessionVerb::Close(args) => close(args),
    }
}

fn list(args: &SessionListArgs) -> Outcome {
    let limit = args.limit as usize;
    let (all, sessions) = block_on(async {
        let client = args.reach.native_client()?;
        let (mut from, mut all, mut found) = (args.from, 0, Vec::<ListedSession>::new());
        while found.len() < limit {
            let most = u32::try_from(limit - found.len()).unwrap_or(u32::MAX);
            let (count, some) =
                client.list_sessions(from, most).await.map_err(|error| ended::of_error(&error))?;
            all = count;
            let Some(last) = some.last() else { break };
            let Some(next) = last.number.checked_add(1) else { break };
            from = next;
            found.extend(some);
        }
        Ok((all, found))
    })?;
    match args.output {
        Format::Json => {
            let entry = |one: &ListedSession| json!({ "session": one.number, "silent_ms": u64::try_from(one.silent.as_millis()).ok() });
            output::print_json(&json!({
                "sessions": all,
                "list": sessions.iter().map(entry).collect::<Vec<_>>(),
            }))
        }
        Format::Table => {
            let row = |one: &ListedSession| {
                vec![one.number.to_string(), format!("{:.1} s", one.silent.as_secs_f64())]
            };
            output::print_table(&["session", "silent"], sessions.iter().map(row).collect())?;
            match (sessions.len() as u64) < all {
                true => output::print(format!("{} of {all}\n", sessions.len()).as_bytes()),
                false => Ok(()),
            }
        }
    }
}

fn close(args: &CloseArgs) -> Outcome {
    let missing = block_on(async {
        let client = args.reach.native_client()?;
        let mut missing = Vec::new();
        for &number in &args.numbers {
            let was_there = client.expel_session(number).await.map_err(|error| ended::of_error(&error))?;
            if !was_there {
                missing.push(number.to_string());
            }
        }
        Ok(missing)
    })?;
    match &missing[..] {
        [] => Ok(()),
        missing => Err(Ended::failed(format!("there is no session {}", missing.join(", ")))),
    }
}
