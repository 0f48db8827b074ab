// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receivers that come when they like.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::socket::sockopt::ReuseAddr;
use nix::sys::socket::{
    bind, setsockopt, socket, AddressFamily, SockFlag, SockType, SockaddrStorage,
};

use crate::scene::{start, start_mute, start_within, Process, Scene};

/// A sender that serves whoever calls, and the directories of receivers.
struct Elastic {
    scene: Scene,
    at: String,
    /// Keeps the port from all who are not told of it.
    _port: TcpStream,
}

impl Elastic {
    fn new(receivers: usize) -> Self {
        let port = held_port();
        Self {
            scene: Scene::new(receivers),
            at: port.local_addr().expect("its address").to_string(),
            _port: port,
        }
    }

    /// One that ends when nobody has called for some seconds.
    fn sender(&self, patience: &str) -> Process {
        let path = self.scene.dir(0).join("file");
        let options = ["--elastic", &self.at, "--timeout", patience];
        start("send", &path, &options)
    }

    fn receiver(&self, rank: usize) -> Process {
        let options = ["--elastic", &self.at, "--timeout", "60", "--chunk", "16K"];
        start("receive", &self.scene.dir(rank), &options)
    }

    /// Waits until the sender answers those who call: it has looked at what it sends then.
    fn await_desk(&self) {
        let mut stranger = loop {
            match TcpStream::connect(&self.at) {
                Ok(line) => break line,
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        };
        // The sender has a warning for that, and hangs up.
        stranger.write_all(b"noise\n").unwrap();
        assert_eq!(stranger.read(&mut [0]).unwrap_or(0), 0);
    }

    fn has_it(&self, rank: usize) {
        let read = |rank: usize| fs::read(self.scene.dir(rank).join("file")).expect("it is there");
        assert!(read(rank) == read(0), "receiver {rank} has something else");
        assert_eq!(self.scene.names_in(rank), ["file"]);
    }
}

/// A socket that does not listen. Others can share its port, but never get it by chance.
fn held_port() -> TcpStream {
    let flags = SockFlag::SOCK_CLOEXEC;
    let held = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
    setsockopt(&held, ReuseAddr, &true).expect("an option");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    bind(held.as_raw_fd(), &SockaddrStorage::from(any)).expect("a port");
    TcpStream::from(held)
}

#[test]
fn all_who_come_while_the_sender_is_there_get_the_file() {
    let elastic = Elastic::new(5);
    fs::write(elastic.scene.dir(0).join("file"), vec![7; 1 << 20]).unwrap();
    // One is there before the sender.
    let early = elastic.receiver(1);
    let sender = elastic.sender("10");
    let two = [2, 3].map(|rank| elastic.receiver(rank));
    early.ends_well();
    two.into_iter().for_each(Process::ends_well);
    // All that were served are gone.
    let late = [4, 5].map(|rank| elastic.receiver(rank));
    late.into_iter().for_each(Process::ends_well);
    sender.ends_well();
    (1..=5).for_each(|rank| elastic.has_it(rank));
}

#[test]
fn those_who_were_served_with_one_that_dies_are_served_again() {
    let elastic = Elastic::new(3);
    let file = elastic.scene.dir(0).join("file");
    // All holes: more than is written before one is stopped.
    File::create(file).unwrap().set_len(64 << 20).unwrap();
    let sender = elastic.sender("10");
    let victim = elastic.receiver(1);
    let others = [2, 3].map(|rank| elastic.receiver(rank));
    victim.stop_while_writing(&elastic.scene.dir(1));
    victim.signal(Signal::SIGKILL);
    others.into_iter().for_each(Process::ends_well);
    sender.ends_well();
    elastic.has_it(2);
    elastic.has_it(3);
    assert_eq!(elastic.scene.names_in(1), [""; 0]);
}

#[test]
fn a_receiver_that_cannot_take_part_says_so_and_the_others_are_served() {
    let elastic = Elastic::new(2);
    fs::write(elastic.scene.dir(0).join("file"), "text").unwrap();
    // It has not the memory for its messages, whoever takes part.
    let options = [
        "--elastic",
        &elastic.at,
        "--timeout",
        "60",
        "--chunk",
        "256M",
    ];
    let unable = start_within(1 << 30, "receive", &elastic.scene.dir(1), &options);
    let other = elastic.receiver(2);
    let sender = elastic.sender("10");
    unable.ends_with(&["cannot meet the others", "mmap"]);
    other.ends_well();
    sender.ends_well();
    elastic.has_it(2);
}

#[test]
fn receivers_have_met_the_sender_when_it_lists_what_it_sends() {
    let elastic = Elastic::new(2);
    let tree = elastic.scene.dir(0).join("tree");
    fs::create_dir(&tree).unwrap();
    let sender = start("send", &tree, &["--elastic", &elastic.at]);
    elastic.await_desk();
    let _socket = UnixListener::bind(tree.join("socket")).unwrap();
    let options = ["--elastic", &elastic.at, "--timeout", "2"];
    let receivers = [1, 2].map(|rank| start("receive", &elastic.scene.dir(rank), &options));
    // Those that met it hear from it why it gives up; others would say that they meet nobody.
    for receiver in receivers {
        let (well, said) = receiver.end();
        assert!(!well && !said.contains("cannot meet"), "{said}");
    }
    sender.ends_with(&["tree/socket: this is a socket"]);
}

#[test]
fn a_sender_to_whom_nobody_comes_says_so() {
    let elastic = Elastic::new(1);
    fs::write(elastic.scene.dir(0).join("file"), "text").unwrap();
    elastic.sender("1").ends_with(&["nobody has called for 1s"]);
}

#[test]
fn a_receiver_without_a_sender_says_where_it_looked() {
    let elastic = Elastic::new(1);
    let options = ["--elastic", &elastic.at, "--timeout", "1"];
    let receiver = start("receive", &elastic.scene.dir(1), &options);
    receiver.ends_with(&["no sender serves at", &elastic.at]);
}

#[test]
fn a_receiver_that_fails_at_once_does_not_end_others_that_have_it_all() {
    let elastic = Elastic::new(2);
    let tree = elastic.scene.dir(0).join("tree");
    fs::create_dir(&tree).unwrap();
    // One message is all, and the other receiver writes files long after it has come.
    (0..2000).for_each(|name| fs::write(tree.join(name.to_string()), "text").unwrap());
    fs::create_dir(elastic.scene.dir(1).join("tree")).unwrap();
    let options = ["--elastic", &elastic.at, "--timeout", "60"];
    let [unable, other] = [1, 2].map(|rank| start("receive", &elastic.scene.dir(rank), &options));
    let options = ["--elastic", &elastic.at, "--timeout", "5"];
    let sender = start("send", &tree, &options);
    unable.ends_with(&["tree"]);
    other.ends_well();
    sender.ends_well();
    let come = fs::read_dir(elastic.scene.dir(2).join("tree")).unwrap();
    assert_eq!(come.count(), 2000);
}

#[test]
fn a_signal_that_comes_when_the_transfer_is_being_given_up_counts() {
    let elastic = Elastic::new(2);
    let file = elastic.scene.dir(0).join("file");
    // All holes: more than is written before one is stopped.
    File::create(file).unwrap().set_len(1 << 30).unwrap();
    let [one, other] = [1, 2].map(|rank| elastic.receiver(rank));
    let sender = elastic.sender("100");
    let begun = Instant::now();
    one.stop_while_writing(&elastic.scene.dir(1));
    // The sender gives up, which takes as long as one is stopped.
    other.signal(Signal::SIGTERM);
    thread::sleep(Duration::from_secs(1));
    [&sender, &one].map(|process| process.signal(Signal::SIGTERM));
    thread::sleep(Duration::from_millis(200));
    one.signal(Signal::SIGCONT);
    other.ends_with(&["interrupted"]);
    one.ends_with(&["interrupted"]);
    sender.ends_with(&["the sender was interrupted"]);
    assert!(begun.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_sender_whom_nobody_hears_goes_on_and_ends_by_a_signal() {
    let elastic = Elastic::new(1);
    let file = elastic.scene.dir(0).join("file");
    fs::write(&file, "text").unwrap();
    let (stderr, _) = UnixStream::pair().unwrap();
    let options = ["--elastic", &elastic.at, "--timeout", "100"];
    let sender = start_mute(OwnedFd::from(stderr), "send", &file, &options);
    let begun = Instant::now();
    elastic.await_desk();
    sender.signal(Signal::SIGTERM);
    sender.ends_with_status(1);
    assert!(begun.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_receiver_that_can_say_nothing_is_well_if_it_has_it() {
    let elastic = Elastic::new(1);
    fs::write(elastic.scene.dir(0).join("file"), "text").unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let options = ["--elastic", &elastic.at, "--timeout", "60"];
    let receiver = start_mute(full, "receive", &elastic.scene.dir(1), &options);
    let sender = elastic.sender("5");
    receiver.ends_with_status(0);
    sender.ends_well();
    elastic.has_it(1);
}
