// SPDX-License-Identifier: MIT OR Apache-2.0

//! Descriptors that more than one process has had.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags};
use weft_core::uapi::{MrReg, Pod, Sge, WcStatus, ACCESS_ALL, OP_WRITE};
use weft_shim::{Device, Remote};

use super::peer::Peer;
use super::Turns;
use crate::isolation::users::{become_user, in_child, wait, NOBODY};
use crate::raw::{request, Memory, Session};
use crate::world::{counter, gid, wait_for, SETTLE};

const PAGES: usize = 16;
const BYTES: usize = PAGES * 4096;
const PARENTS: u8 = 1;
const CHILDS: u8 = 99;

fn filled(byte: u8) -> Result<Memory> {
    let memory = Memory::map(BYTES)?;
    memory.fill(0, &[byte; BYTES]);
    Ok(memory)
}

fn register(session: &Session, memory: &Memory) -> Result<MrReg> {
    Ok(session.register(memory, 0, BYTES as u64, ACCESS_ALL)?)
}

/// Writes the region's first byte to the peer.
fn write(session: &Session, reg: &MrReg, to: Remote) -> Result<WcStatus> {
    let near = Sge {
        addr: reg.addr,
        len: 1,
        lkey: reg.lkey,
    };
    let wr = request(OP_WRITE, near, to.addr, to.rkey);
    Ok(session.outcome(gid(1), wr)?)
}

/// The child's own session knows nothing of the parent's regions; the parent's
/// session does, and names the parent's memory.
pub(super) fn inherited() -> Result<()> {
    let (session, memory, peer) = (Session::open(0)?, filled(PARENTS)?, Peer::new()?);
    let reg = register(&session, &memory)?;
    let to = peer.remote();
    let child = in_child(|| {
        memory.fill(0, &[CHILDS; BYTES]);
        let own = Session::open(0)?;
        let status = write(&own, &reg, to)?;
        ensure!(
            status == WcStatus::LocProtErr,
            "in its own session: {status:?}"
        );
        let gone = own.deregister(reg.lkey);
        ensure!(
            gone == Err(Errno::ENOENT),
            "deregistration in its own session: {gone:?}"
        );
        let status = write(&session, &reg, to)?;
        ensure!(
            status == WcStatus::Success,
            "in the parent's session: {status:?}"
        );
        Ok(session.deregister(reg.lkey)?)
    })?;
    wait(child)?;
    let got = peer.got()?;
    ensure!(got == PARENTS, "the peer got {got}");
    let again = session.deregister(reg.lkey);
    ensure!(
        again == Err(Errno::ENOENT),
        "deregistering it again: {again:?}"
    );
    Ok(())
}

/// The session owns the region; the dead child's pages stay until it lets go.
pub(super) fn bequest() -> Result<()> {
    let (session, peer) = (Session::open(0)?, Peer::new()?);
    let (ours, theirs) = UnixStream::pair()?;
    let before = counter("pinned_pages")?;
    let child = in_child(|| {
        let memory = filled(CHILDS)?;
        send_reg(&theirs, &register(&session, &memory)?)
    })?;
    let reg = receive_reg(&ours)?;
    wait(child)?;
    let pinned = counter("pinned_pages")? - before;
    ensure!(pinned == PAGES as i64, "{pinned} pages are pinned");
    let seen = peer.read(&reg, 0)?;
    ensure!(seen == CHILDS, "the peer reads {seen}");
    let status = write(&session, &reg, peer.remote())?;
    ensure!(status == WcStatus::Success, "the parent: {status:?}");
    session.deregister(reg.lkey)?;
    let left = counter("pinned_pages")? - before;
    ensure!(left == 0, "{left} pages are pinned after deregistration");
    Ok(())
}

/// The maker dies, its child keeps the descriptor.
pub(super) fn orphan() -> Result<()> {
    // The grandchild becomes ours when its parent dies.
    set_child_subreaper(true)?;
    let peer = Peer::new()?;
    let (sessions, pages) = (counter("sessions")?, counter("pinned_pages")?);
    let (ours, theirs) = UnixStream::pair()?;
    let (turns, heirs) = Turns::pair()?;
    let maker = in_child(|| {
        let (session, memory) = (Session::open(0)?, filled(PARENTS)?);
        let reg = register(&session, &memory)?;
        // The heir holds the descriptor and waits.
        in_child(|| heirs.take())?;
        send_reg(&theirs, &reg)
    })?;
    let reg = receive_reg(&ours)?;
    wait(maker)?;
    let now = (
        counter("sessions")? - sessions,
        counter("pinned_pages")? - pages,
    );
    ensure!(
        now == (1, PAGES as i64),
        "(sessions, pages) are {now:?} after the maker's death"
    );
    let seen = peer.read(&reg, 0)?;
    ensure!(seen == PARENTS, "the peer reads {seen}");
    turns.pass()?;
    nix::sys::wait::wait()?;
    wait_for("the session ends", SETTLE, || {
        Ok(counter("sessions")? == sessions && counter("pinned_pages")? == pages)
    })
}

