// SPDX-License-Identifier: MIT OR Apache-2.0

//! A user on node 0 whose peer lies. Each of its requests has to end once, and nothing may
//! land but in the memory that a request named.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::{syscall, SYS_setresuid};
use weft_core::uapi::WcStatus;
use weft_shim::{
    Device, Listener, MemoryRegion, Message, RecvWr, Remote, SendWr, Vqp, VqpConfig, Wc,
};
use weft_testkit::pace::patient;

use super::grammar::Target;
use super::liar::{Liar, LIE};
use crate::rng::Rng;
use crate::world::full_access;

/// Where the liar introduces itself.
pub const PORT: u32 = 902;
/// The victim's user.
const USER: u32 = 65_534;
/// Bytes of a request's memory, and around it.
const LONGEST: usize = 20_000;
const MARGIN: usize = 256;
const PLACE: usize = LONGEST + 2 * MARGIN;
/// Requests in a batch, at most.
const BATCH: usize = 6;
/// What is in memory before.
const BLANK: u8 = 0x5a;
/// Rounds at least.
const ROUNDS: u64 = 400;
/// A request ends by then, whatever its peer says: receivers are waited for two seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the victim waits for an answer before the liar is looked after.
const GLANCE: Duration = Duration::from_millis(1);

/// How the victim's requests have ended.
pub type Ends = BTreeMap<String, u64>;

/// How they end, sooner or later, with such a peer.
const EXPECTED: [WcStatus; 7] = [
    WcStatus::Success,
    WcStatus::WrFlushErr,
    WcStatus::RemInvReqErr,
    WcStatus::RemAccessErr,
    WcStatus::RemOpErr,
    WcStatus::RetryExcErr,
    WcStatus::RemAbortErr,
];

/// The user whose peer it is.
struct Victim {
    listener: Listener,
    local: MemoryRegion,
    rng: Rng,
    ends: Ends,
}

/// One request's memory, and whether it is to be overwritten.
struct Place {
    at: usize,
    len: usize,
    fetches: bool,
    /// Which of the requests that do so it is.
    kind: usize,
}

impl Victim {
    fn new(seed: u64) -> Result<Self> {
        let device = Device::open_on(0)?;
        let config = VqpConfig {
            max_send_wr: 64,
            max_recv_wr: 16,
        };
        Ok(Self {
            listener: Vqp::create(&device, &config)?.bind(PORT)?,
            local: MemoryRegion::allocate(&device, BATCH * PLACE, full_access())?,
            rng: Rng::new(seed ^ 1),
            ends: Ends::new(),
        })
    }

    /// A VQP to the liar, who introduces itself.
    fn connect(&mut self, liar: &mut Liar) -> Result<Vqp> {
        let posted = self.listener.post_recv(&[RecvWr::empty()]);
        ensure!(posted == 1, "a receive buffer was not taken");
        let deadline = Instant::now() + patient(PATIENCE);
        let mut messages = [Message::default()];
        loop {
            liar.introduce_itself()?;
            if self
                .listener
                .pop_msgs(&mut messages, 1, patient(GLANCE * 100))?
                == 1
            {
                break;
            }
            ensure!(Instant::now() < deadline, "no message from the liar");
        }
        let sender = messages[0].sender().context("a message without a sender")?;
        let config = VqpConfig {
            max_send_wr: 64,
            max_recv_wr: 0,
        };
        Ok(self.listener.accept(sender, &config)?)
    }

    /// Posts a batch and sees how it ends; answers whether the VQP can go on.
    fn round(&mut self, vqp: &mut Vqp, liar: &mut Liar) -> Result<bool> {
        self.local.copy_in(0, &[BLANK; BATCH * PLACE])?;
        let count = 1 + self.rng.below(BATCH);
        let places: Vec<_> = (0..count).map(|n| self.place(n)).collect();
        let mut wrs = Vec::new();
        for (n, place) in places.iter().enumerate() {
            wrs.push(self.request(place)?.signaled().wr_id(n as u64));
        }
        let mut ends = vec![None; count];
        let (mut posted, mut ended) = (0, 0);
        let deadline = Instant::now() + patient(PATIENCE);
        while ended < count {
            let mut wcs = [Wc::default(); BATCH];
            let progress = vqp.enter(&wrs[posted..], &mut wcs, 1, GLANCE)?;
            posted += progress.submitted;
            for wc in &wcs[..progress.completed] {
                let end = ends
                    .get_mut(wc.wr_id() as usize)
                    .context("which request?")?;
                ensure!(end.is_none(), "request {} ended twice", wc.wr_id());
                *end = Some(wc.status().context("an unknown status")?);
                ended += 1;
            }
            liar.answer_all()?;
            ensure!(
                Instant::now() < deadline,
                "{ended} of {count} requests have ended"
            );
        }
        let ends: Vec<_> = ends.into_iter().flatten().collect();
        self.look(&places, &ends)?;
        for end in &ends {
            *self.ends.entry(format!("{end:?}")).or_default() += 1;
        }
        Ok(ends.iter().all(|end| *end == WcStatus::Success))
    }

