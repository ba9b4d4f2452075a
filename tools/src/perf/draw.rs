//! Charts as SVG and PNG.

use std::sync::OnceLock;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::register_font;

use super::chart::{Axis, Chart};
use crate::base::error::Error;

/// Size in points.
const WIDTH: u32 = 960;
const HEIGHT: u32 = 540;
/// Registered name of the font. An SVG has only the name, so the viewer's font is used.
const FONT: &str = "sans-serif";
/// Colors that differ for people with color blindness (Okabe and Ito), and in brightness.
const COLORS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0)];

/// The chart as SVG.
pub(super) fn svg(chart: &Chart) -> Result<Vec<u8>, Error> {
    let mut text = String::new();
    draw(chart, &SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area())?;
    Ok(text.into_bytes())
}

/// The chart as PNG.
pub(super) fn png(chart: &Chart) -> Result<Vec<u8>, Error> {
    let mut pixels = vec![0; (WIDTH * HEIGHT * 3) as usize];
    draw(chart, &BitMapBackend::with_buffer(&mut pixels, (WIDTH, HEIGHT)).into_drawing_area())?;
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut png| png.write_image_data(&pixels));
    written.map_err(|error| Error::Plot(error.to_string()))?;
    Ok(bytes)
}

/// Registers the font for bitmaps. Fonts of the machine are not used.
fn font() -> Result<(), Error> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let register = || register_font(FONT, FontStyle::Normal, dejavu::sans::regular()).is_ok();
    if *REGISTERED.get_or_init(register) {
        Ok(())
    } else {
        Err(Error::Plot("the font can't be read".to_owned()))
    }
}

fn draw<B: DrawingBackend>(chart: &Chart, area: &DrawingArea<B, Shift>) -> Result<(), Error> {
    font()?;
    draw_with(chart, area).map_err(|error| Error::Plot(error.to_string()))
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.from) / (self.to - self.from);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    /// Grid lines at the ticks only.
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() && hint.bold_points() == 0 {
            return Vec::new();
        }
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| (tick - value).abs() < 1e-9);
        tick.map_or(String::new(), |(_, text)| text.clone())
    }
}

fn draw_with<B: DrawingBackend>(
    chart: &Chart,
    area: &DrawingArea<B, Shift>,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    let mut plot = ChartBuilder::on(area)
        .caption(&chart.title, (FONT, 20))
        .margin(12)
        .margin_right(30)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d(chart.x.clone(), chart.y.clone())?;
    plot.configure_mesh()
        .x_desc(chart.x.name)
        .y_desc(chart.y.name)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .bold_line_style(RGBColor(220, 220, 220))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (curve, color) in chart.curves.iter().zip(COLORS.iter().cycle()) {
        let style = color.stroke_width(curve.width);
        plot.draw_series(LineSeries::new(curve.points.iter().copied(), style))?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    if chart.curves.len() > 1 {
        plot.configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(160, 160, 160))
            .label_font((FONT, 14))
            .draw()?;
    }
    area.present()
}

#[cfg(test)]
mod tests {
    use super::super::chart::Curve;
    use super::*;

    fn chart() -> Chart {
        let ticks = |all: &[&str]| {
            all.iter().enumerate().map(|(at, text)| (at as f64, (*text).to_owned())).collect()
        };
        Chart {
            title: "a <title> & more".to_owned(),
            x: Axis { name: "there", from: 0.0, to: 2.0, ticks: ticks(&["p0", "p90", "p99"]) },
            y: Axis { name: "back", from: 0.0, to: 1.0, ticks: ticks(&["1 µs", "10 µs"]) },
            curves: ["one", "two"]
                .into_iter()
                .zip([0.2, 0.7])
                .map(|(name, y)| Curve {
                    name: name.to_owned(),
                    points: vec![(0.0, y), (2.0, y)],
                    width: 2,
                })
                .collect(),
        }
    }

    #[test]
    fn an_svg_has_all_texts_and_both_curves() {
        let svg = String::from_utf8(svg(&chart()).unwrap()).unwrap();
        for part in
            ["<svg", "a &lt;title&gt; &amp; more", "p90", "10 µs", "there", "back", "one", "two"]
        {
            assert!(svg.contains(part), "{part}:\n{svg}");
        }
        for color in ["#0072B2", "#D55E00"] {
            assert!(svg.contains(&format!("stroke=\"{color}\"")), "{color}:\n{svg}");
        }
    }

    #[test]
    fn a_png_shows_both_curves_where_they_are() {
        let bytes = png(&chart()).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (WIDTH, HEIGHT));
        // From the top down, so that the upper curve is found first.
        let column = |y: u32| {
            let at = ((y * WIDTH + WIDTH / 2) * 3) as usize;
            RGBColor(pixels[at], pixels[at + 1], pixels[at + 2])
        };
        let first = |color: RGBColor| (0..HEIGHT).find(|&y| column(y) == color);
        let (one, two) = (first(COLORS[0]).unwrap(), first(COLORS[1]).unwrap());
        assert!(two < one, "{two} {one}");
    }
}
