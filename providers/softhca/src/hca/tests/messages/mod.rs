//! Messages: operations of each transport, their memory, and their errors.

mod copy;
mod data;
mod dynamic;
mod dynamic_packets;
mod errors;
mod lent_answers;
mod loans;
mod page_fault_services;
mod page_faults;
mod rendezvous;
mod services;
mod streams;
mod tags;
