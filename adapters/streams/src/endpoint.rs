//! Queue pair, buffers and private data of a stream's end, and its connection.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use uverbs::cm::{Id, Param};
use uverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, Device, Error, ExposedMemory,
    ProtectionDomain, QueuePair, RecvBatch, Slab,
};

use super::incoming::Incoming;
use super::wire::{HELLO_LEN, Hello, MAPPING_LEN, PLACE_LEN, RemoteMemory, SLOTS};

/// Bytes inline that the protocol needs itself: an entry of the mappings.
const INLINE: u32 = 24;
/// Work requests of a queue, at least (`RS_QP_MIN_SIZE`).
const FEWEST: u32 = 16;
/// Extra receives on iWARP, for messages that carry no bytes (credits, shutdown). There a message
/// that finds no receive ends the connection, and the peer's credits don't count these.
const SPARE: u32 = 8;
/// Bytes of a message where there is no immediate data, in the sender's order (`RS_MSG_SIZE`).
pub(super) const MESSAGE_LEN: usize = 4;

/// Work requests that are kept for credits, shutdown and keep-alives (`RS_QP_CTRL_SIZE`).
pub(super) const CONTROLS: u32 = 4;
/// Completions that are looked at in one go.
pub(super) const BURST: usize = 16;

/// Sizes of buffers in bytes and of queues in messages, before the device's limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) send_buffer: u32,
    pub(super) recv_buffer: u32,
    pub(super) sends: u16,
    pub(super) recvs: u16,
    pub(super) inline: u32,
    pub(super) mappings: u16,
}

/// An open device, for any number of streams.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) context: Context,
    pub(super) pd: ProtectionDomain,
    /// Process that opened the device. A forked child opens its own.
    process: u32,
}

/// Open devices of the streams of this process: each open device costs descriptors.
static OPEN: Mutex<Vec<Weak<Domain>>> = Mutex::new(Vec::new());

impl Domain {
    /// Returns the open device of an id's address, or opens it.
    pub(super) fn of(id: &Id) -> Result<Arc<Self>, Error> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|domain| domain.strong_count() > 0);
        let (device, process) = (id.device()?, std::process::id());
        let known = open.iter().filter_map(Weak::upgrade).find(|domain| {
            domain.process == process
                && !domain.context.is_gone()
                && is_same(domain.context.device(), &device)
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let context = device.open()?;
        let pd = context.alloc_pd()?;
        let domain = Arc::new(Self { context, pd, process });
        open.push(Arc::downgrade(&domain));
        Ok(domain)
    }
}

/// True for two handles of one device: of one software HCA, or of the kernel's device with a node.
fn is_same(one: &Device, other: &Device) -> bool {
    let is_kernels = !one.record().uverbs_name.is_empty();
    Arc::ptr_eq(one.source(), other.source()) || is_kernels && one.record() == other.record()
}

/// State of an end without its connection.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) domain: Arc<Domain>,
    pub(super) cq: CompletionQueue,
    pub(super) channel: CompletionChannel,
    pub(super) ring: ExposedMemory,
    pub(super) buffer: ExposedMemory,
    pub(super) list: ExposedMemory,
    pub(super) incoming: Incoming,
    /// Receive buffers for messages of a peer on iWARP, which lacks immediate data: each message is
    /// a SEND behind its WRITE.
    pub(super) messages: Option<Slab>,
    /// Messages that the send queue has room for, and receives.
    pub(super) sends: u32,
    recvs: u16,
    spare: u32,
    pub(super) inline: u32,
    pub(super) mappings: u16,
}

