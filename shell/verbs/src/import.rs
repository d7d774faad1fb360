//! import: every file of a directory becomes a key.
//!
//! 64 puts are under way at once. A put that was refused for a temporary reason, or whose outcome is unknown, is
//! retried with the same value until it is done: writing the same file twice is harmless. The import gives up when no
//! put has succeeded for `--patience`.
//! Knows nothing of: the choice of endpoints.

use crate::connect::{Reach, block_on, parse_time};
use crate::ended;
use crate::output::{self, Format, readable};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kattu_client::{Client, Failure, Kind};
use kattu_output::{Ended, Outcome};
use kattu_proto::etcdserverpb as pb;
use serde_json::json;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;

/// Puts under way at once.
const IN_FLIGHT: usize = 64;
/// No member can be configured to take more; a larger file is not even read.
const FILE_BYTES_MAX: u64 = kattu_server::config::REQUEST_BYTES_LIMIT;
/// Pauses between retries double from the first to the second.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Arguments of import.
#[derive(Args, Debug)]
#[command(after_help = "\
The key of a file is PREFIX and its path below DIR, with / between names; so PREFIX usually ends with /.
Only regular files are written; links are not followed. Files that the server finds too large are listed at the
end, and the exit code is 1.

Example:
  kattu import ./site --prefix site/ --endpoints 127.0.0.1:2379,127.0.0.1:22379 --acked done.txt")]
