//! Tree: files in directories, over plain keys.
//!
//! The operations and their meaning are those of LogCabin's tree. [LogCabin `Client/Client.h`] Each is one transaction, so
//! it happens whole or not at all, and in a session exactly once.
//!
//! Rules: 1. A node is a file or a directory. A directory is there only if all directories on the way to it are, and no file
//!           lies on the way to a node.
//!        2. The conditions of an operation stand in its transaction. Where they do not hold, the same transaction reads why.
//!        3. An operation may have one condition more: that a file has some contents. It is judged first.
//!        4. Keys below the root of a tree belong to the tree alone.
//!
//! Keys: see `path`. The contents of a file are the value of its key; the key of a directory has an empty value.
//! Knows nothing of: sessions, faces, what files mean.

mod path;

pub use path::{DEPTH_MAX, PathError};

use crate::error::Error;
use crate::failure::{Failure, Kind};
use crate::store::Store;
use kattu_kv::api::{
    Answer, Compare, CompareResult, CompareTarget, DeleteRange, KeyRange, Operation, Put, Range, RangeResult,
    Txn, Value,
};
use path::Path;
use std::fmt;

/// Where a tree lies unless it is told otherwise.
const ROOT: &str = "/tree/";

/// Why an operation of a tree has not been carried out.
#[derive(Clone, Debug)]
pub enum TreeError {
    /// The text is not a path.
    Path(PathError),
    /// There is no such file or directory; of a write, no directory for it.
    Missing(String),
    /// A file is where a directory is needed: at this path.
    NotADirectory(String),
    /// A directory is where a file is needed: at this path.
    IsADirectory(String),
    /// The file of the condition, at this path, has other contents, or is not there.
    ConditionNotMet(String),
    /// The store has not answered, or with an error. Only one of kind `Unknown` may have had an effect.
    Store(Error),
}

impl TreeError {
    /// What is known about the effect of the operation.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            TreeError::Store(error) => error.kind(),
            _ => Kind::Refused,
        }
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::Path(error) => error.fmt(f),
            TreeError::Missing(path) => write!(f, "{path}: there is no such file or directory"),
            TreeError::NotADirectory(path) => write!(f, "{path}: it is a file, not a directory"),
            TreeError::IsADirectory(path) => write!(f, "{path}: it is a directory"),
            TreeError::ConditionNotMet(path) => {
                write!(f, "{path}: its contents are not those of the condition")
            }
            TreeError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TreeError {}

impl From<PathError> for TreeError {
    fn from(error: PathError) -> TreeError {
        TreeError::Path(error)
    }
}

impl From<Error> for TreeError {
    fn from(error: Error) -> TreeError {
        TreeError::Store(error)
    }
}

/// Files in directories. Clones share their store.
///
/// Paths are absolute, as `/home/ann`; a name in one is any text without `/` and NUL, and not empty; `.` and `..` are names
/// like any other. A path has at most [`DEPTH_MAX`] names.
///
/// ```no_run
/// use kattu_client::tree::Tree;
/// use kattu_client::{NativeClient, Options};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = NativeClient::connect(["10.0.0.1:2379"], Options::default(), None)?;
/// let tree = Tree::new(client);
/// tree.make_directory("/services/mail").await?;
/// tree.write("/services/mail/leader", "host-1").await?;
/// assert_eq!(tree.list_directory("/services").await?, ["mail/"]);
/// // Only the leader may resign.
/// tree.when("/services/mail/leader", "host-1")?.remove("/services/mail/leader").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tree {
    store: Store,
    root: String,
    condition: Option<(Path, Vec<u8>)>,
}

/// What an operation reads to say why it was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// The file of the condition.
    Condition,
    /// A file on the way.
    FileOnTheWay,
    /// The path as a file, or as a directory.
    OwnFile,
    OwnDirectory,
    /// The directory in which it lies.
    Parent,
}

/// One of those reads.
struct Look {
    doubt: Doubt,
    path: Path,
    key: Vec<u8>,
}

impl Tree {
    /// The tree below the keys that begin with `/tree/`. In a session (a [`Store`] of one), each operation is carried out
    /// exactly once.
    pub fn new(store: impl Into<Store>) -> Tree {
        Tree { store: store.into(), root: ROOT.to_string(), condition: None }
    }

