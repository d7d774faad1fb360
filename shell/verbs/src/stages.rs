//! status --stages: where the time of requests goes on each member, and how much goes together.
//!
//! Knows nothing of: how requests are followed, what a stage should cost.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format};
use kattu_output::Outcome;
use serde_json::Value;

/// Shows the stages of members.
pub(crate) fn show(reach: &Reach, format: Format) -> Outcome {
    let answers = block_on(async {
        let client = reach.client()?;
        let mut answers = Vec::new();
        for endpoint in client.endpoints() {
            let stages = client.stages(endpoint).await;
            answers
                .push((endpoint.name.clone(), stages.map(|text| output::parse_page("/kattu/stages", &text))));
        }
        Ok(answers)
    })?;
    match format {
        Format::Json => output::print_json(&answers.iter().map(output::entry).collect())?,
        Format::Table if answers.iter().all(|(_, stages)| stages.is_err()) => {}
        Format::Table => {
            let known = || answers.iter().filter_map(|(_, stages)| stages.as_ref().ok());
            let times: Vec<Vec<String>> = known().flat_map(times).collect();
            let head = ["member", "path", "stage", "samples", "after µs", "+ µs", "p50 µs", "p99 µs"];
            output::print_table(&head, times)?;
            let sizes: Vec<Vec<String>> = known().flat_map(sizes).collect();
            output::print_table(&["member", "what", "count", "mean"], sizes)?;
        }
    }
    match answers.iter().find_map(|(_, stages)| stages.as_ref().err()) {
        None => Ok(()),
        Some(first) => Err(ended::of_call(first.clone())),
    }
}

fn name(member: &Value) -> String {
    member["name"].as_str().unwrap_or_default().to_string()
}

/// A row for each stage: mean time since the beginning, and since the row before.
fn times(member: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (path, stages) in member["paths"].as_object().into_iter().flatten() {
        let mut before = 0.0;
        for stage in stages.as_array().into_iter().flatten() {
            let micros = |field: &str| stage[field].as_f64().unwrap_or_default();
            let mean = micros("mean_us");
            rows.push(vec![
                name(member),
                path.clone(),
                stage["stage"].as_str().unwrap_or_default().to_string(),
                stage["samples"].to_string(),
                format!("{mean:.1}"),
                format!("{:+.1}", mean - before),
                format!("{:.1}", micros("p50_us")),
                format!("{:.1}", micros("p99_us")),
            ]);
            before = mean;
        }
    }
    rows
}

fn sizes(member: &Value) -> Vec<Vec<String>> {
    let sizes = member["sizes"].as_object().into_iter().flatten();
    let row = |(what, size): (&String, &Value)| {
        let mean = size["mean"].as_f64().unwrap_or_default();
        vec![name(member), what.replace('_', " "), size["count"].to_string(), format!("{mean:.2}")]
    };
    sizes.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_stage_has_a_row_with_the_time_since_the_one_before_it() {
        let member = json!({"name": "n1", "paths": {"read": [
            {"stage": "taken", "samples": 3, "mean_us": 2.0, "p50_us": 1.0, "p99_us": 4.0},
            {"stage": "routed", "samples": 3, "mean_us": 2.5, "p50_us": 2.0, "p99_us": 4.5},
        ]}, "sizes": {"entries_per_sync": {"count": 2, "mean": 1.5}}});
        let rows = times(&member);
        assert_eq!(rows[0], ["n1", "read", "taken", "3", "2.0", "+2.0", "1.0", "4.0"]);
        assert_eq!(rows[1][4..6], ["2.5", "+0.5"]);
        assert_eq!(sizes(&member), [["n1", "entries per sync", "2", "1.50"]]);
        assert!(times(&json!("no member")).is_empty());
    }
}
