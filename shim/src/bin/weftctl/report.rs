// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `weftctl` prints: each report as a table and as JSON.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::Table;
use serde_json::{json, Value};
use weft_shim::{MetaServerInfo, Node, Peer, PoolPeer, TransportCost};

/// Where the module shows its counters, one `name value` a line.
const COUNTERS_PATH: &str = "/sys/kernel/debug/weft/counters";

/// Something to print.
pub(crate) struct Report {
    text: String,
    json: Value,
}

impl Report {
    /// For people.
    pub(crate) fn text(self) -> String {
        self.text
    }

    /// For programs.
    pub(crate) fn json(self) -> String {
        format!("{:#}", self.json)
    }
}

/// The module's counters; none if debugfs is not mounted or may not be read.
pub(crate) fn read_counters() -> Vec<(String, u64)> {
    parse_counters(&std::fs::read_to_string(COUNTERS_PATH).unwrap_or_default())
}

fn parse_counters(text: &str) -> Vec<(String, u64)> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        })
        .collect()
}

/// Everything at a glance.
pub(crate) fn status(
    nodes: &[Node],
    servers: &[MetaServerInfo],
    counters: &[(String, u64)],
) -> Report {
    let (nodes, servers) = (self::nodes(nodes), meta_servers(servers));
    let counters_text = if counters.is_empty() {
        format!("no counters: {COUNTERS_PATH} is not there or may not be read")
    } else {
        let rows = counters
            .iter()
            .map(|(name, value)| vec![name.clone(), value.to_string()]);
        table(&["counter", "value"], rows)
    };
    let counters: serde_json::Map<_, _> = counters
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    Report {
        text: [nodes.text, servers.text, counters_text].join("\n\n"),
        json: json!({ "nodes": nodes.json, "meta_servers": servers.json, "counters": counters }),
    }
}

/// The host's nodes.
pub(crate) fn nodes(nodes: &[Node]) -> Report {
    let header = [
        "node",
        "device",
        "port",
        "gid",
        "udp",
        "incarnation",
        "vqps",
        "mrs",
        "cached peers",
        "published",
        "rc",
    ];
    let rows = nodes.iter().map(|node| {
        vec![
            node.index.to_string(),
            node.device.clone(),
            node.port.to_string(),
            node.gid.to_string(),
            node.udp_port.to_string(),
            format!("{:08x}", node.incarnation),
            node.vqps.to_string(),
            node.mrs.to_string(),
            node.cached_peers.to_string(),
            yes_or_no(node.published),
            node.rc.to_string(),
        ]
    });
    Report {
        text: table_or(&header, rows, "no nodes"),
        json: nodes.iter().map(node_json).collect(),
    }
}

fn node_json(node: &Node) -> Value {
    json!({
        "index": node.index,
        "device": node.device,
        "port": node.port,
        "gid": node.gid.to_string(),
        "dct_number": node.dct_number,
        "incarnation": node.incarnation,
        "udp_port": node.udp_port,
        "vqps": node.vqps,
        "mrs": node.mrs,
        "cached_peers": node.cached_peers,
        "published": node.published,
        "netns": node.netns,
        "rc": node.rc.to_string(),
    })
}

/// The meta servers.
pub(crate) fn meta_servers(servers: &[MetaServerInfo]) -> Report {
    let rows = servers.iter().map(|server| {
        vec![
            server.addr.to_string(),
            yes_or_no(server.connected),
            yes_or_no(server.published),
            server.buckets.to_string(),
        ]
    });
    let header = ["meta server", "connected", "published", "buckets"];
    let json = servers.iter().map(|server| {
        json!({
            "addr": server.addr.to_string(),
            "connected": server.connected,
            "published": server.published,
            "buckets": server.buckets,
        })
    });
    Report {
        text: table_or(
            &header,
            rows,
            "no meta servers: add one with `weftctl meta add`",
        ),
        json: json.collect(),
    }
}

