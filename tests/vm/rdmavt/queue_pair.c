// SPDX-License-Identifier: MIT
/* Driver callbacks of a queue pair: engine, MTU, teardown. */
#include "loopback.h"

static void work(struct work_struct *work)
{
	send_all(container_of(work, struct engine, work)->qp);
}

static void *alloc_engine(struct rvt_dev_info *rdi, struct rvt_qp *qp)
{
	struct engine *engine = kzalloc(sizeof(*engine), GFP_KERNEL);

	if (!engine)
		return ERR_PTR(-ENOMEM);
	INIT_WORK(&engine->work, work);
	engine->qp = qp;
	return engine;
}

static void free_engine(struct rvt_dev_info *rdi, struct rvt_qp *qp)
{
	kfree(qp->priv);
}

static bool begin(struct rvt_qp *qp)
{
	struct engine *engine = qp->priv;

	return schedule_work(&engine->work);
}

static void stop(struct rvt_qp *qp)
{
	struct engine *engine = qp->priv;

	cancel_work_sync(&engine->work);
	/* A send in a caller's context copies without the lock. */
	while (READ_ONCE(qp->s_flags) & RVT_S_BUSY)
		cond_resched();
}

static void nothing(struct rvt_qp *qp)
{
}

static unsigned int free_all(struct rvt_dev_info *rdi)
{
	return 0;
}

static void restart(struct rvt_qp *qp, u32 psn, int wait)
{
}

/* Codes of Omni-Path continue InfiniBand's. */
static int mtu_of_attributes(struct rvt_dev_info *rdi, struct rvt_qp *qp, struct ib_qp_attr *attr)
{
	unsigned int code = attr->path_mtu;

	return code >= IB_MTU_256 && code <= OPA_MTU_10240 ? code : -EINVAL;
}

static u32 mtu_of_code(struct rvt_dev_info *rdi, struct rvt_qp *qp, u32 code)
{
	return opa_mtu_enum_to_int(code);
}

static int code_of_mtu(u32 mtu)
{
	return opa_mtu_int_to_enum(mtu);
}

static void modified(struct rvt_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	if (mask & IB_QP_AV)
		settle_lid(&qp->remote_ah_attr);
}

void set_queue_pair_functions(struct rvt_driver_provided *f)
{
	f->qp_priv_alloc = alloc_engine;
	f->qp_priv_free = free_engine;
	f->free_all_qps = free_all;
	f->setup_wqe = prepare;
	f->do_send = send_all;
	f->schedule_send = begin;
	f->schedule_send_no_lock = begin;
	/* A retry timer may queue the work between the two, so both cancel it. */
	f->stop_send_queue = stop;
	f->quiesce_qp = stop;
	f->flush_qp_waiters = nothing;
	f->notify_qp_reset = nothing;
	f->notify_error_qp = nothing;
	f->notify_restart_rc = restart;
	f->get_pmtu_from_attr = mtu_of_attributes;
	f->mtu_from_qp = mtu_of_code;
	f->mtu_to_path_mtu = code_of_mtu;
	f->modify_qp = modified;
}
