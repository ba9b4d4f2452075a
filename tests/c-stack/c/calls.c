/* Calls of libibverbs, most of them invalid. Prints a line per call: NAME RESULT ERRNO. The test compares the lines of
 * Debian's library with ours, on devices of one kind. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char memory[1 << 16] __attribute__((aligned(4096)));

/* errno is printed if the call failed. */
static void number(const char *name, int result)
{
	int failed = result < 0;
	printf("%s %d %d\n", name, result, failed ? errno : 0);
}

/* Prints whether a pointer was returned. */
static void *object(const char *name, void *object)
{
	printf("%s %s %d\n", name, object ? "given" : "null", object ? 0 : errno);
	return object;
}

static void domains(void)
{
	struct ibv_pd *other = object("alloc_pd", ibv_alloc_pd(ctx));
	struct ibv_mr *mr = object("reg_mr", ibv_reg_mr(other, memory, 4096, IBV_ACCESS_LOCAL_WRITE));
	number("dealloc_pd in use", ibv_dealloc_pd(other));
	object("reg_mr of nothing", ibv_reg_mr(other, memory, 0, 0));
	object("reg_mr unmapped", ibv_reg_mr(other, (void *)4096, 4096, 0));
	object("reg_mr over the end", ibv_reg_mr(other, memory, (size_t)1 << 60, 0));
	object("reg_mr unknown access", ibv_reg_mr(other, memory, 4096, 1 << 15));
	object("reg_mr remote without local", ibv_reg_mr(other, memory, 4096, IBV_ACCESS_REMOTE_WRITE));
	number("rereg_mr of nothing", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0));
	number("rereg_mr unknown flag", ibv_rereg_mr(mr, 64, NULL, NULL, 0, 0));
	number("rereg_mr access unasked", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 1));
	number("rereg_mr bad access", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE));
	number("rereg_mr domain", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	number("dealloc_pd", ibv_dealloc_pd(other));
	number("dereg_mr", ibv_dereg_mr(mr));
}

/* Number of live allocations of the program, by kind of memory. */
static int given[6];
static void *parent_context;

static void *give(struct ibv_pd *domain, void *context, size_t size, size_t alignment, uint64_t what)
{
	void *memory = NULL;

	if (!domain || context != parent_context)
		printf("another domain's memory\n");
	if ((what & 7) == 4)
		return IBV_ALLOCATOR_USE_DEFAULT;
	if (posix_memalign(&memory, alignment, size))
		return NULL;
	memset(memory, 0xee, size);
	given[what & 7]++;
	return memory;
}

static void take_back(struct ibv_pd *domain, void *context, void *memory, uint64_t what)
{
	if (!domain || context != parent_context)
		printf("another domain's memory\n");
	given[what & 7]--;
	free(memory);
}

static void *give_none(struct ibv_pd *domain, void *context, size_t size, size_t alignment, uint64_t what)
{
	return domain || context || size || alignment || what ? NULL : IBV_ALLOCATOR_USE_DEFAULT;
}

static void say_given(const char *when)
{
	printf("memory %s: %d qp, %d record, %d srq, %d cq\n", when, given[1], given[3], given[4], given[5]);
}

