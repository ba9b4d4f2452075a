//! A function as an RDMA device: its door answers what `/dev/infiniband/uverbsN` answers.
//!
//! The front keeps handles and states; the function's commands do the work ([`crate::backend`]).
//! One lock serializes them. A program's doorbells are stores into the device's pages. Events wait
//! for the driver's thread.
//!
//! # Safety
//!
//! One unsafe operation: opening a door of the front, for whose device this file speaks.
#![allow(unsafe_code, reason = "opening a door promises what the device does with memory")]

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use uverbs_core::Errno;
use uverbs_core::discovery::function::is_function;
use uverbs_core::discovery::sysfs;
use uverbs_core::doors::cm::CmDoor;
use uverbs_core::doors::{DeviceRecord, DeviceSource, UverbsDoor, traced};
use uverbs_core::memory::pages::Pages;
use uverbs_core::memory::per_process::PerProcess;
use uverbs_core::memory::process::Process;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;

use crate::backend::{ByLid, Firmware, Start, start};
use crate::device::{Device, Limits};
use crate::dma::Dma;
use crate::error::Error;
use crate::function::Function;
use crate::interface::Interface;
use crate::registers;
use crate::tick::Tick;
use crate::transport::vfio::Vfio;
use crate::transport::vfio_user::VfioUser;
use crate::uar::UarPages;
use uverbs_front::cm_door::CmFile;
use uverbs_front::door::{Door, Runner};
use uverbs_front::uar::UarSet;

/// Pause of a thread that finds the front in use.
const NAP: Duration = Duration::from_micros(20);
/// Time between two looks at a socket of events that is full.
const LOOK: Duration = Duration::from_millis(1);
/// Slices of work in one turn of the thread.
const SLICES: usize = 64;
/// Longest pause of the thread while a peer is asked for its MAC address.
const ASKING_PAUSE: Duration = Duration::from_millis(10);
/// Longest wait for management datagrams to leave, before the program may end.
const SENDING: Duration = Duration::from_millis(200);
/// Longest wait for a function that is being closed.
const CLOSING: Duration = Duration::from_secs(10);

type Kernel = uverbs_front::Kernel<Firmware>;

