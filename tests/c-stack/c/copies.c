/* Copies by the device (mlx5dv_wr_memcpy): queue pairs that support them, WQE bytes, completions, refusals. The test
 * compares the lines of Debian's library with ours, on devices of one kind. "ours" adds calls that break C's. */
#include <endian.h>
#include <string.h>

#include "ring.h"

#define MOST (1 << 24)

static uint8_t memory[2 * MOST + 4096] __attribute__((aligned(4096)));
static struct ibv_mr *mr;
static size_t most;

#define HERE memory
#define THERE (memory + MOST + 2048)

static struct ibv_qp *make(struct ibv_pd *in, int type, uint64_t ops, uint64_t of_mlx5)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .qp_type = type,
		.pd = in, .send_ops_flags = ops, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 1 } };
	struct mlx5dv_qp_init_attr mlx5 = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = of_mlx5 };

	if (type == IBV_QPT_DRIVER) {
		mlx5.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
	}
	return mlx5dv_create_qp(ctx, &init, &mlx5);
}

static void made(void)
{
	uint64_t copies = MLX5DV_QP_EX_WITH_MEMCPY, send = IBV_QP_EX_WITH_SEND;
	struct ibv_qp *qp;

	NONE("of UC", make(pd, IBV_QPT_UC, send, copies), EOPNOTSUPP);
	NONE("of UD", make(pd, IBV_QPT_UD, send, copies), EOPNOTSUPP);
	NONE("of XRC", make(pd, IBV_QPT_XRC_SEND, send, copies), EOPNOTSUPP);
	NONE("keys of UC", make(pd, IBV_QPT_UC, send, MLX5DV_QP_EX_WITH_MR_LIST), EOPNOTSUPP);
	NONE("keys of UD", make(pd, IBV_QPT_UD, send, MLX5DV_QP_EX_WITH_MKEY_CONFIGURE), EOPNOTSUPP);
	NONE("keys of DCI", make(pd, IBV_QPT_DRIVER, send, MLX5DV_QP_EX_WITH_MR_LIST), EOPNOTSUPP);
	NONE("an unknown operation", make(pd, IBV_QPT_RC, send, copies | 1 << 20), EOPNOTSUPP);
	qp = make(pd, IBV_QPT_RC, 0, copies);
	check("copies alone", qp && ibv_qp_to_qp_ex(qp), 1);
	check("destroy_qp", ibv_destroy_qp(qp), 0);
	qp = make(pd, IBV_QPT_RC, send, copies | MLX5DV_QP_EX_WITH_MR_LIST);
	check("keys besides", qp && ibv_qp_to_qp_ex(qp), 1);
	check("destroy_qp", ibv_destroy_qp(qp), 0);
}

static void fill(size_t bytes)
{
	for (size_t i = 0; i < bytes + 8; i++) {
		HERE[i] = i * 7 + i / 256 + 1;
		THERE[i] = 0xee;
	}
}

static void copy(struct ibv_qp_ex *qp, size_t bytes)
{
	mlx5dv_wr_memcpy(mlx5dv_qp_ex_from_ibv_qp_ex(qp), mr->lkey, (uintptr_t)THERE, mr->lkey, (uintptr_t)HERE, bytes);
}

static void copied(size_t bytes)
{
	check("the bytes", memcmp(THERE, HERE, bytes), 0);
	check("none behind", THERE[bytes], 0xee);
}

