//! Attribute changes of a working queue pair: in RTS, in SQD, and on the way out of SQD and SQE.
//!
//! A field that is `None` stays unchanged. Attributes that each transport may change in each state:
//! IBTA vol 1, 11.2.5.2, table 92; kernel `verbs.c`, `qp_state_table`.

use uverbs_kernel_abi::qp as abi;

use super::transition::sealed;
use super::{AccessFlags, AckTimeout, Path, PathMigration, QpState, RnrTimer, Transition};
use crate::error::Error;

const MODIFY_QP: &str = "modify_qp";

/// Alternate path to the peer, to which a connection can migrate. InfiniBand only: the kernel
/// rejects it on RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AlternatePath {
    /// Port, from 1.
    pub port: u8,
    /// Index into that port's P_Key table.
    pub pkey_index: u16,
    /// Address vector.
    pub path: Path,
    /// Acknowledgement timeout on the alternate path.
    pub timeout: AckTimeout,
}

/// RTS to RTS, or SQD to RTS, of RC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RcChange {
    /// Access rights granted to the peer.
    pub access: Option<AccessFlags>,
    /// RNR timer: time that the peer waits before a retry if no receive is posted.
    pub min_rnr_timer: Option<RnrTimer>,
    /// Alternate path to the peer.
    pub alternate: Option<AlternatePath>,
    /// Path migration state to set.
    pub migration: Option<PathMigration>,
}

/// RTS to RTS, or SQD to RTS, of UC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UcChange {
    /// Access rights granted to the peer.
    pub access: Option<AccessFlags>,
    /// Alternate path to the peer.
    pub alternate: Option<AlternatePath>,
    /// Path migration state to set.
    pub migration: Option<PathMigration>,
}

/// RTS to RTS, or SQD to RTS, of UD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UdChange {
    /// Q_Key that an incoming datagram must carry.
    pub qkey: Option<u32>,
}

/// RTS to SQD: the device finishes sends that it has begun and holds back the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DrainAttr {
    /// Requests an asynchronous event once the send queue is drained.
    pub notify: bool,
}

/// SQD to SQD, of RC: the path, and all attributes of INIT to RTS except the peer's QP number and
/// the PSNs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RcDrainedChange {
    /// Port, from 1.
    pub port: Option<u8>,
    /// Index into the port's P_Key table.
    pub pkey_index: Option<u16>,
    /// Access rights granted to the peer.
    pub access: Option<AccessFlags>,
    /// Path to the peer.
    pub path: Option<Path>,
    /// READs and atomics outstanding at the peer.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: Option<u8>,
    /// RNR timer: time that the peer waits before a retry if no receive is posted.
    pub min_rnr_timer: Option<RnrTimer>,
    /// Acknowledgement timeout.
    pub timeout: Option<AckTimeout>,
    /// Retries after a timeout or a sequence error, 0 to 7.
    pub retry_count: Option<u8>,
    /// RNR retries, 0 to 6; 7 is unlimited.
    pub rnr_retry: Option<u8>,
    /// Alternate path to the peer.
    pub alternate: Option<AlternatePath>,
    /// Path migration state to set.
    pub migration: Option<PathMigration>,
}

/// SQD to SQD, of UC. InfiniBand also allows a new path here. Linux rejects it: a new path brings a
/// port along (`uverbs_cmd.c:modify_qp`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UcDrainedChange {
    /// Index into the port's P_Key table.
    pub pkey_index: Option<u16>,
    /// Access rights granted to the peer.
    pub access: Option<AccessFlags>,
    /// Alternate path to the peer.
    pub alternate: Option<AlternatePath>,
    /// Path migration state to set.
    pub migration: Option<PathMigration>,
}

/// SQD to SQD, of UD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UdDrainedChange {
    /// Index into the port's P_Key table.
    pub pkey_index: Option<u16>,
    /// Q_Key that an incoming datagram must carry.
    pub qkey: Option<u32>,
}

