//! A completion queue entry, decoded in place.
//!
//! # Safety
//!
//! An entry is read through a raw pointer, by volatile loads. Software owns it from the load of its
//! ownership bit until the consumer index is published, and the lifetime of the view prevents that
//! publication.
#![allow(unsafe_code, reason = "reads entries that the device wrote, by raw address")]

use std::fmt;
use std::hint::assert_unchecked;
use std::marker::PhantomData;
use std::mem::offset_of;

use uverbs_core::order::device_memory;
use uverbs_core::provider::{Decoded, PacketInfo, View};
use uverbs_core::queues::completion::{Completed, Failure, Sender, Status};
use uverbs_core::queues::tag_work::{TagHeader, TagInfo};
use uverbs_mlx5_prm::cqe::{
    CqeOpcode, HdsIpExt, L4HdrType, MLX5_CQE_L3_HDR_TYPE_IPV4, MLX5_TMC_SUCCESS, MlPath, OpOwn,
    SopDropQpn, mlx5_cqe64, mlx5_err_cqe, mlx5_tm_cqe,
};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::syndrome::{MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT, Syndrome};
use uverbs_mlx5_prm::tag::{TmAppOp, ibv_tmh};
use zerocopy::FromZeros;

use crate::sent::{SENDS, sent};

/// Offset of the user index, the same in successful and failed entries.
const UIDX_OFFSET: usize = offset_of!(mlx5_cqe64, srqn_uidx);

/// Last opcode of receives. They start at 1; 0 is the opcode of sends.
const LAST_RECEIVE: u8 = CqeOpcode::RESP_SEND_INV.0;
/// First send opcode whose completion may report a length.
const READ: u8 = Opcode::RDMA_READ.0;
/// Opcode flag: a successful tag-matching completion.
const OF_TAGS: u8 = 0x80;
/// Opcode flag: a failed tag-matching completion.
const FAILED_OF_TAGS: u8 = 0x40;
/// Opcode flag: the device waits for the count of handled unexpected messages.
const WANTS_SYNC: usize = 0x100;
/// Opcode flag of an error that the library found in a successful entry ([`Cqe::unloaded`]). Its
/// status is above the flag.
const UNLOADED: usize = 0x200;
const LENGTH: usize = 0;
const OPERATION: usize = 0x400;
const GENERAL: usize = 0x800;

/// User index with its three bytes in memory order, which is enough to compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawUidx(u32);

impl RawUidx {
    /// Value of no entry: a user index has 24 bits.
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline(always)]
    pub(crate) fn value(self) -> u32 {
        (self.0 << 8).swap_bytes()
    }
}

/// The 64 used bytes of a CQE that software owns.
#[derive(Clone, Copy)]
pub(crate) struct OwnedCqe {
    at: *const u8,
}

