//! Time to make, connect and destroy objects, and memory of each.

use std::any::Any;

use uverbs::softhca::{HcaConfig, SoftHca};
use uverbs::{
    AccessFlags, CompletionQueue, Context, DatagramEndpoint, Device, Error, Local, LocalPort,
    ProtectionDomain, QueuePair, UdQueuePair,
};

use crate::{Column, Done, process, timed};

/// Parents of the objects.
struct Rig {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    port: LocalPort,
    datagrams: UdQueuePair,
    here: DatagramEndpoint,
}

impl Rig {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let most = 1 << 18;
        let limits = |hca: &mut HcaConfig| (hca.max_qp, hca.max_cq) = (most, most);
        let hca = SoftHca::builder().stepped().hca(limits).build()?;
        let context = Device::from(hca).open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(64)?;
        let port = context.local_port(&Local::default())?;
        let mut datagrams = context.queue_pair(&pd, &cq).ud().overcommit().build()?;
        let here = datagrams.bring_up(&Local::default())?;
        Ok(Self { context, pd, cq, port, datagrams, here })
    }

    fn queue_pair(&self) -> Result<QueuePair, Error> {
        let qp = self.context.queue_pair(&self.pd, &self.cq).overcommit();
        qp.max_send_wr(16).max_recv_wr(16).build()
    }
}

type Make = fn(&Rig) -> Result<Box<dyn Any>, Error>;

const KINDS: [(&str, Make); 5] = [
    ("QP", |rig| Ok(Box::new(rig.queue_pair()?))),
    ("CQ of 16", |rig| Ok(Box::new(rig.context.create_cq(16)?))),
    ("MR of 64 bytes", |rig| Ok(Box::new(rig.pd.expose(64, AccessFlags::REMOTE_WRITE)?))),
    ("AH", |rig| Ok(Box::new(rig.datagrams.destination(&rig.here)?))),
    ("PD", |rig| Ok(Box::new(rig.context.alloc_pd()?))),
];

pub(crate) fn measure(sizes: &[usize]) -> Done {
    for (name, make) in KINDS {
        let column = |what: &str| Column::new(&format!("{name} {what}"));
        let (mut created, mut destroyed) = (column("create"), column("destroy"));
        let mut bytes = column("memory");
        for &size in sizes {
            let rig = Rig::new()?;
            let before = process::resident()?;
            let make_all = || (0..size).map(|_| make(&rig)).collect::<Result<Vec<_>, _>>();
            let (made, time) = timed(make_all);
            let made = made?;
            created.time(size, time, size);
            let grown = process::resident()?.saturating_sub(before);
            let ((), time) = timed(|| drop(made));
            destroyed.time(size, time, size);
            bytes.value(size, grown as f64 / size as f64, "bytes");
        }
    }
    let mut connected = Column::new("QP connect");
    for &size in sizes {
        let rig = Rig::new()?;
        let mut qps = (0..size).map(|_| rig.queue_pair()).collect::<Result<Vec<_>, _>>()?;
        let connect = |qp: &mut QueuePair| qp.prepare_on(&rig.port).and(qp.connect_to_self());
        let (done, time) = timed(|| qps.iter_mut().try_for_each(connect));
        done?;
        connected.time(size, time, size);
    }
    Ok(())
}
