// SPDX-License-Identifier: GPL-2.0

//! Messages on their way into a receiver's buffer. Their bytes go from the packet
//! straight to where the receiver wants them, whatever their length: there is no
//! buffer of the kernel's in between that announcing and reading (krcore §4.5) could
//! save.

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::cut;
use weft_core::dc::wire::{Kind, Message, Receiver, Status};
use weft_core::uapi::{RecvWr, WcStatus};
use weft_core::vqp::check_recv;

use crate::dc::frames::Frame;
use crate::dc::receivers::Receivers;
use crate::dc::slot::TargetContext;
use crate::mem::{Access, MrTable};
use crate::net::{Bearer, Endpoint};
use crate::sync::BhDisabled;

/// A message's description for its receiver.
pub(crate) struct Arrival {
    /// Its header.
    pub(crate) message: Message,
    /// The sender's node.
    pub(crate) from: Endpoint,
    /// The sender there.
    pub(crate) flow: u32,
    /// It is the immediate of a WRITE.
    pub(crate) is_write: bool,
}

/// Gets messages. Called in softirqs, under the lock of a set of contexts.
pub(crate) trait Receives: Send + Sync + 'static {
    /// The session whose memory its buffers are in.
    fn owner(&self) -> u64;

    /// Whether it takes messages from there.
    fn admits(&self, arrival: &Arrival) -> bool;

    /// Its next receive buffer, if there is one; [`Receives::received`] follows.
    fn claim(&self) -> Option<RecvWr>;

    /// Whether bytes may land in a buffer that was claimed; then, once they have,
    /// [`Receives::landed`] follows.
    fn lands(&self) -> bool;

    /// Bytes have landed, or could not.
    fn landed(&self);

    /// Tells how a buffer that was claimed has ended.
    fn received(&self, buffer: &RecvWr, arrival: &Arrival, status: WcStatus);

    /// There will be no messages any more.
    fn node_gone(&self);
}

/// A message of which not all chunks are there. When it is dropped its buffer goes
/// back to the receiver.
pub(super) struct Incoming<R: Receives> {
    receiver: Arc<R>,
    buffer: RecvWr,
    arrival: Arrival,
    /// Bytes that are there.
    got: u32,
    /// How it has ended.
    status: WcStatus,
}

impl<R: Receives> Drop for Incoming<R> {
    fn drop(&mut self) {
        self.receiver
            .received(&self.buffer, &self.arrival, self.status);
    }
}

impl<R: Receives> Incoming<R> {
    /// A buffer for the message that `request` begins, or is the immediate of.
    fn begin(
        receivers: &Receivers<R>,
        frame: &Frame<'_>,
        message: Message,
    ) -> Result<Self, Status> {
        let arrival = Arrival {
            message,
            from: frame.from,
            flow: frame.request.flow,
            is_write: frame.request.kind == Kind::WriteImm,
        };
        let receiver = receivers.find(message.to).ok_or(Status::NoReceiver)?;
        if !receiver.admits(&arrival) {
            return Err(Status::NoReceiver);
        }
        let buffer = receiver.claim().ok_or(Status::NotReady)?;
        Ok(Self {
            receiver,
            buffer,
            arrival,
            got: 0,
            // Until it is there: the sender went away in the middle.
            status: WcStatus::RemAbortErr,
        })
    }

    /// Ends it with an error for the receiver, and answers that for the sender.
    fn refuse(mut self, status: WcStatus, answer: Status) -> Status {
        self.status = status;
        answer
    }

    /// Puts a chunk where it belongs; answers whether it was the last.
    fn land(&mut self, bh: &BhDisabled, mrs: &MrTable, frame: &Frame<'_>) -> bool {
        let (mut from, len) = (frame.bytes_at, frame.request.len);
        let sges = self.buffer.sges.get(..self.buffer.num_sge as usize);
        for sge in cut(sges.unwrap_or(&[]), self.got, len) {
            let owner = self.receiver.owner();
            let piece = mrs.find(bh, sge.lkey, owner, sge.addr, sge.len, Access::LocalWrite);
            if !piece.is_some_and(|piece| piece.write(frame.packet, from, sge.len)) {
                self.status = WcStatus::LocProtErr;
                return false;
            }
            from += sge.len;
        }
        self.got += len;
        true
    }
}

/// Takes a chunk of a message; `pending` is the message of this stream that is not
/// all there.
pub(super) fn take_chunk<B: Bearer, R: Receives>(
    pending: &mut Option<Incoming<R>>,
    target: &TargetContext<'_, B, R>,
    bh: &BhDisabled,
    frame: &Frame<'_>,
) -> Result<(), Status> {
    let request = &frame.request;
    let Some(message) = frame.message else {
        // It failed at its sender: the rest of a message that has begun will not come.
        drop(pending.take_if(|incoming| incoming.arrival.flow == request.flow));
        return Err(Status::Invalid);
    };
    if message.to == Receiver::Node {
        let control = frame.control_message().ok_or(Status::Invalid)?;
        let taken = message.total == request.len && target.inbox.put(control);
        return taken.then_some(()).ok_or(Status::NotReady);
    }
    let end = request.remote_addr.checked_add(u64::from(request.len));
    if end.is_none_or(|end| end > u64::from(message.total)) {
        return Err(Status::Invalid);
    }
    if request.remote_addr == 0 {
        // The message before it will never end.
        *pending = None;
        let incoming = Incoming::begin(target.receivers, frame, message)?;
        let incoming = match check_recv(&incoming.buffer) {
            Ok(room) if room >= message.total => incoming,
            Ok(_) => return Err(incoming.refuse(WcStatus::LocLenErr, Status::Invalid)),
            Err(status) => return Err(incoming.refuse(status, Status::Operation)),
        };
        *pending = Some(incoming);
    }
    let mut incoming = pending.take().ok_or(Status::Invalid)?;
    let continues = incoming.arrival.flow == request.flow
        && incoming.arrival.message == message
        && u64::from(incoming.got) == request.remote_addr;
    if !continues {
        return Err(Status::Invalid);
    }
    if !incoming.receiver.lands() {
        return Err(Status::NoReceiver);
    }
    let landed = incoming.land(bh, target.mrs, frame);
    incoming.receiver.landed();
    if !landed {
        return Err(Status::Operation);
    }
    if incoming.got == message.total {
        incoming.status = WcStatus::Success;
    } else {
        *pending = Some(incoming);
    }
    Ok(())
}

/// Takes the last chunk of a WRITE with an immediate: `write` puts the bytes in
/// place once a buffer for the immediate is there.
pub(super) fn take_immediate<R: Receives>(
    receivers: &Receivers<R>,
    frame: &Frame<'_>,
    write: impl FnOnce() -> Result<(), Status>,
) -> Result<(), Status> {
    let message = frame.message.ok_or(Status::Invalid)?;
    let mut incoming = Incoming::begin(receivers, frame, message)?;
    match write() {
        Ok(()) => incoming.status = WcStatus::Success,
        Err(status) => return Err(incoming.refuse(WcStatus::RemOpErr, status)),
    }
    Ok(())
}
