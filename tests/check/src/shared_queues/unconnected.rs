// SPDX-License-Identifier: MIT OR Apache-2.0

//! VQPs that are not connected: each request names its peer by a handle.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use weft_core::dc::RNR_PATIENCE_NS;
use weft_core::gid::Gid;
use weft_core::uapi::{SendWr, Sge, VqpCreate, Wc, WcStatus, MAX_PORT, SEND_INLINE, WC_RECV};

use super::errors::works_again;
use super::scene::{all_good, by, in_order, once_each, signaled, with_bad_key, Scene, PATIENCE_NS};
use crate::raw::{buffer, message, Queue};
use crate::rng::Rng;
use crate::two_sided::ends::new_port;
use crate::world::{counter, gid, system, timely, wait_for, SETTLE};

use WcStatus::{RemAccessErr, RetryExcErr, Success, WrFlushErr};

/// Handles, to the two peers in turn.
const HANDLES: usize = 240;
const BOUND: Duration = Duration::from_secs(20);
/// Branches that a VQP keeps without requests.
const KEPT: i64 = 32;

/// How requests to a peer ended, in their order.
fn of_peer(wcs: &[Wc], peer: u32) -> Vec<u16> {
    let of_it = wcs.iter().filter(|wc| wc.src == peer);
    of_it.map(|wc| wc.status).collect()
}

fn peer_ended(wcs: &[Wc], peer: u32, wanted: &[WcStatus]) -> Result<()> {
    let got = of_peer(wcs, peer);
    let wanted: Vec<u16> = wanted.iter().map(|status| *status as u16).collect();
    ensure!(got == wanted, "they ended with {got:?}, not {wanted:?}");
    Ok(())
}

/// One VQP, 240 handles: a call takes all requests, those to a peer are carried out in
/// order, and completions tell the peer.
pub fn many_peers(seed: u64) -> Result<()> {
    let scene = Scene::new(1024, 1024, 0)?;
    let vqp = scene.unconnected(4)?;
    let handles = scene.handles(HANDLES)?;
    let mut rng = Rng::new(seed);
    for round in 0..4 {
        let bytes = rng.bytes(8 * HANDLES);
        let mut wrs: Vec<SendWr> = Vec::new();
        for step in 0..2 {
            for (at, peer) in handles.iter().copied().enumerate() {
                scene.fill(at, &bytes[8 * at..8 * at + 8]);
                let wr = match step {
                    0 => scene.write(vqp, at % 2, at, 8),
                    _ => scene.read(vqp, at % 2, at, 8),
                };
                wrs.push(by(signaled(wr, (step * HANDLES + at) as u64), peer));
            }
        }
        let all = wrs.len();
        let rings = scene.rings.rings;
        let taken = scene
            .queue
            .submit(&scene.session, &wrs, rings, all as u32, PATIENCE_NS)?;
        ensure!(
            taken == all,
            "round {round}: one call took {taken} of {all}"
        );
        let wcs = scene.take(2 * all);
        all_good(&wcs)?;
        in_order(&wcs)?;
        once_each(&wcs, all)?;
        for (at, peer) in handles.iter().enumerate() {
            let mut own = wcs.iter().filter(|wc| wc.wr_id as usize % HANDLES == at);
            ensure!(
                own.all(|wc| wc.src == *peer && wc.vqp == vqp),
                "another peer is named"
            );
            let wanted = &bytes[8 * at..8 * at + 8];
            ensure!(
                scene.peers[at % 2].slot(at, 8) == wanted,
                "peer {at} has other bytes"
            );
            ensure!(
                scene.landed(at, 8) == wanted,
                "peer {at}: other bytes were read"
            );
        }
    }
    Ok(())
}

/// An error is one handle's, until that is closed; the handle is then of no use, and
/// another one to the same node works.
pub fn errors_per_peer() -> Result<()> {
    const PEERS: usize = 40;
    let scene = Scene::new(128, 128, 0)?;
    let vqp = scene.unconnected(4)?;
    let handles = scene.handles(PEERS)?;
    let one = |at: usize| {
        by(
            signaled(scene.write(vqp, at % 2, at, 64), at as u64),
            handles[at],
        )
    };
    let all = || (0..PEERS).map(one);
    let failed = 7;
    let mut wrs: Vec<SendWr> = all().chain(all()).collect();
    wrs[failed] = with_bad_key(wrs[failed]);
    scene.post_all(&wrs)?;
    let wcs = scene.collect(wrs.len())?;
    peer_ended(&wcs, handles[failed], &[RemAccessErr, WrFlushErr])?;
    others_are_good(&wcs, handles[failed])?;
    // However many others are used in between.
    for round in 0..20 {
        let wrs: Vec<SendWr> = all().collect();
        let wcs = scene.drive(&wrs, PEERS)?;
        peer_ended(&wcs, handles[failed], &[WrFlushErr])
            .with_context(|| format!("round {round}"))?;
        others_are_good(&wcs, handles[failed])?;
    }
    scene.session.close_peer(handles[failed])?;
    let refused = scene.post(&[one(failed)]);
    ensure!(refused == Err(Errno::EBADF), "to a closed one: {refused:?}");
    let again = scene
        .session
        .open_peer(gid(scene.peers[failed % 2].node), 0)?;
    ensure!(again != handles[failed], "the handle is the same");
    let wcs = scene.drive(&[by(one(failed), again)], 1)?;
    peer_ended(&wcs, again, &[Success])
}

