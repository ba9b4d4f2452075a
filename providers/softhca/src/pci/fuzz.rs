//! Fuzz target: a guest with arbitrary stores to its function, beside another guest.

use std::sync::Arc;
use std::time::Duration;

use uverbs_mlx5_prm::address::{DqpDct, mlx5_wqe_av};
use uverbs_mlx5_prm::cmd::header::{cmd_in, cmd_out};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{dct, mkey, qp};
use uverbs_mlx5_prm::opcode::{MLX5_OPC_MOD_MMO_DMA, Opcode};
use uverbs_mlx5_prm::umr::{
    mlx5_wqe_mkey_context_seg, mlx5_wqe_umr_ctrl_seg, mlx5_wqe_umr_klm_seg,
};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::{PciHca, PciOptions};
use crate::feed::Feed;
use crate::firmware::fuzz::{Objects, bring_up, command, number, template};
use crate::hca::Dma;
use crate::hca::testing::{Arena, IOVA, Wr};
use crate::wire::Fabric;
use uverbs_front::backend::number::{Key, Qpn};

/// Actions of one run.
const STEPS: usize = 64;
/// Limit of calls until a device is idle, more than any needs.
const RESTS: usize = 10_000;
/// Pages of a guest's memory behind the pages of [`bring_up`]: the command queue, mailboxes of
/// input and output, doorbell records, a ring for each queue pair, and data.
const CMDQ: u64 = 8;
const BOXES: [u64; 2] = [9, 13];
const RECORDS: u64 = 17;
const RINGS: u64 = 18;
const DATA: u64 = 22;
const PAGES: u64 = 32;
const PAGE: u64 = super::PAGE;
/// Mailboxes of a command, 1 KiB apart.
const MAILBOXES: usize = 16;
const TOKEN: u8 = 0x5a;
/// Offsets in the initialization segment.
const CMDQ_ADDR_H: u64 = 0x10;
const CMDQ_ADDR_L: u64 = 0x14;
const CMD_DBELL: u64 = 0x18;
/// WQEBBs of a send ring.
const BLOCKS: u16 = 16;
/// Keys of the first guest; the other guest's keys differ.
const QKEY: u32 = 0x1122_3344;
const DC_KEY: u64 = 0x0123_4567_89ab_cdef;

/// A queue pair that is ready to send.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    number: u32,
    sq: u64,
    record: u64,
    posted: u16,
    received: u16,
}

#[derive(Debug)]
struct Guest {
    function: PciHca,
    arena: Arena,
    /// LID of the port. It also makes a guest's keys differ from the other guest's.
    lid: u16,
    objects: Objects,
    /// Queue pairs: UD, a DC initiator, and RC connected with itself.
    queues: [Queue; 3],
    target: u32,
    /// A free key with room for a list of four parts.
    list: u32,
    shared: u16,
    now: Duration,
}

/// Runs arbitrary stores of a guest. Its function must become idle, return each command, and work
/// after a reset. The other guest's memory must be unchanged, and its device must work.
pub(crate) fn guests(data: &[u8]) {
    let mut feed = Feed::new(data);
    let fabric = Fabric::default();
    let mut guests = [1, 2].map(|number| Guest::new(&fabric, number));
    for guest in &mut guests {
        guest.bring_up();
    }
    let (first, other) = (guests[0].objects, guests[1].memory());
    for _ in 0..STEPS {
        if feed.is_empty() {
            break;
        }
        act(&mut feed, &mut guests[0]);
        settle(&mut guests);
    }
    for _ in 0..100 {
        guests[0].now += Duration::from_millis(100);
        settle(&mut guests);
    }
    assert!(guests[1].memory() == other, "another guest's memory changed");
    guests[0].function.reset();
    guests[0].bring_up();
    assert_eq!(guests[0].objects, first, "a reset leaves objects");
    for guest in 0..2 {
        works(&mut guests, guest);
    }
}

