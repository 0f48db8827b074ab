// SPDX-License-Identifier: MIT OR Apache-2.0

//! Keys that nobody told.

use anyhow::{ensure, Result};
use weft_core::uapi::WcStatus;
use weft_shim::{Remote, SendWr};

use super::attacker::{unanimous, Outcome, Stage};
use super::table::Verb;
use super::victim::Part;
use crate::rng::Rng;
use crate::world::{connect, gid};

/// Keys that one attempt guesses.
const GUESSES: usize = 500;
/// Regions on the victim's node, no fewer than there are.
const REGIONS: f64 = 64.0;

/// How likely a guess hits one of the node's keys. It would have to hit an
/// address too.
pub fn chance() -> String {
    let one = REGIONS / 2f64.powi(32);
    format!(
        "of {GUESSES} random keys one is a key of {REGIONS} regions with probability {:.0e}",
        one * GUESSES as f64
    )
}

/// The address is right, the key is another region's.
pub fn secret_by_readable_key(stage: &mut Stage) -> Result<Outcome> {
    let addr = stage.told.place(Part::Secret).addr;
    let rkey = stage.told.place(Part::Readable).rkey;
    stage.peer(Verb::Read, Remote { addr, rkey }, 8)
}

/// The region of a window has the same addresses and no rights for peers.
pub fn region_of_window(stage: &mut Stage) -> Result<Outcome> {
    let place = stage.told.place(Part::Windowed);
    let by_region = Remote {
        addr: place.addr,
        rkey: place.lkey,
    };
    stage.peer(Verb::Read, by_region, 8)
}

/// Keys next to those that were told, and one bit away from them.
pub fn neighbours(stage: &mut Stage) -> Result<Outcome> {
    let places = [Part::Readable, Part::Stale].map(|part| stage.told.place(part));
    let known: Vec<u32> = stage.told.places.iter().map(|place| place.rkey).collect();
    let guesses = places.iter().flat_map(|place| {
        let near = (1..=64).flat_map(|n| [place.rkey.wrapping_add(n), place.rkey.wrapping_sub(n)]);
        let flipped = (0..32).map(|bit| place.rkey ^ (1 << bit));
        let keys = near.chain(flipped).filter(|key| !known.contains(key));
        keys.map(|rkey| Remote {
            addr: place.addr,
            rkey,
        })
    });
    unanimous(guesses.map(|remote| guess(stage, Verb::Read, remote)))
}

pub fn random_reads(stage: &mut Stage) -> Result<Outcome> {
    random(stage, Verb::Read, Part::Readable)
}

pub fn random_writes(stage: &mut Stage) -> Result<Outcome> {
    random(stage, Verb::Write, Part::Writable)
}

fn random(stage: &mut Stage, verb: Verb, part: Part) -> Result<Outcome> {
    let mut rng: Rng = stage.rng();
    let addr = stage.told.place(part).addr + 64;
    let known: Vec<u32> = stage.told.places.iter().map(|place| place.rkey).collect();
    let keys = std::iter::repeat_with(|| rng.next() as u32).filter(|key| !known.contains(key));
    unanimous(
        keys.take(GUESSES)
            .map(|rkey| guess(stage, verb, Remote { addr, rkey })),
    )
}

/// One guess costs a VQP.
fn guess(stage: &Stage, verb: Verb, remote: Remote) -> Result<Outcome> {
    let mut vqp = connect(&stage.device, 0, 4)?;
    let wr: SendWr<'_> = verb.request(stage.own.slice(0..8)?, remote);
    match vqp.run(wr) {
        Ok(_) => Ok(Outcome::Status(WcStatus::Success)),
        Err(weft_shim::Error::Completion(error)) => {
            ensure!(error.status.is_some(), "an unknown status from {}", gid(0));
            Ok(Outcome::Status(error.status.unwrap_or(WcStatus::FatalErr)))
        }
        Err(error) => Err(error.into()),
    }
}
