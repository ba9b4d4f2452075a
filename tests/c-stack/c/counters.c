/*
 * Completion counters, by the names and structs of rdma-core 65, which the headers of Debian 13 lack: a SEND of a
 * queue pair to itself, counts in the program's memory, and what is refused.
 */
#define _GNU_SOURCE
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <dlfcn.h>
#include <string.h>
#include <time.h>
#include "checks.h"
#include "must.h"

#define QKEY 0x22222222
#define PATIENCE 60
enum { SEND = 1, RECV = 2, READ = 4, ALL = 63, BYTES = 1, OWN_COMPLETED = 1, OWN_FAILED = 2 };

struct caps {
	uint64_t max_value;
	uint32_t max_counters, ops;
};
struct counter {
	struct ibv_context *context;
	uint32_t handle;
};
struct init {
	uint32_t comp_mask, type, flags;
};
struct attach {
	uint32_t comp_mask, ops;
};
struct place {
	void *ptr;
	uint64_t offset;
	int32_t fd;
	uint32_t reserved;
	uint8_t type, rest[7];
};
struct own {
	uint64_t comp_mask;
	uint32_t flags, reserved;
	struct place completed, failed;
};

static int (*query)(struct ibv_context *, struct caps *, size_t);
static struct counter *(*create)(struct ibv_context *, struct init *);
static struct counter *(*create_own)(struct ibv_context *, struct init *, struct own *, uint32_t);
static int (*destroy)(struct counter *);
static int (*attach)(struct ibv_qp *, struct counter *, struct attach *);
static int (*set)(struct counter *, uint64_t), (*set_err)(struct counter *, uint64_t);
static int (*inc)(struct counter *, uint64_t), (*inc_err)(struct counter *, uint64_t);
static int (*get)(struct counter *, uint64_t *), (*get_err)(struct counter *, uint64_t *);

static void *named(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	MUST(found);
	return found;
}

static void find(void)
{
	*(void **)&query = named("_ibv_query_comp_cntr_caps");
	*(void **)&create = named("ibv_create_comp_cntr");
	*(void **)&create_own = named("efadv_create_comp_cntr");
	*(void **)&destroy = named("ibv_destroy_comp_cntr");
	*(void **)&attach = named("ibv_qp_attach_comp_cntr");
	*(void **)&set = named("ibv_set_comp_cntr");
	*(void **)&set_err = named("ibv_set_err_comp_cntr");
	*(void **)&inc = named("ibv_inc_comp_cntr");
	*(void **)&inc_err = named("ibv_inc_err_comp_cntr");
	*(void **)&get = named("ibv_read_comp_cntr");
	*(void **)&get_err = named("ibv_read_err_comp_cntr");
}

static uint64_t value(int (*read)(struct counter *, uint64_t *), struct counter *counter)
{
	uint64_t value = ~0ull;

	check("read", read(counter, &value), 0);
	return value;
}

static void refused(struct ibv_context *context)
{
	static uint64_t words[2];
	struct init init = { .type = BYTES };
	struct own own = { .flags = OWN_COMPLETED, .completed.ptr = (char *)words + 4 }, longer[2] = { { 0 } };
	struct caps caps;

	NONE("a count of bytes", create(context, &init), EOPNOTSUPP);
	init = (struct init) { .flags = 1 };
	NONE("a flag", create(context, &init), EOPNOTSUPP);
	init = (struct init) { .comp_mask = 1 };
	NONE("a member that is unknown", create(context, &init), EOPNOTSUPP);
	init = (struct init) { 0 };
	NONE("memory that is not aligned", create_own(context, &init, &own, sizeof own), EINVAL);
	NONE("a struct without its end", create_own(context, &init, &own, sizeof own - 1), EINVAL);
	longer[1].comp_mask = 1;
	NONE("a later version's member", create_own(context, &init, longer, sizeof longer), EINVAL);
	own.flags = 4;
	NONE("a flag of EFA", create_own(context, &init, &own, sizeof own), EOPNOTSUPP);
	own = (struct own) { .failed.type = 2 };
	NONE("a kind of memory", create_own(context, &init, &own, sizeof own), EOPNOTSUPP);
	check("too short for capabilities", query(context, &caps, 8), EINVAL);
}

int main(void)
{
	static uint64_t words[2];
	static char memory[128];
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct own own = { .flags = OWN_COMPLETED | OWN_FAILED, .completed.ptr = &words[0], .failed.ptr = &words[1] };
	struct init init = { 0 };
	struct caps caps;
	union ibv_gid gid;

	MUST(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	MUST(context && !ibv_query_gid(context, 1, 0, &gid));
	find();
	memset(&caps, 0xff, sizeof caps);
	MUST(!query(context, &caps, sizeof caps));
	check("operations", caps.ops, ALL);
	check("counters and values", caps.max_counters > 1 && caps.max_value > 1, 1);
	refused(context);

	struct counter *counter = create(context, &init), *outside = create_own(context, &init, &own, sizeof own);
	MUST(counter && outside);
	check("context", counter->context == context, 1);
	check("handles", counter->handle != outside->handle, 1);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	MUST(pd && cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	struct ibv_qp_init_attr make = { .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_DRIVER };
	struct ibv_qp *qp = efadv_create_driver_qp(pd, &make, EFADV_QP_DRIVER_TYPE_SRD);
	MUST(mr && ah && qp);

	struct attach ops = { 0 };
	check("no operation", attach(qp, counter, &ops), EINVAL);
	ops.ops = SEND;
	check("sends", attach(qp, counter, &ops), 0);
	ops.ops = SEND | RECV;
	check("sends twice", attach(qp, outside, &ops), EBUSY);
	ops.ops = RECV;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	check("receives, in INIT", attach(qp, outside, &ops), 0);
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	ops.ops = READ;
	check("reads, in RTR", attach(qp, outside, &ops), EINVAL);
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));

	check("set", set(counter, 40), 0);
	check("increment", inc(counter, 1), 0);
	check("set failures", set_err(outside, 6), 0);
	check("increment failures", inc_err(outside, 1), 0);
	check("value", value(get, counter), 41);
	check("failures", value(get_err, counter), 0);

	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED, .wr.ud = { .ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = QKEY } }, *bad;
	time_t end = time(NULL) + PATIENCE;
	struct ibv_wc wc;
	int done = 0;

	MUST(!ibv_post_recv(qp, &recv, &bad_recv) && !ibv_post_send(qp, &send, &bad));
	while (done < 2) {
		int count = ibv_poll_cq(cq, 1, &wc);

		MUST(count >= 0 && time(NULL) < end);
		if (count)
			check("status", wc.status, IBV_WC_SUCCESS);
		done += count;
	}
	check("a send more", value(get, counter), 42);
	check("a receive", value(get, outside), 1);
	check("failures", value(get_err, outside), 7);
	check("in the program's memory", words[0] == 1 && words[1] == 7, 1);

	check("in use", destroy(counter), EBUSY);
	MUST(!ibv_destroy_qp(qp));
	check("destroyed", destroy(counter), 0);
	check("destroyed", destroy(outside), 0);
	counter = create(context, &init);
	check("left to the device's end", counter != NULL, 1);
	MUST(!ibv_destroy_ah(ah) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
	MUST(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(list);
	return checked();
}
