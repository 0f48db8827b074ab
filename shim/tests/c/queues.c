/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * What weft.h promises of queues that VQPs share, of unconnected VQPs and of structs that
 * grow: prints `ok NAME` or `not ok NAME` for each promise. Two nodes of one host with a
 * meta server.
 */

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <weft.h>

#define VQPS 16
#define WORDS 64
#define PORT 4720
/* Longest wait for what has to come. */
#define PATIENCE_MS 60000

static int failures;
static uint64_t local[WORDS], remote[WORDS];
static struct weft_device *device, *peer;
static struct weft_mr *mr, *target;
static struct weft_device_attr attr = { .size = sizeof(attr) }, peer_attr = { .size = sizeof(peer_attr) };
static struct ibv_sge sges[WORDS];
static struct ibv_send_wr wrs[WORDS], *bad;
static struct ibv_wc wcs[WORDS];

static void check(const char *name, bool passed)
{
	printf("%sok c-abi, queues: %s\n", passed ? "" : "not ", name);
	failures += !passed;
}

static void is(const char *name, long got, long wanted)
{
	check(name, got == wanted);
	if (got != wanted)
		printf("#   got %ld, wanted %ld\n", got, wanted);
}

/* A function that makes something made nothing, and said why. */
static void refused(const char *name, void *made, int wanted)
{
	is(name, made ? 0 : errno, wanted);
}

static void *needed(const char *name, void *made)
{
	if (!made) {
		check(name, false);
		printf("#   %s\n", weft_strerror(errno));
		exit(1);
	}
	return made;
}

/* One signalled request of one word, between words with this index. */
static struct ibv_send_wr *request(enum ibv_wr_opcode opcode, int at)
{
	sges[at] = (struct ibv_sge) { .addr = (uintptr_t)&local[at], .length = 8, .lkey = mr->lkey };
	wrs[at] = (struct ibv_send_wr) {
		.wr_id = UINT64_MAX - at,
		.sg_list = &sges[at],
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = (uintptr_t)&remote[at],
		.wr.rdma.rkey = target->rkey,
	};
	return &wrs[at];
}

/* A VQP on queues that is connected at once; port as of weft_qconnect(). */
static struct weft_vqp *vqp_on(struct weft_cq *cq, struct weft_srq *srq, uint32_t max_recv_wr, uint32_t port)
{
	struct weft_vqp_init_attr init = {
		.size = sizeof(init),
		.cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = 8, .max_recv_wr = max_recv_wr },
		.port = port,
		.gid = &peer_attr.gid,
	};

	return needed("a connected VQP", weft_create_vqp(device, &init));
}

static struct weft_cq *cq_of(struct weft_device *node, int cqe)
{
	return needed("a CQ", weft_create_cq(node, cqe, &failures));
}

static void set_up(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	int i;

	peer = needed("node 1", weft_open_device(1));
	device = needed("node 0", weft_open_device(0));
	if (weft_query_device(device, &attr) || weft_query_device(peer, &peer_attr))
		exit(2);
	mr = needed("memory", weft_reg_mr(device, local, sizeof(local), IBV_ACCESS_LOCAL_WRITE));
	target = needed("a target", weft_reg_mr(peer, remote, sizeof(remote), access));
	for (i = 0; i < WORDS; i++)
		local[i] = 7000 + i;
}

