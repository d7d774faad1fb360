//! Extensions: what a configuration says besides its members, in a form that later versions may add to.
//!
//! ```text
//!  ├ count u16 ┼ number u16 │ length u16 │ value ┼ number │ length │ value ┼ …        numbers ascend
//! ```
//!
//! In:    the bytes behind the lists of a configuration of layout 2.
//! Out:   the settings of the cluster that this version knows, and the bytes of those that it may ignore.
//! Rules: 1. The number of an extension says what a member does that does not know it. Below [`IGNORABLE`] it is
//!           *critical*: the member refuses the configuration, because it would run by other rules than the others. From
//!           there on it is *ignorable*: the member keeps the bytes, and passes them on with every configuration that it
//!           makes itself.
//!        2. A configuration without extensions is written in layout 1, which every version reads. So layout 2 appears
//!           only after the cluster's feature level allows the first extension.
//!        3. What is read is written as the same bytes again: numbers ascend, and layout 2 has at least one extension.
//!
//! Knows nothing of: members, quorums, feature levels.

use crate::membership::MembershipError;
use crate::policy::{Capacity, Intake, Policies, Weak};
use crate::types::Duration;
use alloc::vec::Vec;

/// Extensions with this number or a higher one may be ignored by a member that does not know them. [Rule 1]
pub const IGNORABLE: u16 = 0x8000;

/// The number of [`Timing`]. Critical: a member with another election timeout would grant shorter vote holds.
const TIMING: u16 = 1;

/// The number of [`Protocol`]. Critical: a member that ran another protocol would misread the entries.
const PROTOCOL: u16 = 2;

/// Longest election timeout; beyond it a lost leader would look like an outage. [etcd embed]
pub const ELECTION_TIMEOUT_MAX: Duration = Duration::from_secs(50);

/// What a configuration says besides its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extensions {
    /// How long members wait for their leader. Without it each member's own configuration counts.
    pub timing: Option<Timing>,
    /// The protocol that the cluster runs. Without it each member's own configuration counts.
    pub protocol: Option<Protocol>,
    /// Numbers and values of ignorable extensions that this version does not know, ascending by number.
    pub unknown: Vec<(u16, Vec<u8>)>,
}

/// How long the members of a cluster wait for their leader, and how often it reports to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Minimum election timeout `ET`; the actual one is drawn from `ET..2·ET`. At most [`ELECTION_TIMEOUT_MAX`] in a
    /// configuration entry. [replication-protocols E1]
    pub election_timeout: Duration,
    /// Time between heartbeats; at most a third of the election timeout.
    pub heartbeat_interval: Duration,
}

/// The protocol that a cluster runs, with its parameters. Raft has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Raft as it is: every policy at its first value.
    Raft,
    /// Non-blocking Raft: followers keep entries after a gap, and clients that ask for it are answered when a quorum has
    /// received their entries. Without places in the window and without weak answers it is Raft.
    /// [replication-protocols §4]
    NbRaft(NbRaft),
}

/// The parameters of non-blocking Raft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NbRaft {
    /// What a follower keeps after a gap.
    pub window: Capacity,
    /// Which entries may be answered weakly.
    pub weak: Weak,
    /// How many entries, and how many bytes of them, may be answered weakly and not yet be committed.
    pub budget: Capacity,
}

/// Places of a window at most.
pub const WINDOW_ENTRIES_MAX: u32 = 1_000_000;

/// Bytes of a window at most: a member keeps them in memory.
pub const WINDOW_BYTES_MAX: u64 = 1 << 30;

impl Timing {
    /// Checks this timing; errors are written for operators.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.heartbeat_interval.is_zero() {
            return Err("the heartbeat interval must be longer than 0");
        }
        if self.election_timeout < self.heartbeat_interval * 3 {
            return Err("the election timeout must be at least three heartbeat intervals");
        }
        Ok(())
    }

    /// Time between heartbeats while the group is at rest: nothing is proposed, read or owed to a peer, and no lease is renewed.
    /// Three intervals, at most a third of the election timeout, and so never less than one interval. [replication-protocols E9]
    #[must_use]
    pub fn rest_interval(&self) -> Duration {
        (self.heartbeat_interval * 3).min(self.election_timeout / 3)
    }

    /// For so long a voter that has just started follows nobody and grants no pre-votes: a leader at rest reaches it meanwhile, even
    /// if its link was not there yet at the first attempt. [replication-protocols E3b]
    pub(crate) fn grace(&self) -> Duration {
        self.heartbeat_interval + self.rest_interval()
    }

    fn put(&self, out: &mut Vec<u8>) {
        for time in [self.election_timeout, self.heartbeat_interval] {
            let nanos = u64::try_from(time.as_nanos()).expect("settings are checked before they are written");
            out.extend_from_slice(&nanos.to_le_bytes());
        }
    }

    fn take(value: &[u8]) -> Result<Timing, MembershipError> {
        let ([election_timeout, heartbeat_interval], []) = value.as_chunks::<8>() else {
            return Err(MembershipError::Broken("a timing has two times of eight bytes"));
        };
        let time = |nanos: &[u8; 8]| Duration::from_nanos(u64::from_le_bytes(*nanos));
        let timing =
            Timing { election_timeout: time(election_timeout), heartbeat_interval: time(heartbeat_interval) };
        Ok(timing)
    }
}

