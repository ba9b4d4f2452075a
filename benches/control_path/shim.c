/*
 * The C half of the control path's benchmark: each step, a number of times. The steps are those of ours.rs, in its order.
 */
#include <infiniband/verbs.h>

#include <stdint.h>
#include <string.h>

#define MOST 64
#define PAGE 4096

enum step {
	OPEN,
	ALLOC_PD,
	REG_MR,
	CREATE_CQ,
	CREATE_QP,
	CONNECT_QP,
	DESTROY_QP,
	DESTROY_CQ,
	DEREG_MR,
	DEALLOC_PD,
	CLOSE,
};

static struct ibv_context *context;
static struct ibv_pd *pds[MOST];
static struct ibv_mr *mrs[MOST];
static struct ibv_cq *cqs[MOST];
static struct ibv_qp *qps[MOST];
static struct ibv_port_attr port;
static union ibv_gid gid;
static char memory[MOST * PAGE] __attribute__((aligned(PAGE)));

static int open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list)
		return -1;
	if (*list)
		context = ibv_open_device(*list);
	ibv_free_device_list(list);
	return context ? 0 : -1;
}

static int create_qp(int i)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cqs[i],
		.recv_cq = cqs[i],
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
	};

	qps[i] = ibv_create_qp(pds[0], &init);
	return qps[i] ? 0 : -1;
}

static int connect_qp(int i)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = qps[i]->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .grh = { .dgid = gid, .sgid_index = 3, .hop_limit = 64 }, .dlid = port.lid, .is_global = 1, .port_num = 1 },
	};
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .max_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };

	/* Once for all, as ours does. */
	if (!i && (ibv_query_port(context, 1, &port) || ibv_query_gid(context, 1, 3, &gid)))
		return -1;
	if (!i) {
		rtr.path_mtu = port.active_mtu;
		rtr.ah_attr.grh.dgid = gid;
		rtr.ah_attr.dlid = port.lid;
	}
	return ibv_modify_qp(qps[i], &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ||
	       ibv_modify_qp(qps[i], &rtr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
	       ibv_modify_qp(qps[i], &rts,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY);
}

static int one(enum step step, int i)
{
	int closed;

	switch (step) {
	case OPEN:
		return open_first();
	case ALLOC_PD:
		return (pds[i] = ibv_alloc_pd(context)) ? 0 : -1;
	case REG_MR:
		mrs[i] = ibv_reg_mr(pds[0], memory + i * PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		return mrs[i] ? 0 : -1;
	case CREATE_CQ:
		return (cqs[i] = ibv_create_cq(context, 255, NULL, NULL, 0)) ? 0 : -1;
	case CREATE_QP:
		return create_qp(i);
	case CONNECT_QP:
		return connect_qp(i);
	case DESTROY_QP:
		return ibv_destroy_qp(qps[i]);
	case DESTROY_CQ:
		return ibv_destroy_cq(cqs[i]);
	case DEREG_MR:
		return ibv_dereg_mr(mrs[i]);
	case DEALLOC_PD:
		return ibv_dealloc_pd(pds[i]);
	case CLOSE:
		closed = ibv_close_device(context);
		context = NULL;
		return closed;
	}
	return -1;
}

int cp_step(int step, int count)
{
	for (int i = 0; i < count; i++)
		if (one(step, i))
			return -1;
	return 0;
}
