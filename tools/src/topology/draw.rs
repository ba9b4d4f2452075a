//! The machine as a tree, of text or as a picture.

use std::fmt::Write;

use super::machine::{Item, Kind, Machine};
use crate::base::peer_text::shown;

/// A line of the tree.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    depth: usize,
    text: String,
    /// Kind of a device; `None` for a node or a bridge.
    kind: Option<Kind>,
    /// True for the last line of its parent.
    last: bool,
}

/// A part of the tree being built: bridges and devices below a bridge.
#[derive(Default)]
struct Branch<'a> {
    names: Vec<(String, Branch<'a>)>,
    items: Vec<&'a Item>,
}

impl<'a> Branch<'a> {
    fn add(&mut self, path: &[String], item: &'a Item) {
        let Some((first, rest)) = path.split_first() else {
            self.items.push(item);
            return;
        };
        let at = self.names.iter().position(|(name, _)| name == first).unwrap_or_else(|| {
            self.names.push((first.clone(), Branch::default()));
            self.names.len() - 1
        });
        self.names[at].1.add(rest, item);
    }

    fn lines(&self, depth: usize, lines: &mut Vec<Line>) {
        let count = self.names.len() + self.items.len();
        for (at, item) in self.items.iter().enumerate() {
            let last = at + 1 == count;
            lines.push(Line { depth, text: label(item), kind: Some(item.kind), last });
        }
        for (at, (name, branch)) in self.names.iter().enumerate() {
            // Bridges above a single branch share a line.
            let (mut text, mut below) = (name.clone(), branch);
            while let ([(name, only)], []) = (&below.names[..], &below.items[..]) {
                let _ = write!(text, " - {name}");
                below = only;
            }
            let last = self.items.len() + at + 1 == count;
            lines.push(Line { depth, text, kind: None, last });
            below.lines(depth + 1, lines);
        }
    }
}

fn label(item: &Item) -> String {
    let address = item.address.map(|address| address.to_string());
    let address = address.filter(|address| *address != item.name);
    let address = address.map(|address| format!(" {address}")).unwrap_or_default();
    let detail = &item.detail;
    shown(format!("{} {}{address} ({detail})", item.kind.name(), item.name).as_bytes())
}

/// Lines of the whole machine: nodes, then devices without a known node.
fn lines(machine: &Machine) -> Vec<Line> {
    let mut lines = Vec::new();
    let known: Vec<u32> = machine.nodes.iter().map(|node| node.number).collect();
    let below = |node: Option<u32>| {
        let mut branch = Branch::default();
        for item in &machine.items {
            if item.point.node.filter(|node| known.contains(node)) == node {
                // The function is the item itself.
                let bridges = item.point.path.len().saturating_sub(1);
                branch.add(&item.point.path[..bridges], item);
            }
        }
        branch
    };
    for node in &machine.nodes {
        let text = format!("NUMA node {}, processors {}", node.number, node.cpus);
        lines.push(Line { depth: 0, text, kind: None, last: false });
        below(Some(node.number)).lines(1, &mut lines);
    }
    let elsewhere = below(None);
    if !elsewhere.names.is_empty() || !elsewhere.items.is_empty() {
        let text = "on no known NUMA node".to_owned();
        lines.push(Line { depth: 0, text, kind: None, last: true });
        elsewhere.lines(1, &mut lines);
    }
    lines
}

/// Tree of text, then the distances from each RDMA device.
pub(super) fn text(machine: &Machine, utf8: bool) -> String {
    let [tee, corner, bar] =
        if utf8 { ["├─ ", "└─ ", "│  "] } else { ["|- ", "`- ", "|  "] };
    let mut text = String::new();
    // For each depth, whether more lines of that parent follow.
    let mut open: Vec<bool> = Vec::new();
    for line in lines(machine) {
        open.truncate(line.depth.saturating_sub(1));
        for more in &open {
            text.push_str(if *more { bar } else { "   " });
        }
        if line.depth > 0 {
            text.push_str(if line.last { corner } else { tee });
            open.push(!line.last);
        }
        text.push_str(&line.text);
        text.push('\n');
    }
    for item in machine.items.iter().filter(|item| item.kind == Kind::Rdma) {
        for (distance, other) in machine.near(item) {
            let (from, kind) = (&item.name, other.kind.name());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{from:<10} {distance:<16} {kind} {}", other.name);
        }
    }
    text
}

/// Height of a row of the picture, and indentation of a level, in pixels.
const ROW: usize = 30;
const INDENT: usize = 28;

/// Picture of the tree, SVG.
pub(super) fn svg(machine: &Machine) -> String {
    let lines = lines(machine);
    let widest = lines.iter().map(|line| line.depth * INDENT + line.text.chars().count() * 8);
    let (width, height) = (widest.max().unwrap_or(0) + 40, lines.len() * ROW + 20);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let mut parents: Vec<usize> = Vec::new();
    for (row, line) in lines.iter().enumerate() {
        let (x, y) = (10 + line.depth * INDENT, 10 + row * ROW);
        parents.truncate(line.depth);
        // Writing to a string cannot fail, here and below.
        if let Some(&parent) = parents.last() {
            let (from_x, middle) = (x - INDENT + 10, y + 11);
            let from_y = 10 + parent * ROW + 22;
            let _ = writeln!(
                svg,
                "<path d=\"M{from_x} {from_y}V{middle}H{x}\" fill=\"none\" stroke=\"#888\"/>"
            );
        }
        parents.push(row);
        let fill = match line.kind {
            None => "#eee",
            Some(Kind::Rdma) => "#cde8ff",
            Some(Kind::Gpu) => "#d8f5d0",
            Some(Kind::Nvme) => "#ffe9c7",
        };
        let wide = line.text.chars().count() * 8 + 16;
        let text = line.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"22\" rx=\"4\" fill=\"{fill}\"/>\
             <text x=\"{}\" y=\"{}\">{text}</text>",
            x + 8,
            y + 15
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{item, machine};
    use super::*;

    #[test]
    fn the_tree_shows_what_is_below_one_switch() {
        let mut machine = machine();
        machine.items.push(item(Kind::Rdma, "softhca0", &[], 9));
        let text = text(&machine, false);
        let expected = "\
NUMA node 0, processors 0-15
`- pci0000:16
   |- 0000:16:02.0 - 0000:17:00.0
   |  |- GPU 0000:18:00.0 (detail)
   |  `- RDMA mlx5_0 0000:19:00.0 (detail)
   `- 0000:16:03.0
      `- NVMe nvme0 0000:1a:00.0 (detail)
NUMA node 1, processors 16-31
`- pci0000:97
   `- GPU 0000:98:00.0 (detail)
on no known NUMA node
`- RDMA softhca0 (detail)
mlx5_0     one PCI switch   GPU 0000:18:00.0
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(super::text(&machine, true).contains("│  └─ RDMA mlx5_0"));
    }

    #[test]
    fn the_picture_has_a_box_for_each_line() {
        let svg = svg(&machine());
        assert_eq!(svg.matches("<text").count(), 10, "{svg}");
        assert_eq!(svg.matches("<path").count(), 8, "{svg}");
        assert!(svg.contains("#cde8ff") && svg.ends_with("</svg>\n"));
    }
}
