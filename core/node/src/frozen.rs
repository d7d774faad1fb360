//! Frozen: all replicated tables as of one log index, and their bytes.
//!
//! In:    a keeper between two tasks.
//! Out:   a pin of everything it owns, which any thread may turn into chunks of bytes while the keeper goes on; and
//!        from such chunks a keeper that answers and applies like that one.
//! Rule:  state and applied index belong together here, too [fault-model ST4]; equal tables at an equal index give
//!        equal bytes on every member. Byte boxes: docs/formats/tables.md, docs/formats/store.md.
//! Knows nothing of: files, checksums, callers, terms, links.

use crate::alarms::Alarms;
use crate::command::{put_text, take, take_text, take_u16, take_u64};
use crate::contract::MemberInfo;
use crate::digests::Digests;
use crate::keeper::Keeper;
use crate::level::{KNOWN, SESSIONS};
use crate::table::Table;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use kattu_kv::command;
use kattu_kv::dump::{self, CHUNK_BYTES_MAX, Dump, Loader};
use kattu_kv::sessions::{self, Sessions};
use kattu_kv::store::Store;
use kattu_raft::{LogIndex, NodeId};

/// The format version written once the cluster has reached the feature level that brings sessions: their table follows the
/// small ones.
pub const VERSION: u8 = 4;

/// Written before that, once the cluster has a feature level, which is the last field of the small tables: members of both
/// versions write equal bytes for equal tables.
const VERSION_WITHOUT_SESSIONS: u8 = 3;

/// Written until then.
const VERSION_WITHOUT_LEVEL: u8 = 2;

/// The version in which tables of this feature level are written.
fn version_at(level: u16) -> u8 {
    match level {
        0 => VERSION_WITHOUT_LEVEL,
        1..SESSIONS => VERSION_WITHOUT_SESSIONS,
        _ => VERSION,
    }
}

/// The first bytes of all tables.
const MAGIC: [u8; 4] = *b"KtTb";

/// Magic, version, and the length of the small tables.
const PREFIX: usize = 4 + 1 + 4;

/// Most bytes of the small tables: far more than a cluster of any size needs.
const TABLES_BYTES_MAX: u32 = 16 << 20;

/// A keeper's tables as of a pin. Taking one costs a few microseconds, and holding it memory for what the keeper
/// changes meanwhile; best dropped where it is turned into chunks, which releases it in small steps.
#[derive(Clone, Debug)]
pub struct Frozen {
    pub(crate) store: Store,
    pub(crate) tables: Tables,
}

/// The bytes of frozen tables: an iterator over chunks of 1 MiB at most.
#[derive(Debug)]
pub struct Chunks {
    /// The rest of the small tables.
    tables: Vec<u8>,
    sessions: Option<sessions::Dump>,
    store: Dump,
}

/// Tables being decoded.
#[derive(Debug, Default)]
pub struct Thaw {
    /// The bytes so far, until the small tables are complete.
    carry: Vec<u8>,
    tables: Option<Tables>,
    /// Until the table of sessions is complete.
    loading: Option<sessions::Loader>,
    store: Loader,
}

/// All tables but the store, and the applied index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) members: Table,
    pub(crate) alarms: Alarms,
    pub(crate) digests: Digests,
    pub(crate) applied: LogIndex,
    /// The feature level of the cluster. [`crate::level`]
    pub(crate) level: u16,
    /// The sessions of clients: none before the level that brings them.
    pub(crate) sessions: Sessions,
}

/// Why bytes are not tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThawError {
    /// The bytes end before the store begins.
    Truncated,
    /// The bytes do not begin with the magic bytes.
    NoTables,
    /// An unknown format version.
    Version(u8),
    /// A length of the small tables above the limit.
    Length(u32),
    /// The cluster has reached a feature level that this version does not know.
    Level(u16),
    /// The small tables are malformed.
    Members,
    /// The table of sessions behind them is malformed.
    Sessions(command::Malformed),
    /// The store behind them is malformed.
    Store(dump::Malformed),
}

impl fmt::Display for ThawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThawError::Truncated => f.write_str("the tables end too early"),
            ThawError::NoTables => f.write_str("no magic bytes at the beginning of the tables"),
            ThawError::Version(version) => {
                write!(f, "format version {version} of tables, expected {VERSION_WITHOUT_LEVEL} to {VERSION}")
            }
            ThawError::Length(length) => {
                write!(f, "small tables of {length} bytes, expected at most {TABLES_BYTES_MAX}")
            }
            ThawError::Level(level) => write!(
                f,
                "the cluster is at feature level {level}, but this version knows only {KNOWN}: run the version of the other members"
            ),
            ThawError::Members => f.write_str("malformed table of members, alarms or digests"),
            ThawError::Sessions(malformed) => write!(f, "table of sessions: {malformed}"),
            ThawError::Store(malformed) => malformed.fmt(f),
        }
    }
}

