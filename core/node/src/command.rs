//! The content of an entry of kind `Command`: for the store, or for the replica's own tables.
//!
//! The first byte selects the table; the table defines the rest. The byte is part of the log's format
//! (docs/formats/command.md): numbers are never reused.
//! Knows nothing of: the encoding of store commands.

use crate::alarms::{self, AlarmChange};
use crate::bundle::{self, Parts};
use crate::contract::{MemberChange, Request};
use crate::digests::{MARK_BYTE, REPORT_BYTE, Report};
use crate::level;
use crate::session::{self, SessionCommand, SessionHeader};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kattu_kv::api as kv;
use kattu_raft::{Duration, EntryKind, Membership, NodeId, Protocol, Timing};

const FOR_STORE: u8 = 0;
const PUBLISH: u8 = 1;
const CHANGE: u8 = 2;
/// For the store, with a budget. Since feature level [`level::WORK_BUDGETS`].
const WITHIN: u8 = 6;

/// Kinds of changes of members.
const ADD: u8 = 1;
const REMOVE: u8 = 2;
const PROMOTE: u8 = 3;
const UPDATE: u8 = 4;
/// Since feature level [`level::EXTENSIONS`].
const TIMING: u8 = 5;
/// Since feature level [`level::NB_RAFT`].
const PROTOCOL: u8 = 6;

/// A replicated command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// For the store.
    Kv(kv::Command),
    /// For the store, if it costs at most this when it is applied; otherwise it has no effect, and its answer says so.
    Within {
        /// Units. [`kattu_kv::cost`]
        work_max: u64,
        /// The command.
        command: kv::Command,
    },
    /// For the store, in a session of a client.
    InSession {
        /// The session and the place in it.
        header: SessionHeader,
        /// As that of [`Command::Within`], if it has one.
        work_max: Option<u64>,
        /// The command.
        command: kv::Command,
    },
    /// Puts in one entry, each of them for the store and in a session or not.
    Bundle(Vec<Command>),
    /// About sessions of clients.
    Session(SessionCommand),
    /// From here on the log may use the features of this level.
    Level(u16),
    /// A member publishes its name and client URLs.
    Publish(Publish),
    /// A change of the members: on its way to the leader, and then behind the membership of a configuration entry;
    /// never an entry of its own.
    Change(MemberChange),
    /// Every member records its digest here.
    Mark,
    /// The digest that one member recorded.
    Report(Report),
    /// An alarm is raised or cleared.
    Alarm(AlarmChange),
}

/// A member's own description, kept in the replicated member table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Publish {
    /// The member.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Its client URLs.
    pub client_urls: Vec<String>,
}

/// The bytes are not a command that this version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The bytes of a store command, as a request carries them into the log.
#[must_use]
pub fn encode_kv(command: &kv::Command) -> Vec<u8> {
    let mut out = Vec::with_capacity(size_hint(command));
    out.push(FOR_STORE);
    command.encode(&mut out);
    out
}

/// The bytes of a put ([`encode_kv`]), whose key and value are copied from where they lie.
#[must_use]
pub fn encode_put(put: kv::PutRef<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(put_size_hint(put));
    out.push(FOR_STORE);
    kv::Command::encode_put(put, &mut out);
    out
}

/// The request for a command of the store with these bytes ([`encode_kv`]): the cost of a command that may take long is
/// checked where it enters, before it is sent to any other member.
#[must_use]
pub fn request(command: kv::Command, bytes: Vec<u8>) -> Request {
    match kattu_kv::cost::is_small(&command) {
        true => Request::Write(bytes.into()),
        false => Request::Weigh(alloc::boxed::Box::new(command), bytes),
    }
}

/// The bytes of a store command with the budget under which it was admitted.
pub(crate) fn within(work_max: u64, bytes: &[u8]) -> Vec<u8> {
    if let Some((header, command)) = SessionHeader::take(bytes) {
        return header.around(&within(work_max, command));
    }
    let mut out = Vec::with_capacity(bytes.len() + 10);
    out.push(WITHIN);
    kattu_kv::command::write_number(work_max, &mut out);
    out.extend_from_slice(&bytes[1..]);
    out
}

