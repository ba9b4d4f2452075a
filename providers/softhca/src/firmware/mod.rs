//! The firmware: commands of the mlx5 command interface become calls of the HCA side.
//!
//! A PCI function's driver sends all of them. In process a program sends three (DEVX). Its queue
//! pairs and protection domains were made by verbs, which pass [`Firmware`] by, so these commands
//! share only the functions that need no object of it:
//! [`Capabilities`](device::caps::Capabilities), [`create_free`](objects::mkey::create_free) and
//! [`reset_stream`](objects::qp::reset_stream).
//!
//! A file for each kind of object has its commands. A command gets its input as bytes of the
//! driver's length, and writes its output into zeroed bytes; [`Firmware::execute`] checked that
//! both are as long as the command's fixed part. The input comes from the guest and may be
//! anything.
//!
//! | file | contents |
//! |---|---|
//! | `call`, `table`, `numbers`, `owner` | commands, their table, object numbers and owners |
//! | `life`, `pages`, `caps`, `register`, `vport`, `mad`, `counters` | the device and its port |
//! | `simple`, `eq`, `cq`, `qp`, `dct`, `mkey`, `memic`, `srq`, `mcast`, `general` | objects |
//! | `nic`, `frame_queue`, `steering`, `flow`, `edit` | Ethernet: addresses, queues, flow tables |
//! | `rings`, `umem` | memory of queues |
//! | `odp` | on-demand paging |
//! | `event` | events of the HCA side as event queue entries |

pub(crate) mod base;
pub(crate) mod device;
mod frames;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod objects;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use uverbs_mlx5_prm::cmd::dct::dctc;
use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::sq::{rqc, sqc};

use self::base::call::{Call, Refusal};
use self::base::general::General;
use self::base::numbers::Numbers;
use self::base::owner::Objects;
use self::base::simple::Simple;
use self::device::eq::EqTable;
use self::device::life::Life;
use self::device::nic::Nic;
use self::frames::interfaces::Interfaces;
use self::objects::memic::Memic;
use crate::board::capabilities::MAX_UMEM;
use crate::board::memory::DeviceMemory;
use crate::board::profile::Profile;
use crate::hca::{Dma, Hca};

/// Result of a command, for the command queue and for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) opcode: CmdOpcode,
    pub(crate) op_mod: u16,
    pub(crate) status: CmdStatus,
    /// Reason of a failure; None on success.
    pub(crate) why: Option<&'static str>,
}

/// Answers a command with a refusal.
pub(crate) fn refuse(input: &[u8], output: &mut [u8], refusal: &Refusal) -> Outcome {
    refusal.answer(output);
    let opcode = CmdOpcode(cmd_in::OPCODE.get(input) as u16);
    let op_mod = cmd_in::OP_MOD.get(input) as u16;
    Outcome { opcode, op_mod, status: refusal.status, why: Some(refusal.why) }
}

/// State of the device behind its command interface.
#[derive(Debug)]
pub(crate) struct Firmware {
    pub(crate) hca: Hca,
    pub(crate) eqs: EqTable,
    dma: Arc<dyn Dma + Sync>,
    profile: Profile,
    life: Life,
    /// The driver prepared a fast teardown.
    ends_fast: bool,
    /// Pages that the driver lent. They stay unused: this device keeps its state elsewhere.
    pages: Vec<u64>,
    simple: Simple,
    general: General,
    cqs: Objects<objects::cq::Cq>,
    qps: Objects<objects::qp::Qp>,
    dcts: Objects<Box<[u8; dctc::SIZE]>>,
    mkeys: Objects<objects::mkey::Mkey>,
    srqs: Objects<objects::srq::Srq>,
    sqs: Objects<Box<[u8; sqc::SIZE]>>,
    umems: BTreeMap<u32, base::umem::Umem>,
    umem_ids: Numbers,
    frame_rqs: Objects<Box<[u8; rqc::SIZE]>>,
    interfaces: Interfaces,
    nic: Nic,
    memic: Memic,
    /// `atomic_req_8B_endianness_mode`. It and `log_uar_page_sz` are the only capabilities that
    /// SET_HCA_CAP changes.
    atomic_mode: u64,
    /// UARs that a guest maps: two stores into a register may become one.
    pub(crate) mapped_uars: Range<u32>,
}

