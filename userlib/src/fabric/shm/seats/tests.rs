// SPDX-License-Identifier: MIT OR Apache-2.0

//! A newcomer that is driven by hand.

use super::super::frame::Frame;
use super::super::memory::Memory;
use super::super::rendezvous::{abstract_name, address, dial, tell_met};
use super::inner::number_of;
use super::*;
use crate::fabric::NodeSet;
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::unistd::ftruncate;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

const REGION_BYTES: usize = 4096;
const HELLO: &[u8] = b"the same for all";
const SEATS: usize = 2;
const LONG: Duration = Duration::from_secs(10);

fn founder() -> (String, Connected) {
    let (name, nodes) = ShmSeats::threads(1, SEATS).expect("a fabric");
    let node = nodes.into_iter().next().expect("a founder");
    // SAFETY: nobody looks at the region.
    let connected = unsafe { node.connect(REGION_BYTES, HELLO, LONG) };
    (name, connected.expect("it meets nobody"))
}

/// The line of a newcomer that has called the founder and was answered.
fn called(name: &str, memory: &OwnedFd) -> UnixStream {
    let mut line = dial(name, 0).expect("a line");
    let call = Frame {
        rank: 1,
        nodes: number_of(HELLO),
        region_bytes: REGION_BYTES,
        incarnation: 7,
        ..Frame::new(Kind::Call)
    };
    assert!(call.send(&line, Some(memory)).is_ok());
    let answer = Frame::receive(&line).ok().map(|heard| heard.0);
    assert!(answer.is_some_and(|answer| answer.kind == Kind::Answer));
    line.read_exact(&mut [0; HELLO.len()]).expect("the hello");
    line
}

fn wait_for_a_caller(founder: &Connected) {
    let end = Instant::now() + LONG;
    while founder.endpoint.callers().is_empty() && Instant::now() < end {
        std::thread::sleep(rendezvous::RETRY);
    }
}

#[test]
fn a_newcomer_is_no_caller_before_it_can_post() {
    let (name, founder) = founder();
    // Given a newcomer that has called and was answered,
    let (_memory, fd) = Memory::create(REGION_BYTES).expect("memory");
    let line = called(&name, &fd);
    // when it takes its time,
    std::thread::sleep(Duration::from_millis(50));
    // then nobody admits it,
    let refusal = FabricError::NoCaller(1);
    assert_eq!(founder.endpoint.admit(1), Err(refusal));
    // until it has said that it knows the other one.
    tell_met(&line).expect("the line goes on");
    wait_for_a_caller(&founder);
    assert_eq!(founder.endpoint.admit(1), Ok(7));
}

/// Memory that nobody can map to write there.
fn memory_to_read() -> OwnedFd {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let fd = memfd_create(c"to-read", flags).expect("memory");
    ftruncate(&fd, 2 * 4096).expect("it has a length");
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_WRITE;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).expect("it is sealed");
    fd
}

#[test]
fn a_newcomer_whose_memory_cannot_be_mapped_is_hung_up_on() {
    let (name, founder) = founder();
    // Given a caller whose memory cannot be written,
    let mut line = called(&name, &memory_to_read());
    tell_met(&line).expect("the line goes on");
    wait_for_a_caller(&founder);
    // when it is to be admitted,
    let refusal = founder.endpoint.admit(1);
    assert!(
        matches!(refusal, Err(FabricError::System { .. })),
        "{refusal:?}"
    );
    // then it is no caller any more, and its line ends.
    assert_eq!(founder.endpoint.callers(), NodeSet::EMPTY);
    line.set_read_timeout(Some(LONG)).expect("a time");
    assert_eq!(line.read(&mut [0]).expect("its end"), 0);
}

/// Somebody who has a seat, and is stopped: what comes in stays where it is, and there is room for
/// little.
fn stopped(name: &str, seat: usize) -> UnixListener {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None);
    let listener = listener.expect("a socket");
    let name = abstract_name(name, seat);
    let address = UnixAddr::new_abstract(name.as_bytes()).expect("a name");
    socket::bind(listener.as_raw_fd(), &address).expect("the seat is free");
    let backlog = Backlog::new(3).expect("some room");
    socket::listen(&listener, backlog).expect("it listens");
    UnixListener::from(listener)
}

