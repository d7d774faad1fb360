//! TLS between members: a cluster that uses it, callers that must be refused, certificates that are renewed and revoked
//! while members run, and a cluster that moves from plain to TLS and back under load. [fault-model SE1–SE3]

use kattu_e2e::stranger::{self, Name, Told};
use kattu_rig::authority::{Authority, Good, Signed, Use};
use kattu_rig::programs::{own_folder, until};
use kattu_rig::{Cluster, Options};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The newest protocol version in docs/formats.
const NEWEST: u16 = 3;
/// An id that no member has.
const NOBODY: u64 = 0x5EED_5EED;

fn set(arguments: &mut [String], flag: &str, value: String) {
    let at = arguments.iter().position(|it| it == flag).expect("the flag is there");
    arguments[at + 1] = value;
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Sets a member's peer URLs: schemes on which it listens, and the one that it advertises.
fn reached_by(cluster: &mut Cluster, member: usize, listen: &[&str], reached: &str) {
    let all: Vec<(String, String)> =
        cluster.members.iter().map(|it| (it.name.clone(), it.endpoint.host.clone())).collect();
    let initial: Vec<String> =
        all.iter().map(|(name, host)| format!("{name}={reached}://{host}:2380")).collect();
    let host = all[member].1.clone();
    let listen: Vec<String> = listen.iter().map(|scheme| format!("{scheme}://{host}:2380")).collect();
    let arguments = cluster.members[member].arguments_mut();
    set(arguments, "--listen-peer-urls", listen.join(","));
    set(arguments, "--initial-advertise-peer-urls", format!("{reached}://{host}:2380"));
    set(arguments, "--initial-cluster", initial.join(","));
}

fn certify(cluster: &mut Cluster, member: usize, authority: &Authority) -> Signed {
    let member = &mut cluster.members[member];
    let signed = authority.sign(&member.name, &[&member.endpoint.host]);
    member.arguments_mut().extend([
        "--peer-cert-file".into(),
        text(&signed.cert),
        "--peer-key-file".into(),
        text(&signed.key),
        "--peer-trusted-ca-file".into(),
        text(&authority.ca()),
    ]);
    signed
}

/// A cluster whose members use TLS between each other, with a certificate each; not started yet.
fn plan(what: &str, authority: &Authority, flags: &[String]) -> (Cluster, Vec<Signed>) {
    let mut cluster = Cluster::plan(what, Options { members: 3, flags: flags.to_vec() });
    let mut signed = Vec::new();
    for member in 0..3 {
        reached_by(&mut cluster, member, &["https"], "https");
        signed.push(certify(&mut cluster, member, authority));
    }
    (cluster, signed)
}

fn peer(cluster: &Cluster, member: usize) -> String {
    format!("{}:2380", cluster.members[member].endpoint.host)
}

/// The ids of the members, in their order.
fn ids(cluster: &Cluster, scheme: &str) -> Vec<u64> {
    let kv = cluster.members[0].kv();
    let url = |host: &str| format!("{scheme}://{host}:2380");
    cluster.members.iter().map(|it| kv.id_at(&url(&it.endpoint.host)).expect("it is listed")).collect()
}

#[track_caller]
fn says(cluster: &Cluster, member: usize, what: &str) {
    let member = &cluster.members[member];
    until(what, || member.log_text().contains(what).then_some(()));
}

/// A stranger on the peer port, with TLS and this certificate.
struct Caller<'a> {
    cluster: &'a Cluster,
    authority: &'a Authority,
    told: &'a Told,
    ids: &'a [u64],
}

