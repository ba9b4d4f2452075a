//! Interface between a front and the device behind it.
//!
//! A front parses a program's commands, keeps handles and states, and answers as ib_uverbs and
//! mlx5_ib do. [`Backend`] is what remains for the device: creation, change and destruction of its
//! objects, its events, and its management datagrams. [`Steering`] is the part for Ethernet frames
//! and multicast groups. The data path passes neither.
//!
//! Methods that have a body are for devices whose work, wire or datagrams pass the front. A device
//! without them keeps the bodies.
//!
//! The front serializes all calls of a device. It passes regions of the process's memory that it
//! has checked, and creates nothing over an object that does not exist.

use std::fmt;
use std::time::Duration;

pub mod address;
pub mod command;
pub mod config;
pub mod context;
pub mod device_memory;
pub mod error;
pub mod indirect;
pub mod mgid;
pub mod network;
pub mod number;
pub mod psn;
pub mod region;
pub mod steering;

use self::address::Address;
use self::context::{
    CqContext, DctContext, MkeyContext, Moderation, QpAttrs, QpContext, QpState, QpTransition,
    SrqContext,
};
use self::device_memory::DeviceMemory;
use self::error::{HcaError, HcaEvent, Noun};
use self::number::{Cqn, Key, Qpn, Queue, Srqn, UarNumber};
use self::region::Region;
use self::steering::Steering;

/// A received management datagram of queue pair 1.
#[derive(Clone, Debug)]
pub struct Mad {
    /// Sender.
    pub from: Address,
    /// Address to which it was sent.
    pub to: Address,
    /// The datagram, without headers.
    pub bytes: Vec<u8>,
}

/// A device. A refused call changes no object, but posted work may have been sent. A destroyed
/// object uses no memory when the call returns.
pub trait Backend: Send + fmt::Debug {
    /// Creates a memory key (CREATE_MKEY).
    fn create_mkey(&mut self, context: MkeyContext) -> Result<Key, HcaError>;
    /// Gives a key another context. Returns the key, or another in its place.
    fn modify_mkey(&mut self, key: Key, context: MkeyContext) -> Result<Key, HcaError>;
    /// Destroys a key (DESTROY_MKEY).
    fn destroy_mkey(&mut self, key: Key) -> Result<(), HcaError>;
    /// Ends the device's access to the memory of an object that it refused to destroy: of a region
    /// by the index of its key, of a queue's rings. The program frees the memory. Later accesses of
    /// the device fail.
    fn forsake(&mut self, noun: Noun, number: u32) {
        let _ = (noun, number);
    }
    /// Number of memory windows that are bound to a key.
    fn windows_on(&self, key: Key) -> usize;

    /// Allocates `len` bytes of the device's own memory, at a multiple of 64 << `log_align`
    /// (ALLOC_MEMIC). `None`: it has none, and the front has memory of the process in its place.
    fn alloc_device_memory(
        &mut self,
        len: u64,
        log_align: u32,
    ) -> Result<Option<DeviceMemory>, HcaError> {
        let _ = (len, log_align);
        Ok(None)
    }
    /// Adds an operation of [`Config::memic_operations`](config::Config::memic_operations) to
    /// device memory of `len` bytes at `start` (MODIFY_MEMIC). Returns its addresses, one for each
    /// byte.
    fn add_operation(&mut self, start: u64, len: u64, op: u8) -> Result<DeviceMemory, HcaError> {
        let _ = (start, len, op);
        Err(HcaError::Unsupported { what: "operations on device memory" })
    }
    /// Removes an operation with addresses from `addresses` on, before its memory is freed.
    fn remove_operation(&mut self, start: u64, op: u8, addresses: u64) {
        let _ = (start, op, addresses);
    }
    /// Frees device memory by its start and length (DEALLOC_MEMIC).
    fn free_device_memory(&mut self, start: u64, len: u64) {
        let _ = (start, len);
    }

    /// Creates a completion queue (CREATE_CQ).
    fn create_cq(&mut self, context: CqContext) -> Result<Cqn, HcaError>;
    /// Moves a CQ to another ring (MODIFY_CQ).
    fn resize_cq(
        &mut self,
        cqn: Cqn,
        region: Region,
        log_entries: u8,
        cqe_size: u32,
    ) -> Result<(), HcaError>;
    /// Sets the event moderation of a CQ (MODIFY_CQ).
    fn moderate_cq(&mut self, cqn: Cqn, moderation: Moderation) -> Result<(), HcaError>;
    /// Bytes of a CQE.
    fn cqe_size(&self, cqn: Cqn) -> Result<u32, HcaError>;
    /// Destroys a CQ (DESTROY_CQ).
    fn destroy_cq(&mut self, cqn: Cqn) -> Result<(), HcaError>;

