//! Senders and receivers of Ethernet frames, and a flow table, that were created by commands.

use uverbs_mlx5_prm::cmd::flow::{self, fte_match_param, fte_match_set_lyr_2_4};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::rq::wq;
use uverbs_mlx5_prm::cmd::{simple, sq, steering};

use crate::driver::{Cq, Driver, with_page};

/// Inline bytes of a frame.
pub(crate) const INLINE: usize = 18;
/// Bytes of a receive.
pub(crate) const ROOM: u32 = 2048;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// A send queue, a receive queue, and its TIR.
pub(crate) struct Station {
    pub(crate) domain: u32,
    pub(crate) sqn: u32,
    pub(crate) send_ring: u64,
    pub(crate) record: u64,
    pub(crate) sent: u32,
    pub(crate) rqn: u32,
    pub(crate) receive_ring: u64,
    pub(crate) receive_record: u64,
    pub(crate) received: u32,
    /// Buffers of the receives, and memory of a sent frame's bytes that are not inline.
    pub(crate) buffers: u64,
    pub(crate) rest: u64,
    pub(crate) tirn: u32,
    pub(crate) cq: Cq,
}

pub(crate) fn modify(
    driver: &mut Driver,
    opcode: CmdOpcode,
    number: u32,
    from: u64,
    to: u64,
) -> CmdStatus {
    // SQs and RQs have their states at equal offsets.
    let mut input = [0; sq::modify_sq_in::SIZE];
    sq::modify_sq_in::SQN.set(&mut input, number.into());
    sq::modify_sq_in::SQ_STATE.set(&mut input, from);
    sq::sqc::STATE.set(sq::modify_sq_in::CTX.of_mut(&mut input), to);
    driver.run(opcode, 0, &input, 16).0
}

pub(crate) fn number(output: &[u8]) -> u32 {
    sq::create_sq_out::SQN.get32(output)
}

impl Station {
    pub(crate) fn new(driver: &mut Driver, eqn: u32) -> Self {
        let domain = driver.ok(CmdOpcode::ALLOC_TRANSPORT_DOMAIN, 0, &[0; 16], 16);
        let domain = simple::alloc_transport_domain_out::TRANSPORT_DOMAIN.get32(&domain);
        let mut tis = [0; steering::create_tis_in::SIZE];
        let context = steering::create_tis_in::CTX.of_mut(&mut tis);
        steering::tisc::TRANSPORT_DOMAIN.set(context, domain.into());
        let tisn = number(&driver.ok(CmdOpcode::CREATE_TIS, 0, &tis, 16));
        let cq = driver.cq(eqn);
        let (send_ring, record) = (driver.page(), driver.page());
        let (receive_ring, receive_record) = (driver.page(), driver.page());
        let mut input = with_page(sq::create_sq_in::SIZE, send_ring);
        let context = sq::create_sq_in::CTX.of_mut(&mut input);
        sq::sqc::CQN.set(context, cq.number.into());
        sq::sqc::USER_INDEX.set(context, 0x55);
        sq::sqc::TIS_LST_SZ.set(context, 1);
        sq::sqc::TIS_NUM_0.set(context, tisn.into());
        ring(driver, sq::sqc::WQ.of_mut(context), 6, record);
        let sqn = number(&driver.ok(CmdOpcode::CREATE_SQ, 0, &input, 16));
        assert_eq!(modify(driver, CmdOpcode::MODIFY_SQ, sqn, 0, 1), CmdStatus::OK);
        let rqn = receive_queue(driver, &cq, receive_ring, receive_record, true);
        assert_eq!(modify(driver, CmdOpcode::MODIFY_RQ, rqn, 0, 1), CmdStatus::OK);
        let tirn = tir(driver, domain, rqn);
        let (buffers, rest) = (driver.page(), driver.page());
        for _ in 0..15 {
            driver.page();
        }
        Station {
            domain,
            sqn,
            send_ring,
            record,
            sent: 0,
            rqn,
            receive_ring,
            receive_record,
            received: 0,
            buffers: rest + 4096,
            rest: buffers,
            tirn,
            cq,
        }
    }

    /// Posts a receive of one SGE.
    pub(crate) fn post(&mut self, driver: &Driver, room: u32) {
        let slot = u64::from(self.received % 16);
        let mut wqe = room.to_be_bytes().to_vec();
        wqe.extend(driver.lkey.to_be_bytes());
        wqe.extend((self.buffers + slot * u64::from(ROOM)).to_be_bytes());
        driver.host.write(self.receive_ring + 16 * slot, &wqe);
        self.received += 1;
        driver.host.write(self.receive_record, &self.received.to_be_bytes());
    }

