/* Queues of rdmavt that change their size, datagrams, and lists that libhfi1verbs splits. Prints the rings after each
 * step: the device is in this process. Elements of all rings have 48 bytes. */

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#define DUMPED 4000
#include "dump.h"

#define SGES 2
#define LONG 30
/* Omni-Path's code of 10,240 bytes (kernel rdma/opa_port_info.h). */
#define MTU_10240 ((enum ibv_mtu)7)

static char page[4096] __attribute__((aligned(4096)));
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_port_attr port;
static struct ibv_cq *sent, *received;

static void step(const char *name)
{
	printf("step %s\n", name);
	dump();
}

static struct ibv_sge part(int at, int length)
{
	return (struct ibv_sge){ (uintptr_t)page + at, length, mr->lkey };
}

static struct ibv_qp *queue(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = sent, .recv_cq = received, .srq = srq, .qp_type = type,
		.cap = { .max_send_wr = LONG, .max_recv_wr = srq ? 0 : LONG, .max_send_sge = SGES, .max_recv_sge = srq ? 0 : SGES } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234, .path_mtu = MTU_10240,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .dlid = port.lid, .port_num = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	int ud = type == IBV_QPT_UD;

	MUST(qp);
	attr.dest_qp_num = qp->qp_num;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		(ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, ud ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, ud ? IBV_QP_STATE | IBV_QP_SQ_PSN : IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	MUST(ud || (!ibv_query_qp(qp, &attr, IBV_QP_PATH_MTU, &init) && attr.path_mtu == port.active_mtu));
	return qp;
}

static void receives(struct ibv_qp *qp, struct ibv_srq *srq, int from, int count)
{
	for (int i = from; i < from + count; i++) {
		struct ibv_sge sges[SGES] = { part(i * 64, 64), part(2048, 100) };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = sges, .num_sge = i % SGES + 1 }, *bad;

		MUST(!(srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad)));
	}
}

/* Waits for the event of the receives. */
static void wait_for(struct ibv_comp_channel *channel)
{
	struct ibv_cq *of;
	void *own;

	MUST(!ibv_get_cq_event(channel, &of, &own) && of == received);
	ibv_ack_cq_events(of, 1);
}

static void take(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	for (int done = 0; done < count;) {
		int n = ibv_poll_cq(cq, 1, &wc);

		MUST(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS));
		done += n;
	}
}

/* Takes the last completions. A poll that finds none gives the last entry back, if the library has not yet. */
static void take_rest(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	take(cq, count);
	MUST(!ibv_poll_cq(cq, 1, &wc));
}

/* Takes the last sends and receives. */
static void take_all(int count)
{
	take_rest(sent, count);
	take_rest(received, count);
}

/* Makes both completion queues new ones without entries. */
static void renew(void)
{
	MUST(!ibv_resize_cq(sent, 61) && !ibv_resize_cq(received, 61));
}

/* Sends a list of `count`; the last is solicited. */
static void send_list(struct ibv_qp *qp, struct ibv_ah *ah, int count)
{
	struct ibv_sge sges[LONG][SGES];
	struct ibv_send_wr wr[LONG], *bad;

	for (int i = 0; i < count; i++) {
		sges[i][0] = part(3072 + i, 7);
		sges[i][1] = part(3500, 1 + i);
		wr[i] = (struct ibv_send_wr){ .wr_id = i, .next = i + 1 < count ? &wr[i + 1] : NULL, .sg_list = sges[i],
			.num_sge = i % (SGES + 1), .opcode = i % 3 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
			.imm_data = htobe32(0x01020300 + i), .send_flags = IBV_SEND_SIGNALED };
		if (i + 1 == count)
			wr[i].send_flags |= IBV_SEND_SOLICITED;
		if (ah) {
			wr[i].wr.ud.ah = ah;
			wr[i].wr.ud.remote_qpn = qp->qp_num;
			wr[i].wr.ud.remote_qkey = 0x1234;
		}
	}
	MUST(!ibv_post_send(qp, wr, &bad));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr shape = { .attr = { .max_wr = 8, .max_sge = SGES } };
	struct ibv_srq_attr now = { .max_wr = 32 };
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct ibv_qp *rc, *ud, *shared;
	struct ibv_ah *ah, *global;
	union ibv_gid gid;

	context = ibv_open_device(list[0]);
	MUST(context && !ibv_query_port(context, 1, &port));
	channel = ibv_create_comp_channel(context);
	pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, page, sizeof page, IBV_ACCESS_LOCAL_WRITE);
	sent = ibv_create_cq(context, 20, NULL, NULL, 0);
	received = ibv_create_cq(context, 20, NULL, channel, 0);
	srq = ibv_create_srq(pd, &shape);
	MUST(channel && pd && mr && sent && received && srq);
	printf("base %lx\n", (unsigned long)page);

	rc = queue(IBV_QPT_RC, NULL);
	receives(rc, NULL, 0, 9);
	MUST(!ibv_req_notify_cq(received, 1));
	send_list(rc, NULL, 9);
	wait_for(channel);
	take_rest(sent, 9);
	take(received, 2);
	step("nine messages, seven entries wait");
	MUST(!ibv_resize_cq(received, 61));
	step("a larger completion queue");
	MUST(ibv_resize_cq(received, 5) == EINVAL);
	take(received, 1);
	MUST(!ibv_resize_cq(received, 6) && received->cqe >= 6);
	step("a smaller one");
	take_rest(received, 6);

	renew();
	receives(rc, NULL, 9, LONG);
	send_list(rc, NULL, LONG);
	take_all(LONG);
	step("a long list");

	renew();
	receives(NULL, srq, 0, 6);
	step("a shared queue");
	MUST(!ibv_modify_srq(srq, &now, IBV_SRQ_MAX_WR));
	receives(NULL, srq, 6, 20);
	step("a larger shared queue");
	shared = queue(IBV_QPT_RC, srq);
	send_list(shared, NULL, 10);
	take_all(10);
	step("ten are received from it");
	now.max_wr = 15;
	MUST(ibv_modify_srq(srq, &now, IBV_SRQ_MAX_WR) == EINVAL);
	now.max_wr = 16;
	MUST(!ibv_modify_srq(srq, &now, IBV_SRQ_MAX_WR));
	step("a smaller shared queue");

	renew();
	ud = queue(IBV_QPT_UD, NULL);
	ah = ibv_create_ah(pd, &(struct ibv_ah_attr){ .dlid = port.lid, .port_num = 1 });
	MUST(!ibv_query_gid(context, 1, 0, &gid));
	global = ibv_create_ah(pd, &(struct ibv_ah_attr){ .dlid = port.lid, .port_num = 1, .is_global = 1,
		.grh = { .dgid = gid, .hop_limit = 64 } });
	MUST(ah && global);
	receives(ud, NULL, 0, 16);
	send_list(ud, ah, 12);
	take_all(12);
	send_list(ud, global, 4);
	take_all(4);
	step("datagrams");
	MUST(!ibv_destroy_ah(ah) && !ibv_destroy_ah(global));
	MUST(!ibv_destroy_qp(ud) && !ibv_destroy_qp(shared) && !ibv_destroy_qp(rc));
	MUST(!ibv_destroy_srq(srq) && !ibv_destroy_cq(sent) && !ibv_destroy_cq(received));
	MUST(!ibv_destroy_comp_channel(channel));
	MUST(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	printf("ok\n");
	return 0;
}
