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
static struct weft_device_attr peer_attr;
static uint64_t local[THREADS][2], remote[THREADS];
/* How often each request of a shared VQP has completed. */
static atomic_int completed[THREADS][ROUNDS];
static struct weft_vqp *shared;
static atomic_int taken;
static int failures;

static void check(const char *name, bool passed)
{
	printf("%sok c-abi, threads: %s\n", passed ? "" : "not ", name);
	failures += !passed;
}

static struct weft_vqp *connected(uint32_t max_send_wr)
{
	struct weft_vqp_init_attr init = { .cap = { .max_send_wr = max_send_wr, .max_send_sge = 1 } };
	struct weft_vqp *vqp = weft_create_vqp(device, &init);

	if (vqp && weft_qconnect(vqp, &peer_attr.gid, 0)) {
		weft_destroy_vqp(vqp);
		return NULL;
	}
	return vqp;
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
		struct weft_vqp *vqp = connected(4);
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

/* Takes what has completed on the shared VQP, whoever has posted it. */
static const char *take(int timeout_ms)
{
	struct ibv_wc wcs[4];
	int i, count = weft_wait_cq(shared, 4, wcs, timeout_ms);

	if (count < 0)
		return count == -EINTR ? NULL : "weft_wait_cq failed";
	for (i = 0; i < count; i++) {
		if (wcs[i].status != IBV_WC_SUCCESS)
			return "a request failed";
		if (wcs[i].wr_id >= THREADS * ROUNDS)
			return "a completion is of no request";
		completed[wcs[i].wr_id / ROUNDS][wcs[i].wr_id % ROUNDS]++;
		taken++;
	}
	return NULL;
}

/* All post on one VQP and take from it. */
static void *one_vqp(void *arg)
{
	size_t me = (size_t)arg, round;
	struct ibv_sge sge;

	for (round = 0; round < ROUNDS; round++) {
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, &local[me][0], &remote[me],
						me * ROUNDS + round);
		struct ibv_send_wr *bad_wr;
		const char *wrong;
		int error;

		while ((error = weft_post_send(shared, &wr, &bad_wr)) == ENOMEM) {
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

/* Sleeps for a completion that another thread's request makes. */
static void *sleeper(void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	if (weft_wait_cq(shared, 1, &wc, PATIENCE_MS) != 1)
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

static bool each_completed_once(void)
{
	int i, j;

	while (taken < THREADS * ROUNDS)
		if (take(PATIENCE_MS))
			return false;
	for (i = 0; i < THREADS; i++)
		for (j = 0; j < ROUNDS; j++)
			if (completed[i][j] != 1)
				return false;
	return true;
}

static bool posts(void)
{
	static struct ibv_sge sge;
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, &local[0][0], &remote[0], 4711);
	struct ibv_send_wr *bad_wr;
	struct timespec a_moment = { .tv_nsec = 100000000 };

	/* So that the other one sleeps. */
	nanosleep(&a_moment, NULL);
	return weft_post_send(shared, &wr, &bad_wr) == 0;
}

int main(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

	peer = weft_open_device(1);
	device = weft_open_device(0);
	if (!peer || !device || weft_query_device(peer, &peer_attr))
		return 2;
	target = weft_reg_mr(peer, remote, sizeof(remote), access);
	mr = weft_reg_mr(device, local, sizeof(local), IBV_ACCESS_LOCAL_WRITE);
	shared = connected(16);
	if (!target || !mr || !shared)
		return 2;

	check("each has VQPs of its own on one device", all(THREADS, own_vqps, NULL));
	check("all post on one VQP and take from it", all(THREADS, one_vqp, NULL));
	check("each request of the shared VQP completes once", each_completed_once());
	check("one sleeps until another's request ends", all(1, sleeper, posts));

	weft_destroy_vqp(shared);
	weft_dereg_mr(mr);
	weft_dereg_mr(target);
	weft_close_device(device);
	weft_close_device(peer);
	return failures != 0;
}
