// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-cp receive`.

use anyhow::{ensure, Context, Result};

use crate::args::ReceiveArgs;
use crate::consume::{await_commit, consume};
use crate::elastic::Caller;
use crate::inbox::Inbox;
use crate::place::Party;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::wire::Begin;

/// Receives what the sender sends, and returns when it has its name.
///
/// # Errors
///
/// What went wrong. Nothing was kept then.
pub fn run(args: &ReceiveArgs, signals: &Signals) -> Result<()> {
    let dir = args.dir.display();
    let there = args.dir.metadata();
    let there = there.with_context(|| format!("{dir}: a directory to receive into"))?;
    ensure!(
        there.is_dir(),
        "{dir} is no directory: name the one to receive into"
    );
    let Some(at) = args.common.elastic else {
        let received = take_part(args, &args.common.party(), args.rank, signals);
        return received.map_err(|failure| match failure {
            Failure::Own(error) | Failure::OfOthers(error) => error,
        });
    };
    let mut caller = Caller::new(at, &args.common);
    loop {
        let (party, rank) = caller.call()?;
        let received = take_part(args, &party, rank, signals);
        let error = match received {
            // A signal changes nothing any more.
            Ok(()) => return Ok(()),
            Err(Failure::Own(error)) => return Err(error),
            Err(Failure::OfOthers(error)) => error,
        };
        signals.forget();
        if signals.were_told() {
            return Err(error.context("interrupted"));
        }
        caller.note_failure(error);
    }
}

/// Why a transfer was given up.
enum Failure {
    /// By this receiver.
    Own(anyhow::Error),
    /// By the sender, or another receiver.
    OfOthers(anyhow::Error),
}

/// Receives it with the others of one party.
fn take_part(
    args: &ReceiveArgs,
    party: &Party,
    rank: usize,
    signals: &Signals,
) -> Result<(), Failure> {
    let progress = Progress::new(args.common.quiet);
    let met = Inbox::open(party, rank, signals);
    let mut inbox = met.map_err(|error| match Inbox::works_alone(party, rank) {
        true => Failure::OfOthers(error),
        false => Failure::Own(error),
    })?;
    match transfer(args, &mut inbox, &progress) {
        Ok(begin) => {
            // The sender wanted it named: that it is gone now changes nothing here.
            if let Err(error) = inbox.report_done() {
                tracing::warn!("all is here, but the sender may not know: {error:#}");
            }
            progress.finish(|bytes| format!("received {bytes}"), begin.bytes);
            Ok(())
        }
        Err(error) if inbox.is_over() => Err(Failure::OfOthers(error)),
        Err(error) => {
            inbox.report_failed(&error);
            Err(Failure::Own(error))
        }
    }
}

/// Temporaries are gone when this has failed.
fn transfer(args: &ReceiveArgs, inbox: &mut Inbox, progress: &Progress) -> Result<Begin> {
    let (begin, landing) = consume(inbox, &args.dir, args.force, progress)?;
    inbox.report_checked()?;
    await_commit(inbox)?;
    landing.commit()?;
    Ok(begin)
}
