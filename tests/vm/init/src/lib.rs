//! What the test machine and its host tell each other: a [`plan`] goes in with the image, [`report`] lines come out of
//! the second serial port.

pub mod plan;
pub mod report;
pub mod sys;
