/* Valid and invalid calls of rsocket.h, with their error numbers. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <rdma/rsocket.h>

static int good, bad;

static void check(const char *what, int is)
{
	printf("%s %s (errno %d)\n", is ? "ok" : "WRONG", what, errno);
	is ? good++ : bad++;
}

static int refused(ssize_t code, int number)
{
	return code == -1 && errno == number;
}

static struct sockaddr_in at(int port)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(port) };

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return addr;
}

/* Server's side of a blocking call, on a second thread. */
static int listener, accepted;
static char mapped[4096];

static void *server(void *unused)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	char room[16];

	accepted = raccept(listener, (struct sockaddr *)&peer, &len);
	check("raccept", accepted >= 0 && len == sizeof peer && peer.sin_family == AF_INET);
	/* Ten of the twelve bytes, at once. */
	check("MSG_WAITALL", rrecv(accepted, room, 10, MSG_WAITALL) == 10
	      && !memcmp(room, "0123456789", 10));
	check("rsend", rsend(accepted, "answer", 6, 0) == 6);
	return unused;
}

/* A datagram socket that sends to itself. */
static void datagrams(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET }, from;
	char room[8], long_one[4096] = "";
	struct iovec pieces[] = { { room, 2 }, { room + 4, 4 } };
	struct msghdr msg = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = pieces, .msg_iovlen = 2 };
	int fd = rsocket(AF_INET, SOCK_DGRAM, IPPROTO_UDP), type = 0;
	socklen_t len = sizeof type, size = sizeof from;

	check("rsocket of datagrams", fd >= 0);
	check("SO_TYPE", !rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_DGRAM);
	check("rbind of datagrams", !rbind(fd, (struct sockaddr *)&addr, sizeof addr));
	check("once", refused(rbind(fd, (struct sockaddr *)&addr, sizeof addr), EINVAL));
	check("no listening", refused(rlisten(fd, 1), ENOTSUP));
	check("to nobody", refused(rsend(fd, "x", 1, 0), EDESTADDRREQ));
	check("no peer", refused(rgetpeername(fd, (struct sockaddr *)&from, &size), ENOTCONN));
	check("nothing came", refused(rrecv(fd, room, sizeof room, MSG_DONTWAIT), EAGAIN));
	len = sizeof addr;
	check("its address", !rgetsockname(fd, (struct sockaddr *)&addr, &len) && addr.sin_port);
	check("rconnect of datagrams", !rconnect(fd, (struct sockaddr *)&addr, sizeof addr));
	check("too long", refused(rsend(fd, long_one, sizeof long_one, 0), EMSGSIZE));
	check("to itself", rsend(fd, "abc", 3, 0) == 3);
	check("a look", rrecv(fd, room, sizeof room, MSG_PEEK) == 3);
	size = sizeof from;
	check("from itself", rrecvfrom(fd, room, 2, 0, (struct sockaddr *)&from, &size) == 2 && !memcmp(room, "ab", 2));
	check("its sender", from.sin_port == addr.sin_port && from.sin_addr.s_addr == addr.sin_addr.s_addr);
	memcpy(room, "in..piec", 8);
	check("in pieces", rsendmsg(fd, &(struct msghdr){ .msg_iov = pieces, .msg_iovlen = 2 }, 0) == 6);
	memset(room, 0, sizeof room);
	check("into pieces", rrecvmsg(fd, &msg, 0) == 6 && !memcmp(room, "in\0\0piec", 8));
	check("its end", !rclose(fd));
}

static void before(void)
{
	struct sockaddr_in addr = at(1);
	int value, fd;
	socklen_t len = sizeof value;
	char byte = 0;

	check("no socket", refused(rsend(-1, &byte, 1, 0), EBADF));
	check("a file", refused(rrecv(0, &byte, 1, 0), EBADF));
	check("datagrams by TCP", refused(rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), ENOTSUP));
	check("raw packets", refused(rsocket(AF_INET, SOCK_RAW, 0), ENOTSUP));
	check("another family", refused(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP));
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	check("rsocket", fd >= 0);
	check("not connected", refused(rsend(fd, &byte, 1, 0), ENOTCONN));
	check("not listening", refused(raccept(fd, NULL, NULL), EBADF));
	value = 1 << 16;
	check("SO_SNDBUF", !rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, sizeof value));
	value = 100;
	check("RDMA_INLINE", !rsetsockopt(fd, SOL_RDMA, RDMA_INLINE, &value, sizeof value));
	value = 5;
	check("RDMA_IOMAPSIZE", !rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &value, sizeof value)
	      && !rgetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &value, &len) && value == 8);
	value = 0;
	check("TCP_KEEPIDLE of 0",
	      refused(rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value), EINVAL));
	check("an unknown option",
	      refused(rsetsockopt(fd, SOL_SOCKET, SO_BROADCAST, &value, sizeof value), ENOTSUP));
	check("flags", !rfcntl(fd, F_SETFL, O_NONBLOCK) && rfcntl(fd, F_GETFL) == O_NONBLOCK);
	/* No program listens there. */
	check("rconnect", refused(rconnect(fd, (struct sockaddr *)&addr, sizeof addr), EINPROGRESS));
	struct pollfd poll = { .fd = fd, .events = POLLOUT };
	check("rpoll", rpoll(&poll, 1, 20000) == 1 && poll.revents & POLLERR);
	check("SO_ERROR", !rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len) && value == ECONNREFUSED);
	check("SO_ERROR once", !rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len) && value == 0);
	check("rclose", !rclose(fd) && refused(rclose(fd), EBADF));
}

