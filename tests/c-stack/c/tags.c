/* Tag-matching shared receive queues: changes of their lists, destinations and completions of messages, and invalid
 * calls. Prints a line per check; lines that begin with "said" are results of the library. The test compares the lines
 * of the distribution's library with ours, on devices of one kind. "poll" takes completions by ibv_poll_cq, which C's
 * provider does not support for such queues. */
#include <endian.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checks.h"

enum { TAGS = 6, CHANGES = 8, AREA = 1 << 18, HEADER = 16, SPARE = 0x20000, SENT = 0x30000 };

/* A change: kind, id, flags, tag or handle, count. */
struct change {
	int opcode;
	uint64_t wr_id;
	int flags;
	uint64_t tag, mask;
	uint32_t len, handle, count;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq_ex *cq;
static struct ibv_cq *sends;
static struct ibv_srq *srq;
static struct ibv_qp *qp;
static char area[AREA] __attribute__((aligned(4096)));
static int by_poll;

#define NEED(condition, name)                              \
	do {                                               \
		if (!(condition)) {                        \
			perror(name);                      \
			exit(1);                           \
		}                                          \
	} while (0)

#define SAID(...)                                          \
	do {                                               \
		checks++;                                  \
		printf("ok said ");                        \
		printf(__VA_ARGS__);                       \
		printf("\n");                              \
		fflush(stdout);                            \
	} while (0)

static int64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Prints a completion of the list's queue. A message without a tag has only its bytes. */
static void say(const char *what, uint64_t wr_id, int status, int opcode, unsigned flags, uint32_t len, uint32_t qpn,
		const struct ibv_wc_tm_info *info)
{
	int of_message = !status && (opcode & IBV_WC_RECV) && opcode != IBV_WC_TM_ADD && opcode != IBV_WC_TM_DEL &&
			 opcode != IBV_WC_TM_SYNC;
	/* The bytes of an unfinished message are undefined. */
	int there = of_message && !(flags & IBV_WC_TM_MATCH && !(flags & IBV_WC_TM_DATA_VALID));

	SAID("%s: %" PRIu64 " status %d opcode %d flags %x len %u of %s tag %" PRIx64 " %x", what, wr_id, status, opcode, flags,
	     there || status == IBV_WC_TM_RNDV_INCOMPLETE ? len : 0,
	     !of_message ? "-" : qpn == qp->qp_num ? "qp" : "another", info ? info->tag : 0, info ? info->priv : 0);
}

/* Waits for a completion up to the limit; returns 0 if none came. */
static int next_of(const char *what, int limit_ms)
{
	struct ibv_poll_cq_attr none = {};
	struct ibv_wc_tm_info info;
	int64_t end = now_ms() + limit_ms;
	struct ibv_wc wc;

	do {
		if (by_poll) {
			if (ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) == 1) {
				say(what, wc.wr_id, wc.status, wc.opcode, wc.wc_flags, wc.byte_len, wc.qp_num, NULL);
				return 1;
			}
		} else if (!ibv_start_poll(cq, &none)) {
			int flags = ibv_wc_read_wc_flags(cq), opcode = ibv_wc_read_opcode(cq);
			int told = flags & IBV_WC_TM_MATCH && opcode == IBV_WC_TM_RECV;

			if (told)
				ibv_wc_read_tm_info(cq, &info);
			say(what, cq->wr_id, cq->status, opcode, flags, ibv_wc_read_byte_len(cq), ibv_wc_read_qp_num(cq),
			    told ? &info : NULL);
			ibv_end_poll(cq);
			return 1;
		}
	} while (now_ms() < end);
	return 0;
}

static void next(const char *what)
{
	check(what, next_of(what, 10000), 1);
}

static void idle(const char *what)
{
	check(what, next_of(what, 100), 0);
}

