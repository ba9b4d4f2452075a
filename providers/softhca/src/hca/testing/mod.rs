//! A rig for unit tests: hosts with memory, queue pairs with hand-written WQEs, and a clock that
//! moves only when asked.
#![cfg_attr(fuzzing, allow(dead_code, reason = "fuzzers use some of it"))]

use std::time::Duration;
use uverbs_front::backend::context::{
    Access, AddressVector, CqContext, CqeScatter, DciStreams, Mtu, QpAttrs, QpContext, QpState,
    QpTransition, RqContext, Service, SqContext, SrqContext, XrcSrq,
};
use uverbs_front::backend::region::Region;

use uverbs_mlx5_prm::cqe::mlx5_cqe64;
use uverbs_mlx5_prm::ctrl::{FmCeSe, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::data::{inline_bytes, mlx5_wqe_data_seg, mlx5_wqe_inline_seg};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::remote::{mlx5_wqe_atomic_seg, mlx5_wqe_raddr_seg};
use zerocopy::{FromBytes, IntoBytes};

mod host;
mod wr;

pub(crate) use self::host::Host;
pub(crate) use self::wr::Wr;
pub(crate) use super::arena::Arena;
use super::arena::BASE;
use super::*;
use crate::wire::{Address, Fabric, Faults, Faulty, LinkControl, Psn, Wire};
use uverbs_front::backend::number::{Cqn, Key, Pdn, Qpn, Srqn, UarNumber};

/// Bytes of each host's registered buffer, and the address of its first byte under the keys.
///
/// Smaller for fuzzers, which create hosts all the time.
pub(crate) const BUF_LEN: u64 = if cfg!(fuzzing) { 0x9000 } else { 6 << 20 };
pub(crate) const IOVA: u64 = 0x7f12_3456_7000;
pub(crate) const PD: Pdn = Pdn(5);
pub(crate) const UAR: UarNumber = UarNumber(3);
const ARENA_LEN: usize = if cfg!(fuzzing) { 1 << 18 } else { 8 << 20 };

/// A CQ as a driver keeps it.
#[derive(Clone, Debug)]
pub(crate) struct TestCq {
    pub(crate) cqn: Cqn,
    pub(crate) addr: u64,
    pub(crate) log: u8,
    pub(crate) record: u64,
    pub(crate) ci: u32,
    pub(crate) size: u64,
}

/// A QP as a driver keeps it.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) host: usize,
    pub(crate) qpn: Qpn,
    pub(crate) send_cq: TestCq,
    pub(crate) recv_cq: TestCq,
    pub(crate) sq: u64,
    pub(crate) sq_log: u8,
    pub(crate) posted: u16,
    pub(crate) rq: u64,
    pub(crate) rq_log: u8,
    pub(crate) received: u16,
    pub(crate) record: u64,
}

/// An SRQ as a driver keeps it: a list of free slots, taken from the head and returned at the tail.
#[derive(Clone, Debug)]
pub(crate) struct TestSrq {
    pub(crate) host: usize,
    pub(crate) srqn: Srqn,
    ring: u64,
    record: u64,
    posted: u16,
    head: u16,
    tail: u16,
}

/// Bytes of an SRQ WQE: link and three data segments.
const SRQ_STRIDE: u64 = 64;

/// Data segments in a receive WQE.
pub(crate) const RECV_SEGS: usize = 4;

/// A CQE, decoded by test code independent of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) kind: u8,
    pub(crate) qpn: Qpn,
    pub(crate) sop: u8,
    pub(crate) counter: u16,
    pub(crate) bytes: u32,
    pub(crate) imm: u32,
    pub(crate) syndrome: u8,
    pub(crate) vendor: u8,
    pub(crate) solicited: bool,
    pub(crate) user_index: u32,
    pub(crate) rqpn: Qpn,
    /// Bits 31:24 of `flags_rqpn`.
    pub(crate) route: u8,
}

