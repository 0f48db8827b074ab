// SPDX-License-Identifier: MIT OR Apache-2.0

//! A sender, some receivers, and a directory for each.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long anything may take on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Directories, and the name under which the processes meet.
pub struct Scene {
    place: TempDir,
    name: String,
    receivers: usize,
}

impl Scene {
    pub fn new(receivers: usize) -> Self {
        static SCENES: AtomicU32 = AtomicU32::new(0);
        let number = SCENES.fetch_add(1, Ordering::Relaxed);
        let scene = Self {
            place: tempfile::tempdir().expect("a directory"),
            name: format!("test-{}-{number}", std::process::id()),
            receivers,
        };
        for rank in 0..=receivers {
            fs::create_dir(scene.dir(rank)).expect("a directory");
        }
        scene
    }

    /// A node's directory: 0 is the sender's.
    pub fn dir(&self, rank: usize) -> PathBuf {
        self.place.path().join(rank.to_string())
    }

    pub fn ranks(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.receivers
    }

    /// Names in a node's directory.
    pub fn names_in(&self, rank: usize) -> Vec<String> {
        let names = fs::read_dir(self.dir(rank)).expect("it is there");
        let names = names.map(|entry| entry.expect("a name").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }

    pub fn sender(&self, name: &str, options: &[&str]) -> Process {
        let path = self.dir(0).join(name);
        self.start("send", &path, options)
    }

    pub fn receiver(&self, rank: usize, options: &[&str]) -> Process {
        let rank_text = rank.to_string();
        let options = [&["--rank", &rank_text], options].concat();
        self.start("receive", &self.dir(rank), &options)
    }

    /// The sender and all receivers, with the same options.
    pub fn start_all(&self, name: &str, options: &[&str]) -> (Process, Vec<Process>) {
        let receivers = self.ranks().map(|rank| self.receiver(rank, options));
        (self.sender(name, options), receivers.collect())
    }

    fn start(&self, what: &str, path: &Path, options: &[&str]) -> Process {
        let receivers = self.receivers.to_string();
        let meeting = ["--name", &self.name, "--receivers", &receivers];
        start(
            what,
            path,
            &[&meeting[..], &["--timeout", "100"], options].concat(),
        )
    }
}

/// Starts a sender or a receiver.
pub fn start(what: &str, path: &Path, options: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-cp"));
    start_command(command.arg(what).arg(path).args(options))
}

/// Starts one that says what it has to say where nobody hears it.
pub fn start_mute(stderr: impl Into<Stdio>, what: &str, path: &Path, options: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-cp"));
    command.arg(what).arg(path).args(options).stderr(stderr);
    let child = command.stdin(Stdio::null()).spawn().expect("it starts");
    Process(Some(child))
}

fn start_command(command: &mut Command) -> Process {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    Process(Some(child))
}

/// Starts one that can have no more memory than this.
pub fn start_within(bytes: u64, what: &str, path: &Path, options: &[&str]) -> Process {
    let mut command = Command::new("prlimit");
    let limit = format!("--as={bytes}");
    command.args([limit.as_str(), env!("CARGO_BIN_EXE_weft-cp"), what]);
    start_command(command.arg(path).args(options))
}

/// One of the processes. Dropped, it is killed.
pub struct Process(Option<Child>);

impl Process {
    fn pid(&self) -> Pid {
        let id = self.0.as_ref().expect("it has not ended").id();
        Pid::from_raw(i32::try_from(id).expect("a process"))
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is there");
    }

    /// Waits for its end: whether it was well, and what it said.
    pub fn end(mut self) -> (bool, String) {
        let child = self.0.take().expect("it has not ended");
        let output = child.wait_with_output().expect("it ends");
        let said = said(&output);
        assert_eq!(output.status.signal(), None, "{said}");
        (output.status.success(), said)
    }

    /// Waits for its end with this status.
    pub fn ends_with_status(mut self, status: i32) {
        let child = self.0.as_mut().expect("it has not ended");
        let ended = child.wait().expect("it ends");
        assert_eq!(ended.code(), Some(status), "{ended}");
    }

    pub fn ends_well(self) {
        let (well, said) = self.end();
        assert!(well, "{said}");
    }

    /// Waits for an error that says all of this.
    pub fn ends_with(self, words: &[&str]) {
        let (well, said) = self.end();
        assert!(!well, "it ended well: {said}");
        for word in words {
            assert!(said.contains(word), "{word:?} is not in: {said}");
        }
    }

    /// Waits until it has written a part of some file in a directory, and stops it:
    /// then nobody gets much further.
    pub fn stop_while_writing(&self, dir: &Path) {
        let end = Instant::now() + PATIENCE;
        while !self.is_writing(dir) {
            assert!(Instant::now() < end, "it writes nothing");
            thread::sleep(Duration::from_millis(1));
        }
        self.signal(Signal::SIGSTOP);
        assert!(self.is_writing(dir), "it was done before it was stopped");
    }

    /// Whether it has a file open there that is not empty. It may have no name.
    fn is_writing(&self, dir: &Path) -> bool {
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it is there");
        open.flatten().any(|fd| {
            let leads_there = fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(dir));
            let there = fs::metadata(fd.path()).ok().filter(|there| there.is_file());
            leads_there && there.is_some_and(|there| there.len() > 0)
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended already, which is as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
