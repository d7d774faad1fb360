//! etcdctl's text for transactions: compares, an empty line, requests on success, an empty line, requests on failure.
//!
//! ```text
//! compare := target '("' key '")' op '"' operand '"'
//! target  := ver | version | c | create | m | mod | val | value | lease        op := = | != | < | >
//! request := put KEY VALUE [flags] | get KEY [END] [flags] | del KEY [END] [flags]
//! ```
//! Words are bare, in 'single quotes' as they are, or in "double quotes" with Go's escapes. [etcdctl txn_command.go,
//! strconv.Unquote] More lenient than etcdctl in two points: spaces around operators, and a missing last empty line.
//! Knows nothing of: the source of the text, its execution.

use crate::flags::{DelFlags, GetFlags, PutFlags};
use clap::Parser;
use kattu_proto::etcdserverpb as pb;
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::request_op::Request;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Reads a whole transaction.
///
/// # Errors
/// What is wrong, with the number of its line.
pub(crate) fn parse_txn(text: &[u8]) -> Result<pb::TxnRequest, String> {
    let mut lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).zip(1..);
    let mut txn = pb::TxnRequest::default();
    for (line, number) in section(&mut lines) {
        txn.compare.push(parse_compare(line).map_err(at_line(number))?);
    }
    for (line, number) in section(&mut lines) {
        txn.success.push(parse_request(line).map_err(at_line(number))?);
    }
    for (line, number) in section(&mut lines) {
        txn.failure.push(parse_request(line).map_err(at_line(number))?);
    }
    match lines.find(|(line, _)| !line.is_empty()) {
        Some((_, number)) => Err(format!("line {number}: nothing may follow the requests on failure")),
        None => Ok(txn),
    }
}

/// The lines up to the next empty one, or to the end.
fn section<'a>(lines: &mut impl Iterator<Item = (&'a [u8], usize)>) -> Vec<(&'a [u8], usize)> {
    lines.take_while(|(line, _)| !line.is_empty()).collect()
}

fn at_line(number: usize) -> impl Fn(String) -> String {
    move |what| format!("line {number}: {what}")
}

fn parse_compare(line: &[u8]) -> Result<pb::Compare, String> {
    let shown = String::from_utf8_lossy(line).into_owned();
    let malformed = |what: &str| format!("malformed comparison: {shown}: {what}");
    let open = line.iter().position(|&b| b == b'(').ok_or_else(|| malformed("expected target(\"key\")"))?;
    let target = line[..open].trim_ascii();
    let (key, rest) = unquote(line[open + 1..].trim_ascii()).map_err(|what| malformed(&what))?;
    let rest =
        rest.trim_ascii_start().strip_prefix(b")").ok_or_else(|| malformed("expected ) after the key"))?;
    let rest = rest.trim_ascii();
    let op_len = rest.iter().take_while(|&&b| b"=!<>".contains(&b)).count();
    let result = match &rest[..op_len] {
        b"=" => CompareResult::Equal,
        b"!=" => CompareResult::NotEqual,
        b"<" => CompareResult::Less,
        b">" => CompareResult::Greater,
        _ => return Err(malformed("expected =, !=, < or >")),
    };
    let (operand, rest) = unquote(rest[op_len..].trim_ascii()).map_err(|what| malformed(&what))?;
    if !rest.is_empty() {
        return Err(malformed("nothing may follow the operand"));
    }
    let number = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok();
        text.and_then(|text| text.parse::<i64>().ok()).ok_or_else(|| malformed("expected a number in quotes"))
    };
    let (target, union) = match target {
        b"ver" | b"version" => (CompareTarget::Version, TargetUnion::Version(number(&operand)?)),
        b"c" | b"create" => (CompareTarget::Create, TargetUnion::CreateRevision(number(&operand)?)),
        b"m" | b"mod" => (CompareTarget::Mod, TargetUnion::ModRevision(number(&operand)?)),
        b"val" | b"value" => (CompareTarget::Value, TargetUnion::Value(operand)),
        b"lease" => (CompareTarget::Lease, TargetUnion::Lease(number(&operand)?)),
        _ => return Err(malformed("unknown target; expected ver, create, mod, val or lease")),
    };
    Ok(pb::Compare {
        result: result.into(),
        target: target.into(),
        key,
        range_end: Vec::new(),
        target_union: Some(union),
    })
}

