/*
 * Threads that open the device, connect two queue pairs, move data and close it, again and again, all at once; then
 * descriptors and mappings are counted. A line per check; exit status 0 if all succeed.
 */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

enum { THREADS = 6, ROUNDS = 5, SENDS = 100, LENGTH = 3000, LIMIT_MS = 60000 };

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

static int64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int connect_to(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int result = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.min_rnr_timer = 1,
		.ah_attr = { .port_num = 1, .is_global = 1, .grh = { .dgid = *gid, .sgid_index = 3, .hop_limit = 1 } },
	};
	result |= ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };
	return result | ibv_modify_qp(qp, &attr,
				      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Waits for a completion of either side, up to the limit. */
static int complete(struct ibv_cq *cq, int64_t end)
{
	struct ibv_wc wc;
	int count;

	while (!(count = ibv_poll_cq(cq, 1, &wc))) {
		if (now_ms() > end)
			return 0;
		/* There are more threads than processors, and the device is one of the threads. */
		sched_yield();
	}
	return count == 1 && wc.status == IBV_WC_SUCCESS;
}

static int once(struct ibv_device *device, unsigned int seed)
{
	struct ibv_context *context = ibv_open_device(device);
	union ibv_gid gid;
	uint8_t *area = aligned_alloc(4096, 2 * 4096);
	int64_t end = now_ms() + LIMIT_MS;

	if (!context || ibv_query_gid(context, 1, 3, &gid))
		return 0;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, area, 2 * 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
					 .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);

	if (!mr || !one || !two || connect_to(one, two->qp_num, &gid) || connect_to(two, one->qp_num, &gid))
		return 0;
	int good = 1;

	for (int i = 0; good && i < SENDS; i++) {
		struct ibv_sge from = { (uintptr_t)area, LENGTH, mr->lkey }, to = { (uintptr_t)area + 4096, 4096, mr->lkey };
		struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
		struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;

		memset(area, seed + i, LENGTH);
		good = !ibv_post_recv(two, &recv, &bad_recv) && !ibv_post_send(one, &send, &bad_send) &&
		       complete(cq, end) && complete(cq, end) && !memcmp(area, area + 4096, LENGTH);
	}
	good &= !ibv_destroy_qp(one) && !ibv_destroy_qp(two) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) &&
		!ibv_dealloc_pd(pd);
	good &= !ibv_close_device(context);
	free(area);
	return good;
}

static struct ibv_device **list;

static void *run(void *argument)
{
	long good = 0;

	for (int round = 0; round < ROUNDS; round++)
		good += once(list[0], (uintptr_t)argument * 31 + round);
	return (void *)good;
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

static int doorbell_pages(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;

	while (maps && fgets(line, sizeof(line), maps))
		count += strstr(line, "softhca-uar") != NULL;
	if (maps)
		fclose(maps);
	return count;
}

int main(void)
{
	pthread_t threads[THREADS];

	list = ibv_get_device_list(NULL);
	check(list && list[0], "get_device_list", 0);
	/* The first opening creates the device and its thread. */
	check(once(list[0], 1), "once", 0);
	int files = entries("/proc/self/fd"), pages = doorbell_pages();

	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run, (void *)i);
	for (int i = 0; i < THREADS; i++) {
		void *good;

		pthread_join(threads[i], &good);
		check((long)good == ROUNDS, "a thread", (long)good);
	}
	check(entries("/proc/self/fd") == files, "no descriptor is left", entries("/proc/self/fd") - files);
	check(doorbell_pages() == pages, "no doorbell page is left", doorbell_pages() - pages);
	ibv_free_device_list(list);
	printf("%d checks, %d failed\n", checks, failures);
	return failures != 0;
}
