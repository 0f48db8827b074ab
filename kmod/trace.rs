// SPDX-License-Identifier: GPL-2.0

//! Tracepoints (`trace.h`). One that nobody has enabled costs a jump.

use weft_core::gid::Gid;
use weft_core::pool::{Action, Transport};

use crate::bindings;

/// The pool has decided something for a peer.
pub(crate) fn pool(gid: &Gid, action: Action) {
    let action = match action {
        Action::Open => bindings::WEFT_POOL_OPEN,
        Action::Close => bindings::WEFT_POOL_CLOSE,
        Action::Use(Transport::Dc) => bindings::WEFT_POOL_USE_DC,
        Action::Use(Transport::Rc) => bindings::WEFT_POOL_USE_RC,
        Action::UseForMessages(Transport::Dc) => bindings::WEFT_POOL_MESSAGES_UDP,
        Action::UseForMessages(Transport::Rc) => bindings::WEFT_POOL_MESSAGES_RC,
        // It says nothing about the peer.
        Action::Probe => return,
    };
    emit(gid, action);
}

/// A queue pair to a peer was closed.
pub(crate) fn closed(gid: &Gid) {
    emit(gid, bindings::WEFT_POOL_CLOSED);
}

fn emit(gid: &Gid, action: u32) {
    // SAFETY: 16 bytes that live for the call.
    unsafe { bindings::weft_trace_pool(gid.0.as_ptr(), action) };
}

/// A VQP has changed what carries its requests.
pub(crate) fn moved(flow: u32, by_rc: bool, held_ns: u64) {
    // SAFETY: no requirement.
    unsafe { bindings::weft_trace_move(flow, by_rc, held_ns) };
}
