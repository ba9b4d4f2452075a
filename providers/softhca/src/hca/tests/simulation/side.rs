//! One end of a connection: the objects that a program creates for its service.

use std::time::Duration;

use uverbs_mlx5_prm::address::{DqpDct, GrhGidFl, mlx5_wqe_av, mlx5_wqe_xrc_seg};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

use super::plan::Plan;
use super::work::Connection;
use crate::hca::testing::*;
use uverbs_front::backend::context::{Access, DctContext, Service, XrcSrq};
use uverbs_front::backend::number::{Cqn, Key};

/// Log2 of the WQEBBs of a send ring: two for each work.
const SQ_LOG: u8 = 7;
/// Log2 of the WQEs of a shared receive queue, of which one stays free.
const SRQ_LOG: u8 = 6;

/// The sending queue pair, and the receiving objects.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) end: End,
    /// Several for a target of dynamic connections; empty if the queue pair itself receives.
    inlets: Vec<Inlet>,
    key: u32,
    /// The device died.
    pub(super) gone: bool,
    pub(super) next_poll: Duration,
    /// Completion queues that overran.
    overrun: Vec<Cqn>,
}

/// A shared receive queue of XRC, or of a target of dynamic connections.
#[derive(Debug)]
struct Inlet {
    /// Number in a work request's address: SRQN or DCTN.
    number: u32,
    srq: TestSrq,
    cq: TestCq,
}

/// How the queue pairs of a connection are set up.
pub(super) fn setup(number: usize, connection: &Connection) -> Setup {
    let mut setup = Setup { service: connection.service, sq_log: SQ_LOG, ..Setup::default() };
    setup.cq_log = connection.cq_log;
    setup.xrcd = if connection.service == Service::Xrc { xrcd(number) } else { 0 };
    setup.attrs.qkey = key(number);
    setup.attrs.path.traffic_class = connection.traffic_class;
    setup.attrs.path_mtu = connection.mtu;
    setup.attrs.sq_psn = connection.psn;
    setup.attrs.rq_psn = connection.psn;
    setup.attrs.timeout = connection.timeout;
    setup.attrs.retry_cnt = connection.retry_cnt;
    setup.attrs.rnr_retry = connection.rnr_retry;
    setup.attrs.min_rnr_timer = connection.rnr_timer;
    setup.attrs.max_rd_atomic = connection.rd_atomic;
    setup.attrs.max_dest_rd_atomic = connection.rd_atomic;
    setup
}

fn xrcd(connection: usize) -> u32 {
    7 + connection as u32
}

/// Q_Key or DC access key. It keeps datagrams of an old connection away from a new one with its
/// numbers.
fn key(connection: usize) -> u32 {
    0x1122_0000 + connection as u32
}

impl Side {
    pub(super) fn new(rig: &mut Rig, plan: &Plan, number: usize, which: usize) -> Side {
        let connection = &plan.connections[number];
        let host = connection.hosts[which];
        let end = rig.end(host, &setup(number, connection));
        let inlets = match connection.service {
            Service::Xrc => vec![Inlet::shared(rig, host, number, connection)],
            Service::Dci => {
                [0, 1].map(|_| Inlet::target(rig, host, key(number), connection)).into()
            }
            _ => Vec::new(),
        };
        let (gone, next_poll, overrun) = (false, Duration::ZERO, Vec::new());
        Side { end, inlets, key: key(number), gone, next_poll, overrun }
    }

    /// Number of receiving objects.
    pub(super) fn inlets(&self) -> usize {
        self.inlets.len().max(1)
    }

    pub(super) fn receive(&mut self, rig: &mut Rig, inlet: usize, list: &[(u64, u32, Key)]) {
        match self.inlets.get_mut(inlet) {
            Some(inlet) => {
                rig.receive_shared(&mut inlet.srq, list);
            }
            None => rig.receive(&mut self.end, list),
        }
    }

    /// Completions of receives.
    pub(super) fn got(&mut self, rig: &mut Rig, inlet: usize) -> Vec<Got> {
        let host = self.end.host;
        match self.inlets.get_mut(inlet) {
            Some(inlet) => std::iter::from_fn(|| rig.poll(host, &mut inlet.cq)).collect(),
            None => rig.got(&mut self.end),
        }
    }

