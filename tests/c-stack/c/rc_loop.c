/*
 * Two RC queue pairs in a process, through libibverbs: every operation with its data checked, and errors caused by the
 * peer or by the program. A line per check; exit status 0 if all succeed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

enum { PORT = 1, DEPTH = 64, SGES = 4, INLINE = 128, LIMIT_MS = 5000, AREA = 1 << 21 };

static int failures;
static int checks;

__attribute__((format(printf, 3, 4))) static int check(int good, const char *name, const char *format, ...)
{
	va_list args;

	checks++;
	printf("%s %s", good ? "ok" : "FAILED", name);
	if (!good) {
		failures++;
		printf(": ");
		va_start(args, format);
		vprintf(format, args);
		va_end(args);
	}
	printf("\n");
	fflush(stdout);
	return good;
}

/* Ends the program: later checks depend on the condition. */
#define NEED(condition, name)                                                                                    \
	do {                                                                                                     \
		if (!check((condition), name, "%s", strerror(errno)))                                            \
			exit(1);                                                                                 \
	} while (0)

static int64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int gid_index;

/* A side: queue pair, completion queue, channel and memory. */
struct side {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *area;
	unsigned int unacked;
};

static struct side a, b;

static const int ALL_ACCESS =
	IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static struct ibv_qp *make_qp(struct ibv_cq *cq, int signal_all)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = SGES, .max_recv_sge = SGES,
			 .max_inline_data = INLINE },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = signal_all,
	};

	return ibv_create_qp(pd, &init);
}

static void make_side(struct side *side)
{
	memset(side, 0, sizeof(*side));
	side->channel = ibv_create_comp_channel(context);
	NEED(side->channel != NULL, "create_comp_channel");
	side->cq = ibv_create_cq(context, 4 * DEPTH, side, side->channel, 0);
	NEED(side->cq != NULL, "create_cq");
	side->qp = make_qp(side->cq, 0);
	NEED(side->qp != NULL, "create_qp");
	side->area = aligned_alloc(4096, AREA);
	memset(side->area, 0, AREA);
	side->mr = ibv_reg_mr(pd, side->area, AREA, ALL_ACCESS);
	NEED(side->mr != NULL, "reg_mr");
}

static void drop_side(struct side *side)
{
	if (side->unacked)
		ibv_ack_cq_events(side->cq, side->unacked);
	check(ibv_destroy_qp(side->qp) == 0, "destroy_qp", "%s", strerror(errno));
	check(ibv_destroy_cq(side->cq) == 0, "destroy_cq", "%s", strerror(errno));
	check(ibv_destroy_comp_channel(side->channel) == 0, "destroy_comp_channel", "%s", strerror(errno));
	check(ibv_dereg_mr(side->mr) == 0, "dereg_mr", "%s", strerror(errno));
	free(side->area);
}

struct options {
	int access;
	int rnr_retry;
	int timeout;
	int retries;
};

/* 270 ms, seven times: a busy machine must not look like a dead peer. */
static const struct options USUAL = { .access = -1, .rnr_retry = 7, .timeout = 16, .retries = 7 };

static int to_init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = access < 0 ? ALL_ACCESS : access,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 0xfffff0,
		.max_dest_rd_atomic = 8,
		.min_rnr_timer = 1,
		.ah_attr = { .port_num = PORT, .dlid = port.lid },
	};

	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = gid;
		attr.ah_attr.grh.sgid_index = gid_index;
		attr.ah_attr.grh.hop_limit = 64;
	}
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ibv_qp *qp, const struct options *options)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = options->timeout,
		.retry_cnt = options->retries,
		.rnr_retry = options->rnr_retry,
		.sq_psn = 0xfffff0,
		.max_rd_atomic = 8,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

static int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
		return IBV_QPS_UNKNOWN;
	return attr.qp_state;
}

static int connect_pair(struct ibv_qp *one, struct ibv_qp *two, const struct options *options)
{
	return to_init(one, options->access) || to_init(two, options->access) || to_rtr(one, two->qp_num) ||
	       to_rtr(two, one->qp_num) || to_rts(one, options) || to_rts(two, options);
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

/* Moves both sides to RTS with empty queues, from any state. */
static int fresh(const struct options *options)
{
	int bad = to_state(a.qp, IBV_QPS_RESET) || to_state(b.qp, IBV_QPS_RESET);

	drain(a.cq);
	drain(b.cq);
	return !bad && !connect_pair(a.qp, b.qp, options);
}

/* Waits for the next completion, up to the limit. */
static int next(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int64_t end = now_ms() + LIMIT_MS;

	memset(wc, 0, sizeof(*wc));
	do {
		int count = ibv_poll_cq(cq, 1, wc);

		if (count)
			return count == 1;
		sched_yield();
	} while (now_ms() < end);
	wc->status = IBV_WC_GENERAL_ERR;
	return 0;
}

static int none(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	struct timespec moment = { .tv_nsec = 5000000 };

	nanosleep(&moment, NULL);
	return ibv_poll_cq(cq, 1, &wc) == 0;
}

static int expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status, struct ibv_wc *wc)
{
	struct ibv_wc own;

	if (!wc)
		wc = &own;
	if (!next(cq, wc)) {
		printf("# nothing completed\n");
		return 0;
	}
	if (wc->wr_id != id || wc->status != status) {
		printf("# wr_id %" PRIu64 " %s (%d) vendor %#x, wanted wr_id %" PRIu64 " %s\n", wc->wr_id,
		       ibv_wc_status_str(wc->status), wc->status, wc->vendor_err, id, ibv_wc_status_str(status));
		return 0;
	}
	return 1;
}

