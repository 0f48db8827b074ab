// SPDX-License-Identifier: MIT OR Apache-2.0

//! Newcomers that find nobody, or not what they look for. What follows when somebody is there
//! needs RDMA: see the conformance suite.

use super::*;
use crate::fabric::NodeSet;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};

const KIND: u8 = 9;
const SHORT: Duration = Duration::from_millis(50);

fn free_addrs(count: usize) -> Vec<SocketAddr> {
    let taken: Vec<_> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"))
        .collect();
    let addr = |listener: &TcpListener| listener.local_addr().expect("its address");
    taken.iter().map(addr).collect()
}

fn refusal(addrs: &[SocketAddr]) -> FabricError {
    Role::newcomer(addrs, KIND, SHORT).expect_err("nobody gives it a seat")
}

#[test]
fn where_nobody_is_a_newcomer_says_so_in_time() {
    let missing = NodeSet::from_iter([0, 1, 2]);
    assert_eq!(refusal(&free_addrs(3)), FabricError::Timeout { missing });
}

#[test]
fn lists_that_no_fabric_has_are_refused_at_once() {
    assert!(matches!(refusal(&[]), FabricError::BadRank { .. }));
    let addrs = free_addrs(1);
    let twice = [addrs[0], addrs[0]];
    assert_eq!(refusal(&twice), FabricError::SameAddress(addrs[0]));
}

#[test]
fn noise_is_no_answer() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let addrs = [
        listener.local_addr().expect("its address"),
        free_addrs(1)[0],
    ];
    let stranger = std::thread::spawn(move || {
        let (mut line, _) = listener.accept().expect("a question");
        line.write_all(&[0x55; 4096]).expect("it is taken");
    });
    assert!(matches!(refusal(&addrs), FabricError::Timeout { .. }));
    stranger.join().expect("no panic");
}

#[test]
fn incarnations_are_times_that_fit_beside_a_rank() {
    let (first, second) = (now(), now());
    assert!((1..=MAX_INCARNATION).contains(&first) && first <= second);
}