fn others_are_good(wcs: &[Wc], failed: u32) -> Result<()> {
    let others: Vec<Wc> = wcs.iter().filter(|wc| wc.src != failed).copied().collect();
    all_good(&others)
}

/// A node's link is down: requests to it end in time, those to the other one at once.
pub fn dead_peer() -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let vqp = scene.unconnected(8)?;
    let handles = scene.handles(2)?;
    let one = |at: usize| {
        by(
            signaled(scene.write(vqp, at, at, 64), at as u64),
            handles[at],
        )
    };
    all_good(&scene.drive(&[one(0), one(1)], 2)?)?;
    system("ip -n n2 link set v2 down")?;
    let outcome = timely(BOUND, || -> Result<()> {
        scene.post_all(&[one(1), one(0), one(1)])?;
        let (mut rounds, mut ends) = (0, Vec::new());
        while ends.len() < 2 {
            let wc = scene.collect(1)?[0];
            if wc.src == handles[1] {
                ends.push(wc);
                continue;
            }
            ensure!(wc.status == Success as u16, "the live one: {wc:?}");
            rounds += 1;
            scene.post_all(&[one(0)])?;
        }
        println!("# {rounds} requests to the live peer meanwhile");
        ensure!(rounds > 20, "they were held up: {rounds}");
        peer_ended(&ends, handles[1], &[RetryExcErr, WrFlushErr])?;
        all_good(&scene.collect(1)?)
    });
    system("ip -n n2 link set v2 up")?;
    outcome??;
    works_again(&scene)?;
    let wcs = scene.drive(&[one(1)], 1)?;
    peer_ended(&wcs, handles[1], &[WrFlushErr]).context("the failed handle")?;
    scene.session.close_peer(handles[1])?;
    let again = scene.session.open_peer(gid(2), 0)?;
    let wcs = scene.drive(&[by(one(1), again)], 1)?;
    peer_ended(&wcs, again, &[Success]).context("opened again")
}

/// Requests that are under way when their peer is closed end as they would.
pub fn closed_meanwhile() -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let vqp = scene.unconnected(16)?;
    for round in 0..200 {
        let peer = scene.session.open_peer(gid(1), 0)?;
        let one = |n: usize| by(signaled(scene.write(vqp, 0, n, 4096), n as u64), peer);
        let wrs: Vec<SendWr> = (0..16).map(one).collect();
        scene.post_all(&wrs)?;
        scene.session.close_peer(peer)?;
        let refused = scene.post(&wrs[..1]);
        ensure!(refused == Err(Errno::EBADF), "round {round}: {refused:?}");
        let wcs = scene.collect(wrs.len())?;
        all_good(&wcs).with_context(|| format!("round {round}"))?;
        in_order(&wcs)?;
        ensure!(wcs.iter().all(|wc| wc.src == peer), "another peer is named");
    }
    scene.is_quiet()
}

/// A handle that comes again some thousand peers later is that of the peer that is open then.
pub fn handle_again() -> Result<()> {
    const MOST: usize = 10_000;
    let scene = Scene::new(8, 8, 0)?;
    let vqp = scene.unconnected(4)?;
    let session = &scene.session;
    let first = session.open_peer(gid(1), 0)?;
    let wr = by(signaled(scene.write(vqp, 0, 0, 8), 0), first);
    all_good(&scene.drive(&[wr], 1)?)?;
    session.close_peer(first)?;
    let mut again = session.open_peer(gid(2), 0)?;
    for _ in 0..MOST {
        if again == first {
            break;
        }
        session.close_peer(again)?;
        again = session.open_peer(gid(2), 0)?;
    }
    ensure!(again == first, "it does not come again");
    scene.fill(1, b"to the 2");
    let wr = by(signaled(scene.write(vqp, 1, 1, 8), 0), again);
    peer_ended(&scene.drive(&[wr], 1)?, again, &[Success])?;
    ensure!(
        scene.peers[1].slot(1, 8) == b"to the 2",
        "it went elsewhere"
    );
    Ok(())
}

