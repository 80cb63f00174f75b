//! makejinja for tests: its output is the reference for ours.

use std::path::{Path, PathBuf};

use crate::services::service::{command, program, run};

pub struct Makejinja {
    program: PathBuf,
}

impl Makejinja {
    /// `scripts/services.sh makejinja` installs it.
    pub fn find() -> Self {
        Self {
            program: program(
                "makejinja",
                "TERRANE_TEST_MAKEJINJA",
                &["makejinja/2.8.1/bin/makejinja"],
            ),
        }
    }

    /// Runs it in a directory with a `makejinja.toml`; it must succeed.
    pub fn run(&self, dir: &Path) -> String {
        let mut command = command(self.program.clone());
        run(command.current_dir(dir).env("PYTHONDONTWRITEBYTECODE", "1"))
    }
}