impl core::error::Error for ThawError {}

impl Keeper {
    /// All tables as of now, which is right after the entry at [`Keeper::applied`].
    ///
    /// # Panics
    /// If a task is [in the middle](Keeper::is_in_the_middle): the pinned state would match no index.
    #[must_use]
    pub fn pin(&self) -> Frozen {
        assert!(!self.is_in_the_middle(), "a pin after {} in the middle of a task", self.applied().0);
        let (store, tables) = self.tables();
        Frozen { store: store.pin(), tables: tables.clone() }
    }

    /// A digest of all tables at the applied index, for members to compare: `kattu_kv::digest` lists what it finds.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let (store, tables) = self.tables();
        let digest = kattu_kv::digest::with(store.running_digest(), &encode_tables(tables));
        match tables.level {
            0..SESSIONS => digest, // as an older version's
            _ => kattu_kv::digest::with(digest, &tables.sessions.digest().to_le_bytes()),
        }
    }

    /// The keeper whose [`Frozen`] gave these chunks, however they are cut.
    ///
    /// # Errors
    /// If they are not exactly that.
    pub fn thaw<C: AsRef<[u8]>>(chunks: impl IntoIterator<Item = C>) -> Result<Keeper, ThawError> {
        let mut thaw = Thaw::default();
        chunks.into_iter().try_for_each(|chunk| thaw.push(chunk.as_ref()))?;
        thaw.finish()
    }
}

impl Frozen {
    /// The applied index of these tables.
    #[must_use]
    pub fn applied(&self) -> LogIndex {
        self.tables.applied
    }

    /// Approximate length of all chunks: keys, values and answers that are held, with their overhead.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.store.stats().bytes + self.tables.sessions.bytes()
    }

    /// The store, to be read or hashed as of the pin.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The sessions of clients, as of the pin.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.tables.sessions
    }

    /// The store alone, to be taken apart.
    #[must_use]
    pub fn into_store(self) -> Store {
        self.store
    }

    /// The encoded tables.
    #[must_use]
    pub fn chunks(self) -> Chunks {
        let tables = encode_tables(&self.tables);
        let has_sessions = SESSIONS <= self.tables.level;
        let sessions = has_sessions.then(|| self.tables.sessions.dump());
        Chunks { tables, sessions, store: self.store.dump() }
    }
}

/// Equal if their bytes are, which takes a walk through both; for tests.
impl PartialEq for Frozen {
    fn eq(&self, other: &Frozen) -> bool {
        self.clone().chunks().eq(other.clone().chunks())
    }
}

impl Eq for Frozen {}

impl Chunks {
    /// Frees some of what chunks that have all been taken still hold of the tables. Returns whether there is more.
    ///
    /// # Panics
    /// If a chunk is still to come.
    pub fn release(&mut self) -> bool {
        self.store.release()
    }
}

impl Iterator for Chunks {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.tables.is_empty() {
            let of_sessions = self.sessions.as_mut().and_then(Iterator::next);
            if of_sessions.is_none() {
                self.sessions = None; // what it held of the keeper's memory goes back
            }
            return of_sessions.or_else(|| self.store.next());
        }
        let rest = self.tables.split_off(self.tables.len().min(CHUNK_BYTES_MAX));
        Some(core::mem::replace(&mut self.tables, rest))
    }
}

impl Thaw {
    /// Reads the next bytes.
    ///
    /// # Errors
    /// If they cannot be part of tables; later bytes cannot repair that.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), ThawError> {
        if self.tables.is_some() {
            return self.push_behind(chunk);
        }
        self.carry.extend_from_slice(chunk);
        let Some((version, tables, rest)) = split_tables(&self.carry)? else { return Ok(()) };
        let (tables, rest_len) = (decode_tables(version, tables).ok_or(ThawError::Members)?, rest.len());
        if KNOWN < tables.level {
            return Err(ThawError::Level(tables.level));
        }
        self.loading = (version == VERSION).then(sessions::Loader::default);
        self.tables = Some(tables);
        let carry = core::mem::take(&mut self.carry);
        self.push_behind(&carry[carry.len() - rest_len..])
    }

    /// Reads the next bytes behind the small tables.
    fn push_behind(&mut self, chunk: &[u8]) -> Result<(), ThawError> {
        let Some(mut loading) = self.loading.take() else {
            return self.store.push(chunk).map_err(ThawError::Store);
        };
        let Some(rest) = loading.push(chunk).map_err(ThawError::Sessions)? else {
            self.loading = Some(loading);
            return Ok(());
        };
        let sessions = loading.finish().map_err(ThawError::Sessions)?;
        if let Some(tables) = &mut self.tables {
            tables.sessions = sessions;
        }
        self.store.push(&rest).map_err(ThawError::Store)
    }

    /// The keeper, once all bytes were pushed.
    ///
    /// # Errors
    /// If the bytes are incomplete.
    pub fn finish(self) -> Result<Keeper, ThawError> {
        let tables = self.tables.filter(|_| self.loading.is_none()).ok_or(ThawError::Truncated)?;
        let store = self.store.finish().map_err(ThawError::Store)?;
        Ok(Keeper::of(store, tables))
    }
}

