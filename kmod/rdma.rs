// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers over ib_core and rdma_cm: as much of them as Weft uses.
//!
//! What must outlive what is in the types: a completion queue and a protection
//! domain hold on to nothing but are held by the queue pair that needs them, and
//! only a connected queue pair has operations to post.

mod client;
mod cm;
mod connection;
mod device;
mod dma;

pub(crate) use client::{Client, Clients};
pub(crate) use cm::Connector;
pub(crate) use connection::Connection;
pub(crate) use device::{Cq, Device, Netdev, Pd, Port};
pub(crate) use dma::DmaBuffer;
