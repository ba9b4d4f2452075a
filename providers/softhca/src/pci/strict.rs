//! Strict mode: the firmware refuses a command with a reserved bit, and one that selects a change
//! which the command does not make.
//!
//! A bit is reserved if no field of the input's structures has it. Fields that mlx5-prm lacks
//! belong to capabilities that this device lacks, too.

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::cq::modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT;
use uverbs_mlx5_prm::cmd::cq::{RESIZE_CQ, RESIZE_FIELDS, modify};
use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::nic::{modify_nic_vport_context_in, nic_vport_context};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{create_qp_in, optpar, qpc, rst2init_qp_in};
use uverbs_mlx5_prm::cmd::sq::modify_rq_in;
use uverbs_mlx5_prm::context::ServiceType;

use super::layouts::{INPUTS, LISTS, Layout, OF_USERS, PARTS, PORT_LISTS, Part, SELECTIONS};

/// Fields that MODIFY_CQ changes without a resize.
const CQ_CHANGES: u64 = modify::PERIOD | modify::COUNT | modify::OVERRUN | modify::PERIOD_MODE;
/// Fields that MODIFY_RQ changes (`MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_*`).
const RQ_CHANGES: u64 = 0b1110;

/// Reason to refuse a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) why: &'static str,
    /// Byte of the first reserved bit, from the start of the structure that `why` names; for a
    /// change, first byte of the selecting mask in the input.
    pub(super) byte: usize,
}

/// Returns the reason to refuse a command with this input.
pub(super) fn violation(input: &[u8]) -> Option<Violation> {
    let opcode = CmdOpcode(cmd_in::OPCODE.get32(input) as u16);
    let command = INPUTS.iter().find(|command| command.opcode == opcode)?;
    // A list may follow the structure, and has any bytes.
    let has_list = command.layout.blocks.iter().any(|(_, block)| block.len() == 0);
    let is_open = has_list || LISTS.contains(&opcode);
    let len = if is_open { input.len().min(command.layout.size) } else { input.len() };
    let mut rest = input[..len].to_vec();
    cmd_in::FIELDS.iter().for_each(|(_, field)| field.set(&mut rest, 0));
    let found = selects(opcode, input).or_else(|| reserved(&command.layout, &rest));
    found.or_else(|| listed(opcode, input))
}

/// Finds a reserved bit in the port's list of addresses or VLANs.
fn listed(opcode: CmdOpcode, input: &[u8]) -> Option<Violation> {
    if opcode != CmdOpcode::MODIFY_NIC_VPORT_CONTEXT {
        return None;
    }
    let context = modify_nic_vport_context_in::NIC_VPORT_CONTEXT.of(input);
    let layout = PORT_LISTS.get(nic_vport_context::ALLOWED_LIST_TYPE.get(context) as usize)?;
    let list = input.get(modify_nic_vport_context_in::SIZE..)?;
    list.chunks_exact(layout.size).find_map(|entry| reserved(layout, entry))
}

/// Checks the optional attributes of a transition, and the changes of MODIFY_CQ and MODIFY_RQ.
fn selects(opcode: CmdOpcode, input: &[u8]) -> Option<Violation> {
    let refuse = |field: Field, why| Some(Violation { why, byte: field.bit() as usize / 8 });
    let (field, allowed) = match opcode {
        CmdOpcode::MODIFY_CQ if cmd_in::OP_MOD.get(input) == u64::from(RESIZE_CQ) => {
            let field = MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT;
            if field.get(input) != RESIZE_FIELDS {
                return refuse(field, "a resize selects size, offset and page size");
            }
            return None;
        }
        CmdOpcode::MODIFY_CQ => (MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT, CQ_CHANGES),
        CmdOpcode::MODIFY_RQ => (modify_rq_in::MODIFY_BITMASK, RQ_CHANGES),
        CmdOpcode::CREATE_QP => (create_qp_in::OPT_PARAM_MASK, 0),
        _ => {
            let service = qpc::ST.get(rst2init_qp_in::QPC.of(input));
            (rst2init_qp_in::OPT_PARAM_MASK, optional(opcode, ServiceType(service as u8))?)
        }
    };
    match field.get(input) & !allowed {
        0 => None,
        _ => refuse(field, "a change is selected that the command does not make"),
    }
}

