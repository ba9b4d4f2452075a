//! Headers added to frames that leave, and removed from frames that arrive (PRM "Packet Reformat";
//! Linux `mlx5_ifc.h`, `MLX5_REFORMAT_TYPE_*`).

use super::headers::{Headers, IPV4, IPV6, TAG, UDP};
use super::tunnel::FRAME;
use super::{HEADER, checksum, segment};

/// Offset of the length in a UDP header.
const UDP_LENGTH: usize = 4;

/// Context of ALLOC_PACKET_REFORMAT_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reformat {
    /// L2 to L2 tunnel: put these headers before the whole frame.
    WrapFrame(Vec<u8>),
    /// L2 to L3 tunnel: replace the frame's Ethernet header by these headers.
    WrapPacket(Vec<u8>),
    /// L3 tunnel to L2: remove the tunnel's headers and put this Ethernet header before the packet.
    UnwrapPacket(Vec<u8>),
}

impl Reformat {
    /// True for frames that leave.
    pub(crate) fn wraps(&self) -> bool {
        !matches!(self, Self::UnwrapPacket(_))
    }

    /// Returns the reformatted frame. None if the frame has no tunnel to remove.
    pub(crate) fn apply(&self, frame: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::WrapFrame(outer) => Some(wrapped(outer, frame)),
            Self::WrapPacket(outer) => {
                let tags = Headers::parse(frame).tags.iter().flatten().count();
                Some(wrapped(outer, frame.get(HEADER + TAG * tags..)?))
            }
            Self::UnwrapPacket(header) => {
                let inner = inside(frame, &[IPV4, IPV6])?;
                Some([&header[..], inner].concat())
            }
        }
    }
}

/// Returns the inner frame of an L2 tunnel. None without one.
pub(crate) fn unwrapped(frame: &[u8]) -> Option<Vec<u8>> {
    inside(frame, &[FRAME]).map(<[u8]>::to_vec)
}

/// Payload of the frame's tunnel without padding, if its protocol is in `protocols`.
fn inside<'a>(frame: &'a [u8], protocols: &[u16]) -> Option<&'a [u8]> {
    let headers = Headers::parse(frame);
    let (ip, tunnel) = (headers.ip?, headers.tunnel?);
    protocols.contains(&tunnel.protocol).then(|| frame.get(tunnel.inner..ip.end))?
}

/// Puts `outer` before `inner`, and sets the outer lengths, IPv4's checksum, and UDP's checksum if
/// the header has one.
fn wrapped(outer: &[u8], inner: &[u8]) -> Vec<u8> {
    let mut frame = [outer, inner].concat();
    let headers = Headers::parse(&frame);
    let (ip, end) = (HEADER + TAG * headers.tags.iter().flatten().count(), frame.len());
    let v6 = match headers.ethertype {
        IPV4 => false,
        IPV6 => true,
        _ => return frame,
    };
    if segment::set_length(&mut frame, ip, v6, end).is_none() {
        return frame;
    }
    let Some(ip) = Headers::parse(&frame).ip else { return frame };
    if ip.protocol == UDP
        && let Some(field) =
            frame.get_mut(ip.payload + UDP_LENGTH..).and_then(|rest| rest.first_chunk_mut())
    {
        *field = ((end - ip.payload) as u16).to_be_bytes();
    }
    let sums = ip.protocol == UDP && !checksum::is_absent(&frame, &ip);
    checksum::fill(&mut frame, true, sums);
    frame
}
