/*
 * SRD through efadv.h, between two queue pairs of a device: limits, refusals with their errnos, each operation, and the
 * members of completions. Prints a line per result: every library prints the same.
 */
#define COUNTERS (1u << 6)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include "must.h"

#define QKEY 0x11111111
#define DEPTH 8
#define PART 1024

/* Prints the errno of a function that makes an object, or 0. */
#define MADE(name, made)                                             \
	do {                                                         \
		errno = 0;                                           \
		printf("%s %d\n", name, (made) == NULL ? errno : 0); \
	} while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qps[2];
static struct ibv_qp_ex *from;
static struct ibv_ah *ah;
static unsigned char memory[4 * PART] __attribute__((aligned(4096)));

static void limits(void)
{
	struct efadv_device_attr efa;
	struct ibv_device_attr attr;

	MUST(!ibv_query_device(context, &attr) && !efadv_query_device(context, &efa, sizeof efa));
	printf("device %s %d %x %x fw %s wr %d sge %d %d\n", ibv_node_type_str(context->device->node_type),
	       context->device->transport_type, attr.vendor_id, attr.vendor_part_id, attr.fw_ver, attr.max_qp_wr, attr.max_sge,
	       attr.max_sge_rd);
	/* Queues of our library end at 16384 work requests. Debian 13's does not know of counters. */
	printf("limits %u %d %u %u inline %u caps %x rdma %u mask %lx\n", efa.max_sq_wr, efa.max_rq_wr >= 16384, efa.max_sq_sge,
	       efa.max_rq_sge, efa.inline_buf_size, efa.device_caps & ~COUNTERS, efa.max_rdma_size, efa.comp_mask);
	printf("short %d\n", efadv_query_device(context, &efa, 8));
}

static struct ibv_qp_init_attr_ex wanted(void)
{
	return (struct ibv_qp_init_attr_ex){ .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
		.qp_type = IBV_QPT_DRIVER, .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 32 },
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
			IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM };
}

/* Tries a queue pair with one change of the attributes. */
#define TRY(name, change)                                                              \
	do {                                                                           \
		struct ibv_qp_init_attr_ex init = wanted();                            \
		struct efadv_qp_init_attr efa = { 0 };                                 \
		uint32_t len = sizeof efa;                                             \
		change;                                                                \
		struct ibv_qp *made;                                                   \
		MADE(name, made = efadv_create_qp_ex(context, &init, &efa, len));      \
		MUST(!made || !ibv_destroy_qp(made));                                  \
	} while (0)

static void refusals(void)
{
	struct ibv_cq_init_attr_ex cq_init = { .cqe = DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct efadv_cq_init_attr efa_cq = { 0 };
	struct ibv_cq_ex *own;
	struct ibv_qp_init_attr plain = { .qp_type = IBV_QPT_RC, .send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq), .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };

	TRY("type UD", init.qp_type = IBV_QPT_UD);
	TRY("short attributes", len = 8);
	TRY("unknown mask", efa.comp_mask = 1);
	TRY("reserved", efa.reserved[0] = 1);
	TRY("driver type", efa.driver_qp_type = 1);
	TRY("unsolicited", efa.flags = EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV);
	TRY("unknown flag", efa.flags = 1 << 15);
	TRY("creation flags", init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS);
	TRY("no domain", init.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
	TRY("atomics", init.send_ops_flags |= IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
	TRY("no completion queue", init.send_cq = NULL);
	TRY("shared receives", init.srq = (struct ibv_srq *)memory);
	TRY("send SGEs", init.cap.max_send_sge = 3);
	TRY("receive SGEs", init.cap.max_recv_sge = 3);
	TRY("sends", init.cap.max_send_wr = 1 << 20);
	TRY("receives", init.cap.max_recv_wr = 1 << 20);
	MADE("RC", ibv_create_qp(pd, &plain));
	MADE("driver queue pair of type RC", efadv_create_driver_qp(pd, &plain, EFADV_QP_DRIVER_TYPE_SRD));
	plain.qp_type = IBV_QPT_DRIVER;
	MADE("driver queue pair of another kind", efadv_create_driver_qp(pd, &plain, 1));
	MADE("type driver by verbs", ibv_create_qp(pd, &plain));
	MADE("shared receive queue", ibv_create_srq(pd, &(struct ibv_srq_init_attr){ .attr = { .max_wr = 1, .max_sge = 1 } }));
	efa_cq.wc_flags = EFADV_WC_EX_WITH_SGID;
	MADE("completions with GID", own = efadv_create_cq(context, &cq_init, &efa_cq, sizeof efa_cq));
	MUST(!own || !ibv_destroy_cq(ibv_cq_ex_to_cq(own)));
	efa_cq.wc_flags = EFADV_WC_EX_WITH_IS_UNSOLICITED;
	MADE("unsolicited completions", own = efadv_create_cq(context, &cq_init, &efa_cq, sizeof efa_cq));
	MUST(!own || !ibv_destroy_cq(ibv_cq_ex_to_cq(own)));
	efa_cq.wc_flags = 0;
	MADE("short queue attributes", efadv_create_cq(context, &cq_init, &efa_cq, 8));
	cq_init.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	MADE("timestamps", efadv_create_cq(context, &cq_init, &efa_cq, sizeof efa_cq));
	MADE("atomic rights", ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC));
}

static void make(void)
{
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 4 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct efadv_cq_init_attr efa_cq = { 0 };
	union ibv_gid gid;

	cq = efadv_create_cq(context, &cq_init, &efa_cq, sizeof efa_cq);
	MUST(cq && efadv_cq_from_ibv_cq_ex(cq));
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	MUST(mr && !ibv_query_gid(context, 1, 0, &gid));
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	ah = ibv_create_ah(pd, &to);
	MUST(ah);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr_ex init = wanted();
		struct ibv_qp_init_attr plain = { .qp_type = IBV_QPT_DRIVER, .send_cq = init.send_cq, .recv_cq = init.recv_cq,
			.cap = init.cap };
		struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };

		/* The peer is made the other way. */
		qps[i] = i ? efadv_create_driver_qp(pd, &plain, EFADV_QP_DRIVER_TYPE_SRD) :
			efadv_create_qp_ex(context, &init, &efa, sizeof efa);
		MUST(qps[i]);
		printf("sizes %u %u\n", (i ? plain.cap : init.cap).max_send_wr, (i ? plain.cap : init.cap).max_recv_wr);
	}
	from = ibv_qp_to_qp_ex(qps[0]);
	printf("extended %d %d\n", from != NULL, ibv_qp_to_qp_ex(qps[1]) != NULL);
	/* Since EFA_1.6; nothing to set without processing hints. */
	uint64_t *(*own)(struct ibv_qp_ex *) = dlsym(RTLD_DEFAULT, "efadv_qp_from_ibv_qp_ex");
	MUST(!own || (own(from) && !own(from)[0] && !own(from)[1]));
}

