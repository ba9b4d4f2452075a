//! Address handles: the address vector that a datagram's WQE carries.
//!
//! # Safety
//!
//! The kernel's handle, if there is one, is owned by the core object, which alone destroys it.
#![allow(unsafe_code, reason = "wraps a handle that the kernel just made")]

use std::sync::Arc;

use uverbs_core::attr::{AhAttr, GidType, GlobalRoute};
use uverbs_core::error::Error;
use uverbs_core::objects::ah::AhCore;
use uverbs_core::objects::context::unique_id;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::AhOps;
use uverbs_core::queues::work::Destination;
use uverbs_kernel_abi::mlx5::mlx5_ib_create_ah_resp;
use uverbs_mlx5_prm::address::{FlMlid, GrhGidFl, StatRateSl, mlx5_wqe_av};
use zerocopy::{IntoBytes, transmute};

use crate::Context;
use crate::send::wqe::{self, Vector, Words};

const CREATE_AH: &str = "create_ah";

/// The lowest UDP source port of RoCE v2 (IBTA annex A17; kernel `ib_addr.h`,
/// `IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`).
const FIRST_PORT: u16 = 0xc000;

/// Device code of each `enum ib_rate`: the next supported rate; 0 is the rate of the port
/// (rdma-core `verbs.c`, `ib_to_mlx5_rate_table`; PRM "Address Vector", `stat_rate`).
const RATES: [u8; 23] =
    [0, 0, 7, 8, 9, 10, 11, 12, 13, 14, 15, 11, 13, 15, 0, 9, 15, 0, 0, 9, 13, 0, 0];

/// An address handle. Cloning shares the kernel's part.
#[derive(Clone, Debug)]
pub struct Ah {
    /// Address vector as in a WQE, without queue pair and Q_Key.
    template: [Words; 3],
    /// [`wqe::second_word`] of the vector, computed once for all posts.
    second_word: u64,
    core: Arc<AhCore>,
}

impl Ah {
    /// Builds the vector. On Ethernet the kernel resolves the peer's MAC address (rdma-core
    /// `verbs.c:mlx5_create_ah`); on InfiniBand no command is sent.
    pub(crate) fn create(
        context: &Context,
        pd: &Arc<PdCore>,
        attr: &AhAttr,
    ) -> Result<Self, Error> {
        AhCore::check_domain(&context.core, pd)?;
        attr.path.check(CREATE_AH)?;
        let port = context.port(attr.port)?;
        attr.check_route(port.grh_required)?;
        let mut vector = mlx5_wqe_av::default();
        if let Some(grh) = &attr.path.grh {
            route(&mut vector, grh, !port.ethernet);
        }
        let rate = RATES.get(usize::from(attr.path.static_rate)).copied().unwrap_or(0);
        let rate = StatRateSl::ZERO.with_stat_rate(rate);
        let mut handle = None;
        if port.ethernet {
            // The priority, shifted by one bit (rdma-core `verbs.c:mlx5_create_ah`).
            vector.stat_rate_sl = rate.with_sl((attr.path.service_level & 7) << 1).0;
            if let Some(grh) = &attr.path.grh
                && gid_type(context, attr.port, grh)? == GidType::RoceV2
            {
                vector.rlid = udp_port(grh.flow_label, unique_id()).into();
            }
            let (made, mac) = resolve(context, pd, attr)?;
            (handle, vector.rmac) = (Some(made), mac);
        } else {
            vector.stat_rate_sl = rate.with_sl(attr.path.service_level).0;
            vector.fl_mlid = FlMlid::ZERO.with_mlid(attr.path.src_path_bits & 0x7f).0;
            vector.rlid = attr.path.dlid.into();
        }
        // SAFETY: the kernel just created the handle, and only this object destroys it.
        let core = Arc::new(unsafe { AhCore::new(Arc::clone(pd), handle) });
        let template = transmute!(vector);
        Ok(Self { second_word: wqe::second_word(&template), template, core })
    }

    /// See [`wqe::second_word`].
    #[inline(always)]
    pub(crate) fn second_word(&self) -> u64 {
        self.second_word
    }

    /// Address vector of a datagram.
    #[inline(always)]
    pub(crate) fn vector(to: Destination<'_, Self>) -> Vector<'_> {
        Vector { template: to.ah.template(), first: to.peer }
    }

    /// Address vector without queue pair and Q_Key.
    #[inline(always)]
    pub(crate) fn template(&self) -> &[Words; 3] {
        &self.template
    }
}

// SAFETY: `core` was created with the protection domain of the handle.
unsafe impl AhOps for Ah {
    fn core(&self) -> &AhCore {
        &self.core
    }

    /// First segment of the vector.
    #[inline(always)]
    fn peer(&self, qpn: u32, qkey: u32) -> Words {
        wqe::datagram(self.second_word, qpn, qkey)
    }
}

/// Fills in the fields of the GRH. `says` sets the bit for a GRH, which is reserved on Ethernet,
/// where every packet has one.
fn route(vector: &mut mlx5_wqe_av, grh: &GlobalRoute, says: bool) {
    vector.tclass = grh.traffic_class;
    vector.hop_limit = grh.hop_limit;
    vector.grh_gid_fl = GrhGidFl::ZERO
        .with_grh(says)
        .with_src_addr_index(grh.sgid_index)
        .with_flow_label(grh.flow_label)
        .0
        .into();
    vector.rgid = grh.dgid.0;
}

/// Lets the kernel resolve the peer's MAC address.
fn resolve(context: &Context, pd: &PdCore, attr: &AhAttr) -> Result<(u32, [u8; 6]), Error> {
    if !context.tells_mac {
        let what = "kernels that don't return the peer's MAC address (before Linux 4.11)";
        return Err(Error::Unsupported { verb: CREATE_AH, what: what.to_owned() });
    }
    let mut answer = mlx5_ib_create_ah_resp::default();
    let uverbs = context.core.uverbs();
    let handle = uverbs.create_ah(pd.handle(), attr, answer.as_mut_bytes())?;
    Ok((handle, answer.dmac))
}

fn gid_type(context: &Context, port: u8, grh: &GlobalRoute) -> Result<GidType, Error> {
    Ok(context.core.uverbs().query_gid_entry(port, grh.sgid_index.into())?.kind)
}

/// UDP source port, by which routers choose among equal paths: from the flow label if there is one,
/// else a different port for each handle (rdma-core uses a random one).
fn udp_port(flow_label: u32, handle: u64) -> u16 {
    let folded = match flow_label {
        // Fibonacci hashing spreads small numbers over the port's bits.
        0 => (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as u32,
        label => label & 0x3fff ^ label >> 14,
    };
    FIRST_PORT | folded as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_in_the_dynamic_range() {
        for (label, handle) in [(0, 0), (0, 1), (0, u64::MAX), (1, 0), (0xf_ffff, 0)] {
            assert!(udp_port(label, handle) >= FIRST_PORT, "{label:#x} {handle}");
        }
        // kernel `rdma_flow_label_to_udp_sport`: the upper six bits folded onto the lower fourteen.
        assert_eq!(udp_port(0x1_2345, 7), 0xc000 | (0x2345 ^ 0x4));
    }
}
