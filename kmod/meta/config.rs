// SPDX-License-Identifier: GPL-2.0

//! The meta servers that this host is configured with, for all of its nodes.

use core::net::{IpAddr, SocketAddr};

use kernel::prelude::*;
use kernel::sync::global_lock;
use weft_core::gid::Gid;
use weft_core::uapi::{MetaServer, MAX_META_SERVERS};

use crate::bindings;

/// The configured servers; the place of one does not change.
pub(crate) type Servers = [Option<MetaServer>; MAX_META_SERVERS];

global_lock! {
    // SAFETY: `load_parameter` initialises it before anything else runs.
    unsafe(uninit) static SERVERS: Mutex<Servers> = [None; MAX_META_SERVERS];
}

/// Reads the `meta` parameter: `ADDR:PORT[,ADDR:PORT...]`.
///
/// # Errors
///
/// `EINVAL`: something in it is no address. Those of [`add`].
pub(crate) fn load_parameter() -> Result {
    // SAFETY: called once, by the module's initialisation.
    unsafe { SERVERS.init() };
    // SAFETY: the parameter is a C string that no longer changes.
    let text = unsafe { CStr::from_char_ptr(bindings::weft_param_meta()) };
    let text = text.to_str().map_err(|_| EINVAL)?.trim();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let Ok(addr) = item.trim().parse::<SocketAddr>() else {
            pr_err!("meta={text}: {item} is not ADDR:PORT, such as 10.0.0.1:7471\n");
            return Err(EINVAL);
        };
        let gid = match addr.ip() {
            IpAddr::V4(v4) => Gid::from_ipv4(v4.octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        };
        let server = MetaServer {
            addr: gid,
            port: addr.port(),
            reserved: [0; 3],
        };
        if let Err(error) = add(server) {
            let reason = refusal(error);
            pr_err!("meta={text}: {item} {reason}\n");
            return Err(error);
        }
    }
    Ok(())
}

/// The reason for which [`add`] refuses a server.
fn refusal(error: Error) -> &'static str {
    if error == EEXIST {
        "is named twice"
    } else if error == ENOSPC {
        "is one too many"
    } else {
        "is not an IPv4 address and a port other than 0"
    }
}

/// The servers as they are now.
pub(crate) fn servers() -> Servers {
    *SERVERS.lock()
}

/// Takes a server in.
///
/// # Errors
///
/// `EINVAL` (no IPv4-mapped address, or port 0), `EEXIST`, `ENOSPC`.
pub(crate) fn add(server: MetaServer) -> Result {
    if server.addr.to_ipv4().is_none() || server.port == 0 || server.reserved != [0; 3] {
        return Err(EINVAL);
    }
    let mut servers = SERVERS.lock();
    if servers.contains(&Some(server)) {
        return Err(EEXIST);
    }
    *servers
        .iter_mut()
        .find(|slot| slot.is_none())
        .ok_or(ENOSPC)? = Some(server);
    Ok(())
}

/// Drops a server.
///
/// # Errors
///
/// `ENOENT`.
pub(crate) fn remove(server: MetaServer) -> Result {
    let mut servers = SERVERS.lock();
    *servers
        .iter_mut()
        .find(|slot| **slot == Some(server))
        .ok_or(ENOENT)? = None;
    Ok(())
}
