/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * libweft: RDMA connections in microseconds, from C.
 *
 * A device is a session with the kernel module (/dev/weft) on one node, a node
 * being an RDMA port. Memory is registered with a device. A VQP (virtual queue
 * pair) is made on a device, connects to a node by its GID in microseconds, and
 * then carries READs, WRITEs, atomic operations and messages, reliably and in
 * order. A VQP that is bound to a port of its node gets messages from any number of
 * senders, and a VQP connected back to each of them. An unconnected VQP reaches any
 * number of peers: each request names its own.
 *
 * VQPs may share a completion queue (CQ) and a receive queue (SRQ), as QPs of verbs
 * do; a VQP that is made without them has queues of its own. A VQP on a CQ takes a few
 * hundred bytes.
 *
 * Work requests and completions are those of <infiniband/verbs.h>; programs need
 * that header, but not to be linked with libibverbs.
 *
 * Errors are reported as by verbs, unless a function says otherwise: functions
 * that make something return NULL and set errno, others return 0 or an errno
 * value. weft_strerror() explains the value. A null pointer where something is
 * needed is EINVAL. Any other wrong pointer is undefined behaviour.
 *
 * Structs that may get more fields in a later release begin with their size, which the
 * program sets, also where the library fills the struct in:
 *
 *	struct weft_device_attr attr = { .size = sizeof(attr) };
 *
 * So a program works with later and with earlier libraries. A field that an older
 * program does not have counts as zero. A size of 0, or of less than the first release
 * had, is EINVAL. A struct with more fields than the library knows is fine if those are
 * zero, else E2BIG. The other structs stay as they are.
 *
 * Threads may use one object at the same time, except while it is destroyed. A CQ has a
 * lock for posting and one for polling, a receive queue has one. What is made from a
 * device keeps the session open, so that the order in which things are destroyed matters
 * for CQs and SRQs, which can be destroyed once no VQP uses them, and for regions, which
 * stay as long as they have memory windows. A session is a
 * file: it is shared with children after fork(), and closed by execve(). Queues are not
 * mapped in a child: it must not use its parent's VQPs, CQs and SRQs, and makes its own.
 */

#ifndef WEFT_H
#define WEFT_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this ABI: the number in the library's soname. */
#define WEFT_ABI_VERSION 1

/* In a completion: nobody that a VQP can be connected to. */
#define WEFT_SRC_NONE UINT32_MAX

/* Most bytes of memory that weft_start() makes. */
#define WEFT_MAX_START_MEMORY (8u << 20)

/* Of struct weft_vqp_init_attr: each request names its peer. */
#define WEFT_VQP_UNCONNECTED 1

struct weft_device;
struct weft_cq;
struct weft_srq;
struct weft_vqp;
struct weft_peer;

/* Registered memory. Only to be read. */
struct weft_mr {
	void *addr;
	size_t length;	/* bytes */
	uint32_t lkey;	/* names it in this session's requests */
	uint32_t rkey;	/* names it in peers' requests */
	uint64_t iova;	/* the address of its first byte in requests: addr, or 0 if it is of weft_start() */
};

/* A memory window: a further key to a region. Only to be read. */
struct weft_mw {
	uint32_t rkey;	/* names it in peers' requests */
};

/* What a device has and allows. */
struct weft_device_attr {
	size_t size;		/* sizeof(struct weft_device_attr); set it */
	union ibv_gid gid;	/* of its node: what peers connect to */
	uint64_t max_mr_size;	/* bytes of one region */
	uint32_t node;		/* index of its node */
	uint32_t node_count;	/* nodes that the host had at weft_open_device() */
	uint32_t max_nodes;	/* node indices are less than this */
	uint32_t max_vqp;	/* VQPs of one user on a node */
	uint32_t max_vqp_wr;	/* requests outstanding on one VQP */
	uint32_t max_sge;	/* elements of one request */
	uint32_t max_mr;	/* regions of one device */
	uint32_t max_msg_sz;	/* bytes that one request may move */
	uint32_t max_inline_data; /* bytes of one request */
	uint32_t max_recv_wr;	/* receive buffers posted on one VQP of its own queue */
	uint32_t max_recv_sge;	/* elements of one receive buffer */
	uint32_t max_port;	/* ports are 1 to this */
	uint32_t max_cq;	/* CQs, SRQs and VQPs with queues of their own, of one device */
	uint32_t max_cqe;	/* completions in one CQ */
	uint32_t max_srq;	/* as max_cq: all of them together */
	uint32_t max_srq_wr;	/* receive buffers posted on one SRQ */
	uint32_t max_peer;	/* open peers of one user on a node */
	uint32_t max_mw;	/* memory windows of one device */
};

