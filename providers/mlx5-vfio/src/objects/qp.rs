//! RC queue pairs on one InfiniBand subnet (PRM "Queue Pairs"; `create_qp_common` and
//! `__mlx5_ib_modify_qp` of Linux's mlx5_ib).

use uverbs_core::order::fence;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{
    ads, create_qp_in, create_qp_out, destroy_qp_in, optpar, qpc, rst2init_qp_in,
};
use uverbs_mlx5_prm::ctrl::{FmCeSe, MLX5_SEND_WQE_BB, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
use uverbs_mlx5_prm::doorbell::MLX5_BF_OFFSET;
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::remote::mlx5_wqe_raddr_seg;
use zerocopy::IntoBytes;

use super::cq::CompletionQueue;
use super::pd::ProtectionDomain;
use super::{SHORT, destroy};
use crate::dma::{Buffer, PAGE};
use crate::error::Error;

/// Maximum log2 of the entries of each queue.
const LOG_MAX: u32 = 15;
/// `pm_state`: migrated, no alternate path (`MLX5_QP_PM_MIGRATED`).
const MIGRATED: u64 = 3;
/// The only port of a function.
const PORT: u64 = 1;
/// Path MTU of 1024 bytes (IBTA vol 1, 9.5.3; `IB_MTU_1024`).
const MTU_1024: u64 = 3;
/// Maximum message: 2 GiB.
const LOG_MSG_MAX: u64 = 31;
/// ACK timeout code: 4.096 us times 2 to this power (IBTA vol 1, 11.2.5.2).
const ACK_TIMEOUT: u64 = 14;
/// Retries, and retries of a receiver that is not ready: forever.
const RETRIES: u64 = 7;
/// Minimum RNR timer code: 0.64 ms.
const RNR_TIMER: u64 = 12;
/// First packet number of both directions.
const PSN: u64 = 0;
/// `opt_param_mask` of INIT2RTR: remote reads and writes.
const RIGHTS: u64 = optpar::RRE | optpar::RWE;

/// Other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// Number of the queue pair.
    pub qpn: u32,
    /// LID of the port.
    pub lid: u16,
}

impl Peer {
    /// Names the queue pair `qpn` at the port `lid`.
    #[must_use]
    pub fn new(qpn: u32, lid: u16) -> Self {
        Self { qpn, lid }
    }
}

/// Local memory of a work request: key, address, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sge {
    /// Key of the region.
    pub key: u32,
    /// Address, within the region's buffer.
    pub address: u64,
    /// Bytes.
    pub len: u32,
}

impl Sge {
    /// Names `len` bytes at `address`, by the key of their region.
    #[must_use]
    pub fn new(key: u32, address: u64, len: u32) -> Self {
        Self { key, address, len }
    }
}

/// An RC queue pair. Work requests have one SGE, and each send completes with a CQE.
#[derive(Debug)]
pub struct QueuePair<'d> {
    pd: &'d ProtectionDomain<'d>,
    /// Receive ring, send ring, then a page with the doorbell record.
    memory: Buffer,
    log_entries: u32,
    number: u32,
    sent: u32,
    received: u32,
}

impl ProtectionDomain<'_> {
    /// Creates a queue pair with `1 << log_entries` sends and as many receives; 2 to 15. Its
    /// completions go to `cq`.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::Refused`], or the device's failure.
    pub fn create_qp(
        &self,
        cq: &CompletionQueue<'_>,
        log_entries: u32,
    ) -> Result<QueuePair<'_>, Error> {
        if !(2..=LOG_MAX).contains(&log_entries) {
            let (what, value) = ("log2 of the entries of a queue pair", log_entries.into());
            return Err(Error::Limit { what, value, limit: LOG_MAX.into() });
        }
        let function = self.function;
        let ring = (rings(log_entries).1).next_multiple_of(PAGE);
        let memory = function.buffer(ring + PAGE)?;
        let mut input = vec![0; create_qp_in::SIZE];
        let context = create_qp_in::QPC.of_mut(&mut input);
        for (field, value) in [
            (qpc::PM_STATE, MIGRATED),
            (qpc::PD, self.number().into()),
            // Receives of one SGE, 16 bytes: stride code 0.
            (qpc::LOG_RQ_SIZE, log_entries.into()),
            (qpc::LOG_SQ_SIZE, log_entries.into()),
            (qpc::UAR_PAGE, function.uar().into()),
            (qpc::CQN_SND, cq.number().into()),
            (qpc::CQN_RCV, cq.number().into()),
            (qpc::DBR_ADDR, memory.iova() + ring as u64),
        ] {
            field.set(context, value);
        }
        let pages = memory.page_addresses().take(ring / PAGE);
        input.extend(pages.flat_map(u64::to_be_bytes));
        let output = function.command(CmdOpcode::CREATE_QP, 0, &input, create_qp_out::SIZE)?;
        let number = create_qp_out::QPN.get32(&output);
        Ok(QueuePair { pd: self, memory, log_entries, number, sent: 0, received: 0 })
    }
}