static void parent_domains(void)
{
	struct ibv_td_init_attr of_thread = { .comp_mask = 1 };
	struct ibv_parent_domain_init_attr of = { .comp_mask = 1 << 10 };
	struct ibv_cq_init_attr_ex of_cq = { .cqe = 10, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_srq_init_attr of_srq = { .attr = { 10, 1, 0 } };
	struct ibv_qp_init_attr of_qp = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_pd *below = ibv_alloc_pd(ctx), *parent, *plain, *none;
	struct ibv_td *thread;
	struct ibv_cq *queue;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	object("alloc_td unknown", ibv_alloc_td(ctx, &of_thread));
	of_thread.comp_mask = 0;
	thread = object("alloc_td", ibv_alloc_td(ctx, &of_thread));
	object("alloc_parent_domain of nothing", ibv_alloc_parent_domain(ctx, &of));
	of.pd = below;
	object("alloc_parent_domain unknown", ibv_alloc_parent_domain(ctx, &of));
	of.comp_mask = 0;
	plain = object("alloc_parent_domain plain", ibv_alloc_parent_domain(ctx, &of));
	parent_context = given;
	of = (struct ibv_parent_domain_init_attr){ .pd = below, .td = thread, .alloc = give, .free = take_back,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.pd_context = parent_context };
	parent = object("alloc_parent_domain", ibv_alloc_parent_domain(ctx, &of));
	printf("the same handle: %d %d\n", parent->handle == below->handle, plain->handle == below->handle);
	number("dealloc_td in use", ibv_dealloc_td(thread));
	number("dealloc_pd below", ibv_dealloc_pd(below));
	of_cq.parent_domain = below;
	object("create_cq_ex in a plain domain", ibv_create_cq_ex(ctx, &of_cq));
	of_cq.parent_domain = parent;
	queue = ibv_cq_ex_to_cq(object("create_cq_ex", ibv_create_cq_ex(ctx, &of_cq)));
	say_given("of a cq");
	number("resize_cq", ibv_resize_cq(queue, 100));
	say_given("of another size");
	srq = object("create_srq", ibv_create_srq(parent, &of_srq));
	say_given("of an srq");
	of_qp.send_cq = of_qp.recv_cq = queue;
	of_qp.srq = srq;
	qp = object("create_qp", ibv_create_qp(parent, &of_qp));
	say_given("of a qp");
	mr = object("reg_mr", ibv_reg_mr(parent, memory, 4096, 0));
	printf("its domain: %d %d\n", qp->pd == parent, mr->pd == parent);
	number("dealloc parent in use", ibv_dealloc_pd(parent));
	number("dereg_mr", ibv_dereg_mr(mr));
	number("destroy_qp", ibv_destroy_qp(qp));
	number("destroy_srq", ibv_destroy_srq(srq));
	number("dealloc parent of a cq", ibv_dealloc_pd(parent));
	number("destroy_cq", ibv_destroy_cq(queue));
	say_given("in the end");
	of.alloc = give_none;
	none = object("alloc_parent_domain", ibv_alloc_parent_domain(ctx, &of));
	of_cq.parent_domain = none;
	printf("create_cq_ex of no memory: %d\n", !!ibv_create_cq_ex(ctx, &of_cq));
	number("dealloc parent", ibv_dealloc_pd(none));
	number("dealloc parent", ibv_dealloc_pd(parent));
	number("dealloc parent", ibv_dealloc_pd(plain));
	number("dealloc_td", ibv_dealloc_td(thread));
	number("dealloc_pd", ibv_dealloc_pd(below));
}

static void queues(void)
{
	struct ibv_comp_channel *channel = object("create_comp_channel", ibv_create_comp_channel(ctx));
	struct ibv_cq *other = object("create_cq", ibv_create_cq(ctx, 10, NULL, channel, 0)), *found;
	struct ibv_cq_init_attr_ex ex = { .cqe = 10, .wc_flags = 1 << 20 };
	void *context;

	printf("cqe %d\n", other->cqe);
	object("create_cq none", ibv_create_cq(ctx, 0, NULL, NULL, 0));
	object("create_cq negative", ibv_create_cq(ctx, -1, NULL, NULL, 0));
	object("create_cq huge", ibv_create_cq(ctx, 1 << 30, NULL, NULL, 0));
	object("create_cq vector", ibv_create_cq(ctx, 10, NULL, NULL, 4000));
	object("create_cq_ex flags", ibv_create_cq_ex(ctx, &ex));
	ex.wc_flags = 0;
	ex.cqe = 0;
	object("create_cq_ex none", ibv_create_cq_ex(ctx, &ex));
	number("destroy_comp_channel in use", ibv_destroy_comp_channel(channel));
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	number("get_cq_event", ibv_get_cq_event(channel, &found, &context));
	number("req_notify_cq", ibv_req_notify_cq(other, 0));
	number("req_notify_cq of none", ibv_req_notify_cq(cq, 0));
	number("poll_cq", ibv_poll_cq(other, 0, NULL));
	number("destroy_cq", ibv_destroy_cq(other));
	number("destroy_comp_channel", ibv_destroy_comp_channel(channel));
}

static void ports(void)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	__be16 pkey;

	number("query_port 0", ibv_query_port(ctx, 0, &port));
	number("query_port 9", ibv_query_port(ctx, 9, &port));
	number("query_port", ibv_query_port(ctx, 1, &port));
	printf("port %d %d %d %d %d %d %d\n", port.state, port.active_mtu, port.gid_tbl_len, port.lid,
	       port.link_layer, port.flags, port.active_speed);
	number("query_gid port", ibv_query_gid(ctx, 7, 0, &gid));
	number("query_gid index", ibv_query_gid(ctx, 1, 100000, &gid));
	number("query_gid empty", ibv_query_gid(ctx, 1, port.gid_tbl_len - 1, &gid));
	number("query_gid_ex empty", ibv_query_gid_ex(ctx, 1, port.gid_tbl_len - 1, &entry, 0));
	number("query_gid_ex flags", ibv_query_gid_ex(ctx, 1, 0, &entry, 8));
	number("query_gid_ex", ibv_query_gid_ex(ctx, 1, 0, &entry, 0));
	printf("gid %u %u %u\n", entry.gid_index, entry.port_num, entry.gid_type);
	number("query_gid_table of one", ibv_query_gid_table(ctx, &entry, 1, 0) > 0);
	number("query_pkey", ibv_query_pkey(ctx, 1, 0, &pkey));
	number("query_pkey index", ibv_query_pkey(ctx, 1, 1000, &pkey));
	number("get_pkey_index", ibv_get_pkey_index(ctx, 1, pkey));
	number("get_pkey_index of none", ibv_get_pkey_index(ctx, 1, htobe16(0x1234)));
}

