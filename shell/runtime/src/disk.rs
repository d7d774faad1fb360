//! Log I/O: on the driver's thread or on one of its own, and how a log moves from one to the other.
//!
//! Inline, a sync blocks the driver; what arrives meanwhile is the next group, and no thread is woken for it. On its
//! own thread the driver goes on handling messages during a sync, at the price of a hand-off there and back for every
//! group. So a log goes to a thread when a sync took longer than a heartbeat, and comes home when the disk is well again:
//! a leader with a slow disk commits on two others' disks meanwhile. When it moves is decided in `shell/member`
//! (`log_moves`). [fault-model F16, F17; decision 32]
//!
//! What a peer lacks, or a start has to apply again, is read beside the log, on either thread ([`crate::readings`]).
//!
//! Rules: completions come in the order of their orders, on either thread, except readings; a log that is moving gets no
//!        orders. A failed write or sync ends the process: the contents of the disk are unknown, and
//!        only a restart reads them back. [fault-model ST3, F11]
//! Knows nothing of: what records mean, when they are due.

use crate::delays::Delays;
use crate::metrics::Metrics;
use crate::readings::{Reading, Readings};
use crate::report::{self, Cause};
use crate::watchdog::{Watchdog, Work};
use kattu_member::log::{Completion, FULL_RETRY, LogSpace, Note, SegmentJob, Timed};
use kattu_member::log_moves::{Absence, Patience, WELL_SYNCS};
use kattu_member::log_orders::{Order, Orders, Turn};
use kattu_member::tuning::Threading;
use kattu_raft::{Duration, Fetch, GroupId, LogRecord, Timing};
use kattu_wal::{Prepared, Wal, WalError};
use std::collections::VecDeque;
use std::sync::mpsc as sync_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::{Notify, mpsc};

/// Longest pause between two pieces of work of the thread that makes a segment, so that it finishes.
const SEGMENT_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The log, with a thread of its own or without.
pub(crate) struct Disk {
    place: Place,
    /// A segment has been made ready beside the log, or could not be.
    ready: Arc<Notify>,
    /// When the log moves. `None`: it stays.
    patience: Option<Patience>,
    /// Most entries in one sync.
    entries_max: usize,
    /// Results from while the log was on its way home, oldest first.
    done: VecDeque<Completion>,
    /// Readings beside the log. `None`: there is no thread for them, and the log itself reads.
    readings: Option<mpsc::UnboundedReceiver<Reading>>,
    metrics: Arc<Metrics>,
}

enum Place {
    Inline(Box<Log>),
    Thread(Away),
    /// Between the two, only inside a move.
    Nowhere,
}

/// A log on a thread of its own.
struct Away {
    thread: LogThread,
    completions: mpsc::UnboundedReceiver<Completion>,
    absence: Absence,
}

/// The log's thread. Dropping it waits for its end, so that the directory is free for its next user.
struct LogThread {
    /// The thread ends with the last of these.
    orders: Option<sync_mpsc::Sender<Order>>,
    thread: Option<JoinHandle<Option<Box<Log>>>>,
}

impl LogThread {
    fn order(&self, order: Order) {
        let orders = self.orders.as_ref().expect("only its drop takes it");
        orders.send(order).expect("a panic on the log thread aborts");
    }

    /// Ends the thread, which is idle, and returns the log.
    fn give_back(mut self) -> Box<Log> {
        self.order(Order::Return);
        let thread = self.thread.take().expect("only its drop takes it");
        thread.join().expect("a panic on the log thread aborts").expect("it was ordered to give the log back")
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there has ended the process
        }
    }
}

impl Away {
    fn start(log: Box<Log>) -> Result<Away, (std::io::Error, Box<Log>)> {
        let (orders, inbox) = sync_mpsc::channel();
        let (report, completions) = mpsc::unbounded_channel();
        // If no thread can be had, the log must not be lost.
        let log = Arc::new(Mutex::new(Some(log)));
        let theirs = log.clone();
        let take = |log: &Mutex<Option<Box<Log>>>| log.lock().unwrap_or_else(PoisonError::into_inner).take();
        let work = move || {
            let log = take(&theirs).expect("it is there until it is taken");
            run(log, &inbox, &report)
        };
        match std::thread::Builder::new().name("kattu-log".into()).spawn(work) {
            Ok(thread) => {
                let thread = LogThread { orders: Some(orders), thread: Some(thread) };
                Ok(Away { thread, completions, absence: Absence::default() })
            }
            Err(error) => Err((error, take(&log).expect("the thread has not taken it"))),
        }
    }

    fn order(&mut self, order: Order) {
        if let Some(order) = self.absence.order(order) {
            self.thread.order(order);
        }
    }
}

impl Disk {
    /// A log on the driver's thread. When a sync takes longer than `patience`, it moves to a thread until the disk is
    /// quick again.
    pub(crate) fn inline(log: Log, patience: Option<Duration>) -> Disk {
        Disk::of(log, patience.map(Patience::of))
    }

    /// A log that stays on a thread of its own.
    pub(crate) fn thread(log: Log) -> std::io::Result<Disk> {
        let mut disk = Disk::of(log, None);
        match disk.send_away() {
            None => Ok(disk),
            Some(error) => Err(error),
        }
    }

    /// Writes the log there from now on, with at most so many entries in one sync. One that is called home comes when what was
    /// ordered before is done.
    pub(crate) fn tune(&mut self, place: Threading, entries_max: usize, timing: Timing) {
        self.entries_max = entries_max;
        if let Place::Thread(away) = &mut self.place {
            away.order(Order::Batch(entries_max));
        }
        match (place, self.patience) {
            (Threading::Thread, _) => {
                self.patience = None;
                self.send_away_as_wanted();
            }
            (Threading::Inline, None) => {
                self.patience = Some(Patience::of(timing.heartbeat_interval));
                if let Place::Thread(away) = &mut self.place {
                    away.absence.call_home();
                }
                self.come_home_if_well();
            }
            (Threading::Inline, Some(_)) => {}
        }
    }

    /// A log that is to be on a thread always goes there, if it is not there.
    fn send_away_as_wanted(&mut self) {
        if self.patience.is_none()
            && matches!(self.place, Place::Inline(_))
            && let Some(error) = self.send_away()
        {
            report::warn(format_args!("no thread for log I/O ({error}): it stays on the node's thread"));
        }
    }

