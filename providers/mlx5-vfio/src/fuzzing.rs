//! A device that lies as a fuzzer's bytes say (docs/TESTING.md).

use std::time::Duration;

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::eqe::mlx5_eqe;
use zerocopy::IntoBytes;

use crate::device::Limits;
use crate::dma::PAGE;
use crate::door::Hca;
use crate::error::Error;
use crate::function::Function;
use crate::objects::qp::{Peer, Sge};
use crate::tests::context::{alloc_dm, context, operation, use_context};
use crate::tests::fake::{Fake, MEMORY, Twist, limits};

/// Registers that the driver reads.
const REGISTERS: [u64; 8] = [0x0, 0x4, 0x14, 0x1fc, 0x23c, 0x1010, 0x10, 0x18];
/// Maximum number of commands that are twisted.
const MOST: usize = 200;

/// Uses a function, and an RDMA device on it, while the hardware twists its answers. Each call
/// ends; the end leaves no mapping, and no buffer is unmapped while the device may use it.
pub fn functions(data: &[u8]) {
    assert!(!run(data, live));
    // A program's area is unmapped with its last user.
    run(data, serve);
}

/// Runs `act`; true if memory was unmapped under a live device.
fn run(data: &[u8], act: impl Fn(&Fake, Limits) -> Result<(), Error>) -> bool {
    let fake = Fake::new();
    fake.state().memory = MEMORY;
    let mut bytes = data.iter().copied();
    while let Some(proper) = bytes.next() {
        let after = fake.state().twists.len() + usize::from(proper % 32);
        if after >= MOST {
            break;
        }
        fake.twist(after, twist(&mut bytes));
    }
    let mut limits = limits();
    limits.initializing = Duration::from_millis(5);
    limits.command = Duration::from_millis(3);
    limits.health = Duration::from_millis(1);
    limits.reclaim = Duration::from_millis(5);
    if let Err(error) = act(&fake, limits) {
        assert!(!error.to_string().is_empty());
    }
    // The driver's thread may end after the function.
    fake.wait_for_the_end();
    let state = fake.state();
    assert_eq!((state.maps.len(), state.live), (0, false));
    state.torn
}

/// Reads a twist.
fn twist(bytes: &mut impl Iterator<Item = u8>) -> Twist {
    let mut next = || bytes.next().unwrap_or(0);
    let op = next();
    let len = usize::from(op >> 3);
    match op & 7 {
        0 => Twist::Refuse(next()),
        1 => Twist::Deliver(next()),
        2 => Twist::Keep,
        3 => Twist::Output((0..4 * len).map(|_| next()).collect()),
        4 => {
            let count = i16::from_be_bytes([next(), next()]);
            Twist::Event(mlx5_eqe::page_request(len as u16 & 1, count.into()).as_bytes().to_vec())
        }
        5 => Twist::Event((0..64).map(|at| if at < 2 * len { next() } else { 0 }).collect()),
        6 => {
            let value = u32::from_be_bytes([next(), next(), next(), next()]);
            Twist::Register(REGISTERS[len % REGISTERS.len()], value)
        }
        _ => {
            let place = u16::from_be_bytes([next(), next()]);
            Twist::Memory(place, (0..=len).map(|_| next()).collect())
        }
    }
}

/// Uses a function in all ways.
pub(crate) fn live(fake: &Fake, limits: Limits) -> Result<(), Error> {
    let function = Function::open(fake.clone(), limits)?;
    for _ in 0..4 {
        let _ = function.port();
        let _ = function.buffer(10_000).map(|buffer| buffer.iova());
        let _ = function.command(CmdOpcode::QUERY_HCA_CAP, 1, &[0; 600], 4112);
        let _ = function.ring(8, 1);
        let _ = objects(&function);
        while function.take_event().is_some() {}
    }
    function.close()
}

/// Uses an RDMA device as a program does.
pub(crate) fn serve(fake: &Fake, limits: Limits) -> Result<(), Error> {
    let hca = Hca::new(Function::open(fake.clone(), limits)?, "fake")?;
    for _ in 0..4 {
        let uverbs = context(&hca);
        let queue = uverbs.as_ref().map(use_context);
        let memory = uverbs.as_ref().map(|uverbs| {
            [64, 5000].map(|len| {
                let dm = alloc_dm(uverbs, len, 6).ok()?;
                Some(([0, 1].map(|op| operation(uverbs, &dm, op)), dm))
            })
        });
        // Before the queue's memory.
        drop(uverbs);
        drop((queue, memory));
    }
    Ok(())
}

/// Creates objects, uses and destroys them.
fn objects(function: &Function) -> Result<(), Error> {
    let pd = function.alloc_pd()?;
    let mut cq = function.create_cq(2)?;
    let region = pd.register(function.buffer(PAGE)?)?;
    let mut qp = pd.create_qp(&cq, 2)?;
    qp.connect(Peer::new(qp.number(), 1))?;
    let sge = Sge::new(region.key(), region.buffer().iova(), 64);
    for _ in 0..6 {
        qp.post_recv(sge)?;
        qp.post_send(sge)?;
        qp.post_write(sge, sge.address, sge.key)?;
        cq.poll()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        support::replay("functions", super::functions);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(64)
        })]

        #[test]
        fn any_answers_of_the_device(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::functions(&data);
        }
    }
}
