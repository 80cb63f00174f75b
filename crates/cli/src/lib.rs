//! The command line of terrane: arguments, requests and views; the binary only calls it.

pub mod view;