/// Whether a command may make the store larger; checked only while space is short. Deletes and compactions free space,
/// and publications and changes of members are bounded by the number of members. [fault-model F12]
#[must_use]
pub fn grows(command: &[u8]) -> bool {
    match Command::decode(command) {
        Ok(Command::Kv(command) | Command::Within { command, .. } | Command::InSession { command, .. }) => {
            command_grows(&command)
        }
        Ok(Command::Bundle(_)) => true, // of puts
        Ok(Command::Session(command)) => command.grows(),
        Ok(Command::Level(_)) => false,
        Ok(Command::Publish(_) | Command::Change(_)) => false,
        Ok(Command::Mark | Command::Report(_) | Command::Alarm(_)) => false,
        Err(Malformed) => true,
    }
}

fn command_grows(command: &kv::Command) -> bool {
    match command {
        kv::Command::Put(_) => true,
        kv::Command::DeleteRange(_) | kv::Command::Compact(_) => false,
        kv::Command::Txn(txn) => txn_grows(txn),
    }
}

fn txn_grows(txn: &kv::Txn) -> bool {
    txn.success.iter().chain(&txn.failure).any(|operation| match operation {
        kv::Operation::Put(_) => true,
        kv::Operation::Txn(nested) => txn_grows(nested),
        kv::Operation::Range(_) | kv::Operation::DeleteRange(_) => false,
    })
}

/// Capacity for one command: its keys and values, and a little for the rest.
fn size_hint(command: &kv::Command) -> usize {
    match command {
        kv::Command::Put(put) => put_size_hint(put.as_ref()),
        _ => 128,
    }
}

fn put_size_hint(put: kv::PutRef<'_>) -> usize {
    put.key.len() + put.value.len() + 32
}

impl Publish {
    /// The bytes of this command.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.push(PUBLISH);
        out.extend_from_slice(&self.id.0.to_le_bytes());
        put_text(&mut out, &self.name);
        put_texts(&mut out, &self.client_urls);
        out
    }
}

impl MemberChange {
    /// The bytes of this command.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut begin = |kind: u8, id: &NodeId| {
            out.extend_from_slice(&[CHANGE, kind]);
            out.extend_from_slice(&id.0.to_le_bytes());
        };
        match self {
            MemberChange::Add { id, peer_urls, votes } => {
                begin(ADD, id);
                out.push(u8::from(*votes));
                put_texts(&mut out, peer_urls);
            }
            MemberChange::Remove(id) => begin(REMOVE, id),
            MemberChange::Promote(id) => begin(PROMOTE, id),
            MemberChange::Update { id, peer_urls } => {
                begin(UPDATE, id);
                put_texts(&mut out, peer_urls);
            }
            MemberChange::Timing(timing) => {
                begin(TIMING, &NodeId(0));
                for time in [timing.election_timeout, timing.heartbeat_interval] {
                    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX); // refused by the leader
                    out.extend_from_slice(&nanos.to_le_bytes());
                }
            }
            MemberChange::Protocol(protocol) => {
                begin(PROTOCOL, &NodeId(0));
                let value = protocol.encode();
                let len = u16::try_from(value.len()).expect("a protocol has few parameters");
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&value);
            }
        }
        out
    }

    fn take(rest: &mut &[u8]) -> Result<MemberChange, Malformed> {
        let kind = take(rest, 1)?[0];
        let id = take_id(rest)?;
        Ok(match kind {
            ADD => {
                let votes = match take(rest, 1)? {
                    [0] => false,
                    [1] => true,
                    _ => return Err(Malformed),
                };
                MemberChange::Add { id, peer_urls: take_texts(rest)?, votes }
            }
            REMOVE => MemberChange::Remove(id),
            PROMOTE => MemberChange::Promote(id),
            UPDATE => MemberChange::Update { id, peer_urls: take_texts(rest)? },
            TIMING if id == NodeId(0) => {
                let election_timeout = take_time(rest)?;
                MemberChange::Timing(Timing { election_timeout, heartbeat_interval: take_time(rest)? })
            }
            PROTOCOL if id == NodeId(0) => {
                let len = take_u16(rest)?;
                MemberChange::Protocol(Protocol::decode(take(rest, len)?).map_err(|_| Malformed)?)
            }
            _ => return Err(Malformed),
        })
    }
}

