//! Configuration: the environment and `/etc/rdma/rsocket/preload_config` select the programs and
//! sockets that use librdmacm, and the sizes of their queues.
//!
//! A line of that file names a program by the beginning of its name, and a family, a type and a
//! protocol; `*` is any:
//!
//! ```text
//! # program domain type protocol
//! iperf3    INET   STREAM *
//! ```
//!
//! If the file is missing or has no valid line, all sockets are taken.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libc::{
    AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK,
    SOCK_STREAM, c_int,
};

use uverbs_core::environment::Variable;

use crate::rdma::inside;
use crate::real::uncancelled;

/// Default configuration file: rdma-core's `RS_CONF_DIR` and its file name.
const FILE: &str = "/etc/rdma/rsocket/preload_config";
/// `AF_IB` (`rdma/rdma_cma.h`).
const AF_IB: c_int = 27;

/// A line of the file. `None` matches any value.
struct Line {
    program: Option<Vec<u8>>,
    family: Option<c_int>,
    kind: Option<c_int>,
    protocol: Option<c_int>,
}

/// Value of a word. `Some(None)`: `*`, any value. `None`: an unknown word.
fn meaning(word: &str, prefixes: &[&str], known: &[(&str, c_int)]) -> Option<Option<c_int>> {
    if word == "*" {
        return Some(None);
    }
    let upper = word.to_ascii_uppercase();
    let short = prefixes.iter().find_map(|prefix| upper.strip_prefix(prefix)).unwrap_or(&upper);
    known.iter().find(|(name, _)| *name == short).map(|(_, value)| Some(*value))
}

/// Parses a line. `None`: a comment or an invalid line, which C's library ignores, too.
fn line(text: &str) -> Option<Line> {
    if text.starts_with('#') {
        return None;
    }
    let mut words = text.split_whitespace();
    let mut next = || words.next();
    let (program, family, kind, protocol) = (next()?, next()?, next()?, next()?);
    let families = [("INET", AF_INET), ("INET6", AF_INET6), ("IB", AF_IB)];
    let kinds = [("STREAM", SOCK_STREAM), ("DGRAM", SOCK_DGRAM)];
    let protocols = [("TCP", IPPROTO_TCP), ("UDP", IPPROTO_UDP)];
    Some(Line {
        program: (program != "*").then(|| program.to_ascii_lowercase().into_bytes()),
        family: meaning(family, &["AF_", "PF_"], &families)?,
        kind: meaning(kind, &["SOCK_"], &kinds)?,
        protocol: meaning(protocol, &["IPPROTO_"], &protocols)?,
    })
}

/// Configuration, read when the first socket is created.
pub(crate) struct Config {
    lines: Vec<Line>,
    /// This program's name in lower case.
    program: Vec<u8>,
    /// Returns true if the program forks between `accept` and the first byte (`RDMAV_FORK_SAFE`).
    pub(crate) forks: bool,
    /// `RS_SQ_SIZE`, `RS_RQ_SIZE` and `RS_INLINE`; 0 is librdmacm's own.
    pub(crate) sizes: [c_int; 3],
}

/// A number of the environment, as `atoi` reads it.
fn number(variable: Variable) -> c_int {
    let text = variable.text().unwrap_or_default();
    let digits = text.trim_start().bytes().take_while(u8::is_ascii_digit).count();
    text.trim_start()[..digits].parse().unwrap_or(0)
}

fn read() -> Config {
    // Tests, and users without write access to the default file, name another one.
    let file = Variable::PreloadConfig.path().unwrap_or_else(|| PathBuf::from(FILE));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    // Name by which the program was started, as in `program_invocation_short_name`.
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().map(|name| name.as_bytes().to_ascii_lowercase());
    let sizes = [Variable::SocketSqSize, Variable::SocketRqSize, Variable::SocketInline];
    Config {
        lines: text.lines().filter_map(line).collect(),
        program: program.unwrap_or_default(),
        forks: number(Variable::ForkSafe) != 0,
        sizes: sizes.map(number),
    }
}

pub(crate) fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| uncancelled(|| inside(read)))
}

/// A socket's type without the flags that may come with it.
pub(crate) fn bare(kind: c_int) -> c_int {
    kind & !(SOCK_CLOEXEC | SOCK_NONBLOCK)
}

impl Config {
    /// Returns true if this program's sockets of this kind go to librdmacm (`intercept_socket`).
    pub(crate) fn takes(&self, family: c_int, kind: c_int, protocol: c_int) -> bool {
        let kind = bare(kind);
        let protocol = match (protocol, kind) {
            (0, SOCK_STREAM) => IPPROTO_TCP,
            (0, SOCK_DGRAM) => IPPROTO_UDP,
            (protocol, _) => protocol,
        };
        let is = |wanted: Option<c_int>, value| wanted.is_none_or(|wanted| wanted == value);
        self.lines.is_empty()
            || self.lines.iter().any(|line| {
                let program = line.program.as_deref().unwrap_or_default();
                self.program.starts_with(program)
                    && is(line.family, family)
                    && is(line.kind, kind)
                    && is(line.protocol, protocol)
            })
    }
}
