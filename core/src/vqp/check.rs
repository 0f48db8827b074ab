// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Looks at the form of requests. What their keys allow is for the memory table.

use crate::dc::OpKind;
use crate::uapi::{
    RecvWr, Run, SendWr, Sge, WcStatus, MAX_INLINE, MAX_MSG_BYTES, MAX_RECV_SGE, MAX_SGE, OP_CAS,
    OP_FAA, OP_READ, OP_SEND, OP_SEND_WITH_IMM, OP_WRITE, OP_WRITE_WITH_IMM, SEND_FENCE,
    SEND_INLINE, SEND_PRIVATE, SEND_SIGNALED,
};

/// Bytes that an atomic operation changes.
pub const ATOMIC_BYTES: u32 = 8;

/// Flags that any request may have.
const ANY_FLAGS: u8 = SEND_FENCE | SEND_SIGNALED | SEND_PRIVATE;

/// What an opcode stands for.
struct Form {
    atomic: bool,
    /// It names memory of the peer.
    remote: bool,
    with_imm: bool,
    /// Its bytes may be in the request.
    inline: bool,
}

const fn form(opcode: u8) -> Option<Form> {
    let (atomic, remote, with_imm, inline) = match opcode {
        OP_READ => (false, true, false, false),
        OP_WRITE => (false, true, false, true),
        OP_WRITE_WITH_IMM => (false, true, true, true),
        OP_SEND => (false, false, false, true),
        OP_SEND_WITH_IMM => (false, false, true, true),
        OP_CAS | OP_FAA => (true, true, false, false),
        _ => return None,
    };
    Some(Form {
        atomic,
        remote,
        with_imm,
        inline,
    })
}

/// Looks at a request's form, and answers its bytes.
///
/// # Errors
///
/// The status that the request completes with.
#[inline]
pub fn check(wr: &SendWr) -> Result<u32, WcStatus> {
    match plain(wr) {
        Some(len) => Ok(len),
        None => check_any(wr),
    }
}

/// The bytes of a well-formed READ or WRITE of one piece, by a short way: most
/// requests are such.
#[inline]
fn plain(wr: &SendWr) -> Option<u32> {
    let is_plain = matches!(wr.opcode, OP_READ | OP_WRITE)
        && wr.num_sge == 1
        && wr.flags & !ANY_FLAGS == 0
        && wr.imm | wr.inline_len == 0
        && wr.reserved == 0;
    if !is_plain {
        return None;
    }
    let sge = wr.sge(0);
    fits(sge, wr.remote_addr).then_some(sge.len)
}

/// Whether a piece is not too long, and wraps neither here nor at the peer.
#[inline]
fn fits(sge: Sge, remote_addr: u64) -> bool {
    let bytes = u64::from(sge.len);
    sge.len <= MAX_MSG_BYTES
        && sge.addr.checked_add(bytes).is_some()
        && remote_addr.checked_add(bytes).is_some()
}

/// Looks at the form of a request that takes the short way: what it does; `None` if
/// it is not for that way.
#[inline]
#[must_use]
pub fn check_run(run: &Run) -> Option<OpKind> {
    const READ: u32 = OP_READ as u32;
    const WRITE: u32 = OP_WRITE as u32;
    let kind = match run.opcode {
        READ => OpKind::Read,
        WRITE => OpKind::Write,
        _ => return None,
    };
    (run.local.len != 0 && fits(run.local, run.remote_addr)).then_some(kind)
}

