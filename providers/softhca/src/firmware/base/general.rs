//! General objects that this device has: reserved queue pair numbers, and address vectors mapped to
//! a queue pair (rdma-core `mlx5.c`, `reserved_qpn_blk_alloc`; `verbs.c`, `_mlx5dv_map_ah_to_qp`).

use uverbs_mlx5_prm::cmd::general::{
    AV_QP_MAPPING, AV_QP_MAPPING_IN, AV_QP_MAPPING_QPN, CREATE_LOG_OBJ_RANGE, RESERVED_QPN,
    RESERVED_QPN_IN, general_obj_in_cmd_hdr as header, general_obj_out_cmd_hdr as answer,
};
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;

use crate::board::capabilities::LOG_RESERVED_QPNS;
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::numbers::Numbers;
use crate::firmware::base::owner::OwnedNumbers;
use crate::hca::RESERVED_QPNS;

/// Object types (`general_obj_types`).
pub(crate) const KINDS: u64 = 1 << RESERVED_QPN | 1 << AV_QP_MAPPING;
/// Maximum mapped addresses.
const MAX_MAPPINGS: u32 = 1 << 20;

/// All general objects.
#[derive(Clone, Debug)]
pub(crate) struct General {
    /// Reserved blocks. Block `n` starts at the QPN `n` times 2^[`LOG_RESERVED_QPNS`].
    reserved: OwnedNumbers,
    mappings: OwnedNumbers,
}

impl Default for General {
    fn default() -> Self {
        let block = |qpn: u32| qpn >> LOG_RESERVED_QPNS;
        let blocks = Numbers::new(block(RESERVED_QPNS.start), block(RESERVED_QPNS.end));
        Self {
            reserved: OwnedNumbers::new(blocks),
            mappings: OwnedNumbers::new(Numbers::new(1, MAX_MAPPINGS)),
        }
    }
}

impl Firmware {
    pub(crate) fn create_general(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let id = match header::OBJ_TYPE.get(call.input) as u16 {
            RESERVED_QPN => {
                check_length(call, RESERVED_QPN_IN)?;
                if CREATE_LOG_OBJ_RANGE.get(call.input) != LOG_RESERVED_QPNS {
                    return Err(Refusal::param("log_obj_range"));
                }
                self.general.reserved.take(call).ok_or(Refusal::NO_NUMBER)? << LOG_RESERVED_QPNS
            }
            AV_QP_MAPPING => {
                check_length(call, AV_QP_MAPPING_IN)?;
                // The queue pair may be a peer's, so its owner is not checked. Packets follow the
                // address vector in any case, so the mapping has no further effect here.
                let qpn = AV_QP_MAPPING_QPN.get32(call.input);
                self.qps.find(qpn).ok_or(Refusal::resource("no such queue pair"))?;
                self.general.mappings.take(call).ok_or(Refusal::NO_NUMBER)?
            }
            _ => return Err(NO_KIND),
        };
        answer::OBJ_ID.set(call.output, id.into());
        Ok(())
    }

    pub(crate) fn destroy_general(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let id = header::OBJ_ID.get32(call.input);
        let gone = match header::OBJ_TYPE.get(call.input) as u16 {
            RESERVED_QPN => {
                let block = id >> LOG_RESERVED_QPNS;
                block << LOG_RESERVED_QPNS == id && self.general.reserved.give_back(call, block)
            }
            AV_QP_MAPPING => self.general.mappings.give_back(call, id),
            _ => return Err(NO_KIND),
        };
        if gone { Ok(()) } else { Err(Refusal::resource("no such general object")) }
    }
}

const NO_KIND: Refusal = Refusal::param("no such kind of general object here");

fn check_length(call: &Call<'_>, least: usize) -> Result<(), Refusal> {
    match call.input.len() < least {
        true => Err(Refusal::new(CmdStatus::BAD_INP_LEN_ERR, "input too short")),
        false => Ok(()),
    }
}
