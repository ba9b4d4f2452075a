//! A software mlx5 HCA: the other side of the hardware interface.
