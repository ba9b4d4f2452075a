/* Indirect mkeys (mlx5dv_create_mkey), and the work requests that lay them out, valid and invalid. Between two queue
 * pairs of this process. Prints a line per check. */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t memory[1 << 16] __attribute__((aligned(4096)));
static struct ibv_port_attr port;
static union ibv_gid gid;

#define THERE (memory + 32768)

static struct ibv_qp *pair(uint64_t layouts, uint64_t mask)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 3, .max_recv_sge = 2, .max_inline_data = 256 } };
	struct mlx5dv_qp_init_attr mlx5 = { .comp_mask = mask, .send_ops_flags = layouts,
					    .create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE };

	return mlx5dv_create_qp(ctx, &init, &mlx5);
}

static void bring(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.max_rd_atomic = 4, .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.ah_attr = { .port_num = 1, .is_global = 1, .dlid = port.lid, .grh = { .dgid = gid, .hop_limit = 64 } } };

	check("to INIT", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr.qp_state = IBV_QPS_RTR;
	check("to RTR", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	attr.qp_state = IBV_QPS_RTS;
	check("to RTS", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void done(int status)
{
	struct ibv_wc wc = { 0 };
	int got = 0;

	for (int i = 0; i < 20000 && !got; i++) {
		got = ibv_poll_cq(cq, 1, &wc);
		if (!got)
			usleep(100);
	}
	check("completed", got, 1);
	check("its status", wc.status, status);
}

static void begin(struct ibv_qp_ex *qp, unsigned int flags)
{
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = flags;
}

static struct mlx5dv_mkey *key(uint32_t flags, uint16_t entries)
{
	struct mlx5dv_mkey_init_attr init = { .pd = pd, .create_flags = flags, .max_entries = entries };

	return mlx5dv_create_mkey(&init);
}

static void fill(void)
{
	for (int i = 0; i < 4096; i++)
		memory[i] = i * 7 + 1;
	memset(THERE, 0, 4096);
}

/* The peer READs `bytes` of the key at its address 0 into THERE. */
static void read_key(struct ibv_qp_ex *qp, struct mlx5dv_mkey *mkey, uint32_t bytes, int status)
{
	begin(qp, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(qp, mkey->rkey, 0);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)THERE, bytes);
	check("complete", ibv_wr_complete(qp), 0);
	done(status);
}

static void layouts(struct ibv_qp_ex *qp, struct mlx5dv_qp_ex *mlx5)
{
	struct mlx5dv_mkey *mkey = key(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 4);
	struct ibv_sge list[3] = { { (uintptr_t)memory, 100, mr->lkey }, { (uintptr_t)memory + 1000, 30, mr->lkey },
				   { (uintptr_t)memory + 300, 70, mr->lkey } };
	struct mlx5dv_mr_interleaved blocks[2] = { { (uintptr_t)memory, 8, 2, mr->lkey },
						   { (uintptr_t)memory + 64, 4, 12, mr->lkey } };
	struct mlx5dv_mkey_conf_attr conf = { 0 };
	uint32_t rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	unsigned int flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;

	check("there is a key", mkey != NULL, 1);
	check("one key", mkey->lkey, mkey->rkey);
	fill();
	begin(qp, flags);
	mlx5dv_wr_mr_list(mlx5, mkey, rights, 3, list);
	check("complete", ibv_wr_complete(qp), 0);
	done(IBV_WC_SUCCESS);
	read_key(qp, mkey, 200, IBV_WC_SUCCESS);
	check("the first part", memcmp(THERE, memory, 100), 0);
	check("the second", memcmp(THERE + 100, memory + 1000, 30), 0);
	check("the third", memcmp(THERE + 130, memory + 300, 70), 0);

	fill();
	begin(qp, flags);
	mlx5dv_wr_mr_interleaved(mlx5, mkey, rights, 3, 2, blocks);
	check("complete", ibv_wr_complete(qp), 0);
	done(IBV_WC_SUCCESS);
	read_key(qp, mkey, 36, IBV_WC_SUCCESS);
	for (int round = 0; round < 3; round++) {
		check("a block of the first", memcmp(THERE + round * 12, memory + round * 10, 8), 0);
		check("a block of the second", memcmp(THERE + round * 12 + 8, memory + 64 + round * 16, 4), 0);
	}

	/* Setters one by one, and a work request after them in the same batch. */
	fill();
	begin(qp, flags);
	mlx5dv_wr_mkey_configure(mlx5, mkey, 2, &conf);
	mlx5dv_wr_set_mkey_layout_list(mlx5, 2, list + 1);
	mlx5dv_wr_set_mkey_access_flags(mlx5, rights);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)THERE);
	ibv_wr_set_sge(qp, mkey->lkey, 0, 100);
	check("complete", ibv_wr_complete(qp), 0);
	done(IBV_WC_SUCCESS);
	done(IBV_WC_SUCCESS);
	check("the first part", memcmp(THERE, memory + 1000, 30), 0);
	check("the second", memcmp(THERE + 30, memory + 300, 70), 0);
	check("destroy_mkey", mlx5dv_destroy_mkey(mkey), 0);
}

