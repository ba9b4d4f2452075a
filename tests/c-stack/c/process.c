/* Effects of the library on a process (docs/PROCESS.md): a check per line there, before any library is initialised,
 * with the library loaded, with a device open, after messages, and with the device closed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "checks.h"

enum { PORT = 1, SIGNALS = 65, FILES = 256, PATIENCE = 20, MANY = 2000, ODD_ERRNO = 4711 };

/* State of the process, and of its first thread. */
struct state {
	void (*handlers[SIGNALS])(int);
	int flags[SIGNALS];
	sigset_t mask;
	stack_t stack;
	mode_t umask;
	struct itimerval timer;
	int dumpable, slack, name_sum, environment, cancel_state, cancel_type;
	char folder[4096], locale[256], name[16];
	char files[FILES];
	int threads, children;
	long locked;
};

extern char **environ;
/* Environment as passed to the program; libc's variable is set later. */
static char **given;
static struct state before, now;

static long number_in(const char *path, const char *name)
{
	char line[512];
	long found = -1;
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			found = strtol(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return found;
}

/* Sum of all bytes of the environment. */
static int sum_of_environment(void)
{
	int sum = 0;

	for (char **entry = environ ? environ : given; *entry; entry++)
		for (char *byte = *entry; *byte; byte++)
			sum = sum * 31 + *byte;
	return sum;
}

static void look(struct state *state)
{
	memset(state, 0, sizeof(*state));
	for (int number = 1; number < SIGNALS; number++) {
		struct sigaction action = { 0 };

		sigaction(number, NULL, &action);
		state->handlers[number] = action.sa_handler;
		state->flags[number] = action.sa_flags;
	}
	pthread_sigmask(SIG_SETMASK, NULL, &state->mask);
	sigaltstack(NULL, &state->stack);
	state->umask = umask(0);
	umask(state->umask);
	getitimer(ITIMER_REAL, &state->timer);
	state->dumpable = prctl(PR_GET_DUMPABLE);
	state->slack = prctl(PR_GET_TIMERSLACK);
	prctl(PR_GET_NAME, state->name);
	state->environment = sum_of_environment();
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state->cancel_state);
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &state->cancel_type);
	if (!getcwd(state->folder, sizeof(state->folder)))
		state->folder[0] = '?';
	snprintf(state->locale, sizeof(state->locale), "%s", setlocale(LC_ALL, NULL));
	for (int fd = 0; fd < FILES; fd++)
		state->files[fd] = fcntl(fd, F_GETFD) >= 0;
	state->threads = number_in("/proc/self/status", "Threads:");
	state->locked = number_in("/proc/self/status", "VmLck:");
	errno = 0;
	state->children = waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD;
}

/* Runs before the libraries' constructors. */
static void look_before(int argc, char **argv, char **envp)
{
	(void)argc;
	(void)argv;
	given = envp;
	look(&before);
}

__attribute__((section(".preinit_array"), used)) static void (*first)(int, char **, char **) = look_before;

/* Checks what no phase changes. */
static void unchanged(const char *phase)
{
	printf("ok %s:\n", phase);
	checks++;
	look(&now);
	check("signal handlers", memcmp(now.handlers, before.handlers, sizeof(now.handlers)), 0);
	check("their flags", memcmp(now.flags, before.flags, sizeof(now.flags)), 0);
	check("signal mask", memcmp(&now.mask, &before.mask, sizeof(now.mask)), 0);
	check("signal stack", now.stack.ss_sp == before.stack.ss_sp && now.stack.ss_flags == before.stack.ss_flags, 1);
	check("file mode mask", now.umask, before.umask);
	check("timer", now.timer.it_value.tv_sec || now.timer.it_value.tv_usec, 0);
	check("dumpable", now.dumpable, before.dumpable);
	check("timer slack", now.slack, before.slack);
	check("name of the first thread", strcmp(now.name, before.name), 0);
	check("environment", now.environment, before.environment);
	check("cancellation state", now.cancel_state, before.cancel_state);
	check("cancellation type", now.cancel_type, before.cancel_type);
	check("working folder", strcmp(now.folder, before.folder), 0);
	check("locale", strcmp(now.locale, before.locale), 0);
	check("locked memory", now.locked, 0);
	check("children", now.children, 0);
}