#[inline(never)]
fn check_any(wr: &SendWr) -> Result<u32, WcStatus> {
    let form = form(wr.opcode).ok_or(WcStatus::LocQpOpErr)?;
    let is_inline = wr.flags & SEND_INLINE != 0;
    let operands = wr.opcode == OP_FAA && wr.operands().1 != 0;
    let local = if is_inline {
        !form.inline || wr.num_sge != 0 || wr.inline_len > MAX_INLINE
    } else {
        wr.num_sge as usize > MAX_SGE || wr.inline_len != 0
    };
    let peer = !form.remote && (wr.remote_addr != 0 || wr.rkey != 0);
    let unknown = wr.flags & !(ANY_FLAGS | SEND_INLINE) != 0 || wr.reserved != 0;
    if unknown || operands || local || peer || (wr.imm != 0 && !form.with_imm) {
        return Err(WcStatus::LocQpOpErr);
    }
    let len = length(wr).ok_or(WcStatus::LocLenErr)?;
    if form.atomic && (len != ATOMIC_BYTES || wr.num_sge != 1) {
        return Err(WcStatus::LocLenErr);
    }
    if form.atomic && wr.remote_addr % u64::from(ATOMIC_BYTES) != 0 {
        return Err(WcStatus::RemInvReqErr);
    }
    check_ranges((0..usize::from(wr.num_sge)).map(|i| wr.sge(i)))?;
    if wr.remote_addr.checked_add(u64::from(len)).is_none() {
        return Err(WcStatus::RemAccessErr);
    }
    Ok(len)
}

/// Bytes that a request moves; `None` if that is more than it may.
#[inline]
fn length(wr: &SendWr) -> Option<u32> {
    if wr.flags & SEND_INLINE != 0 {
        return Some(wr.inline_len);
    }
    let sges = (0..usize::from(wr.num_sge).min(MAX_SGE)).map(|i| wr.sge(i));
    sum(sges)
}

/// Looks at a receive buffer's form, and answers its bytes.
///
/// # Errors
///
/// The status that it completes with.
pub fn check_recv(wr: &RecvWr) -> Result<u32, WcStatus> {
    let sges = wr.sges.get(..wr.num_sge as usize);
    let sges = sges.filter(|_| wr.reserved == 0 && wr.num_sge as usize <= MAX_RECV_SGE);
    let sges = sges.ok_or(WcStatus::LocQpOpErr)?;
    check_ranges(sges.iter().copied())?;
    sum(sges.iter().copied()).ok_or(WcStatus::LocLenErr)
}

fn check_ranges(mut sges: impl Iterator<Item = Sge>) -> Result<(), WcStatus> {
    let fits = sges.all(|sge| sge.addr.checked_add(u64::from(sge.len)).is_some());
    fits.then_some(()).ok_or(WcStatus::LocProtErr)
}