static void handles(void)
{
	struct ibv_ah_attr attr = { .port_num = 1 };
	struct ibv_ah *ah;

	ah = object("create_ah without a route", ibv_create_ah(pd, &attr));
	if (ah)
		ibv_destroy_ah(ah);
	attr.port_num = 9;
	object("create_ah port", ibv_create_ah(pd, &attr));
	attr.is_global = 1;
	object("create_ah port, global", ibv_create_ah(pd, &attr));
	attr.port_num = 1;
	attr.grh.sgid_index = 200;
	object("create_ah sgid", ibv_create_ah(pd, &attr));
}

static void shared(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 2 } };
	struct ibv_srq *srq = object("create_srq", ibv_create_srq(pd, &init)), *other;
	struct ibv_qp_init_attr qp_init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	struct ibv_qp *qp = object("create_qp on it", ibv_create_qp(pd, &qp_init));
	struct ibv_srq_attr attr = { .srq_limit = 10000 };
	struct ibv_sge list[8] = { { 0 } };
	struct ibv_recv_wr wr = { .sg_list = list, .num_sge = 8 }, *bad = NULL;

	printf("srq %u %u, qp %u %u\n", init.attr.max_wr >= 8, init.attr.max_sge >= 2,
	       qp_init.cap.max_recv_wr, qp_init.cap.max_recv_sge);
	init.attr.max_wr = 1 << 24;
	other = object("create_srq huge", ibv_create_srq(pd, &init));
	init.attr.max_wr = 8;
	init.attr.max_sge = 1000;
	other = object("create_srq long lists", ibv_create_srq(pd, &init));
	(void)other;
	number("destroy_srq in use", ibv_destroy_srq(srq));
	number("modify_srq limit", ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	attr.max_wr = 100;
	number("modify_srq size", ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	number("query_srq", ibv_query_srq(srq, &attr));
	number("post_srq_recv list", ibv_post_srq_recv(srq, &wr, &bad));
	printf("bad %d\n", bad == &wr);
	number("destroy_qp", ibv_destroy_qp(qp));
	number("destroy_srq", ibv_destroy_srq(srq));
}

static struct ibv_qp *pair(int type);

/* Windows, device memory, paged memory and null regions. */
static void windows_and_memory(void)
{
	struct ibv_qp *qp = pair(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND), *other;
	struct ibv_mw *one = object("alloc_mw 1", ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	struct ibv_mw *two = object("alloc_mw 2", ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	struct ibv_mw_bind bind = { .bind_info = { .mr = mr, .addr = (uintptr_t)memory, .length = 64,
						   .mw_access_flags = IBV_ACCESS_REMOTE_READ } };
	struct ibv_pd *domain = ibv_alloc_pd(ctx);
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey };
	char bytes[64] = "device memory", back[64] = "";
	struct ibv_dm *dm;

	object("alloc_mw 3", ibv_alloc_mw(pd, 3));
	number("bind_mw of type 2", ibv_bind_mw(qp, two, &bind));
	bind.bind_info.mw_access_flags = IBV_ACCESS_ZERO_BASED;
	number("bind_mw from zero", ibv_bind_mw(qp, one, &bind));
	number("dealloc_mw", ibv_dealloc_mw(one));
	number("dealloc_mw", ibv_dealloc_mw(two));

	attr.comp_mask = 1;
	object("alloc_dm more", ibv_alloc_dm(ctx, &attr));
	attr.comp_mask = 0;
	attr.length = 0;
	object("alloc_dm none", ibv_alloc_dm(ctx, &attr));
	attr.length = (size_t)1 << 40;
	object("alloc_dm much", ibv_alloc_dm(ctx, &attr));
	attr.length = 4096;
	dm = object("alloc_dm", ibv_alloc_dm(ctx, &attr));
	if (dm) {
		number("memcpy_to_dm", ibv_memcpy_to_dm(dm, 128, bytes, sizeof(bytes)));
		number("memcpy_from_dm", ibv_memcpy_from_dm(back, dm, 128, sizeof(back)));
		number("the same", memcmp(bytes, back, sizeof(bytes)));
		number("memcpy_to_dm over the end", ibv_memcpy_to_dm(dm, 4064, bytes, sizeof(bytes)));
		number("memcpy_to_dm no words", ibv_memcpy_to_dm(dm, 2, bytes, 4));
		number("memcpy_from_dm no words", ibv_memcpy_from_dm(back, dm, 0, 3));
		number("memcpy_from_dm none", ibv_memcpy_from_dm(NULL, dm, 0, 0));
		object("reg_dm_mr access", ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED));
		object("reg_dm_mr over the end", ibv_reg_dm_mr(pd, dm, 4000, 200, IBV_ACCESS_ZERO_BASED));
		other = object("reg_dm_mr", ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE));
		number("free_dm in use", ibv_free_dm(dm));
		number("dereg_mr", ibv_dereg_mr(other));
		number("free_dm", ibv_free_dm(dm));
	}
	object("reg_dmabuf_mr of no file", ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 1000, IBV_ACCESS_LOCAL_WRITE));
	object("reg_dmabuf_mr of another", ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE));
	other = object("alloc_null_mr", ibv_alloc_null_mr(pd));
	if (other) {
		printf("null %d %d\n", other->length == SIZE_MAX, other->rkey);
		number("dereg_mr", ibv_dereg_mr(other));
	}
	number("advise_mr of what is pinned", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	number("advise_mr", ibv_advise_mr(pd, 77, 0, &sge, 1));
	number("advise_mr flags", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 64, &sge, 1));
	sge.lkey = 0x123456;
	number("advise_mr of nobody's", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 1, &sge, 1));
	other = object("reg_mr_iova", ibv_reg_mr_iova(pd, memory, 4096, 0x100000, 0));
	number("dereg_mr", ibv_dereg_mr(other));
	number("dealloc_pd", ibv_dealloc_pd(domain));
	number("dereg_mr", ibv_dereg_mr(mr));
	number("destroy_qp", ibv_destroy_qp(qp));
}

