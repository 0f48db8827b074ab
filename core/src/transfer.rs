// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How a virtual queue pair in use changes what carries its requests, and how a queue pair
//! that nobody needs is closed (krcore §4.6).
//!
//! **A move** keeps requests in order without a word to the peer: one that comes while
//! earlier ones are on the old way is held until they have passed ([`Hold`]), and then goes
//! the new way. The paper waits for one request more that it posts behind them; here every
//! request is counted until it has ended, which says the same. Messages have to reach their
//! receiver in order too, which is why the paper asks the peer first: here all messages go by
//! DC.
//!
//! From RC to DC it takes a READ too, behind the WRITEs: an adapter may acknowledge a WRITE
//! before it has written (IBTA vol. 1, chapter 9, on acknowledgements), and what comes by DC
//! does not pass that adapter's way to memory. A READ that has ended has seen the WRITEs before
//! it (9.5).
//!
//! **A close** is agreed on ([`Close`]), because a queue pair that goes while the peer has
//! requests on it breaks them:
//!
//! ```text
//! asks:    nothing more is posted; what is there ends;  ── close ──>  likewise
//!          <── closed ── both let go
//! ```
//!
//! Messages may get lost, be repeated or come late; whoever does not know the connection any
//! more says that it is closed.

/// How long a request is held while none of the earlier ones ends: they may be those of a
/// peer that is gone, and others must not wait for that.
pub const SILENCE_NS: u64 = 4_000_000;
/// How long it is held at most.
pub const LONGEST_HOLD_NS: u64 = 100_000_000;
/// After a hold that came to nothing the next one waits for so many times what it took.
const PAUSE_TIMES: u64 = 20;

/// A virtual queue pair whose next request is wanted another way than the last ones went.
#[derive(Clone, Copy, Debug)]
pub struct Crossing {
    /// None of its requests is under way.
    pub is_idle: bool,
    /// The way that it leaves can prove that what it has written is in place.
    pub gives_proof: bool,
    /// It has left RC for a request that cannot go by it, and the pool has decided nothing
    /// since.
    pub has_left: bool,
    /// No request is held before then ([`Held::GiveUp`]).
    pub held_until_ns: u64,
}

/// The way that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The old way.
    Stay,
    /// The new way, once those before it have passed and what they have written is proven to be
    /// in place; the old way if that takes too long.
    Hold,
    /// The new way.
    Go,
}

impl Crossing {
    /// The way that the next request takes.
    #[must_use]
    pub const fn course(&self, now_ns: u64) -> Course {
        if self.has_left && !self.is_idle {
            // More of the kind that cannot go by RC may follow.
            return Course::Stay;
        }
        if self.is_idle && !self.gives_proof {
            return Course::Go;
        }
        match now_ns < self.held_until_ns {
            true => Course::Stay,
            false => Course::Hold,
        }
    }
}

/// A request is held until those before it have passed.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    begun_ns: u64,
    /// Those that have not, and when that was last another number.
    under_way: u32,
    moved_ns: u64,
}

/// What a hold says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// All have passed: the next request may go the new way.
    Passed,
    /// Wait, at most so long.
    Wait(u64),
    /// It takes too long: the request goes the old way, and no other is held until then.
    GiveUp(u64),
}

impl Hold {
    /// A request comes while so many others are under way.
    #[must_use]
    pub fn new(under_way: u32, now_ns: u64) -> Self {
        Self {
            begun_ns: now_ns,
            under_way,
            moved_ns: now_ns,
        }
    }

    /// So many are under way now.
    pub fn look(&mut self, under_way: u32, now_ns: u64) -> Held {
        if under_way == 0 {
            return Held::Passed;
        }
        if under_way != self.under_way {
            self.under_way = under_way;
            self.moved_ns = now_ns;
        }
        let silent_until_ns = self.moved_ns.saturating_add(SILENCE_NS);
        let until_ns = silent_until_ns.min(self.begun_ns.saturating_add(LONGEST_HOLD_NS));
        if now_ns < until_ns {
            return Held::Wait(until_ns - now_ns);
        }
        let held_ns = now_ns.saturating_sub(self.begun_ns);
        Held::GiveUp(now_ns.saturating_add(held_ns.saturating_mul(PAUSE_TIMES)))
    }
}

/// How often the peer is asked.
const ASK_NS: u64 = 100_000_000;
/// How long nothing may be heard of requests that are under way at either end: longer than one
/// piece of a request takes.
const PATIENCE_NS: u64 = 3_000_000_000;

/// What is to be done next to close a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseStep {
    /// Nothing before then.
    Wait(u64),
    /// Ask the peer.
    Ask,
    /// Tell the peer, who has asked, that requests of this end are still under way.
    TellBusy,
    /// Tell the peer that it is closed, and let go.
    Answer,
    /// Let go.
    End,
}

/// The closing of a queue pair, at one of its ends. From the start on that end posts nothing
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Close {
    /// When it began, or requests were last heard of.
    heard_ns: u64,
    /// Requests of this end that had ended then, over the wrap of numbers.
    ended: u32,
    asked_ns: Option<u64>,
    /// The peer has asked: it has nothing under way.
    was_asked: bool,
    /// It has asked again, and is to be told that this end has.
    owes_word: bool,
    is_agreed: bool,
}

impl Close {
    /// This end wants to.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self {
            heard_ns: now_ns,
            ended: 0,
            asked_ns: None,
            was_asked: false,
            owes_word: false,
            is_agreed: false,
        }
    }

    /// The peer asks.
    pub fn asked(&mut self) {
        self.was_asked = true;
        self.owes_word = true;
    }

    /// The peer, which was asked, says that requests of its are still under way.
    pub fn peer_is_busy(&mut self, now_ns: u64) {
        self.heard_ns = self.heard_ns.max(now_ns);
    }

    /// The peer says that it is closed.
    pub fn agreed(&mut self) {
        // Before it was asked that is about another one.
        self.is_agreed |= self.asked_ns.is_some();
    }

    /// The next thing to do. `is_idle`: nothing that this end has posted is under way; `ended`
    /// counts what was, over the wrap of numbers.
    pub fn step(&mut self, is_idle: bool, ended: u32, now_ns: u64) -> CloseStep {
        if self.ended != ended {
            (self.ended, self.heard_ns) = (ended, now_ns);
        }
        if now_ns.saturating_sub(self.heard_ns) >= PATIENCE_NS {
            // The peer is gone, or the device has forgotten requests.
            return CloseStep::End;
        }
        if !is_idle {
            return match core::mem::take(&mut self.owes_word) {
                true => CloseStep::TellBusy,
                false => CloseStep::Wait(now_ns.saturating_add(1_000_000)),
            };
        }
        if self.was_asked {
            return CloseStep::Answer;
        }
        if self.is_agreed {
            return CloseStep::End;
        }
        let next_ns = self
            .asked_ns
            .map_or(0, |asked_ns| asked_ns.saturating_add(ASK_NS));
        if now_ns < next_ns {
            return CloseStep::Wait(next_ns);
        }
        self.asked_ns = Some(now_ns);
        CloseStep::Ask
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
