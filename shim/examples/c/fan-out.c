/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * One node WRITEs to all nodes of the host at once: a VQP to each, one completion queue
 * for all of them, one system call for the round.
 *
 *	cc -Wall fan-out.c $(pkg-config --cflags --libs weft) -o fan-out && ./fan-out
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

#define MAX_NODES 64
#define BYTES 64

static void fail(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, weft_strerror(error));
	exit(1);
}

/* A function that made nothing has set errno. */
static void *made(const char *what, void *object)
{
	if (!object)
		fail(what, errno);
	return object;
}

int main(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	static char out[BYTES] = "hello, all", at_node[MAX_NODES][BYTES];
	static struct ibv_send_wr wr[MAX_NODES];
	static struct weft_post posts[MAX_NODES];
	static struct weft_mr *targets[MAX_NODES];
	static struct weft_device *nodes[MAX_NODES];
	static struct ibv_wc wcs[MAX_NODES];
	int node, count = 0, done, i;

	struct weft_device *device = made("weft_open_device", weft_open_device(-1));
	struct weft_mr *source = made("weft_reg_mr", weft_reg_mr(device, out, BYTES, 0));
	struct weft_cq *cq = made("weft_create_cq", weft_create_cq(device, MAX_NODES, NULL));
	struct ibv_sge sge = { .addr = (uintptr_t)out, .length = BYTES, .lkey = source->lkey };

	for (node = 0; node < MAX_NODES; node++) {
		struct weft_node_attr attr = { .size = sizeof(attr) };
		struct weft_vqp_init_attr init = {
			.size = sizeof(init),
			.cq = cq,
			.cap = { .max_send_wr = 1 },
			.gid = &attr.gid,
		};

		/* Indices may have gaps. */
		if (weft_query_node(device, node, &attr))
			continue;
		nodes[count] = made("a node", weft_open_device(node));
		targets[count] = made("its memory", weft_reg_mr(nodes[count], at_node[count], BYTES, access));
		wr[count] = (struct ibv_send_wr) {
			.wr_id = node,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma.remote_addr = (uintptr_t)at_node[count],
			.wr.rdma.rkey = targets[count]->rkey,
		};
		/* Connected as it is made. */
		posts[count].vqp = made("weft_create_vqp", weft_create_vqp(device, &init));
		posts[count].wr = &wr[count];
		count++;
	}

	done = weft_enter_list(cq, posts, count, count, count, wcs, 5000);
	if (done < 0)
		fail("weft_enter_list", done);
	for (i = 0; i < count; i++)
		if (posts[i].error)
			fail("a post", posts[i].error);
	for (i = 0; i < done; i++)
		if (wcs[i].status != IBV_WC_SUCCESS)
			printf("node %d: status %d\n", (int)wcs[i].wr_id, wcs[i].status);
	for (i = 0; i < count; i++)
		if (strcmp(at_node[i], out))
			done = 0;
	printf("%d of %d nodes have it\n", done, count);

	for (i = 0; i < count; i++) {
		weft_destroy_vqp(posts[i].vqp);
		weft_dereg_mr(targets[i]);
		weft_close_device(nodes[i]);
	}
	/* Once no VQP uses it. */
	weft_destroy_cq(cq);
	weft_dereg_mr(source);
	weft_close_device(device);
	return done != count;
}