/// What the module keeps for peers that are not used goes: the VQPs that it counts.
pub fn pruned() -> Result<()> {
    let scene = Scene::new(256, 256, 0)?;
    let base = counter("vqps")?;
    let vqp = scene.unconnected(4)?;
    let handles = scene.handles(HANDLES)?;
    let one = |at: usize| {
        by(
            signaled(scene.write(vqp, at % 2, at, 8), at as u64),
            handles[at],
        )
    };
    for at in 0..HANDLES {
        all_good(&scene.drive(&[one(at)], 1)?)?;
        let more = counter("vqps")? - base;
        ensure!(
            more <= 1 + KEPT,
            "after {at} peers there are {more} VQPs more"
        );
    }
    // All at the same time, of which half fail: those have to stay until they are closed.
    let mut wrs: Vec<SendWr> = (0..HANDLES).map(one).collect();
    for wr in wrs.iter_mut().step_by(2) {
        *wr = with_bad_key(*wr);
    }
    scene.post_all(&wrs)?;
    scene.collect(HANDLES)?;
    let use_more = || -> Result<()> {
        for n in 0..4 * HANDLES {
            let peer = scene.session.open_peer(gid(2), 0)?;
            let wr = by(signaled(scene.write(vqp, 1, n % 8, 8), 0), peer);
            all_good(&scene.drive(&[wr], 1)?)?;
            scene.session.close_peer(peer)?;
        }
        Ok(())
    };
    use_more()?;
    for at in (0..HANDLES).step_by(2) {
        let wcs = scene.drive(&[one(at)], 1)?;
        peer_ended(&wcs, handles[at], &[WrFlushErr]).with_context(|| format!("peer {at}"))?;
    }
    for peer in &handles {
        scene.session.close_peer(*peer)?;
    }
    use_more()?;
    let more = counter("vqps")? - base;
    ensure!(
        more <= 1 + KEPT,
        "with all closed there are {more} VQPs more"
    );
    scene.session.destroy_vqp(vqp)?;
    wait_for("all go", SETTLE, || Ok(counter("vqps")? == base))
}

/// A request that waits for room while the module lets go of what it keeps for peers that
/// are not used fails: later ones to its peer are flushed all the same.
pub fn error_is_kept() -> Result<()> {
    const ROOM: usize = 8;
    let scene = Scene::new(64, ROOM as u32, 0)?;
    let (port, far) = (new_port(), &scene.peers[0]);
    let bound = far.session.queue(4, ROOM as u32)?;
    far.session.qbind(bound.vqp, port)?;
    let slow = scene.session.make_vqp(VqpCreate {
        gid: gid(1),
        port,
        ..scene.vqp_arg(ROOM as u32)
    })?;
    // Until there are buffers, these have all places.
    let hello = SendWr {
        vqp: slow,
        flags: SEND_INLINE,
        ..message(b"hello")
    };
    let posted = Instant::now();
    scene.post_all(&[hello; ROOM])?;
    let (vqp, peer) = (scene.unconnected(4)?, scene.session.open_peer(gid(1), 0)?);
    let good = by(signaled(scene.write(vqp, 0, 0, 8), 1), peer);
    let bad = [with_bad_key(good)];
    let (session, rings) = (&scene.session, scene.rings.rings);
    thread::scope(|scope| {
        let call = || scene.queue.submit(session, &bad, rings, 1, PATIENCE_NS);
        let call = scope.spawn(call);
        thread::sleep(Duration::from_millis(100));
        let other = Queue::of_rings(session, &session.make_rings(4, 0, 0)?)?;
        for at in 0..4 * KEPT {
            // The messages need buffers before the module gives them up.
            if at > KEPT && posted.elapsed() > Duration::from_nanos(RNR_PATIENCE_NS / 2) {
                break;
            }
            let one = by(good, session.open_peer(gid(1), 0)?);
            let refused = other.submit(session, &[one], rings, 0, 0);
            ensure!(refused == Err(Errno::ENOSPC), "peer {at}: {refused:?}");
        }
        ensure!(!call.is_finished(), "the call did not wait");
        let into = Sge {
            addr: far.region.addr,
            len: 64,
            lkey: far.region.lkey,
        };
        for n in 0..ROOM as u64 {
            ensure!(bound.post_recv(&buffer(n, into)), "no room for a buffer");
        }
        let taken = call.join().map_err(|_| anyhow!("it panicked"))??;
        ensure!(taken == 1, "it took {taken}");
        Ok(())
    })?;
    peer_ended(&scene.collect(1)?, peer, &[RemAccessErr])?;
    let wcs = scene.drive(&[good], 1)?;
    peer_ended(&wcs, peer, &[WrFlushErr])
}

