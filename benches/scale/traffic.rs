//! Posts, polls and the software HCA's packets over many queue pairs, each in turn.

use std::time::Duration;

use uverbs::softhca::{HcaConfig, SoftHca};
use uverbs::{AccessFlags, Device, Local};

use crate::{Column, Done, timed};

/// Messages that are outstanding at a time, and in all.
const ROUND: usize = 1024;
const MESSAGES: usize = 64 * ROUND;
/// Messages sent one at a time.
const LONE: usize = 2_000;

pub(crate) fn measure(sizes: &[usize]) -> Done {
    let names = [
        "post a WRITE of 8",
        "packets of a message",
        "poll",
        "lone message, to its end",
        "the device's looks after it",
    ];
    let mut columns = names.map(Column::new);
    for &size in sizes {
        let times = run(size)?;
        for (column, (time, count)) in columns.iter_mut().zip(times) {
            column.time(size, time, count);
        }
    }
    Ok(())
}

/// Times of posts, of the device, and of polls; of messages one at a time until their completions,
/// and of what the device does afterwards: stores of other queue pairs may have coalesced, so it
/// looks at their doorbell records.
fn run(size: usize) -> Result<[(Duration, usize); 5], Box<dyn std::error::Error>> {
    let limits = |hca: &mut HcaConfig| hca.max_qp = 1 << 17;
    let hca = SoftHca::builder().stepped().hca(limits).build()?;
    let context = Device::from(hca.clone()).open()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(2 * ROUND as u32)?;
    let port =
        context.local_port(&Local { access: AccessFlags::REMOTE_WRITE, ..Local::default() })?;
    let memory = pd.expose(8, AccessFlags::REMOTE_WRITE)?;
    let mut qps = Vec::new();
    let depth = ROUND.div_ceil(size).max(16) as u32;
    for _ in 0..size {
        let qp = context.queue_pair(&pd, &cq).overcommit().max_send_wr(depth).max_recv_wr(1);
        let mut qp = qp.build()?;
        qp.prepare_on(&port)?;
        qp.connect_to_self()?;
        qps.push(qp);
    }
    let mut times = [Duration::ZERO; 3];
    let mut at = 0;
    for _ in 0..MESSAGES / ROUND {
        let (posted, time) = timed(|| {
            (0..ROUND).try_for_each(|id| {
                at = (at + 1) % size;
                qps[at].post_write_inline(id as u64, &[1; 8], memory.remote(0))
            })
        });
        posted?;
        times[0] += time;
        times[1] += timed(|| hca.step_until_idle(usize::MAX)).1;
        let mut seen = 0;
        let mut poll = || cq.poll_with(16, |done| seen += usize::from(done.result().is_ok()));
        times[2] += timed(|| while poll() != 0 {}).1;
        if seen != ROUND {
            return Err(format!("{seen} of {ROUND} messages succeeded").into());
        }
    }
    let (mut seen, mut lone, mut looks) = (0, Duration::ZERO, Duration::ZERO);
    for id in 0..LONE {
        at = (at + 1) % size;
        let (posted, time) = timed(|| {
            qps[at].post_write_inline(id as u64, &[1; 8], memory.remote(0))?;
            while cq.poll_with(16, |done| seen += usize::from(done.result().is_ok())) == 0 {
                hca.step_until_idle(1);
            }
            Ok::<_, uverbs::Error>(())
        });
        posted?;
        lone += time;
        looks += timed(|| hca.step_until_idle(usize::MAX)).1;
    }
    if seen != LONE {
        return Err(format!("{seen} of {LONE} messages succeeded").into());
    }
    let [posts, packets, polls] = times.map(|time| (time, MESSAGES));
    Ok([posts, packets, polls, (lone, LONE), (looks, LONE)])
}
