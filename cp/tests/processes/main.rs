// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command, as processes of this host: one sender and its receivers.

mod elastic;
mod failures;
mod scene;
mod transfers;
