//! A page in the text format of Prometheus, written line by line.
//!
//! Knows nothing of: which metrics there are.

use std::fmt::{Display, Write};

/// A page being written.
pub(super) struct Page(pub(super) String);

impl Page {
    pub(super) fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}");
    }

    pub(super) fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            _ => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "counter");
        self.line(name, "", value);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "gauge");
        self.line(name, "", value);
    }

    /// A text, as a label of a gauge with value 1.
    pub(super) fn labelled(&mut self, name: &str, help: &str, label: &str, value: &str) {
        self.head(name, help, "gauge");
        self.line(name, &format!("{label}=\"{value}\""), 1);
    }
}
