/* Threads that are cancelled (pthread_cancel(3)) while they wait: they end there, run their clean-up handlers, and the
 * object they waited for keeps working. "ours" also tests the waits of librdmacm, and that all other calls are no
 * cancellation points. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#include "checks.h"

enum { PORT = 1, GID = 3, PATIENCE = 20, MANY = 2000 };

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static char memory[4096] __attribute__((aligned(4096)));

static int to_rts(void)
{
	union ibv_gid gid;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT };
	int bad = ibv_query_gid(context, PORT, GID, &gid);

	bad |= ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.min_rnr_timer = 1,
		.ah_attr = { .port_num = PORT, .is_global = 1, .grh = { .dgid = gid, .sgid_index = GID, .hop_limit = 1 } },
	};
	bad |= ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };
	return bad | ibv_modify_qp(qp, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Creates a queue pair that is connected to itself. */
static int begin(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 16, 16, 1, 1, 0 } };

	if (!list || !*list)
		return 1;
	context = ibv_open_device(*list);
	ibv_free_device_list(list);
	if (!context)
		return 1;
	pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	channel = ibv_create_comp_channel(context);
	init.send_cq = init.recv_cq = cq = ibv_create_cq(context, 64, NULL, channel, 0);
	qp = ibv_create_qp(pd, &init);
	return !mr || !channel || !qp || to_rts();
}

static int end(void)
{
	return ibv_destroy_qp(qp) | ibv_destroy_cq(cq) | ibv_destroy_comp_channel(channel) | ibv_dereg_mr(mr) |
	       ibv_dealloc_pd(pd) | ibv_close_device(context);
}

/* Sends a message to itself; returns the number of completions, two if all is well. */
static int send_one(void)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	time_t limit = time(NULL) + PATIENCE;
	struct ibv_wc wc;
	int done = 0;

	if (ibv_post_recv(qp, &recv, &bad_recv) || ibv_post_send(qp, &send, &bad))
		return -1;
	while (done < 2 && time(NULL) < limit)
		if (ibv_poll_cq(cq, 1, &wc) == 1)
			done += wc.status == IBV_WC_SUCCESS;
	return done;
}

/* Number of times that a waiting thread's clean-up handler ran. */
static int cleaned;
static int asks_before;

static void clean_up(void *unused)
{
	(void)unused;
	cleaned++;
}

static void *wait_in(void *call)
{
	pthread_cleanup_push(clean_up, NULL);
	if (asks_before)
		pthread_cancel(pthread_self());
	((void (*)(void))call)();
	pthread_cleanup_pop(0);
	return NULL;
}

/* Cancels a thread that sleeps in this call, and one that was cancelled before the call. */
static void cancelled(const char *name, void (*call)(void))
{
	for (asks_before = 0; asks_before < 2; asks_before++) {
		struct timespec limit;
		pthread_t thread;
		void *answer = NULL;

		cleaned = 0;
		pthread_create(&thread, NULL, wait_in, (void *)call);
		if (!asks_before) {
			usleep(100000);
			pthread_cancel(thread);
		}
		clock_gettime(CLOCK_REALTIME, &limit);
		limit.tv_sec += PATIENCE;
		if (pthread_timedjoin_np(thread, &answer, &limit)) {
			check(name, 1, 0);
			exit(checked());
		}
		check(name, answer == PTHREAD_CANCELED, 1);
		check("the clean-up handler", cleaned, 1);
	}
}

static void async_event(void)
{
	struct ibv_async_event event;

	ibv_get_async_event(context, &event);
}

static void cq_event(void)
{
	struct ibv_cq *found;
	void *its;

	ibv_get_cq_event(channel, &found, &its);
}

static void verbs_waits(void)
{
	struct ibv_async_event event;
	struct ibv_cq *found;
	void *its;

	cancelled("ibv_get_async_event", async_event);
	fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
	check("no event was lost or made", ibv_get_async_event(context, &event), -1);
	check("EAGAIN", errno, EAGAIN);
	cancelled("ibv_get_cq_event", cq_event);
	check("req_notify_cq", ibv_req_notify_cq(cq, 0), 0);
	check("a message", send_one(), 2);
	check("ibv_get_cq_event afterwards", ibv_get_cq_event(channel, &found, &its), 0);
	check("of the queue", found == cq, 1);
	ibv_ack_cq_events(cq, 1);
}

static struct rdma_event_channel *events;
static struct rdma_cm_id *listener;
static struct sockaddr_in address = { .sin_family = AF_INET };
static int waiting, near_end, far_end;

static void cm_event(void)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(events, &event);
}

static void request(void)
{
	struct rdma_cm_id *id;

	rdma_get_request(listener, &id);
}

