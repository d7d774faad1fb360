//! Session: commands that are each executed exactly once, whatever is lost on the way.
//!
//! Rules: 1. A command gets its number when there is room in the window, and is on its way at once. Its answer comes when it
//!           comes: callers may have a window full of commands under way.
//!        2. After `timeout` without an answer a caller is told that the outcome is unknown. The command is repeated still.
//!        3. A session that is dropped without `close` gives no more signs of life, and expires at the members. Commands that
//!           were given to it are repeated until their answers come or their callers are told, and no longer.
//!
//! Source: [replication-protocols §10].
//! Knows nothing of: frames, sockets, how members execute a number once, what is sent again.

use crate::error::Error;
use crate::native::answer::{self, Outcome, Outcomes};
use crate::native::ask::Ask;
use crate::native::caller::Caller;
use crate::native::calls::{bytes_of, put, unfitting};
use crate::native::client::{Course, NativeClient};
use crate::native::live::Live;
use crate::native::pipe::Pipe;
use crate::native::pipeline::Pipeline;
use crate::native::window;
use kattu_kv::api::{Command, DeleteRange, Response, Revision, Txn};
use kattu_kv::sessions::{Order, SessionId};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The options of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// Strict: commands are executed in the order in which they were given. Any: in the order in which they arrive.
    pub order: Order,
    /// Most commands without an answer, `1..=4096`; beside it, 64 MiB of them. At the limit the next command waits.
    pub window: usize,
}

impl Default for SessionOptions {
    /// Strict, 1,024 commands.
    fn default() -> SessionOptions {
        SessionOptions { order: Order::Strict, window: 1024 }
    }
}

/// A session of a client. Each command that is given to it is executed exactly once, or its outcome is told to be unknown.
///
/// ```no_run
/// use kattu_client::{NativeClient, Options, SessionOptions};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = NativeClient::connect(["10.0.0.1:2379"], Options::default(), None)?;
/// let session = client.open_session(SessionOptions::default()).await?;
/// let first = session.put("a", "1").await?; // on its way
/// let second = session.put("a", "2").await?;
/// assert!(first.await?.revision < second.await?.revision);
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session {
    pub(crate) live: Arc<Live>,
}

/// A command under way in a session. It goes on also if this is dropped. As a future it yields the answer.
///
/// # Errors
/// As those of [`Session::command`], and of kind `Unknown` if the session ends first, or there is no answer in time.
#[derive(Debug)]
pub struct Pending {
    pub(crate) result: oneshot::Receiver<Outcomes>,
}

impl Future for Pending {
    type Output = Result<Response, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Response, Error>> {
        Pin::new(&mut self.result)
            .poll(context)
            .map(|result| result.unwrap_or_else(|_| Err(answer::runtime_ended())))
    }
}

impl NativeClient {
    /// Opens a session. Needs feature level 4 of the cluster.
    ///
    /// # Errors
    /// Those of sessions: there are too many. Failures: an opening of unknown outcome is repeated; a session that was opened
    /// twice is not used, and ends by itself within a minute.
    pub async fn open_session(&self, options: SessionOptions) -> Result<Session, Error> {
        let answer = self.call(Course::HARMLESS, Ask::Open(options.order)).await?;
        let Outcome::Opened { id, idle } = answer.outcome else { return Err(unfitting()) };
        let window = options.window.clamp(1, window::REQUESTS_MAX);
        let pipeline = Pipeline::new(id, options.order);
        let alive_due = Instant::now() + self.shared.alive.first_due(idle);
        let live = Live::new(self.shared.clone(), self.level().clone(), id, pipeline, window, alive_due);
        self.shared.alive.add(&self.shared, &live, idle);
        tokio::spawn(live.clone().steer());
        Ok(Session { live })
    }
}

impl Session {
    /// Its name at the members.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.live.id()
    }

    /// How often a command was sent that had been sent before, because its first answer did not come. The members have
    /// executed each of them once.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.live.repeated()
    }

    /// The client that has opened it, at its level.
    #[must_use]
    pub fn client(&self) -> NativeClient {
        self.live.client()
    }

    /// Writes one key. Returns as soon as the command is on its way.
    ///
    /// # Errors
    /// As [`Session::command`].
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<Pending, Error> {
        self.command(&Command::Put(put(key, value))).await
    }

    /// Deletes keys. Returns as soon as the command is on its way.
    ///
    /// # Errors
    /// As [`Session::command`].
    pub async fn delete_range(&self, delete: DeleteRange) -> Result<Pending, Error> {
        self.command(&Command::DeleteRange(delete)).await
    }

    /// A transaction. Returns as soon as the command is on its way. One that only reads is a command, too: it sees all
    /// commands of the session before it.
    ///
    /// # Errors
    /// As [`Session::command`].
    pub async fn txn(&self, txn: Txn) -> Result<Pending, Error> {
        self.command(&Command::Txn(txn)).await
    }

    /// Removes the history before a revision. Returns as soon as the command is on its way.
    ///
    /// # Errors
    /// As [`Session::command`].
    pub async fn compact(&self, revision: Revision) -> Result<Pending, Error> {
        self.command(&Command::Compact(revision)).await
    }

    /// Any command. Waits for room in the window, not for the answer. Commands go out in the order in which these calls get
    /// room: that of the calls.
    ///
    /// # Errors
    /// Certainly without effect: an error of the store that does not depend on what it holds; the session has ended; there was
    /// no room in time; the command is too large.
    pub async fn command(&self, command: &Command) -> Result<Pending, Error> {
        let (caller, result) = oneshot::channel();
        self.live.give(bytes_of(command)?, Caller::One(caller)).await?;
        Ok(Pending { result })
    }

    /// Many requests under way at once: commands in this session, reads by its client.
    #[must_use]
    pub fn pipe(&self) -> Pipe<'_> {
        Pipe::new(self.client(), Some(&self.live))
    }

    /// Waits until each command that was given to the session before has its answer.
    ///
    /// # Errors
    /// If the session has ended, or a caller was told that the outcome of its command is unknown.
    pub async fn flush(&self) -> Result<(), Error> {
        self.live.flush().await
    }

    /// Waits for all answers, then ends the session at the members. A command that another caller gives meanwhile may come too
    /// late: its outcome is then unknown.
    ///
    /// # Errors
    /// As [`Session::flush`]; or the end was not confirmed: then the session expires by itself.
    pub async fn close(&self) -> Result<(), Error> {
        self.flush().await?;
        self.live.close().await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.live.leave();
    }
}
