//! Ranges of one buffer are cut and joined as the bytes themselves would be; ranges of two buffers are never joined, however
//! well they seem to fit.

use kattu_raft::SharedBytes;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

fn hash(bytes: &SharedBytes) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn ranges_of_a_buffer_are_its_bytes() {
    let content: Vec<u8> = (0..20).collect();
    let (whole, other) = (SharedBytes::from(content.clone()), SharedBytes::from(content.clone()));
    assert_eq!(&whole[..], content);
    let ranges: Vec<_> = (0..=20).flat_map(|start| (start..=20).map(move |end| start..end)).collect();
    for range in &ranges {
        let part = whole.slice(range.clone());
        assert_eq!(&part[..], &content[range.clone()]);
        let same = other.slice(range.clone());
        assert!(part == same && hash(&part) == hash(&same), "equal and hashed by content");
        let half = part.len() / 2;
        assert_eq!(&part.slice(half..part.len())[..], &content[range.start + half..range.end]);
    }
    for (first, next) in ranges.iter().flat_map(|first| ranges.iter().map(move |next| (first, next))) {
        let (left, right) = (whole.slice(first.clone()), whole.slice(next.clone()));
        let joined = left.join(&right);
        assert_eq!(joined.is_some(), first.end == next.start, "{first:?} and {next:?}");
        assert!(joined.is_none_or(|joined| joined[..] == content[first.start..next.end]));
        assert!(left.join(&other.slice(next.clone())).is_none(), "of another buffer");
    }
    let hashes: BTreeSet<u64> = ranges.iter().map(|range| hash(&whole.slice(range.clone()))).collect();
    assert_eq!(hashes.len(), 20 * 21 / 2 + 1, "all that differ in content, the empty ones being equal");
    let none = SharedBytes::from(Vec::new());
    assert!(none.is_empty() && none == SharedBytes::default() && none.join(&whole).is_none());
}
