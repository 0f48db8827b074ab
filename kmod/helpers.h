/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions for what Rust cannot call: header inlines and macros of the kernel.
 * Each does one such thing; what to do with it is decided in Rust.
 */
#ifndef WEFT_HELPERS_H
#define WEFT_HELPERS_H

#include <linux/hrtimer.h>
#include <linux/skbuff.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

struct eventfd_ctx;
struct rtable;
struct user_namespace;
struct mm_struct;
struct vm_area_struct;

/* locks, CPUs, credentials */
void weft_local_bh_disable(void);
void weft_local_bh_enable(void);
int weft_mutex_lock_interruptible(struct mutex *lock);
u32 weft_cpu(void);
bool weft_in_interrupt(void);
void weft_yield(void);
bool weft_signal_pending(void);
bool weft_fatal_signal_pending(void);
bool weft_need_resched(bool lazy);
u32 weft_online_cpus(void);
u64 weft_coarse_ns(void);
bool weft_net_admin(void);
u32 weft_current_uid(void);
const struct user_namespace *weft_current_user_ns(void);
void weft_user_ns_made_by(const struct user_namespace *ns, u32 *owner, const struct user_namespace **parent);

/* waiting */
void weft_wait_wake(struct wait_queue_head *wq);
void weft_wait_wake_one(struct wait_queue_head *wq);
int weft_wait_hrtimer(struct wait_queue_head *wq, const u32 *word, u32 seen, u64 timeout_ns, bool interruptible);
int weft_wait_ticks(struct wait_queue_head *wq, const u32 *word, u32 seen, u64 timeout_ns, bool interruptible);
int weft_wait_either(struct wait_queue_head *wq, const u32 *word, u32 seen, struct wait_queue_head *one,
		     const u32 *call, u32 seen_call, u64 timeout_ns, bool by_ticks);

/* delayed work */
void weft_work_init(struct delayed_work *work, work_func_t function, const char *name,
		    struct lock_class_key *work_key, struct lock_class_key *timer_key);
void weft_work_schedule(struct delayed_work *work, u32 delay_ms);
void weft_work_hurry(struct delayed_work *work);

/* timers, eventfds */
struct weft_timer {
	struct hrtimer timer;
	void (*function)(struct weft_timer *timer);
};

void weft_timer_init(struct weft_timer *timer, void (*function)(struct weft_timer *timer));
void weft_timer_start(struct weft_timer *timer, u64 delay_ns);
void weft_timer_cancel(struct weft_timer *timer);
void weft_eventfd_signal(struct eventfd_ctx *eventfd);

/* memory */
bool weft_user_read(u64 *to, u64 from, size_t words);
bool weft_user_write(u64 to, const u64 *from, size_t words);
void *weft_rings_alloc(size_t bytes);
void weft_rings_free(void *base, size_t bytes);
struct page *weft_rings_page(void *at);
int weft_rings_map(struct vm_area_struct *vma, void *base, size_t bytes);
u64 weft_mm_pinned_add(struct mm_struct *mm, long pages);
unsigned long weft_memlock_pages(void);
bool weft_capable_ipc_lock(void);
void weft_page_read(struct page *page, size_t offset, void *to, size_t len);
u64 weft_page_compare_swap(struct page *page, size_t offset, u64 compare, u64 swap);
u64 weft_page_fetch_add(struct page *page, size_t offset, u64 add);
int weft_page_write_skb(struct page *page, size_t offset, const struct sk_buff *skb, int from, size_t len);

/* network */
struct net *weft_netdev_net_get(const struct net_device *dev);
void weft_net_put(struct net *net);
bool weft_netdev_netns_is_live(const struct net_device *dev);
u32 weft_netdev_mtu(const struct net_device *dev);
u32 weft_netdev_link_changes(const struct net_device *dev);
void weft_netdev_put(struct net_device *dev);
u64 weft_net_inum(const struct net *net);
u64 weft_current_net_inum(void);
struct sk_buff *weft_skb_alloc(u32 len);
void weft_skb_free(struct sk_buff *skb);
void *weft_skb_put(struct sk_buff *skb, u32 len);
bool weft_skb_pull_header(struct sk_buff *skb, u32 len);
bool weft_skb_has(struct sk_buff *skb, u32 len);
bool weft_skb_copy(const struct sk_buff *skb, u32 from, void *to, u32 len);
const u8 *weft_skb_data(const struct sk_buff *skb);
u32 weft_skb_contiguous(const struct sk_buff *skb);
void weft_skb_trim(struct sk_buff *skb, u32 len);
u32 weft_skb_len(const struct sk_buff *skb);
__be32 weft_skb_source_addr(const struct sk_buff *skb);
__be16 weft_skb_source_port(const struct sk_buff *skb);
void *weft_sock_user_data(struct sock *sk);
void weft_sock_hold(struct sock *sk);
void weft_sock_put(struct sock *sk);
struct rtable *weft_route(struct net *net, __be32 source, __be32 dest);
bool weft_route_is_current(struct rtable *route);
void weft_route_hold(struct rtable *route);
void weft_route_put(struct rtable *route);

/* ib_core */
const char *weft_ib_name(const struct ib_device *dev);
u32 weft_ib_ports(const struct ib_device *dev);
u32 weft_ib_local_dma_lkey(const struct ib_pd *pd);
const struct ib_device_attr *weft_ib_attrs(const struct ib_device *dev);
bool weft_ib_is_software(const struct ib_device *dev);
bool weft_ib_takes_iova(const struct ib_device *dev);
bool weft_ib_relaxes_writes(const struct ib_device *dev);
int weft_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr);
int weft_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr);
void *weft_ib_cq_context(const struct ib_cq *cq);
int weft_ib_map_mr(struct ib_mr *mr, u64 addr, u32 len);
int weft_ib_dma_map_table(struct ib_device *dev, struct sg_table *table, bool writable);
void weft_ib_dma_unmap_table(struct ib_device *dev, struct sg_table *table, bool writable);
u32 weft_ib_dma_max_segment(struct ib_device *dev);
gfp_t weft_gfp_kernel_account(void);
int weft_ib_arm_cq(struct ib_cq *cq);
bool weft_ib_has_wc(struct ib_cq *cq);
int weft_ib_poll_cq(struct ib_cq *cq, int count, struct ib_wc *wcs);
u64 weft_ib_dma_map(struct ib_device *dev, void *addr, size_t len);
bool weft_ib_dma_failed(struct ib_device *dev, u64 addr);
void weft_ib_dma_unmap(struct ib_device *dev, u64 addr, size_t len);
void weft_ib_dma_sync(struct ib_device *dev, u64 addr, size_t len, bool for_cpu);

/* module parameters: the macro is C's, and Rust's knows no strings */
const char *weft_param_meta(void);
const char *weft_param_pool(void);

/* tracepoints */
#define WEFT_POOL_OPEN 0
#define WEFT_POOL_CLOSE 1
#define WEFT_POOL_USE_DC 2
#define WEFT_POOL_USE_RC 3
#define WEFT_POOL_CLOSED 4
#define WEFT_POOL_MESSAGES_UDP 5
#define WEFT_POOL_MESSAGES_RC 6
void weft_trace_pool(const u8 *gid, u32 action);
void weft_trace_move(u32 flow, bool by_rc, u64 held_ns);

#endif
