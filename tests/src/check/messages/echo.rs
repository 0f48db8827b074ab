// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages there and back.

use anyhow::{ensure, Context, Result};
use weft_shim::{RecvWr, SendWr, Wc};

use super::{Client, Server, PATIENCE, PORT};
use crate::rng::Rng;

const LONGEST: usize = 1 << 20;
const LENGTHS: [usize; 12] = [
    0, 1, 7, 80, 81, 512, 4095, 4096, 4097, 65_536, 300_001, LONGEST,
];

/// One message of each length, echoed over the VQP to its sender.
pub fn lengths(seed: u64) -> Result<()> {
    let mut server = Server::bind(PORT, LONGEST, 4)?;
    let mut client = Client::connect(PORT, 2 * LONGEST)?;
    let mut rng = Rng::new(seed);
    for len in LENGTHS {
        let bytes = rng.bytes(len);
        client.memory.copy_in(0, &bytes)?;
        client.memory.copy_in(LONGEST, &vec![0; len])?;
        ensure!(server.post_all(LONGEST)? == 1, "no room for the request");
        let back = client.memory.slice(LONGEST..2 * LONGEST)?;
        ensure!(client.vqp.post_recv(&[RecvWr::new(back)]) == 1, "no room");
        let sent = client.vqp.run(SendWr::send(client.memory.slice(0..len)?));
        ensure!(sent? as usize == len, "not all was sent");

        let message = server.pop()?;
        ensure!(message.result()? as usize == len, "not all has arrived");
        let sender = message.sender().context("nobody has sent it")?;
        let reply = SendWr::send(server.memory.slice(0..len)?);
        server
            .listener
            .vqp(sender)?
            .run(reply)
            .with_context(|| format!("the echo of {len} bytes"))?;

        let got = client.next()?;
        ensure!(got.is_recv() && got.result()? as usize == len, "{got:?}");
        let mut echoed = vec![0; len];
        client.memory.copy_out(LONGEST, &mut echoed)?;
        ensure!(echoed == bytes, "other bytes came back, of {len}");
    }
    Ok(())
}

/// Many messages of random lengths on their way at once, some of them signalled.
pub fn batch(seed: u64) -> Result<()> {
    const COUNT: usize = 16;
    const SIZE: usize = 8192;
    let mut server = Server::bind(PORT, COUNT * SIZE, COUNT as u32)?;
    let mut client = Client::connect(PORT, COUNT * SIZE)?;
    let mut rng = Rng::new(seed);
    for round in 0..20 {
        let bytes = rng.bytes(COUNT * SIZE);
        client.memory.copy_in(0, &bytes)?;
        ensure!(server.post_all(SIZE)? == COUNT, "no room for buffers");
        let mut lens = Vec::new();
        let mut wrs = Vec::new();
        for n in 0..COUNT {
            let len = rng.below(SIZE);
            lens.push(len);
            let wr =
                SendWr::send_with_imm(client.memory.slice(n * SIZE..n * SIZE + len)?, n as u32);
            wrs.push(if n + 1 == COUNT { wr.signaled() } else { wr });
        }
        let mut wcs = [Wc::default(); 4];
        let progress = client.vqp.enter(&wrs, &mut wcs, 1, PATIENCE)?;
        let done = (progress.submitted, progress.completed);
        ensure!(done == (COUNT, 1), "round {round}: {done:?}");
        wcs[0].result()?;
        for (n, len) in lens.into_iter().enumerate() {
            let message = server.pop()?;
            let got = (message.imm(), message.wr_id(), message.result()? as usize);
            let wanted = (Some(n as u32), n as u64, len);
            ensure!(got == wanted, "message {n} is {got:?}, not {wanted:?}");
            let mut arrived = vec![0; len];
            server.memory.copy_out(n * SIZE, &mut arrived)?;
            ensure!(arrived == bytes[n * SIZE..n * SIZE + len], "message {n}");
        }
    }
    Ok(())
}