impl Caller<'_> {
    /// Sends a handshake from `from` to `to`, then these frames; returns whether it was accepted.
    fn says(&self, shows: &Signed, from: u64, to: usize, frames: &[Vec<u8>]) -> io::Result<bool> {
        let name = self.name(from, to);
        let address = peer(self.cluster, to);
        let mut socket = stranger::connect_in_tls(&address, &self.authority.ca(), Some(shows))?;
        name.says_on(&mut socket, frames).map(|(is_welcome, _)| is_welcome)
    }

    fn name(&self, from: u64, to: usize) -> Name {
        let cluster = self.told.cluster;
        Name { cluster, from, incarnation: 7, to: self.ids[to], lane: 2, newest: NEWEST }
    }
}

#[test]
fn a_peer_without_a_valid_certificate_is_refused_and_a_line_says_why() {
    let folder = own_folder("peer-tls-refused");
    let (authority, other) = (Authority::new(&folder, "ca"), Authority::new(&folder, "other"));
    let revoked = authority.sign("revoked", &["n.example"]);
    let crl = authority.revoke(&[&revoked]);
    let (mut cluster, members) =
        plan("peer-tls-refused", &authority, &["--peer-crl-file".into(), text(&crl)]);
    cluster.start_all();
    cluster.members[0].kv().put_surely("before", "1");
    let term = cluster.members[0].kv().status().expect("it answers").raft_term;
    let address = peer(&cluster, 0);

    // A connection whose certificate is refused does not get as far as the handshake.
    let hosts = ["n.example"];
    let expired = authority.sign_as("expired", &hosts, Good::Before, Use::All);
    let early = authority.sign_as("early", &hosts, Good::Later, Use::All);
    let server = authority.sign_as("server", &hosts, Good::Now, Use::Servers);
    let foreign = other.sign("foreign", &hosts);
    let cases: [(Option<&Signed>, &str); 6] = [
        (None, "presents no certificate"),
        (Some(&expired), "has expired"),
        (Some(&early), "not valid yet"),
        (Some(&server), "not for clients"),
        (Some(&foreign), "not signed by an authority in the trusted CA file"),
        (Some(&revoked), "is revoked"),
    ];
    for (shows, why) in cases {
        let socket = stranger::connect_in_tls(&address, &authority.ca(), shows);
        assert!(socket.and_then(|mut socket| stranger::join_on(&mut socket)).is_err(), "{why}");
        says(&cluster, 0, why);
    }
    // A connection without TLS gets an answer without TLS, and the member logs it.
    let told = stranger::join(&address).expect_err("it is refused").to_string();
    assert!(told.contains("kind 3"), "{told}");
    says(&cluster, 0, "this port speaks TLS: its URL must be https://");

    // A certificate signed for another host; and a member in the name of another.
    let wrong = authority.sign("wrong", &hosts);
    let mut socket = stranger::connect_in_tls(&address, &authority.ca(), Some(&wrong)).expect("it is signed");
    let told = stranger::join_on(&mut socket).expect("whoever is signed may ask");
    let ids = ids(&cluster, "https");
    let caller = Caller { cluster: &cluster, authority: &authority, told: &told, ids: &ids };
    for to in 0..3 {
        for from in (0..3).filter(|from| *from != to) {
            let another = 3 - from - to;
            for shows in [&wrong, &members[another], &members[to]] {
                let name = caller.name(ids[from], to);
                for frame in [
                    name.append(term),
                    name.append(term + 1),
                    name.append(u64::MAX),
                    name.vote(u64::MAX),
                    name.timeout_now(u64::MAX),
                    name.append_reply(term, 1 << 60, u64::MAX),
                ] {
                    let is_welcome = caller.says(shows, ids[from], to, &[frame]).expect("it is signed");
                    assert!(!is_welcome, "{} spoke in the name of n{from} to n{to}", text(&shows.cert));
                }
            }
        }
        // In the name of an unknown member it is asked for a proof, which it cannot give.
        let name = caller.name(NOBODY, to);
        let frames = [stranger::proof(0), stranger::proof(1), name.vote(u64::MAX)];
        assert!(caller.says(&wrong, NOBODY, to, &frames).expect("it is signed"));
    }
    for member in 0..3 {
        says(&cluster, member, "its certificate is not for ");
        let log = cluster.members[member].log_text();
        assert_eq!(
            log.matches("violated the protocol").count(),
            0,
            "nothing of it came as far as that:\n{log}"
        );
    }
    for member in &mut cluster.members {
        assert!(member.is_running(), "{}", member.log_text());
        member.kv().put_surely("after", "1");
    }
    assert_eq!(cluster.members[0].kv().status().expect("it answers").raft_term, term, "nobody was deposed");

    // A member's valid certificate lets its holder in as that member.
    let leader = cluster.leader();
    cluster.members[leader].kill();
    cluster.members[(leader + 1) % 3].kv().put_surely("after a failover", "1");
    cluster.members[leader].start();
    cluster.kill_all();
    cluster.start_all();
    let value = cluster.members[0].kv().get("before").expect("it serves");
    assert_eq!(value.as_deref(), Some(b"1".as_slice()));
}

