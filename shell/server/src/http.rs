//! Plain HTTP beside gRPC, on the same port: `/health`, `/version`, `/metrics`, `/kattu/status`.
//!
//! Responses are etcd's to the byte where clients parse them; `kattu` stands beside the versions.
//! Knows nothing of: gRPC, sockets.

use crate::body::FaceBody;
use crate::budget::Hold;
use crate::face::{ETCD_CLUSTER_VERSION, ETCD_VERSION, Face, KATTU_VERSION};
use crate::health;
use crate::json;
use crate::metrics;
use crate::replica::Replica;
use crate::status::status_json;
use crate::tls::Certificate;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use kattu_node::contract::Consistency;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Answers one plain request.
pub async fn answer<R: Replica>(
    face: &Face<R>,
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
        "/health" | "/version" | "/metrics" | "/kattu/status" if method != Method::GET => {
            method_not_allowed()
        }
        "/health" => health_page(face, uri.query().unwrap_or(""), hold).await,
        "/version" => version_page(),
        "/metrics" => metrics_page(face, hold).await,
        "/kattu/status" => status_page(face, hold).await,
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
            let json = status_json(&status, &face.config.name, log_bytes, history_seconds, certificate);
            page(StatusCode::OK, JSON, json)
        }
        Err(error) => error_page(StatusCode::SERVICE_UNAVAILABLE, error.message()),
    }
}

/// The error, in the gateway's own form, as long as the JSON gateway is not implemented.
fn gateway_missing() -> Response<FaceBody> {
    let text = "kattu does not serve the JSON gateway yet";
    let body = format!("{{\"error\":\"{text}\",\"code\":12,\"message\":\"{text}\",\"details\":[]}}");
    page(StatusCode::NOT_IMPLEMENTED, JSON, body)
}

fn method_not_allowed() -> Response<FaceBody> {
    let mut response = error_page(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
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
