//! Diagrams of hardware structures, drawn from the layout tables of `uverbs-mlx5-prm` in the
//! manual's form: a row is four bytes, its highest bit on the left.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use uverbs_mlx5_prm::cqe::{mlx5_cqe64, mlx5_err_cqe};
use uverbs_mlx5_prm::ctrl::mlx5_wqe_ctrl_seg;
use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
use uverbs_mlx5_prm::remote::{mlx5_wqe_atomic_seg, mlx5_wqe_raddr_seg};
use uverbs_mlx5_prm::table::Member;

use super::read;

/// Name and fields of a structure.
type Part = (&'static str, &'static [Member]);

/// Files of the pictures, with their structures in the order of the bytes.
const PICTURES: [(&str, &[Part]); 5] = [
    (
        "wqe-send.svg",
        &[
            ("mlx5_wqe_ctrl_seg", mlx5_wqe_ctrl_seg::MEMBERS),
            ("mlx5_wqe_data_seg", mlx5_wqe_data_seg::MEMBERS),
        ],
    ),
    (
        "wqe-write.svg",
        &[
            ("mlx5_wqe_ctrl_seg", mlx5_wqe_ctrl_seg::MEMBERS),
            ("mlx5_wqe_raddr_seg", mlx5_wqe_raddr_seg::MEMBERS),
            ("mlx5_wqe_data_seg", mlx5_wqe_data_seg::MEMBERS),
        ],
    ),
    (
        "wqe-atomic.svg",
        &[
            ("mlx5_wqe_ctrl_seg", mlx5_wqe_ctrl_seg::MEMBERS),
            ("mlx5_wqe_raddr_seg", mlx5_wqe_raddr_seg::MEMBERS),
            ("mlx5_wqe_atomic_seg", mlx5_wqe_atomic_seg::MEMBERS),
            ("mlx5_wqe_data_seg", mlx5_wqe_data_seg::MEMBERS),
        ],
    ),
    ("cqe.svg", &[("mlx5_cqe64", mlx5_cqe64::MEMBERS)]),
    ("cqe-error.svg", &[("mlx5_err_cqe", mlx5_err_cqe::MEMBERS)]),
];

/// Bytes of a row.
const ROW: usize = 4;
/// Pixels of the drawing: width of a bit, height of a row, column of offsets, letter.
const BIT: usize = 24;
const HEIGHT: usize = 26;
const LEFT: usize = 52;
const LETTER: usize = 7;

fn file(name: &str) -> PathBuf {
    Path::new(super::PAGES).join("img").join(name)
}

/// Compares the committed pictures with the layouts. Returns their number.
pub(super) fn check() -> Result<usize, String> {
    for (name, parts) in PICTURES {
        let path = file(name);
        if read(&path)? != picture(parts) {
            let path = path.display();
            return Err(format!("{path} isn't the layout's; `cargo xtask book --bless` draws it"));
        }
    }
    Ok(PICTURES.len())
}

/// Draws the pictures.
pub(super) fn bless() -> Result<String, String> {
    for (name, parts) in PICTURES {
        let path = file(name);
        fs::write(&path, picture(parts)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(format!("{} diagrams", PICTURES.len()))
}

/// Box of a diagram: its place, its size, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    row: usize,
    rows: usize,
    /// Bits from the left edge.
    left: usize,
    bits: usize,
    /// Empty for an unnamed box.
    name: &'static str,
}

/// Boxes of a structure.
fn cells(members: &[Member]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for member in members {
        let of_member = if member.bits.is_empty() { plain(member) } else { packed(member) };
        cells.extend(of_member);
    }
    cells
}

/// Boxes of a number or of bytes: one for whole rows, one for each partial row. The largest has the
/// name.
fn plain(member: &Member) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let (mut at, end) = (member.offset, member.offset + member.len);
    while at < end {
        let (row, inside) = (at / ROW, at % ROW);
        let whole = if inside == 0 { (end - at) / ROW } else { 0 };
        let bytes = if whole > 0 { whole * ROW } else { (ROW - inside).min(end - at) };
        let bits = if whole > 0 { 8 * ROW } else { 8 * bytes };
        cells.push(Cell { row, rows: whole.max(1), left: 8 * inside, bits, name: "" });
        at += bytes;
    }
    if let Some(largest) = cells.iter_mut().max_by_key(|cell| (cell.bits, cell.rows)) {
        largest.name = member.name;
    }
    cells
}

/// Boxes of a word with bit fields: its highest bit is on the left.
fn packed(member: &Member) -> Vec<Cell> {
    let (row, left) = (member.offset / ROW, 8 * (member.offset % ROW));
    let width = 8 * member.len;
    let mut cells = Vec::new();
    // First bit from the left without a box.
    let mut next = 0;
    let mut cell = |from: usize, to: usize, name| {
        if from < to {
            cells.push(Cell { row, rows: 1, left: left + from, bits: to - from, name });
        }
    };
    for field in member.bits {
        let from = width - 1 - field.high as usize;
        let to = width - field.low as usize;
        cell(next, from, "");
        // A field alone in its word takes the word's name.
        cell(from, to, if member.bits.len() == 1 { member.name } else { field.name });
        next = to;
    }
    cell(next, width, "");
    cells
}

