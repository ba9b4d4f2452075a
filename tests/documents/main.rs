//! Documents that repeat facts of the code.

mod parity;
mod readme;