/// Writers that go on until the test is over; each key is written once and must be there at the end.
struct Load {
    is_over: AtomicBool,
    done: AtomicU64,
}

impl Load {
    fn while_it_runs<T>(hosts: &[String], act: impl FnOnce(&Load) -> T) -> (T, u64) {
        let load = Load { is_over: AtomicBool::new(false), done: AtomicU64::new(0) };
        let done = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let kvs: Vec<_> =
                    hosts.iter().map(|host| kattu_rig::Kv::of(&format!("{host}:2379"))).collect();
                while !load.is_over.load(Ordering::Relaxed) {
                    let number = load.done.load(Ordering::Relaxed);
                    // On any member that can serve it just now.
                    let key = format!("load/{number}");
                    let wrote = (0..).any(|at: usize| {
                        assert!(at < 10_000, "{key} finds nobody");
                        kvs[at % kvs.len()].put(key.clone(), "x").is_ok()
                    });
                    assert!(wrote);
                    load.done.fetch_add(1, Ordering::Relaxed);
                }
            });
            let acted = act(&load);
            load.is_over.store(true, Ordering::Relaxed);
            writer.join().expect("every write finds somebody");
            acted
        });
        (done, load.done.load(Ordering::Relaxed))
    }

    /// Waits for more writes.
    fn goes_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        until("writes go on", || (before + 20 <= self.done.load(Ordering::Relaxed)).then_some(()));
    }
}

fn hosts(cluster: &Cluster) -> Vec<String> {
    cluster.members.iter().map(|member| member.endpoint.host.clone()).collect()
}

#[track_caller]
fn nothing_is_lost(cluster: &Cluster, written: u64) {
    let kv = cluster.members[0].kv();
    for number in 0..written {
        let value = kv.get(format!("load/{number}")).expect("it serves");
        assert_eq!(value.as_deref(), Some(b"x".as_slice()), "load/{number} of {written}");
    }
}

