// SPDX-License-Identifier: GPL-2.0

//! Hears of devices that come and go (`ib_client`).

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::error::{from_result, to_result};
use kernel::prelude::*;

use crate::bindings;
use crate::rdma::Device;

/// The state kept for each device.
pub(crate) trait Client: Sized + Send + Sync + 'static {
    /// A device is there. Process context.
    fn add(device: Device) -> Result<KBox<Self>>;

    /// The device goes: nothing of it may be used when this returns. Process
    /// context.
    fn remove(self: KBox<Self>);
}

/// ib_core's record of us. It keeps the data of each device under a number that
/// it writes here, which the callbacks need, so it has to be where they find it.
struct Registration(UnsafeCell<bindings::ib_client>);

// SAFETY: written by `Clients::register` before ib_core knows of it, by ib_core
// afterwards.
unsafe impl Sync for Registration {}

static REGISTRATION: Registration = {
    // SAFETY: integers, and pointers and functions that may be NULL.
    Registration(UnsafeCell::new(unsafe {
        core::mem::MaybeUninit::zeroed().assume_init()
    }))
};

/// The registration; devices are removed when it is dropped.
pub(crate) struct Clients<T: Client>(PhantomData<fn(T)>);

impl<T: Client> Clients<T> {
    /// Registers; `T::add` is called for the devices that are there already.
    /// Only the module's initialisation does it, once.
    pub(crate) fn register() -> Result<Self> {
        let client = REGISTRATION.0.get();
        // SAFETY: ib_core does not know of it yet, and nobody else writes it.
        unsafe {
            (*client).name = c"weft".as_char_ptr();
            (*client).add = Some(add::<T>);
            (*client).remove = Some(remove::<T>);
        }
        // SAFETY: a static lives as long as the module, and `drop` comes before
        // the module goes.
        to_result(unsafe { bindings::ib_register_client(client) })?;
        Ok(Self(PhantomData))
    }
}

impl<T: Client> Drop for Clients<T> {
    fn drop(&mut self) {
        // SAFETY: registered by `register`. Calls `remove` for every device.
        unsafe { bindings::ib_unregister_client(REGISTRATION.0.get()) };
    }
}

/// # Safety
///
/// Called by ib_core, for a device that has come.
unsafe extern "C" fn add<T: Client>(device: *mut bindings::ib_device) -> i32 {
    from_result(|| {
        let raw = NonNull::new(device).ok_or(EINVAL)?;
        // SAFETY: ib_core calls `remove` before the device goes, and
        // `Client::remove` promises to use nothing of it afterwards.
        let device = unsafe { Device::from_raw(raw) };
        let data = T::add(device).inspect_err(|error| tell(device, error))?;
        // SAFETY: registered, or this were not called; the box is ours to give.
        unsafe {
            bindings::ib_set_client_data(
                raw.as_ptr(),
                REGISTRATION.0.get(),
                KBox::into_raw(data).cast(),
            )
        };
        Ok(0)
    })
}

/// ib_core goes on without a word, and does not ask again.
fn tell(device: Device, error: &Error) {
    let name = device.name();
    let name = core::ffi::CStr::from_bytes_until_nul(&name).ok();
    let name = name.and_then(|name| name.to_str().ok()).unwrap_or("?");
    pr_err!("{name} is not used: {error:?}. Load the module again to use it\n");
}

/// # Safety
///
/// Called by ib_core, for a device that goes, with the data that [`add`] gave.
unsafe extern "C" fn remove<T: Client>(
    _device: *mut bindings::ib_device,
    data: *mut kernel::ffi::c_void,
) {
    if !data.is_null() {
        // SAFETY: `add` gave it, and ib_core gives it back once.
        T::remove(unsafe { KBox::from_raw(data.cast()) });
    }
}
