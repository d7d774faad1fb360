//! The native client against members inside the test, over real sockets: what it repeats, what it does not, and what it tells
//! its callers. Faults are chosen by the test; nothing waits for a time, but for the deadlines that are the subject.

mod calls;
mod once;
mod pipes;
mod trees;
mod weak;
mod world;
mod wrong_places;
