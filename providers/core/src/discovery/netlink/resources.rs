//! Objects and their holders: `RDMA_NLDEV_CMD_RES_*_GET` (kernel `nldev.c`, `fill_res_*_entry`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use uverbs_kernel_abi::netlink::{
    RDMA_NLDEV_ATTR_PORT_INDEX, RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
    RDMA_NLDEV_ATTR_RES_CM_IDN, RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY,
    RDMA_NLDEV_ATTR_RES_CQE, RDMA_NLDEV_ATTR_RES_CQN, RDMA_NLDEV_ATTR_RES_CTX,
    RDMA_NLDEV_ATTR_RES_CTX_ENTRY, RDMA_NLDEV_ATTR_RES_CTXN, RDMA_NLDEV_ATTR_RES_DST_ADDR,
    RDMA_NLDEV_ATTR_RES_KERN_NAME, RDMA_NLDEV_ATTR_RES_LKEY, RDMA_NLDEV_ATTR_RES_LQPN,
    RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, RDMA_NLDEV_ATTR_RES_MRLEN,
    RDMA_NLDEV_ATTR_RES_MRN, RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY,
    RDMA_NLDEV_ATTR_RES_PDN, RDMA_NLDEV_ATTR_RES_PID, RDMA_NLDEV_ATTR_RES_PS,
    RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY, RDMA_NLDEV_ATTR_RES_RKEY,
    RDMA_NLDEV_ATTR_RES_RQPN, RDMA_NLDEV_ATTR_RES_SRC_ADDR, RDMA_NLDEV_ATTR_RES_SRQ,
    RDMA_NLDEV_ATTR_RES_SRQ_ENTRY, RDMA_NLDEV_ATTR_RES_SRQN, RDMA_NLDEV_ATTR_RES_STATE,
    RDMA_NLDEV_ATTR_RES_TYPE, RDMA_NLDEV_ATTR_RES_USECNT, RDMA_NLDEV_CMD_RES_CM_ID_GET,
    RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_CMD_RES_MR_GET,
    RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_CMD_RES_SRQ_GET,
};

use super::{
    Errno, Kernel, NLM_F_DUMP, Queries, Session, entries, find, number, short, string, whole,
};
use crate::report::resources::{Holder, Resource, ResourceKind, port_space, qp_state, qp_type};

impl Queries {
    /// All objects of a kind. Keys of regions need `CAP_NET_ADMIN`.
    pub(in crate::discovery) fn resources(
        &mut self,
        index: u32,
        kind: ResourceKind,
    ) -> Result<Vec<Resource>, crate::Errno> {
        resources(&mut self.0, index, kind).map_err(crate::Errno::of_nix)
    }
}

/// Numbers of a kind: command, table, entry of the table, and the object's number.
const fn numbers(kind: ResourceKind) -> (u32, u16, u16, u16) {
    match kind {
        ResourceKind::Context => (
            RDMA_NLDEV_CMD_RES_CTX_GET,
            RDMA_NLDEV_ATTR_RES_CTX,
            RDMA_NLDEV_ATTR_RES_CTX_ENTRY,
            RDMA_NLDEV_ATTR_RES_CTXN,
        ),
        ResourceKind::Pd => (
            RDMA_NLDEV_CMD_RES_PD_GET,
            RDMA_NLDEV_ATTR_RES_PD,
            RDMA_NLDEV_ATTR_RES_PD_ENTRY,
            RDMA_NLDEV_ATTR_RES_PDN,
        ),
        ResourceKind::Mr => (
            RDMA_NLDEV_CMD_RES_MR_GET,
            RDMA_NLDEV_ATTR_RES_MR,
            RDMA_NLDEV_ATTR_RES_MR_ENTRY,
            RDMA_NLDEV_ATTR_RES_MRN,
        ),
        ResourceKind::Cq => (
            RDMA_NLDEV_CMD_RES_CQ_GET,
            RDMA_NLDEV_ATTR_RES_CQ,
            RDMA_NLDEV_ATTR_RES_CQ_ENTRY,
            RDMA_NLDEV_ATTR_RES_CQN,
        ),
        ResourceKind::Srq => (
            RDMA_NLDEV_CMD_RES_SRQ_GET,
            RDMA_NLDEV_ATTR_RES_SRQ,
            RDMA_NLDEV_ATTR_RES_SRQ_ENTRY,
            RDMA_NLDEV_ATTR_RES_SRQN,
        ),
        ResourceKind::Qp => (
            RDMA_NLDEV_CMD_RES_QP_GET,
            RDMA_NLDEV_ATTR_RES_QP,
            RDMA_NLDEV_ATTR_RES_QP_ENTRY,
            RDMA_NLDEV_ATTR_RES_LQPN,
        ),
        ResourceKind::CmId => (
            RDMA_NLDEV_CMD_RES_CM_ID_GET,
            RDMA_NLDEV_ATTR_RES_CM_ID,
            RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
            RDMA_NLDEV_ATTR_RES_CM_IDN,
        ),
    }
}

