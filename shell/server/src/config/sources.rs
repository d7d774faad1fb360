//! Where settings come from: flags before `KATTU_*` before `ETCD_*` before a TOML file before those of a protocol.
//!
//! Out:   for each flag that was given, its text and its origin, so that every error names the place to fix.
//! Rule:  an unknown name is an error that lists the nearest names, except for `ETCD_*`, which other programs may use;
//!        an empty variable counts as absent, as in etcd.
//! Knows nothing of: the meaning of values.

use super::ConfigError;
use super::flags::{self, Fate, Flag, Shape};
use super::presets;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Variables that other verbs of the command read, or the project's own tests.
const OTHERS: [&str; 18] = [
    "KATTU_CACERT",
    "KATTU_CERT",
    "KATTU_KEY",
    "KATTU_ENDPOINTS",
    "KATTU_TIMEOUT",
    "KATTU_BIN",
    "KATTU_TOOLS",
    "KATTU_SEED",
    "KATTU_SEEDS",
    "KATTU_UPDATE",
    "KATTU_KILLS",
    "KATTU_KEEP",
    "KATTU_ETCD",
    "KATTU_BUGS",
    "KATTU_IMAGES",
    "KATTU_IMAGES_SEED",
    "KATTU_TRUTH_STORIES",
    "KATTU_TRUTH_SEED",
];

/// Whether a variable is not a setting of `serve`: another verb reads it, or Kubernetes sets it because a service is
/// called "kattu".
fn is_of_others(variable: &str) -> bool {
    OTHERS.contains(&variable)
        || variable == "KATTU_PORT"
        || variable.starts_with("KATTU_PORT_")
        || variable.starts_with("KATTU_SERVICE_")
}

/// Where a setting was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Variable(String),
    File { path: PathBuf, line: usize },
}

/// One setting as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) flag: &'static str,
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

impl Setting {
    /// An error about this setting, which names its origin.
    pub(crate) fn wrong(&self, what: impl fmt::Display) -> ConfigError {
        let flag = self.flag;
        ConfigError(match &self.origin {
            Origin::Flag => format!("--{flag}: {what}"),
            Origin::Variable(name) => format!("{name} (--{flag}): {what}"),
            Origin::File { path, line } => format!("{}:{line}: {flag}: {what}", path.display()),
        })
    }
}

/// All settings that were given, by flag.
pub(crate) type Settings = BTreeMap<&'static str, Setting>;

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Settings(Settings),
    Help,
    Version,
}

/// Merges all sources; the one with precedence wins.
pub(crate) fn gather(
    args: &[String],
    variables: &[(String, String)],
    read_file: &dyn Fn(&Path) -> std::io::Result<String>,
) -> Result<Asked, ConfigError> {
    let mut flags = match from_args(args)? {
        Asked::Settings(settings) => settings,
        asked => return Ok(asked),
    };
    let mut settings = Settings::new();
    let variables = from_variables(variables)?;
    let file = flags.get("config").or_else(|| variables.get("config")).cloned();
    if let Some(setting) = file {
        let path = PathBuf::from(&setting.text);
        let text = read_file(&path)
            .map_err(|error| setting.wrong(format_args!("cannot read {}: {error}", path.display())))?;
        settings = from_toml(&path, &text)?;
    }
    settings.extend(variables);
    settings.append(&mut flags);
    if let Some(protocol) = settings.get("protocol") {
        let (path, text) = presets::find(&protocol.text).map_err(|what| protocol.wrong(what))?;
        let mut all = from_toml(&path, text)?;
        all.append(&mut settings);
        settings = all;
    }
    Ok(Asked::Settings(settings))
}

fn from_args(args: &[String]) -> Result<Asked, ConfigError> {
    let mut settings = Settings::new();
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        // Go's flag package, and so etcd, takes one dash or two.
        let Some(name) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            return Err(ConfigError(format!("unexpected argument {arg:?}; every setting is a --flag")));
        };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (name, None),
        };
        match name {
            "help" | "h" => return Ok(Asked::Help),
            "version" => return Ok(Asked::Version),
            _ => {}
        }
        let flag = known(name).map_err(|near| ConfigError(format!("unknown flag --{name}{near}")))?;
        let text = match (value, flag.shape) {
            (Some(value), _) => value,
            (None, Shape::Switch) => "true".to_string(),
            (None, _) => match args.next_if(|next| !is_flag(next)) {
                Some(value) => value.clone(),
                None => return Err(ConfigError(format!("--{name} needs a value"))),
            },
        };
        settings.insert(flag.name, Setting { flag: flag.name, text, origin: Origin::Flag });
    }
    Ok(Asked::Settings(settings))
}