/// Whether these bytes are a change of the members, if they are a command at all.
#[must_use]
pub(crate) fn is_change(command: &[u8]) -> bool {
    command.first() == Some(&CHANGE)
}

/// Whether these bytes are for the store, in a session or not, if they are a command at all.
#[must_use]
pub(crate) fn is_for_store(command: &[u8]) -> bool {
    matches!(in_any(command).first(), Some(&FOR_STORE | &WITHIN))
}

/// The command behind the header of a session, if it has one.
fn in_any(command: &[u8]) -> &[u8] {
    SessionHeader::take(command).map_or(command, |(_, command)| command)
}

/// Whether these bytes are a command that carries a budget, if they are a command at all.
#[must_use]
pub fn has_budget(command: &[u8]) -> bool {
    in_any(command).first() == Some(&WITHIN)
}

/// Whether a client may have put these bytes into the log, if they are a command at all: for the store, about sessions
/// or an alarm. Publications, marks and reports are a replica's own, and a change of members is never an entry of its own.
#[must_use]
pub(crate) fn is_of_client(command: &[u8]) -> bool {
    matches!(command.first(), Some(&alarms::BYTE | &session::BYTE)) || is_for_store(command)
}

/// Whether the payload of an entry is one that this version can apply.
#[must_use]
pub fn is_readable(kind: EntryKind, payload: &[u8]) -> bool {
    match kind {
        EntryKind::Noop => true, // its payload is never read
        EntryKind::Config => match Membership::decode(payload) {
            Ok((_, [])) => true,
            Ok((_, context)) => matches!(Command::decode(context), Ok(Command::Change(_))),
            Err(_) => false,
        },
        EntryKind::Command => match payload.split_first() {
            Some((&FOR_STORE, rest)) => kv::Command::is_readable(rest),
            Some((&session::BYTE, _)) if put_in(payload).is_some() => true,
            Some((&bundle::BYTE, _)) => bundle::is_readable(payload),
            _ => Command::decode(payload).is_ok_and(|command| !matches!(command, Command::Change(_))),
        },
    }
}

/// Whether these bytes are a command, of a client or a replica's own.
pub(crate) fn is_command(bytes: &[u8]) -> bool {
    put_in(bytes).is_some() || bundle::is_readable(bytes) || Command::decode(bytes).is_ok()
}

/// The put for the store that a command is, in a session or not, with its bytes where they lie. Most commands are.
#[must_use]
pub fn put_in(command: &[u8]) -> Option<kv::PutRef<'_>> {
    put_of_store(in_any(command))
}

/// The same of a command outside of sessions, or behind its session's header.
#[must_use]
pub fn put_of_store(command: &[u8]) -> Option<kv::PutRef<'_>> {
    match command.split_first() {
        Some((&FOR_STORE, rest)) => kv::Command::put_in(rest),
        _ => None,
    }
}

