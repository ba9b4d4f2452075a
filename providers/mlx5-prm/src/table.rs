//! Layouts as data, to draw or list them: a structure's `MEMBERS`, a word's `FIELDS`.

/// A field of a structure in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Name in the manual.
    pub name: &'static str,
    /// Offset in the structure, in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
    /// Packed fields, from the highest bit down; empty for a plain number.
    pub bits: &'static [Bits],
}

/// A field of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits {
    /// Name in the manual.
    pub name: &'static str,
    /// Highest bit.
    pub high: u32,
    /// Lowest bit.
    pub low: u32,
}

#[cfg(test)]
mod tests {
    use crate::cqe::mlx5_cqe64;
    use crate::ctrl::mlx5_wqe_ctrl_seg;

    #[test]
    fn members_follow_each_other_to_the_end() {
        for (members, size) in [(mlx5_cqe64::MEMBERS, 64), (mlx5_wqe_ctrl_seg::MEMBERS, 16)] {
            let mut end = 0;
            for member in members {
                assert_eq!(member.offset, end, "{}", member.name);
                end += member.len;
                let bits = 8 * member.len as u32;
                assert!(member.bits.iter().all(|field| field.low <= field.high));
                assert!(member.bits.iter().all(|field| field.high < bits), "{}", member.name);
            }
            assert_eq!(end, size);
        }
        let qpn_ds = mlx5_wqe_ctrl_seg::MEMBERS[1];
        let names: [&str; 2] = [qpn_ds.bits[0].name, qpn_ds.bits[1].name];
        assert_eq!((qpn_ds.name, names), ("qpn_ds", ["qpn", "ds"]));
    }
}
