//! tree: files in directories over plain keys, each operation one transaction in a session.
//!
//! Knows nothing of: the keys of files.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output;
use clap::{Args, Subcommand};
use kattu_client::tree::{Tree, TreeError};
use kattu_client::{Kind, SessionOptions, Store};
use kattu_output::{Ended, Outcome};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

/// The verbs about files and directories.
#[derive(Subcommand, Debug)]
pub(crate) enum TreeVerb {
    /// List what is in a directory; directories end with a slash
    Ls(PathArgs),
    /// Print the contents of a file
    Cat(PathArgs),
    /// Write a file, whole
    Write(WriteArgs),
    /// Make a directory, if it is not there
    Mkdir(PathArgs),
    /// Remove a file, if it is there
    Rm(PathArgs),
    /// Remove a directory with all that is in it
    Rmdir(PathArgs),
}

/// What all of them have.
#[derive(Args, Debug)]
struct Common {
    /// Only if the file PATH has the contents VALUE
    #[arg(long = "if", value_name = "PATH=VALUE")]
    condition: Option<String>,
    /// The prefix of the keys of the tree
    #[arg(long, value_name = "PREFIX")]
    root: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

/// Arguments of most of them.
#[derive(Args, Debug)]
pub(crate) struct PathArgs {
    /// The path, from / on
    path: String,
    #[command(flatten)]
    common: Common,
}

/// Arguments of tree write.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  kattu tree write /services/mail/leader host-1
  kattu tree write /config < config.toml                               the contents from standard input
  kattu tree write /turn bob --if /turn=ann                            only where it is Ann's turn")]
pub(crate) struct WriteArgs {
    /// The path, from / on
    path: String,
    /// The contents; read from standard input if they are left out
    contents: Option<OsString>,
    #[command(flatten)]
    common: Common,
}

/// Runs a verb about files and directories.
pub(crate) fn tree(verb: &TreeVerb) -> Outcome {
    match verb {
        TreeVerb::Ls(args) => {
            let names = read(&args.common, async |tree| tree.list_directory(&args.path).await)?;
            let lines: String = names.iter().flat_map(|name| [name, "\n"]).collect();
            output::print(lines.as_bytes())
        }
        TreeVerb::Cat(args) => output::print(&read(&args.common, async |tree| tree.read(&args.path).await)?),
        TreeVerb::Write(args) => {
            let contents = match &args.contents {
                Some(contents) => contents.clone().into_vec(),
                None => {
                    let mut contents = Vec::new();
                    let read = std::io::stdin().read_to_end(&mut contents);
                    read.map_err(|error| Ended::failed(format!("cannot read standard input: {error}")))?;
                    contents
                }
            };
            write(&args.common, async |tree| tree.write(&args.path, contents).await)
        }
        TreeVerb::Mkdir(args) => write(&args.common, async |tree| tree.make_directory(&args.path).await),
        TreeVerb::Rm(args) => write(&args.common, async |tree| tree.remove(&args.path).await),
        TreeVerb::Rmdir(args) => write(&args.common, async |tree| tree.remove_directory(&args.path).await),
    }
}

fn read<T>(common: &Common, work: impl AsyncFnOnce(Tree) -> Result<T, TreeError>) -> Result<T, Ended> {
    block_on(async {
        let tree = of(common, Store::from(common.reach.native_client()?))?;
        work(tree).await.map_err(|error| judge(&error))
    })
}

/// Writes go through a session: one whose outcome is unknown is repeated, and executed once.
fn write(common: &Common, work: impl AsyncFnOnce(Tree) -> Result<(), TreeError>) -> Outcome {
    block_on(async {
        let client = common.reach.native_client()?;
        let session = client.open_session(SessionOptions::default()).await;
        let session = Arc::new(session.map_err(|error| ended::of_error(&error))?);
        let tree = of(common, Store::from(Arc::clone(&session)))?;
        let done = work(tree).await;
        let _ = session.close().await; // if this fails it ends by itself
        done.map_err(|error| judge(&error))
    })
}

fn of(common: &Common, store: Store) -> Result<Tree, Ended> {
    let tree = match &common.root {
        None => Tree::new(store),
        Some(root) => Tree::new(store).below(root),
    };
    match &common.condition {
        None => Ok(tree),
        Some(condition) => {
            let (path, value) = condition
                .split_once('=')
                .ok_or_else(|| Ended::usage(format!("--if {condition:?}: expected PATH=VALUE")))?;
            tree.when(path, value).map_err(|error| judge(&error))
        }
    }
}

fn judge(error: &TreeError) -> Ended {
    match error {
        TreeError::Path(wrong) => Ended::usage(wrong.to_string()),
        TreeError::Store(error) => ended::of_error(error),
        error if error.kind() == Kind::Unknown => Ended::with_code(3, error.to_string()),
        error => Ended::failed(error.to_string()),
    }
}