/// One request of a transaction. Its flags are those of the verb of the same name.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
enum Line {
    Put(PutFlags),
    Get(GetFlags),
    Del(DelFlags),
}

fn parse_request(line: &[u8]) -> Result<pb::RequestOp, String> {
    let invalid = |what: &str| format!("invalid txn request: {}: {what}", String::from_utf8_lossy(line));
    let words = words(line).map_err(|what| invalid(&what))?;
    let words = words.into_iter().map(OsString::from_vec);
    let parsed = Line::try_parse_from(words).map_err(|error| invalid(&first_line(&error)))?;
    let request = match parsed {
        Line::Put(put) => Request::RequestPut(put.request(|| Err(invalid("the value is missing")))?),
        Line::Get(get) => Request::RequestRange(get.request()),
        Line::Del(del) => Request::RequestDeleteRange(del.request()),
    };
    Ok(pb::RequestOp { request: Some(request) })
}

/// clap's error, without its usage.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or("").trim();
    line.strip_prefix("error: ").unwrap_or(line).to_string()
}

/// The words of a line.
fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii();
    while let Some(&first) = rest.first() {
        let (word, after) = match first {
            b'"' => unquote(rest)?,
            b'\'' => {
                let len = rest[1..].iter().position(|&b| b == b'\'').ok_or("a single quote is not closed")?;
                (rest[1..=len].to_vec(), &rest[len + 2..])
            }
            _ => {
                let len = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                (rest[..len].to_vec(), &rest[len..])
            }
        };
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

/// Reads one quoted text at the beginning: "double quotes" with escapes, or `back quotes` as they are. Returns its
/// bytes and the rest.
fn unquote(text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    match text.first() {
        Some(b'"') => {}
        Some(b'`') => {
            let len = text[1..].iter().position(|&b| b == b'`').ok_or("a back quote is not closed")?;
            return Ok((text[1..=len].to_vec(), &text[len + 2..]));
        }
        _ => return Err("expected a text in double quotes".to_string()),
    }
    let mut bytes = Vec::new();
    let mut at = 1;
    loop {
        match text.get(at) {
            None => return Err("a double quote is not closed".to_string()),
            Some(b'"') => return Ok((bytes, &text[at + 1..])),
            Some(b'\\') => at += unescape(&text[at + 1..], &mut bytes)?,
            Some(&byte) => bytes.push(byte),
        }
        at += 1;
    }
}

/// Reads the escape after a backslash; returns its length in bytes.
fn unescape(text: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
    let digits = |from: usize, count: usize, radix: u32| {
        let text = text.get(from..from + count).and_then(|digits| std::str::from_utf8(digits).ok());
        text.filter(|text| !text.starts_with('+')).and_then(|text| u32::from_str_radix(text, radix).ok())
    };
    let wrong = || format!("unknown escape \\{}", text.first().map_or(' ', |&byte| char::from(byte)));
    let simple = match text.first() {
        Some(b'a') => 7,
        Some(b'b') => 8,
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'v') => 11,
        Some(b'\\') => b'\\',
        Some(b'"') => b'"',
        Some(b'x') => {
            let byte = digits(1, 2, 16).ok_or_else(wrong)?;
            out.push(byte as u8);
            return Ok(3);
        }
        Some(b'0'..=b'7') => {
            let byte = digits(0, 3, 8).and_then(|byte| u8::try_from(byte).ok()).ok_or_else(wrong)?;
            out.push(byte);
            return Ok(3);
        }
        Some(kind @ (b'u' | b'U')) => {
            let count = if *kind == b'u' { 4 } else { 8 };
            let c = digits(1, count, 16).and_then(char::from_u32).ok_or_else(wrong)?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(1 + count);
        }
        _ => return Err(wrong()),
    };
    out.push(simple);
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &[u8]) -> pb::RequestOp {
        let put = pb::PutRequest { key: key.into(), value: value.to_vec(), ..Default::default() };
        pb::RequestOp { request: Some(Request::RequestPut(put)) }
    }

    #[test]
    fn the_example_of_etcdctls_manual_is_read() {
        let text = b"mod(\"key1\") > \"0\"\n\nput key1 \"overwrote-key1\"\n\nput key1 \"created-key1\"\nput key2 \"some extra key\"\n\n";
        let txn = parse_txn(text).unwrap();
        assert_eq!(
            txn.compare,
            [pb::Compare {
                result: CompareResult::Greater.into(),
                target: CompareTarget::Mod.into(),
                key: b"key1".to_vec(),
                range_end: vec![],
                target_union: Some(TargetUnion::ModRevision(0)),
            }]
        );
        assert_eq!(txn.success, [put("key1", b"overwrote-key1")]);
        assert_eq!(txn.failure, [put("key1", b"created-key1"), put("key2", b"some extra key")]);
    }

    #[test]
    fn sections_may_be_empty_and_the_last_empty_line_may_be_missing() {
        assert_eq!(parse_txn(b""), Ok(pb::TxnRequest::default()));
        assert_eq!(parse_txn(b"\n\n\n\n\n"), Ok(pb::TxnRequest::default()));
        let txn = parse_txn(b"\nput a b").unwrap();
        assert_eq!((txn.compare.len(), txn.success.len(), txn.failure.len()), (0, 1, 0));
        let txn = parse_txn(b"\r\n\r\n  put a b  \r\n").unwrap();
        assert_eq!((txn.compare.len(), txn.success.len(), txn.failure.len()), (0, 0, 1));
        assert_eq!(txn.failure, [put("a", b"b")]);
        assert!(parse_txn(b"\n\n\nput a b").unwrap_err().starts_with("line 4: nothing may follow"));
    }

    #[test]
    fn every_target_and_operator_is_known() {
        let compare = |line: &str| parse_compare(line.as_bytes()).unwrap();
        for (line, target, union) in [
            ("ver(\"k\") = \"1\"", CompareTarget::Version, TargetUnion::Version(1)),
            ("version(\"k\") = \"1\"", CompareTarget::Version, TargetUnion::Version(1)),
            ("c(\"k\") = \"-1\"", CompareTarget::Create, TargetUnion::CreateRevision(-1)),
            ("create(\"k\") = \"1\"", CompareTarget::Create, TargetUnion::CreateRevision(1)),
            ("m(\"k\")=\"1\"", CompareTarget::Mod, TargetUnion::ModRevision(1)),
            ("mod( \"k\" ) = \"1\"", CompareTarget::Mod, TargetUnion::ModRevision(1)),
            ("val(`k`) = `a\\`", CompareTarget::Value, TargetUnion::Value(b"a\\".to_vec())),
            ("value(\"k\") = \"\"", CompareTarget::Value, TargetUnion::Value(vec![])),
            ("lease(\"k\") = \"0\"", CompareTarget::Lease, TargetUnion::Lease(0)),
        ] {
            let parsed = compare(line);
            assert_eq!((parsed.target(), parsed.target_union), (target, Some(union)), "{line}");
            assert_eq!(parsed.key, b"k", "{line}");
        }
        for (op, result) in [
            ("=", CompareResult::Equal),
            ("!=", CompareResult::NotEqual),
            ("<", CompareResult::Less),
            (">", CompareResult::Greater),
        ] {
            assert_eq!(compare(&format!("mod(\"k\") {op} \"1\"")).result(), result);
        }
    }

    #[test]
    fn a_malformed_compare_is_refused_with_its_line_and_the_reason() {
        for (line, why) in [
            ("put a b", "expected target"),
            ("mod(k) = \"1\"", "double quotes"),
            ("mod(\"k\" = \"1\"", "expected )"),
            ("mod(\"k\") == \"1\"", "expected =, !=, < or >"),
            ("mod(\"k\") \"1\"", "expected =, !=, < or >"),
            ("mod(\"k\") = 1", "double quotes"),
            ("mod(\"k\") = \"x\"", "number in quotes"),
            ("size(\"k\") = \"1\"", "unknown target"),
            ("mod(\"k\") = \"1\" x", "nothing may follow"),
            ("mod(\"k) = 1", "not closed"),
        ] {
            let error = parse_txn(line.as_bytes()).expect_err(line);
            assert!(
                error.starts_with("line 1: malformed comparison") && error.contains(why),
                "{line}: {error}"
            );
        }
    }

    #[test]
    fn words_are_bare_or_quoted() {
        let split = |line: &str| words(line.as_bytes()).map(|words| words.join(&b"|"[..]));
        assert_eq!(split("put a b"), Ok(b"put|a|b".to_vec()));
        assert_eq!(split("  put   'a b'  \"c \\\"d\" "), Ok(b"put|a b|c \"d".to_vec()));
        assert_eq!(split("put a\"b c'd"), Ok(b"put|a\"b|c'd".to_vec()));
        assert_eq!(split("put '' \"\""), Ok(b"put||".to_vec()));
        assert!(split("put 'a").is_err());
        assert!(split("put \"a").is_err());
    }

    #[test]
    fn escapes_are_gos() {
        let text = |text: &str| unquote(text.as_bytes()).map(|(bytes, _)| bytes);
        assert_eq!(text("\"\\a\\b\\f\\n\\r\\t\\v\\\\\\\"\""), Ok(b"\x07\x08\x0c\n\r\t\x0b\\\"".to_vec()));
        assert_eq!(text("\"\\x00\\xff\\101\\377\""), Ok(b"\x00\xffA\xff".to_vec()));
        assert_eq!(text("\"\\u00e4\\U0001F600\""), Ok("ä😀".as_bytes().to_vec()));
        assert_eq!(text("\"ä\""), Ok("ä".as_bytes().to_vec()));
        for wrong in
            ["\"\\q\"", "\"\\x0\"", "\"\\xzz\"", "\"\\400\"", "\"\\ud800\"", "\"\\'\"", "\"\\", "\"\\x+1\""]
        {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_take_the_flags_of_their_verbs() {
        let request = |line: &str| parse_request(line.as_bytes()).map(|op| op.request.unwrap());
        let Ok(Request::RequestRange(range)) = request("get a --prefix --limit=3 --rev 5") else {
            panic!("a range")
        };
        assert_eq!(
            (range.key, range.range_end, range.limit, range.revision),
            (b"a".to_vec(), b"b".to_vec(), 3, 5)
        );
        let Ok(Request::RequestDeleteRange(delete)) = request("del a --prev-kv") else { panic!("a delete") };
        assert!(delete.prev_kv && delete.range_end.is_empty());
        let Ok(Request::RequestPut(put)) = request("put --lease=1f -- -k -v") else { panic!("a put") };
        assert_eq!((put.key, put.value, put.lease), (b"-k".to_vec(), b"-v".to_vec(), 31));
        for (line, why) in [
            ("put a", "value is missing"),
            ("put", "required"),
            ("delete a", "unrecognized"),
            ("get a --nonsense", "unexpected argument"),
        ] {
            let error = request(line).expect_err(line);
            assert!(error.starts_with("invalid txn request: ") && error.contains(why), "{line}: {error}");
        }
    }
}
