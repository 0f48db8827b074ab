// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table of node records and the messages that change it. A node's record is
//! changed by that node alone.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;

use weft_core::gid::Gid;
use weft_core::kv::{Geometry, Table};
use weft_core::meta::{Publication, Record};

use crate::log::Subject;
use crate::peers::Class;

/// The node records. Its one writer is whoever holds it; peers READ the memory.
pub struct Directory<'a>(Table<'a>);

/// Whose records the sender of a message may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// That of the node with this GID.
    Own(Gid),
    /// Everybody's: the operator has said so (`--registrar`).
    All,
    /// Nobody's: the sender may be any user of its host.
    None,
}

impl Authority {
    /// What a connection from `peer` may change. On the peer's host it took
    /// `CAP_NET_BIND_SERVICE` to connect from a reserved port; any user may connect from
    /// another one.
    pub fn of(peer: SocketAddr, registrars: &[IpAddr]) -> Self {
        // A mapped IPv4 address is that address.
        let ip = peer.ip().to_canonical();
        if Class::of(peer) == Class::Reader {
            Self::None
        } else if registrars.iter().any(|other| other.to_canonical() == ip) {
            Self::All
        } else {
            Self::Own(ip.into())
        }
    }

    fn covers(self, gid: Gid) -> bool {
        match self {
            Self::Own(own) => own == gid,
            Self::All => true,
            Self::None => false,
        }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The record is in the table.
    Published(Gid, Record),
    /// The record is gone.
    Withdrawn(Gid),
    /// A withdrawal by an incarnation that the table does not hold: nothing to do.
    Stale(Gid),
    /// There is no room for the record; nothing was changed.
    Full(Gid),
    /// The sender may not change this node's record; nothing was changed.
    Foreign(Gid),
    /// The message does not repeat its connection's token, so that its sender has not
    /// received the server's answer; nothing was changed.
    Forged,
    /// The message is not a publication; nothing was changed.
    Malformed,
}

impl Outcome {
    /// Whether the sender did what no node does.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Foreign(_) | Self::Forged | Self::Malformed)
    }

    /// What a line about it is about.
    pub fn subject(self) -> Subject {
        match self {
            Self::Published(..) | Self::Withdrawn(_) | Self::Stale(_) => Subject::Records,
            Self::Full(_) => Subject::FullTable,
            Self::Foreign(_) | Self::Forged | Self::Malformed => Subject::Messages,
        }
    }
}

impl<'a> Directory<'a> {
    /// An empty directory in `memory`, of which it takes what `geometry` asks.
    ///
    /// # Panics
    ///
    /// If the memory is too small.
    pub fn new(memory: &'a [AtomicU64], geometry: Geometry) -> Self {
        let table = Table::new(&memory[..geometry.words()], geometry);
        Self(table.expect("the memory was cut to the geometry's size"))
    }

    /// Shape of the table.
    pub fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    /// Records.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Does what a message says, if it says something and its sender may. `token` is
    /// that of the connection.
    pub fn apply(&mut self, message: &[u8], token: u64, authority: Authority) -> Outcome {
        let publication = match Publication::decode(message) {
            Some((publication, repeated)) if repeated == token => publication,
            Some(_) => return Outcome::Forged,
            None => return Outcome::Malformed,
        };
        match publication {
            Publication::Publish(gid, _) | Publication::Withdraw(gid, _)
                if !authority.covers(gid) =>
            {
                Outcome::Foreign(gid)
            }
            Publication::Publish(gid, record) => match self.0.insert(&gid.0, &record.to_value()) {
                Ok(()) => Outcome::Published(gid, record),
                Err(_) => Outcome::Full(gid),
            },
            Publication::Withdraw(gid, incarnation) => self.withdraw(gid, incarnation),
        }
    }

