// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices, their GIDs, and protection domains.

use std::ffi::{c_int, CStr};
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use weft_core::gid::Gid;

use crate::cm::CmContexts;
use crate::error::{done, made};
use crate::{sys, Error, PathMtu, Result};

/// An open RDMA device. Clones share it; the last one closes it.
#[derive(Clone, Debug)]
pub struct Context(Arc<ContextInner>);

/// # Invariants
///
/// `raw` is an open device for as long as this exists: either it is ours to
/// close, or it is one of `of_cm`, which keeps librdmacm from closing it.
#[derive(Debug)]
struct ContextInner {
    raw: NonNull<sys::ibv_context>,
    of_cm: Option<CmContexts>,
    /// The active MTU of the ports that were asked for, by number.
    mtus: [OnceLock<PathMtu>; KEPT_MTUS],
}

// SAFETY: libibverbs is thread safe, device contexts included
// (ibv_open_device(3) binds no context to a thread).
unsafe impl Send for ContextInner {}
// SAFETY: as above.
unsafe impl Sync for ContextInner {}

impl Drop for ContextInner {
    fn drop(&mut self) {
        if self.of_cm.is_none() {
            // SAFETY: opened in `Context::open`, and everything made from the
            // context holds it, so nothing of it is left.
            unsafe { sys::ibv_close_device(self.raw.as_ptr()) };
        }
    }
}

/// A GID of a device's port, as queue pairs refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalGid {
    /// The GID.
    pub gid: Gid,
    /// Its index in the port's table.
    pub index: u8,
    /// The port.
    pub port: u8,
}

