//! Changes of a queue pair that works: in RTS, drained, after a failed send, and by mask.
//!
//! # Safety
//!
//! A change by mask passes on the caller's contract.
#![allow(unsafe_code, reason = "declares a change by mask, which is the caller's to answer for")]

use std::time::{Duration, Instant};

use uverbs_core::attr::{DrainAttr, QpAttrMask, QpState, RawQpAttr};
use uverbs_core::error::Error;

use crate::provider::Provider;
use crate::qp::queue_pair::receives_from_rtr;
use crate::transport::{Drains, Recovers, Transport};
use crate::{Errno, QueuePair};

const MODIFY_QP: &str = "modify_qp";
/// First and longest pause between two looks at a queue that is being drained.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(10));

impl<P: Provider, T: Transport> QueuePair<P, T> {
    /// RTS to RTS: changes attributes of a working queue pair.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// # qp.prepare(&Default::default())?;
    /// # qp.connect_to_self()?;
    /// use uverbs::AccessFlags;
    /// use uverbs::attr::RcChange;
    ///
    /// // From now on the peer may read.
    /// let access = Some(AccessFlags::REMOTE_READ);
    /// qp.change(&RcChange { access, ..RcChange::default() })?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// Attributes that a transport lacks don't compile:
    ///
    /// ```compile_fail,E0560
    /// # use uverbs::{AccessFlags, UdQueuePair};
    /// # use uverbs::attr::UdChange;
    /// # fn f(qp: &mut UdQueuePair) -> Result<(), uverbs::Error> {
    /// qp.change(&UdChange { access: Some(AccessFlags::REMOTE_READ) })?; // nobody reads by UD
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::State`] from another state; [`Error::Limit`] for numbers over their field;
    /// [`Error::Kernel`]: `EINVAL` for an alternate path, which RoCE doesn't have, and for a rate
    /// out of the device's range; [`Error::Unsupported`] for a rate if the device limits none.
    #[doc(alias = "ibv_modify_qp")]
    pub fn change(&mut self, attr: &T::Change) -> Result<(), Error> {
        self.whole()?;
        must_be(self.state(), QpState::ReadyToSend)?;
        self.core().bring(attr)
    }

    /// Changes whatever attributes a mask names. The handle in `attr` is filled in, and its mask
    /// replaced.
    ///
    /// Uses MODIFY_QP, or the extended command if the mask needs it.
    ///
    /// # Safety
    ///
    /// The attributes must be valid for the driver and the device. They must not make the device
    /// repeat completed work, or reach memory that the posts didn't name.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for RESET, which [`reset`](Self::reset) does; [`Error::Kernel`]: `EINVAL`
    /// for a change that InfiniBand doesn't have, `EOPNOTSUPP` for an attribute that the kernel
    /// doesn't know.
    #[doc(alias = "ibv_modify_qp")]
    pub unsafe fn modify(&mut self, attr: &RawQpAttr, mask: QpAttrMask) -> Result<(), Error> {
        self.whole()?;
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.core().modify_by_mask(attr, mask) }?;
        if mask.contains(QpAttrMask::STATE) {
            match self.state() {
                QpState::Reset => {}
                QpState::Init if receives_from_rtr(T::TYPE) => {}
                QpState::Init | QpState::ReadyToReceive => self.recv.enable(true),
                _ => {
                    self.recv.enable(true);
                    self.send.enable(true);
                }
            }
        }
        Ok(())
    }
}

/// Refuses a change from another state.
fn must_be(state: QpState, needs: QpState) -> Result<(), Error> {
    if state == needs { Ok(()) } else { Err(Error::State { verb: MODIFY_QP, state, needs }) }
}

impl<P: Provider, T: Drains> QueuePair<P, T> {
    /// RTS to SQD: sends that are under way are finished, and those not begun wait for
    /// [`resume`](Self::resume), as those posted from now on do. Receives go on.
    ///
    /// [`wait_drained`](Self::wait_drained) waits until the queue is drained. With `notify` an
    /// asynchronous event tells, too
    /// ([`AsyncEventKind::SendQueueDrained`](crate::event::AsyncEventKind)).
    ///
    /// # Errors
    ///
    /// [`Error::State`] from another state; [`Error::Unsupported`] on ConnectX, for which Linux has
    /// no way into SQD (kernel `hw/mlx5/qp.c:__mlx5_ib_modify_qp`); [`Error::Kernel`]: `EIO` of a
    /// removed device.
    #[doc(alias = "IBV_QPS_SQD")]
    pub fn drain_sends(&mut self, attr: &DrainAttr) -> Result<(), Error> {
        self.whole()?;
        self.core().bring(attr).map_err(|error| match error {
            // State and attributes are right, so it is the driver that has no such change.
            Error::Kernel { errno: Errno::EINVAL, .. } => Error::Unsupported {
                verb: MODIFY_QP,
                what: "a drained send queue (SQD), which the kernel driver lacks".to_owned(),
            },
            other => other,
        })
    }

    /// Waits until the send queue is [drained](Self::drain_sends), by asking the device.
    ///
    /// # Errors
    ///
    /// [`Error::State`] if it is not in SQD, or leaves it meanwhile; [`Error::TimedOut`]: a send
    /// has found no receive yet, or its peer is gone.
    pub fn wait_drained(&self, limit: Duration) -> Result<(), Error> {
        let (start, mut pause) = (Instant::now(), PAUSES.0);
        loop {
            let attr = self.query()?;
            must_be(attr.state, QpState::SendQueueDrained)?;
            if !attr.sq_draining {
                return Ok(());
            }
            if start.elapsed() >= limit {
                let why = "sends are still under way: the peer posts no receive, or is gone";
                let why = Some(why.to_owned());
                return Err(Error::TimedOut { verb: MODIFY_QP, waited: limit, why });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// SQD to SQD: changes what may change only while no send is under way, the path to the peer
    /// among it.
    ///
    /// # Errors
    ///
    /// [`Error::State`] from another state; [`Error::Limit`] for numbers over their field;
    /// [`Error::Kernel`]: `EINVAL` before the queue is [drained](Self::wait_drained).
    #[doc(alias = "ibv_modify_qp")]
    pub fn change_drained(&mut self, attr: &T::DrainedChange) -> Result<(), Error> {
        self.whole()?;
        self.core().bring(attr)
    }

    /// SQD to RTS: sends go on where they stopped.
    ///
    /// # Errors
    ///
    /// As for [`change_drained`](Self::change_drained).
    #[doc(alias = "ibv_modify_qp")]
    pub fn resume(&mut self, attr: &T::Change) -> Result<(), Error> {
        self.whole()?;
        must_be(self.state(), QpState::SendQueueDrained)?;
        self.core().bring(attr)?;
        self.send.enable(true);
        Ok(())
    }
}

impl<P: Provider, T: Recovers> QueuePair<P, T> {
    /// SQE to RTS: sends go on after one that failed and those behind it, which came back flushed.
    ///
    /// A failed send of UC or UD stops the send queue alone; receives went on meanwhile. Soft-RoCE
    /// goes to ERR instead, which ends both. A reliable connection has no such state:
    ///
    /// ```compile_fail,E0599
    /// # use uverbs::RcQueuePair;
    /// # use uverbs::attr::UcRecovery;
    /// # fn f(qp: &mut RcQueuePair) -> Result<(), uverbs::Error> {
    /// qp.recover(&UcRecovery::default())?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless the device says that it is in SQE; [`Error::Kernel`]: `EIO` of a
    /// removed device.
    #[doc(alias = "IBV_QPS_SQE")]
    pub fn recover(&mut self, attr: &T::Recovery) -> Result<(), Error> {
        self.whole()?;
        must_be(self.query()?.state, QpState::SendQueueError)?;
        self.core().bring(attr)
    }
}
