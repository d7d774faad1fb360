//! Carries out what nodes decide: clock, threads, peer links.
pub mod engine;
pub use engine::Engine;
