/* Imports a device, its protection domain, a region and device memory from another opening of the device, by the
 * file's descriptor and the kernel's handles. Prints a line per check. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"

static void bad_files(void)
{
	int pipes[2], zero = open("/dev/zero", O_RDWR);

	check("pipe", pipe(pipes), 0);
	NONE("no file", ibv_import_device(-1), EINVAL);
	NONE("a number of no file", ibv_import_device(1000), EINVAL);
	NONE("a pipe", ibv_import_device(pipes[0]), EINVAL);
	NONE("another device", ibv_import_device(zero), ENODEV);
	/* A refused descriptor still belongs to the program. */
	check("close", close(zero) | close(pipes[0]) | close(pipes[1]), 0);
}

static void regions(struct ibv_pd *own, struct ibv_pd *pd, struct ibv_context *ctx)
{
	uint8_t *memory = aligned_alloc(4096, 8192);
	struct ibv_mr *mr = ibv_reg_mr(own, memory + 64, 5000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ), *same, *new;
	struct ibv_pd *again;

	check("reg_mr", mr != NULL, 1);
	NONE("a region of no handle", ibv_import_mr(pd, 4711), ENOENT);
	NONE("a region that is a domain", ibv_import_mr(pd, own->handle), EINVAL);
	NONE("a domain that is a region", ibv_import_pd(ctx, mr->handle), EINVAL);
	same = ibv_import_mr(pd, mr->handle);
	check("import_mr", same != NULL, 1);
	check("its keys", same->lkey == mr->lkey && same->rkey == mr->rkey, 1);
	check("its length", same->length, 5000);
	check("its address", same->addr == NULL, 1);
	check("its handle", same->handle, mr->handle);
	check("its domain", same->pd == pd && same->context == ctx, 1);
	ibv_unimport_mr(same);
	check("dereg_mr", ibv_dereg_mr(mr), 0);

	/* Objects created by either side count, and either side may deallocate the domain. */
	new = ibv_reg_mr(pd, memory, 4096, 0);
	check("reg_mr in the imported", new != NULL, 1);
	check("dealloc_pd in use", ibv_dealloc_pd(own), EBUSY);
	again = ibv_import_pd(ctx, own->handle);
	same = ibv_import_mr(again, new->handle);
	check("dereg_mr of the imported", ibv_dereg_mr(same), 0);
	check("and once more", ibv_dereg_mr(new), ENOENT);
	ibv_unimport_mr(new);
	ibv_unimport_pd(again);
	free(memory);
}

static void device_memory(struct ibv_context *own, struct ibv_context *ctx)
{
	struct ibv_alloc_dm_attr attr = { .length = 128 };
	struct ibv_dm *dm = ibv_alloc_dm(own, &attr), *same;
	char to[16] = "", from[16] = "fifteen letters";

	check("alloc_dm", dm != NULL, 1);
	NONE("memory of no handle", ibv_import_dm(ctx, 4711), ENOENT);
	same = ibv_import_dm(ctx, dm->handle);
	check("import_dm", same != NULL, 1);
	check("its handle", same->handle, dm->handle);
	check("memcpy_to_dm", ibv_memcpy_to_dm(dm, 16, from, sizeof from), 0);
	check("memcpy_from_dm", ibv_memcpy_from_dm(to, same, 16, sizeof to), 0);
	check("the bytes", memcmp(to, from, sizeof to), 0);
	check("over its end", ibv_memcpy_from_dm(to, same, 128, sizeof to), EFAULT);
	ibv_unimport_dm(same);
	same = ibv_import_dm(ctx, dm->handle);
	check("it is still there", same != NULL, 1);
	ibv_unimport_dm(same);
	check("free_dm", ibv_free_dm(dm), 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *own = ibv_open_device(list[0]), *ctx;
	struct ibv_pd *pd = ibv_alloc_pd(own), *same;
	int file = dup(own->cmd_fd);

	ibv_free_device_list(list);
	check("a descriptor", file >= 0, 1);
	bad_files();
	ctx = ibv_import_device(file);
	check("import_device", ctx != NULL, 1);
	check("its device", strcmp(ibv_get_device_name(ctx->device), ibv_get_device_name(own->device)), 0);
	check("its descriptor", ctx->cmd_fd, file);
	check("its own events", ctx->async_fd >= 0 && ctx->async_fd != own->async_fd, 1);
	NONE("a domain of no handle", ibv_import_pd(ctx, 4711), ENOENT);
	same = ibv_import_pd(ctx, pd->handle);
	check("import_pd", same != NULL, 1);
	check("its handle", same->handle, pd->handle);
	check("its context", same->context == ctx, 1);
	regions(pd, same, ctx);
	device_memory(own, ctx);
	ibv_unimport_pd(same);
	check("close_device", ibv_close_device(ctx), 0);
	check("its descriptor is closed", fcntl(file, F_GETFD) < 0 && errno == EBADF, 1);
	check("dealloc_pd", ibv_dealloc_pd(pd), 0);
	check("close_device", ibv_close_device(own), 0);
	return checked();
}
