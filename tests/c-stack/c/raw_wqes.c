/* Raw WQEs (mlx5dv_wr_raw_wqe): the bytes in the ring and the completion of each, among other work requests, across the
 * ring's end, after aborted batches, and after a reset. The test compares the lines of Debian's library with ours, on
 * devices of one kind. */
#include <endian.h>
#include <string.h>

#include "ring.h"

#define SEND 0x0a
#define WRITE 0x08
#define SIGNALED 8

static uint8_t memory[8192] __attribute__((aligned(4096)));
static struct ibv_mr *mr;

static struct ibv_qp *make(uint32_t most, uint64_t of_mlx5)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
		.qp_type = IBV_QPT_RC, .pd = pd, .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = most, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 1 } };
	struct mlx5dv_qp_init_attr mlx5 = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = of_mlx5 };

	return mlx5dv_create_qp(ctx, &init, &mlx5);
}

/* Lays out a WRITE of so many bytes in `pieces` SGEs by hand. */
static uint32_t words[64];

static void *by_hand(uint32_t qpn, uint32_t flags, unsigned pieces, uint32_t bytes)
{
	uint64_t to = htobe64((uintptr_t)memory + 4096), from = htobe64((uintptr_t)memory);

	memset(words, 0, sizeof words);
	words[0] = htobe32(0xabcd << 8 | WRITE);
	words[1] = htobe32(qpn << 8 | (2 + pieces));
	words[2] = htobe32(flags);
	memcpy(words + 4, &to, 8);
	words[6] = htobe32(mr->rkey);
	for (unsigned i = 0; i < pieces; i++) {
		words[8 + 4 * i] = htobe32(bytes);
		words[9 + 4 * i] = htobe32(mr->lkey);
		memcpy(words + 10 + 4 * i, &from, 8);
	}
	return words;
}

static void raw(struct ibv_qp_ex *qp, uint32_t flags, unsigned pieces)
{
	mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(qp), by_hand(qp->qp_base.qp_num, flags, pieces, 64));
}

static void written(struct ibv_qp_ex *qp)
{
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)memory + 4096);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory, 64);
}

/* Checks that the ring has the WQE as laid out, except its index. */
static void same(struct ring *ring, unsigned pieces, uint32_t flags)
{
	uint32_t index = ring->next, qpn = 0;
	uint8_t wqe[4 * UNIT];

	check("its length", take(ring, wqe), 32 + 16 * pieces);
	memcpy(&qpn, wqe + 4, 4);
	by_hand(be32toh(qpn) >> 8, flags, pieces, 64);
	words[0] = htobe32((index & 0xffff) << 8 | WRITE);
	check("its bytes", memcmp(wqe, words, 32 + 16 * pieces), 0);
}

/* Each kind alone, and all in one batch; ten times, so that the ring wraps. */
static void mixed(struct ibv_qp *of, struct ring *ring)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(of);
	uint8_t wqe[4 * UNIT];

	for (int i = 0; i < 10; i++) {
		memset(memory, i + 1, 64);
		begin(qp, 1, 0);
		raw(qp, SIGNALED, 1);
		check("complete", ibv_wr_complete(qp), 0);
		same(ring, 1, SIGNALED);
		done(1, IBV_WC_SUCCESS, MLX5DV_WC_RAW_WQE);
		check("written", memcmp(memory, memory + 4096, 64), 0);
		begin(qp, 2, IBV_SEND_SIGNALED);
		written(qp);
		check("complete", ibv_wr_complete(qp), 0);
		take(ring, wqe);
		done(2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		/* The WQE has its own flags: two of four complete. */
		begin(qp, 3, IBV_SEND_SIGNALED);
		raw(qp, 0, 1);
		qp->wr_id = 4;
		raw(qp, SIGNALED, 4);
		qp->wr_id = 5;
		qp->wr_flags = IBV_SEND_SIGNALED;
		written(qp);
		qp->wr_id = 6;
		qp->wr_flags = 0;
		raw(qp, SIGNALED, 1);
		check("complete", ibv_wr_complete(qp), 0);
		same(ring, 1, 0);
		same(ring, 4, SIGNALED);
		take(ring, wqe);
		same(ring, 1, SIGNALED);
		done(4, IBV_WC_SUCCESS, MLX5DV_WC_RAW_WQE);
		done(5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		done(6, IBV_WC_SUCCESS, MLX5DV_WC_RAW_WQE);
	}
	nothing();
}

/* A batch that was aborted or did not fit: the work requests posted in its place have the right opcodes. */
static void given_up(struct ibv_qp *of)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(of);

	for (int i = 0; i < 2; i++) {
		begin(qp, 1, 0);
		for (int j = 0; j < (i ? 200 : 3); j++)
			raw(qp, SIGNALED, 1);
		if (i)
			check("more than there is room for", ibv_wr_complete(qp), ENOMEM);
		else
			ibv_wr_abort(qp);
		begin(qp, 2, IBV_SEND_SIGNALED);
		written(qp);
		qp->wr_id = 3;
		raw(qp, SIGNALED, 1);
		qp->wr_id = 4;
		written(qp);
		check("complete", ibv_wr_complete(qp), 0);
		done(2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		done(3, IBV_WC_SUCCESS, MLX5DV_WC_RAW_WQE);
		done(4, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	}
	nothing();
}

/* A failed WQE; after a reset, others in its place and in the place of one that never completed. */
static void reset(struct ibv_qp *of)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(of);

	begin(qp, 1, 0);
	raw(qp, 0, 1);
	qp->wr_id = 2;
	mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(qp), by_hand(of->qp_num, SIGNALED, 1, sizeof(memory) + 1));
	check("complete", ibv_wr_complete(qp), 0);
	done(2, IBV_WC_LOC_PROT_ERR, 0);
	/* Again after an unsignaled WQE: a WRITE takes its place then. */
	for (int round = 0; round < 2; round++) {
		to_reset(of);
		to_init(of);
		to_rts(of);
		for (int i = 0; i < 3 + round; i++) {
			begin(qp, 3, IBV_SEND_SIGNALED);
			written(qp);
			check("complete", ibv_wr_complete(qp), 0);
			done(3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		}
		if (round)
			break;
		begin(qp, 3, 0);
		raw(qp, 0, 1);
		check("complete", ibv_wr_complete(qp), 0);
	}
	begin(qp, 4, 0);
	raw(qp, SIGNALED, 1);
	check("complete", ibv_wr_complete(qp), 0);
	done(4, IBV_WC_SUCCESS, MLX5DV_WC_RAW_WQE);
}

int main(void)
{
	struct ibv_qp *qp;
	struct ring ring;

	open_all(64);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check("there is a region", mr != NULL, 1);
	for (uint32_t most = 8; most <= 32; most *= 2) {
		qp = make(most, MLX5DV_QP_EX_WITH_RAW_WQE);
		check("there is a queue pair", qp != NULL, 1);
		to_init(qp);
		to_rts(qp);
		ring = ring_of(qp);
		mixed(qp, &ring);
		given_up(qp);
		reset(qp);
		check("destroy_qp", ibv_destroy_qp(qp), 0);
	}
	check("dereg_mr", ibv_dereg_mr(mr), 0);
	close_all();
	return checked();
}
