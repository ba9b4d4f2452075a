/* Files of a device below /sys/class/infiniband, by each function of libc that takes a path. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "checks.h"

#define CLASS "/sys/class/infiniband"

/* Exported, and declared in libibverbs's private header. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static int in_sysfs(const char *dir, const char *file, const char *wanted)
{
	char text[64];

	return ibv_read_sysfs_file(dir, file, text, sizeof(text)) > 0 && !strcmp(text, wanted);
}

static int reads(int fd, const char *text)
{
	char found[64] = "";
	ssize_t len = fd < 0 ? -1 : read(fd, found, sizeof(found) - 1);

	if (fd >= 0)
		close(fd);
	return len > 0 && !strncmp(found, text, strlen(text));
}

static int lists(DIR *folder, const char *name)
{
	struct dirent *entry;
	int found = 0;

	while (folder && (entry = readdir(folder)))
		found |= !strcmp(entry->d_name, name);
	if (folder)
		closedir(folder);
	return found;
}

static void by_path(const char *name)
{
	char folder[256], path[PATH_MAX], to[PATH_MAX] = "";
	struct dirent **list = NULL;
	struct stat found;
	struct statx more;
	FILE *file;
	int at, count, wanted = 0;

	snprintf(folder, sizeof(folder), CLASS "/%s", name);
	snprintf(path, sizeof(path), "%s/node_type", folder);
	check("open", reads(open(path, O_RDONLY), "1: CA"), 1);
	check("openat", reads(openat(AT_FDCWD, path, O_RDONLY), "1: CA"), 1);
	at = open(folder, O_RDONLY | O_DIRECTORY);
	check("openat below", reads(openat(at, "ports/1/state", O_RDONLY), "4: ACTIVE"), 1);
	close(at);
	file = fopen(path, "r");
	check("fopen", file && reads(dup(fileno(file)), "1: CA"), 1);
	if (file)
		fclose(file);
	check("access", access(path, R_OK), 0);
	check("faccessat", faccessat(AT_FDCWD, path, R_OK, 0), 0);
	check("stat", stat(path, &found) == 0 && S_ISREG(found.st_mode), 1);
	check("lstat", lstat(folder, &found) == 0 && S_ISLNK(found.st_mode), 1);
	check("fstatat", fstatat(AT_FDCWD, path, &found, 0), 0);
	check("statx", statx(AT_FDCWD, path, 0, STATX_MODE, &more), 0);
	check("opendir", lists(opendir(CLASS), name), 1);
	check("opendir with a slash", lists(opendir(CLASS "/"), name), 1);
	count = scandir(CLASS, &list, NULL, alphasort);
	for (at = 0; at < count; at++) {
		wanted |= !strcmp(list[at]->d_name, name);
		free(list[at]);
	}
	free(list);
	check("scandir", wanted, 1);
	check("readlink", readlink(folder, to, sizeof(to) - 1) > 0 && strstr(to, "/infiniband/") != NULL, 1);
	snprintf(path, sizeof(path), "%s/device", folder);
	check("realpath", realpath(path, to) && !strncmp(to, "/sys/devices/pcica05:00/ca05:00:", 32), 1);
	check("by its real path", strcat(to, "/device") && reads(open(to, O_RDONLY), "0x101d"), 1);
	*strrchr(to, '/') = 0;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices%s/vendor", strrchr(to, '/'));
	check("by PCI address", reads(open(path, O_RDONLY), "0x15b3"), 1);
	check("a file that is not there", access(CLASS "/softhca_9", F_OK), -1);
	check("a longer name", access("/sys/class/infiniband_x", F_OK), -1);
	check("chdir", chdir(folder) == 0 && reads(open("fw_ver", O_RDONLY), "99."), 1);
}

static void by_device(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	char path[PATH_MAX], expected[64];
	struct ibv_gid_entry entries[8];
	struct stat found;
	uint8_t *raw;
	ssize_t count = ibv_query_gid_table(context, entries, 8, 0);

	check("GIDs", count, 4);
	for (int at = 0; at < count; at++) {
		raw = entries[at].gid.raw;
		snprintf(path, sizeof(path), "ports/1/gids/%d", at);
		for (int pair = 0; pair < 8; pair++)
			sprintf(expected + pair * 5, "%02x%02x:", raw[pair * 2], raw[pair * 2 + 1]);
		expected[39] = 0;
		check("a GID", in_sysfs(device->ibdev_path, path, expected), 1);
		snprintf(path, sizeof(path), "ports/1/gid_attrs/ndevs/%d", at);
		check("its interface", in_sysfs(device->ibdev_path, path, "lo") && entries[at].ndev_ifindex, 1);
	}
	check("the name of its node", in_sysfs(device->dev_path, "ibdev", ibv_get_device_name(device)), 1);
	snprintf(path, sizeof(path), "/dev/infiniband/%s", device->dev_name);
	check("its node", stat(path, &found) == 0 && S_ISCHR(found.st_mode) && !access(path, R_OK | W_OK), 1);
	check("a node can't be opened", open(path, O_RDWR), -1);
	fprintf(stderr, "tree %.*s\n", (int)(strstr(device->ibdev_path, "/class/") - device->ibdev_path), device->ibdev_path);
	check("close_device", ibv_close_device(context), 0);
}

/* A counter of the port, by its path; -1 without one. */
static long long counter(const char *name, const char *file)
{
	char path[PATH_MAX];
	long long value = -1;
	FILE *from;

	snprintf(path, sizeof(path), CLASS "/%s/ports/1/%s", name, file);
	from = fopen(path, "r");
	if (from && fscanf(from, "%lld", &value) != 1)
		value = -1;
	if (from)
		fclose(from);
	return value;
}

