//! Typed access to the settings. Every error names the flag, and where it was set.
//!
//! Knows nothing of: the meaning of a flag.

use super::sources::{Setting, Settings};
use super::urls::Url;
use super::{ConfigError, Listen, default_url};
use std::fmt;

/// Typed access to the settings.
pub(super) struct Reader<'a>(pub(super) &'a Settings);

impl Reader<'_> {
    pub(super) fn setting(&self, flag: &str) -> Option<&Setting> {
        self.0.get(flag)
    }

    pub(super) fn text(&self, flag: &str) -> Option<&str> {
        self.setting(flag).map(|setting| setting.text.as_str())
    }

    /// An error about a flag, which names where it was set, if it was.
    pub(super) fn wrong(&self, flag: &'static str, what: impl fmt::Display) -> ConfigError {
        match self.setting(flag) {
            Some(setting) => setting.wrong(what),
            None => ConfigError(format!("--{flag}: {what}")),
        }
    }

    pub(super) fn number(
        &self,
        flag: &'static str,
        default: u64,
        min: u64,
        max: u64,
    ) -> Result<u64, ConfigError> {
        let Some(text) = self.text(flag) else { return Ok(default) };
        match text.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(self.wrong(flag, format!("{text:?} is not a whole number from {min} to {max}"))),
        }
    }

    pub(super) fn switch(&self, flag: &'static str) -> Result<bool, ConfigError> {
        self.one_of(flag, &[("false", false), ("true", true)])
    }

    pub(super) fn one_of<T: Copy>(&self, flag: &'static str, values: &[(&str, T)]) -> Result<T, ConfigError> {
        let Some(text) = self.text(flag) else { return Ok(values[0].1) };
        match values.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(*value),
            None => {
                let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
                Err(self.wrong(flag, format!("{text:?} is not one of {}", names.join(", "))))
            }
        }
    }

    pub(super) fn urls(&self, flag: &'static str) -> Result<Option<Vec<Url>>, ConfigError> {
        match self.setting(flag) {
            None => Ok(None),
            Some(setting) if setting.text.is_empty() => Ok(None),
            Some(setting) => Url::parse_list(&setting.text).map(Some).map_err(|what| setting.wrong(what)),
        }
    }

    pub(super) fn listen(
        &self,
        flag: &'static str,
        urls: Option<Vec<Url>>,
        default_port: Option<u16>,
    ) -> Result<Vec<Listen>, ConfigError> {
        let urls = urls.unwrap_or_else(|| default_port.map(default_url).into_iter().collect());
        let mut places: Vec<Listen> = Vec::new();
        for url in &urls {
            let what = "expected an IP address or localhost to listen on";
            let at = url.listen_address().ok_or_else(|| self.wrong(flag, format!("{url}: {what}")))?;
            let found = places.iter().position(|place| place.at == at);
            let place = found.unwrap_or(places.len());
            if found.is_none() {
                places.push(Listen { at, plain: false, tls: false });
            }
            *(if url.is_tls() { &mut places[place].tls } else { &mut places[place].plain }) = true;
        }
        Ok(places)
    }
}
