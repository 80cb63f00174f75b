//! How the program is linked: at a fixed address, on Linux.
//!
//! A runner is started for every run and lives for milliseconds. Tens of thousands of addresses need no
//! correction at each start then, and the pages they are in stay shared
//! (docs/decisions/0022-linked-at-a-fixed-address.md).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
