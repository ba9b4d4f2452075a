//! A device in this process: registers, a command queue, an event queue.
//!
//! It reads and writes the driver's memory through the files that the driver mapped, as a vfio-user
//! server does.
//!
//! # Safety
//!
//! Memory of the process is noted, and not accessed.
#![allow(unsafe_code, reason = "a method of the transport is unsafe")]

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write;
use std::ops::{Range, RangeInclusive};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::uio::{pread, pwrite};
use uverbs_core::Errno;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap;
use uverbs_mlx5_prm::cmd::header::{cmd_in, cmd_out};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::queue::{mlx5_cmd_layout, mlx5_cmd_prot_block};
use uverbs_mlx5_prm::cmd::{eq, hca, mkey, simple, vport};
use uverbs_mlx5_prm::eqe::{MLX5_PORT_CHANGE_SUBTYPE_DOWN, mlx5_eqe};
use zerocopy::{FromZeros, IntoBytes};

use super::memic::alloc;
use crate::device::Limits;
use crate::error::Error;
use crate::memory::Memory;
use crate::transport::{BAR0, CONFIG, Purpose, Transport, check};

/// Bytes of BAR 0, with UAR pages 0x10 to 0x1f.
pub(super) const BAR_LEN: u64 = 0x3_0000;
const CONFIG_LEN: usize = 256;
pub(crate) const UAR: u32 = 0x10;
const END_UAR: u32 = 0x20;
/// Place of device memory in the BAR.
pub(crate) const MEMORY: Range<u64> = 0x8000..0x1_0000;
/// Doorbell of the command queue.
const CMD_DBELL: u64 = 0x18;
/// Doorbells of the event queue.
const EQ_DOORBELLS: [u64; 2] = [0x1_0040, 0x1_0048];
/// Events that the driver reads before it rings.
const FLOOD: u32 = 1024;
/// State of the interface, in the low word of the command queue's address.
const NIC_STATE: u32 = 0x700;
/// Bit of the PCI command register.
const BUS_MASTER: u8 = 4;

/// Short limits, so that a device that stops makes a short test.
pub(crate) fn limits() -> Limits {
    Limits {
        initializing: Duration::from_millis(50),
        command: Duration::from_millis(100),
        reclaim: Duration::from_millis(50),
        health: Duration::from_millis(10),
        memory: 16 << 20,
    }
}

/// Log2 of the multicast addresses, and of the VLANs, that the port takes.
const LOG_MAX_MACS: u64 = 3;

/// Change of a command's course.
#[derive(Clone, Debug)]
pub(crate) enum Twist {
    /// Refuses the command.
    Refuse(u8),
    /// Answers with this delivery status.
    Deliver(u8),
    /// Keeps the entry.
    Keep,
    /// Asks for a page, and keeps the entry until it comes.
    WantPage,
    /// Overwrites the output from byte 8 on.
    Output(Vec<u8>),
    /// Writes these bytes into the event queue, as its next entry.
    Event(Vec<u8>),
    /// Overwrites a register, by its word.
    Register(u64, u32),
    /// Overwrites the driver's memory, at a fraction of it.
    Memory(u16, Vec<u8>),
}