/* An RDMA port that Weft runs on. */
struct weft_node_attr {
	size_t size;		/* sizeof(struct weft_node_attr); set it */
	union ibv_gid gid;	/* its address */
	uint64_t netns;		/* inode number of its network namespace */
	char device[64];	/* the RDMA device's name */
	uint32_t index;		/* for weft_open_device() */
	uint32_t port;		/* the RDMA device's port */
	uint32_t dct_number;	/* its DC target */
	uint32_t incarnation;	/* changes with each start of the node */
	uint32_t udp_port;	/* of its software DC transport */
	uint32_t vqps;		/* that exist on it, of all sessions */
	uint32_t mrs;		/* that exist on it, of all sessions */
	uint32_t cached_peers;	/* in its DCCache */
	uint32_t published;	/* 1: its record is at a meta server */
	uint32_t reserved;	/* zero */
};

/*
 * What a VQP is made with. Clear it before setting fields. As in verbs, cap is
 * both what is asked for and, after success, what was given, which is no less.
 */
struct weft_vqp_init_attr {
	size_t size;		/* sizeof(struct weft_vqp_init_attr); set it */
	void *vqp_context;	/* for weft_vqp_context() */
	struct weft_cq *cq;	/* its completions go there; NULL: to a CQ of its own */
	struct weft_srq *srq;	/* its receive buffers come from there, and cq is not NULL;
				 * NULL: it has a receive queue of its own, if max_recv_wr
				 * is not 0 */
	struct ibv_qp_cap cap;	/* max_send_wr: 1 to max_vqp_wr; max_recv_wr: 0 if it
				 * will not receive, no matter with an SRQ; others: at most
				 * as in struct weft_device_attr */
	int sq_sig_all;		/* not 0: every request is signalled */
	uint32_t flags;		/* 0 or WEFT_VQP_UNCONNECTED */
	uint32_t port;		/* with gid: as of weft_qconnect(); else 0 */
	const union ibv_gid *gid; /* not NULL: the VQP is connected there at once, in the
				   * same system call */
};

/* What an SRQ is made with. Clear it before setting fields. */
struct weft_srq_init_attr {
	size_t size;		/* sizeof(struct weft_srq_init_attr); set it */
	void *srq_context;	/* for weft_srq_context() */
	struct ibv_srq_attr attr; /* max_wr: 1 to max_srq_wr; max_sge: at most max_recv_sge,
				   * after success what was given; srq_limit: not used */
	uint32_t reserved;	/* must be zero */
};

/* A chain of requests of one VQP, for weft_post_list() and weft_enter_list(). */
struct weft_post {
	struct weft_vqp *vqp;	/* of any CQ of the device */
	struct weft_peer *peer;	/* where they go, if the VQP is unconnected; else NULL */
	struct ibv_send_wr *wr;	/* the chain; NULL: nothing to post */
	struct ibv_send_wr *bad_wr; /* written: the first request that was not posted; NULL:
				     * all were */
	int error;		/* written: 0, or why bad_wr was not posted */
	uint32_t reserved;	/* must be zero */
};

/* A message, from weft_pop_msgs(). */
struct weft_msg {
	struct ibv_wc wc;	/* of its receive buffer */
	struct weft_vqp *from;	/* connected to its sender; NULL if that cannot be */
	int error;		/* then: why; else 0 */
	uint32_t reserved[3];	/* zero */
};

/* The library's WEFT_ABI_VERSION. */
uint32_t weft_abi_version(void);

/*
 * Opens a session on the node with this index, or, if node is -1, on the first
 * one in the caller's network namespace.
 *
 * Errors: ENOENT (the module is not loaded), EACCES (file mode of /dev/weft),
 * ENODEV (no such node), EINVAL (node < -1), EPROTONOSUPPORT (library and module
 * are of different releases), EMFILE, ENOMEM.
 */
