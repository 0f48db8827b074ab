// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages (krcore §4.1, §4.4): to a port, and back to whoever has sent them.

mod echo;

use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use weft_shim::{
    Device, Error, Listener, MemoryRegion, Message, Opcode, Payload, RecvWr, Remote, SendWr, Sges,
    Vqp, VqpConfig, Wc, WcStatus, MAX_ACCEPTED,
};

use crate::report::Report;
use crate::world::{full_access, gid, Baseline};

const PORT: u32 = 77;
const PATIENCE: Duration = Duration::from_secs(10);

/// A listener on node 1 with memory.
struct Server {
    listener: Listener,
    memory: MemoryRegion,
}

/// A VQP of node 0 that is connected to it, with memory.
struct Client {
    vqp: Vqp,
    memory: MemoryRegion,
}

impl Server {
    fn bind(port: u32, bytes: usize, buffers: u32) -> Result<Self> {
        let device = Device::open_on(1)?;
        let config = VqpConfig {
            max_send_wr: 16,
            max_recv_wr: buffers,
        };
        Ok(Self {
            listener: Vqp::create(&device, &config)?.bind(port)?,
            memory: MemoryRegion::allocate(&device, bytes, full_access())?,
        })
    }

    /// Posts all of its memory as buffers of `bytes`, as far as they fit.
    fn post_all(&mut self, bytes: usize) -> Result<usize> {
        let mut wrs = Vec::new();
        for at in 0..self.memory.len() / bytes {
            let slice = self.memory.slice(at * bytes..(at + 1) * bytes)?;
            wrs.push(RecvWr::new(slice).wr_id(at as u64));
        }
        Ok(self.listener.post_recv(&wrs))
    }

    /// The next message.
    fn pop(&mut self) -> Result<Message> {
        let mut messages = [Message::default()];
        let count = self.listener.pop_msgs(&mut messages, 1, PATIENCE)?;
        ensure!(count == 1, "no message came");
        Ok(messages[0])
    }
}

impl Client {
    fn connect(port: u32, bytes: usize) -> Result<Self> {
        let device = Device::open_on(0)?;
        let config = VqpConfig {
            max_send_wr: 16,
            max_recv_wr: 16,
        };
        let mut vqp = Vqp::create(&device, &config)?;
        vqp.qconnect(gid(1), port)?;
        let memory = MemoryRegion::allocate(&device, bytes, full_access())?;
        Ok(Self { vqp, memory })
    }

    /// The next completion.
    fn next(&mut self) -> Result<Wc> {
        let mut wcs = [Wc::default()];
        let progress = self.vqp.enter(&[], &mut wcs, 1, PATIENCE)?;
        ensure!(progress.completed == 1, "nothing came");
        Ok(wcs[0])
    }
}

/// All checks.
pub fn run(report: &mut Report, seed: u64) {
    let baseline = report.need("the gauges stand still", || Baseline::take(2));
    report.check("messages of all lengths come, and go back", || {
        echo::lengths(seed)
    });
    report.check("a batch of messages comes in order", || echo::batch(seed));
    report.check("pieces are gathered and scattered", pieces);
    report.check("inline bytes and immediates", immediates);
    report.check("a WRITE with an immediate", write_with_imm);
    report.check("many senders are told apart", || senders(40));
    report.check("more senders than VQPs are kept", || {
        senders(MAX_ACCEPTED + 10)
    });
    report.check("a message waits for its buffer", late_buffer);
    report.check("a message that is too long", too_long);
    report.check("synchronous calls keep what arrives", held);
    report.check("a sender that has gone", sender_gone);
    report.check("a port is free when its listener has gone", || {
        (0..50).try_for_each(|_| Server::bind(PORT, 4096, 4).map(drop))
    });
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
}

