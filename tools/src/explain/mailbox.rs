//! Commands of the device's firmware: input and output mailboxes.

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::*;

use super::report::{Explained, Structure, Wrong};

/// Bytes of the header of each input and of each output.
const INPUT: usize = 16;
const OUTPUT: usize = 8;

/// A structure of `mlx5_ifc.h`.
#[derive(Clone, Copy)]
struct Layout {
    name: &'static str,
    fields: &'static [(&'static str, Field)],
    blocks: &'static [(&'static str, Block)],
}

macro_rules! layout {
    ($file:ident::$name:ident) => {
        Layout {
            name: stringify!($name),
            fields: $file::$name::FIELDS,
            blocks: $file::$name::BLOCKS,
        }
    };
}

/// Fields of a command after its header.
struct Command {
    opcode: CmdOpcode,
    input: Option<Layout>,
    output: Option<Layout>,
    /// Layout of the context, if its name is ambiguous.
    context: Option<Layout>,
}

macro_rules! commands {
    (@one) => { None };
    (@one $file:ident $name:ident) => { Some(layout!($file::$name)) };
    ($( $opcode:ident: $($in_file:ident::$in_name:ident)? =>
        $($out_file:ident::$out_name:ident)? $(, $ctx_file:ident::$ctx_name:ident)?; )*) => {
        &[ $( Command {
            opcode: CmdOpcode::$opcode,
            input: commands!(@one $($in_file $in_name)?),
            output: commands!(@one $($out_file $out_name)?),
            context: commands!(@one $($ctx_file $ctx_name)?),
        } ),* ]
    };
}

