//! Memory keys (PRM "Memory Key Context"; Linux `hw/mlx5/mr.c`, `reg_create`,
//! `mlx5_ib_alloc_mw`).
//!
//! Memory of a region is in an area, or a umem. Areas stay mapped once a key was refused its end.

use uverbs_mlx5_prm::cmd::header::{cmd_in, cmd_out};
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, create_mkey_out, destroy_mkey_in, mkc};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};

use super::umem::Umems;
use super::{Firmware, SHORT, unsupported};
use crate::error::Error;
use crate::transport::Purpose;
use uverbs_front::backend::context::{ANY_QPN, Access, MkeyContext};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::{Key, Pdn};
use uverbs_front::backend::region::Region;

/// Access modes: a list of pages, a list of ranges, device memory (`MLX5_MKC_ACCESS_MODE_*`).
const MTT: u64 = 1;
const KLMS: u64 = 2;
const MEMIC: u64 = 5;
/// The device may read and write a page (`MLX5_IB_MTT_READ`, `MLX5_IB_MTT_WRITE`).
const READ_WRITE: u64 = 0b11;
/// Entries of the page list are counted in units of 16 bytes, two addresses each.
const PER_OCTWORD: u64 = 2;
/// Log2 of the page sizes to choose from. Areas have equal offsets in 2 MiB on both sides.
const LARGE_PAGE: u32 = 21;
const SMALL_PAGE: u32 = 12;

impl Firmware {
    pub(super) fn make_mkey(&mut self, context: &MkeyContext) -> Result<Key, HcaError> {
        let made =
            self.with_umems(Noun::Mkey, |firmware, umems| firmware.build_mkey(context, umems));
        let (index, ()) = made?;
        let key = Key::new(index, self.variant);
        // The low byte of a key changes, so that an old key is no key of a new region.
        self.variant = self.variant.wrapping_add(1);
        Ok(key)
    }

    /// Returns the index.
    fn build_mkey(
        &mut self,
        context: &MkeyContext,
        umems: &mut Umems,
    ) -> Result<(u32, ()), HcaError> {
        let pd = self.pd(context.pd)?;
        let mut input = vec![0; create_mkey_in::SIZE];
        let mkc = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
        mkc::MKEY_7_0.set(mkc, self.variant.into());
        mkc::PD.set(mkc, pd.into());
        mkc::QPN.set(mkc, context.qpn.map_or(ANY_QPN, |qpn| qpn.0).into());
        mkc::UMR_EN.set(mkc, context.umr.into());
        mkc::EN_RINVAL.set(mkc, context.remote_invalidate.into());
        mkc::LR.set(mkc, 1);
        if context.free {
            if context.indirect.is_none() {
                return Err(unsupported("a free key over pages"));
            }
            mkc::FREE.set(mkc, 1);
            mkc::ACCESS_MODE_1_0.set(mkc, KLMS);
            mkc::TRANSLATIONS_OCTWORD_SIZE.set(mkc, context.octowords.into());
        } else if context.device_memory {
            // `mlx5_ib_get_dm_mr`.
            let Region::Flat { addr, len } = context.region else {
                return Err(unsupported("device memory that is no range"));
            };
            set_rights(context, mkc);
            mkc::ACCESS_MODE_1_0.set(mkc, MEMIC);
            mkc::ACCESS_MODE_4_2.set(mkc, MEMIC >> 2);
            mkc::START_ADDR.set(mkc, addr);
            mkc::LEN.set(mkc, len);
        } else {
            let Region::Flat { addr, len } = context.region else {
                return Err(unsupported("memory of a region that is no pinned range"));
            };
            let at = self.reach(addr, len, purpose(context), &mut umems.memory)?;
            describe(context, at, &mut input)?;
        }
        let (outlen, noun) = (create_mkey_out::SIZE, Noun::Mkey);
        let output = self.create(CmdOpcode::CREATE_MKEY, &input, outlen, noun)?;
        Ok((create_mkey_out::MKEY_INDEX.get32(&output), ()))
    }

    pub(super) fn end_mkey(&mut self, key: Key) -> Result<(), HcaError> {
        let object = (Noun::Mkey, key.index());
        let mut input = [0; SHORT];
        destroy_mkey_in::MKEY_INDEX.set(&mut input, key.index().into());
        // A refused key keeps its memory: a window may be bound to the region.
        let done = self.run(CmdOpcode::DESTROY_MKEY, 0, &input, SHORT, object).map(drop);
        // A failed device answers nothing, and its memory is the program's.
        if done.is_ok() || self.function.dma().is_frozen() {
            self.release_umems(object);
        } else if !self.umems.has(object) {
            // The region may be in an area, whose owner may end it while the key lives.
            self.function.dma().keep_areas();
        }
        done
    }

