//! Queues of a raw packet QP (`modify_raw_packet_qp` and `query_raw_packet_qp_state` in
//! `hw/mlx5/qp.c`).

use nix::errno::Errno;

use crate::backend::context::{QpAttrs, QpState, QpTransition};
use crate::backend::error::errno;
use crate::backend::number::{Qpn, Queue};
use crate::kernel::state::device::Device;

/// The device's send queue and receive queue of a raw packet QP, and the TIR.
#[derive(Debug)]
pub(crate) struct RawQueues {
    pub(crate) sqn: Option<Qpn>,
    pub(crate) rqn: Option<Qpn>,
    /// Object that sends the send queue's packets. DEVX names it.
    pub(crate) tis: Option<u32>,
    /// Destination of flow rules. Present with a receive queue or an RQ table.
    pub(crate) tir: Option<u32>,
    /// State set by the last modify.
    pub(crate) state: QpState,
    /// Port that the transition to INIT named; 0 before.
    pub(crate) port: u8,
}

impl RawQueues {
    /// A QP without queues: its TIR leads to a table of work queues.
    pub(crate) fn spread(tir: u32) -> Self {
        Self { sqn: None, rqn: None, tis: None, tir: Some(tir), state: QpState::Reset, port: 0 }
    }

    /// True if the QP only spreads packets over work queues. It has no state then.
    pub(crate) fn is_spread(&self) -> bool {
        (self.sqn, self.rqn) == (None, None)
    }

    /// The receive queue, and the send queue.
    pub(crate) fn queues(&self) -> [Option<Queue>; 2] {
        [self.rqn.map(Queue::Rq), self.sqn.map(Queue::Sq)]
    }

    /// Destroys the queues. No later command could destroy one that the device keeps, so that its
    /// memory is taken from the device.
    pub(crate) fn destroy(&self, device: &mut Device) {
        let steering = device.hca.steering();
        if let Some(tir) = self.tir {
            let _ = steering.remove_tir(tir);
        }
        for queue in self.queues().into_iter().flatten() {
            if device.hca.destroy_qp(queue).is_err() {
                device.hca.forsake(queue.into(), queue.number().0);
            }
        }
    }

    /// State of the QP (`sqrq_state_to_qp_state`): each queue may have gone to error independently.
    pub(crate) fn state(&self, device: &Device) -> QpState {
        let failed = |queue: Option<Queue>| {
            let state = queue.and_then(|queue| device.hca.query_qp(queue).ok());
            state.is_some_and(|(state, _)| state == QpState::Err)
        };
        let [receives, sends] = self.queues();
        match (failed(receives), failed(sends)) {
            (true, true) => QpState::Err,
            (true, false) if sends.is_none() => QpState::Err,
            (false, true) if receives.is_none() => QpState::Err,
            (false, true) => QpState::Sqe,
            _ => self.state,
        }
    }

    /// Applies a transition of the QP to its queues: the receive queue works from INIT on, the send
    /// queue in RTS.
    ///
    /// # Errors
    ///
    /// The firmware's errors.
    pub(crate) fn modify(&self, device: &mut Device, to: QpTransition) -> Result<(), Errno> {
        use QpTransition::{InitToRtr, RstToInit, RtrToRts, ToErr, ToRst};
        let (receives, sends): (&[_], &[_]) = match to {
            RstToInit => (&[RstToInit, InitToRtr], &[]),
            RtrToRts => (&[], &[RstToInit, InitToRtr, RtrToRts]),
            ToErr => (&[ToErr], &[ToErr]),
            ToRst => (&[ToRst], &[ToRst]),
            _ => (&[], &[]),
        };
        for (queue, steps) in self.queues().into_iter().zip([receives, sends]) {
            for (queue, step) in
                queue.into_iter().flat_map(|queue| steps.iter().map(move |s| (queue, s)))
            {
                device.hca.modify_qp(queue, *step, &QpAttrs::default()).map_err(errno)?;
            }
        }
        Ok(())
    }
}
