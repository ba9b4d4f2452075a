/* Queues for programs that access a ConnectX's rings directly (mlx5dv.h): calls with a line per result, as in calls.c.
 * The test compares the lines of Debian's library with ours, on devices of one kind. */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;

static void *object(const char *name, void *object)
{
	printf("%s %s %d\n", name, object ? "given" : "null", object ? 0 : errno);
	return object;
}

static void queue(const char *name, struct mlx5dv_cq_init_attr own, struct ibv_cq_init_attr_ex attr)
{
	struct ibv_cq_ex *made = object(name, mlx5dv_create_cq(ctx, &attr, &own));
	struct mlx5dv_cq out;
	struct mlx5dv_obj of = { .cq = { made ? ibv_cq_ex_to_cq(made) : NULL, &out } };

	if (!made)
		return;
	memset(&out, 0, sizeof(out));
	printf("init_obj %d\n", mlx5dv_init_obj(&of, MLX5DV_OBJ_CQ));
	printf("entries %u of %u bytes\n", out.cqe_cnt, out.cqe_size);
	printf("destroy_cq %d\n", ibv_destroy_cq(of.cq.in));
}

static void completion_queues(void)
{
	struct ibv_cq_init_attr_ex plain = { .cqe = 20 };
	struct ibv_cq_init_attr_ex overrun = {
		.cqe = 20, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_cq_init_attr_ex unknown = {
		.cqe = 20, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = 1 << 10 };
	struct ibv_cq_init_attr_ex none = { .cqe = 0 };

	object("create_cq_ex unknown flag", ibv_create_cq_ex(ctx, &unknown));
	queue("cq", (struct mlx5dv_cq_init_attr){ 0 }, plain);
	queue("cq of 64", (struct mlx5dv_cq_init_attr){ .comp_mask = 4, .cqe_size = 64 }, plain);
	queue("cq of 128", (struct mlx5dv_cq_init_attr){ .comp_mask = 4, .cqe_size = 128 }, overrun);
	queue("cq of 96", (struct mlx5dv_cq_init_attr){ .comp_mask = 4, .cqe_size = 96 }, plain);
	queue("cq of unasked 96", (struct mlx5dv_cq_init_attr){ .cqe_size = 96 }, plain);
	queue("cq unknown", (struct mlx5dv_cq_init_attr){ .comp_mask = 1 << 10 }, plain);
	queue("cq unknown flag", (struct mlx5dv_cq_init_attr){ 0 }, unknown);
	queue("cq of nothing", (struct mlx5dv_cq_init_attr){ 0 }, none);
	for (unsigned format = 0; format < 6; format++) {
		struct mlx5dv_cq_init_attr own = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
			.cqe_comp_res_format = format };

		queue("compressed cq", own, plain);
	}
}

/* Completions of unknown queue pairs, as a faulty device writes them. */
static void unmatched(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 7 };
	struct ibv_cq_ex *ex = object("cq of a device at fault", ibv_create_cq_ex(ctx, &attr));
	struct mlx5dv_cq out = { 0 };
	struct mlx5dv_obj of = { .cq = { ibv_cq_ex_to_cq(ex), &out } };
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_wc wc[4];

	printf("init_obj %d\n", mlx5dv_init_obj(&of, MLX5DV_OBJ_CQ));
	for (int i = 0; i < 3; i++) {
		struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)((char *)out.buf + i * out.cqe_size);

		memset(cqe, 0, sizeof(*cqe) - 1);
		cqe->srqn_uidx = htobe32(0xfffff0);
		*(volatile uint8_t *)&cqe->op_own = MLX5_CQE_REQ << 4;
		if (i < 2)
			printf("poll %d\n", ibv_poll_cq(of.cq.in, 4, wc));
		else
			printf("start_poll %d\n", ibv_start_poll(ex, &none));
		printf("poll of nothing %d\n", ibv_poll_cq(of.cq.in, 4, wc));
		printf("start_poll of nothing %d\n", ibv_start_poll(ex, &none));
		printf("consumer %x\n", be32toh(out.dbrec[0]));
	}
	printf("destroy_cq %d\n", ibv_destroy_cq(of.cq.in));
}

