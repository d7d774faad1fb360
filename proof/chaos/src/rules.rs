//! Packets dropped by the kernel: hard cuts, one-way cuts, random loss.
//!
//! Unlike with the proxy, no end notices: data is sent again and again, connections hang, new ones are not established,
//! and after the cut TCP needs a while to recover.
//! Knows nothing of: plans, storms.

use kattu_rig::place::Endpoint;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The rules of the hub's namespace.
pub struct Rules {
    program: PathBuf,
}

impl Rules {
    /// iptables, from the tools or the system, if this kernel lets it work in our namespace.
    ///
    /// # Errors
    /// The reason why there are no rules here.
    pub fn find() -> Result<Rules, String> {
        if !kattu_rig::place::is_inside() {
            return Err("rules need network namespaces".into());
        }
        let fetched = kattu_rig::tool("iptables/iptables");
        let candidates = fetched.into_iter().chain(["iptables-legacy".into(), "iptables".into()]);
        for program in candidates {
            let rules = Rules { program };
            if rules.run(&["-F", "INPUT"]).is_ok() {
                return Ok(rules);
            }
        }
        Err("no working iptables; run `cargo xtask tools`".into())
    }

    /// Drops all packets from member `from` to member `to`.
    ///
    /// # Errors
    /// The message of iptables.
    pub fn cut(&self, from: &Endpoint, to: &Endpoint) -> Result<(), String> {
        let Some((stand_in, _)) = to.stand_in else { return Err("no namespaces".into()) };
        // On the connections that `from` opened, and on those that `to` opened.
        for address in [to.face.clone(), stand_in.to_string()] {
            self.run(&["-A", "INPUT", "-s", &from.host, "-d", &address, "-j", "DROP"])?;
        }
        Ok(())
    }

    /// Drops this member's packets to clients, but not theirs to it.
    ///
    /// # Errors
    /// The message of iptables.
    pub(crate) fn mute(&self, member: &Endpoint) -> Result<(), String> {
        self.run(&["-A", "INPUT", "-s", &member.host, "-p", "tcp", "--sport", "2379", "-j", "DROP"])
    }

    /// Drops so many in a thousand of this member's packets.
    ///
    /// # Errors
    /// The message of iptables.
    pub fn lose(&self, member: &Endpoint, per_mille: u32) -> Result<(), String> {
        let share = format!("{}", f64::from(per_mille) / 1000.0);
        let chance = ["-m", "statistic", "--mode", "random", "--probability", &share];
        let words = [&["-A", "INPUT", "-s", &member.host], &chance[..], &["-j", "DROP"]].concat();
        self.run(&words)
    }

    /// Removes all rules.
    ///
    /// # Errors
    /// The message of iptables.
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