/// Picture of structures below each other, and of the names that do not fit their boxes.
fn picture(parts: &[Part]) -> String {
    let mut notes = Vec::new();
    let (mut body, mut top, mut offset) = (String::new(), HEIGHT, 0);
    bit_numbers(&mut body);
    for (name, members) in parts {
        text(
            &mut body,
            LEFT,
            top + HEIGHT - 8,
            "start",
            &format!("<tspan font-weight=\"bold\">{name}</tspan>"),
        );
        top += HEIGHT;
        let len = members.last().map_or(0, |last| last.offset + last.len);
        for cell in cells(members) {
            draw(&mut body, top, &cell, &mut notes);
        }
        for row in 0..len / ROW {
            let y = top + row * HEIGHT + HEIGHT - 8;
            text(&mut body, LEFT - 8, y, "end", &format!("{:#04x}", offset + row * ROW));
        }
        top += len / ROW * HEIGHT;
        offset += len;
    }
    for line in legend(&notes) {
        top += HEIGHT;
        text(&mut body, LEFT, top - 8, "start", &line);
    }
    let (width, height) = (LEFT + 8 * ROW * BIT + 8, top + 8);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn bit_numbers(body: &mut String) {
    for bit in 0..8 * ROW {
        text(
            body,
            LEFT + bit * BIT + BIT / 2,
            HEIGHT - 8,
            "middle",
            &(8 * ROW - 1 - bit).to_string(),
        );
    }
}

/// Lines of names with their numbers, as many as fit on a line.
fn legend(notes: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (number, name) in (1..).zip(notes) {
        let entry = format!("{number}: {name}");
        match lines.last_mut() {
            Some(line) if LETTER * (line.len() + entry.len() + 3) < 8 * ROW * BIT => {
                *line += "   ";
                *line += &entry;
            }
            _ => lines.push(entry),
        }
    }
    // A browser joins several spaces into one.
    lines.iter().map(|line| line.replace("   ", " \u{a0} ")).collect()
}

fn draw(body: &mut String, top: usize, cell: &Cell, notes: &mut Vec<&'static str>) {
    let (x, y) = (LEFT + cell.left * BIT, top + cell.row * HEIGHT);
    let (width, height) = (cell.bits * BIT, cell.rows * HEIGHT);
    let is_reserved =
        cell.name.is_empty() || ["rsvd", "reserved"].iter().any(|no| cell.name.starts_with(no));
    let fill = if is_reserved { "#e8e8e8" } else { "#eef4ff" };
    let _ = writeln!(
        body,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" \
         stroke=\"#555\"/>"
    );
    if cell.name.is_empty() {
        return;
    }
    let said = if cell.name.len() * LETTER + 4 <= width {
        cell.name.to_owned()
    } else {
        notes.push(cell.name);
        notes.len().to_string()
    };
    text(body, x + width / 2, y + height / 2 + 5, "middle", &said);
}

fn text(body: &mut String, x: usize, y: usize, anchor: &str, said: &str) {
    let _ = writeln!(body, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{said}</text>");
}

#[cfg(test)]
mod tests {
    use uverbs_mlx5_prm::table::Bits;

    use super::*;

    fn member(offset: usize, len: usize, bits: &'static [Bits]) -> Member {
        Member { name: "name", offset, len, bits }
    }

    /// Row, rows, left, bits and name of each box.
    fn shape(member: Member) -> Vec<(usize, usize, usize, usize, &'static str)> {
        let cells = cells(&[member]);
        cells.iter().map(|c| (c.row, c.rows, c.left, c.bits, c.name)).collect()
    }

    #[test]
    fn bytes_over_rows_are_boxes_of_whole_rows_and_rests() {
        assert_eq!(shape(member(8, 8, &[])), [(2, 2, 0, 32, "name")]);
        assert_eq!(shape(member(6, 1, &[])), [(1, 1, 16, 8, "name")]);
        let thirteen = shape(member(3, 13, &[]));
        assert_eq!(thirteen, [(0, 1, 24, 8, ""), (1, 3, 0, 32, "name")]);
    }

    #[test]
    fn fields_and_gaps_fill_their_word() {
        const BITS: &[Bits] =
            &[Bits { name: "high", high: 6, low: 5 }, Bits { name: "low", high: 1, low: 1 }];
        let all = [(0, 1, 8, 1, ""), (0, 1, 9, 2, "high"), (0, 1, 11, 3, ""), (0, 1, 14, 1, "low")];
        let rest = [(0, 1, 15, 1, "")];
        assert_eq!(shape(member(1, 1, BITS)), [&all[..], &rest].concat());
    }

    #[test]
    fn every_structure_is_covered_once() {
        for (file, parts) in PICTURES {
            for (name, members) in parts {
                let len: usize = members.iter().map(|member| member.len).sum();
                let cells = cells(members);
                let area: usize = cells.iter().map(|cell| cell.rows * cell.bits).sum();
                assert_eq!(area, 8 * len, "{file} {name}");
            }
            let drawn = picture(parts);
            assert!(drawn.contains("wqe_counter") || drawn.contains("wqe_index"), "{file}");
        }
    }
}
