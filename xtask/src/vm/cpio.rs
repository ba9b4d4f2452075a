//! Format of the initial file system: cpio's "newc" (Linux,
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{Result, Write};

const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// Archive to write. A file's folders must be written before it.
pub(crate) struct Archive<W> {
    out: W,
    count: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, count: 0 }
    }

    pub(crate) fn folder(&mut self, path: &str) -> Result<()> {
        self.entry(path, FOLDER | 0o755, &[])
    }

    pub(crate) fn file(&mut self, path: &str, bytes: &[u8], executable: bool) -> Result<()> {
        self.entry(path, REGULAR | if executable { 0o755 } else { 0o644 }, bytes)
    }

    pub(crate) fn link(&mut self, path: &str, to: &str) -> Result<()> {
        self.entry(path, LINK | 0o777, to.as_bytes())
    }

    /// Writes the trailer.
    pub(crate) fn finish(mut self) -> Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.count += 1;
        let too_long = |_| std::io::Error::other(format!("{path}: too long for the format"));
        let size = u32::try_from(bytes.len()).map_err(too_long)?;
        let name_size = u32::try_from(path.len() + 1).map_err(too_long)?;
        let links = 1;
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor,
        // namesize, check
        let fields = [self.count, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(path.as_bytes())?;
        self.out.write_all(b"\0")?;
        self.pad(6 + 8 * fields.len() + path.len() + 1)?;
        self.out.write_all(bytes)?;
        self.pad(bytes.len())
    }

    /// Pads to a multiple of four bytes: the header with its name, and the data.
    fn pad(&mut self, written: usize) -> Result<()> {
        self.out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes() {
        let mut archive = Archive::new(Vec::new());
        archive.file("init", b"hello", true).expect("a vector takes all");
        let bytes = archive.finish().expect("a vector takes all");
        let text = String::from_utf8(bytes).expect("no other bytes here");
        let first = "070701\
            00000001000081ed00000000000000000000000100000000\
            00000005000000000000000000000000000000000000000500000000\
            init\0\0hello\0\0\0";
        assert_eq!(&text[..first.len()], first.replace('\n', ""));
        let rest = &text[first.len()..];
        assert!(rest.starts_with("070701") && rest.ends_with("TRAILER!!!\0\0\0\0"));
        assert_eq!(text.len() % 4, 0);
    }
}