/// Optional attributes that a transition takes (Linux `hw/mlx5/qp.c`, `opt_mask`); `None` for
/// another command. In RTS, every service takes a counter (`__mlx5_ib_qp_set_counter`) and a port
/// (rdma-core `modify_qp_lag_port`).
fn optional(opcode: CmdOpcode, service: ServiceType) -> Option<u64> {
    use optpar::*;
    const PATH: u64 = PKEY_INDEX | LAG_TX_AFF;
    const RIGHTS: u64 = RRE | RAE | RWE;
    const MOVES: u64 = ALT_ADDR_PATH | PM_STATE;
    let [init, rtr, rts, again, recovered] = match service {
        ServiceType::RC | ServiceType::XRC => [
            PATH | RIGHTS | PRI_PORT,
            PATH | RIGHTS | ALT_ADDR_PATH,
            MOVES | RIGHTS | RNR_TIMEOUT,
            MOVES | RIGHTS | RNR_TIMEOUT,
            RIGHTS | RNR_TIMEOUT,
        ],
        ServiceType::UC => {
            [PATH | RWE | PRI_PORT, PATH | RWE | ALT_ADDR_PATH, MOVES | RWE, MOVES | RWE, RWE]
        }
        ServiceType::UD => [
            PKEY_INDEX | Q_KEY | PRI_PORT,
            PKEY_INDEX | Q_KEY,
            Q_KEY,
            Q_KEY | SRQN | CQN_RCV,
            Q_KEY,
        ],
        _ => [0; 5],
    };
    Some(match opcode {
        CmdOpcode::RST2INIT_QP => 0,
        CmdOpcode::INIT2INIT_QP => init,
        CmdOpcode::INIT2RTR_QP => rtr,
        CmdOpcode::RTR2RTS_QP => rts,
        CmdOpcode::RTS2RTS_QP => again | COUNTER_SET_ID | LAG_TX_AFF,
        // `opt_mask` has no row of XRC for a drained queue.
        CmdOpcode::SQD_RTS_QP if service == ServiceType::XRC => 0,
        CmdOpcode::SQERR2RTS_QP | CmdOpcode::SQD_RTS_QP => recovered,
        _ => return None,
    })
}

