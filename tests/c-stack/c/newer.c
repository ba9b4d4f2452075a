/* Functions that are newer than Debian 12's headers, by their names; those that the library lacks are left out. An
 * argument is the path of the device's direct path to a GPU. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "checks.h"

/* `struct ibv_mr_init_attr` of rdma-core 61, and two bits of its mask. */
struct mr_init {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};
enum { WITH_ADDR = 1 << 1, WITH_DMAH = 1 << 4 };

/* The system writes a path and its zero, and nothing where there is no room. */
static void direct_path(struct ibv_context *ctx, const char *path)
{
	int (*get)(struct ibv_context *, char *, size_t) = dlsym(RTLD_DEFAULT, "mlx5dv_get_data_direct_sysfs_path");
	size_t len = path ? strlen(path) + 1 : 8;
	static char buf[70000];

	check("the library has the path's function", get != NULL, 1);
	if (!get)
		return;
	memset(buf, 'x', sizeof buf);
	check("no room", get(ctx, buf, 0), path ? ENOSPC : ENODEV);
	check("too little room", get(ctx, buf, len - 1), path ? ENOSPC : ENODEV);
	check("nothing is written", buf[0], 'x');
	check("more room than an attribute has", get(ctx, buf, 65536), EINVAL);
	check("just enough room", get(ctx, buf, len), path ? 0 : ENODEV);
	check("the most room", get(ctx, buf, 65535), path ? 0 : ENODEV);
	if (path) {
		check("the path", strcmp(buf, path), 0);
		check("the rest stays", buf[len], 'x');
	} else {
		check("nothing is written", buf[0], 'x');
	}
}

/* Handles of DMA with steering tags, as a provider without them answers. */
static void steering_tags(struct ibv_context *ctx)
{
	void *(*alloc)(struct ibv_context *, void *) = dlsym(RTLD_DEFAULT, "ibv_alloc_dmah");
	int (*dealloc)(void *) = dlsym(RTLD_DEFAULT, "ibv_dealloc_dmah");
	struct ibv_mr *(*reg)(struct ibv_pd *, struct mr_init *) = dlsym(RTLD_DEFAULT, "ibv_reg_mr_ex");
	static uint64_t attr[4], handle[4];
	static char buf[4096];
	struct mr_init init = { .length = sizeof buf, .comp_mask = WITH_ADDR, .addr = buf, .dmah = handle };
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	if (!alloc || !dealloc || !reg)
		return;
	NONE("alloc_dmah", alloc(ctx, attr), EOPNOTSUPP);
	handle[0] = (uintptr_t)ctx;
	check("dealloc_dmah", dealloc(handle), EOPNOTSUPP);
	pd = ibv_alloc_pd(ctx);
	mr = reg(pd, &init);
	check("reg_mr_ex", mr != NULL, 1);
	check("dereg_mr", ibv_dereg_mr(mr), 0);
	init.comp_mask |= WITH_DMAH;
	NONE("reg_mr_ex with a handle", reg(pd, &init), EOPNOTSUPP);
	check("dealloc_pd", ibv_dealloc_pd(pd), 0);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;

	check("there is a device", ctx != NULL, 1);
	if (!ctx)
		return checked();
	check("of mlx5", mlx5dv_is_supported(*list), 1);
	direct_path(ctx, argc > 1 ? argv[1] : NULL);
	steering_tags(ctx);
	check("close_device", ibv_close_device(ctx), 0);
	ibv_free_device_list(list);
	return checked();
}
