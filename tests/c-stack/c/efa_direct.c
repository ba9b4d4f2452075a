/*
 * A data path of the program's own on an Elastic Fabric Adapter, as libfabric has one: rings and doorbells of
 * efadv_query_cq and efadv_query_qp_wqs, which Debian 13's libefa lacks. A SEND, and an inline WRITE of a work request
 * of 128 bytes, from a queue pair to itself.
 */
#define _GNU_SOURCE
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "checks.h"
#include "must.h"

#define QKEY 0x22222222
#define SIZE 64
#define INLINE_WRITE 2
#define PATIENCE 60

struct cq_attr {
	uint64_t comp_mask;
	uint8_t *buffer;
	uint32_t entry_size, num_entries, *doorbell;
};

struct wq_attr {
	uint64_t comp_mask;
	uint8_t *buffer;
	uint32_t entry_size, num_entries, *doorbell, max_batch;
	uint16_t caps;
	uint8_t reserved[2];
};

static char memory[4 * SIZE];
static struct cq_attr cqs;
static unsigned taken;

/* Waits for the next completion: its phase is 1 in the first turn. */
static const uint8_t *done(void)
{
	volatile uint8_t *entry = cqs.buffer + taken % cqs.num_entries * cqs.entry_size;
	time_t end = time(NULL) + PATIENCE;

	while ((entry[3] & 1) != !(taken / cqs.num_entries & 1))
		MUST(time(NULL) < end);
	atomic_thread_fence(memory_order_acquire);
	taken++;
	return (const uint8_t *)entry;
}

static void put32(uint8_t *to, uint32_t value)
{
	memcpy(to, &value, sizeof value);
}

static void put_address(uint8_t *to, uint32_t length, uint32_t key, const void *at)
{
	put32(to, length);
	put32(to + 4, key);
	put32(to + 8, (uintptr_t)at);
	put32(to + 12, (uint64_t)(uintptr_t)at >> 32);
}

