/*
 * Executes a script of verbs calls through libibverbs on the preloaded software HCA, which is stepped. Rings, records
 * and doorbell pages are captured before the device works. Counterpart with our provider: tests/bytes/driver.rs. The
 * statements are described in cases/README.md.
 *
 * bytes SCRIPT post|wr
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>

/* Functions of the preloaded library. */
int uverbs_softhca_capture(const char *name) __attribute__((weak));
int uverbs_softhca_note(const char *line) __attribute__((weak));
void uverbs_softhca_mark(const char *name) __attribute__((weak));
int uverbs_softhca_settle(void) __attribute__((weak));
int uverbs_softhca_place(uint32_t qpn, uint32_t *ring, uint32_t *next) __attribute__((weak));

enum { MEMORY = 1 << 20, WRS = 64, SGES = 32, CQES = 511, CHUNK = 2, ADDRESSES = 16, QKEY = 0x1ee7c0de };

/* DC key of the targets. */
#define DC_KEY UINT64_C(0x1234567890abcdef)

/* One address on both sides, so that whole WQEs can be compared. */
static uint8_t *const BASE = (uint8_t *)0x2000000000;

static int wr_api;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint64_t next_id = 1;
static enum ibv_qp_type type = IBV_QPT_RC;
/* XRC: domain of both sides' targets and shared receive queues. */
static struct ibv_xrcd *xrcd;
/* RC receives come from a shared queue per side. */
static int shared;
/* Both completion queues report to a channel. */
static int with_channel;
static struct ibv_comp_channel *channel;

/* Addresses of datagrams: attributes and handles. */
static struct ibv_ah_attr ah_attrs[ADDRESSES];
/* Path to the port itself, by which queue pairs are connected. */
static struct ibv_ah_attr way;
static struct ibv_ah *ahs[ADDRESSES];
static int ah_count;

/* A window of each type, and their keys after all binds so far. */
static int windows;
static int scatter;
/* DC initiators have streams. */
static int streams;
static struct ibv_mw *mws[2];
static uint32_t mw_keys[2];

/* An indirect key. */
static int keys;
static struct mlx5dv_mkey *key;

/* Device, domain and region are imported at the end. */
static int with_import;

/* Tag-matching queues: maximum tags and outstanding changes; tags that were added. */
static int tags, tag_changes;

/* Device memory, a dma-buf and the null region. */
static int with_memory;
static struct ibv_dm *dm;
static struct ibv_mr *dm_mr, *dmabuf_mr, *null_mr;

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	/* XRC and DC: objects that receive for this side. */
	struct ibv_srq *srq;
	struct ibv_qp *target;
	uint32_t srqn;
	struct ibv_send_wr sends[WRS];
	struct ibv_sge send_sges[WRS][SGES];
	int send_count;
	/* DC: address and stream of each send. */
	int send_addresses[WRS];
	int send_streams[WRS];
	struct ibv_recv_wr recvs[WRS];
	struct ibv_sge recv_sges[WRS][SGES];
	int recv_count;
	struct ibv_ops_wr changes[WRS];
	struct ibv_sge change_sges[WRS][SGES];
	int change_count;
	/* Handles and number of the added tags. */
	uint32_t handles[WRS];
	unsigned int added;
};

static struct side sides[2];

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (%s)\n", strerror(errno));
	exit(1);
}

#define NEED(condition, what)                                                                                    \
	do {                                                                                                     \
		if (!(condition))                                                                                \
			die("bytes: %s", what);                                                                  \
	} while (0)

static void phase(const char *name)
{
	uverbs_softhca_mark(name);
}

/* Number of cases so far. If queues are extended, every second case polls by their functions. */
static unsigned int cases;
static int extended(void)
{
	return tags || (wr_api && cases % 2);
}

/* Members of a completion. For a failure, ibv_poll_cq(3) defines the first four only. */
struct members {
	uint64_t id;
	uint32_t status, vendor, qp;
	uint32_t opcode, flags, bytes, imm, src, pkey, slid, sl, path;
};

static char *append(char *to, const char *end, const char *format, ...) __attribute__((format(printf, 3, 4)));
static char *append(char *to, const char *end, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	to += vsnprintf(to, end - to, format, args);
	va_end(args);
	NEED(to < end, "a line");
	return to;
}

/* Prints the members that libmlx5 sets. It leaves a send's message members as they were, except the bytes of READs and
 * atomics. A failed tag-matching CQE has no syndrome, although libmlx5 reads one. */
static char *print_members(char *to, const char *end, int s, const struct members *of)
{
	int answer;

	to = append(to, end, "wc %c %" PRIu64 " status %u vendor %x qp %x", 'A' + s, of->id, of->status,
		    of->status && of->status < IBV_WC_TM_ERR ? of->vendor : 0, of->qp);
	if (of->status)
		return to;
	answer = of->opcode == IBV_WC_RDMA_READ || of->opcode == IBV_WC_COMP_SWAP || of->opcode == IBV_WC_FETCH_ADD;
	/* If the response lies in the CQE, libmlx5's functions read the GRH flag from the response. */
	to = append(to, end, " opcode %u flags %x", of->opcode, of->flags & ~(scatter && answer ? IBV_WC_GRH : 0));
	if (answer)
		return append(to, end, " bytes %u", of->bytes);
	if (!(of->opcode & IBV_WC_RECV) || of->opcode == IBV_WC_DRIVER1)
		return to;
	to = append(to, end, " bytes %u", of->bytes);
	if (of->flags & IBV_WC_WITH_IMM)
		to = append(to, end, " imm %x", ntohl(of->imm));
	if (of->flags & IBV_WC_WITH_INV)
		to = append(to, end, " key %x", of->imm);
	return append(to, end, " src %x pkey %x slid %x sl %x path %x", of->src, of->pkey, of->slid, of->sl, of->path);
}

/* Prints the results of an extended queue's other functions: the stepped device's time, whether it is near the clock's
 * time, and members of packets. */
static char *print_others(char *to, const char *end, struct ibv_cq_ex *cq)
{
	uint64_t ticks = ibv_wc_read_completion_ts(cq), wall = ibv_wc_read_completion_wallclock_ns(cq);
	struct timespec now;

	NEED(!clock_gettime(CLOCK_REALTIME, &now), "clock_gettime");
	to = append(to, end, " ticks %" PRIu64 " now %d", ticks, llabs((int64_t)(wall / 1000000000) - now.tv_sec) < 60);
	if (type != IBV_QPT_RAW_PACKET || ibv_wc_read_opcode(cq) != IBV_WC_RECV)
		return to;
	return append(to, end, " vlan %x flow %x", ibv_wc_read_cvlan(cq), ibv_wc_read_flow_tag(cq));
}

static char *print_tags(char *to, const char *end, struct ibv_cq_ex *cq)
{
	int opcode = ibv_wc_read_opcode(cq), flags = ibv_wc_read_wc_flags(cq);
	struct ibv_wc_tm_info info;

	if (opcode >= IBV_WC_TM_ADD && opcode <= IBV_WC_TM_NO_TAG)
		to = append(to, end, " tags%s%s%s", flags & IBV_WC_TM_SYNC_REQ ? " sync" : "",
			    flags & IBV_WC_TM_MATCH ? " match" : "", flags & IBV_WC_TM_DATA_VALID ? " data" : "");
	if ((opcode == IBV_WC_TM_RECV || opcode == IBV_WC_TM_NO_TAG) && flags & IBV_WC_TM_MATCH) {
		ibv_wc_read_tm_info(cq, &info);
		to = append(to, end, " %" PRIx64 " %x", info.tag, info.priv);
	}
	return to;
}

/* Polls by the functions of extended queues. */
static void poll_extended(int s)
{
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)sides[s].cq;
	struct ibv_poll_cq_attr attr = {};
	char line[300], *const end = line + sizeof(line), *to;
	int error = ibv_start_poll(cq, &attr);

	if (error == ENOENT)
		return;
	while (!error) {
		struct members of = {
			cq->wr_id, cq->status, ibv_wc_read_vendor_err(cq), ibv_wc_read_qp_num(cq),
			ibv_wc_read_opcode(cq), ibv_wc_read_wc_flags(cq), ibv_wc_read_byte_len(cq),
			ibv_wc_read_imm_data(cq), ibv_wc_read_src_qp(cq), 0, ibv_wc_read_slid(cq), ibv_wc_read_sl(cq),
			ibv_wc_read_dlid_path_bits(cq),
		};

		to = print_members(line, end, s, &of);
		if (tags)
			to = print_tags(to, end, cq);
		else if (!cq->status)
			to = print_others(to, end, cq);
		NEED(!uverbs_softhca_note(line), "note");
		error = ibv_next_poll(cq);
	}
	NEED(error == ENOENT, "ibv_next_poll");
	ibv_end_poll(cq);
}

