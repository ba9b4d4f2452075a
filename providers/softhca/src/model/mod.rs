//! The model behind the front: implements [`Backend`](uverbs_front::backend::Backend) for [`Hca`],
//! and builds the front's `Config`.
//!
//! | file | contents |
//! |---|---|
//! | `objects` | objects, events, management datagrams |
//! | `steering` | Ethernet frames, multicast groups |

mod objects;
mod steering;

use crate::board::capabilities as caps;
use crate::board::profile::{FW_VER, Profile, VENDOR_ID};
use crate::hca::ethernet::MAX_SPREAD;
use crate::hca::{Hca, MAX_BLOCK};
use uverbs_front::backend::config::{Config, Gid, GidType};
use uverbs_front::cm::{Host, Manager};

/// Front of a software HCA.
pub(crate) type Kernel = uverbs_front::Kernel<Hca>;

/// Device of the front.
pub(crate) type Device = uverbs_front::Device<Hca>;

/// Creates the device of a front.
pub(crate) fn device(profile: &Profile, hca: Hca) -> Device {
    let mut cm = Manager::new(host(profile, hca.has_network()));
    if !profile.hca.is_ethernet() {
        cm.set_subnet(profile.subnet());
    }
    Device::new(config(profile, &hca), cm, hca)
}

fn config(profile: &Profile, hca: &Hca) -> Config {
    let limits = hca.config();
    Config {
        guid: profile.guid,
        vendor_id: VENDOR_ID,
        part: limits.part,
        fw_ver: FW_VER,
        link: limits.link,
        gids: profile.gids.clone(),
        gid_table_len: limits.gid_table_len(),
        pkey_table_len: limits.pkey_table_len(),
        pkeys: limits.pkeys.clone(),
        lid: profile.lid,
        sm_lid: caps::MANAGER_LID,
        active_mtu: limits.active_mtu,
        active_width: caps::WIDTH_4X,
        active_speed: caps::SPEED_EDR,
        max_msg_size: limits.max_msg_size,
        max_pd: profile.max_pd,
        max_ah: profile.max_ah,
        max_qp: limits.max_qp,
        max_cq: limits.max_cq,
        max_srq: limits.max_srq,
        max_mkey: limits.max_mkey,
        max_mcast_qp: limits.max_mcast_qp,
        max_steering: caps::MAX_STEERING,
        max_spread: MAX_SPREAD as u32,
        log_max_rq: limits.log_max_rq(),
        log_max_tags: limits.log_max_tags(),
        log_max_wqebbs: limits.log_max_wqebbs,
        log_max_rq_entries: limits.log_max_rq_entries,
        log_max_cqes: limits.log_max_cqes,
        max_sq_desc: caps::MAX_SQ_DESC,
        max_rq_desc: caps::MAX_RQ_DESC,
        max_sge: caps::MAX_SGE,
        max_mini_cqes: MAX_BLOCK as u32,
        min_inline_header: limits.min_inline_header,
        max_rd_atomic: limits.max_rd_atomic,
        max_dest_rd_atomic: limits.max_dest_rd_atomic,
        max_dc_rd_atomic: limits.max_dc_rd_atomic,
        log_max_dci_streams: limits.log_max_dci_streams,
        local_ca_ack_delay: caps::LOCAL_CA_ACK_DELAY,
        comp_vectors: caps::COMP_VECTORS,
        first_uar: limits.first_uar,
        max_uars: limits.max_uars,
        max_blue_flame: limits.max_blue_flame,
        bf_reg_size: caps::BF_REG_SIZE,
        clock_khz: caps::CLOCK_KHZ,
        memlock: profile.memlock,
        paging: caps::PAGED_IN_PROCESS,
        device_memory: if limits.device_memory { caps::DEVICE_MEMORY_LEN } else { 0 },
        log_max_memic_alignment: caps::LOG_MAX_DEVICE_MEMORY_ALIGNMENT,
        // In process no one sees a processor's loads.
        memic_operations: 0,
        relaxed_only: limits.relaxed_only,
        data_direct: limits.data_direct,
        placement: limits.placement,
        ece: limits.ece,
        lag_ports: limits.lag_ports,
    }
}

