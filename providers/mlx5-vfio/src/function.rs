//! A function from power-on to use, and back (Linux `core/main.c`, `mlx5_function_enable`,
//! `mlx5_function_open`, `mlx5_load` and their reverses).

use std::sync::Arc;
use std::time::{Duration, Instant};

use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap::{FAST_TEARDOWN, FORCE_TEARDOWN};
use uverbs_mlx5_prm::cmd::hca::{
    FORCE_CLOSE, GRACEFUL_CLOSE, PREPARE_FAST_TEARDOWN, access_register_in, query_adapter_out,
    query_adapter_param_block, query_issi_out, set_issi_in, teardown_hca_in, teardown_hca_out,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use crate::caps::Caps;
use crate::command::{CommandQueue, SHORT};
use crate::config;
use crate::device::{Device, Limits};
use crate::dma::{Buffer, Dma, PAGE};
use crate::eq::EventQueue;
use crate::error::Error;
use crate::event::Event;
use crate::pages::Startup;
use crate::registers::{self, FirmwareVersion};
use crate::transport::Transport;
use crate::uar::place;
use crate::worker::Worker;

/// Interface version between software and firmware of this driver.
const ISSI: u64 = 1;
/// Pause between two looks at the `initializing` bit.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest fast teardown (`MLX5_TO_TEARDOWN_MS` of `core/lib/tout.c`), and longest command after a
/// teardown that took longer.
const TEARDOWN_LIMIT: Duration = Duration::from_secs(3);
/// INIT_HCA's input has an owner's id behind the first words (`mlx5_ifc_init_hca_in_bits`).
const INIT_HCA_BYTES: usize = 32;
/// Register with the host's byte order (`MLX5_REG_HOST_ENDIANNESS`), and its bytes.
const HOST_ENDIANNESS: u64 = 0x7004;
const HOST_ENDIANNESS_BYTES: usize = 16;
/// `MLX5_SET_HOST_ENDIANNESS` of `core/main.c`.
const ENDIANNESS: u8 = if cfg!(target_endian = "little") { 0 } else { 0x80 };

/// Numbers and names of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// PCI device number.
    pub part: u16,
    /// Version of the firmware.
    pub firmware: FirmwareVersion,
    /// Board type (PSID), as far as it is printable ASCII.
    pub board: String,
}

/// A function that this process owns, ready for objects.
///
/// Dropping it tears it down and resets it, as [`Function::close`] does.
#[derive(Debug)]
pub struct Function {
    device: Arc<Device>,
    /// `None` once closed.
    worker: Option<Worker>,
    identity: Identity,
    caps: Caps,
    uar: u32,
    eqn: u8,
}

impl Function {
    /// Takes a function from reset to use.
    ///
    /// # Errors
    ///
    /// The first step that failed. The function is reset.
    pub fn open(transport: impl Transport + 'static, limits: Limits) -> Result<Self, Error> {
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let part = config::part(&*transport)?;
        let device = Arc::new(Device::new(transport, limits));
        // A former owner's objects end here.
        device.silence()?;
        config::set_bus_master(device.transport(), true)?;
        device.wait_for_firmware()?;
        let (firmware, shape) = registers::identify(device.transport())?;
        let ring = device.buffer(PAGE)?;
        registers::set_command_queue(device.transport(), ring.iova())?;
        device.set_queue(CommandQueue::new(ring, shape));
        device.wait_for_firmware()?;
        device.bring_up()?;
        let board = device.board()?;
        let caps = device.caps()?;
        let interrupt = Worker::interrupt()?;
        device.transport().interrupt(std::os::fd::AsFd::as_fd(&interrupt))?;
        let uar = device.alloc_uar()?;
        let eq = EventQueue::create(&device, uar)?;
        let eqn = eq.number();
        let worker = Some(Worker::start(Arc::clone(&device), eq, interrupt)?);
        let identity = Identity { part, firmware, board };
        Ok(Self { device, worker, identity, caps, uar, eqn })
    }

    /// Numbers and names.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// General capabilities.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// UAR page that the function's queues use.
    #[must_use]
    pub fn uar(&self) -> u32 {
        self.uar
    }

    /// Number of the event queue, which completion queues name.
    #[must_use]
    pub fn eqn(&self) -> u8 {
        self.eqn
    }

