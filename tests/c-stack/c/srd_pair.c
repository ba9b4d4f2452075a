/*
 * Two processes, each with an Elastic Fabric Adapter: SENDs in any order, a WRITE and a WRITE with immediate data of
 * SRD, or SENDs of UD. They exchange GID, queue pair number and memory over TCP.
 *
 *	srd_pair server PORT [ud]
 *	srd_pair client PORT [ud]
 *
 * Where libefa is missing, SRD fails by name.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "checks.h"
#include "must.h"

#define COUNT 16
#define SIZE 4000
#define GRH 40
#define LENGTH ((SIZE + GRH) * COUNT)
#define QKEY 0x22222222
#define IMM 0x01020304
#define PATIENCE 60

struct place {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn, rkey;
};

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_ah *ah;
static struct ibv_mr *mr;
static struct place here, there;
static char memory[LENGTH], words[LENGTH];
static int is_srd, tcp;

static struct ibv_qp *make(struct ibv_context *context)
{
	struct ibv_qp_init_attr_ex init = { .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
		.cap = { .max_send_wr = COUNT, .max_recv_wr = COUNT, .max_send_sge = 1, .max_recv_sge = 1 },
		.send_cq = cq, .recv_cq = cq, .qp_type = is_srd ? IBV_QPT_DRIVER : IBV_QPT_UD,
		.send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	struct ibv_qp *(*srd)(struct ibv_context *, struct ibv_qp_init_attr_ex *, struct efadv_qp_init_attr *, uint32_t);

	if (!is_srd)
		return ibv_create_qp_ex(context, &init);
	MUST(dlopen("libefa.so.1", RTLD_NOW | RTLD_GLOBAL));
	*(void **)&srd = dlsym(RTLD_DEFAULT, "efadv_create_qp_ex");
	MUST(srd);
	init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	return srd(context, &init, &efa, sizeof efa);
}

static void up(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void receive(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct ibv_sge sge = { (uintptr_t)memory + i * (SIZE + GRH), SIZE + GRH, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		MUST(!ibv_post_recv(qp, &wr, &bad));
	}
}

static struct ibv_wc done(void)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + PATIENCE;

	while (!ibv_poll_cq(cq, 1, &wc))
		MUST(time(NULL) < end);
	if (wc.status)
		printf("status %d, vendor error %#x\n", wc.status, wc.vendor_err);
	return wc;
}

/* Tells the other side that this one has come here, and waits for it. */
static void meet(void *own, void *other, size_t len)
{
	MUST(write(tcp, own, len) == (ssize_t)len);
	MUST(recv(tcp, other, len, MSG_WAITALL) == (ssize_t)len);
}

static void connect_tcp(int is_server, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (is_server) {
		MUST(!bind(s, (void *)&at, sizeof at) && !listen(s, 1));
		s = accept(s, NULL, NULL);
	} else {
		MUST(!connect(s, (void *)&at, sizeof at));
	}
	MUST((tcp = s) >= 0);
}

static void server(void)
{
	unsigned skip = is_srd ? 0 : GRH, seen = 0, wrong = 0;

	for (unsigned i = 0; i < COUNT; i++) {
		struct ibv_wc wc = done();
		char *got = memory + wc.wr_id * (SIZE + GRH) + skip;

		wrong += wc.status || wc.opcode != IBV_WC_RECV || wc.byte_len != SIZE + skip || wc.src_qp != there.qpn;
		for (unsigned at = 1; at < SIZE; at++)
			wrong += got[at] != (char)(got[0] + at);
		seen |= 1u << got[0];
	}
	check("messages", seen, (1u << COUNT) - 1);
	check("wrong bytes", wrong, 0);
	if (!is_srd)
		return;
	receive(1);
	meet(&is_srd, &is_srd, sizeof is_srd);
	struct ibv_wc wc = done();
	check("WRITE with immediate data", wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	check("its number", ntohl(wc.imm_data), IMM);
	check("its length", wc.byte_len, SIZE);
	check("its bytes", memcmp(memory, words, SIZE), 0);
}

static void client(void)
{
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
	int wrong = 0;

	ibv_wr_start(qpx);
	for (unsigned i = 0; i < COUNT; i++) {
		qpx->wr_id = i;
		qpx->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(qpx);
		ibv_wr_set_ud_addr(qpx, ah, there.qpn, QKEY);
		ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)memory + i * SIZE, SIZE);
	}
	MUST(!ibv_wr_complete(qpx));
	for (unsigned i = 0; i < COUNT; i++)
		wrong += done().status;
	check("sends", wrong, 0);
	if (!is_srd)
		return;
	meet(&is_srd, &is_srd, sizeof is_srd);
	memcpy(memory, words, SIZE);
	ibv_wr_start(qpx);
	qpx->wr_id = 100;
	ibv_wr_rdma_write_imm(qpx, there.rkey, there.addr, htonl(IMM));
	ibv_wr_set_ud_addr(qpx, ah, there.qpn, QKEY);
	ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)memory, SIZE);
	MUST(!ibv_wr_complete(qpx));
	struct ibv_wc wc = done();
	check("the WRITE's number", wc.wr_id, 100);
	check("its status", wc.status, 0);
}

int main(int argc, char **argv)
{
	MUST(argc > 2);
	int is_server = !strcmp(argv[1], "server");
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	MUST(context);
	is_srd = argc == 3;
	MUST((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 2 * COUNT, NULL, NULL, 0)));
	MUST(mr = ibv_reg_mr(pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE | (is_srd ? IBV_ACCESS_REMOTE_WRITE : 0)));
	MUST(qp = make(context));
	up();
	for (unsigned i = 0; i < SIZE; i++)
		words[i] = 'a' + i % 26;
	for (unsigned i = 0; !is_server && i < COUNT * SIZE; i++)
		memory[i] = i / SIZE + i % SIZE;
	if (is_server)
		receive(COUNT);
	MUST(!ibv_query_gid(context, 1, 0, &here.gid));
	here.qpn = qp->qp_num;
	here.addr = (uintptr_t)memory;
	here.rkey = mr->rkey;
	connect_tcp(is_server, atoi(argv[2]));
	meet(&here, &there, sizeof here);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = there.gid, .hop_limit = 64 } };
	MUST(ah = ibv_create_ah(pd, &to));
	/* A WRITE needs an address handle at its target, too. */
	meet(&is_srd, &is_srd, sizeof is_srd);
	(is_server ? server : client)();
	meet(&is_srd, &is_srd, sizeof is_srd);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_ah(ah) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
	MUST(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(list);
	return checked();
}
