//! Completions: CQEs of the device become entries of a program's ring (`rvt_cq_enter` in
//! `sw/rdmavt/cq.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::wc as ib;
use uverbs_kernel_abi::wc::ib_uverbs_wc;
use uverbs_mlx5_prm::cqe::{CqeOpcode, mlx5_cqe64, mlx5_err_cqe};
use uverbs_mlx5_prm::syndrome::Syndrome;
use zerocopy::{FromBytes, IntoBytes};

use super::memory::{HEAD, Memory, Ring, TAIL};
use crate::backend::context::CqContext;
use crate::backend::region::Region;

/// Bytes of an entry.
const ENTRY: u64 = size_of::<ib_uverbs_wc>() as u64;
/// CQEs of a device's queue, which are taken after each of its steps.
const LOG_CQES: u8 = 14;
const CQE: u64 = 64;
/// Bit in the opcode of a receive (kernel `ib_verbs.h`, `enum ib_wc_opcode`).
pub(super) const IB_WC_RECV: u32 = 1 << 7;
pub(super) const IB_WC_RECV_RDMA_WITH_IMM: u32 = IB_WC_RECV + 1;
/// `enum ib_wc_flags`.
const IB_WC_WITH_INVALIDATE: u32 = 1 << 2;

/// Completions that a request for an event waits for (`rvt_req_notify_cq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notify {
    Solicited,
    Any,
}

/// Event of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Completion,
    Overrun,
}

/// A ring of completions, and the device's queue behind it.
#[derive(Debug)]
pub(super) struct Completions {
    pub(super) ring: Ring,
    cqes: Memory,
    record: Memory,
    /// CQEs taken.
    taken: u32,
    notify: Option<Notify>,
}

/// A CQE, whichever kind.
pub(super) struct Cqe {
    pub(super) opcode: CqeOpcode,
    pub(super) qpn: u32,
    pub(super) wqe: u16,
    bytes: mlx5_cqe64,
    /// `IB_WC_*`.
    pub(super) status: u32,
}

impl Cqe {
    fn parse(bytes: &[u8; CQE as usize]) -> Option<Self> {
        let cqe = mlx5_cqe64::read_from_bytes(bytes).ok()?;
        let opcode = cqe.opcode();
        let status = match opcode {
            CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => {
                status(Syndrome(mlx5_err_cqe::read_from_bytes(bytes).ok()?.syndrome))
            }
            _ => ib::IB_WC_SUCCESS,
        };
        let (qpn, wqe) = (cqe.sop_drop_qpn().qpn(), cqe.wqe_counter.get());
        Some(Self { opcode, qpn, wqe, bytes: cqe, status })
    }

    pub(super) fn is_send(&self) -> bool {
        matches!(self.opcode, CqeOpcode::REQ | CqeOpcode::REQ_ERR)
    }

    pub(super) fn is_solicited(&self) -> bool {
        self.bytes.op_own().se() || self.status != ib::IB_WC_SUCCESS
    }

    /// Entry of a receive (kernel `hfi1/rc.c:hfi1_rc_rcv`, `hfi1/ud.c:hfi1_ud_rcv`).
    pub(super) fn receive(&self, wr_id: u64) -> ib_uverbs_wc {
        let mut wc = ib_uverbs_wc {
            wr_id,
            status: self.status,
            opcode: IB_WC_RECV,
            qp_num: self.qpn,
            ..Default::default()
        };
        if self.status != ib::IB_WC_SUCCESS {
            return wc;
        }
        let (from, word) = (self.bytes.flags_rqpn(), self.bytes.imm_inval_pkey.get());
        (wc.byte_len, wc.src_qp) = (self.bytes.byte_cnt.get(), from.rqpn());
        (wc.slid, wc.sl, wc.port_num) = (self.bytes.slid.get(), from.sl(), 1);
        if from.grh() != 0 {
            wc.wc_flags |= ib::IB_WC_GRH;
        }
        match self.opcode {
            CqeOpcode::RESP_WR_IMM => {
                (wc.opcode, wc.ex) = (IB_WC_RECV_RDMA_WITH_IMM, word.to_be_bytes());
                wc.wc_flags |= ib::IB_WC_WITH_IMM;
            }
            CqeOpcode::RESP_SEND_IMM => {
                wc.ex = word.to_be_bytes();
                wc.wc_flags |= ib::IB_WC_WITH_IMM;
            }
            CqeOpcode::RESP_SEND_INV => {
                wc.ex = word.to_ne_bytes();
                wc.wc_flags |= IB_WC_WITH_INVALIDATE;
            }
            _ => {}
        }
        wc
    }
}

