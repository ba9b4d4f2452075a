//! Charts for terminal and files: curves, and axes with ticks.

use hdrhistogram::Histogram;

use super::record::{Measured, Record};
use super::shape::Test;
use crate::base::error::Error;
use crate::base::histogram::{duration, three};

/// Percentiles that have a tick, as shares of samples above them.
const NINES: [(f64, &str); 8] = [
    (1.0, "min"),
    (0.5, "50%"),
    (1e-1, "90%"),
    (1e-2, "99%"),
    (1e-3, "99.9%"),
    (1e-4, "99.99%"),
    (1e-5, "99.999%"),
    (1e-6, "99.9999%"),
];

/// Curves over two axes.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
}

/// Axis. Coordinates are the drawn ones, after logarithms.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) name: &'static str,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Width in points.
    pub(super) width: u32,
}

/// Value to be drawn over message size.
type Figure = fn(&Measured) -> Option<f64>;

impl Chart {
    /// Chart of a whole run: its one size in detail, or all sizes.
    pub(super) fn of_run(name: String, run: &Record) -> Result<Option<Self>, Error> {
        let shape = &run.parameters;
        match &run.results[..] {
            [] => Ok(None),
            [one] => {
                let title = format!("{} {}, {} bytes", shape.op, shape.test, one.size);
                Self::new(title, &[(name, run, one)])
            }
            all => {
                let of = |figure: Figure| {
                    let points = all.iter().filter_map(|one| Some((one.size, figure(one)?)));
                    points.collect::<Vec<_>>()
                };
                let curves = match shape.test {
                    Test::Lat => vec![("p50".to_owned(), of(p50)), ("p99".to_owned(), of(p99))],
                    Test::Bw => vec![(name, of(rate))],
                };
                let title = format!("{} {} over size", shape.op, shape.test);
                Ok(Self::over_sizes(title, shape.test, curves))
            }
        }
    }

    /// Chart of two runs: one size of both in detail, or medians or rates over the sizes of both.
    pub(super) fn of_two(
        names: [String; 2],
        runs: [&Record; 2],
        pairs: &[(&Measured, &Measured)],
    ) -> Result<Option<Self>, Error> {
        let shape = &runs[0].parameters;
        let [a, b] = names;
        match pairs {
            [] => Ok(None),
            [(of_a, of_b)] => {
                let title = format!("{} {}, {} bytes", shape.op, shape.test, of_a.size);
                Self::new(title, &[(a, runs[0], of_a), (b, runs[1], of_b)])
            }
            pairs => {
                let (figure, what): (Figure, _) = match shape.test {
                    Test::Lat => (p50, ", p50"),
                    Test::Bw => (rate, ""),
                };
                let point = |one: &Measured| Some((one.size, figure(one)?));
                let curves = vec![
                    (format!("{a}{what}"), pairs.iter().filter_map(|two| point(two.0)).collect()),
                    (format!("{b}{what}"), pairs.iter().filter_map(|two| point(two.1)).collect()),
                ];
                let title = format!("{} {} over size", shape.op, shape.test);
                Ok(Self::over_sizes(title, shape.test, curves))
            }
        }
    }

    fn over_sizes(
        title: String,
        test: Test,
        curves: Vec<(String, Vec<(u32, f64)>)>,
    ) -> Option<Self> {
        let points = || curves.iter().flat_map(|(_, points)| points);
        let (least, most) =
            (points().map(|point| point.0).min()?, points().map(|point| point.0).max()?);
        let values = || points().map(|point| point.1);
        let top = values().fold(0.0, f64::max);
        let y = match test {
            Test::Lat => {
                let bottom = values().fold(f64::INFINITY, f64::min);
                logarithmic(bottom.max(1.0).log10(), top.max(1.0).log10())
            }
            Test::Bw => linear("Gb/s", top),
        };
        let high = |value: f64| if test == Test::Lat { value.max(1.0).log10() } else { value };
        let curve = |(name, points): (String, Vec<(u32, f64)>)| Curve {
            name,
            points: points
                .iter()
                .map(|(size, value)| (f64::from(*size).log2(), high(*value)))
                .collect(),
            width: 2,
        };
        Some(Self {
            title,
            x: sizes(least, most),
            y,
            curves: curves
                .into_iter()
                .map(curve)
                .filter(|curve| !curve.points.is_empty())
                .collect(),
        })
    }

