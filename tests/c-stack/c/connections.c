/*
 * Connections by librdmacm, one after the other, client and server in a process each. Its twin in Rust is
 * src/bin/connections.rs.
 *
 *	connections server calls|times N PORT	accepts N + 1 connections, and hears how each ends
 *	connections client calls|times N PORT	makes as many, and ends each
 *
 * The first one stands for itself. `calls` is for a tracer, which counts what is done for the others; `times` prints how
 * many nanoseconds it took until each stood, and all of them together. UVERBS_TEST_DEVICE names the device;
 * UVERBS_TEST_GID is the index of a GID that is an IPv4 address, or UVERBS_TEST_ADDRESS is the address.
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "phases.h"

#define MOST 4096
#define PATIENCE 20000 /* milliseconds */

static struct rdma_event_channel *channel;
static struct sockaddr_in server = { .sin_family = AF_INET };
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* The next event's kind. Gives its id. */
static enum rdma_cm_event_type next(struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;

	NEED(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	type = event->event;
	*id = event->id;
	NEED(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
	return type;
}

static struct rdma_cm_id *expect(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type = next(&id);

	if (type != wanted) {
		fprintf(stderr, "connections: %s, not %s\n", rdma_event_str(type), rdma_event_str(wanted));
		exit(1);
	}
	return id;
}

/* The device is the same for all connections. */
static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (!pd) {
		NEED(pd = ibv_alloc_pd(id->verbs), "ibv_alloc_pd");
		NEED(cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0), "ibv_create_cq");
	}
	init.send_cq = init.recv_cq = cq;
	NEED(!rdma_create_qp(id, pd, &init), "rdma_create_qp");
}

static void destroy(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	NEED(!rdma_destroy_id(id), "rdma_destroy_id");
}

/* The connection; NULL if nobody listens yet. */
static struct rdma_cm_id *make(void)
{
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;

	NEED(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, PATIENCE), "rdma_resolve_addr");
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(!rdma_resolve_route(id, PATIENCE), "rdma_resolve_route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_qp(id);
	if (!rdma_connect(id, &param)) {
		type = next(&id);
		if (type == RDMA_CM_EVENT_ESTABLISHED)
			return id;
		NEED(type == RDMA_CM_EVENT_REJECTED, rdma_event_str(type));
	}
	destroy(id);
	return NULL;
}

static void end(struct rdma_cm_id *id)
{
	NEED(!rdma_disconnect(id), "rdma_disconnect");
	expect(RDMA_CM_EVENT_DISCONNECTED);
	destroy(id);
}

static void ask(int count)
{
	struct rdma_cm_id *first;
	static long long took[MOST];

	while (!(first = make()))
		usleep(20000);
	end(first);
	phase("client, further");
	for (int i = 0; i < count; i++) {
		long long began = only_times ? now() : 0;
		struct rdma_cm_id *id;

		NEED(id = make(), "refused");
		if (only_times)
			took[i] = now() - began;
		end(id);
	}
	phase("end");
	for (int i = 0; only_times && i < count; i++)
		printf("%lld\n", took[i]);
}

static void serve(void)
{
	struct rdma_cm_id *id = expect(RDMA_CM_EVENT_CONNECT_REQUEST);

	create_qp(id);
	NEED(!rdma_accept(id, &param), "rdma_accept");
	/* The client's end may overtake its last word of the beginning. */
	if (next(&id) == RDMA_CM_EVENT_ESTABLISHED)
		expect(RDMA_CM_EVENT_DISCONNECTED);
	NEED(!rdma_disconnect(id), "rdma_disconnect");
	destroy(id);
}

static void answer(int count)
{
	struct rdma_cm_id *listener;

	NEED(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	NEED(!rdma_bind_addr(listener, (struct sockaddr *)&server), "rdma_bind_addr");
	NEED(!rdma_listen(listener, 16), "rdma_listen");
	serve();
	phase("server, further");
	for (int i = 0; i < count; i++)
		serve();
	phase("close");
	NEED(!rdma_destroy_id(listener), "rdma_destroy_id");
	phase("end");
}

static void find_address(void)
{
	const char *name = getenv("UVERBS_TEST_DEVICE"), *index = getenv("UVERBS_TEST_GID"), *own = getenv("UVERBS_TEST_ADDRESS");
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	union ibv_gid gid;

	if (own) {
		NEED(inet_pton(AF_INET, own, &server.sin_addr) == 1, "UVERBS_TEST_ADDRESS");
		return;
	}
	NEED(list && name && index, "UVERBS_TEST_DEVICE and UVERBS_TEST_GID");
	while (*list && strcmp(ibv_get_device_name(*list), name))
		list++;
	NEED(*list, "no such device");
	NEED(context = ibv_open_device(*list), "ibv_open_device");
	NEED(!ibv_query_gid(context, 1, atoi(index), &gid), "ibv_query_gid");
	memcpy(&server.sin_addr, gid.raw + 12, 4);
	NEED(!ibv_close_device(context), "ibv_close_device");
}

int main(int argc, char **argv)
{
	NEED(argc == 5 && atoi(argv[3]) <= MOST, "connections server|client calls|times N PORT");
	only_times = !strcmp(argv[2], "times");
	find_address();
	server.sin_port = htons(atoi(argv[4]));
	NEED(channel = rdma_create_event_channel(), "rdma_create_event_channel");
	if (!strcmp(argv[1], "server"))
		answer(atoi(argv[3]));
	else
		ask(atoi(argv[3]));
	print_times();
	return 0;
}
