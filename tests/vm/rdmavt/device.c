// SPDX-License-Identifier: MIT
/* Registration of the device, and its limits. */
#include <linux/module.h>

#include "loopback.h"

MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Loopback device over rdmavt, for tests");

unsigned int lid = 1;
module_param(lid, uint, 0644);
MODULE_PARM_DESC(lid, "LID of the port; Omni-Path's may have more than 16 bits");

static struct loopback *device;

/* rdmavt requires modify_device and has no default. */
static int modify_device(struct ib_device *ibdev, int mask, struct ib_device_modify *change)
{
	return -EOPNOTSUPP;
}

static const struct attribute_group *no_groups[] = { NULL };

static const struct ib_device_ops ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_HFI1,
	.modify_device = modify_device,
	.port_groups = no_groups,
};

static void set_limits(struct rvt_driver_params *params)
{
	struct ib_device_attr *props = &params->props;

	props->device_cap_flags = IB_DEVICE_BAD_PKEY_CNTR | IB_DEVICE_BAD_QKEY_CNTR |
				  IB_DEVICE_SYS_IMAGE_GUID | IB_DEVICE_RC_RNR_NAK_GEN |
				  IB_DEVICE_PORT_ACTIVE_EVENT | IB_DEVICE_SRQ_RESIZE;
	props->page_size_cap = PAGE_SIZE;
	props->max_mr_size = U64_MAX;
	props->sys_image_guid = node_guid;
	props->max_qp = 16384;
	props->max_qp_wr = 16383;
	props->max_send_sge = 96;
	props->max_recv_sge = 96;
	props->max_cq = 0x1ffff;
	props->max_cqe = 0x2ffff;
	props->max_pd = 0xffff;
	props->max_ah = 65535;
	props->max_srq = 1024;
	props->max_srq_wr = 0x1ffff;
	props->max_srq_sge = 255;
	props->max_qp_rd_atom = 16;
	props->max_qp_init_rd_atom = 255;
	props->max_res_rd_atom = 16 * 16384;
	props->atomic_cap = IB_ATOMIC_GLOB;
	props->max_pkeys = P_KEYS;
	props->max_mcast_grp = 16384;
	props->max_mcast_qp_attach = 16;
	props->max_total_mcast_qp_attach = 16 * 16384;

	params->lkey_table_size = 16;
	params->qp_table_size = 256;
	params->qpn_inc = 1;
	params->qpn_res_start = RVT_KDETH_QP_BASE;
	params->qpn_res_end = RVT_AIP_QP_MAX;
	params->nports = 1;
	params->npkeys = P_KEYS;
	params->psn_mask = 0x7fffffff;
	params->psn_shift = 1;
	params->psn_modify_mask = 0xffffff;
	params->core_cap_flags = RDMA_CORE_PORT_INTEL_OPA | RDMA_CORE_CAP_OPA_AH;
	params->max_mad_size = 2048;
	params->max_rdma_atomic = 16;
	params->reserved_operations = 1;
}

static struct pci_dev *get_pci_dev(struct rvt_dev_info *rdi)
{
	return to_loopback(rdi)->named;
}

static void release(struct loopback *dev)
{
	pci_dev_put(dev->named);
	rvt_dealloc_device(&dev->rdi);
}

static int __init loopback_init(void)
{
	struct rvt_dev_info *rdi = rvt_alloc_device(sizeof(struct loopback), 1);
	int error;

	if (!rdi)
		return -ENOMEM;
	device = to_loopback(rdi);
	device->named = pci_get_device(PCI_ANY_ID, PCI_ANY_ID, NULL);
	if (!device->named) {
		release(device);
		return -ENODEV;
	}
	init_port(device);
	set_limits(&rdi->dparms);
	rdi->post_parms = operations;
	rdi->wc_opcode = completions;
	rdi->driver_f.get_pci_dev = get_pci_dev;
	set_port_functions(&rdi->driver_f);
	set_queue_pair_functions(&rdi->driver_f);
	rdi->ibdev.phys_port_cnt = 1;
	rdi->ibdev.node_guid = node_guid;
	rdi->ibdev.num_comp_vectors = num_online_cpus();
	strscpy(rdi->ibdev.node_desc, "rdmavt loopback", sizeof(rdi->ibdev.node_desc));
	ib_set_device_ops(&rdi->ibdev, &ops);
	dev_set_name(&rdi->ibdev.dev, "hfi1_%d", 0);
	error = rvt_register_device(rdi);
	if (error)
		release(device);
	return error;
}

static void __exit loopback_exit(void)
{
	rvt_unregister_device(&device->rdi);
	release(device);
}

module_init(loopback_init);
module_exit(loopback_exit);
