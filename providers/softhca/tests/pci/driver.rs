//! A minimal mlx5_core: commands through the command queue, and the objects that a queue pair
//! needs.

use std::collections::BTreeMap;

use uverbs_mlx5_prm::cmd::header::{cmd_in, cmd_out};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{Field, cq, eq, mkey, qp, rq, simple};

use uverbs_softhca::LinkLayer;
use uverbs_softhca::pci::PciOptions;

use crate::host::{BASE, Host};

/// Offsets of the command queue's address in the initialization segment.
const CMDQ_ADDR_H: u64 = 0x10;
const CMDQ_ADDR_L: u64 = 0x14;
const CMD_DBELL: u64 = 0x18;
const PAGE: u64 = 4096;
/// User whose objects every user may name (`MLX5_SHARED_RESOURCE_UID`).
const SHARED: u64 = 0xffff;

pub(crate) struct Driver {
    pub(crate) host: Host,
    cmdq: u64,
    next: u64,
    pub(crate) uar: u32,
    /// Doorbell page of the event queues.
    pub(crate) eq_uar: u32,
    pub(crate) pd: u32,
    pub(crate) lkey: u32,
    /// Number, ring, and number of events read.
    pub(crate) eqs: Vec<(u32, u64, u32)>,
    /// Events of each completion queue. An arm contains their number, as mlx5_core's `arm_sn`.
    arms: BTreeMap<u32, u32>,
}

pub(crate) struct Cq {
    pub(crate) number: u32,
    pub(crate) ring: u64,
    pub(crate) record: u64,
    pub(crate) read: u32,
}

pub(crate) struct Qp {
    pub(crate) number: u32,
    /// Receive ring of 16 WQEs of 16 bytes; the send ring is a page later.
    pub(crate) rq: u64,
    pub(crate) sq: u64,
    pub(crate) record: u64,
}

/// Destination of a connection.
pub(crate) struct Path {
    pub(crate) lid: u64,
    /// GID instead of the LID; the local GID is entry 2 of the port.
    pub(crate) gid: Option<[u8; 16]>,
    /// ACK timeout code.
    pub(crate) timeout: u64,
}

impl Default for Path {
    fn default() -> Self {
        Self { lid: 1, gid: None, timeout: 18 }
    }
}

pub(crate) const LOG_CQES: u32 = 4;
pub(crate) const LOG_EQES: u32 = 3;

impl Driver {
    /// A function after power-on, with its command queue set.
    pub(crate) fn off() -> Self {
        Self::on(Host::new())
    }

    /// A function after power-on on the given host, with its command queue set.
    pub(crate) fn on(host: Host) -> Self {
        let mut driver = Self {
            host,
            cmdq: 0,
            next: BASE,
            uar: 0,
            eq_uar: 0,
            pd: 0,
            lkey: 0,
            eqs: Vec::new(),
            arms: BTreeMap::new(),
        };
        let cmdq = driver.page();
        driver.cmdq = cmdq;
        driver.host.set(CMDQ_ADDR_H, (cmdq >> 32) as u32);
        driver.host.set(CMDQ_ADDR_L, cmdq as u32);
        driver
    }

    /// A function after INIT_HCA.
    pub(crate) fn up() -> Self {
        Self::off().initialised()
    }

    /// A function after INIT_HCA, with an Ethernet port.
    pub(crate) fn ethernet() -> Self {
        let options = PciOptions { link: LinkLayer::Ethernet, ..PciOptions::default() };
        Self::on(Host::with(options)).initialised()
    }

    pub(crate) fn initialised(self) -> Self {
        let mut driver = self;
        driver.ok(CmdOpcode::ENABLE_HCA, 0, &[0; 16], 16);
        driver.ok(CmdOpcode::INIT_HCA, 0, &[0; 32], 16);
        let uar = driver.ok(CmdOpcode::ALLOC_UAR, 0, &[0; 16], 16);
        driver.uar = simple::alloc_uar_out::UAR.get32(&uar);
        driver.eq_uar = driver.uar;
        let pd = driver.ok(CmdOpcode::ALLOC_PD, 0, &[0; 16], 16);
        driver.pd = simple::alloc_pd_out::PD.get32(&pd);
        driver.lkey = driver.all_memory();
        driver
    }