/* Between ibv_start_poll and ibv_end_poll, and between ibv_wr_start and ibv_wr_abort, the queues are asked for too. */
static void held(struct ibv_qp *qp, struct ibv_cq_ex *cq, int (*query_cq)(struct ibv_cq *, struct cq_attr *, uint32_t),
		 int (*query_wqs)(struct ibv_qp *, struct wq_attr *, struct wq_attr *, uint32_t))
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_recv_wr recv = { .wr_id = 5 }, *bad;
	time_t end = time(NULL) + PATIENCE;
	struct cq_attr found;
	struct wq_attr sq, rq;

	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	check("queues while a post is built", query_wqs(qp, &sq, &rq, sizeof sq), 0);
	ibv_wr_abort(ibv_qp_to_qp_ex(qp));
	MUST(!ibv_post_recv(qp, &recv, &bad) && !ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	while (ibv_start_poll(cq, &poll))
		MUST(time(NULL) < end);
	check("a flushed receive", cq->wr_id == 5 && cq->status == IBV_WC_WR_FLUSH_ERR, 1);
	check("a queue that is polled", query_cq(ibv_cq_ex_to_cq(cq), &found, sizeof found), 0);
	ibv_end_poll(cq);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD, .flags = INLINE_WRITE };
	struct efadv_ah_attr ahn;
	struct wq_attr sq, rq, shorter;
	union ibv_gid gid;
	int (*query_cq)(struct ibv_cq *, struct cq_attr *, uint32_t);
	int (*query_wqs)(struct ibv_qp *, struct wq_attr *, struct wq_attr *, uint32_t);

	MUST(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	MUST(context && !ibv_query_gid(context, 1, 0, &gid));
	*(void **)&query_cq = dlsym(RTLD_DEFAULT, "efadv_query_cq");
	*(void **)&query_wqs = dlsym(RTLD_DEFAULT, "efadv_query_qp_wqs");
	MUST(query_cq && query_wqs);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	MUST(pd && cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	struct ibv_qp_init_attr_ex init = { .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16 },
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_DRIVER,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE };
	MUST(mr && ah && !efadv_query_ah(ah, &ahn, sizeof ahn));
	struct ibv_qp *qp = efadv_create_qp_ex(context, &init, &efa, sizeof efa);
	MUST(qp);
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));

	check("too short for completions", query_cq(cq, &cqs, 20), EINVAL);
	check("too short for queues", query_wqs(qp, &sq, &rq, 32), EINVAL);
	memset(&shorter, 0xff, sizeof shorter);
	check("queues of an earlier version", query_wqs(qp, &shorter, &rq, 36), 0);
	check("its end", shorter.caps, 0xffff);
	MUST(!query_cq(cq, &cqs, sizeof cqs) && !query_wqs(qp, &sq, &rq, sizeof sq));
	check("the same queue", shorter.buffer == sq.buffer && shorter.doorbell == sq.doorbell, 1);
	check("bytes of a completion", cqs.entry_size, 32);
	check("bytes of a send with inline WRITEs", sq.entry_size, 128);
	check("sends", sq.num_entries >= 4 && sq.max_batch && sq.max_batch <= sq.num_entries, 1);
	check("bytes of a receive", rq.entry_size, 16);
	check("receives", rq.num_entries >= 4 && rq.max_batch == rq.num_entries, 1);
	check("capabilities", sq.caps | rq.caps | sq.comp_mask | rq.comp_mask | cqs.comp_mask, 0);

	uint8_t recv[16] = { 0 }, send[128] = { 0 };
	uint16_t qpn = qp->qp_num, number = 0x1234;

	put32(recv, (uintptr_t)memory + SIZE);
	put32(recv + 4, (uint64_t)((uintptr_t)memory + SIZE) >> 32);
	memcpy(recv + 8, &number, 2);
	recv[10] = SIZE;
	put32(recv + 12, mr->lkey | 1u << 30 | 1u << 31);
	memcpy(rq.buffer, recv, sizeof recv);
	atomic_thread_fence(memory_order_seq_cst);
	*(volatile uint32_t *)rq.doorbell = 1;

	strcpy(memory, "by a data path of the program's own");
	number = 0x4321;
	memcpy(send, &number, 2);
	send[2] = 0x80;
	send[3] = 0x1c;
	memcpy(send + 4, &qpn, 2);
	send[6] = 1;
	memcpy(send + 12, &ahn.ahn, 2);
	put32(send + 16, QKEY);
	put_address(send + 32, SIZE, mr->lkey, memory);
	memcpy(sq.buffer, send, sizeof send);
	/* The next one writes the first bytes of the sent message to the memory's end. */
	number++;
	memcpy(send, &number, 2);
	send[2] = 0x80 | 0x20 | 2;
	send[6] = 16;
	put_address(send + 32, 16, mr->rkey, memory + 3 * SIZE);
	memcpy(send + 48, memory, 16);
	memcpy(sq.buffer + 128, send, sizeof send);
	atomic_thread_fence(memory_order_seq_cst);
	*(volatile uint32_t *)sq.doorbell = 2;

	unsigned seen = 0;
	for (int i = 0; i < 3; i++) {
		const uint8_t *entry = done();

		memcpy(&number, entry, 2);
		check("status", entry[2], 0);
		seen |= number == 0x4321 ? 1 : number == 0x4322 ? 2 : number == 0x1234 && entry[6] == SIZE ? 4 : 8;
		*(volatile uint32_t *)cqs.doorbell = taken;
	}
	check("completions", seen, 7);
	check("the message", memcmp(memory, memory + SIZE, SIZE), 0);
	check("the WRITE", memcmp(memory, memory + 3 * SIZE, 16), 0);

	struct ibv_cq_init_attr_ex room = { .cqe = 8 };
	struct ibv_cq_ex *cq_ex = ibv_create_cq_ex(context, &room);
	MUST(cq_ex && !ibv_destroy_qp(qp));
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq_ex);
	qp = efadv_create_qp_ex(context, &init, &efa, sizeof efa);
	attr.qp_state = IBV_QPS_INIT;
	MUST(qp && !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	held(qp, cq_ex, query_cq, query_wqs);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)));
	MUST(!ibv_destroy_ah(ah) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
	MUST(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(list);
	return checked();
}