static void poll_plain(int s)
{
	struct ibv_wc wc;
	char line[300];
	int got;

	while ((got = ibv_poll_cq(sides[s].cq, 1, &wc)) > 0) {
		struct members of = { wc.wr_id, wc.status, wc.vendor_err, wc.qp_num, wc.opcode, wc.wc_flags, wc.byte_len,
				      wc.imm_data, wc.src_qp, wc.pkey_index, wc.slid, wc.sl, wc.dlid_path_bits };

		print_members(line, line + sizeof(line), s, &of);
		NEED(!uverbs_softhca_note(line), "note");
	}
	NEED(!got, "ibv_poll_cq");
}

static void poll_all(void)
{
	for (int s = 0; s < 2; s++)
		(extended() ? poll_extended : poll_plain)(s);
}

/* Reads pending events, so that the next arm of each queue has a new sequence number. */
static void take_events(void)
{
	struct ibv_cq *cq;
	void *user;
	char line[16];

	while (channel && !ibv_get_cq_event(channel, &cq, &user)) {
		snprintf(line, sizeof(line), "event %c", cq == sides[0].cq ? 'A' : 'B');
		NEED(!uverbs_softhca_note(line), "note");
		ibv_ack_cq_events(cq, 1);
	}
}

/* Lays out the indirect key. `add_send` stored the layout in the members of an atomic. */
static void lay_out(struct ibv_qp_ex *ex, struct ibv_send_wr *wr)
{
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
	uint32_t rounds = wr->wr.atomic.swap, stride = wr->wr.atomic.remote_addr, access = wr->wr.atomic.compare_add;
	struct mlx5dv_mr_interleaved blocks[SGES];

	/* The list is in the WQE. */
	ex->wr_flags |= IBV_SEND_INLINE;
	if (!rounds) {
		mlx5dv_wr_mr_list(dv, key, access, wr->num_sge, wr->sg_list);
		return;
	}
	for (int i = 0; i < wr->num_sge; i++)
		blocks[i] = (struct mlx5dv_mr_interleaved){ wr->sg_list[i].addr, wr->sg_list[i].length,
							     stride - wr->sg_list[i].length, wr->sg_list[i].lkey };
	mlx5dv_wr_mr_interleaved(dv, key, access, rounds, wr->num_sge, blocks);
}

