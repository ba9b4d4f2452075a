//! Many software HCAs in one process, each with its thread, as so many processes have them; and
//! one with many idle connections.

use std::time::Duration;

use uverbs::softhca::{HcaConfig, SoftHca};
use uverbs::{Device, Local};

use crate::{Column, Done, process, timed};

/// Time during which all are idle.
const IDLE: Duration = Duration::from_secs(1);
/// Looks at a device without work.
const LOOKS: usize = 10_000;

/// Devices with an open context and a connected queue pair each.
pub(crate) fn measure(sizes: &[usize]) -> Done {
    let mut columns = ["a device", "end of a device", "a device idle for 1 s"].map(Column::new);
    let mut bytes = Column::new("memory of a device");
    for &size in sizes {
        let before = process::resident()?;
        let make = |_| {
            let context = Device::from(SoftHca::builder().build()?).open()?;
            let pd = context.alloc_pd()?;
            let cq = context.create_cq(16)?;
            let mut qp = context.queue_pair(&pd, &cq).max_send_wr(4).max_recv_wr(4).build()?;
            qp.prepare(&Local::default())?;
            qp.connect_to_self()?;
            Ok::<_, Box<dyn std::error::Error>>((qp, cq, pd, context))
        };
        let (made, time) = timed(|| (0..size).map(make).collect::<Result<Vec<_>, _>>());
        let made = made?;
        columns[0].time(size, time, size);
        bytes.value(
            size,
            process::resident()?.saturating_sub(before) as f64 / size as f64,
            "bytes",
        );
        let ((), time) = timed(|| std::thread::sleep(IDLE));
        columns[2].time(size, time, size);
        let ((), time) = timed(|| drop(made));
        columns[1].time(size, time, size);
    }
    Ok(())
}

/// A device with so many connections, none of which has work.
pub(crate) fn idle(sizes: &[usize]) -> Done {
    let mut look = Column::new("look at idle connections");
    for &size in sizes {
        let hca = SoftHca::builder().stepped().hca(|hca: &mut HcaConfig| hca.max_qp = 1 << 17);
        let hca = hca.build()?;
        let context = Device::from(hca.clone()).open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
        let port = context.local_port(&Local::default())?;
        let mut qps = Vec::new();
        for _ in 0..size {
            let qp = context.queue_pair(&pd, &cq).overcommit().max_send_wr(4).max_recv_wr(4);
            let mut qp = qp.build()?;
            qp.prepare_on(&port)?;
            qp.connect_to_self()?;
            qps.push(qp);
        }
        hca.step_until_idle(usize::MAX);
        let ((), time) = timed(|| {
            (0..LOOKS).for_each(|_| {
                hca.step_until_idle(1);
            })
        });
        look.time(size, time, LOOKS);
        drop(qps);
    }
    Ok(())
}