/// Status of a syndrome.
fn status(syndrome: Syndrome) -> u32 {
    match syndrome {
        // So a message longer than its receive fails (`rvt_ruc_loopback`).
        Syndrome::LOCAL_LENGTH_ERR | Syndrome::LOCAL_QP_OP_ERR => ib::IB_WC_LOC_QP_OP_ERR,
        Syndrome::LOCAL_PROT_ERR => ib::IB_WC_LOC_PROT_ERR,
        Syndrome::WR_FLUSH_ERR => ib::IB_WC_WR_FLUSH_ERR,
        Syndrome::BAD_RESP_ERR => ib::IB_WC_BAD_RESP_ERR,
        Syndrome::LOCAL_ACCESS_ERR => ib::IB_WC_LOC_ACCESS_ERR,
        Syndrome::REMOTE_INVAL_REQ_ERR => ib::IB_WC_REM_INV_REQ_ERR,
        Syndrome::REMOTE_ACCESS_ERR => ib::IB_WC_REM_ACCESS_ERR,
        Syndrome::REMOTE_OP_ERR => ib::IB_WC_REM_OP_ERR,
        Syndrome::TRANSPORT_RETRY_EXC_ERR => ib::IB_WC_RETRY_EXC_ERR,
        Syndrome::RNR_RETRY_EXC_ERR => ib::IB_WC_RNR_RETRY_EXC_ERR,
        Syndrome::REMOTE_ABORTED_ERR => ib::IB_WC_REM_ABORT_ERR,
        _ => ib::IB_WC_GENERAL_ERR,
    }
}

impl Completions {
    pub(super) fn new(entries: u32) -> Result<Self, Errno> {
        Ok(Self {
            ring: Ring::new(entries, ENTRY)?,
            cqes: Memory::own(CQE << LOG_CQES)?,
            record: Memory::own(8)?,
            taken: 0,
            notify: None,
        })
    }

    pub(super) fn context(&self, uar: crate::backend::number::UarNumber) -> CqContext {
        let region: Region = self.cqes.region(0, CQE << LOG_CQES);
        CqContext {
            region,
            log_entries: LOG_CQES,
            cqe_size: CQE as u32,
            doorbell_record: self.record.addr(0),
            uar,
            overrun_ignore: false,
            padded: false,
            compressed: None,
        }
    }

    /// Takes the next CQE of the device, which has written `produced`.
    pub(super) fn next(&mut self, produced: u32) -> Option<Cqe> {
        if self.taken == produced {
            return None;
        }
        let mut bytes = [0; CQE as usize];
        let slot = u64::from(self.taken) & ((1 << LOG_CQES) - 1);
        self.cqes.read(slot * CQE, &mut bytes);
        self.taken = self.taken.wrapping_add(1);
        self.record.store(0, (self.taken & 0xff_ffff).to_be());
        Cqe::parse(&bytes)
    }

    /// Adds an entry. A ring that is full loses it.
    pub(super) fn enter(&mut self, wc: &ib_uverbs_wc, solicited: bool) -> Option<Event> {
        let head = self.ring.index(HEAD);
        let next = self.ring.after(head);
        if next == self.ring.index(TAIL) {
            return Some(Event::Overrun);
        }
        self.ring.write(head, wc.as_bytes());
        self.ring.memory.store(HEAD, next);
        let fires = match self.notify? {
            Notify::Any => true,
            Notify::Solicited => solicited,
        };
        fires.then(|| {
            self.notify = None;
            Event::Completion
        })
    }

    /// Asks for an event. A request for any completion is not weakened.
    pub(super) fn arm(&mut self, notify: Notify) {
        if self.notify != Some(Notify::Any) {
            self.notify = Some(notify);
        }
    }

    /// Moves to a ring for `entries` (`rvt_resize_cq`).
    pub(super) fn resize(&mut self, entries: u32) -> Result<(), Errno> {
        self.ring = self.ring.resized(entries)?;
        Ok(())
    }
}
