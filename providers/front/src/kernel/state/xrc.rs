//! XRC domains and their targets, which open files share (`struct ib_xrcd` and its tree by inode in
//! `core/uverbs_cmd.c`, `ib_open_qp` and `ib_close_qp` in `core/verbs.c`).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;

use crate::backend::Backend;
use crate::backend::context::CqContext;
use crate::backend::error::HcaError;
use crate::backend::number::{Cqn, Qpn};
use crate::backend::region::Region;

/// Domain numbers have 24 bits.
const LAST: u32 = 0xff_ffff;

/// An XRC domain.
#[derive(Debug)]
struct Domain {
    /// Number of handles of the domain.
    opens: u32,
    /// File whose inode identifies the domain. It is kept open so that no other file gets that
    /// inode.
    file: Option<(File, Inode)>,
}

type Inode = (u64, u64);

/// A target queue pair.
#[derive(Debug)]
struct Target {
    domain: u32,
    /// Number of handles of the target.
    opens: u32,
}

/// The driver's completion queue with which targets are created. It never gets a CQE (`c0` of
/// `mlx5_ib_dev_res_init`).
#[derive(Debug)]
struct DriverCq {
    cqn: Cqn,
    /// Its only CQE, and its doorbell record.
    _memory: Box<[u64; 9]>,
}

/// All domains and targets.
#[derive(Debug, Default)]
pub(crate) struct Xrc {
    domains: BTreeMap<u32, Domain>,
    targets: BTreeMap<Qpn, Target>,
    cq: Option<DriverCq>,
}

/// Device and inode number, which identify a file.
fn inode(file: &File) -> Result<Inode, Errno> {
    let metadata = file.metadata().map_err(|_| Errno::EBADF)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Xrc {
    /// Creates a private domain. Returns its number.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when no number is left.
    pub(crate) fn open_private(&mut self) -> Result<u32, Errno> {
        self.insert(None)
    }

    /// Opens the domain of a file. Creates a missing one if `create` is set; `exclusive` demands
    /// that it is missing. Returns its number.
    ///
    /// # Errors
    ///
    /// `EAGAIN` for a missing domain without `create`, `EINVAL` for an existing one with
    /// `exclusive`; `EBADF`, `ENOMEM`.
    pub(crate) fn open_shared(
        &mut self,
        file: File,
        create: bool,
        exclusive: bool,
    ) -> Result<u32, Errno> {
        let inode = inode(&file)?;
        let there = self
            .domains
            .iter_mut()
            .find(|(_, domain)| domain.file.as_ref().is_some_and(|(_, of)| *of == inode));
        match there {
            Some(_) if exclusive => Err(Errno::EINVAL),
            Some((number, domain)) => {
                domain.opens += 1;
                Ok(*number)
            }
            None if create => self.insert(Some((file, inode))),
            None => Err(Errno::EAGAIN),
        }
    }

    fn insert(&mut self, file: Option<(File, Inode)>) -> Result<u32, Errno> {
        let highest = self.domains.last_key_value().map_or(0, |(number, _)| *number);
        let number = match highest {
            LAST => (1..LAST).find(|number| !self.domains.contains_key(number)),
            _ => Some(highest + 1),
        };
        let number = number.ok_or(Errno::ENOMEM)?;
        self.domains.insert(number, Domain { opens: 1, file });
        Ok(number)
    }

    /// Removes one handle. The last one destroys the domain.
    pub(crate) fn close(&mut self, number: u32) {
        let Some(domain) = self.domains.get_mut(&number) else { return };
        domain.opens -= 1;
        if domain.opens == 0 {
            self.domains.remove(&number);
        }
    }

    /// The completion queue with which targets are created.
    ///
    /// # Errors
    ///
    /// The device's error.
    pub(crate) fn driver_cq(&mut self, hca: &mut dyn Backend) -> Result<Cqn, HcaError> {
        if let Some(cq) = &self.cq {
            return Ok(cq.cqn);
        }
        let memory = Box::new([0u64; 9]);
        let addr = memory.as_ptr() as u64;
        let cqn = hca.create_cq(CqContext {
            region: Region::Flat { addr, len: 64 },
            log_entries: 0,
            cqe_size: 64,
            doorbell_record: addr + 64,
            uar: Default::default(),
            overrun_ignore: true,
            padded: false,
            compressed: None,
        })?;
        self.cq = Some(DriverCq { cqn, _memory: memory });
        Ok(cqn)
    }

    /// Registers a new target in a domain.
    pub(crate) fn add_target(&mut self, qpn: Qpn, domain: u32) {
        self.targets.insert(qpn, Target { domain, opens: 1 });
    }

    /// Adds a handle to a target of this domain.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an unknown number.
    pub(crate) fn open_target(&mut self, qpn: Qpn, domain: u32) -> Result<(), Errno> {
        match self.targets.get_mut(&qpn) {
            Some(target) if target.domain == domain => {
                target.opens += 1;
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// True if a target has one handle.
    pub(crate) fn is_last(&self, qpn: Qpn) -> bool {
        self.targets.get(&qpn).is_some_and(|target| target.opens == 1)
    }

    /// Removes one handle from a target. True for the last one: the queue pair is to be destroyed.
    pub(crate) fn close_target(&mut self, qpn: Qpn) -> bool {
        let Some(target) = self.targets.get_mut(&qpn) else { return false };
        target.opens -= 1;
        let last = target.opens == 0;
        if last {
            self.targets.remove(&qpn);
        }
        last
    }
}
