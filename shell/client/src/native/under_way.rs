//! Requests under way on one connection, by the name under which each was sent.
//!
//! A name is a place and a turn: the place is used again when its answer has come, the turn never is. So an answer that
//! comes twice finds nothing. [docs/formats/native.md]
//! Knows nothing of: frames, sockets.

/// A place for a request.
#[derive(Debug)]
struct Place<T> {
    /// How often it was used; the name 0 belongs to the handshake.
    turn: u32,
    held: Option<T>,
}

/// Requests without an answer.
#[derive(Debug)]
pub(crate) struct UnderWay<T> {
    places: Vec<Place<T>>,
    /// Places that hold nothing.
    free: Vec<u32>,
}

impl<T> UnderWay<T> {
    pub(crate) fn new() -> UnderWay<T> {
        UnderWay { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Holds it under a name that nothing else has.
    pub(crate) fn hold(&mut self, held: T) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { turn: 0, held: None });
            u32::try_from(self.places.len() - 1).expect("the welcome bounds them in 32 bits")
        });
        let place = &mut self.places[at as usize];
        place.turn = place.turn.wrapping_add(1).max(1);
        place.held = Some(held);
        u64::from(place.turn) << 32 | u64::from(at)
    }

    /// Takes out what is held under this name.
    pub(crate) fn take(&mut self, name: u64) -> Option<T> {
        let at = name as u32;
        let place = self.places.get_mut(at as usize)?;
        if u64::from(place.turn) != name >> 32 {
            return None;
        }
        let held = place.held.take()?;
        self.free.push(at);
        Some(held)
    }

    pub(crate) fn get_mut(&mut self, name: u64) -> Option<&mut T> {
        let place = self.places.get_mut(name as u32 as usize)?;
        place.held.as_mut().filter(|_| u64::from(place.turn) == name >> 32)
    }

    /// All that are held, each with its name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let name = |(at, place): (usize, &Place<T>)| u64::from(place.turn) << 32 | at as u64;
        self.places
            .iter()
            .enumerate()
            .filter_map(move |(at, place)| Some((name((at, place)), place.held.as_ref()?)))
    }

    /// Takes out everything.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        std::mem::take(&mut self.places).into_iter().filter_map(|place| place.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_answered_once_and_its_place_is_used_again_under_another() {
        let mut under_way = UnderWay::new();
        let names = ["a", "b", "c"].map(|held| under_way.hold(held));
        assert_eq!(under_way.get_mut(names[1]), Some(&mut "b"));
        assert_eq!((under_way.take(names[1]), under_way.take(names[1])), (Some("b"), None));
        assert_eq!(under_way.get_mut(names[1]), None);
        assert_eq!(under_way.iter().collect::<Vec<_>>(), [(names[0], &"a"), (names[2], &"c")]);
        let again = under_way.hold("d");
        assert_eq!(again as u32, names[1] as u32, "the same place");
        assert_ne!(again, names[1]);
        assert_eq!((under_way.take(names[1]), under_way.take(7 << 32 | 99)), (None, None));
        assert_eq!(under_way.len(), 3);
        assert!(names.iter().all(|name| *name != 0), "0 is the handshake's");
        let mut rest: Vec<_> = under_way.drain().collect();
        rest.sort_unstable();
        assert_eq!(rest, ["a", "c", "d"]);
        assert_eq!(under_way.len(), 0);
    }
}
