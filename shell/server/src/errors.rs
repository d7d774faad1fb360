//! Errors with etcd's gRPC codes and texts, letter for letter.
//!
//! Clients look the *text* up in a table of their own, so a wrong letter turns a typed error into an unknown one.
//! [etcd api/v3rpc/rpctypes/error.go]
//!
//! For a write the texts also tell the two kinds of failure apart, as the contract of a replica does: after
//! `request timed out…` it may have happened or may still happen; after any other text it certainly had no effect.
//! Knows nothing of: transports, requests.

use kattu_kv::api::Error as StoreError;
use kattu_node::contract::{Doubt, MemberRefusal, Refusal};
use tonic::{Code, Status};

/// One of etcd's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdError {
    /// The gRPC code.
    pub code: Code,
    /// The text, with its prefix.
    pub text: &'static str,
}

macro_rules! etcd_errors {
    ($($(#[$doc:meta])* $name:ident = $code:ident, $text:literal;)*) => {
        $($(#[$doc])* pub const $name: EtcdError =
            EtcdError { code: Code::$code, text: concat!("etcdserver: ", $text) };)*
    };
}

etcd_errors! {
    /// An empty key where one is needed.
    EMPTY_KEY = InvalidArgument, "key is not provided";
    /// `ignore_value` or `ignore_lease` on an absent key; an operation without a request.
    KEY_NOT_FOUND = InvalidArgument, "key not found";
    /// A value together with `ignore_value`.
    VALUE_PROVIDED = InvalidArgument, "value is provided";
    /// A lease together with `ignore_lease`.
    LEASE_PROVIDED = InvalidArgument, "lease is provided";
    /// More compares or operations than allowed, or nested too deep.
    TOO_MANY_OPS = InvalidArgument, "too many operations in txn request";
    /// Two puts on one key, or a put inside a delete's range.
    DUPLICATE_KEY = InvalidArgument, "duplicate key given in txn request";
    /// Metadata `client-api-version` that is not text.
    INVALID_CLIENT_API_VERSION = InvalidArgument, "invalid client api version";
    /// A sort order or target without a name.
    INVALID_SORT_OPTION = InvalidArgument, "invalid sort option";
    /// The command would be larger than `--max-request-bytes`.
    REQUEST_TOO_LARGE = InvalidArgument, "request is too large";
    /// No such lease.
    LEASE_NOT_FOUND = NotFound, "requested lease not found";
    /// A revision whose history is gone.
    COMPACTED = OutOfRange, "mvcc: required revision has been compacted";
    /// A revision that is not there yet.
    FUTURE_REVISION = OutOfRange, "mvcc: required revision is a future revision";
    /// The member's state diverges from what its log yields.
    CORRUPT = DataLoss, "corrupt cluster";
    /// No space for growth.
    NO_SPACE = ResourceExhausted, "mvcc: database space exceeded";
    /// Too much is waiting already.
    TOO_MANY_REQUESTS = ResourceExhausted, "too many requests";
    /// Users and roles are off.
    AUTH_NOT_ENABLED = FailedPrecondition, "authentication is not enabled";
    /// Malformed peer URLs, or none.
    BAD_MEMBER_URLS = InvalidArgument, "given member URLs are invalid";
    /// The id of a member, present or past, for a new one.
    MEMBER_EXISTS = FailedPrecondition, "member ID already exist";
    /// Another member's URLs.
    PEER_URL_EXISTS = FailedPrecondition, "Peer URLs already exists";
    /// Too few voters would answer after it.
    NOT_ENOUGH_STARTED = FailedPrecondition, "re-configuration failed due to not enough started members";
    /// No such member.
    MEMBER_NOT_FOUND = NotFound, "member not found";
    /// A promotion of a voter.
    NOT_LEARNER = FailedPrecondition, "can only promote a learner member";
    /// A promotion of a learner that is behind.
    LEARNER_NOT_READY = FailedPrecondition, "can only promote a learner member which is in sync with leader";
    /// One learner more than there may be.
    TOO_MANY_LEARNERS = FailedPrecondition, "too many learner members in cluster";
    /// A change of members while another one is under way.
    UNHEALTHY = Unavailable, "unhealthy cluster";
    /// Only a leader can do this.
    NOT_LEADER = FailedPrecondition, "not leader";
    /// The transfer target has no vote.
    BAD_TRANSFEREE = FailedPrecondition, "bad leader transferee";
    /// The transfer target did not become leader in time.
    TRANSFER_TIMED_OUT = Unknown, "request timed out, leader transfer took too long";
    /// No leader is known.
    NO_LEADER = Unavailable, "no leader";
    /// The leader changed while a read was being confirmed.
    LEADER_CHANGED = Unavailable, "leader changed";
    /// The member is stopping and did nothing.
    STOPPED = Unavailable, "server stopped";
    /// No response in time; a write may have happened.
    TIMED_OUT = Unavailable, "request timed out";
    /// No response because the leader failed; a write may have happened.
    TIMED_OUT_LEADER_FAIL = Unavailable, "request timed out, possibly due to previous leader failure";
    /// No response because the connection was lost; a write may have happened.
    TIMED_OUT_CONNECTION_LOST = Unavailable, "request timed out, possibly due to connection lost";
}

impl From<EtcdError> for Status {
    fn from(error: EtcdError) -> Status {
        Status::new(error.code, error.text)
    }
}

/// One member more than there may be; etcd has no such limit, and no text for it.
pub(crate) const TOO_MANY_MEMBERS: EtcdError =
    EtcdError { code: Code::FailedPrecondition, text: "kattu: too many members in cluster" };

/// A request for a cluster in which a member may run a version that does not know it.
pub const LEVEL_TOO_LOW: EtcdError = EtcdError {
    code: Code::FailedPrecondition,
    text: "kattu: the cluster has not reached the feature level of this request yet: run this version on all members",
};

/// The loudest line of a status.
pub const NO_FSYNC: &str = "--unsafe-no-fsync: this member does not wait for its disk, and a power cut loses what it \
                                   acknowledged: for experiments only";

/// As loud.
pub const EARLY_ANSWERS: &str = "unsafe-early-answers: this member answers puts before any disk has stored them, so that \
                                 acknowledged ones may be lost: for experiments only";

/// A timing that breaks a rule of the protocol.
pub const BAD_TIMING: EtcdError = EtcdError {
    code: Code::InvalidArgument,
    text: "kattu: the election timeout must be at least 5 heartbeat intervals, and at most 50 s",
};

/// A protocol with a parameter out of its range.
pub const BAD_PROTOCOL: EtcdError = EtcdError {
    code: Code::InvalidArgument,
    text: "kattu: a window and a budget have at most 1,000,000 entries and 1 GiB, and both entries and bytes or none",
};

/// A request that would read or delete more keys than one request may. etcd carries it out and blocks meanwhile.
pub(crate) const TOO_MUCH_WORK: EtcdError = EtcdError {
    code: Code::ResourceExhausted,
    text: "kattu: the request covers more keys than --request-work-max allows: use limit or a smaller range, and split a \
           delete or a transaction into several",
};

/// More pairs than one response may hold.
pub(crate) const ANSWER_TOO_LARGE: EtcdError = EtcdError {
    code: Code::ResourceExhausted,
    text: "kattu: the response is larger than one response may be; use limit, and read the rest from the last key on",
};

/// A write that is done, with too many pairs for one response. No code means "done"; this one implies nothing.
pub(crate) const DONE_ANSWER_TOO_LARGE: EtcdError = EtcdError {
    code: Code::Unknown,
    text: "kattu: the request has been carried out, but its response is larger than one response may be; use limit",
};

/// The store's error as etcd's.
#[must_use]
pub(crate) fn of_store(error: StoreError) -> EtcdError {
    match error {
        StoreError::EmptyKey => EMPTY_KEY,
        StoreError::KeyNotFound => KEY_NOT_FOUND,
        StoreError::ValueProvided => VALUE_PROVIDED,
        StoreError::LeaseProvided => LEASE_PROVIDED,
        StoreError::TooManyOps => TOO_MANY_OPS,
        StoreError::DuplicateKey => DUPLICATE_KEY,
        StoreError::InvalidSort => INVALID_SORT_OPTION,
        StoreError::LeaseNotFound => LEASE_NOT_FOUND,
        StoreError::Compacted => COMPACTED,
        StoreError::FutureRevision => FUTURE_REVISION,
        StoreError::AnswerTooLarge => ANSWER_TOO_LARGE,
        StoreError::TooMuchWork => TOO_MUCH_WORK,
    }
}

/// The replica's refusal as etcd's error. A replica that still replays its log answers "no leader": on this text alone
/// every client tries another endpoint and returns later.
#[must_use]
pub(crate) fn of_refusal(refusal: Refusal) -> EtcdError {
    match refusal {
        Refusal::NoLeader | Refusal::Replaying => NO_LEADER,
        Refusal::TooManyRequests => TOO_MANY_REQUESTS,
        Refusal::NoSpace => NO_SPACE,
        Refusal::LeaderChanged => LEADER_CHANGED,
        Refusal::ReadTimedOut => TIMED_OUT,
        Refusal::Stopping => STOPPED,
        Refusal::Member(refusal) => of_member_refusal(refusal),
        Refusal::Corrupt => CORRUPT,
        Refusal::TooMuchWork => TOO_MUCH_WORK,
        Refusal::AnswerTooLarge => ANSWER_TOO_LARGE,
        Refusal::LevelTooLow => LEVEL_TOO_LOW,
        Refusal::NotWeak | Refusal::Overwritten => unreachable!("etcd's clients ask for no weak answers"),
    }
}

/// A refused change with its reason in the metadata, because one text of etcd's often stands for several reasons.
#[must_use]
pub(crate) fn with_reason(refusal: Refusal) -> Status {
    let mut status = Status::from(of_refusal(refusal));
    if let Refusal::Member(reason) = refusal
        && let Ok(reason) = reason.to_string().parse()
    {
        status.metadata_mut().insert(REASON, reason);
    }
    status
}

/// A limit of what is held for clients is reached: etcd's text, and advice in the metadata.
#[must_use]
pub(crate) fn too_much_held(what: &'static str) -> Status {
    let mut status = Status::from(TOO_MANY_REQUESTS);
    status.metadata_mut().insert(REASON, tonic::metadata::MetadataValue::from_static(what));
    status
}

/// Most bytes of a client's text that an error repeats. In a head they grow to up to three times as many, which are
/// held for the client.
pub(crate) const TOLD_BYTES_MAX: usize = 200;

/// The beginning of a client's text, for an error that repeats it.
#[must_use]
pub(crate) fn begin_of(text: &str) -> &str {
    &text[..text.floor_char_boundary(TOLD_BYTES_MAX)]
}

/// The metadata key of a refusal's reason.
pub const REASON: &str = "kattu-reason";

fn of_member_refusal(refusal: MemberRefusal) -> EtcdError {
    match refusal {
        MemberRefusal::UnderWay => UNHEALTHY,
        MemberRefusal::TooManyMembers => TOO_MANY_MEMBERS,
        MemberRefusal::NotFound => MEMBER_NOT_FOUND,
        MemberRefusal::IdUsed => MEMBER_EXISTS,
        MemberRefusal::UrlsUsed => PEER_URL_EXISTS,
        MemberRefusal::NotLearner => NOT_LEARNER,
        MemberRefusal::NotCaughtUp => LEARNER_NOT_READY,
        MemberRefusal::WouldLoseQuorum | MemberRefusal::LastVoter => NOT_ENOUGH_STARTED,
        MemberRefusal::TooManyLearners => TOO_MANY_LEARNERS,
        MemberRefusal::NotLeader => NOT_LEADER,
        MemberRefusal::BadTransferee => BAD_TRANSFEREE,
        MemberRefusal::TransferFailed => TRANSFER_TIMED_OUT,
        MemberRefusal::LevelTooLow => LEVEL_TOO_LOW,
        MemberRefusal::BadTiming => BAD_TIMING,
        MemberRefusal::BadProtocol => BAD_PROTOCOL,
    }
}

/// An unknown outcome as etcd's error. "server stopped" is kept for the certain case, although etcd uses it here, too.
#[must_use]
pub(crate) fn of_doubt(doubt: Doubt) -> EtcdError {
    match doubt {
        Doubt::LeaderChanged => TIMED_OUT_LEADER_FAIL,
        Doubt::TimedOut => TIMED_OUT,
        Doubt::Stopping => TIMED_OUT_CONNECTION_LOST,
        Doubt::AnswerTooLarge => DONE_ANSWER_TOO_LARGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_error_has_etcds_code_and_text() {
        let table = [
            (StoreError::EmptyKey, 3, "etcdserver: key is not provided"),
            (StoreError::KeyNotFound, 3, "etcdserver: key not found"),
            (StoreError::ValueProvided, 3, "etcdserver: value is provided"),
            (StoreError::LeaseProvided, 3, "etcdserver: lease is provided"),
            (StoreError::TooManyOps, 3, "etcdserver: too many operations in txn request"),
            (StoreError::DuplicateKey, 3, "etcdserver: duplicate key given in txn request"),
            (StoreError::InvalidSort, 3, "etcdserver: invalid sort option"),
            (StoreError::LeaseNotFound, 5, "etcdserver: requested lease not found"),
            (StoreError::Compacted, 11, "etcdserver: mvcc: required revision has been compacted"),
            (StoreError::FutureRevision, 11, "etcdserver: mvcc: required revision is a future revision"),
        ];
        for (error, code, text) in table {
            let found = of_store(error);
            assert_eq!((found.code as i32, found.text), (code, text), "{error:?}");
        }
    }

    #[test]
    fn every_refusal_has_etcds_code_and_text() {
        let table = [
            (Refusal::NoLeader, 14, "etcdserver: no leader"),
            (Refusal::Replaying, 14, "etcdserver: no leader"),
            (Refusal::TooManyRequests, 8, "etcdserver: too many requests"),
            (Refusal::NoSpace, 8, "etcdserver: mvcc: database space exceeded"),
            (Refusal::LeaderChanged, 14, "etcdserver: leader changed"),
            (Refusal::ReadTimedOut, 14, "etcdserver: request timed out"),
            (Refusal::Stopping, 14, "etcdserver: server stopped"),
            (Refusal::TooMuchWork, 8, TOO_MUCH_WORK.text),
            (Refusal::AnswerTooLarge, 8, ANSWER_TOO_LARGE.text),
            (Refusal::Corrupt, 15, "etcdserver: corrupt cluster"),
            (Refusal::LevelTooLow, 9, LEVEL_TOO_LOW.text),
        ];
        for (refusal, code, text) in table {
            let found = of_refusal(refusal);
            assert_eq!((found.code as i32, found.text), (code, text), "{refusal:?}");
        }
    }

    #[test]
    fn every_refused_change_has_etcds_code_and_text_and_its_reason() {
        let table = [
            (MemberRefusal::UnderWay, 14, "etcdserver: unhealthy cluster"),
            (MemberRefusal::NotFound, 5, "etcdserver: member not found"),
            (MemberRefusal::IdUsed, 9, "etcdserver: member ID already exist"),
            (MemberRefusal::UrlsUsed, 9, "etcdserver: Peer URLs already exists"),
            (MemberRefusal::NotLearner, 9, "etcdserver: can only promote a learner member"),
            (
                MemberRefusal::NotCaughtUp,
                9,
                "etcdserver: can only promote a learner member which is in sync with leader",
            ),
            (
                MemberRefusal::WouldLoseQuorum,
                9,
                "etcdserver: re-configuration failed due to not enough started members",
            ),
            (
                MemberRefusal::LastVoter,
                9,
                "etcdserver: re-configuration failed due to not enough started members",
            ),
            (MemberRefusal::TooManyLearners, 9, "etcdserver: too many learner members in cluster"),
            (MemberRefusal::TooManyMembers, 9, "kattu: too many members in cluster"),
            (MemberRefusal::NotLeader, 9, "etcdserver: not leader"),
            (MemberRefusal::BadTransferee, 9, "etcdserver: bad leader transferee"),
            (
                MemberRefusal::TransferFailed,
                2,
                "etcdserver: request timed out, leader transfer took too long",
            ),
        ];
        for (refusal, code, text) in table {
            let status = with_reason(Refusal::Member(refusal));
            assert_eq!((status.code() as i32, status.message()), (code, text), "{refusal:?}");
            let reason = status.metadata().get(REASON).and_then(|reason| reason.to_str().ok());
            assert_eq!(reason, Some(refusal.to_string().as_str()), "{refusal:?}");
        }
        assert!(with_reason(Refusal::NoLeader).metadata().is_empty());
    }

    #[test]
    fn every_doubt_says_that_the_request_timed_out() {
        let table = [
            (Doubt::TimedOut, "etcdserver: request timed out"),
            (Doubt::LeaderChanged, "etcdserver: request timed out, possibly due to previous leader failure"),
            (Doubt::Stopping, "etcdserver: request timed out, possibly due to connection lost"),
        ];
        for (doubt, text) in table {
            let found = of_doubt(doubt);
            assert_eq!((found.code as i32, found.text), (14, text), "{doubt:?}");
        }
    }

    #[test]
    fn the_gates_own_errors_have_etcds_code_and_text() {
        let table = [
            (BAD_MEMBER_URLS, 3, "etcdserver: given member URLs are invalid"),
            (REQUEST_TOO_LARGE, 3, "etcdserver: request is too large"),
            (INVALID_CLIENT_API_VERSION, 3, "etcdserver: invalid client api version"),
            (AUTH_NOT_ENABLED, 9, "etcdserver: authentication is not enabled"),
        ];
        for (error, code, text) in table {
            assert_eq!((error.code as i32, error.text), (code, text));
        }
    }
}