    /// Runs a firmware command, and returns `outlen` bytes of output. `input` has the command's
    /// own fields; opcode and modifier are set here.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] of the firmware. [`Error::TimedOut`]: the function can only be closed.
    pub fn command(
        &self,
        opcode: CmdOpcode,
        op_mod: u16,
        input: &[u8],
        outlen: usize,
    ) -> Result<Vec<u8>, Error> {
        self.device.run(opcode, op_mod, input, outlen)
    }

    /// Allocates zeroed memory of `len` bytes that the device may use, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], or the system's error.
    pub fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        self.device.buffer(len)
    }

    /// Stores a doorbell of 8 bytes at `offset` of the UAR page. Earlier stores to buffers are
    /// visible to the device first.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] beyond the page, or the transport's error.
    pub fn ring(&self, offset: u64, value: u64) -> Result<(), Error> {
        self.device.check()?;
        self.device.transport().ring(self.in_uar(offset)?, value)
    }

    /// Rings as [`Function::ring`] without a wait ([`crate::transport::Transport::ring_soon`]).
    pub(crate) fn ring_soon(&self, offset: u64, value: u64) -> Result<(), Error> {
        self.device.check()?;
        self.device.transport().ring_soon(self.in_uar(offset)?, value)
    }

    /// Offset in BAR 0 of a doorbell of the UAR page.
    fn in_uar(&self, offset: u64) -> Result<u64, Error> {
        crate::transport::check("a UAR page", offset, 8, PAGE as u64)?;
        Ok(place(self.uar) + offset)
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn dma(&self) -> &Arc<Dma> {
        self.device.dma()
    }

    /// Takes the oldest asynchronous event. Equal events that wait are one.
    #[must_use]
    pub fn take_event(&self) -> Option<Event> {
        self.device.events.take()
    }

    /// Takes the number of a completion queue that has an event.
    pub(crate) fn take_completion(&self) -> Option<u32> {
        self.device.events.take_completion()
    }

    /// Number of pages that the firmware has.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.device.pages.count()
    }

    pub(crate) fn limits(&self) -> &Limits {
        self.device.limits()
    }

    /// Fails after the device's first failure, and in a forked child.
    pub(crate) fn alive(&self) -> Result<(), Error> {
        self.device.check()
    }

    /// First failure of the device, after which it can only be closed.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.device.failure()
    }

    /// Destroys what bring-up created, takes all pages back, and resets the function.
    ///
    /// # Errors
    ///
    /// The first step that failed. The reset is tried in any case; if it fails, the memory stays
    /// allocated.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut()
    }

    /// Does what [`Function::close`] does, once.
    pub(crate) fn shut(&mut self) -> Result<(), Error> {
        if self.device.check() == Err(Error::Forked) {
            // The thread is the parent's, and shares its eventfd with this process.
            return Err(Error::Forked);
        }
        let Some(worker) = self.worker.take() else { return Ok(()) };
        let undone = self.undo(worker);
        if undone.is_err() {
            self.end_quickly();
        }
        let ended = match Arc::strong_count(&self.device) {
            1 => self.device.end(),
            // The thread still has the device, and ends it. DMA ends now.
            _ => self.device.silence(),
        };
        undone.and(ended)
    }

    /// Ends the thread, and takes the steps of bring-up back.
    fn undo(&self, worker: Worker) -> Result<(), Error> {
        // The thread may be within a command.
        let limit = self.device.limits().command + Duration::from_secs(1);
        let eq = worker.stop(limit).ok_or_else(|| {
            let what = "the end of the driver's thread".to_owned();
            // The thread's next command fails, and the thread ends.
            self.device.fail(Error::TimedOut { what, waited: limit })
        })?;
        self.device.check()?;
        eq.destroy(&self.device)?;
        self.device.free_uar(self.uar)?;
        self.device.tear_down()
    }

    /// Ends the objects that the firmware did not destroy one by one, since not every function can
    /// be reset: by the state of the interface, else by force. A failed device runs no command, and
    /// only a reset ends its objects (`mlx5_try_fast_unload`).
    fn end_quickly(&self) {
        let has = |field| self.caps.get(field) != 0;
        match has(FAST_TEARDOWN).then(|| self.device.tear_down_fast()) {
            Some(Ok(())) => return,
            // A disabled interface answers no command, and this one may be half disabled.
            Some(Err(Error::TimedOut { .. })) => self.device.shorten(TEARDOWN_LIMIT),
            _ => {}
        }
        if has(FORCE_TEARDOWN) {
            // The reset follows.
            let _ = self.device.tear_down_by(FORCE_CLOSE);
        }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.shut();
    }
}

