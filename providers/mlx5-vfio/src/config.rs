//! PCI configuration space (PCI Local Bus 3.0, 6.1).

use crate::error::Error;
use crate::transport::Transport;

const VENDOR: u64 = 0x00;
const COMMAND: u64 = 0x04;
/// Vendor: Mellanox.
pub(crate) const MELLANOX: u16 = 0x15b3;
/// Bits of the command register: memory space, bus master.
const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;

/// Reads the device number; refuses other vendors' devices.
pub(crate) fn part(transport: &dyn Transport) -> Result<u16, Error> {
    let mut bytes = [0; 4];
    transport.config_read(VENDOR, &mut bytes)?;
    let [vendor, part] = [0, 2].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    match vendor {
        MELLANOX => Ok(part),
        _ => Err(Error::Unsupported { what: format!("PCI device {vendor:04x}:{part:04x}") }),
    }
}

/// Lets the device answer accesses to its BAR, and make DMA or not. VFIO opens and closes a device
/// with the bus master off (`drivers/vfio/pci/vfio_pci_core.c`).
pub(crate) fn set_bus_master(transport: &dyn Transport, on: bool) -> Result<(), Error> {
    let mut bytes = [0; 2];
    transport.config_read(COMMAND, &mut bytes)?;
    let before = u16::from_le_bytes(bytes) | MEMORY_SPACE;
    let wanted = if on { before | BUS_MASTER } else { before & !BUS_MASTER };
    transport.config_write(COMMAND, &wanted.to_le_bytes())?;
    transport.config_read(COMMAND, &mut bytes)?;
    match u16::from_le_bytes(bytes) & (MEMORY_SPACE | BUS_MASTER) == wanted & 0b110 {
        true => Ok(()),
        false => Err(Error::answer("the PCI command register", u16::from_le_bytes(bytes))),
    }
}
