//! Connections by address: the connection manager and endpoints.

mod cm;
mod cm_errors;
mod cm_events;
mod cm_groups;
mod cm_param;
mod endpoints;
mod iwarp;
mod peer_ends;
