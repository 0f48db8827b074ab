// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Tests of [`crate::meta`]: what is encoded is decoded, and nothing else is.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn record() -> impl Strategy<Value = Record> {
    (any::<u32>(), any::<u64>(), any::<u32>(), any::<u16>()).prop_map(
        |(dct_number, dct_key, incarnation, udp_port)| Record {
            dct_number,
            dct_key,
            incarnation,
            udp_port,
        },
    )
}

fn publication() -> impl Strategy<Value = Publication> {
    let gid = any::<[u8; 16]>()
        .prop_filter("names nobody", |gid| *gid != [0; 16])
        .prop_map(Gid);
    prop_oneof![
        (gid.clone(), record()).prop_map(|(gid, record)| Publication::Publish(gid, record)),
        (gid, any::<u32>()).prop_map(|(gid, incarnation)| Publication::Withdraw(gid, incarnation)),
    ]
}

fn welcome() -> Welcome {
    Welcome {
        table_addr: 0x1122_3344_5566_7788,
        table_rkey: 0x99aa_bbcc,
        geometry: kv::Geometry::new(3, 5).unwrap(),
        token: 0x0123_4567_89ab_cdef,
    }
}

#[test]
fn a_record_lies_in_its_value_as_the_paper_has_it() {
    let record = Record {
        dct_number: 0x0403_0201,
        dct_key: 0x0c0b_0a09_0807_0605,
        incarnation: 0x100f_0e0d,
        udp_port: 0x1211,
    };
    let expected: Vec<u8> = (1..=18).collect();
    assert_eq!(record.to_value().as_slice(), expected);
}

#[test]
fn a_welcome_survives_the_padding_of_rdma_cm() {
    let mut bytes = welcome().encode().to_vec();
    bytes.resize(196, 0);
    assert_eq!(Welcome::decode(&bytes), Some(welcome()));
}

#[test]
fn a_welcome_that_is_short_foreign_or_of_another_version_is_refused() {
    let bytes = welcome().encode();
    assert_eq!(Welcome::decode(&bytes[..WELCOME_BYTES - 1]), None);
    for changed in [0, 4] {
        let mut bytes = bytes;
        bytes[changed] ^= 1;
        assert_eq!(Welcome::decode(&bytes), None, "byte {changed}");
    }
}

#[test]
fn a_welcome_with_an_impossible_table_is_refused() {
    let mut bytes = welcome().encode();
    bytes[20..24].copy_from_slice(&6_u32.to_le_bytes());
    assert_eq!(
        Welcome::decode(&bytes),
        None,
        "more main buckets than buckets"
    );
    bytes[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(
        Welcome::decode(&bytes),
        None,
        "more buckets than a table may have"
    );
}

#[test]
fn a_publication_of_the_zero_gid_or_another_length_is_refused() {
    let good = Publication::Withdraw(Gid::from_ipv4([10, 0, 0, 1]), 7).encode(1);
    assert!(Publication::decode(&good).is_some());
    assert_eq!(Publication::decode(&good[..PUBLICATION_BYTES - 1]), None);
    let zero = Publication::Withdraw(Gid::default(), 7).encode(1);
    assert_eq!(Publication::decode(&zero), None);
    let mut unknown = good;
    unknown[4] = 3;
    assert_eq!(Publication::decode(&unknown), None);
}

proptest! {
    #[test]
    fn a_record_survives_its_value(record in record()) {
        prop_assert_eq!(Record::from_value(&record.to_value()), record);
    }

    #[test]
    fn a_publication_survives_its_bytes(publication in publication(), token in any::<u64>()) {
        let bytes = publication.encode(token);
        prop_assert_eq!(Publication::decode(&bytes), Some((publication, token)));
    }

    #[test]
    fn a_welcome_survives_its_bytes(
        table_addr in any::<u64>(),
        table_rkey in any::<u32>(),
        main in 1..1000_u32,
        cluster in 0..1000_u32,
        token in any::<u64>(),
    ) {
        let geometry = kv::Geometry::new(main, main + cluster).unwrap();
        let welcome = Welcome { table_addr, table_rkey, geometry, token };
        prop_assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
    }

    #[test]
    fn garbage_is_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = Welcome::decode(&bytes);
        let _ = Publication::decode(&bytes);
        // And garbage behind a good start, which gets further.
        for good in [&welcome().encode()[..8], &PUBLICATION_MAGIC.to_le_bytes()] {
            if let Some(start) = bytes.get_mut(..good.len()) {
                start.copy_from_slice(good);
            }
            let _ = Welcome::decode(&bytes);
            let _ = Publication::decode(&bytes);
        }
    }
}
