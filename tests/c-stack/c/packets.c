/* Raw packets, flow rules and counters, matchers, work queues, indirection tables and queue pairs over them: valid and invalid
 * calls. Between two contexts, since a context does not receive its own packets. The test runs it on Debian's library
 * and on ours, on devices of one kind. Prints a line per check. */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"

enum { FRAME = 128, WRS = 16, PLACES = 4 };

static const uint8_t MINE[6] = { 2, 0, 0, 0, 0, 9 }, OTHER[6] = { 2, 0, 0, 0, 0, 8 };

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;
};

static struct side open_side(struct ibv_device *device)
{
	struct side side = { .ctx = ibv_open_device(device) };
	struct ibv_cq_init_attr_ex attr = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_FLOW_TAG };

	side.pd = ibv_alloc_pd(side.ctx);
	side.cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(side.ctx, &attr));
	side.memory = aligned_alloc(4096, 1 << 16);
	memset(side.memory, 0, 1 << 16);
	side.mr = ibv_reg_mr(side.pd, side.memory, 1 << 16, IBV_ACCESS_LOCAL_WRITE);
	check("there are objects", side.pd && side.cq && side.mr, 1);
	return side;
}

static struct ibv_qp *raw(struct side *side, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RAW_PACKET,
		.pd = side->pd, .send_ops_flags = ops,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.cap = { .max_send_wr = WRS, .max_recv_wr = WRS, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64 } };

	return ibv_create_qp_ex(side->ctx, &init);
}

static void bring(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	check("to INIT", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	attr.qp_state = IBV_QPS_RTR;
	check("to RTR", ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	check("to RTS", ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

/* Writes UDP in IPv4 from port `port`, and fills the payload. */
static void frame(uint8_t *to, const uint8_t *mac, uint16_t port)
{
	static const uint8_t headers[34] = { 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, FRAME - 14, 0, 0, 0, 0, 64, 17,
					     0, 0, 10, 0, 0, 1, 10, 0, 0, 2 };

	memset(to, port, FRAME);
	memcpy(to, headers, sizeof headers);
	memcpy(to, mac, 6);
	to[34] = port >> 8;
	to[35] = port;
	memcpy(to + 36, "\x10\x20\0\x5e\0\0", 6);
}

static struct ibv_wc completion(struct ibv_cq *cq, int wanted)
{
	struct ibv_wc wc = { 0 };
	int got = 0;

	for (int i = 0; i < (wanted ? 20000 : 200) && got == 0; i++) {
		got = ibv_poll_cq(cq, 1, &wc);
		if (got == 0)
			usleep(100);
	}
	check("completions", got, wanted);
	if (got != wanted)
		exit(1);
	return wc;
}

/* Flags of the next completion, read by the functions of extended queues. */
static unsigned int extended_flags(struct ibv_cq *cq)
{
	struct ibv_cq_ex *ex = (struct ibv_cq_ex *)cq;
	struct ibv_poll_cq_attr attr = { 0 };
	unsigned int flags;
	int got = ENOENT;

	for (int i = 0; i < 20000 && (got = ibv_start_poll(ex, &attr)) == ENOENT; i++)
		usleep(100);
	check("start_poll", got, 0);
	if (got)
		exit(1);
	flags = ibv_wc_read_wc_flags(ex);
	check("status", ex->status, IBV_WC_SUCCESS);
	ibv_end_poll(ex);
	return flags;
}

static void receive(struct side *side, struct ibv_qp *qp, struct ibv_wq *wq, int at)
{
	struct ibv_sge sge = { (uintptr_t)side->memory + 4096 + at * 1024, 1024, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1 }, *bad;

	check("post_recv", qp ? ibv_post_recv(qp, &wr, &bad) : ibv_post_wq_recv(wq, &wr, &bad), 0);
}

static void sent(struct side *from)
{
	struct ibv_wc wc = completion(from->cq, 1);

	check("sent", wc.status, IBV_WC_SUCCESS);
}

/* Posts a frame by ibv_post_send, of two SGEs or inline. */
static int post(struct side *from, struct ibv_qp *qp, unsigned int flags, uint32_t length)
{
	struct ibv_sge sge[2] = { { (uintptr_t)from->memory, 50, from->mr->lkey },
				  { (uintptr_t)from->memory + 50, length - 50, from->mr->lkey } };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = sge, .num_sge = 2, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | flags }, *bad = NULL;
	int result = ibv_post_send(qp, &wr, &bad);

	check("the bad one", bad == (result ? &wr : NULL), 1);
	return result;
}

static void send_frame(struct side *from, struct ibv_qp *qp, const uint8_t *mac, uint16_t port)
{
	frame(from->memory, mac, port);
	check("post_send", post(from, qp, 0, FRAME), 0);
	sent(from);
}

/* Attributes of a rule, and the specifications after them. */
struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[256];
};

static struct rule rule(void)
{
	return (struct rule){ .attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(struct ibv_flow_attr), .port = 1 } };
}

static void add(struct rule *rule, const void *spec, uint16_t size)
{
	memcpy((uint8_t *)&rule->attr + rule->attr.size, spec, size);
	rule->attr.size += size;
	rule->attr.num_of_specs++;
}

static struct rule to(const uint8_t *mac)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof eth };
	struct rule all = rule();

	memcpy(eth.val.dst_mac, mac, 6);
	memset(eth.mask.dst_mac, 0xff, 6);
	add(&all, &eth, sizeof eth);
	return all;
}