fn act(feed: &mut Feed<'_>, guest: &mut Guest) {
    match feed.below(12) {
        0..3 => {
            if let Some((input, len)) = command(feed, &guest.objects) {
                guest.execute(&input, len, |entry| feed.edit(entry));
            }
        }
        3..8 => {
            let (queue, kind) = (feed.below(3), feed.below(8));
            let mut bytes = match kind {
                7 => feed.bytes(512).to_vec(),
                _ => guest.work(queue, kind, feed.u16()),
            };
            feed.edit(&mut bytes);
            guest.post(queue, &bytes, feed.u8() & 7 != 0);
        }
        8 => guest.receive(feed.below(4), u32::from(feed.u16())),
        9 => {
            let offset = match feed.below(3) {
                0 => u64::from(feed.u8() & 31) * 4,
                1 => guest.objects.uar * PAGE + u64::from(feed.u16() % 0x1000),
                _ => feed.u64() % super::BAR0_LEN,
            };
            let data = feed.bytes(64);
            guest.function.bar_write(offset, data);
            guest.function.bar_read(offset, &mut vec![0; data.len()]);
            // The command queue may have been moved anywhere.
            guest.set_queue();
        }
        10 => {
            let (offset, data) = (u64::from(feed.u16()), feed.bytes(16));
            guest.function.config_write(offset, data);
            guest.function.config_read(offset, &mut vec![0; data.len()]);
        }
        _ => {
            guest.now += Duration::from_micros(1 << (feed.u8() & 15));
            let at = u64::from(feed.u16()) % (PAGES * PAGE / 8) * 8;
            let word = feed.u64().to_ne_bytes();
            guest.arena.write(guest.arena.base() + at, &word).unwrap();
        }
    }
}

/// Steps both devices until both are idle.
fn settle(guests: &mut [Guest; 2]) {
    let now = guests[0].now;
    for _ in 0..RESTS {
        let busy = guests.iter_mut().fold(false, |busy, guest| {
            guest.now = now;
            guest.function.advance(now);
            guest.function.take_interrupts();
            guest.function.step() | busy
        });
        if !busy {
            return;
        }
    }
    panic!("no rest at {now:?}");
}

/// Checks that a datagram and a DC message arrive at the guest itself.
fn works(guests: &mut [Guest; 2], at: usize) {
    for (queue, head) in [(0, 40), (1, 0)] {
        let guest = &mut guests[at];
        let (from, to) = (guest.page(DATA), guest.page(DATA + 4));
        let text = *b"the same as ever";
        guest.arena.write(from, &text).unwrap();
        guest.arena.write(to, &[0; 64]).unwrap();
        guest.receive(if queue == 0 { 0 } else { 3 }, 64);
        let bytes = guest.work(queue, 0, text.len() as u16);
        guest.post(queue, &bytes, true);
        settle(guests);
        let got = guests[at].arena.bytes(to + head, text.len());
        assert_eq!(got, text, "guest {at}, queue {queue}");
    }
}

impl Guest {
    fn new(fabric: &Fabric, number: u16) -> Self {
        let arena = Arena::new((PAGES * PAGE) as usize);
        let options = PciOptions { number, ..PciOptions::default() };
        let port = Box::new(fabric.attach(&[]));
        Self {
            function: PciHca::new(&options, Arc::new(arena.clone()), Some(port)),
            arena,
            lid: number,
            objects: Objects::default(),
            queues: Default::default(),
            target: 0,
            list: 0,
            shared: 0,
            now: Duration::ZERO,
        }
    }

    fn page(&self, number: u64) -> u64 {
        self.arena.base() + number * PAGE
    }

    fn memory(&self) -> Vec<u8> {
        self.arena.bytes(self.arena.base(), (PAGES * PAGE) as usize)
    }

    fn set_queue(&mut self) {
        let queue = self.page(CMDQ);
        self.function.bar_write(CMDQ_ADDR_H, &((queue >> 32) as u32).to_be_bytes());
        self.function.bar_write(CMDQ_ADDR_L, &(queue as u32).to_be_bytes());
    }