/// A node that was looked up.
pub(crate) fn peer(peer: &Peer) -> Report {
    let rows = [
        ("gid", peer.gid.to_string()),
        ("DC target number", peer.dct_number.to_string()),
        ("incarnation", format!("{:08x}", peer.incarnation)),
        ("UDP port", peer.udp_port.to_string()),
        ("READs", peer.reads.to_string()),
    ];
    Report {
        text: table(
            &["record", ""],
            rows.map(|(name, value)| vec![name.into(), value]),
        ),
        json: json!({
            "gid": peer.gid.to_string(),
            "dct_number": peer.dct_number,
            "incarnation": peer.incarnation,
            "udp_port": peer.udp_port,
            "reads": peer.reads,
        }),
    }
}

/// The peers that a node's pool has an eye on.
pub(crate) fn pool(peers: &[PoolPeer]) -> Report {
    let header = [
        "peer",
        "transport",
        "messages",
        "VQPs",
        "user",
        "requests/s",
        "MiB/s",
        "DC",
        "RC",
        "queue pair",
        "moves",
        "chosen by",
    ];
    let rows = peers.iter().map(|peer| {
        vec![
            peer.gid.to_string(),
            peer.transport.to_string(),
            messages(peer),
            peer.vqps.to_string(),
            peer.user
                .map_or_else(|| UNKNOWN.into(), |user| user.to_string()),
            peer.requests.small_ops.to_string(),
            format!(
                "{:.1}",
                peer.requests.large_bytes as f64 / f64::from(1 << 20)
            ),
            cost(peer.requests.dc),
            cost(peer.requests.rc),
            queue_pairs(peer),
            peer.moves.to_string(),
            chosen_by(peer).into(),
        ]
    });
    let json = peers.iter().map(|peer| {
        json!({
            "gid": peer.gid.to_string(),
            "transport": peer.transport.to_string(),
            "messages": messages_by(peer),
            "vqps": peer.vqps,
            "user": peer.user,
            "small_ops": peer.requests.small_ops,
            "large_bytes": peer.requests.large_bytes,
            "dc_small_ns": peer.requests.dc.small_ns,
            "dc_byte_ps": peer.requests.dc.byte_ps,
            "rc_small_ns": peer.requests.rc.small_ns,
            "rc_byte_ps": peer.requests.rc.byte_ps,
            "message_small_ops": peer.messages.small_ops,
            "message_large_bytes": peer.messages.large_bytes,
            "message_udp_small_ns": peer.messages.dc.small_ns,
            "message_udp_byte_ps": peer.messages.dc.byte_ps,
            "message_rc_small_ns": peer.messages.rc.small_ns,
            "message_rc_byte_ps": peer.messages.rc.byte_ps,
            "age_ns": peer.age_ns,
            "queue_pairs": peer.queue_pairs,
            "moves": peer.moves,
            "chosen_by": chosen_by(peer),
        })
    });
    Report {
        text: table_or(
            &header,
            rows,
            "no peer was used lately, and none has a queue pair",
        ),
        json: json.collect(),
    }
}

/// For how long there has been a queue pair to a peer, and how many there are if they are several.
fn queue_pairs(peer: &PoolPeer) -> String {
    let age = peer.age_ns.map(|age_ns| age_ns / 1_000_000_000);
    match (age, peer.queue_pairs) {
        (None, _) => "none".into(),
        (Some(seconds), 0 | 1) => format!("{seconds} s"),
        (Some(seconds), pairs) => format!("{pairs}, {seconds} s"),
    }
}

/// Names the way of the packets of messages to a peer.
fn messages_by(peer: &PoolPeer) -> &'static str {
    match peer.messages_by_rc {
        true => "RC",
        false => "UDP",
    }
}

/// The way of messages to a peer, and what their packets take by each that was measured.
fn messages(peer: &PoolPeer) -> String {
    let costs = [("UDP", peer.messages.dc), ("RC", peer.messages.rc)];
    let known = costs.map(|(way, taken)| (way, cost(taken)));
    let known = known.iter().filter(|(_, taken)| taken != UNKNOWN);
    let costs: Vec<_> = known.map(|(way, taken)| format!("{way} {taken}")).collect();
    match costs.is_empty() {
        true => messages_by(peer).into(),
        false => format!("{} ({})", messages_by(peer), costs.join("; ")),
    }
}

/// Who has chosen a peer's transport.
fn chosen_by(peer: &PoolPeer) -> &'static str {
    match (peer.is_forced, peer.is_pinned, peer.is_in_trial) {
        (true, ..) => "use",
        (_, true, _) => "pin",
        (.., true) => "trial",
        _ => "pool",
    }
}

