//! A provider of one's own: ConnectX's, whose send queues count what they post and ring.
//!
//! `cargo run --example toy_provider`
//!
//! # Safety
//!
//! Safe posts lean on what a provider answers, so its traits are unsafe. Everything here is handed
//! to the provider below and comes from there; the counts are ours, and nothing leans on them.
#![allow(unsafe_code, reason = "implements a provider's traits, and forwards their unsafe methods")]

mod common;

use std::sync::Arc;

use common::{Outcome, PATIENCE, Table};
use uverbs::{Errno, Error, Local, Mlx5, PostError, Rekey};
use uverbs_core::attr::{AhAttr, DeviceAttr, PortAttr};
use uverbs_core::memory::registered::Held;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::{
    ContextOps, CqInit, NewQp, NewSrq, Provider, QpInit, SendOps, SrqInit,
};
use uverbs_core::queues::work::{Data, Destination, SendOp, Wr};

// ANCHOR: provider
/// The provider: a name, and which types its parts have. Only the send queue is ours.
#[derive(Debug)]
enum Counting {}

// SAFETY: the parts of a ConnectX's provider, which belong together; ours hand everything on.
unsafe impl Provider for Counting {
    type Context = CountingContext;
    type Cq = <Mlx5 as Provider>::Cq;
    type Sq = CountingSq;
    type Rq = <Mlx5 as Provider>::Rq;
    type Srq = <Mlx5 as Provider>::Srq;
    type Ah = <Mlx5 as Provider>::Ah;

    const NAME: &'static str = "counting";

    fn open(core: Arc<ContextCore>) -> Result<CountingContext, Error> {
        Ok(CountingContext { below: Mlx5::open(core)? })
    }
}
// ANCHOR_END: provider

// ANCHOR: context
/// An open device: what makes the objects.
#[derive(Debug)]
struct CountingContext {
    below: <Mlx5 as Provider>::Context,
}

// SAFETY: each core and its other side come from one call to the provider below, once.
unsafe impl ContextOps<Counting> for CountingContext {
    fn core(&self) -> &Arc<ContextCore> {
        self.below.core()
    }

    fn create_qp(&self, init: &QpInit) -> Result<NewQp<Counting>, Error> {
        let NewQp { core, sq, rq } = self.below.create_qp(init)?;
        let sq = CountingSq { below: sq, posted: 0, rung: 0 };
        Ok(NewQp { core, sq, rq })
    }

    fn create_srq(&self, init: &SrqInit) -> Result<NewSrq<Counting>, Error> {
        let NewSrq { core, srq } = self.below.create_srq(init)?;
        Ok(NewSrq { core, srq })
    }

    fn create_cq(&self, init: &CqInit) -> Result<(Arc<CqCore>, <Counting as Provider>::Cq), Error> {
        self.below.create_cq(init)
    }
    // ANCHOR_END: context

    fn query_device(&self) -> Result<DeviceAttr, Error> {
        self.below.query_device()
    }

    fn device_attr(&self) -> &DeviceAttr {
        self.below.device_attr()
    }

    fn comp_vectors(&self) -> u32 {
        self.below.comp_vectors()
    }

    fn query_port(&self, port: u8) -> Result<PortAttr, Error> {
        self.below.query_port(port)
    }

    fn alloc_pd(&self) -> Result<Arc<PdCore>, Error> {
        self.below.alloc_pd()
    }

    fn create_ah(
        &self,
        pd: &Arc<PdCore>,
        attr: &AhAttr,
    ) -> Result<<Counting as Provider>::Ah, Error> {
        self.below.create_ah(pd, attr)
    }
}

// ANCHOR: queue
/// A send queue that counts.
#[derive(Debug)]
struct CountingSq {
    below: <Mlx5 as Provider>::Sq,
    posted: u64,
    rung: u64,
}

/// A tentative position. What was written and isn't rung has not happened, so it is counted here:
/// a cursor that is dropped takes its count with it.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    below: <<Mlx5 as Provider>::Sq as SendOps>::Cursor,
    written: u64,
}

// SAFETY: slots, buffers and doorbells are the queue's below.
unsafe impl SendOps for CountingSq {
    type Cursor = Cursor;
    type Ah = <Mlx5 as Provider>::Ah;

    fn begin(&mut self) -> Cursor {
        Cursor { below: self.below.begin(), written: 0 }
    }

    unsafe fn post(
        &mut self,
        at: &mut Cursor,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise, and the cursor came from the queue below.
        let slot = unsafe { self.below.post(&mut at.below, wr, op, data) }?;
        at.written += 1;
        Ok(slot)
    }

    unsafe fn ring(&mut self, at: Cursor) {
        // SAFETY: as above.
        unsafe { self.below.ring(at.below) };
        if at.written > 0 {
            (self.posted, self.rung) = (self.posted + at.written, self.rung + 1);
        }
    }
    // ANCHOR_END: queue

    unsafe fn post_to(
        &mut self,
        at: &mut Cursor,
        wr: Wr,
        op: SendOp,
        to: Destination<'_, Self::Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise, and the cursor came from the queue below.
        let slot = unsafe { self.below.post_to(&mut at.below, wr, op, to, data) }?;
        at.written += 1;
        Ok(slot)
    }

    unsafe fn rekey(&mut self, at: &mut Cursor, wr: Wr, op: &Rekey) -> Result<u32, PostError> {
        // SAFETY: as above.
        let slot = unsafe { self.below.rekey(&mut at.below, wr, op) }?;
        at.written += 1;
        Ok(slot)
    }

    unsafe fn own(&mut self, at: &Cursor, slot: u32, held: Held) {
        // SAFETY: as above.
        unsafe { self.below.own(&at.below, slot, held) }
    }

    fn refused(&self) -> Option<Errno> {
        self.below.refused()
    }

    fn enable(&mut self, on: bool) {
        self.below.enable(on);
    }

    unsafe fn reset(&mut self) {
        // SAFETY: as above.
        unsafe { self.below.reset() }
    }
}

fn main() -> Outcome {
    // A software HCA speaks ConnectX's interface, whichever device the machine has.
    let context = uverbs::device("softhca0")?.open_as::<Counting>()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(256)?;
    let mut client = context.queue_pair(&pd, &cq).build()?;
    let mut server = context.queue_pair(&pd, &cq).build()?;
    let client_at = client.prepare(&Local::default())?;
    let server_at = server.prepare(&Local::default())?;
    server.connect(&client_at)?;
    client.connect(&server_at)?;
    let slab = pd.slab(64, 8)?;

    let mut table = Table::new("batch | work requests | doorbells");
    for (name, count, ring) in [("rung", 3, true), ("dropped", 2, false), ("empty", 0, true)] {
        for id in 0..if ring { count } else { 0 } {
            server.post_recv(id, slab.take().ok_or("no free frame")?)?;
        }
        let mut batch = client.batch();
        for id in 0..count {
            batch.send(id, slab.take().ok_or("no free frame")?)?;
        }
        if ring {
            batch.ring();
            for _ in 0..2 * count {
                cq.wait(PATIENCE)?.result?;
            }
        }
        let queue = client.send_queue().provider();
        table.row(&[&name, &queue.posted, &queue.rung]);
    }
    table.print();
    Ok(())
}
