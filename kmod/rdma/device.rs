// SPDX-License-Identifier: GPL-2.0

//! RDMA devices, their ports and protection domains.

use core::ptr::NonNull;

use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use weft_core::gid::Gid;

use crate::bindings;
use crate::net::Netns;

/// A device that ib_core has told us about.
///
/// # Invariants
///
/// The device is valid: ib_core waits for our `remove` before it goes, and all
/// copies of this are dropped by then.
#[derive(Clone, Copy)]
pub(crate) struct Device(NonNull<bindings::ib_device>);

// SAFETY: ib_core's objects may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// # Safety
    ///
    /// The device stays valid until the client's `remove` for it has returned,
    /// and no copy of the value is used after that.
    pub(crate) unsafe fn from_raw(raw: NonNull<bindings::ib_device>) -> Self {
        Self(raw)
    }

    pub(crate) fn as_ptr(self) -> *mut bindings::ib_device {
        self.0.as_ptr()
    }

    /// Its name, such as `rxe0`, in a buffer of the size that users see.
    pub(crate) fn name(self) -> [u8; 64] {
        // SAFETY: the device is valid, and so is its name, a C string.
        let name = unsafe { CStr::from_char_ptr(bindings::weft_ib_name(self.as_ptr())) };
        let mut out = [0; 64];
        for (to, from) in out.iter_mut().take(63).zip(name.to_bytes()) {
            *to = *from;
        }
        out
    }

    /// Its capabilities.
    fn attrs(self) -> &'static bindings::ib_device_attr {
        // SAFETY: the device is valid, its attributes do not change, and the
        // callers here copy out of them at once.
        unsafe { &*bindings::weft_ib_attrs(self.as_ptr()) }
    }

    /// READs and atomic operations that a queue pair answers, and sends, at a
    /// time.
    pub(crate) fn read_depths(self) -> (u8, u8) {
        let attrs = self.attrs();
        // Signed up to kernel 7.2, unsigned from 7.3 on.
        fn depth(n: impl Into<i64>) -> u8 {
            u8::try_from(n.into().max(1)).unwrap_or(u8::MAX)
        }
        (
            depth(attrs.max_qp_rd_atom),
            depth(attrs.max_qp_init_rd_atom),
        )
    }

    /// Whether its atomic operations are atomic with those of processors, and so
    /// with SoftDc's (`enum ib_atomic_cap` in rdma/ib_verbs.h). Those of soft-RoCE are not,
    /// nor those of mlx4, mlx5, irdma and hns; bnxt_re, qedr, erdma and ionic say so of
    /// theirs, some only behind a root port that can do them.
    pub(crate) fn has_global_atomics(self) -> bool {
        self.attrs().atomic_cap == bindings::ib_atomic_cap_IB_ATOMIC_GLOB
    }

    /// Whether memory can be registered with it by requests on queue pairs
    /// (`IB_WR_REG_MR`), the way for consumers in the kernel, with the consumer's addresses.
    pub(crate) fn has_fast_registration(self) -> bool {
        let extensions = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS;
        // SAFETY: the device is valid.
        let takes_addresses = unsafe { bindings::weft_ib_takes_iova(self.as_ptr()) };
        takes_addresses && self.attrs().device_cap_flags & (extensions as u64) != 0
    }

    /// Whether writes to memory that the kernel registers with it may pass each other on
    /// their way there.
    pub(crate) fn relaxes_writes(self) -> bool {
        // SAFETY: the device is valid.
        unsafe { bindings::weft_ib_relaxes_writes(self.as_ptr()) }
    }

    /// Pages that a region may have, of the size of ours.
    pub(crate) fn most_pages(self) -> u32 {
        self.attrs().max_fast_reg_page_list_len
    }

    /// Pieces of local memory that a request may have; READs have a limit of their
    /// own. A driver that knows of none for them has one piece in mind.
    pub(crate) fn most_pieces(self) -> (u32, u32) {
        let attrs = self.attrs();
        let all = u32::try_from(i64::from(attrs.max_send_sge).max(1)).unwrap_or(u32::MAX);
        let reads = u32::try_from(i64::from(attrs.max_sge_rd).max(1)).unwrap_or(u32::MAX);
        (all, reads.min(all))
    }

    /// Whether threads of this host do its work: soft-RoCE, soft-iWARP.
    pub(crate) fn is_software(self) -> bool {
        // SAFETY: the device is valid.
        unsafe { bindings::weft_ib_is_software(self.as_ptr()) }
    }

    /// Its ports.
    pub(crate) fn ports(self) -> impl Iterator<Item = Port> {
        // SAFETY: the device is valid.
        let count = unsafe { bindings::weft_ib_ports(self.as_ptr()) };
        (1..=count).map(move |number| Port {
            device: self,
            number,
        })
    }
}

/// A port of a device.
#[derive(Clone, Copy)]
pub(crate) struct Port {
    pub(crate) device: Device,
    pub(crate) number: u32,
}

/// A network device on which we hold a reference.
pub(crate) struct Netdev(NonNull<bindings::net_device>);

// SAFETY: counted references may be used and dropped by any thread.
unsafe impl Send for Netdev {}
// SAFETY: as above.
unsafe impl Sync for Netdev {}

