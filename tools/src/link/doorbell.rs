//! Doorbells of send queues: requested and granted kinds.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use uverbs::provider::{AnyContext, AnySq};
use uverbs::{Context, DoorbellMode, ProtectionDomain};

use crate::base::error::Error;

/// Value of `--doorbell`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Doorbell {
    /// Copy small posts into a write-combining register: least latency
    Blueflame,
    /// Store eight bytes to a non-cached page
    NonCached,
}

impl Doorbell {
    pub(crate) fn mode(self) -> DoorbellMode {
        match self {
            Self::Blueflame => DoorbellMode::BlueFlame,
            Self::NonCached => DoorbellMode::NonCached,
        }
    }
}

/// Number of queue pairs by kind of doorbell. A device without BlueFlame, or without free
/// registers, grants the non-cached page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rings {
    pub(crate) blueflame: u32,
    pub(crate) non_cached: u32,
    /// Soft-RoCE: a system call per doorbell.
    pub(crate) system_call: u32,
}

impl Rings {
    /// Counts the send queues of a context.
    pub(crate) fn of<'a>(
        context: &Context,
        pd: &ProtectionDomain,
        queues: impl Iterator<Item = &'a AnySq>,
    ) -> Result<Self, Error> {
        let mut rings = Self::default();
        match context.provider() {
            AnyContext::Mlx5(_) => {}
            // Work requests are written to the device's memory, and the doorbell to a page.
            AnyContext::Efa(_) => return Ok(Self { non_cached: queues.count() as u32, ..rings }),
            _ => return Ok(Self { system_call: queues.count() as u32, ..rings }),
        }
        // All queues of a context share the non-cached page: a queue pair that requests it shows
        // its address.
        let cq = context.create_cq(2)?;
        let small = context.queue_pair(pd, &cq).max_send_wr(1).max_recv_wr(1);
        let mut small = small.doorbell(DoorbellMode::NonCached).build()?;
        let shared = register(small.send_queue().provider());
        for sq in queues {
            match register(sq) {
                None => rings.system_call += 1,
                at if at == shared => rings.non_cached += 1,
                Some(_) => rings.blueflame += 1,
            }
        }
        Ok(rings)
    }
}

/// Doorbell register of a send queue; `None` if it rings by system call.
fn register(sq: &AnySq) -> Option<*mut u64> {
    match sq {
        AnySq::Mlx5(sq) => Some(sq.raw_parts().uar),
        _ => None,
    }
}

impl fmt::Display for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("blueflame", self.blueflame),
            ("non-cached", self.non_cached),
            ("system call", self.system_call),
        ];
        let some = all.iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>();
        for (at, (name, count)) in some.iter().enumerate() {
            match (at, some.len()) {
                (_, 1) => f.write_str(name)?,
                (0, _) => write!(f, "{name} ({count})")?,
                _ => write!(f, ", {name} ({count})")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uverbs::QueuePair;

    use super::*;
    use crate::base::select;

    fn queue(qp: &mut QueuePair) -> &AnySq {
        qp.send_queue().provider()
    }

    #[test]
    fn it_is_told_as_it_is() {
        let device = select::two(Some("softhca0"), true).unwrap().client;
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(4096).unwrap();
        let make = |mode| {
            let qp = context.queue_pair(&pd, &cq).max_send_wr(1).max_recv_wr(1);
            qp.doorbell(mode).build().unwrap()
        };
        let mut stores: Vec<_> = (0..3).map(|_| make(DoorbellMode::NonCached)).collect();
        let rings = Rings::of(&context, &pd, stores.iter_mut().map(queue)).unwrap();
        assert_eq!((rings.to_string(), rings.non_cached), ("non-cached".to_owned(), 3));
        let mut one = make(DoorbellMode::BlueFlame);
        let rings = Rings::of(&context, &pd, std::iter::once(queue(&mut one))).unwrap();
        assert_eq!(rings.to_string(), "blueflame");
        // More than a context has registers.
        let mut many: Vec<_> = (0..64).map(|_| make(DoorbellMode::BlueFlame)).collect();
        let rings = Rings::of(&context, &pd, many.iter_mut().map(queue)).unwrap();
        assert!(rings.blueflame > 0 && rings.non_cached > 0, "{rings:?}");
        assert_eq!(rings.blueflame + rings.non_cached, 64);
        let text = format!("blueflame ({}), non-cached ({})", rings.blueflame, rings.non_cached);
        assert_eq!(rings.to_string(), text);
    }
}
