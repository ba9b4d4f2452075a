//! Transport interfaces and RQ tables (Linux `core/transobj.c`, `core/en/tir.c`, `core/en/rqt.c`,
//! `hw/mlx5/qp.c`).

use std::collections::BTreeMap;

use uverbs_mlx5_prm::cmd::steering::{
    create_rqt_in, create_rqt_out, create_tir_in, create_tir_out, create_tis_in, create_tis_out,
    destroy_rqt_in, destroy_tir_in, destroy_tis_in, modify_rqt_in, modify_tir_bitmask,
    modify_tir_in, rq_num, rqt_bitmask, rqtc, rx_hash_field_select, tirc, tisc,
};

use crate::board::capabilities::{LOG_MAX_RQT_SIZE, MAX_STEERING};
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::numbers::Numbers;
use uverbs_front::backend::steering::{
    HashContext, HashFunction, Selector, Spread, TirContext, Wrong,
};

/// `disp_type` (`MLX5_TIRC_DISP_TYPE_*`).
const DIRECT: u64 = 0;
const INDIRECT: u64 = 1;
/// Bits of `self_lb_block`.
const UNICAST: u64 = 1;
const MULTICAST: u64 = 2;

/// Numbers of steering objects, and transport domains of TISes.
#[derive(Debug)]
pub(crate) struct Interfaces {
    tises: Numbers,
    domains: BTreeMap<u32, u32>,
    tirs: Numbers,
    rqts: Numbers,
    pub(crate) flow_tables: Numbers,
    pub(crate) flow_groups: Numbers,
    pub(crate) flow_counters: Numbers,
    pub(crate) reformats: Numbers,
    pub(crate) rewrites: Numbers,
    /// Allocations of several flow counters: the first number, and the count.
    pub(crate) counter_rows: BTreeMap<u32, u32>,
}

impl Default for Interfaces {
    fn default() -> Self {
        let numbers = || Numbers::new(1, MAX_STEERING);
        Self {
            tises: numbers(),
            domains: BTreeMap::new(),
            tirs: numbers(),
            rqts: numbers(),
            flow_tables: numbers(),
            flow_groups: numbers(),
            flow_counters: numbers(),
            reformats: numbers(),
            rewrites: numbers(),
            counter_rows: BTreeMap::new(),
        }
    }
}

impl Interfaces {
    /// Transport domain of a TIS.
    pub(crate) fn domain(&self, tisn: u32) -> Option<u32> {
        self.domains.get(&tisn).copied()
    }
}

/// Allocates a number for an object that `make` creates. Frees it if `make` fails.
pub(crate) fn numbered(
    numbers: &mut Numbers,
    make: impl FnOnce(u32) -> Result<(), Wrong>,
) -> Result<u32, Refusal> {
    let number = numbers.take().ok_or(Refusal::NO_NUMBER)?;
    match make(number) {
        Ok(()) => Ok(number),
        Err(wrong) => {
            numbers.give_back(number);
            Err(wrong.into())
        }
    }
}

fn hash(context: &[u8]) -> Result<HashContext, Refusal> {
    let function = match tirc::RX_HASH_FN.get(context) {
        0 => HashFunction::None,
        1 => HashFunction::InvertedXor8,
        2 => HashFunction::Toeplitz,
        _ => return Err(Refusal::param("rx_hash_fn")),
    };
    let selector = tirc::RX_HASH_FIELD_SELECTOR_OUTER.of(context);
    Ok(HashContext {
        function,
        symmetric: tirc::RX_HASH_SYMMETRIC.is_set(context),
        key: tirc::RX_HASH_TOEPLITZ_KEY.of(context).try_into().unwrap_or([0; 40]),
        selector: Selector {
            ipv6: rx_hash_field_select::L3_PROT_TYPE.is_set(selector),
            udp: rx_hash_field_select::L4_PROT_TYPE.is_set(selector),
            fields: rx_hash_field_select::SELECTED_FIELDS.get32(selector),
        },
    })
}

fn tir(context: &[u8]) -> Result<TirContext, Refusal> {
    let spread = match tirc::DISP_TYPE.get(context) {
        DIRECT => Spread::Queue(tirc::INLINE_RQN.get32(context)),
        INDIRECT => Spread::Table(tirc::INDIRECT_TABLE.get32(context)),
        _ => return Err(Refusal::param("disp_type")),
    };
    if tirc::PACKET_MERGE_MASK.is_set(context) || tirc::TLS_EN.is_set(context) {
        return Err(Refusal::param("no merging of packets, no TLS"));
    }
    let own = tirc::SELF_LB_BLOCK.get(context);
    Ok(TirContext {
        spread,
        hash: hash(context)?,
        domain: tirc::TRANSPORT_DOMAIN.get32(context),
        hears_own_unicast: own & UNICAST != 0,
        hears_own_multicast: own & MULTICAST != 0,
    })
}