/// Hosts on one fabric.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) hosts: Vec<Host>,
    pub(crate) fabric: Fabric,
    pub(crate) now: Duration,
    /// Completion queues write slots whole (`CqContext::padded`).
    pub(crate) padded: bool,
}

/// Parameters of a test's QPs.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) attrs: QpAttrs,
    pub(crate) sq_log: u8,
    pub(crate) rq_log: u8,
    pub(crate) cq_log: u8,
    pub(crate) cqe_size: u32,
    pub(crate) service: Service,
    pub(crate) srq: Option<Srqn>,
    pub(crate) xrcd: u32,
    pub(crate) pd: Pdn,
    pub(crate) special: Option<u32>,
    /// Limit of payloads in CQEs, in bytes.
    pub(crate) scatter: u8,
    pub(crate) streams: Option<DciStreams>,
}

impl Default for Setup {
    fn default() -> Setup {
        let attrs = QpAttrs {
            access: Access::all(),
            path_mtu: Mtu::B1024,
            rq_psn: Psn::new(0x1234),
            sq_psn: Psn::new(0x1234),
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttrs::default()
        };
        let (service, srq, xrcd, pd) = (Service::Rc, None, 0, PD);
        let special = None;
        Setup {
            attrs,
            sq_log: 6,
            rq_log: 6,
            cq_log: 8,
            cqe_size: 64,
            service,
            srq,
            xrcd,
            pd,
            special,
            scatter: 0,
            streams: None,
        }
    }
}

impl Rig {
    pub(crate) fn new(hosts: usize) -> Rig {
        Rig::with(hosts, HcaConfig::default(), Faults::default(), 1)
    }

    pub(crate) fn with(hosts: usize, config: HcaConfig, faults: Faults, seed: u64) -> Rig {
        Rig::on(Fabric::new(), hosts, config, faults, seed)
    }

    pub(crate) fn on(
        fabric: Fabric,
        hosts: usize,
        config: HcaConfig,
        faults: Faults,
        seed: u64,
    ) -> Rig {
        let hosts = (0..hosts)
            .map(|n| {
                let mut gid = [0; 16];
                gid[0] = 0xfe;
                gid[15] = n as u8 + 1;
                let address = Address { gid, lid: 0 };
                let port = fabric.attach(&[address]);
                let link = port.link_control();
                // The faulty wire has a queue inside; without faults the port's queue is the one
                // that fills up.
                let wire: Box<dyn Wire> = match faults == Faults::default() {
                    true => Box::new(port),
                    false => Box::new(Faulty::new(port, seed + n as u64, faults)),
                };
                Host::on(wire, address, link, &config)
            })
            .collect();
        Rig { hosts, fabric, now: Duration::ZERO, padded: false }
    }

    pub(crate) fn cq(&mut self, host: usize, log: u8, cqe_size: u32) -> TestCq {
        let padded = self.padded;
        let host = &mut self.hosts[host];
        let size = u64::from(cqe_size);
        let addr = host.alloc(size << log, 4096);
        for n in 0..1u64 << log {
            let last = addr + (n + 1) * size - 1;
            host.arena.store_u8(last, 0xf1).unwrap();
        }
        let record = host.alloc(8, 8);
        let region = Region::Flat { addr, len: size << log };
        let ctx = CqContext {
            region,
            log_entries: log,
            cqe_size,
            doorbell_record: record,
            uar: UAR,
            overrun_ignore: false,
            padded,
            compressed: None,
        };
        let cqn = host.hca.create_cq(ctx).unwrap();
        TestCq { cqn, addr, log, record, ci: 0, size }
    }

