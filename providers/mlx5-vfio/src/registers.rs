//! Registers of the initialization segment (PRM "Initialization Segment"; Linux
//! `include/linux/mlx5/device.h`, `mlx5_init_seg`).

use uverbs_mlx5_prm::cmd::iseg::initial_seg;

use crate::error::Error;
use crate::transport::Transport;

/// Version of the command interface (Linux `core/cmd.c`, `CMD_IF_REV`).
const CMD_IF_REV: u64 = 5;
/// Maximum log2 of the command queue's entries (`MLX5_MAX_COMMANDS` is 32).
const LOG_SIZE_MAX: u32 = 5;
/// Minimum log2 of an entry's bytes.
const LOG_STRIDE_MIN: u32 = 6;
/// Bits of the low word of the command queue's address, and the state of the interface in the
/// others (`MLX5_NIC_IFC_OFFSET`).
const CMDQ_L: u32 = 0xffff_f000;
const NIC_STATE_SHIFT: u32 = 8;
const NIC_STATE: u32 = 7;
/// `MLX5_INITIAL_SEG_NIC_INTERFACE_DISABLED`.
const DISABLED: u32 = 1;
/// Value of a register of a device that left the bus.
const GONE: u32 = u32::MAX;

/// Offsets of the registers.
mod at {
    pub(super) const FW_REV: u64 = 0x00;
    pub(super) const CMDIF_REV: u64 = 0x04;
    pub(super) const CMDQ_ADDR_H: u64 = 0x10;
    pub(super) const CMDQ_ADDR_L: u64 = 0x14;
    pub(super) const CMD_DBELL: u64 = 0x18;
    pub(super) const INITIALIZING: u64 = 0x1fc;
    /// Last word of the health buffer: IRISC index, syndrome, extended syndrome.
    pub(super) const HEALTH_SYNDROME: u64 = 0x23c;
    pub(super) const TIMER_H: u64 = 0x1000;
    pub(super) const TIMER_L: u64 = 0x1004;
    pub(super) const HEALTH_COUNTER: u64 = 0x1010;
}

/// Version of the firmware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirmwareVersion {
    /// First number.
    pub major: u16,
    /// Second number.
    pub minor: u16,
    /// Third number.
    pub sub: u16,
}

impl std::fmt::Display for FirmwareVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // As ibv_devinfo prints it.
        write!(f, "{}.{}.{:04}", self.major, self.minor, self.sub)
    }
}

/// Shape of the command queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueShape {
    pub(crate) slots: u32,
    pub(crate) stride: usize,
}

/// State that the health poll reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) counter: u32,
    pub(crate) syndrome: u8,
}

/// Reads a register; all ones mean that the device is gone.
fn read(transport: &dyn Transport, offset: u64) -> Result<u32, Error> {
    match transport.bar_read(offset)? {
        GONE => Err(Error::answer("a register, as a removed device does", GONE)),
        value => Ok(value),
    }
}

/// Reads the first 32 bytes of the segment, in which fields cross no word.
fn head(transport: &dyn Transport) -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    for offset in [at::FW_REV, at::CMDIF_REV, at::CMDQ_ADDR_L] {
        let word = read(transport, offset)?.to_be_bytes();
        bytes[offset as usize..offset as usize + 4].copy_from_slice(&word);
    }
    Ok(bytes)
}

/// Reads the version of the firmware, and the shape of the command queue; refuses a device with
/// another command interface (`mlx5_cmd_init` of Linux's `core/cmd.c`).
pub(crate) fn identify(transport: &dyn Transport) -> Result<(FirmwareVersion, QueueShape), Error> {
    let head = head(transport)?;
    let revision = initial_seg::CMD_INTERFACE_REV.get(&head);
    if revision != CMD_IF_REV {
        let what = format!("command interface {revision}; this driver has {CMD_IF_REV}");
        return Err(Error::Unsupported { what });
    }
    let number = |field: uverbs_mlx5_prm::cmd::Field| field.get(&head) as u16;
    let version = FirmwareVersion {
        major: number(initial_seg::FW_REV_MAJOR),
        minor: number(initial_seg::FW_REV_MINOR),
        sub: number(initial_seg::FW_REV_SUBMINOR),
    };
    let size = initial_seg::LOG_CMDQ_SIZE.get32(&head);
    let stride = initial_seg::LOG_CMDQ_STRIDE.get32(&head);
    // The queue is one page, and needs a slot for pages and one for the rest.
    if !(1..=LOG_SIZE_MAX).contains(&size) || stride < LOG_STRIDE_MIN || size + stride > 12 {
        return Err(Error::answer("the size of the command queue", size << 4 | stride));
    }
    Ok((version, QueueShape { slots: 1 << size, stride: 1 << stride }))
}

/// Sets the address of the command queue, one page. The low word also sets the interface to "full
/// driver", 0.
pub(crate) fn set_command_queue(transport: &dyn Transport, iova: u64) -> Result<(), Error> {
    transport.bar_write(at::CMDQ_ADDR_H, (iova >> 32) as u32)?;
    transport.bar_write(at::CMDQ_ADDR_L, iova as u32)
}

/// Disables the interface, which ends a prepared teardown (`mlx5_set_nic_state` of Linux's
/// `core/health.c`).
pub(crate) fn disable_interface(transport: &dyn Transport) -> Result<(), Error> {
    let low = read(transport, at::CMDQ_ADDR_L)? & CMDQ_L | DISABLED << NIC_STATE_SHIFT;
    transport.bar_write(at::CMDQ_ADDR_L, low)
}

/// True once the interface is disabled (`mlx5_get_nic_state`).
pub(crate) fn is_disabled(transport: &dyn Transport) -> Result<bool, Error> {
    let low = read(transport, at::CMDQ_ADDR_L)?;
    Ok(low >> NIC_STATE_SHIFT & NIC_STATE == DISABLED)
}

/// Tells the device that it owns the entry `slot`.
pub(crate) fn ring_command(transport: &dyn Transport, slot: u32) -> Result<(), Error> {
    transport.bar_write(at::CMD_DBELL, 1 << slot)
}

/// True while the firmware starts.
pub(crate) fn is_initializing(transport: &dyn Transport) -> Result<bool, Error> {
    // After a reset the register is all ones until the firmware runs (`wait_fw_init` of Linux's
    // `core/main.c` tests the highest bit alone).
    Ok(transport.bar_read(at::INITIALIZING)? >> 31 != 0)
}

/// Reads the health of the device (`poll_health` of Linux's `core/health.c`).
pub(crate) fn health(transport: &dyn Transport) -> Result<Health, Error> {
    let counter = read(transport, at::HEALTH_COUNTER)?;
    let syndrome = (transport.bar_read(at::HEALTH_SYNDROME)? >> 16) as u8;
    Ok(Health { counter, syndrome })
}

/// Reads the device's clock in cycles of `device_frequency_khz` (`mlx5_read_time` of Linux's
/// `core/lib/clock.c`).
pub(crate) fn clock(transport: &dyn Transport) -> Result<u64, Error> {
    let read = |at| transport.bar_read(at);
    let (before, low, high) = (read(at::TIMER_H)?, read(at::TIMER_L)?, read(at::TIMER_H)?);
    // The low word may have wrapped between the reads.
    let low = if before == high { low } else { read(at::TIMER_L)? };
    Ok(u64::from(high) << 32 | u64::from(low))
}
