//! Goal: no bytes of a client or of a member crash the reader of the native protocol, and what is read has one form.
//!
//! The input is tried as it is, and as the messages of a frame whose checksum is right.
#![no_main]

use kattu_kv::answer;
use kattu_kv::api::Query;
use kattu_native::frame::{FrameReader, FrameWriter, Message};
use kattu_native::handshake::{Hello, Welcome};
use kattu_native::message::Request;
use kattu_native::reply::{Outcome, Reply};
use kattu_node::command::Command;
use libfuzzer_sys::fuzz_target;

fn again(message: &Message<'_>, write: impl FnOnce(&mut FrameWriter)) {
    let mut writer = FrameWriter::new(crc32c::crc32c_append);
    write(&mut writer);
    let bytes = writer.take();
    let (mut messages, _) = reader().next(&bytes).expect("a frame").expect("a whole one");
    assert_eq!(messages.next(), Some(Ok(*message)));
}

fn reader() -> FrameReader {
    FrameReader::new(crc32c::crc32c_append, 1 << 20)
}

fuzz_target!(|input: &[u8]| {
    let _ = reader().next(input);
    let mut frame = (input.len() as u32).to_le_bytes().to_vec();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&frame), input);
    frame.extend(sum.to_le_bytes());
    frame.extend(input);
    let (messages, _) = reader().next(&frame).expect("a frame").expect("a whole one");
    for message in messages.map_while(Result::ok) {
        let _ = (Hello::read(&message), Welcome::read(&message));
        if let Ok(request) = Request::read(&message) {
            again(&message, |writer| request.write(message.request, writer));
            match request {
                Request::Write { command, .. } => drop(Command::decode(command)),
                Request::Read { query, .. } => drop(Query::decode(query)),
                _ => {}
            }
        }
        if let Ok(reply) = Reply::read(&message) {
            again(&message, |writer| reply.write(message.request, writer));
            if let Outcome::Done(bytes) = reply.outcome {
                let _ = answer::decode(bytes);
            }
        }
    }
});
