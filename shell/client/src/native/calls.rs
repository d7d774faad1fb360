//! The calls of a native client, one function each: commands and queries of the store, and those about sessions.
//!
//! Knows nothing of: which member is asked, how often.

use crate::error::Error;
use crate::failure::Kind;
use crate::native::answer::{self, Answer, Outcome};
use crate::native::ask::Ask;
use crate::native::client::{Course, NativeClient};
use kattu_kv::api::{
    Answer as Content, Command, DeleteRange, KeyRange, KeyValue, Put, PutRef, Query, Range, RangeResult,
    Response, Revision, Txn,
};
use kattu_kv::check::{self, CheckLimits, is_read_only};
use kattu_kv::command::TXN_DEPTH_MAX;
use kattu_native::reply::LISTED_MAX;
use kattu_node::command::{encode_kv, encode_put};
use std::time::Duration;
use tonic::Code;

/// A session of a cluster, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedSession {
    /// Its number: the log index at which it was registered.
    pub number: u64,
    /// How long no command or sign of life of it came, by the log's clock; at most a second too long.
    pub silent: Duration,
}

impl NativeClient {
    /// Writes one key.
    ///
    /// # Errors
    /// See [`Error`]; one of kind `Unknown` may have taken effect, or may still.
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<Response, Error> {
        self.command(&Command::Put(put(key, value))).await
    }

    /// The pair of one key, if there is one.
    ///
    /// # Errors
    /// See [`Error`]; a read has no effect in any case.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<KeyValue>, Error> {
        self.range(Range { keys: one(key), ..Range::default() })
            .await
            .map(|range| range.kvs.into_iter().next())
    }

    /// Reads keys, at the level of this client.
    ///
    /// # Errors
    /// See [`Error`]; a read has no effect in any case.
    pub async fn range(&self, range: Range) -> Result<RangeResult, Error> {
        let response = self.query(&Query::Range(range)).await?;
        range_of(response)
    }

    /// Deletes keys.
    ///
    /// # Errors
    /// See [`Error`]; one of kind `Unknown` may have taken effect, or may still.
    pub async fn delete_range(&self, delete: DeleteRange) -> Result<Response, Error> {
        self.command(&Command::DeleteRange(delete)).await
    }

    /// A transaction. One that only reads is a read, at the level of this client.
    ///
    /// # Errors
    /// See [`Error`]; one of kind `Unknown` may have taken effect, or may still, if it writes.
    pub async fn txn(&self, txn: Txn) -> Result<Response, Error> {
        match is_read_only(&txn) {
            true => self.query(&Query::Txn(txn)).await,
            false => self.command(&Command::Txn(txn)).await,
        }
    }

    /// Removes the history before a revision.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn compact(&self, revision: Revision) -> Result<Response, Error> {
        self.command(&Command::Compact(revision)).await
    }

    /// Any command. With all fields of a put, for example.
    ///
    /// # Errors
    /// See [`Error`]; one of kind `Unknown` may have taken effect, or may still.
    pub async fn command(&self, command: &Command) -> Result<Response, Error> {
        let answer = self.call(Course::WRITE, Ask::Write(bytes_of(command)?.into())).await?;
        Wanted::by_command(command).of(answer)
    }

    /// Any query.
    ///
    /// # Errors
    /// See [`Error`]; a read has no effect in any case.
    pub async fn query(&self, query: &Query) -> Result<Response, Error> {
        let bytes = bytes_of_query(query)?;
        let (level, course) = self.read_level();
        let answer = self.call(course, Ask::Read(level, bytes.into())).await?;
        Wanted::by_query(query).of(answer)
    }

    /// Whether the leader, or another member, answers at all.
    ///
    /// # Errors
    /// Of kind `Unreachable` or `Unknown` if none does.
    pub async fn ping(&self) -> Result<(), Error> {
        match self.call(Course::HARMLESS, Ask::Ping).await?.outcome {
            Outcome::Pong => Ok(()),
            _ => Err(unfitting()),
        }
    }

    /// The number of all sessions of the cluster, and those of numbers from one on: 1,000 at most, ascending. The next call
    /// begins behind the last of them.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_sessions(&self, from: u64, count: u32) -> Result<(u64, Vec<ListedSession>), Error> {
        let count = count.min(LISTED_MAX as u32);
        match self.call(Course::HARMLESS, Ask::Sessions { from, count }).await?.outcome {
            Outcome::Sessions { all, list } => {
                let listed = |(number, silent)| ListedSession { number, silent };
                Ok((all, list.into_iter().map(listed).collect()))
            }
            _ => Err(unfitting()),
        }
    }

    /// Ends the session of this number, for operators: its client is told that it has expired. Returns whether it was there;
    /// after an end that was repeated because its outcome was unknown, that it was not.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn expel_session(&self, number: u64) -> Result<bool, Error> {
        match self.call(Course::HARMLESS, Ask::Expel(number)).await?.outcome {
            Outcome::Named { gone, .. } => Ok(gone.is_empty()),
            _ => Err(unfitting()),
        }
    }
}