#[test]
fn a_cluster_moves_from_plain_to_tls_and_back_under_load() {
    let folder = own_folder("peer-tls-moves");
    let authority = Authority::new(&folder, "ca");
    let mut cluster = Cluster::start("peer-tls-moves", 3);
    let all = ids(&cluster, "http");
    let ((), written) = Load::while_it_runs(&hosts(&cluster), |load| {
        let restart = |cluster: &mut Cluster, member: usize| {
            cluster.members[member].stop("TERM");
            cluster.members[member].start();
            load.goes_on();
        };
        let update = |cluster: &Cluster, scheme: &str| {
            for (member, id) in all.iter().enumerate() {
                let url = format!("{scheme}://{}:2380", cluster.members[member].endpoint.host);
                let kv = cluster.members[(member + 1) % 3].kv();
                until("the table has the new URL", || kv.member_update(*id, &url).ok());
                load.goes_on();
            }
        };
        // 1. Every member can do both.
        for member in 0..3 {
            certify(&mut cluster, member, &authority);
            reached_by(&mut cluster, member, &["http", "https"], "http");
            restart(&mut cluster, member);
        }
        // 2. The others connect with TLS.
        update(&cluster, "https");
        // 3. Connections without TLS are refused.
        for member in 0..3 {
            reached_by(&mut cluster, member, &["https"], "https");
            restart(&mut cluster, member);
        }
        let told = stranger::join(&peer(&cluster, 0)).expect_err("it is refused").to_string();
        assert!(told.contains("kind 3"), "{told}");
        assert_eq!(ids(&cluster, "https"), all, "they are the same members");

        // And back.
        for member in 0..3 {
            reached_by(&mut cluster, member, &["http", "https"], "https");
            restart(&mut cluster, member);
        }
        update(&cluster, "http");
        for member in 0..3 {
            reached_by(&mut cluster, member, &["http"], "http");
            let arguments = cluster.members[member].arguments_mut();
            arguments.truncate(arguments.len() - 6); // the certificate, its key, the authorities
            restart(&mut cluster, member);
        }
        stranger::join(&peer(&cluster, 0)).expect("it is as it was");
    });
    nothing_is_lost(&cluster, written);
}

#[test]
fn members_renew_their_certificates_under_load_and_a_revoked_one_is_refused() {
    let folder = own_folder("peer-tls-renewed");
    let authority = Authority::new(&folder, "ca");
    let crl = authority.revoke(&[]);
    let flags = [
        "--peer-crl-file".into(),
        text(&crl),
        "--election-timeout=5000".into(),
        "--heartbeat-interval=500".into(),
    ];
    let (mut cluster, members) = plan("peer-tls-renewed", &authority, &flags);
    cluster.start_all();
    cluster.members[0].kv().put_surely("before", "1");
    let term = |cluster: &Cluster| cluster.members[0].kv().status().expect("it answers").raft_term;
    let before = term(&cluster);
    let (renewed, written) = Load::while_it_runs(&hosts(&cluster), |load| {
        let mut renewed = members;
        for round in 1..=3 {
            for (member, signed) in cluster.members.iter().zip(&mut renewed) {
                *signed = authority.sign(&member.name, &[&member.endpoint.host]);
            }
            for member in &cluster.members {
                until("the member has read its new certificate", || {
                    let times = member.log_text().matches("--peer-cert-file: reloaded").count();
                    (round <= times).then_some(())
                });
            }
            load.goes_on();
        }
        renewed
    });
    assert_eq!(term(&cluster), before, "no connection was lost over it");
    nothing_is_lost(&cluster, written);
    // A member that starts now presents the new one, and the others accept it.
    let leader = cluster.leader();
    let (out, stays) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.members[out].stop("TERM");
    cluster.members[out].start();
    cluster.members[out].kv().put_surely("it is back", "1");

    // A member whose certificate is revoked is cut off in both directions; the others go on.
    let _ = authority.revoke(&[&renewed[out]]);
    says(&cluster, leader, "its certificate is revoked");
    says(&cluster, stays, "its certificate is revoked");
    cluster.members[leader].kv().put_surely("without it", "1");
    let kv = cluster.members[out].kv();
    until("the one that is revoked hears nothing any more", || {
        kv.get("without it").map_or(Some(()), |_| None)
    });
    // With another certificate it is back.
    let _ = authority.sign(&cluster.members[out].name, &[&cluster.members[out].endpoint.host]);
    until("it is back", || kv.get("without it").ok().flatten().filter(|value| value == b"1"));
}