static int give(unsigned count)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory + PART, .length = PART, .lkey = mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 100, .sg_list = &sge, .num_sge = count }, *bad = NULL;

	return ibv_post_recv(qps[1], &wr, &bad);
}

/* Posts a SEND, or another opcode, by ibv_post_send. Prints the result, and whether it is the bad one. */
static void post(const char *name, enum ibv_wr_opcode opcode, unsigned flags, int count)
{
	struct ibv_sge sges[3] = { [0 ... 2] = { .addr = (uintptr_t)memory, .length = 16, .lkey = mr->lkey } };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = sges, .num_sge = count, .opcode = opcode, .send_flags = flags,
		.wr.ud = { .ah = ah, .remote_qpn = qps[1]->qp_num, .remote_qkey = QKEY } };
	struct ibv_send_wr *bad = NULL;
	int code = ibv_post_send(qps[0], &wr, &bad);

	printf("%s %d %d\n", name, code, bad == &wr);
}

static void up(void)
{
	struct ibv_qp_attr attr = { .port_num = 1, .qkey = QKEY, .rnr_retry = 3 };
	static const struct {
		enum ibv_qp_state state;
		int mask;
	} steps[] = { { IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY }, { IBV_QPS_RTR, 0 },
		{ IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY } };

	post("send in RESET", IBV_WR_SEND, IBV_SEND_SIGNALED, 1);
	printf("receive in RESET %d\n", give(1));
	attr.qp_state = IBV_QPS_RTR;
	printf("RESET to RTR %d\n", ibv_modify_qp(qps[0], &attr, IBV_QP_STATE));
	for (unsigned i = 0; i < 3; i++) {
		for (int at = 0; at < 2; at++) {
			attr.qp_state = steps[i].state;
			MUST(!ibv_modify_qp(qps[at], &attr, IBV_QP_STATE | steps[i].mask));
		}
		if (!i)
			post("send in INIT", IBV_WR_SEND, IBV_SEND_SIGNALED, 1);
	}
	struct ibv_qp_init_attr init;
	MUST(!ibv_query_qp(qps[0], &attr, IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_CAP, &init));
	printf("state %d qkey %x sizes %u %u\n", attr.qp_state, attr.qkey, attr.cap.max_send_wr, attr.cap.max_recv_wr);
}