/* Each batch fails, with this error. */
#define REFUSED(name, flags, why, ...)                  \
	do {                                            \
		begin(qp, flags);                       \
		__VA_ARGS__;                            \
		check(name, ibv_wr_complete(qp), why);  \
	} while (0)

static void wrong(struct ibv_qp_ex *qp, struct mlx5dv_qp_ex *mlx5)
{
	struct mlx5dv_mkey *mkey = key(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE, 4);
	struct ibv_sge list[5] = { { (uintptr_t)memory, 100, mr->lkey } };
	struct mlx5dv_mr_interleaved block = { (uintptr_t)memory, 1 << 17, 0, mr->lkey };
	struct mlx5dv_mkey_conf_attr conf = { .comp_mask = 1 };
	unsigned int flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	struct mlx5dv_sig_block_attr signature = { 0 };

	check("there is a key", mkey != NULL, 1);
	check("a key of nothing", key(0, 4) == NULL && errno == EOPNOTSUPP, 1);
	check("a key for encryption", key(MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO, 4) == NULL && errno == EOPNOTSUPP, 1);
	check("an unknown kind of key", key(1 << 20, 4) == NULL && errno == EOPNOTSUPP, 1);
	REFUSED("not inline", IBV_SEND_SIGNALED, EOPNOTSUPP, mlx5dv_wr_mr_list(mlx5, mkey, 0, 1, list));
	REFUSED("too many parts", flags, ENOMEM, mlx5dv_wr_mr_list(mlx5, mkey, 0, 5, list));
	REFUSED("unknown rights", flags, EINVAL, mlx5dv_wr_mr_list(mlx5, mkey, 1 << 19, 1, list));
	REFUSED("a block that is too long", flags, EINVAL, mlx5dv_wr_mr_interleaved(mlx5, mkey, 0, 1, 1, &block));
	REFUSED("a mask", flags, EOPNOTSUPP, mlx5dv_wr_mkey_configure(mlx5, mkey, 2, &conf));
	conf.comp_mask = 0;
	REFUSED("rights without a key", flags, EINVAL, mlx5dv_wr_set_mkey_access_flags(mlx5, 0));
	REFUSED("rights twice", flags, EINVAL, mlx5dv_wr_mkey_configure(mlx5, mkey, 3, &conf);
		mlx5dv_wr_set_mkey_access_flags(mlx5, 0); mlx5dv_wr_set_mkey_access_flags(mlx5, 0));
	REFUSED("a layout twice", flags, EINVAL, mlx5dv_wr_mkey_configure(mlx5, mkey, 3, &conf);
		mlx5dv_wr_set_mkey_layout_list(mlx5, 1, list); mlx5dv_wr_set_mkey_layout_list(mlx5, 1, list));
	REFUSED("a signature", flags, EOPNOTSUPP, mlx5dv_wr_mkey_configure(mlx5, mkey, 3, &conf);
		mlx5dv_wr_set_mkey_sig_block(mlx5, &signature));
	/* An aborted layout is forgotten. */
	begin(qp, flags);
	mlx5dv_wr_mkey_configure(mlx5, mkey, 2, &conf);
	ibv_wr_abort(qp);
	REFUSED("rights of a batch before", flags, EINVAL, mlx5dv_wr_set_mkey_access_flags(mlx5, 0));
	check("destroy_mkey", mlx5dv_destroy_mkey(mkey), 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct ibv_qp *a, *b;

	check("is_supported", mlx5dv_is_supported(list[0]), 1);
	check("DEVX", mlx5dv_open_device(list[0], &attr) == NULL && errno == EOPNOTSUPP, 1);
	attr.flags = 0;
	ctx = mlx5dv_open_device(list[0], &attr);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	check("there are objects", pd && cq && mr, 1);
	check("query_port", ibv_query_port(ctx, 1, &port), 0);
	check("query_gid", ibv_query_gid(ctx, 1, 0, &gid), 0);
	check("an unknown mask", pair(0, 1 << 10) == NULL && errno == EINVAL, 1);
	check("an unknown operation", pair(1 << 20, 5) == NULL && errno == EOPNOTSUPP, 1);
	a = pair(MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MKEY_CONFIGURE,
		 MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS);
	b = pair(0, 0);
	check("there are queue pairs", a && b, 1);
	bring(a, b->qp_num);
	bring(b, a->qp_num);
	layouts(ibv_qp_to_qp_ex(a), mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(a)));
	wrong(ibv_qp_to_qp_ex(a), mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(a)));
	check("destroy_qp", ibv_destroy_qp(a), 0);
	check("destroy_qp", ibv_destroy_qp(b), 0);
	check("dereg_mr", ibv_dereg_mr(mr), 0);
	check("destroy_cq", ibv_destroy_cq(cq), 0);
	check("dealloc_pd", ibv_dealloc_pd(pd), 0);
	check("close_device", ibv_close_device(ctx), 0);
	return checked();
}
