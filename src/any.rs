//! `Any`: an enum over the built-in providers, chosen by the device's driver.
//!
//! Each object is an enum over the providers' types. A call is then a predictable branch instead of
//! an indirect call, and the compiler can inline it. Cursors and views stay in registers only if no
//! provider's branch takes the address of a part. So the whole data path is inlined here, and
//! providers' out-of-line functions take cursor, view and work request by value, or copy them. The
//! provider of a batch is read from its cursor, which is in a register.
//!
//! # Safety
//!
//! Each unsafe method passes its caller's contract on to the provider's method. Cursor and queue
//! have one provider, since the contract says that the cursor came from this queue; other
//! combinations are unreachable.
#![allow(unsafe_code, reason = "forwards the data path's unsafe methods, contracts unchanged")]

mod context;
mod driver;
mod srq;

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::{AhAttr, DeviceAttr, FlowRule, Gid, PortAttr, RssHash};
use uverbs_core::error::Error;
use uverbs_core::memory::registered::Held;
use uverbs_core::objects::ah::AhCore;
use uverbs_core::objects::clock::DeviceClock;
use uverbs_core::objects::comp_cntr::CompCntrCore;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::counters::CountersCore;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::dm::DmCore;
use uverbs_core::objects::flow::{FlowCore, Steered};
use uverbs_core::objects::mw::MwCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::rss::{IndTableCore, RssCore};
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::objects::wq::WqCore;
use uverbs_core::provider::{
    AhOps, Armer, ContextOps, CqInit, CqOps, Decoded, NewQp, NewSrq, NewWq, Notify, PacketInfo,
    Polled, Provider, QpInit, RecvOps, RqOps, SendOps, Sink, SrqInit, SrqOps, Usual, View, WqInit,
};
use uverbs_core::queues::completion::{Completed, Failure, Sender};
use uverbs_core::queues::layout::KeyLayout;
use uverbs_core::queues::placement::PlaceOp;
use uverbs_core::queues::tag_work::{TagHandle, TagInfo, TagOp, TagWr};
use uverbs_core::queues::work::{
    Checksums, Data, DcDestination, Destination, PostError, Rekey, SendOp, Sge, Target, Wr,
};
#[cfg(feature = "any-efa")]
use uverbs_efa::Efa;
use uverbs_mlx5::Mlx5;
#[cfg(feature = "any-rdmavt")]
use uverbs_rdmavt::Rdmavt;
use uverbs_rxe::Rxe;
#[cfg(feature = "any-siw")]
use uverbs_siw::Siw;

/// Whichever provider the device needs: the default of every type that has a provider parameter.
#[derive(Debug)]
pub enum Any {}

/// A sink of any provider's completions, as the sink of one provider's.
struct AnySink<'a, S, V> {
    sink: S,
    view: fn(V) -> AnyView<'a>,
}

impl<'a, S: Sink<AnyView<'a>>, V> Sink<V> for AnySink<'a, S, V> {
    type Output = S::Output;

    const CALLS: bool = S::CALLS;

    #[inline(always)]
    fn take(self, view: V, wr_id: u64) -> S::Output {
        self.sink.take((self.view)(view), wr_id)
    }
}

