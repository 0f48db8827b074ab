// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that is in use, as the kernel tells everybody: `/proc/meminfo`,
//! `/proc/slabinfo`, `/proc/zoneinfo` and each process's `smaps`.
//!
//! The slab allocator keeps objects that were freed, for each processor and in slabs that
//! are partly or wholly free. New objects take those first, and no memory by the count of
//! pages. So caches are shrunk before each look, and the objects are counted beside the
//! pages: of both the larger increase is what was taken.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::unistd::{sysconf, SysconfVar};

/// Pages of objects.
const SLAB: &str = "Slab";
/// What else drivers and modules allocate: vmalloc (rings, tables), per-processor memory
/// and the page tables of processes that map some of it.
const KERNEL: [&str; 3] = ["VmallocUsed", "Percpu", "PageTables"];
/// The caches of objects.
const CACHES: &str = "/sys/kernel/slab";
/// Memory that nobody uses, or that caches files alone.
const IDLE: [&str; 4] = ["MemFree", "Buffers", "Cached", "SwapCached"];
/// Mappings of kernel memory, which counts as the kernel's.
const DEVICES: [&str; 2] = ["/dev/weft", "/dev/infiniband/"];
/// Memory is settled when two looks differ by less than this.
const SETTLED: i64 = 64 << 10;
/// Between two looks, and the longest for all of them.
const LOOK: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(5);

/// What the machine uses, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The kernel's objects, by their pages.
    slab: i64,
    /// The same, by their number and size.
    objects: i64,
    /// What else the kernel has.
    other: i64,
    /// All of it: kernel, processes, and pages that nobody accounts for.
    pub all: i64,
}

impl Machine {
    /// Now.
    pub fn look() -> Result<Self> {
        // The kernel keeps differences for each processor; this adds them up.
        fs::write("/proc/sys/vm/stat_refresh", "1\n").context("this needs root")?;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let slabinfo = fs::read_to_string("/proc/slabinfo")?;
        let zoneinfo = fs::read_to_string("/proc/zoneinfo")?;
        let page = sysconf(SysconfVar::PAGE_SIZE)?.context("pages have no size")?;
        let waiting = pages_at_processors(&zoneinfo) * page;
        Self::parse(&meminfo, &slabinfo, waiting)
            .context("/proc/meminfo or /proc/slabinfo is not what it used to be")
    }

    /// How much more the kernel has than it had then.
    pub fn kernel_since(&self, then: &Self) -> i64 {
        let objects = (self.slab - then.slab).max(self.objects - then.objects);
        objects + self.other - then.other
    }

    /// Once what was let go has gone: the kernel frees much of it later.
    pub fn settled() -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        shrink_caches()?;
        let mut last = Self::look()?;
        loop {
            thread::sleep(LOOK);
            let now = Self::look()?;
            if (now.slab + now.other - last.slab - last.other).abs() < SETTLED
                || Instant::now() > deadline
            {
                return Ok(now);
            }
            last = now;
        }
    }

    /// `waiting` bytes are free at a processor, which `MemFree` does not count.
    fn parse(meminfo: &str, slabinfo: &str, waiting: i64) -> Option<Self> {
        let sum = |names: &[&str]| names.iter().map(|name| bytes_of(meminfo, name)).sum();
        let idle: Option<i64> = sum(&IDLE);
        Some(Self {
            slab: sum(&[SLAB])?,
            objects: slabinfo.lines().filter_map(objects).sum(),
            other: sum(&KERNEL)?,
            all: bytes_of(meminfo, "MemTotal")? - idle? - waiting,
        })
    }
}

/// Gives back what caches keep of objects that were freed.
fn shrink_caches() -> Result<()> {
    let caches = fs::read_dir(CACHES).with_context(|| format!("cannot read {CACHES}"))?;
    for cache in caches {
        let cache = cache?;
        // The others are second names.
        if cache.file_type()?.is_dir() {
            // One may go meanwhile.
            let _ = fs::write(cache.path().join("shrink"), "1");
        }
    }
    Ok(())
}

/// The bytes of a cache's objects, by its line of `/proc/slabinfo`; its headings have no
/// numbers.
fn objects(line: &str) -> Option<i64> {
    let mut words = line.split_whitespace().skip(1);
    let active: i64 = words.next()?.parse().ok()?;
    let bytes: i64 = words.nth(1)?.parse().ok()?;
    Some(active * bytes)
}

/// Lets go of names and files that the kernel only remembers.
pub fn drop_caches() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "2\n").context("this needs root")
}

