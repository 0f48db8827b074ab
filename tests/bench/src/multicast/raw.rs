// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plain one-sided writes: member 0 writes round a ring of member 1's, as long
//! as that of a sender, and nobody looks at what arrives.

use std::time::{Duration, Instant};

use anyhow::Result;
use weft::fabric::{Endpoint, Fabric as _, Write};
use weft_testkit::place::Placed;

use super::args::Pace;
use super::case::Case;
use super::member::PATIENCE;
use super::seen::Seen;
use crate::child::{say_ready, wait_for_end, wait_for_word};

/// Writes, or is written to.
pub fn run(node: Placed, case: &Case, pace: Pace) -> Result<()> {
    let stride = case.bytes.next_multiple_of(8);
    let connected = node.connect(stride * case.window, &[], PATIENCE)?;
    let endpoint = connected.endpoint;
    say_ready(&"met")?;
    wait_for_word()?;
    let mut seen = Seen::default();
    if endpoint.rank() == 0 {
        writes(&*endpoint, case, Duration::from_millis(pace.warm_up_ms))?;
        seen = writes(&*endpoint, case, pace.slice())?;
    }
    say_ready(&seen)?;
    wait_for_end()
}

/// Writes for so long, and until all of it is there.
fn writes(endpoint: &dyn Endpoint, case: &Case, slice: Duration) -> Result<Seen> {
    let stride = case.bytes.next_multiple_of(8);
    let mut seen = Seen::default();
    let began = Instant::now();
    while began.elapsed() < slice {
        for at in 0..case.window {
            let write = Write {
                local: at * stride,
                remote: at * stride,
                len: case.bytes,
            };
            endpoint.post(1, &[write])?;
        }
        seen.posts += case.window as u64;
    }
    endpoint.fence(1)?;
    seen.seconds = began.elapsed().as_secs_f64();
    seen.sent = seen.posts;
    seen.delivered = seen.posts;
    Ok(seen)
}
