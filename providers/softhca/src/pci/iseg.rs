//! The initialization segment: the first pages of the BAR, with the command queue's doorbell and
//! the device's health (PRM "Initialization Segment"; Linux `include/linux/mlx5/device.h`,
//! `mlx5_init_seg`).

use std::time::Duration;

use crate::board::profile::FW_VER;

/// Version of the command interface (Linux `core/cmd.c`, `CMD_IF_REV`).
const CMDIF_REV: u32 = 5;
/// Log2 of the entries of the command queue.
const LOG_SIZE: u32 = 5;
/// Log2 of the bytes of an entry.
const LOG_STRIDE: u32 = 6;
/// Entries of the command queue.
pub(super) const SLOTS: u32 = 1 << LOG_SIZE;
/// Bytes of an entry.
pub(super) const STRIDE: u64 = 1 << LOG_STRIDE;
/// Bits of `cmdq_addr_l_sz` that a driver writes: the address, and the interface state.
const CMDQ_L: u32 = 0xffff_f000;
const NIC_INTERFACE: u32 = 0x700;
/// State of the interface: disabled (`MLX5_INITIAL_SEG_NIC_INTERFACE_DISABLED`).
const DISABLED: u32 = 1 << 8;
/// Position of the syndrome in the last word of the health buffer.
const SYNDROME_SHIFT: u32 = 16;
/// Period of the health counter. A driver checks every few seconds that it moves.
const HEARTBEAT: Duration = Duration::from_millis(10);

mod at {
    pub(super) const FW_REV: u64 = 0x00;
    pub(super) const CMDIF_REV: u64 = 0x04;
    pub(super) const CMDQ_ADDR_H: u64 = 0x10;
    pub(super) const CMDQ_ADDR_L: u64 = 0x14;
    pub(super) const CMD_DBELL: u64 = 0x18;
    pub(super) const INITIALIZING: u64 = 0x1fc;
    pub(super) const HEALTH_SYNDROME: u64 = 0x23c;
    pub(super) const TIMER_H: u64 = 0x1000;
    pub(super) const TIMER_L: u64 = 0x1004;
    pub(super) const HEALTH_COUNTER: u64 = 0x1010;
}

/// State of the firmware that the registers show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    pub(super) is_starting: bool,
    /// Health syndrome; 0 if healthy.
    pub(super) syndrome: u8,
}

/// Registers that a driver wrote.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InitSegment {
    cmdq_high: u32,
    cmdq_low: u32,
}

impl InitSegment {
    /// Bus address of the command queue; 0 until the driver writes it.
    pub(super) fn command_queue(&self) -> u64 {
        u64::from(self.cmdq_high) << 32 | u64::from(self.cmdq_low & CMDQ_L)
    }

    /// True if the driver disabled the interface.
    pub(super) fn is_disabled(&self) -> bool {
        self.cmdq_low & NIC_INTERFACE == DISABLED
    }

    /// Value of the 32-bit register at `offset`; 0 for an undefined one.
    pub(super) fn read(&self, offset: u64, now: Duration, signs: Signs) -> u32 {
        let timer = now.as_nanos() as u64;
        let [major, minor, sub] = [FW_VER >> 32, FW_VER >> 16 & 0xffff, FW_VER & 0xffff];
        match offset {
            at::FW_REV => (minor as u32) << 16 | major as u32,
            at::CMDIF_REV => CMDIF_REV << 16 | sub as u32,
            at::CMDQ_ADDR_H => self.cmdq_high,
            at::CMDQ_ADDR_L => self.cmdq_low | LOG_SIZE << 4 | LOG_STRIDE,
            at::INITIALIZING => u32::from(signs.is_starting) << 31,
            at::HEALTH_SYNDROME => u32::from(signs.syndrome) << SYNDROME_SHIFT,
            at::TIMER_H => (timer >> 32) as u32,
            at::TIMER_L => timer as u32,
            at::HEALTH_COUNTER => (now.as_millis() / HEARTBEAT.as_millis()) as u32 & 0x00ff_ffff,
            _ => 0,
        }
    }

    /// Handles a store. Returns the command queue entries whose doorbell it rang.
    pub(super) fn write(&mut self, offset: u64, value: u32) -> u32 {
        match offset {
            at::CMDQ_ADDR_H => self.cmdq_high = value,
            at::CMDQ_ADDR_L => self.cmdq_low = value & (CMDQ_L | NIC_INTERFACE),
            at::CMD_DBELL => return value,
            _ => {}
        }
        0
    }
}
