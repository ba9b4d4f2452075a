//! Latencies for people: units, and a histogram with logarithmic buckets for the terminal.

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Maximum rows of a histogram.
const ROWS: usize = 18;
/// Maximum cells of a bar.
const BAR: usize = 40;
/// Columns of a row without its bar.
const BESIDES: usize = 32;

/// Buckets per decade: preferred numbers of IEC 60063, from fine to coarse, evenly spaced on a
/// logarithmic scale, with two digits each.
const SERIES: [&[u64]; 5] = [
    &[
        10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82,
        91,
    ],
    &[10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82],
    &[10, 15, 22, 33, 47, 68],
    &[10, 22, 47],
    &[10],
];

/// Bucket of `from..to` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Bucket {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) count: u64,
}

/// Logarithmic buckets over all recorded values: the finest series with a readable number of
/// buckets.
pub(crate) fn buckets(recorded: &Histogram<u64>) -> Vec<Bucket> {
    if recorded.is_empty() {
        return Vec::new();
    }
    // The recorder rounds to cells, which may cross an edge. A cell counts where its lower end is.
    let (min, max) = (recorded.min(), recorded.lowest_equivalent(recorded.max()));
    let mut buckets = Vec::new();
    for series in SERIES {
        buckets = edges(series, min, max);
        if buckets.len() <= ROWS {
            break;
        }
    }
    // Both are sorted: one pass.
    let mut at = 0;
    for step in recorded.iter_recorded() {
        let value = recorded.lowest_equivalent(step.value_iterated_to());
        while at + 1 < buckets.len() && value >= buckets[at].to_ns {
            at += 1;
        }
        buckets[at].count += step.count_at_value();
    }
    buckets
}

/// Empty buckets of one series that cover `min..=max`.
fn edges(series: &[u64], min: u64, max: u64) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut from_ns = 0;
    let mut scale = 1u64;
    loop {
        for &step in series {
            let to_ns = step.saturating_mul(scale);
            if to_ns > min {
                buckets.push(Bucket { from_ns, to_ns, count: 0 });
            }
            if to_ns > max || to_ns == u64::MAX {
                return buckets;
            }
            from_ns = to_ns;
        }
        scale = scale.saturating_mul(10);
    }
}

/// Draws the buckets, a row each, in 72 columns, or fewer on a narrow terminal.
pub(crate) fn draw(buckets: &[Bucket], utf8: bool, width: usize) -> String {
    let cells = width.saturating_sub(BESIDES).clamp(8, BAR);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let all = buckets.iter().map(|bucket| bucket.count).sum::<u64>().max(1);
    let mut text = String::new();
    for bucket in buckets {
        let bar = match utf8 {
            true => blocks(bucket.count, most, cells),
            false => hashes(bucket.count, most, cells),
        };
        let edge = if utf8 { '│' } else { '|' };
        let percent = 100.0 * bucket.count as f64 / all as f64;
        let count = if bucket.count == 0 {
            String::new()
        } else {
            format!("{:>10}  {percent:>6.2} %", bucket.count)
        };
        let from = duration(bucket.from_ns, utf8);
        // Writing to a string can't fail.
        let _ = writeln!(text, "{}", format!("{from:>8} {edge}{bar:<cells$}{count}").trim_end());
    }
    text
}

/// A bar in eighths of a cell; at least an eighth for a count above 0.
fn blocks(count: u64, most: u64, cells: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = scaled(count, most, 8 * cells as u64) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// A bar in whole cells; a dot for a count below one cell.
fn hashes(count: u64, most: u64, cells: usize) -> String {
    match (u128::from(count) * cells as u128 / u128::from(most)) as usize {
        0 if count > 0 => ".".to_owned(),
        cells => "#".repeat(cells),
    }
}

/// `count / most` of `cells`, rounded up.
fn scaled(count: u64, most: u64, cells: u64) -> u64 {
    (u128::from(count) * u128::from(cells)).div_ceil(u128::from(most)) as u64
}

/// Nanoseconds with three digits and a unit.
pub(crate) fn duration(ns: u64, utf8: bool) -> String {
    let micro = if utf8 { "µs" } else { "us" };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} {micro}", three(ns as f64 / 1e3)),
        999_500..999_500_000 => format!("{} ms", three(ns as f64 / 1e6)),
        _ => format!("{} s", three(ns as f64 / 1e9)),
    }
}

/// Three significant digits.
pub(crate) fn three(value: f64) -> String {
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(values: &[u64]) -> Histogram<u64> {
        let mut recorded = Histogram::new(3).unwrap();
        values.iter().for_each(|&value| recorded.record(value).unwrap());
        recorded
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn every_value_is_in_one_bucket(
            values in proptest::collection::vec(1u64..100_000_000_000, 1..200),
        ) {
            let recorded = record(&values);
            let buckets = buckets(&recorded);
            prop_assert!(!buckets.is_empty() && buckets.len() <= ROWS);
            prop_assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), values.len() as u64);
            prop_assert!(buckets.windows(2).all(|two| two[0].to_ns == two[1].from_ns));
            prop_assert!(buckets.iter().all(|b| b.from_ns < b.to_ns));
            // The first and the last row are not empty.
            prop_assert!(buckets[0].count > 0 && buckets[buckets.len() - 1].count > 0);
            // Exact below 2^11, where the recorder is exact.
            for bucket in buckets.iter().filter(|bucket| bucket.to_ns <= 2048) {
                let inside = |v: &&u64| (bucket.from_ns..bucket.to_ns).contains(*v);
                prop_assert_eq!(bucket.count, values.iter().filter(inside).count() as u64);
            }
            for (utf8, width) in [(true, 80), (false, 80), (true, 60), (false, 60)] {
                let text = draw(&buckets, utf8, width);
                prop_assert_eq!(text.lines().count(), buckets.len());
                prop_assert!(text.lines().all(|line| line.chars().count() <= width), "{}", text);
                prop_assert!(utf8 || text.is_ascii());
            }
        }
    }

    #[test]
    fn a_drawing() {
        let recorded = record(&[[4_800; 40].as_slice(), &[5_200; 10], &[9_000]].concat());
        let text = draw(&buckets(&recorded), false, usize::MAX);
        let rows: Vec<_> = text.lines().collect();
        let full = "#".repeat(40);
        assert_eq!(rows[0], format!(" 4.70 us |{full}        40   78.43 %"));
        assert_eq!(rows[1], format!(" 5.10 us |{:<40}        10   19.61 %", "#".repeat(10)));
        assert_eq!(rows[2], " 5.60 us |");
        assert_eq!(rows.last().unwrap(), &format!(" 8.20 us |{:<40}         1    1.96 %", "#"));
    }

    #[test]
    fn a_cell_across_an_edge_is_in_one_bucket() {
        // Its cell ends at 470,024,191, and there is an edge at 470,000,000.
        let buckets = buckets(&record(&[469_762_048]));
        assert_eq!(buckets, [Bucket { from_ns: 430_000_000, to_ns: 470_000_000, count: 1 }]);
    }

    #[test]
    fn nothing_recorded_is_no_row() {
        assert_eq!(buckets(&record(&[])), []);
        assert_eq!(draw(&[], true, 80), "");
    }

    #[test]
    fn durations_have_three_digits() {
        for (ns, expected) in [
            (7, "7 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (12_340, "12.3 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (1_500_000_000, "1.50 s"),
            (99_960_000, "100 ms"),
        ] {
            assert_eq!(duration(ns, false), expected);
        }
        assert_eq!(duration(1_000, true), "1.00 µs");
    }
}
