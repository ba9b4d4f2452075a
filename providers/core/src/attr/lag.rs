//! Port of a queue pair on bonded ports.

/// Port that a queue pair on bonded ports (LAG) sends by, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "mlx5dv_query_qp_lag_port")]
pub struct LagPort {
    /// The queue pair's port.
    pub configured: u8,
    /// Port that carries its packets now; another one while the configured port is down.
    pub active: u8,
}
