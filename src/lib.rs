//! RDMA verbs for Rust with no C underneath.
