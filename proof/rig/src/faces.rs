//! Faces: how the clients of a trial speak to the members. In a third of the trials some or all speak the native protocol.
//!
//! | Face | A request goes |
//! |---|---|
//! | etcd | to one member, once, by gRPC |
//! | native | where the client thinks the leader is, and again while it certainly had no effect |
//! | in a session | the same; a write is repeated until it has an answer, or is told to be unknown |
//!
//! Serializable reads go to one member in each face, as the judges compare them with what that member has shown: a native
//! client of that member alone, which asks nothing else and so never learns to go elsewhere.
//! Rule: a session that the members have ended is followed by a new one. Until a session is open, as long as the cluster has
//!       none, its client writes without.
//! Knows nothing of: faults, histories.

use crate::native;
use crate::target::Target;
use crate::words;
use crate::workload::Shape;
use kattu_client::{Endpoint, Error, Level, NativeClient, Options, Order, Session, SessionOptions, Store};
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_random::Random;
use kattu_tls::ClientTls;
use kattu_verify::history::{Operation, What};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Channel;

/// After this a client records the outcome as unknown and goes on.
const PATIENCE: Duration = Duration::from_secs(2);
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// How one client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// etcd's API.
    Etcd,
    /// The native protocol.
    Native,
    /// The native protocol, with writes in a session.
    InSession(Order),
}

impl Face {
    const ALL: [Face; 4] =
        [Face::Etcd, Face::Native, Face::InSession(Order::Strict), Face::InSession(Order::Any)];

    /// Its place in counts: those in sessions have one.
    fn place(self) -> usize {
        match self {
            Face::Etcd => 0,
            Face::Native => 1,
            Face::InSession(_) => 2,
        }
    }
}

/// Answers by face: etcd's, native, in a session.
pub type Answers = [u64; 3];

/// What the native clients of one trial, or of several, did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spoken {
    /// Trials that had any.
    pub trials: u64,
    /// Answers to those without a session.
    pub native: u64,
    /// Answers to those in sessions.
    pub in_sessions: u64,
    /// Commands of sessions that were sent again.
    pub repeated: u64,
}

impl Spoken {
    /// Adds that of another trial.
    pub fn add(&mut self, other: Spoken) {
        self.trials += other.trials;
        self.native += other.native;
        self.in_sessions += other.in_sessions;
        self.repeated += other.repeated;
    }

    /// One line.
    pub fn line(&self) -> String {
        let Spoken { trials, native, in_sessions, repeated } = self;
        format!(
            "{trials} trials with native clients: {native} answers, and {in_sessions} of clients in sessions, where {repeated} \
             commands were sent again"
        )
    }
}

/// The face of each client of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faces(Vec<Face>);

impl Faces {
    /// Draws those of a seed. Nothing else is drawn from the same numbers.
    pub fn draw(seed: u64, target: Target, shape: &Shape) -> Faces {
        let mut random = Random::of_part(seed, "faces");
        if target != Target::Kattu || !random.per_mille(334) {
            return Faces(vec![Face::Etcd; shape.clients as usize]);
        }
        let all = *random.pick(&[None, None, Some(Face::Native), Some(Face::ALL[2]), Some(Face::ALL[3])]);
        let mut faces: Vec<Face> =
            (0..shape.clients).map(|_| all.unwrap_or_else(|| *random.pick(&Face::ALL))).collect();
        // One at least is native.
        if let Some(first) = faces.first_mut().filter(|face| **face == Face::Etcd) {
            *first = Face::Native;
        }
        Faces(faces)
    }

    /// Whether a client speaks the native protocol.
    pub fn is_native(&self) -> bool {
        self.0.iter().any(|face| *face != Face::Etcd)
    }

    /// The face of a client.
    pub fn of(&self, client: u32) -> Face {
        self.0[client as usize]
    }

    /// The first face that has had no answer between these counts.
    pub fn unanswered(&self, before: Answers, after: Answers) -> Option<Face> {
        self.0.iter().copied().find(|face| after[face.place()] <= before[face.place()])
    }
}

impl fmt::Display for Faces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |face: Face| self.0.iter().filter(|other| **other == face).count();
        let [etcd, native, strict, any] = Face::ALL.map(count);
        write!(
            f,
            "clients: {etcd} of etcd's API, {native} native, in sessions {strict} strict, {any} in any order"
        )
    }
}

/// The mouth of one client.
pub(crate) enum Speaker {
    Etcd(Vec<KvClient<Channel>>),
    Native(NativeSpeaker),
}

pub(crate) struct NativeSpeaker {
    client: NativeClient,
    /// Of each member, for serializable reads.
    alone: Vec<Store>,
    order: Option<Order>,
    session: Option<Arc<Session>>,
    /// What ended sessions have sent again.
    repeated: u64,
}

