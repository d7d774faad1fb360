//! Certificates for benchmarks: one for all hosts named, one for clients, and one of their authority.
//!
//! Knows nothing of: servers, benchmarks.

use kattu_rig::authority::Authority;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((folder, hosts)) = words.split_first().filter(|(_, hosts)| !hosts.is_empty()) else {
        eprintln!(
            "certificates FOLDER HOST...: bench.ca.crt, bench.server.{{crt,key}}, bench.client.{{crt,key}}"
        );
        return ExitCode::from(2);
    };
    let folder = PathBuf::from(folder);
    if let Err(error) = std::fs::create_dir_all(&folder) {
        eprintln!("{}: {error}", folder.display());
        return ExitCode::FAILURE;
    }
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let authority = Authority::new(&folder, "bench");
    let _ = (authority.sign("server", &hosts), authority.sign("client", &["client"]));
    ExitCode::SUCCESS
}
