//! Connection: many requests under way on one socket, which one task owns.
//!
//! ```text
//!  callers ─ send ─▶ next frame ─┐        ┌─ frame ─▶ socket
//!                                ├─ task ─┤
//!  callers ◀─ listeners ─────────┘        └◀─ frames ─ socket
//! ```
//! Rules: 1. A caller writes its requests into the next frame itself. All that is there when the task runs goes out at once,
//!           as far as the member's limits allow: a frame's bytes, and requests under way. What is beyond them waits. There is
//!           no timer: under load a frame fills while the one before is written.
//!        2. An answer reaches its listener by the name of its request, in whatever order answers come. Answers that came
//!           together, one behind the other, to one listener are heard together. A weak answer leaves its listener in place.
//!        3. When the connection ends, each request ends. One whose frame was not given to the socket whole was not sent:
//!           a member judges no frame before its last byte. Any other may have been carried out.
//!        4. A member that sends nothing for a while, with requests under way, is pinged. One that does not even answer that
//!           within [`Limits::silence`] is as good as gone. So a request may take long, and a dead member is left soon.
//!        5. The connection ends when its last handle is dropped.
//!
//! Knows nothing of: addresses, TLS, what requests mean, sessions.

use crate::failure::Failure;
use crate::native::answer::{self, Answer, Fate, Lost, Why};
use crate::native::ask::{Ask, bytes_around};
use crate::native::listener::{Herald, Listener};
use crate::native::outbox::{Out, Outbox, Place};
use kattu_native::frame::{FrameReader, FrameWriter, Message, Messages};
use kattu_native::handshake::Welcome;
use kattu_native::reply::{Reply, is_final};
use std::collections::VecDeque;
use std::future::Future;
use std::mem::{swap, take};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Room for what is read at once: some thousand answers to puts.
const INPUT_BYTES: usize = 64 << 10;

/// What a connection keeps to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Without a byte from the member for so long, while requests are under way, the connection is over; after half of it
    /// the member is pinged.
    pub(crate) silence: Duration,
}

/// A handle; clones share the connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    outbox: Arc<Outbox>,
    welcome: Welcome,
    /// As the user wrote it.
    endpoint: String,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.outbox.end("the client has closed the connection".into());
    }
}

impl Connection {
    /// Takes over a socket on which both sides have said hello. `read` are bytes that came behind the welcome.
    pub(crate) fn start(
        socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        welcome: Welcome,
        read: Vec<u8>,
        endpoint: &str,
        limits: Limits,
    ) -> Connection {
        let outbox = Arc::new(Outbox::new(&welcome));
        let now = Instant::now();
        let task = Task {
            socket,
            outbox: outbox.clone(),
            writer: FrameWriter::new(crc32c::crc32c_append),
            frame: Vec::new(),
            written: 0,
            in_frame: Vec::new(),
            reader: FrameReader::new(crc32c::crc32c_append, welcome.answer_bytes_max),
            filled: read.len(),
            input: read,
            listeners: VecDeque::new(),
            herald: Herald::default(),
            limits,
            heard_at: now,
            silence: Box::pin(tokio::time::sleep_until(now + limits.silence / 2)),
            has_pinged: false,
            is_asked: false,
        };
        tokio::spawn(task.run());
        Connection(Arc::new(Handle { outbox, welcome, endpoint: endpoint.to_string() }))
    }

    pub(crate) fn welcome(&self) -> &Welcome {
        &self.0.welcome
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.0.endpoint
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.outbox.lock().ended.is_none()
    }

    /// Why the member would not read a request with so many bytes of a command or a query.
    pub(crate) fn refuses(&self, bytes: usize) -> Option<Failure> {
        let (whole, most) = (bytes_around(bytes), self.0.welcome.frame_bytes_max);
        (most as usize).lt(&whole).then(|| answer::too_large(whole, most, &self.0.endpoint))
    }