/* Posts changes in one list; tag N's buffer is at 0x1000 * N. Returns the errno, and the number posted. */
static int change(struct change *all, int count, int *went)
{
	struct ibv_ops_wr wrs[64] = {}, *bad = NULL;
	struct ibv_sge sges[64];
	int result;

	for (int i = 0; i < count; i++) {
		struct ibv_ops_wr *wr = &wrs[i];

		sges[i] = (struct ibv_sge){ (uintptr_t)area + 0x1000 * (all[i].wr_id % 16), all[i].len, mr->lkey };
		*wr = (struct ibv_ops_wr){ .wr_id = all[i].wr_id, .opcode = all[i].opcode, .flags = all[i].flags };
		wr->tm.unexpected_cnt = all[i].count;
		wr->tm.handle = all[i].handle;
		wr->tm.add.recv_wr_id = all[i].wr_id + 1000;
		wr->tm.add.sg_list = &sges[i];
		wr->tm.add.num_sge = 1;
		wr->tm.add.tag = all[i].tag;
		wr->tm.add.mask = all[i].mask;
		wr->next = i + 1 < count ? wr + 1 : NULL;
	}
	result = ibv_post_srq_ops(srq, wrs, &bad);
	if (went)
		*went = bad ? bad - wrs : count;
	for (int i = 0; i < count && (!bad || &wrs[i] != bad); i++)
		if (wrs[i].opcode == IBV_WR_TAG_ADD)
			all[i].handle = wrs[i].tm.handle;
	return result;
}

static struct change add(uint64_t wr_id, uint64_t tag, uint32_t len)
{
	return (struct change){ IBV_WR_TAG_ADD, wr_id, IBV_OPS_SIGNALED, tag, UINT64_MAX, len, 0, 0 };
}

static struct change removal(uint64_t wr_id, uint32_t handle)
{
	return (struct change){ IBV_WR_TAG_DEL, wr_id, IBV_OPS_SIGNALED, 0, 0, 0, handle, 0 };
}

static struct change sync_of(uint64_t wr_id, uint32_t count)
{
	return (struct change){ IBV_WR_TAG_SYNC, wr_id, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 0, 0, 0, 0, count };
}

static uint32_t one(const char *what, struct change wanted)
{
	int result = change(&wanted, 1, NULL);

	SAID("%s: %d, handle %u", what, result, wanted.opcode == IBV_WR_TAG_ADD ? wanted.handle : 0);
	return wanted.handle;
}

/* Adds a tag, and takes its completion. */
static uint32_t added(uint64_t wr_id, uint64_t tag, uint32_t len)
{
	uint32_t handle = one("add", add(wr_id, tag, len));

	next("added");
	return handle;
}

static void receive(uint64_t wr_id, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)area + SPARE + 0x1000 * wr_id, len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	check("post_srq_recv", ibv_post_srq_recv(srq, &wr, &bad), 0);
}

