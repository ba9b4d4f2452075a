//! Rings and doorbell records in a program's own memory, which the device reaches while their
//! queue exists.

use std::ops::Range;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_front::backend::Backend;
use uverbs_front::backend::config::Config;
use uverbs_front::backend::context::{
    CqContext, QpContext, RqContext, Service, SqContext, SrqContext, TagSrq, XrcSrq,
};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::{Cqn, Pdn, Qpn, Queue, Srqn, UarNumber};
use uverbs_front::backend::region::Region;
use uverbs_mlx5_prm::cmd::cq::{cqc, create_cq_in};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};

use super::fake::{Fake, Twist, limits};
use crate::backend::Firmware;
use crate::dma::Dma;
use crate::function::Function;
use crate::transport::Purpose;

const REFUSAL: Twist = Twist::Refuse(CmdStatus::BAD_PARAM_ERR.0);
/// Offset of a ring in its page, its bytes, and offset of the record.
const INSIDE: u64 = 128;
const RING: u64 = 4096;
const RECORD: u64 = 12288 + 64;

/// Kind of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cq,
    Qp,
    Sq,
    Rq,
    Srq,
    Xrc,
    Tags,
}

const KINDS: [Kind; 7] = [Kind::Cq, Kind::Qp, Kind::Sq, Kind::Rq, Kind::Srq, Kind::Xrc, Kind::Tags];

/// A device, and memory of the program.
struct Rig {
    fake: Fake,
    firmware: Firmware,
    dma: Arc<Dma>,
    pages: Pages,
}

impl Rig {
    /// The numbers of PDs and domains are known, so that a creation is one command.
    fn new() -> Self {
        let fake = Fake::new();
        let function = Function::open(fake.clone(), limits()).unwrap();
        let pages = Pages::anonymous(16384).unwrap();
        let dma = Arc::clone(function.dma());
        let firmware = Firmware::new(function, &Config::default(), None);
        let mut rig = Self { fake, firmware, dma, pages };
        for kind in [Kind::Qp, Kind::Xrc] {
            let number = rig.create(kind).unwrap();
            rig.destroy(kind, number).unwrap();
        }
        rig
    }

    fn at(&self, offset: u64) -> u64 {
        self.pages.as_ptr().expose_provenance() as u64 + offset
    }

    fn create(&mut self, kind: Kind) -> Result<u32, HcaError> {
        self.create_at(kind, self.at(INSIDE), self.at(RECORD))
    }

    fn create_at(&mut self, kind: Kind, ring: u64, record: u64) -> Result<u32, HcaError> {
        let region = Region::Flat { addr: ring, len: RING };
        match kind {
            Kind::Cq => self.firmware.create_cq(cq(region, record)).map(|cqn| cqn.0),
            Kind::Srq => self.firmware.create_srq(srq(region, record)).map(|srqn| srqn.0),
            Kind::Xrc => {
                let xrc = XrcSrq { xrcd: 3, cq: Cqn(0), user_index: 0, cqe_version: 1 };
                let context = SrqContext { xrc: Some(xrc), ..srq(region, record) };
                self.firmware.create_srq(context).map(|srqn| srqn.0)
            }
            Kind::Tags => {
                let (cq, log_tags, rendezvous) = (Cqn(0), 4, false);
                let tags = TagSrq { cq, user_index: 0, cqe_version: 1, log_tags, rendezvous };
                let context = SrqContext { tags: Some(tags), ..srq(region, record) };
                self.firmware.create_srq(context).map(|srqn| srqn.0)
            }
            Kind::Qp | Kind::Sq | Kind::Rq => {
                let service = if let Kind::Qp = kind { Service::Rc } else { Service::Raw };
                let mut context = QpContext::bare(service, Pdn(1), Cqn(0));
                context.doorbell_record = record;
                if let Kind::Rq = kind {
                    context.rq = Some(RqContext { region, log_entries: 8, stride_shift: 4 });
                } else {
                    context.sq = Some(SqContext { region, log_wqebbs: 6 });
                }
                self.firmware.create_qp(context).map(|queue| queue.number().0)
            }
        }
    }

    fn destroy(&mut self, kind: Kind, number: u32) -> Result<(), HcaError> {
        match kind {
            Kind::Cq => self.firmware.destroy_cq(Cqn(number)),
            Kind::Qp | Kind::Sq | Kind::Rq => self.firmware.destroy_qp(queue(kind, number)),
            Kind::Srq | Kind::Xrc | Kind::Tags => self.firmware.destroy_srq(Srqn(number)),
        }
    }

    /// Plans that the next queue has this number. Only CQs have different ones.
    fn repeat(&self, kind: Kind, number: u32) {
        if kind == Kind::Cq {
            self.fake.twist(0, Twist::Output(number.to_be_bytes().to_vec()));
        }
    }

    /// Ranges of the program that the device reaches, with their purpose.
    fn umems(&self) -> Vec<(Range<u64>, Purpose)> {
        let state = self.fake.state();
        assert!(!state.torn && state.failures.is_empty(), "{:?}", state.failures);
        state.umems.iter().map(|(_, _, used, purpose)| (used.clone(), *purpose)).collect()
    }
}

