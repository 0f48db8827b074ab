// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node that others take for down, though it runs: it does not reach their memory any more.
//! One that is only not answered for a while is such a node.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use weft::fabric::{Endpoint, Fabric, FabricError, NodeSet, Write};
use weft_testkit::place::{Kind, Meeting, Placed, Seats};
use weft_testkit::report::Report;

use crate::process::patience;

const REGION_BYTES: usize = 4096;
const WORD: Write = Write {
    local: 0,
    remote: 0,
    len: 8,
};

/// Runs it, on the nodes that `scripts/vm run` makes.
pub fn run(report: &mut Report, kind: Kind) {
    let name = format!("{kind}: a peer that is cut off, and runs, writes here no more");
    report.check(&format!("{name}, with seats"), || {
        cut_off(with_seats(kind)?)
    });
    report.check(&format!("{name}, without"), || cut_off(fixed(kind)?));
}

/// The first node loses what it sends, so that the other one does not learn that it is cut off. A
/// TCP connection outlives a few seconds of that.
struct Lossy;

impl Lossy {
    fn begin() -> Result<Self> {
        tc("add", &["netem", "loss", "100%"])?;
        Ok(Self)
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        if let Err(error) = tc("del", &[]) {
            eprintln!("weft-fabric: {error:#}");
        }
    }
}

fn tc(verb: &str, what: &[&str]) -> Result<()> {
    let mut tc = Command::new("tc");
    let tc = tc.args(["qdisc", verb, "dev", "v0", "root"]).args(what);
    let status = tc.status().context("tc cannot be run")?;
    ensure!(status.success(), "tc qdisc {verb} ended with {status}");
    Ok(())
}

type Both = [Arc<dyn Endpoint>; 2];

fn with_seats(kind: Kind) -> Result<Both> {
    let seats = Seats::new(kind, Meeting::call());
    both(&|rank| connected(seats.founder(rank, 2, 3)?))
}

fn fixed(kind: Kind) -> Result<Both> {
    let meeting = Meeting::call();
    both(&|rank| connected(Placed::new(kind, rank, 2, meeting)))
}

fn connected(node: impl Fabric) -> Result<Arc<dyn Endpoint>> {
    // SAFETY: words alone are looked at.
    let connected = unsafe { node.connect(REGION_BYTES, &[], patience()) }?;
    Ok(connected.endpoint)
}

fn both(connect: &(dyn Fn(usize) -> Result<Arc<dyn Endpoint>> + Sync)) -> Result<Both> {
    std::thread::scope(|scope| {
        let both = [0, 1].map(|rank| scope.spawn(move || connect(rank)));
        let [one, other] = both.map(|thread| thread.join().expect("no panic"));
        Ok([one?, other?])
    })
}

fn store(node: &Arc<dyn Endpoint>, value: u64) -> Result<()> {
    let word = node.region().word(WORD.local)?;
    word.store(value, std::sync::atomic::Ordering::Release);
    Ok(())
}

fn load(node: &Arc<dyn Endpoint>) -> Result<u64> {
    let word = node.region().word(WORD.local)?;
    Ok(word.load(std::sync::atomic::Ordering::Acquire))
}

fn cut_off([node, other]: Both) -> Result<()> {
    store(&other, 1)?;
    other.post(0, &[WORD])?;
    other.fence(0)?;
    ensure!(load(&node)? == 1, "it is not connected");
    // What it posts still arrives.
    let _lossy = Lossy::begin()?;
    take_for_down(&node)?;
    wait_for("the cut", || node.severed().contains(1))?;
    ensure!(
        other.down().is_empty(),
        "it knows, and this shows nothing: {:?}",
        other.down()
    );
    store(&other, 2)?;
    let posted = other.post(0, &[WORD]);
    let fenced = other.fence(0);
    ensure!(
        fenced == Err(FabricError::PeerDown(0)),
        "it says that it is there: {fenced:?}"
    );
    ensure!(load(&node)? == 1, "it has written, after {posted:?}");
    ensure!(node.down() == NodeSet::EMPTY.with(1), "{:?}", node.down());
    Ok(())
}

/// Posts until the other one does not answer.
fn take_for_down(node: &Arc<dyn Endpoint>) -> Result<()> {
    let posting = Instant::now();
    wait_for("a time-out", || {
        // What is posted lands nowhere; it may be refused once the other one is down.
        let _ = node.post(1, &[Write { remote: 8, ..WORD }]);
        node.poll();
        node.down().contains(1)
    })?;
    println!("# taken for down after {:?}", posting.elapsed());
    Ok(())
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + patience();
    while !done() {
        if Instant::now() > end {
            bail!("{what} does not come");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