pub(crate) struct ImportArgs {
    /// The directory
    dir: PathBuf,
    /// The prefix of the keys
    #[arg(long)]
    prefix: OsString,
    /// Append the path of each file that the cluster has acknowledged to this file
    #[arg(long)]
    acked: Option<PathBuf>,
    /// Give up when no put has succeeded for this long
    #[arg(long, default_value = "60s", value_parser = parse_time)]
    patience: Duration,
    #[command(flatten)]
    reach: Reach,
    /// Output format of the summary; default: one line
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// The result of an import.
#[derive(Default)]
struct Tally {
    files: u64,
    bytes: u64,
    oversize: Vec<String>,
    /// Refused for good, or unreadable: path and reason.
    failed: Vec<(String, String)>,
}

/// Imports a directory.
pub(crate) fn run(args: &ImportArgs) -> Outcome {
    let files = files_below(&args.dir)
        .map_err(|error| Ended::usage(format!("cannot read {}: {error}", args.dir.display())))?;
    let mut acked = match &args.acked {
        Some(path) => Some(
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .map_err(|error| Ended::usage(format!("--acked {}: {error}", path.display())))?,
        ),
        None => None,
    };
    let bar = progress_bar(files.len());
    let tally = block_on(async {
        let client = args.reach.client()?;
        LocalSet::new().run_until(import(args, client, files, &mut acked, &bar)).await
    });
    bar.finish_and_clear();
    summarize(args, &tally?)
}

async fn import(
    args: &ImportArgs,
    client: Client,
    files: Vec<Vec<u8>>,
    acked: &mut Option<File>,
    bar: &ProgressBar,
) -> Result<Tally, Ended> {
    let prefix = args.prefix.clone().into_vec();
    let mut tally = Tally::default();
    let patience = Rc::new(Patience { max: args.patience, last_success: Cell::new(Instant::now()) });
    let mut under_way = JoinSet::new();
    let mut files = files.into_iter();
    loop {
        while under_way.len() < IN_FLIGHT {
            let Some(path) = files.next() else { break };
            match contents(&args.dir, &path, acked.is_some()) {
                Ok(value) => {
                    let request = pb::PutRequest {
                        key: [prefix.as_slice(), path.as_slice()].concat(),
                        value,
                        ..Default::default()
                    };
                    under_way.spawn_local(put_until_done(client.clone(), path, request, patience.clone()));
                }
                Err(Unfit::Oversize) => tally.oversize.push(readable(&path)),
                Err(Unfit::Other(why)) => tally.failed.push((readable(&path), why)),
            }
        }
        let Some(ended) = under_way.join_next().await else { return Ok(tally) };
        let (path, outcome) = ended.map_err(|error| Ended::failed(format!("a put failed: {error}")))?;
        match outcome {
            Ok(bytes) => {
                if let Some(file) = acked {
                    let line = [path.as_slice(), b"\n"].concat();
                    file.write_all(&line)
                        .map_err(|error| Ended::failed(format!("cannot write --acked: {error}")))?;
                }
                tally.files += 1;
                tally.bytes += bytes;
                bar.inc(1);
            }
            Err(failure) if is_oversize(&failure) => tally.oversize.push(readable(&path)),
            Err(failure) if !failure.is_passing() && !is_no_space(&failure) => {
                tally.failed.push((readable(&path), failure.message));
            }
            Err(failure) => {
                let ended = ended::of_call(failure);
                let code = ended.code();
                let patience = args.patience.as_secs_f64();
                let message = format!(
                    "gave up after {patience} s without success, with {} files written; {} and others are missing: \
                     {failure}",
                    tally.files,
                    readable(&path),
                    failure = ended.message(),
                );
                return Err(Ended::with_code(code, message));
            }
        }
    }
}

struct Patience {
    max: Duration,
    last_success: Cell<Instant>,
}

async fn put_until_done(
    client: Client,
    path: Vec<u8>,
    request: pb::PutRequest,
    patience: Rc<Patience>,
) -> (Vec<u8>, Result<u64, Failure>) {
    let mut pause = PAUSE_MIN;
    loop {
        match client.put(request.clone()).await {
            Ok(_) => {
                patience.last_success.set(Instant::now());
                return (path, Ok(request.value.len() as u64));
            }
            Err(failure) => {
                let may_pass = failure.is_passing() || is_no_space(&failure);
                if !may_pass || patience.last_success.get().elapsed() >= patience.max {
                    return (path, Err(failure));
                }
                if failure.kind == Kind::Refused {
                    client.move_on();
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether the request was too large for the member's own limit, or for gRPC's.
fn is_oversize(failure: &Failure) -> bool {
    failure.kind == Kind::Refused
        && (failure.message == "etcdserver: request is too large"
            || failure.message.contains("message larger than max"))
}

/// Whether the store lacks space: that may pass, so it is no reason to skip files.
fn is_no_space(failure: &Failure) -> bool {
    failure.message == "etcdserver: mvcc: database space exceeded"
}

/// Why a file is not sent.
enum Unfit {
    Oversize,
    Other(String),
}

fn contents(dir: &Path, path: &[u8], is_listed: bool) -> Result<Vec<u8>, Unfit> {
    if is_listed && path.contains(&b'\n') {
        return Err(Unfit::Other("a name with a line break cannot be listed with --acked".to_string()));
    }
    let file = dir.join(std::ffi::OsStr::from_bytes(path));
    let unreadable = |error: std::io::Error| Unfit::Other(error.to_string());
    if fs::metadata(&file).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(Unfit::Oversize);
    }
    fs::read(&file).map_err(unreadable)
}

/// Paths of all regular files below a directory, relative to it, ascending.
fn files_below(dir: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut open = vec![(dir.to_path_buf(), Vec::new())];
    while let Some((dir, path)) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [path.as_slice(), separator, name.as_bytes()].concat();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push((entry.path(), path));
            } else if kind.is_file() {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn progress_bar(files: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} files, {per_sec}, {eta} left");
    // The bar hides itself when standard error is not a terminal.
    ProgressBar::new(files as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn summarize(args: &ImportArgs, tally: &Tally) -> Outcome {
    match args.output {
        Some(Format::Json) => output::print_json(&json!({
            "files": tally.files,
            "bytes": tally.bytes,
            "oversize": tally.oversize,
            "failed": tally.failed.iter().map(|(path, why)| json!({"path": path, "error": why})).collect::<Vec<_>>(),
        }))?,
        Some(Format::Table) => {
            let count = |list: usize| list.to_string();
            let row = vec![
                tally.files.to_string(),
                tally.bytes.to_string(),
                count(tally.oversize.len()),
                count(tally.failed.len()),
            ];
            output::print_table(&["files", "bytes", "oversize", "failed"], vec![row])?;
        }
        None => {
            output::print(format!("imported {} files, {} bytes\n", tally.files, tally.bytes).as_bytes())?;
        }
    }
    let mut problems: Vec<String> =
        tally.oversize.iter().map(|path| format!("  {path}: too large for one value")).collect();
    problems.extend(tally.failed.iter().map(|(path, why)| format!("  {path}: {why}")));
    if problems.is_empty() {
        return Ok(());
    }
    Err(Ended::failed(format!("{} files were not imported:\n{}", problems.len(), problems.join("\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_relative_paths() {
        let dir = crate::export::tests::scratch("import-files");
        fs::create_dir_all(dir.join("b/c")).unwrap();
        fs::write(dir.join("b/c/two"), b"2").unwrap();
        fs::write(dir.join("b-one"), b"").unwrap();
        let no_utf8 = std::ffi::OsStr::from_bytes(b"odd\xff");
        fs::write(dir.join(no_utf8), b"x").unwrap();
        std::os::unix::fs::symlink("b-one", dir.join("link")).unwrap();
        let files = files_below(&dir).unwrap();
        assert_eq!(files, [&b"b-one"[..], b"b/c/two", b"odd\xff"]);
        assert_eq!(contents(&dir, b"b/c/two", true).ok(), Some(b"2".to_vec()));
        assert!(matches!(contents(&dir, b"a\nb", true), Err(Unfit::Other(_))));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_too_large_is_told_by_both_gates() {
        let failure = |message: &str| Failure {
            kind: Kind::Refused,
            code: kattu_client::Code::InvalidArgument,
            message: message.to_string(),
            reason: None,
            endpoint: String::new(),
        };
        assert!(is_oversize(&failure("etcdserver: request is too large")));
        assert!(is_oversize(&failure("grpc: received message larger than max (9 vs. 8)")));
        assert!(!is_oversize(&failure("etcdserver: no leader")));
        assert!(is_no_space(&failure("etcdserver: mvcc: database space exceeded")));
    }
}
