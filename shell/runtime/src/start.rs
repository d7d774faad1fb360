//! Putting one member together: its directory, its log, its node, its links, its loop.
//!
//! Knows nothing of: flags, faces.

use crate::apply_thread::ApplyThread;
use crate::computing::Computing;
use crate::config::{Began, GROUP, Member, RuntimeConfig};
use crate::delays::Delays;
use crate::disk::{Disk, Log};
use crate::driver::{Clerk, Driver, End, Hands, WokenFor, publish_tuning};
use crate::engine::{Engine, Facts};
use crate::head_start::HeadStart;
use crate::inbox::Inbox;
use crate::join::{self, Joiner};
use crate::links::Links;
use crate::listener::{Crowds, FRAME_PATIENCE, PeerListener, Readers};
use crate::lookout::{Lookout, default_quota};
use crate::metrics::Metrics;
use crate::peer_table::PeerTable;
use crate::scrub;
use crate::settings::{Promise, note_flags, note_vote_holds};
use crate::snapshots::{Snapshots, thaw};
use crate::timer::Timer;
use crate::watchdog::Watchdog;
use crate::{clock, entropy};
use kattu_member::capacity::Capacity;
use kattu_member::lanes;
use kattu_member::opening::{self, Tables};
use kattu_member::peer_address::PeerAddress;
use kattu_member::peer_table::Own;
use kattu_member::step::{CALLS_MAX, LIMITS, Placed};
use kattu_member::tuning::Threading;
use kattu_node::contract::MemberInfo;
use kattu_node::{Keeper, Node, NodeConfig};
use kattu_raft::{Config, GroupId, Incarnation, Limits, NodeId, ReadPath, Recovered, Timing};
use kattu_tls::Speaks;
use kattu_wal::{
    DataDir, Files, Identity, Incarnations, InitialMember, KnownMembers, RealFiles, UnsyncedFiles,
    VoteHoldRecord, Wal, WalError,
};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

/// Why a member could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The data directory cannot be used; the error says what to do.
    Data(WalError),
    /// An address for peers cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: std::io::Error,
    },
    /// A thread could not be started.
    Thread(std::io::Error),
    /// The driver's timer could not be made.
    Timer(std::io::Error),
    /// The configuration breaks a rule of the protocol.
    Config(&'static str),
    /// The newest snapshot cannot be read.
    Snapshot(String),
    /// The cluster refuses it.
    Join(String),
    /// A restore into its directory was interrupted: the directory is missing or empty.
    Unfinished {
        /// The directory.
        data_dir: PathBuf,
        /// The unfinished result beside it.
        aside: PathBuf,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Data(error) => write!(f, "{error}"),
            StartError::Listen { address, error } => {
                write!(f, "cannot listen for peers on {address}: {error}")
            }
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
            StartError::Timer(error) => write!(f, "cannot make a timer: {error}"),
            StartError::Config(rule) => write!(f, "{rule}"),
            StartError::Snapshot(what) => write!(f, "the newest snapshot cannot be read: {what}"),
            StartError::Join(what) => f.write_str(what),
            StartError::Unfinished { data_dir, aside } => write!(
                f,
                "{} was left by an interrupted `kattu restore` or `kattu recover`, and {} is missing or empty: a \
                 member would start there without data. Remove {} and repeat the command; after `kattu recover`, first rename the newest \
                 {}.lost-quorum-* back",
                aside.display(),
                data_dir.display(),
                aside.display(),
                data_dir.display()
            ),
        }
    }
}

impl std::error::Error for StartError {}

impl From<WalError> for StartError {
    fn from(error: WalError) -> StartError {
        StartError::Data(error)
    }
}

/// A member that is ready to run.
pub struct Running {
    /// The API for faces and tools.
    pub engine: Engine,
    driver: Driver,
}

impl Running {
    /// Runs the member until `stop` becomes true, or others have removed it; then its clients are answered and its log is
    /// closed. Must be awaited inside the `LocalSet` of the current-thread runtime on which [`start`] was called.
    pub async fn run(self, stop: watch::Receiver<bool>) -> End {
        let _abort = crate::AbortOnPanic;
        self.driver.run(stop).await
    }
}

