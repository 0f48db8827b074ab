// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses for tests, which nobody else gets: sockets that do not listen keep their ports. A test
//! can still listen there.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::sockopt::ReuseAddr;
use nix::sys::socket::{
    bind, setsockopt, socket, AddressFamily, SockFlag, SockType, SockaddrStorage,
};

/// Addresses of this host that are kept as long as this lives.
pub(super) struct Held {
    addrs: Vec<SocketAddr>,
    _sockets: Vec<TcpStream>,
}

impl Held {
    /// Holds so many.
    pub(super) fn new(count: usize) -> Self {
        let sockets: Vec<_> = (0..count).map(|_| hold()).collect();
        let addr = |socket: &TcpStream| socket.local_addr().expect("its address");
        Self {
            addrs: sockets.iter().map(addr).collect(),
            _sockets: sockets,
        }
    }
}

impl Deref for Held {
    type Target = [SocketAddr];

    fn deref(&self) -> &[SocketAddr] {
        &self.addrs
    }
}

/// A socket with a port that no other one has.
fn hold() -> TcpStream {
    let flags = SockFlag::SOCK_CLOEXEC;
    let held = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
    // A listener shares the port then. One that the system chooses is never shared.
    setsockopt(&held, ReuseAddr, &true).expect("an option");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    bind(held.as_raw_fd(), &SockaddrStorage::from(any)).expect("a port");
    TcpStream::from(held)
}

#[test]
fn nobody_gets_a_held_address_but_by_name() {
    let held = Held::new(500);
    let ports: BTreeSet<_> = held.iter().map(SocketAddr::port).collect();
    assert_eq!(ports.len(), held.len());
    for _ in 0..500 {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        assert!(!ports.contains(&other.local_addr().expect("its address").port()));
    }
    assert!(TcpStream::connect(held[0]).is_err());
    let listener = TcpListener::bind(held[0]).expect("it is told");
    TcpStream::connect(held[0]).expect("it listens");
    TcpListener::bind(held[0]).expect_err("one listens already");
    drop(listener);
}
