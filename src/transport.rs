//! Transports as types: what a queue pair can do is known when it compiles.

use std::fmt::Debug;

use uverbs_core::attr::{
    DciChange, DciInitAttr, DciRtrAttr, InitAttr, MacAddr, QpType, RawPacketChange,
    RawPacketInitAttr, RawPacketRtrAttr, RawPacketRtsAttr, RcChange, RcDrainedChange, RtrAttr,
    RtsAttr, SrdRtsAttr, Transition, UcChange, UcDrainedChange, UcRecovery, UcRtrAttr, UdChange,
    UdDrainedChange, UdInitAttr, UdRecovery, UdRtrAttr, UnreliableRtsAttr,
};

use crate::dc::DcEndpoint;
use crate::{DatagramEndpoint, Endpoint, Local};

pub(crate) mod directed;

pub use directed::{Atomics, Directed};

mod sealed {
    pub trait Sealed {}
}

/// A transport service. Sealed: the transports are those that InfiniBand has.
///
/// | | [`Rc`] | [`Uc`] | [`Ud`] | [`XrcIni`] | [`Dci`] |
/// |---|---|---|---|---|---|
/// | connected to one peer | yes | yes | no | yes | no |
/// | acknowledged, repeated, in order | yes | no: what is lost is lost | no | yes | yes |
/// | SEND | yes | yes | yes, up to the path's MTU | yes | yes |
/// | RDMA WRITE | yes | yes | no | yes | yes |
/// | RDMA READ, atomics | yes | no | no | yes | yes |
/// | receives | yes | yes | yes | no | no |
/// | goes on after a failed send (SQE) | no | yes | yes | no | no |
///
/// Each UD post names its [destination](crate::Destination), each XRC post one of the peer's
/// [shared receive queues](crate::xrc::RemoteSrq), each DC post its
/// [target](crate::dc::DcDestination). [`XrcTarget`](crate::xrc::XrcTarget) and
/// [`DcTarget`](crate::dc::DcTarget) receive for XRC and DC.
///
/// [`Srd`] is EFA's: reliable as [`Rc`] and addressed as [`Ud`], in no order.
///
/// [`RawPacket`] is outside this table: it sends and receives whole Ethernet frames.
///
/// IBTA vol 1, 9.6 and table 36, annex A14 for XRC; DC is Mellanox's own (PRM "Dynamically
/// Connected Transport").
pub trait Transport: sealed::Sealed + Debug + Send + Sync + 'static {
    /// Name in messages.
    const NAME: &'static str;
    /// Type in the kernel's interface.
    const TYPE: QpType;
    /// Attributes for RESET to INIT.
    type Init: Transition;
    /// Attributes for INIT to RTR.
    type Rtr: Transition;
    /// Attributes for RTR to RTS.
    type Rts: Transition;
    /// Attributes that may change in RTS, and from SQD to RTS.
    type Change: Transition;
    /// Address that a peer needs to reach a queue pair.
    type Endpoint;
}

/// A transport whose send queue can be drained (SQD). Sealed, as [`Transport`] is.
pub trait Drains: Transport {
    /// Attributes that may change in SQD, with no send in flight.
    type DrainedChange: Transition;
}

/// A transport whose send queue can fail alone (SQE), and recover. Sealed, as [`Transport`] is.
pub trait Recovers: Transport {
    /// Attributes that may change from SQE to RTS.
    type Recovery: Transition;
}

/// A transport with one peer, which it is connected to. Sealed, as [`Transport`] is.
pub trait Peered: Transport<Init = InitAttr, Endpoint = Endpoint> {
    /// Attributes for INIT to RTR, made from the UC attributes in `common`.
    #[doc(hidden)]
    fn rtr(common: UcRtrAttr, local: &Local, serves: u8) -> Self::Rtr;
    /// Attributes for RTR to RTS.
    #[doc(hidden)]
    fn rts(sq_psn: u32, local: &Local, asks: u8) -> Self::Rts;
}

