//! Answer: the encoding of what the store answers, for answers that are kept or that travel.
//!
//! Numbers and byte strings are those of commands (`command.rs`), and so are the rules: one encoding for each answer, any
//! bytes give an answer or an error with its offset. Byte boxes: docs/formats/answer.md.
//! Knows nothing of: sessions, connections.

use crate::api::{Answer, Error, Key, KeyValue, RangeResult, Response, Revision, Value};
use crate::command::{Flaw, Malformed, Reader, TXN_DEPTH_MAX, write_bytes, write_number, write_signed};
use crate::lookup::FoundKey;
use crate::value::Generation;
use alloc::vec::Vec;

const DONE: u8 = 0;

// Kinds of answers; those of commands where there is one.
const PUT: u8 = 1;
const DELETE_RANGE: u8 = 2;
const TXN: u8 = 3;
const COMPACT: u8 = 4;
const RANGE: u8 = 5;

/// Fewest bytes of a pair: two empty strings and four numbers.
const PAIR_BYTES_MIN: usize = 6;

/// Errors by their number, which begins at 1. A number is never used twice.
const ERRORS: [Error; 12] = [
    Error::EmptyKey,
    Error::KeyNotFound,
    Error::ValueProvided,
    Error::LeaseProvided,
    Error::TooManyOps,
    Error::DuplicateKey,
    Error::InvalidSort,
    Error::LeaseNotFound,
    Error::Compacted,
    Error::FutureRevision,
    Error::AnswerTooLarge,
    Error::TooMuchWork,
];

/// Appends the bytes of what a request got.
pub fn encode(result: &Result<Response, Error>, out: &mut Vec<u8>) {
    match result {
        Ok(response) => {
            out.push(DONE);
            write_revision(response.revision, out);
            write_answer(&response.answer, out);
        }
        Err(error) => {
            let place = ERRORS.iter().position(|other| other == error);
            out.push(1 + place.expect("every error has a number") as u8);
        }
    }
}

/// Appends the bytes of what a read of a single key got, as [`encode`] does.
pub fn encode_found(found: &FoundKey<'_>, out: &mut Vec<u8>) {
    let FoundKey { revision, key, version } = *found;
    let count = u8::from(version.lives());
    out.push(DONE);
    write_revision(revision, out);
    out.extend_from_slice(&[RANGE, u8::from(false)]);
    write_signed(count.into(), out);
    write_revision(revision, out);
    write_number(count.into(), out);
    if let Some(value) = version.value() {
        let Generation { create_revision, version: number, lease } = version.life();
        write_bytes(key, out);
        write_revision(create_revision, out);
        write_revision(version.mod_revision, out);
        write_signed(number, out);
        write_signed(lease, out);
        write_bytes(value, out);
    }
}

/// Decodes what a request got, which takes up all of the bytes.
///
/// # Errors
/// If they are not exactly that.
pub fn decode(bytes: &[u8]) -> Result<Result<Response, Error>, Malformed> {
    let mut reader = Reader { bytes, at: 0 };
    let result = match reader.byte()? {
        DONE => {
            let revision = read_revision(&mut reader)?;
            Ok(Response { revision, answer: read_answer(&mut reader, 0)? })
        }
        number => match ERRORS.get(usize::from(number) - 1) {
            Some(error) => Err(*error),
            None => return Err(reader.unknown(number)),
        },
    };
    reader.end()?;
    Ok(result)
}

fn write_answer(answer: &Answer, out: &mut Vec<u8>) {
    match answer {
        Answer::Put { prev_kv } => {
            out.extend_from_slice(&[PUT, u8::from(prev_kv.is_some())]);
            prev_kv.iter().for_each(|pair| write_pair(pair, out));
        }
        Answer::DeleteRange { deleted, prev_kvs, revision } => {
            out.push(DELETE_RANGE);
            write_signed(*deleted, out);
            write_revision(*revision, out);
            write_pairs(prev_kvs, out);
        }
        Answer::Txn { succeeded, answers } => {
            out.extend_from_slice(&[TXN, u8::from(*succeeded)]);
            write_number(answers.len() as u64, out);
            answers.iter().for_each(|answer| write_answer(answer, out));
        }
        Answer::Compact => out.push(COMPACT),
        Answer::Range(RangeResult { kvs, more, count, revision }) => {
            out.extend_from_slice(&[RANGE, u8::from(*more)]);
            write_signed(*count, out);
            write_revision(*revision, out);
            write_pairs(kvs, out);
        }
    }
}