/// Encodes the small tables, which precede the store.
fn encode_tables(tables: &Tables) -> Vec<u8> {
    let Tables { members, alarms, digests, applied, level, sessions: _ } = tables;
    let mut out = Vec::from(MAGIC);
    out.push(version_at(*level));
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&applied.0.to_le_bytes());
    out.extend_from_slice(&members.at.0.to_le_bytes());
    put_count(&mut out, members.list.len());
    for member in members.list.values() {
        out.extend_from_slice(&member.id.0.to_le_bytes());
        out.push(match (member.learner, member.votes_when_ready) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        });
        put_text(&mut out, &member.name);
        for urls in [&member.peer_urls, &member.client_urls] {
            put_count(&mut out, urls.len());
            urls.iter().for_each(|url| put_text(&mut out, url));
        }
    }
    let removed = u32::try_from(members.removed.len()).expect("nobody changes members that often");
    out.extend_from_slice(&removed.to_le_bytes());
    members.removed.iter().for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
    alarms.encode(&mut out);
    digests.encode(&mut out);
    if *level != 0 {
        out.extend_from_slice(&level.to_le_bytes());
    }
    let length = u32::try_from(out.len() - PREFIX).expect("the gate bounds members, names and URLs");
    out[PREFIX - 4..PREFIX].copy_from_slice(&length.to_le_bytes());
    out
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u16::try_from(count).expect("the gate bounds members and URLs");
    out.extend_from_slice(&count.to_le_bytes());
}

/// The bytes of the small tables and those after them; `None` if the tables are incomplete so far.
type Split<'a> = Option<(u8, &'a [u8], &'a [u8])>;

fn split_tables(bytes: &[u8]) -> Result<Split<'_>, ThawError> {
    if !bytes.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected) {
        return Err(ThawError::NoTables);
    }
    let Some((prefix, rest)) = bytes.split_at_checked(PREFIX) else { return Ok(None) };
    if !(VERSION_WITHOUT_LEVEL..=VERSION).contains(&prefix[4]) {
        return Err(ThawError::Version(prefix[4]));
    }
    let length = u32::from_le_bytes([prefix[5], prefix[6], prefix[7], prefix[8]]);
    if length > TABLES_BYTES_MAX {
        return Err(ThawError::Length(length));
    }
    Ok(rest.split_at_checked(length as usize).map(|(tables, rest)| (prefix[4], tables, rest)))
}

/// Decodes what `encode_tables` wrote behind the prefix; refuses any other form of it.
fn decode_tables(version: u8, mut rest: &[u8]) -> Option<Tables> {
    let number = |rest: &mut &[u8]| take_u64(rest).ok();
    let texts = |rest: &mut &[u8]| -> Option<Vec<String>> {
        let count = take_u16(rest).ok()?;
        (0..count).map(|_| take_text(rest).ok()).collect()
    };
    let applied = LogIndex(number(&mut rest)?);
    let at = LogIndex(number(&mut rest)?);
    let mut members = Table { at, ..Table::default() };
    for _ in 0..take_u16(&mut rest).ok()? {
        let id = NodeId(number(&mut rest)?);
        let (learner, votes_when_ready) = match take(&mut rest, 1).ok()? {
            [0] => (false, false),
            [1] => (true, false),
            [2] => (true, true),
            _ => return None,
        };
        let name = take_text(&mut rest).ok()?;
        let (peer_urls, client_urls) = (texts(&mut rest)?, texts(&mut rest)?);
        let is_ascending = members.list.last_key_value().is_none_or(|(last, _)| *last < id);
        members.list.insert(id, MemberInfo { id, name, peer_urls, client_urls, learner, votes_when_ready });
        if !is_ascending {
            return None;
        }
    }
    for _ in 0..u32::from_le_bytes(take(&mut rest, 4).ok()?.try_into().ok()?) {
        let id = NodeId(number(&mut rest)?);
        let is_ascending = members.removed.last().is_none_or(|last| *last < id);
        if !is_ascending || members.list.contains_key(&id) {
            return None;
        }
        members.removed.insert(id);
    }
    let alarms = Alarms::take(&mut rest).ok()?;
    let digests = Digests::take(&mut rest).ok()?;
    let level = match version {
        VERSION_WITHOUT_LEVEL => 0,
        _ => u16::from_le_bytes(take(&mut rest, 2).ok()?.try_into().ok()?),
    };
    let has_one_form = version == version_at(level) || (KNOWN < level && version == VERSION);
    (rest.is_empty() && at <= applied && has_one_form).then_some(Tables {
        members,
        alarms,
        digests,
        applied,
        level,
        sessions: Sessions::default(),
    })
}