fn pieces() -> Result<()> {
    let mut server = Server::bind(PORT, 4096, 4)?;
    let mut client = Client::connect(PORT, 4096)?;
    let bytes: Vec<u8> = (0..100).collect();
    client.memory.copy_in(0, &bytes)?;
    let wr = RecvWr::scattered(&[
        server.memory.slice(1000..1030)?,
        server.memory.slice(0..1)?,
        server.memory.slice(2000..3000)?,
    ])?;
    server.listener.post_recv(&[wr]);
    let from = &client.memory;
    let sges = Sges::new(&[
        from.slice(50..100)?,
        from.slice(0..10)?,
        from.slice(10..10)?,
        from.slice(10..49)?,
        from.slice(49..50)?,
    ])?;
    let sent = client.vqp.run(SendWr::send(sges))?;
    let got = server.pop()?.result()?;
    ensure!(
        (sent, got) == (100, 100),
        "{sent} bytes sent, {got} arrived"
    );
    let mut arrived = vec![0; 100];
    server.memory.copy_out(1000, &mut arrived[..30])?;
    server.memory.copy_out(0, &mut arrived[30..31])?;
    server.memory.copy_out(2000, &mut arrived[31..])?;
    let wanted: Vec<u8> = (50..100).chain(0..50).collect();
    ensure!(arrived == wanted, "other bytes arrived");
    Ok(())
}

fn immediates() -> Result<()> {
    let mut server = Server::bind(PORT, 4096, 8)?;
    let mut client = Client::connect(PORT, 64)?;
    server.post_all(512)?;
    let text = b"travels in the request";
    client.vqp.run(SendWr::send(Payload::inline(text)?))?;
    let with_imm = SendWr::send_with_imm(Sges::EMPTY, 0xfeed);
    client.vqp.run(with_imm)?;
    let (first, second) = (server.pop()?, server.pop()?);
    ensure!(first.imm().is_none(), "an immediate that nobody sent");
    let len = first.result()? as usize;
    let mut arrived = vec![0; len];
    server.memory.copy_out(0, &mut arrived)?;
    ensure!(arrived == text, "other bytes arrived");
    let got = (second.imm(), second.result()?, second.wr_id());
    ensure!(got == (Some(0xfeed), 0, 1), "the second is {got:x?}");
    Ok(())
}

fn write_with_imm() -> Result<()> {
    let mut server = Server::bind(PORT, 8192, 4)?;
    let mut client = Client::connect(PORT, 4096)?;
    server.listener.post_recv(&[RecvWr::empty().wr_id(3)]);
    client.memory.copy_in(0, &[7; 3000])?;
    let to = server.memory.remote().offset(4096);
    let wr = SendWr::write_with_imm(client.memory.slice(0..3000)?, to, 9);
    client.vqp.run(wr)?;
    let message = server.pop()?;
    let wc = message.wc();
    ensure!(wc.opcode() == Some(Opcode::RecvWriteWithImm), "{wc:?}");
    ensure!((message.imm(), message.wr_id()) == (Some(9), 3), "{wc:?}");
    ensure!(message.result()? == 3000, "{wc:?}");
    let mut arrived = vec![0; 3001];
    server.memory.copy_out(4096, &mut arrived)?;
    let whole = arrived[..3000].iter().all(|byte| *byte == 7) && arrived[3000] == 0;
    ensure!(whole, "other bytes were written");
    // One that may not be written is no message: its buffer comes back.
    server.listener.post_recv(&[RecvWr::empty().wr_id(4)]);
    let wild = Remote { rkey: 1, ..to };
    let wr = SendWr::write_with_imm(client.memory.slice(0..8)?, wild, 9);
    let refused = status_of(client.vqp.run(wr))?;
    ensure!(refused == Some(WcStatus::RemAccessErr), "{refused:?}");
    let back = status_of(server.pop()?.result().map_err(Error::from))?;
    ensure!(back == Some(WcStatus::RemOpErr), "{back:?}");
    Ok(())
}

/// How something failed that had to.
fn status_of(outcome: Result<u32, Error>) -> Result<Option<WcStatus>> {
    match outcome {
        Err(Error::Completion(error)) => Ok(error.status),
        other => anyhow::bail!("{other:?}"),
    }
}