static void fill(uint8_t *bytes, size_t length, unsigned int seed)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)((i * 31 + seed * 7 + (i >> 8)) ^ seed);
}

static struct ibv_sge sge_of(const struct side *side, size_t offset, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)side->area + offset, .length = length, .lkey = side->mr->lkey };
}

static int receive(struct side *side, uint64_t id, struct ibv_sge *list, int count)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = list, .num_sge = count }, *bad;

	return ibv_post_recv(side->qp, &wr, &bad);
}

static int post(struct side *side, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(side->qp, wr, &bad);
}

static struct ibv_send_wr rdma(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge *sge, uint64_t remote)
{
	return (struct ibv_send_wr){
		.wr_id = id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = remote, .rkey = b.mr->rkey },
	};
}

static const uint32_t SIZES[] = { 0,	1,    4,    7,	  8,	16,   31,    32,    33,	    48,	    60,
				  64,	65,   128,  1023, 1024, 1025, 4095,  4096,  4097,   65536,  1000001 };
enum { SIZE_COUNT = sizeof(SIZES) / sizeof(SIZES[0]) };

static void sends(void)
{
	for (int imm = 0; imm < 2; imm++) {
		for (int i = 0; i < SIZE_COUNT; i++) {
			uint32_t size = SIZES[i];
			struct ibv_sge from = sge_of(&a, 64, size), to = sge_of(&b, 128, size + 32);
			struct ibv_send_wr wr = rdma(imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, 100 + i, &from, 0);
			struct ibv_wc sent, got;
			char name[64];

			snprintf(name, sizeof(name), "%s of %u", imm ? "SEND_WITH_IMM" : "SEND", size);
			fill(a.area + 64, size, i + imm);
			memset(b.area, 0xee, size + 4096);
			wr.imm_data = htonl(0xabcd0000 + size);
			if (!check(!receive(&b, 200 + i, &to, 1) && !post(&a, &wr), name, "posting: %s", strerror(errno)))
				continue;
			int good = expect(a.cq, 100 + i, IBV_WC_SUCCESS, &sent) &
				   expect(b.cq, 200 + i, IBV_WC_SUCCESS, &got);
			check(good && sent.opcode == IBV_WC_SEND && got.opcode == IBV_WC_RECV && got.byte_len == size &&
				      got.qp_num == b.qp->qp_num && sent.qp_num == a.qp->qp_num &&
				      !!(got.wc_flags & IBV_WC_WITH_IMM) == imm &&
				      (!imm || got.imm_data == htonl(0xabcd0000 + size)),
			      name, "opcodes %d %d, %u bytes, flags %#x", sent.opcode, got.opcode, got.byte_len,
			      got.wc_flags);
			check(!memcmp(a.area + 64, b.area + 128, size) && b.area[127] == 0xee && b.area[128 + size] == 0xee,
			      name, "wrong data");
		}
	}
}

static void writes_and_reads(void)
{
	for (int i = 0; i < SIZE_COUNT; i++) {
		uint32_t size = SIZES[i];
		struct ibv_sge near = sge_of(&a, 4096, size), back = sge_of(&a, AREA / 2 + 64, size);
		uint64_t far = (uintptr_t)b.area + 1000;
		struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, 1, &near, far);
		struct ibv_wc wc, got;
		char name[64];

		snprintf(name, sizeof(name), "RDMA_WRITE of %u", size);
		fill(a.area + 4096, size, i + 50);
		memset(b.area, 0xdd, size + 4096);
		check(!post(&a, &wr) && expect(a.cq, 1, IBV_WC_SUCCESS, &wc) && wc.opcode == IBV_WC_RDMA_WRITE &&
			      !memcmp(a.area + 4096, b.area + 1000, size) && b.area[999] == 0xdd &&
			      b.area[1000 + size] == 0xdd,
		      name, "status %d", wc.status);

		snprintf(name, sizeof(name), "RDMA_WRITE_WITH_IMM of %u", size);
		memset(b.area, 0xcc, size + 4096);
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htonl(77 + i);
		check(!receive(&b, 2, NULL, 0) && !post(&a, &wr) && expect(a.cq, 1, IBV_WC_SUCCESS, &wc) &&
			      expect(b.cq, 2, IBV_WC_SUCCESS, &got) && got.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
			      got.byte_len == size && got.imm_data == htonl(77 + i) &&
			      (got.wc_flags & IBV_WC_WITH_IMM) && !memcmp(a.area + 4096, b.area + 1000, size),
		      name, "status %d, %u bytes", wc.status, got.byte_len);

		snprintf(name, sizeof(name), "RDMA_READ of %u", size);
		memset(a.area + AREA / 2, 0xbb, size + 4096);
		wr = rdma(IBV_WR_RDMA_READ, 3, &back, far);
		check(!post(&a, &wr) && expect(a.cq, 3, IBV_WC_SUCCESS, &wc) && wc.opcode == IBV_WC_RDMA_READ &&
			      wc.byte_len == size && !memcmp(a.area + AREA / 2 + 64, b.area + 1000, size) &&
			      a.area[AREA / 2 + 63] == 0xbb && a.area[AREA / 2 + 64 + size] == 0xbb,
		      name, "status %d, %u bytes", wc.status, wc.byte_len);
	}
}

