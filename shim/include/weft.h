/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * libweft: RDMA connections in microseconds, from C.
 *
 * A device is a session with the kernel module (/dev/weft) on one node, a node
 * being an RDMA port. Memory is registered with a device. A VQP (virtual queue
 * pair) is made on a device, connects to a node by its GID in microseconds, and
 * then carries READs, WRITEs, atomic operations and messages, reliably and in
 * order. Each VQP has its own completion queue and its own receive queue. A VQP
 * that is bound to a port of its node gets messages from any number of senders,
 * and a VQP connected back to each of them.
 *
 * Work requests and completions are those of <infiniband/verbs.h>; programs need
 * that header, but not to be linked with libibverbs.
 *
 * Errors are reported as by verbs, unless a function says otherwise: functions
 * that make something return NULL and set errno, others return 0 or an errno
 * value. weft_strerror() explains the value. A null pointer where something is
 * needed is EINVAL. Any other wrong pointer is undefined behaviour.
 *
 * Threads may use one object at the same time, except while it is destroyed.
 * What is made from a device keeps the session open, so that the order in which
 * things are destroyed does not matter. A session is a file: it is shared with
 * children after fork(), and closed by execve(). The queues of a VQP are not
 * mapped in a child: it must not use its parent's VQPs, and makes its own.
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
#define WEFT_ABI_VERSION 0

/* In a completion: nobody that a VQP can be connected to. */
#define WEFT_SRC_NONE UINT32_MAX

struct weft_device;
struct weft_vqp;

/* Registered memory. Only to be read. */
struct weft_mr {
	void *addr;
	size_t length;	/* bytes */
	uint32_t lkey;	/* names it in this session's requests */
	uint32_t rkey;	/* names it in peers' requests */
};

/* What a device has and allows. */
struct weft_device_attr {
	union ibv_gid gid;	/* of its node: what peers connect to */
	uint64_t max_mr_size;	/* bytes of one region */
	uint32_t node;		/* index of its node */
	uint32_t node_count;	/* nodes that the host had at weft_open_device() */
	uint32_t max_nodes;	/* node indices are less than this */
	uint32_t max_vqp;	/* VQPs of one device */
	uint32_t max_vqp_wr;	/* requests outstanding on one VQP */
	uint32_t max_sge;	/* elements of one request */
	uint32_t max_mr;	/* regions of one device */
	uint32_t max_msg_sz;	/* bytes that one request may move */
	uint32_t max_inline_data; /* bytes of one request */
	uint32_t max_recv_wr;	/* receive buffers posted on one VQP */
	uint32_t max_recv_sge;	/* elements of one receive buffer */
	uint32_t max_port;	/* ports are 1 to this */
	uint32_t reserved[6];	/* zero */
};

/* An RDMA port that Weft runs on. */
struct weft_node_attr {
	union ibv_gid gid;	/* its address */
	uint64_t netns;		/* inode number of its network namespace */
	char device[64];	/* the RDMA device's name */
	uint32_t index;		/* for weft_open_device() */
	uint32_t port;		/* the RDMA device's port */
	uint32_t dct_number;	/* its DC target */
	uint32_t incarnation;	/* changes with each load of the module */
	uint32_t udp_port;	/* of its software DC transport */
	uint32_t vqps;		/* that exist on it, of all sessions */
	uint32_t mrs;		/* that exist on it, of all sessions */
	uint32_t cached_peers;	/* in its DCCache */
	uint32_t published;	/* 1: its record is at a meta server */
	uint32_t reserved[7];	/* zero */
};

/*
 * What a VQP is made with. Clear it before setting fields. As in verbs, cap is
 * both what is asked for and, after success, what was given, which is no less.
 */
