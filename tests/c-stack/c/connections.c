/*
 * Connections by librdmacm one after the other, with a process for client and server each. Counterpart in Rust:
 * src/bin/connections.rs.
 *
 *	connections server calls|times N PORT	accepts N + 1 connections, and waits for each end
 *	connections client calls|times N PORT	makes N + 1 connections, and ends each
 *
 * The first connection is a warm-up. With `calls` a tracer counts the calls of the others; `times` prints the
 * nanoseconds until each was established, and the total. UVERBS_TEST_DEVICE, UVERBS_TEST_GID and UVERBS_TEST_ADDRESS
 * name the address (connecting.h).
 */
#include "connecting.h"

#define MOST 4096
#define PATIENCE 20000 /* milliseconds */

static struct rdma_event_channel *channel;
static struct sockaddr_in server = { .sin_family = AF_INET };
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Creates the objects that all connections share. */
static void equip(struct rdma_cm_id *id)
{
	if (!pd) {
		NEED(pd = ibv_alloc_pd(id->verbs), "ibv_alloc_pd");
		NEED(cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0), "ibv_create_cq");
	}
	create_qp(id, pd, cq);
}

static void destroy(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	NEED(!rdma_destroy_id(id), "rdma_destroy_id");
}

/* Makes a connection; NULL if the server does not listen yet. */
static struct rdma_cm_id *make(void)
{
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;

	NEED(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, PATIENCE), "rdma_resolve_addr");
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(!rdma_resolve_route(id, PATIENCE), "rdma_resolve_route");
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	equip(id);
	if (!rdma_connect(id, &param)) {
		type = next_event(channel, &id);
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
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
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
	struct rdma_cm_id *id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	enum rdma_cm_event_type type;

	equip(id);
	NEED(!rdma_accept(id, &param), "rdma_accept");
	/* If the client's DREQ arrives before its RTU, there is no ESTABLISHED event. */
	type = next_event(channel, &id);
	if (type == RDMA_CM_EVENT_ESTABLISHED)
		type = next_event(channel, &id);
	NEED(type == RDMA_CM_EVENT_DISCONNECTED, rdma_event_str(type));
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

int main(int argc, char **argv)
{
	NEED(argc == 5 && atoi(argv[3]) <= MOST, "connections server|client calls|times N PORT");
	only_times = !strcmp(argv[2], "times");
	find_address(&server.sin_addr);
	server.sin_port = htons(atoi(argv[4]));
	NEED(channel = rdma_create_event_channel(), "rdma_create_event_channel");
	if (!strcmp(argv[1], "server"))
		answer(atoi(argv[3]));
	else
		ask(atoi(argv[3]));
	print_times();
	return 0;
}
