//! Objects that a process makes to exchange messages with many peers, by transport: time and memory
//! of one peer more.

use std::any::Any;

use uverbs::dc::DcEndpoint;
use uverbs::softhca::{HcaConfig, SoftHca};
use uverbs::transport::Dci;
use uverbs::xrc::XrcDomain;
use uverbs::{
    CompletionQueue, Context, DatagramEndpoint, Device, Error, Local, LocalPort, ProtectionDomain,
    QueuePair, SharedReceiveQueue, UdQueuePair,
};

use crate::{Column, Done, process, timed};

/// Sends and receives of a queue pair.
const DEPTH: u32 = 16;

/// Objects that do not grow with the number of peers.
struct Rig {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    port: LocalPort,
    srq: SharedReceiveQueue,
    domain: XrcDomain,
    initiator: QueuePair<uverbs::Any, Dci>,
    target: DcEndpoint,
    datagrams: UdQueuePair,
    here: DatagramEndpoint,
    _target: Box<dyn Any>,
}

impl Rig {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let limits = |hca: &mut HcaConfig| hca.max_qp = 1 << 18;
        let hca = SoftHca::builder().stepped().hca(limits).build()?;
        let context = Device::from(hca).open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(256)?;
        let port = context.local_port(&Local::default())?;
        let srq = context.shared_receive_queue(&pd).build()?;
        let domain = context.xrc_domain()?;
        let mut initiator =
            context.queue_pair(&pd, &cq).dci().overcommit().max_send_wr(DEPTH).build()?;
        initiator.bring_up(&Local::default())?;
        let mut end = context.dc_target(&pd, &cq, &srq, 1)?;
        let target = end.bring_up(&Local::default())?;
        let mut datagrams = context
            .queue_pair(&pd, &cq)
            .ud()
            .overcommit()
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH)
            .build()?;
        let here = datagrams.bring_up(&Local::default())?;
        let _target = Box::new(end);
        Ok(Self { context, pd, cq, port, srq, domain, initiator, target, datagrams, here, _target })
    }

    fn reliable(&self, shares: bool) -> Result<Box<dyn Any>, Error> {
        let qp = self.context.queue_pair(&self.pd, &self.cq).overcommit().max_send_wr(DEPTH);
        let qp = if shares { qp.shared_receives(&self.srq) } else { qp.max_recv_wr(DEPTH) };
        let mut qp = qp.build()?;
        qp.prepare_on(&self.port)?;
        qp.connect_to_self()?;
        Ok(Box::new(qp))
    }

    /// An initiator to the peer's host, and the target of its initiator.
    fn extended(&self) -> Result<Box<dyn Any>, Error> {
        let qp = self.context.queue_pair(&self.pd, &self.cq).overcommit().xrc();
        let mut qp = qp.max_send_wr(DEPTH).build()?;
        let mut target = self.context.xrc_target(&self.domain)?;
        let (here, there) = (qp.prepare_on(&self.port)?, target.prepare(&Local::default())?);
        qp.connect(&there)?;
        target.connect(&here)?;
        Ok(Box::new((qp, target)))
    }
}

type Make = fn(&Rig) -> Result<Box<dyn Any>, Error>;

const KINDS: [(&str, Make); 5] = [
    ("RC", |rig| rig.reliable(false)),
    ("RC with an SRQ", |rig| rig.reliable(true)),
    ("XRC", Rig::extended),
    ("DC", |rig| Ok(Box::new(rig.initiator.destination(&rig.target)?))),
    ("UD", |rig| Ok(Box::new(rig.datagrams.destination(&rig.here)?))),
];

pub(crate) fn measure(sizes: &[usize]) -> Done {
    for (name, make) in KINDS {
        let mut joined = Column::new(&format!("{name}: a peer"));
        let mut left = Column::new(&format!("{name}: end of a peer"));
        let mut bytes = Column::new(&format!("{name}: memory of a peer"));
        for &size in sizes {
            let rig = Rig::new()?;
            let before = process::resident()?;
            let (peers, time) =
                timed(|| (0..size).map(|_| make(&rig)).collect::<Result<Vec<_>, _>>());
            let peers = peers?;
            joined.time(size, time, size);
            let grown = process::resident()?.saturating_sub(before);
            let ((), time) = timed(|| drop(peers));
            left.time(size, time, size);
            bytes.value(size, grown as f64 / size as f64, "bytes");
        }
    }
    Ok(())
}