struct weft_device *weft_open_device(int node);

/* A description of the session, the CQ and the memory that a worker starts with. */
struct weft_start_attr {
	size_t size;		/* sizeof(struct weft_start_attr); set it */
	int node;		/* as for weft_open_device() */
	int cqe;		/* as for weft_create_cq() */
	void *cq_context;	/* likewise */
	size_t length;		/* bytes of memory, 1 to WEFT_MAX_START_MEMORY */
	int access;		/* to the memory, as for weft_reg_mr() */
	uint32_t reserved;	/* 0 */
	const union ibv_gid *gid; /* whom it will connect to first, or NULL: looked up
				   * meanwhile, if the node does not know it */
};

/*
 * Opens a session, makes a CQ and registers memory, in three system calls: what a worker
 * that lives for milliseconds needs before it can connect. The memory is new, zeroed and
 * at mr->addr; in requests, the program's and its peers', its first byte is at mr->iova,
 * which is 0. It lies in the CQ's mapping: a child that is forked does not have it. Each
 * of the three is given up by itself, in any order.
 *
 * Errors: those of weft_open_device(), weft_create_cq() and weft_reg_mr(); EINVAL and
 * E2BIG (attr->size), EINVAL (attr->reserved).
 */
int weft_start(const struct weft_start_attr *attr, struct weft_device **device, struct weft_cq **cq,
	       struct weft_mr **mr);

/* Gives the device up. Its VQPs and regions stay until they are destroyed. */
int weft_close_device(struct weft_device *device);

/* Errors: EINVAL and E2BIG (attr->size), ENODEV (the node went away). */
int weft_query_device(const struct weft_device *device, struct weft_device_attr *attr);

/*
 * The device's file descriptor, to wait with poll() or epoll for completions of all
 * its CQs: readable while there are some that were not taken; POLLHUP when the node
 * has gone, after which completions of requests that were under way may still follow.
 * Wait, then take completions with weft_poll_cq() or weft_pop_msgs() until none is left.
 * The descriptor stays the device's: do not close it.
 * Returns -1 and sets errno on error.
 */
int weft_device_fd(const struct weft_device *device);

/*
 * Describes a node of this host; -1 is the device's own. Indices may have gaps,
 * since RDMA devices come and go.
 *
 * Errors: ENODEV (no node has this index), EINVAL (node < -1), EINVAL and E2BIG
 * (attr->size).
 */
int weft_query_node(const struct weft_device *device, int node, struct weft_node_attr *attr);

/*
 * Registers memory. Its pages are pinned and count against RLIMIT_MEMLOCK. access
 * is made of enum ibv_access_flags: IBV_ACCESS_LOCAL_WRITE (this session's READs
 * may land in it), IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE and
 * IBV_ACCESS_REMOTE_ATOMIC (both need LOCAL_WRITE); 0 lets this session's WRITEs
 * read it. IBV_ACCESS_RELAXED_ORDERING says that the program waits for a completion or a
 * message before it reads what peers have written: adapters that keep no order (mlx5)
 * write to the memory only then, else peers' requests to it go by DC. Others are EINVAL.
 *
 * Errors: EINVAL (length of 0 or more than max_mr_size, access), EFAULT (not all
 * of it is mapped, or it is read-only), ENOMEM (RLIMIT_MEMLOCK, or memory),
 * EMFILE (max_mr reached, or what a user may have on a node), ENODEV (the node went
 * away).
 */
struct weft_mr *weft_reg_mr(const struct weft_device *device, void *addr, size_t length, int access);

/*
 * Deregisters memory; requests that still use it fail. When this returns no
 * request touches the memory any more.
 *
 * Errors: EBUSY (it has memory windows; it stays registered).
 */
int weft_dereg_mr(struct weft_mr *mr);

/*
 * Binds a memory window to the length bytes at addr, which are within a region: another
 * key to them, which ends by itself, as ibv_bind_mw() does. The pages are neither pinned nor
 * counted again. In peers' requests its bytes have the addresses that they have in the
 * region's.
 * access is made of IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC
 * and IBV_ACCESS_RELAXED_ORDERING, of the first three at least one. Peers need not have these
 * rights by the region's rkey. To let them change the bytes, the region needs
 * IBV_ACCESS_LOCAL_WRITE.
 *
 * Errors: EINVAL (addr or length is not within the region, access), EMFILE (max_mw
 * reached, or what a user may have on a node), ENOMEM, ENODEV (the node went away).
 */
