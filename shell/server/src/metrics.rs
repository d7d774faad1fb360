//! `/metrics`: counters and gauges in the text format of Prometheus.
//!
//! Metrics that etcd has, too, carry etcd's names, so that dashboards and alerts written for etcd keep working; the
//! others are called `kattu_…`. An unknown value is left out rather than shown as 0.
//! Knows nothing of: HTTP.

mod engine;
mod page;
mod stages;

use self::engine::engine;
use self::page::Page;
use crate::counters::{CODES, Counters};
use crate::face::{ETCD_VERSION, Face, FaceConfig, KATTU_VERSION};
use crate::process::Facts;
use crate::replica::Replica;
use crate::rpc::Rpc;
use crate::{health, kv, maintenance};
use kattu_node::contract::Status;
use kattu_runtime::metrics::{LOG_LINES_DROPPED, LOG_LINES_HELD_BACK};
use std::time::SystemTime;
use tokio::time::Instant;
use tonic::Code;

/// The page, as of now.
#[must_use]
pub fn render<R: Replica>(face: &Face<R>, status: &Status) -> String {
    let mut page = Page(String::with_capacity(16 * 1024));
    member(&mut page, face, status);
    store(&mut page, face, status);
    clients(&mut page, &face.config.counters);
    of_tls(&mut page, &face.config);
    held(&mut page, &face.config);
    if let Some(metrics) = face.replica.metrics() {
        engine(&mut page, metrics);
        stages::stages(&mut page, metrics);
    }
    process(&mut page, face.process.facts(Instant::now()));
    page.0
}

fn of_tls(page: &mut Page, config: &FaceConfig) {
    let ports = [("port=\"client\"", &config.tls), ("port=\"peer\"", &config.peer_tls)];
    let ports: Vec<_> = ports.into_iter().filter_map(|(port, tls)| Some((port, tls.as_deref()?))).collect();
    if ports.is_empty() {
        return;
    }
    let name = "kattu_tls_certificate_not_after_seconds";
    page.head(name, "Expiry of the certificate, in seconds since 1970", "gauge");
    for (port, tls) in &ports {
        let since_1970 = tls.current().ends_first().not_after.duration_since(SystemTime::UNIX_EPOCH);
        page.line(name, port, since_1970.map_or(0, |since| since.as_secs()));
    }
    let name = "kattu_tls_files_broken_total";
    page.head(
        name,
        "Reloads that failed: the new files were unusable, the old ones stayed in force",
        "counter",
    );
    for (port, tls) in &ports {
        page.line(name, port, tls.broken());
    }
    if config.tls.is_none() {
        return;
    }
    let name = "kattu_tls_handshakes_total";
    page.counter(name, "TLS handshakes with clients", config.counters.handshakes.get());
    let name = "kattu_tls_refused_total";
    let about = "Client connections refused or closed for a reason of TLS";
    page.counter(name, about, config.counters.handshakes_refused.get());
}