    /// Registers anew, under another key (`mlx5_ib_rereg_user_mr` without UMR). After an error the
    /// old key is as it was.
    pub(super) fn replace_mkey(
        &mut self,
        old: Key,
        context: &MkeyContext,
    ) -> Result<Key, HcaError> {
        let new = self.make_mkey(context)?;
        let done = self.end_mkey(old);
        if done.is_err() && self.end_mkey(new).is_err() {
            // No region has the key, so that its memory is the program's.
            self.forsake_object((Noun::Mkey, new.index()));
        }
        done.map(|()| new)
    }

    /// Passes a program's command on. The front has checked it: a query of capabilities, a free
    /// key, or the reset of a stream.
    pub(super) fn pass_on(&mut self, input: &[u8], output: &mut [u8]) {
        let mut input = input.to_vec();
        let opcode = CmdOpcode(cmd_in::OPCODE.get(&input) as u16);
        let op_mod = cmd_in::OP_MOD.get(&input) as u16;
        if opcode == CmdOpcode::CREATE_MKEY {
            let mkc = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
            match self.pd(Pdn(mkc::PD.get32(mkc))) {
                Ok(pd) => mkc::PD.set(mkc, pd.into()),
                Err(_) => return refuse(output, CmdStatus::NO_RES_ERR, 0),
            }
        }
        match self.function.command(opcode, op_mod, &input, output.len()) {
            Ok(answer) => {
                if opcode == CmdOpcode::CREATE_MKEY {
                    let index = create_mkey_out::MKEY_INDEX.get32(&answer);
                    if self.with_umems(Noun::Mkey, |_, _| Ok((index, ()))).is_err() {
                        // A region has the number.
                        return refuse(output, CmdStatus::INT_ERR, 0);
                    }
                }
                let known = output.len().min(answer.len());
                output[..known].copy_from_slice(&answer[..known]);
            }
            Err(Error::Refused { status, syndrome, .. }) => refuse(output, status, syndrome),
            Err(_) => refuse(output, CmdStatus::INT_ERR, 0),
        }
    }
}

fn refuse(output: &mut [u8], status: CmdStatus, syndrome: u32) {
    cmd_out::STATUS.set(output, status.0.into());
    cmd_out::SYNDROME.set(output, syndrome.into());
}

/// Purpose of a key's memory (`ib_access_writable`).
fn purpose(context: &MkeyContext) -> Purpose {
    let stores = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    match context.access.intersects(stores) || !context.no_windows {
        true => Purpose::Write,
        false => Purpose::Read,
    }
}

/// Fills in the rights of a region.
fn set_rights(context: &MkeyContext, mkc: &mut [u8]) {
    for (right, field) in [
        (Access::LOCAL_WRITE, mkc::LW),
        (Access::REMOTE_WRITE, mkc::RW),
        (Access::REMOTE_READ, mkc::RR),
        (Access::REMOTE_ATOMIC, mkc::A),
    ] {
        field.set(mkc, context.access.contains(right).into());
    }
}

/// Fills in memory and rights of a region that starts at `at` for the device.
fn describe(context: &MkeyContext, at: u64, input: &mut Vec<u8>) -> Result<(), HcaError> {
    let (start, len) = (context.iova, context.len);
    // A page's offset must be equal in the key's addresses and in the device's.
    let large = (start ^ at).is_multiple_of(1 << LARGE_PAGE) && len >= 1 << LARGE_PAGE;
    let shift = if large { LARGE_PAGE } else { SMALL_PAGE };
    let page = 1u64 << shift;
    let inside = at % page;
    if start % page != inside {
        return Err(HcaError::BadParam { what: "start_addr", value: start });
    }
    let count = (inside + len).div_ceil(page);
    let octwords = count.div_ceil(PER_OCTWORD);
    create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(input, octwords);
    let mkc = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(input);
    set_rights(context, mkc);
    mkc::ACCESS_MODE_1_0.set(mkc, MTT);
    mkc::START_ADDR.set(mkc, start);
    mkc::LEN.set(mkc, len);
    mkc::TRANSLATIONS_OCTWORD_SIZE.set(mkc, octwords);
    mkc::LOG_PAGE_SIZE.set(mkc, shift.into());
    let pages = (0..count).map(|n| (at - inside + n * page) | READ_WRITE);
    input.extend(pages.flat_map(u64::to_be_bytes));
    // Whole octwords.
    input.resize(create_mkey_in::SIZE + 16 * octwords as usize, 0);
    Ok(())
}