struct weft_mw *weft_bind_mw(const struct weft_mr *mr, void *addr, size_t length, int access);

/*
 * Ends a window: peers' requests by its rkey fail. When this returns none of them touches the
 * memory any more.
 */
int weft_dealloc_mw(struct weft_mw *mw);

/*
 * Makes a completion queue that any number of VQPs of the device use, also at the same
 * time. cqe: completions that there may be, 1 to max_cqe; the CQ has room for the next power
 * of two from there on. Each request that is under way, or whose completion was not taken,
 * needs room for one, signalled or not, and so does each message that has arrived: a CQ whose
 * cqe is the sum of its VQPs' max_send_wr, and of the receive buffers posted for them, never
 * lacks it. One that is smaller loses nothing: posting is ENOMEM then, and messages wait at
 * their sender as if there were no receive buffer.
 * A CQ also has room to submit the requests of its VQPs, 128 in one system call. Its
 * memory counts against RLIMIT_MEMLOCK.
 *
 * Errors: EINVAL (cqe), EMFILE (max_cq reached), ENOMEM, ENODEV (the node went away).
 */
struct weft_cq *weft_create_cq(const struct weft_device *device, int cqe, void *cq_context);

/* Errors: EBUSY (VQPs use it: it stays as it is, and so does a VQP's own). */
int weft_destroy_cq(struct weft_cq *cq);

/*
 * Has an eventfd signalled when completions come to the CQ, in place of the one before: its
 * completion channel. -1: none any more; cq_count and cq_period are 0 then. It is signalled
 * once cq_count completions have come since it was last, and at the latest cq_period
 * microseconds after the first of them (ibv_modify_cq()); and at once, if there are some.
 * Read it, then take completions until there are none: so none is missed. It may serve many
 * CQs, and may be closed at any time. Each VQP's own CQ can have one too. Receive buffers
 * that are posted after their VQP has failed come back when a request of it ends, or with
 * the next weft_wait_cq() or poll(): it is signalled for them then, and not before.
 *
 * Errors: EBADF (there is no such descriptor), EINVAL (it is no eventfd; cq_count of 0, or
 * of more than 1 with a cq_period of 0), ENOMEM.
 */
int weft_notify_cq(const struct weft_cq *cq, int eventfd, uint16_t cq_count, uint16_t cq_period);

/* What the CQ was made with; NULL for NULL, and of a VQP's own CQ. */
void *weft_cq_context(const struct weft_cq *cq);

/*
 * Makes a receive queue that any number of VQPs take buffers from, in turn. Messages
 * complete in the CQ of the VQP that they have come to. Its memory counts against
 * RLIMIT_MEMLOCK.
 *
 * Errors: EINVAL (attr), E2BIG (attr->size), EMFILE (max_srq reached), ENOMEM, ENODEV.
 */
struct weft_srq *weft_create_srq(const struct weft_device *device, struct weft_srq_init_attr *attr);

/* Errors: EBUSY (VQPs use it: it stays as it is). */
int weft_destroy_srq(struct weft_srq *srq);

/* What the SRQ was made with; NULL for NULL. */
void *weft_srq_context(const struct weft_srq *srq);

