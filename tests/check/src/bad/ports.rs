// SPDX-License-Identifier: MIT OR Apache-2.0

//! QBIND and ACCEPT: ports that are none, VQPs that cannot be bound, senders that
//! nobody knows; and messages that cannot be delivered.

use anyhow::{ensure, Result};
use nix::errno::Errno;
use weft_core::uapi::{self, Pod, RecvWr, Sge, Wc, WcStatus, MAX_PORT, SRC_NONE, WC_RECV};

use super::{expect, refused};
use crate::raw::{buffer, message, vqp_on, Memory, Queue, Session};
use crate::world::gid;
use weft_testkit::report::Report;

const PORT: u32 = 4711;
const WAIT_NS: u64 = 5_000_000_000;

/// All checks of ports and messages.
pub fn run(report: &mut Report) -> Result<()> {
    binding(report)?;
    accepting(report)?;
    for (name, bad, statuses) in buffers() {
        let name = format!("{name}: {:?}", statuses[0]);
        report.check(&name, || bad_buffer(bad, statuses));
    }
    report.check("a port where nobody listens: RetryExcErr", || {
        let near = Session::open(0)?;
        ends(&near, PORT + 7, WcStatus::RetryExcErr)
    });
    report.check("a receiver without buffers: RnrRetryExcErr", || {
        let (near, far) = (Session::open(0)?, Session::open(1)?);
        let bound = far.queue(4, 4)?;
        far.qbind(bound.vqp, PORT)?;
        ends(&near, PORT, WcStatus::RnrRetryExcErr)
    });
    Ok(())
}

fn binding(report: &mut Report) -> Result<()> {
    let session = Session::open(1)?;
    let bound_queue = session.queue(4, 4)?;
    let bound = bound_queue.vqp;
    session.qbind(bound, PORT)?;
    let (fresh, deaf) = (session.describe_vqp(4, 4)?.vqp, session.create_vqp(4)?);
    let connected = session.describe_vqp(4, 4)?.vqp;
    session.qconnect(connected, gid(0))?;
    let mut bad = |name: &str, wanted, vqp, port| {
        refused(report, name, wanted, || session.qbind(vqp, port));
    };
    bad("binding no VQP", Errno::EBADF, 99, PORT + 1);
    bad("binding to port 0", Errno::EINVAL, fresh, 0);
    bad(
        "binding to a port too high",
        Errno::EINVAL,
        fresh,
        MAX_PORT + 1,
    );
    bad("binding to port 4294967295", Errno::EINVAL, fresh, u32::MAX);
    bad(
        "binding a VQP that cannot receive",
        Errno::EINVAL,
        deaf,
        PORT + 1,
    );
    bad(
        "binding a connected VQP",
        Errno::EINVAL,
        connected,
        PORT + 1,
    );
    bad("binding twice", Errno::EINVAL, bound, PORT + 1);
    bad("binding to a port in use", Errno::EADDRINUSE, fresh, PORT);
    refused(report, "connecting a bound VQP", Errno::EINVAL, || {
        session.qconnect(bound, gid(0))
    });
    refused(
        report,
        "connecting to a port too high",
        Errno::EINVAL,
        || session.qconnect_port(fresh, gid(0), MAX_PORT + 1),
    );
    refused(report, "posting on a bound VQP", Errno::ENOTCONN, || {
        bound_queue.enter(&session, &[message(&[1])], &mut [], 0, 0)
    });
    report.check("a port is free again when its VQP has gone", || {
        session.destroy_vqp(bound)?;
        session.qbind(fresh, PORT)?;
        Ok(session.destroy_vqp(fresh)?)
    });
    Ok(())
}

fn accepting(report: &mut Report) -> Result<()> {
    let (session, other) = (Session::open(1)?, Session::open(1)?);
    let (bound, fresh) = (session.describe_vqp(4, 4)?.vqp, session.create_vqp(4)?);
    session.qbind(bound, PORT)?;
    let accept = |session: &Session, bound, src, max_send_wr| {
        let rings = session.create_rings(4, 0)?;
        let vqp = uapi::VqpCreate {
            max_send_wr,
            rq: uapi::RINGS_NONE,
            ..vqp_on(&rings)
        };
        session.call(uapi::IOC_ACCEPT, &mut uapi::Accept { vqp, bound, src })
    };
    for src in [0, 1, 511, 512, u32::MAX - 1, SRC_NONE] {
        refused(
            report,
            &format!("accepting sender {src}"),
            Errno::ENOENT,
            || accept(&session, bound, src, 4),
        );
    }
    refused(
        report,
        "accepting on a VQP that is not bound",
        Errno::EINVAL,
        || accept(&session, fresh, 0, 4),
    );
    refused(report, "accepting on no VQP", Errno::EBADF, || {
        accept(&session, 99, 0, 4)
    });
    refused(
        report,
        "accepting on another session's VQP",
        Errno::EBADF,
        || accept(&other, bound, 0, 4),
    );
    report.check("a sender that is known: only a VQP that can be", || {
        let near = Session::open(0)?;
        let listener = Listener::bind(PORT + 1)?;
        listener.post(listener.buffer());
        ends(&near, PORT + 1, WcStatus::Success)?;
        let src = listener.message()?.src;
        let vqp = listener.queue.vqp;
        expect(Errno::EINVAL, || accept(&listener.session, vqp, src, 0))?;
        expect(Errno::ENOENT, || accept(&listener.session, vqp, src ^ 1, 4))?;
        Ok(accept(&listener.session, vqp, src, 4)?)
    });
    Ok(())
}

