// SPDX-License-Identifier: GPL-2.0 OR MIT

use super::*;
use crate::rc::links::{LinkView, Stage};
use crate::rc::tests::answer;
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;
const PEER: Gid = Gid::from_ipv4([10, 77, 0, 2]);
const FIRST: Lane = Lane::first(PEER);
const OTHER: Gid = Gid::from_ipv4([10, 77, 0, 3]);
const MISSING: Seen = Seen {
    is_connected: false,
    is_offered: false,
    is_being_answered: false,
    is_closing: false,
};
const OFFERED: Seen = Seen {
    is_offered: true,
    ..MISSING
};
const BEING_ANSWERED: Seen = Seen {
    is_being_answered: true,
    ..MISSING
};
const UP: Seen = Seen {
    is_connected: true,
    ..MISSING
};

const CLOSING: Seen = Seen {
    is_closing: true,
    ..MISSING
};

#[test]
fn no_queue_pair_is_offered_before_the_one_that_is_being_closed_has_gone() {
    let views = [LinkView {
        lane: FIRST,
        stage: Stage::Closing,
    }];
    let seen = Seen::of(views.into_iter(), &FIRST, false);
    assert_eq!(seen, CLOSING);
    // For long, because long requests end first.
    for by in [WantedBy::Pin, WantedBy::Pool, WantedBy::Processor] {
        let mut want = Want::new(FIRST, by, 0);
        let mut now_ns = 0;
        while now_ns < 2 * UNREACHABLE_NS {
            assert_eq!(
                want.step(seen, now_ns, 0),
                Step::Wait(Some(now_ns + LOOK_NS))
            );
            now_ns += LOOK_NS;
        }
        assert_eq!(want.step(MISSING, now_ns, 0), Step::Offer);
    }
}

#[test]
fn only_the_peer_answers_its_offer() {
    let mut want = Want::new(FIRST, WantedBy::Pin, 0);
    assert_eq!(want.step(MISSING, 0, 0), Step::Offer);
    assert!(!want.answered(&PEER, &answer(PEER, 7)), "nothing was sent");
    want.offered(7, 0);
    assert!(!want.answered(&PEER, &answer(PEER, 8)), "another offer's");
    assert!(!want.answered(&OTHER, &answer(PEER, 7)), "from elsewhere");
    assert!(!want.answered(&PEER, &answer(OTHER, 7)), "for another");
    let offer = Hello {
        role: Role::Offer,
        ..answer(PEER, 7)
    };
    assert!(!want.answered(&PEER, &offer), "no answer");
    let second = Hello {
        lane: 1,
        ..answer(PEER, 7)
    };
    assert!(!want.answered(&PEER, &second), "of another queue pair");
    assert!(want.answered(&PEER, &answer(PEER, 7)));
    assert!(!want.answered(&PEER, &answer(PEER, 7)), "once");
    assert_eq!(want.step(MISSING, 1, 0), Step::Finish(answer(PEER, 7)));
    want.connected(1);
    assert_eq!(want.step(UP, 1, 0), Step::Wait(None));
}

/// Steps a want whose peer never answers; when it makes its offers, and when it leaves.
fn never_answers(mut want: Want, until_ns: u64, random: u32) -> (Vec<u64>, Option<u64>) {
    let (mut now_ns, mut offers) = (0, Vec::new());
    while now_ns < until_ns {
        match want.step(MISSING, now_ns, random) {
            Step::Offer => {
                offers.push(now_ns);
                want.offered(offers.len() as u64, now_ns);
            }
            Step::Wait(Some(next_ns)) => {
                assert!(next_ns > now_ns, "it turns in circles");
                now_ns = next_ns;
            }
            Step::Forget => return (offers, Some(now_ns)),
            step => panic!("{step:?}"),
        }
    }
    (offers, None)
}