fn cq(region: Region, doorbell_record: u64) -> CqContext {
    CqContext {
        region,
        log_entries: 6,
        cqe_size: 64,
        doorbell_record,
        uar: UarNumber(0x13),
        overrun_ignore: false,
        padded: false,
        compressed: None,
    }
}

fn srq(region: Region, doorbell_record: u64) -> SrqContext {
    let (pd, log_entries, stride_shift, limit) = (Pdn(1), 7, 5, 0);
    let (xrc, tags) = (None, None);
    SrqContext { pd, region, log_entries, stride_shift, doorbell_record, limit, xrc, tags }
}

/// The device reaches ring and record of each kind, until the queue is destroyed.
#[test]
fn a_queue_has_its_memory_until_it_ends() {
    for kind in KINDS {
        let mut rig = Rig::new();
        let number = rig.create(kind).unwrap();
        let record_len = if let Kind::Srq | Kind::Xrc | Kind::Tags = kind { 4 } else { 8 };
        let (ring, record) = (rig.at(INSIDE), rig.at(RECORD));
        let both =
            [(ring..ring + RING, Purpose::Write), (record..record + record_len, Purpose::Record)];
        assert_eq!(rig.umems(), both, "{kind:?}");
        rig.destroy(kind, number).unwrap();
        assert_eq!(rig.umems(), [], "{kind:?}");
        // Once only.
        assert!(rig.destroy(kind, number).is_err());
        rig.create(kind).unwrap();
        assert_eq!(rig.umems().len(), 2, "{kind:?}");
    }
}

/// Page list, offset in the first page, and address of the record.
#[test]
fn a_ring_inside_pages_has_their_addresses() {
    let mut rig = Rig::new();
    rig.create(Kind::Cq).unwrap();
    let state = rig.fake.state();
    let [(ring, ..), (record, ..)] = &state.umems[..] else { panic!("{:?}", state.umems) };
    let cqc = create_cq_in::CQ_CONTEXT.of(&state.input);
    assert_eq!(cqc::PAGE_OFFSET.get(cqc), INSIDE / 64);
    assert_eq!(cqc::DBR_ADDR.get(cqc), record + RECORD % 4096);
    let pages = [*ring, ring + 4096].map(u64::to_be_bytes).concat();
    assert_eq!(state.input[create_cq_in::SIZE..], pages);
    drop(state);
    // Offsets are in units of 64 bytes.
    let (ring, record) = (rig.at(INSIDE + 8), rig.at(RECORD));
    let refused = rig.create_at(Kind::Cq, ring, record);
    assert_eq!(refused, Err(HcaError::BadParam { what: "page_offset", value: INSIDE + 8 }));
    assert_eq!(rig.umems().len(), 2);
}

/// A refused queue keeps its memory until it is destroyed, or the program's file is closed.
#[test]
fn a_queue_that_the_firmware_keeps_has_its_memory_until_it_is_forsaken() {
    for kind in KINDS {
        let mut rig = Rig::new();
        for is_forsaken in [false, true] {
            let number = rig.create(kind).unwrap();
            rig.fake.twist(0, REFUSAL);
            assert!(rig.destroy(kind, number).is_err());
            assert_eq!(rig.umems().len(), 2, "{kind:?}");
            match is_forsaken {
                true => rig.firmware.forsake(noun(kind), number),
                false => rig.destroy(kind, number).unwrap(),
            }
            assert_eq!(rig.umems(), [], "{kind:?}");
        }
    }
}

fn queue(kind: Kind, number: u32) -> Queue {
    match kind {
        Kind::Sq => Queue::Sq(Qpn(number)),
        Kind::Rq => Queue::Rq(Qpn(number)),
        _ => Queue::Qp(Qpn(number)),
    }
}

fn noun(kind: Kind) -> Noun {
    match kind {
        Kind::Cq => Noun::Cq,
        Kind::Qp | Kind::Sq | Kind::Rq => queue(kind, 0).into(),
        Kind::Srq | Kind::Xrc | Kind::Tags => Noun::Srq,
    }
}

/// A destruction without an answer fails the device, which may still use the memory.
#[test]
fn a_queue_of_a_failed_device_has_its_memory_until_it_is_forsaken() {
    for kind in KINDS {
        let mut rig = Rig::new();
        let number = rig.create(kind).unwrap();
        rig.fake.twist(0, Twist::Keep);
        for _ in 0..2 {
            assert_eq!(rig.destroy(kind, number), Err(HcaError::Dead));
            assert_eq!(rig.umems().len(), 2, "{kind:?}");
        }
        rig.firmware.forsake(noun(kind), number);
        assert_eq!(rig.umems(), [], "{kind:?}");
    }
}

