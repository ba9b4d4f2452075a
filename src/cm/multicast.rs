//! Multicast groups by IP address.

use std::net::IpAddr;

use uverbs_core::attr::MulticastGroup;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::{
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
};

use super::addr::to_kernel;
use super::channel::unique_key;
use super::groups::Groups;
use super::{DatagramDetails, Id};

/// Role of a member in a multicast group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "rdma_cm_join_mc_attr_ex")]
pub enum Membership {
    /// Sends and receives.
    #[default]
    #[doc(alias = "RDMA_MC_JOIN_FLAG_FULLMEMBER")]
    Full,
    /// Send only: the port doesn't receive the group's packets.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER")]
    SendOnly,
}

/// Membership of an [`Id`] in a multicast group. Dropping it leaves the group.
///
/// Once the port has joined, the id's channel gets an event with the membership's
/// [`key`](Self::key) and the group's destination. A queue pair receives the group's packets after
/// it is [attached](crate::QueuePair::attach) to the [`group`](DatagramDetails::group) of that
/// event.
#[derive(Debug)]
#[must_use = "dropping it leaves the group"]
pub struct JoinedGroup {
    of: Groups,
    number: u32,
    key: u64,
}

impl JoinedGroup {
    /// Key of the group in events ([`Event::key`](super::Event::key)).
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }
}

impl Drop for JoinedGroup {
    fn drop(&mut self) {
        if let Some(channel) = &*self.of.lock() {
            // Refused only in a forked child.
            let _ = channel.leave_multicast(self.number);
        }
    }
}

impl Id {
    /// Starts to join a multicast group. The id belongs to [`PortSpace::Udp`](super::PortSpace) and
    /// is bound, or has resolved an address. The channel gets
    /// [`MulticastJoined`](super::EventKind::MulticastJoined).
    ///
    /// ```
    /// # let device = uverbs::device("softhca0")?;
    /// # let context = device.open()?;
    /// # let gids = context.query_gid_table()?;
    /// # let own = gids.iter().find(|entry| entry.gid.is_ipv4_mapped()).unwrap().gid.0;
    /// # let own = std::net::Ipv6Addr::from(own).to_canonical();
    /// use std::time::Duration;
    /// use uverbs::cm::{EventChannel, EventKind, Membership, PortSpace};
    ///
    /// let channel = EventChannel::of(&device)?; // of the kernel's devices: `open`
    /// let id = channel.create_id(PortSpace::Udp)?;
    /// id.bind((own, 0).into())?;
    /// let joined = id.join_multicast("239.1.2.3".parse()?, Membership::Full)?;
    /// let event = channel.next(Duration::from_secs(20))?.expect(EventKind::MulticastJoined)?;
    /// assert_eq!(event.key(), joined.key());
    /// let details = event.datagram();
    /// # let pd = context.alloc_pd()?;
    /// # let cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).ud().build()?;
    /// id.bring_up_datagrams(&mut qp)?;
    /// let member = qp.attach(&details.group())?;
    /// let to = context.create_ah(&pd, &details.ah)?.to(details.qpn, details.qkey);
    /// # drop((member, to));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an address of one host, which Linux takes (`cma.c`,
    /// `cma_iboe_join_multicast`); [`Error::Kernel`]: `EINVAL` if the id isn't of `PortSpace::Udp`;
    /// `EADDRNOTAVAIL` or another errno if the id has no device yet. IPv6 groups
    /// need InfiniBand: on RoCE v2 Linux answers with its number 524, which has no name.
    #[doc(alias = "rdma_join_multicast")]
    #[doc(alias = "rdma_join_multicast_ex")]
    pub fn join_multicast(&self, group: IpAddr, how: Membership) -> Result<JoinedGroup, Error> {
        if !group.is_multicast() {
            return Err(Error::Invalid {
                verb: "rdma_join_multicast",
                what: "the group",
                value: group.to_string(),
                why: "it must be a multicast address: 224.0.0.0 to 239.255.255.255, or ff00::/8",
            });
        }
        let flags = match how {
            Membership::Full => RDMA_MC_JOIN_FLAG_FULLMEMBER,
            Membership::SendOnly => RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        };
        let (key, group) = (unique_key(), to_kernel((group, 0).into()));
        let number = self.channel().ucma().join_multicast(self.number(), key, &group, flags)?;
        Ok(JoinedGroup { of: self.groups().clone(), number, key })
    }
}

impl DatagramDetails {
    /// The group, of a [`MulticastJoined`](super::EventKind::MulticastJoined).
    #[must_use]
    pub fn group(&self) -> MulticastGroup {
        let gid = self.ah.path.grh.map(|grh| grh.dgid).unwrap_or_default();
        MulticastGroup { gid, lid: self.ah.path.dlid }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::{Arc, Mutex};

    use nix::sys::eventfd::EventFd;
    use uverbs_core::Errno;
    use uverbs_core::doors::cm::{CmCommand, CmDoor};
    use uverbs_kernel_abi::rdma_cm::{RDMA_USER_CM_CMD_DESTROY_ID, RDMA_USER_CM_CMD_LEAVE_MCAST};

    use super::*;
    use crate::cm::{EventChannel, PortSpace};

    /// A connection manager that grants everything and gives all things the number 0.
    #[derive(Debug)]
    struct Door {
        file: EventFd,
        ends: Mutex<Vec<u32>>,
    }

    impl CmDoor for Door {
        fn command(&self, command: CmCommand<'_>) -> Result<(), Errno> {
            if [RDMA_USER_CM_CMD_DESTROY_ID, RDMA_USER_CM_CMD_LEAVE_MCAST].contains(&command.number)
            {
                self.ends.lock().unwrap().push(command.number);
            }
            Ok(())
        }

        fn file(&self) -> BorrowedFd<'_> {
            self.file.as_fd()
        }
    }

    fn channel() -> (Arc<Door>, EventChannel) {
        let door = Arc::new(Door { file: EventFd::new().unwrap(), ends: Mutex::default() });
        (Arc::clone(&door), EventChannel::from_door(door))
    }

    fn joined(channel: &EventChannel) -> (Id, JoinedGroup) {
        let id = channel.create_id(PortSpace::Udp).unwrap();
        let group = Ipv4Addr::new(239, 1, 2, 3).into();
        let joined = id.join_multicast(group, Membership::Full).unwrap();
        (id, joined)
    }

    #[test]
    fn a_membership_is_left_where_its_id_is() {
        let ((first, from), (second, to)) = (channel(), channel());
        let (mut id, group) = joined(&from);
        id.migrate(&to).unwrap();
        drop(group);
        drop(id);
        assert_eq!(*first.ends.lock().unwrap(), []);
        let ends = [RDMA_USER_CM_CMD_LEAVE_MCAST, RDMA_USER_CM_CMD_DESTROY_ID];
        assert_eq!(*second.ends.lock().unwrap(), ends);
    }

    /// The number may be another membership's by then.
    #[test]
    fn a_membership_of_an_id_that_is_gone_leaves_nothing() {
        let (door, channel) = channel();
        let (id, group) = joined(&channel);
        drop(id);
        drop(group);
        assert_eq!(*door.ends.lock().unwrap(), [RDMA_USER_CM_CMD_DESTROY_ID]);
    }
}