fn sum(mut sges: impl Iterator<Item = Sge>) -> Option<u32> {
    let total = sges.try_fold(0u32, |total, sge| total.checked_add(sge.len))?;
    (total <= MAX_MSG_BYTES).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uapi::Pod;
    use proptest::prelude::*;

    fn sge(addr: u64, len: u32) -> Sge {
        Sge { addr, len, lkey: 1 }
    }

    /// A request with pieces of these lengths.
    fn request(opcode: u8, lens: &[u32]) -> SendWr {
        let mut wr = SendWr {
            opcode,
            num_sge: lens.len() as u16,
            ..SendWr::zeroed()
        };
        for (i, len) in lens.iter().enumerate() {
            wr.set_sge(i, sge(0x1000, *len));
        }
        wr
    }

    fn with_operands(mut wr: SendWr, compare_add: u64, swap: u64) -> SendWr {
        wr.set_operands(compare_add, swap);
        wr
    }

    fn inline(opcode: u8, len: u32) -> SendWr {
        SendWr {
            opcode,
            flags: SEND_INLINE,
            inline_len: len,
            ..SendWr::zeroed()
        }
    }

    #[test]
    fn well_formed_requests_pass() {
        for opcode in [
            OP_READ,
            OP_WRITE,
            OP_WRITE_WITH_IMM,
            OP_SEND,
            OP_SEND_WITH_IMM,
        ] {
            for lens in [&[][..], &[0], &[8], &[1, 2, 3, 4, 5]] {
                let bytes = lens.iter().sum();
                assert_eq!(
                    check(&request(opcode, lens)),
                    Ok(bytes),
                    "{opcode} {lens:?}"
                );
            }
        }
        for opcode in [OP_CAS, OP_FAA] {
            assert_eq!(check(&request(opcode, &[8])), Ok(8));
        }
        for opcode in [OP_WRITE, OP_WRITE_WITH_IMM, OP_SEND, OP_SEND_WITH_IMM] {
            assert_eq!(check(&inline(opcode, 0)), Ok(0));
            assert_eq!(check(&inline(opcode, MAX_INLINE)), Ok(MAX_INLINE));
        }
        let mut wr = request(OP_SEND_WITH_IMM, &[8]);
        (wr.imm, wr.flags) = (7, SEND_SIGNALED | SEND_FENCE);
        assert_eq!(check(&wr), Ok(8));
        let fenced = SendWr {
            flags: SEND_FENCE,
            ..request(OP_WRITE, &[8])
        };
        assert_eq!(plain(&fenced), Some(8));
    }

    #[test]
    fn malformed_requests_name_what_is_wrong() {
        use WcStatus::{LocLenErr, LocProtErr, LocQpOpErr, RemAccessErr, RemInvReqErr};
        let write = request(OP_WRITE, &[8]);
        let mut wild = write;
        wild.set_sge(0, sge(u64::MAX, 8));
        let cases = [
            (
                SendWr {
                    opcode: 77,
                    ..write
                },
                LocQpOpErr,
            ),
            (
                SendWr {
                    flags: 0x40,
                    ..write
                },
                LocQpOpErr,
            ),
            (
                SendWr {
                    num_sge: 6,
                    ..write
                },
                LocQpOpErr,
            ),
            (
                SendWr {
                    num_sge: u16::MAX,
                    ..write
                },
                LocQpOpErr,
            ),
            (SendWr { imm: 1, ..write }, LocQpOpErr),
            (
                SendWr {
                    reserved: 1,
                    ..write
                },
                LocQpOpErr,
            ),
            (
                SendWr {
                    inline_len: 1,
                    ..write
                },
                LocQpOpErr,
            ),
            (
                SendWr {
                    rkey: 1,
                    ..request(OP_SEND, &[8])
                },
                LocQpOpErr,
            ),
            (
                SendWr {
                    remote_addr: 1,
                    ..request(OP_SEND, &[8])
                },
                LocQpOpErr,
            ),
            (
                SendWr {
                    num_sge: 1,
                    ..inline(OP_SEND, 8)
                },
                LocQpOpErr,
            ),
            (with_operands(request(OP_FAA, &[8]), 0, 1), LocQpOpErr),
            (inline(OP_SEND, MAX_INLINE + 1), LocQpOpErr),
            (inline(OP_READ, 8), LocQpOpErr),
            (inline(OP_CAS, 8), LocQpOpErr),
            (request(OP_WRITE, &[u32::MAX]), LocLenErr),
            (request(OP_WRITE, &[u32::MAX, 1]), LocLenErr),
            (request(OP_CAS, &[4]), LocLenErr),
            (request(OP_CAS, &[4, 4]), LocLenErr),
            (request(OP_FAA, &[]), LocLenErr),
            (wild, LocProtErr),
            (
                SendWr {
                    remote_addr: 4,
                    ..request(OP_FAA, &[8])
                },
                RemInvReqErr,
            ),
            (
                SendWr {
                    remote_addr: u64::MAX - 3,
                    ..write
                },
                RemAccessErr,
            ),
        ];
        for (wr, status) in cases {
            assert_eq!(check(&wr), Err(status), "{wr:?}");
        }
    }

    #[test]
    fn a_receive_buffer_is_judged_too() {
        let mut wr = RecvWr {
            num_sge: 2,
            ..RecvWr::zeroed()
        };
        wr.sges[0] = sge(0x1000, 100);
        wr.sges[1] = sge(0x3000, 28);
        assert_eq!(check_recv(&wr), Ok(128));
        assert_eq!(check_recv(&RecvWr { num_sge: 0, ..wr }), Ok(0));
        assert_eq!(
            check_recv(&RecvWr { num_sge: 4, ..wr }),
            Err(WcStatus::LocQpOpErr)
        );
        assert_eq!(
            check_recv(&RecvWr { reserved: 1, ..wr }),
            Err(WcStatus::LocQpOpErr)
        );
        wr.sges[0].len = u32::MAX;
        assert_eq!(check_recv(&wr), Err(WcStatus::LocLenErr));
        wr.sges[0].addr = u64::MAX;
        assert_eq!(check_recv(&wr), Err(WcStatus::LocProtErr));
    }

    fn with_piece(opcode: u8, piece: Sge) -> SendWr {
        let mut wr = request(opcode, &[0]);
        wr.set_sge(0, piece);
        wr
    }

    /// READs and WRITEs of one piece, half of them with something that may not be.
    fn nearly_plain() -> impl Strategy<Value = SendWr> {
        let edge = |last: u64| prop_oneof![0u64..9, last - 8..=last, 0..=last];
        let plain = (
            prop::sample::select(&[OP_READ, OP_WRITE][..]),
            any::<bool>(),
            edge(u64::from(MAX_MSG_BYTES) + 8),
            edge(u64::MAX),
            edge(u64::MAX),
        );
        let plain = plain.prop_map(|(opcode, signaled, len, addr, remote_addr)| SendWr {
            flags: if signaled { SEND_SIGNALED } else { 0 },
            remote_addr,
            ..with_piece(opcode, sge(addr, len as u32))
        });
        (plain, 0u8..14, 1u8..).prop_map(|(mut wr, what, value)| {
            match what {
                0 => wr.opcode = value,
                1 => wr.flags |= value,
                2 => wr.num_sge = u16::from(value),
                3 => wr.imm = u32::from(value),
                4 => wr.inline_len = u32::from(value),
                5 => wr.reserved = u64::from(value),
                _ => {}
            }
            wr
        })
    }

    proptest! {
        /// The short way is taken for all that it is for, and is no other way.
        #[test]
        fn the_short_way_says_what_the_long_one_does(wr in nearly_plain()) {
            let long = check_any(&wr);
            match plain(&wr) {
                Some(bytes) => prop_assert_eq!(long, Ok(bytes)),
                None => {
                    let is_for_it = wr.num_sge == 1 && matches!(wr.opcode, OP_READ | OP_WRITE);
                    prop_assert!(long.is_err() || !is_for_it);
                }
            }
        }

        /// What may be run directly is what the ring would take.
        #[test]
        fn a_run_is_a_request_of_one_piece(wr in nearly_plain()) {
            let run = Run {
                opcode: wr.opcode.into(),
                remote_addr: wr.remote_addr,
                local: wr.sge(0),
                ..Run::zeroed()
            };
            let by_ring = check_any(&SendWr {
                remote_addr: wr.remote_addr,
                ..with_piece(wr.opcode, wr.sge(0))
            });
            let expected = match (wr.opcode, by_ring) {
                (OP_READ, Ok(1..)) => Some(OpKind::Read),
                (OP_WRITE, Ok(1..)) => Some(OpKind::Write),
                _ => None,
            };
            prop_assert_eq!(check_run(&run), expected);
        }

        /// Whatever passes has a length that its pieces can carry.
        #[test]
        fn any_bytes_are_judged(
            head in prop::array::uniform32(any::<u8>()),
            rest in prop::collection::vec(any::<u8>(), 96),
            opcode in prop::option::of(0u8..8),
            num_sge in 0u16..7,
        ) {
            let mut wr = SendWr::zeroed();
            wr.as_bytes_mut()[..32].copy_from_slice(&head);
            wr.as_bytes_mut()[32..].copy_from_slice(&rest);
            wr.opcode = opcode.unwrap_or(wr.opcode);
            wr.num_sge = num_sge;
            prop_assert_eq!(check(&wr), check_any(&wr));
            if let Ok(bytes) = check(&wr) {
                prop_assert!(bytes <= MAX_MSG_BYTES);
                prop_assert!(usize::from(wr.num_sge) <= MAX_SGE);
            }
            let mut recv = RecvWr::zeroed();
            recv.as_bytes_mut().copy_from_slice(&rest[..64]);
            recv.num_sge %= 5;
            let _ = check_recv(&recv);
        }
    }
}