static void packets(struct side *from, struct side *side)
{
	struct ibv_qp *out = raw(from, IBV_QP_EX_WITH_SEND), *in = raw(side, 0);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(out);
	struct ibv_sge list[2] = { { (uintptr_t)from->memory, 60, from->mr->lkey },
				   { (uintptr_t)from->memory + 60, FRAME - 60, from->mr->lkey } };
	struct rule mine = to(MINE);
	struct ibv_flow *flow;
	struct ibv_wc wc;

	check("there are queue pairs", out && in && ex, 1);
	NONE("operations that packets lack", raw(from, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE), EOPNOTSUPP);
	bring(out);
	bring(in);
	flow = ibv_create_flow(in, &mine.attr);
	check("create_flow", flow != NULL, 1);
	check("destroy_qp with a rule", ibv_destroy_qp(in), EBUSY);

	for (int i = 0; i < 6; i++)
		receive(side, in, NULL, i);
	send_frame(from, out, MINE, 1);
	wc = completion(side->cq, 1);
	check("received", wc.status, IBV_WC_SUCCESS);
	check("opcode", wc.opcode, IBV_WC_RECV);
	check("bytes", wc.byte_len, FRAME);
	check("its bytes", memcmp(from->memory, side->memory + 4096, FRAME), 0);
	check("flags of a wrong checksum", wc.wc_flags, 0);
	send_frame(from, out, OTHER, 2);
	completion(side->cq, 0);

	/* Inline, and by ibv_wr_*. */
	frame(from->memory, MINE, 3);
	check("post inline", post(from, out, IBV_SEND_INLINE, 60), 0);
	sent(from);
	wc = completion(side->cq, 1);
	check("inline bytes", memcmp(from->memory, side->memory + 4096 + 1024, 60) + wc.byte_len, 60);
	ibv_wr_start(ex);
	ex->wr_id = 8;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 2, list);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, from->memory, 64);
	check("wr_complete", ibv_wr_complete(ex), 0);
	sent(from);
	sent(from);
	wc = completion(side->cq, 1);
	check("listed bytes", memcmp(from->memory, side->memory + 4096 + 2048, FRAME) + wc.byte_len, FRAME);
	wc = completion(side->cq, 1);
	check("inline bytes", memcmp(from->memory, side->memory + 4096 + 3072, 64) + wc.byte_len, 64);

	/* The device fills in the checksums, and the receiver finds them right. */
	frame(from->memory, MINE, 5);
	check("post with checksums", post(from, out, IBV_SEND_IP_CSUM, FRAME), 0);
	sent(from);
	check("flags of right checksums", completion(side->cq, 1).wc_flags, IBV_WC_IP_CSUM_OK);
	check("post with checksums", post(from, out, IBV_SEND_IP_CSUM, FRAME), 0);
	sent(from);
	check("flags of right checksums, extended", extended_flags(side->cq), IBV_WC_IP_CSUM_OK);

	check("too much inline", post(from, out, IBV_SEND_INLINE, FRAME + 2000), ENOMEM);
	check("destroy_flow", ibv_destroy_flow(flow), 0);
	send_frame(from, out, MINE, 4);
	completion(side->cq, 0);
	check("destroy_qp", ibv_destroy_qp(out), 0);
	check("destroy_qp", ibv_destroy_qp(in), 0);
}

