// SPDX-License-Identifier: MIT
/* Walk along a send queue. */
#include "loopback.h"

#define CONNECTED (BIT(IB_QPT_RC) | BIT(IB_QPT_UC))
#define ANY (CONNECTED | BIT(IB_QPT_UD) | BIT(IB_QPT_SMI) | BIT(IB_QPT_GSI))

/* Work requests of programs. */
const struct rvt_operation_params operations[RVT_OPERATION_MAX] = {
	[IB_WR_SEND] = { sizeof(struct ib_send_wr), ANY, 0 },
	[IB_WR_SEND_WITH_IMM] = { sizeof(struct ib_send_wr), ANY, 0 },
	[IB_WR_RDMA_WRITE] = { sizeof(struct ib_rdma_wr), CONNECTED, 0 },
	[IB_WR_RDMA_WRITE_WITH_IMM] = { sizeof(struct ib_rdma_wr), CONNECTED, 0 },
	[IB_WR_RDMA_READ] = { sizeof(struct ib_rdma_wr), BIT(IB_QPT_RC), RVT_OPERATION_ATOMIC },
	[IB_WR_ATOMIC_CMP_AND_SWP] = { sizeof(struct ib_atomic_wr), BIT(IB_QPT_RC),
				       RVT_OPERATION_ATOMIC | RVT_OPERATION_ATOMIC_SGE },
	[IB_WR_ATOMIC_FETCH_AND_ADD] = { sizeof(struct ib_atomic_wr), BIT(IB_QPT_RC),
					 RVT_OPERATION_ATOMIC | RVT_OPERATION_ATOMIC_SGE },
};

const enum ib_wc_opcode completions[RVT_OPERATION_MAX] = {
	[IB_WR_SEND] = IB_WC_SEND,
	[IB_WR_SEND_WITH_IMM] = IB_WC_SEND,
	[IB_WR_RDMA_WRITE] = IB_WC_RDMA_WRITE,
	[IB_WR_RDMA_WRITE_WITH_IMM] = IB_WC_RDMA_WRITE,
	[IB_WR_RDMA_READ] = IB_WC_RDMA_READ,
	[IB_WR_ATOMIC_CMP_AND_SWP] = IB_WC_COMP_SWAP,
	[IB_WR_ATOMIC_FETCH_AND_ADD] = IB_WC_FETCH_ADD,
	[IB_WR_REG_MR] = IB_WC_RDMA_READ, /* prepare() */
};

static bool is_connected(struct rvt_qp *qp)
{
	return BIT(qp->ibqp.qp_type) & CONNECTED;
}

/*
 * Refuses a datagram longer than its path's MTU, as hfi1 does. rdmavt's loopback never returns its
 * reference to the region of a READ of no bytes, and so the region can't be deregistered;
 * rvt_ruc_loopback completes IB_WR_REG_MR without touching memory.
 */
int prepare(struct rvt_qp *qp, struct rvt_swqe *wqe, bool *call_send)
{
	if (!is_connected(qp) && wqe->length > 1U << ibah_to_rvtah(wqe->ud_wr.wr.ah)->log_pmtu)
		return -EINVAL;
	if (wqe->wr.opcode == IB_WR_RDMA_READ && !wqe->length)
		wqe->wr.opcode = IB_WR_REG_MR;
	return 0;
}

/* One request, without the lock. Without a peer, RC fails with RETRY_EXC and UC succeeds. */
static enum ib_wc_status carry(struct rvt_qp *qp, struct rvt_swqe *wqe)
{
	if (is_connected(qp))
		return qp->ibqp.qp_type == IB_QPT_RC ? IB_WC_RETRY_EXC_ERR : IB_WC_SUCCESS;
	deliver(qp, wqe);
	return IB_WC_SUCCESS;
}

/*
 * Takes requests until none may begin; the flag keeps others out meanwhile. Returns true if a
 * request of RC found no peer.
 */
static bool walk(struct rvt_qp *qp)
{
	enum ib_wc_status status = IB_WC_SUCCESS;
	struct rvt_swqe *wqe;
	unsigned long flags;

	spin_lock_irqsave(&qp->s_lock, flags);
	if (qp->s_flags & (RVT_S_BUSY | RVT_S_ANY_WAIT))
		goto out;
	qp->s_flags |= RVT_S_BUSY;
	while (ib_rvt_state_ops[qp->state] & RVT_PROCESS_OR_FLUSH_SEND &&
	       qp->s_last != READ_ONCE(qp->s_head) && status != IB_WC_RETRY_EXC_ERR) {
		wqe = rvt_get_swqe_ptr(qp, qp->s_last);
		if (ib_rvt_state_ops[qp->state] & RVT_PROCESS_NEXT_SEND_OK) {
			qp->s_cur = rvt_qp_swqe_incr(qp, qp->s_last);
			spin_unlock_irqrestore(&qp->s_lock, flags);
			status = carry(qp, wqe);
			spin_lock_irqsave(&qp->s_lock, flags);
		} else if (ib_rvt_state_ops[qp->state] & RVT_FLUSH_SEND) {
			status = IB_WC_WR_FLUSH_ERR;
		} else {
			break;
		}
		rvt_send_complete(qp, wqe, status);
	}
	qp->s_flags &= ~RVT_S_BUSY;
out:
	spin_unlock_irqrestore(&qp->s_lock, flags);
	return status == IB_WC_RETRY_EXC_ERR;
}

static void fail(struct rvt_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->r_lock, flags);
	spin_lock(&qp->s_lock);
	rvt_error_qp(qp, IB_WC_WR_FLUSH_ERR);
	spin_unlock(&qp->s_lock);
	spin_unlock_irqrestore(&qp->r_lock, flags);
}

void send_all(struct rvt_qp *qp)
{
	/* Other LIDs are unreachable. */
	if (is_connected(qp) && rdma_ah_get_dlid(&qp->remote_ah_attr) == lid)
		rvt_ruc_loopback(qp);
	else if (walk(qp))
		fail(qp);
}