/// SQE to RTS, of UC: the send queue continues after a failed send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UcRecovery {
    /// Access rights granted to the peer.
    pub access: Option<AccessFlags>,
}

/// SQE to RTS, of UD: the send queue continues after a failed send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UdRecovery {
    /// Q_Key that an incoming datagram must carry.
    pub qkey: Option<u32>,
}

/// A bare change of state, to which attributes are added.
pub(super) struct Request(pub(super) abi::ib_uverbs_modify_qp);

impl Request {
    pub(super) fn new() -> Self {
        Self(abi::ib_uverbs_modify_qp { attr_mask: abi::IB_QP_STATE, ..Default::default() })
    }

    /// Adds an attribute if it is `Some`.
    fn with<V>(
        mut self,
        value: Option<V>,
        bit: u32,
        set: impl FnOnce(&mut abi::ib_uverbs_modify_qp, V),
    ) -> Self {
        if let Some(value) = value {
            self.0.attr_mask |= bit;
            set(&mut self.0, value);
        }
        self
    }

    fn access(self, access: Option<AccessFlags>) -> Self {
        self.with(access, abi::IB_QP_ACCESS_FLAGS, |qp, access| qp.qp_access_flags = access.bits())
    }

    fn qkey(self, qkey: Option<u32>) -> Self {
        self.with(qkey, abi::IB_QP_QKEY, |qp, qkey| qp.qkey = qkey)
    }

    fn pkey_index(self, index: Option<u16>) -> Self {
        self.with(index, abi::IB_QP_PKEY_INDEX, |qp, index| qp.pkey_index = index)
    }

    pub(super) fn min_rnr_timer(self, timer: Option<RnrTimer>) -> Self {
        self.with(timer, abi::IB_QP_MIN_RNR_TIMER, |qp, timer| qp.min_rnr_timer = timer.code())
    }

    fn migration(self, state: Option<PathMigration>) -> Self {
        self.with(state, abi::IB_QP_PATH_MIG_STATE, |qp, state| qp.path_mig_state = state.raw())
    }

    fn alternate(self, alternate: Option<AlternatePath>) -> Self {
        self.with(alternate, abi::IB_QP_ALT_PATH, |qp, alternate| {
            qp.alt_port_num = alternate.port;
            qp.alt_pkey_index = alternate.pkey_index;
            qp.alt_timeout = alternate.timeout.code();
            qp.alt_dest = alternate.path.to_dest(alternate.port);
        })
    }

    /// Names SQE as the current state: the device entered it, and the kernel does not know.
    fn out_of_sqe(mut self) -> Self {
        self.0.attr_mask |= abi::IB_QP_CUR_STATE;
        self.0.cur_qp_state = QpState::SendQueueError.raw() as u8;
        self
    }
}

fn check_alternate(alternate: Option<&AlternatePath>) -> Result<(), Error> {
    alternate.map_or(Ok(()), |alternate| alternate.path.check(MODIFY_QP))
}

/// Start states of a change to RTS: RTS and SQD.
const WORKING: &[QpState] = &[QpState::ReadyToSend, QpState::SendQueueDrained];
/// SQE as seen from the last state that was set: the device enters SQE itself, so that is RTS.
const FAILED: &[QpState] = &[QpState::ReadyToSend, QpState::SendQueueError];

impl sealed::Sealed for RcChange {}

impl Transition for RcChange {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = WORKING;

    fn check(&self) -> Result<(), Error> {
        check_alternate(self.alternate.as_ref())
    }

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        let request = Request::new().access(self.access).min_rnr_timer(self.min_rnr_timer);
        request.alternate(self.alternate).migration(self.migration).0
    }
}

impl sealed::Sealed for UcChange {}

impl Transition for UcChange {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = WORKING;

    fn check(&self) -> Result<(), Error> {
        check_alternate(self.alternate.as_ref())
    }

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        let request = Request::new().access(self.access);
        request.alternate(self.alternate).migration(self.migration).0
    }
}