static void post_wr_api(struct side *side)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(side->qp);

	ibv_wr_start(ex);
	for (int i = 0; i < side->send_count; i++) {
		struct ibv_send_wr *wr = &side->sends[i];
		struct ibv_data_buf pieces[SGES];

		ex->wr_id = wr->wr_id;
		ex->wr_flags = wr->send_flags;
		switch (wr->opcode) {
		case IBV_WR_SEND:
			ibv_wr_send(ex);
			break;
		case IBV_WR_SEND_WITH_IMM:
			ibv_wr_send_imm(ex, wr->imm_data);
			break;
		case IBV_WR_RDMA_WRITE:
			ibv_wr_rdma_write(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
			break;
		case IBV_WR_RDMA_WRITE_WITH_IMM:
			ibv_wr_rdma_write_imm(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
			break;
		case IBV_WR_RDMA_READ:
			ibv_wr_rdma_read(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
			break;
		case IBV_WR_ATOMIC_CMP_AND_SWP:
			ibv_wr_atomic_cmp_swp(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
					      wr->wr.atomic.compare_add, wr->wr.atomic.swap);
			break;
		case IBV_WR_ATOMIC_FETCH_AND_ADD:
			ibv_wr_atomic_fetch_add(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
						wr->wr.atomic.compare_add);
			break;
		case IBV_WR_BIND_MW:
			ibv_wr_bind_mw(ex, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
			continue;
		case IBV_WR_LOCAL_INV:
			ibv_wr_local_inv(ex, wr->invalidate_rkey);
			continue;
		case IBV_WR_DRIVER1:
			lay_out(ex, wr);
			continue;
		case IBV_WR_SEND_WITH_INV:
			ibv_wr_send_inv(ex, wr->invalidate_rkey);
			break;
		default:
			die("bytes: opcode %d", wr->opcode);
		}
		if (type == IBV_QPT_UD)
			ibv_wr_set_ud_addr(ex, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
		if (type == IBV_QPT_XRC_SEND)
			ibv_wr_set_xrc_srqn(ex, wr->qp_type.xrc.remote_srqn);
		if (type == IBV_QPT_DRIVER && streams)
			mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(ex), ahs[side->send_addresses[i]],
						     sides[side == sides].target->qp_num, DC_KEY, side->send_streams[i]);
		else if (type == IBV_QPT_DRIVER)
			mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), ahs[side->send_addresses[i]],
					      sides[side == sides].target->qp_num, DC_KEY);
		if (wr->send_flags & IBV_SEND_INLINE) {
			for (int k = 0; k < wr->num_sge; k++) {
				pieces[k].addr = (void *)(uintptr_t)wr->sg_list[k].addr;
				pieces[k].length = wr->sg_list[k].length;
			}
			if (wr->num_sge == 1)
				ibv_wr_set_inline_data(ex, pieces[0].addr, pieces[0].length);
			else
				ibv_wr_set_inline_data_list(ex, wr->num_sge, pieces);
		} else if (wr->num_sge == 1) {
			ibv_wr_set_sge(ex, wr->sg_list[0].lkey, wr->sg_list[0].addr, wr->sg_list[0].length);
		} else {
			ibv_wr_set_sge_list(ex, wr->num_sge, wr->sg_list);
		}
	}
	NEED(!(errno = ibv_wr_complete(ex)), "ibv_wr_complete");
}

static void ring_sends(struct side *side)
{
	struct ibv_send_wr *bad;

	if (!side->send_count)
		return;
	for (int i = 0; i < side->send_count; i++)
		side->sends[i].next = i + 1 < side->send_count ? &side->sends[i + 1] : NULL;
	if (wr_api)
		post_wr_api(side);
	else
		NEED(!(errno = ibv_post_send(side->qp, side->sends, &bad)), "ibv_post_send");
	side->send_count = 0;
	for (int i = 0; i < 2 && windows; i++)
		mws[i]->rkey = mw_keys[i];
}

static void ring_recvs(struct side *side)
{
	struct ibv_recv_wr *bad;

	if (!side->recv_count)
		return;
	for (int i = 0; i < side->recv_count; i++)
		side->recvs[i].next = i + 1 < side->recv_count ? &side->recvs[i + 1] : NULL;
	if (side->srq)
		NEED(!(errno = ibv_post_srq_recv(side->srq, side->recvs, &bad)), "ibv_post_srq_recv");
	else
		NEED(!(errno = ibv_post_recv(side->qp, side->recvs, &bad)), "ibv_post_recv");
	side->recv_count = 0;
}

static void ring_changes(struct side *side)
{
	struct ibv_ops_wr *bad;

	if (!side->change_count)
		return;
	for (int i = 0; i < side->change_count; i++)
		side->changes[i].next = i + 1 < side->change_count ? &side->changes[i + 1] : NULL;
	NEED(!(errno = ibv_post_srq_ops(side->srq, side->changes, &bad)), "ibv_post_srq_ops");
	for (int i = 0; i < side->change_count; i++)
		if (side->changes[i].opcode == IBV_WR_TAG_ADD)
			side->handles[side->added++ % WRS] = side->changes[i].tm.handle;
	side->change_count = 0;
}

static int parse_sges(struct ibv_sge *list)
{
	char *word;
	int count = 0;

	while ((word = strtok(NULL, " "))) {
		char *colon = strchr(word, ':');

		NEED(colon && count < SGES, word);
		list[count].length = strtoul(colon + 1, NULL, 0);
		if (strchr("dfn", *word)) {
			list[count].addr = strtoul(word + 1, NULL, 0) + (*word == 'f' ? 4096 : 0);
			list[count].lkey = (*word == 'd' ? dm_mr : *word == 'f' ? dmabuf_mr : null_mr)->lkey;
		} else if (*word == 'k') {
			list[count].addr = strtoul(word + 1, NULL, 0);
			list[count].lkey = key->lkey;
		} else {
			list[count].addr = (uintptr_t)BASE + strtoul(word, NULL, 0);
			list[count].lkey = mr->lkey;
		}
		count++;
	}
	return count;
}

/* Sets the peer as destination. */
static void set_destination(struct side *side, struct ibv_send_wr *wr, int address, uint32_t qkey)
{
	NEED(address < ah_count, "address");
	wr->wr.ud.ah = ahs[address];
	wr->wr.ud.remote_qpn = sides[side == sides].qp->qp_num;
	wr->wr.ud.remote_qkey = qkey;
}

static void add_send(struct side *side)
{
	static const struct {
		const char *name;
		enum ibv_wr_opcode opcode;
	} OPS[] = {
		{ "send", IBV_WR_SEND },
		{ "packet", IBV_WR_SEND },
		{ "send_imm", IBV_WR_SEND_WITH_IMM },
		{ "write", IBV_WR_RDMA_WRITE },
		{ "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM },
		{ "read", IBV_WR_RDMA_READ },
		{ "cas", IBV_WR_ATOMIC_CMP_AND_SWP },
		{ "faa", IBV_WR_ATOMIC_FETCH_AND_ADD },
		{ "send_inv", IBV_WR_SEND_WITH_INV },
		{ "bind", IBV_WR_BIND_MW },
		{ "inval", IBV_WR_LOCAL_INV },
		{ "layout", IBV_WR_DRIVER1 },
	};
	struct ibv_send_wr *wr = &side->sends[side->send_count];
	struct ibv_sge *list = side->send_sges[side->send_count];
	char *word = strtok(NULL, " ");
	uint64_t remote = 0, a = 0, b = 0, stride = 0;
	uint32_t qkey = QKEY;
	unsigned int op;
	int address = 0, window = 0, stream = 0;

	NEED(word && side->send_count < WRS, "send");
	memset(wr, 0, sizeof(*wr));
	for (op = 0; op < sizeof(OPS) / sizeof(OPS[0]); op++)
		if (!strcmp(word, OPS[op].name))
			break;
	NEED(op < sizeof(OPS) / sizeof(OPS[0]), word);
	wr->opcode = OPS[op].opcode;
	wr->wr_id = next_id++;
	wr->sg_list = list;
	wr->send_flags = IBV_SEND_SIGNALED;
	while ((word = strtok(NULL, " "))) {
		char *value = strchr(word, '=');

		if (!strcmp(word, "unsignaled"))
			wr->send_flags &= ~IBV_SEND_SIGNALED;
		else if (!strcmp(word, "fence"))
			wr->send_flags |= IBV_SEND_FENCE;
		else if (!strcmp(word, "solicited"))
			wr->send_flags |= IBV_SEND_SOLICITED;
		else if (!strcmp(word, "csum"))
			wr->send_flags |= IBV_SEND_IP_CSUM;
		else if (!strncmp(word, "imm=", 4))
			wr->imm_data = htonl(strtoul(value + 1, NULL, 0));
		else if (!strncmp(word, "to=", 3))
			remote = (uintptr_t)BASE + strtoul(value + 1, NULL, 0);
		else if (!strncmp(word, "a=", 2))
			a = strtoull(value + 1, NULL, 0);
		else if (!strncmp(word, "b=", 2))
			b = strtoull(value + 1, NULL, 0);
		else if (!strncmp(word, "s=", 2))
			stride = strtoull(value + 1, NULL, 0);
		else if (!strncmp(word, "ah=", 3))
			address = atoi(value + 1);
		else if (!strncmp(word, "stream=", 7))
			stream = strtoul(value + 1, NULL, 0);
		else if (!strncmp(word, "w=", 2))
			window = atoi(value + 1) - 1;
		else if (!strncmp(word, "qkey=", 5))
			qkey = strtoul(value + 1, NULL, 0);
		else if (!strcmp(word, "sge") || !strcmp(word, "inline")) {
			if (*word == 'i')
				wr->send_flags |= IBV_SEND_INLINE;
			wr->num_sge = parse_sges(list);
			break;
		} else
			die("bytes: what is %s", word);
	}
	if (type == IBV_QPT_UD) {
		set_destination(side, wr, address, qkey);
	} else if (wr->opcode == IBV_WR_BIND_MW) {
		mw_keys[window] = ibv_inc_rkey(mw_keys[window]);
		wr->bind_mw.mw = mws[window];
		wr->bind_mw.rkey = mw_keys[window];
		wr->bind_mw.bind_info.mr = mr;
		if (wr->num_sge) {
			wr->bind_mw.bind_info.addr = list->addr;
			wr->bind_mw.bind_info.length = list->length;
		}
		wr->bind_mw.bind_info.mw_access_flags = a;
		wr->num_sge = 0;
	} else if (wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_SEND_WITH_INV) {
		wr->invalidate_rkey = window == 2 ? key->rkey : mw_keys[window];
	} else if (wr->opcode == IBV_WR_DRIVER1) {
		wr->wr.atomic.remote_addr = stride;
		wr->wr.atomic.compare_add = a;
		wr->wr.atomic.swap = b;
	} else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = remote;
		wr->wr.atomic.rkey = mr->rkey;
		wr->wr.atomic.compare_add = a;
		wr->wr.atomic.swap = b;
	} else if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) {
		wr->wr.rdma.remote_addr = remote;
		wr->wr.rdma.rkey = mr->rkey;
	}
	if (type == IBV_QPT_XRC_SEND)
		wr->qp_type.xrc.remote_srqn = sides[side == sides].srqn;
	side->send_addresses[side->send_count] = address;
	side->send_streams[side->send_count] = stream;
	side->send_count++;
}

static void add_recv(struct side *side)
{
	struct ibv_recv_wr *wr = &side->recvs[side->recv_count];

	NEED(side->recv_count < WRS, "recv");
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = next_id++;
	wr->sg_list = side->recv_sges[side->recv_count];
	wr->num_sge = parse_sges(wr->sg_list);
	side->recv_count++;
}

/* Adds a change of the tag list. A removal names the tag by the number of tags added after it. */
static void add_change(struct side *side)
{
	struct ibv_ops_wr *wr = &side->changes[side->change_count];
	char *word = strtok(NULL, " ");

	NEED(word && side->change_count < WRS, "tag");
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = next_id++;
	wr->flags = IBV_OPS_SIGNALED;
	wr->opcode = !strcmp(word, "add") ? IBV_WR_TAG_ADD : !strcmp(word, "remove") ? IBV_WR_TAG_DEL : IBV_WR_TAG_SYNC;
	wr->tm.add.recv_wr_id = wr->wr_id + 1000000;
	wr->tm.add.mask = ~0ull;
	wr->tm.add.sg_list = side->change_sges[side->change_count];
	while ((word = strtok(NULL, " "))) {
		char *value = strchr(word, '=');

		if (!strcmp(word, "unsignaled"))
			wr->flags &= ~IBV_OPS_SIGNALED;
		else if (!strncmp(word, "count=", 6)) {
			wr->flags |= IBV_OPS_TM_SYNC;
			wr->tm.unexpected_cnt = strtoul(value + 1, NULL, 0);
		} else if (!strncmp(word, "tag=", 4))
			wr->tm.add.tag = strtoull(value + 1, NULL, 0);
		else if (!strncmp(word, "mask=", 5))
			wr->tm.add.mask = strtoull(value + 1, NULL, 0);
		else if (!strncmp(word, "back=", 5))
			wr->tm.handle = side->handles[(side->added - strtoul(value + 1, NULL, 0)) % WRS];
		else if (!strcmp(word, "sge")) {
			wr->tm.add.num_sge = parse_sges(wr->tm.add.sg_list);
			break;
		} else
			die("bytes: what is %s", word);
	}
	side->change_count++;
}

