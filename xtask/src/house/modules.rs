//! Modules: the module tree of each library and program, and the file to which a path leads.
//!
//! In:   the root of each library and program; `mod name;` leads from file to file, as in the compiler.
//! Out:  a tree of modules for each; a path in one module resolves to another module.
//! Rule: a path goes down modules as far as its words name them. At a word imported by a `use`, it continues from that
//!       `use`'s path: a path through a re-export leads to the file that has the item.
//! Knows nothing of: `*` in a `use` (it leads to the module before it), files of other packages.

use super::files::{File, Package, Part, attributes, marks_test};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Longer chains of re-exports are not followed.
const REEXPORTS_MAX: usize = 8;

/// A library or a program.
#[derive(Debug)]
pub struct Target {
    /// Index of its package.
    pub package: usize,
    /// Path of its root, in its package.
    pub root: String,
    /// Whether it is a library.
    pub is_library: bool,
    /// Its modules; the root is the first.
    pub modules: Vec<Module>,
}

/// A module: a file, or a part of one.
#[derive(Debug)]
pub struct Module {
    /// Index of the file that holds it.
    pub file: usize,
    /// Whether it, or a module around it, is declared `#[cfg(test)]`.
    pub is_test: bool,
    /// The module around it; the root has none.
    pub parent: Option<usize>,
    /// Modules in it, by name.
    pub children: BTreeMap<String, usize>,
    /// Names that a `use` imports: name → path.
    pub imports: BTreeMap<String, Vec<String>>,
}

impl Target {
    /// All libraries and programs, sorted as their packages are.
    pub fn all(files: &[File], packages: &[Package]) -> Vec<Target> {
        let places: HashMap<&str, usize> =
            files.iter().enumerate().map(|(place, file)| (file.path.as_str(), place)).collect();
        let mut targets = Vec::new();
        for (place, file) in files.iter().enumerate() {
            let folder = &packages[file.package].folder;
            let root = file.path.strip_prefix(folder.as_str()).unwrap_or(&file.path).trim_start_matches('/');
            if file.part != Part::Source || !is_root(root) {
                continue;
            }
            let mut target = Target {
                package: file.package,
                root: root.to_string(),
                is_library: root == "src/lib.rs",
                modules: Vec::new(),
            };
            let walk = Walk { files, places: &places, package: file.package };
            let module = target.add(place, None, false);
            walk.fill(&mut target, module, &file.tree.items, folder_of(&file.path));
            targets.push(target);
        }
        targets
    }

    /// Files of all modules, sorted.
    pub fn files(&self) -> BTreeSet<usize> {
        self.modules.iter().map(|module| module.file).collect()
    }

    /// Files that are declared as tests.
    pub fn test_files(&self) -> Vec<usize> {
        let modules = self.modules.iter().filter(|module| module.is_test && self.is_own_file(module));
        modules.map(|module| module.file).collect()
    }

    /// Whether the module is the outermost of its file.
    pub fn is_own_file(&self, module: &Module) -> bool {
        module.parent.is_none_or(|parent| self.modules[parent].file != module.file)
    }

    /// The module to which a path in module `from` leads; `None` if it leads out of the crate.
    pub fn resolve(&self, from: usize, path: &[String]) -> Option<usize> {
        self.follow(from, path, REEXPORTS_MAX).map(|(module, _)| module)
    }

    /// The same, and whether all words of the path were modules.
    fn follow(&self, from: usize, path: &[String], reexports: usize) -> Option<(usize, bool)> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Some((0, true)),
            "self" => Some((from, true)),
            "super" => Some((self.modules[from].parent?, true)),
            name => self.enter(from, name, reexports),
        };
        let (mut at, mut is_module) = start?;
        for name in rest {
            if !is_module {
                break;
            }
            match name.as_str() {
                "super" => at = self.modules[at].parent?,
                name => match self.enter(at, name, reexports) {
                    Some(next) => (at, is_module) = next,
                    // An item of the module itself, or a name from another crate.
                    None => is_module = false,
                },
            }
        }
        Some((at, is_module))
    }

    /// One step down, or through a `use`.
    fn enter(&self, at: usize, name: &str, reexports: usize) -> Option<(usize, bool)> {
        let module = &self.modules[at];
        if let Some(child) = module.children.get(name) {
            return Some((*child, true));
        }
        let path = module.imports.get(name)?;
        // `use name::…` that imports `name` itself would recurse without end.
        self.follow(at, path, reexports.checked_sub(1)?)
    }

    fn add(&mut self, file: usize, parent: Option<usize>, is_test: bool) -> usize {
        let (children, imports) = (BTreeMap::new(), BTreeMap::new());
        self.modules.push(Module { file, is_test, parent, children, imports });
        self.modules.len() - 1
    }
}

