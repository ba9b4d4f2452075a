/*
 * The C half: posts and polls of libibverbs on a queue pair that is its own peer, RC or SRD. Work requests are made once;
 * the loops set only what differs from one to the next. Steps are those of beside_rings.rs, in its order.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/efadv.h>
#include <infiniband/verbs.h>

enum { CHAIN = 32, PAYLOAD = 64, INLINE = 8, LINES = 64, AREA = LINES * PAYLOAD, QKEY = 0x11111111 };

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *sends, *recvs;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	char *area;
	uint64_t id, sum;
	struct ibv_send_wr send[CHAIN], inlined[CHAIN];
	struct ibv_sge send_sge[CHAIN], inline_sge[CHAIN];
	struct ibv_recv_wr recv[CHAIN];
	struct ibv_sge recv_sge[CHAIN];
};

static int connect(struct side *side)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	if (ibv_query_port(side->context, 1, &port) ||
	    ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return -1;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = side->qp->qp_num,
				     .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				     .ah_attr = { .dlid = port.lid, .port_num = 1 } };
	if (ibv_modify_qp(side->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return -1;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	return ibv_modify_qp(side->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

static int bring_up(struct side *side)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };

	if (ibv_query_gid(side->context, 1, 0, &to.grh.dgid) ||
	    ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		return -1;
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(side->qp, &attr, IBV_QP_STATE))
		return -1;
	attr.qp_state = IBV_QPS_RTS;
	attr.rnr_retry = 6;
	if (ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY))
		return -1;
	side->ah = ibv_create_ah(side->pd, &to);
	return side->ah ? 0 : -1;
}

static void prepare(struct side *side)
{
	for (int i = 0; i < CHAIN; i++) {
		struct ibv_send_wr *next = i + 1 < CHAIN ? &side->send[i + 1] : NULL;

		side->send_sge[i] = (struct ibv_sge){ (uintptr_t)side->area, PAYLOAD, side->mr->lkey };
		side->send[i] = (struct ibv_send_wr){ .next = next, .sg_list = &side->send_sge[i], .num_sge = 1,
						      .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
		if (side->ah) {
			side->send[i].wr.ud.ah = side->ah;
			side->send[i].wr.ud.remote_qpn = side->qp->qp_num;
			side->send[i].wr.ud.remote_qkey = QKEY;
		}
		side->inline_sge[i] = side->send_sge[i];
		side->inline_sge[i].length = INLINE;
		side->inlined[i] = side->send[i];
		side->inlined[i].next = next ? &side->inlined[i + 1] : NULL;
		side->inlined[i].sg_list = &side->inline_sge[i];
		side->inlined[i].send_flags |= IBV_SEND_INLINE;
		side->recv_sge[i] = side->send_sge[i];
		side->recv[i] = (struct ibv_recv_wr){ .next = next ? &side->recv[i + 1] : NULL,
						      .sg_list = &side->recv_sge[i], .num_sge = 1 };
	}
}

/* Queue pair of `depth` work requests each way; of SRD with room for inline data. */
struct side *br_side(int is_srd, int depth)
{
	struct side *side = calloc(1, sizeof(*side));
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!side || !list || !*list)
		return NULL;
	side->context = ibv_open_device(*list);
	ibv_free_device_list(list);
	if (!side->context)
		return NULL;
	side->pd = ibv_alloc_pd(side->context);
	side->area = aligned_alloc(4096, AREA);
	memset(side->area, 1, AREA);
	side->mr = ibv_reg_mr(side->pd, side->area, AREA, IBV_ACCESS_LOCAL_WRITE);
	side->sends = ibv_create_cq(side->context, 2 * depth, NULL, NULL, 0);
	side->recvs = ibv_create_cq(side->context, 2 * depth, NULL, NULL, 0);
	if (!side->mr || !side->sends || !side->recvs)
		return NULL;
	struct ibv_qp_init_attr init = { .send_cq = side->sends, .recv_cq = side->recvs, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1,
						  .max_recv_sge = 1, .max_inline_data = is_srd ? INLINE : 0 } };
	if (is_srd) {
		init.qp_type = IBV_QPT_DRIVER;
		side->qp = efadv_create_driver_qp(side->pd, &init, EFADV_QP_DRIVER_TYPE_SRD);
	} else {
		side->qp = ibv_create_qp(side->pd, &init);
	}
	if (!side->qp || (is_srd ? bring_up : connect)(side))
		return NULL;
	prepare(side);
	return side;
}

