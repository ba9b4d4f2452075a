//! The device of the front: implements its [`Backend`] by firmware commands.
//!
//! | file | content |
//! |---|---|
//! | `memory`, `umem`, `memic` | page lists of rings; memory of programs; the device's own |
//! | `domain` | numbers of PDs and XRC domains |
//! | `mkey`, `cq`, `qp`, `srq`, `dct` | objects; `modify`: transitions of a queue pair |
//! | `raw`, `tirs`, `tables` | raw packet queues; TIRs and RQ tables; flow tables, counters |
//! | `steering` | steering and multicast groups |
//! | `config`, `roce`, `vport` | limits and port, from capabilities; GIDs; MAC addresses |
//! | `event` | events of the device |
//! | `mads`, `neighbours` | management datagrams; MAC addresses of peers |
//!
//! The front frees memory of an object after the firmware answered its destruction. A refused
//! destruction reaches the program, which keeps the memory. When the program's file is closed,
//! areas stay allocated, and other memory is taken from the device: its access is a fault.

mod config;
mod cq;
mod dct;
mod domain;
mod event;
mod mads;
mod memic;
mod memory;
mod mkey;
mod modify;
mod neighbours;
mod qp;
mod raw;
mod roce;
mod srq;
mod steering;
mod tables;
mod tirs;
mod umem;
mod vport;

use std::collections::BTreeMap;
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};

use self::cq::Cq;
use self::domain::Domains;
use self::event::Events;
use self::mads::Mads;
use self::memic::Memic;
use self::neighbours::NeighbourQueues;
use self::qp::Qp;
use self::srq::Srq;
use self::tables::Tables;
use self::tirs::Tirs;
use self::umem::UmemTable;
use self::vport::Groups;
use crate::command::SHORT;
use crate::error::Error;
use crate::function::Function;
use crate::objects::prepared::Prepared;
use crate::services::neighbours::Neighbours;
use uverbs_front::backend::address::Address;
use uverbs_front::backend::config::Config;
use uverbs_front::backend::context::{
    CqContext, DctContext, MkeyContext, Moderation, QpAttrs, QpContext, QpState, QpTransition,
    SrqContext,
};
use uverbs_front::backend::device_memory::DeviceMemory;
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun};
use uverbs_front::backend::number::{Cqn, Key, Qpn, Queue, Srqn, UarNumber};
use uverbs_front::backend::region::Region;
use uverbs_front::backend::steering::Steering;
use uverbs_front::backend::{Backend, Mad};

pub(crate) use self::config::{ByLid, Start, start};

/// A function as the front's device.
#[derive(Debug)]
pub(crate) struct Firmware {
    function: Function,
    domains: Domains,
    /// Low byte of the next key.
    variant: u8,
    cqs: BTreeMap<Cqn, Cq>,
    qps: BTreeMap<Queue, Qp>,
    srqs: BTreeMap<Srqn, Srq>,
    /// ECE options that the firmware answered about queue pairs and targets.
    eces: BTreeMap<Queue, u32>,
    umems: UmemTable,
    memic: Memic,
    tirs: Tirs,
    tables: Tables,
    events: Events,
    mads: Mads,
    /// `None` on InfiniBand.
    neighbours: Option<Neighbours>,
    neighbour_queues: NeighbourQueues,
    groups: Groups,
}

impl Firmware {
    /// `config` has the addresses of the port, `neighbours` its peers on Ethernet.
    pub(crate) fn new(function: Function, config: &Config, neighbours: Option<Neighbours>) -> Self {
        let lid = (!config.is_ethernet()).then_some(config.lid);
        Self {
            mads: Mads::new(lid, config.gids.clone()),
            function,
            domains: Domains::default(),
            variant: 0,
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            srqs: BTreeMap::new(),
            eces: BTreeMap::new(),
            umems: UmemTable::default(),
            memic: Memic::default(),
            tirs: Tirs::default(),
            tables: Tables::default(),
            events: Events::default(),
            neighbours,
            neighbour_queues: NeighbourQueues::default(),
            groups: Groups::default(),
        }
    }