/// A bound VQP on node 1, with memory.
struct Listener {
    session: Session,
    queue: Queue,
    memory: Memory,
    lkey: u32,
    lkey_read_only: u32,
}

impl Listener {
    fn bind(port: u32) -> Result<Self> {
        let session = Session::open(1)?;
        let memory = Memory::map(4096)?;
        let queue = session.queue(4, 4)?;
        session.qbind(queue.vqp, port)?;
        Ok(Self {
            lkey: session.register(&memory, 0, 4096, 1)?.lkey,
            lkey_read_only: session.register(&memory, 0, 4096, 0)?.lkey,
            session,
            queue,
            memory,
        })
    }

    /// One that is all right.
    fn buffer(&self) -> RecvWr {
        let local = Sge {
            addr: self.memory.addr(),
            len: 64,
            lkey: self.lkey,
        };
        buffer(5, local)
    }

    fn post(&self, wr: RecvWr) {
        self.queue.post_recv(&wr);
    }

    fn message(&self) -> Result<Wc> {
        let mut wcs = [Wc::zeroed()];
        self.session.enter(self.queue.vqp, 0, 1, WAIT_NS)?;
        ensure!(self.queue.take(&mut wcs) == 1, "no message came");
        let wc = wcs[0];
        ensure!((wc.wr_id, wc.opcode) == (5, WC_RECV), "it is {wc:?}");
        Ok(wc)
    }
}

/// Sends 8 bytes to a port of node 1, which ends so.
fn ends(near: &Session, port: u32, wanted: WcStatus) -> Result<()> {
    let queue = near.queue(4, 0)?;
    near.qconnect_port(queue.vqp, gid(1), port)?;
    let mut wcs = [Wc::zeroed()];
    let done = queue.enter(near, &[message(&[0; 8])], &mut wcs, 1, WAIT_NS)?;
    ensure!(done == (1, 1), "it did {done:?}");
    let status = wcs[0].status;
    ensure!(status == wanted as u16, "the sender got status {status}");
    Ok(near.destroy_vqp(queue.vqp)?)
}

type Bad = fn(&Listener, &mut RecvWr);

/// What is wrong with a receive buffer, how it ends, and how its message does.
fn buffers() -> [(&'static str, Bad, [WcStatus; 2]); 7] {
    [
        (
            "a buffer of four elements",
            |_, wr| wr.num_sge = 4,
            [WcStatus::LocQpOpErr, WcStatus::RemOpErr],
        ),
        (
            "a buffer of many elements",
            |_, wr| wr.num_sge = u32::MAX,
            [WcStatus::LocQpOpErr, WcStatus::RemOpErr],
        ),
        (
            "a buffer with a reserved field",
            |_, wr| wr.reserved = 1,
            [WcStatus::LocQpOpErr, WcStatus::RemOpErr],
        ),
        (
            "a buffer that is too short",
            |_, wr| wr.sges[0].len = 7,
            [WcStatus::LocLenErr, WcStatus::RemInvReqErr],
        ),
        (
            "a buffer with a wrong lkey",
            |_, wr| wr.sges[0].lkey ^= 1,
            [WcStatus::LocProtErr, WcStatus::RemOpErr],
        ),
        (
            "a buffer outside of its region",
            |_, wr| wr.sges[0].addr += 4090,
            [WcStatus::LocProtErr, WcStatus::RemOpErr],
        ),
        (
            "a buffer that may not be written",
            |listener, wr| wr.sges[0].lkey = listener.lkey_read_only,
            [WcStatus::LocProtErr, WcStatus::RemOpErr],
        ),
    ]
}

/// The receiver's fault is the receiver's completion; the sender learns that the
/// peer could not carry it out.
fn bad_buffer(bad: Bad, [receiver, sender]: [WcStatus; 2]) -> Result<()> {
    let (near, listener) = (Session::open(0)?, Listener::bind(PORT)?);
    let mut wr = listener.buffer();
    bad(&listener, &mut wr);
    listener.post(wr);
    ends(&near, PORT, sender)?;
    let got = listener.message()?.status;
    ensure!(got == receiver as u16, "the receiver got status {got}");
    // The port goes on, for others.
    listener.post(listener.buffer());
    ends(&near, PORT, WcStatus::Success)
}