/* Writes a message's header to memory: kind, tag, and for a rendezvous the data's place. */
static void write_header(void)
{
	uint8_t *to = BASE + strtoul(strtok(NULL, " "), NULL, 0);
	struct ibv_tmh *header = (struct ibv_tmh *)to;
	struct ibv_rvh *behind = (struct ibv_rvh *)(header + 1);
	char *word;

	memset(header, 0, sizeof(*header));
	header->opcode = atoi(strtok(NULL, " "));
	header->tag = htobe64(strtoull(strtok(NULL, " "), NULL, 0));
	header->app_ctx = htobe32(0x01020304);
	if ((word = strtok(NULL, " "))) {
		behind->va = htobe64((uintptr_t)BASE + strtoul(word, NULL, 0));
		behind->rkey = htobe32(mr->rkey);
		behind->len = htobe32(strtoul(strchr(word, ':') + 1, NULL, 0));
	}
}

/* Posts empty WRITEs, a WQEBB each (DC: two); for UD, empty datagrams that the peer drops because of a wrong Q_Key. */
static void fill(struct side *side, uint32_t count)
{
	if (type == IBV_QPT_DRIVER)
		count /= 2;
	while (count) {
		for (int i = 0; i < CHUNK && count; i++, count--) {
			struct ibv_send_wr *wr = &side->sends[side->send_count];

			side->send_addresses[side->send_count++] = 0;
			memset(wr, 0, sizeof(*wr));
			wr->send_flags = IBV_SEND_SIGNALED;
			wr->sg_list = side->send_sges[0];
			if (type == IBV_QPT_RAW_PACKET) {
				/* A raw packet needs headers. */
				wr->opcode = IBV_WR_SEND;
				*wr->sg_list = (struct ibv_sge){ (uintptr_t)BASE, 60, mr->lkey };
				wr->num_sge = 1;
			} else if (type == IBV_QPT_UD) {
				wr->opcode = IBV_WR_SEND;
				set_destination(side, wr, 0, QKEY ^ 1);
			} else {
				wr->opcode = IBV_WR_RDMA_WRITE;
				wr->wr.rdma.remote_addr = (uintptr_t)BASE;
				wr->wr.rdma.rkey = mr->rkey;
				if (type == IBV_QPT_XRC_SEND)
					wr->qp_type.xrc.remote_srqn = sides[side == sides].srqn;
			}
		}
		ring_sends(side);
		NEED(!uverbs_softhca_settle(), "settle");
		poll_all();
	}
}

/* Fills the ring until `left` WQEBBs remain before its end. */
static void at(struct side *side, uint32_t left)
{
	uint32_t ring, next;

	NEED(!uverbs_softhca_place(side->qp->qp_num, &ring, &next), "place");
	fill(side, (ring - left - next) & (ring - 1));
}

static struct side *side_of(const char *word)
{
	NEED(word && (*word == 'A' || *word == 'B') && !word[1], "A or B");
	return &sides[*word - 'A'];
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	NEED(!(errno = ibv_modify_qp(qp, &attr, mask)), "ibv_modify_qp");
}

/* Moves to RTS with the attributes of the transport (IBTA vol 1, table 91). An XRC target sends no requests, and an
 * initiator serves none. */
static void bring_up(struct ibv_qp *qp, uint32_t peer, int is_target, const struct ibv_port_attr *port, union ibv_gid gid)
{
	int init = IBV_QP_STATE | IBV_QP_PORT, rtr = IBV_QP_STATE, rts = IBV_QP_STATE;

	if (type == IBV_QPT_UD)
		init |= IBV_QP_QKEY;
	else if (type != IBV_QPT_RAW_PACKET && (type != IBV_QPT_DRIVER || is_target))
		init |= IBV_QP_ACCESS_FLAGS;
	if (type != IBV_QPT_RAW_PACKET) {
		init |= IBV_QP_PKEY_INDEX;
		rts |= IBV_QP_SQ_PSN;
	}
	if (type == IBV_QPT_DRIVER) {
		rtr |= IBV_QP_PATH_MTU | (is_target ? IBV_QP_AV : 0);
		rts |= IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	} else if (type != IBV_QPT_UD && type != IBV_QPT_RAW_PACKET)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	}
	if (type == IBV_QPT_XRC_SEND)
		rts |= IBV_QP_TIMEOUT;
	if (is_target)
		rtr |= IBV_QP_MIN_RNR_TIMER | (type == IBV_QPT_DRIVER ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC);
	else if (type == IBV_QPT_XRC_SEND)
		rts |= IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	way = (struct ibv_ah_attr){
		.grh = { .dgid = gid, .flow_label = 0x54321, .sgid_index = 0, .hop_limit = 64, .traffic_class = 0x60 },
		.dlid = port->lid,
		.sl = 3,
		.is_global = 1,
		.port_num = 1,
	};
	phase("init");
	modify(qp,
	       (struct ibv_qp_attr){
		       .qp_state = IBV_QPS_INIT,
		       .pkey_index = 0,
		       .port_num = 1,
		       .qkey = QKEY,
		       .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	       },
	       init);
	phase("ready_to_receive");
	modify(qp,
	       (struct ibv_qp_attr){
		       .qp_state = IBV_QPS_RTR,
		       .path_mtu = IBV_MTU_1024,
		       .dest_qp_num = peer,
		       .rq_psn = 0x123456,
		       .max_dest_rd_atomic = 4,
		       .min_rnr_timer = 12,
		       .ah_attr = way,
	       },
	       rtr);
	/* A DC target has no further state. */
	if (type == IBV_QPT_DRIVER && is_target)
		return;
	phase("ready_to_send");
	modify(qp,
	       (struct ibv_qp_attr){
		       .qp_state = IBV_QPS_RTS,
		       .sq_psn = 0x123456,
		       .max_rd_atomic = 4,
		       .timeout = 14,
		       .retry_cnt = 7,
		       .rnr_retry = 6,
	       },
	       rts);
}

/* Adds `address index=1 flow=0x54321 …`; without `index` it has no global route. */
static void add_address(void)
{
	struct ibv_ah_attr *attr = &ah_attrs[ah_count];
	char *word;

	NEED(ah_count++ < ADDRESSES, "address");
	attr->port_num = 1;
	while ((word = strtok(NULL, " "))) {
		char *equals = strchr(word, '=');
		uint32_t value;

		NEED(equals, word);
		value = strtoul(equals + 1, NULL, 0);
		*equals = 0;
		if (!strcmp(word, "index")) {
			attr->is_global = 1;
			attr->grh.sgid_index = value;
		} else if (!strcmp(word, "flow"))
			attr->grh.flow_label = value;
		else if (!strcmp(word, "hops"))
			attr->grh.hop_limit = value;
		else if (!strcmp(word, "class"))
			attr->grh.traffic_class = value;
		else if (!strcmp(word, "sl"))
			attr->sl = value;
		else if (!strcmp(word, "bits"))
			attr->src_path_bits = value;
		else if (!strcmp(word, "rate"))
			attr->static_rate = value;
		else
			die("bytes: what is %s", word);
	}
}

/* Creates the XRC receivers: a domain, and for each side a queue and a target. */
static void set_up_xrc(int recv_wr, int recv_sge)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	phase("open_xrcd");
	NEED(xrcd = ibv_open_xrcd(context, &domain), "ibv_open_xrcd");
	for (int s = 0; s < 2; s++) {
		struct ibv_srq_init_attr_ex queue = {
			.attr = { .max_wr = recv_wr, .max_sge = recv_sge },
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
				     IBV_SRQ_INIT_ATTR_PD,
			.srq_type = IBV_SRQT_XRC,
			.pd = pd,
			.xrcd = xrcd,
			.cq = sides[s].cq,
		};
		struct ibv_qp_init_attr_ex target = {
			.qp_type = IBV_QPT_XRC_RECV,
			.comp_mask = IBV_QP_INIT_ATTR_XRCD,
			.xrcd = xrcd,
		};

		phase("create_srq");
		NEED(sides[s].srq = ibv_create_srq_ex(context, &queue), "ibv_create_srq_ex");
		NEED(!ibv_get_srq_num(sides[s].srq, &sides[s].srqn), "ibv_get_srq_num");
		phase("create_target");
		NEED(sides[s].target = ibv_create_qp_ex(context, &target), "ibv_create_qp_ex");
	}
}

