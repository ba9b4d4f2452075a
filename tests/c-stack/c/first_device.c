/* Name of the first device, which is opened. */
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *open = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (!open)
		return 3;
	puts(ibv_get_device_name(open->device));
	return ibv_close_device(open);
}