    /// Another heartbeat interval is in force.
    pub(crate) fn follow(&mut self, heartbeat_interval: Duration) {
        if let Some(patience) = &mut self.patience {
            patience.follow(heartbeat_interval);
        }
    }

    fn of(mut log: Log, patience: Option<Patience>) -> Disk {
        let (ready, metrics) = (Arc::new(Notify::new()), log.metrics.clone());
        let notify = ready.clone();
        log.on_made = Arc::new(move || notify.notify_one());
        log.prepare_next();
        let readings = log.read_beside();
        let place = Place::Inline(Box::new(log));
        Disk { place, ready, patience, entries_max: usize::MAX, done: VecDeque::new(), readings, metrics }
    }

    /// Moves an inline log to a thread; returns the error if none can be had.
    fn send_away(&mut self) -> Option<std::io::Error> {
        let Place::Inline(log) = std::mem::replace(&mut self.place, Place::Nowhere) else {
            panic!("it is inline");
        };
        let (place, error) = match Away::start(log) {
            Ok(mut away) => {
                away.order(Order::Batch(self.entries_max));
                (Place::Thread(away), None)
            }
            Err((error, log)) => (Place::Inline(log), Some(error)),
        };
        self.place = place;
        self.metrics.log_on_thread.set(u64::from(error.is_none()));
        error
    }

    /// Moves an inline log to a thread if its last sync took too long.
    fn leave_if_slow(&mut self) {
        let Place::Inline(log) = &self.place else { return };
        let took = log.took;
        let Some(patience) = self.patience.filter(|patience| patience.sends_away(&log.log, took)) else {
            return;
        };
        const SLOW: Cause = Cause::of("log I/O moved to its own thread");
        match self.send_away() {
            None => {
                self.metrics.log_sent_away.add(1);
                report::warn_of(
                    SLOW,
                    format_args!(
                        "a sync of the log took {took:?}, longer than {:?}: log I/O moves to its own thread until the disk \
                         is quick again. Check this member's disk: other writers, hardware failures",
                        patience.sync_max
                    ),
                );
            }
            Some(error) => {
                report::warn_of(SLOW, format_args!("no thread for the log I/O of a slow disk: {error}"))
            }
        }
    }

    /// Calls a log home that has been quick on its thread for long enough; it moves when all earlier orders are done.
    fn come_home_if_well(&mut self) {
        let Place::Thread(away) = &mut self.place else { return };
        if !away.absence.comes_home(self.patience) {
            return;
        }
        let is_well = self.patience.is_some_and(|patience| patience.well_syncs <= away.absence.quick_syncs());
        let Place::Thread(away) = std::mem::replace(&mut self.place, Place::Nowhere) else {
            unreachable!("looked at above");
        };
        let Away { thread, mut completions, absence } = away;
        let mut log = thread.give_back();
        // The last messages of the thread are of space: all others have been received.
        self.done.extend(std::iter::from_fn(|| completions.try_recv().ok()));
        let mut orders = Orders::default();
        absence.into_waiting().for_each(|order| orders.push(order));
        while let Some(Turned::Told(completion)) = log.turn(&mut orders) {
            self.done.extend(completion);
        }
        self.done.push_back(log.look());
        self.place = Place::Inline(log);
        self.metrics.log_on_thread.set(0);
        if is_well {
            report::info_of(
                Cause::of("log I/O back on the node's thread"),
                format_args!("{WELL_SYNCS} syncs in a row were quick: log I/O is on the node's thread again"),
            );
        }
        self.send_away_as_wanted(); // it may have been wanted on a thread again meanwhile
    }

    /// Whether the log is on a thread of its own now.
    pub(crate) fn is_on_thread(&self) -> bool {
        matches!(self.place, Place::Thread(_))
    }

    /// Whether records wait here that a full disk refused, and it may be tried again.
    pub(crate) fn retries(&self) -> bool {
        matches!(&self.place, Place::Inline(log) if log.is_blocked() && log.is_due())
    }

    /// Makes records durable, and what a full disk refused. Inline, the completion is returned. The records are taken.
    pub(crate) fn persist(&mut self, records: &mut Vec<LogRecord>) -> Option<Completion> {
        match &mut self.place {
            Place::Inline(log) => {
                log.append(records);
                records.clear();
                let completion = log.sync_if_due();
                self.leave_if_slow();
                self.in_turn(completion)
            }
            Place::Thread(away) => {
                away.order(Order::Persist(std::mem::take(records)));
                None
            }
            Place::Nowhere => unreachable!("only inside a move"),
        }
    }

    /// Reads entries back beside the log: for a peer, so that the reading delays no other work, and for the apply executor,
    /// which applies what was read before meanwhile. Without a thread for that, the log reads; inline, the completion is
    /// then returned.
    pub(crate) fn fetch(&mut self, fetch: Fetch) -> Option<Completion> {
        if self.readings.is_none() {
            return self.fetch_here(fetch);
        }
        match &mut self.place {
            Place::Inline(log) => log.fetch_beside(fetch),
            Place::Thread(away) => away.order(Order::FetchBeside(fetch)),
            Place::Nowhere => unreachable!("only inside a move"),
        }
        None
    }

    /// Has the log itself read entries back.
    fn fetch_here(&mut self, fetch: Fetch) -> Option<Completion> {
        match &mut self.place {
            Place::Inline(log) => {
                let completion = log.fetch(fetch);
                self.in_turn(completion)
            }
            Place::Thread(away) => {
                away.order(Order::Fetch(fetch));
                None
            }
            Place::Nowhere => unreachable!("only inside a move"),
        }
    }

    /// Results of the way home come before those of inline work.
    fn in_turn(&mut self, completion: Completion) -> Option<Completion> {
        if self.done.is_empty() {
            return Some(completion);
        }
        self.done.push_back(completion);
        self.done.pop_front()
    }

