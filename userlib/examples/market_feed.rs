// SPDX-License-Identifier: MIT OR Apache-2.0

//! A market-data feed: one publisher, many subscribers, quotes as typed
//! messages that are built and read in place.
//!
//! Trades are in total order, for all to agree; quotes are unordered, for only
//! the latest counts and nobody should wait.
//!
//! `cargo run --release -p weft --example market_feed`

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft::fabric::{shm::Shm, Fabric};
use weft::{Group, Sender, Subgroup};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const SUBSCRIBERS: usize = 2;
const QUOTES: u64 = 500_000;
const PATIENCE: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A quote or a trade.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Tick {
    number: u64,
    instrument: u32,
    volume: u32,
    price_cents: u64,
}

fn main() -> Result<(), Failure> {
    let joining: Vec<_> = Shm::threads(SUBSCRIBERS + 1)?
        .into_iter()
        .map(|node| std::thread::spawn(move || run(node)))
        .collect();
    for thread in joining {
        println!("{}", thread.join().expect("a member does not panic")?);
    }
    Ok(())
}

fn run(node: Shm) -> Result<String, Failure> {
    let rank = node.rank();
    let (quotes, turnover_cents) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (seen, traded) = (Arc::clone(&quotes), Arc::clone(&turnover_cents));
    let ticks = |name: &str| {
        Subgroup::new(name)
            .senders([0])
            .window(256)
            .max_message(size_of::<Tick>())
    };
    let mut builder = Group::builder(node);
    let all_quotes = builder.subgroup(ticks("quotes").unordered());
    let all_trades = builder.subgroup(ticks("trades"));
    let group = builder
        .deliver(all_quotes, move |batch| {
            seen.fetch_add(batch.count() as u64, Ordering::Relaxed);
        })
        .deliver(all_trades, move |batch| {
            for tick in batch.filter_map(|message| message.value::<Tick>()) {
                let worth = tick.price_cents * u64::from(tick.volume);
                traded.fetch_add(worth, Ordering::Relaxed);
            }
        })
        .timeout(PATIENCE)
        .join()?;
    let began = Instant::now();
    if rank == 0 {
        publish(&group.sender(all_quotes)?, &group.sender(all_trades)?)?;
        group.flush(PATIENCE)?;
    } else {
        // The publisher leaves when all have everything.
        while !group.left().contains(0) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let quotes = quotes.load(Ordering::Relaxed);
    group.leave(PATIENCE)?;
    Ok(format!(
        "member {rank}: {quotes} quotes, {:.0} a second, turnover {} cents",
        quotes as f64 / seconds,
        turnover_cents.load(Ordering::Relaxed)
    ))
}

fn publish(quotes: &Sender, trades: &Sender) -> Result<(), Failure> {
    for number in 0..QUOTES {
        let tick = Tick {
            number,
            instrument: (number % 30) as u32,
            volume: 1 + (number % 100) as u32,
            price_cents: 10_000 + number % 977,
        };
        quotes.send(|slot| {
            if let Some(place) = slot.value::<Tick>() {
                *place = tick;
            }
        })?;
        if number % 50 == 0 {
            trades.send_value(&tick)?;
        }
    }
    Ok(())
}
