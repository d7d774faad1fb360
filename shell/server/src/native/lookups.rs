//! Look-ups: the reads of single keys that came in one turn, as few requests to the replica.
//!
//! ```text
//!   read k1 ─┐
//!   read k2 ─┼─▶ │ names │ keys │ ─▶ replica ─▶ │ versions │ ─▶ one answer for each name
//!   read k3 ─┘
//! ```
//! Reads that must be equally fresh share a request of [`KEYS_MAX`] keys at most, so that what a request costs is paid once for many. No read waits for others
//! to come: those of a turn are asked together when nothing more is there to be read.
//! Knows nothing of: connections, how a read is answered.

use kattu_kv::lookup::{KEYS_MAX, Keys};
use kattu_node::contract::Consistency;
use std::sync::Arc;

/// Reads of one request.
#[derive(Debug)]
pub(crate) struct LookUp {
    /// The client's names for them.
    pub(crate) names: Vec<u64>,
    /// Their keys, in the same order.
    pub(crate) keys: Arc<Keys>,
}

/// Reads that the replica does not have yet.
#[derive(Debug, Default)]
pub(crate) struct LookUps {
    gathered: Vec<(Consistency, Vec<u64>, Keys)>,
}

impl LookUps {
    /// Adds a read behind those that came before it.
    pub(crate) fn add(&mut self, name: u64, key: &[u8], consistency: Consistency) {
        let takes_it =
            |(of_all, _, keys): &&mut (Consistency, _, Keys)| *of_all == consistency && keys.len() < KEYS_MAX;
        let last = self.gathered.last_mut().filter(takes_it);
        let (_, names, keys) = match last {
            Some(last) => last,
            None => self.gathered.push_mut((consistency, Vec::new(), Keys::default())),
        };
        names.push(name);
        keys.push(key);
    }

    /// All requests that there are, in the order of their first reads; none is left.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (LookUp, Consistency)> + use<> {
        let gathered = std::mem::take(&mut self.gathered);
        gathered
            .into_iter()
            .map(|(consistency, names, keys)| (LookUp { names, keys: Arc::new(keys) }, consistency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_share_a_request_as_long_as_they_must_be_equally_fresh() {
        let mut lookups = LookUps::default();
        let bounded = |nanos| Consistency::Bounded(kattu_raft::Duration::from_nanos(nanos));
        let reads = [
            (7, "a", Consistency::Linearizable),
            (3, "b", Consistency::Linearizable),
            (9, "a", bounded(1)),
            (4, "", bounded(2)),
            (5, "c", bounded(2)),
        ];
        for (name, key, consistency) in reads {
            lookups.add(name, key.as_bytes(), consistency);
        }
        let taken: Vec<_> = lookups.take().collect();
        let read_of = |(lookup, consistency): &(LookUp, Consistency)| {
            let keys: Vec<_> =
                lookup.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
            (lookup.names.clone(), keys.join(" "), *consistency)
        };
        let expected = [
            (vec![7, 3], "a b".to_string(), Consistency::Linearizable),
            (vec![9], "a".to_string(), bounded(1)),
            (vec![4, 5], " c".to_string(), bounded(2)),
        ];
        assert_eq!(taken.iter().map(read_of).collect::<Vec<_>>(), expected);
        assert_eq!(lookups.take().count(), 0);
        (0..KEYS_MAX as u64 + 1).for_each(|name| lookups.add(name, b"k", Consistency::Linearizable));
        let counts: Vec<_> = lookups.take().map(|(lookup, _)| lookup.names.len()).collect();
        assert_eq!(counts, [KEYS_MAX, 1], "a look-up has a bound");
    }
}