impl OwnedCqe {
    /// # Safety
    ///
    /// `at` is aligned to 64 bytes and valid to read 64 bytes while the entry or a view of it is
    /// used.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *const u8) -> Self {
        Self { at }
    }

    #[inline(always)]
    fn byte(self, offset: usize) -> u8 {
        // SAFETY: `offset` is the offset of a field; see `new`.
        unsafe { device_memory::read(self.at.wrapping_add(offset)) }
    }

    #[inline(always)]
    fn half(self, offset: usize) -> u16 {
        // SAFETY: `offset` is the offset of a field of this size, aligned by the layout; see `new`.
        u16::from_be(unsafe { device_memory::read(self.at.wrapping_add(offset).cast::<u16>()) })
    }

    #[inline(always)]
    fn word(self, offset: usize) -> u32 {
        // SAFETY: as in `half`.
        u32::from_be(unsafe { device_memory::read(self.at.wrapping_add(offset).cast::<u32>()) })
    }

    /// The user index of the queue pair.
    #[inline(always)]
    pub(crate) fn uidx(self) -> u32 {
        self.raw_uidx().value()
    }

    /// The user index in memory order.
    #[inline(always)]
    pub(crate) fn raw_uidx(self) -> RawUidx {
        // SAFETY: as in `half`.
        let raw = unsafe { device_memory::read(self.at.wrapping_add(UIDX_OFFSET).cast::<u32>()) };
        // The first byte is reserved.
        RawUidx(u32::from_le(raw) >> 8)
    }

    /// True for a successful send.
    #[inline(always)]
    pub(crate) fn is_send(self) -> bool {
        OpOwn(self.byte(mlx5_cqe64::OP_OWN_OFFSET)).opcode() == CqeOpcode::REQ.0
    }

    /// True for a receive, successful or failed.
    pub(crate) fn is_receive(self) -> bool {
        let opcode = OpOwn(self.byte(mlx5_cqe64::OP_OWN_OFFSET)).opcode();
        let received = CqeOpcode::RESP_WR_IMM.0..=CqeOpcode::RESP_SEND_INV.0;
        received.contains(&opcode) || opcode == CqeOpcode::RESP_ERR.0
    }

    /// QP number.
    #[inline(always)]
    pub(crate) fn qpn(self) -> u32 {
        self.sop_drop_qpn().qpn()
    }

    #[inline(always)]
    fn sop_drop_qpn(self) -> SopDropQpn {
        SopDropQpn(self.word(mlx5_cqe64::SOP_DROP_QPN_OFFSET))
    }

    /// Index of a send's first WQEBB, modulo 65536.
    #[inline(always)]
    pub(crate) fn wqe_counter(self) -> u16 {
        self.half(mlx5_cqe64::WQE_COUNTER_OFFSET)
    }

    /// Bytes of the message.
    #[inline(always)]
    pub(crate) fn byte_count(self) -> u32 {
        self.word(mlx5_cqe64::BYTE_CNT_OFFSET)
    }

    /// Sender's LID, GRH, service level and queue pair.
    #[inline(always)]
    pub(crate) fn sender(self) -> Sender {
        let lid = u64::from(self.half(offset_of!(mlx5_cqe64, slid)));
        let from = u64::from(self.word(offset_of!(mlx5_cqe64, flags_rqpn)));
        Sender::from_mlx5(lid << 32 | from)
    }

    /// Bytes that start `before` bytes ahead of it. Only a 128-byte entry has such bytes.
    pub(crate) fn bytes<const N: usize>(self, before: usize) -> [u8; N] {
        const { assert!(N <= mlx5_cqe64::SIZE) };
        let from = Self { at: self.at.wrapping_sub(before) };
        std::array::from_fn(|offset| from.byte(offset))
    }

    /// Opcode of a send's WQE.
    pub(crate) fn send_opcode(self) -> Opcode {
        Opcode(self.sop_drop_qpn().sop())
    }

    /// Opcode of the CQE.
    pub(crate) fn opcode(self) -> CqeOpcode {
        CqeOpcode(OpOwn(self.byte(mlx5_cqe64::OP_OWN_OFFSET)).opcode())
    }

    /// Application of the CQE; 1 is tag matching.
    pub(crate) fn app(self) -> u8 {
        self.byte(offset_of!(mlx5_cqe64, app))
    }

    /// Kind of a tag-matching completion.
    pub(crate) fn app_op(self) -> TmAppOp {
        TmAppOp(self.byte(offset_of!(mlx5_cqe64, app_op)))
    }

    /// Place of the tag in the list.
    pub(crate) fn app_info(self) -> u16 {
        self.half(offset_of!(mlx5_cqe64, app_info))
    }

    /// For a change of a tag list: the device's count of unexpected messages.
    pub(crate) fn tag_count(self) -> u16 {
        self.half(offset_of!(mlx5_tm_cqe, hw_phase_cnt))
    }

    /// For a change of a tag list: true if it succeeded.
    pub(crate) fn tag_was_changed(self) -> bool {
        self.word(offset_of!(mlx5_tm_cqe, success)) & MLX5_TMC_SUCCESS != 0
    }

    /// Header of a message that matched a tag.
    fn tag_header(self) -> TagHeader {
        let word = |offset| u64::from(self.word(offset));
        const TAG: usize = offset_of!(ibv_tmh, tag);
        TagHeader {
            tag: word(TAG) << 32 | word(TAG + 4),
            app_ctx: self.word(offset_of!(ibv_tmh, app_ctx)),
        }
    }

    /// For a failed receive of a shared queue: true if a page fault ended it, so that it is to be
    /// posted again (rdma-core `cq.c:is_odp_pfault_err`).
    pub(crate) fn is_page_fault(self) -> bool {
        self.byte(mlx5_err_cqe::SYNDROME_OFFSET) == Syndrome::REMOTE_ABORTED_ERR.0
            && self.byte(mlx5_err_cqe::VENDOR_ERR_SYND_OFFSET)
                == MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT
    }

    /// Copies the whole entry, for printing.
    pub(crate) fn copy(self) -> mlx5_cqe64 {
        let mut bytes = [0; mlx5_cqe64::SIZE];
        for (offset, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(offset);
        }
        let mut cqe = mlx5_cqe64::new_zeroed();
        zerocopy::IntoBytes::as_mut_bytes(&mut cqe).copy_from_slice(&bytes);
        cqe
    }
}

