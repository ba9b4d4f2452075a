//! Queues of raw packets: their commands, and what a refused one leaves.

use uverbs_core::memory::pages::Pages;
use uverbs_front::backend::Backend;
use uverbs_front::backend::config::Config;
use uverbs_front::backend::context::{QpContext, QpTransition, RqContext, Service, SqContext};
use uverbs_front::backend::error::{HcaError, HcaEvent};
use uverbs_front::backend::number::{Cqn, Pdn, Qpn, Queue, UarNumber};
use uverbs_front::backend::region::Region;
use uverbs_front::backend::steering::{
    HashContext, HashFunction, QueueOptions, Selector, Spread, TirContext,
};
use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::rq::wq;
use uverbs_mlx5_prm::cmd::sq::{create_sq_in, sqc};
use uverbs_mlx5_prm::eqe::{EventQueueType, EventType, mlx5_eqe};

use super::fake::{Fake, Twist, limits};
use crate::backend::Firmware;
use crate::function::Function;

const REFUSAL: Twist = Twist::Refuse(CmdStatus::BAD_PARAM_ERR.0);
/// Transport domain of the front.
const DOMAIN: u32 = 4;

/// A device, and memory for a ring of 4 KiB and a doorbell record behind it.
fn device(fake: &Fake) -> (Firmware, Pages, u64) {
    let function = Function::open(fake.clone(), limits()).unwrap();
    let pages = function.dma().area(8192).unwrap();
    let at = pages.as_ptr().expose_provenance() as u64;
    let firmware = Firmware::new(function, &Config::default(), None);
    (firmware, pages, at)
}

fn bare(at: u64) -> QpContext {
    let bare = QpContext::bare(Service::Raw, Pdn(1), Cqn(2));
    QpContext { doorbell_record: at + 4096, domain: DOMAIN, ..bare }
}

fn sends(at: u64) -> QpContext {
    let region = Region::Flat { addr: at, len: 4096 };
    QpContext { sq: Some(SqContext { region, log_wqebbs: 6 }), ..bare(at) }
}

fn receives(at: u64) -> QpContext {
    let region = Region::Flat { addr: at, len: 4096 };
    QpContext { rq: Some(RqContext { region, log_entries: 8, stride_shift: 4 }), ..bare(at) }
}

fn tir() -> TirContext {
    let (function, key, selector) = (HashFunction::None, [0; 40], Selector::default());
    let hash = HashContext { function, symmetric: false, key, selector };
    let (spread, domain) = (Spread::Queue(0), DOMAIN);
    TirContext { spread, hash, domain, hears_own_unicast: false, hears_own_multicast: false }
}

/// TISes and transport domains that the device has.
fn left(fake: &Fake) -> [usize; 2] {
    [
        (CmdOpcode::CREATE_TIS, CmdOpcode::DESTROY_TIS),
        (CmdOpcode::ALLOC_TRANSPORT_DOMAIN, CmdOpcode::DEALLOC_TRANSPORT_DOMAIN),
    ]
    .map(|(made, ended)| fake.count(made) - fake.count(ended))
}

#[test]
fn a_refused_send_queue_leaves_nothing() {
    let fake = Fake::new();
    let (mut firmware, _pages, at) = device(&fake);
    let before = left(&fake);
    // After ALLOC_PD and ALLOC_TRANSPORT_DOMAIN: CREATE_TIS, which the fake counts.
    fake.twist(2, REFUSAL);
    assert!(matches!(firmware.create_qp(sends(at)), Err(HcaError::BadParam { .. })));
    assert_eq!(fake.count(CmdOpcode::CREATE_SQ), 0);
    assert_eq!(left(&fake), [before[0] + 1, before[1]]);
    // CREATE_SQ. The domain of protection is known now.
    fake.twist(2, REFUSAL);
    assert!(firmware.create_qp(sends(at)).is_err());
    assert_eq!(fake.count(CmdOpcode::DESTROY_TIS), 1);
    assert_eq!(left(&fake), [before[0] + 1, before[1]]);
}

/// Its doorbells are in the program's page.
#[test]
fn a_send_queue_has_the_doorbells_that_the_program_has() {
    let fake = Fake::new();
    let (mut firmware, _pages, at) = device(&fake);
    let uar = UarNumber(0x13);
    firmware.create_qp(QpContext { uar, ..sends(at) }).unwrap();
    let input = fake.state().input.clone();
    assert_eq!(cmd_in::OPCODE.get(&input), u64::from(CmdOpcode::CREATE_SQ.0));
    let ring = sqc::WQ.of(create_sq_in::CTX.of(&input));
    assert_eq!(wq::UAR_PAGE.get32(ring), uar.0);
    assert_eq!((wq::LOG_WQ_SZ.get(ring), wq::LOG_WQ_STRIDE.get(ring)), (6, 6));
}

/// The domain ends with the last TIS or TIR in it.
#[test]
fn queues_and_tirs_of_a_file_have_one_transport_domain() {
    let fake = Fake::new();
    let (mut firmware, _pages, at) = device(&fake);
    let queue = firmware.create_qp(sends(at)).unwrap();
    firmware.steering().add_tir(1, tir()).unwrap();
    assert_eq!(fake.count(CmdOpcode::ALLOC_TRANSPORT_DOMAIN), 1);
    firmware.destroy_qp(queue).unwrap();
    assert_eq!(fake.count(CmdOpcode::DEALLOC_TRANSPORT_DOMAIN), 0);
    firmware.steering().remove_tir(1).unwrap();
    assert_eq!(left(&fake), [0, 0]);
    assert!(firmware.steering().remove_tir(1).is_err());
}