/* One CQ for many VQPs: posted in one call, polled together. */
static void shared_cq(void)
{
	struct weft_cq *cq = cq_of(device, 256);
	struct weft_vqp *vqps[VQPS];
	struct weft_post posts[VQPS] = { 0 };
	bool once[VQPS] = { false }, all = true, own_number = true;
	int i, got, at;

	check("a CQ has its context", weft_cq_context(cq) == &failures);
	for (i = 0; i < VQPS; i++) {
		vqps[i] = vqp_on(cq, NULL, 0, 0);
		posts[i] = (struct weft_post) { .vqp = vqps[i], .wr = request(IBV_WR_RDMA_WRITE, i), .error = -1 };
	}
	check("its VQPs say which", weft_vqp_cq(vqps[0]) == cq && weft_vqp_cq(vqps[VQPS - 1]) == cq);
	got = weft_enter_list(cq, posts, VQPS, VQPS, WORDS, wcs, PATIENCE_MS);
	is("one WRITE of each, in one call", got, VQPS);
	for (i = 0; i < got; i++) {
		at = UINT64_MAX - wcs[i].wr_id;
		all &= at < VQPS && !once[at] && wcs[i].status == IBV_WC_SUCCESS;
		own_number &= at < VQPS && wcs[i].qp_num == weft_vqp_num(vqps[at]);
		if (at < VQPS)
			once[at] = true;
	}
	check("each has completed once, with all bits of its wr_id", all);
	check("qp_num says whose it is", own_number);
	check("all words arrived", memcmp(local, remote, 8 * VQPS) == 0);
	check("each post says that it went", posts[0].error == 0 && !posts[0].bad_wr && posts[VQPS - 1].error == 0);

	is("posting without waiting", weft_post_list(cq, posts, VQPS), 0);
	for (got = 0; got < VQPS; got += at) {
		at = weft_wait_cq(cq, WORDS, wcs, PATIENCE_MS);
		if (at <= 0)
			break;
	}
	is("and waiting for all", got, VQPS);
	is("one VQP alone", weft_enter(vqps[3], request(IBV_WR_RDMA_READ, 3), &bad, 1, 1, wcs, PATIENCE_MS), 1);
	check("is one of the CQ", wcs[0].qp_num == weft_vqp_num(vqps[3]) && wcs[0].opcode == IBV_WC_RDMA_READ);
	is("a CQ in use", weft_destroy_cq(cq), EBUSY);
	is("it works still", weft_enter(vqps[4], request(IBV_WR_RDMA_READ, 4), &bad, 1, 1, wcs, PATIENCE_MS), 1);
	for (i = 0; i < VQPS; i++)
		weft_destroy_vqp(vqps[i]);
	is("a CQ that nobody uses", weft_destroy_cq(cq), 0);
}

/* A chain that cannot be posted holds no other up. */
/* An eventfd hears of a CQ's completions. */
static void completion_channel(void)
{
	struct weft_cq *cq = cq_of(device, 8);
	struct weft_vqp *vqp = vqp_on(cq, NULL, 0, 0);
	int eventfd_of_it = eventfd(0, EFD_NONBLOCK);
	uint64_t signals = 0;

	is("an eventfd for a CQ", weft_notify_cq(cq, eventfd_of_it, 1, 0), 0);
	is("it says nothing yet", read(eventfd_of_it, &signals, 8), -1);
	request(IBV_WR_RDMA_WRITE, 0);
	is("a WRITE", weft_post_send(vqp, wrs, &bad), 0);
	is("it hears of it", poll(&(struct pollfd) { eventfd_of_it, POLLIN, 0 }, 1, PATIENCE_MS), 1);
	check("once", read(eventfd_of_it, &signals, 8) == 8 && signals == 1);
	is("there it is", weft_poll_cq(cq, 8, wcs), 1);
	is("for several, whenever they come", weft_notify_cq(cq, eventfd_of_it, 2, 0), EINVAL);
	is("for none", weft_notify_cq(cq, eventfd_of_it, 0, 0), EINVAL);
	is("with no descriptor", weft_notify_cq(cq, 9999, 1, 0), EBADF);
	is("with one below -1", weft_notify_cq(cq, -2, 1, 0), EBADF);
	is("with another file", weft_notify_cq(cq, weft_device_fd(device), 1, 0), EINVAL);
	is("of NULL", weft_notify_cq(NULL, eventfd_of_it, 1, 0), EINVAL);
	is("for two, or in time", weft_notify_cq(cq, eventfd_of_it, 2, 1000), 0);
	is("none any more", weft_notify_cq(cq, -1, 0, 0), 0);
	is("its CQ goes", close(eventfd_of_it) || weft_destroy_vqp(vqp) || weft_destroy_cq(cq), 0);
}

