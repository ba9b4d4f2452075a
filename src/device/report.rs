//! Reports on a device: its place in the machine, its counters, the objects of this process.

use std::path::Path;

use uverbs_core::report::counters::Counters;
use uverbs_core::report::place::PciAddress;
use uverbs_core::report::resources::{Holder, Resources};

use crate::device::near;
use crate::provider::Provider;
use crate::{Context, Device};

impl Device {
    /// Address of the PCI function. `None` for a device without one, such as soft-RoCE, and where
    /// sysfs is hidden.
    ///
    /// ```
    /// assert_eq!(uverbs::device("softhca0")?.pci_address(), None);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    pub fn pci_address(&self) -> Option<PciAddress> {
        // The device of a subfunction is on the auxiliary bus, below its PCI function.
        near::function(&self.source().sysfs()?.join("device"))
    }

    /// NUMA node of the device. `None` if the machine has one node, or doesn't tell.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        near::node(&self.source().sysfs()?.join("device"))
    }

    /// Names of the network interfaces over the device's ports, in this network namespace.
    ///
    /// ```
    /// for device in uverbs::devices()? {
    ///     println!("{}: {}", device.name(), device.net_interfaces().join(", "));
    /// }
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    pub fn net_interfaces(&self) -> Vec<String> {
        let mut names = Vec::new();
        for name in self.source().ports().into_iter().flat_map(|port| port.interfaces) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Counters of ports, hardware and queue pairs, without opening the device. A part that can't
    /// be read is in [`gaps`](Counters::gaps).
    ///
    /// Read from RDMA netlink (`rdma statistic`) and sysfs (`ports/N/counters`, `hw_counters`).
    ///
    /// ```
    /// use uverbs::report::CounterSet;
    /// let device = uverbs::device("softhca0")?;
    /// let counters = device.counters();
    /// assert_eq!(counters.get(&CounterSet::Port(1), "port_xmit_packets"), Some(0));
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.source().counters()
    }

    /// Objects of the device and their holders, of all processes that this one may see (`rdma
    /// resource`). The kernel names the thread that created an object.
    #[must_use]
    pub fn resources(&self) -> Resources {
        self.source().resources()
    }
}

impl<P: Provider> Context<P> {
    /// Objects of the device that this process holds, through this context and others. An object
    /// whose creating thread has ended is missing: [`Device::resources`] has it under
    /// [`Holder::Gone`].
    ///
    /// ```
    /// use uverbs::report::ResourceKind;
    /// # let hca = uverbs::softhca::SoftHca::builder().build().unwrap();
    /// # let context = uverbs::Device::from(hca).open()?;
    /// let pd = context.alloc_pd()?;
    /// assert_eq!(context.resources().count(ResourceKind::Pd), 1);
    /// drop(pd);
    /// assert_eq!(context.resources().count(ResourceKind::Pd), 0);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    pub fn resources(&self) -> Resources {
        let mut all = self.device().resources();
        all.held.retain(|resource| match resource.holder {
            Holder::Task(task) => is_of_this_process(task),
            _ => false,
        });
        all
    }
}

/// Returns true for this process, and for a thread of it.
fn is_of_this_process(task: u32) -> bool {
    task == std::process::id() || Path::new(&format!("/proc/self/task/{task}")).exists()
}