/* As weft_post_recv(), for all VQPs of the SRQ. (ibv_post_srq_recv()) */
int weft_post_srq_recv(const struct weft_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/*
 * Makes a VQP. If it was not connected at once, it has to be connected before requests
 * can be posted, or bound to receive from anybody; an unconnected one needs neither, and
 * cannot receive. Receive buffers can be posted at any time. Queues of its own count
 * against RLIMIT_MEMLOCK.
 *
 * When a VQP fails, the buffers of its own receive queue come back with
 * IBV_WC_WR_FLUSH_ERR, if its CQ is its own too. On a CQ that it was given, they stay
 * posted until the VQP is destroyed; their memory is the program's again then. Those of an
 * SRQ stay there for its other VQPs.
 *
 * Errors: EINVAL (attr; cq or srq of another device; srq without cq, because the completions
 * of shared buffers may not go with a VQP; an unconnected VQP with gid, srq or max_recv_wr; a
 * port without gid), E2BIG (attr->size), EMFILE (max_vqp or max_cq reached), ENOMEM, ENODEV
 * (the node went away); with gid those of weft_qconnect().
 */
struct weft_vqp *weft_create_vqp(const struct weft_device *device, struct weft_vqp_init_attr *attr);

/*
 * Destroys a VQP, and those that weft_pop_msgs() has made for it. Nothing more is heard
 * of its requests: completions that were not taken are thrown away. Requests that were
 * posted go on, without completions: READs still land in the program's memory, and WRITEs
 * and messages still read it. Wait for their completions first, or deregister the memory,
 * before it is used for something else. Buffers that the VQP had from an SRQ are others'
 * too: where a message had arrived, or had begun to, the completion is there or comes, with
 * the number of the VQP that is gone.
 */
int weft_destroy_vqp(struct weft_vqp *vqp);

/*
 * The CQ that the VQP's completions go to: the one that it was made with, or its own,
 * which is there as long as a VQP uses it. NULL for NULL.
 */
struct weft_cq *weft_vqp_cq(const struct weft_vqp *vqp);

/*
 * Connects to a node; nothing is sent to it. port is where messages go, 1 to
 * max_port; 0: none will be sent. A VQP is connected once.
 *
 * Errors: EISCONN (connected already), EINVAL (zero GID, no such port, a VQP that is
 * bound or unconnected), EHOSTUNREACH (no meta server knows the GID), EAGAIN (no meta
 * server is connected and the peer is not cached), ETIMEDOUT (the meta server did not
 * answer), EINTR (a signal came meanwhile, and its handler does not have calls restarted:
 * nothing has changed), ENOMEM, ENODEV (the local node went away), EBADF. If the module was
 * loaded with pool=rc, the call also waits for an RC queue pair to the peer: EHOSTDOWN (the
 * peer did not answer), EOPNOTSUPP (the RDMA device cannot do RC).
 */
int weft_qconnect(const struct weft_vqp *vqp, const union ibv_gid *gid, uint32_t port);

/*
 * Finds a node as weft_qconnect() does, and keeps it for the requests of unconnected VQPs
 * of the device: the address handle of verbs. port is where messages go; 0: none will be
 * sent.
 *
 * Errors: those of weft_qconnect() but EISCONN and EBADF; EMFILE (max_peer reached),
 * ENOMEM.
 */
struct weft_peer *weft_open_peer(const struct weft_device *device, const union ibv_gid *gid, uint32_t port);

/* Closes a peer. Requests to it that are under way end as they would. */
int weft_close_peer(struct weft_peer *peer);

/* The number that completions of requests to it carry as src_qp; UINT32_MAX for NULL. */
uint32_t weft_peer_num(const struct weft_peer *peer);

/*
 * Binds a new VQP to a port of the node, 1 to max_port: messages that are sent there
 * arrive at it, whoever sends them. It must have a receive queue or an SRQ. It can then
 * only receive.
 *
 * Errors: EINVAL (port, or a VQP that is connected, bound or cannot receive),
 * EADDRINUSE, ENOMEM, ENODEV, EBADF.
 */
int weft_bind(const struct weft_vqp *vqp, uint32_t port);

/*
 * Makes a VQP that is connected to the sender of a message; src is src_qp of its
 * completion. Nobody is asked: what it takes came with the message. What the sender
 * sends still arrives at the bound VQP; what is sent to it arrives at the VQP that
 * it has sent from.
 *
 * Errors: as weft_create_vqp(), and ENOENT (the sender is not known any more), EINVAL
 * (bound is not bound; flags, port or gid are set).
 */
struct weft_vqp *weft_accept(const struct weft_vqp *bound, uint32_t src,
			     struct weft_vqp_init_attr *attr);

/* The number that completions carry as qp_num; UINT32_MAX for NULL. */
uint32_t weft_vqp_num(const struct weft_vqp *vqp);

/* What the VQP was made with; NULL for NULL. */
void *weft_vqp_context(const struct weft_vqp *vqp);

/*
 * Posts a chain of requests, as ibv_post_send(): in order, up to the first that
 * cannot be posted, to which *bad_wr then points. *bad_wr is written on error
 * only. Of a request these are used: wr_id, next, sg_list, num_sge, opcode,
 * send_flags, imm_data, wr.rdma or wr.atomic. The chain is not needed any more when
 * this returns.
 *
 * It does not wait for completions, but may sleep before a request is posted: while 128
 * requests of the user's from this CPU are on their way to the same peer, and before a fenced
 * one. That takes seconds if the peer is silent.
 *
 * wr_id is the program's, all 64 bits of it.
 *
 * opcode: IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_CMP_AND_SWP,
 * IBV_WR_ATOMIC_FETCH_AND_ADD (on aligned 8-byte words); on a VQP that is connected
 * to a port (to a peer with one, if it is unconnected), or was accepted: IBV_WR_SEND,
 * IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM. num_sge: at most max_sge. send_flags:
 * IBV_SEND_SIGNALED; IBV_SEND_INLINE (the data is copied now, at most
 * max_inline_data bytes, and needs no region; not for READs and atomic operations);
 * IBV_SEND_FENCE (the call waits until the VQP's requests before it have ended, to the same
 * peer if it is unconnected); IBV_SEND_SOLICITED means nothing here and is ignored.
 * What is wrong with keys, addresses or lengths shows as a completion with an
 * error, after which the VQP flushes all later requests. A request that is not
 * signalled makes a completion only if it fails.
 *
 * Errors: EOPNOTSUPP (opcode), EINVAL (num_sge, sg_list, send_flags, too much inline
 * data, or null pointers, when *bad_wr is not written), ENOMEM (the VQP has max_send_wr
 * requests under way, or the CQ is full: poll, then post from *bad_wr on; or memory is
 * short), ENOTCONN (not connected, or an unconnected VQP), EMFILE (the user has as many DC
 * streams on the node as it may: one for each VQP that sends messages, up to 8 for each
 * peer of its other VQPs), EBADF. When the node has gone, requests are still posted, and
 * complete with an error (IBV_WC_FATAL_ERR).
 */
int weft_post_send(const struct weft_vqp *vqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

/*
 * As weft_post_send(), to a peer, on an unconnected VQP. Requests to one peer are in order,
 * and max_send_wr counts for each peer; a CQ of the VQP's own has room for all of them
 * together as if its cqe were max_send_wr. One that fails stops later requests to that peer,
 * until the peer is closed, and none to others.
 *
 * Errors: those of weft_post_send(); EINVAL (the VQP is not an unconnected one, or the
 * peer is another device's), EMFILE also if the user has max_vqp VQPs: an unconnected one
 * counts for each peer that it keeps a VQP for, too.
 */
int weft_post_send_to(const struct weft_vqp *vqp, const struct weft_peer *peer, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad_wr);

/*
 * Posts chains of several VQPs, or to several peers: 128 requests are one system call. The
 * chains are posted in the order of the list. Each says in bad_wr and error what
 * weft_post_send() or weft_post_send_to() would have said; one that cannot be posted does
 * not stop the others. Answers 0, or the first error of a chain.
 *
 * Errors: EINVAL (num_posts < 0, null pointers), those of the chains.
 */
int weft_post_list(const struct weft_cq *cq, struct weft_post *posts, int num_posts);

/*
 * Posts a chain of receive buffers, as ibv_post_recv(): each takes one message, or
 * one IBV_WR_RDMA_WRITE_WITH_IMM, which leaves its memory alone. Regions need
 * IBV_ACCESS_LOCAL_WRITE. Takes no system call. *bad_wr is written on error only.
 *
 * Errors: EINVAL (num_sge over max_recv_sge, sg_list, the VQP has no receive queue or an
 * SRQ, or null pointers, when *bad_wr is not written), ENOMEM (max_recv_wr buffers are
 * posted).
 */
int weft_post_recv(const struct weft_vqp *vqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/*
 * Takes completions off a CQ without waiting and without a system call, as
 * ibv_poll_cq(): returns how many, at most num_entries, or a negative errno value. The CQ
 * of a VQP, also if it is its own, is weft_vqp_cq().
 * Of a completion these are set: wr_id, status, opcode, byte_len (0 if it failed),
 * qp_num, which is the VQP's weft_vqp_num(); imm_data (in network order) where wc_flags
 * has IBV_WC_WITH_IMM; src_qp of a message to a bound VQP, for weft_accept(), else of a
 * message WEFT_SRC_NONE, and of a request of an unconnected VQP the peer's number;
 * vendor_err is the module's number where status is IBV_WC_GENERAL_ERR; the other
 * fields are zero. ibv_wc_status_str() of libibverbs names the status.
 *
 * Errors: -EINVAL (num_entries < 0, null pointers).
 */
int weft_poll_cq(const struct weft_cq *cq, int num_entries, struct ibv_wc *wc);

/*
 * As weft_poll_cq(), but sleeps until there is a completion or timeout_ms
 * milliseconds are over, in which case it returns 0; so it does if another thread
 * took what came. -1 is the longest wait, one hour.
 *
 * Errors: as weft_poll_cq(), and -EINTR (a signal came first), -EBADF.
 */
int weft_wait_cq(const struct weft_cq *cq, int num_entries, struct ibv_wc *wc, int timeout_ms);

/*
 * weft_post_send(), then waiting until the VQP's CQ has min_complete completions, for at
 * most timeout_ms milliseconds (-1: one hour), then weft_poll_cq(): in one system call for
 * a chain that fits (128 requests; of a VQP with a CQ of its own, max_send_wr). wr may be
 * NULL: nothing to post. The completions are those of the CQ, of whichever VQP.
 * While it waits with a chain, other threads cannot post on the VQPs of the CQ; they can
 * with weft_post_send() and weft_wait_cq() instead.
 *
 * Returns how many completions were taken, which is less than min_complete if
 * time was over or a signal came. *bad_wr is always written: NULL if all requests
 * were posted, else the first that was not. A queue that gets full is no error
 * if anything was posted or taken: post from *bad_wr on with the next call.
 *
 * Errors: as weft_post_send(), as negative numbers; requests before *bad_wr were
 * posted, nothing was taken. -EINVAL (min_complete < 0, or more than num_entries or
 * than the CQ has room for; null pointers; *bad_wr is not written then), -EINTR.
 */
int weft_enter(const struct weft_vqp *vqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr,
	       int min_complete, int num_entries, struct ibv_wc *wc, int timeout_ms);

/*
 * weft_post_list(), then waiting until the CQ has min_complete completions, then
 * weft_poll_cq(), as weft_enter(). The chains say what became of them; it does not wait if
 * one has failed, unless because a queue is full. posts may be NULL if num_posts is 0.
 *
 * Returns how many completions were taken. Errors: as weft_wait_cq(), -EINVAL also as of
 * weft_enter() and weft_post_list(), -EINTR (what was posted stays posted; the chains say
 * what was).
 */
int weft_enter_list(const struct weft_cq *cq, struct weft_post *posts, int num_posts,
		    int min_complete, int num_entries, struct ibv_wc *wc, int timeout_ms);

/*
 * Takes messages off a bound VQP's queue (qpop_msgs of KRCore), and waits for the first
 * one for at most timeout_ms milliseconds (0: does not wait; -1: one hour). Returns how
 * many, at most num_msgs. Each comes with a VQP connected to its sender, made when the
 * first message of that sender is taken, with the bound one's capabilities but no
 * receive queue and with a CQ of their own. Those VQPs are the bound one's: they must not
 * be destroyed, and go with it or with weft_forget(). At most 128 are kept; none is pushed
 * out by another, so that no answer is lost: when there are as many, a message of one more
 * sender comes with error EMFILE and no VQP. Forget a sender, then weft_accept(), or take
 * its next message. ENOENT: the sender is not known any more.
 *
 * The bound VQP must have a CQ of its own, and so no SRQ: its CQ holds its messages alone. With
 * another it is EINVAL, and weft_poll_cq() and weft_accept() do the same.
 *
 * Errors: as weft_wait_cq(), -EINVAL.
 */
int weft_pop_msgs(const struct weft_vqp *bound, int num_msgs, struct weft_msg *msgs, int timeout_ms);

/*
 * Destroys the VQP that weft_pop_msgs() has made for a sender; src is src_qp of its
 * messages. Errors: ENOENT (there is none).
 */
int weft_forget(const struct weft_vqp *bound, uint32_t src);

/*
 * What an errno value means when it comes from here. Either sign will do. The
 * string is static.
 */
const char *weft_strerror(int error);

#ifdef __cplusplus
}
#endif

#endif /* WEFT_H */
