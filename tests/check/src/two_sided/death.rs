// SPDX-License-Identifier: MIT OR Apache-2.0

//! Senders and receivers that go in the middle of a message.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, Message, Payload, RecvWr, SendWr, Vqp, Wc, WcStatus};

use super::ends::{new_port, post, sender, Ear, PATIENCE};
use crate::data::order::drive;
use crate::world::{full_access, wait_for, worker};
use weft_testkit::pace::patient;

/// Bytes of a long message.
const LONG: usize = 4 << 20;
/// Long messages, one behind the other.
const TRAIN: usize = 24;
/// Buffers for one sender after the other: more than it fills before it dies.
const BUFFERS: u32 = 256;
/// A target forgets a stream of which it heard no end after 10 seconds.
const FAREWELL: Duration = Duration::from_secs(20);
/// Times that a death may come before or after a message instead of in its middle.
const TRIES: usize = 5;
/// How the message ends whose receiver goes while it arrives.
const CUT_OFF: [WcStatus; 2] = [WcStatus::RetryExcErr, WcStatus::RemOpErr];

/// What a worker is told.
#[derive(clap::Args)]
pub struct PartyArgs {
    #[arg(long)]
    port: u32,
}

/// Is a sender: long messages, for ever.
pub fn send_for_ever(args: &PartyArgs) -> Result<()> {
    let device = Device::open_on(0)?;
    let local = MemoryRegion::allocate(&device, LONG, full_access())?;
    let mut vqp = sender(&device, args.port, 64, 0)?;
    let wrs = [SendWr::send(local.slice(0..LONG)?).signaled(); 16];
    loop {
        drive(&mut vqp, &wrs, wrs.len())?;
    }
}