/// State of the device.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Mappings: address, file, length.
    pub(crate) maps: Vec<(u64, File, u64)>,
    /// Memory of the process: address for the device, pages, bytes in them, purpose.
    pub(crate) umems: Vec<(u64, Range<u64>, Range<u64>, Purpose)>,
    config: Vec<u8>,
    cmdq: u64,
    /// Twists by command, from the next on.
    pub(crate) twists: VecDeque<Option<Twist>>,
    /// Registers that a twist changed.
    registers: Vec<(u64, u32)>,
    /// Slot of a command that wants a page.
    kept: Option<u32>,
    /// Commands with their slots.
    pub(crate) commands: Vec<(u32, CmdOpcode, u16)>,
    pub(crate) pages: Vec<u64>,
    /// Logarithm of the entries of a completion queue.
    pub(crate) log_max_cq_sz: u64,
    /// Ring addresses and entries of the event queue, and entries written.
    eq: Option<(Vec<u64>, u32)>,
    /// Eventfd of the driver, shared by its file description.
    pub(crate) event: Option<File>,
    /// Numbers of the allocated UARs, and the file in which programs ring.
    pub(crate) uars: BTreeSet<u32>,
    bar: Option<Arc<OwnedFd>>,
    /// Doorbells that the driver rang.
    pub(crate) rings: usize,
    /// Number that the next ALLOC_UAR returns.
    pub(crate) next_uar: Option<u32>,
    /// Device memory in the BAR; without it 0..0.
    pub(crate) memory: Range<u64>,
    /// Operations on it, by the start of the allocation.
    pub(crate) operations: BTreeSet<(u64, u64)>,
    /// Part of the BAR that programs can't map.
    pub(crate) hidden: Range<u64>,
    /// Fast and forced teardown.
    pub(crate) teardowns: [bool; 2],
    /// Profiles of TEARDOWN_HCA.
    pub(crate) profiles: Vec<u64>,
    /// State of the interface, in its bits of the register.
    nic: u32,
    /// State and LID of the port.
    pub(crate) port: (u8, u16),
    /// Input of the last command.
    pub(crate) input: Vec<u8>,
    /// Last number of a key or a CQ. Other objects have number 0.
    last: u32,
    beats: u32,
    pub(crate) heart_stands: bool,
    /// Writes events whenever the driver has read some, as many as it reads between two doorbells.
    pub(crate) floods: bool,
    /// Time that each command takes.
    pub(crate) slow: Duration,
    /// The device may still access memory: it was used since the last reset.
    pub(crate) live: bool,
    pub(crate) can_reset: bool,
    pub(crate) reset_fails: bool,
    pub(crate) unmap_fails: bool,
    /// Errno of mappings of the process's memory.
    pub(crate) map_errno: Option<Errno>,
    /// Errors of the driver's commands.
    pub(crate) failures: Vec<String>,
    /// Pages that the device had at its last reset.
    pub(crate) pages_at_reset: usize,
    /// Memory was unmapped while the device could use it.
    pub(crate) torn: bool,
}

/// The device; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Fake(Arc<Mutex<State>>);

