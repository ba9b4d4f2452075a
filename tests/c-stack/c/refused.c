/* Send lists that the kernel refuses half way, on a device whose sends are commands (rdmavt): the work requests before
 * the refused one complete, the rest is not posted, and can be posted again. Prints a line per check. */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

#define MOST 40

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *sent, *received;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static uint32_t memory[2 * MOST] __attribute__((aligned(4096)));
static struct ibv_sge sges[MOST];
static struct ibv_send_wr list[MOST];

static void open_all(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .max_rd_atomic = 1,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = MOST, .max_recv_wr = MOST, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	ctx = ibv_open_device(devices[0]);
	check("a device", ctx != NULL, 1);
	pd = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = sent = ibv_create_cq(ctx, MOST, NULL, NULL, 0);
	init.recv_cq = received = ibv_create_cq(ctx, MOST, NULL, NULL, 0);
	qp = ibv_create_qp(pd, &init);
	check("objects", pd && mr && sent && received && qp, 1);
	check("port", ibv_query_port(ctx, 1, &port), 0);
	attr.dest_qp_num = qp->qp_num;
	attr.ah_attr.dlid = port.lid;
	attr.ah_attr.port_num = 1;
	check("to INIT", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr.qp_state = IBV_QPS_RTR;
	check("to RTR", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	attr.qp_state = IBV_QPS_RTS;
	check("to RTS", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
	ibv_free_device_list(devices);
}

/* Lists `count` sends of a word each; the word and the wr_id are the place in the list. */
static void make_list(int count)
{
	for (int i = 0; i < count; i++) {
		memory[i] = i;
		memory[MOST + i] = UINT32_MAX;
		sges[i] = (struct ibv_sge){ .addr = (uintptr_t)&memory[i], .length = 4, .lkey = mr->lkey };
		list[i] = (struct ibv_send_wr){ .wr_id = i, .next = i + 1 < count ? &list[i + 1] : NULL, .sg_list = &sges[i],
			.num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	}
}

static void post_receives(int count)
{
	for (int i = 0; i < count; i++) {
		struct ibv_sge to = { .addr = (uintptr_t)&memory[MOST + i], .length = 4, .lkey = mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &to, .num_sge = 1 }, *bad;

		check("a receive", ibv_post_recv(qp, &wr, &bad), 0);
	}
}

/* Polls the completions of [from, to), in order, and the received words. No completion comes after them. */
static void completed(int from, int to)
{
	struct ibv_cq *cqs[2] = { sent, received };
	struct ibv_wc wc;

	for (int i = from; i < to; i++)
		for (int j = 0; j < 2; j++) {
			while (!ibv_poll_cq(cqs[j], 1, &wc))
				;
			check("status", wc.status, IBV_WC_SUCCESS);
			check("in order", wc.wr_id, i);
		}
	/* A repeated one would come out of order in the next round. */
	for (int j = 0; j < 2; j++)
		check("no more completions", ibv_poll_cq(cqs[j], 1, &wc), 0);
	for (int i = from; i < to; i++)
		check("received", memory[MOST + i], i);
}

/* Work request `at` of `count` has a key of no region: the kernel refuses it at the post. */
static void bad_key(int count, int at)
{
	struct ibv_send_wr *bad = NULL;

	make_list(count);
	post_receives(count);
	sges[at].lkey ^= 0xff00;
	check("a bad key", ibv_post_send(qp, list, &bad), EINVAL);
	check("bad_wr", bad - list, at);
	completed(0, at);
	check("not sent", memory[MOST + at], UINT32_MAX);
	/* The rest is refused again, and this time nothing is taken. */
	check("again", ibv_post_send(qp, bad, &bad), EINVAL);
	check("the same bad_wr", bad - list, at);
	sges[at].lkey = mr->lkey;
	check("the rest", ibv_post_send(qp, &list[at], &bad), 0);
	completed(at, count);
}

/* A list of more work requests than the queue has room for: those that fit are posted. None completes before its
 * receive is there, so none makes room meanwhile. */
static void full(void)
{
	struct ibv_send_wr *bad = NULL, more = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };

	make_list(MOST);
	list[MOST - 1].next = &more;
	check("a full queue", ibv_post_send(qp, list, &bad), ENOMEM);
	check("bad_wr of the full queue", bad == &more, 1);
	post_receives(MOST);
	completed(0, MOST);
}

int main(void)
{
	open_all();
	bad_key(5, 2);
	bad_key(5, 0);
	bad_key(5, 4);
	/* libhfi1verbs splits lists of more than ten. */
	for (int at = 9; at < 16; at++)
		bad_key(30, at);
	bad_key(MOST, MOST - 1);
	full();
	check("destroyed", ibv_destroy_qp(qp) | ibv_destroy_cq(sent) | ibv_destroy_cq(received) | ibv_dereg_mr(mr) |
	      ibv_dealloc_pd(pd) | ibv_close_device(ctx), 0);
	return checked();
}