static void bad_rules(struct side *side)
{
	struct ibv_qp_init_attr init = { .send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RC,
					 .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *qp = raw(side, 0), *rc = ibv_create_qp(side->pd, &init);
	struct ibv_flow_spec_ipv6 v6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof v6 };
	struct { uint32_t type; uint16_t size; uint8_t filters[32]; } longer = { .type = IBV_FLOW_SPEC_IPV4_EXT, .size = 40 };
	struct ibv_flow_spec_tcp_udp udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof udp };
	struct rule bad = to(MINE), all;

	bring(qp);
	NONE("a rule of a connection", ibv_create_flow(rc, &bad.attr), EINVAL);
	bad.attr.port = 2;
	NONE("another port", ibv_create_flow(qp, &bad.attr), EINVAL);
	bad.attr.port = 1;
	bad.attr.flags = 1 << 5;
	NONE("an unknown flag", ibv_create_flow(qp, &bad.attr), EINVAL);
	bad.attr.flags = 0;
	bad.attr.priority = 99;
	NONE("no such priority", ibv_create_flow(qp, &bad.attr), ENOMEM);
	bad = rule();
	v6.type = 0x33;
	add(&bad, &v6, sizeof v6);
	NONE("an unknown specification", ibv_create_flow(qp, &bad.attr), EINVAL);
	bad = rule();
	v6.type = IBV_FLOW_SPEC_IPV6;
	v6.size = 40;
	add(&bad, &v6, 40);
	NONE("a short specification", ibv_create_flow(qp, &bad.attr), EINVAL);
	bad = rule();
	longer.filters[31] = 1;
	add(&bad, &longer, 40);
	NONE("a mask that is longer", ibv_create_flow(qp, &bad.attr), EOPNOTSUPP);
	longer.filters[31] = 0;
	longer.filters[16 + 8] = 0xff;
	longer.filters[8] = 17;
	all = rule();
	add(&all, &longer, 40);
	udp.val.dst_port = htobe16(0x1020);
	udp.mask.dst_port = 0xffff;
	add(&all, &udp, sizeof udp);
	struct ibv_flow *flow = ibv_create_flow(qp, &all.attr);

	check("one that is longer with zeros", flow != NULL, 1);
	check("destroy_flow", flow ? ibv_destroy_flow(flow) : -1, 0);
	check("destroy_qp", ibv_destroy_qp(qp), 0);
	check("destroy_qp", ibv_destroy_qp(rc), 0);
}

