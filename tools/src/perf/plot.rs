//! Charts in the terminal.

use std::fmt::Write;

use super::chart::Chart;

/// Maximum cells of the drawing area.
const COLUMNS: usize = 60;
const ROWS: usize = 14;
/// Columns left of the drawing area.
const MARGIN: usize = 14;
/// A dot of a braille cell by its column and row, as bits of U+2800.
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
/// Marks of the curves without braille, and of cells with both curves.
const MARKS: [char; 2] = ['*', 'o'];
const TOGETHER: char = '#';

/// Draws a chart: with braille dots in a UTF-8 locale, with marks otherwise and for the second of
/// two curves.
pub(super) fn draw(chart: &Chart, utf8: bool, width: usize) -> String {
    let columns = width.saturating_sub(MARGIN + 1).clamp(20, COLUMNS);
    let mut cells = vec![[0u8; 2]; columns * ROWS];
    // Each curve is drawn on a grid of dots, two by four per cell.
    for (curve, which) in chart.curves.iter().zip(0..2) {
        let (width, height) = (columns * 2 - 1, ROWS * 4 - 1);
        let place = |value: f64, from: f64, to: f64, steps: usize| {
            let share = ((value - from) / (to - from)).clamp(0.0, 1.0);
            (share * steps as f64).round() as usize
        };
        let mut last: Option<(usize, usize)> = None;
        for &(x, y) in &curve.points {
            let x = place(x, chart.x.from, chart.x.to, width);
            let y = height - place(y, chart.y.from, chart.y.to, height);
            for (x, y) in between(last.unwrap_or((x, y)), (x, y)) {
                cells[y / 4 * columns + x / 2][which] |= DOTS[x % 2][y % 4];
            }
            last = Some((x, y));
        }
    }
    let mut text = format!("{}\n", chart.title);
    // Writing to a string cannot fail, here and below.
    for row in 0..ROWS {
        let label = label(chart, row);
        let edge = if utf8 { '│' } else { '|' };
        let line: String =
            cells[row * columns..][..columns].iter().map(|cell| mark(*cell, utf8)).collect();
        let _ = writeln!(text, "{label:>width$} {edge}{}", line.trim_end(), width = MARGIN - 2);
    }
    let (corner, rule) = if utf8 { ('└', "─") } else { ('+', "-") };
    let _ = writeln!(text, "{:>MARGIN$}{}", corner, rule.repeat(columns));
    let _ = writeln!(text, "{}", ticks(chart, columns, width));
    if chart.curves.len() > 1 {
        for (curve, which) in chart.curves.iter().zip(0..2) {
            let mut cell = [0; 2];
            cell[which] = 0x12;
            let _ = writeln!(text, "{:>MARGIN$} {}", mark(cell, utf8), curve.name);
        }
    }
    if utf8 { text } else { text.replace('µ', "u") }
}

/// All dots from one to another, including both.
fn between(from: (usize, usize), to: (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
    let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
    let part = move |from: usize, to: usize, step: usize| {
        let (from, to) = (from as f64, to as f64);
        (from + (to - from) * step as f64 / steps as f64).round() as usize
    };
    (0..=steps).map(move |step| (part(from.0, to.0, step), part(from.1, to.1, step)))
}

fn mark(cell: [u8; 2], utf8: bool) -> char {
    match cell {
        [0, 0] => ' ',
        [dots, 0] if utf8 => char::from_u32(0x2800 + u32::from(dots)).unwrap_or(MARKS[0]),
        [_, 0] => MARKS[0],
        [0, _] => MARKS[1],
        _ => TOGETHER,
    }
}

/// Text of the tick in a row, if there is one.
fn label(chart: &Chart, row: usize) -> &str {
    let axis = &chart.y;
    let at = |value: f64| {
        let share = (value - axis.from) / (axis.to - axis.from);
        ROWS - 1 - (share * (ROWS - 1) as f64).round() as usize
    };
    let tick = axis.ticks.iter().find(|(value, _)| at(*value) == row);
    tick.map_or("", |(_, text)| text.as_str())
}

/// Line of ticks below the drawing, and the axis' name after it or on the next line. A tick that
/// overlaps its neighbour is left out.
fn ticks(chart: &Chart, columns: usize, width: usize) -> String {
    let axis = &chart.x;
    let mut line = " ".repeat(MARGIN);
    for (value, text) in &axis.ticks {
        let share = (value - axis.from) / (axis.to - axis.from);
        let middle = MARGIN + (share * columns as f64) as usize;
        let length = text.chars().count();
        let start = middle.saturating_sub(length / 2).min(width.saturating_sub(length));
        let used = line.trim_end().chars().count();
        if start > used && start + length <= MARGIN + columns + 6 {
            line.truncate(line.trim_end().len());
            line.push_str(&" ".repeat(start - used));
            line.push_str(text);
        }
    }
    let line = line.trim_end();
    match line.chars().count() + 2 + axis.name.len() <= width {
        true => format!("{line}  {}", axis.name),
        false => format!("{line}\n{:>1$}", axis.name, MARGIN + columns),
    }
}

#[cfg(test)]
mod tests {
    use super::super::chart::{Axis, Curve};
    use super::*;

    fn chart(curves: usize) -> Chart {
        let ticks = |all: &[&str]| {
            all.iter().enumerate().map(|(at, text)| (at as f64, (*text).to_owned())).collect()
        };
        let line = |slope: f64, from: f64| Curve {
            name: format!("slope {slope}"),
            points: vec![(0.0, from), (2.0, from + 2.0 * slope)],
            width: 1,
        };
        let mut all = vec![line(0.5, 0.0), line(0.0, 0.5)];
        all.truncate(curves);
        Chart {
            title: "both ways".to_owned(),
            x: Axis {
                name: "percentile",
                from: 0.0,
                to: 2.0,
                ticks: ticks(&["min", "90%", "99%"]),
            },
            y: Axis {
                name: "latency", from: 0.0, to: 1.0, ticks: ticks(&["1.00 µs", "10.0 µs"])
            },
            curves: all,
        }
    }

    #[test]
    fn a_rising_line_rises() {
        let text = draw(&chart(1), false, usize::MAX);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), ROWS + 3);
        assert!(text.is_ascii() && lines.iter().all(|line| line.len() <= 90), "{text}");
        let starts: Vec<usize> = lines[1..=ROWS].iter().filter_map(|line| line.find('*')).collect();
        assert_eq!(starts.len(), ROWS, "{text}");
        assert!(starts.windows(2).all(|two| two[0] > two[1]), "{text}");
        assert!(lines[1].starts_with("     10.0 us |"), "{text}");
        assert!(lines[ROWS].starts_with("     1.00 us |*"), "{text}");
        assert!(lines[ROWS + 2].trim_start().starts_with("min"), "{text}");
        assert!(lines[ROWS + 2].ends_with("99%  percentile"), "{text}");
    }

    #[test]
    fn a_narrow_drawing_fits() {
        let text = draw(&chart(2), true, 60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains("percentile"), "{text}");
    }

    #[test]
    fn two_lines_are_told_apart_and_meet() {
        let text = draw(&chart(2), false, usize::MAX);
        let (drawing, legend) = text.split_at(text.find("percentile").unwrap());
        for mark in ['*', 'o', '#'] {
            assert!(drawing.contains(mark), "{text}");
        }
        assert!(legend.contains("* slope 0.5") && legend.contains("o slope 0"), "{text}");
        let utf8 = draw(&chart(2), true, usize::MAX);
        assert!(utf8.contains('⣠') || utf8.contains('⡠') || utf8.contains('⠔'), "{utf8}");
    }
}
