//! Memory regions: buffers with a key (PRM "Memory Key"; `reg_create` of Linux's mlx5_ib).

use std::sync::atomic::{AtomicU8, Ordering};

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, create_mkey_out, destroy_mkey_in, mkc};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::destroy;
use super::pd::ProtectionDomain;
use crate::dma::{Buffer, PAGE};
use crate::error::Error;
use crate::function::Function;

/// `access_mode_1_0`: a list of pages (`MLX5_MKC_ACCESS_MODE_MTT`).
const MTT: u64 = 1;
/// The device may read and write a page (`MLX5_IB_MTT_READ`, `MLX5_IB_MTT_WRITE`).
const READ_WRITE: u64 = 0b11;
/// Any queue pair.
const ANY_QP: u64 = 0xff_ffff;
/// Entries of the page list are counted in units of 16 bytes, two addresses each.
const PER_OCTWORD: usize = 2;

/// A buffer that queue pairs of its domain and peers may use.
#[derive(Debug)]
pub struct Region<'d> {
    pd: &'d ProtectionDomain<'d>,
    buffer: Buffer,
    key: u32,
}

impl ProtectionDomain<'_> {
    /// Registers a buffer, for local and remote reads and writes.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], or the device's failure.
    pub fn register(&self, buffer: Buffer) -> Result<Region<'_>, Error> {
        let rights = [mkc::LR, mkc::LW, mkc::RR, mkc::RW];
        let key = create_key(self.function, self.number(), &buffer, &rights)?;
        Ok(Region { pd: self, buffer, key })
    }
}

/// Creates a key for a buffer in the protection domain `pd`.
pub(crate) fn create_key(
    function: &Function,
    pd: u32,
    buffer: &Buffer,
    rights: &[Field],
) -> Result<u32, Error> {
    // The low byte of a key changes, so that an old key is no key of a new region.
    static VARIANT: AtomicU8 = AtomicU8::new(0);
    let variant = VARIANT.fetch_add(1, Ordering::Relaxed);
    let octwords = (buffer.len() / PAGE).div_ceil(PER_OCTWORD);
    let mut input = vec![0; create_mkey_in::SIZE];
    create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut input, octwords as u64);
    let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
    for right in rights {
        right.set(context, 1);
    }
    mkc::ACCESS_MODE_1_0.set(context, MTT);
    mkc::QPN.set(context, ANY_QP);
    mkc::MKEY_7_0.set(context, variant.into());
    mkc::PD.set(context, pd.into());
    mkc::START_ADDR.set(context, buffer.iova());
    mkc::LEN.set(context, buffer.len() as u64);
    mkc::TRANSLATIONS_OCTWORD_SIZE.set(context, octwords as u64);
    mkc::LOG_PAGE_SIZE.set(context, PAGE.ilog2().into());
    let pages = buffer.page_addresses().map(|page| page | READ_WRITE);
    input.extend(pages.flat_map(u64::to_be_bytes));
    // Whole octwords.
    input.resize(create_mkey_in::SIZE + 16 * octwords, 0);
    let len = create_mkey_out::SIZE;
    let output = function.command(CmdOpcode::CREATE_MKEY, 0, &input, len)?;
    Ok(create_mkey_out::MKEY_INDEX.get32(&output) << 8 | u32::from(variant))
}

/// Destroys a key, before its buffer is dropped.
pub(crate) fn destroy_key(function: &Function, key: u32, buffer: &Buffer) {
    let id = (destroy_mkey_in::MKEY_INDEX, key >> 8);
    destroy(function, CmdOpcode::DESTROY_MKEY, id, Some(buffer));
}

impl Region<'_> {
    /// Key, for SGEs and for peers.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The buffer, whose address for the device is also its address in work requests.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        destroy_key(self.pd.function, self.key, &self.buffer);
    }
}
