//! The binary `terrane`. All code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    let process = cli::Process::capture(); // environment, clock, terminal: read here, once
    let args = cli::Args::parse_from_process(&process);
    match cli::run(args, &process) {
        Ok(status) => status.into(),
        Err(err) => process.report(&err),
    }
}
