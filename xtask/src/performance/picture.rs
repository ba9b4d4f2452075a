//! Picture of bars, one for each ratio, on a logarithmic axis: to the right of 1 is better.

use std::fmt::Write as _;

use super::figures::Figures;

/// Pixels: row of a bar, column of names, axis.
const ROW: usize = 18;
const NAMES: usize = 330;
const AXIS: usize = 520;
const TOP: usize = 48;
const RIGHT: usize = 70;
/// Colours of better and worse, which colour-blind readers can distinguish (Okabe and Ito).
const BETTER: &str = "#0072b2";
const WORSE: &str = "#d55e00";

/// Picture of all ratios; `None` without ratios.
pub(super) fn ratios(title: &str, figures: &Figures) -> Option<String> {
    let bars: Vec<(String, f64)> = figures
        .names()
        .filter(|(kind, _)| kind.starts_with("ratio"))
        .filter_map(|(kind, case)| {
            let median = figures.median(kind, case)?;
            // Zero has no logarithm.
            (median > 0.0).then(|| (format!("{case} {}", short(kind)), median))
        })
        .collect();
    if bars.is_empty() {
        return None;
    }
    // Whole powers of two, including 1.
    let exponents = || bars.iter().map(|(_, value)| value.log2());
    let from = exponents().fold(-1.0, f64::min).floor();
    let to = exponents().fold(1.0, f64::max).ceil();
    let at = |value: f64| NAMES as f64 + AXIS as f64 * (value.log2() - from) / (to - from);

    let (width, height) = (NAMES + AXIS + RIGHT, TOP + ROW * bars.len() + 12);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"14\">{title}: ratios, more is better</text>\n"
    );
    for exponent in from as i32..=to as i32 {
        let (value, x) = (2.0_f64.powi(exponent), at(2.0_f64.powi(exponent)));
        let stroke = if exponent == 0 { "#000000" } else { "#cccccc" };
        let bottom = height - 8;
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"{stroke}\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>",
            TOP - 6
        );
    }
    for (row, (name, value)) in bars.iter().enumerate() {
        let (y, x) = (TOP + row * ROW, at(*value));
        let (left, right) = (x.min(at(1.0)), x.max(at(1.0)));
        let fill = if *value >= 1.0 { BETTER } else { WORSE };
        let baseline = y + ROW - 5;
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{left:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"{fill}\"/>\
             <text x=\"{:.1}\" y=\"{baseline}\">{value:.2}</text>",
            NAMES - 8,
            y + 3,
            right - left,
            ROW - 6,
            right + 4.0,
        );
    }
    text.push_str("</svg>\n");
    Some(text)
}

/// Suffix of a case's name; empty for a plain `ratio`.
fn short(kind: &str) -> String {
    match kind.strip_prefix("ratio_") {
        Some(rest) => format!("({rest})"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_lie_on_their_side_of_one() {
        let mut figures = Figures::default();
        figures.read("ratio fast 4\nratio_st slow 0.5\nfigure none 3\nratio nothing 0\n");
        let text = ratios("T", &figures).unwrap();
        // The axis goes from 1/2 to 4, so 1 is at a third of it.
        let one = NAMES as f64 + AXIS as f64 / 3.0;
        let fast = format!("<rect x=\"{one:.1}\"");
        assert!(text.contains(&format!("{fast} y=\"51\" width=\"346.7\"")), "{text}");
        assert!(text.contains(&format!("fill=\"{BETTER}\"/><text x=\"854.0\"")), "{text}");
        assert!(text.contains("slow (st)") && text.contains(WORSE));
        assert!(!text.contains("none") && !text.contains("nothing"));
        assert_eq!(ratios("T", &Figures::default()), None);
    }
}