    /// Takes a receive completion. Returns the received bytes and the CQE.
    pub(crate) fn arrival(&mut self, driver: &mut Driver) -> (Vec<u8>, Vec<u8>) {
        let cqe = driver.poll(&mut self.cq);
        assert_eq!(cqe[63] >> 4, 2, "a message came: {cqe:x?}");
        let slot = u64::from(u16::from_be_bytes([cqe[60], cqe[61]]) % 16);
        let len = u32::from_be_bytes(cqe[44..48].try_into().unwrap()) as usize;
        (driver.host.read(self.buffers + slot * u64::from(ROOM), len), cqe)
    }

    /// Sends a frame and takes its completion. `flags`: checksum flags.
    pub(crate) fn send(&mut self, driver: &mut Driver, frame: &[u8], flags: u8) {
        let mut segment = [0; 32];
        segment[4] = flags;
        segment[13] = INLINE as u8;
        segment[14..].copy_from_slice(&frame[..INLINE]);
        self.send_wqe(driver, 0x0a, &segment, &frame[INLINE..]);
        let cqe = driver.poll(&mut self.cq);
        assert_eq!((cqe[63] >> 4, cqe[35]), (0, 0x55), "a send of ours completed: {cqe:x?}");
    }

    /// Writes a WQE: opcode, Ethernet segment with inline header, and the rest of the frame.
    pub(crate) fn send_wqe(
        &mut self,
        driver: &mut Driver,
        opcode: u32,
        ethernet: &[u8],
        rest: &[u8],
    ) {
        driver.host.write(self.rest, rest);
        let segments = 2 + ethernet.len() as u32 / 16;
        let mut wqe = ((self.sent & 0xffff) << 8 | opcode).to_be_bytes().to_vec();
        wqe.extend((self.sqn << 8 | segments).to_be_bytes());
        wqe.extend([0, 0, 0, 8, 0, 0, 0, 0]);
        wqe.extend(ethernet);
        wqe.extend((rest.len() as u32).to_be_bytes());
        wqe.extend(driver.lkey.to_be_bytes());
        wqe.extend(self.rest.to_be_bytes());
        // The ring has 16 WQEBBs; a WQE of several may wrap around its end.
        for (part, bytes) in wqe.chunks(64).enumerate() {
            let slot = (u64::from(self.sent) + part as u64) % 16;
            driver.host.write(self.send_ring + 64 * slot, bytes);
        }
        let doorbell = u64::from_be_bytes(wqe[..8].try_into().unwrap());
        self.sent += wqe.len().div_ceil(64) as u32;
        driver.host.write(self.record + 4, &self.sent.to_be_bytes());
        driver.host.ring(u64::from(driver.uar) * 4096 + 0x800, doorbell);
    }
}

/// Context of a ring of 16 entries.
pub(crate) fn ring(driver: &Driver, queue: &mut [u8], log_stride: u64, record: u64) {
    wq::WQ_TYPE.set(queue, 1);
    wq::LOG_WQ_STRIDE.set(queue, log_stride);
    wq::LOG_WQ_SZ.set(queue, 4);
    wq::UAR_PAGE.set(queue, driver.uar.into());
    wq::PD.set(queue, driver.pd.into());
    wq::DBR_ADDR.set(queue, record);
}

pub(crate) fn receive_queue(
    driver: &mut Driver,
    cq: &Cq,
    at: u64,
    record: u64,
    keeps_vlan: bool,
) -> u32 {
    let mut input = with_page(sq::create_rq_in::SIZE, at);
    let context = sq::create_rq_in::CTX.of_mut(&mut input);
    sq::rqc::CQN.set(context, cq.number.into());
    sq::rqc::USER_INDEX.set(context, 0x66);
    sq::rqc::VSD.set(context, keeps_vlan.into());
    ring(driver, sq::rqc::WQ.of_mut(context), 4, record);
    number(&driver.ok(CmdOpcode::CREATE_RQ, 0, &input, 16))
}

pub(crate) fn tir(driver: &mut Driver, domain: u32, rqn: u32) -> u32 {
    let mut input = [0; steering::create_tir_in::SIZE];
    let context = steering::create_tir_in::CTX.of_mut(&mut input);
    steering::tirc::TRANSPORT_DOMAIN.set(context, domain.into());
    steering::tirc::INLINE_RQN.set(context, rqn.into());
    number(&driver.ok(CmdOpcode::CREATE_TIR, 0, &input, 16))
}

/// A root table of 16 entries, with a group that matches the destination MAC.
pub(crate) struct Table {
    pub(crate) number: u32,
    pub(crate) group: u32,
}

