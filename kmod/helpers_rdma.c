// SPDX-License-Identifier: GPL-2.0
/* See helpers.h: what Rust needs of ib_core. */
#include <linux/pci.h>

#include "helpers.h"

const char *weft_ib_name(const struct ib_device *dev)
{
	return dev_name(&dev->dev);
}

u32 weft_ib_ports(const struct ib_device *dev)
{
	return dev->phys_port_cnt;
}

u32 weft_ib_local_dma_lkey(const struct ib_pd *pd)
{
	return pd->local_dma_lkey;
}

const struct ib_device_attr *weft_ib_attrs(const struct ib_device *dev)
{
	return &dev->attrs;
}

bool weft_ib_is_software(const struct ib_device *dev)
{
	return dev->ops.driver_id == RDMA_DRIVER_RXE || dev->ops.driver_id == RDMA_DRIVER_SIW;
}

/* ocrdma takes the iova of a registration for the device's own address (ocrdma_build_reg). */
bool weft_ib_takes_iova(const struct ib_device *dev)
{
	return dev->ops.driver_id != RDMA_DRIVER_OCRDMA;
}

/*
 * mlx5 registers all of the kernel's memory with PCI Express relaxed ordering, if the bus
 * allows that to the adapter (mlx5_set_umr_free_mkey, set_reg_wr).
 */
bool weft_ib_relaxes_writes(const struct ib_device *dev)
{
	struct device *parent = dev->dev.parent;

	if (dev->ops.driver_id != RDMA_DRIVER_MLX5)
		return false;
	return !parent || !dev_is_pci(parent) || pcie_relaxed_ordering_enabled(to_pci_dev(parent));
}

int weft_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	return ib_post_send(qp, wr, NULL);
}

int weft_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr)
{
	return ib_post_recv(qp, wr, NULL);
}

void *weft_ib_cq_context(const struct ib_cq *cq)
{
	return cq->cq_context;
}

/* Memory that is mapped for the device in one piece; not yet valid to use. */
int weft_ib_map_mr(struct ib_mr *mr, u64 addr, u32 len)
{
	struct scatterlist sg;
	int mapped;

	sg_init_table(&sg, 1);
	sg_dma_address(&sg) = addr;
	sg_dma_len(&sg) = len;
	mapped = ib_map_mr_sg(mr, &sg, 1, NULL, PAGE_SIZE);
	return mapped < 0 ? mapped : mapped == 1 ? 0 : -EINVAL;
}

/*
 * A mapping that lasts has no bounce buffers and needs no flushing, or it fails
 * (Documentation/core-api/dma-attributes.rst).
 */
#ifdef DMA_ATTR_REQUIRE_COHERENT
#define WEFT_DMA_ATTRS DMA_ATTR_REQUIRE_COHERENT
#else
#define WEFT_DMA_ATTRS 0
#endif

static enum dma_data_direction weft_dma_direction(bool writable)
{
	return writable ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
}

int weft_ib_dma_map_table(struct ib_device *dev, struct sg_table *table, bool writable)
{
	return ib_dma_map_sgtable_attrs(dev, table, weft_dma_direction(writable), WEFT_DMA_ATTRS);
}

void weft_ib_dma_unmap_table(struct ib_device *dev, struct sg_table *table, bool writable)
{
	ib_dma_unmap_sgtable_attrs(dev, table, weft_dma_direction(writable), WEFT_DMA_ATTRS);
}

u32 weft_ib_dma_max_segment(struct ib_device *dev)
{
	return ib_dma_max_seg_size(dev);
}

gfp_t weft_gfp_kernel_account(void)
{
	return GFP_KERNEL_ACCOUNT;
}

int weft_ib_arm_cq(struct ib_cq *cq)
{
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS);
}

/*
 * To be asked before polling, where the driver can tell without its lock that
 * nothing is there: a waiter that polls would hold up the thread that completes. A
 * device that cannot tell may have some.
 */
bool weft_ib_has_wc(struct ib_cq *cq)
{
	return !cq->device->ops.peek_cq || cq->device->ops.peek_cq(cq, 1);
}

int weft_ib_poll_cq(struct ib_cq *cq, int count, struct ib_wc *wcs)
{
	return ib_poll_cq(cq, count, wcs);
}

u64 weft_ib_dma_map(struct ib_device *dev, void *addr, size_t len)
{
	return ib_dma_map_single(dev, addr, len, DMA_BIDIRECTIONAL);
}

bool weft_ib_dma_failed(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

void weft_ib_dma_unmap(struct ib_device *dev, u64 addr, size_t len)
{
	ib_dma_unmap_single(dev, addr, len, DMA_BIDIRECTIONAL);
}

void weft_ib_dma_sync(struct ib_device *dev, u64 addr, size_t len, bool for_cpu)
{
	if (for_cpu)
		ib_dma_sync_single_for_cpu(dev, addr, len, DMA_BIDIRECTIONAL);
	else
		ib_dma_sync_single_for_device(dev, addr, len, DMA_BIDIRECTIONAL);
}
