//! Words: operations of clients and their answers, as lines of the timeline.
//!
//! Only operations that a violation names are shown: a storm has thousands.
//! Knows nothing of: members, judges.

use crate::trace::Trace;
use kattu_verify::history::{Answer, Level, Operation, Record, What};

/// Characters of a value that are shown.
const VALUE_MAX: usize = 12;
/// Operations shown for one violation.
const OPERATIONS_MAX: usize = 8;

/// Adds the lines of these operations.
pub(crate) fn tell(trace: &mut Trace, history: &[Record], operations: &[u64]) {
    let operations = &operations[..operations.len().min(OPERATIONS_MAX)];
    let mut members = Vec::new();
    for record in history.iter().filter(|record| operations.contains(&record.id)) {
        if let What::Invoke { member, .. } = &record.what {
            members.push((record.id, *member));
        }
        let member = members.iter().find(|(id, _)| *id == record.id).map(|(_, member)| *member);
        trace
            .line(record.at, member, "client", || format!("operation {}: {}", record.id, said(&record.what)));
    }
}

fn said(what: &What) -> String {
    match what {
        What::Invoke { operation, level: None, .. } => asked(operation),
        What::Invoke { operation, level: Some(Level::AtLeast { reader }), .. } => {
            format!("{}, as reader {reader}", asked(operation))
        }
        What::Invoke { operation, level: Some(Level::Bounded(age)), .. } => {
            format!("{}, {:.3} ms old at most", asked(operation), *age as f64 / 1e6)
        }
        What::Done { revision: Some(revision), answer: Ok(answer) } => {
            format!("done at revision {revision}{}", answered(answer))
        }
        What::Done { answer: Ok(answer), .. } => format!("done{}", answered(answer)),
        What::Done { answer: Err(why), .. } => format!("rejected, {why:?}"),
        What::Refused { reason } => format!("refused, {reason}"),
        What::Unknown { reason } => format!("unknown, {reason}"),
        What::Crashed { member } => format!("n{member} crashed"),
    }
}

fn asked(operation: &Operation) -> String {
    match operation {
        Operation::Put { key, value } => format!("put {key} {}", short(value)),
        Operation::Range { key, end, revision, serializable, .. } => {
            let past = if *revision == 0 { String::new() } else { format!(" of revision {revision}") };
            let any = if *serializable { ", serializable" } else { "" };
            format!("get {}{past}{any}", keys(key, end))
        }
        Operation::Delete { key, end } => format!("delete {}", keys(key, end)),
        Operation::Txn { compare, then, otherwise } => {
            let branch = |branch: &[Operation]| branch.iter().map(asked).collect::<Vec<_>>().join("; ");
            format!("txn, {} conditions, then [{}] else [{}]", compare.len(), branch(then), branch(otherwise))
        }
        Operation::Compact { revision } => format!("compact up to {revision}"),
    }
}

fn answered(answer: &Answer) -> String {
    match answer {
        Answer::Put | Answer::Compact => String::new(),
        Answer::Range { kvs, count, .. } if kvs.is_empty() => format!(": {count} keys"),
        Answer::Range { kvs, .. } => {
            let pair = |pair: &kattu_verify::history::Pair| {
                format!("{}={} (revision {})", pair.key, short(&pair.value), pair.modified)
            };
            let shown: Vec<String> = kvs.iter().take(4).map(pair).collect();
            let more = if kvs.len() > shown.len() { ", …" } else { "" };
            format!(": {}{more}", shown.join(", "))
        }
        Answer::Delete { deleted } => format!(": {deleted} deleted"),
        Answer::Txn { succeeded, answers } => {
            let branch = if *succeeded { "then" } else { "else" };
            format!(": {branch}{}", answers.iter().map(answered).collect::<String>())
        }
    }
}

fn keys(key: &str, end: &str) -> String {
    match (key, end) {
        ("\0", "\0") => "everything".to_string(),
        (key, "") => key.to_string(),
        (key, end) => format!("{key}..{end}"),
    }
}

fn short(value: &str) -> &str {
    let value = value.trim_end_matches('.');
    value.char_indices().nth(VALUE_MAX).map_or(value, |(at, _)| &value[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Told;
    use std::sync::{Arc, Mutex};

    #[test]
    fn only_what_a_violation_hangs_on_is_told() {
        let put = Operation::Put { key: "k1".into(), value: "v7.........".into() };
        let invoke = |id| What::Invoke { member: id, operation: put.clone(), level: None };
        let record = |at, id, what| Record { at, client: 1, id, what };
        let done = What::Done { revision: Some(9), answer: Ok(Answer::Put) };
        let history = [record(5, 3, invoke(3)), record(6, 4, invoke(4)), record(7, 3, done)];
        let told = Arc::new(Mutex::new(Told { lines: Some(Vec::new()), ..Told::default() }));
        tell(&mut Trace::new(told.clone()), &history, &[3]);
        let lines = told.lock().expect("nobody panicked with it").lines.take().expect("lines are kept");
        let said: Vec<_> = lines.iter().map(|line| (line.at, line.member, line.what.as_str())).collect();
        let expected =
            [(5, Some(3), "operation 3: put k1 v7"), (7, Some(3), "operation 3: done at revision 9")];
        assert_eq!(said, expected);
    }
}
