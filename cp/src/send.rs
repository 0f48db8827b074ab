// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-cp send`.

use anyhow::Result;

use crate::args::SendArgs;
use crate::outbox::Outbox;
use crate::produce::{produce, Sink as _};
use crate::progress::Progress;
use crate::scan::{scan, Listing};
use crate::signals::Signals;
use crate::wire::{encode, Record};

/// Sends a file or a tree, and returns when all receivers have confirmed it.
///
/// # Errors
///
/// What went wrong, with every receiver that has failed and why.
pub fn run(args: &SendArgs, signals: &Signals) -> Result<()> {
    let listing = scan(&args.path)?;
    let progress = Progress::new(args.common.quiet);
    let mut outbox = Outbox::open(&args.common, signals)?;
    match transfer(&listing, &mut outbox, &progress) {
        Ok(()) => {
            drop(outbox);
            let to = args.common.receivers;
            progress.finish(
                |bytes| format!("sent {bytes} to {to} receivers"),
                listing.begin.bytes,
            );
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
