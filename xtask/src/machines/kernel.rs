//! Debian's kernel for aarch64 with pages of 16 KiB.

use std::fs;

use super::toolchain::base;
use crate::debian::apt::{Apt, Archive, failed, once, unpack};
use crate::step::Outcome;
use crate::vm::fetch::BACKPORTS;
use crate::vm::kernels::{Kernel, keep, packages};
use crate::vm::world;

/// Package that depends on the current kernel.
const META: &str = "linux-image-arm64-16k:arm64";
/// Suffix of the architecture's package names.
const MACHINE: &str = ":arm64";
/// Bytes of a page.
const PAGE: u32 = 16 << 10;

/// Downloads the kernel, unless present.
///
/// # Errors
///
/// A skip if the kernel is unavailable.
pub(super) fn fetch() -> Result<Kernel, Outcome> {
    let folder = base().join("kernel");
    once(&folder, &format!("{META} {}", world::all_modules().join(" ")), || {
        println!("fetching {META}");
        let archives = [Archive { name: "debian", suites: &["trixie", BACKPORTS] }];
        let apt = Apt::of_suites(&base().join("apt-kernel"), &archives)?;
        let apt = apt.of_machines(&["amd64", "arm64"])?;
        apt.update();
        let depends = apt.depends(META, Some(BACKPORTS));
        let name = depends.iter().find_map(|package| package.strip_prefix("linux-image-"));
        let no_kernel = || Outcome::Skipped(format!("apt knows no {META}: no network?"));
        let name = name.filter(|name| name.ends_with(MACHINE)).ok_or_else(no_kernel)?;
        let (debs, unpacked) = (base().join("kernel-debs"), base().join("kernel-unpacked"));
        let packages = packages(&apt, name);
        apt.download(&packages.iter().map(String::as_str).collect::<Vec<_>>(), &debs)?;
        unpack(&debs, &unpacked)?;
        let kept = keep(&unpacked, name.trim_end_matches(MACHINE), &folder);
        [debs, unpacked].iter().for_each(|done| drop(fs::remove_dir_all(done)));
        kept
    })?;
    let kernel = Kernel::at(&folder)?;
    let image = fs::read(&kernel.image).map_err(|error| failed(&kernel.image, &error))?;
    match page_size(&image) {
        Some(PAGE) => Ok(kernel),
        other => Err(failed(&kernel.image, &format!("a kernel whose pages are {other:?}"))),
    }
}

/// Bytes of a page, from an image's header (Linux, Documentation/arch/arm64/booting.rst).
fn page_size(image: &[u8]) -> Option<u32> {
    const MAGIC: &[u8] = b"ARM\x64";
    let flags = image.get(24..32)?;
    if image.get(56..60) != Some(MAGIC) {
        return None;
    }
    [None, Some(4 << 10), Some(PAGE), Some(64 << 10)][usize::from(flags[0] >> 1 & 3)]
}

#[cfg(test)]
mod tests {
    use super::page_size;

    #[test]
    fn a_header_tells_of_pages() {
        let mut image = [0; 64];
        assert_eq!(page_size(&image), None);
        image[56..60].copy_from_slice(b"ARM\x64");
        for (flags, size) in [(8, None), (10, Some(4096)), (12, Some(16384)), (14, Some(65536))] {
            image[24] = flags;
            assert_eq!(page_size(&image), size);
        }
        assert_eq!(page_size(&image[..59]), None);
    }
}
