//! What a Kattu member serves beside etcd's API, over plain HTTP on its client port: its status, the stages of requests, what
//! it is tuned to, and the change of the cluster's timing.
//!
//! Knows nothing of: the contents of the answer; it is JSON, passed on as text.

use crate::client::Client;
use crate::dial::dial;
use crate::endpoint::Endpoint;
use crate::failure::{Failure, Kind};
use kattu_raft::policy::Weak;
use kattu_raft::{NbRaft, Protocol};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

/// Longest answer that is accepted.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

impl Client {
    /// The member's status as JSON.
    ///
    /// # Errors
    /// Unreachable if no process listens there; Refused if the process there does not serve Kattu's status.
    pub async fn kattu_status(&self, endpoint: &Endpoint) -> Result<String, Failure> {
        self.page(endpoint, "/kattu/status").await
    }

    /// How long requests took to each of their stages on the member at this endpoint, as JSON.
    ///
    /// # Errors
    /// Unreachable if no process listens there; Refused if it is no member of Kattu.
    pub async fn stages(&self, endpoint: &Endpoint) -> Result<String, Failure> {
        self.page(endpoint, "/kattu/stages").await
    }

    /// A page that every member has.
    async fn page(&self, endpoint: &Endpoint, path: &str) -> Result<String, Failure> {
        match tokio::time::timeout(self.timeout(), ask(endpoint, "GET", path)).await {
            Err(_) => Err(Failure::timed_out(&endpoint.name)),
            Ok(Err(error)) => Err(Failure::unreachable(&endpoint.name, error)),
            Ok(Ok((200, body))) => Ok(body),
            Ok(Ok((code, _))) => Err(not_kattu(endpoint, code, path)),
        }
    }

    /// Has the member at this endpoint go by settings, given as `NAME=VALUE` joined by `&`, and returns what it is tuned to then,
    /// as JSON; without settings, what it is tuned to.
    ///
    /// # Errors
    /// Unreachable if no process listens there; Refused if the member takes none of the settings, with the reason.
    pub async fn tune(&self, endpoint: &Endpoint, settings: &str) -> Result<String, Failure> {
        let (method, path) = match settings {
            "" => ("GET", "/kattu/tune".to_string()),
            settings => ("PUT", format!("/kattu/tune?{settings}")),
        };
        match tokio::time::timeout(self.timeout(), ask(endpoint, method, &path)).await {
            Err(_) => Err(Failure::timed_out(&endpoint.name)),
            Ok(Err(error)) => Err(Failure::unreachable(&endpoint.name, error)),
            Ok(Ok((200, body))) => Ok(body),
            Ok(Ok((400 | 409, text))) => Err(Failure {
                kind: Kind::Refused,
                code: Code::FailedPrecondition,
                message: text.trim().to_string(),
                reason: None,
                endpoint: endpoint.name.clone(),
            }),
            Ok(Ok((code, _))) => Err(not_kattu(endpoint, code, "/kattu/tune")),
        }
    }

    /// Sets election timeout and heartbeat interval of the whole cluster, in milliseconds, through the first endpoint
    /// that can be reached. Returns the setting as JSON. A setting whose outcome is unknown may be sent again.
    ///
    /// # Errors
    /// Unreachable if no member can be reached; Refused if the cluster does not take the setting; else Unknown.
    pub async fn set_timing(&self, election_ms: u64, heartbeat_ms: u64) -> Result<String, Failure> {
        self.set_for_all(
            "/kattu/timing",
            &format!("election_timeout_ms={election_ms}&heartbeat_interval_ms={heartbeat_ms}"),
        )
        .await
    }

