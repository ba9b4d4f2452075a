//! Parsing of WQEs: finds each segment.
//!
//! A WQE does not name its segments; opcode, transport and a few flags determine them. The rules
//! are from the PRM's "Send WQE Construction Summary" and from rdma-core (`qp.c`,
//! `_mlx5_post_send`).

use crate::address::{DqpDct, mlx5_base_av, mlx5_wqe_av, mlx5_wqe_xrc_seg};
use crate::ctrl::{DS_BYTES, mlx5_wqe_ctrl_seg};
use crate::data::{
    ByteCount, INLINE_HEADER, mlx5_rwqe_sig, mlx5_wqe_data_seg, mlx5_wqe_srq_next_seg,
};
use crate::eth::{INLINE_HDR_OFFSET, InlineHdrSz, eth_bytes, mlx5_wqe_eth_seg_min};
use crate::offload::{
    mlx5_mmo_metadata_seg, mlx5_wqe_flow_update_ctrl_seg,
    mlx5_wqe_header_modify_argument_update_seg, mlx5_wqe_set_psv_seg,
};
use crate::opcode::{MLX5_OPC_MOD_MMO_DMA, Opcode};
use crate::remote::{
    atomic_bytes, mlx5_wqe_atomic_seg, mlx5_wqe_masked_atomic_seg, mlx5_wqe_masked_cs32_seg,
    mlx5_wqe_masked_fa32_seg, mlx5_wqe_raddr_seg,
};
use crate::tag::mlx5_wqe_tm_seg;
use crate::umr::{
    FlagsPd, UMR_REPEAT_OP, UmrFlags, mlx5_wqe_mkey_context_seg, mlx5_wqe_umr_ctrl_seg,
    mlx5_wqe_umr_klm_seg, mlx5_wqe_umr_repeat_block_seg, mlx5_wqe_umr_repeat_ent_seg,
};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

pub use crate::wqe_error::WqeError;

/// Transport of the queue that a WQE was posted to. It determines the segments behind the control
/// segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram: address vector.
    Ud,
    /// XRC initiator: XRC segment.
    Xrc,
    /// Dynamically connected initiator: address vector.
    Dc,
    /// Raw packet: Ethernet segment.
    Raw,
}