#[test]
fn a_member_joins_in_tls_and_one_with_a_certificate_for_another_host_does_not_get_in() {
    let folder = own_folder("peer-tls-joins");
    let authority = Authority::new(&folder, "ca");
    let (mut cluster, _) = plan("peer-tls-joins", &authority, &[]);
    cluster.start_all();
    cluster.members[0].kv().put_surely("k", "v");
    let joins = cluster.plan_joining("peer-tls-joins");
    reached_by(&mut cluster, joins, &["https"], "https");
    let host = cluster.members[joins].endpoint.host.clone();
    let wrong = authority.sign("wrong", &["n.example"]);
    certify(&mut cluster, joins, &authority);
    let right = cluster.members[joins].arguments_mut().clone();
    set(cluster.members[joins].arguments_mut(), "--peer-cert-file", text(&wrong.cert));
    set(cluster.members[joins].arguments_mut(), "--peer-key-file", text(&wrong.key));
    let url = format!("https://{host}:2380");
    cluster.members[0].kv().member_add_surely(&url, false);
    cluster.members[joins].spawn().expect("it can be run");
    says(&cluster, joins, "the certificate is not for");
    says(&cluster, 0, "its certificate is not for this host");
    cluster.members[joins].kill();
    *cluster.members[joins].arguments_mut() = right;
    cluster.members[joins].start();
    assert_eq!(cluster.members[joins].kv().get("k").expect("it serves").as_deref(), Some(b"v".as_slice()));
}

#[test]
fn certificates_that_members_make_themselves_encrypt_and_strangers_prove_nothing_with_theirs() {
    let mut cluster = Cluster::plan("peer-tls-auto", Options { members: 3, ..Options::default() });
    for member in 0..3 {
        reached_by(&mut cluster, member, &["https"], "https");
        cluster.members[member].arguments_mut().push("--peer-auto-tls".into());
    }
    cluster.start_all();
    cluster.members[0].kv().put_surely("k", "v");
    says(&cluster, 0, "members cannot verify each other's certificates");
    for member in &cluster.members {
        until("all members know that all can prove who they are", || {
            member.metric("kattu_feature_level").filter(|level| 2 <= *level)
        });
    }
    let made = cluster.members[0].data.join(".tls/peer.crt");
    let connect = || stranger::connect_in_tls(&peer(&cluster, 0), &made, None).expect("nobody is asked");
    let told = stranger::join_on(&mut connect()).expect("it is told");
    let ids = ids(&cluster, "https");
    let term = cluster.members[0].kv().status().expect("it answers").raft_term;
    let name =
        Name { cluster: told.cluster, from: ids[1], incarnation: 7, to: ids[0], lane: 2, newest: NEWEST };
    for frame in [name.append(u64::MAX), name.vote(u64::MAX), name.timeout_now(u64::MAX)] {
        let told = name.says_on(&mut connect(), &[stranger::proof(0), stranger::proof(1), frame]);
        assert!(told.is_ok(), "it may greet, and is asked for a proof: {told:?}");
    }
    for member in &mut cluster.members {
        assert!(member.is_running(), "{}", member.log_text());
        member.kv().put_surely("after", "1");
    }
    assert_eq!(cluster.members[0].kv().status().expect("it answers").raft_term, term);
}

/// A scheme that does not match is reported by both members.
#[test]
fn a_member_that_is_reached_by_the_wrong_scheme_says_so() {
    let folder = own_folder("peer-tls-schemes");
    let authority = Authority::new(&folder, "ca");
    let (mut cluster, _) = plan("peer-tls-schemes", &authority, &[]);
    cluster.start_all();
    cluster.members[0].kv().put_surely("k", "v");
    // n2 listens without TLS from now on, and the others connect with TLS.
    cluster.members[2].stop("TERM");
    reached_by(&mut cluster, 2, &["http"], "http");
    cluster.members[2].spawn().expect("it can be run");
    says(&cluster, 2, "it speaks TLS, and this port does not");
    says(&cluster, 0, "it does not speak TLS; use http://");
    cluster.members[2].kill();
    reached_by(&mut cluster, 2, &["https"], "https");
    cluster.members[2].start();
    let value = cluster.members[2].kv().get("k").expect("it serves");
    assert_eq!(value.as_deref(), Some(b"v".as_slice()));
}