/// Opens the directory, reads the log back, and connects the parts. Must be awaited inside a `LocalSet`.
///
/// # Errors
/// Why it cannot start, in words for the operator.
pub async fn start(config: RuntimeConfig) -> Result<Running, StartError> {
    raft_config(&config, config.members.iter().map(|member| member.id))
        .check()
        .map_err(StartError::Config)?;
    let group = GROUP;
    let own = config.members.iter().find(|member| member.id == config.id).cloned();
    let own = own.ok_or(StartError::Config("a member must be among the members"))?;
    // A path that cannot be read is reported when it is opened.
    if let Ok(Some(aside)) = kattu_rebuild::unfinished(&kattu_rebuild::RealPlaces, &config.data_dir) {
        return Err(StartError::Unfinished { data_dir: config.data_dir, aside });
    }
    if !config.join && !config.data_dir.join(kattu_wal::IDENTITY).exists() {
        // Before it listens itself: members that bootstrap together do not wait for each other's answers.
        ask_whether_it_was_here(&config, own.id).await?;
    }
    let listeners = listen(&config.listen_peers).await?;
    let timer = Timer::new().map_err(StartError::Timer)?;

    let Opened { wal, head_start, recovered, identity, lives, known, record, timing } =
        open(&config, &own, group).await?;
    // From here on the directory determines the identity.
    let config = RuntimeConfig { id: identity.node, cluster_id: identity.cluster, ..config };
    let incarnation = identity.incarnation;
    let voters = identity.members.iter().filter(|_| identity.joined.is_none()).map(|member| member.id);
    let raft = Config { incarnation, ..raft_config(&config, voters) };

    let metrics = Arc::new(Metrics::default());
    let facts = Arc::new(Facts::default());
    let watchdog = Watchdog::default();
    watchdog.start(config.disk_stall).map_err(StartError::Thread)?;
    note_vote_floor(&recovered);
    metrics.log_damaged.set(u64::from(recovered.vote_floor.is_some()));
    facts.has_peers.store(!opening::is_alone(&identity, &recovered), Ordering::Relaxed);
    let store = wal.snapshots();
    let place = config.data_dir.clone();
    scrub::start(place, config.scrub_period, facts.clone(), store.clone(), metrics.clone())
        .map_err(StartError::Thread)?;
    let (keeper, snapshot_bytes) = first_tables(&identity, &wal, head_start, &recovered)?;
    let keeper = keeper.of_member(config.id).with_limits(config.requests);
    let (members, health) = (keeper.members(), keeper.health());
    let level = health.level;
    let snapshots =
        Snapshots::start(store, group, config.snapshot_bytes_per_s, metrics.clone(), watchdog.clone())
            .map_err(StartError::Thread)?;
    let delays = Arc::new(Delays::default());
    delays.set(config.tuning.delays);
    let log = Log::new(wal, group, metrics.clone(), watchdog.clone(), delays.clone());
    let lookout = Lookout::of(config.data_dir.clone()).map_err(StartError::Thread)?;
    let quota = if config.quota_bytes > 0 { config.quota_bytes } else { default_quota() };
    let room = log.room();
    let mut disk = match config.tuning.log_io {
        // A leader that sits in a sync for longer than a heartbeat loses its followers.
        Threading::Inline => Disk::inline(log, Some(timing.heartbeat_interval)),
        Threading::Thread => Disk::thread(log).map_err(StartError::Thread)?,
    };
    let orders = snapshots.orders();
    let mut apply = None;
    disk.tune(config.tuning.log_io, config.tuning.node.raft.batch_entries(), timing);
    let placed = match config.tuning.apply {
        Threading::Inline => Placed::Here(Box::new(keeper)),
        Threading::Thread => {
            let thread =
                ApplyThread::start(keeper, orders, watchdog.clone(), metrics.clone(), delays.clone());
            apply = Some(thread.map_err(StartError::Thread)?);
            Placed::Apart(members.clone(), health)
        }
    };

    let inbox = Rc::new(Inbox::default());
    let peer_table = Rc::new(first_peer_table(&config, &own, &identity, quota));
    peer_table.recall(lives, known);
    peer_table.follow(members.clone());
    // Other members may be tuned to more than this one.
    let frame_bytes_max = lanes::frame_bytes_max(&Limits::default(), config.request_bytes_max);
    let readers = Rc::new(Readers::default());
    let (calls_in, calls) = mpsc::channel(CALLS_MAX);
    let engine = Engine::new(calls_in, facts.clone(), metrics.clone(), config.cluster_id, config.id);
    let peer_listener = PeerListener {
        peer_table: peer_table.clone(),
        inbox: inbox.clone(),
        metrics: metrics.clone(),
        group,
        frame_bytes_max,
        readers: readers.clone(),
        engine: engine.clone(),
        places: Crowds::default(),
        frame_patience: FRAME_PATIENCE,
    };
    peer_listener.start(listeners);
    let mut links = Links::new(&peer_table, timing, config.streams, &inbox, &readers, &metrics);
    links.follow();

    let now = clock::now();
    let node = Node::recover(node_config(&config, own.name, raft), entropy(), now, recovered)
        .with_snapshot_of(snapshot_bytes);
    metrics.feature_level.set(level.into());
    peer_table.with(|table| table.set_level(level));
    let clerk = Clerk { facts: facts.clone(), metrics, watchdog, delays };
    let (promise, woken_for) = (Promise::new(record, timing), WokenFor::default());
    let computing = Computing::start(inbox.clone(), clerk.watchdog.clone()).map_err(StartError::Thread)?;
    let hands = Hands {
        disk,
        apply,
        snapshots,
        computing,
        inbox,
        calls,
        peer_table,
        lookout,
        promise,
        clerk,
        woken_for,
    };
    let member = kattu_member::member::Member::start(now, node, placed, Capacity::new(quota), room, LIMITS)
        .with_tuning(&config.tuning);
    publish_tuning(&hands.clerk.metrics, member.tuning());
    let driver = Driver {
        member,
        hands,
        links,
        facts,
        name_clash: Default::default(),
        flows_at: kattu_raft::Instant(0),
        counted: Default::default(),
        started: now,
        timer,
        _engine: engine.clone(),
    };
    Ok(Running { engine, driver })
}