static void counting(struct side *from, struct side *side)
{
	struct ibv_counters_init_attr init = { .comp_mask = 1 };
	struct ibv_counter_attach_attr point = { .counter_desc = 7 };
	struct ibv_counters *counters, *others, *empty;
	struct ibv_flow_spec_counter_action count = { .type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof count };
	struct ibv_qp *out = raw(from, 0), *in = raw(side, 0);
	struct rule mine = to(MINE), twice;
	struct ibv_flow *flow;
	uint64_t values[2] = { 0 };

	bring(out);
	bring(in);
	NONE("counters with a mask", ibv_create_counters(side->ctx, &init), EOPNOTSUPP);
	init.comp_mask = 0;
	counters = ibv_create_counters(side->ctx, &init);
	others = ibv_create_counters(side->ctx, &init);
	empty = ibv_create_counters(side->ctx, &init);
	check("there are counters", counters && others && empty, 1);
	check("no such counter", ibv_attach_counters_point_flow(counters, &point, NULL), ENOTSUP);
	point.counter_desc = IBV_COUNTER_BYTES;
	point.comp_mask = 4;
	check("a point with a mask", ibv_attach_counters_point_flow(counters, &point, NULL), EOPNOTSUPP);
	point.comp_mask = 0;
	/* After this error the counters are only destroyed: C's provider keeps their lock. */
	count.counters = empty;
	twice = mine;
	add(&twice, &count, sizeof count);
	NONE("a rule with counters of nothing", ibv_create_flow(in, &twice.attr), EINVAL);
	check("destroy_counters of nothing", ibv_destroy_counters(empty), 0);
	count.counters = counters;
	add(&mine, &count, sizeof count);
	/* The byte counter is the first. */
	check("bytes", ibv_attach_counters_point_flow(counters, &point, NULL), 0);
	point = (struct ibv_counter_attach_attr){ .counter_desc = IBV_COUNTER_PACKETS, .index = 1 };
	check("packets", ibv_attach_counters_point_flow(counters, &point, NULL), 0);
	check("read of no rule", ibv_read_counters(counters, values, 2, 0), EINVAL);
	twice = mine;
	count.counters = others;
	add(&twice, &count, sizeof count);
	NONE("two counters", ibv_create_flow(in, &twice.attr), EINVAL);

	flow = ibv_create_flow(in, &mine.attr);
	check("create_flow", flow != NULL, 1);
	check("a point behind a rule", ibv_attach_counters_point_flow(counters, &point, NULL), EBUSY);
	check("a point of a rule", ibv_attach_counters_point_flow(others, &point, flow), ENOTSUP);
	check("destroy_counters of a rule", ibv_destroy_counters(counters), EBUSY);
	for (int i = 0; i < 3; i++) {
		receive(side, in, NULL, i);
		send_frame(from, out, MINE, i);
		completion(side->cq, 1);
	}
	check("read", ibv_read_counters(counters, values, 2, 0), 0);
	check("bytes", values[0], 3 * FRAME);
	check("packets", values[1], 3);
	check("destroy_flow", ibv_destroy_flow(flow), 0);
	check("destroy_counters", ibv_destroy_counters(counters), 0);
	check("destroy_counters", ibv_destroy_counters(others), 0);
	check("destroy_qp", ibv_destroy_qp(out), 0);
	check("destroy_qp", ibv_destroy_qp(in), 0);
}

/* Match fields of the device, by PRM: the destination's address is at byte 8 of the outer headers. */
struct match {
	size_t size;
	uint8_t bytes[64];
};

static struct match destination(const uint8_t *mac)
{
	struct match match = { .size = sizeof match.bytes };

	memcpy(match.bytes + 8, mac, 6);
	return match;
}

static struct mlx5dv_flow_matcher *matcher(struct side *side, uint16_t priority, uint8_t parts, uint32_t flags)
{
	struct match whole = destination((const uint8_t[]){ 0xff, 0xff, 0xff, 0xff, 0xff, 0xff });
	struct mlx5dv_flow_matcher_attr attr = { .type = IBV_FLOW_ATTR_NORMAL, .flags = flags, .priority = priority,
		.match_criteria_enable = parts, .match_mask = (void *)&whole };

	return mlx5dv_create_flow_matcher(side->ctx, &attr);
}

static struct ibv_flow *matched(struct mlx5dv_flow_matcher *matcher, struct match value, enum mlx5dv_flow_action_type type,
				struct ibv_qp *qp, uint32_t tag)
{
	struct mlx5dv_flow_action_attr actions[2] = { { .type = type, .qp = qp },
						      { .type = MLX5DV_FLOW_ACTION_TAG, .tag_value = tag } };

	return mlx5dv_create_flow(matcher, (void *)&value, tag ? 2 : 1, actions);
}

/* Sends a packet to MINE; returns the tag of its completion, or -1 without one. */
static int64_t tag_of(struct side *from, struct ibv_qp *out, struct side *side, int comes)
{
	struct ibv_cq_ex *ex = (struct ibv_cq_ex *)side->cq;
	struct ibv_poll_cq_attr attr = { 0 };
	int64_t tag = -1;

	send_frame(from, out, MINE, 9);
	for (int i = 0; i < (comes ? 20000 : 200) && tag < 0; i++)
		if (ibv_start_poll(ex, &attr)) {
			usleep(100);
		} else {
			check("status", ex->status, IBV_WC_SUCCESS);
			tag = ibv_wc_read_flow_tag(ex);
			ibv_end_poll(ex);
		}
	return tag;
}

