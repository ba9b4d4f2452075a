//! Arbitrary bytes from a peer in place of its address.

use std::sync::atomic::AtomicBool;

use super::address::Address;
use super::exchange::{ExchangeError, Peer, Way};
use crate::base::error::check_printable;
use crate::link::tcp::Stream;
use crate::link::verify::Who;

const SERVER: u8 = 1;
const XRC: u8 = 2;
/// Flag: the input's rest is the peer's bytes. Without it: positions and bytes to change in valid
/// lines.
const RAW: u8 = 4;
/// Flag: the peer sends the first bytes only; the input's last byte is their number.
const CUT: u8 = 8;

const THEIRS: Address = Address { lid: 0x12, qpn: 0x40, psn: 0xab_cdef, gid: None };
const WAY: Way = Way { target: 0x41, srqn: 0x42 };

/// The exchange of either role ends with the peer's address or an error.
pub(crate) fn pingpong(data: &[u8]) {
    let Some((&flags, rest)) = data.split_first() else { return };
    let mut said = THEIRS.encode().to_vec();
    if flags & XRC != 0 {
        said.extend(WAY.encode());
    }
    if flags & SERVER != 0 {
        said.extend(b"done\0");
    }
    if flags & RAW != 0 {
        said = rest.to_vec();
    } else {
        for edit in rest.chunks_exact(2).take(4) {
            let at = usize::from(edit[0]) % said.len();
            said[at] = edit[1];
        }
    }
    if flags & CUT != 0 {
        said.truncate(rest.last().copied().unwrap_or(0).into());
    }
    match exchange(flags, &said) {
        Ok(theirs) => {
            let first = said[..theirs.encode().len()].to_ascii_lowercase();
            assert_eq!(theirs.encode()[..], first, "another address than was said");
        }
        Err(error) => check_printable(&error),
    }
}

fn exchange(flags: u8, said: &[u8]) -> Result<Address, ExchangeError> {
    let never = AtomicBool::new(false);
    let who = if flags & SERVER != 0 { Who::Client } else { Who::Server };
    let (stream, _there) = Stream::that_said(said, who);
    let mut peer = Peer::new(stream, &never);
    let own = Address { qpn: 0x99, ..THEIRS };
    let read = |peer: &mut Peer<'_>| {
        let address = peer.read_address()?;
        if flags & XRC != 0 {
            let Way { target, srqn } = peer.read_way()?;
            assert!(target.max(srqn) < 1 << 24);
        }
        Ok(address)
    };
    if flags & SERVER != 0 {
        let theirs = read(&mut peer)?;
        peer.write_address(&own)?;
        peer.read_done()?;
        return Ok(theirs);
    }
    peer.write_address(&own)?;
    let theirs = read(&mut peer)?;
    peer.write_done()?;
    Ok(theirs)
}
