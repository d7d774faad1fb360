//! serve: one member, with etcd's flags.
//!
//! Knows nothing of: the meaning of flags.

use crate::cli;
use crate::output;
use kattu_output::{Ended, Outcome};
use kattu_runtime::report;
use kattu_server::config::{self, Command};
use kattu_server::serve;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::ffi::OsString;

/// Runs one member until SIGTERM or SIGINT.
pub(crate) fn run(args: &[OsString]) -> Outcome {
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
    report::start(config.log.clone()).map_err(|error| Ended::usage(format!("--log-outputs: {error}")))?;
    for line in warnings {
        report::warn(format_args!("{line}"));
    }
    prepare();
    let stop = serve::stop_on_signal().map_err(Ended::failed)?;
    let served = serve::run(config, stop, Box::new(|| {})).map_err(|error| ended(&error));
    report::flush();
    served
}

/// A server's failure by the command's table. It is logged like all lines of the member: the reader of standard error
/// may have stopped reading long ago, and must not keep the process from its end.
pub(crate) fn ended(error: &serve::ServeError) -> Ended {
    report::error(format_args!("{error}"));
    Ended::with_code(error.exit_code(), "")
}

/// Prepares a process that runs members. The limit of open files is raised: every client is one, and the soft limit is
/// often 1,024. A thread returns free memory to the system; if it cannot be started, memory is returned in the midst of
/// the work.
pub(crate) fn prepare() {
    let _ = kattu_runtime::memory::give_back_beside();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
