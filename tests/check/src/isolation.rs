// SPDX-License-Identifier: MIT OR Apache-2.0

//! A process that knows another's keys, handles and addresses can neither read
//! nor write nor disturb it.
//!
//! A victim with an ordinary user's rights minds its own business on node 0 and
//! tells everything that it knows. Attackers on its node and on another, with
//! and without privileges, try the rows of a [`table`], one after the other, and
//! after each the victim says what it has noticed. The victim and the attackers
//! run on the same processor, so that they share a DC initiator; streams are those of a user.

mod attacker;
mod crowd;
mod exhaust;
mod floods;
mod folded;
mod forged;
mod guesses;
mod handles;
mod heirs;
mod member;
mod messages;
mod registration;
mod rings;
mod scene;
mod several;
mod shared;
mod table;
mod unprivileged;
pub mod users;
mod victim;

use anyhow::{ensure, Result};

use crate::choice::Choice;
use crate::world::Baseline;
use weft_testkit::report::Report;

pub use attacker::{work as attacker, AttackerArgs};
pub use heirs::{work as heirs, HeirsArgs};
pub use victim::{work as victim, VictimArgs};

use attacker::{Attacker, Who};
use scene::Set;
use table::{Attempt, Row};
use users::{NOBODY, ROOT};
use victim::Victim;

/// Who attacks.
const ATTACKERS: [Who; 4] = [
    Who {
        name: "root beside it",
        uid: ROOT,
        node: 0,
    },
    Who {
        name: "nobody beside it",
        uid: NOBODY,
        node: 0,
    },
    Who {
        name: "root on node 1",
        uid: ROOT,
        node: 1,
    },
    Who {
        name: "nobody on node 1",
        uid: NOBODY,
        node: 1,
    },
];

/// What is looked at.
#[derive(clap::Args)]
pub struct Args {
    /// Only attempts whose names contain this.
    #[arg(long, default_value = "")]
    row: String,
}

/// All of it.
pub fn run(report: &mut Report, args: &Args, seed: u64) {
    let Some(baseline) = report.need("the gauges stand still", || Baseline::take(7)) else {
        return;
    };
    let choice = Choice::new(&args.row);
    if let Err(error) = attacks(report, &choice, seed) {
        report.check("all attempts could be made", || Err(error));
    }
    let name = "two users leave others room in the table for RC";
    if choice.wants(name) {
        report.check(name, several::places_for_rc);
    }
    report.check("victim and attackers leave nothing behind", || {
        baseline.is_back()
    });
    let name = "a user with subordinate uids has what one user has";
    if choice.wants(name) {
        report.check(name, several::subordinate_uids);
    }
    if choice.is_all() {
        heirs::run(report, &baseline);
    }
    choice.report(report);
}

fn attacks(report: &mut Report, choice: &Choice<'_>, seed: u64) -> Result<()> {
    let mut victim = Victim::start(seed)?;
    println!("# {}", guesses::chance());
    for who in &ATTACKERS {
        let mut attacker = Attacker::start(who, seed, victim.told())?;
        for (index, row) in table::rows(who).filter(|(_, row)| choice.wants(row.name)) {
            let name = format!("{}: {}: {}", who.name, row.name, row.expected);
            report.check(&name, || one(who, &mut attacker, &mut victim, index, row));
        }
        attacker.end()?;
    }
    report.check("the victim was at work all the while", || {
        let rounds = victim.rounds();
        println!("# {rounds} rounds of the victim");
        ensure!(rounds > 0, "it did nothing");
        victim.end()
    });
    Ok(())
}

/// One attempt: it ends as it should, and neither the victim has noticed anything nor who
/// looks at its scene.
fn one(
    who: &Who,
    attacker: &mut Attacker,
    victim: &mut Victim,
    index: usize,
    row: &Row,
) -> Result<()> {
    let scene = match row.attempt {
        Attempt::In(scene, _) => Some(scene.set(who)?),
        _ => None,
    };
    let got = attacker.attempt(index)?;
    let seen = scene.as_ref().map_or(Ok(()), Set::look);
    let noticed = victim.report();
    // What the attempt holds on to is let go even if the victim is stuck.
    attacker.release()?;
    let noticed = noticed?;
    ensure!(noticed.is_empty(), "{got}, and the victim: {noticed:?}");
    ensure!(got == row.expected.to_string(), "got {got}");
    seen
}
