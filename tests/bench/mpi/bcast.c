// SPDX-License-Identifier: MIT OR Apache-2.0

/*
 * MPI_Bcast, measured as `weft-bench rdmc` measures RDMC: from when the first
 * root begins to send until the last rank has everything, by the machine's clock,
 * one sample after the other, with buffers that are used again.
 *
 * Usage: bcast BYTES MESSAGES SENDERS WARM_UP SAMPLES BUDGET_MS
 *
 * A sample is MESSAGES broadcasts in a row; with several SENDERS each of the first
 * ranks is the root of its own, in a communicator of its own, all at once. After
 * BUDGET_MS no further sample is begun. Rank 0 prints one line of JSON.
 */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define MAX_SENDERS 64

struct load {
	size_t bytes;
	int messages, senders, warm_up, samples;
	uint64_t budget_ns;
};

struct side {
	int rank, ranks;
	MPI_Comm comms[MAX_SENDERS];
	unsigned char *buffers[MAX_SENDERS];
};

static void give_up(const char *why)
{
	fprintf(stderr, "bcast: %s\n", why);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static uint64_t clock_ns(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_MONOTONIC, &now))
		give_up("there is no clock");
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t us_of(struct timeval time)
{
	return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec;
}

/* Processor time of this process so far. */
static uint64_t cpu_us(void)
{
	struct rusage used;

	if (getrusage(RUSAGE_SELF, &used))
		give_up("the processor time is not known");
	return us_of(used.ru_utime) + us_of(used.ru_stime);
}

static long number(const char *text, long most)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < 1 || value > most)
		give_up("usage: bcast BYTES MESSAGES SENDERS WARM_UP SAMPLES BUDGET_MS, each at least 1");
	return value;
}

static void broadcast(const struct side *side, const struct load *load)
{
	MPI_Request requests[MAX_SENDERS];
	int message, root;

	for (message = 0; message < load->messages; message++) {
		if (load->senders == 1) {
			MPI_Bcast(side->buffers[0], (int)load->bytes, MPI_BYTE, 0, side->comms[0]);
			continue;
		}
		for (root = 0; root < load->senders; root++)
			MPI_Ibcast(side->buffers[root], (int)load->bytes, MPI_BYTE, root, side->comms[root],
				   &requests[root]);
		MPI_Waitall(load->senders, requests, MPI_STATUSES_IGNORE);
	}
}

/* One sample, in nanoseconds; rank 0 learns it. */
static uint64_t sample(const struct side *side, const struct load *load, int nth)
{
	uint64_t begin, end, first, last;
	unsigned char stamp = (unsigned char)nth;
	int root;

	if (side->rank < load->senders)
		side->buffers[side->rank][load->bytes - 1] = stamp;
	MPI_Barrier(MPI_COMM_WORLD);
	begin = clock_ns();
	broadcast(side, load);
	end = clock_ns();
	for (root = 0; root < load->senders; root++)
		if (side->buffers[root][load->bytes - 1] != stamp)
			give_up("a message was not received");
	if (side->rank >= load->senders)
		begin = UINT64_MAX;
	MPI_Reduce(&begin, &first, 1, MPI_UINT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
	MPI_Reduce(&end, &last, 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
	return last - first;
}

static void measure(const struct side *side, const struct load *load)
{
	uint64_t cpu, all_cpu, ns, begin = clock_ns();
	int at, go_on = 1;

	for (at = 0; at < load->warm_up; at++)
		sample(side, load, at);
	if (side->rank == 0)
		printf("{\"nanoseconds\":[");
	cpu = cpu_us();
	for (at = 0; at < load->samples && go_on; at++) {
		ns = sample(side, load, at);
		if (side->rank == 0)
			printf(at ? ",%llu" : "%llu", (unsigned long long)ns);
		go_on = clock_ns() - begin < load->budget_ns;
		MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	cpu = cpu_us() - cpu;
	MPI_Reduce(&cpu, &all_cpu, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (side->rank == 0)
		printf("],\"cpu_us\":%llu}\n", (unsigned long long)all_cpu);
}

static void prepare(struct side *side, const struct load *load)
{
	int root;

	for (root = 0; root < load->senders; root++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &side->comms[root]);
		side->buffers[root] = malloc(load->bytes);
		if (!side->buffers[root])
			give_up("no memory");
		memset(side->buffers[root], 0xff, load->bytes);
	}
}

int main(int argc, char **argv)
{
	struct side side;
	struct load load;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &side.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &side.ranks);
	if (argc != 7)
		give_up("usage: bcast BYTES MESSAGES SENDERS WARM_UP SAMPLES BUDGET_MS");
	load.bytes = (size_t)number(argv[1], 1L << 30);
	load.messages = (int)number(argv[2], 1 << 20);
	load.senders = (int)number(argv[3], side.ranks < MAX_SENDERS ? side.ranks : MAX_SENDERS);
	load.warm_up = (int)number(argv[4], 1 << 20);
	load.samples = (int)number(argv[5], 1 << 20);
	load.budget_ns = (uint64_t)number(argv[6], 1L << 30) * 1000000u;
	prepare(&side, &load);
	measure(&side, &load);
	MPI_Finalize();
	return 0;
}
