//! Consistency level of a read: given with the call, or once in the configuration.
//!
//! ```text
//!  kattu-consistency: linearizable | serializable | at-least=INDEX | bounded=TIME     with a call
//!  kattu-index: INDEX                                                   with the response to such a call
//! ```
//! In:    the metadata of a call; the text of `--read-consistency`.
//! Rule:  a request whose own field says `serializable` is served so; any other gets the level of its call, and without
//!        one that of the configuration, which is linearizable by default. A server that does not know this metadata
//!        (etcd) serves such a read linearizably, which satisfies every other level.
//!
//! The index of a response is a committed log index at or after everything that the response shows. A client that
//! sends the highest index it has received sees, at whichever member it asks next, all that it has seen or done. It is
//! an index of the log, not a revision.
//! Knows nothing of: the implementation of levels.

use crate::errors;
use http::{HeaderMap, HeaderName};
use kattu_node::contract::Consistency;
use kattu_raft::{Duration, LogIndex};
use tonic::Status;

/// The metadata key of a call's level.
pub const CONSISTENCY: &str = "kattu-consistency";

/// The metadata key of a response's log index.
pub const INDEX: &str = "kattu-index";

static CONSISTENCY_NAME: HeaderName = HeaderName::from_static(CONSISTENCY);

/// The level that a call asks for, if it asks for one.
///
/// # Errors
/// An unknown level: a read that might be older than its caller expects is not served.
pub fn of_call(headers: &HeaderMap) -> Result<Option<Consistency>, Status> {
    let Some(value) = headers.get(&CONSISTENCY_NAME) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let level =
        parse(&text).map_err(|what| Status::invalid_argument(format!("kattu: {CONSISTENCY}: {what}")))?;
    Ok(Some(level))
}

/// Reads a level.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Consistency, String> {
    let wrong = || {
        let begin = errors::begin_of(text);
        format!(
            "{begin:?} is not one of linearizable, serializable, at-least=INDEX, bounded=TIME (such as 100ms)"
        )
    };
    match text.split_once('=') {
        None if text == "linearizable" => Ok(Consistency::Linearizable),
        None if text == "serializable" => Ok(Consistency::Serializable),
        Some(("at-least", index)) => {
            index.parse().map(|index| Consistency::AtLeast(LogIndex(index))).map_err(|_| wrong())
        }
        Some(("bounded", time)) => {
            let time = crate::config::parse_duration(time).filter(|time| *time <= BOUND_MAX);
            time.map(Consistency::Bounded).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

/// A caller that accepts older reads than this wants serializable ones.
const BOUND_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn each_level_has_its_words() {
        for (text, level) in [
            ("linearizable", Consistency::Linearizable),
            ("serializable", Consistency::Serializable),
            ("at-least=0", Consistency::AtLeast(LogIndex(0))),
            ("at-least=18446744073709551615", Consistency::AtLeast(LogIndex(u64::MAX))),
            ("bounded=250ms", Consistency::Bounded(Duration::from_millis(250))),
            ("bounded=1.5s", Consistency::Bounded(Duration::from_millis(1500))),
        ] {
            assert_eq!(parse(text), Ok(level), "{text}");
        }
    }

    #[test]
    fn what_is_no_level_is_refused_and_not_taken_for_a_weaker_one() {
        for text in ["", "Linearizable", "at-least", "at-least=", "at-least=-1", "at-least=1s", "bounded"]
            .into_iter()
            .chain(["bounded=5", "bounded=", "bounded=-1s", "bounded=25h", "serializable=1", "eventual"])
        {
            assert!(parse(text).is_err(), "{text:?}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(of_call(&headers).unwrap(), None);
        headers.insert(CONSISTENCY, HeaderValue::from_bytes(b"at-least=\xff").unwrap());
        assert_eq!(of_call(&headers).unwrap_err().code(), tonic::Code::InvalidArgument);
        headers.insert(CONSISTENCY, HeaderValue::from_bytes(&[0xff; 4000]).unwrap());
        let refused = of_call(&headers).unwrap_err();
        assert!(
            refused.message().len() < 2 * errors::TOLD_BYTES_MAX,
            "the error repeats no more of it than of any text"
        );
        headers.insert(CONSISTENCY, HeaderValue::from_static("bounded=1s"));
        assert_eq!(of_call(&headers).unwrap(), Some(Consistency::Bounded(Duration::from_secs(1))));
    }
}