impl Netdev {
    /// Its namespace, with a reference; `None` once the namespace has begun to go.
    pub(crate) fn netns(&self) -> Option<Netns> {
        // SAFETY: the reference keeps the device valid.
        let raw = unsafe { bindings::weft_netdev_net_get(self.0.as_ptr()) };
        // SAFETY: valid, and the call gives us the reference.
        NonNull::new(raw).map(|net| unsafe { Netns::from_raw(net) })
    }

    /// Whether any process, file or mount keeps its namespace.
    pub(crate) fn is_in_live_netns(&self) -> bool {
        // SAFETY: the reference keeps the device valid.
        unsafe { bindings::weft_netdev_netns_is_live(self.0.as_ptr()) }
    }

    /// Its MTU in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        // SAFETY: the reference keeps the device valid.
        unsafe { bindings::weft_netdev_mtu(self.0.as_ptr()) }
    }

    /// How often its link has gone or come.
    pub(crate) fn link_changes(&self) -> u32 {
        // SAFETY: the reference keeps the device valid.
        unsafe { bindings::weft_netdev_link_changes(self.0.as_ptr()) }
    }
}

impl Drop for Netdev {
    fn drop(&mut self) {
        // SAFETY: gives our reference back.
        unsafe { bindings::weft_netdev_put(self.0.as_ptr()) };
    }
}

impl Port {
    /// The network device behind the port; `None` on InfiniBand.
    pub(crate) fn netdev(self) -> Option<Netdev> {
        // SAFETY: the device is valid; the call gives us a reference.
        let raw = unsafe { bindings::ib_device_get_netdev(self.device.as_ptr(), self.number) };
        NonNull::new(raw).map(Netdev)
    }

    fn attributes(self) -> Option<bindings::ib_port_attr> {
        let mut attr = bindings::ib_port_attr::default();
        // SAFETY: the device is valid, the attributes are local.
        to_result(unsafe { bindings::ib_query_port(self.device.as_ptr(), self.number, &mut attr) })
            .ok()?;
        Some(attr)
    }

    /// Whether packets can leave by it.
    pub(crate) fn is_active(self) -> bool {
        self.attributes()
            .is_some_and(|attr| attr.state == bindings::ib_port_state_IB_PORT_ACTIVE)
    }

    /// The most bytes that one request may move.
    pub(crate) fn longest_message(self) -> Option<u32> {
        Some(self.attributes()?.max_msg_sz)
    }

    /// The largest packet that it sends, as a number of `ib_mtu`.
    pub(crate) fn active_mtu(self) -> Option<u8> {
        u8::try_from(self.attributes()?.active_mtu).ok()
    }

    /// The port's RoCE v2 GIDs that map IPv4 addresses, with their indices, which are
    /// not fixed: an address that comes later may get a lower one.
    fn ipv4_gids(self) -> impl Iterator<Item = (u32, Gid)> {
        let count = self.attributes().map_or(0, |attr| attr.gid_tbl_len);
        let count = u32::try_from(count).unwrap_or(0);
        (0..count).filter_map(move |index| Some((index, self.gid(index)?)))
    }

    /// The first of them. It is there only once an address is.
    pub(crate) fn first_ipv4_gid(self) -> Option<Gid> {
        self.ipv4_gids().next().map(|(_, gid)| gid)
    }

    /// The index of one of them, as long as its address is there.
    pub(crate) fn index_of(self, gid: &Gid) -> Option<u32> {
        let found = self.ipv4_gids().find(|(_, other)| other == gid);
        found.map(|(index, _)| index)
    }

    fn gid(self, index: u32) -> Option<Gid> {
        // SAFETY: the device is valid; the call gives us a reference or an error.
        let attr = from_err_ptr(unsafe {
            bindings::rdma_get_gid_attr(self.device.as_ptr(), self.number, index as i32).cast_mut()
        })
        .ok()?;
        // SAFETY: `attr` is valid as long as we hold the reference; all 16 bytes
        // of a GID are always set.
        let (kind, gid) = unsafe { ((*attr).gid_type, Gid((*attr).gid.raw)) };
        // SAFETY: gives the reference back.
        unsafe { bindings::rdma_put_gid_attr(attr) };
        (kind == bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP && gid.to_ipv4().is_some())
            .then_some(gid)
    }
}

/// A protection domain.
pub(crate) struct Pd(NonNull<bindings::ib_pd>);

// SAFETY: ib_core's objects may be used from any thread.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    pub(crate) fn new(device: Device) -> Result<Self> {
        // SAFETY: the device is valid.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_ptr(), 0, c"weft".as_char_ptr())
        })?;
        NonNull::new(raw).map(Self).ok_or(ENOMEM)
    }

    pub(crate) fn as_ptr(&self) -> *mut bindings::ib_pd {
        self.0.as_ptr()
    }

    /// The key for DMA buffers of the kernel.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the domain is valid.
        unsafe { bindings::weft_ib_local_dma_lkey(self.as_ptr()) }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: ours, and its users are gone: they borrow it or own an `Arc`.
        unsafe { bindings::ib_dealloc_pd_user(self.as_ptr(), core::ptr::null_mut()) };
    }
}
