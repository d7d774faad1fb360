//! One replica.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod command;
pub mod contract;
