/* Receives of a shared queue in on-demand memory, of which the device ends every other one by a page fault: the library
 * posts them again, and the program sees none of it. */
#include <string.h>

#include "ring.h"

#define COUNT 24
#define SIZE 3000

static uint8_t to[COUNT][4096] __attribute__((aligned(4096)));
static uint8_t from[SIZE];

static void post(struct ibv_srq *srq, struct ibv_mr *mr, int at)
{
	struct ibv_sge sge[2] = { { (uintptr_t)to[at], 100, mr->lkey }, { (uintptr_t)to[at] + 100, SIZE - 100, mr->lkey } };
	struct ibv_recv_wr wr = { .wr_id = at, .sg_list = sge, .num_sge = 2 }, *bad;

	check("post_srq_recv", ibv_post_srq_recv(srq, &wr, &bad), 0);
}

static void message(struct ibv_qp *qp, struct ibv_mr *mr, int number)
{
	struct ibv_sge sge = { (uintptr_t)from, SIZE, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1000 + number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad;
	int sent = 0, at = -1;

	for (int i = 0; i < SIZE; i++)
		from[i] = i * 3 + number;
	check("post_send", ibv_post_send(qp, &wr, &bad), 0);
	for (int i = 0; i < 100000 && (!sent || at < 0); i++) {
		struct ibv_wc wc;

		if (ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) != 1) {
			usleep(100);
			continue;
		}
		check("its status", wc.status, IBV_WC_SUCCESS);
		if (wc.status != IBV_WC_SUCCESS)
			exit(1);
		if (wc.wr_id >= 1000)
			sent = 1;
		else
			at = wc.wr_id;
	}
	check("sent", sent, 1);
	check("received", at >= 0 && at < COUNT, 1);
	check("the bytes", memcmp(to[at < 0 ? 0 : at], from, SIZE), 0);
	memset(to[at < 0 ? 0 : at], 0, SIZE);
}

int main(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
	struct ibv_srq_init_attr of_srq = { .attr = { .max_wr = COUNT, .max_sge = 2 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	struct ibv_mr *sends, *receives;
	struct ibv_srq *srq;
	struct ibv_qp *qp;

	open_all(64);
	sends = ibv_reg_mr(pd, from, sizeof(from), access);
	receives = ibv_reg_mr(pd, to, sizeof(to), access | IBV_ACCESS_ON_DEMAND);
	srq = ibv_create_srq(pd, &of_srq);
	check("there are regions and a queue", sends && receives && srq, 1);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
	init.srq = srq;
	qp = ibv_create_qp(pd, &init);
	check("there is a queue pair", qp != NULL, 1);
	to_init(qp);
	to_rts(qp);
	/* All receives are outstanding: a receive that is posted again needs the last room. */
	for (int i = 0; i < COUNT; i++)
		post(srq, receives, i);
	for (int number = 0; number < COUNT; number++)
		message(qp, sends, number);
	nothing();
	for (int i = 0; i < COUNT; i++)
		post(srq, receives, i);
	for (int number = 0; number < COUNT; number++)
		message(qp, sends, number);
	nothing();
	check("destroy_qp", ibv_destroy_qp(qp), 0);
	check("destroy_srq", ibv_destroy_srq(srq), 0);
	check("dereg_mr", ibv_dereg_mr(receives), 0);
	check("dereg_mr", ibv_dereg_mr(sends), 0);
	close_all();
	return checked();
}
