//! Queues that end in the middle of messages, after each step of a device: memory that came back is
//! not written any more.

use crate::free;
use common::{impatient, only_on_softhca, soft};
use uverbs::softhca::SoftHca;
use uverbs::transport::{Dci, Directed, XrcIni};
use uverbs::{
    AccessFlags, Any, CompletionQueue, Context, Device, Frame, Local, ProtectionDomain, QueuePair,
    Slab,
};

/// Bytes of a message, of many packets.
const LEN: usize = 1 << 20;
const FRAMES: usize = 6;
/// Steps before the end, up to this.
const STEPS: usize = 24;
const WHY: &str = "it steps a device";

struct Home {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    slab: Slab,
}

impl Home {
    fn new(device: &Device) -> Self {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(512).unwrap();
        let slab = pd.slab(LEN, FRAMES).unwrap();
        Self { context, pd, cq, slab }
    }

    fn full(&self) -> Frame {
        let mut frame = self.slab.take().unwrap();
        frame.fill(3);
        frame
    }

    /// Completions that are there, with their frames.
    fn polled(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut burst = self.cq.poll(64);
        while let Some(mut completion) = burst.next() {
            frames.extend(completion.take_frame());
        }
        frames
    }
}

/// A device that works when it is told to.
fn stepped() -> SoftHca {
    SoftHca::builder().stepped().build().unwrap()
}

/// All frames are in hand: they stay as the program leaves them, whatever the device still does.
fn stay(hca: &SoftHca, frames: &mut [Frame], steps: usize) {
    for frame in frames.iter_mut() {
        frame.set_len(LEN);
        frame.fill(0x5a);
    }
    hca.step_until_idle(1000);
    for frame in frames {
        assert!(frame.iter().all(|&byte| byte == 0x5a), "a frame in hand changed, {steps} steps");
    }
}

/// Sends messages, ends their receiver after `steps`, and checks that all frames are back.
fn end_in_mid_message<T: Directed>(
    hca: &SoftHca,
    steps: usize,
    [mut there, mut here]: [Home; 2],
    mut qp: QueuePair<Any, T>,
    to: &T::To<Any>,
    end: impl FnOnce() -> Vec<(u64, Frame)>,
) {
    let mut batch = qp.batch();
    for id in 0..4 {
        batch.send_to(id, here.full(), to).unwrap();
    }
    batch.ring();
    hca.step_until_idle(steps);
    let mut frames = there.polled();
    frames.extend(end().into_iter().map(|(_, frame)| frame));
    frames.extend(std::iter::from_fn(|| there.slab.take()));
    assert_eq!(frames.len(), FRAMES, "{steps} steps");
    stay(hca, &mut frames, steps);
    drop(qp);
    drop(here.polled());
    assert_eq!(free(&here.slab), FRAMES);
}

#[test]
fn a_queue_of_xrc_ends_in_mid_message() {
    if !only_on_softhca(WHY) {
        return;
    }
    for steps in 0..STEPS {
        let hca = stepped();
        let device = soft(&hca);
        let (there, here) = (Home::new(&device), Home::new(&device));
        let domain = there.context.xrc_domain().unwrap();
        let srq = there.context.shared_receive_queue(&there.pd).max_wr(16);
        let mut srq = srq.xrc(&domain, &there.cq).build().unwrap();
        let mut target = there.context.xrc_target(&domain).unwrap();
        let mut qp: QueuePair<Any, XrcIni> =
            here.context.queue_pair(&here.pd, &here.cq).xrc().max_send_wr(8).build().unwrap();
        let near = qp.prepare(&impatient()).unwrap();
        let far = target.prepare(&impatient()).unwrap();
        qp.connect(&far).unwrap();
        target.connect(&near).unwrap();
        while let Some(frame) = there.slab.take() {
            srq.post(1, frame).unwrap();
        }
        let to = srq.remote();
        end_in_mid_message(&hca, steps, [there, here], qp, &to, || srq.destroy().unwrap());
    }
}

