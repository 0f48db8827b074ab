// SPDX-License-Identifier: GPL-2.0 OR MIT

//! One physical RC queue pair under many virtual ones, without its I/O (krcore
//! §4.4, alg. 2).
//!
//! - [`Window`] counts the requests of a queue pair so that neither its send
//!   queue nor its completion queue can overflow, whoever posts and whatever is
//!   signalled.
//! - [`Poster`] says which requests have to be signalled.
//! - [`Cut`] says how a long request is posted in turns with others.
//! - [`Attendance`] says when the completion queue has to be armed, because
//!   nobody looks at it.
//! - [`Stall`] says whether the device has forgotten them.
//! - [`Limits`] says what the device takes in one request.
//! - [`WrId`] is what a completion names its request by.
//! - [`Hello`] is what two nodes tell each other to connect a pair.
//! - [`Want`] says when to offer one to a peer, [`makes_room`] which peer is no longer
//!   wanted for another's sake, [`Admission`] how many offers of others are taken,
//!   [`displaced`] and [`is_superseded`] which queue pairs then have to go.

mod admission;
mod attend;
mod cut;
mod handshake;
mod limits;
mod links;
mod stall;
mod want;
mod window;
mod wr_id;

#[cfg(all(test, not(loom)))]
mod tests;

pub use admission::Admission;
pub use attend::Attendance;
pub use cut::{cut_sges, Blocks, Cut, CutPiece};
pub use handshake::{Hello, PacketEnd, Role, HELLO_BYTES};
pub use limits::Limits;
pub use links::{
    displaced, half_open, is_superseded, room_for, room_left, usable, Lane, LinkView, Room, Seen,
    Stage, MAX_FIRST_LINKS, MAX_HALF_OPEN, MAX_LANES, MAX_MORE_LINKS,
};
pub use stall::{Stall, STALL_NS};
pub use want::{makes_room, passes_to, Step, Want, WantedBy};
pub use window::{Claim, Poster, Window};
pub use wr_id::WrId;

/// Requests outstanding on one queue pair: places of its send queue.
pub const DEPTH: u32 = 256;
/// Places of its completion queue: every request outstanding may make a
/// completion, signalled or not, if the queue pair breaks. The receive buffers
/// come on top.
pub const CQ_ENTRIES: u32 = DEPTH + RECEIVES;
/// Receive buffers: for the one message that says that the pair is ready.
pub const RECEIVES: u32 = 1;
/// At least one request in so many is signalled, so that places come back long
/// before the queue is full.
pub const SIGNAL_INTERVAL: u32 = DEPTH / 4;
/// Bytes outstanding on one queue pair from which on no more are posted. Bounds how long
/// a request waits for those of other virtual queue pairs, and with that how long a peer
/// waits for the end of a region ([`crate::mr`]).
pub const BUDGET_BYTES: u64 = 2 << 20;
/// Bytes of a request that is posted as it is. Longer ones are cut into pieces of so
/// many.
pub const PIECE_BYTES: u32 = 512 << 10;
/// Bytes of pieces outstanding on one queue pair: so many that the next one is there
/// when one ends, and so few that requests which are not cut find room among them.
pub const PIECES_BYTES: u64 = BUDGET_BYTES - PIECE_BYTES as u64;
/// READs and atomic operations outstanding in the network, each way.
pub const READ_DEPTH: u8 = 16;
/// Local ACK timeout: 4.096 µs times two to this, 134 ms. A device may wait up to four
/// times as long (IBTA vol. 1, C9-140 to C9-142), and some raise what is too short for
/// them. soft-RoCE's timer runs on while a long READ is being answered, and then asks for
/// all of it again: shorter timeouts multiply the traffic on a busy host.
pub const ACK_TIMEOUT: u8 = 15;
/// Retries after that timeout. soft-RoCE takes 7 for "for ever" (`rxe_completer`), which
/// it is for receivers without buffers alone.
pub const RETRIES: u8 = 5;
/// How long a request may go without an answer before the peer counts as dead:
/// 0.8 s on soft-RoCE, up to four times that by the rules for [`ACK_TIMEOUT`]. Only how
/// soon something is noticed may depend on it, never whether memory may go.
pub const PATIENCE_NS: u64 = (RETRIES as u64 + 1) * (4096 << ACK_TIMEOUT);
