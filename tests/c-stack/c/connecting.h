/* Shared by the programs that connect by librdmacm. Counterpart in Rust: src/connecting.rs. */
#ifndef CONNECTING_H
#define CONNECTING_H

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "phases.h"

static struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };

/* Waits for the next event; returns its type and id. */
static enum rdma_cm_event_type next_event(struct rdma_event_channel *channel, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;

	NEED(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	type = event->event;
	*id = event->id;
	NEED(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
	return type;
}

/* Waits for the next event, which must be this one; returns its id. */
static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type = next_event(channel, &id);

	if (type != wanted) {
		fprintf(stderr, "%s, not %s\n", rdma_event_str(type), rdma_event_str(wanted));
		exit(1);
	}
	return id;
}

static void create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	NEED(!rdma_create_qp(id, pd, &init), "rdma_create_qp");
}

/*
 * Address to connect to: UVERBS_TEST_ADDRESS, or the IPv4 address in GID UVERBS_TEST_GID of UVERBS_TEST_DEVICE.
 */
static void find_address(struct in_addr *address)
{
	const char *name = getenv("UVERBS_TEST_DEVICE"), *index = getenv("UVERBS_TEST_GID"), *own = getenv("UVERBS_TEST_ADDRESS");
	struct ibv_device **list;
	struct ibv_context *context;
	union ibv_gid gid;

	if (own) {
		NEED(inet_pton(AF_INET, own, address) == 1, "UVERBS_TEST_ADDRESS");
		return;
	}
	list = ibv_get_device_list(NULL);
	NEED(list && name && index, "UVERBS_TEST_DEVICE and UVERBS_TEST_GID");
	while (*list && strcmp(ibv_get_device_name(*list), name))
		list++;
	NEED(*list, "no such device");
	NEED(context = ibv_open_device(*list), "ibv_open_device");
	NEED(!ibv_query_gid(context, 1, atoi(index), &gid), "ibv_query_gid");
	memcpy(address, gid.raw + 12, 4);
	NEED(!ibv_close_device(context), "ibv_close_device");
}

#endif
