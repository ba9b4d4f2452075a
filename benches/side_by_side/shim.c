/*
 * The C half of the benchmark: loops over libibverbs' data path, each in a function of its own, so that calls cost what they
 * cost a C program. Work requests are made once and only what differs from one to the next is set in the loop, as a careful C
 * program does.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

enum { AREA = 1 << 16, CHAIN = 32, SGES = 4, PAYLOAD = 64, LINES = 64 };
enum kind { WRITE_INLINE8, SEND64, READ, ATOMIC, GATHER4, KINDS };
/* What a side is made of besides: nothing, datagrams, a shared receive queue, a completion channel. */
enum special { PLAIN, DATAGRAMS, SHARED, CHANNEL };
enum { QKEY = 0x11111111 };

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_qp **qps;
	struct ibv_qp_ex *qp_ex;
	char *area;
	int count;
	uint64_t id;
	uint64_t sum;
	struct ibv_send_wr wr[KINDS][CHAIN];
	struct ibv_sge sge[KINDS][CHAIN][SGES];
	struct ibv_recv_wr recv[CHAIN];
	struct ibv_sge recv_sge[CHAIN];
};

/* Where the harness plays the device. */
struct parts {
	void *cq_buf;
	uint32_t cq_entries;
	uint32_t cqe_size;
	uint32_t sq_units;
	uint32_t rq_entries;
	void *srq_buf;
	uint32_t srq_stride;
	uint32_t srq_head;
};

static void prepare(struct side *side)
{
	for (int i = 0; i < CHAIN; i++) {
		for (int kind = 0; kind < KINDS; kind++) {
			struct ibv_send_wr *wr = &side->wr[kind][i];

			for (int j = 0; j < SGES; j++)
				side->sge[kind][i][j] = (struct ibv_sge){ .addr = (uintptr_t)side->area + PAYLOAD * j,
									  .length = PAYLOAD,
									  .lkey = side->mr->lkey };
			wr->sg_list = side->sge[kind][i];
			wr->num_sge = kind == GATHER4 ? SGES : 1;
			wr->next = i + 1 < CHAIN ? wr + 1 : NULL;
			wr->send_flags = i + 1 == CHAIN ? IBV_SEND_SIGNALED : 0;
			wr->wr.rdma.rkey = side->mr->rkey;
		}
		side->wr[WRITE_INLINE8][i].opcode = IBV_WR_RDMA_WRITE;
		side->wr[WRITE_INLINE8][i].send_flags |= IBV_SEND_INLINE;
		side->sge[WRITE_INLINE8][i][0].length = 8;
		side->wr[SEND64][i].opcode = IBV_WR_SEND;
		if (side->ah) {
			side->wr[SEND64][i].wr.ud.ah = side->ah;
			side->wr[SEND64][i].wr.ud.remote_qpn = side->qps[0]->qp_num;
			side->wr[SEND64][i].wr.ud.remote_qkey = QKEY;
		}
		side->wr[READ][i].opcode = IBV_WR_RDMA_READ;
		side->wr[GATHER4][i].opcode = IBV_WR_RDMA_WRITE;
		side->wr[ATOMIC][i].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		side->wr[ATOMIC][i].wr.atomic.rkey = side->mr->rkey;
		side->wr[ATOMIC][i].wr.atomic.compare_add = 1;
		side->sge[ATOMIC][i][0].length = 8;
		side->recv_sge[i] = side->sge[SEND64][i][0];
		side->recv[i].sg_list = &side->recv_sge[i];
		side->recv[i].num_sge = 1;
		side->recv[i].next = i + 1 < CHAIN ? &side->recv[i + 1] : NULL;
	}
}

/* The way to itself. */
static int to_itself(struct side *side, struct ibv_port_attr *port, struct ibv_ah_attr *to)
{
	if (ibv_query_port(side->context, 1, port))
		return -1;
	to->port_num = 1;
	to->dlid = port->lid;
	if (port->link_layer != IBV_LINK_LAYER_ETHERNET)
		return 0;
	to->is_global = 1;
	to->grh.sgid_index = port->gid_tbl_len > 3 ? 3 : 0;
	to->grh.hop_limit = 64;
	return ibv_query_gid(side->context, 1, to->grh.sgid_index, &to->grh.dgid);
}

