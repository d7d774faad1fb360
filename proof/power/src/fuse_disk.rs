//! FUSE disk: one file served through FUSE, with a switch for its power.
//!
//! In:    the kernel's reads, writes and syncs of the file `disk`.
//! Out:   they reach a `VolatileDisk`; a sync is its flush, and only that makes writes durable.
//! Rule:  once the power is off, every request fails with EIO. A trigger armed on the n-th request from now holds that
//!        request, unanswered, until the power is cut: the cut lies exactly before it. If flushes alone are held,
//!        unflushed writes pile up.
//! Knows nothing of: loop devices, file systems, members.

use crate::volatile_disk::{Fate, Image, Loss, VolatileDisk};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, Session, SessionACL, WriteFlags,
};
use kattu_random::Random;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

/// The one file.
pub const FILE: &str = "disk";
/// Enough that writes are accepted while flushes are held.
const THREADS: usize = 4;
const FILE_NODE: INodeNo = INodeNo(2);
/// The file's attributes never change.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// The request just before which the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The n-th write or flush.
    Any(u64),
    /// The n-th flush: then unflushed writes are at stake.
    Flush(u64),
}

/// Counts of the kernel's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes accepted.
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flushes carried out.
    pub flushes: u64,
}

impl Counts {
    /// Adds another sum.
    pub fn add(&mut self, other: Counts) {
        self.writes += other.writes;
        self.bytes += other.bytes;
        self.flushes += other.flushes;
    }
}

struct State {
    volatile_disk: VolatileDisk,
    powered: bool,
    /// Requests until the trigger, if one is armed; at 0 it has tripped.
    trigger: Option<u64>,
    /// The trigger counts flushes only.
    is_trigger_on_flush: bool,
    /// Flushes are held.
    is_dammed: bool,
    /// Number of flushes held.
    held: u64,
    counts: Counts,
}

impl State {
    fn has_tripped(&self) -> bool {
        self.trigger == Some(0)
    }
}

/// A disk whose power can be cut; clones are the same disk.
#[derive(Clone)]
pub struct FuseDisk {
    inner: Arc<(Mutex<State>, Condvar)>,
}

/// A disk that answers no request; see [`FuseDisk::hold`].
pub struct Held<'a> {
    state: MutexGuard<'a, State>,
    released: &'a Condvar,
}

impl Held<'_> {
    /// From now on the disk drops all writes, and answers every flush as done.
    pub fn lie(mut self) {
        self.state.volatile_disk.lie();
    }

    /// Cuts the power; waiting requests fail with EIO as soon as this is dropped.
    pub fn cut(mut self) {
        self.state.powered = false;
        self.state.trigger = None;
        self.released.notify_all();
    }
}

impl FuseDisk {
    /// A powered disk with everything on it flushed.
    pub fn new(image: Image) -> FuseDisk {
        let state = State {
            volatile_disk: VolatileDisk::new(image),
            powered: true,
            trigger: None,
            is_trigger_on_flush: false,
            is_dammed: false,
            held: 0,
            counts: Counts::default(),
        };
        FuseDisk { inner: Arc::new((Mutex::new(state), Condvar::new())) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.0.lock().expect("nothing panics with a disk in its hands")
    }

    /// Serves the file on a freshly opened and mounted `/dev/fuse`, until that is unmounted.
    ///
    /// # Errors
    /// FUSE's initialization fails.
    pub fn serve(&self, device: OwnedFd) -> io::Result<BackgroundSession> {
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        Session::from_fd(Face(self.clone()), device, SessionACL::Owner, config)?.spawn()
    }

    /// Holds the n-th request from now (1 is the next) and all after it until the power is cut.
    pub fn arm(&self, trigger: Trigger) {
        let (nth, is_flush) = match trigger {
            Trigger::Any(nth) => (nth, false),
            Trigger::Flush(nth) => (nth, true),
        };
        assert!(0 < nth, "the first one is 1");
        let mut state = self.state();
        (state.trigger, state.is_trigger_on_flush) = (Some(nth), is_flush);
    }

    /// Whether the armed request has come.
    pub(crate) fn has_tripped(&self) -> bool {
        self.state().has_tripped()
    }

    /// Holds every flush from now on until the power is cut; writes go on.
    pub(crate) fn hold_flushes(&self) {
        self.state().is_dammed = true;
    }

    /// Whether a flush is being held.
    pub(crate) fn has_piled_up(&self) -> bool {
        0 < self.state().held
    }

    /// Counts of requests so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Answers no request for as long as the result lives, so that several disks can lose power at one moment.
    pub fn hold(&self) -> Held<'_> {
        Held { state: self.state(), released: &self.inner.1 }
    }

    /// The image that is left once the power is off.
    pub fn remains(&self, fate: Fate, random: &mut Random) -> (Image, Loss) {
        let state = self.state();
        assert!(!state.powered, "a disk in operation has no remains");
        state.volatile_disk.cut(fate, random)
    }

    /// Carries out one write or flush, or fails with EIO.
    fn take<T>(&self, is_flush: bool, act: impl FnOnce(&mut State) -> Option<T>) -> Result<T, Errno> {
        let mut state = self.state();
        let counts = is_flush || !state.is_trigger_on_flush;
        if let Some(left) = state.trigger.as_mut().filter(|_| counts) {
            *left = left.saturating_sub(1);
        }
        while state.powered && (state.has_tripped() || is_flush && state.is_dammed) {
            state.held += u64::from(is_flush);
            state = self.inner.1.wait(state).expect("nothing panics with a disk in its hands");
            state.held -= u64::from(is_flush);
        }
        if !state.powered {
            return Err(Errno::EIO);
        }
        act(&mut state).ok_or(Errno::ENOSPC)
    }

    fn attributes(&self, node: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match node {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            FILE_NODE => (FileType::RegularFile, 0o600, self.state().volatile_disk.len()),
            _ => return None,
        };
        Some(FileAttr {
            ino: node,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

/// The file system that the kernel sees.
struct Face(FuseDisk);

impl Filesystem for Face {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.attributes(FILE_NODE) {
            Some(attributes) if parent == INodeNo::ROOT && name == FILE => {
                reply.entry(&FOR_EVER, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.attributes(node) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // No page cache in this layer: data that the loop device was told is written must be here.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.0.state();
        if state.powered {
            reply.data(&state.volatile_disk.read(offset, u64::from(size)));
        } else {
            reply.error(Errno::EIO);
        }
    }

    fn write(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.0.take(false, |state| {
            state.counts.writes += 1;
            state.counts.bytes += data.len() as u64;
            state.volatile_disk.write(offset, data).then_some(data.len() as u32)
        });
        match written {
            Ok(len) => reply.written(len),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let flushed = self.0.take(true, |state| {
            state.counts.flushes += 1;
            state.volatile_disk.flush();
            Some(())
        });
        match flushed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Called at every close; a close makes nothing durable.
        reply.ok();
    }
}