const COMMANDS: &[Command] = commands! {
    QUERY_HCA_CAP: => hca::query_hca_cap_out;
    SET_HCA_CAP: hca::set_hca_cap_in =>;
    QUERY_ADAPTER: => hca::query_adapter_out;
    QUERY_PAGES: hca::query_pages_in => hca::query_pages_out;
    MANAGE_PAGES: hca::manage_pages_in => hca::manage_pages_out;
    QUERY_ISSI: => hca::query_issi_out;
    SET_ISSI: hca::set_issi_in =>;
    TEARDOWN_HCA: hca::teardown_hca_in =>;
    SET_DRIVER_VERSION: hca::set_driver_version_in =>;
    ACCESS_REG: hca::access_register_in => hca::access_register_out;
    QUERY_SPECIAL_CONTEXTS: => hca::query_special_contexts_out;
    ALLOC_UAR: => simple::alloc_uar_out;
    DEALLOC_UAR: simple::dealloc_uar_in =>;
    ALLOC_PD: => simple::alloc_pd_out;
    DEALLOC_PD: simple::dealloc_pd_in =>;
    ALLOC_XRCD: => simple::alloc_xrcd_out;
    DEALLOC_XRCD: simple::dealloc_xrcd_in =>;
    ALLOC_TRANSPORT_DOMAIN: => simple::alloc_transport_domain_out;
    DEALLOC_TRANSPORT_DOMAIN: simple::dealloc_transport_domain_in =>;
    CREATE_UCTX: simple::create_uctx_in => simple::create_uctx_out;
    DESTROY_UCTX: simple::destroy_uctx_in =>;
    ALLOC_Q_COUNTER: => simple::alloc_q_counter_out;
    DEALLOC_Q_COUNTER: simple::dealloc_q_counter_in =>;
    QUERY_Q_COUNTER: vport::query_q_counter_in => vport::query_q_counter_out;
    CREATE_MKEY: mkey::create_mkey_in => mkey::create_mkey_out;
    QUERY_MKEY: mkey::query_mkey_in => mkey::query_mkey_out;
    DESTROY_MKEY: mkey::destroy_mkey_in =>;
    ALLOC_MEMIC: memic::alloc_memic_in => memic::alloc_memic_out;
    DEALLOC_MEMIC: memic::dealloc_memic_in =>;
    MODIFY_MEMIC: memic::modify_memic_in => memic::modify_memic_out;
    CREATE_UMEM: umem::create_umem_in => umem::create_umem_out;
    DESTROY_UMEM: umem::destroy_umem_in =>;
    CREATE_EQ: eq::create_eq_in => eq::create_eq_out;
    QUERY_EQ: eq::query_eq_in => eq::query_eq_out;
    DESTROY_EQ: eq::destroy_eq_in =>;
    CREATE_CQ: cq::create_cq_in => cq::create_cq_out;
    QUERY_CQ: cq::query_cq_in => cq::query_cq_out;
    MODIFY_CQ: cq::modify_cq_in =>;
    DESTROY_CQ: cq::destroy_cq_in =>;
    CREATE_QP: qp::create_qp_in => qp::create_qp_out;
    DESTROY_QP: qp::destroy_qp_in =>;
    QUERY_QP: qp::query_qp_in => qp::query_qp_out;
    RST2INIT_QP: qp::rst2init_qp_in =>;
    INIT2INIT_QP: qp::rst2init_qp_in =>;
    INIT2RTR_QP: qp::rst2init_qp_in =>;
    RTR2RTS_QP: qp::rst2init_qp_in =>;
    RTS2RTS_QP: qp::rst2init_qp_in =>;
    SQERR2RTS_QP: qp::rst2init_qp_in =>;
    SQD_RTS_QP: qp::rst2init_qp_in =>;
    TO_ERR_QP: qp::destroy_qp_in =>;
    TO_RST_QP: qp::destroy_qp_in =>;
    ATTACH_TO_MCG: mcast::attach_to_mcg_in =>;
    DETACH_FROM_MCG: mcast::detach_from_mcg_in =>;
    CREATE_RMP: rq::create_rmp_in => rq::create_rmp_out, rq::rmpc;
    MODIFY_RMP: rq::modify_rmp_in =>, rq::rmpc;
    QUERY_RMP: rq::query_rmp_in => rq::query_rmp_out, rq::rmpc;
    DESTROY_RMP: rq::destroy_rmp_in =>;
    CREATE_XRC_SRQ: rq::create_xrc_srq_in => rq::create_xrc_srq_out;
    QUERY_XRC_SRQ: rq::query_xrc_srq_in => rq::query_xrc_srq_out;
    ARM_XRC_SRQ: rq::arm_xrc_srq_in =>;
    DESTROY_XRC_SRQ: rq::destroy_xrc_srq_in =>;
    CREATE_DCT: dct::create_dct_in => dct::create_dct_out;
    QUERY_DCT: dct::query_dct_in => dct::query_dct_out;
    DRAIN_DCT: dct::drain_dct_in =>;
    ARM_DCT_FOR_KEY_VIOLATION: dct::arm_dct_in =>;
    DESTROY_DCT: dct::destroy_dct_in =>;
    CREATE_SQ: sq::create_sq_in => sq::create_sq_out, sq::sqc;
    MODIFY_SQ: sq::modify_sq_in =>, sq::sqc;
    QUERY_SQ: sq::query_sq_in => sq::query_sq_out, sq::sqc;
    DESTROY_SQ: sq::destroy_sq_in =>;
    CREATE_RQ: sq::create_rq_in => sq::create_rq_out, sq::rqc;
    MODIFY_RQ: sq::modify_rq_in =>, sq::rqc;
    QUERY_RQ: sq::query_rq_in => sq::query_rq_out, sq::rqc;
    DESTROY_RQ: sq::destroy_rq_in =>;
    CREATE_TIS: steering::create_tis_in => steering::create_tis_out, steering::tisc;
    DESTROY_TIS: steering::destroy_tis_in =>;
    CREATE_TIR: steering::create_tir_in => steering::create_tir_out, steering::tirc;
    MODIFY_TIR: steering::modify_tir_in =>, steering::tirc;
    DESTROY_TIR: steering::destroy_tir_in =>;
    CREATE_RQT: steering::create_rqt_in => steering::create_rqt_out, steering::rqtc;
    MODIFY_RQT: steering::modify_rqt_in =>, steering::rqtc;
    DESTROY_RQT: steering::destroy_rqt_in =>;
    CREATE_FLOW_TABLE: flow::create_flow_table_in => flow::create_flow_table_out;
    MODIFY_FLOW_TABLE: flow::modify_flow_table_in =>;
    DESTROY_FLOW_TABLE: flow::destroy_flow_table_in =>;
    SET_FLOW_TABLE_ROOT: flow::set_flow_table_root_in =>;
    CREATE_FLOW_GROUP: flow::create_flow_group_in => flow::create_flow_group_out;
    DESTROY_FLOW_GROUP: flow::destroy_flow_group_in =>;
    SET_FLOW_TABLE_ENTRY: flow::set_fte_in =>;
    DELETE_FLOW_TABLE_ENTRY: flow::delete_fte_in =>;
    ALLOC_FLOW_COUNTER: flow::alloc_flow_counter_in => flow::alloc_flow_counter_out;
    DEALLOC_FLOW_COUNTER: flow::dealloc_flow_counter_in =>;
    QUERY_FLOW_COUNTER: flow::query_flow_counter_in => flow::query_flow_counter_out;
    QUERY_NIC_VPORT_CONTEXT: => nic::query_nic_vport_context_out;
    MODIFY_NIC_VPORT_CONTEXT: nic::modify_nic_vport_context_in =>;
    SET_ROCE_ADDRESS: nic::set_roce_address_in =>;
    QUERY_HCA_VPORT_CONTEXT:
        vport::query_hca_vport_context_in => vport::query_hca_vport_context_out;
    QUERY_HCA_VPORT_GID: vport::query_hca_vport_gid_in => vport::query_hca_vport_gid_out;
    QUERY_HCA_VPORT_PKEY: vport::query_hca_vport_pkey_in => vport::query_hca_vport_pkey_out;
    QUERY_VPORT_STATE: => vport::query_vport_state_out;
    QUERY_VPORT_COUNTER: => vport::query_vport_counter_out;
    MAD_IFC: vport::mad_ifc_in => vport::mad_ifc_out;
};