/* Rules of matchers are looked at in the order of their priorities. */
static void matchers(struct side *from, struct side *side)
{
	struct ibv_qp *out = raw(from, 0), *in = raw(side, 0);
	struct mlx5dv_flow_matcher *second = matcher(side, 1, 1, 0), *first = matcher(side, 0, 1, 0);
	struct mlx5dv_flow_matcher *beyond = matcher(side, 16, 1, 0), *every = matcher(side, 2, 0, 0);
	struct rule rest = rule();
	struct match more = destination(MINE);
	struct ibv_flow *flow, *before;

	check("there are matchers", first && second && beyond && every, 1);
	bring(out);
	bring(in);
	for (int i = 0; i < 8; i++)
		receive(side, in, NULL, i);
	NONE("a rule of no such priority", matched(beyond, destination(MINE), MLX5DV_FLOW_ACTION_DEST_IBV_QP, in, 0), ENOMEM);
	NONE("a tag of 25 bits", matched(second, destination(MINE), MLX5DV_FLOW_ACTION_DEST_IBV_QP, in, 1 << 24), EINVAL);
	more.bytes[0] = 1;
	NONE("a value beyond the mask", matched(second, more, MLX5DV_FLOW_ACTION_DEST_IBV_QP, in, 0), EINVAL);
	flow = matched(second, destination(MINE), MLX5DV_FLOW_ACTION_DEST_IBV_QP, in, 0x1234);
	check("create_flow", flow != NULL, 1);
	NONE("another action", matched(second, destination(MINE), MLX5DV_FLOW_ACTION_DROP, NULL, 0), EEXIST);
	check("destroy_matcher of a rule", mlx5dv_destroy_flow_matcher(second), EBUSY);
	check("destroy_qp of a rule", ibv_destroy_qp(in), EBUSY);
	check("tag", tag_of(from, out, side, 1), 0x1234);
	before = matched(first, destination(OTHER), MLX5DV_FLOW_ACTION_DROP, NULL, 0);
	check("a packet that a drop doesn't match", tag_of(from, out, side, 1), 0x1234);
	check("destroy_flow", ibv_destroy_flow(before), 0);
	before = matched(first, destination(MINE), MLX5DV_FLOW_ACTION_DROP, NULL, 0);
	check("a dropped packet", tag_of(from, out, side, 0), -1);
	check("destroy_flow", ibv_destroy_flow(before), 0);

	/* A miss goes past the other priorities, to rules for the rest. */
	before = matched(first, destination(MINE), MLX5DV_FLOW_ACTION_DEFAULT_MISS, NULL, 0);
	check("a missed packet", tag_of(from, out, side, 0), -1);
	rest.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	check("destroy_flow", ibv_destroy_flow(flow), 0);
	flow = ibv_create_flow(in, &rest.attr);
	check("a packet of the rest", tag_of(from, out, side, 1), 0);
	check("destroy_flow", ibv_destroy_flow(flow), 0);
	check("destroy_flow", ibv_destroy_flow(before), 0);

	/* Without enabled parts every packet matches. */
	flow = matched(every, destination(MINE), MLX5DV_FLOW_ACTION_DEST_IBV_QP, in, 5);
	check("tag", tag_of(from, out, side, 1), 5);
	check("destroy_flow", ibv_destroy_flow(flow), 0);
	check("destroy_matcher", mlx5dv_destroy_flow_matcher(first) | mlx5dv_destroy_flow_matcher(second)
		| mlx5dv_destroy_flow_matcher(beyond) | mlx5dv_destroy_flow_matcher(every), 0);
	check("destroy_qp", ibv_destroy_qp(out), 0);
	check("destroy_qp", ibv_destroy_qp(in), 0);
}

static struct ibv_wq *work_queue(struct side *side)
{
	struct ibv_wq_init_attr init = { .wq_context = side, .wq_type = IBV_WQT_RQ, .max_wr = WRS, .max_sge = 1,
					 .pd = side->pd, .cq = side->cq };

	return ibv_create_wq(side->ctx, &init);
}

static int state(struct ibv_wq *wq, uint32_t to)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = to };

	return ibv_modify_wq(wq, &attr);
}

