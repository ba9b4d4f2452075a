//! Board: the machine that QEMU emulates, with the serial ports that a run reads.

use crate::vm::machine::LOGS;

/// Kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Board {
    /// x86-64.
    Q35,
    /// aarch64.
    Virt,
}

impl Board {
    /// Debian's package of its QEMU.
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

    /// Folder of the unpacked package.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Q35 => "qemu",
            Self::Virt => "qemu-arm",
        }
    }

    /// Oldest version of QEMU. On x86-64 it must have `vfio-user-pci`.
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
            // With five levels of page tables mlx5_ib's memory key of all memory takes a GiB of
            // entries.
            Self::Q35 => "max,la57=off",
            // The architecture's algorithm of pointer authentication takes half of an emulated
            // processor's time.
            Self::Virt => "max,pauth-impdef=on",
        }
    }

    /// Kernel parameters of this board, in addition to every guest's.
    pub(crate) fn parameters(self) -> &'static str {
        match self {
            // On a busy host a virtual processor may stop for seconds, so the kernel must not count
            // timer ticks at boot (`io_apic.c:timer_irq_works` panics if they are few).
            Self::Q35 => "console=ttyS0 iomem=relaxed no_timer_check",
            Self::Virt => "console=ttyAMA0",
        }
    }

    /// QEMU's words for the port of the results, which is `uverbs_vm_init::report::PORT` in the
    /// guest. The port of the kernel's log comes first.
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
