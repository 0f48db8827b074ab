// SPDX-License-Identifier: MIT OR Apache-2.0

//! The nodes that `scripts/vm` makes: names, addresses, network namespaces.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::sched::{setns, CloneFlags};
use weft_core::gid::Gid;
use weft_verbs::{Context, LocalGid, PathMtu};

/// How long a node's GID is waited for.
const GID_PATIENCE: Duration = Duration::from_secs(5);

/// One RDMA node, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(pub u16);

/// Where the clients are.
pub const CLIENT: Node = Node(0);
/// Where their peer is.
pub const SERVER: Node = Node(1);
/// Where a second peer is, which is reached over DC while the first one is reached over
/// RC.
pub const DC_SERVER: Node = Node(2);

impl Node {
    /// Its RDMA device.
    pub fn device(self) -> String {
        format!("rxe{}", self.0)
    }

    /// Its IP address.
    pub fn ip(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 1)) + u32::from(self.0))
    }

    /// A socket address of it.
    pub fn port(self, port: u16) -> SocketAddr {
        (IpAddr::V4(self.ip()), port).into()
    }

    /// Its address as an RDMA port.
    pub fn gid(self) -> Gid {
        Gid::from_ipv4(self.ip().octets())
    }

    /// Has this node and the clients' learn each other's link address, as nodes have that
    /// talked before: the kernel asks for one once a second, and who connects would wait.
    pub fn greet(self) -> Result<()> {
        let address = self.ip().to_string();
        let mut ping = Command::new("ping");
        ping.args(["-q", "-c", "1", "-W", "5", &address]);
        let output = ping.output().context("cannot run ping")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{address} does not answer: {said}");
        Ok(())
    }

    /// Opens its device.
    pub fn open(self) -> Result<Context> {
        Context::open(&self.device()).with_context(|| format!("cannot use node {}", self.0))
    }

    /// Its GID in the device's table, once it is there.
    pub fn local_gid(self, context: &Context) -> Result<LocalGid> {
        context
            .wait_for_gid(self.gid(), GID_PATIENCE)
            .with_context(|| format!("node {} has no address", self.0))
    }

    /// The largest packets that its port sends and takes now.
    pub fn active_mtu(self) -> Result<PathMtu> {
        let context = self.open()?;
        Ok(context.active_mtu(self.local_gid(&context)?.port)?)
    }

    /// Moves this process into the node's network namespace. Before any thread
    /// is made: a namespace is a thread's.
    pub fn enter(self) -> Result<()> {
        if self == CLIENT {
            return Ok(());
        }
        let path = format!("/run/netns/n{}", self.0);
        let namespace = File::open(&path).with_context(|| {
            format!("cannot open {path}: run on the nodes that `scripts/vm run` makes")
        })?;
        setns(namespace, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("cannot enter {path}: this needs root"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_as_the_machine_names_them() {
        assert_eq!(SERVER.device(), "rxe1");
        assert_eq!(SERVER.port(7).to_string(), "10.77.0.2:7");
        assert_eq!(SERVER.gid().to_string(), "::ffff:10.77.0.2");
    }
}
