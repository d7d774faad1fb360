//! Blocks of the standard's appendix C, broken ones, and a naive twin of the other side.

use super::*;
use proptest::prelude::*;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Pairs, Broken> {
    let mut fields = Fields::default();
    decoder.decode(block, &mut fields)?;
    Ok(fields.iter().map(|(name, value, _)| (name.to_vec(), value.to_vec())).collect())
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
}

/// `name: value, …`
fn pairs(text: &str) -> Pairs {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once(": ").expect("a pair");
        (name.as_bytes().to_vec(), value.as_bytes().to_vec())
    };
    text.split(" | ").map(pair).collect()
}

/// [RFC 7541 appendices C.2, C.3, C.4, C.6]
#[test]
fn the_examples_of_the_standard_are_read() {
    for (sequence, sizes) in [
        (
            &[(
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                "custom-key: custom-header",
            )][..],
            &[55][..],
        ),
        (&[("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path")], &[0]),
        (&[("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret")], &[0]),
        (&[("82", ":method: GET")], &[0]),
        (
            &[
                (
                    "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                    ":method: GET | :scheme: http | :path: / | :authority: www.example.com",
                ),
                (
                    "8286 84be 5808 6e6f 2d63 6163 6865",
                    ":method: GET | :scheme: http | :path: / | :authority: www.example.com | cache-control: no-cache",
                ),
                (
                    "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
                    ":method: GET | :scheme: https | :path: /index.html | :authority: www.example.com | custom-key: custom-value",
                ),
            ],
            &[57, 110, 164],
        ),
        (
            &[
                (
                    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                    ":method: GET | :scheme: http | :path: / | :authority: www.example.com",
                ),
                (
                    "8286 84be 5886 a8eb 1064 9cbf",
                    ":method: GET | :scheme: http | :path: / | :authority: www.example.com | cache-control: no-cache",
                ),
                (
                    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
                    ":method: GET | :scheme: https | :path: /index.html | :authority: www.example.com | custom-key: custom-value",
                ),
            ],
            &[57, 110, 164],
        ),
    ] {
        let mut decoder = Decoder::new();
        for ((block, text), size) in sequence.iter().zip(sizes) {
            assert_eq!(decode(&mut decoder, &bytes(block)), Ok(pairs(text)));
            assert_eq!(decoder.table_bytes, *size, "{text}");
        }
    }
}

/// Responses with a table of 256 bytes, in which entries are evicted. [RFC 7541 appendix C.6]
#[test]
fn entries_are_evicted_as_the_standard_says() {
    let mut decoder = Decoder::new();
    let first = "3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
                 1718 63c7 8f0b 97c8 e9ae 82ae 43d3";
    let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
    let site = "location: https://www.example.com";
    assert_eq!(
        decode(&mut decoder, &bytes(first)),
        Ok(pairs(&format!(":status: 302 | cache-control: private | {date} | {site}")))
    );
    assert_eq!((decoder.table_bytes, decoder.table.len()), (222, 4));
    assert_eq!(
        decode(&mut decoder, &bytes("4883 640e ffc1 c0bf")),
        Ok(pairs(&format!(":status: 307 | cache-control: private | {date} | {site}")))
    );
    assert_eq!((decoder.table_bytes, decoder.table.len()), (222, 4), "302 has gone");
    let before = decoder.changes();
    assert_eq!(decode(&mut decoder, &bytes("c0")).map(|all| all.len()), Ok(1));
    assert_eq!(decoder.changes(), before, "a block that only refers to the table changes nothing");
}

#[test]
fn broken_blocks_are_refused() {
    for (block, why) in [
        ("80", "index 0"),
        ("be", "an index behind the table"),
        ("ff ff ff ff ff 7f", "an integer that is too large"),
        ("ff 80 80 80 80 80 00", "one that never ends"),
        ("ff", "one that is cut off"),
        ("40", "no name"),
        ("40 01", "a name that is cut off"),
        ("40 01 61", "no value"),
        ("40 01 61 05 61", "a value that is cut off"),
        ("40 81 ff 00", "a name in Huffman's code that is all padding"),
        ("3f e2 1f", "a table of 4097 bytes"),
        ("82 20", "a change of the table behind a field"),
        ("7e 00", "the name of an entry behind the table"),
    ] {
        assert_eq!(decode(&mut Decoder::new(), &bytes(block)), Err(Malformed), "{why}");
    }
    assert_eq!(decode(&mut Decoder::new(), &bytes("20 3f e1 1f 82")).map(|all| all.len()), Ok(1));
}