/// A put of a value, without options.
pub(crate) fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Put {
    Put { key: key.into(), value: value.into(), ..Put::default() }
}

/// The range of one key.
pub(crate) fn one(key: impl Into<Vec<u8>>) -> KeyRange {
    KeyRange { start: key.into(), end: Vec::new() }
}

/// The bytes of a command as the log will hold them, unless the store would refuse it whatever it holds. Transactions that are
/// nested too deep have no bytes; how many operations are allowed is the member's to say.
pub(crate) fn bytes_of(command: &Command) -> Result<Vec<u8>, Error> {
    let checked = match command {
        Command::Put(put) => check::check_put(put.as_ref()),
        Command::DeleteRange(delete) => check::check_delete_range(delete),
        Command::Txn(txn) => check::check_txn(txn, &ANY_SIZE),
        Command::Compact(_) => Ok(()),
    };
    checked.map_err(Error::Store)?;
    Ok(encode_kv(command))
}

/// The same of a put, whose key and value are copied from where they lie.
pub(crate) fn bytes_of_put(put: PutRef<'_>) -> Result<Vec<u8>, Error> {
    check::check_put(put).map_err(Error::Store)?;
    Ok(encode_put(put))
}

/// The bytes of a query, unless the store would refuse it whatever it holds.
pub(crate) fn bytes_of_query(query: &Query) -> Result<Vec<u8>, Error> {
    let checked = match query {
        Query::Range(range) => check::check_range(range),
        Query::Txn(txn) if !is_read_only(txn) => return Err(not_a_query()),
        Query::Txn(txn) => check::check_txn(txn, &ANY_SIZE),
    };
    checked.map_err(Error::Store)?;
    let mut bytes = Vec::with_capacity(64);
    query.encode(&mut bytes);
    Ok(bytes)
}

const ANY_SIZE: CheckLimits = CheckLimits { txn_ops_max: usize::MAX, txn_depth_max: TXN_DEPTH_MAX };

/// Which answer fits a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Put,
    DeleteRange,
    Txn,
    Compact,
    Range,
}

impl Wanted {
    pub(crate) fn by_command(command: &Command) -> Wanted {
        match command {
            Command::Put(_) => Wanted::Put,
            Command::DeleteRange(_) => Wanted::DeleteRange,
            Command::Txn(_) => Wanted::Txn,
            Command::Compact(_) => Wanted::Compact,
        }
    }

    pub(crate) fn by_query(query: &Query) -> Wanted {
        match query {
            Query::Range(_) => Wanted::Range,
            Query::Txn(_) => Wanted::Txn,
        }
    }

    /// The response in an answer, if it is of this kind.
    pub(crate) fn of(self, answer: Answer) -> Result<Response, Error> {
        match answer.outcome {
            Outcome::Done(Ok(response)) if self == Wanted::by_content(&response.answer) => Ok(response),
            _ => Err(unfitting()),
        }
    }

    fn by_content(content: &Content) -> Wanted {
        match content {
            Content::Put { .. } => Wanted::Put,
            Content::DeleteRange { .. } => Wanted::DeleteRange,
            Content::Txn { .. } => Wanted::Txn,
            Content::Compact => Wanted::Compact,
            Content::Range(_) => Wanted::Range,
        }
    }
}

pub(crate) fn range_of(response: Response) -> Result<RangeResult, Error> {
    match response.answer {
        Content::Range(range) => Ok(range),
        _ => Err(unfitting()),
    }
}

fn not_a_query() -> Error {
    let why = "a transaction that writes is a command, not a query";
    Error::Call(answer::failure(Kind::Refused, Code::InvalidArgument, why, ""))
}

/// A member that breaks the protocol.
pub(crate) fn unfitting() -> Error {
    Error::Call(answer::unfitting(""))
}
