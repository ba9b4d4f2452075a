//! Sends: staged in the provider's memory, and carried to the kernel by a POST_SEND.

use uverbs_core::Errno;
use uverbs_core::attr::QpType;
use uverbs_core::commands::kick::{MOST_INPUT, TRIES};
use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge};
use uverbs_kernel_abi::wc::{
    IB_SEND_FENCE, IB_SEND_SIGNALED, IB_SEND_SOLICITED, IB_UVERBS_WR_ATOMIC_CMP_AND_SWP,
    IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, IB_UVERBS_WR_RDMA_READ, IB_UVERBS_WR_RDMA_WRITE,
    IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, IB_UVERBS_WR_SEND, IB_UVERBS_WR_SEND_WITH_IMM,
    IB_UVERBS_WR_SEND_WITH_INV, ib_uverbs_post_send, ib_uverbs_send_wr, ib_uverbs_send_wr_atomic,
    ib_uverbs_send_wr_rdma, ib_uverbs_send_wr_ud, ib_uverbs_sge,
};
use uverbs_kernel_rings::elements::{ElementLimits, Size, check_data, is_inline};
use uverbs_kernel_rings::{Doorbell, Post};
use zerocopy::IntoBytes;

use crate::Ah;
use crate::inline::Inline;

/// Bytes of a POST_SEND's header.
const HEADER: usize = size_of::<ib_uverbs_post_send>();
/// Bytes of a work request and of an SGE.
const WR: usize = size_of::<ib_uverbs_send_wr>();
const SGE: usize = size_of::<ib_uverbs_sge>();
/// Most SGEs of a work request that a command has room for.
pub(crate) const MAX_SGE: u32 = ((MOST_INPUT - HEADER - WR) / SGE) as u32;

/// Work requests that are staged for the next POST_SEND.
#[derive(Debug)]
pub struct SendRing {
    qp_type: QpType,
    room: ElementLimits,
    /// Index of the first staged work request, free running.
    first: u32,
    wrs: Box<[ib_uverbs_send_wr]>,
    /// SGEs of each work request: as many places as a work request may have.
    sges: Box<[ib_uverbs_sge]>,
    /// Address handle of each datagram, kept until the kernel took it. Empty on other transports.
    handles: Box<[Option<Ah>]>,
    /// Memory of inline data; `None` without.
    inline: Option<Inline>,
    /// The command, with the memory of its longest.
    command: Vec<u8>,
}

impl SendRing {
    /// A queue for `max_wr` work requests.
    pub(crate) fn new(
        qp_type: QpType,
        max_wr: u32,
        room: ElementLimits,
        inline: Option<Inline>,
    ) -> Self {
        let (count, places) = (max_wr as usize, max_wr as usize * room.max_sge as usize);
        let whole = HEADER + count * WR + places * SGE;
        let handles = if qp_type == QpType::Ud { count } else { 0 };
        Self {
            qp_type,
            room,
            first: 0,
            wrs: vec![ib_uverbs_send_wr::default(); count].into(),
            sges: vec![ib_uverbs_sge::default(); places].into(),
            handles: (0..handles).map(|_| None).collect(),
            inline,
            command: Vec::with_capacity(whole.min(MOST_INPUT)),
        }
    }

