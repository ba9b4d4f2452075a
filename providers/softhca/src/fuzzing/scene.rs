//! Two devices with a connection of each service, and a bystander connection without attacks.

use std::time::Duration;

use uverbs_mlx5_prm::address::{DqpDct, GrhGidFl, mlx5_wqe_av, mlx5_wqe_xrc_seg};
use uverbs_mlx5_prm::opcode::Opcode;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

use crate::hca::testing::*;
use uverbs_front::backend::context::{Access, DctContext, Mtu, QpTransition, Service, XrcSrq};
use uverbs_front::backend::number::Key;

pub(super) const QKEY: u32 = 0x1122_3344;
pub(super) const DC_KEY: u64 = 0x0123_4567_89ab_cdef;
const XRCD: u32 = 7;
/// Offsets in the buffer: memory that peers may write; memory of the host's work requests; messages
/// of the bystander connection; memory that must not change.
pub(super) const GRANTED: u64 = 0x1000;
pub(super) const GRANTED_LEN: u64 = 0x2000;
pub(super) const OWN: u64 = 0x3000;
const OWN_LEN: u64 = 0x4000;
const SAFE: u64 = 0x7000;
const NOBODYS: [(u64, usize); 2] = [(0, 0x1000), (0x8000, 0x1000)];
const ALL: usize = 0x9000;
/// Shortest time between two congestion notifications of a queue pair (docs/WIRE.md).
const QUIET: Duration = Duration::from_micros(50);
/// Maximum message size.
const LONGEST: u32 = 0x1800;

/// Keys of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// Key for the host's queues: the bytes from [`OWN`] on.
    pub(super) own: Key,
    /// Key for peers: [`GRANTED`].
    pub(super) granted: Key,
    safe: Key,
    /// Key for peers: [`GRANTED`], with addresses from 0.
    pub(super) zero_based: Key,
}

#[derive(Debug)]
pub(super) struct Scene {
    pub(super) rig: Rig,
    pub(super) keys: [Keys; 2],
    /// A queue pair on each host, by service: RC, UC, UD, XRC, DC initiator.
    pub(super) pairs: Vec<[End; 2]>,
    /// XRC SRQ and DC target, by host.
    pub(super) srqs: [TestSrq; 2],
    pub(super) targets: [u32; 2],
    other: [End; 2],
    rounds: u64,
}

/// Services in the order of `pairs`.
pub(super) const SERVICES: [Service; 5] =
    [Service::Rc, Service::Uc, Service::Ud, Service::Xrc, Service::Dci];

impl Scene {
    pub(super) fn new() -> Scene {
        let mut rig = Rig::new(2);
        let keys = [0, 1].map(|host| {
            let host = &mut rig.hosts[host];
            host.hca.destroy_mkey(host.key).unwrap();
            let mut key = |iova: u64, from: u64, len: u64, access: Access| {
                let region = host.buf.part(from, len).unwrap();
                let ctx = uverbs_front::backend::context::MkeyContext {
                    pd: PD,
                    iova,
                    len,
                    access,
                    region,
                    ..Default::default()
                };
                host.hca.create_mkey(ctx).unwrap()
            };
            Keys {
                own: key(IOVA + OWN, OWN, OWN_LEN, Access::LOCAL_WRITE),
                granted: key(IOVA + GRANTED, GRANTED, GRANTED_LEN, Access::all()),
                safe: key(IOVA + SAFE, SAFE, 0x1000, Access::LOCAL_WRITE),
                zero_based: key(0, GRANTED, GRANTED_LEN, Access::all()),
            }
        });
        for host in &mut rig.hosts {
            host.put(0, &pattern(ALL, 3));
            host.hca.ask_for_notifications(true);
        }
        let mut srqs = Vec::new();
        let mut pairs = Vec::new();
        for service in SERVICES {
            pairs.push(pair(&mut rig, service));
        }
        for host in 0..2 {
            let cq = rig.cq(host, 6, 64);
            let xrc = XrcSrq { xrcd: XRCD, cq: cq.cqn, user_index: 0xdef, cqe_version: 1 };
            srqs.push(rig.srq(host, 4, 0, Some(xrc)));
        }
        let targets = [0, 1].map(|host| target(&mut rig, host));
        let other = pair(&mut rig, Service::Rc);
        let srqs = srqs.try_into().unwrap();
        let mut scene = Scene { rig, keys, pairs, srqs, targets, other, rounds: 0 };
        scene.post_receives();
        scene
    }

    fn post_receives(&mut self) {
        for at in 0..3 {
            for host in 0..2 {
                let key = self.keys[host].own;
                for _ in 0..4 {
                    let end = &mut self.pairs[at][host];
                    self.rig.receive(end, &[(OWN + 0x1800, 2000, key), (OWN + 0x2000, 3000, key)]);
                }
            }
        }
        for host in 0..2 {
            let key = self.keys[host].own;
            for _ in 0..4 {
                self.rig.receive_shared(&mut self.srqs[host], &[(OWN + 0x3000, 4096, key)]);
            }
        }
    }

