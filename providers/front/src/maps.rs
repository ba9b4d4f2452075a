//! Mappings of a file in this process, by `/proc/self/maps` (Linux's
//! `Documentation/filesystems/proc.rst`).

use std::ffi::CStr;
use std::fs;
use std::os::fd::AsFd;

use nix::sys::stat::fstat;

/// Addresses at which `len` bytes from `offset` of a file are mapped; empty if the kernel does not
/// report them.
pub(crate) fn addresses(file: impl AsFd, offset: u64, len: u64) -> Vec<usize> {
    let Ok(stat) = fstat(file) else { return Vec::new() };
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let found = maps.lines().filter_map(|line| address(line, stat.st_ino, offset, len));
    found.collect()
}

/// Address of a memfd's bytes in a line, by inode number. The kernel may merge neighbouring areas.
fn address(line: &str, inode: u64, offset: u64, len: u64) -> Option<usize> {
    // start-end perms offset dev inode name
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let from = hex(words.nth(1)?)?;
    let mapped = words.nth(1)?.parse() == Ok(inode) && words.next()?.starts_with("/memfd:");
    let at = start.checked_add(offset.checked_sub(from)?)?;
    (mapped && at.checked_add(len)? <= end).then_some(at as usize)
}

/// Returns `true` if a memfd of this name is mapped between two addresses.
pub(crate) fn has_memfd(name: &CStr, start: u64, end: u64) -> bool {
    let name = format!("/memfd:{}", name.to_string_lossy());
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let Some((Some(from), Some(to))) = range.map(|(from, to)| (hex(from), hex(to))) else {
            return false;
        };
        from < end && start < to && line.split_ascii_whitespace().nth(5) == Some(&*name)
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_where_a_part_of_a_file_is() {
        let line =
            "7f0000002000-7f0000005000 rw-s 00001000 00:01 77    /memfd:softhca-uar (deleted)";
        assert_eq!(address(line, 77, 0x1000, 0x1000), Some(0x7f00_0000_2000));
        assert_eq!(address(line, 77, 0x3000, 0x1000), Some(0x7f00_0000_4000));
        // Before the range, after it, of another file.
        assert_eq!(address(line, 77, 0, 0x1000), None);
        assert_eq!(address(line, 77, 0x3000, 0x1001), None);
        assert_eq!(address(line, 78, 0x1000, 0x1000), None);
        for odd in
            ["", "x", "1-2", "7f00-7g00 rw-p 0 00:01 77 /memfd:x", "2-1 r 3 00:01 77 /memfd:x"]
        {
            assert_eq!(address(odd, 77, 0x1000, 1), None, "{odd}");
        }
        assert_eq!(address(&line.replace("/memfd:", "/file:"), 77, 0x1000, 0x1000), None);
    }
}
