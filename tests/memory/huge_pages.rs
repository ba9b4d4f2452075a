//! Large memory is allocated in huge pages: frames and exposed memory.

use std::fs;

use uverbs::AccessFlags;

/// The flags of the mapping around an address, from `/proc/self/smaps`.
fn flags(addr: u64) -> String {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines().skip_while(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        !range.is_some_and(|(from, to)| {
            let hex = |text| u64::from_str_radix(text, 16).ok();
            hex(from).is_some_and(|from| from <= addr) && hex(to).is_some_and(|to| addr < to)
        })
    });
    lines.find(|line| line.starts_with("VmFlags:")).unwrap().to_owned()
}

#[test]
fn large_memory_is_aligned_to_huge_pages_and_asks_for_them() {
    if common::is_function() {
        return common::skip("a function reaches memory of files");
    }
    let pd = common::device().open().unwrap().alloc_pd().unwrap();
    let slab = pd.slab(4096, 512).unwrap();
    let exposed = pd.expose((2 << 20) + 1, AccessFlags::empty()).unwrap();
    let small = pd.slab(4096, 511).unwrap().take().unwrap();
    let first = slab.take().unwrap().sge().addr;
    for addr in [first, exposed.addr()] {
        assert_eq!(addr % (2 << 20), 0, "{addr:#x}");
    }
    if !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
        common::skip("this kernel has no transparent huge pages to ask for");
        return;
    }
    let asks = |addr| flags(addr).split(' ').any(|flag| flag == "hg");
    assert!(asks(first) && asks(exposed.addr()));
    assert!(!asks(small.sge().addr));
    // The peer has no access beyond the end of the memory.
    assert!(exposed.read(2 << 20, &mut [0; 1]).is_ok());
    assert!(exposed.read(2 << 20, &mut [0; 2]).is_err());
}
