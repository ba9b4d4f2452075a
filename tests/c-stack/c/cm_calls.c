/* Valid and invalid calls of librdmacm, with their error numbers. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

/* Vendor id of a ConnectX's ECE options. */
enum { VENDOR = 0x15b3 };

static int good, bad;

static void check(const char *what, int is)
{
	printf("%s %s (errno %d)\n", is ? "ok" : "WRONG", what, errno);
	is ? good++ : bad++;
}

static int refused(int code, int number)
{
	return code == -1 && errno == number;
}

static struct sockaddr *at(const char *ip, int port)
{
	static struct sockaddr_in addr;

	memset(&addr, 0, sizeof addr);
	addr.sin_family = AF_INET;
	addr.sin_port = htons(port);
	inet_pton(AF_INET, ip, &addr.sin_addr);
	return (struct sockaddr *)&addr;
}

/* Options reported by ibv_query_ece. */
static uint32_t known(struct ibv_qp *qp)
{
	struct ibv_ece ece = { .comp_mask = 7 };

	check("query_ece", !ibv_query_ece(qp, &ece) && ece.vendor_id == VENDOR && !ece.comp_mask);
	return ece.options;
}

static int peer_said(struct rdma_cm_id *id, uint32_t vendor, uint32_t options)
{
	struct ibv_ece ece = { .comp_mask = 7 };

	return !rdma_get_remote_ece(id, &ece) && ece.vendor_id == vendor && ece.options == options && !ece.comp_mask;
}

