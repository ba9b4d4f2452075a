//! Multicast: queue pairs that are members of a group, and datagrams to one.

use std::fmt;
use std::sync::Arc;

use uverbs_core::attr::{AhAttr, LinkLayer};
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;

use crate::provider::Provider;
use crate::qp::prepared::path;
use crate::transport::Ud;
use crate::{Destination, QueuePair, Refused};

#[doc(inline)]
pub use uverbs_core::attr::MulticastGroup;

/// The queue pair number that datagrams to a group carry. IBTA vol 1, 9.6.1.3.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// A queue pair's membership in a multicast group: datagrams to the group come to the queue pair
/// until this is dropped or [detached](Self::detach).
///
/// The kernel doesn't destroy a member. While a membership is left,
/// [`QueuePair::destroy`] is refused with `EBUSY`; a queue pair that is dropped before is destroyed
/// with its last membership.
#[must_use = "dropping it leaves the group"]
pub struct MulticastMembership {
    qp: Arc<QpCore>,
    group: MulticastGroup,
    left: bool,
}

impl MulticastMembership {
    /// The group.
    #[must_use]
    pub fn group(&self) -> &MulticastGroup {
        &self.group
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// Leaves the group now.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` if the device knows no such membership. The membership is as
    /// before.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach(mut self) -> Result<(), Refused<Self>> {
        match self.qp.detach(&self.group) {
            Ok(()) => {
                self.left = true;
                Ok(())
            }
            Err(error) => Err(Refused::new(error, self)),
        }
    }
}

impl Drop for MulticastMembership {
    fn drop(&mut self) {
        if !self.left {
            // A refused detach can't be handled here; closing the device's file ends the
            // membership.
            let _ = self.qp.detach(&self.group);
        }
    }
}

impl fmt::Debug for MulticastMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MulticastMembership")
            .field("qpn", &format_args!("{:#x}", self.qpn()))
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl<P: Provider> QueuePair<P, Ud> {
    /// Attaches the queue pair to a multicast group, in any state. It receives datagrams that carry
    /// its Q_Key, so all members of a group need the same Q_Key. Its datagrams to the group come
    /// back to it, too.
    ///
    /// On Ethernet with real network interfaces the port must also let the group's packets in: a
    /// socket that joined the IP address, or rdma_cm, sees to that.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// use std::net::Ipv4Addr;
    /// use uverbs::{GRH_LEN, Local};
    /// use uverbs::multicast::MulticastGroup;
    ///
    /// let mut qp = context.queue_pair(&pd, &cq).ud().build()?;
    /// let at = qp.bring_up(&Local::default())?;
    /// let group = MulticastGroup::ipv4(Ipv4Addr::new(239, 1, 2, 3));
    /// let member = qp.attach(&group)?;
    /// let slab = pd.slab(GRH_LEN + 64, 1)?;
    /// qp.post_recv(1, slab.take().expect("it is new"))?;
    /// let to = qp.multicast_destination(&group, at.qkey)?;
    /// let mut batch = qp.batch();
    /// batch.send_inline_to(2, b"to all", &to)?;
    /// batch.ring();
    /// # for _ in 0..2 { cq.wait(std::time::Duration::from_secs(20))?.result?; }
    /// drop(member); // it leaves the group
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// Soft-RoCE loses a member that joins at the moment at which the group's last one leaves
    /// (kernel `rxe_mcast.c`, seen on 6.12): the queue pair gets no datagram, and can't leave or be
    /// destroyed. Use separate groups for queue pairs that join and leave at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a GID of no group, on InfiniBand a LID of none, or a group that it is
    /// a member of; [`Error::Kernel`]: `ENOMEM` over the device's limits
    /// ([`DeviceAttr::max_mcast_qp_attach`](crate::DeviceAttr::max_mcast_qp_attach)).
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach(&mut self, group: &MulticastGroup) -> Result<MulticastMembership, Error> {
        self.whole()?;
        let prepared = self.recv.home.prepared.as_ref();
        let infiniband = prepared.is_some_and(|at| at.link == LinkLayer::InfiniBand);
        group.check("attach_mcast", infiniband)?;
        self.core().attach(group)?;
        Ok(MulticastMembership { qp: Arc::clone(self.core()), group: *group, left: false })
    }

    /// Makes a destination for datagrams to a group, from the port that this was [brought
    /// up](Self::bring_up) on. A sender need not be a member.
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless brought up; [`Error::Invalid`] for a group that this port can't
    /// reach; as [`Context::create_ah`](crate::Context::create_ah).
    #[doc(alias = "ibv_wr_set_ud_addr")]
    pub fn multicast_destination(
        &self,
        group: &MulticastGroup,
        qkey: u32,
    ) -> Result<Destination<P>, Error> {
        let prepared = self.brought_up()?;
        group.check("create_ah", prepared.link == LinkLayer::InfiniBand)?;
        // A packet to a group always has a GRH (IBTA vol 1, 9.6.1.3), so a source GID, too.
        let index = match &prepared.gid {
            Some(own) if own.gid.is_ipv4_mapped() != group.gid.is_ipv4_mapped() => {
                return Err(Error::Invalid {
                    verb: "create_ah",
                    what: "group",
                    value: format!("{}, from {}", group.gid, own.gid),
                    why: "an IPv4 GID reaches only groups of IPv4, and an IPv6 GID only those of \
                          IPv6",
                });
            }
            Some(own) => own.index as u8,
            None => 0,
        };
        let local = &prepared.local;
        let path = path(local, group.lid, Some((group.gid, index)));
        let ah = self
            .recv
            .home
            .context
            .create_ah_of(self.core().pd(), &AhAttr { port: local.port, path })?;
        Ok(ah.to(MULTICAST_QPN, qkey))
    }
}
