//! Steps of the two programs of a world, and their end.

use uverbs::softhca::LinkLayer;

use crate::packets::Packets;
use crate::pair::Pair;
use crate::tags::Tags;
use crate::world::World;

/// Connections of a world.
const PAIRS: usize = 3;

pub(crate) struct Program {
    pub(crate) world: World,
    packets: Option<Packets>,
    tags: Option<Tags>,
}

impl Program {
    /// Raw packets need an Ethernet port, tags an InfiniBand one.
    pub(crate) fn new(seed: u64) -> Self {
        let packets = seed.is_multiple_of(2);
        let link = if packets { LinkLayer::Ethernet } else { LinkLayer::InfiniBand };
        let mut world = World::new(seed, link);
        for pair in 0..PAIRS {
            let new = Pair::new([world.new_end(0), world.new_end(1)]);
            world.pairs.push(new);
            world.connect(pair);
        }
        let tags = (!packets).then(|| Tags::new(&mut world));
        let packets = packets.then(|| Packets::new(&mut world));
        Self { world, packets, tags }
    }

    /// Runs some steps, and ends.
    pub(crate) fn run(&mut self, steps: usize) {
        for step in 0..steps {
            let done = self.step();
            self.world.log.push(format!("{step}: {done}"));
            self.world.check();
        }
        self.end();
    }

    fn step(&mut self) -> String {
        let Self { world, packets, tags } = self;
        let (pair, side) = (world.choices.below(PAIRS), world.choices.below(2));
        match world.choices.below(100) {
            0..16 => world.device(),
            16..34 => world.poll_some(side),
            34..48 => world.receive(pair, side),
            48..67 => world.send(pair, side),
            67..76 => world.rekey(pair, side),
            76..82 => world.play(side),
            82..89 => match (packets, tags) {
                (Some(packets), _) => packets.step(world),
                (_, Some(tags)) => tags.step(world),
                (None, None) => unreachable!("a port is of one kind"),
            },
            89..94 => world.renew_spoiled(),
            94 if world.choices.percent(50) => world.fail(pair, side),
            94 => world.halves(pair, side),
            95 => world.size(side),
            96 => world.change_memory(),
            97 => world.guest(),
            _ => world.audit(),
        }
    }

    /// Ends all queues in any order, sometimes after unplugging the device. Then every frame is in
    /// its slab, except forgotten ones.
    fn end(&mut self) {
        let Self { world, packets, tags } = self;
        if world.choices.percent(30) {
            world.hca.unplug();
            world.is_gone = true;
            world.pairs.iter_mut().for_each(|pair| pair.is_spoiled = true);
            world.log.push("unplugged".to_owned());
        }
        let mut parts: Vec<usize> = (0..PAIRS + 3).collect();
        while let Some(at) = world.choices.index(parts.len()) {
            let part = parts.swap_remove(at);
            match part.checked_sub(3) {
                Some(pair) => world.end_pair(pair),
                None if part == 0 => world.keys.clear(),
                None if part == 1 => world.memories.clear(),
                None => {
                    packets.take().into_iter().for_each(|packets| packets.end(world));
                    tags.take().into_iter().for_each(|tags| tags.end(world));
                }
            }
            world.log.push(format!("end of part {part}"));
            world.check();
        }
        for side in 0..2 {
            let Some(srq) = world.sides[side].srq.take() else { continue };
            let queue = world.sides[side].srq_queue;
            world.end_shared(side, srq, queue);
        }
        for side in 0..2 {
            world.poll_all(side);
            if world.choices.percent(50) {
                world.sides[side].cqs.clear();
            }
        }
        world.check();
        world.frames.let_go();
        world.frames.audit(&mut world.choices, true);
    }
}
