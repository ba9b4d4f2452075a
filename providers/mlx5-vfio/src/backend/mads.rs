//! Management datagrams of the port, by a queue pair 1 of the driver.

use uverbs_core::Errno;
use uverbs_front::backend::Mad;
use uverbs_front::backend::address::Address;
use uverbs_front::backend::config::{Gid, GidType};
use uverbs_front::backend::error::{HcaError, Noun};

use super::{Firmware, unsupported};
use crate::services::gsi::{Gsi, Path};

/// Maximum datagrams that wait for MAC addresses.
const UNRESOLVED: usize = 256;
/// Maximum restarts of a queue pair that failed.
const RESTARTS: u8 = 16;

/// Queue pair 1, and the addresses of the port.
#[derive(Debug)]
pub(super) struct Mads {
    /// Created for the first program that connects.
    gsi: Option<Gsi>,
    restarts: u8,
    /// `None` on Ethernet.
    pub(super) lid: Option<u16>,
    pub(super) gids: Vec<Gid>,
    /// Datagrams to peers that are asked for their MAC addresses.
    unresolved: Vec<(Address, Address, Vec<u8>)>,
}

impl Mads {
    pub(super) fn new(lid: Option<u16>, gids: Vec<Gid>) -> Self {
        Self { gsi: None, restarts: 0, lid, gids, unresolved: Vec::new() }
    }
}

impl Firmware {
    /// Creates queue pair 1, unless it is there.
    pub(crate) fn start_mads(&mut self) -> Result<(), HcaError> {
        if self.mads.gsi.is_none() {
            let gsi = Gsi::create(&self.function);
            let gsi = gsi.map_err(|error| self.refusal(&error, (Noun::Qp, 1)))?;
            self.mads.gsi = Some(gsi);
        }
        Ok(())
    }

    /// Destroys queue pair 1.
    pub(super) fn end_mads(&mut self) {
        if let Some(gsi) = self.mads.gsi.take() {
            gsi.destroy(&self.function);
        }
    }

    pub(super) fn take_mad(&mut self) -> Option<Mad> {
        let gsi = self.mads.gsi.as_mut()?;
        match gsi.next(&self.function, self.mads.lid) {
            Ok(mad) => mad,
            Err(_) => {
                self.end_mads();
                // The peers repeat what is lost. A failed device shows in the next command.
                if self.mads.restarts < RESTARTS {
                    self.mads.restarts += 1;
                    let _ = self.start_mads();
                }
                None
            }
        }
    }

    pub(super) fn put_mad(&mut self, src: Address, dst: Address, bytes: &[u8]) {
        let path = match self.mads.lid {
            Some(_) => Ok(Path::Lid(dst.lid)),
            None => self.roce_path(src.gid, dst.gid),
        };
        match path {
            Ok(path) => self.mads.gsi.iter_mut().for_each(|gsi| gsi.send(path, bytes)),
            Err(HcaError::System { errno: Errno::EINPROGRESS }) => {
                if self.mads.unresolved.len() < UNRESOLVED {
                    self.mads.unresolved.push((src, dst, bytes.to_vec()));
                }
            }
            // Its sender repeats it, and gives up.
            Err(_) => {}
        }
    }

    /// Sends datagrams whose destinations were asked for, as far as they answered.
    pub(super) fn retry_mads(&mut self) {
        for (src, dst, bytes) in std::mem::take(&mut self.mads.unresolved) {
            self.put_mad(src, dst, &bytes);
        }
        self.send_mads();
    }

    /// Path to a peer on RoCE version 2.
    fn roce_path(&mut self, from: [u8; 16], gid: [u8; 16]) -> Result<Path, HcaError> {
        let is_source = |own: &Gid| own.gid == from && own.kind == GidType::RoceV2;
        let at = self.mads.gids.iter().position(is_source).and_then(|at| u8::try_from(at).ok());
        let sgid_index =
            at.ok_or_else(|| unsupported("a source that is no address of the port"))?;
        Ok(Path::Gid { gid, mac: self.resolve_mac(&gid)?, sgid_index })
    }

    /// True if a datagram is on its way out, or waits for the address of its peer.
    pub(crate) fn holds_mads(&self) -> bool {
        let sends = self.mads.gsi.as_ref().is_some_and(Gsi::is_busy);
        self.function.failure().is_none() && (sends || !self.mads.unresolved.is_empty())
    }

    pub(super) fn send_mads(&mut self) {
        if let Some(gsi) = &mut self.mads.gsi {
            // Its failure shows in the next command, or the next look at the health.
            let _ = gsi.flush(&self.function);
        }
    }
}