static void lists(void)
{
	struct weft_cq *cq = cq_of(device, 64), *foreign = cq_of(peer, 8);
	struct weft_vqp *good = vqp_on(cq, NULL, 0, 0), *bound_to_fail = vqp_on(cq, NULL, 0, 0);
	struct weft_vqp_init_attr alone = { .size = sizeof(alone), .cq = cq, .cap = { .max_send_wr = 8 } };
	struct weft_vqp *lonely = needed("a VQP that is not connected", weft_create_vqp(device, &alone));
	struct weft_post posts[5] = {
		{ .vqp = bound_to_fail, .wr = request(IBV_WR_TSO, 0) },
		{ .vqp = lonely, .wr = request(IBV_WR_RDMA_WRITE, 1) },
		{ .vqp = NULL, .wr = request(IBV_WR_RDMA_WRITE, 2) },
		{ .vqp = good, .wr = NULL },
		{ .vqp = good, .wr = request(IBV_WR_RDMA_WRITE, 3) },
	};

	is("a list with errors says the first", weft_post_list(cq, posts, 5), EOPNOTSUPP);
	check("and each its own", posts[0].error == EOPNOTSUPP && posts[1].error == ENOTCONN &&
	      posts[2].error == EINVAL && posts[3].error == 0 && posts[4].error == 0);
	check("bad_wr is what was not posted", posts[0].bad_wr == &wrs[0] && posts[1].bad_wr == &wrs[1] &&
	      !posts[3].bad_wr && !posts[4].bad_wr);
	is("the good one went", weft_wait_cq(cq, 8, wcs, PATIENCE_MS), 1);
	check("and is done", wcs[0].wr_id == UINT64_MAX - 3 && wcs[0].status == IBV_WC_SUCCESS);
	is("no list", weft_post_list(cq, NULL, 1), EINVAL);
	is("an empty one", weft_post_list(cq, NULL, 0), 0);
	is("a list of less than nothing", weft_post_list(cq, posts, -1), EINVAL);
	is("a list on NULL", weft_post_list(NULL, posts, 1), EINVAL);
	is("a list by way of another device", weft_post_list(foreign, &posts[4], 1), EINVAL);
	alone.cq = foreign;
	refused("a VQP on another device's CQ", weft_create_vqp(device, &alone), EINVAL);
	posts[4].reserved = 1;
	is("a reserved field", weft_post_list(cq, &posts[4], 1), EINVAL);

	wrs[3].wr.rdma.rkey ^= 1;
	is("a wrong key", weft_enter(bound_to_fail, &wrs[3], &bad, 1, 1, wcs, PATIENCE_MS), 1);
	check("is one VQP's error", wcs[0].status == IBV_WC_REM_ACCESS_ERR);
	is("and no other's", weft_enter(good, request(IBV_WR_RDMA_WRITE, 4), &bad, 1, 1, wcs, PATIENCE_MS), 1);
	is("which works", wcs[0].status, IBV_WC_SUCCESS);
	weft_destroy_vqp(good);
	weft_destroy_vqp(bound_to_fail);
	weft_destroy_vqp(lonely);
	is("both CQs go", weft_destroy_cq(cq) || weft_destroy_cq(foreign), 0);
}

/* The completions of a VQP go with it, and no others. */
static void destroyed(void)
{
	struct weft_cq *cq = cq_of(device, 64);
	struct weft_vqp *goes = vqp_on(cq, NULL, 0, 0), *stays = vqp_on(cq, NULL, 0, 0);
	uint32_t number = weft_vqp_num(stays);
	struct weft_post posts[6];
	int i, got = 0;

	for (i = 0; i < 6; i++)
		posts[i] = (struct weft_post) { .vqp = i % 2 ? stays : goes, .wr = request(IBV_WR_RDMA_WRITE, i) };
	is("six requests of two VQPs", weft_post_list(cq, posts, 6), 0);
	/* All are there, and none is taken. */
	is("all are done", weft_enter_list(cq, NULL, 0, 0, 0, NULL, 0), 0);
	usleep(200000);
	is("a VQP goes", weft_destroy_vqp(goes), 0);
	while (got < 3 && (i = weft_wait_cq(cq, WORDS - got, wcs + got, PATIENCE_MS)) > 0)
		got += i;
	is("the other's are left", got, 3);
	check("and are its own, in order", wcs[0].qp_num == number && wcs[0].wr_id == UINT64_MAX - 1 &&
	      wcs[1].wr_id == UINT64_MAX - 3 && wcs[2].wr_id == UINT64_MAX - 5);
	is("nothing more comes", weft_wait_cq(cq, 8, wcs, 100), 0);
	weft_destroy_vqp(stays);
	is("the CQ goes", weft_destroy_cq(cq), 0);
}

/* A CQ that is too small makes senders wait, and loses nothing. */
static void small_cq(void)
{
	/* It has room for four. */
	struct weft_cq *cq = cq_of(device, 3);
	struct weft_vqp *one = vqp_on(cq, NULL, 0, 0), *two = vqp_on(cq, NULL, 0, 0);
	struct ibv_send_wr *next;
	int i, posted = 0, got = 0;

	for (i = 0; i < 6; i++)
		request(IBV_WR_RDMA_WRITE, i)->next = i < 5 ? &wrs[i + 1] : NULL;
	is("more than a CQ has room for", weft_post_send(one, wrs, &bad), ENOMEM);
	check("what fitted was posted", bad == &wrs[4]);
	request(IBV_WR_RDMA_WRITE, 9);
	is("there is no room for others either", weft_post_send(two, &wrs[9], &next), ENOMEM);
	is("more cannot be waited for than fit", weft_enter(one, NULL, NULL, 5, 8, wcs, 0), -EINVAL);
	while (bad && (i = weft_enter(one, bad, &bad, 1, WORDS, wcs, PATIENCE_MS)) > 0)
		posted += i;
	for (got = posted; got < 6 && (i = weft_wait_cq(cq, WORDS, wcs, PATIENCE_MS)) > 0;)
		got += i;
	is("in the end all are done", got, 6);
	is("and others have room", weft_enter(two, &wrs[9], &bad, 1, 1, wcs, PATIENCE_MS), 1);
	wrs[3].next = NULL;
	is("as many as fit can be waited for", weft_enter(one, wrs, &bad, 4, WORDS, wcs, PATIENCE_MS), 4);
	weft_destroy_vqp(one);
	weft_destroy_vqp(two);
	is("it goes", weft_destroy_cq(cq), 0);
	refused("a CQ of no entries", weft_create_cq(device, 0, NULL), EINVAL);
	refused("a CQ of less", weft_create_cq(device, -1, NULL), EINVAL);
	refused("a CQ of too many", weft_create_cq(device, attr.max_cqe + 1, NULL), EINVAL);
	refused("a CQ of no device", weft_create_cq(NULL, 8, NULL), EINVAL);
	is("no CQ", weft_destroy_cq(NULL), EINVAL);
	check("the context of none", !weft_cq_context(NULL));
}