/// A CQE that is valid until the next poll.
#[derive(Clone, Copy)]
pub struct Cqe<'a> {
    entry: OwnedCqe,
    /// Opcode, as wide as a pointer, so that structs with this one have no padding and the compiler
    /// keeps the fields in registers. With padding it copies fields and padding together through
    /// memory, and its loads can't be forwarded from the stores.
    opcode: usize,
    _queue: PhantomData<&'a ()>,
}

/// Reason why data in a CQE can't be copied to the buffer of its work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unloaded {
    /// The work request is not outstanding.
    Absent,
    /// The scatter list is shorter than the data.
    Length,
    /// Sends with this opcode receive no data.
    Operation,
    /// The CQE can't hold as much, or its queue pair did not enable scatter to CQE.
    Unasked,
}

impl<'a> Cqe<'a> {
    /// # Safety
    ///
    /// The entry stays valid and owned by software for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(entry: OwnedCqe, opcode: CqeOpcode) -> Self {
        Self { entry, opcode: opcode.0.into(), _queue: PhantomData }
    }

    /// A failed completion that replaces a success whose data could not be copied (rdma-core
    /// `qp.c:copy_to_scat`, `mlx5_copy_to_send_wqe`).
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    #[cold]
    pub(crate) unsafe fn unloaded(entry: OwnedCqe, why: Unloaded) -> Self {
        let failed = if entry.is_send() { CqeOpcode::REQ_ERR } else { CqeOpcode::RESP_ERR };
        let why = match why {
            Unloaded::Length => LENGTH,
            Unloaded::Operation => OPERATION,
            Unloaded::Unasked | Unloaded::Absent => GENERAL,
        };
        Self { entry, opcode: usize::from(failed.0) | UNLOADED | why, _queue: PhantomData }
    }

    /// A tag-matching completion. `wants_sync`: the device waits for the count of handled
    /// unexpected messages.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    pub(crate) unsafe fn of_tags(entry: OwnedCqe, wants_sync: bool) -> Self {
        let kind = if status_of_tags(entry).is_none() { OF_TAGS } else { FAILED_OF_TAGS };
        let opcode = usize::from(entry.opcode().0 | kind);
        let opcode = if wants_sync { opcode | WANTS_SYNC } else { opcode };
        Self { entry, opcode, _queue: PhantomData }
    }

    /// Bytes of the CQE, in the layout of the PRM.
    #[must_use]
    pub fn prm(&self) -> mlx5_cqe64 {
        self.entry.copy()
    }

    #[inline(always)]
    fn opcode(&self) -> CqeOpcode {
        CqeOpcode(self.opcode as u8)
    }

    /// Opcode of the message, also for a tag-matching completion.
    #[inline(always)]
    fn message(&self) -> CqeOpcode {
        CqeOpcode((self.opcode & 0x3f) as u8)
    }

    #[inline(always)]
    fn send_opcode(&self) -> Opcode {
        Opcode(self.entry.sop_drop_qpn().sop())
    }

    /// Operation of a successful tag-matching completion (rdma-core `cq.c:handle_tag_matching`,
    /// `mlx5_cq_read_wc_opcode`).
    #[inline(always)]
    fn completed_of_tags(self) -> Completed {
        const ALL: [Completed; 16] = {
            let mut all = [Completed::TagRecv; 16];
            all[TmAppOp::CONSUMED.0 as usize] = Completed::TagFound;
            all[TmAppOp::UNEXPECTED.0 as usize] = Completed::RecvUnexpected;
            all[TmAppOp::NO_TAG.0 as usize] = Completed::RecvNoTag;
            all[TmAppOp::APPEND.0 as usize] = Completed::TagAdded;
            all[TmAppOp::NOOP.0 as usize] = Completed::TagsSynced;
            all[TmAppOp::REMOVE.0 as usize] = Completed::TagRemoved;
            all
        };
        // A table instead of a call, because a call would make all other completions save
        // registers. Successes have no higher bits (`status_of_tags`).
        ALL[usize::from(self.entry.app_op().0 & 0xf)]
    }

    /// Out-of-line [`completed_of_tags`](Self::completed_of_tags).
    #[cold]
    #[inline(never)]
    fn decoded_of_tags(self) -> Completed {
        self.completed_of_tags()
    }

    /// Decodes a failure (PRM "Completion with Error"). Syndromes map to IBTA's statuses as in
    /// rdma-core `cq.c:mlx5_handle_error_cqe`.
    #[cold]
    #[inline(never)]
    fn failure(self) -> Failure {
        if self.opcode().0 & FAILED_OF_TAGS != 0
            && let Some(status) = status_of_tags(self.entry)
        {
            return Failure { status, syndrome: 0, vendor_syndrome: 0 };
        }
        if self.opcode & UNLOADED != 0 {
            let (status, Syndrome(syndrome)) = match self.opcode & (OPERATION | GENERAL) {
                LENGTH => (Status::LocalLength, Syndrome::LOCAL_LENGTH_ERR),
                OPERATION => (Status::RemoteInvalidRequest, Syndrome::REMOTE_INVAL_REQ_ERR),
                _ => (Status::General, Syndrome(0)),
            };
            return Failure { status, syndrome, vendor_syndrome: 0 };
        }
        let syndrome = self.entry.byte(mlx5_err_cqe::SYNDROME_OFFSET);
        let status = match Syndrome(syndrome) {
            Syndrome::LOCAL_LENGTH_ERR => Status::LocalLength,
            Syndrome::LOCAL_QP_OP_ERR => Status::LocalQpOperation,
            Syndrome::LOCAL_PROT_ERR => Status::LocalProtection,
            Syndrome::WR_FLUSH_ERR => Status::Flushed,
            Syndrome::MW_BIND_ERR => Status::MemoryWindowBind,
            Syndrome::BAD_RESP_ERR => Status::BadResponse,
            Syndrome::LOCAL_ACCESS_ERR => Status::LocalAccess,
            Syndrome::REMOTE_INVAL_REQ_ERR => Status::RemoteInvalidRequest,
            Syndrome::REMOTE_ACCESS_ERR => Status::RemoteAccess,
            Syndrome::REMOTE_OP_ERR => Status::RemoteOperation,
            Syndrome::TRANSPORT_RETRY_EXC_ERR => Status::RetryExceeded,
            Syndrome::RNR_RETRY_EXC_ERR => Status::RnrRetryExceeded,
            Syndrome::REMOTE_ABORTED_ERR => Status::RemoteAborted,
            _ => Status::General,
        };
        let vendor_syndrome = self.entry.byte(mlx5_err_cqe::VENDOR_ERR_SYND_OFFSET);
        Failure { status, syndrome, vendor_syndrome }
    }
}

