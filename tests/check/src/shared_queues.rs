// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings that VQPs share, as completion queues and shared receive queues of verbs, and VQPs
//! that are not connected: one call submits requests of any of them, one completion ring
//! has what comes of all, and nobody's mistake is another's. Three nodes.

mod ahead;
mod batches;
mod creation;
mod destroyed;
mod errors;
mod fence;
mod idle;
mod library;
mod receive;
mod room;
mod scene;
mod several;
mod start;
mod unconnected;

use anyhow::Result;

use crate::rc::with_rc;
use crate::world::{Baseline, Transport};
use weft_testkit::report::Report;

/// All checks.
pub fn run(report: &mut Report, seed: u64) {
    let baseline = report.need("the gauges stand still", || Baseline::take(3));
    on(report, Transport::Usual, seed);
    shared_rings(report);
    receiving(report);
    unconnected_vqps(report);
    library(report);
    report.check("100,000 VQPs of a session come and go", creation::many);
    report.check("idle VQPs have nobody look at the clock", idle::streams);
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
    with_rc(report, 3, |report| on(report, Transport::Rc, seed));
}

/// What does not depend on the transport, by this one.
fn on(report: &mut Report, transport: Transport, seed: u64) {
    let times = if transport == Transport::Rc {
        300
    } else {
        3000
    };
    let mut check = |name: &str, body: &mut dyn FnMut() -> Result<()>| {
        transport.check(report, &format!("{transport:?}: {name}"), body);
    };
    check("one call for 16 VQPs, each in its order", &mut || {
        batches::one_call(seed)
    });
    check("256 VQPs on one completion ring", &mut || {
        batches::many(seed)
    });
    check("a bad key is its VQP's alone", &mut errors::bad_key);
    check("so is a region that is gone", &mut errors::closed_region);
    check("a full completion ring loses nothing", &mut room::full);
    check("unsignalled requests make room", &mut room::unsignaled);
    check("a ring that is too small for all", &mut room::too_small);
    check("VQPs that are destroyed under way say nothing", &mut || {
        destroyed::under_way(seed, times)
    });
    check("so do unconnected ones", &mut || {
        destroyed::unconnected(times / 3)
    });
    check("so does one that two threads post to", &mut || {
        destroyed::while_others_post(seed, times / 10)
    });
    check("one VQP writes to 240 peers", &mut || {
        unconnected::many_peers(seed)
    });
    check(
        "peers that are not used cost nothing",
        &mut unconnected::pruned,
    );
    check(
        "a peer that is closed meanwhile",
        &mut unconnected::closed_meanwhile,
    );
    check("memory that came with queues is reached", &mut || {
        start::reached(seed)
    });
    check("so it is when they are gone", &mut start::without_queues);
    check("they go on without it", &mut start::without_memory);
    check("a fenced WRITE has what a READ brought", &mut || {
        fence::after_read(seed)
    });
    check(
        "two threads post to one VQP from two rings",
        &mut several::two_threads,
    );
}

fn shared_rings(report: &mut Report) {
    report.check("a slow VQP holds up no other one", errors::slow_one);
    report.check("nor does one to a dead peer", errors::dead_peer);
    report.check(
        "an entry that names nothing stops the call there",
        errors::bad_handles,
    );
    report.check(
        "handles of what is gone name nothing",
        errors::stale_handles,
    );
    report.check(
        "a VQP that cannot be made leaves nothing",
        creation::refusals,
    );
    report.check("a VQP is made and connected in one call", creation::at_once);
    report.check(
        "a fenced WRITE has what an atomic operation did",
        fence::after_atomics,
    );
    report.check(
        "requests and completions in different rings",
        several::apart,
    );
    report.check(
        "a call waits for room in other rings",
        several::room_elsewhere,
    );
    report.check(
        "it waits also if other threads are quicker",
        several::one_place,
    );
    report.check(
        "a signal ends a call behind one that waits for room",
        several::behind_one_that_waits,
    );
    report.check(
        "a session that cannot have its first rings is none",
        start::refused,
    );
    report.check("nor is one whose answer cannot be written", start::unheard);
    report.check(
        "nobody sees what was in the memory of sessions before",
        start::never_stale,
    );
    report.check(
        "a peer that a session names at its beginning is looked up meanwhile",
        ahead::used,
    );
    report.check(
        "a look-up never takes another one's READ",
        ahead::of_another,
    );
    report.check("an unknown peer is no error until then", ahead::unknown);
    report.check("sessions that do not connect stop nobody", ahead::unused);
    report.check("poll tells of any ring's completions", several::any_ring);
    report.check("edge-triggered epoll does too", several::edges);
}

fn receiving(report: &mut Report) {
    report.check("VQPs take shared buffers in order", receive::in_turn);
    report.check("each of many messages has one of its own", receive::at_once);
    report.check(
        "a full ring takes no message, and loses none",
        receive::full,
    );
    report.check(
        "a full ring holds up its own VQP's messages",
        receive::different_rings,
    );
    report.check(
        "a VQP that fails leaves shared buffers",
        receive::failed_one,
    );
    report.check("a ring of its own comes back", receive::own_ring);
    report.check(
        "a VQP that goes in a message gives its buffer back",
        receive::destroyed_in_message,
    );
}

fn unconnected_vqps(report: &mut Report) {
    report.check(
        "a peer's error is its handle's",
        unconnected::errors_per_peer,
    );
    report.check("it stays until that is closed", unconnected::error_is_kept);
    report.check(
        "what is kept for peers counts as VQPs",
        unconnected::counted,
    );
    report.check("a dead peer holds up no other one", unconnected::dead_peer);
    report.check(
        "a handle that is given again is another peer's",
        unconnected::handle_again,
    );
    report.check("messages go to a handle's port", unconnected::messages);
    report.check("peers that cannot be opened", unconnected::refusals);
}

fn library(report: &mut Report) {
    report.check("library: one call for 16 queue pairs", library::one_call);
    report.check("library: dropped queue pairs say nothing", library::dropped);
    report.check(
        "library: a call waits for the others",
        library::waits_for_others,
    );
    report.check("library: a wait has its time once", library::waits_once);
    report.check(
        "library: a number that is given again",
        library::numbers_again,
    );
    report.check("library: shared receive queues", library::receives);
    report.check(
        "library: receive queues of their own",
        library::own_receives,
    );
    report.check("library: one queue pair for 16 peers", library::unconnected);
    report.check("library: mistakes are told", library::refusals);
}
