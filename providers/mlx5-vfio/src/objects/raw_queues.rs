//! Commands of raw packet queues: send queues, each with a TIS, and receive queues (Linux
//! `hw/mlx5/qp.c`, `create_raw_packet_qp_sq`, `create_raw_packet_qp_rq`, `create_rq`).

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::rq::wq;
use uverbs_mlx5_prm::cmd::sq::{
    create_rq_in, create_rq_out, create_sq_in, create_sq_out, modify_rq_in, modify_sq_in, rqc, sqc,
};
use uverbs_mlx5_prm::cmd::steering::{create_tis_in, create_tis_out, tisc};

use super::prepared::{Prepared, set};

/// States of both kinds of queue (`MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
pub(crate) const RST: u64 = 0;
pub(crate) const RDY: u64 = 1;
pub(crate) const ERR: u64 = 3;
/// `modify_bitmask` of MODIFY_RQ (`MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_VSD`).
const MODIFY_VSD: u64 = 1 << 1;

/// Ring and doorbell record of a work queue (PRM "Work Queue").
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    /// `wq_type`: linked list (0), or cyclic.
    pub(crate) kind: u64,
    pub(crate) pd: u32,
    pub(crate) uar: u32,
    /// IOVA of the doorbell record.
    pub(crate) record: u64,
    /// Log2 of the bytes of an entry.
    pub(crate) log_stride: u32,
    /// Log2 of the number of entries.
    pub(crate) log_entries: u32,
    /// Number of receives below which an event is raised.
    pub(crate) limit: u16,
    /// Offset of the ring in its first page, in 64ths of the page.
    pub(crate) page_offset: u64,
    /// Addresses of the pages, which follow the input.
    pub(crate) pages: Vec<u8>,
}

impl WorkQueue {
    /// Fills in the part of a context.
    pub(crate) fn fill(&self, part: &mut [u8]) {
        set(
            part,
            &[
                (wq::WQ_TYPE, self.kind),
                (wq::PAGE_OFFSET, self.page_offset),
                (wq::LWM, self.limit.into()),
                (wq::PD, self.pd.into()),
                (wq::UAR_PAGE, self.uar.into()),
                (wq::DBR_ADDR, self.record),
                (wq::LOG_WQ_STRIDE, self.log_stride.into()),
                (wq::LOG_WQ_SZ, self.log_entries.into()),
            ],
        );
    }
}

/// CQ, user index and counter set of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueLinks {
    pub(crate) cqn: u32,
    /// Number that names the queue in CQEs.
    pub(crate) user_index: u32,
    pub(crate) counter_set: u8,
}

/// CREATE_TIS in a transport domain.
pub(crate) fn create_tis(domain: u32) -> Prepared {
    let mut command = Prepared::new(CmdOpcode::CREATE_TIS, create_tis_in::SIZE, &[]);
    let context = create_tis_in::CTX.of_mut(&mut command.input);
    tisc::TRANSPORT_DOMAIN.set(context, domain.into());
    Prepared { outlen: create_tis_out::SIZE, ..command }
}

/// CREATE_SQ with a TIS.
pub(crate) fn create_sq(links: &QueueLinks, tis: u32, ring: &WorkQueue) -> Prepared {
    let mut command = Prepared::new(CmdOpcode::CREATE_SQ, create_sq_in::SIZE, &[]);
    let context = create_sq_in::CTX.of_mut(&mut command.input);
    set(
        context,
        &[
            (sqc::FLUSH_IN_ERROR_EN, 1),
            (sqc::USER_INDEX, links.user_index.into()),
            (sqc::CQN, links.cqn.into()),
            (sqc::TIS_LST_SZ, 1),
            (sqc::TIS_NUM_0, tis.into()),
        ],
    );
    ring.fill(sqc::WQ.of_mut(context));
    command.input.extend(&ring.pages);
    Prepared { outlen: create_sq_out::SIZE, ..command }
}

/// CREATE_RQ, which keeps VLAN tags unless it `strips_vlan`.
pub(crate) fn create_rq(links: &QueueLinks, strips_vlan: bool, ring: &WorkQueue) -> Prepared {
    let mut command = Prepared::new(CmdOpcode::CREATE_RQ, create_rq_in::SIZE, &[]);
    let context = create_rq_in::CTX.of_mut(&mut command.input);
    set(
        context,
        &[
            (rqc::VSD, (!strips_vlan).into()),
            (rqc::FLUSH_IN_ERROR_EN, 1),
            (rqc::USER_INDEX, links.user_index.into()),
            (rqc::CQN, links.cqn.into()),
            (rqc::COUNTER_SET_ID, links.counter_set.into()),
        ],
    );
    ring.fill(rqc::WQ.of_mut(context));
    command.input.extend(&ring.pages);
    Prepared { outlen: create_rq_out::SIZE, ..command }
}

/// MODIFY_SQ from one state to another.
pub(crate) fn modify_sq(sqn: u32, (from, to): (u64, u64)) -> Prepared {
    let fields = [(modify_sq_in::SQ_STATE, from), (modify_sq_in::SQN, sqn.into())];
    let mut command = Prepared::new(CmdOpcode::MODIFY_SQ, modify_sq_in::SIZE, &fields);
    sqc::STATE.set(modify_sq_in::CTX.of_mut(&mut command.input), to);
    command
}

/// MODIFY_RQ from one state to another, or in a state, with other treatment of VLAN tags.
pub(crate) fn modify_rq(rqn: u32, (from, to): (u64, u64), strips_vlan: Option<bool>) -> Prepared {
    let fields = [(modify_rq_in::RQ_STATE, from), (modify_rq_in::RQN, rqn.into())];
    let mut command = Prepared::new(CmdOpcode::MODIFY_RQ, modify_rq_in::SIZE, &fields);
    if let Some(strips_vlan) = strips_vlan {
        modify_rq_in::MODIFY_BITMASK.set(&mut command.input, MODIFY_VSD);
        rqc::VSD.set(modify_rq_in::CTX.of_mut(&mut command.input), (!strips_vlan).into());
    }
    rqc::STATE.set(modify_rq_in::CTX.of_mut(&mut command.input), to);
    command
}
