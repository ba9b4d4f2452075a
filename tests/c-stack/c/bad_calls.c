/*
 * Raw commands on the device file, most of them invalid: each fails with Linux's errno, and the process survives. The
 * order of checks is from drivers/infiniband/core/uverbs_ioctl.c. A line per check; exit status 0 if all succeed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

static const char NODE[] = "/dev/infiniband/uverbs0";
static int fd, failures, checks;

static void check(int good, const char *name, long got, long wanted)
{
	checks++;
	failures += !good;
	if (good)
		printf("ok %s\n", name);
	else
		printf("FAILED %s: %ld, wanted %ld (%s)\n", name, got, wanted, strerror(got));
	fflush(stdout);
}

static void wants(const char *name, int got, int wanted)
{
	check(got == wanted, name, got, wanted);
}

struct command {
	struct ib_uverbs_ioctl_hdr header;
	struct ib_uverbs_attr attrs[16];
};

static struct command command(uint16_t object, uint16_t method)
{
	return (struct command){
		.header = { .length = sizeof(struct ib_uverbs_ioctl_hdr), .object_id = object, .method_id = method,
			    .driver_id = RDMA_DRIVER_MLX5 },
	};
}

static struct ib_uverbs_attr *add(struct command *command, uint16_t id, uint16_t length, uint64_t data)
{
	struct ib_uverbs_attr *attr = &command->attrs[command->header.num_attrs++];

	command->header.length += sizeof(*attr);
	attr->attr_id = id;
	attr->len = length;
	attr->flags = UVERBS_ATTR_F_MANDATORY;
	attr->data = data;
	return attr;
}

static int run(struct command *command)
{
	return ioctl(fd, RDMA_VERBS_IOCTL, command) ? errno : 0;
}

static struct command write_command(uint64_t number)
{
	struct command result = command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);

	add(&result, UVERBS_ATTR_WRITE_CMD, 8, number);
	return result;
}

static int invoke(uint64_t number, const void *in, uint16_t in_length, void *out, uint16_t out_length)
{
	struct command all = write_command(number);
	static uint32_t pdn;
	uint64_t word = 0;

	if (in_length <= 8)
		memcpy(&word, in, in_length);
	else
		word = (uintptr_t)in;
	add(&all, UVERBS_ATTR_CORE_IN, in_length, word);
	add(&all, UVERBS_ATTR_CORE_OUT, out_length, (uintptr_t)out);
	/* mlx5_ib returns the number of a new PD. */
	if (number == IB_USER_VERBS_CMD_ALLOC_PD)
		add(&all, UVERBS_ATTR_UHW_OUT, sizeof(pdn), (uintptr_t)&pdn);
	return run(&all);
}

static void files(void)
{
	struct stat info;

	wants("stat", stat(NODE, &info) ? errno : 0, 0);
	check(S_ISCHR(info.st_mode), "it is a character device", info.st_mode, S_IFCHR);
	wants("access", access(NODE, R_OK | W_OK) ? errno : 0, 0);
	wants("another device", open("/dev/infiniband/uverbs1", O_RDWR) < 0 ? errno : 0, ENOENT);
	wants("the connection manager's", stat("/dev/infiniband/rdma_cm", &info) ? errno : 0, ENOENT);
	fd = open(NODE, O_RDWR | O_CLOEXEC);
	check(fd >= 0, "open", errno, 0);
	check(!fstat(fd, &info) && S_ISCHR(info.st_mode), "fstat", errno, 0);
	wants("another ioctl", ioctl(fd, 0x5401, &info) ? errno : 0, ENOTTY);
	wants("the write interface", write(fd, &info, 24) < 0 ? errno : 0, EOPNOTSUPP);
}