#[test]
fn a_pinned_peer_that_is_back_is_connected_again() {
    let mut want = Want::new(FIRST, WantedBy::Pin, 0);
    let mut now_ns = 0;
    assert_eq!(want.step(MISSING, now_ns, 0), Step::Offer);
    want.offered(1, now_ns);
    assert!(want.answered(&PEER, &answer(PEER, 1)));
    assert!(matches!(want.step(MISSING, now_ns, 0), Step::Finish(_)));
    want.connected(now_ns);
    for _ in 0..1000 {
        now_ns += SECOND_NS;
        assert_eq!(want.step(UP, now_ns, 0), Step::Wait(None));
    }
    // when the queue pair breaks, then there is an offer at once
    assert_eq!(want.step(MISSING, now_ns, 0), Step::Offer);
}

#[test]
fn a_peer_that_is_used_stays_wanted_and_one_that_rests_does_not() {
    let mut want = Want::new(FIRST, WantedBy::User(0), 0);
    let mut now_ns = 0;
    for _ in 0..1000 {
        now_ns += SECOND_NS;
        want.used(now_ns);
        assert_eq!(want.step(UP, now_ns, 0), Step::Wait(Some(now_ns + IDLE_NS)));
    }
    assert_eq!(
        want.step(UP, now_ns + IDLE_NS - 1, 0),
        Step::Wait(Some(now_ns + IDLE_NS))
    );
    assert_eq!(want.step(UP, now_ns + IDLE_NS, 0), Step::Forget);
    // and not for ever without a queue pair, however much it is used
    let mut now_ns = 0;
    let mut want = Want::new(FIRST, WantedBy::User(0), now_ns);
    let forgotten = (0..1000).find_map(|_| {
        now_ns += SECOND_NS;
        want.used(now_ns);
        (want.step(MISSING, now_ns, 0) == Step::Forget).then_some(now_ns)
    });
    assert_eq!(forgotten, Some(UNREACHABLE_NS));
}

proptest! {
    #[test]
    fn offers_to_a_dead_peer_become_rare_but_do_not_end_while_it_is_pinned(random in any::<u32>()) {
        let (offers, left) = never_answers(Want::new(FIRST, WantedBy::Pin, 0), 3600 * SECOND_NS, random);
        prop_assert_eq!(left, None);
        let pauses: Vec<u64> = offers.windows(2).map(|pair| pair[1] - pair[0] - ANSWER_NS).collect();
        for (index, pause) in pauses.iter().enumerate() {
            let whole = (FIRST_RETRY_NS << index.min(20)).min(MAX_RETRY_NS);
            prop_assert!((whole - whole / 4..=whole).contains(pause), "{index}: {pause}");
        }
        prop_assert!(pauses.len() >= 300);
    }

    #[test]
    fn a_dead_peer_that_nobody_pinned_leaves(random in any::<u32>()) {
        let (offers, left) = never_answers(Want::new(FIRST, WantedBy::User(0), 0), 3600 * SECOND_NS, random);
        let bound_ns = IDLE_NS + ANSWER_NS + MAX_RETRY_NS;
        prop_assert!(left.is_some_and(|left_ns| (IDLE_NS..=bound_ns).contains(&left_ns)));
        prop_assert!(!offers.is_empty());
    }

    /// Whatever happens in whatever order, each step is one that can be taken, and no
    /// two offers are closer than the shortest pause.
    #[test]
    fn no_order_of_events_makes_offers_without_a_pause(
        events in prop::collection::vec((0u8..5, 0u64..3 * SECOND_NS, any::<u32>()), 1..200),
    ) {
        let mut want = Want::new(FIRST, WantedBy::Pin, 0);
        let (mut now_ns, mut token, mut last, mut is_up) = (0, 0, None::<u64>, false);
        for (event, after_ns, random) in events {
            now_ns += after_ns;
            match event {
                0 => is_up = false,
                1 => { want.answered(&PEER, &answer(PEER, token)); }
                2 => { want.answered(&PEER, &answer(PEER, token.wrapping_add(1))); }
                _ => {}
            }
            let seen = if is_up { UP } else { MISSING };
            match want.step(seen, now_ns, random) {
                Step::Offer => {
                    if let Some(last_ns) = last {
                        prop_assert!(now_ns - last_ns >= FIRST_RETRY_NS * 3 / 4);
                    }
                    token += 1;
                    if event == 3 {
                        want.failed(now_ns, random);
                    } else {
                        want.offered(token, now_ns);
                    }
                    last = Some(now_ns);
                }
                Step::Finish(hello) => {
                    prop_assert_eq!(hello.token, token);
                    if event == 4 {
                        want.failed(now_ns, random);
                    } else {
                        want.connected(now_ns);
                        last = Some(now_ns);
                        is_up = true;
                    }
                }
                Step::Wait(until) => prop_assert!(until.is_none_or(|until_ns| until_ns > now_ns)),
                Step::Forget => prop_assert!(false, "it is pinned"),
            }
        }
    }
}