impl sealed::Sealed for UdChange {}

impl Transition for UdChange {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = WORKING;

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        Request::new().qkey(self.qkey).0
    }
}

impl sealed::Sealed for DrainAttr {}

impl Transition for DrainAttr {
    const TO: QpState = QpState::SendQueueDrained;
    const FROM: &'static [QpState] = &[QpState::ReadyToSend];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        let notify = self.notify.then_some(1);
        let bit = abi::IB_QP_EN_SQD_ASYNC_NOTIFY;
        Request::new().with(notify, bit, |qp, on| qp.en_sqd_async_notify = on).0
    }
}

impl sealed::Sealed for RcDrainedChange {}

impl Transition for RcDrainedChange {
    const TO: QpState = QpState::SendQueueDrained;
    const FROM: &'static [QpState] = &[QpState::SendQueueDrained];

    fn check(&self) -> Result<(), Error> {
        self.path.map_or(Ok(()), |path| path.check(MODIFY_QP))?;
        Error::limit(MODIFY_QP, "retry count", self.retry_count.unwrap_or(0).into(), 7)?;
        Error::limit(MODIFY_QP, "RNR retry count", self.rnr_retry.unwrap_or(0).into(), 7)?;
        check_alternate(self.alternate.as_ref())
    }

    fn command(&self, port: u8) -> abi::ib_uverbs_modify_qp {
        let port = self.port.unwrap_or(port);
        let request = Request::new().access(self.access).pkey_index(self.pkey_index);
        let request = request.min_rnr_timer(self.min_rnr_timer);
        request
            .with(self.port, abi::IB_QP_PORT, |qp, port| qp.port_num = port)
            .with(self.path, abi::IB_QP_AV, |qp, path| qp.dest = path.to_dest(port))
            .with(self.max_rd_atomic, abi::IB_QP_MAX_QP_RD_ATOMIC, |qp, most| {
                qp.max_rd_atomic = most;
            })
            .with(self.max_dest_rd_atomic, abi::IB_QP_MAX_DEST_RD_ATOMIC, |qp, most| {
                qp.max_dest_rd_atomic = most;
            })
            .with(self.timeout, abi::IB_QP_TIMEOUT, |qp, timeout| qp.timeout = timeout.code())
            .with(self.retry_count, abi::IB_QP_RETRY_CNT, |qp, count| qp.retry_cnt = count)
            .with(self.rnr_retry, abi::IB_QP_RNR_RETRY, |qp, count| qp.rnr_retry = count)
            .alternate(self.alternate)
            .migration(self.migration)
            .0
    }
}

impl sealed::Sealed for UcDrainedChange {}

impl Transition for UcDrainedChange {
    const TO: QpState = QpState::SendQueueDrained;
    const FROM: &'static [QpState] = &[QpState::SendQueueDrained];

    fn check(&self) -> Result<(), Error> {
        check_alternate(self.alternate.as_ref())
    }

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        let request = Request::new().access(self.access).pkey_index(self.pkey_index);
        request.alternate(self.alternate).migration(self.migration).0
    }
}

impl sealed::Sealed for UdDrainedChange {}

impl Transition for UdDrainedChange {
    const TO: QpState = QpState::SendQueueDrained;
    const FROM: &'static [QpState] = &[QpState::SendQueueDrained];

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        Request::new().pkey_index(self.pkey_index).qkey(self.qkey).0
    }
}

impl sealed::Sealed for UcRecovery {}

impl Transition for UcRecovery {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = FAILED;

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        Request::new().access(self.access).out_of_sqe().0
    }
}

impl sealed::Sealed for UdRecovery {}

impl Transition for UdRecovery {
    const TO: QpState = QpState::ReadyToSend;
    const FROM: &'static [QpState] = FAILED;