/// The front with its function.
struct Core {
    kernel: Mutex<Kernel>,
    start: Instant,
    /// The function is being closed.
    closes: AtomicBool,
    /// `None` on Ethernet.
    by_lid: Option<ByLid>,
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Kernel>> {
        match self.kernel.try_lock() {
            Ok(kernel) => Some(kernel),
            Err(TryLockError::Poisoned(kernel)) => Some(kernel.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Changes the front on the driver's thread, unless the function is being closed: whoever
    /// closes it has the lock, and waits for this thread.
    fn tell(&self, change: impl Fn(&mut Kernel)) {
        while !self.closes.load(Ordering::SeqCst) {
            if let Some(mut kernel) = self.try_lock() {
                change(&mut kernel);
                return kernel.flush_events();
            }
            std::thread::sleep(NAP);
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Tick for Core {
    fn tick(&self) -> Option<Duration> {
        let Some(mut kernel) = self.try_lock() else { return Some(NAP) };
        let is_done = (0..SLICES).any(|_| !kernel.step(self.start.elapsed(), false));
        kernel.flush_events();
        let uverbs_front::Device { hca, config, .. } = &mut kernel.device;
        if let Some(state) = hca.take_port(&config.gids) {
            if let Some(network) = self.by_lid.and_then(|by_lid| by_lid.network(state.lid)) {
                kernel.device.cm.set_subnet(network);
            }
            kernel.set_port(state);
        }
        let due = kernel.next_deadline().map(|at| at.saturating_sub(self.start.elapsed()));
        let asks = kernel.device.hca.is_asking() || kernel.device.cm.is_asking();
        let asks = asks.then_some(ASKING_PAUSE);
        let looks = kernel.needs_looks().then_some(LOOK);
        // Others use the front between two turns of much work.
        let more = (!is_done).then_some(NAP);
        due.into_iter().chain(asks).chain(looks).chain(more).min()
    }

    fn failed(&self) {
        self.tell(Kernel::report_fatal);
    }

    fn ended(&self) {
        self.tell(Kernel::unplug);
    }
}

/// State that doors and handles of a device share.
struct Shared {
    core: Arc<Core>,
    dma: Arc<Dma>,
    record: DeviceRecord,
    process: Process,
    /// Dropped after the function is closed.
    life: Arc<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.core.closes.store(true, Ordering::SeqCst);
            self.core.lock().device.hca.close();
        } else {
            // The copy of a forked child, whose lock may be held for ever.
            std::mem::forget(Arc::clone(&self.core));
        }
    }
}

/// A function as an RDMA device of this process. Clones are the same device; the function is closed
/// and reset with the last of them and the last door.
#[derive(Clone)]
pub struct Hca {
    shared: Arc<Shared>,
}

/// Numbers of connections that differ from an earlier process's, which peers may remember.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}

/// Functions of this process that were opened by name.
static OPEN: PerProcess<BTreeMap<String, Arc<Mutex<Named>>>> = PerProcess::new();

/// Function of a name. The lock is held while it is opened.
#[derive(Debug, Default)]
struct Named {
    interface: Interface,
    shared: Weak<Shared>,
    /// There until the function is closed.
    life: Weak<()>,
}

/// Time of day at which the device's clock was 0, in nanoseconds since 1970. Correct for a clock of
/// 1 GHz only, as is the front's clock page.
fn began(device: &Device) -> Result<u64, Error> {
    let clock = Duration::from_nanos(registers::clock(device.transport())?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(now.saturating_sub(clock).as_nanos()).unwrap_or(u64::MAX))
}

impl Hca {
    /// Makes a device of a function. `name` is its name among RDMA devices.
    ///
    /// # Errors
    ///
    /// The failed query of the port, or a failed command.
    pub fn new(function: Function, name: &str) -> Result<Self, Error> {
        Self::with_interface(function, name, &Interface::default())
    }

    /// As [`Hca::new`], with IP addresses.
    ///
    /// # Errors
    ///
    /// As [`Hca::new`]; [`Error::Invalid`] for an address that the port can't have;
    /// [`Error::Limit`] for more addresses than the port's GID table has room for.
    pub fn with_interface(
        function: Function,
        name: &str,
        interface: &Interface,
    ) -> Result<Self, Error> {
        let start = start(&function, interface)?;
        let Start { config, up, mut manager, neighbours, by_lid, memory } = start;
        let mut record = DeviceRecord::new(name, RDMA_DRIVER_MLX5);
        record.node_guid = config.guid;
        record.node_type = 1;
        record.port_count = 1;
        let (dma, device) = (Arc::clone(function.dma()), Arc::clone(function.device()));
        manager.seed(seed());
        let pages = UarPages::new(&device);
        let mut firmware = Firmware::new(function, &config, neighbours);
        firmware.set_device_memory(memory);
        firmware.start_lists();
        firmware.start_neighbour_queues();
        let watch = device.transport().watch();
        let mut front = uverbs_front::Device::new(config, manager, firmware);
        front.uars = UarSet::of_device(Box::new(pages), watch);
        let mut kernel = Kernel::new(front);
        kernel.set_link(up);
        kernel.device.set_began(began(&device)?);
        let core = Arc::new(Core {
            kernel: Mutex::new(kernel),
            start: Instant::now(),
            closes: AtomicBool::new(false),
            by_lid,
        });
        let ticks: Arc<dyn Tick> = core.clone();
        device.set_tick(Arc::downgrade(&ticks));
        // The first turn arms the neighbours' queues.
        device.wake();
        let process = Process::current();
        let life = Arc::default();
        Ok(Self { shared: Arc::new(Shared { core, dma, record, process, life }) })
    }

    /// Opens the function `vfio:ADDRESS` or `vfio-user:PATH` as a device, with the options of an
    /// [`Interface`] behind the name; `None` for other names. A function that is open in this
    /// process is not opened again.
    #[must_use]
    pub fn named(name: &str) -> Option<Result<Self, Error>> {
        if !is_function(name) {
            return None;
        }
        let (name, interface) = match Interface::of_name(name) {
            Ok(parts) => parts,
            Err(error) => return Some(Err(error)),
        };
        let (kind, place) = name.split_once(':')?;
        let named = Arc::clone(OPEN.lock().entry(name.to_owned()).or_default());
        let mut named = named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = named.shared.upgrade() {
            // Without options it is the function as it is.
            if interface != Interface::default() && interface != named.interface {
                let what = format!(
                    "{name} is open in this process with other addresses or \
                     neighbours; close it first, or repeat its options"
                );
                return Some(Err(Error::Invalid { what }));
            }
            return Some(Ok(Self { shared }));
        }
        let until = Instant::now() + CLOSING;
        while named.life.strong_count() != 0 && Instant::now() < until {
            std::thread::sleep(NAP);
        }
        let function = match kind {
            "vfio" => Vfio::open(&sysfs::root(), place)
                .and_then(|transport| Function::open(transport, Limits::default())),
            _ => VfioUser::connect(Path::new(place))
                .and_then(|transport| Function::open(transport, Limits::default())),
        };
        let made = function.and_then(|function| Self::with_interface(function, name, &interface));
        if let Ok(made) = &made {
            let life = Arc::downgrade(&made.shared.life);
            *named = Named { interface, shared: Arc::downgrade(&made.shared), life };
        }
        Some(made)
    }

    /// Returns the device of an open door by a descriptor that [`UverbsDoor::export`] returned in
    /// this process. `None` for other descriptors, and once the door is closed.
    #[must_use]
    pub fn exported(file: BorrowedFd<'_>) -> Option<Self> {
        let door = Door::<Opener>::exported(file)?;
        Some(Self { shared: Arc::clone(&door.runner().0) })
    }
}

impl DeviceSource for Hca {
    fn record(&self) -> &DeviceRecord {
        &self.shared.record
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        if !self.shared.process.is_current() {
            return Err(Errno::ENODEV);
        }
        // SAFETY: the front's objects access memory through areas and umems, until the firmware
        // answered their destruction. Objects may remain at the end of a file that the firmware
        // refused to destroy. Their areas stay allocated until the function is reset. Their umems
        // are unmapped, or all DMA is ended (`Firmware::forsake`). A failed device is removed only
        // when it makes no more DMA (`Device::is_silent`); before that each destruction fails. One
        // lock leads to the front.
        let door = unsafe { Door::open(Opener(Arc::clone(&self.shared))) }?;
        Ok(traced(&self.shared.record.name, door))
    }

    fn open_cm(&self) -> Result<Arc<dyn CmDoor>, Errno> {
        if !self.shared.process.is_current() {
            return Err(Errno::ENODEV);
        }
        self.shared.core.lock().device.hca.start_mads()?;
        Ok(Arc::new(CmFile::open(Opener(Arc::clone(&self.shared)))?))
    }

    fn addresses(&self) -> Vec<IpAddr> {
        // The lock of a forked child's copy may be held for ever.
        if !self.shared.process.is_current() {
            return Vec::new();
        }
        self.shared.core.lock().device.cm.port_address().into_iter().collect()
    }

    fn import(&self, file: BorrowedFd<'_>) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let door = Door::<Opener>::exported(file).ok_or(Errno::EINVAL)?;
        match Arc::ptr_eq(&door.runner().0, &self.shared) {
            true => Ok(door),
            false => Err(Errno::ENODEV),
        }
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        if !self.shared.process.is_current() {
            return Err(Errno::ENODEV);
        }
        let kernel = self.shared.core.lock();
        let config = &kernel.device.config;
        match port == 1 && index < config.pkey_table_len {
            true => Ok(config.pkey(index)),
            false => Err(Errno::ENOENT),
        }
    }
}

impl fmt::Debug for Hca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hca").field("record", &self.shared.record).finish_non_exhaustive()
    }
}

/// Device of a door.
struct Opener(Arc<Shared>);

impl Runner for Opener {
    type Device = Firmware;

    fn change<T>(&self, act: impl FnOnce(&mut Kernel) -> T) -> T {
        let mut kernel = self.0.core.lock();
        let done = act(&mut kernel);
        if kernel.needs_looks() {
            kernel.device.hca.wake();
        }
        done
    }

    fn look<T>(&self, act: impl FnOnce(&Kernel) -> T) -> T {
        act(&self.0.core.lock())
    }

    fn memory(&self, len: usize) -> Option<Pages> {
        self.0.dma.area(len).ok()
    }

    fn wants_rings_in_memory(&self) -> bool {
        true
    }

    // The server's processes and a poller may share a processor.
    fn wants_progress(&self) -> bool {
        self.0.dma.transport.is_software()
    }

    fn send_off(&self) {
        let core = &self.0.core;
        let until = Instant::now() + SENDING;
        loop {
            let mut kernel = core.lock();
            if !kernel.device.hca.holds_mads() || Instant::now() >= until {
                // The driver's thread asks for timers.
                return kernel.device.hca.wake();
            }
            kernel.step(core.start.elapsed(), true);
            drop(kernel);
            std::thread::sleep(NAP);
        }
    }

    fn leave(&self) {
        std::mem::forget(Arc::clone(&self.0));
    }
}
