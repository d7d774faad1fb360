//! `GET /kattu/stages`: how long requests took to each of their stages on this member, and how much went together.
//!
//! Times count from the receipt of a request, or the arrival of an append, so the difference of two means is the mean time from
//! one stage to the other.
//! Knows nothing of: HTTP, how requests are followed.

use crate::json;
use kattu_raft::NodeId;
use kattu_runtime::metrics::{Metrics, Sizes};

/// The sizes that a member shows, with what each is.
pub(crate) fn sizes(metrics: &Metrics) -> [(&'static str, &'static str, &Sizes); 5] {
    [
        ("entries_per_append", "Entries in one message to a member", &metrics.entries_per_append),
        ("entries_per_sync", "Entries given to the log at once", &metrics.entries_per_sync),
        (
            "appends_in_flight",
            "Messages with entries that a member has not answered, when one leaves",
            &metrics.inflight,
        ),
        ("requests_per_batch", "Client requests taken in at once", &metrics.requests_per_batch),
        (
            "apply_tasks_waiting",
            "Tasks that wait to be applied or read, where some do",
            &metrics.tasks_waiting,
        ),
    ]
}

/// The stages of a member, as JSON.
pub(crate) fn stages_json(member: NodeId, name: &str, metrics: &Metrics) -> String {
    let micros = |nanos: f64| nanos / 1e3;
    let mut paths: Vec<(&str, Vec<String>)> = Vec::new();
    for of_stage in metrics.stages.all() {
        let times = &of_stage.times;
        let at = |quantile| micros(times.value_at_quantile(quantile) as f64);
        let stage = format!(
            "{{\"stage\":\"{}\",\"samples\":{},\"mean_us\":{:.3},\"p50_us\":{:.3},\"p99_us\":{:.3},\"max_us\":{:.3}}}",
            of_stage.stage,
            times.len(),
            micros(times.mean()),
            at(0.5),
            at(0.99),
            micros(times.max() as f64),
        );
        let path = of_stage.path.name();
        match paths.last_mut().filter(|(last, _)| *last == path) {
            Some((_, stages)) => stages.push(stage),
            None => paths.push((path, vec![stage])),
        }
    }
    let paths = paths.iter().map(|(path, stages)| format!("\"{path}\":[{}]", stages.join(",")));
    let sizes = sizes(metrics).map(|(name, _, sizes)| {
        let count = sizes.count();
        let mean = if count == 0 { 0.0 } else { sizes.sum.get() as f64 / count as f64 };
        format!("\"{name}\":{{\"count\":{count},\"mean\":{mean:.3}}}")
    });
    format!(
        "{{\"member_id\":\"{:x}\",\"name\":{},\"paths\":{{{}}},\"sizes\":{{{}}}}}",
        member.0,
        json::string(name),
        paths.collect::<Vec<_>>().join(","),
        sizes.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_without_samples_has_empty_paths_and_sizes_have_means() {
        let metrics = Metrics::default();
        metrics.entries_per_append.observe(1);
        metrics.entries_per_append.observe(4);
        let json = stages_json(NodeId(0xab), "n\"1", &metrics);
        assert!(
            json.starts_with("{\"member_id\":\"ab\",\"name\":\"n\\\"1\",\"paths\":{},\"sizes\":{"),
            "{json}"
        );
        assert!(json.contains("\"entries_per_append\":{\"count\":2,\"mean\":2.500}"), "{json}");
        assert!(json.contains("\"entries_per_sync\":{\"count\":0,\"mean\":0.000}"), "{json}");
    }
}
