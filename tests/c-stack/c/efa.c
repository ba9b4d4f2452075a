/*
 * Posts on an Elastic Fabric Adapter by a script on standard input, a queue pair at a time, which is its own peer.
 * Prints the device's memory where it changed, and completions. Counterpart in Rust: tests/elastic_fabric/ours.rs.
 *
 *	queue SRD SENDS RECVS SGES INLINE   makes a queue pair (SRD 1, UD 0) and brings it up
 *	recv ID N (OFFSET LENGTH)*          adds a receive to the list
 *	give                                posts the receives
 *	send ID OP INLINE IMM REMOTE N (OFFSET LENGTH)*   adds a send; OP by number of enum efa_io_send_op_type,
 *	                                    and 16 more with immediate data
 *	post, wr, abort                     posts the sends by ibv_post_send or ibv_wr_*, or builds and aborts them
 *	dump NAME                           prints blocks that changed since the last dump
 *	settle                              lets the device work
 *	poll                                prints completions
 *	arm, event                          arms the completion queue; takes an event
 *	fail, gone                          moves to ERR; destroys the queue pair
 *
 * With the argument "reads" the device has no WRITEs.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include "must.h"

#define MEMORY ((char *)0x610000000000)
#define LENGTH (1 << 18)
#define QKEY 0x11111111
#define IMM 16
#define MOST 64
#define BLOCK 64
#define RING 16384

int uverbs_softhca_settle(void) __attribute__((weak));

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_qp_ex *qpx;
static struct ibv_ah *ah;
static union ibv_gid gid;

static struct {
	uint64_t id;
	unsigned op, is_inline, imm, remote, count;
	struct ibv_sge list[4];
} sends[MOST];
static struct ibv_recv_wr recvs[MOST];
static struct ibv_sge recv_lists[MOST][4];
static unsigned send_count, recv_count;

static const char *const names[] = { "llq", "sq-doorbell", "rq", "rq-doorbell", "cq", "cq-doorbell" };
/* Distance of elements with a number of a request, and its place: each library numbers them in another way. */
static unsigned numbered[6][2] = { { 64, 0 }, { 0 }, { 16, 8 }, { 0 }, { 32, 0 }, { 0 } };
static unsigned char before[6][RING];
/* False on a device without WRITEs, whose completions have 16 bytes. */
static int writes = 1;

/* Number from the script. */
static uint64_t number(void)
{
	unsigned long long value;

	MUST(scanf("%lli", (long long *)&value) == 1);
	return value;
}

static unsigned list(struct ibv_sge *to)
{
	unsigned count = number();

	MUST(count <= 4);
	for (unsigned i = 0; i < count; i++) {
		to[i].addr = (uintptr_t)MEMORY + number();
		to[i].length = number();
		to[i].lkey = mr->lkey;
	}
	return count;
}

/* Prints changed blocks of each mapping of the device. */
static void dump(const char *name)
{
	int mem = open("/proc/self/mem", O_RDONLY);
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	MUST(maps && mem >= 0);
	printf("case %s\n", name);
	while (fgets(line, sizeof line, maps)) {
		static unsigned char now[RING];
		char *rest, *found = strstr(line, "memfd:softefa-");
		unsigned long start = strtoul(line, &rest, 16), end = strtoul(rest + 1, NULL, 16);
		unsigned which = 0;

		if (!found)
			continue;
		found += strlen("memfd:softefa-");
		*strchr(found, ' ') = 0;
		while (strcmp(names[which], found))
			MUST(++which < 6);
		if (end - start > RING)
			end = start + RING;
		MUST(pread(mem, now, end - start, start) == (ssize_t)(end - start));
		for (unsigned long at = numbered[which][1]; numbered[which][0] && at < end - start; at += numbered[which][0])
			memset(now + at, 0, 2);
		for (unsigned long block = 0; block < end - start; block += BLOCK) {
			if (!memcmp(now + block, before[which] + block, BLOCK))
				continue;
			printf("%s %lx ", names[which], block);
			for (int i = 0; i < BLOCK; i++)
				printf("%02x", now[block + i]);
			printf("\n");
		}
		memcpy(before[which], now, end - start);
	}
	fclose(maps);
	close(mem);
}

