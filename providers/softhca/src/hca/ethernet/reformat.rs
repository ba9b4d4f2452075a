//! Headers that are put on frames that leave, and taken off frames that arrive (PRM "Packet
//! Reformat"; Linux `mlx5_ifc.h`, `MLX5_REFORMAT_TYPE_*`).

use super::headers::{Headers, IPV4, IPV6, TAG, UDP};
use super::tunnel::FRAME;
use super::{HEADER, checksum, segment};

/// Where the length is in UDP's header.
const UDP_LENGTH: usize = 4;

/// ALLOC_PACKET_REFORMAT_CONTEXT: what is put in front of a frame, or in place of what is taken
/// off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reformat {
    /// These headers come before the whole frame.
    WrapFrame(Vec<u8>),
    /// These headers take the place of the frame's own addresses, tags and type.
    WrapPacket(Vec<u8>),
    /// The tunnel is taken off a packet, and this Ethernet header put in front of it.
    UnwrapPacket(Vec<u8>),
}

impl Reformat {
    /// Whether it is for frames that leave.
    pub(crate) fn wraps(&self) -> bool {
        !matches!(self, Self::UnwrapPacket(_))
    }

    /// The frame with it done. None if the frame has no such tunnel.
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

/// The frame in a tunnel of frames. None if there is none.
pub(crate) fn unwrapped(frame: &[u8]) -> Option<Vec<u8>> {
    inside(frame, &[FRAME]).map(<[u8]>::to_vec)
}

/// What is in the frame's tunnel, if it is of one of these types. Padding isn't.
fn inside<'a>(frame: &'a [u8], protocols: &[u16]) -> Option<&'a [u8]> {
    let headers = Headers::parse(frame);
    let (ip, tunnel) = (headers.ip?, headers.tunnel?);
    protocols.contains(&tunnel.protocol).then(|| frame.get(tunnel.inner..ip.end))?
}

/// `outer` and then `inner`. The outer lengths and IPv4's checksum are set right, and UDP's if the
/// header has one.
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
