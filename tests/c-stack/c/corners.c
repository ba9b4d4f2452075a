/* Corners of verbs in which a software device is easily unlike an adapter: limits, windows, receives with a bad rest,
 * atomics with a long list, the last message before ERR, arming before polling. Prints a line per check. */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq, *told;
static struct ibv_mr *mr;
static uint8_t memory[1 << 16] __attribute__((aligned(4096)));
static union ibv_gid gid;
static struct ibv_port_attr port;

#define HERE (memory)
#define THERE (memory + 32768)
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Sends complete on `cq`, receives on `told`. */
static struct ibv_qp *queue(int sges)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = told, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 10, .max_recv_wr = 16, .max_send_sge = sges, .max_recv_sge = 2 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	check("a queue pair", qp != NULL, 1);
	return qp;
}

static void bring(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.max_rd_atomic = 4, .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7, .qp_access_flags = RIGHTS,
		.ah_attr = { .port_num = 1, .is_global = 1, .dlid = port.lid,
			.grh = { .dgid = gid, .hop_limit = 64 } } };

	check("to INIT", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr.qp_state = IBV_QPS_RTR;
	check("to RTR", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	attr.qp_state = IBV_QPS_RTS;
	check("to RTS", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

/* Two connected queue pairs. */
static void pair(struct ibv_qp *qp[2], int sges)
{
	for (int i = 0; i < 2; i++)
		qp[i] = queue(sges);
	for (int i = 0; i < 2; i++)
		bring(qp[i], qp[!i]->qp_num);
}

static void gone(struct ibv_qp *qp[2])
{
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++)
		check("destroyed", ibv_destroy_qp(qp[i]), 0);
	while (ibv_poll_cq(cq, 1, &wc) > 0 || ibv_poll_cq(told, 1, &wc) > 0)
		;
}

/* The next completion; a status that no completion has after 3 s. */
static struct ibv_wc next(struct ibv_cq *of)
{
	struct ibv_wc wc = { .status = 99 };

	for (int i = 0; i < 30000 && !ibv_poll_cq(of, 1, &wc); i++)
		usleep(100);
	return wc;
}

static void receive(struct ibv_qp *qp, struct ibv_sge *list, int count)
{
	struct ibv_recv_wr wr = { .sg_list = list, .num_sge = count }, *bad;

	check("a receive", ibv_post_recv(qp, &wr, &bad), 0);
}

static int post(struct ibv_qp *qp, int opcode, struct ibv_sge *list, int count, int flags)
{
	struct ibv_send_wr wr = { .opcode = opcode, .sg_list = list, .num_sge = count, .send_flags = flags }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)THERE;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)THERE;
		wr.wr.rdma.rkey = mr->rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

static struct ibv_sge sge(void *at, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)at, .length = length, .lkey = mr->lkey };
}

static struct ibv_qp *receiving(int wr, int sges)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = told, .qp_type = IBV_QPT_RC,
		.cap = { .max_recv_wr = wr, .max_recv_sge = sges } };

	return ibv_create_qp(pd, &init);
}

static struct ibv_srq *shared(int wr, int sges)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = wr, .max_sge = sges } };

	return ibv_create_srq(pd, &init);
}

/* Each limit can be had. libmlx5 leaves some of the next values to the kernel, which takes them. */
static void limits(void)
{
	struct ibv_device_attr_ex device;
	struct ibv_device_attr *attr = &device.orig_attr;
	struct ibv_srq *srq;
	struct ibv_qp *qp;

	check("ibv_query_device_ex", ibv_query_device_ex(ctx, NULL, &device), 0);
	check("Toeplitz, if frames are hashed", device.rss_caps.rx_hash_function, device.rss_caps.supported_qpts ? 1 : 0);
	check("fields", device.rss_caps.rx_hash_fields_mask, device.rss_caps.supported_qpts ? 0x800000ff : 0);
	check("max_qp_wr receives", (qp = receiving(attr->max_qp_wr, 1)) && !ibv_destroy_qp(qp), 1);
	check("one more", receiving(attr->max_qp_wr + 1, 1) == NULL, 1);
	check("max_sge", (qp = receiving(1, attr->max_sge)) && !ibv_destroy_qp(qp), 1);
	check("max_srq_wr", (srq = shared(attr->max_srq_wr, 1)) && !ibv_destroy_srq(srq), 1);
	check("one more", shared(attr->max_srq_wr + 1, 1) == NULL, 1);
	check("max_srq_sge", (srq = shared(1, attr->max_srq_sge)) && !ibv_destroy_srq(srq), 1);
	check("too many", shared(1, attr->max_srq_sge + 2) == NULL, 1);
}

