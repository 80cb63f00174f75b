//! The state endpoint over real HTTP, spoken by hand and by real engines.

mod endpoint;
mod engines;
mod wire;
