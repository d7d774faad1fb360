//! Metrics of stages: how long followed requests took to each, and how much went together.
//!
//! Knows nothing of: how requests are followed.

use super::page::Page;
use crate::stages::sizes;
use kattu_runtime::metrics::{Metrics, SIZE_BUCKETS};

/// Upper bounds of times, in microseconds.
const BOUNDS_US: [u64; 12] =
    [4, 16, 64, 256, 1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000];

/// Histograms of stages and sizes, and the counters of what switches change.
pub(super) fn stages(page: &mut Page, metrics: &Metrics) {
    let name = "kattu_stage_seconds";
    page.head(
        name,
        "Time from the receipt of a request, or the arrival of an append, to a stage; samples",
        "histogram",
    );
    for of_stage in metrics.stages.all() {
        let times = &of_stage.times;
        let labels = format!("path=\"{}\",stage=\"{}\"", of_stage.path.name(), of_stage.stage);
        for bound in BOUNDS_US {
            let below = times.count_between(0, bound * 1_000);
            let le = bound as f64 / 1e6;
            page.line("kattu_stage_seconds_bucket", &format!("{labels},le=\"{le}\""), below);
        }
        page.line("kattu_stage_seconds_bucket", &format!("{labels},le=\"+Inf\""), times.len());
        page.line("kattu_stage_seconds_sum", &labels, times.mean() * times.len() as f64 / 1e9);
        page.line("kattu_stage_seconds_count", &labels, times.len());
    }
    for (what, help, sizes) in sizes(metrics) {
        let name = format!("kattu_{what}");
        page.head(&name, help, "histogram");
        let mut below = 0;
        for (bound, count) in SIZE_BUCKETS.iter().zip(&sizes.buckets) {
            below += count.get();
            page.line(&format!("{name}_bucket"), &format!("le=\"{bound}\""), below);
        }
        // The count is taken last and may be ahead of the buckets; the page must not contradict itself.
        let count = sizes.count().max(below);
        page.line(&format!("{name}_bucket"), "le=\"+Inf\"", count);
        page.line(&format!("{name}_sum"), "", sizes.sum.get());
        page.line(&format!("{name}_count"), "", count);
    }
    let counters = [
        (
            "kattu_appends_ahead_total",
            "Messages with entries that left before the leader's own disk had them",
            &metrics.appends_ahead,
        ),
        (
            "kattu_appends_empty_total",
            "Messages of a leader without entries: heartbeats and rounds for reads",
            &metrics.appends_empty,
        ),
        (
            "kattu_entries_empty_total",
            "Entries without a command given to the log: one a term, and one a round of reads through the log",
            &metrics.entries_empty,
        ),
        (
            "kattu_apply_delivered_total",
            "Batches of tasks delivered to the thread that applies, if there is one",
            &metrics.apply_delivered,
        ),
        (
            "kattu_log_thread_groups_total",
            "Groups of records given to the thread of the log, while there is one",
            &metrics.log_thread_groups,
        ),
    ];
    for (name, help, counter) in counters {
        page.counter(name, help, counter.get());
    }
}