static void atomics(void)
{
	uint64_t *word = (uint64_t *)(b.area + 512), *old = (uint64_t *)(a.area + 512);
	struct ibv_sge sge = sge_of(&a, 512, 8);
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;

	*word = 40;
	*old = 0;
	wr.wr.atomic.remote_addr = (uintptr_t)word;
	wr.wr.atomic.rkey = b.mr->rkey;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.compare_add = 2;
	check(!post(&a, &wr) && expect(a.cq, 5, IBV_WC_SUCCESS, &wc) && wc.opcode == IBV_WC_FETCH_ADD && *old == 40 &&
		      *word == 42,
	      "ATOMIC_FETCH_AND_ADD", "old %" PRIu64 ", now %" PRIu64, *old, *word);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 0x1122334455667788;
	check(!post(&a, &wr) && expect(a.cq, 5, IBV_WC_SUCCESS, &wc) && wc.opcode == IBV_WC_COMP_SWAP && *old == 42 &&
		      *word == 0x1122334455667788,
	      "ATOMIC_CMP_AND_SWP that swaps", "old %" PRIu64 ", now %#" PRIx64, *old, *word);
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 9;
	check(!post(&a, &wr) && expect(a.cq, 5, IBV_WC_SUCCESS, &wc) && *old == 0x1122334455667788 &&
		      *word == 0x1122334455667788,
	      "ATOMIC_CMP_AND_SWP that doesn't", "old %#" PRIx64 ", now %#" PRIx64, *old, *word);
}

static void inlines(void)
{
	static const uint32_t lengths[] = { 0, 1, 3, 8, 11, 12, 13, 16, 28, 44, 60, 76, 100, INLINE };

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint32_t length = lengths[i];
		uint8_t bytes[INLINE], same[INLINE];
		struct ibv_sge from[2] = { { .addr = (uintptr_t)bytes, .length = length / 2 },
					   { .addr = (uintptr_t)bytes + length / 2, .length = length - length / 2 } };
		struct ibv_sge to = sge_of(&b, 0, INLINE);
		struct ibv_send_wr wr = rdma(IBV_WR_SEND, 1, from, 0);
		struct ibv_wc got;
		char name[64];
		int good;

		snprintf(name, sizeof(name), "inline SEND of %u", length);
		fill(bytes, length, i);
		memcpy(same, bytes, length);
		wr.num_sge = 2;
		wr.send_flags |= IBV_SEND_INLINE;
		good = !receive(&b, 2, &to, 1) && !post(&a, &wr);
		/* Inline data is copied by the post. */
		memset(bytes, 0, sizeof(bytes));
		check(good && expect(a.cq, 1, IBV_WC_SUCCESS, NULL) && expect(b.cq, 2, IBV_WC_SUCCESS, &got) &&
			      got.byte_len == length && !memcmp(b.area, same, length),
		      name, "%u bytes", got.byte_len);

		snprintf(name, sizeof(name), "inline RDMA_WRITE of %u", length);
		memcpy(bytes, same, length);
		memset(b.area, 0, INLINE);
		wr = rdma(IBV_WR_RDMA_WRITE, 3, from, (uintptr_t)b.area);
		wr.num_sge = 2;
		wr.send_flags |= IBV_SEND_INLINE;
		good = !post(&a, &wr);
		memset(bytes, 0, sizeof(bytes));
		check(good && expect(a.cq, 3, IBV_WC_SUCCESS, NULL) && !memcmp(b.area, same, length), name, "wrong data");
	}
}

