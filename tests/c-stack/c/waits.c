/* Waits and flags of TCP sockets: waits ADDRESS. All as Linux's sockets have it, whichever library
 * is preloaded. */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>

static int bad;

static void check(const char *what, int is)
{
	printf("%s %s\n", is ? "ok" : "WRONG", what);
	bad += !is;
}

static const struct timespec second = { .tv_sec = 10 }, none, wrong = { .tv_nsec = 1000000000 };
static int handled;

static void handler(int signal)
{
	handled += signal == SIGUSR1;
}

/* Waits that a signal ends which came while it was blocked. */
static void interrupted(int fd)
{
	struct pollfd file = { .fd = fd, .events = POLLIN };
	struct epoll_event event = { .events = EPOLLIN }, seen;
	int epoll = epoll_create1(0), way;
	sigset_t mask, none;
	fd_set set;

	sigemptyset(&none);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	for (way = 0; way < 4; way++) {
		int answer, before = handled;

		FD_ZERO(&set);
		FD_SET(fd, &set);
		raise(SIGUSR1);
		errno = 0;
		if (way == 0)
			answer = ppoll(&file, 1, &second, &none);
		else if (way == 1)
			answer = pselect(fd + 1, &set, NULL, NULL, &second, &none);
		else if (way == 2)
			answer = epoll_pwait(epoll, &seen, 1, 10000, &none);
		else
			answer = epoll_pwait2(epoll, &seen, 1, &second, &none);
		check("a signal ends it", answer == -1 && errno == EINTR && handled == before + 1);
	}
	sigprocmask(SIG_UNBLOCK, &mask, NULL);
	check("no time", ppoll(&file, 1, &wrong, NULL) == -1 && errno == EINVAL);
	check("no time", epoll_pwait2(epoll, &seen, 1, &wrong, NULL) == -1 && errno == EINVAL);
	check("no flag", ioctl(fd, FIONBIO, NULL) == -1 && errno == EFAULT);
	close(epoll);
}

/* Waits in each way until a descriptor is readable. */
static void readable(int fd, int is)
{
	struct pollfd file = { .fd = fd, .events = POLLIN };
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd }, seen;
	const struct timespec *limit = is ? &second : &none;
	int epoll = epoll_create1(0);
	sigset_t mask;
	fd_set set;

	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	check("ppoll", ppoll(&file, 1, limit, &mask) == is && file.revents == (is ? POLLIN : 0));
	FD_ZERO(&set);
	FD_SET(fd, &set);
	check("pselect", pselect(fd + 1, &set, NULL, NULL, limit, &mask) == is && !!FD_ISSET(fd, &set) == is);
	check("epoll_ctl", !epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	check("epoll_pwait", epoll_pwait(epoll, &seen, 1, is ? 10000 : 0, NULL) == is);
	check("epoll_pwait with a mask", epoll_pwait(epoll, &seen, 1, is ? 10000 : 0, &mask) == is);
	check("epoll_pwait2", epoll_pwait2(epoll, &seen, 1, limit, NULL) == is);
	check("its member", !is || seen.data.fd == fd);
	close(epoll);
	check("the mask is as before", !sigprocmask(SIG_BLOCK, NULL, &mask) && !sigismember(&mask, SIGUSR1));
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(7003) };
	int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0), client, accepted;
	struct pollfd file = { .events = POLLOUT };
	char byte;

	if (argc != 2 || !inet_aton(argv[1], &addr.sin_addr))
		return 2;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	check("bind", !bind(listener, (struct sockaddr *)&addr, sizeof addr) && !listen(listener, 4));
	check("FIONBIO", !ioctl(listener, FIONBIO, &on));
	check("nothing to accept", accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
	readable(listener, 0);
	client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	check("connect", !connect(client, (struct sockaddr *)&addr, sizeof addr) || errno == EINPROGRESS);
	readable(listener, 1);
	accepted = accept(listener, NULL, NULL);
	check("accept", accepted >= 0);
	file.fd = client;
	check("writable", poll(&file, 1, 10000) == 1 && file.revents == POLLOUT);
	check("connect once more", !connect(client, (struct sockaddr *)&addr, sizeof addr) || errno == EISCONN);
	check("and again", connect(client, (struct sockaddr *)&addr, sizeof addr) == -1 && errno == EISCONN);
	readable(accepted, 0);
	signal(SIGUSR1, handler);
	interrupted(accepted);
	check("send", send(client, "x", 1, 0) == 1);
	readable(accepted, 1);
	check("recv", recv(accepted, &byte, 1, 0) == 1 && byte == 'x');
	check("FIONBIO of a connection", !ioctl(accepted, FIONBIO, &on)
	      && recv(accepted, &byte, 1, 0) == -1 && errno == EAGAIN);
	on = 0;
	check("FIONBIO off", !ioctl(accepted, FIONBIO, &on));
	check("sendto", sendto(client, "y", 1, 0, (struct sockaddr *)&addr, sizeof addr) == 1);
	check("a wait", recv(accepted, &byte, 1, 0) == 1 && byte == 'y');
	close(client);
	check("the end", recv(accepted, &byte, 1, 0) == 0);
	close(accepted);
	close(listener);
	printf("%d wrong\n", bad);
	return !!bad;
}
