//! Cards of the family: capabilities in which they differ, as a driver and a program meet them.
//!
//! Sources: PCI numbers of Linux `drivers/net/ethernet/mellanox/mlx5/core/main.c`
//! (`mlx5_core_pci_table`); inlined headers of DPDK `doc/guides/nics/mlx5.rst`; device memory, tag
//! matching, ECE, streams of DC and the numbers of tags of NVIDIA's driver documentation and of
//! `ibv_devinfo -v` in public reports. Numbers of objects are the model's on every card.

use std::fmt;
use std::str::FromStr;

use uverbs_core::environment::Variable;
use uverbs_mlx5_prm::eth::MLX5_ETH_L2_INLINE_HEADER_SIZE;

use crate::hca::{HcaConfig, Strictness};

/// A card, or a function of one, that a software HCA goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Card {
    /// ConnectX-4.
    ConnectX4,
    /// ConnectX-4 Lx.
    ConnectX4Lx,
    /// ConnectX-5.
    ConnectX5,
    /// ConnectX-6 Dx: the default device.
    ConnectX6Dx,
    /// ConnectX-7.
    ConnectX7,
    /// BlueField-2, seen from the host.
    BlueField2,
    /// Virtual function (SR-IOV) with few BlueFlame pages.
    VirtualFunction,
    /// Subfunction (SF), without BlueFlame pages to spare.
    Subfunction,
    /// Card that no driver has met: relaxed memory keys alone, doorbell pages over 65,535, another
    /// limit for dynamic connections than for RC, page faults that end shared receives, and errors
    /// where others look away.
    Future,
}

/// Differences of one card.
#[derive(Clone, Copy, Debug)]
struct Row {
    card: Card,
    name: &'static str,
    part: u16,
    /// Headers of raw packets must be inline.
    inline_headers: bool,
    ece: bool,
    log_streams: u8,
    log_tags: u8,
    device_memory: bool,
    max_blue_flame: u32,
}

/// Row of a card that lacks nothing.
const FULL: Row = Row {
    card: Card::ConnectX6Dx,
    name: "connectx-6dx",
    part: 0x101d,
    inline_headers: false,
    ece: true,
    log_streams: 6,
    log_tags: 10,
    device_memory: true,
    max_blue_flame: 1 << 10,
};

/// Row of the oldest card with this driver and library.
const OLD: Row = Row {
    card: Card::ConnectX4,
    name: "connectx-4",
    part: 0x1013,
    inline_headers: true,
    ece: false,
    log_streams: 0,
    log_tags: 0,
    device_memory: false,
    ..FULL
};

const ROWS: [Row; 9] = [
    OLD,
    Row { card: Card::ConnectX4Lx, name: "connectx-4lx", part: 0x1015, ..OLD },
    Row {
        card: Card::ConnectX5,
        name: "connectx-5",
        part: 0x1017,
        ece: false,
        log_streams: 0,
        log_tags: 7,
        ..FULL
    },
    FULL,
    Row { card: Card::ConnectX7, name: "connectx-7", part: 0x1021, ..FULL },
    Row { card: Card::BlueField2, name: "bluefield-2", part: 0xa2d6, ..FULL },
    Row {
        card: Card::VirtualFunction,
        name: "vf",
        part: 0x101e,
        log_tags: 0,
        max_blue_flame: 2,
        ..FULL
    },
    Row { card: Card::Subfunction, name: "sf", log_tags: 0, max_blue_flame: 0, ..FULL },
    Row { card: Card::Future, name: "future", part: 0x1023, ..FULL },
];

impl Card {
    /// All cards, oldest first.
    pub const ALL: [Self; 9] = {
        let mut all = [Self::ConnectX4; 9];
        let mut at = 0;
        while at < all.len() {
            all[at] = ROWS[at].card;
            at += 1;
        }
        all
    };

    /// Card that `UVERBS_SOFTHCA_PROFILE` names.
    pub(crate) fn of_environment() -> Option<Result<Self, UnknownCard>> {
        let name = Variable::SoftHcaProfile.value().filter(|name| !name.is_empty())?;
        Some(name.to_string_lossy().parse())
    }

    fn row(self) -> Row {
        ROWS.into_iter().find(|row| row.card == self).unwrap_or(FULL)
    }

    /// Name in texts: `connectx-5`, `vf`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Gives `config` the capabilities of the card.
    pub(crate) fn apply(self, config: &mut HcaConfig) {
        let row = self.row();
        config.part = row.part;
        // An Ethernet header with a VLAN tag.
        let inline = if row.inline_headers { MLX5_ETH_L2_INLINE_HEADER_SIZE } else { 0 };
        config.min_inline_header = inline as u16;
        config.ece = u32::from(row.ece) << 28;
        config.log_max_dci_streams = row.log_streams;
        config.log_max_tags = row.log_tags;
        config.device_memory = row.device_memory;
        config.max_blue_flame = row.max_blue_flame;
        if self == Self::Future {
            config.relaxed_only = true;
            config.first_uar = 0x1_0000;
            config.max_dc_rd_atomic = 4;
            config.aborts_shared_receives = true;
            config.strict = Strictness::Pedantic;
        }
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Name that no card has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCard(pub String);

impl fmt::Display for UnknownCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Card::ALL.map(Card::name).join(", ");
        write!(f, "no software HCA has the profile {:?}; there are: {names}", self.0)
    }
}

impl std::error::Error for UnknownCard {}

impl FromStr for Card {
    type Err = UnknownCard;

    fn from_str(name: &str) -> Result<Self, UnknownCard> {
        let found = ROWS.iter().find(|row| row.name == name);
        found.map(|row| row.card).ok_or_else(|| UnknownCard(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_card_has_one_row_and_the_default_is_one_of_them() {
        for card in Card::ALL {
            assert_eq!(card.name().parse(), Ok(card));
            assert_eq!(ROWS.iter().filter(|row| row.card == card).count(), 1);
        }
        let text = "connectx-3".parse::<Card>().unwrap_err().to_string();
        assert!(text.contains("connectx-3") && text.contains("bluefield-2"), "{text}");
        let (mut set, usual) = (HcaConfig::default(), HcaConfig::default());
        Card::ConnectX6Dx.apply(&mut set);
        assert_eq!(format!("{set:?}"), format!("{usual:?}"));
    }
}