static void sges(void)
{
	struct ibv_sge from[SGES], to[SGES];
	struct ibv_send_wr wr = rdma(IBV_WR_SEND, 1, from, 0);
	uint8_t flat[4 * 3000];
	uint32_t total = 0;
	struct ibv_wc got;

	for (int i = 0; i < SGES; i++) {
		/* SGEs of different lengths on both sides, one of them empty. */
		uint32_t length = i == 2 ? 0 : 700 + 333 * i;

		fill(a.area + 5000 * i, length, i + 1);
		memcpy(flat + total, a.area + 5000 * i, length);
		from[i] = sge_of(&a, 5000 * i, length);
		to[i] = sge_of(&b, 9000 * i, i == SGES - 1 ? 3000 : 555);
		total += length;
	}
	memset(b.area, 0, 40000);
	wr.num_sge = SGES;
	if (!check(!receive(&b, 2, to, SGES) && !post(&a, &wr) && expect(a.cq, 1, IBV_WC_SUCCESS, NULL) &&
			   expect(b.cq, 2, IBV_WC_SUCCESS, &got) && got.byte_len == total,
		   "SEND of several SGEs", "%u bytes of %u", got.byte_len, total))
		return;
	uint32_t at = 0;
	int same = 1;

	for (int i = 0; i < SGES && at < total; i++) {
		uint32_t length = to[i].length < total - at ? to[i].length : total - at;

		same &= !memcmp(b.area + 9000 * i, flat + at, length);
		at += length;
	}
	check(same && at == total, "data of several SGEs", "at %u of %u", at, total);
	/* A READ scatters, too. */
	for (int i = 0; i < SGES; i++)
		from[i] = sge_of(&a, 700000 + 2000 * i, 100 + i);
	fill(b.area, 500, 9);
	wr = rdma(IBV_WR_RDMA_READ, 3, from, (uintptr_t)b.area);
	wr.num_sge = SGES;
	check(!post(&a, &wr) && expect(a.cq, 3, IBV_WC_SUCCESS, NULL) && !memcmp(a.area + 700000, b.area, 100) &&
		      !memcmp(a.area + 706000, b.area + 303, 103),
	      "RDMA_READ into several SGEs", "wrong data");
}

static void order(void)
{
	struct ibv_sge near = sge_of(&a, 0, 3000), back = sge_of(&a, 100000, 3000);
	struct ibv_send_wr wr[3];
	struct ibv_wc wc;

	fill(a.area, 3000, 3);
	memset(b.area, 0, 3000);
	memset(a.area + 100000, 0, 3000);
	/* An unsignaled WRITE, a READ of the same bytes, then a fenced WRITE of the result. */
	wr[0] = rdma(IBV_WR_RDMA_WRITE, 1, &near, (uintptr_t)b.area);
	wr[0].send_flags = 0;
	wr[1] = rdma(IBV_WR_RDMA_READ, 2, &back, (uintptr_t)b.area);
	wr[1].send_flags = 0;
	wr[2] = rdma(IBV_WR_RDMA_WRITE, 3, &back, (uintptr_t)b.area + 8192);
	wr[2].send_flags |= IBV_SEND_FENCE;
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	check(!post(&a, wr) && expect(a.cq, 3, IBV_WC_SUCCESS, &wc) && !memcmp(b.area + 8192, a.area, 3000),
	      "unsignaled, then fenced", "wrong data");
	check(none(a.cq), "unsignaled requests don't complete", "they did");
}

/* Many more work requests than the queues hold, so that all rings wrap. */
static void wrap(void)
{
	enum { ROUNDS = 200, CHAIN = 8 };
	int good = 1;

	for (int round = 0; good && round < ROUNDS; round++) {
		struct ibv_send_wr wr[CHAIN];
		struct ibv_sge from[CHAIN], to[CHAIN];
		struct ibv_recv_wr receives[CHAIN], *bad;

		for (int i = 0; i < CHAIN; i++) {
			uint32_t size = 1 + (round * 37 + i * 11) % 300;

			from[i] = sge_of(&a, i * 512, size);
			to[i] = sge_of(&b, i * 512, 512);
			fill(a.area + i * 512, size, round + i);
			wr[i] = rdma(IBV_WR_SEND, i, &from[i], 0);
			if (i + 1 < CHAIN)
				wr[i].send_flags = 0;
			if (size <= 64 && i % 2)
				wr[i].send_flags |= IBV_SEND_INLINE;
			wr[i].next = i + 1 < CHAIN ? &wr[i + 1] : NULL;
			receives[i] = (struct ibv_recv_wr){ .wr_id = i, .sg_list = &to[i], .num_sge = 1,
							    .next = i + 1 < CHAIN ? &receives[i + 1] : NULL };
		}
		good = !ibv_post_recv(b.qp, receives, &bad) && !post(&a, wr) &&
		       expect(a.cq, CHAIN - 1, IBV_WC_SUCCESS, NULL);
		for (int i = 0; good && i < CHAIN; i++) {
			struct ibv_wc got;

			good = expect(b.cq, i, IBV_WC_SUCCESS, &got) && got.byte_len == from[i].length &&
			       !memcmp(a.area + i * 512, b.area + i * 512, got.byte_len);
		}
	}
	check(good, "1600 sends in chains", "wrong data or completion");
}

static int full(void)
{
	struct ibv_sge from = sge_of(&a, 0, 16);
	struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, 1, &from, (uintptr_t)b.area);
	int posted = 0, result;

	/* The ring may be larger than requested, but must become full. */
	while (!(result = post(&a, &wr)) && posted < 100 * DEPTH)
		posted++;
	check(result == ENOMEM && posted >= DEPTH, "a full send queue gives ENOMEM", "%d after %d", result, posted);
	int good = 1;

	for (int i = 0; good && i < posted; i++)
		good = expect(a.cq, 1, IBV_WC_SUCCESS, NULL);
	return check(good, "and all of it completes", "not so");
}