impl Parts {
    /// Makes the parts and a queue pair, which is in RESET.
    pub(super) fn new(domain: &Arc<Domain>, sizes: &Sizes) -> Result<(Self, QueuePair), Error> {
        let Domain { context, pd, .. } = &**domain;
        let is_iwarp = context.device().is_iwarp();
        let spare = if is_iwarp { SPARE } else { 0 };
        let most = context.query_device()?.max_qp_wr.min(0xfffe);
        let most = most.saturating_sub(spare).max(FEWEST);
        let sends = u32::from(sizes.sends).clamp(FEWEST, most);
        let recvs = u32::from(sizes.recvs).clamp(FEWEST, most);
        let channel = context.create_comp_channel()?;
        let cq = context.completion_queue(sends + recvs + spare).channel(&channel).build()?;
        let qp = context
            .queue_pair(pd, &cq)
            .max_send_wr(sends)
            .max_recv_wr(recvs + spare)
            .max_inline_data(sizes.inline.max(INLINE))
            .build()?;
        let inline = qp.cap().max_inline_data.min(sizes.inline.max(INLINE));
        // Receives that are posted, and receives whose completions are being handled.
        let frames = (recvs + spare) as usize + BURST;
        let messages = is_iwarp.then(|| pd.slab(MESSAGE_LEN, frames)).transpose()?;
        let sends = if is_iwarp { sends / 2 } else { sends };
        let len = sizes.recv_buffer & !1;
        let list = SLOTS * PLACE_LEN + usize::from(sizes.mappings) * MAPPING_LEN;
        let parts = Self {
            domain: Arc::clone(domain),
            cq,
            channel,
            ring: pd.expose(sizes.send_buffer as usize, AccessFlags::empty())?,
            buffer: pd.expose(len as usize, AccessFlags::REMOTE_WRITE)?,
            list: pd.expose(list, AccessFlags::REMOTE_WRITE)?,
            incoming: Incoming::new(len, recvs as u16),
            messages,
            sends,
            recvs: recvs as u16,
            spare,
            inline,
            mappings: sizes.mappings,
        };
        debug_assert!(sends > CONTROLS);
        Ok((parts, qp))
    }

    /// Posts the receives: the queue pair is in INIT.
    pub(super) fn expect(&self, qp: &mut QueuePair) -> Result<(), Error> {
        expect(qp.recv_batch(), self.messages.as_ref(), u32::from(self.recvs) + self.spare)
    }

    /// Connection parameters of this end (`rs_do_connect`): no READs in either direction, and
    /// unlimited retries after receiver-not-ready.
    pub(super) fn param(&self) -> Param {
        Param {
            private_data: self.hello().to_bytes().to_vec(),
            responder_resources: Some(0),
            // iWARP's first packet may have to be a READ (`rs_do_connect`).
            initiator_depth: Some(self.messages.is_some().into()),
            retry_count: 7,
            rnr_retry_count: 7,
            ..Param::default()
        }
    }

    fn hello(&self) -> Hello {
        let first = self.incoming.first_half();
        let at = self.buffer.remote(first.at as usize);
        Hello {
            big_endian: cfg!(target_endian = "big"),
            credits: self.recvs,
            mappings: self.mappings,
            list: RemoteMemory { addr: self.list.addr(), key: self.list.rkey(), len: SLOTS as u32 },
            data: RemoteMemory { addr: at.addr, key: at.rkey, len: first.len },
        }
    }
}

/// Posts receives: they take messages, and no bytes.
pub(super) fn expect(
    mut batch: RecvBatch<'_>,
    messages: Option<&Slab>,
    count: u32,
) -> Result<(), Error> {
    for _ in 0..count {
        match messages.map(Slab::take) {
            None => batch.post_empty(0)?,
            Some(Some(frame)) => batch.post(0, frame)?,
            // There is one for each receive; the rest comes with the next completions.
            Some(None) => break,
        }
    }
    batch.ring();
    Ok(())
}

/// Parses the peer's hello from its private data.
pub(super) fn hello(private_data: &[u8]) -> io::Result<Hello> {
    let len = private_data.len().min(HELLO_LEN);
    Ok(Hello::parse(&private_data[..len])?)
}
