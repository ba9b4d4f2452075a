// SPDX-License-Identifier: MIT
/* The port: always active, its own subnet administrator. Address handles. */
#include <rdma/opa_addr.h>

#include "loopback.h"

const __be64 node_guid = cpu_to_be64(0x0011750101000001);

/* Omni-Path's permissive LID in 16 bits. */
#define PERMISSIVE 0xffff

static int query_port(struct rvt_dev_info *rdi, u32 port_num, struct ib_port_attr *props)
{
	props->lid = lid;
	props->lmc = 0;
	props->state = IB_PORT_ACTIVE;
	props->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	props->gid_tbl_len = 1;
	props->active_width = IB_WIDTH_4X;
	props->active_speed = IB_SPEED_EDR;
	props->max_vl_num = 1;
	/* InfiniBand's MTU codes end at 4096; hfi1 reports that, too. */
	props->max_mtu = IB_MTU_4096;
	props->active_mtu = IB_MTU_4096;
	return 0;
}

static int get_guid(struct rvt_dev_info *rdi, struct rvt_ibport *port, int index, __be64 *guid)
{
	if (index)
		return -EINVAL;
	*guid = node_guid;
	return 0;
}

static int shut_down(struct rvt_dev_info *rdi, u32 port_num)
{
	return -EOPNOTSUPP;
}

static void capabilities_changed(struct rvt_dev_info *rdi, u32 port_num)
{
}

void settle_lid(struct rdma_ah_attr *attr)
{
	const union ib_gid *gid;

	if (!(rdma_ah_get_ah_flags(attr) & IB_AH_GRH) || rdma_ah_get_dlid(attr) != PERMISSIVE)
		return;
	gid = &rdma_ah_read_grh(attr)->dgid;
	if (ib_is_opa_gid(gid))
		rdma_ah_set_dlid(attr, opa_get_lid_from_gid(gid));
}

static void new_address_handle(struct ib_device *ibdev, struct rdma_ah_attr *attr,
			       struct rvt_ah *ah)
{
	settle_lid(&ah->attr);
	ah->log_pmtu = ilog2(LINK_MTU);
}

void init_port(struct loopback *dev)
{
	struct rvt_ibport *port = &dev->port;

	spin_lock_init(&port->lock);
	port->mcast_tree = RB_ROOT;
	port->gid_prefix = cpu_to_be64(0xfe80000000000000ULL);
	port->sm_lid = lid;
	dev->p_keys[0] = DEFAULT_P_KEY;
	rvt_init_port(&dev->rdi, port, 0, dev->p_keys);
}

void set_port_functions(struct rvt_driver_provided *f)
{
	f->query_port_state = query_port;
	f->get_guid_be = get_guid;
	f->shut_down_port = shut_down;
	f->cap_mask_chg = capabilities_changed;
	f->notify_new_ah = new_address_handle;
}