impl QueuePair<'_> {
    /// Number, for the peer.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Connects a new queue pair with its peer: from RESET over INIT and RTR to RTS.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], or the device's failure.
    pub fn connect(&self, peer: Peer) -> Result<(), Error> {
        let path = [(ads::VHCA_PORT_NUM, PORT)];
        self.step(CmdOpcode::RST2INIT_QP, 0, &[(qpc::RRE, 1), (qpc::RWE, 1)], &path)?;
        let context = [
            (qpc::RRE, 1),
            (qpc::RWE, 1),
            (qpc::MTU, MTU_1024),
            (qpc::LOG_MSG_MAX, LOG_MSG_MAX),
            (qpc::REMOTE_QPN, peer.qpn.into()),
            (qpc::NEXT_RCV_PSN, PSN),
            (qpc::MIN_RNR_NAK, RNR_TIMER),
        ];
        let path = [(ads::RLID, peer.lid.into()), (ads::VHCA_PORT_NUM, PORT)];
        self.step(CmdOpcode::INIT2RTR_QP, RIGHTS, &context, &path)?;
        let context =
            [(qpc::NEXT_SEND_PSN, PSN), (qpc::RETRY_COUNT, RETRIES), (qpc::RNR_RETRY, RETRIES)];
        self.step(CmdOpcode::RTR2RTS_QP, 0, &context, &[(ads::ACK_TIMEOUT, ACK_TIMEOUT)])
    }

    fn step(
        &self,
        opcode: CmdOpcode,
        mask: u64,
        fields: &[(uverbs_mlx5_prm::cmd::Field, u64)],
        path: &[(uverbs_mlx5_prm::cmd::Field, u64)],
    ) -> Result<(), Error> {
        let mut input = [0; rst2init_qp_in::SIZE];
        rst2init_qp_in::QPN.set(&mut input, self.number.into());
        rst2init_qp_in::OPT_PARAM_MASK.set(&mut input, mask);
        let context = rst2init_qp_in::QPC.of_mut(&mut input);
        qpc::PM_STATE.set(context, MIGRATED);
        fields.iter().for_each(|(field, value)| field.set(context, *value));
        let primary = qpc::PRIMARY_ADDRESS_PATH.of_mut(context);
        path.iter().for_each(|(field, value)| field.set(primary, *value));
        self.pd.function.command(opcode, 0, &input, SHORT).map(drop)
    }

    /// Posts a receive.
    ///
    /// The caller counts: no more receives may be outstanding than the queue has entries.
    ///
    /// # Errors
    ///
    /// The device's failure.
    pub fn post_recv(&mut self, sge: Sge) -> Result<(), Error> {
        let memory = &self.memory;
        let slot = (self.received & ((1 << self.log_entries) - 1)) as usize;
        let data = mlx5_wqe_data_seg::new(sge.len, sge.key, sge.address);
        memory.write(slot * size_of::<mlx5_wqe_data_seg>(), data.as_bytes())?;
        self.received = self.received.wrapping_add(1);
        fence::wqe_before_record();
        memory.store_record(memory.len() - PAGE, self.received & 0xffff)
    }

    /// Posts a signaled SEND and rings.
    ///
    /// The caller counts, as for [`QueuePair::post_recv`].
    ///
    /// # Errors
    ///
    /// The transport's error, or the device's failure.
    pub fn post_send(&mut self, sge: Sge) -> Result<(), Error> {
        self.post(Opcode::SEND, None, sge)
    }

    /// Posts a signaled RDMA WRITE to the peer's `address` with its `key`, and rings.
    ///
    /// # Errors
    ///
    /// As [`QueuePair::post_send`].
    pub fn post_write(&mut self, sge: Sge, address: u64, key: u32) -> Result<(), Error> {
        self.post(Opcode::RDMA_WRITE, Some(mlx5_wqe_raddr_seg::new(address, key)), sge)
    }

    fn post(
        &mut self,
        opcode: Opcode,
        remote: Option<mlx5_wqe_raddr_seg>,
        sge: Sge,
    ) -> Result<(), Error> {
        let memory = &self.memory;
        let slot = (self.sent & ((1 << self.log_entries) - 1)) as usize;
        let at = rings(self.log_entries).0 + slot * MLX5_SEND_WQE_BB;
        let units = 2 + u8::from(remote.is_some());
        let index = OpmodIdxOpcode::ZERO.with_wqe_index(self.sent as u16).with_opcode(opcode.0);
        let queue = QpnDs::ZERO.with_qpn(self.number).with_ds(units);
        let signaled = FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE);
        let ctrl = mlx5_wqe_ctrl_seg::new(index, queue, signaled, 0);
        let data = mlx5_wqe_data_seg::new(sge.len, sge.key, sge.address);
        let remote = remote.as_ref().map_or(&[][..], IntoBytes::as_bytes);
        memory.write(at, &[ctrl.as_bytes(), remote, data.as_bytes()].concat())?;
        self.sent = self.sent.wrapping_add(1);
        fence::wqe_before_record();
        memory.store_record(memory.len() - PAGE + 4, self.sent & 0xffff)?;
        // The doorbell is the first eight bytes of the WQE (PRM "Doorbell").
        let word = u64::from(index.0) << 32 | u64::from(queue.0);
        self.pd.function.ring(MLX5_BF_OFFSET as u64, word)
    }
}

/// Offset of the send ring, and bytes of both rings.
fn rings(log_entries: u32) -> (usize, usize) {
    let receives = size_of::<mlx5_wqe_data_seg>() << log_entries;
    // A send ring begins at a WQEBB.
    let sends = receives.next_multiple_of(MLX5_SEND_WQE_BB);
    (sends, sends + (MLX5_SEND_WQE_BB << log_entries))
}

impl Drop for QueuePair<'_> {
    fn drop(&mut self) {
        let id = (destroy_qp_in::QPN, self.number);
        destroy(self.pd.function, CmdOpcode::DESTROY_QP, id, Some(&self.memory));
    }
}
