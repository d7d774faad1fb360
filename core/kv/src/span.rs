//! Span: the keys that a request names, with etcd's encoding of range ends decoded.
//!
//! Knows nothing of: values, the store.

use crate::api::KeyRange;

/// The keys of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span<'a> {
    /// Exactly this key.
    One(&'a [u8]),
    /// All keys from `start` on, below `end` if there is one; none if `end` is not above `start`.
    Many { start: &'a [u8], end: Option<&'a [u8]> },
}

impl KeyRange {
    /// Decodes the two byte strings. [etcd rpc.proto, RangeRequest.range_end]
    pub(crate) fn span(&self) -> Span<'_> {
        match &*self.end {
            [] => Span::One(&self.start),
            [0] => Span::Many { start: &self.start, end: None },
            end => Span::Many { start: &self.start, end: Some(end) },
        }
    }
}

impl Span<'_> {
    /// Whether the key is in the span.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match *self {
            Span::One(one) => key == one,
            Span::Many { start, end } => start <= key && end.is_none_or(|end| key < end),
        }
    }
}
