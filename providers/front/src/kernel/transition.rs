//! Allowed state changes of a QP (`ib_modify_qp_is_ok` and its table in
//! `drivers/infiniband/core/verbs.c`, `optab` in `__mlx5_ib_modify_qp`).

use uverbs_kernel_abi::qp::{
    IB_QP_ACCESS_FLAGS, IB_QP_ALT_PATH, IB_QP_AV, IB_QP_CUR_STATE, IB_QP_DEST_QPN,
    IB_QP_EN_SQD_ASYNC_NOTIFY, IB_QP_MAX_DEST_RD_ATOMIC, IB_QP_MAX_QP_RD_ATOMIC,
    IB_QP_MIN_RNR_TIMER, IB_QP_PATH_MIG_STATE, IB_QP_PATH_MTU, IB_QP_PKEY_INDEX, IB_QP_PORT,
    IB_QP_QKEY, IB_QP_RATE_LIMIT, IB_QP_RETRY_CNT, IB_QP_RNR_RETRY, IB_QP_RQ_PSN, IB_QP_SQ_PSN,
    IB_QP_STATE, IB_QP_TIMEOUT, IB_UVERBS_QPT_DRIVER, IB_UVERBS_QPT_RAW_PACKET, IB_UVERBS_QPT_UC,
    IB_UVERBS_QPT_UD, IB_UVERBS_QPT_XRC_INI, IB_UVERBS_QPT_XRC_TGT,
};

use crate::backend::context::{QpState, QpTransition};

/// Start state, end state, required attributes, optional attributes.
type Row = (QpState, QpState, u32, u32);

/// Transitions of a UC QP.
const UC: &[Row] = &[
    (QpState::Reset, QpState::Init, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, 0),
    (QpState::Init, QpState::Init, 0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS),
    (
        QpState::Init,
        QpState::Rtr,
        IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN,
        IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX,
    ),
    (QpState::Rtr, QpState::Rts, IB_QP_SQ_PSN, UC_RTS_OPTIONAL),
    (QpState::Rts, QpState::Rts, 0, UC_RTS_OPTIONAL),
    (QpState::Rts, QpState::Sqd, 0, IB_QP_EN_SQD_ASYNC_NOTIFY),
    (QpState::Sqd, QpState::Rts, 0, UC_RTS_OPTIONAL),
    (
        QpState::Sqd,
        QpState::Sqd,
        0,
        IB_QP_AV | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PATH_MIG_STATE,
    ),
    (QpState::Sqe, QpState::Rts, 0, IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS),
];

const UC_RTS_OPTIONAL: u32 =
    IB_QP_CUR_STATE | IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE;

/// Transitions of a UD QP.
const UD: &[Row] = &[
    (QpState::Reset, QpState::Init, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY, 0),
    (QpState::Init, QpState::Init, 0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY),
    (QpState::Init, QpState::Rtr, 0, IB_QP_PKEY_INDEX | IB_QP_QKEY),
    (QpState::Rtr, QpState::Rts, IB_QP_SQ_PSN, IB_QP_CUR_STATE | IB_QP_QKEY),
    (QpState::Rts, QpState::Rts, 0, IB_QP_CUR_STATE | IB_QP_QKEY),
    (QpState::Rts, QpState::Sqd, 0, IB_QP_EN_SQD_ASYNC_NOTIFY),
    (QpState::Sqd, QpState::Rts, 0, IB_QP_CUR_STATE | IB_QP_QKEY),
    (QpState::Sqd, QpState::Sqd, 0, IB_QP_PKEY_INDEX | IB_QP_QKEY),
    (QpState::Sqe, QpState::Rts, 0, IB_QP_CUR_STATE | IB_QP_QKEY),
];

/// Transitions of an RC QP.
const RC: &[Row] = &[
    (QpState::Reset, QpState::Init, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, 0),
    (QpState::Init, QpState::Init, 0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS),
    (
        QpState::Init,
        QpState::Rtr,
        IB_QP_AV
            | IB_QP_PATH_MTU
            | IB_QP_DEST_QPN
            | IB_QP_RQ_PSN
            | IB_QP_MAX_DEST_RD_ATOMIC
            | IB_QP_MIN_RNR_TIMER,
        IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX,
    ),
    (
        QpState::Rtr,
        QpState::Rts,
        IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC,
        RTS_OPTIONAL,
    ),
    (QpState::Rts, QpState::Rts, 0, RTS_OPTIONAL),
    (QpState::Rts, QpState::Sqd, 0, IB_QP_EN_SQD_ASYNC_NOTIFY),
    (QpState::Sqd, QpState::Rts, 0, RTS_OPTIONAL),
    (
        QpState::Sqd,
        QpState::Sqd,
        0,
        IB_QP_PORT
            | IB_QP_AV
            | IB_QP_TIMEOUT
            | IB_QP_RETRY_CNT
            | IB_QP_RNR_RETRY
            | IB_QP_MAX_QP_RD_ATOMIC
            | IB_QP_MAX_DEST_RD_ATOMIC
            | IB_QP_ALT_PATH
            | IB_QP_ACCESS_FLAGS
            | IB_QP_PKEY_INDEX
            | IB_QP_MIN_RNR_TIMER
            | IB_QP_PATH_MIG_STATE,
    ),
];