/// Whether cargo makes a library or a program of it. All programs outside `src/` are a single file here.
fn is_root(path: &str) -> bool {
    let of_folder = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| !rest.contains('/'));
    ["src/lib.rs", "src/main.rs"].contains(&path) || of_folder("src/bin/") || of_folder("targets/")
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Visits the files of one package.
struct Walk<'t> {
    files: &'t [File],
    places: &'t HashMap<&'t str, usize>,
    package: usize,
}

impl Walk<'_> {
    /// Adds the declarations among these items of a module; files of its modules lie in `folder`.
    fn fill(&self, target: &mut Target, module: usize, items: &[syn::Item], folder: &str) {
        for item in items {
            let marked = attributes(item).iter().any(marks_test);
            let is_test = marked || target.modules[module].is_test;
            match item {
                syn::Item::Use(item) if !marked => {
                    for (path, name) in uses(&item.tree) {
                        target.modules[module].imports.entry(name).or_insert(path);
                    }
                }
                syn::Item::Mod(item) => {
                    let name = item.ident.to_string();
                    let inner = format!("{folder}/{name}");
                    if let Some((_, items)) = &item.content {
                        let child = target.add(target.modules[module].file, Some(module), is_test);
                        target.modules[module].children.insert(name, child);
                        self.fill(target, child, items, &inner);
                    } else if let Some(file) = self.file_of(item, folder) {
                        let child = target.add(file, Some(module), is_test);
                        target.modules[module].children.insert(name, child);
                        let path = &self.files[file].path;
                        let inner = if path.ends_with("/mod.rs") { folder_of(path) } else { &inner };
                        self.fill(target, child, &self.files[file].tree.items, inner);
                    }
                }
                _ => {}
            }
        }
    }

    /// The file of `mod name;`, if it is one of this package; files named by `#[path]` are elsewhere in this workspace.
    fn file_of(&self, item: &syn::ItemMod, folder: &str) -> Option<usize> {
        if item.attrs.iter().any(|attribute| attribute.path().is_ident("path")) {
            return None;
        }
        let paths = [format!("{folder}/{}.rs", item.ident), format!("{folder}/{}/mod.rs", item.ident)];
        let file = paths.iter().find_map(|path| self.places.get(path.as_str()).copied());
        file.filter(|file| self.files[*file].package == self.package)
    }
}

/// Each path of a `use`, with the name that it imports; `*` stands for itself.
pub fn uses(tree: &syn::UseTree) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    spread(tree, &[], &mut found);
    found
}

fn spread(tree: &syn::UseTree, before: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let and = |name: String| {
        let is_self = name == "self" && !before.is_empty();
        before.iter().cloned().chain((!is_self).then_some(name)).collect::<Vec<_>>()
    };
    match tree {
        syn::UseTree::Path(path) => spread(&path.tree, &and(path.ident.to_string()), found),
        syn::UseTree::Name(name) => {
            let path = and(name.ident.to_string());
            let last = path.last().cloned().unwrap_or_default();
            found.push((path, last));
        }
        syn::UseTree::Rename(rename) => {
            found.push((and(rename.ident.to_string()), rename.rename.to_string()))
        }
        syn::UseTree::Glob(_) => found.push((and("*".to_string()), "*".to_string())),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| spread(tree, before, found)),
    }
}

/// Small crates for tests.
#[cfg(test)]
pub mod testing {
    use super::*;