/// Is a receiver: bound, with buffers for one train; it lives until it is killed.
pub fn listen_for_ever(args: &PartyArgs) -> Result<()> {
    let mut ear = Ear::on(args.port, LONG, TRAIN as u32, full_access())?;
    post_same(&mut ear, TRAIN)?;
    println!("ready");
    std::io::stdout().flush()?;
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Posts the whole memory, so many times.
fn post_same(ear: &mut Ear, count: usize) -> Result<()> {
    for _ in 0..count {
        let buffer = RecvWr::new(ear.memory.slice(0..LONG)?);
        ensure!(ear.listener.post_recv(&[buffer]) == 1, "no room");
    }
    Ok(())
}

fn start(role: &str, port: u32) -> Result<Child> {
    let mut command = worker(&[role, "--port", &port.to_string()])?;
    Ok(command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?)
}

fn end(mut child: Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Tries it until somebody dies in the middle of a message; `attempt` answers whether
/// somebody did.
fn until_hit(attempt: fn() -> Result<bool>) -> Result<()> {
    for _ in 0..TRIES {
        if attempt()? {
            return Ok(());
        }
    }
    Err(anyhow!("{TRIES} times no message was hit"))
}

/// A sender is killed in the middle of a message: its buffer comes back with an
/// error, and the messages of others are whole.
pub fn of_sender() -> Result<()> {
    until_hit(sender_dies)
}

fn sender_dies() -> Result<bool> {
    let device = Device::open_on(0)?;
    let mut ear = Ear::new(LONG, BUFFERS)?;
    post_same(&mut ear, BUFFERS as usize)?;
    let mut bystander = ear.sender(&device, 16)?;
    let child = start("sender", ear.port)?;
    let first = ear.next();
    // One more message on top, from somebody else, while the long ones come.
    let sent = bystander.run(SendWr::send_with_imm(Payload::inline(b"calm")?, 4711));
    end(child)?;
    ensure!(first?.result()? as usize == LONG, "a long message is short");
    ensure!(sent? == 4, "the bystander's message was not sent");
    let (mut cut_off, mut others) = (0, 0);
    while cut_off == 0 || others == 0 {
        let mut messages = [Message::default()];
        if ear.listener.pop_msgs(&mut messages, 1, FAREWELL)? == 0 {
            break;
        }
        match messages[0].wc().status() {
            Some(WcStatus::RemAbortErr) => cut_off += 1,
            Some(WcStatus::Success) if messages[0].imm() == Some(4711) => others += 1,
            Some(WcStatus::Success) => {}
            status => return Err(anyhow!("it ended with {status:?}")),
        }
    }
    ensure!(others == 1, "the bystander's message is not there");
    ear.is_quiet()?;
    ear.post(1, 64)?;
    let again = bystander.run(SendWr::send_with_imm(Payload::inline(b"calm")?, 1))?;
    let message = ear.next()?;
    ensure!(
        again == 4 && message.imm() == Some(1) && message.result()? == 4,
        "the bystander is disturbed: {message:?}"
    );
    Ok(cut_off == 1)
}

/// A receiver is killed under messages: its senders get errors, and its port is free.
pub fn of_receiver() -> Result<()> {
    until_hit(receiver_dies)
}

fn receiver_dies() -> Result<bool> {
    let device = Device::open_on(0)?;
    let local = MemoryRegion::allocate(&device, LONG, full_access())?;
    let port = new_port();
    let mut child = start("listener", port)?;
    let mut stdout = BufReader::new(child.stdout.take().context("no output")?);
    let mut said = String::new();
    stdout.read_line(&mut said)?;
    ensure!(said == "ready\n", "the receiver says {said:?}");
    let mut busy = sender(&device, port, 64, 0)?;
    let mut idle = sender(&device, port, 64, 0)?;
    let long = SendWr::send(local.slice(0..LONG)?).signaled();
    post(&mut busy, &[long; TRAIN])?;
    let mut wcs = [Wc::default(); TRAIN];
    let mut done = busy.enter(&[], &mut wcs, 1, patient(PATIENCE))?.completed;
    end(child)?;
    while done < TRAIN {
        let more = busy
            .enter(&[], &mut wcs[done..], 1, patient(PATIENCE))?
            .completed;
        ensure!(more > 0, "{done} of {TRAIN} have ended");
        done += more;
    }
    let statuses: Vec<_> = wcs.iter().filter_map(Wc::status).collect();
    let good = statuses.iter().take_while(|s| **s == WcStatus::Success);
    let good = good.count();
    let failed = statuses.get(good).copied();
    ensure!(
        good == TRAIN || failed.is_some_and(|status| CUT_OFF.contains(&status)),
        "after {good} they ended with {failed:?}"
    );
    let flushed = statuses.iter().skip(good + 1);
    ensure!(
        flushed.copied().all(|s| s == WcStatus::WrFlushErr),
        "{statuses:?}"
    );
    fails(&mut idle)?;
    takes_over(&device, port)?;
    Ok(good < TRAIN)
}

/// A message to a receiver that has gone.
fn fails(vqp: &mut Vqp) -> Result<()> {
    let wr = SendWr::send(Payload::inline(b"?")?);
    match vqp.run(wr) {
        Err(weft_shim::Error::Completion(error)) => {
            let status = error.status;
            ensure!(status == Some(WcStatus::RetryExcErr), "{status:?}");
            Ok(())
        }
        other => Err(anyhow!("{other:?}")),
    }
}

/// Another process gets the port, as soon as the first one's descriptor is closed.
fn takes_over(device: &Device, port: u32) -> Result<()> {
    let mut next = None;
    wait_for("the port is free", PATIENCE, || {
        next = Ear::on(port, 4096, 4, full_access()).ok();
        Ok(next.is_some())
    })?;
    next.context("no receiver")?.works(device)
}

/// A receiver's VQP is destroyed in the middle of a message: its sender gets an
/// error, and nothing lands in the memory any more.
pub fn of_vqp() -> Result<()> {
    until_hit(vqp_goes)
}

fn vqp_goes() -> Result<bool> {
    let device = Device::open_on(0)?;
    let local = MemoryRegion::allocate(&device, LONG, full_access())?;
    local.copy_in(0, &vec![0xbb; LONG])?;
    let mut ear = Ear::new(LONG, 4)?;
    post_same(&mut ear, 1)?;
    let mut vqp = ear.sender(&device, 4)?;
    post(&mut vqp, &[SendWr::send(local.slice(0..LONG)?).signaled()])?;
    wait_for("the first bytes are there", PATIENCE, || {
        Ok(ear.memory.load_u64(0)? != 0)
    })?;
    let Ear {
        listener, memory, ..
    } = ear;
    drop(listener);
    let mut before = vec![0; LONG];
    memory.copy_out(0, &mut before)?;
    let mut wcs = [Wc::default()];
    let done = vqp.enter(&[], &mut wcs, 1, patient(PATIENCE))?.completed;
    ensure!(done == 1, "it has not ended");
    let status = wcs[0].status().context("an unknown status")?;
    ensure!(
        status == WcStatus::Success || CUT_OFF.contains(&status),
        "it ended with {status:?}"
    );
    let mut after = vec![0; LONG];
    memory.copy_out(0, &mut after)?;
    ensure!(before == after, "bytes landed after the VQP was destroyed");
    Ok(status != WcStatus::Success)
}
