//! Completions as the polling side hands them on.

use std::fmt::Debug;

use crate::memory::frame::Frame;
use crate::queues::completion::{Completed, Failure, Sender};
use crate::queues::tag_work::TagInfo;

/// A completion as the polling side hands it on: already retired, its queue entry not yet given
/// back.
#[derive(Debug)]
pub struct Polled<V> {
    /// The queue entry, decoded on demand.
    pub view: V,
    /// The work request's number.
    pub wr_id: u64,
    /// The buffer that was posted with it.
    pub frame: Option<Frame>,
}

/// A completion queue entry, decoded on demand.
pub trait View: Debug + Copy {
    /// What completed, or how it failed.
    fn result(&self) -> Result<Completed, Failure>;

    /// Whether it is of a receive; also for a failed one.
    fn is_recv(&self) -> bool;

    /// Bytes received, read, or returned by an atomic. Not known of SEND and WRITE: 0.
    fn byte_len(&self) -> u32;

    /// Immediate data, in host order, of a receive that got some.
    fn immediate(&self) -> Option<u32>;

    /// The device's clock when it completed, in ticks; `None` of a failed one, and of a device
    /// without.
    fn timestamp(&self) -> Option<u64>;

    /// The key that a received SEND took away.
    fn invalidated(&self) -> Option<u32>;

    /// The local queue pair; of a raw packet received the tag of the rule that it came by.
    fn qpn(&self) -> u32;

    /// User index of the queue pair, on mlx5. Completions of raw packets have no queue pair number.
    fn user_index(&self) -> Option<u32> {
        None
    }

    /// Member `pkey_index` of a receive for C programs. On mlx5: the low half of the field for
    /// immediate data, invalidated keys and a datagram's P_Key (rdma-core
    /// `cq.c:handle_responder`).
    fn pkey_index(&self) -> u16 {
        0
    }

    /// Returns true for a send with immediate data.
    fn sent_immediate(&self) -> bool {
        false
    }

    /// Of a raw packet received: what the device found, and took out.
    fn packet(&self) -> PacketInfo {
        PacketInfo::default()
    }

    /// Of a queue that matches tags: what its completion tells besides.
    fn tag_info(&self) -> Option<TagInfo> {
        None
    }

    /// Of a send, on mlx5: where in its queue it began, in WQEBBs modulo 65536; also of a failed
    /// one.
    fn send_index(&self) -> Option<u16> {
        None
    }

    /// On InfiniBand: the bits below the port's LID mask of the LID that the message came to.
    fn path_bits(&self) -> u8 {
        0
    }

    /// Where a received datagram came from. Of other completions it says nothing.
    fn sender(&self) -> Sender;

    /// All of it at once.
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

/// What the device found of a raw packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketInfo {
    /// The checksum of its IPv4 header is right.
    pub ip_checksum_ok: bool,
    /// The checksum of TCP or UDP is right.
    pub transport_checksum_ok: bool,
    /// The VLAN tag that was taken out of it.
    #[doc(alias = "ibv_wc_read_cvlan")]
    pub vlan_tag: Option<u16>,
}

/// What a [`View`] shows.
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
