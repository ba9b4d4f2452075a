//! Multicast group addresses. IBTA vol 1, 4.1.1 and 10.5; annex A17.

use std::net::Ipv4Addr;

use super::Gid;
use crate::error::Error;

/// Multicast LIDs of InfiniBand. IBTA vol 1, 4.1.3.
const LIDS: std::ops::RangeInclusive<u16> = 0xc000..=0xfffe;

/// A multicast group: queue pairs attach to it, and datagrams are addressed to it.
///
/// On InfiniBand the subnet manager creates the group and chooses its LID; a program joins it
/// through rdma_cm or the subnet administrator.
///
/// ```
/// # mod uverbs { pub mod multicast { pub use uverbs_core::attr::MulticastGroup; } }
/// use uverbs::multicast::MulticastGroup;
///
/// let group: std::net::Ipv4Addr = "239.1.2.3".parse()?;
/// assert_eq!(MulticastGroup::ipv4(group).gid.to_string(), "::ffff:239.1.2.3");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MulticastGroup {
    /// Multicast GID (`ff00::/8`); on RoCE v2 also an IPv4 multicast address.
    pub gid: Gid,
    /// Multicast LID, 0xc000 to 0xfffe on InfiniBand; ignored on RoCE.
    pub lid: u16,
}

impl MulticastGroup {
    /// Group of an IPv4 multicast address on RoCE v2.
    #[must_use]
    pub fn ipv4(address: Ipv4Addr) -> Self {
        Self { gid: Gid::from(std::net::IpAddr::V4(address)), lid: 0 }
    }

    /// Rejects a GID that is not multicast, and on InfiniBand a LID that is not.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub fn check(&self, verb: &'static str, infiniband: bool) -> Result<(), Error> {
        let invalid = |what, value: String, why| Err(Error::Invalid { verb, what, value, why });
        if !self.gid.is_multicast() && !self.gid.to_ipv4().is_some_and(|ip| ip.is_multicast()) {
            let why = "a group's GID begins with ff, or holds an IPv4 multicast address";
            return invalid("GID", self.gid.to_string(), why);
        }
        if infiniband && !LIDS.contains(&self.lid) {
            let why = "a group's LID on InfiniBand is 0xc000 to 0xfffe";
            return invalid("LID", format!("{:#06x}", self.lid), why);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_addresses_of_groups() {
        let group = |gid: &str, lid| MulticastGroup { gid: gid.parse().unwrap(), lid };
        for (group, infiniband, good) in [
            (group("ff12::1", 0), false, true),
            (group("ff12::1", 0), true, false),
            (group("ff12::1", 0xbfff), true, false),
            (group("ff12::1", 0xc000), true, true),
            (group("ff12::1", 0xfffe), true, true),
            (group("ff12::1", 0xffff), true, false),
            (group("fe80::1", 0xc000), false, false),
            (group("::", 0xc000), true, false),
            (group("10.0.0.1", 0), false, false),
            (group("223.255.255.255", 0), false, false),
            (group("224.0.0.0", 0), false, true),
            (group("239.255.255.255", 0), false, true),
            (group("240.0.0.0", 0), false, false),
        ] {
            assert_eq!(group.check("attach_mcast", infiniband).is_ok(), good, "{group:?}");
        }
    }
}
