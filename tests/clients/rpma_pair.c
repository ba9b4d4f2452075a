/* librpma: rpma_pair server|client. The client writes to the server's memory, flushes the write and
 * reads it back. The calls are those of librpma's examples, which no package has. */

#include <infiniband/verbs.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS "10.9.0.1"
#define PORT "7204"
#define SIZE 4096

static void need(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "%s: %s\n", what, rpma_err_2str(result));
		exit(1);
	}
}

#define NEED(call) need(call, #call)

static void expect(struct rpma_conn *conn, enum rpma_conn_event wanted)
{
	enum rpma_conn_event event;

	NEED(rpma_conn_next_event(conn, &event));
	if (event != wanted) {
		fprintf(stderr, "%s\n", rpma_utils_conn_event_2str(event));
		exit(1);
	}
}

static void complete(struct rpma_conn *conn)
{
	struct rpma_cq *cq;
	struct ibv_wc wc;

	NEED(rpma_conn_get_cq(conn, &cq));
	NEED(rpma_cq_wait(cq));
	NEED(rpma_cq_get_wc(cq, 1, &wc, NULL));
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void serve(struct rpma_peer *peer, struct rpma_mr_local *mr, const char *memory)
{
	char descriptor[64];
	struct rpma_conn_private_data data = { .ptr = descriptor };
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	struct rpma_ep *ep;
	size_t size;

	NEED(rpma_mr_get_descriptor_size(mr, &size));
	NEED(rpma_mr_get_descriptor(mr, descriptor));
	data.len = size;
	NEED(rpma_ep_listen(peer, ADDRESS, PORT, &ep));
	NEED(rpma_ep_next_conn_req(ep, NULL, &req));
	NEED(rpma_conn_req_connect(&req, &data, &conn));
	expect(conn, RPMA_CONN_ESTABLISHED);
	expect(conn, RPMA_CONN_CLOSED);
	NEED(rpma_conn_disconnect(conn));
	NEED(rpma_conn_delete(&conn));
	NEED(rpma_ep_shutdown(&ep));
	printf("found %s\n", memory);
}

static void ask(struct rpma_peer *peer, struct rpma_mr_local *mr, char *memory)
{
	struct rpma_conn_private_data data;
	struct rpma_mr_remote *remote;
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	int tries = 0;

	for (;;) {
		enum rpma_conn_event event;

		NEED(rpma_conn_req_new(peer, ADDRESS, PORT, NULL, &req));
		NEED(rpma_conn_req_connect(&req, NULL, &conn));
		NEED(rpma_conn_next_event(conn, &event));
		if (event == RPMA_CONN_ESTABLISHED)
			break;
		NEED(rpma_conn_delete(&conn));
		if (++tries == 100)
			exit(1);
	}
	NEED(rpma_conn_get_private_data(conn, &data));
	NEED(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote));
	strcpy(memory, "by librpma");
	NEED(rpma_write(conn, remote, 0, mr, 0, SIZE / 2, RPMA_F_COMPLETION_ON_ERROR, NULL));
	NEED(rpma_flush(conn, remote, 0, SIZE / 2, RPMA_FLUSH_TYPE_VISIBILITY,
			RPMA_F_COMPLETION_ALWAYS, NULL));
	complete(conn);
	NEED(rpma_read(conn, mr, SIZE / 2, remote, 0, SIZE / 2, RPMA_F_COMPLETION_ALWAYS, NULL));
	complete(conn);
	NEED(rpma_conn_disconnect(conn));
	expect(conn, RPMA_CONN_CLOSED);
	NEED(rpma_mr_remote_delete(&remote));
	NEED(rpma_conn_delete(&conn));
	printf("read %s\n", memory + SIZE / 2);
}

int main(int argc, char **argv)
{
	int server = argc == 2 && !strcmp(argv[1], "server");
	enum rpma_util_ibv_context_type type = server ? RPMA_UTIL_IBV_CONTEXT_LOCAL
						      : RPMA_UTIL_IBV_CONTEXT_REMOTE;
	int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC
		    | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
	struct ibv_context *context;
	struct rpma_mr_local *mr;
	struct rpma_peer *peer;
	char *memory = aligned_alloc(SIZE, SIZE);

	memset(memory, 0, SIZE);
	NEED(rpma_utils_get_ibv_context(ADDRESS, type, &context));
	NEED(rpma_peer_new(context, &peer));
	NEED(rpma_mr_reg(peer, memory, SIZE, usage, &mr));
	if (server)
		serve(peer, mr, memory);
	else
		ask(peer, mr, memory);
	NEED(rpma_mr_dereg(&mr));
	NEED(rpma_peer_delete(&peer));
	return 0;
}
