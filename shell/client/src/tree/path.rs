//! Path of a node, and the keys at which nodes lie.
//!
//! ```text
//!  key of a file       root ┼ depth, two digits ┼ path              /tree/02/home/motd
//!  key of a directory  root ┼ depth, two digits ┼ path ┼ "/"        /tree/02/home/ann/
//! ```
//! Depth is the number of names in the path. Nodes of one depth below one directory so lie side by side: a list is one range,
//! and what is in a directory is one range for each depth. The directory `/` has no key: it is always there.
//! Knows nothing of: transactions, the contents of files.

use kattu_kv::api::KeyRange;
use std::fmt;

/// Most names in a path. A transaction has at most 128 operations along its nesting, and a directory with its ancestors is made
/// by one, below two levels of conditions.
pub const DEPTH_MAX: usize = 40;

/// Text that is not a path, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    text: String,
    why: &'static str,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path {:?}: {}", self.text, self.why)
    }
}

impl std::error::Error for PathError {}

/// An absolute path: `/` alone, or a `/` and a name for each step. A name is any text without `/` and NUL, and not empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Path {
    /// Without the last `/`: of the root directory, nothing.
    text: String,
}

impl Path {
    pub(crate) fn parse(text: &str) -> Result<Path, PathError> {
        let wrong = |why| Err(PathError { text: text.to_string(), why });
        let Some(names) = text.strip_prefix('/') else {
            return wrong("it must begin with /");
        };
        if names.is_empty() {
            return Ok(Path { text: String::new() });
        }
        if names.split('/').any(str::is_empty) {
            return wrong("a name in it is empty");
        }
        if names.contains('\0') {
            return wrong("a name in it contains NUL");
        }
        if DEPTH_MAX < names.split('/').count() {
            return wrong("it has more than 40 names");
        }
        Ok(Path { text: text.to_string() })
    }

    pub(crate) fn is_root(&self) -> bool {
        self.text.is_empty()
    }

    /// The number of its names.
    fn depth(&self) -> usize {
        self.text.matches('/').count()
    }

    /// The directories on the way to it, without the root directory, from the first on.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = Path> {
        let ends = self.text.match_indices('/').map(|(at, _)| at).filter(|at| 0 < *at);
        ends.map(|end| Path { text: self.text[..end].to_string() })
    }

    /// The directory in which it lies; `None` in the root directory, and of it.
    pub(crate) fn parent(&self) -> Option<Path> {
        self.ancestors().last()
    }

    /// Where it lies as a file.
    pub(crate) fn file(&self, root: &str) -> Vec<u8> {
        format!("{root}{:02}{}", self.depth(), self.text).into_bytes()
    }

    /// Where it lies as a directory.
    pub(crate) fn directory(&self, root: &str) -> Vec<u8> {
        format!("{root}{:02}{}/", self.depth(), self.text).into_bytes()
    }

    /// The keys of the nodes in it as a directory, so many steps down, from 1.
    pub(crate) fn inside(&self, root: &str, steps: usize) -> KeyRange {
        let at = format!("{root}{:02}{}", self.depth() + steps, self.text);
        KeyRange { start: format!("{at}/").into_bytes(), end: format!("{at}0").into_bytes() } // 0 follows / in ASCII
    }

    /// How many steps down there may be nodes in it.
    pub(crate) fn steps(&self) -> std::ops::RangeInclusive<usize> {
        1..=DEPTH_MAX - self.depth()
    }

    /// The name of a node in it, by the node's key: of a directory with a `/` behind it.
    pub(crate) fn name_of<'k>(&self, root: &str, key: &'k [u8]) -> Option<&'k str> {
        std::str::from_utf8(key).ok()?.get(root.len() + 2 + self.text.len() + 1..)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "/" } else { &self.text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_each_name_in_it_is_a_name() {
        for text in ["/", "/a", "/a/b", "/ä b/.../..", "/a/\n"] {
            assert_eq!(Path::parse(text).map(|path| path.to_string()), Ok(text.to_string()));
        }
        for (text, why) in [
            ("", "begin with /"),
            ("a/b", "begin with /"),
            ("//", "empty"),
            ("/a//b", "empty"),
            ("/a/", "empty"),
            ("/a\0", "NUL"),
            (&*"/a".repeat(DEPTH_MAX + 1), "more than 40"),
        ] {
            let error = Path::parse(text).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(Path::parse(&"/a".repeat(DEPTH_MAX)).is_ok());
    }

    #[test]
    fn keys_of_one_depth_below_one_directory_lie_side_by_side() {
        let path = |text| Path::parse(text).expect(text);
        let home = path("/home/ann");
        assert_eq!(home.file("/tree/"), b"/tree/02/home/ann");
        assert_eq!(home.directory("/tree/"), b"/tree/02/home/ann/");
        assert_eq!(home.ancestors().map(|path| path.to_string()).collect::<Vec<_>>(), ["/home"]);
        assert_eq!(
            (home.parent(), path("/home").parent(), path("/").parent()),
            (Some(path("/home")), None, None)
        );
        let is_in = |range: &KeyRange, key: Vec<u8>| range.start <= key && key < range.end;
        let inside = home.inside("/tree/", 1);
        for (other, lies_in) in [
            ("/home/ann/a", true),
            ("/home/ann/\u{10ffff}", true),
            ("/home/ann/ ", true),
            ("/home/annie", false),
            ("/home/ann0", false),
            ("/home/ann", false),
            ("/home/ann0/a", false),
            ("/home/ann./a", false),
            ("/home/ann/a/b", false),
        ] {
            assert_eq!(is_in(&inside, path(other).file("/tree/")), lies_in, "{other}");
            assert_eq!(is_in(&inside, path(other).directory("/tree/")), lies_in, "{other}");
        }
        assert!(is_in(&home.inside("/tree/", 2), path("/home/ann/a/b").file("/tree/")));
        assert!(is_in(&path("/").inside("/tree/", 1), path("/home").directory("/tree/")));
        assert_eq!(home.name_of("/tree/", &path("/home/ann/a").directory("/tree/")), Some("a/"));
        assert_eq!(path("/").name_of("/tree/", &path("/home").file("/tree/")), Some("home"));
    }
}
