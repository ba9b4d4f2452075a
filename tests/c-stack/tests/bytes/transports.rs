//! Differences between transports: attributes of transitions, and destinations of posts.
#![allow(unsafe_code, reason = "raw posts")]

use uverbs::attr::{
    InitAttr, Path, RtrAttr, RtsAttr, UcRtrAttr, UdInitAttr, UdRtrAttr, UnreliableRtsAttr,
};
use uverbs::dc::{DcDestination, DciChange, DciInitAttr, DciRtrAttr, DciStreams};
use uverbs::flow::{Flow, FlowCounters, FlowRule};
use uverbs::memory::KeyLayout;
use uverbs::multicast::MulticastGroup;
use uverbs::packet::{
    Checksums, RawPacketChange, RawPacketInitAttr, RawPacketRtrAttr, RawPacketRtsAttr,
};
use uverbs::raw::{Data, Rekey, SendOp};
use uverbs::tags::ForTags;
use uverbs::transport::{Dci, RawPacket, Rc, Transport, Uc, Ud, XrcIni};
use uverbs::xrc::RemoteSrq;
use uverbs::{
    AccessFlags, AckTimeout, Batch, Destination, Mlx5, Mtu, PostError, QueuePair, QueuePairBuilder,
    RnrTimer, SharedReceiveQueue, Wr,
};

use crate::changes;
use crate::script::Cases;

/// The Q_Key of both queue pairs.
pub(crate) const QKEY: u32 = 0x1ee7_c0de;

/// Access rights of peers.
pub(crate) const RDMA: AccessFlags =
    AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ).union(AccessFlags::REMOTE_ATOMIC);

const PSN: u32 = 0x12_3456;
pub(crate) const MTU: Mtu = Mtu::from_raw(3);

/// Destination of a post, by transport.
pub(crate) struct To {
    /// UD.
    pub(crate) destination: Option<Destination<Mlx5>>,
    /// XRC.
    pub(crate) srq: Option<RemoteSrq>,
    /// DC.
    pub(crate) target: Option<DcDestination<Mlx5>>,
    /// Raw packets: checksums to fill in.
    pub(crate) checksums: Checksums,
}

/// Transport that scripts run on.
pub(crate) trait Spoken: Transport {
    /// True if each post names its destination.
    const DATAGRAMS: bool;
    /// True if an XRC or DC target and a shared receive queue receive.
    const XRC: bool = false;
    const DYNAMIC: bool = false;
    /// True for raw packets.
    const PACKETS: bool = false;
    fn init() -> Self::Init;
    fn rtr(peer: u32, path: Path) -> Self::Rtr;
    fn rts() -> Self::Rts;
    /// Posts; `to` is for UD, XRC, DC and raw packets.
    ///
    /// # Safety
    ///
    /// As [`uverbs::raw::RawBatch`].
    unsafe fn post(
        batch: &mut Batch<'_, Mlx5, Self>,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
        to: &To,
    ) -> Result<(), PostError>
    where
        Self: Sized;
    /// Adds streams to a DC initiator.
    fn with_streams(builder: QueuePairBuilder<Mlx5, Self>) -> QueuePairBuilder<Mlx5, Self>
    where
        Self: Sized,
    {
        builder
    }
    /// Adds a tag-matching queue; RC only.
    fn with_tags(
        builder: QueuePairBuilder<Mlx5, Self>,
        _: &SharedReceiveQueue<Mlx5, ForTags>,
    ) -> QueuePairBuilder<Mlx5, Self>
    where
        Self: Sized,
    {
        builder
    }
    /// Creates a flow rule; raw packets only.
    fn steer(_: &mut QueuePair<Mlx5, Self>, _: &FlowRule, _: Option<&FlowCounters>) -> Flow
    where
        Self: Sized,
    {
        panic!("no rules of {}", Self::NAME)
    }
    /// Calls that the cases do not need: changes of a connected queue pair, multicast groups. `way`
    /// is the path to the peer.
    fn other_calls(qp: &mut QueuePair<Mlx5, Self>, way: Path, cases: &Cases, phase: &impl Fn(&str))
    where
        Self: Sized;
    /// Posts a key operation; RC and UC only.
    ///
    /// # Safety
    ///
    /// As [`uverbs::raw::RawBatch::rekey`].
    unsafe fn rekey(_: &mut Batch<'_, Mlx5, Self>, _: Wr, _: &Rekey) -> Result<(), PostError>
    where
        Self: Sized,
    {
        Err(PostError::BadOperation)
    }

    /// Lays out an indirect key.
    ///
    /// # Safety
    ///
    /// As [`uverbs::raw::RawBatch`].
    unsafe fn lay_out(
        _: &mut Batch<'_, Mlx5, Self>,
        _: Wr,
        _: &KeyLayout<'_>,
    ) -> Result<(), PostError>
    where
        Self: Sized,
    {
        Err(PostError::BadOperation)
    }
}

/// Implements the posts of RC and UC: to the connected peer.
macro_rules! to_the_peer {
    () => {
        const DATAGRAMS: bool = false;

        unsafe fn post(
            batch: &mut Batch<'_, Mlx5, Self>,
            wr: Wr,
            op: SendOp,
            data: Data<'_>,
            _: &To,
        ) -> Result<(), PostError> {
            // SAFETY: by the contract of `post`.
            unsafe { batch.raw().post(wr, op, data) }
        }

        unsafe fn rekey(
            batch: &mut Batch<'_, Mlx5, Self>,
            wr: Wr,
            op: &Rekey,
        ) -> Result<(), PostError> {
            // SAFETY: by the contract of `rekey`.
            unsafe { batch.raw().rekey(wr, op) }
        }

        unsafe fn lay_out(
            batch: &mut Batch<'_, Mlx5, Self>,
            wr: Wr,
            op: &KeyLayout<'_>,
        ) -> Result<(), PostError> {
            // SAFETY: by the contract of `lay_out`.
            unsafe { batch.raw().lay_out(wr, op) }
        }
    };
}

impl Spoken for Rc {
    to_the_peer!();

