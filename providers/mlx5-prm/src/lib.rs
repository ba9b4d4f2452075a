//! ConnectX (mlx5) hardware layouts as Rust types.
