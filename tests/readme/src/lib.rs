// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Rust code of README.md, which does not compile here if it would not in a program.
//! Each piece stands in a function that has what the piece takes for granted.

use std::error::Error;
use std::time::Duration;

use weft::fabric::shm::{Shm, ShmSeats};
use weft::multicast::Builder;
use weft::rdmc::{Buffer, Event, GroupConfig, Message as Image, Node, ViewEvent};
use weft::{Group, Membership, Message, Subgroup};
use weft_shim::{
    Device, Gid, LocalSlice, Qp, QpConfig, Queues, QueuesConfig, RecvWr, Remote, SendWr, Vqp,
    VqpConfig, Wc,
};

/// What a program does with a message.
fn apply(message: Message<'_>) {
    println!("{} bytes", message.bytes.len());
}

/// What a program does with a large object.
fn start(image: Image) {
    drop(image);
}

/// "In a program": one-sided requests.
///
/// # Errors
///
/// Those of the calls.
pub fn one_sided(remote: Remote) -> Result<(), Box<dyn Error>> {
    include!(concat!(env!("OUT_DIR"), "/1.rs"));
    Ok(())
}

/// A peer of a program's.
pub struct Known {
    gid: Gid,
    remote: Remote,
}

/// "In a program": queue pairs that share their queues.
///
/// # Errors
///
/// Those of the calls.
pub fn shared_queues<'mr>(
    device: Device,
    peers: Vec<Known>,
    local: LocalSlice<'mr>,
    mut completions: Vec<Wc>,
    timeout: Duration,
) -> Result<(), Box<dyn Error>> {
    let mut qps: Vec<Qp> = Vec::new();
    let mut requests: Vec<SendWr<'mr>> = Vec::new();
    include!(concat!(env!("OUT_DIR"), "/2.rs"));
    Ok(())
}

/// "In a program": messages.
///
/// # Errors
///
/// Those of the calls.
pub fn messages(
    device: Device,
    buffers: [RecvWr<'_>; 4],
    mut messages: [weft_shim::Message; 4],
    timeout: Duration,
) -> Result<(), Box<dyn Error>> {
    include!(concat!(env!("OUT_DIR"), "/3.rs"));
    Ok(())
}

/// "Replication": atomic multicast.
///
/// # Errors
///
/// Those of the calls.
pub fn multicast(rank: usize, members: usize, order: [u8; 64]) -> Result<(), Box<dyn Error>> {
    include!(concat!(env!("OUT_DIR"), "/4.rs"));
    Ok(())
}

/// A program's state, as bytes.
fn take() -> Vec<u8> {
    Vec::new()
}

/// Takes over the state that another member gives.
fn restore(bytes: &[u8]) {
    println!("{} bytes", bytes.len());
}

/// "Replication": a group whose members come and go.
///
/// # Errors
///
/// Those of the calls.
pub fn joining(
    rank: Option<usize>,
    founders: usize,
    seats: usize,
    timeout: Duration,
) -> Result<(), Box<dyn Error>> {
    include!(concat!(env!("OUT_DIR"), "/5.rs"));
    Ok(())
}

/// "Replication": a shard whose members follow from the view.
///
/// # Errors
///
/// Those of the calls.
pub fn shards(mut builder: Builder<ShmSeats>, timeout: Duration) -> Result<(), Box<dyn Error>> {
    include!(concat!(env!("OUT_DIR"), "/6.rs"));
    Ok(())
}

/// "Replication": large objects.
///
/// # Errors
///
/// Those of the calls.
pub fn objects(
    rank: usize,
    members: usize,
    timeout: Duration,
    image: Buffer,
    bytes: usize,
) -> Result<(), Box<dyn Error>> {
    include!(concat!(env!("OUT_DIR"), "/7.rs"));
    Ok(())
}

/// Sends large objects again, from this one on.
fn send_again(number: u64) {
    println!("from {number} on");
}

/// "Replication": large objects in a group whose members come and go.
///
/// # Errors
///
/// Those of the calls.
pub fn objects_in_views(seats: usize, timeout: Duration) -> Result<(), Box<dyn Error>> {
    include!(concat!(env!("OUT_DIR"), "/8.rs"));
    Ok(())
}
