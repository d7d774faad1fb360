//! The net as data: places, transitions and arcs. The simulator moves tokens along these arcs, and the drawing draws them.
//!
//! ```text
//!   NET: [Row { transition, inputs, outputs, guard, time, class }]
//!     ├─▶ marking.rs: refuses a move without an arc, and a firing that leaves one out
//!     └─▶ drawing.rs: one line for each arc
//! ```
//! Source: [S4, Fig. 3(a–c)]; `docs/replication-protocols.md` section 13.
//! Knows nothing of: times, tokens, coordinates on paper.

mod names;

pub use names::{Class, Place, Scope, Transition};

impl Transition {
    /// Its row of the net.
    #[must_use]
    pub fn row(self) -> &'static Row {
        &NET[self as usize]
    }
}

/// How many tokens a firing moves along an arc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Exactly one.
    One,
    /// One for each follower and entry.
    EachFollower,
    /// One or more.
    Some,
    /// Any number, none included: the guard decides.
    Any,
}

/// An arc between a transition and a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    /// The place.
    pub place: Place,
    /// How many tokens go along.
    pub weight: Weight,
}

/// A transition with its arcs.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The transition.
    pub transition: Transition,
    /// Its name in section 13.
    pub name: &'static str,
    /// Its colour.
    pub class: Class,
    /// Places from which tokens are taken.
    pub inputs: &'static [Arc],
    /// Places into which tokens are put.
    pub outputs: &'static [Arc],
    /// Places whose tokens are read or get another colour, and stay.
    pub updates: &'static [Place],
    /// The guard; empty for none.
    pub guard: &'static str,
    /// The name of its time; empty for an immediate transition.
    pub time: &'static str,
}

const fn one(place: Place) -> Arc {
    Arc { place, weight: Weight::One }
}

const fn each(place: Place) -> Arc {
    Arc { place, weight: Weight::EachFollower }
}

const fn some(place: Place) -> Arc {
    Arc { place, weight: Weight::Some }
}

const fn any(place: Place) -> Arc {
    Arc { place, weight: Weight::Any }
}

const fn row(
    transition: Transition,
    name: &'static str,
    class: Class,
    inputs: &'static [Arc],
    outputs: &'static [Arc],
) -> Row {
    Row { transition, name, class, inputs, outputs, updates: &[], guard: "", time: "" }
}

impl Row {
    const fn updates(self, updates: &'static [Place]) -> Row {
        Row { updates, ..self }
    }

    const fn guard(self, guard: &'static str) -> Row {
        Row { guard, ..self }
    }

    const fn time(self, time: &'static str) -> Row {
        Row { time, ..self }
    }
}

use Class::{NonBlocking, Raft, Waiting};

