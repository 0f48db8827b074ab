/* SPDX-License-Identifier: GPL-2.0 */
/* What bindgen reads to make weft.ko's own bindings; see bindgen_parameters. */
#include <linux/eventfd.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/siphash.h>
#include <linux/skbuff.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <net/route.h>
#include <net/udp_tunnel.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "helpers.h"
