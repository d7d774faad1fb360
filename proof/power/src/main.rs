//! `cargo xtask power`: power loss below a real file system.
//!
//! Knows nothing of: disks, members; the library runs the trials.

use kattu_power::{campaign, control, mount_namespace};
use kattu_rig::target::Target;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
cargo xtask power [--trials N (5)] [--seed S] [--most T] [--target kattu|etcd]
cargo xtask power --control [--trials N (3)] [--seed S]
cargo xtask power --files
cargo xtask power --hold

Clusters of the release binary, each member on a disk of its own: ext4, a loop device, a file served through FUSE. The
power goes, what was not flushed is dropped, reordered or torn, the rest is mounted again and judged. Trial k has the seed
S + k; none begins after T seconds. --control runs the same on disks that lie: every trial must be found broken.
--files tries the rig on two files, without any member. --hold keeps one disk in the middle of a sync until standard
input ends: to try what is left of a rig that is killed, nothing.";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Campaign,
    Control,
    Files,
    Hold,
}

fn main() -> ExitCode {
    let (mut trials, mut seed, mut most, mut target) = (None, None, None, Target::Kattu);
    let mut verb = Verb::Campaign;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value =
            if ["--control", "--files", "--hold"].contains(&word.as_str()) { None } else { words.next() };
        let number = value.as_ref().and_then(|text| text.parse::<u64>().ok());
        match (word.as_str(), number, value.as_deref()) {
            ("--control", ..) => verb = Verb::Control,
            ("--files", ..) => verb = Verb::Files,
            ("--hold", ..) => verb = Verb::Hold,
            ("--trials", Some(number), _) if 0 < number => trials = Some(number),
            ("--seed", Some(number), _) => seed = Some(number),
            ("--most", Some(number), _) => most = Some(Duration::from_secs(number)),
            ("--target", _, Some("kattu")) => target = Target::Kattu,
            ("--target", _, Some("etcd")) => target = Target::Etcd,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if let Some(why) = mount_namespace::missing() {
        println!("SKIPPED power: {why}");
        return ExitCode::SUCCESS;
    }
    if matches!(verb, Verb::Campaign | Verb::Control)
        && let Err(why) = target.program()
    {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    if !mount_namespace::is_mortal() {
        mount_namespace::sweep();
        let error = mount_namespace::become_mortal();
        eprintln!("setpriv cannot be run: {error}");
        return ExitCode::FAILURE;
    }
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        now.as_nanos() as u64 % 1_000_000_000
    });
    let code = match verb {
        Verb::Files => control::files(),
        Verb::Hold => control::hold(),
        Verb::Control => control::control(trials.unwrap_or(3), seed, target),
        Verb::Campaign => campaign::campaign(trials.unwrap_or(5), seed, target, most),
    };
    mount_namespace::leave();
    code
}
