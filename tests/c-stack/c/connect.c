/*
 * Connecting by librdmacm, both ends in one thread, for a tracer: what it does between two phase marks is counted. Its twin
 * in Rust is src/bin/connect_path.rs, with the same steps in the same order.
 *
 *	connect calls N		one connection made and taken down, then N further ones, each by itself
 *	connect times N		the same without marks, and in the end how many nanoseconds each phase took
 *
 * UVERBS_TEST_DEVICE names the device; UVERBS_TEST_GID is the index of a GID that is an IPv4 address.
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "phases.h"

#define MOST 4096
#define PATIENCE 2000 /* milliseconds */

static struct rdma_event_channel *asking, *answering;
static struct rdma_cm_id *listener, *clients[MOST], *servers[MOST];
static struct sockaddr_in here = { .sin_family = AF_INET };
static struct ibv_pd *pd;
static struct ibv_cq *cq;

/* The next event, which must be this one. Gives its id. */
static struct rdma_cm_id *event(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	NEED(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event != wanted) {
		fprintf(stderr, "connect: %s, not %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
		exit(1);
	}
	id = event->id;
	NEED(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
	return id;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	NEED(!rdma_create_qp(id, pd, &init), "rdma_create_qp");
}

static void open_and_listen(void)
{
	NEED(asking = rdma_create_event_channel(), "rdma_create_event_channel");
	NEED(answering = rdma_create_event_channel(), "rdma_create_event_channel");
	NEED(!rdma_create_id(answering, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	NEED(!rdma_bind_addr(listener, (struct sockaddr *)&here), "rdma_bind_addr");
	NEED(!rdma_listen(listener, 16), "rdma_listen");
	here.sin_port = rdma_get_src_port(listener);
	NEED(pd = ibv_alloc_pd(listener->verbs), "ibv_alloc_pd");
	NEED(cq = ibv_create_cq(listener->verbs, 16, NULL, NULL, 0), "ibv_create_cq");
}

static void make(int i)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };

	NEED(!rdma_create_id(asking, &clients[i], NULL, RDMA_PS_TCP), "rdma_create_id");
	NEED(!rdma_resolve_addr(clients[i], NULL, (struct sockaddr *)&here, PATIENCE), "rdma_resolve_addr");
	event(asking, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(!rdma_resolve_route(clients[i], PATIENCE), "rdma_resolve_route");
	event(asking, RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_qp(clients[i]);
	NEED(!rdma_connect(clients[i], &param), "rdma_connect");
	servers[i] = event(answering, RDMA_CM_EVENT_CONNECT_REQUEST);
	create_qp(servers[i]);
	NEED(!rdma_accept(servers[i], &param), "rdma_accept");
	event(asking, RDMA_CM_EVENT_ESTABLISHED);
	event(answering, RDMA_CM_EVENT_ESTABLISHED);
}

static void unmake(int i)
{
	NEED(!rdma_disconnect(clients[i]), "rdma_disconnect");
	event(answering, RDMA_CM_EVENT_DISCONNECTED);
	NEED(!rdma_disconnect(servers[i]), "rdma_disconnect");
	event(asking, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(clients[i]);
	rdma_destroy_qp(servers[i]);
	NEED(!rdma_destroy_id(clients[i]), "rdma_destroy_id");
	NEED(!rdma_destroy_id(servers[i]), "rdma_destroy_id");
}

static void live(int i)
{
	make(i);
	unmake(i);
}

static void close_all(void)
{
	NEED(!ibv_destroy_cq(cq), "ibv_destroy_cq");
	NEED(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
	NEED(!rdma_destroy_id(listener), "rdma_destroy_id");
	rdma_destroy_event_channel(asking);
	rdma_destroy_event_channel(answering);
}

/* Outside of the phases: the IPv4 address that is this GID of the device. */
static void find_address(void)
{
	const char *name = getenv("UVERBS_TEST_DEVICE"), *index = getenv("UVERBS_TEST_GID");
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	union ibv_gid gid;

	NEED(list && name && index, "UVERBS_TEST_DEVICE and UVERBS_TEST_GID");
	while (*list && strcmp(ibv_get_device_name(*list), name))
		list++;
	NEED(*list, "no such device");
	NEED(context = ibv_open_device(*list), "ibv_open_device");
	NEED(!ibv_query_gid(context, 1, atoi(index), &gid), "ibv_query_gid");
	memcpy(&here.sin_addr, gid.raw + 12, 4);
	NEED(!ibv_close_device(context), "ibv_close_device");
}

static void all(const char *name, void (*call)(int), int from, int to)
{
	phase(name);
	for (int i = from; i < to; i++)
		call(i);
}

int main(int argc, char **argv)
{
	int count = argc == 3 ? atoi(argv[2]) : 0;

	NEED(count > 0 && count < MOST, "connect calls|times N");
	only_times = !strcmp(argv[1], "times");
	find_address();
	phase("open and listen");
	open_and_listen();
	all("connection", live, 0, 1);
	all("connection, further", live, 1, count + 1);
	phase("close");
	close_all();
	phase("end");
	print_times();
	return 0;
}