/* Checks new descriptors: each is closed on exec, and has no name that other processes know. */
static int on_network;

/* Tests for a socket that no other process can name; for a network device also for its address's sockets. */
static int is_our_socket(int fd)
{
	struct sockaddr_storage own;
	socklen_t length = sizeof(own);

	if (getsockname(fd, (struct sockaddr *)&own, &length))
		return 0;
	return on_network || (own.ss_family == AF_UNIX && length == sizeof(own.ss_family));
}

static int new_files(void)
{
	int count = 0;

	for (int fd = 0; fd < FILES; fd++)
		if (!before.files[fd] && fcntl(fd, F_GETFD) >= 0) {
			char path[64], target[256] = "";

			snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
			check("its target", readlink(path, target, sizeof(target) - 1) > 0, 1);
			check("it is of no file", !strncmp(target, "anon_inode:", 11) || !strncmp(target, "/memfd:", 7) ||
						  (!strncmp(target, "socket:", 7) && is_our_socket(fd)), 1);
			check("a new descriptor is closed on exec", fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
			check("and none of the standard ones", fd > 2, 1);
			count++;
		}
	return count;
}

/* Counts further threads. Each has a name of the library's scheme, and blocks all signals except SIGKILL, SIGSTOP and
 * glibc's two. */
static int new_threads(void)
{
	static const unsigned long FREE = 1UL << (SIGKILL - 1) | 1UL << (SIGSTOP - 1) | 3UL << 31;
	DIR *folder = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	while ((entry = readdir(folder))) {
		char path[300], line[512], name[64] = "";
		unsigned long blocked = 0;
		FILE *file;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "r");
		while (file && fgets(line, sizeof(line), file)) {
			sscanf(line, "Name: %63[^\n]", name);
			if (!strncmp(line, "SigBlk:", 7))
				blocked = strtoul(line + 7, NULL, 16);
		}
		if (file)
			fclose(file);
		check("a new thread has a name of ours", strncmp(name, "softhca-", 8) && strncmp(name, "uverbs-", 7), 0);
		check("and blocks all signals", (blocked | FREE) == ~0UL, 1);
		count++;
	}
	closedir(folder);
	return count;
}

/* Number of mappings with this flag (proc(5), VmFlags): dc is MADV_DONTFORK, lo is locked. */
static int mappings_with(const char *flag)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[1024];
	int count = 0;

	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "VmFlags:", 8))
			count += strstr(line, flag) != NULL;
	fclose(file);
	return count;
}

static int gid_index;
/* Number of stacks of the library's threads: 2 MiB behind a page without access. */
static int stacks(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned long from, to, end = 0;
	char line[1024], rights[5];
	int count = 0, guarded = 0;

	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3)
			continue;
		count += guarded && from == end && to - from == 2 << 20 && !strncmp(rights, "rw-p", 4);
		guarded = !strncmp(rights, "---p", 4) && to - from <= 65536;
		end = to;
	}
	fclose(file);
	return count;
}

/* Variables read by any library except libc. */
static const char *asked[64];
static int asks;

static char *variable(const char *name)
{
	size_t length = strlen(name);
	int known = 0;

	for (int i = 0; i < asks; i++)
		known |= !strcmp(asked[i], name);
	if (!known && asks < 64)
		asked[asks++] = strdup(name);
	for (char **entry = environ ? environ : given; *entry; entry++)
		if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
			return *entry + length + 1;
	return NULL;
}

char *getenv(const char *name)
{
	return variable(name);
}

char *secure_getenv(const char *name)
{
	return variable(name);
}

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;
static struct ibv_qp *qp;
static char memory[4096] __attribute__((aligned(4096)));