static int receives(struct weft_srq *srq, struct weft_vqp *vqp, uint64_t first, int count)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&remote[32], .length = 64, .lkey = target->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	int i, error = 0;

	for (i = 0; i < count && !error; i++) {
		wr.wr_id = first + i;
		error = srq ? weft_post_srq_recv(srq, &wr, &bad_recv) : weft_post_recv(vqp, &wr, &bad_recv);
	}
	return error;
}

static struct weft_vqp *bound_on(struct weft_cq *cq, struct weft_srq *srq, uint32_t max_recv_wr, uint32_t port)
{
	struct weft_vqp_init_attr init = {
		.size = sizeof(init),
		.cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = 8, .max_recv_wr = max_recv_wr },
	};
	struct weft_vqp *vqp = needed("a VQP to bind", weft_create_vqp(peer, &init));

	if (weft_bind(vqp, port))
		check("binding", false);
	return vqp;
}

/* Sends one message to a port. */
static bool sends(uint32_t port)
{
	struct weft_vqp *vqp = vqp_on(NULL, NULL, 0, port);
	bool sent = weft_enter(vqp, request(IBV_WR_SEND, 0), &bad, 1, 1, wcs, PATIENCE_MS) == 1 &&
		    wcs[0].status == IBV_WC_SUCCESS;

	weft_destroy_vqp(vqp);
	return sent;
}

/* Two ports, one pool of buffers. */
static void shared_srq(void)
{
	struct weft_srq_init_attr init = { .size = sizeof(init), .srq_context = &failures, .attr = { .max_wr = 4 } };
	struct weft_cq *cq = cq_of(peer, 16);
	struct weft_srq *srq = needed("an SRQ", weft_create_srq(peer, &init));
	struct weft_vqp *one = bound_on(cq, srq, 0, PORT), *two = bound_on(cq, srq, 0, PORT + 1), *back;
	struct weft_vqp_init_attr answer = { .size = sizeof(answer), .cq = cq, .cap = { .max_send_wr = 4 } };
	struct weft_msg msg;
	uint32_t first, second;

	check("an SRQ has its context, and elements as it can", weft_srq_context(srq) == &failures &&
	      init.attr.max_sge == attr.max_recv_sge && init.attr.max_wr == 4);
	is("four buffers", receives(srq, NULL, 100, 4), 0);
	is("a fifth", receives(srq, NULL, 104, 1), ENOMEM);
	is("posting to a VQP that has an SRQ", receives(NULL, one, 1, 1), EINVAL);
	check("two messages to two ports", sends(PORT) && sends(PORT + 1));
	is("the first", weft_wait_cq(cq, 1, wcs, PATIENCE_MS), 1);
	is("takes the first buffer", wcs[0].wr_id, 100);
	first = wcs[0].qp_num;
	is("the second", weft_wait_cq(cq, 1, wcs, PATIENCE_MS), 1);
	is("takes the next", wcs[0].wr_id, 101);
	second = wcs[0].qp_num;
	check("each at its VQP", first == weft_vqp_num(one) && second == weft_vqp_num(two));
	back = weft_accept(two, wcs[0].src_qp, &answer);
	check("a sender is accepted onto the same CQ", back && weft_vqp_cq(back) == cq);
	is("messages are not popped off a CQ of many", weft_pop_msgs(two, 1, &msg, 0), -EINVAL);
	is("an SRQ in use", weft_destroy_srq(srq), EBUSY);

	check("a third message", sends(PORT));
	usleep(200000);
	is("its VQP goes before it is taken", weft_destroy_vqp(one), 0);
	is("the buffer comes back all the same", weft_wait_cq(cq, 1, wcs, PATIENCE_MS), 1);
	check("with the number of the VQP that is gone", wcs[0].wr_id == 102 && wcs[0].qp_num == first);
	is("the others go", weft_destroy_vqp(two) || weft_destroy_vqp(back), 0);
	is("and the SRQ", weft_destroy_srq(srq), 0);
	is("and the CQ", weft_destroy_cq(cq), 0);
	init.attr.max_wr = 0;
	refused("an SRQ of no buffers", weft_create_srq(peer, &init), EINVAL);
	init.attr.max_wr = attr.max_srq_wr + 1;
	refused("an SRQ of too many", weft_create_srq(peer, &init), EINVAL);
	init.attr = (struct ibv_srq_attr) { .max_wr = 1, .max_sge = attr.max_recv_sge + 1 };
	refused("an SRQ of too many elements", weft_create_srq(peer, &init), EINVAL);
	refused("an SRQ like NULL", weft_create_srq(peer, NULL), EINVAL);
	is("no SRQ", weft_destroy_srq(NULL), EINVAL);
	is("receiving on none", weft_post_srq_recv(NULL, NULL, NULL), EINVAL);
}

