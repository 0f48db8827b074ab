// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is sent arrives.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::scene::Scene;

/// Bytes that differ everywhere.
fn bytes(count: u32) -> Vec<u8> {
    (0..count)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

#[test]
fn a_file_of_many_messages_arrives_at_three_receivers() {
    let scene = Scene::new(3);
    let sent = bytes(5_000_011);
    fs::write(scene.dir(0).join("file"), &sent).unwrap();
    let sender = scene.sender("file", &["--chunk", "1M"]);
    // The least counts.
    let chunks = ["16M", "300K", "64K"];
    let receivers = scene
        .ranks()
        .map(|rank| scene.receiver(rank, &["--chunk", chunks[rank - 1]]));
    let receivers: Vec<_> = receivers.collect();
    sender.ends_well();
    receivers
        .into_iter()
        .for_each(|receiver| receiver.ends_well());
    for rank in scene.ranks() {
        assert!(
            fs::read(scene.dir(rank).join("file")).unwrap() == sent,
            "{rank}"
        );
        assert_eq!(scene.names_in(rank), ["file"]);
    }
}

fn make_tree(root: &Path) {
    let odd = OsStr::from_bytes(b"odd \xFF\xFE\n name");
    let deep = root.join(vec!["deep"; 40].join("/"));
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(root.join("empty directory")).unwrap();
    fs::write(root.join("empty file"), "").unwrap();
    fs::write(deep.join("file"), bytes(100_000)).unwrap();
    fs::write(root.join(odd), "odd").unwrap();
    fs::write(root.join("program"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("program"), Permissions::from_mode(0o751)).unwrap();
    symlink("program", root.join("link")).unwrap();
    symlink("/nowhere/at/all", root.join("dangling")).unwrap();
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_000);
    let file = fs::File::options()
        .write(true)
        .open(root.join("empty file"));
    file.unwrap().set_modified(old).unwrap();
    fs::set_permissions(root.join("empty directory"), Permissions::from_mode(0o500)).unwrap();
}

/// A line for each name: all that is to be kept.
fn describe(root: &Path) -> Vec<String> {
    let all = walkdir::WalkDir::new(root).sort_by_file_name().into_iter();
    let lines = all.map(|entry| {
        let entry = entry.unwrap();
        let path = entry.path();
        let name = path.strip_prefix(root).unwrap();
        let there = path.symlink_metadata().unwrap();
        if there.is_symlink() {
            return format!("{name:?} -> {:?}", fs::read_link(path).unwrap());
        }
        let mode = there.mode();
        let modified = there.modified().unwrap();
        let hash = there
            .is_file()
            .then(|| blake3::hash(&fs::read(path).unwrap()));
        format!("{name:?} {mode:o} {modified:?} {hash:?}")
    });
    lines.collect()
}

#[test]
fn a_tree_arrives_as_it_is() {
    let scene = Scene::new(2);
    let tree = scene.dir(0).join("tree");
    make_tree(&tree);
    // A record does not fit into each message.
    let (sender, receivers) = scene.start_all("tree", &["--chunk", "4K", "--quiet"]);
    let (well, said) = sender.end();
    assert!(well && said.is_empty(), "{said}");
    receivers
        .into_iter()
        .for_each(|receiver| receiver.ends_well());
    for rank in scene.ranks() {
        assert_eq!(describe(&scene.dir(rank).join("tree")), describe(&tree));
        assert_eq!(scene.names_in(rank), ["tree"]);
    }
}

#[test]
fn what_is_there_is_replaced_only_if_that_was_asked_for() {
    let scene = Scene::new(2);
    fs::write(scene.dir(0).join("file"), "new").unwrap();
    fs::write(scene.dir(2).join("file"), "old").unwrap();
    let (sender, mut receivers) = scene.start_all("file", &[]);
    sender.ends_with(&["receiver 2: ", "file exists", "--force"]);
    receivers.remove(1).ends_with(&["file exists", "--force"]);
    receivers
        .remove(0)
        .ends_with(&["given up", "receiver 2: ", "file exists"]);
    assert!(scene.names_in(1).is_empty());
    assert_eq!(fs::read(scene.dir(2).join("file")).unwrap(), b"old");

    let receivers = [scene.receiver(1, &[]), scene.receiver(2, &["--force"])];
    scene.sender("file", &[]).ends_well();
    receivers
        .into_iter()
        .for_each(|receiver| receiver.ends_well());
    for rank in scene.ranks() {
        assert_eq!(fs::read(scene.dir(rank).join("file")).unwrap(), b"new");
        assert_eq!(scene.names_in(rank), ["file"]);
    }
}

#[test]
fn what_cannot_be_sent_is_an_error_before_anybody_is_waited_for() {
    let scene = Scene::new(1);
    fs::create_dir(scene.dir(0).join("tree")).unwrap();
    let socket = scene.dir(0).join("tree/socket");
    let _socket = std::os::unix::net::UnixListener::bind(socket).unwrap();
    scene
        .sender("tree", &[])
        .ends_with(&["tree/socket: this is a socket"]);
    scene
        .sender("nothing", &[])
        .ends_with(&["nothing: No such file or directory"]);
}