/// Whether an argument is a known flag rather than a value that begins with a dash.
fn is_flag(arg: &str) -> bool {
    let name = arg.strip_prefix("--").unwrap_or("");
    flags::find(name.split('=').next().unwrap_or("")).is_some()
}

fn known(name: &str) -> Result<&'static Flag, String> {
    flags::find(name).ok_or_else(|| match flags::near(name).as_slice() {
        [] => "; see kattu serve --help".to_string(),
        names => format!("; did you mean --{}?", names.join(" or --")),
    })
}

fn from_variables(variables: &[(String, String)]) -> Result<Settings, ConfigError> {
    let mut settings = Settings::new();
    for prefix in ["ETCD_", "KATTU_"] {
        for (variable, text) in variables {
            let Some(name) = variable.strip_prefix(prefix) else { continue };
            if is_of_others(variable) || text.is_empty() {
                continue;
            }
            let name = name.to_ascii_lowercase().replace('_', "-");
            match flags::find(&name) {
                Some(flag) if prefix == "KATTU_" || flag.name != "config" => {
                    let origin = Origin::Variable(variable.clone());
                    settings.insert(flag.name, Setting { flag: flag.name, text: text.clone(), origin });
                }
                _ if prefix == "ETCD_" => {}
                _ => {
                    let near: Vec<String> = flags::near(&name).into_iter().map(variable_of).collect();
                    let hint = match near.as_slice() {
                        [] => String::new(),
                        names => format!("; did you mean {}?", names.join(" or ")),
                    };
                    return Err(ConfigError(format!("unknown variable {variable} in the environment{hint}")));
                }
            }
        }
    }
    Ok(settings)
}

