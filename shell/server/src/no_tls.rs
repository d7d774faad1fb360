//! Plain: what a client is told, in its own protocol, that does not speak TLS where it must.
//!
//! Knows nothing of: certificates, deadlines.

use crate::listen::PREFACE;
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// What a client is told that does not speak TLS where it must.
pub async fn refuse(stream: &mut TcpStream, speaks_http2: bool) -> io::Result<()> {
    const WHY: &str = "this port speaks TLS: use https://";
    if !speaks_http2 {
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{WHY}\n",
            WHY.len() + 1
        );
        return finish(stream, answer.as_bytes()).await;
    }
    // Empty settings, then a farewell of no stream with the reason. [RFC 9113 §6.5, §6.8; INADEQUATE_SECURITY]
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    frames.extend([0, 0, 8 + WHY.len() as u8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12]);
    frames.extend(WHY.bytes());
    finish(stream, &frames).await
}

/// What a client is told that speaks TLS where it is not spoken: in the clear, so that its TLS says that this is none.
pub async fn refuse_tls(stream: &mut TcpStream) -> io::Result<()> {
    const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    finish(stream, ANSWER).await
}

/// Writes it, and takes what was asked meanwhile: a socket that is closed over unread bytes resets, and the words are lost.
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
pub fn begins_http2(first: &[u8]) -> bool {
    !first.is_empty() && PREFACE.starts_with(first)
}