fn member<R: Replica>(page: &mut Page, face: &Face<R>, status: &Status) {
    let leads = status.leader == Some(status.id);
    page.gauge("etcd_server_has_leader", "Whether a leader is known", u8::from(status.leader.is_some()));
    page.gauge("etcd_server_is_leader", "Whether this member leads", u8::from(leads));
    page.gauge(
        "etcd_server_is_learner",
        "Whether this member is a learner, without a vote",
        u8::from(status.learner),
    );
    let name = "etcd_server_leader_changes_seen_total";
    page.counter(name, "Terms in which this member saw a leader", status.leader_changes);
    let name = "etcd_server_proposals_committed_total";
    page.gauge(name, "Highest index known committed", status.committed.0);
    page.gauge("etcd_server_proposals_applied_total", "Highest index applied", status.applied.0);
    page.gauge("etcd_server_proposals_pending", "Client requests waiting", status.pending);
    if let Some(metrics) = face.replica.metrics() {
        let name = "etcd_server_proposals_failed_total";
        page.counter(name, "Client requests refused, or with unknown outcome", metrics.failed.get());
        let name = "kattu_log_damaged";
        page.gauge(
            name,
            "Whether the log lacks entries that this member has acknowledged",
            metrics.log_damaged.get(),
        );
        let name = "kattu_log_lost_total";
        page.counter(
            name,
            "Times this member had lost entries that it had acknowledged",
            metrics.lost_log.get(),
        );
        let name = "kattu_peer_lost_matches_total";
        page.counter(
            name,
            "Times a peer had lost entries that it had acknowledged",
            metrics.lost_matches.get(),
        );
        let name = "kattu_appends_dropped_unread_total";
        let about = "Appends of a leader dropped because their payloads were not read in time";
        page.counter(name, about, metrics.dropped_unread.get());
        let name = "kattu_window_entries_total";
        let about = "Entries that came before their predecessors and joined the log from the window";
        page.counter(name, about, metrics.window_entries.get());
        let name = "kattu_order_wait_seconds_total";
        let about = "Time for which messages of several links waited for those sent before them";
        page.counter(name, about, metrics.order_waited_us.get() as f64 / 1e6);
        let name = "kattu_gaps_sent_again_total";
        let about = "Gaps before such entries that this leader sent again";
        page.counter(name, about, metrics.gaps_sent_again.get());
        let name = "kattu_weak_outstanding_requests";
        let about = "Commands that were answered weakly and have no final answer";
        page.gauge(name, about, metrics.weak_outstanding.get());
        let name = "kattu_weak_outstanding_bytes";
        let about = "Bytes of commands that were answered weakly and have no final answer";
        page.gauge(name, about, metrics.weak_outstanding_bytes.get());
        let name = "kattu_weak_answers_total";
        page.counter(name, "Weak answers: a quorum had received the command", metrics.weak_answers.get());
        let name = "kattu_weak_lost_total";
        let about = "Commands that were answered weakly and then overwritten by a later leader";
        page.counter(name, about, metrics.weak_lost.get());
        let name = "kattu_slow_disk_left_total";
        let about = "Times this member transferred leadership because of its slow disk";
        page.counter(name, about, metrics.slow_disk_left.get());
        page.counter("kattu_scrubs_total", "Scrubs: reads of all files to find damage", metrics.scrubs.get());
        page.counter(
            "kattu_scrub_damages_total",
            "Damaged places found by scrubs",
            metrics.scrub_damages.get(),
        );
    }
    page.labelled(
        "etcd_server_version",
        "The version of etcd that this server reports",
        "server_version",
        ETCD_VERSION,
    );
    page.labelled("etcd_cluster_version", "The cluster's version", "cluster_version", "3.7");
    page.labelled("etcd_server_id", "This member", "server_id", &format!("{:x}", status.id.0));
    page.labelled("kattu_build_info", "Kattu's own version", "version", KATTU_VERSION);
    let role = if status.learner { "learner" } else { status.role };
    let no_fsync = u8::from(face.config.unsafe_no_fsync);
    page.gauge("kattu_unsafe_no_fsync", "Whether this member does not wait for its disk", no_fsync);
    page.labelled("kattu_role", "The role of this member", "role", role);
    let name = "kattu_has_leader_lease";
    page.gauge(
        name,
        "Whether this leader may serve reads under a leader lease",
        u8::from(status.has_leader_lease),
    );
    let name = "kattu_leader_lease_is_over";
    let help =
        "Whether this leader has no lease for the rest of its term, after a failed leadership transfer";
    page.gauge(name, help, u8::from(status.leader_lease_is_over));
    let name = "kattu_leader_lease_denied";
    page.head(name, "Voters that do not grant the vote holds that this leader's lease needs", "gauge");
    for member in &status.leader_lease_without {
        page.line(name, &format!("server_id=\"{:x}\"", member.0), 1);
    }
    let name = "kattu_clocks_apart_ppm";
    page.head(
        name,
        "Proven drift of a voter's clock against this leader's, beyond --clock-drift-ppm",
        "gauge",
    );
    for (member, gains) in &status.clocks_apart {
        page.line(name, &format!("server_id=\"{:x}\"", member.0), gains);
    }
    let name = "kattu_peer_falsehoods_total";
    page.head(name, "Messages that no correct member sends, by sender", "counter");
    for (member, times, _) in &status.distrusted {
        page.line(name, &format!("server_id=\"{:x}\"", member.0), times);
    }
    page.gauge("kattu_term", "Current term", status.term.0);
    page.gauge("kattu_log_first_index", "First index of the log", status.first.0);
    page.gauge("kattu_log_last_index", "Last index of the log", status.last.0);
    page.gauge("kattu_log_persisted_index", "Highest index persisted on this disk", status.persisted.0);
    page.gauge("kattu_log_committed_index", "Highest index known committed", status.committed.0);
    page.gauge("kattu_log_applied_index", "Highest index applied", status.applied.0);
    let name = "kattu_serving_unconfirmed";
    page.gauge(
        name,
        "Whether serializable reads are served before a linearizable read has confirmed the state",
        u8::from(status.serving_unconfirmed),
    );
}

