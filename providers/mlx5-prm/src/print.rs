//! Printing of every field, for logs and captured bytes.

use crate::cqe::{CqeOpcode, mlx5_cqe64, mlx5_err_cqe, mlx5_sigerr_cqe};
use crate::field::hex;
use crate::wqe::{RecvHead, RecvView, Segment, WqeView};
use core::fmt;
use zerocopy::FromBytes;

impl fmt::Display for Segment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Av(x) => x.fmt(f),
            Self::BaseAv(x) => x.fmt(f),
            Self::Xrc(x) => x.fmt(f),
            Self::Eth(x, header) => {
                write!(f, "{x}\n  header ")?;
                hex(header, f)
            }
            Self::Raddr(x) => x.fmt(f),
            Self::Atomic(x) => x.fmt(f),
            Self::MaskedAtomic(x) => x.fmt(f),
            Self::MaskedCs32(x) => x.fmt(f),
            Self::MaskedFa32(x) => x.fmt(f),
            Self::Data(x) => x.fmt(f),
            Self::Inline(data) => {
                write!(f, "mlx5_wqe_inline_seg\n  length {}\n  data ", data.len())?;
                hex(data, f)
            }
            Self::UmrCtrl(x) => x.fmt(f),
            Self::MkeyContext(x) => x.fmt(f),
            Self::Klm(x) => x.fmt(f),
            Self::RepeatBlock(x) => x.fmt(f),
            Self::RepeatEntry(x) => x.fmt(f),
            Self::SetPsv(x) => x.fmt(f),
            Self::TagMatching(x) => x.fmt(f),
            Self::MmoMetadata(x) => x.fmt(f),
            Self::FlowUpdate(x) => x.fmt(f),
            Self::HeaderModifyArgument(x) => x.fmt(f),
            Self::Opaque(bytes) => {
                write!(f, "opaque\n  length {}\n  bytes ", bytes.len())?;
                hex(bytes, f)
            }
        }
    }
}

/// Prints opcode and transport, then every field of every segment.
impl fmt::Display for WqeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:?}\n{}", self.opcode(), self.service(), self.ctrl())?;
        self.segments().try_for_each(|segment| write!(f, "\n{segment}"))
    }
}

impl fmt::Debug for WqeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints every field of every segment up to the terminator.
impl fmt::Display for RecvView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("receive")?;
        match self.head() {
            RecvHead::None => {}
            RecvHead::Signature(sig) => write!(f, "\n{sig}")?,
            RecvHead::Next(next) => write!(f, "\n{next}")?,
        }
        self.data().try_for_each(|segment| write!(f, "\n{segment}"))
    }
}

impl fmt::Debug for RecvView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A CQE in the form of its opcode. Any 64 bytes have a view.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CqeView<'a> {
    /// A send WQE is done.
    Requester(&'a mlx5_cqe64),
    /// A message arrived.
    Responder(&'a mlx5_cqe64),
    /// A WQE failed, on either side.
    Error(&'a mlx5_err_cqe),
    /// A signature error.
    SigErr(&'a mlx5_sigerr_cqe),
    /// Never written, the end of a resized ring, or an opcode without a name.
    Other(&'a mlx5_cqe64),
}

impl<'a> CqeView<'a> {
    /// View of `cqe`.
    #[must_use]
    pub fn new(cqe: &'a mlx5_cqe64) -> Self {
        match cqe.opcode() {
            CqeOpcode::REQ => Self::Requester(cqe),
            CqeOpcode::RESP_WR_IMM
            | CqeOpcode::RESP_SEND
            | CqeOpcode::RESP_SEND_IMM
            | CqeOpcode::RESP_SEND_INV => Self::Responder(cqe),
            CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => Self::Error(cqe.as_err()),
            CqeOpcode::SIG_ERR => Self::SigErr(cqe.as_sig_err()),
            _ => Self::Other(cqe),
        }
    }

    /// View of the last 64 bytes of a CQE of 64 or 128 bytes. `None`: fewer bytes.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        mlx5_cqe64::ref_from_suffix(bytes).ok().map(|(_, cqe)| Self::new(cqe))
    }

    /// The CQE as a plain structure.
    #[must_use]
    pub fn cqe64(&self) -> &'a mlx5_cqe64 {
        match *self {
            Self::Requester(cqe) | Self::Responder(cqe) | Self::Other(cqe) => cqe,
            Self::Error(cqe) => cqe.as_cqe64(),
            Self::SigErr(cqe) => zerocopy::transmute_ref!(cqe),
        }
    }
}

/// Prints kind and meaning, then every field.
impl fmt::Display for CqeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cqe64().opcode())?;
        match self {
            Self::Requester(cqe) => write!(f, " of {}\n{cqe}", cqe.send_opcode()),
            Self::Responder(cqe) | Self::Other(cqe) => write!(f, "\n{cqe}"),
            Self::Error(cqe) => {
                let syndrome = cqe.syndrome();
                write!(f, " {syndrome}: {}\n{cqe}", syndrome.explanation())
            }
            Self::SigErr(cqe) => write!(f, "\n{cqe}"),
        }
    }
}

impl fmt::Debug for CqeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
