//! Queue pairs against each other, from WQE to CQE.

mod messages;
mod objects;
mod simulation;
mod wire;
