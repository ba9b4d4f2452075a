//! What objects are made from.

use std::any::Any;
use std::sync::Arc;

use uverbs_kernel_abi::cq::IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
use uverbs_kernel_abi::qp::ib_uverbs_qp_cap;

use crate::attr::{DciStreams, DoorbellMode, QpCap, QpType, SendOpSet};
use crate::commands::qp::{CreateQp, QpCreated};
use crate::error::Error;
use crate::memory::allocator::QueueAllocator;
use crate::objects::channel::Channel;
use crate::objects::context::{ContextCore, unique_id};
use crate::objects::cq::CqCore;
use crate::objects::pd::PdCore;
use crate::objects::qp::QpParts;
use crate::objects::srq::SrqCore;
use crate::objects::xrcd::XrcdCore;
use crate::queues::shared::QpShared;

/// Bytes of a completion queue's entries, where the program may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CqeSize {
    /// A cache line of most processors.
    #[default]
    Bytes64,
    /// For processors with lines of 128 bytes: the described bytes are the second half.
    Bytes128,
}

/// What a completion queue is made from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CqInit {
    /// Completions it must hold.
    pub entries: u32,
    /// Completion vector: which of the device's interrupts events come by.
    pub comp_vector: u32,
    /// Bytes of an entry. soft-RoCE's are its kernel's, whatever is asked for.
    pub cqe_size: CqeSize,
    /// The completion channel that it reports to.
    pub channel: Option<Arc<Channel>>,
    /// The device doesn't look whether there is room for a completion.
    pub ignore_overrun: bool,
    /// The program itself sees to it that what completes has room, as C's do: the queues that
    /// complete to it aren't counted.
    pub unchecked: bool,
    /// Who gives rings and doorbell record their memory; `None` is the open device's pool. Of
    /// soft-RoCE the kernel does.
    pub allocator: Option<Arc<dyn QueueAllocator>>,
    /// The device may compress entries.
    pub compressed: bool,
    /// The device writes entries of 128 bytes whole, also the half that says nothing.
    pub padded: bool,
}

impl CqInit {
    /// At least `entries` completions, vector 0, entries of 64 bytes, no channel.
    #[must_use]
    pub fn new(entries: u32) -> Self {
        Self {
            entries,
            comp_vector: 0,
            cqe_size: CqeSize::default(),
            channel: None,
            ignore_overrun: false,
            unchecked: false,
            allocator: None,
            compressed: false,
            padded: false,
        }
    }

    /// Whether the queues that complete to it are counted, since it may overrun.
    #[must_use]
    pub fn counts_queues(&self) -> bool {
        self.ignore_overrun && !self.unchecked
    }

    /// The kernel's flags for it, `IB_UVERBS_CQ_FLAGS_*`.
    #[must_use]
    pub fn flags(&self) -> u32 {
        if self.ignore_overrun { IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN } else { 0 }
    }

    /// Whether the channel is of this open device.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]; the kernel would say `EBADF`.
    pub fn check_context(&self, context: &Arc<ContextCore>) -> Result<(), Error> {
        match &self.channel {
            Some(channel) if !Arc::ptr_eq(channel.context(), context) => Err(Error::Invalid {
                verb: "create_cq",
                what: "completion channel",
                value: "of another context".to_owned(),
                why: "a queue and its channel are made from the same open device",
            }),
            _ => Ok(()),
        }
    }
}

