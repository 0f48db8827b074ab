// SPDX-License-Identifier: MIT OR Apache-2.0

//! A list that is read while its owner appends and truncates, under every
//! interleaving: `RUSTFLAGS="--cfg loom" cargo test -p weft --release --lib loom`.

use super::List;
use loom::sync::Arc;
use loom::thread;

#[test]
fn a_snapshot_has_no_word_of_another_time() {
    loom::model(|| {
        let list = Arc::new(List::<2>::default());
        let owned = Arc::clone(&list);
        let owner = thread::spawn(move || {
            owned.append(&[10, 11]).expect("room");
            owned.truncate(1);
            owned.append(&[12]).expect("room");
        });
        let mut last = 0;
        for _ in 0..2 {
            for (at, word) in list.snapshot() {
                assert_eq!(word, 10 + at);
                assert!(at >= last, "the list went back");
            }
            last = list.snapshot().first().map_or(last, |word| word.0);
        }
        owner.join().expect("no panic");
        assert_eq!(list.snapshot(), [(1, 11), (2, 12)]);
    });
}