    fn withdraw(&mut self, gid: Gid, incarnation: u32) -> Outcome {
        let stored = self.0.get(&gid.0).map(|value| Record::from_value(&value));
        if stored.is_none_or(|record| record.incarnation != incarnation) {
            return Outcome::Stale(gid);
        }
        self.0.remove(&gid.0);
        Outcome::Withdrawn(gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::kv::{Lookup, Step};

    const TOKEN: u64 = 0x7070;

    fn memory(geometry: Geometry) -> Vec<AtomicU64> {
        (0..geometry.words()).map(|_| AtomicU64::new(0)).collect()
    }

    fn record(incarnation: u32) -> Record {
        Record {
            dct_number: 5,
            dct_key: 0x1234_5678_9abc_def0,
            incarnation,
            udp_port: 4791,
        }
    }

    fn gid(n: u32) -> Gid {
        Gid::from_ipv4(n.to_be_bytes())
    }

    fn publish(directory: &mut Directory<'_>, n: u32, incarnation: u32) -> Outcome {
        let message = Publication::Publish(gid(n), record(incarnation)).encode(TOKEN);
        directory.apply(&message, TOKEN, Authority::Own(gid(n)))
    }

    fn withdraw(directory: &mut Directory<'_>, n: u32, incarnation: u32) -> Outcome {
        let message = Publication::Withdraw(gid(n), incarnation).encode(TOKEN);
        directory.apply(&message, TOKEN, Authority::Own(gid(n)))
    }

    /// What a peer that READs `memory` finds.
    fn look_up(memory: &[AtomicU64], geometry: Geometry, gid: Gid) -> Option<Record> {
        use std::sync::atomic::Ordering::Relaxed;
        let bytes: Vec<u8> = memory
            .iter()
            .flat_map(|w| w.load(Relaxed).to_ne_bytes())
            .collect();
        let mut lookup = Lookup::new(geometry, gid.0);
        loop {
            let read = lookup.next_read();
            let at = usize::try_from(read.offset).unwrap();
            match lookup.feed(&bytes[at..][..read.len as usize]) {
                Step::Read(_) => {}
                Step::Found(value) => return Some(Record::from_value(&value)),
                Step::Absent => return None,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_published_record_is_what_a_peer_reads() {
        let geometry = Geometry::for_capacity(100).unwrap();
        let memory = memory(geometry);
        let mut directory = Directory::new(&memory, geometry);
        assert_eq!(
            publish(&mut directory, 1, 7),
            Outcome::Published(gid(1), record(7))
        );
        assert_eq!(
            publish(&mut directory, 1, 8),
            Outcome::Published(gid(1), record(8))
        );
        assert_eq!(directory.len(), 1);
        assert_eq!(look_up(&memory, geometry, gid(1)), Some(record(8)));
        assert_eq!(look_up(&memory, geometry, gid(2)), None);
    }

    #[test]
    fn only_the_stored_incarnation_withdraws() {
        let geometry = Geometry::for_capacity(100).unwrap();
        let memory = memory(geometry);
        let mut directory = Directory::new(&memory, geometry);
        publish(&mut directory, 1, 8);
        assert_eq!(withdraw(&mut directory, 1, 7), Outcome::Stale(gid(1)));
        assert_eq!(withdraw(&mut directory, 2, 8), Outcome::Stale(gid(2)));
        assert_eq!(directory.len(), 1);
        assert_eq!(withdraw(&mut directory, 1, 8), Outcome::Withdrawn(gid(1)));
        assert_eq!(look_up(&memory, geometry, gid(1)), None);
    }

    #[test]
    fn a_full_table_refuses_the_new_and_keeps_the_old() {
        let geometry = Geometry::new(1, 1).unwrap();
        let memory = memory(geometry);
        let mut directory = Directory::new(&memory, geometry);
        let kept = (1..)
            .take_while(|&n| publish(&mut directory, n, n) != Outcome::Full(gid(n)))
            .count();
        assert_eq!(kept, directory.len());
        assert_eq!(
            publish(&mut directory, 1, 99),
            Outcome::Published(gid(1), record(99))
        );
        for n in 2..=u32::try_from(kept).unwrap() {
            assert_eq!(look_up(&memory, geometry, gid(n)), Some(record(n)));
        }
    }

    #[test]
    fn noise_changes_nothing() {
        let geometry = Geometry::for_capacity(100).unwrap();
        let memory = memory(geometry);
        let mut directory = Directory::new(&memory, geometry);
        publish(&mut directory, 1, 1);
        let good = Publication::Publish(gid(2), record(1)).encode(TOKEN);
        for bad in [&good[..55], &[], &[0; 56], &[0xff; 56]] {
            let outcome = directory.apply(bad, TOKEN, Authority::All);
            assert_eq!(outcome, Outcome::Malformed);
        }
        let nobody = Publication::Publish(Gid::default(), record(1)).encode(TOKEN);
        let outcome = directory.apply(&nobody, TOKEN, Authority::All);
        assert_eq!(outcome, Outcome::Malformed);
        assert_eq!(directory.len(), 1);
    }

    #[test]
    fn a_node_changes_its_own_record_alone() {
        let geometry = Geometry::for_capacity(100).unwrap();
        let memory = memory(geometry);
        let mut directory = Directory::new(&memory, geometry);
        publish(&mut directory, 1, 7);
        let foreign = Publication::Publish(gid(1), record(8)).encode(TOKEN);
        let withdrawal = Publication::Withdraw(gid(1), 7).encode(TOKEN);
        for other in [Authority::Own(gid(2)), Authority::None] {
            assert_eq!(
                directory.apply(&foreign, TOKEN, other),
                Outcome::Foreign(gid(1))
            );
            assert_eq!(
                directory.apply(&withdrawal, TOKEN, other),
                Outcome::Foreign(gid(1))
            );
        }
        assert_eq!(look_up(&memory, geometry, gid(1)), Some(record(7)));
        assert_eq!(
            directory.apply(&foreign, TOKEN, Authority::All),
            Outcome::Published(gid(1), record(8))
        );
    }

    #[test]
    fn who_has_not_received_the_servers_answer_changes_nothing() {
        let geometry = Geometry::for_capacity(100).unwrap();
        let memory = memory(geometry);
        let mut directory = Directory::new(&memory, geometry);
        publish(&mut directory, 1, 7);
        for forged in [
            Publication::Publish(gid(1), record(8)).encode(TOKEN + 1),
            Publication::Withdraw(gid(1), 7).encode(0),
        ] {
            let outcome = directory.apply(&forged, TOKEN, Authority::Own(gid(1)));
            assert_eq!(outcome, Outcome::Forged);
        }
        assert_eq!(look_up(&memory, geometry, gid(1)), Some(record(7)));
    }

    #[test]
    fn a_reserved_port_has_authority_over_its_addresss_gid() {
        let registrars = ["10.0.0.9".parse().unwrap()];
        let of = |text: &str| Authority::of(text.parse().unwrap(), &registrars);
        assert_eq!(
            of("10.0.0.1:1023"),
            Authority::Own(Gid::from_ipv4([10, 0, 0, 1]))
        );
        assert_eq!(of("[::ffff:10.0.0.1]:512"), of("10.0.0.1:1023"));
        assert_eq!(
            of("[fd00::1]:512"),
            Authority::Own("fd00::1".parse().unwrap())
        );
        assert_eq!(of("10.0.0.9:512"), Authority::All);
        assert_eq!(of("[::ffff:10.0.0.9]:512"), Authority::All);
    }

    #[test]
    fn another_port_has_none() {
        let registrars = ["10.0.0.9".parse().unwrap()];
        for peer in ["10.0.0.1:1024", "10.0.0.9:40000", "[fd00::1]:40000"] {
            let authority = Authority::of(peer.parse().unwrap(), &registrars);
            assert_eq!(authority, Authority::None);
        }
    }
}
