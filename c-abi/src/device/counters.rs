//! Counters of flow rules (rdma-core `providers/mlx5/verbs.c`, `mlx5_create_counters` and the
//! functions after it). The program adds counting points one by one; the kernel gets them with the
//! first rule that uses the counters.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::counters::CountersCore;
use uverbs_kernel_abi::flow::{IB_COUNTER_BYTES, IB_COUNTER_PACKETS};
use uverbs_kernel_abi::mlx5::mlx5_ib_flow_counters_desc;

use crate::base::answer::{code, kept, null, refuse};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::sys::{
    ibv_context, ibv_counter_attach_attr, ibv_counters, ibv_counters_init_attr, ibv_flow,
};

/// Counters requested, and number of flow rules that use them.
#[derive(Default)]
struct Counted {
    points: Vec<mlx5_ib_flow_counters_desc>,
    rules: u32,
}

#[derive(Default)]
pub(crate) struct Points(Mutex<Counted>);

impl Points {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a flow rule that counts. `make` gets the counting points for the first rule only;
    /// the kernel then knows them.
    ///
    /// # Errors
    ///
    /// `EINVAL` without a counting point; the error of `make`.
    pub(crate) fn bind(
        &self,
        make: impl FnOnce(Option<&[mlx5_ib_flow_counters_desc]>) -> Result<u32, Error>,
    ) -> Result<u32, Error> {
        let mut counted = self.counted();
        if counted.rules == 0 && counted.points.is_empty() {
            return Err(Error::kernel("create_flow", Errno::EINVAL));
        }
        let flow = make((counted.rules == 0).then_some(&counted.points))?;
        counted.rules += 1;
        Ok(flow)
    }

    /// Removes a flow rule from the count.
    pub(crate) fn unbind(&self) {
        self.counted().rules -= 1;
    }
}

#[repr(C)]
pub(crate) struct Counters {
    c: ibv_counters,
    core: CountersCore,
    points: Arc<Points>,
}

impl Counters {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(counters: *const ibv_counters) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*counters.cast() }
    }

    /// Kernel handle of the counters.
    pub(crate) fn handle(&self) -> u32 {
        self.core.handle()
    }

    pub(crate) fn points(&self) -> &Arc<Points> {
        &self.points
    }
}

pub(crate) unsafe extern "C" fn create_counters(
    context: *mut ibv_context,
    attr: *const ibv_counters_init_attr,
) -> *mut ibv_counters {
    // SAFETY: by C's contract.
    let (of, attr) = unsafe { (Context::of(context), &*attr) };
    if attr.comp_mask != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    let made = CountersCore::create(Arc::clone(of.core())).map(|core| {
        Box::new(Counters { c: ibv_counters { context }, core, points: Arc::default() })
    });
    kept(of.left(), Kind::Counters, made).cast()
}

pub(crate) unsafe extern "C" fn destroy_counters(counters: *mut ibv_counters) -> c_int {
    // SAFETY: by C's contract.
    let all = unsafe { &mut *counters.cast::<Counters>() };
    let (context, done) = (all.c.context, all.core.destroy());
    if done.is_ok() {
        // SAFETY: by C's contract; the device stays open while its counters exist.
        let left = unsafe { Context::of(context) }.left();
        // SAFETY: the counters were kept as a box of this type, and are destroyed.
        drop(unsafe { left.take::<Counters>(Kind::Counters, counters.cast()) });
    }
    code(done)
}

/// Adds a counting point before the first rule; mlx5 refuses it later.
pub(crate) unsafe extern "C" fn attach_counters_point_flow(
    counters: *mut ibv_counters,
    attr: *const ibv_counter_attach_attr,
    flow: *mut ibv_flow,
) -> c_int {
    // SAFETY: by C's contract.
    let (of, attr) = unsafe { (Counters::of(counters), &*attr) };
    let known = [IB_COUNTER_PACKETS, IB_COUNTER_BYTES];
    if !flow.is_null() || attr.comp_mask != 0 || !known.contains(&attr.counter_desc) {
        return refuse(Errno::EOPNOTSUPP);
    }
    let mut counted = of.points.counted();
    if counted.rules != 0 {
        return refuse(Errno::EBUSY);
    }
    let point = mlx5_ib_flow_counters_desc { description: attr.counter_desc, index: attr.index };
    counted.points.push(point);
    0
}

pub(crate) unsafe extern "C" fn read_counters(
    counters: *mut ibv_counters,
    values: *mut u64,
    count: u32,
    flags: u32,
) -> c_int {
    // SAFETY: by C's contract.
    let of = unsafe { Counters::of(counters) };
    let values: &mut [u64] = match count {
        0 => &mut [],
        // SAFETY: C's contract: there is room for as many.
        _ => unsafe { slice::from_raw_parts_mut(values, count as usize) },
    };
    code(of.core.context().uverbs().read_counters(of.handle(), flags, values))
}
