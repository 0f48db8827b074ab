// SPDX-License-Identifier: GPL-2.0

//! The senders of messages to a bound VQP, so that VQPs can be connected back to
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

/// Places in a set; a sender may be in two sets.
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
        let sets = self.sets(sender);
        let mut table = self.table.lock();
        let known = table.known(sets, sender);
        let index = known.unwrap_or_else(|| table.take(sets, sender));
        let generation = table.places.get(index).map_or(0, |place| place.generation);
        // All ones is no sender's number; the generation before it comes round
        // is never all ones in the bits that are left to it.
        let generation = generation % ((1 << (32 - PLACE_BITS)) - 1);
        generation << PLACE_BITS | index as u32
    }

    /// The sender with this number, if it is still known.
    pub(crate) fn find(&self, number: u32) -> Option<Sender> {
        let index = number as usize % MAX_SENDERS;
        let table = self.table.lock();
        let place = table.places.get(index)?;
        let generation = place.generation % ((1 << (32 - PLACE_BITS)) - 1);
        place.sender.filter(|_| generation == number >> PLACE_BITS)
    }

    /// The two sets where a sender may be. All of its claim is hashed: its flow and its
    /// node are what it says.
    fn sets(&self, sender: &Sender) -> [usize; 2] {
        let Sender { from, node, flow } = sender;
        let (high, low) = ((node.dct_key >> 32) as u32, node.dct_key as u32);
        let addr = u32::from_ne_bytes(from.addr);
        let first = [
            addr,
            u32::from(from.port),
            node.dct_number,
            node.incarnation,
        ];
        let hash = self.hash.of([self.hash.of(first), high, low, *flow]) as usize;
        [hash % SETS, hash / SETS % SETS]
    }
}

impl Table {
    /// The places of a set.
    fn ways(&self, set: usize) -> &[Place] {
        self.places.get(set * WAYS..(set + 1) * WAYS).unwrap_or(&[])
    }

    /// The index of the place where this sender is.
    fn known(&self, sets: [usize; 2], sender: &Sender) -> Option<usize> {
        sets.into_iter().find_map(|set| {
            let mut ways = self.ways(set).iter();
            let way = ways.position(|place| place.sender.as_ref() == Some(sender))?;
            Some(set * WAYS + way)
        })
    }

    /// Gives a new sender a place, and answers its index. It goes where fewer are: with
    /// one set for each, a quarter of all senders that there is room for would fill some
    /// set once in 70 times; with two that does not happen.
    fn take(&mut self, sets: [usize; 2], sender: &Sender) -> usize {
        let free = |set: &usize| {
            let ways = self.ways(*set).iter();
            ways.filter(|place| place.sender.is_none()).count()
        };
        let [first, second] = sets;
        let set = if free(&second) > free(&first) {
            second
        } else {
            first
        };
        let mut ways = self.ways(set).iter();
        let way = ways.position(|place| place.sender.is_none());
        let way = way.unwrap_or(self.victim);
        self.victim = (self.victim + 1) % WAYS;
        let index = set * WAYS + way;
        if let Some(place) = self.places.get_mut(index) {
            place.sender = Some(*sender);
            place.generation = place.generation.wrapping_add(1);
        }
        index
    }
}