    /// Creates a queue pair in RESET (CREATE_QP), or a raw packet queue.
    fn create_qp(&mut self, context: QpContext) -> Result<Queue, HcaError>;
    /// Moves a queue along one edge of the state machine of queue pairs. `attrs` is the whole set.
    fn modify_qp(
        &mut self,
        queue: Queue,
        to: QpTransition,
        attrs: &QpAttrs,
    ) -> Result<(), HcaError>;
    /// State and attributes of a queue (QUERY_QP).
    fn query_qp(&self, queue: Queue) -> Result<(QpState, QpAttrs), HcaError>;
    /// ECE options that firmware answered to the last command about a queue pair or target. `None`:
    /// those that [`Config::ece`](config::Config::ece) and the program have in common.
    fn ece(&self, queue: Queue) -> Option<u32> {
        let _ = queue;
        None
    }
    /// Destroys a queue in any state (DESTROY_QP).
    fn destroy_qp(&mut self, queue: Queue) -> Result<(), HcaError>;

    /// Creates a shared receive queue (CREATE_RMP, CREATE_XRC_SRQ, CREATE_XRQ).
    fn create_srq(&mut self, context: SrqContext) -> Result<Srqn, HcaError>;
    /// Sets the limit of an SRQ; 0 disarms it.
    fn modify_srq(&mut self, srqn: Srqn, limit: u16) -> Result<(), HcaError>;
    /// Limit of an SRQ; 0 if it is not armed.
    fn query_srq(&self, srqn: Srqn) -> Result<u16, HcaError>;
    /// Destroys an SRQ.
    fn destroy_srq(&mut self, srqn: Srqn) -> Result<(), HcaError>;

    /// Creates a target of dynamic connections (CREATE_DCT).
    fn create_dct(&mut self, context: DctContext) -> Result<Qpn, HcaError>;
    /// Drains and destroys a target (DRAIN_DCT, DESTROY_DCT).
    fn abandon_dct(&mut self, dctn: Qpn) -> Result<(), HcaError>;

    /// Executes a program's firmware command (DEVX). The answer has status and syndrome; `output`
    /// is zeroed.
    fn command(&mut self, input: &[u8], output: &mut [u8]);

    /// Ethernet frames and multicast groups.
    fn steering(&mut self) -> &mut dyn Steering;

    /// Passes on a store into a doorbell page of the front.
    fn doorbell(&mut self, uar: UarNumber, offset: u32, value: u64) {
        let _ = (uar, offset, value);
    }
    /// Takes the oldest event.
    fn next_event(&mut self) -> Option<HcaEvent>;

    /// GID that packets to or from `gid` carry.
    fn resolve(&self, gid: [u8; 16]) -> [u8; 16] {
        gid
    }
    /// MAC address of a peer on RoCE.
    ///
    /// # Errors
    ///
    /// [`HcaError::System`]: `ENETUNREACH` outside of the port's networks; `EHOSTUNREACH` if the
    /// port can't ask; `ENOBUFS` while too many peers are asked; `EINPROGRESS` while the device
    /// asks the peer, which ends within seconds (call again), then `ETIMEDOUT` for a while.
    fn mac(&mut self, gid: &[u8; 16]) -> Result<[u8; 6], HcaError>;
    /// Takes a management datagram that arrived for queue pair 1.
    fn next_mad(&mut self) -> Option<Mad> {
        None
    }
    /// Takes the address of a device that has left, after its last datagram.
    fn next_left(&mut self) -> Option<Address> {
        None
    }
    /// Sends a management datagram to another port's queue pair 1.
    fn send_mad(&mut self, src: Address, dst: Address, bytes: &[u8]) {
        let _ = (src, dst, bytes);
    }
    /// Hands all management datagrams to the wire.
    fn flush_mads(&mut self) {}

    /// Tells whose thread runs the next slices: a polling client's (`true`), or the device's.
    fn set_client_slice(&mut self, is_client_slice: bool) {
        let _ = is_client_slice;
    }

    /// Runs one slice of the device's work. True if there was some.
    fn step(&mut self, now: Duration) -> bool {
        let _ = now;
        false
    }
    /// True if work may come without notice.
    fn needs_looks(&self) -> bool {
        false
    }
    /// Time of the next timer.
    fn next_deadline(&self) -> Option<Duration> {
        None
    }
    /// Leaves the wire, when the device is removed.
    fn leave(&mut self) {}

    /// CQEs written to a CQ, modulo 2^32; 0 of an unknown one. For rings of rdmavt.
    fn produced(&self, cqn: Cqn) -> u32 {
        let _ = cqn;
        0
    }
    /// True if a send may use `len` bytes at `addr` under `key`: read them, or write an answer to
    /// them. For rings of rdmavt.
    fn may_send(&self, qpn: Qpn, key: Key, range: (u64, u64), writes: bool) -> bool {
        let _ = (qpn, key, range, writes);
        false
    }
}
