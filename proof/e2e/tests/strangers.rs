//! Strangers on the peer port that know the format pages: they cannot end a member, speak in a member's name, or take a
//! member's place. [fault-model P11, decision 51]

use kattu_e2e::stranger::{self, Name, Told};
use kattu_rig::Cluster;
use kattu_rig::programs::{memory_of, until};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The newest protocol version in docs/formats.
const NEWEST: u16 = 3;

/// A cluster whose members all know that all can prove their identity, and what a stranger learns of it.
struct Scenario {
    cluster: Cluster,
    told: Told,
    ids: Vec<u64>,
    /// The members' incarnations, as accepted handshakes return them.
    incarnations: Vec<u64>,
}

/// An id that no member has.
const NOBODY: u64 = 0x5EED_5EED;

impl Scenario {
    fn new(what: &str) -> Scenario {
        let cluster = Cluster::start(what, 3);
        cluster.members[0].kv().put_surely("before", "1");
        for member in &cluster.members {
            until("all members know that all can prove who they are", || {
                member.metric("kattu_feature_level").filter(|level| 2 <= *level)
            });
        }
        let told =
            until("a member tells a stranger who is there", || stranger::join(&peer(&cluster, 0)).ok());
        let kv = cluster.members[0].kv();
        let ids = cluster.members.iter().map(|member| kv.id_at(&member.peer_url()).expect("it is listed"));
        let ids: Vec<u64> = ids.collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert_eq!(told.members, sorted, "that much everybody may know");
        let mut scenario = Scenario { cluster, told, ids, incarnations: Vec::new() };
        scenario.incarnations = (0..3)
            .map(|to| scenario.name(NOBODY, to).asks_incarnation(&peer(&scenario.cluster, to)))
            .collect::<Result<_, _>>()
            .expect("whoever is welcome is told");
        scenario
    }

    /// A handshake from `from` to the member at `to`.
    fn name(&self, from: u64, to: usize) -> Name {
        let cluster = self.told.cluster;
        let whose = self.ids.iter().position(|id| *id == from);
        let incarnation = whose.and_then(|whose| self.incarnations.get(whose)).copied().unwrap_or(7);
        Name { cluster, from, incarnation, to: self.ids[to], lane: 2, newest: NEWEST }
    }

    fn term(&self) -> u64 {
        self.cluster.members[0].kv().status().expect("it answers").raft_term
    }

    /// No member has ended, the same one leads in the same term, and writes go on.
    #[track_caller]
    fn goes_on(&mut self, term: u64, why: &str) {
        for member in &mut self.cluster.members {
            assert!(member.is_running(), "{why}: {} has ended:\n{}", member.name, member.log_text());
        }
        for member in &self.cluster.members {
            member.kv().put_surely(format!("after {why}"), "1");
        }
        assert_eq!(self.term(), term, "{why}: there was an election");
    }

    /// Failover and restarts work.
    fn recovers(&mut self) {
        let leader = self.cluster.leader();
        self.cluster.members[leader].kill();
        let another = (leader + 1) % 3;
        self.cluster.members[another].kv().put_surely("after a failover", "1");
        self.cluster.members[leader].start();
        self.cluster.members[leader].kv().put_surely("after a restart", "1");
        self.cluster.kill_all();
        self.cluster.start_all();
        let value = self.cluster.members[0].kv().get("before").expect("it serves");
        assert_eq!(value.as_deref(), Some(b"1".as_slice()));
    }
}

fn peer(cluster: &Cluster, member: usize) -> String {
    format!("{}:2380", cluster.members[member].endpoint.host)
}

#[test]
fn no_frame_of_a_stranger_ends_a_member_or_a_leadership() {
    let mut scenario = Scenario::new("strangers-frames");
    let term = scenario.term();
    for to in 0..3 {
        let address = peer(&scenario.cluster, to);
        let names = scenario.ids.clone().into_iter().chain([NOBODY]).filter(|from| *from != scenario.ids[to]);
        for from in names.collect::<Vec<_>>() {
            for newest in [NEWEST, 2, 1] {
                let name = Name { newest, ..scenario.name(from, to) };
                let says = [
                    name.append(term),
                    name.append(term + 1),
                    name.append(u64::MAX),
                    name.vote(term + 1),
                    name.vote(u64::MAX),
                    name.timeout_now(term),
                    name.timeout_now(u64::MAX),
                    name.append_reply(term, 1 << 60, 0),
                    name.append_reply(term, 1, u64::MAX),
                ];
                for frame in says {
                    let told = name.says(&address, &[frame]).expect("the port is open");
                    assert_eq!(told.0, newest == NEWEST, "whose version proves nothing is not welcome");
                }
                let all = [stranger::proof(0), stranger::proof(1), name.vote(u64::MAX)];
                name.says(&address, &all).expect("the port is open");
            }
        }
        scenario.goes_on(term, "frames of strangers");
    }
    for member in &scenario.cluster.members {
        let falsehoods = member.log_text().matches("violated the protocol").count();
        assert_eq!(falsehoods, 0, "nothing of it came as far as that");
    }
    scenario.recovers();
}

