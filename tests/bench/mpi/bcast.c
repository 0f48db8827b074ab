// SPDX-License-Identifier: MIT OR Apache-2.0

/*
 * MPI_Bcast, measured as `weft-bench rdmc` measures RDMC: from when the first
 * root begins to send until the last rank has everything, by the machine's clock,
 * one sample after the other, with buffers that are used again.
 *
 * Usage: bcast BYTES MESSAGES SENDERS WARM_UP SAMPLES LEAST BUDGET_MS CONFIG ...
 *
 * A sample is MESSAGES broadcasts in a row; with several SENDERS each of the first
 * ranks is the root of its own, in a communicator of its own. After BUDGET_MS no
 * further sample is begun, but LEAST are taken. All configurations are measured in turn,
 * each in communicators of its own. A CONFIG is one of
 *
 *   bcast    MPI_Bcast, with several senders one root after the other
 *   ibcast   MPI_Ibcast, all roots at once
 *   window   no broadcast: the message is in its root's shared window, and every
 *            other rank copies it once
 *
 * and behind it, each with a comma before it, NAME=VALUE for variables of the MPI
 * tool interface. Rank 0 prints a line of JSON for each configuration.
 *
 * Whether large messages are copied once, by the kernel from the one process to
 * the other (CMA), is counted: the call for it is this program's own function, which
 * makes the system call.
 */

#define _GNU_SOURCE
#include <ctype.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_SENDERS 64
#define MAX_TEXT 4096
#define LINE 64
/* Looks at a word that has not changed, after which the processor is yielded. */
#define SPINS 256

enum way { BCAST, IBCAST, WINDOW };

struct load {
	size_t bytes;
	int messages, senders, warm_up, samples, least;
	uint64_t budget_ns;
};

struct side {
	int rank, ranks;
	enum way way;
	MPI_Comm comms[MAX_SENDERS];
	unsigned char *buffers[MAX_SENDERS];
	/* Of the shared window: messages of each root, and what was sent and taken. */
	MPI_Win window;
	unsigned char *shared[MAX_SENDERS];
	_Atomic uint64_t *sent[MAX_SENDERS];
	_Atomic uint64_t *taken[MAX_SENDERS];
	uint64_t number;
};

static uint64_t cma_bytes;

/* Takes the place of the C library's in what this program is linked with. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals,
			 const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	ssize_t copied = syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);

	if (copied > 0)
		cma_bytes += (uint64_t)copied;
	return copied;
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals,
			  const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	ssize_t copied = syscall(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags);

	if (copied > 0)
		cma_bytes += (uint64_t)copied;
	return copied;
}

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
		give_up("usage: bcast BYTES MESSAGES SENDERS WARM_UP SAMPLES LEAST BUDGET_MS CONFIG ..., numbers at least 1");
	return value;
}

/* Waits until a word has reached a number. */
static void wait_for(_Atomic uint64_t *word, uint64_t number)
{
	int spins = 0;

	while (atomic_load_explicit(word, memory_order_acquire) < number)
		if (++spins > SPINS)
			sched_yield();
}

/* A message of each root from its window into each other rank's buffer. A root's
 * next message waits until all have taken the last. */
static void share(struct side *side, const struct load *load)
{
	int root, rank;

	side->number++;
	if (side->rank < load->senders)
		atomic_store_explicit(side->sent[side->rank], side->number, memory_order_release);
	for (root = 0; root < load->senders; root++) {
		if (root == side->rank)
			continue;
		wait_for(side->sent[root], side->number);
		memcpy(side->buffers[root], side->shared[root], load->bytes);
		atomic_store_explicit(side->taken[root] + side->rank * (LINE / sizeof(uint64_t)), side->number,
				      memory_order_release);
	}
	if (side->rank >= load->senders)
		return;
	for (rank = 0; rank < side->ranks; rank++)
		if (rank != side->rank)
			wait_for(side->taken[side->rank] + rank * (LINE / sizeof(uint64_t)), side->number);
}