static void headers(void)
{
	struct command all = command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);

	wants("no command", ioctl(fd, RDMA_VERBS_IOCTL, NULL) ? errno : 0, EFAULT);
	wants("a command in nowhere", ioctl(fd, RDMA_VERBS_IOCTL, (void *)0xdead0000) ? errno : 0, EFAULT);
	all.header.length = 0;
	wants("a length of 0", run(&all), EINVAL);
	all.header.length = sizeof(all.header) + 1;
	wants("an odd length", run(&all), EINVAL);
	all.header.length = 0xffff;
	wants("a length over a page", run(&all), EINVAL);
	all.header.length = sizeof(all.header);
	all.header.num_attrs = 3;
	wants("fewer bytes than attributes", run(&all), EINVAL);
	all.header.num_attrs = 0;
	all.header.reserved1 = 1;
	wants("a reserved word", run(&all), EPROTONOSUPPORT);
	all.header.reserved1 = 0;
	all.header.reserved2 = 1;
	wants("the other reserved word", run(&all), EPROTONOSUPPORT);
	all.header.reserved2 = 0;
	all.header.driver_id = RDMA_DRIVER_RXE;
	wants("another driver", run(&all), EINVAL);
	all = command(0x7ff, 0);
	wants("an unknown object", run(&all), EPROTONOSUPPORT);
	all = command(UVERBS_OBJECT_DEVICE, 0x7ff);
	wants("an unknown method", run(&all), EPROTONOSUPPORT);
	all = command(MLX5_IB_OBJECT_UAR, 0x1fff);
	wants("an unknown method of the driver", run(&all), EPROTONOSUPPORT);

	/* The attributes cross the end of the mapped memory. */
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ib_uverbs_ioctl_hdr *last = (void *)(pages + 4096 - sizeof(*last));

	munmap(pages + 4096, 4096);
	*last = command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT).header;
	last->num_attrs = 2;
	last->length += 2 * sizeof(struct ib_uverbs_attr);
	wants("attributes that can't be read", ioctl(fd, RDMA_VERBS_IOCTL, last) ? errno : 0, EFAULT);
	munmap(pages, 4096);
}

static void context(void)
{
	struct mlx5_ib_alloc_ucontext_req_v2 in = { .lib_caps = MLX5_LIB_CAP_DYN_UAR, .max_cqe_version = 1 };
	struct mlx5_ib_alloc_ucontext_resp out = { 0 };
	struct ib_uverbs_alloc_pd pd = { 0 };
	uint32_t vectors = 0;
	uint8_t answer[8];
	struct command all;

	wants("a PD before the context", invoke(IB_USER_VERBS_CMD_ALLOC_PD, &pd, sizeof(pd), answer, 8), EINVAL);
	all = command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
	add(&all, UVERBS_ATTR_UHW_IN, 4, 0);
	add(&all, UVERBS_ATTR_UHW_OUT, sizeof(out), (uintptr_t)&out);
	wants("a context with a short request", run(&all), EINVAL);
	in.comp_mask = 1;
	all = command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
	add(&all, UVERBS_ATTR_UHW_IN, sizeof(in), (uintptr_t)&in);
	add(&all, UVERBS_ATTR_UHW_OUT, sizeof(out), (uintptr_t)&out);
	wants("a context with an unknown wish", run(&all), EOPNOTSUPP);
	in.comp_mask = 0;
	add(&all, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, 0x10);
	wants("an output in nowhere", run(&all), EFAULT);
	all.attrs[2].data = (uintptr_t)&vectors;
	all.attrs[2].len = 3;
	wants("an output too short", run(&all), EINVAL);
	all.attrs[2].len = 4;
	wants("GET_CONTEXT", run(&all), 0);
	check(vectors > 0 && out.response_length > 0, "and its answers", vectors, 8);
	check(all.attrs[2].flags & UVERBS_ATTR_F_VALID_OUTPUT, "the output is marked", all.attrs[2].flags, 2);
	wants("a second context", run(&all), EINVAL);
}

static void attributes(void)
{
	uint8_t port[sizeof(struct ib_uverbs_query_port_resp_ex)];
	struct command all = command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);

	wants("no attributes", run(&all), EINVAL);
	add(&all, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 8, 1);
	wants("one of two", run(&all), EINVAL);
	add(&all, UVERBS_ATTR_QUERY_PORT_RESP, sizeof(port), (uintptr_t)port);
	wants("QUERY_PORT", run(&all), 0);
	all.attrs[0].data = 2;
	wants("a port that isn't there", run(&all), EINVAL);
	all.attrs[0].data = 1;
	all.attrs[0].len = 4;
	wants("a number of another length", run(&all), EINVAL);
	all.attrs[0].len = 8;
	all.attrs[1].len = 8;
	wants("a short answer", run(&all), EINVAL);
	all.attrs[1].len = sizeof(port);
	all.attrs[1].data = 0;
	wants("an answer in nowhere", run(&all), EFAULT);
	all.attrs[1].data = (uintptr_t)port;
	add(&all, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 8, 1);
	wants("an attribute twice", run(&all), EINVAL);
	all.attrs[2].attr_id = 0x6ff;
	wants("an unknown attribute that matters", run(&all), EPROTONOSUPPORT);
	all.attrs[2].flags = 0;
	wants("an unknown attribute that doesn't", run(&all), 0);
}

