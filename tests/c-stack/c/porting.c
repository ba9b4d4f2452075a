/*
 * Four uses of verbs in C: connection manager, events, datagrams, shared receives. Their ports are in
 * examples/porting.rs, which prints the same lines; the book shows both side by side. With the word "verbs" it leaves
 * the connection manager out.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define NEED(condition)                                                                          \
	do {                                                                                     \
		if (!(condition)) {                                                              \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
			exit(1);                                                                 \
		}                                                                                \
	} while (0)

enum { ROOM = 64, GRH = 40, QKEY = 0x11111111, PORT = 7481 };

/* Objects beside a queue pair. Receives are at multiples of 128 in the memory. */
struct side {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char memory[256];
};

static void make(struct side *side, struct ibv_context *context)
{
	NEED(side->pd = ibv_alloc_pd(context));
	NEED(side->channel = ibv_create_comp_channel(context));
	NEED(side->cq = ibv_create_cq(context, 16, NULL, side->channel, 0));
	NEED(side->mr = ibv_reg_mr(side->pd, side->memory, sizeof(side->memory), IBV_ACCESS_LOCAL_WRITE));
}

static struct ibv_qp_init_attr asked(struct side *side, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = ROOM },
		.qp_type = type,
	};
}

static struct ibv_sge place(struct side *side, int number)
{
	return (struct ibv_sge){ (uintptr_t)side->memory + 128 * number, GRH + ROOM, side->mr->lkey };
}

static void post_recv(struct side *side, struct ibv_qp *qp)
{
	struct ibv_sge sge = place(side, 0);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	NEED(!ibv_post_recv(qp, &wr, &bad));
}

static void send_text(struct ibv_qp *qp, const char *text, struct ibv_ah *ah)
{
	struct ibv_sge sge = { (uintptr_t)text, strlen(text) + 1, 0 };
	struct ibv_send_wr wr = {
		.wr_id = 100, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED
	};
	struct ibv_send_wr *bad;

	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	NEED(!ibv_post_send(qp, &wr, &bad));
}

/* Polls until a receive completes; returns its number. */
static int received(struct side *side)
{
	struct ibv_wc wc;

	for (;;) {
		int count = ibv_poll_cq(side->cq, 1, &wc);

		NEED(count >= 0);
		NEED(!count || wc.status == IBV_WC_SUCCESS);
		if (count && wc.opcode == IBV_WC_RECV)
			return wc.wr_id;
	}
}

static struct ibv_ah_attr to_itself(struct ibv_context *context)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 0, .hop_limit = 64 } };

	NEED(!ibv_query_gid(context, 1, 0, &to.grh.dgid));
	return to;
}

static void connect_to_itself(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.min_rnr_timer = 12,
		.ah_attr = to_itself(qp->context),
	};
	NEED(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 6 };
	NEED(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC));
}

// ANCHOR: events
static void events(struct ibv_context *context)
{
	struct side side;
	make(&side, context);
	struct ibv_qp_init_attr init = asked(&side, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(side.pd, &init);
	NEED(qp);
	connect_to_itself(qp);
	post_recv(&side, qp);
	NEED(!ibv_req_notify_cq(side.cq, 0));
	send_text(qp, "woken by an event", NULL);
	struct ibv_cq *cq;
	void *user;
	NEED(!ibv_get_cq_event(side.channel, &cq, &user));
	ibv_ack_cq_events(cq, 1);
	received(&side);
	printf("events  %s\n", side.memory);
}
// ANCHOR_END: events

// ANCHOR: ud
static void datagram(struct ibv_context *context)
{
	struct side side;
	make(&side, context);
	struct ibv_qp_init_attr init = asked(&side, IBV_QPT_UD);
	struct ibv_qp *qp = ibv_create_qp(side.pd, &init);
	NEED(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	post_recv(&side, qp);
	struct ibv_ah_attr to = to_itself(context);
	struct ibv_ah *ah = ibv_create_ah(side.pd, &to);
	NEED(ah);
	send_text(qp, "behind 40 bytes of header", ah);
	received(&side);
	printf("ud      %s\n", side.memory + GRH);
}
// ANCHOR_END: ud

// ANCHOR: srq
static void shared_receives(struct ibv_context *context)
{
	struct side side;
	make(&side, context);
	struct ibv_srq_init_attr wanted = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(side.pd, &wanted);
	NEED(srq);
	for (int number = 0; number < 2; number++) {
		struct ibv_sge sge = place(&side, number);
		struct ibv_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *bad;
		NEED(!ibv_post_srq_recv(srq, &wr, &bad));
	}
	for (int number = 0; number < 2; number++) {
		struct ibv_qp_init_attr init = asked(&side, IBV_QPT_RC);
		init.srq = srq;
		struct ibv_qp *qp = ibv_create_qp(side.pd, &init);
		NEED(qp);
		connect_to_itself(qp);
		send_text(qp, number ? "by the second queue pair" : "by the first queue pair", NULL);
		printf("srq     %s\n", side.memory + 128 * received(&side));
	}
}
// ANCHOR_END: srq

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;

	NEED(!rdma_get_cm_event(channel, &event));
	NEED(event->event == type);
	if (id)
		*id = event->id;
	NEED(!rdma_ack_cm_event(event));
}

// ANCHOR: cm
static void by_address(struct in_addr own)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = own };
	struct rdma_event_channel *here = rdma_create_event_channel(), *there = rdma_create_event_channel();
	struct rdma_cm_id *listener, *client, *server;
	NEED(here && there && !rdma_create_id(there, &listener, NULL, RDMA_PS_TCP));
	NEED(!rdma_bind_addr(listener, (struct sockaddr *)&at) && !rdma_listen(listener, 8));

	NEED(!rdma_create_id(here, &client, NULL, RDMA_PS_TCP));
	NEED(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&at, 2000));
	expect(here, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	NEED(!rdma_resolve_route(client, 2000));
	expect(here, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	struct side ours, theirs;
	make(&ours, client->verbs);
	struct ibv_qp_init_attr init = asked(&ours, IBV_QPT_RC);
	NEED(!rdma_create_qp(client, ours.pd, &init));
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 6 };
	NEED(!rdma_connect(client, &param));

	expect(there, RDMA_CM_EVENT_CONNECT_REQUEST, &server);
	make(&theirs, server->verbs);
	init = asked(&theirs, IBV_QPT_RC);
	NEED(!rdma_create_qp(server, theirs.pd, &init));
	post_recv(&theirs, server->qp);
	NEED(!rdma_accept(server, &param));
	expect(here, RDMA_CM_EVENT_ESTABLISHED, NULL);

	send_text(client->qp, "connected by address", NULL);
	received(&theirs);
	printf("cm      %s\n", theirs.memory);
	NEED(!rdma_disconnect(client));
}
// ANCHOR_END: cm

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	struct in_addr own;
	union ibv_gid gid;

	NEED(context);
	/* The device's address is the end of a GID that is IPv4. */
	for (int index = 0; !ibv_query_gid(context, 1, index, &gid); index++) {
		memcpy(&own, gid.raw + 12, 4);
		if (gid.raw[10] == 0xff && gid.raw[11] == 0xff)
			break;
	}
	events(context);
	datagram(context);
	shared_receives(context);
	if (argc < 2 || strcmp(argv[1], "verbs"))
		by_address(own);
	return 0;
}