/// Each sends its number, and gets it back.
fn senders(count: usize) -> Result<()> {
    let mut server = Server::bind(PORT, 4096, 8)?;
    let mut clients = Vec::new();
    let device = Device::open_on(0)?;
    let memory = MemoryRegion::allocate(&device, 8 * count, full_access())?;
    for _ in 0..count {
        let config = VqpConfig {
            max_send_wr: 2,
            max_recv_wr: 2,
        };
        let mut vqp = Vqp::create(&device, &config)?;
        vqp.qconnect(gid(1), PORT)?;
        clients.push(vqp);
    }
    for round in 0..2u32 {
        for (n, vqp) in clients.iter_mut().enumerate() {
            let slice = memory.slice(8 * n..8 * n + 8)?;
            ensure!(vqp.post_recv(&[RecvWr::new(slice)]) == 1, "no room");
            server.listener.post_recv(&[RecvWr::empty()]);
            vqp.run(SendWr::send_with_imm(Sges::EMPTY, n as u32))?;
            let message = server.pop()?;
            ensure!(message.imm() == Some(n as u32), "another's message");
            let sender = message.sender().context("nobody has sent it")?;
            let reply = (n as u64 + u64::from(round) * 1000).to_ne_bytes();
            let back = server.listener.vqp(sender)?;
            back.run(SendWr::send(Payload::inline(&reply)?))
                .with_context(|| format!("the reply to {n}"))?;
        }
        for (n, vqp) in clients.iter_mut().enumerate() {
            let mut wcs = [Wc::default(); 2];
            let got = vqp.enter(&[], &mut wcs, 1, PATIENCE)?.completed;
            ensure!(got == 1 && wcs[0].is_recv(), "{got} completions");
            let value = memory.load_u64(8 * n)?;
            let wanted = n as u64 + u64::from(round) * 1000;
            ensure!(value == wanted, "{n} got {value}");
        }
    }
    Ok(())
}

/// It is not lost when nobody is ready for it yet.
fn late_buffer() -> Result<()> {
    let mut server = Server::bind(PORT, 4096, 8)?;
    let mut client = Client::connect(PORT, 64)?;
    thread::scope(|scope| {
        let sending = scope.spawn(|| client.vqp.run(SendWr::send(Payload::inline(&[1; 8])?)));
        thread::sleep(Duration::from_millis(30));
        server.post_all(512)?;
        let sent = sending.join().map_err(|_| anyhow!("it panicked"))?;
        ensure!(sent? == 8, "not all was sent");
        ensure!(server.pop()?.result()? == 8, "not all has arrived");
        Ok(())
    })
}

fn too_long() -> Result<()> {
    let mut server = Server::bind(PORT, 4096, 8)?;
    let mut client = Client::connect(PORT, 4096)?;
    server.post_all(512)?;
    let wr = SendWr::send(client.memory.slice(0..513)?);
    let refused = client.vqp.run(wr);
    ensure!(
        matches!(refused, Err(Error::Completion(_))),
        "the sender got {refused:?}"
    );
    let refused = server.pop()?.result().err().and_then(|error| error.status);
    ensure!(refused == Some(WcStatus::LocLenErr), "{refused:?}");
    // The next one has better luck, on a new VQP.
    let mut client = Client::connect(PORT, 4096)?;
    client.vqp.run(SendWr::send(client.memory.slice(0..512)?))?;
    ensure!(server.pop()?.result()? == 512, "it did not arrive");
    Ok(())
}

/// A reply that comes during a synchronous call is there afterwards.
fn held() -> Result<()> {
    let mut server = Server::bind(PORT, 4096, 8)?;
    let mut client = Client::connect(PORT, 4096)?;
    let posted = client.vqp.post_recv(&[
        RecvWr::new(client.memory.slice(0..64)?).wr_id(1),
        RecvWr::new(client.memory.slice(64..128)?).wr_id(2),
    ]);
    ensure!(posted == 2, "{posted} buffers were posted");
    server.post_all(512)?;
    client.vqp.run(SendWr::send(Sges::EMPTY))?;
    let sender = server.pop()?.sender().context("nobody has sent it")?;
    let back = server.listener.vqp(sender)?;
    back.run(SendWr::send(Sges::EMPTY))?;
    back.run(SendWr::send(Sges::EMPTY))?;
    let there = server.memory.remote();
    client.vqp.write(client.memory.slice(128..136)?, there)?;
    let (first, second) = (client.next()?, client.next()?);
    let ids = (first.wr_id(), second.wr_id());
    ensure!(ids == (1, 2), "the replies are {ids:?}");
    Ok(())
}

fn sender_gone() -> Result<()> {
    let mut server = Server::bind(PORT, 4096, 8)?;
    let mut client = Client::connect(PORT, 64)?;
    server.post_all(512)?;
    client.vqp.run(SendWr::send(Sges::EMPTY))?;
    let sender = server.pop()?.sender().context("nobody has sent it")?;
    drop(client);
    let reply = server.listener.vqp(sender)?.run(SendWr::send(Sges::EMPTY));
    let status = status_of(reply)?;
    ensure!(status == Some(WcStatus::RetryExcErr), "{status:?}");
    server.listener.forget(sender);
    Ok(())
}
