//! The kernel's part: a door that makes objects, and leaves their queues to a model of the driver.
#![allow(unsafe_code, reason = "implements a door")]

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::context::ContextCore;
use uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::ib_uverbs_modify_qp;
use zerocopy::{FromZeros, IntoBytes};

use super::Call;

/// Part of the kernel that a driver differs in: its queues.
pub trait Model: Debug + Default + Send + 'static {
    /// RDMA driver id.
    const DRIVER: u32;
    /// Completion vectors.
    const VECTORS: u32;
    /// Bytes of the driver's answer to GET_CONTEXT, for which it insists on room.
    const CONTEXT_ANSWER: usize;

    /// Fills in the limits of the device.
    fn device(&self, device: &mut ib_uverbs_ex_query_device_resp);

    /// Answers the driver's part of GET_CONTEXT and of commands of the write layout, which are told
    /// by their number.
    fn answer(&self, call: &Call, number: Option<u32>) {
        let _ = (call, number);
    }

    /// Makes the ring of a completion queue, and answers where it is.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn create_cq(&mut self, call: &Call, entries: u32) -> Result<(), Errno>;

    /// Makes the rings of a queue pair with the sizes of `struct ib_uverbs_qp_cap`, and answers
    /// where they are.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn create_qp(&mut self, call: &Call, cap: [u32; 5]) -> Result<(), Errno>;

    /// Makes the ring of a shared receive queue, and answers where it is.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn create_srq(&mut self, call: &Call, max_wr: u32, max_sge: u32) -> Result<(), Errno>;

    /// Makes another ring of a completion queue, and answers where it is.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn resize_cq(&mut self, call: &Call, entries: u32) -> Result<(), Errno> {
        panic!("RESIZE_CQ to {entries} entries of {call:?}");
    }

    /// Changes a shared receive queue by the fields of `struct ib_uverbs_modify_srq`.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn modify_srq(&mut self, call: &Call, fields: [u32; 4]) -> Result<(), Errno> {
        panic!("MODIFY_SRQ {fields:?} of {call:?}");
    }

    /// Takes the work requests of a POST_SEND, and answers which one it refuses.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn post_send(&mut self, call: &Call) -> Result<(), Errno> {
        panic!("work requests in {call:?}");
    }

    /// Maps a ring.
    ///
    /// # Errors
    ///
    /// The errno of `mmap`.
    fn map(&self, len: usize, offset: u64) -> Result<Pages, Errno>;
}

/// Record of the commands, answers to come, and the driver's queues, which it derefs to.
#[derive(Debug, Default)]
pub struct State<M> {
    /// Number of doorbells.
    pub kicks: u32,
    /// Errors that the next doorbells are answered with, in turn; then success.
    pub kick_answers: Vec<Errno>,
    /// States that MODIFY_QP asked for.
    pub states: Vec<u8>,
    /// Destroyed objects: object, handle.
    pub destroyed: Vec<(u16, u64)>,
    /// Registered memory: address, bytes of the driver's request and of room for its answer.
    pub registered: Vec<(u64, usize, usize)>,
    /// Mappings are refused.
    pub refuse_mmap: bool,
    handles: u64,
    model: M,
}

impl<M> Deref for State<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}

impl<M> DerefMut for State<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.model
    }
}

/// The kernel, as a door.
#[derive(Debug, Default)]
pub struct Kernel<M>(Mutex<State<M>>);

impl<M: Model> Kernel<M> {
    /// An open device of this kernel.
    #[must_use]
    pub fn core(self: &Arc<Self>) -> Arc<ContextCore> {
        ContextCore::new(Uverbs::new(Arc::clone(self) as _, M::DRIVER))
    }

