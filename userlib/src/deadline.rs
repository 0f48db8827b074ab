// SPDX-License-Identifier: MIT OR Apache-2.0

//! When a time that a caller gives is over. Callers give [`Duration::MAX`] for "wait for ever",
//! which cannot be added to a clock.

use std::time::{Duration, Instant};

/// Longer than anybody waits.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// When so much time is over; in a year, if it is more than that.
pub(crate) fn end_of(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(YEAR)
}

#[cfg(test)]
mod tests {
    use crate::fabric::shm::{Shm, ShmSeats};
    use crate::multicast::{Group, Subgroup};
    use crate::rdmc::{self, GroupConfig, Node};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    const FOR_EVER: Duration = Duration::MAX;

    fn node() -> Shm {
        Shm::threads(1).expect("a fabric").remove(0)
    }

    #[test]
    fn a_group_waits_for_ever() {
        let mut builder = Group::builder(node()).timeout(FOR_EVER);
        let subgroup = builder.subgroup(Subgroup::new("a"));
        let group = builder.join().expect("a group");
        let mut deliveries = group.deliveries(subgroup).expect("its deliveries");
        let sender = group.sender(subgroup).expect("its sender");
        sender.send(|slot| slot.put(b"a")).expect("it is sent");
        assert!(deliveries.batch(Some(FOR_EVER), |_| ()).is_some());
        group.leave(FOR_EVER).expect("all is delivered");
    }

    #[test]
    fn a_member_that_is_stepped_sleeps_for_ever() {
        let mut builder = Group::builder(node());
        let subgroup = builder.subgroup(Subgroup::new("a"));
        let builder = builder.deliver(subgroup, |_| ());
        let group = builder.join_stepped().expect("a group");
        while group.step() {}
        let sender = group.sender(subgroup).expect("its sender");
        let has_woken = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_woken.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                    sender.send(|slot| slot.put(b"a")).expect("it is sent");
                }
            });
            while !group.step_within(FOR_EVER) {}
            has_woken.store(true, Ordering::Relaxed);
        });
        group.flush(FOR_EVER).expect("all is delivered");
    }

    #[test]
    fn an_rdmc_node_waits_for_ever() {
        let node = Node::builder(node()).timeout(FOR_EVER).join();
        let node = node.expect("a node");
        let config = GroupConfig::new(0, [0]);
        let group = node.create_group(&config, FOR_EVER, |_| None, |_: rdmc::Event| {});
        let group = group.expect("a group");
        group.flush(FOR_EVER).expect("nothing was sent");
        group.destroy(FOR_EVER).expect("it is over");
    }

    #[test]
    fn a_newcomer_waits_for_ever() {
        let (name, nodes) = ShmSeats::threads(1, 2).expect("a fabric");
        let group = |node| {
            let mut builder = Group::builder(node).with_views().timeout(FOR_EVER);
            let subgroup = builder.subgroup(Subgroup::new("a"));
            let builder = builder.deliver(subgroup, |_| ());
            builder.join().expect("a group")
        };
        let _groups: Vec<_> = nodes.into_iter().map(group).collect();
        let newcomer = ShmSeats::newcomer(&name, 2, FOR_EVER).expect("a seat");
        let newcomer = group(newcomer);
        assert_eq!(newcomer.rank(), 1);
        newcomer.leave(FOR_EVER).expect("it leaves");
    }
}