impl Command {
    /// Decodes a command.
    ///
    /// # Errors
    /// If the bytes are no command, or other bytes follow it.
    pub fn decode(bytes: &[u8]) -> Result<Command, Malformed> {
        let (&kind, mut rest) = bytes.split_first().ok_or(Malformed)?;
        match kind {
            FOR_STORE | WITHIN => Command::decode_for_store(bytes),
            session::BYTE => match SessionHeader::take(bytes) {
                None => SessionCommand::decode(rest).map(Command::Session),
                Some((header, command)) => match Command::decode_for_store(command)? {
                    Command::Kv(command) => Ok(Command::InSession { header, work_max: None, command }),
                    Command::Within { work_max, command } => {
                        Ok(Command::InSession { header, work_max: Some(work_max), command })
                    }
                    _ => Err(Malformed),
                },
            },
            bundle::BYTE if bundle::is_readable(bytes) => {
                let parts = Parts::of(bytes).into_iter().flatten().flatten();
                parts.map(|part| Command::decode(part.bytes)).collect::<Result<_, _>>().map(Command::Bundle)
            }
            level::BYTE => level::decode(rest).map(Command::Level),
            PUBLISH => {
                let id = take_id(&mut rest)?;
                let name = take_text(&mut rest)?;
                let client_urls = take_texts(&mut rest)?;
                end(rest).map(|()| Command::Publish(Publish { id, name, client_urls }))
            }
            CHANGE => {
                let change = MemberChange::take(&mut rest)?;
                end(rest).map(|()| Command::Change(change))
            }
            MARK_BYTE => end(rest).map(|()| Command::Mark),
            REPORT_BYTE => Report::decode(rest).map(Command::Report),
            alarms::BYTE => AlarmChange::decode(rest).map(Command::Alarm),
            _ => Err(Malformed),
        }
    }

    fn decode_for_store(bytes: &[u8]) -> Result<Command, Malformed> {
        let (&kind, mut rest) = bytes.split_first().ok_or(Malformed)?;
        match kind {
            FOR_STORE => kv::Command::decode(rest).map(Command::Kv).map_err(|_| Malformed),
            WITHIN => {
                let work_max = kattu_kv::command::take_number(&mut rest).ok_or(Malformed)?;
                let command = kv::Command::decode(rest).map_err(|_| Malformed)?;
                Ok(Command::Within { work_max, command })
            }
            _ => Err(Malformed),
        }
    }
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let len = u16::try_from(text.len()).expect("the gate bounds names and URLs");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_texts(out: &mut Vec<u8>, texts: &[String]) {
    let count = u16::try_from(texts.len()).expect("the gate bounds the number of URLs");
    out.extend_from_slice(&count.to_le_bytes());
    texts.iter().for_each(|text| put_text(out, text));
}

fn end(rest: &[u8]) -> Result<(), Malformed> {
    if rest.is_empty() { Ok(()) } else { Err(Malformed) }
}

fn take_id(rest: &mut &[u8]) -> Result<NodeId, Malformed> {
    take_u64(rest).map(NodeId)
}

fn take_time(rest: &mut &[u8]) -> Result<Duration, Malformed> {
    take_u64(rest).map(Duration::from_nanos)
}

fn take_texts(rest: &mut &[u8]) -> Result<Vec<String>, Malformed> {
    let count = take_u16(rest)?;
    (0..count).map(|_| take_text(rest)).collect()
}

pub(crate) fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    let (taken, left) = rest.split_at_checked(count).ok_or(Malformed)?;
    *rest = left;
    Ok(taken)
}

pub(crate) fn take_u64(rest: &mut &[u8]) -> Result<u64, Malformed> {
    take(rest, 8)?.try_into().map(u64::from_le_bytes).map_err(|_| Malformed)
}