/* A receive queue of its own and a CQ of many; all of its own; an SRQ alone. */
static void mixed(void)
{
	struct weft_srq_init_attr init = { .size = sizeof(init), .attr = { .max_wr = 4 } };
	struct weft_cq *cq = cq_of(peer, 16);
	struct weft_srq *srq = needed("an SRQ", weft_create_srq(peer, &init));
	struct weft_vqp *own_rq = bound_on(cq, NULL, 2, PORT + 2), *own_cq = bound_on(NULL, NULL, 1, PORT + 3);
	struct weft_vqp_init_attr no_cq = { .size = sizeof(no_cq), .srq = srq, .cap = { .max_send_wr = 8 } };
	struct weft_msg msg;

	is("two buffers of its own", receives(NULL, own_rq, 200, 2), 0);
	is("a third", receives(NULL, own_rq, 202, 1), ENOMEM);
	check("a message to it", sends(PORT + 2));
	is("arrives in the CQ", weft_wait_cq(cq, 8, wcs, PATIENCE_MS), 1);
	check("in its buffer", wcs[0].wr_id == 200 && wcs[0].opcode == IBV_WC_RECV);
	is("a buffer of the other's", receives(NULL, own_cq, 300, 1), 0);
	check("a message to the other", sends(PORT + 3));
	is("is popped off the VQP's own CQ", weft_pop_msgs(own_cq, 1, &msg, PATIENCE_MS), 1);
	check("with its sender", msg.wc.wr_id == 300 && msg.from);
	is("a VQP's own CQ stays", weft_destroy_cq(weft_vqp_cq(own_cq)), EBUSY);
	refused("a VQP with an SRQ and no CQ", weft_create_vqp(peer, &no_cq), EINVAL);

	check("one more", sends(PORT + 2));
	usleep(200000);
	is("its VQP goes", weft_destroy_vqp(own_rq), 0);
	is("and with it what has arrived in its own buffers", weft_poll_cq(cq, 8, wcs), 0);
	is("all goes", weft_destroy_vqp(own_cq) || weft_destroy_cq(cq) || weft_destroy_srq(srq), 0);
}