    /// Chart of one size of each recording; `None` if there is nothing to draw.
    pub(super) fn new(
        title: String,
        runs: &[(String, &Record, &Measured)],
    ) -> Result<Option<Self>, Error> {
        let latency = runs.first().is_some_and(|(_, run, _)| run.parameters.test == Test::Lat);
        let mut curves = Vec::new();
        for (name, _, measured) in runs {
            let points = if latency {
                match &measured.latency {
                    Some(latency) => percentiles(&latency.histogram().map_err(Error::Plot)?),
                    None => continue,
                }
            } else {
                rates(measured)
            };
            if !points.is_empty() {
                // A thousand intervals have as many points as the chart is wide.
                let width = if latency { 2 } else { 1 };
                curves.push(Curve { name: name.clone(), points, width });
            }
        }
        let all = || curves.iter().flat_map(|curve| &curve.points);
        let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::NEG_INFINITY, f64::max);
        let least = all().map(|point| point.1).fold(f64::INFINITY, f64::min);
        if curves.is_empty() {
            return Ok(None);
        }
        let (x_most, y_most) = (most(|point| point.0), most(|point| point.1));
        let (x, y) = if latency {
            (nines(x_most), logarithmic(least, y_most))
        } else {
            (until("time, s", x_most), linear("Gb/s", y_most))
        };
        Ok(Some(Self { title, x, y, curves }))
    }
}

/// Latency by percentile, as steps: each value holds up to its percentile.
fn percentiles(recorded: &Histogram<u64>) -> Vec<(f64, f64)> {
    let all = recorded.len() as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut below = 0u64;
    let mut from = 0.0;
    for step in recorded.iter_recorded() {
        let value = step.value_iterated_to().min(recorded.max()).max(1);
        let y = (value as f64).log10();
        points.push((from, y));
        below += step.count_at_value();
        // The last sample has the share of a single sample.
        from = -(1.0 - below as f64 / all).max(1.0 / all).log10();
        points.push((from, y));
    }
    points
}

/// Gb/s over seconds, as a step per interval.
fn rates(measured: &Measured) -> Vec<(f64, f64)> {
    let Some(bandwidth) = &measured.bandwidth else { return Vec::new() };
    let width = bandwidth.interval_ns as f64 / 1e9;
    let bits = f64::from(measured.size) * 8.0 / 1e9;
    let rate = |&count: &u64| count as f64 * bits / width.max(1e-9);
    let step = |(at, count): (usize, &u64)| {
        let from = at as f64 * width;
        [(from, rate(count)), (from + width, rate(count))]
    };
    bandwidth.intervals.iter().enumerate().flat_map(step).collect()
}

fn p50(measured: &Measured) -> Option<f64> {
    measured
        .latency
        .as_ref()
        .filter(|latency| latency.samples > 0)
        .map(|latency| latency.p50 as f64)
}

fn p99(measured: &Measured) -> Option<f64> {
    let latency = measured.latency.as_ref();
    latency.filter(|latency| latency.samples > 0).map(|latency| latency.p99 as f64)
}

/// Gb/s.
fn rate(measured: &Measured) -> Option<f64> {
    measured.bandwidth.as_ref().map(|bandwidth| bandwidth.bytes_per_s * 8.0 / 1e9)
}

/// Logarithmic axis of sizes, with a tick at every second power of two, or at each of few.
fn sizes(least: u32, most: u32) -> Axis {
    let (from, to) = (f64::from(least).log2(), f64::from(most).log2());
    let to = if to > from { to } else { from + 1.0 };
    let step = if to - from > 8.0 { 3 } else { 1 };
    let ticks = (from.ceil() as u32..=to as u32).step_by(step);
    let tick = |power: u32| {
        let text = match power {
            0..10 => format!("{}", 1u64 << power),
            10..20 => format!("{}K", 1u64 << (power - 10)),
            20..30 => format!("{}M", 1u64 << (power - 20)),
            _ => format!("{}G", 1u64 << (power - 30)),
        };
        (f64::from(power), text)
    };
    Axis { name: "bytes", from, to, ticks: ticks.map(tick).collect() }
}

fn nines(most: f64) -> Axis {
    let to = most.max(1.0);
    let ticks = NINES.iter().map(|(above, name)| (-above.log10(), (*name).to_owned()));
    // 0.0 and not -0.0.
    let ticks = ticks.map(|(at, name)| (at.max(0.0), name)).filter(|(at, _)| *at <= to + 1e-9);
    Axis { name: "percentile", from: 0.0, to, ticks: ticks.collect() }
}

