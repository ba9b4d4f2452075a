//! Words of a case file.

use uverbs::attr::{GlobalRoute, Path};
use uverbs::{AhAttr, Gid};

/// Address of a case file. Without `index` it has no global route; the GID is filled in later.
pub(crate) fn address(words: &str, lid: u16) -> AhAttr {
    let mut grh = GlobalRoute {
        dgid: Gid::default(),
        sgid_index: 0,
        hop_limit: 0,
        traffic_class: 0,
        flow_label: 0,
    };
    let mut path =
        Path { dlid: lid, grh: None, service_level: 0, src_path_bits: 0, static_rate: 0 };
    let mut global = false;
    for word in words.split(' ') {
        let (name, value) = word.split_once('=').unwrap();
        let value = number(value);
        match name {
            "index" => (global, grh.sgid_index) = (true, value as u8),
            "flow" => grh.flow_label = value as u32,
            "hops" => grh.hop_limit = value as u8,
            "class" => grh.traffic_class = value as u8,
            "sl" => path.service_level = value as u8,
            "bits" => path.src_path_bits = value as u8,
            "rate" => path.static_rate = value as u8,
            _ => panic!("{word}"),
        }
    }
    path.grh = global.then_some(grh);
    AhAttr { port: 1, path }
}

pub(crate) fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("{text}: {error}"))
}
