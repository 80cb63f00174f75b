//! makejinja for tests: what it renders is what ours must render.

use std::path::{Path, PathBuf};

use crate::service::{command, program, run};

pub struct Makejinja {
    program: PathBuf,
}

impl Makejinja {
    /// `scripts/services.sh makejinja` obtains it.
    pub fn find() -> Self {
        Self {
            program: program(
                "makejinja",
                "TERRANE_TEST_MAKEJINJA",
                &["makejinja/2.8.1/bin/makejinja"],
            ),
        }
    }

    /// Runs it in a directory with a `makejinja.toml`; it must go well.
    pub fn run(&self, dir: &Path) -> String {
        let mut command = command(self.program.clone());
        run(command.current_dir(dir).env("PYTHONDONTWRITEBYTECODE", "1"))
    }
}