static void broadcast(struct side *side, const struct load *load)
{
	MPI_Request requests[MAX_SENDERS];
	int message, root;

	for (message = 0; message < load->messages; message++) {
		if (side->way == WINDOW) {
			share(side, load);
			continue;
		}
		for (root = 0; root < load->senders; root++) {
			if (side->way == BCAST)
				MPI_Bcast(side->buffers[root], (int)load->bytes, MPI_BYTE, root, side->comms[root]);
			else
				MPI_Ibcast(side->buffers[root], (int)load->bytes, MPI_BYTE, root, side->comms[root],
					   &requests[root]);
		}
		if (side->way == IBCAST)
			MPI_Waitall(load->senders, requests, MPI_STATUSES_IGNORE);
	}
}

/* One sample, in nanoseconds; rank 0 learns it. */
static uint64_t sample(struct side *side, const struct load *load, int nth)
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

/* Whether rank 0 finds that the time is not over, for all. */
static int goes_on(uint64_t begin, uint64_t budget_ns)
{
	int go_on = clock_ns() - begin < budget_ns;

	MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return go_on;
}

static void measure(struct side *side, const struct load *load, const char *config)
{
	uint64_t cpu, all_cpu, copied, all_copied, ns, begin = clock_ns();
	int at;

	for (at = 0; at < load->warm_up && goes_on(begin, load->budget_ns / 2); at++)
		sample(side, load, at);
	if (side->rank == 0)
		printf("{\"config\":\"%s\",\"nanoseconds\":[", config);
	cpu = cpu_us();
	copied = cma_bytes;
	begin = clock_ns();
	for (at = 0; at < load->samples && (at < load->least || goes_on(begin, load->budget_ns)); at++) {
		ns = sample(side, load, at);
		if (side->rank == 0)
			printf(at ? ",%llu" : "%llu", (unsigned long long)ns);
	}
	cpu = cpu_us() - cpu;
	copied = cma_bytes - copied;
	MPI_Reduce(&cpu, &all_cpu, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&copied, &all_copied, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (side->rank == 0)
		printf("],\"cpu_us\":%llu,\"cma_bytes\":%llu,", (unsigned long long)all_cpu,
		       (unsigned long long)all_copied);
}

/* The first line of what the library says of itself. */
static void print_version(void)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int len, at;

	MPI_Get_library_version(text, &len);
	printf("\"version\":\"");
	for (at = 0; at < len && text[at] != '\n' && text[at] != ','; at++)
		if (isprint((unsigned char)text[at]) && text[at] != '"' && text[at] != '\\')
			putchar(text[at] == '\t' ? ' ' : text[at]);
	printf("\"}\n");
	fflush(stdout);
}

/* The number of a variable's value that has a name: by the variable's enumeration;
 * where it has none, by the lines `NAME - ...` of its description, in order. */
static int named_value(MPI_T_enum values, const char *description, const char *name)
{
	char item[MAX_TEXT], *type_end;
	const char *line = description, *next;
	int count, at, value, len;
	size_t name_len = strlen(name);

	if (values != MPI_T_ENUM_NULL) {
		len = sizeof(item);
		MPI_T_enum_get_info(values, &count, item, &len);
		for (at = 0; at < count; at++) {
			len = sizeof(item);
			MPI_T_enum_get_item(values, at, &value, item, &len);
			if (!strcmp(item, name))
				return value;
		}
		give_up("a variable has no such value");
	}
	for (value = 0; line; line = next) {
		next = strchr(line, '\n');
		next = next ? next + 1 : NULL;
		type_end = strstr(line, " - ");
		if (!type_end || (next && type_end >= next))
			continue;
		if (!strncmp(line, name, name_len) && line[name_len] == ' ')
			return value;
		value++;
	}
	give_up("a variable has no such value");
	return 0;
}

static void set_variable(const char *name, const char *text)
{
	char found[MAX_TEXT], description[MAX_TEXT];
	int index, name_len = sizeof(found), description_len = sizeof(description);
	int verbosity, bind, scope, count, value;
	MPI_Datatype type;
	MPI_T_enum values;
	MPI_T_cvar_handle handle;

	if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS)
		give_up(name);
	MPI_T_cvar_get_info(index, found, &name_len, &verbosity, &type, &values, description, &description_len,
			    &bind, &scope);
	value = isdigit((unsigned char)*text) ? atoi(text) : named_value(values, description, text);
	if (MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS || count != 1)
		give_up(name);
	if (MPI_T_cvar_write(handle, &value) != MPI_SUCCESS)
		give_up(name);
	MPI_T_cvar_handle_free(&handle);
}

