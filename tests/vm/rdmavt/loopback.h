/* SPDX-License-Identifier: MIT */
/*
 * A device of one port whose link leads back to itself, over the kernel's own rdmavt: rings, keys,
 * states and completions are rdmavt's, this driver only carries messages between its queue pairs.
 *
 * It takes the driver id of hfi1, so programs drive it as Omni-Path.
 */
#ifndef RVT_LOOPBACK_H
#define RVT_LOOPBACK_H

#include <linux/pci.h>
#include <linux/workqueue.h>
#include <rdma/rdma_vt.h>
#include <rdma/rdmavt_cq.h>
#include <rdma/rdmavt_qp.h>

/* Bytes in front of a datagram, in which its GRH is if it has one. */
#define GRH_BYTES 40
/* MTU of the link, by OPA's code 7. */
#define LINK_MTU 10240
#define P_KEYS 16
#define DEFAULT_P_KEY 0xffff

struct loopback {
	struct rvt_dev_info rdi; /* first: rdmavt allocates the whole */
	struct rvt_ibport port;
	u16 p_keys[P_KEYS];
	struct pci_dev *named; /* for rdmavt's messages */
};

/* Send engine of a queue pair. */
struct engine {
	struct work_struct work;
	struct rvt_qp *qp;
};

extern unsigned int lid;

static inline struct loopback *to_loopback(struct rvt_dev_info *rdi)
{
	return container_of(rdi, struct loopback, rdi);
}

/* port.c */
extern const __be64 node_guid;
void init_port(struct loopback *dev);
void set_port_functions(struct rvt_driver_provided *f);
/* A destination, with the LID that a GID of Omni-Path carries. */
void settle_lid(struct rdma_ah_attr *attr);

/* queue_pair.c */
void set_queue_pair_functions(struct rvt_driver_provided *f);

/* send.c */
extern const struct rvt_operation_params operations[RVT_OPERATION_MAX];
extern const enum ib_wc_opcode completions[RVT_OPERATION_MAX];
int prepare(struct rvt_qp *qp, struct rvt_swqe *wqe, bool *call_send);
void send_all(struct rvt_qp *qp);

/* datagram.c */
void deliver(struct rvt_qp *from, struct rvt_swqe *wqe);

#endif
