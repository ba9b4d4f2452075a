/* Names of devices while the list of devices changes. Arguments: three addresses of the loopback network. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

static char **addresses;

/* Lists two devices by their positions among the addresses. */
static struct ibv_device **list(int first, int second)
{
	struct ibv_device **list;
	char names[128];
	int count = 0;

	snprintf(names, sizeof names, "softhca@%s,softhca@%s", addresses[first], addresses[second]);
	setenv("UVERBS_DEVICE", names, 1);
	list = ibv_get_device_list(&count);
	check("two devices", count, 2);
	if (count != 2)
		exit(1);
	return list;
}

static int named(struct ibv_device *device, const char *name)
{
	return !strcmp(ibv_get_device_name(device), name) && !strncmp(device->dev_name, "uverbs", 6);
}

int main(int argc, char **argv)
{
	struct ibv_device **before, **now;
	struct ibv_context *open;

	if (argc != 4)
		return 2;
	addresses = argv + 1;
	before = list(0, 1);
	check("the first ones", named(before[0], "softhca_0") && named(before[1], "softhca_1"), 1);
	open = ibv_open_device(before[0]);
	check("one is open", open != NULL, 1);
	now = list(1, 2);
	check("one that stays", now[0] == before[1] && named(now[0], "softhca_1"), 1);
	check("one that is new", named(now[1], "softhca_2"), 1);
	check("the open one", named(open->device, "softhca_0"), 1);
	ibv_free_device_list(now);
	now = list(2, 0);
	check("one that comes again", named(now[1], "softhca_0"), 1);
	check("the other one", named(now[0], "softhca_2"), 1);
	ibv_free_device_list(now);
	ibv_free_device_list(before);
	check("close_device", ibv_close_device(open), 0);
	return checked();
}