/// A creation that fails at the record, at the firmware, or without an answer.
#[test]
fn a_queue_that_is_not_created_keeps_no_memory() {
    for kind in KINDS {
        let mut rig = Rig::new();
        let ring = rig.at(INSIDE);
        assert!(rig.create_at(kind, ring, u64::MAX - 7).is_err());
        assert_eq!(rig.umems(), [], "{kind:?}");
        rig.fake.state().map_errno = Some(Errno::ENOSPC);
        assert_eq!(rig.create(kind), Err(HcaError::System { errno: Errno::ENOSPC }));
        rig.fake.state().map_errno = None;
        // A send queue's TIS comes first.
        let last = match kind {
            Kind::Sq => 2,
            _ => 0,
        };
        rig.fake.twist(last, REFUSAL);
        assert!(rig.create(kind).is_err());
        assert_eq!(rig.umems(), [], "{kind:?}");
        rig.fake.twist(0, Twist::Keep);
        assert_eq!(rig.create(kind), Err(HcaError::Dead));
        assert_eq!(rig.umems(), [], "{kind:?}");
    }
}

#[test]
fn a_queue_that_moves_changes_its_ring_alone() {
    let mut rig = Rig::new();
    let cqn = Cqn(rig.create(Kind::Cq).unwrap());
    let before = rig.umems();
    let to = rig.at(8192);
    let region = Region::Flat { addr: to, len: RING };
    let resize = |rig: &mut Rig| rig.firmware.resize_cq(cqn, region.clone(), 6, 64);
    rig.fake.twist(0, REFUSAL);
    assert!(resize(&mut rig).is_err());
    assert_eq!(rig.umems(), before);
    resize(&mut rig).unwrap();
    assert_eq!(rig.umems(), [before[1].clone(), (to..to + RING, Purpose::Write)]);
    // Into memory of the device's allocator.
    let area = rig.dma.area(4096).unwrap();
    let region = Region::Flat { addr: area.as_ptr().expose_provenance() as u64, len: RING };
    rig.firmware.resize_cq(cqn, region, 6, 64).unwrap();
    assert_eq!(rig.umems(), before[1..]);
    resize(&mut rig).unwrap();
    assert_eq!(rig.umems().len(), 2);
    rig.firmware.destroy_cq(cqn).unwrap();
    assert_eq!(rig.umems(), []);
}

/// Commands that destroy queue pairs, SQs and RQs.
const ENDS: [(Kind, CmdOpcode); 3] = [
    (Kind::Qp, CmdOpcode::DESTROY_QP),
    (Kind::Sq, CmdOpcode::DESTROY_SQ),
    (Kind::Rq, CmdOpcode::DESTROY_RQ),
];

/// A device counts the kinds apart. Each has its memory until its own end.
#[test]
fn queues_of_three_kinds_may_have_one_number() {
    for first in 0..ENDS.len() {
        let mut rig = Rig::new();
        let number = rig.create(Kind::Qp).unwrap();
        assert_eq!([Kind::Sq, Kind::Rq].map(|kind| rig.create(kind)), [Ok(number); 2]);
        for at in 0..ENDS.len() {
            let (kind, end) = ENDS[(first + at) % ENDS.len()];
            assert_eq!(rig.umems().len(), 2 * (ENDS.len() - at), "{kind:?}");
            let before = rig.fake.count(end);
            rig.destroy(kind, number).unwrap();
            assert_eq!(rig.fake.count(end), before + 1, "{kind:?}");
        }
        assert_eq!(rig.umems(), []);
    }
}

/// The memory of a queue that the firmware keeps is taken back alone.
#[test]
fn a_queue_is_forsaken_by_its_kind() {
    for (kind, _) in ENDS {
        let mut rig = Rig::new();
        let number = ENDS.map(|(kind, _)| rig.create(kind).unwrap())[0];
        rig.fake.twist(0, REFUSAL);
        assert!(rig.destroy(kind, number).is_err());
        assert_eq!(rig.umems().len(), 6, "{kind:?}");
        rig.firmware.forsake(noun(kind), number);
        assert_eq!(rig.umems().len(), 4, "{kind:?}");
        for (other, _) in ENDS.into_iter().filter(|(other, _)| *other != kind) {
            rig.destroy(other, number).unwrap();
        }
        assert_eq!(rig.umems(), [], "{kind:?}");
    }
}

/// Queues in areas, which need no umem.
#[test]
fn a_number_that_is_given_twice_in_areas_fails_the_device() {
    for kind in KINDS {
        let mut rig = Rig::new();
        let area = rig.dma.area(16384).unwrap();
        let at = area.as_ptr().expose_provenance() as u64;
        let number = rig.create_at(kind, at, at + RECORD).unwrap();
        rig.destroy(kind, number).unwrap();
        let number = rig.create_at(kind, at, at + RECORD).unwrap();
        rig.repeat(kind, number);
        assert_eq!(rig.create_at(kind, at, at + RECORD), Err(HcaError::Dead), "{kind:?}");
    }
}

/// A device that gives a number twice would keep the memory of one queue.
#[test]
fn a_number_that_is_given_twice_fails_the_device() {
    for kind in KINDS {
        let mut rig = Rig::new();
        let number = rig.create(kind).unwrap();
        rig.repeat(kind, number);
        assert_eq!(rig.create(kind), Err(HcaError::Dead));
        assert_eq!(rig.umems().len(), 2, "{kind:?}");
        rig.firmware.forsake(noun(kind), number);
        assert_eq!(rig.umems(), [], "{kind:?}");
    }
}
