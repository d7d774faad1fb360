//! The whole code base: everything that is counted.
//!
//! In:   existing files listed by `git ls-files`.
//! Out:  every package, every Rust file, every library and program with its modules, every document.
//! Rule: generated code is left out; every other Rust file belongs to the innermost package around it.
//! Knows nothing of: counts.

use super::files::{File, Package, Part, ROOMS};
use super::modules::Target;
use crate::shell::{self, Failure};

/// Generated code.
pub const GENERATED: &str = "shell/proto/src/generated/";

/// Everything that is counted.
pub struct House {
    /// Packages, sorted by first folder, then by path.
    pub packages: Vec<Package>,
    /// Rust files, sorted by package.
    pub files: Vec<File>,
    /// Libraries and programs of all packages.
    pub targets: Vec<Target>,
    /// Path and text of each document.
    pub documents: Vec<(String, String)>,
}

impl House {
    /// Reads everything that git lists.
    pub fn read() -> Result<House, Failure> {
        let root = shell::root();
        let named = shell::files_in_git(&[])?;
        let paths: Vec<&str> =
            named.iter().map(String::as_str).filter(|path| !path.starts_with(GENERATED)).collect();
        let read = |path: &str| {
            std::fs::read_to_string(root.join(path)).map_err(|error| Failure::new(format!("{path}: {error}")))
        };

        let mut packages = Vec::new();
        for path in paths.iter().filter(|path| path.ends_with("Cargo.toml")) {
            packages.extend(package(path, &read(path)?)?);
        }
        packages.sort_by_key(|package| {
            (ROOMS.iter().position(|room| *room == package.room()), package.folder.clone())
        });
        let mut files = Vec::new();
        for path in paths.iter().filter(|path| path.ends_with(".rs")) {
            let Some((package, part)) = place(&packages, path) else {
                return Err(Failure::new(format!("{path}: no package has this file")));
            };
            files.push(File::parse(path, package, part, read(path)?)?);
        }
        files.sort_by(|a, b| (a.package, &a.path).cmp(&(b.package, &b.path)));
        let mut documents = Vec::new();
        for path in paths.iter().filter(|path| path.ends_with(".md")) {
            documents.push((path.to_string(), read(path)?));
        }

        let targets = Target::all(&files, &packages);
        for file in targets.iter().flat_map(Target::test_files) {
            files[file].is_test = true;
        }
        Ok(House { packages, files, targets, documents })
    }

    /// The first folder of a file's path.
    pub fn room(&self, file: &File) -> &str {
        self.packages[file.package].room()
    }
}

/// The package of a manifest; `None` for a mere workspace.
fn package(path: &str, text: &str) -> Result<Option<Package>, Failure> {
    let table: toml::Table = text.parse().map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let name = table.get("package").and_then(|package| package.get("name")?.as_str());
    let folder = path.strip_suffix("/Cargo.toml").unwrap_or("");
    Ok(name.map(|name| Package { name: name.to_string(), folder: folder.to_string() }))
}

fn place(packages: &[Package], path: &str) -> Option<(usize, Part)> {
    let inside = |package: &Package| path.strip_prefix(&package.folder)?.strip_prefix('/');
    let package = (0..packages.len())
        .filter(|&i| inside(&packages[i]).is_some())
        .max_by_key(|&i| packages[i].folder.len())?;
    let part = match inside(&packages[package])?.split('/').next()? {
        "tests" => Part::Tests,
        "examples" | "benches" => Part::Examples,
        _ => Part::Source,
    };
    Some((package, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_package_around_it_and_its_folder_says_which_part_it_is() {
        let package = |folder: &str| Package { name: folder.to_string(), folder: folder.to_string() };
        let packages = [package("core/kv"), package("core/kv/inner"), package("xtask")];
        let cases = [
            ("core/kv/src/lib.rs", Some((0, Part::Source))),
            ("core/kv/src/tests/a.rs", Some((0, Part::Source))),
            ("core/kv/tests/common/mod.rs", Some((0, Part::Tests))),
            ("core/kv/examples/cost.rs", Some((0, Part::Examples))),
            ("core/kv/inner/targets/a.rs", Some((1, Part::Source))),
            ("core/kvs/src/lib.rs", None),
        ];
        for (path, wanted) in cases {
            assert_eq!(place(&packages, path), wanted, "{path}");
        }
    }
}