impl Fake {
    pub(crate) fn new() -> Self {
        let mut config = vec![0; CONFIG_LEN];
        config[..4].copy_from_slice(&[0xb3, 0x15, 0x1d, 0x10]);
        let state = State { config, can_reset: true, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Plans a twist of the command `after` commands from now.
    pub(crate) fn twist(&self, after: usize, twist: Twist) {
        let mut state = self.state();
        while state.twists.len() < after {
            state.twists.push_back(None);
        }
        state.twists.push_back(Some(twist));
    }

    /// Writes an event and interrupts.
    pub(crate) fn report(&self, eqe: &mlx5_eqe) {
        self.state().report(eqe.as_bytes(), true);
    }

    /// Waits until `done` returns a value.
    pub(crate) fn wait<T>(&self, mut done: impl FnMut(&mut State) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = done(&mut self.state()) {
                return value;
            }
            let late = start.elapsed() >= Duration::from_secs(20);
            assert!(!late, "failures: {:?}", self.state().failures);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the driver has let go of the device.
    pub(crate) fn wait_for_the_end(&self) {
        self.wait(|_| (Arc::strong_count(&self.0) == 1).then_some(()));
    }

    /// Number of commands of this kind.
    pub(crate) fn count(&self, opcode: CmdOpcode) -> usize {
        self.state().commands.iter().filter(|(_, of, _)| *of == opcode).count()
    }
}

impl State {
    fn bar(&mut self) -> Arc<OwnedFd> {
        let made = self.bar.get_or_insert_with(|| {
            let file = File::from(memfd_create("bar", MFdFlags::MFD_CLOEXEC).unwrap());
            file.set_len(BAR_LEN).unwrap();
            Arc::new(file.into())
        });
        Arc::clone(made)
    }

    fn alloc_uar(&mut self) -> Option<u32> {
        let planned = self.next_uar.take();
        planned.or_else(|| (UAR..END_UAR).find(|uar| self.uars.insert(*uar)))
    }

    /// A byte of the BAR, as a program's mapping has it.
    pub(crate) fn bar_byte(&mut self, at: u64) -> u8 {
        let mut byte = [0];
        pread(self.bar(), &mut byte, at as i64).unwrap();
        byte[0]
    }

    /// Takes a doorbell that a program rang.
    pub(crate) fn take_doorbell(&mut self, uar: u32, offset: u64) -> u64 {
        let (file, at) = (self.bar(), (u64::from(uar) * 4096 + offset) as i64);
        let mut word = [0; 8];
        pread(&file, &mut word, at).unwrap();
        pwrite(&file, &[0; 8], at).unwrap();
        u64::from_be_bytes(word)
    }

    fn access(&self, at: u64, len: usize) -> Option<(&File, u64)> {
        let inside = |(iova, _, size): &&(u64, File, u64)| {
            at >= *iova && at.saturating_add(len as u64) <= iova + size
        };
        self.maps.iter().find(inside).map(|(iova, file, _)| (file, at - iova))
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) {
        match self.access(at, bytes.len()) {
            Some((file, offset)) => file.read_exact_at(bytes, offset).unwrap(),
            None => self.failures.push(format!("read of unmapped {at:#x}")),
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        match self.access(at, bytes.len()) {
            Some((file, offset)) => file.write_all_at(bytes, offset).unwrap(),
            None => self.failures.push(format!("write of unmapped {at:#x}")),
        }
    }

    /// Writes an entry of the event queue.
    pub(crate) fn report(&mut self, eqe: &[u8], owner: bool) {
        let Some((pages, written)) = self.eq.take() else { return };
        let per_page = 4096 / 64;
        let entries = pages.len() as u32 * per_page;
        let at = written % entries;
        let address = pages[(at / per_page) as usize] + u64::from(at % per_page) * 64;
        let mut entry = [0; 64];
        entry[..eqe.len()].copy_from_slice(eqe);
        if owner {
            entry[63] = (written / entries) as u8 & 1;
        }
        self.write(address, &entry[..63]);
        self.write(address + 63, &entry[63..]);
        self.eq = Some((pages, written + 1));
        if let Some(event) = &self.event {
            (&*event).write_all(&1u64.to_ne_bytes()).unwrap();
        }
    }

    /// Number of events that the device wrote.
    pub(crate) fn events(&self) -> u32 {
        self.eq.as_ref().map_or(0, |(_, written)| *written)
    }

    pub(crate) fn set_register(&mut self, offset: u64, value: u32) {
        self.registers.push((offset, value));
    }

    fn register(&mut self, offset: u64) -> u32 {
        if let Some((_, value)) = self.registers.iter().rev().find(|(at, _)| *at == offset) {
            return *value;
        }
        match offset {
            0x0 => 2 << 16 | 7,
            0x4 => 5 << 16 | 9,
            0x14 => 0x56 | self.nic,
            0x1010 => {
                self.beats += u32::from(!self.heart_stands);
                self.beats & 0xff_ffff
            }
            _ => 0,
        }
    }

    fn command(&mut self, slot: u32) {
        self.live = true;
        if self.config[4] & BUS_MASTER == 0 {
            self.failures.push("a command without bus mastering".to_owned());
        }
        let at = self.cmdq + u64::from(slot) * 64;
        let mut entry = mlx5_cmd_layout::new_zeroed();
        self.read(at, entry.as_mut_bytes());
        // The owner's signature covers the whole entry.
        if entry.as_bytes().iter().fold(0, |sum, byte| sum ^ byte) != 0xff {
            self.failures.push("a wrong signature of an entry".to_owned());
        }
        let mut input = entry.in_.to_vec();
        let mut next = entry.in_ptr.get();
        while input.len() < entry.inlen.get() as usize {
            let mut block = mlx5_cmd_prot_block::new_zeroed();
            self.read(next, block.as_mut_bytes());
            let sum = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum ^ byte);
            let sums = (sum(block.as_bytes()), sum(&block.as_bytes()[512..575]));
            if block.token != entry.token || sums != (0xff, 0xff) {
                self.failures.push("a wrong mailbox".to_owned());
            }
            let part = (entry.inlen.get() as usize - input.len()).min(512);
            input.extend_from_slice(&block.data[..part]);
            next = block.next.get();
        }
        let opcode = CmdOpcode(cmd_in::OPCODE.get(&input) as u16);
        let op_mod = cmd_in::OP_MOD.get(&input) as u16;
        self.commands.push((slot, opcode, op_mod));
        self.input.clone_from(&input);
        let twist = self.twists.pop_front().flatten();
        let mut output = vec![0; entry.outlen.get() as usize];
        let mut status_own = 0;
        match &twist {
            Some(Twist::Refuse(status)) => {
                cmd_out::STATUS.set(&mut output, (*status).into());
            }
            Some(Twist::Keep) => return,
            Some(Twist::WantPage) => {
                self.kept = Some(slot);
                return self.report(mlx5_eqe::page_request(0, 1).as_bytes(), true);
            }
            Some(Twist::Deliver(status)) => status_own = status << 1,
            _ => self.execute(opcode, op_mod, &input, &mut output),
        }
        match twist {
            Some(Twist::Output(bytes)) => {
                for (to, from) in output.iter_mut().skip(8).zip(bytes) {
                    *to = from;
                }
            }
            Some(Twist::Event(bytes)) => self.report(&bytes[..bytes.len().min(64)], false),
            Some(Twist::Register(offset, value)) => self.registers.push((offset, value)),
            Some(Twist::Memory(place, bytes)) => {
                let (iova, _, len) = self.maps[usize::from(place) % self.maps.len()];
                let offset = u64::from(place) * 64 % (len - bytes.len() as u64);
                self.write(iova + offset, &bytes);
            }
            _ => {}
        }
        let inline = output.len().min(16);
        self.write(at + 32, &output[..inline]);
        let mut next = entry.out_ptr.get();
        for part in output[inline..].chunks(512) {
            self.write(next, part);
            let mut link = [0; 8];
            self.read(next + 560, &mut link);
            next = u64::from_be_bytes(link);
        }
        self.write(at + 63, &[status_own]);
        if let Some(slot) = self.kept.take_if(|_| opcode == CmdOpcode::MANAGE_PAGES) {
            self.command(slot);
        }
    }

    /// Answers as firmware should.
    fn execute(&mut self, opcode: CmdOpcode, op_mod: u16, input: &[u8], output: &mut [u8]) {
        match opcode {
            CmdOpcode::QUERY_ISSI => hca::query_issi_out::SUPPORTED_ISSI_DW0.set(output, 3),
            CmdOpcode::QUERY_HCA_CAP => {
                let caps = hca::query_hca_cap_out::CAPABILITY.of_mut(output);
                match op_mod >> 1 {
                    0xf => self.describe_memory(caps),
                    _ => {
                        cmd_hca_cap::LOG_MAX_CQ_SZ.set(caps, self.log_max_cq_sz);
                        cmd_hca_cap::LOG_MAX_CURRENT_MC_LIST.set(caps, LOG_MAX_MACS);
                        cmd_hca_cap::LOG_MAX_VLAN_LIST.set(caps, LOG_MAX_MACS);
                        cmd_hca_cap::DEVICE_MEMORY.set(caps, (self.memory != (0..0)).into());
                        let [fast, forced] = self.teardowns.map(u64::from);
                        cmd_hca_cap::FAST_TEARDOWN.set(caps, fast);
                        cmd_hca_cap::FORCE_TEARDOWN.set(caps, forced);
                    }
                }
            }
            CmdOpcode::ALLOC_MEMIC => alloc(input, output),
            CmdOpcode::DEALLOC_MEMIC => self.dealloc(input),
            CmdOpcode::MODIFY_MEMIC => self.modify(op_mod, input, output),
            CmdOpcode::QUERY_PAGES => hca::query_pages_out::NUM_PAGES.set(output, 5),
            CmdOpcode::MANAGE_PAGES => {
                let count = hca::manage_pages_in::INPUT_NUM_ENTRIES.get(input) as usize;
                match op_mod {
                    1 => {
                        let list = hca::manage_pages_in::PAS.of(input).chunks_exact(8).take(count);
                        let pages = list.map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
                        self.pages.extend(pages);
                    }
                    2 => {
                        let count = count.min(self.pages.len());
                        let back = self.pages.split_off(self.pages.len() - count);
                        hca::manage_pages_out::OUTPUT_NUM_ENTRIES.set(output, count as u64);
                        let list = hca::manage_pages_out::PAS.of_mut(output);
                        for (slot, page) in list.chunks_exact_mut(8).zip(back) {
                            slot.copy_from_slice(&page.to_be_bytes());
                        }
                    }
                    _ => {}
                }
            }
            CmdOpcode::ALLOC_UAR => match self.alloc_uar() {
                Some(uar) => simple::alloc_uar_out::UAR.set(output, uar.into()),
                None => cmd_out::STATUS.set(output, CmdStatus::LIM_ERR.0.into()),
            },
            CmdOpcode::DEALLOC_UAR => {
                let uar = simple::dealloc_uar_in::UAR.get32(input);
                if !self.uars.remove(&uar) {
                    self.failures.push(format!("UAR {uar:#x} is freed twice"));
                }
            }
            CmdOpcode::CREATE_MKEY | CmdOpcode::CREATE_CQ => {
                self.last += 1;
                mkey::create_mkey_out::MKEY_INDEX.set(output, self.last.into());
            }
            CmdOpcode::CREATE_EQ => {
                let list = eq::create_eq_in::PAS.of(input).chunks_exact(8);
                let pages = list.map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
                self.eq = Some((pages.collect(), 0));
                eq::create_eq_out::EQ_NUMBER.set(output, 3);
            }
            CmdOpcode::DESTROY_EQ => self.eq = None,
            CmdOpcode::TEARDOWN_HCA => {
                self.profiles.push(hca::teardown_hca_in::PROFILE.get(input));
            }
            CmdOpcode::QUERY_HCA_VPORT_CONTEXT => {
                use vport::{hca_vport_context as context, query_hca_vport_context_out as answer};
                let output = answer::HCA_VPORT_CONTEXT.of_mut(output);
                context::PORT_STATE.set(output, self.port.0.into());
                context::LID.set(output, self.port.1.into());
            }
            _ => cmd_out::STATUS.set(output, CmdStatus::OK.0.into()),
        }
    }
}

impl Transport for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn bar_len(&self) -> u64 {
        BAR_LEN
    }

    fn iova_ranges(&self) -> &[RangeInclusive<u64>] {
        &[0..=0xffff_ffff]
    }

    fn config_read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        check(CONFIG, offset, bytes.len() as u64, CONFIG_LEN as u64)?;
        bytes.copy_from_slice(&self.state().config[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn config_write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        check(CONFIG, offset, bytes.len() as u64, CONFIG_LEN as u64)?;
        let mut state = self.state();
        state.config[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        state.live &= state.config[4] & BUS_MASTER != 0;
        Ok(())
    }

    fn bar_read(&self, offset: u64) -> Result<u32, Error> {
        check(BAR0, offset, 4, BAR_LEN)?;
        Ok(self.state().register(offset))
    }

    fn bar_write(&self, offset: u64, value: u32) -> Result<(), Error> {
        check(BAR0, offset, 4, BAR_LEN)?;
        if offset == CMD_DBELL {
            let slow = self.state().slow;
            std::thread::sleep(slow);
        }
        let mut state = self.state();
        match offset {
            0x10 => state.cmdq = u64::from(value) << 32,
            0x14 if value & NIC_STATE != 0 => state.nic = value & NIC_STATE,
            0x14 => state.cmdq |= u64::from(value & !0xfff),
            CMD_DBELL => (0..32).filter(|slot| value >> slot & 1 != 0).for_each(|slot| {
                state.command(slot);
            }),
            _ if EQ_DOORBELLS.contains(&offset) && state.floods => {
                let eqe = mlx5_eqe::port(MLX5_PORT_CHANGE_SUBTYPE_DOWN, 1);
                (0..FLOOD).for_each(|_| state.report(eqe.as_bytes(), true));
            }
            _ => {}
        }
        Ok(())
    }

    fn ring(&self, offset: u64, _: u64) -> Result<(), Error> {
        self.state().rings += 1;
        check(BAR0, offset, 8, BAR_LEN)
    }

    fn bar_file(&self, at: u64, len: u64) -> Result<(Arc<OwnedFd>, u64), Error> {
        let mut state = self.state();
        match state.hidden.contains(&at) {
            true => check(BAR0, at, len, 0)?,
            false => check(BAR0, at, len, BAR_LEN)?,
        }
        Ok((state.bar(), at))
    }

    fn map(&self, iova: u64, memory: &Memory) -> Result<(), Error> {
        let file = File::from(memory.file().try_clone_to_owned().unwrap());
        self.state().maps.push((iova, file, memory.len() as u64));
        Ok(())
    }

    unsafe fn map_process(
        &self,
        iova: u64,
        pages: Range<u64>,
        used: Range<u64>,
        purpose: Purpose,
    ) -> Result<(), Error> {
        let mut state = self.state();
        if let Some(errno) = state.map_errno {
            return Err(Error::System { what: "map", errno });
        }
        state.umems.push((iova, pages, used, purpose));
        Ok(())
    }

    fn unmap(&self, iova: u64, len: u64) -> Result<(), Error> {
        let mut state = self.state();
        let same = |(at, pages, ..): &(u64, Range<u64>, _, _)| {
            *at == iova && pages.end - pages.start == len
        };
        let known = state.umems.iter().position(same);
        if state.live && known.is_none() {
            state.torn = true;
        }
        if state.unmap_fails {
            return Err(Error::System { what: "unmap", errno: Errno::EIO });
        }
        if let Some(known) = known {
            state.umems.remove(known);
            return Ok(());
        }
        let before = state.maps.len();
        state.maps.retain(|(at, _, size)| (*at, *size) != (iova, len));
        match state.maps.len() + 1 == before {
            true => Ok(()),
            false => Err(Error::System { what: "unmap", errno: Errno::EINVAL }),
        }
    }

    fn interrupt(&self, event: BorrowedFd<'_>) -> Result<(), Error> {
        self.state().event = Some(File::from(event.try_clone_to_owned().unwrap()));
        Ok(())
    }

    fn reset(&self) -> Result<(), Error> {
        let mut state = self.state();
        if !state.can_reset {
            return Err(Error::Unsupported { what: "reset".to_owned() });
        }
        if state.reset_fails {
            return Err(Error::System { what: "reset", errno: Errno::EIO });
        }
        state.live = false;
        state.nic = 0;
        state.eq = None;
        state.pages_at_reset = state.pages.len();
        state.pages.clear();
        state.uars.clear();
        Ok(())
    }
}