pub(crate) fn take_u16(rest: &mut &[u8]) -> Result<usize, Malformed> {
    let bytes = take(rest, 2)?;
    Ok(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
}

pub(crate) fn take_text(rest: &mut &[u8]) -> Result<String, Malformed> {
    let len = take_u16(rest)?;
    core::str::from_utf8(take(rest, len)?).map(ToString::to_string).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;
    use kattu_raft::NbRaft;
    use kattu_raft::policy::{Capacity, Weak};

    #[test]
    fn a_publication_survives_its_bytes_and_no_truncation_of_them() {
        let publish =
            Publish { id: NodeId(7), name: "n1".into(), client_urls: vec!["http://127.0.0.1:2379".into()] };
        let bytes = publish.encode();
        assert_eq!(Command::decode(&bytes), Ok(Command::Publish(publish)));
        for len in 0..bytes.len() {
            assert_eq!(Command::decode(&bytes[..len]), Err(Malformed), "{len} bytes");
        }
    }

    #[test]
    fn a_change_of_members_survives_its_bytes_and_no_truncation_of_them() {
        let peer_urls = vec!["http://127.0.0.1:2380".into(), "http://[::1]:2380".into()];
        let changes = [
            MemberChange::Add { id: NodeId(7), peer_urls: peer_urls.clone(), votes: true },
            MemberChange::Add { id: NodeId(7), peer_urls: vec![], votes: false },
            MemberChange::Remove(NodeId(u64::MAX)),
            MemberChange::Promote(NodeId(7)),
            MemberChange::Update { id: NodeId(7), peer_urls },
            MemberChange::Timing(Timing {
                election_timeout: Duration::from_millis(1500),
                heartbeat_interval: Duration::from_nanos(1),
            }),
            MemberChange::Protocol(Protocol::Raft),
            MemberChange::Protocol(Protocol::NbRaft(NbRaft {
                window: Capacity { entries: 10_000, bytes: 64 << 20 },
                weak: Weak::Receipt,
                budget: Capacity { entries: 7, bytes: 9 },
            })),
        ];
        for change in changes {
            let mut bytes = change.encode();
            assert!(is_change(&bytes) && !grows(&bytes));
            assert_eq!(Command::decode(&bytes), Ok(Command::Change(change)));
            for len in 0..bytes.len() {
                assert_eq!(Command::decode(&bytes[..len]), Err(Malformed), "{len} bytes");
            }
            bytes.push(0);
            assert_eq!(Command::decode(&bytes), Err(Malformed), "a byte too many");
        }
        assert_eq!(
            Command::decode(&[CHANGE, 9, 0, 0, 0, 0, 0, 0, 0, 0]),
            Err(Malformed),
            "an unknown change"
        );
    }

    #[test]
    fn a_budget_survives_its_bytes_and_a_command_with_one_is_still_the_stores() {
        let keys = kv::KeyRange { start: vec![b'a'], end: vec![b'b'] };
        let command = kv::Command::DeleteRange(kv::DeleteRange { keys, prev_kv: true });
        let plain = encode_kv(&command);
        let bytes = within(300, &plain);
        assert_eq!(bytes[..3], [6, 0xac, 0x02], "the budget, then the command as ever");
        assert_eq!(bytes[3..], plain[1..]);
        assert!(is_for_store(&bytes) && !is_change(&bytes) && !grows(&bytes));
        assert_eq!(Command::decode(&bytes), Ok(Command::Within { work_max: 300, command: command.clone() }));
        for len in 0..bytes.len() {
            assert_eq!(Command::decode(&bytes[..len]), Err(Malformed), "{len} bytes");
        }
        assert_eq!(Command::decode(&[6, 0x80, 0]), Err(Malformed), "a number in a longer form than it needs");
        assert_eq!(request(command.clone(), plain.clone()), Request::Weigh(Box::new(command), plain));
        let put = kv::Command::Put(kv::Put { key: vec![b'a'], ..kv::Put::default() });
        let plain = encode_kv(&put);
        assert_eq!(request(put, plain.clone()), Request::Write(plain.into()), "a put is as it was");
    }

    #[test]
    fn a_level_survives_its_bytes_and_one_that_is_not_known_is_no_command() {
        let bytes = level::encode(level::KNOWN);
        assert_eq!(Command::decode(&bytes), Ok(Command::Level(level::KNOWN)));
        for len in 0..bytes.len() {
            assert_eq!(Command::decode(&bytes[..len]), Err(Malformed), "{len} bytes");
        }
        assert_eq!(Command::decode(&level::encode(level::KNOWN + 1)), Err(Malformed));
        assert_eq!(Command::decode(&level::encode(0)), Err(Malformed), "the cluster begins there");
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        assert_eq!(Command::decode(&[10, 1, 2]), Err(Malformed));
        assert_eq!(Command::decode(&[]), Err(Malformed));
    }
}