    /// Lets the caller add requests. Their listeners hear each of them out; nothing is added if the connection is over already.
    pub(crate) fn send(&self, add: impl FnOnce(&mut Out)) -> Result<(), Why> {
        let waker = {
            let mut out = self.0.outbox.lock();
            if let Some(why) = &out.ended {
                return Err(why.clone());
            }
            add(&mut out);
            out.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Adds one request. Returns where it waits, if it is beyond the limits.
    pub(crate) fn ask(&self, ask: Ask<'_>, listener: Listener) -> Result<Option<Place>, Why> {
        let mut number = None;
        self.send(|out| number = out.add(ask, listener))?;
        Ok(number.map(|number| self.0.outbox.place(number)))
    }
}

struct Task<S> {
    socket: S,
    outbox: Arc<Outbox>,
    /// Its memory takes turns with that of the next frame.
    writer: FrameWriter,
    /// The frame that is being written, how much of it was given to the socket, and the names of its requests.
    frame: Vec<u8>,
    written: usize,
    in_frame: Vec<u64>,
    reader: FrameReader,
    /// Bytes read, up to `filled`.
    input: Vec<u8>,
    filled: usize,
    /// Of the answers in a frame that are not read yet.
    listeners: VecDeque<Listener>,
    herald: Herald,
    limits: Limits,
    /// When the member last sent something, or the first of the requests under way was sent.
    heard_at: Instant,
    silence: Pin<Box<Sleep>>,
    /// Since then.
    has_pinged: bool,
    /// Requests are under way.
    is_asked: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Task<S> {
    async fn run(mut self) {
        if let Err(why) = self.hear() {
            return self.end(why.into());
        }
        let why = std::future::poll_fn(|context| self.poll(context)).await;
        self.end(why);
    }

    /// Runs until nothing moves; `Ready` is the end of the connection.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Why> {
        let moved = |moved: Poll<Result<(), String>>| match moved {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Pending => Ok(false),
            Poll::Ready(Err(why)) => Err(Why::from(why)),
        };
        loop {
            // Answers first: they make room for requests, and their callers may have further ones.
            let step = moved(self.poll_read(context)).and_then(|has_read| {
                self.take_frame(context)?;
                Ok(has_read | moved(self.poll_write(context))?)
            });
            match step {
                Ok(true) => {}
                Ok(false) => match self.poll_silence(context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(why)) => return Poll::Ready(why),
                    Poll::Pending => return Poll::Pending,
                },
                Err(why) => return Poll::Ready(why),
            }
        }
    }

    /// `Ok` is a ping that is to be sent.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Why>> {
        let limit = self.limits.silence;
        while self.is_asked && self.silence.as_mut().poll(context).is_ready() {
            let (ping_at, over_at) = (self.heard_at + limit / 2, self.heard_at + limit);
            let now = Instant::now();
            if over_at <= now {
                let why = format!("the member has sent nothing for {limit:?}, not even to a ping");
                return Poll::Ready(Err(why.into()));
            }
            if now < ping_at {
                self.silence.as_mut().reset(ping_at);
                continue;
            }
            self.silence.as_mut().reset(over_at);
            if !std::mem::replace(&mut self.has_pinged, true) {
                self.outbox.lock().ping();
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Takes the next frame if the one before is written. Whatever is added from now on wakes the task.
    fn take_frame(&mut self, context: &Context<'_>) -> Result<(), Why> {
        let mut out = self.outbox.lock();
        if let Some(why) = &out.ended {
            return Err(why.clone());
        }
        match &mut out.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        if self.written < self.frame.len() {
            return Ok(());
        }
        out.fill();
        self.is_asked = out.under_way.len() > 0;
        if out.frame.is_empty() {
            return Ok(());
        }
        if take(&mut out.begins) {
            (self.heard_at, self.has_pinged) = (Instant::now(), false);
        }
        swap(&mut out.frame, &mut self.writer);
        swap(&mut out.names, &mut self.in_frame);
        out.names.clear();
        drop(out);
        self.writer.swap_into(&mut self.frame);
        self.written = 0;
        Ok(())
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        if self.input.len() - self.filled < INPUT_BYTES / 2 {
            let room = (2 * self.filled).max(INPUT_BYTES);
            self.input.resize(room, 0);
        }
        let mut into = ReadBuf::new(&mut self.input[self.filled..]);
        let read = match Pin::new(&mut self.socket).poll_read(context, &mut into) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(format!("the connection broke: {error}"))),
            Poll::Ready(Ok(())) => into.filled().len(),
        };
        if read == 0 {
            return Poll::Ready(Err("the member has closed the connection".to_string()));
        }
        self.filled += read;
        (self.heard_at, self.has_pinged) = (Instant::now(), false);
        Poll::Ready(self.hear())
    }

    /// Gives each answer that was read whole to its listener.
    fn hear(&mut self) -> Result<(), String> {
        let mut at = 0;
        let result = loop {
            match self.reader.next(&self.input[at..self.filled]) {
                Ok(Some((messages, length))) => {
                    let heard = hear_frame(messages, &self.outbox, &mut self.listeners, &mut self.herald);
                    if heard.is_err() {
                        break heard;
                    }
                    at += length;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(format!("the member sent {error}")),
            }
        };
        self.herald.end();
        result?;
        if at == 0 {
            return Ok(()); // a large answer comes in many pieces
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        if self.filled == 0 && INPUT_BYTES < self.input.len() {
            self.input = Vec::new(); // a large answer was the exception
        }
        Ok(())
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        let broke = |error: std::io::Error| format!("the connection broke: {error}");
        if self.written == self.frame.len() {
            // Bytes may wait inside TLS.
            return match Pin::new(&mut self.socket).poll_flush(context) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(broke(error))),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            };
        }
        match Pin::new(&mut self.socket).poll_write(context, &self.frame[self.written..]) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(0)) => Poll::Ready(Err("the connection takes no more bytes".to_string())),
            Poll::Ready(Ok(count)) => {
                self.written += count;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(broke(error))),
        }
    }

    /// Tells each request what the end of the connection means for it.
    fn end(mut self, why: Why) {
        let why = self.outbox.end(why);
        let lost = |fate| Err(Lost { fate, why: why.clone() });
        let (unsent, sent, waiting) = {
            let mut out = self.outbox.lock();
            let in_frame = if self.written < self.frame.len() { &self.in_frame[..] } else { &[] };
            let names = in_frame.iter().chain(&take(&mut out.names)).copied().collect::<Vec<_>>();
            let unsent: Vec<_> = names.into_iter().filter_map(|name| out.under_way.take(name)).collect();
            let sent: Vec<_> = out.under_way.drain().collect();
            (unsent, sent, take(&mut out.waiting))
        };
        unsent.into_iter().for_each(|listener| self.herald.tell(listener, lost(Fate::Unsent)));
        self.listeners
            .into_iter()
            .chain(sent)
            .for_each(|listener| self.herald.tell(listener, lost(Fate::Sent)));
        waiting.into_iter().for_each(|waiting| self.herald.tell(waiting.listener, lost(Fate::Unsent)));
        self.herald.end();
    }
}

