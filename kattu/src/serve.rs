//! serve: one member, with etcd's flags.
//!
//! Knows nothing of: what flags mean.

use crate::cli;
use crate::ended::{Ended, Outcome};
use crate::output;
use kattu_server::config::{self, Command};
use kattu_server::serve;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::ffi::OsString;
use std::io::Write;

/// Runs one member until SIGTERM or SIGINT.
pub fn run(args: &[OsString]) -> Outcome {
    let args: Vec<String> = args
        .iter()
        .map(|arg| {
            arg.clone().into_string().map_err(|arg| Ended::usage(format!("{} is not UTF-8", arg.display())))
        })
        .collect::<Result<_, _>>()?;
    let (config, warnings) = match config::load(&args).map_err(Ended::usage)? {
        Command::Help => return output::print(config::flags::help().as_bytes()),
        Command::Version => return output::print(cli::version().as_bytes()),
        Command::Serve(config, warnings) => (*config, warnings),
    };
    for line in warnings {
        let _ = writeln!(std::io::stderr(), "kattu: warning: {line}");
    }
    prepare();
    let stop = serve::stop_on_signal().map_err(Ended::failed)?;
    serve::run(config, stop, || {}).map_err(ended)
}

/// A server's failure by the command's table.
pub fn ended(error: serve::ServeError) -> Ended {
    Ended::with_code(error.exit_code(), error)
}

/// What a process with members in it begins with: every client is an open file, and the soft limit is often 1,024; free
/// memory goes back to the system beside the work (without a thread for it: in the middle of it, as anywhere).
pub fn prepare() {
    let _ = kattu_runtime::memory::give_back_beside();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