impl Speaker {
    pub(crate) fn new(face: Face, hosts: &[String], tls: Option<&ClientTls>) -> Speaker {
        let order = match face {
            Face::Etcd => return Speaker::Etcd(hosts.iter().map(|host| channel(host, tls)).collect()),
            Face::Native => None,
            Face::InSession(order) => Some(order),
        };
        let addresses: Vec<String> = hosts.iter().map(|host| format!("{host}:2379")).collect();
        let options = Options { timeout: PATIENCE };
        let of = |addresses: &[String]| {
            NativeClient::connect(addresses, options, tls).expect("members have addresses")
        };
        let alone = addresses
            .iter()
            .map(|address| Store::from(of(std::slice::from_ref(address))).at_level(Level::Serializable));
        let alone = alone.collect();
        Speaker::Native(NativeSpeaker { client: of(&addresses), alone, order, session: None, repeated: 0 })
    }

    /// Before an operation: opens a session, if there is to be one.
    pub(crate) async fn prepare(&mut self) {
        if let Speaker::Native(NativeSpeaker {
            client, order: Some(order), session: session @ None, ..
        }) = self
        {
            let options = SessionOptions { order: *order, ..SessionOptions::default() };
            *session = client.open_session(options).await.ok().map(Arc::new);
        }
    }

    /// Sends an operation, which is at this member if that matters; its outcome, and the place of its face in counts.
    pub(crate) async fn ask(&mut self, at: usize, operation: &Operation) -> (What, usize) {
        let late = |_| What::Unknown { reason: "no answer in time".into() };
        match self {
            Speaker::Etcd(channels) => {
                let asked = tokio::time::timeout(PATIENCE, words::ask(&mut channels[at], operation)).await;
                (asked.unwrap_or_else(late), Face::Etcd.place())
            }
            Speaker::Native(native) => {
                let face = match (&native.session, native.order) {
                    (Some(_), Some(order)) => Face::InSession(order),
                    _ => Face::Native,
                };
                // It ends by its own clock; twice the time is for a machine that is busy.
                let asked = tokio::time::timeout(2 * PATIENCE, native.ask(at, operation)).await;
                (asked.unwrap_or_else(late), face.place())
            }
        }
    }

    /// How often a command of a session was sent that had been sent before.
    pub(crate) fn repeated(&self) -> u64 {
        match self {
            Speaker::Etcd(_) => 0,
            Speaker::Native(native) => {
                native.repeated + native.session.as_ref().map_or(0, |session| session.repeated())
            }
        }
    }
}

impl NativeSpeaker {
    async fn ask(&mut self, at: usize, operation: &Operation) -> What {
        let asked = match (operation, &self.session) {
            (Operation::Range { serializable: true, .. }, _) => native::ask(&self.alone[at], operation).await,
            (_, Some(session)) => native::ask(&Store::from(session.clone()), operation).await,
            (_, None) => native::ask(&Store::from(self.client.clone()), operation).await,
        };
        if let Err(Error::Session { .. }) = asked {
            self.repeated += self.session.take().map_or(0, |session| session.repeated());
        }
        match asked {
            Ok((revision, answer)) => What::Done { revision: Some(revision), answer: Ok(answer) },
            Err(error) => native::meaning(&error),
        }
    }
}

/// A connection to one member, made at first use and after a loss.
pub fn channel(host: &str, tls: Option<&ClientTls>) -> KvClient<Channel> {
    let endpoint = Endpoint::new(&format!("{host}:2379"), Duration::from_millis(500), tls);
    KvClient::new(endpoint.expect("an address").channel()).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(target: Target) -> Vec<Faces> {
        let shape = Shape::of_storm(&mut Random::new(1));
        (0..900).map(|seed| Faces::draw(seed, target, &shape)).collect()
    }

    #[test]
    fn a_third_of_the_trials_has_native_clients_and_every_face_is_there_alone_and_among_others() {
        let all = drawn(Target::Kattu);
        assert_eq!(all, drawn(Target::Kattu), "decided by the seed");
        let native = all.iter().filter(|faces| faces.is_native()).count();
        assert!((250..=350).contains(&native), "{native}");
        for face in Face::ALL {
            let alone = |faces: &&Faces| faces.0.iter().all(|other| *other == face);
            let among = |faces: &&Faces| faces.is_native() && faces.0.contains(&face) && !alone(faces);
            assert!(all.iter().any(|faces| alone(&faces)), "{face:?}");
            assert!(all.iter().any(|faces| among(&faces)), "{face:?}");
        }
        assert!(drawn(Target::Etcd).iter().all(|faces| !faces.is_native()));
    }

    #[test]
    fn a_face_without_an_answer_is_named() {
        let faces = Faces(vec![Face::Native, Face::InSession(Order::Any)]);
        assert_eq!(faces.unanswered([0, 3, 3], [0, 4, 4]), None);
        assert_eq!(faces.unanswered([0, 3, 3], [9, 4, 3]), Some(Face::InSession(Order::Any)));
        assert_eq!(faces.unanswered([0, 3, 3], [9, 3, 4]), Some(Face::Native));
    }
}
