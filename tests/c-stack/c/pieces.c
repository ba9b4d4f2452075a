/* Work requests built by ibv_wr_* and completions polled by ibv_start_poll, between two queue pairs of this process.
 * Prints a line per check. */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct ibv_mr *mr;
static uint8_t memory[1 << 16] __attribute__((aligned(4096)));
static union ibv_gid gid;
static struct ibv_port_attr port;
static int gid_index;

#define HERE (memory)
#define THERE (memory + 32768)

static struct ibv_qp *pair(int type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
		.qp_type = type, .pd = pd, .send_ops_flags = ops,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 3, .max_recv_sge = 2, .max_inline_data = 64 } };

	return ibv_create_qp_ex(ctx, &init);
}

static void bring(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.max_rd_atomic = 4, .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.qkey = 0x11, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.ah_attr = { .port_num = 1, .is_global = 1, .dlid = port.lid,
			.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } } };
	int ud = qp->qp_type == IBV_QPT_UD;

	check("to INIT", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	      (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)), 0);
	attr.qp_state = IBV_QPS_RTR;
	check("to RTR", ibv_modify_qp(qp, &attr, ud ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
	      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	attr.qp_state = IBV_QPS_RTS;
	check("to RTS", ibv_modify_qp(qp, &attr, ud ? IBV_QP_STATE | IBV_QP_SQ_PSN : IBV_QP_STATE | IBV_QP_TIMEOUT |
	      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void receive(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)THERE, .length = 4096, .lkey = mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	check("receive", ibv_post_recv(qp, &wr, &bad), 0);
}

/* Polls until a completion comes, and leaves the queue locked. */
static void one(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int i, got = 1;

	for (i = 0; i < 20000 && (got = ibv_start_poll(cq, &attr)); i++)
		usleep(100);
	check("polled", got, 0);
	if (got)
		exit(1);
}

static void sent(const char *name, uint64_t id, int opcode)
{
	one();
	check(name, cq->status, IBV_WC_SUCCESS);
	check("its number", cq->wr_id, id);
	check("its operation", ibv_wc_read_opcode(cq), opcode);
	ibv_end_poll(cq);
}

static void begin(struct ibv_qp_ex *qp, uint64_t id, unsigned int flags)
{
	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = flags;
}

static void fill(void)
{
	for (int i = 0; i < 4096; i++)
		HERE[i] = i * 7 + 1;
	memset(THERE, 0, 4096);
}

static void connected(void)
{
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
		IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	struct ibv_qp *a = pair(IBV_QPT_RC, ops), *b = pair(IBV_QPT_RC, ops);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a);
	struct ibv_sge list[2] = { { .addr = (uintptr_t)HERE, .length = 100, .lkey = mr->lkey },
		{ .addr = (uintptr_t)HERE + 100, .length = 60, .lkey = mr->lkey } };
	struct ibv_data_buf bufs[2] = { { HERE, 10 }, { HERE + 10, 20 } };
	uint64_t *word = (uint64_t *)THERE, *old = (uint64_t *)(HERE + 8192);

	check("there are queue pairs", a && b && qp, 1);
	bring(a, b->qp_num);
	bring(b, a->qp_num);

	fill();
	receive(b, 1);
	begin(qp, 10, IBV_SEND_SIGNALED);
	ibv_wr_send_imm(qp, htobe32(0x12345678));
	ibv_wr_set_sge_list(qp, 2, list);
	check("complete", ibv_wr_complete(qp), 0);
	for (int i = 0; i < 2; i++) {
		one();
		if (cq->wr_id == 1) {
			check("received", ibv_wc_read_opcode(cq), IBV_WC_RECV);
			check("bytes", ibv_wc_read_byte_len(cq), 160);
			check("immediate", be32toh(ibv_wc_read_imm_data(cq)), 0x12345678);
			check("flags", ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
			check("queue pair", ibv_wc_read_qp_num(cq), b->qp_num);
		} else {
			check("sent", cq->wr_id, 10);
		}
		ibv_end_poll(cq);
	}
	check("the list's bytes", memcmp(HERE, THERE, 160), 0);

	fill();
	begin(qp, 11, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_inline_data_list(qp, 2, bufs);
	check("complete", ibv_wr_complete(qp), 0);
	sent("inline WRITE", 11, IBV_WC_RDMA_WRITE);
	check("inline bytes", memcmp(HERE, THERE, 30), 0);

	/* Three in a batch; only the last one is signaled. */
	fill();
	begin(qp, 12, 0);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 1000);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE + 1000);
	ibv_wr_set_inline_data(qp, HERE + 1000, 50);
	qp->wr_id = 13;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE + 1050);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE + 1050, 500);
	check("complete", ibv_wr_complete(qp), 0);
	sent("three WRITEs", 13, IBV_WC_RDMA_WRITE);
	check("their bytes", memcmp(HERE, THERE, 1550), 0);

	fill();
	memset(HERE, 0, 64);
	memcpy(THERE, "what is there", 14);
	begin(qp, 14, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 14);
	check("complete", ibv_wr_complete(qp), 0);
	sent("READ", 14, IBV_WC_RDMA_READ);
	check("bytes read", memcmp(HERE, "what is there", 14), 0);

	*word = 40;
	begin(qp, 15, IBV_SEND_SIGNALED);
	ibv_wr_atomic_fetch_add(qp, mr->rkey, (uintptr_t)word, 2);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)old, 8);
	check("complete", ibv_wr_complete(qp), 0);
	sent("FETCH_ADD", 15, IBV_WC_FETCH_ADD);
	check("sum", *word * 100 + *old, 4240);
	begin(qp, 16, IBV_SEND_SIGNALED);
	ibv_wr_atomic_cmp_swp(qp, mr->rkey, (uintptr_t)word, 42, 7);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)old, 8);
	check("complete", ibv_wr_complete(qp), 0);
	sent("CMP_SWP", 16, IBV_WC_COMP_SWAP);
	check("swapped", *word * 100 + *old, 742);

	/* Aborted and invalid work requests are not sent. */
	fill();
	begin(qp, 17, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 100);
	ibv_wr_abort(qp);
	begin(qp, 18, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_inline_data(qp, HERE, 5000);
	check("too long", ibv_wr_complete(qp), ENOMEM);
	begin(qp, 19, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE + 2000);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 8);
	check("complete", ibv_wr_complete(qp), 0);
	sent("the next WRITE", 19, IBV_WC_RDMA_WRITE);
	check("nothing came", THERE[0], 0);

	/* An unknown key. */
	begin(qp, 20, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, 0x1234, (uintptr_t)THERE);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 8);
	check("complete", ibv_wr_complete(qp), 0);
	one();
	check("refused", cq->status, IBV_WC_REM_ACCESS_ERR);
	check("its number", cq->wr_id, 20);
	ibv_end_poll(cq);
	check("destroy_qp", ibv_destroy_qp(a), 0);
	check("destroy_qp", ibv_destroy_qp(b), 0);
}

