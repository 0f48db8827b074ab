// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attempts, and how each of them ends.
//!
//! The first rows are allowed: they show that the keys are right and that what
//! refuses the others is what they lack.

use anyhow::Result;
use nix::errno::Errno::{EACCES, EADDRINUSE, EBADF, EFAULT, EINVAL, ENODEV, ENOENT, EPERM};
use weft_core::uapi::WcStatus::{LocProtErr, RemAccessErr, RemInvReqErr, Success};

use super::attacker::Outcome::{self, Errno, Said, Status};
use super::attacker::{Stage, Who};
use super::scene::Scene;
use super::users::ROOT;
use super::victim::Part::{self, Counters, Elsewhere, Readable, Secret, Stale, Windowed, Writable};
use super::victim::LEN;
use super::{exhaust, floods, forged, guesses, handles, member, messages};
use super::{registration, rings, several, shared, unprivileged};
use Attempt::{Astray, In, Local, Other, Peer};
use Verb::{Cas, Faa, Read, Write};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    Write,
    Cas,
    Faa,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 4] = [Read, Write, Cas, Faa];
}

/// What is tried.
#[derive(Clone, Copy)]
pub enum Attempt {
    /// A peer's request by a part's key, at an offset into it, of so many bytes.
    Peer(Verb, Part, i64, usize),
    /// A peer's request by a part's key, at an address that is not the part's.
    Astray(Verb, Part, u64, usize),
    /// A request of the attacker's own with the part as its local memory.
    Local(Verb, Part),
    /// Anything else.
    Other(fn(&mut Stage) -> Result<Outcome>),
    /// The same while something is prepared for it.
    In(Scene, fn(&mut Stage) -> Result<Outcome>),
}

/// One row.
pub struct Row {
    pub name: &'static str,
    pub attempt: Attempt,
    pub expected: Outcome,
}

macro_rules! attempts {
    ($($name:literal: $attempt:expr => $expected:expr;)*) => {
        &[$(Row { name: $name, attempt: $attempt, expected: $expected },)*]
    };
}

const END: i64 = LEN as i64;
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;