/* `count` work requests in lists of `n`. */
static inline __attribute__((always_inline)) int send(struct side *side, struct ibv_send_wr *all, struct ibv_sge *sges, int n,
						      int count)
{
	struct ibv_send_wr *wr = &all[CHAIN - n], *bad;
	struct ibv_sge *sge = &sges[CHAIN - n];
	uint64_t id = side->id;

	for (; count > 0; count -= n) {
		for (int i = 0; i < n; i++, id++) {
			wr[i].wr_id = id;
			sge[i].addr = (uintptr_t)side->area + PAYLOAD * (id % LINES);
		}
		if (ibv_post_send(side->qp, wr, &bad))
			return -1;
	}
	side->id = id;
	return 0;
}

static inline __attribute__((always_inline)) int receive(struct side *side, int n, int count)
{
	struct ibv_recv_wr *wr = &side->recv[CHAIN - n], *bad;
	struct ibv_sge *sge = &side->recv_sge[CHAIN - n];
	uint64_t id = side->id;

	for (; count > 0; count -= n) {
		for (int i = 0; i < n; i++, id++) {
			wr[i].wr_id = id;
			sge[i].addr = (uintptr_t)side->area + PAYLOAD * (id % LINES);
		}
		if (ibv_post_recv(side->qp, wr, &bad))
			return -1;
	}
	side->id = id;
	return 0;
}

/* `polls` polls of up to `n`; returns the number of completions. */
static inline __attribute__((always_inline)) int poll(struct side *side, struct ibv_cq *cq, int n, int polls)
{
	struct ibv_wc wc[16];
	uint64_t sum = 0;
	int seen = 0;

	for (int i = 0; i < polls; i++) {
		int got = ibv_poll_cq(cq, n, wc);

		for (int j = 0; j < got; j++) {
			if (wc[j].status != IBV_WC_SUCCESS)
				return -1;
			sum += wc[j].wr_id;
			if (wc[j].opcode & IBV_WC_RECV)
				sum += wc[j].byte_len;
		}
		seen += got;
	}
	side->sum += sum;
	return seen;
}

enum step { RECV_1, RECV_32, SEND_1, SEND_32, INLINE_1, INLINE_32, SENDS_1, SENDS_16, RECVS_1, RECVS_16, EMPTY };

/* Carries out a step for `count` work requests. Returns the number of completions; negative: an error. */
int br_step(struct side *side, int step, int count)
{
	switch ((enum step)step) {
	case RECV_1:
		return receive(side, 1, count);
	case RECV_32:
		return receive(side, 32, count);
	case SEND_1:
		return send(side, side->send, side->send_sge, 1, count);
	case SEND_32:
		return send(side, side->send, side->send_sge, 32, count);
	case INLINE_1:
		return send(side, side->inlined, side->inline_sge, 1, count);
	case INLINE_32:
		return send(side, side->inlined, side->inline_sge, 32, count);
	case SENDS_1:
		return poll(side, side->sends, 1, count);
	case SENDS_16:
		return poll(side, side->sends, 16, count / 16);
	case RECVS_1:
		return poll(side, side->recvs, 1, count);
	case RECVS_16:
		return poll(side, side->recvs, 16, count / 16);
	case EMPTY:
		return poll(side, side->sends, 1, count);
	}
	return -1;
}
