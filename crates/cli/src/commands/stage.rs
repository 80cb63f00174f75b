//! Commands about the stages after an apply: facts and gates.

pub(crate) mod facts;
pub(crate) mod verify;
