// SPDX-License-Identifier: MIT OR Apache-2.0

//! READs by keys that are known, and by keys that are not.

use anyhow::Result;

use super::{measure as measure_cases, register, Named, Row};
use crate::cli::{System, Transport};
use crate::counters::counter;
use crate::nodes::{Node, CLIENT, DC_SERVER, SERVER};
use crate::peer::{Peer, Ready, KEY_BYTES};
use crate::readers::{VerbsReader, WeftReader};
use crate::round_robin::{Case, MakeCase};
use crate::weft::Way;

/// Regions of the peer whose keys take turns as new ones. The module remembers 256
/// keys of a peer, each for half a second: by its next turn a key is forgotten.
pub const NEW_KEYS: u32 = 960;
/// Samples of the end of a region that peers are told of: a second each, if they
/// do not answer.
const LEASED: u32 = 64;
/// READs whose READs of the table are counted.
const COUNTED: u32 = 64;

/// Measures them all.
pub fn measure(samples: u32) -> Result<Vec<Row>> {
    let rc = Peer::with_keys(SERVER, NEW_KEYS)?;
    let dc = Peer::with_keys(DC_SERVER, NEW_KEYS)?;
    let _rc = Way::force(CLIENT, SERVER, Transport::Rc)?;
    let _dc = Way::force(CLIENT, DC_SERVER, Transport::Dc)?;
    let (rc, dc) = (&rc.ready, &dc.ready);
    let over_rc = |new| reader(SERVER, rc, Transport::Rc, new);
    let over_dc = |new| reader(DC_SERVER, dc, Transport::Dc, new);
    let mut rows = measure_cases(
        vec![
            Named {
                system: System::Verbs,
                transport: Some("rc"),
                case: "read_known_key",
                bytes: KEY_BYTES,
                make: Box::new(|| Ok(Box::new(VerbsReader::connect(rc)?))),
            },
            named(Transport::Rc, "read_known_key", over_rc(false)),
            named(Transport::Rc, "read_new_key", over_rc(true)),
            named(Transport::Dc, "read_known_key", over_dc(false)),
            named(Transport::Dc, "read_new_key", over_dc(true)),
        ],
        samples,
    )?;
    for row in rows.iter_mut().filter(|row| row.system == "weft") {
        let (node, peer, transport) = match row.transport {
            Some("rc") => (SERVER, rc, Transport::Rc),
            _ => (DC_SERVER, dc, Transport::Dc),
        };
        let new = row.case == "read_new_key";
        let mut reader = weft_reader(node, peer, transport, new)?;
        row.table_reads_per_op = Some(table_reads(&mut reader)?);
    }
    let leased = register::leased(KEY_BYTES);
    rows.extend(measure_cases(vec![leased], samples.min(LEASED))?);
    Ok(rows)
}

fn named<'a>(transport: Transport, case: &'static str, make: MakeCase<'a>) -> Named<'a> {
    Named {
        system: System::Weft,
        transport: Some(transport.name()),
        case,
        bytes: KEY_BYTES,
        make,
    }
}

fn reader(node: Node, peer: &Ready, transport: Transport, new: bool) -> MakeCase<'_> {
    Box::new(move || Ok(Box::new(weft_reader(node, peer, transport, new)?)))
}

/// A client that READs one region, or each of many in turn.
fn weft_reader(node: Node, peer: &Ready, transport: Transport, new: bool) -> Result<WeftReader> {
    match new {
        true => WeftReader::of_keys(node, peer, transport),
        false => WeftReader::connect(node, peer, transport),
    }
}

/// READs of the table that a request takes.
fn table_reads(reader: &mut WeftReader) -> Result<f64> {
    reader.sample()?;
    let before = counter("rc_mr_reads")?;
    for _ in 0..COUNTED {
        reader.sample()?;
    }
    let reads = counter("rc_mr_reads")? - before;
    // Small numbers.
    Ok(reads as f64 / f64::from(COUNTED))
}
