//! A door that answers and records the commands of the provider.
#![allow(
    unsafe_code,
    reason = "reads and writes the buffers that commands name, as the kernel would"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::doors::words::parse;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::context::ContextCore;
use uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;
use uverbs_kernel_abi::gid::{IB_UVERBS_GID_TYPE_ROCE_V2, ib_uverbs_gid_entry};
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::port::ib_uverbs_query_port_resp_ex;
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_ALLOC_PD, IB_USER_VERBS_CMD_CREATE_AH, IB_USER_VERBS_CMD_MODIFY_QP,
    IB_USER_VERBS_CMD_REG_MR, IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
};
use zerocopy::{FromZeros, IntoBytes};

/// Local key of every region.
pub(crate) const LKEY: u32 = 0x00c0_ffee;
/// MAC address of every peer.
pub(crate) const MAC: [u8; 6] = [0x02, 0xca, 0x05, 0x0a, 0x0b, 0x0c];

/// A command as received: object, method, and the bytes of each attribute (inline ones from the
/// attribute itself).
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) object: u16,
    pub(crate) method: u16,
    attrs: HashMap<u16, Vec<u8>>,
}

impl Sent {
    pub(crate) fn bytes(&self, id: u16) -> &[u8] {
        &self.attrs[&id]
    }

    pub(crate) fn has(&self, id: u16) -> bool {
        self.attrs.contains_key(&id)
    }

    pub(crate) fn number(&self, id: u16) -> u64 {
        let bytes = self.bytes(id);
        u64::from_ne_bytes(bytes[..8].try_into().unwrap())
    }
}

#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) context: mlx5_ib_alloc_ucontext_resp,
    /// Number of the first page.
    pub(crate) page_id: u32,
    /// Size of a page in bytes.
    pub(crate) page_bytes: u32,
    /// The driver's part of QUERY_DEVICE.
    pub(crate) driver: mlx5_ib_query_device_resp,
    /// Response of the device to QUERY_HCA_CAP.
    pub(crate) caps: Vec<u8>,
    /// Link layer of every port: 1 InfiniBand, 2 Ethernet, which has only GIDs of RoCE v2.
    pub(crate) link_layer: u8,
    /// Commands that fail, with their errno.
    pub(crate) refuse: Vec<(u16, u16, Errno)>,
}

#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) answers: Mutex<Answers>,
    pub(crate) sent: Mutex<Vec<Sent>>,
    /// Numbers of the allocated pages, oldest first.
    pub(crate) pages: Mutex<Vec<u32>>,
    /// Mappings, oldest first: length and offset.
    pub(crate) maps: Mutex<Vec<(usize, u64)>>,
    next: Mutex<u32>,
}

impl Door {
    pub(crate) fn new() -> Arc<Self> {
        let context = mlx5_ib_alloc_ucontext_resp {
            bf_reg_size: 512,
            tot_bfregs: 0,
            max_sq_desc_sz: 1024,
            max_rq_desc_sz: 512,
            max_send_wqebb: 32768,
            max_recv_wr: 32768,
            cqe_version: 1,
            cmds_supp_uhw: MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
            log_uar_size: 12,
            num_uars_per_page: 1,
            ..Default::default()
        };
        Arc::new(Self {
            answers: Mutex::new(Answers {
                context,
                page_id: 0x40,
                page_bytes: 4096,
                driver: mlx5_ib_query_device_resp::default(),
                caps: Vec::new(),
                link_layer: 2,
                refuse: Vec::new(),
            }),
            sent: Mutex::default(),
            pages: Mutex::default(),
            maps: Mutex::default(),
            next: Mutex::new(1),
        })
    }

    pub(crate) fn core(self: &Arc<Self>) -> Arc<ContextCore> {
        ContextCore::new(Uverbs::new(Arc::clone(self) as _, RDMA_DRIVER_MLX5))
    }

    /// Commands of this kind, oldest first.
    pub(crate) fn sent(&self, object: u16, method: u16) -> Vec<Sent> {
        let sent = self.sent.lock().unwrap();
        sent.iter().filter(|s| (s.object, s.method) == (object, method)).cloned().collect()
    }

    pub(crate) fn refuse(&self, object: u16, method: u16, errno: Errno) {
        self.answers.lock().unwrap().refuse.push((object, method, errno));
    }

    fn number(&self) -> u32 {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        *next
    }
}

