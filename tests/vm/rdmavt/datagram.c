// SPDX-License-Identifier: MIT
/* Datagrams: to a queue pair, or to those that are attached to a group. */
#include <rdma/opa_addr.h>

#include "loopback.h"

/* InfiniBand's traffic class and flow label, in the first word of a GRH. */
static __be32 first_word(const struct ib_global_route *grh)
{
	return cpu_to_be32(6 << 28 | grh->traffic_class << 20 | (grh->flow_label & 0xfffff));
}

static struct ib_grh make_grh(struct rvt_qp *from, struct rdma_ah_attr *to, u32 length)
{
	const struct ib_global_route *route = rdma_ah_read_grh(to);
	struct ib_grh grh = {
		.version_tclass_flow = first_word(route),
		.paylen = cpu_to_be16(length),
		.next_hdr = 0x1b,
		.hop_limit = route->hop_limit,
		.sgid.global.subnet_prefix = rvt_to_iport(from)->gid_prefix,
		.sgid.global.interface_id = node_guid,
		.dgid = route->dgid,
	};

	return grh;
}

/* A negative Q_Key of a request stands for the sender's own. */
static bool is_allowed(struct rvt_qp *from, struct rvt_swqe *wqe, struct rvt_qp *to)
{
	u32 q_key = rvt_get_swqe_remote_qkey(wqe);

	if (!(ib_rvt_state_ops[to->state] & RVT_PROCESS_RECV_OK))
		return false;
	if (BIT(to->ibqp.qp_type) & (BIT(IB_QPT_RC) | BIT(IB_QPT_UC)))
		return false;
	if ((s32)q_key < 0)
		q_key = from->qkey;
	return !to->ibqp.qp_num || q_key == to->qkey;
}

/* Copies GRH and message to the receive that the queue pair has taken. */
static void copy(struct rvt_qp *from, struct rvt_swqe *wqe, struct rvt_qp *to, bool has_grh)
{
	struct rdma_ah_attr *attr = rvt_get_swqe_ah_attr(wqe);
	struct rvt_sge_state source = {
		.sge = wqe->sg_list[0],
		.sg_list = wqe->sg_list + 1,
		.num_sge = wqe->wr.num_sge,
	};
	u32 left, length;

	if (has_grh) {
		struct ib_grh grh = make_grh(from, attr, wqe->length);

		rvt_copy_sge(to, &to->r_sge, &grh, GRH_BYTES, true, false);
	} else {
		rvt_skip_sge(&to->r_sge, GRH_BYTES, true);
	}
	for (left = wqe->length; left; left -= length) {
		length = rvt_get_sge_length(&source.sge, left);
		rvt_copy_sge(to, &to->r_sge, source.sge.vaddr, length, true, false);
		rvt_update_sge(&source, length, false);
	}
	rvt_put_ss(&to->r_sge);
}

static void complete_receive(struct rvt_qp *from, struct rvt_swqe *wqe, struct rvt_qp *to,
			     bool has_grh)
{
	struct rdma_ah_attr *attr = rvt_get_swqe_ah_attr(wqe);
	struct ib_wc wc = {
		.wr_id = to->r_wr_id,
		.status = IB_WC_SUCCESS,
		.opcode = IB_WC_RECV,
		.byte_len = wqe->length + GRH_BYTES,
		.qp = &to->ibqp,
		.src_qp = from->ibqp.qp_num,
		.wc_flags = has_grh ? IB_WC_GRH : 0,
		.slid = lid & U16_MAX, /* all that a completion has */
		.sl = rdma_ah_get_sl(attr),
		.port_num = to->port_num,
	};

	if (wqe->wr.opcode == IB_WR_SEND_WITH_IMM) {
		wc.wc_flags |= IB_WC_WITH_IMM;
		wc.ex.imm_data = wqe->wr.ex.imm_data;
	}
	if (from->ibqp.qp_type == IB_QPT_GSI)
		wc.pkey_index = rvt_get_swqe_pkey_index(wqe);
	rvt_recv_cq(to, &wc, wqe->wr.send_flags & IB_SEND_SOLICITED);
}

/* A message without a receive, or too long for it, is lost. */
static void give(struct rvt_qp *from, struct rvt_swqe *wqe, struct rvt_qp *to)
{
	bool has_grh = rdma_ah_get_ah_flags(rvt_get_swqe_ah_attr(wqe)) & IB_AH_GRH;
	unsigned long flags;
	int taken = 1;

	if (!is_allowed(from, wqe, to))
		return;
	spin_lock_irqsave(&to->r_lock, flags);
	if (to->r_flags & RVT_R_REUSE_SGE)
		to->r_flags &= ~RVT_R_REUSE_SGE;
	else
		taken = rvt_get_rwqe(to, false);
	if (taken < 0) {
		rvt_rc_error(to, IB_WC_LOC_QP_OP_ERR);
	} else if (taken && wqe->length + GRH_BYTES > to->r_len) {
		to->r_flags |= RVT_R_REUSE_SGE;
	} else if (taken) {
		copy(from, wqe, to, has_grh);
		if (test_and_clear_bit(RVT_R_WRID_VALID, &to->r_aflags))
			complete_receive(from, wqe, to, has_grh);
	}
	spin_unlock_irqrestore(&to->r_lock, flags);
}

static void give_to_group(struct rvt_qp *from, struct rvt_swqe *wqe, struct rdma_ah_attr *to)
{
	union ib_gid mgid = rdma_ah_read_grh(to)->dgid;
	struct rvt_mcast *group;
	struct rvt_mcast_qp *member;

	group = rvt_mcast_find(rvt_to_iport(from), &mgid, rdma_ah_get_dlid(to));
	if (!group)
		return;
	list_for_each_entry_rcu(member, &group->qp_list, list)
		give(from, wqe, member->qp);
	if (atomic_dec_return(&group->refcount) <= 1)
		wake_up(&group->wait);
}

/* LIDs of groups, of 16 or of 32 bits. */
static bool is_group(u32 dlid)
{
	u32 first = be16_to_cpu(IB_MULTICAST_LID_BASE);

	return (dlid >= first && dlid < U16_MAX) || dlid >= opa_get_mcast_base(OPA_MCAST_NR);
}

void deliver(struct rvt_qp *from, struct rvt_swqe *wqe)
{
	struct rdma_ah_attr *attr = rvt_get_swqe_ah_attr(wqe);
	u32 dlid = rdma_ah_get_dlid(attr);
	struct rvt_qp *to;

	rcu_read_lock();
	if (is_group(dlid)) {
		give_to_group(from, wqe, attr);
	} else if (dlid == lid) {
		to = rvt_lookup_qpn(ib_to_rvt(from->ibqp.device), rvt_to_iport(from),
				    rvt_get_swqe_remote_qpn(wqe));
		if (to)
			give(from, wqe, to);
	}
	rcu_read_unlock();
}