impl Table {
    pub(crate) fn root(driver: &mut Driver) -> Self {
        let mut input = [0; flow::create_flow_table_in::SIZE];
        let context = flow::create_flow_table_in::FLOW_TABLE_CONTEXT.of_mut(&mut input);
        flow::flow_table_context::LOG_SIZE.set(context, 4);
        let table = number(&driver.ok(CmdOpcode::CREATE_FLOW_TABLE, 0, &input, 16));
        let mut input = [0; flow::set_flow_table_root_in::SIZE];
        flow::set_flow_table_root_in::TABLE_ID.set(&mut input, table.into());
        driver.ok(CmdOpcode::SET_FLOW_TABLE_ROOT, 0, &input, 16);
        let mut input = [0; flow::create_flow_group_in::SIZE];
        flow::create_flow_group_in::TABLE_ID.set(&mut input, table.into());
        flow::create_flow_group_in::END_FLOW_INDEX.set(&mut input, 15);
        flow::create_flow_group_in::MATCH_CRITERIA_ENABLE.set(&mut input, 1);
        let criteria = flow::create_flow_group_in::MATCH_CRITERIA.of_mut(&mut input);
        address(criteria, [0xff; 6]);
        let group = number(&driver.ok(CmdOpcode::CREATE_FLOW_GROUP, 0, &input, 16));
        Table { number: table, group }
    }

    /// Input of an entry: frames to `dmac` go to the TIR, if one is given, and are counted, if a
    /// counter is given.
    pub(crate) fn entry(
        &self,
        index: u32,
        dmac: [u8; 6],
        tirn: Option<u32>,
        counter: Option<u32>,
    ) -> Vec<u8> {
        let mut input = vec![0; flow::set_fte_in::SIZE];
        flow::set_fte_in::TABLE_ID.set(&mut input, self.number.into());
        flow::set_fte_in::FLOW_INDEX.set(&mut input, index.into());
        let context = flow::set_fte_in::FLOW_CONTEXT.of_mut(&mut input);
        flow::flow_context::GROUP_ID.set(context, self.group.into());
        flow::flow_context::FLOW_TAG.set(context, 0xabc);
        let (mut action, mut lists) = (2, Vec::new());
        if let Some(tirn) = tirn {
            action = 4;
            flow::flow_context::DESTINATION_LIST_SIZE.set(context, 1);
            lists.extend((2 << 24 | tirn).to_be_bytes());
            lists.extend([0; 4]);
        }
        if let Some(counter) = counter {
            action |= 8;
            flow::flow_context::FLOW_COUNTER_LIST_SIZE.set(context, 1);
            lists.extend(counter.to_be_bytes());
            lists.extend([0; 4]);
        }
        flow::flow_context::ACTION.set(context, action);
        address(flow::flow_context::MATCH_VALUE.of_mut(context), dmac);
        input.extend(lists);
        input
    }

    pub(crate) fn add(&self, driver: &mut Driver, index: u32, dmac: [u8; 6], station: &Station) {
        let input = self.entry(index, dmac, Some(station.tirn), None);
        driver.ok(CmdOpcode::SET_FLOW_TABLE_ENTRY, 0, &input, 16);
    }
}

pub(crate) fn address(param: &mut [u8], mac: [u8; 6]) {
    let outer = fte_match_param::OUTER_HEADERS.of_mut(param);
    let [a, b, c, d, e, f] = mac.map(u64::from);
    fte_match_set_lyr_2_4::DMAC_47_16.set(outer, a << 24 | b << 16 | c << 8 | d);
    fte_match_set_lyr_2_4::DMAC_15_0.set(outer, e << 8 | f);
}

/// An IPv4 packet from 10.0.0.2 to 10.0.0.1, with zero checksums.
pub(crate) fn packet(dmac: [u8; 6], tag: Option<u16>, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut l4 = vec![0x12, 0x34, 0, 53];
    match protocol {
        TCP => l4.extend([0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]),
        _ => l4.extend([0, 8 + payload.len() as u8, 0, 0]),
    }
    l4.extend(payload);
    let mut frame = [&dmac[..], &[2, 0, 0, 0, 0, 2]].concat();
    if let Some(tag) = tag {
        frame.extend([0x81, 0]);
        frame.extend(tag.to_be_bytes());
    }
    frame.extend([8, 0, 0x45, 0, 0, 20 + l4.len() as u8, 0, 7, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend([10, 0, 0, 2, 10, 0, 0, 1]);
    frame.extend(l4);
    frame
}

/// RFC 1071's sum; 0xffff for bytes that include their checksum.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let mut total: u32 = 0;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        total = (total >> 16) + (total & 0xffff);
    }
    total
}

pub(crate) const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
pub(crate) const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
pub(crate) const EVERYBODY: [u8; 6] = [0xff; 6];

/// Two stations in separate transport domains, and a table.
pub(crate) fn scene() -> (Driver, Station, Station, Table) {
    let mut driver = Driver::ethernet();
    let eqn = driver.eq(1, 0);
    let a = Station::new(&mut driver, eqn);
    let b = Station::new(&mut driver, eqn);
    let table = Table::root(&mut driver);
    (driver, a, b, table)
}
