// SPDX-License-Identifier: GPL-2.0

//! weft.ko: RDMA connections in microseconds.
//!
//! ```text
//! chardev -> session -> queues, vqp, mem -> dc (SoftDc) -> net (UDP bearer)
//!                    -> node -> peer (DCCache), pool -> rc, meta -> rdma (ib_core, rdma_cm)
//! ```
//!
//! `weft_core` has the protocols; the code here talks to the kernel.

use core::borrow::Borrow;

use kernel::prelude::*;

mod array_vec;
mod bindings;
mod boxed;
mod chardev;
mod clock;
mod counters;
mod dc;
mod errno;
mod handles;
mod mem;
mod meta;
mod net;
mod node;
mod peer;
mod pool;
mod queues;
mod quota;
mod random;
mod rc;
mod rdma;
mod rings;
mod session;
mod sync;
mod text;
mod trace;
mod user;
mod vqp;

module! {
    type: Weft,
    name: "weft",
    authors: ["The Weft authors"],
    description: "RDMA connections in microseconds for elastic workers",
    license: "GPL",
    params: {
        udp_port: u16 {
            default: 4793,
            description: "UDP port of the software DC transport",
        },
        rc_lanes: u8 {
            default: 0,
            description: "RC queue pairs that a node asks a peer for, at most: processors take them in turn (default 4, on soft-RoCE 1)",
        },
    },
}

/// A parameter's value: kernels from 7.3 on answer with it, earlier ones with a reference.
fn parameter<T: Copy>(value: impl Borrow<T>) -> T {
    *value.borrow()
}

/// The UDP port of the software DC transport.
fn udp_port() -> u16 {
    parameter(module_parameters::udp_port.value())
}

/// The loaded module. Fields are dropped in order: first nobody new comes in,
/// then the nodes stop; until then namespaces that go stop theirs.
struct Weft {
    _chardev: chardev::Chardev,
    _clients: rdma::Clients<node::Ports>,
    _namespaces: node::Namespaces,
    _debugfs: counters::Debugfs,
    _rings: rings::FlushOnUnload,
}

impl kernel::Module for Weft {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: the first thing that the module does, once.
        unsafe { node::init() };
        pool::check_parameter()?;
        rc::check_parameter()?;
        meta::load_parameter()?;
        let rings = rings::FlushOnUnload::new()?;
        let debugfs = counters::Debugfs::new()?;
        let namespaces = node::Namespaces::register()?;
        let clients = rdma::Clients::register()?;
        let chardev = chardev::Chardev::register()?;
        Ok(Self {
            _chardev: chardev,
            _clients: clients,
            _namespaces: namespaces,
            _debugfs: debugfs,
            _rings: rings,
        })
    }
}
