//! Bad bytes: from peers, from clients, on the disk. The process survives those that come from outside, and refuses
//! damage at rest with an error that names file and offset.

use kattu_rig::{Cluster, Kv, Options, until};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: &[u8; 4] = b"KTF\xA7";

/// A frame by hand, so that each part of it can be wrong. [docs/formats/frame.md]
fn frame(layout: u8, kind: u8, fields: &[u8]) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend([layout, kind, 0, 0]);
    header.extend((24 + fields.len() as u32).to_le_bytes());
    header.extend((fields.len() as u32).to_le_bytes());
    header.extend(crc32c::crc32c(fields).to_le_bytes());
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header.extend(fields);
    header
}

/// A handshake in protocol versions `min..=max`.
fn hello(min: u16, max: u16, cluster: u64, from: u64, to: u64) -> Vec<u8> {
    let mut fields = Vec::new();
    fields.extend(min.to_le_bytes());
    fields.extend(max.to_le_bytes());
    for id in [cluster, from, 1, to] {
        fields.extend(id.to_le_bytes());
    }
    fields.extend([1, 0]);
    frame(1, 1, &fields)
}

/// Sends bytes, then reads until the other side closes, which it does when it has read our end.
fn talk(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the port is open");
    stream.set_read_timeout(Some(Duration::from_secs(15))).expect("a limit");
    // The other side may close while we still write.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn ids(cluster: &Cluster) -> (u64, Vec<u64>) {
    let headers: Vec<_> = cluster
        .members
        .iter()
        .map(|member| member.kv().status().expect("status").header.expect("a header"))
        .collect();
    (headers[0].cluster_id, headers.iter().map(|header| header.member_id).collect())
}

fn assert_serves(cluster: &mut Cluster, key: &str) {
    for i in 0..cluster.members.len() {
        assert!(cluster.members[i].is_running(), "n{i} is gone:\n{}", cluster.members[i].log_text());
        let kv = cluster.members[i].kv();
        until("a put succeeds", || kv.put(format!("{key}{i}"), "x").ok());
    }
}

#[test]
fn a_peer_port_survives_bytes_that_are_no_frames() {
    let mut cluster = Cluster::start("frames", 3);
    let (id, members) = ids(&cluster);
    let peer = format!("{}:2380", cluster.members[0].endpoint.host);
    let good = hello(1, 1, id, members[1], members[0]);
    let mut wrong_header = good.clone();
    wrong_header[8] ^= 0x40;
    let mut wrong_fields = good.clone();
    *wrong_fields.last_mut().expect("fields") ^= 1;
    let mut huge = MAGIC.to_vec();
    huge.extend([1, 16, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0]);
    huge.extend(crc32c::crc32c(&huge).to_le_bytes());
    let unknown_kind = [good.clone(), frame(1, 250, b"?")].concat();
    let empty_append = [good.clone(), frame(1, 16, b"")].concat();
    let mut inputs: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0; 10_000],
        vec![0xff; 10_000],
        wrong_header,
        wrong_fields,
        huge,
        unknown_kind,
        empty_append,
    ];
    inputs.extend((1..good.len()).map(|length| good[..length].to_vec()));
    for input in inputs {
        talk(&peer, &input);
    }
    assert_serves(&mut cluster, "frames");
}

#[test]
fn a_peer_of_another_version_is_refused_with_a_reason() {
    let mut cluster = Cluster::start("version", 3);
    let (id, members) = ids(&cluster);
    let peer = format!("{}:2380", cluster.members[0].endpoint.host);
    let answer = talk(&peer, &hello(900, 901, id, members[1], members[0]));
    assert!(String::from_utf8_lossy(&answer).contains("900..=901"), "{}", answer.escape_ascii());
    until("the member says so in its log", || {
        cluster.members[0].log_text().contains("900..=901").then_some(())
    });
    // An unknown frame layout.
    talk(&peer, &frame(99, 1, b"from tomorrow"));
    // Another cluster's member at the right address.
    let answer = talk(&peer, &hello(1, 1, id ^ 1, members[1], members[0]));
    assert!(String::from_utf8_lossy(&answer).contains("cluster"), "{}", answer.escape_ascii());
    // A sender that is no member.
    talk(&peer, &hello(1, 1, id, 0xdead_beef, members[0]));
    assert_serves(&mut cluster, "version");
}

