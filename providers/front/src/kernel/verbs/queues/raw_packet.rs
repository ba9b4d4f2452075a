//! Raw packet QPs: a send queue, a receive queue and a TIR (`create_raw_packet_qp` in
//! `hw/mlx5/qp.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::mlx5_ib_create_qp;
use uverbs_mlx5_prm::doorbell::MLX5_ADAPTER_PAGE_SIZE;

use crate::backend::context::{QpContext, QpState, RqContext, Service, SqContext};
use crate::backend::number::{Qpn, UarNumber};
use crate::backend::region::Region;
use crate::backend::steering::{
    HashContext, HashFunction, QueueOptions, Selector, Spread, TirContext,
};
use crate::kernel::call::Call;
use crate::kernel::state::flows;
use crate::kernel::state::raw_queues::RawQueues;
use crate::kernel::user::page_size;
use crate::kernel::verbs::queues::qp_request::{Asked, Queues};

/// A created queue pair.
pub(crate) struct Made {
    pub(crate) qpn: Qpn,
    pub(crate) pinned: u64,
    pub(crate) raw: RawQueues,
}

/// Creates the requested queues. The QP's number is the send queue's, or without one the receive
/// queue's.
///
/// # Errors
///
/// Errors of pinning and of the firmware. On InfiniBand firmware creates such queues, too, but they
/// get no packet.
pub(crate) fn create(
    call: &mut Call<'_>,
    asked: &Asked,
    request: &mlx5_ib_create_qp,
    queues: &Queues,
) -> Result<Made, Errno> {
    // `process_create_flags`: InfiniBand ports lack the Ethernet capabilities.
    if asked.strips_vlan && !call.device.config.is_ethernet() {
        return Err(Errno::EOPNOTSUPP);
    }
    if asked.srq.is_some() || queues.sq_bytes() + queues.rq_bytes() == 0 {
        return Err(Errno::EINVAL);
    }
    let places = [(queues.sq_bytes(), request.sq_buf_addr), (queues.rq_bytes(), request.buf_addr)];
    if places.iter().any(|&(len, addr)| len != 0 && !is_place(addr)) {
        return Err(Errno::EINVAL);
    }
    let objects = &call.file.objects;
    let pd = objects.pd(asked.pd)?.pdn;
    let (send_cq, recv_cq) = (objects.cq(asked.send_cq)?.cqn, objects.cq(asked.recv_cq)?.cqn);
    let domain = domain(call.file.id);
    let strips_vlan = asked.strips_vlan;
    let device = &mut *call.device;
    let bare = |cq| QpContext {
        doorbell_record: request.db_addr,
        user_index: request.uidx,
        ..QpContext::bare(Service::Raw, pd, cq)
    };
    let mut made = Made {
        qpn: Qpn(0),
        pinned: 0,
        raw: RawQueues {
            sqn: None,
            rqn: None,
            tis: None,
            tir: None,
            state: QpState::Reset,
            port: 0,
        },
    };
    let done = (|| {
        if queues.sq_bytes() != 0 {
            let region = Region::Flat { addr: request.sq_buf_addr, len: queues.sq_bytes() };
            let log_wqebbs = queues.log_sq_units();
            let sq = Some(SqContext { region, log_wqebbs });
            let uar = UarNumber(request.bfreg_index);
            let context = QpContext { sq, uar, domain, ..bare(send_cq) };
            let len = queues.sq_bytes();
            let (sq, pinned) = device.create_qp(request.sq_buf_addr, len, context)?;
            made.pinned += pinned;
            made.raw.sqn = Some(sq.number());
            made.raw.tis = Some(device.flows.number());
        }
        if let Some(log_entries) = queues.log_rq_entries() {
            let region = Region::Flat { addr: request.buf_addr, len: queues.rq_bytes() };
            let stride_shift = queues.rq_shift as u8;
            let rq = Some(RqContext { region, log_entries: log_entries as u8, stride_shift });
            let options = QueueOptions { strips_vlan };
            let context = QpContext { rq, options, ..bare(recv_cq) };
            let (rq, pinned) = device.create_qp(request.buf_addr, queues.rq_bytes(), context)?;
            made.pinned += pinned;
            let rqn = rq.number();
            made.raw.rqn = Some(rqn);
            let number = device.flows.number();
            let steering = device.hca.steering();
            steering.add_tir(number, tir(Spread::Queue(rqn.0), domain)).map_err(flows::errno)?;
            made.raw.tir = Some(number);
        }
        Ok(())
    })();
    if let Err(errno) = done {
        made.raw.destroy(device);
        device.unpin(made.pinned);
        return Err(errno);
    }
    made.qpn = made.raw.sqn.or(made.raw.rqn).unwrap_or_default();
    Ok(made)
}

/// True if a work queue can start at an address: its offset in a page is counted in 64ths of the
/// page, in five bits (`wq.page_offset`; `mlx5_umem_find_best_quantized_pgoff`). The page may have
/// any size between the HCA's and the machine's. Linux accepts more addresses in memory that
/// happens to be in larger pages.
pub(crate) fn is_place(addr: u64) -> bool {
    let logs = MLX5_ADAPTER_PAGE_SIZE.ilog2()..=page_size().ilog2();
    logs.map(|log| 1u64 << log).any(|page| addr.is_multiple_of(page / 64) && addr % page < page / 2)
}

/// Transport domain of an open file (`mlx5_ib_alloc_transport_domain`).
pub(crate) fn domain(file: u64) -> u32 {
    file as u32
}

/// A TIR without hash that blocks frames of its transport domain.
fn tir(spread: Spread, domain: u32) -> TirContext {
    let hash = HashContext {
        function: HashFunction::None,
        symmetric: false,
        key: [0; 40],
        selector: Selector::default(),
    };
    TirContext { spread, hash, domain, hears_own_unicast: false, hears_own_multicast: false }
}