static int connected(void)
{
	struct sockaddr_in addr = at(0);
	socklen_t len = sizeof addr;
	pthread_t thread;
	int client, value = 8;
	char room[16];

	listener = rsocket(AF_INET, SOCK_STREAM, 0);
	rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &value, sizeof value);
	check("rbind", !rbind(listener, (struct sockaddr *)&addr, sizeof addr));
	check("rlisten", !rlisten(listener, 1));
	check("rgetsockname", !rgetsockname(listener, (struct sockaddr *)&addr, &len) && addr.sin_port);
	struct pollfd files[] = { { .fd = listener, .events = POLLIN }, { .fd = -1 } };
	check("rpoll of nobody", rpoll(files, 2, 50) == 0);

	pthread_create(&thread, NULL, server, NULL);
	client = rsocket(AF_INET, SOCK_STREAM, 0);
	check("rconnect", !rconnect(client, (struct sockaddr *)&addr, sizeof addr));
	check("rconnect twice", refused(rconnect(client, (struct sockaddr *)&addr, sizeof addr), EISCONN));
	addr.sin_port = 0;
	check("rgetpeername", !rgetpeername(client, (struct sockaddr *)&addr, &len) && addr.sin_port);
	check("nothing there", refused(rrecv(client, room, sizeof room, MSG_DONTWAIT), EAGAIN));
	struct iovec out[] = { { "01234", 5 }, { "", 0 }, { "56789ab", 7 } };
	check("rwritev", rwritev(client, out, 3) == 12);
	struct pollfd poll = { .fd = client, .events = POLLIN };
	check("rpoll of a stream", rpoll(&poll, 1, 20000) == 1 && poll.revents == POLLIN);
	check("MSG_PEEK", rrecv(client, room, 3, MSG_PEEK) == 3 && !memcmp(room, "ans", 3));
	char one[2], other[8];
	struct iovec in[] = { { one, 2 }, { other, 8 } };
	check("rreadv", rreadv(client, in, 2) == 6 && !memcmp(one, "an", 2) && !memcmp(other, "swer", 4));
	pthread_join(thread, NULL);
	check("the rest", rread(accepted, room, sizeof room) == 2 && !memcmp(room, "ab", 2));
	return client;
}

static void select_and_files(int client)
{
	struct timeval no_time = { 0, 0 };
	fd_set reading, writing;
	int ends[2];

	FD_ZERO(&reading);
	FD_ZERO(&writing);
	FD_SET(client, &reading);
	FD_SET(client, &writing);
	check("rselect", rselect(client + 1, &reading, &writing, NULL, &no_time) == 1
	      && !FD_ISSET(client, &reading) && FD_ISSET(client, &writing));
	/* A file and a socket in one call. */
	check("pipe", !pipe(ends) && write(ends[1], "x", 1) == 1);
	struct pollfd both[] = { { .fd = client, .events = POLLIN }, { .fd = ends[0], .events = POLLIN } };
	check("rpoll of both", rpoll(both, 2, -1) == 1 && !both[0].revents && both[1].revents == POLLIN);
}

static void mapping(int client)
{
	int tries = 0;

	check("riomap", riomap(client, mapped, sizeof mapped, PROT_WRITE, 0, 100) == 100);
	check("riomap for reading", refused(riomap(client, mapped, 1, PROT_READ, 0, 0), EINVAL));
	while (riowrite(accepted, "written", 7, 150, 0) != 7 && tries++ < 1000)
		usleep(1000);
	for (tries = 0; ((volatile char *)mapped)[56] != 'n' && tries < 10000; tries++)
		usleep(1000);
	check("riowrite", !memcmp(mapped + 50, "written", 7));
	check("riowrite nowhere", riowrite(accepted, "x", 1, 100 + sizeof mapped, 0) == 0);
	check("riounmap", !riounmap(client, mapped, sizeof mapped));
	check("riounmap twice", refused(riounmap(client, mapped, sizeof mapped), EINVAL));
}

/* sockets: stream sockets. sockets datagrams: datagram sockets, on a device of the loopback network. */
int main(int argc, char **argv)
{
	char room[16];
	int client, value = 1;

	if (argc == 2 && !strcmp(argv[1], "datagrams")) {
		datagrams();
		printf("%d checks, %d failed\n", good, bad);
		return bad != 0;
	}
	before();
	client = connected();
	select_and_files(client);
	mapping(client);
	check("SO_KEEPALIVE", !rsetsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
	check("RDMA_SQSIZE, too late",
	      refused(rsetsockopt(client, SOL_RDMA, RDMA_SQSIZE, &value, sizeof value), EINVAL));
	check("rshutdown", !rshutdown(client, SHUT_WR) && refused(rsend(client, "x", 1, 0), EPIPE));
	check("the end", rrecv(accepted, room, sizeof room, 0) == 0);
	check("the other way", rsend(accepted, "x", 1, 0) == 1 && rrecv(client, room, 1, 0) == 1);
	check("rclose", !rclose(accepted) && rrecv(client, room, 1, 0) == 0);
	struct pollfd poll = { .fd = client, .events = POLLIN | POLLOUT };
	check("POLLHUP", rpoll(&poll, 1, 20000) == 1 && poll.revents & POLLHUP);
	check("rclose of the others", !rclose(client) && !rclose(listener));
	printf("%d checks, %d failed\n", good, bad);
	return bad != 0;
}
