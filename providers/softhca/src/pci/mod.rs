//! The software HCA as a PCI function: configuration space, BAR and interrupts around the HCA side,
//! which also serves the in-process device.
//!
//! `PciHca` does not know the host. Reads and writes of configuration space and BAR come in by
//! calls, memory is accessed through a `Dma`, and interrupts are collected for the server of the
//! function ([`crate::vfio_user`], for QEMU). A driver sees a ConnectX: Linux's mlx5_core and
//! mlx5_ib bind to it.
//!
//! | BAR 0 | contents |
//! |---|---|
//! | 0x0000 | initialization segment: command queue, health, clock |
//! | 0x2000 | MSI-X table and pending bits, kept by the host |
//! | 0x10000 | doorbell pages of 4 KiB; a page's number is its offset / 4096 |
//! | 0x1f40000 | operations on device memory |
//! | 0x1fc0000 | device memory |

mod cmdq;
mod config;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod iseg;
mod layouts;
mod strict;
mod trace;
mod trouble;

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use self::config::ConfigSpace;
pub use self::trace::Sink;
use self::trace::Trace;
pub use self::trouble::Trouble;
use self::trouble::Troubles;
use crate::board::bar::{self, FIRST_UAR, PAGE};
use crate::board::card::Card;
use crate::board::memory::{DeviceMemory, WithDeviceMemory};
use crate::board::profile::Profile;
use crate::firmware::base::call::Refusal;
use crate::firmware::{self, Firmware};
use crate::hca::{Dma, Hca, HcaConfig};
use crate::wire::{Fabric, Wire};
use uverbs_front::backend::context::{LinkLayer, Mtu};
use uverbs_front::backend::number::UarNumber;

/// Bytes of BAR 0.
pub(crate) const BAR0_LEN: u64 = bar::BAR0_LEN;
/// MSI-X vectors.
pub(crate) const VECTORS: u16 = bar::VECTORS;
/// Bytes of configuration space.
pub(crate) const CONFIG_LEN: u64 = config::CONFIG_LEN as u64;

/// Options of a function.
#[derive(Clone, Debug)]
pub struct PciOptions {
    /// Number, from 1, from which GUID, LID and addresses are derived.
    pub number: u16,
    /// Link layer of the port.
    pub link: LinkLayer,
    /// MTU of the port.
    pub active_mtu: Mtu,
    /// Card whose PCI number and capabilities it has.
    pub card: Card,
    /// Trouble that it makes for its driver.
    pub trouble: Trouble,
}

impl Default for PciOptions {
    fn default() -> Self {
        Self {
            number: 1,
            link: LinkLayer::InfiniBand,
            active_mtu: Mtu::B4096,
            card: Card::ConnectX6Dx,
            trouble: Trouble::default(),
        }
    }
}

/// A software HCA as a PCI function.
#[derive(Debug)]
pub(crate) struct PciHca {
    config: ConfigSpace,
    iseg: iseg::InitSegment,
    firmware: Firmware,
    dma: Arc<dyn Dma + Sync>,
    memory: Arc<DeviceMemory>,
    /// First half of a doorbell that comes in two stores: its offset and value.
    half: Option<(u64, u32)>,
    trace: Trace,
    troubles: Troubles,
    infiniband: bool,
}

impl PciHca {
    /// Creates a function in the state after power-on, with its port on `wire`. `None`: a private
    /// fabric, on which it reaches only itself.
    pub(crate) fn new(
        options: &PciOptions,
        dma: Arc<dyn Dma + Sync>,
        wire: Option<Box<dyn Wire>>,
    ) -> Self {
        let mut config = HcaConfig {
            link: options.link,
            active_mtu: options.active_mtu,
            // Fewer than 24-bit numbers allow; this many keys are enough.
            max_mkey: 1 << 20,
            ..HcaConfig::default()
        };
        options.card.apply(&mut config);
        let device_id = config.part;
        let mut profile = Profile::new(options.number, config);
        profile.hca.pkeys.resize(usize::from(profile.hca.pkey_table_len()), 0);
        let wire = wire.unwrap_or_else(|| Box::new(Fabric::default().attach(&[])));
        let memory = Arc::new(DeviceMemory::new());
        let reach = WithDeviceMemory { host: Arc::clone(&dma), memory: Arc::clone(&memory) };
        let hca = Hca::new(profile.hca.clone(), Box::new(reach), wire);
        let infiniband = options.link == LinkLayer::InfiniBand;
        Self {
            config: ConfigSpace::new(infiniband, device_id),
            iseg: iseg::InitSegment::default(),
            firmware: Firmware::new(profile, hca, Arc::clone(&dma), Arc::clone(&memory)),
            dma,
            memory,
            half: None,
            trace: Trace::default(),
            troubles: Troubles::new(options.trouble.clone()),
            infiniband,
        }
    }

