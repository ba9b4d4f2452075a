//! Changes of frames by flow table entries: packet reformats (headers added or removed) and
//! modified header fields (Linux `core/fs_cmd.c`, `mlx5_cmd_packet_reformat_alloc` and
//! `mlx5_cmd_modify_header_alloc`).

use uverbs_mlx5_prm::cmd::flow::{
    add_action_in, alloc_modify_header_context_in, alloc_modify_header_context_out,
    alloc_packet_reformat_context_in, alloc_packet_reformat_context_out, copy_action_in,
    dealloc_modify_header_context_in, dealloc_packet_reformat_context_in,
    packet_reformat_context_in, set_action_in,
};

use crate::board::capabilities::MAX_ENCAP_HEADER;
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::frames::interfaces::numbered;
use crate::firmware::frames::tables::direction;
use crate::hca::ethernet::{Bits, HeaderField, MAX_REWRITES, Reformat, Rewrite};

/// Values of `reformat_type` (`mlx5_ifc.h`, `MLX5_REFORMAT_TYPE_*`). The first two are the third
/// for one kind of tunnel each.
const L2_TO_VXLAN: u64 = 0;
const L2_TO_NVGRE: u64 = 1;
const L2_TO_L2_TUNNEL: u64 = 2;
const L3_TUNNEL_TO_L2: u64 = 3;
const L2_TO_L3_TUNNEL: u64 = 4;
/// Bytes of an Ethernet header, without and with a VLAN tag.
const ETHERNET_LENS: [usize; 2] = [14, 18];
/// Values of `action_type` (`MLX5_ACTION_TYPE_*`).
const SET: u64 = 1;
const ADD: u64 = 2;
const COPY: u64 = 3;

fn rewrite(action: &[u8]) -> Result<Rewrite, Refusal> {
    Ok(match set_action_in::ACTION_TYPE.get(action) {
        SET => {
            use set_action_in::{DATA, FIELD, LENGTH, OFFSET};
            let bits = Bits::new(FIELD.get(action), OFFSET.get32(action), LENGTH.get32(action))?;
            Rewrite::Set(bits, DATA.get32(action))
        }
        ADD => {
            use add_action_in::{DATA, FIELD};
            Rewrite::Add(HeaderField::new(FIELD.get(action))?, DATA.get32(action))
        }
        COPY => {
            use copy_action_in::{DST_FIELD, DST_OFFSET, LENGTH, SRC_FIELD, SRC_OFFSET};
            let len = LENGTH.get32(action);
            Rewrite::Copy {
                from: Bits::new(SRC_FIELD.get(action), SRC_OFFSET.get32(action), len)?,
                to: Bits::new(DST_FIELD.get(action), DST_OFFSET.get32(action), len)?,
            }
        }
        _ => return Err(Refusal::param("action_type")),
    })
}

impl Firmware {
    pub(crate) fn alloc_reformat(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use packet_reformat_context_in as context;
        let at = alloc_packet_reformat_context_in::PACKET_REFORMAT_CONTEXT.offset();
        let input = call.input.get(at..).unwrap_or_default();
        let len = context::REFORMAT_DATA_SIZE.get(input) as usize;
        let data = input.get(context::REFORMAT_DATA.offset()..).and_then(|data| data.get(..len));
        let data = data.ok_or(Refusal::param("fewer bytes than the header has"))?.to_vec();
        if len > MAX_ENCAP_HEADER {
            return Err(Refusal::param("too long a header"));
        }
        let least = ETHERNET_LENS[0];
        let reformat = match context::REFORMAT_TYPE.get(input) {
            L2_TO_VXLAN | L2_TO_NVGRE | L2_TO_L2_TUNNEL if len >= least => {
                Reformat::WrapFrame(data)
            }
            L2_TO_L3_TUNNEL if len >= least => Reformat::WrapPacket(data),
            L3_TUNNEL_TO_L2 if ETHERNET_LENS.contains(&len) => Reformat::UnwrapPacket(data),
            L2_TO_VXLAN..=L2_TO_L3_TUNNEL => {
                return Err(Refusal::param("not an Ethernet header"));
            }
            _ => return Err(Refusal::param("reformat_type")),
        };
        let steering = self.hca.steering();
        let numbers = &mut self.interfaces.reformats;
        let number = numbered(numbers, |number| steering.add_reformat(number, reformat))?;
        alloc_packet_reformat_context_out::PACKET_REFORMAT_ID.set(call.output, number.into());
        Ok(())
    }

    pub(crate) fn dealloc_reformat(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = dealloc_packet_reformat_context_in::PACKET_REFORMAT_ID.get32(call.input);
        self.hca.steering().remove_reformat(number)?;
        self.interfaces.reformats.give_back(number);
        Ok(())
    }

    pub(crate) fn alloc_rewrites(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use alloc_modify_header_context_in::{ACTIONS, NUM_OF_ACTIONS, TABLE_TYPE};
        let direction = direction(call, TABLE_TYPE)?;
        let count = NUM_OF_ACTIONS.get(call.input) as usize;
        let actions = ACTIONS.of(call.input).get(..count * set_action_in::SIZE);
        let actions = actions.ok_or(Refusal::param("a list ends early"))?;
        if count > MAX_REWRITES {
            return Err(Refusal::param("too many changes of headers"));
        }
        let rewrites = actions.chunks_exact(set_action_in::SIZE).map(rewrite);
        let rewrites = rewrites.collect::<Result<Vec<_>, _>>()?;
        let steering = self.hca.steering();
        let numbers = &mut self.interfaces.rewrites;
        let add = |number| steering.add_rewrites(number, direction, rewrites);
        let number = numbered(numbers, add)?;
        alloc_modify_header_context_out::MODIFY_HEADER_ID.set(call.output, number.into());
        Ok(())
    }

    pub(crate) fn dealloc_rewrites(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = dealloc_modify_header_context_in::MODIFY_HEADER_ID.get32(call.input);
        self.hca.steering().remove_rewrites(number)?;
        self.interfaces.rewrites.give_back(number);
        Ok(())
    }
}