static void writes(void)
{
	struct command all = write_command(IB_USER_VERBS_CMD_QUERY_DEVICE);
	struct ib_uverbs_query_device query = { 0 };
	struct ib_uverbs_query_device_resp device;

	wants("QUERY_DEVICE without buffers", run(&all), ENOSPC);
	wants("QUERY_DEVICE with a short answer",
	      invoke(IB_USER_VERBS_CMD_QUERY_DEVICE, &query, sizeof(query), &device, 8), ENOSPC);
	wants("QUERY_DEVICE with a short request", invoke(IB_USER_VERBS_CMD_QUERY_DEVICE, &query, 4, &device,
							  sizeof(device)), ENOSPC);
	wants("QUERY_DEVICE into nowhere",
	      invoke(IB_USER_VERBS_CMD_QUERY_DEVICE, &query, sizeof(query), (void *)16, sizeof(device)), EFAULT);
	wants("QUERY_DEVICE", invoke(IB_USER_VERBS_CMD_QUERY_DEVICE, &query, sizeof(query), &device, sizeof(device)),
	      0);
	all = write_command(0x3f);
	wants("an unknown write command", run(&all), EOPNOTSUPP);
	all = write_command(1ull << 33);
	wants("a number that is none", run(&all), EINVAL);
}

static uint32_t pd_handle;

static int destroy(uint16_t object, uint16_t method, uint64_t handle)
{
	struct command all = command(object, method);

	add(&all, 0, 0, handle);
	return run(&all);
}

static void handles(void)
{
	struct ib_uverbs_alloc_pd pd = { 0 };
	struct ib_uverbs_alloc_pd_resp made = { 0 };
	static uint8_t page[8192] __attribute__((aligned(4096)));
	struct ib_uverbs_reg_mr reg = { .start = (uintptr_t)page, .hca_va = (uintptr_t)page, .length = 4096,
					.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE };
	struct ib_uverbs_reg_mr_resp mr = { 0 };

	wants("PD with a short answer", invoke(IB_USER_VERBS_CMD_ALLOC_PD, &pd, sizeof(pd), &made, 2), ENOSPC);
	wants("ALLOC_PD", invoke(IB_USER_VERBS_CMD_ALLOC_PD, &pd, sizeof(pd), &made, sizeof(made)), 0);
	pd_handle = made.pd_handle;
	wants("destroy a PD that isn't there", destroy(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, 12345), ENOENT);
	wants("destroy a negative one", destroy(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, -1ll), EINVAL);
	wants("destroy a QP that is a PD", destroy(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, pd_handle), EINVAL);

	reg.pd_handle = 999;
	wants("region of a PD that isn't there",
	      invoke(IB_USER_VERBS_CMD_REG_MR, &reg, sizeof(reg), &mr, sizeof(mr)), ENOENT);
	reg.pd_handle = pd_handle;
	reg.hca_va += 1;
	wants("region at another place in its page",
	      invoke(IB_USER_VERBS_CMD_REG_MR, &reg, sizeof(reg), &mr, sizeof(mr)), EINVAL);
	reg.start = reg.hca_va = 0x10000;
	wants("region of nothing", invoke(IB_USER_VERBS_CMD_REG_MR, &reg, sizeof(reg), &mr, sizeof(mr)), EFAULT);
	reg.length = 1ull << 62;
	reg.start = reg.hca_va = -4096ull;
	wants("region beyond the end of the address space",
	      invoke(IB_USER_VERBS_CMD_REG_MR, &reg, sizeof(reg), &mr, sizeof(mr)), EINVAL);
	reg.start = reg.hca_va = (uintptr_t)page;
	reg.length = 4096;
	reg.access_flags = IB_UVERBS_ACCESS_REMOTE_WRITE;
	wants("remote write without local write",
	      invoke(IB_USER_VERBS_CMD_REG_MR, &reg, sizeof(reg), &mr, sizeof(mr)), EINVAL);
	reg.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE;
	wants("REG_MR", invoke(IB_USER_VERBS_CMD_REG_MR, &reg, sizeof(reg), &mr, sizeof(mr)), 0);
	wants("destroy a PD in use", destroy(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, pd_handle), EBUSY);
	wants("destroy the region", destroy(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, mr.mr_handle), 0);
	wants("and once more", destroy(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, mr.mr_handle), ENOENT);
}

