//! Goal: what is written is read, in one form; any other bytes are refused before they do anything. Method: random messages,
//! cut and damaged; and the bytes of docs/formats/native.md, one by one.

use kattu_kv::sessions::{NAMED_MAX, Order, SessionError, SessionId};
use kattu_native::frame::{FRAME_HEADER, FrameError, FrameReader, FrameWriter, Message};
use kattu_native::handshake::{Hello, Leader, Welcome};
use kattu_native::message::{Level, Request};
use kattu_native::reply::{Doubt, Outcome, Refusal, Reply};
use kattu_node::session::SessionHeader;
use kattu_wire::FieldError;
use proptest::collection::vec;
use proptest::prelude::*;

fn crc(seed: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, bytes)
}

const MOST: u32 = 1 << 20;

fn reader() -> FrameReader {
    FrameReader::new(crc, MOST)
}

/// The only message of a frame of its own.
fn alone(write: impl FnOnce(&mut FrameWriter)) -> Vec<u8> {
    let mut writer = FrameWriter::new(crc);
    write(&mut writer);
    writer.take()
}

fn messages(bytes: &[u8]) -> Vec<Message<'_>> {
    let (messages, length) = reader().next(bytes).expect("a frame").expect("a whole one");
    assert_eq!(length, bytes.len());
    messages.map(|message| message.expect("a message")).collect()
}

fn id() -> impl Strategy<Value = SessionId> {
    any::<(u64, u64)>().prop_map(|(number, secret)| SessionId { number, secret })
}