/// A transport with one peer, whose work requests all go to its one queue pair. Sealed, as
/// [`Transport`] is.
pub trait Connected: Peered {
    /// True if the peer acknowledges messages.
    #[doc(hidden)]
    const RELIABLE: bool;
}

/// A transport without peer, each of whose work requests names a queue pair by address handle,
/// number and Q_Key. Sealed, as [`Transport`] is.
pub trait Datagram:
    Transport<Init = UdInitAttr, Rtr = UdRtrAttr, Endpoint = DatagramEndpoint>
{
    /// Attributes for RTR to RTS.
    #[doc(hidden)]
    fn rts(sq_psn: u32, local: &Local) -> Self::Rts;
}

/// A transport that acknowledges, and so has READs and atomics. Sealed, as [`Transport`] is.
pub trait Reliable: Connected {}

/// Reliable connection: acknowledged, in order, with RDMA and atomics.
#[doc(alias = "IBV_QPT_RC")]
#[derive(Debug)]
pub enum Rc {}

impl sealed::Sealed for Rc {}

impl Transport for Rc {
    const NAME: &'static str = "RC";
    const TYPE: QpType = QpType::Rc;
    type Init = InitAttr;
    type Rtr = RtrAttr;
    type Rts = RtsAttr;
    type Change = RcChange;
    type Endpoint = Endpoint;
}

impl Drains for Rc {
    type DrainedChange = RcDrainedChange;
}

impl Connected for Rc {
    const RELIABLE: bool = true;
}

impl Peered for Rc {
    fn rtr(common: UcRtrAttr, local: &Local, serves: u8) -> RtrAttr {
        let UcRtrAttr { dest_qpn, rq_psn, path_mtu, path } = common;
        let min_rnr_timer = local.min_rnr_timer;
        RtrAttr { dest_qpn, rq_psn, path_mtu, path, max_dest_rd_atomic: serves, min_rnr_timer }
    }

    fn rts(sq_psn: u32, local: &Local, asks: u8) -> RtsAttr {
        RtsAttr {
            sq_psn,
            max_rd_atomic: asks,
            timeout: local.timeout,
            retry_count: local.retry_count,
            rnr_retry: local.rnr_retry,
        }
    }
}

impl Reliable for Rc {}

/// Unreliable connection: one peer, SEND and RDMA WRITE, nothing acknowledged. A message that loses
/// a packet is dropped as a whole, without an error on either side.
#[doc(alias = "IBV_QPT_UC")]
#[derive(Debug)]
pub enum Uc {}

impl sealed::Sealed for Uc {}

impl Transport for Uc {
    const NAME: &'static str = "UC";
    const TYPE: QpType = QpType::Uc;
    type Init = InitAttr;
    type Rtr = UcRtrAttr;
    type Rts = UnreliableRtsAttr;
    type Change = UcChange;
    type Endpoint = Endpoint;
}

impl Drains for Uc {
    type DrainedChange = UcDrainedChange;
}

impl Recovers for Uc {
    type Recovery = UcRecovery;
}

impl Connected for Uc {
    const RELIABLE: bool = false;
}

impl Peered for Uc {
    fn rtr(common: UcRtrAttr, _: &Local, _: u8) -> UcRtrAttr {
        common
    }

    fn rts(sq_psn: u32, _: &Local, _: u8) -> UnreliableRtsAttr {
        UnreliableRtsAttr { sq_psn }
    }
}

/// Unreliable datagram: any peer, one packet a message, nothing acknowledged.
#[doc(alias = "IBV_QPT_UD")]
#[derive(Debug)]
pub enum Ud {}

impl sealed::Sealed for Ud {}

impl Transport for Ud {
    const NAME: &'static str = "UD";
    const TYPE: QpType = QpType::Ud;
    type Init = UdInitAttr;
    type Rtr = UdRtrAttr;
    type Rts = UnreliableRtsAttr;
    type Change = UdChange;
    type Endpoint = DatagramEndpoint;
}