/// Asks the others whether they know this founding member with a directory that it has lost.
async fn ask_whether_it_was_here(config: &RuntimeConfig, id: NodeId) -> Result<(), StartError> {
    let tls = config.peer_tls.as_ref();
    join::begin(config.cluster_id, id, &config.members, tls).await.map_err(StartError::Join)?;
    // The others may know it by an id from when the cluster began.
    for began in config.began_as.iter().filter(|began| began.cluster != config.cluster_id) {
        let members = with_places_of(began, &config.members);
        join::begin(began.cluster, began.id, &members, tls).await.map_err(StartError::Join)?;
    }
    Ok(())
}

fn note_vote_floor(recovered: &Recovered) {
    if let Some(vote_floor) = recovered.vote_floor {
        crate::report::warn(format_args!(
            "the log ends at {}, below the vote floor {vote_floor}: until the log is refilled, this member votes only for logs \
             that reach that far, and does not lead",
            recovered.last
        ));
    }
}

/// What a member knows of itself and of others before its tables and its files tell more.
fn first_peer_table(config: &RuntimeConfig, own: &Member, identity: &Identity, quota: u64) -> PeerTable {
    let about_us = Own {
        cluster: config.cluster_id,
        id: config.id,
        incarnation: identity.incarnation,
        began_with: began_with(identity),
        peer_urls: own.peer_urls.clone(),
        priority: config.leadership.priority,
        quota,
    };
    let found = identity.joined.iter().flatten().map(|member| (member.id, member.peer_urls.clone()));
    PeerTable::new(about_us, found.collect(), config.peer_tls.clone())
}

