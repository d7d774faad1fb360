//! Stages of real members: what is followed, where, and that its times fit each other and what a client sees.

use kattu_rig::programs::run;
use kattu_rig::{Cluster, Page, kattu, until};
use serde_json::Value;
use std::process::Command;

/// The mean time of each stage of a path, in microseconds, in order; none if nothing of it was followed.
fn means(member: &Value, path: &str) -> Vec<(String, f64)> {
    let stages = member["paths"][path].as_array().map(Vec::as_slice).unwrap_or_default();
    let mean = |stage: &Value| {
        let name = stage["stage"].as_str().expect("a name").to_string();
        (name, stage["mean_us"].as_f64().expect("a mean"))
    };
    stages.iter().map(mean).collect()
}

fn names(means: &[(String, f64)]) -> Vec<&str> {
    means.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn requests_are_followed_on_every_member_and_no_stage_comes_before_its_cause() {
    let cluster = Cluster::start("stages", 3);
    cluster.members[0].kv().put_surely("first", "0");
    let endpoints = cluster.endpoints();
    let kattu = |words: &str| {
        let words: Vec<&str> =
            words.split_whitespace().chain(["-o", "json", "--endpoints", &endpoints]).collect();
        let said = run(Command::new(kattu()).args(words));
        serde_json::from_str::<Value>(said.expect_ok()).expect("JSON")
    };
    let leader = cluster.leader();
    let members = until("all that can be followed was", || {
        let bench = kattu("bench put --clients 16 --conns 6 --total 2000 --val-size 1100");
        kattu("bench range --clients 16 --conns 6 --total 2000 --filled");
        let members = kattu("status --stages");
        let members = members.as_array().expect("a list").clone();
        let has_all = members.iter().enumerate().all(|(place, member)| {
            let paths: &[&str] = match place == leader {
                true => &["write", "read"],
                false => &["forwarded", "append", "read"],
            };
            paths.iter().all(|path| !means(member, path).is_empty())
        });
        has_all.then_some((members, bench))
    });
    let (members, bench) = members;
    let write = means(&members[leader], "write");
    let of_write = ["taken", "proposed", "sent", "stored", "replicated", "committed", "applied", "answered"];
    assert_eq!(names(&write), of_write);
    let at = |name: &str| write.iter().find(|(stage, _)| stage == name).expect("a stage").1;
    for (before, after) in [
        ("taken", "proposed"),
        ("proposed", "sent"),
        ("proposed", "stored"),
        ("sent", "replicated"),
        ("replicated", "committed"),
        ("committed", "applied"),
        ("applied", "answered"),
    ] {
        assert!(at(before) <= at(after), "{before} at {} µs, {after} at {} µs", at(before), at(after));
    }
    let follower = &members[(leader + 1) % 3];
    let append = means(follower, "append");
    assert_eq!(names(&append), ["appendable", "stored", "acknowledged"]);
    assert!(append.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{append:?}");
    let read = means(follower, "read");
    assert_eq!(names(&read), ["taken", "routed", "confirmed", "answered"]);
    assert!(read.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{read:?}");
    let forwarded = means(follower, "forwarded");
    assert_eq!(names(&forwarded), ["taken", "answered"]);
    // A member takes a write long before the slowest client has its answer.
    let slowest = bench["max_us"].as_f64().expect("a number");
    assert!(0.0 < at("answered") && at("taken") < slowest, "{write:?}, a client {slowest}");

    // The metrics have the same samples.
    let page = Page::of(&cluster.members[leader].address()).expect("a page");
    let count = page
        .lines("kattu_stage_seconds_count")
        .find_map(|line| line.strip_prefix("{path=\"write\",stage=\"answered\"} ")?.parse::<u64>().ok());
    let samples = members[leader]["paths"]["write"][7]["samples"].as_u64();
    assert!(samples <= count && 0 < count.unwrap_or_default(), "{samples:?} {count:?}");

    // For people: a table of times, and one of sizes.
    let table =
        run(Command::new(kattu_rig::kattu()).args(["status", "--stages", "--endpoints", &endpoints])).out;
    assert!(table.contains("acknowledged") && table.contains("entries per sync"), "{table}");
}
