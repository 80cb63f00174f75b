//! Data as they are read, templates as they are rendered, and what becomes of secrets.

mod reading;
mod secrets;
