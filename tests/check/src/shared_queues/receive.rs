// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive rings: one that VQPs share, and one of a VQP's own beside others on the same
//! completion ring.

use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{
    self, Accept, MrReg, Pod, RingsCreate, SendWr, Sge, VqpCreate, Wc, WcStatus, OP_SEND,
    RINGS_NONE, VQP_SHARED_RECEIVE,
};

use super::scene::{all_good, ended, signaled, with_bad_key, Scene, PATIENCE_NS};
use crate::raw::{buffer, message, request, Field, Memory, Queue, Session};
use crate::two_sided::ends::new_port;
use crate::world::{counter, gid, wait_for};

use WcStatus::{RemAccessErr, Success, WrFlushErr};

/// Bytes of a buffer.
const ROOM: usize = 64;
const BUFFERS: usize = 64;
/// Bytes of a long message.
const LONG: usize = 4 << 20;
/// Nothing here takes longer, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Times that a message may be there before its receiver goes.
const TRIES: usize = 5;

/// VQPs on node 1 that are bound and share a receive ring.
struct Ears {
    session: Session,
    rings: RingsCreate,
    queue: Queue,
    memory: Memory,
    region: MrReg,
    /// Each with its port.
    bound: Vec<(u32, u32)>,
}

impl Ears {
    fn new(count: usize, max_wc: u32, bytes: usize) -> Result<Self> {
        let session = Session::open(1)?;
        let rings = session.make_rings(16, max_wc, BUFFERS as u32)?;
        let memory = Memory::map(bytes)?;
        let mut this = Self {
            queue: Queue::of_rings(&session, &rings)?,
            region: session.register(&memory, 0, bytes as u64, uapi::ACCESS_ALL)?,
            rings,
            memory,
            session,
            bound: Vec::new(),
        };
        for _ in 0..count {
            let vqp = this.session.make_vqp(this.shared())?;
            let port = new_port();
            this.session.qbind(vqp, port)?;
            this.bound.push((vqp, port));
        }
        Ok(this)
    }

    /// A VQP that shares the ring, to be made.
    fn shared(&self) -> VqpCreate {
        VqpCreate {
            cq: self.rings.rings,
            rq: self.rings.rings,
            max_send_wr: 8,
            flags: VQP_SHARED_RECEIVE,
            ..Pod::zeroed()
        }
    }

    /// Posts buffers with these numbers, each at its number's place.
    fn post(&self, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
        for n in numbers {
            let into = Sge {
                addr: self.region.addr + (n % BUFFERS * ROOM) as u64,
                len: ROOM as u32,
                lkey: self.region.lkey,
            };
            ensure!(
                self.queue.post_recv(&buffer(n as u64, into)),
                "no room for buffer {n}"
            );
        }
        Ok(())
    }

    fn collect(&self, count: usize) -> Result<Vec<Wc>> {
        let mut all = Vec::new();
        while all.len() < count {
            self.session
                .enter_rings(self.rings.rings, 0, 1, PATIENCE_NS)?;
            let mut wcs = [Wc::zeroed()];
            ensure!(
                self.queue.take(&mut wcs) == 1,
                "{} of {count} came",
                all.len()
            );
            all.push(wcs[0]);
        }
        Ok(all)
    }

    fn is_quiet(&self) -> Result<()> {
        let mut wcs = [Wc::zeroed()];
        ensure!(self.queue.take(&mut wcs) == 0, "there is {:?}", wcs[0]);
        Ok(())
    }

    /// Buffers that the module has taken.
    fn taken(&self) -> u32 {
        self.queue
            .index(Field::RqHead)
            .load(std::sync::atomic::Ordering::Acquire)
    }

    /// VQPs of node 0 that send to the ports.
    fn senders(&self, scene: &Scene) -> Result<Vec<u32>> {
        let sender = |(_, port): &(u32, u32)| {
            let arg = VqpCreate {
                gid: gid(1),
                port: *port,
                ..scene.vqp_arg(32)
            };
            Ok(scene.session.make_vqp(arg)?)
        };
        self.bound.iter().map(sender).collect()
    }
}

