/*
 * Time from a SEND until a sleeping receiver has the completion, through libibverbs: a queue pair that is connected to
 * itself, whose receive completions report to a channel. Counterpart with our library: benches/wake.rs.
 *
 * wake COUNT PAUSE_US: prints the times of COUNT wake-ups in nanoseconds, a line each.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define NEED(condition, what)                                                        \
	do {                                                                         \
		if (!(condition)) {                                                  \
			fprintf(stderr, "wake: %s (%s)\n", what, strerror(errno)); \
			exit(1);                                                     \
		}                                                                    \
	} while (0)

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	NEED(!(errno = ibv_modify_qp(qp, &attr, mask)), "ibv_modify_qp");
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	static uint8_t memory[64];
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_cq *sent, *received, *named;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	void *user;
	int count, pause;

	NEED(argc == 3 && list && *list, "COUNT PAUSE_US, and a device");
	count = atoi(argv[1]);
	pause = atoi(argv[2]);
	NEED(context = ibv_open_device(*list), "ibv_open_device");
	NEED(!ibv_query_port(context, 1, &port), "ibv_query_port");
	NEED(!ibv_query_gid(context, 1, 1, &gid), "ibv_query_gid");
	NEED(pd = ibv_alloc_pd(context), "ibv_alloc_pd");
	NEED(mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
	NEED(channel = ibv_create_comp_channel(context), "ibv_create_comp_channel");
	NEED(sent = ibv_create_cq(context, 63, NULL, NULL, 0), "ibv_create_cq");
	NEED(received = ibv_create_cq(context, 63, NULL, channel, 0), "ibv_create_cq");
	qp = ibv_create_qp(pd, &(struct ibv_qp_init_attr){
				       .send_cq = sent,
				       .recv_cq = received,
				       .qp_type = IBV_QPT_RC,
				       .sq_sig_all = 1,
				       .cap = { 16, 16, 1, 1, 16 },
			       });
	NEED(qp, "ibv_create_qp");
	modify(qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 },
	       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(qp,
	       (struct ibv_qp_attr){
		       .qp_state = IBV_QPS_RTR,
		       .path_mtu = IBV_MTU_1024,
		       .dest_qp_num = qp->qp_num,
		       .max_dest_rd_atomic = 1,
		       .min_rnr_timer = 12,
		       .ah_attr = { .grh = { .dgid = gid, .sgid_index = 1, .hop_limit = 1 },
				    .dlid = port.lid,
				    .is_global = 1,
				    .port_num = 1 },
	       },
	       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(qp,
	       (struct ibv_qp_attr){
		       .qp_state = IBV_QPS_RTS, .max_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 },
	       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		       IBV_QP_RNR_RETRY);
	for (int i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey };
		struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					    .send_flags = IBV_SEND_INLINE };
		struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
		struct ibv_send_wr *bad;
		uint64_t start;

		NEED(!(errno = ibv_post_recv(qp, &recv, &bad_recv)), "ibv_post_recv");
		NEED(!(errno = ibv_req_notify_cq(received, 0)), "ibv_req_notify_cq");
		NEED(!ibv_poll_cq(received, 1, &wc), "nothing was sent");
		if (pause)
			usleep(pause);
		start = now();
		NEED(!(errno = ibv_post_send(qp, &send, &bad)), "ibv_post_send");
		NEED(!ibv_get_cq_event(channel, &named, &user) && named == received, "ibv_get_cq_event");
		ibv_ack_cq_events(named, 1);
		NEED(ibv_poll_cq(received, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "ibv_poll_cq");
		printf("%" PRIu64 "\n", now() - start);
		while (!ibv_poll_cq(sent, 1, &wc))
			;
		NEED(wc.status == IBV_WC_SUCCESS, "the send");
	}
	return 0;
}