// SAFETY: no device is behind it, and nothing is handed out.
unsafe impl UverbsDoor for Door {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        let (header, attrs) = parse(command).ok_or(Errno::EINVAL)?;
        let (object, method) = (header.object_id, header.method_id);
        assert_eq!(header.driver_id, RDMA_DRIVER_MLX5);
        let attrs: Vec<_> = attrs.collect();
        let place = |id: u16, len: usize| {
            let attr = attrs.iter().find(|attr| attr.attr_id == id)?;
            assert!(usize::from(attr.len) >= len, "output {id:#x} of {} bytes", attr.len);
            Some(std::ptr::with_exposed_provenance_mut::<u8>(attr.data as usize))
        };
        let answer = |id: u16, bytes: &[u8]| {
            let Some(to) = place(id, bytes.len()) else { return };
            // SAFETY: an output that the command borrows, and it is long enough.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        };
        let read = |attr: &uverbs_kernel_abi::ioctl::ib_uverbs_attr| {
            let len = usize::from(attr.len);
            if len <= 8 {
                return attr.data.to_ne_bytes().to_vec();
            }
            let from = std::ptr::with_exposed_provenance::<u8>(attr.data as usize);
            // SAFETY: inputs and outputs alike are initialised bytes that the command borrows.
            unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
        };
        let sent = Sent {
            object,
            method,
            attrs: attrs.iter().map(|attr| (attr.attr_id, read(attr))).collect(),
        };
        let mut new_handle = None;
        let answers = self.answers.lock().unwrap();
        self.sent.lock().unwrap().push(sent.clone());
        if let Some((.., errno)) =
            answers.refuse.iter().find(|(o, m, _)| (*o, *m) == (object, method))
        {
            return Err(*errno);
        }
        match (object, method) {
            (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT) => {
                answer(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &8u32.to_ne_bytes());
                answer(UVERBS_ATTR_UHW_OUT, answers.context.as_bytes());
            }
            (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) => {
                match sent.number(UVERBS_ATTR_WRITE_CMD) as u32 & 0xff {
                    IB_USER_VERBS_CMD_ALLOC_PD => {
                        answer(UVERBS_ATTR_CORE_OUT, &self.number().to_ne_bytes());
                    }
                    IB_USER_VERBS_EX_CMD_QUERY_DEVICE => {
                        let mut device = ib_uverbs_ex_query_device_resp::new_zeroed();
                        device.base.max_cqe = (1 << 22) - 1;
                        device.base.max_sge = 30;
                        device.base.phys_port_cnt = 1;
                        answer(UVERBS_ATTR_CORE_OUT, device.as_bytes());
                        answer(UVERBS_ATTR_UHW_OUT, answers.driver.as_bytes());
                    }
                    IB_USER_VERBS_CMD_MODIFY_QP => {}
                    IB_USER_VERBS_CMD_REG_MR => {
                        let answered = [self.number(), LKEY, LKEY];
                        answer(UVERBS_ATTR_CORE_OUT, answered.as_bytes());
                    }
                    IB_USER_VERBS_CMD_CREATE_AH => {
                        answer(UVERBS_ATTR_CORE_OUT, &self.number().to_ne_bytes());
                        let mut told = mlx5_ib_create_ah_resp::new_zeroed();
                        told.dmac = MAC;
                        answer(UVERBS_ATTR_UHW_OUT, told.as_bytes());
                    }
                    other => panic!("write command {other}"),
                }
            }
            (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT) => {
                let mut port = ib_uverbs_query_port_resp_ex::new_zeroed();
                port.legacy_resp.link_layer = answers.link_layer;
                answer(UVERBS_ATTR_QUERY_PORT_RESP, port.as_bytes());
            }
            (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY) => {
                let mut entry = ib_uverbs_gid_entry::new_zeroed();
                entry.gid_type = IB_UVERBS_GID_TYPE_ROCE_V2;
                answer(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry.as_bytes());
            }
            (MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC) => {
                new_handle = Some(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
                let number = self.number();
                self.pages.lock().unwrap().push(answers.page_id + number);
                answer(
                    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET,
                    &(u64::from(number) << 12).to_ne_bytes(),
                );
                answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &answers.page_bytes.to_ne_bytes());
                answer(
                    MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID,
                    &(answers.page_id + number).to_ne_bytes(),
                );
            }
            (MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER) => {
                answer(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &answers.caps);
            }
            (UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR) => {
                answer(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, &0x12_3040u64.to_ne_bytes());
                answer(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, &0x305u16.to_ne_bytes());
            }
            (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE) => {
                new_handle = Some(UVERBS_ATTR_CREATE_CQ_HANDLE);
                answer(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &sent.bytes(UVERBS_ATTR_CREATE_CQ_CQE)[..4]);
                answer(UVERBS_ATTR_UHW_OUT, &0x777u32.to_ne_bytes());
            }
            (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE) => {
                new_handle = Some(UVERBS_ATTR_CREATE_QP_HANDLE);
                answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &0xab_cdefu32.to_ne_bytes());
            }
            _ => {}
        }
        drop(answers);
        if let Some(id) = new_handle {
            let at = attrs.iter().position(|attr| attr.attr_id == id).unwrap();
            // The header has three words; an attribute has two, the second of them the data.
            command[3 + 2 * at + 1] = self.number().into();
        }
        Ok(())
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.maps.lock().unwrap().push((len, offset));
        Pages::anonymous(len)
    }
}
