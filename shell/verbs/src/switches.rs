//! Switches: the settings of `kattu serve` that can be tuned, as flags of verbs that start members themselves.
//!
//! Knows nothing of: what a setting does; members check what they are given.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use kattu_runtime::tuning::SETTINGS;

/// Flags of `kattu serve`, with their values, for all members that the verb starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switches(pub(crate) Vec<String>);

/// Those besides the settings: a name, whether it has a value, its help.
const OTHERS: [(&str, bool, &str); 3] = [
    (
        "protocol",
        true,
        "settings to begin with: raft, basic-raft (no optimisation), or as published: jraft, raftexample, zatt, logcabin",
    ),
    ("lab", false, "allow what only experiments have: the last flags of this list"),
    ("unsafe-no-fsync", false, "never wait for the disk: for experiments only"),
];

/// The heading of these flags in the help.
const HEADING: &str = "What all members are tuned to (kattu tune changes it while they run)";

impl Args for Switches {
    fn augment_args(command: Command) -> Command {
        let settings = SETTINGS.iter().map(|named| (named.name, true, named.meaning));
        let flag = |(name, has_value, help): (&'static str, bool, &'static str)| {
            let arg = Arg::new(name).long(name).help(help).help_heading(HEADING);
            match has_value {
                true => arg.value_name("VALUE"),
                false => arg.action(ArgAction::SetTrue),
            }
        };
        command.args(OTHERS.into_iter().chain(settings).map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Switches::augment_args(command)
    }
}

impl FromArgMatches for Switches {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Switches, clap::Error> {
        let settings = SETTINGS.iter().map(|named| (named.name, true));
        let all = OTHERS.into_iter().map(|(name, has_value, _)| (name, has_value)).chain(settings);
        let given = |(name, has_value): (&str, bool)| match has_value {
            true => matches.get_one::<String>(name).map(|value| format!("--{name}={value}")),
            false => matches.get_flag(name).then(|| format!("--{name}")),
        };
        Ok(Switches(all.filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Switches::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_passed_on_to_members_and_nothing_else_is() {
        let given = |args: &[&str]| {
            let command = Switches::augment_args(Command::new("kattu"));
            let matches = command.try_get_matches_from(std::iter::once(&"kattu").chain(args))?;
            Switches::from_arg_matches(&matches)
        };
        assert_eq!(given(&[]).expect("nothing"), Switches::default());
        let all = given(&["--batching", "off", "--lab", "--protocol=basic-raft", "--sync-delay=1ms"]);
        let expected = ["--protocol=basic-raft", "--lab", "--batching=off", "--sync-delay=1ms"];
        assert_eq!(all.expect("flags").0, expected);
        assert!(given(&["--batch=off"]).is_err());
    }
}
