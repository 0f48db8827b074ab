// SPDX-License-Identifier: MIT OR Apache-2.0

//! Meetings over loopback, with peers that are late, wrong or strange.

use super::super::frame::MAX_CARD_BYTES;
use super::super::held::Held;
use super::*;
use nix::sys::socket::sockopt::ReuseAddr;
use nix::sys::socket::{
    bind, connect, setsockopt, socket, AddressFamily, SockFlag, SockType, SockaddrStorage,
};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

const PATIENCE: Duration = Duration::from_secs(20);

/// Meets as the node at `rank`, with a card that says whose and whom for it is.
fn meet_as(
    rank: usize,
    addrs: &[SocketAddr],
    kind: u8,
    patience: Duration,
) -> Result<Vec<Met>, FabricError> {
    let node = Node {
        place: Place::new(rank, addrs)?,
        kind,
        region_bytes: 4096 * (rank + 1),
        hello: vec![7; rank],
        incarnation: 0,
    };
    let end = Instant::now() + patience;
    let (mut met, _listener) = meet(&node, &|peer| vec![rank as u8, peer as u8], end)?;
    all_ready(&mut met, end)?;
    Ok(met)
}

fn all_meet(addrs: &[SocketAddr], kinds: &[u8]) -> Vec<Result<Vec<Met>, FabricError>> {
    std::thread::scope(|scope| {
        let meeting: Vec<_> = kinds
            .iter()
            .enumerate()
            .map(|(rank, &kind)| scope.spawn(move || meet_as(rank, addrs, kind, PATIENCE)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        meeting.into_iter().map(join).collect()
    })
}

#[test]
fn everybody_gets_everybodys_card_and_hello() {
    let answers = all_meet(&Held::new(4), &[1; 4]);
    for (rank, answer) in answers.into_iter().enumerate() {
        let met = answer.expect("they meet");
        let others: Vec<_> = (0..4).filter(|&other| other != rank).collect();
        assert_eq!(met.iter().map(|peer| peer.rank).collect::<Vec<_>>(), others);
        for peer in met {
            assert_eq!(peer.card, [peer.rank as u8, rank as u8]);
            assert_eq!(peer.hello, vec![7; peer.rank]);
            assert_eq!(peer.region_bytes, 4096 * (peer.rank + 1));
        }
    }
}

#[test]
fn who_does_not_come_is_named() {
    let answer = meet_as(1, &Held::new(3), 1, Duration::from_millis(30));
    assert_eq!(
        answer.expect_err("two are missing"),
        FabricError::Timeout {
            missing: NodeSet::from_iter([0, 2])
        }
    );
}

#[test]
fn strangers_do_not_keep_nodes_from_meeting() {
    let addrs = Held::new(2);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| meet_as(0, &addrs, 1, PATIENCE));
        let mut noise = loop {
            if let Ok(line) = TcpStream::connect(addrs[0]) {
                break line;
            }
            std::thread::sleep(RETRY);
        };
        let _silent = TcpStream::connect(addrs[0]).expect("it listens");
        noise.write_all(&[0x55; 4096]).expect("it is taken");
        let second = scope.spawn(|| meet_as(1, &addrs, 1, PATIENCE));
        assert!(first.join().expect("no panic").is_ok());
        assert!(second.join().expect("no panic").is_ok());
    });
}

/// A line that connects to itself.
fn loop_at(addr: SocketAddr) -> TcpStream {
    let flags = SockFlag::SOCK_CLOEXEC;
    let line = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
    let addr = SockaddrStorage::from(addr);
    setsockopt(&line, ReuseAddr, &true).expect("an option");
    bind(line.as_raw_fd(), &addr).expect("the port is free");
    connect(line.as_raw_fd(), &addr).expect("it meets itself");
    TcpStream::from(line)
}

#[test]
fn a_line_to_itself_is_nobodys_and_leaves_the_address_to_its_node() {
    let addrs = Held::new(2);
    let node = Node {
        place: Place::new(1, &addrs).expect("a place"),
        kind: 1,
        region_bytes: 4096,
        hello: Vec::new(),
        incarnation: 0,
    };
    let card = |_| Vec::new();
    let own = Own {
        node: &node,
        card: &card,
    };
    // Given a node that calls one on its own host that is not there, and is connected to itself,
    let line = loop_at(addrs[0]);
    // when it says who it is,
    let answer = own.introduce(line, Instant::now() + PATIENCE, Some(0));
    // then nobody is there, who can come yet.
    assert!(matches!(answer, Err(Failure::Gone)), "{answer:?}");
    TcpListener::bind(addrs[0]).expect("the address is free");
}

#[test]
fn nodes_of_different_fabrics_learn_it() {
    for answer in all_meet(&Held::new(2), &[1, 2]) {
        let refusal = answer.expect_err("they differ");
        assert!(matches!(refusal, FabricError::Protocol { .. }), "{refusal}");
    }
}

#[test]
fn places_that_no_node_can_have_are_refused() {
    let addrs = Held::new(2);
    let twice = [addrs[0], addrs[0]];
    assert!(matches!(
        Place::new(2, &addrs),
        Err(FabricError::BadRank { rank: 2, nodes: 2 })
    ));
    assert!(matches!(
        Place::new(0, &[]),
        Err(FabricError::BadRank { .. })
    ));
    assert_eq!(
        Place::new(0, &twice).err(),
        Some(FabricError::SameAddress(addrs[0]))
    );
    let holder = TcpListener::bind(addrs[0]).expect("it is free");
    assert!(matches!(
        meet_as(0, &addrs, 1, PATIENCE),
        Err(FabricError::RankTaken { rank: 0, .. })
    ));
    drop(holder);
    let elsewhere = [SocketAddr::from(([192, 0, 2, 1], 9)), addrs[1]];
    assert_eq!(
        meet_as(0, &elsewhere, 1, PATIENCE).err(),
        Some(FabricError::NotHere(elsewhere[0]))
    );
}

#[test]
fn a_frame_survives_its_bytes_and_noise_is_none() {
    let frame = Frame {
        purpose: Purpose::Call,
        kind: 2,
        rank: 1,
        nodes: 3,
        region_bytes: 4096,
        card_bytes: MAX_CARD_BYTES,
        hello_bytes: MAX_HELLO_BYTES,
        incarnation: 5,
    };
    assert_eq!(Frame::from_bytes(&frame.to_bytes()), Some(frame));
    let long = Frame {
        hello_bytes: MAX_HELLO_BYTES + 1,
        ..frame
    };
    assert_eq!(Frame::from_bytes(&long.to_bytes()), None);
    assert_eq!(Frame::from_bytes(&[0x55; Frame::BYTES]), None);
}
