//! export: every key under a prefix becomes a file, all as of one revision.
//!
//! Keys are untrusted text: nothing may be written outside the directory, over another file, or through a link. So the
//! directory must be new or empty, each file is newly created, and keys that are no plain relative path are refused and
//! listed. [fault-model SE7]
//! Knows nothing of: the choice of endpoints.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format, readable};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kattu_client::{Client, Code, prefix_end};
use kattu_output::{Ended, Outcome};
use kattu_proto::etcdserverpb as pb;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Pages grow up to this many keys while they are small.
const PAGE_KEYS_MAX: i64 = 1000;
/// A page above this many bytes is followed by a smaller one.
const PAGE_BYTES: usize = 4 << 20;

/// Arguments of export.
#[derive(Args, Debug)]
#[command(after_help = "\
The opposite of import: the path of a file is its key without PREFIX. DIR must be new or empty. Keys that are no
relative path (with .., with an empty name, absolute, with a zero byte) are not written but listed, and the exit
code is 1.

Example:
  kattu export site/ ./copy")]
pub(crate) struct ExportArgs {
    /// The prefix of the keys
    prefix: OsString,
    /// The directory
    dir: PathBuf,
    #[command(flatten)]
    reach: Reach,
    /// Output format of the summary; default: one line
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

#[derive(Default)]
struct Tally {
    files: u64,
    bytes: u64,
    revision: i64,
    /// Keys that were not written, with the reason.
    refused: Vec<(String, String)>,
}

/// Exports a prefix.
pub(crate) fn run(args: &ExportArgs) -> Outcome {
    prepare(&args.dir)?;
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} keys, {per_sec}, {eta} left");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let tally = block_on(async { export(args, &args.reach.client()?, &bar).await });
    bar.finish_and_clear();
    summarize(args, &tally?)
}

/// Makes the directory, or checks that nothing is in it.
fn prepare(dir: &Path) -> Outcome {
    let wrong = |error: io::Error| Ended::usage(format!("{}: {error}", dir.display()));
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => {
                Err(Ended::usage(format!("{} is not empty; name a new or empty directory", dir.display())))
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(dir).map_err(wrong),
        Err(error) => Err(wrong(error)),
    }
}

async fn export(args: &ExportArgs, client: &Client, bar: &ProgressBar) -> Result<Tally, Ended> {
    let prefix = args.prefix.clone().into_vec();
    let mut tally = Tally::default();
    let mut limit = 64;
    let mut next = if prefix.is_empty() { vec![0] } else { prefix.clone() };
    loop {
        let request = pb::RangeRequest {
            key: next.clone(),
            range_end: prefix_end(&prefix),
            limit,
            revision: tally.revision,
            ..Default::default()
        };
        let page = match client.range(request).await {
            Ok(page) => page,
            // The page is larger than a member sends at once.
            Err(failure) if failure.code == Code::ResourceExhausted && 1 < limit => {
                limit = (limit / 4).max(1);
                continue;
            }
            Err(failure) => return Err(ended::of_read(&failure)),
        };
        if tally.revision == 0 {
            tally.revision = page.header.as_ref().map_or(0, |header| header.revision);
            bar.set_length(u64::try_from(page.count).unwrap_or(0));
        }
        let mut page_bytes = 0;
        for pair in &page.kvs {
            let path = &pair.key[prefix.len()..];
            page_bytes += pair.value.len();
            match write(&args.dir, path, &pair.value) {
                Ok(()) => {
                    tally.files += 1;
                    tally.bytes += pair.value.len() as u64;
                }
                Err(Unfit::Key(why)) => tally.refused.push((readable(&pair.key), why)),
                Err(Unfit::Disk(error)) => {
                    let path = args.dir.join(OsStr::from_bytes(path));
                    return Err(Ended::failed(format!("cannot write {}: {error}", path.display())));
                }
            }
            bar.inc(1);
        }
        match page.kvs.last() {
            Some(last) if page.more => next = [last.key.as_slice(), &[0]].concat(),
            _ => return Ok(tally),
        }
        limit = if page_bytes > PAGE_BYTES { (limit / 2).max(1) } else { (limit * 2).min(PAGE_KEYS_MAX) };
    }
}

/// Why a key was not written.
#[derive(Debug)]
enum Unfit {
    /// It is no path, or its path is taken.
    Key(String),
    Disk(io::Error),
}