    /// Files of one package in the folder `a`.
    pub fn files(texts: &[(&str, &str)]) -> (Vec<File>, Vec<Target>) {
        let read = |(path, text): &(&str, &str)| {
            File::parse(&format!("a/{path}"), 0, Part::Source, text.to_string()).expect("Rust")
        };
        let files: Vec<File> = texts.iter().map(read).collect();
        let package = Package { name: "a".to_string(), folder: "a".to_string() };
        let targets = Target::all(&files, &[package]);
        (files, targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(path: &str) -> Vec<String> {
        path.split("::").map(str::to_string).collect()
    }

    #[test]
    fn modules_are_found_as_the_compiler_finds_them() {
        let (files, targets) = testing::files(&[
            ("src/bin/tool.rs", "mod helper;"),
            ("src/bin/helper/mod.rs", "mod deep;"),
            ("src/bin/helper/deep.rs", ""),
            ("src/lib.rs", "pub mod b;\nmod inline { mod c; }\n#[cfg(test)]\nmod tests;"),
            ("src/b.rs", "mod d;"),
            ("src/b/d.rs", ""),
            ("src/inline/c.rs", ""),
            ("src/tests.rs", "mod more;"),
            ("src/tests/more.rs", ""),
            ("src/undeclared.rs", ""),
        ]);
        let paths =
            |places: Vec<usize>| -> Vec<&str> { places.iter().map(|&i| files[i].path.as_str()).collect() };
        // `helper/mod.rs` is a folder of `bin/`, and no program.
        let roots: Vec<_> = targets.iter().map(|target| target.root.as_str()).collect();
        assert_eq!(roots, ["src/bin/tool.rs", "src/lib.rs"]);
        let tool = paths(targets[0].files().into_iter().collect());
        assert_eq!(tool, ["a/src/bin/tool.rs", "a/src/bin/helper/mod.rs", "a/src/bin/helper/deep.rs"]);
        assert_eq!(targets[1].files().len(), 6);
        assert_eq!(paths(targets[1].test_files()), ["a/src/tests.rs", "a/src/tests/more.rs"]);
    }

    #[test]
    fn a_path_leads_to_the_file_that_has_the_item() {
        let (files, targets) = testing::files(&[
            (
                "src/lib.rs",
                "pub mod b;\nmod c;\npub use c::Item;\npub use b::{d, Other as Renamed};\nuse std::fmt;",
            ),
            ("src/b.rs", "pub mod d;\nuse super::b::d::Far;"),
            ("src/b/d.rs", "mod inner { }"),
            ("src/c.rs", ""),
        ]);
        let target = &targets[0];
        let place =
            |name: &str| files.iter().position(|file| file.path == format!("a/src/{name}")).expect("there");
        let module = |name: &str| {
            let own = |module: &Module| module.file == place(name) && target.is_own_file(module);
            target.modules.iter().position(own).expect("a module")
        };
        let cases = [
            ("b.rs", "crate::c::Item", Some("c.rs")),
            ("b.rs", "crate::Item::new", Some("c.rs")),
            ("b.rs", "super::Renamed", Some("b.rs")),
            ("b.rs", "crate::d::x", Some("b/d.rs")),
            ("b/d.rs", "super::super::c", Some("c.rs")),
            ("b/d.rs", "super::Far", Some("b/d.rs")),
            ("b/d.rs", "self::inner::x", Some("b/d.rs")),
            ("b.rs", "crate::fmt::Debug", Some("lib.rs")),
            ("b.rs", "d::x", Some("b/d.rs")),
            ("b.rs", "std::fmt", None),
            ("lib.rs", "super::x", None),
        ];
        for (from, path, wanted) in cases {
            let found = target.resolve(module(from), &words(path)).map(|module| target.modules[module].file);
            assert_eq!(found, wanted.map(place), "{path} in {from}");
        }
    }

    #[test]
    fn a_use_is_spread_into_its_paths() {
        let item: syn::ItemUse = syn::parse_str("use crate::{a::{self, B as C}, d::*, e};").expect("a use");
        let found: Vec<_> =
            uses(&item.tree).into_iter().map(|(path, name)| (path.join("::"), name)).collect();
        let wanted = [("crate::a", "a"), ("crate::a::B", "C"), ("crate::d::*", "*"), ("crate::e", "e")];
        assert_eq!(found, wanted.map(|(path, name)| (path.to_string(), name.to_string())));
    }
}