    /// Creates a QP in RESET.
    pub(crate) fn end(&mut self, host: usize, setup: &Setup) -> End {
        let send_cq = self.cq(host, setup.cq_log, setup.cqe_size);
        let recv_cq = self.cq(host, setup.cq_log, setup.cqe_size);
        let at = &mut self.hosts[host];
        let sq = at.alloc(64 << setup.sq_log, 4096);
        let stride_shift = (RECV_SEGS * 16).trailing_zeros() as u8;
        let rq_len = 1u64 << (setup.rq_log + stride_shift);
        let rq = at.alloc(rq_len, 4096);
        let record = at.alloc(8, 8);
        let ctx = QpContext {
            recv_cq: recv_cq.cqn,
            sq: Some(SqContext {
                region: Region::Flat { addr: sq, len: 64 << setup.sq_log },
                log_wqebbs: setup.sq_log,
            }),
            rq: (setup.srq.is_none() && !matches!(setup.service, Service::Xrc | Service::Dci))
                .then_some(RqContext {
                    region: Region::Flat { addr: rq, len: rq_len },
                    log_entries: setup.rq_log,
                    stride_shift,
                }),
            srq: setup.srq,
            xrcd: setup.xrcd,
            doorbell_record: record,
            uar: UAR,
            user_index: 0xabc,
            scatter: CqeScatter { requester: setup.scatter, responder: setup.scatter },
            special: setup.special,
            deth_sqpn: setup.special.map(Qpn),
            privileged: setup.service == Service::Umr,
            streams: setup.streams,
            ..QpContext::bare(setup.service, setup.pd, send_cq.cqn)
        };
        let qpn = at.hca.create_qp(ctx).unwrap();
        let (sq_log, rq_log) = (setup.sq_log, setup.rq_log);
        End { host, qpn, send_cq, recv_cq, sq, sq_log, posted: 0, rq, rq_log, received: 0, record }
    }

    /// Moves a QP from RESET to RTS.
    pub(crate) fn connect(&mut self, end: &End, peer: (usize, u32), attrs: &QpAttrs) {
        let (src, dst) = (self.hosts[end.host].address, self.hosts[peer.0].address);
        let path = AddressVector { src, dst, ..attrs.path };
        let attrs = QpAttrs { dest_qpn: Qpn(peer.1), path, ..*attrs };
        let hca = &mut self.hosts[end.host].hca;
        for to in [QpTransition::RstToInit, QpTransition::InitToRtr, QpTransition::RtrToRts] {
            hca.modify_qp(end.qpn, to, &attrs).unwrap();
        }
    }

    /// Creates two connected QPs, on the first and on the last host.
    pub(crate) fn pair(&mut self, setup: &Setup) -> (End, End) {
        let last = self.hosts.len() - 1;
        let (a, b) = (self.end(0, setup), self.end(last, setup));
        self.connect(&a, (last, b.qpn.0), &setup.attrs);
        self.connect(&b, (0, a.qpn.0), &setup.attrs);
        (a, b)
    }

    /// Writes a WQE into the ring, without a doorbell.
    pub(crate) fn write_wqe(&mut self, end: &mut End, bytes: &[u8]) -> u16 {
        let ring = 64u64 << end.sq_log;
        let start = u64::from(end.posted) * 64;
        let arena = &self.hosts[end.host].arena;
        for (n, chunk) in bytes.chunks(16).enumerate() {
            arena.write(end.sq + (start + n as u64 * 16) % ring, chunk).unwrap();
        }
        let index = end.posted;
        end.posted = end.posted.wrapping_add(bytes.len().div_ceil(64).max(1) as u16);
        index
    }

    pub(crate) fn write_wr(&mut self, end: &mut End, wr: &Wr) -> u16 {
        let bytes = wr.bytes(end.qpn, end.posted);
        self.write_wqe(end, &bytes)
    }

    /// Publishes all written WQEs: doorbell record, then doorbell.
    pub(crate) fn ring(&mut self, end: &End) {
        let host = &mut self.hosts[end.host];
        host.store(end.record + 4, end.posted.into());
        let index = u64::from(end.posted.wrapping_sub(1));
        let value = index << 40 | u64::from(end.qpn.0) << 8 | 1;
        host.hca.doorbell(UAR, 0x800, value);
    }