/* A list whose last work request is refused: the device gets those before it. */
static void refused_behind_others(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t peer)
{
	struct ibv_sge sge = { .addr = (uintptr_t)HERE, .length = 50, .lkey = mr->lkey };
	struct ibv_send_wr wr[3] = { 0 }, *bad = NULL;

	for (int i = 0; i < 3; i++)
		wr[i] = (struct ibv_send_wr){ .wr_id = 50 + i, .next = i < 2 ? wr + i + 1 : NULL, .sg_list = &sge,
			.num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
			.wr.ud = { .ah = ah, .remote_qpn = peer, .remote_qkey = 0x11 } };
	wr[2].opcode = 77;
	check("the third one is refused", ibv_post_send(qp, wr, &bad) != 0, 1);
	check("and named", bad == wr + 2, 1);
	sent("the first one", 50, IBV_WC_SEND);
	sent("the second one", 51, IBV_WC_SEND);
}

static void datagrams(void)
{
	struct ibv_qp *a = pair(IBV_QPT_UD, IBV_QP_EX_WITH_SEND), *b = pair(IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a);
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1, .dlid = port.lid,
		.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);

	check("there is a handle", ah != NULL, 1);
	bring(a, 0);
	bring(b, 0);
	/* Destination and data in either order. */
	for (int order = 0; order < 4; order++) {
		fill();
		receive(b, 30 + order);
		begin(qp, 40 + order, 0);
		ibv_wr_send(qp);
		if (order & 1)
			ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x11);
		if (order & 2)
			ibv_wr_set_inline_data(qp, HERE, 50);
		else
			ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 50);
		if (!(order & 1))
			ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x11);
		check("complete", ibv_wr_complete(qp), 0);
		one();
		check("received", cq->wr_id, 30 + order);
		check("bytes", ibv_wc_read_byte_len(cq), 90);
		check("sender", ibv_wc_read_src_qp(cq), a->qp_num);
		check("route", ibv_wc_read_wc_flags(cq) & IBV_WC_GRH, IBV_WC_GRH);
		ibv_end_poll(cq);
		check("its bytes", memcmp(HERE, THERE + 40, 50), 0);
	}
	refused_behind_others(a, ah, b->qp_num);
	check("destroy_ah", ibv_destroy_ah(ah), 0);
	check("destroy_qp", ibv_destroy_qp(a), 0);
	check("destroy_qp", ibv_destroy_qp(b), 0);
}