    /// UAR of a queue: the driver's own if the queue has none.
    fn uar(&self, asked: UarNumber) -> u32 {
        match asked {
            UarNumber(0) => self.function.uar(),
            UarNumber(number) => number,
        }
    }

    /// Wakes the driver's thread.
    pub(crate) fn wake(&self) {
        self.function.device().wake();
    }

    /// Closes the function.
    pub(crate) fn close(&mut self) {
        self.end_mads();
        self.end_neighbour_queues();
        let _ = self.function.shut();
    }

    /// Runs a command about an object, and returns its output.
    fn run(
        &self,
        opcode: CmdOpcode,
        op_mod: u16,
        input: &[u8],
        outlen: usize,
        object: (Noun, u32),
    ) -> Result<Vec<u8>, HcaError> {
        let answer = self.function.command(opcode, op_mod, input, outlen);
        answer.map_err(|error| self.refusal(&error, object))
    }

    /// As [`Firmware::run`].
    fn run_prepared(&self, command: &Prepared, object: (Noun, u32)) -> Result<Vec<u8>, HcaError> {
        command.run(&self.function).map_err(|error| self.refusal(&error, object))
    }

    /// Destroys an object by its number. The front can't keep its memory if the firmware refuses
    /// while a program's file is closed, so that memory of programs is kept here then.
    fn destroy(
        &self,
        opcode: CmdOpcode,
        field: Field,
        object: (Noun, u32),
    ) -> Result<(), HcaError> {
        let mut input = [0; SHORT];
        field.set(&mut input, object.1.into());
        let done = self.run(opcode, 0, &input, SHORT, object);
        done.inspect_err(|_| self.function.dma().keep_areas()).map(drop)
    }

    /// Runs a command that creates an object, whose number is not known yet.
    fn create(
        &self,
        opcode: CmdOpcode,
        input: &[u8],
        outlen: usize,
        noun: Noun,
    ) -> Result<Vec<u8>, HcaError> {
        self.run(opcode, 0, input, outlen, (noun, 0))
    }

    /// Error of the front for a failed command or mapping. A call of the system that fails is no
    /// failure of the device.
    fn refusal(&self, error: &Error, (noun, number): (Noun, u32)) -> HcaError {
        if self.function.failure().is_some() || self.function.device().transport().is_gone() {
            return HcaError::Dead;
        }
        match *error {
            Error::Refused { status: CmdStatus::LIM_ERR | CmdStatus::NO_RES_ERR, .. } => {
                HcaError::Limit { what: "objects or memory", limit: 0 }
            }
            Error::Refused { status: CmdStatus::RES_BUSY, .. } => {
                HcaError::Busy { noun, number, users: 1 }
            }
            Error::Refused { status: CmdStatus::BAD_RES_ERR, .. } => {
                HcaError::BadHandle { noun, number }
            }
            Error::Refused { status: CmdStatus::BAD_RES_STATE_ERR, .. } => {
                HcaError::ObjectState { noun, number }
            }
            Error::Refused { syndrome, .. } => {
                HcaError::BadParam { what: "syndrome of the firmware", value: syndrome.into() }
            }
            Error::Limit { what, limit, .. } => HcaError::Limit { what, limit },
            // To the front it would mean that a peer is asked.
            Error::System { errno: Errno::EINPROGRESS, .. } => {
                HcaError::System { errno: Errno::EIO }
            }
            Error::System { errno, .. } => HcaError::System { errno },
            Error::Unsupported { .. } => unsupported("an operation of the transport"),
            _ => HcaError::Dead,
        }
    }
}

/// Error of an operation that the device can't do here.
fn unsupported(what: &'static str) -> HcaError {
    HcaError::Unsupported { what }
}

impl Backend for Firmware {
    fn create_mkey(&mut self, context: MkeyContext) -> Result<Key, HcaError> {
        self.make_mkey(&context)
    }

    fn modify_mkey(&mut self, key: Key, context: MkeyContext) -> Result<Key, HcaError> {
        self.replace_mkey(key, &context)
    }

    fn destroy_mkey(&mut self, key: Key) -> Result<(), HcaError> {
        self.end_mkey(key)
    }

    fn forsake(&mut self, noun: Noun, number: u32) {
        self.forsake_object((noun, number));
    }