    pub(crate) fn page(&mut self) -> u64 {
        self.next += PAGE;
        self.next - PAGE
    }

    /// Writes a command with its mailboxes into entry `slot`, and rings the doorbell.
    pub(crate) fn post(&mut self, slot: u32, input: &[u8], outlen: u32) {
        let token = 0x5a;
        let input_boxes = self.mailboxes(&input[input.len().min(16)..], token);
        let output_boxes = self.mailboxes(&vec![0; (outlen as usize).saturating_sub(16)], token);
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&input_boxes.to_be_bytes());
        let inline = input.len().min(16);
        entry[16..16 + inline].copy_from_slice(&input[..inline]);
        entry[48..56].copy_from_slice(&output_boxes.to_be_bytes());
        entry[56..60].copy_from_slice(&outlen.to_be_bytes());
        entry[60] = token;
        entry[63] = 1;
        self.host.write(self.slot(slot), &entry);
        self.host.set(CMD_DBELL, 1 << slot);
    }

    pub(crate) fn slot(&self, slot: u32) -> u64 {
        self.cmdq + u64::from(slot) * 64
    }

    /// Writes a chain of mailboxes, 1 KiB apart.
    fn mailboxes(&mut self, data: &[u8], token: u8) -> u64 {
        let count = data.len().div_ceil(512);
        let first = self.next;
        self.next = (first + 1024 * count as u64).next_multiple_of(PAGE);
        for (number, part) in data.chunks(512).enumerate() {
            let at = first + 1024 * number as u64;
            let mut mailbox = [0; 576];
            mailbox[..part.len()].copy_from_slice(part);
            let next = if number + 1 == count { 0 } else { at + 1024 };
            mailbox[560..568].copy_from_slice(&next.to_be_bytes());
            mailbox[568..572].copy_from_slice(&(number as u32).to_be_bytes());
            mailbox[573] = token;
            self.host.write(at, &mailbox);
        }
        if count == 0 { 0 } else { first }
    }

    /// Waits for entry `slot`. Returns delivery status and output.
    pub(crate) fn finish(&mut self, slot: u32, outlen: usize) -> (u8, Vec<u8>) {
        let at = self.slot(slot);
        let entry = self.host.wait("a command", |host| {
            let entry = host.read(at, 64);
            (entry[63] & 1 == 0).then_some(entry)
        });
        let mut output = entry[32..32 + outlen.min(16)].to_vec();
        let mut mailbox = u64::from_be_bytes(entry[48..56].try_into().unwrap());
        while output.len() < outlen {
            let bytes = self.host.read(mailbox, 576);
            output.extend_from_slice(&bytes[..(outlen - output.len()).min(512)]);
            mailbox = u64::from_be_bytes(bytes[560..568].try_into().unwrap());
        }
        (entry[63] >> 1, output)
    }

    /// Runs a command from start to end, and reuses its memory.
    pub(crate) fn run(
        &mut self,
        opcode: CmdOpcode,
        op_mod: u16,
        input: &[u8],
        outlen: usize,
    ) -> (CmdStatus, Vec<u8>) {
        let next = self.next;
        let mut input = input.to_vec();
        cmd_in::OPCODE.set(&mut input, opcode.0.into());
        cmd_in::OP_MOD.set(&mut input, op_mod.into());
        self.post(0, &input, outlen as u32);
        let (delivery, output) = self.finish(0, outlen);
        assert_eq!(delivery, 0, "{opcode} was not delivered");
        self.next = next;
        (CmdStatus(cmd_out::STATUS.get(&output) as u8), output)
    }

    pub(crate) fn ok(
        &mut self,
        opcode: CmdOpcode,
        op_mod: u16,
        input: &[u8],
        outlen: usize,
    ) -> Vec<u8> {
        let (status, output) = self.run(opcode, op_mod, input, outlen);
        assert_eq!(status, CmdStatus::OK, "{opcode}");
        output
    }

    /// Runs a command whose input is one number.
    pub(crate) fn about(&mut self, opcode: CmdOpcode, field: Field, number: u32) -> CmdStatus {
        let mut input = [0; 16];
        field.set(&mut input, number.into());
        self.run(opcode, 0, &input, 16).0
    }

    /// Creates a key for all of memory, by bus address.
    fn all_memory(&mut self) -> u32 {
        let mut input = [0; mkey::create_mkey_in::SIZE];
        let context = mkey::create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
        for right in
            [mkey::mkc::LW, mkey::mkc::RW, mkey::mkc::RR, mkey::mkc::A, mkey::mkc::LENGTH64]
        {
            right.set(context, 1);
        }
        mkey::mkc::PD.set(context, self.pd.into());
        mkey::mkc::QPN.set(context, 0xff_ffff);
        mkey::mkc::MKEY_7_0.set(context, 0x42);
        let output = self.ok(CmdOpcode::CREATE_MKEY, 0, &input, 16);
        mkey::create_mkey_out::MKEY_INDEX.get32(&output) << 8 | 0x42
    }

    /// Creates an armed event queue for events of `mask`.
    pub(crate) fn eq(&mut self, vector: u16, mask: u64) -> u32 {
        let ring = self.page();
        for entry in 0..1 << LOG_EQES {
            self.host.write(ring + 64 * entry + 63, &[1]);
        }
        let mut input = with_page(eq::create_eq_in::SIZE, ring);
        let context = eq::create_eq_in::EQ_CONTEXT_ENTRY.of_mut(&mut input);
        eq::eqc::LOG_EQ_SIZE.set(context, LOG_EQES.into());
        eq::eqc::UAR_PAGE.set(context, self.eq_uar.into());
        eq::eqc::INTR.set(context, vector.into());
        if mask == 0 {
            // An event queue of completions, which every user may name (`create_map_eq` of Linux
            // `core/eq.c`).
            cmd_in::UID.set(&mut input, SHARED);
        }
        eq::create_eq_in::EVENT_BITMASK.of_mut(&mut input)[..8]
            .copy_from_slice(&mask.to_be_bytes());
        let output = self.ok(CmdOpcode::CREATE_EQ, 0, &input, 16);
        let number = eq::create_eq_out::EQ_NUMBER.get32(&output);
        self.eqs.push((number, ring, 0));
        self.arm_eq(number);
        number
    }

    /// Takes the next event and arms again. Returns type, and the last word of its data.
    pub(crate) fn event(&mut self, eqn: u32) -> (u8, u32) {
        let eqe = self.eqe(eqn);
        let (kind, data) = (eqe[1], u32::from_be_bytes(eqe[56..60].try_into().unwrap()));
        if kind == 0 {
            *self.arms.entry(data).or_default() += 1;
        }
        (kind, data)
    }

    /// Takes the next event and arms again. Returns the whole entry.
    pub(crate) fn eqe(&mut self, eqn: u32) -> Vec<u8> {
        let at = self.eqs.iter().position(|(number, ..)| *number == eqn).unwrap();
        let (_, ring, read) = self.eqs[at];
        let slot = ring + 64 * u64::from(read & ((1 << LOG_EQES) - 1));
        let owner = (read >> LOG_EQES) as u8 & 1;
        let eqe = self.host.wait("an event", |host| {
            let eqe = host.read(slot, 64);
            (eqe[63] & 1 == owner).then_some(eqe)
        });
        self.eqs[at].2 += 1;
        self.arm_eq(eqn);
        eqe
    }

    fn arm_eq(&mut self, eqn: u32) {
        let read = self.eqs.iter().find(|(number, ..)| *number == eqn).unwrap().2;
        self.host.set(u64::from(self.eq_uar) * PAGE + 0x40, eqn << 24 | read & 0xff_ffff);
    }

    pub(crate) fn cq(&mut self, eqn: u32) -> Cq {
        let (ring, record) = (self.page(), self.page());
        for entry in 0..1 << LOG_CQES {
            self.host.write(ring + 64 * entry + 63, &[0xf1]);
        }
        let mut input = with_page(cq::create_cq_in::SIZE, ring);
        let context = cq::create_cq_in::CQ_CONTEXT.of_mut(&mut input);
        cq::cqc::LOG_CQ_SIZE.set(context, LOG_CQES.into());
        cq::cqc::UAR_PAGE.set(context, self.uar.into());
        cq::cqc::C_EQN_OR_APU_ELEMENT.set(context, eqn.into());
        cq::cqc::DBR_ADDR.set(context, record);
        let output = self.ok(CmdOpcode::CREATE_CQ, 0, &input, 16);
        Cq { number: cq::create_cq_out::CQN.get32(&output), ring, record, read: 0 }
    }

    /// Arms for the next completion.
    pub(crate) fn arm_cq(&mut self, cq: &Cq) {
        let sn = self.arms.get(&cq.number).copied().unwrap_or(0) & 3;
        let word = sn << 28 | cq.read & 0xff_ffff;
        self.host.write(cq.record + 4, &word.to_be_bytes());
        let doorbell = u64::from(word) << 32 | u64::from(cq.number);
        self.host.ring(u64::from(self.uar) * PAGE + 0x20, doorbell);
    }

    /// Takes the next completion.
    pub(crate) fn poll(&mut self, cq: &mut Cq) -> Vec<u8> {
        let slot = cq.ring + 64 * u64::from(cq.read & ((1 << LOG_CQES) - 1));
        let owner = (cq.read >> LOG_CQES) as u8 & 1;
        let cqe = self.host.wait("a completion", |host| {
            let cqe = host.read(slot, 64);
            (cqe[63] & 1 == owner && cqe[63] >> 4 != 0xf).then_some(cqe)
        });
        cq.read += 1;
        self.host.write(cq.record, &cq.read.to_be_bytes());
        cqe
    }

    pub(crate) fn qp(&mut self, cq: &Cq) -> Qp {
        self.qp_with(cq, |_| {})
    }

    /// Creates a queue pair with a context modified by `change`.
    pub(crate) fn qp_with(&mut self, cq: &Cq, change: impl FnOnce(&mut [u8])) -> Qp {
        let (rq, record) = (self.page(), self.page());
        let mut input = vec![0; qp::create_qp_in::SIZE];
        input.extend(rq.to_be_bytes());
        let context = qp::create_qp_in::QPC.of_mut(&mut input);
        qp::qpc::PD.set(context, self.pd.into());
        qp::qpc::LOG_RQ_SIZE.set(context, 4);
        qp::qpc::LOG_SQ_SIZE.set(context, 4);
        qp::qpc::UAR_PAGE.set(context, self.uar.into());
        qp::qpc::USER_INDEX.set(context, 0x77);
        qp::qpc::CQN_SND.set(context, cq.number.into());
        qp::qpc::CQN_RCV.set(context, cq.number.into());
        qp::qpc::DBR_ADDR.set(context, record);
        change(context);
        let output = self.ok(CmdOpcode::CREATE_QP, 0, &input, 16);
        let number = qp::create_qp_out::QPN.get32(&output);
        Qp { number, rq, sq: rq + 256, record }
    }

    /// Creates an SRQ of 16 WQEs of 32 bytes, linked in order. Returns number, ring, record.
    pub(crate) fn srq(&mut self) -> (u32, u64, u64) {
        let (ring, record) = (self.page(), self.page());
        for slot in 0..16u64 {
            // mlx5_wqe_srq_next_seg: the next slot.
            self.host.write(ring + 32 * slot + 2, &((slot as u16 + 1) % 16).to_be_bytes());
        }
        let mut input = with_page(rq::create_rmp_in::SIZE, ring);
        let context = rq::create_rmp_in::CTX.of_mut(&mut input);
        let wq = rq::rmpc::WQ.of_mut(context);
        rq::wq::LOG_WQ_SZ.set(wq, 4);
        rq::wq::LOG_WQ_STRIDE.set(wq, 5);
        rq::wq::PD.set(wq, self.pd.into());
        rq::wq::DBR_ADDR.set(wq, record);
        let output = self.ok(CmdOpcode::CREATE_RMP, 0, &input, 16);
        (rq::create_rmp_out::RMPN.get32(&output), ring, record)
    }

    /// Moves a UD queue pair from RESET to RTS, with `qkey`.
    pub(crate) fn open(&mut self, qpn: u32, qkey: u32) {
        let mut input = [0; qp::rst2init_qp_in::SIZE];
        qp::rst2init_qp_in::QPN.set(&mut input, qpn.into());
        let context = qp::rst2init_qp_in::QPC.of_mut(&mut input);
        qp::qpc::Q_KEY.set(context, qkey.into());
        qp::qpc::MTU.set(context, 5);
        for step in [CmdOpcode::RST2INIT_QP, CmdOpcode::INIT2RTR_QP, CmdOpcode::RTR2RTS_QP] {
            self.ok(step, 0, &input, 16);
        }
    }

    /// Connects two queue pairs of this port with each other.
    pub(crate) fn join(&mut self, a: &Qp, b: &Qp) {
        self.connect(a.number, b.number);
        self.connect(b.number, a.number);
    }

    /// Moves a queue pair from RESET to RTS, connected to queue pair `peer` of the same port.
    pub(crate) fn connect(&mut self, qpn: u32, peer: u32) {
        self.connect_to(qpn, peer, &Path::default());
    }

    /// Moves a queue pair from RESET to RTS, connected to queue pair `peer` at `to`.
    pub(crate) fn connect_to(&mut self, qpn: u32, peer: u32, to: &Path) {
        let change = |fields: &[(Field, u64)], path: &[(Field, u64)], mask: u64| {
            let mut input = [0; qp::rst2init_qp_in::SIZE];
            qp::rst2init_qp_in::QPN.set(&mut input, qpn.into());
            qp::rst2init_qp_in::OPT_PARAM_MASK.set(&mut input, mask);
            let context = qp::rst2init_qp_in::QPC.of_mut(&mut input);
            fields.iter().for_each(|(field, value)| field.set(context, *value));
            let ads = qpc::PRIMARY_ADDRESS_PATH.of_mut(context);
            path.iter().for_each(|(field, value)| field.set(ads, *value));
            input
        };
        use qp::{ads, qpc};
        // RRE, RAE, RWE.
        let rights = [(qpc::RRE, 1), (qpc::RWE, 1), (qpc::RAE, 1)];
        let init = change(&rights, &[(ads::VHCA_PORT_NUM, 1)], 0b1110);
        self.ok(CmdOpcode::RST2INIT_QP, 0, &init, 16);
        let rtr = [
            (qpc::MTU, 3),
            (qpc::LOG_MSG_MAX, 30),
            (qpc::REMOTE_QPN, peer.into()),
            (qpc::NEXT_RCV_PSN, 0x1234),
            (qpc::MIN_RNR_NAK, 1),
            (qpc::LOG_RRA_MAX, 2),
        ];
        let path = match to.gid {
            None => vec![(ads::RLID, to.lid)],
            Some(_) => {
                vec![(ads::SRC_ADDR_INDEX, 2), (ads::HOP_LIMIT, 64), (ads::UDP_SPORT, 0xc000)]
            }
        };
        let mut rtr = change(&rtr, &path, 0);
        if let Some(gid) = to.gid {
            let context = qp::rst2init_qp_in::QPC.of_mut(&mut rtr);
            let path = qpc::PRIMARY_ADDRESS_PATH.of_mut(context);
            ads::RGID_RIP.of_mut(path).copy_from_slice(&gid);
        }
        self.ok(CmdOpcode::INIT2RTR_QP, 0, &rtr, 16);
        let rts = [
            (qpc::NEXT_SEND_PSN, 0x1234),
            (qpc::RETRY_COUNT, 7),
            (qpc::RNR_RETRY, 7),
            (qpc::LOG_SRA_MAX, 2),
        ];
        let rts = change(&rts, &[(ads::ACK_TIMEOUT, to.timeout)], 0);
        self.ok(CmdOpcode::RTR2RTS_QP, 0, &rts, 16);
    }
}

/// An input with the address of one page behind it.
pub(crate) fn with_page(size: usize, page: u64) -> Vec<u8> {
    let mut input = vec![0; size];
    input.extend(page.to_be_bytes());
    input
}