#[test]
fn a_client_port_survives_bytes_that_are_no_requests() {
    let mut cluster = Cluster::start("garbage", 1);
    let address = cluster.members[0].address();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for input in [
        Vec::new(),
        vec![0xff; 5_000],
        b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
        b"POST /etcdserverpb.KV/Put HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nx".to_vec(),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(1 << 20)).into_bytes(),
        preface.clone(),
        [&preface[..], &settings, &[0xff; 3_000]].concat(),
        // A header block that is no HPACK.
        [&preface[..], &settings, &[0, 0, 4, 1, 5, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]].concat(),
        // Data for a stream that was never opened.
        [&preface[..], &settings, &[0, 0, 4, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0]].concat(),
    ] {
        talk(&address, &input);
    }
    assert_serves(&mut cluster, "garbage");
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count).unwrap_or(0)
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let mut cluster = Cluster::start("vanish", 1);
    let pid = cluster.members[0].pid();
    let address = cluster.members[0].address();
    // A client of ours, so that its connection is counted before and after.
    let kv = cluster.members[0].kv();
    kv.put("first", "x").expect("a put");
    let before = open_files(pid);
    for round in 0..20 {
        // Half a request, then a closed socket.
        let mut half = TcpStream::connect(&address).expect("the port is open");
        half.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x30\x01\x04\0\0\0\x01")
            .expect("sent");
        drop(half);
        // A put whose client is gone before the answer.
        let gone = Kv::of(&address).within(Duration::from_micros(300 * round));
        let _ = gone.put(format!("gone/{round}"), vec![b'x'; 100_000]);
    }
    until("their connections are closed", || (open_files(pid) <= before + 1).then_some(()));
    assert_serves(&mut cluster, "vanish");
}

/// The file in a folder, and the offset in it, at which these bytes are.
fn find(folder: &Path, bytes: &[u8]) -> Option<(PathBuf, usize)> {
    std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        if entry.path().is_dir() {
            return find(&entry.path(), bytes);
        }
        let contents = std::fs::read(entry.path()).ok()?;
        let place = contents.windows(bytes.len()).position(|window| window == bytes)?;
        Some((entry.path(), place))
    })
}

const MARKER: &[u8] = b"this value is damaged while the member is away";

/// A killed member with acknowledged values before and after the one that the test damages.
fn killed_member(what: &str) -> (Cluster, PathBuf, usize) {
    let mut cluster = Cluster::with(what, Options { members: 1, flags: Vec::new() });
    let kv = cluster.members[0].kv();
    for i in 0..50 {
        kv.put(format!("before{i}"), "x".repeat(100)).expect("a put");
    }
    kv.put("marked", MARKER).expect("a put");
    for i in 0..50 {
        kv.put(format!("after{i}"), "x".repeat(100)).expect("a put");
    }
    cluster.members[0].kill();
    let (file, place) = find(&cluster.members[0].data, MARKER).expect("the value is in the log");
    (cluster, file, place)
}

fn assert_refuses(cluster: &mut Cluster, file: &Path) {
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    cluster.members[0].spawn().expect("it can be run");
    let ended = cluster.members[0].wait_end();
    ended.expect_code(4);
    assert!(ended.err.contains(&name), "the file is not named:\n{}", ended.err);
    assert!(ended.err.contains("byte") || ended.err.contains("offset"), "no offset is named:\n{}", ended.err);
    let mut inspect = std::process::Command::new(kattu_rig::kattu());
    inspect.args(["wal", "inspect"]).arg(&cluster.members[0].data);
    let inspected = kattu_rig::programs::run(&mut inspect);
    inspected.expect_code(4);
    assert!(inspected.all().contains(&name), "{}", inspected.all());
}

#[test]
fn a_flipped_bit_in_the_log_stops_the_member_and_is_named() {
    let (mut cluster, file, place) = killed_member("flip");
    let mut contents = std::fs::read(&file).expect("the log");
    contents[place + 5] ^= 0x10;
    std::fs::write(&file, &contents).expect("written");
    assert_refuses(&mut cluster, &file);
    // Repaired, everything is there: the refusal changed nothing.
    contents[place + 5] ^= 0x10;
    std::fs::write(&file, &contents).expect("written");
    cluster.members[0].start();
    assert_eq!(cluster.members[0].kv().get("marked").expect("a read"), Some(MARKER.to_vec()));
    assert_eq!(cluster.members[0].kv().count("after", false).expect("a read"), 50);
}

#[test]
fn a_log_cut_in_its_middle_stops_the_member_and_is_named() {
    let (mut cluster, file, place) = killed_member("cut");
    let log = std::fs::File::options().write(true).open(&file).expect("the log");
    log.set_len(place as u64).expect("cut");
    assert_refuses(&mut cluster, &file);
}

