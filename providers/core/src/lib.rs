//! The contract between uverbs and its providers, and the doors to the kernel.
