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
    let taken = (0..100_000u64).filter(|at| admission.takes_lookup(at * 10_000));
    assert_eq!(taken.count(), BURST_OF_LOOKUPS as usize + 19);
    assert!(admission.takes_offer(&gid(1), 1_000_000_000));
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
}