#[test]
fn a_target_of_dynamic_connections_ends_in_mid_message() {
    if !only_on_softhca(WHY) {
        return;
    }
    for steps in 0..STEPS {
        let hca = stepped();
        let device = soft(&hca);
        let (there, here) = (Home::new(&device), Home::new(&device));
        let srq = there.context.shared_receive_queue(&there.pd).max_wr(16);
        let mut srq = srq.build().unwrap();
        let mut target = there.context.dc_target(&there.pd, &there.cq, &srq, 7).unwrap();
        let at = target.bring_up(&impatient()).unwrap();
        let mut qp: QueuePair<Any, Dci> =
            here.context.queue_pair(&here.pd, &here.cq).dci().max_send_wr(8).build().unwrap();
        qp.bring_up(&impatient()).unwrap();
        let to = qp.destination(&at).unwrap();
        while let Some(frame) = there.slab.take() {
            srq.post(1, frame).unwrap();
        }
        end_in_mid_message(&hca, steps, [there, here], qp, &to, || {
            target.destroy().unwrap();
            srq.destroy().unwrap()
        });
    }
}

/// Destroys or resets the queue pair under SENDs, READs and WRITEs of both sides.
#[test]
fn a_queue_pair_ends_in_mid_message() {
    if !only_on_softhca(WHY) {
        return;
    }
    for steps in 0..STEPS {
        let hca = stepped();
        let device = soft(&hca);
        let (mut there, mut here) = (Home::new(&device), Home::new(&device));
        let shared = steps % 2 == 0;
        let mut srq = there.context.shared_receive_queue(&there.pd).max_wr(16).build().unwrap();
        let builder = there.context.queue_pair(&there.pd, &there.cq);
        let builder = if shared { builder.shared_receives(&srq) } else { builder };
        let mut far: QueuePair = builder.build().unwrap();
        let mut near: QueuePair = here.context.queue_pair(&here.pd, &here.cq).build().unwrap();
        let all = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let options = Local { access: all, ..impatient() };
        let ends = [&mut near, &mut far].map(|qp| qp.prepare(&options).unwrap());
        near.connect(&ends[1]).unwrap();
        far.connect(&ends[0]).unwrap();
        let memory = there.pd.expose(LEN, all).unwrap();
        for id in 0..3 {
            let frame = there.slab.take().unwrap();
            match shared {
                true => srq.post(id, frame).unwrap(),
                false => far.post_recv(id, frame).unwrap(),
            }
        }
        let mut batch = far.batch();
        let exposed = here.pd.expose(LEN, all).unwrap();
        for id in 0..3 {
            batch.read(id, there.slab.take().unwrap(), exposed.remote(0)).unwrap();
        }
        batch.ring();
        let mut batch = near.batch();
        batch.send(0, here.full()).unwrap();
        batch.write(1, here.full(), memory.remote(0)).unwrap();
        batch.send(2, here.full()).unwrap();
        batch.read(3, here.full(), memory.remote(0)).unwrap();
        batch.ring();
        hca.step_until_idle(steps);
        let mut frames = Vec::new();
        if steps % 3 == 0 {
            let gone = far.destroy().unwrap();
            frames.extend(there.polled());
            frames.extend(there.cq.reclaim(&gone).into_iter().map(|(_, frame)| frame));
        } else {
            frames.extend(there.polled());
            let kept = far.reset(&mut [&mut there.cq]).unwrap();
            frames.extend(kept.into_iter().map(|(_, frame)| frame));
            drop(far);
        }
        let kept = srq.destroy().unwrap();
        frames.extend(kept.into_iter().map(|(_, frame)| frame));
        frames.extend(std::iter::from_fn(|| there.slab.take()));
        assert_eq!(frames.len(), FRAMES, "{steps} steps");
        stay(&hca, &mut frames, steps);
        drop(near);
        drop(here.polled());
        assert_eq!(free(&here.slab), FRAMES);
    }
}
