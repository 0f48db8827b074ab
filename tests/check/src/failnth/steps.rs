// SPDX-License-Identifier: MIT OR Apache-2.0

//! The calls of a worker's life, each prepared so that only the call itself is under
//! injection, and their documented errors (`weft_core::uapi`). `EFAULT` is the answer
//! to a user copy that fails, `ENOMEM` to an allocation.
//!
//! An attempt calls methods of all that was prepared for it: a closure that named single
//! fields would keep these alone, and let the peer's session go before the call.

use anyhow::Result;
use nix::errno::Errno;
use weft_core::uapi::{self, Pod, SendWr, Sge, WcStatus, OP_CAS, OP_READ, OP_WRITE, SEND_SIGNALED};

use super::{Attempt, Step};
use crate::raw::{buffer, message, request, Memory, Queue, Session};
use crate::world::{gid, Transport};

/// Bytes of the regions here: several pages, and several chunks of SoftDc.
const BYTES: usize = 64 << 10;
/// Everything that a region may allow.
const ACCESS: u32 = 0xf;

/// The port that messages go to.
const PORT: u32 = 77;

const CALL: &[Errno] = &[Errno::ENOMEM, Errno::EFAULT];

/// All of them, in the order of a worker's life.
pub const STEPS: [Step; 20] = [
    step("open", open),
    step("hello", hello),
    also_with_rc("hello, with rings and memory", start),
    also_with_rc("register", register),
    also_with_rc("bind a memory window", bind_window),
    step("create a VQP", create),
    step("map its rings", map),
    step("connect, cached", connect_cached),
    step("connect, looked up", connect_looked_up),
    also_by_rc("the first WRITE of a session", first_write),
    also_by_rc("a long WRITE", long_write),
    also_by_rc("a READ", read),
    also_by_rc("an atomic operation", atomic),
    only_by_rc("a READ that runs in the call", run_read),
    step("bind", bind),
    step("send and receive", send_and_receive),
    step("accept", accept),
    also_with_rc("deregister", deregister),
    also_by_rc("destroy a VQP with requests on their way", destroy),
    also_by_rc("close with everything open", close),
];

const fn step(name: &'static str, prepare: fn() -> Result<Attempt>) -> Step {
    Step {
        name,
        errnos: CALL,
        prepare,
        by: &[Transport::Usual],
        posts: false,
    }
}

/// A step that does something else once there is an RC queue pair.
const fn also_with_rc(name: &'static str, prepare: fn() -> Result<Attempt>) -> Step {
    Step {
        by: &[Transport::Usual, Transport::Rc],
        ..step(name, prepare)
    }
}

/// A step with requests, which go by the RC queue pair once there is one.
const fn also_by_rc(name: &'static str, prepare: fn() -> Result<Attempt>) -> Step {
    Step {
        posts: true,
        ..also_with_rc(name, prepare)
    }
}

/// A step that is refused without one.
const fn only_by_rc(name: &'static str, prepare: fn() -> Result<Attempt>) -> Step {
    Step {
        by: &[Transport::Rc],
        posts: true,
        ..step(name, prepare)
    }
}