    /// Sets the protocol of the whole cluster. Returns the setting as JSON. A setting whose outcome is unknown may be sent again.
    ///
    /// # Errors
    /// As [`Client::set_timing`].
    pub async fn set_protocol(&self, protocol: &Protocol) -> Result<String, Failure> {
        let query = match protocol {
            Protocol::Raft => "protocol=raft".to_string(),
            Protocol::NbRaft(NbRaft { window, weak, budget }) => {
                let window = format!("window_entries={}&window_bytes={}", window.entries, window.bytes);
                let weak = match weak {
                    Weak::Off => String::new(),
                    Weak::Gap | Weak::Receipt => format!(
                        "&weak={}&budget_entries={}&budget_bytes={}",
                        weak.name(),
                        budget.entries,
                        budget.bytes
                    ),
                };
                format!("protocol=nb-raft&{window}{weak}")
            }
        };
        self.set_for_all("/kattu/protocol", &query).await
    }

    /// Sets something of the whole cluster through the first endpoint that can be reached.
    async fn set_for_all(&self, page: &str, query: &str) -> Result<String, Failure> {
        let path = format!("{page}?{query}");
        let mut last = Failure::unreachable("", "there is no endpoint");
        for endpoint in self.endpoints() {
            let failed = |kind: Kind, code: Code, message: String| Failure {
                kind,
                code,
                message,
                reason: None,
                endpoint: endpoint.name.clone(),
            };
            last = match tokio::time::timeout(self.timeout(), ask(endpoint, "PUT", &path)).await {
                Err(_) => return Err(Failure::timed_out(&endpoint.name)),
                Ok(Err(error)) => Failure::unreachable(&endpoint.name, error),
                Ok(Ok((200, body))) => return Ok(body),
                Ok(Ok((400 | 409, text))) => {
                    return Err(failed(Kind::Refused, Code::FailedPrecondition, text.trim().to_string()));
                }
                Ok(Ok((503, text))) => {
                    return Err(failed(Kind::Unknown, Code::Unavailable, text.trim().to_string()));
                }
                Ok(Ok((code, _))) => return Err(not_kattu(endpoint, code, page)),
            };
        }
        Err(last)
    }
}

/// The answer of a process that has no such page.
fn not_kattu(endpoint: &Endpoint, code: u16, path: &str) -> Failure {
    Failure {
        kind: Kind::Refused,
        code: Code::Unimplemented,
        message: format!("{path} was answered with HTTP {code}: is this a Kattu member?"),
        reason: None,
        endpoint: endpoint.name.clone(),
    }
}

/// One request on a connection of its own. Returns the status code and the body.
async fn ask(endpoint: &Endpoint, method: &str, path: &str) -> io::Result<(u16, String)> {
    let address = &endpoint.address;
    match &endpoint.tls {
        None => ask_on(TcpStream::connect(address).await?, address, method, path).await,
        Some(tls) => ask_on(dial(address, tls.for_http1()).await?, address, method, path).await,
    }
}

async fn ask_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    address: &str,
    method: &str,
    path: &str,
) -> io::Result<(u16, String)> {
    let empty = if method == "GET" { "" } else { "Content-Length: 0\r\n" };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: */*\r\n{empty}\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    parse_answer(&answer).ok_or_else(|| io::Error::other("the answer is not HTTP/1.1"))
}

fn parse_answer(answer: &[u8]) -> Option<(u16, String)> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let code = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let is_chunked = lines.any(|line| {
        line.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked")
        })
    });
    let body = if is_chunked { join_chunks(body)? } else { body.to_string() };
    Some((code, body))
}

fn join_chunks(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.push_str(rest.get(..size)?);
        body = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_with_length_and_in_chunks() {
        let plain = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse_answer(plain), Some((200, "{}".to_string())));
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse_answer(chunked), Some((200, "abcde".to_string())));
        assert_eq!(parse_answer(b"HTTP/1.1 404 Not Found\r\n\r\nno"), Some((404, "no".to_string())));
    }

    #[test]
    fn what_is_not_an_answer_is_none() {
        for answer in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 x\r\n\r\n"] {
            assert_eq!(parse_answer(answer.as_bytes()), None, "{answer:?}");
        }
        assert_eq!(join_chunks("5\r\nab"), None);
        assert_eq!(join_chunks("zz\r\nab"), None);
    }
}
