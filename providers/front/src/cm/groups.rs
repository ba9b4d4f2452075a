//! Commands of multicast groups.

use std::net::IpAddr;

use uverbs_core::Errno;
use uverbs_kernel_abi::ah::ib_uverbs_ah_attr;
use uverbs_kernel_abi::rdma_cm::{
    rdma_ucm_create_id_resp, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp, rdma_ucm_event_resp,
    rdma_ucm_join_mcast, rdma_ucm_ud_param,
};

use super::fields::{address, give};
use super::header::gid;
use super::id::{Service, State};
use super::manager::{Manager, Membership, UDP_QKEY, event};
use super::queue::Queued;
use crate::backend::mgid;

/// QPN of multicast packets.
const MULTICAST_QPN: u32 = 0x00ff_ffff;
/// Linux's ENOTSUPP, which no user-space header has (`include/linux/errno.h`).
const KERNEL_ENOTSUPP: Errno = Errno::from_raw(524);

impl Manager {
    pub(super) fn join(
        &mut self,
        file: u64,
        request: &rdma_ucm_join_mcast,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let group = address(&request.addr, request.addr_size)?.ok_or(Errno::EINVAL)?;
        let id = self.of(file, request.id)?;
        let is_bound = matches!(id.state, State::Bound | State::AddressResolved);
        if id.service != Service::Datagrams || !is_bound || request.join_flags > 1 {
            return Err(Errno::EINVAL);
        }
        let (local, tos) = (id.local, id.tos);
        if group.ip().is_ipv6() && self.host.subnet.is_none() {
            return Err(KERNEL_ENOTSUPP);
        }
        let local = local.filter(|_| !group.ip().is_unspecified()).ok_or(Errno::EINVAL)?;
        let source =
            if self.is_any(local.ip()) { self.source_for(group.ip()) } else { Some(local.ip()) };
        let (index, _) = source.and_then(|ip| self.own_gid(ip)).ok_or(Errno::ENODEV)?;
        let number = self.next_number();
        give(room, &rdma_ucm_create_id_resp { id: number })?;
        self.memberships.insert(number, Membership { id: request.id });
        let mut event = rdma_ucm_event_resp {
            uid: request.uid,
            id: number,
            event: event::MULTICAST_JOIN,
            ..Default::default()
        };
        event.set_ud(rdma_ucm_ud_param {
            qp_num: MULTICAST_QPN,
            qkey: UDP_QKEY,
            ah_attr: self.path_to_group(index, group.ip(), tos),
            ..Default::default()
        });
        if let Some(queue) = self.files.get_mut(&file) {
            queue.push(Queued { owner: request.id, request: None, event });
        }
        Ok(())
    }

    /// Path to a group. On InfiniBand packets go by its MLID and carry its MGID
    /// (`cma.c:cma_join_ib_multicast`, `ib_init_ah_from_mcmember`).
    fn path_to_group(&self, index: u8, group: IpAddr, tos: u8) -> ib_uverbs_ah_attr {
        if self.host.subnet.is_none() {
            return self.path(index, gid(group), tos);
        }
        let mgid = mgid::of(group);
        ib_uverbs_ah_attr { dlid: mgid::lid(&mgid), ..self.path(index, mgid, tos) }
    }

    pub(super) fn leave(
        &mut self,
        file: u64,
        request: &rdma_ucm_destroy_id,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let membership = *self.memberships.get(&request.id).ok_or(Errno::ENOENT)?;
        self.of(file, membership.id)?;
        self.memberships.remove(&request.id);
        give(room, &rdma_ucm_destroy_id_resp::default())
    }
}