/// Status of a tag-matching completion, if it failed.
fn status_of_tags(entry: OwnedCqe) -> Option<Status> {
    match entry.app_op() {
        TmAppOp::CONSUMED | TmAppOp::CONSUMED_MSG | TmAppOp::EXPECTED => None,
        TmAppOp::UNEXPECTED | TmAppOp::NO_TAG | TmAppOp::APPEND | TmAppOp::NOOP => None,
        TmAppOp::REMOVE if entry.tag_was_changed() => None,
        TmAppOp::REMOVE => Some(Status::TagNotFound),
        _ => Some(Status::RendezvousIncomplete),
    }
}

impl View for Cqe<'_> {
    #[inline]
    fn result(&self) -> Result<Completed, Failure> {
        Ok(match self.opcode() {
            CqeOpcode::REQ => SENDS[usize::from(self.send_opcode().0)],
            CqeOpcode::RESP_WR_IMM => Completed::RecvWriteImm,
            CqeOpcode::RESP_SEND | CqeOpcode::RESP_SEND_IMM | CqeOpcode::RESP_SEND_INV => {
                Completed::Recv
            }
            CqeOpcode(OF_TAGS..) => self.completed_of_tags(),
            _ => {
                let failure = self.failure();
                // SAFETY: the enum has no other values. Without the hint the compiler would check
                // whether the result of the call is a success.
                unsafe { assert_unchecked(failure.status as u8 <= Status::General as u8) };
                return Err(failure);
            }
        })
    }

    #[inline]
    fn is_recv(&self) -> bool {
        !matches!(self.opcode(), CqeOpcode::REQ | CqeOpcode::REQ_ERR)
    }

    #[inline]
    fn byte_len(&self) -> u32 {
        match self.opcode() {
            CqeOpcode::REQ => match self.send_opcode() {
                Opcode::RDMA_READ => self.entry.byte_count(),
                Opcode::ATOMIC_CS | Opcode::ATOMIC_FA => 8,
                _ => 0,
            },
            CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => 0,
            _ => self.entry.byte_count(),
        }
    }

    #[inline]
    fn immediate(&self) -> Option<u32> {
        match self.message() {
            CqeOpcode::RESP_WR_IMM | CqeOpcode::RESP_SEND_IMM => {
                Some(self.entry.word(mlx5_cqe64::IMM_INVAL_PKEY_OFFSET))
            }
            _ => None,
        }
    }

    /// `None` for a failed CQE, which has other fields there.
    #[inline]
    fn timestamp(&self) -> Option<u64> {
        const HIGH: usize = mlx5_cqe64::TIMESTAMP_OFFSET;
        let word = |offset| u64::from(self.entry.word(offset));
        let failed = matches!(self.opcode(), CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR);
        (!failed).then(|| word(HIGH) << 32 | word(HIGH + 4))
    }

    #[inline]
    fn invalidated(&self) -> Option<u32> {
        match self.message() {
            CqeOpcode::RESP_SEND_INV => Some(self.entry.word(mlx5_cqe64::IMM_INVAL_PKEY_OFFSET)),
            _ => None,
        }
    }

    #[inline]
    fn qpn(&self) -> u32 {
        self.entry.qpn()
    }

    fn user_index(&self) -> Option<u32> {
        Some(self.entry.uidx())
    }

    #[inline]
    fn pkey_index(&self) -> u16 {
        const LOW: usize = mlx5_cqe64::IMM_INVAL_PKEY_OFFSET + 2;
        self.entry.half(LOW)
    }

    #[inline(always)]
    fn sent_opcode(&self) -> Option<u8> {
        let sent = self.opcode() == CqeOpcode::REQ;
        // The opcode is the first byte of its word.
        sent.then(|| self.entry.byte(mlx5_cqe64::SOP_DROP_QPN_OFFSET))
    }

    #[inline]
    fn sent_immediate(&self) -> bool {
        sent(self.send_opcode().0).1
    }

    fn packet(&self) -> PacketInfo {
        let checks = HdsIpExt(self.entry.byte(offset_of!(mlx5_cqe64, hds_ip_ext)));
        let kinds = L4HdrType(self.entry.byte(offset_of!(mlx5_cqe64, l4_hdr_type_etc)));
        let ipv4 = kinds.l3_hdr_type() == MLX5_CQE_L3_HDR_TYPE_IPV4;
        PacketInfo {
            ip_checksum_ok: checks.l3_ok() && ipv4,
            transport_checksum_ok: checks.l4_ok(),
            vlan_tag: kinds.cv().then(|| self.entry.half(offset_of!(mlx5_cqe64, vlan_info))),
        }
    }

    fn send_index(&self) -> Option<u16> {
        (!self.is_recv()).then(|| self.entry.wqe_counter())
    }

    #[inline]
    fn path_bits(&self) -> u8 {
        MlPath(self.entry.byte(offset_of!(mlx5_cqe64, ml_path))).path()
    }

    fn tag_info(&self) -> Option<TagInfo> {
        if self.opcode().0 < FAILED_OF_TAGS {
            return None;
        }
        let has_header = matches!(
            self.entry.app_op(),
            TmAppOp::CONSUMED
                | TmAppOp::CONSUMED_MSG
                | TmAppOp::CONSUMED_SW_RDNV
                | TmAppOp::CONSUMED_MSG_SW_RDNV
        );
        Some(TagInfo {
            header: has_header.then(|| self.entry.tag_header()),
            wants_sync: self.opcode & WANTS_SYNC != 0,
        })
    }

    #[inline]
    fn sender(&self) -> Sender {
        self.entry.sender()
    }

    /// Loads each field once, and checks the opcode once.
    #[inline(always)]
    fn decode(&self) -> Decoded {
        let word = self.entry.sop_drop_qpn();
        let qpn = word.qpn();
        if self.opcode() == CqeOpcode::REQ {
            // Ordered by frequency.
            let byte_len = match Opcode(word.sop()) {
                Opcode(..READ) => 0,
                Opcode::RDMA_READ => self.entry.byte_count(),
                Opcode::ATOMIC_CS | Opcode::ATOMIC_FA => 8,
                _ => 0,
            };
            return Decoded {
                result: Ok(SENDS[usize::from(word.sop())]),
                is_recv: false,
                byte_len,
                immediate: None,
                invalidated: None,
                qpn,
                sender: Sender::default(),
            };
        }
        let byte_len = self.entry.byte_count();
        let received = |completed, immediate, invalidated| Decoded {
            result: Ok(completed),
            is_recv: true,
            byte_len,
            immediate,
            invalidated,
            qpn,
            sender: self.entry.sender(),
        };
        let opcode = self.opcode();
        if opcode == CqeOpcode::RESP_SEND {
            return received(Completed::Recv, None, None);
        }
        if opcode.0 <= LAST_RECEIVE {
            let is_write = opcode == CqeOpcode::RESP_WR_IMM;
            let completed = if is_write { Completed::RecvWriteImm } else { Completed::Recv };
            return received(completed, self.immediate(), self.invalidated());
        }
        if opcode.0 >= OF_TAGS {
            return received(self.decoded_of_tags(), self.immediate(), self.invalidated());
        }
        let of_tags = opcode.0 & FAILED_OF_TAGS != 0;
        Decoded {
            result: Err(self.failure()),
            is_recv: opcode != CqeOpcode::REQ_ERR,
            byte_len: if of_tags { byte_len } else { 0 },
            immediate: None,
            invalidated: None,
            qpn,
            sender: Sender::default(),
        }
    }
}

/// Prints every field of the CQE.
impl fmt::Debug for Cqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&uverbs_mlx5_prm::print::CqeView::new(&self.prm()), f)
    }
}
