//! A door over a backend of another crate: how it is opened, and what of the device reaches it.
#![allow(unsafe_code, reason = "speaks for the device, and stores into its doorbell pages")]

mod queues;
mod stub;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{MsgFlags, recv};
use uverbs_core::Errno;
use uverbs_core::attr::AccessFlags;
use uverbs_core::commands::Uverbs;
use uverbs_core::commands::cq::{CqCreated, CreateCq};
use uverbs_core::doors::UverbsDoor;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::{Pages, page_size};
use uverbs_front::backend::config::{Config, Gid, GidType, PortState};
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun};
use uverbs_front::backend::number::Key;
use uverbs_front::cm::{Host, Manager};
use uverbs_front::door::{Door, Runner};
use uverbs_front::uar::{DeviceUar, UarSet, UarSource};
use uverbs_front::{Device, Kernel};
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;
use uverbs_kernel_abi::event::*;
use uverbs_kernel_abi::mlx5::*;
use zerocopy::IntoBytes;

use stub::{Stub, Talk};

/// The front of a device under its lock. The test steps it; a driver would from a thread.
#[derive(Clone)]
struct Stepped(Arc<Mutex<Kernel<Stub>>>);

impl Runner for Stepped {
    type Device = Stub;

    fn change<T>(&self, act: impl FnOnce(&mut Kernel<Stub>) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    fn look<T>(&self, act: impl FnOnce(&Kernel<Stub>) -> T) -> T {
        act(&self.0.lock().unwrap())
    }

    fn leave(&self) {
        std::mem::forget(self.clone());
    }
}

struct Rig {
    runner: Stepped,
    door: Arc<Door<Stepped>>,
    uverbs: Uverbs,
    talk: Arc<Mutex<Talk>>,
}

impl Rig {
    /// An open device with a context, and doorbell pages from `source` or the front.
    fn new(source: Option<Box<dyn UarSource>>) -> Self {
        let error = HcaError::Dead;
        let (key, event, doorbells, forsaken) = (None, None, Vec::new(), Vec::new());
        let talk = Talk { error, event, doorbells, key, forsaken, queues: None };
        let talk = Arc::new(Mutex::new(talk));
        let limits = Config { max_pd: 4, max_uars: 64, log_max_cqes: 4, ..Config::default() };
        let limits = Config { first_uar: 8, gid_table_len: 1, memlock: 1 << 20, ..limits };
        let limits = Config { log_max_wqebbs: 6, log_max_rq_entries: 6, ..limits };
        let limits = Config { max_sq_desc: 64, max_rq_desc: 64, ..limits };
        let config = Config { comp_vectors: 1, ..limits };
        let (gids, routes) = (Vec::new(), Vec::new());
        let (is_routed, asks, subnet) = (false, false, None);
        let host = Host { guid: 1, gids, subnet, mtu: 3, is_routed, asks, routes };
        let mut device = Device::new(config, Manager::new(host), Stub(Arc::clone(&talk)));
        if let Some(source) = source {
            device.uars = UarSet::of_device(source, None);
        }
        let runner = Stepped(Arc::new(Mutex::new(Kernel::new(device))));
        // SAFETY: the device uses no memory, and the runner has one front.
        let door = unsafe { Door::open(runner.clone()) }.unwrap();
        let uverbs = Uverbs::new(Arc::<Door<Stepped>>::clone(&door), RDMA_DRIVER_MLX5);
        let request = mlx5_ib_alloc_ucontext_req_v2 {
            total_num_bfregs: 16,
            num_low_latency_bfregs: 4,
            max_cqe_version: 1,
            lib_caps: MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
            ..Default::default()
        };
        uverbs.get_context(request.as_bytes(), &mut [0; 72]).unwrap();
        Self { runner, door, uverbs, talk }
    }

    fn step(&self) -> bool {
        self.runner.change(|kernel| kernel.step(Duration::ZERO, false))
    }

    /// Registers `memory`, with the device's answer as errno.
    fn reg_mr(&self, pd: u32, memory: &Pages) -> Option<Errno> {
        let at = memory.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the device creates nothing.
        let made = unsafe {
            self.uverbs.reg_mr(pd, at, memory.len() as u64, at, AccessFlags::LOCAL_WRITE)
        };
        errno(made.unwrap_err())
    }

    /// Creates a completion queue in 4 KiB at `at`.
    fn create_cq(&self, at: u64, uar: u32) -> CqCreated {
        let request = mlx5_ib_create_cq {
            buf_addr: at,
            db_addr: at + 2048,
            cqe_size: 64,
            flags: MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX,
            uar_page_index: uar as u16,
            ..Default::default()
        };
        let attr = CreateCq {
            entries: 15,
            user_handle: 0,
            comp_vector: 0,
            channel: None,
            event_fd: None,
            flags: 0,
            driver: None,
        };
        // SAFETY: the device uses no memory.
        unsafe { self.uverbs.create_cq(&attr, request.as_bytes(), &mut [0; 8]) }.unwrap()
    }

    /// Allocates and maps a doorbell page: its handle, its number, and the mapping.
    fn uar(&self) -> (u32, u32, Pages) {
        self.uar_of(MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC).unwrap()
    }

