// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attacker's own streams, one from each of its endpoints to each node: they live
//! for long and go on from where the target says it is, so that what a target keeps
//! of a stream fills up: outcomes, closed flows, results, a message that is coming.

use weft_core::dc::wire::{Destination, Message, Receiver, Request};
use weft_core::dc::{MAX_CHUNK_BYTES, WINDOW};

use super::capture::{own_token, Capture};
use super::grammar::{Prey, STARVED};
use crate::rng::Rng;

/// Requests of a stream before the attacker gives it up, on average.
const LIFE: usize = 3000;
/// Lengths of messages: around chunks, what the bystander's buffers take, and limits.
const TOTALS: [u32; 12] = [
    0,
    1,
    100,
    4096,
    4097,
    8192,
    8193,
    10_000,
    12_288,
    16_384,
    1 << 20,
    u32::MAX,
];
/// A target remembers fewer closed flows.
const FLOWS: u32 = 24;
/// Flows in use at a time: one that is closed holds up few requests.
const OPEN: usize = 4;

/// A message of which some chunks were sent.
#[derive(Clone, Copy)]
struct Begun {
    header: Message,
    flow: u32,
    sent: u32,
}

/// One stream.
#[derive(Clone, Copy)]
pub struct Stream {
    number: u32,
    token: u64,
    next: u32,
    failed: u32,
    begun: Option<Begun>,
}

impl Stream {
    pub fn new(rng: &mut Rng) -> Self {
        Self {
            number: rng.below(64) as u32,
            token: own_token(rng.next()),
            next: 0,
            failed: 0,
            begun: None,
        }
    }

    /// The stream's number and token.
    pub fn name(&self) -> (u32, u64) {
        (self.number, self.token)
    }

    /// Another stream in its place.
    pub fn restart(&mut self, rng: &mut Rng, capture: &Capture) {
        capture.forget(self.token);
        *self = Self::new(rng);
    }

    /// Learns from the answers how far the target is.
    pub fn catch_up(&mut self, rng: &mut Rng, capture: &Capture) {
        let progress = capture.progress(self.token);
        if self.failed != progress.failed {
            // What is left of a message would only be flushed.
            (self.failed, self.begun) = (progress.failed, None);
        }
        if rng.below(LIFE) == 0 || progress.is_unknown {
            self.restart(rng, capture);
        } else if progress.is_stuck {
            self.next = progress.awaited;
            self.begun = None;
        }
    }

    /// The next PSN; or one that may be repeated, is too old, premature, or any. Answers
    /// whether it is the next one, too.
    pub fn psn(&mut self, rng: &mut Rng) -> (u32, bool) {
        let (next, window) = (self.next, WINDOW as u32);
        let psn = match rng.below(32) {
            0 => next.wrapping_sub(1),
            1 => next.wrapping_sub(1 + rng.below(20) as u32),
            2 => next.wrapping_sub(window - 1 + rng.below(3) as u32),
            3 => next.wrapping_sub(rng.below(200) as u32),
            4 => next.wrapping_add(1 + rng.below(WINDOW) as u32),
            5 => match rng.below(4) {
                0 => 0,
                1 => u32::MAX,
                2 => next.wrapping_add(1 << 31),
                _ => rng.next() as u32,
            },
            _ => next,
        };
        if psn == next {
            self.next = next.wrapping_add(1);
        }
        (psn, psn == next)
    }

    /// A flow that is probably open, or one that was closed a while ago, or any.
    pub fn flow(&self, rng: &mut Rng) -> u32 {
        let open = 1 + self.failed + rng.below(OPEN) as u32;
        match rng.below(16) {
            0 => 0,
            1 | 2 => open.saturating_sub(rng.below(FLOWS as usize) as u32),
            3 => rng.next() as u32,
            _ => open,
        }
    }

    /// Makes `request` the next chunk of the stream's message, or the first of another;
    /// or something that does not belong there.
    pub fn chunk(&mut self, rng: &mut Rng, prey: &Prey, request: &mut Request) -> Message {
        let begun = self.begun.take().filter(|_| rng.below(24) != 0);
        let mut begun = begun.unwrap_or_else(|| {
            let total = match rng.below(4) {
                0 => request.len,
                _ => TOTALS[rng.below(TOTALS.len())],
            };
            Begun {
                header: message(rng, prey, total),
                flow: request.flow,
                sent: 0,
            }
        });
        let left = begun.header.total.saturating_sub(begun.sent);
        request.remote_addr = u64::from(begun.sent);
        request.flow = begun.flow;
        request.len = left.min(match rng.below(4) {
            0 => 1 + rng.below(4096) as u32,
            _ => MAX_CHUNK_BYTES,
        });
        let header = begun.header;
        begun.sent += request.len;
        if begun.sent < begun.header.total {
            self.begun = Some(begun);
        }
        match rng.below(48) {
            0 => request.remote_addr = rng.next(),
            1 => request.remote_addr += 1,
            2 => request.len += 1,
            3 => request.flow += 1,
            4 => {
                return Message {
                    total: header.total.wrapping_add(1),
                    ..header
                }
            }
            _ => {}
        }
        header
    }
}

/// The header of a message of so many bytes: to a port that somebody is bound to, for
/// the most part.
pub fn message(rng: &mut Rng, prey: &Prey, total: u32) -> Message {
    let any = rng.next() as u32;
    let to = match rng.below(32) {
        0 => Receiver::Node,
        1 | 2 => Receiver::Flow(any % 64),
        3 => Receiver::Port(any),
        4 | 5 => Receiver::Port(STARVED),
        _ => Receiver::Port(prey.port.unwrap_or(STARVED + 1)),
    };
    let sender = match rng.below(2) {
        0 => prey.target.destination,
        _ => Destination {
            dct_number: rng.next() as u32,
            dct_key: rng.next(),
            incarnation: rng.next() as u32,
        },
    };
    Message {
        total,
        imm: (rng.below(2) == 0).then_some(7),
        to,
        sender,
    }
}
