// SPDX-License-Identifier: GPL-2.0

//! Gauges of what exists and counters of events, readable in debugfs as `weft/counters`,
//! one `name value` a line. The gauges at the top return to their base when
//! their users are gone; the tests hold the module to that.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use kernel::debugfs::{Dir, File};
use kernel::fmt;
use kernel::prelude::*;

macro_rules! counters {
    (gauges { $($(#[$gmeta:meta])* $gauge:ident,)* } totals { $($(#[$tmeta:meta])* $total:ident,)* } peaks { $($(#[$pmeta:meta])* $peak:ident,)* }) => {
        /// All of them.
        pub(crate) struct Counters {
            $($(#[$gmeta])* pub(crate) $gauge: Gauge,)*
            $($(#[$tmeta])* pub(crate) $total: Total,)*
            $($(#[$pmeta])* pub(crate) $peak: Peak,)*
        }

        /// The module's counters.
        pub(crate) static COUNTERS: Counters = Counters {
            $($gauge: Gauge(AtomicI64::new(0)),)*
            $($total: Total(AtomicU64::new(0)),)*
            $($peak: Peak(AtomicU64::new(0)),)*
        };

        fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
            $(writeln!(f, concat!(stringify!($gauge), " {}"), COUNTERS.$gauge.0.load(Ordering::Relaxed))?;)*
            $(writeln!(f, concat!(stringify!($total), " {}"), COUNTERS.$total.0.load(Ordering::Relaxed))?;)*
            $(writeln!(f, concat!(stringify!($peak), " {}"), COUNTERS.$peak.0.load(Ordering::Relaxed))?;)*
            Ok(())
        }
    };
}

counters! {
    gauges {
    /// RDMA ports that Weft runs on.
    nodes,
    /// Nodes whose record a meta server holds.
    nodes_published,
    /// Connections to meta servers.
    meta_links,
    /// Open files that have said hello.
    sessions,
    /// VQPs, those of dead sessions included while requests are on their way.
    vqps,
    /// Memory regions.
    mrs,
    /// Those of them that an RDMA device knows.
    device_mrs,
    /// Pages pinned for them.
    pinned_pages,
    /// Peers known, in a DCCache or connected to.
    peers,
    /// Streams of DC initiators.
    streams,
    /// Streams of peers that DC targets keep.
    contexts,
    /// RC queue pairs to peers.
    rc_queues,
    /// Peers that nodes want an RC queue pair to.
    rc_wants,
    }
    totals {
    /// VQPs that were connected to a peer that a DCCache had. Those that answer a message
    /// (`IOC_ACCEPT`) are in neither number.
    connects_cached,
    /// VQPs that were connected to a peer that a meta server was asked for.
    connects_uncached,
    /// READs of look-ups at meta servers. One that was posted ahead for nobody is not among
    /// them.
    meta_reads,
    /// Look-ups whose first READ was on its way when they began.
    lookups_ahead,
    /// Requests sent by initiators, repeats included.
    requests_sent,
    /// Requests that targets carried out.
    requests_executed,
    /// Requests that targets had carried out before.
    requests_repeated,
    /// Packets that were no requests or responses of ours, or came too late.
    packets_dropped,
    /// Answers to requests for which there was no context.
    refusals_sent,
    /// Such answers that were not sent, because there were too many.
    refusals_suppressed,
    /// Searches for idle contexts because all that there may be were taken.
    context_searches,
    /// Messages that met a receiver without buffers.
    not_ready,
    /// Requests refused because of their key, range or access.
    access_errors,
    /// Streams given up for want of an answer.
    streams_lost,
    /// Looks at the clock of streams with requests on their way.
    stream_ticks,
    /// Packets of messages, or answers to them, that went by RC.
    rc_packets,
    /// Those that went by UDP because too many were on their way by RC.
    rc_packets_turned_away,
    /// Chains of requests posted on RC queue pairs.
    rc_chains,
    /// READs of peers' tables of valid memory regions.
    rc_mr_reads,
    /// Notices to peers about regions that go, and answers to theirs.
    rc_notices,
    /// RC queue pairs that were up, and broke.
    rc_lost,
    /// RC queue pairs that were closed, because nobody needed them any more.
    rc_closed,
    /// Times that a VQP in use changed what carries its requests.
    moves,
    /// Times that it did not, because earlier requests took too long.
    moves_put_off,
    /// Offers of RC queue pairs that were not answered.
    rc_offers_refused,
    }
    peaks {
    /// Contexts that shared a set and its lock, at most.
    longest_context_set,
    }
}

/// Goes up and down.
pub(crate) struct Gauge(AtomicI64);

impl Gauge {
    pub(crate) fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

/// Only goes up.
pub(crate) struct Total(AtomicU64);

impl Total {
    pub(crate) fn bump(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The most that something has been.
pub(crate) struct Peak(AtomicU64);

impl Peak {
    pub(crate) fn reach(&self, n: usize) {
        let n = n as u64;
        // Mostly it is no new peak, and then the cache line stays shared.
        if self.0.load(Ordering::Relaxed) < n {
            self.0.fetch_max(n, Ordering::Relaxed);
        }
    }
}

/// One of the things that a gauge counts, as long as it lives.
pub(crate) struct Counted(&'static Gauge, i64);

impl Counted {
    /// Counts one.
    pub(crate) fn one(gauge: &'static Gauge) -> Self {
        Self::many(gauge, 1)
    }

    /// Counts `n`.
    pub(crate) fn many(gauge: &'static Gauge, n: i64) -> Self {
        gauge.add(n);
        Self(gauge, n)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.add(-self.1);
    }
}

/// The debugfs file; it goes when this is dropped.
pub(crate) struct Debugfs {
    _counters: Pin<KBox<File<()>>>,
}

impl Debugfs {
    /// Makes `weft/counters`.
    pub(crate) fn new() -> Result<Self> {
        let dir = Dir::new(c"weft");
        let counters = KBox::pin_init(
            dir.read_callback_file(c"counters", (), &show_counters),
            GFP_KERNEL,
        )?;
        Ok(Self {
            _counters: counters,
        })
    }
}

fn show_counters(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    show(f)
}