/* To RTS, connected to itself: libmlx5 refuses posts before. */
static int connect(struct side *side, struct ibv_qp *qp)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_ATOMIC };

	if (to_itself(side, &port, &attr.ah_attr) ||
	    ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return -1;
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = port.active_mtu;
	attr.dest_qp_num = qp->qp_num;
	attr.max_dest_rd_atomic = 16;
	attr.min_rnr_timer = 12;
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return -1;
	attr.qp_state = IBV_QPS_RTS;
	attr.max_rd_atomic = 16;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

/* The same of datagrams, and the address that they go to. */
static int bring_up(struct side *side, struct ibv_qp *qp)
{
	struct ibv_port_attr port;
	struct ibv_ah_attr to = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	if (to_itself(side, &port, &to) ||
	    ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		return -1;
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		return -1;
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
		return -1;
	side->ah = ibv_create_ah(side->pd, &to);
	return side->ah ? 0 : -1;
}

struct side *sbs_side(int extended, enum special special, int count, int depth, int cqes)
{
	struct side *side = calloc(1, sizeof(*side));
	int found = 0;
	struct ibv_device **list = ibv_get_device_list(&found);

	if (!list || found < 1)
		return NULL;
	side->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!side->context)
		return NULL;
	side->pd = ibv_alloc_pd(side->context);
	side->area = aligned_alloc(4096, AREA);
	memset(side->area, 1, AREA);
	side->mr = ibv_reg_mr(side->pd, side->area, AREA,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_ATOMIC);
	if (!side->mr)
		return NULL;
	if (special == CHANNEL && !(side->channel = ibv_create_comp_channel(side->context)))
		return NULL;
	if (extended) {
		struct ibv_cq_init_attr_ex init = { .cqe = cqes,
						    .channel = side->channel,
						    .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };

		side->cq_ex = ibv_create_cq_ex(side->context, &init);
		side->cq = side->cq_ex ? ibv_cq_ex_to_cq(side->cq_ex) : NULL;
	} else {
		side->cq = ibv_create_cq(side->context, cqes, NULL, side->channel, 0);
	}
	if (!side->cq)
		return NULL;
	if (special == SHARED) {
		struct ibv_srq_init_attr init = { .attr = { .max_wr = depth, .max_sge = 1 } };

		side->srq = ibv_create_srq(side->pd, &init);
		if (!side->srq)
			return NULL;
	}
	side->qps = calloc(count, sizeof(*side->qps));
	for (; side->count < count; side->count++) {
		struct ibv_qp_init_attr_ex init = {
			.send_cq = side->cq,
			.recv_cq = side->cq,
			.srq = side->srq,
			.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = SGES, .max_recv_sge = 1,
				 .max_inline_data = 64 },
			.qp_type = special == DATAGRAMS ? IBV_QPT_UD : IBV_QPT_RC,
			.comp_mask = IBV_QP_INIT_ATTR_PD | (extended ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
			.pd = side->pd,
			.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ |
					  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
		};

		if (special == DATAGRAMS)
			init.send_ops_flags = IBV_QP_EX_WITH_SEND;
		side->qps[side->count] = ibv_create_qp_ex(side->context, &init);
		if (!side->qps[side->count] || (special == DATAGRAMS ? bring_up : connect)(side, side->qps[side->count]))
			return NULL;
	}
	if (extended)
		side->qp_ex = ibv_qp_to_qp_ex(side->qps[0]);
	prepare(side);
	return side;
}

int sbs_parts(struct side *side, struct parts *parts)
{
	struct mlx5dv_qp qp = { 0 };
	struct mlx5dv_cq cq = { 0 };
	struct mlx5dv_srq srq = { 0 };
	struct mlx5dv_obj object = { .qp = { .in = side->qps[0], .out = &qp },
				     .cq = { .in = side->cq, .out = &cq },
				     .srq = { .in = side->srq, .out = &srq } };

	if (mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | (side->srq ? MLX5DV_OBJ_SRQ : 0)))
		return -1;
	*parts = (struct parts){ cq.buf,	 cq.cqe_cnt, cq.cqe_size, qp.sq.wqe_cnt,
				 qp.rq.wqe_cnt, srq.buf,    srq.stride,	  srq.head };
	return 0;
}