/* libmlx5 rounds a ring up to a power of two, and takes as many posts as fit. */
static void ring(void)
{
	struct ibv_sge data = sge(HERE, 8);
	struct ibv_qp *qp[2];
	int count = 0;

	pair(qp, 1);
	/* The peer has no receive. */
	while (count < 100 && !post(qp[0], IBV_WR_SEND, &data, 1, 0))
		count++;
	check("16 sends of a queue for 10", count >= 16 && count < 100, 1);
	gone(qp);
}

/* A message into all SGEs that a shared receive may have. */
static void longest_list(void)
{
	struct ibv_srq *srq = shared(4, 31);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = told, .srq = srq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_sge list[31], data = sge(HERE, 31 * 8);
	struct ibv_recv_wr wr = { .sg_list = list, .num_sge = 31 }, *bad;

	check("a queue pair of a shared receive queue", qp && srq, 1);
	if (!qp || !srq)
		return;
	bring(qp, qp->qp_num);
	for (int i = 0; i < 31; i++)
		list[i] = sge(THERE + 16 * i, 8);
	check("a shared receive", ibv_post_srq_recv(srq, &wr, &bad), 0);
	check("a message", post(qp, IBV_WR_SEND, &data, 1, 0), 0);
	check("it arrives", next(told).status, IBV_WC_SUCCESS);
	check("it is sent", next(cq).status, IBV_WC_SUCCESS);
	for (int i = 0; i < 31; i++)
		check("a part", memcmp(THERE + 16 * i, HERE + 8 * i, 8), 0);
	check("destroyed", ibv_destroy_qp(qp) || ibv_destroy_srq(srq), 0);
}

static int bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mr *region, uint64_t length)
{
	struct ibv_mw_bind how = { .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = region, .addr = (uintptr_t)THERE, .length = length,
			       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE } };

	check("a bind is posted", ibv_bind_mw(qp, mw, &how), 0);
	return next(cq).status;
}

/* As Linux's soft-RoCE (rxe_mw.c, rxe_check_bind_mw; rxe_verbs.c, rxe_dereg_mr). */
static void windows(void)
{
	struct ibv_mr *open = ibv_reg_mr(pd, THERE, 4096, RIGHTS | IBV_ACCESS_MW_BIND);
	struct ibv_mr *shut = ibv_reg_mr(pd, THERE, 4096, RIGHTS);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_qp *qp[2];

	pair(qp, 1);
	check("a region with MW_BIND", bind(qp[0], mw, open, 4096), IBV_WC_SUCCESS);
	check("it stays", ibv_dereg_mr(open), EINVAL);
	check("another goes", ibv_dereg_mr(shut), 0);
	check("unbound", bind(qp[0], mw, open, 0), IBV_WC_SUCCESS);
	check("it goes", ibv_dereg_mr(open), 0);
	open = ibv_reg_mr(pd, THERE, 4096, RIGHTS | IBV_ACCESS_MW_BIND);
	shut = ibv_reg_mr(pd, THERE, 4096, RIGHTS);
	check("bound again", bind(qp[0], mw, open, 64), IBV_WC_SUCCESS);
	check("a window goes", ibv_dealloc_mw(mw), 0);
	check("and its region", ibv_dereg_mr(open), 0);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	check("a region without MW_BIND", bind(qp[0], mw, shut, 4096), IBV_WC_MW_BIND_ERR);
	check("it goes", ibv_dereg_mr(shut), 0);
	check("a window goes", ibv_dealloc_mw(mw), 0);
	gone(qp);
}