struct weft_vqp_init_attr {
	void *vqp_context;	/* for weft_vqp_context() */
	struct ibv_qp_cap cap;	/* max_send_wr: 1 to max_vqp_wr; max_recv_wr: 0 if it
				 * will not receive; others: at most as in struct
				 * weft_device_attr */
	int sq_sig_all;		/* not 0: every request is signalled */
	uint32_t reserved[8];	/* must be zero */
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

/* Gives the device up. Its VQPs and regions stay until they are destroyed. */
int weft_close_device(struct weft_device *device);

/* Errors: ENODEV (the node went away). */
int weft_query_device(const struct weft_device *device, struct weft_device_attr *attr);

/*
 * The device's file descriptor, to wait with poll() or epoll for completions of all
 * its VQPs: readable while there are some that were not taken; POLLHUP when the node
 * has gone. Wait, then take completions with weft_poll_cq() or weft_pop_msgs() until
 * none is left. The descriptor stays the device's: do not close it.
 * Returns -1 and sets errno on error.
 */
int weft_device_fd(const struct weft_device *device);

/*
 * Describes a node of this host; -1 is the device's own. Indices may have gaps,
 * since RDMA devices come and go.
 *
 * Errors: ENODEV (no node has this index), EINVAL (node < -1).
 */
int weft_query_node(const struct weft_device *device, int node, struct weft_node_attr *attr);

/*
 * Registers memory. Its pages are pinned and count against RLIMIT_MEMLOCK. access
 * is made of enum ibv_access_flags: IBV_ACCESS_LOCAL_WRITE (this session's READs
 * may land in it), IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE and
 * IBV_ACCESS_REMOTE_ATOMIC (both need LOCAL_WRITE); 0 lets this session's WRITEs
 * read it. Others are EINVAL.
 *
 * Errors: EINVAL (length of 0 or more than max_mr_size, access), EFAULT (not all
 * of it is mapped, or it is read-only), ENOMEM (RLIMIT_MEMLOCK, or memory),
 * EMFILE (max_mr reached), ENODEV (the node went away).
 */
struct weft_mr *weft_reg_mr(const struct weft_device *device, void *addr, size_t length, int access);

/*
 * Deregisters memory; requests that still use it fail. When this returns no
 * request touches the memory any more.
 */
int weft_dereg_mr(struct weft_mr *mr);

/*
 * Makes a VQP. It has to be connected before requests can be posted, or bound to
 * receive from anybody. Receive buffers can be posted at any time. Its queues count
 * against RLIMIT_MEMLOCK.
 *
 * Errors: EINVAL (attr), EMFILE (max_vqp reached), ENOMEM, ENODEV (the node went
 * away).
 */
struct weft_vqp *weft_create_vqp(const struct weft_device *device, struct weft_vqp_init_attr *attr);

/*
 * Destroys a VQP, and those that weft_pop_msgs() has made for it. Outstanding
 * requests are dropped without completions.
 */
int weft_destroy_vqp(struct weft_vqp *vqp);

/*
 * Connects to a node; nothing is sent to it. port is where messages go, 1 to
 * max_port; 0: none will be sent. A VQP is connected once.
 *
 * Errors: EISCONN (connected already), EINVAL (zero GID, no such port, a VQP that is
 * bound), EHOSTUNREACH (no meta
 * server knows the GID), EAGAIN (no meta server is connected and the peer is not
 * cached), ETIMEDOUT (the meta server did not answer), EINTR (a signal came before the
 * answer, and its handler does not have calls restarted: nothing has changed), ENODEV
 * (the local node went away), EBADF.
 */
int weft_qconnect(const struct weft_vqp *vqp, const union ibv_gid *gid, uint32_t port);

/*
 * Binds a new VQP to a port of the node, 1 to max_port: messages that are sent there
 * arrive at it, whoever sends them. Its max_recv_wr must not be 0. It can then only
 * receive.
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
 * (bound is not bound).
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
 * opcode: IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_CMP_AND_SWP,
 * IBV_WR_ATOMIC_FETCH_AND_ADD (on aligned 8-byte words); on a VQP that is connected
 * to a port, or was accepted: IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
 * IBV_WR_RDMA_WRITE_WITH_IMM. num_sge: at most max_sge. send_flags:
 * IBV_SEND_SIGNALED; IBV_SEND_INLINE (the data is copied now, at most
 * max_inline_data bytes, and needs no region; not for READs and atomic operations);
 * IBV_SEND_SOLICITED means nothing here and is ignored.
 * What is wrong with keys, addresses or lengths shows as a completion with an
 * error, after which the VQP flushes all later requests. A request that is not
 * signalled makes a completion only if it fails.
 *
 * Errors: EOPNOTSUPP (opcode), EINVAL (num_sge, sg_list, send_flags, too much inline
 * data, or null pointers, when *bad_wr is not written), ENOMEM (the queue is full:
 * poll, then post from *bad_wr on), ENOTCONN (not connected), EBADF.
 */
int weft_post_send(const struct weft_vqp *vqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

/*
 * Posts a chain of receive buffers, as ibv_post_recv(): each takes one message, or
 * one IBV_WR_RDMA_WRITE_WITH_IMM, which leaves its memory alone. Regions need
 * IBV_ACCESS_LOCAL_WRITE. Takes no system call. *bad_wr is written on error only.
 *
 * Errors: EINVAL (num_sge over max_recv_sge, sg_list, max_recv_wr of the VQP is 0, or
 * null pointers, when *bad_wr is not written), ENOMEM (max_recv_wr buffers are
 * posted).
 */
int weft_post_recv(const struct weft_vqp *vqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/*
 * Takes completions off the queue without waiting and without a system call, as
 * ibv_poll_cq(): returns how many, at most num_entries, or a negative errno value.
 * Of a completion these are set: wr_id, status, opcode, byte_len (0 if it failed),
 * qp_num; imm_data (in network order) where wc_flags has IBV_WC_WITH_IMM; src_qp of a
 * message to a bound VQP, for weft_accept(), else of a message WEFT_SRC_NONE;
 * vendor_err is the module's number where status is IBV_WC_GENERAL_ERR; the other
 * fields are zero. ibv_wc_status_str() of libibverbs names the status.
 *
 * Errors: -EINVAL (num_entries < 0, null pointers).
 */
int weft_poll_cq(const struct weft_vqp *vqp, int num_entries, struct ibv_wc *wc);

/*
 * As weft_poll_cq(), but sleeps until there is a completion or timeout_ms
 * milliseconds are over, in which case it returns 0; so it does if another thread
 * took what came. -1 is the longest wait, one hour.
 *
 * Errors: as weft_poll_cq(), and -EINTR (a signal came first), -EBADF.
 */
int weft_wait_cq(const struct weft_vqp *vqp, int num_entries, struct ibv_wc *wc, int timeout_ms);

/*
 * weft_post_send(), then waiting for min_complete completions for at most
 * timeout_ms milliseconds (-1: one hour), then weft_poll_cq(): in one system
 * call for chains of at most max_send_wr requests. wr may be NULL: nothing to post.
 * While it waits with a chain, other threads cannot post on this VQP; they can with
 * weft_post_send() and weft_wait_cq() instead.
 *
 * Returns how many completions were taken, which is less than min_complete if
 * time was over or a signal came. *bad_wr is always written: NULL if all requests
 * were posted, else the first that was not. A queue that gets full is no error
 * if anything was posted or taken: post from *bad_wr on with the next call.
 *
 * Errors: as weft_post_send(), as negative numbers; requests before *bad_wr were
 * posted, nothing was taken. -EINVAL (min_complete < 0, or more than num_entries or
 * than max_send_wr and max_recv_wr together; null pointers; *bad_wr is not written
 * then), -EINTR.
 */
int weft_enter(const struct weft_vqp *vqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr,
	       int min_complete, int num_entries, struct ibv_wc *wc, int timeout_ms);

/*
 * Takes messages off a bound VQP's queue (qpop_msgs of KRCore), and waits for the first
 * one for at most timeout_ms milliseconds (0: does not wait; -1: one hour). Returns how
 * many, at most num_msgs. Each comes with a VQP connected to its sender, made when the
 * first message of that sender is taken, with the bound one's capabilities but no
 * receive queue. Those VQPs are the bound one's: they must not be destroyed, and go
 * with it or with weft_forget(). At most 128 are kept; then error is EMFILE. ENOENT: the
 * sender is not known any more.
 *
 * Errors: as weft_wait_cq().
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
