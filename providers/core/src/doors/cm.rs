//! Door to the connection manager: `/dev/infiniband/rdma_cm`.
//!
//! # Safety
//!
//! A command carries the address of its response, or of an option's value. The door fills in both
//! at the offsets where the kernel expects them, from slices that stay borrowed until the call
//! returns. It rejects a command whose length differs from what the kernel copies.
#![allow(unsafe_code, reason = "write() of a command that carries addresses")]

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use uverbs_kernel_abi::rdma_cm as abi;
use uverbs_kernel_abi::rdma_cm::rdma_ucm_cmd_hdr;
use zerocopy::{FromBytes, IntoBytes};

use crate::Errno;

/// One command to the connection manager.
#[derive(Debug)]
pub struct CmCommand<'a> {
    /// `RDMA_USER_CM_CMD_*`.
    pub number: u32,
    /// Struct of the request. The door fills in the address.
    pub request: &'a mut [u8],
    /// Buffer for the response, if the command has one.
    pub answer: Option<&'a mut [u8]>,
    /// Value of an option (`SET_OPTION`).
    pub value: Option<&'a [u8]>,
}

/// Size that the kernel copies of each command (`ucma.c` uses the struct's size and ignores the
/// header's), and the offsets of addresses in it.
struct Shape {
    size: usize,
    answer: Option<usize>,
    value: Option<usize>,
}

impl Shape {
    fn of(number: u32) -> Option<Self> {
        macro_rules! shape {
            ($request:ident) => {
                Self { size: size_of::<abi::$request>(), answer: None, value: None }
            };
            ($request:ident, $response:ident) => {
                Self {
                    size: size_of::<abi::$request>(),
                    answer: Some(std::mem::offset_of!(abi::$request, $response)),
                    value: None,
                }
            };
        }
        Some(match number {
            abi::RDMA_USER_CM_CMD_CREATE_ID => shape!(rdma_ucm_create_id, response),
            abi::RDMA_USER_CM_CMD_DESTROY_ID | abi::RDMA_USER_CM_CMD_LEAVE_MCAST => {
                shape!(rdma_ucm_destroy_id, response)
            }
            abi::RDMA_USER_CM_CMD_BIND_IP => shape!(rdma_ucm_bind_ip, response),
            abi::RDMA_USER_CM_CMD_BIND => shape!(rdma_ucm_bind),
            abi::RDMA_USER_CM_CMD_RESOLVE_IP => shape!(rdma_ucm_resolve_ip),
            abi::RDMA_USER_CM_CMD_RESOLVE_ADDR => shape!(rdma_ucm_resolve_addr),
            abi::RDMA_USER_CM_CMD_RESOLVE_ROUTE => shape!(rdma_ucm_resolve_route),
            abi::RDMA_USER_CM_CMD_QUERY_ROUTE | abi::RDMA_USER_CM_CMD_QUERY => {
                shape!(rdma_ucm_query, response)
            }
            abi::RDMA_USER_CM_CMD_CONNECT => shape!(rdma_ucm_connect),
            abi::RDMA_USER_CM_CMD_LISTEN => shape!(rdma_ucm_listen),
            abi::RDMA_USER_CM_CMD_ACCEPT => shape!(rdma_ucm_accept),
            abi::RDMA_USER_CM_CMD_REJECT => shape!(rdma_ucm_reject),
            abi::RDMA_USER_CM_CMD_DISCONNECT => shape!(rdma_ucm_disconnect),
            abi::RDMA_USER_CM_CMD_INIT_QP_ATTR => shape!(rdma_ucm_init_qp_attr, response),
            abi::RDMA_USER_CM_CMD_GET_EVENT => shape!(rdma_ucm_get_event, response),
            abi::RDMA_USER_CM_CMD_NOTIFY => shape!(rdma_ucm_notify),
            abi::RDMA_USER_CM_CMD_JOIN_IP_MCAST => shape!(rdma_ucm_join_ip_mcast, response),
            abi::RDMA_USER_CM_CMD_JOIN_MCAST => shape!(rdma_ucm_join_mcast, response),
            abi::RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE => shape!(rdma_ucm_resolve_ib_service),
            abi::RDMA_USER_CM_CMD_WRITE_CM_EVENT => shape!(rdma_ucm_write_cm_event),
            abi::RDMA_USER_CM_CMD_MIGRATE_ID => shape!(rdma_ucm_migrate_id, response),
            abi::RDMA_USER_CM_CMD_SET_OPTION => {
                let value = Some(std::mem::offset_of!(abi::rdma_ucm_set_option, optval));
                Self { value, ..shape!(rdma_ucm_set_option) }
            }
            _ => return None,
        })
    }
}

