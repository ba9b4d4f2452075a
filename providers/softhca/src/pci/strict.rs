//! Strict mode: the firmware refuses a command with a reserved bit, and one that selects a change
//! which the command does not make.
//!
//! A bit is reserved if no field of the input's structures has it. Fields that mlx5-prm lacks
//! belong to capabilities that this device lacks, too.

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::cq::modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT;
use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{create_qp_in, qpc, rst2init_qp_in};
use uverbs_mlx5_prm::cmd::sq::modify_rq_in;
use uverbs_mlx5_prm::context::ServiceType;

use super::layouts::{INPUTS, Layout, OF_USERS, PARTS, Part, SELECTIONS};

/// Optional attributes of transitions (Linux `include/linux/mlx5/qp.h`, `MLX5_QP_OPTPAR_*`).
mod optpar {
    pub(super) const ALT_ADDR_PATH: u64 = 1;
    pub(super) const RRE: u64 = 1 << 1;
    pub(super) const RAE: u64 = 1 << 2;
    pub(super) const RWE: u64 = 1 << 3;
    pub(super) const PKEY_INDEX: u64 = 1 << 4;
    pub(super) const Q_KEY: u64 = 1 << 5;
    pub(super) const RNR_TIMEOUT: u64 = 1 << 6;
    pub(super) const PM_STATE: u64 = 1 << 10;
    pub(super) const LAG_TX_AFF: u64 = 1 << 15;
    pub(super) const PRI_PORT: u64 = 1 << 16;
    pub(super) const SRQN: u64 = 1 << 18;
    pub(super) const CQN_RCV: u64 = 1 << 19;
    pub(super) const COUNTER_SET_ID: u64 = 1 << 25;
}

/// Fields that MODIFY_CQ changes (Linux `include/linux/mlx5/cq.h`, `MLX5_CQ_MODIFY_*`), and those
/// that a resize does (`include/linux/mlx5/device.h`, `MLX5_MODIFY_CQ_MASK_*`).
const CQ_CHANGES: u64 = 0b1_0111;
const CQ_RESIZE: u64 = 0b111;
/// `op_mod` of MODIFY_CQ for a resize (`MLX5_MODIFY_CQ_IN_OP_MOD_RESIZE_CQ`).
const RESIZE: u64 = 1;
/// Fields that MODIFY_RQ changes (`MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_*`).
const RQ_CHANGES: u64 = 0b1110;

/// Reason to refuse a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) why: &'static str,
    /// First byte in the structure that `why` names; in the input for a selection.
    pub(super) byte: usize,
}

/// Returns the reason to refuse a command with this input.
pub(super) fn violation(input: &[u8]) -> Option<Violation> {
    let opcode = CmdOpcode(cmd_in::OPCODE.get32(input) as u16);
    let command = INPUTS.iter().find(|command| command.opcode == opcode)?;
    let mut rest = input[..input.len().min(command.layout.size)].to_vec();
    cmd_in::FIELDS.iter().for_each(|(_, field)| field.set(&mut rest, 0));
    selects(opcode, input).or_else(|| reserved(&command.layout, &rest))
}

/// Checks the optional attributes of a transition, and the changes of MODIFY_CQ and MODIFY_RQ.
fn selects(opcode: CmdOpcode, input: &[u8]) -> Option<Violation> {
    let refuse = |field: Field, why| Some(Violation { why, byte: field.bit() as usize / 8 });
    let (field, allowed) = match opcode {
        CmdOpcode::MODIFY_CQ if cmd_in::OP_MOD.get(input) == RESIZE => {
            let field = MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT;
            if field.get(input) != CQ_RESIZE {
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
/// another command. Every service takes a counter (`__mlx5_ib_qp_set_counter`).
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
        CmdOpcode::RTS2RTS_QP => again | COUNTER_SET_ID,
        CmdOpcode::SQERR2RTS_QP | CmdOpcode::SQD_RTS_QP => recovered,
        _ => return None,
    })
}

/// Finds a reserved bit, in the innermost structure.
fn reserved(layout: &Layout, bytes: &[u8]) -> Option<Violation> {
    // A list may follow the structure.
    let mut rest = bytes[..bytes.len().min(layout.size)].to_vec();
    let is_inside = |part: &&Part| part.outer == layout.name;
    for part in PARTS.iter().chain(SELECTIONS).filter(is_inside) {
        let found = reserved(&part.layout, rest.get(part.offset..).unwrap_or_default());
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

    #[test]
    fn each_command_has_its_structures() {
        for entry in TABLE {
            assert_eq!(violation(&input(entry.opcode, entry.input)), None, "{}", entry.opcode);
            assert!(INPUTS.iter().any(|it| it.opcode == entry.opcode), "{}", entry.opcode);
        }
        for part in PARTS.iter().chain(SELECTIONS) {
            let known = INPUTS.iter().map(|input| input.layout.name);
            let mut known = known.chain(PARTS.iter().map(|part| part.layout.name));
            assert!(known.any(|name| name == part.outer), "{}", part.outer);
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
        cmd_in::OP_MOD.set(&mut input, RESIZE);
        assert!(violation(&input).is_some());
        select.set(&mut input, CQ_RESIZE);
        assert_eq!(violation(&input), None);
    }
}