#[test]
fn an_entry_that_does_not_fit_empties_the_table() {
    let mut decoder = Decoder::new();
    decode(&mut decoder, &bytes("40 01 61 01 62")).expect("an entry");
    assert_eq!(decoder.table.len(), 1);
    let mut long = vec![0x40, 1, b'c'];
    encode_integer(5000, 7, 0, &mut long);
    long.extend([b'x'; 5000]);
    decode(&mut decoder, &long).expect("it is a field all the same");
    assert_eq!((decoder.table.len(), decoder.table_bytes), (0, 0));
}

/// Two bytes that name an entry of four thousand cost a copy of it, so a block of them must end early.
#[test]
fn a_list_that_is_far_too_long_is_read_no_further() {
    let mut block = vec![0x40, 1, b'a'];
    encode_integer(4000, 7, 0, &mut block);
    block.extend([b'x'; 4000]);
    for more in [&[0xbe][..], &[0x0f, 0x2f, 0], &[0x7e, 0], &[0, 0, 0]] {
        let mut fields = Fields::default();
        let long = [&block[..], &more.repeat(10_000)].concat();
        assert_eq!(Decoder::new().decode(&long, &mut fields), Err(Broken::TooLong), "{more:?}");
        assert!(fields.bytes.len() < Fields::LIST_BYTES_MAX + 5_000);
    }
    let longest = [&block[..], &[0, 0, 0].repeat((Fields::LIST_BYTES_MAX - 4033) / FIELD_BYTES)].concat();
    assert_eq!(Decoder::new().decode(&longest, &mut Fields::default()), Ok(()));
}

/// The other side: a table as a list, and any of the forms of a field.
fn write(table: &mut Vec<(Vec<u8>, Vec<u8>)>, name: &[u8], value: &[u8], form: u8, out: &mut Vec<u8>) {
    let all = || STATIC.iter().map(|(n, v)| (n.to_vec(), v.to_vec())).chain(table.iter().cloned());
    if form == 0
        && let Some(place) = all().position(|entry| entry == (name.to_vec(), value.to_vec()))
    {
        return encode_integer(place + 1, 7, 0x80, out);
    }
    let (prefix, flags) = match form {
        0 | 1 => (6, 0x40),
        2 => (4, 0x10),
        _ => (4, 0),
    };
    match all().position(|entry| entry.0 == name) {
        Some(place) => encode_integer(place + 1, prefix, flags, out),
        None => {
            out.push(flags);
            encode_integer(name.len(), 7, 0, out);
            out.extend_from_slice(name);
        }
    }
    encode_integer(value.len(), 7, 0, out);
    out.extend_from_slice(value);
    if prefix == 6 {
        table.insert(0, (name.to_vec(), value.to_vec()));
        let size =
            |table: &[(Vec<u8>, Vec<u8>)]| table.iter().map(|(n, v)| n.len() + v.len() + 32).sum::<usize>();
        while TABLE_BYTES_MAX < size(table) {
            table.pop();
        }
    }
}

proptest! {
    /// However a client encodes its fields, they are read; and so are those that were encoded anew.
    #[test]
    fn fields_are_read_as_they_were_written(
        blocks in proptest::collection::vec(
            proptest::collection::vec((0_usize..12, 0_usize..900, 0_u8..4), 0..8), 0..12)
    ) {
        let names: Vec<Vec<u8>> = (0..12).map(|n| if n < 6 { STATIC[n * 9].0.to_vec() } else { vec![b'a' + n as u8; n] }).collect();
        let (mut decoder, mut table) = (Decoder::new(), Vec::new());
        for block in blocks {
            let (mut encoded, mut wanted) = (Vec::new(), Vec::new());
            for (name, value, form) in block {
                let value = vec![b'v'; value % 300 * (value % 3)];
                write(&mut table, &names[name], &value, form, &mut encoded);
                wanted.push((names[name].clone(), value));
            }
            let mut fields = Fields::default();
            prop_assert_eq!(decoder.decode(&encoded, &mut fields), Ok(()));
            let read: Pairs = fields.iter().map(|(n, v, _)| (n.to_vec(), v.to_vec())).collect();
            prop_assert_eq!(&read, &wanted);
            prop_assert_eq!(decoder.table.len(), table.len());
            let mut anew = Vec::new();
            fields.iter().for_each(|(name, value, is_secret)| encode(name, value, is_secret, &mut anew));
            prop_assert_eq!(decode(&mut Decoder::new(), &anew), Ok(wanted));
        }
    }

    #[test]
    fn no_bytes_bring_it_down(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::new();
        let _ = decode(&mut decoder, &bytes);
        prop_assert!(decoder.table_bytes <= TABLE_BYTES_MAX);
    }
}