/// What every attacker tries.
const TABLE: &[Row] = attempts! {
    // What the rights allow.
    "READ of what is for READs":                       Peer(Read, Readable, 0, 64)              => Status(Success);
    "READ of its last bytes":                          Peer(Read, Readable, END - 8, 8)         => Status(Success);
    "WRITE to what is for WRITEs":                     Peer(Write, Writable, 0, 8)              => Status(Success);
    "fetch-and-add to what is for atomics":            Peer(Faa, Counters, 0, 8)                => Status(Success);
    "READ of no bytes, which needs no right":          Peer(Read, Secret, 0, 0)                 => Status(Success);
    "WRITE of no bytes, which needs no right":         Peer(Write, Secret, 0, 0)                => Status(Success);

    // Rights that a region lacks.
    "READ of what is the victim's alone":              Peer(Read, Secret, 64, 8)                => Status(RemAccessErr);
    "WRITE to what is the victim's alone":             Peer(Write, Secret, 64, 8)               => Status(RemAccessErr);
    "compare-and-swap in what is the victim's alone":  Peer(Cas, Secret, 64, 8)                 => Status(RemAccessErr);
    "fetch-and-add to what is the victim's alone":     Peer(Faa, Secret, 64, 8)                 => Status(RemAccessErr);
    "WRITE to what is for READs":                      Peer(Write, Readable, 64, 8)             => Status(RemAccessErr);
    "compare-and-swap in what is for READs":           Peer(Cas, Readable, 64, 8)               => Status(RemAccessErr);
    "fetch-and-add to what is for READs":              Peer(Faa, Readable, 64, 8)               => Status(RemAccessErr);
    "READ of what is for WRITEs":                      Peer(Read, Writable, 64, 8)              => Status(RemAccessErr);
    "compare-and-swap in what is for WRITEs":          Peer(Cas, Writable, 64, 8)               => Status(RemAccessErr);
    "fetch-and-add to what is for WRITEs":             Peer(Faa, Writable, 64, 8)               => Status(RemAccessErr);
    "READ of what is for atomics":                     Peer(Read, Counters, 64, 8)              => Status(RemAccessErr);
    "WRITE to what is for atomics":                    Peer(Write, Counters, 64, 8)             => Status(RemAccessErr);

    // Ranges.
    "READ of a byte before the region":                Peer(Read, Readable, -1, 1)              => Status(RemAccessErr);
    "READ across the region's start":                  Peer(Read, Readable, -8, 16)             => Status(RemAccessErr);
    "READ across the region's end":                    Peer(Read, Readable, END - 8, 16)        => Status(RemAccessErr);
    "READ of a byte behind the region":                Peer(Read, Readable, END, 1)             => Status(RemAccessErr);
    "READ of the page behind the region":              Peer(Read, Readable, END, 4096)          => Status(RemAccessErr);
    "WRITE of a byte before the region":               Peer(Write, Writable, -1, 1)             => Status(RemAccessErr);
    "WRITE across the region's start":                 Peer(Write, Writable, -64, 128)          => Status(RemAccessErr);
    "WRITE across the region's end":                   Peer(Write, Writable, END - 8, 16)       => Status(RemAccessErr);
    "WRITE of a byte behind the region":               Peer(Write, Writable, END, 1)            => Status(RemAccessErr);
    "fetch-and-add before the region":                 Peer(Faa, Counters, -8, 8)               => Status(RemAccessErr);
    "fetch-and-add behind the region":                 Peer(Faa, Counters, END, 8)              => Status(RemAccessErr);
    "fetch-and-add across two words":                  Peer(Faa, Counters, 68, 8)               => Status(RemInvReqErr);
    "compare-and-swap across the region's end":        Peer(Cas, Counters, END - 4, 8)          => Status(RemInvReqErr);
    "READ at address 0":                               Astray(Read, Readable, 0, 8)             => Status(RemAccessErr);
    "READ that wraps around":                          Astray(Read, Readable, u64::MAX - 3, 8)  => Status(RemAccessErr);
    "READ that ends where addresses end":              Astray(Read, Readable, u64::MAX - 7, 8)  => Status(RemAccessErr);
    "WRITE that wraps around":                         Astray(Write, Writable, u64::MAX - 3, 8) => Status(RemAccessErr);
    "READ of the kernel's memory":                     Astray(Read, Readable, DIRECT_MAP, 8)    => Status(RemAccessErr);
    "WRITE to the kernel's memory":                    Astray(Write, Writable, DIRECT_MAP, 8)   => Status(RemAccessErr);
    "fetch-and-add to the kernel's memory":            Astray(Faa, Counters, DIRECT_MAP, 8)     => Status(RemAccessErr);
    "READ of the vsyscall page":                       Astray(Read, Readable, VSYSCALL, 8)      => Status(RemAccessErr);
    "READ of one region by another's key":             Other(guesses::secret_by_readable_key)   => Status(RemAccessErr);

    // A window for READs, in the middle of a region that is the victim's alone.
    "READ by a window's key":                          Peer(Read, Windowed, 0, 64)              => Status(Success);
    "READ of a window's last bytes":                   Peer(Read, Windowed, END - 8, 8)         => Status(Success);
    "READ of a byte before the window":                Peer(Read, Windowed, -1, 1)              => Status(RemAccessErr);
    "READ across the window's end":                    Peer(Read, Windowed, END - 8, 16)        => Status(RemAccessErr);
    "WRITE by the key of a window for READs":          Peer(Write, Windowed, 64, 8)             => Status(RemAccessErr);
    "fetch-and-add by its key":                        Peer(Faa, Windowed, 64, 8)               => Status(RemAccessErr);
    "READ by the key of the window's region":          Other(guesses::region_of_window)         => Status(RemAccessErr);
    "READ into the window's region":                   Local(Read, Windowed)                    => Status(LocProtErr);

    // Keys that are no longer, or of another node.
    "READ by a key that has gone":                     Peer(Read, Stale, 64, 8)                 => Status(RemAccessErr);
    "WRITE by a key that has gone":                    Peer(Write, Stale, 64, 8)                => Status(RemAccessErr);
    "fetch-and-add by a key that has gone":            Peer(Faa, Stale, 64, 8)                  => Status(RemAccessErr);
    "READ by a key of the other node":                 Peer(Read, Elsewhere, 64, 8)             => Status(RemAccessErr);
    "WRITE by a key of the other node":                Peer(Write, Elsewhere, 64, 8)            => Status(RemAccessErr);
    "compare-and-swap by a key of the other node":     Peer(Cas, Elsewhere, 64, 8)              => Status(RemAccessErr);

    // Keys that nobody told.
    "READs by the neighbours of its keys":             Other(guesses::neighbours)               => Status(RemAccessErr);
    "READs by hundreds of random keys":                Other(guesses::random_reads)             => Status(RemAccessErr);
    "WRITEs by hundreds of random keys":               Other(guesses::random_writes)            => Status(RemAccessErr);

    // The victim's memory as the attacker's own.
    "WRITE out of what is the victim's alone":         Local(Write, Secret)                     => Status(LocProtErr);
    "READ into what is the victim's alone":            Local(Read, Secret)                      => Status(LocProtErr);
    "compare-and-swap with a result in it":            Local(Cas, Secret)                       => Status(LocProtErr);
    "fetch-and-add with a result in it":               Local(Faa, Secret)                       => Status(LocProtErr);
    "WRITE out of what is for READs":                  Local(Write, Readable)                   => Status(LocProtErr);
    "READ into what is for WRITEs":                    Local(Read, Writable)                    => Status(LocProtErr);
    "fetch-and-add with a result in the counters":     Local(Faa, Counters)                     => Status(LocProtErr);
    "WRITE out of what has gone":                      Local(Write, Stale)                      => Status(LocProtErr);
    "READ into what has gone":                         Local(Read, Stale)                       => Status(LocProtErr);
    "WRITE out of what is on the other node":          Local(Write, Elsewhere)                  => Status(LocProtErr);
    "READ into what is on the other node":             Local(Read, Elsewhere)                   => Status(LocProtErr);
    "all of it with its own other session's memory":   Other(Stage::of_second_session)          => Status(LocProtErr);

    // Handles.
    "destroying the victim's VQPs":                    Other(handles::destroy)                  => Errno(EBADF);
    "connecting the victim's VQPs":                    Other(handles::connect)                  => Errno(EBADF);
    "running requests on the victim's VQPs":           Other(handles::run)                      => Errno(EBADF);
    "destroying VQPs with the same handles":           Other(handles::destroy_own)              => Said("its own");
    "deregistering the victim's regions":              Other(handles::deregister)               => Errno(ENOENT);
    "binding windows to the victim's regions":         Other(handles::bind_windows)             => Errno(ENOENT);
    "deregistering the regions of a second session":   Other(handles::deregister_second)        => Errno(ENOENT);

    // Rings, VQPs and peers that requests and calls name.
    "destroying the victim's rings":                   Other(shared::destroy_rings)             => Errno(EBADF);
    "VQPs that complete to the victim's rings":        Other(shared::complete_to)               => Errno(EBADF);
    "VQPs that receive from the victim's rings":       Other(shared::receive_from)              => Errno(EBADF);
    "entering the victim's rings":                     Other(shared::enter)                     => Errno(EBADF);
    "submitting from the victim's rings":              Other(shared::submit_from)               => Errno(EBADF);
    "waiting for what comes to the victim's rings":    Other(shared::wait_for)                  => Errno(EBADF);
    "requests that name the victim's VQPs":            Other(shared::name_vqps)                 => Errno(EBADF);
    "requests to the victim's peers":                  Other(shared::name_peers)                => Errno(EBADF);
    "closing the victim's peers":                      Other(shared::close_peers)               => Errno(EBADF);

    // Rings.
    "mapping rings by any offset":                     Other(rings::anywhere)                   => Errno(EBADF);
    "mapping from the midst of rings":                 Other(rings::between)                    => Errno(EINVAL);
    "mapping from where the victim's rings are":       Other(rings::same_place)                 => Said("its own");
    "what is in new rings":                            Other(rings::leftovers)                  => Said("zeroes");
    "mapping more than the rings":                     Other(rings::longer)                     => Errno(EFAULT);
    "registering rings that go":                       Other(rings::registered)                 => Said("nobody's");

    // Messages.
    "a message to its port":                           Other(messages::one)                     => Status(Success);
    "messages longer than its buffers":                Other(messages::too_long)                => Status(RemInvReqErr);
    "messages out of the victim's memory":             Other(messages::gather)                  => Status(LocProtErr);
    "an immediate and a WRITE to what is for WRITEs":  Other(messages::allowed_imm)             => Status(Success);
    "an immediate and a WRITE to what is not":         Other(messages::bad_imm)                 => Status(RemAccessErr);
    "messages of its own into the victim's memory":    Other(messages::receive_into)            => Status(LocProtErr);
    "accepting by the victim's handles":               Other(messages::accept_by_foreign)       => Errno(EBADF);
    "accepting by handles that are not bound":         Other(messages::accept_by_unbound)       => Errno(EINVAL);
    "accepting senders that only others know":         Other(messages::accept_unheard)          => Errno(ENOENT);
    "accepting others than its own sender":            Other(messages::accept_others)           => Errno(ENOENT);

    // Registration of what is not the attacker's.
    "registering the victim's addresses":              Other(registration::victims)             => Errno(EFAULT);
    "registering its own memory at these addresses":   Other(registration::own_at_victims)      => Said("its own bytes");
    "registering the kernel's memory":                 Other(registration::kernel)              => Errno(EFAULT);
    "registering memory that wraps around":            Other(registration::wrapping)            => Errno(EINVAL);
    "registering the vsyscall page":                   Other(registration::vsyscall)            => Errno(EFAULT);
    "registering the vDSO for writing":                Other(registration::vdso)                => Errno(EFAULT);
    "registering the kernel's clock page for writing": Other(registration::vvar)                => Errno(EFAULT);
    "registering the program's code for writing":      Other(registration::code)                => Errno(EFAULT);
    "registering a read-only file for writing":        Other(registration::file_shared)         => Errno(EFAULT);
    "the same, mapped privately":                      Other(registration::file_private)        => Errno(EFAULT);
    "the same for peers alone":                        Other(registration::file_for_peers)      => Errno(EINVAL);
    "READ into a read-only file that is registered":   Other(registration::read_into_file)      => Status(LocProtErr);
    "fetch-and-add with its result in that file":      Other(registration::add_into_file)       => Status(LocProtErr);
    "WRITE by a peer to that file":                    Other(registration::write_to_file)       => Status(RemAccessErr);
    "WRITE by a peer to a private copy of a file":     Other(registration::private_copy)        => Said("its own copy");
    "registering read-only memory for writing":        Other(registration::read_only)           => Errno(EFAULT);
    "registering memory without any access":           Other(registration::no_access)           => Errno(EFAULT);

    // Packets that no module has sent.
    "a WRITE in a packet of its own":                  Other(forged::write)                     => Said("Stale");
    "READs in packets with guessed DC keys":           Other(forged::guessed_reads)             => Said("Stale");
    "messages to flows and ports in packets":          Other(forged::messages)                  => Said("Stale");
    "answers to the requests of others":               Other(forged::answers)                   => Said("no effect");
    "the end of others' streams":                      Other(forged::closes)                    => Said("no effect");
    "notices that regions of a peer are gone":         Other(member::notices)                   => Said("no effect");
    "READs that are repeated with another length":     Other(member::repeated_reads)            => Said("no effect");
    "offers of RC queue pairs in a peer's name":       In(Scene::Offers, member::offers)        => Said("no effect");
    "as many contexts as another address gets":        In(Scene::Contexts, member::contexts)    => Said("no effect");
    "the node's UDP port":                             Other(forged::bind)                      => Errno(EADDRINUSE);

    // As much as it can get.
    "hundreds of requests that fail, all at once":     Other(exhaust::failures)                 => Status(RemAccessErr);
    "requests that fill the stream for long":          Other(exhaust::stream)                   => Said("posted");
    "messages to its port without a pause":            Other(floods::port)                      => Said("posted");
    "messages of more senders than it tells apart":    Other(floods::senders)                   => Said("posted");
    "messages to its port that has no buffers":        Other(floods::deaf)                      => Said("posted");
};

