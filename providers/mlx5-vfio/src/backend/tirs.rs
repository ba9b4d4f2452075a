//! TIRs and RQ tables: destinations of received frames (Linux `hw/mlx5/qp.c`,
//! `create_raw_packet_qp_tir`, `create_rss_raw_qp_tir`, `mlx5_ib_create_rwq_ind_table`).

use std::collections::BTreeMap;

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::steering::{
    create_rqt_in, create_rqt_out, create_tir_in, create_tir_out, destroy_rqt_in, destroy_tir_in,
    rq_num, rqtc, rx_hash_field_select, tirc,
};

use super::Firmware;
use uverbs_front::backend::error::Noun;
use uverbs_front::backend::steering::{HashContext, HashFunction, Spread, TirContext, Wrong};

/// `disp_type` (`MLX5_TIRC_DISP_TYPE_*`).
const DIRECT: u64 = 0;
const INDIRECT: u64 = 1;
/// `rx_hash_fn` (`MLX5_RX_HASH_FN_*`).
const INVERTED_XOR8: u64 = 1;
const TOEPLITZ: u64 = 2;
/// Bits of `self_lb_block`: the TIR receives frames of the same transport domain.
const UNICAST: u64 = 1;
const MULTICAST: u64 = 2;

/// The device's numbers by the front's.
#[derive(Debug, Default)]
pub(super) struct Tirs {
    /// TIRs, with the front's number of their transport domain.
    tirs: BTreeMap<u32, (u32, u32)>,
    spreads: BTreeMap<u32, u32>,
}

impl Firmware {
    pub(super) fn tir(&self, number: u32) -> Result<u32, Wrong> {
        let tir = self.tirs.tirs.get(&number).map(|(tirn, _)| *tirn);
        tir.ok_or(Wrong::Missing("no such TIR"))
    }

    fn spread(&self, number: u32) -> Result<u32, Wrong> {
        let spread = self.tirs.spreads.get(&number).copied();
        spread.ok_or(Wrong::Missing("no such table of receive queues"))
    }

    pub(super) fn make_spread(&mut self, number: u32, queues: &[u32]) -> Result<(), Wrong> {
        let mut input = vec![0; create_rqt_in::SIZE];
        let rqtc = create_rqt_in::RQT_CONTEXT.of_mut(&mut input);
        for field in [rqtc::RQT_MAX_SIZE, rqtc::RQT_ACTUAL_SIZE] {
            field.set(rqtc, queues.len() as u64);
        }
        for queue in queues {
            let mut entry = [0; rq_num::SIZE];
            rq_num::RQ_NUM.set(&mut entry, (*queue).into());
            input.extend(entry);
        }
        let outlen = create_rqt_out::SIZE;
        let output = self.create(CmdOpcode::CREATE_RQT, &input, outlen, Noun::Qp);
        let output = output.map_err(Wrong::Device)?;
        self.tirs.spreads.insert(number, create_rqt_out::RQTN.get32(&output));
        Ok(())
    }

    pub(super) fn end_spread(&mut self, number: u32) -> Result<(), Wrong> {
        let object = (Noun::Qp, self.spread(number)?);
        let done = self.destroy(CmdOpcode::DESTROY_RQT, destroy_rqt_in::RQTN, object);
        done.map_err(Wrong::Device)?;
        self.tirs.spreads.remove(&number);
        Ok(())
    }

    pub(super) fn make_tir(&mut self, number: u32, context: &TirContext) -> Result<(), Wrong> {
        let (kind, field, queues) = match context.spread {
            Spread::Queue(rqn) => (DIRECT, tirc::INLINE_RQN, rqn),
            Spread::Table(table) => (INDIRECT, tirc::INDIRECT_TABLE, self.spread(table)?),
        };
        let domain = self.join_domain(context.domain).map_err(Wrong::Device)?;
        let mut input = vec![0; create_tir_in::SIZE];
        let tirc = create_tir_in::CTX.of_mut(&mut input);
        let own = [(context.hears_own_unicast, UNICAST), (context.hears_own_multicast, MULTICAST)];
        let own = own.iter().filter(|(hears, _)| *hears).fold(0, |bits, (_, bit)| bits | bit);
        for (field, value) in [
            (tirc::DISP_TYPE, kind),
            (field, queues.into()),
            (tirc::SELF_LB_BLOCK, own),
            (tirc::TRANSPORT_DOMAIN, domain.into()),
        ] {
            field.set(tirc, value);
        }
        hash(&context.hash, tirc);
        let outlen = create_tir_out::SIZE;
        match self.create(CmdOpcode::CREATE_TIR, &input, outlen, Noun::Qp) {
            Ok(output) => {
                let tirn = create_tir_out::TIRN.get32(&output);
                self.tirs.tirs.insert(number, (tirn, context.domain));
                Ok(())
            }
            Err(error) => {
                self.leave_domain(context.domain);
                Err(Wrong::Device(error))
            }
        }
    }

    pub(super) fn end_tir(&mut self, number: u32) -> Result<(), Wrong> {
        let object = (Noun::Qp, self.tir(number)?);
        let done = self.destroy(CmdOpcode::DESTROY_TIR, destroy_tir_in::TIRN, object);
        done.map_err(Wrong::Device)?;
        if let Some((_, domain)) = self.tirs.tirs.remove(&number) {
            self.leave_domain(domain);
        }
        Ok(())
    }
}

/// Fills in the hash of a TIR.
fn hash(hash: &HashContext, tirc: &mut [u8]) {
    let function = match hash.function {
        HashFunction::None => return,
        HashFunction::InvertedXor8 => INVERTED_XOR8,
        HashFunction::Toeplitz => TOEPLITZ,
    };
    tirc::RX_HASH_FN.set(tirc, function);
    tirc::RX_HASH_SYMMETRIC.set(tirc, hash.symmetric.into());
    tirc::RX_HASH_TOEPLITZ_KEY.of_mut(tirc).copy_from_slice(&hash.key);
    let selector = tirc::RX_HASH_FIELD_SELECTOR_OUTER.of_mut(tirc);
    rx_hash_field_select::L3_PROT_TYPE.set(selector, hash.selector.ipv6.into());
    rx_hash_field_select::L4_PROT_TYPE.set(selector, hash.selector.udp.into());
    rx_hash_field_select::SELECTED_FIELDS.set(selector, hash.selector.fields.into());
}
