//! Parameters of objects to create.

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

/// Size of a completion queue entry, where the program may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CqeSize {
    /// The cache line of most processors.
    #[default]
    Bytes64,
    /// For processors with cache lines of 128 bytes: the second half of an entry is used.
    Bytes128,
}

/// Field of a received packet that a short entry has beside the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MiniCqe {
    /// Checksum.
    Checksum,
    /// RSS hash.
    Hash,
}

/// Parameters of a completion queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CqInit {
    /// Minimum capacity in completions.
    pub entries: u32,
    /// Completion vector: the device interrupt that delivers events.
    pub comp_vector: u32,
    /// Size of an entry. soft-RoCE ignores it and uses its kernel's size.
    pub cqe_size: CqeSize,
    /// The completion channel that gets the events.
    pub channel: Option<Arc<Channel>>,
    /// The device writes completions without checking for room.
    pub ignore_overrun: bool,
    /// The program itself keeps room for completions, as C programs do: the library does not count
    /// the queues that complete here.
    pub unchecked: bool,
    /// Allocator of rings and doorbell record; `None`: the open device's pool. soft-RoCE ignores
    /// it: its rings are the kernel's.
    pub allocator: Option<Arc<dyn QueueAllocator>>,
    /// The device may compress entries, with such short ones.
    pub compressed: Option<MiniCqe>,
    /// CQE padding: the device writes all 128 bytes of an entry, also the unused half.
    pub padded: bool,
    /// Completions of receives tell the GID of a sender without an address handle (EFA).
    pub sender_gids: bool,
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
            compressed: None,
            padded: false,
            sender_gids: false,
        }
    }

    /// True if the library counts the queues that complete here, because the ring may overrun.
    #[must_use]
    pub fn counts_queues(&self) -> bool {
        self.ignore_overrun && !self.unchecked
    }

    /// The kernel's creation flags, `IB_UVERBS_CQ_FLAGS_*`.
    #[must_use]
    pub fn flags(&self) -> u32 {
        if self.ignore_overrun { IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN } else { 0 }
    }

    /// Checks that the channel belongs to this open device.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]; the kernel itself would answer `EBADF`.
    pub fn check_context(&self, context: &Arc<ContextCore>) -> Result<(), Error> {
        match &self.channel {
            Some(channel) if !Arc::ptr_eq(channel.context(), context) => Err(Error::Invalid {
                verb: "create_cq",
                what: "completion channel",
                value: "of another context".to_owned(),
                why: "a completion queue and its channel must belong to the same open device",
            }),
            _ => Ok(()),
        }
    }
}

/// Parameters of a queue pair.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: Arc<PdCore>,
    /// Completion queue of sends.
    pub send_cq: Arc<CqCore>,
    /// Completion queue of receives.
    pub recv_cq: Arc<CqCore>,
    /// Shared receive queue that receives come from, if any.
    pub srq: Option<Arc<SrqCore>>,
    /// Sizes. With a shared receive queue the sizes of receives are 0.
    pub cap: QpCap,
    /// Operations that the send queue must support; `None`: all of the transport.
    pub send_ops: Option<SendOpSet>,
    /// Doorbell mode of the send queue.
    pub doorbell: DoorbellMode,
    /// DC target: access key that each packet must carry.
    pub dc_key: u64,
    /// DC initiator: streams, each of which fails alone.
    pub streams: Option<DciStreams>,
    /// The queues may have more work outstanding than their completion queues have room for.
    pub overcommit: bool,
    /// Sizes that C programs expect: gather lists of the requested length, even if a WQE has room
    /// for more, and the send ring that their library makes.
    pub exact_lists: bool,
    /// Allocator of rings and doorbell record; `None`: the open device's pool. soft-RoCE ignores
    /// it: its rings are the kernel's.
    pub allocator: Option<Arc<dyn QueueAllocator>>,
    /// The device may place short messages in their CQEs. The poller copies them to the buffer.
    pub scatter_to_cqe: bool,
    /// `IB_UVERBS_QP_CREATE_*` flags of raw packet queue pairs: keep the frame check sequence,
    /// strip VLAN tags, pad writes to cache lines.
    pub create_flags: u32,
    /// Receives may complete out of order (mlx5).
    pub out_of_order: bool,
    /// A WRITE with immediate data completes without consuming a receive (EFA). The program makes
    /// the completion queue as long as its peers' WRITEs need: nothing else keeps them from
    /// overrunning it.
    pub unsolicited_writes: bool,
    /// A WRITE may have inline data, also if the inline data of a SEND fits shorter work requests
    /// (EFA).
    pub inline_writes: bool,
    /// Service level of all sends (EFA).
    pub service_level: u8,
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
            unsolicited_writes: false,
            inline_writes: false,
            service_level: 0,
        }
    }

    /// Checks that all objects belong to this open device. Handles and user indexes are counted for
    /// each device file, so an object of another file would name a different object here.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] naming the first object of another context.
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
                    why: "all objects of a queue pair must belong to the same open device",
                });
            }
        }
        Ok(())
    }

    /// Builds the request for a queue pair of size `cap` in `context`. With a shared receive queue
    /// it requests 0 receives.
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

    /// Parts of the queue pair that the kernel created. `event_id` is the user handle of the
    /// request, `cap` the size of the rings. `memory` is kept until the kernel confirms the
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