/// Layout of a block, by the block's name.
fn inside(block: &str, context: Option<Layout>) -> Option<Layout> {
    Some(match block {
        "CTX" | "RMP_CONTEXT" | "RQ_CONTEXT" | "SQ_CONTEXT" => return context,
        "QPC" => layout!(qp::qpc),
        "PRIMARY_ADDRESS_PATH" | "SECONDARY_ADDRESS_PATH" => layout!(qp::ads),
        "CQ_CONTEXT" => layout!(cq::cqc),
        "EQ_CONTEXT_ENTRY" => layout!(eq::eqc),
        "MEMORY_KEY_MKEY_ENTRY" => layout!(mkey::mkc),
        "DCT_CONTEXT_ENTRY" => layout!(dct::dctc),
        "XRC_SRQ_CONTEXT_ENTRY" => layout!(rq::xrc_srqc),
        "WQ" => layout!(rq::wq),
        "UMEM" => layout!(umem::umem),
        "FLOW_TABLE_CONTEXT" => layout!(flow::flow_table_context),
        "FLOW_CONTEXT" => layout!(flow::flow_context),
        "MATCH_CRITERIA" | "MATCH_VALUE" => layout!(flow::fte_match_param),
        "OUTER_HEADERS" | "INNER_HEADERS" => layout!(flow::fte_match_set_lyr_2_4),
        "MISC_PARAMETERS" => layout!(flow::fte_match_set_misc),
        "NIC_VPORT_CONTEXT" => layout!(nic::nic_vport_context),
        "ROCE_ADDRESS" => layout!(nic::roce_addr_layout),
        "HCA_VPORT_CONTEXT" => layout!(vport::hca_vport_context),
        "QUERY_ADAPTER_STRUCT" => layout!(hca::query_adapter_param_block),
        _ => return None,
    })
}

/// Explains an input; with `answers`, the output of that command.
pub(super) fn explain(bytes: &[u8], answers: Option<CmdOpcode>) -> Result<Explained, Wrong> {
    let header = if answers.is_some() { OUTPUT } else { INPUT };
    if bytes.len() < header {
        return Err((bytes.len(), format!("what all begin with has {header}")));
    }
    let opcode = answers.unwrap_or_else(|| CmdOpcode(header::cmd_in::OPCODE.get32(bytes) as u16));
    let known = COMMANDS.iter().find(|command| command.opcode == opcode);
    let context = known.and_then(|command| command.context);
    let mut structures = Vec::new();
    let (what, layout) = match answers {
        Some(_) => {
            let status = CmdStatus(header::cmd_out::STATUS.get32(bytes) as u8);
            show(layout!(header::cmd_out), bytes, None, &mut structures);
            (format!("{opcode}, answered {status}"), known.and_then(|command| command.output))
        }
        None => {
            show(layout!(header::cmd_in), bytes, None, &mut structures);
            (opcode.to_string(), known.and_then(|command| command.input))
        }
    };
    match layout {
        Some(layout) => show(layout, bytes, context, &mut structures),
        None if bytes[header..].iter().any(|byte| *byte != 0) => {
            structures.push(Structure::new("not known").at(header, "bytes", hex(&bytes[header..])));
        }
        None => {}
    }
    Ok(Explained::new(what, structures))
}

