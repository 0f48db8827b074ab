// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups of one view after the other over the simulated fabric, stepped by the test.

use super::*;
use crate::fabric::sim::{Sim, SimNode};
use crate::fabric::NodeSet;
use crate::rdmc::engine::Driver;
use std::time::Duration;

const BYTES: usize = 64;
/// More steps than a message takes.
const STEPS: usize = 10_000;

/// The root of each message, and its number.
type Heard = Arc<Mutex<Vec<(u8, u64)>>>;

struct Member {
    group: ViewGroup,
    driver: Driver,
    node: Node,
    received: Heard,
    /// How many messages all had when a group ended, as this member was told.
    ended: Arc<Mutex<Vec<u64>>>,
}

impl Member {
    fn join(node: SimNode) -> Self {
        let builder = Node::builder(node).memory(1 << 20);
        let builder = builder.timeout(Duration::from_secs(60));
        let (node, driver) = builder.join_stepped().expect("they meet");
        let (received, ended) = (Heard::default(), Arc::default());
        let memory = node.memory();
        let group = node.view_group(
            config_in,
            move |incoming| memory.allocate(incoming.size).ok(),
            Self::hear(&received, &ended),
        );
        Self {
            group,
            driver,
            node,
            received,
            ended,
        }
    }

    fn hear(received: &Heard, ended: &Arc<Mutex<Vec<u64>>>) -> impl FnMut(ViewEvent) + Send {
        let (heard, ends) = (Arc::clone(received), Arc::clone(ended));
        move |event| match event {
            ViewEvent::Received(message) => {
                let root = message.bytes()[0];
                heard.lock().expect("no panic").push((root, message.number));
            }
            ViewEvent::Ended { received, .. } => ends.lock().expect("no panic").push(received),
            ViewEvent::Sent(_) | ViewEvent::Returned(_) => {}
        }
    }

    /// Sends the next message as this root.
    fn send(&self, number: u64) {
        let root = u8::try_from(self.node.rank()).expect("a rank");
        let mut buffer = self.node.allocate(BYTES).expect("there is memory");
        buffer.fill(root);
        let sent = self.group.send(number, buffer, BYTES);
        sent.expect("it is the root");
    }

    fn received(&self) -> Vec<(u8, u64)> {
        self.received.lock().expect("no panic").clone()
    }
}

/// The root comes first. It changes with each view, and returns.
fn config_in(view: &View) -> Option<GroupConfig> {
    let members: &[usize] = match view.number {
        1 => &[1, 2, 3],
        2 => &[0, 1, 2],
        _ => &[1, 2],
    };
    let number = u32::try_from(view.number).ok()?;
    let config = GroupConfig::in_view(number, view, members.iter().copied());
    Some(config.block_bytes(BYTES))
}

/// Has these go over to a view, if there is one, and do what there is to do.
fn go_on(sim: &Sim, members: &mut [Member], running: &[usize], view: Option<&View>) {
    for &rank in running {
        if let Some(view) = view {
            let installed = members[rank].group.install(view);
            installed.expect("its group can be created");
        }
    }
    for _ in 0..STEPS {
        for (from, to) in sim.busy_links() {
            sim.advance(from, to);
        }
        for &rank in running {
            members[rank].driver.step();
        }
    }
}

/// A node crashes, and these learn it.
fn crash(sim: &Sim, node: usize, left: &[usize]) {
    sim.crash(node);
    sim.lose(node);
    left.iter().for_each(|&other| sim.notice(other, node));
}

#[test]
fn a_root_that_returns_sends_again_what_a_member_has_and_it_is_received_once() {
    let (sim, nodes) = Sim::new(4, 7, false);
    sim.meet_at_once();
    let mut members: Vec<_> = nodes.into_iter().map(Member::join).collect();
    let first = View::first((0..4).collect());
    go_on(&sim, &mut members, &[0, 1, 2, 3], Some(&first));
    // Node 3 takes no part in the message any more, and then it dies.
    members[1].send(1);
    go_on(&sim, &mut members, &[0, 1, 2], None);
    assert_eq!(members[2].received(), [(1, 1)]);
    crash(&sim, 3, &[0, 1, 2]);
    let second = first.next((0..3).collect(), NodeSet::EMPTY, None);
    go_on(&sim, &mut members, &[0, 1, 2], Some(&second));
    assert_eq!(*members[1].ended.lock().expect("no panic"), [0]);
    members[0].send(1);
    go_on(&sim, &mut members, &[0, 1, 2], None);
    crash(&sim, 0, &[1, 2]);
    let third = second.next((1..3).collect(), NodeSet::EMPTY, None);
    go_on(&sim, &mut members, &[1, 2], Some(&third));
    assert_eq!(members[1].group.next(), 1);
    members[1].send(1);
    members[1].send(2);
    go_on(&sim, &mut members, &[1, 2], None);
    assert_eq!(members[2].received(), [(1, 1), (0, 1), (1, 2)]);
}
