//! Ranges of keys as etcd writes them.
//!
//! Knows nothing of: requests.

/// The `range_end` under which a range holds exactly the keys that begin with `prefix`: the prefix with its last byte
/// below 0xff raised by one. An empty prefix, or one of 0xff bytes only, has no such end; `\0` means "to the last key".
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_right_before_the_next_key_that_lacks_it() {
        assert_eq!(prefix_end(b"a"), b"b");
        assert_eq!(prefix_end(b"a/"), b"a0");
        assert_eq!(prefix_end(b"a\xff\xff"), b"b");
        assert_eq!(prefix_end(b"\xff\xff"), b"\0");
        assert_eq!(prefix_end(b""), b"\0");
    }
}