/// What an attacker without privileges tries as well.
const UNPRIVILEGED: &[Row] = attempts! {
    "adding a meta server without CAP_NET_ADMIN":      Other(unprivileged::meta_add)            => Errno(EPERM);
    "removing a meta server":                          Other(unprivileged::meta_remove)         => Errno(EPERM);
    "emptying the DCCache":                            Other(unprivileged::flush)               => Errno(EPERM);
    "adding a meta server as root of a namespace":     Other(unprivileged::meta_add_as_root)    => Errno(EPERM);
    "emptying the DCCache as root of a namespace":     Other(unprivileged::flush_as_root)       => Errno(EPERM);
    "changing and showing the pool without CAP_NET_ADMIN": Other(unprivileged::pool)               => Errno(EPERM);
    "the same as root of a namespace":                 Other(unprivileged::pool_as_root)        => Errno(EPERM);
    "a session in a namespace without a node":         Other(unprivileged::session_in_empty)    => Errno(ENODEV);
    "a session on a node of another namespace":        Other(unprivileged::foreign_node)        => Errno(ENODEV);
    "a session on its node from another namespace":    Other(unprivileged::own_node_from_empty) => Errno(ENODEV);
    "reading the module's counters":                   Other(unprivileged::debugfs)             => Errno(EACCES);
    "changing the module's parameters":                Other(unprivileged::parameters)          => Errno(EACCES);
    "offers with a wrong identity, without a pause":    In(Scene::Newcomer, member::flood_of_offers) => Said("sent");
    "opening the victim's memory":                     Other(unprivileged::proc_mem)            => Errno(EACCES);
};

