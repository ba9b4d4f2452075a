//! Processes behind the tasks that the kernel names as holders.

use std::fs;
use std::path::{Path, PathBuf};

use uverbs::report::Holder;

/// Holder of objects, as reports group them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A living process.
    Process { pid: u32, name: String },
    /// A task that is not in `/proc`: it ended just now, or is hidden (`hidepid`).
    Hidden(u32),
    /// A part of the kernel.
    Kernel(String),
    /// The task that created the objects ended, or is in another PID namespace.
    Gone,
}

impl Owner {
    /// Returns true if no living process is known to hold the objects: a leak, unless another
    /// thread or a child of the creator has them.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Gone)
    }

    /// Title of a group.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Process { pid, name } => format!("pid {pid} {name}"),
            Self::Hidden(pid) => format!("pid {pid} (ended, or hidden from this user)"),
            Self::Kernel(name) => format!("kernel {name}"),
            Self::Gone => "creator ended (or is in another PID namespace)".to_owned(),
        }
    }
}

/// Looks up processes in `/proc`.
#[derive(Debug)]
pub(crate) struct Processes(PathBuf);

impl Default for Processes {
    fn default() -> Self {
        Self(PathBuf::from("/proc"))
    }
}

impl Processes {
    pub(crate) fn owner(&self, holder: &Holder) -> Owner {
        match holder {
            Holder::Task(task) => self.process(*task),
            Holder::Kernel(name) => Owner::Kernel(name.clone()),
            _ => Owner::Gone,
        }
    }

    /// The process of a task: its thread group.
    fn process(&self, task: u32) -> Owner {
        let status = fs::read_to_string(self.0.join(format!("{task}/status"))).unwrap_or_default();
        let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        match group {
            Some(pid) => Owner::Process { pid, name: self.name(pid) },
            None => Owner::Hidden(task),
        }
    }

    fn name(&self, pid: u32) -> String {
        let file: &Path = &self.0.join(format!("{pid}/comm"));
        fs::read_to_string(file).map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_its_process() {
        let proc = tempfile::tempdir().unwrap();
        let processes = Processes(proc.path().to_owned());
        for (task, group) in [(100, "100"), (101, "100"), (102, "garbage")] {
            let folder = proc.path().join(task.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("status"), format!("Name:\tx\nTgid:\t{group}\n")).unwrap();
            fs::write(folder.join("comm"), format!("thread {task}\n")).unwrap();
        }
        let owner = processes.owner(&Holder::Task(101));
        assert_eq!(owner, Owner::Process { pid: 100, name: "thread 100".to_owned() });
        assert_eq!(processes.owner(&Holder::Task(102)), Owner::Hidden(102));
        assert_eq!(processes.owner(&Holder::Task(103)), Owner::Hidden(103));
        let lost: Vec<_> = [Holder::Gone, Holder::Task(103), Holder::Kernel("ib_core".into())]
            .iter()
            .map(|holder| processes.owner(holder).is_lost())
            .collect();
        assert_eq!(lost, [true, false, false]);
    }

    #[test]
    fn this_process_has_its_name() {
        let owner = Processes::default().owner(&Holder::Task(std::process::id()));
        assert!(matches!(owner, Owner::Process { pid, .. } if pid == std::process::id()));
    }
}