impl Firmware {
    pub(crate) fn new(
        profile: Profile,
        hca: Hca,
        dma: Arc<dyn Dma + Sync>,
        memory: Arc<DeviceMemory>,
    ) -> Self {
        let mut firmware = Self {
            hca,
            eqs: EqTable::default(),
            dma,
            profile,
            life: Life::default(),
            ends_fast: false,
            pages: Vec::new(),
            simple: Simple::default(),
            general: General::default(),
            cqs: Objects::new("no such completion queue"),
            qps: Objects::new("no such queue pair"),
            dcts: Objects::new("no such target of dynamic connections"),
            mkeys: Objects::new("no such memory key"),
            srqs: Objects::new("no such shared receive queue"),
            sqs: Objects::new("no such send queue"),
            umems: BTreeMap::new(),
            umem_ids: Numbers::new(1, MAX_UMEM),
            frame_rqs: Objects::new("no such receive queue"),
            interfaces: Interfaces::default(),
            nic: Nic::default(),
            memic: Memic::new(memory),
            atomic_mode: 0,
            mapped_uars: 0..0,
        };
        firmware.publish_addresses();
        firmware.reset();
        firmware
    }

    /// Numbers of the allocated UARs.
    pub(crate) fn uars(&self) -> impl Iterator<Item = u32> {
        self.simple.uars()
    }

    /// Resets to the state after power-on.
    pub(crate) fn reset(&mut self) {
        self.drop_objects();
        self.life = Life::default();
        self.pages.clear();
        self.atomic_mode = 0;
        self.simple = Simple::default();
    }

    /// Destroys all objects that a driver left.
    fn drop_objects(&mut self) {
        self.ends_fast = false;
        self.hca.reset();
        self.eqs = EqTable::default();
        self.simple.clear();
        self.general = General::default();
        self.cqs.clear();
        self.qps.clear();
        self.dcts.clear();
        self.mkeys.clear();
        self.srqs.clear();
        self.sqs.clear();
        self.umems.clear();
        self.umem_ids = Numbers::new(1, MAX_UMEM);
        self.frame_rqs.clear();
        self.interfaces = Interfaces::default();
        self.nic = Nic::default();
        self.memic.clear();
        if self.profile.hca.is_ethernet() {
            // On Ethernet the driver fills the GID table; on InfiniBand the table belongs to the
            // port.
            self.profile.gids.clear();
            self.publish_addresses();
        }
    }

    /// Runs one command. `output` has the driver's length; it is zeroed and then filled.
    pub(crate) fn execute(&mut self, input: &[u8], output: &mut [u8]) -> Outcome {
        output.fill(0);
        let opcode = CmdOpcode(cmd_in::OPCODE.get(input) as u16);
        let op_mod = cmd_in::OP_MOD.get(input) as u16;
        match self.dispatch(opcode, Call { input, output, op_mod }) {
            Ok(()) => Outcome { opcode, op_mod, status: CmdStatus::OK, why: None },
            Err(refusal) => refuse(input, output, &refusal),
        }
    }

    fn dispatch(&mut self, opcode: CmdOpcode, mut call: Call<'_>) -> Result<(), Refusal> {
        let entry = base::table::find(opcode)
            .ok_or(Refusal::new(CmdStatus::BAD_OP_ERR, "no such command"))?;
        if call.input.len() < entry.input {
            return Err(Refusal::new(CmdStatus::BAD_INP_LEN_ERR, "input too short"));
        }
        if call.output.len() < entry.output {
            return Err(Refusal::new(CmdStatus::BAD_OUTP_LEN_ERR, "output too short"));
        }
        if self.life < entry.needs {
            return Err(Refusal::new(CmdStatus::BAD_SYS_STATE_ERR, "the device is not that far"));
        }
        if base::umem::is_too_much(opcode, &call) {
            return Err(Refusal::param(
                "registered memory is for completion queues and queue pairs",
            ));
        }
        (entry.run)(self, &mut call)
    }

    /// Runs one slice of the HCA side's work, and moves its events to the event queues.
    pub(crate) fn step(&mut self, now: Duration) -> bool {
        let busy = self.hca.step(now);
        let told = self.tell();
        busy | told
    }
}
