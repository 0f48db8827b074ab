// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of messages to a pinned peer go the way that is measured to be faster, by UDP or
//! by the queue pair; and no message is lost when the queue pair is cut off.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use weft_shim::{Device, PeerTraffic, PoolPeer, Transport};
use weft_testkit::report::Report;

use crate::filter::{Filter, DC, ROCE};
use crate::messenger::{Messenger, NODE};
use crate::queue_pairs::{queue_pairs, QueuePair};
use crate::world::{counter, gid, wait_for, Baseline};

/// Longer than anything takes on the slowest machine.
const BOUND: Duration = Duration::from_secs(60);
/// The same for what a trial decides: one that met a busy processor may come to nothing, and
/// the next is two minutes later.
const TRIED_AGAIN: Duration = Duration::from_secs(400);
/// No check takes longer.
const LONGEST: Duration = Duration::from_secs(600);
/// Longer than a trial.
const FOR_GOOD: Duration = Duration::from_secs(3);
/// Messages in a row that show that they go on.
const SOME: u64 = 20;
/// Messages by UDP are slower then than soft-RoCE is on the busiest machine.
const SLOW: Duration = Duration::from_millis(40);

/// All of it.
pub fn run(report: &mut Report, seed: u64) {
    let Some(baseline) = report.need("the gauges stand still", || Baseline::take(2)) else {
        return;
    };
    let filter = messages_go_on(report, seed);
    let filter = filter.map_err(|error| report.check("messages could be sent", || Err(error)));
    report.check("the peer can be unpinned", || {
        Ok(Device::open_on(0)?.pool_unpin(gid(1))?)
    });
    report.check("the queue pair goes", || {
        wait_for("it has gone", BOUND, || Ok(counter("rc_queues")? == 0))
    });
    report.check("nothing is left behind", || {
        drop(filter);
        baseline.is_back()
    });
}

/// Messages go to node 1, one at a time, while their ways change. The filter has to stay until
/// there is not even a queue pair.
fn messages_go_on(report: &mut Report, seed: u64) -> Result<Filter> {
    let filter = Filter::new(&[DC, ROCE])?;
    let mut messenger = Messenger::new(seed)?;
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let messages = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                let round = sent.fetch_add(1, Ordering::Relaxed);
                messenger
                    .round()
                    .with_context(|| format!("message {round}"))?;
            }
            Ok(())
        });
        ways(report, &filter, &sent);
        report.check("no message was lost, repeated or out of turn", || {
            stop.store(true, Ordering::Relaxed);
            messages.join().map_err(|_| anyhow!("it panicked"))?
        });
    });
    Ok(filter)
}

fn ways(report: &mut Report, filter: &Filter, sent: &AtomicU64) {
    report.check("they go by UDP while there is no queue pair", || {
        goes_on(sent)?;
        ensure!(counter("rc_packets")? == 0, "some have gone by RC");
        Ok(())
    });
    report.check_within("and with one, because that is faster", LONGEST, || {
        Device::open_on(0)?.pool_pin(gid(1))?;
        wait_for("there is a queue pair", BOUND, has_queue_pair)?;
        by_udp(sent)
    });
    report.check_within("when UDP gets slow they go by RC", LONGEST, || {
        filter.slow(DC, SLOW)?;
        by_rc(sent)
    });
    report.check(
        "the pool tells what they take by both, which is less by RC",
        || {
            let messages = known()?.context("it does not know the peer")?.messages;
            let (udp_ns, rc_ns) = costs_ns(&messages).with_context(|| format!("{messages:?}"))?;
            ensure!(udp_ns > rc_ns, "{udp_ns} and {rc_ns} ns: {messages:?}");
            Ok(())
        },
    );
    report.check_within("and back when it is fast again", LONGEST, || {
        // Until it has been seen how long a round trip by UDP takes now.
        thread::sleep(Duration::from_secs(2));
        filter.mend(DC)?;
        by_udp(sent)
    });
    report.check_within("they go on by UDP when RoCE is cut off", LONGEST, || {
        filter.slow(DC, SLOW)?;
        by_rc(sent)?;
        filter.cut(ROCE)?;
        wait_for("the queue pair is given up", BOUND, || Ok(!uses_rc()?))?;
        goes_on(sent)
    });
    report.check("and when there is a queue pair again", || {
        filter.mend(ROCE)?;
        wait_for("there is one", BOUND, has_queue_pair)?;
        goes_on(sent)
    });
    report.check(
        "without that of their packets they go by UDP, and requests stay on RC",
        || without_theirs(filter, sent),
    );
}