uint32_t sbs_qpn(struct side *side, int index)
{
	return side->qps[index]->qp_num;
}

uint64_t sbs_sum(struct side *side)
{
	return side->sum;
}

/* `batches` doorbells of `n` work requests each. */
static inline __attribute__((always_inline)) int post(struct side *side, enum kind kind, int n, int batches)
{
	struct ibv_send_wr *wr = &side->wr[kind][CHAIN - n], *bad;
	struct ibv_sge(*sge)[SGES] = &side->sge[kind][CHAIN - n];
	struct ibv_qp *qp = side->qps[0];
	uint64_t id = side->id;

	for (int batch = 0; batch < batches; batch++) {
		for (int i = 0; i < n; i++, id++) {
			uint64_t place = (uintptr_t)side->area + PAYLOAD * (id % LINES);

			wr[i].wr_id = id;
			if (kind == ATOMIC)
				wr[i].wr.atomic.remote_addr = place;
			else if (kind != SEND64)
				wr[i].wr.rdma.remote_addr = place;
			sge[i][0].addr = place;
		}
		if (ibv_post_send(qp, wr, &bad))
			return -1;
	}
	side->id = id;
	return 0;
}

#define POST(name, kind, n)                                     \
	int sbs_post_##name##_##n(struct side *side, int batches) \
	{                                                       \
		return post(side, kind, n, batches);            \
	}
POST(write_inline8, WRITE_INLINE8, 1)
POST(write_inline8, WRITE_INLINE8, 32)
POST(send64, SEND64, 1)
POST(send64, SEND64, 32)
POST(read, READ, 1)
POST(atomic, ATOMIC, 1)
POST(gather4, GATHER4, 1)
POST(ud_send64, SEND64, 1)
POST(ud_send64, SEND64, 32)

/* The same through the calls of 2019, of connections or of datagrams. */
static inline __attribute__((always_inline)) int wr_post(struct side *side, int datagrams, enum kind kind, int n,
							  int batches)
{
	struct ibv_qp_ex *qp = side->qp_ex;
	uint32_t lkey = side->mr->lkey, rkey = side->mr->rkey;
	uint32_t qpn = qp->qp_base.qp_num;
	uint64_t id = side->id;

	for (int batch = 0; batch < batches; batch++) {
		ibv_wr_start(qp);
		for (int i = 0; i < n; i++, id++) {
			uint64_t place = (uintptr_t)side->area + PAYLOAD * (id % LINES);

			qp->wr_id = id;
			qp->wr_flags = i + 1 == n ? IBV_SEND_SIGNALED : 0;
			if (kind == SEND64)
				ibv_wr_send(qp);
			else if (kind == READ)
				ibv_wr_rdma_read(qp, rkey, place);
			else if (kind == ATOMIC)
				ibv_wr_atomic_fetch_add(qp, rkey, place, 1);
			else
				ibv_wr_rdma_write(qp, rkey, place);
			if (datagrams)
				ibv_wr_set_ud_addr(qp, side->ah, qpn, QKEY);
			if (kind == WRITE_INLINE8)
				ibv_wr_set_inline_data(qp, (void *)place, 8);
			else if (kind == GATHER4) {
				side->sge[kind][0][0].addr = place;
				ibv_wr_set_sge_list(qp, SGES, side->sge[kind][0]);
			} else
				ibv_wr_set_sge(qp, lkey, place, kind == ATOMIC ? 8 : PAYLOAD);
		}
		if (ibv_wr_complete(qp))
			return -1;
	}
	side->id = id;
	return 0;
}

#define WR_POST(name, kind, n)                                \
	int sbs_wr_##name##_##n(struct side *side, int batches) \
	{                                                     \
		return wr_post(side, 0, kind, n, batches);    \
	}
WR_POST(write_inline8, WRITE_INLINE8, 1)
WR_POST(write_inline8, WRITE_INLINE8, 32)
WR_POST(send64, SEND64, 1)
WR_POST(send64, SEND64, 32)
WR_POST(read, READ, 1)
WR_POST(atomic, ATOMIC, 1)
WR_POST(gather4, GATHER4, 1)

int sbs_wr_ud_send64_1(struct side *side, int batches)
{
	return wr_post(side, 1, SEND64, 1, batches);
}

