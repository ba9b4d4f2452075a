//! Our half: a queue pair that is its own peer, on the preloaded device, opened like a kernel's.
//!
//! # Safety
//!
//! Work requests name the memory of their side alone, which outlives them: each round polls all
//! completions.
#![allow(unsafe_code, reason = "raw posts are what is measured")]

use std::hint::black_box;

use uverbs::provider::Provider;
use uverbs::raw::{Data, SendOp, Sge};
use uverbs::transport::{Srd, Transport};
use uverbs::{
    AccessFlags, Batch, CompletionQueue, Destination, Efa, Error, ExposedMemory, Local, PostError,
    QueuePair, QueuePairBuilder, Rc, Rdmavt, Wr,
};

use crate::{OPS, Step};

/// Bytes of a message; places in the memory, used in turn.
const PAYLOAD: u32 = 64;
const LINES: u64 = 64;
const INLINE: usize = 8;
const QKEY: u32 = 0x1111_1111;

/// Provider whose rings are measured.
pub(crate) trait Rings: Provider {
    type Transport: Transport;
    /// Address of the peer, if posts name it.
    type To;

    /// Creates a queue pair, and connects it to itself.
    fn queue_pair(builder: QueuePairBuilder<Self>) -> Result<Connected<Self>, Error>;

    /// Adds a SEND.
    ///
    /// # Safety
    ///
    /// The contract of `RawBatch`.
    unsafe fn send(
        batch: &mut Batch<'_, Self, Self::Transport>,
        id: u64,
        data: Data<'_>,
        to: &Self::To,
    ) -> Result<(), PostError>;
}

type Connected<P> = (QueuePair<P, <P as Rings>::Transport>, <P as Rings>::To);

impl Rings for Rdmavt {
    type Transport = Rc;
    type To = ();

    fn queue_pair(builder: QueuePairBuilder<Self>) -> Result<Connected<Self>, Error> {
        let mut qp = builder.max_inline_data(0).build()?;
        qp.prepare(&Local::default())?;
        qp.connect_to_self()?;
        Ok((qp, ()))
    }

    #[inline(always)]
    unsafe fn send(
        batch: &mut Batch<'_, Self>,
        id: u64,
        data: Data<'_>,
        (): &(),
    ) -> Result<(), PostError> {
        // SAFETY: by the contract of `send`.
        unsafe { batch.raw().post(Wr::new(id), SendOp::Send, data) }
    }
}

impl Rings for Efa {
    type Transport = Srd;
    type To = Destination<Self>;

    fn queue_pair(builder: QueuePairBuilder<Self>) -> Result<Connected<Self>, Error> {
        let mut qp = builder.max_inline_data(INLINE as u32).srd().build()?;
        let local = Local { qkey: QKEY, psn: Some(0), rnr_retry: 6, ..Local::default() };
        let at = qp.bring_up(&local)?;
        let to = qp.destination(&at)?;
        Ok((qp, to))
    }

    #[inline(always)]
    unsafe fn send(
        batch: &mut Batch<'_, Self, Srd>,
        id: u64,
        data: Data<'_>,
        to: &Destination<Self>,
    ) -> Result<(), PostError> {
        // SAFETY: by the contract of `send`.
        unsafe { batch.raw().post_to(Wr::new(id), SendOp::Send, data, to) }
    }
}

/// Queue pair with its completion queues.
pub(crate) struct Side<P: Rings> {
    qp: QueuePair<P, P::Transport>,
    to: P::To,
    sends: CompletionQueue<P>,
    recvs: CompletionQueue<P>,
    addr: u64,
    lkey: u32,
    bytes: [u8; INLINE],
    id: u64,
    _memory: ExposedMemory,
}

impl<P: Rings> Side<P> {
    /// On the first device, as in C.
    pub(crate) fn new() -> Result<Self, Error> {
        let missing = || Error::NoSuchDevice { name: "any".to_owned(), available: Vec::new() };
        let device = uverbs::devices()?.into_iter().next().ok_or_else(missing)?;
        let context = device.open_as::<P>()?;
        let pd = context.alloc_pd()?;
        let depth = OPS as u32;
        let (sends, recvs) = (context.create_cq(2 * depth)?, context.create_cq(2 * depth)?);
        let builder = context.queue_pair(&pd, &sends).recv_cq(&recvs);
        let (qp, to) = P::queue_pair(builder.max_send_wr(depth).max_recv_wr(depth))?;
        let memory = pd.expose((LINES * u64::from(PAYLOAD)) as usize, AccessFlags::empty())?;
        Ok(Self {
            qp,
            to,
            sends,
            recvs,
            addr: memory.remote(0).addr,
            lkey: memory.sge(0, PAYLOAD).lkey,
            bytes: [1; INLINE],
            id: 0,
            _memory: memory,
        })
    }

    #[inline(never)]
    fn send<const N: usize, const INLINED: bool>(&mut self, count: usize) {
        let Self { qp, to, addr, lkey, bytes, .. } = self;
        let queue = qp.send_queue();
        let mut id = self.id;
        for _ in 0..count / N {
            let mut batch = queue.batch();
            for _ in 0..N {
                let addr = *addr + id % LINES * u64::from(PAYLOAD);
                let data = match INLINED {
                    true => Data::Inline(black_box(bytes)),
                    false => Data::One(Sge { addr, len: PAYLOAD, lkey: *lkey }),
                };
                // SAFETY: see the file's text.
                unsafe { P::send(&mut batch, id, data, to) }.expect("room");
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    #[inline(never)]
    fn receive<const N: usize>(&mut self, count: usize) {
        let (addr, lkey) = (self.addr, self.lkey);
        let queue = self.qp.recv_queue();
        let mut id = self.id;
        for _ in 0..count / N {
            let mut batch = queue.batch();
            for _ in 0..N {
                let addr = addr + id % LINES * u64::from(PAYLOAD);
                // SAFETY: see the file's text.
                unsafe { batch.post_raw(id, &[Sge { addr, len: PAYLOAD, lkey }]) }.expect("room");
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    /// Carries out a step for `count` work requests. Returns the number of completions.
    pub(crate) fn step(&mut self, step: Step, count: usize) -> usize {
        match step {
            Step::Recv1 => self.receive::<1>(count),
            Step::Recv32 => self.receive::<32>(count),
            Step::Send1 => self.send::<1, false>(count),
            Step::Send32 => self.send::<32, false>(count),
            Step::Inline1 => self.send::<1, true>(count),
            Step::Inline32 => self.send::<32, true>(count),
            Step::Sends1 | Step::Empty => return poll::<P, 1>(&mut self.sends, count),
            Step::Sends16 => return poll::<P, 16>(&mut self.sends, count / 16),
            Step::Recvs1 => return poll::<P, 1>(&mut self.recvs, count),
            Step::Recvs16 => return poll::<P, 16>(&mut self.recvs, count / 16),
        }
        0
    }
}

/// Polls up to `N` completions `polls` times. Reads the fields that a program reads.
#[inline(never)]
fn poll<P: Rings, const N: usize>(cq: &mut CompletionQueue<P>, polls: usize) -> usize {
    let (mut sum, mut seen) = (0, 0);
    for _ in 0..polls {
        seen += cq.poll_with(N, |completion| {
            assert!(completion.result().is_ok(), "a completion failed");
            sum += completion.id();
            if completion.is_recv() {
                sum += u64::from(completion.byte_len());
            }
        });
    }
    black_box(sum);
    seen
}