    fn command(&self, _: u8) -> abi::ib_uverbs_modify_qp {
        Request::new().qkey(self.qkey).out_of_sqe().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Path =
        Path { dlid: 7, grh: None, service_level: 3, src_path_bits: 0, static_rate: 0 };
    const ALTERNATE: AlternatePath =
        AlternatePath { port: 2, pkey_index: 5, path: PATH, timeout: AckTimeout::DEFAULT };

    /// Each attribute alone is its bit, and no more than the state without any.
    #[test]
    fn what_is_not_given_is_not_asked_for() {
        let access = Some(AccessFlags::REMOTE_READ);
        let migration = Some(PathMigration::Rearm);
        let alone = abi::IB_QP_STATE;
        let mask = |command: abi::ib_uverbs_modify_qp| command.attr_mask;
        assert_eq!(mask(RcChange::default().command(1)), alone);
        assert_eq!(mask(UcChange::default().command(1)), alone);
        assert_eq!(mask(UdChange::default().command(1)), alone);
        assert_eq!(mask(RcDrainedChange::default().command(1)), alone);
        assert_eq!(mask(UcDrainedChange::default().command(1)), alone);
        assert_eq!(mask(UdDrainedChange::default().command(1)), alone);
        assert_eq!(mask(DrainAttr::default().command(1)), alone);
        let rc = RcChange { access, migration, alternate: Some(ALTERNATE), ..Default::default() };
        let rc = rc.command(1);
        let bits = abi::IB_QP_ACCESS_FLAGS | abi::IB_QP_PATH_MIG_STATE | abi::IB_QP_ALT_PATH;
        assert_eq!(rc.attr_mask, alone | bits);
        assert_eq!((rc.alt_port_num, rc.alt_dest.port_num, rc.alt_dest.dlid), (2, 2, 7));
        assert_eq!((rc.alt_pkey_index, rc.alt_timeout, rc.path_mig_state), (5, 14, 1));
        let drain = DrainAttr { notify: true }.command(1);
        assert_eq!(drain.attr_mask, alone | abi::IB_QP_EN_SQD_ASYNC_NOTIFY);
        let recovery = UdRecovery { qkey: Some(9) }.command(1);
        assert_eq!(recovery.attr_mask, alone | abi::IB_QP_QKEY | abi::IB_QP_CUR_STATE);
        assert_eq!((recovery.cur_qp_state, recovery.qkey), (5, 9));
    }

    #[test]
    fn a_drained_path_leaves_by_the_port_that_is_named_or_was() {
        let change = RcDrainedChange { path: Some(PATH), ..Default::default() };
        assert_eq!(change.command(4).dest.port_num, 4);
        let moved = RcDrainedChange { port: Some(2), ..change }.command(4);
        assert_eq!((moved.dest.port_num, moved.port_num), (2, 2));
        let bits = abi::IB_QP_STATE | abi::IB_QP_AV | abi::IB_QP_PORT;
        assert_eq!(moved.attr_mask, bits);
    }

    #[test]
    fn what_has_no_room_is_refused_by_name() {
        let over = |what: &str, result: Result<(), Error>| {
            let error = result.unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        };
        let steep = Path { service_level: 16, ..PATH };
        let alternate = Some(AlternatePath { path: steep, ..ALTERNATE });
        over("service level", RcChange { alternate, ..Default::default() }.check());
        over("service level", UcChange { alternate, ..Default::default() }.check());
        over("service level", UcDrainedChange { alternate, ..Default::default() }.check());
        let change = RcDrainedChange::default();
        over("service level", RcDrainedChange { path: Some(steep), ..change }.check());
        over("service level", RcDrainedChange { alternate, ..change }.check());
        over("retry count", RcDrainedChange { retry_count: Some(8), ..change }.check());
        over("RNR retry count", RcDrainedChange { rnr_retry: Some(8), ..change }.check());
        assert_eq!(RcDrainedChange { rnr_retry: Some(7), ..change }.check(), Ok(()));
    }
}
