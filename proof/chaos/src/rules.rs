//! Packets that are dropped by the kernel: hard cuts, one-way cuts, random loss.
//!
//! Unlike what the proxy does, nobody is told: data is sent again and again, connections hang, new ones do not come
//! about, and after the cut it takes TCP a while to notice that it is over.
//! Knows nothing of: why.

use crate::place::Endpoint;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The rules of the hub's namespace.
pub struct Rules {
    program: PathBuf,
}

impl Rules {
    /// iptables, wherever it is, if this kernel lets it work in our namespace.
    ///
    /// # Errors
    /// Why there are no rules here.
    pub fn find() -> Result<Rules, String> {
        if !crate::place::is_inside() {
            return Err("rules need network namespaces".into());
        }
        let fetched = kattu_e2e::tool("iptables/iptables");
        let candidates = fetched.into_iter().chain(["iptables-legacy".into(), "iptables".into()]);
        for program in candidates {
            let rules = Rules { program };
            if rules.run(&["-F", "INPUT"]).is_ok() {
                return Ok(rules);
            }
        }
        Err("no working iptables; run `cargo xtask tools`".into())
    }

    /// Whatever member `from` sends to member `to` is lost from now on.
    ///
    /// # Errors
    /// What iptables said.
    pub fn cut(&self, from: &Endpoint, to: &Endpoint) -> Result<(), String> {
        let Some((stand_in, _)) = to.stand_in else { return Err("no namespaces".into()) };
        // On the connections it opened itself, and on those the other one opened.
        for address in [to.face.clone(), stand_in.to_string()] {
            self.run(&["-A", "INPUT", "-s", &from.host, "-d", &address, "-j", "DROP"])?;
        }
        Ok(())
    }

    /// Clients hear nothing of this member, although it hears them.
    ///
    /// # Errors
    /// What iptables said.
    pub fn mute(&self, member: &Endpoint) -> Result<(), String> {
        self.run(&["-A", "INPUT", "-s", &member.host, "-p", "tcp", "--sport", "2379", "-j", "DROP"])
    }

    /// Of the packets of this member so many in a thousand are lost.
    ///
    /// # Errors
    /// What iptables said.
    pub fn lose(&self, member: &Endpoint, per_mille: u32) -> Result<(), String> {
        let share = format!("{}", f64::from(per_mille) / 1000.0);
        let chance = ["-m", "statistic", "--mode", "random", "--probability", &share];
        let words = [&["-A", "INPUT", "-s", &member.host], &chance[..], &["-j", "DROP"]].concat();
        self.run(&words)
    }

    /// Everything passes again.
    ///
    /// # Errors
    /// What iptables said.
    pub fn heal(&self) -> Result<(), String> {
        self.run(&["-F", "INPUT"])
    }

    fn run(&self, words: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.arg("-w").args(words).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("{}: {error}", self.program.display()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("iptables {words:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}