    /// Creates one object of each kind, and queue pairs in RTS.
    fn bring_up(&mut self) {
        let zeros = vec![0; (PAGES * PAGE) as usize];
        self.arena.write(self.arena.base(), &zeros).unwrap();
        self.set_queue();
        self.shared = 0;
        self.objects = bring_up(self.arena.base(), |input| self.ok(input));
        for slot in 0..16u16 {
            // Link to the next slot of the SRQ (PRM, "SRQ WQE"), whose ring is page 6.
            let next = self.page(6) + 32 * u64::from(slot) + 2;
            self.arena.write(next, &((slot + 1) % 16).to_be_bytes()).unwrap();
        }
        // UD, a DC initiator without receive ring, RC (PRM, "QP Context", `st`).
        for (at, (st, rq_type)) in [(2, 0), (5, 3), (0, 0)].into_iter().enumerate() {
            let (ring, record) =
                (self.page(RINGS + at as u64), self.page(RECORDS) + 64 * at as u64);
            let mut input = self.template(CmdOpcode::CREATE_QP);
            let end = input.len();
            input[end - 8..].copy_from_slice(&ring.to_be_bytes());
            let context = qp::create_qp_in::QPC.of_mut(&mut input);
            qp::qpc::ST.set(context, st);
            qp::qpc::RQ_TYPE.set(context, rq_type);
            qp::qpc::DBR_ADDR.set(context, record);
            let number = number(&self.ok(&input)) as u32;
            let sq = if rq_type == 3 { ring } else { ring + 256 };
            self.queues[at] = Queue { number, sq, record, ..Queue::default() };
            self.ready(number);
        }
        let mut input = self.template(CmdOpcode::CREATE_DCT);
        let context = dct::create_dct_in::DCT_CONTEXT_ENTRY.of_mut(&mut input);
        dct::dctc::DC_ACCESS_KEY.set(context, self.dc_key());
        dct::dctc::MIN_RNR_NAK.set(context, 1);
        self.target = number(&self.ok(&input)) as u32;
        let mut input = self.template(CmdOpcode::CREATE_MKEY);
        let context = mkey::create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
        for (field, value) in [
            (mkey::mkc::FREE, 1),
            (mkey::mkc::UMR_EN, 1),
            (mkey::mkc::ACCESS_MODE_1_0, 2),
            (mkey::mkc::LENGTH64, 0),
            (mkey::mkc::TRANSLATIONS_OCTWORD_SIZE, 4),
        ] {
            field.set(context, value);
        }
        self.list = (number(&self.ok(&input)) << 8) as u32;
    }

    fn template(&self, opcode: CmdOpcode) -> Vec<u8> {
        let mut input = template(opcode, &self.objects).unwrap();
        cmd_in::OPCODE.set(&mut input, opcode.0.into());
        input
    }

    fn qkey(&self) -> u32 {
        QKEY ^ u32::from(self.lid)
    }

    fn dc_key(&self) -> u64 {
        DC_KEY ^ u64::from(self.lid)
    }

    /// Moves a queue pair from RESET to RTS, connected with itself.
    fn ready(&mut self, number: u32) {
        let mut input = [0; qp::rst2init_qp_in::SIZE];
        qp::rst2init_qp_in::QPN.set(&mut input, number.into());
        // RRE, RAE, RWE.
        qp::rst2init_qp_in::OPT_PARAM_MASK.set(&mut input, 0b1110);
        let context = qp::rst2init_qp_in::QPC.of_mut(&mut input);
        use qp::{ads, qpc};
        for (field, value) in [
            (qpc::RRE, 1),
            (qpc::RWE, 1),
            (qpc::RAE, 1),
            (qpc::Q_KEY, self.qkey().into()),
            (qpc::MTU, 3),
            (qpc::LOG_MSG_MAX, 30),
            (qpc::REMOTE_QPN, number.into()),
            (qpc::NEXT_RCV_PSN, 0x1234),
            (qpc::NEXT_SEND_PSN, 0x1234),
            (qpc::MIN_RNR_NAK, 1),
            (qpc::RETRY_COUNT, 2),
            (qpc::RNR_RETRY, 2),
            (qpc::LOG_RRA_MAX, 2),
            (qpc::LOG_SRA_MAX, 2),
        ] {
            field.set(context, value);
        }
        let path = qpc::PRIMARY_ADDRESS_PATH.of_mut(context);
        ads::VHCA_PORT_NUM.set(path, 1);
        ads::RLID.set(path, self.lid.into());
        ads::ACK_TIMEOUT.set(path, 8);
        for step in [CmdOpcode::RST2INIT_QP, CmdOpcode::INIT2RTR_QP, CmdOpcode::RTR2RTS_QP] {
            cmd_in::OPCODE.set(&mut input, step.0.into());
            self.ok(&input);
            // Behind INIT the transitions have no optional attributes.
            qp::rst2init_qp_in::OPT_PARAM_MASK.set(&mut input, 0);
        }
    }