    /// Returns the next result that no call has returned at once.
    pub(crate) async fn completed(&mut self) -> Completion {
        loop {
            if let Some(done) = self.told_at_home() {
                return done;
            }
            let heard = tokio::select! {
                completion = told(&mut self.place) => Some(self.hear(completion)),
                reading = read(&mut self.readings) => self.on_reading(reading),
                () = self.ready.notified() => match &mut self.place {
                    Place::Inline(log) => Some(log.look()),
                    Place::Thread(away) => {
                        away.order(Order::Look);
                        None
                    }
                    Place::Nowhere => unreachable!("only inside a move"),
                },
            };
            if let Some(completion) = heard {
                return completion;
            }
        }
    }

    /// A reading that failed beside the log is repeated by the log, which knows what it still has.
    fn on_reading(&mut self, (fetch, read): Reading) -> Option<Completion> {
        match read {
            Ok(entries) => Some(Completion::Fetched(fetch, entries)),
            Err(_) => self.fetch_here(fetch),
        }
    }

    /// The next such result, if there is one already.
    pub(crate) fn try_completed(&mut self) -> Option<Completion> {
        if let Some(done) = self.told_at_home() {
            return Some(done);
        }
        if let Some(reading) = self.readings.as_mut().and_then(|readings| readings.try_recv().ok())
            && let Some(completion) = self.on_reading(reading)
        {
            return Some(completion);
        }
        match &mut self.place {
            Place::Inline(log) => log.look_if_ready(),
            Place::Thread(away) => {
                let completion = away.completions.try_recv().ok()?;
                Some(self.hear(completion))
            }
            Place::Nowhere => unreachable!("only inside a move"),
        }
    }

    /// A result of the way home. The log may have left again meanwhile.
    fn told_at_home(&mut self) -> Option<Completion> {
        let done = self.done.pop_front()?;
        Some(match &mut self.place {
            Place::Thread(away) => away.absence.told_before(done),
            Place::Inline(_) | Place::Nowhere => done,
        })
    }

    /// Takes note of a result of the thread; it may have been the last one there.
    fn hear(&mut self, completion: Completion) -> Completion {
        let Place::Thread(away) = &mut self.place else { unreachable!("a thread said it") };
        let completion = away.absence.completed(completion, self.patience);
        self.come_home_if_well();
        completion
    }

    /// Writes the mark of a clean end; everything ordered before it is on disk on return.
    pub(crate) fn close(self) {
        match self.place {
            Place::Inline(log) => log.close(),
            Place::Thread(Away { thread, absence, .. }) => {
                // Orders that waited for the log to come home: it closes on its thread.
                absence.into_waiting().for_each(|order| thread.order(order));
                thread.order(Order::Close);
                drop(thread); // comes back when it is done
            }
            Place::Nowhere => unreachable!("only inside a move"),
        }
    }
}

/// The next result of a log on a thread; an inline one has none by itself.
async fn told(place: &mut Place) -> Completion {
    match place {
        Place::Thread(away) => away.completions.recv().await.expect("a panic on the log thread aborts"),
        Place::Inline(_) | Place::Nowhere => std::future::pending().await,
    }
}

/// The next reading beside the log.
async fn read(readings: &mut Option<mpsc::UnboundedReceiver<Reading>>) -> Reading {
    match readings {
        Some(readings) => readings.recv().await.expect("a panic on its thread aborts"),
        None => std::future::pending().await,
    }
}

/// The thread: the orders that arrived during the last sync are the next group. [replication-protocols B3]
fn run(
    mut log: Box<Log>,
    inbox: &sync_mpsc::Receiver<Order>,
    report: &mpsc::UnboundedSender<Completion>,
) -> Option<Box<Log>> {
    let _abort = crate::AbortOnPanic;
    let mut orders = Orders::default();
    loop {
        let first = match inbox.recv_timeout(if log.is_blocked() { FULL_RETRY } else { Duration::MAX }) {
            Ok(order) => Some(order),
            Err(sync_mpsc::RecvTimeoutError::Timeout) => None,
            Err(sync_mpsc::RecvTimeoutError::Disconnected) => return None,
        };
        first.into_iter().chain(inbox.try_iter()).for_each(|order| orders.push(order));
        orders.wake(&log.log);
        loop {
            match log.turn(&mut orders) {
                None => break,
                Some(Turned::Told(completion)) => {
                    if completion.is_some_and(|completion| report.send(completion).is_err()) {
                        return None; // the driver is gone
                    }
                }
                Some(Turned::Return) => return Some(log),
                Some(Turned::Close) => {
                    log.close();
                    return None;
                }
            }
        }
    }
}

/// What an order has come to.
enum Turned {
    /// This is to be told, if anything.
    Told(Option<Completion>),
    Return,
    Close,
}

/// The log and what it counts.
pub(crate) struct Log {
    log: kattu_member::log::Log,
    metrics: Arc<Metrics>,
    watchdog: Watchdog,
    delays: Arc<Delays>,
    /// Segments made beside the log.
    made: (sync_mpsc::Sender<Made>, sync_mpsc::Receiver<Made>),
    /// The threads that read beside the log, if there are any.
    readings: Option<Readings>,
    /// Called when a segment has been made, or could not be.
    on_made: Arc<dyn Fn() + Send + Sync>,
    /// How long the last sync took.
    took: Duration,
    /// What its clock shows in tests.
    #[cfg(test)]
    shows: Option<kattu_raft::Instant>,
}

/// What came of making a segment.
type Made = Result<Prepared, WalError>;

/// Goes to the disk under the eyes of the watchdog, and times it.
pub(crate) struct Watched<'a>(pub(crate) &'a Watchdog, pub(crate) Work);

impl Timed for Watched<'_> {
    fn over<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        let began = Instant::now();
        let result = self.0.over(self.1, call);
        (result, began.elapsed())
    }
}

impl Log {
    pub(crate) fn new(
        wal: Wal,
        group: GroupId,
        metrics: Arc<Metrics>,
        watchdog: Watchdog,
        delays: Arc<Delays>,
    ) -> Log {
        let log = Log {
            log: kattu_member::log::Log::new(wal, group),
            metrics,
            watchdog,
            delays,
            made: sync_mpsc::channel(),
            readings: None,
            on_made: Arc::new(|| {}),
            took: Duration::ZERO,
            #[cfg(test)]
            shows: None,
        };
        log.count();
        log
    }

    /// Space in the log as it is now.
    pub(crate) fn room(&self) -> LogSpace {
        self.log.room()
    }

