//! Layout: where places and transitions are drawn, and the way of arcs that are not straight.
//!
//! Knows nothing of: arcs that are in the net; colours.

use crate::net::{Place, Transition};

/// A point on paper.
pub(crate) type Point = (f64, f64);

/// Size of the drawing.
pub(crate) const SIZE: Point = (1310.0, 520.0);
/// Radius of a place.
pub(crate) const RADIUS: f64 = 17.0;

/// The three nets: title, left edge, right edge.
pub(crate) const PANELS: [(&str, f64, f64); 3] =
    [("Clients", 6.0, 322.0), ("Leader", 330.0, 884.0), ("Follower", 892.0, 1304.0)];

/// Where a place is, and how far its name is from its centre.
pub(crate) fn place(place: Place) -> (Point, Point) {
    const BELOW: Point = (0.0, 31.0);
    const ABOVE: Point = (0.0, -23.0);
    match place {
        Place::Ack => ((68.0, 270.0), BELOW),
        Place::ClientReq => ((68.0, 130.0), ABOVE),
        Place::NetCl => ((238.0, 130.0), BELOW),
        Place::NetLc => ((238.0, 270.0), ABOVE),
        Place::OpList => ((158.0, 415.0), BELOW),
        Place::LTerm => ((68.0, 478.0), BELOW),
        Place::ReqPool => ((374.0, 130.0), BELOW),
        Place::Parsed => ((522.0, 130.0), BELOW),
        Place::IdxLock => ((596.0, 66.0), ABOVE),
        Place::LeaderLog => ((530.0, 190.0), BELOW),
        Place::Queue => ((674.0, 130.0), BELOW),
        Place::Disp => ((752.0, 66.0), (40.0, 4.0)),
        Place::Vl => ((674.0, 270.0), BELOW),
        Place::Committed => ((522.0, 270.0), ABOVE),
        Place::Applied => ((374.0, 270.0), ABOVE),
        Place::Applier => ((448.0, 206.0), ABOVE),
        Place::NetLf => ((838.0, 130.0), BELOW),
        Place::Pending => ((1010.0, 130.0), BELOW),
        Place::FLog => ((1256.0, 210.0), BELOW),
        Place::Win => ((1010.0, 300.0), BELOW),
        Place::NetAck => ((846.0, 360.0), BELOW),
        Place::CpuL => ((448.0, 66.0), ABOVE),
        Place::CpuF => ((1256.0, 130.0), ABOVE),
        Place::Unsynced => ((618.0, 200.0), BELOW),
        Place::LLog => ((790.0, 200.0), (34.0, 4.0)),
    }
}

/// Where a transition is, how far its name is from its centre, and how far its guard.
pub(crate) fn transition(transition: Transition) -> (Point, Point, Point) {
    const BELOW: Point = (0.0, 32.0);
    const GUARD: Point = (0.0, 45.0);
    const NONE: Point = (0.0, 0.0);
    match transition {
        Transition::Generate => ((68.0, 200.0), (42.0, 4.0), NONE),
        Transition::SendReq => ((153.0, 130.0), BELOW, NONE),
        Transition::ArriveReq => ((308.0, 130.0), BELOW, NONE),
        Transition::Parse => ((448.0, 130.0), BELOW, NONE),
        Transition::Index => ((596.0, 130.0), (-26.0, -12.0), NONE),
        Transition::Dequeue => ((752.0, 130.0), BELOW, GUARD),
        Transition::SendLog => ((926.0, 130.0), (-2.0, -25.0), NONE),
        Transition::Append => ((1156.0, 130.0), (-34.0, -32.0), (-50.0, -19.0)),
        Transition::NotYet => ((1010.0, 56.0), (40.0, -8.0), (78.0, 6.0)),
        Transition::EnterWin => ((1010.0, 222.0), (40.0, 0.0), (66.0, 14.0)),
        Transition::Flush => ((1156.0, 300.0), (34.0, 34.0), (50.0, 47.0)),
        Transition::Collect => ((764.0, 270.0), (0.0, -37.0), (0.0, -23.0)),
        Transition::Commit => ((598.0, 270.0), (0.0, -25.0), (-24.0, 32.0)),
        Transition::Apply => ((448.0, 270.0), BELOW, GUARD),
        Transition::Reply => ((308.0, 270.0), (0.0, -25.0), (0.0, 32.0)),
        Transition::ArriveReply => ((153.0, 270.0), (0.0, -25.0), NONE),
        Transition::EarlyReturn => ((598.0, 352.0), (0.0, 32.0), (0.0, 45.0)),
        Transition::ArriveWeak => ((158.0, 345.0), (-44.0, 22.0), NONE),
        Transition::StrongNote => ((238.0, 415.0), (0.0, 32.0), (0.0, 45.0)),
        Transition::Fail => ((440.0, 462.0), (0.0, -24.0), NONE),
        Transition::Elect => ((1010.0, 462.0), (0.0, -24.0), NONE),
        Transition::Retry => ((68.0, 415.0), (34.0, -22.0), (64.0, 48.0)),
        Transition::Persist => ((704.0, 200.0), (30.0, -14.0), NONE),
    }
}