static int event(struct side *side, int limit_ms)
{
	struct pollfd file = { .fd = side->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *cq_context;

	if (poll(&file, 1, limit_ms) != 1 || ibv_get_cq_event(side->channel, &cq, &cq_context))
		return 0;
	side->unacked++;
	return cq == side->cq && cq_context == side;
}

static void events(void)
{
	struct ibv_sge from = sge_of(&a, 0, 8), to = sge_of(&b, 0, 64);
	struct ibv_send_wr wr = rdma(IBV_WR_SEND, 1, &from, 0);

	for (int i = 0; i < 3; i++) {
		check(!ibv_req_notify_cq(b.cq, 0) && !receive(&b, 2, &to, 1), "arm", "%s", strerror(errno));
		check(!event(&b, 20), "no event without a completion", "there was one");
		check(!post(&a, &wr) && event(&b, LIMIT_MS), "event of a completion", "none");
		check(expect(b.cq, 2, IBV_WC_SUCCESS, NULL) && expect(a.cq, 1, IBV_WC_SUCCESS, NULL),
		      "completion behind the event", "none");
	}
	check(!receive(&b, 2, &to, 1) && !post(&a, &wr) && expect(b.cq, 2, IBV_WC_SUCCESS, NULL) &&
		      expect(a.cq, 1, IBV_WC_SUCCESS, NULL) && !event(&b, 20),
	      "no event unless armed", "there was one");
	check(!ibv_req_notify_cq(b.cq, 1) && !receive(&b, 2, &to, 1) && !post(&a, &wr) &&
		      expect(b.cq, 2, IBV_WC_SUCCESS, NULL) && expect(a.cq, 1, IBV_WC_SUCCESS, NULL) && !event(&b, 20),
	      "armed for solicited: no event of another", "there was one");
	wr.send_flags |= IBV_SEND_SOLICITED;
	check(!receive(&b, 2, &to, 1) && !post(&a, &wr) && event(&b, LIMIT_MS) && expect(b.cq, 2, IBV_WC_SUCCESS, NULL) &&
		      expect(a.cq, 1, IBV_WC_SUCCESS, NULL),
	      "armed for solicited: event of a solicited one", "none");
	/* Armed after a completion that was not polled yet: the event must come. */
	check(!receive(&b, 2, &to, 1) && !post(&a, &wr) && expect(a.cq, 1, IBV_WC_SUCCESS, NULL) &&
		      !ibv_req_notify_cq(b.cq, 0) && event(&b, LIMIT_MS) && expect(b.cq, 2, IBV_WC_SUCCESS, NULL),
	      "armed behind a completion", "no event");
}

static void queries(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int all = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		  IBV_QP_RNR_RETRY | IBV_QP_ACCESS_FLAGS | IBV_QP_CAP | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_PORT;

	if (!check(!ibv_query_qp(a.qp, &attr, all, &init), "query_qp", "%s", strerror(errno)))
		return;
	check(attr.qp_state == IBV_QPS_RTS && attr.path_mtu == IBV_MTU_1024 && attr.dest_qp_num == b.qp->qp_num &&
		      attr.timeout == USUAL.timeout && attr.retry_cnt == USUAL.retries && attr.rnr_retry == 7 &&
		      attr.port_num == PORT && attr.max_rd_atomic == 8 && attr.max_dest_rd_atomic == 8 &&
		      attr.qp_access_flags == (ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE),
	      "query_qp gives what was set", "state %d mtu %d dest %u timeout %u retry %u rnr %u port %u rd %u/%u access %#x",
	      attr.qp_state, attr.path_mtu, attr.dest_qp_num, attr.timeout, attr.retry_cnt, attr.rnr_retry,
	      attr.port_num, attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.qp_access_flags);
	check(attr.cap.max_recv_wr >= DEPTH && attr.cap.max_send_wr >= DEPTH && attr.cap.max_inline_data >= INLINE &&
		      init.qp_type == IBV_QPT_RC && init.send_cq == a.cq,
	      "query_qp gives the capacities", "%u %u %u", attr.cap.max_send_wr, attr.cap.max_recv_wr,
	      attr.cap.max_inline_data);
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
		check(attr.ah_attr.is_global && !memcmp(&attr.ah_attr.grh.dgid, &gid, 16) &&
			      attr.ah_attr.grh.sgid_index == gid_index && attr.ah_attr.grh.hop_limit == 64,
		      "query_qp gives the path", "global %d, index %d", attr.ah_attr.is_global,
		      attr.ah_attr.grh.sgid_index);
	else
		check(attr.ah_attr.dlid == port.lid, "query_qp gives the path", "dlid %u", attr.ah_attr.dlid);
}

static void failing(const char *name, struct ibv_send_wr wr, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int good;

	wr.wr_id = 70;
	good = !post(&a, &wr) && expect(a.cq, 70, status, &wc);
	check(good && wc.qp_num == a.qp->qp_num, name, "%s", ibv_wc_status_str(wc.status));
	check(state_of(a.qp) == IBV_QPS_ERR, "its QP is in the error state", "%d", state_of(a.qp));
	/* Later work requests are flushed. */
	wr.wr_id = 71;
	check(!post(&a, &wr) && expect(a.cq, 71, IBV_WC_WR_FLUSH_ERR, NULL), "the next request is flushed", "no");
}

static int async(enum ibv_event_type type, struct ibv_qp *qp)
{
	struct pollfd file = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event got;
	int good;

	if (poll(&file, 1, LIMIT_MS) != 1 || ibv_get_async_event(context, &got))
		return 0;
	good = got.event_type == type && got.element.qp == qp;
	if (!good)
		printf("# async event %s\n", ibv_event_type_str(got.event_type));
	ibv_ack_async_event(&got);
	return good;
}

static void no_async(void)
{
	struct pollfd file = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event got;
	int count = 0;

	while (poll(&file, 1, 5) == 1 && !ibv_get_async_event(context, &got)) {
		printf("# async event %s\n", ibv_event_type_str(got.event_type));
		ibv_ack_async_event(&got);
		count++;
	}
	check(count == 0, "no async event without a reason", "%d", count);
}

static void errors(void)
{
	struct ibv_sge near = sge_of(&a, 0, 2000), to = sge_of(&b, 0, 4096), wrong = near;
	struct ibv_send_wr wr;
	struct options options = USUAL;
	struct ibv_wc wc;

	no_async();
	check(fresh(&USUAL), "reset and connect again", "%s", strerror(errno));
	wr = rdma(IBV_WR_RDMA_WRITE, 0, &near, (uintptr_t)b.area);
	wr.wr.rdma.rkey ^= 0x5a00;
	failing("WRITE with a wrong rkey", wr, IBV_WC_REM_ACCESS_ERR);
	check(async(IBV_EVENT_QP_ACCESS_ERR, b.qp), "the responder gets QP_ACCESS_ERR", "no");

	check(fresh(&USUAL), "reset and connect again", "%s", strerror(errno));
	wr = rdma(IBV_WR_RDMA_READ, 0, &near, (uintptr_t)b.area + AREA - 1000);
	failing("READ beyond the region", wr, IBV_WC_REM_ACCESS_ERR);
	check(async(IBV_EVENT_QP_ACCESS_ERR, b.qp), "the responder gets QP_ACCESS_ERR", "no");

	options.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	check(fresh(&options), "reset and connect without remote write", "%s", strerror(errno));
	wr = rdma(IBV_WR_RDMA_WRITE, 0, &near, (uintptr_t)b.area);
	/* The QP lacks the right: invalid request. The region lacks it: access error (IBTA 9.9.2). */
	wr.wr_id = 70;
	check(!post(&a, &wr) && next(a.cq, &wc) && wc.wr_id == 70 &&
		      (wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR),
	      "WRITE to a QP without remote write", "%s", ibv_wc_status_str(wc.status));
	struct pollfd file = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event got;

	while (poll(&file, 1, 20) == 1 && !ibv_get_async_event(context, &got))
		ibv_ack_async_event(&got);

	check(fresh(&USUAL), "reset and connect again", "%s", strerror(errno));
	wrong.lkey ^= 0x7700;
	failing("WRITE with a wrong lkey", rdma(IBV_WR_RDMA_WRITE, 0, &wrong, (uintptr_t)b.area), IBV_WC_LOC_PROT_ERR);

	check(fresh(&USUAL), "reset and connect again", "%s", strerror(errno));
	wrong = near;
	wrong.addr = (uintptr_t)a.area + AREA - 1;
	failing("WRITE from beyond the region", rdma(IBV_WR_RDMA_WRITE, 0, &wrong, (uintptr_t)b.area),
		IBV_WC_LOC_PROT_ERR);

	check(fresh(&USUAL), "reset and connect again", "%s", strerror(errno));
	to.length = 100;
	check(!receive(&b, 80, &to, 1), "post a receive of 100", "%s", strerror(errno));
	failing("SEND of more than the receive", rdma(IBV_WR_SEND, 0, &near, 0), IBV_WC_REM_INV_REQ_ERR);
	check(expect(b.cq, 80, IBV_WC_LOC_LEN_ERR, NULL), "the receive completes with LOC_LEN_ERR", "no");
	check(state_of(b.qp) == IBV_QPS_ERR, "its QP is in the error state", "%d", state_of(b.qp));

	options = USUAL;
	options.rnr_retry = 0;
	check(fresh(&options), "reset and connect again", "%s", strerror(errno));
	failing("SEND without a receive", rdma(IBV_WR_SEND, 0, &near, 0), IBV_WC_RNR_RETRY_EXC_ERR);

	options = USUAL;
	options.timeout = 8;
	options.retries = 1;
	check(fresh(&options) && !to_state(b.qp, IBV_QPS_RESET), "reset the peer", "%s", strerror(errno));
	failing("WRITE to a peer that isn't there", rdma(IBV_WR_RDMA_WRITE, 0, &near, (uintptr_t)b.area),
		IBV_WC_RETRY_EXC_ERR);

	check(fresh(&USUAL), "reset and connect again", "%s", strerror(errno));
	to.length = 4096;
	int good = 1;

	for (int i = 0; i < 10; i++)
		good &= !receive(&b, 90 + i, &to, 1);
	good &= !to_state(b.qp, IBV_QPS_ERR);
	for (int i = 0; good && i < 10; i++)
		good = expect(b.cq, 90 + i, IBV_WC_WR_FLUSH_ERR, NULL);
	check(good, "the error state flushes receives", "no");
	check(good && !receive(&b, 100, &to, 1) && expect(b.cq, 100, IBV_WC_WR_FLUSH_ERR, NULL),
	      "and those that are posted then", "no");

	check(fresh(&USUAL), "reset and connect again", "%s", strerror(errno));
	fill(a.area, 2000, 99);
	wr = rdma(IBV_WR_SEND, 1, &near, 0);
	check(!receive(&b, 2, &to, 1) && !post(&a, &wr) && expect(a.cq, 1, IBV_WC_SUCCESS, NULL) &&
		      expect(b.cq, 2, IBV_WC_SUCCESS, NULL) && !memcmp(a.area, b.area, 2000),
	      "and it works again", "no");
	no_async();
}

static void refusals(void)
{
	struct ibv_sge near = sge_of(&a, 0, 8);
	struct ibv_send_wr wr = rdma(IBV_WR_SEND, 1, &near, 0);

	check(to_state(a.qp, IBV_QPS_INIT) == EINVAL && state_of(a.qp) == IBV_QPS_RTS, "RTS to INIT is refused", "%d",
	      state_of(a.qp));
	wr.num_sge = SGES + 30;
	check(post(&a, &wr) == ENOMEM || post(&a, &wr) == EINVAL, "too many SGEs are refused", "posted");
	check(ibv_destroy_cq(a.cq) == EBUSY, "a CQ in use stays", "%s", strerror(errno));
	check(ibv_dealloc_pd(pd) == EBUSY, "a PD in use stays", "%s", strerror(errno));
	check(!ibv_reg_mr(pd, (void *)8, 4096, 0) && errno == EFAULT, "memory that isn't there is EFAULT", "%d", errno);
	check(!ibv_reg_mr(pd, a.area, 4096, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL,
	      "remote write without local write is EINVAL", "%d", errno);
	check(!ibv_create_cq(context, 1 << 30, NULL, NULL, 0) && errno == EINVAL, "a CQ too large is EINVAL", "%d", errno);

	struct ibv_qp_init_attr init = { .send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 1 << 30, .max_send_sge = 1 } };

	check(!ibv_create_qp(pd, &init), "a QP too large is refused", "made");
}

static void regions(void)
{
	struct ibv_sge near = sge_of(&a, 0, 64);
	uint8_t *other = aligned_alloc(4096, 8192);
	struct ibv_mr *mr = ibv_reg_mr(pd, other + 100, 5000, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, 1, &near, (uintptr_t)other + 100);

	NEED(mr != NULL, "reg_mr of an odd address");
	wr.wr.rdma.rkey = mr->rkey;
	check(!post(&a, &wr) && expect(a.cq, 1, IBV_WC_REM_ACCESS_ERR, NULL) && async(IBV_EVENT_QP_ACCESS_ERR, b.qp),
	      "a region without remote write is guarded", "no");
	check(fresh(&USUAL), "reset and connect again", "%s", strerror(errno));
	int result = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS);

	if (check(result == 0, "rereg_mr with more rights", "%d %s", result, strerror(errno))) {
		fill(a.area, 64, 5);
		wr.wr.rdma.rkey = mr->rkey;
		check(!post(&a, &wr) && expect(a.cq, 1, IBV_WC_SUCCESS, NULL) && !memcmp(other + 100, a.area, 64),
		      "and then it can be written", "no");
	}
	check(!ibv_dereg_mr(mr), "dereg_mr", "%s", strerror(errno));
	free(other);

	struct ibv_mr *zero = ibv_reg_mr_iova(pd, b.area, 4096, 0x10000, ALL_ACCESS);

	if (check(zero != NULL, "reg_mr_iova", "%s", strerror(errno))) {
		fill(a.area, 64, 6);
		wr.wr.rdma.rkey = zero->rkey;
		wr.wr.rdma.remote_addr = 0x10000 + 200;
		check(!post(&a, &wr) && expect(a.cq, 1, IBV_WC_SUCCESS, NULL) && !memcmp(b.area + 200, a.area, 64),
		      "a region at an address of its own", "no");
		ibv_dereg_mr(zero);
	}
}