/// All transitions, in the order of [`Transition::ALL`].
pub static NET: [Row; 23] = [
    row(
        Transition::Generate,
        "Generate",
        Raft,
        &[one(Place::Ack)],
        &[one(Place::ClientReq), any(Place::Ack)],
    )
    .time("t_gen(C)"),
    row(Transition::SendReq, "SendReq", Raft, &[one(Place::ClientReq)], &[one(Place::NetCl)]),
    row(Transition::ArriveReq, "ArriveReq", Raft, &[one(Place::NetCl)], &[one(Place::ReqPool)])
        .time("t_trans(CL)"),
    row(
        Transition::Parse,
        "Parse",
        Raft,
        &[one(Place::ReqPool), one(Place::CpuL)],
        &[one(Place::Parsed), one(Place::CpuL)],
    )
    .time("t_prs(L)"),
    row(
        Transition::Index,
        "Index",
        Raft,
        &[some(Place::Parsed), one(Place::IdxLock)],
        &[
            some(Place::LeaderLog),
            one(Place::IdxLock),
            each(Place::Queue),
            some(Place::Vl),
            any(Place::Unsynced),
        ],
    )
    .time("t_idx(L)"),
    row(
        Transition::Dequeue,
        "Dequeue",
        Raft,
        &[one(Place::Queue), one(Place::Disp)],
        &[one(Place::NetLf), any(Place::Disp)],
    )
    .guard("FIFO head"),
    row(
        Transition::SendLog,
        "SendLog",
        Raft,
        &[one(Place::NetLf)],
        &[one(Place::Pending), any(Place::NetAck)],
    )
    .time("t_trans(LF)"),
    row(
        Transition::Append,
        "Append",
        Raft,
        &[some(Place::Pending), one(Place::FLog), one(Place::CpuF)],
        &[one(Place::FLog), one(Place::CpuF), one(Place::NetAck), any(Place::Disp)],
    )
    .guard("idx = last + 1")
    .time("t_append(F)"),
    row(Transition::NotYet, "NotYet", Waiting, &[one(Place::Pending)], &[one(Place::Pending)])
        .guard("idx > last + 1 (+ w)")
        .time("δ"),
    row(
        Transition::EnterWin,
        "EnterWin",
        NonBlocking,
        &[one(Place::Pending)],
        &[one(Place::Win), any(Place::NetAck), any(Place::Disp)],
    )
    .guard("1 < idx − last ≤ w"),
    row(
        Transition::Flush,
        "Flush",
        NonBlocking,
        &[some(Place::Win), one(Place::FLog), one(Place::CpuF)],
        &[one(Place::FLog), one(Place::CpuF), any(Place::NetAck)],
    )
    .guard("idx = last + 1")
    .time("t_append(F)"),
    row(Transition::Collect, "Collect", Raft, &[one(Place::NetAck)], &[])
        .updates(&[Place::Vl])
        .guard("strong: all ≤ idx")
        .time("network"),
    row(Transition::Commit, "Commit", Raft, &[one(Place::Vl)], &[one(Place::Committed)])
        .guard("strong majority, idx − 1")
        .time("t_commit(L)"),
    row(
        Transition::Apply,
        "Apply",
        Raft,
        &[one(Place::Committed), one(Place::Applier)],
        &[one(Place::Applied), one(Place::Applier)],
    )
    .guard("FIFO")
    .time("t_apply(L)"),
    row(Transition::Reply, "Reply", Raft, &[one(Place::Applied)], &[any(Place::NetLc)])
        .guard("no weak reply before"),
    row(Transition::ArriveReply, "ArriveReply", Raft, &[one(Place::NetLc)], &[any(Place::Ack)])
        .time("network"),
    row(Transition::EarlyReturn, "EarlyReturn", NonBlocking, &[], &[one(Place::NetLc)])
        .updates(&[Place::Vl])
        .guard("weak ∪ strong majority"),
    row(
        Transition::ArriveWeak,
        "ArriveWeak",
        NonBlocking,
        &[one(Place::NetLc)],
        &[any(Place::Ack), any(Place::OpList)],
    )
    .time("network"),
    row(Transition::StrongNote, "StrongNote", NonBlocking, &[one(Place::OpList)], &[])
        .updates(&[Place::Committed])
        .guard("idx committed"),
    row(
        Transition::Fail,
        "Fail",
        Raft,
        &[any(Place::ReqPool), any(Place::Parsed), any(Place::Queue), any(Place::Vl), any(Place::Committed)],
        &[],
    ),
    row(
        Transition::Elect,
        "Elect",
        Raft,
        &[some(Place::LTerm), any(Place::Pending), any(Place::Win)],
        &[some(Place::LTerm)],
    )
    .time("timeout"),
    row(Transition::Retry, "Retry", NonBlocking, &[one(Place::OpList)], &[one(Place::ClientReq)])
        .updates(&[Place::LTerm])
        .guard("term > listTerm"),
    row(
        Transition::Persist,
        "Persist",
        Raft,
        &[some(Place::Unsynced), one(Place::LLog), any(Place::IdxLock)],
        &[one(Place::LLog), any(Place::IdxLock)],
    )
    .time("t_persist(L)"),
];

