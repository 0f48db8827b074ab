// SPDX-License-Identifier: MIT OR Apache-2.0

//! VQPs that have sent before and send nothing now: they cost the others nothing.

use anyhow::{ensure, Result};
use weft_core::uapi::{SendWr, Sge, VqpCreate, WcStatus};

use super::scene::{all_good, ended, Scene};
use crate::raw::{buffer, message};
use crate::two_sided::ends::new_port;
use crate::world::{counter, gid};

/// VQPs with a stream of their own.
const IDLE: usize = 512;
/// Looks at the clock in two seconds, of one stream: 500. Each of the others is looked at once
/// more after its message.
const MOST_TICKS: i64 = 8 * IDLE as i64;

/// While a message waits for a receiver without buffers, its stream alone looks at the clock.
pub fn streams() -> Result<()> {
    let scene = Scene::new(64, 64, 0)?;
    let (ear, port) = (&scene.peers[0], new_port());
    let bound = ear.session.queue(4, IDLE as u32)?;
    ear.session.qbind(bound.vqp, port)?;
    let into = Sge {
        addr: ear.region.addr,
        len: 64,
        lkey: ear.region.lkey,
    };
    for n in 0..IDLE as u64 {
        ensure!(bound.post_recv(&buffer(n, into)), "no room for buffer {n}");
    }
    let sender = |_| {
        scene.session.make_vqp(VqpCreate {
            gid: gid(1),
            port,
            ..scene.vqp_arg(4)
        })
    };
    let vqps = (0..=IDLE).map(sender).collect::<Result<Vec<_>, _>>()?;
    let hello = |vqp: &u32| SendWr {
        vqp: *vqp,
        ..message(b"hello")
    };
    let wrs: Vec<SendWr> = vqps[..IDLE].iter().map(hello).collect();
    all_good(&scene.drive(&wrs, IDLE)?)?;
    let before = counter("stream_ticks")?;
    let last = vqps[IDLE];
    let wcs = scene.drive(&[hello(&last)], 1)?;
    ended(&wcs, last, &[WcStatus::RnrRetryExcErr])?;
    let ticks = counter("stream_ticks")? - before;
    println!("# {ticks} looks at the clock meanwhile");
    ensure!(
        (1..MOST_TICKS).contains(&ticks),
        "streams looked at the clock {ticks} times"
    );
    Ok(())
}
