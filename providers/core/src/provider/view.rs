//! Completions as a provider's poller returns them.

use std::fmt::Debug;

use crate::attr::Gid;
use crate::memory::frame::Frame;
use crate::queues::completion::{Completed, Failure, Sender};
use crate::queues::tag_work::TagInfo;

/// A polled completion. Its work request is retired; its CQE is not yet back with the device.
#[derive(Debug)]
pub struct Polled<V> {
    /// The queue entry, decoded on demand.
    pub view: V,
    /// The work request's number.
    pub wr_id: u64,
    /// The buffer that was posted with it.
    pub frame: Option<Frame>,
}

/// A CQE, decoded on demand.
pub trait View: Debug + Copy {
    /// Completed operation, or its failure.
    fn result(&self) -> Result<Completed, Failure>;

    /// True if it completes a receive, successful or failed.
    fn is_recv(&self) -> bool;

    /// Bytes received, read, or returned by an atomic; 0 for SEND and WRITE.
    fn byte_len(&self) -> u32;

    /// Immediate data of a receive in host byte order, if the message carried some.
    fn immediate(&self) -> Option<u32>;

    /// Device clock at completion, in ticks; `None` for a failure, or if the device has no
    /// timestamps.
    fn timestamp(&self) -> Option<u64>;

    /// Remote key that a received SEND invalidated.
    fn invalidated(&self) -> Option<u32>;

    /// Local queue pair number; for a received raw packet the tag of its flow rule.
    fn qpn(&self) -> u32;

    /// User index of the queue pair (mlx5). Completions of raw packets have no queue pair number.
    fn user_index(&self) -> Option<u32> {
        None
    }

    /// `pkey_index` of a receive, for C programs. mlx5 returns the low half of the field that holds
    /// immediate data, invalidated keys and a datagram's P_Key (rdma-core `cq.c:handle_responder`).
    fn pkey_index(&self) -> u16 {
        0
    }

    /// Opcode of the WQE of a successful send (mlx5).
    fn sent_opcode(&self) -> Option<u8> {
        None
    }

    /// True if it completes a send with immediate data.
    fn sent_immediate(&self) -> bool {
        false
    }

    /// Returns true for a local invalidation whose completion differs from a bind's. On mlx5 both
    /// complete alike.
    fn is_local_invalidation(&self) -> bool {
        false
    }

    /// True if C programs expect a READ to complete as a SEND (EFA: rdma-core
    /// `verbs.c:efa_wc_read_opcode`).
    #[inline(always)]
    fn shows_reads_as_sends(&self) -> bool {
        false
    }

    /// True if it completes a WRITE with immediate data that consumed no receive (EFA).
    fn is_unsolicited(&self) -> bool {
        false
    }

    /// GID of a receive's sender, if the queue was created for
    /// [`sender_gids`](super::CqInit::sender_gids) and the sender has no address handle. `None` for
    /// a WRITE with immediate data.
    fn sender_gid(&self) -> Option<Gid> {
        None
    }

    /// Checksum results and VLAN tag of a received raw packet.
    fn packet(&self) -> PacketInfo {
        PacketInfo::default()
    }

    /// Tag information, for a tag-matching queue.
    fn tag_info(&self) -> Option<TagInfo> {
        None
    }

    /// Position of a send in its queue, in WQEBBs modulo 65536 (mlx5); also for a failed send.
    fn send_index(&self) -> Option<u16> {
        None
    }

    /// InfiniBand: the bits of the destination LID below the port's LID mask.
    fn path_bits(&self) -> u8 {
        0
    }

    /// Source of a received datagram; empty for other completions.
    fn sender(&self) -> Sender;

    /// Decodes all fields.
    #[inline(always)]
    fn decode(&self) -> Decoded {
        Decoded {
            result: self.result(),
            is_recv: self.is_recv(),
            byte_len: self.byte_len(),
            immediate: self.immediate(),
            invalidated: self.invalidated(),
            qpn: self.qpn(),
            sender: self.sender(),
        }
    }
}

/// Results of a received raw packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketInfo {
    /// The IPv4 header checksum is right.
    pub ip_checksum_ok: bool,
    /// The TCP or UDP checksum is right.
    pub transport_checksum_ok: bool,
    /// VLAN tag that the device stripped.
    #[doc(alias = "ibv_wc_read_cvlan")]
    pub vlan_tag: Option<u16>,
}

/// Fields of a [`View`], decoded.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    /// See [`View::result`].
    pub result: Result<Completed, Failure>,
    /// See [`View::is_recv`].
    pub is_recv: bool,
    /// See [`View::byte_len`].
    pub byte_len: u32,
    /// See [`View::immediate`].
    pub immediate: Option<u32>,
    /// See [`View::invalidated`].
    pub invalidated: Option<u32>,
    /// See [`View::qpn`].
    pub qpn: u32,
    /// See [`View::sender`].
    pub sender: Sender,
}