fn write(dir: &Path, path: &[u8], value: &[u8]) -> Result<(), Unfit> {
    let path = dir.join(safe_path(path).map_err(|why| Unfit::Key(why.to_string()))?);
    let taken = || Unfit::Key("another key already has a file or a directory of this name".to_string());
    let judge = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => taken(),
        io::ErrorKind::InvalidFilename => Unfit::Key("a name is too long for the file system".to_string()),
        _ => Unfit::Disk(error),
    };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(judge)?;
    }
    // Newly created: never over a file, never through a link.
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(judge)?;
    file.write_all(value).map_err(Unfit::Disk)
}

/// The rest of a key as a path that stays below its directory, or why it is none.
fn safe_path(path: &[u8]) -> Result<&Path, &'static str> {
    if path.is_empty() {
        return Err("the key is the prefix itself, so it has no path");
    }
    if path.first() == Some(&b'/') {
        return Err("the path is absolute; end the prefix with /");
    }
    if path.contains(&0) {
        return Err("the path has a zero byte");
    }
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" => return Err("the path has an empty name"),
            b"." | b".." => return Err("the path has a . or .."),
            _ => {}
        }
    }
    Ok(Path::new(OsStr::from_bytes(path)))
}

fn summarize(args: &ExportArgs, tally: &Tally) -> Outcome {
    match args.output {
        Some(Format::Json) => output::print_json(&json!({
            "files": tally.files,
            "bytes": tally.bytes,
            "revision": tally.revision,
            "refused": tally.refused.iter().map(|(key, why)| json!({"key": key, "error": why})).collect::<Vec<_>>(),
        }))?,
        Some(Format::Table) => {
            let row = [tally.files, tally.bytes, tally.refused.len() as u64].map(|number| number.to_string());
            let row = row.into_iter().chain([tally.revision.to_string()]).collect();
            output::print_table(&["files", "bytes", "refused", "revision"], vec![row])?;
        }
        None => {
            let line = format!(
                "exported {} files, {} bytes, revision {}\n",
                tally.files, tally.bytes, tally.revision
            );
            output::print(line.as_bytes())?;
        }
    }
    if tally.refused.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = tally.refused.iter().map(|(key, why)| format!("  {key}: {why}")).collect();
    Err(Ended::failed(format!("{} keys were not written:\n{}", lines.len(), lines.join("\n"))))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A new directory of this process and test.
    pub(crate) fn scratch(test: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("kattu-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn only_plain_relative_paths_are_paths() {
        for path in ["a", "a/b", "..a", "a..", "...", "a b/ü", "-x"] {
            assert!(safe_path(path.as_bytes()).is_ok(), "{path}");
        }
        assert!(safe_path(b"\xff/\xfe").is_ok());
        for path in
            ["", "/", "/etc/passwd", "..", "../a", "a/..", "a/../../b", ".", "a/./b", "a//b", "a/", "a\0b"]
        {
            assert!(safe_path(path.as_bytes()).is_err(), "{path:?}");
        }
    }

    #[test]
    fn nothing_is_written_over_a_file_through_a_link_or_outside() {
        let dir = scratch("export");
        let inside = dir.join("in");
        let outside = dir.join("out");
        fs::create_dir_all(&inside).unwrap();
        fs::write(&outside, b"untouched").unwrap();
        write(&inside, b"a/b", b"1").unwrap();
        assert_eq!(fs::read(inside.join("a/b")).unwrap(), b"1");
        for path in [&b"a/b"[..], b"a", b"a/b/c", b"../out"] {
            assert!(matches!(write(&inside, path, b"2"), Err(Unfit::Key(_))), "{}", readable(path));
        }
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        assert!(matches!(write(&inside, b"link", b"2"), Err(Unfit::Key(_))));
        assert!(matches!(write(&inside, &[b'x'; 300], b""), Err(Unfit::Key(_))));
        assert_eq!(fs::read(inside.join("a/b")).unwrap(), b"1");
        assert_eq!(fs::read(&outside).unwrap(), b"untouched");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_directory_must_be_new_or_empty() {
        let dir = scratch("export-prepare");
        assert_eq!(prepare(&dir), Ok(()));
        assert_eq!(prepare(&dir.join("new/one")), Ok(()));
        assert_eq!(prepare(&dir).unwrap_err().code(), 2);
        fs::remove_dir_all(dir).unwrap();
    }
}