/// Device identity for the connection manager, which uses RoCE version 2 only. Link-local GIDs of
/// the network are left out: their IPv6 addresses have no interface (`cma.c:cma_check_linklocal`).
fn host(profile: &Profile, has_network: bool) -> Host {
    let is_address = |gid: &Gid| !(has_network && gid.gid.starts_with(&[0xfe, 0x80]));
    let gids = (0u8..).zip(&profile.gids);
    let gids = gids.filter(|(_, gid)| gid.kind == GidType::RoceV2 && is_address(gid));
    let gids = gids.map(|(index, gid)| (index, gid.gid)).collect();
    Host {
        guid: profile.guid,
        gids,
        subnet: None,
        mtu: profile.hca.active_mtu as u8,
        is_routed: false,
        asks: false,
        routes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use uverbs_mlx5_prm::cmd::Field;
    use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap;
    use uverbs_mlx5_prm::cmd::hca::query_hca_cap_out;

    use super::*;
    use crate::firmware::base::call::Call;
    use crate::firmware::device::caps::Capabilities;
    use crate::hca::HcaConfig;
    use crate::hca::testing::Arena;
    use crate::wire::Fabric;
    use uverbs_front::backend::context::LinkLayer;
    use uverbs_front::device_attributes;

    /// Bytes of a WQE's control and remote address segments, and of a data segment.
    const SEGMENTS: u64 = 32;
    const DATA_SEGMENT: u64 = 16;

    /// Compares the attributes in process with those that Linux derives from the capabilities in a
    /// virtual machine (`hw/mlx5/main.c`, `mlx5_ib_query_device`).
    #[test]
    fn both_fronts_give_one_answer() {
        use cmd_hca_cap::*;
        for link in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
            let profile = Profile::new(1, HcaConfig { link, ..HcaConfig::default() });
            let config = profile.hca.clone();
            let mut output = [0; query_hca_cap_out::SIZE];
            let whose =
                Capabilities { vhca_id: 1, config: &config, atomic_mode: 0, log_uars_in_page: 0 };
            whose.query(&mut Call { input: &[], output: &mut output, op_mod: 0 });
            let cap = query_hca_cap_out::CAPABILITY.of(&output);
            let wire = Box::new(Fabric::default().attach(&[]));
            let hca = Hca::new(config.clone(), Box::new(Arena::new(4096)), wire);
            let told = device_attributes(&device(&profile, hca));
            let value = |field: Field| field.get(cap);
            let power = |field| 1u64 << value(field);
            let rq_sge = value(MAX_WQE_SZ_RQ) / DATA_SEGMENT;
            let sq_sge = (value(MAX_WQE_SZ_SQ).min(512) - SEGMENTS) / DATA_SEGMENT;
            for (name, told, derived) in [
                ("max_qp", u64::from(told.max_qp), power(LOG_MAX_QP)),
                ("max_qp_wr", told.max_qp_wr.into(), power(LOG_MAX_QP_SZ)),
                ("max_cq", told.max_cq.into(), power(LOG_MAX_CQ)),
                ("max_cqe", told.max_cqe.into(), power(LOG_MAX_CQ_SZ) - 1),
                ("max_mr", told.max_mr.into(), power(LOG_MAX_MKEY)),
                ("max_pd", told.max_pd.into(), power(LOG_MAX_PD)),
                ("max_srq", told.max_srq.into(), power(LOG_MAX_SRQ)),
                ("max_srq_wr", told.max_srq_wr.into(), power(LOG_MAX_SRQ_SZ) - 1),
                ("max_sge", told.max_sge.into(), rq_sge.min(sq_sge)),
                ("max_srq_sge", told.max_srq_sge.into(), rq_sge - 1),
                ("max_qp_rd_atom", told.max_qp_rd_atom.into(), power(LOG_MAX_RA_REQ_QP)),
                ("max_qp_init_rd_atom", told.max_qp_init_rd_atom.into(), power(LOG_MAX_RA_RES_QP)),
                ("max_mcast_grp", told.max_mcast_grp.into(), power(LOG_MAX_MCG)),
                ("max_mcast_qp_attach", told.max_mcast_qp_attach.into(), value(MAX_QP_MCG)),
                ("local_ca_ack_delay", told.local_ca_ack_delay.into(), value(LOCAL_CA_ACK_DELAY)),
                ("phys_port_cnt", told.phys_port_cnt.into(), value(NUM_PORTS)),
            ] {
                assert_eq!(told, derived, "{name} of {link:?}");
            }
        }
    }
}
