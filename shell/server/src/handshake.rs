//! Handshakes of TLS, a step at a time: each takes a fraction of a millisecond of the thread that the node lives on, and
//! thousands of clients may come at once.
//!
//! Rules: 1. Of all handshakes of a thread one takes a step between two looks at the sockets: heartbeats, answers and other
//!           clients have their turn in between. Those that wait take their steps in the order in which they asked, and those that
//!           have begun before those that have not.
//!        2. Whoever waits for its client holds nobody up, and nobody takes more than a stated number of steps.
//!        3. A client that does not speak TLS is told so in its own protocol.
//! Knows nothing of: certificates, deadlines.

use crate::listen::PREFACE;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// The first byte of a client that speaks TLS: a record with its part of the handshake. [RFC 8446 §5.1]
pub const RECORD_OF_HANDSHAKE: u8 = 22;

/// What a connection may keep encrypted that its socket does not take: a record. What waits beyond that waits where it is
/// counted.
const UNSENT_BYTES_MAX: usize = 16 << 10;

/// Steps of one handshake. Those of a client come in three pieces or four; one that dribbles would buy a turn with each byte.
const STEPS_MAX: u32 = 32;

thread_local! {
    /// Whose step it is.
    static STEP: Arc<Semaphore> = Arc::new(Semaphore::new(1));
    /// Which of those that have taken none yet stands among those that have: the others wait behind all of them, so that
    /// handshakes that have begun come to their end however many begin.
    static FIRST: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

type Turn = Pin<Box<dyn Future<Output = Result<[Option<OwnedSemaphorePermit>; 2], AcquireError>>>>;

fn turn(is_first: bool) -> Turn {
    Box::pin(async move {
        let first = match is_first {
            true => Some(FIRST.with(Arc::clone).acquire_owned().await?),
            false => None,
        };
        Ok([Some(STEP.with(Arc::clone).acquire_owned().await?), first])
    })
}

/// A future that takes a step when it is its turn.
struct InTurn<F> {
    future: F,
    turn: Option<Turn>,
    /// Steps taken.
    steps: u32,
}

impl<F> InTurn<F> {
    fn new(future: F) -> InTurn<F> {
        InTurn { future, turn: None, steps: 0 }
    }
}

/// None where it wants too many steps.
impl<F: Future + Unpin> Future for InTurn<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let InTurn { future, turn: asked, steps } = self.get_mut();
        let is_first = *steps == 0;
        let permits = ready!(asked.get_or_insert_with(|| turn(is_first)).as_mut().poll(context));
        *asked = None;
        *steps += 1;
        let stepped = Pin::new(future).poll(context);
        // The next one's turn comes when the thread has looked at its sockets again.
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

/// Does something that takes as long as a step, when it is its turn.
pub async fn in_turn<T>(step: impl FnOnce() -> T) -> T {
    let step = Box::pin(async move { step() });
    InTurn::new(step).await.expect("one step is not too many")
}

/// Carries out the handshake of a client that has just come.
///
/// # Errors
/// Why it failed; [`kattu_tls::refused`] has words for it.
pub async fn accept(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Box<TlsStream<TcpStream>>> {
    let accepted = InTurn::new(TlsAcceptor::from(config).accept(stream)).await;
    let mut stream = accepted.unwrap_or_else(|| Err(io::Error::other("it comes in too many pieces")))?;
    stream.get_mut().1.set_buffer_limit(Some(UNSENT_BYTES_MAX));
    Ok(Box::new(stream))
}

/// What a client is told that does not speak TLS where it must.
pub async fn refuse_plain(stream: &mut TcpStream, speaks_http2: bool) -> io::Result<()> {
    const WHY: &str = "this port speaks TLS: use https://";
    if !speaks_http2 {
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{WHY}\n",
            WHY.len() + 1
        );
        return finish(stream, answer.as_bytes()).await;
    }
    // Empty settings, then a farewell of no stream with the reason. [RFC 9113 §6.5, §6.8; INADEQUATE_SECURITY]
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    frames.extend([0, 0, 8 + WHY.len() as u8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12]);
    frames.extend(WHY.bytes());
    finish(stream, &frames).await
}

/// Writes it, and takes what was asked meanwhile: a socket that is closed over unread bytes resets, and the words are lost.
async fn finish(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    for _ in 0..64 {
        stream.readable().await?;
        match stream.try_read(&mut rest) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether these are the first bytes of HTTP/2, as far as they go.
pub fn begins_http2(first: &[u8]) -> bool {
    !first.is_empty() && PREFACE.starts_with(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use tokio::task::LocalSet;

    /// Something that takes two steps, and counts those of all in each round of the thread.
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
                tokio::task::spawn_local(InTurn::new(steps))
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
                async move { (InTurn::new(steps).await, in_round.get()) }
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
            // Steps that any of them has taken; and how many those were when each came to its end.
            let (all, ends) = (Rc::<Cell<u32>>::default(), Rc::new(std::cell::RefCell::new(Vec::new())));
            let tasks = (0..ALL).map(|_| {
                let steps = Steps { left: 2, in_round: all.clone(), most: Rc::default() };
                let (all, ends) = (all.clone(), ends.clone());
                tokio::task::spawn_local(async move {
                    assert_eq!(InTurn::new(steps).await, Some(()));
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
