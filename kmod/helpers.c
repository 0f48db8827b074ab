// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */
#include <linux/bottom_half.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/eventfd.h>
#include <linux/fault-inject-usercopy.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/mm.h>
#include <linux/ns_common.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/udp.h>
#include <linux/user_namespace.h>
#include <linux/vmalloc.h>
#include <net/ip.h>
#include <net/net_namespace.h>
#include <net/route.h>
#include <net/sock.h>

#include "helpers.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/* ---- locks, CPUs, credentials ---- */

void weft_local_bh_disable(void)
{
	local_bh_disable();
}

void weft_local_bh_enable(void)
{
	local_bh_enable();
}

int weft_mutex_lock_interruptible(struct mutex *lock)
{
	return mutex_lock_interruptible(lock);
}

u32 weft_cpu(void)
{
	return raw_smp_processor_id();
}

bool weft_in_interrupt(void)
{
	return in_interrupt();
}

void weft_yield(void)
{
	yield();
}

bool weft_signal_pending(void)
{
	return signal_pending(current);
}

bool weft_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

/* Lazy: also if the scheduler would take the CPU only at the next tick. */
bool weft_need_resched(bool lazy)
{
	return need_resched() || (lazy && test_thread_flag(TIF_NEED_RESCHED_LAZY));
}

/* Goes on with the ticks, and while the host sleeps. */
u64 weft_coarse_ns(void)
{
	return ktime_get_coarse_boottime_ns();
}

u32 weft_online_cpus(void)
{
	return num_online_cpus();
}

u32 weft_current_uid(void)
{
	return from_kuid(&init_user_ns, current_uid());
}

const struct user_namespace *weft_current_user_ns(void)
{
	return current_user_ns();
}

/* A namespace's maker, and the namespace that it was made in: NULL for the first. */
void weft_user_ns_made_by(const struct user_namespace *ns, u32 *owner, const struct user_namespace **parent)
{
	*owner = from_kuid(&init_user_ns, ns->owner);
	*parent = ns->parent;
}

bool weft_net_admin(void)
{
	return capable(CAP_NET_ADMIN);
}

/* ---- waiting ---- */

void weft_wait_wake(struct wait_queue_head *wq)
{
	wake_up_all(wq);
}

/* Both: 0, the word is no longer `seen`; -ETIME; -ERESTARTSYS. */
int weft_wait_hrtimer(struct wait_queue_head *wq, const u32 *word, u32 seen, u64 timeout_ns, bool interruptible)
{
	ktime_t timeout = ns_to_ktime(timeout_ns);

	if (interruptible)
		return wait_event_interruptible_hrtimeout(*wq, READ_ONCE(*word) != seen, timeout);
	return wait_event_hrtimeout(*wq, READ_ONCE(*word) != seen, timeout);
}

int weft_wait_ticks(struct wait_queue_head *wq, const u32 *word, u32 seen, u64 timeout_ns, bool interruptible)
{
	unsigned long timeout = nsecs_to_jiffies(timeout_ns);
	long left;

	if (interruptible)
		left = wait_event_interruptible_timeout(*wq, READ_ONCE(*word) != seen, timeout);
	else
		left = wait_event_timeout(*wq, READ_ONCE(*word) != seen, timeout);
	if (left < 0)
		return left;
	return left ? 0 : -ETIME;
}

void weft_wait_wake_one(struct wait_queue_head *wq)
{
	wake_up(wq);
}

/* Sleeps; false: until the time was over. */
static bool weft_sleep(u64 timeout_ns, bool by_ticks)
{
	ktime_t timeout = ns_to_ktime(timeout_ns);

	if (by_ticks)
		return schedule_timeout(nsecs_to_jiffies(timeout_ns)) != 0;
	return schedule_hrtimeout(&timeout, HRTIMER_MODE_REL) != 0;
}

/*
 * Waits for either of two words, interruptibly. Of those that wait at `one`, one is woken
 * at a time. 0: one of the words has moved, or may have.
 */
int weft_wait_either(struct wait_queue_head *wq, const u32 *word, u32 seen, struct wait_queue_head *one,
		     const u32 *call, u32 seen_call, u64 timeout_ns, bool by_ticks)
{
	DEFINE_WAIT(all_wait);
	DEFINE_WAIT(one_wait);
	int result = 0;

	prepare_to_wait(wq, &all_wait, TASK_INTERRUPTIBLE);
	prepare_to_wait_exclusive(one, &one_wait, TASK_INTERRUPTIBLE);
	if (READ_ONCE(*word) == seen && READ_ONCE(*call) == seen_call) {
		if (signal_pending(current))
			result = -ERESTARTSYS;
		else if (!weft_sleep(timeout_ns, by_ticks))
			result = -ETIME;
	}
	finish_wait(one, &one_wait);
	finish_wait(wq, &all_wait);
	return result;
}

