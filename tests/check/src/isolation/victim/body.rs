// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the victim has and does.

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::ACCESS_LOCAL_WRITE;
use weft_shim::{Device, MemoryRegion};

use super::super::users::with_reserve;
use super::mailbox::{Mailbox, DEAF_PORT, PORT};
use super::peers::Peers;
use super::{Part, Place, Told, DOORMAT, LEN, PARTS};
use crate::raw::{Memory, Queue, Session};
use crate::rng::Rng;
use crate::traffic::{Traffic, SLICE};
use crate::world::{full_access, gid};

const VQPS: u8 = 4;
const PAGE: usize = 4096;

/// A part with what lies around it, and what should be there.
struct Guarded {
    part: Part,
    memory: Memory,
    model: Vec<u8>,
}

/// A VQP that is not used, with what is in its rings.
struct Idle {
    queue: Queue,
    model: Vec<u8>,
}

/// Data that goes to a node and back.
struct Lane {
    to: u8,
    device: Device,
    region: MemoryRegion,
    traffic: Option<Traffic>,
}

/// The victim.
pub(super) struct Body {
    near: Session,
    _far: Session,
    told: Told,
    guarded: Vec<Guarded>,
    idle: Vec<Idle>,
    lanes: Vec<Lane>,
    mailbox: Mailbox,
    peers: Peers,
    /// To register and deregister.
    spare: Memory,
    seed: u64,
    noticed: Vec<String>,
}

impl Body {
    pub(super) fn new(seed: u64) -> Result<Self> {
        let (near, far) = (Session::open(0)?, with_reserve(|| Session::open(1))?);
        let mut rng = Rng::new(seed);
        let (mut guarded, mut places) = (Vec::new(), Vec::new());
        for (part, node, access) in PARTS {
            let own = Guarded::new(part, &mut rng)?;
            let session = if node == 0 { &near } else { &far };
            places.push(register(session, &own.memory, part, access)?);
            guarded.push(own);
        }
        let idle = (0..VQPS)
            .map(|n| Idle::new(&near, n % 2, &mut rng))
            .collect::<Result<Vec<_>>>()?;
        let (mailbox, peers) = (Mailbox::new(seed)?, Peers::new()?);
        let handles = idle.iter().map(|idle| idle.queue.said.of_rings.rings);
        let ring_handles = handles.chain([peers.rings()]).collect();
        let rings = idle.iter().map(|idle| &idle.queue.said);
        let told = Told {
            pid: std::process::id(),
            vqps: rings.clone().map(|said| said.vqp).collect(),
            rings: rings
                .map(|said| (said.map_offset, said.ring_bytes))
                .collect(),
            ring_handles,
            peers: peers.handles.clone(),
            ports: [PORT, DEAF_PORT],
            src: mailbox.src,
            places,
        };
        let lanes = vec![Lane::new(0)?, Lane::new(1)?];
        Ok(Self {
            near,
            _far: far,
            told,
            guarded,
            idle,
            lanes,
            mailbox,
            peers,
            spare: Memory::map(PAGE)?,
            seed,
            noticed: Vec::new(),
        })
    }

    pub(super) fn told(&self) -> Told {
        self.told.clone()
    }

    pub(super) fn take_noticed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.noticed)
    }

    /// Looks at everything, does everything once.
    pub(super) fn round(&mut self) {
        for own in &self.guarded {
            let looked = own.look();
            if looked.is_err() {
                own.restore();
            }
            note(&mut self.noticed, looked);
        }
        for lane in &mut self.lanes {
            let exchanged = lane
                .exchange(self.seed)
                .with_context(|| format!("traffic with node {}", lane.to));
            note(&mut self.noticed, exchanged);
        }
        let talked = self.mailbox.round();
        note(&mut self.noticed, talked);
        let written = self.peers.round();
        note(&mut self.noticed, written);
        let untouched = self.idle.iter().try_for_each(Idle::look);
        note(&mut self.noticed, untouched);
        let kept = self.handles_are_kept();
        note(&mut self.noticed, kept);
        let managed = self.makes_more();
        note(&mut self.noticed, managed);
    }

    /// A VQP that was destroyed is no longer known, one that was made anew is no
    /// longer connected.
    fn handles_are_kept(&self) -> Result<()> {
        for vqp in &self.told.vqps {
            let answer = self.near.qconnect(*vqp, gid(1));
            ensure!(
                answer == Err(Errno::EISCONN),
                "connecting VQP {vqp} again: {answer:?}"
            );
        }
        Ok(())
    }

    /// There is room for what an ordinary process wants.
    fn makes_more(&self) -> Result<()> {
        let reg = self.near.register(&self.spare, 0, PAGE as u64, 1);
        let lkey = reg.context("registering a page")?.lkey;
        self.near.deregister(lkey).context("deregistering it")?;
        let vqp = self.near.describe_vqp(16, 16).context("making a VQP")?.vqp;
        self.near.qconnect(vqp, gid(1)).context("connecting it")?;
        self.near.destroy_vqp(vqp).context("destroying it")
    }
}

