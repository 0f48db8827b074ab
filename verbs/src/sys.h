/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The headers that build.rs binds. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