#[test]
fn a_log_overwritten_with_zeros_in_its_middle_stops_the_member_and_is_named() {
    let (mut cluster, file, place) = killed_member("zeros");
    let mut contents = std::fs::read(&file).expect("the log");
    contents[place..place + MARKER.len()].fill(0);
    std::fs::write(&file, contents).expect("written");
    assert_refuses(&mut cluster, &file);
}

#[test]
fn damage_to_the_log_of_a_member_that_runs_is_found_by_its_scrub_and_repaired_from_the_others() {
    let flags = vec!["--scrub-period".to_string(), "400".to_string()];
    let mut cluster = Cluster::with("scrub", Options { members: 3, flags });
    let leader = cluster.leader();
    let kv = cluster.members[leader].kv();
    kv.put_surely("marked", MARKER);
    for i in 0..50 {
        kv.put_surely(format!("after{i}"), "x".repeat(100));
    }
    let hit = (leader + 1) % 3;
    let member = &mut cluster.members[hit];
    let name = "log-0000000000000001.seg";
    let log = std::fs::File::options().read(true).write(true).open(member.data.join(name)).expect("the log");
    let place = until("the value is in its log", || {
        let mut begin = vec![0; 256 << 10];
        log.read_exact_at(&mut begin, 0).expect("a log is larger");
        begin.windows(MARKER.len()).position(|window| window == MARKER)
    });
    let mut byte = [0];
    log.read_exact_at(&mut byte, place as u64 + 5).expect("a byte");
    log.write_all_at(&[byte[0] ^ 0x10], place as u64 + 5).expect("written");

    let ended = member.wait_end();
    ended.expect_code(1);
    assert!(ended.err.contains("the scrub found damage") && ended.err.contains(name), "{}", ended.err);
    kv.put_surely("without", "it"); // two of three are a quorum
    member.start();
    assert_eq!(member.kv().get("marked").expect("a read"), Some(MARKER.to_vec()));
    assert_eq!(member.kv().get("without").expect("a read"), Some(b"it".to_vec()));
}

#[test]
fn damage_to_all_snapshots_of_a_member_that_runs_is_told_by_its_scrub_and_does_not_end_it() {
    let flags = ["--scrub-period=400", "--segment-bytes=1048576", "--snapshot-log-bytes=1048576"];
    let flags = flags.into_iter().chain(["--snapshot-keep-bytes=65536", "--disk-reserve-bytes=1048576"]);
    let flags = flags.map(str::to_string).collect();
    let mut cluster = Cluster::with("scrub-snapshots", Options { members: 3, flags });
    let leader = cluster.leader();
    let kv = cluster.members[leader].kv();
    let member = &mut cluster.members[(leader + 1) % 3];
    let ending_in = |data: &Path, ending: &str| -> BTreeSet<PathBuf> {
        let entries = std::fs::read_dir(data).expect("its directory").flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|it| it == ending))
            .collect()
    };
    let snapshots = |data: &Path| ending_in(data, "snap");
    let log_begins = |data: &Path| data.join("log-0000000000000001.seg").exists();
    let mut written = 0;
    until("its log rests on a snapshot", || {
        kv.put_surely(format!("large{}", written % 20), "x".repeat(100 << 10));
        written += 1;
        (!snapshots(&member.data).is_empty() && !log_begins(&member.data)).then_some(())
    });
    // A snapshot under way would replace the damaged ones.
    until("no snapshot is under way", || {
        let before = snapshots(&member.data);
        std::thread::sleep(Duration::from_secs(1));
        (snapshots(&member.data) == before && ending_in(&member.data, "part").is_empty()).then_some(())
    });
    let mut hit = Vec::new();
    for path in snapshots(&member.data) {
        // It may have been removed by now, and must not be recreated.
        let Ok(file) = std::fs::File::options().read(true).write(true).open(&path) else { continue };
        let middle = file.metadata().expect("its length").len() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle).expect("a byte");
        file.write_all_at(&[byte[0] ^ 0x10], middle).expect("written");
        hit.push(path.file_name().expect("a name").to_string_lossy().into_owned());
    }
    assert!(!hit.is_empty(), "its log rests on no snapshot any more");
    until("the scrub tells of it", || {
        let said = member.log_text();
        let mut told = said.lines().filter(|line| line.contains("the scrub found damage"));
        told.any(|line| hit.iter().any(|name| line.contains(name))).then_some(())
    });
    kv.put_surely("after", "it");
    assert_eq!(member.kv().get("after").expect("it still runs"), Some(b"it".to_vec()));
    member.kill();
    member.start();
    assert_eq!(member.kv().get("after").expect("a read"), Some(b"it".to_vec()));
}
