//! Shared by all commands: input and output, tables of commands, numbers and owners of objects.

pub(crate) mod call;
pub(crate) mod general;
pub(crate) mod numbers;
pub(crate) mod owner;
pub(crate) mod pages;
pub(crate) mod rings;
pub(crate) mod simple;
pub(crate) mod table;
pub(crate) mod umem;
