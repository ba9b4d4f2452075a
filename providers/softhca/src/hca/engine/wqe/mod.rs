//! Work requests: doorbells, records, fetching a WQE and walking its segments.

pub(crate) mod doorbell_records;
pub(crate) mod recv_wqe;
pub(crate) mod ring;
pub(crate) mod segments;
pub(crate) mod send_wqe;
pub(crate) mod streams;
pub(crate) mod tags;
