//! Which changes of a QP are allowed (`ib_modify_qp_is_ok` and its table in
//! `drivers/infiniband/core/verbs.c`, `optab` in `__mlx5_ib_modify_qp`).

use uverbs_kernel_abi::qp::{
    IB_QP_ACCESS_FLAGS, IB_QP_ALT_PATH, IB_QP_AV, IB_QP_CUR_STATE, IB_QP_DEST_QPN,
    IB_QP_EN_SQD_ASYNC_NOTIFY, IB_QP_MAX_DEST_RD_ATOMIC, IB_QP_MAX_QP_RD_ATOMIC,
    IB_QP_MIN_RNR_TIMER, IB_QP_PATH_MIG_STATE, IB_QP_PATH_MTU, IB_QP_PKEY_INDEX, IB_QP_PORT,
    IB_QP_RETRY_CNT, IB_QP_RNR_RETRY, IB_QP_RQ_PSN, IB_QP_SQ_PSN, IB_QP_STATE, IB_QP_TIMEOUT,
};

use crate::hca::{QpState, QpTransition};

/// Attributes that an RC QP must and may be given from one state to the next; `None` where there is
/// no way.
///
/// (From, to, required, optional.)
const RC: &[(QpState, QpState, u32, u32)] = &[
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

/// `ib_modify_qp_is_ok` for an RC QP.
pub(crate) fn is_ok(from: QpState, to: QpState, mask: u32) -> bool {
    if mask & IB_QP_CUR_STATE != 0
        && !matches!(from, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    {
        return false;
    }
    let (required, optional) = match (from, to) {
        (_, QpState::Reset) => (0, 0),
        // Not from RESET: there is nothing that could fail.
        (QpState::Reset, QpState::Err) => return false,
        (_, QpState::Err) => (0, 0),
        _ => match RC.iter().find(|row| (row.0, row.1) == (from, to)) {
            Some(&(_, _, required, optional)) => (required, optional),
            None => return false,
        },
    };
    mask & required == required && mask & !(required | optional | IB_QP_STATE) == 0
}

/// The firmware command for a change; `None` where mlx5 has none although the table above allows
/// it: its `optab` knows neither a way into SQD nor a change within.
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
        _ => return None,
    })
}

/// From `IB_QPS_*`.
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
    use super::*;

    #[test]
    fn required_attributes_are_required_and_others_refused() {
        for &(from, to, required, optional) in RC {
            assert!(is_ok(from, to, required | IB_QP_STATE), "{from:?} {to:?}");
            let known = required | optional | IB_QP_STATE;
            for bit in (0..32).map(|bit| 1u32 << bit) {
                if required & bit != 0 {
                    assert!(!is_ok(from, to, required & !bit), "{from:?} {to:?} {bit:#x}");
                }
                assert_eq!(
                    is_ok(from, to, required | bit),
                    known & bit != 0,
                    "{from:?} {to:?} {bit:#x}"
                );
            }
        }
    }

    #[test]
    fn ways_that_do_not_exist() {
        assert!(!is_ok(QpState::Reset, QpState::Rtr, IB_QP_STATE));
        assert!(!is_ok(QpState::Reset, QpState::Err, IB_QP_STATE));
        assert!(!is_ok(QpState::Err, QpState::Rts, IB_QP_STATE));
        assert!(!is_ok(QpState::Init, QpState::Init, IB_QP_CUR_STATE));
        assert!(is_ok(QpState::Err, QpState::Reset, IB_QP_STATE));
        assert_eq!(command(QpState::Rts, QpState::Sqd), None);
        for code in 0..=u8::MAX {
            assert_eq!(state(code).map(|state| state as u8), (code < 7).then_some(code));
        }
    }
}