static void pages(void)
{
	uint64_t offset = 0;
	uint32_t length = 0, id = 0;
	struct command all = command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
	char *place, *page;

	wants("mmap of an offset that isn't there",
	      mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0x7000) == MAP_FAILED ? errno : 0, EINVAL);
	add(&all, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, 0);
	add(&all, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 8, 77);
	add(&all, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8, (uintptr_t)&offset);
	add(&all, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4, (uintptr_t)&length);
	add(&all, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4, (uintptr_t)&id);
	wants("a UAR of no kind", run(&all), EOPNOTSUPP);
	all.attrs[1].data = MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC;
	wants("UAR.ALLOC", run(&all), 0);
	wants("a private mapping", mmap(NULL, length, PROT_WRITE, MAP_PRIVATE, fd, offset) == MAP_FAILED ? errno : 0,
	      EINVAL);
	wants("a mapping too long", mmap(NULL, 3 * length, PROT_WRITE, MAP_SHARED, fd, offset) == MAP_FAILED ? errno : 0,
	      EINVAL);
	page = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	check(page != MAP_FAILED, "a mapping", errno, 0);
	place = mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(mmap(place + 4096, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) == place + 4096,
	      "a mapping at a place", errno, 0);
	/* Both mappings are of one page. This offset holds no doorbell register. */
	*(volatile uint32_t *)(page + 0x100) = 4711;
	check(*(volatile uint32_t *)(place + 4096 + 0x100) == 4711, "which is the same page", 0, 0);
	wants("unmap", munmap(page, 4096) || munmap(place, 3 * 4096) ? errno : 0, 0);
}

static uint64_t state = 0x853c49e6748fea9bull;

static uint64_t chance(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Commands of known objects with random attributes: any result is accepted. */
static void noise(void)
{
	static const uint16_t objects[] = { UVERBS_OBJECT_DEVICE, UVERBS_OBJECT_PD,	UVERBS_OBJECT_CQ,
					    UVERBS_OBJECT_QP,	  UVERBS_OBJECT_MR,	UVERBS_OBJECT_AH,
					    MLX5_IB_OBJECT_UAR,	  MLX5_IB_OBJECT_DEVX, UVERBS_OBJECT_ASYNC_EVENT };
	static uint8_t scratch[65536] __attribute__((aligned(4096)));
	long refused = 0, rounds = 30000;

	for (long i = 0; i < rounds; i++) {
		struct command all = command(objects[chance() % 9], chance() % 8);
		int count = chance() % 12;

		if (all.header.object_id >= 0x1000)
			all.header.method_id += 0x1000;
		for (int at = 0; at < count; at++) {
			uint16_t id = chance() % 20 + (chance() % 4 ? 0 : 0x1000), length = chance() % 200;
			uint64_t data = chance() % 4 ? (uintptr_t)scratch + chance() % 4096 : chance();

			if (chance() % 3 == 0)
				length = chance() % 9;
			if (chance() % 3 == 0)
				data = chance() % 64;
			add(&all, id, length, data)->flags = chance() % 2;
		}
		for (int at = 0; at < 16; at++)
			scratch[chance() % 4096] = chance();
		refused += run(&all) != 0;
	}
	check(refused > 0 && refused <= rounds, "noise", refused, rounds);
}

static void forks(void)
{
	struct command all = write_command(IB_USER_VERBS_CMD_QUERY_DEVICE);
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		int result = run(&all);

		close(fd);
		_exit(result == EIO ? 0 : 1);
	}
	waitpid(child, &status, 0);
	wants("a child has no device", status, 0);
	wants("its parent still has", run(&all), ENOSPC);
}

int main(void)
{
	files();
	headers();
	context();
	attributes();
	writes();
	handles();
	pages();
	forks();
	noise();
	wants("close", close(fd) ? errno : 0, 0);
	struct command all = write_command(IB_USER_VERBS_CMD_QUERY_DEVICE);

	wants("a command behind it", run(&all), EBADF);
	fd = open(NODE, O_RDWR);
	wants("open again", run(&all), ENOSPC);
	close(fd);
	printf("%d checks, %d failed\n", checks, failures);
	return failures != 0;
}
