//! The rig on its own, without members: needs root, FUSE, a loop device and ext4, and says so where they are missing.

use std::process::Command;

#[test]
fn a_file_survives_a_loss_of_power_if_and_only_if_it_was_synced_to_an_honest_disk() {
    let ended = Command::new(env!("CARGO_BIN_EXE_kattu-power")).arg("--files").output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    if let Some(why) = out.lines().find_map(|line| line.strip_prefix("SKIPPED ")) {
        println!("SKIPPED a_file_survives_a_loss_of_power: {why}");
        return;
    }
    assert!(ended.status.success() && out.contains("files: what was synced survives"), "{out}{err}");
}

#[test]
fn a_command_line_that_makes_no_sense_is_answered_with_the_usage_and_code_2() {
    for words in [&["--trials", "0"][..], &["--trials"], &["--seed", "x"], &["--target", "mars"], &["--what"]]
    {
        let ended = Command::new(env!("CARGO_BIN_EXE_kattu-power")).args(words).output().expect("it runs");
        assert_eq!(ended.status.code(), Some(2), "{words:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("cargo xtask power"), "{words:?}");
    }
}
