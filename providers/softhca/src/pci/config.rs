//! PCI configuration space: a type 0 header with one 64-bit BAR and two capabilities, MSI-X (PCI
//! Local Bus 3.0, 6.1 and 6.8.2) and PCI Express with function level reset (PCI Express Base 4.0,
//! 7.5.3).

use crate::board::bar::{BAR0_LEN, MSIX_PBA, MSIX_TABLE, VECTORS};

/// Bytes of configuration space.
pub(crate) const CONFIG_LEN: usize = 256;

/// Vendor: Mellanox.
const VENDOR_ID: u16 = 0x15b3;
const REVISION: u8 = 0;
/// Class codes: Ethernet and InfiniBand network controllers.
const CLASS: [[u8; 3]; 2] = [[0x00, 0x00, 0x02], [0x00, 0x07, 0x02]];
const SUBSYSTEM_ID: u16 = 0x50ca;
/// BAR 0: 64 bits, prefetchable.
const BAR_64_PREFETCHABLE: u32 = 0b1100;
/// Status: a capability list is present.
const STATUS_CAPABILITIES: u16 = 1 << 4;
const MSIX_ID: u8 = 0x11;
const PCIE_ID: u8 = 0x10;
/// PCI Express capabilities: version 2, endpoint.
const PCIE_VERSION: u16 = 2;
/// Device capabilities: payloads of 512 bytes, role-based error reporting, function level reset.
const DEVICE_CAPABILITIES: u32 = 2 | 1 << 15 | 1 << 28;
/// Device control after reset: relaxed ordering, snoop, read requests of 512 bytes.
const DEVICE_CONTROL: u16 = 1 << 4 | 1 << 11 | 2 << 12;
/// Device control: starts a function level reset; reads as 0.
const INITIATE_RESET: u16 = 1 << 15;
/// Link of 8 GT/s with 8 lanes, in capabilities and status.
const LINK: u16 = 3 | 8 << 4;
/// Supported link speeds of link capabilities 2: 2.5, 5 and 8 GT/s.
const LINK_SPEEDS: u32 = 0b1110;

mod at {
    pub(super) const VENDOR: usize = 0x00;
    pub(super) const DEVICE: usize = 0x02;
    pub(super) const COMMAND: usize = 0x04;
    pub(super) const STATUS: usize = 0x06;
    pub(super) const REVISION: usize = 0x08;
    pub(super) const CLASS: usize = 0x09;
    pub(super) const CACHE_LINE: usize = 0x0c;
    pub(super) const BAR0: usize = 0x10;
    pub(super) const SUBSYSTEM_VENDOR: usize = 0x2c;
    pub(super) const SUBSYSTEM: usize = 0x2e;
    pub(super) const CAPABILITIES: usize = 0x34;
    pub(super) const INTERRUPT_LINE: usize = 0x3c;
    pub(super) const MSIX: usize = 0x40;
    pub(super) const PCIE: usize = 0x60;
    pub(super) const DEVICE_CONTROL: usize = PCIE + 0x08;
    pub(super) const LINK_CONTROL: usize = PCIE + 0x10;
    pub(super) const DEVICE_CONTROL_2: usize = PCIE + 0x28;
}

/// Configuration space, and a mask of the bits that a host may write.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSpace {
    bytes: [u8; CONFIG_LEN],
    writable: [u8; CONFIG_LEN],
}