    fn uar_of(&self, kind: u32) -> Result<(u32, u32, Pages), Error> {
        let (mut offset, mut len, mut number) = ([0; 8], [0; 4], [0; 4]);
        let command = self
            .uverbs
            .command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
            .handle_new(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
            .constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, kind.into())
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &mut offset)
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &mut len)
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &mut number);
        // SAFETY: the only input is a constant.
        let answer = unsafe { command.send(&*self.door, "alloc_uar") }?;
        let handle = answer.handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE).unwrap();
        let (len, offset) = (u32::from_ne_bytes(len), u64::from_ne_bytes(offset));
        let pages = self.door.mmap(len as usize, offset).unwrap();
        Ok((handle, u32::from_ne_bytes(number), pages))
    }
}

fn errno(error: Error) -> Option<Errno> {
    match error {
        Error::Kernel { errno, .. } => Some(errno),
        _ => None,
    }
}

/// Takes the next event of an async file: its object's number, and its type.
fn next_of(file: &OwnedFd) -> Option<(u64, u32)> {
    let mut event = ib_uverbs_async_event_desc::default();
    let read = recv(file.as_raw_fd(), event.as_mut_bytes(), MsgFlags::MSG_DONTWAIT);
    read.is_ok_and(|len| len > 0).then_some((event.element, event.event_type))
}

/// Type of the next event.
fn next(file: &OwnedFd) -> Option<u32> {
    next_of(file).map(|(_, event_type)| event_type)
}

fn store(page: &Pages, offset: usize, value: u64) {
    assert!(offset + 8 <= page.len());
    // SAFETY: the assertion above checked the offset.
    let word = unsafe { page.as_mut_ptr().add(offset) }.cast::<u64>();
    // SAFETY: aligned by the callers; mapped while `page` lives.
    unsafe { word.write_volatile(value.to_be()) };
}

#[test]
fn refusals_of_the_device_reach_the_door_as_errnos() {
    let rig = Rig::new(None);
    let pd = rig.uverbs.alloc_pd(&mut [0; 4]).unwrap();
    let memory = Pages::anonymous(page_size()).unwrap();
    for (error, told) in [
        (HcaError::Limit { what: "memory keys", limit: 0 }, Errno::ENOMEM),
        (HcaError::Busy { noun: Noun::Mkey, number: 1, users: 1 }, Errno::EBUSY),
        (HcaError::BadParam { what: "length", value: 0 }, Errno::EINVAL),
        (HcaError::Unsupported { what: "memory" }, Errno::EOPNOTSUPP),
        (HcaError::System { errno: Errno::ENOSPC }, Errno::ENOSPC),
        (HcaError::Dead, Errno::EIO),
    ] {
        rig.talk.lock().unwrap().error = error;
        assert_eq!(rig.reg_mr(pd, &memory), Some(told), "{error}");
        let pinned = rig.door.runner().look(|kernel| kernel.device.pinned());
        assert_eq!(pinned, 0, "{error}");
    }
}

/// A program keeps memory whose key, or whose queue, the device keeps. At the end of the file it
/// can't.
#[test]
fn memory_of_kept_objects_is_taken_back_when_the_file_is_closed() {
    let rig = Rig::new(None);
    let pd = rig.uverbs.alloc_pd(&mut [0; 4]).unwrap();
    let memory = Pages::anonymous(page_size()).unwrap();
    let at = memory.as_mut_ptr().expose_provenance() as u64;
    let key = Key::new(5, 0);
    rig.talk.lock().unwrap().key = Some(key);
    // SAFETY: the device uses no memory.
    let made =
        unsafe { rig.uverbs.reg_mr(pd, at, memory.len() as u64, at, AccessFlags::LOCAL_WRITE) };
    let made = made.unwrap();
    let (_, uar, _page) = rig.uar();
    let cq = rig.create_cq(at, uar);
    let Rig { runner, door, uverbs, talk } = rig;
    // SAFETY: the only owner.
    let refused = unsafe { uverbs.destroy_cq(cq.handle) };
    assert_eq!(refused.map(drop).map_err(errno), Err(Some(Errno::EIO)));
    // SAFETY: the only owner.
    let refused = unsafe { uverbs.dereg_mr(made.handle) };
    assert_eq!(errno(refused.unwrap_err()), Some(Errno::EIO));
    assert_eq!(talk.lock().unwrap().forsaken, []);
    drop((door, uverbs));
    let mut forsaken = talk.lock().unwrap().forsaken.clone();
    forsaken.sort_by_key(|(noun, _)| format!("{noun:?}"));
    assert_eq!(forsaken, [(Noun::Cq, key.index()), (Noun::Mkey, key.index())]);
    assert_eq!(runner.look(|kernel| kernel.device.pinned()), 0);
}

