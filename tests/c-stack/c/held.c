/*
 * Behaviour of C's library while a program holds a queue's lock, or leaves objects: closing a device with objects,
 * arming between start_poll and end_poll, failing a queue pair between wr_start and wr_abort, and all of that from a
 * second thread. A line per check; exit status 0 if all succeed.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { LENGTH = 4096, ROUNDS = 500 };

static int failures, checks;

static void check(int good, const char *name, long got)
{
	checks++;
	failures += !good;
	if (good)
		printf("ok %s\n", name);
	else
		printf("FAILED %s: %ld\n", name, got);
	fflush(stdout);
}

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	char *area;
};

static int connect_to_itself(struct side *side)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	union ibv_gid gid;
	int result = ibv_query_gid(side->context, 1, 0, &gid);

	result |= ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = side->qp->qp_num,
		.ah_attr = { .port_num = 1, .is_global = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
	};
	result |= ibv_modify_qp(side->qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };
	return result | ibv_modify_qp(side->qp, &attr,
				      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int open_side(struct side *side, struct ibv_device *device, int events)
{
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };

	memset(side, 0, sizeof(*side));
	side->context = ibv_open_device(device);
	side->area = aligned_alloc(4096, LENGTH);
	memset(side->area, 7, LENGTH);
	side->pd = ibv_alloc_pd(side->context);
	side->mr = ibv_reg_mr(side->pd, side->area, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	side->channel = events ? ibv_create_comp_channel(side->context) : NULL;
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 64, .channel = side->channel };

	side->cq = ibv_create_cq_ex(side->context, &cq_init);
	side->srq = ibv_create_srq(side->pd, &srq_init);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(side->cq),
		.recv_cq = ibv_cq_ex_to_cq(side->cq),
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = side->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};

	side->qp = ibv_create_qp_ex(side->context, &init);
	return side->mr && side->cq && side->srq && side->qp && !connect_to_itself(side);
}

static int entries(const char *path)
{
	DIR *folder = opendir(path);
	int count = 0;

	while (folder && readdir(folder))
		count++;
	if (folder)
		closedir(folder);
	return count;
}

/* Posts a WRITE to itself, and waits for its completion without end_poll, so that the lock stays held. */
static int write_and_hold(struct side *side)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(side->qp);
	struct ibv_poll_cq_attr attr = { 0 };
	int result;

	ibv_wr_start(qp);
	qp->wr_id = 5;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, side->mr->rkey, (uintptr_t)side->area);
	ibv_wr_set_sge(qp, side->mr->lkey, (uintptr_t)side->area + 64, 64);
	result = ibv_wr_complete(qp);
	while (!result && (result = ibv_start_poll(side->cq, &attr)) == ENOENT)
		result = 0;
	return result ? result : (int)side->cq->status;
}

static void arming(struct side *side)
{
	struct ibv_cq *cq = ibv_cq_ex_to_cq(side->cq), *found;
	void *context;

	check(!write_and_hold(side), "a completion is looked at", 0);
	check(!ibv_req_notify_cq(cq, 0), "the queue is armed meanwhile", 0);
	ibv_end_poll(side->cq);
	check(!write_and_hold(side), "the next one", 0);
	ibv_end_poll(side->cq);
	check(!ibv_get_cq_event(side->channel, &found, &context) && found == cq, "raises the event", 0);
	ibv_ack_cq_events(cq, 1);
}

static void failing(struct side *side)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(side->qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	ibv_wr_start(qp);
	qp->wr_id = 6;
	ibv_wr_rdma_write(qp, side->mr->rkey, (uintptr_t)side->area);
	check(!ibv_modify_qp(side->qp, &attr, IBV_QP_STATE), "a queue pair fails while it is posted to", 0);
	ibv_wr_abort(qp);
	check(side->qp->state == IBV_QPS_ERR, "its state", side->qp->state);
}

