// SPDX-License-Identifier: GPL-2.0 OR MIT

use super::*;
use proptest::prelude::*;

const PEERS: usize = 24;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// An offer to be answered, genuine or forged.
    Offer(usize),
    /// This node's own offer was answered.
    Answer(usize),
    /// A peer speaks on the newest queue pair that it was offered.
    Speaks(usize),
    /// A queue pair fails.
    Breaks(usize),
    /// Upkeep takes out what failed, and what was superseded.
    Upkeep,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let peer = 0..PEERS;
    let event = prop_oneof![
        6 => peer.clone().prop_map(Event::Offer),
        2 => peer.clone().prop_map(Event::Answer),
        3 => peer.clone().prop_map(Event::Speaks),
        1 => peer.prop_map(Event::Breaks),
        2 => Just(Event::Upkeep),
    ];
    prop::collection::vec(event, 1..300)
}

fn gid(peer: usize) -> Gid {
    Gid::from_ipv4([10, 77, 0, peer as u8 + 1])
}

/// A list as a node keeps it, each entry with a number.
#[derive(Default)]
struct Model {
    links: Vec<(LinkView, u32)>,
    next: u32,
}

impl Model {
    fn views(&self) -> impl Iterator<Item = LinkView> + '_ {
        self.links.iter().map(|(link, _)| *link)
    }

    fn used(&self, peer: usize) -> Option<u32> {
        usable(self.views(), &gid(peer)).map(|index| self.links[index].1)
    }

    fn add(&mut self, peer: usize, stage: Stage) {
        self.next += 1;
        let gid = gid(peer);
        self.links.push((LinkView { gid, stage }, self.next));
    }

    fn newest(&mut self, peer: usize, stage: Stage) -> Option<&mut LinkView> {
        let mut links = self.links.iter_mut().map(|(link, _)| link).rev();
        links.find(|link| link.gid == gid(peer) && link.stage == stage)
    }

    fn upkeep(&mut self) {
        let mut index = 0;
        while let Some(&(link, _)) = self.links.get(index) {
            let goes = link.stage == Stage::Broken
                || link.stage == Stage::Up && is_superseded(self.views(), index, &link.gid);
            if goes {
                self.links.remove(index);
            } else {
                index += 1;
            }
        }
    }
}

proptest! {
    /// Whatever is offered, requests go on by the queue pair that works until the peer
    /// has spoken on another one.
    #[test]
    fn no_offer_ends_what_works(events in events()) {
        let mut model = Model::default();
        for event in events {
            let before: Vec<_> = (0..PEERS).map(|peer| model.used(peer)).collect();
            let mut touched = None;
            match event {
                Event::Offer(peer) => {
                    if let Some(index) = displaced(model.views(), &gid(peer)) {
                        model.links.remove(index);
                    }
                    model.add(peer, Stage::HalfOpen);
                }
                Event::Answer(peer) => model.add(peer, Stage::Finishing),
                Event::Speaks(peer) => {
                    if let Some(link) = model.newest(peer, Stage::HalfOpen) {
                        link.stage = Stage::Up;
                        touched = Some(peer);
                    }
                }
                Event::Breaks(peer) => {
                    if let Some(link) = model.newest(peer, Stage::Up) {
                        link.stage = Stage::Broken;
                        touched = Some(peer);
                    }
                }
                Event::Upkeep => {
                    model.upkeep();
                    for peer in 0..PEERS {
                        let up = model.views().filter(|l| l.gid == gid(peer) && l.stage == Stage::Up);
                        prop_assert!(up.count() <= 1);
                    }
                }
            }
            for (peer, before) in before.into_iter().enumerate() {
                prop_assert!(touched == Some(peer) || model.used(peer) == before);
            }
            let half_open: Vec<Gid> = model.views().filter(|l| l.stage == Stage::HalfOpen).map(|l| l.gid).collect();
            prop_assert!(half_open.len() <= MAX_HALF_OPEN);
            let mut peers = half_open.clone();
            peers.sort();
            peers.dedup();
            prop_assert_eq!(peers.len(), half_open.len(), "one for each peer");
        }
    }
}
