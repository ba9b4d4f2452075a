//! Posts by the interface of providers.
//!
//! # Safety
//!
//! See `queue/mod.rs`.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use uverbs_core::Errno;
use uverbs_core::memory::registered::Held;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::layout::KeyLayout;
use uverbs_core::queues::work::{
    Checksums, Data, DcDestination, Destination, PostError, Rekey, SendOp, Wr,
};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::doorbell::MLX5_SND_DBR;

use super::SendCursor;
use super::Sq;
use crate::Ah;
use crate::send::doorbell::{Posted, store_record};
use crate::send::pieces::write_wrapped;
use crate::send::wqe::{self, Vector};

// SAFETY: a post passes the check for room, so its slot is free. Buffers stay in the table until
// the poller, `disown` or a reset takes them. The device learns of WQEs only from the record, which
// `ring` and single posts store.
unsafe impl SendOps for Sq {
    type Cursor = SendCursor;
    type Ah = Ah;

    #[inline(always)]
    fn begin(&mut self) -> SendCursor {
        if self.marked != self.pi {
            self.disown();
        }
        self.published()
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
        let units = wqe::units(ds, &data);
        self.reserve(at, units)?;
        // SAFETY: contract of this function; the WQE was just measured, and there is room.
        Ok(unsafe { self.write(at, wr, (ds, units, 0), None, op, data) })
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
        let (ring, slots) = (self.ring_memory(), self.slots);
        let ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(ds), wr.flags);
        let first = ring.unit(at.pi);
        // SAFETY: `reserve` found room, so the device owns none of the WQEBBs.
        unsafe { wqe::store(first, ctrl) };
        // The device reads the vector from the WQE, so the handle need not be kept.
        let vector = Vector { template: to.ah.template(), first: to.peer };
        // SAFETY: `reserve` found room; the vector fills the WQEBB.
        unsafe { vector.store::<false>(first.wrapping_add(DS_BYTES)) };
        // The data begins in the next WQEBB, and a single WQEBB never wraps.
        let next = at.pi.wrapping_add(1);
        if units > 2 && ring.wraps(next, units - 1) {
            // SAFETY: `reserve` found room; the measured length is within the limits of `room`.
            unsafe { write_wrapped(ring, at.pi, (wqe::DATAGRAM_HEAD, ds), data) };
        } else {
            // SAFETY: `reserve` found room, and the WQEBBs are contiguous.
            unsafe { wqe::write_data(ring.unit(next), &data) };
        }
        let last = Posted { head: ctrl[0], at: first, first: at.pi, ds, units };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        Ok(unsafe { Self::note(slots, at, wr.id, last) })
    }

    #[inline]
    unsafe fn post_dc(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        to: DcDestination<'_, Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure(&op, &data, self.room)? + wqe::VECTOR_UNITS;
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        self.reserve(at, units)?;
        let template = to.ah.template();
        let target = Vector { template, first: wqe::dynamic(to.ah.second_word(), to.dctn, to.key) };
        // SAFETY: contract of `post_dc`; the WQE was just measured, and there is room.
        Ok(unsafe {
            self.write(at, wr, (ds, units, wqe::stream(to.stream)), Some(target), op, data)
        })
    }

    #[inline]
    unsafe fn post_xrc(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        srqn: u32,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure(&op, &data, self.room)? + wqe::XRC_UNITS;
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        self.reserve(at, units)?;
        let (ring, slots) = (self.ring_memory(), self.slots);
        let ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(ds), wr.flags);
        // SAFETY: contract of this function; the WQE was just measured, and there is room.
        unsafe { wqe::write_xrc(ring, (at.pi, ds), ctrl, srqn, &op, &data) };
        let last = Posted { head: ctrl[0], at: ring.unit(at.pi), first: at.pi, ds, units };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        Ok(unsafe { Self::note(slots, at, wr.id, last) })
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
        self.marked = at.pi;
        if held.is_lent() {
            // SAFETY: this queue is the only poster.
            unsafe { self.shared.send.will_lend() };
        }
        if !self.owns {
            self.owns = true;
            // SAFETY: this queue is the only poster.
            unsafe { self.shared.send.will_own() };
        }
        // SAFETY: the place of a WQE just written, by the contract. The poster owns it, and `begin`
        // left no buffer in it.
        unsafe { self.slots.own_at(slot, held) };
    }

    #[inline(always)]
    unsafe fn ring(&mut self, at: SendCursor) {
        // Compared with the cursor's `begin`, which equals `self.pi` and which the compiler knows.
        if at.pi == at.begin {
            return;
        }
        if self.umr_end.is_some() {
            // A tail call by value, so that the cursor stays in registers and none are saved for
            // the call.
            let SendCursor { pi, count, stop, last, .. } = at;
            // SAFETY: contract of `ring`.
            return unsafe { self.publish_behind_umr(pi, count, stop, last.first) };
        }
        // SAFETY: contract of `ring`.
        unsafe { self.publish(at) };
    }

    fn refused(&self) -> Option<Errno> {
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
        (self.pi, self.retired, self.marked, self.limit) = (0, 0, 0, 0);
        (self.count, self.stop, self.count_limit) = (0, 0, self.max_wr);
        (self.umr_end, self.rung_umr_end) = (None, None);
        // SAFETY: as in `ring`.
        unsafe { store_record(self.record, MLX5_SND_DBR, 0) };
    }
}