/// A second picture of a place, beside a transition that is far from the first one. It shows no tokens.
pub(crate) fn alias(transition: Transition, place: Place) -> Option<Point> {
    let row = |number: f64| Some((500.0 + 66.0 * number, 462.0));
    match (transition, place) {
        (Transition::Fail, Place::ReqPool) => row(0.0),
        (Transition::Fail, Place::Parsed) => row(1.0),
        (Transition::Fail, Place::Queue) => row(2.0),
        (Transition::Fail, Place::Vl) => row(3.0),
        (Transition::Fail, Place::Committed) => row(4.0),
        (Transition::Elect, Place::LTerm) => Some((944.0, 462.0)),
        (Transition::Elect, Place::Pending) => Some((1090.0, 462.0)),
        (Transition::Elect, Place::Win) => Some((1156.0, 462.0)),
        (Transition::Flush, Place::CpuF) => Some((1256.0, 318.0)),
        _ => None,
    }
}

/// Points between the ends of an arc that is not straight.
pub(crate) fn way(transition: Transition, place: Place, is_output: bool) -> &'static [Point] {
    match (transition, place, is_output) {
        (Transition::Append, Place::Disp, true) => &[(1156.0, 24.0), (752.0, 24.0)],
        (Transition::EnterWin, Place::Disp, true) => {
            &[(966.0, 222.0), (966.0, 14.0), (742.0, 14.0), (742.0, 42.0)]
        }
        (Transition::Append, Place::NetAck, true) => &[(1130.0, 170.0), (1130.0, 360.0)],
        (Transition::Flush, Place::NetAck, true) => &[(1156.0, 374.0), (880.0, 374.0)],
        (Transition::EnterWin, Place::NetAck, true) => &[(962.0, 240.0)],
        (Transition::EarlyReturn, Place::NetLc, true) => &[(238.0, 352.0)],
        (Transition::Retry, Place::ClientReq, true) => &[(22.0, 415.0), (22.0, 130.0)],
        (Transition::StrongNote, Place::Committed, false) => &[(522.0, 415.0)],
        (Transition::NotYet, Place::Pending, true) => &[(996.0, 90.0)],
        (Transition::NotYet, Place::Pending, false) => &[(1024.0, 90.0)],
        (Transition::Generate, Place::Ack, true) => &[(48.0, 235.0)],
        (Transition::Fail, Place::Parsed, false) => &[(440.0, 496.0), (566.0, 496.0)],
        (Transition::Fail, Place::Queue, false) => &[(440.0, 496.0), (632.0, 496.0)],
        (Transition::Fail, Place::Vl, false) => &[(440.0, 496.0), (698.0, 496.0)],
        (Transition::Fail, Place::Committed, false) => &[(440.0, 496.0), (764.0, 496.0)],
        (Transition::Elect, Place::Win, false) => &[(1010.0, 496.0), (1156.0, 496.0)],
        _ => &[],
    }
}
