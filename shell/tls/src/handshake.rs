//! Handshakes of TLS, a step at a time: each step takes a fraction of a millisecond of the node's thread, and thousands
//! of clients may connect at once.
//!
//! Rules: 1. Between two looks at the sockets, a thread takes at most one step of a client's handshake and one of a
//!           member's: heartbeats, answers and other clients have their turn in between. Waiting handshakes take their
//!           steps in the order of their requests, and begun ones before new ones.
//!        2. A handshake that waits for its client delays no other, and each takes at most a stated number of steps.
//!        3. However many clients connect, a member waits behind none of them.
//! Knows nothing of: certificates, deadlines.

use crate::refused::Refused;
use rustls::ServerConfig;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::{TlsAcceptor, TlsStream};

/// The first byte of a client that uses TLS: a record with its part of the handshake. [RFC 8446 §5.1]
pub const RECORD_OF_HANDSHAKE: u8 = 22;

/// Encrypted bytes that a connection may hold while its socket does not take them: a record. The rest waits where it is
/// counted.
const UNSENT_BYTES_MAX: usize = 16 << 10;

/// Steps of one handshake, at most. A client's part comes in three or four pieces; one that sends single bytes would
/// take a turn for each.
const STEPS_MAX: u32 = 32;

/// Handshakes that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Those on the ports for clients.
    Clients,
    /// Those on the ports for members.
    Members,
}

/// The turns of one line.
struct Turns {
    /// Held during a step.
    step: Arc<Semaphore>,
    /// Held by the one new handshake that waits among the begun ones: the other new ones wait behind all of these, so
    /// that begun handshakes finish however many begin.
    first: Arc<Semaphore>,
}

thread_local! {
    static TURNS: [Turns; 2] = [(); 2].map(|()| {
        let one = || Arc::new(Semaphore::new(1));
        Turns { step: one(), first: one() }
    });
}

type Turn = Pin<Box<dyn Future<Output = Result<[Option<OwnedSemaphorePermit>; 2], AcquireError>>>>;

fn turn(line: Line, is_first: bool) -> Turn {
    let (step, first) = TURNS.with(|turns| {
        let turns = &turns[line as usize];
        (turns.step.clone(), turns.first.clone())
    });
    Box::pin(async move {
        let first = match is_first {
            true => Some(first.acquire_owned().await?),
            false => None,
        };
        Ok([Some(step.acquire_owned().await?), first])
    })
}

/// A future that takes a step when it is its turn.
struct InTurn<F> {
    line: Line,
    future: F,
    turn: Option<Turn>,
    /// Steps taken.
    steps: u32,
}

impl<F> InTurn<F> {
    fn new(line: Line, future: F) -> InTurn<F> {
        InTurn { line, future, turn: None, steps: 0 }
    }
}

/// `None` if it needs too many steps.
impl<F: Future + Unpin> Future for InTurn<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let InTurn { line, future, turn: asked, steps } = self.get_mut();
        let is_first = *steps == 0;
        let permits = ready!(asked.get_or_insert_with(|| turn(*line, is_first)).as_mut().poll(context));
        *asked = None;
        *steps += 1;
        let stepped = Pin::new(future).poll(context);
        // The next handshake's turn comes when the thread has looked at its sockets again.
        tokio::task::spawn_local(async move {
            tokio::task::yield_now().await;
            drop(permits);
        });
        match stepped {
            Poll::Pending if STEPS_MAX <= *steps => Poll::Ready(None),
            stepped => stepped.map(Some),
        }
    }
}

/// Runs something that takes as long as a step, in turn.
pub async fn in_turn<T>(line: Line, step: impl FnOnce() -> T) -> T {
    let step = Box::pin(async move { step() });
    InTurn::new(line, step).await.expect("one step is not too many")
}

