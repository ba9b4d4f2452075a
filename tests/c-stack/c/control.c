/*
 * The control path in C, for a tracer (tests/control_path) that counts the calls between phase marks. Counterpart with
 * the same calls in Rust: src/bin/control_path.rs.
 *
 *	control calls N		creates an object of each kind, then N more, and destroys all
 *	control times N		the same without marks; prints the nanoseconds of each phase
 *	control memory N	N objects of each kind, for c/heap.c
 *
 * UVERBS_TEST_DEVICE names the device, default the first; UVERBS_TEST_GID is a GID index, default 3.
 */
#include <infiniband/verbs.h>

#include <stdint.h>

#include "phases.h"

#define MOST 4096
#define PAGE 4096

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mrs[MOST];
static struct ibv_cq *cqs[MOST];
static struct ibv_qp *qps[MOST];
static struct ibv_port_attr port;
static union ibv_gid gid;
static int gid_index = 3;
static char memory[(MOST + 1) * PAGE];

static void reg_mr(int i)
{
	char *page = (char *)(((uintptr_t)memory + PAGE - 1) & ~(uintptr_t)(PAGE - 1)) + (size_t)i * PAGE;

	NEED(i < MOST, "too many");
	NEED(mrs[i] = ibv_reg_mr(pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), "ibv_reg_mr");
}

static void create_cq(int i)
{
	NEED(cqs[i] = ibv_create_cq(context, 255, NULL, NULL, 0), "ibv_create_cq");
}

static void create_qp(int i)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cqs[i],
		.recv_cq = cqs[i],
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
	};

	NEED(qps[i] = ibv_create_qp(pd, &init), "ibv_create_qp");
}

static void look(void)
{
	NEED(!ibv_query_port(context, 1, &port), "ibv_query_port");
	NEED(!ibv_query_gid(context, 1, gid_index, &gid), "ibv_query_gid");
}

static void connect_qp(int i)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	NEED(!ibv_modify_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = qps[i]->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 }, .dlid = port.lid, .is_global = 1, .port_num = 1 },
	};
	NEED(!ibv_modify_qp(qps[i], &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .max_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	NEED(!ibv_modify_qp(qps[i], &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY),
	     "RTS");
}

static void destroy_qp(int i)
{
	NEED(!ibv_destroy_qp(qps[i]), "ibv_destroy_qp");
}

static void destroy_cq(int i)
{
	NEED(!ibv_destroy_cq(cqs[i]), "ibv_destroy_cq");
}

static void dereg_mr(int i)
{
	NEED(!ibv_dereg_mr(mrs[i]), "ibv_dereg_mr");
}

static struct ibv_device *chosen(struct ibv_device **list)
{
	const char *name = getenv("UVERBS_TEST_DEVICE");

	for (; *list; list++)
		if (!name || !strcmp(ibv_get_device_name(*list), name))
			return *list;
	return NULL;
}

static void all(const char *name, void (*call)(int), int from, int to)
{
	phase(name);
	for (int i = from; i < to; i++)
		call(i);
}

int main(int argc, char **argv)
{
	int count = argc == 3 ? atoi(argv[2]) : 0, only_memory = argc == 3 && !strcmp(argv[1], "memory");
	struct ibv_device **list;

	NEED(count > 0 && count < MOST, "control calls|times|memory N");
	only_times = !strcmp(argv[1], "times");
	if (getenv("UVERBS_TEST_GID"))
		gid_index = atoi(getenv("UVERBS_TEST_GID"));
	/* Touches the pages here, so that no page fault comes later. */
	memset(memory, 1, sizeof(memory));
	phase("list devices");
	NEED((list = ibv_get_device_list(NULL)) && chosen(list), "no device");
	phase("open device");
	NEED(context = ibv_open_device(chosen(list)), "ibv_open_device");
	phase("alloc PD");
	NEED(pd = ibv_alloc_pd(context), "ibv_alloc_pd");
	all("reg MR", reg_mr, 0, 1);
	all("create CQ", create_cq, 0, 1);
	all("create QP", create_qp, 0, 1);
	phase("connect QP");
	look();
	connect_qp(0);
	if (!only_memory)
		all("reg MR, further", reg_mr, 1, count + 1);
	all("create CQ, further", create_cq, 1, count + 1);
	all("create QP, further", create_qp, 1, count + 1);
	if (only_memory) {
		phase("end");
		return 0;
	}
	all("connect QP, further", connect_qp, 1, count + 1);
	all("destroy QP, further", destroy_qp, 1, count + 1);
	all("destroy CQ, further", destroy_cq, 1, count + 1);
	all("dereg MR, further", dereg_mr, 1, count + 1);
	all("destroy QP", destroy_qp, 0, 1);
	all("destroy CQ", destroy_cq, 0, 1);
	all("dereg MR", dereg_mr, 0, 1);
	phase("dealloc PD");
	NEED(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
	phase("close device");
	NEED(!ibv_close_device(context), "ibv_close_device");
	ibv_free_device_list(list);
	phase("end");
	print_times();
	return 0;
}