    /// The tree below the keys that begin with this. Of two trees neither root may begin with the other's.
    #[must_use]
    pub fn below(self, root: &str) -> Tree {
        Tree { root: root.to_string(), ..self }
    }

    /// The same tree, whose operations are carried out only if the file at this path has these contents. Empty contents are
    /// also those of a file that is not there. It replaces an earlier condition.
    ///
    /// # Errors
    /// If the path is none.
    pub fn when(&self, path: &str, contents: impl Into<Vec<u8>>) -> Result<Tree, TreeError> {
        Ok(Tree { condition: Some((Path::parse(path)?, contents.into())), ..self.clone() })
    }

    /// Makes sure that a directory exists, and all directories on the way to it.
    ///
    /// # Errors
    /// [`TreeError::NotADirectory`] if a file is there, or on the way.
    pub async fn make_directory(&self, path: &str) -> Result<(), TreeError> {
        let path = Path::parse(path)?;
        let mut looks = self.looks_on_the_way(&path);
        looks.extend(self.look(Doubt::OwnFile, &path));
        let directories = path.ancestors().chain(Some(path.clone()).filter(|path| !path.is_root()));
        let make = |directory: Path| {
            let key = directory.directory(&self.root);
            // One that is there stays as it is.
            Operation::Txn(Txn {
                compare: vec![is_not_there(&key)],
                success: vec![Operation::Put(Put { key, ..Put::default() })],
                failure: vec![],
            })
        };
        let none = looks.iter().map(|look| is_not_there(&look.key)).collect();
        self.change(&path, none, directories.map(make).collect(), looks).await
    }

