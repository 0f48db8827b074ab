// SPDX-License-Identifier: MIT OR Apache-2.0

//! If a process fails in the middle of a transfer, all learn it and nothing is kept.
//!
//! A receiver that is stopped holds up the transfer after a few messages: what
//! happens then happens in the middle of it, however slow the machine is.

use std::fs::{self, File};

use nix::sys::signal::Signal;

use crate::scene::{Process, Scene};

const RECEIVERS: usize = 3;
/// The one that is stopped.
const VICTIM: usize = 2;

/// A transfer that cannot end, because the victim is stopped in the middle of it.
struct Middle {
    scene: Scene,
    sender: Process,
    victim: Process,
    others: Vec<(usize, Process)>,
}

impl Middle {
    /// Of a file, or a directory with that file.
    fn reach(is_tree: bool) -> Self {
        let scene = Scene::new(RECEIVERS);
        let root = scene.dir(0).join("root");
        let file = match is_tree {
            true => {
                fs::create_dir(&root).unwrap();
                root.join("file")
            }
            false => root,
        };
        // All holes: more than is written before the victim is stopped.
        File::create(file).unwrap().set_len(1 << 30).unwrap();
        let (sender, receivers) = scene.start_all("root", &["--chunk", "16K"]);
        let mut others: Vec<_> = scene.ranks().zip(receivers).collect();
        let (_, victim) = others.remove(VICTIM - 1);
        victim.stop_while_writing(&scene.dir(VICTIM));
        Self {
            scene,
            sender,
            victim,
            others,
        }
    }

    fn nothing_is_kept_by(&self, rank: usize) {
        assert_eq!(self.scene.names_in(rank), [""; 0], "receiver {rank}");
    }

    /// Waits for the end of the others, with these words.
    fn others_end_with(&mut self, words: &[&str]) {
        for (rank, other) in std::mem::take(&mut self.others) {
            other.ends_with(words);
            self.nothing_is_kept_by(rank);
        }
    }
}

#[test]
fn a_receiver_that_is_killed_ends_the_transfer_of_a_file() {
    let mut middle = Middle::reach(false);
    middle.victim.signal(Signal::SIGKILL);
    middle.others_end_with(&["nothing is kept", "receiver 2", "has died"]);
    middle.nothing_is_kept_by(VICTIM);
    middle.sender.ends_with(&["receiver 2: has died"]);
}

#[test]
fn a_receiver_that_is_killed_ends_the_transfer_of_a_tree() {
    let mut middle = Middle::reach(true);
    middle.victim.signal(Signal::SIGKILL);
    middle.others_end_with(&["nothing is kept", "receiver 2", "has died"]);
    let left = middle.scene.names_in(VICTIM);
    assert!(
        left.len() == 1 && left[0].starts_with(".weft-cp-"),
        "{left:?}"
    );
    middle.sender.ends_with(&["receiver 2: has died"]);
}

#[test]
fn a_sender_that_is_killed_ends_the_transfer() {
    let mut middle = Middle::reach(true);
    middle.sender.signal(Signal::SIGKILL);
    middle.victim.signal(Signal::SIGCONT);
    middle.others_end_with(&["nothing is kept", "the sender has died"]);
    let Middle { scene, victim, .. } = middle;
    victim.ends_with(&["nothing is kept", "the sender has died"]);
    assert_eq!(scene.names_in(VICTIM), [""; 0]);
}

#[test]
fn an_interrupted_receiver_removes_what_it_has_and_says_so() {
    let mut middle = Middle::reach(true);
    middle.victim.signal(Signal::SIGTERM);
    middle.victim.signal(Signal::SIGCONT);
    middle.others_end_with(&["nothing is kept", "receiver 2: interrupted"]);
    let Middle {
        scene,
        victim,
        sender,
        ..
    } = middle;
    victim.ends_with(&["interrupted"]);
    assert_eq!(scene.names_in(VICTIM), [""; 0]);
    sender.ends_with(&["receiver 2: interrupted"]);
}

#[test]
fn an_interrupted_sender_tells_everybody() {
    let mut middle = Middle::reach(false);
    // Not SIGINT: what runs in the background of a script may ignore that.
    middle.sender.signal(Signal::SIGTERM);
    middle.victim.signal(Signal::SIGCONT);
    middle.others_end_with(&["nothing is kept", "the sender was interrupted"]);
    let Middle {
        scene,
        victim,
        sender,
        ..
    } = middle;
    victim.ends_with(&["nothing is kept", "the sender was interrupted"]);
    assert_eq!(scene.names_in(VICTIM), [""; 0]);
    sender.ends_with(&["the sender was interrupted"]);
}
