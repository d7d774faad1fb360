//! Lying clocks of one member, by libfaketime between the program and libc.
//!
//! Either only the wall clock jumps, years ahead or back, while the monotonic clock stays right; or all clocks of the
//! member run at a rate of their own and sometimes jump ahead, as after a suspend. They never step back together: no
//! kernel lets the monotonic clock do that.
//! Knows nothing of: the members' use of time.

use crate::programs::tool;
use kattu_random::Random;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Below `target/tools`, where `cargo xtask tools` puts it.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// Ten years in seconds: the wall clock jumps at most so far, ahead or back.
const WALL_MOST: f64 = 10.0 * 365.0 * 86_400.0;
/// The furthest jump of all clocks together, in milliseconds: longer than every timeout.
const LEAP_MOST: u64 = 20_000;

/// The clocks that lie in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The wall clock. [fault-model F40]
    Wall,
    /// All of them: they run at other rates and jump. [fault-model F41]
    All,
}

/// The path of the library.
///
/// # Errors
/// How to get it.
pub fn find() -> Result<PathBuf, String> {
    tool(LIBRARY).ok_or_else(|| format!("no target/tools/{LIBRARY}; run `cargo xtask tools`"))
}

/// The clocks of one member; kept in a file that its process reads once a second.
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
    lie: Lie,
    /// Seconds ahead of the true time.
    offset: f64,
    rate: f64,
}

impl Clock {
    /// A clock that is right, or, if all of them lie, runs at 0.7 to 1.4 times the true rate.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(library: &Path, file: PathBuf, lie: Lie, random: &mut Random) -> Result<Clock, String> {
        let rate = match lie {
            Lie::Wall => 1.0,
            Lie::All => random.within(700..1_400) as f64 / 1_000.0,
        };
        let clock = Clock { library: library.to_path_buf(), file, lie, offset: 0.0, rate };
        clock.write()?;
        Ok(clock)
    }

    /// Words before the program in a command line.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![
            "env".to_string(),
            format!("LD_PRELOAD={}", self.library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file.display()),
            "FAKETIME_CACHE_DURATION=1".to_string(),
        ];
        if self.lie == Lie::Wall {
            words.push("FAKETIME_DONT_FAKE_MONOTONIC=1".to_string());
        }
        words
    }

    /// Whether this process has loaded the library: one that cannot load it goes on silently.
    pub fn is_over(&self, process: u32) -> bool {
        let name = self.library.file_name().expect("a library has a name").to_string_lossy();
        std::fs::read_to_string(format!("/proc/{process}/maps")).is_ok_and(|maps| maps.contains(&*name))
    }

    /// Jumps: the wall clock anywhere, all clocks ahead. Returns a description.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn jump(&mut self, random: &mut Random) -> Result<String, String> {
        match self.lie {
            Lie::Wall => self.offset = (random.within(0..2_001) as f64 / 1_000.0 - 1.0) * WALL_MOST,
            Lie::All => self.offset += Duration::from_millis(random.within(50..LEAP_MOST)).as_secs_f64(),
        }
        self.write()?;
        Ok(format!("{:+.3} s, rate {}", self.offset, self.rate))
    }

    /// By a rename: half a line would be another time.
    fn write(&self) -> Result<(), String> {
        let fresh = self.file.with_extension("new");
        std::fs::write(&fresh, format!("{:+.3} x{}\n", self.offset, self.rate))
            .and_then(|()| std::fs::rename(&fresh, &self.file))
            .map_err(|error| format!("{}: {error}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clocks_together_only_leap_ahead_and_a_wall_clock_goes_anywhere() {
        let folder = std::env::temp_dir().join(format!("kattu-clocks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut random = Random::new(7);
        let new = |lie, random: &mut Random| Clock::new(Path::new("l"), folder.join("clock"), lie, random);
        let mut all = new(Lie::All, &mut random).expect("a clock");
        let mut wall = new(Lie::Wall, &mut random).expect("a clock");
        let mut is_back = false;
        for _ in 0..50 {
            let before = (all.offset, wall.offset);
            all.jump(&mut random).expect("a jump");
            wall.jump(&mut random).expect("a jump");
            assert!(before.0 < all.offset);
            is_back |= wall.offset < before.1;
        }
        assert!(is_back && wall.rate == 1.0);
        let text = std::fs::read_to_string(folder.join("clock")).expect("written");
        assert_eq!(text, format!("{:+.3} x1\n", wall.offset));
        assert!(wall.words().iter().any(|word| word.starts_with("FAKETIME_DONT_FAKE_MONOTONIC")));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
