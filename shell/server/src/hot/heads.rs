//! Which calls are hot, by their heads.
//!
//! In:    header blocks of requests, in the order of the connection.
//! Out:   the RPC, if the call is hot; and the block in a form that needs no table, for the library.
//! Rules: 1. A hot call is a Range or a Put of gRPC of which the general path uses nothing but the path: each field is
//!           one that it does not look at. Any other field, one that looks unusual, or too many make the call a cold one.
//!        2. A client repeats itself: a block that has come before, with the same table, is known by its bytes.
//! Knows nothing of: streams, frames.

use crate::hot::hpack::{Broken, Decoder, FIELD_BYTES, Fields, encode};
use crate::http2::HEAD_BYTES_MAX;
use crate::rpc::Rpc;
use std::rc::Rc;

/// Blocks that are remembered: a busy client uses two or three.
const KNOWN_MAX: usize = 4;
/// Longest block that is remembered, in bytes.
const KNOWN_BYTES_MAX: usize = 128;
/// Longest list of a hot call's fields: few bytes of a block may stand for many.
const LIST_BYTES_MAX: usize = 1 << 10;

/// The meaning of a block.
#[derive(Clone, Debug)]
pub struct Head {
    /// None for a cold call.
    pub rpc: Option<Rpc>,
    /// The fields as literals.
    pub plain: Rc<[u8]>,
}

/// A block that has come before.
#[derive(Debug)]
struct Known {
    block: Box<[u8]>,
    changes: u64,
    head: Head,
}

/// The heads of one connection.
#[derive(Debug)]
pub struct Heads {
    decoder: Decoder,
    fields: Fields,
    known: Vec<Known>,
    /// The place that is used next.
    next: usize,
}

impl Heads {
    /// Nothing has come yet.
    pub fn new() -> Heads {
        Heads { decoder: Decoder::new(), fields: Fields::default(), known: Vec::new(), next: 0 }
    }

    /// Reads the next block of the connection.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&mut self, block: &[u8]) -> Result<Head, Broken> {
        let changes = self.decoder.changes();
        let known = self.known.iter().find(|known| known.changes == changes && *known.block == *block);
        if let Some(known) = known {
            return Ok(known.head.clone());
        }
        self.fields.clear();
        self.decoder.decode(block, &mut self.fields)?;
        let plain = plain(&self.fields);
        let rpc = hot_rpc(&self.fields).filter(|_| plain.len() <= LIST_BYTES_MAX);
        self.fields.clear();
        let head = Head { rpc, plain: plain.into() };
        if head.rpc.is_some() && changes == self.decoder.changes() && block.len() <= KNOWN_BYTES_MAX {
            let known = Known { block: block.into(), changes, head: head.clone() };
            match self.known.get_mut(self.next) {
                Some(place) => *place = known,
                None => self.known.push(known),
            }
            self.next = (self.next + 1) % KNOWN_MAX;
        }
        Ok(head)
    }
}

/// The fields as literals. Of a list that is too long so much that the library sees it: it refuses the call if it sees all
/// of it, but ends the connection if that has several frames.
fn plain(fields: &Fields) -> Vec<u8> {
    let (mut plain, mut left) = (Vec::new(), HEAD_BYTES_MAX as usize);
    for (name, value, is_secret) in fields.iter() {
        let size = name.len() + value.len() + FIELD_BYTES;
        if size < left {
            left -= size;
            encode(name, value, is_secret, &mut plain);
            continue;
        }
        left = left.saturating_sub(FIELD_BYTES);
        let name = &name[..name.len().min(left.max(1))];
        let value = &value[..value.len().min(left.saturating_sub(name.len()))];
        encode(name, value, is_secret, &mut plain);
        break;
    }
    plain
}

/// Fields of which the general path uses nothing. [`crate::grpc::check_metadata`] looks at the API's version, which must
/// be text.
const UNUSED: [&[u8]; 9] = [
    b"user-agent",
    b"grpc-accept-encoding",
    b"grpc-timeout",
    b"accept-encoding",
    b"client-api-version",
    b"authorization",
    b"token",
    b"traceparent",
    b"grpc-trace-bin",
];

/// Rule 1.
fn hot_rpc(fields: &Fields) -> Option<Rpc> {
    let (mut method, mut scheme, mut authority, mut rpc, mut content, mut te) =
        (false, false, false, None, false, false);
    let mut is_behind = false;
    for (name, value, _) in fields.iter() {
        is_behind |= name.first() != Some(&b':');
        let is_first = match name {
            b":method" if !is_behind && value == b"POST" => !std::mem::replace(&mut method, true),
            b":scheme" if !is_behind && matches!(value, b"http" | b"https") => {
                !std::mem::replace(&mut scheme, true)
            }
            b":authority" if !is_behind && is_host(value) => !std::mem::replace(&mut authority, true),
            b":path" if !is_behind => {
                let found = match value {
                    b"/etcdserverpb.KV/Range" => Rpc::Range,
                    b"/etcdserverpb.KV/Put" => Rpc::Put,
                    _ => return None,
                };
                rpc.replace(found).is_none()
            }
            b"content-type" if value.starts_with(b"application/grpc") => {
                !std::mem::replace(&mut content, true)
            }
            b"te" if value == b"trailers" => !std::mem::replace(&mut te, true),
            name => UNUSED.contains(&name),
        };
        let is_text = value.iter().all(|byte| (b' '..=b'~').contains(byte));
        if !is_first || !is_text {
            return None;
        }
    }
    rpc.filter(|_| method && scheme && authority && content)
}

