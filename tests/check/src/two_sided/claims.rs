// SPDX-License-Identifier: MIT OR Apache-2.0

//! Senders that a message's header claims. A bound VQP remembers each, and whoever
//! writes the headers chooses them.

use std::net::{Ipv4Addr, UdpSocket};

use anyhow::{ensure, Context, Result};
use weft_core::dc::wire::{Kind, Message, Receiver, Request};
use weft_core::uapi::{Pod, Sge, MAX_SENDERS};

use super::ends::new_port;
use crate::packets::{self, Target};
use crate::raw::{buffer, Queue, Session};
use crate::rng::Rng;

/// Senders of a set: `WAYS` in kmod/vqp/senders.rs.
const WAYS: u32 = 8;
/// Claims that share a set with the first one: more than it has room for.
const RIVALS: usize = 2 * WAYS as usize;
/// Claims of which some do.
const CLAIMS: u32 = 8192;

/// A VQP of node 1 that is bound to a port, and packets to it made by hand.
struct Party {
    session: Session,
    queue: Queue,
    port: u32,
    rng: Rng,
}

impl Party {
    fn new(seed: u64) -> Result<Self> {
        let session = Session::open(1)?;
        let queue = session.queue(4, 4)?;
        let port = new_port();
        session.qbind(queue.vqp, port)?;
        let rng = Rng::new(seed);
        Ok(Self {
            session,
            queue,
            port,
            rng,
        })
    }

    /// The number of the sender whose name at its node is `flow`, once a message of no
    /// bytes has come from it. The stream that brought it is closed.
    fn hear(&mut self, socket: &UdpSocket, target: &Target, flow: u32) -> Result<u32> {
        let buffer = buffer(u64::from(flow), Sge::zeroed());
        ensure!(self.queue.post_recv(&buffer), "no room for a buffer");
        let request = Request {
            kind: Kind::Send,
            stream: flow,
            token: self.rng.next(),
            psn: 0,
            destination: target.destination,
            flow,
            remote_addr: 0,
            rkey: 0,
            len: 0,
        };
        let message = Message {
            total: 0,
            imm: None,
            to: Receiver::Port(self.port),
            sender: target.destination,
        };
        let to = (Ipv4Addr::from(target.addr), target.port);
        socket.send_to(&[&request.encode()[..], &message.encode()].concat(), to)?;
        let wc = self.queue.next(&self.session).context("no message")?;
        let close = Request {
            kind: Kind::Close,
            psn: 1,
            ..request
        };
        socket.send_to(&close.encode(), to)?;
        Ok(wc.src)
    }
}

/// Claims that share a set with the first one at one VQP do not push it out at the next.
pub fn spread(seed: u64) -> Result<()> {
    let target = packets::target(1)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let set = |number: u32| number % MAX_SENDERS as u32 / WAYS;
    let mut first = Party::new(seed)?;
    let home = set(first.hear(&socket, &target, 1)?);
    let mut rivals = Vec::new();
    for flow in 2..CLAIMS {
        if set(first.hear(&socket, &target, flow)?) == home {
            rivals.push(flow);
        }
        if rivals.len() == RIVALS {
            break;
        }
    }
    ensure!(rivals.len() == RIVALS, "only {rivals:?} share a set");
    let mut second = Party::new(seed + 1)?;
    let number = second.hear(&socket, &target, 1)?;
    for flow in rivals {
        second.hear(&socket, &target, flow)?;
    }
    let accepted = second.session.accept(second.queue.vqp, number, 4);
    accepted.context("the first sender was pushed out")?;
    Ok(())
}