impl Protocol {
    /// The number of plain Raft.
    const RAFT: u16 = 1;

    /// The number of non-blocking Raft.
    const NB_RAFT: u16 = 2;

    /// The policies that make up this protocol.
    #[must_use]
    pub fn policies(self) -> Policies {
        match self {
            Protocol::Raft => Policies::default(),
            Protocol::NbRaft(NbRaft { window, weak, .. }) => {
                let intake = if window.entries == 0 { Intake::Strict } else { Intake::Window(window) };
                Policies { intake, weak }
            }
        }
    }

    /// Its bytes: its number and its parameters. [docs/formats/membership.md]
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// Reads these bytes.
    ///
    /// # Errors
    /// Why they name no protocol that this version knows.
    pub fn decode(value: &[u8]) -> Result<Protocol, MembershipError> {
        Protocol::take(value)
    }

    fn put(self, out: &mut Vec<u8>) {
        match self {
            Protocol::Raft => out.extend_from_slice(&Protocol::RAFT.to_le_bytes()),
            Protocol::NbRaft(NbRaft { window, weak, budget }) => {
                out.extend_from_slice(&Protocol::NB_RAFT.to_le_bytes());
                put_size(window, out);
                match weak {
                    Weak::Off => return,
                    Weak::Gap => out.push(1),
                    Weak::Receipt => out.push(2),
                }
                put_size(budget, out);
            }
        }
    }

    /// Checks its parameters; errors are written for operators.
    fn check(self) -> Result<(), &'static str> {
        match self {
            Protocol::Raft => Ok(()),
            Protocol::NbRaft(NbRaft { window, budget, .. })
                if WINDOW_ENTRIES_MAX < window.entries.max(budget.entries) =>
            {
                Err("a window and a budget have at most 1,000,000 entries")
            }
            Protocol::NbRaft(NbRaft { window, budget, .. })
                if WINDOW_BYTES_MAX < window.bytes.max(budget.bytes) =>
            {
                Err("a window and a budget have at most 1 GiB")
            }
            Protocol::NbRaft(NbRaft { window, budget, .. }) if window.is_half() || budget.is_half() => {
                Err("a window and a budget have both entries and bytes, or none")
            }
            Protocol::NbRaft(NbRaft { weak, budget, .. }) if (weak == Weak::Off) != (budget.entries == 0) => {
                Err("weak answers have a budget, and without them there is none")
            }
            Protocol::NbRaft(_) => Ok(()),
        }
    }

    fn take(value: &[u8]) -> Result<Protocol, MembershipError> {
        let (mode, parameters) = value.split_first_chunk::<2>().ok_or(MembershipError::Cut)?;
        match (u16::from_le_bytes(*mode), parameters) {
            (Protocol::RAFT, []) => Ok(Protocol::Raft),
            (Protocol::RAFT, _) => Err(MembershipError::Broken("the protocol raft has no parameters")),
            (Protocol::NB_RAFT, parameters) => {
                let wrong = MembershipError::Broken(
                    "the protocol nb-raft has a window of 12 bytes, then, with weak answers, one byte and a budget of 12",
                );
                let taken = take_size(parameters).and_then(|(window, rest)| {
                    let Some((mode, rest)) = rest.split_first() else {
                        return Some(NbRaft { window, ..NbRaft::default() });
                    };
                    let weak = match mode {
                        1 => Weak::Gap,
                        2 => Weak::Receipt,
                        _ => return None,
                    };
                    let (budget, rest) = take_size(rest)?;
                    rest.is_empty().then_some(NbRaft { window, weak, budget })
                });
                taken.map(Protocol::NbRaft).ok_or(wrong)
            }
            (other, _) => Err(MembershipError::Protocol(other)),
        }
    }
}

fn put_size(size: Capacity, out: &mut Vec<u8>) {
    out.extend_from_slice(&size.entries.to_le_bytes());
    out.extend_from_slice(&size.bytes.to_le_bytes());
}