/// `IB_UVERBS_DEVICE_ATOMIC_WRITE`, which the verbs' own headers do not name.
const CAP_ATOMIC_WRITE: u64 = 1 << 40;
/// Entries of a GID table that are looked at. More would not fit the system
/// call, which gives their length in bytes 16 bits.
const MAX_GIDS: usize = 2000;
/// Ports whose MTU is kept: no device in use has more.
const KEPT_MTUS: usize = 3;
/// How often a GID that is waited for is looked for.
const GID_POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Context {
    /// Opens the device of this name, such as `mlx5_0`.
    /// (`ibv_get_device_list`, `ibv_open_device`)
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], [`Error::NoSuchDevice`]; `EACCES` when the process
    /// may not open it.
    pub fn open(name: &str) -> Result<Self> {
        let list = DeviceList::new()?;
        let device = list
            .devices()
            .iter()
            .find(|&&device| device_name(device) == name)
            .ok_or_else(|| Error::NoSuchDevice(name.to_owned()))?;
        list.open(*device)
    }

    /// Opens the device whose port has this GID, waiting up to `patience` for
    /// one. (`ibv_get_device_list`, `ibv_open_device`, `ibv_query_gid_table`)
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], [`Error::NoDeviceHasGid`]. If some devices could not be
    /// looked at and no other one has the GID, the first of their errors, such as
    /// `EACCES` when the process may not open one.
    pub fn open_by_gid(gid: Gid, patience: Duration) -> Result<(Self, LocalGid)> {
        let deadline = Instant::now() + patience;
        let list = DeviceList::new()?;
        let mut error = None;
        let devices = list.devices().iter();
        let contexts: Vec<_> = devices
            .filter_map(|&device| ok_or_keep(list.open(device), &mut error))
            .collect();
        loop {
            for context in &contexts {
                let found = ok_or_keep(context.find_gid(gid), &mut error);
                if let Some(found) = found.flatten() {
                    return Ok((context.clone(), found));
                }
            }
            if Instant::now() >= deadline {
                return Err(error.unwrap_or(Error::NoDeviceHasGid(gid)));
            }
            std::thread::sleep(GID_POLL_INTERVAL);
        }
    }

    /// Whether queue pairs of the device can store a word of a peer's memory
    /// atomically (ATOMIC WRITE), as soft-RoCE's can. (`ibv_query_device_ex`)
    ///
    /// # Errors
    ///
    /// What the device answers.
    pub fn has_atomic_write(&self) -> Result<bool> {
        Ok(self.attributes()?.device_cap_flags_ex & CAP_ATOMIC_WRITE != 0)
    }

    /// READs and atomic operations that a queue pair may have outstanding, and
    /// answer, at once. (`ibv_query_device_ex`)
    ///
    /// # Errors
    ///
    /// What the device answers.
    pub fn max_reads(&self) -> Result<u8> {
        let attr = self.attributes()?.orig_attr;
        let both = attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom);
        // More than a queue pair's attributes can name are as many as they can.
        Ok(u8::try_from(both.max(0)).unwrap_or(u8::MAX))
    }

    fn attributes(&self) -> Result<sys::ibv_device_attr_ex> {
        let mut attr = sys::ibv_device_attr_ex::default();
        // SAFETY: the context is open, no input is a valid one, and `attr` is
        // writable.
        let answer = unsafe { sys::ibv_query_device_ex(self.raw(), ptr::null(), &mut attr) };
        done("ibv_query_device_ex", answer)?;
        Ok(attr)
    }

    /// Finds the RoCE v2 or InfiniBand entry of a GID, waiting up to `patience`
    /// for it: a port gets the GID of an IP address some time after the address.
    /// (`ibv_query_gid_table`)
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchGid`].
    pub fn wait_for_gid(&self, gid: Gid, patience: Duration) -> Result<LocalGid> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(found) = self.find_gid(gid)? {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                return Err(Error::NoSuchGid(gid, self.name()));
            }
            std::thread::sleep(GID_POLL_INTERVAL);
        }
    }

    /// The largest packets that a port sends and takes now. (`ibv_query_port`)
    ///
    /// # Errors
    ///
    /// `EINVAL` when the device has no such port, `ENODEV` when it is gone.
    pub fn active_mtu(&self, port: u8) -> Result<PathMtu> {
        let mut attr = sys::ibv_port_attr::default();
        // SAFETY: the context is open and `attr` is writable.
        let answer = unsafe { sys::___ibv_query_port(self.raw(), port, &mut attr) };
        done("ibv_query_port", answer)?;
        PathMtu::from_number(attr.active_mtu).ok_or_else(|| Error::NoMtu(self.name(), port))
    }

    /// The same, asked for once while the device is open: what queue pairs are
    /// connected with. One that is made after the MTU of the interface was
    /// lowered does not connect; open the device again.
    pub(crate) fn kept_mtu(&self, port: u8) -> Result<PathMtu> {
        let kept = self.0.mtus.get(usize::from(port));
        if let Some(&mtu) = kept.and_then(OnceLock::get) {
            return Ok(mtu);
        }
        let mtu = self.active_mtu(port)?;
        Ok(kept.map_or(mtu, |kept| *kept.get_or_init(|| mtu)))
    }

    fn find_gid(&self, gid: Gid) -> Result<Option<LocalGid>> {
        let mut entries = vec![sys::ibv_gid_entry::empty(); MAX_GIDS];
        // SAFETY: the context is open and `entries` is writable for its length.
        let filled =
            unsafe { sys::ibv_query_gid_table(self.raw(), entries.as_mut_ptr(), entries.len(), 0) };
        let filled = usize::try_from(filled).map_err(|_| Error::last("ibv_query_gid_table"))?;
        Ok(entries[..filled].iter().find_map(|entry| {
            // SAFETY: any bytes are a valid `raw`.
            let raw = unsafe { entry.gid.raw };
            let usable = raw == gid.0 && entry.gid_type != sys::IBV_GID_TYPE_ROCE_V1;
            usable.then_some(LocalGid {
                gid,
                index: u8::try_from(entry.gid_index).ok()?,
                port: u8::try_from(entry.port_num).ok()?,
            })
        }))
    }

    /// A context that librdmacm opened. `raw` must be one of `contexts`.
    pub(crate) fn from_cm(raw: NonNull<sys::ibv_context>, contexts: CmContexts) -> Self {
        debug_assert!(contexts.holds(raw));
        // INVARIANT: the caller found `raw` in `contexts`, which is kept.
        Self(Arc::new(ContextInner {
            raw,
            of_cm: Some(contexts),
            mtus: Default::default(),
        }))
    }

    /// The device's name, such as `mlx5_0`.
    #[must_use]
    pub fn name(&self) -> String {
        // SAFETY: the context is open (invariant of `ContextInner`).
        device_name(unsafe { (*self.raw()).device })
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_context {
        self.0.raw.as_ptr()
    }
}

impl sys::ibv_gid_entry {
    fn empty() -> Self {
        Self {
            gid: sys::ibv_gid { raw: [0; 16] },
            gid_index: 0,
            port_num: 0,
            gid_type: 0,
            ndev_ifindex: 0,
        }
    }
}

/// The devices of the host. (`ibv_get_device_list`)
///
/// # Invariants
///
/// `list` has `count` devices and is freed once.
struct DeviceList {
    list: NonNull<*mut sys::ibv_device>,
    count: usize,
}

impl DeviceList {
    fn new() -> Result<Self> {
        let mut count: c_int = 0;
        // SAFETY: `count` is writable.
        let list = unsafe { sys::ibv_get_device_list(&mut count) };
        // INVARIANT: list and count are from the same call.
        let list = Self {
            list: made("ibv_get_device_list", list)?,
            count: usize::try_from(count).unwrap_or(0),
        };
        match list.count {
            0 => Err(Error::NoDevice),
            _ => Ok(list),
        }
    }

    /// Opens a device of the list.
    fn open(&self, device: *mut sys::ibv_device) -> Result<Context> {
        debug_assert!(self.devices().contains(&device));
        // SAFETY: the device is in this list, which is not freed yet.
        let raw = unsafe { sys::ibv_open_device(device) };
        // INVARIANT: opened here, closed by `drop`.
        Ok(Context(Arc::new(ContextInner {
            raw: made("ibv_open_device", raw)?,
            of_cm: None,
            mtus: Default::default(),
        })))
    }

    fn devices(&self) -> &[*mut sys::ibv_device] {
        // SAFETY: the invariant gives the list's length.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.count) }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: from `ibv_get_device_list`, freed here only (invariant). Open
        // devices do not need the list.
        unsafe { sys::ibv_free_device_list(self.list.as_ptr()) };
    }
}

/// The name of a device of a list that is not freed, or of an open context.
fn device_name(device: *mut sys::ibv_device) -> String {
    // SAFETY: the caller knows that the device exists.
    let name = unsafe { sys::ibv_get_device_name(device) };
    // SAFETY: the name is a C string inside the device.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_string_lossy().into_owned()
}

/// The answer of one device of several. If it is an error, it is kept unless there was one before.
fn ok_or_keep<T>(answer: Result<T>, error: &mut Option<Error>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(new) => {
            error.get_or_insert(new);
            None
        }
    }
}

/// A protection domain. Clones share it.
#[derive(Clone, Debug)]
pub struct Pd(Arc<PdInner>);

#[derive(Debug)]
struct PdInner {
    raw: NonNull<sys::ibv_pd>,
    context: Context,
}

// SAFETY: libibverbs is thread safe.
unsafe impl Send for PdInner {}
// SAFETY: as above.
unsafe impl Sync for PdInner {}

impl Pd {
    /// Allocates a protection domain. (`ibv_alloc_pd`)
    ///
    /// # Errors
    ///
    /// What the device answers, `ENOMEM` for one.
    pub fn new(context: &Context) -> Result<Self> {
        // SAFETY: the context is open.
        let raw = unsafe { sys::ibv_alloc_pd(context.raw()) };
        Ok(Self(Arc::new(PdInner {
            raw: made("ibv_alloc_pd", raw)?,
            context: context.clone(),
        })))
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_pd {
        self.0.raw.as_ptr()
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: made in `Pd::new`; everything made from the domain holds it,
        // so nothing of it is left.
        unsafe { sys::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_fails_hides_no_other_one_and_the_first_error_counts() {
        let refused = |name: &str| Err(Error::NoSuchDevice(name.to_owned()));
        let answers = [refused("a"), Ok(1), refused("b"), Ok(2)];
        let mut error = None;
        let kept = answers
            .into_iter()
            .filter_map(|answer| ok_or_keep(answer, &mut error));
        assert_eq!(kept.collect::<Vec<_>>(), [1, 2]);
        assert!(matches!(error, Some(Error::NoSuchDevice(name)) if name == "a"));
    }
}
