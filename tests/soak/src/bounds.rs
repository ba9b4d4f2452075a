//! Growth of a process: samples, taken whenever all is quiet.

use crate::trouble::Fault;
use crate::watch::Sample;

/// Resident memory that the allocator may keep or give back as it likes, in KiB.
const ALLOCATOR: u64 = 8 << 10;

/// Files and threads of peers that have gone and weren't noticed yet.
const FEW: u64 = 4;

/// Compares the thirds of a run: `Some` if the least of the last third exceeds the most of the
/// first third by more than `slack`, with both values.
fn grown(values: &[u64], slack: u64) -> Option<(u64, u64)> {
    let third = values.len() / 3;
    let most = *values.get(..third)?.iter().max()?;
    let least = *values[values.len() - third..].iter().min()?;
    (least > most + slack).then_some((most, least))
}

/// Faults for the resources of a process that grew.
pub(crate) fn judge(process: &str, samples: &[Sample]) -> Vec<Fault> {
    type Part = (&'static str, fn(&Sample) -> u64, u64);
    // A thread's arena is a mapping or two of the allocator's.
    let parts: [Part; 4] = [
        ("KiB of memory", |sample| sample.rss, ALLOCATOR),
        ("open files", |sample| sample.files, FEW),
        ("threads", |sample| sample.threads, FEW),
        ("mappings", |sample| sample.maps, 16),
    ];
    let growth = parts.into_iter().filter_map(|(what, part, slack)| {
        let values: Vec<u64> = samples.iter().map(part).collect();
        let (from, to) = grown(&values, slack)?;
        Some(Fault::Grew { process: process.into(), what: what.into(), from, to })
    });
    growth.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_from_noise() {
        assert_eq!(grown(&[5, 9, 6, 7, 9, 8, 9, 7, 9], 0), None);
        assert_eq!(grown(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 0), Some((3, 7)));
        assert_eq!(grown(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 4), None);
        // An object made once, late in the first third, is no leak.
        assert_eq!(grown(&[1, 1, 9, 9, 9, 9, 9, 9, 9], 0), None);
        assert_eq!(grown(&[1, 9], 0), None, "too few to say");
    }

    #[test]
    fn each_part_is_judged() {
        let sample = |at: u64| Sample { rss: 10_000, files: 20, threads: 3, maps: 90 + at % 9 };
        let steady: Vec<Sample> = (0..12).map(sample).collect();
        assert_eq!(judge("host", &steady), []);
        let leaks = |leak: fn(&mut Sample, u64)| {
            let mut samples = steady.clone();
            samples.iter_mut().zip(0..).for_each(|(sample, at)| leak(sample, at));
            judge("host", &samples).len()
        };
        assert_eq!(leaks(|sample, at| sample.rss += 2000 * at), 1);
        assert_eq!(leaks(|sample, at| sample.files += at), 1);
        assert_eq!(leaks(|sample, at| sample.threads += at), 1);
        assert_eq!(leaks(|sample, at| sample.maps += 5 * at), 1);
        assert_eq!(leaks(|sample, at| sample.rss += 100 * at), 0);
    }
}