    fn is_blocked(&self) -> bool {
        self.log.is_blocked()
    }

    fn now(&self) -> kattu_raft::Instant {
        #[cfg(test)]
        if let Some(shown) = self.shows {
            return shown;
        }
        crate::clock::now()
    }

    fn is_due(&self) -> bool {
        !self.log.is_blocked() || self.log.is_due(self.now())
    }

    fn append(&mut self, records: &[LogRecord]) {
        self.log.append(records).unwrap_or_else(|error| fatal(&error));
    }

    /// Carries out the next order, if there is one.
    fn turn(&mut self, orders: &mut Orders) -> Option<Turned> {
        let told = match orders.next(&mut self.log).unwrap_or_else(|error| fatal(&error)) {
            Turn::Sync => Some(self.sync_if_due()),
            Turn::Fetch(fetch) => Some(self.fetch(fetch)),
            Turn::FetchBeside(fetch) => {
                self.fetch_beside(fetch);
                None
            }
            Turn::Look => Some(self.look()),
            Turn::Return => return Some(Turned::Return),
            Turn::Close => return Some(Turned::Close),
            Turn::Idle => return None,
        };
        Some(Turned::Told(told))
    }

    fn sync_if_due(&mut self) -> Completion {
        if self.is_due() { self.sync() } else { Completion::Room(self.room()) }
    }

    fn sync(&mut self) -> Completion {
        self.take_made();
        let now = self.now();
        let mut disk = Stopwatch { watched: Watched(&self.watchdog, Work::Disk), first: None };
        let synced = self.log.sync(now, &mut disk);
        let delay = self.delays.of_sync();
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let took = disk.first.map(|took| took + delay);
        let completion = self.carry_on(synced);
        if let (Completion::Persisted(..), Some(took)) = (&completion, took) {
            self.took = took;
            self.metrics.sync.observe(took);
        }
        self.count();
        completion
    }

    /// Starts reading on threads of their own; what was read comes out of the channel.
    fn read_beside(&mut self) -> Option<mpsc::UnboundedReceiver<Reading>> {
        match Readings::start([(); 2].map(|()| self.log.wal().reader()), &self.watchdog) {
            Ok((readings, heard)) => {
                self.readings = Some(readings);
                Some(heard)
            }
            Err(error) => {
                report::warn(format_args!(
                    "cannot start the threads that read the log back ({error}): the log's own thread reads, for peers and for apply"
                ));
                None
            }
        }
    }

    fn fetch_beside(&mut self, fetch: Fetch) {
        let plan = self.log.plan(&fetch);
        self.readings.as_ref().expect("the channel's receiver has it read").order(fetch, plan);
    }

    fn fetch(&mut self, fetch: Fetch) -> Completion {
        match self.log.fetch(fetch, &mut Watched(&self.watchdog, Work::Disk)) {
            Ok(completion) => completion,
            Err(error @ WalError::Damaged { .. }) => {
                // Nothing of it has left this member, and nothing will.
                report::warn(format_args!("an entry read back from the log is damaged: {}", error.finding()));
                report::last_words(format_args!(
                    "stopping, so that the next start repairs the log from the other members"
                ));
                std::process::exit(1);
            }
            Err(error) => fatal(&error),
        }
    }

    fn close(self) {
        if let Err(error) = self.log.close() {
            report::warn(format_args!(
                "the log was not closed cleanly (a restart reads it all the same): {error}"
            ));
        }
    }

    /// Orders the next segment if the log needs one.
    fn prepare_next(&mut self) {
        self.log.prepare_next();
        self.carry_out();
    }

    /// What a call of the log has led to: an end of the process, notes for the operator, a segment that is to be made.
    fn carry_on(&mut self, result: Result<Completion, WalError>) -> Completion {
        let completion = result.unwrap_or_else(|error| fatal(&error));
        self.carry_out();
        completion
    }

    fn carry_out(&mut self) {
        for note in self.log.take_notes() {
            match note {
                Note::Full(error) => {
                    report::warn(format_args!(
                        "{error}; writes wait for space, nothing acknowledged is lost"
                    ));
                }
                Note::WrittenAfterAll => {
                    report::info(format_args!("the writes that waited for disk space are done"))
                }
                Note::NoSegment(error) => {
                    report::warn(format_args!("cannot prepare the next log segment: {error}"));
                }
                Note::RoomAgain => report::info(format_args!("there is disk space for the log again")),
            }
        }
        if let Some(job) = self.log.take_job() {
            self.make_segment(job);
        }
    }

    /// Zero-fills the next segment on a passing thread, so that no write waits for it; on this one if the system gives
    /// no thread, because without it no write would be let in.
    fn make_segment(&self, SegmentJob { task, pause }: SegmentJob) {
        let (made, on_made) = (self.made.0.clone(), self.on_made.clone());
        let task = Mutex::new(Some(task));
        let make = Arc::new(move || {
            let Some(task) = task.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
            std::thread::sleep(pause);
            // The maker of a segment leaves the disk to the log for as long as it has used it itself.
            let mut since = Instant::now();
            let segment = task.run_paced(&mut || {
                std::thread::sleep(since.elapsed().min(SEGMENT_PAUSE_MAX));
                since = Instant::now();
            });
            let _ = made.send(segment); // the log may have closed meanwhile
            on_made();
        });
        let beside = make.clone();
        if let Err(error) = std::thread::Builder::new().name("kattu-segment".into()).spawn(move || beside()) {
            report::warn(format_args!(
                "no thread to prepare the next log segment ({error}): preparing it here"
            ));
            make();
        }
    }

    /// Hands over a segment that was made beside the log; whether there was one.
    fn take_made(&mut self) -> bool {
        let Ok(made) = self.made.1.try_recv() else { return false };
        self.log.made(made);
        true
    }

    /// Takes a segment that was made, without waiting to be told: a busy driver may not come round to listening.
    fn look_if_ready(&mut self) -> Option<Completion> {
        self.take_made().then(|| self.look())
    }

    /// Takes a segment that was made beside the log.
    fn look(&mut self) -> Completion {
        self.take_made();
        let looked = self.log.look();
        let completion = self.carry_on(looked);
        self.count();
        completion
    }