/* ---- delayed work ---- */

/*
 * INIT_DELAYED_WORK keeps lockdep's class where it is written, which would be here, the
 * same for all works.
 */
void weft_work_init(struct delayed_work *work, work_func_t function, const char *name,
		    struct lock_class_key *work_key, struct lock_class_key *timer_key)
{
	__init_work(&work->work, 0);
	work->work.data = (atomic_long_t)WORK_DATA_INIT();
	lockdep_init_map(&work->work.lockdep_map, name, work_key, 0);
	INIT_LIST_HEAD(&work->work.entry);
	work->work.func = function;
	timer_init_key(&work->timer, delayed_work_timer_fn, TIMER_IRQSAFE, name, timer_key);
}

void weft_work_schedule(struct delayed_work *work, u32 delay_ms)
{
	queue_delayed_work(system_dfl_wq, work, msecs_to_jiffies(delay_ms));
}

/* Runs at once, also if it is scheduled for later. */
void weft_work_hurry(struct delayed_work *work)
{
	mod_delayed_work(system_dfl_wq, work, 0);
}

/* ---- timers, eventfds ---- */

static enum hrtimer_restart weft_timer_call(struct hrtimer *hrtimer)
{
	struct weft_timer *timer = container_of(hrtimer, struct weft_timer, timer);

	timer->function(timer);
	return HRTIMER_NORESTART;
}

