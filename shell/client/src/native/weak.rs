//! Weak: writes of a session whose caller goes on when a quorum has received them, in memory, before they are committed.
//!
//! Rules: 1. The caller is told once more if the write is lost after that, or its fate cannot be learnt: by the session's
//!           callback, without which there are no weak writes.
//!        2. As long as the session lives nothing is lost: it keeps each command until it is done, and sends it again, in order,
//!           to the next leader.
//!        3. A command of the session sees all before it, weak ones too: so a read in the session sees its own writes.
//!
//! Source: [replication-protocols §4.6; fault-model WK1–WK10].
//! Knows nothing of: frames, sockets, how members count a quorum.

use crate::error::Error;
use crate::failure::Kind;
use crate::native::answer;
use crate::native::caller::Caller;
use crate::native::calls::{bytes_of, one, put, range_of};
use crate::native::session::Session;
use kattu_kv::api::{Answer, Command, DeleteRange, KeyValue, Operation, Range, RangeResult, Response, Txn};
use kattu_raft::EntryId;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tonic::Code;

/// How far a weak write is when its caller goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// A quorum has received it as this entry, in memory. It may still be lost if the leader is, and this session with it.
    Received(EntryId),
    /// It is done: committed and executed, with this answer. So it is at members whose budget is used up, or that do not lead.
    Done(Response),
}

/// A write that was weakly accepted, and was not done then.
#[derive(Clone, Debug)]
pub struct LostWrite {
    /// Its number in the session.
    pub number: u64,
    /// The write; it may be given to another session.
    pub command: Command,
    /// Why; of kind `Refused` if it certainly has no effect, now and later, and of kind `Unknown` if that cannot be learnt.
    pub error: Error,
}

/// What is done with a lost write.
pub(crate) type OnLost = Box<dyn Fn(LostWrite) + Send + Sync>;

/// A weak write under way. It goes on also if this is dropped. As a future it yields how far the write is.
///
/// # Errors
/// As those of [`Pending`](crate::Pending): it was not accepted, and no callback follows.
#[derive(Debug)]
pub struct PendingWeak {
    result: oneshot::Receiver<Result<Accepted, Error>>,
}

impl PendingWeak {
    pub(crate) fn new(result: oneshot::Receiver<Result<Accepted, Error>>) -> PendingWeak {
        PendingWeak { result }
    }
}

impl Future for PendingWeak {
    type Output = Result<Accepted, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Accepted, Error>> {
        Pin::new(&mut self.result)
            .poll(context)
            .map(|result| result.unwrap_or_else(|_| Err(answer::runtime_ended())))
    }
}

impl Session {
    /// Says what is done with each write that was weakly accepted and is lost after that, or whose fate cannot be learnt because
    /// the session has ended, or was dropped with writes under way. It is called at most once for each, from the session's own
    /// task: it must not wait. Returns whether it is taken: the first one is.
    pub fn on_lost(&self, call: impl Fn(LostWrite) + Send + Sync + 'static) -> bool {
        self.live.on_lost(Box::new(call))
    }

    /// Writes one key; its caller goes on when a quorum has received it. Returns as soon as the command is on its way. A window
    /// full of commands that are not done makes the next one wait. [`Session::flush`] waits until all are done.
    ///
    /// # Errors
    /// As [`Session::command`]; and of kind `Refused` if the session is not strict, or has no [`Session::on_lost`].
    pub async fn put_weak(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<PendingWeak, Error> {
        self.weak(&Command::Put(put(key, value))).await
    }

    /// Deletes one key; otherwise as [`Session::put_weak`].
    ///
    /// # Errors
    /// As [`Session::put_weak`].
    pub async fn delete_weak(&self, key: impl Into<Vec<u8>>) -> Result<PendingWeak, Error> {
        self.weak(&Command::DeleteRange(DeleteRange { keys: one(key), prev_kv: false })).await
    }

    async fn weak(&self, command: &Command) -> Result<PendingWeak, Error> {
        let (caller, result) = oneshot::channel();
        self.live.give_weak(bytes_of(command)?, Caller::Weak(caller)).await?;
        Ok(PendingWeak::new(result))
    }

    /// The pair of one key, if there is one, after all commands that were given to the session before, weak ones too. It is a
    /// command of the session: it goes through the log, once. Other readers see no weak write before it is done.
    ///
    /// # Errors
    /// As [`Session::command`], and those of its outcome.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<KeyValue>, Error> {
        let range = self.range(Range { keys: one(key), ..Range::default() }).await?;
        Ok(range.kvs.into_iter().next())
    }

    /// Reads keys after all commands that were given to the session before; otherwise as [`Session::get`].
    ///
    /// # Errors
    /// As [`Session::get`].
    pub async fn range(&self, range: Range) -> Result<RangeResult, Error> {
        let reads = Txn { success: vec![Operation::Range(range)], ..Txn::default() };
        let response = self.txn(reads).await?.await?;
        let Answer::Txn { mut answers, .. } = response.answer else {
            return Err(answer::unfitting("").into());
        };
        let answer = answers.pop().ok_or_else(|| answer::unfitting(""))?;
        range_of(Response { revision: response.revision, answer })
    }
}

/// Weak writes need more than this session has.
pub(crate) fn needs(what: &str) -> Error {
    answer::failure(Kind::Refused, Code::FailedPrecondition, what, "").into()
}
