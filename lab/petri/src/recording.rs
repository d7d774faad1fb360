//! Recording: every firing of a run, for the player.
//!
//! Knows nothing of: where places are drawn.

use crate::marking::{Marking, Nanos, Take};
use crate::net::{Place, Transition};
use crate::parameters::Setting;
use serde_json::{Value, json};

/// Starts and ends of firings, with what they move.
#[derive(Clone, Debug)]
pub struct Recording {
    initial: Vec<(Place, usize, u32)>,
    moves: Vec<Moves>,
}

/// What one start takes, or one end puts.
#[derive(Clone, Debug)]
struct Moves {
    at: Nanos,
    transition: Transition,
    is_start: bool,
    request: u64,
    places: Vec<(Place, usize)>,
}

impl Recording {
    pub(crate) fn of(setting: &Setting, marking: &Marking) -> Recording {
        let mut initial = Vec::new();
        for place in Place::ALL {
            let instances = match place.scope() {
                crate::net::Scope::One => 1,
                crate::net::Scope::Client => setting.clients(),
                crate::net::Scope::Follower => setting.replicas - 1,
            };
            initial.extend((0..instances).map(|at| (place, at, marking.tokens(place, at))));
        }
        Recording { initial, moves: Vec::new() }
    }

    pub(crate) fn start(&mut self, transition: Transition, at: Nanos, request: u64, takes: &[Take]) {
        let places = takes.iter().map(|take| (take.place, take.at)).collect();
        self.moves.push(Moves { at, transition, is_start: true, request, places });
    }

    pub(crate) fn finish(
        &mut self,
        transition: Transition,
        at: Nanos,
        request: u64,
        puts: &[(Place, usize)],
    ) {
        self.moves.push(Moves { at, transition, is_start: false, request, places: puts.to_vec() });
    }

    /// Tokens of each instance of each place before anything happened.
    pub(crate) fn initial(&self) -> impl Iterator<Item = (Place, u32)> {
        self.initial.iter().map(|(place, _, tokens)| (*place, *tokens))
    }

    /// Starts and ends that were recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.moves.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// `{"initial": [[place, instance, tokens]], "moves": [[ns, transition, 1 for a start, request, [[place, instance]]]]}`, with
    /// places and transitions by their numbers in [`Place::ALL`] and [`Transition::ALL`].
    #[must_use]
    pub fn json(&self) -> Value {
        let initial = self.initial.iter().map(|(place, at, tokens)| json!([*place as u8, at, tokens]));
        let moves = self.moves.iter().map(|it| {
            let places: Vec<_> = it.places.iter().map(|(place, at)| json!([*place as u8, at])).collect();
            json!([it.at, it.transition as u8, u8::from(it.is_start), it.request, places])
        });
        json!({ "initial": initial.collect::<Vec<_>>(), "moves": moves.collect::<Vec<_>>() })
    }
}