/// The tables that the member starts from, and the bytes of their snapshot: the newest good one's, or none.
fn first_tables(
    identity: &Identity,
    wal: &Wal,
    head_start: Option<HeadStart>,
    recovered: &Recovered,
) -> Result<(Keeper, u64), StartError> {
    for complaint in wal.complaints() {
        match complaint {
            WalError::Damaged { .. } => crate::report::warn(format_args!(
                "{}; starting without it; check the disk",
                complaint.finding()
            )),
            other => crate::report::warn(format_args!("{other}")),
        }
    }
    let last = match opening::first_tables(identity, wal.complaints(), recovered) {
        Ok(Tables::Snapshot(last)) => last,
        Ok(Tables::Founders) => return Ok((Keeper::new(first_members(identity)), 0)),
        Ok(Tables::Awaited(_)) => {
            crate::report::warn(format_args!(
                "requesting a snapshot from the leader, not serving before it is installed"
            ));
            return Ok((Keeper::new(first_members(identity)), 0));
        }
        Err(lost) => return Err(StartError::Data(lost.clone().of_only_copy())),
    };
    let (keeper, snapshot) = match head_start.and_then(|head_start| head_start.take(last)) {
        Some(thawed) => thawed,
        None => {
            let goes_on = AtomicBool::new(false);
            let thawed = thaw(&wal.snapshots(), GroupId(0), last, &goes_on).map_err(StartError::Snapshot)?;
            thawed.expect("it is not stopped")
        }
    };
    crate::report::info(format_args!("starts from {}: {} bytes", snapshot.name, snapshot.bytes));
    Ok((keeper, snapshot.bytes))
}

/// A data directory that is open.
struct Opened {
    wal: Wal,
    head_start: Option<HeadStart>,
    recovered: Recovered,
    identity: Identity,
    lives: Incarnations,
    known: KnownMembers,
    record: VoteHoldRecord,
    /// The timing in force: the one of the configuration that was found, or that of the flags.
    timing: Timing,
}

/// Opens the data directory, or initializes it, and reads its log back.
async fn open(config: &RuntimeConfig, own: &Member, group: GroupId) -> Result<Opened, StartError> {
    let options = config.wal_options();
    let files: Arc<dyn Files> = match config.unsafe_no_fsync {
        false => Arc::new(RealFiles::create(&config.data_dir)?),
        true => Arc::new(UnsyncedFiles::over(Arc::new(RealFiles::create(&config.data_dir)?))),
    };
    let mut dir = DataDir::open(files)?;
    match dir.identity() {
        None if config.join => {
            let identity = joined_identity(config, own, group).await?;
            crate::report::info(format_args!(
                "joining cluster {:x} as member {:x}",
                identity.cluster, identity.node.0
            ));
            dir.create(identity, &options)?;
        }
        None => dir.create(config.first_identity(), &options)?,
        // Flags do not determine the id of a joined member: the cluster assigned it.
        Some(identity) if config.join || identity.joined.is_some() => {}
        Some(identity) if is_named(&config.began_as, identity) => {}
        Some(_) => dir.expect(config.cluster_id, config.id)?,
    }
    let identity = dir.identity().expect("it has one by now").clone();
    let (recorded, record) = (dir.vote_hold()?, dir.vote_hold_record());
    let (lives, wrong) = dir.lives()?;
    if let Some(what) = wrong {
        crate::report::warn(format_args!(
            "file `lives` (data directories of the other members) is unreadable: {what}; recording them anew"
        ));
    }
    let (known, wrong) = dir.known_members()?;
    if let Some(what) = wrong {
        crate::report::warn(format_args!(
            "file `members` (the other members and their peer URLs) is unreadable: {what}; recording them anew"
        ));
    }
    let head_start = dir.snapshots()?.and_then(|store| HeadStart::begin(store, group));
    let (wal, mut recovered) = Wal::repair(dir, options)?;
    // A whole segment was read at a time. What the log's replay allocates from now on would lie here and there in its memory, and
    // keep it: when this process is killed, its connections are closed only after its memory is freed, and failover waits for that.
    crate::memory::give_back();
    let mut recovered = recovered.remove(&group).unwrap_or_default();
    let found = opening::timing(&recovered);
    note_flags(Some(config.timing()).filter(|_| config.timing_is_given), found);
    let timing = found.unwrap_or(config.timing());
    let leases = matches!(config.tuning.node.raft.reads, ReadPath::Lease(_));
    let holds = opening::vote_holds(recorded.as_ref().ok().copied(), leases, timing);
    note_vote_holds(&recorded, &holds);
    recovered.vote_hold = holds.earlier;
    if let Some(longest) = holds.record {
        record.set(longest)?;
    }
    Ok(Opened { wal, head_start, recovered, identity, lives, known, record, timing })
}