    pub(crate) fn post(&mut self, end: &mut End, wr: &Wr) -> u16 {
        let index = self.write_wr(end, wr);
        self.ring(end);
        index
    }

    /// Posts an operation that has no WQE.
    pub(crate) fn place(&mut self, end: &mut End, srqn: u32, op: Placement, wr: &Wr) -> u16 {
        self.hosts[end.host].hca.place(end.qpn, end.posted, Srqn(srqn), op).unwrap();
        self.post(end, wr)
    }

    /// Posts a receive of at most RECV_SEGS SGEs (offset, bytes, key).
    pub(crate) fn receive(&mut self, end: &mut End, list: &[(u64, u32, Key)]) {
        let mut bytes = Vec::new();
        for &(offset, len, key) in list {
            bytes.extend_from_slice(
                mlx5_wqe_data_seg::new(len, key.0, IOVA.wrapping_add(offset)).as_bytes(),
            );
        }
        if list.len() < RECV_SEGS {
            bytes.extend_from_slice(mlx5_wqe_data_seg::TERMINATOR.as_bytes());
        }
        let slot = u64::from(end.received) & ((1 << end.rq_log) - 1);
        let host = &self.hosts[end.host];
        host.arena.write(end.rq + slot * (RECV_SEGS as u64 * 16), &bytes).unwrap();
        end.received = end.received.wrapping_add(1);
        host.store(end.record, end.received.into());
    }

    pub(crate) fn srq(&mut self, host: usize, log: u8, limit: u16, xrc: Option<XrcSrq>) -> TestSrq {
        self.srq_with(host, log, |context| {
            context.limit = limit;
            context.xrc = xrc;
        })
    }

    pub(crate) fn srq_with(
        &mut self,
        host: usize,
        log: u8,
        change: impl FnOnce(&mut SrqContext),
    ) -> TestSrq {
        let at = &mut self.hosts[host];
        let ring = at.alloc(SRQ_STRIDE << log, 4096);
        let record = at.alloc(8, 8);
        let slots = 1u16 << log;
        for slot in 0..slots {
            let next = (slot + 1) % slots;
            at.arena.write(ring + u64::from(slot) * SRQ_STRIDE + 2, &next.to_be_bytes()).unwrap();
        }
        let mut ctx = SrqContext {
            pd: PD,
            region: Region::Flat { addr: ring, len: SRQ_STRIDE << log },
            log_entries: log,
            stride_shift: SRQ_STRIDE.trailing_zeros() as u8,
            doorbell_record: record,
            limit: 0,
            xrc: None,
            tags: None,
        };
        change(&mut ctx);
        let srqn = at.hca.create_srq(ctx).unwrap();
        TestSrq { host, srqn, ring, record, posted: 0, head: 0, tail: slots - 1 }
    }

    /// Posts a receive. Returns its slot.
    pub(crate) fn receive_shared(&mut self, srq: &mut TestSrq, list: &[(u64, u32, Key)]) -> u16 {
        let at = srq.ring + u64::from(srq.head) * SRQ_STRIDE;
        let mut bytes = Vec::new();
        for &(offset, len, key) in list {
            bytes.extend_from_slice(
                mlx5_wqe_data_seg::new(len, key.0, IOVA.wrapping_add(offset)).as_bytes(),
            );
        }
        bytes.extend_from_slice(mlx5_wqe_data_seg::TERMINATOR.as_bytes());
        let host = &self.hosts[srq.host];
        host.arena.write(at + 16, &bytes).unwrap();
        let slot = srq.head;
        assert_ne!(slot, srq.tail, "the SRQ is full");
        let next = host.arena.bytes(at + 2, 2);
        srq.head = u16::from_be_bytes([next[0], next[1]]);
        srq.posted = srq.posted.wrapping_add(1);
        host.store(srq.record, srq.posted.into());
        slot
    }