impl ConfigSpace {
    pub(crate) fn new(infiniband: bool, device_id: u16) -> Self {
        let mut space = Self { bytes: [0; CONFIG_LEN], writable: [0; CONFIG_LEN] };
        space.put(at::VENDOR, &VENDOR_ID.to_le_bytes());
        space.put(at::DEVICE, &device_id.to_le_bytes());
        space.put(at::STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        space.put(at::REVISION, &[REVISION]);
        space.put(at::CLASS, &CLASS[usize::from(infiniband)]);
        space.put(at::BAR0, &BAR_64_PREFETCHABLE.to_le_bytes());
        space.put(at::SUBSYSTEM_VENDOR, &VENDOR_ID.to_le_bytes());
        space.put(at::SUBSYSTEM, &SUBSYSTEM_ID.to_le_bytes());
        space.put(at::CAPABILITIES, &[at::MSIX as u8]);
        // Capability id, next; table size minus one; table and pending bits, both in BAR 0.
        space.put(at::MSIX, &[MSIX_ID, at::PCIE as u8]);
        space.put(at::MSIX + 2, &(VECTORS - 1).to_le_bytes());
        space.put(at::MSIX + 4, &(MSIX_TABLE as u32).to_le_bytes());
        space.put(at::MSIX + 8, &(MSIX_PBA as u32).to_le_bytes());
        space.put(at::PCIE, &[PCIE_ID, 0]);
        space.put(at::PCIE + 2, &PCIE_VERSION.to_le_bytes());
        space.put(at::PCIE + 4, &DEVICE_CAPABILITIES.to_le_bytes());
        space.put(at::DEVICE_CONTROL, &DEVICE_CONTROL.to_le_bytes());
        space.put(at::PCIE + 0x0c, &u32::from(LINK).to_le_bytes());
        space.put(at::PCIE + 0x12, &LINK.to_le_bytes());
        space.put(at::PCIE + 0x2c, &LINK_SPEEDS.to_le_bytes());

        // Writable bits of the command register: memory space, bus master, parity, SERR, INTx
        // disable.
        space.allow(at::COMMAND, &0x0546u16.to_le_bytes());
        space.allow(at::CACHE_LINE, &[0xff]);
        space.allow(at::INTERRUPT_LINE, &[0xff]);
        // Writable address bits: those above the BAR's size.
        space.allow(at::BAR0, &(!(BAR0_LEN - 1)).to_le_bytes());
        // Writable bits of MSI-X: enable, function mask.
        space.allow(at::MSIX + 2, &0xc000u16.to_le_bytes());
        // Writable bits of PCI Express: error reports, ordering, sizes; common clock, extended
        // synch; completion timeout.
        space.allow(at::DEVICE_CONTROL, &0x78ffu16.to_le_bytes());
        space.allow(at::LINK_CONTROL, &0x00c0u16.to_le_bytes());
        space.allow(at::DEVICE_CONTROL_2, &0x001fu16.to_le_bytes());
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    /// Reads configuration space. Bytes beyond the end are ones, as from an absent device.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) {
        for (place, byte) in (0..).zip(data) {
            let here = byte_at(offset, place).map(|at| self.bytes[at]);
            *byte = here.unwrap_or(0xff);
        }
    }

    /// Writes configuration space. Returns true if the host starts a function level reset.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let mut resets = false;
        for (place, new) in (0..).zip(data) {
            let Some(at) = byte_at(offset, place) else { continue };
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | new & mask;
            resets |= at == at::DEVICE_CONTROL + 1 && new & INITIATE_RESET.to_le_bytes()[1] != 0;
        }
        resets
    }
}

/// Index of the byte `place` behind `offset`, if it is in range.
fn byte_at(offset: u64, place: u64) -> Option<usize> {
    let at = usize::try_from(offset.checked_add(place)?).ok()?;
    (at < CONFIG_LEN).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(space: &ConfigSpace, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        space.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn the_bar_tells_its_size_and_the_rest_stays() {
        let mut space = ConfigSpace::new(true, 0x101d);
        assert_eq!(word(&space, 0), 0x101d_15b3);
        assert_eq!(word(&space, 8) >> 8, 0x02_0700);
        assert!(space.write(0, &[0xff; 256]));
        assert_eq!(word(&space, 0), 0x101d_15b3);
        assert_eq!(u64::from(word(&space, 0x10)), (!(BAR0_LEN - 1) & 0xffff_ffff) | 0b1100);
        assert_eq!(word(&space, 0x14), u32::MAX);
        assert_eq!(word(&space, 0x40), 0xc000_6011 | u32::from(VECTORS - 1) << 16);
        assert_eq!(word(&space, 256), u32::MAX);
        assert!(!space.write(u64::MAX - 3, &[0xff; 8]));
        space.read(u64::MAX - 3, &mut [0; 8]);
    }

    #[test]
    fn device_control_starts_a_reset_and_reads_without_its_bit() {
        let mut space = ConfigSpace::new(true, 0x101d);
        assert_eq!(word(&space, 0x60), 0x0002_0010);
        assert_eq!(word(&space, 0x64) >> 28, 1);
        assert!(!space.write(0x68, &[0xff, 0x7f]));
        assert_eq!(word(&space, 0x68), 0x78ff);
        assert!(space.write(0x68, &0x8810u16.to_le_bytes()));
        assert_eq!(word(&space, 0x68), 0x0810);
        assert!(space.write(0x69, &[0x80]) && !space.write(0x6a, &[0xff; 2]));
    }
}