/* Creates shared receive queues, and for DC targets over them. */
static void set_up_shared(int recv_wr, int recv_sge)
{
	for (int s = 0; s < 2; s++) {
		struct ibv_srq_init_attr queue = { .attr = { .max_wr = recv_wr, .max_sge = recv_sge } };
		struct mlx5dv_qp_init_attr dynamic = {
			.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
			.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = DC_KEY },
		};
		struct ibv_qp_init_attr_ex target = {
			.qp_type = IBV_QPT_DRIVER,
			.comp_mask = IBV_QP_INIT_ATTR_PD,
			.pd = pd,
			.send_cq = sides[s].cq,
			.recv_cq = sides[s].cq,
		};

		struct ibv_srq_init_attr_ex matching = {
			.attr = queue.attr,
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD |
				     IBV_SRQ_INIT_ATTR_TM,
			.srq_type = IBV_SRQT_TM,
			.pd = pd,
			.cq = sides[s].cq,
			.tm_cap = { .max_num_tags = tags, .max_ops = tag_changes },
		};

		phase("create_srq");
		if (tags)
			NEED(sides[s].srq = ibv_create_srq_ex(context, &matching), "ibv_create_srq_ex");
		else
			NEED(sides[s].srq = ibv_create_srq(pd, &queue), "ibv_create_srq");
		target.srq = sides[s].srq;
		if (type != IBV_QPT_DRIVER)
			continue;
		phase("create_target");
		NEED(sides[s].target = mlx5dv_create_qp(context, &target, &dynamic), "mlx5dv_create_qp");
	}
}

/*
 * Opens a target again by its number. libmlx5's destroy_qp would free a doorbell record that such a queue pair lacks,
 * and crash. So the command is sent as by ibv_cmd_destroy_qp.
 */
static void reopen(void)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = sides[0].target->qp_num,
		.xrcd = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ib_uverbs_destroy_qp_resp answer;
	struct {
		struct ib_uverbs_ioctl_hdr head;
		struct ib_uverbs_attr attrs[2];
	} destroy = {
		.head = { .length = sizeof(destroy), .object_id = UVERBS_OBJECT_QP,
			  .method_id = UVERBS_METHOD_QP_DESTROY, .num_attrs = 2, .driver_id = RDMA_DRIVER_MLX5 },
	};
	struct ibv_qp *again;

	phase("open_qp");
	NEED(again = ibv_open_qp(context, &attr), "ibv_open_qp");
	destroy.attrs[0] = (struct ib_uverbs_attr){ .attr_id = UVERBS_ATTR_DESTROY_QP_RESP, .len = sizeof(answer),
						    .flags = UVERBS_ATTR_F_MANDATORY, .data = (uintptr_t)&answer };
	destroy.attrs[1] = (struct ib_uverbs_attr){ .attr_id = UVERBS_ATTR_DESTROY_QP_HANDLE,
						    .flags = UVERBS_ATTR_F_MANDATORY, .data = again->handle };
	NEED(!ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &destroy), "QP_DESTROY");
}

/* Creates device memory, a dma-buf (a file that softhca accepts as one) and the null region. */
static void set_up_memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096, .log_align_req = 6 };
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	uint8_t back[256];
	int fd;

	phase("alloc_dm");
	NEED(dm = ibv_alloc_dm(context, &attr), "ibv_alloc_dm");
	NEED(!ibv_memcpy_to_dm(dm, 64, BASE, 2048), "ibv_memcpy_to_dm");
	NEED(!ibv_memcpy_from_dm(back, dm, 64, sizeof(back)) && !memcmp(back, BASE, sizeof(back)), "ibv_memcpy_from_dm");
	/* In process the device has no such operations; the commands are compared. */
	for (int op = 0; op < 2; op++) {
		phase("map_operation");
		NEED(mlx5dv_dm_map_op_addr(dm, op), "mlx5dv_dm_map_op_addr");
	}
	phase("reg_dm_mr");
	NEED(dm_mr = ibv_reg_dm_mr(pd, dm, 64, 2048, access | IBV_ACCESS_ZERO_BASED), "ibv_reg_dm_mr");
	NEED((fd = memfd_create("exported", MFD_ALLOW_SEALING)) >= 0 && !ftruncate(fd, 8192), "memfd_create");
	NEED(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) && pwrite(fd, BASE, 4096, 4096) == 4096, "F_ADD_SEALS");
	phase("reg_dmabuf_mr");
	NEED(dmabuf_mr = ibv_reg_dmabuf_mr(pd, 4096, 4096, 4096, fd, access), "ibv_reg_dmabuf_mr");
	close(fd);
	phase("alloc_null_mr");
	NEED(null_mr = ibv_alloc_null_mr(pd), "ibv_alloc_null_mr");
}

static void tear_down_memory(void)
{
	NEED(!ibv_dereg_mr(null_mr), "ibv_dereg_mr");
	phase("dereg_dmabuf_mr");
	NEED(!ibv_dereg_mr(dmabuf_mr), "ibv_dereg_mr");
	phase("dereg_dm_mr");
	NEED(!ibv_dereg_mr(dm_mr), "ibv_dereg_mr");
	phase("free_dm");
	NEED(!ibv_free_dm(dm), "ibv_free_dm");
}

/* Sets the alternate path to the peer, and a migration state. */
static void take_alternate(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.alt_ah_attr = way,
		.alt_port_num = 1,
		.alt_timeout = 15,
		.path_mig_state = IBV_MIG_REARM,
	};

	attr.alt_ah_attr.sl = 1;
	attr.alt_ah_attr.grh.hop_limit = 7;
	phase("alternate");
	modify(qp, attr, IBV_QP_STATE | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
}

/* Drains the send queue (SQD), changes the queue pair, and resumes. */
static void drain(struct ibv_qp *qp, int drained, int back)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD,
		.qkey = 6,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mig_state = IBV_MIG_MIGRATED,
		.max_rd_atomic = 2,
		.max_dest_rd_atomic = 3,
		.min_rnr_timer = 6,
		.port_num = 1,
		.timeout = 16,
		.retry_cnt = 5,
		.rnr_retry = 4,
		.ah_attr = way,
	};

	phase("drain");
	modify(qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 },
	       IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
	phase("change_drained");
	modify(qp, attr, drained | IBV_QP_STATE | IBV_QP_PKEY_INDEX);
	attr.qp_state = IBV_QPS_RTS;
	phase("resume");
	modify(qp, attr, back | IBV_QP_STATE);
}

/* Changes in RTS, through SQD, and of the rate limit, which only raw packets have. This device supports no limit. */
static void changes(void)
{
	struct ibv_qp *qp = sides[0].qp;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.cur_qp_state = IBV_QPS_RTS,
		.qkey = 5,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
		.min_rnr_timer = 5,
		.rate_limit = 1000,
	};
	int access = IBV_QP_ACCESS_FLAGS | (type == IBV_QPT_RC ? IBV_QP_MIN_RNR_TIMER : 0);

	if (type == IBV_QPT_XRC_SEND) {
		phase("change_target");
		modify(sides[0].target, attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER);
		take_alternate(sides[0].target);
	}
	phase("change");
	if (type == IBV_QPT_RAW_PACKET) {
		attr.rate_limit = 0;
		modify(qp, attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT);
		attr.rate_limit = 1000;
	} else if (type == IBV_QPT_DRIVER) {
		modify(qp, attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
		if (streams) {
			phase("reset_stream");
			NEED(!(errno = mlx5dv_dci_stream_id_reset(qp, 0x1234)), "mlx5dv_dci_stream_id_reset");
		}
	} else if (type == IBV_QPT_UD) {
		modify(qp, attr, IBV_QP_STATE | IBV_QP_QKEY);
		drain(qp, IBV_QP_QKEY, IBV_QP_QKEY);
	} else {
		modify(qp, attr, IBV_QP_STATE | access);
		take_alternate(qp);
	}
	if (type == IBV_QPT_RC)
		drain(qp,
		      access | IBV_QP_PORT | IBV_QP_AV | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
			      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_PATH_MIG_STATE,
		      access);
	if (type == IBV_QPT_UC)
		drain(qp, access | IBV_QP_PATH_MIG_STATE, access);
	phase("by_mask");
	if (type != IBV_QPT_RAW_PACKET && type != IBV_QPT_DRIVER)
		modify(qp, attr, IBV_QP_CUR_STATE | IBV_QP_STATE | (type == IBV_QPT_UD ? IBV_QP_QKEY : access));
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT), "a rate, which the device lacks");
}

