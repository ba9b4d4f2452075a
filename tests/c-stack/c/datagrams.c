/*
 * Datagram sockets of librdmacm (rsocket, SOCK_DGRAM): a server that echoes each datagram, and a client that repeats
 * lost ones. Counterpart in Rust: adapters/streams/examples/datagrams.rs; each works with the other.
 *
 *	datagrams server ADDRESS
 *	datagrams client ADDRESS
 *
 * librdmacm (44.0 to 65, `ds_add_qp_dest`) creates an address handle of its port without a global route. RoCE refuses
 * it, so none of librdmacm's datagram programs runs there. ibv_create_ah below adds the route.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 7175
#define COUNT 200
#define LONGEST 1000
#define LOST 200 /* milliseconds */
#define END 0xffffffffu

#define NEED(condition, what)                                              \
	do {                                                               \
		if (!(condition)) {                                        \
			fprintf(stderr, "%s: %s\n", what, strerror(errno)); \
			exit(1);                                           \
		}                                                          \
	} while (0)

/* Finds the RoCE v2 GID of an IPv4 address: the higher index of two equal GIDs. */
static int own_gid(struct ibv_context *context, int port, union ibv_gid *found)
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
	int index = -1;
	union ibv_gid gid;

	for (int i = 0; i < 16; i++)
		if (!ibv_query_gid(context, port, i, &gid) && !memcmp(gid.raw, mapped, 12)) {
			*found = gid;
			index = i;
		}
	return index;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *(*real)(struct ibv_pd *, struct ibv_ah_attr *);
	int index;

	*(void **)&real = dlvsym(RTLD_NEXT, "ibv_create_ah", "IBVERBS_1.1");
	NEED(real, "ibv_create_ah");
	if (!attr->is_global) {
		index = own_gid(pd->context, attr->port_num, &attr->grh.dgid);
		NEED(index >= 0, "a GID that is an IPv4 address");
		attr->is_global = 1;
		attr->grh.sgid_index = index;
		attr->grh.hop_limit = 64;
	}
	return real(pd, attr);
}

static int comes(int socket, int limit)
{
	struct pollfd file = { .fd = socket, .events = POLLIN };

	return rpoll(&file, 1, limit) > 0;
}

static void serve(int socket)
{
	struct sockaddr_in from;
	socklen_t length;
	unsigned char room[2048];
	unsigned count = 0, number = 0;
	ssize_t size;

	while (number != END && comes(socket, 10000)) {
		length = sizeof from;
		size = rrecvfrom(socket, room, sizeof room, 0, (struct sockaddr *)&from, &length);
		NEED(size >= 4, "rrecvfrom");
		NEED(rsendto(socket, room, size, 0, (struct sockaddr *)&from, length) == size, "rsendto");
		memcpy(&number, room, 4);
		number = ntohl(number);
		count++;
	}
	NEED(count, "no client came");
	printf("server  sent %u datagrams back\n", count);
}

static int comes_back(int socket, const unsigned char *data, ssize_t size)
{
	unsigned char room[2048];
	ssize_t came;

	NEED(rsend(socket, data, size, 0) == size, "rsend");
	while (comes(socket, LOST)) {
		came = rrecv(socket, room, sizeof room, MSG_DONTWAIT);
		if (came < 4 || memcmp(room, data, 4))
			continue;
		NEED(came == size && !memcmp(room, data, size), "a datagram came back changed");
		return 1;
	}
	return 0;
}

static void ask(int socket)
{
	unsigned char data[LONGEST];
	unsigned lost = 0, number, word;
	size_t size;

	for (unsigned i = 0; i <= COUNT; i++) {
		number = i < COUNT ? i : END;
		size = 4 + (size_t)number * 37 % (LONGEST - 4);
		for (size_t at = 0; at < size; at++)
			data[at] = at ^ number;
		word = htonl(number);
		memcpy(data, &word, 4);
		while (!comes_back(socket, data, size))
			if (++lost > 50) {
				fprintf(stderr, "the server doesn't answer\n");
				exit(1);
			}
	}
	printf("client  %u datagrams came back, and %u were asked for again\n", COUNT, lost);
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int socket;

	NEED(argc == 3 && inet_pton(AF_INET, argv[2], &addr.sin_addr) == 1, "datagrams server|client ADDRESS");
	NEED((socket = rsocket(AF_INET, SOCK_DGRAM, 0)) >= 0, "rsocket");
	if (!strcmp(argv[1], "server")) {
		NEED(!rbind(socket, (struct sockaddr *)&addr, sizeof addr), "rbind");
		serve(socket);
	} else {
		NEED(!rconnect(socket, (struct sockaddr *)&addr, sizeof addr), "rconnect");
		ask(socket);
	}
	NEED(!rclose(socket), "rclose");
	return 0;
}
