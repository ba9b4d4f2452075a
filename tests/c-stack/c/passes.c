/* Threads that are cancelled in libc calls on a pipe, without RDMA: functions that librspreload interposes are the same
 * cancellation points as without it. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

static int file, set, cleaned;
static char byte;

static void clean_up(void *unused)
{
	(void)unused;
	cleaned++;
}

static void *wait_in(void *call)
{
	pthread_cleanup_push(clean_up, NULL);
	((void (*)(void))call)();
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancelled(const char *name, void (*call)(void))
{
	struct timespec limit;
	pthread_t thread;
	void *answer = NULL;

	cleaned = 0;
	pthread_create(&thread, NULL, wait_in, (void *)call);
	usleep(50000);
	pthread_cancel(thread);
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 20;
	if (pthread_timedjoin_np(thread, &answer, &limit)) {
		check(name, 1, 0);
		exit(checked());
	}
	check(name, answer == PTHREAD_CANCELED, 1);
	check("the clean-up handler", cleaned, 1);
}

static void reads(void)
{
	if (read(file, &byte, 1))
		byte = 0;
}

static void reads_pieces(void)
{
	struct iovec room = { &byte, 1 };

	if (readv(file, &room, 1))
		byte = 0;
}

static void receives(void)
{
	recv(file, &byte, 1, 0);
}

static void polls(void)
{
	struct pollfd one = { .fd = file, .events = POLLIN };

	poll(&one, 1, -1);
}

static void selects(void)
{
	fd_set files;

	FD_ZERO(&files);
	FD_SET(file, &files);
	select(file + 1, &files, NULL, NULL, NULL);
}

static void waits(void)
{
	struct epoll_event event = { .events = EPOLLIN };

	epoll_ctl(set, EPOLL_CTL_ADD, file, &event);
	epoll_wait(set, &event, 1, -1);
}

int main(void)
{
	int files[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, files))
		return 1;
	file = files[0];
	set = epoll_create1(0);
	cancelled("read", reads);
	cancelled("readv", reads_pieces);
	cancelled("recv", receives);
	cancelled("poll", polls);
	cancelled("select", selects);
	cancelled("epoll_wait", waits);
	return checked();
}
