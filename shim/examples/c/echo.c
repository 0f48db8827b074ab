/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Two nodes of one host: node 1 binds a VQP to a port and sends back what arrives
 * there, node 0 sends a message and waits for the echo.
 *
 *	cc -Wall echo.c $(pkg-config --cflags --libs weft) -o echo && ./echo
 *
 * The server knows nothing of its clients: each message comes with a VQP that is
 * connected to its sender.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

#define PORT 7
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

static void done(const char *what, int error)
{
	if (error)
		fail(what, error);
}

static void complete(const char *what, int count, const struct ibv_wc *wc)
{
	if (count < 0)
		fail(what, count);
	if (count == 0 || wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s: status %d\n", what, count ? (int)wc->status : -1);
		exit(1);
	}
}

static struct weft_vqp *vqp_on(struct weft_device *device)
{
	struct weft_vqp_init_attr init = { .size = sizeof(init), .cap = { .max_send_wr = 16, .max_recv_wr = 16 } };

	return made("weft_create_vqp", weft_create_vqp(device, &init));
}

/* A buffer for the next message: all of `memory`. */
static void receive(struct weft_vqp *vqp, struct weft_mr *memory)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)memory->addr,
		.length = memory->length,
		.lkey = memory->lkey,
	};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad_wr;

	done("weft_post_recv", weft_post_recv(vqp, &wr, &bad_wr));
}

/* The first `length` bytes of `memory` as a message; waits until it has arrived. */
static void send_message(struct weft_vqp *vqp, struct weft_mr *memory, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory->addr, .length = length, .lkey = memory->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad_wr;
	struct ibv_wc wc;

	complete("weft_enter", weft_enter(vqp, &wr, &bad_wr, 1, 1, &wc, 5000), &wc);
}

int main(void)
{
	static char at_server[BYTES], out[BYTES], back[BYTES];
	struct weft_device_attr attr = { .size = sizeof(attr) };
	struct weft_msg msg;
	struct ibv_wc wc;

	struct weft_device *node1 = made("node 1", weft_open_device(1));
	struct weft_mr *buffer = made("weft_reg_mr", weft_reg_mr(node1, at_server, BYTES, IBV_ACCESS_LOCAL_WRITE));
	struct weft_vqp *server = vqp_on(node1);

	done("weft_query_device", weft_query_device(node1, &attr));
	done("weft_bind", weft_bind(server, PORT));
	receive(server, buffer);

	struct weft_device *node0 = made("node 0", weft_open_device(0));
	struct weft_mr *request = made("weft_reg_mr", weft_reg_mr(node0, out, BYTES, 0));
	struct weft_mr *reply = made("weft_reg_mr", weft_reg_mr(node0, back, BYTES, IBV_ACCESS_LOCAL_WRITE));
	struct weft_vqp *client = vqp_on(node0);

	done("weft_qconnect", weft_qconnect(client, &attr.gid, PORT));
	receive(client, reply);
	strcpy(out, "hello, echo");
	send_message(client, request, strlen(out) + 1);

	complete("weft_pop_msgs", weft_pop_msgs(server, 1, &msg, 5000), &msg.wc);
	if (!msg.from)
		fail("the sender", msg.error);
	printf("node 1 got %u bytes: %s\n", msg.wc.byte_len, at_server);
	send_message(msg.from, buffer, msg.wc.byte_len);

	complete("weft_wait_cq", weft_wait_cq(weft_vqp_cq(client), 1, &wc, 5000), &wc);
	printf("node 0 got %u bytes: %s\n", wc.byte_len, back);

	weft_destroy_vqp(client);
	weft_dereg_mr(reply);
	weft_dereg_mr(request);
	weft_close_device(node0);
	weft_destroy_vqp(server);
	weft_dereg_mr(buffer);
	weft_close_device(node1);
	return strcmp(out, back) != 0;
}
