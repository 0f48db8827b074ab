// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration, and its end.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use weft_shim::{Access, Device, MemoryRegion};
use weft_verbs::{Access as VerbsAccess, Mr, Pages, Pd};

use super::Named;
use crate::cli::System;
use crate::nodes::CLIENT;
use crate::round_robin::{Case, Sample};
use crate::weft::device;

/// Words of a page.
const PAGE_WORDS: usize = 512;

/// The cases for regions of a size.
pub fn cases(bytes: u32) -> Result<Vec<Named<'static>>> {
    let context = CLIENT.open()?;
    let pd = Pd::new(&context)?;
    let mut cases = Vec::new();
    for (case, ends) in [("register", false), ("deregister", true)] {
        let verbs = pd.clone();
        cases.push(Named {
            system: System::Verbs,
            transport: None,
            case,
            bytes,
            make: Box::new(move || {
                let pages = touched(bytes)?;
                let pd = verbs.clone();
                let begin = move || Ok(Mr::register(&pd, &pages, VerbsAccess::All)?);
                Ok(Box::new(Turn { begin, ends }))
            }),
        });
        cases.push(Named {
            system: System::Weft,
            transport: None,
            case,
            bytes,
            make: Box::new(move || {
                let (device, pages) = (device()?, touched(bytes)?);
                let begin = move || register(&device, &pages);
                Ok(Box::new(Turn { begin, ends }))
            }),
        });
    }
    Ok(cases)
}

/// The end of a region of Weft that a peer may have read of.
pub fn leased(bytes: u32) -> Named<'static> {
    Named {
        system: System::Weft,
        transport: Some("rc"),
        case: "deregister_leased",
        bytes,
        make: Box::new(move || {
            let (device, pages) = (device()?, touched(bytes)?);
            let begin = move || register(&device, &pages);
            Ok(Box::new(Turn { begin, ends: true }))
        }),
    }
}

/// Memory whose pages are there.
fn touched(bytes: u32) -> Result<Arc<Pages>> {
    let pages = Pages::zeroed(usize::try_from(bytes)?)?;
    let firsts = pages.words().iter().step_by(PAGE_WORDS);
    firsts.for_each(|word| word.store(1, Ordering::Relaxed));
    Ok(pages)
}

/// A registration by Weft, of memory that is kept until after it.
struct Registered {
    _region: MemoryRegion,
    _pages: Arc<Pages>,
}

fn register(device: &Device, pages: &Arc<Pages>) -> Result<Registered> {
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let words = pages.words();
    let first = NonNull::from(words).cast::<u8>();
    // SAFETY: the mapping is as long as its words, readable and writable; it is
    // kept until after the region; it is touched as atomics only.
    let region = unsafe { device.register(first, size_of_val(words), access) }?;
    Ok(Registered {
        _region: region,
        _pages: pages.clone(),
    })
}

/// Registers and deregisters. One of them is what is measured.
struct Turn<F> {
    begin: F,
    ends: bool,
}

impl<T, F: Fn() -> Result<T>> Case for Turn<F> {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        let region = (self.begin)()?;
        let begun = start.elapsed();
        drop(region);
        let ended = start.elapsed() - begun;
        let (call, outside) = if self.ends {
            (ended, begun)
        } else {
            (begun, ended)
        };
        Ok(Sample {
            call,
            outside,
            ..Sample::default()
        })
    }
}