#[test]
fn a_member_is_neither_cut_off_nor_shut_out_by_a_handshake_in_its_name() {
    let mut scenario = Scenario::new("strangers-names");
    let leader = scenario.cluster.leader();
    let (victim, address) = ((leader + 1) % 3, peer(&scenario.cluster, leader));
    let term = scenario.term();

    // From another incarnation, again and again, on all lanes, while the member is there and sends.
    let stop = Arc::new(AtomicBool::new(false));
    let handshakes = Arc::new(AtomicU64::new(0));
    let as_victim = scenario.name(scenario.ids[victim], leader);
    let names: Vec<Name> = [(1, 7), (2, 7), (1, as_victim.incarnation), (2, as_victim.incarnation), (3, 7)]
        .map(|(lane, incarnation)| Name { lane, incarnation, ..as_victim })
        .into();
    let calling: Vec<_> = names
        .iter()
        .map(|name| {
            let (stop, handshakes, address, name) =
                (stop.clone(), handshakes.clone(), address.clone(), *name);
            std::thread::spawn(move || {
                let mut open: Vec<TcpStream> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(mut socket) = name.opens(&address) {
                        let _ = socket.write_all(&stranger::proof(0)); // provokes the request for a proof
                        open.push(socket);
                    }
                    handshakes.fetch_add(1, Ordering::Relaxed);
                    if 100 < open.len() {
                        open.clear();
                    }
                }
            })
        })
        .collect();
    let begun = Instant::now();
    let mut puts = 0;
    while begun.elapsed() < Duration::from_secs(3) || handshakes.load(Ordering::Relaxed) < 1_000 {
        scenario.cluster.members[victim]
            .kv()
            .put_surely(format!("{puts}"), "through the one that is impersonated");
        puts += 1;
    }
    assert_eq!(scenario.term(), term, "nobody was deposed");

    // And while it is away and comes back.
    scenario.cluster.members[victim].kill();
    scenario.cluster.members[victim].start();
    scenario.cluster.members[victim].kv().put_surely("it is back", "1");
    // After a restart, the target knows nothing of earlier handshakes.
    scenario.cluster.members[leader].kill();
    scenario.cluster.members[leader].start();
    scenario.cluster.members[victim].kill();
    scenario.cluster.members[victim].start();
    scenario.cluster.members[victim].kv().put_surely("it is back again", "1");
    stop.store(true, Ordering::Relaxed);
    for thread in calling {
        thread.join().expect("it greets to the end");
    }
    assert!(1_000 <= handshakes.load(Ordering::Relaxed));
    let victims = scenario.cluster.members[victim].log_text();
    assert!(!victims.contains("with another data directory"), "it was taken for somebody else:\n{victims}");
    scenario.recovers();
}

#[test]
fn strangers_cost_bounded_memory_and_no_member_dials_their_addresses() {
    let mut scenario = Scenario::new("strangers-memory");
    let term = scenario.term();
    let trap = TcpListener::bind("127.0.0.1:0").expect("a port");
    trap.set_nonblocking(true).expect("it can be asked");
    let url = format!("http://{}", trap.local_addr().expect("it is bound"));
    let address = peer(&scenario.cluster, 0);
    let before = memory_of(scenario.cluster.members[0].pid(), "VmRSS");

    let mut open = Vec::new();
    for number in 0..2_000_u64 {
        let name = scenario.name(0x1000 + number, 0);
        let mut socket = name.opens(&address).expect("the port is open");
        let _ = socket.write_all(&match number % 4 {
            0 => stranger::introduction(&url),
            1 => stranger::introduction(&"x".repeat(60_000)),
            2 => stranger::half_frame(stranger::kind::APPEND, 16 << 20),
            _ => stranger::half_frame(stranger::kind::INTRODUCTION, 4_000),
        });
        open.push(socket);
    }
    scenario.goes_on(term, "2,000 strangers");
    let grown = memory_of(scenario.cluster.members[0].pid(), "VmRSS").saturating_sub(before);
    assert!(grown < 64 << 20, "2,000 strangers cost {grown} bytes");
    assert!(trap.accept().is_err(), "a member dials where a stranger says that it is reached");

    // A member that restarts while they all stay connected is accepted.
    scenario.cluster.members[1].kill();
    scenario.cluster.members[1].start();
    scenario.cluster.members[1].kv().put_surely("it found its place", "1");
    drop(open);
    scenario.recovers();
}
