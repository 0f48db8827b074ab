// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A thousand peers that are used as traces say, with far fewer queue pairs. Each trace
//! prints which part of the requests went by RC, beside the best that any choice made in
//! advance could have reached, and how many queue pairs were made.

use super::{gid, Node};
use crate::pool::{Mode, Transport};
use fastrand::Rng;

const NODES: u32 = 1000;
const BUDGET: usize = 64;
/// Requests a look: so many draws, each for a row of requests.
const REQUESTS: usize = 2_000;
const ROW: u64 = 20;
const LOOKS: usize = 1200;
/// Looks in which the pool may learn before it is judged.
const WARM_UP: usize = 200;

struct Outcome {
    by_rc: f64,
    best: f64,
    opened: usize,
}

/// `draw` makes the peers' numbers for a look.
fn run(name: &str, mut draw: impl FnMut(usize, &mut Rng) -> Vec<u64>) -> Outcome {
    let mut node = Node::new(Mode::Auto, BUDGET);
    let mut rng = Rng::with_seed(1);
    let (mut by_rc, mut best, mut all) = (0, 0, 0);
    for look in 0..LOOKS {
        let counts = draw(look, &mut rng);
        for (number, count) in counts.iter().enumerate() {
            if *count == 0 {
                continue;
            }
            let peer = gid(number as u32);
            if look >= WARM_UP && node.uses(&peer) == Transport::Rc {
                by_rc += count;
            }
            node.traffic(&peer, *count, 300_000, 100_000);
        }
        let mut sorted = counts;
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        if look >= WARM_UP {
            best += sorted.iter().take(BUDGET).sum::<u64>();
            all += sorted.iter().sum::<u64>();
        }
        node.look();
        assert!(node.links.len() + node.asked.len() <= BUDGET);
    }
    let share = |part: u64| part as f64 / all as f64;
    let result = Outcome {
        by_rc: share(by_rc),
        best: share(best),
        opened: node.opened,
    };
    println!(
        "{name}: {:.1} % by RC, of {:.1} % at best; {} queue pairs made, {} moves in {} s",
        100.0 * result.by_rc,
        100.0 * result.best,
        result.opened,
        node.moves.len(),
        LOOKS / 10,
    );
    result
}

fn counts(weights: &[f64], requests: usize, rng: &mut Rng) -> Vec<u64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = weights
        .iter()
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    let mut counts = vec![0; weights.len()];
    for _ in 0..requests {
        let drawn = rng.f64() * sum;
        counts[sums.partition_point(|sum| *sum <= drawn)] += ROW;
    }
    counts
}

#[test]
fn zipf() {
    let weights: Vec<f64> = (1..=NODES).map(|rank| 1.0 / f64::from(rank)).collect();
    let result = run("Zipf", |_, rng| counts(&weights, REQUESTS, rng));
    assert!(result.by_rc >= 0.9 * result.best);
    assert!(result.opened <= 3 * BUDGET);
}

#[test]
fn uniform() {
    // So few that all of them are busy.
    let weights = vec![1.0; 300];
    let result = run("uniform", |_, rng| counts(&weights, REQUESTS, rng));
    // None is used much more than another: those that have one keep it.
    assert!(result.opened <= 2 * BUDGET);
}

#[test]
fn bursts() {
    // Forty peers are busy for ten seconds, then forty others.
    let result = run("bursts", |look, rng| {
        let first = (look / 100) * 40 % NODES as usize;
        let mut weights = vec![0.0; NODES as usize];
        (first..first + 40).for_each(|peer| weights[peer % NODES as usize] = 1.0);
        counts(&weights, REQUESTS, rng)
    });
    assert!(result.by_rc >= 0.6 * result.best);
}

#[test]
fn a_scan_over_all_nodes_takes_nothing_from_those_that_are_used() {
    let mut next = 0;
    let result = run("scan", |_, rng| {
        let mut weights = vec![0.0; NODES as usize];
        (0..50).for_each(|peer| weights[peer] = 1.0);
        let mut counts = counts(&weights, REQUESTS, rng);
        for _ in 0..20 {
            next = (next + 1) % NODES as usize;
            counts[next] += rng.u64(50..100);
        }
        counts
    });
    assert!(result.by_rc >= 0.9 * result.best);
    assert!(result.opened <= 2 * BUDGET);
}

#[test]
fn peers_that_come_and_go() {
    // Each second two of the hundred that are used are others.
    let mut used: Vec<usize> = (0..100).collect();
    let result = run("come and go", |look, rng| {
        if look % 10 == 0 {
            for _ in 0..2 {
                let place = rng.usize(0..used.len());
                used[place] = rng.usize(0..NODES as usize);
            }
        }
        let mut weights = vec![0.0; NODES as usize];
        for (rank, peer) in used.iter().enumerate() {
            weights[*peer] += 1.0 / (rank + 1) as f64;
        }
        counts(&weights, REQUESTS, rng)
    });
    assert!(result.by_rc >= 0.8 * result.best);
}