static void queue(void)
{
	int is_srd = number();
	struct ibv_qp_init_attr_ex init = { .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
		.qp_type = is_srd ? IBV_QPT_DRIVER : IBV_QPT_UD,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM };
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	init.cap.max_send_wr = number();
	init.cap.max_recv_wr = number();
	init.cap.max_send_sge = init.cap.max_recv_sge = number();
	init.cap.max_inline_data = number();
	if (is_srd)
		init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ |
			(writes ? IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM : 0);
	/* Our library asks for an entry more than it was asked for. */
	cq = ibv_create_cq(context, init.cap.max_send_wr + init.cap.max_recv_wr + 1, NULL, channel, 0);
	MUST(cq);
	init.send_cq = init.recv_cq = cq;
	qp = is_srd ? efadv_create_qp_ex(context, &init, &efa, sizeof efa) : ibv_create_qp_ex(context, &init);
	MUST(qp);
	qpx = ibv_qp_to_qp_ex(qp);
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	attr.rnr_retry = 6;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (is_srd ? IBV_QP_RNR_RETRY : 0)));
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } };
	ah = ibv_create_ah(pd, &to);
	MUST(ah);
	memset(before, 0, sizeof before);
}

static void gone(void)
{
	/* Sends hold the handle in our provider. */
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_ah(ah) && !ibv_destroy_cq(cq));
}

/* Posts by ibv_post_send, which has SENDs alone. */
static void post(void)
{
	struct ibv_send_wr wr[MOST] = { 0 }, *bad;

	for (unsigned i = 0; i < send_count; i++) {
		wr[i] = (struct ibv_send_wr) { .wr_id = sends[i].id, .sg_list = sends[i].list, .num_sge = sends[i].count,
			.opcode = sends[i].op & IMM ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm_data = htobe32(sends[i].imm),
			.send_flags = IBV_SEND_SIGNALED | (sends[i].is_inline ? IBV_SEND_INLINE : 0),
			.wr.ud = { .ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = QKEY } };
		wr[i].next = i + 1 < send_count ? &wr[i + 1] : NULL;
	}
	MUST(!ibv_post_send(qp, wr, &bad));
	send_count = 0;
}

static void build(void)
{
	ibv_wr_start(qpx);
	for (unsigned i = 0; i < send_count; i++) {
		uint64_t remote = (uintptr_t)MEMORY + sends[i].remote;

		qpx->wr_id = sends[i].id;
		qpx->wr_flags = IBV_SEND_SIGNALED;
		switch (sends[i].op) {
		case 0: ibv_wr_send(qpx); break;
		case 0 + IMM: ibv_wr_send_imm(qpx, htobe32(sends[i].imm)); break;
		case 1: ibv_wr_rdma_read(qpx, mr->rkey, remote); break;
		case 2: ibv_wr_rdma_write(qpx, mr->rkey, remote); break;
		case 2 + IMM: ibv_wr_rdma_write_imm(qpx, mr->rkey, remote, htobe32(sends[i].imm)); break;
		default: MUST(0);
		}
		ibv_wr_set_ud_addr(qpx, ah, qp->qp_num, QKEY);
		if (sends[i].is_inline) {
			struct ibv_data_buf bufs[4];

			for (unsigned at = 0; at < sends[i].count; at++) {
				bufs[at].addr = (void *)(uintptr_t)sends[i].list[at].addr;
				bufs[at].length = sends[i].list[at].length;
			}
			if (sends[i].count == 1)
				ibv_wr_set_inline_data(qpx, bufs[0].addr, bufs[0].length);
			else
				ibv_wr_set_inline_data_list(qpx, sends[i].count, bufs);
		} else if (sends[i].count == 1) {
			ibv_wr_set_sge(qpx, mr->lkey, sends[i].list[0].addr, sends[i].list[0].length);
		} else {
			ibv_wr_set_sge_list(qpx, sends[i].count, sends[i].list);
		}
	}
	send_count = 0;
}

