// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-cp receive`.

use anyhow::{ensure, Context, Result};

use crate::args::ReceiveArgs;
use crate::consume::{await_commit, consume};
use crate::inbox::Inbox;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::wire::{Begin, Report};

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
    let progress = Progress::new(args.common.quiet);
    let mut inbox = Inbox::open(&args.common, args.rank, signals)?;
    match transfer(args, &mut inbox, &progress) {
        Ok(begin) => {
            // The sender wanted it named: that it is gone now changes nothing here.
            if let Err(error) = inbox.report_done() {
                tracing::warn!("all is here, but the sender may not know: {error:#}");
            }
            progress.finish(|bytes| format!("received {bytes}"), begin.bytes);
            Ok(())
        }
        Err(error) => {
            inbox.report_failed(&error);
            Err(error)
        }
    }
}

/// Temporaries are gone when this has failed.
fn transfer(args: &ReceiveArgs, inbox: &mut Inbox, progress: &Progress) -> Result<Begin> {
    let (begin, landing) = consume(inbox, &args.dir, args.force, progress)?;
    inbox.report(&Report::Checked)?;
    await_commit(inbox)?;
    landing.commit()?;
    Ok(begin)
}
