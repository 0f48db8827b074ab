// SPDX-License-Identifier: MIT OR Apache-2.0

//! One of the processes of the story. It says on its standard output what it
//! has done.

use anyhow::{ensure, Result};
use weft::fabric::{Fabric, FabricError, Write};

use crate::phases::{Phase, Player};
use crate::process::patience;
use crate::story::{NODES, VICTIM};
use weft_testkit::place::{Kind, Meeting, Placed};

/// Bytes of a node's region.
pub const REGION_BYTES: usize = 1 << 16;

/// Which one it is.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    kind: Kind,
    /// Its rank.
    #[arg(long)]
    pub rank: usize,
    #[arg(long)]
    meeting: Meeting,
}

/// Is one of the processes.
pub fn run(args: &Args) -> Result<()> {
    let node = Placed::new(args.kind, args.rank, NODES, args.meeting);
    // SAFETY: each phase says who writes what, and makes no references.
    let connected = unsafe { node.connect(REGION_BYTES, &[args.rank as u8], patience()) }?;
    let hellos: Vec<_> = (0..NODES).map(|rank| vec![rank as u8]).collect();
    ensure!(connected.hellos == hellos, "the hellos differ");
    println!("met");
    let mut player = Player::new(args.kind, connected.endpoint);
    for phase in Phase::TOGETHER {
        phase.play(&mut player)?;
        println!("{}", phase.name());
    }
    outlive(&mut player)?;
    println!("done");
    Ok(())
}

/// Sleeps until the victim is dead, and goes on with the other one.
fn outlive(player: &mut Player) -> Result<()> {
    let node = player.node.clone();
    println!("sleeping");
    while !node.down().contains(VICTIM) {
        // Nothing else ends this sleep: nobody posts and nobody rings.
        node.sleep(None, &mut || node.down().contains(VICTIM));
    }
    println!("noticed");
    let write = Write {
        local: 0,
        remote: 0,
        len: 8,
    };
    ensure!(node.post(VICTIM, &[write]) == Err(FabricError::PeerDown(VICTIM)));
    ensure!(node.fence(VICTIM) == Err(FabricError::PeerDown(VICTIM)));
    node.ring(VICTIM);
    player.meet()?;
    let others = (0..NODES).filter(|&rank| rank != VICTIM && rank != node.rank());
    for other in others {
        ensure!(!node.down().contains(other), "node {other} lives");
        node.fence(other)?;
    }
    player.meet()?;
    Ok(())
}