/// Finds a reserved bit, in the innermost structure.
fn reserved(layout: &Layout, bytes: &[u8]) -> Option<Violation> {
    let mut rest = bytes.to_vec();
    let is_inside = |part: &&Part| part.outer == layout.name;
    for part in PARTS.iter().chain(SELECTIONS).filter(is_inside) {
        let inside = rest.get(part.offset..).unwrap_or_default();
        let found = reserved(&part.layout, &inside[..inside.len().min(part.layout.size)]);
        if found.is_some() {
            return found;
        }
    }
    layout.fields.iter().for_each(|(_, field)| field.set(&mut rest, 0));
    let of_users = OF_USERS.iter().filter(|(name, _)| *name == layout.name);
    of_users.for_each(|(_, field)| field.set(&mut rest, 0));
    layout.blocks.iter().for_each(|(_, block)| block.of_mut(&mut rest).fill(0));
    let byte = rest.iter().position(|byte| *byte != 0)?;
    Some(Violation { why: layout.refusal, byte })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uverbs_mlx5_prm::cmd::cq::modify_cq_in;
    use uverbs_mlx5_prm::cmd::qp::ads;
    use uverbs_mlx5_prm::cmd::steering::modify_tir_in;

    use super::*;
    use crate::firmware::base::table::TABLE;

    fn input(opcode: CmdOpcode, len: usize) -> Vec<u8> {
        let mut input = vec![0; len];
        cmd_in::OPCODE.set(&mut input, opcode.0.into());
        cmd_in::UID.set(&mut input, 7);
        input
    }

    /// A structure with all named bits set, in structures inside it, too.
    fn full(layout: &Layout) -> Vec<u8> {
        let mut bytes = vec![0; layout.size];
        let of_users = OF_USERS.iter().filter(|(name, _)| *name == layout.name);
        for (_, field) in layout.fields.iter().chain(of_users) {
            field.set(&mut bytes, u64::MAX);
        }
        layout.blocks.iter().for_each(|(_, block)| block.of_mut(&mut bytes).fill(0xff));
        for part in PARTS.iter().chain(SELECTIONS).filter(|part| part.outer == layout.name) {
            let inner = full(&part.layout);
            bytes[part.offset..part.offset + inner.len()].copy_from_slice(&inner);
        }
        bytes
    }

    #[test]
    fn each_command_has_its_structures() {
        for entry in TABLE {
            let command = INPUTS.iter().find(|it| it.opcode == entry.opcode);
            assert!(command.is_some(), "{}", entry.opcode);
            assert_eq!(violation(&input(entry.opcode, entry.input)), None, "{}", entry.opcode);
        }
        for part in PARTS.iter().chain(SELECTIONS) {
            let known = INPUTS.iter().map(|input| input.layout.name);
            let mut known = known.chain(PARTS.iter().map(|part| part.layout.name));
            assert!(known.any(|name| name == part.outer), "{}", part.outer);
        }
    }

    #[test]
    fn all_bits_with_a_name_pass_and_no_other() {
        let inner = PARTS.iter().chain(SELECTIONS).map(|part| &part.layout);
        for layout in INPUTS.iter().map(|input| &input.layout).chain(inner) {
            let mut bytes = full(layout);
            assert_eq!(reserved(layout, &bytes), None, "{}", layout.name);
            for bit in 0..8 * bytes.len() {
                let mask = 0x80 >> (bit % 8);
                if bytes[bit / 8] & mask == 0 {
                    bytes[bit / 8] |= mask;
                    assert!(reserved(layout, &bytes).is_some(), "{} bit {bit:#x}", layout.name);
                    bytes[bit / 8] &= !mask;
                }
            }
        }
    }

    /// Blocks that may have any bytes: lists, data, keys and addresses, a mask of events, and
    /// structures that have no reserved bit or that the capabilities exclude.
    const FREE: [&str; 27] = [
        "access_register_in REGISTER_DATA",
        "ads RGID_RIP",
        "alloc_modify_header_context_in ACTIONS",
        "attach_to_mcg_in MULTICAST_GID",
        "create_cq_in PAS",
        "create_eq_in EVENT_BITMASK",
        "create_eq_in PAS",
        "create_mkey_in KLM_PAS_MTT",
        "create_qp_in PAS",
        "create_uctx_in UCTX",
        "create_xrc_srq_in PAS",
        "detach_from_mcg_in MULTICAST_GID",
        "fte_match_param MISC_PARAMETERS_2",
        "fte_match_param MISC_PARAMETERS_3",
        "fte_match_set_lyr_2_4 DST_IPV4_DST_IPV6",
        "fte_match_set_lyr_2_4 SRC_IPV4_SRC_IPV6",
        "mad_ifc_in MAD",
        "manage_pages_in PAS",
        "modify_cq_in PAS",
        "packet_reformat_context_in REFORMAT_DATA",
        "roce_addr_layout SOURCE_L3_ADDRESS",
        "set_driver_version_in DRIVER_VERSION",
        "set_hca_cap_in CAPABILITY",
        "tirc RX_HASH_FIELD_SELECTOR_INNER",
        "tirc RX_HASH_FIELD_SELECTOR_OUTER",
        "tirc RX_HASH_TOEPLITZ_KEY",
        "umem MTT",
    ];

    #[test]
    fn blocks_are_structures_or_free() {
        let inner = PARTS.iter().map(|part| &part.layout);
        let mut free = BTreeSet::new();
        for layout in INPUTS.iter().map(|input| &input.layout).chain(inner) {
            for (name, block) in layout.blocks {
                let is_it =
                    |part: &Part| part.outer == layout.name && part.offset == block.offset();
                if !PARTS.iter().any(is_it) {
                    free.insert(format!("{} {name}", layout.name));
                }
            }
        }
        assert_eq!(free.into_iter().collect::<Vec<_>>(), FREE);
    }

    #[test]
    fn bytes_behind_a_structure_are_a_list_or_are_refused() {
        for command in INPUTS {
            let mut input = input(command.opcode, command.layout.size + 8);
            assert_eq!(violation(&input), None);
            *input.last_mut().unwrap() = 1;
            let has_list = command.layout.blocks.iter().any(|(_, block)| block.len() == 0);
            let is_open = has_list || LISTS.contains(&command.opcode);
            let found = violation(&input).map(|found| found.byte);
            let byte = (!is_open).then_some(command.layout.size + 7);
            assert_eq!(found, byte, "{}", command.opcode);
        }
        let mut destroy = input(CmdOpcode::DESTROY_MKEY, 24);
        destroy[20] = 1;
        assert!(violation(&destroy).is_some());
    }

    #[test]
    fn entries_of_the_ports_lists_have_no_reserved_bit() {
        let context = modify_nic_vport_context_in::NIC_VPORT_CONTEXT.offset();
        for kind in 0..3 {
            let mut input =
                input(CmdOpcode::MODIFY_NIC_VPORT_CONTEXT, modify_nic_vport_context_in::SIZE + 16);
            nic_vport_context::ALLOWED_LIST_TYPE.set(&mut input[context..], kind);
            let entry = modify_nic_vport_context_in::SIZE + 8;
            input[entry + 2..][..2].copy_from_slice(&0x0ffe_u16.to_be_bytes());
            assert_eq!(violation(&input), None, "{kind}");
            input[entry + 1] = 1;
            assert_eq!(violation(&input).map(|found| found.byte), Some(1), "{kind}");
            input[entry + 1] = 0;
            // A VLAN has 12 bits, and nothing behind it.
            for at in [2, 5] {
                let before = std::mem::replace(&mut input[entry + at], 0x1f);
                assert_eq!(violation(&input).is_some(), kind == 2, "{kind} {at}");
                input[entry + at] = before;
            }
        }
    }

    #[test]
    fn bits_without_a_field_are_found_at_every_depth() {
        let mut input = input(CmdOpcode::CREATE_QP, create_qp_in::SIZE + 8);
        let qpc = create_qp_in::QPC.offset();
        let path = qpc + qpc::PRIMARY_ADDRESS_PATH.offset();
        qpc::PD.set(&mut input[qpc..], 0x1234);
        ads::RLID.set(&mut input[path..], 0xbeef);
        // A list behind the structure.
        *input.last_mut().unwrap() = 9;
        assert_eq!(violation(&input), None);
        for (at, why) in
            [(path, "a reserved bit of ads is set"), (qpc, "a reserved bit of qpc is set")]
        {
            input[at + 4] ^= 0x08;
            assert_eq!(violation(&input), Some(Violation { why, byte: 4 }));
            input[at + 4] ^= 0x08;
        }
        input[4] = 1;
        let why = "a reserved bit of create_qp_in is set";
        assert_eq!(violation(&input), Some(Violation { why, byte: 4 }));
        assert_eq!(violation(&[0xff; 64]), None, "no such command");
        assert_eq!(violation(&[]), None);
    }

    #[test]
    fn transitions_take_the_optional_attributes_of_their_service() {
        use optpar::*;
        let is_refused = |opcode, service: ServiceType, mask| {
            let mut input = input(opcode, rst2init_qp_in::SIZE);
            rst2init_qp_in::OPT_PARAM_MASK.set(&mut input, mask);
            qpc::ST.set(rst2init_qp_in::QPC.of_mut(&mut input), service.0.into());
            violation(&input).map(|found| assert_eq!(found.byte, 16)).is_some()
        };
        for (opcode, service, mask, refused) in [
            (CmdOpcode::RST2INIT_QP, ServiceType::RC, PRI_PORT, true),
            (CmdOpcode::INIT2RTR_QP, ServiceType::RC, RRE | RAE | RWE | PKEY_INDEX, false),
            (CmdOpcode::INIT2RTR_QP, ServiceType::RC, RNR_TIMEOUT, true),
            (CmdOpcode::INIT2RTR_QP, ServiceType::RC, Q_KEY, true),
            (CmdOpcode::INIT2RTR_QP, ServiceType::UD, Q_KEY | PKEY_INDEX, false),
            (CmdOpcode::INIT2RTR_QP, ServiceType::UC, RRE, true),
            (CmdOpcode::RTR2RTS_QP, ServiceType::XRC, RNR_TIMEOUT, false),
            (CmdOpcode::RTR2RTS_QP, ServiceType::DCI, RRE, true),
            (CmdOpcode::RTS2RTS_QP, ServiceType::DCI, COUNTER_SET_ID, false),
            (CmdOpcode::RTS2RTS_QP, ServiceType::RC, LAG_TX_AFF, false),
            (CmdOpcode::RTS2RTS_QP, ServiceType::RC, PRI_PORT, true),
            (CmdOpcode::SQERR2RTS_QP, ServiceType::XRC, RNR_TIMEOUT | RRE, false),
            (CmdOpcode::SQD_RTS_QP, ServiceType::RC, RNR_TIMEOUT | RRE, false),
            (CmdOpcode::SQD_RTS_QP, ServiceType::XRC, RNR_TIMEOUT, true),
        ] {
            assert_eq!(
                is_refused(opcode, service, mask),
                refused,
                "{opcode} {service:?} {mask:#x}"
            );
        }
    }

    #[test]
    fn selections_name_changes_of_their_command() {
        let mut input = input(CmdOpcode::MODIFY_TIR, modify_tir_in::SIZE);
        modify_tir_in::BITMASK.set(&mut input, 1 << 4 | 1 << 2 | 1);
        assert_eq!(violation(&input), None);
        modify_tir_in::BITMASK.set(&mut input, 1 << 3);
        let why = "a reserved bit of modify_tir_bitmask is set";
        assert_eq!(violation(&input), Some(Violation { why, byte: 7 }));
        let mut input = self::input(CmdOpcode::MODIFY_CQ, modify_cq_in::SIZE);
        let select = MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT;
        select.set(&mut input, 1 << 3);
        assert!(violation(&input).is_some());
        select.set(&mut input, 1 << 4 | 1);
        assert_eq!(violation(&input), None);
        cmd_in::OP_MOD.set(&mut input, RESIZE_CQ.into());
        assert!(violation(&input).is_some());
        select.set(&mut input, RESIZE_FIELDS);
        assert_eq!(violation(&input), None);
    }
}