    /// State, also after a test panicked: its objects are still to be destroyed.
    pub fn state(&self) -> MutexGuard<'_, State<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Model> State<M> {
    /// Answers a command of the write layout, by its number in `enum ib_uverbs_write_cmds`.
    fn write(&mut self, call: &Call) -> Result<(), Errno> {
        let [number] = call.words(UVERBS_ATTR_WRITE_CMD);
        self.model.answer(call, Some(number & 0xff));
        match number & 0xff {
            1 => {
                let mut device = ib_uverbs_ex_query_device_resp::new_zeroed();
                self.model.device(&mut device);
                call.answer(UVERBS_ATTR_CORE_OUT, device.as_bytes());
            }
            3 => call.answer(UVERBS_ATTR_CORE_OUT, &1u32.to_ne_bytes()),
            5 => call.answer(UVERBS_ATTR_CORE_OUT, &9u32.to_ne_bytes()),
            9 => {
                let start = call.read(UVERBS_ATTR_CORE_IN)[8..16].try_into().expect("eight bytes");
                let len = |id| call.find(id).map_or(0, |attr| attr.len.into());
                let (uhw_in, uhw_out) = (len(UVERBS_ATTR_UHW_IN), len(UVERBS_ATTR_UHW_OUT));
                self.registered.push((u64::from_ne_bytes(start), uhw_in, uhw_out));
                // Handle and keys.
                call.answer(UVERBS_ATTR_CORE_OUT, [7u32, 0x1100, 0x1100].as_bytes());
            }
            19 => {
                let [_, _, _, entries] = call.words(UVERBS_ATTR_CORE_IN);
                self.model.resize_cq(call, entries)?;
            }
            26 => {
                let state = std::mem::offset_of!(ib_uverbs_modify_qp, qp_state);
                self.states.push(call.read(UVERBS_ATTR_CORE_IN)[state]);
            }
            28 => {
                let [_, _, _, wrs, sges, size] = call.words(UVERBS_ATTR_CORE_IN);
                // A size that the kernel accepts.
                assert!(size >= 56);
                self.kicks += 1;
                if wrs != 0 {
                    return self.model.post_send(call);
                }
                assert_eq!(sges, 0);
                if !self.kick_answers.is_empty() {
                    return Err(self.kick_answers.remove(0));
                }
            }
            33 => self.model.modify_srq(call, call.words(UVERBS_ATTR_CORE_IN))?,
            other => panic!("write command {other}"),
        }
        Ok(())
    }

    /// Answers a command. Returns the attribute for the handle of a new object.
    fn command(&mut self, call: &Call) -> Result<Option<u16>, Errno> {
        let (object, method) = (call.header.object_id, call.header.method_id);
        let mut destroy = |id| {
            let handle = call.find(id).expect("a handle").data;
            self.destroyed.push((object, handle));
        };
        match (object, method) {
            (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT) => {
                self.model.answer(call, None);
                let vectors = M::VECTORS.to_ne_bytes();
                call.answer(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors);
                if M::CONTEXT_ANSWER != 0 {
                    call.answer(UVERBS_ATTR_UHW_OUT, &vec![0; M::CONTEXT_ANSWER]);
                }
            }
            (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) => self.write(call)?,
            (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE) => {
                let [entries] = call.words(UVERBS_ATTR_CREATE_CQ_CQE);
                self.model.create_cq(call, entries)?;
                return Ok(Some(UVERBS_ATTR_CREATE_CQ_HANDLE));
            }
            (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE) => {
                self.model.create_qp(call, call.words(UVERBS_ATTR_CREATE_QP_CAP))?;
                call.answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &0x11u32.to_ne_bytes());
                return Ok(Some(UVERBS_ATTR_CREATE_QP_HANDLE));
            }
            (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE) => {
                let [max_wr] = call.words(UVERBS_ATTR_CREATE_SRQ_MAX_WR);
                let [max_sge] = call.words(UVERBS_ATTR_CREATE_SRQ_MAX_SGE);
                self.model.create_srq(call, max_wr, max_sge)?;
                call.answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &max_wr.to_ne_bytes());
                call.answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &max_sge.to_ne_bytes());
                return Ok(Some(UVERBS_ATTR_CREATE_SRQ_HANDLE));
            }
            (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY) => destroy(UVERBS_ATTR_DESTROY_CQ_HANDLE),
            (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY) => destroy(UVERBS_ATTR_DESTROY_QP_HANDLE),
            (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY) => {
                destroy(UVERBS_ATTR_DESTROY_SRQ_HANDLE);
            }
            _ => {}
        }
        Ok(None)
    }
}

// SAFETY: no device is behind it, and mappings are of files that are as long as they say.
unsafe impl<M: Model> UverbsDoor for Kernel<M> {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: the command's buffers are valid during the call, says the caller.
        let call = unsafe { Call::new(command) }.ok_or(Errno::EINVAL)?;
        assert_eq!(call.header.driver_id, M::DRIVER);
        let mut state = self.state();
        if let Some(id) = state.command(&call)? {
            state.handles += 1;
            command[call.data_word(id)] = state.handles;
        }
        Ok(())
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let state = self.state();
        if state.refuse_mmap { Err(Errno::EAGAIN) } else { state.model.map(len, offset) }
    }
}