/// What a queue pair is made from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: Arc<PdCore>,
    /// Where completions of sends go.
    pub send_cq: Arc<CqCore>,
    /// Where completions of receives go.
    pub recv_cq: Arc<CqCore>,
    /// Where receives come from, in place of a queue of its own.
    pub srq: Option<Arc<SrqCore>>,
    /// Sizes. With a shared receive queue those of receives are 0.
    pub cap: QpCap,
    /// What the send queue is made for; `None` is all that the transport has.
    pub send_ops: Option<SendOpSet>,
    /// How the send queue rings.
    pub doorbell: DoorbellMode,
    /// What a target of dynamic connections asks each packet for.
    pub dc_key: u64,
    /// Of an initiator of dynamic connections: streams that fail one by one.
    pub streams: Option<DciStreams>,
    /// It may have more work outstanding than its completion queues have room for.
    pub overcommit: bool,
    /// Gather lists may be as long as was asked for, and no longer, whatever a WQE has room for: as
    /// C programs know it.
    pub exact_lists: bool,
    /// Who gives rings and doorbell record their memory; `None` is the open device's pool. Of
    /// soft-RoCE the kernel does.
    pub allocator: Option<Arc<dyn QueueAllocator>>,
    /// The device may put short messages into their completions, from where the polling side copies
    /// them.
    pub scatter_to_cqe: bool,
    /// `IB_UVERBS_QP_CREATE_*`, of raw packets: check sequences in the buffer, VLAN tags out of it,
    /// whole lines.
    pub create_flags: u32,
    /// Receives may complete in another order than they were posted in (mlx5).
    pub out_of_order: bool,
}

impl QpInit {
    /// A reliable connection of the default sizes.
    #[must_use]
    pub fn new(pd: Arc<PdCore>, send_cq: Arc<CqCore>, recv_cq: Arc<CqCore>) -> Self {
        Self {
            qp_type: QpType::Rc,
            pd,
            send_cq,
            recv_cq,
            srq: None,
            cap: QpCap::default(),
            send_ops: None,
            doorbell: DoorbellMode::default(),
            dc_key: 0,
            streams: None,
            overcommit: false,
            exact_lists: false,
            allocator: None,
            scatter_to_cqe: false,
            create_flags: 0,
            out_of_order: false,
        }
    }

    /// Whether everything is of this open device. Handles and user indexes are counted per device
    /// file: one of another file names something else there.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for the first that isn't.
    pub fn check_context(&self, context: &Arc<ContextCore>) -> Result<(), Error> {
        let srq = self.srq.as_ref().map(|srq| ("shared receive queue", srq.pd().context()));
        let others = [
            ("protection domain", self.pd.context()),
            ("send completion queue", self.send_cq.context()),
            ("receive completion queue", self.recv_cq.context()),
        ];
        for (what, of) in others.into_iter().chain(srq) {
            if !Arc::ptr_eq(of, context) {
                return Err(Error::Invalid {
                    verb: "create_qp",
                    what,
                    value: "of another context".to_owned(),
                    why: "all objects of a queue pair are made from the same open device",
                });
            }
        }
        Ok(())
    }

    /// Request for a queue pair of the size `cap`, in `context`. With a shared receive queue the
    /// kernel is asked for no receives.
    #[must_use]
    pub fn request<'a>(&self, cap: &QpCap, context: &'a ContextCore) -> CreateQp<'a> {
        let has_recv = self.srq.is_none();
        CreateQp {
            pd: self.pd.handle(),
            send_cq: self.send_cq.handle(),
            recv_cq: (self.qp_type != QpType::XrcIni).then(|| self.recv_cq.handle()),
            srq: self.srq.as_ref().map(|srq| srq.handle()),
            user_handle: unique_id(),
            qp_type: self.qp_type.raw(),
            cap: ib_uverbs_qp_cap {
                max_send_wr: cap.max_send_wr,
                max_recv_wr: if has_recv { cap.max_recv_wr } else { 0 },
                max_send_sge: cap.max_send_sge,
                max_recv_sge: if has_recv { cap.max_recv_sge } else { 0 },
                max_inline_data: cap.max_inline_data,
            },
            create_flags: self.create_flags,
            event_fd: context.event_file(),
        }
    }

    /// Parts of the queue pair that the kernel made. `event_id` is the request's user handle,
    /// `cap` the size that the rings have, `memory` is kept until the kernel confirms the
    /// destruction.
    #[must_use]
    pub fn parts(
        &self,
        created: &QpCreated,
        event_id: u64,
        cap: QpCap,
        shared: &Arc<QpShared>,
        memory: Box<dyn Any + Send + Sync>,
    ) -> QpParts {
        QpParts {
            overcommit: self.overcommit,
            handle: created.handle,
            qpn: created.qpn,
            event_id,
            cap,
            pd: Arc::clone(&self.pd),
            send_cq: Arc::clone(&self.send_cq),
            recv_cq: Arc::clone(&self.recv_cq),
            srq: self.srq.clone(),
            shared: Arc::clone(shared),
            memory,
        }
    }
}

