// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer that lies. A user's VQP on node 0 is connected to an address of the attacker's,
//! who gets its requests, tokens and all, and answers them with anything: other lengths,
//! other PSNs, all statuses, twice, in trains, in fragments. Each request has to end once,
//! and nothing may land but in the memory that a request named.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::{syscall, SYS_setresuid};
use weft_core::dc::wire::{
    self, Destination, Kind, Message, Packet as Decoded, Receiver, Request, Response, Status,
    REQUEST_BYTES,
};
use weft_core::dc::WINDOW;
use weft_core::uapi::WcStatus;
use weft_shim::{Device, Listener, MemoryRegion, Remote, SendWr, Vqp, VqpConfig, Wc};
use weft_testkit::pace::patient;

use super::grammar::{Packet, Target, STATUSES};
use super::network::{in_namespace, Sender, FRAGMENT_UNIT};
use crate::rng::Rng;
use crate::world::{full_access, system};

/// The liar's address: node 2's namespace has it, but no RDMA device.
const ADDRESS: [u8; 4] = [10, 77, 0, 77];
/// Where its victim is told of it.
const PORT: u32 = 902;
/// The victim's user.
const USER: u32 = 65_534;
/// Bytes of a request's memory, and around it.
const LONGEST: usize = 20_000;
const MARGIN: usize = 256;
const PLACE: usize = LONGEST + 2 * MARGIN;
/// Requests in a batch, at most.
const BATCH: usize = 6;
/// What is in memory before, and what a liar's answers put there.
const BLANK: u8 = 0x5a;
const LIE: u8 = 0xa5;
/// Rounds at least.
const ROUNDS: u64 = 400;
/// A request ends by then, whatever its peer says: receivers are waited for two seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the victim waits for an answer before the liar is looked after.
const GLANCE: Duration = Duration::from_millis(1);

/// How the victim's requests have ended.
pub type Ends = BTreeMap<String, u64>;

/// How they end, sooner or later, with such a peer.
pub const EXPECTED: [WcStatus; 7] = [
    WcStatus::Success,
    WcStatus::WrFlushErr,
    WcStatus::RemInvReqErr,
    WcStatus::RemAccessErr,
    WcStatus::RemOpErr,
    WcStatus::RetryExcErr,
    WcStatus::RemAbortErr,
];

/// The peer.
struct Liar {
    socket: UdpSocket,
    raw: Sender,
    /// The victim's node.
    to: Target,
    /// What it calls itself.
    name: Destination,
    /// Requests that it was sent last.
    heard: VecDeque<Request>,
    rng: Rng,
}