/* Sends a message with a header; the payload is counting bytes. */
static void post(int opcode, uint64_t tag, uint32_t len, const struct ibv_rvh *rendezvous, const uint32_t *imm)
{
	struct ibv_tmh *header = (struct ibv_tmh *)(area + SENT);
	struct ibv_sge sge = { (uintptr_t)area + SENT, HEADER + len, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	memset(header, 0, HEADER);
	header->opcode = opcode;
	header->app_ctx = htobe32(0xabcd);
	header->tag = htobe64(tag);
	for (uint32_t i = 0; i < len; i++)
		area[SENT + HEADER + i] = (char)(i * 7 + tag);
	if (rendezvous)
		memcpy(area + SENT + HEADER, rendezvous, sizeof(*rendezvous));
	if (imm) {
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		wr.imm_data = *imm;
	}
	NEED(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

/* Waits for the send's completion, successful or failed. */
static void sent(int status)
{
	int64_t end = now_ms() + 10000;
	struct ibv_wc wc;

	while (ibv_poll_cq(sends, 1, &wc) != 1)
		NEED(now_ms() < end, "nothing was sent");
	check("sent", wc.status, status);
}

static void eager(uint64_t tag, uint32_t len)
{
	post(IBV_TMH_EAGER, tag, len, NULL, NULL);
	sent(IBV_WC_SUCCESS);
}

static int arrived(uint64_t wr_id, uint64_t tag, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (area[0x1000 * (wr_id % 16) + i] != (char)(i * 7 + tag))
			return 0;
	return 1;
}

static void matching(void)
{
	struct change chain[] = { add(1, 11, 0x1000), add(2, 12, 0x1000), add(3, 0x1200, 0x4000), add(6, 13, 0) };
	uint32_t imm = htobe32(0x01020304);
	int went;

	chain[1].flags = 0;
	chain[2].mask = 0xff00;
	check("a chain", change(chain, 4, &went), 0);
	SAID("handles %u %u %u %u, went %d", chain[0].handle, chain[1].handle, chain[2].handle, chain[3].handle, went);
	next("added");
	next("added, masked");
	next("added, empty");
	idle("unsignaled");
	eager(12, 100);
	next("to the second");
	check("its bytes", arrived(2, 12, 100), 1);
	eager(0x12ab, 9000);
	next("to the masked one, found");
	next("to the masked one, there");
	check("its bytes", arrived(3, 0x12ab, 9000), 1);
	post(IBV_TMH_EAGER, 11, 5, NULL, &imm);
	sent(IBV_WC_SUCCESS);
	next("with immediate data");
	eager(13, 0);
	next("empty");
	receive(0, 4096);
	post(IBV_TMH_NO_TAG, 11, 7, NULL, NULL);
	sent(IBV_WC_SUCCESS);
	next("without a tag");
}

/* A message without a matching tag, and the count that the device then expects. */
static void unexpected(void)
{
	for (int i = 1; i < 4; i++)
		receive(i, 4096);
	eager(20, 10);
	next("unexpected");
	added(4, 20, 64);
	eager(20, 10);
	next("still unexpected");
	one("sync", sync_of(5, 1));
	next("synced, too few");
	eager(20, 10);
	next("unexpected again");
	one("sync", sync_of(6, 3));
	next("synced");
	eager(20, 10);
	next("found");
	one("sync of nothing", (struct change){ .opcode = IBV_WR_TAG_SYNC, .wr_id = 7 });
	idle("unsignaled sync");
}

/* The next change brings the counts: the later tests begin in sync. */
static void in_step(uint32_t count)
{
	struct change wanted = add(8, 0x77, 64);

	wanted.flags |= IBV_OPS_TM_SYNC;
	wanted.count = count;
	one("add with a count", wanted);
	next("added");
	eager(0x77, 1);
	next("found");
}

static void removals(void)
{
	uint32_t first = added(1, 31, 64), second = added(2, 32, 64);

	one("remove", removal(40, first));
	next("removed");
	eager(32, 8);
	one("remove too late", removal(41, second));
	next("found");
	next("not removed");
	receive(4, 4096);
	eager(31, 8);
	next("it is removed");
	in_step(4);
	/* Without a completion, the place is free at once. */
	for (int round = 0; round < 3; round++) {
		struct change chain[TAGS + 2] = {};
		int went;

		for (int i = 0; i < TAGS; i++) {
			chain[i] = add(i, 50 + i, 64);
			chain[i].flags = 0;
		}
		check("add all", change(chain, TAGS, &went), 0);
		SAID("round %d: handles %u %u, went %d", round, chain[0].handle, chain[TAGS - 1].handle, went);
		one("signal", sync_of(60, 4));
		next("synced");
		for (int i = 0; i < TAGS; i++)
			chain[i] = (struct change){ .opcode = IBV_WR_TAG_DEL, .wr_id = 90, .handle = chain[i].handle };
		/* A list reuses the place that it freed. */
		chain[TAGS] = add(9, 59, 64);
		check("remove, and add", change(chain + TAGS - 1, 2, NULL), 0);
		SAID("handle %u", chain[TAGS].handle);
		next("added");
		check("remove all", change(chain, TAGS - 1, NULL), 0);
		one("signal", sync_of(61, 4));
		next("synced");
		eager(59, 12);
		next("found");
	}
	idle("removals tell nothing");
	receive(4, 4096);
	eager(52, 8);
	next("all are removed");
	in_step(5);
}

static void rendezvous(void)
{
	struct ibv_rvh data = { .va = htobe64((uintptr_t)area + SPARE + 0x8000), .rkey = htobe32(mr->rkey), .len = htobe32(3000) };

	memset(area + SPARE + 0x8000, 0x5a, 3000);
	added(1, 61, 0x1000);
	receive(5, 4096);
	post(IBV_TMH_RNDV, 61, sizeof(data), &data, NULL);
	sent(IBV_WC_SUCCESS);
	next("rendezvous found");
	next("rendezvous fetched");
	next("rendezvous finished");
	check("its bytes", area[0x1000] == 0x5a && area[0x1000 + 2999] == 0x5a, 1);
	added(2, 62, 64);
	post(IBV_TMH_RNDV, 62, sizeof(data), &data, NULL);
	sent(IBV_WC_SUCCESS);
	next("rendezvous for the program");
	check("its headers", area[0x2000] == IBV_TMH_RNDV && !memcmp(area + 0x2000 + HEADER, &data, sizeof(data)), 1);
}

/* Too many tags, too many changes, and invalid changes: an errno, and the position in the list. */
static void refusals(void)
{
	struct change chain[64] = {}, wrong = { .opcode = 9, .wr_id = 1 };
	struct ibv_srq_init_attr plain = { .attr = { 4, 1, 0 } };
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC }, *bad = NULL;
	struct ibv_srq *without;
	int went, error;

	for (int i = 0; i <= TAGS; i++)
		chain[i] = add(i, 70 + i, 64);
	error = change(chain, TAGS + 1, &went);
	SAID("one tag too many: %d, went %d", error, went);
	for (int i = 0; i < TAGS; i++)
		next("added");
	error = change(&wrong, 1, &went);
	SAID("no such change: %d, went %d", error, went);
	chain[10] = sync_of(80, 5);
	chain[11] = wrong;
	error = change(chain + 10, 2, &went);
	SAID("the second is none: %d, went %d", error, went);
	next("the first went");
	for (int i = 0; i < TAGS; i++)
		one("remove", removal(81, chain[i].handle));
	for (int i = 0; i < TAGS; i++)
		next("removed");
	for (int i = 0; i < 64; i++) {
		chain[i] = sync_of(82, 5);
		chain[i].flags = i == CHANGES - 1 ? IBV_OPS_SIGNALED | 1 << 7 : 0;
	}
	error = change(chain, 64, &went);
	SAID("too many changes: %d, went %d", error, went);
	next("the last one");
	one("room again", sync_of(83, 5));
	next("synced");
	/* C's provider posts the removal of an unknown tag, which corrupts its list of places. */
	if (by_poll) {
		wrong = removal(84, 0);
		check("a tag that is gone (ours)", change(&wrong, 1, &went), ENOMEM);
		wrong = removal(84, TAGS + 1);
		check("a place that isn't there (ours)", change(&wrong, 1, &went), ENOMEM);
	}
	NEED(without = ibv_create_srq(pd, &plain), "ibv_create_srq");
	SAID("a queue without a list: %d, went %d", ibv_post_srq_ops(without, &wr, &bad), bad == &wr);
	check("destroy_srq", ibv_destroy_srq(without), 0);
}

static struct ibv_srq_init_attr_ex asked(void)
{
	return (struct ibv_srq_init_attr_ex){
		.attr = { 15, 1, 0 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = pd,
		.cq = ibv_cq_ex_to_cq(cq),
		.tm_cap = { TAGS, CHANGES },
	};
}

static void made(const char *name, struct ibv_srq_init_attr_ex attr)
{
	struct ibv_srq *given;

	errno = 0;
	given = ibv_create_srq_ex(context, &attr);
	SAID("%s: %s %d, %u", name, given ? "given" : "null", given ? 0 : errno, given ? attr.attr.max_wr : 0);
	if (given)
		check("destroy_srq", ibv_destroy_srq(given), 0);
}

#define MADE(name, change)                                                          \
	do {                                                                        \
		struct ibv_srq_init_attr_ex attr = asked();                         \
		change;                                                             \
		made(name, attr);                                                   \
	} while (0)

static void creation(const struct ibv_tm_caps *most)
{
	MADE("as asked", );
	MADE("no queue of completions", attr.cq = NULL);
	MADE("no mask of it", attr.comp_mask &= ~IBV_SRQ_INIT_ATTR_CQ);
	MADE("no mask of tags", attr.comp_mask &= ~IBV_SRQ_INIT_ATTR_TM);
	MADE("no domain", attr.comp_mask &= ~IBV_SRQ_INIT_ATTR_PD);
	MADE("unknown mask", attr.comp_mask |= 1 << 9);
	MADE("unknown type", attr.srq_type = 7);
	MADE("not an extended queue", attr.cq = sends);
	MADE("no tags", attr.tm_cap.max_num_tags = 0);
	MADE("one tag", attr.tm_cap.max_num_tags = 1);
	MADE("more tags than there are", attr.tm_cap.max_num_tags = most->max_num_tags + 1);
	MADE("far more", attr.tm_cap.max_num_tags = UINT32_MAX);
	MADE("one change", attr.tm_cap.max_ops = 1);
	MADE("five changes", attr.tm_cap.max_ops = 5);
	MADE("too many changes", attr.tm_cap.max_ops = 1 << 20);
	MADE("far too many", attr.tm_cap.max_ops = UINT32_MAX);
	MADE("too many receives", attr.attr.max_wr = 1 << 20);
	MADE("too many pieces", attr.attr.max_sge = 1 << 10);
}

static void connect(struct ibv_qp *to_itself, const struct ibv_port_attr *port)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };

	NEED(!ibv_modify_qp(to_itself, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = to_itself->qp_num,
				     .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				     .ah_attr = { .dlid = port->lid, .port_num = 1 } };
	NEED(!ibv_modify_qp(to_itself, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .max_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	NEED(!ibv_modify_qp(to_itself, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY), "RTS");
}

/* A list accepts no changes after an attempt to destroy its queue. */
static void ends(void)
{
	struct change wanted = sync_of(90, 5);
	int went, error;

	SAID("destroy_srq in use: %d", ibv_destroy_srq(srq));
	error = change(&wanted, 1, &went);
	SAID("afterwards: %d, went %d", error, went);
	check("destroy_qp", ibv_destroy_qp(qp), 0);
	check("destroy_srq", ibv_destroy_srq(srq), 0);
	check("destroy_cq", ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	check("destroy_cq", ibv_destroy_cq(sends), 0);
	check("dereg_mr", ibv_dereg_mr(mr), 0);
	check("dealloc_pd", ibv_dealloc_pd(pd), 0);
	check("close_device", ibv_close_device(context), 0);
}

int main(int argc, char **argv)
{
	struct ibv_cq_init_attr_ex of_cq = { .cqe = 200, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct ibv_qp_init_attr of_qp = { .cap = { 4, 0, 1, 0, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr_ex of_srq;
	struct ibv_device **list;
	struct ibv_device_attr_ex device;
	struct ibv_port_attr port;

	by_poll = argc > 1 && !strcmp(argv[1], "poll");
	NEED((list = ibv_get_device_list(NULL)) && *list, "no device");
	NEED(context = ibv_open_device(*list), "ibv_open_device");
	ibv_free_device_list(list);
	NEED(!ibv_query_device_ex(context, NULL, &device), "ibv_query_device_ex");
	SAID("capabilities %u %u %x %u %u", device.tm_caps.max_rndv_hdr_size, device.tm_caps.max_num_tags,
	     device.tm_caps.flags, device.tm_caps.max_ops, device.tm_caps.max_sge);
	NEED(!ibv_query_port(context, 1, &port), "ibv_query_port");
	NEED(pd = ibv_alloc_pd(context), "ibv_alloc_pd");
	NEED(mr = ibv_reg_mr(pd, area, AREA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE), "ibv_reg_mr");
	NEED(cq = ibv_create_cq_ex(context, &of_cq), "ibv_create_cq_ex");
	NEED(sends = ibv_create_cq(context, 20, NULL, NULL, 0), "ibv_create_cq");
	creation(&device.tm_caps);
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
		return checked();
	of_srq = asked();
	NEED(srq = ibv_create_srq_ex(context, &of_srq), "ibv_create_srq_ex");
	of_qp.send_cq = of_qp.recv_cq = sends;
	of_qp.srq = srq;
	NEED(qp = ibv_create_qp(pd, &of_qp), "ibv_create_qp");
	connect(qp, &port);
	matching();
	unexpected();
	in_step(3);
	removals();
	rendezvous();
	refusals();
	ends();
	return checked();
}