    /// The names in a directory, ascending; those of directories have a `/` behind them.
    ///
    /// # Errors
    /// [`TreeError::Missing`], [`TreeError::NotADirectory`].
    pub async fn list_directory(&self, path: &str) -> Result<Vec<String>, TreeError> {
        let path = Path::parse(path)?;
        let mut looks = self.looks_on_the_way(&path);
        looks.extend(self.look(Doubt::OwnFile, &path));
        looks.extend(self.look(Doubt::OwnDirectory, &path));
        let names = Range { keys: path.inside(&self.root, 1), keys_only: true, ..Range::default() };
        let (found, result) = self.read_all(&looks, names).await?;
        judge_files(&looks, &found)?;
        if !path.is_root() && !is_found(&looks, &found, Doubt::OwnDirectory) {
            return Err(TreeError::Missing(path.to_string()));
        }
        let name = |key: &[u8]| path.name_of(&self.root, key).map(str::to_string);
        let mut names: Vec<String> = result.kvs.iter().filter_map(|pair| name(&pair.key)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Makes sure that a directory does not exist, nor what is in it. The root directory stays, and becomes empty.
    ///
    /// # Errors
    /// [`TreeError::NotADirectory`] if a file is there, or on the way.
    pub async fn remove_directory(&self, path: &str) -> Result<(), TreeError> {
        let path = Path::parse(path)?;
        let mut looks = self.looks_on_the_way(&path);
        looks.extend(self.look(Doubt::OwnFile, &path));
        let none = looks.iter().map(|look| is_not_there(&look.key)).collect();
        let own = (!path.is_root()).then(|| one(path.directory(&self.root)));
        let inside = path.steps().map(|steps| path.inside(&self.root, steps));
        let delete = |keys| Operation::DeleteRange(DeleteRange { keys, prev_kv: false });
        self.change(&path, none, own.into_iter().chain(inside).map(delete).collect(), looks).await
    }

    /// Sets the contents of a file; makes it if it is not there.
    ///
    /// # Errors
    /// [`TreeError::Missing`] if the directory for it is not there; [`TreeError::NotADirectory`] if a file is on the way;
    /// [`TreeError::IsADirectory`] if a directory is there.
    pub async fn write(&self, path: &str, contents: impl Into<Vec<u8>>) -> Result<(), TreeError> {
        let path = file(Path::parse(path)?)?;
        let mut compare = vec![is_not_there(&path.directory(&self.root))];
        let mut looks = self.looks_on_the_way(&path);
        looks.extend(self.look(Doubt::OwnDirectory, &path));
        if let Some(parent) = path.parent() {
            compare.push(is_there(&parent.directory(&self.root)));
            let key = parent.directory(&self.root);
            looks.push(Look { doubt: Doubt::Parent, path: parent, key });
        }
        let put = Put { key: path.file(&self.root), value: contents.into(), ..Put::default() };
        self.change(&path, compare, vec![Operation::Put(put)], looks).await
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// [`TreeError::Missing`]; [`TreeError::NotADirectory`] if a file is on the way; [`TreeError::IsADirectory`].
    pub async fn read(&self, path: &str) -> Result<Value, TreeError> {
        let path = file(Path::parse(path)?)?;
        let mut looks = self.looks_on_the_way(&path);
        looks.extend(self.look(Doubt::OwnDirectory, &path));
        let own = Range { keys: one(path.file(&self.root)), ..Range::default() };
        let (found, result) = self.read_all(&looks, own).await?;
        judge_files(&looks, &found)?;
        if is_found(&looks, &found, Doubt::OwnDirectory) {
            return Err(TreeError::IsADirectory(path.to_string()));
        }
        let pair = result.kvs.into_iter().next();
        pair.map(|pair| pair.value).ok_or_else(|| TreeError::Missing(path.to_string()))
    }

    /// Makes sure that a file does not exist.
    ///
    /// # Errors
    /// [`TreeError::NotADirectory`] if a file is on the way; [`TreeError::IsADirectory`].
    pub async fn remove(&self, path: &str) -> Result<(), TreeError> {
        let path = file(Path::parse(path)?)?;
        let mut looks = self.looks_on_the_way(&path);
        looks.extend(self.look(Doubt::OwnDirectory, &path));
        let none = looks.iter().map(|look| is_not_there(&look.key)).collect();
        let delete = DeleteRange { keys: one(path.file(&self.root)), prev_kv: false };
        self.change(&path, none, vec![Operation::DeleteRange(delete)], looks).await
    }

    /// Files that may lie where the path needs directories.
    fn looks_on_the_way(&self, path: &Path) -> Vec<Look> {
        let look = |path: Path| Look { doubt: Doubt::FileOnTheWay, key: path.file(&self.root), path };
        path.ancestors().map(look).collect()
    }

    /// A look at the path itself; the root directory has no key.
    fn look(&self, doubt: Doubt, path: &Path) -> Option<Look> {
        let key = match doubt {
            Doubt::OwnFile => path.file(&self.root),
            _ => path.directory(&self.root),
        };
        (!path.is_root()).then(|| Look { doubt, path: path.clone(), key })
    }

    /// Carries out operations if all comparisons hold, and the condition; else says why not.
    async fn change(
        &self,
        path: &Path,
        mut compare: Vec<Compare>,
        mut success: Vec<Operation>,
        mut looks: Vec<Look>,
    ) -> Result<(), TreeError> {
        let condition = self.look_at_condition();
        // Of a file that is not there no comparison of its contents holds: two transactions inside judge both cases.
        let is_split = self.condition.as_ref().is_some_and(|(_, contents)| contents.is_empty());
        if let (Some(look), Some((_, contents))) = (&condition, &self.condition) {
            let is_met = has_contents(&look.key, contents);
            match is_split {
                false => compare.push(is_met),
                true => {
                    let is_empty = Txn { compare: vec![is_met], success: success.clone(), failure: vec![] };
                    let failure = vec![Operation::Txn(is_empty)];
                    let is_missing = Txn { compare: vec![is_not_there(&look.key)], success, failure };
                    success = vec![Operation::Txn(is_missing)];
                }
            }
        }
        looks.extend(condition);
        let failure = looks.iter().map(read).collect();
        let response = self.store.txn(Txn { compare, success, failure }).await?;
        let Answer::Txn { succeeded, answers } = response.answer else { return Err(unfitting()) };
        if succeeded {
            return match (is_split && !is_carried_out(&answers), &self.condition) {
                (true, Some((at, _))) => Err(TreeError::ConditionNotMet(at.to_string())),
                _ => Ok(()),
            };
        }
        let found = found(answers)?;
        self.judge_condition(&looks, &found)?;
        judge_files(&looks, &found)?;
        if is_found(&looks, &found, Doubt::OwnDirectory) {
            return Err(TreeError::IsADirectory(path.to_string()));
        }
        match path.parent() {
            Some(parent) if !is_found(&looks, &found, Doubt::Parent) => {
                Err(TreeError::Missing(parent.to_string()))
            }
            _ => Err(unfitting()),
        }
    }

    fn look_at_condition(&self) -> Option<Look> {
        let (path, _) = self.condition.as_ref()?;
        Some(Look { doubt: Doubt::Condition, path: path.clone(), key: path.file(&self.root) })
    }

    /// Looks, and one range, all as of one moment.
    async fn read_all(
        &self,
        looks: &[Look],
        range: Range,
    ) -> Result<(Vec<RangeResult>, RangeResult), TreeError> {
        let condition = self.look_at_condition();
        let operations = looks.iter().chain(&condition).map(read).chain([Operation::Range(range)]);
        let txn = Txn { success: operations.collect(), ..Txn::default() };
        let response = self.store.txn(txn).await?;
        let Answer::Txn { answers, .. } = response.answer else { return Err(unfitting()) };
        let mut found = found(answers)?;
        let result = found.pop().ok_or_else(unfitting)?;
        if let Some(condition) = condition {
            let last = found.pop().ok_or_else(unfitting)?;
            self.judge_condition(&[condition], &[last])?;
        }
        Ok((found, result))
    }

    fn judge_condition(&self, looks: &[Look], found: &[RangeResult]) -> Result<(), TreeError> {
        let Some((at, contents)) = &self.condition else { return Ok(()) };
        let place = looks.iter().position(|look| look.doubt == Doubt::Condition);
        let range = place.and_then(|place| found.get(place)).ok_or_else(unfitting)?;
        let holds = match range.kvs.first() {
            Some(pair) => pair.value[..] == contents[..],
            None => contents.is_empty(),
        };
        if holds { Ok(()) } else { Err(TreeError::ConditionNotMet(at.to_string())) }
    }
}

/// The root directory is no file.
fn file(path: Path) -> Result<Path, TreeError> {
    if path.is_root() { Err(TreeError::IsADirectory(path.to_string())) } else { Ok(path) }
}

/// A file on the way, or at the path where it must not be.
fn judge_files(looks: &[Look], found: &[RangeResult]) -> Result<(), TreeError> {
    if found.len() != looks.len() {
        return Err(unfitting());
    }
    let is_file = |look: &Look| matches!(look.doubt, Doubt::FileOnTheWay | Doubt::OwnFile);
    match looks.iter().zip(found).find(|(look, range)| is_file(look) && !range.kvs.is_empty()) {
        Some((look, _)) => Err(TreeError::NotADirectory(look.path.to_string())),
        None => Ok(()),
    }
}

/// Whether one of the transactions inside has carried out the operations.
fn is_carried_out(answers: &[Answer]) -> bool {
    match answers {
        [Answer::Txn { succeeded: true, .. }] => true,
        [Answer::Txn { succeeded: false, answers }] => is_carried_out(answers),
        _ => false,
    }
}

fn is_found(looks: &[Look], found: &[RangeResult], doubt: Doubt) -> bool {
    looks.iter().zip(found).any(|(look, range)| look.doubt == doubt && !range.kvs.is_empty())
}

fn found(answers: Vec<Answer>) -> Result<Vec<RangeResult>, TreeError> {
    let range = |answer| match answer {
        Answer::Range(range) => Ok(range),
        _ => Err(unfitting()),
    };
    answers.into_iter().map(range).collect()
}

fn one(key: Vec<u8>) -> KeyRange {
    KeyRange { start: key, end: Vec::new() }
}

fn read(look: &Look) -> Operation {
    let keys_only = look.doubt != Doubt::Condition;
    Operation::Range(Range { keys: one(look.key.clone()), keys_only, ..Range::default() })
}

fn is_there(key: &[u8]) -> Compare {
    let target = CompareTarget::Version(0);
    Compare { keys: one(key.to_vec()), result: CompareResult::Greater, target }
}

fn is_not_there(key: &[u8]) -> Compare {
    Compare { keys: one(key.to_vec()), result: CompareResult::Equal, target: CompareTarget::Version(0) }
}

fn has_contents(key: &[u8], contents: &[u8]) -> Compare {
    let target = CompareTarget::Value(contents.to_vec());
    Compare { keys: one(key.to_vec()), result: CompareResult::Equal, target }
}

fn unfitting() -> TreeError {
    TreeError::Store(Error::Call(Failure {
        kind: Kind::Unknown,
        code: tonic::Code::Internal,
        message:
            "the answer does not fit the transaction; do other programs write below the root of the tree?"
                .to_string(),
        reason: None,
        endpoint: String::new(),
    }))
}
