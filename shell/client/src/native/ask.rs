//! Ask: a request, before it is in a frame.
//!
//! Knows nothing of: connections, which requests are repeated.

use kattu_kv::sessions::{Order, SessionId};
use kattu_native::frame::{FrameWriter, MESSAGE_HEADER};
use kattu_native::message::{self, Level, Request};
use kattu_node::session::SessionHeader;
use std::borrow::Cow;

/// Bytes around a command: the principal, the session's header, the level of a read.
const AROUND_BYTES: usize = 64;

/// Bytes of a message with so many bytes of a command or a query, at most.
pub(crate) fn bytes_around(bytes: usize) -> usize {
    bytes + MESSAGE_HEADER + AROUND_BYTES
}

/// A request; its bytes are the caller's, unless it has to wait.
#[derive(Clone, Debug)]
pub(crate) enum Ask<'a> {
    Open(Order),
    Write(Cow<'a, [u8]>),
    InSession(SessionHeader, Cow<'a, [u8]>),
    /// As a command in a session; its client wants to know when a quorum has received it.
    Weak(SessionHeader, Cow<'a, [u8]>),
    Read(Level, Cow<'a, [u8]>),
    KeepAlive(Vec<(SessionId, u64)>),
    Close(Vec<SessionId>),
    Ping,
    Sessions {
        from: u64,
        count: u32,
    },
    Expel(u64),
}

impl Ask<'_> {
    /// Bytes of its message in a frame, at most.
    pub(crate) fn message_bytes(&self) -> usize {
        bytes_around(self.bytes())
    }

    /// Bytes of its command or query, or of the sessions that it names.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Ask::Write(bytes) | Ask::InSession(_, bytes) | Ask::Weak(_, bytes) | Ask::Read(_, bytes) => {
                bytes.len()
            }
            Ask::KeepAlive(named) => 24 * named.len(),
            Ask::Close(named) => 16 * named.len(),
            Ask::Open(_) | Ask::Ping | Ask::Sessions { .. } | Ask::Expel(_) => 0,
        }
    }

    /// The same request, whose command or query stays where it is.
    pub(crate) fn again(&self) -> Ask<'_> {
        match self {
            Ask::Write(command) => Ask::Write(Cow::Borrowed(command)),
            Ask::InSession(header, command) => Ask::InSession(*header, Cow::Borrowed(command)),
            Ask::Weak(header, command) => Ask::Weak(*header, Cow::Borrowed(command)),
            Ask::Read(level, query) => Ask::Read(*level, Cow::Borrowed(query)),
            other => other.clone(),
        }
    }

    pub(crate) fn into_owned(self) -> Ask<'static> {
        let owned = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
        match self {
            Ask::Write(command) => Ask::Write(owned(command)),
            Ask::InSession(header, command) => Ask::InSession(header, owned(command)),
            Ask::Weak(header, command) => Ask::Weak(header, owned(command)),
            Ask::Read(level, query) => Ask::Read(level, owned(query)),
            Ask::Open(order) => Ask::Open(order),
            Ask::KeepAlive(named) => Ask::KeepAlive(named),
            Ask::Close(named) => Ask::Close(named),
            Ask::Ping => Ask::Ping,
            Ask::Sessions { from, count } => Ask::Sessions { from, count },
            Ask::Expel(number) => Ask::Expel(number),
        }
    }

    pub(crate) fn write(self, name: u64, writer: &mut FrameWriter) {
        let request = match &self {
            Ask::Write(command) => Request::Write { commit_only: false, command },
            Ask::InSession(header, command) | Ask::Weak(header, command) => {
                let is_weak = matches!(self, Ask::Weak(..));
                let write = |out: &mut Vec<u8>| header.write_around(command, out);
                return message::write_command(name, is_weak, writer, write);
            }
            Ask::Read(level, query) => Request::Read { level: *level, query },
            Ask::Open(order) => Request::Open(*order),
            Ask::KeepAlive(named) => Request::KeepAlive(named.clone()),
            Ask::Close(named) => Request::Close(named.clone()),
            Ask::Ping => Request::Ping,
            Ask::Sessions { from, count } => Request::Sessions { from: *from, count: *count },
            Ask::Expel(number) => Request::Expel(*number),
        };
        request.write(name, writer);
    }
}
