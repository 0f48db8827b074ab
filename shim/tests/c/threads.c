/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * What weft.h promises to threads: they may use one object at the same time. Prints
 * `ok NAME` or `not ok NAME` for each promise. Built with -pthread.
 */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <weft.h>

#define THREADS 8
#define ROUNDS 200
/* Longest wait for what has to come. */
#define PATIENCE_MS 60000

static struct weft_device *device, *peer;
static struct weft_mr *mr, *target;
static struct weft_device_attr peer_attr = { .size = sizeof(peer_attr) };
static uint64_t local[THREADS][2], remote[THREADS];
/* How often each request of shared queues has completed. */
static atomic_int completed[THREADS][ROUNDS];
/* The VQP that each thread posts on, and the CQ that all take from. */
static struct weft_vqp *vqps[THREADS];
static struct weft_cq *cq;
static atomic_int taken;
/* Of a request that may be dropped. */
#define NOBODYS UINT64_MAX
static int failures;

static void check(const char *name, bool passed)
{
	printf("%sok c-abi, threads: %s\n", passed ? "" : "not ", name);
	failures += !passed;
}

/* On a CQ, or with one of its own. */
static struct weft_vqp *connected(struct weft_cq *on, uint32_t max_send_wr)
{
	struct weft_vqp_init_attr init = {
		.size = sizeof(init),
		.cq = on,
		.cap = { .max_send_wr = max_send_wr, .max_send_sge = 1 },
		.gid = &peer_attr.gid,
	};

	return weft_create_vqp(device, &init);
}

/* A signalled request of one word between a thread's place here and there. */
static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t *word,
				  uint64_t *there, uint64_t wr_id)
{
	*sge = (struct ibv_sge) { .addr = (uintptr_t)word, .length = 8, .lkey = mr->lkey };
	return (struct ibv_send_wr) {
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = (uintptr_t)there,
		.wr.rdma.rkey = target->rkey,
	};
}

static bool runs(struct weft_vqp *vqp, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad_wr;
	struct ibv_wc wc;

	return weft_enter(vqp, &wr, &bad_wr, 1, 1, &wc, PATIENCE_MS) == 1 && wc.status == IBV_WC_SUCCESS &&
	       wc.wr_id == wr.wr_id;
}

/* One device, one region, a VQP for each thread, made and destroyed beside the others'. */
static void *own_vqps(void *arg)
{
	size_t me = (size_t)arg, round;
	struct ibv_sge sge;

	for (round = 0; round < ROUNDS; round++) {
		uint64_t value = (uint64_t)me << 32 | (round + 1);
		struct weft_vqp *vqp = connected(NULL, 4);
		bool works;

		if (!vqp)
			return "a VQP could not be made or connected";
		local[me][0] = value;
		local[me][1] = 0;
		works = runs(vqp, request(IBV_WR_RDMA_WRITE, &sge, &local[me][0], &remote[me], round)) &&
			runs(vqp, request(IBV_WR_RDMA_READ, &sge, &local[me][1], &remote[me], round));
		weft_destroy_vqp(vqp);
		if (!works)
			return "a request failed";
		if (remote[me] != value || local[me][1] != value)
			return "a word is another thread's";
	}
	return NULL;
}

/* Takes what has completed, whoever has posted it. */
static const char *take(int timeout_ms)
{
	struct ibv_wc wcs[4];
	int i, count = weft_wait_cq(cq, 4, wcs, timeout_ms);

	if (count < 0)
		return count == -EINTR ? NULL : "weft_wait_cq failed";
	for (i = 0; i < count; i++) {
		if (wcs[i].status != IBV_WC_SUCCESS)
			return "a request failed";
		if (wcs[i].wr_id == NOBODYS)
			continue;
		if (wcs[i].wr_id >= THREADS * ROUNDS)
			return "a completion is of no request";
		completed[wcs[i].wr_id / ROUNDS][wcs[i].wr_id % ROUNDS]++;
		taken++;
	}
	return NULL;
}

/* All post, on the VQP that each has, and take from the CQ. */
static void *posts_and_takes(void *arg)
{
	size_t me = (size_t)arg, round;
	struct ibv_sge sge;

	for (round = 0; round < ROUNDS; round++) {
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, &local[me][0], &remote[me],
						me * ROUNDS + round);
		struct ibv_send_wr *bad_wr;
		const char *wrong;
		int error;

		while ((error = weft_post_send(vqps[me], &wr, &bad_wr)) == ENOMEM) {
			wrong = take(1);
			if (wrong)
				return (void *)wrong;
		}
		if (error)
			return "weft_post_send failed";
		wrong = take(0);
		if (wrong)
			return (void *)wrong;
	}
	return NULL;
}

