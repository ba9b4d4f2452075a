//! Devices and their list.
//!
//! # Safety
//!
//! A list is an array that this library allocated, and each device in it a reference that it
//! counted.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs::softhca::SoftHca;
use uverbs_core::discovery::function::is_function;
use uverbs_core::doors::{DeviceRecord, DeviceSource};
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;

use crate::base::answer::null;
use crate::base::barrier;
use crate::base::environment;
use crate::device::sysfs;
use crate::sys::ibv_device;

/// A device as programs see it, referenced by device lists and open devices.
#[repr(C)]
pub(crate) struct Device {
    c: ibv_device,
    /// Table of driver operations. C's providers compare it with theirs; 0 matches none.
    _operations: usize,
    device: uverbs::Device,
}

// SAFETY: C's struct is not changed after its creation, and its pointers are unused.
unsafe impl Send for Device {}
// SAFETY: C's struct is not changed after its creation, and its pointers are unused.
unsafe impl Sync for Device {}

/// Known devices. A device keeps its address from one list to the next, and its name for the life
/// of the process.
static SEEN: Mutex<Seen> =
    Mutex::new(Seen { last: vec![], network: vec![], functions: vec![], nodes: vec![] });

thread_local! {
    /// The thread is in one of the functions below. Files that they read are the kernel's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function on the known devices.
fn with_seen<T>(run: impl FnOnce(&mut Seen) -> T) -> T {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let outer = INSIDE.replace(true);
    let result = run(&mut seen);
    INSIDE.set(outer);
    result
}

struct Seen {
    /// Devices of the last list, and devices that were opened without a list.
    last: Vec<Arc<Device>>,
    /// Names of devices on the network. The index of a name is its number.
    network: Vec<String>,
    /// Names of functions without a kernel driver. The index of a name is its number.
    functions: Vec<String>,
    /// Names of devices without a node. The index of a name counts the numbers without a node.
    nodes: Vec<String>,
}

impl Seen {
    /// Returns the known object of the device, or a new one.
    fn object(&mut self, device: &uverbs::Device) -> Arc<Device> {
        let record = device.record();
        if let Some(known) = self.last.iter().find(|known| known.device.record() == record) {
            return Arc::clone(known);
        }
        let name = self.shown(record);
        let number = record.uverbs_name.is_empty().then(|| self.number(record));
        Arc::new(Device::new(device.clone(), &name, number))
    }

    /// Number of a device without a node, which no node of the kernel has.
    fn number(&mut self, record: &DeviceRecord) -> usize {
        let at = index(&mut self.nodes, &record.name);
        let free = |number: &usize| !sysfs::is_node(*number);
        (0..).filter(free).nth(at).unwrap_or(at)
    }

    /// Name of the device for programs. Addresses and paths exceed UCX's limit of 15 bytes, so
    /// devices on the network and functions are numbered.
    fn shown(&mut self, record: &DeviceRecord) -> String {
        if is_function(&record.name) {
            return format!("vfio_{}", index(&mut self.functions, &record.name));
        }
        match record.name.contains('@') {
            true => format!("softhca_{}", index(&mut self.network, &record.name)),
            false => record.name.clone(),
        }
    }
}

/// Index of a name, which is added unless it is there.
fn index(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

impl Device {
    fn new(device: uverbs::Device, name: &str, number: Option<usize>) -> Self {
        let record = device.record();
        let sysfs = sysfs::mount();
        let node = number.map_or(record.uverbs_name.clone(), |number| format!("uverbs{number}"));
        let classes = |root: &str| {
            let class = |kind, name: &str| format!("{root}/class/{kind}/{name}");
            [class("infiniband", name), class("infiniband_verbs", &node)]
        };
        let [given, dev_path] = classes(sysfs);
        // A tree of the user's (`SYSFS_PATH`) that has the device comes first.
        let unshown = number.filter(|_| !Path::new(&given).is_dir());
        let own = unshown.zip(environment::software(record));
        let own = own.and_then(|(number, hca)| sysfs::publish(name, number, &hca));
        let stand_in = unshown.filter(|_| record.driver_id == RDMA_DRIVER_MLX5);
        let [ibdev_path, dev_path] = match (own, stand_in.and_then(|_| sysfs::embedded())) {
            (Some(root), _) => classes(&root),
            (None, Some(stand_in)) => [stand_in, dev_path],
            (None, None) => [given, dev_path],
        };
        let c = ibv_device {
            _ops: [0; 2],
            node_type: record.node_type.into(),
            transport_type: transport(&device),
            name: text(name),
            dev_name: text(&node),
            dev_path: text(&dev_path),
            ibdev_path: text(&ibdev_path),
        };
        Self { c, _operations: 0, device }
    }

    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(device: *const ibv_device) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*device.cast() }
    }

    /// Adds a reference to a device that C holds.
    ///
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn hold(device: *const ibv_device) -> Arc<Self> {
        let device: *const Self = device.cast();
        // SAFETY: C has it from a list, which holds a reference.
        unsafe { Arc::increment_strong_count(device) };
        // SAFETY: takes over the reference that was just added.
        unsafe { Arc::from_raw(device) }
    }

    /// Returns the object of an open device, even if the lists do not show it.
    pub(crate) fn of_open(device: &uverbs::Device) -> Arc<Self> {
        with_seen(|seen| {
            let object = seen.object(device);
            if !seen.last.iter().any(|one| Arc::ptr_eq(one, &object)) {
                seen.last.push(Arc::clone(&object));
            }
            object
        })
    }

    pub(crate) fn c(self: &Arc<Self>) -> *mut ibv_device {
        Arc::as_ptr(self).cast_mut().cast()
    }

    pub(crate) fn device(&self) -> &uverbs::Device {
        &self.device
    }
}

