//! UAR pages: the device's doorbell pages, which programs map (Linux `core/uar.c`).
//!
//! A page is freed after its last mapping is gone. A failed device frees none: its numbers are not
//! used again before a reset.

use std::ops::Range;
use std::sync::{Arc, Weak};

use uverbs_core::memory::pages::page_size;
use uverbs_front::backend::error::HcaError;
use uverbs_front::uar::{DeviceUar, UarSource};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::simple::{alloc_uar_out, dealloc_uar_in};

use crate::command::SHORT;
use crate::device::Device;
use crate::dma::PAGE;
use crate::error::Error;
use crate::transport::{BAR0, check};

impl Device {
    /// Allocates the UARs of a page of this machine (ALLOC_UAR), and returns the first number.
    pub(crate) fn alloc_uar(&self) -> Result<u32, Error> {
        let output = self.run(CmdOpcode::ALLOC_UAR, 0, &[0; SHORT], alloc_uar_out::SIZE)?;
        let uar = alloc_uar_out::UAR.get32(&output);
        let pages = pages(uar);
        match check(BAR0, pages.start, page_size() as u64, self.transport().bar_len()) {
            Ok(()) if self.bar.take(&pages) => Ok(uar),
            _ => Err(self.fail(Error::answer("the number of a UAR page", uar))),
        }
    }

    /// Frees a page (DEALLOC_UAR). One that the firmware keeps stays in use.
    pub(crate) fn free_uar(&self, uar: u32) -> Result<(), Error> {
        let mut input = [0; dealloc_uar_in::SIZE];
        dealloc_uar_in::UAR.set(&mut input, uar.into());
        self.run(CmdOpcode::DEALLOC_UAR, 0, &input, SHORT)?;
        self.bar.give(place(uar));
        Ok(())
    }
}

/// Offset of a UAR in BAR 0.
pub(crate) fn place(uar: u32) -> u64 {
    u64::from(uar) * PAGE as u64
}

/// Page of this machine that begins with a UAR.
fn pages(uar: u32) -> Range<u64> {
    place(uar)..place(uar) + page_size() as u64
}

/// Pages for programs.
#[derive(Debug)]
pub(crate) struct UarPages(Weak<Device>);

impl UarPages {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self(Arc::downgrade(device))
    }
}

fn make(device: &Device) -> Result<DeviceUar, Error> {
    let index = device.alloc_uar()?;
    let part = device.transport().bar_file(place(index), page_size() as u64);
    let (file, offset) = part.inspect_err(|_| _ = device.free_uar(index))?;
    Ok(DeviceUar { index, file, offset })
}

/// Error of the front for a page that can't be had.
fn refusal(error: &Error) -> HcaError {
    match *error {
        Error::Refused { .. } => HcaError::Limit { what: "UAR pages", limit: 0 },
        Error::System { errno, .. } => HcaError::System { errno },
        Error::Unsupported { .. } | Error::Range { .. } => {
            HcaError::Unsupported { what: "mapped doorbells" }
        }
        _ => HcaError::Dead,
    }
}

impl UarSource for UarPages {
    fn alloc(&mut self) -> Result<DeviceUar, HcaError> {
        let device = self.0.upgrade().ok_or(HcaError::Dead)?;
        make(&device).map_err(|error| refusal(&error))
    }

    fn free(&mut self, index: u32) {
        if let Some(device) = self.0.upgrade() {
            let _ = device.free_uar(index);
        }
    }
}
