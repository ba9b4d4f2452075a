//! Named C unions: an array of bytes, and a struct for each member.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Reads the member `T` of a union. A member longer than the union, which no layout has, would read
/// as its default.
pub(crate) fn view<T: FromBytes + Default>(union: &[u8]) -> T {
    T::read_from_prefix(union).map_or_else(|_| T::default(), |(member, _)| member)
}

/// Writes the member `T` of a union and zeroes the bytes behind it, so that no former value is
/// left.
pub(crate) fn fill<T: IntoBytes + Immutable>(union: &mut [u8], member: T) {
    let rest = core::iter::repeat(&0);
    for (byte, value) in union.iter_mut().zip(member.as_bytes().iter().chain(rest)) {
        *byte = *value;
    }
}
