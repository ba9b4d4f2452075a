//! Error numbers of the system.

use std::fmt;

use nix::errno::Errno as Known;

/// An error number, as `errno` holds it after a failed call.
///
/// `Debug` prints the name, `Display` the text. A number without a name prints as a number.
///
/// ```
/// # use uverbs_core::errno::Errno;
/// assert_eq!(Errno::ENOMEM.raw(), 12);
/// assert_eq!(format!("{:?}: {0}", Errno::from_raw(22)), "EINVAL: Invalid argument");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(i32);

macro_rules! constants {
    ($($name:ident)*) => {
        #[allow(missing_docs, reason = "errno(3) says what each means")]
        impl Errno {
            $(pub const $name: Self = Self(libc::$name);)*
        }
    };
}

constants! {
    E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF EBADMSG EBUSY ECANCELED
    ECONNABORTED ECONNREFUSED ECONNRESET EDOM EEXIST EFAULT EFBIG EHOSTUNREACH EINPROGRESS EINTR
    EINVAL EIO EISCONN EISDIR EMFILE EMSGSIZE ENAMETOOLONG ENETUNREACH ENFILE ENOBUFS ENODATA ENODEV
    ENOENT ENOLCK ENOMEM ENOSPC ENOSYS ENOTCONN ENOTDIR ENOTEMPTY ENOTSUP ENOTTY ENXIO EOPNOTSUPP
    EOVERFLOW EPERM EPIPE EPROTO EPROTONOSUPPORT ERANGE EREMOTEIO EROFS ESHUTDOWN ESPIPE ESRCH
    ESTALE ETIMEDOUT EXDEV
}

impl Errno {
    /// The number, positive.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw)
    }

    /// The number, as returned by [`std::io::Error::raw_os_error`].
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// Description from the system.
    #[must_use]
    pub fn desc(self) -> &'static str {
        Known::from_raw(self.0).desc()
    }

    /// The number of a failed system call; `EIO` for an error without one.
    #[must_use]
    pub fn of(error: &std::io::Error) -> Self {
        error.raw_os_error().map_or(Self::EIO, Self)
    }

    /// `errno` of the last failed call on this thread.
    pub(crate) fn last() -> Self {
        Self::of_nix(Known::last())
    }

    /// Converts nix's errno. A function and no `From`: nix is not part of the public API.
    pub(crate) fn of_nix(errno: Known) -> Self {
        Self(errno as i32)
    }
}

impl From<i32> for Errno {
    fn from(raw: i32) -> Self {
        Self(raw)
    }
}

impl From<Errno> for i32 {
    fn from(errno: Errno) -> Self {
        errno.0
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Known::from_raw(self.0) {
            Known::UnknownErrno => write!(f, "errno {}", self.0),
            known => fmt::Debug::fmt(&known, f),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Known::from_raw(self.0) {
            Known::UnknownErrno => write!(f, "error number {}", self.0),
            known => f.write_str(known.desc()),
        }
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_name_a_text_or_itself() {
        assert_eq!(
            format!("{:?}, {0}", Errno::EOPNOTSUPP),
            "EOPNOTSUPP, Operation not supported on transport endpoint"
        );
        assert_eq!(format!("{:?}, {0}", Errno::from_raw(4000)), "errno 4000, error number 4000");
        assert_eq!(Errno::from_raw(4000).raw(), 4000);
        assert_eq!(i32::from(Errno::from(110)), Errno::ETIMEDOUT.raw());
    }

    #[test]
    fn it_comes_out_of_io_errors_and_goes_back() {
        let error = std::io::Error::from(Errno::EBUSY);
        assert_eq!((error.raw_os_error(), Errno::of(&error)), (Some(16), Errno::EBUSY));
        assert_eq!(Errno::of(&std::io::Error::other("made up")), Errno::EIO);
        assert_eq!(Errno::of_nix(Known::ENODATA), Errno::ENODATA);
    }
}
