//! Work requests and completions of mlx5.

use clap::ValueEnum;
use uverbs_mlx5_prm::print::CqeView;
use uverbs_mlx5_prm::wqe::{RecvKind, RecvView, Service, WqeView};

use super::report::{Explained, Wrong};

/// The transport of a send queue.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Transport {
    Rc,
    Uc,
    Ud,
    Xrc,
    Dc,
    Raw,
}

impl Transport {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Rc, Self::Uc, Self::Ud, Self::Xrc, Self::Dc, Self::Raw];

    /// Compares the name of the transport service with `name`.
    pub(crate) fn is(self, name: &str) -> bool {
        format!("{:?}", self.service()) == name
    }

    fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud => Service::Ud,
            Self::Xrc => Service::Xrc,
            Self::Dc => Service::Dc,
            Self::Raw => Service::Raw,
        }
    }
}

pub(super) fn wqe(bytes: &[u8], transport: Transport) -> Result<Explained, Wrong> {
    match WqeView::parse(bytes, transport.service()) {
        Ok(view) => Ok(Explained::printed(&view.to_string())),
        Err(error) => Err((bytes.len(), error.to_string())),
    }
}

pub(super) fn recv(bytes: &[u8], srq: bool) -> Result<Explained, Wrong> {
    let kind = if srq { RecvKind::Srq } else { RecvKind::Rq };
    match RecvView::parse(bytes, kind) {
        Ok(view) => Ok(Explained::printed(&view.to_string())),
        Err(error) => Err((bytes.len(), error.to_string())),
    }
}

pub(super) fn cqe(bytes: &[u8]) -> Result<Explained, Wrong> {
    let view = CqeView::parse(bytes).filter(|_| matches!(bytes.len(), 64 | 128));
    match view {
        Some(view) => Ok(Explained::printed(&view.to_string())),
        None => Err((bytes.len(), "an entry has 64 or 128".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SEND of 64 bytes, signaled: the example of `uverbs-mlx5-prm`.
    fn send() -> Vec<u8> {
        let words = [0x0000_070a_u32, 0x0000_4802, 0x0000_0008, 0, 0x40, 0x1000, 0x7f00, 0];
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_send() {
        let text = wqe(&send(), Transport::Rc).unwrap().to_string();
        for line in [
            "SEND on Rc",
            "mlx5_wqe_ctrl_seg",
            "0x04 qpn_ds",
            "qpn=72 ds=2",
            "mlx5_wqe_data_seg",
            "0x04 lkey        0x00001000",
            "0x08 addr        0x00007f0000000000",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
    }

    #[test]
    fn a_completion() {
        let mut entry = [0; 64];
        entry[60..64].copy_from_slice(&[0, 7, 0x20, 0]);
        let text = cqe(&entry).unwrap().to_string();
        assert!(text.contains("wqe_counter") && text.contains("0x0007"), "{text}");
        let wide = [[0xaa; 64], entry].concat();
        assert_eq!(cqe(&wide).unwrap(), cqe(&entry).unwrap());
    }

    #[test]
    fn what_is_cut_is_refused() {
        for len in 0..32 {
            assert!(wqe(&send()[..len], Transport::Rc).is_err(), "{len}");
        }
        for len in [0, 63, 65, 127, 129] {
            assert!(cqe(&vec![0; len]).is_err(), "{len}");
        }
    }

    #[test]
    fn any_bytes_are_explained_or_refused() {
        let mut state = 1u64;
        for len in 0..200 {
            let mut bytes = vec![0; len];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            for transport in Transport::value_variants() {
                let _ = wqe(&bytes, *transport);
            }
            let _ = (recv(&bytes, false), recv(&bytes, true), cqe(&bytes));
        }
    }
}
