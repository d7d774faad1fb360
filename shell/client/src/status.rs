//! Status of a Kattu member beyond etcd's `Status`: one `GET /kattu/status` on its client port.
//!
//! Knows nothing of: the contents of the answer; it is JSON, passed on as text.

use crate::client::Client;
use crate::dial::dial;
use crate::endpoint::Endpoint;
use crate::failure::{Failure, Kind};
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
        let asked = tokio::time::timeout(self.timeout(), get(endpoint, "/kattu/status"));
        match asked.await {
            Err(_) => Err(Failure::timed_out(&endpoint.name)),
            Ok(Err(error)) => Err(Failure::unreachable(&endpoint.name, error)),
            Ok(Ok((200, body))) => Ok(body),
            Ok(Ok((code, _))) => Err(Failure {
                kind: Kind::Refused,
                code: Code::Unimplemented,
                message: format!("/kattu/status was answered with HTTP {code}: is this a Kattu member?"),
                reason: None,
                endpoint: endpoint.name.clone(),
            }),
        }
    }
}

/// One request on a connection of its own. Returns the status code and the body.
async fn get(endpoint: &Endpoint, path: &str) -> io::Result<(u16, String)> {
    let address = &endpoint.address;
    match &endpoint.tls {
        None => get_on(TcpStream::connect(address).await?, address, path).await,
        Some(tls) => get_on(dial(address, tls.for_http1()).await?, address, path).await,
    }
}

async fn get_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    address: &str,
    path: &str,
) -> io::Result<(u16, String)> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: */*\r\n\r\n");
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