int sbs_wr_ud_send64_32(struct side *side, int batches)
{
	return wr_post(side, 1, SEND64, 32, batches);
}

static inline __attribute__((always_inline)) int recv(struct side *side, int shared, int n, int batches)
{
	struct ibv_recv_wr *wr = &side->recv[CHAIN - n], *bad;
	struct ibv_sge *sge = &side->recv_sge[CHAIN - n];
	struct ibv_qp *qp = side->qps[0];
	uint64_t id = side->id;

	for (int batch = 0; batch < batches; batch++) {
		for (int i = 0; i < n; i++, id++) {
			wr[i].wr_id = id;
			sge[i].addr = (uintptr_t)side->area + PAYLOAD * (id % LINES);
		}
		if (shared ? ibv_post_srq_recv(side->srq, wr, &bad) : ibv_post_recv(qp, wr, &bad))
			return -1;
	}
	side->id = id;
	return 0;
}

#define RECV(name, shared, n)                              \
	int sbs_##name##_##n(struct side *side, int batches) \
	{                                                  \
		return recv(side, shared, n, batches);     \
	}
RECV(recv, 0, 1)
RECV(recv, 0, 32)
RECV(srq_recv, 1, 1)
RECV(srq_recv, 1, 32)

/* One send on one queue pair, or on each; one receive. For what the poll cases complete. */
int sbs_fill_sends(struct side *side, int first, int count)
{
	struct ibv_send_wr *wr = &side->wr[SEND64][CHAIN - 1], *bad;

	for (int i = 0; i < count; i++) {
		wr->wr_id = side->id++;
		if (ibv_post_send(side->qps[side->count == 1 ? 0 : first + i], wr, &bad))
			return -1;
	}
	return 0;
}

int sbs_fill_recvs(struct side *side, int count)
{
	struct ibv_recv_wr *wr = &side->recv[CHAIN - 1], *bad;

	for (int i = 0; i < count; i++) {
		wr->wr_id = side->id++;
		if (ibv_post_recv(side->qps[0], wr, &bad))
			return -1;
	}
	return 0;
}

/* `polls` polls of up to `n`; gives the completions seen. Reads what a program reads. */
static inline __attribute__((always_inline)) int poll(struct side *side, int arms, int n, int polls)
{
	struct ibv_wc wc[64];
	struct ibv_cq *cq = side->cq;
	uint64_t sum = 0;
	int seen = 0;

	for (int i = 0; i < polls; i++) {
		int got;

		if (arms && ibv_req_notify_cq(cq, 0))
			return -1;
		got = ibv_poll_cq(cq, n, wc);

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

#define POLL(name, arms, n)                              \
	int sbs_##name##_##n(struct side *side, int polls) \
	{                                                \
		return poll(side, arms, n, polls);       \
	}
POLL(poll, 0, 1)
POLL(poll, 0, 16)
POLL(poll, 0, 64)
POLL(arm_poll, 1, 1)
POLL(arm_poll, 1, 16)

static inline __attribute__((always_inline)) int poll_ex(struct side *side, int arms, int n, int polls)
{
	struct ibv_cq_ex *cq = side->cq_ex;
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t sum = 0;
	int seen = 0;

	for (int i = 0; i < polls; i++) {
		int got = 0;

		if (arms && ibv_req_notify_cq(side->cq, 0))
			return -1;
		if (ibv_start_poll(cq, &attr))
			continue;
		do {
			if (cq->status != IBV_WC_SUCCESS)
				return -1;
			sum += cq->wr_id;
			if (ibv_wc_read_opcode(cq) & IBV_WC_RECV)
				sum += ibv_wc_read_byte_len(cq);
		} while (++got < n && !ibv_next_poll(cq));
		ibv_end_poll(cq);
		seen += got;
	}
	side->sum += sum;
	return seen;
}

#define POLL_EX(name, arms, n)                           \
	int sbs_##name##_##n(struct side *side, int polls) \
	{                                                \
		return poll_ex(side, arms, n, polls);    \
	}
POLL_EX(poll_ex, 0, 1)
POLL_EX(poll_ex, 0, 16)
POLL_EX(poll_ex, 0, 64)
POLL_EX(arm_poll_ex, 1, 1)
POLL_EX(arm_poll_ex, 1, 16)