static void operations(void)
{
	uint64_t *counter = (uint64_t *)THERE, *old = (uint64_t *)HERE;
	struct ibv_sge longer = sge(HERE, 16), two[2] = { sge(HERE, 8), sge(HERE + 64, 8) };
	struct ibv_qp *qp[2];

	pair(qp, 2);
	*counter = 7;
	memset(HERE, 1, 128);
	check("an atomic into 16 bytes", post(qp[0], IBV_WR_ATOMIC_FETCH_AND_ADD, &longer, 1, 0), 0);
	check("it is done", next(cq).status, IBV_WC_SUCCESS);
	check("old", old[0], 7);
	check("the rest", old[1], 0x0101010101010101);
	check("an atomic into two parts", post(qp[0], IBV_WR_ATOMIC_FETCH_AND_ADD, two, 2, 0), 0);
	check("it is done", next(cq).status, IBV_WC_SUCCESS);
	check("old", old[0], 12);
	check("the other part", old[8], 0x0101010101010101);
	check("new", *counter, 17);
	check("a READ with the inline flag", post(qp[0], IBV_WR_RDMA_READ, &longer, 1, IBV_SEND_INLINE), 0);
	check("it fails", next(cq).status, IBV_WC_LOC_QP_OP_ERR);
	gone(qp);
}

/* An adapter looks up a key when it scatters to it. */
static void receives(void)
{
	static const struct { uint32_t length; int status; } sent[] = {
		{ 0, IBV_WC_SUCCESS }, { 100, IBV_WC_SUCCESS }, { 108, IBV_WC_LOC_PROT_ERR } };

	for (int wrong = 0; wrong < 2; wrong++) {
		for (int i = 0; i < 3; i++) {
			struct ibv_sge list[2] = { sge(THERE, 100), sge(THERE, 100) }, data = sge(HERE, sent[i].length);
			struct ibv_qp *qp[2];

			if (wrong)
				list[1] = sge(memory + sizeof(memory) - 4, 1 << 20);
			else
				list[1].lkey ^= 0x5500;
			pair(qp, 1);
			receive(qp[1], list, 2);
			check("a message", post(qp[0], IBV_WR_SEND, &data, sent[i].length != 0, 0), 0);
			check("received", next(told).status, sent[i].status);
			check("sent", next(cq).status, sent[i].status ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS);
			gone(qp);
		}
	}
}

/* A message that was rung arrives, although the queue pair stops at once. */
static void last_message(void)
{
	static const int states[] = { IBV_QPS_ERR, IBV_QPS_RESET };

	for (int i = 0; i < 20; i++) {
		struct ibv_sge to = sge(THERE, 4096), data = sge(HERE, 4096);
		struct ibv_qp_attr attr = { .qp_state = states[i % 2] };
		struct ibv_qp *qp[2];

		pair(qp, 1);
		receive(qp[1], &to, 1);
		check("a message", post(qp[0], IBV_WR_SEND, &data, 1, 0), 0);
		check("stopped", ibv_modify_qp(qp[0], &attr, IBV_QP_STATE), 0);
		check("it arrives", next(told).status, IBV_WC_SUCCESS);
		gone(qp);
	}
}

/* The order of ibv_get_cq_event(3): event, acknowledge, arm, poll. */
static void events(void)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct ibv_qp *qp[2];

	pair(qp, 1);
	check("armed", ibv_req_notify_cq(told, 0), 0);
	for (int i = 0; i < 10; i++) {
		struct ibv_sge to = sge(THERE, 64), data = sge(HERE, 64);
		struct ibv_cq *of;
		void *context;

		receive(qp[1], &to, 1);
		check("a message", post(qp[0], IBV_WR_SEND, &data, 1, 0), 0);
		check("sent", next(cq).status, IBV_WC_SUCCESS);
		check("ready", poll(&ready, 1, 10000), 1);
		check("an event", ibv_get_cq_event(channel, &of, &context), 0);
		ibv_ack_cq_events(of, 1);
		check("armed", ibv_req_notify_cq(told, 0), 0);
		check("received", next(told).status, IBV_WC_SUCCESS);
		check("one event", poll(&ready, 1, 20), 0);
	}
	gone(qp);
}

