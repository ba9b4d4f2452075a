//! The connection manager's door: `/dev/infiniband/rdma_cm`.
//!
//! # Safety
//!
//! A command carries the addresses of its answer and of an option's value. Both are put in here,
//! out of slices that stay borrowed until the call returns.
#![allow(unsafe_code, reason = "write() of a command that carries addresses")]

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use uverbs_kernel_abi::rdma_cm::rdma_ucm_cmd_hdr;
use zerocopy::IntoBytes;

use crate::Errno;

/// One command to the connection manager.
#[derive(Debug)]
pub struct CmCommand<'a> {
    /// `RDMA_USER_CM_CMD_*`.
    pub number: u32,
    /// The request's struct. The words that hold addresses are 0: the door fills them in.
    pub request: &'a mut [u8],
    /// Where in the request the answer's address belongs, and room for the answer.
    pub answer: Option<(usize, &'a mut [u8])>,
    /// Where in the request the address of an option's value belongs, and the value.
    pub value: Option<(usize, &'a [u8])>,
}

/// One open file of the connection manager, an event channel, or what stands in its place.
///
/// Closing it ends every id that was made through it.
pub trait CmDoor: Send + Sync + fmt::Debug {
    /// Sends one command.
    ///
    /// # Errors
    ///
    /// The errno of the call. `EAGAIN`: no event is there (`GET_EVENT`).
    fn command(&self, command: CmCommand<'_>) -> Result<(), Errno>;

    /// The file, readable while an event is there.
    fn file(&self) -> BorrowedFd<'_>;
}

/// The kernel's connection manager.
#[derive(Debug)]
pub struct KernelCmDoor {
    file: File,
}

impl KernelCmDoor {
    /// The device node.
    pub const NODE: &'static str = "/dev/infiniband/rdma_cm";

    /// Opens the device node, close-on-exec and nonblocking.
    ///
    /// # Errors
    ///
    /// `ENOENT` where the module `rdma_ucm` isn't loaded, `EACCES` without permission.
    pub fn open() -> Result<Self, Errno> {
        Self::open_at(Path::new(Self::NODE))
    }

    fn open_at(path: &Path) -> Result<Self, Errno> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK);
        let file = options.open(path).map_err(|error| Errno::of(&error))?;
        Ok(Self { file })
    }
}

impl CmDoor for KernelCmDoor {
    fn command(&self, command: CmCommand<'_>) -> Result<(), Errno> {
        let CmCommand { number, request, mut answer, value } = command;
        let mut put = |at: usize, address: u64| {
            let word = request.get_mut(at..at + 8).ok_or(Errno::EINVAL)?;
            word.copy_from_slice(&address.to_ne_bytes());
            Ok::<_, Errno>(())
        };
        let mut room = 0;
        if let Some((at, answer)) = &mut answer {
            put(*at, answer.as_mut_ptr().expose_provenance() as u64)?;
            room = answer.len();
        }
        if let Some((at, value)) = value {
            put(at, value.as_ptr().expose_provenance() as u64)?;
        }
        // The kernel compares `in` with little: it copies whole structs (`ucma.c`), all of which
        // are here.
        let header = rdma_ucm_cmd_hdr {
            cmd: number,
            r#in: u16::try_from(request.len()).map_err(|_| Errno::EINVAL)?,
            out: u16::try_from(room).map_err(|_| Errno::EINVAL)?,
        };
        let bytes = [header.as_bytes(), request].concat();
        // SAFETY: `bytes` is readable for its length. The addresses in it are those of `answer`,
        // borrowed mutably, whose length `out` says, and of `value`, whose length the request says.
        // The kernel keeps none of them.
        let written =
            unsafe { libc::write(self.file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        if written == -1 { Err(Errno::last()) } else { Ok(()) }
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A pipe in place of the device: what would reach the kernel can be read.
    fn piped() -> (KernelCmDoor, File) {
        let (read, write) = nix::unistd::pipe().unwrap();
        (KernelCmDoor { file: File::from(write) }, File::from(read))
    }

    #[test]
    fn header_and_addresses_are_filled_in() {
        let (door, mut kernel) = piped();
        let (mut request, mut answer, value) = ([7u8; 24], [0u8; 4], [1u8]);
        let (at, from) = (answer.as_ptr().addr() as u64, value.as_ptr().addr() as u64);
        door.command(CmCommand {
            number: 14,
            request: &mut request,
            answer: Some((8, &mut answer)),
            value: Some((0, &value)),
        })
        .unwrap();
        let mut bytes = [0; 32];
        kernel.read_exact(&mut bytes).unwrap();
        let mut wanted = Vec::new();
        wanted.extend(14u32.to_ne_bytes());
        wanted.extend(24u16.to_ne_bytes());
        wanted.extend(4u16.to_ne_bytes());
        wanted.extend(from.to_ne_bytes());
        wanted.extend(at.to_ne_bytes());
        wanted.extend([7; 8]);
        assert_eq!(bytes.as_slice(), wanted);
    }

    #[test]
    fn an_address_beside_the_request_is_refused() {
        let (door, _kernel) = piped();
        let (mut request, mut answer) = ([0u8; 8], [0u8; 4]);
        let answer = Some((4, &mut answer[..]));
        let command = CmCommand { number: 0, request: &mut request, answer, value: None };
        assert_eq!(door.command(command), Err(Errno::EINVAL));
    }

    #[test]
    fn what_is_not_there_is_enoent() {
        let door = KernelCmDoor::open_at(Path::new("/dev/infiniband/rdma_cm_not_there"));
        assert_eq!(door.map(drop), Err(Errno::ENOENT));
    }
}