/// Checks a peer again, in turn, whenever the rules may have changed; returns the reason when it is refused. `rejudged`
/// is as of before the first check. [fault-model SE3]
pub async fn until_refused(
    line: Line,
    mut rejudged: watch::Receiver<u64>,
    judge: impl Fn() -> Result<(), Refused>,
) -> Refused {
    while rejudged.changed().await.is_ok() {
        if let Err(why) = in_turn(line, &judge).await {
            return why;
        }
    }
    std::future::pending().await
}

/// Carries out the handshake of a new connection. Must be awaited inside a `LocalSet`.
///
/// # Errors
/// Why it failed; [`crate::refused`] has words for it.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    line: Line,
    stream: S,
    config: Arc<ServerConfig>,
) -> io::Result<Box<TlsStream<S>>> {
    let accepted = InTurn::new(line, TlsAcceptor::from(config).accept(stream)).await;
    let mut stream =
        accepted.unwrap_or_else(|| Err(io::Error::other("the handshake comes in too many pieces")))?;
    stream.get_mut().1.set_buffer_limit(Some(UNSENT_BYTES_MAX));
    Ok(Box::new(stream.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use tokio::task::LocalSet;

    /// A future that takes two steps, and counts the steps of all of them in each round of the thread.
    struct Steps {
        left: u32,
        in_round: Rc<Cell<u32>>,
        most: Rc<Cell<u32>>,
    }

    impl Future for Steps {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            self.in_round.set(self.in_round.get() + 1);
            self.most.set(self.most.get().max(self.in_round.get()));
            if self.left == 0 {
                return Poll::Ready(());
            }
            self.left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }

    #[test]
    fn one_step_of_all_handshakes_is_taken_between_two_looks_at_the_sockets() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let (in_round, most) = (Rc::<Cell<u32>>::default(), Rc::<Cell<u32>>::default());
            let rounds = Rc::<Cell<u32>>::default();
            let clock = {
                let (in_round, rounds) = (in_round.clone(), rounds.clone());
                tokio::task::spawn_local(async move {
                    loop {
                        in_round.set(0);
                        rounds.set(rounds.get() + 1);
                        tokio::task::yield_now().await;
                    }
                })
            };
            let all = (0..100).map(|_| {
                let steps = Steps { left: 2, in_round: in_round.clone(), most: most.clone() };
                tokio::task::spawn_local(InTurn::new(Line::Clients, steps))
            });
            for one in all.collect::<Vec<_>>() {
                one.await.expect("it ends");
            }
            clock.abort();
            assert!(most.get() <= 2, "{} steps between two looks", most.get());
            assert!(100 < rounds.get(), "{} rounds", rounds.get());
        });
    }

    #[test]
    fn a_handshake_that_never_ends_takes_so_many_steps_and_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let taken = |left| {
                let steps = Steps { left, in_round: Rc::default(), most: Rc::default() };
                let in_round = steps.in_round.clone();
                async move { (InTurn::new(Line::Clients, steps).await, in_round.get()) }
            };
            assert_eq!(taken(STEPS_MAX - 1).await, (Some(()), STEPS_MAX));
            assert_eq!(taken(STEPS_MAX).await, (None, STEPS_MAX));
        });
    }

    #[test]
    fn a_handshake_that_has_begun_ends_before_the_last_of_many_has_begun() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            const ALL: u32 = 100;
            // The steps that all of them have taken; and that number when each came to its end.
            let (all, ends) = (Rc::<Cell<u32>>::default(), Rc::new(std::cell::RefCell::new(Vec::new())));
            let tasks = (0..ALL).map(|_| {
                let steps = Steps { left: 2, in_round: all.clone(), most: Rc::default() };
                let (all, ends) = (all.clone(), ends.clone());
                tokio::task::spawn_local(async move {
                    assert_eq!(InTurn::new(Line::Clients, steps).await, Some(()));
                    ends.borrow_mut().push(all.get());
                })
            });
            for one in tasks.collect::<Vec<_>>() {
                one.await.expect("it ends");
            }
            let first = ends.borrow()[0];
            assert!(first < ALL, "the first came to its end when {first} steps had been taken");
        });
    }
}
