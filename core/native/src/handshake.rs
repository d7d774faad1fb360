//! Handshake: the first message of each side, hello and welcome.
//!
//! The client says which versions it speaks and which cluster it means; the member chooses, and names the leader. A member
//! that cannot go on says why in its welcome, and closes.
//! Knows nothing of: requests.

use crate::frame::{FrameWriter, Message};
use alloc::string::String;
use kattu_wire::fields::{FieldError, Reader, Write};

/// Kinds of messages. A number is never used twice.
pub(crate) const HELLO: u8 = 1;
pub(crate) const WELCOME: u8 = 2;

/// The first message of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version that it speaks.
    pub version_min: u16,
    /// The newest.
    pub version_max: u16,
    /// The cluster that it means; 0 for any.
    pub cluster: u64,
    /// The user on whose behalf it calls: 0, until there are users.
    pub principal: u64,
}

/// The leader, as far as a member knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    /// Its id; 0 if none is known.
    pub id: u64,
    /// Its client URL; empty if it has published none.
    pub url: String,
}

/// The first message of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Welcome {
    /// The version of this connection; 0 if both speak none, and the member closes.
    pub version: u16,
    /// The cluster; if the client means another, the member closes.
    pub cluster: u64,
    /// The member.
    pub member: u64,
    /// The leader that it knows.
    pub leader: Leader,
    /// Most bytes of the messages of a frame that it reads.
    pub frame_bytes_max: u32,
    /// … and of one that it sends.
    pub answer_bytes_max: u32,
    /// Most requests of this connection under way.
    pub requests_max: u32,
}

impl Hello {
    /// Adds the message to a frame.
    pub fn write(&self, writer: &mut FrameWriter) {
        writer.message(HELLO, 0, 0, |out| {
            out.put_u16(self.version_min);
            out.put_u16(self.version_max);
            out.put_u64(self.cluster);
            out.put_u64(self.principal);
        });
    }

    /// Reads it.
    ///
    /// # Errors
    /// If the message is no hello.
    pub fn read(message: &Message<'_>) -> Result<Hello, FieldError> {
        expect(message, HELLO)?;
        let mut fields = Reader::new(message.fields);
        let hello = Hello {
            version_min: fields.u16("lowest version")?,
            version_max: fields.u16("highest version")?,
            cluster: fields.u64("cluster")?,
            principal: fields.u64("principal")?,
        };
        // A later version may say more.
        Ok(hello)
    }
}

impl Leader {
    pub(crate) fn write(&self, out: &mut alloc::vec::Vec<u8>) {
        out.put_u64(self.id);
        out.put_text(&self.url);
    }

    pub(crate) fn read(fields: &mut Reader<'_>) -> Result<Leader, FieldError> {
        Ok(Leader { id: fields.u64("leader")?, url: fields.text("leader's URL")? })
    }
}

impl Welcome {
    /// Adds the message to a frame.
    pub fn write(&self, writer: &mut FrameWriter) {
        writer.message(WELCOME, 0, 0, |out| {
            out.put_u16(self.version);
            out.put_u64(self.cluster);
            out.put_u64(self.member);
            self.leader.write(out);
            out.put_u32(self.frame_bytes_max);
            out.put_u32(self.answer_bytes_max);
            out.put_u32(self.requests_max);
        });
    }

    /// Reads it.
    ///
    /// # Errors
    /// If the message is no welcome.
    pub fn read(message: &Message<'_>) -> Result<Welcome, FieldError> {
        expect(message, WELCOME)?;
        let mut fields = Reader::new(message.fields);
        Ok(Welcome {
            version: fields.u16("version")?,
            cluster: fields.u64("cluster")?,
            member: fields.u64("member")?,
            leader: Leader::read(&mut fields)?,
            frame_bytes_max: fields.u32("frame bytes")?,
            answer_bytes_max: fields.u32("answer bytes")?,
            requests_max: fields.u32("requests")?,
        })
    }
}

fn expect(message: &Message<'_>, kind: u8) -> Result<(), FieldError> {
    match message.kind == kind {
        true => Ok(()),
        false => Err(FieldError::Value { field: "kind", value: message.kind.into() }),
    }
}
