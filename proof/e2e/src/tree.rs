//! A tree of files made from a seed, as a user might import it.
//!
//! Knows nothing of: importing.

use kattu_random::Random;
use std::collections::BTreeMap;
use std::path::Path;

/// Larger than any request may be.
pub(crate) const OVERSIZE_BYTES: usize = 3 << 20;

/// The files that were made: path below the root → contents; and those too large to be stored.
#[derive(Debug, Default)]
pub struct Tree {
    /// Path → contents.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Paths of files beyond any request's limit.
    pub oversize: Vec<String>,
}

/// Makes `count` files under `root`: mostly small texts in nested folders, among them empty ones, binary ones, some of
/// 1 MiB, two that are too large, and names with spaces and letters beyond ASCII.
pub fn make(root: &Path, seed: u64, count: usize) -> Tree {
    let mut random = Random::new(seed);
    let mut tree = Tree::default();
    for i in 0..count {
        let folder = format!("d{}/e{}", random.below(9), random.below(7));
        let name = match i % 97 {
            0 => format!("{folder}/a name with spaces {i}"),
            1 => format!("{folder}/நாள்-{i}.txt"),
            _ => format!("{folder}/file-{i}"),
        };
        let contents = match i % 50 {
            0 => Vec::new(),
            1..6 => {
                let length = 1 + random.below(5_000);
                bytes(&mut random, length)
            }
            6 if i % 500 == 6 => bytes(&mut random, 1 << 20),
            _ => format!("file {i} of seed {seed}\n").repeat(1 + random.below(12)).into_bytes(),
        };
        write(root, &name, &contents);
        tree.files.insert(name, contents);
    }
    for i in 0..2 {
        let name = format!("d0/too-large-{i}");
        write(root, &name, &vec![b'L'; OVERSIZE_BYTES]);
        tree.oversize.push(name);
    }
    tree
}

fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| (random.number() >> 32) as u8).collect()
}

fn write(root: &Path, name: &str, contents: &[u8]) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("the tree can be made");
    std::fs::write(path, contents).expect("the tree can be written");
}