pub(super) fn resources(
    session: &mut Session<impl Kernel>,
    index: u32,
    kind: ResourceKind,
) -> Result<Vec<Resource>, Errno> {
    let (op, table, entry, id) = numbers(kind);
    let mut found = Vec::new();
    session.ask_device(op, NLM_F_DUMP, index, &[], |body| {
        for object in entries(body, table, entry)? {
            whole(object)?;
            found.push(resource(kind, object, id));
        }
        Ok(())
    })?;
    Ok(found)
}

fn resource(kind: ResourceKind, object: &[u8], id: u16) -> Resource {
    let named = |id| short(object, id);
    let hex = |id| short(object, id).map(|key| format!("{key:#x}"));
    let is_qp = kind == ResourceKind::Qp;
    let state = named(RDMA_NLDEV_ATTR_RES_STATE);
    Resource::new(kind, named(id), holder(object))
        .with("port", named(RDMA_NLDEV_ATTR_PORT_INDEX))
        .with("type", named(RDMA_NLDEV_ATTR_RES_TYPE).map(qp_type))
        .with("state", state.map(|state| if is_qp { qp_state(state) } else { state.to_string() }))
        .with("ps", named(RDMA_NLDEV_ATTR_RES_PS).map(port_space))
        .with("lqpn", named(RDMA_NLDEV_ATTR_RES_LQPN).filter(|_| !is_qp))
        .with("rqpn", named(RDMA_NLDEV_ATTR_RES_RQPN))
        .with("src", find(object, RDMA_NLDEV_ATTR_RES_SRC_ADDR).and_then(address))
        .with("dst", find(object, RDMA_NLDEV_ATTR_RES_DST_ADDR).and_then(address))
        .with("mrlen", number(object, RDMA_NLDEV_ATTR_RES_MRLEN))
        .with("lkey", hex(RDMA_NLDEV_ATTR_RES_LKEY))
        .with("rkey", hex(RDMA_NLDEV_ATTR_RES_RKEY))
        .with("cqe", named(RDMA_NLDEV_ATTR_RES_CQE))
        .with("users", number(object, RDMA_NLDEV_ATTR_RES_USECNT))
        .with("pdn", named(RDMA_NLDEV_ATTR_RES_PDN).filter(|_| kind != ResourceKind::Pd))
        .with("ctxn", named(RDMA_NLDEV_ATTR_RES_CTXN).filter(|_| kind != ResourceKind::Context))
}

/// Holder of an object. `fill_res_name_pid` leaves out the number of a task that ended.
fn holder(object: &[u8]) -> Holder {
    match string(object, RDMA_NLDEV_ATTR_RES_KERN_NAME) {
        Some(name) => Holder::Kernel(name),
        None => short(object, RDMA_NLDEV_ATTR_RES_PID).map_or(Holder::Gone, Holder::Task),
    }
}