#[test]
fn a_device_that_dies_is_told_once_and_answers_eio() {
    let rig = Rig::new(None);
    let pd = rig.uverbs.alloc_pd(&mut [0; 4]).unwrap();
    let file = rig.uverbs.alloc_async_fd().unwrap();
    for _ in 0..2 {
        rig.talk.lock().unwrap().event = Some(HcaEvent::Dead);
        rig.step();
    }
    assert_eq!([next(&file), next(&file)], [Some(IB_EVENT_DEVICE_FATAL), None]);
    let memory = Pages::anonymous(page_size()).unwrap();
    assert_eq!(rig.reg_mr(pd, &memory), Some(Errno::EIO));
    // SAFETY: the only owner.
    unsafe { rig.uverbs.dealloc_pd(pd) }.unwrap();
    // SAFETY: as in `Rig::new`.
    let again = unsafe { Door::open(rig.runner.clone()) };
    assert_eq!(again.unwrap_err(), Errno::ENOENT);
}

#[test]
fn each_change_of_the_port_is_told() {
    let rig = Rig::new(None);
    let file = rig.uverbs.alloc_async_fd().unwrap();
    let up = PortState { up: true, ..PortState::default() };
    let named = PortState { lid: 5, sm_lid: 1, pkeys: vec![0xffff], ..up.clone() };
    let gids = vec![Gid { gid: [7; 16], kind: GidType::Ib, ifindex: 0 }];
    let addressed = PortState { gids, ..named.clone() };
    let down = PortState { up: false, ..addressed.clone() };
    for (state, told) in [
        (up, &[][..]),
        (named, &[IB_EVENT_LID_CHANGE, IB_EVENT_SM_CHANGE, IB_EVENT_PKEY_CHANGE]),
        (addressed, &[IB_EVENT_GID_CHANGE]),
        (down.clone(), &[IB_EVENT_PORT_ERR]),
        (down, &[]),
    ] {
        rig.runner.change(|kernel| kernel.set_port(state.clone()));
        assert!(std::iter::from_fn(|| next(&file)).eq(told.iter().copied()), "{state:?}");
    }
    rig.runner.look(|kernel| {
        assert_eq!((kernel.device.config.lid, kernel.device.is_up()), (5, false));
    });
}

#[test]
fn doorbells_in_pages_of_the_front_are_passed_on() {
    let rig = Rig::new(None);
    let (_, number, page) = rig.uar();
    store(&page, 0x20, 7);
    store(&page, 0x800, 9);
    rig.step();
    let doorbells = std::mem::take(&mut rig.talk.lock().unwrap().doorbells);
    assert_eq!(doorbells, [(number, 0x20, 7), (number, 0x800, 9)]);
}

/// Pages of a file, as of a BAR.
#[derive(Debug)]
struct Bar {
    file: Arc<OwnedFd>,
    freed: Arc<Mutex<Vec<u32>>>,
}

/// Number of the page that [`Bar`] gives.
const PAGE: u32 = 3;

impl UarSource for Bar {
    fn alloc(&mut self) -> Result<DeviceUar, HcaError> {
        let offset = u64::from(PAGE) * page_size() as u64;
        Ok(DeviceUar { index: PAGE, file: Arc::clone(&self.file), offset })
    }

    fn free(&mut self, index: u32) {
        self.freed.lock().unwrap().push(index);
    }
}

#[test]
fn a_device_with_pages_of_its_own_sees_the_stores_itself() {
    let file = Arc::new(memfd_create("bar", MFdFlags::MFD_CLOEXEC).unwrap());
    nix::unistd::ftruncate(&file, 8 * page_size() as i64).unwrap();
    let freed = Arc::default();
    let bar = Bar { file: Arc::clone(&file), freed: Arc::clone(&freed) };
    let rig = Rig::new(Some(Box::new(bar)));
    let (handle, number, page) = rig.uar();
    assert_eq!(number, PAGE);
    // Its host has no write combining.
    let refused = rig.uar_of(MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF).unwrap_err();
    assert_eq!(errno(refused), Some(Errno::EOPNOTSUPP));
    store(&page, 0x800, 0x0102_0304_0506_0708);
    rig.step();
    assert_eq!(rig.talk.lock().unwrap().doorbells, []);
    let mut seen = [0; 8];
    let at = PAGE as usize * page_size() + 0x800;
    nix::sys::uio::pread(&file, &mut seen, at as i64).unwrap();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
    let command = rig
        .uverbs
        .command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY)
        .handle_in(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, handle);
    rig.step();
    assert_eq!(*freed.lock().unwrap(), []);
    // SAFETY: the only input is a handle.
    unsafe { command.send(&*rig.door, "dealloc_uar") }.unwrap();
    rig.step();
    assert_eq!(*freed.lock().unwrap(), [], "it is mapped");
    drop(page);
    rig.step();
    assert_eq!(*freed.lock().unwrap(), [PAGE]);
}

#[test]
fn a_door_is_found_by_its_descriptor() {
    let rig = Rig::new(None);
    let file = rig.door.export().unwrap();
    let found = Door::<Stepped>::exported(file.as_fd()).unwrap();
    assert!(Arc::ptr_eq(&found, &rig.door));
    let other = memfd_create("other", MFdFlags::MFD_CLOEXEC).unwrap();
    assert!(Door::<Stepped>::exported(other.as_fd()).is_none());
}