#define WRITES 3
#define BYTES 200

/* Writes from a queue pair to itself, and what the port's counters say of them. */
static void counts(struct ibv_device *device)
{
	static char memory[2 * BYTES];
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 2 * WRITES, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = WRITES, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_sge sge = { (uintptr_t)memory, BYTES, mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)memory + BYTES, mr->rkey } };
	const char *name = ibv_get_device_name(device);
	long long packets, data, writes;
	char text[32] = "";
	struct ibv_wc wc;
	int done = 0;

	check("to INIT", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.min_rnr_timer = 12, .ah_attr = { .port_num = 1, .is_global = 1, .grh = { .sgid_index = 3, .hop_limit = 64 } } };
	check("query_gid", ibv_query_gid(context, 1, 3, &attr.ah_attr.grh.dgid), 0);
	check("to RTR", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	check("to RTS", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
	packets = counter(name, "counters/port_xmit_packets");
	data = counter(name, "counters/port_xmit_data");
	writes = counter(name, "hw_counters/rx_write_requests");
	check("counters", packets >= 0 && data >= 0 && writes >= 0, 1);
	for (int at = 0; at < WRITES; at++)
		check("post_send", ibv_post_send(qp, &wr, &bad), 0);
	while (done < WRITES)
		if (ibv_poll_cq(cq, 1, &wc) == 1 && (done++, wc.status != IBV_WC_SUCCESS))
			check("status", wc.status, IBV_WC_SUCCESS);
	/* Each WRITE is a packet, and its acknowledgement may be for more than one. */
	packets = counter(name, "counters/port_xmit_packets") - packets;
	check("packets that left", packets > WRITES && packets <= 2 * WRITES, 1);
	check("packets that came", counter(name, "counters/port_rcv_packets"), counter(name, "counters/unicast_xmit_packets"));
	/* Words of four bytes (IBTA 16.1.4.1). */
	data = counter(name, "counters/port_xmit_data") - data;
	check("words that left", data > WRITES * BYTES / 4 && data < 2 * WRITES * BYTES / 4, 1);
	check("requests to write", counter(name, "hw_counters/rx_write_requests") - writes, WRITES);
	check("errors", counter(name, "counters/port_rcv_errors") + counter(name, "counters/link_downed"), 0);
	ibv_read_sysfs_file(device->ibdev_path, "ports/1/hw_counters/rx_write_requests", text, sizeof(text));
	check("requests below ibdev_path", atoll(text) - writes, WRITES);
	check("destroy_qp", ibv_destroy_qp(qp), 0);
	check("dereg_mr", ibv_dereg_mr(mr), 0);
	check("destroy_cq", ibv_destroy_cq(cq), 0);
	check("dealloc_pd", ibv_dealloc_pd(pd), 0);
	check("close_device", ibv_close_device(context), 0);
}

static void opens(void)
{
	if (open(CLASS, O_RDONLY) >= 0)
		check("open goes on", 1, 0);
}

static void opens_at(void)
{
	if (openat(AT_FDCWD, CLASS, O_RDONLY) >= 0)
		check("openat goes on", 1, 0);
}

static void opens_a_file(void)
{
	if (fopen("/proc/self/maps", "r"))
		check("fopen goes on", 1, 0);
}

static void *cancelled(void *call)
{
	pthread_cancel(pthread_self());
	((void (*)(void))call)();
	return NULL;
}

/* Calls that are cancellation points (pthreads(7)), as without the library. */
static void by_cancelled_threads(void)
{
	void (*calls[])(void) = { opens, opens_at, opens_a_file };
	pthread_t thread;
	void *answer;

	for (int at = 0; at < 3; at++) {
		answer = NULL;
		pthread_create(&thread, NULL, cancelled, (void *)calls[at]);
		pthread_join(thread, &answer);
		check("a cancelled thread ends", answer == PTHREAD_CANCELED, 1);
	}
}

int main(int argc, char **argv)
{
	struct ibv_device **devices;

	/* Before the library has a device. */
	by_path(argv[1]);
	devices = ibv_get_device_list(NULL);
	check("a device", argc == 2 && devices && devices[0], 1);
	if (!devices || !devices[0]) {
		perror("ibv_get_device_list");
		return checked();
	}
	by_device(devices[0]);
	counts(devices[0]);
	by_path(argv[1]);
	ibv_free_device_list(devices);
	by_cancelled_threads();
	return checked();
}
