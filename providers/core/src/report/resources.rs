//! Objects of a device and their holders.

use std::fmt;

use super::Gap;

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ResourceKind {
    /// An open device.
    Context,
    /// A protection domain.
    Pd,
    /// A memory region.
    Mr,
    /// A completion queue.
    Cq,
    /// A shared receive queue.
    Srq,
    /// A queue pair.
    Qp,
    /// An id of the connection manager.
    CmId,
}

impl ResourceKind {
    /// All kinds, users behind the objects that they use.
    pub const ALL: [Self; 7] =
        [Self::Context, Self::Pd, Self::Mr, Self::Cq, Self::Srq, Self::Qp, Self::CmId];

    /// Name, as in `rdma resource`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Context => "ctx",
            Self::Pd => "pd",
            Self::Mr => "mr",
            Self::Cq => "cq",
            Self::Srq => "srq",
            Self::Qp => "qp",
            Self::CmId => "cm_id",
        }
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Holder {
    /// A task, by its number in this PID namespace. The kernel names the thread that created the
    /// object.
    Task(u32),
    /// A part of the kernel, by its name: `ib_core`.
    Kernel(String),
    /// The task that created the object ended, or is in another PID namespace.
    Gone,
}

/// An object of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resource {
    /// Kind.
    pub kind: ResourceKind,
    /// Number: QPN, CQN, and so on. `None` if the kernel tells none.
    pub number: Option<u32>,
    /// Owner.
    pub holder: Holder,
    /// Attributes by their names in `rdma resource`: `state`, `mrlen`.
    pub attributes: Vec<(&'static str, String)>,
}

impl Resource {
    /// An object without attributes.
    #[doc(hidden)]
    #[must_use]
    pub fn new(kind: ResourceKind, number: Option<u32>, holder: Holder) -> Self {
        Self { kind, number, holder, attributes: Vec::new() }
    }

    /// Adds an attribute, if it is known.
    #[doc(hidden)]
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Option<impl fmt::Display>) -> Self {
        self.attributes.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Objects of a device, by holder, kind and number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// Objects.
    pub held: Vec<Resource>,
    /// Parts that could not be read.
    pub gaps: Vec<Gap>,
}

impl Resources {
    /// Adds a part that could not be read.
    #[doc(hidden)]
    pub fn lacks(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }

    /// Sorts by holder, kind and number.
    #[doc(hidden)]
    pub fn sort(&mut self) {
        self.held.sort_by(|a, b| (&a.holder, a.kind, a.number).cmp(&(&b.holder, b.kind, b.number)));
    }

    /// Number of objects of a kind.
    #[must_use]
    pub fn count(&self, kind: ResourceKind) -> usize {
        self.held.iter().filter(|resource| resource.kind == kind).count()
    }
}

/// Name of a QP type, `enum ib_qp_type` (kernel `ib_verbs.h`).
#[must_use]
pub fn qp_type(number: u32) -> String {
    const NAMES: [&str; 11] = [
        "SMI",
        "GSI",
        "RC",
        "UC",
        "UD",
        "RAW_IPV6",
        "RAW_ETHERTYPE",
        "",
        "RAW_PACKET",
        "XRC_INI",
        "XRC_TGT",
    ];
    name(&NAMES, number)
}

/// Name of a QP state, `enum ib_qp_state` (kernel `ib_verbs.h`).
#[must_use]
pub fn qp_state(number: u32) -> String {
    name(&["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"], number)
}

fn name(names: &[&str], number: u32) -> String {
    let known = names.get(number as usize).filter(|name| !name.is_empty());
    known.map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

/// Name of a port space, `enum rdma_ucm_port_space` (`rdma_user_cm.h`).
#[must_use]
pub fn port_space(number: u32) -> String {
    match number {
        0x0002 => "IPOIB".to_owned(),
        0x0106 => "TCP".to_owned(),
        0x0111 => "UDP".to_owned(),
        0x013f => "IB".to_owned(),
        other => format!("{other:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_sorted_by_holder_first() {
        let of = |kind, number, holder| Resource::new(kind, Some(number), holder);
        let mut all = Resources {
            held: vec![
                of(ResourceKind::Qp, 1, Holder::Gone),
                of(ResourceKind::Qp, 3, Holder::Task(10)),
                of(ResourceKind::Qp, 2, Holder::Task(10)),
                of(ResourceKind::Pd, 7, Holder::Task(10)),
                of(ResourceKind::Qp, 0, Holder::Kernel("ib_core".to_owned())),
                of(ResourceKind::Mr, 9, Holder::Task(9)),
            ],
            gaps: Vec::new(),
        };
        all.sort();
        let numbers: Vec<_> = all.held.iter().filter_map(|one| one.number).collect();
        assert_eq!(numbers, [9, 7, 2, 3, 0, 1]);
        assert_eq!(all.count(ResourceKind::Qp), 4);
    }
}
