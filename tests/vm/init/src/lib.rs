//! Protocol between the test machine and its host: the image holds the [`plan`], and [`report`]
//! lines come out of the second serial port.

pub mod plan;
pub mod report;
pub mod sys;
