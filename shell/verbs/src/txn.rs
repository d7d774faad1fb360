//! txn: a transaction in etcdctl's text, from standard input.
//!
//! Knows nothing of: the grammar.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::grammar;
use crate::output::{self, Format};
use clap::Args;
use kattu_output::{Ended, Outcome};
use std::io::Read;

/// Arguments of txn.
#[derive(Args, Debug)]
#[command(after_help = "\
Reads compares, an empty line, requests for success, an empty line, requests for failure. A compare is
ver, create, mod, val or lease of a key, then =, !=, < or >, then a text in quotes. A request is a put, get or del
with the flags of these verbs.

Example:
  kattu txn <<'END'
  mod(\"greeting\") > \"0\"
  val(\"greeting\") != \"bye\"

  put greeting \"hello again\"
  get greeting

  put greeting hello
  END")]
pub(crate) struct TxnArgs {
    #[command(flatten)]
    reach: Reach,
    /// Output format; default: lines as etcdctl's
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Runs a transaction.
pub(crate) fn run(args: &TxnArgs) -> Outcome {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).map_err(|error| {
        Ended::failed(format!("cannot read the transaction from standard input: {error}"))
    })?;
    let request = grammar::parse_txn(&text).map_err(Ended::usage)?;
    let answer = block_on(async { args.reach.client()?.txn(request).await.map_err(ended::of_call) })?;
    match args.output {
        Some(Format::Json) => output::print_json(&output::txn_json(&answer)),
        Some(Format::Table) => {
            let mut rows = Vec::new();
            for (op, number) in answer.responses.iter().zip(1..) {
                let mut lines = Vec::new();
                op.response.iter().for_each(|answer| output::push_answer(&mut lines, answer));
                rows.push(vec![number.to_string(), output::readable(lines.trim_ascii_end())]);
            }
            let verdict = if answer.succeeded { "SUCCESS" } else { "FAILURE" };
            output::print_table(&["", verdict], rows)
        }
        None => {
            let mut out = Vec::new();
            output::push_txn(&mut out, &answer);
            output::print(&out)
        }
    }
}