/* WQEs that the program writes itself, the last one invalid. */
static void own_wqes(void)
{
	struct ibv_qp *qp[2];
	struct mlx5dv_qp ring = { 0 };
	struct mlx5dv_obj of = { .qp = { NULL, &ring } };

	pair(qp, 1);
	of.qp.in = qp[0];
	check("init_obj", mlx5dv_init_obj(&of, MLX5DV_OBJ_QP), 0);
	for (uint16_t i = 0; i < 4; i++) {
		struct ibv_wc wc;
		char *wqe = (char *)ring.sq.buf + i * ring.sq.stride;
		struct mlx5_wqe_ctrl_seg *ctrl = (void *)wqe;

		mlx5dv_set_ctrl_seg(ctrl, i, i < 3 ? MLX5_OPCODE_RDMA_WRITE : 0x7e, 0, qp[0]->qp_num, MLX5_WQE_CTRL_CQ_UPDATE,
				    3, 0, 0);
		*(struct mlx5_wqe_raddr_seg *)(wqe + 16) = (struct mlx5_wqe_raddr_seg){
			.raddr = htobe64((uintptr_t)THERE + 8 * i), .rkey = htobe32(mr->rkey) };
		mlx5dv_set_data_seg((void *)(wqe + 32), 8, mr->lkey, (uintptr_t)HERE);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		ring.dbrec[1] = htobe32(i + 1);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		*(volatile uint64_t *)ring.bf.reg = *(uint64_t *)ctrl;
		wc = next(cq);
		check("its completion", wc.status, i < 3 ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR);
		check("its queue pair", wc.qp_num, qp[0]->qp_num);
		check("its data", i == 3 || !memcmp(THERE + 8 * i, HERE, 8), 1);
	}
	gone(qp);
}

/* Programs have lists in packed structs (libiscsi's iser.c). */
static void unaligned_lists(void)
{
	static const struct { int receives, sends, flags; } kinds[] = {
		{ 1, 1, 0 }, { 2, 2, 0 }, { 1, 1, IBV_SEND_INLINE }, { 1, 2, IBV_SEND_INLINE }, { 2, 1, IBV_SEND_FENCE } };
	struct __attribute__((packed)) { char odd; struct ibv_sge list[2]; } to, from;
	struct ibv_qp *qp[2];

	pair(qp, 2);
	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		uint32_t part = kinds[i].flags & IBV_SEND_INLINE ? 12 : 32, length = part * kinds[i].sends;

		memset(THERE, 0, 64);
		to.list[0] = sge(THERE, kinds[i].receives == 2 ? 16 : 64);
		to.list[1] = sge(THERE + 16, 48);
		from.list[0] = sge(HERE, part);
		from.list[1] = sge(HERE + part, part);
		receive(qp[1], (void *)((char *)&to + 1), kinds[i].receives);
		check("an unaligned list", post(qp[0], IBV_WR_SEND, (void *)((char *)&from + 1), kinds[i].sends, kinds[i].flags), 0);
		check("is sent", next(cq).status, IBV_WC_SUCCESS);
		check("has all bytes", next(told).byte_len, length);
		check("in their places", memcmp(HERE, THERE, length), 0);
	}
	gone(qp);
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	ctx = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	if (!ctx || ibv_query_port(ctx, 1, &port) || ibv_query_gid(ctx, 1, 0, &gid))
		return 2;
	pd = ibv_alloc_pd(ctx);
	channel = ibv_create_comp_channel(ctx);
	cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	told = ibv_create_cq(ctx, 64, NULL, channel, 0);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS);
	for (unsigned int i = 0; i < sizeof(memory) / 2; i++)
		HERE[i] = i * 7 + 1;
	limits();
	ring();
	longest_list();
	operations();
	receives();
	last_message();
	events();
	windows();
	own_wqes();
	unaligned_lists();
	check("regions", ibv_dereg_mr(mr), 0);
	check("queues", ibv_destroy_cq(cq) || ibv_destroy_cq(told) || ibv_destroy_comp_channel(channel), 0);
	check("domain", ibv_dealloc_pd(pd), 0);
	check("device", ibv_close_device(ctx), 0);
	ibv_free_device_list(devices);
	return checked();
}
