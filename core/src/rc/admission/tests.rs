// SPDX-License-Identifier: GPL-2.0 OR MIT

use super::*;
use proptest::prelude::*;

fn gid(index: usize) -> Gid {
    let [.., a, b] = (index as u32).to_be_bytes();
    Gid::from_ipv4([10, 78, a, b])
}

#[test]
fn a_flood_of_one_sender_leaves_the_others_their_share() {
    let mut admission = Box::new(Admission::NEW);
    let mut taken = 0;
    // 10,000 offers a second, for ten seconds
    for at in 0..100_000u64 {
        let now_ns = at * 100_000;
        taken += u64::from(admission.takes_offer(&gid(1), now_ns));
        if at % 10_000 == 0 {
            assert!(admission.takes_offer(&gid(2), now_ns), "at {at}");
        }
    }
    assert_eq!(taken, u64::from(BURST_PER_SENDER) + 19);
}

#[test]
fn a_flood_of_unknown_senders_leaves_known_ones_their_share() {
    let mut admission = Box::new(Admission::NEW);
    // from a new address each time
    let taken =
        (0..100_000u64).filter(|at| admission.takes_lookup(&gid(*at as usize), at * 10_000));
    assert_eq!(taken.count(), BURST_OF_LOOKUPS as usize + 19);
    assert!(admission.takes_offer(&gid(1), 1_000_000_000));
}

#[test]
fn a_flood_from_one_unknown_address_leaves_other_unknown_ones_their_look_ups() {
    let mut admission = Box::new(Admission::NEW);
    let mut taken = 0;
    // 10,000 offers a second, for ten seconds
    for at in 0..100_000u64 {
        let now_ns = at * 100_000;
        taken += u64::from(admission.takes_lookup(&gid(1), now_ns));
        if at % 1_000 == 0 {
            let other = gid(2 + at as usize);
            assert!(admission.takes_lookup(&other, now_ns), "at {at}");
        }
    }
    assert_eq!(taken, u64::from(BURST_PER_ADDRESS) + 4);
}

#[test]
fn offers_with_the_address_of_a_known_sender_take_nothing_from_it() {
    let mut admission = Box::new(Admission::NEW);
    let refused = (0..1000).filter(|at| !admission.takes_lookup(&gid(1), *at));
    assert_eq!(refused.count(), 1000 - BURST_PER_ADDRESS as usize);
    assert!((0..BURST_PER_SENDER).all(|_| admission.takes_offer(&gid(1), 1000)));
}

#[test]
fn more_senders_than_rows_are_refused_until_one_is_free() {
    let mut admission = Box::new(Admission::NEW);
    assert!((0..SENDERS).all(|index| admission.takes_offer(&gid(index), 1)));
    assert!(!admission.takes_offer(&gid(SENDERS), 1));
    assert!(admission.takes_offer(&gid(0), 1), "it has a row");
    assert!(admission.takes_offer(&gid(SENDERS), 1 + INTERVAL_PER_SENDER_NS));
}

proptest! {
    /// In any time, no sender gets more than its burst and one an interval.
    #[test]
    fn no_sender_gets_more_than_its_share(
        offers in prop::collection::vec((0usize..4, 0u64..2 * INTERVAL_PER_SENDER_NS), 1..300),
    ) {
        let mut admission = Box::new(Admission::NEW);
        let (mut now_ns, mut taken) = (1, vec![Vec::new(); 4]);
        for (sender, after_ns) in offers {
            now_ns += after_ns;
            if admission.takes_offer(&gid(sender), now_ns) {
                taken[sender].push(now_ns);
            }
        }
        for times in taken {
            for (index, first_ns) in times.iter().enumerate() {
                for (more, last_ns) in times[index..].iter().enumerate() {
                    let share = u64::from(BURST_PER_SENDER) + (last_ns - first_ns) / INTERVAL_PER_SENDER_NS;
                    prop_assert!(more as u64 <= share);
                }
            }
        }
    }

    /// Whoever asks for look-ups at whatever times, an address is refused only because it
    /// has had its share or the node has had all of its look-ups: never for want of a row.
    #[test]
    fn an_address_with_a_share_gets_what_the_node_has_left(
        look_ups in prop::collection::vec(
            (0usize..1000, prop_oneof![9 => 0u64..60_000_000, 1 => 0u64..3_000_000_000]),
            1..2000,
        ),
        crowd in 1usize..1000,
    ) {
        let mut admission = Box::new(Admission::NEW);
        let mut now_ns = 1;
        let mut of_node = Vec::new();
        let mut of_address = std::collections::HashMap::<usize, Vec<u64>>::new();
        for (address, after_ns) in look_ups {
            let address = address % crowd;
            now_ns += after_ns;
            let own = of_address.entry(address).or_default();
            let has_share = tokens(own, BURST_PER_ADDRESS, INTERVAL_PER_ADDRESS_NS, now_ns) > 0;
            let has_left = tokens(&of_node, BURST_OF_LOOKUPS, INTERVAL_OF_LOOKUPS_NS, now_ns) > 0;
            let is_taken = admission.takes_lookup(&gid(address), now_ns);
            prop_assert_eq!(is_taken, has_share && has_left);
            if is_taken {
                own.push(now_ns);
                of_node.push(now_ns);
            }
        }
    }
}

/// Whole tokens of a bucket from which was taken at these times.
fn tokens(taken: &[u64], burst: u32, interval_ns: u64, now_ns: u64) -> u64 {
    let capacity_ns = u64::from(burst) * interval_ns;
    let (mut level_ns, mut last_ns) = (capacity_ns, 0);
    for at_ns in taken {
        level_ns = capacity_ns.min(level_ns + (at_ns - last_ns)) - interval_ns;
        last_ns = *at_ns;
    }
    capacity_ns.min(level_ns + (now_ns - last_ns)) / interval_ns
}