static void polls(void)
{
	struct pollfd file = { .fd = near_end, .events = POLLIN };

	rpoll(&file, 1, -1);
}

static void selects(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(near_end, &set);
	rselect(near_end + 1, &set, NULL, NULL, NULL);
}

static void accepts(void)
{
	raccept(waiting, NULL, NULL);
}

static void receives(void)
{
	char byte;

	rrecv(near_end, &byte, 1, 0);
}

static void receives_a_message(void)
{
	char byte;
	struct iovec room = { &byte, 1 };
	struct msghdr message = { .msg_iov = &room, .msg_iovlen = 1 };

	rrecvmsg(near_end, &message, 0);
}

static void reads(void)
{
	char byte;

	rread(near_end, &byte, 1);
}

static void *connects(void *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = (uintptr_t)port };

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	near_end = rsocket(AF_INET, SOCK_STREAM, 0);
	return (void *)(intptr_t)rconnect(near_end, (struct sockaddr *)&to, sizeof(to));
}

static void connection_waits(void)
{
	socklen_t length = sizeof(address);
	char byte = 'x';
	pthread_t thread;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	events = rdma_create_event_channel();
	cancelled("rdma_get_cm_event", cm_event);
	rdma_destroy_event_channel(events);
	check("rdma_create_id", rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP), 0);
	check("rdma_bind_addr", rdma_bind_addr(listener, (struct sockaddr *)&address), 0);
	check("rdma_listen", rdma_listen(listener, 4), 0);
	cancelled("rdma_get_request", request);
	check("rdma_destroy_id", rdma_destroy_id(listener), 0);

	waiting = rsocket(AF_INET, SOCK_STREAM, 0);
	check("rbind", rbind(waiting, (struct sockaddr *)&address, sizeof(address)), 0);
	check("rlisten", rlisten(waiting, 4), 0);
	cancelled("raccept", accepts);
	rgetsockname(waiting, (struct sockaddr *)&address, &length);
	pthread_create(&thread, NULL, connects, (void *)(uintptr_t)address.sin_port);
	far_end = raccept(waiting, NULL, NULL);
	check("raccept afterwards", far_end >= 0, 1);
	pthread_join(thread, NULL);
	cancelled("rpoll", polls);
	cancelled("rselect", selects);
	cancelled("rrecv", receives);
	cancelled("rrecvmsg", receives_a_message);
	cancelled("rread", reads);
	check("rsend afterwards", rsend(far_end, &byte, 1, 0), 1);
	byte = 0;
	check("rrecv afterwards", rrecv(near_end, &byte, 1, 0), 1);
	check("what was sent", byte, 'x');
	rclose(near_end);
	rclose(far_end);
	rclose(waiting);
}

/* Makes all non-waiting calls on a thread that was cancelled before: it must reach the end. */
static void *all_but_waits(void *unused)
{
	struct ibv_wc wc;
	int bad, sent = 0;

	pthread_cancel(pthread_self());
	bad = begin();
	for (int i = 0; !bad && i < MANY; i++)
		bad = ibv_poll_cq(cq, 1, &wc) || ibv_req_notify_cq(cq, 0);
	for (int i = 0; !bad && i < 100; i++)
		sent += send_one();
	bad |= sent != 200;
	bad = bad || end();

	struct rdma_addrinfo *found = NULL;
	struct rdma_cm_id *id;

	bad = bad || !(events = rdma_create_event_channel());
	bad = bad || rdma_create_id(events, &id, NULL, RDMA_PS_TCP);
	address.sin_port = 0;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bad = bad || rdma_bind_addr(id, (struct sockaddr *)&address) || rdma_listen(id, 4);
	bad = bad || rdma_getaddrinfo("127.0.0.1", "7471", NULL, &found);
	rdma_freeaddrinfo(found);
	bad = bad || rdma_destroy_id(id);
	rdma_destroy_event_channel(events);

	int number = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	bad = bad || number < 0 || rbind(number, (struct sockaddr *)&address, sizeof(address)) ||
	      rlisten(number, 4) || raccept(number, NULL, NULL) != -1 || errno != EAGAIN || rclose(number);
	*(int *)unused = !bad;
	pthread_testcancel();
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "ours")) {
		int whole = 0;
		void *answer = NULL;
		pthread_t thread;

		pthread_create(&thread, NULL, all_but_waits, &whole);
		pthread_join(thread, &answer);
		check("all but waits", whole, 1);
		check("cancelled behind it", answer == PTHREAD_CANCELED, 1);
	}
	check("a queue pair", begin(), 0);
	verbs_waits();
	if (argc > 1)
		connection_waits();
	check("the end", end(), 0);
	return checked();
}