/* One VQP, two peers. */
static void unconnected(void)
{
	struct weft_cq *cq = cq_of(device, 32);
	struct weft_vqp_init_attr init = {
		.size = sizeof(init),
		.cq = cq,
		.cap = { .max_send_wr = 4 },
		.flags = WEFT_VQP_UNCONNECTED,
	};
	struct weft_vqp *vqp = needed("an unconnected VQP", weft_create_vqp(device, &init));
	struct weft_vqp *connected = vqp_on(cq, NULL, 0, 0);
	struct weft_peer *to_peer = needed("a peer", weft_open_peer(device, &peer_attr.gid, 0));
	struct weft_peer *to_self = needed("another", weft_open_peer(device, &attr.gid, 0));
	struct weft_peer *foreign = needed("one of another device", weft_open_peer(peer, &attr.gid, 0));
	static uint64_t here[2];
	struct weft_mr *near = needed("memory of its own node", weft_reg_mr(device, here, sizeof(here),
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	struct weft_post posts[2] = { { .vqp = vqp, .peer = to_peer }, { .vqp = vqp, .peer = to_self } };
	union ibv_gid nobody = { .raw = { 0 } };
	int i, got;

	remote[20] = 0;
	is("a request to a peer", weft_post_send_to(vqp, to_peer, request(IBV_WR_RDMA_WRITE, 20), &bad), 0);
	is("ends", weft_wait_cq(cq, 1, wcs, PATIENCE_MS), 1);
	check("well, and says where it went", wcs[0].status == IBV_WC_SUCCESS && remote[20] == local[20] &&
	      wcs[0].qp_num == weft_vqp_num(vqp) && wcs[0].src_qp == weft_peer_num(to_peer));

	posts[0].wr = request(IBV_WR_RDMA_WRITE, 21);
	posts[1].wr = request(IBV_WR_RDMA_WRITE, 22);
	wrs[22].wr.rdma.remote_addr = (uintptr_t)&here[1];
	wrs[22].wr.rdma.rkey = near->rkey;
	is("requests to two peers in one call", weft_enter_list(cq, posts, 2, 2, 8, wcs, PATIENCE_MS), 2);
	check("both arrive", remote[21] == local[21] && here[1] == local[22]);

	request(IBV_WR_RDMA_WRITE, 23)->wr.rdma.rkey ^= 1;
	is("one that fails", weft_post_send_to(vqp, to_peer, &wrs[23], &bad), 0);
	is("says so", weft_wait_cq(cq, 1, wcs, PATIENCE_MS), 1);
	is("as it should", wcs[0].status, IBV_WC_REM_ACCESS_ERR);
	posts[0].wr = request(IBV_WR_RDMA_WRITE, 24);
	got = weft_enter_list(cq, posts, 2, 2, 8, wcs, PATIENCE_MS);
	is("the next to it and one to another", got, 2);
	for (i = 0; i < got; i++)
		if (wcs[i].src_qp == weft_peer_num(to_peer))
			is("that peer's is flushed", wcs[i].status, IBV_WC_WR_FLUSH_ERR);
		else
			is("the other's is done", wcs[i].status, IBV_WC_SUCCESS);
	is("closing the peer", weft_close_peer(to_peer), 0);
	to_peer = needed("opening it again", weft_open_peer(device, &peer_attr.gid, 0));
	is("posting to it again", weft_post_send_to(vqp, to_peer, request(IBV_WR_RDMA_WRITE, 24), &bad), 0);
	is("ends", weft_wait_cq(cq, 1, wcs, PATIENCE_MS), 1);
	is("well", wcs[0].status, IBV_WC_SUCCESS);

	is("posting to nobody", weft_post_send(vqp, &wrs[24], &bad), ENOTCONN);
	is("posting to NULL", weft_post_send_to(vqp, NULL, &wrs[24], &bad), EINVAL);
	is("posting to another device's peer", weft_post_send_to(vqp, foreign, &wrs[24], &bad), EINVAL);
	is("posting to a peer on a connected VQP", weft_post_send_to(connected, to_self, &wrs[24], &bad), EINVAL);
	is("connecting it", weft_qconnect(vqp, &peer_attr.gid, 0), EINVAL);
	init.gid = &peer_attr.gid;
	refused("an unconnected VQP that is connected", weft_create_vqp(device, &init), EINVAL);
	init.gid = NULL;
	init.flags = 2;
	refused("a flag that is none", weft_create_vqp(device, &init), EINVAL);
	init.flags = 0;
	init.port = 1;
	refused("a port of nobody", weft_create_vqp(device, &init), EINVAL);
	init.gid = &nobody;
	refused("a VQP to the zero GID", weft_create_vqp(device, &init), EINVAL);
	refused("a peer with the zero GID", weft_open_peer(device, &nobody, 0), EINVAL);
	nobody.raw[15] = 77;
	refused("a peer that is a stranger", weft_open_peer(device, &nobody, 0), EHOSTUNREACH);
	init.port = 0;
	refused("a VQP to a stranger", weft_create_vqp(device, &init), EHOSTUNREACH);
	refused("a peer of no device", weft_open_peer(NULL, &attr.gid, 0), EINVAL);
	refused("a peer without GID", weft_open_peer(device, NULL, 0), EINVAL);
	is("closing none", weft_close_peer(NULL), EINVAL);
	check("the number of none", weft_peer_num(NULL) == UINT32_MAX);
	is("all goes", weft_close_peer(to_peer) || weft_close_peer(to_self) || weft_close_peer(foreign) ||
	   weft_destroy_vqp(vqp) || weft_destroy_vqp(connected) || weft_destroy_cq(cq) || weft_dereg_mr(near), 0);
}

/* A message to a port by a peer handle. */
static void message_to_a_peer(void)
{
	struct weft_vqp_init_attr init = {
		.size = sizeof(init),
		.cap = { .max_send_wr = 4 },
		.flags = WEFT_VQP_UNCONNECTED,
	};
	struct weft_vqp *vqp = needed("an unconnected VQP", weft_create_vqp(device, &init));
	struct weft_peer *port = needed("a peer's port", weft_open_peer(device, &peer_attr.gid, PORT + 4));
	struct weft_vqp *bound = bound_on(NULL, NULL, 2, PORT + 4);
	struct weft_msg msg = { .from = NULL };

	is("a buffer", receives(NULL, bound, 400, 1), 0);
	is("a message", weft_post_send_to(vqp, port, request(IBV_WR_SEND, 30), &bad), 0);
	is("arrives", weft_pop_msgs(bound, 1, &msg, PATIENCE_MS), 1);
	check("as it was", msg.wc.byte_len == 8 && remote[32] == local[30]);
	is("all goes", weft_close_peer(port) || weft_destroy_vqp(vqp) || weft_destroy_vqp(bound), 0);
}

/* One sender more than a bound VQP keeps VQPs for: none of the others is pushed out. */
static void many_senders(void)
{
	enum { KEPT = 128 };
	struct weft_vqp_init_attr init = { .size = sizeof(init), .cap = { .max_send_wr = 8, .max_recv_wr = KEPT + 8 } };
	struct weft_vqp *bound = needed("a VQP to bind", weft_create_vqp(peer, &init)), *extra;
	struct weft_cq *cq = cq_of(device, 2 * (KEPT + 1));
	static struct weft_vqp *senders[KEPT + 1];
	static struct weft_msg msgs[KEPT + 1];
	struct weft_vqp_init_attr answer = { .size = sizeof(answer), .cap = { .max_send_wr = 4 } };
	int i, got = 0, count = 0, without = 0;

	is("binding", weft_bind(bound, PORT + 5), 0);
	is("buffers for many messages", receives(NULL, bound, 0, KEPT + 1), 0);
	request(IBV_WR_SEND, 0)->send_flags = 0;
	for (i = 0; i <= KEPT; i++) {
		senders[i] = vqp_on(cq, NULL, 0, PORT + 5);
		count += weft_post_send(senders[i], wrs, &bad) == 0;
	}
	is("one message of each sender", count, KEPT + 1);
	while (got <= KEPT && (i = weft_pop_msgs(bound, KEPT + 1 - got, msgs + got, PATIENCE_MS)) > 0)
		got += i;
	is("all arrive", got, KEPT + 1);
	for (i = 0; i < KEPT; i++)
		without += !msgs[i].from || msgs[i].error;
	is("as many as are kept come with a VQP", without, 0);
	check("one more says why it has none", !msgs[KEPT].from && msgs[KEPT].error == EMFILE);
	is("the first one's VQP is there still", weft_enter(msgs[0].from, NULL, NULL, 0, 1, wcs, 0), 0);
	extra = weft_accept(bound, msgs[KEPT].wc.src_qp, &answer);
	check("the program accepts the one more itself", extra != NULL);
	is("or forgets another", weft_forget(bound, msgs[5].wc.src_qp), 0);
	is("a buffer", receives(NULL, bound, 0, 1), 0);
	is("its next message", weft_post_send(senders[KEPT], wrs, &bad), 0);
	got = weft_pop_msgs(bound, 1, msgs, PATIENCE_MS);
	check("comes with a VQP", got == 1 && msgs[0].from && !msgs[0].error);
	for (i = 0; i <= KEPT; i++)
		weft_destroy_vqp(senders[i]);
	is("all goes", weft_destroy_vqp(extra) || weft_destroy_vqp(bound) || weft_destroy_cq(cq), 0);
}

/* As a program that was compiled with a later header has it. */
struct later_init_attr {
	struct weft_vqp_init_attr now;
	uint64_t later;
};

static struct weft_vqp *later(uint64_t value, size_t size)
{
	struct later_init_attr init = { .now = { .cap = { .max_send_wr = 1 } }, .later = value };

	init.now.size = size;
	return weft_create_vqp(device, &init.now);
}

static void sizes(void)
{
	const size_t now = sizeof(struct weft_vqp_init_attr), first = offsetof(struct weft_vqp_init_attr, flags);
	struct weft_vqp_init_attr old = {
		.size = first, .cap = { .max_send_wr = 1 }, .flags = 99, .port = 99,
	};
	struct { struct weft_device_attr now; uint64_t later; } longer = { .later = 5 };
	struct weft_node_attr node = { .size = 0 };
	struct weft_srq_init_attr srq = { .size = sizeof(srq) - 5, .attr = { .max_wr = 1 } };
	struct weft_vqp *vqp;

	vqp = weft_create_vqp(device, &old);
	check("a struct of the first release", vqp && old.cap.max_inline_data == attr.max_inline_data);
	is("is all that was looked at", weft_destroy_vqp(vqp), 0);
	vqp = later(0, now + 8);
	is("a later one with nothing in it", weft_destroy_vqp(vqp), 0);
	refused("with something", later(1, now + 8), E2BIG);
	refused("with a size that cannot be", later(0, 1 << 20), E2BIG);
	refused("without a size", later(0, 0), EINVAL);
	refused("with less than the first release had", later(0, first - 1), EINVAL);
	refused("an SRQ with less", weft_create_srq(device, &srq), EINVAL);
	longer.now.size = sizeof(longer);
	is("attributes for a later program", weft_query_device(device, &longer.now), 0);
	check("are zero where this library knows nothing", longer.later == 0 && longer.now.max_peer > 0 &&
	      longer.now.size == sizeof(longer));
	longer.now.max_peer = 12345;
	longer.now.size = offsetof(struct weft_device_attr, max_cq);
	is("attributes for an older one", weft_query_device(device, &longer.now), 0);
	is("end where its struct ends", longer.now.max_peer, 12345);
	longer.now.size = 0;
	is("attributes without a size", weft_query_device(device, &longer.now), EINVAL);
	is("a node without a size", weft_query_node(device, 0, &node), EINVAL);
}

/* A worker that has all it needs after one call: it writes to one of its kind. */
static void started(void)
{
	struct weft_start_attr how = { .size = sizeof(how), .cqe = 16, .length = 9000,
				       .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
	struct weft_device *devices[2];
	struct weft_cq *cqs[2];
	struct weft_mr *mrs[2];
	struct weft_vqp_init_attr init = { .size = sizeof(init), .cap = { .max_send_wr = 4 } };

	for (int node = 0; node < 2; node++) {
		how.node = node;
		is("a worker starts", weft_start(&how, &devices[node], &cqs[node], &mrs[node]), 0);
	}
	is("its memory has no address but an offset", mrs[0]->iova, 0);
	is("and the length that was wanted", mrs[0]->length, 9000);
	is("that of registered memory is where it is", mr->iova, (uintptr_t)local);
	init.cq = cqs[0];
	init.gid = &peer_attr.gid;
	struct weft_vqp *vqp = needed("it connects", weft_create_vqp(devices[0], &init));
	struct ibv_sge sge = { .addr = mrs[0]->iova + 8, .length = 8, .lkey = mrs[0]->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	((volatile uint64_t *)mrs[0]->addr)[1] = 4711;
	wr.wr.rdma.remote_addr = mrs[1]->iova + 8992;
	wr.wr.rdma.rkey = mrs[1]->rkey;
	is("it posts a WRITE", weft_post_send(vqp, &wr, &bad), 0);
	is("which ends", weft_wait_cq(cqs[0], 1, wcs, PATIENCE_MS), 1);
	is("well", wcs[0].status, IBV_WC_SUCCESS);
	is("and its word is at the end of the other's memory", ((volatile uint64_t *)mrs[1]->addr)[1124], 4711);
	is("the CQ is in use until the VQP goes", weft_destroy_cq(cqs[0]), EBUSY);
	is("each goes by itself", weft_close_device(devices[0]) || weft_dereg_mr(mrs[0]) || weft_destroy_vqp(vqp) ||
	   weft_destroy_cq(cqs[0]) || weft_destroy_cq(cqs[1]) || weft_dereg_mr(mrs[1]) ||
	   weft_close_device(devices[1]), 0);
	how.length = WEFT_MAX_START_MEMORY + 1;
	is("too much memory", weft_start(&how, &devices[0], &cqs[0], &mrs[0]), EINVAL);
	how.length = 0;
	is("none", weft_start(&how, &devices[0], &cqs[0], &mrs[0]), EINVAL);
	how.length = 1;
	how.cqe = 0;
	is("no completions", weft_start(&how, &devices[0], &cqs[0], &mrs[0]), EINVAL);
	how.cqe = 1;
	is("nowhere to say it", weft_start(&how, &devices[0], NULL, &mrs[0]), EINVAL);
	how.node = 77;
	is("no such node", weft_start(&how, &devices[0], &cqs[0], &mrs[0]), ENODEV);
}

int main(void)
{
	set_up();
	started();
	shared_cq();
	completion_channel();
	lists();
	destroyed();
	small_cq();
	shared_srq();
	mixed();
	unconnected();
	message_to_a_peer();
	many_senders();
	sizes();
	is("what is left goes", weft_dereg_mr(mr) || weft_dereg_mr(target) || weft_close_device(device) ||
	   weft_close_device(peer), 0);
	return failures != 0;
}