/// Makes a part known to peers.
fn register(session: &Session, memory: &Memory, part: Part, access: u32) -> Result<Place> {
    let len = LEN as u64;
    if part == Part::Windowed {
        let region = session.register(memory, 0, 3 * len, ACCESS_LOCAL_WRITE)?;
        let window = session.bind_window(&region, len, len, access)?;
        return Ok(Place {
            addr: window.addr,
            lkey: region.lkey,
            rkey: window.rkey,
        });
    }
    let region = session.register(memory, len, len, access)?;
    if part == Part::Stale {
        session.deregister(region.lkey)?;
    }
    Ok(Place {
        addr: region.addr,
        lkey: region.lkey,
        rkey: region.rkey,
    })
}

fn note(noticed: &mut Vec<String>, outcome: Result<()>) {
    if let Err(error) = outcome {
        noticed.push(format!("{error:#}"));
    }
}

impl Guarded {
    fn new(part: Part, rng: &mut Rng) -> Result<Self> {
        let this = Self {
            part,
            memory: Memory::map(3 * LEN)?,
            model: rng.bytes(3 * LEN),
        };
        this.restore();
        Ok(this)
    }

    fn restore(&self) {
        self.memory.fill(0, &self.model);
    }

    fn look(&self) -> Result<()> {
        let may_change = match self.part {
            Part::Writable | Part::Counters => LEN..LEN + DOORMAT,
            _ => 0..0,
        };
        let bytes = self.memory.bytes(0, 3 * LEN);
        let wrong =
            (0..3 * LEN).find(|at| bytes[*at] != self.model[*at] && !may_change.contains(at));
        if let Some(at) = wrong {
            bail!(
                "byte {} of {:?} has changed",
                at as i64 - LEN as i64,
                self.part
            );
        }
        Ok(())
    }
}

impl Idle {
    fn new(session: &Session, to: u8, rng: &mut Rng) -> Result<Self> {
        let queue = session.queue(16, 0)?;
        session.qconnect(queue.vqp, gid(to))?;
        let (at, bytes) = (
            queue.said.sq_offset as usize,
            queue.said.ring_bytes as usize,
        );
        queue.rings.fill(at, &rng.bytes(bytes - at));
        let model = queue.rings.bytes(0, bytes);
        Ok(Self { queue, model })
    }

    fn look(&self) -> Result<()> {
        let now = self.queue.rings.bytes(0, self.model.len());
        ensure!(
            now == self.model,
            "the rings of VQP {} have changed",
            self.queue.vqp
        );
        Ok(())
    }
}

impl Lane {
    fn new(to: u8) -> Result<Self> {
        let device = Device::open_on(0)?;
        let far = with_reserve(|| Device::open_on(u32::from(to)))?;
        let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
        Ok(Self {
            to,
            device,
            region,
            traffic: None,
        })
    }

    /// A batch; after an error the next one is on a new VQP.
    fn exchange(&mut self, seed: u64) -> Result<()> {
        let mut traffic = match self.traffic.take() {
            Some(traffic) => traffic,
            None => Traffic::new(&self.device, self.to, self.region.remote(), seed)?,
        };
        traffic.patient_round()?;
        self.traffic = Some(traffic);
        Ok(())
    }
}
