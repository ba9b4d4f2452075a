//! Environment variables of the library: their table, and the one function that reads them.
//!
//! In a process with rights that its user lacks (set-user-ID, set-group-ID, file capabilities) all
//! variables read as unset, as with `secure_getenv`(3). Otherwise its user could name files to
//! write and devices to trust.
//!
//! The library reads all variables when it is loaded ([`remember`]; programs in Rust: at the first
//! use). A variable that the program removes later keeps its old value. A variable that the program
//! sets later takes effect.
//!
//! # Safety
//!
//! One libc call, whose argument is a number.
#![allow(unsafe_code, reason = "asks for the program's privileges")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A variable that the library reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `UVERBS_DEVICE`: devices visible to a C program, and to choose a default device from,
    /// separated by commas. Unset: all devices of the kernel.
    Device,
    /// `UVERBS_SOFTHCA_PROFILE`: card by whose capabilities software HCAs go.
    SoftHcaProfile,
    /// `UVERBS_CAPTURE`: file that the packets of all software HCAs are written to.
    Capture,
    /// `UVERBS_TRACE`: file that commands, doorbells, WQEs and completions are written to.
    Trace,
    /// `SYSFS_PATH`: mount point of sysfs.
    SysfsPath,
    /// `MLX5_CQE_SIZE`: bytes of a C program's CQEs.
    CqeSize,
    /// `MLX5_SHUT_UP_BF`: doorbells of C programs without BlueFlame.
    ShutUpBlueFlame,
    /// `MLX5_SCATTER_TO_CQE`: short messages of C programs in their CQEs.
    ScatterToCqe,
    /// `RS_PRELOAD_CONFIG`: configuration file of `librspreload.so`.
    PreloadConfig,
    /// `RS_SQ_SIZE`: send queue size of a preloaded socket.
    SocketSqSize,
    /// `RS_RQ_SIZE`: receive queue size of a preloaded socket.
    SocketRqSize,
    /// `RS_INLINE`: bytes that a preloaded socket sends inline.
    SocketInline,
    /// `RDMAV_FORK_SAFE`: the program forks between `accept` and the first byte.
    ForkSafe,
}

/// Values of all variables.
type Values = [Option<OsString>; Variable::ALL.len()];

/// Values when the library was loaded.
static LOADED: OnceLock<Values> = OnceLock::new();

impl Variable {
    /// All variables, in the order of their declaration.
    pub const ALL: [Self; 13] = [
        Self::Device,
        Self::SoftHcaProfile,
        Self::Capture,
        Self::Trace,
        Self::SysfsPath,
        Self::CqeSize,
        Self::ShutUpBlueFlame,
        Self::ScatterToCqe,
        Self::PreloadConfig,
        Self::SocketSqSize,
        Self::SocketRqSize,
        Self::SocketInline,
        Self::ForkSafe,
    ];

    /// Name in the environment.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "UVERBS_DEVICE",
            Self::SoftHcaProfile => "UVERBS_SOFTHCA_PROFILE",
            Self::Capture => "UVERBS_CAPTURE",
            Self::Trace => "UVERBS_TRACE",
            Self::SysfsPath => "SYSFS_PATH",
            Self::CqeSize => "MLX5_CQE_SIZE",
            Self::ShutUpBlueFlame => "MLX5_SHUT_UP_BF",
            Self::ScatterToCqe => "MLX5_SCATTER_TO_CQE",
            Self::PreloadConfig => "RS_PRELOAD_CONFIG",
            Self::SocketSqSize => "RS_SQ_SIZE",
            Self::SocketRqSize => "RS_RQ_SIZE",
            Self::SocketInline => "RS_INLINE",
            Self::ForkSafe => "RDMAV_FORK_SAFE",
        }
    }

    /// Value, which may be empty. `None`: unset, or the process is privileged.
    #[must_use]
    pub fn value(self) -> Option<OsString> {
        let loaded = LOADED.get_or_init(read_all);
        self.read(is_privileged(), now).or_else(|| loaded[self as usize].clone())
    }

    /// Value that is text. `None` also for other bytes.
    #[must_use]
    pub fn text(self) -> Option<String> {
        self.value()?.into_string().ok()
    }

    /// Value that names a file. `None` also where it is empty.
    #[must_use]
    pub fn path(self) -> Option<PathBuf> {
        self.value().filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    fn read(self, privileged: bool, of: impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
        if privileged { None } else { of(self.name()) }
    }
}

/// Keeps the values of all variables, for a program that empties its environment later.
pub fn remember() {
    LOADED.get_or_init(read_all);
}

fn now(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn read_all() -> Values {
    Variable::ALL.map(|variable| variable.read(is_privileged(), now))
}

/// Returns true if the kernel started the program with rights that its user lacks (getauxval(3)).
fn is_privileged() -> bool {
    // SAFETY: has no obligation; reads the auxiliary vector, which stays as the program began.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_is_at_its_place_under_its_name() {
        for (place, variable) in Variable::ALL.into_iter().enumerate() {
            assert_eq!(variable as usize, place);
            let same = Variable::ALL.iter().filter(|other| other.name() == variable.name());
            assert_eq!(same.count(), 1, "{}", variable.name());
        }
    }

    #[test]
    fn a_privileged_process_has_no_variables() {
        let all = |name: &str| Some(OsString::from(format!("value of {name}")));
        for variable in Variable::ALL {
            assert_eq!(variable.read(true, all), None);
            let value = variable.read(false, all).unwrap();
            assert_eq!(value.to_str().unwrap(), format!("value of {}", variable.name()));
        }
        assert!(!is_privileged());
    }
}