const RTS_OPTIONAL: u32 = IB_QP_CUR_STATE
    | IB_QP_ALT_PATH
    | IB_QP_ACCESS_FLAGS
    | IB_QP_MIN_RNR_TIMER
    | IB_QP_PATH_MIG_STATE;

/// Transitions of a raw packet QP: all exist, with few attributes.
const RAW_PACKET: &[Row] = &[
    (QpState::Reset, QpState::Init, IB_QP_PORT, 0),
    (QpState::Init, QpState::Init, 0, 0),
    (QpState::Init, QpState::Rtr, 0, 0),
    (QpState::Rtr, QpState::Rts, 0, IB_QP_RATE_LIMIT),
    (QpState::Rts, QpState::Rts, 0, IB_QP_RATE_LIMIT),
    (QpState::Rts, QpState::Sqd, 0, 0),
    (QpState::Sqd, QpState::Rts, 0, 0),
    (QpState::Sqd, QpState::Sqd, 0, 0),
    (QpState::Sqe, QpState::Rts, 0, 0),
];

/// Transitions of a DC initiator (`modify_dci_qp_is_ok` in `hw/mlx5/qp.c`).
const DCI: &[Row] = &[
    (QpState::Reset, QpState::Init, IB_QP_PKEY_INDEX | IB_QP_PORT, 0),
    (QpState::Init, QpState::Init, 0, IB_QP_PKEY_INDEX | IB_QP_PORT),
    (QpState::Init, QpState::Rtr, IB_QP_PATH_MTU, IB_QP_PKEY_INDEX | IB_QP_AV),
    (
        QpState::Rtr,
        QpState::Rts,
        IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC | IB_QP_SQ_PSN,
        IB_QP_MIN_RNR_TIMER,
    ),
    (QpState::Rts, QpState::Rts, 0, IB_QP_MIN_RNR_TIMER),
];

/// Transitions of an XRC initiator, without attributes of a responder.
const XRC_INI: &[Row] = &[
    (QpState::Reset, QpState::Init, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, 0),
    (QpState::Init, QpState::Init, 0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS),
    (
        QpState::Init,
        QpState::Rtr,
        IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN,
        IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX,
    ),
    (
        QpState::Rtr,
        QpState::Rts,
        IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC,
        UC_RTS_OPTIONAL,
    ),
    (QpState::Rts, QpState::Rts, 0, UC_RTS_OPTIONAL),
    (QpState::Rts, QpState::Sqd, 0, IB_QP_EN_SQD_ASYNC_NOTIFY),
    (QpState::Sqd, QpState::Rts, 0, UC_RTS_OPTIONAL),
    (
        QpState::Sqd,
        QpState::Sqd,
        0,
        IB_QP_PORT
            | IB_QP_AV
            | IB_QP_TIMEOUT
            | IB_QP_RETRY_CNT
            | IB_QP_RNR_RETRY
            | IB_QP_MAX_QP_RD_ATOMIC
            | IB_QP_ALT_PATH
            | IB_QP_ACCESS_FLAGS
            | IB_QP_PKEY_INDEX
            | IB_QP_PATH_MIG_STATE,
    ),
];

/// Transitions of an XRC target, without attributes of a requester.
const XRC_TGT: &[Row] = &[
    (QpState::Reset, QpState::Init, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, 0),
    (QpState::Init, QpState::Init, 0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS),
    (
        QpState::Init,
        QpState::Rtr,
        IB_QP_AV
            | IB_QP_PATH_MTU
            | IB_QP_DEST_QPN
            | IB_QP_RQ_PSN
            | IB_QP_MAX_DEST_RD_ATOMIC
            | IB_QP_MIN_RNR_TIMER,
        IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX,
    ),
    (QpState::Rtr, QpState::Rts, IB_QP_TIMEOUT | IB_QP_SQ_PSN, RTS_OPTIONAL),
    (QpState::Rts, QpState::Rts, 0, RTS_OPTIONAL),
    (QpState::Rts, QpState::Sqd, 0, IB_QP_EN_SQD_ASYNC_NOTIFY),
    (QpState::Sqd, QpState::Rts, 0, RTS_OPTIONAL),
    (
        QpState::Sqd,
        QpState::Sqd,
        0,
        IB_QP_PORT
            | IB_QP_AV
            | IB_QP_TIMEOUT
            | IB_QP_MAX_DEST_RD_ATOMIC
            | IB_QP_ALT_PATH
            | IB_QP_ACCESS_FLAGS
            | IB_QP_PKEY_INDEX
            | IB_QP_MIN_RNR_TIMER
            | IB_QP_PATH_MIG_STATE,
    ),
];

