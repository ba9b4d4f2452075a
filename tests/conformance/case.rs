//! One case: a call and what is expected of it.

use std::fmt;

use crate::target::Target;
use crate::want::{Driver, Outcome, Version, Want};

/// Devices that a case is run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    All,
    Mlx5,
    Rxe,
    /// A real kernel: what no door has.
    Kernel,
    /// All but Linux's mlx5_ib, for the same reason.
    ButMlx5Ib,
    /// softhca in process: a kernel is harmed by the question.
    Here,
}

type Run = Box<dyn Fn(&Target) -> Outcome>;

/// A case.
pub(crate) struct Case {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    /// File and function of the kernel that decides, below `drivers/infiniband`.
    pub(crate) source: &'static str,
    pub(crate) want: Want,
    world: (World, &'static str),
    from: Option<(Driver, Version, &'static str)>,
    run: Run,
}

impl Case {
    pub(crate) fn new(
        group: &'static str,
        name: impl Into<String>,
        source: &'static str,
        want: Want,
        run: impl Fn(&Target) -> Outcome + 'static,
    ) -> Self {
        let world = (World::All, "");
        Self { group, name: name.into(), source, want, world, from: None, run: Box::new(run) }
    }

    /// Restricts it to a world, for a reason.
    pub(crate) fn only(mut self, world: World, why: &'static str) -> Self {
        self.world = (world, why);
        self
    }

    /// Restricts it, for a driver, to kernels from a version on.
    pub(crate) fn from(mut self, driver: Driver, version: Version, why: &'static str) -> Self {
        self.from = Some((driver, version, why));
        self
    }

    /// Why it isn't asked of a device, if so.
    pub(crate) fn skipped(&self, target: &Target) -> Option<&'static str> {
        let fits = match self.world.0 {
            World::All => true,
            World::Mlx5 => target.facts.driver == Driver::Mlx5,
            World::Rxe => target.facts.driver == Driver::Rxe,
            World::Kernel => !target.facts.in_process,
            World::ButMlx5Ib => target.facts.in_process || target.facts.driver != Driver::Mlx5,
            World::Here => target.soft.is_some(),
        };
        if !fits {
            return Some(self.world.1);
        }
        if let Some(why) = target.lacks(&self.to_string()) {
            return Some(why);
        }
        let (driver, version, why) = self.from?;
        (target.facts.driver == driver && target.facts.kernel < version).then_some(why)
    }

    pub(crate) fn run(&self, target: &Target) -> Outcome {
        (self.run)(target)
    }

    /// Expected outcome on a device.
    pub(crate) fn want(&self, target: &Target) -> Want {
        self.want.of(target.facts)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.group, self.name)
    }
}