/// A segment after the control segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Segment<'a> {
    /// Address vector of 48 bytes.
    Av(&'a mlx5_wqe_av),
    /// Address vector of 16 bytes.
    BaseAv(&'a mlx5_base_av),
    /// XRC segment.
    Xrc(&'a mlx5_wqe_xrc_seg),
    /// Ethernet segment and its inline header, which starts in the segment's last two bytes.
    Eth(&'a mlx5_wqe_eth_seg_min, &'a [u8]),
    /// Remote address.
    Raddr(&'a mlx5_wqe_raddr_seg),
    /// Operands of an atomic of 8 bytes, or of a masked fetch-and-add of 8 bytes.
    Atomic(&'a mlx5_wqe_atomic_seg),
    /// Operands of a masked compare-and-swap of 8 bytes.
    MaskedAtomic(&'a mlx5_wqe_masked_atomic_seg),
    /// Operands of a masked compare-and-swap of 4 bytes.
    MaskedCs32(&'a mlx5_wqe_masked_cs32_seg),
    /// Operands of a masked fetch-and-add of 4 bytes.
    MaskedFa32(&'a mlx5_wqe_masked_fa32_seg),
    /// Pointer to data.
    Data(&'a mlx5_wqe_data_seg),
    /// Data in the WQE, without header and padding.
    Inline(&'a [u8]),
    /// UMR control.
    UmrCtrl(&'a mlx5_wqe_umr_ctrl_seg),
    /// New mkey.
    MkeyContext(&'a mlx5_wqe_mkey_context_seg),
    /// Translation entry. Trailing entries may be all zero: they pad to 64 bytes.
    Klm(&'a mlx5_wqe_umr_klm_seg),
    /// Head of an interleaved translation.
    RepeatBlock(&'a mlx5_wqe_umr_repeat_block_seg),
    /// Entry of an interleaved translation.
    RepeatEntry(&'a mlx5_wqe_umr_repeat_ent_seg),
    /// Signature value.
    SetPsv(&'a mlx5_wqe_set_psv_seg),
    /// Tag matching.
    TagMatching(&'a mlx5_wqe_tm_seg),
    /// Memory copy.
    MmoMetadata(&'a mlx5_mmo_metadata_seg),
    /// Steering update.
    FlowUpdate(&'a mlx5_wqe_flow_update_ctrl_seg),
    /// Arguments of a header modification.
    HeaderModifyArgument(&'a mlx5_wqe_header_modify_argument_update_seg),
    /// Bytes without meaning in this crate: padding, byte stream formats, obsolete operations.
    Opaque(&'a [u8]),
}

/// A send WQE with known segments. Any bytes result in a view or an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WqeView<'a> {
    ctrl: &'a mlx5_wqe_ctrl_seg,
    /// Bytes behind the control segment, up to `ds`.
    body: &'a [u8],
    service: Service,
}

impl<'a> WqeView<'a> {
    /// Finds the segments of the WQE at the start of `bytes`, posted to a queue of transport
    /// `service`. Bytes behind `16 * ds` are ignored. A WQE that wraps around the end of its queue
    /// must have been made contiguous.
    ///
    /// # Errors
    ///
    /// See [`WqeError`].
    pub fn parse(bytes: &'a [u8], service: Service) -> Result<Self, WqeError> {
        Self::parse_each(bytes, service, drop)
    }

    /// Parses as [`parse`](Self::parse), and calls `each` for each segment as it is found: one walk
    /// instead of two.
    ///
    /// # Errors
    ///
    /// See [`WqeError`]. Segments passed to `each` before are invalid then.
    pub fn parse_each(
        bytes: &'a [u8],
        service: Service,
        mut each: impl FnMut(Segment<'a>),
    ) -> Result<Self, WqeError> {
        let no_ctrl = WqeError::NoControlSegment { have: bytes.len() };
        let (ctrl, rest) = mlx5_wqe_ctrl_seg::ref_from_prefix(bytes).map_err(|_| no_ctrl)?;
        let ds = ctrl.word1().ds();
        let body_len =
            (usize::from(ds) * DS_BYTES).checked_sub(DS_BYTES).ok_or(WqeError::ZeroDs)?;
        let body = rest.get(..body_len).ok_or(WqeError::DsPastEnd { ds, have: bytes.len() })?;
        let view = Self { ctrl, body, service };
        let mut cursor = view.cursor();
        while let Some(segment) = cursor.next() {
            each(segment?);
            // Most of a WQE is payload: a separate loop saves the test of the stage for each
            // segment.
            while let Stage::Payload = cursor.stage
                && let Some(segment) = cursor.payload()?
            {
                each(segment);
            }
        }
        Ok(view)
    }

    /// Control segment.
    #[inline]
    #[must_use]
    pub const fn ctrl(&self) -> &'a mlx5_wqe_ctrl_seg {
        self.ctrl
    }

    /// Opcode.
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        self.ctrl.opcode()
    }

    /// Transport of the view.
    #[inline]
    #[must_use]
    pub const fn service(&self) -> Service {
        self.service
    }

    /// Segments behind the control segment, in order.
    #[inline]
    pub fn segments(&self) -> Segments<'a> {
        Segments(self.cursor())
    }

    /// Remote address, if the operation has one.
    #[must_use]
    pub fn raddr(&self) -> Option<&'a mlx5_wqe_raddr_seg> {
        self.segments().find_map(|segment| match segment {
            Segment::Raddr(raddr) => Some(raddr),
            _ => None,
        })
    }

    fn cursor(&self) -> Cursor<'a> {
        Cursor {
            rest: self.body,
            offset: DS_BYTES,
            opcode: self.opcode(),
            opmod: self.ctrl.word0().opmod(),
            service: self.service,
            stage: Stage::Address,
        }
    }
}

/// Iterator over the segments of a [`WqeView`].
#[derive(Clone, Debug)]
pub struct Segments<'a>(Cursor<'a>);

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        // `WqeView::parse` found no error in these bytes, so there is no error to lose.
        self.0.next()?.ok()
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Address segment of the transport.
    Address,
    /// First segment of the opcode.
    Operation,
    /// Operands behind the remote address.
    Atomic,
    /// Pointers and inline data up to the end.
    Payload,
    /// New mkey behind UMR control.
    Mkey { inline: bool },
    /// Translation; the last `bsf` bytes are the byte stream format.
    Translation { bsf: usize },
    /// Entries of a repeat block.
    Repeat { left: u16, bsf: usize },
    /// Arguments behind a steering update.
    FlowArgument,
    /// Signature values up to the end.
    Psv,
    /// Bytes without meaning up to the end.
    Opaque,
    /// End of the WQE.
    Done,
}

#[derive(Clone, Debug)]
struct Cursor<'a> {
    rest: &'a [u8],
    offset: usize,
    opcode: Opcode,
    opmod: u8,
    service: Service,
    stage: Stage,
}

impl<'a> Iterator for Cursor<'a> {
    type Item = Result<Segment<'a>, WqeError>;

    /// Terminates: each round yields a segment or moves to a later stage.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let step = match self.stage {
                Stage::Address => self.address(),
                Stage::Operation => self.operation(),
                Stage::Atomic => self.atomic(),
                Stage::Payload => self.payload(),
                Stage::Mkey { inline } => self.mkey(inline),
                Stage::Translation { bsf } => self.translation(bsf),
                Stage::Repeat { left, bsf } => self.repeat(left, bsf),
                Stage::FlowArgument => self.flow_argument(),
                Stage::Psv if !self.rest.is_empty() => {
                    self.take("mlx5_wqe_set_psv_seg", Segment::SetPsv)
                }
                Stage::Opaque if !self.rest.is_empty() => {
                    Ok(Some(Segment::Opaque(self.skip(self.rest.len()))))
                }
                Stage::Psv | Stage::Opaque | Stage::Done => return None,
            };
            match step {
                Ok(None) => {}
                Ok(Some(segment)) => return Some(Ok(segment)),
                Err(error) => {
                    self.stage = Stage::Done;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// A segment, a change of stage, or an error.
type Step<'a> = Result<Option<Segment<'a>>, WqeError>;

impl<'a> Cursor<'a> {
    /// Takes the next `len` bytes, or all if there are fewer.
    #[inline]
    fn skip(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, &[]));
        self.rest = rest;
        self.offset += taken.len();
        taken
    }

    fn truncated(&self, segment: &'static str, need: usize) -> WqeError {
        WqeError::Truncated { segment, offset: self.offset, need, have: self.rest.len() }
    }

    #[inline]
    fn take<T>(&mut self, name: &'static str, wrap: fn(&'a T) -> Segment<'a>) -> Step<'a>
    where
        T: FromBytes + Immutable + KnownLayout + Unaligned,
    {
        match T::ref_from_prefix(self.rest) {
            Ok((segment, _)) => {
                self.skip(size_of::<T>());
                Ok(Some(wrap(segment)))
            }
            Err(_) => Err(self.truncated(name, size_of::<T>())),
        }
    }

    #[inline]
    fn address(&mut self) -> Step<'a> {
        self.stage = Stage::Operation;
        if !self.opcode.leaves_the_host() {
            return Ok(None);
        }
        match self.service {
            Service::Rc | Service::Uc => Ok(None),
            Service::Xrc => self.take("mlx5_wqe_xrc_seg", Segment::Xrc),
            Service::Ud | Service::Dc => match mlx5_base_av::ref_from_prefix(self.rest) {
                Ok((base, _)) if !DqpDct(base.dqp_dct.get()).ext() => {
                    self.take("mlx5_base_av", Segment::BaseAv)
                }
                _ => self.take("mlx5_wqe_av", Segment::Av),
            },
            Service::Raw => self.eth(),
        }
    }

    fn eth(&mut self) -> Step<'a> {
        let name = "mlx5_wqe_eth_seg";
        let Ok((segment, _)) = mlx5_wqe_eth_seg_min::ref_from_prefix(self.rest) else {
            return Err(self.truncated(name, size_of::<mlx5_wqe_eth_seg_min>()));
        };
        let header = InlineHdrSz(segment.inline_hdr_sz.get());
        let size = if header.insert_vlan() { 0 } else { header.size() };
        let end = INLINE_HDR_OFFSET + usize::from(size);
        match self.rest.get(INLINE_HDR_OFFSET..end) {
            // `rest` is a multiple of 16, so if it holds the header it holds the padding, too.
            Some(header) => {
                self.skip(eth_bytes(size));
                Ok(Some(Segment::Eth(segment, header)))
            }
            None => Err(self.truncated(name, eth_bytes(size))),
        }
    }

    #[inline]
    fn operation(&mut self) -> Step<'a> {
        match self.opcode {
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL | Opcode::TSO => {
                self.stage = Stage::Payload;
                Ok(None)
            }
            opcode if opcode.has_raddr() => {
                self.stage = if opcode.is_atomic() { Stage::Atomic } else { Stage::Payload };
                self.take("mlx5_wqe_raddr_seg", Segment::Raddr)
            }
            Opcode::UMR => {
                let step = self.take("mlx5_wqe_umr_ctrl_seg", Segment::UmrCtrl)?;
                if let Some(Segment::UmrCtrl(umr)) = step {
                    self.stage = Stage::Mkey { inline: UmrFlags(umr.flags).inline() };
                }
                Ok(step)
            }
            Opcode::SET_PSV => {
                self.stage = Stage::Psv;
                self.take("mlx5_wqe_set_psv_seg", Segment::SetPsv)
            }
            Opcode::TAG_MATCHING => {
                self.stage = Stage::Payload;
                self.take("mlx5_wqe_tm_seg", Segment::TagMatching)
            }
            Opcode::FLOW_TBL_ACCESS => {
                self.stage = Stage::FlowArgument;
                self.take("mlx5_wqe_flow_update_ctrl_seg", Segment::FlowUpdate)
            }
            Opcode::MMO if self.opmod == MLX5_OPC_MOD_MMO_DMA => {
                self.stage = Stage::Payload;
                self.take("mlx5_mmo_metadata_seg", Segment::MmoMetadata)
            }
            opcode if opcode.name().is_none() => Err(WqeError::UnknownOpcode(opcode)),
            _ => {
                self.stage = Stage::Opaque;
                Ok(None)
            }
        }
    }

    fn atomic(&mut self) -> Step<'a> {
        self.stage = Stage::Payload;
        let name = "mlx5_wqe_atomic_seg";
        let masked = "mlx5_wqe_masked_atomic_seg";
        match (self.opcode, atomic_bytes(self.opmod)) {
            (Opcode::ATOMIC_MASKED_CS, Some(4)) => self.take(masked, Segment::MaskedCs32),
            (Opcode::ATOMIC_MASKED_CS, Some(8)) => self.take(masked, Segment::MaskedAtomic),
            (Opcode::ATOMIC_MASKED_FA, Some(4)) => self.take(masked, Segment::MaskedFa32),
            (Opcode::ATOMIC_MASKED_FA, Some(8)) => self.take(masked, Segment::Atomic),
            (Opcode::ATOMIC_CS | Opcode::ATOMIC_FA, _) => self.take(name, Segment::Atomic),
            _ => Err(WqeError::AtomicSize { opmod: self.opmod }),
        }
    }

    #[inline]
    fn payload(&mut self) -> Step<'a> {
        let Some((head, after)) = self.rest.split_first_chunk::<INLINE_HEADER>() else {
            self.stage = Stage::Done; // at the end: `rest` is a multiple of 16
            return Ok(None);
        };
        let count = ByteCount(u32::from_be_bytes(*head));
        if !count.inline() {
            return self.take("mlx5_wqe_data_seg", Segment::Data);
        }
        let length = count.count() as usize;
        match after.get(..length) {
            Some(data) => {
                self.skip(crate::data::inline_bytes(length));
                Ok(Some(Segment::Inline(data)))
            }
            None => Err(WqeError::InlinePastEnd { offset: self.offset, length, have: after.len() }),
        }
    }

    fn mkey(&mut self, inline: bool) -> Step<'a> {
        let step = self.take("mlx5_wqe_mkey_context_seg", Segment::MkeyContext)?;
        if let Some(Segment::MkeyContext(mkey)) = step {
            self.stage = if inline {
                let octowords = mkey.bsf_octword_size.get() as usize;
                let enabled = FlagsPd(mkey.flags_pd.get()).bsf_enable();
                Stage::Translation {
                    bsf: if enabled { octowords.saturating_mul(DS_BYTES) } else { 0 },
                }
            } else {
                Stage::Payload
            };
        }
        Ok(step)
    }

    fn translation(&mut self, bsf: usize) -> Step<'a> {
        if self.rest.len() <= bsf {
            self.stage = Stage::Opaque;
            return Ok(None);
        }
        match mlx5_wqe_umr_repeat_block_seg::ref_from_prefix(self.rest) {
            Ok((block, _)) if block.op.get() == UMR_REPEAT_OP => {
                self.stage = Stage::Repeat { left: block.num_ent.get(), bsf };
                self.take("mlx5_wqe_umr_repeat_block_seg", Segment::RepeatBlock)
            }
            _ => self.take("mlx5_wqe_umr_klm_seg", Segment::Klm),
        }
    }

    fn repeat(&mut self, left: u16, bsf: usize) -> Step<'a> {
        match left.checked_sub(1) {
            None => {
                self.stage = Stage::Opaque; // padding to 64 bytes, then the byte stream format
                Ok(None)
            }
            Some(left) => {
                self.stage = Stage::Repeat { left, bsf };
                self.take("mlx5_wqe_umr_repeat_ent_seg", Segment::RepeatEntry)
            }
        }
    }

    fn flow_argument(&mut self) -> Step<'a> {
        self.stage = Stage::Opaque;
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.take("mlx5_wqe_header_modify_argument_update_seg", Segment::HeaderModifyArgument)
    }
}

/// Kind of receive WQE, by the segment before its scatter list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvKind {
    /// Receive queue: only the scatter list.
    Rq,
    /// Receive queue with signatures: [`mlx5_rwqe_sig`].
    RqSigned,
    /// Shared receive queue: [`mlx5_wqe_srq_next_seg`].
    Srq,
}

/// A receive WQE: its head, and a scatter list up to the terminator or the end of the WQE.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecvView<'a> {
    head: RecvHead<'a>,
    list: &'a [mlx5_wqe_data_seg],
}

/// First segment of a receive WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvHead<'a> {
    /// No head.
    None,
    /// Signature.
    Signature(&'a mlx5_rwqe_sig),
    /// Free list.
    Next(&'a mlx5_wqe_srq_next_seg),
}

impl<'a> RecvView<'a> {
    /// Parses one WQE. `bytes` is its whole stride.
    ///
    /// # Errors
    ///
    /// [`WqeError::Truncated`] if the head, or a segment of the list, is incomplete.
    pub fn parse(bytes: &'a [u8], kind: RecvKind) -> Result<Self, WqeError> {
        let cut = |segment, offset| WqeError::Truncated {
            segment,
            offset,
            need: DS_BYTES,
            have: bytes.len() - offset,
        };
        let (head, list) = match kind {
            RecvKind::Rq => (RecvHead::None, bytes),
            RecvKind::RqSigned => mlx5_rwqe_sig::ref_from_prefix(bytes)
                .map(|(sig, list)| (RecvHead::Signature(sig), list))
                .map_err(|_| cut("mlx5_rwqe_sig", 0))?,
            RecvKind::Srq => mlx5_wqe_srq_next_seg::ref_from_prefix(bytes)
                .map(|(next, list)| (RecvHead::Next(next), list))
                .map_err(|_| cut("mlx5_wqe_srq_next_seg", 0))?,
        };
        let list = <[mlx5_wqe_data_seg]>::ref_from_bytes(list)
            .map_err(|_| cut("mlx5_wqe_data_seg", bytes.len() - bytes.len() % DS_BYTES))?;
        Ok(Self { head, list })
    }

    /// First segment.
    #[inline]
    #[must_use]
    pub const fn head(&self) -> RecvHead<'a> {
        self.head
    }

    /// Scatter list, without terminator.
    #[inline]
    pub fn data(&self) -> impl Iterator<Item = &'a mlx5_wqe_data_seg> + use<'a> {
        self.list.iter().take_while(|segment| !segment.is_terminator())
    }
}