    fn receives_by(&self, inlet: usize) -> &TestCq {
        self.inlets.get(inlet).map_or(&self.end.recv_cq, |inlet| &inlet.cq)
    }

    /// Number of CQEs in a queue of this end that the program has yet to poll.
    pub(super) fn held(&self, rig: &mut Rig, cqn: Cqn) -> usize {
        let inlets = (0..self.inlets()).map(|inlet| self.receives_by(inlet));
        let Some(cq) = inlets.chain([&self.end.send_cq]).find(|cq| cq.cqn == cqn) else { return 0 };
        let (host, mut cq) = (self.end.host, cq.clone());
        std::iter::from_fn(|| rig.poll(host, &mut cq)).count()
    }

    /// Number of a shared receive queue or a target; 0 without one.
    pub(super) fn number(&self, inlet: usize) -> u32 {
        self.inlets.get(inlet).map_or(0, |inlet| inlet.number)
    }

    /// Addresses a work request of the peer to this end.
    pub(super) fn address(&self, rig: &Rig, of: &Connection, inlet: usize, mut wr: Wr) -> Wr {
        let number = self.inlets.get(inlet).map_or(self.end.qpn.0, |inlet| inlet.number);
        let mut av = mlx5_wqe_av {
            dqp_dct: U32::new(DqpDct::ZERO.with_ext(true).with_qpn(number).0),
            rgid: rig.hosts[self.end.host].address.gid,
            tclass: of.traffic_class,
            ..mlx5_wqe_av::default()
        };
        wr.address = match of.service {
            Service::Xrc => mlx5_wqe_xrc_seg::new(number).as_bytes().to_vec(),
            Service::Ud => {
                av.key.qkey = U32::new(self.key);
                av.grh_gid_fl = U32::new(GrhGidFl::ZERO.with_grh(true).0);
                av.as_bytes().to_vec()
            }
            Service::Dci => {
                av.set_dc_key(self.key.into());
                av.as_bytes().to_vec()
            }
            _ => Vec::new(),
        };
        wr
    }

    /// Notes that a completion queue overran. False if it belongs to another end.
    pub(super) fn note_overrun(&mut self, cqn: Cqn) -> bool {
        let own = self.end.send_cq.cqn == cqn
            || (0..self.inlets()).any(|inlet| self.receives_by(inlet).cqn == cqn);
        if own {
            self.overrun.push(cqn);
        }
        own
    }

    /// True if the results of its sends are lost.
    pub(super) fn lost_sends(&self) -> bool {
        self.overrun.contains(&self.end.send_cq.cqn)
    }

    /// True if the receives' completion queue is overrun.
    pub(super) fn lost_receives(&self, inlet: usize) -> bool {
        self.overrun.contains(&self.receives_by(inlet).cqn)
    }
}

impl Inlet {
    fn shared(rig: &mut Rig, host: usize, number: usize, of: &Connection) -> Inlet {
        let cq = rig.cq(host, of.cq_log, 64);
        let (xrcd, user_index) = (xrcd(number), 0xdef);
        let xrc = XrcSrq { xrcd, cq: cq.cqn, user_index, cqe_version: 1 };
        let srq = rig.srq(host, SRQ_LOG, 0, Some(xrc));
        Inlet { number: srq.srqn.0, srq, cq }
    }

    fn target(rig: &mut Rig, host: usize, key: u32, of: &Connection) -> Inlet {
        let cq = rig.cq(host, of.cq_log, 64);
        let srq = rig.srq(host, SRQ_LOG, 0, None);
        let ctx = DctContext {
            pd: PD,
            cq: cq.cqn,
            srq: srq.srqn,
            key: key.into(),
            user_index: 0xdc7,
            cqe_version: 1,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            pkey_index: 0,
            path_mtu: of.mtu,
            min_rnr_timer: of.rnr_timer,
            counter_set: 0,
            ece: 0,
        };
        let dctn = rig.hosts[host].hca.create_dct(ctx).unwrap();
        Inlet { number: dctn.0, srq, cq }
    }
}