/// Adds the fields of a structure, then its inner structures. Other bytes are printed raw, unless
/// they are all zero.
fn show(layout: Layout, bytes: &[u8], context: Option<Layout>, to: &mut Vec<Structure>) {
    let mut structure = Structure::new(format!("mlx5_ifc_{}_bits", layout.name));
    for (name, field) in layout.fields {
        let (at, name) = (field.bit() as usize / 8, name.to_lowercase());
        if at < bytes.len() {
            structure = structure.at(at, &name, format!("{:#x}", field.get(bytes)));
        }
    }
    let mut within = Vec::new();
    for (name, block) in layout.blocks {
        let part = block.of(bytes);
        match inside(name, context) {
            Some(layout) if !part.is_empty() => within.push((layout, part)),
            _ if part.iter().any(|byte| *byte != 0) => {
                structure = structure.at(block.offset(), &name.to_lowercase(), hex(part));
            }
            _ => {}
        }
    }
    to.push(structure);
    for (layout, part) in within {
        show(layout, part, context, to);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses a command's name or number.
pub(super) fn opcode(text: &str) -> Result<CmdOpcode, String> {
    let named = CmdOpcode::ALL.iter().find(|opcode| opcode.name() == Some(text));
    let number = || u16::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    named.copied().or_else(|| number().map(CmdOpcode)).ok_or_else(|| {
        "no command of that name; a name like CREATE_QP, or a number like 0x500".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CREATE_QP of a reliable connection with a path MTU, its keys in the context.
    fn create_qp() -> Vec<u8> {
        let mut bytes = vec![0; qp::create_qp_in::SIZE];
        header::cmd_in::OPCODE.set(&mut bytes, u64::from(CmdOpcode::CREATE_QP.0));
        let qpc = qp::create_qp_in::QPC.of_mut(&mut bytes);
        qp::qpc::PD.set(qpc, 0x1234);
        qp::qpc::CQN_SND.set(qpc, 0x77);
        qp::ads::RLID.set(qp::qpc::PRIMARY_ADDRESS_PATH.of_mut(qpc), 0xbeef);
        bytes
    }

    #[test]
    fn a_command_has_its_names_at_every_depth() {
        let text = explain(&create_qp(), None).unwrap().to_string();
        assert!(text.starts_with("CREATE_QP\nmlx5_ifc_cmd_in_bits\n"), "{text}");
        let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for says in [
            "0x00 opcode 0x500",
            "mlx5_ifc_qpc_bits",
            "0x05 pd 0x1234",
            "0x7d cqn_snd 0x77",
            "mlx5_ifc_ads_bits",
            "rlid 0xbeef",
        ] {
            assert!(squeezed.contains(says), "{says}:\n{text}");
        }
    }

    #[test]
    fn an_answer_has_its_status() {
        let mut bytes = vec![0; qp::create_qp_out::SIZE];
        header::cmd_out::STATUS.set(&mut bytes, u64::from(CmdStatus::BAD_RES_ERR.0));
        header::cmd_out::SYNDROME.set(&mut bytes, 0x4321);
        let text = explain(&bytes, Some(CmdOpcode::CREATE_QP)).unwrap().to_string();
        assert!(text.starts_with("CREATE_QP, answered BAD_RES_ERR\n"), "{text}");
        assert!(text.contains("0x4321") && text.contains("mlx5_ifc_create_qp_out_bits"), "{text}");
    }

    #[test]
    fn commands_without_a_layout_are_named_and_printed() {
        let mut bytes = vec![0; 32];
        header::cmd_in::OPCODE.set(&mut bytes, u64::from(CmdOpcode::SYNC_CRYPTO.0));
        bytes[20] = 0xab;
        let text = explain(&bytes, None).unwrap().to_string();
        assert!(text.starts_with("SYNC_CRYPTO\n") && text.contains("00000000ab"), "{text}");
        assert_eq!(opcode("CREATE_QP"), Ok(CmdOpcode::CREATE_QP));
        assert_eq!(opcode("0x500"), Ok(CmdOpcode::CREATE_QP));
        assert!(opcode("CREATE_QQ").is_err());
    }

    #[test]
    fn any_bytes_are_explained_or_refused() {
        let whole = create_qp();
        for command in COMMANDS {
            for len in (0..whole.len()).step_by(7) {
                let mut bytes = whole[..len].to_vec();
                header::cmd_in::OPCODE.set(&mut bytes, u64::from(command.opcode.0));
                assert_eq!(explain(&bytes, None).is_ok(), len >= INPUT);
                assert_eq!(explain(&bytes, Some(command.opcode)).is_ok(), len >= OUTPUT);
            }
        }
    }
}
