/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of the pool: `weft:*` in tracefs, for perf and bpftrace. The macros are C's.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM weft

#if !defined(_WEFT_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _WEFT_TRACE_H

#include <linux/tracepoint.h>

/* What the pool has decided for a peer: WEFT_POOL_* of helpers.h. */
TRACE_EVENT(weft_pool,
	TP_PROTO(const u8 *gid, u32 action),
	TP_ARGS(gid, action),
	TP_STRUCT__entry(
		__array(u8, gid, 16)
		__field(u32, action)
	),
	TP_fast_assign(
		memcpy(__entry->gid, gid, 16);
		__entry->action = action;
	),
	TP_printk("peer=%pI6c action=%s", __entry->gid,
		  __print_symbolic(__entry->action,
				   { WEFT_POOL_OPEN, "open" },
				   { WEFT_POOL_CLOSE, "close" },
				   { WEFT_POOL_USE_DC, "use-dc" },
				   { WEFT_POOL_USE_RC, "use-rc" },
				   { WEFT_POOL_CLOSED, "closed" },
				   { WEFT_POOL_MESSAGES_UDP, "messages-udp" },
				   { WEFT_POOL_MESSAGES_RC, "messages-rc" }))
);

/* A VQP in use has changed what carries its requests, after a hold of so long. */
TRACE_EVENT(weft_move,
	TP_PROTO(u32 flow, bool by_rc, u64 held_ns),
	TP_ARGS(flow, by_rc, held_ns),
	TP_STRUCT__entry(
		__field(u32, flow)
		__field(bool, by_rc)
		__field(u64, held_ns)
	),
	TP_fast_assign(
		__entry->flow = flow;
		__entry->by_rc = by_rc;
		__entry->held_ns = held_ns;
	),
	TP_printk("flow=%u to=%s held_ns=%llu", __entry->flow, __entry->by_rc ? "rc" : "dc",
		  __entry->held_ns)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
