// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that are down, pinned or used, do not delay the queue pair of one that is up,
//! however many they are and whoever uses them; and those that nobody pinned are no
//! longer wanted after a while. Fifteen nodes, of which 2 to 11 are down.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use weft_shim::{Device, Error, Vqp, VqpConfig};

use super::goes_by_rc;
use crate::isolation::users::{become_user, NOBODY};
use crate::world::{connect, counter, gid, system, wait_for, worker};
use weft_testkit::report::Report;

const DEAD: std::ops::RangeInclusive<u8> = 2..=11;
/// Nodes that have records and addresses that no machine has: 10.77.0.100 to 10.77.0.179.
/// `tests/vm/rc-dead-peers.sh` publishes them.
const NOBODYS: std::ops::RangeInclusive<u8> = 99..=178;
/// Peers that a node wants at a time.
const WANTS: i64 = 64;
/// Nodes that are up, and not connected to node 0 yet.
const LIVE: [u8; 2] = [12, 13];
/// Another one, which shows how long that takes while no peer is dead.
const FIRST: u8 = 14;
/// How late the attempt may begin that reaches the live peer beside them, which may take as long
/// as `qconnect` waits; on a host that is so busy that this is more, so many times what it takes
/// without them.
const DELAY: Duration = Duration::from_secs(3);
const TIMES: u32 = 10;
/// The module forgets a peer that is not used after 30 s.
const FORGOTTEN: Duration = Duration::from_secs(60);

fn set_links(state: &str) -> Result<()> {
    DEAD.clone()
        .try_for_each(|k| system(&format!("ip -n n{k} link set v{k} {state}")))
}

/// Both the dead peers first, then the live one.
pub fn run(report: &mut Report, pool: bool) {
    let outcome = (|| -> Result<()> {
        let usual = usual(pool)?;
        println!("# without dead peers it takes {} ms", usual.as_millis());
        set_links("down")?;
        if pool {
            used(report, usual)
        } else {
            pinned(report, usual)
        }
    })();
    if let Err(error) = outcome {
        report.check("dead peers could be wanted", || Err(error));
    }
    report.check("the links come back", || set_links("up"));
}

/// How long it takes until a node is reached by RC.
fn usual(pool: bool) -> Result<Duration> {
    let device = Device::open_on(0)?;
    let start = Instant::now();
    if !pool {
        device.pool_pin(gid(FIRST))?;
    }
    wait_for("the first one is up", FORGOTTEN, || goes_by_rc(0, FIRST))?;
    let took = start.elapsed();
    if !pool {
        device.pool_unpin(gid(FIRST))?;
        wait_for(
            "it goes again",
            FORGOTTEN,
            || Ok(counter("rc_queues")? == 0),
        )?;
    }
    Ok(took)
}

fn pinned(report: &mut Report, usual: Duration) -> Result<()> {
    let device = Device::open_on(0)?;
    for k in DEAD {
        device.pool_pin(gid(k))?;
    }
    device.pool_pin(gid(1))?;
    report.check(
        "ten dead pinned peers delay the attempt that reaches a live one by less than 3 s",
        || is_up_in_time(1, usual),
    );
    report.check(
        "pinned peers stay wanted, however long they are dead",
        || {
            std::thread::sleep(Duration::from_secs(20));
            let wants = counter("rc_wants")?;
            ensure!(wants == 11, "{wants} are wanted");
            Ok(())
        },
    );
    report.check("unpinning lets go of all of them at once", || {
        for k in std::iter::once(1).chain(DEAD) {
            device.pool_unpin(gid(k))?;
        }
        wait_for("only the live queue pair is left", DELAY, || {
            Ok(counter("rc_wants")? == 0 && counter("rc_queues")? == 2)
        })
    });
    Ok(())
}

fn used(report: &mut Report, usual: Duration) -> Result<()> {
    let before = counter("rc_wants")?;
    let wanters = Wanters::new(DEAD)?;
    wait_for("all dead peers are wanted", FORGOTTEN, || {
        Ok(counter("rc_wants")? >= before + DEAD.count() as i64)
    })?;
    report.check(
        "ten dead peers in use delay the attempt that reaches a live one by less than 3 s",
        || is_up_in_time(1, usual),
    );
    report.check("who connects to a dead peer is told", || {
        let mut vqp = Vqp::create(&Device::open_on(0)?, &VqpConfig::default())?;
        let refused = vqp.qconnect(gid(*DEAD.start()), 0);
        ensure!(
            matches!(refused, Err(Error::PeerSilent(_))),
            "it is {refused:?}"
        );
        Ok(())
    });
    drop(wanters);
    report.check("peers that nobody uses are no longer wanted", || {
        wait_for("none is", FORGOTTEN, || Ok(counter("rc_wants")? == 0))
    });
    report.check(
        "more dead peers than a node wants delay that of a live one of that user by less than 3 s",
        || own_peers(usual),
    );
    report.check(
        "a user that keeps using so many delays nobody else's by more",
        || peers_of_another(usual),
    );
    Ok(())
}

/// Threads that each try to connect to one of these peers, again and again.
struct Wanters {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Wanters {
    fn new(peers: impl IntoIterator<Item = u8>) -> Result<Self> {
        let device = Device::open_on(0)?;
        let stop = Arc::new(AtomicBool::new(false));
        let want = |peer| {
            let (device, stop) = (device.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // It fails, after a while.
                    let _ = connect(&device, peer, 4);
                }
            })
        };
        let threads = peers.into_iter().map(want).collect();
        Ok(Self { stop, threads })
    }
}

impl Drop for Wanters {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn is_up_in_time(peer: u8, usual: Duration) -> Result<()> {
    let start = Instant::now();
    wait_for("it is up", DELAY.max(TIMES * usual), || {
        let reached = goes_by_rc(0, peer);
        match reached {
            // `qconnect` waits for 3 s: on a busy host the peer may answer later.
            Err(error) if is_silence(&error) => Ok(false),
            other => other,
        }
    })?;
    println!("# node {peer} after {} ms", start.elapsed().as_millis());
    Ok(())
}

fn is_silence(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::PeerSilent(_)))
}

fn ensure_full() -> Result<()> {
    let wants = counter("rc_wants")?;
    ensure!(wants == WANTS, "only {wants} peers are wanted");
    Ok(())
}

fn own_peers(usual: Duration) -> Result<()> {
    let _wanters = Wanters::new(NOBODYS)?;
    wait_for("as many peers are wanted as may be", FORGOTTEN, || {
        Ok(ensure_full().is_ok())
    })?;
    is_up_in_time(LIVE[0], usual)?;
    ensure_full()?;
    let device = Device::open_on(0)?;
    device.pool_pin(gid(*NOBODYS.end()))?;
    ensure_full()?;
    Ok(device.pool_unpin(gid(*NOBODYS.end()))?)
}

/// A process that is killed with it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn peers_of_another(usual: Duration) -> Result<()> {
    let _wanter = Killed(worker(&["wanter"])?.spawn()?);
    wait_for("the other user's peers are wanted", FORGOTTEN, || {
        Ok(ensure_full().is_ok())
    })?;
    is_up_in_time(LIVE[1], usual)
}

/// Connects to all nobody's nodes without a pause, as a user without privileges.
pub fn want_for_ever() -> Result<()> {
    become_user(NOBODY)?;
    let _wanters = Wanters::new(NOBODYS)?;
    loop {
        std::thread::park();
    }
}
