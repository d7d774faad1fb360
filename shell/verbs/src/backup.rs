//! backup, restore, recover: the whole store into a file, a new cluster from it, or from the one member that is left.
//!
//! Knows nothing of: the format of a backup, the making of a directory.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format};
use clap::Args;
use kattu_client::Kind;
use kattu_client::SnapshotError;
use kattu_output::{Ended, Outcome};
use kattu_server::backup::Backup;
use kattu_server::config::{self, Command, ServeConfig};
use kattu_server::rebuild::{self, RAISE_BY, RebuildError, Rebuilt};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Arguments of backup.
#[derive(Args, Debug)]
#[command(after_help = "\
Saves the whole store of one member, the first endpoint that answers, as of one moment, while it goes on serving. The file
gets its name when it is complete and was read back and checked; until then it is called FILE.part. An existing file is
not overwritten.

Example:
  kattu backup /backups/kattu-monday.bak")]
pub(crate) struct BackupArgs {
    /// The file to create
    file: PathBuf,
    #[command(flatten)]
    reach: Reach,
    /// Output format of the summary; default: one line
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Which member, and of which cluster: flags of serve.
#[derive(Args, Debug)]
struct Place {
    /// Directory of the member, as for serve
    #[arg(long)]
    data_dir: PathBuf,
    /// Name of the member, as for serve
    #[arg(long)]
    name: Option<String>,
    /// All members of the new cluster, as for serve
    #[arg(long)]
    initial_cluster: Option<String>,
    /// Name that tells the new cluster from others, as for serve
    #[arg(long)]
    initial_cluster_token: Option<String>,
    /// URLs at which the other members will reach it, as for serve
    #[arg(long)]
    initial_advertise_peer_urls: Option<String>,
    /// Raise the revision by this number
    #[arg(long, value_name = "N", default_value_t = RAISE_BY, conflicts_with = "keep_revision")]
    bump_revision: u64,
    /// Keep the revision and the history
    #[arg(long)]
    keep_revision: bool,
}

/// Arguments of restore.
#[derive(Args, Debug)]
#[command(after_help = "\
Makes the data directory of one member of a new cluster. Run it once for each member, with the same backup and the flags
that serve gets there; then start them all. Nothing is overwritten: the directory must be empty, or not exist.

The new cluster has an id of its own, from --initial-cluster-token and --initial-cluster, so members of the old cluster
cannot be mistaken for its own.

The revision continues 1000000000 above that of the backup, and everything before is compacted: clients may have seen
revisions after the backup was taken, and must not see them again with other contents. A watch from an old revision gets
the error \"compacted\", and starts anew. --bump-revision sets another number; --keep-revision keeps revision and history,
for a copy whose clients never used the old cluster.

Examples:
  kattu restore monday.bak --data-dir /var/lib/kattu
  kattu restore monday.bak --name n1 --data-dir /var/lib/kattu/n1 --initial-cluster-token after-the-flood \\
      --initial-cluster n1=http://10.0.0.1:2380,n2=http://10.0.0.2:2380,n3=http://10.0.0.3:2380")]
pub(crate) struct RestoreArgs {
    /// The backup
    file: PathBuf,
    #[command(flatten)]
    place: Place,
    /// Output format of the summary; default: one line
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Arguments of recover.
#[derive(Args, Debug)]
#[command(after_help = "\
For a cluster that has lost most of its members for good. If a majority can be started again, start it instead: then
nothing is lost. This makes the member in --data-dir the only one of a new cluster, with all that it holds: its newest
snapshot and its log to the very end. Writes that the others had acknowledged and this one never received ARE LOST, and
writes whose clients got no response may be included.

No process may use the directory meanwhile, and no other member of the old cluster may serve clients afterwards. Of several
members that are left, take the one whose `kattu wal inspect` ends latest. The old directory is kept under another name.
The revision is raised as by restore.

Start the member with the same flags afterwards, and add others with `kattu member add`.

Example:
  kattu recover --name n2 --data-dir /var/lib/kattu/n2 --initial-cluster n2=http://10.0.0.2:2380 \\
      --initial-cluster-token after-the-flood --i-know-that-writes-may-be-lost")]
pub(crate) struct RecoverArgs {
    #[command(flatten)]
    place: Place,
    /// Required: confirms that writes may be lost
    #[arg(long)]
    i_know_that_writes_may_be_lost: bool,
    /// Output format of the summary; default: one line
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Takes a backup.
pub(crate) fn backup(args: &BackupArgs) -> Outcome {
    let file = &args.file;
    if file.symlink_metadata().is_ok() {
        return Err(Ended::failed(format!("{} exists already; nothing was written", file.display())));
    }
    let mut aside: OsString = file.clone().into_os_string();
    aside.push(".part");
    let aside = PathBuf::from(aside);
    // If anything fails from here on, this file is removed.
    let part = begin(&aside, file)?;
    let taken = take(args, part, &aside).and_then(|()| {
        let backup = Backup::open(&aside).map_err(|error| {
            Ended::failed(format!("the backup in {} cannot be read back: {error}", aside.display()))
        })?;
        // A link fails where a rename would overwrite a file that was made meanwhile.
        std::fs::hard_link(&aside, file).map_err(|error| of_file(file, &error))?;
        std::fs::remove_file(&aside).map_err(|error| of_file(&aside, &error))?;
        sync_parent(file).map_err(|error| of_file(file, &error))?;
        Ok(backup)
    });
    let backup = taken.inspect_err(|_| {
        let _ = std::fs::remove_file(&aside); // the error before is the one to report
    })?;
    let store = backup.tables.store();
    let told = json!({
        "file": file.display().to_string(),
        "bytes": backup.bytes,
        "revision": store.revision().0,
        "keys": store.stats().keys,
        "applied": backup.tables.applied().0,
        "cluster_id": format!("{:x}", backup.cluster),
        "member_id": format!("{:x}", backup.member.0),
        "sha256": hex(&backup.digest),
    });
    let line = format!(
        "{}: {} keys at revision {}, {} bytes, from member {:x}\n",
        file.display(),
        store.stats().keys,
        store.revision(),
        backup.bytes,
        backup.member.0
    );
    tell(args.output, &told, &line)
}

/// The partial file; an existing one belongs to another backup.
fn begin(aside: &Path, file: &Path) -> Result<File, Ended> {
    OpenOptions::new().write(true).create_new(true).open(aside).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ended::failed(format!(
            "{} exists already: another backup is writing it, or was killed; remove it if none runs",
            aside.display()
        )),
        io::ErrorKind::NotFound => {
            Ended::failed(format!("{}: its directory does not exist; nothing was written", file.display()))
        }
        _ => of_file(aside, &error),
    })
}

fn take(args: &BackupArgs, mut part: File, aside: &Path) -> Outcome {
    let mut bytes = 0;
    block_on(async {
        let mut keep = |piece: &[u8]| {
            bytes += piece.len();
            part.write_all(piece)
        };
        let taken = args.reach.client()?.snapshot(&mut keep).await;
        taken.map(|_| ()).map_err(|error| match error {
            SnapshotError::Call(failure)
                if failure.kind == Kind::Refused && failure.message.contains("corrupt") =>
            {
                Ended::failed(format!(
                    "{failure}: this member's state diverges from the others'; use another endpoint"
                ))
            }
            SnapshotError::Call(failure) if 0 < bytes => Ended::unreachable(format!(
                "the backup was cut short after {bytes} bytes ({failure}); nothing was written: run it again"
            )),
            SnapshotError::Call(failure) => ended::of_read(&failure),
            SnapshotError::Io(error) => of_file(aside, &error),
        })
    })?;
    part.sync_all().map_err(|error| of_file(aside, &error))
}

/// Makes a member's directory from a backup.
pub(crate) fn restore(args: &RestoreArgs) -> Outcome {
    let (config, raise_by) = args.place.read()?;
    let rebuilt = rebuild::restore(&config, &args.file, raise_by).map_err(ended)?;
    let line = format!(
        "{} is member {} ({:x}) of the new cluster {:x}: {} keys, revision {} (was {})\n",
        rebuilt.data_dir.display(),
        rebuilt.name,
        rebuilt.member_id.0,
        rebuilt.cluster_id,
        rebuilt.keys,
        rebuilt.revision,
        rebuilt.revision_before
    );
    tell(args.output, &json_of(&rebuilt), &line)
}

/// Makes the member that is left a cluster of its own.
pub(crate) fn recover(args: &RecoverArgs) -> Outcome {
    let (config, raise_by) = args.place.read()?;
    if !args.i_know_that_writes_may_be_lost {
        return Err(Ended::usage(
            "nothing was done: writes that this member never received would be lost for good. If a majority of the \
             members can be started again, start it instead; if not, add --i-know-that-writes-may-be-lost",
        ));
    }
    let recovery = rebuild::recover(&config, raise_by).map_err(ended)?;
    let rebuilt = &recovery.rebuilt;
    let mut warnings = vec![format!(
        "writes that other members of cluster {:x} had acknowledged and this one had not received are lost; its log ended \
         at index {}",
        recovery.old_cluster, rebuilt.applied.0
    )];
    if recovery.open > 0 {
        warnings.push(format!(
            "its last {} entries are included, although it is unknown whether they were committed",
            recovery.open
        ));
    }
    if let Some(vote_floor) = recovery.vote_floor {
        warnings.push(format!(
            "its log was damaged and cut: before, it reached {vote_floor} (term.index) at most, and not all of that was received \
             again; if another member is left, use that one instead"
        ));
    }
    if !recovery.voted {
        warnings.push("it was a learner: it may lag far behind the voters".to_string());
    }
    warnings.extend(recovery.complaints.iter().map(|complaint| format!("its snapshots: {complaint}")));
    warnings.push(format!(
        "no other member of cluster {:x} may serve clients any more: remove their directories",
        recovery.old_cluster
    ));
    for warning in &warnings {
        let _ = writeln!(io::stderr(), "kattu: warning: {warning}"); // the summary has it, too
    }
    let mut told = json_of(rebuilt);
    told["old_cluster_id"] = json!(format!("{:x}", recovery.old_cluster));
    told["old_member_id"] = json!(format!("{:x}", recovery.survivor.0));
    told["kept"] = json!(recovery.kept.display().to_string());
    told["not_known_committed"] = json!(recovery.open);
    told["warnings"] = json!(warnings);
    let line = format!(
        "{} is member {} ({:x}), the only one of the new cluster {:x}: {} keys, revision {} (was {})\nthe old directory \
         is kept as {}\n",
        rebuilt.data_dir.display(),
        rebuilt.name,
        rebuilt.member_id.0,
        rebuilt.cluster_id,
        rebuilt.keys,
        rebuilt.revision,
        rebuilt.revision_before,
        recovery.kept.display()
    );
    tell(args.output, &told, &line)
}

impl Place {
    /// serve's configuration from these flags, and by how much the revision is raised.
    fn read(&self) -> Result<(ServeConfig, u64), Ended> {
        let mut flags = vec![("data-dir", self.data_dir.display().to_string())];
        let texts = [
            ("name", &self.name),
            ("initial-cluster", &self.initial_cluster),
            ("initial-cluster-token", &self.initial_cluster_token),
            ("initial-advertise-peer-urls", &self.initial_advertise_peer_urls),
        ];
        flags.extend(texts.into_iter().filter_map(|(flag, text)| Some((flag, text.clone()?))));
        let flags: Vec<String> = flags.into_iter().map(|(flag, text)| format!("--{flag}={text}")).collect();
        let raise_by = if self.keep_revision { 0 } else { self.bump_revision };
        match config::load(&flags).map_err(Ended::usage)? {
            Command::Serve(config, _) => Ok((*config, raise_by)), // its warnings matter to serve only
            Command::Help | Command::Version => {
                Err(Ended::usage("internal error: these flags ask serve for help"))
            }
        }
    }
}

fn json_of(rebuilt: &Rebuilt) -> Value {
    json!({
        "data_dir": rebuilt.data_dir.display().to_string(),
        "name": rebuilt.name,
        "member_id": format!("{:x}", rebuilt.member_id.0),
        "cluster_id": format!("{:x}", rebuilt.cluster_id),
        "revision": rebuilt.revision.0,
        "revision_before": rebuilt.revision_before.0,
        "keys": rebuilt.keys,
        "applied": rebuilt.applied.0,
    })
}

fn tell(format: Option<Format>, told: &Value, line: &str) -> Outcome {
    match format {
        Some(Format::Json) => output::print_json(told),
        Some(Format::Table) => {
            let fields = told.as_object().into_iter().flatten();
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
            let rows = fields.map(|(name, value)| vec![name.replace('_', " "), text(value)]).collect();
            output::print_table(&["what", "value"], rows)
        }
        None => output::print(line.as_bytes()),
    }
}

fn ended(error: RebuildError) -> Ended {
    Ended::with_code(error.exit_code(), format!("{error}; nothing was changed"))
}

fn of_file(file: &Path, error: &io::Error) -> Ended {
    Ended::failed(format!("{}: {error}", file.display()))
}

/// A new name is durable once its directory is synced.
fn sync_parent(file: &Path) -> io::Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
