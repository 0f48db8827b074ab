// SPDX-License-Identifier: GPL-2.0 OR MIT

use super::*;
use proptest::prelude::*;

/// Three to each peer.
const LANES: usize = 24;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// An offer to be answered, genuine or forged.
    Offer(usize),
    /// This node's own offer was answered.
    Answer(usize),
    /// A peer speaks on the newest queue pair of a lane that it was offered.
    Speaks(usize),
    /// A queue pair fails.
    Breaks(usize),
    /// Upkeep takes out what failed, and what was superseded.
    Upkeep,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let lane = 0..LANES;
    let event = prop_oneof![
        6 => lane.clone().prop_map(Event::Offer),
        2 => lane.clone().prop_map(Event::Answer),
        3 => lane.clone().prop_map(Event::Speaks),
        1 => lane.prop_map(Event::Breaks),
        2 => Just(Event::Upkeep),
    ];
    prop::collection::vec(event, 1..300)
}

fn lane(index: usize) -> Lane {
    Lane {
        gid: Gid::from_ipv4([10, 77, 0, (index / 3) as u8 + 1]),
        number: (index % 3) as u8,
    }
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

    fn used(&self, index: usize) -> Option<u32> {
        usable(self.views(), &lane(index)).map(|index| self.links[index].1)
    }

    fn add(&mut self, index: usize, stage: Stage) {
        self.next += 1;
        let lane = lane(index);
        self.links.push((LinkView { lane, stage }, self.next));
    }

    fn newest(&mut self, index: usize, stage: Stage) -> Option<&mut LinkView> {
        let mut links = self.links.iter_mut().map(|(link, _)| link).rev();
        links.find(|link| link.lane == lane(index) && link.stage == stage)
    }

    fn upkeep(&mut self) {
        let mut index = 0;
        while let Some(&(link, _)) = self.links.get(index) {
            let goes = link.stage == Stage::Broken
                || link.stage == Stage::Up && is_superseded(self.views(), index, &link.lane);
            if goes {
                self.links.remove(index);
            } else {
                index += 1;
            }
        }
    }
}

proptest! {
    /// Whatever is offered, requests of a lane go on by the queue pair that works until the peer
    /// has spoken on another one.
    #[test]
    fn no_offer_ends_what_works(events in events()) {
        let mut model = Model::default();
        for event in events {
            let before: Vec<_> = (0..LANES).map(|index| model.used(index)).collect();
            let mut touched = None;
            match event {
                Event::Offer(of) => {
                    if let Some(index) = displaced(model.views(), &lane(of)) {
                        model.links.remove(index);
                    }
                    model.add(of, Stage::HalfOpen);
                }
                Event::Answer(of) => model.add(of, Stage::Finishing),
                Event::Speaks(of) => {
                    if let Some(link) = model.newest(of, Stage::HalfOpen) {
                        link.stage = Stage::Up;
                        touched = Some(of);
                    }
                }
                Event::Breaks(of) => {
                    if let Some(link) = model.newest(of, Stage::Up) {
                        link.stage = Stage::Broken;
                        touched = Some(of);
                    }
                }
                Event::Upkeep => {
                    model.upkeep();
                    for of in 0..LANES {
                        let up = model.views().filter(|l| l.lane == lane(of) && l.stage == Stage::Up);
                        prop_assert!(up.count() <= 1);
                    }
                }
            }
            for (of, before) in before.into_iter().enumerate() {
                prop_assert!(touched == Some(of) || model.used(of) == before);
            }
            let half_open = model.views().filter(|l| l.stage == Stage::HalfOpen);
            let half_open: Vec<_> = half_open.map(|l| (l.lane.gid, l.lane.number)).collect();
            prop_assert!(half_open.len() <= MAX_HALF_OPEN);
            let mut lanes = half_open.clone();
            lanes.sort();
            lanes.dedup();
            prop_assert_eq!(lanes.len(), half_open.len(), "one for each lane");
        }
    }
}

/// So many queue pairs of a lane number and stage, each to another peer.
fn many(count: usize, number: u8, stage: Stage) -> impl Iterator<Item = LinkView> + Clone {
    (0..count).map(move |peer| {
        let gid = Gid::from_ipv4([10, 78, number, peer as u8]);
        let lane = Lane { gid, number };
        LinkView { lane, stage }
    })
}

const FREE: Option<Room> = Some(Room { displaced: None });

#[test]
fn first_and_further_ones_take_no_room_from_each_other() {
    let (first, further) = (lane(0), lane(1));
    let firsts = || many(MAX_FIRST_LINKS, 0, Stage::Up);
    let furthers = || many(MAX_MORE_LINKS, 1, Stage::Up);
    for role in [Role::Offer, Role::Answer] {
        assert_eq!(room_for(firsts(), &first, role), None);
        assert_eq!(room_for(firsts(), &further, role), FREE);
        assert_eq!(room_for(furthers(), &further, role), None);
        assert_eq!(room_for(furthers(), &first, role), FREE);
    }
    assert_eq!(room_left(furthers().skip(1).chain(firsts()), &further), 1);
}

#[test]
fn a_half_open_one_goes_only_for_one_that_comes() {
    let half_open = |lane| LinkView {
        lane,
        stage: Stage::HalfOpen,
    };
    // given as many further ones as may be, of which one is half open
    let furthers = many(MAX_MORE_LINKS - 1, 1, Stage::Up).chain([half_open(lane(1))]);
    // then its peer's next offer has room
    let room = room_for(furthers.clone(), &lane(1), Role::Answer);
    let displaced = Some(MAX_MORE_LINKS - 1);
    assert_eq!(room, Some(Room { displaced }));
    // and that of another has none, whatever half-open first ones might go
    let offered = many(MAX_HALF_OPEN, 0, Stage::HalfOpen);
    let all = offered.chain(furthers);
    assert_eq!(room_for(all, &lane(4), Role::Answer), None);
}