    /// Where the n-th request of a batch works.
    fn place(&mut self, n: usize) -> Place {
        let len = [8, 8, 100, 1000, 4096, 4097, 9000, LONGEST][self.rng.below(8)];
        Place {
            at: n * PLACE + MARGIN,
            len,
            fetches: self.rng.below(4) != 0,
            kind: self.rng.below(3),
        }
    }

    fn request(&self, place: &Place) -> Result<SendWr<'_>> {
        let local = self.local.slice(place.at..place.at + place.len)?;
        let remote = Remote {
            addr: 4096,
            rkey: 1,
        };
        Ok(match (place.fetches, place.kind) {
            (true, 0) if place.len == 8 => SendWr::fetch_add(local, remote, 1),
            (true, 1) if place.len == 8 => SendWr::compare_swap(local, remote, 0, 1),
            (true, _) => SendWr::read(local, remote),
            (false, 0) => SendWr::write(local, remote),
            (false, 1) => SendWr::write_with_imm(local, remote, 5),
            (false, _) => SendWr::send(local),
        })
    }

    /// Nothing has landed but in the places of what fetches, and there all of it if the
    /// request has succeeded.
    fn look(&self, places: &[Place], ends: &[WcStatus]) -> Result<()> {
        let mut bytes = vec![0; BATCH * PLACE];
        self.local.copy_out(0, &mut bytes)?;
        for (place, end) in places.iter().zip(ends) {
            let range = place.at..place.at + place.len;
            let wanted = if place.fetches { LIE } else { BLANK };
            let fits = |byte: &u8| *byte == wanted || *byte == BLANK && *end != WcStatus::Success;
            let wrong = bytes[range.clone()].iter().position(|byte| !fits(byte));
            ensure!(
                wrong.is_none(),
                "{end:?}, and byte {wrong:?} of {} is wrong",
                place.len
            );
            bytes[range].fill(BLANK);
        }
        let stray = bytes.iter().position(|byte| *byte != BLANK);
        ensure!(
            stray.is_none(),
            "byte {stray:?} is no request's, and has changed"
        );
        Ok(())
    }
}

/// Runs `body` while a user's peer lies, for some rounds at least. Answers how the user's
/// requests ended.
pub fn beside_liar(to: Target, seed: u64, body: impl FnOnce() -> Result<()>) -> Result<Ends> {
    let mut liar = Liar::new(to, seed)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let victim = scope.spawn(|| be_victim(&mut liar, seed, &stop));
        let outcome = body();
        stop.store(true, Ordering::Relaxed);
        let ends = victim.join().map_err(|_| anyhow!("it panicked"))??;
        outcome.map(|()| ends)
    })
}

fn be_victim(liar: &mut Liar, seed: u64, stop: &AtomicBool) -> Result<Ends> {
    become_user()?;
    let mut victim = Victim::new(seed)?;
    let mut vqp = None;
    let mut rounds = 0;
    while rounds < ROUNDS || !stop.load(Ordering::Relaxed) {
        let mut connected = match vqp.take() {
            Some(vqp) => vqp,
            None => victim.connect(liar)?,
        };
        let goes_on = victim
            .round(&mut connected, liar)
            .with_context(|| format!("with a peer that lies, round {rounds}"))?;
        vqp = goes_on.then_some(connected);
        rounds += 1;
    }
    println!(
        "# with a peer that lies, in {rounds} rounds: {:?}",
        victim.ends
    );
    Ok(victim.ends)
}

/// Makes this thread another user's; the C library would change all threads.
fn become_user() -> Result<()> {
    // SAFETY: no memory is involved.
    let done = unsafe { syscall(SYS_setresuid, USER, USER, USER) };
    Errno::result(done).context("setresuid")?;
    Ok(())
}

/// All ways in which requests should have ended.
pub fn expect_all(ends: &Ends) -> Result<()> {
    for status in EXPECTED {
        ensure!(
            ends.contains_key(&format!("{status:?}")),
            "no request ended with {status:?}"
        );
    }
    Ok(())
}
