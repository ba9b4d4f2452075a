//! State of a queue pair between `prepare` and `connect`, and the attributes that follow from it.

use uverbs_core::attr::{
    AccessFlags, AtomicCap, Ece, Gid, GidEntry, GlobalRoute, InitAttr, LinkLayer, Path, UcRtrAttr,
};
use uverbs_core::error::Error;

use crate::provider::Provider;
use crate::{Context, Endpoint, Local, LocalPort};

/// State of a queue pair that neither its send queue nor its receive queue needs.
#[derive(Debug)]
pub(crate) struct Home<P: Provider> {
    pub(crate) context: Context<P>,
    pub(crate) prepared: Option<Prepared>,
}

impl<P: Provider> Home<P> {
    pub(crate) fn new(context: Context<P>) -> Self {
        Self { context, prepared: None }
    }
}

/// Port, endpoint and GID that `QueuePair::prepare` chose, for `QueuePair::connect`.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) local: Local,
    pub(crate) endpoint: Endpoint,
    pub(crate) gid: Option<GidEntry>,
    pub(crate) link: LinkLayer,
}

impl Prepared {
    /// State of a queue pair without a single peer (UD, DCI).
    pub(crate) fn new(at: &LocalPort, qpn: u32, psn: u32) -> Self {
        let LocalPort { local, port, gid, .. } = at;
        let gid_of = |entry: &GidEntry| entry.gid;
        let (lid, mtu, own) = (port.lid, port.active_mtu, gid.as_ref().map(gid_of));
        let endpoint = Endpoint { lid, qpn, psn, mtu, rd_atomic: 0, gid: own, ece: Ece::default() };
        Self { local: local.clone(), endpoint, gid: *gid, link: port.link_layer }
    }

    /// RTR attributes for this peer, with the smaller of the two sides' path MTUs.
    pub(crate) fn way_to(&self, peer: &Endpoint) -> Result<UcRtrAttr, Error> {
        let Self { local, endpoint, gid, link } = self;
        let route = route(*link, gid.as_ref(), peer.gid)?;
        let mtu = if peer.mtu.raw() < endpoint.mtu.raw() { peer.mtu } else { endpoint.mtu };
        Ok(UcRtrAttr {
            dest_qpn: peer.qpn,
            rq_psn: peer.psn,
            path_mtu: mtu,
            path: path(local, peer.lid, route),
        })
    }
}

/// Local half of a connection with one peer, and the attributes for INIT.
pub(crate) fn settle(
    at: &LocalPort,
    qpn: u32,
    psn: u32,
    ece: Ece,
) -> Result<(Prepared, InitAttr), Error> {
    let mtu = at.path_mtu()?;
    let LocalPort { local, device, port, gid, .. } = at;
    let (mut local, gid) = (local.clone(), *gid);
    let rd_atomic = |most: u32| local.rd_atomic.min(u8::try_from(most).unwrap_or(u8::MAX));
    let (serves, asks) = (rd_atomic(device.max_qp_rd_atom), rd_atomic(device.max_qp_init_rd_atom));
    local.rd_atomic = asks;
    Error::limit("modify_qp", "first PSN", psn, 0xff_ffff)?;
    let init = InitAttr {
        port: local.port,
        pkey_index: local.pkey_index,
        access: rights(local.access, device.atomic_cap),
    };
    let own = gid.as_ref().map(|entry| entry.gid);
    let (lid, rd_atomic) = (port.lid, serves);
    let endpoint = Endpoint { lid, qpn, psn, mtu, rd_atomic, gid: own, ece };
    Ok((Prepared { local, endpoint, gid, link: port.link_layer }, init))
}

/// The way to a peer: its LID or its GID, and what this side sends with.
pub(crate) fn path(local: &Local, dlid: u16, route: Option<(Gid, u8)>) -> Path {
    Path {
        dlid,
        grh: route.map(|(dgid, sgid_index)| GlobalRoute {
            dgid,
            sgid_index,
            hop_limit: local.hop_limit,
            traffic_class: local.traffic_class,
            flow_label: 0,
        }),
        service_level: local.service_level,
        src_path_bits: 0,
        static_rate: 0,
    }
}

/// Access rights of the peer: the requested ones, without those that the device lacks.
fn rights(asked: AccessFlags, atomics: AtomicCap) -> AccessFlags {
    match atomics {
        AtomicCap::None => asked.difference(AccessFlags::REMOTE_ATOMIC),
        _ => asked,
    }
}

/// The global route to the peer, or the reason why it can't be built.
pub(crate) fn route(
    link: LinkLayer,
    own: Option<&GidEntry>,
    peer: Option<Gid>,
) -> Result<Option<(Gid, u8)>, Error> {
    let ethernet = link == LinkLayer::Ethernet;
    match (own, peer) {
        (None, _) if !ethernet => Ok(None),
        (Some(_), None) | (None, _) if ethernet => Err(Error::MissingAttribute {
            verb: "connect",
            attribute: "the peer's GID (RoCE has no route without)",
        }),
        (Some(own), Some(dgid)) => {
            if ethernet && own.gid.is_ipv4_mapped() != dgid.is_ipv4_mapped() {
                return Err(Error::Invalid {
                    verb: "connect",
                    what: "the peer's GID",
                    value: format!("{dgid}, from {}", own.gid),
                    why: "an IPv4 GID reaches only IPv4 GIDs, and an IPv6 GID only IPv6 ones",
                });
            }
            Ok(Some((dgid, own.index as u8)))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_are_asked_for_where_there_are_some() {
        let all = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        assert_eq!(rights(all, AtomicCap::None), AccessFlags::REMOTE_WRITE);
        assert_eq!(rights(all, AtomicCap::Hca), all);
        assert_eq!(rights(all, AtomicCap::Global), all);
    }
}