/* Sets what a configuration says, and answers with its first word. */
static enum way apply(const char *config)
{
	char text[MAX_TEXT], *part, *rest, *value;
	enum way way;

	if (strlen(config) >= sizeof(text))
		give_up("a configuration is too long");
	strcpy(text, config);
	part = strtok_r(text, ",", &rest);
	if (part && !strcmp(part, "bcast"))
		way = BCAST;
	else if (part && !strcmp(part, "ibcast"))
		way = IBCAST;
	else if (part && !strcmp(part, "window"))
		way = WINDOW;
	else
		give_up("a configuration begins with bcast, ibcast or window");
	while ((part = strtok_r(NULL, ",", &rest))) {
		value = strchr(part, '=');
		if (!value)
			give_up("a variable has no value");
		*value = '\0';
		set_variable(part, value + 1);
	}
	return way;
}

/* A window of all ranks: each root's message, a word for how many it has sent, and a
 * line for each rank with how many it has taken. */
static void open_window(struct side *side, const struct load *load)
{
	size_t message = (load->bytes + LINE - 1) / LINE * LINE;
	size_t words = (size_t)(side->ranks + 1) * LINE;
	MPI_Aint own = side->rank < load->senders ? (MPI_Aint)(message + words) : 0, size;
	unsigned char *base;
	int root, unit;

	MPI_Win_allocate_shared(own, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &side->window);
	if (own)
		memset(base, 0, (size_t)own);
	for (root = 0; root < load->senders; root++) {
		MPI_Win_shared_query(side->window, root, &size, &unit, &base);
		side->shared[root] = base;
		side->sent[root] = (_Atomic uint64_t *)(void *)(base + message);
		side->taken[root] = (_Atomic uint64_t *)(void *)(base + message + LINE);
	}
	side->number = 0;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void run(struct side *side, const struct load *load, const char *config)
{
	unsigned char *private = NULL;
	int root;

	side->way = apply(config);
	for (root = 0; root < load->senders; root++)
		MPI_Comm_dup(MPI_COMM_WORLD, &side->comms[root]);
	if (side->way == WINDOW) {
		open_window(side, load);
		/* What a root sends is where the others see it. */
		if (side->rank < load->senders) {
			private = side->buffers[side->rank];
			side->buffers[side->rank] = side->shared[side->rank];
		}
	}
	measure(side, load, config);
	if (side->rank == 0)
		print_version();
	if (private)
		side->buffers[side->rank] = private;
	if (side->way == WINDOW)
		MPI_Win_free(&side->window);
	for (root = 0; root < load->senders; root++)
		MPI_Comm_free(&side->comms[root]);
}

int main(int argc, char **argv)
{
	struct side side;
	struct load load;
	int at, threads;

	MPI_Init(&argc, &argv);
	MPI_T_init_thread(MPI_THREAD_SINGLE, &threads);
	MPI_Comm_rank(MPI_COMM_WORLD, &side.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &side.ranks);
	if (argc < 9)
		give_up("usage: bcast BYTES MESSAGES SENDERS WARM_UP SAMPLES LEAST BUDGET_MS CONFIG ...");
	load.bytes = (size_t)number(argv[1], 1L << 30);
	load.messages = (int)number(argv[2], 1 << 20);
	load.senders = (int)number(argv[3], side.ranks < MAX_SENDERS ? side.ranks : MAX_SENDERS);
	load.warm_up = (int)number(argv[4], 1 << 20);
	load.samples = (int)number(argv[5], 1 << 20);
	load.least = (int)number(argv[6], 1 << 20);
	load.budget_ns = (uint64_t)number(argv[7], 1L << 30) * 1000000u;
	for (at = 0; at < load.senders; at++) {
		side.buffers[at] = malloc(load.bytes);
		if (!side.buffers[at])
			give_up("no memory");
		memset(side.buffers[at], 0xff, load.bytes);
	}
	for (at = 8; at < argc; at++)
		run(&side, &load, argv[at]);
	MPI_T_finalize();
	MPI_Finalize();
	return 0;
}
