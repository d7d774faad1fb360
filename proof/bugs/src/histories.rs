//! Histories: every judge of what clients saw, run by itself.
//!
//! Knows nothing of: how a history came about.

use kattu_verify::history::{Answer, Operation, Record, What};
use kattu_verify::judges::{
    FinalState, Summary, Violation, bounded_reads_are_recent, durable, linearizable,
    readers_see_what_they_saw, revision_order, revisions_never_back, txn_atomic,
};

type Judge = fn(&[Record]) -> Result<Summary, Violation>;

const JUDGES: [(&str, Judge); 7] = [
    ("revisions_never_back", revisions_never_back),
    ("readers_see_what_they_saw", readers_see_what_they_saw),
    ("bounded_reads_are_recent", bounded_reads_are_recent),
    ("txn_atomic", txn_atomic),
    ("revision_order", revision_order),
    ("durable", durable_at_the_end),
    ("linearizable", linearizable),
];

/// Whether a judge of histories has this name.
pub fn is_judge(name: &str) -> bool {
    JUDGES.iter().any(|(judge, _)| *judge == name)
}

/// The judges that reject the history.
pub fn rejecting(history: &[Record]) -> Vec<&'static str> {
    JUDGES.iter().filter(|(_, judge)| judge(history).is_err()).map(|(name, _)| *name).collect()
}

fn durable_at_the_end(history: &[Record]) -> Result<Summary, Violation> {
    final_state(history).map_or(Ok(Summary::default()), |last| durable(history, &last))
}

/// What the last read of everything showed, if the storm came that far.
fn final_state(history: &[Record]) -> Option<FinalState> {
    let everything = Operation::everything();
    let asks =
        |record: &&Record| matches!(&record.what, What::Invoke { operation, .. } if *operation == everything);
    let asked = history.iter().rfind(asks)?;
    let ends = |record: &&Record| record.id == asked.id && !asks(record);
    match &history.iter().rfind(ends)?.what {
        What::Done { revision: Some(revision), answer: Ok(Answer::Range { kvs, .. }) } => {
            Some(FinalState { revision: *revision, kvs: kvs.clone() })
        }
        _ => None,
    }
}