/* More queue pairs than dedicated doorbell registers, all in use at once. */
static void many(void)
{
	enum { PAIRS = 20 };
	struct ibv_qp *one[PAIRS], *two[PAIRS];
	struct ibv_cq *cq = ibv_create_cq(context, 8 * PAIRS, NULL, NULL, 0);
	int good = cq != NULL;

	for (int i = 0; good && i < PAIRS; i++) {
		one[i] = make_qp(cq, 1);
		two[i] = make_qp(cq, 1);
		good = one[i] && two[i] && !connect_pair(one[i], two[i], &USUAL);
	}
	if (!check(good, "20 pairs more", "%s", strerror(errno)))
		return;
	for (int round = 0; good && round < 3; round++) {
		int seen = 0;

		for (int i = 0; good && i < PAIRS; i++) {
			struct ibv_sge from = sge_of(&a, 4096 * i, 100 * (i + 1)), to = sge_of(&b, 4096 * i, 4096);
			struct ibv_recv_wr recv = { .wr_id = i, .sg_list = &to, .num_sge = 1 }, *bad_recv;
			struct ibv_send_wr send = { .wr_id = i, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND },
					   *bad;

			fill(a.area + 4096 * i, from.length, i + round);
			good = !ibv_post_recv(two[i], &recv, &bad_recv) && !ibv_post_send(one[i], &send, &bad);
		}
		for (; good && seen < 2 * PAIRS; seen++) {
			struct ibv_wc wc;

			good = next(cq, &wc) && wc.status == IBV_WC_SUCCESS &&
			       (wc.opcode == IBV_WC_SEND ? wc.qp_num == one[wc.wr_id]->qp_num
							 : wc.qp_num == two[wc.wr_id]->qp_num &&
								   wc.byte_len == 100 * (wc.wr_id + 1));
		}
		for (int i = 0; good && i < PAIRS; i++)
			good = !memcmp(a.area + 4096 * i, b.area + 4096 * i, 100 * (i + 1));
	}
	check(good, "all of them at once", "wrong data or completion");
	for (int i = 0; i < PAIRS; i++)
		good &= !ibv_destroy_qp(one[i]) && !ibv_destroy_qp(two[i]);
	check(good && !ibv_destroy_cq(cq), "and gone", "%s", strerror(errno));
}

