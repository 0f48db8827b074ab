// SPDX-License-Identifier: MIT OR Apache-2.0

//! What travels.
//!
//! *The stream*, from the sender: [`Record`]s, each with its length in four bytes
//! before it: a [`Begin`], as many [`Entry`]s as it says, the first of which is
//! the root of the tree, then [`Record::Commit`]. Behind a file's entry come its bytes
//! and their BLAKE3. A message of the stream's group begins with a byte that says
//! what it is: a part of the stream, or why the transfer is given up.
//!
//! *Reports*, from each receiver: a [`Report`] a message.
//!
//! All counts and lengths have limits, which the reader checks. A receiver's first
//! report says which version it speaks; the sender compares it before it sends
//! anything else.

use std::io::BufRead;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};

use crate::entry::Entry;

/// Of all that is in this file and in [`Entry`].
pub const VERSION: u32 = 1;
/// Longest record.
pub const MAX_RECORD_BYTES: usize = 16 << 10;
/// Longest report: a block of its group.
pub const MAX_REPORT_BYTES: usize = 4096;
/// Longest reason of a failure.
const MAX_REASON_BYTES: usize = 2048;
/// Most files, directories and links of a transfer: receivers remember some.
pub const MAX_ENTRIES: u64 = 1 << 20;
/// Most bytes of the paths and targets of a transfer's links: receivers remember them to the end.
pub const MAX_LINK_BYTES: usize = 256 << 20;
/// Bytes of a file's hash.
pub const HASH_BYTES: usize = 32;

/// The first byte of a message: a part of the stream follows.
pub const STREAM: u8 = 0;
/// The first byte of a message: the transfer is given up; the reason follows.
pub const GIVE_UP: u8 = 1;

/// A piece of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The first.
    Begin(Begin),
    /// A file, directory or link.
    Entry(Entry),
    /// All receivers have everything: names are to be given.
    Commit,
}

/// What is to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// The name that all of it is to have.
    pub name: Vec<u8>,
    /// How many entries follow.
    pub entries: u64,
    /// How many bytes its files have together.
    pub bytes: u64,
}

/// What a receiver tells the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// First of all. Its layout is the same in all versions.
    Ready {
        /// What it speaks.
        version: u32,
        /// The longest message that it has memory for.
        chunk_bytes: u64,
    },
    /// So many messages are written, and their memory is free.
    Written(u64),
    /// Everything is here and is what was sent.
    Checked,
    /// Everything has its final name.
    Done,
    /// It cannot go on, and says why.
    Failed(String),
}

/// A record with its length before it.
pub fn encode(record: &Record) -> Result<Vec<u8>> {
    let bytes = postcard::to_allocvec(record)?;
    let too_long = "a path or a link is too long to be sent";
    ensure!(bytes.len() <= MAX_RECORD_BYTES, too_long);
    let length = u32::try_from(bytes.len()).context(too_long)?;
    Ok([&length.to_le_bytes(), &bytes[..]].concat())
}

/// The next record of a stream.
pub fn decode(stream: &mut impl BufRead) -> Result<Record> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length))?;
    ensure!(
        length <= MAX_RECORD_BYTES,
        "the stream is corrupt: a record of {length} bytes"
    );
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    let (record, rest) = postcard::take_from_bytes(&bytes).context("the stream is corrupt")?;
    ensure!(
        rest.is_empty(),
        "the stream is corrupt: a record is too long"
    );
    Ok(record)
}

impl Report {
    /// As it travels.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let bytes = postcard::to_allocvec(self)?;
        ensure!(bytes.len() <= MAX_REPORT_BYTES, "a report is too long");
        Ok(bytes)
    }

    /// From what has come.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let report = postcard::from_bytes(bytes);
        report.context("it reports what cannot be read: run the same release everywhere")
    }

    /// A failure, with as much of its reason as there is room for.
    pub fn failed(reason: &str) -> Self {
        Self::Failed(shortened(reason).to_owned())
    }
}

/// As much of a reason as is sent.
pub fn shortened(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read() {
        let record = Record::Begin(Begin {
            name: b"name \xFF".to_vec(),
            entries: 7,
            bytes: u64::MAX,
        });
        let bytes = [encode(&record).unwrap(), encode(&Record::Commit).unwrap()].concat();
        let mut stream = &bytes[..];
        assert_eq!(decode(&mut stream).unwrap(), record);
        assert_eq!(decode(&mut stream).unwrap(), Record::Commit);
        assert!(decode(&mut stream).is_err());
        let report = Report::failed(&"é".repeat(MAX_REASON_BYTES));
        let bytes = report.to_bytes().unwrap();
        assert_eq!(Report::from_bytes(&bytes).unwrap(), report);
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let mut long = u32::MAX.to_le_bytes().to_vec();
        long.extend([0; 64]);
        assert!(decode(&mut &long[..]).is_err());
        // A name that claims more bytes than its record has.
        let lie = [&[6, 0, 0, 0, 0][..], &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F]].concat();
        assert!(decode(&mut &lie[..]).is_err());
        // A record with something behind it.
        assert!(decode(&mut &[2, 0, 0, 0, 2, 0][..]).is_err());
    }
}