static void *to_reset(void *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	return (void *)(intptr_t)ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* Another thread moves the queue pair to RESET while this thread reads a completion, and posts. */
static void resetting(struct side *side)
{
	struct ibv_sge sge = { (uintptr_t)side->area, 64, side->mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad_send;
	pthread_t thread;
	void *result;
	int answer;

	check(!write_and_hold(side), "one is looked at", 0);
	pthread_create(&thread, NULL, to_reset, side->qp);
	usleep(100000);
	answer = ibv_post_recv(side->qp, &receive, &bad);
	check(!answer || answer == EINVAL, "a receive is posted meanwhile, or refused", answer);
	answer = ibv_post_send(side->qp, &send, &bad_send);
	check(!answer || answer == EINVAL, "a send is posted meanwhile, or refused", answer);
	ibv_end_poll(side->cq);
	pthread_join(thread, &result);
	check(!result, "it is in RESET", (long)result);
	check(side->qp->state == IBV_QPS_RESET, "its state", side->qp->state);
	check(!connect_to_itself(side), "connected again", 0);
	check(!write_and_hold(side), "and used", 0);
	ibv_end_poll(side->cq);
}

static int destroy(struct side *side)
{
	return ibv_destroy_qp(side->qp) | ibv_destroy_srq(side->srq) | ibv_destroy_cq(ibv_cq_ex_to_cq(side->cq)) |
	       ibv_destroy_comp_channel(side->channel) | ibv_dereg_mr(side->mr) | ibv_dealloc_pd(side->pd) |
	       ibv_close_device(side->context);
}

/* Two threads share a queue: each posts and polls, and keeps what it polled. */
static struct side shared;
static volatile int turn;

static void *post_by_turns(void *mine)
{
	long good = 0;

	for (int i = 0; i < ROUNDS; i++) {
		while (turn != (int)(intptr_t)mine)
			sched_yield();
		good += !write_and_hold(&shared) && shared.cq->wr_id == 5;
		ibv_end_poll(shared.cq);
		/* The threads alternate at every post for a while, then seldom. */
		if (i < 200 || i % 100 == 0)
			turn = !turn;
	}
	turn = !turn;
	return (void *)good;
}

/* Two threads post without any order between them. */
static void *post_at_once(void *unused)
{
	struct ibv_sge sge = { (uintptr_t)shared.area, 64, shared.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { (uintptr_t)shared.area + 128, shared.mr->rkey } }, *bad;
	struct ibv_wc wc;
	long posted = 0, seen = 0;

	(void)unused;
	while (posted < ROUNDS) {
		int count = ibv_poll_cq(ibv_cq_ex_to_cq(shared.cq), 1, &wc);

		if (count < 0 || (count && (wc.status || wc.wr_id != 9)))
			return (void *)-1;
		seen += count;
		posted += !ibv_post_send(shared.qp, &wr, &bad);
	}
	return (void *)seen;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct side side, other;
	pthread_t threads[2];
	void *counted[2];
	struct ibv_wc wc;
	long seen;

	check(open_side(&side, list[0], 1), "open", 0);
	arming(&side);
	resetting(&side);
	failing(&side);
	check(!destroy(&side), "destroy", 0);

	open_side(&other, list[0], 1);
	int files = entries("/proc/self/fd");

	for (int i = 0; i < 20; i++) {
		struct side left;

		/* A channel has a separate file, which C's library leaves open. */
		open_side(&left, list[0], 0);
		check(!ibv_close_device(left.context), "close with objects left", i);
	}
	check(entries("/proc/self/fd") == files, "no file is left", entries("/proc/self/fd") - files);
	check(!destroy(&other), "destroy another", 0);

	check(open_side(&shared, list[0], 1), "open once more", 0);
	for (long i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, post_by_turns, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], &counted[i]);
	check((long)counted[0] == ROUNDS && (long)counted[1] == ROUNDS, "by turns", (long)counted[0]);
	for (long i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, post_at_once, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], &counted[i]);
	seen = (long)counted[0] + (long)counted[1];
	for (int i = 0; i < 100000000 && seen < 2 * ROUNDS; i++)
		seen += ibv_poll_cq(ibv_cq_ex_to_cq(shared.cq), 1, &wc);
	check(seen == 2 * ROUNDS, "at once", seen);
	arming(&shared);
	failing(&shared);
	check(!destroy(&shared), "destroy the last", 0);
	ibv_free_device_list(list);
	printf("%d checks, %d failed\n", checks, failures);
	return failures != 0;
}
