//! Translation between a history's operations and the store's own types, in which the native protocol speaks.
//!
//! [`kattu_client`] defines the meaning of a failed call, as for etcd's messages (`words.rs`): an error of the store is a
//! final answer where a history has one for it; else it is a refusal.
//! Knows nothing of: connections, sessions.

use kattu_client::api::{self, Command, Query};
use kattu_client::{Error, Kind, Store};
use kattu_verify::convert::{Request, to_rejection, to_request};
use kattu_verify::history::{Answer, Operation, Pair, What};

/// Carries out an operation; its revision and its answer.
///
/// # Errors
/// Those of the client.
pub(crate) async fn ask(store: &Store, operation: &Operation) -> Result<(i64, Answer), Error> {
    let of = |response: api::Response| (response.revision.0, answer(response.answer));
    match to_request(operation) {
        Request::Command(Command::Put(put)) => store.put_with(put).await.map(of),
        Request::Command(Command::DeleteRange(delete)) => store.delete_range(delete).await.map(of),
        Request::Command(Command::Compact(revision)) => store.compact(revision).await.map(of),
        // The level of a read is the store's.
        Request::Command(Command::Txn(txn)) | Request::Query(Query::Txn(txn), _) => {
            store.txn(txn).await.map(of)
        }
        Request::Query(Query::Range(range), _) => {
            let found = store.range(range).await?;
            Ok((found.revision.0, pairs(found)))
        }
    }
}

/// The meaning of an error for the history.
pub(crate) fn meaning(error: &Error) -> What {
    let rejected = |why| What::Done { revision: None, answer: Err(why) };
    let reason = error.to_string();
    match error {
        Error::Store(api::Error::LeaseNotFound | api::Error::AnswerTooLarge | api::Error::TooMuchWork) => {
            What::Refused { reason }
        }
        Error::Store(error) => rejected(to_rejection(*error)),
        Error::Session { .. } | Error::Call(_) => match error.kind() {
            Kind::Refused | Kind::Unreachable => What::Refused { reason },
            Kind::Unknown => What::Unknown { reason },
        },
    }
}

/// What a member says need not be text, where it is wrong: so this is more lenient than the judges' own translation.
fn answer(it: api::Answer) -> Answer {
    match it {
        api::Answer::Put { .. } => Answer::Put,
        api::Answer::Range(found) => pairs(found),
        api::Answer::DeleteRange { deleted, .. } => Answer::Delete { deleted },
        api::Answer::Txn { succeeded, answers } => {
            Answer::Txn { succeeded, answers: answers.into_iter().map(answer).collect() }
        }
        api::Answer::Compact => Answer::Compact,
    }
}

fn pairs(it: api::RangeResult) -> Answer {
    Answer::Range { kvs: it.kvs.iter().map(pair).collect(), more: it.more, count: it.count }
}