impl Device {
    /// Waits until the firmware runs (`wait_fw_init`).
    fn wait_for_firmware(&self) -> Result<(), Error> {
        let start = Instant::now();
        while registers::is_initializing(self.transport())? {
            let waited = start.elapsed();
            if waited >= self.limits().initializing {
                return Err(Error::TimedOut { what: "the start of the firmware".into(), waited });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// From ENABLE_HCA to INIT_HCA, in the order of `mlx5_function_enable` and
    /// `mlx5_function_open`.
    fn bring_up(&self) -> Result<(), Error> {
        self.run(CmdOpcode::ENABLE_HCA, 0, &[0; SHORT], SHORT)?;
        self.set_issi()?;
        self.supply(Startup::Boot)?;
        self.set_byte_order()?;
        self.set_caps()?;
        self.supply(Startup::Init)?;
        self.run(CmdOpcode::INIT_HCA, 0, &[0; INIT_HCA_BYTES], SHORT).map(drop)
    }

    /// Chooses the interface version (`mlx5_core_set_issi`).
    fn set_issi(&self) -> Result<(), Error> {
        let output = self.run(CmdOpcode::QUERY_ISSI, 0, &[0; SHORT], query_issi_out::SIZE)?;
        if query_issi_out::SUPPORTED_ISSI_DW0.get(&output) & 1 << ISSI == 0 {
            let what = format!("firmware without interface version {ISSI}");
            return Err(Error::Unsupported { what });
        }
        let mut input = [0; set_issi_in::SIZE];
        set_issi_in::CURRENT_ISSI.set(&mut input, ISSI);
        self.run(CmdOpcode::SET_ISSI, 0, &input, SHORT).map(drop)
    }

    /// Tells the firmware the host's byte order (`set_hca_ctrl`). A virtual function may not.
    fn set_byte_order(&self) -> Result<(), Error> {
        let mut input = vec![0; access_register_in::SIZE + HOST_ENDIANNESS_BYTES];
        access_register_in::REGISTER_ID.set(&mut input, HOST_ENDIANNESS);
        access_register_in::REGISTER_DATA.of_mut(&mut input)[0] = ENDIANNESS;
        match self.run(CmdOpcode::ACCESS_REG, 0, &input, SHORT + HOST_ENDIANNESS_BYTES) {
            Err(Error::Refused { .. }) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Reads the board type (`mlx5_query_board_id`).
    fn board(&self) -> Result<String, Error> {
        let len = query_adapter_out::SIZE;
        let output = self.run(CmdOpcode::QUERY_ADAPTER, 0, &[0; SHORT], len)?;
        let block = query_adapter_out::QUERY_ADAPTER_STRUCT.of(&output);
        let psid = query_adapter_param_block::VSD_CONTD_PSID.of(block);
        Ok(psid.iter().take_while(|byte| byte.is_ascii_graphic()).map(|&b| b as char).collect())
    }

    /// TEARDOWN_HCA of this profile (`core/fw.c`, `mlx5_cmd_force_teardown_hca`).
    fn tear_down_by(&self, profile: u64) -> Result<(), Error> {
        let mut input = [0; teardown_hca_in::SIZE];
        teardown_hca_in::PROFILE.set(&mut input, profile);
        let output = self.run(CmdOpcode::TEARDOWN_HCA, 0, &input, teardown_hca_out::SIZE)?;
        match teardown_hca_out::STATE.get32(&output) {
            // Only the other two answer a state (`mlx5_cmd_teardown_hca`).
            state if profile != GRACEFUL_CLOSE && state != 0 => {
                Err(Error::answer("the state of a teardown", state))
            }
            _ => Ok(()),
        }
    }

    /// Disables the interface after a preparation (`mlx5_cmd_fast_teardown_hca`).
    fn tear_down_fast(&self) -> Result<(), Error> {
        self.tear_down_by(PREPARE_FAST_TEARDOWN)?;
        registers::disable_interface(self.transport())?;
        let start = Instant::now();
        while !registers::is_disabled(self.transport())? {
            let waited = start.elapsed();
            if waited >= TEARDOWN_LIMIT {
                return Err(Error::TimedOut { what: "the end of the interface".into(), waited });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// From TEARDOWN_HCA to DISABLE_HCA (`mlx5_function_close`, `mlx5_function_disable`).
    fn tear_down(&self) -> Result<(), Error> {
        self.tear_down_by(GRACEFUL_CLOSE)?;
        self.reclaim()?;
        self.run(CmdOpcode::DISABLE_HCA, 0, &[0; SHORT], SHORT).map(drop)
    }
}
