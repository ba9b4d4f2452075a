//! Receive side scaling (RSS): a hash spreads packets over work queues. Kernel `mlx5-abi.h`,
//! `MLX5_RX_HASH_*`; `hw/mlx5/qp.c:create_rss_raw_qp_tir`.

use uverbs_kernel_abi::mlx5 as abi;
use uverbs_kernel_abi::wq::{IB_WQS_ERR, IB_WQS_RDY, IB_WQS_RESET};

use crate::error::Error;

bitflags::bitflags! {
    /// Packet fields that enter the hash. Addresses must be of one IP version, and ports of one
    /// protocol. Other packets have the hash 0.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_rx_hash_fields")]
    pub struct HashFields: u64 {
        /// Source address of IPv4.
        const SRC_IPV4 = abi::MLX5_RX_HASH_SRC_IPV4;
        /// Destination address of IPv4.
        const DST_IPV4 = abi::MLX5_RX_HASH_DST_IPV4;
        /// Source address of IPv6.
        const SRC_IPV6 = abi::MLX5_RX_HASH_SRC_IPV6;
        /// Destination address of IPv6.
        const DST_IPV6 = abi::MLX5_RX_HASH_DST_IPV6;
        /// Source port of TCP.
        const SRC_PORT_TCP = abi::MLX5_RX_HASH_SRC_PORT_TCP;
        /// Destination port of TCP.
        const DST_PORT_TCP = abi::MLX5_RX_HASH_DST_PORT_TCP;
        /// Source port of UDP.
        const SRC_PORT_UDP = abi::MLX5_RX_HASH_SRC_PORT_UDP;
        /// Destination port of UDP.
        const DST_PORT_UDP = abi::MLX5_RX_HASH_DST_PORT_UDP;
        /// Security parameters index of IPsec, on devices that support it.
        const IPSEC_SPI = abi::MLX5_RX_HASH_IPSEC_SPI;
        /// Both addresses of IPv4.
        const IPV4 = abi::MLX5_RX_HASH_SRC_IPV4 | abi::MLX5_RX_HASH_DST_IPV4;
        /// Both addresses of IPv6.
        const IPV6 = abi::MLX5_RX_HASH_SRC_IPV6 | abi::MLX5_RX_HASH_DST_IPV6;
        /// Both ports of TCP.
        const TCP = abi::MLX5_RX_HASH_SRC_PORT_TCP | abi::MLX5_RX_HASH_DST_PORT_TCP;
        /// Both ports of UDP.
        const UDP = abi::MLX5_RX_HASH_SRC_PORT_UDP | abi::MLX5_RX_HASH_DST_PORT_UDP;
    }
}

/// RSS hash: the lowest bits of a packet's Toeplitz hash are the index into the table of work
/// queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_rx_hash_conf")]
pub struct RssHash {
    /// Hash key. Keep it secret from senders that choose their packets' fields.
    pub key: [u8; 40],
    /// Fields that enter the hash. An empty set needs a table with one entry.
    pub fields: HashFields,
}

impl RssHash {
    /// Checks that the fields can be combined, for a table with `places` entries.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub fn check(&self, places: usize) -> Result<(), Error> {
        let fields = self.fields;
        let wrong = |why| {
            let value = format!("{fields:?}");
            Err(Error::Invalid { verb: "create_qp", what: "hash fields", value, why })
        };
        if fields.is_empty() && places > 1 {
            return wrong("without any, all packets would go to the table's first queue");
        }
        if fields.intersects(HashFields::IPV4) && fields.intersects(HashFields::IPV6) {
            return wrong("one queue pair hashes IPv4 or IPv6: make one more over the same table");
        }
        let l4 = [HashFields::TCP, HashFields::UDP, HashFields::IPSEC_SPI];
        if l4.into_iter().filter(|kind| fields.intersects(*kind)).count() > 1 {
            return wrong(
                "one queue pair hashes TCP, UDP or IPsec: make one more over the same table",
            );
        }
        Ok(())
    }
}

/// State of a work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wq_state")]
pub enum WqState {
    /// Reset, the initial state: no packets arrive, and nothing can be posted.
    Reset,
    /// Ready: packets arrive.
    Ready,
    /// Error: posted receives complete as flushed.
    Error,
}

impl WqState {
    /// The kernel's number, `IB_WQS_*`.
    #[must_use]
    pub const fn raw(self) -> u32 {
        match self {
            Self::Reset => IB_WQS_RESET,
            Self::Ready => IB_WQS_RDY,
            Self::Error => IB_WQS_ERR,
        }
    }

    /// Converts the kernel's number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            IB_WQS_RESET => Some(Self::Reset),
            IB_WQS_RDY => Some(Self::Ready),
            IB_WQS_ERR => Some(Self::Error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_two_kinds_are_refused() {
        let ok = |fields, places| RssHash { key: [0; 40], fields }.check(places).is_ok();
        assert!(ok(HashFields::IPV4 | HashFields::UDP, 4));
        assert!(ok(HashFields::SRC_IPV6 | HashFields::DST_PORT_TCP, 2));
        assert!(ok(HashFields::IPV4 | HashFields::IPSEC_SPI, 2));
        assert!(ok(HashFields::empty(), 1));
        assert!(!ok(HashFields::empty(), 2));
        assert!(!ok(HashFields::SRC_IPV4 | HashFields::DST_IPV6, 1));
        assert!(!ok(HashFields::IPV4 | HashFields::TCP | HashFields::SRC_PORT_UDP, 1));
        assert!(!ok(HashFields::UDP | HashFields::IPSEC_SPI, 1));
    }
}