static void sizes(void)
{
	struct ibv_cq *other = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 3, 10 } };
	struct ibv_qp_init_attr init = { .send_cq = other, .recv_cq = other, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 32 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_ece ece = { .vendor_id = 0xffff, .options = 7, .comp_mask = 7 };

	printf("lists %u %u\n", init.cap.max_send_sge, init.cap.max_recv_sge);
	number("modify_cq", ibv_modify_cq(other, &attr));
	attr.attr_mask = 2;
	number("modify_cq mask", ibv_modify_cq(other, &attr));
	attr.attr_mask = IBV_CQ_ATTR_MODERATE;
	attr.moderate.cq_period = 0xffff;
	number("modify_cq period", ibv_modify_cq(other, &attr));
	number("resize_cq", ibv_resize_cq(other, 100));
	printf("cqe %d\n", other->cqe);
	number("resize_cq the same", ibv_resize_cq(other, 100));
	number("resize_cq negative", ibv_resize_cq(other, -1));
	number("resize_cq huge", ibv_resize_cq(other, 1 << 30));
	printf("cqe %d\n", other->cqe);
	number("query_ece", ibv_query_ece(qp, &ece));
	printf("ece %x %u %u\n", ece.vendor_id, ece.options, ece.comp_mask);
	ece.comp_mask = 1;
	number("set_ece mask", ibv_set_ece(qp, &ece));
	ece.comp_mask = 0;
	number("set_ece", ibv_set_ece(qp, &ece));
	ece.vendor_id = 1;
	number("set_ece of another", ibv_set_ece(qp, &ece));
	number("destroy_qp", ibv_destroy_qp(qp));
	number("destroy_cq", ibv_destroy_cq(other));
}

