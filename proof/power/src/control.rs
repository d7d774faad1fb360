//! Control: trials on lying disks, which the rig and the judges must notice.
//!
//! A rig that loses nothing, or a judge that finds nothing, would let every trial pass. So the same trials run on disks
//! that drop writes and acknowledge their flushes, on all members at once; each of these trials must fail.
//! Knows nothing of: how disks lie, how judges decide.

use crate::files;
use crate::mount_namespace;
use crate::plan::Plan;
use crate::trial::trial;
use kattu_rig::target::Target;
use std::process::ExitCode;

/// Tests the rig on two files, without members.
pub fn files() -> ExitCode {
    match files::rig_sees(&mount_namespace::own().join("files")) {
        Ok(()) => {
            println!("files: what was synced survives, what was not is gone, a disk that lies is seen");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("the rig does not see: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Keeps one disk in the middle of a sync until standard input ends.
pub fn hold() -> ExitCode {
    let folder = mount_namespace::own();
    let ended = files::held(&folder.join("files"), || {
        println!("holding {}", folder.display());
        // Input is ignored; only its end counts.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("the rig does not work: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Tests the rig on files, then runs `trials` clusters on lying disks; success means that every lie was noticed.
pub fn control(trials: u64, seed: u64, target: Target) -> ExitCode {
    if files() != ExitCode::SUCCESS {
        return ExitCode::FAILURE;
    }
    let mut noticed = 0;
    for number in 0..trials {
        let seed = seed.wrapping_add(number);
        let outcome = trial(&Plan::of_control(seed, target), target, true);
        if let Some(what) = &outcome.rig {
            println!("seed {seed}: THE RIG FAILED: {what}");
            continue;
        }
        match outcome.violations.first() {
            Some(first) => {
                noticed += 1;
                let first = first.lines().next().unwrap_or_default();
                println!("seed {seed}: noticed, {} lost: {first}", outcome.lost);
            }
            None => println!(
                "seed {seed}: NOT NOTICED: acknowledged writes were dropped and every judge was content"
            ),
        }
    }
    println!("{trials} trials on disks that lie, {noticed} noticed");
    if noticed == trials { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
