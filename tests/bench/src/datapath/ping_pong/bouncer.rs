// SPDX-License-Identifier: MIT OR Apache-2.0

//! The far end of a ping-pong of WRITEs: a child process on another node that
//! sends back what arrives.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use weft_verbs::Endpoint;

use super::ends::{VerbsHalf, WeftHalf};
use super::{End, SPIN};
use crate::child::{say_ready, wait_for_end, Helper};
use crate::cli::{System, Transport};
use crate::nodes::{Node, CLIENT};
use crate::peer::Region;
use crate::weft::Way;

/// Between two looks, once it has looked for long enough without sleeping.
const NAP: Duration = Duration::from_micros(200);
/// Looks between two at the clock.
const LOOKS: u32 = 64;

#[derive(Clone, Debug, Args)]
pub struct BouncerArgs {
    /// The node to be on.
    #[arg(long)]
    pub node: u16,
    /// Whose WRITEs.
    #[arg(long, value_enum)]
    pub system: System,
    /// What Weft's go over.
    #[arg(long, value_enum, default_value = "rc")]
    pub transport: Transport,
    /// Bytes of a WRITE.
    #[arg(long)]
    pub bytes: u32,
    /// The near end's memory.
    #[arg(long)]
    pub addr: u64,
    /// The key of that memory.
    #[arg(long)]
    pub rkey: u32,
    /// The near end's queue pair, of verbs, in hexadecimal.
    #[arg(long, default_value = "")]
    pub endpoint: String,
}

/// What the far end says when it is there.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Its memory.
    pub region: Region,
    /// Its queue pair, of verbs, in hexadecimal.
    endpoint: String,
}

impl Ready {
    /// Its queue pair.
    pub fn endpoint(&self) -> Result<Endpoint> {
        from_hex(&self.endpoint)
    }
}

/// A running far end. Dropping it ends it.
pub struct Bouncer(#[expect(dead_code, reason = "held to be dropped")] Helper);

impl Bouncer {
    /// Starts one of verbs on a node, for a near end.
    pub fn of_verbs(node: Node, bytes: u32, near: &VerbsHalf) -> Result<(Self, Ready)> {
        let endpoint = to_hex(&near.endpoint());
        let of_verbs = [("--endpoint", endpoint)];
        Self::start(node, System::Verbs, bytes, near.region(), of_verbs)
    }

    /// Starts one of Weft on a node, for a near end's memory.
    pub fn of_weft(
        node: Node,
        transport: Transport,
        bytes: u32,
        near: Region,
    ) -> Result<(Self, Ready)> {
        let of_weft = [("--transport", transport.name().to_owned())];
        Self::start(node, System::Weft, bytes, near, of_weft)
    }

    fn start(
        node: Node,
        system: System,
        bytes: u32,
        near: Region,
        own: [(&str, String); 1],
    ) -> Result<(Self, Ready)> {
        let words = [
            ("--node", node.0.to_string()),
            ("--system", system.name().to_owned()),
            ("--bytes", bytes.to_string()),
            ("--addr", near.addr.to_string()),
            ("--rkey", near.rkey.to_string()),
        ];
        let words = words.into_iter().chain(own);
        let words = words.flat_map(|(name, value)| [name.to_owned(), value]);
        let all: Vec<_> = ["bouncer".to_owned()].into_iter().chain(words).collect();
        let (helper, ready) = Helper::start(&all)?;
        Ok((Self(helper), ready))
    }
}

/// Is the far end.
pub fn bounce(args: &BouncerArgs) -> Result<()> {
    let node = Node(args.node);
    node.enter()?;
    let near = Region {
        addr: args.addr,
        rkey: args.rkey,
    };
    match args.system {
        System::Verbs => {
            let half = VerbsHalf::new(node, args.bytes)?;
            let (region, own) = (half.region(), to_hex(&half.endpoint()));
            serve(half.connect(&from_hex(&args.endpoint)?, near)?, region, own)
        }
        System::Weft => {
            // Each end's pool decides by itself.
            let _way = Way::force(node, CLIENT, args.transport)?;
            let half = WeftHalf::new(node, args.bytes)?;
            let region = half.region();
            serve(
                half.connect(CLIENT, near, args.transport)?,
                region,
                String::new(),
            )
        }
    }
}

fn serve(mut end: impl End + 'static, region: Region, endpoint: String) -> Result<()> {
    thread::spawn(move || {
        if let Err(error) = send_back(&mut end) {
            eprintln!("weft-bench: bouncer: WRITEs are sent back no longer: {error:#}");
        }
    });
    say_ready(&Ready { region, endpoint })?;
    wait_for_end()
}

/// Sends back what arrives for as long as the process lives.
fn send_back(end: &mut impl End) -> Result<()> {
    let mut mark = 1;
    let mut last = Instant::now();
    loop {
        while !has_arrived(end, mark)? {
            if last.elapsed() > SPIN {
                thread::sleep(NAP);
            }
        }
        end.write(mark)?;
        mark = mark.wrapping_add(1);
        last = Instant::now();
    }
}

/// Looks a few times, because a look at the clock takes longer than one.
fn has_arrived(end: &impl End, mark: u8) -> Result<bool> {
    for _ in 0..LOOKS {
        if end.arrived()? == mark {
            return Ok(true);
        }
    }
    Ok(false)
}

fn to_hex(endpoint: &Endpoint) -> String {
    let bytes = endpoint.encode();
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn from_hex(text: &str) -> Result<Endpoint> {
    let byte = |at: usize| {
        let digits = text.get(2 * at..2 * at + 2);
        let digits = digits.context("a queue pair's address is cut short")?;
        u8::from_str_radix(digits, 16).context("a queue pair's address is not hexadecimal")
    };
    let mut bytes = [0; Endpoint::BYTES];
    for (at, place) in bytes.iter_mut().enumerate() {
        *place = byte(at)?;
    }
    Ok(Endpoint::decode(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_digits() {
        let mut bytes = [7; Endpoint::BYTES];
        bytes[19] = 0;
        bytes[23] = 5;
        let endpoint = Endpoint::decode(&bytes).unwrap();
        assert_eq!(from_hex(&to_hex(&endpoint)).unwrap(), endpoint);
        assert!(from_hex("00").is_err());
        assert!(from_hex("").is_err());
    }
}