static uint32_t word(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

static uint64_t words(const uint8_t *at)
{
	return (uint64_t)word(at) << 32 | word(at + 4);
}

/* Checks the bytes of the last WQE; values that vary are only checked for presence. */
static void bytes(struct ring *ring, uint32_t qpn, size_t length)
{
	uint32_t index = ring->next;
	uint8_t wqe[4 * UNIT];

	check("four segments", take(ring, wqe), 64);
	check("operation", word(wqe) & 0xff0000ff, 0x0100002f);
	check("index", word(wqe) >> 8 & 0xffff, index & 0xffff);
	check("queue pair and size", word(wqe + 4), qpn << 8 | 4);
	printf("flags %08x, key %08x\n", word(wqe + 8), word(wqe + 12));
	check("control of the copy", word(wqe + 16), 0);
	check("a key of scratch memory", word(wqe + 20) != 0 && word(wqe + 20) != mr->lkey, 1);
	check("scratch memory", words(wqe + 24) != 0 && words(wqe + 24) % 64 == 0, 1);
	check("bytes", word(wqe + 32), length);
	check("key", word(wqe + 36), mr->lkey);
	check("from", words(wqe + 40), (uintptr_t)HERE);
	check("bytes", word(wqe + 48), length);
	check("key", word(wqe + 52), mr->lkey);
	check("to", words(wqe + 56), (uintptr_t)THERE);
}

static void right(struct ibv_qp *of)
{
	static const size_t sizes[] = { 1, 63, 64, 4096, 65537 };
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(of);
	struct ring ring = ring_of(of);

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]) * 4; i++) {
		size_t size = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];

		fill(size);
		begin(qp, i, IBV_SEND_SIGNALED | (i % 3 ? 0 : IBV_SEND_FENCE) | (i % 4 ? 0 : IBV_SEND_SOLICITED));
		copy(qp, size);
		check("complete", ibv_wr_complete(qp), 0);
		bytes(&ring, of->qp_num, size);
		done(i, IBV_WC_SUCCESS, MLX5DV_WC_MEMCPY);
		copied(size);
	}
	fill(most);
	begin(qp, 50, IBV_SEND_SIGNALED);
	copy(qp, most);
	check("complete", ibv_wr_complete(qp), 0);
	bytes(&ring, of->qp_num, most);
	done(50, IBV_WC_SUCCESS, MLX5DV_WC_MEMCPY);
	copied(most);

	/* Several in a batch; only the last one is signaled. */
	fill(300);
	begin(qp, 60, 0);
	copy(qp, 100);
	copy(qp, 200);
	qp->wr_id = 61;
	qp->wr_flags = IBV_SEND_SIGNALED;
	copy(qp, 300);
	check("complete", ibv_wr_complete(qp), 0);
	bytes(&ring, of->qp_num, 100);
	bytes(&ring, of->qp_num, 200);
	bytes(&ring, of->qp_num, 300);
	done(61, IBV_WC_SUCCESS, MLX5DV_WC_MEMCPY);
	copied(300);
	nothing();
}

/* A refused copy leaves the queue unchanged. */
static void refused(struct ibv_qp *of)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(of);
	static const size_t wrong[] = { 0, 1, (size_t)-1, (size_t)1 << 31, ((size_t)1 << 31) + 1 };

	fill(300);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		begin(qp, 1, IBV_SEND_SIGNALED);
		copy(qp, 8);
		copy(qp, wrong[i] == 1 ? most + 1 : wrong[i]);
		copy(qp, 8);
		check("a length that isn't", ibv_wr_complete(qp), EINVAL);
	}
	begin(qp, 2, IBV_SEND_SIGNALED);
	for (int i = 0; i < 200; i++)
		copy(qp, 8);
	check("more than there is room for", ibv_wr_complete(qp), ENOMEM);
	begin(qp, 3, IBV_SEND_SIGNALED);
	copy(qp, 8);
	ibv_wr_abort(qp);
	nothing();
	check("nothing copied", THERE[0], 0xee);
}

/* Mixes copies with other work requests, each with its completion; also a fence after a window's bind. */
static void mixed(void)
{
	struct ibv_qp *of = make(pd, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW, MLX5DV_QP_EX_WITH_MEMCPY);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(of);
	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = { mr, (uintptr_t)memory, 4096, IBV_ACCESS_REMOTE_READ };
	uint8_t wqe[4 * UNIT];
	struct ring ring;

	check("there are objects", of && window, 1);
	to_init(of);
	to_rts(of);
	ring = ring_of(of);
	refused(of);
	fill(64);
	begin(qp, 1, IBV_SEND_SIGNALED);
	ibv_wr_bind_mw(qp, window, ibv_inc_rkey(window->rkey), &info);
	qp->wr_id = 2;
	copy(qp, 64);
	qp->wr_id = 3;
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE + 64);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)HERE, 64);
	qp->wr_id = 4;
	copy(qp, 64);
	check("complete", ibv_wr_complete(qp), 0);
	check("a bind", take(&ring, wqe), 192);
	bytes(&ring, of->qp_num, 64);
	check("a write", take(&ring, wqe), 48);
	bytes(&ring, of->qp_num, 64);
	done(1, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
	done(2, IBV_WC_SUCCESS, MLX5DV_WC_MEMCPY);
	done(3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	done(4, IBV_WC_SUCCESS, MLX5DV_WC_MEMCPY);
	check("copied", memcmp(THERE, HERE, 64), 0);
	check("written", memcmp(THERE + 64, HERE, 64), 0);
	check("destroy_qp", ibv_destroy_qp(of), 0);
	check("dealloc_mw", ibv_dealloc_mw(window), 0);
}

/* A copy that the device refuses fails, and the work requests after it are flushed. */
static void fails(struct ibv_qp *of, uint32_t from, uint32_t to)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(of);

	fill(64);
	begin(qp, 1, IBV_SEND_SIGNALED);
	mlx5dv_wr_memcpy(mlx5dv_qp_ex_from_ibv_qp_ex(qp), to, (uintptr_t)THERE, from, (uintptr_t)HERE, 64);
	qp->wr_id = 2;
	copy(qp, 64);
	check("complete", ibv_wr_complete(qp), 0);
	done(1, IBV_WC_LOC_PROT_ERR, 0);
	done(2, IBV_WC_WR_FLUSH_ERR, 0);
	check("nothing copied", THERE[0], 0xee);
	to_reset(of);
	begin(qp, 3, IBV_SEND_SIGNALED);
	copy(qp, 64);
	check("in RESET", ibv_wr_complete(qp), EINVAL);
	to_init(of);
	to_rts(of);
}