/// The founding members under their first ids, at their present addresses.
fn with_places_of(began: &Began, now: &[Member]) -> Vec<Member> {
    let at =
        |member: &Member| now.iter().find(|other| other.name == member.name).map(|it| it.peer_urls.clone());
    let placed = began.members.iter().map(|member| Member {
        peer_urls: at(member).unwrap_or_else(|| member.peer_urls.clone()),
        ..member.clone()
    });
    placed.collect()
}

fn is_named(began_as: &[Began], identity: &Identity) -> bool {
    began_as.iter().any(|began| (began.cluster, began.id) == (identity.cluster, identity.node))
}

/// The identity that a running cluster assigns to a member.
async fn joined_identity(
    config: &RuntimeConfig,
    own: &Member,
    group: GroupId,
) -> Result<Identity, StartError> {
    let urls = config.members.iter().flat_map(|member| &member.peer_urls);
    let others = urls.filter_map(|url| PeerAddress::of(url));
    let mine = |address: &PeerAddress| {
        own.peer_urls.iter().any(|url| PeerAddress::of(url).as_ref() == Some(address))
    };
    let others = others.filter(|address| !mine(address)).collect();
    let tls = config.peer_tls.as_ref();
    let joiner = Joiner { name: &own.name, peer_urls: &own.peer_urls, others, tls, group };
    join::identity(&joiner).await.map_err(StartError::Join)
}

/// `voters` are those of the group's first configuration; empty for a member that joined.
fn raft_config(config: &RuntimeConfig, voters: impl Iterator<Item = NodeId>) -> Config {
    let mut raft = Config {
        incarnation: Incarnation(0), // the directory's, once it is open
        election_timeout: config.election_timeout,
        heartbeat_interval: config.heartbeat_interval,
        leadership: config.leadership,
        limits: config.limits,
        ..Config::new(config.id, voters, kattu_wal::encoder())
    };
    raft.tune(&config.tuning.node.raft);
    raft
}

fn node_config(config: &RuntimeConfig, name: String, raft: Config) -> NodeConfig {
    NodeConfig {
        snapshots: config.snapshots,
        transfers: config.transfers,
        digest_interval: config.digest_interval,
        batch_linger: config.tuning.node.batch_linger,
        apply_gate: config.tuning.node.apply_gate,
        name,
        client_urls: config.client_urls.clone(),
        ..NodeConfig::new(raft)
    }
}

/// The founding members.
fn began_with(identity: &Identity) -> Vec<MemberInfo> {
    let info = |member: &InitialMember| MemberInfo {
        id: member.id,
        name: member.name.clone(),
        peer_urls: member.peer_urls.clone(),
        ..MemberInfo::default()
    };
    identity.members.iter().map(info).collect()
}

/// The same as clients see them before any has published itself: every member replays its log from this.
fn first_members(identity: &Identity) -> Vec<MemberInfo> {
    began_with(identity).into_iter().map(|member| MemberInfo { name: String::new(), ..member }).collect()
}

async fn listen(places: &[(SocketAddr, Speaks)]) -> Result<Vec<(TcpListener, Speaks)>, StartError> {
    let mut listeners = Vec::new();
    for (address, speaks) in places {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| StartError::Listen { address: *address, error })?;
        listeners.push((listener, speaks.clone()));
    }
    Ok(listeners)
}