/// A message with this number.
fn numbered(vqp: u32, n: usize) -> SendWr {
    SendWr {
        vqp,
        wr_id: n as u64,
        ..message(&(n as u64).to_ne_bytes())
    }
}

fn number_in(ears: &Ears, wc: &Wc) -> u64 {
    let bytes = ears.memory.bytes(wc.wr_id as usize % BUFFERS * ROOM, 8);
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Messages for four VQPs, one after the other, take buffers in the order in which they
/// were posted.
pub fn in_turn() -> Result<()> {
    const MESSAGES: usize = 150;
    let (scene, ears) = (Scene::new(16, 16, 0)?, Ears::new(4, 128, BUFFERS * ROOM)?);
    let senders = ears.senders(&scene)?;
    ears.post(0..BUFFERS)?;
    for n in 0..MESSAGES {
        let at = n * 7 / 3 % 4;
        all_good(&scene.drive(&[numbered(senders[at], n)], 1)?)?;
        let wc = ears.collect(1)?[0];
        ensure!(
            (wc.wr_id, wc.status, wc.byte_len) == (n as u64, Success as u16, 8),
            "message {n} is in {wc:?}"
        );
        ensure!(
            wc.vqp == ears.bound[at].0,
            "message {n} is another VQP's: {wc:?}"
        );
        ensure!(
            number_in(&ears, &wc) == n as u64,
            "message {n} is another one"
        );
        ears.post([n + BUFFERS])?;
    }
    ears.is_quiet()
}

/// Messages for four VQPs at once: each takes a buffer of its own, and those of a sender
/// come in order.
pub fn at_once() -> Result<()> {
    const EACH: usize = 16;
    let (scene, ears) = (Scene::new(64, 64, 0)?, Ears::new(4, 128, BUFFERS * ROOM)?);
    let senders = ears.senders(&scene)?;
    for round in 0..20 {
        ears.post(0..BUFFERS)?;
        let wrs: Vec<SendWr> = (0..4 * EACH).map(|n| numbered(senders[n % 4], n)).collect();
        all_good(&scene.drive(&wrs, wrs.len())?)?;
        let wcs = ears.collect(wrs.len())?;
        all_good(&wcs)?;
        let mut buffers: Vec<u64> = wcs.iter().map(|wc| wc.wr_id).collect();
        buffers.sort_unstable();
        ensure!(
            buffers.into_iter().eq(0..BUFFERS as u64),
            "round {round}: a buffer came twice"
        );
        for (at, (vqp, _)) in ears.bound.iter().enumerate() {
            let own = wcs.iter().filter(|wc| wc.vqp == *vqp);
            let numbers: Vec<u64> = own.map(|wc| number_in(&ears, wc)).collect();
            let wanted = (0..EACH).map(|n| (4 * n + at) as u64);
            ensure!(
                wanted.eq(numbers.iter().copied()),
                "round {round}: VQP {at} has {numbers:?}"
            );
        }
    }
    Ok(())
}

/// Without a place for a completion there no message is taken, and none is lost.
pub fn full() -> Result<()> {
    let (scene, ears) = (Scene::new(64, 64, 0)?, Ears::new(2, 4, BUFFERS * ROOM)?);
    let senders = ears.senders(&scene)?;
    ears.post(0..32)?;
    let before = counter("not_ready")?;
    let wrs: Vec<SendWr> = (0..32).map(|n| numbered(senders[n % 2], n)).collect();
    scene.post_all(&wrs)?;
    wait_for("a message meets no place", PATIENCE, || {
        Ok(counter("not_ready")? > before)
    })?;
    ensure!(ears.taken() == 4, "{} buffers were taken", ears.taken());
    let wcs = ears.collect(wrs.len())?;
    all_good(&wcs)?;
    let numbers: Vec<u64> = wcs.iter().map(|wc| wc.wr_id).collect();
    ensure!(numbers.iter().copied().eq(0..32), "{numbers:?}");
    all_good(&scene.collect(wrs.len())?)
}

/// VQPs share a receive ring, and their completions go to rings of their own: one of those is
/// full, which holds up the messages of its VQP alone.
pub fn different_rings() -> Result<()> {
    const MESSAGES: usize = 8;
    let (scene, ears) = (Scene::new(64, 64, 0)?, Ears::new(0, 0, BUFFERS * ROOM)?);
    let mut ends = Vec::new();
    for room in [BUFFERS as u32, 2] {
        let to = ears.session.make_rings(0, room, 0)?;
        let queue = Queue::of_rings(&ears.session, &to)?;
        let arg = VqpCreate {
            cq: to.rings,
            ..ears.shared()
        };
        let (vqp, port) = (ears.session.make_vqp(arg)?, new_port());
        ears.session.qbind(vqp, port)?;
        let arg = VqpCreate {
            gid: gid(1),
            port,
            ..scene.vqp_arg(32)
        };
        ends.push((queue, vqp, scene.session.make_vqp(arg)?));
    }
    ears.post(0..2 * MESSAGES)?;
    let numbered = |at: usize, n| numbered(ends[at].2, n);
    let before = counter("not_ready")?;
    let wrs: Vec<SendWr> = (0..MESSAGES).map(|n| numbered(1, n)).collect();
    scene.post_all(&wrs)?;
    wait_for("a message meets no place", PATIENCE, || {
        Ok(counter("not_ready")? > before)
    })?;
    ensure!(ears.taken() == 2, "{} buffers were taken", ears.taken());
    let wrs: Vec<SendWr> = (0..MESSAGES).map(|n| numbered(0, n)).collect();
    scene.post_all(&wrs)?;
    let mut buffers = Vec::new();
    for (queue, vqp, _) in &ends {
        for n in 0..MESSAGES {
            let rings = queue.said.of_rings.rings;
            ears.session.enter_rings(rings, 0, 1, PATIENCE_NS)?;
            let mut wcs = [Wc::zeroed()];
            ensure!(queue.take(&mut wcs) == 1, "message {n} has not come");
            let wc = wcs[0];
            ensure!((wc.vqp, wc.status) == (*vqp, 0), "message {n}: {wc:?}");
            ensure!(
                number_in(&ears, &wc) == n as u64,
                "message {n} is another one"
            );
            buffers.push(wc.wr_id);
        }
    }
    buffers.sort_unstable();
    ensure!(
        buffers.iter().copied().eq(0..2 * MESSAGES as u64),
        "the buffers {buffers:?} were taken"
    );
    all_good(&scene.collect(2 * MESSAGES)?)?;
    // The receive ring is in use as long as one of them is there.
    for (_, vqp, _) in &ends {
        let refused = ears.session.destroy_rings(ears.rings.rings);
        ensure!(refused == Err(Errno::EBUSY), "destroying it: {refused:?}");
        ears.session.destroy_vqp(*vqp)?;
    }
    Ok(ears.session.destroy_rings(ears.rings.rings)?)
}

/// A VQP on the ears' rings that is connected to the sender of a message.
fn accepted(scene: &Scene, ears: &Ears, vqp: VqpCreate) -> Result<u32> {
    let (bound, port) = ears.bound[0];
    let arg = VqpCreate {
        gid: gid(1),
        port,
        ..scene.vqp_arg(8)
    };
    let sender = scene.session.make_vqp(arg)?;
    all_good(&scene.drive(&[numbered(sender, 0)], 1)?)?;
    let src = ears.collect(1)?[0].src;
    let mut accept = Accept { vqp, bound, src };
    ears.session.call(uapi::IOC_ACCEPT, &mut accept)?;
    Ok(accept.vqp.vqp)
}

/// Puts a VQP into error by a WRITE with a bad key.
fn break_it(ears: &Ears, vqp: u32) -> Result<()> {
    let local = Sge {
        addr: ears.region.addr,
        len: 8,
        lkey: ears.region.lkey,
    };
    let bad = with_bad_key(request(
        uapi::OP_WRITE,
        local,
        ears.region.addr,
        ears.region.rkey,
    ));
    let bad = SendWr {
        vqp,
        ..signaled(bad, 77)
    };
    let rings = ears.rings.rings;
    ears.queue.submit(&ears.session, &[bad], rings, 0, 0)?;
    Ok(())
}

/// A VQP that fails leaves the buffers of a shared ring to the others.
pub fn failed_one() -> Result<()> {
    let (scene, ears) = (Scene::new(16, 16, 0)?, Ears::new(2, 128, BUFFERS * ROOM)?);
    let senders = ears.senders(&scene)?;
    ears.post(0..32)?;
    let vqp = accepted(&scene, &ears, ears.shared())?;
    let before = ears.taken();
    break_it(&ears, vqp)?;
    ended(&ears.collect(1)?, vqp, &[RemAccessErr])?;
    // A call that waits would hand buffers back.
    ears.session
        .enter_rings(ears.rings.rings, 0, 1, 50_000_000)?;
    ears.is_quiet()?;
    ensure!(ears.taken() == before, "buffers were taken");
    for n in 1..32 {
        all_good(&scene.drive(&[numbered(senders[n % 2], n)], 1)?)?;
        let wc = ears.collect(1)?[0];
        ensure!(
            (wc.wr_id, wc.status) == (n as u64, 0),
            "message {n} is in {wc:?}"
        );
    }
    Ok(())
}

/// The buffers of a ring of a VQP's own come back when it fails, also those that are posted
/// later; the VQPs beside it on the completion ring go on. Another VQP can have the ring
/// then.
pub fn own_ring() -> Result<()> {
    let (scene, ears) = (Scene::new(16, 16, 0)?, Ears::new(1, 128, BUFFERS * ROOM)?);
    ears.post([0])?;
    // Another set of rings for it: it is the only one that receives there.
    let rings = ears.session.make_rings(16, 32, 8)?;
    let queue = Queue::of_rings(&ears.session, &rings)?;
    let own = VqpCreate {
        cq: rings.rings,
        rq: rings.rings,
        max_send_wr: 8,
        ..Pod::zeroed()
    };
    let beside = ears.session.make_vqp(VqpCreate {
        rq: RINGS_NONE,
        gid: gid(2),
        ..own
    })?;
    let vqp = accepted(&scene, &ears, own)?;
    let local = Sge {
        addr: ears.region.addr,
        len: 8,
        lkey: ears.region.lkey,
    };
    let post = |n: u64| queue.post_recv(&buffer(n, local));
    ensure!((0..8).all(post), "no room");
    let there = &scene.peers[1].region;
    let good = request(uapi::OP_WRITE, local, there.addr, there.rkey);
    let good = SendWr {
        vqp: beside,
        ..signaled(good, 1)
    };
    let bad = SendWr {
        vqp,
        ..signaled(with_bad_key(good), 77)
    };
    let enter = |wrs: &[SendWr], min| {
        queue.submit(&ears.session, wrs, rings.rings, min, PATIENCE_NS)?;
        let mut wcs = vec![Wc::zeroed(); 32];
        let count = queue.take(&mut wcs);
        wcs.truncate(count);
        Ok::<_, Errno>(wcs)
    };
    let wcs = enter(&[good, bad, good], 3 + 8)?;
    ended(&wcs, beside, &[Success, Success])?;
    let returned = |wcs: &[Wc], numbers: std::ops::Range<u64>| -> Result<()> {
        let buffers = wcs.iter().filter(|wc| wc.opcode == uapi::WC_RECV);
        let flushed = |wc: &&Wc| (wc.vqp, wc.status) == (vqp, WrFlushErr as u16);
        let got: Vec<u64> = buffers.filter(flushed).map(|wc| wc.wr_id).collect();
        ensure!(
            got.iter().copied().eq(numbers),
            "{got:?} came back: {wcs:?}"
        );
        Ok(())
    };
    returned(&wcs, 0..8)?;
    ensure!((8..12).all(post), "no room");
    returned(&enter(&[], 4)?, 8..12)?;
    ears.session.destroy_vqp(vqp)?;
    ensure!((20..24).all(post), "no room");
    // They are for the next one.
    let next = ears.session.make_vqp(own)?;
    let port = new_port();
    ears.session.qbind(next, port)?;
    ended(&enter(&[good], 1)?, beside, &[Success])?;
    let sender = scene.session.make_vqp(VqpCreate {
        gid: gid(1),
        port,
        ..scene.vqp_arg(8)
    })?;
    all_good(&scene.drive(&[numbered(sender, 5)], 1)?)?;
    let wcs = enter(&[], 1)?;
    ensure!(
        wcs.len() == 1 && (wcs[0].wr_id, wcs[0].vqp, wcs[0].status) == (20, next, 0),
        "the next one has {wcs:?}"
    );
    Ok(())
}

/// A VQP is destroyed in the middle of a message into a buffer of the shared ring: the
/// buffer comes back as an error, nothing lands in it any more, and the others go on.
pub fn destroyed_in_message() -> Result<()> {
    for _ in 0..TRIES {
        if goes_in_message()? {
            return Ok(());
        }
    }
    bail!("{TRIES} times no message was hit")
}

fn goes_in_message() -> Result<bool> {
    let (scene, ears) = (Scene::new(16, 16, 0)?, Ears::new(2, 16, LONG)?);
    let senders = ears.senders(&scene)?;
    let far = Memory::map(LONG)?;
    far.fill(0, &[0xbb; 64]);
    let local = scene
        .session
        .register(&far, 0, LONG as u64, uapi::ACCESS_ALL)?;
    let all = |region: &MrReg| Sge {
        addr: region.addr,
        len: LONG as u32,
        lkey: region.lkey,
    };
    for n in 0..2 {
        ensure!(
            ears.queue.post_recv(&buffer(n, all(&ears.region))),
            "no room"
        );
    }
    let long = signaled(request(OP_SEND, all(&local), 0, 0), 5);
    scene.post_all(&[SendWr {
        vqp: senders[0],
        ..long
    }])?;
    wait_for("the first bytes are there", PATIENCE, || {
        Ok(ears.memory.bytes(0, 1)[0] != 0)
    })?;
    let (vqp, _) = ears.bound[0];
    ears.session.destroy_vqp(vqp)?;
    // Where the message has not been yet there are zeroes; now there is something else.
    let mark = [0x5a; 64];
    let at = LONG - mark.len();
    ears.memory.fill(at, &mark);
    let sent = scene.collect(1)?[0];
    let wc = ears.collect(1)?[0];
    ensure!(
        (wc.wr_id, wc.vqp) == (0, vqp),
        "the buffer did not come back: {wc:?}"
    );
    if wc.status == Success as u16 {
        // It was all there.
        return Ok(false);
    }
    ensure!(sent.status != Success as u16, "the sender does not know");
    ensure!(
        ears.memory.bytes(at, mark.len()) == mark,
        "bytes landed after the VQP was gone"
    );
    all_good(&scene.drive(&[numbered(senders[1], 6)], 1)?)?;
    let wc = ears.collect(1)?[0];
    ensure!((wc.wr_id, wc.status) == (1, 0), "the other one has {wc:?}");
    ears.is_quiet()
        .context("a buffer came back twice")
        .map(|()| true)
}
