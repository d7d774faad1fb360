//! Metrics of the member below the services: its log, its peers, its snapshots, its store's work.
//!
//! Knows nothing of: clients, services.

use super::page::Page;
use kattu_raft::PeerFlow;
use kattu_runtime::metrics::{ALLOCATED_BYTES, ALLOCATIONS, Metrics, SYNC_BUCKETS_US, records_encoded};
use std::sync::PoisonError;

/// Log, peers, snapshots, loop and store of this member.
pub(super) fn engine(page: &mut Page, metrics: &Metrics) {
    let name = "etcd_disk_wal_fsync_duration_seconds";
    page.head(name, "Duration of log syncs", "histogram");
    let mut below = 0;
    for (bound, count) in SYNC_BUCKETS_US.iter().zip(&metrics.sync.buckets) {
        below += count.get();
        let bound = *bound as f64 / 1e6;
        page.line("etcd_disk_wal_fsync_duration_seconds_bucket", &format!("le=\"{bound}\""), below);
    }
    // The count is taken last and may be ahead of the buckets; the page must not contradict itself.
    let count = metrics.sync.count().max(below);
    page.line("etcd_disk_wal_fsync_duration_seconds_bucket", "le=\"+Inf\"", count);
    page.line("etcd_disk_wal_fsync_duration_seconds_sum", "", metrics.sync.sum_ns.get() as f64 / 1e9);
    page.line("etcd_disk_wal_fsync_duration_seconds_count", "", count);
    let name = "etcd_disk_wal_write_bytes_total";
    page.gauge(name, "Bytes written to the log", metrics.log_written_bytes.get());
    page.counter("kattu_peer_sent_bytes_total", "Bytes sent to peers", metrics.peer_sent_bytes.get());
    page.counter(
        "kattu_peer_received_bytes_total",
        "Bytes received from peers",
        metrics.peer_received_bytes.get(),
    );
    page.counter("kattu_peer_sent_messages_total", "Messages sent to peers", metrics.peer_sent_msgs.get());
    page.counter(
        "kattu_peer_received_messages_total",
        "Messages received from peers",
        metrics.peer_received_msgs.get(),
    );
    page.counter(
        "kattu_peer_dropped_messages_total",
        "Messages to peers that were dropped",
        metrics.peer_dropped_msgs.get(),
    );
    flows(page, metrics);
    page.counter(
        "kattu_peer_rejected_total",
        "Peer connections refused or closed",
        metrics.peer_rejected.get(),
    );
    page.gauge("kattu_log_bytes", "Bytes of log on disk", metrics.log_bytes.get());
    let name = "kattu_log_on_thread";
    page.gauge(name, "Whether the log is written on its own thread", metrics.log_on_thread.get());
    page.gauge(
        "kattu_apply_on_thread",
        "Whether entries are applied on a thread of their own",
        metrics.apply_on_thread.get(),
    );
    if let Some(tuning) = metrics.tuning() {
        page.head("kattu_tuning", "What this member is tuned to", "gauge");
        for (named, value) in tuning.shown() {
            page.line("kattu_tuning", &format!("setting=\"{}\",value=\"{value}\"", named.name), 1);
        }
    }
    let name = "kattu_log_sent_away_total";
    page.counter(name, "Times a slow sync moved the log to its own thread", metrics.log_sent_away.get());
    page.gauge("kattu_log_segments", "Segments of log on disk", metrics.log_segments.get());
    page.gauge("kattu_log_free_bytes", "Bytes of log allocated and free", metrics.log_free_bytes.get());
    snapshots(page, metrics);
    page.counter("kattu_driver_batches_total", "Batches of the driver's loop", metrics.batches.get());
    page.counter("kattu_driver_events_total", "Events of the driver's loop", metrics.events.get());
    let name = "kattu_driver_late_seconds_max";
    let late = metrics.late_us_max.get() as f64 / 1e6;
    page.gauge(name, "Longest delay from a timer's deadline to its handling since the start", late);
    page.counter("kattu_requests_total", "Client requests accepted", metrics.requests.get());
    let name = "kattu_requests_abandoned_total";
    page.counter(
        name,
        "Client requests dropped before they began because the client had gone",
        metrics.abandoned.get(),
    );
    page.counter(
        "kattu_applied_entries_total",
        "Entries delivered to the store; one may hold several puts",
        metrics.applied_entries.get(),
    );
    page.counter("kattu_work_units_total", "Work the store has done, in units", metrics.work_units.get());
    let name = "kattu_work_step_units_max";
    page.gauge(name, "Units of the longest step of the store since the start", metrics.step_units_max.get());
    let name = "kattu_requests_refused_for_work_total";
    page.counter(
        name,
        "Requests refused because they would exceed --request-work-max",
        metrics.refused_for_work.get(),
    );
    page.gauge("kattu_feature_level", "Feature level of the cluster", metrics.feature_level.get());
    page.counter("kattu_records_encoded_total", "Log records encoded by this process", records_encoded());
    if ALLOCATIONS.get() > 0 {
        page.counter("kattu_allocations_total", "Allocations, in builds that count them", ALLOCATIONS.get());
        page.counter("kattu_allocated_bytes_total", "Bytes of those allocations", ALLOCATED_BYTES.get());
    }
}

