// SPDX-License-Identifier: GPL-2.0

//! Who has sent messages to a bound VQP, so that VQPs can be connected back to
//! them without asking anybody (krcore §4.4).
//!
//! A sender has a place for as long as nobody else needs it. Its number, which the
//! user gets with each message, has the place's generation in it: a number that
//! is outdated finds nobody.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use weft_core::dc::wire::Destination;
use weft_core::uapi::MAX_SENDERS;

use crate::net::Endpoint;
use crate::random::KeyedHash;
use crate::sync::{new_lock, BhLock};

/// Places that a sender may be at.
const WAYS: usize = 8;
const SETS: usize = MAX_SENDERS / WAYS;
/// Bits of a number that are the place; the others are the generation.
const PLACE_BITS: u32 = MAX_SENDERS.trailing_zeros();
const _: () = assert!(MAX_SENDERS.is_power_of_two() && MAX_SENDERS > WAYS);

/// A VQP that has sent a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender {
    /// Its node.
    pub(crate) from: Endpoint,
    /// Its node's DC target.
    pub(crate) node: Destination,
    /// Its name there.
    pub(crate) flow: u32,
}

#[derive(Clone, Copy)]
struct Place {
    sender: Option<Sender>,
    generation: u32,
}

struct Table {
    places: KVVec<Place>,
    /// The way that is replaced next.
    victim: usize,
}

/// The senders that a bound VQP knows.
#[pin_data]
pub(crate) struct Senders {
    port: u32,
    /// Spreads the senders: nobody can choose which share a set.
    hash: KeyedHash,
    #[pin]
    table: BhLock<Table>,
}

impl Senders {
    /// Nobody yet.
    pub(crate) fn new(port: u32) -> Result<Pin<KBox<Self>>> {
        const FREE: Place = Place {
            sender: None,
            generation: 0,
        };
        let places = KVVec::from_elem(FREE, MAX_SENDERS, GFP_KERNEL_ACCOUNT)?;
        KBox::pin_init(
            pin_init!(Self {
                port,
                hash: KeyedHash::new(),
                table <- new_lock!(Table { places, victim: 0 }, "weft_senders"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The port that they have sent to.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// The sender's number, new if need be.
    pub(crate) fn number(&self, sender: &Sender) -> u32 {
        let first = self.set(sender) * WAYS;
        let mut table = self.table.lock();
        let victim = table.victim;
        table.victim = (victim + 1) % WAYS;
        let Some(ways) = table.places.get_mut(first..first + WAYS) else {
            return weft_core::uapi::SRC_NONE;
        };
        let known = ways
            .iter()
            .position(|place| place.sender.as_ref() == Some(sender));
        let way = known.unwrap_or_else(|| {
            let free = ways.iter().position(|place| place.sender.is_none());
            let way = free.unwrap_or(victim);
            if let Some(place) = ways.get_mut(way) {
                place.sender = Some(*sender);
                place.generation = place.generation.wrapping_add(1);
            }
            way
        });
        let generation = ways.get(way).map_or(0, |place| place.generation);
        // All ones is no sender's number; the generation before it comes round
        // is never all ones in the bits that are left to it.
        let generation = generation % ((1 << (32 - PLACE_BITS)) - 1);
        generation << PLACE_BITS | (first + way) as u32
    }

    /// The sender with this number, if it is still known.
    pub(crate) fn find(&self, number: u32) -> Option<Sender> {
        let index = number as usize % MAX_SENDERS;
        let table = self.table.lock();
        let place = table.places.get(index)?;
        let generation = place.generation % ((1 << (32 - PLACE_BITS)) - 1);
        place.sender.filter(|_| generation == number >> PLACE_BITS)
    }

    /// The set of a sender. All of its claim is hashed: its flow and its node are what
    /// it says.
    fn set(&self, sender: &Sender) -> usize {
        let Sender { from, node, flow } = sender;
        let (high, low) = ((node.dct_key >> 32) as u32, node.dct_key as u32);
        let addr = u32::from_ne_bytes(from.addr);
        let first = [
            addr,
            u32::from(from.port),
            node.dct_number,
            node.incarnation,
        ];
        let all = [self.hash.of(first), high, low, *flow];
        self.hash.place(all, SETS)
    }
}