/// What a process uses: its share of all that it maps (PSS), but for the kernel's
/// memory.
pub fn process_bytes(pid: u32) -> Result<i64> {
    let path = format!("/proc/{pid}/smaps");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(pss(&text))
}

/// Free pages that each processor keeps for itself.
fn pages_at_processors(zoneinfo: &str) -> i64 {
    let counts = zoneinfo.lines().filter_map(|line| {
        let count = line.trim().strip_prefix("count:")?;
        count.trim().parse::<i64>().ok()
    });
    counts.sum()
}

/// The bytes of a field of `/proc/meminfo`, which are told in KiB.
fn bytes_of(text: &str, name: &str) -> Option<i64> {
    let mut lines = text.lines();
    lines.find_map(|line| kib(line.strip_prefix(name)?.strip_prefix(':')?))
}

fn kib(text: &str) -> Option<i64> {
    let number = text.trim().strip_suffix("kB")?.trim();
    Some(number.parse::<i64>().ok()? << 10)
}

/// The sum of all mappings' PSS, but for those of devices.
fn pss(smaps: &str) -> i64 {
    let (mut sum, mut counts) = (0, true);
    for line in smaps.lines() {
        if let Some(value) = line.strip_prefix("Pss:") {
            sum += kib(value).filter(|_| counts).unwrap_or(0);
        } else if is_heading(line) {
            counts = !DEVICES.iter().any(|device| line.contains(device));
        }
    }
    sum
}

/// Whether a line begins a mapping: addresses, not a field's name.
fn is_heading(line: &str) -> bool {
    let word = line.split(' ').next().unwrap_or("");
    !word.ends_with(':') && word.contains('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:        1000 kB\nMemFree:          300 kB\n\
        Buffers:            0 kB\nCached:           100 kB\nSwapCached:         0 kB\n\
        Slab:              40 kB\nPageTables:         4 kB\nVmallocTotal: 34359738367 kB\n\
        VmallocUsed:       20 kB\nPercpu:             8 kB\n";

    const SLABINFO: &str = "slabinfo - version: 2.1\n\
        # name <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>\n\
        a_cache 10 32 256 16 1 : tunables 0 0 0 : slabdata 2 2 0\n\
        another 2 8 512 8 1 : tunables 0 0 0 : slabdata 1 1 0\n";

    #[test]
    fn the_kernels_memory_is_a_sum_and_the_machines_what_is_not_idle() {
        let wanted = Machine {
            slab: 40 << 10,
            objects: 10 * 256 + 2 * 512,
            other: 32 << 10,
            all: 592 << 10,
        };
        assert_eq!(Machine::parse(MEMINFO, SLABINFO, 8 << 10), Some(wanted));
        assert_eq!(Machine::parse("MemTotal: 1000 kB\n", "", 0), None);
    }

    #[test]
    fn objects_in_slabs_that_were_there_count() {
        let then = Machine::parse(MEMINFO, SLABINFO, 0).unwrap();
        let now = Machine {
            objects: then.objects + 300,
            other: then.other + 5,
            ..then
        };
        assert_eq!(now.kernel_since(&then), 305);
        let pages = Machine {
            slab: then.slab + 4096,
            ..now
        };
        assert_eq!(pages.kernel_since(&then), 4101);
    }

    #[test]
    fn pages_at_all_processors_of_all_zones_are_free() {
        let zoneinfo = "Node 0, zone DMA32\n  pages free 7\n  pagesets\n    cpu: 0\n\
            \x20             count:    12\n              high:     14\n    cpu: 1\n\
            \x20             count:    30\nNode 0, zone Normal\n    cpu: 0\n\
            \x20             count:    1\n";
        assert_eq!(pages_at_processors(zoneinfo), 43);
    }

    #[test]
    fn a_devices_mappings_are_not_the_process() {
        let smaps = "7f00-7f01 rw-p 00000000 00:00 0 [heap]\nSize: 8 kB\nPss: 5 kB\n\
            Pss_Dirty: 5 kB\nVmFlags: rd wr\n\
            7f02-7f03 rw-s 00000000 00:06 99 /dev/infiniband/uverbs0\nPss: 64 kB\n\
            7f04-7f05 rw-s 00000000 00:06 98 /dev/weft\nPss: 4 kB\n\
            7f06-7f07 rw-p 00000000 00:00 0 \nPss: 2 kB\n";
        assert_eq!(pss(smaps), 7 << 10);
    }

    #[test]
    fn this_process_has_some_memory() {
        assert!(process_bytes(std::process::id()).unwrap() > 4096);
    }
}
