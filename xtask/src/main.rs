//! Checks and measures the repository itself: `cargo xtask tidy | docs | bench`.
//!
//! Not here: anything that a user of terrane runs.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for developers, in their terminal"
)]

mod bench;
mod bench_facts;
mod bench_gates;
mod bench_render;
mod bench_secrets;
mod bench_state;
mod child;
mod docs;
mod layers;
mod manifest;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy             check the rules of the house
       cargo xtask docs [--check]   write the generated pages, or compare them
       cargo xtask bench [OPTIONS]  measure terrane beside its peers (`bench/README.md`)
       cargo xtask bench-facts [OPTIONS]  measure the publication of facts
       cargo xtask bench-render [OPTIONS]  measure `terrane render` beside makejinja
       cargo xtask bench-secrets TERRANE SOPS AGE_KEYGEN  measure files of secrets beside `sops`
       cargo xtask bench-state [OPTIONS]  measure the state service beside its peers
       cargo xtask bench-gates [OPTIONS]  measure what many gates cost";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match args.as_slice() {
        ["tidy"] => tidy(&root),
        ["docs"] => write_docs(&root),
        ["docs", "--check"] => Ok(check_docs(&root)),
        ["bench-render", options @ ..] => bench_render::main(options),
        ["bench-facts", options @ ..] => bench_facts::main(&root, options),
        ["bench-secrets", terrane, sops, keygen] => {
            bench_secrets::main(Path::new(terrane), Path::new(sops), Path::new(keygen))
        }
        ["bench-state", options @ ..] => bench_state::main(&root, options),
        ["bench-gates", options @ ..] => bench_gates::main(&root, options),
        ["bench", options @ ..] => bench::main(&root, options),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match outcome {
        Ok(code) => code,
        Err(err) => {
            eprintln!("error: {err}");
            ExitCode::FAILURE
        }
    }
}

fn tidy(root: &Path) -> std::io::Result<ExitCode> {
    let tree = tidy::SourceTree::read(root)?;
    let problems = tidy::check(&tree);
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        println!("tidy: {} files, nothing to say", tree.files.len());
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("error: rules of the house broken: {}", problems.len());
    Ok(ExitCode::FAILURE)
}

fn write_docs(root: &Path) -> std::io::Result<ExitCode> {
    for path in docs::write(root)? {
        println!("{path}");
    }
    Ok(ExitCode::SUCCESS)
}

fn check_docs(root: &Path) -> ExitCode {
    let stale = docs::stale(root);
    for path in &stale {
        eprintln!("error: `{path}` is not what the code would write");
    }
    if stale.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("hint: `cargo xtask docs` writes it");
    ExitCode::FAILURE
}

/// The repository's root: the parent of this crate's directory. Prefers Cargo's run-time value to the path at
/// compile time.
fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
