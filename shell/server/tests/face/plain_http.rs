//! `/health`, `/version`, `/metrics` over HTTP/1.1 on the port that speaks gRPC.

use crate::fixture::*;
use kattu_node::contract::{MemberChange, MemberRefusal, Outcome, Refusal, Request};
use kattu_raft::NbRaft;
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{Protocol, Timing};
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends a request; returns status code, head and body.
pub async fn ask(face: &Face, method: &str, target: &str) -> (u16, String, String) {
    let mut stream = face.raw().await;
    let request = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, head.to_ascii_lowercase(), body.to_string())
}

#[tokio::test]
async fn version_is_etcds_with_kattus_beside_it() {
    let face = Face::start().await;
    let (code, head, body) = ask(&face, "GET", "/version").await;
    assert_eq!(code, 200);
    assert!(head.contains("content-type: application/json"), "{head}");
    let own = env!("CARGO_PKG_VERSION");
    let expected =
        format!(r#"{{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0","kattu":"{own}"}}"#);
    assert_eq!(body, expected);
}

#[tokio::test]
async fn health_names_the_first_thing_that_is_wrong() {
    let face = Face::start().await;
    let good = (200, r#"{"health":"true","reason":""}"#.to_string());
    let bad = |reason: &str| (503, format!("{{\"health\":\"false\",\"reason\":\"{reason}\"}}\n"));
    let health = async |query: &str| {
        let (code, _, body) = ask(&face, "GET", &format!("/health{query}")).await;
        (code, body)
    };
    assert_eq!(health("").await, good);
    face.store.set(|state| state.no_space = true);
    assert_eq!(health("").await, bad("ALARM NOSPACE"));
    assert_eq!(health("?exclude=NOSPACE").await, good);
    assert_eq!(health("?exclude=CORRUPT").await, bad("ALARM NOSPACE"));
    face.store.set(|state| (state.no_space, state.leaderless) = (false, true));
    assert_eq!(health("").await, bad("RAFT NO LEADER"));
    assert_eq!(health("?serializable=true").await, good);
    face.store.set(|state| {
        state.leaderless = false;
        state.instead = Some(Outcome::Refused(Refusal::ReadTimedOut));
    });
    assert_eq!(health("").await, bad("RANGE ERROR:etcdserver: request timed out"));
    assert_eq!(face.config.counters.health_success.get(), 3);
    assert_eq!(face.config.counters.health_failure.get(), 4);
}

#[tokio::test]
async fn wrong_methods_and_paths_are_refused_as_etcd_refuses_them() {
    let face = Face::start().await;
    for target in ["/health", "/version", "/metrics"] {
        let (code, head, body) = ask(&face, "POST", target).await;
        assert_eq!((code, body.as_str()), (405, "Method Not Allowed\n"), "{target}");
        assert!(head.contains("allow: get"), "{head}");
    }
    let (code, _, body) = ask(&face, "GET", "/nowhere").await;
    assert_eq!((code, body.as_str()), (404, "404 page not found\n"));
    let (code, _, body) = ask(&face, "POST", "/v3/kv/range").await;
    assert_eq!(code, 501);
    assert!(body.contains(r#""code":12"#), "{body}");
}

#[tokio::test]
async fn metrics_count_calls_by_code_and_carry_etcds_names() {
    let face = Face::start().await;
    let mut kv = face.kv().await;
    kv.put(put("a", "1")).await.unwrap();
    kv.put(put("", "1")).await.unwrap_err();
    let (code, head, body) = ask(&face, "GET", "/metrics").await;
    assert_eq!(code, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let put = r#"grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}"#;
    for line in [
        format!("grpc_server_started_total{{{put} 2"),
        format!("grpc_server_handled_total{{grpc_code=\"OK\",{put} 1"),
        format!("grpc_server_handled_total{{grpc_code=\"InvalidArgument\",{put} 1"),
        "etcd_server_has_leader 1".to_string(),
        "etcd_server_is_leader 1".to_string(),
        "etcd_server_proposals_committed_total 1".to_string(),
        "etcd_debugging_mvcc_current_revision 2".to_string(),
        "etcd_debugging_mvcc_keys_total 1".to_string(),
        r#"etcd_server_version{server_version="3.7.3"} 1"#.to_string(),
        r#"etcd_server_id{server_id="2a"} 1"#.to_string(),
        "kattu_term 7".to_string(),
    ] {
        assert!(body.lines().any(|found| found == line), "no line {line} in\n{body}");
    }
    assert!(body.contains("\nprocess_resident_memory_bytes "), "{body}");
}

/// Prometheus refuses a whole page for one bad line.
#[tokio::test]
async fn every_line_of_the_metrics_belongs_to_the_name_declared_above_it() {
    let face = Face::start().await;
    let (_, _, body) = ask(&face, "GET", "/metrics").await;
    let mut declared = Vec::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().unwrap();
            assert!(!declared.contains(&name), "{name} is declared twice");
            declared.push(name);
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            assert!(name.starts_with(declared.last().unwrap()), "{line} under {:?}", declared.last());
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(20 < declared.len());
}

#[tokio::test]
async fn a_listener_for_metrics_serves_no_calls_and_changes_nothing() {
    let face = Face::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_keep, stop) = tokio::sync::watch::channel(false);
    let (store, config) = (face.store.clone(), Arc::clone(&face.config));
    on_a_thread(listener, |listener| kattu_server::serve_metrics(listener, store, config, stop));
    let metrics = Face { address, ..face };
    let (code, _, body) = ask(&metrics, "GET", "/metrics").await;
    assert_eq!(code, 200);
    assert!(body.contains("etcd_server_has_leader 1"));
    metrics.kv().await.put(put("a", "1")).await.unwrap_err();
    assert_eq!(metrics.store.revision().0, 1);
    let timing = "/kattu/timing?election_timeout_ms=2000&heartbeat_interval_ms=200";
    let (code, _, _) = ask(&metrics, "PUT", timing).await;
    assert_eq!(code, 404, "this port may ask for no certificate");
    assert!(!metrics.store.set(|state| state.seen.iter().any(|seen| matches!(seen, Request::Change(_)))));
}

#[tokio::test]
async fn the_timing_page_sets_both_times_or_says_why_not() {
    let face = Face::start().await;
    let page = "/kattu/timing?election_timeout_ms=2000&heartbeat_interval_ms=200";
    let (code, _, body) = ask(&face, "PUT", page).await;
    assert_eq!((code, body.as_str()), (200, r#"{"election_timeout_ms":2000,"heartbeat_interval_ms":200}"#));
    let timing = Timing {
        election_timeout: Duration::from_millis(2000),
        heartbeat_interval: Duration::from_millis(200),
    };
    let asked = face.store.set(|state| std::mem::take(&mut state.seen));
    assert_eq!(asked, [Request::Change(MemberChange::Timing(timing))]);

    let (code, head, _) = ask(&face, "GET", page).await;
    assert!(code == 405 && head.contains("allow: put"), "{code} {head}");
    for wrong in [
        "",
        "?election_timeout_ms=2000",
        "?election_timeout_ms=2000&heartbeat_interval_ms=401",
        "?election_timeout_ms=50001&heartbeat_interval_ms=200",
        "?election_timeout_ms=2000&heartbeat_interval_ms=0",
        "?election_timeout_ms=2000&heartbeat_interval_ms=200&heartbeat_interval_ms=300",
        "?election_timeout_ms=2000&heartbeat_interval_ms=200&more=1",
        "?election_timeout_ms=2e3&heartbeat_interval_ms=200",
    ] {
        let (code, _, body) = ask(&face, "PUT", &format!("/kattu/timing{wrong}")).await;
        assert!(code == 400 && body.contains("at least 5 heartbeat intervals"), "{wrong}: {code} {body}");
    }
    assert_eq!(face.store.set(|state| state.seen.len()), 0, "what is refused reaches no replica");

    for (refusal, expected) in [
        (Refusal::Member(MemberRefusal::LevelTooLow), 409),
        (Refusal::Member(MemberRefusal::BadTiming), 400),
        (Refusal::LeaderChanged, 503),
    ] {
        face.store.set(|state| state.instead = Some(Outcome::Refused(refusal)));
        let (code, _, body) = ask(&face, "PUT", page).await;
        assert_eq!(code, expected, "{body}");
    }
}

#[tokio::test]
async fn the_protocol_page_sets_a_protocol_or_says_why_not() {
    let face = Face::start().await;
    let window = Capacity { entries: 100, bytes: 4096 };
    for (query, protocol, json) in [
        (
            "protocol=nb-raft&window_entries=100&window_bytes=4096",
            Protocol::NbRaft(NbRaft { window, ..NbRaft::default() }),
            r#"{"protocol":"nb-raft","window_entries":100,"window_bytes":4096}"#,
        ),
        (
            "protocol=nb-raft&window_entries=100&window_bytes=4096&weak=receipt&budget_entries=7&budget_bytes=9",
            Protocol::NbRaft(NbRaft {
                window,
                weak: Weak::Receipt,
                budget: Capacity { entries: 7, bytes: 9 },
            }),
            r#"{"protocol":"nb-raft","window_entries":100,"window_bytes":4096,"weak":"receipt","budget_entries":7,"budget_bytes":9}"#,
        ),
        ("protocol=raft", Protocol::Raft, r#"{"protocol":"raft"}"#),
    ] {
        let (code, _, body) = ask(&face, "PUT", &format!("/kattu/protocol?{query}")).await;
        assert_eq!((code, body.as_str()), (200, json));
        let asked = face.store.set(|state| std::mem::take(&mut state.seen));
        assert_eq!(asked, [Request::Change(MemberChange::Protocol(protocol))]);
    }
    for wrong in [
        "",
        "protocol=paxos",
        "protocol=raft&window_entries=1",
        "protocol=nb-raft&window_entries=1&window_bytes=1&weak=gap",
        "protocol=nb-raft&window_entries=1&window_bytes=1&weak=all&budget_entries=1&budget_bytes=1",
        "protocol=nb-raft",
        "protocol=nb-raft&window_entries=1",
        "protocol=nb-raft&window_entries=-1&window_bytes=1",
        "protocol=nb-raft&window_entries=1&window_bytes=1&window_bytes=2",
        "protocol=nb-raft&window_entries=1&window_bytes=1&more=1",
    ] {
        let (code, _, body) = ask(&face, "PUT", &format!("/kattu/protocol?{wrong}")).await;
        assert!(code == 400 && body.contains("1,000,000 entries"), "{wrong}: {code} {body}");
    }
    assert_eq!(face.store.set(|state| state.seen.len()), 0, "what is refused reaches no replica");
    for (refusal, expected) in [(MemberRefusal::LevelTooLow, 409), (MemberRefusal::BadProtocol, 400)] {
        face.store.set(|state| state.instead = Some(Outcome::Refused(Refusal::Member(refusal))));
        let (code, _, body) = ask(&face, "PUT", "/kattu/protocol?protocol=raft").await;
        assert_eq!(code, expected, "{body}");
    }
}

/// A client that requests page after page does not make the member count its open files each time.
#[tokio::test]
async fn metrics_pages_within_a_second_show_one_look_at_the_process() {
    let open_files = async |face: &Face| {
        let (_, _, page) = ask(face, "GET", "/metrics").await;
        let line = page.lines().find_map(|line| line.strip_prefix("process_open_fds ")).expect("it is there");
        line.parse::<u64>().unwrap()
    };
    loop {
        let (face, begun) = (Face::start().await, Instant::now());
        let before = open_files(&face).await;
        let files: Vec<File> = (0..100).map(|_| File::open("/dev/null").unwrap()).collect();
        let after = open_files(&face).await;
        if Duration::from_secs(1) <= begun.elapsed() {
            continue; // the machine paused, and the facts were read again
        }
        assert_eq!(after, before, "the facts were not read again");
        while open_files(&face).await == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(files);
        return;
    }
}