/// Tag list of a tag-matching shared receive queue.
#[derive(Clone, Debug)]
pub struct TagsInit {
    /// Completion queue of messages and of changes to the list.
    pub cq: Arc<CqCore>,
    /// Maximum number of tags in the list.
    pub max_tags: u32,
    /// Maximum number of outstanding changes.
    pub max_changes: u32,
}

/// Parameters of a shared receive queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SrqInit {
    /// Protection domain of its buffers.
    pub pd: Arc<PdCore>,
    /// Maximum outstanding receives.
    pub max_wr: u32,
    /// Maximum SGEs of a receive.
    pub max_sge: u32,
    /// Limit event: raised once fewer receives are left; 0 disables it.
    pub limit: u32,
    /// XRC: the domain whose target queue pairs receive from it, and the completion queue.
    pub xrc: Option<(Arc<XrcdCore>, Arc<CqCore>)>,
    /// Tag list of a tag-matching queue. Excludes `xrc`.
    pub tags: Option<TagsInit>,
    /// Allocator of rings and doorbell record; `None`: the open device's pool. soft-RoCE ignores
    /// it: its rings are the kernel's.
    pub allocator: Option<Arc<dyn QueueAllocator>>,
}

impl SrqInit {
    /// 128 receives of one SGE each, no limit event.
    #[must_use]
    pub fn new(pd: Arc<PdCore>) -> Self {
        Self { pd, max_wr: 128, max_sge: 1, limit: 0, xrc: None, tags: None, allocator: None }
    }

    /// Checks that all objects belong to this open device; see [`QpInit::check_context`].
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
                    why: "all objects of a shared receive queue must belong to the same open \
                          device",
                });
            }
        }
        Ok(())
    }
}

/// Parameters of a work queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WqInit {
    /// Protection domain of its buffers.
    pub pd: Arc<PdCore>,
    /// Completion queue.
    pub cq: Arc<CqCore>,
    /// Maximum outstanding receives.
    pub max_wr: u32,
    /// Maximum SGEs of a receive.
    pub max_sge: u32,
    /// The device moves the outer VLAN tag from the packet to the completion.
    pub strips_vlan: bool,
}

impl WqInit {
    /// 128 receives of one SGE each; VLAN tags stay in the packets.
    #[must_use]
    pub fn new(pd: Arc<PdCore>, cq: Arc<CqCore>) -> Self {
        Self { pd, cq, max_wr: 128, max_sge: 1, strips_vlan: false }
    }

    /// Checks that all objects belong to this open device; see [`QpInit::check_context`].
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
                why: "all objects of a work queue must belong to the same open device",
            }),
        }
    }
}
