//! Queue pairs.

use crate::hca::device::Hca;
use crate::hca::state::keys::Segment;
use crate::hca::state::qp::{FIRST_QPN, LAST_QPN, Qp, check_context};
use uverbs_front::backend::context::{Access, QpAttrs, QpContext, QpState, QpTransition, Service};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::{Key, Qpn};

impl Hca {
    /// Creates a QP in RESET. Returns the QPN, from 0x40.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_qp` or a ring limit; [`HcaError::BadHandle`] for a CQ that
    /// does not exist; [`HcaError::BadParam`] for rings that do not fit their regions and for
    /// features that the device lacks.
    pub(crate) fn create_qp(&mut self, ctx: QpContext) -> Result<Qpn, HcaError> {
        check_context(&ctx, &self.common.config)?;
        self.check_room()?;
        self.common.cqs.get(ctx.recv_cq)?;
        let special = ctx.special.map(|number| number as usize);
        match special.map(|at| self.special.get(at)) {
            None | Some(Some(None)) => {}
            Some(Some(Some(_))) => return Err(HcaError::Limit { what: "special QPs", limit: 1 }),
            Some(None) => {
                let value = ctx.special.unwrap_or_default().into();
                return Err(HcaError::BadParam { what: "special", value });
            }
        }
        let mut tags = false;
        if let Some(srqn) = ctx.srq {
            self.common.cqs.get(ctx.send_cq)?;
            let srq = self.common.srqs.get_mut(srqn)?;
            tags = srq.tags.is_some();
            if tags && ctx.service != Service::Rc {
                return Err(HcaError::BadParam { what: "srq", value: srqn.0.into() });
            }
            srq.users += 1;
        }
        self.common.cqs.get_mut(ctx.send_cq)?.users += 1;
        self.common.cqs.get_mut(ctx.recv_cq)?.users += 1;
        let qpn = self.free_qpn();
        if let Some(slot) = special.and_then(|at| self.special.get_mut(at)) {
            *slot = Some(qpn);
        }
        if ctx.sq.is_some() {
            self.doorbells.insert(ctx.uar, qpn, ctx.doorbell_record + 4);
        }
        self.qps.insert(qpn, Qp { tags, ..Qp::new(qpn, ctx) });
        Ok(qpn)
    }

    /// Checks `max_qp`, which counts QPs and targets.
    pub(super) fn check_room(&self) -> Result<(), HcaError> {
        let max = self.common.config.max_qp.min(LAST_QPN - FIRST_QPN);
        match (self.qps.len() + self.targets.len()) as u64 >= max.into() {
            true => Err(HcaError::Limit { what: "max_qp", limit: max.into() }),
            false => Ok(()),
        }
    }

    /// Returns an unused number. QPs and targets share the numbers, since packets are addressed to
    /// both.
    pub(super) fn free_qpn(&mut self) -> Qpn {
        // Terminates: there are more numbers than QPs and targets.
        loop {
            let number = self.next_qpn;
            self.next_qpn = if number == LAST_QPN { FIRST_QPN } else { number + 1 };
            let qpn = Qpn(number);
            if !self.qps.contains_key(&qpn) && !self.targets.contains(qpn) {
                return qpn;
            }
        }
    }

    /// Destroys a QP in any state, after it sent what it can. No CQE for it is written afterwards.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), HcaError> {
        self.look_at_own(qpn);
        self.send_rung(qpn);
        let qp = self.qps.remove(&qpn).ok_or(no_qp(qpn))?;
        for cqn in [qp.ctx.send_cq, qp.ctx.recv_cq] {
            if let Ok(cq) = self.common.cqs.get_mut(cqn) {
                cq.users -= 1;
            }
        }
        if let Some(srq) = qp.ctx.srq.and_then(|srqn| self.common.srqs.get_mut(srqn).ok()) {
            srq.users -= 1;
        }
        self.doorbells.remove(qp.ctx.uar, qpn);
        for slot in &mut self.special {
            slot.take_if(|special| *special == qpn);
        }
        self.groups.leave_all(qpn);
        self.common.port.set_groups(self.groups.gids());
        self.unschedule(qpn, qp.timer, qp.queued);
        self.common.events.forget(|event| event.qpn() == Some(qpn.0));
        self.common.faults.forget(qpn);
        Ok(())
    }

    /// Moves a QP along one edge of the state machine. `attrs` is the whole set; each field of
    /// [`QpAttrs`] names the transitions that use it.
    ///
    /// # Errors
    /// [`HcaError::BadState`] if the QP is not in the edge's start state; [`HcaError::BadParam`]
    /// naming the attribute; [`HcaError::BadHandle`].
    pub(crate) fn modify_qp(
        &mut self,
        qpn: Qpn,
        to: QpTransition,
        attrs: &QpAttrs,
    ) -> Result<(), HcaError> {
        if matches!(to, QpTransition::ToErr | QpTransition::ToRst) {
            self.look_at_own(qpn);
            self.send_rung(qpn);
        }
        let qp = self.qps.get_mut(&qpn).ok_or(no_qp(qpn))?;
        qp.modify(to, attrs, &self.common.config)?;
        self.doorbells.forget(qp.ctx.uar, qpn);
        // Also with an empty queue: a drain that is done at once still raises its event.
        self.enqueue(qpn);
        self.settle(qpn);
        Ok(())
    }

    /// State and attributes. The PSNs are the next ones expected and sent.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn query_qp(&self, qpn: Qpn) -> Result<(QpState, QpAttrs), HcaError> {
        let qp = self.qps.get(&qpn).ok_or(no_qp(qpn))?;
        Ok((qp.state, qp.snapshot()))
    }

    /// True if a send of a queue pair may use `len` bytes at `addr` under `key`: read them, or
    /// write an answer to them.
    pub(crate) fn may_send(
        &self,
        qpn: Qpn,
        key: Key,
        (addr, len): (u64, u64),
        writes: bool,
    ) -> bool {
        let need = if writes { Access::LOCAL_WRITE } else { Access::empty() };
        let segment = Segment { key, addr, len };
        let Some(qp) = self.qps.get(&qpn) else { return false };
        self.common.keys.check(qp.who(), segment, need).is_ok()
    }

    /// Moves a queue pair to the counter set `set`.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn count_in(&mut self, qpn: Qpn, set: u8) -> Result<(), HcaError> {
        self.qps.get_mut(&qpn).ok_or(no_qp(qpn))?.ctx.counter_set = set;
        Ok(())
    }
}

pub(super) fn no_qp(qpn: Qpn) -> HcaError {
    HcaError::BadHandle { noun: Noun::Qp, number: qpn.0 }
}