/// Logarithmic axis of nanoseconds, from tick to tick.
fn logarithmic(least: f64, most: f64) -> Axis {
    let series: &[u64] = if most - least > 0.5 {
        &[1, 2, 5]
    } else {
        &[10, 11, 12, 14, 16, 18, 20, 22, 25, 28, 32, 36, 40, 45, 50, 56, 63, 70, 80, 90]
    };
    let scale = |step: u64, power: u32| (step as f64).log10() + f64::from(power);
    let steps = (0..14).flat_map(|power| series.iter().map(move |step| (*step, power)));
    let steps: Vec<(f64, u64)> = steps
        .map(|(step, power)| (scale(step, power), step.saturating_mul(10u64.pow(power))))
        .collect();
    let below = |(at, _): &&(f64, u64)| *at <= least + 1e-9;
    let from = steps.iter().rfind(below).map_or(0.0, |(at, _)| *at);
    let above = |(at, _): &&(f64, u64)| *at >= most - 1e-9 && *at > from;
    let to = steps.iter().find(above).map_or(most + 0.1, |(at, _)| *at);
    let inside = steps.iter().filter(|(at, _)| (from - 1e-9..=to + 1e-9).contains(at));
    let ticks = inside.map(|(at, ns)| (*at, duration(*ns, true))).collect();
    Axis { name: "latency", from, to, ticks }
}

/// Axis from 0 to slightly above the maximum, in four to ten steps of 1, 2 or 5.
fn linear(name: &'static str, most: f64) -> Axis {
    let most = if most > 0.0 { most } else { 1.0 };
    let power = 10f64.powf((most / 10.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = step.into_iter().find(|step| most / step <= 10.0).unwrap_or(most);
    let count = (most / step).ceil().max(1.0) as u32;
    let tick = |at: u32| {
        let value = f64::from(at) * step;
        let text = if at == 0 { "0".to_owned() } else { short(value) };
        (value, text)
    };
    Axis { name, from: 0.0, to: f64::from(count) * step, ticks: (0..=count).map(tick).collect() }
}

/// A linear axis that ends at the largest value.
fn until(name: &'static str, most: f64) -> Axis {
    let mut axis = linear(name, most);
    axis.to = if most > 0.0 { most } else { axis.to };
    axis.ticks.retain(|(at, _)| *at <= axis.to);
    axis
}

/// Number of a tick, with as many digits as needed.
fn short(value: f64) -> String {
    if value < 0.1 {
        return format!("{value:.1e}");
    }
    let text = three(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn axes_for_people() {
        let axis = logarithmic(1_300f64.log10(), 90_000f64.log10());
        assert_eq!(
            texts(&axis),
            ["1.00 µs", "2.00 µs", "5.00 µs", "10.0 µs", "20.0 µs", "50.0 µs", "100 µs"]
        );
        let axis = logarithmic(1_050f64.log10(), 1_290f64.log10());
        assert_eq!(texts(&axis), ["1.00 µs", "1.10 µs", "1.20 µs", "1.40 µs"]);
        assert_eq!(
            texts(&linear("Gb/s", 97.0)),
            ["0", "10", "20", "30", "40", "50", "60", "70", "80", "90", "100"]
        );
        assert_eq!(
            texts(&linear("Gb/s", 1.3)),
            ["0", "0.2", "0.4", "0.6", "0.8", "1", "1.2", "1.4"]
        );
        assert_eq!(texts(&nines(3.0)), ["min", "50%", "90%", "99%", "99.9%"]);
    }

    #[test]
    fn sizes_are_an_axis() {
        assert_eq!(texts(&sizes(2, 64)), ["2", "4", "8", "16", "32", "64"]);
        assert_eq!(texts(&sizes(2, 8 << 20)), ["2", "16", "128", "1K", "8K", "64K", "512K", "4M"]);
        let axis = sizes(8, 8);
        assert!(axis.from < axis.to);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// All recorded values lie within the axes, and ticks increase.
        #[test]
        fn curves_are_inside(values in proptest::collection::vec(1u64..100_000_000_000, 1..300)) {
            let mut recorded = Histogram::<u64>::new_with_bounds(1, 1 << 40, 3).unwrap();
            values.iter().for_each(|&value| recorded.saturating_record(value));
            let points = percentiles(&recorded);
            prop_assert!(points.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 <= two[1].1));
            let (least, most) = (points[0].1, points[points.len() - 1].1);
            let y = logarithmic(least, most);
            let x = nines(points[points.len() - 1].0);
            prop_assert!(y.from <= least + 1e-9 && most <= y.to + 1e-9, "{least} {most} {y:?}");
            for axis in [&x, &y] {
                prop_assert!(axis.ticks.len() >= 2 && axis.from < axis.to, "{axis:?}");
                prop_assert!(axis.ticks.windows(2).all(|two| two[0].0 < two[1].0), "{axis:?}");
            }
        }

        #[test]
        fn a_linear_axis_covers_what_is_there(most in 0.0f64..1e6) {
            let axis = linear("x", most);
            prop_assert!(axis.to >= most && (2..=12).contains(&axis.ticks.len()), "{axis:?}");
        }
    }
}