    /// Has the device memory in a client's file of the BAR, whose pages are zeros.
    pub(crate) fn share_memory(&self, bar: BorrowedFd<'_>) -> io::Result<()> {
        self.memory.share(bar)
    }

    /// Has the device memory where no client maps it.
    pub(crate) fn unshare_memory(&self) {
        self.memory.unshare();
    }

    /// Logs every command, doorbell and interrupt as a line.
    pub(crate) fn log_to(&mut self, sink: Sink) {
        self.trace.set(sink);
    }

    /// Resets the function: all objects are destroyed, and registers are as after power-on.
    pub(crate) fn reset(&mut self) {
        let stats = self.firmware.hca.stats();
        self.trace.line(format_args!("reset; counted so far: {stats:?}"));
        self.config = ConfigSpace::new(self.infiniband, self.firmware.hca.config().part);
        self.iseg = iseg::InitSegment::default();
        self.firmware.reset();
        self.half = None;
        self.troubles.restart(self.trace.now);
    }

    /// Sets the time since start; it never goes back.
    pub(crate) fn advance(&mut self, now: Duration) {
        self.trace.now = self.trace.now.max(now);
    }

    /// Reads configuration space.
    pub(crate) fn config_read(&self, offset: u64, data: &mut [u8]) {
        self.config.read(offset, data);
    }

    /// Writes configuration space.
    pub(crate) fn config_write(&mut self, offset: u64, data: &[u8]) {
        if self.config.write(offset, data) {
            self.reset();
        }
    }

    /// Reads BAR 0. Registers are read by 4 bytes, device memory by any length; other reads are 0.
    pub(crate) fn bar_read(&self, offset: u64, data: &mut [u8]) {
        if self.memory.load(offset, data) || self.firmware.load_operation(offset, data) {
            return;
        }
        let (now, mut register) = (self.trace.now, (u64::MAX, [0; 4]));
        for (place, byte) in (0..).zip(data) {
            let at = offset.wrapping_add(place);
            let start = at & !3;
            if register.0 != start {
                let value = match start / PAGE {
                    page if page < FIRST_UAR.into() => {
                        self.iseg.read(start, now, self.troubles.signs(now))
                    }
                    _ => 0,
                };
                register = (start, value.to_be_bytes());
            }
            *byte = register.1[(at & 3) as usize];
        }
    }

    /// Writes BAR 0: aligned stores of 4 or 8 bytes, several of them in a row, and any store to
    /// device memory. Other stores are ignored.
    pub(crate) fn bar_write(&mut self, offset: u64, data: &[u8]) {
        if self.memory.store(offset, data) || self.firmware.store_operation(offset, data) {
            return;
        }
        if !offset.is_multiple_of(4) || !data.len().is_multiple_of(4) {
            return self
                .trace
                .line(format_args!("odd store at {offset:#x} of {} bytes", data.len()));
        }
        let mut at = offset;
        let mut rest = data;
        // Terminates: each round consumes bytes.
        while let Some((word, after)) = rest.split_first_chunk::<4>() {
            if let Some((both, after)) = rest.split_first_chunk::<8>()
                && at.is_multiple_of(8)
                && at / PAGE >= FIRST_UAR.into()
            {
                self.store_8(at, u64::from_be_bytes(*both));
                (rest, at) = (after, at.wrapping_add(8));
            } else {
                self.store_4(at, u32::from_be_bytes(*word));
                (rest, at) = (after, at.wrapping_add(4));
            }
        }
    }

    fn store_4(&mut self, at: u64, value: u32) {
        let (page, offset) = (at / PAGE, (at % PAGE) as u32);
        if page < FIRST_UAR.into() {
            let was_disabled = self.iseg.is_disabled();
            let slots = self.iseg.write(at, value);
            if self.iseg.is_disabled() && !was_disabled {
                self.trace.line(format_args!("interface disabled"));
                self.firmware.interface_ended();
            }
            self.commands(slots);
        } else if self.firmware.eqs.ring(&*self.dma, page as u32, offset, value) {
            self.trace.line(format_args!("eq doorbell uar={page:#x} +{offset:#x} {value:#010x}"));
        } else if at.is_multiple_of(8) {
            self.half = Some((at, value));
        } else if let Some((_, high)) = self.half.take_if(|(high_at, _)| *high_at == at - 4) {
            self.doorbell(at - 4, u64::from(high) << 32 | u64::from(value));
        }
    }

