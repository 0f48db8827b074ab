// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests that are collected and posted with one call, again and again.
//!
//! Unlike a [`Batch`](crate::Batch), which is made once, a list is refilled for
//! each post and allocates nothing. Its requests may carry words of their own,
//! read by the program when it fills the list: whatever their source becomes
//! afterwards, and however the device would have read it.

use std::ptr;

use crate::error::done;
use crate::{sys, Op, RcQp, Result, WorkRequest};

/// Requests of a list.
pub const MAX_LIST: usize = 32;
/// Words that one request may carry.
pub const MAX_LIST_WORDS: usize = 32;

const WORD: usize = size_of::<u64>();

/// A list of work requests, to be refilled.
///
/// # Invariants
///
/// `requests` and `elements` have the same length, at most [`MAX_LIST`], which
/// is their capacity. A request that is inline has its element in `words`; so
/// has an ATOMIC WRITE, of 8 bytes.
pub struct WrList {
    requests: Vec<sys::ibv_send_wr>,
    elements: Vec<sys::ibv_sge>,
    /// [`MAX_LIST_WORDS`] for each request.
    words: Box<[u64]>,
}

// SAFETY: the pointers in it are to itself, and only set while it is posted.
unsafe impl Send for WrList {}

impl std::fmt::Debug for WrList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WrList")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Default for WrList {
    fn default() -> Self {
        Self {
            requests: Vec::with_capacity(MAX_LIST),
            elements: Vec::with_capacity(MAX_LIST),
            words: vec![0; MAX_LIST * MAX_LIST_WORDS].into(),
        }
    }
}

impl WrList {
    /// Requests in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether it takes no more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() == MAX_LIST
    }

    /// Adds a request. One that is not `signaled` makes a completion only if it
    /// fails. A full list stays as it is.
    pub fn push(&mut self, request: &WorkRequest, signaled: bool) {
        if !self.is_full() {
            self.add(request.raw(ptr::null_mut(), signaled), request.element());
        }
    }

    /// Adds a WRITE to an address and a key of the peer's memory that carries its
    /// words, at most [`MAX_LIST_WORDS`] of them. The queue pair has room for them
    /// in a request (`max_inline`). A full list stays as it is.
    pub fn push_words(
        &mut self,
        wr_id: u64,
        remote: (u64, u32),
        signaled: bool,
        words: impl IntoIterator<Item = u64>,
    ) {
        if self.is_full() {
            return;
        }
        let element = self.keep(words);
        let mut raw = Self::request(wr_id, remote).raw(ptr::null_mut(), signaled);
        raw.send_flags |= sys::IBV_SEND_INLINE;
        self.add(raw, element);
    }

    /// Adds an ATOMIC WRITE of a word to an aligned address and a key of the
    /// peer's memory: whoever looks sees the old word or the new one. A full list
    /// stays as it is.
    pub fn push_atomic(&mut self, wr_id: u64, remote: (u64, u32), signaled: bool, word: u64) {
        if self.is_full() {
            return;
        }
        let element = self.keep([word]);
        let mut raw = Self::request(wr_id, remote).raw(ptr::null_mut(), signaled);
        raw.opcode = sys::IBV_WR_ATOMIC_WRITE;
        self.add(raw, element);
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.elements.clear();
    }

    /// A WRITE whose local memory is still to be said.
    fn request(wr_id: u64, (remote_addr, rkey): (u64, u32)) -> WorkRequest {
        WorkRequest {
            wr_id,
            op: Op::Write,
            local_addr: 0,
            lkey: 0,
            len: 0,
            remote_addr,
            rkey,
        }
    }

    /// Puts words into the place of the next request.
    fn keep(&mut self, words: impl IntoIterator<Item = u64>) -> sys::ibv_sge {
        let first = self.len() * MAX_LIST_WORDS;
        let place = &mut self.words[first..first + MAX_LIST_WORDS];
        let mut count = 0;
        for (to, word) in place.iter_mut().zip(words) {
            *to = word;
            count += 1;
        }
        sys::ibv_sge {
            addr: place.as_ptr().expose_provenance() as u64,
            length: (count * WORD) as u32,
            lkey: 0,
        }
    }

    fn add(&mut self, request: sys::ibv_send_wr, element: sys::ibv_sge) {
        // INVARIANT: the callers have looked whether there is room, and took the
        // element of an inline or atomic request from `keep`.
        self.requests.push(request);
        self.elements.push(element);
    }

    /// Ties each request to its element and to the next request.
    fn link(&mut self) -> *mut sys::ibv_send_wr {
        let first = self.requests.as_mut_ptr();
        let elements = self.elements.as_mut_ptr();
        let last = self.requests.len().saturating_sub(1);
        for (at, request) in self.requests.iter_mut().enumerate() {
            request.sg_list = elements.wrapping_add(at);
            request.next = match at {
                at if at == last => ptr::null_mut(),
                at => first.wrapping_add(at + 1),
            };
        }
        first
    }
}

