//! Pages that the driver lends the device (Linux `core/pagealloc.c`). Silicon keeps its tables in
//! them. This device stores no data there, but requests some pages and returns them, so that the
//! driver's side is exercised.

use uverbs_mlx5_prm::cmd::hca::{
    manage_pages_in, manage_pages_out, query_pages_in, query_pages_out,
};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};

/// Pages requested before SET_HCA_CAP, and before INIT_HCA.
const BOOT_PAGES: usize = 16;
const INIT_PAGES: usize = 64;
/// Maximum pages kept: a driver gives only as many as requested.
const MAX_PAGES: usize = 1 << 16;
const PAGE: u64 = 4096;

/// `op_mod` of QUERY_PAGES and MANAGE_PAGES (pagealloc.c, `MLX5_BOOT_PAGES`, `MLX5_PAGES_GIVE`,
/// ...).
mod op {
    pub(super) const BOOT: u16 = 1;
    pub(super) const INIT: u16 = 2;
    pub(super) const REGULAR: u16 = 3;
    pub(super) const CANT_GIVE: u16 = 0;
    pub(super) const GIVE: u16 = 1;
    pub(super) const TAKE: u16 = 2;
}

impl Firmware {
    pub(crate) fn query_pages(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let wanted = match call.op_mod {
            op::BOOT => BOOT_PAGES,
            op::INIT => BOOT_PAGES + INIT_PAGES,
            op::REGULAR => 0,
            _ => return Err(Refusal::param("no such kind of pages")),
        };
        let missing = wanted.saturating_sub(self.pages.len());
        let function = query_pages_in::FUNCTION_ID.get(call.input);
        query_pages_out::FUNCTION_ID.set(call.output, function);
        query_pages_out::NUM_PAGES.set(call.output, missing as u64);
        Ok(())
    }

    pub(crate) fn manage_pages(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let count = manage_pages_in::INPUT_NUM_ENTRIES.get(call.input) as usize;
        match call.op_mod {
            op::CANT_GIVE => Ok(()),
            op::GIVE => {
                let list = manage_pages_in::PAS.of(call.input);
                if list.len() / 8 < count {
                    return Err(Refusal::param("fewer addresses than pages"));
                }
                if self.pages.len() + count > MAX_PAGES {
                    return Err(Refusal::param("more pages than asked for"));
                }
                let pages = list.chunks_exact(8).take(count);
                let pages = pages.filter_map(|pa| pa.try_into().ok().map(u64::from_be_bytes));
                let pages = pages.collect::<Vec<_>>();
                if pages.iter().any(|page| page % PAGE != 0) {
                    return Err(Refusal::param("a page is misaligned"));
                }
                self.pages.extend(pages);
                Ok(())
            }
            op::TAKE => {
                let list = manage_pages_out::PAS.of_mut(call.output);
                let count = count.min(self.pages.len()).min(list.len() / 8);
                let given = self.pages.split_off(self.pages.len() - count);
                for (slot, page) in list.chunks_exact_mut(8).zip(&given) {
                    slot.copy_from_slice(&page.to_be_bytes());
                }
                manage_pages_out::OUTPUT_NUM_ENTRIES.set(call.output, given.len() as u64);
                Ok(())
            }
            _ => Err(Refusal::param("no such page operation")),
        }
    }
}