/// Which places a transition may and must touch, as bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Masks {
    /// Places with an arc.
    pub may: u32,
    /// Places whose arc must carry a token.
    pub must: u32,
    /// Places whose arc carries one token at most.
    pub once: u32,
}

impl Masks {
    const fn of(arcs: &[Arc]) -> Masks {
        let (mut may, mut must, mut once) = (0, 0, 0);
        let mut place = 0;
        while place < arcs.len() {
            let bit = arcs[place].place.bit();
            may |= bit;
            match arcs[place].weight {
                Weight::One => {
                    must |= bit;
                    once |= bit;
                }
                Weight::EachFollower | Weight::Some => must |= bit,
                Weight::Any => {}
            }
            place += 1;
        }
        Masks { may, must, once }
    }
}

/// Inputs and outputs of every transition, as bits.
pub(crate) static MASKS: [(Masks, Masks); 23] = {
    let none = Masks { may: 0, must: 0, once: 0 };
    let mut masks = [(none, none); 23];
    let mut number = 0;
    while number < masks.len() {
        masks[number] = (Masks::of(NET[number].inputs), Masks::of(NET[number].outputs));
        number += 1;
    }
    masks
};

/// What is conserved: the tokens of these places and those inside these transitions are always as many.
#[derive(Clone, Copy, Debug)]
pub struct Conserved {
    /// What is counted.
    pub name: &'static str,
    /// Places whose tokens count.
    pub places: &'static [Place],
    /// Transitions whose firings under way count.
    pub inside: &'static [Transition],
}

/// Clients: each of them may issue, or waits for one answer. The check adds the requests that share a firing of `Index`, and
/// subtracts entries that were answered weakly.
pub const CLIENTS: Conserved = Conserved {
    name: "clients",
    places: &[
        Place::Ack,
        Place::ClientReq,
        Place::NetCl,
        Place::ReqPool,
        Place::Parsed,
        Place::Vl,
        Place::Committed,
        Place::Applied,
        Place::NetLc,
    ],
    inside: &[
        Transition::Generate,
        Transition::Parse,
        Transition::Index,
        Transition::Commit,
        Transition::Apply,
    ],
};

/// Resources that are taken and given back.
pub const RESOURCES: [Conserved; 4] = [
    Conserved { name: "cores of the leader", places: &[Place::CpuL], inside: &[Transition::Parse] },
    Conserved { name: "index lock", places: &[Place::IdxLock], inside: &[Transition::Index] },
    Conserved { name: "apply threads", places: &[Place::Applier], inside: &[Transition::Apply] },
    Conserved { name: "log of the leader", places: &[Place::LLog], inside: &[Transition::Persist] },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_the_number_of_their_transition_and_names_are_unique() {
        for (number, row) in NET.iter().enumerate() {
            assert_eq!(row.transition as usize, number, "{}", row.name);
            assert_eq!(Transition::ALL[number], row.transition);
            assert_eq!(row.name, format!("{:?}", row.transition));
        }
        let names: std::collections::BTreeSet<_> = Place::ALL.iter().map(|place| place.name()).collect();
        assert_eq!(names.len(), Place::ALL.len());
        assert!(Place::ALL.iter().enumerate().all(|(number, place)| *place as usize == number));
    }

    #[test]
    fn every_place_but_the_log_of_the_leader_has_a_way_in_and_a_way_out() {
        for place in Place::ALL {
            let of = |arcs: fn(&Row) -> &'static [Arc]| {
                NET.iter().any(|row| arcs(row).iter().any(|arc| arc.place == place))
            };
            assert!(of(|row| row.outputs), "{} has no way in", place.name());
            assert_eq!(of(|row| row.inputs), !place.is_sink(), "{}", place.name());
        }
    }
}