    fn with_tags(
        builder: QueuePairBuilder<Mlx5, Self>,
        srq: &SharedReceiveQueue<Mlx5, ForTags>,
    ) -> QueuePairBuilder<Mlx5, Self> {
        builder.shared_receives(srq)
    }

    fn other_calls(qp: &mut QueuePair<Mlx5, Self>, way: Path, _: &Cases, phase: &impl Fn(&str)) {
        changes::of_rc(qp, way, phase);
    }

    fn init() -> InitAttr {
        InitAttr { port: 1, pkey_index: 0, access: RDMA }
    }

    fn rtr(dest_qpn: u32, path: Path) -> RtrAttr {
        RtrAttr {
            dest_qpn,
            rq_psn: PSN,
            path_mtu: MTU,
            path,
            max_dest_rd_atomic: 4,
            min_rnr_timer: RnrTimer::from_code(12).unwrap(),
        }
    }

    fn rts() -> RtsAttr {
        RtsAttr {
            sq_psn: PSN,
            max_rd_atomic: 4,
            timeout: AckTimeout::from_code(14).unwrap(),
            retry_count: 7,
            rnr_retry: 6,
        }
    }
}

impl Spoken for Uc {
    to_the_peer!();

    fn other_calls(qp: &mut QueuePair<Mlx5, Self>, way: Path, _: &Cases, phase: &impl Fn(&str)) {
        changes::of_uc(qp, way, phase);
    }

    fn init() -> InitAttr {
        Rc::init()
    }

    fn rtr(dest_qpn: u32, path: Path) -> UcRtrAttr {
        UcRtrAttr { dest_qpn, rq_psn: PSN, path_mtu: MTU, path }
    }

    fn rts() -> UnreliableRtsAttr {
        UnreliableRtsAttr { sq_psn: PSN }
    }
}

impl Spoken for XrcIni {
    const DATAGRAMS: bool = false;
    const XRC: bool = true;

    fn other_calls(qp: &mut QueuePair<Mlx5, Self>, way: Path, _: &Cases, phase: &impl Fn(&str)) {
        changes::of_xrc(qp, way, phase);
    }

    fn init() -> InitAttr {
        Rc::init()
    }

    fn rtr(dest_qpn: u32, path: Path) -> UcRtrAttr {
        Uc::rtr(dest_qpn, path)
    }

    fn rts() -> RtsAttr {
        Rc::rts()
    }

