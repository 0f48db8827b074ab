// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages: SENDs to ports and back, WRITEs with immediates, receive buffers and
//! the lack of them.

mod buffers;
mod claims;
mod crowd;
mod death;
pub mod ends;
mod many_senders;
mod order;
mod rings;
mod sizes;

use crate::world::Baseline;
use weft_testkit::report::Report;

pub use crowd::{call, CallerArgs};
pub use death::{listen_for_ever, send_for_ever, PartyArgs};
pub use ends::Ear;
pub use order::all_kinds;
pub use sizes::one_sided as pieces;

/// What a run is told.
#[derive(clap::Args)]
pub struct Args {
    /// The network loses packets: fewer of everything.
    #[arg(long)]
    lossy: bool,
    /// Strangers open contexts meanwhile: how many there are is not looked at.
    #[arg(long)]
    among_strangers: bool,
}

/// All of it.
pub fn run(report: &mut Report, args: &Args, seed: u64) {
    let baseline = report.need("the gauges stand still", || Baseline::take(2));
    arrival(report, args, seed);
    report.check("buffers that come late get their messages", buffers::late);
    report.check("so do late buffers for immediates", buffers::late_immediate);
    report.check(
        "replies wait for buffers, and find nobody who has gone",
        buffers::connected_receivers,
    );
    report.check(
        "too small a buffer: LocLenErr there, RemInvReqErr here",
        buffers::too_small,
    );
    if !args.lossy {
        receivers(report, seed);
    }
    report.check("a sender that dies in its message", death::of_sender);
    report.check("a receiver that dies under messages", death::of_receiver);
    if let Some(baseline) = baseline {
        let moved = args.among_strangers.then_some("contexts");
        report.check("all of it leaves nothing behind", || {
            baseline.is_back_but_for(moved)
        });
    }
}

/// Messages that arrive.
fn arrival(report: &mut Report, args: &Args, seed: u64) {
    let (small, random, steps, rounds) = if args.lossy {
        (20, 10, 100, 4)
    } else {
        (300, 60, 400, 25)
    };
    report.check("every size arrives, in and from odd pieces", || {
        sizes::messages(seed, small, random)
    });
    report.check("WRITEs gather, READs scatter", || {
        sizes::one_sided(seed, random)
    });
    report.check("messages without bytes", sizes::empty_buffers);
    report.check("a SEND after a WRITE is seen after it", || {
        order::send_after_write(seed, steps)
    });
    report.check("an immediate is not there before its WRITE", || {
        order::immediates(seed, steps)
    });
    report.check("all kinds of requests in one queue", || {
        order::all_kinds(100)
    });
    report.check("64 VQPs of 4 processes each get their own replies", || {
        crowd::echoes(seed, rounds)
    });
}

/// Receivers that make difficulties.
fn receivers(report: &mut Report, seed: u64) {
    report.check(
        "no buffers: RnrRetryExcErr, and nobody else is held up",
        buffers::none_at_all,
    );
    report.check("nobody bound: RetryExcErr", buffers::nobody);
    report.check(
        "a buffer that may not be written: LocProtErr there, RemOpErr here",
        buffers::read_only,
    );
    report.check("so if its memory has gone", buffers::deregistered);
    report.check(
        "a message that fails in its middle at its sender: RemAbortErr there",
        buffers::half_sent,
    );
    report.check("a forbidden WRITE's immediate", order::bad_immediate);
    report.check("a VQP that fails hands its buffers back", buffers::flushed);
    report.check(
        "a port is one receiver's, then the next one's",
        buffers::ports,
    );
    report.check(
        "a sender's VQP stays until its answer was heard of",
        many_senders::none_is_lost,
    );
    report.check(
        "half as many senders as there are places are all known",
        many_senders::all_are_known,
    );
    report.check("nonsense in a receive ring's indices", rings::indices);
    report.check("a receive ring that changes", || rings::rewriting(seed));
    report.check("a receiver that goes in a message", death::of_vqp);
    report.check(
        "claims that push a sender out of one VQP's memory keep it in the next one's",
        || claims::spread(seed),
    );
}