/// Writes the enums and their forwarding once for all providers.
macro_rules! any {
    ($($(#[$cfg:meta])* $variant:ident = $provider:ty),+ $(,)?) => {
        /// An open device of any provider.
        #[derive(Debug)]
        pub enum AnyContext {
            $($(#[$cfg])* #[doc = concat!("Open device of [`", stringify!($variant), "`].")]
              $variant(<$provider as Provider>::Context),)+
        }

        /// The polling side of a completion queue of any provider.
        #[derive(Debug)]
        pub enum AnyCq {
            $($(#[$cfg])* #[doc = concat!(stringify!($variant), " CQ")]
              $variant(<$provider as Provider>::Cq),)+
        }

        /// An address handle of any provider.
        #[derive(Clone, Debug)]
        pub enum AnyAh {
            $($(#[$cfg])* #[doc = concat!(stringify!($variant), " AH")]
              $variant(<$provider as Provider>::Ah),)+
        }

        // SAFETY: the provider's own promise.
        unsafe impl AhOps for AnyAh {
            fn core(&self) -> &AhCore {
                match self { $($(#[$cfg])* Self::$variant(ah) => ah.core(),)+ }
            }

            fn peer(&self, qpn: u32, qkey: u32) -> [u64; 2] {
                match self { $($(#[$cfg])* Self::$variant(ah) => ah.peer(qpn, qkey),)+ }
            }
        }

        /// A completion queue entry of any provider.
        #[derive(Clone, Copy, Debug)]
        pub enum AnyView<'a> {
            $($(#[$cfg])* #[doc = concat!("CQE of [`", stringify!($variant), "`].")]
              $variant(<<$provider as Provider>::Cq as CqOps>::View<'a>),)+
        }

        any!(@queue AnySq, AnySqCursor, Sq, SendOps, $($(#[$cfg])* $variant = $provider),+);
        any!(@queue AnyRq, AnyRqCursor, Rq, RecvOps, $($(#[$cfg])* $variant = $provider),+);
        any!(@queue AnySrq, AnySrqCursor, Srq, RecvOps, $($(#[$cfg])* $variant = $provider),+);

        context::forward!($($(#[$cfg])* $variant = $provider),+);

        // SAFETY: passes everything on to the one provider that the object is of.
        unsafe impl SendOps for AnySq {
            type Cursor = AnySqCursor;
            type Ah = AnyAh;

            #[inline(always)]
            fn begin(&mut self) -> AnySqCursor {
                match self {
                    $($(#[$cfg])* Self::$variant(sq) => AnySqCursor::$variant(sq.begin()),)+
                }
            }

            #[inline(always)]
            unsafe fn post(
                &mut self,
                at: &mut AnySqCursor,
                wr: Wr,
                op: SendOp,
                data: Data<'_>,
            ) -> Result<u32, PostError> {
                match at {
                    $($(#[$cfg])* AnySqCursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let sq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { sq.post(at, wr, op, data) }
                    })+
                }
            }

            #[inline(always)]
            unsafe fn post_to(
                &mut self,
                at: &mut AnySqCursor,
                wr: Wr,
                op: SendOp,
                to: Destination<'_, AnyAh>,
                data: Data<'_>,
            ) -> Result<u32, PostError> {
                match at {
                    $($(#[$cfg])* AnySqCursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let sq = unsafe { any!(@same self, $variant) };
                        let ah = match to.ah {
                            AnyAh::$variant(ah) => ah,
                            #[allow(
                                unreachable_patterns,
                                reason = "with one provider there is no other"
                            )]
                            // SAFETY: of the queue's protection domain, says the caller, and so of
                            // its provider.
                            _ => unsafe { std::hint::unreachable_unchecked() },
                        };
                        let to = Destination { ah, peer: to.peer };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { sq.post_to(at, wr, op, to, data) }
                    })+
                }
            }

            unsafe fn rekey(
                &mut self,
                at: &mut AnySqCursor,
                wr: Wr,
                op: &Rekey,
            ) -> Result<u32, PostError> {
                match at {
                    $($(#[$cfg])* AnySqCursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let sq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { sq.rekey(at, wr, op) }
                    })+
                }
            }

            unsafe fn place(
                &mut self,
                at: &mut AnySqCursor,
                wr: Wr,
                op: &PlaceOp,
            ) -> Result<u32, PostError> {
                match at {
                    $($(#[$cfg])* AnySqCursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let sq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { sq.place(at, wr, op) }
                    })+
                }
            }

            unsafe fn lay_out(
                &mut self,
                at: &mut AnySqCursor,
                wr: Wr,
                op: &KeyLayout<'_>,
            ) -> Result<u32, PostError> {
                match at {
                    $($(#[$cfg])* AnySqCursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let sq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { sq.lay_out(at, wr, op) }
                    })+
                }
            }

            #[inline]
            unsafe fn post_to_target(
                &mut self,
                at: &mut AnySqCursor,
                wr: Wr,
                op: SendOp,
                to: Target<'_, AnyAh>,
                data: Data<'_>,
            ) -> Result<u32, PostError> {
                match at {
                    $($(#[$cfg])* AnySqCursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let sq = unsafe { any!(@same self, $variant) };
                        let to = match to {
                            Target::Dc(DcDestination { ah, dctn, key, stream }) => {
                                let AnyAh::$variant(ah) = ah else {
                                    return Err(PostError::ForeignAddress);
                                };
                                Target::Dc(DcDestination { ah, dctn, key, stream })
                            }
                            Target::Srq(number) => Target::Srq(number),
                        };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { sq.post_to_target(at, wr, op, to, data) }
                    })+
                }
            }

            unsafe fn post_packet(
                &mut self,
                at: &mut AnySqCursor,
                wr: Wr,
                checksums: Checksums,
                data: Data<'_>,
            ) -> Result<u32, PostError> {
                match at {
                    $($(#[$cfg])* AnySqCursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let sq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { sq.post_packet(at, wr, checksums, data) }
                    })+
                }
            }

            #[inline(always)]
            unsafe fn own(&mut self, at: &AnySqCursor, slot: u32, held: Held) {
                match at {
                    $($(#[$cfg])* AnySqCursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let sq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { sq.own(at, slot, held) }
                    })+
                }
            }

            #[inline(always)]
            unsafe fn ring(&mut self, at: AnySqCursor) {
                match at {
                    $($(#[$cfg])* AnySqCursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let sq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { sq.ring(at) }
                    })+
                }
            }

            fn copies_headers(&self) -> bool {
                match self { $($(#[$cfg])* Self::$variant(sq) => sq.copies_headers(),)+ }
            }

            fn doorbell_error(&self) -> Option<Errno> {
                match self { $($(#[$cfg])* Self::$variant(sq) => sq.doorbell_error(),)+ }
            }

            fn returned(&self) -> u32 {
                match self { $($(#[$cfg])* Self::$variant(sq) => sq.returned(),)+ }
            }

            fn enable(&mut self, on: bool) {
                match self { $($(#[$cfg])* Self::$variant(sq) => sq.enable(on),)+ }
            }

            fn forbid_reads(&mut self) {
                match self { $($(#[$cfg])* Self::$variant(sq) => sq.forbid_reads(),)+ }
            }

            unsafe fn stay(&mut self) {
                // SAFETY: the caller upholds this function's contract.
                match self { $($(#[$cfg])* Self::$variant(sq) => unsafe { sq.stay() },)+ }
            }

            fn leave(&mut self) {
                match self { $($(#[$cfg])* Self::$variant(sq) => sq.leave(),)+ }
            }

            unsafe fn reset(&mut self) {
                // SAFETY: the caller upholds this function's contract.
                match self { $($(#[$cfg])* Self::$variant(sq) => unsafe { sq.reset() },)+ }
            }
        }

        any!(@recv AnyRq, AnyRqCursor, $($(#[$cfg])* $variant),+);
        any!(@recv AnySrq, AnySrqCursor, $($(#[$cfg])* $variant),+);

        // SAFETY: passes everything on to the one provider that the object is of.
        unsafe impl RqOps for AnyRq {
            fn enable(&mut self, on: bool) {
                match self { $($(#[$cfg])* Self::$variant(rq) => rq.enable(on),)+ }
            }

            unsafe fn reset(&mut self) {
                // SAFETY: the caller upholds this function's contract.
                match self { $($(#[$cfg])* Self::$variant(rq) => unsafe { rq.reset() },)+ }
            }
        }

        srq::forward!($($(#[$cfg])* $variant = $provider),+);

        // SAFETY: passes everything on to the one provider that the object is of.
        unsafe impl CqOps for AnyCq {
            type View<'a> = AnyView<'a>;

            #[inline(always)]
            fn next(&mut self) -> Option<Polled<AnyView<'_>>> {
                match self {
                    $($(#[$cfg])* Self::$variant(cq) => {
                        let Polled { view, wr_id, frame } = cq.next()?;
                        Some(Polled { view: AnyView::$variant(view), wr_id, frame })
                    })+
                }
            }

            #[inline(always)]
            fn next_usual<'a, S: Sink<AnyView<'a>>>(&'a mut self, sink: S) -> Usual<S::Output> {
                match self {
                    $($(#[$cfg])* Self::$variant(cq) => {
                        cq.next_usual(AnySink { sink, view: AnyView::$variant })
                    })+
                }
            }

            fn is_empty(&mut self) -> bool {
                match self { $($(#[$cfg])* Self::$variant(cq) => cq.is_empty(),)+ }
            }

            #[inline(always)]
            fn strays(&self) -> u64 {
                match self { $($(#[$cfg])* Self::$variant(cq) => cq.strays(),)+ }
            }

            #[inline(always)]
            fn publish(&mut self) {
                match self { $($(#[$cfg])* Self::$variant(cq) => cq.publish(),)+ }
            }

            fn settle(&mut self) {
                match self { $($(#[$cfg])* Self::$variant(cq) => cq.settle(),)+ }
            }

            fn sweep(&mut self, user_index: u32) {
                match self { $($(#[$cfg])* Self::$variant(cq) => cq.sweep(user_index),)+ }
            }

            #[inline]
            fn arm(&mut self, notify: Notify) -> Result<(), Error> {
                match self { $($(#[$cfg])* Self::$variant(cq) => cq.arm(notify),)+ }
            }

            fn armer(&self) -> Armer {
                match self { $($(#[$cfg])* Self::$variant(cq) => cq.armer(),)+ }
            }

            fn resize(&mut self, entries: u32) -> Result<(), Error> {
                match self { $($(#[$cfg])* Self::$variant(cq) => cq.resize(entries),)+ }
            }
        }

        impl View for AnyView<'_> {
            #[inline(always)]
            fn result(&self) -> Result<Completed, Failure> {
                match self { $($(#[$cfg])* Self::$variant(view) => view.result(),)+ }
            }

            #[inline(always)]
            fn is_recv(&self) -> bool {
                match self { $($(#[$cfg])* Self::$variant(view) => view.is_recv(),)+ }
            }

            #[inline(always)]
            fn byte_len(&self) -> u32 {
                match self { $($(#[$cfg])* Self::$variant(view) => view.byte_len(),)+ }
            }

            #[inline(always)]
            fn immediate(&self) -> Option<u32> {
                match self { $($(#[$cfg])* Self::$variant(view) => view.immediate(),)+ }
            }

            #[inline(always)]
            fn timestamp(&self) -> Option<u64> {
                match self { $($(#[$cfg])* Self::$variant(view) => view.timestamp(),)+ }
            }

            #[inline(always)]
            fn invalidated(&self) -> Option<u32> {
                match self { $($(#[$cfg])* Self::$variant(view) => view.invalidated(),)+ }
            }

            #[inline(always)]
            fn qpn(&self) -> u32 {
                match self { $($(#[$cfg])* Self::$variant(view) => view.qpn(),)+ }
            }

            fn user_index(&self) -> Option<u32> {
                match self { $($(#[$cfg])* Self::$variant(view) => view.user_index(),)+ }
            }

            fn pkey_index(&self) -> u16 {
                match self { $($(#[$cfg])* Self::$variant(view) => view.pkey_index(),)+ }
            }

            fn sent_immediate(&self) -> bool {
                match self { $($(#[$cfg])* Self::$variant(view) => view.sent_immediate(),)+ }
            }

            fn is_local_invalidation(&self) -> bool {
                match self { $($(#[$cfg])* Self::$variant(view) => view.is_local_invalidation(),)+ }
            }

            #[inline(always)]
            fn shows_reads_as_sends(&self) -> bool {
                match self { $($(#[$cfg])* Self::$variant(view) => view.shows_reads_as_sends(),)+ }
            }

            fn is_unsolicited(&self) -> bool {
                match self { $($(#[$cfg])* Self::$variant(view) => view.is_unsolicited(),)+ }
            }

            fn sender_gid(&self) -> Option<Gid> {
                match self { $($(#[$cfg])* Self::$variant(view) => view.sender_gid(),)+ }
            }

            fn packet(&self) -> PacketInfo {
                match self { $($(#[$cfg])* Self::$variant(view) => view.packet(),)+ }
            }

            fn path_bits(&self) -> u8 {
                match self { $($(#[$cfg])* Self::$variant(view) => view.path_bits(),)+ }
            }

            fn tag_info(&self) -> Option<TagInfo> {
                match self { $($(#[$cfg])* Self::$variant(view) => view.tag_info(),)+ }
            }

            #[inline(always)]
            fn sender(&self) -> Sender {
                match self { $($(#[$cfg])* Self::$variant(view) => view.sender(),)+ }
            }

            #[inline(always)]
            fn decode(&self) -> Decoded {
                match self { $($(#[$cfg])* Self::$variant(view) => view.decode(),)+ }
            }
        }
    };
    // The queue, of a provider that is known. Unsafe: it isn't looked whether the queue is of this
    // one.
    (@same $queue:ident, $variant:ident) => {
        match $queue {
            Self::$variant(queue) => queue,
            #[allow(unreachable_patterns, reason = "with one provider there is no other")]
            _ => std::hint::unreachable_unchecked(),
        }
    };
    (@recv $queue:ident, $cursor:ident, $($(#[$cfg:meta])* $variant:ident),+) => {
        // SAFETY: passes everything on to the one provider that the object is of.
        unsafe impl RecvOps for $queue {
            type Cursor = $cursor;

            #[inline(always)]
            fn begin(&mut self) -> $cursor {
                match self { $($(#[$cfg])* Self::$variant(rq) => $cursor::$variant(rq.begin()),)+ }
            }

            #[inline(always)]
            unsafe fn post(
                &mut self,
                at: &mut $cursor,
                wr_id: u64,
                list: &[Sge],
            ) -> Result<u32, PostError> {
                match at {
                    $($(#[$cfg])* $cursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let rq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { rq.post(at, wr_id, list) }
                    })+
                }
            }

            #[inline(always)]
            unsafe fn own(&mut self, at: &$cursor, slot: u32, held: Held) {
                match at {
                    $($(#[$cfg])* $cursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let rq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { rq.own(at, slot, held) }
                    })+
                }
            }

            #[inline(always)]
            unsafe fn ring(&mut self, at: $cursor) {
                match at {
                    $($(#[$cfg])* $cursor::$variant(at) => {
                        // SAFETY: the cursor came from this queue, says the caller.
                        let rq = unsafe { any!(@same self, $variant) };
                        // SAFETY: the caller upholds this function's contract.
                        unsafe { rq.ring(at) }
                    })+
                }
            }
        }
    };
    (
        @queue $queue:ident, $cursor:ident, $member:ident, $ops:ident,
        $($(#[$cfg:meta])* $variant:ident = $provider:ty),+
    ) => {
        /// The posting side of a queue of any provider.
        #[derive(Debug)]
        pub enum $queue {
            $($(#[$cfg])* #[doc = concat!("Queue of [`", stringify!($variant), "`].")]
              $variant(<$provider as Provider>::$member),)+
        }

        /// A position in a queue of any provider.
        #[derive(Clone, Copy, Debug)]
        pub enum $cursor {
            $($(#[$cfg])* #[doc = concat!("Position in a queue of [`", stringify!($variant), "`].")]
              $variant(<<$provider as Provider>::$member as $ops>::Cursor),)+
        }
    };
}

any!(
    Mlx5 = Mlx5,
    Rxe = Rxe,
    // A third branch keeps cursors and views out of registers: of all that `Any` does on the data
    // path, most costs a tenth to a half more instructions (`cargo xtask counts`).
    #[cfg(feature = "any-siw")]
    Siw = Siw,
    #[cfg(feature = "any-rdmavt")]
    Rdmavt = Rdmavt,
    #[cfg(feature = "any-efa")]
    Efa = Efa,
);