static void bad_queues(struct side *side, struct ibv_wq *wq)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_sge = 1, .pd = side->pd, .cq = side->cq };
	struct ibv_wq_attr attr = { .attr_mask = 8 };

	NONE("a work queue of none", ibv_create_wq(side->ctx, &init), EINVAL);
	init.max_wr = 1u << 30;
	NONE("one of too many", ibv_create_wq(side->ctx, &init), EINVAL);
	init.max_wr = WRS;
	init.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	init.create_flags = 1 << 4;
	NONE("one of an unknown flag", ibv_create_wq(side->ctx, &init), EOPNOTSUPP);

	check("an unknown change", ibv_modify_wq(wq, &attr), EINVAL);
	attr = (struct ibv_wq_attr){ .attr_mask = IBV_WQ_ATTR_FLAGS, .flags_mask = 1 << 4 };
	check("a change of an unknown flag", ibv_modify_wq(wq, &attr), EOPNOTSUPP);
	attr = (struct ibv_wq_attr){ .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, .wq_state = IBV_WQS_RDY,
				     .curr_wq_state = IBV_WQS_ERR };
	check("from a state that it isn't in", ibv_modify_wq(wq, &attr), -EINVAL);
	check("to no state", state(wq, 7), EINVAL);
	check("its state", wq->state, IBV_WQS_RESET);
	check("from RESET to ERR", state(wq, IBV_WQS_ERR), EINVAL);
}

/* States of a work queue: ERR flushes outstanding receives, RESET drops them. */
static void life(struct side *side, struct ibv_wq *wq)
{
	check("to RDY", state(wq, IBV_WQS_RDY), 0);
	check("its state", wq->state, IBV_WQS_RDY);
	receive(side, NULL, wq, 0);
	check("to ERR", state(wq, IBV_WQS_ERR), 0);
	check("flushed", completion(side->cq, 1).status, IBV_WC_WR_FLUSH_ERR);
	check("to RESET", state(wq, IBV_WQS_RESET), 0);
	check("to RDY", state(wq, IBV_WQS_RDY), 0);
	receive(side, NULL, wq, 0);
	check("to RESET", state(wq, IBV_WQS_RESET), 0);
	completion(side->cq, 0);
	check("to RDY", state(wq, IBV_WQS_RDY), 0);
}

static void *to_reset(void *wq)
{
	return (void *)(intptr_t)state(wq, IBV_WQS_RESET);
}

/* Another thread moves a work queue to RESET while this thread reads a completion, and posts. */
static void reset_meanwhile(struct side *side)
{
	struct ibv_cq_init_attr_ex asked = { .cqe = WRS };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(side->ctx, &asked);
	struct side with = *side;
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_sge sge = { (uintptr_t)side->memory, 64, side->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wq *wq;
	pthread_t thread;
	void *result;
	int got = ENOENT;

	with.cq = ibv_cq_ex_to_cq(cq);
	wq = work_queue(&with);
	check("to RDY", state(wq, IBV_WQS_RDY), 0);
	receive(&with, NULL, wq, 0);
	check("to ERR", state(wq, IBV_WQS_ERR), 0);
	for (int i = 0; i < 20000 && (got = ibv_start_poll(cq, &attr)); i++)
		usleep(100);
	check("one is looked at", got, 0);
	pthread_create(&thread, NULL, to_reset, wq);
	usleep(100000);
	ibv_post_wq_recv(wq, &wr, &bad);
	check("a receive is posted meanwhile, or refused", 0, 0);
	ibv_end_poll(cq);
	pthread_join(thread, &result);
	check("to RESET", (intptr_t)result, 0);
	check("to RDY", state(wq, IBV_WQS_RDY), 0);
	receive(&with, NULL, wq, 0);
	check("destroy_wq", ibv_destroy_wq(wq), 0);
	check("destroy_cq", ibv_destroy_cq(with.cq), 0);
}

static struct ibv_qp *spread(struct side *side, struct ibv_rwq_ind_table *table, uint8_t function, uint8_t key_len,
			     uint64_t fields, struct ibv_cq *recv_cq, uint32_t besides)
{
	static uint8_t key[40];
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RAW_PACKET, .pd = side->pd, .recv_cq = recv_cq,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH | besides,
		.rwq_ind_tbl = table, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.rx_hash_conf = { .rx_hash_function = function, .rx_hash_key_len = key_len, .rx_hash_key = key,
				  .rx_hash_fields_mask = fields } };

	for (int i = 0; i < 40; i++)
		key[i] = i * 89 + 44;
	return ibv_create_qp_ex(side->ctx, &init);
}