    /// Sets the address segments that the service of a queue pair needs.
    pub(super) fn address(&self, pair: usize, host: usize, mut wr: Wr) -> Wr {
        let to = 1 - host;
        let number = match SERVICES[pair] {
            Service::Dci => self.targets[to],
            Service::Xrc => self.srqs[to].srqn.0,
            _ => self.pairs[pair][to].qpn.0,
        };
        let mut av = mlx5_wqe_av {
            dqp_dct: U32::new(DqpDct::ZERO.with_ext(true).with_qpn(number).0),
            rgid: self.rig.hosts[to].address.gid,
            ..mlx5_wqe_av::default()
        };
        wr.address = match SERVICES[pair] {
            Service::Xrc => mlx5_wqe_xrc_seg::new(number).as_bytes().to_vec(),
            Service::Ud => {
                av.key.qkey = U32::new(QKEY);
                av.grh_gid_fl = U32::new(GrhGidFl::ZERO.with_grh(true).0);
                av.as_bytes().to_vec()
            }
            Service::Dci => {
                av.set_dc_key(DC_KEY);
                av.as_bytes().to_vec()
            }
            _ => Vec::new(),
        };
        wr
    }

    /// A valid work request, by its number.
    pub(super) fn request(&self, pair: usize, host: usize, kind: usize, len: u32) -> Wr {
        let (own, far) = (self.keys[host].own, self.keys[1 - host].granted);
        let len = len % LONGEST;
        let wr = match kind % 6 {
            0 => Wr::new(Opcode::SEND_IMM).imm(len),
            1 => Wr::new(Opcode::RDMA_WRITE).remote(GRANTED, far),
            2 => Wr::new(Opcode::RDMA_WRITE_IMM).imm(len).remote(GRANTED, far),
            3 => Wr::new(Opcode::RDMA_READ).remote(GRANTED, far),
            4 => Wr::new(Opcode::ATOMIC_FA).remote(GRANTED, far).atomic(1, 0),
            _ => Wr::new(Opcode::ATOMIC_CS).remote(GRANTED, far).atomic(1, 0),
        };
        let len = if kind % 6 > 3 { 8 } else { len.min(if pair == 2 { 4096 } else { len }) };
        let wr = if len == 0 { wr } else { wr.seg(OWN, len, own) };
        self.address(pair, host, wr)
    }

    /// Checks that both devices come to rest, that protected memory is unchanged, and that the
    /// bystander connection works in both directions.
    pub(super) fn check(&mut self) {
        self.rig.run();
        for host in &self.rig.hosts {
            // One for each queue pair that sends notifications, and for each interval.
            let most = (self.rig.now.as_nanos() / QUIET.as_nanos() + 1) * 3;
            let told = host.hca.stats().cnps_sent;
            assert!(u128::from(told) <= most, "{told} notifications by {:?}", self.rig.now);
            let all = pattern(ALL, 3);
            for (at, len) in NOBODYS {
                let at_end = at as usize + len;
                assert!(host.get(at, len) == all[at as usize..at_end], "changed near {at:#x}");
            }
        }
        for from in 0..2 {
            self.rounds += 1;
            let data = pattern(200, self.rounds);
            let key = self.keys[1 - from].safe;
            self.rig.receive(&mut self.other[1 - from], &[(SAFE, 256, key)]);
            self.rig.post(&mut self.other[from], &Wr::new(Opcode::SEND).inline(&data));
            self.rig.run();
            let sent = self.rig.sent(&mut self.other[from]);
            assert!(sent.len() == 1 && sent[0].kind == 0, "{sent:?}");
            assert_eq!(self.rig.got(&mut self.other[1 - from]).len(), 1);
            assert_eq!(self.rig.hosts[1 - from].get(SAFE, 200), data);
        }
    }
}

fn pair(rig: &mut Rig, service: Service) -> [End; 2] {
    let mut setup = Setup { service, sq_log: 4, rq_log: 3, cq_log: 5, ..Setup::default() };
    setup.attrs.qkey = QKEY;
    setup.attrs.path_mtu = Mtu::B256;
    setup.attrs.retry_cnt = 2;
    setup.attrs.rnr_retry = 2;
    setup.xrcd = if service == Service::Xrc { XRCD } else { 0 };
    let ends = [rig.end(0, &setup), rig.end(1, &setup)];
    for host in 0..2 {
        match service {
            Service::Ud | Service::Dci => {
                let hca = &mut rig.hosts[host].hca;
                for to in [QpTransition::RstToInit, QpTransition::InitToRtr, QpTransition::RtrToRts]
                {
                    hca.modify_qp(ends[host].qpn, to, &setup.attrs).unwrap();
                }
            }
            _ => rig.connect(&ends[host], (1 - host, ends[1 - host].qpn.0), &setup.attrs),
        }
    }
    ends
}

fn target(rig: &mut Rig, host: usize) -> u32 {
    let (cq, mut srq) = (rig.cq(host, 6, 64), rig.srq(host, 4, 0, None));
    let ctx = DctContext {
        pd: PD,
        cq: cq.cqn,
        srq: srq.srqn,
        key: DC_KEY,
        user_index: 0xdc7,
        cqe_version: 1,
        access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        pkey_index: 0,
        path_mtu: Mtu::B256,
        min_rnr_timer: 1,
        counter_set: 0,
        ece: 0,
    };
    for _ in 0..4 {
        rig.receive_shared(&mut srq, &[]);
    }
    rig.hosts[host].hca.create_dct(ctx).unwrap().0
}