/* As each other thread; the first makes VQPs on the CQ and drops them with a request. */
static void *comes_and_goes(void *arg)
{
	struct ibv_sge sge;
	int round;

	if (arg)
		return posts_and_takes(arg);
	for (round = 0; round < ROUNDS; round++) {
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, &local[0][0], &remote[0], NOBODYS);
		struct weft_vqp *vqp = connected(cq, 4);
		struct ibv_send_wr *bad_wr;
		int error;

		if (!vqp)
			return "a VQP could not be made on the CQ";
		error = weft_post_send(vqp, &wr, &bad_wr);
		if (weft_destroy_vqp(vqp) || (error && error != ENOMEM))
			return "a VQP on the CQ could not be used or destroyed";
	}
	return NULL;
}

/* Sleeps for a completion that another thread's request makes. */
static void *sleeper(void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	if (weft_wait_cq(cq, 1, &wc, PATIENCE_MS) != 1)
		return "it slept on";
	return wc.wr_id == 4711 && wc.status == IBV_WC_SUCCESS ? NULL : "it got another completion";
}

/* Runs a thread, or THREADS of them; answers whether all were content. */
static bool all(int count, void *(*body)(void *), bool (*meanwhile)(void))
{
	pthread_t threads[THREADS];
	bool content = true;
	void *wrong;
	int i;

	for (i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, body, (void *)(size_t)i))
			return false;
	if (meanwhile)
		content = meanwhile();
	for (i = 0; i < count; i++) {
		pthread_join(threads[i], &wrong);
		if (wrong) {
			printf("#   thread %d: %s\n", i, (const char *)wrong);
			content = false;
		}
	}
	return content;
}

/* Those of the threads from this one on; makes the counts zero again. */
static bool each_completed_once(int from)
{
	bool once = true;
	int i, j;

	while (taken < (THREADS - from) * ROUNDS)
		if (take(PATIENCE_MS))
			return false;
	for (i = from; i < THREADS; i++)
		for (j = 0; j < ROUNDS; j++)
			once &= atomic_exchange(&completed[i][j], 0) == 1;
	taken = 0;
	return once;
}

static bool posts(void)
{
	static struct ibv_sge sge;
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, &local[0][0], &remote[0], 4711);
	struct ibv_send_wr *bad_wr;
	struct timespec a_moment = { .tv_nsec = 100000000 };

	/* So that the other one sleeps. */
	nanosleep(&a_moment, NULL);
	return weft_post_send(vqps[0], &wr, &bad_wr) == 0;
}

/* One of two threads that post and wait in one call: each ends, whoever takes whose. */
static void *waits_with_a_request(void *arg)
{
	size_t me = (size_t)arg;
	struct ibv_sge sge;
	int round, got = 0;

	for (round = 0; round < ROUNDS; round++) {
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, &local[me][0], &remote[me], NOBODYS);
		struct ibv_send_wr *bad_wr = &wr;
		struct ibv_wc wcs[4];

		while (bad_wr) {
			got = weft_enter(vqps[me], bad_wr, &bad_wr, 1, 4, wcs, 20);
			if (got < 0 && got != -ENOMEM && got != -EINTR)
				return "weft_enter failed";
		}
	}
	return NULL;
}

int main(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	int i;

	peer = weft_open_device(1);
	device = weft_open_device(0);
	if (!peer || !device || weft_query_device(peer, &peer_attr))
		return 2;
	target = weft_reg_mr(peer, remote, sizeof(remote), access);
	mr = weft_reg_mr(device, local, sizeof(local), IBV_ACCESS_LOCAL_WRITE);
	vqps[0] = connected(NULL, 16);
	if (!target || !mr || !vqps[0])
		return 2;

	check("each has VQPs of its own on one device", all(THREADS, own_vqps, NULL));
	for (i = 1; i < THREADS; i++)
		vqps[i] = vqps[0];
	cq = weft_vqp_cq(vqps[0]);
	check("all post on one VQP and take from it", all(THREADS, posts_and_takes, NULL));
	check("each request of the shared VQP completes once", each_completed_once(0));
	check("one sleeps until another's request ends", all(1, sleeper, posts));
	weft_destroy_vqp(vqps[0]);

	/* Fewer places than requests: all have to wait for one another. */
	cq = weft_create_cq(device, 4 * THREADS, NULL);
	for (i = 0; i < THREADS; i++) {
		vqps[i] = connected(cq, 8);
		if (!cq || !vqps[i])
			return 2;
	}
	check("each posts on its VQP and all take from one CQ", all(THREADS, posts_and_takes, NULL));
	check("each request of that CQ completes once", each_completed_once(0));
	check("VQPs of the CQ come and go meanwhile", all(THREADS, comes_and_goes, NULL));
	check("and the others' requests complete once", each_completed_once(1));
	check("two wait with two VQPs' requests", all(2, waits_with_a_request, NULL));
	for (i = 0; i < THREADS; i++)
		weft_destroy_vqp(vqps[i]);
	check("then the CQ goes", weft_destroy_cq(cq) == 0);
	weft_dereg_mr(mr);
	weft_dereg_mr(target);
	weft_close_device(device);
	weft_close_device(peer);
	return failures != 0;
}