fn open() -> Result<Attempt> {
    Ok(Box::new(|| match Session::bare() {
        Ok(session) => {
            drop(session);
            Ok(())
        }
        Err(error) => Err(errno_of(&error)),
    }))
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

fn hello() -> Result<Attempt> {
    let session = Session::bare()?;
    Ok(Box::new(move || session.hello(0)))
}

fn start() -> Result<Attempt> {
    let session = Session::bare()?;
    Ok(Box::new(move || session.start(0, BYTES as u32).map(drop)))
}

fn register() -> Result<Attempt> {
    let (session, memory) = (Session::open(0)?, touched()?);
    Ok(Box::new(move || {
        let whole = session.register(&memory, 0, BYTES as u64, ACCESS)?;
        session.deregister(whole.lkey)
    }))
}

fn bind_window() -> Result<Attempt> {
    let registered = Registered::new()?;
    Ok(Box::new(move || registered.bind_window()))
}

fn create() -> Result<Attempt> {
    let session = Session::open(0)?;
    Ok(Box::new(move || session.describe_vqp(16, 16).map(drop)))
}

fn map() -> Result<Attempt> {
    let session = Session::open(0)?;
    let said = session.describe_vqp(16, 16)?;
    Ok(Box::new(move || Queue::map(&session, &said).map(drop)))
}

fn connect_cached() -> Result<Attempt> {
    let session = Session::open(0)?;
    let known = session.create_vqp(4)?;
    session.qconnect(known, gid(1))?;
    let vqp = session.create_vqp(4)?;
    Ok(Box::new(move || session.qconnect(vqp, gid(1))))
}

fn connect_looked_up() -> Result<Attempt> {
    let session = Session::open(0)?;
    session.call_at(uapi::IOC_DCCACHE_FLUSH, 0)?;
    let vqp = session.create_vqp(4)?;
    Ok(Box::new(move || session.qconnect(vqp, gid(1))))
}

/// A session on node 0 with a region, a region on node 1, and a VQP between.
struct Pair {
    near: Session,
    _far: Session,
    local: Sge,
    remote: uapi::MrReg,
    queue: Queue,
    _memory: [Memory; 2],
}

impl Pair {
    fn new() -> Result<Self> {
        let (near, far) = (Session::open(0)?, Session::open(1)?);
        let memory = [touched()?, touched()?];
        let mine = near.register(&memory[0], 0, BYTES as u64, ACCESS)?;
        let remote = far.register(&memory[1], 0, BYTES as u64, ACCESS)?;
        let queue = near.queue(16, 0)?;
        near.qconnect(queue.vqp, gid(1))?;
        let local = Sge {
            addr: mine.addr,
            len: BYTES as u32,
            lkey: mine.lkey,
        };
        Ok(Self {
            near,
            _far: far,
            local,
            remote,
            queue,
            _memory: memory,
        })
    }

    /// Posts one request of `len` bytes, and waits.
    fn run(&self, opcode: u8, len: u32) -> Result<(), Errno> {
        let local = Sge { len, ..self.local };
        let mut wr = request(opcode, local, self.remote.addr, self.remote.rkey);
        wr.flags |= SEND_SIGNALED;
        succeeded(self.queue.outcome(&self.near, wr)?)
    }

    /// READs eight bytes in one call.
    fn run_read(&self) -> Result<(), Errno> {
        let run = uapi::Run {
            vqp: self.queue.vqp,
            opcode: OP_READ.into(),
            rkey: self.remote.rkey,
            remote_addr: self.remote.addr,
            local: Sge {
                len: 8,
                ..self.local
            },
            ..Pod::zeroed()
        };
        succeeded(self.near.run(&run)?)
    }

    /// Posts WRITEs that nobody waits for.
    fn leave_some(&self) -> Result<(), Errno> {
        let wr: SendWr = request(OP_WRITE, self.local, self.remote.addr, self.remote.rkey);
        self.queue
            .enter(&self.near, &[wr, wr, wr], &mut [], 0, 0)
            .map(drop)
    }
}

/// A completion with an error is no documented answer to memory that lacks.
fn succeeded(status: WcStatus) -> Result<(), Errno> {
    if status == WcStatus::Success {
        Ok(())
    } else {
        Err(Errno::EIO)
    }
}

fn touched() -> Result<Memory> {
    let memory = Memory::map(BYTES)?;
    (0..BYTES)
        .step_by(4096)
        .for_each(|at| memory.fill(at, &[1]));
    Ok(memory)
}

fn first_write() -> Result<Attempt> {
    let pair = Pair::new()?;
    Ok(Box::new(move || pair.run(OP_WRITE, 8)))
}

/// One request of so many bytes on a VQP that was used before.
fn used(opcode: u8, len: u32) -> Result<Attempt> {
    let pair = Pair::new()?;
    pair.run(OP_WRITE, 8)?;
    Ok(Box::new(move || pair.run(opcode, len)))
}

fn long_write() -> Result<Attempt> {
    used(OP_WRITE, BYTES as u32)
}

fn read() -> Result<Attempt> {
    used(OP_READ, BYTES as u32)
}

fn atomic() -> Result<Attempt> {
    used(OP_CAS, 8)
}

fn run_read() -> Result<Attempt> {
    let pair = Pair::new()?;
    pair.run(OP_WRITE, 8)?;
    Ok(Box::new(move || pair.run_read()))
}

fn bind() -> Result<Attempt> {
    let session = Session::open(1)?;
    let queue = session.queue(4, 4)?;
    Ok(Box::new(move || session.qbind(queue.vqp, PORT)))
}

/// A bound VQP on node 1 with room for messages, and one on node 0 that sends to it.
struct Mail {
    near: Session,
    far: Session,
    sender: Queue,
    receiver: Queue,
    into: Sge,
    _memory: Memory,
}

impl Mail {
    fn new() -> Result<Self> {
        let (near, far) = (Session::open(0)?, Session::open(1)?);
        let memory = touched()?;
        let reg = far.register(&memory, 0, BYTES as u64, ACCESS)?;
        let receiver = far.queue(4, 8)?;
        far.qbind(receiver.vqp, PORT)?;
        let sender = near.queue(8, 0)?;
        near.qconnect_port(sender.vqp, gid(1), PORT)?;
        let into = Sge {
            addr: reg.addr,
            len: 4096,
            lkey: reg.lkey,
        };
        Ok(Self {
            near,
            far,
            sender,
            receiver,
            into,
            _memory: memory,
        })
    }

    /// Sends one message; answers who sent it, as the receiver sees it.
    fn deliver(&self) -> Result<u32, Errno> {
        if !self.receiver.post_recv(&buffer(1, self.into)) {
            return Err(Errno::ENOSPC);
        }
        succeeded(self.sender.outcome(&self.near, message(b"fail-nth"))?)?;
        Ok(self.receiver.next(&self.far)?.src)
    }

    fn accept(&self, src: u32) -> Result<(), Errno> {
        self.far.accept(self.receiver.vqp, src, 4).map(drop)
    }
}

fn send_and_receive() -> Result<Attempt> {
    let mail = Mail::new()?;
    Ok(Box::new(move || mail.deliver().map(drop)))
}

fn accept() -> Result<Attempt> {
    let mail = Mail::new()?;
    let src = mail.deliver()?;
    Ok(Box::new(move || mail.accept(src)))
}

/// A session with a region.
struct Registered {
    session: Session,
    reg: Option<uapi::MrReg>,
    _memory: Memory,
}

impl Registered {
    fn new() -> Result<Self> {
        let (session, memory) = (Session::open(0)?, touched()?);
        let reg = session.register(&memory, 0, BYTES as u64, ACCESS)?;
        Ok(Self {
            session,
            reg: Some(reg),
            _memory: memory,
        })
    }

    /// Binds a window to all of it, which ends again.
    fn bind_window(&self) -> Result<(), Errno> {
        let region = self.reg.as_ref().ok_or(Errno::ENOENT)?;
        let rights = uapi::ACCESS_REMOTE_READ;
        let window = self.session.bind_window(region, 0, BYTES as u64, rights)?;
        self.session.deregister(window.rkey)
    }

    /// Once: the next try of a call that went well has nothing to do.
    fn deregister(&mut self) -> Result<(), Errno> {
        if let Some(reg) = &self.reg {
            self.session.deregister(reg.lkey)?;
        }
        self.reg = None;
        Ok(())
    }
}

fn deregister() -> Result<Attempt> {
    let mut registered = Registered::new()?;
    Ok(Box::new(move || registered.deregister()))
}

fn destroy() -> Result<Attempt> {
    let pair = Pair::new()?;
    pair.leave_some()?;
    let mut is_gone = false;
    Ok(Box::new(move || {
        if !is_gone {
            pair.near.destroy_vqp_alone(pair.queue.vqp)?;
        }
        is_gone = true;
        pair.near.destroy_rings_of(pair.queue.vqp)
    }))
}

/// Nobody hears of an error of close: what counts is what it leaves behind.
fn close() -> Result<Attempt> {
    let (pair, mail) = (Pair::new()?, Mail::new()?);
    pair.leave_some()?;
    mail.deliver()?;
    let mut open = Some((pair, mail));
    Ok(Box::new(move || {
        drop(open.take());
        Ok(())
    }))
}