/* Calls that the cases do not need, for each object. */
static void other_calls(void)
{
	union ibv_gid group = { .raw = { 0xff, 0x12, [15] = 0x77 } };

	for (int s = 0; s < 2 && sides[s].srq; s++) {
		struct ibv_srq_attr limit = { .srq_limit = 3 };

		phase("modify_srq");
		NEED(!(errno = ibv_modify_srq(sides[s].srq, &limit, IBV_SRQ_LIMIT)), "ibv_modify_srq");
		phase("query_srq");
		NEED(!ibv_query_srq(sides[s].srq, &limit) && limit.srq_limit == 3, "ibv_query_srq");
	}
	if (xrcd) {
		struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
						   .oflags = O_CREAT };
		int file = open("/proc/self/exe", O_RDONLY);
		struct ibv_xrcd *of_file;

		/* The command contains the number. */
		NEED((init.fd = fcntl(file, F_DUPFD, 900)) == 900, "F_DUPFD");
		phase("open_shared_xrcd");
		NEED(of_file = ibv_open_xrcd(context, &init), "ibv_open_xrcd");
		phase("close_shared_xrcd");
		NEED(!ibv_close_xrcd(of_file), "ibv_close_xrcd");
		close(init.fd);
		close(file);
	}
	changes();
	if (type == IBV_QPT_UD) {
		phase("attach_mcast");
		NEED(!ibv_attach_mcast(sides[0].qp, &group, 0xc001), "ibv_attach_mcast");
		phase("detach_mcast");
		NEED(!ibv_detach_mcast(sides[0].qp, &group, 0xc001), "ibv_detach_mcast");
	}
}

/* Imports the open device by its descriptor, and objects by their handles, as another process would. */
static void import(void)
{
	struct ibv_context *guest;
	struct ibv_pd *guests_pd;
	struct ibv_mr *guests_mr;

	phase("import_device");
	NEED(guest = ibv_import_device(dup(context->cmd_fd)), "ibv_import_device");
	phase("import_pd");
	NEED(guests_pd = ibv_import_pd(guest, pd->handle), "ibv_import_pd");
	phase("import_mr");
	NEED(guests_mr = ibv_import_mr(guests_pd, mr->handle), "ibv_import_mr");
	NEED(guests_mr->lkey == mr->lkey && guests_mr->rkey == mr->rkey, "keys");
	phase("import_end");
	ibv_unimport_mr(guests_mr);
	ibv_unimport_pd(guests_pd);
	NEED(!ibv_close_device(guest), "ibv_close_device");
}

/* Rules of the first queue pair, and the counters of two of them. */
static struct ibv_flow *flows[5];
static struct ibv_counters *counters;

struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[256];
};

/* Adds a specification. */
static void add_spec(struct rule *rule, const void *spec, size_t size)
{
	NEED(rule->attr.size + size <= sizeof(*rule), "rule");
	memcpy((uint8_t *)rule + rule->attr.size, spec, size);
	rule->attr.size += size;
	rule->attr.num_of_specs++;
}

#define SPEC(rule, ...) add_spec(rule, &(__VA_ARGS__), sizeof(__VA_ARGS__))

static void set_up_flows(void)
{
	struct rule rules[5];
	struct ibv_counters_init_attr none = {};
	struct ibv_counter_attach_attr point = { .counter_desc = IBV_COUNTER_BYTES, .index = 1 };
	uint64_t values[2] = {};
	struct ibv_flow_spec_ipv6 ipv6 = {
		.type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ipv6),
		.val = { .src_ip = { 0xfd, [15] = 1 }, .dst_ip = { 0xfd, [15] = 2 }, .flow_label = htonl(0x12345),
			 .next_hdr = 6, .traffic_class = 0x60 },
		.mask = { .flow_label = htonl(0xfffff), .next_hdr = 0xff, .traffic_class = 0xf0 },
	};

	for (int i = 0; i < 5; i++) {
		memset(&rules[i], 0, sizeof(rules[i]));
		rules[i].attr.size = sizeof(rules[i].attr);
		rules[i].attr.port = 1;
	}
	phase("create_counters");
	NEED(counters = ibv_create_counters(context, &none), "ibv_create_counters");
	/* libmlx5 sends the points to the kernel in reverse order. */
	NEED(!ibv_attach_counters_point_flow(counters, &point, NULL), "ibv_attach_counters_point_flow");
	point = (struct ibv_counter_attach_attr){ .counter_desc = IBV_COUNTER_PACKETS };
	NEED(!ibv_attach_counters_point_flow(counters, &point, NULL), "ibv_attach_counters_point_flow");

	rules[0].attr.priority = 3;
	SPEC(&rules[0], (struct ibv_flow_spec_eth){
		.type = IBV_FLOW_SPEC_ETH, .size = sizeof(struct ibv_flow_spec_eth),
		.val = { .dst_mac = { 2, [5] = 2 }, .src_mac = { 2, 0x55 }, .ether_type = htons(0x0800),
			 .vlan_tag = htons(0x0123) },
		.mask = { .dst_mac = { 255, 255, 255, 255, 255, 255 }, .src_mac = { 255, 255 },
			  .ether_type = 0xffff, .vlan_tag = htons(0x0fff) } });
	SPEC(&rules[0], (struct ibv_flow_spec_ipv4_ext){
		.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(struct ibv_flow_spec_ipv4_ext),
		.val = { .src_ip = htonl(0x0a010000), .dst_ip = htonl(0x0a010203), .proto = 17, .tos = 0x48 },
		.mask = { .src_ip = htonl(0xffff0000), .dst_ip = 0xffffffff, .proto = 0xff, .tos = 0xfc } });
	SPEC(&rules[0], (struct ibv_flow_spec_tcp_udp){
		.type = IBV_FLOW_SPEC_UDP, .size = sizeof(struct ibv_flow_spec_tcp_udp),
		.val = { .dst_port = htons(4791), .src_port = htons(0xc000) },
		.mask = { .dst_port = 0xffff, .src_port = htons(0xf000) } });
	SPEC(&rules[0], (struct ibv_flow_spec_action_tag){
		.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(struct ibv_flow_spec_action_tag), .tag_id = 0x123456 });

	memset(ipv6.mask.src_ip, 255, 16);
	memset(ipv6.mask.dst_ip, 255, 16);
	SPEC(&rules[1], ipv6);
	SPEC(&rules[1], (struct ibv_flow_spec_tcp_udp){
		.type = IBV_FLOW_SPEC_TCP, .size = sizeof(struct ibv_flow_spec_tcp_udp),
		.val = { .dst_port = htons(80) }, .mask = { .dst_port = 0xffff } });

	rules[2].attr.priority = 15;
	rules[3].attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	for (uint8_t i = 2; i < 4; i++)
		SPEC(&rules[i], (struct ibv_flow_spec_eth){
			.type = IBV_FLOW_SPEC_ETH, .size = sizeof(struct ibv_flow_spec_eth),
			.val = { .dst_mac = { 2, 0, 0, 0, 1, i - 1 } },
			.mask = { .dst_mac = { 255, 255, 255, 255, 255, 255 } } });
	SPEC(&rules[2], (struct ibv_flow_spec_action_drop){
		.type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof(struct ibv_flow_spec_action_drop) });
	for (int i = 1; i < 4; i += 2)
		SPEC(&rules[i], (struct ibv_flow_spec_counter_action){
			.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(struct ibv_flow_spec_counter_action),
			.counters = counters });
	rules[4].attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;

	phase("create_flow");
	for (int i = 0; i < 5; i++)
		NEED(flows[i] = ibv_create_flow(sides[0].qp, &rules[i].attr), "ibv_create_flow");
	phase("read_counters");
	NEED(!ibv_read_counters(counters, values, 2, 0) && !values[0] && !values[1], "ibv_read_counters");
}

static void tear_down_flows(void)
{
	phase("destroy_flow");
	for (int i = 0; i < 5; i++)
		NEED(!ibv_destroy_flow(flows[i]), "ibv_destroy_flow");
	phase("destroy_counters");
	NEED(!ibv_destroy_counters(counters), "ibv_destroy_counters");
}

/* Two work queues, a table of both, a queue pair over it with a rule, and receives that stay posted. */
static struct ibv_wq *wqs[2];
static struct ibv_rwq_ind_table *table;
static struct ibv_qp *spread;
static struct ibv_flow *spread_flow;

