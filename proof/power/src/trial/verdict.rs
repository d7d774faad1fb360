//! The verdict: logs after a power cut, the judges, the end of all members and disks, what is kept of a failure.
//!
//! Knows nothing of: power cuts, and when they come.

use super::{Done, Outcome, Trial, Trouble};
use crate::disk::run;
use crate::mount_namespace::{self, MountNamespace};
use crate::volatile_disk::{Fate, Image};
use kattu_rig::Cluster;
use kattu_rig::process::tail;
use kattu_rig::programs::signal;
use kattu_rig::record::ends;
use kattu_rig::target::Target;
use kattu_rig::verdict::judge;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A member that is told to stop has this long. Longer than its guarantee of 5 s: machines are busy.
const STOP_LIMIT: Duration = Duration::from_secs(15);

impl Trial {
    /// Checks a log after a power cut: it is clean or ends in a torn tail, but is not damaged.
    pub(super) fn inspect(&mut self, cluster: &Cluster, i: usize) -> Done {
        let data = &cluster.members[i].data;
        if self.target != Target::Kattu || !is_there(&self.mount_namespace, &data.join("identity"))? {
            return Ok(());
        }
        let verdict = inspect(&self.mount_namespace, data).map_err(|what| {
            Trouble::Broken(format!(
                "n{i}: a loss of power is taken for damage by `kattu wal inspect`: {what}"
            ))
        })?;
        self.outcome.logs += 1;
        self.outcome.torn_tails += u64::from(verdict.starts_with("torn tail"));
        self.timeline.say(format!("n{i}: its log is {verdict}"));
        Ok(())
    }

    pub(super) fn judge(&mut self, cluster: &mut Cluster) -> Done {
        let last = cluster.agreed_state().map_err(Trouble::Broken)?;
        self.timeline.say("replicas agree");
        self.history = self.recorder.take();
        self.outcome.ends = ends(&self.history);
        let (broken, lost, judged) = judge(&self.history, &last);
        (self.outcome.lost, self.outcome.judged) = (lost, judged);
        self.timeline.say(format!("judged: {judged} answers, {lost} lost, {} broken", broken.len()));
        if let Some(words) = cluster.bad_words() {
            self.outcome.violations.push(words);
        }
        self.outcome.violations.extend(broken);
        Ok(())
    }

    /// SIGTERM, exit code 0, a log closed cleanly, a file system without errors.
    pub(super) fn end_in_order(&mut self, cluster: &mut Cluster) -> Done {
        for member in &mut cluster.members {
            member.id().into_iter().for_each(|process| signal(process, "TERM"));
        }
        for i in 0..cluster.members.len() {
            // Free places and removed members have ended before.
            let is_running = cluster.members[i].is_started();
            let status = if is_running { cluster.members[i].end_within(STOP_LIMIT) } else { None };
            if is_running && status.is_none_or(|status| !status.success()) && self.target == Target::Kattu {
                let says = tail(&cluster.members[i].log_text());
                return Err(Trouble::Broken(format!("n{i} did not stop in order: {status:?}: {says}")));
            }
            self.inspect(cluster, i)?;
            let Some(disk) = self.disks[i].take() else { continue };
            let fuse_disk = disk.fuse_disk.clone();
            disk.down();
            fuse_disk.hold().cut();
            self.outcome.counts.add(fuse_disk.counts());
            let (image, loss) = fuse_disk.remains(Fate::Gone, &mut self.random);
            if loss.writes != 0 {
                return Err(Trouble::Rig(format!(
                    "n{i}: an orderly unmount left {} writes unflushed",
                    loss.writes
                )));
            }
            let path = self.folder.join(format!("n{i}.ext4"));
            let checked = image.save(&path).map_err(|error| error.to_string());
            checked
                .and_then(|()| run(Command::new("e2fsck").args(["-f", "-n"]).arg(&path)))
                .map_err(|error| Trouble::Rig(format!("n{i}: the file system is not whole: {error}")))?;
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }

    /// Unmounts everything; keeps what explains a failure.
    pub(super) fn close(mut self, lying: bool) -> Outcome {
        let mut last = Vec::new();
        for (i, disk) in self.disks.iter_mut().enumerate() {
            let Some(disk) = disk.take() else { continue };
            let fuse_disk = disk.fuse_disk.clone();
            self.outcome.counts.add(fuse_disk.counts());
            disk.down();
            fuse_disk.hold().cut();
            last.push((format!("n{i}-at-end.ext4"), fuse_disk.remains(Fate::Kept, &mut self.random).0));
        }
        if self.history.is_empty() {
            self.history = self.recorder.take();
            self.outcome.ends = ends(&self.history);
        }
        let said = (0..self.plan.members + self.plan.spare)
            .map(|i| std::fs::read_to_string(self.folder.join(format!("n{i}.log"))).unwrap_or_default());
        for line in said.collect::<String>().lines() {
            self.outcome.snapshots.0 += u64::from(line.contains(" info  took a snapshot up to "));
            self.outcome.snapshots.1 += u64::from(line.contains(" info  starts from snapshot-"));
        }
        let failed = !self.outcome.violations.is_empty() || self.outcome.rig.is_some();
        if failed && !lying || std::env::var_os("KATTU_KEEP").is_some() {
            self.outcome.kept =
                self.keep(&last).map_err(|error| eprintln!("nothing could be kept: {error}")).ok();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        self.outcome
    }

    fn keep(&mut self, last: &[(String, Image)]) -> std::io::Result<PathBuf> {
        let kept = mount_namespace::runs().join(format!("seed-{}", self.plan.seed));
        let _ = std::fs::remove_dir_all(&kept);
        std::fs::create_dir_all(&kept)?;
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                std::fs::copy(entry.path(), kept.join(entry.file_name()))?;
            }
        }
        let broken =
            self.outcome.violations.iter().chain(&self.outcome.rig).cloned().collect::<Vec<_>>().join("\n");
        std::fs::write(kept.join("timeline.txt"), format!("{}\n{broken}\n", self.timeline.text()))?;
        let file = std::fs::File::create(kept.join("history.jsonl"))?;
        kattu_verify::lines::write(&mut std::io::BufWriter::new(file), &self.history)?;
        for (i, image) in self.remains.iter().enumerate() {
            if let Some(image) = image {
                image.save(&kept.join(format!("n{i}-after-loss.ext4")))?;
            }
        }
        for (name, image) in last {
            image.save(&kept.join(name))?;
        }
        Ok(kept)
    }
}

fn is_there(mount_namespace: &MountNamespace, path: &Path) -> Result<bool, Trouble> {
    let script = "test -e \"$1\" && echo there || echo missing";
    let said =
        run(mount_namespace.command("sh").args(["-c", script, "sh"]).arg(path)).map_err(Trouble::Rig)?;
    Ok(said.trim() == "there")
}

/// The last line of `kattu wal inspect`; an error if the log is damaged.
fn inspect(mount_namespace: &MountNamespace, data: &Path) -> Result<String, String> {
    let said = run(mount_namespace.command(kattu_rig::kattu()).args(["wal", "inspect"]).arg(data))?;
    Ok(said.lines().last().unwrap_or("without a word").to_string())
}
