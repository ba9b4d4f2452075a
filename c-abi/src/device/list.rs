//! Devices and their list.
//!
//! # Safety
//!
//! A list is an array that this library allocated, and each device in it a reference that it
//! counted.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_core::doors::DeviceRecord;

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
static SEEN: Mutex<Seen> = Mutex::new(Seen { last: Vec::new(), network: Vec::new() });

struct Seen {
    /// Devices of the last list, and devices that were opened without a list.
    last: Vec<Arc<Device>>,
    /// Names of devices on the network. The index of a name is its number.
    network: Vec<String>,
}

impl Seen {
    /// Returns the known object of the device, or a new one.
    fn object(&mut self, device: &uverbs::Device) -> Arc<Device> {
        let record = device.record();
        if let Some(known) = self.last.iter().find(|known| known.device.record() == record) {
            return Arc::clone(known);
        }
        let name = self.shown(record);
        Arc::new(Device::new(device.clone(), &name))
    }

    /// Name of the device for programs. Network names exceed UCX's limit of 15 bytes, so network
    /// devices are numbered.
    fn shown(&mut self, record: &DeviceRecord) -> String {
        if !record.name.contains('@') {
            return record.name.clone();
        }
        let known = self.network.iter().position(|name| *name == record.name);
        let number = known.unwrap_or_else(|| {
            self.network.push(record.name.clone());
            self.network.len() - 1
        });
        format!("softhca_{number}")
    }
}

impl Device {
    fn new(device: uverbs::Device, name: &str) -> Self {
        let record = device.record();
        let sysfs = sysfs::mount();
        // A device without a node reports its own name. The preloaded `c-abi/nodes` answers `stat`
        // and `access` for that path.
        let node = if record.uverbs_name.is_empty() { name } else { &record.uverbs_name };
        let dev_path = format!("{sysfs}/class/infiniband_verbs/{node}");
        let own = if record.uverbs_name.is_empty() { sysfs::embedded() } else { None };
        let own = own.and_then(|folder| folder.into_os_string().into_string().ok());
        let ibdev_path = own.unwrap_or_else(|| format!("{sysfs}/class/infiniband/{name}"));
        let c = ibv_device {
            _ops: [0; 2],
            node_type: record.node_type.into(),
            transport_type: device.is_iwarp().into(),
            name: text(name),
            dev_name: text(node),
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
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let object = seen.object(device);
        if !seen.last.iter().any(|one| Arc::ptr_eq(one, &object)) {
            seen.last.push(Arc::clone(&object));
        }
        object
    }

    pub(crate) fn c(self: &Arc<Self>) -> *mut ibv_device {
        Arc::as_ptr(self).cast_mut().cast()
    }

    pub(crate) fn device(&self) -> &uverbs::Device {
        &self.device
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
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = environment::devices()?;
    let now: Vec<_> = now.iter().map(|device| seen.object(device)).collect();
    seen.last.clone_from(&now);
    Ok(now)
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
