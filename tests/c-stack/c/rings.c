/* Posts to rings of rdmavt: each base operation in one list, and receives. Prints the rings as they
 * are in memory: the device is in this process. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "dump.h"

static char page[4096] __attribute__((aligned(4096)));

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	MUST(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *mr = ibv_reg_mr(pd, page, sizeof page, access);
	struct ibv_cq *cq = ibv_create_cq(context, 21, NULL, NULL, 0);
	MUST(pd && mr && cq);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 3, .max_recv_sge = 3 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	MUST(qp);
	printf("base %lx\n", (unsigned long)page);

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct ibv_sge sge[2] = { { (uintptr_t)page, 64, mr->lkey }, { (uintptr_t)page + 256, 32, mr->lkey } };
	struct ibv_recv_wr recv[3] = { { .wr_id = 1, .next = &recv[1], .sg_list = sge, .num_sge = 2 },
		{ .wr_id = 2, .next = &recv[2], .sg_list = sge, .num_sge = 1 }, { .wr_id = 3, .sg_list = sge, .num_sge = 2 } };
	struct ibv_recv_wr *bad_recv;
	MUST(!ibv_post_recv(qp, recv, &bad_recv));
	dump();
	struct ibv_port_attr port;
	MUST(!ibv_query_port(context, 1, &port));
	attr = (struct ibv_qp_attr) { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = { .dlid = port.lid, .port_num = 1 } };
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr) { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC));

	uint64_t to = (uintptr_t)page + 1024;
	struct ibv_sge eight = { (uintptr_t)page + 512, 8, mr->lkey };
	struct ibv_send_wr wr[7] = {
		{ .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 2, .send_flags = IBV_SEND_SOLICITED | IBV_SEND_FENCE },
		{ .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(0x01020304) },
		{ .opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = 1, .wr.rdma = { to, mr->rkey } },
		{ .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htobe32(0x05060708), .sg_list = sge, .num_sge = 2, .wr.rdma = { to, mr->rkey } },
		{ .opcode = IBV_WR_RDMA_READ, .sg_list = sge, .num_sge = 2, .wr.rdma = { to, mr->rkey } },
		{ .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .sg_list = &eight, .num_sge = 1, .wr.atomic = { to, 7, 8, mr->rkey } },
		{ .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &eight, .num_sge = 1, .wr.atomic = { to, 9, 0, mr->rkey } },
	};
	for (int i = 0; i < 7; i++) {
		wr[i].wr_id = 10 + i;
		wr[i].send_flags |= IBV_SEND_SIGNALED;
		wr[i].next = i < 6 ? &wr[i + 1] : NULL;
	}
	struct ibv_send_wr *bad_send;
	MUST(!ibv_post_send(qp, wr, &bad_send));
	struct ibv_wc wc;
	for (int done = 0; done < 10;) {
		int n = ibv_poll_cq(cq, 1, &wc);
		MUST(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS));
		done += n;
	}
	dump();
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	printf("ok\n");
	return 0;
}
