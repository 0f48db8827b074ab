// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers over ib_core and rdma_cm: as much of them as Weft uses.
//!
//! The types say which object must outlive which: a completion queue and a protection
//! domain hold on to nothing but are held by the queue pair that needs them, and
//! only a queue pair that is ready to send has operations to post.

mod client;
mod cm;
mod connection;
mod cq;
mod device;
mod dma;
mod mr;
mod qp;
mod registrar;
mod softirq_cq;

pub(crate) use client::{Client, Clients};
pub(crate) use cm::Connector;
pub(crate) use connection::Connection;
pub(crate) use cq::{Completes, Cq, EventCq, Notified, WorkCompletion};
pub(crate) use device::{Device, Netdev, Pd, Port};
pub(crate) use dma::{DmaBuffer, DmaWords};
pub(crate) use mr::{FastMr, Span, TableMr};
pub(crate) use qp::{Capacity, Init, Qp, Ready, Remote};
pub(crate) use registrar::Registrar;
pub(crate) use softirq_cq::{EndOf, Entry, Hears, SoftirqCq};