/// Another user's process gets the descriptor, and with it the session.
pub(super) fn passed_on() -> Result<()> {
    let peer = Peer::new()?;
    let to = peer.remote();
    let (ours, theirs) = UnixStream::pair()?;
    let child = in_child(|| {
        become_user(NOBODY)?;
        let reg = receive_reg(&theirs)?;
        let session = Session::of(receive_fd(&theirs)?);
        let again = session.hello(0);
        ensure!(
            again == Err(Errno::EALREADY),
            "it says hello again: {again:?}"
        );
        let status = write(&session, &reg, to)?;
        ensure!(
            status == WcStatus::Success,
            "with what it was given: {status:?}"
        );
        let status = write(&Session::open(0)?, &reg, to)?;
        ensure!(status == WcStatus::LocProtErr, "without: {status:?}");
        Ok(())
    })?;
    let (session, memory) = (Session::open(0)?, filled(PARENTS)?);
    let reg = register(&session, &memory)?;
    send_reg(&ours, &reg)?;
    send_fd(&ours, session.as_fd().as_raw_fd())?;
    wait(child)?;
    let got = peer.got()?;
    ensure!(got == PARENTS, "the peer got {got}");
    // What others did with their descriptors has not ended ours.
    Ok(session.deregister(reg.lkey)?)
}

/// Nobody holds it but a socket's queue; then not even that, but a circle.
pub(super) fn in_flight() -> Result<()> {
    for circle in [false, true] {
        let (sessions, pages) = (counter("sessions")?, counter("pinned_pages")?);
        let (a, b) = UnixStream::pair()?;
        let (session, memory) = (Session::open(0)?, filled(PARENTS)?);
        register(&session, &memory)?;
        send_fd(&a, session.as_fd().as_raw_fd())?;
        if circle {
            send_fd(&a, b.as_raw_fd())?;
        }
        drop(session);
        let now = (
            counter("sessions")? - sessions,
            counter("pinned_pages")? - pages,
        );
        ensure!(
            now == (1, PAGES as i64),
            "(sessions, pages) are {now:?} on the way"
        );
        drop((a, b));
        wait_for("the session ends with its socket", SETTLE, || {
            // The kernel looks for circles when a socket is closed; it may have looked
            // before the second of these two was.
            drop(UnixStream::pair()?);
            Ok(counter("sessions")? == sessions && counter("pinned_pages")? == pages)
        })?;
    }
    Ok(())
}

/// A program that is started has no descriptor of ours.
pub(super) fn exec() -> Result<()> {
    let _sessions = (Device::open_on(0)?, Session::open(0)?);
    let list = |command: &mut Command| -> Result<String> {
        let output = command.output()?;
        ensure!(output.status.success(), "ls: {}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    };
    let own = format!("/proc/{}/fd", std::process::id());
    let ours = list(Command::new("ls").args(["-l", &own]))?;
    ensure!(ours.matches("/dev/weft").count() == 2, "we have {ours}");
    let theirs = list(Command::new("ls").args(["-l", "/proc/self/fd"]))?;
    ensure!(!theirs.contains("/dev/weft"), "the program has {theirs}");
    Ok(())
}

// ---- messages ----

fn send_reg(socket: &UnixStream, reg: &MrReg) -> Result<()> {
    use std::io::Write as _;
    let mut socket = socket;
    Ok(socket.write_all(reg.as_bytes())?)
}

fn receive_reg(socket: &UnixStream) -> Result<MrReg> {
    use std::io::Read as _;
    let (mut socket, mut reg) = (socket, MrReg::zeroed());
    socket.set_read_timeout(Some(super::PATIENCE))?;
    socket.read_exact(reg.as_bytes_mut())?;
    Ok(reg)
}

fn send_fd(socket: &UnixStream, fd: RawFd) -> Result<()> {
    let fds = [fd];
    let rights = [ControlMessage::ScmRights(&fds)];
    let bytes = [IoSlice::new(&[1])];
    sendmsg::<()>(socket.as_raw_fd(), &bytes, &rights, MsgFlags::empty(), None)?;
    Ok(())
}

fn receive_fd(socket: &UnixStream) -> Result<OwnedFd> {
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut bytes, Some(&mut space), flags)?;
    let fd = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
        _ => None,
    });
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd.context("no descriptor came")?) })
}
