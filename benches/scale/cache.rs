//! The registration cache with many ranges.

use std::sync::Arc;

use uverbs::Device;
use uverbs::memory::RegistrationCache;
use uverbs::softhca::SoftHca;

use crate::{Column, Done, process, timed};

/// Bytes of a range.
const RANGE: usize = 64;
const LOOKS: usize = 100_000;

pub(crate) fn measure(sizes: &[usize]) -> Done {
    let mut columns = ["register a range", "find one", "replace one", "drop one"].map(Column::new);
    let mut bytes = Column::new("memory of a range");
    for &size in sizes {
        let pd = Device::from(SoftHca::builder().stepped().build()?).open()?.alloc_pd()?;
        let range = |_| Arc::<[u8]>::from([7; RANGE]);
        let ranges: Vec<Arc<[u8]>> = (0..size).map(range).collect();
        let more: Vec<Arc<[u8]>> = (0..size.min(LOOKS)).map(range).collect();
        let mut cache = RegistrationCache::new(&pd, size, size * RANGE);
        let before = process::resident()?;
        let mut get = |bytes: &Arc<[u8]>| cache.get(bytes).map(drop);
        let (done, time) = timed(|| ranges.iter().try_for_each(&mut get));
        done?;
        columns[0].time(size, time, size);
        let grown = process::resident()?.saturating_sub(before);
        // A step that meets each range once, in no order that a cache knows.
        let order = (0..LOOKS).map(|at| at * 7919 % size);
        let (done, time) = timed(|| order.map(|at| &ranges[at]).try_for_each(&mut get));
        done?;
        columns[1].time(size, time, LOOKS);
        let (done, time) = timed(|| more.iter().try_for_each(&mut get));
        done?;
        columns[2].time(size, time, more.len());
        let ((), time) = timed(|| drop(cache));
        columns[3].time(size, time, size);
        bytes.value(size, grown as f64 / size as f64, "bytes");
    }
    Ok(())
}
