//! Queues of three kinds that have one number (Linux `hw/mlx5/qpc.c`, `create_resource_common`).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use uverbs_core::commands::qp::CreateQp;
use uverbs_core::commands::wq::CreateWq;
use uverbs_core::memory::pages::{Pages, page_size};
use uverbs_front::backend::context::QpState;
use uverbs_front::backend::error::{HcaEvent, Noun};
use uverbs_front::backend::number::{Key, Queue};
use uverbs_kernel_abi::event::*;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::qp::*;
use uverbs_kernel_abi::wq::{IB_WQ_STATE, IB_WQS_RDY, ib_uverbs_ex_modify_wq};
use zerocopy::IntoBytes;

use super::stub::NUMBER;
use super::{Rig, next_of};

/// Numbers that events return.
const QP: u64 = 0x10;
const RAW: u64 = 0x20;
const WQ: u64 = 0x30;

/// A queue pair, a raw packet queue pair with a send queue, a work queue, and their async file.
struct Queues {
    rig: Rig,
    file: OwnedFd,
    qp: u32,
    raw: u32,
    wq: u32,
    _memory: [Pages; 2],
}

impl Queues {
    fn new() -> Self {
        let rig = Rig::new(None);
        let file = rig.uverbs.alloc_async_fd().unwrap();
        let pd = rig.uverbs.alloc_pd(&mut [0; 4]).unwrap();
        let memory = Pages::anonymous(page_size()).unwrap();
        let at = memory.as_mut_ptr().expose_provenance() as u64;
        {
            let mut talk = rig.talk.lock().unwrap();
            (talk.key, talk.queues) = (Some(Key::new(5, 0)), Some(BTreeMap::new()));
        }
        let (_, uar, page) = rig.uar();
        let cq = rig.create_cq(at, uar).handle;
        let request = mlx5_ib_create_qp {
            buf_addr: at,
            db_addr: at + 2048,
            sq_wqe_count: 16,
            flags: MLX5_QP_FLAG_UAR_PAGE_INDEX,
            bfreg_index: uar,
            sq_buf_addr: at,
            ..Default::default()
        };
        let create_qp = |kind: u8, user_handle| {
            let attr = CreateQp {
                pd,
                send_cq: cq,
                recv_cq: Some(cq),
                srq: None,
                user_handle,
                qp_type: kind.into(),
                cap: ib_uverbs_qp_cap::default(),
                create_flags: 0,
                event_fd: None,
            };
            // SAFETY: the device uses no memory.
            unsafe { rig.uverbs.create_qp(&attr, request.as_bytes(), &mut [0; 40]) }.unwrap()
        };
        let (qp, raw) = (create_qp(IB_UVERBS_QPT_RC, QP), create_qp(IB_UVERBS_QPT_RAW_PACKET, RAW));
        let request = mlx5_ib_create_wq {
            buf_addr: at,
            db_addr: at + 2048,
            rq_wqe_count: 8,
            rq_wqe_shift: 4,
            ..Default::default()
        };
        let attr =
            CreateWq { pd, cq, user_handle: WQ, max_wr: 8, max_sge: 1, flags: 0, event_fd: None };
        // SAFETY: the device uses no memory.
        let wq = unsafe { rig.uverbs.create_wq(&attr, request.as_bytes(), &mut [0; 8]) }.unwrap();
        assert_eq!([qp.qpn, raw.qpn, wq.wqn], [NUMBER.0; 3]);
        let (qp, raw, wq) = (qp.handle, raw.handle, wq.handle);
        Self { rig, file, qp, raw, wq, _memory: [memory, page] }
    }

    /// The event of the program for a catastrophic error of a queue.
    fn told(&self, queue: Queue) -> Option<(u64, u32)> {
        self.rig.talk.lock().unwrap().event = Some(HcaEvent::QpFatal { queue });
        self.rig.step();
        let told = next_of(&self.file);
        assert_eq!(next_of(&self.file), None);
        told
    }

    fn left(&self) -> Vec<Queue> {
        self.rig.talk.lock().unwrap().queues.as_ref().unwrap().keys().copied().collect()
    }
}

const ALL: [Queue; 3] = [Queue::Qp(NUMBER), Queue::Sq(NUMBER), Queue::Rq(NUMBER)];

#[test]
fn an_event_reaches_the_queue_of_its_kind_until_that_is_destroyed() {
    let queues = Queues::new();
    let [qp, raw, wq] =
        [(QP, IB_EVENT_QP_FATAL), (RAW, IB_EVENT_QP_FATAL), (WQ, IB_EVENT_WQ_FATAL)];
    let told = || ALL.map(|queue| queues.told(queue));
    assert_eq!(told(), [Some(qp), Some(raw), Some(wq)]);
    // Queue pairs alone have it.
    let event = HcaEvent::CommEstablished { qpn: NUMBER };
    queues.rig.talk.lock().unwrap().event = Some(event);
    queues.rig.step();
    assert_eq!(next_of(&queues.file), Some((QP, IB_EVENT_COMM_EST)));
    let uverbs = &queues.rig.uverbs;
    // SAFETY: the only owner, as below.
    unsafe { uverbs.destroy_qp(queues.raw) }.unwrap();
    assert_eq!((queues.left(), told()), (vec![ALL[0], ALL[2]], [Some(qp), None, Some(wq)]));
    // SAFETY: as above.
    unsafe { uverbs.destroy_qp(queues.qp) }.unwrap();
    assert_eq!((queues.left(), told()), (vec![ALL[2]], [None, None, Some(wq)]));
    // SAFETY: as above.
    unsafe { uverbs.destroy_wq(queues.wq) }.unwrap();
    assert_eq!((queues.left(), told()), (vec![], [None; 3]));
}

#[test]
fn states_are_of_the_queue_of_the_kind() {
    let queues = Queues::new();
    let uverbs = &queues.rig.uverbs;
    let states =
        || [queues.qp, queues.raw].map(|qp| uverbs.query_qp(qp, IB_QP_STATE).unwrap().qp_state);
    let [reset, err] = [QpState::Reset, QpState::Err].map(|state| state as u8);
    assert_eq!(states(), [reset; 2]);
    let change = |queue, state| {
        queues.rig.talk.lock().unwrap().queues.as_mut().unwrap().insert(queue, state);
    };
    change(Queue::Sq(NUMBER), QpState::Err);
    assert_eq!(states(), [reset, err]);
    let attr = ib_uverbs_ex_modify_wq {
        attr_mask: IB_WQ_STATE,
        wq_handle: queues.wq,
        wq_state: IB_WQS_RDY,
        ..Default::default()
    };
    // SAFETY: the only owner.
    unsafe { uverbs.modify_wq(&attr, mlx5_ib_modify_wq::default().as_bytes()) }.unwrap();
    let talk = queues.rig.talk.lock().unwrap();
    let states = ALL.map(|queue| talk.queues.as_ref().unwrap()[&queue]);
    assert_eq!(states, [QpState::Reset, QpState::Err, QpState::Rtr]);
}

#[test]
fn kept_queues_are_forsaken_by_their_kind() {
    let Queues { rig, file, .. } = Queues::new();
    let Rig { door, uverbs, talk, .. } = rig;
    talk.lock().unwrap().queues = None;
    drop((door, uverbs, file));
    let mut forsaken = talk.lock().unwrap().forsaken.clone();
    forsaken.retain(|(noun, _)| *noun != Noun::Cq);
    forsaken.sort_by_key(|(noun, _)| format!("{noun:?}"));
    assert_eq!(forsaken, [Noun::Qp, Noun::Rq, Noun::Sq].map(|noun| (noun, NUMBER.0)));
}
