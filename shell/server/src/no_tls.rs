//! No TLS: the error for a client that does not use TLS where it must, in the client's own protocol.
//!
//! Knows nothing of: certificates, deadlines.

use crate::listen::PREFACE;
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The error for a client that does not use TLS where it must.
pub async fn refuse(stream: &mut TcpStream, speaks_http2: bool) -> io::Result<()> {
    const WHY: &str = "this port speaks TLS: use https://";
    if !speaks_http2 {
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{WHY}\n",
            WHY.len() + 1
        );
        return finish(stream, answer.as_bytes()).await;
    }
    // Empty SETTINGS, then GOAWAY with the reason and no last stream. [RFC 9113 §6.5, §6.8; INADEQUATE_SECURITY]
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    frames.extend([0, 0, 8 + WHY.len() as u8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12]);
    frames.extend(WHY.bytes());
    finish(stream, &frames).await
}

/// The error for a client that uses TLS on a plain port: plain bytes, so that its TLS library reports that this is not
/// TLS.
pub(crate) async fn refuse_tls(stream: &mut TcpStream) -> io::Result<()> {
    const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    finish(stream, ANSWER).await
}

/// Writes the bytes, then reads pending input: a socket that is closed over unread bytes resets, and the error is lost.
async fn finish(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    for _ in 0..64 {
        stream.readable().await?;
        match stream.try_read(&mut rest) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether these are the first bytes of HTTP/2, as far as they go.
pub(crate) fn begins_http2(first: &[u8]) -> bool {
    !first.is_empty() && PREFACE.starts_with(first)
}