fn store<R: Replica>(page: &mut Page, face: &Face<R>, status: &Status) {
    let quota = face.quota_bytes();
    page.gauge("etcd_server_quota_backend_bytes", "Quota of the store, in bytes", quota);
    let name = "etcd_mvcc_db_total_size_in_bytes";
    page.gauge(name, "Bytes of keys and values, history included", status.store_bytes);
    let name = "etcd_mvcc_db_total_size_in_use_in_bytes";
    page.gauge(name, "Bytes of keys and values of the newest versions", status.store_bytes_in_use);
    let name = "kattu_history_bytes";
    let history = status.store_bytes.saturating_sub(status.store_bytes_in_use);
    page.gauge(name, "Bytes of versions that are not the newest of their key", history);
    page.gauge("etcd_debugging_mvcc_keys_total", "Live keys", status.keys);
    page.gauge("etcd_debugging_mvcc_current_revision", "The store's revision", status.revision);
    page.gauge(
        "etcd_debugging_mvcc_compact_revision",
        "The store's compacted revision",
        status.compact_revision,
    );
    page.head("etcd_server_alarms", "Alarms that are raised", "gauge");
    for alarm in maintenance::active(status) {
        let labels = format!("alarm_type=\"{}\",server_id=\"{:x}\"", alarm.kind, alarm.member.0);
        page.line("etcd_server_alarms", &labels, 1);
    }
    let compared = &status.compared;
    let name = "kattu_digest_marked_index";
    page.gauge(name, "Newest index at which members compare their digests", compared.marked.0);
    let name = "kattu_digest_agreed_index";
    page.gauge(name, "Newest such index at which all voters had the same digest", compared.agreed.0);
    let name = "kattu_digest_reports_total";
    page.counter(name, "Digests of members compared since the cluster began", compared.reports);
    let name = "kattu_digest_divergent_total";
    page.counter(name, "Comparisons that found a divergent member", compared.divergent);
    page.gauge(
        "kattu_corrupt",
        "Whether this member refuses all requests, because of alarm CORRUPT",
        u8::from(status.alarms.is_corrupt(status.id)),
    );
    page.gauge("kattu_no_space", "Whether writes that grow the store are refused", u8::from(status.no_space));
}

fn clients(page: &mut Page, counters: &Counters) {
    page.head("grpc_server_started_total", "Calls started", "counter");
    for &rpc in Rpc::ALL {
        let started = counters.of(rpc).started.get();
        page.line("grpc_server_started_total", &rpc_labels(rpc), started);
    }
    page.head("grpc_server_handled_total", "Calls ended, by code", "counter");
    for &rpc in Rpc::ALL {
        for code in 0..CODES {
            let handled = counters.of(rpc).handled[code].get();
            if 0 < handled {
                let name = code_name(Code::from(i32::try_from(code).expect("17 codes")));
                page.line(
                    "grpc_server_handled_total",
                    &format!("grpc_code=\"{name}\",{}", rpc_labels(rpc)),
                    handled,
                );
            }
        }
    }
    let name = "etcd_network_client_grpc_received_bytes_total";
    page.counter(name, "Bytes of messages from clients", counters.received_bytes.get());
    let name = "etcd_network_client_grpc_sent_bytes_total";
    page.counter(name, "Bytes of messages to clients", counters.sent_bytes.get());
    page.counter("etcd_server_health_success", "Health checks that succeeded", counters.health_success.get());
    page.counter("etcd_server_health_failures", "Health checks that failed", counters.health_failure.get());
    page.gauge("kattu_client_connections", "Client connections open", counters.connections.get());
    let name = "kattu_client_connections_accepted_total";
    page.counter(name, "Client connections accepted", counters.connections_accepted.get());
    let name = "kattu_client_connections_refused_total";
    page.counter(
        name,
        "Client connections refused: beyond the limit, or not accepted by the system",
        counters.connections_refused.get(),
    );
    let name = "kattu_client_connections_broken_total";
    page.counter(name, "Client connections that ended with an error", counters.connections_broken.get());
    page.counter("kattu_http_requests_total", "Plain HTTP requests", counters.http_requests.get());
    let name = "kattu_native_requests_total";
    page.counter(name, "Requests of the native protocol", counters.native_requests.get());
    let name = "kattu_native_received_bytes_total";
    page.counter(name, "Bytes received in the native protocol", counters.native_received_bytes.get());
    let name = "kattu_native_sent_bytes_total";
    page.counter(name, "Bytes sent in the native protocol", counters.native_sent_bytes.get());
    let name = "kattu_auto_compactions_total";
    page.counter(name, "Automatic compactions by this member", counters.auto_compactions.get());
    let name = "kattu_history_seconds";
    page.gauge(
        name,
        "Seconds of history of which every revision can be read",
        counters.history_seconds.get(),
    );
}

