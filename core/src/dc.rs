// SPDX-License-Identifier: GPL-2.0 OR MIT

//! SoftDc: a dynamically connected transport in software, without its I/O.
//!
//! An *initiator* keeps one [`Initiator`] per peer that it talks to, a *target*
//! one [`Context`] per initiator that talks to it. There is no handshake: the
//! first request opens the context at the target (krcore §3, DCT). From then on
//! the stream of requests is executed exactly once and in order, over a bearer
//! that may lose, repeat and reorder packets.
//!
//! - An operation is cut into chunks of at most [`MAX_CHUNK_BYTES`], one request
//!   packet and one response packet each (1RMA §6.1). At most [`WINDOW`] chunks
//!   are outstanding.
//! - Requests carry packet sequence numbers (PSN). The target executes only the
//!   next one; it answers a repeated one again and a premature one with the PSN
//!   that it waits for. A repeated READ is executed again, as in RC.
//! - Many queue pairs share a stream. An operation that fails ends with its own
//!   status and closes its *flow* (one virtual queue pair) at the target;
//!   the other flows go on.
//! - A message whose receiver has no buffer is tried again, and all behind it on the
//!   stream waits: queue pairs that send messages get streams of their own.
//! - A stream that hears nothing retransmits with doubling timeouts, at most
//!   [`PROBE_CHUNKS`] each time, and gives up after [`MAX_TRIES`]; the caller gets a
//!   status, never silence.

mod farewells;
mod initiator;
mod op;
mod rtt;
mod target;
pub mod wire;

#[cfg(test)]
mod tests;

pub use farewells::Farewells;
pub use initiator::{Full, Incoming, Initiator, Outgoing};
pub use op::{cut, Completion, Local, Op, OpKind};
pub use target::{Context, Verdict};

/// Largest chunk, in bytes.
pub const MAX_CHUNK_BYTES: u32 = 4096;
/// Chunks outstanding on one stream.
pub const WINDOW: usize = 64;
/// Atomic operations among them.
pub const MAX_ATOMICS: usize = 16;
/// Chunks of one operation in a row, if other flows wait.
pub const BURST: u32 = 8;
/// Operations queued or outstanding on one stream.
pub const MAX_OPS: usize = 128;
/// Sends of one chunk before the peer counts as unreachable.
pub const MAX_TRIES: u32 = 8;
/// Chunks that are sent again after a timeout, until the target is heard: a peer that is gone
/// costs little, and it takes no further timeout if some of them are lost too.
pub const PROBE_CHUNKS: u32 = 4;
/// First retransmission timeout; it doubles with each try, up to [`RTO_MAX_NS`].
pub const RTO_MIN_NS: u64 = 8_000_000;
/// Longest retransmission timeout.
pub const RTO_MAX_NS: u64 = 128_000_000;
/// How long nothing is sent when a receiver has no buffer.
pub const RNR_DELAY_NS: u64 = 1_000_000;
/// How long a receiver may have no buffer before the operation fails. RC counts
/// tries; a bound on time holds on a loaded machine too.
pub const RNR_PATIENCE_NS: u64 = 2_000_000_000;
/// A context that was not used for so long may be reclaimed by the target. It
/// exceeds the time in which an initiator gives up, so that a context with
/// requests on their way is never reclaimed.
pub const CONTEXT_IDLE_NS: u64 = 10_000_000_000;
/// A stream that was idle for so long starts anew instead of trusting that the
/// target still has its context.
pub const STREAM_IDLE_NS: u64 = 5_000_000_000;
/// An idle stream on which a flow failed so long ago starts anew: its target may keep the flow
/// closed for as long as the context lives, and the numbers of flows come round.
pub const FAILED_FLOW_NS: u64 = 60_000_000_000;

/// `a` comes before `b` in the circle of PSNs.
const fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > u32::MAX / 2
}
