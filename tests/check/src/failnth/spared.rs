// SPDX-License-Identifier: MIT OR Apache-2.0

//! A function of the kernel's in which nothing fails, because the kernel warns when something
//! does, whosever call it was.

use anyhow::{bail, Context, Result};

use super::elsewhere::{Kind, DEPTH};

/// Nothing fails in the function, nor in what it calls, until this is dropped.
pub struct Spared(());

impl Spared {
    /// Spares a function by its name.
    pub fn function(name: &str) -> Result<Self> {
        let (start, end) = place(name)?;
        let spared = Self(());
        for kind in Kind::ALL {
            kind.set("stacktrace-depth", DEPTH)?;
            kind.set("reject-start", format_args!("{start:#x}"))?;
            kind.set("reject-end", format_args!("{end:#x}"))?;
        }
        Ok(spared)
    }
}

impl Drop for Spared {
    fn drop(&mut self) {
        for kind in Kind::ALL {
            for name in ["reject-start", "reject-end", "stacktrace-depth"] {
                // Then fewer points fail in later checks, which say how many did.
                let _ = kind.set(name, 0);
            }
        }
    }
}

/// Where a function's code lies: to the next symbol.
fn place(name: &str) -> Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/kallsyms")?;
    let symbols = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((address, words.nth(1)?))
    });
    let named = symbols.clone().filter(|(_, symbol)| *symbol == name);
    let places: Vec<u64> = named.map(|(address, _)| address).collect();
    let [start @ 1..=u64::MAX] = places[..] else {
        bail!("this kernel has not one {name} whose place it shows: {places:x?}");
    };
    let behind = symbols.map(|(address, _)| address);
    let end = behind.filter(|&address| address > start).min();
    Ok((start, end.context("nothing is behind it")?))
}
