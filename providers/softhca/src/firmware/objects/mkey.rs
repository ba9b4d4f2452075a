//! Memory keys (PRM "Memory Key Context"; Linux `core/mr.c`, `hw/mlx5/mr.c`).

use uverbs_mlx5_prm::cmd::hca::query_special_contexts_out;
use uverbs_mlx5_prm::cmd::mkey::{
    create_mkey_in, create_mkey_out, destroy_mkey_in, mkc, query_mkey_in, query_mkey_out,
};
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;

use crate::board::bar::DEVICE_MEMORY as IN_BAR;
use crate::board::memory::ON_BUS;
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::objects::memic::Memic;
use crate::hca::{Hca, page_of};
use uverbs_front::backend::command::access_mode;
use uverbs_front::backend::context::{ANY_QPN, Access, MkeyContext};
use uverbs_front::backend::indirect::{Blocks, Indirect};
use uverbs_front::backend::number::{Key, Pdn, Qpn};
use uverbs_front::backend::region::Region;

/// Address translation of a key (`MLX5_MKC_ACCESS_MODE_*`).
mod mode {
    pub(super) const PA: u64 = 0;
    pub(super) const MTT: u64 = 1;
    pub(super) const KLMS: u64 = uverbs_front::backend::command::KLMS;
    pub(super) const KSM: u64 = 3;
    pub(super) const MEMIC: u64 = 5;
}

/// Log2 of the allowed page sizes.
const PAGE_SHIFTS: std::ops::RangeInclusive<u64> = 12..=40;
/// Low bits of a page entry that do not belong to the address.
const FLAGS: u64 = (1 << 12) - 1;
/// Page addresses in an octword.
const PER_OCTWORD: u64 = 2;
/// Room for translations of a memory window (`mlx5_ib_alloc_mw`).
const WINDOW_OCTOWORDS: u32 = 4;

/// Bytes of a part in a list: length, key, address.
const KLM: usize = 16;

#[derive(Debug)]
pub(crate) struct Mkey {
    /// Index and variant.
    key: u32,
    context: [u8; mkc::SIZE],
}

impl Mkey {
    /// True if the key is for some of these bytes of the BAR.
    pub(crate) fn is_of_device_memory(&self, start: u64, len: u64) -> bool {
        let (at, size) = (mkc::START_ADDR.get(&self.context), mkc::LEN.get(&self.context));
        let is_free = mkc::FREE.is_set(&self.context);
        access_mode(&self.context) == mode::MEMIC
            && !is_free
            && at < start.saturating_add(len)
            && start < at.saturating_add(size)
    }
}

fn access(context: &[u8]) -> Access {
    let mut access = Access::empty();
    for (field, right) in [
        (mkc::LW, Access::LOCAL_WRITE),
        (mkc::RW, Access::REMOTE_WRITE),
        (mkc::RR, Access::REMOTE_READ),
        (mkc::A, Access::REMOTE_ATOMIC),
    ] {
        access.set(right, field.is_set(context));
    }
    access
}

/// Creates a free key, which UMR work requests fill in: its kind and its room for translations are
/// set, the translation is empty.
pub(crate) fn create_free(hca: &mut Hca, context: &[u8]) -> Result<Key, Refusal> {
    let key = empty(common(context), context)?;
    Ok(hca.create_mkey_variant(key, mkc::MKEY_7_0.get(context) as u8)?)
}

/// Fields that free and other keys have.
fn common(context: &[u8]) -> MkeyContext {
    let qpn = mkc::QPN.get32(context);
    MkeyContext {
        pd: Pdn(mkc::PD.get32(context)),
        remote_invalidate: mkc::EN_RINVAL.is_set(context),
        qpn: (qpn != ANY_QPN).then_some(Qpn(qpn)),
        umr: mkc::UMR_EN.is_set(context),
        octowords: mkc::TRANSLATIONS_OCTWORD_SIZE.get32(context),
        ..MkeyContext::default()
    }
}

fn empty(key: MkeyContext, context: &[u8]) -> Result<MkeyContext, Refusal> {
    let page_shift = mkc::LOG_PAGE_SIZE.get(context);
    match access_mode(context) {
        mode::MTT if PAGE_SHIFTS.contains(&page_shift) => {
            let (page_shift, pages) = (page_shift as u8, Vec::new());
            let region = Region::Pages { page_shift, offset: 0, pages, len: 0 };
            Ok(MkeyContext { free: true, region, ..key })
        }
        mode::KSM if PAGE_SHIFTS.contains(&page_shift) => {
            let blocks = Blocks::new(page_shift as u8);
            Ok(MkeyContext { free: true, indirect: Some(Indirect::Blocks(blocks)), ..key })
        }
        mode::MTT | mode::KSM => Err(Refusal::param("log_page_size")),
        mode::KLMS => Ok(MkeyContext { free: true, indirect: Some(Indirect::default()), ..key }),
        _ => Err(Refusal::param("no such translation for a free key")),
    }
}