/* The function runs in a softirq. */
void weft_timer_init(struct weft_timer *timer, void (*function)(struct weft_timer *timer))
{
	timer->function = function;
	hrtimer_setup(&timer->timer, weft_timer_call, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
}

void weft_timer_start(struct weft_timer *timer, u64 delay_ns)
{
	hrtimer_start(&timer->timer, ns_to_ktime(delay_ns), HRTIMER_MODE_REL_SOFT);
}

void weft_timer_cancel(struct weft_timer *timer)
{
	hrtimer_cancel(&timer->timer);
}

void weft_eventfd_signal(struct eventfd_ctx *eventfd)
{
	eventfd_signal(eventfd);
}

/* ---- memory ---- */

bool weft_user_read(u64 *to, u64 from, size_t words)
{
	const u64 __user *user = u64_to_user_ptr(from);
	size_t i;

	if (should_fail_usercopy())
		return false;
	if (!user_read_access_begin(user, words * sizeof(u64)))
		return false;
	for (i = 0; i < words; i++)
		unsafe_get_user(to[i], user + i, fault);
	user_read_access_end();
	return true;
fault:
	user_read_access_end();
	return false;
}

bool weft_user_write(u64 to, const u64 *from, size_t words)
{
	u64 __user *user = u64_to_user_ptr(to);
	size_t i;

	if (should_fail_usercopy())
		return false;
	if (!user_write_access_begin(user, words * sizeof(u64)))
		return false;
	for (i = 0; i < words; i++)
		unsafe_put_user(from[i], user + i, fault);
	user_write_access_end();
	return true;
fault:
	user_write_access_end();
	return false;
}

/* ---- rings ---- */

/*
 * So many bytes are taken in one piece, if one is free, in the kernel's own mapping: no
 * range of addresses has to be found and mapped for them, and none flushed from all
 * CPUs when they go.
 */
#define WEFT_ONE_PIECE (128u << 10)
/* Pages that are mapped under one hold of a lock. */
#define WEFT_MAP_BATCH 16

void *weft_rings_alloc(size_t bytes)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO;
	void *base = NULL;

	/* As kvmalloc: nothing is reclaimed to make a piece. */
	if (bytes <= WEFT_ONE_PIECE)
		base = alloc_pages_exact(bytes, (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN);
	return base ?: __vmalloc(bytes, gfp);
}

/* Process context. */
void weft_rings_free(void *base, size_t bytes)
{
	if (is_vmalloc_addr(base))
		vfree(base);
	else
		free_pages_exact(base, bytes);
}

struct page *weft_rings_page(void *at)
{
	return is_vmalloc_addr(at) ? vmalloc_to_page(at) : virt_to_page(at);
}

/*
 * A child that fork makes has no business in its parent's rings. The pages count
 * their mappings themselves. remap_vmalloc_range would take
 * memory of vmalloc_user alone, which no cgroup is charged for.
 */
int weft_rings_map(struct vm_area_struct *vma, void *base, size_t bytes)
{
	struct page *batch[WEFT_MAP_BATCH];
	unsigned long count, left;
	size_t at = 0;
	int err = 0;

	if (vma->vm_end - vma->vm_start != bytes || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	for (; at < bytes && !err; at += count << PAGE_SHIFT) {
		count = min_t(unsigned long, WEFT_MAP_BATCH, (bytes - at) >> PAGE_SHIFT);
		for (left = 0; left < count; left++)
			batch[left] = weft_rings_page(base + at + (left << PAGE_SHIFT));
		err = vm_insert_pages(vma, vma->vm_start + at, batch, &left);
	}
	return err;
}

/*
 * The count that ib_core keeps of the pages that it pins for an address space
 * (drivers/infiniband/core/umem.c), and the caller's limit of it.
 */
u64 weft_mm_pinned_add(struct mm_struct *mm, long pages)
{
	return atomic64_add_return(pages, &mm->pinned_vm);
}

unsigned long weft_memlock_pages(void)
{
	return rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
}

bool weft_capable_ipc_lock(void)
{
	return capable(CAP_IPC_LOCK);
}

/*
 * Eight aligned bytes are moved at once: neither side of an RDMA operation may
 * see half of a word. The compiler is not trusted with that, hence the macros.
 */
static bool weft_is_word(size_t offset, size_t len)
{
	return len == sizeof(u64) && !(offset % sizeof(u64));
}

void weft_page_read(struct page *page, size_t offset, void *to, size_t len)
{
	char *from = kmap_local_page(page);

	if (weft_is_word(offset, len)) {
		u64 word = READ_ONCE(*(u64 *)(from + offset));

		memcpy(to, &word, sizeof(word));
	} else {
		memcpy(to, from + offset, len);
	}
	kunmap_local(from);
}

int weft_page_write_skb(struct page *page, size_t offset, const struct sk_buff *skb, int from, size_t len)
{
	char *to = kmap_local_page(page);
	u64 word;
	int err;

	if (weft_is_word(offset, len)) {
		err = skb_copy_bits(skb, from, &word, sizeof(word));
		if (!err)
			WRITE_ONCE(*(u64 *)(to + offset), word);
	} else {
		err = skb_copy_bits(skb, from, to + offset, len);
	}
	kunmap_local(to);
	return err;
}

u64 weft_page_compare_swap(struct page *page, size_t offset, u64 compare, u64 swap)
{
	char *base = kmap_local_page(page);
	u64 old = cmpxchg((u64 *)(base + offset), compare, swap);

	kunmap_local(base);
	return old;
}

u64 weft_page_fetch_add(struct page *page, size_t offset, u64 add)
{
	char *base = kmap_local_page(page);
	u64 old = atomic64_fetch_add(add, (atomic64_t *)(base + offset));

	kunmap_local(base);
	return old;
}

/* ---- network ---- */

/* Connections of rdma_cm keep a namespace too, but do not count here. */
bool weft_netdev_netns_is_live(const struct net_device *dev)
{
	bool live;

	rcu_read_lock();
	live = ns_ref_active_read(dev_net_rcu(dev)) != 0;
	rcu_read_unlock();
	return live;
}

/*
 * A reference to its namespace, NULL once the last one has gone. The device has to be
 * referenced: the memory of a namespace stays until its devices have been given up.
 */
struct net *weft_netdev_net_get(const struct net_device *dev)
{
	struct net *net;

	rcu_read_lock();
	net = maybe_get_net(dev_net_rcu(dev));
	rcu_read_unlock();
	return net;
}

void weft_net_put(struct net *net)
{
	put_net(net);
}

u32 weft_netdev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

u32 weft_netdev_link_changes(const struct net_device *dev)
{
	return atomic_read(&dev->carrier_up_count) + atomic_read(&dev->carrier_down_count);
}

void weft_netdev_put(struct net_device *dev)
{
	dev_put(dev);
}

u64 weft_net_inum(const struct net *net)
{
	return net->ns.inum;
}

u64 weft_current_net_inum(void)
{
	return current->nsproxy->net_ns->ns.inum;
}

/* Room in front for the UDP, IP and link headers. */
#define WEFT_HEADROOM (LL_MAX_HEADER + sizeof(struct iphdr) + sizeof(struct udphdr))

/*
 * Small packets are cut from pages, as drivers do it for those that they receive: a
 * kernel that clears what kmalloc gives (init_on_alloc) would clear all of it, which
 * takes longer than filling it.
 */
static struct sk_buff *weft_skb_cut(u32 len)
{
	u32 size = SKB_DATA_ALIGN(len) + SKB_DATA_ALIGN(sizeof(struct skb_shared_info));
	struct sk_buff *skb;
	void *data;

	if (size > PAGE_SIZE)
		return NULL;
	data = napi_alloc_frag(size);
	if (!data)
		return NULL;
	skb = napi_build_skb(data, size);
	if (!skb)
		skb_free_frag(data);
	return skb;
}

/* Softirqs have to be disabled. */
struct sk_buff *weft_skb_alloc(u32 len)
{
	struct sk_buff *skb = weft_skb_cut(WEFT_HEADROOM + len);

	if (!skb)
		skb = alloc_skb(WEFT_HEADROOM + len, GFP_ATOMIC);
	if (skb)
		skb_reserve(skb, WEFT_HEADROOM);
	return skb;
}

/* Any context; where softirqs are disabled, the next packet reuses its sk_buff. */
void weft_skb_free(struct sk_buff *skb)
{
	napi_consume_skb(skb, in_softirq());
}

void *weft_skb_put(struct sk_buff *skb, u32 len)
{
	return skb_put(skb, len);
}

bool weft_skb_has(struct sk_buff *skb, u32 len)
{
	return pskb_may_pull(skb, len);
}

bool weft_skb_pull_header(struct sk_buff *skb, u32 len)
{
	return pskb_may_pull(skb, len) && skb_pull(skb, len);
}

bool weft_skb_copy(const struct sk_buff *skb, u32 from, void *to, u32 len)
{
	return !skb_copy_bits(skb, from, to, len);
}

const u8 *weft_skb_data(const struct sk_buff *skb)
{
	return skb->data;
}

u32 weft_skb_contiguous(const struct sk_buff *skb)
{
	return skb_headlen(skb);
}

void weft_skb_trim(struct sk_buff *skb, u32 len)
{
	skb_trim(skb, len);
}

u32 weft_skb_len(const struct sk_buff *skb)
{
	return skb->len;
}

__be32 weft_skb_source_addr(const struct sk_buff *skb)
{
	return ip_hdr(skb)->saddr;
}

__be16 weft_skb_source_port(const struct sk_buff *skb)
{
	return udp_hdr(skb)->source;
}

void *weft_sock_user_data(struct sock *sk)
{
	return rcu_dereference_sk_user_data(sk);
}

void weft_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

void weft_sock_put(struct sock *sk)
{
	sock_put(sk);
}

struct rtable *weft_route(struct net *net, __be32 source, __be32 dest)
{
	struct flowi4 flow = {
		.saddr = source,
		.daddr = dest,
		.flowi4_proto = IPPROTO_UDP,
	};
	struct rtable *route = ip_route_output_key(net, &flow);

	return IS_ERR(route) ? NULL : route;
}

bool weft_route_is_current(struct rtable *route)
{
	return dst_check(&route->dst, 0);
}

void weft_route_hold(struct rtable *route)
{
	dst_hold(&route->dst);
}

void weft_route_put(struct rtable *route)
{
	dst_release(&route->dst);
}

/* ---- module parameters ---- */

static char weft_meta[256];
module_param_string(meta, weft_meta, sizeof(weft_meta), 0444);
MODULE_PARM_DESC(meta, "Meta servers: ADDR:PORT[,ADDR:PORT...], at most 4");

const char *weft_param_meta(void)
{
	return weft_meta;
}

static char weft_pool[8];
module_param_string(pool, weft_pool, sizeof(weft_pool), 0444);
MODULE_PARM_DESC(pool, "RC queue pairs: auto: busy peers get one if that is faster (the default, but for soft-RoCE); dc: pinned ones alone; rc: who connects makes one and waits for it");

const char *weft_param_pool(void)
{
	return weft_pool;
}

/* ---- tracepoints ---- */

void weft_trace_pool(const u8 *gid, u32 action)
{
	trace_weft_pool(gid, action);
}

void weft_trace_move(u32 flow, bool by_rc, u64 held_ns)
{
	trace_weft_move(flow, by_rc, held_ns);
}
