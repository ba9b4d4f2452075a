//! Queues of raw packets: their commands, and what a refused one leaves.

use uverbs_core::memory::pages::Pages;
use uverbs_front::backend::Backend;
use uverbs_front::backend::config::Config;
use uverbs_front::backend::context::{QpContext, QpTransition, RqContext, Service, SqContext};
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::{Cqn, Pdn, UarNumber};
use uverbs_front::backend::region::Region;
use uverbs_front::backend::steering::{
    HashContext, HashFunction, QueueOptions, Selector, Spread, TirContext,
};
use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::rq::wq;
use uverbs_mlx5_prm::cmd::sq::{create_sq_in, sqc};

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
    let qpn = firmware.create_qp(sends(at)).unwrap();
    firmware.steering().add_tir(1, tir()).unwrap();
    assert_eq!(fake.count(CmdOpcode::ALLOC_TRANSPORT_DOMAIN), 1);
    firmware.destroy_qp(qpn).unwrap();
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
    let qpn = firmware.create_qp(sends(at)).unwrap();
    fake.twist(0, REFUSAL);
    assert!(firmware.destroy_qp(qpn).is_err());
    assert_eq!(left(&fake), [1, 1]);
    drop(pages);
    assert_eq!(fake.state().maps.len(), maps, "its memory is the device's");
    firmware.destroy_qp(qpn).unwrap();
    assert_eq!(left(&fake), [0, 0]);
    let missing = firmware.destroy_qp(qpn);
    assert!(matches!(missing, Err(HcaError::BadHandle { .. })));
}

#[test]
fn transitions_are_changes_of_the_queues_state() {
    use QpTransition::{InitToRtr, RstToInit, RtrToRts, RtsToSqd};
    let fake = Fake::new();
    let (mut firmware, _pages, at) = device(&fake);
    let qpn = firmware.create_qp(receives(at)).unwrap();
    let mut go = |to| firmware.modify_qp(qpn, to, &Default::default());
    go(RstToInit).unwrap();
    assert_eq!(fake.count(CmdOpcode::MODIFY_RQ), 0);
    go(InitToRtr).unwrap();
    assert_eq!(fake.count(CmdOpcode::MODIFY_RQ), 1);
    for to in [RtrToRts, RtsToSqd] {
        assert!(matches!(go(to), Err(HcaError::Unsupported { .. })), "{to:?}");
    }
    firmware.steering().change_queue(qpn.0, QueueOptions { strips_vlan: true }).unwrap();
    assert_eq!(fake.count(CmdOpcode::MODIFY_RQ), 2);
    let other = firmware.steering().change_queue(qpn.0 + 1, QueueOptions::default());
    assert!(other.is_err());
    // A state that no queue has.
    fake.twist(0, Twist::Output(vec![0xff; 64]));
    assert!(firmware.query_qp(qpn).is_err());
}