/// `RDMA_NODE_UNSPECIFIED` and `IBV_TRANSPORT_UNSPECIFIED`: transports of the vendor.
const NODE_UNSPECIFIED: u8 = 7;
const TRANSPORT_UNSPECIFIED: c_int = 4;

/// `IBV_TRANSPORT_*` of a device (rdma-core `init.c:decode_knode_type`).
fn transport(device: &uverbs::Device) -> c_int {
    match device.record().node_type {
        NODE_UNSPECIFIED => TRANSPORT_UNSPECIFIED,
        _ => device.is_iwarp().into(),
    }
}

/// Copies a string to a C array, truncated if too long.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut room = [0; N];
    for (to, from) in room[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    room
}

/// Returns the present devices; known devices keep their objects.
pub(crate) fn devices() -> Result<Vec<Arc<Device>>, uverbs::Error> {
    with_seen(|seen| {
        let now = environment::devices()?;
        let now: Vec<_> = now.iter().map(|device| seen.object(device)).collect();
        seen.last.clone_from(&now);
        Ok(now)
    })
}

/// Writes the files of all named devices, unless they are written. For programs that read sysfs
/// without a list of devices.
pub(crate) fn publish() -> Option<&'static CStr> {
    if INSIDE.get() {
        return None;
    }
    with_seen(|seen| {
        let mut others = Vec::new();
        for name in environment::names() {
            if sysfs::has(&name) {
                continue;
            }
            let Some(described) = SoftHca::described(&name) else {
                others.push(name);
                continue;
            };
            let Ok(hca) = described else { continue };
            let (shown, number) = (seen.shown(hca.record()), seen.number(hca.record()));
            sysfs::publish(&shown, number, &hca)?;
            sysfs::remember(name);
        }
        // Without software HCAs the kernel's files are right.
        let root = sysfs::root()?;
        for name in others {
            // A function has no files, and to open one would reset it.
            if is_function(&name) {
                continue;
            }
            // A name such as `near:eth0` stands for a device of another name.
            if let Ok(device) = uverbs::device(&name)
                && sysfs::show(device.name())
            {
                sysfs::remember(name);
            }
        }
        Some(root)
    })
}

/// Writes a counter of the known software HCAs again.
pub(crate) fn count(counter: &sysfs::Counter<'_>) {
    if INSIDE.get() {
        return;
    }
    with_seen(|seen| {
        for device in &seen.last {
            if let Some(hca) = environment::software(device.device.record()) {
                // SAFETY: the name of a device, which this object has.
                let name = unsafe { CStr::from_ptr((&raw const device.c.name).cast()) };
                sysfs::count(&name.to_string_lossy(), &hca, counter);
            }
        }
    });
}

/// Forgets devices that the program neither listed nor opened. Ends software HCAs among them.
pub(crate) fn forget_unused() {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.last.retain(|device| Arc::strong_count(device) > 1);
}

pub(crate) unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    // Registers for the barrier before the program and the device start threads: it is fast now.
    barrier::is_there();
    let devices = match devices() {
        Ok(devices) => devices,
        Err(error) => {
            // SAFETY: by C's contract; it may be null.
            if let Some(count) = unsafe { count.as_mut() } {
                *count = 0;
            }
            return null(error.to_errno());
        }
    };
    // SAFETY: by C's contract; it may be null.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = devices.len() as c_int;
    }
    let pointers = devices.into_iter().map(|device| Arc::into_raw(device).cast_mut().cast());
    let list: Box<[*mut ibv_device]> = pointers.chain([null_mut()]).collect();
    Box::into_raw(list).cast()
}

pub(crate) unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    let mut len = 0;
    // SAFETY: C's contract: a list that `ibv_get_device_list` returned, which ends with null.
    while !unsafe { *list.add(len) }.is_null() {
        // SAFETY: by C's contract; the reference is the list's.
        drop(unsafe { Arc::<Device>::from_raw((*list.add(len)).cast()) });
        len += 1;
    }
    let list = std::ptr::slice_from_raw_parts_mut(list, len + 1);
    // SAFETY: the list was allocated as a boxed slice of this length.
    drop(unsafe { Box::from_raw(list) });
}

pub(crate) unsafe extern "C" fn get_device_name(device: *const ibv_device) -> *const c_char {
    // SAFETY: by C's contract.
    unsafe { (&raw const (*device).name).cast() }
}

pub(crate) unsafe extern "C" fn get_device_guid(device: *const ibv_device) -> u64 {
    // SAFETY: by C's contract.
    unsafe { Device::of(device) }.device.node_guid().to_be()
}

pub(crate) unsafe extern "C" fn get_device_index(device: *const ibv_device) -> c_int {
    // SAFETY: by C's contract.
    let index = unsafe { Device::of(device) }.device.record().index;
    index.map_or(-1, |index| index as c_int)
}