    /// Begins at a free-running index.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_at(&mut self, index: u32) {
        self.first = index;
    }

    /// Writes the command that carries staged work requests from `from` on, up to `end`. Returns
    /// the position behind the last one that it has room for.
    fn pack(&mut self, qp: u32, from: usize, end: usize) -> usize {
        let (mut to, mut sges, mut bytes) = (from, 0, HEADER);
        while let Some(wr) = self.wrs.get(to).filter(|_| to < end) {
            bytes += WR + wr.num_sge as usize * SGE;
            if bytes > MOST_INPUT {
                break;
            }
            (to, sges) = (to + 1, sges + wr.num_sge);
        }
        let header = ib_uverbs_post_send {
            response: 0,
            qp_handle: qp,
            wr_count: (to - from) as u32,
            sge_count: sges,
            wqe_size: WR as u32,
        };
        self.command.clear();
        self.command.extend_from_slice(header.as_bytes());
        let wrs = self.wrs.get(from..to).unwrap_or_default();
        self.command.extend_from_slice(wrs.as_bytes());
        for (at, wr) in (from..to).zip(wrs) {
            let start = at * self.room.max_sge as usize;
            let list = self.sges.get(start..start + wr.num_sge as usize).unwrap_or_default();
            self.command.extend_from_slice(list.as_bytes());
        }
        to
    }

    /// Posts the first `count` staged work requests. Returns the number that the kernel took. A
    /// command that fails for lack of memory or by a signal is repeated from the work request on
    /// that the kernel did not take.
    fn post(&mut self, doorbell: &Doorbell, count: usize) -> (usize, Result<(), Errno>) {
        let (mut taken, mut tries) = (0, 0);
        while taken < count {
            let end = self.pack(doorbell.qp(), taken, count);
            match send(doorbell, &self.command) {
                Ok(()) => (taken, tries) = (end, 0),
                Err((bad, errno)) => {
                    // No more than the command had.
                    let before = (bad as usize).saturating_sub(1).min(end - taken);
                    tries = if before == 0 { tries + 1 } else { 0 };
                    taken += before;
                    if !matches!(errno, Errno::ENOMEM | Errno::EINTR) || tries == TRIES {
                        return (taken, Err(errno));
                    }
                }
            }
        }
        (taken, Ok(()))
    }
}

#[allow(unsafe_code, reason = "a POST_SEND names memory by address")]
fn send(doorbell: &Doorbell, command: &[u8]) -> Result<(), (u32, Errno)> {
    // SAFETY: the program promised for each post that its memory stays registered.
    unsafe { doorbell.uverbs().post_sends(command) }
}

/// Opcode of an operation; `None` if the transport lacks it (kernel `hfi1/qp.c:hfi1_post_parms`).
fn opcode(qp_type: QpType, op: &SendOp) -> Option<u32> {
    let (opcode, is_unreliable, is_datagram) = match op {
        SendOp::Send => (IB_UVERBS_WR_SEND, true, true),
        SendOp::SendImm(_) => (IB_UVERBS_WR_SEND_WITH_IMM, true, true),
        SendOp::SendInvalidate(_) => (IB_UVERBS_WR_SEND_WITH_INV, false, false),
        SendOp::Write(_) => (IB_UVERBS_WR_RDMA_WRITE, true, false),
        SendOp::WriteImm(..) => (IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, true, false),
        SendOp::Read(_) => (IB_UVERBS_WR_RDMA_READ, false, false),
        SendOp::CompareSwap { .. } => (IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, false, false),
        SendOp::FetchAdd { .. } => (IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, false, false),
    };
    let has = match qp_type {
        QpType::Rc => true,
        QpType::Uc => is_unreliable,
        _ => is_datagram,
    };
    has.then_some(opcode)
}

/// First SGE with bytes.
fn first_sge<'a>(data: &'a Data<'_>) -> Option<&'a Sge> {
    match data {
        Data::One(sge) => Some(sge),
        Data::List(list) => list.iter().find(|sge| sge.len != 0),
        _ => None,
    }
}

fn request(
    post: &Post<'_, Ah>,
    token: u64,
    Checked { opcode, size }: Checked,
) -> ib_uverbs_send_wr {
    let flag = |flag, bit| if post.wr.flags.contains(flag) { bit } else { 0 };
    let mut wr = ib_uverbs_send_wr {
        wr_id: token,
        // The copy of inline data is one SGE.
        num_sge: if is_inline(&post.data) { u32::from(size.bytes != 0) } else { size.entries },
        opcode,
        send_flags: flag(SendFlags::SIGNALED, IB_SEND_SIGNALED)
            | flag(SendFlags::FENCE, IB_SEND_FENCE)
            | flag(SendFlags::SOLICITED, IB_SEND_SOLICITED),
        ..Default::default()
    };
    let rdma = |Remote { addr: remote_addr, rkey }| ib_uverbs_send_wr_rdma {
        remote_addr,
        rkey,
        reserved: 0,
    };
    let atomic = |Remote { addr: remote_addr, rkey }, compare_add, swap| ib_uverbs_send_wr_atomic {
        remote_addr,
        compare_add,
        swap,
        rkey,
        reserved: 0,
    };
    match post.op {
        SendOp::Send => {}
        SendOp::SendImm(imm) => wr.ex = imm.to_be_bytes(),
        SendOp::SendInvalidate(rkey) => wr.ex = rkey.to_ne_bytes(),
        SendOp::Write(remote) | SendOp::Read(remote) => wr.set_rdma(rdma(remote)),
        SendOp::WriteImm(remote, imm) => {
            wr.ex = imm.to_be_bytes();
            wr.set_rdma(rdma(remote));
        }
        SendOp::CompareSwap { remote, compare, swap } => {
            wr.set_atomic(atomic(remote, compare, swap));
        }
        SendOp::FetchAdd { remote, add } => wr.set_atomic(atomic(remote, add, 0)),
    }
    if let Some(to) = &post.to {
        let [qpn, qkey] = to.peer;
        let (remote_qpn, remote_qkey) = (qpn as u32, qkey as u32);
        wr.set_ud(ib_uverbs_send_wr_ud {
            ah: to.ah.number(),
            remote_qpn,
            remote_qkey,
            reserved: 0,
        });
    }
    wr
}

