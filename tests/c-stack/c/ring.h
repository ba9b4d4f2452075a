/* Access to posted WQEs: a send queue's ring from mlx5dv_init_obj, a queue pair connected to itself, and
 * completions. */
#ifndef RING_H
#define RING_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "checks.h"

#define UNIT 64

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct ibv_port_attr port;
static union ibv_gid gid;

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	check("to INIT", ibv_modify_qp(qp, &attr, qp->qp_type == IBV_QPT_DRIVER ? mask : mask | IBV_QP_ACCESS_FLAGS), 0);
}

/* Connects it to itself; a DC initiator gets no peer. */
static inline void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_rd_atomic = 4, .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .port_num = 1, .is_global = 1, .dlid = port.lid, .grh = { .dgid = gid, .hop_limit = 64 } } };
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU;

	if (qp->qp_type != IBV_QPT_DRIVER)
		mask |= IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	check("to RTR", ibv_modify_qp(qp, &attr, mask), 0);
	attr.qp_state = IBV_QPS_RTS;
	check("to RTS", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static inline void to_reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	check("to RESET", ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

/* Ring of a send queue, and place of the next WQE. Every posted WQE must be taken. */
struct ring {
	struct mlx5dv_qp of;
	uint32_t next;
};

static inline struct ring ring_of(struct ibv_qp *qp)
{
	struct ring ring = { 0 };
	struct mlx5dv_obj obj = { .qp = { qp, &ring.of } };

	check("init_obj", mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	return ring;
}

/* Copies the next WQE, of up to four WQEBBs, out of the ring; returns its bytes. */
static inline unsigned take(struct ring *ring, uint8_t to[4 * UNIT])
{
	uint32_t mask = ring->of.sq.wqe_cnt - 1;
	unsigned bytes = 0;

	for (unsigned unit = 0; unit * UNIT < (bytes ? bytes : 1); unit++) {
		const uint8_t *from = (uint8_t *)ring->of.sq.buf + ((ring->next + unit) & mask) * UNIT;

		for (int i = 0; i < UNIT; i++)
			to[unit * UNIT + i] = from[i];
		bytes = (to[7] & 0x3f) * 16;
		if (bytes > 4 * UNIT)
			exit(1);
	}
	ring->next += (bytes + UNIT - 1) / UNIT;
	return bytes;
}

static inline void begin(struct ibv_qp_ex *qp, uint64_t id, unsigned int flags)
{
	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = flags;
}

/* Waits for the next completion, and prints it; by ibv_poll_cq and ibv_start_poll in turns. */
static inline void done(uint64_t id, int status, int opcode)
{
	static int turn;
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc wc = { 0 };
	int got = 0;

	turn ^= 1;
	for (int i = 0; i < 20000 && !got; i++) {
		if (turn) {
			got = ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc);
		} else if (!ibv_start_poll(cq, &attr)) {
			wc.wr_id = cq->wr_id;
			wc.status = cq->status;
			if (cq->status == IBV_WC_SUCCESS)
				wc.opcode = ibv_wc_read_opcode(cq);
			ibv_end_poll(cq);
			got = 1;
		}
		if (!got)
			usleep(100);
	}
	check("completed", got, 1);
	check("its number", wc.wr_id, id);
	check("its status", wc.status, status);
	if (status == IBV_WC_SUCCESS)
		check("its operation", wc.opcode, opcode);
	if (!got)
		exit(1);
}

/* Checks that no completion comes. */
static inline void nothing(void)
{
	struct ibv_wc wc;
	int got = 0;

	for (int i = 0; i < 20; i++) {
		got += ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc);
		usleep(100);
	}
	check("nothing completed", got, 0);
}

static void open_all(uint32_t entries)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_cq_init_attr_ex init = { .cqe = entries };

	setvbuf(stdout, NULL, _IONBF, 0);
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq_ex(ctx, &init);
	check("there are objects", ctx && pd && cq, 1);
	check("query_port", ibv_query_port(ctx, 1, &port), 0);
	check("query_gid", ibv_query_gid(ctx, 1, 0, &gid), 0);
}

static void close_all(void)
{
	check("destroy_cq", ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	check("dealloc_pd", ibv_dealloc_pd(pd), 0);
	check("close_device", ibv_close_device(ctx), 0);
}

#endif
