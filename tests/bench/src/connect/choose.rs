// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which exchange of addresses is faster here, so that verbs gets the better.

use std::time::Duration;

use anyhow::Result;

use crate::cli::ExchangeKind;
use crate::peer::Ready;
use crate::stats::Times;
use crate::verbs::Exchange;

/// Connections that each kind is judged by.
const TRIALS: u32 = 15;

/// The exchange whose connections take less at p50, tried in turn. `what` they are is
/// said; `connect` makes one and answers with how long that took.
pub fn faster(
    what: &str,
    peer: &Ready,
    mut connect: impl FnMut(Exchange) -> Result<Duration>,
) -> Result<ExchangeKind> {
    let mut trials = [ExchangeKind::Tcp, ExchangeKind::RdmaCm].map(|kind| (kind, Times::new()));
    for _ in 0..TRIALS {
        for (kind, times) in &mut trials {
            times.record(connect(Exchange::with(*kind, peer))?);
        }
    }
    let p50 = |times: &Times| times.percentile_us(50.0).unwrap_or(f64::INFINITY);
    for (kind, times) in &trials {
        eprintln!(
            "weft-bench: verbs {what} with {}: {:.0} us at p50",
            kind.name(),
            p50(times)
        );
    }
    let [(tcp, tcp_times), (rdma_cm, rdma_cm_times)] = trials;
    Ok(match p50(&tcp_times) <= p50(&rdma_cm_times) {
        true => tcp,
        false => rdma_cm,
    })
}
