//! Changes of connected queue pairs, in the order of `c/bytes.c`: in RTS, into SQD and back, by
//! mask.
#![allow(unsafe_code, reason = "changes by mask")]

use uverbs::attr::{
    AlternatePath, DrainAttr, Path, PathMigration, QpAttrMask, RcChange, RcDrainedChange, UcChange,
    UcDrainedChange, UdChange, UdDrainedChange,
};
use uverbs::raw::RawQpAttr;
use uverbs::transport::{Drains, Rc, Transport, Uc, Ud, XrcIni};
use uverbs::xrc::XrcTarget;
use uverbs::{AccessFlags, AckTimeout, Mlx5, QpState, QueuePair, RnrTimer};

/// Access rights set in RTS.
const READ: Option<AccessFlags> = Some(AccessFlags::REMOTE_READ);
/// Access rights set with the send queue drained.
const WRITE: Option<AccessFlags> = Some(AccessFlags::REMOTE_WRITE);
const REARM: Option<PathMigration> = Some(PathMigration::Rearm);
const MIGRATED: Option<PathMigration> = Some(PathMigration::Migrated);

/// Alternate path to the peer.
fn alternate(way: Path) -> Option<AlternatePath> {
    let grh = way.grh.map(|grh| uverbs::attr::GlobalRoute { hop_limit: 7, ..grh });
    let path = Path { service_level: 1, grh, ..way };
    let timeout = AckTimeout::from_code(15).unwrap();
    Some(AlternatePath { port: 1, pkey_index: 0, path, timeout })
}

/// Drains the send queue (SQD), changes the queue pair, and resumes.
fn drain<T: Drains>(
    qp: &mut QueuePair<Mlx5, T>,
    drained: &T::DrainedChange,
    back: &T::Change,
    phase: &impl Fn(&str),
) {
    phase("drain");
    qp.drain_sends(&DrainAttr { notify: true }).unwrap();
    phase("change_drained");
    qp.change_drained(drained).unwrap();
    phase("resume");
    qp.resume(back).unwrap();
}

/// Modifies by mask: attributes that the transport has, and a rate limit. Raw packet queue pairs
/// alone have one, and this device supports none.
pub(crate) fn by_mask<T: Transport>(
    qp: &mut QueuePair<Mlx5, T>,
    mask: Option<QpAttrMask>,
    phase: &impl Fn(&str),
) {
    phase("by_mask");
    let mut attr = RawQpAttr::default();
    attr.base.qp_state = QpState::ReadyToSend.raw() as u8;
    if let Some(mask) = mask {
        attr.base.cur_qp_state = attr.base.qp_state;
        let has = |bit, value| if mask.contains(bit) { value } else { 0 };
        attr.base.qkey = has(QpAttrMask::QKEY, 5);
        attr.base.qp_access_flags = has(QpAttrMask::ACCESS_FLAGS, AccessFlags::REMOTE_READ.bits());
        attr.base.min_rnr_timer = has(QpAttrMask::MIN_RNR_TIMER, 5) as u8;
        let mask = mask | QpAttrMask::STATE | QpAttrMask::CUR_STATE;
        // SAFETY: attributes that the queue pair has, or that a typed change may set.
        unsafe { qp.modify(&attr, mask) }.unwrap();
    }
    let mut attr = RawQpAttr { rate_limit: 1000, ..RawQpAttr::default() };
    attr.base.qp_state = QpState::ReadyToSend.raw() as u8;
    // SAFETY: a rate changes no work request.
    let rate = unsafe { qp.modify(&attr, QpAttrMask::STATE | QpAttrMask::RATE_LIMIT) };
    rate.unwrap_err();
}

pub(crate) fn of_rc(qp: &mut QueuePair<Mlx5, Rc>, way: Path, phase: &impl Fn(&str)) {
    phase("change");
    let timer = RnrTimer::from_code(5);
    let change = RcChange { access: READ, min_rnr_timer: timer, ..RcChange::default() };
    qp.change(&change).unwrap();
    phase("alternate");
    let other = RcChange { alternate: alternate(way), migration: REARM, ..RcChange::default() };
    qp.change(&other).unwrap();
    let min_rnr_timer = RnrTimer::from_code(6);
    let drained = RcDrainedChange {
        port: Some(1),
        pkey_index: Some(0),
        access: WRITE,
        path: Some(way),
        max_rd_atomic: Some(2),
        max_dest_rd_atomic: Some(3),
        min_rnr_timer,
        timeout: AckTimeout::from_code(16),
        retry_count: Some(5),
        rnr_retry: Some(4),
        alternate: None,
        migration: MIGRATED,
    };
    let back = RcChange { access: WRITE, min_rnr_timer, ..RcChange::default() };
    drain(qp, &drained, &back, phase);
    by_mask(qp, Some(QpAttrMask::ACCESS_FLAGS | QpAttrMask::MIN_RNR_TIMER), phase);
}

/// Changes that UC and XRC initiators allow.
fn of_a_connection<T: Transport<Change = UcChange>>(
    qp: &mut QueuePair<Mlx5, T>,
    way: Path,
    phase: &impl Fn(&str),
) {
    phase("change");
    qp.change(&UcChange { access: READ, ..UcChange::default() }).unwrap();
    phase("alternate");
    let other = UcChange { alternate: alternate(way), migration: REARM, access: None };
    qp.change(&other).unwrap();
}

pub(crate) fn of_uc(qp: &mut QueuePair<Mlx5, Uc>, way: Path, phase: &impl Fn(&str)) {
    of_a_connection(qp, way, phase);
    let (pkey_index, migration) = (Some(0), MIGRATED);
    let drained = UcDrainedChange { pkey_index, access: WRITE, alternate: None, migration };
    drain(qp, &drained, &UcChange { access: WRITE, ..UcChange::default() }, phase);
    by_mask(qp, Some(QpAttrMask::ACCESS_FLAGS), phase);
}

pub(crate) fn of_xrc(qp: &mut QueuePair<Mlx5, XrcIni>, way: Path, phase: &impl Fn(&str)) {
    of_a_connection(qp, way, phase);
    by_mask(qp, Some(QpAttrMask::ACCESS_FLAGS), phase);
}

pub(crate) fn of_target(target: &mut XrcTarget<Mlx5>, way: Path, phase: &impl Fn(&str)) {
    phase("change_target");
    let timer = RnrTimer::from_code(5);
    let change = RcChange { access: READ, min_rnr_timer: timer, ..RcChange::default() };
    target.change(&change).unwrap();
    phase("alternate");
    let other = RcChange { alternate: alternate(way), migration: REARM, ..RcChange::default() };
    target.change(&other).unwrap();
}

pub(crate) fn of_ud(qp: &mut QueuePair<Mlx5, Ud>, phase: &impl Fn(&str)) {
    phase("change");
    qp.change(&UdChange { qkey: Some(5) }).unwrap();
    let drained = UdDrainedChange { pkey_index: Some(0), qkey: Some(6) };
    drain(qp, &drained, &UdChange { qkey: Some(6) }, phase);
    by_mask(qp, Some(QpAttrMask::QKEY), phase);
}