/// `depth` is the number of transactions around this answer.
fn read_answer(reader: &mut Reader<'_>, depth: usize) -> Result<Answer, Malformed> {
    Ok(match reader.byte()? {
        PUT => Answer::Put { prev_kv: if reader.fact()? { Some(read_pair(reader)?) } else { None } },
        DELETE_RANGE => Answer::DeleteRange {
            deleted: reader.signed()?,
            revision: read_revision(reader)?,
            prev_kvs: read_pairs(reader)?,
        },
        TXN if depth == TXN_DEPTH_MAX => return Err(reader.flawed(Flaw::Depth)),
        TXN => {
            let succeeded = reader.fact()?;
            let count = reader.count(1)?;
            Answer::Txn { succeeded, answers: reader.list(count, |reader| read_answer(reader, depth + 1))? }
        }
        COMPACT => Answer::Compact,
        RANGE => {
            let (more, count) = (reader.fact()?, reader.signed()?);
            let revision = read_revision(reader)?;
            Answer::Range(RangeResult { more, count, revision, kvs: read_pairs(reader)? })
        }
        kind => return Err(reader.unknown(kind)),
    })
}

fn write_pairs(pairs: &[KeyValue], out: &mut Vec<u8>) {
    write_number(pairs.len() as u64, out);
    pairs.iter().for_each(|pair| write_pair(pair, out));
}

fn read_pairs(reader: &mut Reader<'_>) -> Result<Vec<KeyValue>, Malformed> {
    let count = reader.count(PAIR_BYTES_MIN)?;
    reader.list(count, read_pair)
}

fn write_pair(pair: &KeyValue, out: &mut Vec<u8>) {
    write_bytes(&pair.key, out);
    write_revision(pair.create_revision, out);
    write_revision(pair.mod_revision, out);
    write_signed(pair.version, out);
    write_signed(pair.lease, out);
    write_bytes(&pair.value, out);
}

fn read_pair(reader: &mut Reader<'_>) -> Result<KeyValue, Malformed> {
    Ok(KeyValue {
        key: Key::from(reader.bytes_here()?),
        create_revision: read_revision(reader)?,
        mod_revision: read_revision(reader)?,
        version: reader.signed()?,
        lease: reader.signed()?,
        value: Value::from(reader.bytes_here()?),
    })
}

fn write_revision(revision: Revision, out: &mut Vec<u8>) {
    write_signed(revision.0, out);
}