/// Queues behind the fixed part of a command.
fn queues(context: &[u8], list: &[u8]) -> Result<Vec<u32>, Refusal> {
    let count = rqtc::RQT_ACTUAL_SIZE.get(context) as usize;
    let list = list.get(..count * rq_num::SIZE).ok_or(Refusal::param("a short list of queues"))?;
    Ok(list.chunks_exact(rq_num::SIZE).map(|entry| rq_num::RQ_NUM.get32(entry)).collect())
}

impl Firmware {
    pub(crate) fn create_tis(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let domain = tisc::TRANSPORT_DOMAIN.get32(create_tis_in::CTX.of(call.input));
        let domains = &mut self.interfaces.domains;
        let number = numbered(&mut self.interfaces.tises, |number| {
            domains.insert(number, domain);
            Ok(())
        })?;
        create_tis_out::TISN.set(call.output, number.into());
        Ok(())
    }

    pub(crate) fn destroy_tis(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = destroy_tis_in::TISN.get32(call.input);
        self.interfaces.domains.remove(&number).ok_or(Refusal::resource("no such TIS"))?;
        self.interfaces.tises.give_back(number);
        Ok(())
    }

    pub(crate) fn create_tir(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = tir(create_tir_in::CTX.of(call.input))?;
        if let Spread::Queue(rqn) = context.spread {
            self.frame_rqs.check(call, rqn)?;
        }
        let steering = self.hca.steering();
        let number =
            numbered(&mut self.interfaces.tirs, |number| steering.set_tir(number, context))?;
        create_tir_out::TIRN.set(call.output, number.into());
        Ok(())
    }

    pub(crate) fn modify_tir(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = modify_tir_in::TIRN.get32(call.input);
        let bits = modify_tir_in::BITMASK.get(call.input).to_be_bytes();
        let context = modify_tir_in::CTX.of(call.input);
        let mut changed = self.hca.steering().tir(number)?.clone();
        if modify_tir_bitmask::PACKET_MERGE.is_set(&bits) && tirc::PACKET_MERGE_MASK.is_set(context)
        {
            return Err(Refusal::param("no merging of packets, no TLS"));
        }
        if modify_tir_bitmask::HASH.is_set(&bits) {
            changed.hash = hash(context)?;
        }
        if modify_tir_bitmask::SELF_LB_EN.is_set(&bits) {
            let own = tirc::SELF_LB_BLOCK.get(context);
            changed.hears_own_unicast = own & UNICAST != 0;
            changed.hears_own_multicast = own & MULTICAST != 0;
        }
        Ok(self.hca.steering().set_tir(number, changed)?)
    }

    pub(crate) fn destroy_tir(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = destroy_tir_in::TIRN.get32(call.input);
        self.hca.steering().remove_tir(number)?;
        self.interfaces.tirs.give_back(number);
        Ok(())
    }

    pub(crate) fn create_rqt(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_rqt_in::RQT_CONTEXT.of(call.input);
        let (most, now) = (rqtc::RQT_MAX_SIZE.get(context), rqtc::RQT_ACTUAL_SIZE.get(context));
        if most > 1 << LOG_MAX_RQT_SIZE || now > most {
            return Err(Refusal::param("size of a table of receive queues"));
        }
        let list = call.input.get(create_rqt_in::SIZE..).unwrap_or_default();
        let queues = queues(context, list)?;
        queues.iter().try_for_each(|&rqn| self.frame_rqs.check(call, rqn))?;
        let steering = self.hca.steering();
        let number =
            numbered(&mut self.interfaces.rqts, |number| steering.set_spread(number, queues))?;
        create_rqt_out::RQTN.set(call.output, number.into());
        Ok(())
    }

    pub(crate) fn modify_rqt(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = modify_rqt_in::RQTN.get32(call.input);
        self.hca.steering().spread(number)?;
        let bits = modify_rqt_in::BITMASK.get(call.input).to_be_bytes();
        if rqt_bitmask::RQN_LIST.is_set(&bits) {
            let list = call.input.get(modify_rqt_in::SIZE..).unwrap_or_default();
            let queues = queues(modify_rqt_in::CTX.of(call.input), list)?;
            queues.iter().try_for_each(|&rqn| self.frame_rqs.check(call, rqn))?;
            self.hca.steering().set_spread(number, queues)?;
        }
        Ok(())
    }

    pub(crate) fn destroy_rqt(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = destroy_rqt_in::RQTN.get32(call.input);
        self.hca.steering().remove_spread(number)?;
        self.interfaces.rqts.give_back(number);
        Ok(())
    }
}
