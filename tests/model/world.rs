//! A world: a device, two programs on it, and the model of all that they have.

use std::time::Duration;

use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::{CompletionQueue, Context, ProtectionDomain, SharedReceiveQueue};

use crate::choices::Choices;
use crate::frames::Frames;
use crate::keys::Keys;
use crate::memory::{Memories, Reach};
use crate::pair::Pair;
use crate::work::{Queue, Works};
use common::soft;

/// Frames of each slab that there is at first.
const FRAMES: usize = 64;
/// Completions that the queues have room for: of all queue pairs together.
pub(crate) const COMPLETIONS: u32 = 400;
/// Receives of a shared queue.
const SHARED: u32 = 15;

/// Objects of one of the two programs, except its queue pairs.
pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cqs: Vec<CompletionQueue>,
    pub(crate) srq: Option<SharedReceiveQueue>,
    pub(crate) srq_queue: Queue,
}

pub(crate) struct World {
    pub(crate) choices: Choices,
    pub(crate) log: Vec<String>,
    pub(crate) hca: SoftHca,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) sides: Vec<Side>,
    pub(crate) frames: Frames,
    pub(crate) memories: Memories,
    pub(crate) keys: Keys,
    pub(crate) works: Works,
    /// The device was unplugged.
    pub(crate) is_gone: bool,
    /// The device completes each receive of a shared queue twice.
    repeats: bool,
}

impl World {
    /// A world without connections.
    pub(crate) fn new(seed: u64, link: LinkLayer) -> Self {
        let mut choices = Choices::new(seed);
        let repeats = choices.percent(30);
        let hca = SoftHca::builder().stepped().link(link);
        let hca = hca.hca(|config| config.repeats_receives = repeats);
        let hca = hca.build().expect("a software HCA");
        let device = soft(&hca);
        let mut works = Works::default();
        let side = |works: &mut Works| {
            let context = device.open().expect("open");
            let pd = context.alloc_pd().expect("alloc_pd");
            let cqs = [(); 2].map(|()| context.create_cq(COMPLETIONS).expect("create_cq")).into();
            let srq = context.shared_receive_queue(&pd).max_wr(SHARED).max_sge(4);
            let srq = Some(srq.build().expect("create_srq"));
            Side { context, pd, cqs, srq, srq_queue: works.new_queue() }
        };
        let sides = vec![side(&mut works), side(&mut works)];
        let mut world = Self {
            choices,
            log: Vec::new(),
            hca,
            pairs: Vec::new(),
            sides,
            frames: Frames::default(),
            memories: Memories::default(),
            keys: Keys::default(),
            works,
            is_gone: false,
            repeats,
        };
        for side in 0..2 {
            world.frames.new_slab(&world.sides[side].pd, side, FRAMES);
            for reach in [Reach::ByItsKey, Reach::ByWindows, Reach::ByIndirectKeys, Reach::OnDevice]
            {
                let Side { context, pd, .. } = &world.sides[side];
                world.memories.add(context, pd, side, reach);
            }
        }
        world
    }

    pub(crate) fn check(&mut self) {
        self.frames.check();
        self.memories.check();
    }

    /// The device works for a while.
    pub(crate) fn device(&mut self) -> String {
        let most = [1, 3, 20, 200][self.choices.below(4)];
        let steps = self.hca.step_until_idle(most);
        if self.choices.percent(40) {
            self.hca.advance(Duration::from_micros(self.choices.within(1, 2000) as u64));
        }
        format!("the device works {steps} times")
    }

    /// The device works until all that can be done is done.
    pub(crate) fn settle(&mut self) {
        for _ in 0..20 {
            self.hca.step_until_idle(10_000);
            self.hca.advance(Duration::from_millis(1));
        }
    }

    /// Polls completions that the device repeated, before a receive is posted with the named slot.
    pub(crate) fn poll_repeated(&mut self, side: usize) {
        if self.repeats {
            self.poll_all(side);
        }
    }

    /// Frames come and go.
    pub(crate) fn play(&mut self, side: usize) -> String {
        if self.choices.percent(30) {
            self.frames.unshare(&mut self.choices);
        }
        if self.choices.percent(4) {
            self.frames.new_slab(&self.sides[side].pd, side, 4);
        }
        self.memories.write(&mut self.choices);
        format!("frame: {}", self.frames.play(&mut self.choices, side))
    }

    /// A completion queue gets another size, and a shared receive queue can't.
    pub(crate) fn size(&mut self, side: usize) -> String {
        let Self { choices, sides, .. } = self;
        let entries = choices.within(COMPLETIONS as usize, 1500) as u32;
        let at = choices.below(2);
        let cq = &mut sides[side].cqs[at];
        cq.resize(entries).expect("resize_cq");
        assert!(cq.capacity() >= entries);
        cq.resize(0).expect_err("no entries");
        if let Some(srq) = &mut sides[side].srq {
            let refused = srq.resize(64).expect_err("mlx5 has no other sizes");
            assert!(matches!(refused, uverbs::Error::Unsupported { .. }), "{refused}");
            self.frames.begin(sides[side].srq_queue);
        }
        format!("completion queue {at} of side {side} has {entries} entries")
    }

    /// Memory is deregistered, whoever uses it, and another is there.
    pub(crate) fn change_memory(&mut self) -> String {
        match self.memories.any(&mut self.choices) {
            Some(number) => self.drop_memory(number),
            None => "no memory".to_owned(),
        }
    }

    pub(crate) fn drop_memory(&mut self, number: u32) -> String {
        let Some((of, reach)) = self.memories.drop_one(number) else {
            return format!("memory {number} is gone");
        };
        // Peers that name the memory directly are refused. Windows and indirect keys keep it alive,
        // and so do this side's posts.
        for pair in &mut self.pairs {
            let queues = pair.ends.each_ref().map(|end| end.sq);
            let mut all = self.works.all.values();
            pair.is_spoiled |=
                all.any(|work| queues.contains(&work.queue) && work.names == Some(number));
        }
        let Side { context, pd, .. } = &self.sides[of];
        self.memories.add(context, pd, of, reach);
        format!("memory {number} of side {of}, {reach:?}, is dropped")
    }

    /// Checks that all free frames match the model, and that none is missing.
    pub(crate) fn audit(&mut self) -> String {
        let settled = self.choices.percent(50);
        if settled {
            (0..2).for_each(|side| self.poll_all(side));
        }
        self.frames.audit(&mut self.choices, settled);
        format!("audit, settled: {settled}")
    }
}
