// SPDX-License-Identifier: GPL-2.0

//! The hybrid pool of a node (krcore §4.2, §4.3, §4.6): what carries the requests to each
//! peer. `weft_core::pool` decides; this is its clock, its eyes and its hands.
//!
//! A work item looks ten times a second at what was seen of the peers' traffic, and then
//! has queue pairs made and closed by [`crate::rc`] and ways changed ([`Route`]). Nobody
//! who posts waits for it, and it waits for no peer.
//!
//! Lock order: `routes`, `policy`, then those of `rc`. None is held while a peer is asked
//! for a round trip.

mod mode;
mod route;

use kernel::alloc::KVVec;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::gid::Gid;
use weft_core::pool::{Action, ByRc, Mode, TrafficView, Transport, PROBES};
use weft_core::rc::{Lane, MAX_FIRST_LINKS};
use weft_core::uapi::{self, PoolPeer, PoolTraffic, PoolUse};

use crate::array_vec::{room, ArrayVec};
use crate::boxed;
use crate::clock::now_ns;
use crate::dc::Requester;
use crate::rc::{lanes, Rc, RcQueue, MAX_WANTS};
use crate::sync::{new_periodic, Periodic, Routine};
use crate::trace;

pub(crate) use mode::{check_parameter, waits_for_queues};
pub(crate) use route::{Route, RouteUse};

/// How often the pool looks.
const LOOK_MS: u32 = 100;
/// Likewise, while no peer is busy.
const IDLE_LOOK_MS: u32 = 500;

type Policy = weft_core::pool::Pool;

/// A node's pool.
#[pin_data]
pub(crate) struct Pool<R: Requester> {
    mode: Mode,
    /// Queue pairs to a peer that this node uses, at most.
    lanes: u8,
    rc: Arc<Rc<R>>,
    /// One for each peer that is known, in the order of their GIDs.
    #[pin]
    routes: Mutex<KVVec<Arc<Route<R>>>>,
    #[pin]
    policy: Mutex<KVBox<Policy>>,
    #[pin]
    work: Periodic<Self>,
}

