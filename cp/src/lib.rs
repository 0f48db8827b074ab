// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-cp`: one sender, many receivers, each of which gets the same file or
//! directory by RDMC (rdmc §4), so that the sender's link carries it once or
//! little more.
//!
//! # Groups
//!
//! The sender is node 0, receiver `k` is node `k`. Group 0 has all of them, with the
//! sender as its root: the *stream*. Group `k` has receiver `k` as its root and the
//! sender as its only other member: the *reports* of that receiver (`wire`).
//!
//! # The stream
//!
//! The records of `wire`, one after the other, are cut into messages of at most
//! `--chunk` bytes without regard to where records end. So a file of any length
//! takes bounded memory, and many small files share a message. A receiver's first
//! report says how long messages it takes; the shortest of these counts.
//!
//! # Flow control
//!
//! An RDMC group ends if a member has no memory for a message, and the polling
//! thread, which asks for that memory, may not wait for any. So the sender must not
//! send what a receiver has no memory for: a receiver reports each message that it
//! has written to its files, and the sender sends message `n` when all have
//! reported message `n - WINDOW` (`link::WINDOW`). A receiver has memory for
//! `WINDOW` messages, and for one more: word that the transfer is given up needs
//! no credit. So the slowest disk sets the pace, and no memory grows.
//!
//! The sender has as many buffers: it reads and hashes the next ones while RDMC
//! transfers those before.
//!
//! # All or nothing
//!
//! Behind each file comes the BLAKE3 of what the sender has read. The receiver
//! hashes the very bytes that it writes, as it writes them; it does not read them
//! back. When all is written and equal, it reports so. When all receivers have, the
//! sender says *commit*: only then temporaries get their final names (`landing`).
//! That done, the receiver reports it, and the sender ends well if all have.
//!
//! A receiver that fails removes its temporaries, reports why, and still relays
//! until the sender has told everybody to give up, with the reason. A member that
//! dies ends the stream's group at all others, which then do the same.
//! After *commit* it may be neither all nor nothing. A receiver that fails before
//! its own renaming is named by the sender; the others keep what they have, which
//! they had checked. If somebody dies while *commit* is under way, those that it
//! has not reached give up.
//!
//! # Receivers that come late
//!
//! With `--elastic` the sender makes one party after the other of those who have called
//! (`elastic`), and each party is a transfer as above, with nodes and groups of its own.

pub mod args;
mod consume;
mod elastic;
mod entry;
mod inbox;
mod landing;
mod link;
mod outbox;
mod place;
mod produce;
mod progress;
pub mod receive;
mod scan;
pub mod send;
pub mod signals;
mod wire;