static void set_up_spread(void)
{
	uint8_t key[40];
	struct rule rule = { .attr = { .size = sizeof(rule.attr), .port = 1 } };
	struct ibv_wq_init_attr of_wq = { .wq_type = IBV_WQT_RQ, .max_wr = 5, .max_sge = 2, .pd = pd,
					  .cq = sides[0].cq };
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
				     .wq_state = IBV_WQS_RDY, .curr_wq_state = IBV_WQS_RESET };
	struct ibv_rwq_ind_table_init_attr of_table = { .log_ind_tbl_size = 1, .ind_tbl = wqs };
	struct ibv_qp_init_attr_ex of_qp = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = pd,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ, .rx_hash_key_len = sizeof(key),
				  .rx_hash_key = key,
				  .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_PORT_UDP },
	};
	struct ibv_sge pieces[2] = { { (uintptr_t)BASE + 64, 1000, mr->lkey }, { (uintptr_t)BASE + 4096, 24, mr->lkey } };
	struct ibv_recv_wr third = { .wr_id = 3 }, second = { 2, &third, pieces, 2 };
	struct ibv_recv_wr first = { 1, &second, pieces, 1 }, *bad;

	phase("create_wq");
	for (int i = 0; i < 2; i++) {
		NEED(wqs[i] = ibv_create_wq(context, &of_wq), "ibv_create_wq");
		of_wq.max_wr = 1;
		of_wq.max_sge = 1;
		of_wq.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
		of_wq.create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	}
	phase("create_rwq_ind_table");
	NEED(table = ibv_create_rwq_ind_table(context, &of_table), "ibv_create_rwq_ind_table");
	phase("modify_wq");
	for (int i = 0; i < 2; i++)
		NEED(!(errno = ibv_modify_wq(wqs[i], &ready)), "ibv_modify_wq");
	for (int i = 0; i < 40; i++)
		key[i] = 3 * i + 1;
	phase("create_qp spread");
	of_qp.rwq_ind_tbl = table;
	NEED(spread = ibv_create_qp_ex(context, &of_qp), "ibv_create_qp_ex");
	SPEC(&rule, (struct ibv_flow_spec_eth){
		.type = IBV_FLOW_SPEC_ETH, .size = sizeof(struct ibv_flow_spec_eth),
		.val = { .dst_mac = { 2, 0, 0, 0, 1, 9 } }, .mask = { .dst_mac = { 255, 255, 255, 255, 255, 255 } } });
	phase("create_flow");
	NEED(spread_flow = ibv_create_flow(spread, &rule.attr), "ibv_create_flow");
	NEED(!(errno = ibv_post_wq_recv(wqs[0], &first, &bad)), "ibv_post_wq_recv");
	NEED(!(errno = ibv_post_wq_recv(wqs[1], &third, &bad)), "ibv_post_wq_recv");
}

static void tear_down_spread(void)
{
	struct ibv_wq_attr reset = { .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
				     .wq_state = IBV_WQS_RESET, .curr_wq_state = IBV_WQS_RDY };

	phase("destroy_flow");
	NEED(!ibv_destroy_flow(spread_flow), "ibv_destroy_flow");
	phase("destroy_qp spread");
	NEED(!ibv_destroy_qp(spread), "ibv_destroy_qp");
	phase("destroy_rwq_ind_table");
	NEED(!ibv_destroy_rwq_ind_table(table), "ibv_destroy_rwq_ind_table");
	phase("modify_wq");
	NEED(!(errno = ibv_modify_wq(wqs[0], &reset)), "ibv_modify_wq");
	phase("destroy_wq");
	for (int i = 0; i < 2; i++)
		NEED(!ibv_destroy_wq(wqs[i]), "ibv_destroy_wq");
}

static void set_up(int send_wr, int send_sge, int max_inline, int recv_wr, int recv_sge)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;
	struct mlx5dv_qp_init_attr initiator = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCI },
	};
	struct mlx5dv_qp_init_attr with_streams = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCI,
				  .dci_streams = { .log_num_concurent = 2, .log_num_errored = 5 } },
	};
	struct mlx5dv_qp_init_attr with_layouts = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED,
	};
	struct mlx5dv_qp_init_attr answers = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
	};
	struct ibv_qp_init_attr_ex init;
	struct ibv_qp_attr attr;
	union ibv_gid gid;

	NEED(list && *list, "no device");
	phase("open_device");
	NEED(context = ibv_open_device(*list), "ibv_open_device");
	ibv_free_device_list(list);
	phase("query_port");
	NEED(!ibv_query_port(context, 1, &port), "ibv_query_port");
	phase("query_gid");
	NEED(!ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
	for (int i = 0; i < ah_count; i++) {
		struct ibv_ah_attr *attr = &ah_attrs[i];

		attr->dlid = port.lid;
		if (attr->is_global)
			NEED(!ibv_query_gid(context, 1, attr->grh.sgid_index, &attr->grh.dgid), "ibv_query_gid");
	}
	phase("alloc_pd");
	NEED(pd = ibv_alloc_pd(context), "ibv_alloc_pd");
	phase("reg_mr");
	NEED(mmap(BASE, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
		     BASE,
	     "mmap");
	for (uint32_t i = 0; i < MEMORY; i++)
		BASE[i] = i * 7 + (i >> 8) * 13 + 1;
	NEED(mr = ibv_reg_mr(pd, BASE, MEMORY,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_ATOMIC | (windows ? IBV_ACCESS_MW_BIND : 0)),
	     "ibv_reg_mr");
	for (int i = 0; i < 2 && windows; i++) {
		phase("alloc_mw");
		NEED(mws[i] = ibv_alloc_mw(pd, i ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1), "ibv_alloc_mw");
		mw_keys[i] = mws[i]->rkey;
	}
	if (keys) {
		struct mlx5dv_mkey_init_attr of_key = {
			.pd = pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = SGES,
		};

		phase("alloc_key");
		NEED(key = mlx5dv_create_mkey(&of_key), "mlx5dv_create_mkey");
	}
	if (with_memory)
		set_up_memory();
	if (with_channel) {
		phase("create_comp_channel");
		NEED(channel = ibv_create_comp_channel(context), "ibv_create_comp_channel");
		NEED(!fcntl(channel->fd, F_SETFL, O_NONBLOCK), "fcntl");
	}
	phase("create_cq");
	for (int s = 0; s < 2; s++) {
		struct ibv_cq_init_attr_ex attr = { .cqe = CQES, .channel = channel, .wc_flags = IBV_WC_STANDARD_FLAGS };

		attr.wc_flags |= tags ? IBV_WC_EX_WITH_TM_INFO :
					IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
						IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_CVLAN |
						IBV_WC_EX_WITH_FLOW_TAG;
		if (tags || wr_api)
			NEED(sides[s].cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &attr)), "ibv_create_cq_ex");
		else
			NEED(sides[s].cq = ibv_create_cq(context, CQES, NULL, channel, 0), "ibv_create_cq");
	}
	if (type == IBV_QPT_XRC_SEND)
		set_up_xrc(recv_wr, recv_sge);
	else if (shared || type == IBV_QPT_DRIVER)
		set_up_shared(recv_wr, recv_sge);
	for (int s = 0; s < 2; s++) {
		phase(s ? "create_qp B" : "create_qp A");
		memset(&init, 0, sizeof(init));
		init.send_cq = init.recv_cq = sides[s].cq;
		init.qp_type = type;
		init.cap.max_send_wr = send_wr;
		init.cap.max_send_sge = send_sge;
		init.cap.max_inline_data = max_inline;
		/* An initiator has no receives, but libmlx5 would allocate a ring for them. */
		init.cap.max_recv_wr = sides[s].srq ? 0 : recv_wr;
		init.cap.max_recv_sge = sides[s].srq ? 0 : recv_sge;
		if (shared)
			init.srq = sides[s].srq;
		if (wr_api) {
			init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
			init.pd = pd;
			init.send_ops_flags = IBV_QP_EX_WITH_SEND;
			if (type != IBV_QPT_RAW_PACKET)
				init.send_ops_flags |= IBV_QP_EX_WITH_SEND_WITH_IMM;
			if (type != IBV_QPT_UD && type != IBV_QPT_RAW_PACKET)
				init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
			if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_DRIVER)
				init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
						       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
			if (windows)
				init.send_ops_flags |= IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
						       IBV_QP_EX_WITH_SEND_WITH_INV;
			if (keys)
				init.send_ops_flags |= IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
			sides[s].qp = streams		     ? mlx5dv_create_qp(context, &init, &with_streams) :
				      type == IBV_QPT_DRIVER ? mlx5dv_create_qp(context, &init, &initiator) :
				      keys		     ? mlx5dv_create_qp(context, &init, &with_layouts) :
				      scatter		     ? mlx5dv_create_qp(context, &init, &answers) :
							       ibv_create_qp_ex(context, &init);
		} else if (scatter) {
			init.comp_mask = IBV_QP_INIT_ATTR_PD;
			init.pd = pd;
			sides[s].qp = mlx5dv_create_qp(context, &init, &answers);
		} else {
			sides[s].qp = ibv_create_qp(pd, (struct ibv_qp_init_attr *)&init);
		}
		NEED(sides[s].qp, "ibv_create_qp");
	}
	for (int s = 0; s < 2; s++) {
		struct side *peer = &sides[!s];

		bring_up(sides[s].qp, (peer->target ? peer->target : peer->qp)->qp_num, 0, &port, gid);
		if (sides[s].target)
			bring_up(sides[s].target, peer->qp->qp_num, 1, &port, gid);
	}
	if (xrcd)
		reopen();
	if (type == IBV_QPT_RAW_PACKET) {
		set_up_flows();
		set_up_spread();
	}
	if (ah_count)
		phase("create_ah");
	for (int i = 0; i < ah_count; i++)
		NEED(ahs[i] = ibv_create_ah(pd, &ah_attrs[i]), "ibv_create_ah");
	phase("query_qp");
	for (int s = 0; s < 2; s++)
		NEED(!ibv_query_qp(sides[s].qp, &attr, IBV_QP_RATE_LIMIT - 1, (struct ibv_qp_init_attr *)&init), "ibv_query_qp");
	phase("cases");
}