    /// Sets the link of slot `slot` to `next`.
    pub(crate) fn break_link(&mut self, srq: &TestSrq, slot: u16, next: u16) {
        let at = srq.ring + u64::from(slot) * SRQ_STRIDE + 2;
        self.hosts[srq.host].arena.write(at, &next.to_be_bytes()).unwrap();
    }

    /// Returns a completed slot to the list.
    pub(crate) fn free_shared(&mut self, srq: &mut TestSrq, slot: u16) {
        let at = srq.ring + u64::from(srq.tail) * SRQ_STRIDE;
        self.hosts[srq.host].arena.write(at + 2, &slot.to_be_bytes()).unwrap();
        srq.tail = slot;
    }

    /// Steps all devices until none has work and no timer is due before `until`.
    pub(crate) fn run_until(&mut self, until: Duration) {
        for _ in 0..2_000_000u32 {
            let mut busy = false;
            for host in &mut self.hosts {
                busy |= host.hca.step(self.now);
            }
            if busy {
                continue;
            }
            match self.hosts.iter().filter_map(|host| host.hca.next_deadline()).min() {
                Some(next) if next <= until => self.now = self.now.max(next),
                _ => return,
            }
        }
        panic!("the devices do not come to rest");
    }

    /// Runs ten minutes of the rig's time: longer than any retry takes.
    pub(crate) fn run(&mut self) {
        self.run_until(self.now + Duration::from_secs(600));
    }

    /// Returns the next CQE undecoded.
    pub(crate) fn entry(&mut self, host: usize, cq: &mut TestCq) -> Option<mlx5_cqe64> {
        let host = &self.hosts[host];
        let slot = u64::from(cq.ci) & ((1 << cq.log) - 1);
        let bytes = host.arena.bytes(cq.addr + slot * cq.size + cq.size - 64, 64);
        let lap = (cq.ci >> cq.log) as u8 & 1;
        let op_own = bytes[63];
        if op_own >> 4 == 0xf || op_own & 1 != lap {
            return None;
        }
        cq.ci += 1;
        host.store(cq.record, cq.ci & 0xff_ffff);
        mlx5_cqe64::read_from_bytes(&bytes).ok()
    }

    pub(crate) fn poll(&mut self, host: usize, cq: &mut TestCq) -> Option<Got> {
        let cqe = self.entry(host, cq)?;
        let (err, op_own) = (cqe.as_err(), cqe.op_own);
        let kind = op_own >> 4;
        let failed = kind >= 13;
        Some(Got {
            kind,
            qpn: Qpn(cqe.sop_drop_qpn.get() & 0xff_ffff),
            sop: (cqe.sop_drop_qpn.get() >> 24) as u8,
            counter: cqe.wqe_counter.get(),
            bytes: if failed { 0 } else { cqe.byte_cnt.get() },
            imm: cqe.imm_inval_pkey.get(),
            syndrome: if failed { err.syndrome } else { 0 },
            vendor: if failed { err.vendor_err_synd } else { 0 },
            solicited: op_own & 2 != 0,
            user_index: cqe.srqn_uidx.get(),
            rqpn: Qpn(cqe.flags_rqpn.get() & 0xff_ffff),
            route: (cqe.flags_rqpn.get() >> 24) as u8,
        })
    }

    pub(crate) fn sent(&mut self, end: &mut End) -> Vec<Got> {
        let mut cq = end.send_cq.clone();
        let got = std::iter::from_fn(|| self.poll(end.host, &mut cq)).collect();
        end.send_cq = cq;
        got
    }

    pub(crate) fn got(&mut self, end: &mut End) -> Vec<Got> {
        let mut cq = end.recv_cq.clone();
        let got = std::iter::from_fn(|| self.poll(end.host, &mut cq)).collect();
        end.recv_cq = cq;
        got
    }

    pub(crate) fn state(&self, end: &End) -> QpState {
        self.hosts[end.host].hca.query_qp(end.qpn).unwrap().0
    }
}

/// Bytes that differ from their neighbours and between seeds.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 24) as u8
        })
        .collect()
}
