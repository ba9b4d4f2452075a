/*
 * Connections by librdmacm, both ends in one thread, for a tracer that counts the calls between phase marks.
 * Counterpart with the same steps in Rust: src/bin/connect_path.rs.
 *
 *	connect calls N		connects and disconnects once, then N times more, one after the other
 *	connect times N		the same without marks; prints the nanoseconds of each phase
 *
 * UVERBS_TEST_DEVICE, UVERBS_TEST_GID and UVERBS_TEST_ADDRESS name the address (connecting.h).
 */
#include "connecting.h"

#define MOST 4096
#define PATIENCE 2000 /* milliseconds */

static struct rdma_event_channel *asking, *answering;
static struct rdma_cm_id *listener, *clients[MOST], *servers[MOST];
static struct sockaddr_in here = { .sin_family = AF_INET };
static struct ibv_pd *pd;
static struct ibv_cq *cq;

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
	NEED(!rdma_create_id(asking, &clients[i], NULL, RDMA_PS_TCP), "rdma_create_id");
	NEED(!rdma_resolve_addr(clients[i], NULL, (struct sockaddr *)&here, PATIENCE), "rdma_resolve_addr");
	expect(asking, RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(!rdma_resolve_route(clients[i], PATIENCE), "rdma_resolve_route");
	expect(asking, RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_qp(clients[i], pd, cq);
	NEED(!rdma_connect(clients[i], &param), "rdma_connect");
	servers[i] = expect(answering, RDMA_CM_EVENT_CONNECT_REQUEST);
	create_qp(servers[i], pd, cq);
	NEED(!rdma_accept(servers[i], &param), "rdma_accept");
	expect(asking, RDMA_CM_EVENT_ESTABLISHED);
	expect(answering, RDMA_CM_EVENT_ESTABLISHED);
}

static void unmake(int i)
{
	NEED(!rdma_disconnect(clients[i]), "rdma_disconnect");
	expect(answering, RDMA_CM_EVENT_DISCONNECTED);
	NEED(!rdma_disconnect(servers[i]), "rdma_disconnect");
	expect(asking, RDMA_CM_EVENT_DISCONNECTED);
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
	find_address(&here.sin_addr);
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