static void tear_down(void)
{
	char line[80];
	uint64_t hash = 0xcbf29ce484222325;

	other_calls();
	if (with_import)
		import();
	phase("fail");
	for (int s = 0; s < 2; s++)
		modify(sides[s].qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE);
	if (type == IBV_QPT_RAW_PACKET) {
		tear_down_spread();
		tear_down_flows();
	}
	if (ah_count)
		phase("destroy_ah");
	for (int i = 0; i < ah_count; i++)
		NEED(!ibv_destroy_ah(ahs[i]), "ibv_destroy_ah");
	phase("destroy_qp");
	for (int s = 0; s < 2; s++)
		NEED(!ibv_destroy_qp(sides[s].qp), "ibv_destroy_qp");
	for (int s = 0; s < 2 && sides[s].srq; s++) {
		if (sides[s].target) {
			phase("destroy_target");
			NEED(!ibv_destroy_qp(sides[s].target), "ibv_destroy_qp");
		}
		phase("destroy_srq");
		NEED(!ibv_destroy_srq(sides[s].srq), "ibv_destroy_srq");
	}
	if (xrcd) {
		phase("close_xrcd");
		NEED(!ibv_close_xrcd(xrcd), "ibv_close_xrcd");
	}
	phase("destroy_cq");
	for (int s = 0; s < 2; s++)
		NEED(!ibv_destroy_cq(sides[s].cq), "ibv_destroy_cq");
	for (int i = 0; i < 2 && windows; i++) {
		phase("dealloc_mw");
		NEED(!ibv_dealloc_mw(mws[i]), "ibv_dealloc_mw");
	}
	if (keys) {
		phase("dealloc_key");
		NEED(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
	}
	if (with_memory)
		tear_down_memory();
	if (channel)
		NEED(!ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
	phase("dereg_mr");
	NEED(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	phase("dealloc_pd");
	NEED(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
	phase("close_device");
	NEED(!ibv_close_device(context), "ibv_close_device");
	for (int i = 0; i < MEMORY; i++)
		hash = (hash ^ BASE[i]) * 0x100000001b3;
	snprintf(line, sizeof(line), "memory %016" PRIx64, hash);
	NEED(!uverbs_softhca_note(line), "note");
}

int main(int argc, char **argv)
{
	static char line[8192], name[sizeof(line)];
	int sizes[5];
	FILE *script;

	if (argc != 3 || !uverbs_softhca_capture)
		die("bytes SCRIPT post|wr, with the library preloaded");
	wr_api = !strcmp(argv[2], "wr");
	NEED(script = fopen(argv[1], "r"), argv[1]);
	while (fgets(line, sizeof(line), script)) {
		char *word;

		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "case ", 5)) {
			snprintf(name, sizeof(name), "%s", line + 5);
			continue;
		}
		word = strtok(line, " ");
		if (!strcmp(word, "transport")) {
			word = strtok(NULL, " ");
			NEED(word, "transport");
			type = !strcmp(word, "ud")  ? IBV_QPT_UD :
			       !strcmp(word, "uc")  ? IBV_QPT_UC :
			       !strcmp(word, "xrc") ? IBV_QPT_XRC_SEND :
			       !strcmp(word, "dc")  ? IBV_QPT_DRIVER :
			       !strcmp(word, "raw") ? IBV_QPT_RAW_PACKET :
						       IBV_QPT_RC;
		} else if (!strcmp(word, "scatter")) {
			scatter = 1;
		} else if (!strcmp(word, "streams")) {
			streams = 1;
		} else if (!strcmp(word, "windows")) {
			windows = 1;
		} else if (!strcmp(word, "keys")) {
			keys = 1;
		} else if (!strcmp(word, "srq")) {
			shared = 1;
		} else if (!strcmp(word, "tags")) {
			tags = atoi(strtok(NULL, " "));
			tag_changes = atoi(strtok(NULL, " "));
		} else if (!strcmp(word, "tag")) {
			add_change(side_of(strtok(NULL, " ")));
		} else if (!strcmp(word, "header")) {
			write_header();
		} else if (!strcmp(word, "import")) {
			with_import = 1;
		} else if (!strcmp(word, "memory")) {
			with_memory = 1;
		} else if (!strcmp(word, "address")) {
			add_address();
		} else if (!strcmp(word, "channel")) {
			with_channel = 1;
		} else if (!strcmp(word, "arm")) {
			struct side *side = side_of(strtok(NULL, " "));

			word = strtok(NULL, " ");
			NEED(word && !(errno = ibv_req_notify_cq(side->cq, !strcmp(word, "solicited"))), "arm");
		} else if (!strcmp(word, "resize")) {
			struct side *side = side_of(strtok(NULL, " "));

			NEED(!(errno = ibv_resize_cq(side->cq, atoi(strtok(NULL, " ")))), "ibv_resize_cq");
		} else if (!strcmp(word, "poll")) {
			poll_plain(side_of(strtok(NULL, " ")) == &sides[1]);
		} else if (!strcmp(word, "moderate")) {
			struct side *side = side_of(strtok(NULL, " "));
			struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE };

			attr.moderate.cq_count = atoi(strtok(NULL, " "));
			attr.moderate.cq_period = atoi(strtok(NULL, " "));
			NEED(!(errno = ibv_modify_cq(side->cq, &attr)), "ibv_modify_cq");
		} else if (!strcmp(word, "work")) {
			NEED(!uverbs_softhca_settle(), "settle");
		} else if (!strcmp(word, "sizes")) {
			for (int i = 0; i < 5; i++) {
				word = strtok(NULL, " ");
				NEED(word, "sizes");
				sizes[i] = atoi(word);
			}
			set_up(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]);
		} else if (!strcmp(word, "at")) {
			struct side *side = side_of(strtok(NULL, " "));

			at(side, atoi(strtok(NULL, " ")));
		} else if (!strcmp(word, "fill")) {
			struct side *side = side_of(strtok(NULL, " "));

			fill(side, atoi(strtok(NULL, " ")));
		} else if (!strcmp(word, "recv")) {
			add_recv(side_of(strtok(NULL, " ")));
		} else if (!strcmp(word, "send")) {
			add_send(side_of(strtok(NULL, " ")));
		} else if (!strcmp(word, "ring")) {
			struct side *side = side_of(strtok(NULL, " "));

			ring_changes(side);
			ring_recvs(side);
			ring_sends(side);
		} else if (!strcmp(word, "end")) {
			NEED(!uverbs_softhca_capture(name), "capture");
			NEED(!uverbs_softhca_settle(), "settle");
			poll_all();
			take_events();
			cases++;
		} else {
			die("bytes: what is %s", word);
		}
	}
	tear_down();
	return 0;
}