/* The calls since 2019: ibv_wr_* and extended completion queues. */
static void extended(void)
{
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 64, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM |
								      IBV_WC_EX_WITH_QP_NUM };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &cq_init);

	if (!check(cq != NULL, "create_cq_ex", "%s", strerror(errno)))
		return;
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq),
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp *one = ibv_create_qp_ex(context, &init), *two = ibv_create_qp_ex(context, &init);
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ibv_sge to = sge_of(&b, 0, 4096);
	struct ibv_recv_wr recv = { .wr_id = 9, .sg_list = &to, .num_sge = 1 }, *bad;
	int64_t end = now_ms() + LIMIT_MS;
	int sends = 0, receives = 0, result;

	if (!check(one && two && !connect_pair(one, two, &USUAL), "create_qp_ex", "%s", strerror(errno)))
		return;
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(one);

	fill(a.area, 1024, 17);
	memset(b.area, 0, 8192);
	ibv_post_recv(two, &recv, &bad);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.area + 4096);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.area, 1024);
	qp->wr_id = 2;
	ibv_wr_send_imm(qp, htonl(4711));
	ibv_wr_set_inline_data(qp, a.area, 60);
	check(!ibv_wr_complete(qp), "wr_start to wr_complete", "%s", strerror(errno));
	while (sends + receives < 3 && now_ms() < end) {
		result = ibv_start_poll(cq, &poll_attr);
		if (result == ENOENT)
			continue;
		if (result) {
			check(0, "start_poll", "%d", result);
			break;
		}
		do {
			if (cq->status != IBV_WC_SUCCESS)
				check(0, "completion", "%s", ibv_wc_status_str(cq->status));
			if (ibv_wc_read_opcode(cq) == IBV_WC_RECV)
				receives += cq->wr_id == 9 && ibv_wc_read_byte_len(cq) == 60 &&
					    ibv_wc_read_imm_data(cq) == htonl(4711) &&
					    ibv_wc_read_qp_num(cq) == two->qp_num;
			else
				sends += cq->wr_id == 1 || cq->wr_id == 2;
		} while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	check(sends == 2 && receives == 1, "start_poll sees all", "%d sends, %d receives", sends, receives);
	check(!memcmp(a.area, b.area + 4096, 1024) && !memcmp(a.area, b.area, 60), "data of wr_*", "wrong");
	check(!ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "destroy them", "%s",
	      strerror(errno));
}

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	NEED(list != NULL && count == 1, "get_device_list");
	context = ibv_open_device(list[0]);
	NEED(context != NULL, "open_device");
	ibv_free_device_list(list);
	NEED(!ibv_query_port(context, PORT, &port), "query_port");
	gid_index = port.link_layer == IBV_LINK_LAYER_ETHERNET ? 3 : 0;
	NEED(!ibv_query_gid(context, PORT, gid_index, &gid), "query_gid");
	pd = ibv_alloc_pd(context);
	NEED(pd != NULL, "alloc_pd");
	make_side(&a);
	make_side(&b);
	NEED(!connect_pair(a.qp, b.qp, &USUAL), "connect");

	sends();
	writes_and_reads();
	atomics();
	inlines();
	sges();
	order();
	wrap();
	full();
	events();
	queries();
	refusals();
	regions();
	many();
	extended();
	errors();

	drop_side(&a);
	drop_side(&b);
	check(!ibv_dealloc_pd(pd), "dealloc_pd", "%s", strerror(errno));
	check(!ibv_close_device(context), "close_device", "%s", strerror(errno));
	printf("%d checks, %d failed\n", checks, failures);
	return failures != 0;
}