/// The list of a shared receive queue that matches tags.
#[derive(Clone, Debug)]
pub struct TagsInit {
    /// Where all completions go: of messages, and of changes of the list.
    pub cq: Arc<CqCore>,
    /// Tags that it has room for.
    pub max_tags: u32,
    /// Changes outstanding.
    pub max_changes: u32,
}

/// What a shared receive queue is made from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SrqInit {
    /// Protection domain of its buffers.
    pub pd: Arc<PdCore>,
    /// Receives outstanding.
    pub max_wr: u32,
    /// Entries in a receive's scatter list.
    pub max_sge: u32,
    /// Fewer receives left than this raise an event; 0 never.
    pub limit: u32,
    /// For XRC: the domain whose targets receive from it, and where completions go.
    pub xrc: Option<(Arc<XrcdCore>, Arc<CqCore>)>,
    /// For tags: its list. Not of XRC.
    pub tags: Option<TagsInit>,
    /// Who gives rings and doorbell record their memory; `None` is the open device's pool. Of
    /// soft-RoCE the kernel does.
    pub allocator: Option<Arc<dyn QueueAllocator>>,
}

impl SrqInit {
    /// 128 receives of one piece each, without a limit.
    #[must_use]
    pub fn new(pd: Arc<PdCore>) -> Self {
        Self { pd, max_wr: 128, max_sge: 1, limit: 0, xrc: None, tags: None, allocator: None }
    }

    /// Whether everything is of this open device, as for [`QpInit::check_context`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub fn check_context(&self, context: &Arc<ContextCore>) -> Result<(), Error> {
        let xrc = self.xrc.iter().flat_map(|(domain, cq)| {
            [("XRC domain", domain.context()), ("completion queue", cq.context())]
        });
        let tags = self.tags.iter().map(|tags| ("completion queue", tags.cq.context()));
        let pd = [("protection domain", self.pd.context())];
        for (what, of) in pd.into_iter().chain(xrc).chain(tags) {
            if !Arc::ptr_eq(of, context) {
                return Err(Error::Invalid {
                    verb: "create_srq",
                    what,
                    value: "of another context".to_owned(),
                    why: "a shared receive queue is of the open device whose queue pairs use it",
                });
            }
        }
        Ok(())
    }
}

/// What a work queue is made from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WqInit {
    /// Protection domain of its buffers.
    pub pd: Arc<PdCore>,
    /// Where completions go.
    pub cq: Arc<CqCore>,
    /// Receives outstanding.
    pub max_wr: u32,
    /// Entries in a receive's scatter list.
    pub max_sge: u32,
    /// The outer VLAN tag goes into the completion, and not into the buffer.
    pub strips_vlan: bool,
}

impl WqInit {
    /// 128 receives of one piece each, with VLAN tags.
    #[must_use]
    pub fn new(pd: Arc<PdCore>, cq: Arc<CqCore>) -> Self {
        Self { pd, cq, max_wr: 128, max_sge: 1, strips_vlan: false }
    }

    /// Whether everything is of this open device, as for [`QpInit::check_context`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub fn check_context(&self, context: &Arc<ContextCore>) -> Result<(), Error> {
        let all =
            [("protection domain", self.pd.context()), ("completion queue", self.cq.context())];
        match all.into_iter().find(|(_, of)| !Arc::ptr_eq(of, context)) {
            None => Ok(()),
            Some((what, _)) => Err(Error::Invalid {
                verb: "create_wq",
                what,
                value: "of another context".to_owned(),
                why: "all objects of a work queue are made from the same open device",
            }),
        }
    }
}