    fn store_8(&mut self, at: u64, value: u64) {
        let (page, offset) = (at / PAGE, (at % PAGE) as u32);
        // An event queue's doorbell has 4 bytes; a store of 8 bytes is accepted, too.
        if !self.firmware.eqs.ring(&*self.dma, page as u32, offset, (value >> 32) as u32) {
            self.doorbell(at, value);
        }
    }

    /// Numbers of the UARs that the driver allocated.
    pub(crate) fn uars(&self) -> impl Iterator<Item = u32> {
        self.firmware.uars()
    }

    /// Sets the UARs that a guest maps, which can have no event queues.
    pub(crate) fn map_uars(&mut self, uars: Range<u32>) {
        self.firmware.mapped_uars = uars;
    }

    /// Carries out a doorbell that was stored into a UAR.
    pub(crate) fn ring(&mut self, uar: u32, offset: u32, value: u64) {
        self.doorbell(u64::from(uar) * PAGE + u64::from(offset), value);
    }

    fn doorbell(&mut self, at: u64, value: u64) {
        let (page, offset) = (at / PAGE, (at % PAGE) as u32);
        self.trace.line(format_args!("doorbell uar={page:#x} +{offset:#x} {value:#018x}"));
        self.firmware.hca.doorbell(UarNumber(page as u32), offset, value);
    }

    /// Runs the commands of the entries `slots`.
    fn commands(&mut self, slots: u32) {
        if self.troubles.is_starting(self.trace.now) {
            return self.trace.line(format_args!("cmd before the firmware runs"));
        }
        if self.iseg.is_disabled() && slots != 0 {
            return self.trace.line(format_args!("cmd while the interface is disabled"));
        }
        let queue = self.iseg.command_queue();
        for slot in (0..iseg::SLOTS).filter(|slot| slots >> slot & 1 != 0) {
            let Some(at) = queue.checked_add(u64::from(slot) * iseg::STRIDE) else { continue };
            match cmdq::CommandQueueEntry::read(&*self.dma, at) {
                None => self.trace.line(format_args!("cmd {slot:2} nothing there")),
                Some(Err(delivery)) => {
                    self.trace.line(format_args!("cmd {slot:2} not delivered: {delivery}"));
                    self.firmware.tell_command(1 << slot);
                }
                Some(Ok(entry)) => self.command(slot, &entry),
            }
        }
    }

    fn command(&mut self, slot: u32, entry: &cmdq::CommandQueueEntry) {
        if self.troubles.is_stuck(&entry.input) {
            return self.trace.line(format_args!("cmd {slot:2} stays without an answer"));
        }
        let told = self.firmware.command_eq();
        let mut output = vec![0; entry.output_len()];
        let outcome = match self.troubles.violation(&entry.input) {
            None => self.firmware.execute(&entry.input, &mut output),
            Some(strict::Violation { why, byte }) => {
                self.trace.line(format_args!("cmd {slot:2} strict: {why}, byte {byte:#x}"));
                firmware::refuse(&entry.input, &mut output, &Refusal::param(why))
            }
        };
        let delivery = entry.complete(&*self.dma, &output);
        self.trace.line(format_args!(
            "cmd {slot:2} {} op_mod={:#x} in={} out={}: {}{}{}",
            outcome.opcode,
            outcome.op_mod,
            entry.input.len(),
            output.len(),
            outcome.status,
            outcome.why.map_or("", |_| ", "),
            outcome.why.unwrap_or_default(),
        ));
        if delivery != uverbs_mlx5_prm::cmd::opcode::Delivery::OK {
            self.trace.line(format_args!("cmd {slot:2} answer not delivered: {delivery}"));
        }
        self.troubles.ran(outcome.opcode);
        // The commands that create and destroy the command event queue are polled (Linux
        // `core/eq.c`, `create_async_eqs`: mlx5_cmd_use_events comes after).
        if told.is_some() && told == self.firmware.command_eq() {
            self.firmware.tell_command(1 << slot);
        }
        if let Some(count) = self.troubles.ask(&mut self.firmware, &*self.dma, outcome.opcode) {
            self.trace.line(format_args!("asks for {count} pages"));
        }
    }

    /// Runs one bounded slice of work: packets, timers, queues. True if anything was done, so that
    /// another call may do more.
    pub(crate) fn step(&mut self) -> bool {
        self.firmware.step(self.trace.now)
    }

    /// Time at which [`PciHca::step`] may have work without input, by the clock of
    /// [`PciHca::advance`].
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.firmware.hca.next_deadline()
    }

    /// MSI-X vectors to raise, each once.
    pub(crate) fn take_interrupts(&mut self) -> Vec<u16> {
        let interrupts = std::mem::take(&mut self.firmware.eqs.interrupts);
        for vector in &interrupts {
            self.trace.line(format_args!("interrupt {vector}"));
        }
        interrupts
    }
}
