//! Ports of a device: `RDMA_NLDEV_CMD_PORT_GET` (kernel `nldev.c`, `fill_port_info`).

use uverbs_kernel_abi::netlink::{
    RDMA_NLDEV_ATTR_NDEV_NAME, RDMA_NLDEV_ATTR_PORT_INDEX, RDMA_NLDEV_ATTR_PORT_STATE,
    RDMA_NLDEV_CMD_PORT_GET,
};

use super::{Errno, Kernel, NLM_F_DUMP, Queries, Session, number, short, string, whole};
use crate::report::place::PortPlace;

impl Queries {
    /// State and network interface of each port. A network interface of another namespace is left
    /// out.
    pub(in crate::discovery) fn ports(
        &mut self,
        index: u32,
    ) -> Result<Vec<PortPlace>, crate::Errno> {
        ports(&mut self.0, index).map_err(crate::Errno::of_nix)
    }
}

pub(super) fn ports(
    session: &mut Session<impl Kernel>,
    index: u32,
) -> Result<Vec<PortPlace>, Errno> {
    let mut ports = Vec::new();
    session.ask_device(RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP, index, &[], |body| {
        whole(body)?;
        if let Some(port) = short(body, RDMA_NLDEV_ATTR_PORT_INDEX) {
            let mut place = PortPlace::new(port);
            place.state = number(body, RDMA_NLDEV_ATTR_PORT_STATE).and_then(|n| n.try_into().ok());
            place.interfaces.extend(string(body, RDMA_NLDEV_ATTR_NDEV_NAME));
            ports.push(place);
        }
        Ok(())
    })?;
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::{Script, attr};
    use super::*;
    use uverbs_kernel_abi::netlink::RDMA_NLDEV_ATTR_DEV_INDEX;

    fn body(port: u32, state: u8) -> Vec<u8> {
        [
            attr(RDMA_NLDEV_ATTR_DEV_INDEX, &3u32.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_PORT_INDEX, &port.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_PORT_STATE, &[state]),
            attr(RDMA_NLDEV_ATTR_NDEV_NAME, b"eth7\0"),
        ]
        .concat()
    }

    #[test]
    fn ports_have_state_and_interface() {
        let mut session = Session::new(Script::new(vec![body(1, 4), body(2, 1)]));
        let found = ports(&mut session, 3).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].port, found[0].state), (1, Some(4)));
        assert_eq!(found[1].interfaces, ["eth7"]);
        let mut cut = body(1, 4);
        cut.truncate(cut.len() - 4);
        let mut session = Session::new(Script::new(vec![cut]));
        assert_eq!(ports(&mut session, 3), Err(Errno::EBADMSG));
    }
}