/* Sets a work request's data in the `kind`th way: up to 64 bytes from HERE. Returns the number of bytes. */
static int carry(struct ibv_qp_ex *qp, int kind, int seed)
{
	struct ibv_sge list[3];
	struct ibv_data_buf bufs[2] = { { HERE, seed % 30 }, { HERE + seed % 30, seed % 7 } };
	int count = seed % 4, bytes = 0;

	switch (kind) {
	case 0:
		ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, seed % 65);
		return seed % 65;
	case 1:
		ibv_wr_set_inline_data(qp, HERE, seed % 65);
		return seed % 65;
	case 2:
		ibv_wr_set_inline_data_list(qp, 2, bufs);
		return seed % 30 + seed % 7;
	}
	for (int i = 0; i < count; i++) {
		list[i] = (struct ibv_sge){ (uintptr_t)HERE + bytes, seed % (5 + i * 3), mr->lkey };
		bytes += list[i].length;
	}
	ibv_wr_set_sge_list(qp, count, list);
	return bytes;
}

/* Work requests of all lengths, until the ring has wrapped several times at each offset. */
static void rounds(int type)
{
	int ud = type == IBV_QPT_UD;
	struct ibv_qp *a = pair(type, ud ? IBV_QP_EX_WITH_SEND : IBV_QP_EX_WITH_RDMA_WRITE), *b = pair(type, IBV_QP_EX_WITH_SEND);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a);
	struct ibv_ah_attr to = { .port_num = 1, .is_global = 1, .dlid = port.lid,
		.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } };
	struct ibv_ah *ah = ud ? ibv_create_ah(pd, &to) : NULL;
	int wrong = 0;

	bring(a, b->qp_num);
	bring(b, a->qp_num);
	fill();
	for (int i = 0; i < 1500; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)THERE, .length = 512, .lkey = mr->lkey };
		struct ibv_recv_wr receive = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;
		int count = i % 7 == 0 ? 3 : 1, bytes = 0, got;
		uint8_t *to = ud ? THERE + 40 : THERE;

		memset(THERE, 0, 512);
		ibv_wr_start(qp);
		for (int j = 0; j < count; j++) {
			qp->wr_id = i;
			qp->wr_flags = j + 1 == count ? IBV_SEND_SIGNALED : 0;
			if (ud) {
				wrong += !!ibv_post_recv(b, &receive, &bad);
				ibv_wr_send(qp);
				ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x11);
			} else {
				ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
			}
			got = carry(qp, (i + j) % 4, i * 5 + j);
			bytes = ud || got > bytes ? got : bytes;
		}
		wrong += !!ibv_wr_complete(qp);
		for (int j = 0; j < 1 + ud * count; j++) {
			one();
			wrong += cq->status != IBV_WC_SUCCESS || cq->wr_id != (uint64_t)(ibv_wc_read_opcode(cq) & IBV_WC_RECV ? 7 : i);
			ibv_end_poll(cq);
		}
		wrong += !!memcmp(HERE, to, bytes) || (!ud && THERE[bytes]);
	}
	check("rounds", wrong, 0);
	if (ah)
		check("destroy_ah", ibv_destroy_ah(ah), 0);
	check("destroy_qp", ibv_destroy_qp(a), 0);
	check("destroy_qp", ibv_destroy_qp(b), 0);
}

/* Errors between start and complete: no work request is posted, and the first error is returned. */
static void wrong_pieces(void)
{
	struct ibv_qp *a = pair(IBV_QPT_UD, IBV_QP_EX_WITH_SEND), *b = pair(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE |
				IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(b);
	struct ibv_poll_cq_attr attr = { 0 };

	begin(qp, 1, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 8);
	check("in RESET", ibv_wr_complete(qp), EINVAL);
	bring(a, 0);
	bring(b, b->qp_num);
	fill();
	begin(qp, 1, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 8);
	ibv_wr_atomic_fetch_add(qp, mr->rkey, (uintptr_t)THERE, 1);
	ibv_wr_set_inline_data(qp, HERE, 8);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_inline_data(qp, HERE, 65);
	check("an answer inline, before what is too long", ibv_wr_complete(qp), EINVAL);
	begin(qp, 1, IBV_SEND_SIGNALED);
	ibv_wr_atomic_fetch_add(qp, mr->rkey, (uintptr_t)THERE, 1);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 4);
	check("an answer of four bytes", ibv_wr_complete(qp), EINVAL);
	begin(qp, 1, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 0x80000001u);
	check("more than a message has", ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	for (int i = 0; i < 1000; i++) {
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
		ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 8);
	}
	check("more than there is room for", ibv_wr_complete(qp), ENOMEM);
	qp = ibv_qp_to_qp_ex(a);
	begin(qp, 1, IBV_SEND_SIGNALED);
	ibv_wr_send_inv(qp, 7);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 8);
	check("an operation of connections", ibv_wr_complete(qp), EINVAL);
	check("nothing was posted", ibv_start_poll(cq, &attr), ENOENT);
	check("nothing came", THERE[0], 0);
	check("destroy_qp", ibv_destroy_qp(a), 0);
	check("destroy_qp", ibv_destroy_qp(b), 0);
}