/// A socket address, of the families of IP; others are left out.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip: IpAddr = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fuzz::{Script, attr};
    use super::*;

    fn table(kind: ResourceKind, objects: &[Vec<u8>]) -> Vec<u8> {
        let (_, table, entry, _) = numbers(kind);
        let all: Vec<u8> = objects.iter().flat_map(|one| attr(entry | 0x8000, one)).collect();
        attr(table | 0x8000, &all)
    }

    #[test]
    fn queue_pairs_and_their_holders_are_read() {
        let qp = |qpn: u32, holder: Vec<u8>| {
            [
                attr(RDMA_NLDEV_ATTR_PORT_INDEX, &1u32.to_ne_bytes()),
                attr(RDMA_NLDEV_ATTR_RES_LQPN, &qpn.to_ne_bytes()),
                attr(RDMA_NLDEV_ATTR_RES_TYPE, &[2]),
                attr(RDMA_NLDEV_ATTR_RES_STATE, &[3]),
                holder,
            ]
            .concat()
        };
        let body = table(
            ResourceKind::Qp,
            &[
                qp(17, attr(RDMA_NLDEV_ATTR_RES_PID, &99u32.to_ne_bytes())),
                qp(1, attr(RDMA_NLDEV_ATTR_RES_KERN_NAME, b"ib_core\0")),
                qp(18, Vec::new()),
            ],
        );
        let mut session = Session::new(Script::new(vec![body]));
        let found = resources(&mut session, 0, ResourceKind::Qp).unwrap();
        let holders: Vec<_> = found.iter().map(|one| one.holder.clone()).collect();
        let kernel = Holder::Kernel("ib_core".to_owned());
        assert_eq!(holders, [Holder::Task(99), kernel, Holder::Gone]);
        assert_eq!((found[0].kind, found[0].number), (ResourceKind::Qp, Some(17)));
        assert_eq!(found[0].attribute("type"), Some("RC"));
        assert_eq!(found[0].attribute("state"), Some("RTS"));
        assert_eq!(found[0].attribute("lqpn"), None, "that is its number");
    }

    #[test]
    fn ids_have_addresses_and_regions_lengths() {
        let mut v4 = vec![0; 128];
        v4[..8].copy_from_slice(&[2, 0, 0x4e, 0x20, 192, 0, 2, 7]);
        v4[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        let id = [
            attr(RDMA_NLDEV_ATTR_RES_SRC_ADDR, &v4),
            attr(RDMA_NLDEV_ATTR_RES_PS, &0x0106u32.to_ne_bytes()),
        ];
        let body = table(ResourceKind::CmId, &[id.concat()]);
        let mut session = Session::new(Script::new(vec![body]));
        let found = resources(&mut session, 0, ResourceKind::CmId).unwrap();
        assert_eq!(found[0].attribute("src"), Some("192.0.2.7:20000"));
        assert_eq!((found[0].attribute("ps"), found[0].number), (Some("TCP"), None));
        let mr = attr(RDMA_NLDEV_ATTR_RES_MRLEN, &4096u64.to_ne_bytes());
        let mut session = Session::new(Script::new(vec![table(ResourceKind::Mr, &[mr])]));
        let found = resources(&mut session, 0, ResourceKind::Mr).unwrap();
        assert_eq!(found[0].attribute("mrlen"), Some("4096"));
        assert_eq!(address(&[2, 0]), None);
        assert_eq!(address(&[255; 28]), None);
    }

    proptest! {
        #[test]
        fn a_cut_table_is_an_error(cut in 1usize..60) {
            let pid = attr(RDMA_NLDEV_ATTR_RES_PID, &9u32.to_ne_bytes());
            let body = table(ResourceKind::Pd, &[pid.clone(), pid]);
            let part = body[..body.len().saturating_sub(cut)].to_vec();
            let expected = if part.is_empty() { Ok(Vec::new()) } else { Err(Errno::EBADMSG) };
            let mut session = Session::new(Script::new(vec![part]));
            prop_assert_eq!(resources(&mut session, 0, ResourceKind::Pd), expected);
        }
    }
}
