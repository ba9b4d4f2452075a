//! Attributes: of queue pairs by change of state, of devices and ports, and the capabilities they
//! report.

#[doc(inline)]
pub use uverbs_core::attr::{
    AlternatePath, AtomicCap, DeviceCaps, DrainAttr, Ece, GlobalRoute, Grh, GrhKind, InitAttr,
    LagPort, OdpCaps, OdpTransportCaps, Path, PathMigration, PortCaps, QpAttr, QpAttrMask, QpType,
    RcChange, RcDrainedChange, RtrAttr, RtsAttr, SendOpSet, Speed, SrdRtsAttr, SrqAttr, Transition,
    UcChange, UcDrainedChange, UcRecovery, UcRtrAttr, UdChange, UdDrainedChange, UdInitAttr,
    UdRecovery, UdRtrAttr, UnreliableRtsAttr, Width,
};