static void poll_all(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		printf("done %llu %d", (unsigned long long)wc.wr_id, wc.status);
		if (wc.status == IBV_WC_SUCCESS)
			printf(" %d", wc.opcode);
		if (wc.status == IBV_WC_SUCCESS && wc.opcode & IBV_WC_RECV)
			printf(" %u %u %d %u", wc.byte_len, wc.src_qp, wc.slid, wc.wc_flags & IBV_WC_WITH_IMM ? be32toh(wc.imm_data) : 0);
		if (wc.status != IBV_WC_SUCCESS)
			printf(" %u", wc.vendor_err);
		printf("\n");
	}
}

static void step(const char *word)
{
	struct ibv_recv_wr *bad;

	if (!strcmp(word, "queue")) {
		queue();
	} else if (!strcmp(word, "recv")) {
		MUST(recv_count < MOST);
		recvs[recv_count].wr_id = number();
		recvs[recv_count].sg_list = recv_lists[recv_count];
		recvs[recv_count].num_sge = list(recv_lists[recv_count]);
		recvs[recv_count].next = NULL;
		if (recv_count)
			recvs[recv_count - 1].next = &recvs[recv_count];
		recv_count++;
	} else if (!strcmp(word, "give")) {
		MUST(!ibv_post_recv(qp, recvs, &bad));
		recv_count = 0;
	} else if (!strcmp(word, "send")) {
		MUST(send_count < MOST);
		sends[send_count].id = number();
		sends[send_count].op = number();
		sends[send_count].is_inline = number();
		sends[send_count].imm = number();
		sends[send_count].remote = number();
		sends[send_count].count = list(sends[send_count].list);
		send_count++;
	} else if (!strcmp(word, "post")) {
		post();
	} else if (!strcmp(word, "wr")) {
		build();
		MUST(!ibv_wr_complete(qpx));
	} else if (!strcmp(word, "abort")) {
		build();
		ibv_wr_abort(qpx);
	} else if (!strcmp(word, "dump")) {
		char name[128];

		MUST(scanf("%127s", name) == 1);
		dump(name);
	} else if (!strcmp(word, "settle")) {
		MUST(uverbs_softhca_settle && !uverbs_softhca_settle());
	} else if (!strcmp(word, "poll")) {
		poll_all();
	} else if (!strcmp(word, "arm")) {
		MUST(!ibv_req_notify_cq(cq, 0));
	} else if (!strcmp(word, "event")) {
		struct ibv_cq *of;
		void *its;

		MUST(!ibv_get_cq_event(channel, &of, &its));
		ibv_ack_cq_events(of, 1);
	} else if (!strcmp(word, "fail")) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

		MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	} else if (!strcmp(word, "gone")) {
		gone();
	} else {
		MUST(!"a known word");
	}
}

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	char word[32];

	if (argc > 1 && !strcmp(argv[1], "reads")) {
		writes = 0;
		numbered[4][0] = 16;
	}

	MUST(mmap(MEMORY, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MEMORY);
	for (int i = 0; i < LENGTH; i++)
		MEMORY[i] = i * 7 + i / 256;
	MUST(devices && devices[0]);
	context = ibv_open_device(devices[0]);
	MUST(context && !ibv_query_gid(context, 1, 0, &gid));
	pd = ibv_alloc_pd(context);
	MUST(pd);
	mr = ibv_reg_mr(pd, MEMORY, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | (writes ? IBV_ACCESS_REMOTE_WRITE : 0));
	MUST(mr);
	channel = ibv_create_comp_channel(context);
	MUST(channel);
	while (scanf("%31s", word) == 1)
		step(word);
	MUST(!ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	printf("ok\n");
	return 0;
}
