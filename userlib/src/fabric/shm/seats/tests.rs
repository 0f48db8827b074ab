// SPDX-License-Identifier: MIT OR Apache-2.0

//! A newcomer that is driven by hand.

use super::super::frame::Frame;
use super::super::memory::Memory;
use super::super::rendezvous::{address, tell_met};
use super::inner::number_of;
use super::*;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Instant;

const REGION_BYTES: usize = 4096;
const HELLO: &[u8] = b"the same for all";
const SEATS: usize = 2;
const LONG: Duration = Duration::from_secs(10);

fn founder() -> (String, Connected) {
    let (name, nodes) = ShmSeats::threads(1, SEATS).expect("a fabric");
    let node = nodes.into_iter().next().expect("a founder");
    // SAFETY: nobody looks at the region.
    let connected = unsafe { node.connect(REGION_BYTES, HELLO, LONG) };
    (name, connected.expect("it meets nobody"))
}

#[test]
fn a_newcomer_is_no_caller_before_it_can_post() {
    let (name, founder) = founder();
    // Given a newcomer that has called and was answered,
    let (_memory, fd) = Memory::create(REGION_BYTES).expect("memory");
    let mut line = UnixStream::connect_addr(&address(&name, 0).expect("a name")).expect("a line");
    let call = Frame {
        rank: 1,
        nodes: number_of(HELLO),
        region_bytes: REGION_BYTES,
        incarnation: 7,
        ..Frame::new(Kind::Call)
    };
    assert!(call.send(&line, Some(&fd)).is_ok());
    let answer = Frame::receive(&line).ok().map(|heard| heard.0);
    assert!(answer.is_some_and(|answer| answer.kind == Kind::Answer));
    line.read_exact(&mut [0; HELLO.len()]).expect("the hello");
    // when it takes its time,
    std::thread::sleep(Duration::from_millis(50));
    // then nobody admits it,
    let refusal = FabricError::NoCaller(1);
    assert_eq!(founder.endpoint.admit(1), Err(refusal));
    // until it has said that it knows the other one.
    tell_met(&line).expect("the line goes on");
    let end = Instant::now() + LONG;
    while founder.endpoint.callers().is_empty() && Instant::now() < end {
        std::thread::sleep(rendezvous::RETRY);
    }
    assert_eq!(founder.endpoint.admit(1), Ok(7));
}