/// In place of what was not measured or seen.
const UNKNOWN: &str = "?";

/// What a small request takes, and a MiB of others.
fn cost(cost: TransportCost) -> String {
    let small = cost.small_ns.map(|ns| format!("{:.1} µs", ns as f64 / 1e3));
    // A picosecond a byte is 1.05 µs a MiB.
    let large = cost
        .byte_ps
        .map(|ps| format!("{:.2} ms/MiB", ps as f64 * 1.048_576e-3));
    let known: Vec<_> = small.into_iter().chain(large).collect();
    match known.is_empty() {
        true => UNKNOWN.into(),
        false => known.join(", "),
    }
}

/// A change that was made.
pub(crate) fn done(change: &str, what: &str, addr: &impl std::fmt::Display) -> Report {
    Report {
        text: format!("{change} {what} {addr}"),
        json: json!({ "change": change, "addr": addr.to_string() }),
    }
}

fn yes_or_no(is: bool) -> String {
    if is { "yes" } else { "no" }.into()
}

fn table_or(header: &[&str], rows: impl Iterator<Item = Vec<String>>, none: &str) -> String {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return none.into();
    }
    table(header, rows)
}

fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_preset(UTF8_HORIZONTAL_ONLY)
        .set_header(header)
        .add_rows(rows);
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_shim::{PeerTraffic, Transport};

    fn server() -> MetaServerInfo {
        MetaServerInfo {
            addr: "10.0.0.1:7471".parse().unwrap(),
            connected: true,
            published: false,
            buckets: 33,
        }
    }

    #[test]
    fn counters_are_names_with_numbers_and_other_lines_are_left_out() {
        let text = "dc_retransmits 12\n\nnonsense\nqconnects   3\nbad x\n";
        let expected = [
            ("dc_retransmits".to_owned(), 12),
            ("qconnects".to_owned(), 3),
        ];
        assert_eq!(parse_counters(text), expected);
    }

    #[test]
    fn a_way_of_messages_stands_beside_what_was_measured() {
        let took = |small_ns| TransportCost {
            small_ns,
            byte_ps: None,
        };
        let mut peer = PoolPeer {
            gid: "10.0.0.2".parse().unwrap(),
            transport: Transport::Rc,
            messages_by_rc: false,
            is_pinned: false,
            is_forced: false,
            is_in_trial: false,
            age_ns: None,
            queue_pairs: 0,
            moves: 0,
            vqps: 1,
            user: Some(1000),
            requests: PeerTraffic::default(),
            messages: PeerTraffic::default(),
        };
        assert_eq!(messages(&peer), "UDP");
        peer.messages.dc = took(Some(12_340));
        assert_eq!(messages(&peer), "UDP (UDP 12.3 µs)");
        (peer.messages.rc, peer.messages_by_rc) = (took(Some(9_000)), true);
        assert_eq!(messages(&peer), "RC (UDP 12.3 µs; RC 9.0 µs)");
        let report = pool(&[peer]);
        assert_eq!(report.json[0]["message_rc_small_ns"], 9_000);
        assert_eq!(report.json[0]["user"], 1000);
        assert_eq!(queue_pairs(&peer), "none");
        peer.age_ns = Some(7_500_000_000);
        peer.queue_pairs = 1;
        assert_eq!(queue_pairs(&peer), "7 s");
        peer.queue_pairs = 3;
        assert_eq!(queue_pairs(&peer), "3, 7 s");
    }

    #[test]
    fn a_report_says_the_same_as_text_and_as_json() {
        let report = meta_servers(&[server()]);
        assert!(report.text.contains("10.0.0.1:7471"), "{}", report.text);
        assert_eq!(report.json[0]["buckets"], 33);
        assert_eq!(report.json[0]["connected"], true);
    }

    #[test]
    fn nothing_is_said_in_words_and_is_an_empty_list_for_programs() {
        let report = status(&[], &[], &[]);
        assert!(report.text.contains("weftctl meta add"), "{}", report.text);
        assert_eq!(report.json["nodes"], json!([]));
        assert_eq!(report.json["counters"], json!({}));
    }
}