static void spreading(struct side *from, struct side *side)
{
	uint64_t udp = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
	struct ibv_wq *queues[PLACES], *one = work_queue(side);
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = 2, .ind_tbl = queues };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_init_attr asked;
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *out = raw(from, 0), *in;
	struct rule mine = to(MINE);
	struct ibv_flow *flow;
	int used = 0, seen[PLACES] = { 0 };

	check("there is a work queue", one != NULL, 1);
	check("its context", one->wq_context == side, 1);
	bad_queues(side, one);
	life(side, one);
	reset_meanwhile(side);
	check("destroy_wq", ibv_destroy_wq(one), 0);

	for (int i = 0; i < PLACES; i++) {
		queues[i] = work_queue(side);
		check("to RDY", state(queues[i], IBV_WQS_RDY), 0);
		for (int j = 0; j < 12; j++)
			receive(side, NULL, queues[i], i * 12 + j);
	}
	table = ibv_create_rwq_ind_table(side->ctx, &init);
	check("there is a table", table != NULL, 1);
	check("destroy_wq of a table", ibv_destroy_wq(queues[0]), EBUSY);
	NONE("no such function", spread(side, table, 2, 40, udp, NULL, 0), EOPNOTSUPP);
	NONE("a short key", spread(side, table, IBV_RX_HASH_FUNC_TOEPLITZ, 39, udp, NULL, 0), EINVAL);
	NONE("a long key", spread(side, table, IBV_RX_HASH_FUNC_TOEPLITZ, 200, udp, NULL, 0), EINVAL);
	NONE("no fields", spread(side, table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, 0, NULL, 0), EINVAL);
	NONE("both kinds of IP", spread(side, table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, udp | IBV_RX_HASH_SRC_IPV6, NULL, 0), EINVAL);
	NONE("a tunnel's fields", spread(side, table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, udp | IBV_RX_HASH_INNER, NULL, 0), EOPNOTSUPP);
	NONE("a queue of its own", spread(side, table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, udp, side->cq, 0), EINVAL);
	NONE("sends", spread(side, table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, udp, NULL, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS), EINVAL);
	in = spread(side, table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, udp, NULL, 0);
	check("there is a queue pair", in != NULL, 1);
	check("destroy of its table", ibv_destroy_rwq_ind_table(table), EBUSY);
	check("modify_qp", ibv_modify_qp(in, &attr, IBV_QP_STATE | IBV_QP_PORT), EOPNOTSUPP);
	check("query_qp", ibv_query_qp(in, &attr, IBV_QP_STATE, &asked), EOPNOTSUPP);

	bring(out);
	flow = ibv_create_flow(in, &mine.attr);
	check("create_flow", flow != NULL, 1);
	for (int port = 0; port < 12; port++) {
		struct ibv_wc wc;

		send_frame(from, out, MINE, 4000 + port * 77);
		wc = completion(side->cq, 1);
		check("received", wc.status, IBV_WC_SUCCESS);
		check("its bytes", memcmp(from->memory, side->memory + 4096 + wc.wr_id * 1024, FRAME), 0);
		seen[wc.wr_id / 12]++;
	}
	for (int i = 0; i < PLACES; i++)
		used += seen[i] != 0;
	check("packets went to several queues", used > 1, 1);
	check("destroy_qp of a rule", ibv_destroy_qp(in), EBUSY);
	check("destroy_flow", ibv_destroy_flow(flow), 0);
	check("destroy_qp", ibv_destroy_qp(in), 0);
	check("destroy_rwq_ind_table", ibv_destroy_rwq_ind_table(table), 0);
	for (int i = 0; i < PLACES; i++)
		check("destroy_wq", ibv_destroy_wq(queues[i]), 0);
	check("destroy_qp", ibv_destroy_qp(out), 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct side from = open_side(list[0]), side = open_side(list[0]);

	packets(&from, &side);
	bad_rules(&side);
	counting(&from, &side);
	matchers(&from, &side);
	spreading(&from, &side);
	for (struct side *each = &from; each; each = each == &from ? &side : NULL) {
		check("dereg_mr", ibv_dereg_mr(each->mr), 0);
		check("destroy_cq", ibv_destroy_cq(each->cq), 0);
		check("dealloc_pd", ibv_dealloc_pd(each->pd), 0);
		check("close_device", ibv_close_device(each->ctx), 0);
		free(each->memory);
	}
	ibv_free_device_list(list);
	return checked();
}
