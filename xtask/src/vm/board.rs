//! What QEMU emulates: a machine of one processor's kind, with the ports that a run reads.

use crate::vm::machine::LOGS;

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Board {
    /// x86-64.
    Q35,
    /// aarch64.
    Virt,
}

impl Board {
    /// Debian's package of it.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Q35 => "qemu-system-x86",
            Self::Virt => "qemu-system-arm",
        }
    }

    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Q35 => "qemu-system-x86_64",
            Self::Virt => "qemu-system-aarch64",
        }
    }

    /// The folder that the package is unpacked to.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Q35 => "qemu",
            Self::Virt => "qemu-arm",
        }
    }

    /// The first version that will do: of the first kind, that which has `vfio-user-pci`.
    pub(crate) fn oldest(self) -> (u32, u32) {
        match self {
            Self::Q35 => (10, 1),
            Self::Virt => (7, 0),
        }
    }

    pub(crate) fn machine(self) -> &'static str {
        match self {
            Self::Q35 => "q35,memory-backend=memory",
            Self::Virt => "virt,memory-backend=memory",
        }
    }

    pub(crate) fn processor(self) -> &'static str {
        match self {
            // With five levels of page tables mlx5_ib makes a key of all memory out of a GiB of
            // entries.
            Self::Q35 => "max,la57=off",
            // Signing of pointers as the architecture has it takes half of an emulated
            // processor's time.
            Self::Virt => "max,pauth-impdef=on",
        }
    }

    /// The kernel's parameters besides those of every guest.
    pub(crate) fn parameters(self) -> &'static str {
        match self {
            // Beside other work a virtual processor may stand still for seconds. So the kernel
            // doesn't count the timer's ticks at boot (`io_apic.c:timer_irq_works` panics if there
            // are few).
            Self::Q35 => "console=ttyS0 iomem=relaxed no_timer_check",
            Self::Virt => "console=ttyAMA0",
        }
    }

    /// QEMU's words for the port of the results, which the guest knows as
    /// `uverbs_vm_init::report::PORT`. That of the kernel's log stands before it.
    pub(crate) fn results(self) -> Vec<String> {
        let file = LOGS[1];
        match self {
            Self::Q35 => vec!["-serial".to_owned(), format!("file:{file}")],
            Self::Virt => vec![
                "-chardev".to_owned(),
                format!("file,id=results,path={file}"),
                "-device".to_owned(),
                "pci-serial,chardev=results".to_owned(),
            ],
        }
    }
}
