//! Posts by the interface of providers.
//!
//! # Safety
//!
//! See `queue/mod.rs`.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use uverbs_core::Errno;
use uverbs_core::memory::registered::Held;
use uverbs_core::provider::{Request, Requests, SendOps};
use uverbs_core::queues::layout::KeyLayout;
use uverbs_core::queues::slot::RingPosition;
use uverbs_core::queues::work::{
    Checksums, Data, Destination, PostError, Rekey, SendOp, Target, Wr,
};
use uverbs_mlx5_prm::doorbell::MLX5_SND_DBR;

use super::SendCursor;
use super::Sq;
use crate::Ah;
use crate::send::doorbell::store_record;
use crate::send::wqe::{self, Address, Vector};

// SAFETY: a post passes the check for room, so its slot is free. Buffers stay in the table until
// the poller, `disown` or a reset takes them. The device learns of WQEs only from the record, which
// `ring` and single posts store.
unsafe impl SendOps for Sq {
    type Cursor = SendCursor;
    type Ah = Ah;

    #[inline(always)]
    fn begin(&mut self) -> SendCursor {
        if self.marked != self.producer() {
            self.disown();
        }
        self.position()
    }

    #[inline(always)]
    unsafe fn post(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure(&op, &data, self.room)?;
        let (units, pi) = (wqe::units(ds, &data), at.pi());
        self.reserve(at, units)?;
        // SAFETY: contract of `post`; `reserve` found room for what was measured.
        Ok(unsafe { self.write(at, wr, (pi, ds, units, 0), Address::None, op, data) })
    }

    #[inline(always)]
    unsafe fn post_to(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        to: Destination<'_, Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure_datagram(&op, &data, self.room)?;
        let pi = at.pi();
        let units = if let Data::One(_) = data {
            // The head fills a WQEBB, and an SGE starts another.
            let units = ds - (wqe::DATAGRAM_HEAD - 1);
            self.reserve_usual(at, units)?;
            units
        } else {
            let units = wqe::blocks(ds);
            self.reserve(at, units)?;
            units
        };
        // The device reads the vector out of the WQE: the handle isn't looked at again.
        let vector = Ah::vector(to);
        // SAFETY: as in `post`.
        Ok(unsafe { self.write(at, wr, (pi, ds, units, 0), Address::Vector(vector), op, data) })
    }

    #[inline]
    unsafe fn post_to_target(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        to: Target<'_, Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let (address, stream) = match to {
            Target::Dc(to) => {
                let first = wqe::dynamic(to.ah.second_word(), to.dctn, to.key);
                (Address::Vector(Vector { template: to.ah.template(), first }), to.stream)
            }
            Target::Srq(number) => (Address::Srq(number), 0),
        };
        let ds = wqe::measure(&op, &data, self.room)? + address.units();
        let (units, pi) = (wqe::blocks(ds), at.pi());
        self.reserve(at, units)?;
        let place = (pi, ds, units, wqe::stream(stream));
        // SAFETY: as in `post`.
        Ok(unsafe { self.write(at, wr, place, address, op, data) })
    }

    #[inline(always)]
    unsafe fn post_list<const UD: bool, R>(&mut self, at: &mut SendCursor, requests: &mut R)
    where
        R: Requests<One: Request<Ah = Ah>>,
    {
        // SAFETY: contract of `post_list`.
        unsafe { self.write_list::<UD, R>(at, requests) }
    }

    #[inline(always)]
    unsafe fn post_alone<const UD: bool>(&mut self, request: impl Request<Ah = Ah>) -> bool {
        // SAFETY: contract of `post_alone`.
        unsafe { self.write_alone::<UD>(request) }
    }

    unsafe fn post_packet(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        checksums: Checksums,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: contract of `post_packet`.
        let (next, slot) = unsafe { self.packet_at(*at, wr, checksums, data) }?;
        *at = next;
        Ok(slot)
    }

    fn copies_headers(&self) -> bool {
        self.packets().is_some_and(|packets| packets.wants_header)
    }

    #[inline(always)]
    unsafe fn lay_out(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: &KeyLayout<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: contract of `lay_out`.
        let (next, slot) = unsafe { self.lay_out_at(*at, wr, *op) }?;
        *at = next;
        Ok(slot)
    }

    unsafe fn rekey(&mut self, at: &mut SendCursor, wr: Wr, op: &Rekey) -> Result<u32, PostError> {
        // SAFETY: contract of `rekey`.
        let (next, slot) = unsafe { self.rekey_at(*at, wr, *op) }?;
        *at = next;
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn own(&mut self, at: &SendCursor, slot: u32, held: Held) {
        debug_assert_eq!(self.slots.offset(slot), at.offset as usize, "the last one");
        self.marked = at.pi();
        if held.is_lent() {
            // SAFETY: this queue is the only poster.
            unsafe { self.shared.send.will_lend() };
        }
        if !self.owns {
            self.owns = true;
            // SAFETY: this queue is the only poster.
            unsafe { self.shared.send.will_own() };
        }
        // SAFETY: the slot of the WQE just written, by the contract. The poster owns it, and
        // `begin` left no buffer in it.
        unsafe { self.slots.own_by(at.offset as usize, held) };
    }

    #[inline(always)]
    unsafe fn ring(&mut self, at: SendCursor) {
        if at.is_empty() {
            return;
        }
        if self.umr_end.is_some() {
            // Three parts: a cursor passed whole, or a fourth part, costs instructions on all
            // paths.
            let (stop, units) = (at.stop, at.units.into());
            // SAFETY: contract of `ring`.
            return unsafe { self.publish_behind_umr(at.position, stop, units) };
        }
        // SAFETY: contract of `ring`.
        unsafe { self.publish(at) };
    }

    fn doorbell_error(&self) -> Option<Errno> {
        None
    }

    fn enable(&mut self, on: bool) {
        self.limit = if on { self.units() } else { 0 };
        self.look_first();
    }

    unsafe fn stay(&mut self) {
        self.doorbell.stay();
    }

    fn leave(&mut self) {
        self.doorbell.leave();
    }

    unsafe fn reset(&mut self) {
        // SAFETY: device and poller are done with the queue, by the contract.
        unsafe { self.shared.send.reset() };
        (self.published, self.stop, self.count_limit) = (RingPosition::new(0, 0), 0, self.max_wr);
        (self.retired, self.marked, self.limit) = (0, 0, 0);
        (self.umr_end, self.rung_umr_end) = (None, None);
        // SAFETY: as in `ring`.
        unsafe { store_record(self.record, MLX5_SND_DBR, 0) };
    }
}