    /// Executes a command that must succeed. Returns the first 16 bytes of its output.
    fn ok(&mut self, input: &[u8]) -> Vec<u8> {
        self.execute(input, 16, |_| {});
        let output = self.arena.bytes(self.page(CMDQ) + 32, 16);
        let status = CmdStatus(cmd_out::STATUS.get(&output) as u8);
        assert_eq!(status, CmdStatus::OK, "{}", CmdOpcode(cmd_in::OPCODE.get(input) as u16));
        output
    }

    /// Writes a command into the first entry, which `edit` may change, rings the doorbell, and
    /// checks that the entry is returned.
    fn execute(&mut self, input: &[u8], len: usize, edit: impl FnOnce(&mut [u8])) {
        let boxes = [
            self.mailboxes(BOXES[0], &input[input.len().min(16)..]),
            self.mailboxes(BOXES[1], &vec![0; len.saturating_sub(16)]),
        ];
        let mut entry = [0; 64];
        // Type, lengths, first mailboxes, token, owner (Linux `core/cmd.c`).
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&boxes[0].to_be_bytes());
        let inline = input.len().min(16);
        entry[16..16 + inline].copy_from_slice(&input[..inline]);
        entry[48..56].copy_from_slice(&boxes[1].to_be_bytes());
        entry[56..60].copy_from_slice(&(len as u32).to_be_bytes());
        entry[60] = TOKEN;
        entry[63] = 1;
        edit(&mut entry);
        let at = self.page(CMDQ);
        self.arena.write(at, &entry).unwrap();
        self.function.bar_write(CMD_DBELL, &1u32.to_be_bytes());
        // Without the owner bit the device never had the entry. The command's output may have been
        // written over it.
        let given_back = self.arena.bytes(at + 63, 1)[0] & 1 == 0;
        assert!(given_back || boxes_moved(&entry, boxes), "a command was not given back");
    }

    /// Writes a chain of mailboxes.
    fn mailboxes(&self, page: u64, data: &[u8]) -> u64 {
        let first = self.page(page);
        let count = data.len().div_ceil(512).min(MAILBOXES);
        for (number, part) in data.chunks(512).take(count).enumerate() {
            let at = first + 1024 * number as u64;
            let mut mailbox = [0; 576];
            mailbox[..part.len()].copy_from_slice(part);
            let next = if number + 1 == count { 0 } else { at + 1024 };
            mailbox[560..568].copy_from_slice(&next.to_be_bytes());
            mailbox[568..572].copy_from_slice(&(number as u32).to_be_bytes());
            mailbox[573] = TOKEN;
            self.arena.write(at, &mailbox).unwrap();
        }
        if count == 0 { 0 } else { first }
    }

    /// A work request that is valid if the queue is of the right kind.
    fn work(&self, queue: usize, kind: usize, len: u16) -> Vec<u8> {
        let Queue { number, posted, .. } = self.queues[queue];
        let (from, to) = (self.page(DATA), self.page(DATA + 4));
        let all = Key(self.objects.mkey as u32);
        // Addresses of the list begin at 0.
        let listed = len >> 15 != 0;
        let (key, near, far) = if listed { (Key(self.list), 0, 0) } else { (all, from, to) };
        let len = u32::from(len & 0x0fff);
        if kind == 5 {
            return self.bind(len);
        }
        let mut wr = match kind {
            1 => Wr::new(Opcode::RDMA_WRITE_IMM),
            2 => Wr::new(Opcode::RDMA_READ),
            3 => Wr::new(Opcode::ATOMIC_FA).atomic(1, 0),
            4 => Wr::new(Opcode::MMO),
            _ => Wr::new(Opcode::SEND_IMM),
        };
        wr.remote = (1..4).contains(&kind).then_some((far, key.0));
        let len = if kind == 3 { 8 } else { len };
        wr.list.push((near.wrapping_sub(IOVA), len, key));
        if kind == 4 {
            wr.list.push((to.wrapping_sub(IOVA), len, all));
            wr.address = vec![0; 16];
        } else if queue < 2 {
            wr.address = self.address(queue, kind == 6);
        }
        let mut bytes = wr.bytes(Qpn(number), posted);
        bytes[0] = if kind == 4 { MLX5_OPC_MOD_MMO_DMA } else { 0 };
        bytes
    }

    /// Address segment of datagrams and DC messages: to this guest, or to the other.
    fn address(&self, queue: usize, other: bool) -> Vec<u8> {
        let mut av = mlx5_wqe_av { rlid: U16::new(self.lid), ..mlx5_wqe_av::default() };
        if other {
            av.rlid = U16::new(3 - self.lid);
        }
        // The objects of both guests have equal numbers.
        let number = if queue == 0 { self.queues[0].number } else { self.target };
        av.dqp_dct = U32::new(DqpDct::ZERO.with_ext(true).with_qpn(number).0);
        if queue == 0 {
            av.key.qkey = U32::new(self.qkey());
        } else {
            av.set_dc_key(self.dc_key());
        }
        av.as_bytes().to_vec()
    }

    /// A UMR WQE that makes the free key a list of four parts of `len` bytes. For an odd `len` the
    /// first part is the list itself.
    fn bind(&self, len: u32) -> Vec<u8> {
        let Queue { number, posted, .. } = self.queues[2];
        // Flags: must be free; inline. Mask bits by Linux's include/linux/mlx5/qp.h: length, start,
        // variant, QPN, rights, free.
        let change = mlx5_wqe_umr_ctrl_seg {
            flags: 0xa0,
            klm_octowords: U16::new(4),
            mkey_mask: U64::new(1 | 1 << 6 | 1 << 13 | 1 << 14 | 0xf << 18 | 1 << 29),
            ..Default::default()
        };
        let context = mlx5_wqe_mkey_context_seg {
            // Local and remote access rights.
            access_flags: 0x3c,
            qpn_mkey: U32::new(0xff_ffff << 8),
            len: U64::new(4 * u64::from(len)),
            ..Default::default()
        };
        let mut body = [change.as_bytes(), context.as_bytes()].concat();
        for part in 0..4 {
            let own = part == 0 && len % 2 == 1;
            let (key, at) = match own {
                true => (self.list, 0),
                false => (self.objects.mkey as u32, self.page(DATA + part)),
            };
            let part = mlx5_wqe_umr_klm_seg {
                byte_count: U32::new(len),
                mkey: U32::new(key),
                address: U64::new(at),
            };
            body.extend(part.as_bytes());
        }
        let mut wr = Wr::new(Opcode::UMR).imm(self.list);
        wr.address = body;
        wr.bytes(Qpn(number), posted)
    }

    /// Writes a work request into a ring, and rings the doorbell.
    fn post(&mut self, at: usize, bytes: &[u8], ring: bool) {
        let (arena, queue) = (&self.arena, &mut self.queues[at]);
        for block in bytes.chunks(64) {
            let slot = u64::from(queue.posted % BLOCKS);
            arena.write(queue.sq + 64 * slot, block).unwrap();
            queue.posted = queue.posted.wrapping_add(1);
        }
        arena.write(queue.record + 4, &u32::from(queue.posted).to_be_bytes()).unwrap();
        if let Some(word) = bytes.first_chunk::<8>().filter(|_| ring) {
            self.function.bar_write(self.objects.uar * PAGE + 0x800, word);
        }
    }

    /// Posts a receive: to UD, to RC, or to the SRQ.
    fn receive(&mut self, at: usize, len: u32) {
        let mut segment = len.to_be_bytes().to_vec();
        segment.extend((self.objects.mkey as u32).to_be_bytes());
        segment.extend(self.page(DATA + 4).to_be_bytes());
        if at == 3 {
            let slot = u64::from(self.shared % 16);
            self.arena.write(self.page(6) + 32 * slot + 16, &segment).unwrap();
            self.shared = self.shared.wrapping_add(1);
            let record = self.page(7);
            self.arena.write(record, &u32::from(self.shared).to_be_bytes()).unwrap();
        } else if at != 1 {
            let queue = &mut self.queues[at];
            // 16 WQEs of 16 bytes, before the send ring.
            let slot = queue.sq - 256 + 16 * u64::from(queue.received % 16);
            self.arena.write(slot, &segment).unwrap();
            queue.received = queue.received.wrapping_add(1);
            self.arena.write(queue.record, &u32::from(queue.received).to_be_bytes()).unwrap();
        }
    }
}

/// True if the output address of the entry was changed, so that the device may have written over
/// the entry.
fn boxes_moved(entry: &[u8; 64], [_, output]: [u64; 2]) -> bool {
    entry[48..56] != output.to_be_bytes()
}