/* A poll that continues while completions come: the queue does not run out of CQEs. */
static void a_long_poll(struct ibv_qp_ex *qp, const char *name)
{
	int i, tries, got = 0;

	for (i = 0; i < 300 && !got; i++) {
		begin(qp, i, IBV_SEND_SIGNALED);
		ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
		ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 8);
		got = ibv_wr_complete(qp);
		if (!i)
			one();
		else if (!got)
			for (tries = 0; tries < 20000 && (got = ibv_next_poll(cq)); tries++)
				usleep(100);
		if (!got && (cq->status != IBV_WC_SUCCESS || cq->wr_id != (uint64_t)i))
			got = EINVAL;
	}
	check(name, got, 0);
	ibv_end_poll(cq);
}

/* A success after a failure shows no members of the failure. */
static void behind_a_failure(void)
{
	struct ibv_qp *a = pair(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
	struct ibv_qp *b = pair(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
	struct ibv_qp *qps[] = { a, b };

	bring(a, a->qp_num);
	bring(b, b->qp_num);
	for (int i = 0; i < 2; i++) {
		receive(qps[i], i);
		begin(ibv_qp_to_qp_ex(qps[i]), i, IBV_SEND_SIGNALED);
		ibv_wr_rdma_write_imm(ibv_qp_to_qp_ex(qps[i]), i ? mr->rkey : mr->rkey + 1, (uintptr_t)THERE,
				      htobe32(9));
		ibv_wr_set_sge(ibv_qp_to_qp_ex(qps[i]), mr->lkey, (uintptr_t)HERE, 8);
		check("a WRITE", ibv_wr_complete(ibv_qp_to_qp_ex(qps[i])), 0);
		for (int j = 0; j < 2; j++) {
			one();
			check("as it went", cq->status == IBV_WC_SUCCESS, i);
			check("a reason, if it failed", !ibv_wc_read_vendor_err(cq), i);
			check("immediate data of a receive", !!(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM),
			      i && ibv_wc_read_opcode(cq) == IBV_WC_RECV_RDMA_WITH_IMM);
			check("whose", ibv_wc_read_qp_num(cq), qps[i]->qp_num);
			ibv_end_poll(cq);
		}
	}
	check("destroy_qp", ibv_destroy_qp(a), 0);
	check("destroy_qp", ibv_destroy_qp(b), 0);
}

static void long_polls(void)
{
	struct ibv_qp *a = pair(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);

	bring(a, a->qp_num);
	a_long_poll(ibv_qp_to_qp_ex(a), "a long poll");
	check("resize_cq", ibv_resize_cq(ibv_cq_ex_to_cq(cq), 3), 0);
	a_long_poll(ibv_qp_to_qp_ex(a), "a long poll of a small queue");
	check("destroy_qp", ibv_destroy_qp(a), 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_cq_init_attr_ex init = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_init_attr plain = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_qp *qp;

	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq_ex(ctx, &init);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	check("there are objects", ctx && pd && cq && mr, 1);
	check("query_port", ibv_query_port(ctx, 1, &port), 0);
	check("query_gid", ibv_query_gid(ctx, 1, gid_index, &gid), 0);
	check("nothing to poll", ibv_start_poll(cq, &attr), ENOENT);
	connected();
	datagrams();
	rounds(IBV_QPT_RC);
	rounds(IBV_QPT_UD);
	wrong_pieces();
	behind_a_failure();
	long_polls();
	plain.send_cq = plain.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(pd, &plain);
	check("a plain one isn't extended", ibv_qp_to_qp_ex(qp) == NULL, 1);
	check("destroy_qp", ibv_destroy_qp(qp), 0);
	check("dereg_mr", ibv_dereg_mr(mr), 0);
	check("destroy_cq", ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	check("dealloc_pd", ibv_dealloc_pd(pd), 0);
	check("close_device", ibv_close_device(ctx), 0);
	return checked();
}
