//! The socket of a lane: written to at once, without waiting, in the clear or in TLS.
//!
//! Knows nothing of: frames, queues.

use kattu_raft::LinkEnd;
use kattu_tls::Socket;
use rustls::ClientConnection;
use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// A connection that this member has opened.
pub(crate) struct Outgoing {
    tcp: TcpStream,
    /// Boxed, for it is far larger than the rest.
    tls: Option<Box<RefCell<ClientConnection>>>,
}

/// A socket that is read and written without waiting.
struct AtOnce<'a>(&'a TcpStream);

impl Read for AtOnce<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Outgoing {
    /// Of a connection whose handshake is over.
    ///
    /// # Panics
    /// If another member has opened it.
    pub(crate) fn new(socket: Socket) -> Outgoing {
        match socket {
            Socket::Plain(tcp) => Outgoing { tcp, tls: None },
            Socket::Tls(stream) => {
                let TlsStream::Client(stream) = *stream else { unreachable!("this member has dialled it") };
                let (tcp, connection) = stream.into_inner();
                Outgoing { tcp, tls: Some(Box::new(RefCell::new(connection))) }
            }
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.tcp.readable().await
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.tcp.writable().await
    }

    /// Takes as much of these as it can; `WouldBlock` where that is nothing. Bytes that it took may still wait here.
    pub(crate) fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return self.tcp.try_write_vectored(pieces) };
        let mut connection = tls.borrow_mut();
        self.push(&mut connection)?;
        let taken = connection.writer().write_vectored(pieces)?;
        match self.push(&mut connection) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Whether bytes that it took have not left.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.borrow().wants_write())
    }

    /// Sends these bytes, as far as possible.
    pub(crate) fn send_rest(&self) -> io::Result<()> {
        match &self.tls {
            Some(tls) => self.push(&mut tls.borrow_mut()),
            None => Ok(()),
        }
    }

    fn push(&self, connection: &mut ClientConnection) -> io::Result<()> {
        while connection.wants_write() {
            if connection.write_tls(&mut AtOnce(&self.tcp))? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Whether the other side has ended it. Only TLS's own records may arrive here; they are read, and ignored.
    pub(crate) fn has_ended(&self) -> Option<LinkEnd> {
        let Some(tls) = &self.tls else {
            let mut scrap = [0; 256];
            return end_of(self.tcp.try_read(&mut scrap));
        };
        let mut connection = tls.borrow_mut();
        let read = match connection.read_tls(&mut AtOnce(&self.tcp)) {
            Ok(0) => return Some(LinkEnd::ByPeer),
            Ok(_) => connection.process_new_packets().map_err(io::Error::other),
            Err(error) => return end_of(Err(error)),
        };
        match read {
            Ok(state) if state.peer_has_closed() => Some(LinkEnd::ByPeer),
            // A peer must not send data on a lane that is ours.
            Ok(state) if 0 < state.plaintext_bytes_to_read() => Some(LinkEnd::Otherwise),
            Ok(_) => None,
            Err(_) => Some(LinkEnd::Otherwise),
        }
    }
}

fn end_of(read: io::Result<usize>) -> Option<LinkEnd> {
    match read {
        Ok(0) => Some(LinkEnd::ByPeer),
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => Some(how_it_ended(&error)),
    }
}

/// Whether a socket error comes from the other end's kernel, which reports at once when a process dies.
pub(crate) fn how_it_ended(error: &io::Error) -> LinkEnd {
    match error.kind() {
        // The last is how TLS reports an end without a closing record.
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => LinkEnd::ByPeer,
        _ => LinkEnd::Otherwise,
    }
}
