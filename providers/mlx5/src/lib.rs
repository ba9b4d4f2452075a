//! The uverbs provider for ConnectX (mlx5).