/// Whether this is a name or an address, perhaps with a port, as clients usually write it.
fn is_host(text: &[u8]) -> bool {
    let (host, port) = match text.iter().rposition(|byte| *byte == b':') {
        Some(colon) if !text.ends_with(b"]") => (&text[..colon], &text[colon + 1..]),
        _ => (text, &b"0"[..]),
    };
    let is_port = (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
    let inside = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]"));
    let is_name = match inside {
        Some(address) => address.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b':'),
        None => host.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')),
    };
    is_port && is_name && !inside.unwrap_or(host).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: [(&str, &str); 6] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/etcdserverpb.KV/Range"),
        (":authority", "127.0.0.1:2379"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];

    fn rpc(fields: &[(&str, &str)]) -> Option<Rpc> {
        let mut block = Vec::new();
        fields.iter().for_each(|(name, value)| encode(name.as_bytes(), value.as_bytes(), false, &mut block));
        let head = Heads::new().read(&block).expect("a block");
        assert_eq!(*head.plain, block, "all fields, as they came");
        head.rpc
    }

    #[test]
    fn only_what_the_general_path_does_not_look_at_is_allowed_beside_the_path() {
        assert_eq!(rpc(&HOT), Some(Rpc::Range));
        for more in [("user-agent", "grpc-go/1.80"), ("grpc-timeout", "5S"), ("client-api-version", "3.6")] {
            assert_eq!(rpc(&[&HOT[..], &[more]].concat()), Some(Rpc::Range), "{more:?}");
        }
        for more in [
            ("hasleader", "true"),
            ("kattu-consistency", "serializable"),
            ("content-length", "7"),
            ("connection", "close"),
            ("grpc-encoding", "gzip"),
            ("te", "trailers"),
            ("client-api-version", "\u{fc}"),
            (":path", "/etcdserverpb.KV/Range"),
            ("x", "y"),
        ] {
            assert_eq!(rpc(&[&HOT[..], &[more]].concat()), None, "{more:?}");
        }
        for (place, other) in [
            (0, (":method", "GET")),
            (1, (":scheme", "ftp")),
            (2, (":path", "/etcdserverpb.KV/Txn")),
            (3, (":authority", "user@host")),
            (4, ("content-type", "text/plain")),
            (5, ("te", "gzip")),
        ] {
            let mut fields = HOT;
            fields[place] = other;
            assert_eq!(rpc(&fields), None, "{other:?}");
        }
        for (place, missing) in HOT[..5].iter().enumerate() {
            assert_eq!(rpc(&[&HOT[..place], &HOT[place + 1..]].concat()), None, "without {missing:?}");
        }
        let mut order = HOT;
        order.swap(3, 4);
        assert_eq!(rpc(&order), None, "a pseudo field behind another");
    }

    #[test]
    fn hosts_are_names_and_addresses_with_ports() {
        for host in ["localhost", "a.b-c:1", "127.0.0.1:2379", "[::1]", "[fe80::1]:2379"] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for other in
            ["", ":1", "a:", "a:b", "a:123456", "a:1:2", "[]", "[::1", "a b", "a/b", "u@h", "[::1]x:1"]
        {
            assert!(!is_host(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn of_a_list_that_is_too_long_the_library_sees_just_that() {
        for values in [vec![9_000, 9_000, 9_000], vec![70, 16_300, 100], vec![16_270, 10, 1], vec![0; 400]] {
            let mut block = Vec::new();
            values.iter().for_each(|len| encode(b"user-agent", &vec![b'u'; *len], false, &mut block));
            let (mut decoder, mut fields) = (Decoder::new(), Fields::default());
            decoder.decode(&Heads::new().read(&block).expect("a block").plain, &mut fields).expect("a block");
            let list: usize =
                fields.iter().map(|(name, value, _)| name.len() + value.len() + FIELD_BYTES).sum();
            let most = HEAD_BYTES_MAX as usize;
            assert!((most..most + FIELD_BYTES + 1).contains(&list), "{list}, {values:?}");
        }
    }

    /// The same bytes mean something else once the table has changed.
    #[test]
    fn a_block_is_known_only_while_the_table_is_the_same() {
        let mut heads = Heads::new();
        let mut first = vec![0x83, 0x86];
        for (name, value) in
            [(":path", "/etcdserverpb.KV/Range"), (":authority", "a"), ("content-type", "application/grpc")]
        {
            first.push(0x40);
            for text in [name, value] {
                first.push(text.len() as u8);
                first.extend(text.bytes());
            }
        }
        assert_eq!(heads.read(&first).unwrap().rpc, Some(Rpc::Range));
        let again = [0x83, 0x86, 0xc0, 0xbf, 0xbe];
        for _ in 0..3 {
            assert_eq!(heads.read(&again).unwrap().rpc, Some(Rpc::Range));
        }
        assert_eq!(heads.known.len(), 1);
        // A field more, and the indices are others.
        assert_eq!(heads.read(&[0x40, 1, b'x', 1, b'y']).unwrap().rpc, None);
        assert_eq!(heads.read(&again).unwrap().rpc, None);
        assert_eq!(heads.read(&[0x83, 0x86, 0xc1, 0xc0, 0xbf]).unwrap().rpc, Some(Rpc::Range));
        assert_eq!(heads.read(&[0x80]).unwrap_err(), Broken::Malformed);
    }
}
