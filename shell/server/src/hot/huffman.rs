//! The Huffman code of HPACK. [RFC 7541 §5.2, appendix B]
//!
//! The code is canonical: within one length, codes ascend with their bytes, and a longer code begins where the shorter
//! ones end. So the lengths say all of it.
//! Knows nothing of: fields, blocks.

/// Lengths of the codes of all bytes, in bits. The 257th code, of 30 ones, ends a string and is never sent.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26,
];

const LEN_MIN: usize = 5;
const LEN_MAX: usize = 30;

/// The code, by length: the first code, how many there are, and where their bytes begin.
struct Code {
    first: [u32; LEN_MAX + 1],
    count: [u32; LEN_MAX + 1],
    begin: [u16; LEN_MAX + 1],
    bytes: [u8; 256],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut made =
        Code { first: [0; LEN_MAX + 1], count: [0; LEN_MAX + 1], begin: [0; LEN_MAX + 1], bytes: [0; 256] };
    let (mut len, mut next, mut place) = (LEN_MIN, 0_u32, 0_usize);
    while len <= LEN_MAX {
        made.first[len] = next;
        made.begin[len] = place as u16;
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] as usize == len {
                made.bytes[place] = byte as u8;
                place += 1;
                next += 1;
            }
            byte += 1;
        }
        made.count[len] = next - made.first[len];
        next <<= 1;
        len += 1;
    }
    made
}

/// Appends the bytes of an encoded string. False if it is none: it holds the end's code, or its padding is too long or
/// not all ones.
#[must_use]
pub(crate) fn decode(encoded: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut bits, mut bits_len) = (0_u64, 0_usize);
    let mut rest = encoded.iter();
    loop {
        while bits_len <= 56
            && let Some(byte) = rest.next()
        {
            bits = bits << 8 | u64::from(*byte);
            bits_len += 8;
        }
        // The next bits, with ones behind the last.
        let ahead = match LEN_MAX.checked_sub(bits_len) {
            None => (bits >> (bits_len - LEN_MAX)) as u32,
            Some(missing) => (bits << missing) as u32 | ((1 << missing) - 1),
        };
        let ahead = ahead & ((1 << LEN_MAX) - 1);
        let found = (LEN_MIN..=LEN_MAX.min(bits_len)).find_map(|len| {
            let place = (ahead >> (LEN_MAX - len)).wrapping_sub(CODE.first[len]);
            (place < CODE.count[len])
                .then(|| (len, CODE.bytes[usize::from(CODE.begin[len]) + place as usize]))
        });
        match found {
            Some((len, byte)) => {
                out.push(byte);
                bits_len -= len;
            }
            None => return bits_len < 8 && ahead == (1 << LEN_MAX) - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The naive twin: codes by their definition, and bits as a list.
    fn encode(bytes: &[u8]) -> Vec<u8> {
        let mut order: Vec<usize> = (0..256).collect();
        order.sort_by_key(|byte| (LENGTHS[*byte], *byte));
        let (mut codes, mut next, mut len) = ([0_u32; 256], 0, LENGTHS[order[0]]);
        for byte in order {
            next <<= LENGTHS[byte] - len;
            len = LENGTHS[byte];
            codes[byte] = next;
            next += 1;
        }
        let mut bits: Vec<bool> = Vec::new();
        for byte in bytes.iter().map(|byte| usize::from(*byte)) {
            bits.extend((0..LENGTHS[byte]).rev().map(|bit| codes[byte] >> bit & 1 == 1));
        }
        bits.resize(bits.len().next_multiple_of(8), true);
        bits.chunks(8).map(|eight| eight.iter().fold(0, |all, bit| all << 1 | u8::from(*bit))).collect()
    }

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes, &mut out).then_some(out)
    }

    /// [RFC 7541 appendices B, C.4, C.6]
    #[test]
    fn the_examples_of_the_standard_are_read() {
        for (encoded, text) in [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f], "custom-key"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf], "custom-value"),
            (&[0x64, 0x02], "302"),
            (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private"),
            (&[], ""),
        ] {
            assert_eq!(decoded(encoded).as_deref(), Some(text.as_bytes()), "{text}");
            assert_eq!(encode(text.as_bytes()), encoded, "{text}");
        }
        assert_eq!(CODE.first[30] + CODE.count[30], 0x3fff_ffff, "only the end's code is left");
    }

    #[test]
    fn what_is_no_string_is_refused() {
        assert_eq!(decoded(&[0xff]), None, "a whole byte of padding");
        assert_eq!(decoded(&[0xff; 4]), None, "the end");
        assert_eq!(decoded(&[0x07, 0xff]), None, "a symbol, and eleven ones");
        assert_eq!(decoded(&[0xfe]), None, "padding that is not all ones");
        assert_eq!(decoded(&[0b0000_0000]), None, "and that is all zeros");
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Some(&b"0"[..]));
    }

    proptest! {
        #[test]
        fn every_string_is_read_as_it_was_written(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decoded(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn each_string_has_one_form(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(text) = decoded(&bytes) {
                prop_assert_eq!(encode(&text), bytes);
            }
        }
    }
}