    fn windows_on(&self, _: Key) -> usize {
        // Left to the firmware: softhca's refuses to destroy a key with windows.
        0
    }

    fn alloc_device_memory(
        &mut self,
        len: u64,
        log_align: u32,
    ) -> Result<Option<DeviceMemory>, HcaError> {
        self.take_memory(len, log_align).map(Some)
    }

    fn add_operation(&mut self, start: u64, len: u64, op: u8) -> Result<DeviceMemory, HcaError> {
        self.take_operation(start, len, op)
    }

    fn remove_operation(&mut self, start: u64, op: u8, addresses: u64) {
        self.dealloc_operation(start, op, addresses);
    }

    fn free_device_memory(&mut self, start: u64, len: u64) {
        self.give_memory(start, len);
    }

    fn create_cq(&mut self, context: CqContext) -> Result<Cqn, HcaError> {
        self.make_cq(&context)
    }

    fn resize_cq(
        &mut self,
        cqn: Cqn,
        region: Region,
        log_entries: u8,
        cqe_size: u32,
    ) -> Result<(), HcaError> {
        self.move_cq(cqn, &region, log_entries, cqe_size)
    }

    fn moderate_cq(&mut self, cqn: Cqn, moderation: Moderation) -> Result<(), HcaError> {
        self.set_moderation(cqn, moderation)
    }

    fn cqe_size(&self, cqn: Cqn) -> Result<u32, HcaError> {
        self.cq(cqn).map(|cq| cq.cqe_size)
    }

    fn destroy_cq(&mut self, cqn: Cqn) -> Result<(), HcaError> {
        self.end_cq(cqn)
    }

    fn create_qp(&mut self, context: QpContext) -> Result<Queue, HcaError> {
        self.make_qp(&context)
    }

    fn modify_qp(
        &mut self,
        queue: Queue,
        to: QpTransition,
        attrs: &QpAttrs,
    ) -> Result<(), HcaError> {
        self.change_qp(queue, to, attrs)
    }

    fn query_qp(&self, queue: Queue) -> Result<(QpState, QpAttrs), HcaError> {
        self.ask_qp(queue)
    }

    fn ece(&self, queue: Queue) -> Option<u32> {
        self.eces.get(&queue).copied()
    }

    fn destroy_qp(&mut self, queue: Queue) -> Result<(), HcaError> {
        self.end_qp(queue)
    }

    fn create_srq(&mut self, context: SrqContext) -> Result<Srqn, HcaError> {
        self.make_srq(&context)
    }

    fn modify_srq(&mut self, srqn: Srqn, limit: u16) -> Result<(), HcaError> {
        self.arm_srq(srqn, limit)
    }

    fn query_srq(&self, srqn: Srqn) -> Result<u16, HcaError> {
        self.ask_srq(srqn)
    }

    fn destroy_srq(&mut self, srqn: Srqn) -> Result<(), HcaError> {
        self.end_srq(srqn)
    }

    fn create_dct(&mut self, context: DctContext) -> Result<Qpn, HcaError> {
        self.make_dct(&context)
    }

    fn abandon_dct(&mut self, dctn: Qpn) -> Result<(), HcaError> {
        self.end_dct(dctn)
    }

    fn command(&mut self, input: &[u8], output: &mut [u8]) {
        self.pass_on(input, output);
    }

    fn steering(&mut self) -> &mut dyn Steering {
        self
    }

    fn next_event(&mut self) -> Option<HcaEvent> {
        self.take_event()
    }

    fn mac(&mut self, gid: &[u8; 16]) -> Result<[u8; 6], HcaError> {
        self.resolve_mac(gid)
    }

    fn next_mad(&mut self) -> Option<Mad> {
        self.take_mad()
    }

    fn send_mad(&mut self, src: Address, dst: Address, bytes: &[u8]) {
        self.put_mad(src, dst, bytes);
    }

    fn flush_mads(&mut self) {
        self.send_mads();
    }

    fn needs_looks(&self) -> bool {
        // Its failure shows in the next command, or the next look at the health.
        self.function.device().transport().flush() == Ok(false)
    }

    fn step(&mut self, _: Duration) -> bool {
        self.poll_neighbours()
    }
}