fn take_size(bytes: &[u8]) -> Option<(Capacity, &[u8])> {
    let (entries, rest) = bytes.split_first_chunk::<4>()?;
    let (bytes, rest) = rest.split_first_chunk::<8>()?;
    Some((Capacity { entries: u32::from_le_bytes(*entries), bytes: u64::from_le_bytes(*bytes) }, rest))
}

impl Extensions {
    /// Whether there is none, so that layout 1 says everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Extensions::default()
    }

    /// Checks these extensions; errors are written for operators.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), &'static str> {
        if let Some(timing) = &self.timing {
            timing.check()?;
            if ELECTION_TIMEOUT_MAX < timing.election_timeout {
                return Err("the election timeout must be at most 50 s");
            }
        }
        self.protocol.map_or(Ok(()), Protocol::check)?;
        if !self.unknown.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err("the extensions of a configuration must be ascending, without repeats");
        }
        Ok(())
    }

    /// Appends their bytes. [docs/formats/membership.md]
    ///
    /// # Panics
    /// If there are more than 65,535, or one is longer than that.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let known = usize::from(self.timing.is_some()) + usize::from(self.protocol.is_some());
        let u16_of = |count: usize| u16::try_from(count).expect("extensions are few and short");
        out.extend_from_slice(&u16_of(known + self.unknown.len()).to_le_bytes());
        let mut extension = |number: u16, put: &dyn Fn(&mut Vec<u8>)| {
            out.extend_from_slice(&number.to_le_bytes());
            let at = out.len();
            out.extend_from_slice(&[0; 2]);
            put(out);
            let len = u16_of(out.len() - at - 2);
            out[at..at + 2].copy_from_slice(&len.to_le_bytes());
        };
        if let Some(timing) = &self.timing {
            extension(TIMING, &|out| timing.put(out));
        }
        if let Some(protocol) = self.protocol {
            extension(PROTOCOL, &|out| protocol.put(out));
        }
        for (number, value) in &self.unknown {
            extension(*number, &|out| out.extend_from_slice(value));
        }
    }

    /// Reads extensions, and returns the bytes after them.
    ///
    /// # Errors
    /// Why these bytes do not begin with extensions that this version can follow.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Extensions, &[u8]), MembershipError> {
        fn take_u16(bytes: &[u8]) -> Result<(u16, &[u8]), MembershipError> {
            let (number, rest) = bytes.split_first_chunk::<2>().ok_or(MembershipError::Cut)?;
            Ok((u16::from_le_bytes(*number), rest))
        }
        let mut extensions = Extensions::default();
        let (count, mut rest) = take_u16(bytes)?;
        if count == 0 {
            return Err(MembershipError::Broken("a configuration without extensions has layout 1"));
        }
        let mut before = None;
        for _ in 0..count {
            let (number, behind) = take_u16(rest)?;
            let (len, behind) = take_u16(behind)?;
            let (value, behind) = behind.split_at_checked(len.into()).ok_or(MembershipError::Cut)?;
            rest = behind;
            if before.replace(number) >= Some(number) {
                let rule = "the extensions of a configuration must be ascending, without repeats";
                return Err(MembershipError::Broken(rule));
            }
            match number {
                TIMING => extensions.timing = Some(Timing::take(value)?),
                PROTOCOL => extensions.protocol = Some(Protocol::take(value)?),
                critical @ ..IGNORABLE => return Err(MembershipError::Extension(critical)),
                ignorable => extensions.unknown.push((ignorable, value.to_vec())),
            }
        }
        Ok((extensions, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use std::string::ToString;

    fn timing(election_ms: u64, heartbeat_ms: u64) -> Timing {
        Timing {
            election_timeout: Duration::from_millis(election_ms),
            heartbeat_interval: Duration::from_millis(heartbeat_ms),
        }
    }

    /// Extensions with these numbers and values.
    fn bytes(of: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = Vec::from((of.len() as u16).to_le_bytes());
        for (number, value) in of {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&(value.len() as u16).to_le_bytes());
            out.extend_from_slice(value);
        }
        out
    }

    #[test]
    fn what_may_be_ignored_is_kept_byte_for_byte_and_what_may_not_is_refused() {
        let raft = [1, 0];
        let read = bytes(&[(PROTOCOL, &raft), (IGNORABLE, b"of tomorrow"), (u16::MAX, b"")]);
        let (extensions, rest) = Extensions::decode(&read).unwrap();
        assert_eq!(rest, b"");
        assert_eq!(extensions.unknown, vec![(IGNORABLE, b"of tomorrow".to_vec()), (u16::MAX, vec![])]);
        let mut again = Vec::new();
        extensions.encode(&mut again);
        assert_eq!(again, read);
        for critical in [0, PROTOCOL + 1, IGNORABLE - 1] {
            let refused = Extensions::decode(&bytes(&[(critical, b"")])).unwrap_err();
            assert_eq!(refused, MembershipError::Extension(critical));
            let told = refused.to_string();
            assert!(told.contains("run the version of the other members"), "{told}");
        }
    }

    #[test]
    fn another_protocol_is_refused_by_its_number() {
        let refused = |value: &[u8]| Extensions::decode(&bytes(&[(PROTOCOL, value)])).unwrap_err();
        assert_eq!(refused(&[3, 0]), MembershipError::Protocol(3));
        assert_eq!(refused(&[0, 1, 7]), MembershipError::Protocol(256));
        assert_eq!(refused(&[1]), MembershipError::Cut);
        let parameters = refused(&[1, 0, 0]).to_string();
        assert_eq!(parameters, "the protocol raft has no parameters");
        let told = refused(&[3, 0]).to_string();
        assert!(told.contains("protocol 3") && told.contains("run the version of"), "{told}");
    }

    #[test]
    fn a_window_is_read_as_it_was_written_and_has_bounds() {
        let size = |entries, bytes| Capacity { entries, bytes };
        let nothing = Capacity::default();
        let of = |window, weak, budget| Extensions {
            protocol: Some(Protocol::NbRaft(NbRaft { window, weak, budget })),
            ..Extensions::default()
        };
        let good = [
            of(size(10_000, 64 << 20), Weak::Off, nothing),
            of(size(10_000, 64 << 20), Weak::Gap, size(7, 9)),
            of(nothing, Weak::Receipt, size(WINDOW_ENTRIES_MAX, WINDOW_BYTES_MAX)),
            of(nothing, Weak::Off, nothing),
        ];
        for one in good {
            let mut written = Vec::new();
            one.encode(&mut written);
            assert_eq!(Extensions::decode(&written), Ok((one.clone(), &b""[..])));
            assert_eq!(one.check(), Ok(()));
        }
        let broken = [size(1, 0), size(0, 1), size(WINDOW_ENTRIES_MAX + 1, 1), size(1, WINDOW_BYTES_MAX + 1)];
        for size in broken {
            assert!(of(size, Weak::Off, nothing).check().is_err(), "a window of {size:?}");
            assert!(of(nothing, Weak::Gap, size).check().is_err(), "a budget of {size:?}");
        }
        assert!(of(size(1, 1), Weak::Gap, nothing).check().is_err(), "without a budget");
        assert!(of(size(1, 1), Weak::Off, size(1, 1)).check().is_err(), "a budget of nothing");
        let policies =
            |window, weak| Protocol::NbRaft(NbRaft { window, weak, ..NbRaft::default() }).policies();
        assert_eq!(policies(nothing, Weak::Off), Policies::default());
        let both = Policies { intake: Intake::Window(size(3, 9)), weak: Weak::Gap };
        assert_eq!(policies(size(3, 9), Weak::Gap), both);
        let nb_raft = NbRaft { window: size(3, 9), weak: Weak::Gap, budget: size(1, 1) };
        let whole = Protocol::NbRaft(nb_raft).encode();
        let with_mode = |mode| [&whole[..14], &[mode], &whole[15..]].concat();
        for value in [
            &whole[..26],
            &[&whole[..], &[0]].concat(),
            &with_mode(0),
            &with_mode(3),
            &whole[..2],
            &whole[..15],
        ] {
            let refused = Extensions::decode(&bytes(&[(PROTOCOL, value)])).unwrap_err().to_string();
            assert!(refused.starts_with("the protocol nb-raft has a window of 12 bytes"), "{refused}");
        }
    }

    #[test]
    fn broken_extensions_are_named() {
        let refused = |of: &[(u16, &[u8])]| Extensions::decode(&bytes(of)).unwrap_err().to_string();
        assert_eq!(refused(&[]), "a configuration without extensions has layout 1");
        let order = "the extensions of a configuration must be ascending, without repeats";
        assert_eq!(refused(&[(0x9000, b""), (0x8fff, b"")]), order);
        assert_eq!(refused(&[(0x9000, b""), (0x9000, b"")]), order);
        assert_eq!(refused(&[(TIMING, &[0; 15])]), "a timing has two times of eight bytes");
        let rule = |timing: Timing| Extensions { timing: Some(timing), ..Extensions::default() }.check();
        assert_eq!(rule(timing(1000, 0)), Err("the heartbeat interval must be longer than 0"));
        let ratio = "the election timeout must be at least three heartbeat intervals";
        assert_eq!(rule(timing(299, 100)), Err(ratio));
        assert_eq!(rule(timing(50_001, 100)), Err("the election timeout must be at most 50 s"));
        assert_eq!(rule(timing(50_000, 100)), Ok(()));
    }
}
