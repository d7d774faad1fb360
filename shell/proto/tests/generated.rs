//! `src/generated/` is what the files in `proto/` give, byte for byte. Needs no protobuf compiler on the machine.
//!
//! `KATTU_UPDATE=1 cargo test -p kattu-proto --test generated` writes it anew, after a change of a `.proto` file or of the
//! generator's version.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn what_is_checked_in_is_what_is_generated() {
    let fresh = generate(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let kept = Path::new("src/generated");
    if std::env::var_os("KATTU_UPDATE").is_some() {
        files(kept).into_keys().for_each(|name| fs::remove_file(kept.join(name)).expect("an old file goes"));
        fresh.iter().for_each(|(name, text)| fs::write(kept.join(name), text).expect("a file is written"));
    }
    assert!(
        files(kept) == fresh,
        "src/generated is old: KATTU_UPDATE=1 cargo test -p kattu-proto --test generated"
    );
}

/// Every file that the generator makes of `proto/`, by its name.
fn generate(out: &Path) -> BTreeMap<String, String> {
    let out = out.join("generated");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).expect("a folder for what is generated");
    let entries = fs::read_dir("proto").expect("the .proto files");
    let mut protos: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    protos.sort();
    let descriptors = protox::compile(&protos, ["proto"]).expect("the .proto files are right");
    // A service method without an implementation answers Unimplemented, never hangs, never succeeds falsely.
    let generator = tonic_prost_build::configure().generate_default_stubs(true).out_dir(&out);
    generator.compile_fds(descriptors).expect("types, clients and traits");
    files(&out)
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries =
        fs::read_dir(folder).expect("a folder of files").map(|entry| entry.expect("an entry").path());
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("text"))
    };
    entries.map(read).collect()
}
