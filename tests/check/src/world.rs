// SPDX-License-Identifier: MIT OR Apache-2.0

//! What checks stand on: the nodes, the module's counters, conditions that are
//! waited for, and two nodes' memory with a VQP between.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use weft_shim::{Access, Device, Gid, MemoryRegion, Remote, SendWr, Vqp, VqpConfig, Wc, WcStatus};
use weft_testkit::pace::patient;
use weft_testkit::report::Report;

/// How long the module may take to put things away.
pub const SETTLE: Duration = Duration::from_secs(20);

const COUNTERS: &str = "/sys/kernel/debug/weft/counters";
/// What exists because somebody uses the module.
pub const GAUGES: [&str; 7] = [
    "sessions",
    "vqps",
    "mrs",
    "pinned_pages",
    "peers",
    "streams",
    "contexts",
];

/// A node's address.
pub fn gid(node: u8) -> Gid {
    Gid::from_ipv4([10, 77, 0, node + 1])
}

/// Everything that a region may allow.
pub fn full_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// Waits until `done`, at most so long on a stock kernel.
pub fn wait_for(what: &str, bound: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let bound = patient(bound);
    let deadline = Instant::now() + bound;
    while !done()? {
        ensure!(Instant::now() < deadline, "{what}: not within {bound:?}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Runs `body` and fails if it took longer than `bound` on a stock kernel.
pub fn timely<T>(bound: Duration, body: impl FnOnce() -> T) -> Result<T> {
    let bound = patient(bound);
    let start = Instant::now();
    let value = body();
    let took = start.elapsed();
    ensure!(
        took <= bound,
        "it took {took:?}, at most {bound:?} is allowed"
    );
    Ok(value)
}

/// The counters' file, for a process that may not open it any more.
static KEPT: OnceLock<File> = OnceLock::new();

/// Opens the counters' file, so that they can be read as another user too.
pub fn keep_counters() -> Result<()> {
    let file = File::open(COUNTERS).with_context(|| format!("opening {COUNTERS}"))?;
    let _ = KEPT.set(file);
    Ok(())
}

fn counters_text() -> std::io::Result<String> {
    let Some(mut file) = KEPT.get() else {
        return std::fs::read_to_string(COUNTERS);
    };
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// The module's counters.
pub fn counters() -> Result<BTreeMap<String, i64>> {
    let text = counters_text().with_context(|| format!("reading {COUNTERS}"))?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs
        .filter_map(|(name, n)| Some((name.to_owned(), n.trim().parse().ok()?)))
        .collect())
}

/// One of them.
pub fn counter(name: &str) -> Result<i64> {
    named(&counters()?, name)
}

fn named(all: &BTreeMap<String, i64>, name: &str) -> Result<i64> {
    all.get(name)
        .copied()
        .with_context(|| format!("there is no counter {name}"))
}

/// What one-sided requests are to go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// What the module takes by itself: DC, unless it was loaded otherwise.
    Usual,
    /// RC queue pairs, which are up.
    Rc,
}

impl Transport {
    /// Runs a check whose requests go that way, and sees that some did.
    pub fn check(self, report: &mut Report, name: &str, body: impl FnOnce() -> Result<()>) {
        report.check(name, || self.observe(body));
    }

    /// Runs what posts requests that go that way, and sees that some did.
    pub fn observe(self, body: impl FnOnce() -> Result<()>) -> Result<()> {
        let before = counter("rc_chains")?;
        body()?;
        let chains = counter("rc_chains")? - before;
        ensure!(
            chains != 0 || self == Self::Usual,
            "none of its requests went by RC"
        );
        Ok(())
    }
}

/// What there is before a check, to be there again afterwards.
///
/// It holds a session on each node, to empty the DCCaches with: what a cache
/// keeps is not left behind.
pub struct Baseline {
    sessions: Vec<Device>,
    gauges: Vec<i64>,
}

impl Baseline {
    /// Waits until the gauges stand still, and keeps them.
    pub fn take(nodes: u32) -> Result<Self> {
        let mut this = Self {
            sessions: sessions(nodes)?,
            gauges: Vec::new(),
        };
        let mut since = Instant::now();
        wait_for("the gauges stand still", SETTLE, || {
            this.flush()?;
            let now = gauges()?;
            if now != this.gauges {
                (this.gauges, since) = (now, Instant::now());
            }
            Ok(since.elapsed() > Duration::from_millis(300))
        })?;
        Ok(this)
    }

    /// The same with sessions on the nodes that there are now: one may have gone and come
    /// back.
    pub fn with_new_sessions(mut self) -> Result<Self> {
        let nodes = self.sessions.len() as u32;
        self.sessions.clear();
        self.sessions = sessions(nodes)?;
        Ok(self)
    }

    /// Waits until all is as it was. Contexts may have become fewer: those that nobody
    /// used any more when the baseline was taken have been reclaimed since.
    pub fn is_back(&self) -> Result<()> {
        self.is_back_but_for(None)
    }

    /// Likewise, except for a gauge that others move meanwhile.
    pub fn is_back_but_for(&self, moved: Option<&str>) -> Result<()> {
        let settled = wait_for("the gauges go back", SETTLE, || {
            self.flush()?;
            let now = gauges()?;
            let mut each = GAUGES.iter().zip(now.iter().zip(&self.gauges));
            Ok(each.all(|(name, (now, base))| {
                now == base || moved == Some(*name) || *name == "contexts" && now < base
            }))
        });
        let now = gauges()?;
        settled.with_context(|| format!("{GAUGES:?} were {:?}, are {now:?}", self.gauges))
    }

    fn flush(&self) -> Result<()> {
        self.sessions
            .iter()
            .try_for_each(|session| Ok(session.flush_dccache()?))
    }
}

/// A session on each node.
fn sessions(nodes: u32) -> Result<Vec<Device>> {
    (0..nodes).map(|node| Ok(Device::open_on(node)?)).collect()
}

/// Counts of what exists because somebody uses the module.
pub fn gauges() -> Result<Vec<i64>> {
    gauges_among(&counters()?)
}

/// It is an error if one is missing: two that are missing would count as equal.
fn gauges_among(all: &BTreeMap<String, i64>) -> Result<Vec<i64>> {
    GAUGES.iter().map(|name| named(all, name)).collect()
}

/// A VQP from a node to a region on another one.
pub struct Link {
    pub device: Device,
    pub vqp: Vqp,
    pub local: MemoryRegion,
    pub remote: MemoryRegion,
}

impl Link {
    /// From node 0: regions of `bytes`, and a VQP with room for `capacity` requests.
    pub fn new(to: u8, bytes: usize, capacity: u32) -> Result<Self> {
        Self::between(0, to, bytes, capacity)
    }

    /// The same from any node.
    pub fn between(from: u8, to: u8, bytes: usize, capacity: u32) -> Result<Self> {
        let near = Device::open_on(u32::from(from))?;
        let far = Device::open_on(u32::from(to))?;
        let local = MemoryRegion::allocate(&near, bytes, full_access())?;
        let remote = MemoryRegion::allocate(&far, bytes, full_access())?;
        Ok(Self {
            vqp: connect(&near, to, capacity)?,
            device: near,
            local,
            remote,
        })
    }

    /// Writes one word and sees that it has arrived.
    pub fn works(&mut self, value: u64) -> Result<()> {
        self.local.store_u64(0, value)?;
        self.vqp
            .write(self.local.slice(0..8)?, self.remote.remote())?;
        ensure!(self.remote.load_u64(0)? == value, "the word did not arrive");
        Ok(())
    }

    /// Posts one WRITE of a word and waits at most `bound` for how it ends.
    pub fn outcome(&mut self, bound: Duration) -> Result<WcStatus> {
        let wr = SendWr::write(self.local.slice(0..8)?, self.remote.remote()).signaled();
        let mut wcs = [Wc::default()];
        let progress = self.vqp.enter(&[wr], &mut wcs, 1, bound)?;
        ensure!(progress.completed == 1, "no completion within {bound:?}");
        wcs[0].status().context("an unknown status")
    }
}

/// A connected VQP of a session.
pub fn connect(device: &Device, to: u8, capacity: u32) -> Result<Vqp> {
    let mut vqp = Vqp::create(
        device,
        &VqpConfig {
            max_send_wr: capacity,
            ..VqpConfig::default()
        },
    )?;
    vqp.qconnect(gid(to), 0)?;
    Ok(vqp)
}

/// This program, as a worker.
pub fn worker(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker").args(args);
    Ok(command)
}

/// Runs a command of the system.
pub fn system(command: &str) -> Result<()> {
    let output = Command::new("/bin/sh").arg("-c").arg(command).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{command}`: {}: {}",
        output.status,
        said.trim()
    );
    Ok(())
}

/// A process on node 1 that holds regions until it is killed.
pub struct Holder {
    child: Child,
    /// The first of them.
    pub remote: Remote,
    /// The others.
    pub others: Vec<Remote>,
}

impl Holder {
    /// Starts one with one region.
    pub fn start() -> Result<Self> {
        Self::with_others(0)
    }

    /// Starts one with so many regions more.
    pub fn with_others(count: usize) -> Result<Self> {
        let mut command = worker(&["holder", &count.to_string()])?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().context("no output")?);
        let remote = one_of(&mut stdout).context("the holder did not come up")?;
        let others = (0..count)
            .map(|_| one_of(&mut stdout))
            .collect::<Result<_>>()?;
        Ok(Self {
            child,
            remote,
            others,
        })
    }

    /// Kills it.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// A region that a holder tells of.
fn one_of(stdout: &mut impl BufRead) -> Result<Remote> {
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    let (addr, rkey) = line.trim().split_once(' ').context("it says nothing")?;
    Ok(Remote {
        addr: addr.parse()?,
        rkey: rkey.parse()?,
    })
}

/// Is such a process.
pub fn hold(others: usize) -> Result<()> {
    let device = Device::open_on(1)?;
    let regions = (0..=others)
        .map(|_| MemoryRegion::allocate(&device, 1 << 16, full_access()))
        .collect::<Result<Vec<_>, _>>()?;
    for region in &regions {
        println!("{} {}", region.remote().addr, region.remote().rkey);
    }
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_that_is_missing_is_an_error() {
        let mut all: BTreeMap<_, _> = GAUGES.map(|name| (name.to_owned(), 3)).into();
        assert_eq!(gauges_among(&all).ok(), Some(vec![3; GAUGES.len()]));
        all.remove("vqps");
        let error = gauges_among(&all).map_err(|error| error.to_string());
        assert_eq!(error, Err("there is no counter vqps".to_owned()));
    }
}