fn pair(kv: &api::KeyValue) -> Pair {
    Pair {
        key: String::from_utf8_lossy(&kv.key).into_owned(),
        value: String::from_utf8_lossy(&kv.value).into_owned(),
        create: kv.create_revision.0,
        modified: kv.mod_revision.0,
        version: kv.version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{CompareResult, CompareTarget, KeyRange, Revision};
    use kattu_client::{Code, Failure, SessionError};
    use kattu_verify::history::{Compare, How, Rejection, Target};

    fn keys(key: &str, end: &str) -> KeyRange {
        KeyRange { start: key.into(), end: end.into() }
    }

    #[test]
    fn the_stores_no_is_a_final_answer_where_a_history_has_one() {
        for (error, why) in [
            (api::Error::Compacted, Rejection::Compacted),
            (api::Error::FutureRevision, Rejection::Future),
            (api::Error::DuplicateKey, Rejection::Invalid),
        ] {
            assert_eq!(meaning(&Error::Store(error)), What::Done { revision: None, answer: Err(why) });
        }
        assert!(matches!(meaning(&Error::Store(api::Error::TooMuchWork)), What::Refused { .. }));
    }

    #[test]
    fn what_certainly_had_no_effect_is_refused_and_the_rest_is_open() {
        let call = |kind| {
            let message = "why".to_string();
            Error::Call(Failure {
                kind,
                code: Code::Unavailable,
                message,
                reason: None,
                endpoint: String::new(),
            })
        };
        let session = |kind| Error::Session { error: SessionError::Expired, kind };
        for error in [call(Kind::Refused), call(Kind::Unreachable), session(Kind::Refused)] {
            assert!(matches!(meaning(&error), What::Refused { .. }), "{error}");
        }
        for error in [call(Kind::Unknown), session(Kind::Unknown)] {
            assert!(matches!(meaning(&error), What::Unknown { .. }), "{error}");
        }
    }

    #[test]
    fn an_operation_keeps_its_meaning() {
        let get = |serializable| Operation::Range {
            key: "a".into(),
            end: "b".into(),
            revision: 3,
            limit: 4,
            count_only: true,
            serializable,
        };
        let read = api::Range {
            keys: keys("a", "b"),
            revision: Revision(3),
            limit: 4,
            count_only: true,
            ..api::Range::default()
        };
        for serializable in [false, true] {
            let expected = Request::Query(Query::Range(read.clone()), serializable);
            assert_eq!(to_request(&get(serializable)), expected);
        }
        let txn = |compare, then, otherwise| match to_request(&Operation::Txn { compare, then, otherwise }) {
            Request::Command(Command::Txn(txn)) | Request::Query(Query::Txn(txn), _) => txn,
            other => panic!("{other:?}"),
        };
        let compares = [
            (
                How::Equal,
                Target::Value("v".into()),
                CompareResult::Equal,
                CompareTarget::Value(b"v".to_vec()),
            ),
            (How::Greater, Target::Version(1), CompareResult::Greater, CompareTarget::Version(1)),
            (How::Less, Target::Create(2), CompareResult::Less, CompareTarget::Create(Revision(2))),
            (How::NotEqual, Target::Mod(3), CompareResult::NotEqual, CompareTarget::Mod(Revision(3))),
        ];
        for (how, target, result, operand) in compares {
            let compare = Compare { key: "k".into(), how, target };
            let whole = api::Compare { keys: keys("k", ""), result, target: operand };
            assert_eq!(txn(vec![compare], vec![], vec![]).compare, [whole]);
        }
        let put = Operation::Put { key: "k".into(), value: "v".into() };
        let inner = Operation::Txn { compare: vec![], then: vec![put], otherwise: vec![] };
        let gone = Operation::Delete { key: "d".into(), end: String::new() };
        let write = api::Put { key: b"k".to_vec(), value: b"v".to_vec(), ..api::Put::default() };
        let nested = api::Txn { success: vec![api::Operation::Put(write)], ..api::Txn::default() };
        let whole = api::Txn {
            compare: vec![],
            success: vec![api::Operation::Range(read), api::Operation::Txn(nested)],
            failure: vec![api::Operation::DeleteRange(api::DeleteRange {
                keys: keys("d", ""),
                prev_kv: false,
            })],
        };
        assert_eq!(txn(vec![], vec![get(false), inner], vec![gone]), whole);
    }

    #[test]
    fn an_answer_keeps_its_meaning() {
        let kv = api::KeyValue {
            key: api::Key::from(&b"k"[..]),
            create_revision: Revision(2),
            mod_revision: Revision(3),
            version: 4,
            value: api::Value::from(&b"v"[..]),
            lease: 0,
        };
        let found = api::RangeResult { kvs: vec![kv], more: true, count: 9, revision: Revision(5) };
        let deleted = api::Answer::DeleteRange { deleted: 1, prev_kvs: vec![], revision: Revision(5) };
        let answers = vec![api::Answer::Put { prev_kv: None }, api::Answer::Range(found), deleted];
        let pair = Pair { key: "k".into(), value: "v".into(), create: 2, modified: 3, version: 4 };
        let expected = Answer::Txn {
            succeeded: true,
            answers: vec![
                Answer::Put,
                Answer::Range { kvs: vec![pair], more: true, count: 9 },
                Answer::Delete { deleted: 1 },
            ],
        };
        assert_eq!(answer(api::Answer::Txn { succeeded: true, answers }), expected);
        assert_eq!(answer(api::Answer::Compact), Answer::Compact);
    }
}