impl Datagram for Ud {
    fn rts(sq_psn: u32, _: &Local) -> UnreliableRtsAttr {
        UnreliableRtsAttr { sq_psn }
    }
}

impl Drains for Ud {
    type DrainedChange = UdDrainedChange;
}

impl Recovers for Ud {
    type Recovery = UdRecovery;
}

/// Scalable reliable datagram: any peer, each message once, acknowledged, in no order. A SEND is
/// one packet, as of [`Ud`]; READ and WRITE are as of [`Rc`]. A later message may arrive before an
/// earlier one, also before the data of an earlier WRITE. An error of a work request leaves the
/// queue pair as it is. EFA only.
#[doc(alias = "EFADV_QP_DRIVER_TYPE_SRD")]
#[derive(Debug)]
pub enum Srd {}

impl sealed::Sealed for Srd {}

impl Transport for Srd {
    const NAME: &'static str = "SRD";
    const TYPE: QpType = QpType::Srd;
    type Init = UdInitAttr;
    type Rtr = UdRtrAttr;
    type Rts = SrdRtsAttr;
    type Change = UdChange;
    type Endpoint = DatagramEndpoint;
}

impl Datagram for Srd {
    /// Seven retries, the default of [`Local`], leave the device's own number.
    fn rts(sq_psn: u32, local: &Local) -> SrdRtsAttr {
        SrdRtsAttr { sq_psn, rnr_retry: (local.rnr_retry != 7).then_some(local.rnr_retry) }
    }
}

impl Drains for Srd {
    type DrainedChange = UdDrainedChange;
}

impl Recovers for Srd {
    type Recovery = UdRecovery;
}

/// Initiator of an extended reliable connection (XRC): as [`Rc`], to one
/// [target](crate::xrc::XrcTarget), and through it to any shared receive queue of the target's
/// domain, in any process. It receives no messages.
#[doc(alias = "IBV_QPT_XRC_SEND")]
#[derive(Debug)]
pub enum XrcIni {}

impl sealed::Sealed for XrcIni {}

impl Transport for XrcIni {
    const NAME: &'static str = "XRC";
    const TYPE: QpType = QpType::XrcIni;
    type Init = InitAttr;
    type Rtr = UcRtrAttr;
    type Rts = RtsAttr;
    type Change = UcChange;
    type Endpoint = Endpoint;
}

impl Peered for XrcIni {
    fn rtr(common: UcRtrAttr, _: &Local, _: u8) -> UcRtrAttr {
        common
    }

    fn rts(sq_psn: u32, local: &Local, asks: u8) -> RtsAttr {
        Rc::rts(sq_psn, local, asks)
    }
}

/// Initiator of dynamic connections (DCI): as [`Rc`], to any number of targets. ConnectX only.
#[doc(alias = "MLX5DV_DCTYPE_DCI")]
#[derive(Debug)]
pub enum Dci {}

impl sealed::Sealed for Dci {}

impl Transport for Dci {
    const NAME: &'static str = "DCI";
    const TYPE: QpType = QpType::Dci;
    type Init = DciInitAttr;
    type Rtr = DciRtrAttr;
    type Rts = RtsAttr;
    type Change = DciChange;
    type Endpoint = DcEndpoint;
}

/// Whole Ethernet frames: sends any frame, and receives the frames that
/// [rules](crate::flow::FlowRule) steer to it. ConnectX only, on an Ethernet port.
#[doc(alias = "IBV_QPT_RAW_PACKET")]
#[derive(Debug)]
pub enum RawPacket {}

impl sealed::Sealed for RawPacket {}

impl Transport for RawPacket {
    const NAME: &'static str = "raw packet";
    const TYPE: QpType = QpType::RawPacket;
    type Init = RawPacketInitAttr;
    type Rtr = RawPacketRtrAttr;
    type Rts = RawPacketRtsAttr;
    type Change = RawPacketChange;
    type Endpoint = MacAddr;
}