impl Liar {
    fn new(to: Target, seed: u64) -> Result<Self> {
        let address = Ipv4Addr::from(ADDRESS);
        system(&format!("ip -n n2 address replace {address}/32 dev lo"))?;
        let bind = || {
            let socket = UdpSocket::bind(SocketAddrV4::new(address, to.port))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        Ok(Self {
            socket: in_namespace("n2", bind)?,
            raw: Sender::new()?,
            to,
            name: Destination::default(),
            heard: VecDeque::new(),
            rng: Rng::new(seed),
        })
    }

    /// Sends the victim a message from someone it has not met, so that it can connect.
    fn introduce_itself(&mut self) -> Result<()> {
        self.name = Destination {
            dct_number: self.rng.next() as u32,
            dct_key: self.rng.next(),
            incarnation: self.rng.next() as u32,
        };
        let header = Request {
            kind: Kind::Send,
            stream: 1,
            token: self.rng.next(),
            psn: 0,
            destination: self.to.destination,
            flow: 1 + self.rng.below(1000) as u32,
            remote_addr: 0,
            rkey: 0,
            len: 0,
        };
        let message = Message {
            total: 0,
            imm: None,
            to: Receiver::Port(PORT),
            sender: self.name,
        };
        self.say([&header.encode()[..], &message.encode()].concat(), false)
    }

    /// Answers what has come.
    fn answer_all(&mut self) -> Result<()> {
        let mut packet = vec![0; 1 << 16];
        while let Ok(len) = self.socket.recv(&mut packet) {
            let mut frames = Vec::new();
            let mut rest = &packet[..len];
            while let Some(Decoded::Request(request)) = wire::decode(rest) {
                if self.heard.len() == WINDOW {
                    self.heard.pop_front();
                }
                self.heard.push_back(request);
                frames.extend(self.lie(&request)?);
                let end = REQUEST_BYTES + request.payload_bytes();
                rest = rest.get(end..).unwrap_or(&[]);
            }
            let (together, many) = (self.rng.below(2) == 0, self.rng.below(12) == 0);
            if many {
                // Longer than the network carries in one packet.
                let longer = frames.iter().cycle().take(40 * frames.len());
                frames = longer.cloned().collect();
            }
            let packets = if together {
                vec![frames.concat()]
            } else {
                frames
            };
            for packet in packets {
                let in_pieces = self.rng.below(6) == 0;
                self.say(packet, in_pieces)?;
            }
        }
        Ok(())
    }

    /// Frames that answer a request, or do not.
    fn lie(&mut self, request: &Request) -> Result<Vec<Vec<u8>>> {
        let wanted = match request.kind {
            Kind::Read | Kind::CompareSwap | Kind::FetchAdd => request.len,
            _ => 0,
        };
        let truth = Response {
            len: wanted,
            ..Response::to(request, Status::Ok)
        };
        let any = self.rng.next() as u32;
        let other = self.rng.below(self.heard.len());
        let older = self.heard.get(other).copied().unwrap_or(*request);
        let mut response = truth;
        match self.rng.below(32) {
            0..=18 => {}
            19..=21 => response.status = STATUSES[any as usize % STATUSES.len()],
            22 => response.len = [0, 1, 4096, 4097, 1 << 20, u32::MAX, any][any as usize % 7],
            23 => response.len = wanted.wrapping_add(any % 17).wrapping_sub(8),
            24 => {
                response.psn = truth
                    .psn
                    .wrapping_add([1, 63, 64, 1 << 31][any as usize % 4])
            }
            25 => response.psn = truth.psn.wrapping_sub(1 + any % 70),
            26 => response.token ^= 1 << (any % 64),
            27 => response.stream ^= 1 << (any % 32),
            28 => return Ok(Vec::new()),
            29 => return Ok(vec![frame(truth, wanted); 2]),
            30 => {
                response = Response {
                    len: wanted,
                    ..Response::to(&older, truth.status)
                }
            }
            _ => {
                // Alone: in a train its bytes would be the next frame.
                self.say(frame(truth, any % (wanted + 1)), false)?;
                return Ok(Vec::new());
            }
        }
        Ok(vec![frame(response, response.len.min(6000))])
    }

    /// Sends a packet: by the kernel, which cuts it if it is too long, or in pieces.
    fn say(&mut self, payload: Vec<u8>, in_pieces: bool) -> Result<()> {
        let (to, port) = (self.to.addr, self.to.port);
        let longest = 60_000.min(payload.len());
        if !in_pieces {
            let to = SocketAddrV4::new(to.into(), port);
            self.socket.send_to(&payload[..longest], to)?;
            return Ok(());
        }
        let units = 1 + self.rng.below(40) + longest / 400;
        self.raw.send(&Packet {
            kind: "lie",
            from: (ADDRESS, port),
            to: (to, port),
            payload: payload[..longest].to_vec(),
            fragment: Some(units * FRAGMENT_UNIT),
        });
        Ok(())
    }
}

/// A response with so many bytes behind it.
fn frame(header: Response, bytes: u32) -> Vec<u8> {
    let mut frame = header.encode().to_vec();
    frame.resize(frame.len() + bytes as usize, LIE);
    frame
}

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
        let posted = self.listener.post_recv(&[weft_shim::RecvWr::empty()]);
        ensure!(posted == 1, "a receive buffer was not taken");
        let deadline = Instant::now() + patient(PATIENCE);
        let mut messages = [weft_shim::Message::default()];
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
        if !ends.contains_key(&format!("{status:?}")) {
            bail!("no request ended with {status:?}");
        }
    }
    Ok(())
}