/// Memory of a key, and its length.
fn region(call: &Call<'_>, context: &[u8], memic: &Memic) -> Result<(Region, u64), Refusal> {
    let start = mkc::START_ADDR.get(context);
    let endless = mkc::LENGTH64.is_set(context);
    let len = mkc::LEN.get(context);
    match access_mode(context) {
        mode::PA => {
            // Bus addresses without translation, up to the device's own memory.
            let len = if endless { ON_BUS.saturating_sub(start) } else { len };
            if start.checked_add(len).is_none_or(|end| end > ON_BUS) {
                return Err(Refusal::param("no such bus addresses"));
            }
            Ok((Region::Flat { addr: start, len }, len))
        }
        mode::MTT if !endless => {
            let shift = mkc::LOG_PAGE_SIZE.get(context);
            if !PAGE_SHIFTS.contains(&shift) {
                return Err(Refusal::param("log_page_size"));
            }
            let octwords = create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.get(call.input);
            let list = create_mkey_in::KLM_PAS_MTT.of(call.input);
            let offset = start & ((1 << shift) - 1);
            let need = offset.checked_add(len).ok_or(Refusal::param("len"))?.div_ceil(1 << shift);
            if need > octwords * PER_OCTWORD || need > (list.len() / 8) as u64 {
                return Err(Refusal::param("fewer pages than the key has"));
            }
            let pages = list.chunks_exact(8).take(need as usize);
            let pages = pages.filter_map(|pa| pa.try_into().ok().map(u64::from_be_bytes));
            // The low bits are flags: readable, writable (`MLX5_IB_MTT_*`). They are valid if the
            // driver says so (`hw/mlx5/mr.c`, `reg_create`).
            let flags = create_mkey_in::PG_ACCESS.is_set(call.input);
            let pages = pages.map(|pa| if flags { page_of(pa) } else { pa & !FLAGS }).collect();
            Ok((Region::Pages { page_shift: shift as u8, offset, pages, len }, len))
        }
        mode::MEMIC if !endless => match memic.holds(start, len) {
            true => Ok((Region::Flat { addr: ON_BUS + (start - IN_BAR), len }, len)),
            false => Err(Refusal::param("not within allocated device memory")),
        },
        _ => Err(Refusal::param("such translation is not supported")),
    }
}

impl Firmware {
    /// QUERY_SPECIAL_CONTEXTS: the device's reserved keys.
    pub(crate) fn special_contexts(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        query_special_contexts_out::DUMP_FILL_MKEY.set(call.output, Key::DUMP_FILL.0.into());
        query_special_contexts_out::NULL_MKEY.set(call.output, Key::NULL.0.into());
        Ok(())
    }

    pub(crate) fn create_mkey(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of(call.input);
        let variant = mkc::MKEY_7_0.get(context) as u8;
        let key = if mkc::FREE.is_set(context) {
            let key = empty(common(context), context)?;
            // An indirect key of up to four parts is created alike, and counts as a window: the
            // regions under it stay until it is invalidated or destroyed. The PRM has no such rule
            // for indirect keys, and Linux leaves the order to the firmware.
            let window = access_mode(context) == mode::KLMS && key.octowords == WINDOW_OCTOWORDS;
            self.hca.create_mkey_variant(MkeyContext { window, ..key }, variant)?
        } else {
            if !self.simple.has_pd(call, mkc::PD.get32(context)) {
                return Err(Refusal::resource("no such protection domain"));
            }
            let (region, len) = region(call, context, &self.memic)?;
            let iova = match access_mode(context) {
                // Addresses are relative to the key's start (rdma-core `mlx5_reg_dm_mr`: always
                // zero based).
                mode::MEMIC => 0,
                _ => mkc::START_ADDR.get(context),
            };
            let access = access(context);
            let key = MkeyContext { iova, len, access, region, ..common(context) };
            self.hca.create_mkey_variant(key, variant)?
        };
        let mut mkey = Mkey { key: key.0, context: [0; mkc::SIZE] };
        mkey.context.copy_from_slice(context);
        let index = key.index();
        self.mkeys.insert(call, index, mkey);
        create_mkey_out::MKEY_INDEX.set(call.output, index.into());
        Ok(())
    }

    /// DESTROY_MKEY. A region stays while a window is bound to it (IBTA 10.6.7.2.6; ibv_reg_mr(3)).
    pub(crate) fn destroy_mkey(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let index = destroy_mkey_in::MKEY_INDEX.get32(call.input);
        let mkey = self.mkeys.get(call, index)?;
        if self.hca.windows_on(Key(mkey.key)) != 0 {
            let why = "a memory window is bound to the key";
            return Err(Refusal::new(CmdStatus::BAD_RES_STATE_ERR, why));
        }
        self.hca.destroy_mkey(Key(mkey.key))?;
        self.mkeys.remove(call, index).map(drop)
    }

    pub(crate) fn query_mkey(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let index = query_mkey_in::MKEY_INDEX.get32(call.input);
        let mkey = self.mkeys.get(call, index)?;
        let context = query_mkey_out::MEMORY_KEY_MKEY_ENTRY.of_mut(call.output);
        context.copy_from_slice(&mkey.context);
        // Work requests change more fields; a driver queries the key's range and its parts
        // (`hw/mlx5/odp.c`, `pagefault_single_data_segment`).
        let now = self.hca.query_mkey(Key(mkey.key))?;
        mkc::START_ADDR.set(context, now.iova);
        mkc::LEN.set(context, now.len);
        if let Some(Indirect::List(list)) = &now.indirect {
            let out = call.output.get_mut(query_mkey_out::BSF0_KLM0_PAS_MTT0_1.offset()..);
            let slots = out.unwrap_or_default().as_chunks_mut::<KLM>().0;
            for (slot, part) in slots.iter_mut().zip(list.parts()) {
                slot[..4].copy_from_slice(&part.len.to_be_bytes());
                slot[4..8].copy_from_slice(&part.key.0.to_be_bytes());
                slot[8..].copy_from_slice(&part.addr.to_be_bytes());
            }
        }
        Ok(())
    }
}
