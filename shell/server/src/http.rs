//! Plain HTTP beside gRPC, on the same port: `/health`, `/version`, `/metrics`, `/kattu/status`, `/kattu/stages`, and the pages that change
//! something, `/kattu/timing` and `/kattu/protocol` for the cluster and `/kattu/tune` for this member. A listener for metrics does not have those.
//!
//! Responses are etcd's to the byte where clients parse them; `kattu` stands beside the versions.
//! Knows nothing of: gRPC, sockets.

use crate::body::FaceBody;
use crate::budget::Hold;
use crate::config::ELECTION_TIMEOUT_MAX;
use crate::errors;
use crate::face::{ETCD_CLUSTER_VERSION, ETCD_VERSION, Face, KATTU_VERSION};
use crate::health;
use crate::json;
use crate::listen::Door;
use crate::metrics;
use crate::replica::Replica;
use crate::stages::stages_json;
use crate::status::{self, Own, status_json};
use crate::tls::Certificate;
use crate::tune::{self, TuneError};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use kattu_node::contract::{Consistency, MemberChange, Request};
use kattu_raft::policy::{Capacity, Weak};
use kattu_raft::{Duration, NbRaft, Protocol, Timing};
use kattu_runtime::metrics::Metrics;
use tonic::Code;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Answers one plain request that came through this door.
pub async fn answer<R: Replica>(
    face: &Face<R>,
    door: Door,
    method: &Method,
    uri: &Uri,
    hold: &mut Hold,
) -> Response<FaceBody> {
    face.config.counters.http_requests.add(1);
    let path = uri.path();
    if path.starts_with("/v3/") || path.starts_with("/v3beta/") {
        return gateway_missing();
    }
    match path {
        "/health" | "/version" | "/metrics" | "/kattu/status" | "/kattu/stages" if method != Method::GET => {
            method_not_allowed("GET")
        }
        "/kattu/timing" | "/kattu/protocol" | "/kattu/tune" if door == Door::Plain => {
            error_page(StatusCode::NOT_FOUND, "404 page not found")
        }
        "/kattu/timing" | "/kattu/protocol" if method != Method::PUT => method_not_allowed("PUT"),
        "/kattu/tune" if method != Method::PUT && method != Method::GET => method_not_allowed("GET, PUT"),
        "/health" => health_page(face, uri.query().unwrap_or(""), hold).await,
        "/version" => version_page(),
        "/metrics" => metrics_page(face, hold).await,
        "/kattu/status" => status_page(face, hold).await,
        "/kattu/stages" => stages_page(face),
        "/kattu/tune" if method == Method::GET => tune_page(face, "").await,
        "/kattu/tune" => tune_page(face, uri.query().unwrap_or("")).await,
        "/kattu/timing" => timing_page(face, uri.query().unwrap_or(""), hold).await,
        "/kattu/protocol" => protocol_page(face, uri.query().unwrap_or(""), hold).await,
        _ => error_page(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

fn version_page() -> Response<FaceBody> {
    let versions = format!(
        "{{\"etcdserver\":\"{ETCD_VERSION}\",\"etcdcluster\":\"{ETCD_CLUSTER_VERSION}\",\
         \"storage\":\"{ETCD_CLUSTER_VERSION}\",\"kattu\":\"{KATTU_VERSION}\"}}"
    );
    page(StatusCode::OK, JSON, versions)
}

async fn health_page<R: Replica>(face: &Face<R>, query: &str, hold: &mut Hold) -> Response<FaceBody> {
    let reason = why_unhealthy(face, query, hold).await;
    let counters = &face.config.counters;
    match reason {
        None => {
            counters.health_success.add(1);
            page(StatusCode::OK, TEXT, "{\"health\":\"true\",\"reason\":\"\"}")
        }
        Some(reason) => {
            counters.health_failure.add(1);
            let text = format!("{{\"health\":\"false\",\"reason\":{}}}", json::string(&reason));
            error_page(StatusCode::SERVICE_UNAVAILABLE, &text)
        }
    }
}

/// Checks alarms (NOSPACE of any member, as all members refuse then; CORRUPT of this one), then the leader, then a
/// read. `exclude=NOSPACE` skips that alarm, `serializable=true` reads from this member alone. [etcd
/// etcdhttp/health.go]
async fn why_unhealthy<R: Replica>(face: &Face<R>, query: &str, hold: &mut Hold) -> Option<String> {
    let has =
        |name: &str, value: &str| query.split('&').any(|part| part.split_once('=') == Some((name, value)));
    let serializable = has("serializable", "true");
    let status = match face.status(hold).await {
        Ok(status) => status,
        Err(error) => return Some(format!("RANGE ERROR:{}", error.message())),
    };
    if (status.no_space || status.alarms.forbids_growth()) && !has("exclude", "NOSPACE") {
        return Some("ALARM NOSPACE".to_string());
    }
    if status.alarms.is_corrupt(status.id) && !has("exclude", "CORRUPT") {
        return Some("ALARM CORRUPT".to_string());
    }
    if !serializable && status.leader.is_none() {
        return Some("RAFT NO LEADER".to_string());
    }
    let consistency = if serializable { Consistency::Serializable } else { Consistency::Linearizable };
    let error = health::probe(face, consistency, hold).await.err()?;
    Some(format!("RANGE ERROR:{}", error.message()))
}

async fn metrics_page<R: Replica>(face: &Face<R>, hold: &mut Hold) -> Response<FaceBody> {
    match face.status(hold).await {
        Ok(status) => page(StatusCode::OK, PROMETHEUS, metrics::render(face, &status)),
        Err(error) => error_page(StatusCode::SERVICE_UNAVAILABLE, error.message()),
    }
}

/// The page that `kattu status` reads.
async fn status_page<R: Replica>(face: &Face<R>, hold: &mut Hold) -> Response<FaceBody> {
    let log_bytes = face.replica.metrics().map_or(0, |metrics| metrics.log_bytes.get());
    match face.status(hold).await {
        Ok(status) => {
            let history_seconds = face.config.counters.history_seconds.get();
            let certificate = Certificate::of_all(&face.config);
            let tuning = face.replica.metrics().and_then(Metrics::tuning);
            let own = Own { name: &face.config.name, tuning, unsafe_no_fsync: face.config.unsafe_no_fsync };
            let json = status_json(&status, &own, log_bytes, history_seconds, certificate);
            page(StatusCode::OK, JSON, json)
        }
        Err(error) => error_page(StatusCode::SERVICE_UNAVAILABLE, error.message()),
    }
}

/// The page behind `kattu status --stages`.
fn stages_page<R: Replica>(face: &Face<R>) -> Response<FaceBody> {
    match face.replica.metrics() {
        Some(metrics) => {
            let json = stages_json(face.replica.member_id(), &face.config.name, metrics);
            page(StatusCode::OK, JSON, json)
        }
        None => error_page(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

/// The page that `kattu tune` reads and writes.
async fn tune_page<R: Replica>(face: &Face<R>, query: &str) -> Response<FaceBody> {
    match tune::tune(face, query).await {
        Ok(json) => page(StatusCode::OK, JSON, json),
        Err(TuneError::Given(what)) => error_page(StatusCode::BAD_REQUEST, &what),
        Err(TuneError::Refused(why)) => error_page(StatusCode::CONFLICT, why),
    }
}

/// `PUT /kattu/timing?election_timeout_ms=…&heartbeat_interval_ms=…`, which `kattu timing` sends: sets both for the whole
/// cluster, and answers when that is committed. To be sent again if the outcome is unknown: it changes nothing twice.
async fn timing_page<R: Replica>(face: &Face<R>, query: &str, hold: &mut Hold) -> Response<FaceBody> {
    let Some(timing) = parse_timing(query) else {
        return error_page(StatusCode::BAD_REQUEST, errors::BAD_TIMING.text);
    };
    let Timing { election_timeout, heartbeat_interval } = timing;
    let json = format!(
        "{{\"election_timeout_ms\":{},\"heartbeat_interval_ms\":{}}}",
        election_timeout.as_millis(),
        heartbeat_interval.as_millis()
    );
    change_page(face, MemberChange::Timing(timing), json, hold).await
}

/// `PUT /kattu/protocol?protocol=nb-raft&window_entries=…&window_bytes=…` or `?protocol=raft`, which `kattu protocol`
/// sends: sets the protocol of the whole cluster, and answers when that is committed. To be sent again if the outcome is
/// unknown.
async fn protocol_page<R: Replica>(face: &Face<R>, query: &str, hold: &mut Hold) -> Response<FaceBody> {
    let Some(protocol) = parse_protocol(query) else {
        return error_page(StatusCode::BAD_REQUEST, errors::BAD_PROTOCOL.text);
    };
    let json = format!("{{{}}}", status::protocol_fields(protocol));
    change_page(face, MemberChange::Protocol(protocol), json, hold).await
}

/// Carries out a change of the cluster, and answers with this page when it is committed.
async fn change_page<R: Replica>(
    face: &Face<R>,
    change: MemberChange,
    json: String,
    hold: &mut Hold,
) -> Response<FaceBody> {
    match face.call(Request::Change(change), hold).await {
        Ok(_) => page(StatusCode::OK, JSON, json),
        Err(error) => {
            let status = match error.code() {
                Code::InvalidArgument => StatusCode::BAD_REQUEST,
                Code::FailedPrecondition => StatusCode::CONFLICT,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            error_page(status, error.message())
        }
    }
}

/// A protocol with all of its parameters, each once; weak answers and their budget only together.
fn parse_protocol(query: &str) -> Option<Protocol> {
    let (mut protocol, mut entries, mut bytes) = (None, None, None);
    let (mut weak, mut budget_entries, mut budget_bytes) = (None, None, None);
    for part in query.split('&') {
        let (name, value) = part.split_once('=')?;
        let place = match name {
            "protocol" => &mut protocol,
            "window_entries" => &mut entries,
            "window_bytes" => &mut bytes,
            "weak" => &mut weak,
            "budget_entries" => &mut budget_entries,
            "budget_bytes" => &mut budget_bytes,
            _ => return None,
        };
        if place.replace(value).is_some() {
            return None;
        }
    }
    let capacity = |entries: &str, bytes: &str| {
        Some(Capacity { entries: entries.parse().ok()?, bytes: bytes.parse().ok()? })
    };
    let (weak, budget) = match (weak, budget_entries, budget_bytes) {
        (None, None, None) => (Weak::Off, Capacity::default()),
        (Some(name), Some(entries), Some(bytes)) => {
            (Weak::ALL.into_iter().find(|mode| mode.name() == name)?, capacity(entries, bytes)?)
        }
        _ => return None,
    };
    match (protocol?, entries, bytes) {
        ("raft", None, None) if weak == Weak::Off => Some(Protocol::Raft),
        ("nb-raft", Some(entries), Some(bytes)) => {
            Some(Protocol::NbRaft(NbRaft { window: capacity(entries, bytes)?, weak, budget }))
        }
        _ => None,
    }
}

/// Both times, each once, in whole milliseconds, and in the proportion that the flags ask for.
fn parse_timing(query: &str) -> Option<Timing> {
    let (mut election, mut heartbeat) = (None, None);
    for part in query.split('&') {
        let (name, value) = part.split_once('=')?;
        let place = match name {
            "election_timeout_ms" => &mut election,
            "heartbeat_interval_ms" => &mut heartbeat,
            _ => return None,
        };
        let number: u64 = value.parse().ok().filter(|number| (1..=ELECTION_TIMEOUT_MAX).contains(number))?;
        if place.replace(number).is_some() {
            return None;
        }
    }
    let (election, heartbeat) = (election?, heartbeat?);
    (heartbeat * 5 <= election).then(|| Timing {
        election_timeout: Duration::from_millis(election),
        heartbeat_interval: Duration::from_millis(heartbeat),
    })
}

/// The error, in the gateway's own form, as long as the JSON gateway is not implemented.
fn gateway_missing() -> Response<FaceBody> {
    let text = "kattu does not serve the JSON gateway yet";
    let body = format!("{{\"error\":\"{text}\",\"code\":12,\"message\":\"{text}\",\"details\":[]}}");
    page(StatusCode::NOT_IMPLEMENTED, JSON, body)
}

fn method_not_allowed(allowed: &'static str) -> Response<FaceBody> {
    let mut response = error_page(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// The text of an error, with a line's end and the headers that Go's servers give it.
fn error_page(status: StatusCode, text: &str) -> Response<FaceBody> {
    let mut response = page(status, TEXT, format!("{text}\n"));
    let nosniff = HeaderName::from_static("x-content-type-options");
    response.headers_mut().insert(nosniff, HeaderValue::from_static("nosniff"));
    response
}

fn page(status: StatusCode, content_type: HeaderValue, text: impl Into<Bytes>) -> Response<FaceBody> {
    let mut response = Response::new(FaceBody::Page(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
