/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * What weft.h promises, call by call, on two nodes of one host with a meta
 * server: prints `ok NAME` or `not ok NAME` for each promise.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

#define WORDS 512
#define CHAIN 200
#define PORT 4712

static int failures;
static uint64_t local[WORDS], remote[WORDS];
static struct weft_device *device, *peer;
static struct weft_mr *mr, *target;
static struct weft_device_attr attr = { .size = sizeof(attr) }, peer_attr = { .size = sizeof(peer_attr) };
static struct ibv_sge sges[CHAIN];
static struct ibv_send_wr wrs[CHAIN], *bad;
static struct ibv_wc wcs[CHAIN];
static struct weft_msg msgs[8];

static void check(const char *name, bool passed)
{
	printf("%sok c-abi: %s\n", passed ? "" : "not ", name);
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

/* A chain of requests of one word each, only the last one signalled. */
static void chain(enum ibv_wr_opcode opcode, int count)
{
	int i;

	for (i = 0; i < count; i++) {
		sges[i] = (struct ibv_sge) {
			.addr = (uintptr_t)&local[i], .length = 8, .lkey = mr->lkey,
		};
		wrs[i] = (struct ibv_send_wr) {
			.wr_id = 100 + i,
			.next = i + 1 < count ? &wrs[i + 1] : NULL,
			.sg_list = &sges[i],
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED,
			.wr.rdma.remote_addr = (uintptr_t)&remote[i],
			.wr.rdma.rkey = target->rkey,
		};
	}
	bad = NULL;
}

static struct weft_vqp *vqp_on(struct weft_device *node, uint32_t max_send_wr, uint32_t max_recv_wr,
			       int signal_all)
{
	struct weft_vqp_init_attr init = {
		.size = sizeof(init),
		.vqp_context = &failures,
		.cap = { .max_send_wr = max_send_wr, .max_recv_wr = max_recv_wr },
		.sq_sig_all = signal_all,
	};

	return weft_create_vqp(node, &init);
}

static struct weft_vqp *vqp_with(uint32_t max_send_wr, int signal_all)
{
	return vqp_on(device, max_send_wr, 0, signal_all);
}

static struct weft_vqp *connected(uint32_t max_send_wr, int signal_all)
{
	struct weft_vqp *vqp = vqp_with(max_send_wr, signal_all);

	if (!vqp || weft_qconnect(vqp, &peer_attr.gid, 0)) {
		check("a VQP to work with", false);
		exit(1);
	}
	return vqp;
}

static void devices(void)
{
	struct weft_node_attr node = { .size = sizeof(node) };

	is("the library is of the header's version", weft_abi_version(), WEFT_ABI_VERSION);
	refused("a node that is not there", weft_open_device(60), ENODEV);
	refused("a node that cannot be", weft_open_device(-2), EINVAL);
	device = weft_open_device(-1);
	peer = weft_open_device(1);
	if (!device || !peer) {
		check("two devices", false);
		exit(1);
	}
	is("a device's attributes", weft_query_device(device, &attr), 0);
	is("its peer's", weft_query_device(peer, &peer_attr), 0);
	is("any node is the first of the namespace", attr.node, 0);
	check("nodes have GIDs of their own", memcmp(&attr.gid, &peer_attr.gid, sizeof(attr.gid)) != 0);
	is("a node's attributes", weft_query_node(device, 1, &node), 0);
	check("its GID is the one of its device", memcmp(&node.gid, &peer_attr.gid, sizeof(node.gid)) == 0);
	check("it has a name and is published", node.device[0] && node.published == 1 && node.index == 1);
	is("-1 is the device's own node", weft_query_node(device, -1, &node) || node.index != 0, 0);
	is("no such node", weft_query_node(device, 60, &node), ENODEV);
	is("no node below -1", weft_query_node(device, -7, &node), EINVAL);
}

static void null_pointers(struct weft_vqp *vqp)
{
	struct weft_vqp_init_attr init = { .size = sizeof(init), .cap = { .max_send_wr = 1 } };
	struct ibv_recv_wr *bad_recv;

	chain(IBV_WR_RDMA_WRITE, 1);
	is("close NULL", weft_close_device(NULL), EINVAL);
	is("query NULL", weft_query_device(NULL, &attr), EINVAL);
	is("query into NULL", weft_query_device(device, NULL), EINVAL);
	is("the descriptor of NULL", weft_device_fd(NULL), -1);
	is("query a node into NULL", weft_query_node(device, 0, NULL), EINVAL);
	refused("register on NULL", weft_reg_mr(NULL, local, 8, 0), EINVAL);
	refused("register NULL", weft_reg_mr(device, NULL, 8, 0), EINVAL);
	is("deregister NULL", weft_dereg_mr(NULL), EINVAL);
	refused("a VQP like NULL", weft_create_vqp(device, NULL), EINVAL);
	is("destroy NULL", weft_destroy_vqp(NULL), EINVAL);
	is("connect NULL", weft_qconnect(NULL, &peer_attr.gid, 0), EINVAL);
	is("connect to NULL", weft_qconnect(vqp, NULL, 0), EINVAL);
	is("post to NULL", weft_post_send(NULL, wrs, &bad), EINVAL);
	is("post NULL", weft_post_send(vqp, NULL, &bad), EINVAL);
	is("post without bad_wr", weft_post_send(vqp, wrs, NULL), EINVAL);
	is("poll NULL", weft_poll_cq(NULL, 1, wcs), -EINVAL);
	is("poll into NULL", weft_poll_cq(weft_vqp_cq(vqp), 1, NULL), -EINVAL);
	is("poll less than nothing", weft_poll_cq(weft_vqp_cq(vqp), -1, wcs), -EINVAL);
	is("wait for NULL", weft_wait_cq(NULL, 1, wcs, 0), -EINVAL);
	is("enter NULL", weft_enter(NULL, wrs, &bad, 0, 0, NULL, 0), -EINVAL);
	is("enter without bad_wr", weft_enter(vqp, wrs, NULL, 0, 0, NULL, 0), -EINVAL);
	is("receive on NULL", weft_post_recv(NULL, &(struct ibv_recv_wr) { 0 }, &bad_recv), EINVAL);
	is("receive NULL", weft_post_recv(vqp, NULL, &bad_recv), EINVAL);
	is("receive without bad_wr", weft_post_recv(vqp, &(struct ibv_recv_wr) { 0 }, NULL), EINVAL);
	is("bind NULL", weft_bind(NULL, PORT), EINVAL);
	refused("accept on NULL", weft_accept(NULL, 0, &init), EINVAL);
	refused("accept like NULL", weft_accept(vqp, 0, NULL), EINVAL);
	is("pop from NULL", weft_pop_msgs(NULL, 1, msgs, 0), -EINVAL);
	is("pop into NULL", weft_pop_msgs(vqp, 1, NULL, 0), -EINVAL);
	is("forget on NULL", weft_forget(NULL, 0), EINVAL);
	check("the number, context and CQ of NULL", weft_vqp_num(NULL) == UINT32_MAX && !weft_vqp_context(NULL) &&
	      !weft_vqp_cq(NULL));
}

static void memory(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC;

	mr = weft_reg_mr(device, local, sizeof(local), IBV_ACCESS_LOCAL_WRITE);
	target = weft_reg_mr(peer, remote, sizeof(remote), access);
	if (!mr || !target) {
		check("two regions", false);
		exit(1);
	}
	check("a region is what was registered", mr->addr == local && mr->length == sizeof(local));
	refused("no length", weft_reg_mr(device, local, 0, 0), EINVAL);
	refused("an access that is none", weft_reg_mr(device, local, 8, 1 << 30), EINVAL);
	refused("an access below zero", weft_reg_mr(device, local, 8, -1), EINVAL);
	refused("memory that is not there", weft_reg_mr(device, (void *)4096, 8, IBV_ACCESS_LOCAL_WRITE), EFAULT);
}

static void vqps(void)
{
	struct weft_vqp_init_attr init = {
		.size = sizeof(init),
		.cap = { .max_send_wr = 8, .max_inline_data = attr.max_inline_data + 1 },
	};
	union ibv_gid nobody = { .raw = { 0 } };
	struct weft_vqp *vqp;

	refused("a VQP with too much inline data", weft_create_vqp(device, &init), EINVAL);
	init.cap = (struct ibv_qp_cap) { .max_send_wr = 8, .max_send_sge = attr.max_sge + 1 };
	refused("a VQP with too many elements", weft_create_vqp(device, &init), EINVAL);
	init.cap = (struct ibv_qp_cap) { .max_send_wr = 8, .max_recv_wr = attr.max_recv_wr + 1 };
	refused("a VQP with too many receive buffers", weft_create_vqp(device, &init), EINVAL);
	init.cap = (struct ibv_qp_cap) { .max_send_wr = 8, .max_inline_data = 1, .max_send_sge = 2 };
	vqp = weft_create_vqp(device, &init);
	check("a VQP has what was asked for, or more", vqp && init.cap.max_inline_data == attr.max_inline_data &&
	      init.cap.max_send_sge == attr.max_sge);
	weft_destroy_vqp(vqp);
	refused("a VQP without room", vqp_with(0, 0), EINVAL);
	refused("a VQP with too much room", vqp_with(attr.max_vqp_wr + 1, 0), EINVAL);
	vqp = vqp_with(8, 0);
	check("a VQP has its context", weft_vqp_context(vqp) == &failures);
	null_pointers(vqp);
	chain(IBV_WR_RDMA_WRITE, 2);
	is("posting before connecting", weft_post_send(vqp, wrs, &bad), ENOTCONN);
	check("its bad_wr is the first", bad == wrs);
	is("connecting to the zero GID", weft_qconnect(vqp, &nobody, 0), EINVAL);
	nobody.raw[15] = 77;
	is("connecting to a stranger", weft_qconnect(vqp, &nobody, 0), EHOSTUNREACH);
	is("connecting", weft_qconnect(vqp, &peer_attr.gid, 0), 0);
	is("connecting twice", weft_qconnect(vqp, &peer_attr.gid, 0), EISCONN);
	is("nothing to poll", weft_poll_cq(weft_vqp_cq(vqp), 8, wcs), 0);
	is("nothing to wait for", weft_wait_cq(weft_vqp_cq(vqp), 8, wcs, 20), 0);
	is("no room to wait with", weft_wait_cq(weft_vqp_cq(vqp), 0, NULL, 20), 0);
	is("destroying", weft_destroy_vqp(vqp), 0);
}

/* Posts two good requests and one that is not. */
static void refuses(const char *name, struct weft_vqp *vqp, int wanted)
{
	char which[100];

	is(name, weft_post_send(vqp, wrs, &bad), wanted);
	snprintf(which, sizeof(which), "%s: bad_wr is that one", name);
	check(which, bad == &wrs[2]);
	snprintf(which, sizeof(which), "%s: those before it are done", name);
	is(which, weft_enter(vqp, NULL, NULL, 2, 3, wcs, 5000), 2);
}

static void malformed(void)
{
	struct weft_vqp *vqp = connected(16, 1);

	chain(IBV_WR_RDMA_WRITE, 3);
	wrs[2].opcode = IBV_WR_TSO;
	refuses("an opcode that is not supported", vqp, EOPNOTSUPP);
	chain(IBV_WR_RDMA_WRITE, 3);
	wrs[2].num_sge = attr.max_sge + 1;
	refuses("too many elements", vqp, EINVAL);
	chain(IBV_WR_RDMA_WRITE, 3);
	wrs[2].sg_list = NULL;
	refuses("no list of elements", vqp, EINVAL);
	chain(IBV_WR_RDMA_WRITE, 3);
	sges[2].length = attr.max_inline_data + 1;
	wrs[2].send_flags |= IBV_SEND_INLINE;
	refuses("too much inline data", vqp, EINVAL);
	chain(IBV_WR_RDMA_WRITE, 3);
	wrs[2].opcode = IBV_WR_RDMA_READ;
	wrs[2].send_flags |= IBV_SEND_INLINE;
	refuses("an inline READ", vqp, EINVAL);
	wrs[1].next = NULL;
	wrs[0].opcode = IBV_WR_TSO;
	is("weft_enter refuses as well", weft_enter(vqp, wrs, &bad, 1, 1, wcs, 5000), -EOPNOTSUPP);
	check("its bad_wr is that one", bad == wrs);
	weft_destroy_vqp(vqp);
}

static bool same(int count)
{
	return memcmp(local, remote, 8 * count) == 0;
}

static void data(void)
{
	struct weft_vqp *vqp = connected(CHAIN, 0);
	int i;

	for (i = 0; i < WORDS; i++)
		local[i] = 1000 + i;
	chain(IBV_WR_RDMA_WRITE, CHAIN);
	is("a long chain", weft_post_send(vqp, wrs, &bad), 0);
	is("waiting for its last", weft_wait_cq(weft_vqp_cq(vqp), CHAIN, wcs, 5000), 1);
	check("its completion", wcs[0].wr_id == 100 + CHAIN - 1 && wcs[0].status == IBV_WC_SUCCESS &&
	      wcs[0].opcode == IBV_WC_RDMA_WRITE && wcs[0].qp_num == weft_vqp_num(vqp));
	check("all of it was written", same(CHAIN) && remote[CHAIN] == 0);
	memset(local, 0, sizeof(local));
	chain(IBV_WR_RDMA_READ, CHAIN);
	is("post and wait at once", weft_enter(vqp, wrs, &bad, 1, CHAIN, wcs, 5000), 1);
	check("all were posted", bad == NULL);
	check("a READ's completion", wcs[0].opcode == IBV_WC_RDMA_READ && wcs[0].byte_len == 8);
	check("all of it was read", same(CHAIN));
	weft_destroy_vqp(vqp);
}

static void atomics(void)
{
	struct weft_vqp *vqp = connected(8, 1);

	remote[0] = 40;
	chain(IBV_WR_ATOMIC_FETCH_AND_ADD, 2);
	wrs[0].wr.atomic.remote_addr = wrs[1].wr.atomic.remote_addr = (uintptr_t)remote;
	wrs[0].wr.atomic.rkey = wrs[1].wr.atomic.rkey = target->rkey;
	wrs[0].wr.atomic.compare_add = 2;
	wrs[1].opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wrs[1].wr.atomic.compare_add = 42;
	wrs[1].wr.atomic.swap = 7;
	is("add, then swap", weft_enter(vqp, wrs, &bad, 2, 2, wcs, 5000), 2);
	check("their completions", wcs[0].status == IBV_WC_SUCCESS && wcs[0].opcode == IBV_WC_FETCH_ADD &&
	      wcs[1].status == IBV_WC_SUCCESS && wcs[1].opcode == IBV_WC_COMP_SWAP);
	check("what the word was each time", local[0] == 40 && local[1] == 42);
	is("what it is", remote[0], 7);
	weft_destroy_vqp(vqp);
}

/* sq_sig_all: each completion in its place, in one call. */
static void many_completions(void)
{
	struct weft_vqp *vqp = connected(CHAIN, 1);
	bool in_order = true;
	int i, got;

	chain(IBV_WR_RDMA_READ, CHAIN);
	got = weft_enter(vqp, wrs, &bad, CHAIN, CHAIN, wcs, 5000);
	is("as many completions as requests", got, CHAIN);
	for (i = 0; i < got; i++)
		in_order &= wcs[i].wr_id == 100u + i && wcs[i].status == IBV_WC_SUCCESS && wcs[i].slid == 0;
	check("in order", in_order);
	weft_destroy_vqp(vqp);
}

/* What a program does whose chains are longer than its queue. */
static void full_queue(void)
{
	struct weft_vqp *vqp = connected(8, 1);
	struct ibv_send_wr *next = wrs;
	int got = 0, done, error;

	chain(IBV_WR_RDMA_WRITE, CHAIN);
	error = weft_post_send(vqp, wrs, &bad);
	is("a chain longer than the queue", error, ENOMEM);
	check("its bad_wr is the first that had no room", bad == &wrs[8]);
	error = weft_post_send(vqp, bad, &bad);
	is("a full queue", error, ENOMEM);
	for (next = bad; next; next = bad) {
		done = weft_enter(vqp, next, &bad, 1, CHAIN, wcs, 5000);
		if (done <= 0)
			break;
		got += done;
	}
	while (got < CHAIN && (done = weft_wait_cq(weft_vqp_cq(vqp), CHAIN, wcs, 5000)) > 0)
		got += done;
	is("going on from bad_wr", got, CHAIN);
	weft_destroy_vqp(vqp);
}

static void failing(void)
{
	struct weft_vqp *vqp = connected(8, 0);

	chain(IBV_WR_RDMA_WRITE, 2);
	wrs[0].wr.rdma.rkey ^= 1;
	is("a wrong rkey can be posted", weft_post_send(vqp, wrs, &bad), 0);
	is("it and the one behind it complete", weft_enter(vqp, NULL, NULL, 2, 2, wcs, 5000), 2);
	check("with an access error, and flushed", wcs[0].status == IBV_WC_REM_ACCESS_ERR &&
	      wcs[1].status == IBV_WC_WR_FLUSH_ERR && wcs[0].wr_id == 100 && wcs[0].byte_len == 0);
	weft_destroy_vqp(vqp);
}

/* One WRITE gathers from several places, one READ scatters over them. */
static void pieces(void)
{
	struct weft_vqp *vqp = connected(8, 1);
	uint64_t unregistered[2] = { 71, 72 };
	int i;

	for (i = 0; i < WORDS; i++)
		local[i] = 2000 + i;
	chain(IBV_WR_RDMA_WRITE, 5);
	wrs[0].next = NULL;
	wrs[0].num_sge = 5;
	sges[0].addr = (uintptr_t)&local[9];
	is("five elements in one WRITE", weft_enter(vqp, wrs, &bad, 1, 1, wcs, 5000), 1);
	check("all of them", wcs[0].byte_len == 40 && remote[0] == 2009 && !memcmp(&remote[1], &local[1], 32));
	memset(local, 0, sizeof(local));
	wrs[0].opcode = IBV_WR_RDMA_READ;
	is("five elements in one READ", weft_enter(vqp, wrs, &bad, 1, 1, wcs, 5000), 1);
	check("all of them came back", local[9] == 2009 && !memcmp(&remote[1], &local[1], 32) && !local[0]);
	chain(IBV_WR_RDMA_WRITE, 1);
	sges[0] = (struct ibv_sge) { .addr = (uintptr_t)unregistered, .length = 16, .lkey = 1 };
	wrs[0].send_flags |= IBV_SEND_INLINE;
	is("posting inline data", weft_post_send(vqp, wrs, &bad), 0);
	unregistered[0] = 0;
	is("its completion", weft_wait_cq(weft_vqp_cq(vqp), 1, wcs, 5000), 1);
	check("it was copied and needs no region", wcs[0].status == IBV_WC_SUCCESS && remote[0] == 71 &&
	      remote[1] == 72);
	weft_destroy_vqp(vqp);
}

/* Posts receive buffers of two words each. */
static int receives(struct weft_vqp *vqp, uint64_t *memory, struct weft_mr *region, int count)
{
	struct ibv_sge two[8][2];
	struct ibv_recv_wr recvs[8], *bad_recv = NULL;
	int i, error;

	for (i = 0; i < count; i++) {
		two[i][0] = (struct ibv_sge) { (uintptr_t)&memory[2 * i], 8, region->lkey };
		two[i][1] = (struct ibv_sge) { (uintptr_t)&memory[2 * i + 1], 8, region->lkey };
		recvs[i] = (struct ibv_recv_wr) {
			.wr_id = 500 + i,
			.next = i + 1 < count ? &recvs[i + 1] : NULL,
			.sg_list = two[i],
			.num_sge = 2,
		};
	}
	error = weft_post_recv(vqp, recvs, &bad_recv);
	check("bad_wr is there if it failed", !error == !bad_recv);
	return error;
}

/* A message each way, by way of a port, and back to who has sent. */
static void messages(void)
{
	struct weft_vqp *bound = vqp_on(peer, 8, 4, 1), *sender = vqp_on(device, 8, 4, 1), *deaf = vqp_with(8, 1);
	struct weft_vqp_init_attr init = { .size = sizeof(init), .cap = { .max_send_wr = 4 } };
	struct weft_vqp *again;

	is("binding", weft_bind(bound, PORT), 0);
	is("binding twice", weft_bind(bound, PORT + 1), EINVAL);
	again = vqp_on(peer, 8, 4, 1);
	is("binding to a port in use", weft_bind(again, PORT), EADDRINUSE);
	weft_destroy_vqp(again);
	is("binding what cannot receive", weft_bind(deaf, PORT + 1), EINVAL);
	is("receiving on it", receives(deaf, local, mr, 1), EINVAL);
	is("four receive buffers", receives(bound, remote, target, 4), 0);
	is("more than there is room for", receives(bound, remote, target, 1), ENOMEM);
	is("connecting to the port", weft_qconnect(sender, &peer_attr.gid, PORT), 0);
	is("no message yet", weft_pop_msgs(bound, 8, msgs, 0), 0);
	is("nor soon", weft_pop_msgs(bound, 8, msgs, 20), 0);

	local[0] = 91;
	local[1] = 92;
	chain(IBV_WR_SEND_WITH_IMM, 2);
	wrs[0].imm_data = htonl(0x01020304);
	sges[0].length = 16;
	wrs[1].opcode = IBV_WR_SEND;
	is("two messages", weft_enter(sender, wrs, &bad, 2, 2, wcs, 5000), 2);
	check("they are sent", wcs[0].status == IBV_WC_SUCCESS && wcs[0].opcode == IBV_WC_SEND &&
	      wcs[0].byte_len == 16 && wcs[1].status == IBV_WC_SUCCESS);
	is("both arrive", weft_pop_msgs(bound, 8, msgs, 5000), 2);
	check("as the first one was", msgs[0].wc.opcode == IBV_WC_RECV && msgs[0].wc.wr_id == 500 &&
	      msgs[0].wc.byte_len == 16 && msgs[0].wc.qp_num == weft_vqp_num(bound) && remote[0] == 91 && remote[1] == 92);
	check("with its immediate", msgs[0].wc.wc_flags == IBV_WC_WITH_IMM && ntohl(msgs[0].wc.imm_data) == 0x01020304);
	check("and the second", msgs[1].wc.wc_flags == 0 && msgs[1].wc.byte_len == 8 && remote[2] == 92);
	check("from one sender", msgs[0].from && msgs[0].from == msgs[1].from && msgs[0].wc.src_qp == msgs[1].wc.src_qp &&
	      msgs[0].error == 0);

	is("a buffer for the reply", receives(sender, &local[20], mr, 1), 0);
	chain(IBV_WR_SEND, 1);
	remote[9] = 93;
	sges[0] = (struct ibv_sge) { .addr = (uintptr_t)&remote[9], .length = 8, .lkey = target->lkey };
	is("the reply", weft_enter(msgs[0].from, wrs, &bad, 1, 1, wcs, 5000), 1);
	is("is sent", wcs[0].status, IBV_WC_SUCCESS);
	is("and arrives", weft_wait_cq(weft_vqp_cq(sender), 1, wcs, 5000), 1);
	check("where it should", wcs[0].opcode == IBV_WC_RECV && local[20] == 93 && wcs[0].src_qp == WEFT_SRC_NONE);

	chain(IBV_WR_RDMA_WRITE_WITH_IMM, 1);
	wrs[0].wr.rdma.remote_addr = (uintptr_t)&remote[50];
	wrs[0].imm_data = htonl(7);
	local[0] = 94;
	is("a WRITE with an immediate", weft_enter(sender, wrs, &bad, 1, 1, wcs, 5000), 1);
	check("it is a WRITE", wcs[0].status == IBV_WC_SUCCESS && wcs[0].opcode == IBV_WC_RDMA_WRITE);
	is("it arrives", weft_wait_cq(weft_vqp_cq(bound), 1, wcs, 5000), 1);
	check("it takes a buffer", wcs[0].opcode == IBV_WC_RECV_RDMA_WITH_IMM && wcs[0].wr_id == 502 &&
	      ntohl(wcs[0].imm_data) == 7 && remote[50] == 94);

	again = weft_accept(bound, wcs[0].src_qp, &init);
	check("accepting makes a VQP of one's own", again && again != msgs[0].from);
	refused("a sender that is none", weft_accept(bound, wcs[0].src_qp ^ 1, &init), ENOENT);
	is("forgetting a sender", weft_forget(bound, msgs[0].wc.src_qp), 0);
	is("forgetting it twice", weft_forget(bound, msgs[0].wc.src_qp), ENOENT);
	is("destroying all of them", weft_destroy_vqp(again) || weft_destroy_vqp(bound) || weft_destroy_vqp(sender) ||
	   weft_destroy_vqp(deaf), 0);
}

static int is_readable(int timeout_ms)
{
	struct pollfd fd = { .fd = weft_device_fd(device), .events = POLLIN };

	return poll(&fd, 1, timeout_ms);
}

static void waiting_with_poll(void)
{
	struct weft_vqp *vqp = connected(8, 0);

	is("nothing to take yet", is_readable(0), 0);
	chain(IBV_WR_RDMA_WRITE, 1);
	is("a request that nobody waits for", weft_post_send(vqp, wrs, &bad), 0);
	is("poll() tells of its end", is_readable(30000), 1);
	is("it is there", weft_poll_cq(weft_vqp_cq(vqp), 1, wcs), 1);
	is("nothing is left", is_readable(0), 0);
	is("the VQP goes", weft_destroy_vqp(vqp), 0);
}

/* A fenced WRITE takes what the READ before it has brought. */
static void fences(void)
{
	struct weft_vqp *vqp = connected(8, 0);

	remote[0] = 4711;
	local[0] = 0;
	chain(IBV_WR_RDMA_READ, 2);
	wrs[1].opcode = IBV_WR_RDMA_WRITE;
	wrs[1].send_flags |= IBV_SEND_FENCE;
	sges[1].addr = (uintptr_t)&local[0];
	is("a READ, and behind a fence a WRITE of it", weft_enter(vqp, wrs, &bad, 1, 1, wcs, 5000), 1);
	check("it wrote what was read", wcs[0].status == IBV_WC_SUCCESS && remote[1] == 4711);
	is("their VQP goes", weft_destroy_vqp(vqp), 0);
}

/* Words that the peer reads and writes by a window of a region without rights for it. */
static void windows(void)
{
	struct weft_vqp *vqp = connected(8, 0);
	struct weft_mr *own = weft_reg_mr(peer, remote, sizeof(remote), IBV_ACCESS_LOCAL_WRITE);
	struct weft_mw *mw, *other;

	check("a region without rights for peers", own != NULL);
	mw = weft_bind_mw(own, &remote[8], 64, IBV_ACCESS_REMOTE_WRITE);
	other = weft_bind_mw(own, remote, sizeof(remote), IBV_ACCESS_REMOTE_READ);
	check("two windows of it", mw && other && mw->rkey != other->rkey);
	refused("a window of NULL", weft_bind_mw(NULL, remote, 8, IBV_ACCESS_REMOTE_READ), EINVAL);
	refused("a window elsewhere", weft_bind_mw(own, local, 8, IBV_ACCESS_REMOTE_READ), EINVAL);
	refused("a window behind it", weft_bind_mw(own, remote, sizeof(remote) + 1, IBV_ACCESS_REMOTE_READ), EINVAL);
	refused("a window without rights", weft_bind_mw(own, remote, 8, 0), EINVAL);
	refused("one with LOCAL_WRITE", weft_bind_mw(own, remote, 8, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	is("ending NULL", weft_dealloc_mw(NULL), EINVAL);
	is("a region with windows stays", weft_dereg_mr(own), EBUSY);

	local[0] = 815;
	chain(IBV_WR_RDMA_WRITE, 1);
	wrs[0].wr.rdma.remote_addr = (uintptr_t)&remote[8];
	wrs[0].wr.rdma.rkey = mw->rkey;
	is("a WRITE by a window", weft_enter(vqp, wrs, &bad, 1, 1, wcs, 5000), 1);
	check("it has arrived", wcs[0].status == IBV_WC_SUCCESS && remote[8] == 815);
	is("the window ends", weft_dealloc_mw(mw), 0);
	is("the same WRITE", weft_enter(vqp, wrs, &bad, 1, 1, wcs, 5000), 1);
	is("it is refused", wcs[0].status, IBV_WC_REM_ACCESS_ERR);
	is("its VQP goes", weft_destroy_vqp(vqp), 0);

	vqp = connected(8, 0);
	chain(IBV_WR_RDMA_READ, 1);
	wrs[0].wr.rdma.remote_addr = (uintptr_t)&remote[8];
	wrs[0].wr.rdma.rkey = other->rkey;
	is("a READ by the other window", weft_enter(vqp, wrs, &bad, 1, 1, wcs, 5000), 1);
	check("it has come", wcs[0].status == IBV_WC_SUCCESS && local[0] == 815);
	is("the VQP goes too", weft_destroy_vqp(vqp), 0);
	is("the other window ends", weft_dealloc_mw(other), 0);
	is("then the region goes", weft_dereg_mr(own), 0);
}

static void in_any_order(void)
{
	struct weft_vqp *vqp = connected(8, 0);

	is("a device may be closed first", weft_close_device(device), 0);
	chain(IBV_WR_RDMA_WRITE, 1);
	is("its VQPs go on", weft_enter(vqp, wrs, &bad, 1, 1, wcs, 5000), 1);
	is("and its regions", wcs[0].status, IBV_WC_SUCCESS);
	is("deregistering", weft_dereg_mr(mr), 0);
	is("destroying at last", weft_destroy_vqp(vqp), 0);
	is("deregistering the target", weft_dereg_mr(target), 0);
	is("closing the peer", weft_close_device(peer), 0);
	check("errors have names", strcmp(weft_strerror(-EHOSTUNREACH), weft_strerror(EAGAIN)) != 0);
}

int main(void)
{
	devices();
	memory();
	vqps();
	malformed();
	data();
	atomics();
	many_completions();
	full_queue();
	failing();
	pieces();
	messages();
	waiting_with_poll();
	fences();
	windows();
	in_any_order();
	return failures != 0;
}