/// What a VQP keeps for its peers counts among the VQPs that its user may have.
pub fn counted() -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let vqp = scene.unconnected(4)?;
    let handles = scene.handles(3)?;
    let one = |at: usize| {
        by(
            signaled(scene.write(vqp, at % 2, at, 8), at as u64),
            handles[at],
        )
    };
    all_good(&scene.drive(&[one(0)], 1)?)?;
    let mut last = None;
    let errno = loop {
        match scene.session.make_vqp(scene.vqp_arg(1)) {
            Ok(made) => last = Some(made),
            Err(errno) => break errno,
        }
    };
    ensure!(errno == Errno::EMFILE, "of VQPs alone it was {errno}");
    let refused = scene.post(&[one(1)]);
    ensure!(refused == Err(Errno::EMFILE), "a second peer: {refused:?}");
    all_good(&scene.drive(&[one(0)], 1)?).context("the first peer")?;
    scene
        .session
        .destroy_vqp(last.context("there was room for none")?)?;
    all_good(&scene.drive(&[one(1)], 1)?).context("the second peer, with room")?;
    let refused = scene.post(&[one(2)]);
    ensure!(refused == Err(Errno::EMFILE), "a third peer: {refused:?}");
    Ok(())
}

/// Messages go to the port that a handle was opened with.
pub fn messages() -> Result<()> {
    const PORTS: usize = 3;
    let scene = Scene::new(64, 64, 0)?;
    let vqp = scene.unconnected(8)?;
    let far = &scene.peers[0];
    let first = new_port();
    let mut ends = Vec::new();
    for at in 0..PORTS {
        let port = if at == 0 { first } else { new_port() };
        let bound = far.session.queue(4, 4)?;
        far.session.qbind(bound.vqp, port)?;
        let into = Sge {
            addr: far.region.addr + (at * 64) as u64,
            len: 64,
            lkey: far.region.lkey,
        };
        ensure!(bound.post_recv(&buffer(at as u64, into)), "no room");
        ends.push((scene.session.open_peer(gid(1), port)?, bound));
    }
    let one = |(at, (peer, _)): (usize, &(u32, _))| {
        let text = [b'a' + at as u8; 8];
        by(
            SendWr {
                vqp,
                wr_id: at as u64,
                ..message(&text)
            },
            *peer,
        )
    };
    let wrs: Vec<SendWr> = ends.iter().enumerate().map(one).collect();
    all_good(&scene.drive(&wrs, PORTS)?)?;
    for (at, (_, bound)) in ends.iter().enumerate() {
        let wc = bound.next(&far.session)?;
        ensure!(
            (wc.wr_id, wc.opcode, wc.byte_len) == (at as u64, WC_RECV, 8),
            "port {at} has {wc:?}"
        );
        let text = far.memory.bytes(at * 64, 8);
        ensure!(text == [b'a' + at as u8; 8], "port {at} has {text:?}");
    }
    // A handle without a port is for one-sided requests alone.
    let silent = scene.session.open_peer(gid(1), 0)?;
    let wcs = scene.drive(&[by(wrs[0], silent)], 1)?;
    peer_ended(&wcs, silent, &[WcStatus::LocQpOpErr])
}

/// What cannot be opened or closed.
pub fn refusals() -> Result<()> {
    let scene = Scene::new(8, 8, 0)?;
    let session = &scene.session;
    let open = |gid, port| session.open_peer(gid, port);
    let refused = [
        open(Gid::default(), 0),
        open(gid(1), MAX_PORT + 1),
        open(gid(1), u32::MAX),
    ];
    ensure!(refused == [Err(Errno::EINVAL); 3], "{refused:?}");
    let unknown = open(Gid::from_ipv4([10, 77, 9, 9]), 0);
    ensure!(
        unknown == Err(Errno::EHOSTUNREACH),
        "a node that is not there: {unknown:?}"
    );
    let peer = open(gid(1), 0)?;
    session.close_peer(peer)?;
    for handle in [peer, 0, u32::MAX, scene.rings.rings ^ 1] {
        let refused = session.close_peer(handle);
        ensure!(
            refused == Err(Errno::EBADF),
            "closing {handle:#x}: {refused:?}"
        );
    }
    let vqp = scene.unconnected(4)?;
    let refused = [
        session.qconnect(vqp, gid(1)),
        session.qbind(vqp, new_port()),
    ];
    ensure!(
        refused == [Err(Errno::EINVAL); 2],
        "an unconnected VQP: {refused:?}"
    );
    Ok(())
}