/// A request that owns what it names.
#[derive(Clone, Debug)]
enum Asked {
    Plain(Request<'static>),
    Write(bool, Vec<u8>),
    Read(Level, Vec<u8>),
}

impl Asked {
    fn request(&self) -> Request<'_> {
        match self {
            Asked::Plain(request) => request.clone(),
            Asked::Write(commit_only, command) => Request::Write { commit_only: *commit_only, command },
            Asked::Read(level, query) => Request::Read { level: *level, query },
        }
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    let level = prop_oneof![
        Just(Level::Linearizable),
        any::<u64>().prop_map(Level::AtLeast),
        any::<u64>().prop_map(Level::Bounded),
        Just(Level::Serializable),
    ];
    let plain = prop_oneof![
        Just(Request::Open(Order::Strict)),
        Just(Request::Open(Order::Any)),
        vec((id(), any::<u64>()), 0..4).prop_map(Request::KeepAlive),
        vec(id(), 0..4).prop_map(Request::Close),
        Just(Request::Ping),
        any::<(u64, u32)>().prop_map(|(from, count)| Request::Sessions { from, count }),
        any::<u64>().prop_map(Request::Expel),
    ];
    prop_oneof![
        plain.prop_map(Asked::Plain),
        (any::<bool>(), vec(any::<u8>(), 0..40)).prop_map(|(only, command)| Asked::Write(only, command)),
        (level, vec(any::<u8>(), 0..40)).prop_map(|(level, query)| Asked::Read(level, query)),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome<'static>> {
    let leader = (any::<u64>(), "[a-z:/]{0,20}").prop_map(|(id, url)| Leader { id, url });
    let session_error = prop_oneof![
        Just(SessionError::Expired),
        any::<u64>().prop_map(|expected| SessionError::OutOfOrder { expected }),
        Just(SessionError::Stale),
        Just(SessionError::TooManyAnswers),
        Just(SessionError::TooManySessions),
    ];
    prop_oneof![
        Just(Outcome::Done(b"\0\x0a\x01\0")),
        Just(Outcome::Committed),
        (id(), any::<u64>()).prop_map(|(id, idle)| Outcome::Opened { id, idle }),
        (vec(id(), 0..4), any::<u64>()).prop_map(|(gone, idle)| Outcome::Named { gone, idle }),
        session_error.prop_map(Outcome::SessionError),
        (prop::sample::select(Refusal::ALL), leader.clone())
            .prop_map(|(refusal, leader)| Outcome::Refused(refusal, leader)),
        (prop::sample::select(Doubt::ALL), leader)
            .prop_map(|(doubt, leader)| Outcome::Unknown(doubt, leader)),
        Just(Outcome::Malformed),
        (vec(any::<(u64, u64)>(), 0..4), any::<u64>())
            .prop_map(|(list, all)| Outcome::Sessions { all, list }),
    ]
}

proptest! {
    #[test]
    fn requests_survive_their_bytes_many_in_a_frame(asked in vec((any::<u64>(), asked()), 1..8)) {
        let mut writer = FrameWriter::new(crc);
        asked.iter().for_each(|(name, asked)| asked.request().write(*name, &mut writer));
        let bytes = writer.take();
        prop_assert!(writer.is_empty());
        let read = messages(&bytes);
        prop_assert_eq!(read.len(), asked.len());
        for (message, (name, asked)) in read.iter().zip(&asked) {
            prop_assert_eq!(message.request, *name);
            prop_assert_eq!(Request::read(message), Ok(asked.request()));
        }
        for length in 0..bytes.len() {
            prop_assert!(reader().next(&bytes[..length]).expect("so far it may be one").is_none());
        }
    }

    #[test]
    fn answers_survive_their_bytes(index: u64, strong: u64, outcome in outcome(), name: u64) {
        let reply = Reply { index, strong, outcome };
        let bytes = alone(|writer| reply.write(name, writer));
        let read = messages(&bytes);
        prop_assert_eq!(read[0].request, name);
        prop_assert_eq!(Reply::read(&read[0]), Ok(reply));
    }

    #[test]
    fn handshakes_survive_their_bytes(numbers: [u64; 4], versions: [u16; 2], limits: [u32; 3], url in "[a-z:/]{0,20}") {
        let [cluster, principal, member, leader] = numbers;
        let hello = Hello { version_min: versions[0], version_max: versions[1], cluster, principal };
        let bytes = alone(|writer| hello.write(writer));
        prop_assert_eq!(Hello::read(&messages(&bytes)[0]), Ok(hello));
        let welcome = Welcome {
            version: versions[0],
            cluster,
            member,
            leader: Leader { id: leader, url },
            frame_bytes_max: limits[0],
            answer_bytes_max: limits[1],
            requests_max: limits[2],
        };
        let bytes = alone(|writer| welcome.write(writer));
        prop_assert_eq!(Welcome::read(&messages(&bytes)[0]), Ok(welcome.clone()));
        prop_assert!(Hello::read(&messages(&bytes)[0]).is_err(), "of the other side");
    }

    #[test]
    fn a_damaged_frame_does_nothing(
        asked in vec(asked(), 1..4),
        place: prop::sample::Index,
        bit in 0..8u8,
    ) {
        let mut writer = FrameWriter::new(crc);
        asked.iter().for_each(|asked| asked.request().write(1, &mut writer));
        let mut bytes = writer.take();
        *place.get_mut(&mut bytes) ^= 1 << bit;
        match reader().next(&bytes) {
            Err(FrameError::Checksum | FrameError::Length { .. }) | Ok(None) => {}
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn any_messages_behind_a_right_checksum_are_read_or_refused_and_have_one_form(noise in vec(any::<u8>(), 0..80)) {
        let mut bytes = (noise.len() as u32).to_le_bytes().to_vec();
        let sum = crc(crc(0, &bytes), &noise);
        bytes.extend(sum.to_le_bytes());
        bytes.extend(noise);
        let (found, _) = reader().next(&bytes).expect("a frame").expect("a whole one");
        for message in found.map_while(Result::ok) {
            if let Ok(request) = Request::read(&message) {
                let again = alone(|writer| request.write(message.request, writer));
                prop_assert_eq!(messages(&again)[0], message);
            }
            if let Ok(reply) = Reply::read(&message) {
                let again = alone(|writer| reply.write(message.request, writer));
                prop_assert_eq!(messages(&again)[0], message);
            }
        }
    }
}

#[test]
fn a_length_beyond_the_limit_is_refused_at_once() {
    let length = MOST + 1;
    let refused = reader().next(&length.to_le_bytes()).map(|_| ());
    assert_eq!(refused, Err(FrameError::Length { length, most: MOST }));
}

#[test]
fn a_request_names_no_more_sessions_than_one_may() {
    let ids = vec![SessionId::default(); NAMED_MAX];
    let mut bytes = alone(|writer| Request::Close(ids).write(1, writer));
    assert!(Request::read(&messages(&bytes)[0]).is_ok());
    let fields = [messages(&bytes)[0].fields, &[0; 16]].concat();
    bytes = alone(|writer| writer.message(19, 0, 1, |out| out.extend_from_slice(&fields)));
    let refused = FieldError::Value { field: "sessions", value: NAMED_MAX as u64 + 1 };
    assert_eq!(Request::read(&messages(&bytes)[0]), Err(refused));
}

/// The samples of docs/formats/native.md. Any change of these bytes is a new version of the protocol.
#[test]
fn the_bytes_are_as_the_page_says() {
    let id = SessionId { number: 300, secret: 7 };
    let put = [0, 0x11, 0, 1, b'k', 1, b'v'];
    let url = Leader { id: 2, url: "http://b".into() };
    let in_session = SessionHeader { id, number: 5, first_unacked: 4 }.around(&put[..]);
    let requests: [(&str, Request<'_>, Vec<u8>); 9] = [
        ("open", Request::Open(Order::Strict), vec![2, 0, 0, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (
            "write",
            Request::Write { commit_only: true, command: &put },
            [&[8, 0, 0, 0, 17, 1, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0][..], &put].concat(),
        ),
        (
            "write in a session",
            Request::Write { commit_only: false, command: &in_session },
            [
                &[23, 0, 0, 0, 17, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0][..],
                &[8, 2, 0, 0xac, 2, 7, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0x11, 0, 1, b'k', 1, b'v'],
            ]
            .concat(),
        ),
        (
            "keep alive",
            Request::KeepAlive(vec![(id, 5)]),
            [
                &[25, 0, 0, 0, 18, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0][..],
                &[0x2c, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat(),
        ),
        (
            "close",
            Request::Close(vec![id]),
            [
                &[17, 0, 0, 0, 19, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0][..],
                &[0x2c, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat(),
        ),
        (
            "read",
            Request::Read { level: Level::AtLeast(3), query: &[0x15, 0, 0, 1, b'k', 0] },
            [
                &[16, 0, 0, 0, 20, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0][..],
                &[1, 3, 0, 0, 0, 0, 0, 0, 0, 0x15, 0, 0, 1, b'k', 0],
            ]
            .concat(),
        ),
        ("ping", Request::Ping, vec![1, 0, 0, 0, 21, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]),
        (
            "sessions",
            Request::Sessions { from: 300, count: 2 },
            [
                &[13, 0, 0, 0, 22, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0][..],
                &[0x2c, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0],
            ]
            .concat(),
        ),
        (
            "expel",
            Request::Expel(300),
            vec![9, 0, 0, 0, 23, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x2c, 1, 0, 0, 0, 0, 0, 0],
        ),
    ];
    for (name, request, expected) in requests {
        let bytes = alone(|writer| request.write(9, writer));
        assert_eq!(bytes[FRAME_HEADER..], expected, "{name}");
    }
    let at = [4, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0];
    let answers: [(&str, Outcome<'_>, Vec<u8>); 6] = [
        ("done", Outcome::Done(&[0, 4, 1, 0]), vec![0, 0, 4, 1, 0]),
        (
            "out of order",
            Outcome::SessionError(SessionError::OutOfOrder { expected: 8 }),
            vec![4, 2, 8, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "opened",
            Outcome::Opened { id, idle: 9 },
            vec![2, 9, 0, 0, 0, 0, 0, 0, 0, 0x2c, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "sessions",
            Outcome::Sessions { all: 1, list: vec![(300, 5)] },
            vec![8, 1, 0, 0, 0, 0, 0, 0, 0, 0x2c, 1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "refused",
            Outcome::Refused(Refusal::NoLeader, Leader::default()),
            vec![5, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "unknown",
            Outcome::Unknown(Doubt::TimedOut, url),
            [&[6, 2, 2, 0, 0, 0, 0, 0, 0, 0, 8, 0][..], b"http://b"].concat(),
        ),
    ];
    for (name, outcome, expected) in answers {
        let reply = Reply { index: 4, strong: 6, outcome };
        let bytes = alone(|writer| reply.write(9, writer));
        let fields = [&at[..], &expected].concat();
        let header =
            [&(fields.len() as u32).to_le_bytes()[..], &[3, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(bytes[FRAME_HEADER..], [header, fields].concat(), "{name}");
    }
    let result = kattu_kv::answer::decode(&[0, 4, 1, 0]).expect("an answer");
    let reply = Reply { index: 4, strong: 6, outcome: Outcome::Done(&[0, 4, 1, 0]) };
    let directly = alone(|writer| kattu_native::reply::write_done(9, 4, 6, &result, writer));
    assert_eq!(directly, alone(|writer| reply.write(9, writer)));
    // A whole frame, its checksum included.
    let bytes = alone(|writer| Request::Ping.write(9, writer));
    assert_eq!(bytes[..FRAME_HEADER], [0x11, 0, 0, 0, 0x9e, 0xff, 0xd3, 0xf0]);
}
