// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The limits that README.md and docs/operating.md tell are those that there are.

use weft_core::rc::MAX_MORE_LINKS;
use weft_core::uapi::*;

/// The table under "Limits": what is limited, and the numbers.
fn told() -> Vec<(&'static str, Vec<u64>)> {
    let text = include_str!("../../docs/operating.md");
    let (_, limits) = text.split_once("\n## Limits\n").unwrap();
    let table = limits.lines().skip_while(|line| !line.starts_with('|'));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        let (name, values) = (cells.next().unwrap(), cells.next().unwrap());
        (name, values.split(';').map(value).collect())
    })
    .collect()
}

/// `131,072` and `8 MiB` as numbers.
fn value(text: &str) -> u64 {
    let text = text.trim();
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let scale = match unit {
        "" => 1,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => panic!("{text} has an unknown unit"),
    };
    scale * number.replace(',', "").parse::<u64>().unwrap()
}

/// A constant of the module's.
fn of_module(name: &str) -> u64 {
    let text = include_str!("../../kmod/rc.rs");
    let (_, rest) = text.split_once(&format!("const {name}: usize = ")).unwrap();
    rest.split_once(';').unwrap().0.parse().unwrap()
}

#[test]
fn operators_are_told_the_limits() {
    let sizes = |all: &[usize]| all.iter().map(|size| *size as u64).collect();
    let wanted: Vec<(&str, Vec<u64>)> = vec![
        (
            "memory regions of a session; of a user on a node",
            vec![MAX_MRS_PER_SESSION as u64, MAX_MRS_PER_USER.into()],
        ),
        (
            "bytes of a region; of memory that comes with queues",
            vec![MAX_MR_BYTES, MAX_RING_MEMORY.into()],
        ),
        (
            "memory windows of a session; of a user on a node",
            vec![MAX_MWS_PER_SESSION as u64, MAX_MWS_PER_USER.into()],
        ),
        (
            "registrations with a node's RDMA device, of a user: one for each window and each \
             2 MiB of a region (soft-RoCE); what has none is used by DC",
            vec![MAX_BLOCKS_PER_USER.into()],
        ),
        (
            "queues (rings) of a session, each `Vqp` having its own",
            sizes(&[MAX_RINGS_PER_SESSION]),
        ),
        (
            "VQPs of a user on a node; opened peers",
            vec![MAX_VQPS_PER_USER.into(), MAX_PEERS_PER_USER.into()],
        ),
        (
            "DC streams of a user on a node",
            vec![MAX_STREAMS_PER_USER.into()],
        ),
        (
            "requests under way in a VQP; receive buffers; completions in a queue",
            vec![MAX_SEND_WR.into(), MAX_RECV_WR.into(), MAX_WC.into()],
        ),
        (
            "meta servers of a host; nodes (RDMA ports)",
            sizes(&[MAX_META_SERVERS, MAX_NODES]),
        ),
        (
            "peers of a node with RC queue pairs; further queue pairs of all of them",
            vec![of_module("MAX_WANTS"), MAX_MORE_LINKS as u64],
        ),
    ];
    assert_eq!(told(), wanted);
}

#[test]
fn users_are_told_what_a_request_takes() {
    let told = format!("up to {MAX_SGE} elements or {MAX_INLINE} bytes inline");
    assert!(include_str!("../../README.md").contains(&told));
}
