// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-cp send`.

use std::time::Duration;

use anyhow::{ensure, Result};

use crate::args::SendArgs;
use crate::elastic::Desk;
use crate::outbox::{Failure, Outbox};
use crate::place::Party;
use crate::produce::{produce, Sink as _};
use crate::progress::Progress;
use crate::scan::{scan, scan_until, Listing};
use crate::signals::Signals;
use crate::wire::{encode, Record};

/// Sends a file or a tree, and returns when all receivers have confirmed it.
///
/// # Errors
///
/// What went wrong, with every receiver that has failed and why.
pub fn run(args: &SendArgs, signals: &Signals) -> Result<()> {
    match args.common.elastic {
        None => {
            // The user hears before anybody is waited for that it cannot be sent.
            let listing = scan(&args.path)?;
            let served = serve(args, &args.common.party(), signals, || Ok(listing));
            served.map_err(|failure| match failure {
                Failure::Own(error) | Failure::OfReceivers(error) => error,
            })
        }
        Some(at) => {
            let mut desk = Desk::open(at, &args.common)?;
            serve_all(args, &mut desk, signals)
        }
    }
}

/// Serves those who call, until nobody does.
fn serve_all(args: &SendArgs, desk: &mut Desk, signals: &Signals) -> Result<()> {
    // That it cannot be sent is to be said before anybody comes.
    scan(&args.path)?;
    let (mut served, mut failed) = (0, 0);
    while let Some(party) = desk.next_party()? {
        let to = party.receivers;
        // They have little time to meet, and as long as they like after that.
        let list = || scan_until(&args.path, || signals.were_told());
        let outcome = serve(args, &party, signals, list);
        signals.forget();
        match outcome {
            Ok(()) => served += to,
            // Those among them who did not fail call again.
            Err(Failure::OfReceivers(error)) => {
                failed += 1;
                tracing::warn!("a transfer to {to} receivers was given up: {error:#}");
            }
            Err(Failure::Own(error)) => return Err(error),
        }
        ensure!(
            !signals.were_told(),
            "the sender was interrupted: {served} receivers have it"
        );
    }
    let patience: Duration = args.common.patience();
    ensure!(
        served > 0,
        "nobody has it: {failed} transfers were given up, and nobody has called for {patience:?}"
    );
    Ok(())
}

/// Sends it to the receivers of one party, and lists it when they have met.
fn serve(
    args: &SendArgs,
    party: &Party,
    signals: &Signals,
    list: impl FnOnce() -> Result<Listing>,
) -> Result<(), Failure> {
    let progress = Progress::new(args.common.quiet);
    let met = Outbox::open(party, signals);
    let mut outbox = met.map_err(|error| match Outbox::works_alone(party) {
        true => Failure::OfReceivers(error),
        false => Failure::Own(error),
    })?;
    let sent = list().and_then(|listing| {
        transfer(&listing, &mut outbox, &progress)?;
        Ok(listing.begin.bytes)
    });
    match sent {
        Ok(bytes) => {
            drop(outbox);
            let to = party.receivers;
            progress.finish(|bytes| format!("sent {bytes} to {to} receivers"), bytes);
            Ok(())
        }
        Err(error) => Err(outbox.give_up(error)),
    }
}

fn transfer(listing: &Listing, outbox: &mut Outbox, progress: &Progress) -> Result<()> {
    outbox.await_ready()?;
    progress.begin(listing.begin.bytes);
    produce(listing, outbox, progress)?;
    outbox.flush()?;
    outbox.await_checked()?;
    outbox.put(&encode(&Record::Commit)?)?;
    outbox.flush()?;
    outbox.await_done()
}