/// A send that passed the checks.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    opcode: u32,
    size: Size,
}

#[allow(unsafe_code, reason = "implements an unsafe trait")]
// SAFETY: staged work requests are the provider's own memory. The kernel copies those that it
// takes, and knows none of the others.
unsafe impl uverbs_kernel_rings::SendRing for SendRing {
    type Ah = Ah;
    type Checked = Checked;

    fn slots(&self) -> u32 {
        self.wrs.len().max(1).next_power_of_two() as u32
    }

    fn free(&self, _: u32) -> u32 {
        self.slots()
    }

    #[inline(always)]
    fn check(&self, post: &Post<'_, Ah>) -> Result<Checked, PostError> {
        let is_datagram = self.qp_type == QpType::Ud;
        let opcode = opcode(self.qp_type, &post.op).filter(|_| post.to.is_some() == is_datagram);
        let opcode = opcode.ok_or(PostError::BadOperation)?;
        let is_read = opcode == IB_UVERBS_WR_RDMA_READ;
        let is_atomic = matches!(post.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        if (is_read || is_atomic) && is_inline(&post.data) {
            return Err(PostError::BadData);
        }
        let size = check_data(&post.data, self.room)?;
        // The kernel refuses a buffer that is not aligned (kernel
        // `rdmavt/qp.c:rvt_qp_valid_operation`).
        let fits = size == Size { bytes: 8, entries: 1 }
            && first_sge(&post.data).is_some_and(|sge| sge.addr.is_multiple_of(8));
        if is_atomic && !fits {
            return Err(PostError::BadData);
        }
        Ok(Checked { opcode, size })
    }

    #[inline(always)]
    unsafe fn write(&mut self, post: &Post<'_, Ah>, token: u64, checked: Checked) {
        let at = post.index.wrapping_sub(self.first) as usize;
        if let Some(wr) = self.wrs.get_mut(at) {
            *wr = request(post, token, checked);
        }
        let start = at.saturating_mul(self.room.max_sge as usize);
        let places = self.sges.get_mut(start..).unwrap_or_default();
        let copy;
        let list = match (&post.data, &self.inline) {
            (Data::One(sge), _) => std::slice::from_ref(sge),
            (Data::List(list), _) => list,
            (data, Some(inline)) => {
                // SAFETY: the slot is free, and `check` compared the length with the part's.
                copy = unsafe { inline.copy(post.index, data) };
                std::slice::from_ref(&copy)
            }
            (_, None) => &[],
        };
        for (place, sge) in places.iter_mut().zip(list.iter().filter(|sge| sge.len != 0)) {
            *place = ib_uverbs_sge { addr: sge.addr, length: sge.len, lkey: sge.lkey };
        }
        if let (Some(handle), Some(to)) = (self.handles.get_mut(at), &post.to) {
            *handle = Some(to.ah.clone());
        }
    }

    #[inline(always)]
    fn publish(&mut self, _: u32, _: u32) -> bool {
        true
    }

    fn kick(&mut self, doorbell: &Doorbell, from: u32, to: u32) -> (u32, Result<(), Errno>) {
        let count = to.wrapping_sub(from) as usize;
        let (taken, answer) = self.post(doorbell, count);
        self.handles.iter_mut().take(count).for_each(|handle| *handle = None);
        self.first = from.wrapping_add(taken as u32);
        (self.first, answer)
    }
}