/// An event channel: an open file of the connection manager, or a stand-in for one.
///
/// Closing it destroys every id that was created through it.
pub trait CmDoor: Send + Sync + fmt::Debug {
    /// Sends one command.
    ///
    /// # Errors
    ///
    /// The errno of the call. `EAGAIN`: no event is pending (`GET_EVENT`).
    fn command(&self, command: CmCommand<'_>) -> Result<(), Errno>;

    /// The file, readable while an event is pending.
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
    /// `ENOENT` if the module `rdma_ucm` is not loaded, `EACCES` without permission.
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
        let CmCommand { number, request, answer, value } = command;
        let shape = Shape::of(number).filter(|shape| request.len() == shape.size);
        let shape = shape.ok_or(Errno::EINVAL)?;
        let mut put = |at: usize, address: usize| {
            request[at..at + 8].copy_from_slice(&(address as u64).to_ne_bytes());
        };
        let mut room = 0;
        match (shape.answer, answer) {
            (Some(at), Some(answer)) => {
                put(at, answer.as_mut_ptr().expose_provenance());
                room = answer.len();
            }
            (None, None) => {}
            _ => return Err(Errno::EINVAL),
        }
        match (shape.value, value) {
            (Some(at), Some(value)) => {
                put(at, value.as_ptr().expose_provenance());
                let said = abi::rdma_ucm_set_option::ref_from_bytes(request);
                if said.map_or(true, |option| option.optlen as usize != value.len()) {
                    return Err(Errno::EINVAL);
                }
            }
            (None, None) => {}
            _ => return Err(Errno::EINVAL),
        }
        let header = rdma_ucm_cmd_hdr {
            cmd: number,
            r#in: u16::try_from(request.len()).map_err(|_| Errno::EINVAL)?,
            out: u16::try_from(room).map_err(|_| Errno::EINVAL)?,
        };
        let bytes = [header.as_bytes(), request].concat();
        // SAFETY: `bytes` is readable for its length, which is the length that the kernel copies.
        // The addresses in it name `answer`, borrowed mutably with the length `out`, and `value`,
        // whose length was just compared with the request's. The kernel keeps no address.
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

    /// A pipe in place of the device; the test reads what would reach the kernel.
    fn piped() -> (KernelCmDoor, File) {
        let (read, write) = nix::unistd::pipe().unwrap();
        (KernelCmDoor { file: File::from(write) }, File::from(read))
    }

    #[test]
    fn header_and_addresses_are_filled_in() {
        let (door, mut kernel) = piped();
        let (mut request, mut answer) = ([7u8; 24], [0u8; 4]);
        let at = answer.as_ptr().addr() as u64;
        let answer = Some(&mut answer[..]);
        door.command(CmCommand { number: 0, request: &mut request, answer, value: None }).unwrap();
        let mut bytes = [0; 32];
        kernel.read_exact(&mut bytes).unwrap();
        let mut wanted = Vec::new();
        wanted.extend(0u32.to_ne_bytes());
        wanted.extend(24u16.to_ne_bytes());
        wanted.extend(4u16.to_ne_bytes());
        wanted.extend([7; 8]);
        wanted.extend(at.to_ne_bytes());
        wanted.extend([7; 8]);
        assert_eq!(bytes.as_slice(), wanted);

        let value = [1u8];
        let from = value.as_ptr().addr() as u64;
        let mut request = abi::rdma_ucm_set_option { optlen: 1, ..Default::default() };
        let request = request.as_mut_bytes();
        let value = Some(&value[..]);
        door.command(CmCommand { number: 14, request, answer: None, value }).unwrap();
        kernel.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[8..16], from.to_ne_bytes());
    }

    /// Otherwise the kernel would use bytes of the request as an address, or read past its end.
    #[test]
    fn no_other_address_reaches_the_kernel() {
        let (door, kernel) = piped();
        let mut answer = [0u8; 4];
        let mut refused = |number, request: &mut [u8], has_answer: bool, value| {
            let answer = has_answer.then_some(&mut answer[..]);
            let command = CmCommand { number, request, answer, value };
            assert_eq!(door.command(command), Err(Errno::EINVAL), "{number}");
        };
        // CREATE_ID without a response buffer, truncated, too long, with a value.
        refused(0, &mut [0; 24], false, None);
        refused(0, &mut [0; 16], true, None);
        refused(0, &mut [0; 25], true, None);
        refused(0, &mut [0; 24], true, Some(&[0; 4]));
        // DISCONNECT has no response.
        refused(10, &mut [0; 4], true, None);
        // SET_OPTION with a length beyond the value, and without a value.
        let mut option = abi::rdma_ucm_set_option { optlen: 8, ..Default::default() };
        refused(14, option.as_mut_bytes(), false, Some(&[0; 4]));
        refused(14, option.as_mut_bytes(), false, None);
        refused(99, &mut [0; 8], true, None);
        drop(door);
        let mut rest = Vec::new();
        File::read_to_end(&mut { kernel }, &mut rest).unwrap();
        assert_eq!(rest, [], "nothing was written");
    }

    #[test]
    fn what_is_not_there_is_enoent() {
        let door = KernelCmDoor::open_at(Path::new("/dev/infiniband/rdma_cm_not_there"));
        assert_eq!(door.map(drop), Err(Errno::ENOENT));
    }
}