    unsafe fn post(
        batch: &mut Batch<'_, Mlx5, Self>,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
        to: &To,
    ) -> Result<(), PostError> {
        let to = to.srq.as_ref().expect("each side has a queue");
        // SAFETY: by the contract of `post`.
        unsafe { batch.raw().post_to(wr, op, data, to) }
    }
}

impl Spoken for Dci {
    const DATAGRAMS: bool = false;
    const DYNAMIC: bool = true;

    fn with_streams(builder: QueuePairBuilder<Mlx5, Self>) -> QueuePairBuilder<Mlx5, Self> {
        builder.streams(DciStreams { log_concurrent: 2, log_errored: 5 })
    }

    fn other_calls(qp: &mut QueuePair<Mlx5, Self>, _: Path, cases: &Cases, phase: &impl Fn(&str)) {
        phase("change");
        qp.change(&DciChange { min_rnr_timer: RnrTimer::from_code(5) }).unwrap();
        if cases.streams {
            phase("reset_stream");
            qp.reset_stream(0x1234).unwrap();
        }
        changes::by_mask(qp, None, phase);
    }

    fn init() -> DciInitAttr {
        DciInitAttr { port: 1, pkey_index: 0 }
    }

    fn rtr(_: u32, _: Path) -> DciRtrAttr {
        DciRtrAttr { path_mtu: MTU }
    }

    fn rts() -> RtsAttr {
        Rc::rts()
    }

    unsafe fn post(
        batch: &mut Batch<'_, Mlx5, Self>,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
        to: &To,
    ) -> Result<(), PostError> {
        let to = to.target.as_ref().expect("a case file of DC has addresses");
        // SAFETY: by the contract of `post`.
        unsafe { batch.raw().post_to(wr, op, data, to) }
    }
}

impl Spoken for Ud {
    const DATAGRAMS: bool = true;

    fn other_calls(qp: &mut QueuePair<Mlx5, Self>, _: Path, _: &Cases, phase: &impl Fn(&str)) {
        changes::of_ud(qp, phase);
        phase("attach_mcast");
        let group = MulticastGroup { gid: "ff12::77".parse().unwrap(), lid: 0xc001 };
        let member = qp.attach(&group).unwrap();
        phase("detach_mcast");
        member.detach().unwrap();
    }

    fn init() -> UdInitAttr {
        UdInitAttr { port: 1, pkey_index: 0, qkey: QKEY }
    }

    fn rtr(_: u32, _: Path) -> UdRtrAttr {
        UdRtrAttr
    }

    fn rts() -> UnreliableRtsAttr {
        UnreliableRtsAttr { sq_psn: PSN }
    }

    unsafe fn post(
        batch: &mut Batch<'_, Mlx5, Self>,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
        to: &To,
    ) -> Result<(), PostError> {
        let to = to.destination.as_ref().expect("a case file of datagrams has addresses");
        // SAFETY: by the contract of `post`.
        unsafe { batch.raw().post_to(wr, op, data, to) }
    }
}

impl Spoken for RawPacket {
    const DATAGRAMS: bool = false;
    const PACKETS: bool = true;

    fn other_calls(qp: &mut QueuePair<Mlx5, Self>, _: Path, _: &Cases, phase: &impl Fn(&str)) {
        phase("change");
        qp.change(&RawPacketChange { rate_limit: Some(0) }).unwrap();
        changes::by_mask(qp, None, phase);
    }

    fn init() -> RawPacketInitAttr {
        RawPacketInitAttr { port: 1 }
    }

    fn rtr(_: u32, _: Path) -> RawPacketRtrAttr {
        RawPacketRtrAttr
    }

    fn rts() -> RawPacketRtsAttr {
        RawPacketRtsAttr
    }

    unsafe fn post(
        batch: &mut Batch<'_, Mlx5, Self>,
        wr: Wr,
        _: SendOp,
        data: Data<'_>,
        to: &To,
    ) -> Result<(), PostError> {
        // SAFETY: by the contract of `post`; the area is at its address.
        unsafe { batch.raw().post_packet(wr, to.checksums, data) }
    }

    fn steer(
        qp: &mut QueuePair<Mlx5, Self>,
        rule: &FlowRule,
        counters: Option<&FlowCounters>,
    ) -> Flow {
        match counters {
            Some(counters) => qp.steer_counted(rule, counters),
            None => qp.steer(rule),
        }
        .unwrap()
    }
}