#[test]
fn where_all_are_stopped_a_newcomer_says_so_in_time() {
    let name = super::super::fresh_name();
    let _stopped = [0, 1].map(|seat| stopped(&name, seat));
    let (tell, told) = mpsc::channel();
    let newcomer = std::thread::spawn(move || {
        for _ in 0..8 {
            let newcomer = ShmSeats::newcomer(&name, SEATS, Duration::from_millis(20));
            tell.send(newcomer.err()).expect("it is heard");
        }
    });
    let missing = [0, 1].into_iter().collect();
    for _ in 0..8 {
        let refusal = told.recv_timeout(LONG).expect("an answer in time");
        assert_eq!(refusal, Some(FabricError::Timeout { missing }));
    }
    newcomer.join().expect("no panic");
}

#[test]
fn one_that_is_stopped_is_called_once() {
    const SEATS: usize = 3;
    let (name, nodes) = ShmSeats::threads(1, SEATS).expect("a fabric");
    let connect = |node: ShmSeats| {
        // SAFETY: nobody looks at the region.
        unsafe { node.connect(REGION_BYTES, HELLO, LONG) }.expect("it meets the others")
    };
    let _founder: Vec<_> = nodes.into_iter().map(connect).collect();
    // Given a seat whose holder is stopped,
    let stopped = stopped(&name, 1);
    // when a newcomer calls those who are there, and waits to be taken in,
    let newcomer = ShmSeats::newcomer_as(&name, SEATS, Newcomer::new(2, 7), LONG);
    let _newcomer = connect(newcomer.expect("the seat is free"));
    std::thread::sleep(Duration::from_millis(300));
    // then one line waits for the stopped one.
    let _line = stopped.accept().expect("a line");
    assert!(stopped.accept().is_err());
}

/// A listener of another user at a seat's name. None if this process may not be another user.
fn foreigner(name: &str, seat: usize) -> Option<UnixListener> {
    const NOBODY: libc::uid_t = 65534;
    let address = address(name, seat).expect("an address");
    let listening = std::thread::spawn(move || {
        // This thread alone: the C library's function changes all threads of a process.
        // SAFETY: it takes three numbers, and touches no memory.
        let answer = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        (answer == 0).then(|| UnixListener::bind_addr(&address).expect("the seat is free"))
    });
    let listener = listening.join().expect("no panic")?;
    listener.set_nonblocking(true).expect("a listener");
    Some(listener)
}

/// A process of another user has the seat 0, is called by a node, and is told nothing.
fn a_foreigner_is_told_nothing(find: impl FnOnce(&str)) {
    let name = super::super::fresh_name();
    let Some(listener) = foreigner(&name, 0) else {
        return eprintln!("skipped: this process may not be another user");
    };
    find(&name);
    while let Ok((line, _)) = listener.accept() {
        assert!(Frame::receive(&line).is_err(), "it was told something");
    }
}

#[test]
fn a_newcomer_tells_nobody_of_another_user_anything() {
    const SHORT: Duration = Duration::from_millis(50);
    let missing = [0].into_iter().collect();
    a_foreigner_is_told_nothing(|name| {
        let newcomer = ShmSeats::newcomer(name, SEATS, SHORT);
        assert!(matches!(newcomer, Err(FabricError::Timeout { .. })));
    });
    a_foreigner_is_told_nothing(|name| {
        let newcomer = ShmSeats::newcomer_as(name, SEATS, Newcomer::new(1, 7), SHORT);
        let newcomer = newcomer.expect("the seat is free");
        // SAFETY: nobody looks at the region.
        let refusal = unsafe { newcomer.connect(REGION_BYTES, HELLO, SHORT) };
        assert_eq!(refusal.err(), Some(FabricError::Timeout { missing }));
    });
    a_foreigner_is_told_nothing(|name| {
        let founder = ShmSeats::founder(name, 1, 2, SEATS).expect("a node");
        // SAFETY: nobody looks at the region.
        let refusal = unsafe { founder.connect(REGION_BYTES, HELLO, SHORT) };
        assert_eq!(refusal.err(), Some(FabricError::Timeout { missing }));
    });
}

#[test]
fn however_many_call_an_endpoint_ends_in_time() {
    let (name, founder) = founder();
    let is_over = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        // Given some who call again and again,
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(UnixStream::connect_addr(
                        &address(&name, 0).expect("an address"),
                    ));
                }
            });
        }
        std::thread::sleep(Duration::from_millis(50));
        // when the endpoint is dropped,
        scope.spawn(move || {
            drop(founder);
            tell.send(()).ok();
        });
        // then it ends all the same.
        let ended = told.recv_timeout(LONG);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(ended, Ok(()));
    });
}