static void failures(struct ibv_qp *of)
{
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_mr *read_only = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_REMOTE_READ);
	struct ibv_mr *theirs = ibv_reg_mr(other, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);

	check("there are regions", other && read_only && theirs, 1);
	fails(of, mr->lkey, read_only->lkey);
	fails(of, mr->lkey, theirs->lkey);
	fails(of, theirs->lkey, mr->lkey);
	check("dereg_mr", ibv_dereg_mr(read_only), 0);
	check("dereg_mr", ibv_dereg_mr(theirs), 0);
	check("dealloc_pd", ibv_dealloc_pd(other), 0);
}

/* Scratch memory exists as long as a queue pair needs it. C's library frees it at the first attempt to deallocate the
 * domain, and never with a parent domain. */
static void ours(void)
{
	struct ibv_pd *own = ibv_alloc_pd(ctx);
	struct ibv_parent_domain_init_attr init = { .pd = own };
	struct ibv_pd *parent = ibv_alloc_parent_domain(ctx, &init);
	struct ibv_qp *a = make(own, IBV_QPT_RC, 0, MLX5DV_QP_EX_WITH_MEMCPY);
	struct ibv_qp *b = make(own, IBV_QPT_RC, 0, MLX5DV_QP_EX_WITH_MEMCPY);
	struct ibv_qp *c = make(parent, IBV_QPT_RC, 0, MLX5DV_QP_EX_WITH_MEMCPY);
	struct ibv_mr *all = ibv_reg_mr(own, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *qp[] = { a, b, c };
	struct ibv_qp *plain = make(own, IBV_QPT_RC, IBV_QP_EX_WITH_SEND, MLX5DV_QP_EX_WITH_MR_LIST);

	check("there are objects", own && parent && a && b && c && all && plain, 1);
	check("in use", ibv_dealloc_pd(own), EBUSY);
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp[i]);

		to_init(qp[i]);
		to_rts(qp[i]);
		fill(64);
		begin(ex, i, IBV_SEND_SIGNALED);
		mlx5dv_wr_memcpy(mlx5dv_qp_ex_from_ibv_qp_ex(ex), all->lkey, (uintptr_t)THERE, all->lkey, (uintptr_t)HERE, 64);
		check("complete", ibv_wr_complete(ex), 0);
		done(i, IBV_WC_SUCCESS, MLX5DV_WC_MEMCPY);
		copied(64);
		check("destroy_qp", ibv_destroy_qp(qp[i]), 0);
		check("in use", ibv_dealloc_pd(own), EBUSY);
	}
	/* A queue pair created without copies. */
	to_init(plain);
	to_rts(plain);
	begin(ibv_qp_to_qp_ex(plain), 1, IBV_SEND_SIGNALED);
	copy(ibv_qp_to_qp_ex(plain), 64);
	check("not made for it", ibv_wr_complete(ibv_qp_to_qp_ex(plain)), EOPNOTSUPP);
	check("destroy_qp", ibv_destroy_qp(plain), 0);
	check("dereg_mr", ibv_dereg_mr(all), 0);
	check("dealloc_pd", ibv_dealloc_pd(parent), 0);
	check("dealloc_pd", ibv_dealloc_pd(own), 0);
}

int main(int argc, char **argv)
{
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH };
	struct ibv_qp *qp;

	open_all(64);
	check("query_device", mlx5dv_query_device(ctx, &caps), 0);
	check("told", caps.comp_mask, MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH);
	most = caps.max_wr_memcpy_length;
	check("the longest", most, MOST);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_MW_BIND);
	check("there is a region", mr != NULL, 1);
	made();
	qp = make(pd, IBV_QPT_RC, IBV_QP_EX_WITH_SEND, MLX5DV_QP_EX_WITH_MEMCPY);
	check("there is a queue pair", qp != NULL, 1);
	to_init(qp);
	to_rts(qp);
	right(qp);
	refused(qp);
	failures(qp);
	right(qp);
	check("destroy_qp", ibv_destroy_qp(qp), 0);
	mixed();
	qp = make(pd, IBV_QPT_DRIVER, IBV_QP_EX_WITH_SEND, MLX5DV_QP_EX_WITH_MEMCPY);
	/* The software HCA does not copy for DC initiators. */
	check("there is an initiator", qp != NULL, 1);
	to_init(qp);
	to_rts(qp);
	refused(qp);
	check("destroy_qp", ibv_destroy_qp(qp), 0);
	if (argc > 1 && !strcmp(argv[1], "ours"))
		ours();
	check("dereg_mr", ibv_dereg_mr(mr), 0);
	close_all();
	return checked();
}