/// Traffic from a leader to its peers. The counts restart with every leadership, so they are gauges.
fn flows(page: &mut Page, metrics: &Metrics) {
    let flows = metrics.peer_flows.lock().unwrap_or_else(PoisonError::into_inner).clone();
    type Value = fn(&PeerFlow) -> f64;
    let rows: [(&str, &str, Value); 5] = [
        ("kattu_peer_entry_sent_bytes", "Bytes of entries sent", |flow| flow.counts.sent as f64),
        (
            "kattu_peer_entry_repeated_bytes",
            "Bytes of entries sent in appends that repeat an entry",
            |flow| flow.counts.again as f64,
        ),
        ("kattu_peer_entry_taken_bytes", "Bytes of entries acknowledged", |flow| flow.counts.taken as f64),
        ("kattu_peer_round_trip_seconds", "Time from an append to its acknowledgement", |flow| {
            flow.srtt.as_secs_f64()
        }),
        ("kattu_peer_behind_entries", "Entries not acknowledged", |flow| flow.behind as f64),
    ];
    for (name, help, value) in rows {
        page.head(name, help, "gauge");
        for (peer, flow) in &flows {
            page.line(name, &format!("to=\"{:x}\"", peer.0), value(flow));
        }
    }
    page.gauge(
        "kattu_clients_slowed",
        "Whether client writes are slowed for a returning member",
        metrics.slows_clients.get(),
    );
    page.counter(
        "kattu_clients_slowed_total",
        "Times client writes began to be slowed for a returning member",
        metrics.slowed_clients.get(),
    );
    page.counter(
        "kattu_peer_falling_behind_total",
        "Times a returning member did not catch up although clients were slowed, or with --client-share-min=100",
        metrics.falling_behind.get(),
    );
}

fn snapshots(page: &mut Page, metrics: &Metrics) {
    page.counter("kattu_snapshots_taken_total", "Snapshots taken", metrics.snapshots_taken.get());
    let name = "kattu_snapshots_failed_total";
    page.counter(name, "Snapshots that failed", metrics.snapshots_failed.get());
    let name = "kattu_snapshots_installed_total";
    page.counter(name, "Snapshots of a leader that replaced the store", metrics.snapshots_installed.get());
    page.gauge("kattu_snapshot_bytes", "Bytes of the last snapshot taken", metrics.snapshot_bytes.get());
    let seconds = metrics.snapshot_ms.get() as f64 / 1e3;
    page.gauge("kattu_snapshot_seconds", "Duration of the last snapshot", seconds);
    let name = "kattu_snapshot_index";
    page.gauge(name, "Index of the newest snapshot", metrics.snapshot_index.get());
    let name = "kattu_snapshot_chunks_sent_total";
    page.counter(name, "Chunks of snapshots sent", metrics.snapshot_chunks_sent.get());
    let name = "kattu_snapshot_chunks_received_total";
    page.counter(name, "Chunks of snapshots received", metrics.snapshot_chunks_received.get());
}