impl<R: Requester> Pool<R> {
    /// The pool of a node whose queue pairs `rc` makes, of a device that is software or not.
    pub(crate) fn new(rc: Arc<Rc<R>>, is_software: bool) -> Result<Arc<Self>> {
        static EMPTY: Policy = Policy::EMPTY;
        // SAFETY: numbers alone.
        let policy = unsafe { boxed::copy_of(&EMPTY, GFP_KERNEL) }?;
        Arc::pin_init(
            pin_init!(Self {
                mode: mode::mode(is_software),
                lanes: lanes(is_software),
                rc,
                routes <- kernel::new_mutex!(KVVec::new(), "weft_pool_routes"),
                policy <- kernel::new_mutex!(policy, "weft_pool"),
                work <- new_periodic!("weft_pool_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Looks no more. May sleep.
    pub(crate) fn stop(&self) {
        self.work.stop();
        let routes = core::mem::take(&mut *self.routes.lock());
        for route in &routes {
            route.clear();
        }
    }

    /// Looks at once: queue pairs have come or gone. Any context.
    pub(crate) fn hurry(&self) {
        self.work.hurry();
    }

    /// The way to a peer, for one more record of it.
    pub(crate) fn route(&self, gid: &Gid) -> Result<RouteUse<R>> {
        let known = {
            let routes = self.routes.lock();
            find(&routes, gid).map(RouteUse::new)
        };
        match known {
            Ok(route) => Ok(route),
            Err(_) => self.new_route(gid),
        }
    }

    /// Likewise, for a peer that was not known a moment ago.
    fn new_route(&self, gid: &Gid) -> Result<RouteUse<R>> {
        // Allocated, and freed if it is not needed, without the lock.
        let route = Route::new(*gid, self.lanes)?;
        let mut routes = self.routes.lock();
        let at = match find(&routes, gid) {
            Ok(route) => return Ok(RouteUse::new(route)),
            Err(at) => at,
        };
        let by_rc = self.policy.lock().carries(gid);
        if by_rc != ByRc::default() {
            self.lead(&route, self.rc.queue(gid).as_ref(), by_rc);
        }
        routes.reserve(1, GFP_KERNEL)?;
        routes
            .insert_within_capacity(at, route.clone())
            .map_err(|_| ENOMEM)?;
        let route = RouteUse::new(route);
        drop(routes);
        self.work.schedule(LOOK_MS);
        Ok(route)
    }

    /// The RC side.
    pub(crate) fn rc(&self) -> &Arc<Rc<R>> {
        &self.rc
    }

    /// Keeps an RC queue pair to a peer, and has requests take it.
    ///
    /// # Errors
    ///
    /// Those of [`Rc::pin`]; `ENOSPC`.
    pub(crate) fn pin(&self, gid: &Gid) -> Result {
        self.rc.pin(gid)?;
        if !self.policy.lock().pin(gid, true, now_ns()) {
            let _ = self.rc.unpin(gid);
            return Err(ENOSPC);
        }
        self.hurry();
        Ok(())
    }

    /// No longer keeps one: it is closed some seconds after its last use.
    ///
    /// # Errors
    ///
    /// `ENOENT`: none was pinned.
    pub(crate) fn unpin(&self, gid: &Gid) -> Result {
        self.rc.unpin(gid)?;
        self.policy.lock().pin(gid, false, now_ns());
        self.hurry();
        Ok(())
    }

    /// Has requests to a peer take what an administrator says, or leaves that to the pool
    /// again.
    ///
    /// # Errors
    ///
    /// Those of [`PoolUse`].
    pub(crate) fn prefer(&self, request: &PoolUse) -> Result {
        let by = match request.transport {
            uapi::POOL_USE_AUTO => None,
            uapi::POOL_USE_DC => Some(Transport::Dc),
            uapi::POOL_USE_RC => Some(Transport::Rc),
            _ => return Err(EINVAL),
        };
        self.rc.check_peer(&request.gid)?;
        if !self.policy.lock().force(&request.gid, by, now_ns()) {
            return Err(ENOSPC);
        }
        self.hurry();
        Ok(())
    }

    /// What is known of the `index`th peer, for users.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there are fewer.
    pub(crate) fn info(&self, index: u32) -> Result<PoolPeer> {
        let view = self.policy.lock().view(index as usize).ok_or(ENOENT)?;
        let age_ns = self.rc.age_ns(&view.gid);
        let vqps = {
            let routes = self.routes.lock();
            find(&routes, &view.gid).map_or(0, |route| route.users())
        };
        let flags = [
            (view.is_pinned, uapi::POOL_PINNED),
            (view.is_forced, uapi::POOL_FORCED),
            (view.requests.is_in_trial, uapi::POOL_TRIAL),
            (age_ns != 0, uapi::POOL_UP),
            (
                view.messages.uses == Transport::Rc,
                uapi::POOL_MESSAGES_BY_RC,
            ),
            (view.user.is_some(), uapi::POOL_HAS_USER),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        // There are fewer than a byte can say.
        let queue_pairs = (self.rc.lanes_up(&view.gid) as u32) << uapi::POOL_QUEUE_PAIRS_SHIFT;
        Ok(PoolPeer {
            index,
            transport: match view.requests.uses {
                Transport::Dc => uapi::POOL_USE_DC,
                Transport::Rc => uapi::POOL_USE_RC,
            },
            gid: view.gid,
            flags: set.fold(queue_pairs, |flags, (_, flag)| flags | flag),
            moves: view.requests.moves,
            requests: told(&view.requests),
            messages: told(&view.messages),
            age_ns,
            vqps,
            user: view.user.unwrap_or(0),
        })
    }

    /// Waits until there is an RC queue pair to a peer, and has requests take it
    /// (`pool=rc`). `user` asks for it.
    ///
    /// # Errors
    ///
    /// `EHOSTDOWN` (the peer does not answer), `EOPNOTSUPP` (the device cannot do it),
    /// `EINTR`.
    pub(crate) fn wait_for_queue(&self, route: &Route<R>, user: u32) -> Result {
        if let Some(queue) = self.rc.wait_for_queue(route.gid(), user)? {
            let by_rc = ByRc {
                requests: true,
                messages: true,
            };
            self.lead(route, Some(&queue), by_rc);
        }
        Ok(())
    }

    /// Has a route lead over a peer's first queue pair, and over the further ones that are up.
    fn lead(&self, route: &Route<R>, queue: Option<&Arc<RcQueue<R>>>, by_rc: ByRc) {
        let gid = *route.gid();
        route.set(queue, by_rc, |number| {
            self.rc.queue_of(&Lane { gid, number })
        });
    }

    /// Asks for further queue pairs to a peer where they would be used.
    fn want_more(&self, route: &Route<R>) {
        let gid = *route.gid();
        for number in route.needs() {
            self.rc.want_more(&Lane { gid, number });
        }
    }

    /// Takes in what was seen of the peers, and does what follows. Answers the peers to ask
    /// for a round trip, and whether any is worth looking at again soon.
    fn look(&self, probes: &mut ArrayVec<'_, Gid>) -> bool {
        let mut routes = self.routes.lock();
        let mut policy = self.policy.lock();
        let now_ns = now_ns();
        let links = |gid: &Gid| self.rc.link_state(gid);
        routes.retain(|route| !route.is_gone());
        for route in routes.iter() {
            policy.see(route.gid(), &route.meter().take(), now_ns);
            policy.see_messages(route.gid(), &route.message_meter().take(), now_ns);
        }
        let mut at = 0;
        while let Some(queue) = self.rc.nth(at) {
            policy.note_link(queue.gid(), now_ns);
            policy.see(queue.gid(), &queue.meter().take(), now_ns);
            at += 1;
        }
        let act = |gid: &Gid, action| {
            trace::pool(gid, action);
            match action {
                Action::Open => self.rc.want(gid),
                Action::Close => self.rc.close(gid),
                Action::Probe => probes.push(*gid),
                // What it uses now is known to the policy.
                Action::Use(_) | Action::UseForMessages(_) => {}
            }
        };
        policy.decide(self.mode, MAX_WANTS, links, now_ns, act);
        self.direct(&routes, &policy);
        !policy.is_empty()
    }

    /// Has each route lead where the policy says, over the queue pair that there is now.
    fn direct(&self, routes: &[Arc<Route<R>>], policy: &Policy) {
        let mut room = room::<_, MAX_FIRST_LINKS>();
        let mut by_rc = ArrayVec::new(&mut room);
        for (gid, carries) in policy.by_rc() {
            if let Some(queue) = self.rc.queue(gid) {
                by_rc.push((*gid, queue, carries));
            }
        }
        for route in routes {
            let mut ways = by_rc.as_slice().iter();
            match ways.find(|(gid, ..)| gid == route.gid()) {
                Some((_, queue, carries)) => {
                    self.lead(route, Some(queue), *carries);
                    // Messages go by the first one alone.
                    if carries.requests {
                        self.want_more(route);
                    }
                }
                None => route.clear(),
            }
        }
    }
}

/// A peer's route, or where it belongs.
fn find<R: Requester>(routes: &[Arc<Route<R>>], gid: &Gid) -> Result<Arc<Route<R>>, usize> {
    let found = routes.binary_search_by_key(gid, |route| *route.gid());
    found.map(|at| routes[at].clone())
}

/// Traffic in the form in which users are told of it.
fn told(traffic: &TrafficView) -> PoolTraffic {
    PoolTraffic {
        small_ops: traffic.heat.small_ops,
        large_bytes: traffic.heat.large_bytes,
        dc_small_ns: traffic.dc.small_ns,
        dc_byte_ps: traffic.dc.byte_ps,
        rc_small_ns: traffic.rc.small_ns,
        rc_byte_ps: traffic.rc.byte_ps,
    }
}

// SAFETY: the offset is the field's own; `stop` stops the work, and the node calls it
// before it lets go.
unsafe impl<R: Requester> Routine for Pool<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        let mut room = room::<_, PROBES>();
        let mut probes = ArrayVec::new(&mut room);
        let is_busy = self.look(&mut probes);
        for gid in probes.as_slice() {
            // One that cannot be sent now may be at the next look.
            let _: Result = self.rc.exchange().and_then(|exchange| exchange.probe(gid));
        }
        let has_peers = !self.routes.lock().is_empty();
        if is_busy || has_peers {
            self.work.schedule(match is_busy {
                true => LOOK_MS,
                false => IDLE_LOOK_MS,
            });
        }
    }
}
