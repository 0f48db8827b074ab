// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whether the attacker's packets get anywhere: to the sockets, through the streams, into
//! memory. An attack that stays at the door would pass every other check.

use std::time::Duration;

use anyhow::{ensure, Context, Result};
use weft_core::dc::wire::{Kind, Request};
use weft_core::dc::WINDOW;

use super::capture::{own_token, Capture, Reach};
use super::grammar::{Grammar, Packet, Prey, OWN};
use super::network::{Arrivals, Sender, FRAGMENT_UNIT};
use super::NODES;
use crate::messenger::Others;
use crate::rng::Rng;
use crate::world::{counters, wait_for};

/// Packets that are sent to see how many arrive, while nobody else sends any.
const SAMPLE: usize = 1500;
/// PSNs that some stream gets to: several times as many as a target remembers.
const DEEP: u32 = 4 * WINDOW as u32;
/// What targets say, sooner or later.
const ANSWERS: [&str; 8] = [
    "Ok",
    "Flushed",
    "Invalid",
    "Access",
    "NoReceiver",
    "Sequence",
    "NoContext",
    "NotReady",
];
/// WRITEs in a packet that goes in fragments, their bytes, and fragments' bytes.
const WRITES: usize = 5;
const WRITE: usize = 1600;
const FRAGMENTS: [usize; 6] = [1, 3, 11, 32, 185, 1100];
/// Fragments are on their way no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Of packets that are sent while nobody else is at work, each node takes at least half.
pub fn most_arrive(prey: &[Prey], seed: u64) -> Result<()> {
    let capture = Capture::start()?;
    let mut sender = Sender::new()?;
    let mut grammar = Grammar::new(Rng::new(seed), prey, &capture);
    let before = everywhere()?;
    let (mut sent, mut in_fragments) = ([0; NODES as usize], [0; NODES as usize]);
    for _ in 0..SAMPLE {
        let packet = grammar.next();
        let node = prey.iter().position(|prey| prey.target.addr == packet.to.0);
        if let Some(node) = node.filter(|_| sender.send(&packet)) {
            sent[node] += 1;
            in_fragments[node] += u64::from(packet.is_in_fragments());
        }
    }
    let after = everywhere()?;
    for (node, (before, after)) in before.iter().zip(after).enumerate() {
        let arrived = after.datagrams - before.datagrams;
        let whole = after.reassembled - before.reassembled;
        let (sent, in_fragments) = (sent[node], in_fragments[node]);
        println!(
            "# node {node}: of {sent} packets {arrived} arrived, {whole} of {in_fragments} in fragments"
        );
        ensure!(
            arrived > sent / 2 && whole > in_fragments / 2,
            "node {node} takes {arrived} of {sent} packets, {whole} of {in_fragments} in fragments"
        );
    }
    Ok(())
}

fn everywhere() -> Result<Vec<Arrivals>> {
    (0..usize::from(NODES)).map(Arrivals::at).collect()
}

/// WRITEs that come in fragments of all sizes write just what they carry.
pub fn fragments_land(prey: &[Prey], seed: u64) -> Result<()> {
    let mut sender = Sender::new()?;
    let mut rng = Rng::new(seed);
    for prey in prey {
        let memory = prey.memory.as_ref().context("a region of another's")?;
        for units in FRAGMENTS {
            let bytes = rng.bytes(WRITES * WRITE);
            sender.send(&writes(&mut rng, prey, &bytes, units * FRAGMENT_UNIT));
            let mut there = vec![0; bytes.len()];
            wait_for("the bytes are there", PATIENCE, || {
                memory.copy_out(0, &mut there)?;
                Ok(there == bytes)
            })?;
        }
    }
    Ok(())
}

/// A packet of several WRITEs one behind the other, in fragments.
fn writes(rng: &mut Rng, prey: &Prey, bytes: &[u8], fragment: usize) -> Packet {
    let token = own_token(rng.next());
    let mut payload = Vec::new();
    for (psn, bytes) in (0..).zip(bytes.chunks(WRITE)) {
        let request = Request {
            kind: Kind::Write,
            stream: 1,
            token,
            psn,
            destination: prey.target.destination,
            flow: 1,
            remote_addr: prey.region.addr + u64::from(psn) * WRITE as u64,
            rkey: prey.region.rkey,
            len: bytes.len() as u32,
        };
        payload.extend(request.encode());
        payload.extend(bytes);
    }
    Packet {
        kind: "fragments",
        from: (OWN[0], prey.target.port),
        to: (prey.target.addr, prey.target.port),
        payload,
        fragment: Some(fragment),
    }
}

/// How far an attack gets.
pub struct Depth {
    capture: Capture,
    counters: Counts,
    arrivals: Vec<Arrivals>,
}

/// How far it got.
pub struct Reached {
    reach: Reach,
    counters: Counts,
}

/// The module's counters that tell of it.
#[derive(Clone, Copy, Debug)]
struct Counts {
    executed: i64,
    repeated: i64,
    dropped: i64,
    refused: i64,
    not_ready: i64,
}

impl Counts {
    fn take() -> Result<Self> {
        let all = counters()?;
        let of = |name| all.get(name).copied().unwrap_or(0);
        Ok(Self {
            executed: of("requests_executed"),
            repeated: of("requests_repeated"),
            dropped: of("packets_dropped"),
            refused: of("refusals_sent") + of("refusals_suppressed"),
            not_ready: of("not_ready"),
        })
    }
}

impl Depth {
    /// From now on.
    pub fn begin() -> Result<Self> {
        Ok(Self {
            capture: Capture::start()?,
            counters: Counts::take()?,
            arrivals: everywhere()?,
        })
    }

    /// What the attacker sees.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Until now.
    pub fn take(&self) -> Result<Reached> {
        let (now, before) = (Counts::take()?, self.counters);
        let counters = Counts {
            executed: now.executed - before.executed,
            repeated: now.repeated - before.repeated,
            dropped: now.dropped - before.dropped,
            refused: now.refused - before.refused,
            not_ready: now.not_ready - before.not_ready,
        };
        let reach = self.capture.reach();
        let fragmented: Vec<_> = everywhere()?
            .iter()
            .zip(&self.arrivals)
            .map(|(now, before)| now.reassembled - before.reassembled)
            .collect();
        println!("# deepest PSN carried out: {}", reach.deepest);
        println!("# answers to the attacker: {:?}", reach.answers);
        println!("# all nodes' counters: {counters:?}");
        println!("# packets put together from fragments, by node: {fragmented:?}");
        Ok(Reached { reach, counters })
    }
}

impl Reached {
    /// Streams have gone on for longer than a target remembers, and been repeated.
    pub fn is_deep(&self) -> Result<()> {
        let deepest = self.reach.deepest;
        ensure!(
            deepest >= DEEP,
            "nothing was carried out beyond PSN {deepest}"
        );
        ensure!(self.counters.repeated > 0, "no request was repeated");
        Ok(())
    }

    /// Targets have said all that they may say to the attacker.
    pub fn has_all_answers(&self) -> Result<()> {
        for answer in ANSWERS {
            ensure!(
                self.reach.answers.contains_key(answer),
                "no target said {answer}"
            );
        }
        Ok(())
    }

    /// Messages of the attacker's have arrived, some in several chunks, some not wholly.
    pub fn has_messages(&self, others: &Others) -> Result<()> {
        ensure!(
            others.whole > 0 && others.of_several_chunks > 0 && others.failed > 0,
            "the bystander's port got {others:?}"
        );
        ensure!(self.counters.not_ready > 0, "all ports had buffers");
        Ok(())
    }
}