/// What an attacker on the victim's node tries as well: to take what there is of
/// that node. What counts is the user, wherever it opens the node from.
const BESIDE: &[Row] = attempts! {
    "binding the victim's ports":                      Other(messages::bind)                    => Errno(EADDRINUSE);
    "as many regions as there are":                    Other(exhaust::regions)                  => Said("registered");
    "as many windows as a user gets":                  Other(exhaust::windows)                  => Said("bound");
    "as many VQPs as a hundred sessions get":          Other(exhaust::vqps)                     => Said("made");
    "as many VQPs on one ring as a user gets":         Other(exhaust::light_vqps)               => Said("made");
    "as many open peers as a user gets":               Other(exhaust::peers)                    => Said("opened");
    "as many rings as three sessions get":             Other(exhaust::rings)                    => Said("made");
    "messages to a port of its own without buffers":   Other(floods::own_deaf)                  => Said("posted");
    "as many streams as there are":                    Other(floods::streams)                   => Said("made");
    "as many receivers as there are":                  Other(floods::names)                     => Said("made");
    // With CAP_NET_ADMIN, which UNPRIVILEGED shows to be needed.
    "pinning, where it may, a dead peer before another": In(Scene::NodeDown, member::dead_peer) => Said("pinned");
    "being, where it may, a meta server for a region":   In(Scene::Rc, member::meta_server)     => Said("no region");
};