/// Checks a modify of a QP of kind `IB_UVERBS_QPT_*` (`ib_modify_qp_is_ok`).
pub(crate) fn is_ok(kind: u8, from: QpState, to: QpState, mask: u32) -> bool {
    let rows = match kind {
        IB_UVERBS_QPT_UC => UC,
        IB_UVERBS_QPT_UD => UD,
        IB_UVERBS_QPT_XRC_INI => XRC_INI,
        IB_UVERBS_QPT_XRC_TGT => XRC_TGT,
        IB_UVERBS_QPT_RAW_PACKET => RAW_PACKET,
        // A DC initiator's mask must always include the state.
        IB_UVERBS_QPT_DRIVER if mask & IB_QP_STATE == 0 => return false,
        IB_UVERBS_QPT_DRIVER => DCI,
        _ => RC,
    };
    if mask & IB_QP_CUR_STATE != 0
        && !matches!(from, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    {
        return false;
    }
    let (required, optional) = match (from, to) {
        (_, QpState::Reset) => (0, 0),
        // Not from RESET, where no work can fail.
        (QpState::Reset, QpState::Err) => return false,
        (_, QpState::Err) => (0, 0),
        _ => match rows.iter().find(|row| (row.0, row.1) == (from, to)) {
            Some(&(_, _, required, optional)) => (required, optional),
            None => return false,
        },
    };
    mask & required == required && mask & !(required | optional | IB_QP_STATE) == 0
}

/// Firmware command of a transition. `None` if mlx5 has none although the table allows it: its
/// `optab` lacks transitions into SQD and within SQD.
pub(crate) fn command(from: QpState, to: QpState) -> Option<QpTransition> {
    Some(match (from, to) {
        (_, QpState::Reset) => QpTransition::ToRst,
        (_, QpState::Err) => QpTransition::ToErr,
        (QpState::Reset, QpState::Init) => QpTransition::RstToInit,
        (QpState::Init, QpState::Init) => QpTransition::InitToInit,
        (QpState::Init, QpState::Rtr) => QpTransition::InitToRtr,
        (QpState::Rtr, QpState::Rts) => QpTransition::RtrToRts,
        (QpState::Rts, QpState::Rts) => QpTransition::RtsToRts,
        (QpState::Sqd, QpState::Rts) => QpTransition::SqdToRts,
        (QpState::Sqe, QpState::Rts) => QpTransition::SqeToRts,
        _ => return None,
    })
}

/// Decodes `IB_QPS_*`.
pub(crate) fn state(code: u8) -> Option<QpState> {
    Some(match code {
        0 => QpState::Reset,
        1 => QpState::Init,
        2 => QpState::Rtr,
        3 => QpState::Rts,
        4 => QpState::Sqd,
        5 => QpState::Sqe,
        6 => QpState::Err,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use uverbs_kernel_abi::qp::IB_UVERBS_QPT_RC;

    use super::*;

    #[test]
    fn required_attributes_are_required_and_others_refused() {
        let tables = [
            (IB_UVERBS_QPT_RC, RC),
            (IB_UVERBS_QPT_UC, UC),
            (IB_UVERBS_QPT_UD, UD),
            (IB_UVERBS_QPT_XRC_INI, XRC_INI),
            (IB_UVERBS_QPT_XRC_TGT, XRC_TGT),
            (IB_UVERBS_QPT_DRIVER, DCI),
            (IB_UVERBS_QPT_RAW_PACKET, RAW_PACKET),
        ];
        for (kind, row) in tables.iter().flat_map(|(of, rows)| rows.iter().map(|row| (*of, row))) {
            let &(from, to, required, optional) = row;
            let is_ok = |mask| is_ok(kind, from, to, mask);
            assert!(is_ok(required | IB_QP_STATE), "{kind} {from:?} {to:?}");
            let known = required | optional | IB_QP_STATE;
            // A DC initiator's mask must always include the state.
            let base = required | if kind == IB_UVERBS_QPT_DRIVER { IB_QP_STATE } else { 0 };
            for bit in (0..32).map(|bit| 1u32 << bit) {
                if required & bit != 0 {
                    assert!(!is_ok(base & !bit), "{kind} {from:?} {to:?} {bit:#x}");
                }
                let allowed = known & bit != 0;
                assert_eq!(is_ok(base | bit), allowed, "{kind} {from:?} {to:?} {bit:#x}");
            }
        }
    }

    #[test]
    fn ways_that_do_not_exist() {
        assert!(!is_ok(IB_UVERBS_QPT_RC, QpState::Reset, QpState::Rtr, IB_QP_STATE));
        assert!(!is_ok(IB_UVERBS_QPT_RC, QpState::Reset, QpState::Err, IB_QP_STATE));
        assert!(!is_ok(IB_UVERBS_QPT_RC, QpState::Err, QpState::Rts, IB_QP_STATE));
        assert!(!is_ok(IB_UVERBS_QPT_RC, QpState::Init, QpState::Init, IB_QP_CUR_STATE));
        assert!(is_ok(IB_UVERBS_QPT_RC, QpState::Err, QpState::Reset, IB_QP_STATE));
        assert_eq!(command(QpState::Rts, QpState::Sqd), None);
        for code in 0..=u8::MAX {
            assert_eq!(state(code).map(|state| state as u8), (code < 7).then_some(code));
        }
    }
}