/* Connects and disconnects two ids on one channel. */
static void connect_and_part(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *client, *server;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_conn_param param = { .private_data = "may I?", .private_data_len = 6 };
	struct ibv_ece ece = { .vendor_id = VENDOR };
	char ip[INET_ADDRSTRLEN];
	uint32_t options;
	int port = ntohs(rdma_get_src_port(listener));

	check("create_id", !rdma_create_id(channel, &client, &init, RDMA_PS_TCP));
	inet_ntop(AF_INET, &listener->route.addr.src_sin.sin_addr, ip, sizeof ip);
	check("resolve_route too early", refused(rdma_resolve_route(client, 100), EINVAL));
	check("resolve_addr", !rdma_resolve_addr(client, NULL, at("127.0.0.1", port), 1000));
	check("get_cm_event", !rdma_get_cm_event(channel, &event)
	      && event->event == RDMA_CM_EVENT_ADDR_RESOLVED && event->id == client
	      && client->verbs && client->port_num == 1 && client->pd);
	rdma_ack_cm_event(event);
	check("create_qp", !rdma_create_qp(client, NULL, &init) && client->qp && client->send_cq);
	options = known(client->qp);
	check("options of a queue pair's device", options);
	check("set_local_ece beside a queue pair", refused(rdma_set_local_ece(client, &ece), EINVAL));
	check("get_remote_ece beside a queue pair", refused(rdma_get_remote_ece(client, &ece), EINVAL));
	check("create_qp twice", refused(rdma_create_qp(client, NULL, &init), EINVAL));
	check("resolve_route", !rdma_resolve_route(client, 1000)
	      && !rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	rdma_ack_cm_event(event);
	param.responder_resources = 0xfe;
	check("connect deeper than the device", refused(rdma_connect(client, &param), EINVAL));
	param.responder_resources = 1;
	check("connect", !rdma_connect(client, &param));
	check("connect request", !rdma_get_cm_event(channel, &event)
	      && event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->listen_id == listener
	      && event->param.conn.private_data_len == 56
	      && !memcmp(event->param.conn.private_data, "may I?", 7)
	      && event->param.conn.initiator_depth == 1);
	server = event->id;
	rdma_ack_cm_event(event);
	init.send_cq = init.recv_cq = NULL;
	check("the client's options", peer_said(server, VENDOR, options));
	check("create_qp of the server", !rdma_create_qp(server, NULL, &init));
	check("asked for with INIT", known(server->qp) == options);
	check("establish is the library's", refused(rdma_establish(server), EINVAL));
	check("accept", !rdma_accept(server, NULL));
	for (int i = 0; i < 2; i++) {
		check("established", !rdma_get_cm_event(channel, &event)
		      && event->event == RDMA_CM_EVENT_ESTABLISHED);
		rdma_ack_cm_event(event);
	}
	check("state", client->qp->state == IBV_QPS_RTS && server->qp->state == IBV_QPS_RTS);
	check("agreed on", known(client->qp) == options && known(server->qp) == options);
	check("disconnect", !rdma_disconnect(client));
	for (int i = 0; i < 2; i++) {
		check("disconnected", !rdma_get_cm_event(channel, &event)
		      && event->event == RDMA_CM_EVENT_DISCONNECTED && !event->status);
		/* The disconnected side must answer, or its peer waits for a minute. */
		if (event->id == server)
			check("disconnect, too", !rdma_disconnect(server));
		rdma_ack_cm_event(event);
	}
	rdma_destroy_qp(client);
	rdma_destroy_qp(server);
	check("destroy", !client->qp && !client->send_cq && !rdma_destroy_id(client)
	      && !rdma_destroy_id(server));
}

/* Waits for the next event, which must be this one; returns its id. */
static struct rdma_cm_id *hears(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	check("get_cm_event", !rdma_get_cm_event(channel, &event) && event->event == type && !event->status);
	id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

/* ECE options of programs that create queue pairs by ibv_create_qp, and the reply to another vendor's options. */
static void options_by_hand(struct rdma_event_channel *channel, struct rdma_cm_id *listener, uint32_t vendor)
{
	struct ibv_ece wrong[] = { { 0, 1, 0 }, { vendor, 1, 1 } }, asks = { vendor, 0x1234, 0 }, answers = { vendor, 0x34, 0 };
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_conn_param param = { .qp_num = 0x123 };
	int port = ntohs(rdma_get_src_port(listener)), managed = vendor != VENDOR;
	struct rdma_cm_id *client, *server;

	check("create_id", !rdma_create_id(channel, &client, NULL, RDMA_PS_TCP));
	check("options of no id", refused(rdma_set_local_ece(NULL, &asks), EINVAL)
	      && refused(rdma_get_remote_ece(NULL, &asks), EINVAL));
	check("no options", refused(rdma_set_local_ece(client, NULL), EINVAL)
	      && refused(rdma_get_remote_ece(client, NULL), EINVAL));
	for (int i = 0; i < 2; i++)
		check("wrong options", refused(rdma_set_local_ece(client, &wrong[i]), EINVAL));
	check("nobody said any", peer_said(client, 0, 0));
	check("set_local_ece", !rdma_set_local_ece(client, &asks));
	check("resolve_addr", !rdma_resolve_addr(client, NULL, at("127.0.0.1", port), 1000));
	hears(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	check("resolve_route", !rdma_resolve_route(client, 1000));
	hears(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	check("connect", !rdma_connect(client, &param));
	server = hears(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	check("what was asked for", peer_said(server, vendor, asks.options));
	if (managed) {
		/* Another vendor's options enable none here, and the reply carries the received vendor id. */
		check("create_qp", !rdma_create_qp(server, NULL, &init));
		check("none asked for", known(server->qp) == 0);
		answers.options = 0;
		check("accept", !rdma_accept(server, NULL));
	} else {
		check("set_local_ece", !rdma_set_local_ece(server, &answers));
		param.qp_num = 0x456;
		check("accept", !rdma_accept(server, &param));
	}
	check("answered", hears(channel, RDMA_CM_EVENT_CONNECT_RESPONSE) == client && peer_said(client, vendor, answers.options));
	check("establish", !rdma_establish(client));
	hears(channel, RDMA_CM_EVENT_ESTABLISHED);
	check("disconnect", !rdma_disconnect(client) && !rdma_disconnect(server));
	hears(channel, RDMA_CM_EVENT_DISCONNECTED);
	hears(channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(server);
	check("destroy", !rdma_destroy_id(client) && !rdma_destroy_id(server));
}

/* Memory that the program put into a result is freed with it, as in C's library. */
static void free_all(void)
{
	enum { SIZE = 1 << 20 };
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST }, *found;
	size_t before = mallinfo2().hblkhd;

	check("getaddrinfo", !rdma_getaddrinfo("10.1.2.3", "7471", &hints, &found));
	found->ai_src_canonname = malloc(SIZE);
	found->ai_dst_canonname = malloc(SIZE);
	found->ai_route = malloc(SIZE);
	found->ai_connect = malloc(SIZE);
	check("large pieces are mapped", mallinfo2().hblkhd >= before + 4 * SIZE);
	rdma_freeaddrinfo(found);
	check("freeaddrinfo frees names, route and private data", mallinfo2().hblkhd == before);
}

/* The family of the hints is used, with and without the flag for it. */
static void families(void)
{
	for (int i = 0; i < 4; i++) {
		int family = i & 1 ? AF_INET6 : AF_INET;
		struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE | (i & 2 ? RAI_FAMILY : 0), .ai_family = family }, *found;

		check("getaddrinfo of a family", !rdma_getaddrinfo(NULL, "7471", &hints, &found));
		check("its family", found->ai_family == family && found->ai_src_addr->sa_family == family);
		rdma_freeaddrinfo(found);
	}
}

/* Constants of rdma-core 59 and later, missing in the headers of 44. */
static const unsigned ADDRINFO_RESOLVED = 16, ADDRINFO_ERROR = 17, USER = 18, INTERNAL = 19;
enum { SA = 0x10, DNS = 0x20 };

/* Addresses resolved with an event. */
static void resolve_names(struct rdma_event_channel *channel)
{
	int (*resolve)(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *);
	int (*query)(struct rdma_cm_id *, struct rdma_addrinfo **);
	int (*write)(struct rdma_cm_id *, int, int, uint64_t);
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_UDP };
	struct rdma_addrinfo by_subnet = { .ai_flags = SA }, both = { .ai_flags = SA | DNS }, *found;
	struct rdma_cm_id *id, *waits;
	struct rdma_cm_event *event;
	struct sockaddr_in *to;
	uint64_t arg;

	*(void **)&resolve = dlvsym(RTLD_DEFAULT, "rdma_resolve_addrinfo", "RDMACM_1.4");
	*(void **)&query = dlvsym(RTLD_DEFAULT, "rdma_query_addrinfo", "RDMACM_1.4");
	*(void **)&write = dlvsym(RTLD_DEFAULT, "rdma_write_cm_event", "RDMACM_1.4");
	rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);
	check("resolve of no id", refused(resolve(NULL, "10.1.2.3", "7471", &hints), EINVAL));
	check("query of no id", refused(query(NULL, &found), EINVAL));
	check("query to nowhere", refused(query(id, NULL), EINVAL));
	check("query of nothing", refused(query(id, &found), ENOENT));
	check("resolve in both ways", refused(resolve(id, NULL, "7471", &both), EOPNOTSUPP));
	check("a service of a node", refused(resolve(id, "10.1.2.3", "7471", &by_subnet), EOPNOTSUPP));
	check("no service", refused(resolve(id, NULL, NULL, &by_subnet), EINVAL));
	check("a service without a device", refused(resolve(id, NULL, "disks", &by_subnet), EINVAL));
	check("a name that nobody has", refused(resolve(id, "nobody", "7471", &hints), -2));
	check("nothing was found", refused(query(id, &found), ENOENT));
	check("resolve", !resolve(id, "10.1.2.3", "7471", &hints));
	check("resolve twice", refused(resolve(id, "10.1.2.3", "7471", &hints), EBUSY));
	check("resolved", !rdma_get_cm_event(channel, &event) && event->event == ADDRINFO_RESOLVED
	      && event->id == id && !event->status && !event->param.conn.private_data);
	rdma_ack_cm_event(event);
	check("query", !query(id, &found) && found->ai_dst_len == sizeof *to && !found->ai_next);
	to = (struct sockaddr_in *)found->ai_dst_addr;
	check("its address", to->sin_family == AF_INET && to->sin_port == htons(7471)
	      && to->sin_addr.s_addr == htonl(0x0a010203) && found->ai_qp_type == IBV_QPT_UD);
	rdma_freeaddrinfo(found);
	check("query twice", refused(query(id, &found), ENOENT));
	/* The device's address, from which it reaches itself. */
	rdma_create_id(NULL, &waits, NULL, RDMA_PS_TCP);
	check("find an address", !rdma_resolve_addr(waits, NULL, at("127.0.0.1", 7471), 1000));
	waits->route.addr.src_sin.sin_port = 0;
	check("bind to it", !rdma_bind_addr(id, &waits->route.addr.src_addr));
	rdma_destroy_id(waits);
	check("no subnet administration", refused(resolve(id, NULL, "0x10", &by_subnet), EOPNOTSUPP));
	check("getaddrinfo of a service", refused(rdma_getaddrinfo(NULL, "disks", &by_subnet, &found),
						  EOPNOTSUPP));
	check("events of the library's", refused(write(id, INTERNAL, 0, 16), EINVAL)
	      && refused(write(id, ADDRINFO_ERROR, 0, 0), EINVAL));
	check("an event of one's own", !write(id, USER, -5, UINT64_MAX - 1)
	      && !rdma_get_cm_event(channel, &event) && event->event == USER
	      && event->id == id && event->status == -5);
	memcpy(&arg, &event->param, sizeof arg);
	check("its argument", arg == UINT64_MAX - 1);
	rdma_ack_cm_event(event);
	check("events of addresses", !strcmp(rdma_event_str(ADDRINFO_RESOLVED), "RDMA_CM_EVENT_ADDRINFO_RESOLVED")
	      && !strcmp(rdma_event_str(ADDRINFO_ERROR), "RDMA_CM_EVENT_ADDRINFO_ERROR"));
	check("resolve anew", !resolve(id, "10.1.2.3", "7471", NULL)
	      && !rdma_get_cm_event(channel, &event));
	rdma_ack_cm_event(event);
	check("destroy with an answer", !rdma_destroy_id(id));
	check("a call that waits", !rdma_create_id(NULL, &waits, NULL, RDMA_PS_UDP)
	      && !resolve(waits, "10.1.2.3", "7471", &hints)
	      && waits->event->event == ADDRINFO_RESOLVED && !query(waits, &found));
	rdma_freeaddrinfo(found);
	rdma_destroy_id(waits);
}

static atomic_int entered, returned;

static void *hears_for_ever(void *channel)
{
	struct rdma_cm_event *event;

	entered++;
	rdma_get_cm_event(channel, &event);
	returned++;
	return NULL;
}

/* A program that ends destroys a channel that a thread waits for, or is about to: the thread sleeps, as in Linux. */
static void destroyed_in_use(void)
{
	enum { ROUNDS = 200 };
	pthread_t threads[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_event_channel *channel = rdma_create_event_channel();

		pthread_create(&threads[i], NULL, hears_for_ever, channel);
		while (entered == i)
			;
		rdma_destroy_event_channel(channel);
	}
	usleep(10000);
	check("none is woken", entered == ROUNDS && !returned);
	for (int i = 0; i < ROUNDS; i++) {
		pthread_cancel(threads[i]);
		pthread_join(threads[i], NULL);
	}
}

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener, *id;
	struct rdma_cm_event *event;
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_UDP }, *found;
	struct ibv_context **devices;
	int count = 0;

	check("create_event_channel", channel && channel->fd >= 0);
	check("create_id of no port space", refused(rdma_create_id(channel, &id, NULL, 7), EINVAL));
	check("create_id", !rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP)
	      && listener->channel == channel && listener->qp_type == IBV_QPT_RC);
	check("bind_addr to another's", refused(rdma_bind_addr(listener, at("192.0.2.1", 0)), EADDRNOTAVAIL));
	check("bind_addr", !rdma_bind_addr(listener, at("0.0.0.0", 0)) && rdma_get_src_port(listener));
	check("get_request of an asynchronous one", refused(rdma_get_request(listener, &id), EINVAL));
	check("listen", !rdma_listen(listener, 3));
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	check("no event", refused(rdma_get_cm_event(channel, &event), EAGAIN));
	fcntl(channel->fd, F_SETFL, 0);
	check("ack of nothing", refused(rdma_ack_cm_event(NULL), EINVAL));
	check("leave a group", refused(rdma_leave_multicast(listener, at("239.0.0.1", 0)), EADDRNOTAVAIL));
	check("event_str", !strcmp(rdma_event_str(RDMA_CM_EVENT_REJECTED), "RDMA_CM_EVENT_REJECTED")
	      && !strcmp(rdma_event_str(99), "UNKNOWN EVENT"));
	destroyed_in_use();
	connect_and_part(channel, listener);
	options_by_hand(channel, listener, VENDOR);
	options_by_hand(channel, listener, VENDOR + 1);
	check("destroy_id", !rdma_destroy_id(listener));
	check("getaddrinfo", !rdma_getaddrinfo("10.1.2.3", "7471", &hints, &found)
	      && found->ai_qp_type == IBV_QPT_UD && found->ai_dst_len == sizeof(struct sockaddr_in)
	      && !found->ai_src_addr);
	rdma_freeaddrinfo(found);
	free_all();
	families();
	resolve_names(channel);
	check("getaddrinfo of a name", rdma_getaddrinfo("nobody", "7471", &hints, &found));
	devices = rdma_get_devices(&count);
	check("get_devices", devices && count == 1 && devices[0] && !devices[1]);
	rdma_free_devices(devices);
	rdma_destroy_event_channel(channel);
	printf("%d checks, %d failed\n", good, bad);
	return bad != 0;
}