/// What an attacker who may be any user tries on the victim's node: to fill with
/// several users what one of them cannot fill.
const SEVERAL: &[Row] = attempts! {
    "as many regions as five users get":               Other(several::regions)                  => Said("registered");
    "a VQP for each of thousands of users":            Other(several::users)                    => Said("made");
};

/// The rows that this attacker tries, with their numbers.
pub fn rows(who: &Who) -> impl Iterator<Item = (usize, &'static Row)> {
    let (unprivileged, beside) = (who.uid != ROOT, who.node == 0);
    all().filter_map(move |(index, tries, row)| match tries {
        Tries::All => Some((index, row)),
        Tries::Unprivileged => unprivileged.then_some((index, row)),
        Tries::Beside => beside.then_some((index, row)),
        Tries::Several => (beside && !unprivileged).then_some((index, row)),
    })
}

/// The row with this number.
pub fn row(index: usize) -> Option<&'static Row> {
    all().nth(index).map(|(_, _, row)| row)
}

/// Who tries a row.
enum Tries {
    All,
    Unprivileged,
    Beside,
    Several,
}

fn all() -> impl Iterator<Item = (usize, Tries, &'static Row)> {
    let everybodys = TABLE.iter().map(|row| (Tries::All, row));
    let unprivileged = UNPRIVILEGED.iter().map(|row| (Tries::Unprivileged, row));
    let beside = BESIDE.iter().map(|row| (Tries::Beside, row));
    let several = SEVERAL.iter().map(|row| (Tries::Several, row));
    let chain = everybodys.chain(unprivileged).chain(beside).chain(several);
    chain
        .enumerate()
        .map(|(index, (tries, row))| (index, tries, row))
}