fn variable_of(flag: &str) -> String {
    format!("KATTU_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

fn from_toml(path: &Path, text: &str) -> Result<Settings, ConfigError> {
    let line_at =
        |offset: usize| 1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|&&b| b == b'\n').count();
    let at = |line: usize, what: &dyn fmt::Display| ConfigError(format!("{}:{line}: {what}", path.display()));
    let table = DeTable::parse(text)
        .map_err(|error| at(line_at(error.span().map_or(0, |span| span.start)), &error.message()))?;
    let mut settings = Settings::new();
    for (key, value) in table.get_ref() {
        let line = line_at(key.span().start);
        let name: &str = key.get_ref();
        let flag = known(name).map_err(|near| at(line, &format_args!("unknown setting {name:?}{near}")))?;
        if flag.name == "config" {
            return Err(at(line, &"a file cannot name another file"));
        }
        let text = text_of(value.get_ref(), flag.shape)
            .map_err(|wanted| at(line, &format_args!("{name} must be {wanted}")))?;
        let origin = Origin::File { path: path.to_path_buf(), line };
        settings.insert(flag.name, Setting { flag: flag.name, text, origin });
    }
    Ok(settings)
}

/// A value of the file in the command line's form. The error names the type that was expected.
fn text_of(value: &DeValue<'_>, shape: Shape) -> Result<String, &'static str> {
    match (value, shape) {
        (DeValue::String(text), Shape::Text | Shape::List | Shape::Number) => Ok(text.to_string()),
        (DeValue::Integer(number), Shape::Number | Shape::Text) => {
            i64::from_str_radix(&number.as_str().replace('_', ""), number.radix())
                .map(|number| number.to_string())
                .map_err(|_| "a 64-bit whole number")
        }
        (DeValue::Boolean(switch), Shape::Switch) => Ok(switch.to_string()),
        (DeValue::Array(texts), Shape::List) => {
            let texts: Option<Vec<&str>> = texts.iter().map(|text| text.get_ref().as_str()).collect();
            texts.map(|texts| texts.join(",")).ok_or("an array of strings")
        }
        (_, Shape::Text) => Err("a string in quotes"),
        (_, Shape::List) => Err("a string in quotes, or an array of strings"),
        (_, Shape::Number) => Err("a whole number"),
        (_, Shape::Switch) => Err("true or false"),
    }
}

/// Keeps the settings that work. A refused one is an error, a tolerated one a warning.
pub(crate) fn judge(settings: Settings) -> Result<(Settings, Vec<String>), ConfigError> {
    let mut working = Settings::new();
    let mut warnings = Vec::new();
    for (name, setting) in settings {
        let flag = flags::find(name).expect("only known flags are gathered");
        match flag.fate {
            Fate::Works => {
                working.insert(name, setting);
            }
            // etcd's own defaults, written out, ask for nothing.
            Fate::Refused(_) if matches!(setting.text.as_str(), "" | "false") => {}
            Fate::Refused(why) => return Err(setting.wrong(why)),
            Fate::Tolerated(why) => warnings.push(format!("--{name} has no effect: {why}")),
        }
    }
    Ok((working, warnings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_file(_: &Path) -> std::io::Result<String> {
        Err(std::io::Error::from(std::io::ErrorKind::NotFound))
    }

    fn owned(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_string()).collect()
    }

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect()
    }

    /// The settings as (flag, text), or the error.
    fn gathered(
        args: &[&str],
        env: &[(&str, &str)],
        file: Option<&str>,
    ) -> Result<Vec<(&'static str, String)>, String> {
        let read = |path: &Path| file.map(str::to_string).ok_or(()).or_else(|()| no_file(path));
        match gather(&owned(args), &variables(env), &read) {
            Ok(Asked::Settings(settings)) => {
                Ok(settings.into_values().map(|setting| (setting.flag, setting.text)).collect())
            }
            Ok(asked) => Err(format!("{asked:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_flag_is_written_in_four_ways() {
        for args in [&["--name=n1"][..], &["--name", "n1"], &["-name=n1"], &["-name", "n1"]] {
            assert_eq!(gathered(args, &[], None), Ok(vec![("name", "n1".to_string())]), "{args:?}");
        }
        assert_eq!(
            gathered(&["--name", "a", "--name", "b"], &[], None),
            Ok(vec![("name", "b".to_string())]),
            "the last one wins"
        );
        assert_eq!(
            gathered(&["--quota-backend-bytes", "-1"], &[], None),
            Ok(vec![("quota-backend-bytes", "-1".to_string())])
        );
    }

    #[test]
    fn a_switch_takes_its_value_only_after_an_equals_sign() {
        assert_eq!(
            gathered(&["--pre-vote", "--name", "n"], &[], None),
            Ok(vec![("name", "n".to_string()), ("pre-vote", "true".to_string())])
        );
        assert_eq!(gathered(&["--pre-vote=false"], &[], None), Ok(vec![("pre-vote", "false".to_string())]));
        assert!(gathered(&["--pre-vote", "false"], &[], None).unwrap_err().contains("unexpected argument"));
    }

    #[test]
    fn the_stronger_source_wins() {
        let name = |args: &[&str], env: &[(&str, &str)], file| {
            let settings = gathered(args, env, file).unwrap();
            settings.into_iter().find(|(flag, _)| *flag == "name").unwrap().1
        };
        let file = Some("name = 'file'");
        let both = [("ETCD_NAME", "etcd"), ("KATTU_NAME", "kattu")];
        assert_eq!(name(&["--config=f", "--name=flag"], &both, file), "flag");
        assert_eq!(name(&["--config=f"], &both, file), "kattu");
        assert_eq!(name(&["--config=f"], &[("ETCD_NAME", "etcd"), ("KATTU_NAME", "")], file), "etcd");
        assert_eq!(name(&["--config=f"], &[], file), "file");
        assert_eq!(name(&[], &[("KATTU_CONFIG", "f")], file), "file");
    }

    #[test]
    fn a_protocol_is_settings_that_every_other_source_overrides() {
        let with = |args: &[&str], file| gathered(args, &[], file).unwrap();
        let has = |settings: &[(&'static str, String)], flag: &str, text: &str| {
            settings.iter().any(|(name, value)| *name == flag && value == text)
        };
        let jraft = with(&["--protocol=jraft"], None);
        assert!(has(&jraft, "election-timeout", "3000") && has(&jraft, "pipelining", "off"), "{jraft:?}");
        let file = Some("protocol = 'jraft'\nelection-timeout = 4000\nheartbeat-interval = 700");
        let nearer = with(&["--config=f", "--heartbeat-interval=800"], file);
        assert!(has(&nearer, "election-timeout", "4000") && has(&nearer, "heartbeat-interval", "800"));
        assert!(has(&nearer, "batch-entries-max", "200"), "{nearer:?}");
        let error = gathered(&["--protocol=paxos"], &[], None).unwrap_err();
        assert!(error.starts_with("--protocol: ") && error.contains("raft, basic-raft, jraft"), "{error}");
    }

    #[test]
    fn unknown_names_are_errors_except_for_etcds_variables() {
        let wrong = |args: &[&str], env: &[(&str, &str)], file| gathered(args, env, file).unwrap_err();
        assert_eq!(wrong(&["--nam=x"], &[], None), "unknown flag --nam; did you mean --name?");
        assert_eq!(wrong(&["--wat=x"], &[], None), "unknown flag --wat; see kattu serve --help");
        assert_eq!(
            wrong(&[], &[("KATTU_DATADIR", "x")], None),
            "unknown variable KATTU_DATADIR in the environment; did you mean KATTU_DATA_DIR?"
        );
        for others in ["ETCD_WAL_DIR", "KATTU_ENDPOINTS", "KATTU_SERVICE_HOST", "KATTU_PORT_2379_TCP_ADDR"] {
            assert_eq!(gathered(&[], &[(others, "x")], None), Ok(vec![]), "{others}");
        }
        assert_eq!(
            wrong(&["--config=f.toml"], &[], Some("\n\nnaem = 'x'\n")),
            "f.toml:3: unknown setting \"naem\"; did you mean --name?"
        );
        assert!(wrong(&["n1"], &[], None).contains("unexpected argument \"n1\""));
        assert_eq!(wrong(&["--name"], &[], None), "--name needs a value");
        assert_eq!(wrong(&["--name", "--data-dir=x"], &[], None), "--name needs a value");
    }

    #[test]
    fn a_file_may_hold_numbers_switches_and_arrays() {
        let file = "heartbeat-interval = 1_00\npre-vote = false\nlisten-client-urls = ['http://a:1', \"http://b:2\"]\n\
                    auto-compaction-retention = 1";
        let expected = [
            ("auto-compaction-retention", "1"),
            ("heartbeat-interval", "100"),
            ("listen-client-urls", "http://a:1,http://b:2"),
            ("pre-vote", "false"),
        ];
        let settings = gathered(&["--config=f", "--config=f"], &[], Some(file)).unwrap();
        let settings: Vec<_> = settings.iter().map(|(flag, text)| (*flag, text.as_str())).collect();
        assert_eq!(
            settings[..3],
            expected[..1]
                .iter()
                .chain(&[("config", "f")])
                .chain(&expected[1..2])
                .copied()
                .collect::<Vec<_>>()
        );
        assert_eq!(settings[3..], expected[2..]);
    }

    #[test]
    fn a_file_is_refused_with_its_line() {
        let wrong = |file| gathered(&["--config=f"], &[], Some(file)).unwrap_err();
        assert_eq!(
            wrong("name = 'a'\nheartbeat-interval = true"),
            "f:2: heartbeat-interval must be a whole number"
        );
        assert_eq!(wrong("\npre-vote = 'yes'"), "f:2: pre-vote must be true or false");
        assert_eq!(wrong("name = ['a']"), "f:1: name must be a string in quotes");
        assert_eq!(wrong("config = 'g'"), "f:1: a file cannot name another file");
        assert!(wrong("name = 'a'\nname = ").starts_with("f:2: "), "{}", wrong("name = 'a'\nname = "));
        assert!(gathered(&["--config=f"], &[], None).unwrap_err().starts_with("--config: cannot read f: "));
    }

    #[test]
    fn what_is_refused_is_refused_by_name_unless_it_asks_for_nothing() {
        let judged = |args: &[&str]| match gather(&owned(args), &[], &no_file) {
            Ok(Asked::Settings(settings)) => judge(settings).map(|(_, warnings)| warnings),
            _ => unreachable!("only settings are asked for"),
        };
        for arg in [
            "--peer-ca-file=x",
            "--peer-skip-client-san-verification",
            "--auth-token=jwt",
            "--discovery=http://x",
            "--force-new-cluster",
        ] {
            let error = judged(&[arg]).unwrap_err().to_string();
            assert!(error.starts_with(arg.split('=').next().unwrap()), "{error}");
        }
        assert_eq!(judged(&["--peer-ca-file=", "--peer-skip-client-san-verification=false"]), Ok(vec![]));
        assert_eq!(
            judged(&["--snapshot-count=5", "--logger", "zap"]),
            Ok(vec![
                "--logger has no effect: there is one logger; see --log-level, --log-format, --log-outputs"
                    .to_string(),
                "--snapshot-count has no effect: snapshots depend on bytes of log; see --snapshot-log-bytes"
                    .to_string(),
            ])
        );
    }

    #[test]
    fn help_and_version_go_before_everything_that_follows() {
        assert_eq!(gathered(&["--name=x", "--help", "--nonsense"], &[], None), Err("Help".to_string()));
        assert_eq!(gathered(&["--version"], &[], None), Err("Version".to_string()));
    }
}