#[test]
fn one_for_a_processor_is_wanted_until_it_is_up_or_was_tried_for_long() {
    let second = Lane {
        gid: PEER,
        number: 1,
    };
    let mut want = Want::new(second, WantedBy::Processor, 0);
    assert_eq!(want.step(MISSING, 0, 0), Step::Offer);
    want.offered(7, 0);
    let answer = Hello {
        lane: 1,
        ..answer(PEER, 7)
    };
    assert!(want.answered(&PEER, &answer));
    assert_eq!(want.step(MISSING, 1, 0), Step::Finish(answer));
    want.connected(2);
    assert_eq!(want.step(UP, 2, 0), Step::Forget);

    let unanswered = Want::new(second, WantedBy::Processor, 0);
    let (offers, left) = never_answers(unanswered, 3600 * SECOND_NS, 0);
    let soon_ns = UNREACHABLE_NS + MAX_RETRY_NS;
    assert!(offers.len() > 1 && left.is_some_and(|left_ns| left_ns <= soon_ns));
}

#[test]
fn it_waits_for_the_peers_offer_at_first_and_not_for_ever() {
    let mut want = Want::new(FIRST, WantedBy::Pin, 0);
    assert_eq!(want.step(OFFERED, 0, 0), Step::Wait(Some(LOOK_NS)));
    let last_ns = ANSWER_NS - 1;
    let next_ns = last_ns + LOOK_NS;
    assert_eq!(want.step(OFFERED, last_ns, 0), Step::Wait(Some(next_ns)));
    let (end_ns, next_ns) = (ANSWER_NS, ANSWER_NS + LOOK_NS);
    let step = want.step(BEING_ANSWERED, end_ns, 0);
    assert_eq!(step, Step::Wait(Some(next_ns)), "it is being answered");
    assert_eq!(want.step(OFFERED, end_ns, 0), Step::Offer);
    // and so before each of its offers
    want.failed(end_ns, 0);
    let due_ns = end_ns + FIRST_RETRY_NS;
    let next_ns = due_ns + LOOK_NS;
    assert_eq!(want.step(OFFERED, due_ns, 0), Step::Wait(Some(next_ns)));
    assert_eq!(want.step(OFFERED, due_ns + ANSWER_NS, 0), Step::Offer);
}

#[test]
fn its_own_offer_waits_for_no_other() {
    let mut want = Want::new(FIRST, WantedBy::Pin, 0);
    assert_eq!(want.step(MISSING, 0, 0), Step::Offer);
    want.offered(7, 0);
    assert_eq!(want.step(OFFERED, 1, 0), Step::Wait(Some(ANSWER_NS)));
    let low = Gid::from_ipv4([10, 77, 0, 1]);
    assert!(want.prevails(&low) && !want.prevails(&OTHER));
    want.failed(1, 0);
    assert!(!want.prevails(&low), "none is out");
}

#[test]
fn it_waits_for_the_peers_offer_when_the_queue_pair_has_just_gone() {
    // given one that has come up, and was not looked at since
    let mut want = Want::new(FIRST, WantedBy::Pin, 0);
    assert_eq!(want.step(MISSING, 0, 0), Step::Offer);
    want.offered(7, 0);
    assert!(want.answered(&PEER, &answer(PEER, 7)));
    assert!(matches!(want.step(MISSING, 0, 0), Step::Finish(_)));
    want.connected(0);
    // when it has gone, and the peer has offered another
    let gone_ns = SECOND_NS;
    let step = want.step(OFFERED, gone_ns, 0);
    // then that one is waited for
    assert_eq!(step, Step::Wait(Some(gone_ns + LOOK_NS)));
    let end_ns = gone_ns + ANSWER_NS;
    assert_eq!(want.step(OFFERED, end_ns, 0), Step::Offer);
}
