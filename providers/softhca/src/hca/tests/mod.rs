//! Queue pairs against each other, from WQE to CQE.

mod congestion;
mod copy;
mod counters;
mod data;
mod dynamic;
mod errors;
mod hostile;
mod lent_answers;
mod loans;
mod lossy;
mod moderation;
mod packets;
mod page_fault_services;
mod page_faults;
mod pages;
mod pending;
mod placement;
mod queues;
mod rendezvous;
mod services;
mod shared;
mod simulation;
mod streams;
mod stuck;
mod tags;
mod windows;
