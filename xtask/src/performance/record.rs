//! Record: figures of one vendor's processors, as a file beside the page.
//!
//! `NAME: VALUE` lines describe machine and time. A line `== PART` begins a part, with the values
//! of all rounds in the lines of [`Figures`].

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;

use super::figures::Figures;
use super::{Options, Part};
use crate::compiler::compiler;

/// Suffix of a record's file.
const SUFFIX: &str = ".figures";

/// Figures of one vendor's processors.
#[derive(Debug)]
pub(super) struct Record {
    /// Vendor of the processor, which names the file.
    pub(super) processor: String,
    /// Place and time of the measurement, as names and values.
    pub(super) about: Vec<(String, String)>,
    pub(super) parts: Vec<(Part, Figures)>,
}

impl Record {
    /// Record of this machine, without figures.
    pub(super) fn here() -> Self {
        let processor = vendor(&file("/proc/cpuinfo")).to_owned();
        Self { processor, about: Vec::new(), parts: Vec::new() }
    }

    /// Notes machine and time, at the end of the measurement.
    pub(super) fn describe(&mut self, options: &Options) {
        let cpuinfo = file("/proc/cpuinfo");
        let model = field(&cpuinfo, "model name").unwrap_or("unknown");
        let count = std::thread::available_parallelism().map_or(0, usize::from);
        let quick = if options.quick { ", with `--quick`" } else { "" };
        let load = file("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(", ");
        let about = [
            ("date", said("date", &["-u", "+%F"])),
            ("version", said("git", &["describe", "--always", "--dirty"])),
            ("processors", format!("{count} of \"{model}\"")),
            ("kernel", file("/proc/sys/kernel/osrelease").trim().to_owned()),
            ("load at the end, of 1, 5, 15 minutes", load),
            ("compiler", compiler()),
            ("runs of each", format!("{}{quick}", options.rounds)),
        ];
        self.about = about.map(|(name, value)| (name.to_owned(), value)).to_vec();
    }

    /// Records of a folder, sorted by processor.
    pub(super) fn all(folder: &Path) -> io::Result<Vec<Self>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(processor) = name.and_then(|name| name.strip_suffix(SUFFIX)) else { continue };
            records.push(Self::parse(processor, &fs::read_to_string(&path)?));
        }
        records.sort_by(|a, b| a.processor.cmp(&b.processor));
        Ok(records)
    }

    /// Name of the file.
    pub(super) fn file(&self) -> String {
        format!("{}{SUFFIX}", self.processor)
    }

    /// Text of the file.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.about {
            let _ = writeln!(text, "{name}: {value}");
        }
        for (part, figures) in &self.parts {
            let _ = writeln!(text, "== {}\n{}", part.name(), figures.text());
        }
        text
    }

    fn parse(processor: &str, text: &str) -> Self {
        let mut sections = text.split("== ");
        let about = sections.next().unwrap_or_default().lines();
        let pair = |line: &str| {
            line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let parts = sections.filter_map(|section| {
            let (name, lines) = section.split_once('\n')?;
            let mut figures = Figures::default();
            figures.read(lines);
            Some((Part::from_str(name, false).ok()?, figures))
        });
        Self {
            processor: processor.to_owned(),
            about: about.filter_map(pair).collect(),
            parts: parts.collect(),
        }
    }

    /// Figures of a part, if it was measured.
    pub(super) fn part(&self, part: Part) -> Option<&Figures> {
        self.parts.iter().find(|(of, _)| *of == part).map(|(_, figures)| figures)
    }
}

/// Text of a file; empty if it can't be read.
fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Value of the first field of this name in `/proc/cpuinfo`.
fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let rest = cpuinfo.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim_start_matches(['\t', ' ', ':']))
}

fn vendor(cpuinfo: &str) -> &'static str {
    match field(cpuinfo, "vendor_id") {
        Some("AuthenticAMD") => "amd",
        Some("GenuineIntel") => "intel",
        _ => std::env::consts::ARCH,
    }
}

/// First line of a command's output; empty if it fails.
fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().map(|output| output.stdout);
    let text = String::from_utf8(output.unwrap_or_default()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let text = "date: 2026-01-02\nruns of each: 2\n\
                    == data-path\nratio recv_1 3 4\nratio_st recv_1 2\n\n\
                    == jitter\nfigure p50 1.5 1.25\n\n";
        let record = Record::parse("amd", text);
        assert_eq!(record.file(), "amd.figures");
        assert_eq!(record.about[1], ("runs of each".to_owned(), "2".to_owned()));
        assert_eq!(record.part(Part::DataPath).map(|figures| figures.names().count()), Some(2));
        assert!(record.part(Part::Wire).is_none());
        assert_eq!(record.text(), text);
    }

    #[test]
    fn the_vendor_names_the_processor() {
        let amd = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\n";
        assert_eq!(vendor(amd), "amd");
        assert_eq!(field(amd, "model name"), Some("AMD EPYC"));
        assert_eq!(vendor("vendor_id\t: GenuineIntel\n"), "intel");
        assert_eq!(vendor("CPU implementer\t: 0x41\n"), std::env::consts::ARCH);
    }
}
