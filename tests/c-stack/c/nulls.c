/* Calls each function that is named on the command line in a child, with zeros as arguments, and prints the result. The
 * first argument is the library, the names follow. A single NAME@OBJECT is called in this process, with an object
 * before the zeros. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

typedef uintptr_t function(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

enum { TIMEOUT_SECONDS = 20 };

/* Creates an object of this kind, on a device that is opened for it. */
static void *object(const char *kind)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_cq *cq = pd ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };

	if (!cq)
		return NULL;
	if (!strcmp(kind, "context"))
		return context;
	if (!strcmp(kind, "pd"))
		return pd;
	return strcmp(kind, "cq") ? (void *)ibv_create_qp(pd, &init) : (void *)cq;
}

/* Runs in the child: prints the low half of the return value, and errno. The first is meaningless for functions without
 * a result. */
static void call(function *called, const char *name, const char *kind)
{
	uintptr_t answer, first;

	alarm(TIMEOUT_SECONDS);
	first = kind ? (uintptr_t)object(kind) : 0;
	if (kind && !first)
		abort();
	errno = 0;
	answer = called(first, 0, 0, 0, 0, 0);
	printf("%s%s%s %d errno %d\n", name, kind ? "@" : "", kind ? kind : "", (int)answer, errno);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	for (int i = 2; i < argc; i++) {
		char *kind = strchr(argv[i], '@');
		function *called;
		int status;

		if (kind)
			*kind++ = 0;
		called = (function *)dlsym(library, argv[i]);

		if (!called) {
			printf("%s missing\n", argv[i]);
			continue;
		}
		fflush(stdout);
		if (kind || !fork())
			call(called, argv[i], kind);
		wait(&status);
		if (WIFSIGNALED(status))
			printf("%s crashes\n", argv[i]);
	}
	return 0;
}
