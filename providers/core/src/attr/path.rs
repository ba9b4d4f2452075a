//! Path to a peer: of a connected queue pair, or of an address handle.

use uverbs_kernel_abi::ah::{ib_uverbs_ah_attr, ib_uverbs_global_route};
use uverbs_kernel_abi::qp::ib_uverbs_qp_dest;

use super::Gid;
use crate::error::Error;

/// Path to the peer (address vector).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_ah_attr")]
pub struct Path {
    /// Destination LID (InfiniBand); 0 on RoCE.
    pub dlid: u16,
    /// Global route: required on RoCE and between subnets.
    pub grh: Option<GlobalRoute>,
    /// Service level, 0 to 15.
    pub service_level: u8,
    /// Source path bits, for a port with several LIDs.
    pub src_path_bits: u8,
    /// Static rate, `enum ibv_rate`; 0 is the port's rate.
    pub static_rate: u8,
}

impl Path {
    /// Rejects values that exceed their header fields. IBTA vol 1, 7.7 (LRH) and 8.3 (GRH).
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] with the field's limit.
    pub fn check(&self, verb: &'static str) -> Result<(), Error> {
        Error::limit(verb, "service level", self.service_level.into(), 15)?;
        Error::limit(verb, "flow label", self.grh.map_or(0, |grh| grh.flow_label), 0xf_ffff)
    }

    /// Converts the path in QUERY_QP's response.
    pub(crate) fn from_dest(dest: &ib_uverbs_qp_dest) -> Self {
        let grh = (dest.is_global != 0).then_some(GlobalRoute {
            dgid: Gid(dest.dgid),
            sgid_index: dest.sgid_index,
            hop_limit: dest.hop_limit,
            traffic_class: dest.traffic_class,
            flow_label: dest.flow_label,
        });
        Self {
            dlid: dest.dlid,
            grh,
            service_level: dest.sl,
            src_path_bits: dest.src_path_bits,
            static_rate: dest.static_rate,
        }
    }

    /// Converts to the path of MODIFY_QP.
    pub(crate) fn to_dest(self, port: u8) -> ib_uverbs_qp_dest {
        let mut dest = ib_uverbs_qp_dest {
            dlid: self.dlid,
            sl: self.service_level,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            port_num: port,
            ..Default::default()
        };
        if let Some(grh) = &self.grh {
            dest.is_global = 1;
            dest.dgid = grh.dgid.0;
            dest.sgid_index = grh.sgid_index;
            dest.hop_limit = grh.hop_limit;
            dest.traffic_class = grh.traffic_class;
            dest.flow_label = grh.flow_label;
        }
        dest
    }

    /// Converts the connection manager's response.
    #[must_use]
    pub fn from_ah(ah: &ib_uverbs_ah_attr) -> Self {
        let grh = (ah.is_global != 0).then_some(GlobalRoute {
            dgid: Gid(ah.grh.dgid),
            sgid_index: ah.grh.sgid_index,
            hop_limit: ah.grh.hop_limit,
            traffic_class: ah.grh.traffic_class,
            flow_label: ah.grh.flow_label,
        });
        Self {
            dlid: ah.dlid,
            grh,
            service_level: ah.sl,
            src_path_bits: ah.src_path_bits,
            static_rate: ah.static_rate,
        }
    }

    /// Converts to the path of CREATE_AH.
    pub(crate) fn to_ah(self, port: u8) -> ib_uverbs_ah_attr {
        let grh =
            self.grh.map_or_else(ib_uverbs_global_route::default, |grh| ib_uverbs_global_route {
                dgid: grh.dgid.0,
                flow_label: grh.flow_label,
                sgid_index: grh.sgid_index,
                hop_limit: grh.hop_limit,
                traffic_class: grh.traffic_class,
                reserved: 0,
            });
        ib_uverbs_ah_attr {
            grh,
            dlid: self.dlid,
            sl: self.service_level,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            is_global: self.grh.is_some().into(),
            port_num: port,
            reserved: 0,
        }
    }
}

/// Global route of a [`Path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_global_route")]
pub struct GlobalRoute {
    /// The peer's GID.
    pub dgid: Gid,
    /// Index into the local port's GID table.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class (DSCP and ECN on RoCE v2).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
}

/// Attributes of an address handle: the local port and the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_ah_attr")]
pub struct AhAttr {
    /// Port, from 1.
    pub port: u8,
    /// Path to the peer.
    pub path: Path,
}

impl AhAttr {
    /// Rejects a path without global route if `required`: ports of RoCE require one.
    ///
    /// # Errors
    ///
    /// [`Error::MissingAttribute`].
    pub fn check_route(&self, required: bool) -> Result<(), Error> {
        if self.path.grh.is_some() || !required {
            return Ok(());
        }
        let attribute = "a global route (RoCE, and this port, need one)";
        Err(Error::MissingAttribute { verb: "create_ah", attribute })
    }
}
