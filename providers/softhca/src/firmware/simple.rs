//! Objects that are a number and nothing else: doorbell pages, protection domains, XRC domains,
//! transport domains, users of the command interface, and sets of counters.

use std::collections::BTreeMap;

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;
use uverbs_mlx5_prm::cmd::simple::{
    alloc_pd_out, alloc_q_counter_out, alloc_transport_domain_out, alloc_uar_out, alloc_xrcd_out,
    create_uctx_out, dealloc_pd_in, dealloc_q_counter_in, dealloc_transport_domain_in,
    dealloc_uar_in, dealloc_xrcd_in, destroy_uctx_in,
};

use super::Firmware;
use super::call::{Call, Refusal};
use super::numbers::Numbers;
use crate::board::bar::{FIRST_UAR, LAST_UAR};

/// Log2 of the users of the command interface.
pub(super) const MAX_UCTX_LOG: u8 = 12;
/// User number of the driver's own commands.
const DRIVER: u64 = 0;
/// Numbers of 24 bits, one bit kept back.
const MAX_NUMBER: u32 = 1 << 23;
/// Sets of counters: their number is a byte of the queue pair's context, and 0 is none.
pub(super) const MAX_COUNTERS: u32 = u8::MAX as u32;

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Simple {
    uars: Numbers,
    pds: Numbers,
    /// The users of the command interface whose protection domains these are; the others are the
    /// driver's.
    pd_owners: BTreeMap<u32, u64>,
    xrcds: Numbers,
    tds: Numbers,
    uctxs: Numbers,
    counters: Numbers,
}

impl Default for Simple {
    fn default() -> Self {
        Self {
            // The number is the page's place in the BAR.
            uars: Numbers::new(FIRST_UAR, LAST_UAR + 1),
            pds: Numbers::new(1, MAX_NUMBER),
            pd_owners: BTreeMap::new(),
            xrcds: Numbers::new(1, MAX_NUMBER),
            tds: Numbers::new(1, MAX_NUMBER),
            uctxs: Numbers::new(1, 1 << MAX_UCTX_LOG),
            counters: Numbers::new(1, MAX_COUNTERS + 1),
        }
    }
}

impl Simple {
    pub(super) fn has_uar(&self, uar: u32) -> bool {
        self.uars.is_taken(uar)
    }

    pub(super) fn has_q_counter(&self, number: u32) -> bool {
        self.counters.is_taken(number)
    }

    pub(super) fn has_pd(&self, pd: u32) -> bool {
        self.pds.is_taken(pd)
    }

    /// Whether a command may name the domain: the driver's any, a user's its own (Linux
    /// `hw/mlx5/qp.c`, `_create_user_qp`, and `hw/mlx5/main.c`, `mlx5_ib_alloc_pd`, say whose
    /// command it is; `hw/mlx5/devx.c` does for what a process wrote).
    pub(super) fn may_use_pd(&self, call: &Call<'_>, pd: u32) -> bool {
        let uid = cmd_in::UID.get(call.input);
        self.has_pd(pd) && (uid == DRIVER || self.pd_owners.get(&pd) == Some(&uid))
    }
}

fn take(numbers: &mut Numbers, call: &mut Call<'_>, answer: Field) -> Result<(), Refusal> {
    let none = Refusal::new(CmdStatus::NO_RES_ERR, "no number is left");
    answer.set(call.output, numbers.take().ok_or(none)?.into());
    Ok(())
}

fn give_back(numbers: &mut Numbers, call: &Call<'_>, number: Field) -> Result<(), Refusal> {
    match numbers.give_back(number.get32(call.input)) {
        true => Ok(()),
        false => Err(Refusal::resource("no such number")),
    }
}

impl Firmware {
    pub(super) fn alloc_pd(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.take_pd(call)?;
        let uid = cmd_in::UID.get(call.input);
        if uid != DRIVER {
            self.simple.pd_owners.insert(alloc_pd_out::PD.get32(call.output), uid);
        }
        Ok(())
    }

    pub(super) fn dealloc_pd(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.give_back_pd(call)?;
        self.simple.pd_owners.remove(&dealloc_pd_in::PD.get32(call.input));
        Ok(())
    }
}

/// The two commands of each kind.
macro_rules! commands {
    ($($take:ident $answer:path, $give:ident $number:path, $kind:ident;)*) => {
        impl Firmware { $(
            pub(super) fn $take(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
                take(&mut self.simple.$kind, call, $answer)
            }

            pub(super) fn $give(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
                give_back(&mut self.simple.$kind, call, $number)
            }
        )* }
    };
}

commands! {
    alloc_uar alloc_uar_out::UAR, dealloc_uar dealloc_uar_in::UAR, uars;
    take_pd alloc_pd_out::PD, give_back_pd dealloc_pd_in::PD, pds;
    alloc_xrcd alloc_xrcd_out::XRCD, dealloc_xrcd dealloc_xrcd_in::XRCD, xrcds;
    alloc_td alloc_transport_domain_out::TRANSPORT_DOMAIN,
        dealloc_td dealloc_transport_domain_in::TRANSPORT_DOMAIN, tds;
    create_uctx create_uctx_out::UID, destroy_uctx destroy_uctx_in::UID, uctxs;
    take_q_counter alloc_q_counter_out::COUNTER_SET_ID,
        dealloc_q_counter dealloc_q_counter_in::COUNTER_SET_ID, counters;
}
