//! Open devices.
//!
//! # Safety
//!
//! C's pointer is to the last member of the table in the box, from which the box is found.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use uverbs::provider::AnyContext;
use uverbs_core::error::Error;
use uverbs_core::objects::clock::DeviceClock;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::provider::ContextOps;

use crate::base::file;
use crate::base::live::Left;
use crate::base::object::Names;
use crate::device::list::Device;
use crate::sys::{ibv_context, verbs_context};

/// An open device. `names` maps numbers in events to its objects.
#[repr(C)]
pub(crate) struct Context {
    c: verbs_context,
    device: Arc<Device>,
    context: uverbs::Context,
    names: Names,
    left: Left,
    /// Held while a channel's count of queues changes.
    channels: Mutex<()>,
    /// File behind `cmd_fd` if the device is not the kernel's.
    _file: Option<OwnedFd>,
    clock: OnceLock<DeviceClock>,
}

impl Context {
    /// Opens a device; `table` gives its functions.
    pub(crate) fn open(
        device: Arc<Device>,
        table: fn(&AnyContext) -> verbs_context,
    ) -> Result<Box<Self>, Error> {
        let context = device.device().open()?;
        // An embedded device gets a descriptor, by which it can be imported.
        let file = match context.door().raw_fd() {
            Some(_) => None,
            None => context.export().ok(),
        };
        Self::of_open(device, context, file, table)
    }

    /// Imports an open device by its descriptor; `table` gives its functions.
    pub(crate) fn import(
        file: OwnedFd,
        context: uverbs::Context,
        table: fn(&AnyContext) -> verbs_context,
    ) -> Result<Box<Self>, Error> {
        Self::of_open(Device::of_open(context.device()), context, Some(file), table)
    }

    fn of_open(
        device: Arc<Device>,
        context: uverbs::Context,
        file: Option<OwnedFd>,
        table: fn(&AnyContext) -> verbs_context,
    ) -> Result<Box<Self>, Error> {
        let events = context.async_events().as_raw_fd();
        file::make_blocking(events)?;
        if context.door().raw_fd().is_some() {
            // SAFETY: by C's contract no process uses an object after its destruction in either
            // process. A child frees nothing else of its parent's objects: `close` forgets it.
            unsafe { context.provider().core().uverbs().share_with_children() };
        }
        let mut c = table(context.provider());
        c.context.device = device.c();
        let own = file.as_ref().map(AsRawFd::as_raw_fd);
        c.context.cmd_fd = own.or_else(|| context.door().raw_fd()).unwrap_or(-1);
        c.context.async_fd = events;
        c.context.num_comp_vectors = context.provider().comp_vectors() as c_int;
        Ok(Box::new(Self {
            c,
            device,
            context,
            names: Names::default(),
            left: Left::default(),
            channels: Mutex::new(()),
            _file: file,
            clock: OnceLock::new(),
        }))
    }

    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(context: *const ibv_context) -> &'a Self {
        // SAFETY: by C's contract; the pointer is to the last member of a context of this library.
        unsafe { &*Self::whole(context) }
    }

    /// # Safety
    ///
    /// C's contract.
    unsafe fn whole(context: *const ibv_context) -> *mut Self {
        // SAFETY: by C's contract; the pointer is to the last member of a context of this library.
        let whole = unsafe { context.byte_sub(offset_of!(verbs_context, context)) };
        whole.cast_mut().cast()
    }

    pub(crate) fn ops(&self) -> &AnyContext {
        self.context.provider()
    }

    pub(crate) fn core(&self) -> &Arc<ContextCore> {
        self.ops().core()
    }

    /// Returns C's pointer to the context.
    pub(crate) fn c(&mut self) -> *mut ibv_context {
        &raw mut self.c.context
    }

    /// Returns the context of C's pointer.
    ///
    /// # Safety
    ///
    /// C's contract; it is the last use.
    pub(crate) unsafe fn own(context: *mut ibv_context) -> Box<Self> {
        // SAFETY: the object was kept as a box of this type.
        unsafe { Box::from_raw(Self::whole(context)) }
    }

    /// Closes the device and ends its remaining objects. In a forked child the kernel's objects
    /// stay, since the parent shares the file.
    ///
    /// # Safety
    ///
    /// C's contract: the device and its objects are not used any more.
    pub(crate) unsafe fn close(self: Box<Self>) {
        let is_own = self.context.provider().core().uverbs().is_own();
        let Some(file) = self.context.door().raw_fd().filter(|_| !is_own) else {
            // SAFETY: by the contract of `close`.
            unsafe { self.left.end() };
            return;
        };
        // An imported device has two descriptors of one file: `cmd_fd` and the door's.
        let ibv_context { cmd_fd, async_fd, .. } = self.c.context;
        std::mem::forget(self);
        for file in [Some(file), Some(async_fd), (cmd_fd != file).then_some(cmd_fd)] {
            let Some(file) = file else { continue };
            // SAFETY: the descriptor is this process's copy, and its owner was just forgotten.
            unsafe { libc::close(file) };
        }
    }

    pub(crate) fn left(&self) -> &Left {
        &self.left
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn device(&self) -> &uverbs::Device {
        self.device.device()
    }

    /// The device's clock.
    pub(crate) fn clock(&self) -> Result<&DeviceClock, Error> {
        if let Some(clock) = self.clock.get() {
            return Ok(clock);
        }
        let mapped = self.ops().map_clock()?;
        Ok(self.clock.get_or_init(|| mapped))
    }

    /// The provider's side of a ConnectX.
    pub(crate) fn mlx5(&self) -> Option<&uverbs_mlx5::Context> {
        match self.ops() {
            AnyContext::Mlx5(context) => Some(context),
            _ => None,
        }
    }

    /// True if the device has no file of the kernel: this process has it, or drives it.
    pub(crate) fn is_embedded(&self) -> bool {
        self.context.door().raw_fd().is_none()
    }

    pub(crate) fn channels(&self) -> MutexGuard<'_, ()> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
