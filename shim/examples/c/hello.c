/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Two nodes of one host: node 0 WRITEs into memory of node 1 and READs it back.
 *
 *	cc -Wall hello.c $(pkg-config --cflags --libs weft) -o hello && ./hello
 *
 * Between hosts the peer's address, rkey and GID come over a socket.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

#define BYTES 4096

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

/* One request over all of `local`, and its completion, in one system call. */
static void run(struct weft_vqp *vqp, enum ibv_wr_opcode opcode, struct weft_mr *local,
		struct weft_mr *remote)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)local->addr,
		.length = local->length,
		.lkey = local->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = (uintptr_t)remote->addr,
		.wr.rdma.rkey = remote->rkey,
	};
	struct ibv_send_wr *bad_wr;
	struct ibv_wc wc;
	int done = weft_enter(vqp, &wr, &bad_wr, 1, 1, &wc, 5000);

	if (done < 0)
		fail("weft_enter", done);
	if (done == 0) {
		fprintf(stderr, "no completion in 5 s\n");
		exit(1);
	}
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "the request ended with status %d\n", wc.status);
		exit(1);
	}
	printf("%s: %u bytes\n", wc.opcode == IBV_WC_RDMA_READ ? "READ" : "WRITE", wc.byte_len);
}

int main(void)
{
	static char out[BYTES], back[BYTES], peers[BYTES];
	const int remote_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	struct weft_vqp_init_attr init = { .size = sizeof(init), .cap = { .max_send_wr = 16, .max_send_sge = 1 } };
	struct weft_device_attr peer_attr = { .size = sizeof(peer_attr) };
	int error;

	struct weft_device *peer = made("node 1", weft_open_device(1));
	struct weft_mr *target = made("weft_reg_mr", weft_reg_mr(peer, peers, BYTES, remote_access));

	error = weft_query_device(peer, &peer_attr);
	if (error)
		fail("weft_query_device", error);

	struct weft_device *device = made("node 0", weft_open_device(0));
	struct weft_mr *source = made("weft_reg_mr", weft_reg_mr(device, out, BYTES, 0));
	struct weft_mr *sink = made("weft_reg_mr", weft_reg_mr(device, back, BYTES, IBV_ACCESS_LOCAL_WRITE));
	struct weft_vqp *vqp = made("weft_create_vqp", weft_create_vqp(device, &init));

	error = weft_qconnect(vqp, &peer_attr.gid, 0);
	if (error)
		fail("weft_qconnect", error);

	strcpy(out, "hello from node 0");
	run(vqp, IBV_WR_RDMA_WRITE, source, target);
	run(vqp, IBV_WR_RDMA_READ, sink, target);
	printf("node 1 has: %s\nread back: %s\n", peers, back);

	weft_destroy_vqp(vqp);
	weft_dereg_mr(sink);
	weft_dereg_mr(source);
	weft_close_device(device);
	weft_dereg_mr(target);
	weft_close_device(peer);
	return strcmp(out, back) != 0;
}