impl RcQp {
    /// Posts all requests of a list, and empties it. An empty one does nothing.
    /// (`ibv_post_send`; `ibv_wr_start` and so on for a queue pair that does ATOMIC
    /// WRITEs)
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the queue gets full, `EINVAL` for words that do not fit into
    /// a request or an ATOMIC WRITE that the queue pair was not made for. Some
    /// requests may be posted then.
    pub fn post_list(&self, list: &mut WrList) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let answer = match self.extended() {
            Some(raw) => {
                // SAFETY: the queue pair exists and was made for these requests;
                // it is locked until `ibv_wr_complete`, which is called here too.
                let answer = unsafe { post_extended(raw, list) };
                done("ibv_wr_complete", answer)
            }
            None => {
                let first = list.link();
                let mut bad = ptr::null_mut();
                // SAFETY: the queue pair exists; the list was just linked and
                // lives through the call, which only reads it.
                let answer = unsafe { sys::ibv_post_send(self.raw(), first, &mut bad) };
                done("ibv_post_send", answer)
            }
        };
        list.clear();
        answer
    }
}

/// Posts a list by the extended calls.
///
/// # Safety
///
/// The queue pair exists, was made for all operations of [`Op`] and ATOMIC WRITE, and
/// nobody is between `ibv_wr_start` and `ibv_wr_complete` in this thread.
unsafe fn post_extended(qp: *mut sys::ibv_qp_ex, list: &WrList) -> std::ffi::c_int {
    // SAFETY: the caller's promise.
    unsafe { sys::ibv_wr_start(qp) };
    for (request, element) in list.requests.iter().zip(&list.elements) {
        // SAFETY: the pair exists, and is locked by `ibv_wr_start`.
        let pair = unsafe { &mut *qp };
        pair.wr_id = request.wr_id;
        pair.wr_flags = request.send_flags & !sys::IBV_SEND_INLINE;
        // SAFETY: atomic operations were made with these fields, which begin as
        // those of the other requests do; any bytes are valid numbers.
        let atomic = unsafe { request.wr.atomic };
        // SAFETY: as above; of a SEND they are not used.
        let remote = unsafe { request.wr.rdma };
        let data = ptr::with_exposed_provenance_mut::<std::ffi::c_void>(element.addr as usize);
        match request.opcode {
            sys::IBV_WR_ATOMIC_WRITE => {
                // SAFETY: started; the element is a word of the list (invariant).
                unsafe { sys::ibv_wr_atomic_write(qp, remote.rkey, remote.remote_addr, data) };
                continue;
            }
            sys::IBV_WR_RDMA_READ => {
                // SAFETY: started; the pair was made for READs.
                unsafe { sys::ibv_wr_rdma_read(qp, remote.rkey, remote.remote_addr) }
            }
            sys::IBV_WR_ATOMIC_CMP_AND_SWP => {
                let (compare, swap) = (atomic.compare_add, atomic.swap);
                // SAFETY: started; the pair was made for it.
                unsafe {
                    sys::ibv_wr_atomic_cmp_swp(qp, atomic.rkey, atomic.remote_addr, compare, swap);
                }
            }
            sys::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                let add = atomic.compare_add;
                // SAFETY: started; the pair was made for it.
                unsafe { sys::ibv_wr_atomic_fetch_add(qp, atomic.rkey, atomic.remote_addr, add) }
            }
            sys::IBV_WR_SEND => {
                // SAFETY: started; the pair was made for SENDs.
                unsafe { sys::ibv_wr_send(qp) }
            }
            _ => {
                // SAFETY: started; the pair was made for WRITEs.
                unsafe { sys::ibv_wr_rdma_write(qp, remote.rkey, remote.remote_addr) }
            }
        }
        if request.send_flags & sys::IBV_SEND_INLINE != 0 {
            // SAFETY: a request was begun; its element is in the list (invariant),
            // and is copied by the call.
            unsafe { sys::ibv_wr_set_inline_data(qp, data, element.length as usize) };
        } else {
            // SAFETY: a request was begun; the device checks the element.
            unsafe { sys::ibv_wr_set_sge(qp, element.lkey, element.addr, element.length) };
        }
    }
    // SAFETY: started above.
    unsafe { sys::ibv_wr_complete(qp) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_linked_and_carries_its_words() {
        let mut list = WrList::default();
        let request = WorkRequest {
            wr_id: 1,
            op: Op::Read,
            local_addr: 0x1000,
            lkey: 7,
            len: 64,
            remote_addr: 0x2000,
            rkey: 9,
        };
        list.push(&request, false);
        list.push_words(2, (0x3000, 9), false, [11, 12]);
        list.push_atomic(3, (0x4000, 9), true, 13);
        let mut at = list.link().cast_const();
        for (wr_id, addr, len, signaled) in [
            (1, Some(0x1000), 64, false),
            (2, None, 16, false),
            (3, None, 8, true),
        ] {
            // SAFETY: in the list, or the loop would have ended below.
            let raw = unsafe { &*at };
            // SAFETY: the request's element.
            let element = unsafe { &*raw.sg_list };
            assert_eq!((raw.wr_id, element.length), (wr_id, len));
            assert_eq!(addr.unwrap_or(element.addr), element.addr);
            assert_eq!(raw.send_flags & sys::IBV_SEND_SIGNALED != 0, signaled);
            at = raw.next;
        }
        assert!(at.is_null());
        assert_eq!(list.words[MAX_LIST_WORDS..][..2], [11, 12]);
        assert_eq!(list.words[2 * MAX_LIST_WORDS], 13);
    }

    #[test]
    fn a_full_list_stays_as_it_is() {
        let mut list = WrList::default();
        for word in 0..MAX_LIST as u64 + 3 {
            list.push_words(word, (0, 0), false, std::iter::repeat_n(word, 100));
        }
        assert!(list.is_full());
        assert_eq!(list.len(), MAX_LIST);
        assert!(list.elements.iter().all(|element| element.length == 256));
        list.clear();
        assert!(list.is_empty());
    }
}
