/* Calls of a forked child on its parent's device, and of the parent afterwards, with a line per result, as in
 * calls.c. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ibv_context *ctx;

static void number(const char *name, int result)
{
	printf("%s %d\n", name, result);
}

static void *object(const char *name, void *object)
{
	printf("%s %s %d\n", name, object ? "given" : "null", object ? 0 : errno);
	return object;
}

/* The parent has the file open, too, so the child's exit destroys no object. */
static void child(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_dm *memory = object("child: alloc_dm", ibv_alloc_dm(ctx, &attr));
	struct ibv_pd *pd = object("child: alloc_pd", ibv_alloc_pd(ctx));

	if (memory)
		number("child: free_dm", ibv_free_dm(memory));
	if (pd)
		number("child: dealloc_pd", ibv_dealloc_pd(pd));
	number("child: close_device", ibv_close_device(ctx));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	static char bytes[4096];
	struct ibv_dm *memory;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	int status = -1;
	pid_t forked;

	setvbuf(stdout, NULL, _IONBF, 0);
	ctx = object("open_device", ibv_open_device(list[0]));
	ibv_free_device_list(list);
	pd = object("alloc_pd", ibv_alloc_pd(ctx));
	memory = object("alloc_dm", ibv_alloc_dm(ctx, &attr));
	mr = object("reg_mr", ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE));
	forked = fork();
	if (!forked) {
		child();
		_exit(7);
	}
	waitpid(forked, &status, 0);
	number("child", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	object("create_cq", ibv_create_cq(ctx, 16, NULL, NULL, 0));
	number("dealloc_pd in use", ibv_dealloc_pd(pd));
	number("dereg_mr", ibv_dereg_mr(mr));
	if (memory)
		number("free_dm", ibv_free_dm(memory));
	number("dealloc_pd", ibv_dealloc_pd(pd));
	number("close_device", ibv_close_device(ctx));
	return 0;
}
