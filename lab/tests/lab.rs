//! The frame from end to end: the built program runs its smallest experiment, and its folder says what its samples say.
//!
//! Knows nothing of: what the experiment measures.

use kattu_rig::programs::{OwnFolder, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kattu-lab"));
    command.args(words).env("KATTU_BIN", kattu_rig::kattu());
    command
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("samples");
    text.lines().map(|line| serde_json::from_str(line).expect("a sample in each line")).collect()
}

/// The numbers that a figure was drawn from.
fn data_of(svg: &str) -> Value {
    let (_, data) = svg.split_once("data-figure=\"").expect("a figure with its numbers");
    let data = data.split('"').next().expect("its end").replace("&quot;", "\"");
    serde_json::from_str(&data).expect("JSON")
}

fn counted(samples: &[Value]) -> usize {
    samples.iter().filter(|sample| sample["discarded"].is_null()).count()
}

#[test]
fn the_smallest_experiment_runs_and_its_figure_and_page_say_what_its_samples_say() {
    let folder = OwnFolder::new("lab");
    let out = folder.path().to_str().expect("a path of ours");
    let words = ["run", "frame-check", "--repetitions", "2", "--others-max", "100", "--out", out];
    run(&mut lab(&words)).expect_ok();
    let there = folder.path().join("frame-check");

    // The folder has what its format names.
    let info = json(&there.join("run.json"));
    assert_eq!((&info["version"], &info["experiment"]), (&Value::from(1), &Value::from("frame-check")));
    let points = info["points"].as_array().expect("points").len();
    let machine = json(&there.join("machine.json"));
    for limit in ["sync_us", "wake_up_us", "round_trip_us", "echo_us"] {
        assert!(machine[limit]["p50"].as_f64().is_some_and(|micros| 0.0 < micros), "{limit}: {machine}");
    }
    let samples = lines(&there.join("samples.jsonl"));
    assert_eq!(counted(&samples), points * 2);
    for sample in samples.iter().filter(|sample| sample["discarded"].is_null()) {
        let pairs = sample["latencies_us"].as_array().expect("latencies");
        let count: u64 = pairs.iter().filter_map(|pair| pair[1].as_u64()).sum();
        assert_eq!(Some(count), sample["ops"].as_u64(), "every operation has its latency");
        assert!(sample["client_cpu_us"].as_f64().is_some_and(|micros| 0.0 < micros), "{sample}");
        let leader = sample["leader"].as_u64().expect("a leader") as usize;
        assert!(sample["members_cpu_us"][leader].as_f64().is_some_and(|micros| 0.0 < micros), "{sample}");
    }
    assert!(!there.join("members").exists(), "the members' directories are gone");

    // Medians are those of the samples, and the figure has the same ones.
    let summary = json(&there.join("summary.json"));
    let of_points = summary["points"].as_array().expect("points");
    assert_eq!(of_points.len(), points);
    for point in of_points {
        let its = samples.iter().filter(|it| it["point"] == point["point"] && it["discarded"].is_null());
        let millis: Vec<f64> = its.filter_map(|it| Some(it["seconds"].as_f64()? * 1e3)).collect();
        let mean = millis.iter().sum::<f64>() / millis.len() as f64; // of two, that is the median
        let median = point["measures"]["millis"]["median"].as_f64().expect("a median");
        assert!((median - mean).abs() < 1e-6 * mean, "{point}: {millis:?}");
    }
    let svg = std::fs::read_to_string(there.join("figures/latency.svg")).expect("a figure");
    let drawn = data_of(&svg);
    let bars = drawn["series"][0]["points"].as_array().expect("bars");
    assert_eq!(bars.len(), points);
    for (bar, point) in bars.iter().zip(of_points) {
        assert_eq!(bar["label"], point["at"]["what"]);
        for end in ["median", "low", "high"] {
            assert_eq!(bar[end], point["measures"]["p50_ms"][end], "{end} of {}", point["point"]);
        }
    }
    let page = std::fs::read_to_string(there.join("index.html")).expect("a page");
    assert!(page.contains("data-figure=") && page.contains("kattu lab run frame-check"), "{page}");
    assert!(
        !page.contains("<script") && !page.contains("src=") && !page.contains("href="),
        "it needs no other file"
    );

    // Another run resumes: of a folder that lacks runs it makes those alone.
    let path = there.join("samples.jsonl");
    let text = std::fs::read_to_string(&path).expect("samples");
    let kept: Vec<&str> = text.lines().take(samples.len() - 1).collect();
    std::fs::write(&path, format!("{}\n{{\"torn", kept.join("\n"))).expect("the folder can be written");
    run(&mut lab(&words)).expect_ok();
    let resumed = lines(&path);
    assert_eq!(counted(&resumed), points * 2);
    assert_eq!(resumed[..kept.len()], samples[..kept.len()], "what was there was not made again");
    let other = run(&mut lab(&["run", "frame-check", "--repetitions", "3", "--out", out]));
    assert_eq!(other.code, Some(1));
    assert!(other.err.contains("another number of repetitions"), "{}", other.err);

    // A report is made from the samples alone.
    std::fs::remove_dir_all(there.join("figures")).expect("the folder can be written");
    let told = run(&mut lab(&["report", there.to_str().expect("a path of ours")]));
    assert!(told.expect_ok().contains("index.html"), "{}", told.out);
    assert!(
        data_of(&std::fs::read_to_string(there.join("figures/latency.svg")).expect("again"))["id"]
            == "latency"
    );
}

#[test]
fn what_there_is_to_run_is_listed_and_shown() {
    let listed = run(lab(&["list"]).env_remove("KATTU_BIN"));
    let listed = listed.expect_ok();
    assert!(listed.contains("batching") && !listed.contains("frame-check"), "{listed}");
    let shown = run(&mut lab(&["show", "batching"]));
    let shown = shown.expect_ok();
    assert!(
        shown.contains("## Method") && shown.contains("A quick run: ") && shown.contains("[[table]]"),
        "{shown}"
    );
    let unknown = run(&mut lab(&["show", "batchign"]));
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("there is no experiment batchign; there are batching"), "{}", unknown.err);
}