/// The queue and its TIS stay until the firmware destroys the queue.
#[test]
fn a_queue_that_the_firmware_keeps_stays() {
    let fake = Fake::new();
    let (mut firmware, pages, at) = device(&fake);
    let maps = fake.state().maps.len();
    let queue = firmware.create_qp(sends(at)).unwrap();
    fake.twist(0, REFUSAL);
    assert!(firmware.destroy_qp(queue).is_err());
    assert_eq!(left(&fake), [1, 1]);
    drop(pages);
    assert_eq!(fake.state().maps.len(), maps, "its memory is the device's");
    firmware.destroy_qp(queue).unwrap();
    assert_eq!(left(&fake), [0, 0]);
    let missing = firmware.destroy_qp(queue);
    assert!(matches!(missing, Err(HcaError::BadHandle { .. })));
}

#[test]
fn transitions_are_changes_of_the_queues_state() {
    use QpTransition::{InitToRtr, RstToInit, RtrToRts, RtsToSqd};
    let fake = Fake::new();
    let (mut firmware, _pages, at) = device(&fake);
    let queue = firmware.create_qp(receives(at)).unwrap();
    let rqn = queue.number().0;
    let mut go = |to| firmware.modify_qp(queue, to, &Default::default());
    go(RstToInit).unwrap();
    assert_eq!(fake.count(CmdOpcode::MODIFY_RQ), 0);
    go(InitToRtr).unwrap();
    assert_eq!(fake.count(CmdOpcode::MODIFY_RQ), 1);
    for to in [RtrToRts, RtsToSqd] {
        assert!(matches!(go(to), Err(HcaError::Unsupported { .. })), "{to:?}");
    }
    firmware.steering().change_queue(rqn, QueueOptions { strips_vlan: true }).unwrap();
    assert_eq!(fake.count(CmdOpcode::MODIFY_RQ), 2);
    let other = firmware.steering().change_queue(rqn + 1, QueueOptions::default());
    assert!(other.is_err());
    // A state that no queue has.
    fake.twist(0, Twist::Output(vec![0xff; 64]));
    assert!(firmware.query_qp(queue).is_err());
}

/// A queue pair, a send queue and a receive queue, which have one number.
#[test]
fn commands_and_states_are_of_the_kind() {
    use QpTransition::{InitToRtr, RstToInit, RtrToRts};
    let fake = Fake::new();
    let (mut firmware, _pages, at) = device(&fake);
    let region = Region::Flat { addr: at, len: 4096 };
    let sq = Some(SqContext { region, log_wqebbs: 6 });
    let bare = QpContext { service: Service::Rc, ..bare(at) };
    let contexts = [QpContext { sq, ..bare }, sends(at), receives(at)];
    let queues = contexts.map(|context| firmware.create_qp(context).unwrap());
    let qpn = queues[0].number();
    assert_eq!(queues, [Queue::Qp(qpn), Queue::Sq(qpn), Queue::Rq(qpn)]);
    let attrs = Default::default();
    for (queue, to, change, query) in [
        (queues[0], RstToInit, CmdOpcode::RST2INIT_QP, CmdOpcode::QUERY_QP),
        (queues[1], RtrToRts, CmdOpcode::MODIFY_SQ, CmdOpcode::QUERY_SQ),
        (queues[2], InitToRtr, CmdOpcode::MODIFY_RQ, CmdOpcode::QUERY_RQ),
    ] {
        firmware.modify_qp(queue, to, &attrs).unwrap();
        assert_eq!(fake.count(change), 1, "{queue:?}");
        let before = fake.count(query);
        firmware.query_qp(queue).unwrap();
        assert_eq!(fake.count(query), before + 1, "{queue:?}");
        assert_eq!(firmware.ece(queue).is_some(), queue == queues[0], "{queue:?}");
    }
    // The device has no such queue of this kind.
    let target = firmware.query_qp(Queue::Dct(qpn));
    assert!(matches!(target, Err(HcaError::BadHandle { .. })));
}

/// Numbers of events are among the queues of a kind (Linux `hw/mlx5/qpc.c`, `rsc_event_notifier`).
#[test]
fn events_are_of_the_kind() {
    use EventQueueType as Kind;
    let fake = Fake::new();
    let (mut firmware, ..) = device(&fake);
    let qpn = Qpn(0x77);
    let fatal = |queue| Some(HcaEvent::QpFatal { queue });
    let catas = EventType::WQ_CATAS_ERROR;
    let pass = HcaEvent::DctDrained { dctn: Qpn(1) };
    for (event, kind, told) in [
        (catas, Kind::QP, fatal(Queue::Qp(qpn))),
        (catas, Kind::SQ, fatal(Queue::Sq(qpn))),
        (catas, Kind::RQ, fatal(Queue::Rq(qpn))),
        (catas, Kind::DCT, None),
        (catas, Kind(3), None),
        (EventType::COMM_EST, Kind::QP, Some(HcaEvent::CommEstablished { qpn })),
        (EventType::COMM_EST, Kind::SQ, None),
        (EventType::WQ_ACCESS_ERROR, Kind::QP, Some(HcaEvent::QpAccessError { qpn })),
        (EventType::WQ_ACCESS_ERROR, Kind::RQ, None),
        (EventType::SRQ_LAST_WQE, Kind::QP, Some(HcaEvent::LastWqeReached { qpn })),
        (EventType::SRQ_LAST_WQE, Kind::RQ, None),
    ] {
        fake.report(&mlx5_eqe::queue(event, kind, qpn.0));
        fake.report(&mlx5_eqe::queue(EventType::DCT_DRAINED, Kind::QP, 1));
        for told in told.into_iter().chain([pass]) {
            assert_eq!(fake.wait(|_| firmware.next_event()), told, "{event:?} {kind:?}");
        }
    }
}