fn read_revision(reader: &mut Reader<'_>) -> Result<Revision, Malformed> {
    reader.signed().map(Revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;
    use proptest::collection::vec as list;
    use proptest::prelude::*;

    fn pair() -> impl Strategy<Value = KeyValue> {
        (list(any::<u8>(), 0..4), any::<[i64; 4]>(), list(any::<u8>(), 0..40)).prop_map(
            |(key, [create, modified, version, lease], value)| KeyValue {
                key: Key::from(key),
                create_revision: Revision(create),
                mod_revision: Revision(modified),
                version,
                value: Value::from(value),
                lease,
            },
        )
    }

    fn answer() -> impl Strategy<Value = Answer> {
        let leaf = prop_oneof![
            prop::option::of(pair()).prop_map(|prev_kv| Answer::Put { prev_kv }),
            (any::<i64>(), any::<i64>(), list(pair(), 0..3)).prop_map(|(deleted, revision, prev_kvs)| {
                Answer::DeleteRange { deleted, prev_kvs, revision: Revision(revision) }
            }),
            Just(Answer::Compact),
            (list(pair(), 0..3), any::<bool>(), any::<i64>(), any::<i64>()).prop_map(
                |(kvs, more, count, revision)| {
                    Answer::Range(RangeResult { kvs, more, count, revision: Revision(revision) })
                }
            ),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            (any::<bool>(), list(inner, 0..4))
                .prop_map(|(succeeded, answers)| Answer::Txn { succeeded, answers })
        })
    }

    fn result() -> impl Strategy<Value = Result<Response, Error>> {
        prop_oneof![
            (any::<i64>(), answer())
                .prop_map(|(revision, answer)| Ok(Response { revision: Revision(revision), answer })),
            prop::sample::select(ERRORS.to_vec()).prop_map(Err),
        ]
    }

    fn bytes(result: &Result<Response, Error>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(result, &mut out);
        out
    }

    proptest! {
        #[test]
        fn an_answer_survives_its_bytes_and_no_truncation_of_them(result in result()) {
            let mut whole = bytes(&result);
            prop_assert_eq!(decode(&whole), Ok(result));
            for length in 0..whole.len() {
                prop_assert!(decode(&whole[..length]).is_err(), "{} bytes", length);
            }
            whole.push(0);
            prop_assert_eq!(decode(&whole).unwrap_err().flaw, Flaw::TrailingBytes);
        }

        #[test]
        fn any_bytes_are_the_encoding_of_what_they_decode_to_or_are_refused(noise in list(0..9u8, 0..40)) {
            if let Ok(result) = decode(&noise) {
                prop_assert_eq!(bytes(&result), noise);
            }
        }
    }

    /// Any change of these bytes is a new version of the format. [docs/formats/answer.md]
    #[test]
    fn the_format_is_as_it_was() {
        let pair = KeyValue {
            key: Key::from(&b"k"[..]),
            create_revision: Revision(2),
            mod_revision: Revision(3),
            version: 2,
            value: Value::from(&b"v"[..]),
            lease: -1,
        };
        let as_pair = [1, b'k', 4, 6, 4, 1, 1, b'v'];
        let at_5 = |answer| Ok(Response { revision: Revision(5), answer });
        let range = RangeResult { kvs: vec![pair.clone()], more: true, count: 2, revision: Revision(4) };
        let cases: Vec<(Result<Response, Error>, Vec<u8>)> = vec![
            (at_5(Answer::Put { prev_kv: None }), vec![0, 10, 1, 0]),
            (at_5(Answer::Put { prev_kv: Some(pair.clone()) }), [&[0, 10, 1, 1][..], &as_pair].concat()),
            (
                at_5(Answer::DeleteRange { deleted: 1, prev_kvs: vec![pair], revision: Revision(5) }),
                [&[0, 10, 2, 2, 10, 1][..], &as_pair].concat(),
            ),
            (at_5(Answer::Txn { succeeded: true, answers: vec![Answer::Compact] }), vec![0, 10, 3, 1, 1, 4]),
            (at_5(Answer::Range(range)), [&[0, 10, 5, 1, 4, 8, 1][..], &as_pair].concat()),
            (Err(Error::EmptyKey), vec![1]),
            (Err(Error::TooMuchWork), vec![12]),
        ];
        for (result, expected) in cases {
            assert_eq!(bytes(&result), expected, "{result:?}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused_where_it_is_wrong() {
        let deep = |levels| [&[0, 2][..], &vec![[3, 1, 1]; levels].concat(), &[4]].concat();
        assert!(decode(&deep(TXN_DEPTH_MAX)).is_ok());
        let cases: [(&str, Box<[u8]>, usize, Flaw); 6] = [
            ("nothing", [].into(), 0, Flaw::Truncated),
            ("an error of no number", [13].into(), 0, Flaw::Unknown(13)),
            ("a kind of no number", [0, 2, 9].into(), 2, Flaw::Unknown(9)),
            ("neither yes nor no", [0, 2, 1, 2].into(), 3, Flaw::Unknown(2)),
            ("more pairs than bytes", [0, 2, 2, 0, 0, 1, 0, 0].into(), 5, Flaw::Length(1)),
            ("too deep", deep(TXN_DEPTH_MAX + 1).into(), 3 + 3 * TXN_DEPTH_MAX, Flaw::Depth),
        ];
        for (name, bytes, offset, flaw) in cases {
            assert_eq!(decode(&bytes), Err(Malformed { offset, flaw }), "{name}");
        }
    }
}
