//! Structs and addresses of commands and their answers.

use std::net::{IpAddr, SocketAddr};

use uverbs_core::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::header::ip;

/// Reads the struct of a request.
///
/// # Errors
///
/// `EFAULT` for a truncated request, as when the kernel reads beyond a buffer.
pub(super) fn read<T: FromBytes>(request: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(request).map(|(request, _)| request).map_err(|_| Errno::EFAULT)
}

/// Writes the struct of an answer.
///
/// # Errors
///
/// `ENOSPC` if it does not fit.
pub(super) fn give<T: IntoBytes + Immutable>(
    room: Option<&mut [u8]>,
    answer: &T,
) -> Result<(), Errno> {
    let bytes = answer.as_bytes();
    let room = room.and_then(|room| room.get_mut(..bytes.len())).ok_or(Errno::ENOSPC)?;
    room.copy_from_slice(bytes);
    Ok(())
}

/// Address family `AF_IB` of rdma-core's `rdma_cma.h`. A `struct sockaddr_ib` has 48 bytes.
const AF_IB: i32 = 27;

/// Reads the address of a command; `None` for an empty one.
///
/// # Errors
///
/// `EINVAL` for a size that does not fit the family, as none fits an unknown one
/// (`addr.c:rdma_addr_size`), `ENODEV` for an InfiniBand address: for the connection manager the
/// port is an Ethernet port (kernel `cma.c`, `cma_validate_port`).
pub(super) fn address(bytes: &[u8; 128], size: u16) -> Result<Option<SocketAddr>, Errno> {
    if size == 0 {
        return Ok(None);
    }
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let (mut raw, len) = ([0; 16], if family == libc::AF_INET { 16 } else { 28 });
    let ip = match family {
        libc::AF_INET => {
            raw[10..12].fill(0xff);
            raw[12..].copy_from_slice(&bytes[4..8]);
            ip(raw)
        }
        libc::AF_INET6 => {
            raw.copy_from_slice(&bytes[8..24]);
            IpAddr::V6(raw.into())
        }
        AF_IB if size == 48 => return Err(Errno::ENODEV),
        _ => return Err(Errno::EINVAL),
    };
    if size == len { Ok(Some(SocketAddr::new(ip, port))) } else { Err(Errno::EINVAL) }
}

/// Writes a GID as InfiniBand address (`struct sockaddr_ib`) into an answer. Returns its length.
/// Its P_Key is 0: an Ethernet address has none (`ucma.c:ucma_query_gid`).
pub(super) fn put_gid(gid: [u8; 16], service_id: u64, room: &mut [u8; 128]) -> u16 {
    room[..2].copy_from_slice(&(AF_IB as u16).to_ne_bytes());
    room[8..24].copy_from_slice(&gid);
    room[24..32].copy_from_slice(&service_id.to_be_bytes());
    48
}

/// Writes an address into an answer. Returns its length.
pub(super) fn put_address(addr: Option<SocketAddr>, room: &mut [u8; 128]) -> u16 {
    let Some(addr) = addr else { return 0 };
    room[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let (family, len) = match addr.ip() {
        IpAddr::V4(ip) => {
            room[4..8].copy_from_slice(&ip.octets());
            (libc::AF_INET, 16)
        }
        IpAddr::V6(ip) => {
            room[8..24].copy_from_slice(&ip.octets());
            (libc::AF_INET6, 28)
        }
    };
    room[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    len
}
