//! Objects without state except their number: doorbell pages, protection domains, XRC domains,
//! transport domains, users of the command interface, and counter sets.

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::simple::{
    alloc_pd_out, alloc_q_counter_out, alloc_transport_domain_out, alloc_uar_out, alloc_xrcd_out,
    create_uctx_out, dealloc_pd_in, dealloc_q_counter_in, dealloc_transport_domain_in,
    dealloc_uar_in, dealloc_xrcd_in, destroy_uctx_in,
};

use crate::board::bar::{FIRST_UAR, LAST_UAR};
use crate::board::capabilities::{LOG_MAX_NUMBER, LOG_MAX_UCTX, MAX_COUNTERS};
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::numbers::Numbers;
use crate::firmware::base::owner::{OwnedNumbers, User};

/// All objects of these kinds.
#[derive(Clone, Debug)]
pub(crate) struct Simple {
    /// Doorbell pages, by page of the driver.
    uars: OwnedNumbers,
    /// Log2 of the UARs in a page of the driver (`log_uar_page_sz`).
    log_uars_in_page: u32,
    pds: OwnedNumbers,
    xrcds: OwnedNumbers,
    tds: OwnedNumbers,
    uctxs: OwnedNumbers,
    counters: OwnedNumbers,
}

impl Default for Simple {
    fn default() -> Self {
        let numbers = |first, end| OwnedNumbers::new(Numbers::new(first, end));
        Self {
            uars: uar_pages(0),
            log_uars_in_page: 0,
            pds: numbers(1, 1 << LOG_MAX_NUMBER),
            xrcds: numbers(1, 1 << LOG_MAX_NUMBER),
            tds: numbers(1, 1 << LOG_MAX_NUMBER),
            uctxs: numbers(1, 1 << LOG_MAX_UCTX),
            counters: numbers(1, MAX_COUNTERS + 1),
        }
    }
}

/// Log2 of the maximum UARs in a page of the driver: pages have 64 KiB at most.
const MAX_LOG_UARS: u32 = 4;

/// Pages of UARs. The number of a UAR is its offset in the BAR, in units of 4 KiB.
fn uar_pages(log: u32) -> OwnedNumbers {
    OwnedNumbers::new(Numbers::new(FIRST_UAR.div_ceil(1 << log), (LAST_UAR + 1) >> log))
}

impl Simple {
    /// Sets the log2 of the UARs in a page of the driver, which maps a page as a whole. Ignored if
    /// out of range, or if pages are allocated.
    pub(crate) fn set_uars_in_page(&mut self, log: u64) {
        match u32::try_from(log) {
            Ok(log) if log <= MAX_LOG_UARS && self.uars.is_empty() => {
                (self.uars, self.log_uars_in_page) = (uar_pages(log), log);
            }
            _ => {}
        }
    }

    /// Numbers of the allocated UARs.
    pub(crate) fn uars(&self) -> impl Iterator<Item = u32> {
        let log = self.log_uars_in_page;
        self.uars.iter().flat_map(move |page| page << log..(page + 1) << log)
    }

    /// Log2 of the UARs that are allocated together.
    pub(crate) fn log_uars_in_page(&self) -> u32 {
        self.log_uars_in_page
    }

    /// Frees all numbers; the driver's page size stays.
    pub(crate) fn clear(&mut self) {
        let log = self.log_uars_in_page;
        *self = Self { uars: uar_pages(log), log_uars_in_page: log, ..Self::default() };
    }

    /// True if a command may name the UAR.
    pub(crate) fn has_uar(&self, call: &Call<'_>, uar: u32) -> bool {
        let owner = self.uars.owner(uar >> self.log_uars_in_page);
        owner.is_some_and(|owner| User::of(call).may_ring(owner))
    }

    /// True if the counter set exists. Every user may name it: queue pairs count in it.
    pub(crate) fn has_q_counter(&self, number: u32) -> bool {
        self.counters.owner(number).is_some()
    }

    /// True if a command may name the protection domain: the driver any, a user only its domains
    /// (Linux sets the user in `hw/mlx5/qp.c`, `_create_user_qp`, in `hw/mlx5/main.c`,
    /// `mlx5_ib_alloc_pd`, and in `hw/mlx5/devx.c` for a process's commands).
    pub(crate) fn has_pd(&self, call: &Call<'_>, pd: u32) -> bool {
        self.pds.has(call, pd)
    }

    /// Refuses another user's protection domain, for queues that need none.
    pub(crate) fn check_pd(&self, call: &Call<'_>, pd: u32) -> Result<(), Refusal> {
        match self.pds.owner(pd) {
            Some(_) if !self.has_pd(call, pd) => {
                Err(Refusal::resource("no such protection domain"))
            }
            _ => Ok(()),
        }
    }
}

fn take(numbers: &mut OwnedNumbers, call: &mut Call<'_>, answer: Field) -> Result<(), Refusal> {
    answer.set(call.output, numbers.take(call).ok_or(Refusal::NO_NUMBER)?.into());
    Ok(())
}

fn give_back(numbers: &mut OwnedNumbers, call: &Call<'_>, number: Field) -> Result<(), Refusal> {
    match numbers.give_back(call, number.get32(call.input)) {
        true => Ok(()),
        false => Err(Refusal::resource("no such number")),
    }
}

/// The two commands of each kind.
macro_rules! commands {
    ($($take:ident $answer:path, $give:ident $number:path, $kind:ident;)*) => {
        impl Firmware { $(
            pub(crate) fn $take(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
                take(&mut self.simple.$kind, call, $answer)
            }

            pub(crate) fn $give(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
                give_back(&mut self.simple.$kind, call, $number)
            }
        )* }
    };
}

impl Firmware {
    /// ALLOC_UAR: allocates the UARs of a page, and returns the first.
    pub(crate) fn alloc_uar(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let page = self.simple.uars.take(call).ok_or(Refusal::NO_NUMBER)?;
        alloc_uar_out::UAR.set(call.output, (page << self.simple.log_uars_in_page).into());
        Ok(())
    }

    /// DEALLOC_UAR.
    pub(crate) fn dealloc_uar(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let (uar, log) = (dealloc_uar_in::UAR.get32(call.input), self.simple.log_uars_in_page);
        match uar.is_multiple_of(1 << log) && self.simple.uars.give_back(call, uar >> log) {
            true => Ok(()),
            false => Err(Refusal::resource("no such number")),
        }
    }
}

commands! {
    alloc_pd alloc_pd_out::PD, dealloc_pd dealloc_pd_in::PD, pds;
    alloc_xrcd alloc_xrcd_out::XRCD, dealloc_xrcd dealloc_xrcd_in::XRCD, xrcds;
    alloc_td alloc_transport_domain_out::TRANSPORT_DOMAIN,
        dealloc_td dealloc_transport_domain_in::TRANSPORT_DOMAIN, tds;
    create_uctx create_uctx_out::UID, destroy_uctx destroy_uctx_in::UID, uctxs;
    take_q_counter alloc_q_counter_out::COUNTER_SET_ID,
        dealloc_q_counter dealloc_q_counter_in::COUNTER_SET_ID, counters;
}