static struct ibv_qp *pair(int type)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 32 } };

	return ibv_create_qp(pd, &init);
}

static void creation(void)
{
	struct ibv_qp_init_attr good = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } }, init;

#define TRY(name, change) init = good; change; object(name, ibv_create_qp(pd, &init));
	TRY("create_qp sends", init.cap.max_send_wr = 1 << 24)
	TRY("create_qp receives", init.cap.max_recv_wr = 1 << 24)
	TRY("create_qp send list", init.cap.max_send_sge = 1000)
	TRY("create_qp receive list", init.cap.max_recv_sge = 1000)
	TRY("create_qp inline", init.cap.max_inline_data = 100000)
	TRY("create_qp type", init.qp_type = 77)
}

static int to(struct ibv_qp *qp, int state, int mask, struct ibv_qp_attr attr)
{
	attr.qp_state = state;
	return ibv_modify_qp(qp, &attr, mask);
}

static void states(void)
{
	struct ibv_qp *qp = pair(IBV_QPT_RC), *ud = pair(IBV_QPT_UD);
	struct ibv_qp_attr attr = { .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = 1,
		.ah_attr = { .port_num = 1, .is_global = 1 }, .timeout = 14 }, bad;
	struct ibv_qp_init_attr init;
	int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int rts_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC;

	number("to RTS", to(qp, IBV_QPS_RTS, rts_mask, attr));
	number("to a state that is none", to(qp, 33, IBV_QP_STATE, attr));
	number("to INIT without a port", to(qp, IBV_QPS_INIT, init_mask & ~IBV_QP_PORT, attr));
	number("to INIT with too much", to(qp, IBV_QPS_INIT, init_mask | IBV_QP_RQ_PSN, attr));
	bad = attr;
	bad.port_num = 9;
	number("to INIT, port", to(qp, IBV_QPS_INIT, init_mask, bad));
	bad = attr;
	bad.pkey_index = 999;
	number("to INIT, P_Key", to(qp, IBV_QPS_INIT, init_mask, bad));
	number("to INIT", to(qp, IBV_QPS_INIT, init_mask, attr));
	printf("state %d\n", qp->state);
	number("to RESET with too much", to(qp, IBV_QPS_RESET, IBV_QP_STATE | IBV_QP_PORT, attr));
	printf("state %d\n", qp->state);
	bad = attr;
	bad.path_mtu = 9;
	number("to RTR, MTU", to(qp, IBV_QPS_RTR, rtr_mask, bad));
	bad = attr;
	bad.ah_attr.grh.sgid_index = 250;
	number("to RTR, GID", to(qp, IBV_QPS_RTR, rtr_mask, bad));
	number("to RTR with too little", to(qp, IBV_QPS_RTR, rtr_mask & ~IBV_QP_AV, attr));
	number("to RTR", to(qp, IBV_QPS_RTR, rtr_mask, attr));
	number("capacities", to(qp, 0, IBV_QP_CAP, attr));
	number("to RTS", to(qp, IBV_QPS_RTS, rts_mask, attr));
	printf("state %d\n", qp->state);
	number("to ERR", to(qp, IBV_QPS_ERR, IBV_QP_STATE, attr));
	number("query_qp", ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init));
	printf("queried %d %d %d\n", attr.qp_state, init.sq_sig_all, init.qp_type);
	number("query_qp of more", ibv_query_qp(qp, &attr, IBV_QP_RATE_LIMIT, &init));
	number("to RESET", to(qp, IBV_QPS_RESET, IBV_QP_STATE, attr));
	printf("state %d\n", qp->state);
	number("datagrams: to INIT without a Q_Key",
	       to(ud, IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, attr));
	number("destroy_cq in use", ibv_destroy_cq(cq));
	number("destroy_qp", ibv_destroy_qp(qp));
	number("destroy_qp", ibv_destroy_qp(ud));
}