    fn count(&self) {
        let stats = self.log.wal().stats();
        self.metrics.log_written_bytes.set(stats.bytes_written);
        self.metrics.log_bytes.set(stats.log_bytes);
        self.metrics.log_segments.set(stats.segments);
        self.metrics.log_free_bytes.set(self.log.wal().space());
    }
}

/// Keeps the time of the first call: the sync, not the mark behind it.
struct Stopwatch<'a> {
    watched: Watched<'a>,
    first: Option<Duration>,
}

impl Timed for Stopwatch<'_> {
    fn over<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        let (result, took) = self.watched.over(call);
        self.first.get_or_insert(took);
        (result, took)
    }
}

/// The log failed: what it holds is unknown until it is read back.
fn fatal(error: &WalError) -> ! {
    report::last_words(format_args!("the log failed, stopping: {error}"));
    std::process::abort();
}

/// A sync of a file beside the log failed: what the disk holds is unknown until a start reads it back. [fault-model ST3, F11]
pub(crate) fn sync_failed(error: &WalError) -> ! {
    report::last_words(format_args!("a sync of a file beside the log failed, stopping: {error}"));
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_disk::{Dice, SimDisk};
    use kattu_raft::{
        Entry, EntryHead, EntryId, EntryKind, FetchFor, Incarnation, LogBody, LogIndex, Lsn, NodeId, Stamp,
    };
    use kattu_wal::files::LockGuard;
    use kattu_wal::{DataDir, Files, Identity, LogFile, WalOptions};
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    const OPTIONS: WalOptions = WalOptions {
        segment_bytes: 1 << 16,
        reserve_bytes: 0,
        window_bytes: 8 << 20,
        block_bytes: 1 << 20,
        sector_bytes: 512,
    };

    /// The present behaviour of a disk.
    #[derive(Debug, Default)]
    struct Mood {
        /// How long a sync takes.
        sync_us: AtomicU64,
        /// Readings for peers beside the log hang.
        reads_hang: AtomicBool,
        /// Readings for peers beside the log fail.
        reads_fail: AtomicBool,
    }

    /// A disk whose behaviour changes.
    #[derive(Debug)]
    struct Slow {
        disk: SimDisk,
        mood: Arc<Mood>,
    }

    #[derive(Debug)]
    struct SlowFile(Box<dyn LogFile>, Arc<Mood>);

    impl Slow {
        fn file(&self, file: Box<dyn LogFile>) -> Box<dyn LogFile> {
            Box::new(SlowFile(file, self.mood.clone()))
        }
    }

    fn is_beside() -> bool {
        std::thread::current().name() == Some("kattu-reading")
    }

    impl Files for Slow {
        fn place(&self) -> String {
            self.disk.place()
        }
        fn names(&self) -> io::Result<Vec<String>> {
            self.disk.names()
        }
        fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
            self.disk.open(name).map(|file| self.file(file))
        }
        fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
            self.disk.create(name).map(|file| self.file(file))
        }
        fn rename(&self, source: &str, target: &str) -> io::Result<()> {
            self.disk.rename(source, target)
        }
        fn remove(&self, name: &str) -> io::Result<()> {
            self.disk.remove(name)
        }
        fn sync_names(&self) -> io::Result<()> {
            self.disk.sync_names()
        }
        fn lock(&self, name: &str) -> io::Result<Result<Box<dyn LockGuard>, String>> {
            self.disk.lock(name)
        }
    }

    impl LogFile for SlowFile {
        fn bytes(&self) -> io::Result<u64> {
            self.0.bytes()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            while is_beside() && self.1.reads_hang.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            if is_beside() && self.1.reads_fail.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::NotFound.into());
            }
            self.0.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, bytes)
        }
        fn allocate(&self, len: u64) -> io::Result<()> {
            self.0.allocate(len)
        }
        fn sync(&self) -> io::Result<()> {
            std::thread::sleep(Duration::from_micros(self.1.sync_us.load(Ordering::Relaxed)));
            self.0.sync()
        }
    }

    fn log_on(disk: &SimDisk) -> Log {
        log_in(Arc::new(disk.clone()))
    }

    fn log_in(files: Arc<dyn Files>) -> Log {
        let options = OPTIONS;
        let mut dir = DataDir::open(files).expect("the directory is free");
        dir.create(Identity::single(0xC1, NodeId(1), Incarnation(1), "n1"), &options).expect("room");
        let (wal, _) = Wal::open(dir, options).expect("an empty log");
        Log::new(wal, GroupId(0), Arc::default(), Watchdog::default(), Arc::default())
    }

    /// Entries of 10 KiB from `first` on.
    fn entries(first: u64, count: u64) -> Vec<LogRecord> {
        (first..first + count)
            .map(|at| {
                let id = EntryId::new(1, at);
                let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
                let entry = kattu_wal::encoder().entry(GroupId(0), head, &[7; 10 << 10]);
                LogRecord { lsn: Lsn(at), body: LogBody::Entry(entry) }
            })
            .collect()
    }

    /// An inline log with a segment ready beside it, and the space that makes.
    fn ready(disk: &SimDisk) -> (Disk, LogSpace) {
        let mut inline = Disk::inline(log_on(disk), None);
        loop {
            match inline.try_completed() {
                Some(Completion::Room(room)) => return (inline, room),
                Some(other) => panic!("{other:?}"),
                None => std::thread::yield_now(),
            }
        }
    }

    fn log_of(disk: &mut Disk) -> &mut Log {
        let Place::Inline(log) = &mut disk.place else { panic!("it is inline") };
        log
    }

    #[test]
    fn a_segment_made_ready_is_taken_without_being_waited_for() {
        let disk = SimDisk::new();
        let before = log_on(&disk.copy()).room();
        let (_, after) = ready(&disk);
        assert!(before.free + (1 << 15) < after.free, "{before:?}, then {after:?}");
    }

    #[test]
    fn only_groups_that_are_more_than_commit_marks_say_what_the_disk_took() {
        let (mut disk, _) = ready(&SimDisk::new());
        let entries = disk.persist(&mut entries(1, 3));
        assert!(matches!(entries, Some(Completion::Persisted(Lsn(3), _, Some(_)))), "{entries:?}");
        let mark = disk.persist(&mut vec![LogRecord { lsn: Lsn(4), body: LogBody::Commit(LogIndex(3)) }]);
        assert!(matches!(mark, Some(Completion::Persisted(_, _, None))), "{mark:?}");
    }

    const BEFORE: kattu_raft::Instant = kattu_raft::Instant(1_000_000_000);

    #[test]
    fn a_full_disk_is_tried_again_after_a_while_and_not_with_every_batch() {
        let sim = SimDisk::new();
        let (mut disk, _) = ready(&sim);
        sim.limit_to(Some(sim.bytes()));
        log_of(&mut disk).shows = Some(BEFORE);
        let refused = disk.persist(&mut entries(1, 30));
        assert!(matches!(refused, Some(Completion::Room(LogSpace { full: true, .. }))), "{refused:?}");

        sim.limit_to(None);
        assert!(!disk.retries(), "it is not time");
        let waits = disk.persist(&mut entries(31, 1));
        assert!(matches!(waits, Some(Completion::Room(LogSpace { full: true, .. }))), "{waits:?}");

        log_of(&mut disk).shows = Some(BEFORE + FULL_RETRY);
        let written = retry(&mut disk);
        assert!(matches!(written, Some(Completion::Persisted(Lsn(31), _, Some(_)))), "{written:?}");
        assert!(!log_of(&mut disk).is_blocked());
    }

    /// What the driver does at its next batch with a disk that was full.
    fn retry(disk: &mut Disk) -> Option<Completion> {
        assert!(disk.retries(), "it is time");
        disk.persist(&mut Vec::new())
    }

    /// A log whose segment is full to the last sector, on a disk without room for another one. Returns how many entries
    /// it has.
    fn filled(sim: &SimDisk) -> (Disk, u64) {
        let log = log_on(sim);
        sim.limit_to(Some(sim.bytes()));
        let mut disk = Disk::inline(log, None);
        let mut count = 0;
        while 512 <= log_of(&mut disk).room().free {
            count += 1;
            let written = disk.persist(&mut small(count));
            assert!(
                matches!(written, Some(Completion::Persisted(lsn, ..)) if lsn == Lsn(count)),
                "{written:?}"
            );
        }
        (disk, count)
    }

    fn commit(lsn: u64, index: u64) -> Vec<LogRecord> {
        vec![LogRecord { lsn: Lsn(lsn), body: LogBody::Commit(LogIndex(index)) }]
    }

    #[test]
    fn a_full_disk_that_only_an_idle_mark_meets_ends_nothing_and_the_mark_is_written_later() {
        let sim = SimDisk::new();
        let (mut disk, count) = filled(&sim);
        log_of(&mut disk).shows = Some(BEFORE);
        let written = disk.persist(&mut commit(count + 1, count));
        assert!(
            matches!(written, Some(Completion::Persisted(lsn, LogSpace { full: true, .. }, None)) if lsn == Lsn(count + 1)),
            "{written:?}"
        );
        assert!(log_of(&mut disk).is_blocked());
        log_of(&mut disk).shows = Some(BEFORE + FULL_RETRY);
        let refused = retry(&mut disk);
        assert!(
            matches!(refused, Some(Completion::Room(LogSpace { full: true, .. }))),
            "it is full still: {refused:?}"
        );
        assert!(!disk.retries(), "not again at once");

        sim.limit_to(None);
        log_of(&mut disk).shows = Some(BEFORE + FULL_RETRY + FULL_RETRY);
        let written = retry(&mut disk);
        assert!(matches!(written, Some(Completion::Persisted(..))), "{written:?}");
        assert!(!log_of(&mut disk).is_blocked());
        // Killed now, it still knows what was committed.
        let image = sim.copy();
        let dir = DataDir::open(Arc::new(image)).expect("the copy is free");
        assert_eq!(Wal::open(dir, OPTIONS).expect("a whole log").1[&GroupId(0)].committed, LogIndex(count));
    }

    #[test]
    fn a_log_on_its_own_thread_outlives_a_full_disk_that_only_an_idle_mark_meets() {
        let sim = SimDisk::new();
        let (disk, count) = filled(&sim);
        let Place::Inline(log) = disk.place else { panic!("it is inline") };
        let mut disk = Disk::thread(*log).expect("a thread");
        assert!(disk.persist(&mut commit(count + 1, count)).is_none());
        hear_until(&mut disk, count + 1);
        sim.limit_to(None);
        while !matches!(next(&mut disk), Completion::Persisted(..)) {}
        disk.close();
        let (_, recovered) =
            Wal::open(DataDir::open(Arc::new(sim)).expect("it is free"), OPTIONS).expect("whole");
        assert_eq!(recovered[&GroupId(0)].committed, LogIndex(count));
    }

    #[test]
    fn a_full_disk_is_tried_again_by_a_log_on_its_own_thread() {
        let sim = SimDisk::new();
        let log = log_on(&sim);
        sim.limit_to(Some(sim.bytes()));
        let mut disk = Disk::thread(log).expect("a thread");
        assert!(disk.persist(&mut entries(1, 30)).is_none());
        let mut was_full = false;
        loop {
            match disk.try_completed() {
                Some(Completion::Room(room)) => {
                    was_full |= room.full;
                    sim.limit_to(None);
                }
                Some(Completion::Persisted(lsn, ..)) => {
                    assert_eq!(lsn, Lsn(30));
                    break;
                }
                Some(other) => panic!("{other:?}"),
                None => std::thread::yield_now(),
            }
        }
        assert!(was_full);
        disk.close();
    }

    #[test]
    fn a_log_on_its_own_thread_lets_go_of_its_directory_when_it_is_dropped() {
        for round in 0..20 {
            let sim = SimDisk::new();
            let mut disk = Disk::thread(log_on(&sim)).expect("a thread");
            assert!(disk.persist(&mut entries(1, 6)).is_none());
            if round % 2 == 0 {
                drop(disk);
            } else {
                disk.close();
            }
            DataDir::open(Arc::new(sim.clone())).expect("the directory is free");
        }
    }

    /// A log that moves to a thread when a sync takes more than 20 ms.
    fn slow() -> (SimDisk, Arc<Mood>, Disk) {
        let (sim, mood) = (SimDisk::new(), Arc::<Mood>::default());
        let files = Slow { disk: sim.clone(), mood: mood.clone() };
        let disk = Disk::inline(log_in(Arc::new(files)), Some(PATIENCE));
        (sim, mood, disk)
    }

    const PATIENCE: Duration = Duration::from_millis(20);
    const SLOW_US: u64 = 25_000;

    fn is_away(disk: &Disk) -> bool {
        matches!(disk.place, Place::Thread(_))
    }

    /// Takes one completion, however long it takes.
    fn next(disk: &mut Disk) -> Completion {
        loop {
            match disk.try_completed() {
                Some(completion) => return completion,
                None => std::thread::yield_now(),
            }
        }
    }

    fn small(at: u64) -> Vec<LogRecord> {
        let id = EntryId::new(1, at);
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
        let entry = kattu_wal::encoder().entry(GroupId(0), head, &at.to_le_bytes());
        vec![LogRecord { lsn: Lsn(at), body: LogBody::Entry(entry) }]
    }

    #[test]
    fn a_log_whose_syncs_outlast_a_heartbeat_moves_to_a_thread_and_delays_nothing_there() {
        let (_, mood, mut disk) = slow();
        assert!(disk.persist(&mut small(1)).is_some(), "a disk that is well");
        assert!(!is_away(&disk));
        mood.sync_us.store(SLOW_US, Ordering::Relaxed);
        let slow = disk.persist(&mut small(2));
        assert!(
            matches!(slow, Some(Completion::Persisted(Lsn(2), _, Some(took))) if PATIENCE < took),
            "{slow:?}"
        );
        assert!(is_away(&disk));
        mood.sync_us.store(1_000_000, Ordering::Relaxed);
        let begun = Instant::now();
        assert!((3..=20).all(|at| disk.persist(&mut small(at)).is_none()));
        assert!(begun.elapsed() < Duration::from_secs(1), "persisting waits for the disk");
        mood.sync_us.store(0, Ordering::Relaxed);
        loop {
            if let Completion::Persisted(Lsn(20), ..) = next(&mut disk) {
                break;
            }
        }
    }

    #[test]
    fn a_log_comes_home_when_its_disk_has_been_well_for_long_enough_and_not_sooner() {
        let (_, mood, mut disk) = slow();
        mood.sync_us.store(SLOW_US, Ordering::Relaxed);
        assert!(disk.persist(&mut small(1)).is_some());
        mood.sync_us.store(0, Ordering::Relaxed);
        let mut at = 1;
        let mut quick = 0;
        while is_away(&disk) {
            at += 1;
            if quick == WELL_SYNCS / 2 {
                // One slow sync: the count begins anew.
                mood.sync_us.store(SLOW_US, Ordering::Relaxed);
            }
            assert!(disk.persist(&mut small(at)).is_none());
            hear_until(&mut disk, at);
            mood.sync_us.store(0, Ordering::Relaxed);
            quick += 1;
            assert!(quick < 20 * WELL_SYNCS, "it never comes home");
        }
        assert!(WELL_SYNCS + WELL_SYNCS / 2 < quick, "{quick}");
        // The segment that was ready came with it, and the log goes on as if it had never been away.
        let mut completion = disk.persist(&mut small(at + 1)).expect("it is inline");
        while !matches!(completion, Completion::Persisted(lsn, ..) if lsn == Lsn(at + 1)) {
            completion = next(&mut disk);
        }
        assert_eq!(disk.metrics.log_on_thread.get(), 0);
        assert_eq!(disk.metrics.log_sent_away.get(), 1);
    }

    /// Goal: the time that sends a log to its thread, and the one by which it comes home, are those of the timing in force.
    /// Method: syncs take 25 ms: too long for a heartbeat interval of 20 ms, and quick for one of an hour.
    #[test]
    fn a_log_moves_by_the_timing_in_force() {
        let (_, mood, mut disk) = slow();
        disk.follow(Duration::from_secs(3600));
        mood.sync_us.store(SLOW_US, Ordering::Relaxed);
        assert!(disk.persist(&mut small(1)).is_some());
        assert!(!is_away(&disk), "the timing was raised");
        disk.follow(PATIENCE);
        assert!(disk.persist(&mut small(2)).is_some());
        assert!(is_away(&disk), "the timing was lowered");
        disk.follow(Duration::from_secs(3600));
        let mut at = 2;
        while is_away(&disk) {
            at += 1;
            assert!(disk.persist(&mut small(at)).is_none());
            hear_until(&mut disk, at);
            assert!(at < 2 * u64::from(WELL_SYNCS), "it never comes home");
        }
    }

    /// Takes completions of the log on its thread, up to the one for this record.
    fn hear_until(disk: &mut Disk, at: u64) {
        while !matches!(next(disk), Completion::Persisted(lsn, ..) if lsn == Lsn(at)) {}
    }

    /// Goal: a log that has been called home comes, although the disk is slow again for an order that was under way
    /// then.
    /// Method: that order is given before the last of the quick syncs is received.
    #[test]
    fn a_log_that_was_called_home_comes_although_its_disk_is_slow_again() {
        let (_, mood, mut disk) = slow();
        mood.sync_us.store(SLOW_US, Ordering::Relaxed);
        assert!(disk.persist(&mut small(1)).is_some());
        mood.sync_us.store(0, Ordering::Relaxed);
        let mut at = 1;
        // Until one quick sync is missing: a slow moment of the machine restarts the count.
        while !matches!(&disk.place, Place::Thread(away) if away.absence.quick_syncs() == WELL_SYNCS - 1) {
            at += 1;
            assert!(disk.persist(&mut small(at)).is_none());
            hear_until(&mut disk, at);
        }
        let synced = disk.metrics.sync.count();
        at += 1;
        assert!(disk.persist(&mut small(at)).is_none());
        while disk.metrics.sync.count() == synced {
            std::thread::yield_now();
        }
        mood.sync_us.store(SLOW_US, Ordering::Relaxed);
        at += 1;
        assert!(disk.persist(&mut small(at)).is_none());
        hear_until(&mut disk, at);
        mood.sync_us.store(0, Ordering::Relaxed);
        at += 1;
        let mut completion = disk.persist(&mut small(at));
        let end = Instant::now() + Duration::from_secs(20);
        while !matches!(completion, Some(Completion::Persisted(lsn, ..)) if lsn == Lsn(at)) {
            assert!(Instant::now() < end, "what was ordered waits for ever");
            completion = disk.try_completed();
        }
    }

    fn fetch(purpose: FetchFor, first: u64, last: u64) -> Fetch {
        Fetch { purpose, first: LogIndex(first), last: LogIndex(last), bytes_max: 1 << 20 }
    }

    const FOR_A_PEER: FetchFor = FetchFor::Peer(NodeId(2));

    #[test]
    fn a_read_for_a_peer_that_does_not_return_delays_no_other() {
        for is_slow in [false, true] {
            let (_, mood, mut disk) = slow();
            let mut heard = Heard::default();
            mood.sync_us.store(if is_slow { SLOW_US } else { 0 }, Ordering::Relaxed);
            heard.hear(disk.persist(&mut small(1)).expect("it is inline"));
            mood.sync_us.store(0, Ordering::Relaxed);
            assert_eq!(is_away(&disk), is_slow);
            mood.reads_hang.store(true, Ordering::Relaxed);
            assert!(disk.fetch(fetch(FOR_A_PEER, 1, 2)).is_none());
            for at in 2..=9 {
                disk.persist(&mut small(at)).into_iter().for_each(|completion| heard.hear(completion));
            }
            // Meanwhile another thread reads for apply.
            disk.fetch(fetch(FetchFor::Apply, 1, 2))
                .into_iter()
                .for_each(|completion| heard.hear(completion));
            while heard.durable < 9 || heard.fetched < 1 {
                heard.hear(next(&mut disk));
            }
            assert_eq!(heard.for_peers, 0);
            mood.reads_hang.store(false, Ordering::Relaxed);
            while heard.for_peers < 1 {
                // When the reading was planned, the second entry was not written, or not even there.
                match next(&mut disk) {
                    Completion::Fetched(_, entries) => {
                        let found: Vec<EntryId> = entries.iter().map(Entry::id).collect();
                        assert_eq!(found, [EntryId::new(1, 1)]);
                        heard.for_peers += 1;
                    }
                    other => heard.hear(other),
                }
            }
            disk.close();
        }
    }

    #[test]
    fn what_cannot_be_read_beside_the_log_is_read_by_the_log() {
        for is_slow in [false, true] {
            let (_, mood, mut disk) = slow();
            let mut heard = Heard::default();
            heard.hear(disk.persist(&mut small(1)).expect("it is inline"));
            mood.sync_us.store(if is_slow { SLOW_US } else { 0 }, Ordering::Relaxed);
            heard.hear(disk.persist(&mut small(2)).expect("it is inline"));
            mood.sync_us.store(0, Ordering::Relaxed);
            mood.reads_fail.store(true, Ordering::Relaxed);
            assert!(disk.fetch(fetch(FOR_A_PEER, 1, 2)).is_none());
            while heard.for_peers < 1 {
                heard.hear(next(&mut disk));
            }
            disk.close();
        }
    }

    #[tokio::test]
    async fn a_read_that_returns_wakes_the_task_that_waits() {
        let (_, _, mut disk) = slow();
        let mut heard = Heard::default();
        for at in 1..=2 {
            heard.hear(disk.persist(&mut small(at)).expect("it is inline"));
        }
        assert!(disk.fetch(fetch(FOR_A_PEER, 1, 2)).is_none());
        while heard.for_peers < 1 {
            heard.hear(disk.completed().await);
        }
    }

    /// The results of a log, checked as they come.
    #[derive(Default)]
    struct Heard {
        durable: u64,
        /// Readings for apply.
        fetched: u64,
        for_peers: u64,
    }

    impl Heard {
        fn hear(&mut self, completion: Completion) {
            match completion {
                Completion::Persisted(lsn, ..) => {
                    assert!(self.durable <= lsn.0, "{} after {}", lsn.0, self.durable);
                    self.durable = lsn.0;
                }
                Completion::Fetched(fetch, entries) => {
                    let count = match fetch.purpose {
                        FetchFor::Apply => &mut self.fetched,
                        FetchFor::Peer(_) => &mut self.for_peers,
                    };
                    *count += 1;
                    assert_eq!(fetch.first.0, *count, "answers come in the order of questions");
                    let found: Vec<EntryId> = entries.iter().map(Entry::id).collect();
                    assert_eq!(found, [fetch.first, fetch.last].map(|at| EntryId::new(1, at.0)));
                }
                Completion::Room(_) => {}
            }
        }
    }

    #[test]
    fn nothing_is_lost_doubled_or_out_of_order_while_a_log_goes_to_and_fro() {
        for seed in 0..4 {
            let (sim, mood, mut disk) = slow();
            let mut dice = Dice::new(seed);
            let (mut ordered, mut asked, mut moves, mut was_away) = (0, [0, 0], 0, false);
            let mut heard = Heard::default();
            while moves < 6 {
                if !was_away && dice.one_in(60) {
                    mood.sync_us.store(SLOW_US, Ordering::Relaxed);
                }
                ordered += 1;
                let completion = disk.persist(&mut small(ordered));
                mood.sync_us.store(0, Ordering::Relaxed);
                completion.into_iter().for_each(|completion| heard.hear(completion));
                for (asked, purpose) in asked.iter_mut().zip([FetchFor::Apply, FOR_A_PEER]) {
                    if *asked + 1 < ordered && dice.one_in(3) {
                        *asked += 1;
                        let fetch = fetch(purpose, *asked, *asked + 1);
                        disk.fetch(fetch).into_iter().for_each(|completion| heard.hear(completion));
                    }
                }
                // Sometimes a few are under way, sometimes none.
                let most = dice.below(4);
                while heard.durable + most < ordered {
                    heard.hear(next(&mut disk));
                }
                moves += u32::from(was_away != is_away(&disk));
                was_away = is_away(&disk);
            }
            while heard.durable < ordered || [heard.fetched, heard.for_peers] != asked {
                heard.hear(next(&mut disk));
            }
            disk.close();
            let dir = DataDir::open(Arc::new(sim)).expect("the directory is free");
            let (_, recovered) = Wal::open(dir, OPTIONS).expect("a whole log");
            assert_eq!(recovered[&GroupId(0)].last, EntryId::new(1, ordered));
        }
    }
}
