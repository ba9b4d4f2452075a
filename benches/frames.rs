//! Gain of huge pages for a program that touches many frames: `cargo bench --bench frames`
//!
//! The same 65536 frames of 4 KiB, as one slab of 256 MiB, which is in huge pages if the kernel has
//! some, and as 256 slabs of 1 MiB, which never are. A line of each frame is written, in an order
//! that no prefetcher knows. Blocks alternate; medians with 5th and 95th percentile, and their
//! ratio.

use std::hint::black_box;
use std::time::Instant;

use uverbs::softhca::SoftHca;
use uverbs::{Device, Frame, ProtectionDomain};

const FRAME: usize = 4096;
const FRAMES: usize = 1 << 16;
const BLOCKS: usize = 41;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::from_source(std::sync::Arc::new(SoftHca::builder().build()?));
    let pd = device.open()?.alloc_pd()?;
    let mut one = frames(&pd, 1)?;
    let mut many = frames(&pd, 256)?;
    let huge = huge_kib()?;
    let order = order();
    let mut times = [Vec::new(), Vec::new()];
    for block in 0..=BLOCKS {
        for (times, frames) in times.iter_mut().zip([&mut one, &mut many]) {
            let start = Instant::now();
            for &at in &order {
                // A different line of each, or all would fall into one set of the cache.
                frames[at][at % (FRAME / 64) * 64] = block as u8;
            }
            black_box(&mut *frames);
            let ns = start.elapsed().as_nanos() as f64 / FRAMES as f64;
            // The first block maps the pages.
            if block > 0 {
                times.push(ns);
            }
        }
    }
    println!("{huge} KiB of this process are in huge pages");
    for (name, times) in ["one slab of 256 MiB", "256 slabs of 1 MiB"].into_iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        println!("{name:<20} {:>6.1} ns a frame ({:.1}..{:.1})", at(50), at(5), at(95));
    }
    println!("ratio frames_many_over_one {:.2}", times[1][BLOCKS / 2] / times[0][BLOCKS / 2]);
    Ok(())
}

/// All frames, cut from so many slabs.
fn frames(pd: &ProtectionDomain, slabs: usize) -> Result<Vec<Frame>, Box<dyn std::error::Error>> {
    let mut frames = Vec::with_capacity(FRAMES);
    for _ in 0..slabs {
        let slab = pd.slab(FRAME, FRAMES / slabs)?;
        while let Some(mut frame) = slab.take() {
            frame[0] = 1;
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// Every index once, scattered: a multiplier that is odd permutes a power of two.
fn order() -> Vec<usize> {
    (0..FRAMES).map(|at| at.wrapping_mul(40_503) % FRAMES).collect()
}

fn huge_kib() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let number = line.and_then(|line| line.trim().split(' ').next()).unwrap_or("0");
    Ok(number.parse()?)
}