/* Waits for so many completions, and prints them. The send's comes last in print. */
static void wait(int count)
{
	struct ibv_poll_cq_attr attr = { 0 };
	char lines[4][200];
	int done = 0;

	while (done < count) {
		if (ibv_start_poll(cq, &attr))
			continue;
		do {
			enum ibv_wc_opcode opcode = ibv_wc_read_opcode(cq);
			int is_recv = opcode & IBV_WC_RECV, at = 0;
			char *line = lines[is_recv ? 0 : count - 1];

			at += sprintf(line, "done %lu %d vendor %u queue pair %d flags %u", cq->wr_id, cq->status,
				      ibv_wc_read_vendor_err(cq), ibv_wc_read_qp_num(cq) == qps[1]->qp_num, ibv_wc_read_wc_flags(cq));
			if (cq->status == IBV_WC_SUCCESS && is_recv)
				sprintf(line + at, " opcode %d bytes %u from %d imm %x ah %d", opcode, ibv_wc_read_byte_len(cq),
					ibv_wc_read_src_qp(cq) == qps[0]->qp_num,
					ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM ? be32toh(ibv_wc_read_imm_data(cq)) : 0,
					ibv_wc_read_slid(cq) == 0xffff);
			done++;
		} while (done < count && !ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	for (int i = 0; i < count; i++)
		printf("%s\n", lines[i]);
}

/* Builds a work request, with data as `kind` says: SGE, list, inline, inline list, too much. */
static void data(int kind)
{
	struct ibv_sge sges[3] = { [0 ... 2] = { .addr = (uintptr_t)memory, .length = 24, .lkey = mr->lkey } };
	struct ibv_data_buf bufs[2] = { { memory, 10 }, { memory + 40, 9 } };

	switch (kind) {
	case 0: ibv_wr_set_sge(from, mr->lkey, (uintptr_t)memory, 64); break;
	case 1: ibv_wr_set_sge_list(from, 2, sges); break;
	case 2: ibv_wr_set_inline_data(from, memory + 5, 32); break;
	case 3: ibv_wr_set_inline_data_list(from, 2, bufs); break;
	case 4: ibv_wr_set_sge_list(from, 3, sges); break;
	case 5: ibv_wr_set_inline_data(from, memory, 33); break;
	}
}

static int run(int op, int kind, unsigned flags, uint64_t id)
{
	uint64_t remote = (uintptr_t)memory + 2 * PART;

	ibv_wr_start(from);
	from->wr_id = id;
	from->wr_flags = flags;
	switch (op) {
	case 0: ibv_wr_send(from); break;
	case 1: ibv_wr_send_imm(from, htobe32(0x01020304)); break;
	case 2: ibv_wr_rdma_read(from, mr->rkey, remote); break;
	case 3: ibv_wr_rdma_write(from, mr->rkey, remote); break;
	case 4: ibv_wr_rdma_write_imm(from, mr->rkey, remote, htobe32(0x05060708)); break;
	case 5: ibv_wr_rdma_write(from, mr->rkey + 9999, remote); break;
	}
	data(kind);
	ibv_wr_set_ud_addr(from, ah, qps[1]->qp_num, QKEY);
	return ibv_wr_complete(from);
}

static void operations(void)
{
	for (int op = 0; op < 5; op++)
		for (int kind = 0; kind < 6; kind++) {
			int receives = op == 0 || op == 1 || op == 4, code;

			/* Debian 13's libefa hands inline READs and WRITEs to the device, which refuses them. */
			if (op > 1 && (kind == 2 || kind == 3))
				continue;
			for (int i = 0; i < (int)sizeof memory; i++)
				memory[i] = i * 7 + i / 256;
			if (receives)
				MUST(!give(1));
			code = run(op, kind, IBV_SEND_SIGNALED, 10 * op + kind);
			printf("operation %d data %d: %d\n", op, kind, code);
			/* Another send consumes the receive. */
			if (code && receives)
				MUST(!run(0, 0, IBV_SEND_SIGNALED, 99));
			if (!code || receives)
				wait(1 + receives);
			unsigned sum = 0;
			for (int i = 0; i < (int)sizeof memory; i++)
				sum = sum * 31 + memory[i];
			printf("memory %x\n", sum);
		}
	printf("fenced %d\n", run(0, 0, IBV_SEND_SIGNALED | IBV_SEND_FENCE, 1));
	printf("solicited %d\n", run(0, 0, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, 1));
	post("WRITE by post_send", IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 1);
	post("READ by post_send", IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 1);
	post("three SGEs", IBV_WR_SEND, IBV_SEND_SIGNALED, 3);
	post("inline of 48", IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 3);
	printf("receive of two SGEs %d\n", give(2));
	MUST(!give(1));
	post("send", IBV_WR_SEND, IBV_SEND_SIGNALED, 2);
	wait(2);
	printf("wrong key %d\n", run(5, 0, IBV_SEND_SIGNALED, 5));
	wait(1);
}

/* A queue pair of another domain, where no address handle tells the sender: its GID. WRITEs take no receive there. */
static void members(void)
{
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 4 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct efadv_cq_init_attr efa_cq = { .wc_flags = EFADV_WC_EX_WITH_SGID | EFADV_WC_EX_WITH_IS_UNSOLICITED };
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD,
		.flags = EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV };
	struct ibv_cq_ex *sends = cq;
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_qp_init_attr_ex init = wanted();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_qp *old = qps[1];
	struct ibv_mr *old_mr = mr, *own = ibv_reg_mr(other, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	union ibv_gid gid, from_gid;

	MUST(!ibv_query_gid(context, 1, 0, &gid));
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_ah *back = NULL;
	struct ibv_cq_ex *made = efadv_create_cq(context, &cq_init, &efa_cq, sizeof efa_cq);
	MUST(other && own && made);
	struct efadv_cq *ext = efadv_cq_from_ibv_cq_ex(made);

	init.pd = other;
	init.recv_cq = ibv_cq_ex_to_cq(made);
	MUST(qps[1] = efadv_create_qp_ex(context, &init, &efa, sizeof efa));
	MUST(!ibv_modify_qp(qps[1], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qps[1], &attr, IBV_QP_STATE));
	for (int round = 0; round < 2; round++)
		for (int op = 0; op < 5; op += op ? 3 : 1) {
			struct ibv_poll_cq_attr none = { 0 };

			/* An unsolicited WRITE leaves this receive to the next SEND. */
			mr = own;
			if (op == 0)
				MUST(!give(1));
			ibv_wr_start(from);
			from->wr_id = op;
			from->wr_flags = IBV_SEND_SIGNALED;
			if (op == 4)
				ibv_wr_rdma_write_imm(from, own->rkey, (uintptr_t)memory + 2 * PART, htobe32(9));
			else if (op == 1)
				ibv_wr_rdma_write(from, own->rkey, (uintptr_t)memory + 2 * PART);
			else
				ibv_wr_send(from);
			ibv_wr_set_ud_addr(from, ah, qps[1]->qp_num, QKEY);
			ibv_wr_set_sge(from, old_mr->lkey, (uintptr_t)memory, 77 + op);
			MUST(!ibv_wr_complete(from));
			cq = sends;
			wait(1);
			if (op == 1)
				continue;
			/* A WRITE needs an address handle of the sender in the target's domain, and fails with status 14. */
			if (op == 4 && !round) {
				MUST(back = ibv_create_ah(other, &to));
				continue;
			}
			while (ibv_start_poll(made, &none))
				;
			memset(&from_gid, 0, sizeof from_gid);
			printf("members %lu %d bytes %u unsolicited %d", made->wr_id, ibv_wc_read_opcode(made),
			       ibv_wc_read_byte_len(made), efadv_wc_is_unsolicited(ext));
			/* A WRITE has its length in the place of a GID. */
			if (op == 0)
				printf(" gid %d", efadv_wc_read_sgid(ext, &from_gid));
			printf(" %d handle %d\n", !memcmp(&from_gid, &gid, sizeof gid), ibv_wc_read_slid(made) != 0xffff);
			ibv_end_poll(made);
		}
	MUST(!ibv_destroy_qp(qps[1]) && !ibv_destroy_cq(ibv_cq_ex_to_cq(made)) && !ibv_destroy_ah(back));
	MUST(!ibv_dereg_mr(own) && !ibv_dealloc_pd(other));
	qps[1] = old;
	mr = old_mr;
}

static void full(void)
{
	int code = 0, count = 0;

	while (!code) {
		code = give(1);
		count += !code;
	}
	printf("%d receives, then %d\n", count, code);
	for (count = 0; !(code = run(0, 0, IBV_SEND_SIGNALED, count)) && count < 100; count++)
		;
	printf("%d sends, then %d\n", count, code);
	for (int left = 2 * count; left; left -= !ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &(struct ibv_wc){ 0 }) ? 0 : 1)
		;
	printf("drained\n");
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct efadv_ah_attr ah_attr;
	struct efadv_mr_attr mr_attr;

	MUST(devices && devices[0]);
	context = ibv_open_device(devices[0]);
	MUST(context);
	pd = ibv_alloc_pd(context);
	MUST(pd);
	limits();
	make();
	refusals();
	printf("handle %d short %d\n", efadv_query_ah(ah, &ah_attr, sizeof ah_attr), efadv_query_ah(ah, &ah_attr, 8));
	printf("region %d short %d\n", efadv_query_mr(mr, &mr_attr, sizeof mr_attr), efadv_query_mr(mr, &mr_attr, 8));
	up();
	operations();
	members();
	full();
	for (int i = 0; i < 2; i++)
		MUST(!ibv_destroy_qp(qps[i]));
	MUST(!ibv_destroy_ah(ah) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	MUST(!ibv_close_device(context));
	ibv_free_device_list(devices);
	printf("ok\n");
	return 0;
}