static void queue_pairs(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex attr = { .send_cq = cq, .recv_cq = cq, .cap = { 8, 8, 2, 2, 0 },
		.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	static const struct { const char *name; uint64_t mask; uint32_t flags; } of[] = {
		{ "qp", 0, 0 },
		{ "qp never scattering", 1, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE },
		{ "qp scattering", 1, MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE },
		{ "qp of both", 1, MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE | MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE },
		{ "qp unknown", 1 << 20, 0 },
		{ "qp unasked flag", 0, 1u << 30 },
	};

	for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct mlx5dv_qp_init_attr own = { .comp_mask = of[i].mask, .create_flags = of[i].flags };
		struct ibv_qp *qp = object(of[i].name, mlx5dv_create_qp(ctx, &attr, &own));
		struct mlx5dv_qp out = { .comp_mask = i % 2 ? MLX5DV_QP_MASK_UAR_MMAP_OFFSET : 0 };
		struct mlx5dv_obj obj = { .qp = { qp, &out } };

		if (!qp)
			continue;
		printf("init_obj %d\n", mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
		printf("send %u of %u, receive %u of %u, register %u\n", out.sq.wqe_cnt, out.sq.stride, out.rq.wqe_cnt,
		       out.rq.stride, out.bf.size);
		printf("mask %lu, page %s\n", (unsigned long)out.comp_mask, out.uar_mmap_offset ? "told" : "untold");
		printf("destroy_qp %d\n", ibv_destroy_qp(qp));
	}
	printf("destroy_cq %d\n", ibv_destroy_cq(cq));
}

static void work_queues(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_wq_init_attr plain = { .max_wr = 1, .max_sge = 1, .pd = pd, .cq = cq };
	struct ibv_wq *alone;
	static const struct { const char *name; struct mlx5dv_wq_init_attr own; } of[] = {
		{ "wq", { 0 } },
		{ "wq of strides", { .comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ, .striding_rq_attrs = { 11, 6, 0 } } },
		{ "wq unknown", { .comp_mask = 1 << 20 } },
	};

	for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct ibv_wq_init_attr attr = { .wq_type = IBV_WQT_RQ, .max_wr = 20, .max_sge = 1 + i, .pd = pd, .cq = cq };
		struct mlx5dv_wq_init_attr own = of[i].own;
		struct ibv_wq *wq = object(of[i].name, mlx5dv_create_wq(ctx, &attr, &own));
		struct mlx5dv_rwq out = { .comp_mask = 7 };
		struct mlx5dv_obj obj = { .rwq = { wq, &out } };

		if (!wq)
			continue;
		printf("asked %u of %u\n", attr.max_wr, attr.max_sge);
		printf("init_obj %d\n", mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ));
		printf("receive %u of %u, posted %u, mask %lu\n", out.wqe_cnt, out.stride, *out.dbrec,
		       (unsigned long)out.comp_mask);
		printf("destroy_wq %d\n", ibv_destroy_wq(wq));
	}
	alone = object("wq without attributes", mlx5dv_create_wq(ctx, &plain, NULL));
	printf("destroy_wq %d\n", ibv_destroy_wq(alone));
	printf("destroy_cq %d\n", ibv_destroy_cq(cq));
}

static void others(void)
{
	struct ibv_srq_init_attr init = { .attr = { 100, 1, 0 } };
	struct ibv_srq *srq = object("srq", ibv_create_srq(pd, &init));
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 9, .traffic_class = 3,
		.flow_label = 0xfff12345 } };
	struct mlx5dv_srq queue = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_ah vector = { 0 };
	struct ibv_alloc_dm_attr of_memory = { .length = 4096 };
	struct ibv_dm *memory = object("dm", ibv_alloc_dm(ctx, &of_memory));
	struct mlx5dv_dm mapped = { 0 };
	struct mlx5dv_obj obj = { .srq = { srq, &queue }, .dm = { memory, &mapped } };
	uint32_t word = 0;
	unsigned number = 0;
	struct ibv_ah *ah;

	ibv_get_srq_num(srq, &number);
	printf("init_obj %d\n", mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ));
	printf("srq %u to %u of %u, number %d, mask %lu\n", queue.head, queue.tail, queue.stride, queue.srqn == number,
	       (unsigned long)queue.comp_mask);
	queue = (struct mlx5dv_srq){ .srqn = 77 };
	printf("init_obj %d\n", mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ));
	printf("unasked %u, mask %lu\n", queue.srqn, (unsigned long)queue.comp_mask);
	printf("destroy_srq %d\n", ibv_destroy_srq(srq));

	printf("init_obj %d\n", mlx5dv_init_obj(&obj, MLX5DV_OBJ_DM));
	ibv_memcpy_to_dm(memory, 8, &(uint32_t){ 0x12345678 }, 4);
	word = *(volatile uint32_t *)((char *)mapped.buf + 8);
	printf("dm of %lu, word %x\n", (unsigned long)mapped.length, word);
	printf("free_dm %d\n", ibv_free_dm(memory));

	ibv_query_gid(ctx, 1, 0, &to.grh.dgid);
	ah = object("ah", ibv_create_ah(pd, &to));
	obj.ah.in = ah;
	obj.ah.out = &vector;
	printf("init_obj %d\n", mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH));
	printf("av gid %d, hops %u, class %u, sl %u\n", !memcmp(vector.av->rgid, &to.grh.dgid, 16), vector.av->hop_limit,
	       vector.av->tclass, vector.av->stat_rate_sl);
	printf("destroy_ah %d\n", ibv_destroy_ah(ah));
	printf("init_obj of nothing %d\n", mlx5dv_init_obj(&obj, 0));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	setvbuf(stdout, NULL, _IONBF, 0);
	printf("supported %d\n", mlx5dv_is_supported(list[0]));
	ctx = object("open_device", ibv_open_device(list[0]));
	ibv_free_device_list(list);
	pd = object("alloc_pd", ibv_alloc_pd(ctx));
	completion_queues();
	unmatched();
	queue_pairs();
	work_queues();
	others();
	printf("dealloc_pd %d\n", ibv_dealloc_pd(pd));
	printf("close_device %d\n", ibv_close_device(ctx));
	return 0;
}