static int to_rts(void)
{
	union ibv_gid gid;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT };
	int bad = ibv_query_gid(context, PORT, gid_index, &gid);

	bad |= ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.min_rnr_timer = 1,
		.ah_attr = { .port_num = PORT, .is_global = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 } },
	};
	bad |= ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };
	return bad | ibv_modify_qp(qp, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void opened(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 16, 16, 1, 1, 0 } };

	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	check("a device", context != NULL, 1);
	pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	channel = ibv_create_comp_channel(context);
	init.send_cq = init.recv_cq = cq = ibv_create_cq(context, 64, NULL, channel, 0);
	qp = ibv_create_qp(pd, &init);
	check("a queue pair", mr && qp && !to_rts(), 1);
}

/* Successful calls of the data path leave errno unchanged. */
static int wrong_errno;

static int kept(int result)
{
	wrong_errno += errno != ODD_ERRNO;
	errno = ODD_ERRNO;
	return result;
}

static void sent(void)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	time_t limit = time(NULL) + PATIENCE;
	struct ibv_wc wc;
	int done = 0, refused = 0;

	errno = ODD_ERRNO;
	for (int i = 0; i < MANY; i++) {
		/* The doorbell must wake the sleeping device. */
		if (i % 100 == 0)
			usleep(20000);
		errno = ODD_ERRNO;
		refused += kept(ibv_req_notify_cq(cq, 0)) != 0;
		refused += kept(ibv_poll_cq(cq, 1, &wc)) != 0;
		refused += kept(ibv_post_recv(qp, &recv, &bad_recv)) || kept(ibv_post_send(qp, &send, &bad));
		for (done = 0; done < 2 && time(NULL) < limit;)
			done += kept(ibv_poll_cq(cq, 1, &wc)) == 1 && wc.status == IBV_WC_SUCCESS;
		if (done != 2)
			break;
	}
	check("messages", done, 2);
	check("refused calls", refused, 0);
	check("changes of errno", wrong_errno, 0);
}

/* A process signal that all threads of the program block stays pending. */
static void signalled(void)
{
	struct timespec limit = { 2, 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGUSR2);
	usleep(50000);
	check("sigtimedwait", sigtimedwait(&set, NULL, &limit), SIGUSR2);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Resources of a closed device that stay: descriptors, and mappings that forked children lack. */
struct kept {
	int files, mappings;
};

static struct kept closed(int threads)
{
	struct kept left;

	check("the end", ibv_destroy_qp(qp) | ibv_destroy_cq(cq) | ibv_destroy_comp_channel(channel) | ibv_dereg_mr(mr) |
				 ibv_dealloc_pd(pd) | ibv_close_device(context), 0);
	check("threads of a device that is known", new_threads(), threads);
	left.files = new_files();
	left.mappings = mappings_with(" dc");
	return left;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	struct kept first_time, second_time;

	gid_index = argc > 2 ? atoi(argv[2]) : 3;
	on_network = threads > 1;
	unchanged("loaded");
	check("descriptors of the library that is loaded", new_files(), 0);
	check("threads of the library that is loaded", new_threads(), 0);
	check("mappings that forked children don't have", mappings_with(" dc"), 0);
	opened();
	unchanged("opened");
	check("threads of an open device", new_threads(), threads);
	check("their stacks", stacks(), threads);
	check("a page that is empty after a fork", mappings_with(" wf") <= 1, 1);
	check("descriptors of an open device", new_files() > 0, 1);
	check("queues and doorbells that forked children don't have", mappings_with(" dc") > 0, 1);
	signalled();
	sent();
	unchanged("sent");
	check("threads after messages", new_threads(), threads);
	first_time = closed(threads);
	unchanged("closed");
	opened();
	second_time = closed(threads);
	check("descriptors after another time", second_time.files, first_time.files);
	check("mappings after another time", second_time.mappings, first_time.mappings);
	unchanged("closed again");
	check("variables that are asked for", asks > 0, 1);
	for (int i = 0; i < asks; i++)
		fprintf(stderr, "asks for %s\n", asked[i]);
	return checked();
}