/// Cuts off the queue pair that carries their packets, and not the one of requests.
fn without_theirs(filter: &Filter, sent: &AtomicU64) -> Result<()> {
    let device = Device::open_on(0)?;
    device.pool_use(gid(NODE as u8), Some(Transport::Rc))?;
    wait_for("they go by RC", BOUND, uses_rc)?;
    goes_on(sent)?;
    let to = gid(NODE as u8)
        .to_ipv4()
        .context("it has no IPv4 address")?;
    filter.cut_queue_pair(Ipv4Addr::from(to), packets_qpn()?)?;
    let outcome = requests_stay(sent);
    // However that ended: what comes after needs the queue pair.
    filter.mend_queue_pair()?;
    device.pool_use(gid(NODE as u8), None)?;
    outcome
}

/// The pool notices that the packets' queue pair is lost, and leaves requests on the one that
/// they had.
fn requests_stay(sent: &AtomicU64) -> Result<()> {
    let cut = Instant::now();
    wait_for("the pool notices", BOUND, || Ok(!uses_rc()?))?;
    goes_on(sent)?;
    let peer = known()?.context("it does not know the peer")?;
    let age = peer.age_ns.map(Duration::from_nanos);
    ensure!(
        peer.transport == Transport::Rc && age >= Some(cut.elapsed()),
        "requests go by {}, their queue pair is {age:?} old, {:?} after the cut",
        peer.transport,
        cut.elapsed()
    );
    Ok(())
}

/// The peer's number of the queue pair for packets: of those from node to node it is the one
/// made last, behind the one for requests.
fn packets_qpn() -> Result<u32> {
    let all = queue_pairs()?;
    let is_other_end = |own: &QueuePair, theirs: &QueuePair| {
        theirs.device == "rxe1" && (theirs.number, theirs.rqpn) == (own.rqpn, own.number)
    };
    let own = all
        .iter()
        .filter(|own| own.device == "rxe0" && all.iter().any(|qp| is_other_end(own, qp)));
    let last = own.max_by_key(|own| own.number);
    Ok(last.context("there is none")?.rqpn)
}

/// What the pool knows of the peer.
fn known() -> Result<Option<PoolPeer>> {
    let peers = Device::open_on(0)?.pool_peers()?;
    Ok(peers.into_iter().find(|known| known.gid == gid(NODE as u8)))
}

fn has_queue_pair() -> Result<bool> {
    Ok(known()?.is_some_and(|peer| peer.age_ns.is_some()))
}

fn uses_rc() -> Result<bool> {
    Ok(known()?.is_some_and(|peer| peer.messages_by_rc))
}

/// Computes what the messages of a second take by UDP and by RC, as far as both were seen to
/// carry such ones. Short and long ones are added up, as the pool does: of those of one kind
/// there may have been none since UDP is slow.
fn costs_ns(messages: &PeerTraffic) -> Option<(u64, u64)> {
    let PeerTraffic { dc, rc, .. } = messages;
    let of_all = |count: u64, udp: Option<u64>, rc: Option<u64>| {
        Some((count.max(1) * udp?, count.max(1) * rc?))
    };
    let short = of_all(messages.small_ops, dc.small_ns, rc.small_ns);
    let long = of_all(messages.large_bytes, dc.byte_ps, rc.byte_ps);
    let known = [short, long.map(|(udp, rc)| (udp / 1000, rc / 1000))];
    let sum = |(udp, rc), (more_udp, more_rc)| (udp + more_udp, rc + more_rc);
    known.into_iter().flatten().reduce(sum)
}

/// Waits until some more messages have arrived.
fn goes_on(sent: &AtomicU64) -> Result<()> {
    let before = sent.load(Ordering::Relaxed);
    let have = || Ok(sent.load(Ordering::Relaxed) >= before + SOME);
    wait_for("messages arrive", BOUND, have)
}

/// Waits until they go by RC for longer than a trial takes.
fn by_rc(sent: &AtomicU64) -> Result<()> {
    settled(sent, "they go by RC", true)
}

fn by_udp(sent: &AtomicU64) -> Result<()> {
    settled(sent, "they go by UDP", false)
}

fn settled(sent: &AtomicU64, what: &str, by_rc: bool) -> Result<()> {
    let mut since = Instant::now();
    wait_for(what, TRIED_AGAIN, || {
        let before = counter("rc_packets")?;
        goes_on(sent)?;
        let some = counter("rc_packets")? > before;
        if some != by_rc || uses_rc()? != by_rc {
            since = Instant::now();
        }
        Ok(since.elapsed() > FOR_GOOD)
    })
}