/// Memory and calls of clients, and calls and connections that a limit ended. [operations.md, "Limits"]
fn held(page: &mut Page, config: &FaceConfig) {
    let (budget, counters) = (&config.budget, &config.counters);
    page.gauge("kattu_client_memory_bytes", "Bytes held for clients", budget.held());
    page.gauge("kattu_client_memory_max_bytes", "Bytes that may be held for clients", budget.max());
    let name = "kattu_client_memory_refused_total";
    page.counter(name, "Times that memory for a client was refused because of the limit", budget.refused());
    page.gauge("kattu_client_calls", "Calls under way", budget.calls());
    let name = "kattu_native_requests_under_way";
    page.gauge(name, "Requests of the native protocol under way", config.native.requests());
    let name = "kattu_native_requests_under_way_max";
    let about = "Requests of the native protocol under way from which connections have shares";
    page.gauge(name, about, config.native.requests_max());
    let name = "kattu_client_calls_max";
    page.gauge(name, "Calls under way above which stream limits of clients are lowered", budget.calls_max());
    let name = "kattu_client_calls_refused_total";
    page.counter(name, "Calls refused because far too many were under way", budget.calls_refused());
    let name = "kattu_client_connections_idle_total";
    page.counter(name, "Client connections closed as idle", counters.connections_idle.get());
    let name = "kattu_client_connections_stalled_total";
    let about = "Client connections closed because the client read nothing, or too slowly";
    page.counter(name, about, counters.connections_stalled.get());
    let name = "kattu_client_connections_too_much_total";
    let about = "Client connections closed for too many pings or refused calls";
    page.counter(name, about, counters.connections_too_much.get());
    let name = "kattu_client_answers_stalled_total";
    page.counter(name, "Responses given up because the client read nothing", counters.answers_stalled.get());
    let name = "kattu_client_answers_slow_total";
    page.counter(name, "Responses given up because the client read too slowly", counters.answers_slow.get());
    let name = "kattu_client_answers_too_large_total";
    page.counter(name, "Responses refused because they were too large", counters.answers_too_large.get());
    let name = "kattu_large_writes_bytes";
    let turns = kv::LARGE_WRITES_KIB.saturating_sub(config.large_writes.available_permits());
    page.gauge(name, "Bytes of large writes under way", turns << 10);
    let name = "kattu_looks";
    let looks = maintenance::LOOKS_MAX.saturating_sub(config.looks.available_permits());
    page.gauge(name, "Reads of the whole store (hashes, snapshots) under way", looks);
    let name = "kattu_health_watches";
    let watches = health::WATCHES_MAX.saturating_sub(config.health_watches.available_permits());
    page.gauge(name, "Streams of clients that watch the health of this member", watches);
    let name = "kattu_looks_refused_total";
    page.counter(
        name,
        "Snapshots refused because too many reads of the whole store were under way",
        counters.looks_refused.get(),
    );
}

fn process(page: &mut Page, facts: Option<Facts>) {
    let name = "kattu_log_lines_dropped_total";
    page.counter(name, "Log lines dropped because the output was too slow", LOG_LINES_DROPPED.get());
    let name = "kattu_log_lines_held_back_total";
    page.counter(name, "Log lines suppressed because many had the same cause", LOG_LINES_HELD_BACK.get());
    let Some(facts) = facts else { return };
    page.counter("process_cpu_seconds_total", "CPU time used, in seconds", facts.cpu_seconds);
    page.gauge("process_resident_memory_bytes", "Memory in use", facts.resident_bytes);
    page.gauge("process_virtual_memory_bytes", "Address space in use", facts.virtual_bytes);
    page.gauge("process_open_fds", "Open files", facts.open_files);
    page.gauge("process_max_fds", "Open files allowed", facts.open_files_max);
    let name = "process_start_time_seconds";
    page.gauge(name, "When the process started, in seconds since 1970", facts.started_seconds);
    page.gauge("kattu_process_threads", "Threads", facts.threads);
}

fn rpc_labels(rpc: Rpc) -> String {
    let (method, service, shape) = (rpc.method(), rpc.service(), rpc.shape().label());
    format!("grpc_method=\"{method}\",grpc_service=\"{service}\",grpc_type=\"{shape}\"")
}

/// The code's name as gRPC's own metrics spell it.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