static void posts(void)
{
	struct ibv_qp *qp = pair(IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num, .ah_attr = { .port_num = 1, .is_global = 1, .dlid = 1 }, .timeout = 14 };
	struct ibv_sge list[8] = { { .addr = (uintptr_t)memory, .length = 8 } };
	struct ibv_recv_wr receives[3] = { { .next = &receives[1], .sg_list = list, .num_sge = 1 },
		{ .next = &receives[2], .sg_list = list, .num_sge = 8 }, { 0 } }, *bad_receive = NULL;
	struct ibv_send_wr sends[3] = { { .next = &sends[1], .sg_list = list, .num_sge = 1, .opcode = IBV_WR_SEND },
		{ .next = &sends[2], .sg_list = list, .num_sge = 8, .opcode = IBV_WR_SEND }, { 0 } }, *bad = NULL;
	struct ibv_wc wc[8];
	int i, result, count = 0;

	ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid);
	ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	number("ready to receive", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
	       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	number("ready to send", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	number("post_recv list", ibv_post_recv(qp, receives, &bad_receive));
	printf("bad %d\n", bad_receive == &receives[1]);
	receives[0].next = NULL;
	for (i = 0; i < 3; i++)
		number("post_recv", ibv_post_recv(qp, receives, &bad_receive));
	number("post_recv over the end", ibv_post_recv(qp, receives, &bad_receive));
	printf("bad %d\n", bad_receive == &receives[0]);
	number("post_recv of none", ibv_post_recv(qp, NULL, &bad_receive));
	number("post_send of none", ibv_post_send(qp, NULL, &bad));
	sends[0].opcode = 77;
	number("post_send opcode", ibv_post_send(qp, sends, &bad));
	printf("bad %d\n", bad == &sends[0]);
	sends[0].opcode = IBV_WR_SEND;
	sends[0].send_flags = IBV_SEND_INLINE;
	list[0].length = 5000;
	number("post_send inline", ibv_post_send(qp, sends, &bad));
	list[0].length = 8;
	sends[0].send_flags = IBV_SEND_SIGNALED;
	/* The first is posted, with an unknown key. */
	number("post_send list", ibv_post_send(qp, sends, &bad));
	printf("bad %d\n", bad == &sends[1]);
	/* As single posts, now that the queue is known to have room. */
	sends[0].next = NULL;
	sends[0].opcode = 77;
	number("post_send opcode, alone", ibv_post_send(qp, sends, &bad));
	printf("bad %d\n", bad == &sends[0]);
	for (i = 0; i < 1000000 && count < 5; i++) {
		result = ibv_poll_cq(cq, 8, wc);
		for (int j = 0; j < result; j++)
			printf("status %d wr_id %d qp %d\n", wc[j].status, (int)wc[j].wr_id, wc[j].qp_num == qp->qp_num);
		count += result;
	}
	printf("polled %d\n", count);
	number("destroy_qp", ibv_destroy_qp(qp));
	number("poll_cq", ibv_poll_cq(cq, 8, wc));
}

int main(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);

	setvbuf(stdout, NULL, _IONBF, 0);
	printf("devices %d\n", count);
	ctx = object("open_device", ibv_open_device(list[0]));
	ibv_free_device_list(list);
	pd = object("alloc_pd", ibv_alloc_pd(ctx));
	cq = object("create_cq", ibv_create_cq(ctx, 16, NULL, NULL, 0));
	domains();
	parent_domains();
	queues();
	ports();
	handles();
	shared();
	creation();
	states();
	posts();
	windows_and_memory();
	sizes();
	number("destroy_cq", ibv_destroy_cq(cq));
	number("dealloc_pd", ibv_dealloc_pd(pd));
	number("close_device", ibv_close_device(ctx));
	return 0;
}