/// Tells the listeners of the answers in a frame, in order, up to an answer that is wrong; the others are left.
fn hear_frame(
    messages: Messages<'_>,
    outbox: &Outbox,
    listeners: &mut VecDeque<Listener>,
    herald: &mut Herald,
) -> Result<(), String> {
    {
        let mut out = outbox.lock();
        let mut named = |message: Message<'_>| match is_final(&message) {
            true => out.under_way.take(message.request),
            false => out.under_way.get_mut(message.request).and_then(|listener| listener.again()),
        };
        listeners.extend(messages.clone().map_while(|message| message.ok().and_then(&mut named)));
    }
    for message in messages {
        let message = message.map_err(|error| format!("the member sent {error}"))?;
        let reply = Reply::read(&message).map_err(|error| format!("an answer: {error}"))?;
        let answer = Answer::of(reply).map_err(|error| format!("an answer: {}", error.0))?;
        let Some(listener) = listeners.pop_front() else {
            return Err(format!("an answer to request {}, which was not made", message.request));
        };
        herald.tell(listener, Ok(answer));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::answer::Outcome;
    use crate::native::listener::{Heard, Listen};
    use kattu_native::reply;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::oneshot;

    const SILENCE: Duration = Duration::from_secs(6);

    /// A connection, and the member's end of it, which takes so many bytes ahead.
    fn connection(ahead: usize, requests_max: u32) -> (Connection, DuplexStream) {
        let (socket, member) = tokio::io::duplex(ahead);
        let welcome = Welcome {
            frame_bytes_max: 1 << 20,
            answer_bytes_max: 1 << 20,
            requests_max,
            ..Welcome::default()
        };
        (Connection::start(socket, welcome, Vec::new(), "here", Limits { silence: SILENCE }), member)
    }

    fn ask(connection: &Connection, ask: Ask<'_>) -> oneshot::Receiver<Result<Answer, Lost>> {
        let (caller, answer) = oneshot::channel();
        connection.ask(ask, Listener::Call(caller)).expect("it is open");
        answer
    }

    /// The names and kinds of the next frame.
    async fn heard(member: &mut DuplexStream) -> Vec<(u64, u8)> {
        let mut frame = vec![0; kattu_native::frame::FRAME_HEADER];
        member.read_exact(&mut frame).await.expect("a header");
        let length = u32::from_le_bytes(frame[..4].try_into().expect("four bytes")) as usize;
        let header = frame.len();
        frame.resize(header + length, 0);
        member.read_exact(&mut frame[header..]).await.expect("a frame");
        let reader = FrameReader::new(crc32c::crc32c_append, 1 << 20);
        let (messages, _) = reader.next(&frame).expect("a frame").expect("whole");
        messages
            .map(|message| message.expect("a message"))
            .map(|message| (message.request, message.kind))
            .collect()
    }

    async fn answer(member: &mut DuplexStream, names: &[u64]) {
        let mut writer = FrameWriter::new(crc32c::crc32c_append);
        for name in names {
            Reply { index: *name, strong: 0, outcome: reply::Outcome::Done(&[]) }.write(*name, &mut writer);
        }
        member.write_all(&writer.take()).await.expect("it is open");
    }

    #[tokio::test]
    async fn what_is_queued_together_goes_out_in_one_frame_and_each_answer_to_its_own_request() {
        let (connection, mut member) = connection(1 << 16, 100);
        let waiting: Vec<_> = (0..3).map(|_| ask(&connection, Ask::Ping)).collect();
        let names: Vec<u64> = heard(&mut member).await.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 3);
        answer(&mut member, &[names[2], names[0], names[1]]).await;
        for (name, waits) in names.iter().zip(waiting) {
            let answer = waits.await.expect("a result").expect("an answer");
            assert!(answer.index == *name && matches!(answer.outcome, Outcome::Pong));
        }
    }

    #[tokio::test]
    async fn a_frame_that_did_not_leave_whole_was_not_sent_and_one_that_did_may_have_been_carried_out() {
        let (connection, mut member) = connection(128, 100);
        let first = ask(&connection, Ask::Ping);
        assert_eq!(heard(&mut member).await.len(), 1);
        // It is larger than what the member's end takes.
        let second = ask(&connection, Ask::Write(vec![0; 1000].into()));
        member.read_exact(&mut [0; 300]).await.expect("some of it");
        let third = ask(&connection, Ask::Ping);
        drop(member);
        for (waits, was_sent) in [(first, true), (second, false), (third, false)] {
            let lost = waits.await.expect("a result").expect_err("it is lost");
            assert_eq!(lost.was_sent(), was_sent, "{lost:?}");
        }
        assert!(!connection.is_open());
        assert!(connection.send(|_| panic!("it is over")).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_member_is_pinged_and_one_that_does_not_answer_even_that_is_given_up() {
        let (connection, mut member) = connection(1 << 16, 2);
        let begin = Instant::now();
        let waits = ask(&connection, Ask::Ping);
        let more = ask(&connection, Ask::Ping);
        let first = heard(&mut member).await;
        assert_eq!(first.len(), 1, "one place is kept for a ping of the connection");
        let ping = heard(&mut member).await;
        assert_eq!((ping.len(), begin.elapsed()), (1, SILENCE / 2));
        answer(&mut member, &[ping[0].0]).await;
        // The answer counts as a sign of life: it is pinged again, and then does not answer.
        assert_eq!(heard(&mut member).await.len(), 1);
        assert_eq!(begin.elapsed(), SILENCE);
        let lost = waits.await.expect("a result").expect_err("it is given up");
        assert!(
            lost.was_sent() && begin.elapsed() == SILENCE * 3 / 2,
            "{lost:?} after {:?}",
            begin.elapsed()
        );
        assert!(!more.await.expect("a result").expect_err("it was never sent").was_sent());
    }

    #[tokio::test]
    async fn beside_an_answer_that_is_none_those_before_it_are_heard_and_all_others_are_lost() {
        let (connection, mut member) = connection(1 << 16, 100);
        let waiting: Vec<_> = (0..4).map(|_| ask(&connection, Ask::Ping)).collect();
        let names: Vec<u64> = heard(&mut member).await.into_iter().map(|(name, _)| name).collect();
        let mut writer = FrameWriter::new(crc32c::crc32c_append);
        // No request is answered so.
        let outcomes = [reply::Outcome::Done(&[]), reply::Outcome::Committed, reply::Outcome::Done(&[])];
        for (name, outcome) in names.iter().zip(outcomes) {
            Reply { index: 0, strong: 0, outcome }.write(*name, &mut writer);
        }
        member.write_all(&writer.take()).await.expect("it is open");
        let mut results = Vec::new();
        for waits in waiting {
            results.push(waits.await.expect("a result").map_err(|lost| lost.was_sent()));
        }
        assert!(matches!(results[..], [Ok(_), Err(true), Err(true), Err(true)]), "{results:?}");
    }

    #[derive(Debug)]
    struct Ears(Mutex<Vec<Vec<u64>>>);

    impl Listen for Ears {
        fn heard(self: Arc<Self>, heard: &mut Vec<Heard>) {
            self.0.lock().expect("no panic").push(heard.drain(..).map(|heard| heard.number).collect());
        }
    }

    #[tokio::test]
    async fn a_listener_hears_together_what_came_together() {
        let (connection, mut member) = connection(1 << 16, 100);
        let ears = [(); 2].map(|()| Arc::new(Ears(Mutex::default())));
        let add = |out: &mut Out| {
            for (number, at) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 0)] {
                out.add(Ask::Ping, Listener::Of(ears[at].clone(), number, 0));
            }
        };
        connection.send(add).expect("it is open");
        let last = ask(&connection, Ask::Ping);
        let names: Vec<u64> = heard(&mut member).await.into_iter().map(|(name, _)| name).collect();
        answer(&mut member, &names).await;
        last.await.expect("a result").expect("an answer");
        let heard = ears.map(|ears| ears.0.lock().expect("no panic").clone());
        assert_eq!(heard, [vec![vec![1, 2], vec![5]], vec![vec![3, 4]]]);
    }

    #[tokio::test]
    async fn an_answer_to_no_request_or_a_damaged_one_ends_the_connection() {
        let (connection, mut member) = connection(1 << 16, 100);
        let waits = ask(&connection, Ask::Ping);
        heard(&mut member).await;
        answer(&mut member, &[99]).await;
        let lost = waits.await.expect("a result").expect_err("it is lost");
        assert!(lost.was_sent() && lost.why.contains("not made"), "{lost:?}");
        assert!(!connection.is_open());
    }
}
